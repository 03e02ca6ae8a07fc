"""The exchange's whole history, generated: 67,896 full blocks through `check()`, in a process of its own.

Run: python tests/benchmarks/bench_rollup_history.py [blocks]
"""

import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa
from support.rollup_history import CHAIN_ID, SIZE, History

from loopring_lab.rollup import Blocks
from loopring_lab.rollup.checks import Check, check

BLOCKS = 67_896


class Timed:
    """The blocks of a history, with the seconds that writing them takes."""

    def __init__(self, blocks: int) -> None:
        self.history, self.seconds = History(blocks), 0.0

    def __iter__(self) -> Iterator[Blocks]:
        batches = self.history.batches()
        while True:
            begin = time.perf_counter()
            raw = next(batches, None)
            self.seconds += time.perf_counter() - begin
            if raw is None:
                return
            yield Blocks(raw)


def checked(blocks: int, submissions: pa.Table, channel: Any) -> None:
    """Check the history; send what was found, the seconds without writing it, and the peak of memory."""
    source, begin = Timed(blocks), time.perf_counter()
    found: Check = check(source, submissions, CHAIN_ID, progress=False)
    seconds = time.perf_counter() - begin - source.seconds
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    channel.send((found, seconds, source.seconds, peak))


def main() -> None:
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else BLOCKS
    submissions = History(blocks).submissions()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=checked, args=(blocks, submissions, theirs))
    process.start()
    found, seconds, writing, peak = ours.recv()
    process.join()
    print(found.summary[["checked", "wrong", "not_checkable"]].to_string())
    assert found.problems.empty
    print(
        f"{blocks:,} blocks, {blocks * SIZE:,} transactions: checked in {seconds:,.1f} s, {writing:,.1f} s to write"
    )
    print(
        f"{blocks * SIZE / seconds:,.0f} transactions a second; peak memory {peak / 2**30:.2f} GiB (under 2 GiB)"
    )


if __name__ == "__main__":
    main()
