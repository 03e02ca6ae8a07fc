"""Figures of `research`, made as those of `loopring_lab.figures` are."""

from loopring_lab.research.figures.curve_figures import changes, cost_curves
from loopring_lab.research.figures.liquidity_figures import liquidity
from loopring_lab.research.figures.routing_figures import routing

__all__ = ["changes", "cost_curves", "liquidity", "routing"]


def __dir__() -> list[str]:
    return sorted(__all__)
