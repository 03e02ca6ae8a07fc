"""The outermost layer of the relayer's HTTP side: what is true of every request and every response."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loopring_lab.relayer.schemas import Code, error_response
from loopring_lab.relayer.settings import ErrorShape

SOURCE_HEADER = "X-Loopring-Lab-Source"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80


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
                message = (
                    f"Host: expected {' or '.join(sorted(own))}. The relayer's setting hosts adds others."
                )
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
