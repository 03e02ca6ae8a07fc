"""Measures for the benchmarks: processor and wall time of calls taken in turns, and memory of a process."""

import gc
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def processor_seconds(call: Callable[[], Any]) -> float:
    """Return the seconds that all threads of this process spend on a call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def both_seconds(call: Callable[[], Any]) -> tuple[float, float]:
    """Return processor and wall time of a call; freeing its result does not count."""
    gc.collect()
    begun = (time.process_time(), time.perf_counter())
    result = call()
    ended = (time.process_time(), time.perf_counter())
    del result
    return ended[0] - begun[0], ended[1] - begun[1]


def in_turns(
    calls: dict[str, Callable[[], Any]], rounds: int
) -> dict[str, tuple[float, float]]:
    """Time calls in turns, which other work on the machine then slows alike; return medians of each."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(both_seconds(call))
    medians = {}
    for name, pairs in taken.items():
        cpu, wall = zip(*pairs, strict=True)
        medians[name] = (statistics.median(cpu), statistics.median(wall))
    return medians


def status(name: str) -> int:
    """Return bytes that the system counts for this process, such as ``VmHWM``, the peak of its memory."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(name)
    )
    return int(line.split()[1]) * 1024


@contextmanager
def most_on_disk(folder: Path) -> Iterator[list[int]]:
    """Note all the time how many bytes the files of a folder take on the disk."""
    sizes = [0]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            total = 0
            for file in folder.rglob("*"):
                # DuckDB removes files while they are listed.
                with suppress(FileNotFoundError):
                    total += file.stat().st_blocks * 512
            sizes.append(total)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


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
