"""What a client meets before its request is served: a check of its host, a rate limit, latency, faults."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loopring_lab.relayer.schemas import Code, error_response
from loopring_lab.relayer.settings import ErrorShape, Settings

API, RPC = "/api/v3", "/rpc"
SOURCE_HEADER = "X-Loopring-Lab-Source"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80
WINDOW_SECONDS = 1.0
MESSAGES = {"429": "too many requests", "500": "internal error", "503": "service unavailable"}
NO_LINGER = struct.pack("ii", 1, 0)


@dataclass
class RequestCounts:
    """Requests, faults and rate-limited requests since the relayer was created."""

    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rate_limited: Counter[str] = field(default_factory=Counter)


class RateLimiter:
    """A sliding window: at most `limit` requests per endpoint in any second."""

    def __init__(self, limit: int | None, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._accepted: dict[str, deque[float]] = {}

    def accepts(self, endpoint: str) -> bool:
        """Return whether a request may pass now; rejected requests do not count against later ones."""
        if self._limit is None:
            return True
        times, now = self._accepted.setdefault(endpoint, deque(maxlen=self._limit)), self._clock()
        if len(times) == self._limit and now - times[0] < WINDOW_SECONDS:
            return False
        times.append(now)
        return True


class FaultSchedule:
    """Decides which requests meet which fault, from the seed and the number of the request alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._number = 0
        self._in_a_row: Counter[bytes] = Counter()

    def next_fault(self, url: bytes) -> str | None:
        if not self._settings.faults:
            return None
        self._number += 1
        fault = self._fault(self._number)
        if fault is None or self._in_a_row[url] >= self._settings.max_faults_in_a_row:
            del self._in_a_row[url]
            return None
        self._in_a_row[url] += 1
        return fault

    def _fault(self, number: int) -> str | None:
        digest = sha256(f"{self._settings.fault_seed} {number}".encode()).digest()
        draw = int.from_bytes(digest[:6], "big") / 2**48
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
        self._app, self._settings, self._counts, self._paths = app, settings, counts, paths
        self._limiter = RateLimiter(settings.rate_limit, clock)
        self._faults = FaultSchedule(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            await self._send_error("429", scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._faults.next_fault(scope["raw_path"] + b"?" + scope["query_string"])
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

    async def _send_error(self, fault: str, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"Retry-After": "1"} if fault == "429" and self._settings.retry_after else None
        shape, message = self._settings.error_shape, MESSAGES[fault]
        response = error_response(shape, Code.UNKNOWN, message, int(fault), headers)
        await response(scope, receive, send)

    async def _stall(self, resumes: bool, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head and half of the body; then either the rest after a while, or close the connection."""
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
            await _wait_until_closed(receive)


async def _reset(scope: Scope, receive: Receive) -> None:
    transport: asyncio.Transport = scope["state"]["transport"]
    # Closing with a linger time of 0 makes the kernel send RST instead of FIN.
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    transport.abort()
    await _wait_until_closed(receive)


async def _wait_until_closed(receive: Receive) -> None:
    """Wait until the server has noticed that the connection is closed; otherwise it would try to respond."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Entrance:
    """ASGI middleware that names the data in every response, and refuses requests meant for another host.

    A web page can give its own host name the address 127.0.0.1 and then read what is served there; its
    requests still carry its name in the header Host.
    """

    def __init__(self, app: ASGIApp, source: str, hosts: Collection[str], shape: ErrorShape) -> None:
        self._app, self._hosts, self._shape = app, frozenset(hosts), shape
        self._header = (SOURCE_HEADER.lower().encode(), source.encode("ascii"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self._header]
            await send(message)

        app = self._app
        if scope["type"] == "http":
            host, own = _host(scope), own_hosts(*(scope.get("server") or ("", None)))
            if host not in own and host not in self._hosts:
                message = f"Host: expected {' or '.join(sorted(own))}. The relayer's setting hosts adds others."
                app = error_response(self._shape, Code.INVALID_ARGUMENT, message, 403)
        await app(scope, receive, send_named)


def _host(scope: Scope) -> str:
    values = [value for name, value in scope["headers"] if name == b"host"]
    return values[0].decode("latin-1").lower() if len(values) == 1 else ""


@lru_cache(maxsize=16)
def own_hosts(address: str, port: int | None) -> frozenset[str]:
    """Return what the header Host may say where a server listens at an address."""
    names = {*LOOPBACK, address}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == HTTP_PORT else set()))
