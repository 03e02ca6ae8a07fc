"""The explorers of fees and of fills, without a view: which figures they draw, and which tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from loopring_lab.widgets.calls import Scene
from loopring_lab.widgets.choices import Choice, columns, one_of, text
from loopring_lab.widgets.exploring import Explorer

__all__ = ["Fees", "Fills"]

SHOWN = ("fee_token", "fills", "fee", "bps", "median_bps", "zero_fee_share", "received", "unknown")

SIZES = ("quote", "quantile", "smallest", "largest", "fill_type", "fills", "share", "notional", "median_bps")


class Fees(Explorer):
    """An explorer of fees.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        As for `Explorer`.
    **choices
        As for `Explorer`.
    """

    SCENES: ClassVar[Mapping[str, Scene]] = {
        "fee_rates": Scene("Fee rate over time", "fees.summary", {"every": "every"}, columns=SHOWN),
        "fee_tiers": Scene("Fee tiers over time", "fees.summary", {"every": "every"}, columns=SHOWN),
        "fees_by_token": Scene("Fees by token", "fees.summary", {}, columns=SHOWN),
    }

    GROUPS: ClassVar[tuple[str, ...]] = ("market", "fill_type", "side", "role")

    figure = Choice(one_of(*SCENES), "fee_rates")
    by = Choice(columns(*GROUPS), ("market",))


class Fills(Explorer):
    """An explorer of fills: pool against order book.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        As for `Explorer`.
    **choices
        As for `Explorer`, and ``tolerance``.

    Attributes
    ----------
    tolerance : str
        How far off in time a price may be that another is compared with.
    quote : str or None
        The quote token of figures that are of one; None for the one with the most fills.
    """

    CHOICES: ClassVar[tuple[str, ...]] = (*Explorer.CHOICES, "tolerance", "quote")
    SCENES: ClassVar[Mapping[str, Scene]] = {
        "fill_shares": Scene("Share over time", "fills.breakdown", {"every": "every"}),
        "price_gaps": Scene("Price gap", "fills.price_gap", {"tolerance": "tolerance"}, ("tolerance",)),
        "size_profile": Scene(
            "Size profile", "fills.size_profile", {"quote": "quote_shown"}, columns=SIZES, one_quote=True
        ),
        "cost_curve": Scene(
            "Cost by size",
            "fills.all_in_cost",
            {"quote": "quote_shown", "tolerance": "tolerance"},
            ("tolerance",),
        ),
    }

    GROUPS: ClassVar[tuple[str, ...]] = ("market", "quote", "side")

    figure = Choice(one_of(*SCENES), "fill_shares")
    by = Choice(columns(*GROUPS), ())
    tolerance = Choice(one_of("60s", "10min", "1h", "1d"), "1h")
    quote = Choice(text)

    @property
    def quote_shown(self) -> str | None:
        """The quote token of what is on screen, where that is one."""
        return self.quote or super().quote_shown
