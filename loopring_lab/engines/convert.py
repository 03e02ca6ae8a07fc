"""Rows read from frames of any engine, and results converted back to the same engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.limbs import blocks
from loopring_lab.engines import adapters, workers
from loopring_lab.engines.adapters import engine_of, open_frame

ELSEWHERE = ("duckdb", "dask", "spark")
"""Engines that hold rows elsewhere than in memory."""
BATCH_ROWS = 1 << 20


def as_read(rows: pa.Table) -> pa.Table:
    """Return rows unchanged."""
    return rows


def as_table(frame: pd.DataFrame) -> pa.Table:
    """Return all columns of a pandas frame as they stand."""
    return pa.Table.from_pandas(frame, preserve_index=False)  # a method of Cython does not go to workers


def to_native(frame: Any, table: pa.Table) -> Any:
    """Convert an Arrow table to a frame of the same engine as `frame`."""
    engine = engine_of(frame)
    if engine == "pyarrow":
        return table
    if engine in ("pandas", "dask"):
        data = table.to_pandas(types_mapper=_exact_dtype)
        data = data.astype({f.name: "Int64" for f in table.schema if f.nullable and f.type == pa.int64()})
        if engine == "dask":
            from dask.dataframe import from_pandas

            return from_pandas(data, npartitions=1)  # type: ignore[no-untyped-call]
        data.attrs |= frame.attrs
        return data
    narrow = adapters.portable(table)
    if engine == "polars":
        import polars

        result = polars.from_arrow(narrow)
        return result.lazy() if isinstance(frame, polars.LazyFrame) else result  # type: ignore[union-attr]
    if engine == "duckdb":
        return frame.query("trades", "FROM narrow")  # of the connection that the frame is of
    # Spark loses rows of tables whose columns are cut into differing chunks
    return frame.sparkSession.createDataFrame(narrow.combine_chunks())


def is_in_memory(frame: Any) -> bool:
    """Tell whether the rows of a frame are in memory already."""
    engine = engine_of(frame)
    return engine not in ELSEWHERE and not (engine == "polars" and hasattr(frame, "collect"))


def with_note(result: Any, note: str) -> Any:
    """Add a note to a pandas frame, which `show` prints under it."""
    if note and isinstance(result, pd.DataFrame):
        result.attrs["notes"] = list(dict.fromkeys([*result.attrs.get("notes", []), note]))
    return result


def with_columns(frame: Any, columns: dict[str, pa.Array]) -> Any:
    """Add columns to a frame that is in memory, or replace them where they stand."""
    engine = engine_of(frame)
    if engine == "pyarrow":
        for name, column in columns.items():
            place = frame.column_names.index(name) if name in frame.column_names else -1
            frame = frame.append_column(name, column) if place < 0 else frame.set_column(place, name, column)
        return frame
    if engine == "pandas":
        added = to_native(frame, pa.table(columns))
        return frame.assign(**{name: added[name].array for name in added})
    whole = frame.lazy().collect()
    whole = whole.with_columns(to_native(whole, pa.table(columns)))
    return whole.lazy() if isinstance(nw.from_native(frame), nw.LazyFrame) else whole


def take(frame: Any, positions: np.ndarray) -> Any:
    """Take rows of a frame that is in memory; in pandas they are numbered anew."""
    engine = engine_of(frame)
    if engine == "pyarrow":
        return frame.take(pa.array(positions))
    if engine == "pandas":
        return frame.take(positions).reset_index(drop=True)
    taken = frame.lazy().collect()[positions]
    return taken.lazy() if isinstance(nw.from_native(frame), nw.LazyFrame) else taken


def batches(
    frame: Any,
    columns: Sequence[str],
    caller: str,
    most: int = BATCH_ROWS,
    work: Callable[[pa.Table], pa.Table] = as_read,
    priority: int = workers.AHEAD,
) -> Iterator[pa.Table]:
    """Read columns of a frame of any engine in batches of at most `most` rows, as normalized tables.

    `work` is applied to each batch, by Dask's workers to partitions: a cluster starts at once.
    """
    if engine_of(frame) != "dask":
        return _batches(frame, columns, caller, most, work)
    read = functools.partial(_read, caller=caller, columns=columns, work=work)
    tables = workers.apply(read, adapters.columns_of(frame, columns, caller), priority)
    return (block for table in tables for block in blocks(table, most)) if work is as_read else tables


def _batches(
    frame: Any, columns: Sequence[str], caller: str, most: int, work: Callable[[pa.Table], pa.Table]
) -> Iterator[pa.Table]:
    opened = open_frame(frame, columns, caller)
    for part in _native_parts(opened, engine_of(frame), most):
        for block in blocks(part, most):
            yield work(normalize(block))


def whole_batches(frame: Any, caller: str, most: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Read all columns of a frame that is not in memory, as they stand, in batches."""
    if engine_of(frame) == "dask":
        tables = workers.apply(as_table, frame)
    else:
        tables = _native_parts(nw.from_native(frame), engine_of(frame), most)
    for table in tables:
        yield from blocks(table, most)


def column_names(frame: Any) -> list[str]:
    """Return the names of a frame's columns, of any engine."""
    if engine_of(frame) == "pandas":
        return list(frame.columns)
    return list(nw.from_native(frame).collect_schema().names())


def to_pandas(frame: Any, caller: str, columns: Sequence[str]) -> pd.DataFrame:
    """Read columns of a frame that is in memory into pandas."""
    table, names = to_table(frame, caller, columns), list(dict.fromkeys(columns))
    if "moment" in table.column_names:
        table = table.append_column("created_at", table["moment"].cast(adapters.TIMESTAMP))
    rows: pd.DataFrame = table.select(names).to_pandas(types_mapper=_exact_dtype)
    return rows


def to_table(frame: Any, caller: str, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
    """Read columns of a frame into memory, and `optional` ones that it has; normalized."""
    there = set(column_names(frame)) if optional else set()
    names = dict.fromkeys([*columns, *(name for name in optional if name in there)])
    if is_normalized(frame):
        return frame.select(["moment" if name == "created_at" else name for name in names])
    if engine_of(frame) in ELSEWHERE:
        return pa.concat_tables(batches(frame, [*names], caller), promote_options="permissive")
    return normalize(open_frame(frame, [*names], caller).lazy().collect("pyarrow").to_native())


def is_normalized(frame: Any) -> bool:
    """Tell whether a frame is a table that `to_table` has read, such as a window's."""
    names = set(frame.column_names) if isinstance(frame, pa.Table) else set()
    return "moment" in names and "created_at" not in names


def normalize(part: pa.Table) -> pa.Table:
    """Convert amounts to ``decimal256(37, 18)``, moments to integers; categories of strings stay."""
    columns = {name: adapters.decode(part[name], name, encoded=True) for name in part.column_names}
    for name, column in columns.items():
        if name in adapters.AMOUNTS:
            columns[name] = adapters.checked_cast(column, adapters.DECIMAL_256, name)
        elif name == "moment":
            columns[name] = column.cast(pa.int64())
    return pa.table(columns)


def _read(frame: Any, columns: Sequence[str], caller: str, work: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Read columns of a partition in a worker."""
    return work(to_table(frame, caller, columns))


def _native_parts(opened: Any, engine: str, most: int) -> Iterator[pa.Table]:
    native = opened.to_native()
    if engine == "duckdb":
        reader = native.to_arrow_reader(most)
        yield from (pa.Table.from_batches([batch]) for batch in reader)
        yield reader.schema.empty_table()  # an empty relation has no batches, and callers need one
    elif engine == "spark":
        yield native.toArrow()
    elif isinstance(opened, nw.LazyFrame):
        if hasattr(native, "collect_batches"):  # of Polars from 1.34
            yield from (part.to_arrow() for part in native.collect_batches(chunk_size=most))
            yield native.head(0).collect().to_arrow()
        else:
            yield native.collect().to_arrow()
    else:
        yield opened.lazy().collect("pyarrow").to_native()


def _exact_dtype(type_: pa.DataType) -> pd.ArrowDtype | None:
    return pd.ArrowDtype(type_) if pa.types.is_decimal(type_) else None
