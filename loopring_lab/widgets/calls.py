"""Calls of the library that a widget makes, and writes down for its user."""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Call", "Scene", "as_png"]

DPI = 150
"""Figures are 9 inches wide and shown at 900 pixels: sharp, and still on screens that zoom."""


class Call(NamedTuple):
    """A call of the library on trades, to be run and to be written.

    Parameters
    ----------
    name : str
        Such as ``fees.summary``.
    arguments : dict
        By name; those that are None are left to the library.
    """

    name: str
    arguments: Mapping[str, Any]

    def run(self, trades: pd.DataFrame) -> Any:
        """Call it.

        Parameters
        ----------
        trades : pandas.DataFrame
            First argument.

        Returns
        -------
        object
            What it returns.
        """
        module, name = self.name.split(".")
        return getattr(import_module(f"loopring_lab.{module}"), name)(trades, **self._given)

    def written(self, trades: str) -> str:
        """Write it.

        Parameters
        ----------
        trades : str
            Name of the trades.

        Returns
        -------
        str
            Python.

        Examples
        --------
        >>> Call("fees.summary", {"by": ["market"], "every": None}).written("trades")
        "lab.fees.summary(trades, by=['market'])"
        """
        given = [f"{name}={value!r}" for name, value in self._given.items()]
        return f"lab.{self.name}({', '.join([trades, *given])})"

    @property
    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in self.arguments.items() if value is not None}


class Scene(NamedTuple):
    """A figure that an explorer offers, and the table beside it.

    Parameters
    ----------
    label : str
        In words.
    table : str
        The function of the table, which takes ``by``.
    options : dict
        Arguments of the figure's function, by the choice they come from.
    shared : tuple of str
        Those of them that the table takes too.
    columns : tuple of str
        Columns of the table that are shown after those it is grouped by; all of them where empty.
    one_quote : bool
        Whether the figure is of one quote token, so that the table should be too.
    """

    label: str
    table: str
    options: Mapping[str, str]
    shared: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    one_quote: bool = False


def as_png(figure: Figure) -> bytes:
    """Draw a figure as a picture.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Its resolution is changed.

    Returns
    -------
    bytes
        PNG. The same pixels as ``savefig`` gives, which lays everything out twice.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    picture = io.BytesIO()
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    Image.fromarray(pixels).convert("RGB").save(picture, "png", compress_level=1)
    return picture.getvalue()
