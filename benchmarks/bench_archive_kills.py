"""Kill syncs, imports, exports and copies of trades and of blocks, 100 times each; cut the power 100 times.

Nothing that was acknowledged is lost, nothing is doubled. A power cut takes away what was not synced
(`support/power_loss.py`). Run: python benchmarks/bench_archive_kills.py [name ...] [number]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import kill_rig
from support.file_trials import cut_power_again_and_again
from support.power_loss import compiled

# Seconds from the first commit of a life to its kill, at most: so long that it often commits again.
KINDS = dict.fromkeys(("syncs", "page_imports", "block_syncs", "block_imports"), 1.5)
# For exports and copies: times as long as they take.
KINDS |= {"exports": 1.2, "copies": 1.2, "block_copies": 1.2}


def kills(name: str, number: int) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally = getattr(kill_rig, name)(Path(folder), number, KINDS[name])
    print(
        f"{name}: {tally.kills} lives in {time.perf_counter() - began:.0f} s, {tally.finished} ended before their kill"
    )
    print(
        f"  {tally.acknowledged:,} commits acknowledged in {tally.lives_with_commits} lives: none lost or doubled"
    )
    print(
        f"  {tally.lives_that_added} lives added something; {tally.files} files, each as its source in the end"
    )
    print(
        f"  {tally.faults.total():,} failing requests {dict(sorted(tally.faults.items()))}",
        flush=True,
    )


def power(cuts: int, most_syncs: int = 40) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        assert library, "needs a C compiler"
        rows = cut_power_again_and_again(Path(folder), library, cuts, most_syncs)
    print(
        f"{cuts} power cuts in {time.perf_counter() - began:.0f} s: none of {rows:,} reported rows lost",
        flush=True,
    )


if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if not word.isdigit()]
    number = next((int(word) for word in sys.argv[1:] if word.isdigit()), 100)
    for name in names or [*KINDS, "power"]:
        if name == "power":
            power(number)
        else:
            kills(name, number)
