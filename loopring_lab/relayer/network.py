"""What a client meets on the way to a relayer: a rate limit, latency, and faults."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loopring_lab.relayer.schemas import Code, error_response
from loopring_lab.relayer.settings import Settings

API = "/api/v3"  # where the contract has every operation
RPC = "/rpc"  # a choice: no relayer has a chain
WINDOW_SECONDS = 1.0  # the contract's limit is one of requests per second
MESSAGES = {
    "429": "too many requests",
    "500": "internal error",
    "503": "service unavailable",
}

# Closing a socket with a linger time of 0 makes the kernel send RST instead of FIN.
NO_LINGER = struct.pack("ii", 1, 0)


def drawn(seed: int, what: object) -> float:
    """Draw what decides whether something meets a fault: a number below 1, always the same for a seed."""
    digest = sha256(f"{seed} {what}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


@dataclass
class RequestCounts:
    """Requests, faults and rate-limited requests since the relayer was created."""

    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rate_limited: Counter[str] = field(default_factory=Counter)


class RateLimiter:
    """A sliding window: at most `limit` requests per endpoint in any second."""

    def __init__(self, limit: int | None, clock: Callable[[], float]) -> None:
        """Take None for no limit, and a clock in seconds."""
        self._limit = limit
        self._clock = clock
        self._accepted: dict[str, deque[float]] = {}

    def accepts(self, endpoint: str) -> bool:
        """Return whether a request may pass now; rejected requests do not count against later ones."""
        if self._limit is None:
            return True
        now = self._clock()
        times = self._accepted.setdefault(endpoint, deque(maxlen=self._limit))
        if len(times) == self._limit and now - times[0] < WINDOW_SECONDS:
            return False
        # A full deque drops its oldest time.
        times.append(now)
        return True


class FaultSchedule:
    """Decides which requests meet which fault, from the seed and the number of the request alone."""

    def __init__(self, settings: Settings) -> None:
        """Take the shares of the faults, and the seed."""
        self._settings = settings
        self._number = 0
        self._in_a_row: Counter[bytes] = Counter()

    def next_fault(self, url: bytes) -> str | None:
        """Return the fault of the next request, if it meets one."""
        if not self._settings.faults:
            return None
        self._number += 1
        fault = self._draw()
        # Whoever tries again often enough gets through.
        if fault is None or self._in_a_row[url] >= self._settings.max_faults_in_a_row:
            del self._in_a_row[url]
            return None
        self._in_a_row[url] += 1
        return fault

    def _draw(self) -> str | None:
        draw = drawn(self._settings.fault_seed, self._number)
        # The draw falls into the share of one fault, or beyond all of them.
        for fault, probability in self._settings.faults.items():
            if draw < probability:
                return fault
            draw -= probability
        return None


class NetworkConditions:
    """ASGI middleware that counts, limits, delays and disturbs requests before the relayer serves them."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        counts: RequestCounts,
        paths: frozenset[str],
        clock: Callable[[], float],
    ) -> None:
        """Disturb requests of the given paths only."""
        self._app = app
        self._settings = settings
        self._counts = counts
        self._paths = paths
        self._limiter = RateLimiter(settings.rate_limit, clock)
        self._faults = FaultSchedule(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or what stands in its place."""
        # The documentation is never disturbed.
        if scope["type"] != "http" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        endpoint = scope["path"].removeprefix(API)
        self._counts.requests[endpoint] += 1
        # Counted when it comes, not when it is answered: latency does not widen the limit.
        is_accepted = self._limiter.accepts(endpoint)
        if self._settings.latency:
            await asyncio.sleep(self._settings.latency)
        if is_accepted:
            await self._serve(scope, receive, send)
        else:
            self._counts.rate_limited[endpoint] += 1
            await self._send_error("429", scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._faults.next_fault(
            scope["raw_path"] + b"?" + scope["query_string"]
        )
        if fault is None:
            await self._app(scope, receive, send)
            return
        self._counts.faults[fault] += 1
        if fault in MESSAGES:
            await self._send_error(fault, scope, receive, send)
        elif fault == "reset":
            await _reset(scope, receive)
        else:
            await self._stall(fault == "slow", scope, receive, send)

    async def _send_error(
        self, fault: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        headers = None
        if fault == "429" and self._settings.retry_after:
            headers = {"Retry-After": "1"}
        shape = self._settings.error_shape
        response = error_response(
            shape, Code.UNKNOWN, MESSAGES[fault], int(fault), headers
        )
        await response(scope, receive, send)

    async def _stall(
        self, resumes: bool, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the head and half of the body; then either the rest after a while, or close the connection."""
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, collect)
        # The head announces the length of the whole body.
        body = b"".join(message.get("body", b"") for message in messages)
        half = len(body) // 2
        await send(messages[0])
        await send(
            {
                "type": "http.response.body",
                "body": body[:half],
                "more_body": True,
            }
        )
        if resumes:
            await asyncio.sleep(self._settings.slow_seconds)
            await send({"type": "http.response.body", "body": body[half:]})
        else:
            _transport(scope).close()
            await _wait_until_closed(receive)


async def _reset(scope: Scope, receive: Receive) -> None:
    transport = _transport(scope)
    transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER
    )
    transport.abort()
    await _wait_until_closed(receive)


def _transport(scope: Scope) -> asyncio.Transport:
    """Return the connection of a request, which the relayer's own protocol class puts there."""
    transport: asyncio.Transport = scope["state"]["transport"]
    return transport


async def _wait_until_closed(receive: Receive) -> None:
    """Wait until the server has noticed that the connection is closed; otherwise it would try to respond."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
