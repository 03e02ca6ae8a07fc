"""How all figures look: colours, title, notes, legend, and what they are drawn of: bars, rows, estimates, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context, rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from loopring_lab.engine.ask import given
from loopring_lab.errors import LabError
from loopring_lab.figures.answers import interval_of
from loopring_lab.figures.marks import Figure, Mark, bar_marks
from loopring_lab.figures.words import UNKNOWN, format_count, format_number

# Read once, as matplotlib would read the file again for each figure.
STYLE: dict[Any, Any] = dict(
    rc_params_from_file(
        Path(__file__).with_name("loopring.mplstyle"), use_default_template=False
    )
)

# matplotlib has one style at a time for all threads, and widgets draw in several.
DRAWING = RLock()

# Distinct for colour-blind readers (M. Okabe, K. Ito: Color Universal Design), and dark enough for thin lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
# Colours of text on light and on dark bars. Unlike black and white, they stay what they are on a page of any theme.
INKS = ("#010101", "#FEFEFE")
# A middle grey reads on light and on dark paper.
GREY = "#8A8A8A"
# How much ink is mixed into the paper for notes and for the grid: #555555 and #DDDDDD where black is on white.
NOTE_STRENGTH = 2 / 3
# The contrast that text needs (WCAG 2.2, success criterion 1.4.3).
TEXT_CONTRAST = 4.5
GRID_STRENGTH = 2 / 15

SYNTHETIC = "synthetic data"

# Here and below, numbers without a named source are chosen by eye. This is the part of its column that a bar fills.
BAR_WIDTH = 0.92
POINTS_PER_INCH = 72
# Points between axes, or what stands above them, and the title; and of a line of notes, which are 10 points high.
TITLE_PAD = 8.5
NOTE_LINE = 14.0
# Inches: 900 by 420 pixels, about the width of a notebook's cell.
WIDTH = 9.0
HEIGHT = 4.2
# Inches of a figure around its rows, and of each row.
AROUND = 1.35
ROW = 0.34
# Rows that axes have at least on a page with others, where their height is given.
FEWEST_ROWS = 5
# Points between columns of text, and of an average letter and of a digit at their sizes, of DejaVu Sans, which
# matplotlib brings.
COLUMN_GAP = 12
LETTER = 6.3
DIGIT = 7.0
# Part of the width beside the legend that axes have once they are laid out, about.
AXES_WIDTH = 0.93
# Parts of the height of axes: for a line of counts, and beyond its edges for marks on them.
COUNT_HEIGHT = 0.065
EDGE = 0.03


def mixed(colour: str, added: str, strength: float) -> str:
    """Return a colour with a part of another one in it, from 0 to 1."""
    first = np.array(to_rgb(colour))
    second = np.array(to_rgb(added))
    return to_hex(first + strength * (second - first))


def ink(strength: float = 1.0) -> str:
    """Return the session's colour of text, mixed into its paper: legible in any style, dark ones too."""
    return mixed(rcParams["axes.facecolor"], rcParams["text.color"], strength)


def contrast(one: Any, other: Any) -> float:
    """Return how much lighter one of two colours is, from 1 to 21 (WCAG 2.2)."""
    lights = []
    for colour in (one, other):
        parts = np.array(to_rgb(colour))
        linear = np.where(
            parts <= 0.04045,
            parts / 12.92,
            ((parts + 0.055) / 1.055) ** 2.4,
        )
        lights.append(float(np.dot(linear, (0.2126, 0.7152, 0.0722))))
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def legible(colour: str) -> str:
    """Return a colour for text, with as much of the session's ink as that needs on its paper."""
    for strength in np.linspace(0, 1, 21):
        stronger = mixed(colour, ink(), strength)
        if contrast(stronger, rcParams["axes.facecolor"]) >= TEXT_CONTRAST:
            return stronger
    return ink()


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
        return {
            "label": self.label,
            "facecolor": self.face,
            "edgecolor": self.colour,
            "linewidth": width,
        }

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        return {
            "label": self.label,
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dash,
            "markersize": 6,
            "markeredgecolor": rcParams["axes.facecolor"],
            "markeredgewidth": 0.6,
        }

    @property
    def hollow(self) -> dict[str, Any]:
        """Arguments of `Axes.plot` for the mark of an estimate that is undecided, or has no interval."""
        return {
            "markerfacecolor": rcParams["axes.facecolor"],
            "markeredgecolor": self.colour,
        }


FILL_TYPES: Mapping[str, GroupStyle] = {
    "amm": GroupStyle(
        "AMM pool",
        COLOURS[0],
        COLOURS[0],
        "o",
        "-",
    ),
    "dex": GroupStyle("order book", COLOURS[1], "#F7C9A5", "s", "--"),
    UNKNOWN: GroupStyle("type unknown", GREY, "#E4E4E4", "^", ":"),
}
# Each verdict looks like the venue that is cheaper.
VERDICTS: Mapping[str, GroupStyle] = {
    "pool": FILL_TYPES["amm"],
    "book": FILL_TYPES["dex"],
    "undecided": FILL_TYPES[UNKNOWN]._replace(marker="D"),
}


@contextmanager
def drawing(
    trades: Any,
    ax: Axes | None,
    title: str,
    *notes: str,
    legend: Mapping[str, Any] | None = None,
    counts_above: bool = False,
    rows: int = 0,
) -> Iterator[Axes]:
    """Provide the axes to draw on, then add title and notes, the legend and the label of synthetic data.

    `counts_above` leaves a line above the axes; a figure of `rows` is as high as they need.
    """
    if not (ax is None or isinstance(ax, Axes)):
        raise LabError(
            f"lab.figures: ax= is {type(ax).__name__}, not matplotlib axes. Pass one Axes, such as "
            "figure.subplots() of a matplotlib figure returns, or leave out ax=."
        )
    small_print = [note for note in notes if note]
    with DRAWING, rc_context(STYLE):
        axes = ax or _new_axes(rows, "".join(notes).count("\n"))
        # Axes of somebody else were made in another style.
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color=ink(GRID_STRENGTH))
        axes.set_axisbelow(True)
        # Ticks are written without exponents, until a figure has dates or names there.
        axes.xaxis.set_major_formatter(_format_tick)
        axes.yaxis.set_major_formatter(_format_tick)
        if rows:
            # Row 0 is the highest; half a row and a little more is left at both ends.
            shown = max(rows, FEWEST_ROWS) if ax else rows
            axes.set_ylim(shown - 1 + 0.6, -0.6)
            axes.grid(visible=False, axis="y")
        yield axes
        _write_title(axes, title, small_print, counts_above)
        # In axes of somebody else, a name with two dollars would be mathematics.
        for text in [*axes.xaxis.findobj(Text), *axes.yaxis.findobj(Text)]:
            text.set_parse_math(False)
        if axes.get_legend_handles_labels()[0]:
            # The legend stands to the right of the axes, where nothing is drawn.
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **legend or {})
        _mark_synthetic(axes, trades)


def _new_axes(rows: int, more_notes: int) -> Axes:
    """Return the axes of a figure of ours, which is lower if it has few rows."""
    height = HEIGHT
    if rows:
        notes = more_notes * NOTE_LINE / POINTS_PER_INCH
        needed = AROUND + notes + ROW * max(rows, 2)
        # If there are more rows than fit, each row becomes lower instead.
        height = min(HEIGHT, round(needed, 2))
    # Inches between what is drawn and the edge of the figure.
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    return Figure(
        figsize=(WIDTH, height),
        dpi=100,
        layout=layout,
    ).subplots()


def _write_title(
    axes: Axes,
    title: str,
    notes: Sequence[str],
    counts_above: bool,
) -> None:
    """Write notes, the first lowest, and the title above: the upper ones may pass above what stands beside the axes."""
    height = NOTE_LINE if counts_above else 0.0
    for note in notes:
        _small_print(
            axes,
            note,
            (0, 1),
            (0, 7 + height),
            "axes fraction",
        )
        height += NOTE_LINE * (note.count("\n") + 1)
    # Without notes, matplotlib knows how far away a title stands.
    pad = TITLE_PAD + height if notes else None
    axes.set_title(title, y=1, pad=pad, parse_math=False)


def _mark_synthetic(axes: Axes, trades: Any) -> None:
    """Label synthetic data once, in the corner of the figure."""
    if not given(trades, "lab.figures").attrs.get("synthetic"):
        return
    for other in axes.figure.axes:
        if any(text.get_text() == SYNTHETIC for text in other.texts):
            return
    _small_print(
        axes,
        SYNTHETIC,
        (1, 0),
        (-6, 4),
        "figure fraction",
        ha="right",
        fontsize=9,
    )


def _small_print(
    axes: Axes,
    text: str,
    corner: Any,
    offset: Any,
    coordinates: str,
    **options: Any,
) -> None:
    """Write text that takes no room: a long note must not make the axes narrow."""
    write(
        axes,
        text,
        corner,
        offset,
        coordinates,
        va="bottom",
        color=ink(NOTE_STRENGTH),
        in_layout=False,
        **options,
    )


def write(
    axes: Axes,
    text: str,
    place: Any,
    offset: Any,
    coordinates: Any,
    **options: Any,
) -> None:
    """Write a text at an offset in points from its place."""
    axes.annotate(
        text,
        place,
        offset,
        coordinates,
        textcoords="offset points",
        **{"fontsize": 10} | options,
    )


def label_unknown_types(table: pd.DataFrame) -> pd.DataFrame:
    """Replace missing fill types by a label, so that they are drawn too; raise a LabError if there are others."""
    types = table["fill_type"].astype(object)
    others = set(types.dropna()) - {"amm", "dex"}
    if others:
        raise LabError(
            f"lab.figures: fill_type has {min(others)!r}. Write it as amm or dex, or null where it is unknown."
        )
    return table.assign(fill_type=types.fillna(UNKNOWN))


def zero_line() -> dict[str, Any]:
    """Return the style of a line at 0."""
    return {"color": ink(NOTE_STRENGTH), "linewidth": 0.8}


def verdict_marker(verdict: str) -> dict[str, Any]:
    """Return arguments of `Axes.plot` for an estimate: in the style of the cheaper venue, hollow where undecided."""
    group = VERDICTS[verdict]
    marker: dict[str, Any] = {
        "marker": group.marker,
        "markersize": 7,
        "color": group.colour,
    }
    return marker | group.hollow if verdict == "undecided" else marker


def draw_rows(
    axes: Axes,
    rows: pd.DataFrame,
    say: Callable[[dict[Any, Any]], str],
) -> list[Mark]:
    """Draw a row for each estimate with its verdict, the first of which, for all fills, stands apart."""
    axes.axvline(0, **zero_line())
    axes.axhline(0.5, **zero_line())
    axes.set_yticks(range(len(rows)), list(rows["group"]))
    marks = []
    for place, row in enumerate(rows.to_dict("records")):
        marker = verdict_marker(row["verdict"])
        axes.hlines(
            place,
            row["low"],
            row["high"],
            color=marker["color"],
            linewidth=1.6,
        )
        axes.plot(row["mean"], place, **marker)
        marks.append(Mark(say(row), interval_of(row), (place, place), "y"))
    return marks


def stacked_bars(
    axes: Axes,
    left: np.ndarray,
    width: np.ndarray,
    table: pd.DataFrame,
    styles: Mapping[str, Mapping[str, Any]],
    say: Callable[[dict[Any, Any]], str],
) -> list[Mark]:
    """Stack rows, each with a ``name``, ``place``, ``height`` and how many ``fills``: a stack for each style."""
    said = [
        f"{say(row)}\n{format_count(row['fills'])}" for row in table.to_dict("records")
    ]
    table = table.assign(text=said)
    marks: list[Mark] = []
    bottom = np.zeros(len(left))
    for name, options in styles.items():
        of_name = table[table["name"] == name].set_index("place")
        rows = of_name.reindex(range(len(left)))
        heights = rows["height"].fillna(0).to_numpy(np.float64)
        # A bar that has no height has no edge either.
        edges = np.where(heights > 0, options["linewidth"], 0)
        look = {**options, "linewidth": edges}
        bars = axes.bar(
            left,
            heights,
            width * BAR_WIDTH,
            bottom,
            align="edge",
            **look,
        )
        marks += bar_marks(bars, rows["text"])
        bottom += heights
    if bottom.any():
        axes.set_ylim(0, 1.05 * bottom.max())
    # Bars are told apart by their edges.
    axes.grid(visible=False, axis="x")
    return marks


def draw_estimates(
    axes: Axes,
    places: Any,
    rows: pd.DataFrame,
    group: GroupStyle,
    **line: Any,
) -> None:
    """Draw each ``mean``, joined by a line, with its interval from ``low`` to ``high``; hollow without one."""
    places = np.asarray(places, np.float64)
    numbers = rows[["mean", "low", "high"]].to_numpy(np.float64, na_value=np.nan)
    mean, low, high = numbers.T
    is_sure = ~np.isnan(low)
    # Callers may draw smaller marks.
    filled = group.line | line
    hollow = filled | group.hollow | {"linestyle": "none", "label": None}
    width = filled["markersize"] / 4
    axes.vlines(
        places[is_sure],
        low[is_sure],
        high[is_sure],
        color=group.colour,
        linewidth=width,
    )
    marks = axes.plot(places, mean, **filled)
    marks += axes.plot(
        places[~is_sure],
        mean[~is_sure],
        **hollow,
    )
    # Whole marks at the edges of the axes, but none beside what is zoomed.
    window = Rectangle(
        (0, -EDGE),
        1,
        1 + 2 * EDGE,
        transform=axes.transAxes,
    )
    for one in marks:
        one.set_clip_path(window)


def write_counts(
    axes: Axes,
    places: Any,
    counts: Any,
    colour: str,
    at: tuple[float, float],
    width: float = 1,
) -> None:
    """Write counts at a part of the axes' height and points above: as many as fit `width` apart."""
    texts = [f"{count:,}" for count in counts]
    # Where counts are too close, some are left out rather than all made small.
    step = every_nth(texts, width * column_width(axes))
    text_colour = legible(colour)
    pairs = list(zip(places, texts, strict=True))
    for place, text in pairs[::step]:
        write(
            axes,
            text,
            (place, at[0]),
            (0, at[1]),
            axes.get_xaxis_transform(),
            ha="center",
            va="center",
            fontsize=9,
            color=text_colour,
            annotation_clip=True,
            # It stands between points and title, which take that room.
            in_layout=False,
        )


def column_width(axes: Axes) -> float:
    """Return the width of a column in points."""
    low, high = axes.get_xlim()
    inches = AXES_WIDTH * axes.bbox.width / axes.figure.dpi
    return float(inches * POINTS_PER_INCH / (high - low))


def every_nth(labels: Sequence[str], distance: float) -> int:
    """Return how many labels this many points apart share one that is written, so that none touch."""
    # Commas and points are half as wide as digits; between two labels is room for one digit.
    widths = [
        DIGIT * (len(label) - (label.count(",") + label.count(".")) / 2)
        for label in labels
    ]
    step = 1
    while any(
        (left + right + DIGIT) / 2 > step * distance
        for left, right in pairwise(widths[::step])
    ):
        step += 1
    return step


def text_columns(axes: Axes, texts: pd.DataFrame) -> None:
    """Write columns of text to the right of the axes, a line for each row of a figure."""
    # Places are in points from the axes, as constrained layout moves their edge.
    right = 0.0
    for heading, column in texts.items():
        longest = max(map(len, [str(heading), *column]))
        right += COLUMN_GAP + LETTER * longest
        write(
            axes,
            str(heading),
            (1, 1),
            (right, 4),
            "axes fraction",
            ha="right",
            va="bottom",
            color=ink(NOTE_STRENGTH),
        )
        for place, text in enumerate(column):
            write(
                axes,
                text,
                (1, place),
                (right, 0),
                axes.get_yaxis_transform(),
                ha="right",
                va="center",
                annotation_clip=True,
            )


def percent_axis(axes: Axes) -> None:
    axes.set_ylim(0, 100)
    axes.set_ylabel("share of fills (%)")


def _format_tick(value: float, _: object) -> str:
    return format_number(value)
