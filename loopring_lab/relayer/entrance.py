"""The outermost layer of the relayer's HTTP side: what is true of every request and every response."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SOURCE_HEADER = "X-Loopring-Lab-Source"


class SourceHeader:
    """ASGI middleware that names the data in every response."""

    def __init__(self, app: ASGIApp, source: str) -> None:
        self._app = app
        self._header = (SOURCE_HEADER.lower().encode(), source.encode("ascii"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self._header]
            await send(message)

        await self._app(scope, receive, send_named)
