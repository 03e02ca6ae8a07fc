"""Rows on disk: put by what they belong together by, and read again part by part; results as files."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from loopring_lab.engines import limits
from loopring_lab.engines.adapters import engine_of
from loopring_lab.engines.asof import moments_of
from loopring_lab.engines.pairs import row_groups

COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
GROUP_ROWS = 1 << 17


class Spool:
    """Tables on disk, in numbered slots; the folder is removed with the object."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=limits.spill_folder()))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._empty: pa.Table | None = None

    def add(self, table: pa.Table, slots: np.ndarray) -> None:
        """Append each row to its slot."""
        self._empty = table.slice(0, 0) if self._empty is None else self._empty
        order = np.argsort(slots, kind="stable")
        table, slots = table.take(pa.array(order)), slots[order]
        ends = np.append(np.flatnonzero(np.diff(slots)) + 1, len(slots))
        for start, end in zip(np.append(0, ends[:-1]), ends, strict=True):
            if start == end:
                continue
            part = table.slice(start, end - start)
            with (
                self._file(slots[start]).open("ab") as file,
                pa.ipc.new_stream(file, part.schema, options=COMPRESSED) as stream,
            ):
                stream.write_table(part)

    def read(self, slots: Iterable[int]) -> pa.Table:
        """Read the rows of slots; there must have been some table."""
        parts = [self._empty]
        for slot in slots:
            if self._file(slot).exists():
                with pa.OSFile(str(self._file(slot))) as file:
                    while file.tell() < file.size():
                        parts.append(pa.ipc.open_stream(file).read_all())
        return _together(parts)

    def _file(self, slot: int) -> Path:
        return self._folder / str(slot)


class FirstPrices:
    """The first known prices of each slot, by some columns: those after a window are among later slots'."""

    def __init__(self, keys: Sequence[str], slot_of: Callable[[np.ndarray], np.ndarray]) -> None:
        self._keys, self._slot_of, self._found = keys, slot_of, list[pa.Table]()

    def noted(self, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Note the first prices of batches, and pass these on."""
        for batch in batches:
            self.note(batch)
            yield batch

    def note(self, rows: pa.Table) -> None:
        """Note the first prices of rows; those without prices have none."""
        if self._keys and {*self._keys, "price"} <= {*rows.column_names}:
            firsts = self._firsts(_together([*self._found, self._firsts(rows, by_slot=True)]), by_slot=True)
            self._found = [firsts]

    def added(self, rows: pa.Table, slot: int) -> pa.Table:
        """Add to rows the first prices from a slot on."""
        later = [one.filter(pa.array(self._slot_of(moments_of(one)) >= slot)) for one in self._found]
        return _together([rows, *(self._firsts(one, by_slot=False) for one in later)]) if later else rows

    def _firsts(self, rows: pa.Table, *, by_slot: bool) -> pa.Table:
        """Take the known prices of the first moment in each group, all of several at once."""
        known = pc.greater(rows["price"], pa.scalar(0, rows["price"].type))
        rows = rows.filter(pc.and_(known, rows["moment"].is_valid()))
        groups, moments = row_groups(rows, self._keys)[0], moments_of(rows)
        if by_slot:
            slots = self._slot_of(moments)
            groups = np.unique(groups * (slots.max(initial=0) + 1) + slots, return_inverse=True)[1]
        first = np.full(groups.max(initial=-1) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, groups, moments)
        return rows.filter(pa.array(moments == first[groups]))


def _together(tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()


class ResultFiles:
    """Tables of a result in Parquet files, which are removed with the last frame that reads them."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=limits.spill_folder()))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        for number, table in enumerate(tables):
            pq.write_table(table, self._folder / f"{number:06}.parquet", row_group_size=GROUP_ROWS)

    def frame(self, like: Any, constants: Mapping[str, Any] | None = None) -> Any:
        """Return the files as a frame of DuckDB or a lazy one of Polars, with columns of one value."""
        data = pads.dataset(self._folder, format="parquet")
        self._remove.detach()
        weakref.finalize(data, shutil.rmtree, self._folder, ignore_errors=True)
        if engine_of(like) == "duckdb":
            frame: Any = like.query("trades", "FROM data")  # of the connection that `like` is of
        else:
            import polars

            frame = polars.scan_pyarrow_dataset(data)
        added = [nw.lit(value).alias(name) for name, value in (constants or {}).items()]
        return nw.from_native(frame).with_columns(*added).to_native() if added else frame
