"""As-of lookups: the last known price before a moment, or the first after it, never a fill's own."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import TIMESTAMP
from loopring_lab.errors import LabError

NAT = np.iinfo(np.int64).min
"""An unknown time in milliseconds."""
LAST = np.iinfo(np.int64).max
TIE_BREAKERS = ("block_id", "index_in_block", "trade_id", "side", "order_hash", "price")
"""What orders rows of one moment; unknown ones last, and block 0 counts as unknown."""
ORDER = ("order_hash", "account_id", "token_id", "storage_id")
"""What tells orders apart: the hash, or without one the account, the token sold and the storage id."""
OWN_BY = ("trade_id", *ORDER)
"""What tells that a price is of a row's own fill or order."""
PLACE = ("block_id", "index_in_block")
CHANCE = 0.01
"""Share of rows whose price an outside market may show in the same millisecond."""


class PriceHistory:
    """The known prices of a frame by market, or other keys, in the order of `in_order`.

    `times` (ms) and `prices` (exact, above zero) are in that order; lookups return positions in them.
    """

    def __init__(self, frame: Any, caller: str, keys: Sequence[str] = ("market",)) -> None:
        check_prices(frame, caller)
        table = convert.to_table(frame, caller, ["created_at", *keys, "price"], (*TIE_BREAKERS, *ORDER))
        self.is_trades = "trade_id" in table.column_names
        known = pc.fill_null(pc.greater(table["price"], pa.scalar(0, table["price"].type)), False)
        for name in ("moment", *keys):
            known = pc.and_(known, table[name].is_valid())
        table = table if pc.all(known).as_py() else table.filter(known)
        self._labels = {name: as_text(table[name]).unique().sort() for name in keys}
        times = table["moment"].to_numpy()
        ordered = np.sort(times, kind="stable")
        self._moments = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
        spots = self._spots(self.codes(table), times)
        if (np.diff(spots) <= 0).any():
            order = _settle_ties(np.argsort(spots, kind="stable"), spots, table)
            table, times, spots = table.take(pa.array(order)), times[order], spots[order]
        self.times, self._at = times, spots
        self._codes = np.append(spots // self._width, -1)
        self.prices: pa.Array = table["price"].combine_chunks()
        self.orders, self._places = order_names(table), _Places(table, spots)
        self._trades = as_text(table["trade_id"]).unique().drop_null() if self.is_trades else None
        self._identity = self._identities(table)
        self._fills = np.unique(self._identity[self._identity >= 0])
        self._by_fill = np.argsort(self._identity, kind="stable")

    def __len__(self) -> int:
        return len(self.times)

    def combinations(self) -> list[tuple[str, ...]]:
        """Return the combinations of keys that have a price, in order."""
        codes, parts = np.unique(self._codes[:-1]), []
        for labels in reversed(self._labels.values()):
            codes, places = np.divmod(codes, len(labels))
            parts.append(labels.take(pa.array(places)).to_pylist())
        return sorted(zip(*reversed(parts), strict=True))

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
        return self.prices.take(pa.array(positions, mask=positions < 0))

    def integers(self, positions: np.ndarray) -> np.ndarray:
        """Return the prices at positions as unscaled integers; None where a position is -1."""
        return to_integers(self.take(positions))

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
            places = _places(as_text(rows[name]), labels)
            codes = np.where((codes < 0) | (places < 0), -1, codes * len(labels) + places)
        return codes

    def code_at(self, positions: np.ndarray) -> np.ndarray:
        """Return the number of the key of each position; -1 where a position is -1 or past the end."""
        codes: np.ndarray = self._codes[positions]
        return codes

    def first_later(self, codes: np.ndarray, moments: np.ndarray, *, at_moment: bool) -> np.ndarray:
        """Return the first position of a key after each moment, or already `at_moment`."""
        passed = np.searchsorted(self._moments, moments, "left" if at_moment else "right")
        return np.searchsorted(self._at, codes * self._width + passed, "right")

    def last_at(self, codes: np.ndarray, moments: np.ndarray, rows: pa.Table) -> np.ndarray:
        """Return the last position of a key at or before each moment.

        Fills of a block share its time: to a row without an order hash, later places of it are the future.
        """
        last = self.first_later(codes, moments, at_moment=False) - 1
        if "moment" not in rows.column_names:
            return last
        spots = np.where(moments_of(rows) == moments, self._spots(codes, moments), -1)
        return self._places.before(spots, last, rows)

    def own_rows(self, groups: np.ndarray, orders: pa.Array, rows: pa.Table) -> np.ndarray:
        """Return the pairs of group and position, as ``group * (len + 1) + position``, that are its own.

        A position belongs to a group if it is a row of its order, or either side of one of its fills.
        """
        pairs = [self._fills_of(groups, self._identities(rows))]
        own = [self._look_alikes(groups, rows)]
        mine = _places(self.orders, orders)
        places = np.flatnonzero(mine >= 0)
        own.append(mine[places] * (len(self) + 1) + places)
        pairs.append(self._fills_of(mine[places], self._identity[places]))
        group, fill = np.divmod(np.unique(np.concatenate(pairs)), len(self) + 1)
        identity = self._identity[self._by_fill]
        start, stop = (np.searchsorted(identity, self._fills[fill], side) for side in ("left", "right"))
        pair, places = _expand(start, stop)
        own.append(group[pair] * (len(self) + 1) + self._by_fill[places])
        return np.unique(np.concatenate(own))

    @property
    def _width(self) -> int:
        return len(self._moments) + 1

    def _spots(self, codes: np.ndarray, moments: np.ndarray) -> np.ndarray:
        """Number pairs of key and moment in order; -1 where there is no price at that moment."""
        places = np.searchsorted(self._moments, moments)
        there = (codes >= 0) & (np.append(self._moments, NAT)[places] == moments) & (places < self._width - 1)
        return np.where(there, codes * self._width + places + 1, -1)

    def _identities(self, rows: pa.Table) -> np.ndarray:
        """Number the fills that rows are a side of, by market, moment and trade id; -1 if unknown."""
        if self._trades is None or not {"trade_id", "moment"} <= {*rows.column_names}:
            return np.full(len(rows), -1, np.int64)
        spots = self._spots(self.codes(rows), moments_of(rows))
        trades = _places(as_text(rows["trade_id"]), self._trades)
        return np.where((spots < 0) | (trades < 0), -1, spots * len(self._trades) + trades)

    def _look_alikes(self, groups: np.ndarray, rows: pa.Table) -> np.ndarray:
        """Return the pairs of group and position whose market, moment and price are a row's own.

        Prices without trade ids are told apart by nothing else; if many are, they are taken from trades.
        """
        if self._trades is not None or not {"moment", "price"} <= {*rows.column_names}:
            return np.empty(0, np.int64)
        ranges = (self.first_later(self.codes(rows), moments_of(rows), at_moment=at) for at in (True, False))
        row, places = _expand(*ranges)
        same = np.asarray(pc.equal(self.take(places), rows["price"].take(pa.array(row))).fill_null(False))
        self.is_trades |= len(np.unique(row[same])) > len(rows) * CHANCE
        pairs: np.ndarray = groups[row[same]] * (len(self) + 1) + places[same]
        return pairs

    def _fills_of(self, groups: np.ndarray, identities: np.ndarray) -> np.ndarray:
        """Return the pairs of group and fill, as ``group * (len + 1) + fill``, for the fills known here."""
        fills = np.searchsorted(self._fills, identities)
        known = np.append(self._fills, NAT)[fills] == identities
        pairs: np.ndarray = groups[known] * (len(self) + 1) + fills[known]
        return pairs


class Lookup:
    """Lookups in a `PriceHistory` for the same rows at several moments."""

    def __init__(self, history: PriceHistory, rows: pa.Table) -> None:
        self.history, self.codes, self._rows = history, history.codes(rows), rows
        names = order_names(rows)
        orders = names.unique().drop_null()
        places = _places(names, orders)
        self._groups = np.where(places < 0, len(orders) + np.arange(len(rows)), places)
        own = history.own_rows(self._groups, orders, rows)
        breaks = np.flatnonzero(np.diff(own) != 1)
        self._own = own
        self._first = own[np.append(0, breaks + 1)] if len(own) else own
        self._last = own[np.append(breaks, len(own) - 1)] if len(own) else own

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
        places = self._good(self._skip(places, self._first, -1), moments, within)
        if newer_than is None:
            return places
        is_newer = (self.history.times_at(places) > newer_than) & (newer_than != NAT)
        return np.where(is_newer, places, -1)

    def after(self, moments: np.ndarray, *, within: int | None = None) -> np.ndarray:
        """Find the first price after each moment, at most `within` ms later; -1 where there is none."""
        places = self.history.first_later(self.codes, moments, at_moment=False)
        return self._good(self._skip(places, self._last, 1), moments, within)

    def _good(self, places: np.ndarray, moments: np.ndarray, within: int | None) -> np.ndarray:
        """Return places, or -1 where a price is of another key, or farther than `within` ms away."""
        good = (self.codes >= 0) & (moments != NAT) & (self.history.code_at(places) == self.codes)
        if within is not None:
            good &= np.abs(moments - self.history.times_at(places)) <= within
        return np.where(good, places, -1)

    def _skip(self, places: np.ndarray, ends: np.ndarray, step: int) -> np.ndarray:
        """Move places that are a row's own past the end of the run of its own rows."""
        pairs = self._groups * (len(self.history) + 1) + places
        at = np.searchsorted(self._own, pairs)
        runs = np.searchsorted(self._first, pairs, "right") - 1
        hit = np.append(self._own, -1)[at] == pairs
        return np.where(hit, places + np.append(ends, 0)[runs] - pairs + step, places)


class _Places:
    """The places in blocks of a history's prices, numbered in their order within each spot."""

    def __init__(self, table: pa.Table, spots: np.ndarray) -> None:
        blocks, indices, known = _block_places(table)
        self._blocks, self._indices = np.unique(blocks), np.unique(indices)
        self._width = (len(self._blocks) + 1) * (len(self._indices) + 1)
        self._known = np.append(known, False)
        self._at = spots * self._width + self._number(blocks, indices)

    def _number(self, blocks: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Number places; one that no price has counts as the last before it that a price has."""
        block, index = np.searchsorted(self._blocks, blocks), np.searchsorted(self._indices, indices, "right")
        is_there = np.append(self._blocks, NAT)[block] == blocks
        return np.asarray(block * (len(self._indices) + 1) + np.where(is_there, index, 0) - 1)

    def before(self, spots: np.ndarray, last: np.ndarray, rows: pa.Table) -> np.ndarray:
        """Return the last position up to each row's place, or `last` where that or the price's is unknown."""
        if not self._known.any():
            return last
        blocks, indices, known = _block_places(places_of_blocks(rows))
        known &= (spots >= 0) & self._known[last]
        found = np.searchsorted(self._at, spots * self._width + self._number(blocks, indices), "right") - 1
        return np.where(known, found, last)


def check_prices(prices: Any, caller: str) -> None:
    """Raise a `LabError` that says how prices are read, if they are the path of a file."""
    if isinstance(prices, (str, os.PathLike)):
        raise LabError(f"{caller}: prices from a file are read with lab.tables.prices({str(prices)!r}).")


def order_names(rows: pa.Table) -> pa.Array:
    """Return a name for the order of each row: its hash, or else what `ORDER` says; null if unknown."""
    hashes, *sold = (as_text(_column(rows, name)) for name in ORDER)
    if not hashes.null_count:
        return hashes
    return pc.coalesce(hashes, pc.binary_join_element_wise("sold", *sold, " "))


def sold_by_order(rows: pa.Table) -> dict[str, pa.Array]:
    """Return token sold and storage id of the orders that have no hash; null for the others."""
    by_hash = pc.or_(_column(rows, "order_hash").is_valid(), order_names(rows).is_null())
    columns = {name: _column(rows, name) for name in ORDER[2:]}
    return {
        n: pc.if_else(by_hash, pa.scalar(None, column.type), column).cast(pa.int64())
        for n, column in columns.items()
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


def _column(rows: pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a column; nulls where there is none."""
    return rows[name] if name in rows.column_names else pa.nulls(len(rows), pa.int64())


def in_order(table: pa.Table) -> np.ndarray:
    """Return the positions of rows in their total order: ``moment``, then `TIE_BREAKERS`, unknown last."""
    columns = {n: table[n] for n in ("moment", *TIE_BREAKERS) if n in table.column_names}
    columns = {n: column for n, column in columns.items() if not pa.types.is_null(column.type)}
    block = columns.get("block_id")
    if block is not None and pa.types.is_integer(block.type):
        unknown = pc.equal(block, pa.scalar(0, block.type))
        columns["block_id"] = pc.if_else(unknown, pa.scalar(None, block.type), block)
    if not columns:
        return np.arange(len(table))
    keys = [(name, "ascending") for name in columns]
    return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=keys)).astype(np.int64)


def moments_of(rows: pa.Table) -> np.ndarray:
    """Return the column ``moment`` as integers, unknown times as `NAT`."""
    return np.asarray(rows["moment"].fill_null(NAT).to_numpy(), np.int64)


def as_text(column: Any) -> pa.Array:
    """Return ids or names as strings; pandas holds integers with gaps as floats."""
    column = column.cast(pa.int64(), safe=False) if pa.types.is_floating(column.type) else column
    column = column.cast(pa.string())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def numbered(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Number the values of a column in the order in which they appear, -1 for null."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    codes = column.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(codes, np.int64)


def order_span(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return when the order of each row was first and last filled; `NAT` if a time of it is unknown.

    A row of an unknown order stands for itself.
    """
    first, last = moments_of(rows).copy(), moments_of(rows).copy()
    orders = numbered(order_names(rows))
    known, count = orders >= 0, orders.max(initial=-1) + 1
    starts, ends = np.full(count, LAST), np.full(count, NAT)
    np.minimum.at(starts, orders[known], first[known])
    np.maximum.at(ends, orders[known], last[known])
    first[known], last[known] = starts[orders[known]], ends[orders[known]]
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


def _settle_ties(order: np.ndarray, spots: np.ndarray, table: pa.Table) -> np.ndarray:
    """Put the rows of one key and moment, which are neighbours in `order`, in their total order."""
    same = np.diff(spots[order]) == 0
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))[: len(order)]
    rows = order[tied]
    places = in_order(table.take(pa.array(rows)))
    order[tied] = rows[places[np.argsort(spots[rows][places], kind="stable")]]
    return order


def _expand(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return every position of half-open ranges, each with the number of its range."""
    counts = np.maximum(stops - starts, 0)
    numbers = np.repeat(np.arange(len(counts)), counts)
    steps = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers, starts[numbers] + steps


def _places(values: pa.Array, among: pa.Array) -> np.ndarray:
    """Return the place of each value among others; -1 where it is null or not there."""
    places = pc.index_in(values, value_set=among).fill_null(-1)
    return np.asarray(places.to_numpy(zero_copy_only=False), np.int64)
