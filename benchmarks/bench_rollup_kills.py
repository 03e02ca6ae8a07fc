"""Kill a sync of 2,000 blocks 100 times while requests fail and events are left out: nothing lost or doubled.

Run: python benchmarks/bench_rollup_kills.py
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.rollup_kills import kill_again_and_again


def kills(kills: int = 100, blocks: int = 2_000, longest: float = 4.0) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_again_and_again(Path(folder) / "blocks", kills, blocks, longest)
    seconds = time.perf_counter() - began
    print(
        f"{kills} kills in {seconds:.0f} s; {tally.finished} syncs finished before theirs"
    )
    print(
        f"{tally.stores} stores of {tally.blocks:,} blocks: none lost or doubled, each byte as on the chain"
    )
    print(f"{tally.lives_with_commits} lives committed blocks")
    print(f"{tally.faults.total():,} faults: {dict(sorted(tally.faults.items()))}")


if __name__ == "__main__":
    kills()
