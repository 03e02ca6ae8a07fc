"""Widgets for a notebook: explorers of markets, fees and fills, and a wizard for key updates.

Each is a validated state that is usable from code, and a view of it that a notebook shows. Nothing of the
view is loaded before a widget is shown.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loopring_lab.widgets.explorers import FeesState, FillsState
from loopring_lab.widgets.key_update import KeyUpdateFlow
from loopring_lab.widgets.markets import Finding, MarketsState, check_amount

if TYPE_CHECKING:
    from loopring_lab.widgets.layout import Panel


__all__ = ["FeeExplorer", "FillExplorer", "Finding", "KeyUpdateWizard", "MarketExplorer", "check_amount"]


def __dir__() -> list[str]:
    return sorted(__all__)


class Displayed:
    """Mixin of a state that a notebook shows as a widget."""


class NotebookWidget:
    """Mixin that shows a state as a widget in a notebook."""

    ABOUT = ""
    VIEW = ""

    @cached_property
    def view(self) -> Panel:
        """The controls and results, created when first used."""
        views = import_module("loopring_lab.widgets.views")
        view: Panel = getattr(views, self.VIEW)(self)
        return view

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {self.ABOUT}. Run this cell in JupyterLab, or open the notebook with "
            "Voila, to use it."
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = self.view.box._repr_mimebundle_(**options)
        return bundle | {"text/plain": repr(self)}


class MarketExplorer(NotebookWidget, MarketsState):
    """Explore markets and tokens, and check an amount against the limits of its token.

    Parameters
    ----------
    client : Client
        From `connect`.
    **choices
        Initial values: ``listing`` ('markets' or 'tokens'), ``search``, ``status`` ('amm', 'orderbook',
        'both' or 'closed'), ``market``, ``of`` ('base' or 'quote') and ``amount``.

    Examples
    --------
    >>> explorer = lab.widgets.MarketExplorer(client, market="LRC-ETH", amount="0.5")
    >>> explorer.read()
    >>> explorer.wait()
    >>> print(explorer.findings[0].words)
    0.5 LRC is below the minimum of an order, 2 LRC. Give 2 LRC or more.
    """

    ABOUT = "markets and tokens, and the limits of orders"
    VIEW = "MarketView"


class FeeExplorer(NotebookWidget, FeesState):
    """Explore fees: how much was charged, in which markets, and at what rate.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, whose accounts are read one at a time, or trades.
    **choices
        Initial values: ``account`` (with a client), ``market``, ``side``, ``fill_type`` ('amm' or
        'dex'), ``since``, ``until`` (a day, exclusive), ``figure`` ('fee_rates', 'fee_tiers' or
        'fees_by_token'), ``every`` (such as '1d') and ``by`` ('market', 'fill_type', 'side', 'role').

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> explorer = lab.widgets.FeeExplorer(trades, figure="fee_tiers", every="1d")
    >>> print(explorer.export())
    chosen = trades
    table = lab.fees.summary(chosen, by=['market'])
    display(lab.show(table[...], precision=8, rows=24))
    lab.figures.fee_tiers(chosen, every='1d')
    """

    ABOUT = "fees by market, side, time and fill type, as a figure and a table"
    VIEW = "TradesView"


class FillExplorer(NotebookWidget, FillsState):
    """Explore fills: AMM pool against order book.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, whose accounts are read one at a time, or trades.
    **choices
        As for `FeeExplorer`, but ``figure`` is 'fill_shares', 'price_gaps', 'size_profile' or 'cost_curve',
        ``by`` is any of 'market', 'quote', 'side', ``tolerance`` ('60s', '10min', '1h', '1d') is the most
        time between two prices that are compared, and ``quote`` is the quote token of sizes.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> explorer = lab.widgets.FillExplorer(trades)
    >>> explorer.market = "lrc-eth"
    Traceback (most recent call last):
        ...
    loopring_lab.errors.LabError: market='lrc-eth' is not known. Did you mean 'LRC-ETH'?
    """

    ABOUT = "AMM pool against order book: shares, prices and sizes, as a figure and a table"
    VIEW = "TradesView"


class KeyUpdateWizard(NotebookWidget, KeyUpdateFlow):
    """Update the L2 key of an account, step by step: account, key, preview, sign, submit, follow.

    A typed signature, private key or key seed goes to the kernel as a message and is hidden there; it never
    becomes part of the widget's state, of the notebook file, or of an error.

    Parameters
    ----------
    client : Client
        From `connect`.
    counterfactual : Counterfactual or mapping, optional
        As for `KeyUpdate.prepare`: the wallet that owns the account, if it is not deployed yet.
    **choices
        Initial values: ``account``, ``fee_token``, ``max_fee``, ``valid_for`` (such as '30d') and
        ``way`` ('wallet' elsewhere, or 'key' for a private key typed here).

    Examples
    --------
    >>> wizard = lab.widgets.KeyUpdateWizard(client, account=10083)
    >>> wizard.next()
    >>> wizard.wait()
    >>> wizard.step
    'key'
    """

    ABOUT = "an update of an account's L2 key, step by step"
    VIEW = "WizardView"
