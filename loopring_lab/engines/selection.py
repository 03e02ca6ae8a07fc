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
from loopring_lab.engines.arrays import CHUNK, first_of, float_keys, sorted_by_keys
from loopring_lab.engines.pairs import row_groups, sides_of
from loopring_lab.engines.spill import BUCKETS, Buckets, Columns

BITS = 64
BITS_AT_ONCE = 16
COUNTERS = 1 << 20
EIGHTHS = np.uint64(49)  # bits of a float below the first three of its fraction
AT_ONCE, GROUPS_AT_ONCE = 1 << 18, 64
"""Of more values, those of groups with more than this part of all are told by their bits."""

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

    Values of large groups are counted by their first bits, then by the next ones, until few can matter.
    """
    found, wanted = np.full(ranks.shape, np.nan), np.where(counts > 0, ranks, 0)
    large = np.flatnonzero(counts > counts.sum() // GROUPS_AT_ONCE)
    number = np.full(len(counts), -1, np.int32)
    number[large] = np.arange(len(large))
    at, left = wanted[:, large], np.repeat(counts[None, large], len(ranks), axis=0)
    known, prefixes, unlike = 0, np.zeros(at.shape, np.uint64), left
    bits = int(np.clip(np.log2(COUNTERS / max(at.size, 1)), 1, BITS_AT_ONCE))
    while known < BITS and _ends(prefixes, unlike)[-1].sum() > AT_ONCE:
        step, (different, kinds) = min(bits, BITS - known), np.unique(prefixes, axis=0, return_inverse=True)
        tables = np.zeros((len(different), len(large) << step), np.int64)
        least = np.full((len(different), 2, len(large)), ~np.uint64(0))
        for part in apply(partial(_counted, number=number, prefixes=different, known=known, step=step)):
            for table, low, (places, rows, lowest) in zip(tables, least, part, strict=True):
                table[places] += rows
                np.minimum(low, lowest, out=low)
        for row, kind in enumerate(kinds.ravel()):
            each = tables[kind].reshape(len(large), -1)
            until = np.cumsum(each, axis=1)
            chosen = (until <= at[row][:, None]).sum(axis=1)[:, None]
            left[row] = np.take_along_axis(each, chosen, 1)[:, 0]
            at[row] -= np.take_along_axis(until, chosen, 1)[:, 0] - left[row]
            prefixes[row] = prefixes[row] << np.uint64(step) | chosen[:, 0].astype(np.uint64)
        known, alike = known + step, least[:, 0] == ~least[:, 1]
        unlike = np.where(alike[kinds.ravel()], 1, left)
    wanted[:, large] = _ends(prefixes, left) - left + at
    rows = Buckets()
    for groups, values, equal in apply(partial(_matching, number=number, prefixes=prefixes, known=known)):
        rows.add(groups % BUCKETS, {"group": groups, "value": values, "equal": equal})
    for part in rows:
        keys = float_keys(part["value"])
        order = sorted_by_keys(part["group"], keys, keys)
        groups, values, equal = (column[order] for column in part.values())
        starts, ends = first_of(groups), np.cumsum(equal)
        before = ends[starts] - equal[starts]
        places = np.searchsorted(ends, before + wanted[:, groups[starts]], "right")
        found[:, groups[starts]] = values[places]
    return found


def _ends(prefixes: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return where the values with each prefix end among those that are left of a group."""
    return np.cumsum(left * (np.diff(prefixes, axis=0, prepend=~prefixes[:1]) != 0), axis=0)


def _counted(
    groups: np.ndarray, values: np.ndarray, number: np.ndarray, prefixes: np.ndarray, known: int, step: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Count, for each row of prefixes, the values that have them, by number of the group and next bits.

    Also return the least of their keys, and of the complements, by number; none before any bit is known.
    """
    bins = [[np.empty(0, np.int32)] for _ in prefixes]
    least = np.full((len(prefixes), 2, prefixes.shape[1]), ~np.uint64(0))
    for start in range(0, len(groups), CHUNK):
        some = slice(start, start + CHUNK)
        numbers, keys = number[groups[some]], float_keys(values[some])
        for row, found, low in zip(prefixes, bins, least, strict=True):
            same = np.flatnonzero((numbers >= 0) & (keys >> np.uint64(BITS - known) == row[numbers]))
            mine, theirs = keys[same], numbers[same]
            following = (mine >> np.uint64(BITS - known - step)).astype(np.int32) & (1 << step) - 1
            found.append((theirs << step) + following)
            for one, bits in zip(low, (mine, ~mine), strict=True) if known else ():
                np.minimum.at(one, theirs, bits)
    counts = [np.bincount(np.concatenate(found)) for found in bins]
    places = [*map(np.flatnonzero, counts)]
    return [(some, each[some], low) for some, each, low in zip(places, counts, least, strict=True)]


def _matching(
    groups: np.ndarray, values: np.ndarray, number: np.ndarray, prefixes: np.ndarray, known: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return groups and values without a number, or with a prefix of their group, and how many are equal."""
    if not known:
        return groups, values, np.ones(len(groups), np.int64)
    numbers, keys = number[groups], float_keys(values)
    first, same = keys >> np.uint64(BITS - known), np.zeros(len(keys), bool)
    for some in np.unique(prefixes, axis=0):
        same |= first == some[numbers]
    large, small = np.flatnonzero(same & (numbers >= 0)), np.flatnonzero(numbers < 0)
    large = large[sorted_by_keys(numbers[large], keys[large], keys[large])]
    starts = first_of(numbers[large], keys[large])
    rows, equal = np.append(large[starts], small), np.diff(starts, append=len(large))
    return groups[rows], values[rows], np.append(equal, np.ones_like(small))
