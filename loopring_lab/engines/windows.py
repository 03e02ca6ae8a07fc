"""Frames of any engine in windows of time, each with the rows around it, so that memory stays bounded.

Rows of a frame that is not in memory are read once, in batches, and put on disk by time, compressed. A
window then reads the rows that it answers for and the time around them. So the work grows linearly with
the rows, however the files behind a frame are laid out, and every engine gives the same digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import convert, limits
from loopring_lab.engines.adapters import engine_of, portable
from loopring_lab.engines.aggregate import result_table
from loopring_lab.engines.arrays import NAT
from loopring_lab.engines.arrays import hashes as hashes_of
from loopring_lab.engines.asof import check_prices, moments_of, order_names, order_span
from loopring_lab.engines.pairs import row_groups
from loopring_lab.engines.spill import Buckets
from loopring_lab.engines.spill import Columns as Arrays
from loopring_lab.engines.spool import ResultFiles, Spool

ROW_BYTES = 512
"""What a row takes: its columns, and the numbers that lookups make of them."""
BATCHES = 4
"""Rows are put on disk in batches of a window's size divided by this."""
SAMPLED = 256
"""One of so many rows of a batch says how moments are spread over time."""
LEAST_OWN = 4
"""A window has at least one row of its own for so many around it."""
IN_MEMORY = ("pandas", "pyarrow", "polars")
"""Engines whose small frames keep their rows as they stand when columns are added."""
FILED = ("duckdb", "polars")
"""Engines whose large results are frames of files."""
HASH = "hash of the order"


class Window(NamedTuple):
    """Rows of a window and of the time around it, and prices of the same time.

    `inside` masks the rows to answer for, `here` those whose own moment lies in the window. Each row of the
    frame is `inside` one window and `here` in one, those of unknown time in the first.
    """

    rows: pa.Table
    inside: np.ndarray
    prices: pa.Table
    here: np.ndarray

    def own(self, rows: pa.Table) -> pa.Table:
        """Return those of the window's rows that it answers for."""
        return rows if self.inside.all() else rows.filter(pa.array(self.inside))


class Columns(NamedTuple):
    """Columns to read from a frame of any engine, the optional ones where it has them."""

    frame: Any
    caller: str
    names: Sequence[str]
    optional: Sequence[str] = ()

    def table(self) -> pa.Table:
        """Read all rows into memory, normalized."""
        return convert.to_table(*self)

    def batches(self) -> Iterator[pa.Table]:
        """Read rows in batches that are small beside a window, normalized."""
        there = set(convert.column_names(self.frame)) if self.optional else set()
        names = dict.fromkeys([*self.names, *(name for name in self.optional if name in there)])
        most = max(1, limits.rows_at_once(ROW_BYTES) // BATCHES)
        return convert.batches(self.frame, [*names], self.caller, most)


class Parts:
    """What `over` finds in every window: a table for each, made when asked for, or all as one frame."""

    def __init__(self, trades: Any, tables: Iterable[pa.Table], *, several: bool) -> None:
        self._trades, self._tables, self._several = trades, tables, several

    def __iter__(self) -> Iterator[pa.Table]:
        return iter(self._tables)

    def frame(self, constants: Callable[[], Mapping[str, Any]] = dict) -> Any:
        """Return the parts as one frame of the engine of the trades, with columns of one value.

        `constants` are asked for after the last window. What may not fit into memory stays in files for
        DuckDB and lazy frames of Polars, which are removed with the last frame that reads them.
        """
        tables = map(result_table, self)
        if not (self._several and engine_of(self._trades) in FILED):
            whole = pa.concat_tables(tables, promote_options="permissive")
            for name, value in constants().items():
                whole = whole.append_column(name, pa.repeat(value, len(whole)))
            return convert.to_native(self._trades, whole)
        files = ResultFiles(map(portable, tables))
        return files.frame(self._trades, constants())


def over(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    prices: Any = None,
    price_columns: Sequence[str] = (),
    before: int | None = None,
    after: int | None = None,
    spans: bool = False,
    placed_by: str = "moment",
    next_by: Sequence[str] = (),
    work: Callable[[Window], pa.Table],
) -> Parts:
    """Apply `work` to every window of trades; prices are the trades themselves by default.

    A window has the rows up to `before` and `after` ms around it; None for all, in one window. With `spans`,
    rows have the columns ``first`` and ``last`` (ms), when their order was first and last filled in all of
    the trades. `placed_by` is the column of times that says which window answers for a row. Prices have
    also the first known ones later than that time for each combination of the columns `next_by`. Frames
    that are in memory, or small, are one window, with their rows as they stand.
    """
    wanted, others = _wanted(trades, caller, columns, optional, prices, price_columns)
    cuts = _cut(wanted, others, before, after)
    if cuts is None:
        return Parts(trades, map(work, _one_window(wanted, others, spans)), several=False)
    windows = _windows(cuts, wanted, others, placed_by if spans else None, next_by)
    return Parts(trades, map(work, windows), several=True)


def add_columns(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    prices: Any = None,
    price_columns: Sequence[str] = (),
    before: int | None = 0,
    after: int | None = 0,
    work: Callable[[Window], Mapping[str, pa.Array]],
) -> Any:
    """Add to trades of any engine the columns that `work` finds for the rows inside each window of `over`.

    Rows in memory, and of small frames, keep their order; those of others come in the order of time.
    """
    wanted, others = _wanted(trades, caller, columns, optional, prices, price_columns)
    cuts = _cut(wanted, others, before, after)
    if cuts is None and engine_of(trades) in IN_MEMORY:
        return convert.with_columns(trades, dict(work(next(_one_window(wanted, others)))))
    if cuts is None:
        whole = pa.concat_tables(convert.whole_batches(trades, caller), promote_options="permissive")
        windows: Iterator[tuple[pa.Table, Window]] = (
            (whole, window) for window in _one_window(wanted._replace(frame=whole), others)
        )
    else:
        windows = _whole_windows(cuts, wanted, others)
    own = ((window.own(whole), window) for whole, window in windows)
    return _frame_of_rows(trades, (_with_columns(whole, work(window)) for whole, window in own))


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
    wanted, _ = _wanted(trades, caller, columns, optional, None, ())
    cuts = _cut(wanted, None, 0, 0)
    if cuts is None and engine_of(trades) in IN_MEMORY:
        return convert.take(trades, work(trades, next(_one_window(wanted, None))))
    if cuts is None:
        whole = pa.concat_tables(convert.whole_batches(trades, caller), promote_options="permissive")
        window = next(_one_window(wanted._replace(frame=whole), None))
        return _frame_of_rows(trades, [convert.take(whole, work(whole, window))])
    windows = _whole_windows(cuts, wanted, None)
    return _frame_of_rows(trades, (convert.take(whole, work(whole, window)) for whole, window in windows))


def map_batches(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    work: Callable[[pa.Table], Mapping[str, pa.Array]],
) -> Any:
    """Add to trades of any engine the columns that `work` finds for batches of them, whatever is around."""

    def added(whole: Any) -> Any:
        return convert.with_columns(whole, dict(work(convert.to_table(whole, caller, columns, optional))))

    engine, wanted = engine_of(trades), Columns(trades, caller, columns, optional)
    if engine == "dask":
        return trades.map_partitions(added, meta=added(trades._meta))
    if engine in IN_MEMORY and _cut(wanted, None, 0, 0) is None:
        return added(trades)
    return _frame_of_rows(
        trades,
        (
            _with_columns(whole, work(convert.to_table(whole, caller, columns, optional)))
            for whole in convert.whole_batches(trades, caller)
        ),
    )


def is_in_memory(frame: Any) -> bool:
    """Tell whether the rows of a frame are in memory already."""
    return engine_of(frame) in ("pandas", "pyarrow") or type(frame).__name__ == "DataFrame"


class Cuts(NamedTuple):
    """Where windows start, but for the first, and how much time around them they look at, in ms."""

    edges: np.ndarray
    before: int
    after: int

    @property
    def slots(self) -> np.ndarray:
        """Where windows, and the time around them, start and end: rows are put on disk between these."""
        around = [self.edges - self.before, self.edges, self.edges + self.after]
        return np.unique(np.concatenate(around))

    def slot_of(self, moments: Any) -> np.ndarray:
        """Number the slots of moments: 0 for unknown ones, 1 for those before all others."""
        return np.where(np.equal(moments, NAT), 0, np.searchsorted(self.slots, moments, "right") + 1)

    def window_of(self, moments: np.ndarray) -> np.ndarray:
        """Number the windows that moments lie in; unknown ones lie in the first."""
        return np.searchsorted(self.edges, moments, "right")

    def looked_at(self, window: int) -> range:
        """Return the slots that a window looks at."""
        start, end = 0, len(self.slots) + 2
        if window:
            start = int(self.slot_of(self.edges[window - 1] - self.before))
        if window < len(self.edges):
            end = int(self.slot_of(self.edges[window] + self.after))
        return range(start, end)


def _wanted(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str],
    prices: Any,
    of_prices: Sequence[str],
) -> tuple[Columns, Columns | None]:
    """Return the columns of trades, and of prices if these are others."""
    if prices is None:
        return Columns(trades, caller, [*columns, *of_prices], optional), None
    check_prices(prices, caller)
    return Columns(trades, caller, columns, optional), Columns(prices, caller, of_prices, optional)


def _one_window(wanted: Columns, prices: Columns | None, spans: bool = False) -> Iterator[Window]:
    rows = wanted.table()
    rows = _with_span(rows) if spans else rows
    known = rows if prices is None else prices.table()
    everything = np.ones(len(rows), bool)
    yield Window(rows, everything, known, everything)


def _cut(wanted: Columns, prices: Columns | None, before: int | None, after: int | None) -> Cuts | None:
    """Choose windows that fit into memory with the time around them; None if there is one only."""
    if before is None or after is None or is_in_memory(wanted.frame):
        return None
    most = limits.rows_at_once(ROW_BYTES)
    step = max(1, min(SAMPLED, most // SAMPLED))
    sampled, total = [], 0
    for columns in (wanted, prices):
        if columns is None:
            continue
        for batch in Columns(columns.frame, columns.caller, ["created_at"]).batches():
            moments = np.sort(moments_of(batch))
            sampled.append(moments[moments != NAT][::step])
            total += len(moments)
    if total <= most:
        return None
    edges = _edges(np.sort(np.concatenate(sampled)), most // step, before, after)
    return Cuts(np.array(edges, np.int64), before, after) if edges else None


def _edges(spread: np.ndarray, most: int, before: int, after: int) -> list[int]:
    """Choose edges with at most so many moments between two and in the time around them, if possible."""
    edges: list[int] = []
    start = 0
    while len(spread):
        low = int(spread[start])
        first, end = np.searchsorted(spread, [low - before, low + after])
        if first + most >= len(spread):
            break
        stop = max(
            np.searchsorted(spread, spread[first + most] - after),
            np.searchsorted(spread, low, "right"),
            start + (end - first) // LEAST_OWN,
        )
        if stop >= len(spread):
            break
        edges.append(int(spread[stop]))
        start = int(np.searchsorted(spread, edges[-1]))
    return edges


def _windows(
    cuts: Cuts, wanted: Columns, prices: Columns | None, placed_by: str | None, next_by: Sequence[str]
) -> Iterator[Window]:
    """Yield windows of rows; with the column that places them, rows have their order's span."""
    following = _Following(cuts, next_by)
    known = None if prices is None else _spooled(cuts, following.noted(prices.batches()))
    orders = _Orders(cuts, placed_by) if placed_by else None
    batches = following.noted(wanted.batches()) if prices is None else wanted.batches()
    spool = _spooled(cuts, orders.noted(batches) if orders else batches)
    if orders:
        orders.gather(spool)
    for window in range(len(cuts.edges) + 1):
        looked_at = cuts.looked_at(window)
        near, inside = spool.read(looked_at), None
        near = following.added(near, looked_at.stop) if known is None else near
        count = len(near)
        if orders:
            near, inside, count = orders.span(near, window)
        here = cuts.window_of(moments_of(near)) == window
        others = near.slice(0, count)
        if known is not None:
            others = following.added(known.read(looked_at), looked_at.stop)
        yield Window(near, here if inside is None else inside, others, here)


class _Following:
    """The first known prices, by slot and some columns, that come after windows and the time around them."""

    def __init__(self, cuts: Cuts, keys: Sequence[str]) -> None:
        self._cuts, self._keys, self._parts = cuts, keys, list[pa.Table]()

    def noted(self, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Note the first prices of batches, and pass these on."""
        for batch in batches:
            if self._keys:
                self._parts.append(self._firsts(batch, by_slot=True))
            yield batch

    def added(self, rows: pa.Table, slot: int) -> pa.Table:
        """Add to rows the first prices from a slot on."""
        if not self._keys:
            return rows
        noted = pa.concat_tables(self._parts, promote_options="permissive").unify_dictionaries()
        self._parts = [noted]
        later = noted.filter(pa.array(self._cuts.slot_of(moments_of(noted)) >= slot))
        both = [rows, self._firsts(later, by_slot=False)]
        return pa.concat_tables(both, promote_options="permissive").unify_dictionaries()

    def _firsts(self, rows: pa.Table, *, by_slot: bool) -> pa.Table:
        """Take the known prices of the first moment in each group."""
        known = pc.greater(rows["price"], pa.scalar(0, rows["price"].type))
        rows = rows.filter(pc.and_(known, rows["moment"].is_valid()))
        groups, moments = row_groups(rows, self._keys)[0], moments_of(rows)
        if by_slot:
            groups = groups * (len(self._cuts.slots) + 2) + self._cuts.slot_of(moments)
        groups = np.unique(groups, return_inverse=True)[1]
        first = np.full(groups.max(initial=-1) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, groups, moments)
        return rows.filter(pa.array(moments == first[groups]))


def _whole_windows(cuts: Cuts, wanted: Columns, prices: Columns | None) -> Iterator[tuple[pa.Table, Window]]:
    """Yield windows of rows with all of their columns as they stand, beside the normalized ones."""
    known = None if prices is None else _spooled(cuts, prices.batches())
    spool = Spool()
    for whole in convert.whole_batches(wanted.frame, wanted.caller):
        moments = moments_of(convert.to_table(whole, wanted.caller, ["created_at"]))
        spool.add(whole, cuts.slot_of(moments))
    for window in range(len(cuts.edges) + 1):
        whole = spool.read(cuts.looked_at(window))
        near = wanted._replace(frame=whole).table()
        here = cuts.window_of(moments_of(near)) == window
        others = near if known is None else known.read(cuts.looked_at(window))
        yield whole, Window(near, here, others, here)


def _with_columns(whole: pa.Table, found: Mapping[str, pa.Array]) -> pa.Table:
    """Add columns, as engines can read them, to those of trades as they stand."""
    added = portable(pa.table(dict(found)))
    return convert.with_columns(whole, dict(zip(added.column_names, added.columns, strict=True)))


def _frame_of_rows(trades: Any, parts: Iterable[pa.Table]) -> Any:
    """Put parts of trades with columns added together as a frame of the same engine."""
    if engine_of(trades) in FILED:
        return ResultFiles(parts).frame(trades)
    return convert.to_native(trades, result_table(pa.concat_tables(parts, promote_options="permissive")))


def _spooled(cuts: Cuts, batches: Iterable[pa.Table]) -> Spool:
    spool = Spool()
    for batch in batches:
        spool.add(batch, cuts.slot_of(moments_of(batch)))
    return spool


def _with_span(rows: pa.Table) -> pa.Table:
    first, last = order_span(rows)
    return rows.append_column("first", pa.array(first)).append_column("last", pa.array(last))


class _Orders:
    """The span of every order: rows of orders with fills in several windows are looked at together.

    Which orders these are is decided by hashes; others that share one are looked at with them.
    """

    def __init__(self, cuts: Cuts, placed_by: str) -> None:
        self._cuts, self._placed_by = cuts, placed_by
        self._seen = Buckets()

    def noted(self, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Note in which windows orders have fills, and pass batches on with the hashes of their orders."""
        for batch in batches:
            names, moments = order_names(batch), moments_of(batch)
            hashes = np.where(names.is_valid(), hashes_of(names), np.uint64(0))
            windows = np.where(moments == NAT, -1, self._cuts.window_of(moments))
            known = np.asarray(names.is_valid())
            seen = {"hash": hashes[known], "window": windows[known].astype(np.int32)}
            self._seen.add(seen["hash"] >> np.uint64(56), seen)
            yield batch.append_column(HASH, pa.array(hashes))

    def gather(self, spool: Spool) -> None:
        """Gather the rows of orders that have fills in several windows, with their spans."""
        repeated = [_repeated(seen) for seen in self._seen]
        self._hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *repeated]))
        slots = range(len(self._cuts.slots) + 2)
        rows = pa.concat_tables(
            [rows.filter(pa.array(self._is_one(rows))) for rows in (spool.read([slot]) for slot in slots)],
            promote_options="permissive",
        )
        self._rows = _with_span(rows)
        self._windows = self._cuts.window_of(self._rows[self._placed_by].to_numpy())
        self._slots = self._cuts.slot_of(moments_of(self._rows))

    def span(self, near: pa.Table, window: int) -> tuple[pa.Table, np.ndarray, int]:
        """Return rows with spans, those inside the window, and how many lie in the time around it."""
        alone = near.filter(pa.array(~self._is_one(near)))
        inside = self._cuts.window_of(moments_of(alone)) == window
        looked_at = self._cuts.looked_at(window)
        close = (self._slots >= looked_at.start) & (self._slots < looked_at.stop)
        moved = np.flatnonzero(~close & (self._windows == window))
        places = np.append(np.flatnonzero(close), moved)
        rows = pa.concat_tables([_with_span(alone), self._rows.take(pa.array(places))])
        inside = np.append(inside, self._windows[places] == window)
        return rows.drop_columns(HASH), inside, len(rows) - len(moved)

    def _is_one(self, rows: pa.Table) -> np.ndarray:
        hashes = rows[HASH].to_numpy()
        if not len(self._hashes):
            return np.zeros(len(hashes), bool)
        places = np.searchsorted(self._hashes, hashes)
        return np.asarray(self._hashes[np.minimum(places, len(self._hashes) - 1)] == hashes)


def _repeated(seen: Arrays) -> np.ndarray:
    """Return the hashes that were seen in several windows."""
    order = np.lexsort((seen["window"], seen["hash"]))
    hashes, windows = seen["hash"][order], seen["window"][order]
    return np.unique(hashes[1:][(np.diff(hashes) == 0) & (np.diff(windows) != 0)])
