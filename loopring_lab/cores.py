"""Work in threads, on as many cores as this process may use."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MOST_THREADS = 3
"""Of more threads, each waits for the others' Python code longer than it works."""


def count() -> int:
    """Return how many cores this process may use, which can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def threads() -> int:
    """Return how many threads to work in: outside the main one, other threads have work for the cores."""
    is_main = threading.current_thread() is threading.main_thread()
    return min(count(), MOST_THREADS) if is_main else 1


def share(*jobs: Callable[[], Any]) -> list[Any]:
    """Return what jobs find, each of several in a thread where there are cores for them."""
    if min(len(jobs), threads()) < 2:
        return [job() for job in jobs]
    pool = ThreadPoolExecutor(threads())
    try:
        return [*pool.map(lambda job: job(), jobs)]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # neither an error nor Ctrl-C waits for the others
