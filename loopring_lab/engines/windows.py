"""Frames of any engine in windows of time, each with the rows around it, so that memory stays bounded.

Rows of a frame that is not in memory are read once, in batches, and put on disk by time, compressed. A
window then reads the rows that it answers for and the time around them. So the work grows linearly with
the rows, however the files behind a frame are laid out, and every engine gives the same digits.

`Around` says what a window looks at. `placed_by` names the times that say which window answers for a row:
if it is ``first`` or ``last``, rows have both columns (ms), when their order was first and last filled in
all of the trades. Frames that are in memory, or small, are one window as they stand. `work` depends on the
window alone: clusters of Dask exchange rows among their workers, which then apply it; rows of other engines
are put on disk here. What it has `counted` is added up in `counts` as parts are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import adapters, convert, limits, workers
from loopring_lab.engines.adapters import engine_of, portable
from loopring_lab.engines.aggregate import result_table
from loopring_lab.engines.arrays import NAT, distinct, is_among, numbers_of_texts
from loopring_lab.engines.asof import SPAN, check_prices, moments_of, order_names, order_span
from loopring_lab.engines.pairs import row_groups
from loopring_lab.engines.spill import Buckets, Spool, frame_of_files, together
from loopring_lab.engines.spill import Columns as Arrays

ROW_BYTES = 512  # its columns, and the numbers that lookups make of them
BATCHES = 4
"""Rows are put on disk in batches of a window's size divided by this."""
SAMPLED = 256
"""One in this many rows of a batch says how moments are spread over time."""
WINDOWS_OF_A_THREAD = 4
"""Windows of Dask, at least, so that workers are done at about the same time."""
LEAST_OWN = 4
"""A window has at least one row of its own for so many around it."""
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

    def of(self, some: np.ndarray) -> Window:
        """Return the window with some of its rows only, and all prices."""
        return self._replace(
            rows=self.rows.filter(pa.array(some)), inside=self.inside[some], here=self.here[some]
        )


class Around(NamedTuple):
    """What windows look at: prices, which are the trades themselves by default, and the time around them.

    Up to `before` and `after` ms; None for all, in one window. Of prices also the first known ones later
    than that, for each combination of the columns `next_by`.
    """

    prices: Any = None
    price_columns: Sequence[str] = ()
    before: int | None = 0
    after: int | None = 0
    next_by: Sequence[str] = ()


class Columns(NamedTuple):
    """Columns to read from a frame of any engine, the optional ones where it has them."""

    frame: Any
    caller: str
    names: Sequence[str]
    optional: Sequence[str] = ()

    def table(self) -> pa.Table:
        """Read all rows into memory, normalized."""
        return convert.to_table(*self)

    def batches(self, work: Callable[[pa.Table], pa.Table] = convert.as_read) -> Iterator[pa.Table]:
        """Read rows in batches that are small beside a window, normalized, and what `work` makes of them."""
        most = max(1, limits.rows_at_once(ROW_BYTES) // BATCHES)
        return convert.batches(self.frame, self.present(), self.caller, most, work)

    def present(self) -> list[str]:
        """Return the names of the columns to read."""
        there = set(convert.column_names(self.frame)) if self.optional else set()
        return [*dict.fromkeys([*self.names, *(name for name in self.optional if name in there)])]

    def partitions(self, client: Any) -> list[Any]:
        """Return rows as parts for the workers of a cluster, sent to them if they are not of Dask."""
        if engine_of(self.frame) == "dask":
            return adapters.partitions(self.frame, self.present(), self.caller)
        return [client.scatter(workers.pack(batch), hash=False) for batch in self.batches()]


class Parts:
    """What `over` finds in every window: a table for each, made when asked for, or all as one frame."""

    def __init__(
        self, trades: Any, tables: Iterable[pa.Table], counts: Counter[str], *, several: bool
    ) -> None:
        self._trades, self._tables, self._counts, self._several = trades, tables, counts, several

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._tables:
            self._counts.update({name.decode(): int(n) for name, n in (table.schema.metadata or {}).items()})
            yield table.replace_schema_metadata(None)

    def frame(self, constants: Callable[[], Mapping[str, Any]] = dict) -> Any:
        """Return the parts as one frame of the engine of the trades, in files where they may not fit.

        `constants`, columns of one value, are asked for after the last window.
        """
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
    wanted, others = _wanted(trades, caller, columns, optional, near)
    cuts, has_spans = _cut(wanted, others, near), placed_by in SPAN
    if cuts is None:
        return Parts(trades, map(work, [_one_window(wanted, others, has_spans)]), counts, several=False)
    placing = placed_by if has_spans else None
    if engine_of(trades) == "dask" and (client := workers.cluster()):
        answers = _on_cluster(client, cuts, wanted, others, placing, work)
        return Parts(trades, answers, counts, several=True)
    windows = _windows(cuts, wanted, others, placing)
    return Parts(trades, map(work, windows), counts, several=True)


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

    def added(rows: Any, window: Window) -> Any:
        return _with_columns(trades, window.own(rows), work(window))

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

    def added(rows: Any) -> Any:
        return _with_columns(trades, rows, work(convert.to_table(rows, caller, columns, optional)))

    engine = engine_of(trades)
    if engine == "dask":
        return trades.map_partitions(added, meta=added(trades._meta))
    if engine not in convert.ELSEWHERE and _cut(Columns(trades, caller, columns), None, Around()) is None:
        return added(trades)
    return _frame_of_rows(trades, map(added, convert.whole_batches(trades, caller)))


def _of_windows(wanted: Columns, work: Callable[[Any, Window], Any], around: Around) -> Any:
    """Put together what `work` makes of the rows of each window, with all of their columns."""
    trades = wanted.frame
    wanted, others = _wanted(*wanted, around)
    cuts = _cut(wanted, others, around)
    if cuts is None and engine_of(trades) not in convert.ELSEWHERE:
        return work(trades, _one_window(wanted, others))
    if cuts is None:
        batches = convert.whole_batches(trades, wanted.caller)
        whole = pa.concat_tables(batches, promote_options="permissive")
        return _frame_of_rows(trades, [work(whole, _one_window(wanted._replace(frame=whole), others))])
    return _frame_of_rows(trades, starmap(work, _whole_windows(cuts, wanted, others)))


class Cuts(NamedTuple):
    """Where windows start, but for the first, and how much time around them they look at, in ms."""

    edges: np.ndarray
    before: int
    after: int
    next_by: Sequence[str] = ()

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
    trades: Any, caller: str, columns: Sequence[str], optional: Sequence[str], around: Around
) -> tuple[Columns, Columns | None]:
    """Return the columns of trades, and of prices if these are others."""
    if around.prices is None:
        return Columns(trades, caller, [*columns, *around.price_columns], optional), None
    check_prices(around.prices, caller)
    prices = Columns(around.prices, caller, around.price_columns, optional)
    return Columns(trades, caller, columns, optional), prices


def _one_window(wanted: Columns, prices: Columns | None, spans: bool = False) -> Window:
    rows = wanted.table()
    rows = _with_span(rows) if spans else rows
    known = rows if prices is None else prices.table()
    everything = np.ones(len(rows), bool)
    return Window(rows, everything, known, everything)


def _cut(wanted: Columns, prices: Columns | None, around: Around) -> Cuts | None:
    """Choose windows that fit into memory with the time around them; None if there is one only."""
    before, after = around.before, around.after
    if before is None or after is None or convert.is_in_memory(wanted.frame):
        return None
    most = limits.rows_at_once(ROW_BYTES)
    step = max(1, min(SAMPLED, most // SAMPLED))
    sampled, total = [], 0
    for columns in (wanted, prices):
        if columns is None:
            continue
        times = Columns(columns.frame, columns.caller, ["created_at"])
        for sample in times.batches(partial(_sampled, step=step)):
            *moments, count = sample["moment"].to_numpy()
            sampled.append(np.array(moments, np.int64))
            total += int(count)
    if total <= most:
        return None
    if engine_of(wanted.frame) == "dask":
        most = min(most, -(-total // (WINDOWS_OF_A_THREAD * max(1, workers.threads()))))
    edges = _edges(np.sort(np.concatenate(sampled)), most // step, before, after)
    return Cuts(np.array(edges, np.int64), before, after, around.next_by) if edges else None


def _sampled(rows: pa.Table, step: int) -> pa.Table:
    """Return one of so many known moments, and last how many rows there are."""
    moments = np.sort(moments_of(rows))
    return pa.table({"moment": np.append(moments[moments != NAT][::step], len(moments))})


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


def _windows(cuts: Cuts, wanted: Columns, prices: Columns | None, placed_by: str | None) -> Iterator[Window]:
    """Yield windows of rows; with the column that places them, rows have their order's span."""
    following = FirstPrices(cuts)
    known = None if prices is None else _spooled(cuts, following.noted(prices.batches()))
    orders: _Orders | None = None
    if placed_by is None:
        batches = wanted.batches()
        spool = _spooled(cuts, following.noted(batches) if prices is None else batches)
    else:
        seen = Buckets()
        spool = _spooled(cuts, _noted(cuts, wanted.batches(), seen))
        parts = (spool.read([slot]) for slot in range(len(cuts.slots) + 2))
        orders = _Orders(cuts, placed_by, map(_repeated, seen), parts)
        del seen

    def at(window: int) -> Window:
        looked_at = cuts.looked_at(window)
        near, others = spool.read(looked_at), None if known is None else known.read(looked_at)
        if others is None:
            near = following.added(near, looked_at.stop)
        else:
            others = following.added(others, looked_at.stop)
        return _window(cuts, near, others, orders, window)

    yield from map(at, range(len(cuts.edges) + 1))  # none is held while the next one is read


def _window(
    cuts: Cuts, near: pa.Table, known: pa.Table | None, orders: _Orders | None, window: int
) -> Window:
    """Return a window of the rows that it looks at."""
    inside, count = None, len(near)
    if orders:
        near, inside, count = orders.span(near, window)
    here = cuts.window_of(moments_of(near)) == window
    others = near.slice(0, count) if known is None else known
    return Window(near, here if inside is None else inside, others, here)


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


def _with_columns(trades: Any, rows: Any, found: Mapping[str, pa.Array]) -> Any:
    """Add columns to rows of trades as they stand, in types that their engine can read."""
    if engine_of(trades) == "pyarrow" or not isinstance(rows, pa.Table):
        return convert.with_columns(rows, dict(found))
    added = portable(pa.table(dict(found)))
    return convert.with_columns(rows, dict(zip(added.column_names, added.columns, strict=True)))


def _frame_of_rows(trades: Any, parts: Iterable[pa.Table]) -> Any:
    """Put parts of trades with columns added together as a frame of the same engine."""
    if engine_of(trades) in FILED:
        return frame_of_files(trades, parts)
    return convert.to_native(trades, result_table(pa.concat_tables(parts, promote_options="permissive")))


class FirstPrices:
    """The first known prices of each slot, by some columns: those after a window are among later slots'."""

    def __init__(self, cuts: Cuts) -> None:
        self._keys, self._slot_of, self._found = cuts.next_by, cuts.slot_of, list[pa.Table]()

    def noted(self, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Note the first prices of batches, and pass these on."""
        for batch in batches:
            self.note(batch)
            yield batch

    def note(self, rows: pa.Table) -> None:
        """Note the first prices of rows; those without prices have none."""
        if self._keys and {*self._keys, "price"} <= {*rows.column_names}:
            firsts = self._firsts(together([*self._found, self._firsts(rows, by_slot=True)]), by_slot=True)
            self._found = [firsts]

    def added(self, rows: pa.Table, slot: int) -> pa.Table:
        """Add to rows the first prices from a slot on."""
        later = [one.filter(pa.array(self._slot_of(moments_of(one)) >= slot)) for one in self._found]
        return together([rows, *(self._firsts(one, by_slot=False) for one in later)]) if later else rows

    def _firsts(self, rows: pa.Table, *, by_slot: bool) -> pa.Table:
        """Take the known prices of the first moment in each group, all of several at once."""
        known = pc.greater(rows["price"], pa.scalar(0, rows["price"].type))
        rows = rows.filter(pc.and_(known, rows["moment"].is_valid()))
        groups, moments = row_groups(rows, self._keys)[0], moments_of(rows)
        if by_slot:
            slots = self._slot_of(moments)
            groups = np.unique(groups * (slots.max(initial=0) + 1) + slots, return_inverse=True)[1]
        first = np.full(groups.max(initial=-1) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, groups, moments)
        return rows.filter(pa.array(moments == first[groups]))


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

    def __init__(
        self, cuts: Cuts, placed_by: str, hashes: Iterable[np.ndarray], parts: Iterable[pa.Table]
    ) -> None:
        self._cuts, self._hashes = cuts, _joined(hashes)
        several = (_of_orders(rows, self._hashes) for rows in parts)
        self._rows = _with_span(pa.concat_tables(several, promote_options="permissive"))
        self._windows = cuts.window_of(self._rows[placed_by].to_numpy())
        self._slots = cuts.slot_of(moments_of(self._rows))

    def span(self, near: pa.Table, window: int) -> tuple[pa.Table, np.ndarray, int]:
        """Return rows with spans, those inside the window, and how many lie in the time around it."""
        alone = _of_orders(near, self._hashes, others=True)
        inside = self._cuts.window_of(moments_of(alone)) == window
        looked_at = self._cuts.looked_at(window)
        close = (self._slots >= looked_at.start) & (self._slots < looked_at.stop)
        moved = np.flatnonzero(~close & (self._windows == window))
        places = np.append(np.flatnonzero(close), moved)
        rows = pa.concat_tables([_with_span(alone), self._rows.take(pa.array(places))])
        inside = np.append(inside, self._windows[places] == window)
        return rows.drop_columns(HASH), inside, len(rows) - len(moved)


def _joined(hashes: Iterable[np.ndarray]) -> np.ndarray:
    return distinct(np.concatenate([np.empty(0, np.uint64), *hashes]))


def _of_orders(rows: pa.Table, hashes: np.ndarray, *, others: bool = False) -> pa.Table:
    """Return the rows of the orders of these hashes, or of all others."""
    return rows.filter(pa.array(is_among(rows[HASH].to_numpy(), hashes) != others))


def _noted(cuts: Cuts, batches: Iterable[pa.Table], seen: Buckets) -> Iterator[pa.Table]:
    """Note in which windows orders have fills, and pass batches on with the hashes of their orders."""
    for batch in batches:
        rows, orders = _with_hash(cuts, batch)
        seen.add(orders["hash"] >> np.uint64(56), orders)
        yield rows


def _with_hash(cuts: Cuts, batch: pa.Table) -> tuple[pa.Table, Arrays]:
    """Add the hashes of orders to rows, and return the known ones with the windows of the rows."""
    names, moments = order_names(batch), moments_of(batch)
    known = np.asarray(names.is_valid())
    hashes = np.where(known, numbers_of_texts(names), np.uint64(0))
    windows = np.where(moments == NAT, -1, cuts.window_of(moments))
    seen = {"hash": hashes[known], "window": windows[known].astype(np.int32)}
    return batch.append_column(HASH, pa.array(hashes)), seen


def _repeated(*seen: Arrays) -> np.ndarray:
    """Return the hashes that were seen in several windows."""
    hashes, windows = (np.concatenate([part[name] for part in seen]) for name in ("hash", "window"))
    order = np.lexsort((windows, hashes))
    hashes, windows = hashes[order], windows[order]
    return distinct(hashes[1:][(np.diff(hashes) == 0) & (np.diff(windows) != 0)])


def _on_cluster(
    client: Any,
    cuts: Cuts,
    wanted: Columns,
    prices: Columns | None,
    placed_by: str | None,
    work: Callable[[Window], pa.Table],
) -> Iterator[pa.Table]:
    """Yield what `work` makes of windows on the workers of a cluster, which hold their rows meanwhile."""
    (sent,) = client.scatter([work], hash=False)
    near, seen = _exchanged(client, cuts, wanted, spans=placed_by is not None)
    known = [None] * len(near) if prices is None else _exchanged(client, cuts, prices, spans=False)[0]
    orders = None
    if placed_by:
        hashes = [workers.later(_repeated)(*parts) for parts in seen]
        own = [workers.later(_own_of_several)(cuts, part, n, hashes) for n, part in enumerate(near)]
        orders = workers.later(_orders)(cuts, placed_by, hashes, own)
    both = enumerate(zip(near, known, strict=True))
    answers = [workers.later(_answer)(cuts, part, others, orders, n, sent) for n, (part, others) in both]
    return map(workers.unpack, workers.in_turn(client, answers))


def _exchanged(
    client: Any, cuts: Cuts, columns: Columns, *, spans: bool
) -> tuple[list[Any], list[list[Any]]]:
    """Return, delayed, the rows that each window looks at, and what is seen of orders by shares of them."""
    count = len(cuts.edges) + 1
    shares = -(-count // BATCHES) if spans else 0
    split = partial(_split, names=columns.present(), caller=columns.caller, cuts=cuts, shares=shares)
    frames = columns.partitions(client)
    pieces = workers.exchanged(frames, 2 * max(count, workers.threads()), split, count + shares)
    return [workers.later(workers.joined)(part) for part in pieces[:count]], pieces[count:]


def _split(frames: Sequence[Any], names: Sequence[str], caller: str, cuts: Cuts, shares: int) -> list[Any]:
    """Split partitions into the rows that each window looks at, and what is seen of orders by shares."""
    tables = [workers.unpack(frame) if isinstance(frame, bytes) else frame for frame in frames]
    parts = [convert.to_table(table, caller, names) for table in tables]
    rows, seen = pa.concat_tables(parts, promote_options="permissive"), list[Arrays]()
    if shares:
        rows, orders = _with_hash(cuts, rows)
        share = (orders["hash"] >> np.uint64(32)) % np.uint64(shares)
        seen = [{name: column[share == one] for name, column in orders.items()} for one in range(shares)]
    slots = cuts.slot_of(moments_of(rows))
    order = np.argsort(slots, kind="stable")
    rows, slots = rows.take(pa.array(order)), slots[order]
    pieces, following = [], FirstPrices(cuts)
    following.note(rows)
    for window in range(len(cuts.edges) + 1):
        looked_at = cuts.looked_at(window)
        start, end = np.searchsorted(slots, [looked_at.start, looked_at.stop]).tolist()
        pieces.append(workers.pack(following.added(rows.slice(start, end - start), looked_at.stop)))
    return [*pieces, *seen]


def _own_of_several(cuts: Cuts, near: bytes, window: int, hashes: Sequence[np.ndarray]) -> bytes:
    """Return the rows of a window whose orders have fills in several."""
    rows = workers.unpack(near)
    rows = rows.filter(pa.array(cuts.window_of(moments_of(rows)) == window))
    return workers.pack(_of_orders(rows, _joined(hashes)))


def _orders(cuts: Cuts, placed_by: str, hashes: Sequence[np.ndarray], rows: Sequence[bytes]) -> _Orders:
    return _Orders(cuts, placed_by, hashes, map(workers.unpack, rows))


def _answer(
    cuts: Cuts,
    near: bytes,
    known: bytes | None,
    orders: _Orders | None,
    window: int,
    work: Callable[[Window], pa.Table],
) -> bytes:
    """Apply work to a window in a worker."""
    others = None if known is None else workers.unpack(known)
    return workers.pack(work(_window(cuts, workers.unpack(near), others, orders, window)))
