"""What an operation may take: so many seconds and bytes for all its requests, retries and waits."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from loopring_lab.errors import RelayerTimeout
from loopring_lab.http.deadline import Deadline

TURN = 0.2  # seconds of a wait at once: a Ctrl-C just before a wait begins is answered when the wait ends

_active: ContextVar[Budget | None] = ContextVar("active budget", default=None)


class Budget:
    """The seconds and bytes that an operation may take; None for no limit.

    A budget made while another is active is a part of it. `spent` tells that something was not done, or not
    finished, because of this budget.
    """

    def __init__(
        self,
        seconds: float | None = None,
        size: float | None = None,
        setting: str = "max_seconds",
    ) -> None:
        self.spent = False
        self._setting = setting
        self._seconds = math.inf if seconds is None else seconds
        self._end = time.monotonic() + self._seconds
        self._bytes = math.inf if size is None else size
        self._outer = _active.get()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._under_way: set[Deadline] = set()

    @staticmethod
    def active() -> Budget | None:
        """Return the budget of the operation under way in this thread."""
        return _active.get()

    @contextmanager
    def activate(self) -> Iterator[Budget]:
        """Make this the budget of what is done inside the block."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)

    @property
    def seconds_left(self) -> float:
        own = 0.0 if self._stopped.is_set() else max(0.0, self._end - time.monotonic())
        return min(own, self._outer.seconds_left) if self._outer else own

    @property
    def bytes_left(self) -> float:
        return min(self._bytes, self._outer.bytes_left) if self._outer else self._bytes

    def spend(self, size: int) -> None:
        """Count bytes that were received."""
        with self._lock:
            self._bytes -= size
        if self._outer:
            self._outer.spend(size)

    def part(self) -> Budget:
        """Return a budget that ends with this one, but counts bytes of its own."""
        # A shallow copy: both have one end and one `stop`, while the bytes left are a number of each.
        return copy.copy(self)

    def pause(self, seconds: float) -> None:
        """Sleep, or until the operation is stopped."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._stopped.is_set():
            self._stopped.wait(min(left, TURN))

    @contextmanager
    def watch(self, deadline: Deadline) -> Iterator[None]:
        """Have `stop` cut off the exchange inside the block."""
        self._under_way.add(deadline)
        if self._stopped.is_set():
            deadline.cut()
        try:
            yield
        finally:
            self._under_way.discard(deadline)

    def stop(self) -> None:
        """Cut off the exchanges under way, and allow no more."""
        self._stopped.set()
        for deadline in tuple(self._under_way):
            deadline.cut()

    def exceeded(self, problem: str, *, maybe_received: bool = False) -> RelayerTimeout:
        """Return the error of an operation that would take too long."""
        first = self._first_to_end()
        first.spent = True
        limit = f"{first._setting}={first._seconds:g}"
        message = f"{problem}, beyond {limit}. Allow more time, or try again later."
        return RelayerTimeout(message, maybe_received=maybe_received)

    def _first_to_end(self) -> Budget:
        if self._outer is None:
            return self
        outer = self._outer._first_to_end()
        return outer if outer._end < self._end else self
