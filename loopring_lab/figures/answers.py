"""Answers of `fees` and `fills` as figures take them: in pandas, with one name for an estimate and its interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from loopring_lab.arguments import parse_length
from loopring_lab.engine.ask import given
from loopring_lab.errors import LabError, did_you_mean
from loopring_lab.figures.words import group_labels
from loopring_lab.fills.prices import OWN_TRADES

# Groups with a row each: as many as fit a figure of 420 pixels below the row for all.
MOST_LINES = 11
# The names of estimates in everything that draws or writes one.
ESTIMATE = {
    "difference_bps": "mean",
    "cost_bps": "mean",
    "low_bps": "low",
    "high_bps": "high",
}
# The note has two lines, because one would end above the headings of columns beside the axes.
PULLED = "own trades as reference: intervals cover sampling only,\ndifferences are pulled towards 0"


def as_pandas(table: Any) -> pd.DataFrame:
    """Convert an answer of `fees` or `fills` of any kind to pandas."""
    return given(table, "lab.figures").to_pandas()


def with_most_fills(table: pd.DataFrame, column: str) -> Any:
    """Return the value of a column that has most fills, of which most can be said; None if no value is known."""
    counts = table.groupby(column, observed=True)["fills"].sum()
    return None if counts.empty else counts.idxmax()


def check_token(name: str, token: object, caller: str) -> None:
    """Raise a LabError unless an argument is the name of one token, or None."""
    if not (token is None or isinstance(token, str)):
        raise LabError(
            f"{caller}: {name}={token!r} is not the name of a token. Give one, such as 'ETH'."
        )


def select_quote(
    table: pd.DataFrame,
    quote: str | None,
    caller: str,
    known: str,
) -> tuple[pd.DataFrame, str]:
    """Select the rows of one quote token, by default the one with the most fills; all rows have what is `known`."""
    check_token("quote", quote, caller)
    quote = quote or with_most_fills(table, "quote")
    selected = table[table["quote"] == quote]
    if selected.empty:
        hint = did_you_mean(
            quote,
            table["quote"].dropna().unique(),
            "Pass other trades, or another quote=.",
        )
        raise LabError(
            f"{caller}: no trade quoted in {quote or 'any token'} with a known {known} to draw. {hint}"
        )
    return selected, str(quote)


def all_and_groups(
    overall: pd.DataFrame,
    groups: pd.DataFrame,
    names: list[str],
    counted: str,
) -> pd.DataFrame:
    """Return the row for all, then those of groups with the most counted, each with the name of its ``group``."""
    if not names:
        # The only group is all of them.
        everything = overall.assign(group="all")
        return everything.reindex(columns=[*groups.columns, "group"])
    ranked = groups.sort_values(counted, ascending=False, kind="stable")
    shown = ranked.head(MOST_LINES)
    values = shown[names].itertuples(index=False, name=None)
    rows = [overall.assign(group="all"), shown.assign(group=group_labels(values))]
    return pd.concat(rows, ignore_index=True)


def by_names(names: list[str], groups: int) -> str:
    """Return the end of a title: the columns that rows are by, if there are any, and how many groups are drawn."""
    drawn = f" ({MOST_LINES} of {groups:,})" if groups > MOST_LINES else ""
    return f", by {', '.join(names)}{drawn}" if names else ""


def weighted(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Call a mean weighted by value, and the ends of its interval, by the names in `ESTIMATE`."""
    columns = {f"weighted_{name}": "mean", f"low_{name}": "low", f"high_{name}": "high"}
    return table.rename(columns=columns)


def interval_of(
    row: Mapping[Any, Any],
    low: str = "low",
    high: str = "high",
) -> tuple[float, float]:
    """Return the ends of an interval; without one, the estimate."""
    if pd.isna(row[low]):
        return row["mean"], row["mean"]
    return row[low], row[high]


def pulled(table: pd.DataFrame) -> str:
    """Return a line for the note of a figure that measures against trades of the exchange itself."""
    return f"\n{PULLED}" if (table["reference"] == OWN_TRADES).any() else ""


def measured(table: pd.DataFrame, horizon: Any, caller: str) -> str:
    """Say in a note what the costs of a comparison are measured against."""
    reference = table["reference"].iloc[0]
    when = "before"
    if parse_length(horizon, caller, "horizon"):
        when = f"{horizon} after"
    note = f"measured against {reference} {when} each order"
    # Headings of columns stand beside the lowest line of a note, so that it has to be short.
    return (
        f"{note},\nwhich pull differences towards 0"
        if reference == OWN_TRADES
        else note
    )
