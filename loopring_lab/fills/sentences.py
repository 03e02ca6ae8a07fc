"""What a comparison of venues found, in words that claim no more than it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pandas as pd

from loopring_lab.engine.ask import given
from loopring_lab.engine.clusters import LEAST_CLUSTERS
from loopring_lab.errors import LabError
from loopring_lab.fills.comparison import MATCH, RESULTS, ROUNDING_BPS
from loopring_lab.fills.prices import OWN_TRADES
from loopring_lab.interactive.prose import ITEM, Sentences

# The level of intervals that are asked for without one.
LEVEL = 0.95
# The words for each verdict of `compare_venues`.
VERDICTS = {
    "pool": "The pool is cheaper",
    "book": "The order book is cheaper",
    "undecided": "Undecided",
}
# Below this part of a venue's value, a comparison says little about what was traded there.
LITTLE = 0.5
# For each time that orders may share, a longer one that they may share in its place.
COARSER = {"hour": "day", "day": "week", "week": "month"}
# For each but the shortest, one in which less can change.
FINER = {"day": "hour", "week": "day", "month": "week"}
# So many times the orders are out of reach: it would be idle to name their number.
MOST_TIMES = 100
DISAGREE = "The signs differ, so which venue is cheaper depends on who asks, and the verdict is undecided."
PULLED = (
    "The reference is own trades: an interval covers sampling only, and the difference is pulled towards 0, "
    "at times beyond it. A verdict needs an interval that is farther from 0 than the fills are from such trades."
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
        Which a notebook shows as prose. For each row a line with the verdict, the difference and its interval. Below it
        a list: what was compared, which part of each venue's value that is, and what that assumes; the difference as
        those who used each venue would see it; what the interval is about, or why there is none; where it leaves open
        which venue is cheaper, how many orders may be enough; how much of the flow is arbitrage, as far as
        `research.with_flow` has told; and a warning where the exchange's own trades are the reference.

    Raises
    ------
    LabError
        `comparison` has not the columns of `compare_venues`.

    Examples
    --------
    >>> trades = client.trades(account_id=10083).head(5)
    >>> print(lab.fills.describe(lab.fills.compare_venues(trades, client.outside_prices(trades))))
    Undecided: no orders of both venues share market, side, size and week. Match more coarsely, such as by month.
    """
    found = given(comparison, "lab.fills.describe")
    missing = [name for name in RESULTS if name not in found.names]
    if missing:
        raise LabError(
            f"{found.caller}: the frame has no column {missing[0]!r}. Pass an answer of lab.fills.compare_venues."
        )
    table = found.to_pandas()
    # Only pandas frames carry what they were asked with.
    match = list(table.attrs.get("match", MATCH))
    flow = table.attrs.get("flow", {})
    level = table.attrs.get("intervals", LEVEL)
    lines = sentences_of_groups(table, lambda row: _sentence(row, match, flow, level))
    # An answer without a row has no group to speak of.
    return Sentences("\n".join(lines) or _nothing(match))


def sentences_of_groups(
    table: pd.DataFrame, say: Callable[[dict[Any, Any]], str]
) -> Iterator[str]:
    """Say something of each row of an answer, after the names of its group, which are the columns before ``fills``."""
    keys = table.columns[: table.columns.get_loc("fills")]
    for row in table.to_dict("records"):
        values = ["unknown" if pd.isna(row[key]) else str(row[key]) for key in keys]
        group = f"{', '.join(values)}: " if values else ""
        yield group + say(row)


def _sentence(
    row: dict[Any, Any], match: list[str], flow: dict[str, Any], level: float
) -> str:
    if pd.isna(row["difference_bps"]):
        return _nothing(match, row["unpriced"])
    interval = interval_in_words(row["low_bps"], row["high_bps"], level)
    headline = (
        f"{VERDICTS[row['verdict']]}: pool minus book is {rounded(row['difference_bps'])} bps ({interval}), fee and "
        f"price together, over {row['orders']:,} orders of {_accounts(row)}."
    )
    # The details come in the order in which a reader asks: what, for whom, how sure, and whose.
    details = [
        _what_is_compared(row, match),
        without_cost(row["unpriced"]),
        _what_is_assumed(row, match),
        _as_each_sees_it(row),
        _about_whom(row),
        _what_is_enough(row),
        _flow_in_words(flow),
    ]
    if row["reference"] == OWN_TRADES:
        details.append(PULLED)
    items = [ITEM + detail for detail in details if detail]
    return "\n".join([headline, *items])


def _accounts(row: dict[Any, Any]) -> str:
    if row["accounts"]:
        return counted(row["accounts"], "account")
    return "unknown accounts"


def _nothing(match: list[str], unpriced: int = 0) -> str:
    if unpriced:
        # Coarser matching helps against nothing that is unknown.
        return f"Undecided: no orders of both venues with a known cost share {listed(match)}. {without_cost(unpriced)}"
    return f"Undecided: no orders of both venues share {listed(match)}. {_coarser(match)}".rstrip()


def without_cost(unpriced: int) -> str:
    """Say how many fills of takers are not compared; empty where all are that share enough."""
    if not unpriced:
        return ""
    return (
        f"Of {counted(unpriced, 'fill')} of takers the cost is not known: there is no reference price near, no amount "
        "or fee, or no market that leads from the quote token to the most used one."
    )


def _coarser(match: list[str]) -> str:
    """Name the match to try where little is shared."""
    for time, longer in COARSER.items():
        if time in match:
            return f"Match more coarsely, such as by {longer}."
    return ""


def _what_is_compared(row: dict[Any, Any], match: list[str]) -> str:
    sentence = (
        f"Compared are orders that share {listed(match)}: {row['pool_matched_share']:.0%} of the value that takers "
        f"traded at the pool, and {row['book_matched_share']:.0%} of that on the book."
    )
    return f"{sentence} {_coarser(match)}".rstrip() if _is_little(row) else sentence


def _is_little(row: dict[Any, Any]) -> bool:
    return bool(min(row["pool_matched_share"], row["book_matched_share"]) < LITTLE)


def _what_is_assumed(row: dict[Any, Any], match: list[str]) -> str:
    """Say what the times of orders in one cell may not do, and which match assumes less, where enough is shared."""
    if "hour" in match:
        return ""
    within = "Over the whole time"
    shorter = "week"
    for time, finer in reversed(FINER.items()):
        if time in match:
            within = f"Within a {time}"
            shorter = finer
    sentence = (
        f"{within}, orders at both venues are assumed to come at equally costly times"
    )
    return (
        f"{sentence}."
        if _is_little(row)
        else f"{sentence}; match by {shorter} to drop that."
    )


def _as_each_sees_it(row: dict[Any, Any]) -> str:
    sentence = (
        f"Weighted as those who used the pool traded, the difference is {rounded(row['pool_weighted_bps'])} bps; as "
        f"those who used the book, {rounded(row['book_weighted_bps'])} bps."
    )
    return sentence if _is_agreed(row) else f"{sentence} {DISAGREE}"


def _is_agreed(row: dict[Any, Any]) -> bool:
    names = ("difference_bps", "pool_weighted_bps", "book_weighted_bps")
    return len({row[name] > 0 for name in names}) == 1


def _about_whom(row: dict[Any, Any]) -> str:
    clusters = counted(row["clusters"], row["cluster"])
    if pd.isna(row["low_bps"]):
        if row["cluster"] != "account":
            return f"There is no interval: {clusters} at one of the venues are too few."
        if not row["accounts"]:
            return (
                "There is no interval: whose orders these are is not known, and they may all be one user's. "
                "cluster='day' asks about these orders alone."
            )
        if row["clusters"] < LEAST_CLUSTERS:
            return (
                f"There is no interval: {clusters} at one of the venues cannot speak for users in general. "
                "cluster='day' asks about these accounts alone."
            )
        return "There is no interval: without one of the accounts nothing is left to compare."
    if row["accounts"] == 1:
        return f"The interval is about this account, whose {row['cluster']}s vary ({clusters})."
    return f"The interval is as wide as {row['cluster']}s vary ({clusters} at the venue that has fewer)."


def _what_is_enough(row: dict[Any, Any]) -> str:
    """Say how many orders may be enough, where an interval contains 0: it narrows as the root of their number."""
    gap = abs(row["difference_bps"])
    reach = (row["high_bps"] - row["low_bps"]) / 2
    # More orders help against neither a reference of own trades, which pulls the difference, nor signs that differ.
    is_mended = row["reference"] != OWN_TRADES and _is_agreed(row)
    if pd.isna(reach) or reach <= gap or not is_mended:
        return ""
    if reach > gap * MOST_TIMES**0.5:
        return f"The difference is so near to 0 that {MOST_TIMES} times as many orders would hardly decide it."
    times = (reach / gap) ** 2
    orders = _about(row["orders"] * times)
    clusters = _about(row["clusters"] * times)
    return (
        f"Were the true difference {rounded(row['difference_bps'])} bps, about {orders} orders of {clusters} "
        f"{row['cluster']}s like these would have an even chance of a verdict."
    )


def _about(number: float) -> str:
    """Write a number that is an estimate with two digits."""
    return f"{float(f'{number:.2g}'):,.0f}"


def _flow_in_words(flow: dict[str, Any]) -> str:
    """Say how much of what was traded is arbitrage, from the ``attrs`` of `research.with_flow`."""
    if flow and not any(found["accounts"] for found in flow.values()):
        return "No account was found to trade for arbitrage."
    parts = [
        f"{counted(found['accounts'], 'account')} with {found['share']:.0%} of the value at the {venue}"
        for venue, found in flow.items()
    ]
    return f"Arbitrage, of all trades: {' and '.join(parts)}." if parts else ""


def listed(names: list[str]) -> str:
    """List names as a sentence does."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def interval_in_words(low: Any, high: Any, level: float) -> str:
    """Say where an interval begins and ends, and its level unless that is the default; both ends may be missing."""
    if pd.isna(low):
        return "no interval"
    name = "interval" if level == LEVEL else f"{100 * level:.6g} % interval"
    return f"{name} {rounded(low)} to {rounded(high)}"


def rounded(bps: float, places: int = 1) -> str:
    """Write basis points with so many decimals, or where these are all 0, with two digits.

    So a difference that has a verdict is not 0. What is as near to 0 as rounding is, without a sign.
    """
    if ROUNDING_BPS <= abs(bps) < 10**-places / 2:
        places = 1 - Decimal(bps).adjusted()
    # Adding 0 makes -0.0 positive.
    return f"{round(bps, places) + 0.0:,.{places}f}"
