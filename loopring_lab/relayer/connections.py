"""The relayer's sockets: how connections are accepted, limited and closed, and how the server stops."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from loopring_lab.errors import LabError
from loopring_lab.relayer.faults import SOURCE_HEADER
from loopring_lab.relayer.schemas import Code, error_response

if TYPE_CHECKING:
    from fastapi import FastAPI

    from loopring_lab.relayer.app import Backend

HOST = "127.0.0.1"
BACKLOG = 256
MAX_CONNECTIONS = 200
KEEP_ALIVE_SECONDS = 60
CLIENT_SECONDS = 10.0
"""How long a client may take to send a whole request, and to read on where it has stopped reading."""
GRACE_SECONDS = 0.25
LINGER_SECONDS = 1.0


class HttpProtocol(H11Protocol):
    """HTTP/1.1 that gives the app access to its connection, and lets no client hold one for nothing."""

    _is_rejected = _is_stalled = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}
        self._idle_since = self.loop.time()
        self._limit_time(True)
        if len(self.connections) > MAX_CONNECTIONS:
            protocols: Any = self.connections
            idle = [each for each in protocols if not (each.is_served or each.transport.is_closing())]
            min(idle, key=_idle_since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit_time(False)
        super().connection_lost(exc)

    @property
    def is_served(self) -> bool:
        """Whether a whole request has come, and its response is on its way to a client that reads it."""
        cycle = self.cycle
        return bool(cycle) and not (cycle.more_body or cycle.response_complete or self._is_stalled)

    def data_received(self, data: bytes) -> None:
        if not self._is_rejected:
            super().data_received(data)
            self._limit_time(self.conn.their_state in (h11.IDLE, h11.SEND_BODY))

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_stalled = True
        self._limit_time(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_stalled = False
        self._limit_time(False)

    def send_400_response(self, msg: str) -> None:
        """Reject bytes that are not HTTP, or headers that are far too long."""
        self._reject(HTTPStatus.BAD_REQUEST, msg)

    def _limit_time(self, waits_for_client: bool) -> None:
        if not waits_for_client and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif waits_for_client and self._deadline is None:
            self._deadline = self.loop.call_later(CLIENT_SECONDS, self._time_out)

    def _time_out(self) -> None:
        has_begun = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if has_begun and not self._is_stalled:
            self._reject(HTTPStatus.REQUEST_TIMEOUT, f"The request took longer than {CLIENT_SECONDS:g} s.")
        else:
            self.transport.abort()

    def _reject(self, status: HTTPStatus, message: str) -> None:
        self._is_rejected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            app: Any = self.config.app
            backend: Backend = app.state.backend
            headers = {"Connection": "close", SOURCE_HEADER: backend.source_header}
            shape = backend.settings.error_shape
            response = error_response(shape, Code.INVALID_ARGUMENT, message, status, headers)
            code = response.status_code
            head = h11.Response(status_code=code, headers=response.raw_headers, reason=HTTPStatus(code).phrase.encode())
            for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        # Closing with unread bytes would reset the connection, and the response would be lost.
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


def _idle_since(protocol: HttpProtocol) -> float:
    return protocol._idle_since


class ThreadedServer(Server):
    """A quiet uvicorn server that reports when it is ready and stops at once; uvicorn polls every 0.1 s."""

    def __init__(self, app: FastAPI) -> None:
        config = Config(
            app,
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        super().__init__(config)
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    def request_stop(self) -> None:
        """Ask the server to stop, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.ready.set()

    async def main_loop(self) -> None:
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish for a moment, then close every connection, also one just accepted."""
        now, itself = asyncio.get_running_loop().time, asyncio.current_task()
        end = now() + GRACE_SECONDS
        while (arriving := asyncio.all_tasks() - {itself, *self.server_state.tasks}) and now() < end:
            await asyncio.wait(arriving, timeout=GRACE_SECONDS)
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=GRACE_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def listen(port: int) -> socket.socket:
    # asyncio disables Nagle's algorithm only where the protocol is named; otherwise responses wait 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise LabError(
            f"Relayer: cannot listen on {HOST}, port {port} ({error}). Use port=0 to take a free port."
        ) from error
    return listener
