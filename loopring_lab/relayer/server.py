"""Starts and stops an embedded relayer: uvicorn in a thread, on the loopback interface only."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from loopring_lab.errors import LabError, RelayerUnreachable
from loopring_lab.relayer.history import Source
from loopring_lab.relayer.recording import Recording
from loopring_lab.relayer.settings import Settings
from loopring_lab.relayer.view import View
from loopring_lab.relayer.wire import render
from loopring_lab.relayer.world import World

if TYPE_CHECKING:
    from fastapi import FastAPI

    from loopring_lab.relayer.conditions import Counts
    from loopring_lab.relayer.uvicorn_parts import PromptServer

__all__ = ["Relayer"]

HOST = "127.0.0.1"
BACKLOG = 256
START_SECONDS, STOP_SECONDS = 20, 10


class Relayer:
    """A relayer inside this process, for work without a network.

    Parameters
    ----------
    world : World or another Source, optional
        What to serve; the default synthetic world if neither this nor `recording` is given.
    settings : Settings, optional
        How to behave where the contract is silent.
    recording : str or Path, optional
        A folder of saved responses to serve instead.
    port : int
        Port on 127.0.0.1; 0 takes a free one.
    api_key : str, optional
        The key that opens the trades; a random one if absent.
    clock : callable
        Seconds, for the rate limit.

    Raises
    ------
    LabError
        Where both `world` and `recording` are given.
    UnexpectedAnswer
        Where the recording is broken.

    Examples
    --------
    >>> with Relayer(World(size=0.01)) as relayer:
    ...     relayer.source, relayer.base_url.startswith("http://127.0.0.1:")
    ('synthetic world, seed 1', True)
    """

    def __init__(
        self,
        world: Source | None = None,
        settings: Settings | None = None,
        *,
        recording: str | Path | None = None,
        port: int = 0,
        api_key: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if world is not None and recording is not None:
            raise LabError("Relayer: a world and a recording were given. Give one of them.")
        self._data: Source = (world or World()) if recording is None else Recording(recording)
        self.settings = settings or Settings()
        self._port, self._clock = port, clock
        self._key = api_key or secrets.token_urlsafe(32)
        self._running: tuple[PromptServer, threading.Thread, int] | None = None

    def __repr__(self) -> str:
        where = self.base_url if self._running else "not started"
        return f"Relayer({self.source}, {where})"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:<port>``; paths are ``{base_url}/api/v3/...``.

        Raises
        ------
        LabError
            Where the relayer is not running.
        """
        if self._running is None:
            raise LabError("Relayer: it has no address while it is not running. Call start().")
        return f"http://{HOST}:{self._running[2]}"

    @property
    def api_key(self) -> str:
        """A key that opens every account's trades."""
        return self._key

    @property
    def accounts(self) -> list[int]:
        """Accounts that have trades; of a world the users, whose pools are in `World.pools`."""
        return self._data.accounts

    @property
    def source(self) -> str:
        """What is served, in a few words, for captions."""
        return self._data.label

    @cached_property
    def counts(self) -> Counts:
        """Requests, faults and refused requests so far."""
        from loopring_lab.relayer.conditions import Counts

        return Counts()

    @cached_property
    def app(self) -> FastAPI:
        """The ASGI application, also usable without starting a server."""
        from loopring_lab.relayer.app import build_app

        return build_app(self._data, self.settings, self._view, self._key, self.counts, self._clock)

    @cached_property
    def _view(self) -> View:
        return View(self._data.history, self.settings)

    def rows(
        self, account_id: int, fill_type: str | None = None, *, everything: bool = False
    ) -> list[list[Any]]:
        """The truth that a client should arrive at.

        Parameters
        ----------
        account_id : int
            Account id.
        fill_type : str or None
            ``amm``, ``dex``, or None for both.
        everything : bool
            Whether to include the rows that growth has yet to show.

        Returns
        -------
        list of list
            Rows as served, in the order they are served, with numbers as strings whatever the settings say.
        """
        rows = self._view.rows(account_id, fill_type, everything)
        found: list[list[Any]] = json.loads(render(rows, numbers=False))
        return found

    def start(self) -> Self:
        """Begin to serve; does nothing while it already serves.

        Returns
        -------
        Relayer
            This one.

        Raises
        ------
        LabError
            Where the port is taken.
        RelayerUnreachable
            Where the server does not come up.
        """
        if self._running is None:
            listener = _listen(self._port)
            port = listener.getsockname()[1]
            try:
                self._running = (*_serve(self.app, listener), port)
            except BaseException:
                listener.close()
                raise
        return self

    def stop(self) -> None:
        """Stop serving and end the thread; does nothing where it does not serve."""
        if self._running is not None:
            server, thread, _ = self._running
            server.ask_to_stop()
            thread.join(STOP_SECONDS)
            self._running = None

    def run_forever(self) -> None:
        """Serve until Ctrl-C, then stop."""
        self.start()
        try:
            while self._running and self._running[1].is_alive():
                self._running[1].join(1)
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()


def _listen(port: int) -> socket.socket:
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


def _serve(app: FastAPI, listener: socket.socket) -> tuple[PromptServer, threading.Thread]:
    from loopring_lab.relayer.uvicorn_parts import new_server

    server = new_server(app)

    def run() -> None:
        try:
            asyncio.run(server.serve(sockets=[listener]))
        finally:
            listener.close()

    thread = threading.Thread(target=run, name="embedded relayer", daemon=True)
    thread.start()
    if not server.ready.wait(START_SECONDS):
        raise RelayerUnreachable(f"Relayer: it did not start within {START_SECONDS} s. Try once more.")
    return server, thread
