"""Timing for the benchmarks: seconds of one call, and of two calls taken in turns."""

import statistics
import time
from collections.abc import Callable
from typing import Any


def seconds(call: Callable[[], Any]) -> float:
    """Time a call; freeing its result does not count."""
    begin = time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - begin
    del result
    return elapsed


def paired(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> tuple[float, float, float]:
    """Time two calls in turns; return the median of each and the median of the ratios."""
    taken = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    mine, other = (statistics.median(column) for column in zip(*taken, strict=True))
    return mine, other, statistics.median(one / two for one, two in taken)
