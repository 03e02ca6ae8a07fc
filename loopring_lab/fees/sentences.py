"""What fees came to, in words that claim no more than is known."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from typing import Any

import pandas as pd

from loopring_lab.engine.ask import given
from loopring_lab.errors import LabError
from loopring_lab.interactive.prose import Sentences

OF_RATES = ("fee_token", "fills", "bps", "median_bps")
OF_VALUES = ("fills", "unpriced", "fee_value", "value_token", "within_bps")
BPS = 10_000
# A hundredth of a basis point: values are never more certain than that, and their digits are written accordingly.
LEAST_ERROR = 0.01


def describe(fees: Any) -> Sentences:
    """Say in words what `summary` or `over_time` found of the largest group, or what `in_token` found of all fees.

    Parameters
    ----------
    fees : frame of pandas, pyarrow, Polars, DuckDB or Spark
        From `summary`, from `over_time`, or from `in_token` with ``by=``.

    Returns
    -------
    str
        Which a notebook shows as prose. Of `summary` and `over_time`: the rate by amount and that of the median fill,
        in the row with the most fills; it says which row that is, and how many of all fills are in it. Of `in_token`:
        how many fees have a value, their sum, written with as many digits as are known, and how far that may be off.

    Raises
    ------
    LabError
        `fees` has the columns of none of these.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> print(lab.fees.describe(lab.fees.summary(trades)))
    Fees paid in ETH (38 of 100 fills): 7.68 bps by amount, 8.00 bps for the median fill.
    """
    found = given(fees, "lab.fees.describe")
    is_of_values = set(OF_VALUES) <= set(found.names)
    missing = [name for name in OF_RATES if name not in found.names]
    if missing and not is_of_values:
        raise LabError(
            f"{found.caller}: the frame has no column {missing[0]!r}. Pass an answer of lab.fees.summary, of "
            "lab.fees.over_time, or of lab.fees.in_token with by=, such as by=[]."
        )
    table = found.to_pandas()
    if table.empty:
        return Sentences("No fees.")
    return Sentences(_worth(table) if is_of_values else _rates(table))


def _rates(table: pd.DataFrame) -> str:
    """Say at what rate the row with most fills was charged, and which row that is."""
    known = table[table["bps"].notna()]
    if known.empty:
        return "No fee has a rate."
    # Rates of several tokens have no mean, so the busiest group is given, and named for what it is.
    by_fills = known.sort_values("fills", ascending=False, kind="stable")
    row = by_fills.iloc[0]
    columns = list(table.columns)
    keys = [key for key in columns[: columns.index("fills")] if key not in OF_RATES]
    return (
        f"Fees paid in {row['fee_token']}{_group(row, keys)} ({row['fills']:,} of {table['fills'].sum():,} fills): "
        f"{row['bps']:,.2f} bps by amount, {row['median_bps']:,.2f} bps for the median fill."
    )


def _group(row: pd.Series, keys: list[Any]) -> str:
    """Say which group a row is, such as `` in the period from 2022-04-01 where side is BUY``."""
    period = ""
    others = []
    for key in keys:
        value = row[key]
        if key == "period" and isinstance(value, pd.Timestamp):
            # Of a midnight the date is enough.
            began = value.date() if value.time() == time.min else value
            period = f" in the period from {began}"
        else:
            named = "unknown" if pd.isna(value) else value
            others.append(f"{key} is {named}")
    return f"{period} where {' and '.join(others)}" if others else period


def _worth(table: pd.DataFrame) -> str:
    """Say what all fees are worth, and how sure that is."""
    known = table[table["fee_value"].notna()]
    count = int(table["fills"].sum())
    priced = count - int(table["unpriced"].sum())
    begin = f"Fees of {priced:,} of {count:,} fills"
    worth = float(known["fee_value"].sum())
    if not worth:
        return f"{begin}: 0 {table['value_token'].iloc[0]}."
    # Errors of several rows may have one cause, such as a price that moved, so they are added up; fees may be rebates.
    errors = known["fee_value"].abs() * known["within_bps"]
    error = errors.sum(skipna=False) / abs(worth)
    if pd.isna(error):
        off = "by how much that may be off is unknown"
        error = LEAST_ERROR
    else:
        off = f"within {error:,.1f} bps"
    # The last digit is uncertain. A decimal is written without an exponent.
    digits = len(f"{BPS / max(error, LEAST_ERROR):.0f}")
    value = Decimal(f"{worth:.{digits}g}")
    return f"{begin}: {value:,f} {table['value_token'].iloc[0]}, {off}."
