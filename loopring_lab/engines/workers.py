"""The workers of Dask, which make tables of delayed frames ahead of use."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from typing import Any

import numpy as np
import pyarrow as pa

from loopring_lab import cores

Packed = np.ndarray
"""The bytes of a table, as clusters send them without a copy and count them."""
ALIGNED = 8
AHEAD = 1  # the priority of what this process waits for
AT_ONCE = 4
"""At most so many frames are worked on at a time: the process that takes the tables is no faster."""
TRIM, MMAP = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
MAPPED_ARRAY = 1 << 17  # glibc's own choice
KEPT_BYTES, KEPT_ARRAY = 1 << 28, 1 << 25
"""Dask has glibc give back each freed array at once; clearing other memory takes a third of a task's time."""
_tasks, _lock = [0], threading.Lock()


def cluster() -> Any:
    """Return the client of the scheduler that Dask works on; None where it works in this process."""
    from dask.base import get_scheduler

    distributed = sys.modules.get("distributed")
    client = getattr(get_scheduler(), "__self__", None)  # type: ignore[no-untyped-call]
    return client if distributed and isinstance(client, distributed.Client) else None


def apply(work: Callable[[Any], pa.Table], frames: Sequence[Any]) -> Iterator[pa.Table]:
    """Yield what `work` makes of each delayed frame; few tables are in memory here at once."""
    import dask
    from dask.base import get_scheduler

    scheduler = get_scheduler()  # type: ignore[no-untyped-call]
    compute: Any = partial(dask.compute, scheduler=scheduler, priority=AHEAD)  # type: ignore[attr-defined]
    several, running = max(1, min(threads(), AT_ONCE)), deque[Future[Any]]()
    packed = later(lambda frame: pack(work(frame)))
    with ThreadPoolExecutor(several) as background:
        for frame in frames:
            running.append(background.submit(compute, packed(frame)))
            if len(running) > several:
                yield from map(unpack, running.popleft().result())
        for last in running:
            yield from map(unpack, last.result())


def keeping_memory(task: Callable[..., Any]) -> Callable[..., Any]:
    """Have a worker of Dask keep freed memory while such tasks are under way, and give it back after them."""

    @wraps(getattr(task, "func", task))  # Dask names a task by its function
    def keeping(*arguments: Any, **options: Any) -> Any:
        return _in_kept_memory(partial(task, *arguments, **options))

    return keeping


def _in_kept_memory(task: Callable[[], Any]) -> Any:
    with _lock:
        _tasks[0] += 1
        _keep_memory(True)
    try:
        return task()
    finally:
        with _lock:
            _tasks[0] -= 1
            if not _tasks[0]:
                _keep_memory(False)


def _keep_memory(keep: bool) -> None:
    """Have glibc keep memory or not; a worker that was started to keep more than Dask has it do is left."""
    started = os.environ.get(TRIM, "")
    if sys.platform != "linux" or MMAP in os.environ or not started.isdecimal() or int(started) >= KEPT_BYTES:
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):  # another C library
        return
    libc.mallopt(TRIM_THRESHOLD, KEPT_BYTES if keep else int(started))
    libc.mallopt(MMAP_THRESHOLD, KEPT_ARRAY if keep else MAPPED_ARRAY)
    if not keep:
        np.empty(MAPPED_ARRAY // 2, np.uint8)  # freed, it has the end of this thread's memory given back
        libc.malloc_trim(0)


def in_turn(futures: Iterable[Any]) -> Iterator[Any]:
    """Yield what was found, one after the other; the workers keep what is not asked for yet."""
    left = deque(futures)
    return (left.popleft().result() for _ in range(len(left)))


def later(function: Callable[..., Any], pieces: int | None = None) -> Any:
    """Return a function whose calls are tasks that keep memory; each of the `pieces` may go elsewhere."""
    import dask

    return dask.delayed(keeping_memory(function), nout=pieces)  # type: ignore[attr-defined]


def pack(table: pa.Table) -> Packed:
    """Serialize a table: as it is, it would arrive with unaligned buffers."""
    measured = pa.MockOutputStream()
    _write(table, measured)
    room = pa.allocate_buffer(measured.size())
    _write(table, pa.FixedSizeBufferWriter(room))
    return np.frombuffer(room, np.uint8)


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
    return len(homes(client)) if client else cores.count()


def homes(client: Any) -> list[str]:
    """Return the address of each worker as often as it runs tasks at a time."""
    return [address for address, count in client.nthreads().items() for _ in range(count)]
