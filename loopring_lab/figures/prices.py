"""What was paid: prices of pool and order book against each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from loopring_lab import fills
from loopring_lab.errors import LabError
from loopring_lab.figures.canvas import FILL_TYPES, QUIET, Look, in_words, local, picture
from loopring_lab.figures.words import number, of_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["price_gaps"]

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
