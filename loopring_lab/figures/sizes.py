"""Fills by size: where they go, and what they cost."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from loopring_lab import fills
from loopring_lab.amounts import to_float
from loopring_lab.errors import LabError
from loopring_lab.figures.canvas import (
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
from loopring_lab.figures.words import cut, of_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["cost_curve", "size_profile"]

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
    what = "cost_curve"
    _, chosen, total = _sized(trades, MOST_PARTS if quantiles is None else quantiles, quote, what)
    costs = to_float(local(fills.all_in_cost(trades, reference, tolerance)))
    costs = with_types(costs[costs["quote"] == chosen].dropna(subset=["all_in_bps", "notional"]))
    if costs.empty:
        hint = "Allow more with tolerance=, or give prices with reference=."
        raise LabError(f"{what}: no fill quoted in {chosen} has a reference price within {tolerance}. {hint}")
    parts = min(MOST_PARTS, max(LEAST_PARTS, len(costs) // PART)) if quantiles is None else quantiles
    bounds = _bounds(_sized(trades, parts, chosen, what)[0])
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


def _sized(trades: Any, quantiles: int, quote: str | None, what: str) -> tuple[pd.DataFrame, str, int]:
    """Take the parts by size of one quote token, and tell how many fills there are in all."""
    table = local(fills.size_profile(trades, quantiles))
    total = int(table["fills"].sum())
    mine, chosen = by_quote(table.dropna(subset=["quantile"]), quote, what)
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
