"""Order statistics of groups, selected exactly from rows that need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from loopring_lab.amounts import limbs
from loopring_lab.amounts.limbs import LIMB, Limbs
from loopring_lab.amounts.scaling import combined
from loopring_lab.engines import convert, limits
from loopring_lab.engines.adapters import DECIMAL_256
from loopring_lab.engines.aggregate import GroupBy, Groups, PairedFills, rates_of, thousandths
from loopring_lab.engines.arrays import first_of, float_keys, floats_of, sorted_by, sorted_by_keys
from loopring_lab.engines.pairs import row_groups, sides_of
from loopring_lab.engines.spill import BUCKETS, Buckets, Columns

BITS = 64
BITS_AT_ONCE = 16
COUNTERS = 1 << 22
EIGHTHS = np.uint64(49)  # bits of a float below the first three of its fraction
BYTES_PER_ROW = 64

Read = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]
"""Reads the parts of all rows: the group of each row and its value, a float that is not NaN."""


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


def medians(read: Read, counts: np.ndarray) -> np.ndarray:
    """Return the median of each group from its number of rows; NaN without any."""
    lower, upper = select(read, counts, np.array([(counts - 1) // 2, counts // 2]))
    return np.asarray((lower + upper) / 2)


def select(read: Read, counts: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Return the values of some ranks, counted from 0, in the sorted rows of each group: ranks by groups.

    Ranks of groups without rows give NaN.
    """
    total = int(counts.sum())
    found = np.full(ranks.shape, np.nan)
    if not total:
        return found
    if total <= limits.rows_at_once(BYTES_PER_ROW):
        _pick(read, counts, ranks, found)
        return found
    for row, some in enumerate(ranks):
        found[row] = found[row - 1] if row and (some == ranks[row - 1]).all() else _narrow(read, counts, some)
    return found


def _pick(read: Read, counts: np.ndarray, ranks: np.ndarray, found: np.ndarray) -> None:
    """Select among rows that are all in memory."""
    parts = [*read()]
    groups, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(counts) > 1:
        values = values[sorted_by(groups)]
    stops = np.cumsum(counts)
    for group in np.flatnonzero(counts):
        part, wanted = values[stops[group] - counts[group] : stops[group]], ranks[:, group]
        found[:, group] = np.partition(part, np.unique(wanted))[wanted]


def _narrow(read: Read, counts: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Select by counting values by their first bits, then the next ones, until the rest fits into memory."""
    ranks, left = np.where(counts > 0, ranks, 0), counts.copy()
    prefixes, known = np.zeros(len(counts), np.uint64), 0
    bits = int(np.clip(np.log2(COUNTERS / len(counts)), 1, BITS_AT_ONCE))

    def matching() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for groups, values in read():
            keys = float_keys(values)
            same = keys >> np.uint64(BITS - known) == prefixes[groups] if known else slice(None)
            yield groups[same], keys[same]

    while known < BITS and left.sum() > limits.rows_at_once(BYTES_PER_ROW):
        step = min(bits, BITS - known)
        width = 1 << step
        seen = np.zeros(len(counts) * width, np.int64)
        for groups, keys in matching():
            bins = (keys >> np.uint64(BITS - known - step) & np.uint64(width - 1)).astype(np.int64)
            seen += np.bincount(groups * width + bins, minlength=len(seen))
        table = seen.reshape(-1, width)
        until = np.cumsum(table, axis=1)
        chosen = (until <= ranks[:, None]).sum(axis=1).clip(max=width - 1)
        rows = np.arange(len(counts))
        left = table[rows, chosen]
        ranks = ranks - (until[rows, chosen] - left)
        prefixes = prefixes << np.uint64(step) | chosen.astype(np.uint64)
        known += step
    if known < BITS:
        found = np.full((1, len(counts)), np.nan)
        _pick(lambda: ((groups, floats_of(keys)) for groups, keys in matching()), left, ranks[None], found)
        return np.asarray(found[0])
    return np.where(counts > 0, floats_of(prefixes), np.nan)
