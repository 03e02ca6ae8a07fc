"""The end of an exchange: its socket is shut when it is late, whatever the exchange is doing then.

A read timeout of a socket begins anew with every byte, so a server that drips a head or a body could hold an
exchange for ever. Shutting the socket from outside ends every stage: the head, the body, the end of a chunk.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from contextvars import ContextVar, Token
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Self

import requests
from requests.adapters import HTTPAdapter

TICK = 0.05  # seconds from one look at the deadlines to the next: nobody notices that an error is so late
CONNECTIONS = 16  # kept open for each host: more than the threads that read pages


class Deadline:
    """Shuts down the socket of one exchange when its time is over.

    Whoever reads looks at `passed` afterwards: a body without an announced length just seems to end. An
    exchange that never `connected` has certainly sent nothing.
    """

    def __init__(self, seconds: float, *, private: bool = False) -> None:
        self.private = private  # whether the path of the address is secret
        self.passed = False
        self.connected = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self.end = time.monotonic() + seconds
        self._outer: Token[Deadline | None] | None = None

    @staticmethod
    def current() -> Deadline | None:
        """Return the deadline of the exchange in this thread."""
        return _under_way.get()

    def __enter__(self) -> Self:
        self._outer = _under_way.set(self)
        _running.add(self)
        _wake_watcher()
        return self

    def __exit__(self, *_: object) -> None:
        _running.discard(self)
        with self._lock:
            self._socket = None  # by now it may serve the next exchange
        if self._outer is not None:
            _under_way.reset(self._outer)

    def take(self, opened: socket.socket) -> None:
        """Take the socket that the exchange goes through, to shut it when it is late."""
        with self._lock:
            self._socket = opened
            self.connected = True
        if self.passed:
            self.cut()

    def cut(self) -> None:
        """Shut the socket down; whoever reads from it or writes to it then fails at once."""
        with self._lock:
            self.passed = True
            if self._socket is not None:
                # The method of the plain socket: that of an SSL socket would drop the state in use.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


_under_way: ContextVar[Deadline | None] = ContextVar(
    "deadline of the exchange in this thread", default=None
)


class ShowsSocket:
    """Mixin of a connection that gives its socket to the deadline of the exchange."""

    sock: socket.socket | None

    def _new_conn(self) -> socket.socket:
        opened: socket.socket = super()._new_conn()  # type: ignore[misc]
        _give_to_deadline(opened)
        return opened

    def request(self, *arguments: Any, **options: Any) -> None:
        # A connection that was kept open, or one that TLS has wrapped since it was opened.
        if self.sock is not None:
            _give_to_deadline(self.sock)
        super().request(*arguments, **options)  # type: ignore[misc]


_running: set[Deadline] = set()
# Set while any is running: the thread that looks after them sleeps otherwise.
_any_running = threading.Event()
_watchers: list[threading.Thread] = []


def _wake_watcher() -> None:
    """Have a thread look after the deadlines: one for all, since a timer for each takes longer than a page."""
    # A forked process has the list, but not the thread.
    if not any(watcher.is_alive() for watcher in _watchers):
        watcher = threading.Thread(
            target=_watch_deadlines, name="deadlines", daemon=True
        )
        _watchers[:] = [watcher]
        watcher.start()
    _any_running.set()


def _watch_deadlines() -> None:
    while True:
        _any_running.wait()
        time.sleep(TICK)
        now = time.monotonic()
        for deadline in tuple(_running):
            if deadline.end <= now:
                deadline.cut()
        if not _running:
            _any_running.clear()
        if _running:  # by one that began just before the event was cleared
            _any_running.set()


def _give_to_deadline(opened: socket.socket) -> None:
    deadline = Deadline.current()
    if deadline is not None:
        deadline.take(opened)


@functools.cache
def _showing_socket(connection: type) -> Any:
    return type(connection.__name__, (ShowsSocket, connection), {})


class Adapter(HTTPAdapter):
    """Opens connections that show their socket."""

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        if not issubclass(pool.ConnectionCls, ShowsSocket):
            pool.ConnectionCls = _showing_socket(pool.ConnectionCls)
        return pool


# Variables of the environment that name a file of certificates, in the order of `requests`.
CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Session(requests.Session):
    """A session that keeps nothing from one answer to the next, and reads no body by itself."""

    def __init__(self, *, trust_env: bool) -> None:
        super().__init__()
        # Whether the environment's proxies count; its certificates do in any case, as those of a server on this
        # machine are never signed by a public authority.
        self.trust_env = trust_env
        given = [os.environ.get(name) for name in CERTIFICATES]
        self.verify = next(filter(None, given), True)
        self.headers["Accept-Encoding"] = "gzip"
        for scheme in ("http://", "https://"):
            self.mount(scheme, Adapter(pool_maxsize=CONNECTIONS, max_retries=0))
        # An answer must not change the next request.
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return no target: `requests` would read the whole body of the answer that redirects."""
