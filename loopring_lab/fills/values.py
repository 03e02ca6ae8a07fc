"""Values of fills in one quote token, as weights: converted at the prices nearest in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import floats
from loopring_lab.engines import convert, workers
from loopring_lab.engines.arrays import NAT, coded, encoded, first_of, sorted_by
from loopring_lab.engines.orders import LAST, moments_of
from loopring_lab.engines.pairs import row_groups
from loopring_lab.engines.spill import BUCKETS, Buckets, Columns, Spool

PRICED = ("created_at", "base", "quote", "price")
FILLS, PRICES = "number of fills", "number of prices"
"""Columns of what `_slim` returns, named unlike those of trades."""
KEPT_SHARE = 8
"""This fraction of the memory limit are prices kept in memory, before they go to disk."""
Pair = tuple[str, str]


class Values:
    """Values of fills in the quote token with most fills, converted along markets with most prices.

    The parts of all fills are as `_slim` returns them, or with the columns of `PRICED` normalized; they
    are read once. Frames of `prices` that name their tokens convert values too.
    """

    def __init__(self, parts: Iterable[pa.Table] = (), *prices: Any) -> None:
        self._parts, self._noted = parts, Spool(KEPT_SHARE)
        self._prices = [p for p in prices if p is not None and {*PRICED} <= {*convert.column_names(p)}]

    @classmethod
    def of_frame(cls, trades: Any, caller: str, *prices: Any) -> Values:
        """Prepare the values of a frame of any engine; workers of a cluster start to read it."""
        return cls(_batches(trades, caller), *prices)

    @property
    def several(self) -> bool:
        """Whether there are several quote tokens, so that values need converting."""
        return len(self._tokens) > 1

    @cached_property
    def rates(self) -> Rates:
        """The rates at which tokens are converted."""
        return Rates(self._tokens[:1], self._paths, self._histories)

    @cached_property
    def _seen(self) -> tuple[Counter[str], Counter[Pair], int, int]:
        """Note prices; return numbers of fills by quote token and of prices by pair, first and last time."""
        quotes, counts = Counter[str](), Counter[Pair]()
        first, last = LAST, NAT
        for rows, are_fills in self._read():
            pairs, times = _pairs(rows), rows["moment"].combine_chunks().values.to_numpy()
            quotes.update(_counts(*coded(rows["quote"]), rows[FILLS].to_numpy()) if are_fills else {})
            counts.update(_counts(np.arange(len(rows)), pairs, rows[PRICES].to_numpy()))
            first, last = min(first, times.min(initial=LAST)), max(last, times.max(initial=NAT))
            self._noted.add(rows, np.array([_slot(pair) for pair in pairs], np.int64))
        return quotes, counts, int(first), int(last)

    @cached_property
    def _tokens(self) -> list[str]:
        """The quote tokens, the one with most fills first."""
        quotes = self._seen[0]
        return sorted(quotes, key=lambda name: (-quotes[name], name))

    @cached_property
    def _paths(self) -> dict[str, list[tuple[Pair, bool]]]:
        """The pairs along which tokens are converted, and whether by division."""
        counts = self._seen[1]
        paths: dict[str, list[tuple[Pair, bool]]] = {token: [] for token in self._tokens[:1]}
        while not paths.keys() >= {*self._tokens}:
            edges = [pair for pair in counts if (pair[0] in paths) != (pair[1] in paths)]
            if not edges:
                break
            base, quote = most = min(edges, key=lambda pair: (-counts[pair], pair))
            if base in paths:
                paths[quote] = [*paths[base], (most, True)]
            else:
                paths[base] = [*paths[quote], (most, False)]
        return paths

    @cached_property
    def _histories(self) -> dict[Pair, _History]:
        _, _, first, last = self._seen
        used = {pair for token in self._tokens if token in self._paths for pair, _ in self._paths[token]}
        histories = {pair: _History(first, last) for pair in used}
        for rows in self._noted.parts({*map(_slot, used)}) if used else ():
            for place, pair in enumerate(_pairs(rows)):
                if pair in used:
                    times, prices = (rows[name][place].values.to_numpy() for name in ("moment", "price"))
                    histories[pair].add(times, prices)
        self._noted = Spool()  # the prices of all other pairs go
        for history in histories.values():
            history.sort()
        return histories

    def _read(self) -> Iterator[tuple[pa.Table, bool]]:
        """Yield what `_slim` returns, and whether it is of fills."""
        for part in self._parts:
            yield part if FILLS in part.column_names else _slim(part), True
        for prices in self._prices:
            yield from zip(_batches(prices, "prices"), repeat(False), strict=False)


class Rates(NamedTuple):
    """The token that values are in, and how others are converted to it."""

    token: list[str]
    paths: dict[str, list[tuple[Pair, bool]]]
    histories: dict[Pair, _History]

    @property
    def in_memory(self) -> bool:
        """Whether no prices are on disk."""
        return all(history.rows.in_memory for history in self.histories.values())

    def of(self, fills: pa.Table) -> np.ndarray:
        """Return the value of each fill; NaN where its amount, token, time or price is unknown."""
        values, moments = floats(fills["notional"]), moments_of(fills)
        codes, names = coded(fills["quote"])
        values[(codes < 0) | (moments == NAT)] = np.nan
        for code, name in enumerate(names):
            rows = np.flatnonzero((codes == code) & (moments != NAT))
            if len(rows) and self.token != [name]:
                values[rows] *= self._at(name, moments[rows])
        return values

    def _at(self, token: str, times: np.ndarray) -> np.ndarray | float:
        """Return the value of a token at each time; NaN where no market connects it."""
        if token not in self.paths:
            return np.nan
        rates = np.ones(len(times))
        for pair, divides in self.paths[token]:
            prices = self.histories[pair].nearest(times)
            rates = rates / prices if divides else rates * prices
        return rates


def _batches(frame: Any, caller: str) -> Iterator[pa.Table]:
    return convert.batches(frame, PRICED, caller, work=_slim, priority=workers.NEXT)


def _slim(rows: pa.Table) -> pa.Table:
    """Return for each pair of tokens its numbers of fills and prices, and the lowest price of each time."""
    pairs, first = row_groups(rows, ("base", "quote"))
    prices, moments = floats(rows["price"]), moments_of(rows)
    names = {name: encoded(rows[name]) for name in ("base", "quote")}
    named = pc.and_(*(texts.is_valid() for texts in names.values()))
    known = (prices > 0) & (moments != NAT) & np.asarray(named)
    fills, counts = (np.bincount(some, minlength=len(first)) for some in (pairs, pairs[known]))
    pairs, moments = pairs[known], moments[known]
    places, lowest = _lowest(prices[known], pairs, moments)
    starts = pa.array(np.searchsorted(pairs[places], np.arange(len(first) + 1)))
    columns: dict[str, Any] = {FILLS: fills, PRICES: counts}
    columns |= {name: texts.take(pa.array(first)) for name, texts in names.items()}
    for name, found in (("moment", moments[places]), ("price", lowest)):
        columns[name] = pa.LargeListArray.from_arrays(starts, pa.array(found))
    return pa.table(columns)


def _lowest(prices: np.ndarray, *keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a row of each key in order, and the lowest price of its rows."""
    order = sorted_by(*keys)
    starts = first_of(*(key[order] for key in keys))
    return order[starts], np.minimum.reduceat(prices[order], starts) if len(starts) else prices[:0]


def _pairs(rows: pa.Table) -> list[Any]:
    """Return the pairs of tokens of rows that `_slim` returns."""
    return [*zip(rows["base"].to_pylist(), rows["quote"].to_pylist(), strict=True)]


def _slot(pair: Pair) -> int:
    """Return where prices of a pair are noted; others may be there too."""
    return crc32(repr(pair).encode()) % BUCKETS


def _counts(numbers: np.ndarray, names: list[Any], each: np.ndarray) -> dict[Any, int]:
    """Add up how many there are of each name by its number, without those of which there are none."""
    known = numbers >= 0
    counts = np.bincount(numbers[known], each[known], len(names)).tolist()
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


class _History:
    """Prices of a pair of tokens, in slices of time."""

    def __init__(self, first: int, last: int) -> None:
        self._first, self._step = first, (last - first) // BUCKETS + 1
        self.rows = Buckets()
        self._loaded: dict[tuple[int, int], Columns] = {}

    def add(self, times: np.ndarray, prices: np.ndarray) -> None:
        self.rows.add(self._slices(times), {"time": times, "price": prices})

    def nearest(self, times: np.ndarray) -> np.ndarray:
        """Return the price nearest to each time: of two the earlier, of one time the lower."""
        if self.rows.in_memory:
            return self._among((0, BUCKETS - 1), times)
        found, slices = np.empty(len(times)), self._slices(times)
        filled = np.flatnonzero(self.rows.counts)
        for slice_ in np.flatnonzero(np.bincount(slices)):
            rows = slices == slice_
            before, after = np.searchsorted(filled, [slice_, slice_ + 1]) - (1, 0)
            ends = filled[[max(before, 0), min(after, len(filled) - 1)]].tolist()
            found[rows] = self._among((ends[0], ends[1]), times[rows])
        return found

    def sort(self) -> None:
        """Put prices in order once all are there, unless some are on disk."""
        if self.rows.in_memory:
            self._load((0, BUCKETS - 1))
            self.rows = Buckets()

    def _slices(self, times: np.ndarray) -> np.ndarray:
        return np.asarray(((times - self._first) // self._step).clip(0, BUCKETS - 1))

    def _among(self, slices: tuple[int, int], times: np.ndarray) -> np.ndarray:
        if slices not in self._loaded:
            self._load(slices)
        known, prices = self._loaded[slices].values()
        after = np.clip(np.searchsorted(known, times), 0, len(known) - 1)
        before = np.maximum(after - 1, 0)
        nearer = np.abs(times - known[before]) <= np.abs(known[after] - times)
        return np.asarray(prices[np.where(nearer, before, after)])

    def _load(self, slices: tuple[int, int]) -> None:
        rows = self.rows.read(*slices)
        first, lowest = _lowest(rows["price"], rows["time"])
        self._loaded = {slices: {"time": rows["time"][first], "price": lowest}}
