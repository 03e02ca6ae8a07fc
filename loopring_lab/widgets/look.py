"""What `lab.show` gives with ``interactive=True``: a figure or a table to look into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from loopring_lab.errors import LabError
from loopring_lab.figures import Figure

if TYPE_CHECKING:
    import anywidget

    from loopring_lab.amounts.display import Precision


def look(thing: Any, precision: Precision | None) -> anywidget.AnyWidget:
    """Return the view of a figure or a frame, with a static copy for readers without a kernel."""
    if isinstance(thing, Figure):
        from loopring_lab.widgets.figure_view import FigureView

        return FigureView(thing)
    if isinstance(thing, pd.DataFrame | pd.Series):
        from loopring_lab.widgets.table_view import TableView

        return TableView(thing, precision=precision)
    raise LabError(
        f"show: expected a figure of lab.figures or a pandas frame, got {type(thing).__name__}. Draw "
        "figures without ax=, and convert other frames with .to_pandas()."
    )
