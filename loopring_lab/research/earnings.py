"""The answer of `liquidity` summed up: totals of each pool, its mean net return with an interval, and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pandas as pd

from loopring_lab.amounts import to_float
from loopring_lab.amounts.display import format_amount, truncate
from loopring_lab.engine.clusters import LEAST_CLUSTERS, student
from loopring_lab.engine.groups import UNIT_NAMES, count_and_unit
from loopring_lab.fills.prices import OWN_TRADES
from loopring_lab.fills.sentences import LEVEL, counted

POOL = ["account_id", "market", "base", "quote"]
# Amounts of periods that add up; what is held untouched is of one period only.
SUMMED = (
    "notional",
    "base_fees",
    "quote_fees",
    "rebalanced",
    "fees",
    "lost_to_arbitrage",
    "lost_to_users",
    "lost_to_unknown",
    "added",
    "net",
)
# Columns that tell an answer of `liquidity` from others.
NEEDED = (
    "period",
    *POOL,
    "fills",
    *SUMMED,
    "opened",
    "closed",
    "against_held",
    "fee_source",
    "reference",
)
LOSSES = {
    "lost_to_arbitrage": "arbitrage",
    "lost_to_users": "users",
    "lost_to_unknown": "unknown flow",
}
GAIN = " (below 0: a gain)"
# Digits of an amount in a sentence.
DIGITS = 4
# The clusters of periods, as lengths: each period by itself, each day and each week, counted from 1970.
CLUSTERS = ("s", "D", "7D")
# A net return is put in relation to one of these.
POSITION = "position"
VOLUME = "volume"


def totals(table: pd.DataFrame) -> pd.DataFrame:
    """Return the sums of each pool over the periods in which its net return is known, and the mean of these.

    ``net_bps`` is the net return of a period in basis points of the value of the position when it begins or,
    where that is not known, of what the pool traded; ``low_bps`` to ``high_bps`` is its interval.
    """
    rows = []
    # The position begins with the first period and ends with the last one, however the table is sorted.
    in_time = table.sort_values("period", kind="stable", ignore_index=True)
    for pool, own in in_time.groupby(POOL, sort=False, observed=True):
        known = own[own["net"].notna()]
        row = dict(zip(POOL, pool, strict=True))
        row |= {
            "periods": len(own),
            "known": len(known),
            "fills": int(own["fills"].sum()),
            "fee_source": _sources(own),
            "reference": own["reference"].iloc[0],
            "opened": known["opened"].iloc[0] if len(known) else None,
            "closed": known["closed"].iloc[-1] if len(known) else None,
        }
        row |= {name: _total(known[name]) for name in SUMMED}
        row |= {name: _total(own[name]) for name in ("base_fees", "quote_fees")}
        has_position = len(known) > 0 and bool(known["opened"].notna().all())
        row["of"] = POSITION if has_position else VOLUME
        weights = known["opened"] if has_position else known["notional"]
        row |= mean_rate(to_float(known["net"]), to_float(weights), known["period"])
        rows.append(row)
    return pd.DataFrame(rows)


def mean_rate(
    net: pd.Series, weights: pd.Series, periods: pd.Series
) -> dict[str, float]:
    """Return the mean of net returns in basis points of their weights, with its interval and how many it is of.

    It is that of `engine.clusters`: the mean is computed again without each period that has a weight, each day and each
    week, and the widest interval counts. Returns of one period are like those of the next where days or weeks differ.
    """
    rows = pd.DataFrame({"net": net, "weight": weights})[weights != 0]
    begins = pd.to_datetime(periods, utc=True).dt
    total = rows.sum()
    mean = total["net"] / total["weight"] if len(rows) else math.nan
    reaches = []
    for length in CLUSTERS:
        rest = total - rows.groupby(begins.floor(length)).sum()
        count = len(rest)
        if count >= LEAST_CLUSTERS:
            moved = rest["net"] / rest["weight"] - mean
            error = math.sqrt((count - 1) / count * (moved**2).sum())
            reaches.append(student(LEVEL, count - 1) * error)
    reach = max(reaches, default=math.nan)
    return {
        "counted": len(rows),
        "net_bps": 10_000 * mean,
        "low_bps": 10_000 * (mean - reach),
        "high_bps": 10_000 * (mean + reach),
    }


def sentences(table: pd.DataFrame) -> Iterator[str]:
    """Say in words what the liquidity of each pool earned."""
    # Only pandas frames carry what they were asked with.
    period = period_name(table.attrs.get("every"))
    for row in totals(table).to_dict("records"):
        begin = f"{row['market']} (account {row['account_id']}): {counted(row['fills'], 'fill')}"
        if row["known"]:
            yield f"{begin}. {_earned(row)} {_rate(row, period)}{_position(row)}{_limits(row)}"
        else:
            yield f"{begin}{_fees_alone(row)}"


def _fees_alone(row: Mapping[Any, Any]) -> str:
    base = f"{_amount(row['base_fees'])} {row['base']}"
    quote = f"{_amount(row['quote_fees'])} {row['quote']}"
    return (
        f", fees of {base} and {quote}, {row['fee_source']}. What rebalancing cost is not known: that needs prices "
        "from outside for all fills."
    )


def _earned(row: Mapping[Any, Any]) -> str:
    losses = [
        f"{_amount(row[name])} to {words}{GAIN if row[name] < 0 else ''}"
        for name, words in LOSSES.items()
        if row[name]
    ]
    quote = row["quote"]
    return (
        f"Fees, {row['fee_source']}: {_amount(row['fees'])} {quote}; lost to rebalancing: "
        f"{', '.join(losses) or 'nothing'}; net {_amount(row['net'])} {quote}."
    )


def _rate(row: Mapping[Any, Any], period: str) -> str:
    rate = rate_in_words(row, period)
    if row["of"] == POSITION:
        return f"On average, {one(period)} brought {rate} of the position."
    return f"Net, {rate} of what the pool traded."


def rate_in_words(row: Mapping[Any, Any], period: str) -> str:
    """Write a mean net return with its interval, and what it rests on."""
    if math.isnan(row["net_bps"]):
        return "an unknown part"
    interval = "too few for an interval"
    if not math.isnan(row["low_bps"]):
        interval = f"95 % interval {_bps(row['low_bps'])} to {_bps(row['high_bps'])}"
    return f"{_bps(row['net_bps'])} bps ({interval}, n = {counted(row['counted'], period)})"


def _position(row: Mapping[Any, Any]) -> str:
    if pd.isna(row["opened"]) or row["known"] < row["periods"]:
        return ""
    parts = [f"{_amount(row['rebalanced'])} from prices", f"{_amount(row['net'])} net"]
    if row["added"]:
        parts.append(f"{_amount(row['added'])} added")
    return (
        f" The position went from {_amount(row['opened'])} to {_amount(row['closed'])} {row['quote']}: "
        f"{', '.join(parts)}."
    )


def _limits(row: Mapping[Any, Any]) -> str:
    text = ""
    missing = row["periods"] - row["known"]
    if missing:
        text += f" Left out: {missing:,} of {row['periods']:,} periods, in which something is not known."
    if row["reference"] == OWN_TRADES:
        text += " The reference is own trades, which hide much of the loss."
    return text


def _sources(table: pd.DataFrame) -> str:
    sources = table["fee_source"].dropna().unique().tolist()
    return sources[0] if len(sources) == 1 else "partly measured"


def _total(amounts: pd.Series) -> Decimal:
    return sum(amounts.dropna(), Decimal(0))


def period_name(every: str | None) -> str:
    """Name the periods of a question in one word; those that are no unit, or not known, are periods."""
    count, unit = count_and_unit(every) if every else (0, "")
    return UNIT_NAMES[unit] if count == 1 else "period"


def one(period: str) -> str:
    """Name a period with its article."""
    return f"an {period}" if period == "hour" else f"a {period}"


def _bps(rate: float) -> str:
    """Write basis points with three decimals, as a day brings few; adding 0 makes -0.0 positive."""
    return f"{round(rate, 3) + 0.0:,.3f}"


def _amount(amount: Decimal) -> str:
    """Write an amount with so many digits, further ones cut and not rounded."""
    places = DIGITS - 1 - amount.adjusted() if amount else 0
    return format_amount(truncate(amount, max(0, min(places, 18))))
