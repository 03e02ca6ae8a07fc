"""What all figures share: style, title, legend, axes, and how numbers and names are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context, rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter

from loopring_lab.amounts.display import format_amount, truncate
from loopring_lab.engine import frames
from loopring_lab.engine.query import collected
from loopring_lab.errors import LabError
from loopring_lab.figures.marks import Figure

# Read once, as matplotlib would read the file again for each figure.
STYLE: dict[Any, Any] = dict(
    rc_params_from_file(Path(__file__).with_name("loopring.mplstyle"), use_default_template=False)
)
# Distinct for colour-blind readers (M. Okabe, K. Ito: Color Universal Design), and dark enough for thin lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
# On light and on dark bars: unlike black and white, they stay what they are on a page of any theme.
INKS = ("#010101", "#FEFEFE")
# A middle grey reads on light and on dark paper.
GREY = "#8A8A8A"
# How much ink is mixed into the paper for notes and for the grid: #555555 and #DDDDDD where black is on white.
NOTE_STRENGTH = 2 / 3
GRID_STRENGTH = 2 / 15
UNKNOWN = "unknown"
SYNTHETIC = "synthetic data"
LONGEST_LABEL = 20
# Part of its column that a bar fills.
BAR_WIDTH = 0.92
POINTS_PER_INCH = 72
# Points between axes, or what stands above them, and the title; and of a line of notes.
TITLE_PAD = 8.5
NOTE_LINE = 14.0
# Inches of a figure, and of what is around its rows and of each row.
WIDTH = 9.0
HEIGHT = 4.2
AROUND = 1.35
ROW = 0.34
# Rows that axes have at least on a page with others.
FEWEST_ROWS = 5
# Points between columns of text, and of an average letter and of a digit at their sizes; of a comma, half as many.
COLUMN_GAP = 12
LETTER = 6.3
DIGIT = 7.0
# Part of the width beside the legend that axes have.
AXES_WIDTH = 0.93
# Parts of the height of axes: for a line of counts, and beyond its edges for marks on them.
COUNT_HEIGHT = 0.065
EDGE = 0.03


def ink(strength: float = 1.0) -> str:
    """Return the session's colour of text, mixed into its paper: legible in any style, dark ones too."""
    paper = np.array(to_rgb(rcParams["axes.facecolor"]))
    text = np.array(to_rgb(rcParams["text.color"]))
    return to_hex(paper + strength * (text - paper))


def line_colours() -> tuple[str, ...]:
    """Return five colours of lines, the last of them that of text."""
    return (*COLOURS, ink())


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
        # A face of another colour needs an edge to be told from the paper.
        width = 0 if self.face == self.colour else 0.7
        return {"label": self.label, "facecolor": self.face, "edgecolor": self.colour, "linewidth": width}

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        style = {"label": self.label, "color": self.colour, "marker": self.marker, "linestyle": self.dash}
        edge = {"markeredgecolor": rcParams["axes.facecolor"], "markeredgewidth": 0.6}
        return style | edge | {"markersize": 6}


FILL_TYPES: Mapping[str, GroupStyle] = {
    "amm": GroupStyle("AMM pool", COLOURS[0], COLOURS[0], "o", "-"),
    "dex": GroupStyle("order book", COLOURS[1], "#F7C9A5", "s", "--"),
    UNKNOWN: GroupStyle("type unknown", GREY, "#E4E4E4", "^", ":"),
}
BARS = {name: group.bar for name, group in FILL_TYPES.items()}


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
        axes.grid(visible=True, color=ink(GRID_STRENGTH))
        if rows:
            shown = rows if ax is None else max(rows, FEWEST_ROWS)
            axes.set_ylim(shown - 0.4, -0.6)
            axes.grid(visible=False, axis="y")
        axes.set_axisbelow(True)
        yield axes
        lines = [text.count("\n") + 1 for text in notes]
        height = NOTE_LINE * sum(lines)
        if counts_above:
            height += NOTE_LINE
        axes.set_title(title, y=1, pad=TITLE_PAD + height if notes else None)
        for text, count in zip(reversed(notes), reversed(lines), strict=True):
            # Each is written by itself: the upper one may pass above what stands beside it.
            height -= NOTE_LINE * count
            _small_print(axes, text, (0, 1), (0, 7 + height), "axes fraction")
        handles, labels = axes.get_legend_handles_labels()
        if handles:  # to the right of the axes, where nothing is drawn
            corner: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.5}
            axes.legend(handles, labels, **corner, **(legend or {}))
        _mark_synthetic(axes, trades)


def _new_axes(rows: int, more_notes: int) -> Axes:
    """Return the axes of a figure of ours, which is lower if it has few rows."""
    height = HEIGHT
    if rows:
        needed = AROUND + more_notes * NOTE_LINE / POINTS_PER_INCH + ROW * max(rows, 2)
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
            f"{caller}: no trade quoted in {quote or 'any token'} to draw. Pass other trades, or another quote=."
        )
    return selected, str(quote)


def label_unknown_types(table: pd.DataFrame) -> pd.DataFrame:
    """Replace missing fill types by a label, so that they are drawn too."""
    types = table["fill_type"].astype(object)
    return table.assign(fill_type=types.where(types.isin(list(FILL_TYPES)), UNKNOWN))


def stacked_bars(
    axes: Axes, left: np.ndarray, width: np.ndarray, heights: pd.DataFrame, styles: Mapping[str, Any]
) -> list[str]:
    """Draw the columns of heights, each in its style and in the order of these; return their names."""
    drawn = [name for name in styles if name in heights]
    bottom = np.zeros(len(left))
    for name in drawn:
        height = np.nan_to_num(heights[name].to_numpy(np.float64))
        bars = axes.bar(left, height, width * BAR_WIDTH, bottom, align="edge", **styles[name])
        for bar in bars:
            if not bar.get_height():
                bar.set_linewidth(0)  # nothing has no edge
        bottom += height
    if bottom.any():
        axes.set_ylim(0, 1.05 * bottom.max())
    axes.grid(visible=False, axis="x")
    return drawn


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
    places = np.asarray(places, np.float64)
    has_interval = ~np.isnan(low)
    filled = group.line | line
    hollow = filled | hollow_mark(group) | {"linestyle": "none", "label": None}
    width = filled["markersize"] / 4
    axes.vlines(places[has_interval], low[has_interval], high[has_interval], color=group.colour, linewidth=width)
    (all_marks,) = axes.plot(places, mean, **filled)
    (hollow_marks,) = axes.plot(places[~has_interval], mean[~has_interval], **hollow)
    for marks in (all_marks, hollow_marks):
        # Whole marks at the edges of the axes, but none beside what is zoomed.
        marks.set_clip_path(Rectangle((0, -EDGE), 1, 1 + 2 * EDGE, transform=axes.transAxes))


def hollow_mark(group: GroupStyle) -> dict[str, Any]:
    """Return arguments of `Axes.plot` for the mark of an estimate that is undecided, or has no interval."""
    return {"markerfacecolor": rcParams["axes.facecolor"], "markeredgecolor": group.colour}


def write_counts(axes: Axes, lines: Sequence[tuple[GroupStyle, Any, Any]]) -> None:
    """Write the number of fills of each point above all points, a line for each group."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, low + (high - low) / (1 - COUNT_HEIGHT * len(lines)))
    for line, (group, places, counts) in enumerate(lines):
        write_line(axes, places, counts, group.colour, (1 - COUNT_HEIGHT * (line + 0.5), 0))


def write_line(axes: Axes, places: Any, counts: Any, colour: str, at: tuple[float, float], width: float = 1) -> None:
    """Write counts at a part of the axes' height and points above: as many as fit `width` apart."""
    texts = [f"{count:,}" for count in counts]
    step = every_nth(texts, width * column_width(axes))
    for place, text in list(zip(places, texts, strict=True))[::step]:
        written = write(
            axes, text, (place, at[0]), (0, at[1]), axes.get_xaxis_transform(), ha="center", va="center",
            fontsize=9, color=colour, annotation_clip=True,
        )  # fmt: skip
        written.set_in_layout(False)  # it stands between points and title, which take that room


def column_width(axes: Axes) -> float:
    """Return the width of a column in points."""
    low, high = axes.get_xlim()
    return float(AXES_WIDTH * axes.bbox.width * POINTS_PER_INCH / axes.figure.dpi / (high - low))


def every_nth(labels: list[str], distance: float) -> int:
    """Return how many labels this many points apart share one that is written, so that none touch."""
    widths = [width_of_number(label) for label in labels]
    step = 1
    while any((left + right + DIGIT) / 2 > step * distance for left, right in pairwise(widths[::step])):
        step += 1
    return step


def width_of_number(text: str) -> float:
    """Return about how wide a number is written, in points."""
    narrow = text.count(",") + text.count(".")
    return DIGIT * (len(text) - narrow / 2)


def text_columns(axes: Axes, texts: pd.DataFrame) -> None:
    """Write columns of text to the right of the axes, a line for each row of a figure."""
    right = 0.0
    for heading, column in texts.items():
        right += COLUMN_GAP + LETTER * max(len(text) for text in [str(heading), *column])
        write(
            axes, str(heading), (1, 1), (right, 4), "axes fraction", ha="right", va="bottom", color=ink(NOTE_STRENGTH)
        )
        for place, text in enumerate(column):
            beside = axes.get_yaxis_transform()
            write(axes, text, (1, place), (right, 0), beside, ha="right", va="center", annotation_clip=True)


def write(
    axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float], coordinates: Any, **options: Any
) -> Annotation:
    """Write a text at an offset in points from its place."""
    options = {"fontsize": 10} | options
    return axes.annotate(text, place, offset, coordinates, textcoords="offset points", **options)


def _small_print(
    axes: Axes, text: str, corner: tuple[int, int], offset: tuple[float, float], coordinates: str, **options: Any
) -> None:
    """Write text that takes no room: a long note must not make the axes narrow."""
    written = write(axes, text, corner, offset, coordinates, va="bottom", color=ink(NOTE_STRENGTH), **options)
    written.set_in_layout(False)


def _mark_synthetic(axes: Axes, trades: Any) -> None:
    """Label synthetic data once, in the corner of the figure."""
    attrs = getattr(trades, "attrs", None)
    is_synthetic = isinstance(attrs, Mapping) and attrs.get("synthetic")
    texts = {text.get_text() for other in axes.figure.axes for text in other.texts}
    if is_synthetic and SYNTHETIC not in texts:
        _small_print(axes, SYNTHETIC, (1, 0), (-6, 4), "figure fraction", ha="right", fontsize=9)
