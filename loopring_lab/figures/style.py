"""What the figures have in common: style, looks of fill types, title, legend, mark, axes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import narwhals as nw
import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure as _Figure
from matplotlib.ticker import FuncFormatter

from loopring_lab.engines import convert
from loopring_lab.errors import LabError
from loopring_lab.figures.formatting import UNKNOWN, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


__all__ = [
    "COLOURS",
    "FILL_TYPES",
    "Figure",
    "Look",
    "bars",
    "by_quote",
    "in_percent",
    "in_words",
    "local",
    "picture",
    "with_types",
]

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
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Distinct for colour-blind readers, and dark enough for thin lines on white."""
QUIET, GREY = "#555555", "#8A8A8A"
MARK = "synthetic data"
ROOM_FOR_NOTE = 22.5
BAR = 0.92
"""Part of its column that a bar fills."""


class Look(NamedTuple):
    """How one group is drawn: never told apart by colour alone."""

    label: str
    colour: str
    hatch: str | None
    marker: str
    dash: Any

    @property
    def bar(self) -> dict[str, Any]:
        """Arguments of `Axes.bar`."""
        look = {"label": self.label, "facecolor": self.colour, "edgecolor": "white", "linewidth": 0}
        return look | ({"hatch": self.hatch} if self.hatch else {})

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        look = {"label": self.label, "color": self.colour, "marker": self.marker, "linestyle": self.dash}
        return look | {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.6}


FILL_TYPES: Mapping[str, Look] = {
    "amm": Look("AMM pool", COLOURS[0], None, "o", "-"),
    "dex": Look("order book", COLOURS[1], "///", "s", "--"),
    UNKNOWN: Look("type unknown", GREY, "...", "^", ":"),
}


class Figure(_Figure):
    """A matplotlib figure that a notebook shows without pyplot, the same bytes every time.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> figure = lab.figures.volume(lab.connect().trades(account_id=10083, limit=100))
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> figure.axes[0].get_ylabel()
    'notional (ETH)'
    """

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", metadata={"Software": None})
        return picture.getvalue()


@contextmanager
def picture(
    trades: Any, ax: Axes | None, title: str, note: str = "", *, legend: Mapping[str, Any] | None = None
) -> Iterator[Axes]:
    """Open the axes to draw on, and put title, legend and mark around what was drawn."""
    with rc_context(STYLE):
        axes = ax if ax is not None else Figure(figsize=(9, 4.2), dpi=100, layout="constrained").subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color=STYLE["grid.color"])
        axes.set_axisbelow(True)
        yield axes
        _head(axes, title, note)
        _legend(axes, legend or {})
        _mark(axes, trades)


def local(table: Any) -> pd.DataFrame:
    """Take a result of `fees` or `fills` as pandas, whichever engine gave it."""
    if isinstance(table, pd.DataFrame):
        return table
    opened = nw.from_native(table).lazy()
    columns = opened.collect_schema().names()  # Dask adds its index when it collects
    arrow = opened.collect("pyarrow").to_native().select(columns)
    return cast("pd.DataFrame", convert.to_native(pd.DataFrame(), convert.normalize(arrow)))


def by_quote(table: pd.DataFrame, quote: str | None, caller: str) -> tuple[pd.DataFrame, str]:
    """Take the rows of one quote token: amounts in different tokens are never compared."""
    counts = table.groupby("quote", observed=True)["fills"].sum()
    chosen = quote or (str(counts.idxmax()) if len(counts) else None)
    mine = table[table["quote"] == chosen]
    if mine.empty:
        hint = "Ask for other trades, or another quote=."
        raise LabError(f"{caller}: no trade quoted in {chosen or 'any token'} to draw. {hint}")
    return mine, str(chosen)


def with_types(table: pd.DataFrame) -> pd.DataFrame:
    """Name the unknown fill type, so that it is drawn too."""
    types = table["fill_type"].astype(object)
    return table.assign(fill_type=types.where(types.isin(list(FILL_TYPES)), UNKNOWN))


def bars(
    axes: Axes, left: np.ndarray, width: np.ndarray, parts: Iterable[tuple[dict[str, Any], Any]]
) -> None:
    """Stack bars."""
    bottom = np.zeros(len(left))
    for look, heights in parts:
        height = np.nan_to_num(np.asarray(heights, np.float64))
        axes.bar(left, height, width=width * BAR, bottom=bottom, align="edge", **({"linewidth": 0} | look))
        bottom += height
    axes.grid(visible=False, axis="x")


def in_words(axis: Axis) -> None:
    """Write the numbers of an axis out."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def in_percent(axes: Axes, of: str) -> None:
    """Make the vertical axis one of shares, 0 to 100 %."""
    axes.set_ylim(0, 100)
    axes.set_ylabel(f"share of {of} (%)")


def _head(axes: Axes, title: str, note: str) -> None:
    if not note:
        axes.set_title(title)
        return
    axes.set_title(title, pad=ROOM_FOR_NOTE)
    small_print = axes.annotate(
        note,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 7),
        textcoords="offset points",
        va="bottom",
        fontsize=10,
        color=QUIET,
    )
    small_print.set_in_layout(False)  # a long line must not make the axes narrow


def _legend(axes: Axes, how: Mapping[str, Any]) -> None:
    """Put the legend above the data's right end, where nothing is drawn."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.5, **how)


def _mark(axes: Axes, frame: Any) -> None:
    """Say in the figure's corner, once, that data is made up."""
    attrs = getattr(frame, "attrs", None)
    there = {text.get_text() for other in axes.figure.axes for text in other.texts}
    if isinstance(attrs, Mapping) and attrs.get("synthetic") and MARK not in there:
        mark = axes.annotate(
            MARK,
            (1, 0),
            xycoords="figure fraction",
            xytext=(-6, 4),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=9,
            color=QUIET,
        )
        mark.set_in_layout(False)  # it belongs to the figure: axes need not make room for it
