"""The view of an explorer of trades: filters, a table and a figure that follow them."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w  # type: ignore[import-untyped]

from loopring_lab.errors import LabError
from loopring_lab.widgets.exploring import Explorer
from loopring_lab.widgets.parts import Panel, labelled, row, seen, table_html
from loopring_lab.widgets.secret import SecretField

__all__ = ["TradesView"]

WORDS = {"amm": "AMM pool", "dex": "order book", "fill_type": "fill type"}
PERIODS = {"1h": "hour", "6h": "6 hours", "1d": "day", "1w": "week", "1mo": "month", "1q": "quarter"}
GROUPS = [(), ("market",), ("fill_type",), ("quote",), ("side",), ("role",), ("market", "fill_type")]
GROUPS += [("market", "side")]


class TradesView(Panel):
    """The view of an `Explorer`.

    Parameters
    ----------
    state : Explorer
        What is chosen and computed.
    """

    state: Explorer

    def __init__(self, state: Explorer) -> None:
        super().__init__(state)
        self.summary, self.table = w.HTML(), w.HTML()
        self.figure = w.Image(format="png", layout=w.Layout(max_width="900px", width="calc(100% - 4px)"))
        self.key = SecretField("API key:", lambda key: self.guard(lambda: state.unlock(key)), "Read")
        self.arrange([self._filters(), self.key, self._scenes()], [self.summary, self.figure, self.table])
        drawn = [name for name in state.CHOICES if name != "account"]
        state.observe(lambda _: self.draw(), [*drawn, "version", "doing"])
        state.observe(lambda _: seen(self.key, state.needs_key), "needs_key")
        seen(self.key, state.needs_key)
        self._begin()

    def draw(self) -> None:
        """Draw what is chosen; say what is wrong where that cannot be done."""
        self._offer_names()
        for choice, option in (("every", "every"), ("tolerance", "tolerance"), ("quote", "quote_shown")):
            if choice in self.controls:
                seen(self.controls[choice], option in self.state.scene.options.values())
        ready = self.state.is_read
        for part in (self.summary, self.table, self.figure):
            seen(part, ready)
        if ready:
            self.summary.value = '<span role="status" class="ll-quiet">Drawing …</span>'
            self.guard(self._results)

    def _results(self) -> None:
        state = self.state
        try:
            self.table.value = table_html(state.shown)
            words = f"{state.scene.label}, {state.summary}"
            self.summary.value = f'<span role="status" class="ll-quiet">{escape(words)}</span>'
            self.figure.value = state.png()
        except LabError:
            seen(self.figure, False)
            chosen = state.is_chosen
            seen(self.table, chosen)
            seen(self.summary, chosen)
            raise

    def _begin(self) -> None:
        state = self.state
        if state.is_read or state.client is None or state.account is None:
            self.draw()
        elif not state.doing:
            self.guard(state.read)

    def _source(self) -> list[Any]:
        if self.state.client is None:
            return []
        known = [str(one) for one in self.state.client.accounts or []]
        account = labelled(w.Combobox, "Account", "170px", options=known, continuous_update=False)
        self.read = w.Button(description="Read again", tooltip="Read the account's trades once more")
        self.read.layout = w.Layout(width="110px", margin="2px 14px 2px 2px")
        self.read.on_click(lambda _: self.guard(self.state.read))
        return [self.tie("account", account), self.read]

    def _filters(self) -> Any:
        sides = [("buy and sell", ""), ("buy", "BUY"), ("sell", "SELL")]
        types = [("both", ""), (WORDS["amm"], "amm"), (WORDS["dex"], "dex")]
        self.market = labelled(w.Dropdown, "Market", "190px", options=[("all markets", "")])
        return row(
            *self._source(),
            self.tie("market", self.market),
            self.tie("side", labelled(w.Dropdown, "Side", "150px", options=sides)),
            self.tie("fill_type", labelled(w.Dropdown, "Fills", "160px", options=types)),
            self.tie("since", labelled(w.DatePicker, "From", "180px")),
            self.tie("until", labelled(w.DatePicker, "Before", "190px")),
        )

    def _scenes(self) -> Any:
        scenes = [(scene.label, name) for name, scene in self.state.SCENES.items()]
        periods = [("as it suits", ""), *((words, every) for every, words in PERIODS.items())]
        parts = [
            self.tie("figure", labelled(w.Dropdown, "Figure", options=scenes)),
            self.tie("every", labelled(w.Dropdown, "per", "150px", options=periods)),
            self.tie("by", labelled(w.Dropdown, "Table by", "220px", options=self._groups())),
        ]
        if "tolerance" in self.state.CHOICES:
            spans = [("a minute", "60s"), ("10 minutes", "10min"), ("an hour", "1h"), ("a day", "1d")]
            parts.append(self.tie("tolerance", labelled(w.Dropdown, "Prices within", "200px", options=spans)))
        if "quote" in self.state.CHOICES:
            quote = labelled(w.Dropdown, "Quoted in", "190px", options=[("most fills", "")])
            parts.append(self.tie("quote", quote))
        return row(*parts)

    def _groups(self) -> list[tuple[str, tuple[str, ...]]]:
        possible = [group for group in GROUPS if set(group) <= set(self.state.GROUPS)]
        return [
            (" and ".join(WORDS.get(one, one) for one in group) or "nothing", group) for group in possible
        ]

    def _offer_names(self) -> None:
        """List the markets and quote tokens of the trades, and the one chosen."""
        self.offer(self.market, ("all markets", ""), self.state.markets, self.state.market)
        if "quote" in self.controls:
            control, chosen = self.controls["quote"], getattr(self.state, "quote", None)
            self.offer(control, ("most fills", ""), self.state.names("quote"), chosen)
