"""Where uvicorn has to be a little different: faults and refusals on the wire, a prompt start and stop."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TYPE_CHECKING

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from loopring_lab.errors import LabError
from loopring_lab.relayer.answers import INVALID_ARGUMENT, error_answer
from loopring_lab.relayer.settings import ErrorShape

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["PromptServer", "listen", "new_server"]

HOST = "127.0.0.1"
BACKLOG = 256
KEEP_ALIVE_SECONDS = 60
GRACE_SECONDS = 0.25
LINGER_SECONDS = 1.0


class _Protocol(H11Protocol):
    """HTTP that lets the application reach its connection, and refuses as the application does."""

    shape: ErrorShape
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or has headers beyond all measure, in the shape of every other error."""
        answer = error_answer(self.shape, INVALID_ARGUMENT, msg)
        headers = [*answer.raw_headers, (b"connection", b"close")]
        head = h11.Response(status_code=answer.status_code, headers=headers)
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        # Closing with unread bytes would reset the connection, and the answer would be lost.
        self._is_refused = True
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


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
        """Accept connections from now on.

        Parameters
        ----------
        sockets : list of socket or None
            Listening already.
        """
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.ready.set()

    async def main_loop(self) -> None:
        """Serve until asked to stop."""
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish for a moment, then close every connection.

        Parameters
        ----------
        sockets : list of socket or None
            As uvicorn passes them; they are closed elsewhere.
        """
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=GRACE_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def new_server(app: FastAPI, shape: ErrorShape) -> PromptServer:
    """A quiet uvicorn server.

    Parameters
    ----------
    app : FastAPI
        What it serves.
    shape : {"result_info", "flat", "ok"}
        Of errors, as `Settings.error_shape` says.

    Returns
    -------
    PromptServer
        Not yet running.
    """
    config = Config(
        app,
        http=type("Protocol", (_Protocol,), {"shape": shape}),
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


def listen(port: int) -> socket.socket:
    """Listen on the loopback interface.

    Parameters
    ----------
    port : int
        0 takes a free one.

    Returns
    -------
    socket
        Listening.

    Raises
    ------
    LabError
        Where the port is taken.
    """
    # asyncio turns Nagle's algorithm off only where the protocol is named; else answers wait 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        hint = "Give port=0 for a free one."
        raise LabError(f"Relayer: cannot listen on {HOST}, port {port} ({error}). {hint}") from error
    return listener
