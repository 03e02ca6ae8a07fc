"""A figure to look into: matplotlib's own SVG, with hover, zoom and keys, in the colours of the page."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import anywidget
import numpy as np
import traitlets
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG

from loopring_lab.errors import LabError
from loopring_lab.figures import Figure
from loopring_lab.figures.style import STYLE
from loopring_lab.widgets.panel import CSS, FOLDER, PAGE_JS

SVG: dict[Any, Any] = STYLE | {
    "svg.hashsalt": "loopring-lab"
}  # the same ids in every run
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
THEME = {
    "#000000": "var(--ll-ink)",
    "#ffffff": "var(--ll-page)",
    "#555555": "var(--ll-note)",
    "#808080": "var(--ll-note)",
    "#dddddd": "var(--ll-grid)",
}
"""Colours of figures that follow the theme of the page, by `widgets.css`; all others read on any."""
CLOSEST = 1e-4  # part of the whole axis that a zoom shows at least: nearer, ticks run out of digits
SLACK = 1  # pixels by which marks may lie outside: half the width of a line


class Range(NamedTuple):
    """A part of an axis: what is at its left and right, or at its top and bottom."""

    start: float
    end: float

    def part(self, first: float, last: float) -> Range:
        """Return a part, given from 0 to 1."""
        length = self.end - self.start
        return Range(
            self.start + first * length,
            self.start + last * length,
        )

    def inside(self, whole: Range) -> Range:
        """Move it inside the whole axis, which may run downwards, and bound its length."""
        unit = whole.end - whole.start
        length = (self.end - self.start) / unit
        length = min(1.0, max(CLOSEST, length))
        first = (self.start - whole.start) / unit
        first = min(max(0.0, first), 1 - length)
        return whole.part(first, first + length)


class FigureView(anywidget.AnyWidget):
    """A figure of `lab.figures` to look into: values on hover, zoom, arrow keys, the theme's colours.

    Drag over a range to zoom, use the buttons, or the keys: arrows step through the values, ``+`` and ``-``
    zoom, Shift and an arrow move, ``0`` shows all. Zooming draws again with the right ticks; the figure
    itself stays as it was.

    Parameters
    ----------
    figure : Figure
        From a function of `lab.figures`, without ``ax=``.

    Raises
    ------
    LabError
        It is not such a figure.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> view = lab.look(lab.figures.volume(trades, quote="ETH"))
    >>> view
    FigureView: Traded volume per day, ETH-quoted markets, 46 of 100 trades
    >>> view.show(lab.figures.fee_tiers(trades))
    >>> view
    FigureView: Fills by fee tier, per day
    """

    _esm = PAGE_JS + (FOLDER / "figure_view.js").read_text(encoding="utf-8")
    _css = CSS
    svg = traitlets.Unicode().tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    marks: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    """Of each mark its panel, its edges as parts of the picture, and its text."""
    panels: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    """Of each panel its edges as parts of the picture, the direction of zooming, and whether it is zoomed."""

    def __init__(self, figure: Figure) -> None:
        super().__init__()
        # JupyterLab may handle two zooms on two threads, and matplotlib draws one figure at a time.
        self._lock = threading.RLock()
        self.show(figure)
        self.on_msg(self._receive)

    def __repr__(self) -> str:
        return f"FigureView: {self.label}"

    def show(self, figure: Figure) -> None:
        """Replace the figure; all of it is in view."""
        if not getattr(figure, "marks", None):
            raise LabError(
                f"FigureView: expected a figure of lab.figures, got {type(figure).__name__}. Draw it without "
                "ax=, such as lab.figures.volume(trades)."
            )
        with self._lock:
            self._figure = figure
            self._zoom: dict[int, Range] = {}
            layout = figure.get_layout_engine()
            # Once for each figure: a zoom must not move the axes under the pointer.
            if layout is not None:
                with rc_context(SVG):
                    layout.execute(figure)
            self._draw()

    def _repr_mimebundle_(
        self, **options: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        view, view_metadata = super()._repr_mimebundle_(**options) or ({}, {})
        # As the view is laid out, and whole, whatever is zoomed.
        with _zoomed(self._figure, {}):
            picture, metadata = self._figure._repr_mimebundle_()
        text = {"text/plain": repr(self)}
        return {**picture, **view, **text}, {
            **view_metadata,
            **metadata,
        }

    def _receive(self, _: object, content: Any, buffers: object) -> None:
        """Zoom one panel to a part of what it shows, given from 0 to 1, or all panels to all."""
        with self._lock:
            if content.get("zoom") is None:
                self._zoom = {}
            else:
                number, first, last = content["zoom"]
                whole = _limits(
                    self._figure.axes[number],
                    self._direction(number),
                )
                shown = self._zoom.get(number, whole)
                self._zoom[number] = shown.part(first, last).inside(whole)
            self._draw()

    def _draw(self) -> None:
        numbers = range(len(self._figure.axes))
        zoom = {
            (number, self._direction(number)): limits
            for number, limits in self._zoom.items()
        }
        with _zoomed(self._figure, zoom):
            svg = themed(_svg(self._figure))
            marks = list(self._marks())
            panels = [self._panel(number) for number in numbers]
        titles = [axes.get_title(loc="left") for axes in self._figure.axes]
        with self.hold_sync():
            self.svg = svg
            self.marks = marks
            self.panels = panels
            self.label = "; ".join(filter(None, titles))

    def _direction(self, number: int) -> str:
        """Return the direction in which a panel is zoomed: the one in which its marks are found."""
        for mark in self._figure.marks:
            if mark.axes == number:
                return mark.along
        return "x"

    def _panel(self, number: int) -> list[Any]:
        edges = self._parts(self._figure.axes[number].bbox.extents)
        return [
            *edges,
            self._direction(number),
            number in self._zoom,
        ]

    def _marks(self) -> Iterator[list[Any]]:
        """Give the marks in view, cut at the edges of their panel."""
        for mark in self._figure.marks:
            axes = self._figure.axes[mark.axes]
            ends = axes.transData.transform(np.transpose([mark.x, mark.y]))
            low = np.min(ends, axis=0)
            high = np.max(ends, axis=0)
            first = np.array(axes.bbox.min)
            last = np.array(axes.bbox.max)
            begins_before_end = np.all(low < last + SLACK)
            ends_after_begin = np.all(high > first - SLACK)
            if begins_before_end and ends_after_begin:
                edges = np.clip([low, high], first, last)
                yield [
                    mark.axes,
                    *self._parts(edges.ravel()),
                    mark.text,
                ]

    def _parts(self, extents: Any) -> list[float]:
        """Convert pixels from the lower left to parts of the picture from the upper left."""
        left, bottom, right, top = extents / np.tile(self._figure.bbox.size, 2)
        return [round(float(part), 5) for part in (left, 1 - top, right, 1 - bottom)]


def themed(svg: str) -> str:
    """Return the SVG element alone, without comments and style sheet, in the colours of the theme."""
    svg = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>",
        "",
        svg,
        flags=re.DOTALL,
    )
    # Before the element stands what only a file of its own needs.
    svg = svg[svg.index("<svg") :]
    return re.sub("|".join(THEME), lambda colour: THEME[colour[0]], svg)


@contextmanager
def _zoomed(figure: Figure, zoom: dict[tuple[int, str], Range]) -> Iterator[None]:
    """Show parts of a figure for a while, without laying it out again: nothing moves."""
    layout = figure.get_layout_engine()
    figure.set_layout_engine("none")
    with rc_context(SVG):
        whole = {}
        for (number, direction), limits in zoom.items():
            axes = figure.axes[number]
            whole[axes, direction] = _limits(axes, direction)
            _set_limits(axes, direction, limits)
        try:
            yield
        finally:
            for (axes, direction), limits in whole.items():
                _set_limits(axes, direction, limits)
            figure.set_layout_engine(layout)


def _svg(figure: Figure) -> str:
    """Draw without a background."""
    drawn = io.StringIO()
    dpi = figure.dpi
    papers = [
        figure.patch,
        *(axes.patch for axes in figure.axes),
    ]
    # The page has a background of its own, light or dark.
    for paper in papers:
        paper.set_visible(False)
    try:
        # `savefig` would draw everything twice.
        canvas = FigureCanvasSVG(figure)
        canvas.print_svg(drawn, metadata=NO_METADATA)  # type: ignore[no-untyped-call]
    finally:
        figure.dpi = dpi
        for paper in papers:
            paper.set_visible(True)
    return drawn.getvalue()


def _limits(axes: Axes, direction: str) -> Range:
    if direction == "x":
        return Range(*axes.get_xlim())
    bottom, top = axes.get_ylim()
    return Range(top, bottom)


def _set_limits(axes: Axes, direction: str, limits: Range) -> None:
    if direction == "x":
        axes.set_xlim(limits.start, limits.end)
    else:
        axes.set_ylim(limits.end, limits.start)
