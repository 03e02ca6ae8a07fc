"""Frames of any engine in windows of time, each with the rows around it, so that memory stays bounded.

Rows of a frame that is not in memory are read once and put on disk by time, or exchanged among the workers
of a cluster. A window then reads the rows that it answers for, some time after them, and the prices nearest
to both, so that the work grows linearly with the rows and every engine gives the same digits. Frames in
memory, and small ones, are one window, or some for several cores if rows stand in the order of time.

`Around` says what a window looks at. `placed_by` names the times that say which window answers for a row:
with ``first`` or ``last``, rows have both columns (ms), when their order was first and last filled in all of
the trades. What `work` has `counted` is added up in `counts` as parts are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa

from loopring_lab import cores
from loopring_lab.engines import cluster, convert, workers
from loopring_lab.engines.adapters import engine_of, portable
from loopring_lab.engines.aggregate import result_table
from loopring_lab.engines.arrays import NAT, distinct, is_ascending
from loopring_lab.engines.cluster import Answers
from loopring_lab.engines.cuts import (
    Around,
    Columns,
    Cuts,
    Orders,
    Window,
    at_edges,
    compact,
    cut,
    noted,
    repeated,
    wanted_of,
    window_of,
    with_ids,
)
from loopring_lab.engines.orders import SPAN, moments_of
from loopring_lab.engines.spill import Buckets, Spool, frame_of_files, together

__all__ = ["Parts", "Window", "add_columns", "counted", "map_batches", "over", "take_rows"]

LEAST_ROWS, WINDOWS_OF_A_CORE = 1 << 17, 2
"""Of the windows that frames in memory are cut into for several cores: smaller ones suit their caches."""
FILED = ("duckdb", "polars")
"""Engines whose large results are frames of files."""


class Parts:
    """What `over` finds in every window: a table for each, made when asked for, or all as one frame.

    `answers` are the tables that the workers of a cluster hold.
    """

    def __init__(
        self,
        trades: Any,
        counts: Counter[str],
        tables: Iterable[pa.Table] = (),
        answers: Answers | None = None,
        *,
        several: bool = True,
    ) -> None:
        self._trades, self._counts, self._tables, self._several = trades, counts, tables, several
        self.answers = answers

    def __iter__(self) -> Iterator[pa.Table]:
        return map(self._counted, self.answers.tables() if self.answers else self._tables)

    def _counted(self, table: pa.Table) -> pa.Table:
        self.count(workers.counts_of(table.schema))
        return table.replace_schema_metadata(None)

    def count(self, found: Mapping[str, int]) -> None:
        """Add what was counted beside a table, or beside those that the workers keep."""
        self._counts.update(found)

    def frame(self, constants: Callable[[], Mapping[str, Any]] = dict) -> Any:
        """Return the parts as one frame of the engine of the trades, in files where they may not fit.

        `constants`, columns of one value, are asked for after the last window.
        """
        if self.answers:
            self.count(self.answers.counts())
            return self.answers.frame(constants())
        tables = map(result_table, self)
        if not (self._several and engine_of(self._trades) in FILED):
            whole = pa.concat_tables(tables, promote_options="permissive")
            for name, value in constants().items():
                whole = whole.append_column(name, pa.repeat(value, len(whole)))
            return convert.to_native(self._trades, whole)
        return frame_of_files(self._trades, map(portable, tables), constants)


def over(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    placed_by: str = "moment",
    counts: Counter[str] | None = None,
    work: Callable[[Window], pa.Table],
    **around: Any,
) -> Parts:
    """Apply `work` to every window of trades, which looks `around` as `Around` says."""
    counts, near = Counter() if counts is None else counts, Around(**around)
    wanted, others = wanted_of(trades, caller, columns, optional, near)
    cuts = cut(wanted, others, near)
    if cuts is None:
        whole = _one_window(wanted, others)
        parts = _several(whole, near) if placed_by == "moment" and others is None else [whole]
        tables = cores.share(*(partial(work, part) for part in parts))
        return Parts(trades, counts, tables, several=False)
    placing = placed_by if placed_by in SPAN else None
    if engine_of(trades) == "dask" and (client := workers.cluster()):
        answers = cluster.answers(client, cuts, wanted, others, lambda _, window: work(window), placing)
        return Parts(trades, counts, answers=answers)
    return Parts(trades, counts, map(work, _windows(cuts, wanted, others, placing)))


def counted(table: pa.Table, **counts: int) -> pa.Table:
    """Return a table with counts of its window beside it."""
    return table.replace_schema_metadata({name: str(count) for name, count in counts.items()})


def add_columns(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    work: Callable[[Window], Mapping[str, pa.Array]],
    **around: Any,
) -> Any:
    """Add to trades of any engine the columns that `work` finds for the rows inside each window of `over`.

    Rows in memory, and of small frames, keep their order; those of others come in the order of time.
    """
    in_arrow = engine_of(trades) == "pyarrow"

    def added(rows: Any, window: Window) -> Any:
        return _with_columns(window.own(rows), work(window), in_arrow=in_arrow)

    return _of_windows(Columns(trades, caller, columns, optional), added, Around(**around))


def take_rows(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    work: Callable[[Any, Window], np.ndarray],
) -> Any:
    """Take from trades of any engine the rows whose positions `work` finds inside each window.

    It is given the rows with all of their columns, and the window.
    """

    def taken(rows: Any, window: Window) -> Any:
        return convert.take(rows, work(rows, window))

    return _of_windows(Columns(trades, caller, columns, optional), taken, Around())


def map_batches(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    work: Callable[[pa.Table], Mapping[str, pa.Array]],
) -> Any:
    """Add to trades of any engine the columns that `work` finds for batches of them, whatever is around."""
    engine = engine_of(trades)

    def added(rows: Any) -> Any:
        found = work(convert.to_table(rows, caller, columns, optional))
        return _with_columns(rows, found, in_arrow=engine == "pyarrow")

    if engine == "dask":
        return trades.map_partitions(added, meta=added(trades._meta))
    if engine not in convert.ELSEWHERE and cut(Columns(trades, caller, columns), None, Around()) is None:
        return added(trades)
    return _frame_of_rows(trades, map(added, convert.whole_batches(trades, caller)))


def _of_windows(wanted: Columns, work: Callable[[Any, Window], Any], around: Around) -> Any:
    """Put together what `work` makes of the rows of each window, with all of their columns."""
    trades = wanted.frame
    wanted, others = wanted_of(*wanted, around)
    cuts = cut(wanted, others, around)
    if cuts is None and engine_of(trades) not in convert.ELSEWHERE:
        return work(trades, _one_window(wanted, others))
    if cuts is None:
        batches = convert.whole_batches(trades, wanted.caller)
        whole = pa.concat_tables(batches, promote_options="permissive")
        return _frame_of_rows(trades, [work(whole, _one_window(wanted._replace(frame=whole), others))])
    if engine_of(trades) == "dask" and (client := workers.cluster()):
        return cluster.answers(client, cuts, wanted, others, work, whole=True).frame({})
    return _frame_of_rows(trades, starmap(work, _whole_windows(cuts, wanted, others)))


def _one_window(wanted: Columns, prices: Columns | None) -> Window:
    rows = wanted.table()
    known = rows if prices is None else prices.table()
    everything = np.ones(len(rows), bool)
    return Window(rows, everything, known, everything, np.ones(len(known), bool))


def _several(whole: Window, around: Around) -> list[Window]:
    """Cut many rows that stand in the order of time into windows for all cores; others stay whole."""
    moments = moments_of(whole.rows)
    count = min(WINDOWS_OF_A_CORE * cores.threads(), len(moments) // LEAST_ROWS)
    in_order = count > 1 and moments[0] != NAT and is_ascending(moments)
    if around.after is None or cores.threads() < 2 or not in_order:
        return [whole]
    places = np.arange(1, count) * len(moments) // count
    cuts = Cuts(distinct(moments[places]), around.after, around.keys, around.ahead)
    slots, numbers = cuts.slot_of(moments), range(len(cuts.edges) + 1)
    parts = (whole.rows[cuts.near(slots, number)] for number in numbers)
    found = cores.share(*(partial(_with_edges, cuts, part, n) for n, part in enumerate(parts)))
    own, last, *first = zip(*found, strict=True)
    near = [together([*last[:n], own[n], *(one for some in first for one in some[n + 1 :])]) for n in numbers]
    return [window_of(cuts, part, [part], None, number) for number, part in enumerate(near)]


def _with_edges(cuts: Cuts, rows: pa.Table, window: int) -> list[pa.Table]:
    """Return the rows of a window with the ids of their orders, and what other windows look at."""
    rows = with_ids(rows)
    return [rows, *(edge for (edge,) in at_edges(cuts, [rows], rows, window, cuts.signs))]


def _windows(cuts: Cuts, wanted: Columns, prices: Columns | None, placed_by: str | None) -> Iterator[Window]:
    """Yield windows of rows; with the column that places them, rows have their order's span."""
    known = None if prices is None else _spooled(cuts, map(compact, prices.batches()))
    orders: Orders | None = None
    if placed_by is None:
        spool = _spooled(cuts, map(compact, wanted.batches()))
    else:
        seen = Buckets()
        spool = _spooled(cuts, noted(cuts, wanted.batches(), seen))
        parts = (spool.read([slot]) for slot in range(len(cuts.slots) + 2))
        orders = Orders(cuts, placed_by, map(repeated, seen), parts)
        del seen
    tables = _Tables(cuts, spool, known)

    yield from (window_of(cuts, *tables.at(n), orders, n) for n in range(len(cuts.edges) + 1))  # none is held


def _whole_windows(cuts: Cuts, wanted: Columns, prices: Columns | None) -> Iterator[tuple[pa.Table, Window]]:
    """Yield windows of rows with all of their columns as they stand, beside the normalized ones."""
    known = None if prices is None else _spooled(cuts, prices.batches())
    spool = Spool()
    for whole in convert.whole_batches(wanted.frame, wanted.caller):
        moments = moments_of(convert.to_table(whole, wanted.caller, ["created_at"]))
        spool.add(whole, cuts.slot_of(moments))
    tables = _Tables(cuts, spool, known, lambda whole: wanted._replace(frame=whole).table())
    for window in range(len(cuts.edges) + 1):
        near, looked_at = tables.at(window)
        yield looked_at[0], window_of(cuts, near, looked_at, None, window)


class _Tables:
    """Rows on disk, and prices if these are others, as windows look at them one after the other."""

    def __init__(
        self,
        cuts: Cuts,
        rows: Spool,
        prices: Spool | None,
        normalized: Callable[[pa.Table], pa.Table] = convert.as_read,
    ) -> None:
        self._cuts, self._normalized = cuts, normalized
        self._spools = [rows] if prices is None else [rows, prices]
        self._behind, self._ahead = list[list[pa.Table]](), dict[int, list[list[pa.Table]]]()
        for window in range(len(cuts.edges), 0, -1) if cuts.ahead else ():
            near, tables = self._read(window)
            self._ahead[window] = at_edges(cuts, tables, near, window, [-1])

    def at(self, window: int) -> tuple[pa.Table, list[pa.Table]]:
        """Return normalized rows, and the tables as they stand; windows are asked for in their order."""
        near, tables = self._read(window)
        self._behind = at_edges(self._cuts, tables, near, window, [1])
        now, later = (self._cuts.looked_at(min(n, len(self._cuts.edges))).start for n in (window, window + 1))
        for spool in self._spools:
            spool.drop(range(now, later))
        return near, tables

    def _read(self, window: int) -> tuple[pa.Table, list[pa.Table]]:
        on_disk = [spool.read(self._cuts.looked_at(window)) for spool in self._spools]
        parts = zip(on_disk, *self._behind, *self._ahead.get(window + 1, ()), strict=True)
        tables = [*map(together, parts)]
        return self._normalized(tables[0]), tables


def _with_columns(rows: Any, found: Mapping[str, pa.Array], *, in_arrow: bool) -> Any:
    """Add columns to rows as they stand, in types that the engine of the trades can read."""
    if in_arrow or not isinstance(rows, pa.Table):
        return convert.with_columns(rows, dict(found))
    added = portable(pa.table(dict(found)))
    return convert.with_columns(rows, dict(zip(added.column_names, added.columns, strict=True)))


def _frame_of_rows(trades: Any, parts: Iterable[pa.Table]) -> Any:
    """Put parts of trades with columns added together as a frame of the same engine."""
    if engine_of(trades) in FILED:
        return frame_of_files(trades, parts)
    return convert.to_native(trades, result_table(pa.concat_tables(parts, promote_options="permissive")))


def _spooled(cuts: Cuts, batches: Iterable[pa.Table]) -> Spool:
    spool = Spool()
    for batch in batches:
        spool.add(batch, cuts.slot_of(moments_of(batch)))
    return spool
