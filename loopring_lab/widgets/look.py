"""A figure or a table to look into, on request: saved notebooks show nothing of a widget without a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from loopring_lab.errors import LabError
from loopring_lab.figures import Figure

if TYPE_CHECKING:
    import anywidget


def look(
    thing: Figure | pd.DataFrame | pd.Series[Any],
) -> anywidget.AnyWidget:
    """Show a figure or a table to look into, with a static copy for readers without a kernel.

    A figure shows its values on hover, zooms, and follows the theme of the page; a table sorts, filters and
    is saved as CSV. Both answer to the keyboard.

    Parameters
    ----------
    thing : Figure, pandas.DataFrame or pandas.Series
        From a function of `lab.figures`, without ``ax=``, or any frame.

    Returns
    -------
    FigureView or TableView
        Replace what it shows with ``.show(other)``.

    Raises
    ------
    LabError
        It is neither a figure of `lab.figures` nor a pandas frame.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.look(lab.figures.volume(trades, quote="ETH"))
    FigureView: Traded volume per day, ETH-quoted markets, 46 of 100 trades
    """
    if isinstance(thing, Figure):
        from loopring_lab.widgets.figure_view import FigureView

        return FigureView(thing)
    if isinstance(thing, pd.DataFrame | pd.Series):
        from loopring_lab.widgets.table_view import TableView

        return TableView(thing)
    raise LabError(
        f"look: expected a figure of lab.figures or a pandas frame, got {type(thing).__name__}. Draw "
        "figures without ax=, and convert other frames with .to_pandas()."
    )
