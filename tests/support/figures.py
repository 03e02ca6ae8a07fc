"""A gallery of every figure, and how to inspect one: its texts and their boxes, the numbers of bars and lines."""

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from loopring_lab import figures

Box = Any
Gallery = Callable[..., Any]
"""Gives a figure by its name in `GALLERY`, drawn once."""


class Kind(NamedTuple):
    """A way to draw trades, and what its axes are to say."""

    draw: Callable[..., Any]
    along: str
    up: str
    options: dict[str, Any] = {}  # noqa: RUF012

    def drawn(self, trades, **more):
        return self.draw(trades, **self.options, **more)


TIME = "time (UTC)"
RATE = "fee rate (basis points)"
SHARE = "share of fills (%)"
SIZE = "size of the fill (ETH)"
DIFFERENCE = "difference (basis points; right of 0: worse for the account)"
GALLERY = {
    "volume": Kind(figures.volume, TIME, "notional (ETH)"),
    "rates": Kind(figures.fee_rates, TIME, RATE),
    "rates by market": Kind(
        figures.fee_rates, TIME, RATE, {"by": "market", "every": "1mo"}
    ),
    "tiers": Kind(figures.fee_tiers, TIME, SHARE),
    "tiers by quarter": Kind(figures.fee_tiers, TIME, SHARE, {"every": "1q"}),
    "tokens": Kind(figures.fees_by_token, "number of fills", "fee token"),
    "tokens in ETH": Kind(
        figures.fees_by_token, "value (ETH)", "fee token", {"token": "ETH"}
    ),
    "shares": Kind(figures.fill_shares, TIME, SHARE),
    "gaps": Kind(
        figures.price_gaps,
        DIFFERENCE,
        "share of matched fills (%)",
        {"tolerance": None},
    ),
    "sizes": Kind(figures.size_profile, SIZE, SHARE),
    "costs": Kind(
        figures.cost_curve, SIZE, "all-in cost (basis points)", {"tolerance": None}
    ),
}


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


def _all_tick_labels(figure):
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                yield from (tick.label1, tick.label2)


def _drawn_tick_labels(figure):
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = (high - low) * 1e-9
            for place, label in zip(
                axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True
            ):
                if low - slack <= place <= high + slack:
                    yield label


def overlapping(boxes: dict[Text, Box]) -> list[tuple[str, str]]:
    """Name the pairs of texts that touch."""
    pairs = combinations(boxes.items(), 2)
    return [
        (one.get_text(), two.get_text())
        for (one, a), (two, b) in pairs
        if a.overlaps(b)
    ]


def words(figure: Figure) -> list[str]:
    """Return every text that is drawn."""
    return [text.get_text() for text in rendered(figure)]


def stacks(figure: Figure) -> dict[str, list[float]]:
    """Return bars' heights by the label of their stack."""
    return {
        str(bars.get_label()): [bar.get_height() for bar in bars]
        for bars in figure.axes[0].containers
    }  # type: ignore[attr-defined]


def lines(figure: Figure) -> dict[str, tuple[list[float], list[float]]]:
    """Return the points of labelled lines."""
    drawn = [
        line
        for line in figure.axes[0].lines
        if not str(line.get_label()).startswith("_")
    ]
    return {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))
        for line in drawn
    }


def title(figure: Figure) -> str:
    return figure.axes[0].get_title(loc="left")


def note(figure: Figure) -> str:
    """Return the small print under the title, which may have a line of counts below it."""
    found = {text.get_position(): text for text in figure.axes[0].texts}
    texts = [found[place] for place in ((0, 7), (0, 21)) if place in found]
    return texts[0].get_text() if texts else ""


def luminance(colour: Any) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Any, other: Any) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)
