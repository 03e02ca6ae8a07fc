"""Rows numbered by their keys, and fills of which both sides are there, counted in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import combined
from loopring_lab.engines.arrays import GAMMA, coded, first_of, mixed, numbers_of_ids
from loopring_lab.engines.spill import Buckets, Columns, in_shares
from loopring_lab.tables.identity import SIDES

FEW = 1 << 16
"""Numbers for which a table is made, whatever their count."""


class Sides:
    """Trade numbers, sides and groups of rows, added in parts."""

    def __init__(self) -> None:
        self._rows = Buckets()

    def add(self, trades: np.ndarray, sides: np.ndarray, groups: np.ndarray) -> None:
        """Add rows as `sides_of` returns them, each of a group; those of an unknown side are left out."""
        marks, known = 2 * groups + sides, sides >= 0
        if not known.all():
            trades, marks = trades[known], marks[known]
        self._rows.add(
            trades * np.uint64(GAMMA) >> np.uint64(56), {"trade": trades.view(np.int64), "mark": marks}
        )

    def count(self, groups: np.ndarray, size: int) -> tuple[int, np.ndarray]:
        """Count trades with both sides: in all, and in each of `size` groups in place of those added."""
        total, counts = 0, np.zeros(size, np.int64)
        for rows in self._rows:
            found = _count_both(rows["trade"], 2 * groups[rows["mark"] >> 1] + (rows["mark"] & 1), size)
            total, counts = total + found[0], counts + found[1]
        return total, counts


def sides_of(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for the trade of each row, and the place of its side in `SIDES`; -1 if unknown."""
    codes, names = coded(rows["side"])
    places = np.array([*(SIDES.index(name) if name in SIDES else -1 for name in names), -1], np.int8)
    ids, sides = rows["trade_id"], places[codes]
    return numbers_of_ids(ids), np.where(ids.is_valid(), sides, np.int8(-1)) if ids.null_count else sides


def count_sides(parts: Iterable[Columns], size: int) -> tuple[int, np.ndarray]:
    """Count what `Sides.count` does, of parts with the columns ``trade``, ``side`` and ``group``."""
    sides = Sides()
    for part in parts:
        sides.add(part["trade"], part["side"], part["group"])
    return sides.count(np.arange(size), size)


def sides_in_shares(columns: Columns, count: int) -> list[Columns]:
    """Split sides of fills, columns ``trade``, ``side`` and ``group``, into shares by trade."""
    return in_shares(columns, (mixed(columns["trade"]) >> np.uint64(56)).astype(np.uint8), count)


def note_on_both_sides(count: int) -> str:
    """Say of how many fills both sides are counted; empty where of none."""
    fills = "1 fill" if count == 1 else f"{count:,} fills"
    note = f"Both sides of {fills} are counted; lab.fills.one_side(trades) counts each fill once."
    return note if count else ""


def row_groups(
    rows: pa.Table, keys: Sequence[str], number: Callable[[Any, str], tuple[np.ndarray, int]] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Number the combinations of keys in rows and return the first row of each.

    They are in the order in which `number` puts the values of each key; without it, in any order.
    """
    numbers, count = np.zeros(len(rows), np.int64), 1
    for name in keys:
        found, values = number(rows[name], name) if number else _codes(rows[name])
        if count * values > FEW:
            numbers, count = _renumbered(numbers, count)
        numbers *= values
        numbers += found
        count *= values
    numbers, count = _renumbered(numbers, count)
    first = np.empty(count, np.int64)
    first[numbers[::-1]] = np.arange(len(rows) - 1, -1, -1)  # of several, the last to be set stays
    return numbers, first


def codes_of(column: Any) -> tuple[np.ndarray, pa.Array]:
    """Number the values of a column, null after the last, and return the values."""
    column, low, high = combined(column), 0, FEW
    if pa.types.is_signed_integer(column.type) and column.null_count < len(column):
        low, high = pc.min_max(column).as_py().values()
    if high - low < FEW:
        codes = column.cast(pa.int64()).fill_null(low).to_numpy() - low
        values = pa.array(np.arange(low, high + 1)).cast(column.type)
    else:
        encoded = column.dictionary_encode()
        codes, values = encoded.indices.fill_null(0).to_numpy(), encoded.dictionary
        if encoded is column and len(values.dictionary_encode().dictionary) < len(values):
            return codes_of(column.cast(values.type))  # its dictionary has equal values, or null
    return np.where(column.is_null(), np.int64(len(values)), codes) if column.null_count else codes, values


def counted(numbers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the different ones of numbers below a count, in order, and how often each is there."""
    if count > FEW + 4 * len(numbers):
        return np.unique(numbers, return_counts=True)
    counts = np.bincount(numbers, minlength=count)
    found = np.flatnonzero(counts)
    return found, counts[found]


def _codes(column: Any) -> tuple[np.ndarray, int]:
    codes, values = codes_of(column)
    return codes, len(values) + (column.null_count > 0)


def _renumbered(numbers: np.ndarray, count: int) -> tuple[np.ndarray, int]:
    """Number the different ones of some numbers below a count in their order from 0, and count them."""
    if count > FEW + 4 * len(numbers):
        found, numbers = np.unique(numbers, return_inverse=True)
        return numbers, len(found)
    there = np.zeros(count, bool)
    there[numbers] = True
    return (np.cumsum(there) - 1)[numbers], int(np.count_nonzero(there))


def _count_both(ids: np.ndarray, marks: np.ndarray, groups: int) -> tuple[int, np.ndarray]:
    """Count trade ids with both sides: sorted, both sides in a group are an even number and the next one."""
    bits, low = (2 * groups).bit_length(), int(ids.min())
    near = int(ids.max()) - low < 1 << (62 - bits)
    rows = ids - low if near else np.unique(ids, return_inverse=True)[1]
    rows <<= bits
    rows |= marks
    rows.sort(kind="stable")  # trade ids grow with time: most stand in order
    later, changed = rows[1:], rows[1:] ^ rows[:-1]
    counts = np.bincount((later[changed == 1] & (1 << bits) - 1) >> 1, minlength=groups)
    both = later[(changed < 1 << bits) & (changed & 1 == 1)] >> bits
    return len(first_of(both)), counts
