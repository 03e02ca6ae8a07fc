"""A figure to look into: matplotlib's own SVG, with hover, zoom and keys, in the colours of the page."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG

from loopring_lab.errors import LabError
from loopring_lab.figures import Figure
from loopring_lab.figures.style import STYLE

_FOLDER = Path(__file__).parent
SVG: dict[Any, Any] = STYLE | {"svg.hashsalt": "loopring-lab"}
NOTHING_ELSE = dict.fromkeys(("Creator", "Date", "Format", "Type"))
THEME = {
    "#000000": "var(--ll-ink)",
    "#ffffff": "var(--ll-page)",
    "#555555": "var(--ll-note)",
    "#808080": "var(--ll-note)",
    "#dddddd": "var(--ll-grid)",
}
"""Colours of figures that follow the theme of the page, by `figure_view.css`; all others read on any."""
CLOSEST, SLACK = 1e-4, 1
"""Part of the whole axis that a zoom shows at least; pixels by which marks may lie outside."""


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

    _esm = (_FOLDER / "figure_view.js").read_text()
    _css = (_FOLDER / "figure_view.css").read_text()
    svg = traitlets.Unicode().tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    marks: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    panels: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    """Panel, edges and text; edges, direction of zooming, whether zoomed. Edges are parts of the picture."""

    def __init__(self, figure: Figure) -> None:
        super().__init__()
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
            self._figure, self._zoom = figure, dict[int, tuple[float, float]]()
            engine = figure.get_layout_engine()
            if engine is not None:
                with rc_context(SVG):
                    engine.execute(figure)
            self._draw()

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = super()._repr_mimebundle_(**options) or ({}, {})
        with _zoomed(self._figure, {}):
            picture, width = self._figure._repr_mimebundle_()
        return {**picture, **data, "text/plain": repr(self)}, {**metadata, **width}

    def _receive(self, _: object, content: Any, buffers: object) -> None:
        """Zoom one panel to a part of what it shows, given from 0 to 1, or all panels to all."""
        with self._lock:
            if content.get("zoom") is None:
                self._zoom = {}
            else:
                number, *part = content["zoom"]
                axes = self._figure.axes[number]
                home = _limits(axes, self._direction(number))
                low, high = self._zoom.get(number, home)
                start, end = (low + (high - low) * float(share) for share in part)
                self._zoom[number] = _inside(start, end, home)
            self._draw()

    def _direction(self, number: int) -> str:
        """Return the direction in which a panel is zoomed: the one in which its marks are found."""
        return next((mark.along for mark in self._figure.marks if mark.axes == number), "x")

    def _draw(self) -> None:
        figure, numbers = self._figure, range(len(self._figure.axes))
        with _zoomed(figure, {(n, self._direction(n)): limits for n, limits in self._zoom.items()}):
            svg, marks, panels = themed(_svg(figure)), list(self._marks()), [self._panel(n) for n in numbers]
        titles = (axes.get_title(loc="left") for axes in figure.axes)
        label = "; ".join(title for title in titles if title)
        with self.hold_sync():
            self.svg, self.label, self.marks, self.panels = svg, label, marks, panels

    def _panel(self, number: int) -> list[Any]:
        edges = self._parts(self._figure.axes[number].bbox.extents)
        return [*edges, self._direction(number), number in self._zoom]

    def _marks(self) -> Iterator[list[Any]]:
        """Give the marks in view, cut at the edges of their panel."""
        for mark in self._figure.marks:
            axes = self._figure.axes[mark.axes]
            ends = axes.transData.transform(np.transpose([mark.x, mark.y]))
            low, high = np.min(ends, axis=0), np.max(ends, axis=0)
            first, last = np.array(axes.bbox.min), np.array(axes.bbox.max)
            if np.all(np.less(first - SLACK, high)) and np.all(np.less(low, last + SLACK)):
                yield [mark.axes, *self._parts(np.clip([low, high], first, last).ravel()), mark.text]

    def _parts(self, extents: Any) -> list[float]:
        """Convert pixels from the lower left to parts of the picture from the upper left."""
        left, bottom, right, top = extents / np.tile(self._figure.bbox.size, 2)
        return [round(float(part), 5) for part in (left, 1 - top, right, 1 - bottom)]


def themed(svg: str) -> str:
    """Return the SVG element alone, without comments and style sheet, in the colours of the theme."""
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg[svg.index("<svg") :]
    return re.sub("|".join(THEME), lambda colour: THEME[colour[0]], svg)


@contextmanager
def _zoomed(figure: Figure, zoom: dict[tuple[int, str], tuple[float, float]]) -> Iterator[None]:
    """Show parts of a figure for a while, without laying it out again: nothing moves."""
    engine = figure.get_layout_engine()
    figure.set_layout_engine("none")
    with rc_context(SVG):
        homes = {panel: _limits(figure.axes[panel[0]], panel[1]) for panel in zoom}
        for (number, direction), limits in zoom.items():
            _set_limits(figure.axes[number], direction, limits)
        try:
            yield
        finally:
            for (number, direction), limits in homes.items():
                _set_limits(figure.axes[number], direction, limits)
            figure.set_layout_engine(engine)


def _svg(figure: Figure) -> str:
    """Draw without a background. `savefig` would draw everything twice."""
    drawn, dpi, papers = io.StringIO(), figure.dpi, [figure.patch, *(axes.patch for axes in figure.axes)]
    for paper in papers:
        paper.set_visible(False)
    try:
        FigureCanvasSVG(figure).print_svg(drawn, metadata=NOTHING_ELSE)  # type: ignore[no-untyped-call]
    finally:
        figure.dpi = dpi
        for paper in papers:
            paper.set_visible(True)
    return drawn.getvalue()


def _limits(axes: Axes, direction: str) -> tuple[float, float]:
    """Return what is at the left and right, or at the top and bottom."""
    return axes.get_xlim() if direction == "x" else axes.get_ylim()[::-1]


def _set_limits(axes: Axes, direction: str, limits: tuple[float, float]) -> None:
    axes.set(xlim=limits) if direction == "x" else axes.set(ylim=limits[::-1])


def _inside(start: float, end: float, home: tuple[float, float]) -> tuple[float, float]:
    """Move a range inside the whole axis, which may run downwards, and bound its length."""
    whole = home[1] - home[0]
    length = min(1.0, max(CLOSEST, (end - start) / whole))
    first = min(max(0.0, (start - home[0]) / whole), 1 - length)
    return home[0] + first * whole, home[0] + (first + length) * whole
