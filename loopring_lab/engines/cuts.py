"""Where windows of time are cut, what each looks at, and the orders that have fills in several of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import cores
from loopring_lab.engines import convert, limits, workers
from loopring_lab.engines.adapters import engine_of
from loopring_lab.engines.arrays import (
    NAT,
    SIDES_OF_EQUALS,
    distinct,
    expand,
    first_of,
    is_among,
    mixed,
    sorted_by,
)
from loopring_lab.engines.asof import PriceHistory, check_prices
from loopring_lab.engines.orders import (
    ORDER,
    ORDER_ID,
    ORDER_NUMBER,
    SPAN,
    Span,
    has_span,
    moments_of,
    numbered_orders,
    order_ids,
    order_span,
)
from loopring_lab.engines.pairs import row_groups
from loopring_lab.engines.spill import Buckets
from loopring_lab.engines.spill import Columns as Arrays

ROW_BYTES = 512  # its columns, and the numbers that lookups make of them
BATCHES = 4
"""Rows are put on disk in batches of a window's size divided by this."""
SAMPLED = 256
"""One in this many rows of a batch says how moments are spread over time."""
WINDOWS_OF_A_THREAD = 2
"""Windows of Dask, at least, so that workers are done at about the same time."""
LEAST_OWN = 4
"""A window has at least one row of its own for so many after it."""
LEAST_LAST = 16
"""The last window has more than this part of a window's rows, or the one before has them."""


class Window(NamedTuple):
    """Rows of a window and others that it looks at, and prices of the same time.

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
        places = np.flatnonzero(self.inside)
        if len(places) == len(self.inside):
            return rows
        is_run = len(places) > 0 and places[-1] - places[0] + 1 == len(places)
        return rows.slice(places[0], len(places)) if is_run else rows.filter(pa.array(self.inside))

    def with_prices(
        self,
        caller: str,
        keys: Sequence[str] = ("market",),
        near: Callable[[pa.Table], Sequence[Span]] | None = None,
    ) -> tuple[pa.Table, PriceHistory]:
        """Return the rows and the prices, of others than the rows only those `near` them.

        Rows have the spans of their orders, but for those with other prices and not `near` any.
        """
        if self.prices is not self.rows:
            rows = with_span(self.rows) if near else self.rows
            return rows, PriceHistory(self.prices, caller, keys, near(rows) if near else ())
        rows, history = cores.share(
            partial(with_span, self.rows, numbered=True), partial(PriceHistory, self.prices, caller, keys)
        )
        return rows, history

    def of(self, some: np.ndarray) -> Window:
        """Return the window with some of its rows only, and all prices."""
        return self._replace(
            rows=self.rows.filter(pa.array(some)), inside=self.inside[some], here=self.here[some]
        )


class Around(NamedTuple):
    """What windows look at: prices, which are the trades themselves by default, and where.

    Those up to `after` ms later; None for all, in one window. With the `keys` of lookups also the last ones
    before the window, whenever these were, and if `ahead` the first ones after it, as `at_edges` finds them.
    """

    prices: Any = None
    price_columns: Sequence[str] = ()
    keys: Sequence[str] = ()
    after: int | None = 0
    ahead: bool = False


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
    """Where windows start, but for the first, how much later time they look at (ms), and what else.

    `middles` are the moments of the middle rows of each batch, first of trades, then of other prices.
    """

    edges: np.ndarray
    after: int = 0
    keys: Sequence[str] = ()
    ahead: bool = False
    middles: Sequence[Sequence[int]] = ()

    @property
    def slots(self) -> np.ndarray:
        """Where windows, and the time after them, start and end: rows are put on disk between these."""
        return distinct(np.append(self.edges, self.edges + self.after))

    @property
    def signs(self) -> Sequence[int]:
        """Which edges of windows are looked at: by later windows (1), and by earlier ones (-1)."""
        return (1, -1) if self.ahead else (1,)

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
            start = int(self.slot_of(self.edges[window - 1]))
        if window < len(self.edges):
            end = int(self.slot_of(self.edges[window] + self.after))
        return range(start, end)

    def near(self, slots: np.ndarray, window: int) -> slice:
        """Return where the rows that a window looks at stand in the order of slots."""
        looked_at = self.looked_at(window)
        return slice(*np.searchsorted(slots, [looked_at.start, looked_at.stop]).tolist())


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
    """Choose windows that fit into memory with the time after them; None if there is one only."""
    if around.after is None or convert.is_in_memory(wanted.frame):
        return None
    most = limits.rows_at_once(ROW_BYTES)
    step = max(1, min(SAMPLED, most // SAMPLED))
    sampled, total, middles = [], 0, list[list[int]]()
    for columns in (wanted, prices):
        if columns is None:
            continue
        middles.append([])
        times = Columns(columns.frame, columns.caller, ["created_at"])
        for sample in times.batches(partial(_sampled, step=step)):
            *moments, count = sample["moment"].to_numpy()
            sampled.append(np.array(moments, np.int64))
            middles[-1].append(int(moments[len(moments) // 2]) if moments else NAT)
            total += int(count)
    if total <= most:
        return None
    if engine_of(wanted.frame) == "dask":
        threads = workers.threads()
        most = -(-total // (threads * max(WINDOWS_OF_A_THREAD, -(-total // (most * threads)))))
    edges = _edges(np.sort(np.concatenate(sampled)), most // step, around.after)
    found = Cuts(np.array(edges, np.int64), around.after, around.keys, around.ahead, middles)
    return found if edges else None


def _sampled(rows: pa.Table, step: int) -> pa.Table:
    """Return one of so many known moments, and last how many rows there are."""
    moments = np.sort(moments_of(rows))
    return pa.table({"moment": np.append(moments[moments != NAT][::step], len(moments))})


def _edges(spread: np.ndarray, most: int, after: int) -> list[int]:
    """Choose edges with at most so many moments between two and in the time after them, if possible."""
    edges, start = list[int](), 0
    while start + most + most // LEAST_LAST < len(spread):
        low = int(spread[start])
        stop = max(
            np.searchsorted(spread, spread[start + most] - after),
            np.searchsorted(spread, low, "right"),
            start + (np.searchsorted(spread, low + after) - start) // LEAST_OWN,
        )
        if stop >= len(spread):
            break
        edges.append(int(spread[stop]))
        start = int(np.searchsorted(spread, edges[-1]))
    return edges


def window_of(
    cuts: Cuts, near: pa.Table, tables: Sequence[pa.Table], orders: Orders | None, window: int
) -> Window:
    """Return a window of the rows that it looks at; the second table, if there is one, is of prices."""
    inside, count = None, len(near)
    if orders:
        near, inside, count = orders.span(near, window)
    here = cuts.window_of(moments_of(near)) == window
    others = near.slice(0, count) if len(tables) == 1 else tables[1]
    own_prices = cuts.window_of(moments_of(others)) == window
    return Window(near, here if inside is None else inside, others, here, own_prices)


def at_edges(
    cuts: Cuts, tables: Sequence[pa.Table], near: pa.Table, window: int, signs: Sequence[int]
) -> list[list[pa.Table]]:
    """Take what later windows (1) and earlier ones (-1) look at: by key, moments until no order is at all.

    Own prices are of moments at which an order has a row or a price: one of the others is there for each.
    """
    if not cuts.keys:
        return [[rows.slice(0, 0) for rows in tables] for _ in signs]
    normalized = [near, *tables[1:]]
    prices, moments = normalized[-1], [moments_of(rows) for rows in normalized]
    known = np.asarray(pc.greater(prices["price"], pa.scalar(0, prices["price"].type)).fill_null(False))
    known &= moments[-1] != NAT
    groups, times = row_groups(prices.select([*cuts.keys]), cuts.keys)[0][known], moments[-1][known]
    order = sorted_by(groups, times)
    groups, times = groups[order], times[order]
    spots = first_of(groups, times)
    groups, times = groups[spots], times[spots]
    orders, filled = np.concatenate([*map(order_ids, normalized)]), np.concatenate(moments)
    known = (orders != 0) & (filled != NAT)
    orders, filled, found = orders[known], filled[known], list[list[pa.Table]]()
    for sign in signs:
        some = np.flatnonzero(sign * cuts.window_of(times) <= sign * window)[::sign]
        kept = _until_none_is_left(groups[some], sign * times[some], orders, sign * filled)
        kept, taken = distinct(sign * kept), zip(tables, moments, strict=True)
        found.append([rows.filter(pa.array(is_among(mine, kept))) for rows, mine in taken])
    return found


def _until_none_is_left(
    groups: np.ndarray, times: np.ndarray, orders: np.ndarray, filled: np.ndarray
) -> np.ndarray:
    """Return the last of rising times in each group, and those before until no order was filled at all."""
    first = first_of(groups)
    place = np.append(first[1:], len(groups))[: len(first)] - 1
    kept = [times[place]]
    now = np.flatnonzero(is_among(filled, distinct(times[place])))
    now = now[np.argsort(filled[now])]
    group, at = expand(*(np.searchsorted(filled[now], times[place], side) for side in SIDES_OF_EQUALS))
    left, place, first = orders[now[at]], place[group], first[group]
    some = is_among(orders, distinct(left))
    fills = distinct(_marked(orders[some], filled[some]))
    while len(left):
        more = place > first
        left, place, first = left[more], place[more] - 1, first[more]
        kept.append(times[place])
        more = is_among(_marked(left, times[place]), fills)
        left, place, first = left[more], place[more], first[more]
    return np.concatenate(kept)


def _marked(orders: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Number pairs of order and time; few others share one, and are gone past like it."""
    return np.asarray(mixed(orders + mixed(times.view(np.uint64))))


class Orders:
    """The span of every order: rows of orders with fills in several windows are looked at together.

    Which orders these are is decided by hashes; others that share one are looked at with them.
    """

    def __init__(
        self, cuts: Cuts, placed_by: str, hashes: Iterable[np.ndarray], parts: Iterable[pa.Table]
    ) -> None:
        self._cuts, hashes = cuts, joined(hashes)
        several = (of_orders(rows, hashes) for rows in parts)
        self._rows = with_span(pa.concat_tables(several, promote_options="permissive").combine_chunks())
        self._windows = cuts.window_of(self._rows[placed_by].to_numpy())
        order, others = np.argsort(self._windows, kind="stable"), np.arange(1, len(cuts.edges) + 1)
        self._of_window = np.split(order, np.searchsorted(self._windows, others, sorter=order))
        self._moments = moments_of(self._rows)
        self._ids, self._places = np.unique(order_ids(self._rows), return_index=True)

    def span(self, near: pa.Table, window: int) -> tuple[pa.Table, np.ndarray, int]:
        """Return rows with spans, those inside the window, and how many of them are `near`."""
        moments, ids, span = moments_of(near), order_ids(near), order_span(near)
        mine = self._of_window[window]
        close = moments[is_among(moments, distinct(self._moments[mine]))]  # all of a moment are near, or none
        moved = mine[~is_among(self._moments[mine], distinct(close))]
        inside = self._cuts.window_of(moments) == window
        several = np.flatnonzero(is_among(ids, self._ids))
        places = self._places[np.searchsorted(self._ids, ids[several])]
        inside[several] = self._windows[places] == window
        rows = near
        for name, ends in zip(SPAN, span, strict=True):
            ends[several] = self._rows[name].to_numpy()[places]
            rows = rows.append_column(name, pa.array(ends))
        rows = pa.concat_tables([rows, self._rows.take(pa.array(moved))]).combine_chunks()
        return rows, np.append(inside, np.ones(len(moved), bool)), len(near)


def noted(cuts: Cuts, batches: Iterable[pa.Table], seen: Buckets) -> Iterator[pa.Table]:
    """Note in which windows orders have fills, and pass batches on with the hashes of their orders."""
    for rows in map(compact, batches):
        orders = orders_in(cuts, rows)
        seen.add(orders["hash"] >> np.uint64(56), orders)
        yield rows


def orders_in(cuts: Cuts, rows: pa.Table) -> Arrays:
    """Return the ids of known orders of rows, and the windows that these lie in."""
    ids, moments = order_ids(rows), moments_of(rows)
    known = ids != 0
    windows = np.where(moments == NAT, -1, cuts.window_of(moments))
    return {"hash": ids[known], "window": windows[known].astype(np.int32)}


def repeated(*seen: Arrays) -> np.ndarray:
    """Return the hashes that were seen in several windows."""
    hashes, windows = (np.concatenate([part[name] for part in seen]) for name in ("hash", "window"))
    order = sorted_by(windows)
    each = np.split(hashes[order], first_of(windows[order])[1:])
    hashes = np.sort(np.concatenate([*map(distinct, each)]))
    return distinct(hashes[1:][hashes[1:] == hashes[:-1]])


def of_orders(rows: pa.Table, hashes: np.ndarray) -> pa.Table:
    """Return the rows of the orders of these hashes."""
    return rows.filter(pa.array(is_among(rows[ORDER_ID].to_numpy(), hashes)))


def joined(hashes: Iterable[np.ndarray]) -> np.ndarray:
    return distinct(np.concatenate([np.empty(0, np.uint64), *hashes]))


def compact(rows: pa.Table) -> pa.Table:
    """Return rows with the ids of orders, and codes in place of texts of which there are few."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) and field.name not in ORDER:
            rows = rows.set_column(place, field.name, rows[field.name].dictionary_encode())
    return with_ids(rows)


def with_ids(rows: pa.Table) -> pa.Table:
    there = ORDER_ID in rows.column_names
    return rows if there else rows.append_column(ORDER_ID, pa.array(order_ids(rows)))


def with_span(rows: pa.Table, *, numbered: bool = False) -> pa.Table:
    if has_span(rows):
        return rows
    rows = with_ids(rows)
    if numbered:
        rows = rows.append_column(ORDER_NUMBER, pa.array(numbered_orders(rows)[0]))
    first, last = order_span(rows)
    return rows.append_column("first", pa.array(first)).append_column("last", pa.array(last))
