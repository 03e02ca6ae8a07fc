"""Order statistics of groups, selected exactly from rows that need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from loopring_lab.engines import limits

BITS = 64
BITS_AT_ONCE = 16
COUNTERS = 1 << 22
BYTES_PER_ROW = 64

Read = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]
"""Reads the parts of all rows: the group of each row and its value, a float that is not NaN."""


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
        few = len(counts) <= 1 << 16  # numpy sorts 16 bits in linear time
        values = values[np.argsort(groups.astype(np.uint16) if few else groups, kind="stable")]
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
            keys = _keys(values)
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
        _pick(lambda: ((groups, _values(keys)) for groups, keys in matching()), left, ranks[None], found)
        return np.asarray(found[0])
    return np.where(counts > 0, _values(prefixes), np.nan)


def _keys(values: np.ndarray) -> np.ndarray:
    """Return integers in the same order as floats."""
    bits = (values + 0.0).view(np.int64)
    return (bits ^ (bits >> 63 & np.int64(0x7FFFFFFFFFFFFFFF))).view(np.uint64) ^ np.uint64(1 << 63)


def _values(keys: np.ndarray) -> np.ndarray:
    """Return the floats of `_keys`."""
    bits = (keys ^ np.uint64(1 << 63)).view(np.int64)
    return (bits ^ (bits >> 63 & np.int64(0x7FFFFFFFFFFFFFFF))).view(np.float64)
