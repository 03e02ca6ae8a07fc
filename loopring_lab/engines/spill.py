"""Rows that may not fit into memory: in buckets and slots by number, and results in files."""

from __future__ import annotations

import glob
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from loopring_lab.engines import limits
from loopring_lab.engines.adapters import engine_of
from loopring_lab.engines.arrays import first_of

BUCKETS = 256
KEPT_SHARE = 16
"""This fraction of the memory limit is kept in memory before it goes to disk."""
COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
GROUP_ROWS = 1 << 17

Columns = dict[str, np.ndarray]


class Buckets:
    """Columns of rows, each row in one of some buckets, at most 65,536: those of a bucket are read together.

    Rows are added in parts. While they are few they stay in memory, as one bucket.
    """

    def __init__(self, count: int = BUCKETS) -> None:
        self._parts: list[tuple[np.ndarray, Columns]] = []
        self._folder: Path | None = None
        self._types = dict[str, np.dtype[Any]]()
        self._files: list[tuple[np.ndarray, np.ndarray]] = []  # the buckets in each, and where these start
        self._bytes = 0
        self.counts = np.zeros(count, np.int64)

    def add(self, buckets: np.ndarray, columns: Columns) -> None:
        """Add rows to the buckets of these numbers, from 0."""
        if not len(buckets):
            return
        numbers = buckets.astype(np.uint16)
        self.counts += np.bincount(numbers, minlength=len(self.counts))
        self._parts.append((numbers, columns))
        self._bytes += sum(column.nbytes for column in columns.values())
        if self._bytes > limits.memory_limit() // KEPT_SHARE:
            self.to_disk()

    def __iter__(self) -> Iterator[Columns]:
        """Yield the rows of each bucket that has any, in the order of the buckets."""
        if not self.in_memory:
            yield from self.parts()
        elif self._parts:
            yield self.read(0, 0)

    def parts(self, *names: str) -> Iterator[Columns]:
        """Yield the rows as they were added while they are in memory, else these columns bucket by bucket."""
        if self.in_memory:
            return (columns for _, columns in self._parts)
        return (self.read(number, number, names) for number in np.flatnonzero(self.counts).tolist())

    def of(self, *names: str) -> Callable[[Callable[..., Any]], Iterator[Any]]:
        """Return what applies a function to these columns of each part, one after the other."""
        return lambda function: (function(*map(rows.get, names)) for rows in self.parts(*names))

    def read(self, first: int, last: int, names: Sequence[str] = ()) -> Columns:
        """Return the rows of a range of buckets, of disk only these columns; all while they are in memory."""
        if self._folder is None:
            return stacked([columns for _, columns in self._parts])
        self.to_disk()
        count, place = self.counts[first : last + 1].sum(), 0
        found = {name: np.empty(count, self._types[name]) for name in names or self._types}
        for number, (buckets, starts) in enumerate(self._files):
            start, stop = starts[np.searchsorted(buckets, [first, last + 1])]
            if start == stop:
                continue
            rows, end = slice(place, place := place + stop - start), 0
            with (self._folder / str(number)).open("rb") as file:
                for name, kind in self._types.items():
                    begin, end = end, end + starts[-1] * kind.itemsize
                    if name in found:
                        file.seek(begin + start * kind.itemsize)
                        file.readinto(found[name][rows].data)
        return found

    @property
    def in_memory(self) -> bool:
        """Whether nothing is on disk."""
        return self._folder is None

    def to_disk(self) -> None:
        """Put what is in memory on disk."""
        if not self._parts:
            return
        self._folder = self._folder or _remove_with(self, _new_folder())
        numbers, parts = zip(*self._parts, strict=True)
        order, buckets, starts = _by_number(np.concatenate(numbers))
        with (self._folder / str(len(self._files))).open("wb") as file:
            for name in self._types or parts[0]:
                column = np.concatenate([columns[name] for columns in parts])[order]
                kind = self._types.setdefault(name, column.dtype)
                column.astype(kind, casting="safe", copy=False).tofile(file)  # or fail: nothing is cut off
        self._files.append((buckets, starts))
        self._parts, self._bytes = [], 0


class Spool:
    """Tables in numbered slots, on disk once they take more than a share of the memory limit."""

    def __init__(self, share: int = KEPT_SHARE) -> None:
        self._share, self._bytes = share, 0
        self._folder: Path | None = None
        self._kept: list[tuple[pa.Table, np.ndarray]] = []
        self._empty: pa.Table | None = None

    def add(self, table: pa.Table, slots: np.ndarray) -> None:
        """Append each row to its slot."""
        self._empty = table.slice(0, 0) if self._empty is None else self._empty
        if len(slots):
            self._kept.append((table, slots))
            self._bytes += table.nbytes
        if self._bytes > limits.memory_limit() // self._share:
            self._to_disk()

    def read(self, slots: Iterable[int]) -> pa.Table:
        """Read the rows of slots from disk; there must have been some table."""
        self._to_disk()
        return together([self._empty, *self.parts(slots)])

    def parts(self, slots: Iterable[int]) -> Iterator[pa.Table]:
        """Yield the rows of slots, piece by piece; all that was added while nothing is on disk."""
        if self._folder is None:
            yield from (table for table, _ in self._kept)
            return
        self._to_disk()
        for path in filter(Path.exists, map(self._folder.joinpath, map(str, slots))):
            with pa.OSFile(str(path)) as file:
                while file.tell() < file.size():
                    yield pa.ipc.open_stream(file).read_all()

    def drop(self, slots: Iterable[int]) -> None:
        """Remove rows from disk that are not read again."""
        if self._folder:
            for slot in slots:
                (self._folder / str(slot)).unlink(missing_ok=True)

    def _to_disk(self) -> None:
        if not self._kept:
            return
        self._folder = self._folder or _remove_with(self, _new_folder())
        tables, slots = zip(*self._kept, strict=True)
        self._kept, self._bytes = [], 0
        order, there, starts = _by_number(np.concatenate(slots))
        rows = together(tables).take(pa.array(order))
        for slot, (start, stop) in zip(there, pairwise(starts.tolist()), strict=True):
            with (
                (self._folder / str(slot)).open("ab") as file,
                pa.ipc.new_stream(file, rows.schema, options=COMPRESSED) as stream,
            ):
                stream.write_table(rows[start:stop])


def frame_of_files(
    like: Any, tables: Iterable[pa.Table], constants: Callable[[], Mapping[str, Any]] = dict
) -> Any:
    """Return tables with constant columns as a frame over files, which go with the last one to read them."""
    folder = _new_folder()
    try:
        for number, table in enumerate(tables):
            pq.write_table(table, folder / f"{number:06}.parquet", row_group_size=GROUP_ROWS)
        data = pads.dataset(folder, format="parquet")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if engine_of(like) == "duckdb":  # which reads files itself: Arrow reads up to 1 GiB ahead of it
        files = glob.escape(str(folder)).replace("'", "''") + "/*.parquet"
        data = data.schema.empty_table()  # is kept by all that reads the files
        rows = f"FROM read_parquet('{files}', hive_partitioning=false) UNION ALL FROM data"
        frame: Any = like.query("trades", rows)  # of the connection that `like` is of
    else:
        import polars

        frame = polars.scan_pyarrow_dataset(data)
    _remove_with(data, folder)
    added = [nw.lit(value).alias(name) for name, value in constants().items()]
    return nw.from_native(frame).with_columns(*added).to_native() if added else frame


def together(tables: Iterable[pa.Table]) -> pa.Table:
    """Put tables together, with one dictionary for each column that has several."""
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()


def in_shares(columns: Columns, buckets: np.ndarray, count: int) -> list[Columns]:
    """Split columns of rows, each in one of `BUCKETS` buckets, into so many shares."""
    numbers = (np.arange(BUCKETS) * count // BUCKETS).astype(np.uint8)[buckets]
    order = np.argsort(numbers, kind="stable")
    places = np.split(order, np.searchsorted(numbers[order], np.arange(1, count)))
    return [{name: column[some] for name, column in columns.items()} for some in places]


def _by_number(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an order of rows by number, the different numbers, and where each starts and the last ends."""
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    starts = first_of(numbers)
    return order, numbers[starts], np.append(starts, len(numbers))


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=limits.spill_folder()))


def _remove_with(owner: Any, folder: Path) -> Path:
    """Remove a folder once its owner is gone; return it."""
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def stacked(parts: list[Columns]) -> Columns:
    """Put columns of several parts together."""
    if len(parts) < 2:
        return parts[0] if parts else {}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
