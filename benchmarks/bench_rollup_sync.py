"""2,000 blocks synced from the embedded chain at 20 ms latency, against one request at a time.

The chain runs in a process of its own, and has settled the blocks before anything is timed.
Run: python benchmarks/bench_rollup_sync.py
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.archive_kills import hosted, say
from support.rollup_kills import check, last_l1_block, one_at_a_time

from loopring_lab.rollup import Store


def speed(blocks: int = 2_000, latency: float = 0.02, rounds: int = 3) -> None:
    last = last_l1_block(blocks)
    with (
        hosted(f"chain_host({{'latency': {latency}}})", "rollup_kills") as chain,
        tempfile.TemporaryDirectory() as folder,
    ):
        url, exchange = say(chain).split()
        Store(Path(folder) / "first").sync(
            url, rate=None, to_block=last, progress=False
        )
        for number in range(rounds):
            began = time.perf_counter()
            truth = one_at_a_time(url, exchange, last)
            between = time.perf_counter()
            store = Store(Path(folder) / str(number))
            store.sync(url, rate=None, to_block=last, progress=False)
            ended = time.perf_counter()
            check(store, truth)
            theirs = between - began
            ours = ended - between
            print(
                f"{len(truth):,} blocks: {theirs:.2f} s one at a time, {ours:.2f} s, {theirs / ours:.1f} times as fast"
            )


if __name__ == "__main__":
    speed()
