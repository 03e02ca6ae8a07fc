"""Which engine a frame is of, and how it is opened: amounts exact, times in UTC."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts import AMOUNT
from loopring_lab.errors import AmountError, LabError

__all__ = ["opened", "portable"]

AMOUNTS = ("size", "price", "notional", "fee")
WIDE = pa.decimal256(37, 18)
PORTABLE = pa.decimal128(38, 18)
MOMENT = pa.timestamp("ms", "UTC")
NAMES = {
    nw.Implementation.PANDAS: "pandas",
    nw.Implementation.PYARROW: "pyarrow",
    nw.Implementation.POLARS: "polars",
    nw.Implementation.DUCKDB: "duckdb",
    nw.Implementation.DASK: "dask",
    nw.Implementation.PYSPARK: "spark",
}


def portable(trades: pd.DataFrame | pa.Table) -> pa.Table:
    """Turn a frame into an Arrow table that engines without 256-bit decimals read.

    Parameters
    ----------
    trades : pandas.DataFrame or pyarrow.Table
        Such as `Client.trades` gives.

    Returns
    -------
    pyarrow.Table
        The same rows and columns: amounts as ``decimal128(38, 18)``, categories as strings, times as
        ``timestamp[ms, UTC]``. Write it with ``pyarrow.parquet.write_table``, or give it to
        ``polars.from_arrow``, ``duckdb.from_arrow`` or ``spark.createDataFrame``.

    Raises
    ------
    AmountError
        An amount has more than 20 digits before the point or 18 after it.

    Examples
    --------
    >>> from loopring_lab.amounts import to_units
    >>> portable(pd.DataFrame({"fee": to_units(["1"], 18)})).schema.field("fee").type
    Decimal128Type(decimal128(38, 18))
    """
    columns = trades.columns if isinstance(trades, pd.DataFrame) else trades.column_names
    table = _arrow(trades, list(columns), "engines.portable")
    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(place, field.name, cast(table[field.name], PORTABLE, field.name))
        elif pa.types.is_dictionary(field.type) or pa.types.is_large_string(field.type):
            table = table.set_column(place, field.name, table[field.name].cast(pa.string()))
        elif pa.types.is_timestamp(field.type) and field.type.tz:
            table = table.set_column(place, field.name, table[field.name].cast(MOMENT))
    return table.replace_schema_metadata(None)


def kind(frame: Any) -> str:
    """Name the engine of a frame, or raise a `LabError`."""
    opened = nw.from_native(frame, pass_through=True)
    known = NAMES.get(opened.implementation) if isinstance(opened, (nw.DataFrame, nw.LazyFrame)) else None
    if known is None:
        raise LabError(
            f"a {type(frame).__module__}.{type(frame).__name__} is not a frame of trades. "
            "Give a pandas, pyarrow, Polars, DuckDB, Dask or Spark frame, such as client.trades(...) gives."
        )
    return known


def opened(frame: Any, columns: Sequence[str], what: str) -> Any:
    """Open columns of a frame for narwhals: amounts exact, and ``moment``, its time in milliseconds.

    Parameters
    ----------
    frame : frame of any engine
        Trades.
    columns : sequence of str
        Those needed.
    what : str
        The function asked for, for error messages.

    Returns
    -------
    narwhals.DataFrame or narwhals.LazyFrame
        The columns; ``created_at`` as ``moment``, whole milliseconds since 1970 in UTC.

    Raises
    ------
    LabError
        The frame is of no known engine, lacks a column, or its times have no zone.
    AmountError
        An amount is not a decimal.
    """
    engine = kind(frame)
    table: Any = nw.from_native(frame)
    schema = dict(table.collect_schema()) if engine != "pandas" else dict.fromkeys(frame.columns)
    for name in columns:
        if name not in schema:
            raise missing(name, list(schema), what)
    if engine in ("pandas", "pyarrow"):
        table = nw.from_native(_arrow(frame, columns, what))
        schema = dict(table.schema)
    elif engine == "dask":
        wrong = [n for n in AMOUNTS if n in columns and not _is_decimal(frame.dtypes[n])]
        _exact(wrong[:1], {name: frame.dtypes[name] for name in wrong}, what)
        table = nw.from_native(frame[list(columns)].astype({n: AMOUNT for n in AMOUNTS if n in columns}))
    else:
        _exact([n for n in AMOUNTS if n in columns and not isinstance(schema[n], nw.Decimal)], schema, what)
        table = table.select(*columns)
    if "created_at" not in columns:
        return table
    zoned = schema["created_at"]
    if not isinstance(zoned, nw.Datetime) or zoned.time_zone is None:
        raise LabError(
            f"{what}: created_at is {zoned}, not a time with a zone. Convert it, such as with "
            "pandas.to_datetime(..., utc=True)."
        )
    return _with_moment(table, engine).drop("created_at")


def missing(name: str, there: Sequence[str], what: str) -> LabError:
    """Say that a column is not there, and which may be meant."""
    near = difflib.get_close_matches(name, there, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(map(str, there))}."
    return LabError(f"{what}: the frame has no column {name!r}. {hint}")


def cast(column: pa.ChunkedArray, to: pa.DataType, name: str) -> pa.ChunkedArray:
    """Cast a column of amounts, or raise an `AmountError` that names it."""
    try:
        return column.cast(to)
    except pa.ArrowInvalid:
        raise AmountError(
            f"{name}: an amount does not fit {to}: at most {to.precision - to.scale} digits before the point "
            f"and {to.scale} after it. Leave it out, or stay on pandas with a wider dtype."
        ) from None


def _arrow(frame: pd.DataFrame | pa.Table, columns: Sequence[str], what: str) -> pa.Table:
    """Take columns as Arrow: one dictionary a column, amounts as 256-bit decimals."""
    if isinstance(frame, pd.DataFrame):
        try:
            frame = pa.Table.from_pandas(frame[list(columns)], preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise LabError(
                f"{what}: the frame holds what Arrow does not: {error}. Clean that column first."
            ) from None
    table = frame.select(list(columns)).unify_dictionaries()
    floats = [n for n in AMOUNTS if n in columns and not _is_decimal_or_null(table.schema.field(n).type)]
    _exact(floats, {name: table.schema.field(name).type for name in floats}, what)
    for place, field in enumerate(table.schema):
        if field.name in AMOUNTS and field.type != WIDE:
            table = table.set_column(place, field.name, cast(table[field.name], WIDE, field.name))
    return table


def _is_decimal_or_null(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_) or pa.types.is_null(type_))


def _is_decimal(dtype: Any) -> bool:
    return bool(isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype))


def _exact(wrong: Sequence[str], types: dict[str, Any], what: str) -> None:
    if wrong:
        raise AmountError(
            f"{what}: {wrong[0]} is {types[wrong[0]]}, not an exact amount. Give decimals, as client.trades "
            "and lab.engines.portable do; Dask reads them with read_parquet(..., dtype_backend='pyarrow')."
        )


def _with_moment(table: Any, engine: str) -> Any:
    if engine == "duckdb":
        return nw.from_native(table.to_native().project("*, epoch_ms(created_at) AS moment"))
    if engine == "spark":
        from pyspark.sql import functions

        native = table.to_native()
        return nw.from_native(native.withColumn("moment", functions.unix_millis("created_at")))
    return table.with_columns(nw.col("created_at").dt.timestamp("ms").alias("moment"))
