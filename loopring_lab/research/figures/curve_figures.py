"""Figures of fitted cost curves, and of how the difference of the venues changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from loopring_lab import research
from loopring_lab.engine.groups import UTC
from loopring_lab.errors import LabError
from loopring_lab.figures import axis, style
from loopring_lab.figures.answers import ESTIMATE, as_pandas, interval_of, measured
from loopring_lab.figures.marks import Figure, Mark, keep
from loopring_lab.figures.style import VERDICTS, drawing, zero_line
from loopring_lab.figures.words import (
    format_bps,
    format_count,
    format_estimate,
    format_number,
)

VENUES = ("pool", "book")
# Sizes of ticks, times a power of ten: the usual ones of an axis that is a logarithm.
TICKS = (1, 2, 5)
# Chosen by eye: two bands, one over the other, leave the grid and both lines in sight.
BAND_STRENGTH = 0.18
# Digits of a size that is estimated, chosen by eye: more would look surer than its interval.
SIZE_DIGITS = 2


def cost_curves(trades: Any, *, prices: Any = None, ax: Axes | None = None) -> Figure:
    """Draw what an order of each size costs at each venue, market, side, hour and week being equal.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, usually of several accounts.
    prices : frame of any of these kinds, optional
        Prices from outside the exchange, as for `research.cost_curves`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        The curve of each venue from `research.cost_curves` with its 95 % band, and the size at which they cross with
        its interval, from `research.crossing`.

    Raises
    ------
    LabError
        No venue has enough orders for a curve, the venues share no weeks, or an argument is not valid.

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="ETH-USDC")
    >>> lab.research.figures.cost_curves(trades, prices=client.outside_prices(trades))
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.research.figures.cost_curves"
    curves = research.cost_curves(trades, prices)
    crossing = as_pandas(research.crossing(curves)).iloc[0]
    table = as_pandas(curves).rename(columns=ESTIMATE)
    drawn = table[table["venue"].isin(VENUES)].dropna(subset=["mean"])
    if drawn.empty and len(table):
        raise LabError(
            f"{caller}: {crossing['reason']}. Add trades of times and markets in which both were used, or give those "
            "of one venue."
        )
    if drawn.empty:
        raise LabError(
            f"{caller}: no venue has enough takers' orders with a price for a curve. Combine the trades of several "
            "accounts."
        )
    first = drawn.iloc[0]
    unit = first["quote"]
    crossed = _crossing_words(crossing, unit)
    note = (
        f"band: where the true cost lies, with 95 % confidence at each size; {crossed}"
    )
    note += f"\n{measured(drawn, '1min', caller)}"
    marks = []
    title = "All-in cost by size, market, side, hour and week being equal"
    with drawing(trades, ax, title, note) as axes:
        axes.axhline(0, **zero_line())
        for venue in VENUES:
            rows = drawn[drawn["venue"] == venue]
            if rows.empty:
                continue
            group = VERDICTS[venue]
            places = np.log10(rows["size"])
            label = f"{group.label}\n({format_count(rows['orders'].iloc[0], 'order')})"
            axes.plot(
                places,
                rows["mean"],
                color=group.colour,
                linestyle=group.dash,
                label=label,
            )
            axes.fill_between(
                places,
                rows["low"],
                rows["high"],
                color=group.colour,
                alpha=BAND_STRENGTH,
                linewidth=0,
            )
            for place, row in zip(places, rows.to_dict("records"), strict=True):
                text = f"{group.label}, {_size(row['size'])} {unit}\n{format_estimate(row)}"
                marks.append(Mark(text, (place, place), interval_of(row)))
        _draw_crossing(axes, crossing)
        _format_logarithms(axes, f"size of the order ({unit}, logarithmic)")
        axes.set_ylabel("all-in cost (basis points)")
    return keep(axes, as_pandas(curves), marks)


def changes(
    trades: Any,
    *,
    prices: Any = None,
    every: str = "1mo",
    tz: str = UTC,
    horizon: Any = "1min",
    ax: Axes | None = None,
) -> Figure:
    """Draw how much more the AMM pool cost than the order book in each period.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, usually of several accounts; of one market or more.
    prices, every, tz, horizon : optional
        Prices from outside the exchange, the length and the time zone of periods, and how long after the end of an
        order prices are looked up, as for `research.changes`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        ``difference_bps`` of `research.changes` for each period, with its own 95 % interval (thick) and the band that
        holds in all periods at once (thin). A mark is hollow where the band leaves it undecided which venue is
        cheaper.

    Raises
    ------
    LabError
        No period has taker fills of both venues that can be compared, or an argument is not valid.

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="ETH-USDC")
    >>> lab.research.figures.changes(trades, prices=client.outside_prices(trades))
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.research.figures.changes"
    compared = research.changes(trades, prices, None, every, tz=tz, horizon=horizon)
    table = as_pandas(compared)
    known = table.dropna(subset=["period", "difference_bps"])
    if known.empty:
        raise LabError(
            f"{caller}: no period has taker fills of both venues in the same market, side, size class and week. "
            "Combine the trades of several accounts, or give a longer period, such as every='1q'."
        )
    periods = axis.timeline(known["period"], every, caller)
    points = periods.located(known).rename(columns=ESTIMATE)
    points["x"] = periods.middle[points["place"]]
    note = "thick: where each true difference lies, with 95 % confidence; thin: all of them at once; hollow: undecided"
    note += f"\n{measured(points, horizon, caller)}"
    title = f"AMM pool minus order book, like with like, per {periods.name}"
    with drawing(trades, ax, title, note, counts_above=True) as axes:
        axes.axhline(0, **zero_line())
        marks = [_draw_period(axes, row) for row in points.to_dict("records")]
        axis.format_dates(axes, periods)
        axes.set_ylabel("pool minus book (basis points)")
        style.write_counts(
            axes,
            points["x"],
            points["fills"],
            style.ink(),
            (1, 8),
            periods.width.mean(),
        )
    return keep(axes, table, marks)


def _crossing_words(crossing: pd.Series, unit: str) -> str:
    """Say where curves cross, or why that is not known."""
    if pd.isna(crossing["size"]):
        return str(crossing["reason"])
    size = _size(crossing["size"])
    low = _size(crossing["low_size"])
    high = _size(crossing["high_size"])
    return f"the curves cross at {size} {unit} ({low} to {high})"


def _size(size: float) -> str:
    """Write an estimated size with few digits, and one that is not known as a question mark."""
    if pd.isna(size):
        return "?"
    return format_number(float(f"{size:.{SIZE_DIGITS}g}"))


def _draw_crossing(axes: Axes, crossing: pd.Series) -> None:
    """Draw a line at the size where curves cross, and its interval as a band as high as the figure."""
    if pd.isna(crossing["size"]):
        return
    place = np.log10(crossing["size"])
    axes.axvline(place, **zero_line(), linestyle=":")
    interval = crossing[["low_size", "high_size"]].astype(float)
    if interval.notna().all():
        low, high = np.log10(interval)
        axes.axvspan(low, high, color=style.ink(), alpha=0.06, linewidth=0)


def _format_logarithms(axes: Axes, label: str) -> None:
    """Write sizes on an axis that is their decimal logarithm."""
    low, high = axes.get_xlim()
    powers = np.arange(np.floor(low), np.ceil(high) + 1)
    steps = np.log10(TICKS)
    ticks = np.add.outer(powers, steps).ravel()
    inside = ticks[(ticks >= low) & (ticks <= high)]
    axes.xaxis.set_major_locator(FixedLocator(inside.tolist()))
    axes.xaxis.set_major_formatter(lambda place, _: _size(10**place))
    axes.set_xlabel(label)


def _draw_period(axes: Axes, row: Mapping[Any, Any]) -> Mark:
    """Draw the difference in one period with its interval and its band."""
    marker = style.verdict_marker(row["verdict"])
    band = interval_of(row, "band_low_bps", "band_high_bps")
    for (low, high), width in [(band, 0.9), (interval_of(row), 2.4)]:
        axes.vlines(row["x"], low, high, linewidth=width, color=marker["color"])
    axes.plot(row["x"], row["mean"], **marker)
    text = f"{row['when']}: {format_estimate(row)}"
    if pd.notna(row["band_low_bps"]):
        ends = " bps to ".join(format_bps(end) for end in band)
        text += f"\nband of all periods: {ends} bps"
    text += f"\ncheaper: {row['verdict']}\n{format_count(row['fills'])}"
    return Mark(text, (row["x"], row["x"]), band)
