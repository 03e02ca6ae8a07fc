"""What a comparison of venues found, in words that claim no more than it shows."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from loopring_lab.engine import frames
from loopring_lab.engine.query import collected
from loopring_lab.fills import earnings
from loopring_lab.fills.prices import OWN_TRADES

NEEDED = (
    "fills",
    "orders",
    "matched_share",
    "difference_bps",
    "low_bps",
    "high_bps",
    "verdict",
    "reference",
)
VERDICTS = {
    "pool": "The pool is cheaper",
    "book": "The order book is cheaper",
    "undecided": "Undecided",
}
NOTHING = (
    "Undecided: no market, side and size class has priced taker fills of both venues."
)
PULLED = (
    " The reference is own trades: an interval covers sampling only, and the difference is pulled towards 0, "
    "at times beyond it."
)


class Sentences(str):
    """Text that a notebook sets as prose, in lines as long as its page, where it breaks printed text anywhere."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        # An asterisk in the name of a group would begin something.
        escaped = re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", self)
        return "\n\n".join(escaped.splitlines())


def describe(comparison: Any) -> Sentences:
    """Say in words what `compare_venues` found, a sentence for each group, or what `liquidity` found, for each pool.

    Parameters
    ----------
    comparison : frame of pandas, pyarrow, Polars, DuckDB or Spark
        From `compare_venues` or `liquidity`.

    Returns
    -------
    str
        Which a notebook shows as prose. A line for each row: the verdict, the difference with its interval, what
        it rests on, and, where the exchange's own trades are the reference, what that does to the difference.
        Of a pool: fees and losses, the mean net return of a period with its interval, and how the position changed.

    Raises
    ------
    LabError
        `comparison` has the columns of neither.

    Examples
    --------
    >>> trades = client.trades(account_id=10083).head(5)
    >>> print(lab.fills.describe(lab.fills.compare_venues(trades)))
    Undecided: no market, side and size class has priced taker fills of both venues.
    """
    caller = "lab.fills.describe"
    names = frames.column_names(comparison, caller)
    is_of_pools = set(earnings.NEEDED) <= set(names)
    if not is_of_pools:
        frames.check_columns(NEEDED, names, caller)
    table = comparison
    if not isinstance(comparison, pd.DataFrame):
        table = frames.to_pandas(collected(comparison, caller))
    if is_of_pools:
        return Sentences("\n".join(earnings.sentences(table)) or "No fills of a pool.")
    keys = names[: names.index("fills")]
    lines = []
    for row in table.to_dict("records"):
        sentence = _sentence(row)
        if keys:
            group = ", ".join(
                "unknown" if pd.isna(row[key]) else str(row[key]) for key in keys
            )
            sentence = f"{group}: {sentence}"
        lines.append(sentence)
    return Sentences("\n".join(lines) or NOTHING)


def _sentence(row: dict[Any, Any]) -> str:
    if pd.isna(row["difference_bps"]):
        return NOTHING
    interval = "too few orders for an interval"
    if not pd.isna(row["low_bps"]):
        interval = f"interval {_rounded(row['low_bps'])} to {_rounded(row['high_bps'])}"
    rest = f"{row['fills']:,} fills of {row['orders']:,} orders, {row['matched_share']:.0%} of the takers' fills"
    sentence = (
        f"{VERDICTS[row['verdict']]}: pool minus book is {_rounded(row['difference_bps'])} bps ({interval}), fee and "
        f"price together, like with like over {rest}."
    )
    return sentence + PULLED if row["reference"] == OWN_TRADES else sentence


def _rounded(bps: float) -> str:
    """Write basis points with one decimal; adding 0 makes -0.0 positive."""
    return f"{round(bps, 1) + 0.0:,.1f}"
