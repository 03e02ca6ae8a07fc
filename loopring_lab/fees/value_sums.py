"""Sums of values, and how far they may be off: by how much prices vary, and change after the fills.

Parts of rows are added one after the other in the order of time, whatever their size: sums of floats go on
where the last part ended, so that one part gives the same digits as many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from loopring_lab.amounts.scaling import floats
from loopring_lab.engines.aggregate import GroupBy
from loopring_lab.engines.arrays import NAT
from loopring_lab.engines.asof import PriceHistory
from loopring_lab.engines.selection import medians
from loopring_lab.engines.spill import BUCKETS, Buckets

DEVIATIONS = 1.96  # 95 % of a normal distribution
PAIR = ("base", "quote")
AGES = pa.duration("ms")
KEPT_BITS = 12
"""Times between prices are told apart by so many binary digits."""
RANK_BITS = 32

Pair = tuple[str, ...]


class Moves:
    """How much the log price of each market varies from one trade to the next, and with the time passed."""

    def __init__(self) -> None:
        self._last: dict[Pair, tuple[int, float]] = {}
        self._gaps: dict[Pair, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._passed: dict[Pair, int] = {}

    @classmethod
    def of(cls, history: PriceHistory, logs: np.ndarray) -> Moves:
        """Look at all prices of a history."""
        moves = cls()
        moves._add(history.combinations(), history.runs[2], history.times, logs)
        return moves

    @staticmethod
    def rows(history: PriceHistory) -> pa.Table:
        """Return market, time and log price of each price, in the order of the history."""
        pairs, numbers = history.combinations(), pa.array(_numbers(history))
        columns: dict[str, Any] = {"time": history.times, "log": log_prices(history)}
        for place, name in enumerate(PAIR):
            names = pa.array([pair[place] for pair in pairs], pa.string())
            columns[name] = pa.DictionaryArray.from_arrays(numbers, names)
        return pa.table(columns)

    def add(self, rows: pa.Table) -> None:
        """Add the rows of the prices that come next in time."""
        groups = GroupBy(rows, PAIR)
        keys = groups.key_columns()
        pairs = [*zip(*(keys[name].to_pylist() for name in PAIR), strict=True)]
        ends = np.bincount(groups.ids, minlength=groups.count).cumsum()
        self._add(pairs, ends, rows["time"].to_numpy(), rows["log"].to_numpy())

    @property
    def pairs(self) -> list[Pair]:
        """The markets that have prices, in order."""
        return sorted(self._last)

    def variances(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the variance of each market's log price between trades, and per millisecond; or NaN.

        Noise weighs most in the quarter with the shortest gaps.
        """
        found = np.full((len(self._last), 2), np.nan)
        for number, pair in enumerate(self.pairs):
            if not self._passed[pair]:
                continue
            gaps, counts, squares = self._gaps[pair]
            order = np.argsort(gaps)
            counts, squares = counts[order], squares[order]
            least = -(-counts.sum() // 4)
            shares = np.clip((least - counts.cumsum() + counts) / counts, 0, 1)
            found[number] = (squares * shares).sum() / least / 2, squares.sum() / self._passed[pair]
        return found[:, 0], found[:, 1]

    def _add(self, pairs: Sequence[Pair], ends: np.ndarray, times: np.ndarray, logs: np.ndarray) -> None:
        for pair, start, end in zip(pairs, [0, *ends.tolist()], ends.tolist(), strict=False):
            moments, values = times[start:end], logs[start:end]
            if pair in self._last:
                moment, value = self._last[pair]
                moments, values = np.append(moment, moments), np.append(value, values)
            self._last[pair] = int(moments[-1]), float(values[-1])
            gaps = np.diff(moments)
            later = gaps > 0
            self._passed[pair] = self._passed.get(pair, 0) + int(gaps.sum())
            self._add_gaps(pair, gaps[later], np.diff(values)[later] ** 2)

    def _add_gaps(self, pair: Pair, gaps: np.ndarray, squares: np.ndarray) -> None:
        """Add up squares of moves by the time between prices."""
        bits = np.maximum(np.frexp(gaps.astype(np.float64))[1].astype(np.int64) - KEPT_BITS, 0)
        nothing = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        before = self._gaps.get(pair, nothing)
        found = pa.array(np.append(before[0], gaps >> bits << bits)).dictionary_encode()
        numbers, count = found.indices.to_numpy(), len(found.dictionary)
        counts = np.bincount(numbers, np.append(before[1], np.ones(len(gaps))), count)
        sums = np.bincount(numbers, np.append(before[2], squares), count)
        self._gaps[pair] = found.dictionary.to_numpy(), counts.astype(np.int64), sums


class Uses(NamedTuple):
    """Prices that values use: the group of a value, time and number of the price, and the value's error."""

    groups: np.ndarray
    times: np.ndarray
    prices: np.ndarray
    errors: np.ndarray

    def of(self, rows: np.ndarray) -> Uses:
        return Uses(*(column[rows] for column in self))


def uncertainty(
    values: np.ndarray,
    moments: np.ndarray,
    positions: np.ndarray,
    later: np.ndarray,
    forward: np.ndarray,
    history: PriceHistory,
    logs: np.ndarray,
    moves: Moves,
) -> dict[str, pa.Array]:
    """Return how much each value changes to the prices after the fill, and by step the price and its error.

    `positions` of prices, those of the first `later` ones and the direction have a column for each step.
    """
    number_of = {pair: place for place, pair in enumerate(moves.pairs)}
    number = np.array([number_of[pair] for pair in history.combinations()], np.int64)[_numbers(history)]
    noise, drift = moves.variances()
    change = np.zeros(len(values))
    columns: dict[str, np.ndarray] = {}
    for step, (last, after) in enumerate(zip(positions.T, later.T, strict=True)):
        rows = np.flatnonzero(last >= 0)
        at, to, times = last[rows], after[rows], np.full(len(values), NAT)
        times[rows] = history.times[at]
        moved = np.where(to < 0, 0.0, logs[to] - logs[at])
        change[rows] += np.where(forward[rows, step], moved, -moved)
        error, price, of = np.zeros(len(values)), np.zeros(len(values), np.int64), number[at]
        deviation = np.sqrt(noise[of] + drift[of] * (moments[rows] - times[rows]))
        error[rows] = np.abs(values[rows]) * deviation
        price[rows] = (of << RANK_BITS) + at - history.starts[at]
        columns |= {f"time {step}": times, f"price {step}": price, f"error {step}": error}
    columns["change"] = values * np.expm1(change)
    return {name: pa.array(column) for name, column in columns.items()}


class Sums:
    """Sums of each group's values, added part by part in the order of time.

    Prices count once for all fills valued at them, which are within `limit` ms (None: any time).
    """

    def __init__(self, keys: Sequence[str], limit: int | None, steps: int) -> None:
        self._keys, self._limit, self._steps = list(dict.fromkeys(keys)), limit, steps
        self._parts: list[pa.Table] = []
        self._known: pa.Table | None = None
        self._changes, self._squares = np.zeros(0), np.zeros(0)
        self._ages = Buckets()
        nothing = np.empty(0, np.int64)
        self._uses = Uses(nothing, nothing, nothing, np.empty(0))

    def add(self, rows: pa.Table) -> None:
        """Add rows with the keys, ``fee``, ``fee_value``, ``moment``, ``age``, and those of `uncertainty`."""
        groups = GroupBy(rows, self._keys)
        numbers = self._numbered(groups)
        unpriced = np.asarray(rows["fee_value"].is_null())
        sums = {
            "number": numbers,
            "fills": np.bincount(groups.ids, minlength=groups.count),
            "unpriced": np.bincount(groups.ids[unpriced], minlength=groups.count),
            "fee": groups.sum("fee"),
            "fee_value": groups.sum("fee_value"),
            "max_age": groups.aggregate("age", "max"),
        }
        self._parts.append(pa.table(groups.key_columns() | sums))
        priced, ids = np.flatnonzero(~unpriced), numbers[groups.ids]
        ages = {"group": ids[priced].astype(np.int32), "age": rows["age"].to_numpy()[priced]}
        self._ages.add(np.arange(len(priced)) % BUCKETS, ages)
        moments, changes = rows["moment"].to_numpy()[priced], rows["change"].to_numpy()[priced]
        weights = np.abs(floats(rows["fee_value"])[priced])
        order = _in_order(ids[priced], moments, weights, changes)
        self._changes = _go_on(self._changes, len(self._changes), ids[priced][order], changes[order])
        if len(order):
            self._use(ids, rows, priced[order], int(moments.min()))

    def columns(self) -> tuple[GroupBy, dict[str, Any]]:
        """Return the groups and their columns."""
        self._settle(np.ones(len(self._uses.groups), bool))
        groups = GroupBy(pa.concat_tables(self._parts, promote_options="permissive"), self._keys)
        number_of = np.empty(groups.count, np.int64)
        number_of[groups.ids] = groups.table["number"].to_numpy()
        columns = {name: groups.sum(name) for name in ("fills", "unpriced", "fee", "fee_value")}
        totals = np.abs(floats(columns["fee_value"]))
        error = DEVIATIONS * np.sqrt(self._squares[number_of]) + np.abs(self._changes[number_of])
        with np.errstate(divide="ignore", invalid="ignore"):
            bps = np.where(error == 0, 0.0, 10_000 * error / totals)
        columns["within_bps"] = pa.array(bps, mask=~np.isfinite(bps) | np.isnan(totals))
        counts = columns["fills"].to_numpy() - columns["unpriced"].to_numpy()
        group_of = np.argsort(number_of)
        middle = medians(lambda: ((group_of[part["group"]], part["age"]) for part in self._ages), counts)
        for name, ages in (
            ("median_age", np.rint(np.nan_to_num(middle)).astype(np.int64)),
            ("max_age", groups.aggregate("max_age", "max").fill_null(0).to_numpy()),
        ):  # DuckDB reads what lies under a null too
            columns[name] = pa.array(ages, AGES, mask=counts == 0)
        return groups, columns

    def _numbered(self, groups: GroupBy) -> np.ndarray:
        """Number groups in the order in which they appear."""
        found = pa.table(groups.key_columns())
        known = 0 if self._known is None else len(self._known)
        both = found if self._known is None else pa.concat_tables([self._known, found])
        together = GroupBy(both, self._keys)
        numbers = np.full(together.count, -1)
        numbers[together.ids[:known]] = np.arange(known)
        new = np.flatnonzero(numbers[together.ids[known:]] < 0)
        numbers[together.ids[known:][new]] = known + np.arange(len(new))
        self._known = pa.concat_tables([both.slice(0, known), found.take(pa.array(new))])
        self._squares = np.append(self._squares, np.zeros(len(new)))
        self._changes = np.append(self._changes, np.zeros(len(new)))
        return numbers[together.ids[known:]]

    def _use(self, ids: np.ndarray, rows: pa.Table, order: np.ndarray, first: int) -> None:
        """Note which prices rows use; those that are too old for fills from the first moment are settled."""
        if self._limit is not None:
            self._settle(self._uses.times < first - self._limit)
        columns = (
            np.stack([rows[f"{name} {step}"].to_numpy() for step in range(self._steps)], 1)[order].ravel()
            for name in ("time", "price", "error")
        )
        uses = Uses(np.repeat(ids[order], self._steps), *columns)
        uses = uses.of(uses.times != NAT)
        self._uses = Uses(*map(np.append, self._uses, uses))

    def _settle(self, which: np.ndarray) -> None:
        """Add up the squares of errors, those of one price together."""
        settled, self._uses = self._uses.of(which), self._uses.of(~which)
        if not len(settled.groups):
            return
        markets, ranks = settled.prices >> RANK_BITS, settled.prices & ((1 << RANK_BITS) - 1)
        settled = settled.of(_sorted_by(settled.groups, settled.times, markets, ranks))
        starts = np.flatnonzero(np.append(True, np.any([np.diff(column) != 0 for column in settled[:3]], 0)))
        shared = np.add.reduceat(settled.errors, starts)
        self._squares = _go_on(self._squares, len(self._squares), settled.groups[starts], shared**2)


def _numbers(history: PriceHistory) -> np.ndarray:
    """Number the market of each price."""
    _, starts, stops = history.runs
    return np.repeat(np.arange(len(starts), dtype=np.int32), stops - starts)


def log_prices(history: PriceHistory) -> np.ndarray:
    logs: np.ndarray = np.log(floats(history.prices))
    return logs


def _go_on(sums: np.ndarray, count: int, groups: np.ndarray, added: np.ndarray) -> np.ndarray:
    """Add numbers to the sums of groups, one after the other."""
    return np.bincount(np.append(np.arange(count), groups), np.append(sums, added), count)


def _sorted_by(*columns: np.ndarray) -> np.ndarray:
    """Return the order of rows by columns of integers, the first one first; equal rows stay in order."""
    lows = [int(column.min()) for column in columns]
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    if math.prod(spans) >= 1 << 63:
        return np.lexsort(columns[::-1])
    key = np.zeros(len(columns[0]), np.int64)
    for column, low, span in zip(columns, lows, spans, strict=True):
        key = key * span + (column - low)
    return np.argsort(key, kind="stable")


def _in_order(
    groups: np.ndarray, moments: np.ndarray, weights: np.ndarray, changes: np.ndarray
) -> np.ndarray:
    """Return the order of rows by group and moment; those of one moment by what they add to sums."""
    if not len(groups):
        return np.empty(0, np.int64)
    order = _sorted_by(groups, moments)
    same = (np.diff(groups[order]) == 0) & (np.diff(moments[order]) == 0)
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((changes[rows], weights[rows], moments[rows], groups[rows]))]
    return order
