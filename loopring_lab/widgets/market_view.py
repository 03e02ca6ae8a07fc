"""The view of the market explorer: a list, the market looked at, and what an amount would meet there."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w  # type: ignore[import-untyped]

from loopring_lab.amounts.readable import Shown
from loopring_lab.errors import LabError
from loopring_lab.widgets.limits import Finding
from loopring_lab.widgets.markets import Markets
from loopring_lab.widgets.parts import Panel, labelled, row, seen, table_html

__all__ = ["MarketView"]

KINDS = {"refused": "Refused", "fits": "Fits", "note": "Note"}


class MarketView(Panel):
    """The view of `Markets`.

    Parameters
    ----------
    state : Markets
        What is chosen and found.
    """

    state: Markets

    def __init__(self, state: Markets) -> None:
        super().__init__(state)
        self.list, self.limits, self.findings = w.HTML(), w.HTML(), w.HTML()
        self.market = labelled(w.Dropdown, "Market", options=[("none", "")])
        self.arrange([self._search()], [self.list, self._amount(), self.limits, self.findings])
        state.observe(lambda _: self.draw(), [*state.CHOICES, "version"])
        if state.is_read:
            self.draw()
        elif not state.doing:
            self.guard(state.read)

    def draw(self) -> None:
        """Draw what is chosen; say what is wrong where that cannot be done."""
        if self.state.is_read:
            self.guard(self._results)

    def _results(self) -> None:
        state = self.state
        self.offer(self.market, ("none", ""), state.names, state.market)
        found = len(state.tokens if state.listing == "tokens" else state.markets)
        words = f"{found:,} {state.listing} fit" if found else f"No {state.listing} fit: search for less"
        self.list.value = f'<span class="ll-quiet">{words}</span>' + table_html(state.shown) * bool(found)
        self.limits.value = self.findings.value = ""
        if state.market is not None:
            self.limits.value = "<p><b>Limits of an order</b></p>" + table_html(Shown(state.limits_shown, []))
        try:
            self.findings.value = "".join(map(_finding, state.findings))
        except LabError as error:  # beside the amount, not above the list
            self.findings.value = _finding(Finding("refused", str(error)))

    def _search(self) -> Any:
        listings = [("markets", "markets"), ("tokens", "tokens")]
        statuses = [("all", ""), ("pool open", "amm"), ("order book open", "orderbook")]
        statuses += [("both open", "both"), ("both closed", "closed")]
        search = labelled(w.Text, "Search", placeholder="such as LRC", continuous_update=True)
        status = labelled(w.Dropdown, "Status", options=statuses)
        self.state.observe(lambda _: seen(status, self.state.listing == "markets"), "listing")
        seen(status, self.state.listing == "markets")
        return row(
            self.tie("listing", labelled(w.Dropdown, "List", "150px", options=listings)),
            self.tie("search", search),
            self.tie("status", status),
        )

    def _amount(self) -> Any:
        sides = [("base token", "base"), ("quote token", "quote")]
        amount = labelled(w.Text, "Amount", placeholder="such as 12.5", continuous_update=True)
        return row(
            self.tie("market", self.market),
            self.tie("amount", amount),
            self.tie("of", labelled(w.Dropdown, "of the", "160px", options=sides)),
        )


def _finding(finding: Finding) -> str:
    words = f"<b>{KINDS[finding.kind]}.</b> {escape(finding.words)}"
    return f'<div role="status" class="ll-finding ll-{finding.kind}">{words}</div>'
