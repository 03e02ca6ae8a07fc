"""Rows out of a frame of any engine, and answers as frames of the engine that asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa

from loopring_lab.engines.adapters import (
    AMOUNTS,
    MOMENT,
    WIDE,
    cast,
    engine_of,
    flat,
    open_frame,
    partitions,
    portable,
)
from loopring_lab.errors import LabError

__all__ = ["batches", "to_native", "to_pandas", "with_columns"]

IN_MEMORY = ("pandas", "pyarrow", "polars")
BATCH = 1 << 20


def to_native(frame: Any, table: pa.Table) -> Any:
    """Give an Arrow table as a frame of the same engine as `frame`."""
    engine = engine_of(frame)
    if engine == "pyarrow":
        return table
    if engine in ("pandas", "dask"):
        data = table.to_pandas(types_mapper=_exact_dtype)
        data = data.astype(
            {f.name: "Int64" for f in table.schema if f.nullable and pa.types.is_int64(f.type)}
        )
        if engine == "dask":
            from dask.dataframe import from_pandas

            return from_pandas(data, npartitions=1)  # type: ignore[no-untyped-call]
        data.attrs |= frame.attrs
        return data
    narrow = portable(table)
    if engine == "polars":
        import polars

        made = polars.from_arrow(narrow)
        return made.lazy() if isinstance(frame, polars.LazyFrame) else made  # type: ignore[union-attr]
    if engine == "duckdb":
        import duckdb

        return duckdb.from_arrow(narrow)
    return frame.sparkSession.createDataFrame(narrow)


def with_columns(frame: Any, columns: dict[str, pa.Array]) -> Any:
    """Add columns to a frame that is in memory."""
    engine = engine_of(frame)
    if engine == "pyarrow":
        kept = frame.select([name for name in frame.column_names if name not in columns])
        for name, column in columns.items():
            kept = kept.append_column(name, column)
        return kept
    fresh = to_native(
        frame.head(0) if engine == "pandas" else frame.lazy().collect().head(0), pa.table(columns)
    )
    if engine == "pandas":
        kept = frame.drop(columns=list(columns), errors="ignore")
        return kept.assign(**{name: fresh[name].array for name in fresh})
    whole = frame.lazy().collect().drop(fresh.columns, strict=False).hstack(fresh)
    return whole.lazy() if isinstance(nw.from_native(frame), nw.LazyFrame) else whole


def batches(frame: Any, columns: Sequence[str], what: str) -> Iterator[pa.Table]:
    """Drain columns of a frame in parts, whichever engine holds it."""
    if engine_of(frame) == "dask":
        for part in partitions(frame, columns, what):
            yield from batches(part.compute(), columns, what)
        return
    lazy = open_frame(frame, columns, what)
    for part in _parts(lazy, engine_of(frame)):
        for start in range(0, max(len(part), 1), BATCH):
            yield plain(part.slice(start, BATCH))


def to_pandas(frame: Any, what: str, columns: Sequence[str]) -> pd.DataFrame:
    """Take columns of a frame that is in memory as pandas."""
    in_memory(frame, what)
    wanted = list(dict.fromkeys(columns))
    table = plain(open_frame(frame, wanted, what).lazy().collect("pyarrow").to_native())
    if "moment" in table.column_names:
        table = table.append_column("created_at", table["moment"].cast(MOMENT)).drop_columns("moment")
    found: pd.DataFrame = table.select(wanted).to_pandas(types_mapper=_exact_dtype)
    return found


def in_memory(frame: Any, what: str) -> str:
    """Name the engine of a frame that holds its rows in memory, or say how to collect them."""
    engine = engine_of(frame)
    if engine not in IN_MEMORY:
        collect = {
            "duckdb": "relation.to_arrow_table()",
            "dask": "frame.compute()",
            "spark": "frame.toArrow()",
        }
        raise LabError(
            f"{what} looks at single fills in the order of time, which {engine} frames cannot do here; "
            "pandas, pyarrow and Polars frames can. Choose the rows you need and collect them: "
            f"{collect[engine]}."
        )
    return engine


def plain(part: pa.Table) -> pa.Table:
    """Write categories out as strings, amounts as ``decimal256(37, 18)``, moments as integers."""
    for place, field in enumerate(part.schema):
        column = flat(part[field.name], field.name)
        if field.name in AMOUNTS and field.type != WIDE:
            column = cast(column, WIDE, field.name)
        elif field.name == "moment":
            column = column.cast(pa.int64())
        part = part.set_column(place, field.name, column)
    return part


def _parts(lazy: Any, engine: str) -> Iterator[pa.Table]:
    native = lazy.to_native()
    if engine == "duckdb":
        reader = native.to_arrow_reader(BATCH)
        yield from (pa.Table.from_batches([batch]) for batch in reader)
        yield reader.schema.empty_table()
    elif engine == "spark":
        yield native.toArrow()
    else:
        yield lazy.lazy().collect("pyarrow").to_native()


def _exact_dtype(type_: pa.DataType) -> pd.ArrowDtype | None:
    return pd.ArrowDtype(type_) if pa.types.is_decimal(type_) else None
