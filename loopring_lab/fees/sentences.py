"""What fees came to, in words that claim no more than is known."""

from __future__ import annotations

from typing import Any

import pandas as pd

from loopring_lab.engine import frames
from loopring_lab.engine.query import collected
from loopring_lab.prose import Sentences

OF_RATES = ("fee_token", "fills", "bps", "median_bps")
OF_VALUES = ("fills", "unpriced", "fee_value", "value_token", "within_bps")
BPS = 10_000
# A hundredth of a basis point: values are never more certain than that, and their digits are written accordingly.
LEAST_ERROR = 0.01


def describe(fees: Any) -> Sentences:
    """Say in words what `summary` found of the most frequent fee token, or what `in_token` found of all fees.

    Parameters
    ----------
    fees : frame of pandas, pyarrow, Polars, DuckDB or Spark
        From `summary`, or from `in_token` with ``by=``.

    Returns
    -------
    str
        Which a notebook shows as prose. Of `summary`: the rate by amount and that of the median fill, in the row with
        the most fills. Of `in_token`: how many fees have a value, their sum, written with as many digits as are
        known, and how far that may be off.

    Raises
    ------
    LabError
        `fees` has the columns of neither.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> print(lab.fees.describe(lab.fees.summary(trades)))
    Fees paid in ETH: 7.68 bps by amount, 8.00 bps for the median fill.
    """
    caller = "lab.fees.describe"
    names = frames.column_names(fees, caller)
    is_of_values = set(OF_VALUES) <= set(names)
    if not is_of_values:
        frames.check_columns(OF_RATES, names, caller)
    table = fees
    if not isinstance(fees, pd.DataFrame):
        table = frames.to_pandas(collected(fees, caller))
    if table.empty:
        return Sentences("No fees.")
    return Sentences(_worth(table) if is_of_values else _rates(table))


def _rates(table: pd.DataFrame) -> str:
    """Say at what rate the row with most fills was charged."""
    known = table[table["bps"].notna()]
    if known.empty:
        return "No fee has a rate."
    # Rates of several tokens have no mean, so the busiest token stands for all.
    by_fills = known.sort_values("fills", ascending=False, kind="stable")
    row = by_fills.iloc[0]
    return (
        f"Fees paid in {row['fee_token']}: {row['bps']:.2f} bps by amount, {row['median_bps']:.2f} bps for the "
        "median fill."
    )


def _worth(table: pd.DataFrame) -> str:
    """Say what all fees are worth, and how sure that is."""
    known = table[table["fee_value"].notna()]
    count = int(table["fills"].sum())
    priced = count - int(table["unpriced"].sum())
    begin = f"Fees of {priced:,} of {count:,} fills"
    worth = float(known["fee_value"].sum())
    if not worth:
        return f"{begin}: 0 {table['value_token'].iloc[0]}."
    # Errors of several rows may have one cause, such as a price that moved, so they are added up.
    error = (known["fee_value"] * known["within_bps"]).sum(skipna=False) / worth
    if pd.isna(error):
        off = "by how much that may be off is unknown"
        error = LEAST_ERROR
    else:
        off = f"within {error:,.1f} bps"
    # The last digit is uncertain.
    digits = len(f"{BPS / max(error, LEAST_ERROR):.0f}")
    return f"{begin}: {worth:,.{digits}g} {table['value_token'].iloc[0]}, {off}."
