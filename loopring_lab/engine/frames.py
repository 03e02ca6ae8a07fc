"""Frames of every kind into DuckDB and back, with exact amounts.

An amount is an integer of 1e-18 units in queries (HUGEINT, 128 bits): DuckDB adds, compares and converts
these ten times faster than DECIMAL(38, 18), and both hold the same 38 digits. Arrow's 128-bit decimals are
stored as just these integers, so they are handed over without touching a byte. Any HUGEINT in an answer is an
amount, and leaves as a decimal; counts are BIGINT.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.dtype import AmountType
from loopring_lab.amounts.scaling import first_failure, rescale, with_scale
from loopring_lab.columns import ARROW, TRADES
from loopring_lab.errors import AmountError, LabError, did_you_mean

IN_MEMORY = ("pandas", "pyarrow", "polars")
AMOUNTS = tuple(name for name, column in TRADES.items() if column.sql == "HUGEINT")
TIMESTAMP = ARROW["time"]
# How DuckDB marks a HUGEINT in Arrow: 16 bytes, lowest first.
HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
# Kinds of columns that pandas groups by and Arrow does not: they are grouped by their text.
TEXTUAL = (pd.IntervalDtype, pd.PeriodDtype)
# The types of columns in queries; frames may hold them as others, such as numbers read from a CSV as floats. After
# those of trades come those that results and balances have beside them.
TYPES = {name: column.sql for name, column in TRADES.items()} | {
    "role_source": "VARCHAR",
    "flow": "VARCHAR",
    "base_decimals": "BIGINT",
    "quote_decimals": "BIGINT",
    "fills": "BIGINT",
    "base_balance": "HUGEINT",
    "quote_balance": "HUGEINT",
    "pool_quote": "HUGEINT",
}
EXACT = tuple(name for name, kind in TYPES.items() if kind == "HUGEINT")


def portable(trades: pd.DataFrame | pa.Table) -> pa.Table:
    """Convert a frame to an Arrow table of types that every engine can read.

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
        raise LabError(
            f"{caller} takes a pandas or pyarrow frame. A {kind} frame needs no conversion."
        )
    table = to_table(trades, caller)
    for name in table.column_names:
        table = replaced(table, name, _portable_column(table[name], name))
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


def attrs_of(frame: Any) -> Mapping[str, Any]:
    """Return what a frame says of where its rows come from; empty for kinds that cannot carry that."""
    kind = kind_of(frame)
    if kind == "pandas":
        return dict(frame.attrs)
    if kind == "pyarrow":
        # Arrow keeps there what pandas has in `attrs`.
        metadata = frame.schema.pandas_metadata or {}
        return dict(metadata.get("attributes") or {})
    if kind == "archive":
        return {"synthetic": frame.synthetic}
    return {}


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
            raise LabError(
                f"{caller}: the frame has two columns {name!r}. Drop or rename one of them."
            )
    return names


def check_columns(
    wanted: Iterable[str], names: Sequence[Any], caller: str, frame: Any = None
) -> None:
    """Raise a `LabError` that names the first column that a frame lacks, and says where its index has it."""
    levels = frame.index.names if isinstance(frame, pd.DataFrame) else ()
    for name in wanted:
        if name not in names:
            listed = f"It has {', '.join(map(str, names)) or 'no columns'}."
            hint = did_you_mean(name, map(str, names), listed)
            if name in levels:
                hint = "Its index has that name: give the frame with .reset_index()."
            raise LabError(f"{caller}: the frame has no column {name!r}. {hint}")


# Into DuckDB


def to_table(frame: Any, caller: str, columns: Iterable[str] | None = None) -> pa.Table:
    """Read columns of a frame of any kind, by default all, into an Arrow table of Arrow's own types."""
    table = _given_table(frame, caller, columns)
    for entry in table.schema:
        if isinstance(entry.type, AmountType):
            table = replaced(table, entry.name, _decimals(table[entry.name]))
    return table


def _given_table(frame: Any, caller: str, columns: Iterable[str] | None) -> pa.Table:
    if kind_of(frame) == "archive":
        frame = frame.scan("duckdb")
    kind = kind_of(frame)
    names = column_names(frame, caller)
    if columns is not None:
        check_columns(columns, names, caller, frame)
        names = list(dict.fromkeys(columns))
    if kind == "duckdb":
        return with_milliseconds(frame.to_arrow_table()).select(names)
    if kind == "spark":
        return frame.toArrow().select(names)
    if kind == "polars":
        return frame.lazy().select(names).collect().to_arrow()
    if kind == "pyarrow":
        return frame.select(names).unify_dictionaries()
    try:
        table = pa.Table.from_pandas(
            _with_text_for_intervals(frame[names]), preserve_index=False
        )
    # Of sparse columns Arrow raises Python's own TypeError.
    except (pa.ArrowInvalid, TypeError, pa.ArrowNotImplementedError) as error:
        reason = "; ".join(map(str, error.args)).rstrip(".")
        raise LabError(
            f"{caller}: Arrow cannot hold the frame's values: {reason}. Clean that column first."
        ) from None
    return table.unify_dictionaries()


def to_arrow(frame: Any, columns: Sequence[str], caller: str) -> pa.Table:
    """Read columns of a frame in which every amount is exact."""
    table = to_table(frame, caller, columns)
    for name in EXACT:
        if name in columns:
            table = replaced(table, name, exact(table[name], name, caller))
    return table


def _decimals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return amounts of pandas as the decimals that they hold, without a copy."""
    return pa.chunked_array([chunk.storage for chunk in column.chunks], AMOUNT_TYPE)


def replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    """Return a table with another column of a name that it has."""
    return table.set_column(table.column_names.index(name), name, column)


def category_order(frame: Any, name: str, caller: str) -> list[Any]:
    """Return the values of a column of ordered categories in their order; empty for other columns."""
    if kind_of(frame) not in IN_MEMORY or name not in column_names(frame, caller):
        return []
    column = to_table(frame, caller, [name])[name]
    is_ordered = pa.types.is_dictionary(column.type) and column.type.ordered
    # One dictionary is that of all chunks.
    return (
        column.chunk(0).dictionary.to_pylist()
        if is_ordered and column.num_chunks
        else []
    )


def exact(column: pa.ChunkedArray, name: str, caller: str) -> pa.ChunkedArray:
    """Return a column of amounts as 128-bit decimals, or raise an `AmountError` that says which do not fit."""
    if pa.types.is_null(column.type):
        return column.cast(AMOUNT_TYPE)
    if not pa.types.is_decimal(column.type):
        raise not_exact(name, column.type, caller)
    convert = partial(rescale, to=AMOUNT_TYPE)
    try:
        return convert(column)
    except pa.ArrowInvalid:
        row, value = first_failure(column, convert)
        raise AmountError(
            f"{caller}: {name} of row {row} is {value}, which does not fit 20 digits before the "
            "point and 18 after it. Leave that row out."
        ) from None


def not_exact(name: str, kind: Any, caller: str) -> AmountError:
    """Build the error for amounts that are floats or something else that is not exact."""
    return AmountError(
        f"{caller}: {name} is {kind}, not an exact amount. Use decimals, as client.trades and "
        "lab.engine.portable return."
    )


def to_hugeint(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """See 128-bit decimals with 18 places as integers of 1e-18: the same bytes under another name."""
    stored = pa.binary(16)
    seen = [with_scale(chunk, stored) for chunk in column.chunks]
    return pa.chunked_array(seen, stored).cast(HUGEINT)


def _with_text_for_intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace intervals and periods by their text, as categories in their order."""
    texts: dict[Any, Any] = {}
    for name, kind in frame.dtypes.items():
        column = (
            frame[name].astype("category") if isinstance(kind, TEXTUAL) else frame[name]
        )
        if isinstance(column.dtype, pd.CategoricalDtype) and isinstance(
            column.cat.categories.dtype, TEXTUAL
        ):
            if not column.cat.ordered:
                column = column.cat.reorder_categories(
                    sorted(column.cat.categories), ordered=True
                )
            texts[name] = column.cat.rename_categories(
                list(column.cat.categories.astype(str))
            )
    return frame.assign(**texts)


def _portable_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        if pa.types.is_nested(kind.value_type):
            raise LabError(
                f"{name!r} is {kind}, which engines cannot hold. Convert to strings or numbers."
            )
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
        return with_amounts(table)
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
    table = with_amounts(table)
    result: pd.DataFrame = table.to_pandas(types_mapper={AMOUNT_TYPE: AMOUNT}.get)
    for entry in table.schema:
        if pa.types.is_integer(entry.type) and table[entry.name].null_count:
            result[entry.name] = table[entry.name].to_pandas(
                types_mapper=lambda _: pd.Int64Dtype()
            )
    return result


def with_amounts(table: pa.Table) -> pa.Table:
    """Return a table with its decimals as those of amounts."""
    for entry in table.schema:
        if pa.types.is_decimal(entry.type) and entry.type != AMOUNT_TYPE:
            try:
                column = rescale(table[entry.name], AMOUNT_TYPE)
            except pa.ArrowInvalid:
                raise AmountError(
                    f"{entry.name}: a number needs more than 20 digits before the point or 18 after it. Select fewer "
                    "trades, group them, or round it."
                ) from None
            table = replaced(table, entry.name, column)
    return table


def with_milliseconds(table: pa.Table) -> pa.Table:
    """Return an answer with times and lengths of time in milliseconds, as frames of trades have them."""
    for entry in table.schema:
        column = table[entry.name]
        if pa.types.is_timestamp(entry.type) and entry.type.tz is not None:
            table = replaced(table, entry.name, column.cast(TIMESTAMP, safe=False))
        elif entry.type == pa.month_day_nano_interval():
            lengths = [
                length and _milliseconds(length) for length in column.to_pylist()
            ]
            table = replaced(table, entry.name, pa.array(lengths, pa.duration("ms")))
    return with_truth_values(table)


def with_truth_values(table: pa.Table) -> pa.Table:
    """Return an answer with truth values as such: connections of archives give bytes, which Spark cannot read."""
    for entry in table.schema:
        if entry.type == pa.bool8():
            truth = table[entry.name].cast(pa.bool_())
            table = replaced(table, entry.name, truth)
    return table


def _milliseconds(length: pa.MonthDayNano) -> int:
    """Return a length of time in milliseconds; as where DuckDB compares lengths, a month has 30 days."""
    days = pd.Timedelta(days=30 * length.months + length.days)
    rest = pd.Timedelta(length.nanoseconds, "ns")
    return (days + rest) // pd.Timedelta(1, "ms")


def _relation_of(relation: Any, given_answer: pa.Table) -> Any:
    """Return a table as a relation of the same connection as another relation.

    DuckDB finds the table under the name of the variable that holds it.
    """
    return relation.query("trades", "FROM given_answer")


def beside(
    frame: Any, columns: Sequence[str], rows: np.ndarray, added: pa.Table
) -> Any:
    """Put columns beside rows of a frame in memory, in place of its own of the same names."""
    kind = kind_of(frame)
    if kind == "pandas":
        taken = frame[list(columns)].take(rows)
        new = to_pandas(added)
        for name in new:
            # What was a category stays one, such as the role of a fill.
            if name in taken and isinstance(taken[name].dtype, pd.CategoricalDtype):
                new[name] = new[name].astype("category")
        return taken.assign(**{str(name): new[name].array for name in new})
    if kind == "polars":
        import polars as pl

        answer = (
            frame.lazy()
            .select(columns)
            .collect()[rows]
            .with_columns(pl.from_arrow(added))
        )
        return answer.lazy() if isinstance(frame, pl.LazyFrame) else answer
    taken = frame.select(list(columns)).take(pa.array(rows))
    for name, column in zip(
        added.column_names, with_amounts(added).columns, strict=True
    ):
        taken = (
            replaced(taken, name, column)
            if name in taken.column_names
            else taken.append_column(name, column)
        )
    return taken
