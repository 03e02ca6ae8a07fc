"""Means of fills, weighted by value, with intervals from a bootstrap clustered by order.

Fills of one order are one decision, so whole orders are resampled. How often an order counts in a draw
follows from its hash, the seed and the number of the draw alone: the order of rows and other groups change
nothing. Nor do the parts in which rows are added: sums are rounded alike in any order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, repeat
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from loopring_lab.amounts.limbs import floats
from loopring_lab.engines import workers
from loopring_lab.engines.aggregate import GroupBy, Groups
from loopring_lab.engines.arrays import (
    CHUNK,
    GAMMA,
    coded,
    first_of,
    mixed,
    numbers_of_ids,
    sorted_by,
    sorted_by_keys,
)
from loopring_lab.engines.cluster import Answers
from loopring_lab.engines.orders import order_ids
from loopring_lab.engines.pairs import Sides, count_sides, note_on_both_sides, sides_in_shares, sides_of
from loopring_lab.engines.selection import Apply, medians
from loopring_lab.engines.spill import BUCKETS, Buckets, Columns, in_shares, stacked
from loopring_lab.engines.windows import Parts
from loopring_lab.errors import LabError
from loopring_lab.fills.values import Rates, Values

FEWEST = 20
"""Fewer fills than these give no interval, nor do orders of which a few large ones outweigh the rest."""
UNIT_BITS = 12
UNITS_AT_MOST = 1 << UNIT_BITS
"""Resampled units of a group; more orders than these are put together at random."""
WORDS = 250  # each holds four draws of 16 bits
DRAWS = 4 * WORDS
UNITS_AT_ONCE = 1 << 11
TOGETHER = 16  # groups whose units are drawn alike
LOW_BITS = np.uint64(0xFFFF)
_TAILS = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(9)])
POISSON = np.searchsorted(_TAILS, (np.arange(1 << 16) + 0.5) / (1 << 16)).astype(np.uint8)
"""How often a unit counts in a draw, for each value of 16 random bits."""
ADDED_BITS = 26  # of each of two parts of a number, so that 2**27 of them add up without rounding
DRAWN_BITS = 34  # so that all units do, each counted at most nine times
LARGEST = 2.0**960
ORDER, TRADE, SIDE = "number of the order", "number of the trade", "number of the side"
"""Columns of `slim_rows`, named unlike those of trades."""


class Coded(NamedTuple):
    """Rows with their groups numbered, and of each group the keys, counts and quote tokens."""

    keys: pa.Table
    counts: np.ndarray
    quotes: set[tuple[int, str]]
    rows: Columns
    sides: Columns | None

    @classmethod
    def of(
        cls, fills: pa.Table, keys: Sequence[str], rates: Sequence[str], priced: str, values: Rates | None
    ) -> Coded:
        """Number the groups of `slim_rows` that have keys and rates, NaN where unknown."""
        groups, (places, names) = GroupBy(fills, keys), coded(fills["quote"])
        rows = {name: np.asarray(fills[name].to_numpy(), float) for name in rates}
        unknown = np.isnan(fills[priced].to_numpy())
        counts = [np.bincount(ids, minlength=groups.count) for ids in (groups.ids, groups.ids[unknown])]
        pairs = groups.ids * (len(names) + 1)
        pairs += places + 1
        seen = (divmod(pair, len(names) + 1) for pair in np.flatnonzero(np.bincount(pairs)).tolist())
        quotes = {(group, names[place - 1]) for group, place in seen if place}
        rows |= {"group": groups.ids, "order": fills[ORDER].to_numpy(), "weight": floats(fills["notional"])}
        if values:
            rows["value"] = values.of(fills)
        sides = None
        if TRADE in fills.column_names:
            sides = {"trade": fills[TRADE].to_numpy(), "side": fills[SIDE].to_numpy(), "group": groups.ids}
        return cls(groups.combinations(), np.array(counts), quotes, rows, sides)


class Estimates:
    """Estimates of rates of fills by keys, from parts of the rows that are added one after the other.

    `values` converts weights where a group mixes quote tokens. Rows beyond the memory limit go to disk;
    those that the workers of a cluster hold stay there.
    """

    def __init__(
        self, keys: Sequence[str], level: float, seed: int, values: Values, missing: str = "unpriced"
    ) -> None:
        self._groups, self._level, self._seed = Groups(keys), level, seed
        self._values, self._missing = values, missing
        self._quotes: set[tuple[int, str]] = set()
        self._counts = np.zeros((2, 0), np.int64)
        self._rows, self._sides = Buckets(), Sides()
        self._shared: SharedRows | None = None
        self._shared_sides: Iterable[tuple[int, np.ndarray]] = ()
        self._tells_sides = True
        self._rates: list[str] = []

    def add(self, parts: Iterable[pa.Table], rates: Sequence[str], priced: str) -> None:
        """Add parts of `slim_rows` with the keys and rates; those without the rate `priced` are missing."""
        self._rates, values = [*rates], self._values.rates if self._values.several else None
        code = partial(Coded.of, keys=self._groups.keys, rates=rates, priced=priced, values=values)
        if isinstance(parts, Parts) and parts.answers and (values is None or values.in_memory):
            self._shared = SharedRows(parts.answers, code, self._see)
            self._shared_sides = self._shared.both_sides(len(self._groups))
            parts.count(self._shared.counts)
            return
        for fills in parts:
            part = code(fills)
            numbers = self._see(part)
            self._rows.add(bucket_of(part.rows["order"]), _renumbered(part.rows, numbers))
            if part.sides:
                self._sides.add(part.sides["trade"], part.sides["side"], numbers[part.sides["group"]])

    def columns(self) -> dict[str, Any]:
        """Return the keys of each group and what is known of it, in the order of keys."""
        groups, count = self._groups.ordered(), len(self._groups)
        place = groups.first_rows
        quotes = np.bincount(np.array([group for group, _ in self._quotes], np.int64), minlength=count)
        rows = self._shared or SortedParts(self._rows)
        found = estimate(rows, self._rates, count, self._level, self._seed, alone=quotes == 1)
        counts = {"fills": self._counts[0], self._missing: self._counts[1]}
        both = pa.array(self._both_sides[1]) if self._tells_sides else pa.nulls(count, pa.int64())
        columns = {name: pa.array(x[place], from_pandas=True) for name, x in (counts | found).items()}
        return groups.key_columns() | columns | {"both_sides": both.take(pa.array(place))}

    @property
    def note(self) -> str:
        """Say of how many fills both sides are counted; empty where of none."""
        return note_on_both_sides(self._both_sides[0])

    def _see(self, part: Coded) -> np.ndarray:
        """Add what is known of the groups of a part, and return their numbers."""
        numbers = self._groups.add(part.keys)
        counts = np.zeros((2, len(self._groups)), np.int64)
        counts[:, : self._counts.shape[1]] = self._counts
        counts[:, numbers] += part.counts
        self._counts = counts
        self._quotes |= {(int(numbers[group]), quote) for group, quote in part.quotes}
        self._tells_sides &= part.sides is not None
        return numbers

    @cached_property
    def _both_sides(self) -> tuple[int, np.ndarray]:
        """Count the fills of which both sides are there, and those of which a group has both."""
        count = len(self._groups)
        found = [self._sides.count(np.arange(count), count), *self._shared_sides]
        totals, counts = zip(*found, strict=True)
        return sum(totals), np.sum(counts, axis=0)


class SortedParts:
    """Rows in parts of whole orders, sorted; kept while all are in memory."""

    def __init__(self, rows: Buckets) -> None:
        self._rows = rows
        self._kept = [SortedRows(part) for part in rows] if rows.in_memory else None

    def each(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """Yield what a function makes of each part."""
        for part in self._kept or map(SortedRows, self._rows):
            yield function(part, *arguments)

    def known(self, rates: Sequence[str], count: int) -> Apply:
        """Return what applies a function to the rates that are known, by group, one rate after the other."""
        known, parts = partial(_of_known, rates, count), partial(self._rows.parts, "group", *rates)
        return lambda function: chain.from_iterable(known(part, function) for part in parts())


class Share(NamedTuple):
    """Rows of the same orders, and parts of the sides of the same trades, if these are told."""

    rows: SortedRows
    sides: list[Columns]


class SharedRows:
    """Rows on the workers of a cluster, where they are shared out by order, and their sides by trade."""

    def __init__(
        self, answers: Answers, code: Callable[[pa.Table], Coded], see: Callable[[Coded], np.ndarray]
    ) -> None:
        self._client, count = answers.client, answers.shares
        (sent,) = self._client.scatter([code], broadcast=True, hash=False)
        heads, *pieces = answers.pieces(1 + count, _in_shares, repeat(sent), repeat(count))
        parts, counts = zip(*self._client.gather(heads), strict=True)
        numbers, self.counts = [*map(see, parts)], sum(counts, Counter[str]())
        homes, places = workers.homes(self._client), range(count)  # Dask would give some far more of them
        self._homes = [workers.best_at(workers.home(homes, place, count)) for place in places]
        self._shares = self._submit(_share, pieces, repeat(numbers))

    def each(self, function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """Start to apply a function to each part, and yield what it makes of them."""
        return self._apply(lambda share: function(share.rows, *arguments))

    def known(self, rates: Sequence[str], count: int) -> Apply:
        """Return what applies a function ahead of all else, as that of `SortedParts` does."""
        known = partial(_of_known, rates, count)
        return lambda function: chain.from_iterable(
            self._apply(lambda share: known(share.rows.columns, function), workers.AHEAD)
        )

    def both_sides(self, count: int) -> Iterator[tuple[int, np.ndarray]]:
        """Count, for each share, the trades with both sides, and those of each of so many groups."""
        return self._apply(lambda share: count_sides(share.sides, count), workers.BEHIND)

    def _apply(self, function: Callable[[Share], Any], priority: int = 0) -> Iterator[Any]:
        return workers.in_turn(
            self._submit(workers.keeping_memory(function), self._shares, priority=priority)
        )

    def _submit(self, task: Callable[..., Any], *arguments: Iterable[Any], **options: Any) -> list[Any]:
        """Start a task for each share where it is."""
        submit = partial(self._client.submit, task, pure=False, **options)
        return [submit(*some, **home) for *some, home in zip(*arguments, self._homes, strict=False)]


def _in_shares(fills: pa.Table, code: Callable[[pa.Table], Coded], count: int) -> list[Any]:
    """Return what is known of groups and was counted beside them, then rows and sides of each share."""
    part = code(fills)
    rows = in_shares(part.rows, bucket_of(part.rows["order"]), count)
    sides = sides_in_shares(part.sides, count) if part.sides else [Columns()] * count
    head = part._replace(rows={}, sides=part.sides and {})
    return [(head, Counter(workers.counts_of(fills.schema))), *zip(rows, sides, strict=True)]


@workers.keeping_memory
def _share(pieces: Sequence[tuple[Columns, Columns]], numbers: Sequence[np.ndarray]) -> Share:
    """Put the rows of a share together, and the sides."""
    rows, sides = (
        [_renumbered(*one) for one in zip(columns, numbers, strict=True) if one[0]]
        for columns in zip(*pieces, strict=True)
    )
    return Share(SortedRows(stacked(rows)), sides)


def _renumbered(rows: Columns, numbers: np.ndarray) -> Columns:
    return rows | {"group": numbers.astype(np.int32)[rows["group"]]}


def check_sampling(level: Any, seed: Any, caller: str) -> None:
    """Raise a `LabError` unless the level lies between 0 and 1 and the seed is a whole number from 0."""
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise LabError(f"{caller}: intervals={level!r} is not a level between 0 and 1. Give one like 0.95.")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise LabError(f"{caller}: seed={seed!r} is not a whole number from 0. Give one such as 0.")


def slim_rows(fills: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the columns of these names that fills have, and what estimates need: no text for each fill."""
    kept = [name for name in dict.fromkeys([*names, "quote", "moment"]) if name in fills.column_names]
    columns: dict[str, Any] = {name: fills[name] for name in kept}
    columns |= {"notional": floats(fills["notional"]), ORDER: order_numbers(fills)}
    if {"trade_id", "side"} <= {*fills.column_names}:
        columns |= zip((TRADE, SIDE), sides_of(fills), strict=True)
    return pa.table(columns)


def order_numbers(fills: pa.Table) -> np.ndarray:
    """Return a 64-bit number for the order of each fill; a fill of an unknown order stands for itself."""
    ids = order_ids(fills)
    unknown = ids == 0
    if unknown.any() and "trade_id" in fills.column_names:
        ids = np.where(unknown, mixed(numbers_of_ids(fills["trade_id"])), ids)
    return ids


def bucket_of(orders: np.ndarray) -> np.ndarray:
    """Return the bucket of orders: those that are resampled as one unit share it."""
    return (orders >> np.uint64(UNIT_BITS - 8)).astype(np.uint8)


def estimate(
    rows: SortedParts | SharedRows,
    rates: Sequence[str],
    count: int,
    level: float,
    seed: int,
    alone: np.ndarray | None = None,
) -> Columns:
    """Estimate rates of fills by ``group``, weighted by ``value`` in groups that are not `alone`.

    Rows also have the columns ``order``, ``weight`` and the rates, in parts by `bucket_of`.
    """
    nothing = np.zeros((1 + len(rates), count), np.int64)
    orders, *known = sum(rows.each(SortedRows.counts, rates, count), nothing)
    many, cells = orders > UNITS_AT_MOST, Buckets()
    parts, bootstrap = rows.each(SortedRows.cells, rates, many, alone), Bootstrap(seed, level)
    bootstrap.counts(np.empty(0, np.uint64), many=bool(many.any()))  # drawn while workers add up
    middle = medians(rows.known(rates, count), np.concatenate(known)).reshape(len(rates), count)
    for found in parts:
        cells.add(found["group"] % BUCKETS, found)
    drawn = {what: np.full((len(rates), count), np.nan) for what in ("mean", "weighted", "low", "high")}
    for some in cells:
        _estimate_cells(some, rates, dict(zip(rates, known, strict=True)), many, bootstrap, drawn)
    columns: Columns = {"orders": orders}
    for number, name in enumerate(rates):
        columns |= {f"{what}_{name}": drawn[what][number] + 0.0 for what in ("mean", "weighted")}
        columns[f"median_{name}"] = middle[number] + 0.0
        columns |= {f"{what}_{name}": drawn[what][number] + 0.0 for what in ("low", "high")}
    return columns


def effective_orders(rows: Buckets, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Count the orders of each group, and how many of equal weight would say as much (Kish).

    Rows have the columns ``group``, ``order`` and ``weight``, in parts by `bucket_of`.
    """
    sums = np.zeros((3, count))
    for part in rows:
        found = SortedRows(part)
        groups, weights = found.groups[found.starts], sums_between(found.starts, part["weight"][found.place])
        sums += [np.bincount(groups, values, count) for values in (weights**0, weights, weights**2)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return sums[0].astype(np.int64), sums[1] ** 2 / sums[2]


def wilson(share: np.ndarray, orders: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of Wilson's score interval of shares of orders; it also holds near 0 and 1."""
    square = NormalDist().inv_cdf((1 + level) / 2) ** 2
    middle = (share + square / (2 * orders)) / (1 + square / orders)
    within = share * (1 - share) * square / orders + (square / (2 * orders)) ** 2
    reach = np.sqrt(within) / (1 + square / orders)
    return (middle - reach).clip(0, 1), (middle + reach).clip(0, 1)


class SortedRows:
    """Rows sorted by group, unit and order; `starts` are the places where an order in a group begins."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        turned = columns["order"] << np.uint64(64 - UNIT_BITS) | columns["order"] >> np.uint64(UNIT_BITS)
        self.place = sorted_by_keys(columns["group"], turned, turned)
        self.groups, self.orders = columns["group"][self.place], columns["order"][self.place]
        self.starts = first_of(self.groups, self.orders)

    def counts(self, rates: Sequence[str], count: int) -> np.ndarray:
        """Count the orders of each of so many groups, and the fills that have each rate."""
        groups = self.columns["group"]
        counted = [groups[~np.isnan(self.columns[name])] for name in rates]
        return np.array([np.bincount(some, minlength=count) for some in (self.groups[self.starts], *counted)])

    def cells(self, rates: Sequence[str], many: np.ndarray, alone: np.ndarray | None) -> Columns:
        """Add up what the bootstrap needs over the fills of each unit of a group."""
        units = np.where(many, np.uint64(UNITS_AT_MOST - 1), ~np.uint64(0))[self.groups]
        units &= self.orders
        starts = first_of(self.groups, units)
        of_orders = np.searchsorted(self.starts, starts)
        weights = self.columns["weight"]
        if alone is not None and "value" in self.columns:
            weights = np.where(alone[self.columns["group"]], weights, self.columns["value"])
        weights = weights[self.place]
        found: Columns = {"group": self.groups[starts], "unit": units[starts]}
        sums: list[tuple[np.ndarray, ...]] = []
        for name in rates:
            values = self.columns[name][self.place]
            unknown = np.isnan(values)
            values[unknown] = 0.0
            same = [of_mask for mask, *of_mask in sums if (mask == unknown).all()]
            if not same:
                weighed = np.where(unknown, 0.0, weights)
                of_order = sums_between(self.starts, weighed)
                same = [[weighed, sums_between(starts, weighed), sums_between(of_orders, of_order**2)]]
                sums.append((unknown, *same[0]))
            weighed, found[f"weight {name}"], found[f"square {name}"] = same[0]
            found[f"value {name}"] = sums_between(starts, values)
            values *= weighed
            found[f"product {name}"] = sums_between(starts, values)
        return found


def _estimate_cells(
    cells: Columns,
    rates: Sequence[str],
    known: Mapping[str, np.ndarray],
    many: np.ndarray,
    bootstrap: Bootstrap,
    drawn: dict[str, np.ndarray],
) -> None:
    """Estimate the groups of some cells, of which all are here."""
    place = sorted_by(cells["group"])
    cells = {name: column[place] for name, column in cells.items()}
    starts = first_of(cells["group"])
    stops, groups = np.append(starts, len(place))[1:], cells["group"][starts]
    wanted: dict[int, list[int]] = {}
    for number, name in enumerate(rates):
        kinds = ("value", "weight", "square", "product")
        value, weight, square, product = (sums_between(starts, cells[f"{kind} {name}"]) for kind in kinds)
        fills = known[name][groups]
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn["mean"][number, groups] = value / fills
            drawn["weighted"][number, groups] = np.where(weight > 0, product / weight, np.nan)
            effective = weight**2 / square  # how many orders of equal value would say as much (Kish)
        for row in np.flatnonzero((weight > 0) & (np.minimum(fills, effective) >= FEWEST)).tolist():
            wanted.setdefault(row, []).append(number)
    alike = [row for row in wanted if many[groups[row]]]
    each = [[row] for row in wanted if not many[groups[row]]]
    for rows in each + [alike[start : start + TOGETHER] for start in range(0, len(alike), TOGETHER)]:
        asked = [(row, number) for row in rows for number in wanted[row]]
        units = cells["unit"][starts[rows[0]] : stops[rows[0]]]
        is_many = bool(many[groups[rows[0]]])
        units = np.arange(UNITS_AT_MOST) if is_many else units
        sums = np.zeros((2 * len(asked), len(units)))
        for line, (row, number) in enumerate(asked):
            part = slice(starts[row], stops[row])
            at = cells["unit"][part].astype(np.int64) if is_many else slice(None)
            for kind, name in enumerate(("weight", "product")):
                sums[2 * line + kind, at] = cells[f"{name} {rates[number]}"][part]
        totals = drawn_sums(bootstrap.counts(units, many=is_many), sums)
        for (row, number), (weight, product) in zip(asked, totals.reshape(-1, 2, DRAWS), strict=True):
            ends = bootstrap.interval(product, weight)
            drawn["low"][number, groups[row]], drawn["high"][number, groups[row]] = ends


class Bootstrap:
    """How often units count in the draws, and intervals from what is drawn."""

    def __init__(self, seed: int, level: float) -> None:
        self._steps = np.arange(WORDS, dtype=np.uint64) + np.uint64(seed * WORDS % 2**64)
        self._tail = (1 - level) / 2
        self._of_units: np.ndarray | None = None

    def counts(self, units: np.ndarray, *, many: bool) -> np.ndarray:
        """Return how often each unit counts in each draw: units by draws; `many` are numbers of units."""
        if not many:
            return self._draw(units)
        if self._of_units is None:
            self._of_units = self._draw(np.arange(UNITS_AT_MOST, dtype=np.uint64))
        return self._of_units[units.astype(np.int64)]

    def interval(self, numerators: np.ndarray, denominators: np.ndarray) -> tuple[float, float]:
        """Return the percentiles of a ratio in draws, without undefined ones."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = numerators / denominators
        known = ratios[~np.isnan(ratios)]
        low, high = np.quantile(known, [self._tail, 1 - self._tail]) if len(known) else (np.nan, np.nan)
        return float(low), float(high)

    def _draw(self, units: np.ndarray) -> np.ndarray:
        counts = np.empty((len(units), DRAWS), np.uint8)
        for start in range(0, len(units), UNITS_AT_ONCE):
            part = slice(start, start + UNITS_AT_ONCE)
            words = mixed(units[part, None] + self._steps * np.uint64(GAMMA))
            for quarter in range(4):
                rows = slice(quarter * WORDS, (quarter + 1) * WORDS)
                counts[part, rows] = POISSON[words >> np.uint64(16 * quarter) & LOW_BITS]
        return counts


def drawn_sums(counts: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Add up columns over units, each counted as often as it is drawn: columns by draws.

    Numbers are split into parts whose sums are exact, so that the order of adding them changes nothing.
    """
    shift = _shift(np.abs(sums).max(axis=1, initial=0.0, keepdims=True), DRAWN_BITS)
    high = (sums + shift) - shift
    shift = shift * 2.0**-DRAWN_BITS
    low = (sums - high + shift) - shift
    parts = np.concatenate([high, low])
    totals = np.zeros((len(parts), DRAWS))
    for start in range(0, len(counts), UNITS_AT_ONCE):
        some = slice(start, start + UNITS_AT_ONCE)
        totals += parts[:, some] @ counts[some].astype(np.float64)
    return totals[: len(sums)] + totals[len(sums) :]


def sums_between(starts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Add up values from each start to the next; the order of values in between changes nothing."""
    if not len(starts):
        return np.zeros(0)
    sums, counts = np.add.reduceat(values, starts), np.diff(np.append(starts, len(values)))
    several = (counts > 2) & (np.abs(sums) < LARGEST)
    if not several.any():
        return sums
    if not several.all():
        values, counts = values[np.repeat(several, counts)], counts[several]
        starts = np.cumsum(counts) - counts
    top = np.maximum(np.maximum.reduceat(values, starts), -np.minimum.reduceat(values, starts))
    shifts, high, low = _shift(top, ADDED_BITS), *np.zeros((2, len(starts)))
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK]
        some = slice(*np.searchsorted(starts, [start, start + len(part) - 1], "right") - [1, 0])
        at = np.maximum(starts[some] - start, 0)
        shift = np.repeat(shifts[some], np.diff(np.append(at, len(part))))
        rounded = part + shift - shift
        high[some] += np.add.reduceat(rounded, at)
        shift *= 2.0**-ADDED_BITS
        low[some] += np.add.reduceat(part - rounded + shift - shift, at)
    sums[several] = np.where(top < LARGEST, high + low, sums[several])
    return sums


def _shift(top: np.ndarray, bits: int) -> np.ndarray:
    """Return what rounds numbers to so many bits of the largest, if it is added and taken away again."""
    return np.asarray(np.ldexp(1.5, np.frexp(top)[1] + (52 - bits)))


def _of_known(rates: Sequence[str], count: int, rows: Columns, function: Callable[..., Any]) -> list[Any]:
    """Apply a function to the known values of each rate and their groups, numbered on from rate to rate."""
    found = []
    for number, name in enumerate(rates):
        groups, values = rows["group"] + number * count, rows[name]
        if not (known := ~np.isnan(values)).all():
            groups, values = groups[known], values[known]
        found.append(function(groups, values))
    return found
