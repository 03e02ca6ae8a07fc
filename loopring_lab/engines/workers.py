"""The workers of Dask, which make tables of delayed frames ahead of use."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa

from loopring_lab import cores

AT_ONCE = 4
"""At most so many frames are worked on at a time: the process that takes the tables is no faster."""


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

    compute: Any = partial(dask.compute, scheduler=get_scheduler())  # type: ignore[attr-defined, no-untyped-call]
    several, running = max(1, min(threads(), AT_ONCE)), deque[Future[Any]]()
    serialized: Any = dask.delayed(_Serialized(work))  # type: ignore[attr-defined]
    with ThreadPoolExecutor(several) as background:
        for frame in frames:
            running.append(background.submit(compute, serialized(frame)))
            if len(running) > several:
                yield from map(unpack, running.popleft().result())
        for last in running:
            yield from map(unpack, last.result())


def later(function: Callable[..., Any], pieces: int | None = None) -> Any:
    """Return a function whose calls are tasks of Dask; each of the `pieces` it returns may go elsewhere."""
    import dask

    return dask.delayed(function, nout=pieces)  # type: ignore[attr-defined]


def pack(table: pa.Table) -> bytes:
    """Serialize a table: as it is, it would arrive with unaligned buffers."""
    with pa.BufferOutputStream() as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def unpack(data: bytes) -> pa.Table:
    """Read a serialized table."""
    return pa.ipc.open_stream(data).read_all()


def counts_of(schema: pa.Schema) -> dict[str, int]:
    """Return what was counted beside a table."""
    return {name.decode(): int(count) for name, count in (schema.metadata or {}).items()}


class _Serialized:
    """Work whose table is serialized."""

    def __init__(self, work: Callable[[Any], pa.Table]) -> None:
        self._work = work

    def __call__(self, frame: Any) -> bytes:
        return pack(self._work(frame))


def threads() -> int:
    """Return how many tasks the workers run at a time."""
    client = cluster()
    return sum(client.nthreads().values()) if client else cores.count()
