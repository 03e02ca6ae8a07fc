"""Figures of fills: volume, shares of AMM pool and order book, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from loopring_lab import fills
from loopring_lab.amounts import to_float
from loopring_lab.amounts.display import format_amount
from loopring_lab.engine.ask import ask_table, given
from loopring_lab.engine.clusters import quantile
from loopring_lab.engine.frames import to_pandas
from loopring_lab.engine.groups import FIXED, UTC, Periods, check_zone, count_and_unit
from loopring_lab.engine.question import ORDER_COLUMNS, Large, Question
from loopring_lab.errors import LabError
from loopring_lab.figures import axis, style
from loopring_lab.figures.answers import as_pandas, select_quote
from loopring_lab.figures.marks import Figure, Mark, keep
from loopring_lab.figures.overview import overview_of
from loopring_lab.figures.style import (
    FILL_TYPES,
    drawing,
    percent_axis,
    stacked_bars,
    write_counts,
)
from loopring_lab.figures.words import fill_count, format_count, format_number

# Bars of equal length in place of calendar periods, so that heights compare.
EQUAL_PERIODS = {
    "1w": "1w",
    "1mo": "30d",
    "1q": "91d",
}
# Points on a line up to which each, and its interval, is drawn large enough to see.
MOST_DOTS = 60


def volume(
    trades: Any,
    *,
    quote: str | None = None,
    tz: str = UTC,
    ax: Axes | None = None,
) -> Figure:
    """Draw the volume traded over time, stacked by fill type.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades` or `Archive.scan`. ``notional`` is summed exactly per day,
        week, 30 or 91 days from the first day, depending on the time covered.
    quote : str, optional
        The quote token to draw; amounts in different tokens are never added up. By default the one with the
        most trades; the title names it, and says how many trades that leaves out.
    tz : str
        The time zone by whose clock days begin, as for `fees.over_time`; the axis names it.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Not registered with pyplot. A note says so where the last bar covers fewer days than the others.

    Raises
    ------
    LabError
        No trade with a known time, notional and fill type is quoted in that token.

    Examples
    --------
    >>> lab.figures.volume(client.trades(account_id=10083, limit=100), quote="ETH")
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.volume"
    needed = ("created_at", "quote", "fill_type", "notional")
    question = Question(caller, _volumes_by_day(check_zone(tz, caller)), needed)
    daily = to_pandas(ask_table(question, given(trades, caller)))
    daily["period"] = daily["period"].dt.tz_convert(tz)
    daily, token = select_quote(
        daily,
        quote,
        caller,
        known="time, fill type and notional",
    )
    table, every, note = _in_equal_periods(daily)
    periods = axis.timeline(table["period"], every, caller)

    overview = overview_of(trades, caller)
    title = f"Traded volume per {periods.name}, {token}-quoted markets"
    drawn = table["fills"].sum()
    # Trades in other quote tokens, or without a type or a notional, are not drawn.
    if drawn < overview.trades:
        title += f", {fill_count(drawn, overview.trades)}"

    def say(row: dict[Any, Any]) -> str:
        heading = f"{FILL_TYPES[row['fill_type']].label}, {row['when']}"
        return f"{heading}\n{format_amount(row['notional'])} {token}"

    styles = {name: FILL_TYPES[name].bar for name in ("amm", "dex")}
    bars = periods.located(table)
    bars["name"] = bars["fill_type"]
    bars["height"] = to_float(bars["notional"])
    with drawing(trades, ax, title, note, overview.note) as axes:
        marks = stacked_bars(axes, periods.left, periods.width, bars, styles, say)
        axis.format_dates(axes, periods)
        axes.set_ylabel(f"notional ({token})")
    return keep(axes, table, marks)


def fill_shares(
    trades: Any,
    *,
    every: str | None = None,
    tz: str = UTC,
    ax: Axes | None = None,
) -> Figure:
    """Draw the AMM pool's share of fills over time; the rest is the order book's.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades` or `Archive.scan`.
    every : str, optional
        Length of a period, as for `fills.breakdown`; chosen to fit the time covered by default.
    tz : str
        The time zone by whose clock periods begin, as for `fees.over_time`; the axis names it.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        A line through the share of each period in percent, with gaps where a period has no fills, the 95 %
        interval of each share and its number of fills, and the share over the whole time. Fills of unknown
        type are left out. Intervals are Wilson's score intervals, which also hold near 0 and 100 %: their
        observations are orders, as the fills of one order are one decision, or as many orders of equal weight
        as would say as much.

    Raises
    ------
    LabError
        No trade has a known time and fill type, or `every` is not valid.

    Examples
    --------
    >>> lab.figures.fill_shares(client.trades(account_id=10083, limit=100))
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.fill_shares"
    overview = overview_of(trades, caller)
    every = every or axis.period_for(overview.days)
    question = Question(
        caller,
        _shares_by_period(Periods(every, check_zone(tz, caller))),
        ("created_at", "fill_type"),
        may_have=ORDER_COLUMNS,
    )
    sums = to_pandas(ask_table(question, given(trades, caller)))
    sums["period"] = sums["period"].dt.tz_convert(tz)
    if sums.empty:
        raise LabError(
            f"{caller}: no trade with a known time and fill type to draw. Pass other trades."
        )
    table = _with_shares(sums)
    periods = axis.timeline(table["period"], every, caller)

    # The share of sums, not the mean of shares: a quiet week counts for less.
    overall = 100 * table["pool_fills"].sum() / table["fills"].sum()
    counted = fill_count(table["fills"].sum(), overview.trades)
    note = f"{counted}; over the whole time AMM pool {format_number(overall, 3)} %"
    note += "\nfills counted above the points, with 95 % intervals (Wilson, by order)"
    title = f"AMM pool's share of fills, per {periods.name}"

    points = periods.located(table).rename(columns={"share": "mean"})
    points[["mean", "low", "high"]] *= 100
    every_point = points.set_index("place").reindex(range(len(periods.left)))
    points["x"] = periods.middle[points["place"]]
    pool = FILL_TYPES["amm"]
    # Smaller marks stay apart on a line of many.
    size = 5 if len(points) <= MOST_DOTS else 2
    with drawing(
        trades,
        ax,
        title,
        note,
        overview.note,
        counts_above=True,
    ) as axes:
        style.draw_estimates(
            axes,
            periods.middle,
            every_point,
            pool,
            markersize=size,
            linewidth=0.8,
        )
        look = style.zero_line() | {"linewidth": 1, "linestyle": "--"}
        axes.axhline(overall, **look, label="whole time")
        axis.format_dates(axes, periods)
        percent_axis(axes)
        write_counts(
            axes,
            points["x"],
            points["fills"],
            pool.colour,
            (1, 8),
            periods.width.min(),
        )
    return keep(axes, table, _share_marks(points))


def size_profile(
    trades: Any,
    *,
    quantiles: int = 10,
    quote: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the shares of AMM pool and order book by fill size.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades` or `Archive.scan`.
    quantiles : int
        Number of quantiles, as for `fills.size_profile`.
    quote, ax : optional
        As for `volume`.

    Returns
    -------
    matplotlib.figure.Figure
        Stacked ``share`` of `fills.size_profile` in percent, with the sizes that separate the quantiles
        between the bars, truncated and never rounded up.

    Raises
    ------
    LabError
        No trade is quoted in that token, or `quantiles` is out of range.

    Examples
    --------
    >>> lab.figures.size_profile(client.trades(account_id=10083, limit=100), quantiles=4)
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.size_profile"
    profile = as_pandas(fills.size_profile(trades, quantiles))
    sizes, token = axis.quantiles_of(profile, quote, caller)
    table = style.label_unknown_types(sizes)
    places, known = pd.factorize(table["quantile"], sort=True)
    count = len(known)

    drawn = table["fills"].sum()
    title = f"Share of fills by size, {token}-quoted markets"
    note = fill_count(drawn, profile["fills"].sum())
    if count > 1:
        note += f"; each bar about {format_count(round(drawn / count))}"

    def say(row: dict[Any, Any]) -> str:
        sizes = f"{format_amount(row['smallest'])} to {format_amount(row['largest'])} {token}"
        share = f"{row['height']:.1f} % of the fills of this size"
        return f"{FILL_TYPES[row['name']].label}, {sizes}\n{share}"

    bars = table.assign(
        place=places,
        name=table["fill_type"],
        height=100 * table["share"],
    )
    styles = {
        name: group.bar
        for name, group in FILL_TYPES.items()
        if name in set(table["fill_type"])
    }
    with drawing(
        trades,
        ax,
        title,
        note,
        overview_of(trades, caller).note,
    ) as axes:
        left = np.arange(count) - style.BAR_WIDTH / 2
        marks = stacked_bars(axes, left, np.ones(count), bars, styles, say)
        axis.format_sizes(axes, axis.bounds_of(table), token)
        percent_axis(axes)
    return keep(axes, table, marks)


def _in_equal_periods(daily: pd.DataFrame) -> tuple[pd.DataFrame, str, str]:
    """Add up days to periods of equal length from the first day; return these, their length and a note on the last."""
    zone = daily["period"].dt.tz
    # A midnight that a clock leaves out is shown as an hour later.
    days = daily["period"].dt.tz_localize(None).dt.normalize()
    # Periods begin with the first day, so that the first bar is as long as the others.
    start = days.min()
    usual = axis.period_for((days.max() - start).days)
    every = EQUAL_PERIODS.get(usual, "1d")
    count, unit = count_and_unit(every)
    length = pd.Timedelta(count * FIXED[unit], "ms")
    number = (days - start) // length
    begun = pd.DatetimeIndex(start + number * length)
    # A bar of fewer days than the others is lower for that alone.
    covered = (days.max() - begun.max()).days + 1
    note = ""
    if covered < length.days:
        note = f"last bar: {covered} of {length.days} days, up to the last trade"
    # Of a midnight that a clock shows twice, the first is meant.
    is_first = np.ones(len(begun), bool)
    periods = begun.tz_localize(zone, is_first, nonexistent="shift_forward")
    dated = daily.assign(period=periods)
    groups = dated.groupby(["period", "quote", "fill_type"])
    sums = groups[["fills", "notional"]].sum().reset_index()
    return sums, every, note


def _with_shares(sums: pd.DataFrame) -> pd.DataFrame:
    """Return the fills of each period in all and of the pool, and the pool's share."""
    added = ["fills", "pool_fills", "orders", "squares"]
    table = sums.groupby("period")[added].sum().reset_index()
    share = table["pool_fills"] / table["fills"]
    # Kish: how many orders of equal size would say as much.
    low, high = _wilson(share, table["fills"] ** 2 / table["squares"])
    return table[["period", "fills", "pool_fills"]].assign(
        share=share,
        orders=table["orders"],
        low=low,
        high=high,
    )


def _volumes_by_day(zone: str) -> dict[str, str]:
    """Return the step that adds up each day by itself, as Spark has them; `_in_equal_periods` adds days up."""
    return {
        "sums": f"""
-- what was traded on each day, by quote token and fill type
SELECT
    {Periods("1d", zone).start()} AS period,
    quote,
    fill_type,
    count(*) AS fills,
    sum(notional) AS notional
FROM trades
WHERE created_at IS NOT NULL AND quote IS NOT NULL AND fill_type IS NOT NULL AND notional IS NOT NULL
GROUP BY period, quote, fill_type""",
    }


def _shares_by_period(periods: Periods) -> dict[str, str]:
    """Return the steps that add up fills, those of the pool, and orders by period."""
    return {
        "orders": Large(f"""
-- how many fills each order had in a period, and how many of these at the pool
SELECT
    {periods.start()} AS period,
    order_id,
    count(*) AS fills,
    count(*) FILTER (WHERE fill_type = 'amm') AS pool_fills
FROM trades
WHERE created_at IS NOT NULL AND fill_type IS NOT NULL
GROUP BY period, order_id"""),
        "sums": """
-- the same of all orders, and how unequal these are
SELECT period,
    CAST(sum(fills) AS BIGINT) AS fills,
    CAST(sum(pool_fills) AS BIGINT) AS pool_fills,
    count(*) AS orders,
    sum(pow(fills, 2)) AS squares
FROM orders
GROUP BY period""",
    }


def _wilson(
    share: pd.Series,
    orders: pd.Series,
) -> tuple[pd.Series, pd.Series]:
    """Return the ends of Wilson's score interval of shares of so many orders."""
    # E. B. Wilson: Probable inference, JASA 22 (1927).
    part = quantile(0.95) ** 2 / orders
    whole = 1 + part
    middle = (share + part / 2) / whole
    within = share * (1 - share) * part + (part / 2) ** 2
    reach = np.sqrt(within) / whole
    low = middle - reach
    high = middle + reach
    return low.clip(0, 1), high.clip(0, 1)


def _share_marks(points: pd.DataFrame) -> Iterator[Mark]:
    for row in points.to_dict("records"):
        interval = f"95 %: {row['low']:.1f} to {row['high']:.1f} %"
        share = f"AMM pool {row['mean']:.1f} % of fills ({interval})"
        text = f"{row['when']}\n{share}\n{format_count(row['fills'])}"
        yield Mark(
            text,
            (row["x"], row["x"]),
            (row["low"], row["high"]),
        )
