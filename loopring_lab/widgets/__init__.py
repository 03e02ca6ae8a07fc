"""Widgets for a notebook: explorers of markets, fees and fills, and a wizard for key updates.

A widget is its choices (`state`), its model, which is what follows from them (`explorer.Selection`, `markets.Lists`,
`key_update.KeyUpdateFlow`), and a view whose `draw` puts that on screen after each change (`views`, `wizard_view`, of
the parts in `panel`). `background` does the long work; `figure_view` and `table_view` are what `lab.show` gives
with ``interactive=True``. Start with `explorers`, then `explorer`.
"""

from __future__ import annotations

from loopring_lab.widgets.explorers import FeeExplorer, FillExplorer
from loopring_lab.widgets.key_update import KeyUpdateWizard
from loopring_lab.widgets.markets import Finding, MarketExplorer, check_amount

__all__ = [
    "FeeExplorer",
    "FillExplorer",
    "Finding",
    "KeyUpdateWizard",
    "MarketExplorer",
    "check_amount",
]


def __dir__() -> list[str]:
    return sorted(__all__)
