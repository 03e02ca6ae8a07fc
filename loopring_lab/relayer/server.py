"""The embedded relayer: uvicorn in a thread, on the loopback interface only."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Self
from weakref import WeakValueDictionary

from uvicorn import Config, Server

from loopring_lab.errors import LabError, RelayerUnreachable
from loopring_lab.relayer.accounts import Accounts
from loopring_lab.relayer.history import Pager
from loopring_lab.relayer.key_updates import KeyUpdates
from loopring_lab.relayer.network import RPC, RequestCounts
from loopring_lab.relayer.settings import Settings
from loopring_lab.relayer.world import World

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount
    from fastapi import FastAPI

    from loopring_lab.protocol import L2Key

HOST = "127.0.0.1"
SOURCE_HEADER = "X-Loopring-Lab-Source"

BACKLOG = 256  # connections that wait to be accepted
KEEP_ALIVE_SECONDS = 60  # longer than anybody thinks between two cells
# These are far longer than a start or a stop takes, also on a busy machine: one that is not done by then has failed.
START_SECONDS = 20
STOP_SECONDS = 10
GRACE_SECONDS = 0.25  # for requests under way when the relayer stops

# The relayers that serve in this process, by their address.
_running: WeakValueDictionary[str, Relayer] = WeakValueDictionary()


class Relayer:
    """A relayer inside this process, to work without a network.

    Parameters
    ----------
    world : World, optional
        What to serve, or anything with the members of a `World`; by default the synthetic world of seed 1.
    settings : Settings, optional
        What it does differently on request.
    port : int
        Port on 127.0.0.1; 0 takes a free one.
    api_key : str, optional
        The operator's API key; a random one if absent.
    now : callable
        Returns the relayer's time, in seconds since the epoch.

    Examples
    --------
    >>> with lab.relayer.Relayer(lab.relayer.World(size=0.01)) as relayer:
    ...     relayer.source, relayer.base_url.startswith("http://127.0.0.1:")
    ('synthetic world, seed 1, size 0.01', True)
    """

    def __init__(
        self,
        world: World | None = None,
        settings: Settings | None = None,
        *,
        port: int = 0,
        api_key: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._data = world or World()
        self.settings = settings or Settings()
        self.counts = RequestCounts()
        self._wanted_port = port
        self._key = api_key or secrets.token_urlsafe(32)
        self._accounts = Accounts(self._data, self.settings, self._key)
        self._updates = KeyUpdates(self._accounts, self._data, self.settings, now)
        self._server: ThreadedServer | None = None

    def __repr__(self) -> str:
        where = self.base_url if self._server else "not started"
        return f"Relayer({self.source}, {where})"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:<port>``; paths are ``{base_url}/api/v3/...``. LabError if it is not running."""
        if self._server is None:
            raise LabError(
                "Relayer: it has no address while it is not running. Call start() first."
            )
        return f"http://{HOST}:{self._server.port}"

    @property
    def rpc_url(self) -> str:
        """The JSON-RPC address of the embedded chain, ``{base_url}/rpc``; LabError if it is not running."""
        return f"{self.base_url}{RPC}"

    @property
    def api_key(self) -> str:
        """The operator's API key: it opens every account, and stays valid when keys are updated."""
        return self._key

    @property
    def accounts(self) -> list[int]:
        """Accounts that have trades; for a world its users, without the pools, which are in `World.pools`."""
        return self._data.accounts

    @property
    def difficult(self) -> dict[int, str]:
        """Accounts without trades whose key is harder to update, by id, each with the reason."""
        return dict(self._accounts.difficult)

    @property
    def source(self) -> str:
        """The name of the data."""
        return self._data.name

    @cached_property
    def app(self) -> FastAPI:
        """The ASGI application, also usable without starting a server."""
        from loopring_lab.relayer.app import Backend, build_app
        from loopring_lab.relayer.chain import Endpoint

        endpoint = Endpoint(self._data, self.settings)
        backend = Backend(
            self._data,
            self.settings,
            self._pager,
            self._accounts,
            self._updates,
            endpoint,
        )
        return build_app(backend, self.counts)

    @cached_property
    def _pager(self) -> Pager:
        return Pager(self._data.history, self.settings)

    def rows(self, account_id: int, fill_type: str | None = None) -> list[list[str]]:
        """Return the rows that a client should end up with.

        Parameters
        ----------
        account_id : int
            Account id.
        fill_type : str or None
            ``amm``, ``dex``, or None for both.

        Returns
        -------
        list of list of str
            Rows as served and in the order they are served.
        """
        return self._pager.rows(account_id, fill_type)

    def signer(self, account_id: int) -> LocalAccount:
        """Return the L1 signer of an account's owner.

        .. warning::
           A throwaway key: never send value to its address. Anybody can derive it from the name of the data.

        Parameters
        ----------
        account_id : int
            One of `accounts`.

        Returns
        -------
        LocalAccount
            Its address owns the account, or owns the wallet that does (see `counterfactual`).

        Raises
        ------
        LabError
            If the relayer has no owner for the account.
        """
        return self._accounts.owner(account_id).signer

    def l2_key(self, account_id: int) -> L2Key:
        """Return the first L2 key of an account, a throwaway like its `signer`.

        Parameters
        ----------
        account_id : int
            One of `accounts`.

        Returns
        -------
        L2Key
            The key derived from the signer's signature of the account's first keySeed.

        Raises
        ------
        LabError
            If the account's key was updated since, or the relayer has no owner for the account.
        """
        key = self._accounts.owner(account_id).key
        account = self._accounts.find(account_id, None)
        if account.x != f"{key.x:#066x}":
            raise LabError(
                f"Relayer: the key of account {account_id} was updated since. "
                "Derive it from the owner's signature of the account's keySeed."
            )
        return key

    def counterfactual(self, account_id: int) -> dict[str, str] | None:
        """Return the ``counterFactualInfo`` for a key update of an account that a wallet owns.

        Parameters
        ----------
        account_id : int
            One of `accounts`, of which the one with the largest id is owned by a counterfactual wallet, or one of
            `difficult`.

        Returns
        -------
        dict of str to str or None
            ``walletFactory``, ``walletOwner`` and ``walletSalt``; None if no wallet owns the account.
        """
        wallet = self._accounts.wallet_of(account_id)
        if wallet is None:
            return None
        return {
            "walletFactory": wallet.factory,
            "walletOwner": wallet.owner,
            "walletSalt": wallet.salt,
        }

    def add_account(
        self,
        account_id: int,
        owner: str,
        *,
        nonce: int = 0,
        public_key: tuple[int, int] | None = None,
        key_seed: str = "",
    ) -> None:
        """Add an account with an owner of your own.

        Parameters
        ----------
        account_id, owner : int, str
            Account id, uint32, and the address of its owner.
        nonce : int
            Nonce and key nonce of the account.
        public_key, key_seed : tuple of int or None, str
            x and y of its L2 key, and the text the owner signed to derive it; None if it has no key yet.

        Raises
        ------
        LabError
            If the owner or key is not valid, or the account or its owner exists already.
        """
        self._accounts.add(account_id, owner, nonce, public_key, key_seed)

    def step(self) -> int:
        """Advance every pending key update by one step, without waiting for the worker.

        Returns
        -------
        int
            The number of updates that moved.
        """
        return self._updates.step()

    def start(self) -> Self:
        """Start serving; does nothing if the relayer is running.

        Returns
        -------
        Relayer
            The relayer itself.

        Raises
        ------
        LabError
            If the port is taken.
        RelayerUnreachable
            If the server does not start in time.
        """
        if self._server is None:
            server = ThreadedServer(
                self.app,
                listen(self._wanted_port),
                self._data,
                self.step,
                self.settings.update_seconds,
            )
            server.start()
            # The server is kept only now, so that a relayer that could not start can be started again.
            self._server = server
            _running[self.base_url] = self
        return self

    def stop(self) -> None:
        """Stop serving; does nothing if the relayer is not running."""
        if self._server is not None:
            _running.pop(self.base_url, None)
            self._server.stop()
            self._server = None

    def run_forever(self) -> None:
        """Serve until Ctrl-C, then stop."""
        with self, suppress(KeyboardInterrupt):
            while self._server and self._server.thread.is_alive():
                # A join without a limit could not be interrupted on Windows.
                self._server.thread.join(1)


@cache
def embedded() -> Relayer:
    """Return the running relayer of the default world, one for the process: what ``lab.connect()`` reads."""
    return Relayer().start()


def running(base_url: str) -> Relayer | None:
    """Return the relayer that serves at an address from within this process.

    Parameters
    ----------
    base_url : str
        Address of a relayer, as `Relayer.base_url` or ``client.base_url`` gives it.

    Returns
    -------
    Relayer or None
        None for one elsewhere.

    Examples
    --------
    >>> relayer = lab.relayer.embedded()
    >>> lab.relayer.running(relayer.base_url) is relayer
    True
    """
    return _running.get(base_url)


class ThreadedServer(Server):
    """A quiet uvicorn server in a thread of its own, which names the data in every response."""

    def __init__(
        self,
        app: FastAPI,
        listener: socket.socket,
        source: World,
        step: Callable[[], int],
        step_seconds: float | None,
    ) -> None:
        """Prepare to serve an app on a socket that listens, and to take a step at regular intervals."""
        stated = json.dumps({"name": source.name, "synthetic": source.synthetic})
        config = Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            # In a notebook every line of a log is noise, and addresses hold account ids.
            log_config=None,
            log_level="critical",
            access_log=False,
            # The name of the server and the date say nothing that a client needs.
            server_header=False,
            date_header=False,
            headers=[(SOURCE_HEADER, stated)],
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        super().__init__(config)
        self.port = listener.getsockname()[1]
        self.thread = threading.Thread(
            target=self._run, name="embedded relayer", daemon=True
        )
        self._listener = listener
        self._step = step
        self._step_seconds = step_seconds
        self._is_ready = threading.Event()
        self._is_stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Serve, and return when the first request can come."""
        self.thread.start()
        if not self._is_ready.wait(START_SECONDS):
            raise RelayerUnreachable(
                f"Relayer: it did not start within {START_SECONDS} s. Try again."
            )

    def stop(self) -> None:
        """Stop serving, and return when the thread has ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._is_stopping.set)
        self.thread.join(STOP_SECONDS)

    def _run(self) -> None:
        with self._listener:
            asyncio.run(self.serve(sockets=[self._listener]))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell whoever waits for it."""
        await super().startup(sockets)
        # uvicorn takes up the headers of its configuration at its first tick.
        await self.on_tick(0)
        self._loop = asyncio.get_running_loop()
        self._is_ready.set()

    # uvicorn looks every tenth of a second whether it should stop, and then waits for another tenth. Cells and
    # tests that open a relayer for one question would feel it.

    async def main_loop(self) -> None:
        """Take steps until somebody asks to stop."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._step_seconds):
                    await self._is_stopping.wait()
                    return
            self._step()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests under way finish for a moment, then close every connection."""
        requests = self.server_state.tasks
        # A task that is neither this one nor a request is a connection that is just being accepted.
        arriving = asyncio.all_tasks() - {asyncio.current_task(), *requests}
        if arriving:
            await asyncio.wait(arriving, timeout=GRACE_SECONDS)
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if requests:
            await asyncio.wait(requests, timeout=GRACE_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        # The sockets are closed in the next turn of the loop.
        await asyncio.sleep(0)


def listen(port: int) -> socket.socket:
    """Return a socket that listens on the loopback interface."""
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
