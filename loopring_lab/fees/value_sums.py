"""Sums of values, and how far they may be off: by how much prices vary, and change after the fills.

Parts of rows are added one after the other in the order of time, whatever their size: sums of floats go on
where the last part ended, so that one part gives the same digits as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from loopring_lab import cores
from loopring_lab.amounts.limbs import floats
from loopring_lab.amounts.scaling import UNIT, combined
from loopring_lab.engines.aggregate import GroupBy, Groups
from loopring_lab.engines.arrays import first_of, float_keys, sorted_by, sorted_by_keys
from loopring_lab.engines.asof import PriceHistory
from loopring_lab.engines.selection import medians
from loopring_lab.engines.spill import BUCKETS, Buckets

DEVIATIONS = 1.96  # 95 % of a normal distribution
AGES = pa.duration("ms")
KEPT_BITS = 12
"""Times between prices are told apart by so many binary digits."""
PARTS, ROWS = 1 << 15, 1 << 18
"""How many parts are told apart, and rows of ages read at once."""
MARKET = ("base", "quote")

Pair = tuple[str, ...]


class Moves:
    """How much the log price of each market varies from one trade to the next, and with the time passed."""

    def __init__(self) -> None:
        self._numbers: dict[Pair, int] = {}
        self._last: dict[Pair, tuple[int, float]] = {}
        self._gaps: dict[Pair, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._passed: dict[Pair, int] = {}

    def add(self, markets: pa.Table, market: np.ndarray, time: np.ndarray, log: np.ndarray) -> np.ndarray:
        """Add the prices of markets that come next in time, and return the numbers of the markets."""
        pairs = [*zip(*(markets[name].to_pylist() for name in MARKET), strict=True)]
        for pair in pairs:
            self._numbers.setdefault(pair, len(self._numbers))
        for start, stop in pairwise([*first_of(market).tolist(), len(market)]):
            self._add(pairs[market[start]], time[start:stop], log[start:stop])
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
            _, counts, squares = self._gaps[pair]
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
        """Add up squares of moves by numbers in the order of the time between prices."""
        bits = np.maximum(np.frexp(gaps.astype(np.float64))[1].astype(np.int64) - KEPT_BITS, 0)
        nothing = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        before = self._gaps.get(pair, nothing)
        numbers = np.append(before[0], (bits << KEPT_BITS) + (gaps >> bits))
        counts = np.bincount(numbers, np.append(before[1], np.ones(len(gaps))))
        sums, there = np.bincount(numbers, np.append(before[2], squares)), np.flatnonzero(counts)
        self._gaps[pair] = there, counts[there].astype(np.int64), sums[there]


def part_of(
    fills: pa.Table,
    keys: Sequence[str],
    values: np.ndarray,
    moments: np.ndarray,
    used: tuple[np.ndarray, np.ndarray, np.ndarray],
    history: PriceHistory,
    own: np.ndarray,
) -> pa.Table:
    """Return, as lists in one row, the sums of fills by keys and what tells how far these may be off.

    `used` has positions by row and step, as `Valued`; `own` masks the prices that tell moves.
    """
    groups, unpriced = GroupBy(fills, keys), np.asarray(fills["fee_value"].is_null())
    sums = {
        "fills": np.bincount(groups.ids, minlength=groups.count),
        "unpriced": np.bincount(groups.ids[unpriced], minlength=groups.count),
        "fee": groups.sum("fee"),
        "fee_value": groups.sum("fee_value"),
        "max_age": groups.aggregate("age", "max"),
    }
    priced = np.flatnonzero(~unpriced)
    ids, moments, values = groups.ids[priced].astype(np.int32), moments[priced], values[priced]
    logs: np.ndarray = np.log(history.amounts.floats / UNIT)
    changes = values * np.expm1(_moved(*used, logs))[priced]
    order = _in_order(ids, moments, np.abs(values), changes)
    at = used[0][priced[order]]
    ages, mine = fills["age"].to_numpy()[priced], np.flatnonzero(own[history.rows])
    pairs = history.combinations()
    tables = {
        "groups": groups.key_columns() | sums,
        "fills": {"group": ids[order], "age": ages[order], "change": changes[order]},
        "uses": _uses(ids[order], moments[order], np.abs(values[order]), at, history),
        "markets": {
            n: pa.array([pair[place] for pair in pairs], pa.string()) for place, n in enumerate(MARKET)
        },
        "prices": {"market": _markets(history, mine), "time": history.times[mine], "log": logs[mine]},
    }
    return pa.table({name: _in_one_row(columns) for name, columns in tables.items()})


def _moved(at: np.ndarray, to: np.ndarray, forward: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return how log prices of each row's path move on to the first ones after the fill."""
    rows, there = _steps(at)
    to = to.ravel()[there]
    moved = np.where(to < 0, 0.0, logs[to] - logs[at.ravel()[there]])
    return np.bincount(rows, np.where(forward.ravel()[there], moved, -moved), len(at))


def _steps(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each step that there is, and its place among all of the cells."""
    there = np.flatnonzero(at.ravel() >= 0)
    return there // at.shape[1], there


def _uses(
    groups: np.ndarray, moments: np.ndarray, weights: np.ndarray, at: np.ndarray, history: PriceHistory
) -> dict[str, np.ndarray]:
    """Return the prices that rows use: when they were, and the place of each among those of its moment."""
    rows, there = _steps(at)
    at = at.ravel()[there]
    times, ranks = history.times[at], at - history.starts[at]
    uses = {"group": groups[rows], "market": _markets(history, at), "time": times, "rank": ranks}
    return uses | {"weight": weights[rows], "age": moments[rows] - times}


def _markets(history: PriceHistory, positions: np.ndarray) -> np.ndarray:
    """Number the markets of positions as `PriceHistory.combinations` lists them."""
    _, starts, stops = history.runs
    return np.asarray(np.repeat(np.arange(len(starts), dtype=np.int32), stops - starts)[positions])


def _in_one_row(columns: dict[str, Any]) -> pa.ListArray:
    arrays = [pa.array(one) if isinstance(one, np.ndarray) else combined(one) for one in columns.values()]
    rows = pa.StructArray.from_arrays(arrays, [*columns])
    return pa.ListArray.from_arrays(np.array([0, len(rows)], np.int32), rows)


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
        """Add what `part_of` returns for parts of rows, in the order of time."""
        for _ in map(self._add, parts):  # none is held while the next one is made
            pass

    def _add(self, part: pa.Table) -> None:
        lists = {
            name: pa.Table.from_struct_array(part[name].chunk(0).flatten()) for name in part.column_names
        }
        groups, fills, uses = lists["groups"], lists["fills"], _arrays(lists["uses"])
        numbers = self._groups.add(groups.select(self._groups.keys))
        markets = self._moves.add(lists["markets"], **_arrays(lists["prices"]))
        self._parts.append(groups.append_column("number", pa.array(numbers)))
        columns = _arrays(fills)
        ids = numbers[columns["group"]].astype(np.int32)
        self._ages.add(np.arange(len(ids)) % BUCKETS, {"group": ids, "age": columns["age"]})
        self._changes = _go_on(self._changes, ids, columns["change"], len(self._groups))
        for name, of in (("group", numbers), ("market", markets)):
            uses[name] = of[uses[name]].astype(np.int32)
        self._uses.add(np.full(len(uses["age"]), min(len(self._parts), PARTS) - 1), uses)

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
        left = Uses(none, none, none, np.empty(0))
        for uses in self._uses:
            market, first = uses["market"], (uses["time"] + uses["age"]).min() - (self._limit or 0)
            error = uses["weight"] * np.sqrt(noise[market] + drift[market] * uses["age"])
            cells = uses["group"] * np.int64(len(places)) + places[market]
            used = Uses(cells, uses["time"], uses["rank"], error)
            is_settled = left.times < first
            squares = left.of(is_settled).added(squares, len(places))
            left = Uses(*map(np.append, left.of(~is_settled), used))
        return left.added(squares, len(places))


class Uses(NamedTuple):
    """Prices that values use, by cell of group and market, time and rank, with the error of each value."""

    cells: np.ndarray
    times: np.ndarray
    ranks: np.ndarray
    errors: np.ndarray

    def of(self, rows: np.ndarray) -> Uses:
        return Uses(*(column[rows] for column in self))

    def added(self, squares: np.ndarray, markets: int) -> np.ndarray:
        """Add the squares of errors to those of groups; two cores take groups of about as many uses each."""
        groups = self.cells // markets
        by_size = np.argsort(-np.bincount(groups, minlength=len(squares)))
        is_second = np.zeros(len(squares), bool)
        is_second[by_size[1::4]] = is_second[by_size[2::4]] = True
        second = is_second[groups]
        rows = (np.flatnonzero(second == part) for part in (True, False))
        found = cores.share(*(partial(self._added, some, squares, markets) for some in rows))
        return np.asarray(np.where(is_second, *found))

    def _added(self, rows: np.ndarray, squares: np.ndarray, markets: int) -> np.ndarray:
        """Add the squares of some rows' errors, after those of one price are added up."""
        uses = self.of(rows[sorted_by(self.cells[rows])])  # those of a cell are nearly in the order of time
        prices = uses.of(sorted_by(*uses[:-1]))
        starts = first_of(*prices[:-1])
        shared = np.add.reduceat(prices.errors, starts) if len(starts) else prices.errors
        group = prices.cells[starts] // markets
        market = prices.cells[starts] - group * markets
        order = sorted_by(group, prices.times[starts], market, prices.ranks[starts])
        return _go_on(squares, group[order], shared[order] ** 2, len(squares))


def _arrays(table: pa.Table) -> dict[str, np.ndarray]:
    return {name: table[name].to_numpy() for name in table.column_names}


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
