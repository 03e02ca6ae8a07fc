"""A figure that keeps the table it draws and what each mark says, and its picture for notebooks."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, cast

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure as _Figure
from PIL import Image, ImageDraw

# Pixels of a picture per pixel of the page: sharp on screens of high density.
DENSITY = 2
# Colours of a picture: more are not seen.
PALETTE = 64
# Radius of its corners in pixels of the page, steps from clear to white there, and pixels in which each is drawn.
CORNER = 8
SMOOTH = 8
FINER = 4


class Mark(NamedTuple):
    """What is drawn somewhere, in words; its extent is in the units of its axes, and a point has none.

    `along` is the direction in which a pointer finds it, however far away it is in the other.
    """

    text: str
    x: tuple[float, float]
    y: tuple[float, float]
    along: Literal["x", "y"] = "x"


class Figure(_Figure):
    """A matplotlib figure that notebooks show without pyplot, with the same bytes every time.

    Parameters
    ----------
    *arguments, **options : object
        Those of `matplotlib.figure.Figure`.

    Attributes
    ----------
    table : pandas.DataFrame
        The table drawn last, with exact amounts; the columns are those of the function of `fees` or `fills`
        named in the docstring of the figure.
    marks : list of Mark
        What each bar, step or point drawn last says, with its unit and how many fills it rests on.

    Examples
    --------
    >>> figure = lab.figures.volume(client.trades(account_id=10083, limit=100))
    >>> figure
    <Figure size 900x420 with 1 Axes>
    >>> list(figure.table)
    ['period', 'quote', 'fill_type', 'fills', 'notional']
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.table = pd.DataFrame()
        self.marks: list[Mark] = []

    def _repr_png_(self) -> bytes:
        drawn = io.BytesIO()
        # The style's own paper; where that is clear, white.
        paper = self.get_facecolor()
        *_, opacity = to_rgba(paper)
        # A token may be called "$".
        with rc_context({"text.parse_math": False}):
            self.savefig(
                drawn,
                format="png",
                dpi=DENSITY * self.dpi,
                facecolor=paper if opacity else "white",
            )
        png = io.BytesIO()
        image, clear = _card(Image.open(drawn).convert("RGB"))
        image.save(png, format="png", optimize=True, transparency=clear)
        return png.getvalue()

    def _repr_mimebundle_(
        self,
        **options: Any,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        picture = base64.b64encode(self._repr_png_()).decode()
        # Screen readers read the titles of its panels.
        titles = [axes.get_title(loc="left") for axes in self.axes]
        alt = "; ".join(filter(None, titles)) or "Figure"
        # The page shows it at half its pixels.
        shown = {"width": round(self.bbox.width), "alt": alt}
        return {"text/plain": repr(self), "image/png": picture}, {"image/png": shown}


def keep(
    axes: Axes,
    table: pd.DataFrame,
    marks: Iterable[Mark],
) -> Figure:
    """Attach the table drawn and its marks to a figure of ours; return the figure of the axes."""
    figure = axes.figure
    if isinstance(figure, Figure):
        figure.table = table.reset_index(drop=True)
        figure.marks = list(marks)
    return cast("Figure", figure)


def bar_marks(
    bars: Iterable[Any],
    texts: Iterable[str],
) -> Iterator[Mark]:
    """Give a mark to each bar that has a height."""
    for bar, text in zip(bars, texts, strict=True):
        box = bar.get_bbox()
        if box.height:
            yield Mark(
                text,
                (box.xmin, box.xmax),
                (box.ymin, box.ymax),
            )


def _card(image: Image.Image) -> tuple[Image.Image, bytes]:
    """Reduce a picture to a palette, with round clear corners; return it and how clear each colour is.

    On white, because texts and thin lines in one ink do not read on a light and on a dark page.
    """
    paper = image.quantize(PALETTE, dither=Image.Dither.NONE)
    palette = paper.getpalette() or []
    colours = len(palette) // 3
    # After the colours of the picture comes white, in steps from clear to opaque.
    paper.putpalette([*palette, *[255] * (3 * SMOOTH)])
    shape = Image.new("L", (image.width * FINER, image.height * FINER))
    corners = (0, 0, shape.width - 1, shape.height - 1)
    ImageDraw.Draw(shape).rounded_rectangle(
        corners,
        FINER * DENSITY * CORNER,
        fill=255,
    )
    shades = shape.resize(image.size, Image.Resampling.BOX)
    steps = shades.point(lambda shade: colours + shade * SMOOTH // 255)
    is_edge = shades.point(lambda shade: 0 if shade == 255 else 255)
    paper.paste(steps, mask=is_edge)
    clear = [255 * step // SMOOTH for step in range(SMOOTH)]
    return paper, bytes([255] * colours + clear)
