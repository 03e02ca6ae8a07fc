"""Measures for the benchmarks: seconds of a call, of two calls taken in turns, and memory of a process."""

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def seconds(call: Callable[[], Any]) -> float:
    """Time a call; freeing its result does not count."""
    begin = time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - begin
    del result
    return elapsed


def paired(
    ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int
) -> tuple[float, float, list[float]]:
    """Time two calls in turns; return the median of each, and the ratio of each round in order."""
    taken = []
    for _ in range(rounds):
        gc.collect()
        taken.append((seconds(ours), seconds(theirs)))
    mine, other = (statistics.median(column) for column in zip(*taken, strict=True))
    return mine, other, sorted(one / two for one, two in taken)


def status(name: str) -> int:
    """Return bytes that the system counts for this process, such as ``VmHWM``, the peak of its memory."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(name)
    )
    return int(line.split()[1]) * 1024


def alone(work: Callable[..., Any], *words: Any) -> tuple[Any, float, int]:
    """Do something in a fresh process: what it gives, seconds, and peak memory."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_measured, args=(theirs, work, words)
    )
    process.start()
    theirs.close()
    found: tuple[Any, float, int] = ours.recv()
    process.join()
    return found


def _measured(channel: Any, work: Callable[..., Any], words: tuple[Any, ...]) -> None:
    begin = time.perf_counter()
    found = work(*words)
    channel.send((found, time.perf_counter() - begin, status("VmHWM")))
