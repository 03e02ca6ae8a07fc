"""What a client meets on the way to a relayer: a rate limit, latency, and failures."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from loopring_lab.relayer.schemas import Code, error_response
from loopring_lab.relayer.settings import Fault, Settings

API = "/api/v3"  # where the contract has every operation
RPC = "/rpc"  # a choice: no relayer has a chain
WINDOW_SECONDS = 1.0  # the contract's limit is one of requests per second
# This is a choice: clients that try four times get through.
MOST_FAULTS_IN_A_ROW = 3


@dataclass
class RequestCounts:
    """Requests, faults and rate-limited requests since the relayer was created."""

    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rate_limited: Counter[str] = field(default_factory=Counter)


class RateLimiter:
    """A sliding window: at most `limit` requests per endpoint in any second."""

    def __init__(self, limit: int | None) -> None:
        """Take None for no limit."""
        self._limit = limit
        self._accepted: dict[str, deque[float]] = {}

    def accepts(self, endpoint: str, now: float) -> bool:
        """Return whether a request may pass at a time in seconds; rejected ones do not count against later ones."""
        if self._limit is None:
            return True
        times = self._accepted.setdefault(endpoint, deque(maxlen=self._limit))
        if len(times) == self._limit and now - times[0] < WINDOW_SECONDS:
            return False
        # A full deque drops its oldest time.
        times.append(now)
        return True


class FaultSchedule:
    """Decides which requests fail, from the number of the request alone, so that runs can be repeated."""

    def __init__(self, settings: Settings) -> None:
        """Take the shares of the faults."""
        self._shares = settings.faults
        self._number = 0
        self._in_a_row: Counter[bytes] = Counter()

    def next_fault(self, url: bytes) -> Fault | None:
        """Return the fault of the next request, if it meets one."""
        if not self._shares:
            return None
        self._number += 1
        fault = self._draw()
        # Whoever tries again often enough gets through.
        if fault is None or self._in_a_row[url] >= MOST_FAULTS_IN_A_ROW:
            del self._in_a_row[url]
            return None
        self._in_a_row[url] += 1
        return fault

    def _draw(self) -> Fault | None:
        digest = sha256(f"1 {self._number}".encode()).digest()
        draw = int.from_bytes(digest[:6]) / 2**48
        # The draw falls into the share of one fault, or beyond all of them.
        for fault, probability in self._shares.items():
            if draw < probability:
                return fault
            draw -= probability
        return None


class NetworkConditions:
    """ASGI middleware that counts, limits, delays and fails requests before the relayer serves them."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        counts: RequestCounts,
        paths: frozenset[str],
    ) -> None:
        """Affect requests of the given paths only."""
        self._app = app
        self._latency = settings.latency
        self._counts = counts
        self._paths = paths
        self._limiter = RateLimiter(settings.rate_limit)
        self._faults = FaultSchedule(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or an error in its place."""
        # The documentation is never disturbed.
        if scope["type"] != "http" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        # A request is counted when it comes, not when it is answered, so that latency does not widen the limit.
        fault = self._fault(scope)
        if self._latency:
            await asyncio.sleep(self._latency)
        app = self._app
        if fault is not None:
            status = HTTPStatus(int(fault))
            app = error_response(Code.UNKNOWN, status.phrase, status)
        await app(scope, receive, send)

    def _fault(self, scope: Scope) -> Fault | None:
        """Count a request, and return the failure that it meets, if any."""
        endpoint = scope["path"].removeprefix(API)
        self._counts.requests[endpoint] += 1
        if not self._limiter.accepts(endpoint, time.monotonic()):
            self._counts.rate_limited[endpoint] += 1
            return "429"
        fault = self._faults.next_fault(
            scope["raw_path"] + b"?" + scope["query_string"]
        )
        if fault is not None:
            self._counts.faults[fault] += 1
        return fault
