"""Figures of fills: volume, shares of pool and order book, sizes, prices and costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import narwhals as nw
import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from loopring_lab import fills
from loopring_lab.amounts import to_float
from loopring_lab.engines import adapters
from loopring_lab.errors import LabError
from loopring_lab.figures import time_axis
from loopring_lab.figures.formatting import cut, number, of_all
from loopring_lab.figures.style import (
    BAR,
    FILL_TYPES,
    QUIET,
    Look,
    bars,
    by_quote,
    in_percent,
    in_words,
    local,
    picture,
    with_types,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


EQUAL = {"1w": (7, "week"), "1mo": (30, "30 days"), "1q": (91, "91 days")}
"""Lengths of bars in days, all alike so that heights compare."""


def volume(trades: Any, *, quote: str | None = None, ax: Axes | None = None) -> Figure:
    """Draw the volume traded over time, stacked by fill type.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`. ``notional`` is summed exactly per day,
        week, 30 or 91 days from the first day on, depending on the time covered.
    quote : str, optional
        The quote token to draw; amounts in different tokens are never added up. By default the one with the
        most trades; the title says which, and how many trades that leaves out.
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
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.volume(trades).axes[0].get_ylabel()
    'notional (ETH)'
    """
    complete, total = _complete(trades, ["created_at", "quote", "fill_type", "notional"], "volume")
    mine, chosen = by_quote(local(fills.breakdown(complete, "1d", "quote")), quote, "volume")
    days = mine["period"].dt.as_unit("ms")
    count, name = EQUAL.get(time_axis.suiting((days.max() - days.min()).days), (1, "day"))
    length = pd.Timedelta(days=count)
    mine = mine.assign(period=days.min() + (days - days.min()) // length * length)
    periods = time_axis.timeline(mine["period"], f"{count}d", "volume")
    heights = periods.spread(mine, "fill_type", "notional").reindex(columns=["amm", "dex"])
    left_out = "" if mine["fills"].sum() == total else f", {of_all(mine['fills'].sum(), total)}"
    with picture(trades, ax, f"Traded volume per {name}, {chosen}-quoted markets{left_out}") as axes:
        parts = [(FILL_TYPES[one].bar, heights[one]) for one in ("amm", "dex")]
        bars(axes, periods.left, periods.width, parts)
        time_axis.dates(axes, periods)
        axes.set_ylabel(f"notional ({chosen})")
    return cast("Figure", axes.figure)


def fill_shares(
    trades: Any,
    *,
    every: str | None = None,
    of: Literal["fills", "notional"] = "fills",
    quote: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the shares of pool and order book over time.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every : str, optional
        Length of a period, as for `fills.breakdown`; by default one that suits the time covered.
    of : {'fills', 'notional'}
        What is shared: the number of fills, or the amount traded in one quote token.
    quote : str, optional
        Only markets of this quote token; for notional by default the one with the most fills.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Bars of `fills.breakdown`, in percent; a period without fills stays empty.

    Raises
    ------
    LabError
        There is nothing to draw, or an argument is not usable.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.fill_shares(trades).axes[0].get_ylabel()
    'share of fills (%)'
    """
    caller = "fill_shares"
    if of not in ("fills", "notional"):
        raise LabError(f"{caller}: of={of!r} is not known. Give 'fills' or 'notional'.")
    every = every or time_axis.chosen(trades, caller)
    needed = ["created_at"] if of == "fills" else ["created_at", "quote", "notional"]
    complete, total = _complete(trades, needed, caller)
    table, where = with_types(local(fills.breakdown(complete, every, "quote"))), ""
    if of == "notional" or quote:
        table, chosen = by_quote(table, quote, caller)
        where = f", {chosen}-quoted markets"
    periods = time_axis.timeline(table["period"], every, caller)
    heights = periods.spread(table, "fill_type", of)
    shares = heights.div(heights.sum(axis=1), axis=0) * 100
    note = f"{of_all(table['fills'].sum(), total)}; over the whole time {_overall(heights)}"
    with picture(trades, ax, f"Share of {of} by fill type, per {periods.name}{where}", note) as axes:
        parts = [(look.bar, shares[one]) for one, look in FILL_TYPES.items() if one in shares]
        bars(axes, periods.left, periods.width, parts)
        time_axis.dates(axes, periods)
        in_percent(axes, of)
    return cast("Figure", axes.figure)


def _complete(trades: Any, columns: list[str], caller: str) -> tuple[Any, int]:
    """Leave out rows in which one of the columns is null; tell how many rows there were."""
    check = adapters.partitions if adapters.engine_of(trades) == "dask" else adapters.open_frame
    check(trades, columns, caller)
    table = nw.from_native(trades)
    known = table.filter(~nw.any_horizontal(*(nw.col(name).is_null() for name in columns), ignore_nulls=True))
    count = table.select(nw.len().alias("n")).lazy().collect("pyarrow").to_native()["n"][0].as_py()
    return known.to_native(), count


def _overall(heights: pd.DataFrame) -> str:
    parts = heights.sum() / heights.sum().sum() * 100
    return ", ".join(
        f"{look.label} {number(parts[one], 3)} %" for one, look in FILL_TYPES.items() if one in parts
    )


STEPS = (1, 2, 2.5, 5, 10)
LEAST_BINS, MOST_BINS = 10, 40
FENCE = 3


def price_gaps(trades: Any, *, tolerance: Any = "60s", ax: Axes | None = None) -> Figure:
    """Draw how much worse pool fills were priced than the order book's last ones, and the reverse.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`; several accounts put together give more pairs.
    tolerance : str or pandas.Timedelta, optional
        How old the other fill may be, as for `fills.price_gap`; None for any age.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Histograms of ``worse_bps`` of `fills.price_gap`, one upwards and one downwards, each in percent of
        its matched fills, with medians. Fills further out than three interquartile ranges are counted below
        the title.

    Raises
    ------
    LabError
        No fill has one of the other type before it, or an argument is not usable.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH")
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.price_gaps(trades, tolerance="12h").axes[0].get_ylabel()
    'share of matched fills (%)'
    """
    table = local(fills.price_gap(trades, tolerance))
    worse = {one: table.loc[table["fill_type"] == one, "worse_bps"] for one in ("amm", "dex")}
    matched = {
        one: column.dropna().to_numpy(np.float64) for one, column in worse.items() if column.notna().any()
    }
    if not matched:
        raise LabError(
            f"price_gaps: no fill has one of the other type within {tolerance} before it. Allow more, such "
            "as tolerance='1h', or put the trades of several accounts together."
        )
    edges = _edges(matched.values())
    outside = sum(int(((values < edges[0]) | (values > edges[-1])).sum()) for values in matched.values())
    note = f"{of_all(sum(map(len, matched.values())), len(table))} of known type matched"
    note += f"; {outside:,} lie outside this range" if outside else ""
    title = f"Price against the other fill type's last fill, {_age(tolerance)}"
    with picture(trades, ax, title, note) as axes:
        for direction, (one, values) in zip((1, -1), matched.items(), strict=False):
            lost = int(worse[one].isna().sum())
            label = f"{FILL_TYPES[one].label}:\n{len(values):,} matched,\n{lost:,} not"
            _histogram(axes, edges, values, FILL_TYPES[one]._replace(label=label), direction)
        axes.axhline(0, color=QUIET, linewidth=0.8)
        axes.axvline(0, color=QUIET, linewidth=0.8, linestyle=":")
        axes.set_xlabel("difference (basis points; right of 0: worse for the account)")
        axes.set_ylabel("share of matched fills (%)")
        in_words(axes.xaxis)
        axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    return cast("Figure", axes.figure)


def _age(tolerance: Any) -> str:
    if isinstance(tolerance, pd.Timedelta):
        tolerance = f"{number(tolerance.total_seconds())} s"
    return "of any age" if tolerance is None else f"at most {tolerance} old"


def _percent(value: float, _: int) -> str:
    return number(abs(value)) if abs(value) <= 100 else ""


def _edges(halves: Iterable[np.ndarray]) -> np.ndarray:
    """Cut the range that matters to either half, and 0, into round steps."""
    low, high, count = 0.0, 0.0, 0
    for values in halves:
        first, third = np.quantile(values, [0.25, 0.75])
        fence = FENCE * (third - first) or np.inf
        low, high = min(low, max(values.min(), first - fence)), max(high, min(values.max(), third + fence))
        count += len(values)
    rough = (high - low) / min(MOST_BINS, LEAST_BINS + count // 4) or 0.1
    tens = 10.0 ** math.floor(math.log10(rough))
    step = next(one * tens for one in STEPS if one * tens >= rough)
    first_step = math.floor(low / step)
    edges: np.ndarray = np.arange(first_step, max(first_step + 1, math.ceil(high / step)) + 1) * step
    return edges


def _histogram(axes: Axes, edges: np.ndarray, values: np.ndarray, look: Look, direction: int) -> None:
    """Draw one half of the figure, with the median as a line that stands out of the bars."""
    heights = np.histogram(values, edges)[0] / len(values) * 100
    axes.bar(edges[:-1], direction * heights, width=np.diff(edges), align="edge", **look.bar)
    middle, top = float(np.median(values)), direction * heights.max() * 1.15
    axes.plot([middle, middle], [0, top], color="black", linewidth=1.2, linestyle=look.dash)
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


LEAST_COLUMNS, ROOMY = 5, 3
ROOM, DIGIT, POINTS = 0.93, 7.0, 72
"""Part of the width that a legend leaves; points that a digit takes; points of an inch."""
QUARTILES = (0.25, 0.5, 0.75)
MOST_PARTS, LEAST_PARTS, PART = 10, 3, 40
"""Parts by size, and the fills with a cost that each of them should have."""


def size_profile(
    trades: Any, *, quantiles: int = 10, quote: str | None = None, ax: Axes | None = None
) -> Figure:
    """Draw the shares of pool and order book from the smallest fills to the largest.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    quantiles : int
        Number of parts of equally many fills, as for `fills.size_profile`.
    quote : str, optional
        The quote token that sizes are in; by default the one with the most fills. The title says which.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Stacked ``share`` of `fills.size_profile` in percent; between the bars the sizes that part
        them, cut and never rounded up.

    Raises
    ------
    LabError
        There is nothing to draw, or an argument is not usable.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.size_profile(trades).axes[0].get_xlabel()
    'size of the fill (ETH)'
    """
    table, chosen, total = _sized(trades, quantiles, quote, "size_profile")
    shares = with_types(table).groupby(["quantile", "fill_type"])["share"].sum().unstack() * 100
    title, note = f"Share of fills by size, {chosen}-quoted markets", of_all(table["fills"].sum(), total)
    note += f"; each bar about {table['fills'].sum() / len(shares):,.0f} fills" if len(shares) > 1 else ""
    with picture(trades, ax, title, note) as axes:
        parts = [(look.bar, shares[one]) for one, look in FILL_TYPES.items() if one in shares]
        places = np.arange(len(shares), dtype=np.float64)
        bars(axes, places - BAR / 2, np.ones(len(shares)), parts)
        _size_axis(axes, _bounds(table), chosen)
        in_percent(axes, "fills")
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
    """Draw what fills cost all in, fee plus price difference, from the smallest to the largest.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    reference : 'next', 'last', or frame of pandas, pyarrow or Polars
        The price to compare with, as for `fills.all_in_cost`: the market's next trade, its last one before,
        or given prices.
    tolerance : str or pandas.Timedelta, optional
        How far off in time the reference may be; None for any distance.
    quantiles : int, optional
        Number of parts of equally many fills, as for `fills.size_profile`; by default ten, or down
        to three wider ones where few fills have a cost, some forty for each part.
    quote : str, optional
        The quote token that sizes are in; by default the one with the most fills. The title says which.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        For each fill type the median of ``all_in_bps`` of `fills.all_in_cost` in the parts of
        `size_profile`, and a band from the first to the third quartile.

    Raises
    ------
    LabError
        There is nothing to draw, or an argument is not usable.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.cost_curve(trades).axes[0].get_ylabel()
    'all-in cost (basis points)'
    """
    caller = "cost_curve"
    _, chosen, total = _sized(trades, MOST_PARTS if quantiles is None else quantiles, quote, caller)
    costs = to_float(local(fills.all_in_cost(trades, reference, tolerance)))
    costs = with_types(costs[costs["quote"] == chosen].dropna(subset=["all_in_bps", "notional"]))
    if costs.empty:
        hint = "Allow more with tolerance=, or give prices with reference=."
        raise LabError(
            f"{caller}: no fill quoted in {chosen} has a reference price within {tolerance}. {hint}"
        )
    parts = min(MOST_PARTS, max(LEAST_PARTS, len(costs) // PART)) if quantiles is None else quantiles
    bounds = _bounds(_sized(trades, parts, chosen, caller)[0])
    part = np.searchsorted(to_float(bounds)["largest"].to_numpy(), costs["notional"].to_numpy())
    quartiles = costs.groupby(["fill_type", part])["all_in_bps"].quantile(np.array(QUARTILES)).unstack()
    against = f"the market's {reference} trade" if isinstance(reference, str) else "the reference"
    notes = f"fee plus price difference to {against}; line: median, band: middle half of the fills"
    title = f"All-in cost by size, {chosen}-quoted markets, {of_all(len(costs), total)}"
    with picture(trades, ax, title, notes) as axes:
        for one in (one for one in FILL_TYPES if one in quartiles.index):
            _band(axes, quartiles.loc[[one]].droplevel(0).reindex(range(len(bounds))), FILL_TYPES[one])
        axes.axhline(0, color=QUIET, linewidth=0.8)
        _size_axis(axes, bounds, chosen)
        in_words(axes.yaxis)
        axes.set_ylabel("all-in cost (basis points)")
    return cast("Figure", axes.figure)


def _sized(trades: Any, quantiles: int, quote: str | None, caller: str) -> tuple[pd.DataFrame, str, int]:
    """Take the parts by size of one quote token, and tell how many fills there are in all."""
    table = local(fills.size_profile(trades, quantiles))
    total = int(table["fills"].sum())
    mine, chosen = by_quote(table.dropna(subset=["quantile"]), quote, caller)
    return mine.astype({"quantile": int}), chosen, total


def _bounds(table: pd.DataFrame) -> pd.DataFrame:
    return table.groupby("quantile")[["smallest", "largest"]].first()


def _size_axis(axes: Axes, bounds: pd.DataFrame, quote: str) -> None:
    """Write the sizes that part the columns between them; a size that is the only one, below its column."""
    sizes = [bounds["smallest"].iloc[0], *bounds["largest"]]
    least = next(n for n in range(2, 18) if n == 17 or _distinct(sizes, n))
    short, long = ([cut(size, digits) for size in sizes] for digits in (least, max(least, ROOMY)))
    room = max(0.1, (LEAST_COLUMNS - len(bounds)) / 2)
    column = ROOM * axes.bbox.width * POINTS / axes.figure.dpi / (len(bounds) + 2 * room)
    labels = long if _apart(long, column) else short
    step = next(n for n in range(1, len(sizes) + 1) if _apart(labels[::n], n * column))
    axes.set_xticks(np.arange(0, len(sizes), step) - 0.5, labels[::step])
    if len(set(sizes)) == 1:
        axes.set_xticks([(len(bounds) - 1) / 2], labels[:1])
    axes.set_xlim(-0.5 - room, len(bounds) - 0.5 + room)
    axes.set_xlabel(f"size of the fill ({quote})")


def _apart(labels: list[str], distance: float) -> bool:
    """Tell whether labels so many points apart do not touch."""
    widths = [DIGIT * (len(label) - label.count(",") / 2 - label.count(".") / 2) for label in labels]
    return all((one + other) / 2 + DIGIT / 2 <= distance for one, other in pairwise(widths))


def _distinct(sizes: list[Decimal], digits: int) -> bool:
    return len({cut(size, digits) for size in sizes}) == len(set(sizes))


def _band(axes: Axes, quartiles: pd.DataFrame, look: Look) -> None:
    places = np.arange(len(quartiles)) + (-0.04 if look.hatch is None else 0.04)
    low, middle, high = (quartiles[level].to_numpy() for level in QUARTILES)
    axes.fill_between(places, low, high, color=look.colour, alpha=0.15, linewidth=0)
    axes.vlines(places, low, high, color=look.colour, alpha=0.6, linewidth=1)
    axes.plot(places, middle, **look.line)
