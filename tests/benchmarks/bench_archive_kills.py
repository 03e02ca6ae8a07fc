"""Kill a sync 100 times while histories grow and requests fail, and 100 times with a power cut: nothing lost.

A power cut takes away what was not synced (`support/power_loss.py`).
Run: python tests/benchmarks/bench_archive_kills.py [kills|power]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.archive_kills import kill_again_and_again
from support.file_trials import cut_power_again_and_again
from support.power_loss import compiled


def kills(kills: int = 100, accounts: int = 40, trades: int = 5_000, longest: float = 5.0) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_again_and_again(Path(folder) / "archive.duckdb", kills, accounts, trades, longest)
    seconds = time.perf_counter() - began
    print(f"{kills} kills in {seconds:.0f} s; {tally.finished} syncs finished before theirs")
    print(f"{tally.rows:,} trades of {accounts} accounts: none lost, no duplicates, integer sums equal")
    print(f"{tally.lives_with_commits} lives committed something; {tally.requests:,} requests")
    print(f"{tally.faults.total():,} faults: {dict(sorted(tally.faults.items()))}")


def power(cuts: int = 100, most_syncs: int = 40) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        assert library, "needs a C compiler"
        rows = cut_power_again_and_again(Path(folder), library, cuts, most_syncs)
    print(f"{cuts} power cuts in {time.perf_counter() - began:.0f} s: none of {rows:,} reported rows lost")


if __name__ == "__main__":
    for work in (kills, power):
        if work.__name__ in sys.argv[1:] or not sys.argv[1:]:
            work()
