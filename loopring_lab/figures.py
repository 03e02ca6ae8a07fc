"""Figures of trades; the first place where exact amounts become floats."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib import dates as mdates
from matplotlib import rc_context
from matplotlib.figure import Figure as _Figure
from matplotlib.ticker import FuncFormatter

from loopring_lab.amounts import to_float
from loopring_lab.errors import LabError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 13,
    "font.size": 11,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
}
FILL_TYPES: dict[str, dict[str, Any]] = {
    "amm": {"label": "AMM pool", "facecolor": "#0072B2", "edgecolor": "white"},
    "dex": {"label": "order book", "facecolor": "#D55E00", "edgecolor": "white", "hatch": "///"},
}
_PERIODS = [(45, "1D", "day"), (400, "7D", "week"), (1500, "30D", "30 days")]


class Figure(_Figure):
    """A matplotlib figure that a notebook shows without pyplot, the same bytes every time."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", metadata={"Software": None})
        return picture.getvalue()


def volume(trades: pd.DataFrame, *, quote: str | None = None, ax: Axes | None = None) -> _Figure:
    """Draw the volume traded over time, stacked by fill type.

    Parameters
    ----------
    trades : pandas.DataFrame
        From `Client.trades` or `tables.trades`. ``notional`` is summed exactly per day, week or 30 days,
        depending on the time covered.
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
    """
    drawn = trades.dropna(subset=["created_at", "notional", "fill_type"])
    chosen = quote or (drawn["quote"].value_counts().index[0] if len(drawn) else None)
    drawn = drawn[drawn["quote"] == chosen]
    if drawn.empty:
        hint = "Ask for other trades, or another quote=."
        raise LabError(f"volume: no trade quoted in {chosen or 'any token'} to draw. {hint}")
    step, name = _period(drawn["created_at"])
    sums = drawn.groupby([pd.Grouper(key="created_at", freq=step), "fill_type"], observed=False)[
        "notional"
    ].sum()
    heights = to_float(sums).unstack("fill_type")
    with rc_context(STYLE):
        axes = ax if ax is not None else Figure(figsize=(9, 4.2), dpi=100, layout="constrained").subplots()
        _stack(axes, heights, pd.Timedelta(step))
        left_out = f", {len(drawn):,} of {len(trades):,} trades" if len(drawn) < len(trades) else ""
        axes.set_title(f"Traded volume per {name}, {chosen}-quoted markets{left_out}")
        axes.set_ylabel(f"notional ({chosen})")
        _legend(axes)
        _mark(axes, trades)
    return axes.figure  # type: ignore[return-value]


def _period(moments: pd.Series) -> tuple[str, str]:
    days = (moments.max() - moments.min()).days
    return next(((step, name) for most, step, name in _PERIODS if days <= most), ("91D", "91 days"))


def _stack(axes: Axes, heights: pd.DataFrame, step: pd.Timedelta) -> None:
    left = mdates.date2num(pd.DatetimeIndex(heights.index).to_pydatetime())  # type: ignore[no-untyped-call]
    bottom = np.zeros(len(heights))
    for fill_type, look in FILL_TYPES.items():
        height = heights[fill_type].fillna(0).to_numpy() if fill_type in heights else bottom * 0
        axes.bar(
            left,
            height,
            width=step / pd.Timedelta("1D") * 0.92,
            bottom=bottom,
            align="edge",
            linewidth=0,
            **look,
        )
        bottom += height
    axes.grid(visible=False, axis="x")
    locator = mdates.AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time (UTC)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _legend(axes: Axes) -> None:
    """Put the legend above the data's right end, where nothing is drawn."""
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.5)


def _mark(axes: Axes, frame: pd.DataFrame) -> None:
    if frame.attrs.get("synthetic"):
        axes.annotate(
            "synthetic data",
            (1, 0),
            xycoords="figure fraction",
            xytext=(-6, 4),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=9,
            color="#555555",
        )
