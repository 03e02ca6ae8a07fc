"""Sums of values, and how far they may be off: by how much prices vary, and change after the fills.

Parts of rows, added one after the other in the order of time, give the same digits as one: sums of floats are
exact, or go on where the last part ended. Of what the workers of a cluster find, most stays with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from loopring_lab import cores
from loopring_lab.amounts.limbs import floats
from loopring_lab.amounts.scaling import UNIT, combined
from loopring_lab.engines import workers
from loopring_lab.engines.aggregate import GroupBy, Groups, PairedFills
from loopring_lab.engines.arrays import (
    distinct,
    first_of,
    float_keys,
    is_among,
    narrowed,
    pieces_of_sums,
    sorted_by,
    sorted_by_keys,
    sums_of_pieces,
)
from loopring_lab.engines.asof import PriceHistory
from loopring_lab.engines.orders import moments_of
from loopring_lab.engines.pairs import count_sides, row_groups, sides_in_shares, sides_of
from loopring_lab.engines.selection import medians
from loopring_lab.engines.spill import Buckets, Columns, stacked

if TYPE_CHECKING:
    from loopring_lab.engines.cluster import Answers
    from loopring_lab.engines.windows import Parts, Window
    from loopring_lab.fees.valuation import Valued

DEVIATIONS = 1.96  # 95 % of a normal distribution
AGES = pa.duration("ms")
KEPT_BITS = 12
"""Times between prices are told apart by so many binary digits."""
PARTS = 1 << 15  # that are told apart
NOTHING = np.empty(0, np.int64)
PER_BPS = 10**6  # more digits of within_bps depend on the processor's logarithms
MARKET = ("base", "quote")
PRICE = ("group", "market", "time", "rank")
"""What tells prices that groups use apart."""
ADDED = ("groups", "changes", "shared", "markets", "prices")
"""The tables of a part that are added up in this process."""

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

    def variances(self) -> np.ndarray:
        """Return the variances of each market's log price: between trades, then per millisecond; or NaN.

        Noise weighs most in the quarter with the shortest gaps.
        """
        found = np.full((2, len(self._numbers)), np.nan)
        for pair, number in self._numbers.items():
            if not self._passed.get(pair):
                continue
            _, counts, squares = self._gaps[pair]
            least = -(-counts.sum() // 4)
            shares = np.clip((least - counts.cumsum() + counts) / counts, 0, 1)
            found[:, number] = (squares * shares).sum() / least / 2, squares.sum() / self._passed[pair]
        return found

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
        numbers = np.append(before[0], (bits << KEPT_BITS - 1) + (gaps >> bits))
        counts = np.bincount(numbers, np.append(before[1], np.ones(len(gaps))))
        sums, there = np.bincount(numbers, np.append(before[2], squares)), np.flatnonzero(counts > 0)
        self._gaps[pair] = there, counts[there].astype(np.int64), sums[there]


def part_of(window: Window, found: Valued, keys: Sequence[str], sides: Sequence[str]) -> pa.Table:
    """Return, as lists in one row, the sums of a window's fills by keys and what tells how far these are off.

    `sides` are the columns that tell both sides of fills, if trades do.
    """
    names, history = [*dict.fromkeys([*keys, "fee", *sides])], found.markets.history
    fills, amounts = window.own(window.rows.select(names)), found.amounts()
    moments, unpriced = moments_of(window.rows)[window.inside], np.asarray(amounts.is_null())
    ages = moments - found.oldest
    fills = fills.append_column("fee_value", amounts).append_column("age", pa.array(ages, mask=unpriced))
    groups = GroupBy(fills, keys)
    sums = {
        "fills": np.bincount(groups.ids, minlength=groups.count),
        "unpriced": np.bincount(groups.ids[unpriced], minlength=groups.count),
        "fee": groups.sum("fee"),
        "fee_value": groups.sum("fee_value"),
        "max_age": groups.aggregate("age", "max"),
    }
    priced = np.flatnonzero(~unpriced)
    ids, moments = groups.ids[priced].astype(np.int32), moments[priced]
    values, logs = floats(amounts)[priced], np.asarray(np.log(history.amounts.floats / UNIT))
    changes = values * np.expm1(_moved(found, logs))[priced]
    order = _in_order(ids, moments, np.abs(values))
    at, is_own = found.positions[:, priced[order]], window.own_prices[history.rows]
    mine, pairs = np.flatnonzero(is_own), history.combinations()
    tables = {
        "groups": groups.key_columns() | sums,
        "changes": pieces_of_sums(ids, changes),
        "ages": {"group": ids, "age": ages[priced]},
        **_uses(ids[order], moments[order], np.abs(values[order]), at, history, is_own),
        "markets": {
            n: pa.array([pair[place] for pair in pairs], pa.string()) for place, n in enumerate(MARKET)
        },
        "prices": {"market": _markets(history, mine), "time": history.times[mine], "log": logs[mine]},
    }
    if sides:
        tables["sides"] = dict(zip(("trade", "side", "group"), (*sides_of(fills), groups.ids), strict=True))
    return pa.table({name: _in_one_row(columns) for name, columns in tables.items()})


def _moved(found: Valued, logs: np.ndarray) -> np.ndarray:
    """Return how log prices of each row's path move on to the first ones after the fill."""
    at, count = found.positions.ravel(), found.positions.shape[1]
    there = np.flatnonzero(at >= 0)
    to = found.later.ravel()[there]
    moved = np.where(to < 0, 0.0, logs[to] - logs[at[there]])
    return np.bincount(there % count, np.where(found.forward.ravel()[there], moved, -moved), count)


def _uses(
    groups: np.ndarray,
    moments: np.ndarray,
    weights: np.ndarray,
    at: np.ndarray,
    history: PriceHistory,
    is_own: np.ndarray,
) -> dict[str, dict[str, np.ndarray]]:
    """Return the prices that groups use, each with how many values, and these values in the same order.

    Of prices that are not its own, which other parts use too, the times are `shared`.
    """
    steps, at = len(at), at.T.ravel()
    there = np.flatnonzero(at >= 0)
    rows, at, market = there // steps, at[there], _markets(history, np.arange(len(history)))
    order = sorted_by(groups[rows], market[at])  # those of a group and market are nearly in the order of time
    order = order[sorted_by(groups[rows[order]], at[order])]
    rows, at = rows[order], at[order]
    starts = first_of(groups[rows], at)
    first = at[starts]
    used = {"group": groups[rows[starts]], "market": market[first], "time": history.times[first]}
    used |= {"rank": first - history.starts[first], "uses": np.diff(starts, append=len(at))}
    uses = {"weight": weights[rows], "age": moments[rows] - history.times[at]}
    return {"used": used, "uses": uses, "shared": {"time": distinct(history.times[first[~is_own[first]]])}}


def _markets(history: PriceHistory, positions: np.ndarray) -> np.ndarray:
    """Number the markets of positions as `PriceHistory.combinations` lists them."""
    _, starts, stops = history.runs
    return np.asarray(np.repeat(np.arange(len(starts), dtype=np.int32), stops - starts)[positions])


def _in_one_row(columns: dict[str, Any]) -> pa.ListArray:
    arrays = [
        pa.array(narrowed(one)) if isinstance(one, np.ndarray) else combined(one) for one in columns.values()
    ]
    rows = pa.StructArray.from_arrays(arrays, [*columns])
    return pa.ListArray.from_arrays(np.array([0, len(rows)], np.int32), rows)


def _sides_in_shares(part: pa.Table, shares: int) -> list[Columns]:
    """Return the sides of fills of a part in shares by trade."""
    return sides_in_shares(_columns(_table(part["sides"])), shares)


@workers.keeping_memory
def _both_sides(
    pieces: Sequence[Columns], numbers: Sequence[np.ndarray], size: int
) -> tuple[int, np.ndarray]:
    """Count the trades of a share with both sides, whose groups have these numbers."""
    parts = zip(pieces, numbers, strict=True)
    return count_sides((piece | {"group": groups[piece["group"]]} for piece, groups in parts), size)


def _table(lists: pa.ChunkedArray) -> pa.Table:
    return pa.Table.from_struct_array(lists.chunk(0).flatten())


class Sums:
    """Sums of each group's values, added part by part in the order of time.

    Prices count once for all fills valued at them. The sides of fills are added to `paired`.
    """

    def __init__(self, keys: Sequence[str], paired: PairedFills) -> None:
        self._groups, self._moves, self._paired = Groups(keys), Moves(), paired
        self._parts: list[pa.Table] = []
        self._changes, self._shared, self._markets = list[Columns](), list[np.ndarray](), list[np.ndarray]()
        self._ages, self._used, self._uses = (Buckets(PARTS) for _ in range(3))
        self._answers: Answers | None = None

    def add(self, parts: Parts) -> None:
        """Add what `part_of` returns for parts of rows, in the order of time."""
        self._answers = parts.answers
        if parts.answers and self._paired.columns:
            shares = parts.answers.shares
            pieces = parts.answers.pieces(shares, _sides_in_shares, repeat(shares))
            self._paired.count_sides = partial(self._count_on_workers, parts.answers.client, [*pieces])
        for _ in map(self._add, parts.answers.columns(ADDED) if parts.answers else parts):
            pass  # none is held meanwhile

    def _add(self, part: pa.Table) -> None:
        lists = {one: _table(part[one]) for one in part.column_names}
        groups, changes = lists["groups"], _arrays(lists["changes"])
        numbers = self._groups.add(groups.select(self._groups.keys)).astype(np.int32)
        markets = self._moves.add(lists["markets"], **_arrays(lists["prices"])).astype(np.int32)
        if "sides" in lists:
            trade, side, group = _arrays(lists["sides"]).values()
            self._paired.add(trade, side, group + sum(map(len, self._parts)))
        self._parts.append(groups.append_column("number", pa.array(numbers)))
        self._markets.append(markets)
        self._changes.append(changes | {"group": numbers[changes["group"]]})
        self._shared.append(_arrays(lists["shared"])["time"])
        number = min(len(self._parts), PARTS) - 1
        if "used" in lists:
            ages = _arrays(lists["ages"])
            self._ages.add(np.full(len(ages["age"]), number), ages | {"group": numbers[ages["group"]]})
            used, uses = _arrays(lists["used"]), _arrays(lists["uses"])
            used |= {"group": numbers[used["group"]], "market": markets[used["market"]]}
            used["part"] = np.full(len(used["uses"]), len(self._parts), np.int32)
            self._used.add(np.full(len(used["uses"]), number), used)
            self._uses.add(np.full(len(uses["age"]), number), uses)
        if not (self._used.in_memory and self._uses.in_memory):
            self._used.to_disk()
            self._uses.to_disk()

    def columns(self, keys: Sequence[str]) -> tuple[GroupBy, dict[str, Any]]:
        """Return the groups and their columns; both sides of fills are counted by `keys`."""
        groups = GroupBy(pa.concat_tables(self._parts, promote_options="permissive"), self._groups.keys)
        number_of = np.empty(groups.count, np.int64)
        number_of[groups.ids] = groups.table["number"].to_numpy()
        columns = {name: groups.sum(name) for name in ("fills", "unpriced", "fee", "fee_value")}
        totals = np.abs(floats(columns["fee_value"]))
        counts = columns["fills"].to_numpy() - columns["unpriced"].to_numpy()
        to_ages = partial(self._to_ages, self._answers) if self._answers else self._ages.of("group", "age")
        ages = partial(medians, to_ages, counts[np.argsort(number_of)])
        both = partial(self._paired.count, groups, around=GroupBy(groups.table, keys))
        squares = partial(self._add_up, self._squares())  # which the workers have begun
        middle, columns["both_sides"], squares = cores.share(ages, both, squares)
        changes = sums_of_pieces(stacked(self._changes), len(self._groups))
        error = DEVIATIONS * np.sqrt(squares[number_of]) + np.abs(changes[number_of])
        with np.errstate(divide="ignore", invalid="ignore"):
            bps = np.where(error == 0, 0.0, np.ceil(10_000 * error / totals * PER_BPS) / PER_BPS)
        columns["within_bps"] = pa.array(bps, mask=~np.isfinite(bps) | np.isnan(totals))
        middle = np.rint(np.nan_to_num(middle[number_of])).astype(np.int64)
        longest = groups.aggregate("max_age", "max").fill_null(0).to_numpy()
        for name, ages in (("median_age", middle), ("max_age", longest)):  # DuckDB reads under nulls too
            columns[name] = pa.array(ages, AGES, mask=counts == 0)
        return groups, columns

    def _to_ages(self, answers: Answers, function: Callable[[np.ndarray, np.ndarray], Any]) -> Iterator[Any]:
        """Apply a function to the groups and ages of each part on its worker."""
        found = answers.each(_ages_of_part, repeat(function), self._numbers(), priority=workers.AHEAD)
        return workers.in_turn(found)

    def _numbers(self) -> Iterator[np.ndarray]:
        """Yield the numbers of each part's groups."""
        return (part["number"].to_numpy() for part in self._parts)

    def _count_on_workers(
        self, client: Any, shares: Sequence[Sequence[Any]], groups: np.ndarray, size: int
    ) -> tuple[int, np.ndarray]:
        numbers = np.split(groups, np.cumsum([*map(len, self._parts)])[:-1])
        count = partial(client.submit, _both_sides, pure=False, priority=workers.BEHIND)
        found = workers.in_turn([count(pieces, numbers, size) for pieces in shares])
        totals, counts = zip(*found, strict=True)
        return sum(totals), np.sum(counts, axis=0)

    def _squares(self) -> Iterator[tuple[Columns, Columns, np.ndarray]]:
        """Square the errors of each part, those of one price together."""
        variances, shared = self._moves.variances(), distinct(np.concatenate([*self._shared, NOTHING]))
        if self._answers:
            found = self._answers.each(
                _squares_of_part, repeat(variances), repeat(shared), self._numbers(), self._markets
            )
            return workers.in_turn(found)
        rows = chain.from_iterable(map(_by_part, self._used.parts(), self._uses.parts()))
        return (_squares(used, uses, variances, shared) for used, uses in rows)

    def _add_up(self, parts: Iterable[tuple[Columns, Columns, np.ndarray]]) -> np.ndarray:
        """Add up the squares of each group's errors."""
        left, pieces = Errors(), list[Columns]()
        for squares, prices, errors in parts:
            pieces.append(squares)
            left.add(prices, errors)
        return sums_of_pieces(stacked([*pieces, left.squares()]), len(self._groups))


class Errors:
    """The sums of errors of prices that several parts use: those of a part go on where the last one ended."""

    def __init__(self) -> None:
        self._prices = dict.fromkeys(PRICE, NOTHING)
        self._sums: np.ndarray = np.zeros(0)

    def add(self, prices: Columns, errors: np.ndarray) -> None:
        """Add prices, each with the errors of so many ``uses``."""
        before = len(self._sums)
        rows = {name: np.append(self._prices[name], prices[name]) for name in PRICE}
        numbers, first = row_groups(pa.table(rows), PRICE)
        self._prices = {name: column[first] for name, column in rows.items()}
        used = np.append(numbers[:before], np.repeat(numbers[before:], prices["uses"]))
        self._sums = np.bincount(used, np.append(self._sums, errors), len(first))

    def squares(self) -> Columns:
        """Return the sums of squares by group, in pieces."""
        return pieces_of_sums(self._prices["group"], self._sums**2)


def _squares(
    used: Columns, uses: Columns, variances: np.ndarray, shared: np.ndarray
) -> tuple[Columns, Columns, np.ndarray]:
    """Return sums of squares of a part in pieces, then its prices of `shared` times and their errors."""
    (noise, drift), market = variances, np.repeat(used["market"], used["uses"])
    errors = uses["weight"] * np.sqrt(noise[market] + drift[market] * uses["age"])
    several = is_among(used["time"], shared)
    sums = np.bincount(np.repeat(np.arange(len(several)), used["uses"]), errors, len(several))
    squares = pieces_of_sums(used["group"][~several], sums[~several] ** 2)
    prices = {name: used[name][several] for name in (*PRICE, "uses")}
    return squares, prices, errors[np.repeat(several, used["uses"])]


def _squares_of_part(
    part: pa.Table, variances: np.ndarray, shared: np.ndarray, groups: np.ndarray, markets: np.ndarray
) -> tuple[Columns, Columns, np.ndarray]:
    """Return what `_squares` does for a part whose groups and markets have these numbers."""
    used, uses = (_columns(_table(part[name])) for name in ("used", "uses"))
    used |= {"group": groups[used["group"]], "market": markets[used["market"]]}
    return _squares(used, uses, variances, shared)


def _ages_of_part(
    part: pa.Table, function: Callable[[np.ndarray, np.ndarray], Any], groups: np.ndarray
) -> Any:
    """Apply a function to the groups, which have these numbers, and ages of a part."""
    ages = _arrays(_table(part["ages"]))
    return function(groups[ages["group"]], ages["age"])


def _by_part(used: Columns, uses: Columns) -> Iterator[tuple[Columns, Columns]]:
    """Yield the prices that each part uses, which are different ones, and the values that use them."""
    ends, starts = np.append(0, used["uses"].cumsum()), first_of(used["part"])
    for start, end in pairwise([*starts.tolist(), len(used["part"])]):
        values = {name: column[ends[start] : ends[end]] for name, column in uses.items()}
        yield {name: column[start:end] for name, column in used.items()}, values


def _columns(table: pa.Table) -> Columns:
    return {name: table[name].to_numpy() for name in table.column_names}


def _arrays(table: pa.Table) -> Columns:
    """Return columns; what was narrowed has the same type in all parts again."""
    columns = _columns(table).items()
    return {n: one.astype(np.int64, copy=False) if one.dtype.kind == "i" else one for n, one in columns}


def _in_order(groups: np.ndarray, moments: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the order of rows by group and moment; those of one moment by weight."""
    order = sorted_by(groups, moments)
    starts = first_of(groups[order], moments[order])
    counts = np.diff(np.append(starts, len(order)))
    run = np.repeat(np.arange(len(starts)), counts)
    tied = np.flatnonzero(counts[run] > 1)
    rows = order[tied]
    weights = weights[rows]
    order[tied] = rows[sorted_by_keys(run[tied], float_keys(weights), weights)]
    return order
