"""Sums of values, and how far they may be off: by how much prices vary, and change after the fills.

Parts of rows are added one after the other in the order of time, whatever their size: sums of floats go on
where the last part ended, so that one part gives the same digits as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import floats
from loopring_lab.amounts.scaling import UNIT
from loopring_lab.engines.aggregate import GroupBy, Groups
from loopring_lab.engines.arrays import expand, first_of, float_keys, sorted_by, sorted_by_keys
from loopring_lab.engines.asof import PriceHistory
from loopring_lab.engines.selection import medians
from loopring_lab.engines.spill import BUCKETS, Buckets

DEVIATIONS = 1.96  # 95 % of a normal distribution
AGES = pa.duration("ms")
KEPT_BITS = 12
"""Times between prices are told apart by so many binary digits."""
RANK_BITS = 32
PARTS, ROWS = 1 << 15, 1 << 18
"""How many parts are told apart, and rows of ages read at once."""
MARKET = ("market base", "market quote")
"""Columns of the rows of markets, which come after those of fills."""

Pair = tuple[str, ...]


class Moves:
    """How much the log price of each market varies from one trade to the next, and with the time passed."""

    def __init__(self) -> None:
        self._numbers: dict[Pair, int] = {}
        self._last: dict[Pair, tuple[int, float]] = {}
        self._gaps: dict[Pair, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._passed: dict[Pair, int] = {}

    def add(self, markets: pa.Table) -> np.ndarray:
        """Add the prices of markets that come next in time, and return the numbers of the markets."""
        columns = (markets[name].to_pylist() for name in MARKET)
        pairs = [*zip(*columns, strict=True)]
        for pair, times, logs in zip(pairs, markets["times"], markets["logs"], strict=True):
            self._numbers.setdefault(pair, len(self._numbers))
            if len(times.values):
                self._add(pair, times.values.to_numpy(), logs.values.to_numpy())
        return np.array([self._numbers[pair] for pair in pairs], np.int64)

    def in_order(self) -> np.ndarray:
        """Return the place of each numbered market in the order of their names."""
        return np.argsort([self._numbers[pair] for pair in sorted(self._numbers)])

    def variances(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the variance of each market's log price between trades, and per millisecond; or NaN.

        Noise weighs most in the quarter with the shortest gaps.
        """
        found = np.full((len(self._numbers), 2), np.nan)
        for pair, number in self._numbers.items():
            if not self._passed.get(pair):
                continue
            gaps, counts, squares = self._gaps[pair]
            order = np.argsort(gaps)
            counts, squares = counts[order], squares[order]
            least = -(-counts.sum() // 4)
            shares = np.clip((least - counts.cumsum() + counts) / counts, 0, 1)
            found[number] = (squares * shares).sum() / least / 2, squares.sum() / self._passed[pair]
        return found[:, 0], found[:, 1]

    def _add(self, pair: Pair, times: np.ndarray, logs: np.ndarray) -> None:
        if pair in self._last:
            moment, value = self._last[pair]
            times, logs = np.append(moment, times), np.append(value, logs)
        self._last[pair] = int(times[-1]), float(logs[-1])
        gaps = np.diff(times)
        later = gaps > 0
        self._passed[pair] = self._passed.get(pair, 0) + int(gaps.sum())
        self._add_gaps(pair, gaps[later], np.diff(logs)[later] ** 2)

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


def with_uncertainty(
    fills: pa.Table,
    values: np.ndarray,
    moments: np.ndarray,
    used: tuple[np.ndarray, np.ndarray, np.ndarray],
    history: PriceHistory,
    own: np.ndarray,
) -> pa.Table:
    """Add to fills how their values change to later prices, and the prices used; a window's own come last."""
    # by row and step: positions of prices, -1 for none, of the first ones after the fill, the direction
    logs: np.ndarray = np.log(history.amounts.floats / UNIT)
    pairs, (_, starts, stops) = history.combinations(), history.runs
    there = used[0] >= 0
    at, to, forward = (column[there] for column in used)
    counts = there.sum(axis=1)
    row, of = (np.repeat(np.arange(len(some)), some) for some in (counts, stops - starts))
    moved = np.where(to < 0, 0.0, logs[to] - logs[at])
    change = np.bincount(row, np.where(forward, moved, -moved), len(counts))
    added = {"own weight": np.abs(values), "own moment": moments, "own change": values * np.expm1(change)}
    prices = {"price times": history.times[at], "prices": (of[at] << RANK_BITS) + at - history.starts[at]}
    for name, column in (added | _lists(counts, prices)).items():
        fills = fills.append_column(name, pa.array(column))
    mine = np.flatnonzero(own[history.rows])
    new = {"times": history.times[mine], "logs": logs[mine]}
    names = (pa.array([pair[place] for pair in pairs], pa.string()) for place in range(len(MARKET)))
    markets = dict(zip(MARKET, names, strict=True)) | _lists(np.bincount(of[mine], minlength=len(pairs)), new)
    return pa.concat_tables([fills, pa.table(markets)], promote_options="default")


def _lists(counts: np.ndarray, columns: dict[str, np.ndarray]) -> dict[str, pa.Array]:
    offsets = np.append(0, np.cumsum(counts))
    return {name: pa.ListArray.from_arrays(offsets, column) for name, column in columns.items()}


class Sums:
    """Sums of each group's values, added part by part in the order of time.

    Prices count once for all fills valued at them, which are within `limit` ms (None: all in one part).
    """

    def __init__(self, keys: Sequence[str], limit: int | None) -> None:
        self._groups, self._limit, self._moves = Groups(keys), limit, Moves()
        self._parts: list[pa.Table] = []
        self._changes = np.zeros(0)
        self._ages, self._uses = Buckets(), Buckets(PARTS)

    def add(self, parts: Iterable[pa.Table]) -> None:
        """Add rows with the keys, ``fee``, ``fee_value``, ``age``, and those of `with_uncertainty`."""
        for _ in map(self._add, parts):  # none is held while the next one is made
            pass

    def _add(self, part: pa.Table) -> None:
        fills = part[MARKET[0]].null_count
        rows, markets = part.slice(0, fills), self._moves.add(part.slice(fills))
        groups = GroupBy(rows, self._groups.keys)
        numbers = self._groups.add(groups.combinations())
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
        priced = np.flatnonzero(~unpriced)
        names, ids = ("age", "own weight", "own moment", "own change"), numbers[groups.ids[priced]]
        age, weight, moment, change = (rows[name].to_numpy()[priced] for name in names)
        self._ages.add(np.arange(len(ids)) % BUCKETS, {"group": ids.astype(np.int32), "age": age})
        order = _in_order(ids, moment, weight, change)
        self._changes = _go_on(self._changes, ids[order], change[order], len(self._groups))
        counts = pc.list_value_length(rows["prices"]).to_numpy()
        stops, priced = np.cumsum(counts), priced[order]
        use, at = expand((stops - counts)[priced], stops[priced])
        time, price = (pc.list_flatten(rows[name]).to_numpy()[at] for name in ("price times", "prices"))
        uses = {"group": ids[order][use].astype(np.int32), "time": time, "weight": weight[order][use]}
        uses |= {"age": moment[order][use] - time, "market": markets[price >> RANK_BITS].astype(np.int32)}
        uses |= {"rank": (price & ((1 << RANK_BITS) - 1)).astype(np.int32)}
        self._uses.add(np.full(len(use), min(len(self._parts), PARTS) - 1), uses)

    def columns(self) -> tuple[GroupBy, dict[str, Any]]:
        """Return the groups and their columns."""
        groups = GroupBy(pa.concat_tables(self._parts, promote_options="permissive"), self._groups.keys)
        number_of = np.empty(groups.count, np.int64)
        number_of[groups.ids] = groups.table["number"].to_numpy()
        columns = {name: groups.sum(name) for name in ("fills", "unpriced", "fee", "fee_value")}
        totals = np.abs(floats(columns["fee_value"]))
        error = DEVIATIONS * np.sqrt(self._squares()[number_of]) + np.abs(self._changes[number_of])
        with np.errstate(divide="ignore", invalid="ignore"):
            bps = np.where(error == 0, 0.0, 10_000 * error / totals)
        columns["within_bps"] = pa.array(bps, mask=~np.isfinite(bps) | np.isnan(totals))
        counts = columns["fills"].to_numpy() - columns["unpriced"].to_numpy()
        middle = medians(partial(self._ages_of, np.argsort(number_of)), counts)
        for name, ages in (
            ("median_age", np.rint(np.nan_to_num(middle)).astype(np.int64)),
            ("max_age", groups.aggregate("max_age", "max").fill_null(0).to_numpy()),
        ):  # DuckDB reads what lies under a null too
            columns[name] = pa.array(ages, AGES, mask=counts == 0)
        return groups, columns

    def _ages_of(self, groups: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for part in self._ages:
            for start in range(0, len(part["age"]), ROWS):
                rows = slice(start, start + ROWS)
                yield groups[part["group"][rows]], part["age"][rows]

    def _squares(self) -> np.ndarray:
        """Add up the squares of errors, those of one price together, once no later fill can use it."""
        (noise, drift), places = self._moves.variances(), self._moves.in_order()
        squares, none = np.zeros(len(self._groups)), np.empty(0, np.int64)
        left = Uses(none, none, none, none, np.empty(0))
        for uses in self._uses:
            market, first = uses["market"], (uses["time"] + uses["age"]).min() - (self._limit or 0)
            error = uses["weight"] * np.sqrt(noise[market] + drift[market] * uses["age"])
            used = Uses(uses["group"], uses["time"], places[market], uses["rank"], error)
            is_settled = left.times < first
            squares = left.of(is_settled).added(squares)
            left = Uses(*map(np.append, left.of(~is_settled), used))
        return left.added(squares)


class Uses(NamedTuple):
    """Prices that values use, by time, market and rank, with the group of each value and its error."""

    groups: np.ndarray
    times: np.ndarray
    markets: np.ndarray
    ranks: np.ndarray
    errors: np.ndarray

    def of(self, rows: np.ndarray) -> Uses:
        return Uses(*(column[rows] for column in self))

    def added(self, squares: np.ndarray) -> np.ndarray:
        """Add the squares of errors to those of groups, after those of one price are added up."""
        order = sorted_by(*self[:-1])
        *columns, errors = self.of(order)
        starts = first_of(*columns)
        shared = np.add.reduceat(errors, starts)
        return _go_on(squares, columns[0][starts], shared**2, len(squares))


def _go_on(sums: np.ndarray, groups: np.ndarray, added: np.ndarray, count: int) -> np.ndarray:
    """Add numbers to the sums of groups below a count, one after the other."""
    return np.bincount(np.append(np.arange(len(sums)), groups), np.append(sums, added), count)


def _in_order(
    groups: np.ndarray, moments: np.ndarray, weights: np.ndarray, changes: np.ndarray
) -> np.ndarray:
    """Return the order of rows by group and moment; those of one moment by what they add to sums."""
    order = sorted_by(groups, moments)
    starts = first_of(groups[order], moments[order])
    counts = np.diff(np.append(starts, len(order)))
    run = np.repeat(np.arange(len(starts)), counts)
    tied = np.flatnonzero(counts[run] > 1)
    rows = order[tied]
    weights, changes = weights[rows], changes[rows]
    order[tied] = rows[sorted_by_keys(run[tied], float_keys(weights), weights, changes)]
    return order
