"""As-of lookups: the last known price before a moment, or the first after it, never a fill's own."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import Limbs
from loopring_lab.amounts.scaling import UNIT, combined
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import TIMESTAMP
from loopring_lab.engines.aggregate import ranks
from loopring_lab.engines.arrays import (
    CHUNK,
    LARGE,
    NAT,
    Scale,
    distinct,
    encoded,
    expand,
    first_of,
    ids_of,
    integers,
    is_ascending,
    places_among,
    search,
    sorted_by,
)
from loopring_lab.engines.orders import (
    LAST,
    ORDER,
    ORDER_ID,
    Span,
    column_of,
    first_and_last,
    has_span,
    moments_of,
    numbered_orders,
    order_span,
)
from loopring_lab.errors import LabError

TIE_BREAKERS = ("block_id", "index_in_block", "trade_id", "side", "order_hash", "price")
"""What orders rows of one moment; unknown ones last, and block 0 counts as unknown."""
OWN_BY = ("trade_id", *ORDER)
"""What tells that a price is of a row's own fill or order."""
PLACE = ("block_id", "index_in_block")
NOTHING = np.empty(0, np.int64)
FIRST = 4
"""Own prices beside a row that are looked at one by one."""
TICK = 10**8
"""Most prices have fewer decimals than the columns they stand in, which hold multiples of this."""
FEW_TIMES, TIME_BITS = 4, 18
"""Prices are chosen by time where they outnumber rows so many times, in parts of the time so many at most."""


class PriceHistory:
    """The known prices of a frame by market, or other keys, in the order of `in_order`.

    `times` (ms) are in that order; lookups return positions in it. Prices at times that are not `near`, spans
    of time (first and last ms) which hold all that lookups count, may be left out.
    """

    def __init__(
        self, frame: Any, caller: str, keys: Sequence[str] = ("market",), near: Sequence[Span] = ()
    ) -> None:
        check_prices(frame, caller)
        table = convert.to_table(
            frame, caller, ["created_at", *keys, "price"], (*TIE_BREAKERS, *ORDER, ORDER_ID)
        )
        table = _between(table, *map(np.concatenate, zip(*near, strict=True))) if near else table
        self.table, self.keys = table, keys
        self.has_spans = convert.is_normalized(frame) and has_span(frame)
        self._prices: pa.Array = combined(table["price"])
        known = pc.fill_null(pc.greater(self._prices, pa.scalar(0, table["price"].type)), False)
        for name in ("moment", *keys):
            known = pc.and_(known, table[name].is_valid()) if table[name].null_count else known
        rows, self.unpriced = np.flatnonzero(known), np.flatnonzero(pc.invert(known))
        self._keys = {name: encoded(table[name]) for name in keys}
        self._labels = {name: _labels(texts, rows) for name, texts in self._keys.items()}
        times = moments_of(table)[rows]
        self._scale = Scale(times, self.code_count)
        self._codes = self._numbered(table)
        codes = self._codes[rows]
        spots = self._spots(codes, times)
        if (spots[1:] <= spots[:-1]).any():
            order = sorted_by(codes, times)
            times, spots, rows = times[order], spots[order], rows[order]
            rows = _settle_ties(table, rows, spots[1:] != spots[:-1])
        self.rows, self._times, self._at = rows, np.append(times, NAT), spots
        self.times = self._times[:-1]
        self._borders = np.searchsorted(spots, np.arange(self.code_count + 1) * self._scale.width)

    def __len__(self) -> int:
        return len(self.times)

    @cached_property
    def amounts(self) -> Limbs:
        """The prices in order, exact and above zero."""
        return Limbs.of(self._prices)[self.rows]

    @cached_property
    def ratios(self) -> tuple[Limbs, Limbs]:
        """Numerators and denominators of the prices in order, then of their reciprocals; most are small."""
        prices = self.amounts
        ticks = prices.over(TICK)
        is_whole = (ticks.high == 0) & (ticks.low * np.uint64(TICK) == prices.low)
        ticks = Limbs.where(is_whole, ticks, prices)
        ones = Limbs.small(np.where(is_whole, UNIT // TICK, UNIT))
        return ticks.then(ones), ones.then(ticks)

    @cached_property
    def runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The codes of the keys that have a price, in order, and where the prices of each start and end."""
        codes = np.flatnonzero(np.diff(self._borders))
        return codes, self._borders[codes], self._borders[codes + 1]

    def combinations(self) -> list[tuple[str, ...]]:
        """Return the combinations of keys that have a price, in the order of `runs`."""
        codes, parts = self.runs[0], []
        for labels in reversed(self._labels.values()):
            codes, places = np.divmod(codes, len(labels))
            parts.append(labels.take(pa.array(places)).to_pylist())
        return [*zip(*reversed(parts), strict=True)]

    @property
    def code_count(self) -> int:
        """The number of codes that keys may have."""
        return math.prod(map(len, self._labels.values()))

    def lookup(self, rows: pa.Table) -> Lookup:
        """Prepare lookups for rows that have the keys as columns.

        With ``moment`` and ``trade_id``, or the columns of `ORDER`, their own fills and orders are skipped.
        """
        return Lookup(self, rows)

    def take(self, positions: np.ndarray) -> pa.Array:
        """Return the prices at positions; null where a position is -1."""
        rows = np.append(self.rows, -1)[positions]
        return self._prices.take(pa.array(rows, mask=rows < 0))

    def times_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the times of positions in ms; `NAT` where a position is -1 or past the end."""
        return np.asarray(self._times[positions])

    def take_times(self, positions: np.ndarray) -> pa.Array:
        """Return the times of positions as a column; null where a position is -1."""
        return pa.array(self.times_at(positions), TIMESTAMP, mask=positions < 0)

    def codes(self, rows: pa.Table) -> np.ndarray:
        """Number the keys of rows; -1 where this history has no price for them."""
        is_known = all(rows[name].equals(self.table[name]) for name in self.keys)
        return self._codes if is_known else self._numbered(rows)

    def _numbered(self, rows: pa.Table) -> np.ndarray:
        codes, unknown = np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
        for name, labels in self._labels.items():
            places = places_among(self._keys[name] if rows is self.table else encoded(rows[name]), labels)
            codes *= len(labels)
            codes += places
            unknown |= places < 0
        codes[unknown] = -1
        return codes

    def has(self, codes: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return a mask of the positions whose key has the code given for each; no key has -1."""
        starts, stops = np.append(self._borders[:-1], 0), np.append(self._borders[1:], 0)
        return np.asarray((positions >= starts[codes]) & (positions < stops[codes]))

    def first_later(self, codes: np.ndarray, moments: np.ndarray, *, at_moment: bool) -> np.ndarray:
        """Return the first position of a key after each moment, or already `at_moment`."""
        return search(self._at, self._spots(codes, moments), "left" if at_moment else "right")

    def up_to(self, positions: np.ndarray, rows: Placed) -> np.ndarray:
        """Return the last positions up to some that are not of a later place of a row's moment in blocks."""
        at = np.flatnonzero((self.times_at(positions) == rows.moments) & (rows.moments != NAT))
        found = positions.copy()
        if len(at):
            found[at] = self._places.up_to(positions[at], rows.blocks[at], rows.indices[at])
        return found

    @cached_property
    def starts(self) -> np.ndarray:
        """The first position of the same key and moment, for every position."""
        is_first = np.append(True, self._at[1:] != self._at[:-1])[: len(self)]
        return np.asarray(np.maximum.accumulate(np.where(is_first, np.arange(len(self)), 0)))

    @cached_property
    def ends(self) -> np.ndarray:
        """The position after the last one of the same key and moment, for every position."""
        lasts = np.append(np.flatnonzero(self._at[1:] != self._at[:-1]) + 1, len(self))
        return np.repeat(lasts, np.diff(lasts, prepend=0))

    @cached_property
    def _places(self) -> _Places:
        blocks, indices, known = (values[self.rows] for values in _block_places(self.table))
        return _Places(blocks, indices, known, self.starts)

    def spot_at(self, codes: np.ndarray, moments: np.ndarray) -> np.ndarray:
        """Return the first position of a key at each moment; -1 where there is no price."""
        first = self.first_later(codes, moments, at_moment=True)
        there = self.has(codes, first) & (moments != NAT) & (self.times_at(first) == moments)
        return np.where(there, first, -1)

    def look_alikes(self, rows: pa.Table, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows, in order, and positions of the same key, moment and price.

        Nothing else tells prices without trade ids apart; for those with some there are none.
        """
        if "trade_id" in self.table.column_names:
            return NOTHING, NOTHING
        moments = moments_of(rows)
        row, places = expand(*(self.first_later(codes, moments, at_moment=at) for at in (True, False)))
        same = pc.equal(self.take(places), rows["price"].take(pa.array(row))).fill_null(False)
        return row[np.asarray(same)], places[np.asarray(same)]

    def _spots(self, codes: np.ndarray, moments: np.ndarray) -> np.ndarray:
        """Number pairs of key and moment in order."""
        return np.asarray(codes * self._scale.width + self._scale(moments))


class Placed(NamedTuple):
    """The places of rows in blocks, and their moments; `NAT` for rows that these do not put in order.

    Fills of a block share its time. Of a fill with an order hash, its time says what came before.
    """

    moments: np.ndarray
    blocks: np.ndarray
    indices: np.ndarray

    @classmethod
    def of_rows(cls, rows: pa.Table) -> Placed:
        unhashed = np.asarray(column_of(rows, "order_hash").is_null())
        if "moment" not in rows.column_names or not unhashed.any():
            return cls(*[np.full(len(rows), NAT)] * 3)
        blocks, indices, known = _block_places(rows)
        return cls(np.where(known & unhashed, moments_of(rows), NAT), blocks, indices)

    def of(self, rows: np.ndarray) -> Placed:
        return Placed(*(column[rows] for column in self))


class Lookup:
    """Lookups in a `PriceHistory` for the same rows at several moments."""

    def __init__(self, history: PriceHistory, rows: pa.Table) -> None:
        self.history, self.codes = history, history.codes(rows)
        self._own, self._at = OwnRows(history, rows, self.codes), np.arange(len(rows))

    def of(self, rows: np.ndarray) -> Lookup:
        """Return lookups for some of the rows, whose orders are known from all of them."""
        some = copy.copy(self)
        some.codes, some._at = self.codes[rows], self._at[rows]
        return some

    def before(
        self,
        moments: np.ndarray,
        *,
        strictly: bool = False,
        within: int | None = None,
        newer_than: np.ndarray | None = None,
    ) -> np.ndarray:
        """Find the last price at, or `strictly` before, each moment; -1 where there is none.

        Not counted are prices more than `within` ms old, not `newer_than` other moments, or `Placed` later.
        """
        if strictly:
            places = self.history.first_later(self.codes, moments, at_moment=True) - 1
        else:
            places = self._first_after(moments) - 1
        places, placed = self._own.skip(places, -1, self._at), self._own.placed
        near = np.flatnonzero((placed.moments[self._at] == moments) & (moments != NAT) & (not strictly))
        placed = placed.of(self._at[near])
        while len(near):
            found = self.history.up_to(places[near], placed)
            is_later = found != places[near]
            near, found, placed = near[is_later], found[is_later], placed.of(is_later)
            places[near] = self._own.skip(found, -1, self._at[near])
        places = self._good(places, moments, within)
        if newer_than is None:
            return places
        is_newer = (self.history.times_at(places) > newer_than) & (newer_than != NAT)
        return np.where(is_newer, places, -1)

    def after(self, moments: np.ndarray, *, within: int | None = None) -> np.ndarray:
        """Find the first price after each moment, at most `within` ms later; -1 where there is none."""
        places = self._first_after(moments)
        return self._good(self._own.skip(places, 1, self._at), moments, within)

    def _first_after(self, moments: np.ndarray) -> np.ndarray:
        """Return the first position of a key after each moment, known where a row's own price is of it."""
        ends, own = (column[self._at] for column in self._own.spots)
        rest = np.flatnonzero((ends < 0) | (own != moments))
        ends[rest] = self.history.first_later(self.codes[rest], moments[rest], at_moment=False)
        return ends

    def _good(self, places: np.ndarray, moments: np.ndarray, within: int | None) -> np.ndarray:
        """Return places, or -1 where a price is of another key, or farther than `within` ms away."""
        good = (moments != NAT) & self.history.has(self.codes, places)
        if within is not None:
            good &= np.abs(moments - self.history.times_at(places)) <= within
        return np.where(good, places, -1)


class OwnRows:
    """The prices that are of a row's own order, of either side of one of its fills, or that look like one.

    All of them are of a moment at which the order has a row or a price. Orders are only told apart where a
    lookup comes upon a time between two of these, and paired with their prices once for all lookups.
    """

    def __init__(self, history: PriceHistory, rows: pa.Table, codes: np.ndarray) -> None:
        self._history, self._rows, self._pairs = history, rows, NOTHING
        self._has_ids = "trade_id" in history.table.column_names
        self._others = history.unpriced if self._has_ids and history.table is not rows else NOTHING
        moments = moments_of(rows) if "moment" in rows.column_names else np.full(len(rows), NAT)
        self._codes, self._moments = codes, moments  # also of rows that have no price, but are of an order
        if len(self._others):
            self._codes = np.append(codes, history.codes(history.table)[self._others])
            self._moments = np.append(moments, moments_of(history.table)[self._others])

    @cached_property
    def placed(self) -> Placed:
        return Placed.of_rows(self._rows)

    @cached_property
    def spots(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the prices end that have the key and moment of each row, -1 if unknown, and the moment."""
        ends = np.full(len(self._rows), -1)
        if self._are_same("moment", *self._history.keys):
            ends[self._history.rows] = self._history.ends
        return ends, self._moments[: len(ends)]

    def skip(self, places: np.ndarray, step: int, at: np.ndarray) -> np.ndarray:
        """Move places for the rows `at` some positions that are their own past the run of their own rows."""
        starts = range(0, len(places), CHUNK)
        parts = [self._past_first(places[n : n + CHUNK], step, at[n : n + CHUNK]) for n in starts]
        near = np.concatenate([NOTHING, *(n + some for n, (some, _) in zip(starts, parts, strict=True))])
        orders = np.concatenate([NOTHING, *(some for _, some in parts)])
        if not len(near):
            return places
        if not self._is_paired[orders].all():
            self._is_paired[orders] = True
            self._pairs = self._own_pairs()
        pairs, own = self._pair(orders, places[near]), self._pairs
        found = search(own, pairs, "left")
        hit = np.flatnonzero(np.append(own, -1)[found] == pairs)
        breaks = np.diff(own, prepend=-2, append=-1) != 1
        ends = own[breaks[:-1] if step < 0 else breaks[1:]]
        places[near[hit]] += ends[np.cumsum(breaks[:-1])[found[hit]] - 1] - pairs[hit] + step
        return places

    def _near(self, places: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return which of the places have a time at which the order of their row may have prices."""
        times, (first, last) = self._history.times_at(places), (ends[at] for ends in self._spans)
        return np.flatnonzero((times != NAT) & (first <= times) & ((times <= last) | (first == NAT)))

    def _past_first(self, places: np.ndarray, step: int, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Move places past a few own prices, and fills whose other side is a neighbour; return the rest."""
        near = self._near(places, at)
        if not len(near):
            return NOTHING, NOTHING
        orders = self._orders[0][at[near]]
        moved, left, mine = places[near], np.arange(len(near)), orders
        for _ in range(FIRST):
            is_own = np.logical_or(*(sides[moved[left]] == mine for sides in self._orders_of_prices))
            left, mine = left[is_own], mine[is_own]
            moved[left] += step
        places[near] = moved
        still = self._near(moved, at[near])
        return near[still], orders[still]

    @cached_property
    def _orders_of_prices(self) -> tuple[np.ndarray, np.ndarray]:
        """The order of each position, and of the other side of its fill where that is a neighbour; or -1."""
        history, theirs = self._history, np.append(self._orders[1], -1)
        others = np.full(len(theirs), -1)
        if self._has_ids:
            ids = ids_of(column_of(history.table, "trade_id"))[history.rows]
            same = (ids[1:] == ids[:-1]) & (ids[1:] != NAT) & (history.starts[1:] == history.starts[:-1])
            pair = np.flatnonzero(same)
            others[pair], others[pair + 1] = theirs[pair + 1], theirs[pair]
        return theirs, others

    @cached_property
    def _orders(self) -> tuple[np.ndarray, np.ndarray]:
        """Number the orders of rows, each unknown one by itself, and of positions alike, -1 if unknown."""
        tables = [self._rows, self._history.table]
        mine, *_, theirs = 2 * numbered_orders(*tables[: 1 if self._are_same(*ORDER) else 2])
        mine, theirs = np.append(mine, theirs[self._others]), theirs[self._history.rows]
        alone = max(numbers.max(initial=-1) for numbers in (mine, theirs)) + 1 + np.arange(len(mine))
        self._is_paired = np.zeros(alone.max(initial=theirs.max(initial=-1)) + 1, bool)
        return np.where(mine < 0, alone, mine), theirs

    @cached_property
    def _spans(self) -> Span:
        """When the order of each row has its first and its last row or price; first is `NAT` for any time."""
        if has_span(self._rows) and (self._history.has_spans or self._are_same("moment", *ORDER)):
            return order_span(self._rows)
        (mine, theirs), known = self._orders, self._moments != NAT
        orders = np.append(mine[known], theirs[theirs >= 0])
        times = np.append(self._moments[known], self._history.times[theirs >= 0])
        first, last = first_and_last(orders, times, len(self._is_paired))
        return first[mine], last[mine]

    def _are_same(self, *names: str) -> bool:
        """Tell whether rows and prices have equal columns."""
        return all(column_of(self._rows, name).equals(column_of(self._history.table, name)) for name in names)

    def _own_pairs(self) -> np.ndarray:
        """Return the pairs of order and position that are own, of the orders that are to be paired."""
        mine, theirs = self._orders
        rows = np.flatnonzero(self._is_paired[mine])
        own = np.flatnonzero((theirs >= 0) & self._is_paired[theirs])
        pairs = self._sides(rows, own) if self._has_ids else self._pair(theirs[own], own)
        if not self._has_ids and {"moment", "price"} <= {*self._rows.column_names}:
            some = self._rows.select(["moment", "price"]).take(pa.array(rows))
            row, places = self._history.look_alikes(some, self._codes[rows])
            pairs = np.append(pairs, self._pair(mine[rows[row]], places))
        pairs.sort(kind="stable")  # those of sides are nearly in order
        return np.asarray(pairs[first_of(pairs)])

    def _sides(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the pairs of order and position for both sides of the fills of rows and positions."""
        history, (mine, theirs) = self._history, self._orders
        ids, known_ids = (ids_of(column_of(table, "trade_id")) for table in (self._rows, history.table))
        ids, known_ids = np.append(ids, known_ids[self._others]), known_ids[history.rows]
        if self._are_same("moment", "trade_id", *history.keys, *ORDER):  # most are positions too
            is_price = np.zeros(len(mine), bool)
            is_price[history.rows] = theirs >= 0
            rows = rows[~is_price[rows]]
        spots = np.append(history.spot_at(self._codes[rows], self._moments[rows]), history.starts[positions])
        asked = np.append(ids[rows], known_ids[positions])
        there = np.flatnonzero((spots >= 0) & (asked != NAT))
        known = np.flatnonzero(known_ids != NAT)
        scale = Scale(known_ids[known], len(history) + 1)
        fills = history.starts[known] * scale.width + scale(known_ids[known])
        if not is_ascending(fills):
            order = sorted_by(fills)
            fills, known = fills[order], known[order]
        asked = spots[there] * scale.width + scale(asked[there])
        start = search(fills, asked, "left")
        is_there = np.append(fills, -1)[start] == asked
        orders = np.append(mine[rows], theirs[positions])[there[is_there]]
        orders, start = np.divmod(distinct(self._pair(orders, start[is_there])), len(history) + 1)
        ends = first_of(fills)
        order, places = expand(
            start, np.append(ends[1:], len(fills))[np.searchsorted(ends, start, "right") - 1]
        )
        unknown = positions[known_ids[positions] == NAT]
        return np.append(self._pair(orders[order], known[places]), self._pair(theirs[unknown], unknown))

    def _pair(self, orders: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return np.asarray(orders * (len(self._history) + 1) + positions)


class _Places:
    """The places in blocks of a history's prices, numbered in their order within each spot."""

    def __init__(
        self, blocks: np.ndarray, indices: np.ndarray, known: np.ndarray, starts: np.ndarray
    ) -> None:
        self._known, self._starts = known, starts
        self._index = Scale(indices[known], len(known) + 1)
        self._block = Scale(blocks[known], (len(known) + 1) * self._index.width)
        self._at = self._number(starts, blocks, indices)
        self._unknown = np.maximum.accumulate(np.where(known, -1, np.arange(len(known))))

    def _number(self, starts: np.ndarray, blocks: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Number places in their order, those of one spot after those of the spots before it."""
        return np.asarray(
            (starts * self._block.width + self._block(blocks)) * self._index.width + self._index(indices)
        )

    def up_to(self, last: np.ndarray, blocks: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Return the last position in each spot whose place is up to another one, or not known."""
        starts = self._starts[last]
        found = np.searchsorted(self._at, self._number(starts, blocks, indices), "right") - 1
        unknown = np.where(self._unknown[last] < starts, -1, self._unknown[last])
        return np.where(self._known[last], np.minimum(np.maximum(found, unknown), last), last)


def check_prices(prices: Any, caller: str) -> None:
    """Raise a `LabError` that says how prices are read, if they are the path of a file."""
    if isinstance(prices, (str, os.PathLike)):
        raise LabError(f"{caller}: prices from a file are read with lab.tables.prices({str(prices)!r}).")


def _block_places(rows: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return blocks and indices in them, unknown ones last, and a mask of the rows whose place is known.

    Blocks decoded without their number have none; block 0 is no block yet.
    """
    blocks, indices = (_integers(column_of(rows, name)) for name in PLACE)
    known = (blocks != 0) & (indices != LAST)
    return np.where(blocks == 0, LAST, blocks), indices, known


def _integers(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return numbers as integers, unknown ones and those of another type as `LAST`."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.full(len(column), LAST)
    return integers(column, LAST)


def in_order(table: pa.Table) -> np.ndarray:
    """Return the positions of rows in their total order: ``moment``, then `TIE_BREAKERS`, unknown last."""
    rows, one_run = np.arange(len(table)), np.zeros(max(len(table) - 1, 0), bool)
    return _settle_ties(table, rows, one_run, ("moment", *TIE_BREAKERS))


def around(moments: np.ndarray, before: int | None = 0, after: int | None = 0) -> Span:
    """Return when the time around each known moment starts and ends; all time where None is how long."""
    known = moments[moments != NAT]
    if before is None or after is None:
        return np.full(1, -LARGE), np.full(1, LARGE)
    return known - before, known + after


def _between(table: pa.Table, first: np.ndarray, last: np.ndarray) -> pa.Table:
    """Return the rows of moments in some spans, and some of those near; all if that are not far fewer."""
    low, high = int(first.min(initial=LAST)), int(last.max(initial=NAT))
    if len(table) < FEW_TIMES * len(first) or high - low >= LARGE:
        return table
    if not len(first):
        return table.slice(0, 0)
    bits = max(0, (high - low).bit_length() - min(TIME_BITS, len(table).bit_length()))
    count = ((high - low) >> bits) + 1
    starts, stops = (np.bincount((times - low) >> bits, minlength=count) for times in (first, last))
    is_near = np.cumsum(starts) - np.append(0, np.cumsum(stops)[:-1]) > 0
    moments = moments_of(table)
    rows = np.flatnonzero((moments >= low) & (moments <= high))
    return table.take(pa.array(rows[is_near[(moments[rows] - low) >> bits]]))


def _settle_ties(
    table: pa.Table, rows: np.ndarray, is_next: np.ndarray, names: Sequence[str] = TIE_BREAKERS
) -> np.ndarray:
    """Put rows in the order of columns, unknown last, within runs: `is_next` is where the next one begins."""
    found, mine, at = rows.copy(), rows, np.arange(len(rows))
    for name in names:
        tied = np.flatnonzero(np.append(~is_next, False) | np.append(False, ~is_next)) if len(mine) else mine
        if len(tied) < len(mine):
            mine, at, is_next = mine[tied], at[tied], np.append(is_next, True)[tied][:-1]
        if not len(at):
            break
        if name not in table.column_names or pa.types.is_null(table[name].type):
            continue
        numbers = _numbers_in_order(table[name], name, mine)
        falls = np.flatnonzero(~is_next & (numbers[1:] < numbers[:-1]))
        if len(falls):
            place = _in_runs(is_next, numbers, falls)
            mine, numbers = mine[place], numbers[place]
            found[at] = mine
        is_next = is_next | (numbers[1:] != numbers[:-1])
    return found


def _in_runs(is_next: np.ndarray, numbers: np.ndarray, falls: np.ndarray) -> np.ndarray:
    """Return the order of rows by numbers in runs, which `falls` at some places; most runs are of two."""
    if (np.diff(falls) > 1).all():
        place = np.arange(len(numbers))
        place[falls], place[falls + 1] = falls + 1, falls
        swapped = numbers[place]
        if (is_next | (swapped[1:] >= swapped[:-1])).all():
            return place
    return sorted_by(np.append(0, np.cumsum(is_next)), numbers)


def _numbers_in_order(column: Any, name: str, rows: np.ndarray) -> np.ndarray:
    """Return numbers in the order of some values of a column, null last."""
    if not pa.types.is_signed_integer(column.type):
        return ranks(column.take(pa.array(rows)), name)[0]
    numbers: np.ndarray = _integers(column)[rows]
    if name == PLACE[0]:
        numbers = np.where(numbers == 0, LAST, numbers)  # block 0 is no block yet
    unknown = numbers == LAST
    if unknown.any():
        numbers[unknown] = numbers.max(initial=-1, where=~unknown) + 1
    return numbers


def _labels(texts: pa.DictionaryArray, rows: np.ndarray) -> pa.Array:
    """Return the texts of some rows of a column, each once, in order."""
    used = np.flatnonzero(np.bincount(texts.indices.fill_null(0).to_numpy()[rows]))
    return texts.dictionary.take(pa.array(used)).unique().sort()
