"""Fills: AMM pool against order book, prices, orders. Trades in, a frame of the same kind out.

As in `fees`, amounts in different tokens are never added up, and every kind of frame gives the same numbers.
Start with `breakdown`, which is one short question. What others build on: `sides` (takers, makers, each fill once),
`orders`, `sizes`, `prices` (the price to compare with), `flow` (arbitrage or user). Which venue is cheaper:
`comparison`, whose estimates are in `estimands`, `changes` over time, `curves` by size (fitted in `curve_fit`),
`routing` at the pool's quote, `markouts` afterwards. What pools earn: `pools`, `liquidity`, `earnings`, `reserves`.
"""

from loopring_lab.fills.averages import vwap
from loopring_lab.fills.breakdown import breakdown
from loopring_lab.fills.changes import break_test, changes
from loopring_lab.fills.comparison import compare_venues
from loopring_lab.fills.curves import cost_curves, crossing
from loopring_lab.fills.flow import with_flow
from loopring_lab.fills.liquidity import liquidity
from loopring_lab.fills.markouts import markouts, shortfall
from loopring_lab.fills.orders import orders
from loopring_lab.fills.pools import pool_returns
from loopring_lab.fills.prices import all_in_cost, price_gap
from loopring_lab.fills.routing import pool_quotes
from loopring_lab.fills.sentences import describe
from loopring_lab.fills.sides import one_side, with_roles
from loopring_lab.fills.sizes import size_profile

__all__ = [
    "all_in_cost",
    "break_test",
    "breakdown",
    "changes",
    "compare_venues",
    "cost_curves",
    "crossing",
    "describe",
    "liquidity",
    "markouts",
    "one_side",
    "orders",
    "pool_quotes",
    "pool_returns",
    "price_gap",
    "shortfall",
    "size_profile",
    "vwap",
    "with_flow",
    "with_roles",
]


def __dir__() -> list[str]:
    return sorted(__all__)
