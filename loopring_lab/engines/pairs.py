"""Fills of which both sides are there, counted in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from loopring_lab.engines.arrays import coded, mixed, numbers_of_ids
from loopring_lab.engines.spill import Buckets
from loopring_lab.tables.identity import SIDES

FEW = 1 << 20
"""Combinations of keys for which a table of them all is made."""


class Sides:
    """Trade numbers, sides and groups of rows, added in parts."""

    def __init__(self) -> None:
        self._rows = Buckets()

    def add(self, trades: np.ndarray, sides: np.ndarray, groups: np.ndarray) -> None:
        """Add rows as `sides_of` returns them, each of a group; those of an unknown side are left out."""
        known = sides >= 0
        trades, marks = trades[known], 2 * groups[known].astype(np.int64) + sides[known]
        self._rows.add(mixed(trades) >> np.uint64(56), {"trade": trades.view(np.int64), "mark": marks})

    def count(self, groups: np.ndarray, size: int) -> tuple[int, np.ndarray]:
        """Count trades with both sides: in all, and in each of `size` groups in place of those added."""
        total, counts = 0, np.zeros(size, np.int64)
        for rows in self._rows:
            found = count_both(rows["trade"], 2 * groups[rows["mark"] >> 1] + (rows["mark"] & 1), size)
            total, counts = total + found[0], counts + found[1]
        return total, counts


def sides_of(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for the trade of each row, and the place of its side in `SIDES`; -1 if unknown."""
    codes, names = coded(rows["side"])
    places = np.array([*(SIDES.index(name) if name in SIDES else -1 for name in names), -1], np.int8)
    return numbers_of_ids(rows["trade_id"]), np.where(rows["trade_id"].is_valid(), places[codes], np.int8(-1))


def note_on_sides(count: int) -> str:
    """Say of how many fills both sides are counted; empty where of none."""
    fills = "1 fill" if count == 1 else f"{count:,} fills"
    note = f"Both sides of {fills} are counted; lab.fills.one_side(trades) counts each fill once."
    return note if count else ""


def row_groups(rows: pa.Table, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Number the combinations of keys in rows, in any order, and return the first row of each."""
    numbers, count = np.zeros(len(rows), np.int64), 1
    for name in keys:
        column = combined(rows[name]).dictionary_encode()
        values = len(column.dictionary) + 1
        numbers = numbers * values + column.indices.fill_null(values - 1).to_numpy()
        count *= values
        if count > FEW:
            numbers = np.unique(numbers, return_inverse=True)[1]
            count = int(numbers.max(initial=-1)) + 1
    first = np.full(count, -1)
    first[numbers[::-1]] = np.arange(len(rows))[::-1]
    there = first >= 0
    return (np.cumsum(there) - 1)[numbers], first[there]


def combined(column: Any) -> pa.Array:
    """Return a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def count_both(ids: np.ndarray, marks: np.ndarray, groups: int) -> tuple[int, np.ndarray]:
    """Count trade ids with both sides: sorted, both sides in a group are an even number and the next one."""
    bits, low = (2 * groups).bit_length(), int(ids.min())
    near = int(ids.max()) - low < 1 << (62 - bits)
    rows = (ids - low if near else np.unique(ids, return_inverse=True)[1]) << bits | marks
    rows.sort()
    both = rows[1:][(rows[1:] - rows[:-1] == 1) & (rows[1:] & 1 == 1)]
    counts = np.bincount((both & (1 << bits) - 1) >> 1, minlength=groups)
    if groups == 1:
        return len(both), counts
    begins = np.flatnonzero(np.diff(rows >> bits, prepend=-1))
    side = rows & 1
    found = np.maximum.reduceat(side, begins) != np.minimum.reduceat(side, begins)
    return int(np.count_nonzero(found)), counts
