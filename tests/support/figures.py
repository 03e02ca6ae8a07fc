"""Inspect figures: the texts drawn and their boxes, and the numbers behind bars and lines."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

Box = Any
EXPONENT = re.compile(r"\d[eE][+-]?\d")


def rendered(figure: Figure) -> dict[Text, Box]:
    """Draw with Agg; give each visible text and its box in pixels, tick labels only where ticks are drawn."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    ticks = set(_all_tick_labels(figure))
    found = [text for text in figure.findobj(Text) if text not in ticks]
    texts = [*found, *_drawn_tick_labels(figure)]
    return {
        text: text.get_window_extent(renderer)
        for text in texts
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip()
    }


def _all_tick_labels(figure: Figure) -> Iterator[Text]:
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                yield from (tick.label1, tick.label2)


def _drawn_tick_labels(figure: Figure) -> Iterator[Text]:
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = (high - low) * 1e-9
            for place, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True):
                if low - slack <= place <= high + slack:
                    yield label


def overlapping(boxes: dict[Text, Box]) -> list[tuple[str, str]]:
    """Name the pairs of texts that touch."""
    pairs = combinations(boxes.items(), 2)
    return [(one.get_text(), two.get_text()) for (one, a), (two, b) in pairs if a.overlaps(b)]


def words(figure: Figure) -> list[str]:
    """Return every text that is drawn."""
    return [text.get_text() for text in rendered(figure)]


def stacks(figure: Figure) -> dict[str, list[float]]:
    """Return bars' heights by the label of their stack."""
    return {str(bars.get_label()): [bar.get_height() for bar in bars] for bars in figure.axes[0].containers}  # type: ignore[attr-defined]


def lines(figure: Figure) -> dict[str, tuple[list[float], list[float]]]:
    """Return the points of labelled lines."""
    drawn = [line for line in figure.axes[0].lines if not str(line.get_label()).startswith("_")]
    return {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in drawn}


def title(figure: Figure) -> str:
    return figure.axes[0].get_title(loc="left")


def note(figure: Figure) -> str:
    """Return the small print under the title, which may have a line of counts below it."""
    found = {text.get_position(): text for text in figure.axes[0].texts}
    texts = [found[place] for place in ((0, 7), (0, 21)) if place in found]
    return texts[0].get_text() if texts else ""
