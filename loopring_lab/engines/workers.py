"""The workers of Dask, which make tables of partitions ahead of use."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from loopring_lab import cores

Packed = np.ndarray
"""The bytes of a table, as clusters send them without a copy and count them."""
ALIGNED = 8
AHEAD, NEXT, BEHIND = 1, 0, -1  # what this process waits for, what it asks for later, and last of all
AT_ONCE = 4
"""So many frames are worked on ahead of use: for each task of a cluster, or on at most so many cores."""
TRIM, MMAP = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
MAPPED_ARRAY = 1 << 17  # glibc's own choice
KEPT_BYTES, KEPT_ARRAY = 1 << 28, 1 << 25
"""Dask has glibc give back each freed array at once; clearing other memory takes a third of a task's time."""
IDLE = 1.0
"""Seconds without a task after which it is given back: the next task of an analysis comes sooner."""


def cluster() -> Any:
    """Return the client of the scheduler that Dask works on; None where it works in this process."""
    from dask.base import get_scheduler

    distributed = sys.modules.get("distributed")
    client = getattr(get_scheduler(), "__self__", None)  # type: ignore[no-untyped-call]
    return client if distributed and isinstance(client, distributed.Client) else None


def apply(work: Callable[[Any], pa.Table], frame: Any, priority: int = AHEAD) -> Iterator[pa.Table]:
    """Yield what `work` makes of each partition of a Dask frame; few tables are in memory here at once.

    A cluster starts before the first one is asked for.
    """
    from dask.base import get_scheduler

    client, scheduler = cluster(), get_scheduler()  # type: ignore[no-untyped-call]
    made = frame.map_partitions(_packed, work, meta=frame._meta, enforce_metadata=False).optimize()
    tasks = made.to_delayed(optimize_graph=False)
    if client is None:
        return _in_threads(lambda task: task.compute(scheduler=scheduler), tasks)
    anywhere = best_at(homes(client))  # tasks with workers do not queue behind others that have some
    start = partial(client.compute, priority=priority, **anywhere)
    return _in_order(start, tasks, AT_ONCE * threads())


def _in_threads(compute: Callable[[Any], Packed], tasks: Sequence[Any]) -> Iterator[pa.Table]:
    several = min(threads(), AT_ONCE)
    with ThreadPoolExecutor(several) as background:
        yield from _in_order(lambda some: [background.submit(compute, task) for task in some], tasks, several)


def _in_order(
    start: Callable[[Sequence[Any]], list[Any]], tasks: Sequence[Any], several: int
) -> Iterator[pa.Table]:
    """Start some tasks, and more as soon as the tables of these are asked for."""
    places = range(0, len(tasks), several)
    starting = (start(tasks[place : place + several]) for place in places)
    return _asked_for(starting, [*islice(starting, 1)])


def _asked_for(starting: Iterator[list[Any]], started: list[list[Any]]) -> Iterator[pa.Table]:
    for tasks in starting:
        started.append(tasks)
        yield from map(unpack, in_turn(started.pop(0)))
    for last in started:
        yield from map(unpack, in_turn(last))


def keeping_memory(task: Callable[..., Any]) -> Callable[..., Any]:
    """Have a worker of Dask keep freed memory while it runs such tasks, and give it back `IDLE` later."""

    @wraps(getattr(task, "func", task))  # Dask names a task by its function
    def keeping(*arguments: Any, **options: Any) -> Any:
        return _in_kept_memory(partial(task, *arguments, **options))

    return keeping


def _in_kept_memory(task: Callable[[], Any]) -> Any:
    with _memory:
        return task()


class _KeptMemory:
    """Memory that glibc keeps during tasks, and until none has been under way for `IDLE` seconds."""

    def __init__(self) -> None:
        self._lock, self._tasks = threading.Lock(), 0
        self._waiting: threading.Timer | None = None
        self._ends: dict[int, np.ndarray] = {}

    def __enter__(self) -> None:
        with self._lock:
            self._tasks += 1
            if self._waiting:
                self._waiting.cancel()
            if libc := _libc():
                libc.mallopt(TRIM_THRESHOLD, KEPT_BYTES)
                libc.mallopt(MMAP_THRESHOLD, KEPT_ARRAY)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._tasks -= 1
            if not _libc():
                return
            self._ends[threading.get_ident()] = np.empty(MAPPED_ARRAY // 2, np.uint8)
            if not self._tasks:
                self._waiting = threading.Timer(IDLE, self._give_back)
                self._waiting.daemon = True
                self._waiting.start()

    def _give_back(self) -> None:
        with self._lock:
            if self._tasks:
                return
            libc = _libc()
            libc.mallopt(TRIM_THRESHOLD, int(os.environ[TRIM]))
            libc.mallopt(MMAP_THRESHOLD, MAPPED_ARRAY)
            self._ends.clear()  # freed, each has the end of its thread's memory given back
            libc.malloc_trim(0)


_memory = _KeptMemory()


def _libc() -> Any:
    """Return glibc in a worker that Dask has give back every freed array; None in others, which are left."""
    started = os.environ.get(TRIM, "")
    if sys.platform != "linux" or MMAP in os.environ or not started.isdecimal() or int(started) >= KEPT_BYTES:
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") else None  # another C library


def in_turn(futures: Iterable[Any]) -> Iterator[Any]:
    """Yield what was found, one after the other; the workers keep what is not asked for yet."""
    left = deque(futures)
    return (left.popleft().result() for _ in range(len(left)))


@keeping_memory
def _packed(frame: Any, work: Callable[[Any], pa.Table]) -> Packed:
    return pack(work(frame))


def pack(table: pa.Table) -> Packed:
    """Serialize a table: as it is, it would arrive with unaligned buffers."""
    measured = pa.MockOutputStream()
    _write(table, measured)
    room = np.empty(measured.size(), np.uint8)
    _write(table, pa.FixedSizeBufferWriter(pa.py_buffer(room)))
    return room


def aligned(data: Packed) -> Packed:
    """Return a serialized table where it can be read; one from another process may have to be moved."""
    return data.copy() if data.ctypes.data % ALIGNED else data


def unpack(data: Packed) -> pa.Table:
    """Read a serialized table."""
    return pa.ipc.open_stream(aligned(data)).read_all()


def _write(table: pa.Table, sink: pa.NativeFile) -> None:
    with sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)


def counts_of(schema: pa.Schema) -> dict[str, int]:
    """Return what was counted beside a table."""
    return {name.decode(): int(count) for name, count in (schema.metadata or {}).items()}


def threads() -> int:
    """Return how many tasks the workers run at a time."""
    client = cluster()
    return max(1, len(homes(client))) if client else cores.count()


def homes(client: Any) -> list[str]:
    """Return the address of each worker as often as it runs tasks at a time."""
    return [address for address, count in client.nthreads().items() for _ in range(count)]


def home(homes: Sequence[str], place: int, count: int) -> str | None:
    """Return where a task for one of so many places is best run, if there are workers: neighbours by one."""
    return homes[place * len(homes) // count] if homes else None


def best_at(addresses: str | Sequence[str] | None) -> dict[str, Any]:
    """Return the options of a task that is best run by these workers, if there are any."""
    return {"workers": addresses, "allow_other_workers": True} if addresses else {}
