"""Order statistics of groups, selected exactly from rows that need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from loopring_lab.amounts import limbs
from loopring_lab.amounts.limbs import LIMB, Limbs
from loopring_lab.amounts.scaling import combined
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import DECIMAL_256
from loopring_lab.engines.aggregate import GroupBy, Groups, PairedFills, rates_of, thousandths
from loopring_lab.engines.arrays import CHUNK, first_of, float_keys, mixed, sorted_by_keys
from loopring_lab.engines.pairs import row_groups, sides_of
from loopring_lab.engines.spill import BUCKETS, Buckets, Columns

EIGHTHS = np.uint64(49)  # bits of a float below the first three of its fraction
AT_ONCE, GROUPS_AT_ONCE = 1 << 18, 64
"""Of more values, samples are taken of groups with more than this part of all."""
LESS, LOW, BETWEEN, HIGH = range(4)
SIDES_OF_ENDS = 5
"""Where a value is: less than two ends, equal to the lower one, between, equal to the upper one, or more."""
REACHES = 1.25, 10.0, 1e18
"""Ranks in a sample are less than half the root of its size off, as a standard deviation."""

Apply = Callable[[Callable[[np.ndarray, np.ndarray], Any]], Iterable[Any]]
"""Applies a function to parts of all rows: to the groups of rows and to their values, which are not NaN."""


class BySize:
    """Rows of groups in buckets in the order of a size, for the quantile of each row in its group.

    A bucket holds sizes that differ by at most an eighth, and the outermost ones all further sizes.
    """

    def __init__(self) -> None:
        self._rows, self._empty, self._lowest = Buckets(), Columns(), -1
        self.counts = np.zeros(0, np.int64)

    def add(self, sizes: Limbs, numbers: np.ndarray, columns: Columns) -> None:
        """Add rows by their numbers, of which several may be one group, and further columns of them."""
        known = sizes.known
        keys = (float_keys(sizes.high * LIMB + sizes.low) >> EIGHTHS).astype(np.int64)  # alike in all parts
        if self._lowest < 0 and known.any():
            self._lowest = int(np.median(keys[known])) - BUCKETS // 2
        count = max(len(self.counts), int(numbers.max(initial=-1)) + 1)
        counts = np.bincount(numbers[known], minlength=count)
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        columns = columns | {"low": sizes.low, "high": sizes.high, "known": known, "number": numbers}
        self._rows.add((keys - self._lowest).clip(0, BUCKETS - 1), columns)
        self._empty = {name: column[:0] for name, column in columns.items()}

    def bounds(self, group: int, count: int) -> pa.Table:
        """Return the smallest and largest size of each quantile of a group that has some."""
        parts, groups = [], np.full(len(self.counts), -1)
        groups[group] = 0
        for rows, ordered, quantiles in self.quantiles(groups, count):
            starts = first_of(quantiles[ordered])
            stops = np.append(starts[1:], len(ordered))[: len(starts)] - 1
            smallest, largest = (sizes_of(rows)[ordered[places]] for places in (starts, stops))
            columns = {"smallest": smallest, "largest": largest}
            decimals = {name: limbs.to_decimals(sizes, DECIMAL_256) for name, sizes in columns.items()}
            parts.append(pa.table({"quantile": quantiles[ordered[starts]] + 1} | decimals))
        whole = GroupBy(pa.concat_tables(parts), ["quantile"])
        ends = {"smallest": whole.aggregate("smallest", "min"), "largest": whole.aggregate("largest", "max")}
        return pa.table(whole.key_columns() | ends)

    def quantiles(self, groups: np.ndarray, count: int) -> Iterator[tuple[Columns, np.ndarray, np.ndarray]]:
        """Yield the rows of each bucket, those with a size in order, and quantiles from 0, else -1.

        `groups` has the group of each number, -1 for none. Equal sizes in a group have the same quantile.
        """
        totals = np.zeros(int(groups.max(initial=-1)) + 2, np.int64)  # the last one is of none
        np.add.at(totals, groups[: len(self.counts)], self.counts)
        before = np.zeros_like(totals)
        for rows in self._rows if self._rows.counts.any() else [self._empty]:
            group = groups[rows["number"]]
            ordered = np.flatnonzero(rows["known"] & (group >= 0))
            group = group[ordered]
            sizes = sizes_of(rows)[ordered]
            order = sorted_by_keys(group, float_keys(sizes.floats), sizes.high, sizes.low)
            sizes, group, ordered = sizes[order], group[order], ordered[order]
            counts = np.bincount(group, minlength=len(before))
            start = np.cumsum(counts) - counts
            new = sizes.is_new()
            new[start[counts > 0]] = True
            place = np.flatnonzero(new)[np.cumsum(new) - 1]
            quantiles = np.full(len(rows["known"]), -1)
            quantiles[ordered] = (place + (before - start)[group]) * count // totals[group]
            before += counts
            yield rows, ordered, quantiles


def sizes_of(rows: Columns) -> Limbs:
    """Return the sizes of rows in `BySize`."""
    return Limbs(rows["low"], rows["high"], rows["known"])


def sums_by_size(
    trades: Any, outer: Sequence[str], quantiles: int, caller: str, paired: PairedFills
) -> pa.Table:
    """Add up notionals and list fee rates by `outer`, fill type and quantile of the notional in `outer`."""
    groups, by_size = Groups([*outer, "fill_type"]), BySize()
    needed = list(dict.fromkeys([*groups.keys, "notional", "fee_bps", *paired.columns]))
    for batch in convert.batches(trades, needed, caller):
        columns = {"milli": thousandths(batch["fee_bps"])}
        if paired.columns:
            columns["trade"], columns["side"] = sides_of(batch)
        by_size.add(Limbs.of(combined(batch["notional"])), groups.numbers(batch), columns)
    combinations, parts, count = groups.ordered(outer), [], 0
    for rows, ordered, quantile in by_size.quantiles(combinations.ids, quantiles):
        numbers = {"number": rows["number"], "quantile": quantile}
        ids, first = row_groups(pa.table(numbers), [*numbers])
        if paired.columns:
            paired.add(rows["trade"], rows["side"], count + ids)
        sizes, known = sizes_of(rows), rows["known"]
        smallest, largest = np.full(len(first), -1), np.full(len(first), -1)
        smallest[ids[ordered][::-1]], largest[ids[ordered]] = ordered[::-1], ordered
        found = combinations.table.take(pa.array(rows["number"][first])).select(groups.keys)
        sums = {
            "quantile": pa.array(quantile[first] + 1, mask=quantile[first] < 0),
            "smallest": _decimals(sizes, smallest),
            "largest": _decimals(sizes, largest),
            "fills": np.bincount(ids),
            "notional": limbs.totals(sizes[known], ids[known], smallest >= 0),
        }
        sums |= rates_of(rows["milli"], ids, len(first))
        parts.append(pa.table({name: found[name] for name in groups.keys} | sums))
        count += len(first)
    return pa.concat_tables(parts, promote_options="permissive")


def _decimals(sizes: Limbs, places: np.ndarray) -> pa.Array:
    """Return the sizes at places; null where a place is -1."""
    found = sizes[places]
    found.known &= places >= 0
    return limbs.to_decimals(found, DECIMAL_256)


def medians(apply: Apply, counts: np.ndarray) -> np.ndarray:
    """Return the median of each group from its number of rows; NaN without any."""
    lower, upper = select(apply, counts, np.array([(counts - 1) // 2, counts // 2]))
    return np.asarray((lower + upper) / 2)


def select(apply: Apply, counts: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return the values of ascending ranks, from 0, in each group's sorted rows, or NaN: ranks by groups.

    A sample of large groups tells between which values a rank lies, or most likely does.
    """
    found, wanted = np.full(ranks.shape, np.nan), np.where(counts > 0, ranks, 0)
    most = counts.sum() // GROUPS_AT_ONCE if counts.sum() > AT_ONCE else counts.sum()
    large, number = np.flatnonzero(counts > most), np.zeros(len(counts), np.int64)
    number[large] = np.arange(len(large)) + 1
    samples = _Samples(apply, number, counts[large]) if len(large) else None
    for reach in REACHES:
        ends = samples.around(wanted[:, large], reach) if samples else np.full((len(ranks), 2, 1), np.inf)
        kinds, of_rank = np.unique(ends, axis=0, return_inverse=True)
        of_rank, rows = of_rank.ravel(), Buckets()
        below, within = np.zeros((2, len(kinds), len(counts)), np.int64)
        for part in apply(partial(_within, number=number, kinds=kinds)):
            for kind, (groups, values, equal, sides) in enumerate(part):
                below[kind, large] += sides[:, LESS]
                within[kind, large] += sides[:, LOW : HIGH + 1].sum(axis=1)
                rows.add(
                    groups % BUCKETS, {"key": kind + groups * len(kinds), "value": values, "equal": equal}
                )
        places = wanted - below[of_rank]
        if ((places >= 0) & (places < within[of_rank]))[:, large].all():
            break
    for part in rows:
        keys = float_keys(part["value"])
        order = sorted_by_keys(part["key"], keys, keys)
        key, values, equal = (column[order] for column in part.values())
        starts, until = first_of(key), np.cumsum(equal)
        groups, kind = np.divmod(key[starts], len(kinds))
        before = until[starts] - equal[starts]
        for rank, own in enumerate(of_rank):
            some = np.flatnonzero(kind == np.where(number[groups] > 0, own, 0))
            at = np.searchsorted(until, before[some] + places[rank, groups[some]], "right")
            found[rank, groups[some]] = values[at]
    return found


class _Samples:
    """Some values of each large group, in order."""

    def __init__(self, apply: Apply, number: np.ndarray, counts: np.ndarray) -> None:
        step = max(1, int(np.cbrt(counts.sum()) / 2))
        parts = [*apply(partial(_sampled, number=number, step=step))]
        numbers, values = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        keys = float_keys(values)
        self._values = np.append(values[sorted_by_keys(numbers, keys, keys)], np.nan)
        self._counts, self._sizes = counts, np.bincount(numbers, minlength=len(counts) + 1)[1:]
        self._starts = np.cumsum(self._sizes) - self._sizes

    def around(self, ranks: np.ndarray, reach: float) -> np.ndarray:
        """Return two ends around each rank, `reach` roots of the size away: ranks by ends by numbers.

        Near ranks have the same ends; those of number 0 are infinite.
        """
        sizes = self._sizes
        most = np.minimum(np.ceil(reach * np.sqrt(sizes)), sizes).astype(np.int64) + 1
        first = (ranks * sizes // self._counts // most - 1) * most
        last = first + 3 * most
        low, high = (self._values[self._starts + some.clip(0, sizes)] for some in (first, last))
        low, high = np.where(first < 0, -np.inf, low), np.where(last < sizes, high, np.inf)
        ends = np.stack([low, np.maximum(high, np.nextafter(low, np.inf))], axis=1)
        return np.insert(ends, 0, np.inf, axis=2)


def _sampled(
    groups: np.ndarray, values: np.ndarray, number: np.ndarray, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return one in so many values of the groups with a number."""
    places = np.arange(0, len(groups), step).astype(np.uint64)
    places += mixed(places) % np.uint64(step)
    places = places[places < len(groups)].astype(np.int64)
    numbers = number[groups[places]]
    return numbers[numbers > 0], values[places[numbers > 0]]


def _within(
    groups: np.ndarray, values: np.ndarray, number: np.ndarray, kinds: np.ndarray
) -> list[tuple[np.ndarray, ...]]:
    """Return, for each kind of ends, the rows between, how many are equal to each, and how many on each side.

    Rows of groups without a number are with those of the first kind.
    """
    if not number.any():
        return [(groups, values, np.ones(len(groups), np.int64), np.zeros((0, SIDES_OF_ENDS), np.int64))]
    counts = np.zeros((len(kinds), kinds.shape[2], SIDES_OF_ENDS), np.int64)
    inside = [[np.empty(0, np.int64)] for _ in kinds]
    for start in range(0, len(groups), CHUNK):
        some, numbers = values[start : start + CHUNK], number[groups[start : start + CHUNK]]
        for kind, ends in enumerate(kinds):
            low, high = (end[numbers] for end in ends)
            side = np.add(some >= low, some > low, dtype=np.int8)
            side += some >= high
            side += some > high
            codes = np.bincount(numbers * SIDES_OF_ENDS + side, minlength=counts[kind].size)
            counts[kind] += codes.reshape(counts[kind].shape)
            rows = side == BETWEEN if kind else (side == BETWEEN) | (numbers == 0)
            inside[kind].append(start + np.flatnonzero(rows))
    large, found = np.flatnonzero(number), list[tuple[np.ndarray, ...]]()
    for ends, each, places in zip(kinds, counts, inside, strict=True):
        rows, equal = np.concatenate(places), each[1:, [LOW, HIGH]].T
        columns = [[large, large, groups[rows]], [*ends[:, 1:], values[rows]], [*equal, np.ones_like(rows)]]
        found.append((*map(np.concatenate, columns), each[1:]))
    return found
