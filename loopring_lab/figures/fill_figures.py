"""Figures of fills: volume, shares of AMM pool and order book, sizes."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loopring_lab.engines.aggregate import GroupBy, aggregate, result_frame
from loopring_lab.errors import LabError
from loopring_lab.figures import axis, style
from loopring_lab.figures.style import FILL_TYPES, as_pandas, drawing, trade_count

EQUAL_PERIODS = {"1w": (7, "week"), "1mo": (30, "30 days"), "1q": (91, "91 days")}
"""Bars of equal length in days in place of calendar periods, so that heights compare."""


def volume(trades: Any, *, quote: str | None = None, ax: Axes | None = None) -> Figure:
    """Draw the volume traded over time, stacked by fill type.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`. ``notional`` is summed exactly per day,
        week, 30 or 91 days from the first day, depending on the time covered.
    quote : str, optional
        The quote token to draw; amounts in different tokens are never added up. By default the one with the
        most trades; the title names it, and says how many trades that leaves out.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Not registered with pyplot.

    Raises
    ------
    LabError
        No trade with a known time, notional and fill type is quoted in that token.

    Examples
    --------
    >>> lab.figures.volume(client.trades(account_id=10083, limit=100), quote="ETH")
    <Figure size 900x420 with 1 Axes>
    """
    daily, total = _sums(trades, "1d", ["quote", "fill_type", "notional"], "volume")
    table, token = style.select_quote(daily, quote, "volume")
    days = table["period"].dt.as_unit("ms")
    count, name = EQUAL_PERIODS.get(axis.period_for((days.max() - days.min()).days), (1, "day"))
    length = pd.Timedelta(days=count)
    table = table.assign(period=days.min() + (days - days.min()) // length * length)
    periods = axis.timeline(table["period"], f"{count}d", "volume")
    heights = periods.pivot(table, "fill_type", "notional").reindex(columns=["amm", "dex"])
    title = f"Traded volume per {name}, {token}-quoted markets"
    if table["fills"].sum() < total:
        title += f", {trade_count(table['fills'].sum(), total)}"
    with drawing(trades, ax, title) as axes:
        style.stacked_bars(axes, periods.left, periods.width, _bars(heights))
        axis.format_dates(axes, periods)
        axes.set_ylabel(f"notional ({token})")
    return cast("Figure", axes.figure)


def fill_shares(
    trades: Any,
    *,
    every: str | None = None,
    of: Literal["fills", "notional"] = "fills",
    quote: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the shares of AMM pool and order book over time.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every : str, optional
        Length of a period, as for `fills.breakdown`; chosen to fit the time covered by default.
    of : {'fills', 'notional'}
        Share of the number of fills, or of the amount traded in one quote token.
    quote : str, optional
        Draw only markets of this quote token; for notional, the one with the most fills by default.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Bars of `fills.breakdown`, in percent; a period without fills stays empty.

    Raises
    ------
    LabError
        No trade has the values needed, or `of` or `every` is not valid.

    Examples
    --------
    >>> lab.figures.fill_shares(client.trades(account_id=10083, limit=100), of="notional")
    <Figure size 900x420 with 1 Axes>
    """
    caller = "fill_shares"
    if of not in ("fills", "notional"):
        raise LabError(f"{caller}: of={of!r} is not known. Give 'fills' or 'notional'.")
    every = every or axis.choose_period(trades, caller)
    table, total = _sums(trades, every, [] if of == "fills" else ["quote", "notional"], caller)
    table = style.label_unknown_types(table)
    markets = ""
    if of == "notional" or quote:
        table, token = style.select_quote(table, quote, caller)
        markets = f", {token}-quoted markets"
    periods = axis.timeline(table["period"], every, caller)
    heights = periods.pivot(table, "fill_type", of)
    shares = heights.div(heights.sum(axis=1), axis=0) * 100
    overall = heights.sum() / heights.sum().sum() * 100
    drawn = [name for name in FILL_TYPES if name in overall]
    parts = [f"{FILL_TYPES[name].label} {style.format_number(overall[name], 3)} %" for name in drawn]
    note = f"{trade_count(table['fills'].sum(), total)}; over the whole time {', '.join(parts)}"
    with drawing(trades, ax, f"Share of {of} by fill type, per {periods.name}{markets}", note) as axes:
        style.stacked_bars(axes, periods.left, periods.width, _bars(shares))
        axis.format_dates(axes, periods)
        style.percent_axis(axes, of)
    return cast("Figure", axes.figure)


def size_profile(
    trades: Any, *, quantiles: int = 10, quote: str | None = None, ax: Axes | None = None
) -> Figure:
    """Draw the shares of AMM pool and order book by fill size.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
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
    table, token, total = axis.size_quantiles(trades, quantiles, quote, "size_profile")
    table = style.label_unknown_types(table)
    shares = table.groupby(["quantile", "fill_type"])["share"].sum().unstack() * 100
    title, note = f"Share of fills by size, {token}-quoted markets", trade_count(table["fills"].sum(), total)
    if len(shares) > 1:
        note += f"; each bar about {table['fills'].sum() / len(shares):,.0f} fills"
    with drawing(trades, ax, title, note) as axes:
        places = np.arange(len(shares), dtype=np.float64)
        style.stacked_bars(axes, places - style.BAR_WIDTH / 2, np.ones(len(shares)), _bars(shares))
        axis.format_sizes(axes, axis.bounds(table), token)
        style.percent_axis(axes, "fills")
    return cast("Figure", axes.figure)


def _sums(trades: Any, every: str, known: list[str], caller: str) -> tuple[pd.DataFrame, int]:
    """Add up fills of known time, and of other `known` values, per quote and fill type; also count all."""
    keys = ["period", "quote", "fill_type"]
    sums = aggregate(trades, keys[1:], caller, every, rates=False)
    total = int(pc.sum(sums["fills"]).as_py() or 0)
    there = np.all([sums[name].is_valid().to_numpy() for name in ["period", *known]], axis=0)
    groups = GroupBy(sums.filter(pa.array(there)), keys)
    count = groups.sum("valued" if "notional" in known else "fills")
    columns = groups.key_columns() | {"fills": count, "notional": groups.sum("notional")}
    return as_pandas(result_frame(pd.DataFrame(), columns)), total


def _bars(heights: pd.DataFrame) -> list[tuple[dict[str, Any], pd.Series]]:
    return [(group.bar, heights[name]) for name, group in FILL_TYPES.items() if name in heights]
