"""Fills of which both sides are there, counted in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines.adapters import decode
from loopring_lab.engines.limits import rows_at_once, spill_folder
from loopring_lab.tables.identity import SIDES

ROW = np.dtype([("id", "<i8"), ("mark", "<i8")])
"""The trade id of a row, and its group times two, plus one for BUY."""
BUCKETS = 64
MIXER = np.uint64(0x9E3779B97F4A7C15)
FEW = 1 << 20
"""Combinations of keys for which a table of them all is made."""


class Sides:
    """Rows of trade ids, sides and groups, added in parts; those beyond the memory limit go to disk."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._files: list[Path] = []
        self._known: pa.Array | None = None

    def add(self, rows: pa.Table, groups: np.ndarray) -> None:
        """Add rows with a trade id and a side, each of a group; others are left out."""
        sides = combined(rows["side"]).dictionary_encode()
        codes = pc.index_in(sides.dictionary.cast(pa.string()), pa.array(SIDES)).fill_null(-1).to_numpy()
        ids = combined(rows["trade_id"])
        side = np.append(codes, -1)[sides.indices.fill_null(-1).to_numpy()]
        known = side >= 0
        if ids.null_count:
            known &= np.asarray(ids.is_valid())
        part = np.empty(np.count_nonzero(known), ROW)
        part["id"], part["mark"] = self._whole(ids)[known], (2 * groups + (side == SIDES.index("BUY")))[known]
        self._parts.append(part)
        if sum(map(len, self._parts)) > rows_at_once(ROW.itemsize):
            self._spill()

    def count(self, groups: np.ndarray, size: int) -> tuple[int, np.ndarray]:
        """Count trade ids with both sides: in all, and in each of `size` groups in place of those added."""
        total, counts = 0, np.zeros(size, np.int64)
        for rows in self._buckets():
            if len(rows):
                mark = 2 * groups[rows["mark"] >> 1] + (rows["mark"] & 1)
                found = _count(rows["id"], mark, size)
                total, counts = total + found[0], counts + found[1]
        return total, counts

    def _whole(self, ids: pa.Array) -> np.ndarray:
        """Return trade ids as integers of 64 bits; any others are numbered."""
        numbers: np.ndarray
        if pa.types.is_signed_integer(ids.type):
            numbers = ids.cast(pa.int64()).fill_null(0).to_numpy()
            return numbers
        ids = decode(pa.chunked_array([ids]), "trade_id").combine_chunks()
        fresh = pc.unique(ids)
        self._known = fresh if self._known is None else pc.unique(pa.concat_arrays([self._known, fresh]))
        numbers = pc.index_in(ids, self._known).to_numpy().astype(np.int64)
        return numbers

    def _spill(self) -> None:
        """Write rows to files, all of a trade id to the same one."""
        if not self._files:
            self._files = [spill_folder() / f"{uuid4().hex}.sides" for _ in range(BUCKETS)]
        rows = np.concatenate([np.empty(0, ROW), *self._parts])
        self._parts = []
        bucket = (rows["id"].view(np.uint64) * MIXER >> np.uint64(58)).astype(np.int8)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS))
        for file, places in zip(self._files, np.split(order, ends[:-1]), strict=True):
            with file.open("ab") as out:
                rows[places].tofile(out)

    def _buckets(self) -> Iterator[np.ndarray]:
        if not self._files:
            yield np.concatenate([np.empty(0, ROW), *self._parts])
            return
        self._spill()
        for file in self._files:
            yield np.fromfile(file, ROW)
            file.unlink()


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


def _count(ids: np.ndarray, marks: np.ndarray, groups: int) -> tuple[int, np.ndarray]:
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
