"""The embedded relayer: uvicorn in a thread, on the loopback interface only."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from loopring_lab.errors import LabError, RelayerUnreachable
from loopring_lab.relayer.accounts import Accounts
from loopring_lab.relayer.history import Source, View, render
from loopring_lab.relayer.key_updates import KeyUpdates
from loopring_lab.relayer.recording import Recording
from loopring_lab.relayer.schemas import INVALID_ARGUMENT, error_answer
from loopring_lab.relayer.settings import ErrorShape, Settings
from loopring_lab.relayer.world import World

if TYPE_CHECKING:
    import socket

    from eth_account.signers.local import LocalAccount
    from fastapi import FastAPI

    from loopring_lab.protocol import L2Key
    from loopring_lab.relayer.faults import Counts


class Worker:
    """A thread that takes a step every so often."""

    def __init__(self, step: Callable[[], int], seconds: float | None) -> None:
        self._step, self._seconds = step, seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to take steps."""
        if self._seconds is not None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="embedded relayer's worker", daemon=True)
            self._thread.start()
            atexit.register(self.stop)  # a thread that is cut off within SQLite takes the program down

    def stop(self) -> None:
        """End after the present step."""
        self._stop.set()
        atexit.unregister(self.stop)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._step()
            except sqlite3.OperationalError:
                continue  # locked by another process; the next step does it


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
    """A server that says when it is ready and stops at once; uvicorn's own looks every 0.1 s."""

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


def new_server(app: FastAPI, shape: ErrorShape) -> PromptServer:
    """A quiet uvicorn server."""
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
    """Listen on the loopback interface."""
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
    store : str or Path, optional
        A file that keeps accounts and key updates, also over a kill; in memory if absent.
    now : callable
        Seconds since the epoch: what time it is for the relayer.

    Raises
    ------
    LabError
        Where both `world` and `recording` are given, or the store's file does not fit.
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
        store: str | Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if world is not None and recording is not None:
            raise LabError("Relayer: a world and a recording were given. Give one of them.")
        self._data: Source = (world or World()) if recording is None else Recording(recording)
        self.settings = settings or Settings()
        self._port, self._clock = port, clock
        self._key = api_key or secrets.token_urlsafe(32)
        self._accounts = Accounts(self._data, self.settings, self._key, store)
        self._updates = KeyUpdates(self._accounts, self._data, self.settings, now)
        self._worker = Worker(self._updates.step, self.settings.update_seconds)
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
        return f"http://127.0.0.1:{self._running[2]}"

    @property
    def api_key(self) -> str:
        """The operator's key: it opens every account's trades, and key updates do not end it."""
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
        from loopring_lab.relayer.faults import Counts

        return Counts()

    @cached_property
    def app(self) -> FastAPI:
        """The ASGI application, also usable without starting a server."""
        from loopring_lab.relayer.app import build_app

        return build_app(
            self._data, self.settings, self._view, self._accounts, self._updates, self.counts, self._clock
        )

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

    def signer(self, account_id: int) -> LocalAccount:
        """Who signs for the owner of an account, as a wallet would.

        .. warning::
           A throwaway key made from public text: anybody can make it again. Never send value to its address.

        Parameters
        ----------
        account_id : int
            One of `accounts`.

        Returns
        -------
        LocalAccount
            Its address is the account's owner, or the owner of the wallet that is (see `counterfactual`).

        Raises
        ------
        LabError
            Where the relayer made no owner for the account.
        """
        return self._accounts.owner(account_id).signer

    def l2_key(self, account_id: int) -> L2Key:
        """The first L2 key of an account, as throwaway as its `signer`.

        Parameters
        ----------
        account_id : int
            One of `accounts`.

        Returns
        -------
        L2Key
            What the signer's signature of the account's first keySeed makes.

        Raises
        ------
        LabError
            Where it is not the account's key any more, or the relayer made no owner for the account.
        """
        key, account = self._accounts.owner(account_id).key, self._accounts.find(account_id, None)
        if int(account.x, 16) != key.x:
            hint = "Derive it from the owner's signature of the account's keySeed."
            raise LabError(f"Relayer: the key of account {account_id} was updated since. {hint}")
        return key

    def counterfactual(self, account_id: int) -> dict[str, str] | None:
        """What a key update of a wallet's account sends as ``counterFactualInfo``.

        Parameters
        ----------
        account_id : int
            One of `accounts`. One of them is owned by a counterfactual wallet: that with the largest id.

        Returns
        -------
        dict of str to str or None
            ``walletFactory``, ``walletOwner`` and ``walletSalt``; None where no wallet owns the account.
        """
        found = self._accounts.wallet_of(account_id)
        names = ("walletFactory", "walletOwner", "walletSalt")
        return found and dict(zip(names, found[1], strict=True))

    def add_account(
        self,
        account_id: int,
        owner: str,
        *,
        nonce: int = 0,
        public_key: tuple[int, int] | None = None,
        key_seed: str = "",
    ) -> None:
        """Add an account of somebody's own.

        Parameters
        ----------
        account_id, owner : int, str
            Account id, uint32, and the address of its owner.
        nonce : int
            How many requests and key updates it has made.
        public_key, key_seed : tuple of int or None, str
            x and y of its L2 key, and what the owner signed to make it; None where it has none yet.

        Raises
        ------
        LabError
            Where the owner is no address, the key no point, or the account or its owner known already.
        """
        self._accounts.add(account_id, owner, nonce, public_key, key_seed)

    def step(self) -> int:
        """Take every pending key update one step on, without waiting for the worker.

        Returns
        -------
        int
            How many were moved.
        """
        return self._updates.step()

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
            listener = listen(self._port)
            port = listener.getsockname()[1]
            try:
                self._running = (*self._serve(listener), port)
                self._worker.start()
            except BaseException:
                listener.close()
                raise
        return self

    def _serve(self, listener: socket.socket) -> tuple[PromptServer, threading.Thread]:

        server = new_server(self.app, self.settings.error_shape)

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

    def stop(self) -> None:
        """Stop serving and end the thread; does nothing where it does not serve."""
        if self._running is not None:
            server, thread, _ = self._running
            self._worker.stop()
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
