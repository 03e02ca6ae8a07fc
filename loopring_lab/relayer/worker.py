"""Moves key updates on while nobody looks."""

from __future__ import annotations

import atexit
import sqlite3
import threading
from collections.abc import Callable

__all__ = ["Worker"]


class Worker:
    """A thread that takes a step every so often.

    Parameters
    ----------
    step : callable
        Takes one step; another process that has the store's file open may make it fail for a moment.
    seconds : float or None
        Pause before each step. None: never takes one.
    """

    def __init__(self, step: Callable[[], int], seconds: float | None) -> None:
        self._step, self._seconds = step, seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to take steps."""
        if self._seconds is not None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="embedded relayer's worker", daemon=True)
            self._thread.start()
            atexit.register(self.stop)  # a thread that is cut off within SQLite takes the program down

    def stop(self) -> None:
        """End after the present step."""
        self._stop.set()
        atexit.unregister(self.stop)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._step()
            except sqlite3.OperationalError:
                continue  # locked by another process; the next step does it
