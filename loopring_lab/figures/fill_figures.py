"""Figures of fills: volume, shares of AMM pool and order book, sizes, prices and costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal, cast

import narwhals as nw
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from loopring_lab import fills
from loopring_lab.amounts import to_float
from loopring_lab.engines import adapters
from loopring_lab.errors import LabError
from loopring_lab.figures import style, time_axis
from loopring_lab.figures.style import FILL_TYPES, GroupStyle, as_pandas, drawing, trade_count

EQUAL_PERIODS = {"1w": (7, "week"), "1mo": (30, "30 days"), "1q": (91, "91 days")}
"""Bars of equal length in days in place of calendar periods, so that heights compare."""
STEPS = (1, 2, 2.5, 5, 10)
FEWEST_BINS, MOST_BINS = 10, 40
FENCE = 3
"""Interquartile ranges beyond which values are not drawn."""
FEWEST_COLUMNS, ROOMY_DIGITS = 5, 3
AXES_WIDTH, DIGIT, POINTS = 0.93, 7.0, 72
"""Part of the width beside the legend; width of a digit in points; points per inch."""
QUARTILES = (0.25, 0.5, 0.75)
MOST_PARTS, FEWEST_PARTS, FILLS_PER_PART = 10, 3, 40
"""Parts by size, and how many fills with a cost each of them should have."""


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
    complete, total = _complete(trades, ["created_at", "quote", "fill_type", "notional"], "volume")
    daily = as_pandas(fills.breakdown(complete, "1d", "quote"))
    table, token = style.select_quote(daily, quote, "volume")
    days = table["period"].dt.as_unit("ms")
    count, name = EQUAL_PERIODS.get(time_axis.period_for((days.max() - days.min()).days), (1, "day"))
    length = pd.Timedelta(days=count)
    table = table.assign(period=days.min() + (days - days.min()) // length * length)
    periods = time_axis.timeline(table["period"], f"{count}d", "volume")
    heights = periods.pivot(table, "fill_type", "notional").reindex(columns=["amm", "dex"])
    title = f"Traded volume per {name}, {token}-quoted markets"
    if table["fills"].sum() < total:
        title += f", {trade_count(table['fills'].sum(), total)}"
    with drawing(trades, ax, title) as axes:
        style.stacked_bars(axes, periods.left, periods.width, _bars(heights))
        time_axis.format_dates(axes, periods)
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
    every = every or time_axis.choose_period(trades, caller)
    needed = ["created_at"] if of == "fills" else ["created_at", "quote", "notional"]
    complete, total = _complete(trades, needed, caller)
    table = style.label_unknown_types(as_pandas(fills.breakdown(complete, every, "quote")))
    markets = ""
    if of == "notional" or quote:
        table, token = style.select_quote(table, quote, caller)
        markets = f", {token}-quoted markets"
    periods = time_axis.timeline(table["period"], every, caller)
    heights = periods.pivot(table, "fill_type", of)
    shares = heights.div(heights.sum(axis=1), axis=0) * 100
    overall = heights.sum() / heights.sum().sum() * 100
    drawn = [name for name in FILL_TYPES if name in overall]
    parts = [f"{FILL_TYPES[name].label} {style.format_number(overall[name], 3)} %" for name in drawn]
    note = f"{trade_count(table['fills'].sum(), total)}; over the whole time {', '.join(parts)}"
    with drawing(trades, ax, f"Share of {of} by fill type, per {periods.name}{markets}", note) as axes:
        style.stacked_bars(axes, periods.left, periods.width, _bars(shares))
        time_axis.format_dates(axes, periods)
        style.percent_axis(axes, of)
    return cast("Figure", axes.figure)


def price_gaps(trades: Any, *, tolerance: Any = "60s", ax: Axes | None = None) -> Figure:
    """Draw how much worse each fill was priced than the last one of the other type.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`; combining several accounts gives more pairs.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the other fill, as for `fills.price_gap`; None for any age.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Histograms of ``worse_bps`` of `fills.price_gap`, one upwards and one downwards, each in percent of
        its matched fills, with medians. Outliers beyond three interquartile ranges are not drawn; the note
        under the title counts them.

    Raises
    ------
    LabError
        No fill has an earlier one of the other type, or an argument is not valid.

    Examples
    --------
    >>> lab.figures.price_gaps(client.trades(account_id=10083), tolerance="12h")
    <Figure size 900x420 with 1 Axes>
    """
    table = as_pandas(fills.price_gap(trades, tolerance))
    worse = {name: table.loc[table["fill_type"] == name, "worse_bps"] for name in ("amm", "dex")}
    matched = {
        name: column.dropna().to_numpy(np.float64) for name, column in worse.items() if column.notna().any()
    }
    if not matched:
        raise LabError(
            f"price_gaps: no fill has one of the other type within {tolerance} before it. Allow more, such "
            "as tolerance='1h', or combine the trades of several accounts."
        )
    edges = _edges(matched.values())
    outside = sum(int(((values < edges[0]) | (values > edges[-1])).sum()) for values in matched.values())
    note = f"{trade_count(sum(map(len, matched.values())), len(table))} of known type matched"
    if outside:
        note += f"; {outside:,} lie outside this range"
    title = f"Price against the other fill type's last fill, {_age_limit(tolerance)}"
    with drawing(trades, ax, title, note) as axes:
        for direction, (name, values) in zip((1, -1), matched.items(), strict=False):
            unmatched = int(worse[name].isna().sum())
            label = f"{FILL_TYPES[name].label}:\n{len(values):,} matched,\n{unmatched:,} not"
            _draw_histogram(axes, edges, values, FILL_TYPES[name]._replace(label=label), direction)
        axes.axhline(0, color=style.NOTE_COLOUR, linewidth=0.8)
        axes.axvline(0, color=style.NOTE_COLOUR, linewidth=0.8, linestyle=":")
        axes.set_xlabel("difference (basis points; right of 0: worse for the account)")
        axes.set_ylabel("share of matched fills (%)")
        style.plain_numbers(axes.xaxis)
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda share, _: style.format_number(abs(share)) if abs(share) <= 100 else "")
        )
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
    table, token, total = _size_quantiles(trades, quantiles, quote, "size_profile")
    table = style.label_unknown_types(table)
    shares = table.groupby(["quantile", "fill_type"])["share"].sum().unstack() * 100
    title, note = f"Share of fills by size, {token}-quoted markets", trade_count(table["fills"].sum(), total)
    if len(shares) > 1:
        note += f"; each bar about {table['fills'].sum() / len(shares):,.0f} fills"
    with drawing(trades, ax, title, note) as axes:
        places = np.arange(len(shares), dtype=np.float64)
        style.stacked_bars(axes, places - style.BAR_WIDTH / 2, np.ones(len(shares)), _bars(shares))
        _size_axis(axes, _bounds(table), token)
        style.percent_axis(axes, "fills")
    return cast("Figure", axes.figure)


def cost_curve(
    trades: Any,
    *,
    reference: Any = "next",
    tolerance: Any = "1h",
    quantiles: int | None = None,
    quote: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the all-in cost of fills, fee plus price difference, by fill size.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    reference, tolerance : optional
        The price to compare with, and its maximum distance in time, as for `fills.all_in_cost`.
    quantiles : int, optional
        Number of quantiles, as for `fills.size_profile`; by default ten, or as few as three where few fills
        have a cost, so that each has about forty.
    quote, ax : optional
        As for `volume`.

    Returns
    -------
    matplotlib.figure.Figure
        The median of ``all_in_bps`` of `fills.all_in_cost` for each fill type and quantile, with a band from
        the first to the third quartile.

    Raises
    ------
    LabError
        No fill has a reference price, or an argument is not valid.

    Examples
    --------
    >>> lab.figures.cost_curve(client.trades(account_id=10083), reference="last")
    <Figure size 900x420 with 1 Axes>
    """
    caller = "cost_curve"
    _, token, total = _size_quantiles(trades, quantiles or MOST_PARTS, quote, caller)
    costs = to_float(as_pandas(fills.all_in_cost(trades, reference, tolerance)))
    costs = costs[costs["quote"] == token].dropna(subset=["all_in_bps", "notional"])
    costs = style.label_unknown_types(costs)
    if costs.empty:
        hint = "Allow more with tolerance=, or pass prices as reference=."
        raise LabError(
            f"{caller}: no fill quoted in {token} has a reference price within {tolerance}. {hint}"
        )
    if quantiles is None:
        quantiles = min(MOST_PARTS, max(FEWEST_PARTS, len(costs) // FILLS_PER_PART))
    bounds = _bounds(_size_quantiles(trades, quantiles, token, caller)[0])
    part = np.searchsorted(to_float(bounds)["largest"].to_numpy(), costs["notional"].to_numpy())
    quartiles = costs.groupby(["fill_type", part])["all_in_bps"].quantile(np.array(QUARTILES)).unstack()
    against = f"the market's {reference} trade" if isinstance(reference, str) else "the reference"
    notes = f"fee plus price difference to {against}; line: median, band: middle half of the fills"
    title = f"All-in cost by size, {token}-quoted markets, {trade_count(len(costs), total)}"
    with drawing(trades, ax, title, notes) as axes:
        for name in [name for name in FILL_TYPES if name in quartiles.index]:
            levels = quartiles.loc[[name]].droplevel(0).reindex(range(len(bounds)))
            _draw_band(axes, levels, FILL_TYPES[name])
        axes.axhline(0, color=style.NOTE_COLOUR, linewidth=0.8)
        _size_axis(axes, bounds, token)
        style.plain_numbers(axes.yaxis)
        axes.set_ylabel("all-in cost (basis points)")
    return cast("Figure", axes.figure)


def _complete(trades: Any, columns: list[str], caller: str) -> tuple[Any, int]:
    """Drop rows with nulls in these columns; also return how many rows there were."""
    check = adapters.partitions if adapters.engine_of(trades) == "dask" else adapters.open_frame
    check(trades, columns, caller)
    table = nw.from_native(trades)
    known = table.filter(~nw.any_horizontal(*(nw.col(name).is_null() for name in columns), ignore_nulls=True))
    count = table.select(nw.len().alias("n")).lazy().collect("pyarrow").to_native()["n"][0].as_py()
    return known.to_native(), count


def _bars(heights: pd.DataFrame) -> list[tuple[dict[str, Any], pd.Series]]:
    return [(group.bar, heights[name]) for name, group in FILL_TYPES.items() if name in heights]


def _age_limit(tolerance: Any) -> str:
    if tolerance is None:
        return "of any age"
    if isinstance(tolerance, pd.Timedelta):
        tolerance = f"{style.format_number(tolerance.total_seconds())} s"
    return f"at most {tolerance} old"


def _edges(histograms: Iterable[np.ndarray]) -> np.ndarray:
    """Choose bins of a round width that cover both histograms without their outliers, and 0."""
    low, high, count = 0.0, 0.0, 0
    for values in histograms:
        first, third = np.quantile(values, [0.25, 0.75])
        fence = FENCE * (third - first) or np.inf
        low, high = min(low, max(values.min(), first - fence)), max(high, min(values.max(), third + fence))
        count += len(values)
    rough = (high - low) / min(MOST_BINS, FEWEST_BINS + count // 4) or 0.1
    tens = 10.0 ** math.floor(math.log10(rough))
    step = next(step * tens for step in STEPS if step * tens >= rough)
    first_step = math.floor(low / step)
    edges: np.ndarray = np.arange(first_step, max(first_step + 1, math.ceil(high / step)) + 1) * step
    return edges


def _draw_histogram(
    axes: Axes, edges: np.ndarray, values: np.ndarray, group: GroupStyle, direction: int
) -> None:
    """Draw one histogram, with the median as a line beyond the bars."""
    heights = np.histogram(values, edges)[0] / len(values) * 100
    axes.bar(edges[:-1], direction * heights, width=np.diff(edges), align="edge", **group.bar)
    middle, top = float(np.median(values)), direction * heights.max() * 1.15
    axes.plot([middle, middle], [0, top], color="black", linewidth=1.2, linestyle=group.dash)
    right = middle < (edges[0] + edges[-1]) / 2
    axes.annotate(
        f"median {round(middle, 2) + 0.0:,.2f}",
        (middle, top),
        (4 if right else -4, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="top" if direction > 0 else "bottom",
        fontsize=10,
    )


def _size_quantiles(
    trades: Any, quantiles: int, quote: str | None, caller: str
) -> tuple[pd.DataFrame, str, int]:
    """Return the size profile of one quote token, the token, and the number of all fills."""
    table = as_pandas(fills.size_profile(trades, quantiles))
    total = int(table["fills"].sum())
    table, token = style.select_quote(table.dropna(subset=["quantile"]), quote, caller)
    return table.astype({"quantile": int}), token, total


def _bounds(table: pd.DataFrame) -> pd.DataFrame:
    return table.groupby("quantile")[["smallest", "largest"]].first()


def _size_axis(axes: Axes, bounds: pd.DataFrame, quote: str) -> None:
    """Label the boundaries between columns with sizes; if all sizes are equal, the columns themselves."""
    sizes = [bounds["smallest"].iloc[0], *bounds["largest"]]
    texts = {digits: [style.truncate_digits(size, digits) for size in sizes] for digits in range(2, 18)}
    least = next(n for n in texts if n == 17 or len(set(texts[n])) == len(set(sizes)))
    short, long = texts[least], texts[max(least, ROOMY_DIGITS)]
    room = max(0.1, (FEWEST_COLUMNS - len(bounds)) / 2)
    column = AXES_WIDTH * axes.bbox.width * POINTS / axes.figure.dpi / (len(bounds) + 2 * room)
    labels = long if _fit(long, column) else short
    step = next(n for n in range(1, len(sizes) + 1) if _fit(labels[::n], n * column))
    axes.set_xticks(np.arange(0, len(sizes), step) - 0.5, labels[::step])
    if len(set(sizes)) == 1:
        axes.set_xticks([(len(bounds) - 1) / 2], labels[:1])
    axes.set_xlim(-0.5 - room, len(bounds) - 0.5 + room)
    axes.set_xlabel(f"size of the fill ({quote})")


def _fit(labels: list[str], distance: float) -> bool:
    """Return whether labels this many points apart do not touch."""
    widths = [DIGIT * (len(label) - label.count(",") / 2 - label.count(".") / 2) for label in labels]
    return all((left + right) / 2 + DIGIT / 2 <= distance for left, right in pairwise(widths))


def _draw_band(axes: Axes, quartiles: pd.DataFrame, group: GroupStyle) -> None:
    places = np.arange(len(quartiles)) + (-0.04 if group.hatch is None else 0.04)
    low, middle, high = (quartiles[level].to_numpy() for level in QUARTILES)
    axes.fill_between(places, low, high, color=group.colour, alpha=0.15, linewidth=0)
    axes.vlines(places, low, high, color=group.colour, alpha=0.6, linewidth=1)
    axes.plot(places, middle, **group.line)
