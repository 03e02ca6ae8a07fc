"""Figures of trades; the first place where exact amounts become floats.

Each takes trades of any engine, asks `fees` or `fills`, and draws the small table that comes back: on `ax`
where one is given, else on a `Figure` of its own, which keeps that table as `Figure.table`. Start with
`fill_figures.size_profile`, which is short: all have its steps, which are ask, choose, name, draw, and keep.
Modules called `…_figures` have a subject each; a new figure goes there, and `CONTRIBUTING.md` has the steps. What
they share: `overview` and `answers` (what is asked, and the table that comes back), `style` (colours, title, bars,
rows), `axis` (the periods and sizes below), `words` (numbers and names) and `marks` (what each bar or point says).
"""

from loopring_lab.figures.balance_figures import pool_balance
from loopring_lab.figures.cost_figures import (
    cost_curve,
    markouts,
    price_gaps,
    venue_differences,
)
from loopring_lab.figures.fee_figures import fee_rates, fee_tiers, fees_by_token
from loopring_lab.figures.fill_figures import fill_shares, size_profile, volume
from loopring_lab.figures.marks import Figure

__all__ = [
    "Figure",
    "cost_curve",
    "fee_rates",
    "fee_tiers",
    "fees_by_token",
    "fill_shares",
    "markouts",
    "pool_balance",
    "price_gaps",
    "size_profile",
    "venue_differences",
    "volume",
]


def __dir__() -> list[str]:
    return sorted(__all__)
