"""Which engine a frame is of, and how it is opened: amounts exact, times in UTC."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa

from loopring_lab.errors import AmountError, LabError

__all__ = ["group_keys", "open_frame", "portable"]

AMOUNTS = ("size", "price", "notional", "fee")
OWN = {
    "all_in_bps", "bps", "charged", "fills", "first", "gap_bps", "largest", "last", "median_bps", "milli_bps",
    "moment", "notional_share", "period", "price_bps", "quantile", "received", "share", "smallest", "unknown",
    "unmatched", "unpriced", "volume", "vwap", "worse_bps", "zero", "zero_fee_share",
    *(f"{name} {working}" for name in AMOUNTS for working in ("known", "as float")),
}  # fmt: skip
WIDE = pa.decimal256(37, 18)
PORTABLE = pa.decimal128(38, 18)
MOMENT = pa.timestamp("ms", "UTC")
NESTED = (nw.List, nw.Struct, nw.Array, nw.Object)
NAMES = {
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
    LabError
        It is no such frame, or a time is finer than a millisecond.
    AmountError
        An amount has more than 19 digits before the point or 18 after it.

    Examples
    --------
    >>> from loopring_lab.amounts import to_units
    >>> portable(pd.DataFrame({"fee": to_units(["1"], 18)})).schema.field("fee").type
    Decimal128Type(decimal128(38, 18))
    """
    what = "engines.portable"
    if engine_of(trades) not in ("pandas", "pyarrow"):
        raise LabError(
            f"{what} takes a pandas or pyarrow frame. Give the {engine_of(trades)} frame as it is."
        )
    table = _arrow(trades, _names(trades, what), what)
    for place, field in enumerate(table.schema):
        column = flat(table[field.name], field.name)
        if pa.types.is_decimal(field.type):
            column = cast(column, PORTABLE, field.name)
        elif pa.types.is_timestamp(field.type) and field.type.tz:
            column = _in_milliseconds(column, field.name)
        table = table.set_column(place, field.name, column)
    return table.replace_schema_metadata(None)


def group_keys(by: Any, what: str, *own: str) -> list[str]:
    """Read ``by=``: names of columns to group by."""
    several = isinstance(by, Iterable) and not isinstance(by, str)
    names: list[str] = [] if by is None else list(by) if several else [by]
    for name in names:
        hint = _unfit(name, own) or ("Name it once." if names.count(name) > 1 else "")
        if hint:
            raise LabError(f"{what}: by= cannot take {name!r}. {hint}")
    return names


def _unfit(name: object, own: Sequence[str]) -> str:
    """Say why a column cannot be grouped by; nothing if it can."""
    if name == "created_at":
        return "Periods are asked for with every=."
    if not isinstance(name, str) or name in (*AMOUNTS, "fee_bps"):
        return "Use columns such as market."
    return "Answers have a column of that name: rename yours." if name in OWN or name in own else ""


def engine_of(frame: Any) -> str:
    """Name the engine of a frame, or raise a `LabError`."""
    if isinstance(frame, (pd.DataFrame, pa.Table)):
        return "pandas" if isinstance(frame, pd.DataFrame) else "pyarrow"
    opened = nw.from_native(frame, pass_through=True)
    known = NAMES.get(opened.implementation) if isinstance(opened, (nw.DataFrame, nw.LazyFrame)) else None
    if known is None:
        raise LabError(
            f"a {type(frame).__module__}.{type(frame).__name__} is not a frame of trades. "
            "Give a pandas, pyarrow, Polars, DuckDB, Dask or Spark frame, such as client.trades(...) gives."
        )
    return known


def open_frame(frame: Any, columns: Sequence[str], what: str) -> Any:
    """Open columns of a frame for narwhals: amounts exact, and ``moment``, its time in milliseconds."""
    engine = engine_of(frame)
    table, schema = _chosen(frame, engine, columns, what)
    if "fee_bps" in columns:
        table = _with_rate(table, schema["fee_bps"], what)
    if "created_at" not in columns:
        return table
    zoned = schema["created_at"]
    if not isinstance(zoned, nw.Datetime) or zoned.time_zone is None:
        raise LabError(
            f"{what}: created_at is {zoned}, not a time with a zone. Convert it, such as with "
            "pandas.to_datetime(..., utc=True)."
        )
    return _with_moment(table, engine).drop("created_at")


def partitions(frame: Any, columns: Sequence[str], what: str) -> list[Any]:
    """Give the partitions of a Dask frame with the columns needed: pandas frames, still to be computed."""
    _there(columns, list(frame.columns), what)
    parts: list[Any] = frame[list(dict.fromkeys(columns))].to_delayed()
    return parts


def missing(name: str, there: Sequence[str], what: str) -> LabError:
    """Say that a column is not there, and which may be meant."""
    near = difflib.get_close_matches(str(name), map(str, there), 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(map(str, there)) or 'no columns'}."
    return LabError(f"{what}: the frame has no column {name!r}. {hint}")


def unordered(name: str, type_: Any, what: str) -> LabError:
    """Say that a column's values cannot be grouped by."""
    return LabError(
        f"{what}: {name!r} is {type_}, whose values have no order to group by. Make them texts or numbers."
    )


def cast(column: pa.ChunkedArray, to: pa.DataType, name: str) -> pa.ChunkedArray:
    """Cast a column of amounts, or raise an `AmountError` that names it."""
    try:
        return column.cast(to)
    except pa.ArrowInvalid:
        raise AmountError(
            f"{name}: an amount does not fit {to}: at most {to.precision - to.scale} digits before the point "
            f"and {to.scale} after it. Leave it out, or stay on pandas with a wider dtype."
        ) from None


def flat(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Write categories out, and texts as strings; refuse what engines do not know, such as intervals."""
    if pa.types.is_dictionary(column.type):
        if _is_nested(column.type):
            raise LabError(
                f"{name!r} is {column.type}, which engines do not know. Make its values texts or numbers."
            )
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()) if pa.types.is_large_string(column.type) else column


def _in_milliseconds(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    try:
        return column.cast(MOMENT)
    except pa.ArrowInvalid:
        raise LabError(
            f"{name}: a time is finer than a millisecond. Cut it with .dt.floor('ms'), or leave the column "
            "out."
        ) from None


def _arrow(frame: pd.DataFrame | pa.Table, columns: Sequence[str], what: str) -> pa.Table:
    """Take columns as Arrow: one dictionary a column, amounts as 256-bit decimals."""
    if isinstance(frame, pd.DataFrame):
        try:
            frame = pa.Table.from_pandas(frame[list(columns)], preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise LabError(
                f"{what}: the frame holds what Arrow does not: {'; '.join(map(str, error.args))}. Clean that "
                "column first."
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


def _exact(wrong: Sequence[str], types: Any, what: str) -> None:
    if wrong:
        raise AmountError(
            f"{what}: {wrong[0]} is {types[wrong[0]]}, not an exact amount. Give decimals, as client.trades "
            "and lab.engines.portable do; Dask reads them with read_parquet(..., dtype_backend='pyarrow')."
        )


def _chosen(frame: Any, engine: str, columns: Sequence[str], what: str) -> tuple[Any, dict[str, Any]]:
    """Give columns as narwhals takes them, with their types: amounts exact, nothing nested."""
    if engine in ("pandas", "pyarrow"):
        _there(columns, _names(frame, what), what)
        arrow = _arrow(frame, columns, what)
        _flat_only({field.name: field.type for field in arrow.schema}, _is_nested, what)
        table: Any = nw.from_native(arrow)
        return table, dict(table.schema)
    table = nw.from_native(frame)
    schema = dict(table.collect_schema())
    _there(columns, list(schema), what)
    _flat_only({name: schema[name] for name in columns}, lambda dtype: isinstance(dtype, NESTED), what)
    amounts = [name for name in AMOUNTS if name in columns]
    _exact([name for name in amounts if not isinstance(schema[name], nw.Decimal)], schema, what)
    return table.select(*columns), schema


def _there(columns: Sequence[str], names: list[str], what: str) -> None:
    for name in columns:
        if name not in names:
            raise missing(name, names, what)


def _flat_only(types: Mapping[str, Any], nested: Callable[[Any], bool], what: str) -> None:
    for name, type_ in types.items():
        if nested(type_):
            raise unordered(name, type_, what)


def _is_nested(type_: pa.DataType) -> bool:
    inner = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_nested(inner) or isinstance(inner, pa.BaseExtensionType))


def _names(frame: pd.DataFrame | pa.Table, what: str) -> list[str]:
    names = list(frame.columns) if isinstance(frame, pd.DataFrame) else frame.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LabError(f"{what}: the frame has two columns {twice!r}. Drop or rename one of them.")
    return names


def _with_rate(table: Any, dtype: Any, what: str) -> Any:
    if not dtype.is_numeric() and dtype != nw.Unknown:
        raise LabError(f"{what}: fee_bps is {dtype}, not a number. Give basis points as float64.")
    return table if dtype == nw.Float64 else table.with_columns(nw.col("fee_bps").cast(nw.Float64))


def _with_moment(table: Any, engine: str) -> Any:
    if engine == "duckdb":
        return nw.from_native(table.to_native().project("*, epoch_ms(created_at) AS moment"))
    if engine == "spark":
        from pyspark.sql import functions

        native = table.to_native()
        return nw.from_native(native.withColumn("moment", functions.unix_millis("created_at")))
    return table.with_columns(nw.col("created_at").dt.timestamp("ms").alias("moment"))
