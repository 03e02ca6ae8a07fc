"""What all figures share: style, title, legend, axes, and how numbers and names are written."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NamedTuple, cast

import narwhals as nw
import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as _Figure
from matplotlib.ticker import FuncFormatter

from loopring_lab.amounts.display import format_amount, truncate
from loopring_lab.engines import convert
from loopring_lab.engines.aggregate import PairedFills
from loopring_lab.errors import LabError

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
NOTE_COLOUR, GREY = "#555555", "#8A8A8A"
SYNTHETIC = "synthetic data"
NOTE_PAD, NOTE_LINE = 22.5, 14.0
BAR_WIDTH = 0.92
"""Part of its column that a bar fills."""
COLUMN_GAP, LETTER = 12, 6.3
"""Points between columns of text, and the approximate width of a letter."""
UNKNOWN = "unknown"
LONGEST_LABEL = 20


class GroupStyle(NamedTuple):
    """How a group is drawn; groups never differ by colour alone."""

    label: str
    colour: str
    hatch: str | None
    marker: str
    dash: Any

    @property
    def bar(self) -> dict[str, Any]:
        """Arguments of `Axes.bar`."""
        style = {"label": self.label, "facecolor": self.colour, "hatch": self.hatch}
        return style | {"edgecolor": "white", "linewidth": 0}

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        style = {"label": self.label, "color": self.colour, "marker": self.marker, "linestyle": self.dash}
        return style | {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.6}


FILL_TYPES: Mapping[str, GroupStyle] = {
    "amm": GroupStyle("AMM pool", COLOURS[0], None, "o", "-"),
    "dex": GroupStyle("order book", COLOURS[1], "///", "s", "--"),
    UNKNOWN: GroupStyle("type unknown", GREY, "...", "^", ":"),
}


class Figure(_Figure):
    """A matplotlib figure that notebooks show without pyplot, with the same bytes every time.

    Examples
    --------
    >>> lab.figures.volume(client.trades(account_id=10083, limit=100))
    <Figure size 900x420 with 1 Axes>
    """

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png", metadata={"Software": None})
        return png.getvalue()


@contextmanager
def drawing(
    trades: Any,
    ax: Axes | None,
    title: str,
    note: str = "",
    *,
    legend: Mapping[str, Any] | None = None,
    takers_only: bool = False,
) -> Iterator[Axes]:
    """Provide the axes to draw on, then add the title, the legend and the label of synthetic data.

    Unless takers' sides only are drawn, a note says of how many fills both sides are.
    """
    both_sides = "" if takers_only else PairedFills(trades, "figures").note
    notes = [text for text in (note, both_sides) if text]
    with rc_context(STYLE):
        axes = ax if ax is not None else Figure(figsize=(9, 4.2), dpi=100, layout="constrained").subplots()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color=STYLE["grid.color"])
        axes.set_axisbelow(True)
        yield axes
        height = NOTE_LINE * sum(text.count("\n") + 1 for text in notes)
        axes.set_title(title, pad=NOTE_PAD - NOTE_LINE + height if notes else None)
        for text in reversed(notes):  # each on its own: the upper one may pass above what stands beside it
            height -= NOTE_LINE * (text.count("\n") + 1)
            _small_print(axes, text, (0, 1), "axes fraction", xytext=(0, 7 + height), fontsize=10)
        handles, labels = axes.get_legend_handles_labels()
        if handles:  # to the right of the axes, where nothing is drawn
            corner: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.5}
            axes.legend(handles, labels, **corner, **(legend or {}))
        _mark_synthetic(axes, trades)


def as_pandas(table: Any) -> pd.DataFrame:
    """Convert a result of `fees` or `fills` of any engine to pandas."""
    if isinstance(table, pd.DataFrame):
        return table
    opened = nw.from_native(table).lazy()
    columns = opened.collect_schema().names()  # Dask adds its index when it collects
    arrow = opened.collect("pyarrow").to_native().select(columns)
    return cast("pd.DataFrame", convert.to_native(pd.DataFrame(), convert.normalize(arrow)))


def select_quote(table: pd.DataFrame, quote: str | None, caller: str) -> tuple[pd.DataFrame, str]:
    """Select the rows of one quote token, by default the one with the most fills."""
    if not quote and table["quote"].notna().any():
        quote = str(table.groupby("quote", observed=True)["fills"].sum().idxmax())
    selected = table[table["quote"] == quote]
    if selected.empty:
        raise LabError(
            f"{caller}: no trade quoted in {quote or 'any token'} to draw. Pass other trades, or another "
            "quote=."
        )
    return selected, str(quote)


def label_unknown_types(table: pd.DataFrame) -> pd.DataFrame:
    """Replace missing fill types by a label, so that they are drawn too."""
    types = table["fill_type"].astype(object)
    return table.assign(fill_type=types.where(types.isin(list(FILL_TYPES)), UNKNOWN))


def stacked_bars(
    axes: Axes, left: np.ndarray, width: np.ndarray, parts: Iterable[tuple[dict[str, Any], Any]]
) -> None:
    bottom = np.zeros(len(left))
    for style, heights in parts:
        height = np.nan_to_num(np.asarray(heights, np.float64))
        box: dict[str, Any] = {"width": width * BAR_WIDTH, "bottom": bottom, "align": "edge", "linewidth": 0}
        axes.bar(left, height, **(box | style))
        bottom += height
    axes.grid(visible=False, axis="x")


def plain_numbers(axis: Axis) -> None:
    """Write the tick labels of an axis without exponents."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))


def percent_axis(axes: Axes, unit: str) -> None:
    axes.set_ylim(0, 100)
    axes.set_ylabel(f"share of {unit} (%)")


def format_number(value: float, digits: int = 10) -> str:
    """Write a number with thousands separators, without an exponent or trailing zeros."""
    whole = len(f"{abs(value):.0f}")
    return format_amount(Decimal(f"{value:.{max(digits, whole)}g}"))


def truncate_digits(amount: Decimal, digits: int) -> str:
    """Write an exact amount with this many significant digits; further ones are cut, never rounded."""
    shown = truncate(amount, max(0, digits - 1 - amount.adjusted()))
    return format_amount(amount) if shown == amount else f"{shown:,f}"


def group_label(value: Any) -> str:
    """Name a group by its value, shortened in the middle if it is long, such as a hash."""
    if isinstance(value, tuple):
        return ", ".join(group_label(part) for part in value)
    text = UNKNOWN if pd.isna(value) else str(value)
    return text if len(text) <= LONGEST_LABEL else f"{text[:8]}…{text[-4:]}"


def trade_count(drawn: float, total: float) -> str:
    """Say how many trades are drawn, such as ``12 of 50 trades``."""
    if drawn != total:
        return f"{int(drawn):,} of {int(total):,} trades"
    return f"all {int(total):,} trades" if total > 1 else "one trade"


def text_columns(axes: Axes, texts: pd.DataFrame) -> None:
    """Write columns of text to the right of the axes, a line for each row of a figure."""
    right = 0.0
    for heading, column in texts.items():
        right += COLUMN_GAP + LETTER * max(len(text) for text in [str(heading), *column])
        options: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": 10}
        top = {"va": "bottom", "color": NOTE_COLOUR} | options
        axes.annotate(str(heading), (1, 1), (right, 4), "axes fraction", **top)
        for place, text in enumerate(column):
            axes.annotate(text, (1, place), (right, 0), axes.get_yaxis_transform(), va="center", **options)


def _small_print(axes: Axes, text: str, corner: tuple[int, int], coordinates: str, **style: Any) -> None:
    """Write text that takes no room: a long note must not make the axes narrow."""
    options = {"textcoords": "offset points", "va": "bottom", "color": NOTE_COLOUR} | style
    axes.annotate(text, corner, xycoords=coordinates, **options).set_in_layout(False)


def _mark_synthetic(axes: Axes, trades: Any) -> None:
    """Label synthetic data once, in the corner of the figure."""
    attrs = getattr(trades, "attrs", None)
    texts = {text.get_text() for other in axes.figure.axes for text in other.texts}
    if isinstance(attrs, Mapping) and attrs.get("synthetic") and SYNTHETIC not in texts:
        _small_print(axes, SYNTHETIC, (1, 0), "figure fraction", xytext=(-6, 4), ha="right", fontsize=9)
