"""Windows on the workers of a Dask cluster: they exchange the rows, hold them, and keep what they answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from operator import itemgetter
from typing import Any

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
    joined,
    of_orders,
    repeated,
    window_of,
    with_hash,
    with_ids,
)
from loopring_lab.engines.orders import ORDER, moments_of
from loopring_lab.engines.pairs import Sides
from loopring_lab.engines.spill import BUCKETS, together
from loopring_lab.engines.spill import Columns as Arrays
from loopring_lab.engines.workers import Packed

DEALT_AT_ONCE = 1 << 17
"""So many rows a worker deals out to windows at a time, in memory that it has used just before."""


class Answers:
    """The packed tables that workers find in windows, in their order."""

    def __init__(self, client: Any, tasks: Sequence[Any]) -> None:
        self.client, self.futures = client, client.compute(tasks)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the tables, once."""
        futures, self.futures = self.futures, None
        return map(workers.unpack, workers.in_turn(futures))

    def columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of these names of the tables, which stay on the workers."""
        return map(workers.unpack, workers.in_turn(self.each(_selected, repeat(names))))

    def each(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        """Apply a function to every table and its arguments on its worker; what it returns stays there."""
        submit = partial(self.client.submit, _of_table, function, pure=False)
        return [*map(submit, self.futures, *arguments)]

    @property
    def shares(self) -> int:
        """The number of shares that rows of all tables are dealt out in."""
        return min(len(self.futures), BUCKETS)

    def pieces(
        self, count: int, function: Callable[..., Any], *arguments: Iterable[Any]
    ) -> Iterator[list[Any]]:
        """Apply a function that returns so many pieces; yield them place by place."""
        found = self.each(function, *arguments)
        return (self.client.map(itemgetter(place), found, pure=False) for place in range(count))

    def counts(self) -> Counter[str]:
        """Add up what was counted beside the tables."""
        found = Counter[str]()
        schemas = self.client.map(_schema, self.futures, pure=False, priority=workers.AHEAD)
        for schema in self.client.gather(schemas):
            found.update(workers.counts_of(schema))
        return found

    def frame(self, constants: Mapping[str, Any]) -> Any:
        """Return the tables with constant columns as a frame of Dask, whose partitions the workers hold."""
        from dask.dataframe import from_delayed
        from dask.dataframe.utils import clear_known_categories

        results = self.client.map(_result, self.futures, pure=False)
        schemas = self.client.gather(self.client.map(_schema, results, pure=False))
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        to_partition = partial(_partition, schema=schema, constants=constants)
        parts = self.client.map(to_partition, results, pure=False)
        empty = to_partition(workers.pack(schema.empty_table()))
        meta = clear_known_categories(empty)  # type: ignore[no-untyped-call]
        return from_delayed(parts, meta=meta, verify_meta=False)


def count_sides(
    client: Any, shares: Sequence[Sequence[Any]], numbers: Sequence[np.ndarray], size: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Start to count both sides of fills on the workers; yield what `Sides.count` finds in each share.

    A share has a piece of each part, as `sides_in_shares` returns it; `numbers` are those of its groups.
    """
    submit = partial(client.submit, _sides_counted, pure=False, priority=workers.BEHIND)
    return workers.in_turn([submit(pieces, numbers, size) for pieces in shares])


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
    from dask import annotate  # type: ignore[attr-defined]

    home = partial(workers.home, workers.homes(client))
    (sent,) = client.scatter([work], hash=False)
    near, seen = _exchanged(client, cuts, wanted, 0, home, spans=placed_by is not None, whole=whole)
    others = [] if prices is None else [_exchanged(client, cuts, prices, 1, home)[0]]
    tables = [[*parts] for parts in zip(near, *others, strict=True)]
    count, orders = len(tables), None
    if placed_by:
        hashes = [workers.later(repeated)(*parts) for parts in seen]
        own = [workers.later(_own_of_several)(cuts, part, n, hashes) for n, part in enumerate(near)]
        orders = workers.later(_orders)(cuts, placed_by, hashes, own)
    normalized = partial(convert.to_table, caller=wanted.caller, columns=wanted.present())
    read = normalized if whole else convert.as_read
    at_edges_of, edges = workers.later(partial(_at_edges, read=read)), list[Any]()
    for n, parts in enumerate(tables if cuts.keys else []):
        with annotate(**home(n, count)):
            edges.append(at_edges_of(cuts, parts, n))
    answer, tasks = workers.later(partial(_answer, read=read)), list[Any]()
    for n, parts in enumerate(tables):
        if not n or home(n, count) != home(n - 1, count):  # answers that fetch the same start in any order
            with annotate(**home(n, count)):
                common = workers.later(lambda *common: common)(edges, orders, sent)
        with annotate(priority=-1 - n, **home(n, count)):  # after all else, in the order they are asked for
            tasks.append(answer(cuts, parts, common, n))
    return Answers(client, tasks)


def _exchanged(
    client: Any,
    cuts: Cuts,
    columns: Columns,
    number: int,
    home: Callable[[int, int], dict[str, Any]],
    *,
    spans: bool = False,
    whole: bool = False,
) -> tuple[list[Any], list[list[Any]]]:
    """Return, delayed, the rows that each window looks at, and what is seen of orders by shares of them.

    Partitions and windows of the same time have the same home, so that few rows travel.
    """
    from dask import annotate  # type: ignore[attr-defined]

    count = len(cuts.edges) + 1
    shares = max(-(-count // BATCHES), workers.threads()) if spans else 0
    names = list(convert.column_names(columns.frame)) if whole else columns.present()
    split = partial(_split, names=names, caller=columns.caller, cuts=cuts, shares=shares, whole=whole)
    if engine_of(columns.frame) == "dask":
        order = np.argsort(cuts.middles[number], kind="stable").tolist()
        homes = {n: home(place, len(order)).get("workers") for place, n in enumerate(order)}
        at_home = {"workers": lambda key: homes.get(key[-1]), "allow_other_workers": True}
        partitions = adapters.partitions(columns.frame, names, columns.caller, **at_home)
        frames = [partitions[n] for n in order]
    else:
        frames = [client.scatter(workers.pack(batch), hash=False) for batch in columns.batches()]
    groups, pieces = max(count, 2 * workers.threads()), count + shares
    ends = dict.fromkeys(len(frames) * n // groups for n in range(groups + 1))
    work, parts, near = workers.later(split, pieces), list[list[Any]](), list[Any]()
    for start, end in pairwise(ends):
        with annotate(**home(start, len(frames))):
            parts.append([*work(frames[start:end])])
    gathered = workers.later(lambda pieces: [workers.aligned(one) for piece in pieces for one in piece])
    for n in range(count):
        rows = [part[n] for part in parts]
        with annotate(**home(n, count)):
            near.append(gathered(rows))
    return near, [[part[n] for part in parts] for n in range(count, pieces)]


def _split(
    frames: Sequence[Any], names: Sequence[str], caller: str, cuts: Cuts, shares: int, *, whole: bool
) -> list[Any]:
    """Split partitions into the rows that each window looks at, and what is seen of orders by shares."""
    read = (
        partial(pa.Table.from_pandas, preserve_index=False)
        if whole
        else partial(convert.to_table, caller=caller, columns=names)
    )
    tables = [workers.unpack(frame) if isinstance(frame, Packed) else frame for frame in frames]
    rows, seen = pa.concat_tables(map(read, tables), promote_options="permissive"), list[Arrays]()
    if not whole:
        rows = _with_codes(with_ids(rows))
    if shares:
        rows, orders = with_hash(cuts, rows)
        share = (orders["hash"] >> np.uint64(32)) % np.uint64(shares)
        seen = [{name: column[share == one] for name, column in orders.items()} for one in range(shares)]
    pieces = [list[Packed]() for _ in range(len(cuts.edges) + 1)]
    for block in blocks(rows, DEALT_AT_ONCE):
        slots = cuts.slot_of(moments_of(convert.to_table(block, caller, ["created_at"])))
        order = np.argsort(slots, kind="stable")
        slots = slots[order]
        for window, piece in enumerate(pieces):
            some = order[cuts.near(slots, window)]
            if len(some) or not piece:
                piece.append(workers.pack(block.take(pa.array(some))))
    return [*pieces, *seen]


def _with_codes(rows: pa.Table) -> pa.Table:
    """Return rows with codes in place of texts of which there are few: of each row some 40 bytes of 240."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) and field.name not in ORDER:
            rows = rows.set_column(place, field.name, rows[field.name].dictionary_encode())
    return rows


def _together(pieces: Iterable[Packed]) -> pa.Table:
    return together(map(workers.unpack, pieces))


def _own_of_several(cuts: Cuts, near: Sequence[Packed], window: int, hashes: Sequence[np.ndarray]) -> Packed:
    """Return the rows of a window whose orders have fills in several."""
    rows = _together(near)
    rows = rows.filter(pa.array(cuts.window_of(moments_of(rows)) == window))
    return workers.pack(of_orders(rows, joined(hashes)))


def _orders(cuts: Cuts, placed_by: str, hashes: Sequence[np.ndarray], rows: Sequence[Packed]) -> Orders:
    return Orders(cuts, placed_by, hashes, map(workers.unpack, rows))


def _at_edges(
    cuts: Cuts, parts: Sequence[Sequence[Packed]], window: int, read: Callable[[pa.Table], pa.Table]
) -> list[list[Packed]]:
    tables = [*map(_together, parts)]
    found = at_edges(cuts, tables, read(tables[0]), window, cuts.signs)
    return [[*map(workers.pack, some)] for some in found]


def _answer(
    cuts: Cuts,
    own: Sequence[Sequence[Packed]],
    common: Sequence[Any],
    window: int,
    read: Callable[[pa.Table], pa.Table],
) -> Packed:
    edges, orders, work = common
    behind = (last for last, *_ in edges[:window])
    ahead = (one for _, *first in edges[window + 1 :] for one in first)
    tables = [_together([*mine, *others]) for mine, *others in zip(own, *behind, *ahead, strict=True)]
    return workers.pack(work(tables[0], window_of(cuts, read(tables[0]), tables, orders, window)))


@workers.keeping_memory
def _sides_counted(
    pieces: Sequence[Arrays], numbers: Sequence[np.ndarray], size: int
) -> tuple[int, np.ndarray]:
    sides = Sides()
    for piece, groups in zip(pieces, numbers, strict=True):
        if piece:
            sides.add(piece["trade"], piece["side"], groups[piece["group"]])
    return sides.count(np.arange(size), size)


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
