"""Frames of every kind into DuckDB and back, with exact amounts.

An amount is an integer of 1e-18 units in queries (HUGEINT, 128 bits): DuckDB adds, compares and converts
these ten times faster than DECIMAL(38, 18), and both hold the same 38 digits. Arrow's 128-bit decimals are
stored as just these integers, so they are handed over without touching a byte. Any HUGEINT in an answer is an
amount, and leaves as a decimal; counts are BIGINT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engine.groups import quoted
from loopring_lab.errors import AmountError, LabError, did_you_mean

AMOUNTS = ("size", "price", "notional", "fee")
DECIMAL_128 = pa.decimal128(38, 18)
DECIMAL_256 = pa.decimal256(37, 18)
TIMESTAMP = pa.timestamp("ms", "UTC")
# How DuckDB marks a HUGEINT in Arrow: 16 bytes, lowest first.
HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
# Kinds of columns that pandas groups by and Arrow does not: they are grouped by their text.
TEXTUAL = (pd.IntervalDtype, pd.PeriodDtype)
# Columns that frames may hold as other types, such as numbers read from a CSV as floats.
TYPES = {
    **dict.fromkeys(("market", "base", "quote", "side", "fill_type", "role", "role_source"), "VARCHAR"),
    **dict.fromkeys(("fee_token", "order_hash"), "VARCHAR"),
    **dict.fromkeys(("trade_id", "account_id", "token_id", "storage_id"), "BIGINT"),
    **dict.fromkeys(("block_id", "index_in_block"), "BIGINT"),
    "fee_bps": "DOUBLE",
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
        than 20 digits before the point or 18 after it.

    Examples
    --------
    >>> lab.engine.portable(client.trades(account_id=10083, limit=1)).schema.field("fee").type
    Decimal128Type(decimal128(38, 18))
    """
    caller = "lab.engine.portable"
    kind = kind_of(trades)
    if kind not in ("pandas", "pyarrow"):
        raise LabError(f"{caller} takes a pandas or pyarrow frame. A {kind} frame needs no conversion.")
    table = _in_memory(trades, kind, column_names(trades, caller), caller)
    for place, field in enumerate(table.schema):
        table = table.set_column(place, field.name, _portable_column(table[field.name], field.name))
    return table


def kind_of(frame: Any) -> str:
    """Return what kind of frame this is: pandas, pyarrow, polars, duckdb, spark or archive."""
    if isinstance(frame, pd.DataFrame):
        return "pandas"
    if isinstance(frame, pa.Table):
        return "pyarrow"
    package = type(frame).__module__.partition(".")[0]
    name = type(frame).__name__
    if package == "polars" and name in ("DataFrame", "LazyFrame"):
        return "polars"
    if name == "DuckDBPyRelation":
        return "duckdb"
    if package == "pyspark" and name == "DataFrame":
        return "spark"
    if hasattr(frame, "scan") and hasattr(frame, "opened"):
        return "archive"
    hint = "Pass a pandas, pyarrow, Polars, DuckDB or Spark frame, or an Archive, such as client.trades(...) returns."
    if package.startswith("dask"):
        hint = (
            "Dask frames are not taken any more: read the files of archive.export(folder) with DuckDB or Spark, "
            "or pass trades.compute()."
        )
    full_name = name if package == "builtins" else f"{package}.{name}"
    raise LabError(f"expected a trades DataFrame, got {full_name}. {hint}")


def column_names(frame: Any, caller: str) -> list[Any]:
    """Return the names of a frame's columns; each must be there once."""
    kind = kind_of(frame)
    if kind == "archive":
        names = list(frame.scan("duckdb").columns)
    elif kind == "pyarrow":
        names = list(frame.column_names)
    elif kind == "polars":
        names = list(frame.collect_schema())
    else:
        names = list(frame.columns)
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"{caller}: the frame has two columns {name!r}. Drop or rename one of them.")
    return names


def check_columns(wanted: Iterable[str], names: Sequence[Any], caller: str) -> None:
    """Raise a `LabError` that names the first column that a frame lacks."""
    for name in wanted:
        if name not in names:
            listed = f"It has {', '.join(map(str, names)) or 'no columns'}."
            hint = did_you_mean(name, map(str, names), listed)
            raise LabError(f"{caller}: the frame has no column {name!r}. {hint}")


# Into DuckDB


def to_arrow(frame: Any, columns: Sequence[str], caller: str) -> pa.Table:
    """Convert columns of a frame in memory to Arrow as DuckDB takes them: amounts as HUGEINT."""
    table = _in_memory(frame, kind_of(frame), columns, caller)
    for place, entry in enumerate(table.schema):
        column = table[entry.name]
        if entry.name in AMOUNTS:
            column = to_hugeint(exact(column, entry.name, caller))
        elif _is_nested(entry.type):
            raise not_groupable(entry.name, entry.type, caller)
        table = table.set_column(place, entry.name, column)
    return table


def exact(column: pa.ChunkedArray, name: str, caller: str) -> pa.ChunkedArray:
    """Return a column of amounts as 128-bit decimals, or raise an `AmountError` that says which do not fit."""
    if not (pa.types.is_decimal(column.type) or pa.types.is_null(column.type)):
        raise not_exact(name, column.type, caller)
    try:
        return column.cast(DECIMAL_128)
    except pa.ArrowInvalid:
        row = _first_that_does_not_fit(column)
        raise AmountError(
            f"{caller}: {name} of row {row} is {column[row].as_py()}, which does not fit 20 digits before the "
            "point and 18 after it. Leave that row out."
        ) from None


def not_exact(name: str, kind: Any, caller: str) -> AmountError:
    """Build the error for amounts that are floats or something else that is not exact."""
    return AmountError(
        f"{caller}: {name} is {kind}, not an exact amount. Use decimals, as client.trades and "
        "lab.engine.portable return."
    )


def not_groupable(name: str, kind: Any, caller: str) -> LabError:
    """Build the error for a column whose values cannot be grouped by."""
    return LabError(
        f"{caller}: {name!r} is {kind}, and such values cannot be ordered to group by them. Convert them to "
        "strings or numbers."
    )


def to_hugeint(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """See 128-bit decimals with 18 places as integers of 1e-18: the same bytes under another name."""
    return pa.chunked_array([_seen_as(chunk, pa.binary(16)) for chunk in column.chunks], pa.binary(16)).cast(HUGEINT)


def from_hugeint(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """See integers of 1e-18 as 128-bit decimals with 18 places."""
    stored = [_seen_as(chunk.storage, DECIMAL_128) for chunk in column.chunks]
    return pa.chunked_array(stored, DECIMAL_128)


def _seen_as(chunk: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(chunk), chunk.buffers(), chunk.null_count, chunk.offset)


def _first_that_does_not_fit(column: pa.ChunkedArray) -> int:
    """Return the first row of which DECIMAL_128 cannot hold the value, by halving."""
    first, last = 0, len(column)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            column.slice(first, middle - first).cast(DECIMAL_128)
            first = middle
        except pa.ArrowInvalid:
            last = middle
    return first


def _in_memory(frame: Any, kind: str, columns: Sequence[str], caller: str) -> pa.Table:
    """Convert columns of a frame in memory to Arrow, with one dictionary for each column of categories."""
    check_columns(columns, column_names(frame, caller), caller)
    names = list(dict.fromkeys(columns))
    if kind == "pyarrow":
        return frame.select(names).unify_dictionaries()
    if kind == "polars":
        return frame.lazy().select(names).collect().to_arrow()
    try:
        table = pa.Table.from_pandas(_with_text_for_intervals(frame[names]), preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise LabError(
            f"{caller}: Arrow cannot hold the frame's values: {'; '.join(map(str, error.args))}. Clean "
            "that column first."
        ) from None
    return table.unify_dictionaries()


def _with_text_for_intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace intervals and periods by their text."""
    replaced: dict[Any, Any] = {}
    for name, kind in frame.dtypes.items():
        if isinstance(kind, TEXTUAL):
            replaced[name] = frame[name].astype(str).where(frame[name].notna())
        elif isinstance(kind, pd.CategoricalDtype) and isinstance(kind.categories.dtype, TEXTUAL):
            replaced[name] = frame[name].cat.rename_categories(list(kind.categories.astype(str)))
    return frame.assign(**replaced) if replaced else frame


def _is_nested(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_nested(inner) or isinstance(inner, pa.BaseExtensionType))


def _portable_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        if _is_nested(kind):
            raise LabError(f"{name!r} is {kind}, which engines cannot hold. Convert to strings or numbers.")
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return exact(column, name, "lab.engine.portable")
    if pa.types.is_duration(kind):
        # DuckDB converts what lies under nulls as well, and fails on what pandas puts there.
        return pc.if_else(column.is_valid(), column.fill_null(0), pa.scalar(None, kind))
    if not pa.types.is_timestamp(kind) or not kind.tz:
        return column
    try:
        return column.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        raise LabError(
            f"{name}: a time is finer than a millisecond. Round it down with .dt.floor('ms'), or drop the column."
        ) from None


# Out of DuckDB


def like(frame: Any, table: pa.Table) -> Any:
    """Convert an answer to a frame of the same kind as `frame`; for an archive, pandas."""
    kind = kind_of(frame)
    if kind == "pyarrow":
        return with_wide_amounts(table)
    if kind in ("pandas", "archive"):
        result = to_pandas(table)
        result.attrs |= getattr(frame, "attrs", {})
        return result
    if kind == "polars":
        import polars as pl

        answer = pl.DataFrame(table)
        return answer.lazy() if isinstance(frame, pl.LazyFrame) else answer
    if kind == "duckdb":
        return _relation_of(frame, table)
    # Spark loses rows of tables whose columns are cut into differing chunks.
    return frame.sparkSession.createDataFrame(table.combine_chunks())


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert an answer to pandas: amounts as the frames of `tables` have them, whole numbers as int64.

    Whole numbers of which some are unknown become Int64.
    """
    table = with_wide_amounts(table)
    result: pd.DataFrame = table.to_pandas(types_mapper=_dtype)
    partly_known = [
        entry.name for entry in table.schema if pa.types.is_integer(entry.type) and table[entry.name].null_count
    ]
    for name in partly_known:
        result[name] = pd.array(table[name].to_pandas(types_mapper=lambda _: pd.Int64Dtype()), "Int64")
    return result


def with_wide_amounts(table: pa.Table) -> pa.Table:
    """Return 128-bit amounts as the 256-bit decimals that frames of trades hold."""
    for place, entry in enumerate(table.schema):
        if pa.types.is_decimal(entry.type):
            try:
                column = table[entry.name].cast(DECIMAL_256)
            except pa.ArrowInvalid:
                raise AmountError(
                    f"{entry.name}: a sum needs more than 19 digits before the point. Select fewer trades, or "
                    "group them."
                ) from None
            table = table.set_column(place, entry.name, column)
    return table


def _dtype(kind: pa.DataType) -> pd.ArrowDtype | None:
    return pd.ArrowDtype(kind) if pa.types.is_decimal(kind) else None


def _relation_of(relation: Any, given_answer: pa.Table) -> Any:
    """Return a table as a relation of the same connection as another relation.

    DuckDB finds the table under the name of the variable that holds it.
    """
    return relation.query("trades", "FROM given_answer")


def taken(frame: Any, columns: Sequence[str], rows: np.ndarray) -> Any:
    """Take rows of some columns of a frame in memory."""
    kind = kind_of(frame)
    if kind == "pyarrow":
        return frame.select(list(columns)).take(pa.array(rows))
    if kind == "pandas":
        return frame[list(columns)].take(rows)
    return frame.lazy().select(list(columns)).collect()[rows]


def beside(frame: Any, added: pa.Table) -> Any:
    """Put columns beside those of a frame in memory, in place of its own of the same names."""
    kind = kind_of(frame)
    if kind == "pyarrow":
        for name, column in zip(added.column_names, with_wide_amounts(added).columns, strict=True):
            if name in frame.column_names:
                frame = frame.set_column(frame.column_names.index(name), name, column)
            else:
                frame = frame.append_column(name, column)
        return frame
    if kind == "pandas":
        new = to_pandas(added)
        for name in new:
            # What was a category stays one, such as the role of a fill.
            if name in frame and isinstance(frame[name].dtype, pd.CategoricalDtype):
                new[name] = new[name].astype("category")
        return frame.assign(**{str(name): new[name].array for name in new})
    import polars

    return frame.with_columns(polars.from_arrow(added))


def column_sql(name: str, kind: str, wanted: str, caller: str) -> str:
    """Return a column of type `kind` as queries take it, as type `wanted`."""
    source = quoted(name)
    if name in AMOUNTS:
        return _amount_sql(name, kind, caller)
    if name == "created_at":
        if kind == "TIMESTAMPTZ_NS":
            return f"{source}::TIMESTAMPTZ"
        if kind != "TIMESTAMP WITH TIME ZONE":
            raise LabError(
                f"{caller}: created_at is {kind}, not a time with a time zone. Convert it, such as with "
                "pandas.to_datetime(..., utc=True)."
            )
        return source
    if name == "fee_bps" and kind in ("VARCHAR", "BOOLEAN"):
        raise LabError(f"{caller}: fee_bps is {kind}, not a number. Convert it to float64 basis points.")
    if name == "fee_bps":
        # Polars and Arrow keep a rate that is not a number; pandas means an unknown one by it.
        return f"nullif({source}::DOUBLE, 'NaN'::DOUBLE)"
    return source if kind == wanted else f"{source}::{wanted}"


def _amount_sql(name: str, kind: str, caller: str) -> str:
    if kind == "HUGEINT":
        return quoted(name)
    if not kind.startswith("DECIMAL") and kind != '"NULL"':
        raise not_exact(name, kind, caller)
    # A DECIMAL(38, 18) has always 18 places as text: without its point it is the integer of 1e-18. Multiplying
    # by 1e18 instead overflows the decimal on the way.
    decimal = f"{quoted(name)}::DECIMAL(38, 18)"
    return f"replace({decimal}::VARCHAR, '.', '')::HUGEINT"
