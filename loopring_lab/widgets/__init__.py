"""Widgets for a notebook: explorers of markets, fees and fills, and a wizard for key updates.

Each works from code as well; its view is loaded only when it is shown.
"""

from __future__ import annotations

from loopring_lab.widgets.explorers import FeeExplorer, FillExplorer
from loopring_lab.widgets.key_update import KeyUpdateWizard
from loopring_lab.widgets.markets import Finding, MarketExplorer, check_amount

__all__ = ["FeeExplorer", "FillExplorer", "Finding", "KeyUpdateWizard", "MarketExplorer", "check_amount"]


def __dir__() -> list[str]:
    return sorted(__all__)
