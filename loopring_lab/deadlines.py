"""Budgets of time and bytes, HTTP exchanges that keep to them, and the pace of these.

An exchange runs in a thread of its own, and whoever asked for it waits for the outcome. So Ctrl-C is answered
at once, even during a DNS lookup, which nothing can interrupt; the traceback shows no frame that holds a
header; and an exchange that is late is abandoned, and its socket shut down.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from requests.adapters import HTTPAdapter

from loopring_lab.errors import RelayerTimeout

IDLE_THREADS = 16
DRIFT, SPREAD = 1.001, 0.5  # a server's clock may run faster; requests keep half of an even distance
LEAST_PAUSE = 0.005  # seconds
TURN = 0.2  # seconds of a wait at once: a Ctrl-C just before a wait begins is answered only when it ends
Result = TypeVar("Result")
_active: ContextVar[Budget | None] = ContextVar("active budget", default=None)
_thread = threading.local()
_idle: list[SimpleQueue[Job]] = []
_sockets = threading.Lock()
_adapters: weakref.WeakSet[CutAdapter] = weakref.WeakSet()


class Budget:
    """The seconds and bytes that an operation may take; None for no limit.

    A budget made while another is active is a part of it. `spent` tells that something was not done, or not
    finished, because of this budget.
    """

    def __init__(self, seconds: float | None = None, size: float | None = None, setting: str = "max_seconds") -> None:
        self.spent = False
        self._setting, self._seconds = setting, math.inf if seconds is None else seconds
        self._end = time.monotonic() + self._seconds
        self._bytes = math.inf if size is None else size
        self._outer = _active.get()
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._exchanges: set[Exchange[Any]] = set()

    @staticmethod
    def active() -> Budget | None:
        """Return the budget of the operation under way in this thread."""
        return _active.get()

    @property
    def seconds_left(self) -> float:
        own = 0.0 if self._stopped.is_set() else max(0.0, self._end - time.monotonic())
        return min(own, self._outer.seconds_left) if self._outer else own

    @property
    def bytes_left(self) -> float:
        return min(self._bytes, self._outer.bytes_left) if self._outer else self._bytes

    def spend(self, size: int) -> None:
        """Count bytes that were received."""
        with self._lock:
            self._bytes -= size
        if self._outer:
            self._outer.spend(size)

    def part(self) -> Budget:
        """Return a budget that ends with this one, but counts bytes of its own."""
        return copy.copy(self)

    def pause(self, seconds: float) -> None:
        """Sleep, or until the operation is stopped."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._stopped.wait(min(left, TURN)):
            pass

    def add(self, exchange: Job) -> None:
        self._exchanges.add(exchange)

    def discard(self, exchange: Job) -> None:
        self._exchanges.discard(exchange)

    def stop(self) -> None:
        """Cut off the exchanges under way, and allow no more."""
        self._stopped.set()
        for exchange in tuple(self._exchanges):
            exchange.cut()

    def exceeded(self, problem: str, *, maybe_received: bool = False) -> RelayerTimeout:
        """Return the error of an operation that would take too long."""
        first = self._first_to_end()
        first.spent = True
        limit = f"{first._setting}={first._seconds:g}"
        message = f"{problem}, beyond {limit}. Allow more time, or try again later."
        return RelayerTimeout(message, maybe_received=maybe_received)

    def _first_to_end(self) -> Budget:
        outer = self._outer._first_to_end() if self._outer else self
        return outer if outer._end < self._end else self

    @contextmanager
    def activate(self) -> Iterator[Budget]:
        """Make this the budget of what is done inside the block."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)


class RateLimiter:
    """Never brings more requests into a server's window than the rate allows, whatever delays they meet.

    A request arrives after it was sent and before it is answered. So it takes a place from when it is sent
    until a window after its answer; answers within 20 ms leave 98 % of the rate, within 0.2 s 83 %.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._places = math.inf if rate is None else max(1, int(rate))
        self._window = 0.0 if rate is None else DRIFT * self._places / rate
        self._gap = SPREAD * self._window / self._places
        self._clock, self._lock = clock, threading.Lock()
        self._next, self._under_way = -math.inf, 0
        self._leaving: deque[float] = deque()

    def wait(self, sleep: Callable[[float], None]) -> None:
        """Sleep until a place is free, and take it; `answered` gives it back."""
        while seconds := self._take():
            sleep(max(seconds, LEAST_PAUSE))

    def answered(self) -> None:
        """Note that a request was answered, or given up: its place is free after a window."""
        with self._lock:
            self._under_way -= 1
            self._leaving.append(self._clock() + self._window)

    def _take(self) -> float:
        """Take a place, or return how long to wait before another try."""
        with self._lock:
            now = self._clock()
            while self._leaving and self._leaving[0] <= now:
                self._leaving.popleft()
            is_full = self._under_way + len(self._leaving) >= self._places
            free = self._leaving[0] if is_full and self._leaving else now + LEAST_PAUSE * is_full
            if max(free, self._next) > now:
                return max(free, self._next) - now
            self._next, self._under_way = now + self._gap, self._under_way + 1
            return 0.0


class Exchange(Generic[Result]):
    """A call in a thread of its own, which does not outlast its time.

    Connections that the call uses register their socket here (`CutAdapter`).
    """

    def __init__(self, call: Callable[[], Result], *, private: bool = False) -> None:
        self.private = private  # whether the path of the address is secret
        self._call = call
        self._outcome: SimpleQueue[Result] = SimpleQueue()
        self._socket: socket.socket | None = None
        self._is_cut = False
        self.connected = False

    @staticmethod
    def current() -> Exchange[Any] | None:
        """Return the exchange that runs in this thread."""
        return getattr(_thread, "exchange", None)

    def run(self, seconds: float, budget: Budget) -> Result | None:
        """Return the outcome of the call, or None if there is none in time."""
        budget.add(self)
        try:
            _hand_over(self)
            return receive(self._outcome, min(seconds, budget.seconds_left))
        except Empty:
            return None
        finally:
            self.cut()
            budget.discard(self)

    def work(self) -> Callable[[], None]:
        """Make the call; return what hands over its outcome."""
        call = self._call
        del self._call  # a connection refers to its last exchange, and must not keep its own client alive
        outcome = call()
        with _sockets:
            self._socket = None
        return functools.partial(self._outcome.put, outcome)

    def hold(self, connection: CutConnection, opened: socket.socket) -> None:
        """Take over the socket of a connection from the exchange that used it before."""
        with _sockets:
            if connection.exchange is not None:
                connection.exchange._socket = None
            connection.exchange, self._socket, self.connected = self, opened, True
        if self._is_cut:
            self.cut()

    def cut(self) -> None:
        """Shut down the socket in use; the call then fails."""
        with _sockets:
            self._is_cut = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # of an SSL socket, shut down what is below
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


Job = Exchange[Any]


def receive(results: SimpleQueue[Result], seconds: float = math.inf) -> Result:
    """Wait for a result in short turns; `queue.Empty` if none comes in time."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            return results.get(timeout=max(0.0, min(left, TURN)))
        except Empty:
            if left <= TURN:
                raise


def _hand_over(exchange: Job) -> None:
    """Have an idle thread work on an exchange, or a new one."""
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name="exchange", daemon=True).start()
    jobs.put(exchange)


def _work(jobs: SimpleQueue[Job]) -> None:
    while True:
        _thread.exchange = jobs.get()
        finish = _thread.exchange.work()
        _thread.exchange = None
        stays = len(_idle) < IDLE_THREADS
        if stays:
            _idle.append(jobs)  # before the outcome, so that the next exchange finds this thread
        finish()
        del finish
        if not stays:
            return


class CutConnection:
    """Mixin of a connection whose socket the exchange can shut down, from the first byte on."""

    sock: socket.socket | None
    exchange: Job | None = None

    def _new_conn(self) -> socket.socket:
        opened: socket.socket = super()._new_conn()  # type: ignore[misc]
        self._register(opened)
        return opened

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:
            self._register(self.sock)
        super().request(*args, **kwargs)  # type: ignore[misc]

    def _register(self, opened: socket.socket) -> None:
        if exchange := Exchange.current():
            exchange.hold(self, opened)


class CutAdapter(HTTPAdapter):
    """Has every connection register its socket with the exchange that uses it."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        super().__init__(pool_maxsize=connections, max_retries=0)
        _adapters.add(self)

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        if not issubclass(pool.ConnectionCls, CutConnection):
            pool.ConnectionCls = _cuttable(pool.ConnectionCls)
        return pool

    def forget(self) -> None:
        """Begin without connections: those of a parent process are not to be shared."""
        self.proxy_manager = {}
        self.init_poolmanager(self._connections, self._connections)


@functools.cache
def _cuttable(connection: type) -> Any:
    return type(connection.__name__, (CutConnection, connection), {})


def _begin_in_child() -> None:
    global _sockets  # noqa: PLW0603 - a thread that does not exist in the child may hold the lock
    _sockets = threading.Lock()
    _idle.clear()
    for adapter in _adapters:
        adapter.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
