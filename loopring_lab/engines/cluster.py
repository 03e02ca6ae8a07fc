"""Windows on the workers of a Dask cluster: they exchange the rows, hold them, and keep what they answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from operator import getitem, itemgetter
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.limbs import blocks
from loopring_lab.engines import adapters, convert, workers
from loopring_lab.engines.adapters import engine_of
from loopring_lab.engines.aggregate import result_table
from loopring_lab.engines.cuts import (
    BATCHES,
    Columns,
    Cuts,
    Orders,
    Window,
    at_edges,
    compact,
    joined,
    of_orders,
    orders_in,
    repeated,
    window_of,
)
from loopring_lab.engines.orders import moments_of
from loopring_lab.engines.spill import BUCKETS, together
from loopring_lab.engines.spill import Columns as Arrays
from loopring_lab.engines.workers import Packed

DEALT_AT_ONCE = 1 << 17
"""So many rows a worker deals out to windows at a time, in memory that it has used just before."""


class Answers:
    """The packed tables that workers find in windows, in their order."""

    def __init__(self, graph: _Graph, keys: Sequence[Any]) -> None:
        self.client, self._graph = graph.client, graph  # which keeps what was scattered
        self._futures = graph.compute(keys)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the tables, once."""
        futures, self._futures = self._futures, []
        return map(workers.unpack, workers.in_turn(futures))

    def columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of these names of the tables, which stay on the workers."""
        return map(workers.unpack, workers.in_turn(self.each(_selected, repeat(names))))

    def each(self, function: Callable[..., Any], *arguments: Iterable[Any], priority: int = 0) -> list[Any]:
        """Apply a function to every table and its arguments on its worker; what it returns stays there."""
        submit = partial(self.client.submit, _of_table, function, pure=False, priority=priority)
        return [*map(submit, self._futures, *arguments)]

    @property
    def shares(self) -> int:
        """The number of shares that rows of all tables are dealt out in."""
        return min(_shares(len(self._futures)), BUCKETS)

    def pieces(
        self, count: int, function: Callable[..., Any], *arguments: Iterable[Any]
    ) -> Iterator[list[Any]]:
        """Apply a function that returns so many pieces; yield them place by place."""
        found = self.each(function, *arguments)
        return (self.client.map(itemgetter(place), found, pure=False) for place in range(count))

    def counts(self) -> Counter[str]:
        """Add up what was counted beside the tables."""
        found = Counter[str]()
        schemas = self.client.map(_schema, self._futures, pure=False, priority=workers.AHEAD)
        for schema in self.client.gather(schemas):
            found.update(workers.counts_of(schema))
        return found

    def frame(self, constants: Mapping[str, Any]) -> Any:
        """Return the tables with constant columns as a frame of Dask, whose partitions the workers hold."""
        from dask.dataframe import from_delayed
        from dask.dataframe.utils import clear_known_categories

        results = self.client.map(_result, self._futures, pure=False)
        schemas = self.client.gather(self.client.map(_schema, results, pure=False))
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        to_partition = partial(_partition, schema=schema, constants=constants)
        parts = self.client.map(to_partition, results, pure=False)
        empty = to_partition(workers.pack(schema.empty_table()))
        meta = clear_known_categories(empty)  # type: ignore[no-untyped-call]
        return from_delayed(parts, meta=meta, verify_meta=False)


def answers(
    client: Any,
    cuts: Cuts,
    wanted: Columns,
    prices: Columns | None,
    work: Callable[[pa.Table, Window], pa.Table],
    placed_by: str | None = None,
    *,
    whole: bool = False,
) -> Answers:
    """Let workers apply `work` to the rows of windows, `whole` ones with all columns, and to the windows."""
    graph = _Graph(client)
    (sent,) = client.scatter([work], hash=False)
    near, seen = _exchanged(graph, cuts, wanted, 0, spans=placed_by is not None, whole=whole)
    others = [] if prices is None else [_exchanged(graph, cuts, prices, 1)[0]]
    tables = [[*parts] for parts in zip(near, *others, strict=True)]
    count, orders = len(tables), None
    if placed_by:
        twice, several = workers.keeping_memory(repeated), partial(_own_of_several, cuts)
        hashes = [graph.add(twice, *parts) for parts in seen]
        own = [graph.add(several, part, n, hashes) for n, part in enumerate(near)]
        orders = graph.add(partial(_orders, cuts, placed_by), hashes, own)
    normalized = partial(convert.to_table, caller=wanted.caller, columns=wanted.present())
    read = normalized if whole else convert.as_read
    at_edges_of, places = partial(_at_edges, cuts, read), enumerate(tables if cuts.keys else [])
    edges = [graph.add(at_edges_of, parts, n, place=(n, count)) for n, parts in places]
    answer, keys, common = partial(_answer, cuts, read), list[Any](), dict[str | None, Any]()
    for n, parts in enumerate(tables):
        home = graph.home(n, count)
        if home not in common:  # answers that fetch the same start in any order
            common[home] = graph.add(tuple, [edges, orders, sent], place=(n, count))
        keys.append(graph.add(answer, parts, common[home], n, place=(n, count), priority=-1 - n))
    return Answers(graph, keys)


class _Graph:
    """Tasks that a cluster is sent at once; to make each by `dask.delayed` takes longer with every one."""

    def __init__(self, client: Any) -> None:
        self.client, self._homes = client, workers.homes(client)
        self._tasks, self._name = dict[Any, Any](), uuid4().hex
        self._where, self._priorities = dict[Any, str | None](), dict[Any, int]()

    def add(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        place: tuple[int, int] | None = None,
        priority: int = 0,
    ) -> Any:
        """Add a task for one of so many places, and return what stands for its result among arguments."""
        name = getattr(function, "func", function).__name__
        key = f"{name.strip('_')}-{self._name}-{len(self._tasks)}"
        self._tasks[key], self._priorities[key] = (function, *arguments), priority
        self._where[key] = self.home(*place) if place else None
        return key

    def pieces(self, count: int, *task: Any, place: tuple[int, int]) -> list[Any]:
        """Add a task that returns so many pieces, and return what stands for each."""
        found = self.add(*task, place=place)
        return [self.add(getitem, found, n, place=place) for n in range(count)]

    def partitions(self, frame: Any, order: Sequence[int]) -> list[Any]:
        """Add the partitions of a frame of Dask, whose places are in this order."""
        chosen = frame.optimize()
        tasks, keys = chosen.__dask_graph__(), chosen.__dask_keys__()
        self._tasks |= tasks
        self._priorities |= dict.fromkeys(tasks, 0)
        self._where |= {keys[n]: self.home(place, len(keys)) for place, n in enumerate(order)}
        return [keys[n] for n in order]

    def home(self, place: int, count: int) -> str | None:
        """Return where a task for one of so many places is best run."""
        return workers.home(self._homes, place, count)

    def compute(self, keys: Sequence[Any]) -> list[Any]:
        """Send the tasks, and return the futures of some."""
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        annotations = {"workers": self._where.get, "priority": self._priorities.get}
        layer = MaterializedLayer(self._tasks, annotations | {"allow_other_workers": True})
        graph = HighLevelGraph({self._name: layer}, {self._name: set()})
        return [*self.client.get(graph, [*keys], sync=False)]


def _shares(windows: int) -> int:
    """Return in how many shares slim rows of so many windows are dealt out: as many for each thread."""
    threads = workers.threads()
    return threads * -(-windows // (threads * BATCHES))


def _exchanged(
    graph: _Graph, cuts: Cuts, columns: Columns, number: int, *, spans: bool = False, whole: bool = False
) -> tuple[list[Any], list[list[Any]]]:
    """Return the rows that each window looks at, and what is seen of orders by shares of them.

    Partitions and windows of the same time have the same home, so that few rows travel.
    """
    count = len(cuts.edges) + 1
    homes, shares = min(count, workers.threads()), _shares(count) if spans else 0
    names = list(convert.column_names(columns.frame)) if whole else columns.present()
    split = partial(
        _split, names=names, caller=columns.caller, cuts=cuts, homes=homes, shares=shares, whole=whole
    )
    if engine_of(columns.frame) == "dask":
        chosen = adapters.columns_of(columns.frame, names, columns.caller)
        frames = graph.partitions(chosen, np.argsort(cuts.middles[number], kind="stable").tolist())
    else:
        frames = [graph.client.scatter(workers.pack(batch), hash=False) for batch in columns.batches()]
    groups = max(count, 2 * workers.threads())
    ends = dict.fromkeys(len(frames) * n // groups for n in range(groups + 1))
    parts = [
        graph.pieces(homes + shares, split, frames[start:end], place=(start, len(frames)))
        for start, end in pairwise(ends)
    ]
    near = []
    for n in range(count):
        pieces = [part[n * homes // count] for part in parts]
        near.append(graph.add(_gathered, pieces, n, place=(n, count)))
    return near, [[part[n] for part in parts] for n in range(homes, homes + shares)]


@workers.keeping_memory
def _split(
    frames: Sequence[Any],
    names: Sequence[str],
    caller: str,
    cuts: Cuts,
    homes: int,
    shares: int,
    *,
    whole: bool,
) -> list[Any]:
    """Split partitions into the rows that windows look at, by home, and what is seen of orders by shares."""
    read = convert.as_table if whole else partial(convert.to_table, caller=caller, columns=names)
    tables = [workers.unpack(frame) if isinstance(frame, Packed) else frame for frame in frames]
    rows, seen = pa.concat_tables(map(read, tables), promote_options="permissive"), list[Arrays]()
    rows = rows if whole else compact(rows)
    if shares:
        orders = orders_in(cuts, rows)
        share = (orders["hash"] >> np.uint64(32)) % np.uint64(shares)
        seen = [{name: column[share == one] for name, column in orders.items()} for one in range(shares)]
    count, pieces = len(cuts.edges) + 1, [dict[int, list[Packed]]() for _ in range(homes)]
    for block in blocks(rows, DEALT_AT_ONCE):
        slots = cuts.slot_of(moments_of(convert.to_table(block, caller, ["created_at"])))
        order = np.argsort(slots, kind="stable")
        slots = slots[order]
        for window in range(count):
            piece = pieces[window * homes // count].setdefault(window, [])
            some = order[cuts.near(slots, window)]
            if len(some) or not piece:
                piece.append(workers.pack(block.take(pa.array(some))))
    return [*pieces, *seen]


@workers.keeping_memory
def _gathered(pieces: Sequence[Mapping[int, Sequence[Packed]]], window: int) -> list[Packed]:
    """Return the rows that a window looks at, of all pieces that its home has."""
    return [workers.aligned(one) for windows in pieces for one in windows[window]]


def _together(pieces: Iterable[Packed]) -> pa.Table:
    return together(map(workers.unpack, pieces))


@workers.keeping_memory
def _own_of_several(cuts: Cuts, near: Sequence[Packed], window: int, hashes: Sequence[np.ndarray]) -> Packed:
    """Return the rows of a window whose orders have fills in several."""
    rows = _together(near)
    rows = rows.filter(pa.array(cuts.window_of(moments_of(rows)) == window))
    return workers.pack(of_orders(rows, joined(hashes)))


@workers.keeping_memory
def _orders(cuts: Cuts, placed_by: str, hashes: Sequence[np.ndarray], rows: Sequence[Packed]) -> Orders:
    return Orders(cuts, placed_by, hashes, map(workers.unpack, rows))


@workers.keeping_memory
def _at_edges(
    cuts: Cuts, read: Callable[[pa.Table], pa.Table], parts: Sequence[Sequence[Packed]], window: int
) -> list[list[Packed]]:
    tables = [*map(_together, parts)]
    found = at_edges(cuts, tables, read(tables[0]), window, cuts.signs)
    return [[*map(workers.pack, some)] for some in found]


@workers.keeping_memory
def _answer(
    cuts: Cuts,
    read: Callable[[pa.Table], pa.Table],
    own: Sequence[Sequence[Packed]],
    common: Sequence[Any],
    window: int,
) -> Packed:
    edges, orders, work = common
    behind = (last for last, *_ in edges[:window])
    ahead = (one for _, *first in edges[window + 1 :] for one in first)
    tables = [_together([*mine, *others]) for mine, *others in zip(own, *behind, *ahead, strict=True)]
    return workers.pack(work(tables[0], window_of(cuts, read(tables[0]), tables, orders, window)))


@workers.keeping_memory
def _of_table(function: Callable[..., Any], answer: Packed, *arguments: Any) -> Any:
    return function(workers.unpack(answer), *arguments)


def _selected(table: pa.Table, names: Sequence[str]) -> Packed:
    return workers.pack(table.select(names))


def _schema(answer: Packed) -> pa.Schema:
    return pa.ipc.open_stream(answer).schema


@workers.keeping_memory
def _result(answer: Packed) -> Packed:
    return workers.pack(result_table(workers.unpack(answer)))


@workers.keeping_memory
def _partition(result: Packed, schema: pa.Schema, constants: Mapping[str, Any]) -> pd.DataFrame:
    """Return a result as a partition, with the columns of all."""
    parts = [schema.empty_table(), workers.unpack(result)]
    whole = pa.concat_tables(parts, promote_options="permissive").cast(schema)
    for name, value in constants.items():
        whole = whole.append_column(name, pa.repeat(value, len(whole)))
    partition: pd.DataFrame = convert.to_native(pd.DataFrame(), whole)
    return partition
