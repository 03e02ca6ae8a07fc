"""Arrow tables into DuckDB and back, with exact amounts.

An amount is an integer of 1e-18 units in queries (HUGEINT, 128 bits): DuckDB adds, compares and converts
these ten times faster than DECIMAL(38, 18), and both hold the same 38 digits. Arrow's 128-bit decimals are
stored as just these integers, so they are handed over without touching a byte. Any HUGEINT in an answer is an
amount, and leaves as a decimal; counts are BIGINT.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.dtype import AmountType
from loopring_lab.amounts.scaling import first_failure, rescale, with_scale
from loopring_lab.columns import ARROW, TRADES
from loopring_lab.engine.groups import DAY
from loopring_lab.errors import AmountError

AMOUNTS = tuple(name for name, column in TRADES.items() if column.sql == "HUGEINT")
TIMESTAMP = ARROW["time"]
# DuckDB's mark of a HUGEINT in Arrow: 16 bytes, lowest first.
HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
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
# Types of texts that Arrow takes no rows of, and those that these become.
VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
EXACT = tuple(name for name, kind in TYPES.items() if kind == "HUGEINT")


def with_plain_values(table: pa.Table) -> pa.Table:
    """Return a table with amounts of pandas as the decimals that they hold, and lengths of time as DuckDB reads them.

    DuckDB converts what lies under nulls as well, and fails on what pandas puts there.
    """
    for entry in table.schema:
        if isinstance(entry.type, AmountType):
            column = table[entry.name].cast(AMOUNT_TYPE)
        elif pa.types.is_duration(entry.type):
            length = table[entry.name]
            column = pc.if_else(length.is_valid(), length.fill_null(0), None)
        else:
            continue
        table = replaced(table, entry.name, column)
    return table


def without_views(table: pa.Table) -> pa.Table:
    """Return a table with views of texts, as Polars hands them over, as texts."""
    for entry in table.schema:
        whole = VIEWS.get(str(entry.type))
        if whole is not None:
            column = table[entry.name].cast(whole)
            table = replaced(table, entry.name, column)
    return table


def replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    """Return a table with another column of a name that it has."""
    return table.set_column(table.column_names.index(name), name, column)


def with_columns(table: pa.Table, new: pa.Table) -> pa.Table:
    """Return a table with the columns of another, in place of its own of the same names or after them."""
    for name in new.column_names:
        if name in table.column_names:
            table = replaced(table, name, new[name])
        else:
            table = table.append_column(name, new[name])
    return table


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
        f"{caller}: {name} is {kind}, not an exact amount. Use decimals, as client.trades, "
        "lab.tables.read_csv and lab.engine.portable return."
    )


def to_hugeint(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """See 128-bit decimals with 18 places as integers of 1e-18: the same bytes under another name."""
    stored = pa.binary(16)
    seen = [with_scale(chunk, stored) for chunk in column.chunks]
    return pa.chunked_array(seen, stored).cast(HUGEINT)


def from_hugeint(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """See integers of 1e-18 as decimals, the inverse of `to_hugeint`; an OverflowError of more than 38 digits.

    DuckDB hands them over as decimals without places and, from the database of an archive, as 16 bytes: the same ones.
    """
    seen = [with_scale(chunk, AMOUNT_TYPE) for chunk in column.chunks]
    amounts = pa.chunked_array(seen, AMOUNT_TYPE)
    try:
        amounts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise OverflowError(str(error)) from None
    return amounts


# Out of DuckDB


def decimal_sql(name: str) -> str:
    """Return SQL of an amount as a decimal: 38 digits without a point, times 1e-18: the same integer with 18 places."""
    return f"CAST({name} AS DECIMAL(38, 0)) * CAST('0.000000000000000001' AS DECIMAL(18, 18)) AS {name}"


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
    days = 30 * length.months + length.days
    whole: int = days * DAY + length.nanoseconds // 1_000_000
    return whole
