"""What all figures share: style, title, legend, axes, and how numbers and names are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from loopring_lab.amounts.display import format_amount, truncate
from loopring_lab.engine import frames
from loopring_lab.engine.query import collected
from loopring_lab.errors import LabError
from loopring_lab.figures.marks import Figure

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
    "text.parse_math": False,  # a token may be called "$"
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Distinct for colour-blind readers, and dark enough for thin lines on white."""
INKS = ("#010101", "#FEFEFE")
"""On light and on dark bars: unlike black and white, they stay what they are on a page of any theme."""
NOTE_COLOUR, GREY = "#555555", "#8A8A8A"
SYNTHETIC = "synthetic data"
NOTE_PAD, NOTE_LINE = 22.5, 14.0
BAR_WIDTH = 0.92
"""Part of its column that a bar fills."""
COLUMN_GAP, LETTER = 12, 6.3
"""Points between columns of text, and the approximate width of a letter."""
AXES_WIDTH, DIGIT, POINTS = 0.93, 7.0, 72
"""Part of the width beside the legend; width of a digit in points; points per inch."""
UNKNOWN = "unknown"
LONGEST_LABEL = 20
COUNT_HEIGHT, EDGE = 0.065, 0.03
"""Parts of the height of axes: for a line of counts, and beyond its edges for marks on them."""
WIDTH, HEIGHT, AROUND, ROW, FEWEST_ROWS = 9.0, 4.2, 1.35, 0.34, 5
"""Inches of a figure, and of what is around its rows and of each; rows that axes have at least elsewhere."""


class GroupStyle(NamedTuple):
    """How a group is drawn; groups never differ by colour alone."""

    label: str
    colour: str
    face: str
    marker: str
    dash: Any

    @property
    def bar(self) -> dict[str, Any]:
        """Arguments of `Axes.bar`."""
        return {
            "label": self.label,
            "facecolor": self.face,
            "edgecolor": self.colour,
            "linewidth": 0.7 * (self.face != self.colour),
        }

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        style = {"label": self.label, "color": self.colour, "marker": self.marker, "linestyle": self.dash}
        return style | {"markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.6}


FILL_TYPES: Mapping[str, GroupStyle] = {
    "amm": GroupStyle("AMM pool", COLOURS[0], COLOURS[0], "o", "-"),
    "dex": GroupStyle("order book", COLOURS[1], "#F7C9A5", "s", "--"),
    UNKNOWN: GroupStyle("type unknown", GREY, "#E4E4E4", "^", ":"),
}


@contextmanager
def drawing(
    trades: Any,
    ax: Axes | None,
    title: str,
    note: str = "",
    sides: str = "",
    *,
    legend: Mapping[str, Any] | None = None,
    counts_above: bool = False,
    rows: int = 0,
) -> Iterator[Axes]:
    """Provide the axes to draw on, then add the title, the legend and the label of synthetic data.

    `sides` is the note on fills counted twice; `counts_above` leaves a line above the axes; a figure of `rows`
    is as high as they need.
    """
    notes = [text for text in (note, sides) if text]
    with rc_context(STYLE):
        axes = _new_axes(rows, note.count("\n")) if ax is None else ax
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color=STYLE["grid.color"])
        if rows:
            shown = rows if ax is None else max(rows, FEWEST_ROWS)
            axes.set_ylim(shown - 0.4, -0.6)
            axes.grid(visible=False, axis="y")
        axes.set_axisbelow(True)
        yield axes
        height = NOTE_LINE * (sum(text.count("\n") + 1 for text in notes) + counts_above)
        axes.set_title(title, y=1, pad=NOTE_PAD - NOTE_LINE + height if notes else None)
        for text in reversed(notes):  # each on its own: the upper one may pass above what stands beside it
            height -= NOTE_LINE * (text.count("\n") + 1)
            _small_print(axes, text, (0, 1), "axes fraction", xytext=(0, 7 + height), fontsize=10)
        handles, labels = axes.get_legend_handles_labels()
        if handles:  # to the right of the axes, where nothing is drawn
            corner: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.5}
            axes.legend(handles, labels, **corner, **(legend or {}))
        _mark_synthetic(axes, trades)


def _new_axes(rows: int, more_notes: int) -> Axes:
    """Return the axes of a figure of ours, which is lower if it has few rows."""
    height = HEIGHT
    if rows:
        needed = AROUND + more_notes * NOTE_LINE / POINTS + ROW * max(rows, 2)
        height = min(HEIGHT, round(needed, 2))
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    return Figure(figsize=(WIDTH, height), dpi=100, layout=layout).subplots()


def as_pandas(table: Any) -> pd.DataFrame:
    """Convert an answer of `fees` or `fills` of any kind to pandas."""
    if isinstance(table, pd.DataFrame):
        return table
    return frames.to_pandas(collected(table, "lab.figures"))


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
        for bar in axes.bar(left, height, **(box | style)):
            bar.set_linewidth(bar.get_linewidth() * bool(bar.get_height()))  # nothing has no edge
        bottom += height
    if bottom.any():
        axes.set_ylim(0, 1.05 * bottom.max())
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


def format_count(count: Any, name: str = "fill") -> str:
    """Count things in words, such as ``1,200 fills``."""
    return f"{int(count):,} {name}{'' if count == 1 else 's'}"


def format_bps(rate: Any) -> str:
    """Write a rate in basis points with two decimal places."""
    return f"{round(float(rate), 2) + 0.0:,.2f} bps"


def format_estimate(estimate: Any, low: Any, high: Any) -> str:
    """Write an estimate in basis points with its 95 % interval, if it has one."""
    if pd.isna(low):
        return f"{format_bps(estimate)}, no interval"
    return f"{format_bps(estimate)} (95 %: {format_bps(low)} to {format_bps(high)})"


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


def draw_estimates(
    axes: Axes, places: Any, rows: pd.DataFrame, names: Sequence[str], group: GroupStyle, **line: Any
) -> None:
    """Draw means joined by a line, each with its interval; those without one are hollow."""
    mean, low, high = (rows[name].to_numpy(np.float64, na_value=np.nan) for name in names)
    places, hollow = np.asarray(places, np.float64), np.isnan(low)
    line = group.line | line
    ends: dict[str, Any] = {"color": group.colour, "linewidth": line["markersize"] / 4}
    axes.vlines(places[~hollow], low[~hollow], high[~hollow], **ends)
    marks = {"linestyle": "none", "markerfacecolor": "white", "markeredgecolor": group.colour, "label": None}
    drawn = [axes.plot(places, mean, **line), axes.plot(places[hollow], mean[hollow], **line | marks)]
    for (one,) in drawn:  # whole marks at the lower and upper edge, but none beside what is zoomed
        one.set_clip_path(Rectangle((0, -EDGE), 1, 1 + 2 * EDGE, transform=axes.transAxes))


def write_counts(axes: Axes, lines: Sequence[tuple[GroupStyle, Any, Any]]) -> None:
    """Write the number of fills of each point above all points, a line for each group."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, low + (high - low) / (1 - COUNT_HEIGHT * len(lines)))
    for line, (group, places, counts) in enumerate(lines):
        write_line(axes, places, counts, group.colour, (1 - COUNT_HEIGHT * (line + 0.5), 0))


def write_line(
    axes: Axes, places: Any, counts: Any, colour: str, at: tuple[float, float], width: float = 1
) -> None:
    """Write counts at a part of the axes' height and points above: as many as fit `width` apart."""
    texts = [f"{count:,}" for count in counts]
    step = label_step(texts, width * column_width(axes))
    options: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "color": colour}
    options |= {"textcoords": "offset points", "annotation_clip": True}
    for place, text in zip(list(places)[::step], texts[::step], strict=True):
        written = axes.annotate(text, (place, at[0]), (0, at[1]), axes.get_xaxis_transform(), **options)
        written.set_in_layout(False)  # it stands between points and title, which take that room


def column_width(axes: Axes) -> float:
    """Return the width of a column in points."""
    low, high = axes.get_xlim()
    return float(AXES_WIDTH * axes.bbox.width * POINTS / axes.figure.dpi / (high - low))


def label_step(labels: list[str], distance: float) -> int:
    """Return how many labels this many points apart share one that is written, so that none touch."""
    return next(n for n in range(1, len(labels) + 1) if fit(labels[::n], n * distance))


def fit(labels: list[str], distance: float) -> bool:
    """Return whether labels this many points apart do not touch."""
    widths = [DIGIT * (len(label) - label.count(",") / 2 - label.count(".") / 2) for label in labels]
    return all((left + right) / 2 + DIGIT / 2 <= distance for left, right in pairwise(widths))


def text_columns(axes: Axes, texts: pd.DataFrame) -> None:
    """Write columns of text to the right of the axes, a line for each row of a figure."""
    right = 0.0
    for heading, column in texts.items():
        right += COLUMN_GAP + LETTER * max(len(text) for text in [str(heading), *column])
        options: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": 10}
        top = {"va": "bottom", "color": NOTE_COLOUR} | options
        axes.annotate(str(heading), (1, 1), (right, 4), "axes fraction", **top)
        for place, text in enumerate(column):
            beside: dict[str, Any] = {"va": "center", "annotation_clip": True} | options
            axes.annotate(text, (1, place), (right, 0), axes.get_yaxis_transform(), **beside)


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
