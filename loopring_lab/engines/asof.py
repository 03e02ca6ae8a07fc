"""As-of lookups: the last known price before a moment, or the first after it, never a fill's own."""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import convert
from loopring_lab.engines.adapters import TIMESTAMP
from loopring_lab.engines.aggregate import ranks
from loopring_lab.engines.arrays import (
    GAMMA,
    NAT,
    Scale,
    as_text,
    distinct,
    encoded,
    expand,
    ids_of,
    numbered,
    numbered_texts,
    places_among,
    search,
    tails_of,
)
from loopring_lab.errors import LabError

LAST = np.iinfo(np.int64).max
TIE_BREAKERS = ("block_id", "index_in_block", "trade_id", "side", "order_hash", "price")
"""What orders rows of one moment; unknown ones last, and block 0 counts as unknown."""
ORDER = ("order_hash", "account_id", "token_id", "storage_id")
"""What tells orders apart: the hash, or without one the account, the token sold and the storage id."""
OWN_BY = ("trade_id", *ORDER)
"""What tells that a price is of a row's own fill or order."""
SPAN = ("first", "last")
"""When the order of a row was first and last filled in a whole frame, in ms."""
PLACE = ("block_id", "index_in_block")
NOTHING = np.empty(0, np.int64)
FEW_STEPS = 8  # prices of a row's own fill are gone through one by one
SLOTS = 16  # of orders and moments, for each row or price


class PriceHistory:
    """The known prices of a frame by market, or other keys, in the order of `in_order`.

    `times` (ms) are in that order; lookups return positions in it.
    """

    def __init__(self, frame: Any, caller: str, keys: Sequence[str] = ("market",)) -> None:
        check_prices(frame, caller)
        table = convert.to_table(frame, caller, ["created_at", *keys, "price"], (*TIE_BREAKERS, *ORDER))
        self.table = table
        self.has_spans = convert.is_normalized(frame) and has_span(frame)
        self._prices: pa.Array = table["price"].combine_chunks()
        known = pc.fill_null(pc.greater(self._prices, pa.scalar(0, table["price"].type)), False)
        for name in ("moment", *keys):
            known = pc.and_(known, table[name].is_valid()) if table[name].null_count else known
        rows = np.flatnonzero(known)
        self._keys = {name: encoded(table[name]) for name in keys}
        self._labels = {name: _labels(texts, rows) for name, texts in self._keys.items()}
        times = moments_of(table)[rows]
        self._scale = Scale(times, self.code_count)
        spots = self._spots(self.codes(table)[rows], times)
        if (spots[1:] <= spots[:-1]).any():
            order = np.argsort(spots)
            runs = np.append(0, np.cumsum(np.diff(spots[order]) != 0))
            order = np.sort(runs * len(rows) + order) - runs * len(rows)  # equal ones as they stand
            times, spots, rows = times[order], spots[order], _settle_ties(table, rows[order], runs)
        self.rows, self.times, self._at = rows, times, spots
        self._borders = np.searchsorted(spots, np.arange(self.code_count + 1) * self._scale.width)

    def __len__(self) -> int:
        return len(self.times)

    @cached_property
    def prices(self) -> pa.Array:
        """The prices, exact and above zero, in order."""
        return self.take(np.arange(len(self)))

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
        times: np.ndarray = np.append(self.times, NAT)[positions]
        return times

    def take_times(self, positions: np.ndarray) -> pa.Array:
        """Return the times of positions as a column; null where a position is -1."""
        return pa.array(self.times_at(positions), TIMESTAMP, mask=positions < 0)

    def codes(self, rows: pa.Table) -> np.ndarray:
        """Number the keys of rows; -1 where this history has no price for them."""
        codes = np.zeros(len(rows), np.int64)
        for name, labels in self._labels.items():
            is_known = rows[name].equals(self.table[name])
            places = places_among(self._keys[name] if is_known else encoded(rows[name]), labels)
            codes = np.where((codes < 0) | (places < 0), -1, codes * len(labels) + places)
        return codes

    def code_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the number of the key of each position; -1 where a position is -1 or past the end."""
        codes = np.repeat(np.arange(self.code_count), np.diff(self._borders))
        found: np.ndarray = np.append(codes, -1)[positions]
        return found

    def has(self, codes: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return a mask of the positions whose key has the code given for each; no key has -1."""
        starts, stops = np.append(self._borders[:-1], 0), np.append(self._borders[1:], 0)
        return np.asarray((positions >= starts[codes]) & (positions < stops[codes]))

    def first_later(self, codes: np.ndarray, moments: np.ndarray, *, at_moment: bool) -> np.ndarray:
        """Return the first position of a key after each moment, or already `at_moment`."""
        return search(self._at, self._spots(codes, moments), "left" if at_moment else "right")

    def last_at(self, codes: np.ndarray, moments: np.ndarray, rows: pa.Table) -> np.ndarray:
        """Return the last position of a key at or before each moment.

        Fills of a block share its time: to a row without an order hash, later places of it are the future.
        """
        last = self.first_later(codes, moments, at_moment=False) - 1
        if "moment" not in rows.column_names or not _column(rows, "order_hash").null_count:
            return last
        blocks, indices, known = _block_places(places_of_blocks(rows))
        at = np.flatnonzero(known & (moments_of(rows) == moments) & self.has(codes, last))
        at = at[self.times[last[at]] == moments[at]]
        if len(at):
            last[at] = self._places.before(self.starts[last[at]], last[at], blocks[at], indices[at])
        return last

    @cached_property
    def starts(self) -> np.ndarray:
        """The first position of the same key and moment, for every position."""
        is_first = np.append(True, self._at[1:] != self._at[:-1])[: len(self)]
        starts: np.ndarray = np.maximum.accumulate(np.where(is_first, np.arange(len(self)), 0))
        return starts

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
        spots: np.ndarray = codes * self._scale.width + self._scale(moments)
        return spots


class Lookup:
    """Lookups in a `PriceHistory` for the same rows at several moments."""

    def __init__(self, history: PriceHistory, rows: pa.Table) -> None:
        self.history, self.codes, self._rows = history, history.codes(rows), rows
        self._own, self._at = OwnRows(history, rows, self.codes), np.arange(len(rows))

    def of(self, rows: np.ndarray) -> Lookup:
        """Return lookups for some of the rows, whose orders are known from all of them."""
        some = copy.copy(self)
        some.codes, some._rows, some._at = self.codes[rows], self._rows.take(pa.array(rows)), self._at[rows]
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

        Prices more than `within` ms old do not count, nor those that are not `newer_than` other moments.
        """
        if strictly:
            places = self.history.first_later(self.codes, moments, at_moment=True) - 1
        else:
            places = self.history.last_at(self.codes, moments, self._rows)
        places = self._good(self._own.skip(places, -1, self._at), moments, within)
        if newer_than is None:
            return places
        is_newer = (self.history.times_at(places) > newer_than) & (newer_than != NAT)
        return np.where(is_newer, places, -1)

    def after(self, moments: np.ndarray, *, within: int | None = None) -> np.ndarray:
        """Find the first price after each moment, at most `within` ms later; -1 where there is none."""
        places = self.history.first_later(self.codes, moments, at_moment=False)
        return self._good(self._own.skip(places, 1, self._at), moments, within)

    def _good(self, places: np.ndarray, moments: np.ndarray, within: int | None) -> np.ndarray:
        """Return places, or -1 where a price is of another key, or farther than `within` ms away."""
        good = (moments != NAT) & self.history.has(self.codes, places)
        if within is not None:
            good &= np.abs(moments - self.history.times_at(places)) <= within
        return np.where(good, places, -1)


class OwnRows:
    """The prices that are of a row's own order, of either side of one of its fills, or that look like one.

    All of them are of a moment at which the order has a row or a price. Orders are only told apart, and
    paired with their prices, where a lookup comes upon such a moment.
    """

    def __init__(self, history: PriceHistory, rows: pa.Table, codes: np.ndarray) -> None:
        self._history, self._rows, self._codes = history, rows, codes
        self._moments = moments_of(rows) if "moment" in rows.column_names else np.full(len(rows), NAT)
        self._has_ids = "trade_id" in history.table.column_names
        self._slot_bits = (SLOTS * (len(rows) + len(history))).bit_length()

    def skip(self, places: np.ndarray, step: int, at: np.ndarray) -> np.ndarray:
        """Move places for the rows `at` some positions that are their own past the run of their own rows."""
        left = self._pass_own_fills(places, step, at) if self._has_ids else NOTHING
        near = distinct(np.append(self._near_own_orders(places, at), left))
        if not len(near):
            return places
        orders, own = self._own_pairs(at[near])
        breaks = np.diff(own, prepend=-2, append=-1) != 1
        starts, stops = np.flatnonzero(breaks[:-1]), np.flatnonzero(breaks[1:])
        ends = own[starts if step < 0 else stops][np.cumsum(breaks[:-1]) - 1]
        pairs = self._pair(orders, places[near])
        found = search(own, pairs, "left")
        hit = np.append(own, -1)[found] == pairs
        places[near[hit]] += ends[found[hit]] - pairs[hit] + step
        return places

    def _pass_own_fills(self, places: np.ndarray, step: int, at: np.ndarray) -> np.ndarray:
        """Move places past prices of a row's own moment and trade id; return where there may be more."""
        (ids, theirs), near = self._ids, np.arange(len(places))
        for _ in range(FEW_STEPS):
            rows, here = at[near], places[near]
            own = (theirs[here] == ids[rows]) & (self._history.times_at(here) == self._moments[rows])
            own &= (ids[rows] != NAT) & self._history.has(self._codes[rows], here)
            near = near[own]
            if not len(near):
                break
            places[near] += step
        return near

    def _near_own_orders(self, places: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return which places may be own: their order may have a row or a price of the same moment."""
        times = self._history.times_at(places)
        near = np.flatnonzero(times != NAT)
        if self._history.has_spans and has_span(self._rows):
            first, last = order_span(self._rows)
            near = near[((first[at] <= times) & (times <= last[at]) | (first[at] == NAT))[near]]
        if not len(near):
            return near
        marks = self._marks[0][at[near]]
        return np.asarray(near[(marks != 0) & self._moments_of_orders[self._slots(marks, times[near])]])

    @cached_property
    def _moments_of_orders(self) -> np.ndarray:
        """Mark the slots of all orders and moments of rows and prices."""
        found, (mine, theirs) = np.zeros(1 << self._slot_bits, bool), self._marks
        for marks, moments in ((mine, self._moments), (theirs, self._history.times)):
            known = np.flatnonzero(marks)
            found[self._slots(marks[known], moments[known])] = True
        return found

    def _slots(self, marks: np.ndarray, moments: np.ndarray | int) -> np.ndarray:
        """Number pairs of marks and moments so that few share a number."""
        mixed = (marks + np.asarray(moments).astype(np.uint64) * np.uint64(GAMMA)) * np.uint64(GAMMA)
        return np.asarray(mixed >> np.uint64(64 - self._slot_bits)).astype(np.int64)

    @cached_property
    def _marks(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the orders of rows and prices, 0 for unknown ones; few orders share one.

        Unknown orders of rows have numbers too where only moment and price tell prices apart.
        """
        tables = self._rows, self._history.table
        mine, theirs = ([_column(rows, name) for name in ORDER] for rows in tables)
        are_same = all(one.equals(other) for one, other in zip(mine, theirs, strict=True))
        marks = [order_marks(self._rows)[0]] * 2 if are_same else order_marks(*tables)
        if not self._has_ids:
            marks[0] = np.where(marks[0] == 0, np.arange(1, len(marks[0]) + 1).astype(np.uint64), marks[0])
        return marks[0], marks[1][self._history.rows]

    @cached_property
    def _ids(self) -> tuple[np.ndarray, np.ndarray]:
        """The trade ids of rows and of positions, and a last one past the end; `NAT` if unknown."""
        both = (_column(rows, "trade_id") for rows in (self._rows, self._history.table))
        ids, theirs = ids_of(*both)
        return ids, np.append(theirs[self._history.rows], NAT)

    def _own_pairs(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number the orders of some rows, and return the pairs of order and position that are own."""
        history, (mine, theirs) = self._history, self._marks
        wanted = np.zeros(1 << self._slot_bits, bool)
        wanted[self._slots(mine[rows], 0)] = True
        some, own = (np.flatnonzero(wanted[self._slots(marks, 0)]) for marks in (mine, theirs))
        orders, of_prices = self._numbers(some, own)
        own, of_prices = own[of_prices >= 0], of_prices[of_prices >= 0]
        pairs = [self._pair(of_prices, own)]
        if self._has_ids:
            pairs.append(self._sides(some, orders, own, of_prices))
        if {"moment", "price"} <= {*self._rows.column_names}:
            row, places = history.look_alikes(self._rows.take(pa.array(some)), self._codes[some])
            pairs.append(self._pair(orders[row], places))
        return orders[np.searchsorted(some, rows)], distinct(np.concatenate(pairs))

    def _numbers(self, rows: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Number the orders of rows, each unknown one by itself, and of positions alike, -1 if unknown."""
        asked = (self._rows, rows), (self._history.table, self._history.rows[positions])
        some = [pa.table({n: _column(t, n).take(pa.array(at)) for n in ORDER}) for t, at in asked]
        numbers = numbered_texts(pa.concat_arrays([*map(order_names, some)]))
        mine = numbers[: len(rows)]
        alone = numbers.max(initial=-1) + 1 + np.arange(len(rows))
        return np.where(mine < 0, alone, mine), numbers[len(rows) :]

    def _sides(
        self, rows: np.ndarray, orders: np.ndarray, positions: np.ndarray, of_prices: np.ndarray
    ) -> np.ndarray:
        """Return the pairs of order and position for both sides of the fills of rows and positions."""
        history, (ids, theirs) = self._history, self._ids
        spots = np.append(history.spot_at(self._codes[rows], self._moments[rows]), history.starts[positions])
        asked_ids, orders = np.append(ids[rows], theirs[positions]), np.append(orders, of_prices)
        there = (spots >= 0) & (asked_ids != NAT)
        spots, asked_ids, orders = spots[there], asked_ids[there], orders[there]
        is_asked = np.zeros(len(history), bool)
        is_asked[spots] = True
        known = np.flatnonzero(is_asked[history.starts] & (theirs[:-1] != NAT))
        scale = Scale(theirs[known], len(history) + 1)
        fills = history.starts[known] * scale.width + scale(theirs[known])
        order = np.argsort(fills)
        fills, known = fills[order], known[order]
        asked = spots * scale.width + scale(asked_ids)
        start = search(fills, asked, "left")
        there = np.append(fills, -1)[start] == asked
        orders, start = np.divmod(distinct(self._pair(orders[there], start[there])), len(history) + 1)
        order, places = expand(start, np.searchsorted(fills, fills[start], "right"))
        return self._pair(orders[order], known[places])

    def _pair(self, orders: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return np.asarray(orders * (len(self._history) + 1) + positions)


class _Places:
    """The places in blocks of a history's prices, numbered in their order within each spot."""

    def __init__(
        self, blocks: np.ndarray, indices: np.ndarray, known: np.ndarray, starts: np.ndarray
    ) -> None:
        self._blocks, self._indices, self._known = distinct(blocks), distinct(indices), known
        self._width = (len(self._blocks) + 1) * (len(self._indices) + 1)
        self._at = starts * self._width + self._number(blocks, indices)

    def _number(self, blocks: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Number places; one that no price has counts as the last before it that a price has."""
        block, index = np.searchsorted(self._blocks, blocks), np.searchsorted(self._indices, indices, "right")
        is_there = np.append(self._blocks, NAT)[block] == blocks
        return np.asarray(block * (len(self._indices) + 1) + np.where(is_there, index, 0) - 1)

    def before(
        self, starts: np.ndarray, last: np.ndarray, blocks: np.ndarray, indices: np.ndarray
    ) -> np.ndarray:
        """Return the last position up to each place in a spot, or `last` if that one's place is unknown."""
        found = np.searchsorted(self._at, starts * self._width + self._number(blocks, indices), "right") - 1
        return np.where(self._known[last], found, last)


def check_prices(prices: Any, caller: str) -> None:
    """Raise a `LabError` that says how prices are read, if they are the path of a file."""
    if isinstance(prices, (str, os.PathLike)):
        raise LabError(f"{caller}: prices from a file are read with lab.tables.prices({str(prices)!r}).")


def order_names(rows: pa.Table) -> pa.Array:
    """Return a name for the order of each row: its hash, or else what `ORDER` says; null if unknown."""
    hashed = as_text(_column(rows, ORDER[0]))
    if not hashed.null_count:
        return hashed
    missing = hashed.is_null()
    sold = [as_text(_column(rows, name).filter(missing)) for name in ORDER[1:]]
    return pc.replace_with_mask(hashed, missing, pc.binary_join_element_wise("sold", *sold, " "))


def order_marks(*tables: pa.Table) -> list[np.ndarray]:
    """Return a 64-bit number for the order of each row, alike for equal orders; 0 for unknown ones."""
    hashed = [as_text(_column(rows, ORDER[0])) for rows in tables]
    marks = [tails_of(texts) for texts in hashed]
    if not any(texts.null_count for texts in hashed):
        return marks
    sold = [np.ones(len(rows), np.uint64) for rows in tables]
    for name in ORDER[1:]:
        for place, ids in enumerate(ids_of(*(_column(rows, name) for rows in tables))):
            is_known = (ids != NAT) & (sold[place] != 0)
            number = (sold[place] + ids.view(np.uint64)) * np.uint64(GAMMA) | np.uint64(1)
            sold[place] = np.where(is_known, number, np.uint64(0))
    return [np.where(texts.is_valid(), *both) for texts, *both in zip(hashed, marks, sold, strict=True)]


def numbered_orders(rows: pa.Table) -> np.ndarray:
    """Number the orders of rows; -1 for unknown."""
    numbers = numbered_texts(as_text(_column(rows, ORDER[0])))
    rest = np.flatnonzero(numbers < 0)
    if len(rest):
        sold, known = np.zeros(len(rest), np.int64), np.ones(len(rest), bool)
        for name in ORDER[1:]:
            (ids,) = ids_of(_column(rows, name).take(pa.array(rest)))
            places = numbered(pa.array(ids))
            sold, known = numbered(pa.array(sold * (len(rest) + 1) + places)), known & (ids != NAT)
        numbers[rest[known]] = sold[known] + numbers.max(initial=-1) + 1
    return numbers


def sold_by_order(rows: pa.Table) -> dict[str, pa.Array]:
    """Return token sold and storage id of the orders that have no hash; null for the others."""
    by_hash, columns = _column(rows, "order_hash").is_valid(), {n: _column(rows, n) for n in ORDER[1:]}
    for column in columns.values():  # without one of them it is not known either
        by_hash = pc.or_(by_hash, column.is_null())
    return {
        n: pc.if_else(by_hash, pa.scalar(None, columns[n].type), columns[n]).cast(pa.int64())
        for n in ORDER[2:]
    }


def places_of_blocks(rows: pa.Table) -> pa.Table:
    """Return the moments of rows, and the places in blocks of those without an order hash."""
    by_hash = _column(rows, "order_hash").is_valid()
    places = {name: _column(rows, name) for name in PLACE}
    places = {n: pc.if_else(by_hash, pa.scalar(None, column.type), column) for n, column in places.items()}
    return pa.table(places | {"moment": rows["moment"]})


def _block_places(rows: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return blocks and indices in them, unknown ones last, and a mask of the rows whose place is known.

    Blocks decoded without their number have none; block 0 is no block yet.
    """
    blocks, indices = (_integers(_column(rows, name)) for name in PLACE)
    known = (blocks != 0) & (indices != LAST)
    return np.where(blocks == 0, LAST, blocks), indices, known


def _integers(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return numbers as integers, unknown ones and those of another type as `LAST`."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.full(len(column), LAST)
    return np.asarray(column.cast(pa.int64(), safe=False).fill_null(LAST), np.int64)


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column; nulls where there is none."""
    return rows[name] if name in rows.column_names else pa.chunked_array([pa.nulls(len(rows), pa.int64())])


def in_order(table: pa.Table) -> np.ndarray:
    """Return the positions of rows in their total order: ``moment``, then `TIE_BREAKERS`, unknown last."""
    rows, runs = np.arange(len(table)), np.zeros(len(table), np.int64)
    return _settle_ties(table, rows, runs, ("moment", *TIE_BREAKERS))


def moments_of(rows: pa.Table) -> np.ndarray:
    """Return the column ``moment`` as integers, unknown times as `NAT`."""
    return np.asarray(rows["moment"].fill_null(NAT).to_numpy(), np.int64)


def has_span(rows: pa.Table) -> bool:
    """Tell whether rows have the columns `SPAN`, in milliseconds."""
    return all(n in rows.column_names and pa.types.is_int64(rows[n].type) for n in SPAN)


def order_span(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return when the order of each row was first and last filled; `NAT` if a time of it is unknown.

    A row of an unknown order stands for itself. Rows that have the columns ``first`` and ``last`` say so.
    """
    if has_span(rows):
        first, last = (np.asarray(rows[name], np.int64) for name in SPAN)
        return first, last
    first, last = (moments_of(rows).copy() for _ in range(2))
    orders = numbered_orders(rows)
    known = np.flatnonzero(orders >= 0)
    orders = orders[known]
    starts, ends = np.full((2, orders.max(initial=-1) + 1), [[LAST], [NAT]])
    np.minimum.at(starts, orders, first[known])
    np.maximum.at(ends, orders, last[known])
    first[known], last[known] = starts[orders], ends[orders]
    last[first == NAT] = NAT
    return first, last


def parse_length(length: Any, caller: str, name: str = "tolerance") -> int:
    """Parse a length of time such as ``"60s"`` as milliseconds, or raise a `LabError`."""
    text = length
    if isinstance(length, str):  # pandas reads days and weeks in capitals only, and numbers as nanoseconds
        text = re.sub(r"(?<=[\d ])[dw]$", lambda unit: unit[0].upper(), length)
        text = None if re.fullmatch(r"\s*[+-]?\d+\s*", length) else text
    is_length = isinstance(text, (str, timedelta, np.timedelta64))
    parsed: Any = pd.to_timedelta(text, errors="coerce") if is_length else None
    if not isinstance(parsed, pd.Timedelta) or parsed < pd.Timedelta(0):
        none = ", or None" if name == "tolerance" else ""
        raise LabError(
            f"{caller}: {name}={length!r} is not a length of time. Give a number with a unit, such as "
            f"'60s'{none}."
        )
    return int(parsed // pd.Timedelta(1, "ms"))


def parse_tolerance(tolerance: Any, caller: str) -> int | None:
    """Parse a tolerance as milliseconds; None for any length."""
    return None if tolerance is None else parse_length(tolerance, caller)


def _settle_ties(
    table: pa.Table, rows: np.ndarray, runs: np.ndarray, names: Sequence[str] = TIE_BREAKERS
) -> np.ndarray:
    """Put rows of a table that are in one run, and so neighbours, in the order of columns, unknown last."""
    rows, tied = rows.copy(), np.arange(len(rows))
    for name in names:
        same = runs[1:] == runs[:-1]
        again = np.append(same, False) | np.append(False, same) if len(runs) else same
        tied, runs = tied[again], runs[again]
        if not len(tied):
            break
        if name not in table.column_names or pa.types.is_null(table[name].type):
            continue
        numbers = _numbers_in_order(table[name], name, rows[tied])
        scale = Scale(numbers, len(table))
        keys = runs * scale.width + scale(numbers)
        if (keys[1:] < keys[:-1]).any():
            place = np.argsort(keys, kind="stable")
            rows[tied], keys = rows[tied[place]], keys[place]
        runs = np.append(0, np.cumsum(keys[1:] != keys[:-1]))
    return rows


def _numbers_in_order(column: Any, name: str, rows: np.ndarray) -> np.ndarray:
    """Return numbers in the order of some values of a column, null last."""
    if not pa.types.is_signed_integer(column.type):
        return ranks(column.take(pa.array(rows)), name)[0]
    if name == PLACE[0]:  # block 0 is no block yet
        column = pc.if_else(pc.equal(column, pa.scalar(0, column.type)), pa.scalar(None, column.type), column)
    column = column.cast(pa.int64())
    last = min((pc.max(column).as_py() or 0) + 1, LAST)
    return np.asarray(column.fill_null(last).to_numpy()[rows])


def _labels(texts: pa.DictionaryArray, rows: np.ndarray) -> pa.Array:
    """Return the texts of some rows of a column, each once, in order."""
    used = np.flatnonzero(np.bincount(texts.indices.fill_null(0).to_numpy()[rows]))
    return texts.dictionary.take(pa.array(used)).unique().sort()
