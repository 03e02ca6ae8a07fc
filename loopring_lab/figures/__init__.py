"""Figures of trades; the first place where exact amounts become floats.

Each takes trades of any engine, sums them up with `fees` and `fills`, and draws the small table that comes
back: on `ax` where one is given, else on a figure of its own, 900 by 420 pixels.
"""

from loopring_lab.figures.activity import fill_shares, volume
from loopring_lab.figures.canvas import Figure
from loopring_lab.figures.prices import price_gaps
from loopring_lab.figures.rates import fee_rates, fee_tiers
from loopring_lab.figures.sizes import cost_curve, size_profile
from loopring_lab.figures.tokens import fees_by_token

__all__ = [
    "Figure",
    "cost_curve",
    "fee_rates",
    "fee_tiers",
    "fees_by_token",
    "fill_shares",
    "price_gaps",
    "size_profile",
    "volume",
]
