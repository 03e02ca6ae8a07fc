"""Kill a sync 100 times while the relayer's histories grow and requests fail: nothing lost, no duplicates.

Run: python tests/benchmarks/bench_archive_kills.py [kills] [accounts] [trades of each] [longest life in s]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.archive_kills import kill_again_and_again


def main(kills: int = 100, accounts: int = 40, trades: int = 5_000, longest: float = 5.0) -> int:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_again_and_again(Path(folder) / "archive", kills, accounts, trades, longest)
    seconds = time.perf_counter() - began
    print(f"{kills} kills in {seconds:.0f} s; {tally.finished} syncs finished before theirs")
    print(f"{tally.rows:,} trades of {accounts} accounts: none lost, no duplicates, integer sums equal")
    print(f"{tally.lives_with_commits} lives committed something; {tally.requests:,} requests")
    print(f"{tally.faults.total():,} faults: {dict(sorted(tally.faults.items()))}")
    return 0


if __name__ == "__main__":
    numbers = [float(word) if "." in word else int(word) for word in sys.argv[1:]]
    sys.exit(main(*numbers))
