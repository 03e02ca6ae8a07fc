"""Fills: AMM pool against order book, prices, orders. Trades in, a frame of the same kind out.

As in `fees`, amounts in different tokens are never added up, and every kind of frame gives the same numbers.
Start with `breakdown`, which is one short question. Others build on `sides` (takers, makers, each fill once), `orders`,
`sizes` and `prices` (the price to compare with). Which venue is cheaper: `comparison`, and `markouts` afterwards.
"""

from loopring_lab.fills.averages import vwap
from loopring_lab.fills.breakdown import breakdown
from loopring_lab.fills.comparison import compare_parts, compare_venues
from loopring_lab.fills.markouts import markouts, shortfall
from loopring_lab.fills.orders import orders
from loopring_lab.fills.prices import all_in_cost, price_gap
from loopring_lab.fills.sentences import describe
from loopring_lab.fills.sides import one_side, with_roles
from loopring_lab.fills.sizes import size_profile

__all__ = [
    "all_in_cost",
    "breakdown",
    "compare_parts",
    "compare_venues",
    "describe",
    "markouts",
    "one_side",
    "orders",
    "price_gap",
    "shortfall",
    "size_profile",
    "vwap",
    "with_roles",
]


def __dir__() -> list[str]:
    return sorted(__all__)
