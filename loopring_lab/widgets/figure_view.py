"""A figure to look into: matplotlib's own SVG, with hover, zoom and keys, in the colours of the page."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import anywidget
import numpy as np
import traitlets
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG

from loopring_lab.errors import LabError
from loopring_lab.figures import Figure
from loopring_lab.figures.style import DRAWING, STYLE
from loopring_lab.widgets.panel import CSS, script
from loopring_lab.widgets.static_copy import HasSavedCopy, SavedCopy

# The salt makes ids the same in every run.
SVG: dict[Any, Any] = STYLE | {"svg.hashsalt": "loopring-lab"}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
# Colours of figures that follow the theme of the page, by `widgets.css`; all others read on any.
THEME = {
    "#000000": "var(--ll-ink)",
    "#ffffff": "var(--ll-page)",
    "#555555": "var(--ll-note)",
    "#dddddd": "var(--ll-grid)",
    # The colours of pool and order book as text is drawn in them, which are too dark on a dark page.
    "#0072b2": "var(--ll-pool)",
    "#c05500": "var(--ll-book)",
}
# Part of the whole axis that a zoom shows at least: nearer, ticks run out of digits.
CLOSEST = 1e-4
WHOLE = (0.0, 1.0)
# Pixels by which marks may lie outside: half the width of a line, of 1.5 points at 100 pixels an inch.
SLACK = 1


class FigureView(HasSavedCopy, anywidget.AnyWidget):
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
    >>> view = lab.show(lab.figures.volume(trades, quote="ETH"), interactive=True)
    >>> view
    FigureView: Traded volume per day, ETH-quoted markets, 46 of 100 fills
    >>> view.show(lab.figures.fee_tiers(trades))
    >>> view
    FigureView: Fills by fee tier, per day
    """

    _esm = script("figure_view")
    _css = CSS
    # The content of the page. Edges are left, top, right and bottom, as parts of the picture.
    page: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)

    def __init__(self, figure: Figure) -> None:
        super().__init__()
        self._saved = SavedCopy("a figure", self, self.static_html)
        # JupyterLab may handle two zooms on two threads, and matplotlib draws one figure at a time.
        self._lock = threading.RLock()
        self.show(figure)
        self.on_msg(self._receive)

    def __repr__(self) -> str:
        return f"FigureView: {self.page['label']}"

    def show(self, figure: Figure) -> None:
        """Replace the figure; all of it is in view."""
        if not getattr(figure, "marks", None) or len(figure.axes) != 1:
            raise LabError(
                f"FigureView: expected a figure of lab.figures, got {type(figure).__name__}. Draw it without "
                "ax=, such as lab.figures.volume(trades)."
            )
        with self._lock:
            self._figure = figure
            self._part = WHOLE
            layout = figure.get_layout_engine()
            # The layout is made once for each figure: a zoom must not move the axes under the pointer.
            if layout is not None:
                with DRAWING, rc_context(SVG):
                    layout.execute(figure)
            self._draw()
        self._saved.refresh()

    def static_html(self) -> str:
        """Return the figure as a picture in HTML, for where no kernel runs."""
        # The picture is laid out as the view is, and it is whole, whatever is zoomed.
        with self._lock, _still(self._figure):
            bundle, metadata = self._figure._repr_mimebundle_()
        shown = metadata["image/png"]
        source = f"data:image/png;base64,{bundle['image/png']}"
        return f'<img alt="{escape(shown["alt"])}" width="{shown["width"]}" src="{source}">'

    def _receive(self, _: object, content: Any, buffers: object) -> None:
        """Zoom to a part of what is shown, from 0 to 1 from the left or the top, or to all."""
        with self._lock:
            part = content.get("zoom")
            if part is None:
                self._part = WHOLE
            else:
                begin, end = self._part
                length = end - begin
                first = begin + part[0] * length
                shown = (part[1] - part[0]) * length
                # The part is inside the whole, and neither longer than that nor too short.
                shown = min(1.0, max(CLOSEST, shown))
                first = min(max(0.0, first), 1 - shown)
                self._part = (first, first + shown)
            self._draw()

    def _draw(self) -> None:
        figure = self._figure
        axes = figure.axes[0]
        along = figure.marks[0].along
        with _still(figure), _zoomed(axes, along, self._part):
            svg = _themed_svg(figure)
            marks = self._marks(axes)
        self.page = {
            "svg": svg,
            # Each mark has its edges and its text.
            "marks": marks,
            # The edges of what is between the axes.
            "panel": self._parts(axes.bbox.extents).tolist(),
            # The axis that is zoomed, and along which marks are found: 0 is x, 1 is y.
            "axis": "xy".index(along),
            # Without a zoom there is nowhere to move to.
            "zoomed": self._part != WHOLE,
            "label": axes.get_title(loc="left"),
        }

    def _marks(self, axes: Axes) -> list[list[Any]]:
        """Return the marks in view, cut at the edges of the panel."""
        marks = self._figure.marks
        # Each mark has two ends, and each end has x and y.
        ends = np.array([np.transpose([mark.x, mark.y]) for mark in marks])
        pixels = axes.transData.transform(ends.reshape(-1, 2)).reshape(ends.shape)
        low = pixels.min(axis=1)
        high = pixels.max(axis=1)
        first = np.array(axes.bbox.min)
        last = np.array(axes.bbox.max)
        begins_before_end = (low < last + SLACK).all(axis=1)
        ends_after_begin = (high > first - SLACK).all(axis=1)
        lower = np.clip(low, first, last)
        upper = np.clip(high, first, last)
        edges = self._parts(np.hstack([lower, upper])).tolist()
        in_view = np.flatnonzero(begins_before_end & ends_after_begin)
        return [[*edges[n], marks[n].text] for n in in_view]

    def _parts(self, extents: Any) -> Any:
        """Convert left, lower, right and upper pixels to left, top, right and bottom, as parts of the picture."""
        left, bottom, right, top = np.moveaxis(extents, -1, 0)
        width, height = self._figure.bbox.size
        edges = [
            left / width,
            1 - top / height,
            right / width,
            1 - bottom / height,
        ]
        return np.round(np.stack(edges, axis=-1), 5)


@contextmanager
def _still(figure: Figure) -> Iterator[None]:
    """Draw a figure in our style without laying it out again: nothing moves."""
    layout = figure.get_layout_engine()
    figure.set_layout_engine("none")
    with DRAWING, rc_context(SVG):
        try:
            yield
        finally:
            figure.set_layout_engine(layout)


@contextmanager
def _zoomed(axes: Axes, along: str, part: tuple[float, float]) -> Iterator[None]:
    """Show a part of an axis for a while."""
    whole = getattr(axes, f"get_{along}lim")()
    first, last = part
    # The limits of the vertical axis are its lower end and its upper.
    if along == "y":
        first = 1 - part[1]
        last = 1 - part[0]
    length = whole[1] - whole[0]
    shown = (
        whole[0] + first * length,
        whole[0] + last * length,
    )
    try:
        axes.set(**{f"{along}lim": shown})
        yield
    finally:
        axes.set(**{f"{along}lim": whole})


def _themed_svg(figure: Figure) -> str:
    """Draw the SVG element alone, in the colours of the theme and without a background: the page has its own."""
    drawn = io.StringIO()
    dpi = figure.dpi
    papers = [figure.patch, figure.axes[0].patch]
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
    # Comments and the style sheet are left out, and so is what only a file of its own needs before the element.
    svg = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|^.*?(?=<svg)",
        "",
        drawn.getvalue(),
        flags=re.DOTALL,
    )
    return re.sub("|".join(THEME), lambda colour: THEME[colour[0]], svg)
