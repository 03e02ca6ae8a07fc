"""Where windows of time are cut, what each looks at, and the orders that have fills in several of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import convert, limits, workers
from loopring_lab.engines.adapters import engine_of
from loopring_lab.engines.arrays import NAT, distinct, is_among, numbers_of_texts
from loopring_lab.engines.asof import check_prices, moments_of, order_names, order_span
from loopring_lab.engines.pairs import row_groups
from loopring_lab.engines.spill import Buckets, together
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
HASH = "hash of the order"


class Window(NamedTuple):
    """Rows of a window and of the time around it, and prices of the same time.

    `inside` masks the rows to answer for, `here` those whose own moment lies in the window, `own_prices` the
    prices for which it does. Each row of the frame is `inside` one window and `here` in one, those of unknown
    time in the first.
    """

    rows: pa.Table
    inside: np.ndarray
    prices: pa.Table
    here: np.ndarray
    own_prices: np.ndarray

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


def wanted_of(
    trades: Any, caller: str, columns: Sequence[str], optional: Sequence[str], around: Around
) -> tuple[Columns, Columns | None]:
    """Return the columns of trades, and of prices if these are others."""
    if around.prices is None:
        return Columns(trades, caller, [*columns, *around.price_columns], optional), None
    check_prices(around.prices, caller)
    prices = Columns(around.prices, caller, around.price_columns, optional)
    return Columns(trades, caller, columns, optional), prices


def cut(wanted: Columns, prices: Columns | None, around: Around) -> Cuts | None:
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


def window_of(
    cuts: Cuts, near: pa.Table, known: pa.Table | None, orders: Orders | None, window: int
) -> Window:
    """Return a window of the rows that it looks at."""
    inside, count = None, len(near)
    if orders:
        near, inside, count = orders.span(near, window)
    here = cuts.window_of(moments_of(near)) == window
    others = near.slice(0, count) if known is None else known
    own_prices = cuts.window_of(moments_of(others)) == window
    return Window(near, here if inside is None else inside, others, here, own_prices)


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


class Orders:
    """The span of every order: rows of orders with fills in several windows are looked at together.

    Which orders these are is decided by hashes; others that share one are looked at with them.
    """

    def __init__(
        self, cuts: Cuts, placed_by: str, hashes: Iterable[np.ndarray], parts: Iterable[pa.Table]
    ) -> None:
        self._cuts, self._hashes = cuts, joined(hashes)
        several = (of_orders(rows, self._hashes) for rows in parts)
        self._rows = with_span(pa.concat_tables(several, promote_options="permissive"))
        self._windows = cuts.window_of(self._rows[placed_by].to_numpy())
        self._slots = cuts.slot_of(moments_of(self._rows))

    def span(self, near: pa.Table, window: int) -> tuple[pa.Table, np.ndarray, int]:
        """Return rows with spans, those inside the window, and how many lie in the time around it."""
        alone = of_orders(near, self._hashes, others=True)
        inside = self._cuts.window_of(moments_of(alone)) == window
        looked_at = self._cuts.looked_at(window)
        close = (self._slots >= looked_at.start) & (self._slots < looked_at.stop)
        moved = np.flatnonzero(~close & (self._windows == window))
        places = np.append(np.flatnonzero(close), moved)
        rows = pa.concat_tables([with_span(alone), self._rows.take(pa.array(places))])
        inside = np.append(inside, self._windows[places] == window)
        return rows.drop_columns(HASH), inside, len(rows) - len(moved)


def noted(cuts: Cuts, batches: Iterable[pa.Table], seen: Buckets) -> Iterator[pa.Table]:
    """Note in which windows orders have fills, and pass batches on with the hashes of their orders."""
    for batch in batches:
        rows, orders = with_hash(cuts, batch)
        seen.add(orders["hash"] >> np.uint64(56), orders)
        yield rows


def with_hash(cuts: Cuts, batch: pa.Table) -> tuple[pa.Table, Arrays]:
    """Add the hashes of orders to rows, and return the known ones with the windows of the rows."""
    names, moments = order_names(batch), moments_of(batch)
    known = np.asarray(names.is_valid())
    hashes = np.where(known, numbers_of_texts(names), np.uint64(0))
    windows = np.where(moments == NAT, -1, cuts.window_of(moments))
    seen = {"hash": hashes[known], "window": windows[known].astype(np.int32)}
    return batch.append_column(HASH, pa.array(hashes)), seen


def repeated(*seen: Arrays) -> np.ndarray:
    """Return the hashes that were seen in several windows."""
    hashes, windows = (np.concatenate([part[name] for part in seen]) for name in ("hash", "window"))
    order = np.lexsort((windows, hashes))
    hashes, windows = hashes[order], windows[order]
    return distinct(hashes[1:][(np.diff(hashes) == 0) & (np.diff(windows) != 0)])


def of_orders(rows: pa.Table, hashes: np.ndarray, *, others: bool = False) -> pa.Table:
    """Return the rows of the orders of these hashes, or of all others."""
    return rows.filter(pa.array(is_among(rows[HASH].to_numpy(), hashes) != others))


def joined(hashes: Iterable[np.ndarray]) -> np.ndarray:
    return distinct(np.concatenate([np.empty(0, np.uint64), *hashes]))


def with_span(rows: pa.Table) -> pa.Table:
    first, last = order_span(rows)
    return rows.append_column("first", pa.array(first)).append_column("last", pa.array(last))
