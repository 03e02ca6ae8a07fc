"""What a comparison of venues found, in words that claim no more than it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from loopring_lab.engine.ask import given
from loopring_lab.errors import LabError
from loopring_lab.fills.comparison import differs_by_flow
from loopring_lab.fills.estimands import ALL_TAKERS, EVERYBODY, RESULTS
from loopring_lab.fills.prices import OWN_TRADES
from loopring_lab.interactive.prose import ITEM, Sentences

# How a verdict of `compare_venues` is put.
VERDICTS = {
    "pool": "The pool is cheaper",
    "book": "The order book is cheaper",
    "undecided": "Undecided",
}
NOTHING = (
    "Undecided: no market, side and size class has priced taker fills of both venues."
)
# What cells weigh in the other estimands, by the beginning of their columns.
OTHER_WEIGHTS = {
    "overlap": "overlap",
    "pool_weighted": "the pool's value",
    "book_weighted": "the book's value",
}
DISAGREE = "The signs differ: which venue is cheaper depends on these weights, so the verdict is undecided."
PULLED = (
    "The reference is own trades: an interval covers sampling only, and the difference is pulled towards 0, "
    "at times beyond it."
)


def describe(comparison: Any) -> Sentences:
    """Say in words what `compare_venues` found, for each row.

    Parameters
    ----------
    comparison : frame of pandas, pyarrow, Polars, DuckDB or Spark
        From `compare_venues`.

    Returns
    -------
    str
        Which a notebook shows as prose. For each row a line with the verdict, the difference, its interval and what
        these rest on. Below it a list: whose fills these are; the difference by other weights of cells, and whether
        they agree; what errors are clustered by, and how far one account moves the difference; what part of it is
        impact; and a warning where classes of takers differ in verdict, or where the exchange's own trades are the
        reference.

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
    found = given(comparison, "lab.fills.describe")
    missing = [name for name in RESULTS if name not in found.names]
    if missing:
        raise LabError(
            f"{found.caller}: the frame has no column {missing[0]!r}. Pass an answer of lab.fills.compare_venues."
        )
    lines = sentences_of_groups(found.to_pandas(), _sentence)
    # An answer without a row has no group to speak of.
    return Sentences("\n".join(lines) or NOTHING)


def sentences_of_groups(
    table: pd.DataFrame, say: Callable[[dict[Any, Any]], str]
) -> Iterator[str]:
    """Say something of each row of an answer, after the names of its group, which are the columns before ``fills``."""
    keys = table.columns[: table.columns.get_loc("fills")]
    for row in table.to_dict("records"):
        values = ["unknown" if pd.isna(row[key]) else str(row[key]) for key in keys]
        group = f"{', '.join(values)}: " if values else ""
        yield group + say(row)


def _sentence(row: dict[Any, Any]) -> str:
    if pd.isna(row["difference_bps"]):
        return NOTHING
    interval = interval_in_words(row["low_bps"], row["high_bps"], row["cluster"])
    rest = f"{row['fills']:,} fills of {row['orders']:,} orders, {row['matched_share']:.0%} of the takers' fills"
    headline = (
        f"{VERDICTS[row['verdict']]}: pool minus book is {rounded(row['difference_bps'])} bps "
        f"({interval}), fee and price together, like with like over {rest}."
    )
    # In the order in which a reader asks: whose, how weighed, how sure, and why.
    details = [
        _by_whom(row),
        _by_other_weights(row),
        _by_clusters(row),
        _by_horizon(row),
    ]
    if differs_by_flow(row["verdict"], row["verdict_by_flow"]):
        details.append(
            f"Classes of takers differ in verdict ({row['verdict_by_flow']}): compare them one by one, by flow."
        )
    if row["reference"] == OWN_TRADES:
        details.append(PULLED)
    items = [ITEM + detail for detail in details if detail]
    return "\n".join([headline, *items])


def _by_whom(row: dict[Any, Any]) -> str:
    effective = f"{row['effective_orders']:,.0f}"
    return f"These are fills of {_whose(row['whose'])}. Their orders say as much as {effective} of equal value."


def _whose(whose: str) -> str:
    return whose if whose in (EVERYBODY, ALL_TAKERS) else f"takers of class {whose!r}"


def _by_other_weights(row: dict[Any, Any]) -> str:
    parts = []
    for name, words in OTHER_WEIGHTS.items():
        part = f"by {words} {rounded(row[f'{name}_bps'])} bps"
        if not pd.isna(row[f"{name}_low_bps"]):
            part += f" ({rounded(row[f'{name}_low_bps'])} to {rounded(row[f'{name}_high_bps'])})"
        parts.append(part)
    sentence = (
        f"The headline weighs cells by all their value. Others: {', '.join(parts)}."
    )
    # The verdict needs one sign of all four, so a reader must see where they part.
    signs = {row[f"{name}_bps"] > 0 for name in ("difference", *OTHER_WEIGHTS)}
    return f"{sentence} {DISAGREE}" if len(signs) > 1 else sentence


def _by_clusters(row: dict[Any, Any]) -> str:
    sentence = (
        f"Errors are clustered by {row['cluster']} ({row['clusters']:,} clusters)."
    )
    if pd.isna(row["without_one_low_bps"]):
        return f"{sentence} One account is all there is at a venue."
    low = rounded(row["without_one_low_bps"])
    high = rounded(row["without_one_high_bps"])
    return f"{sentence} Without any one account the difference is between {low} and {high} bps."


def _by_horizon(row: dict[Any, Any]) -> str:
    if pd.isna(row["effective_difference_bps"]):
        return ""
    effective = rounded(row["effective_difference_bps"])
    realized = rounded(row["realized_difference_bps"])
    impact = rounded(row["impact_difference_bps"])
    return (
        f"Price alone, against the price before the order: {effective} bps (effective). "
        f"Of these, {realized} are realized, and {impact} are impact."
    )


def interval_in_words(low: float, high: float, cluster: str = "order") -> str:
    """Say where an interval begins and ends; both are missing where there is none, as orders or clusters are few."""
    if pd.isna(low):
        few = "orders" if cluster == "order" else f"orders or {cluster}s"
        return f"too few {few} for an interval"
    return f"interval {rounded(low)} to {rounded(high)}"


def rounded(bps: float) -> str:
    """Write basis points with one decimal; adding 0 makes -0.0 positive."""
    return f"{round(bps, 1) + 0.0:,.1f}"
