"""The places where uvicorn has to be a little different: faults on the wire, and a prompt start and stop."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["PromptServer", "new_server"]

KEEP_ALIVE_SECONDS = 60
GRACE_SECONDS = 0.25


class _Protocol(H11Protocol):
    """HTTP that lets the application reach its connection, so that faults happen on the wire."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class PromptServer(Server):
    """A server that says when it is ready and stops at once; uvicorn's own looks every 0.1 s.

    Parameters
    ----------
    config : Config
        What and how to serve.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    def ask_to_stop(self) -> None:
        """End serving; may be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections from now on."""
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.ready.set()

    async def main_loop(self) -> None:
        """Serve until asked to stop."""
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish for a moment, then close every connection."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=GRACE_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def new_server(app: FastAPI) -> PromptServer:
    """A quiet uvicorn server.

    Parameters
    ----------
    app : FastAPI
        What it serves.

    Returns
    -------
    PromptServer
        Not yet running.
    """
    config = Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    return PromptServer(config)
