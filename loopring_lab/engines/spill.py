"""Rows put into buckets by number, in memory as long as they fit, and on disk beyond that."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from loopring_lab.engines import limits

BUCKETS = 256
KEPT_SHARE = 8
"""Buckets keep this fraction of the memory limit in memory."""

Columns = dict[str, np.ndarray]
GAMMA, MIXERS = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # SplitMix64
HASHED_AT_ONCE = 1 << 15


class Buckets:
    """Columns of rows, each row in one of 256 buckets: those of a bucket are read together.

    Rows are added in parts. While they are few they stay in memory, as one bucket.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, Columns]] = []
        self._folder: Path | None = None
        self._bytes = 0
        self.counts = np.zeros(BUCKETS, np.int64)

    def add(self, buckets: np.ndarray, columns: Columns) -> None:
        """Add rows to the buckets of these numbers, 0 to 255."""
        if not len(buckets):
            return
        numbers = buckets.astype(np.uint8)
        self.counts += np.bincount(numbers, minlength=BUCKETS)
        self._parts.append((numbers, columns))
        self._bytes += sum(column.nbytes for column in columns.values())
        if self._bytes > limits.memory_limit() // KEPT_SHARE:
            self._write()

    def __iter__(self) -> Iterator[Columns]:
        """Yield the rows of each bucket that has any, in the order of the buckets."""
        if self._folder is None:
            if self._parts:
                yield _joined([columns for _, columns in self._parts])
            return
        for number in np.flatnonzero(self.counts).tolist():
            yield self.read(number, number)

    def read(self, first: int, last: int) -> Columns:
        """Return the rows of a range of buckets that has some; all rows while they are in memory."""
        if self._folder is None:
            return _joined([columns for _, columns in self._parts])
        self._write()
        found = []
        for number in range(first, last + 1):
            if self.counts[number]:
                rows = np.fromfile(self._folder / str(number), self._dtype)
                found.append({name: np.ascontiguousarray(rows[name]) for name in self._dtype.fields or ()})
        return _joined(found)

    @property
    def in_memory(self) -> bool:
        """Whether nothing is on disk."""
        return self._folder is None

    def _write(self) -> None:
        if not self._parts:
            return
        numbers = np.concatenate([numbers for numbers, _ in self._parts])
        columns = _joined([columns for _, columns in self._parts])
        self._parts, self._bytes = [], 0
        if self._folder is None:
            self._dtype = np.dtype([(name, column.dtype) for name, column in columns.items()])
            self._folder = Path(tempfile.mkdtemp(prefix="buckets-", dir=limits.spill_folder()))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        place = np.argsort(numbers, kind="stable")
        rows = np.empty(len(place), self._dtype)
        for name, column in columns.items():
            rows[name] = column[place]
        ends = np.searchsorted(numbers[place], np.arange(BUCKETS + 1))
        for number in np.flatnonzero(np.diff(ends)):
            with (self._folder / str(number)).open("ab") as file:
                rows[ends[number] : ends[number + 1]].tofile(file)


def mixed(words: np.ndarray) -> np.ndarray:
    """Mix 64-bit integers, each to another one (SplitMix64)."""
    for shift, factor in MIXERS:
        words = (words ^ words >> np.uint64(shift)) * np.uint64(factor)
    found: np.ndarray = words ^ words >> np.uint64(31)
    return found


def numbers_of_texts(texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return a 64-bit number for each text, which follows from the text alone; null as the empty text."""
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if pa.types.is_dictionary(texts.type):
        numbers = np.append(numbers_of_texts(texts.dictionary), numbers_of_texts(pa.array([""])))
        return np.asarray(numbers[texts.indices.fill_null(len(texts.dictionary)).to_numpy()])
    texts = texts.cast(pa.large_string()).fill_null("")
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    numbers, lengths = np.empty(len(texts), np.uint64), np.diff(offsets)
    for length in np.flatnonzero(np.bincount(lengths)):
        rows = np.flatnonzero(lengths == length)
        alike = (
            data[offsets[0] : offsets[-1]].reshape(-1, length) if length and len(rows) == len(texts) else None
        )
        for start in range(0, len(rows), HASHED_AT_ONCE):
            part = rows[start : start + HASHED_AT_ONCE]
            words = np.zeros((len(part), -(-length // 8)), np.uint64)
            texts_here = data[offsets[part][:, None] + np.arange(length)] if alike is None else alike[part]
            words.view(np.uint8).reshape(len(part), -1)[:, :length] = texts_here
            found = np.full(len(part), length, np.uint64)
            for word in words.T:
                found = mixed((found + np.uint64(GAMMA)) ^ word)
            numbers[part] = found
    return numbers


def _joined(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
