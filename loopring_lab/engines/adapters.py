"""Frames of every engine opened alike: checked columns, exact amounts, times in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import range_of
from loopring_lab.errors import AmountError, LabError, did_you_mean

AMOUNTS = ("size", "price", "notional", "fee")
RESERVED = {
    "all_in_bps", "bps", "charged", "fills", "first", "gap_bps", "largest", "last", "median_bps", "milli_bps",
    "moment", "notional_share", "period", "price_bps", "quantile", "received", "share", "smallest", "unknown",
    "unmatched", "unpriced", "valued", "volume", "vwap", "worse_bps", "zero", "zero_fee_share", "both_sides",
    *(f"{name} {suffix}" for name in AMOUNTS for suffix in ("known", "as float")),
}  # fmt: skip
"""Columns that results add, so that trades cannot be grouped by columns of the same name."""
DECIMAL_256 = pa.decimal256(37, 18)
DECIMAL_128 = pa.decimal128(38, 18)
TIMESTAMP = pa.timestamp("ms", "UTC")
FLOATS = (nw.Float32, nw.Float64)
NESTED_TYPES = (nw.List, nw.Struct, nw.Array, nw.Object)
TEXTUAL = (pd.IntervalDtype, pd.PeriodDtype)
ENGINES = {
    nw.Implementation.POLARS: "polars",
    nw.Implementation.DUCKDB: "duckdb",
    nw.Implementation.DASK: "dask",
    nw.Implementation.PYSPARK: "spark",
    nw.Implementation.PYSPARK_CONNECT: "spark",
}


def portable(trades: pd.DataFrame | pa.Table) -> pa.Table:
    """Convert a frame to an Arrow table that engines without 256-bit decimals can read.

    Parameters
    ----------
    trades : pandas.DataFrame or pyarrow.Table
        As returned by `Client.trades`.

    Returns
    -------
    pyarrow.Table
        The same rows and columns: amounts as ``decimal128(38, 18)``, categories as strings, times as
        ``timestamp[ms, UTC]``. Write it with ``pyarrow.parquet.write_table``, or pass it to
        ``polars.from_arrow``, ``duckdb.from_arrow`` or ``spark.createDataFrame``.

    Raises
    ------
    LabError, AmountError
        The frame is neither pandas nor pyarrow, a time is finer than a millisecond, or an amount has more
        than 19 digits before the point or 18 after it.

    Examples
    --------
    >>> lab.engines.portable(client.trades(account_id=10083, limit=1)).schema.field("fee").type
    Decimal128Type(decimal128(38, 18))
    """
    caller, engine = "engines.portable", engine_of(trades)
    if engine not in ("pandas", "pyarrow"):
        raise LabError(f"{caller} takes a pandas or pyarrow frame. A {engine} frame needs no conversion.")
    table = _to_arrow(trades, _column_names(trades, caller), caller)
    return pa.table({name: _portable_column(table[name], name) for name in table.column_names})


class Key(str):
    """The name of a column to group by, with the order of its categories if they have one."""

    __slots__ = ("order",)
    order: list[Any]


def group_keys(by: Any, caller: str, *reserved: str, frame: Any = None) -> list[str]:
    """Check ``by=`` and return it as a list of column names, as keys if `frame` is given."""
    if by is None:
        return []
    names: list[Any] = list(by) if isinstance(by, Iterable) and not isinstance(by, str) else [by]
    for name in names:
        if name == "created_at":
            hint = "Use every= to group by period."
        elif not isinstance(name, str) or name in (*AMOUNTS, "fee_bps"):
            hint = "Use columns such as market."
        elif name in RESERVED or name in reserved:
            hint = "The result has its own column of that name: rename yours."
        elif names.count(name) > 1:
            hint = "Name it once."
        else:
            continue
        raise LabError(f"{caller}: by= cannot include {name!r}. {hint}")
    return names if frame is None else [_key(frame, name) for name in names]


def engine_of(frame: Any) -> str:
    """Return the name of a frame's engine, or raise a `LabError`."""
    if isinstance(frame, pd.DataFrame):
        return "pandas"
    if isinstance(frame, pa.Table):
        return "pyarrow"
    opened = nw.from_native(frame, pass_through=True)
    if isinstance(opened, (nw.DataFrame, nw.LazyFrame)) and opened.implementation in ENGINES:
        return ENGINES[opened.implementation]
    raise LabError(
        f"expected a trades DataFrame, got {type(frame).__name__}. "
        "Pass a pandas, pyarrow, Polars, DuckDB, Dask or Spark frame, such as client.trades(...) returns."
    )


def open_frame(frame: Any, columns: Sequence[str], caller: str) -> Any:
    """Open columns of a frame with narwhals, ``created_at`` as ``moment`` in milliseconds."""
    engine = engine_of(frame)
    table, schema = _select(frame, engine, columns, caller)
    for name in columns:
        if schema[name] in FLOATS and name != "fee_bps":  # -0.0 becomes 0.0: one group on every engine
            zero = nw.lit(0.0).cast(schema[name])
            key = nw.when(nw.col(name) == 0).then(zero).otherwise(nw.col(name))
            table = table.with_columns(key.alias(name))
    if "fee_bps" in columns:
        rate = schema["fee_bps"]
        if not rate.is_numeric() and rate != nw.Unknown:
            raise LabError(f"{caller}: fee_bps is {rate}, not a number. Convert it to float64 basis points.")
        table = table.with_columns(nw.col("fee_bps").cast(nw.Float64))
    if "created_at" not in columns:
        return table
    time = schema["created_at"]
    if not isinstance(time, nw.Datetime) or time.time_zone is None:
        raise LabError(
            f"{caller}: created_at is {time}, not a time with a time zone. Convert it, such as with "
            "pandas.to_datetime(..., utc=True)."
        )
    return _with_moment(table, engine).drop("created_at")


def columns_of(frame: Any, columns: Sequence[str], caller: str) -> Any:
    """Return these columns of a Dask frame, in the same partitions."""
    _check_columns(columns, list(frame.columns), caller)
    return frame[list(dict.fromkeys(columns))]


def not_groupable(name: str, type_: Any, caller: str) -> LabError:
    """Build the error for a column whose values cannot be grouped by."""
    return LabError(
        f"{caller}: {name!r} is {type_}, and such values cannot be ordered to group by them. Convert them to "
        "strings or numbers."
    )


def checked_cast(column: pa.ChunkedArray, to: pa.DataType, name: str) -> pa.ChunkedArray:
    """Cast a column of amounts, or raise an `AmountError` that names it."""
    try:
        return column.cast(to)
    except pa.ArrowInvalid:
        raise AmountError(
            f"{name}: an amount does not fit {range_of(to)}. Leave it out, or use pandas with a wider dtype."
        ) from None


def decode(column: pa.ChunkedArray, name: str, *, encoded: bool = False) -> pa.ChunkedArray:
    """Decode large strings, and categories but for those of strings if they may stay `encoded`.

    Raise for values engines cannot hold, such as intervals.
    """
    values = column.type
    encoded &= pa.types.is_dictionary(values) and not any(one.dictionary.null_count for one in column.chunks)
    if pa.types.is_dictionary(values):
        if _is_nested(values):
            raise LabError(f"{name!r} is {values}, which engines cannot hold. Convert to strings or numbers.")
        values = values.value_type
    to = pa.string() if pa.types.is_large_string(values) else values
    if encoded and pa.types.is_string(to):
        to = pa.dictionary(column.type.index_type, to, column.type.ordered)
    return column if to == column.type else column.cast(to)


def _key(frame: Any, name: str) -> Key:
    key, engine = Key(name), engine_of(frame)
    if engine == "pyarrow":
        key.order = _order_of_dictionary(frame[name]) if name in frame.column_names else []
    elif engine in ("pandas", "dask"):
        key.order = _order_of_categories(frame[name]) if name in frame.columns else []
    else:
        type_ = nw.from_native(frame).collect_schema().get(name)
        key.order = list(type_.categories) if isinstance(type_, nw.Enum) else []
    return key


def _order_of_dictionary(column: pa.ChunkedArray) -> list[Any]:
    column = column.unify_dictionaries()
    is_ordered = pa.types.is_dictionary(column.type) and column.type.ordered and column.num_chunks
    return column.chunk(0).dictionary.to_pylist() if is_ordered else []


def _order_of_categories(column: Any) -> list[Any]:
    type_ = column.dtype
    if isinstance(type_, pd.IntervalDtype) and isinstance(column, pd.Series):
        return [str(interval) for interval in sorted(column.dropna().unique())]
    if not isinstance(type_, pd.CategoricalDtype):
        return []
    if isinstance(type_.categories.dtype, pd.IntervalDtype) and not type_.ordered:
        return [str(interval) for interval in sorted(type_.categories)]
    return list(_as_text(type_.categories)) if type_.ordered else []


def _as_text(values: Any) -> Any:
    """Write intervals and periods as text, and leave other values."""
    return values.astype(str) if isinstance(values.dtype, TEXTUAL) else values


def _with_textual_keys(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace intervals and periods, which Arrow does not group by, by their text."""
    added: dict[Any, Any] = {}
    for name, type_ in frame.dtypes.items():
        if isinstance(type_, TEXTUAL):
            added[name] = frame[name].astype(str).where(frame[name].notna())
        elif isinstance(type_, pd.CategoricalDtype) and isinstance(type_.categories.dtype, TEXTUAL):
            added[name] = frame[name].cat.rename_categories(_as_text(type_.categories))
    return frame.assign(**added) if added else frame


def _portable_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    column = decode(column, name)
    if pa.types.is_decimal(column.type):
        return checked_cast(column, DECIMAL_128, name)
    if pa.types.is_duration(column.type):  # DuckDB converts what lies under nulls as well
        return pc.if_else(column.is_valid(), column.fill_null(0), pa.scalar(None, column.type))
    if not pa.types.is_timestamp(column.type) or not column.type.tz:
        return column
    try:
        return column.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        raise LabError(
            f"{name}: a time is finer than a millisecond. Round it down with .dt.floor('ms'), or drop the "
            "column."
        ) from None


def _to_arrow(frame: pd.DataFrame | pa.Table, columns: Sequence[str], caller: str) -> pa.Table:
    """Convert columns to Arrow: one dictionary per column, amounts as 256-bit decimals."""
    if isinstance(frame, pd.DataFrame):
        try:
            frame = pa.Table.from_pandas(frame[list(columns)], preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise LabError(
                f"{caller}: Arrow cannot hold the frame's values: {'; '.join(map(str, error.args))}. Clean "
                "that column first."
            ) from None
    table = frame.select(list(columns)).unify_dictionaries()
    for place, field in enumerate(table.schema):
        if field.name in AMOUNTS and field.type != DECIMAL_256:
            if not (pa.types.is_decimal(field.type) or pa.types.is_null(field.type)):
                raise _not_exact(field.name, field.type, caller)
            column = checked_cast(table[field.name], DECIMAL_256, field.name)
            table = table.set_column(place, field.name, column)
    return table


def _not_exact(name: str, type_: Any, caller: str) -> AmountError:
    return AmountError(
        f"{caller}: {name} is {type_}, not an exact amount. Use decimals, as client.trades and "
        "lab.engines.portable return; Dask reads them with read_parquet(..., dtype_backend='pyarrow')."
    )


def _select(frame: Any, engine: str, columns: Sequence[str], caller: str) -> tuple[Any, dict[str, Any]]:
    """Select columns with narwhals and return them with their types: amounts exact, nothing nested."""
    if engine in ("pandas", "pyarrow"):
        _check_columns(columns, _column_names(frame, caller), caller)
        whole = isinstance(frame, pa.Table)
        arrow = _to_arrow(frame if whole else _with_textual_keys(frame[list(columns)]), columns, caller)
        for field in arrow.schema:
            if _is_nested(field.type):
                raise not_groupable(field.name, field.type, caller)
        table: Any = nw.from_native(arrow)
        return table, dict(table.schema)
    table = nw.from_native(frame)
    schema = dict(table.collect_schema())
    _check_columns(columns, list(schema), caller)
    for name in columns:
        if isinstance(schema[name], NESTED_TYPES):
            raise not_groupable(name, schema[name], caller)
        if name in AMOUNTS and not isinstance(schema[name], nw.Decimal):
            raise _not_exact(name, schema[name], caller)
    return table.select(*columns), schema


def _check_columns(columns: Sequence[str], names: list[str], caller: str) -> None:
    for name in columns:
        if name not in names:
            columns_text = f"It has {', '.join(map(str, names)) or 'no columns'}."
            hint = did_you_mean(name, map(str, names), columns_text)
            raise LabError(f"{caller}: the frame has no column {name!r}. {hint}")


def _is_nested(type_: pa.DataType) -> bool:
    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_nested(inner) or isinstance(inner, pa.BaseExtensionType))


def _column_names(frame: pd.DataFrame | pa.Table, caller: str) -> list[str]:
    names = list(frame.columns) if isinstance(frame, pd.DataFrame) else frame.column_names
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"{caller}: the frame has two columns {name!r}. Drop or rename one of them.")
    return names


def _with_moment(table: Any, engine: str) -> Any:
    if engine == "duckdb":
        return nw.from_native(table.to_native().project("*, epoch_ms(created_at) AS moment"))
    if engine == "spark":
        from pyspark.sql import functions

        native = table.to_native()
        return nw.from_native(native.withColumn("moment", functions.unix_millis("created_at")))
    return table.with_columns(nw.col("created_at").dt.timestamp("ms").alias("moment"))
