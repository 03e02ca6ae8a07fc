"""What a client meets on the way: counted requests, a rate limit, latency and faults."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loopring_lab.relayer.schemas import UNKNOWN, error_answer
from loopring_lab.relayer.settings import Settings

__all__ = ["API", "Conditions", "Counts", "Faults", "RateLimiter"]

API = "/api/v3"
WINDOW = 1.0
TOO_MANY = 429
STATUSES = {
    "429": "too many requests",
    "500": "internal error",
    "503": "service unavailable",
}
LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass
class Counts:
    """What has happened since the relayer was made."""

    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rate_limited: Counter[str] = field(default_factory=Counter)


class RateLimiter:
    """A sliding window: never more than so many requests of one name in any second."""

    def __init__(self, limit: int | None, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._accepted: dict[str, deque[float]] = {}

    def accepts(self, name: str) -> bool:
        """Whether a request may pass now; one that may not does not count against later ones."""
        if self._limit is None:
            return True
        times, now = self._accepted.setdefault(name, deque(maxlen=self._limit)), self._clock()
        if len(times) == self._limit and now - times[0] < WINDOW:
            return False
        times.append(now)
        return True


class Faults:
    """Draws faults: which request meets which depends on the seed and the request's number only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._number = 0
        self._in_a_row: Counter[bytes] = Counter()

    def draw(self, address: bytes) -> str | None:
        """The fault that the next request meets."""
        if not self._settings.faults:
            return None
        self._number += 1
        kind = self._kind(self._number)
        if kind is None or self._in_a_row[address] >= self._settings.max_faults_in_a_row:
            del self._in_a_row[address]
            return None
        self._in_a_row[address] += 1
        return kind

    def _kind(self, number: int) -> str | None:
        dice = sha256(f"{self._settings.fault_seed} {number}".encode()).digest()
        chance = int.from_bytes(dice[:6], "big") / 2**48
        for kind, share in self._settings.faults.items():
            if chance < share:
                return kind
            chance -= share
        return None


class Conditions:
    """ASGI middleware that stands between the client and the relayer proper."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        counts: Counts,
        paths: frozenset[str],
        clock: Callable[[], float],
    ) -> None:
        self._app, self._settings, self._counts, self._paths = app, settings, counts, paths
        self._limiter, self._faults = RateLimiter(settings.rate_limit, clock), Faults(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        endpoint = scope["path"].removeprefix(API)
        self._counts.requests[endpoint] += 1
        accepted = self._limiter.accepts(endpoint)
        if self._settings.latency:
            await asyncio.sleep(self._settings.latency)
        if accepted:
            await self._serve(scope, receive, send)
        else:
            self._counts.rate_limited[endpoint] += 1
            await self._refuse("429", scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = self._faults.draw(scope["raw_path"] + b"?" + scope["query_string"])
        if kind is None:
            await self._app(scope, receive, send)
            return
        self._counts.faults[kind] += 1
        if kind in STATUSES:
            await self._refuse(kind, scope, receive, send)
        elif kind == "reset":
            await _reset(scope, receive)
        else:
            await self._stall(kind == "slow", scope, receive, send)

    async def _refuse(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        status = int(kind)
        headers = {"Retry-After": "1"} if status == TOO_MANY and self._settings.retry_after else None
        answer = error_answer(self._settings.error_shape, UNKNOWN, STATUSES[kind], status, headers)
        await answer(scope, receive, send)

    async def _stall(self, resumes: bool, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and half of the body; then the rest after a while, or close."""
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, collect)
        body = b"".join(message.get("body", b"") for message in messages)
        half = len(body) // 2
        await send(messages[0])
        await send({"type": "http.response.body", "body": body[:half], "more_body": True})
        if resumes:
            await asyncio.sleep(self._settings.slow_seconds)
            await send({"type": "http.response.body", "body": body[half:]})
        else:
            scope["state"]["transport"].close()
            await _gone(receive)


async def _reset(scope: Scope, receive: Receive) -> None:
    transport: asyncio.Transport = scope["state"]["transport"]
    # Closing with a linger time of 0 makes the kernel send RST instead of FIN.
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    transport.abort()
    await _gone(receive)


async def _gone(receive: Receive) -> None:
    """Wait until the server knows that the connection is closed, else it would try to answer."""
    while (await receive())["type"] != "http.disconnect":
        pass
