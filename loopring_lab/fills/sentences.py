"""What a comparison of venues found, in words that claim no more than it shows."""

from __future__ import annotations

from typing import Any

import pandas as pd

from loopring_lab.engines import convert
from loopring_lab.fills.prices import OWN_TRADES as OWN

NUMBERS = ("fills", "orders", "matched_share", "difference_bps", "low_bps", "high_bps")
VERDICTS = {"pool": "The pool is cheaper", "book": "The order book is cheaper", "undecided": "Undecided"}
NOTHING = "Undecided: no market, side and size class has priced taker fills of both venues."
PULLED = (
    " The reference is own trades: an interval covers sampling only, and the difference is pulled towards 0, "
    "at times beyond it."
)


def describe(comparison: Any) -> str:
    """Say in words what `compare_venues` found, a sentence for each group.

    Parameters
    ----------
    comparison : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `compare_venues`.

    Returns
    -------
    str
        A line for each row: the verdict, the difference with its interval, what it rests on, and, where the
        exchange's own trades are the reference, what that does to the difference.

    Raises
    ------
    LabError
        `comparison` has not the columns of `compare_venues`.

    Examples
    --------
    >>> trades = client.trades(account_id=10083).head(5)
    >>> print(lab.fills.describe(lab.fills.compare_venues(trades)))
    Undecided: no market, side and size class has priced taker fills of both venues.
    """
    names = convert.column_names(comparison)
    keys = names[: names.index("fills")] if "fills" in names else []
    table = convert.to_pandas(comparison, "lab.fills.describe", [*keys, *NUMBERS, "reference", "verdict"])
    lines = []
    for row in table.to_dict("records"):
        group = ", ".join("unknown" if pd.isna(row[key]) else str(row[key]) for key in keys)
        lines.append(f"{group}: {_sentence(row)}" if keys else _sentence(row))
    return "\n".join(lines) or NOTHING


def _sentence(row: dict[Any, Any]) -> str:
    if pd.isna(row["difference_bps"]):
        return NOTHING
    difference, low, high = (f"{round(row[name], 1) + 0.0:,.1f}" for name in NUMBERS[-3:])
    interval = "too few orders for an interval" if pd.isna(row["low_bps"]) else f"interval {low} to {high}"
    rest = (
        f"{row['fills']:,} fills of {row['orders']:,} orders, {row['matched_share']:.0%} of the takers' fills"
    )
    return (
        f"{VERDICTS[row['verdict']]}: pool minus book is {difference} bps ({interval}), fee and price "
        f"together, like with like over {rest}.{PULLED if row['reference'] == OWN else ''}"
    )
