"""The pace of requests: never more in a second than a relayer allows."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

# Requests per second and endpoint: the limit of the public relayer, by its documents.
DEFAULT_RATE = 5.0
DRIFT = 1.001  # a server's clock may run faster than ours: one in a thousand is more than any quartz drifts
SPREAD = 0.5  # share of an even distance that requests keep at least, so that they do not come in bunches
LEAST_PAUSE = 0.005  # seconds; shorter sleeps cost a processor more than they gain


class RateLimiter:
    """Never brings more requests into a server's window than the rate allows, whatever delays they meet.

    The server counts a request when it arrives: some time after it was sent, and before it is answered. So a
    request takes a place from when it is sent until a window after its answer. Answers within 20 ms leave
    98 % of the rate, within 0.2 s 83 %.
    """

    def __init__(
        self, rate: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        if rate is None:
            self._places = math.inf
            self._window = 0.0
            self._gap = 0.0
        else:
            self._places = max(1, int(rate))
            self._window = DRIFT * self._places / rate
            self._gap = SPREAD * self._window / self._places
        self._next_start = -math.inf
        self._under_way = 0
        # The times at which the places of answered requests become free, the earliest first.
        self._leaving: deque[float] = deque()

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Sleep until a place is free, and take it; `answered` gives it back."""
        while seconds := self._take_place():
            sleep(max(seconds, LEAST_PAUSE))

    def answered(self) -> None:
        """Note that a request was answered, or given up: its place is free after a window."""
        with self._lock:
            self._under_way -= 1
            self._leaving.append(self._clock() + self._window)

    def _take_place(self) -> float:
        """Take a place and return 0, or return how many seconds to wait before another try."""
        with self._lock:
            now = self._clock()
            while self._leaving and self._leaving[0] <= now:
                self._leaving.popleft()
            start = max(now, self._next_start)
            taken = self._under_way + len(self._leaving)
            if taken >= self._places and self._leaving:
                # The relayer counts requests over a sliding second, so a full window opens when the
                # oldest answer in it is one window old.
                start = max(start, self._leaving[0])
            elif taken >= self._places:
                # Nobody knows when one of those under way will be answered: look again soon.
                start = max(start, now + LEAST_PAUSE)
            if start > now:
                return start - now
            self._next_start = now + self._gap
            self._under_way += 1
            return 0.0
