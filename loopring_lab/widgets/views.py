"""The views of the explorers."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w  # type: ignore[import-untyped]
import pandas as pd

from loopring_lab.amounts.display import readable
from loopring_lab.errors import LabError
from loopring_lab.widgets.explorer import DECIMALS, NO_ACCOUNT, SPANS, Explorer
from loopring_lab.widgets.layout import (
    Panel,
    SecretField,
    Slot,
    grid,
    labelled,
    results,
    set_visible,
    table_html,
)
from loopring_lab.widgets.markets import Finding, MarketExplorer

LABELS = {"amm": "AMM pool", "dex": "order book", "fill_type": "fill type"}
PERIODS = {"1h": "hour", "6h": "6 hours", "1d": "day", "1w": "week", "1mo": "month", "1q": "quarter"}
OPTIONS = {"every": {"every"}, "tolerance": {"tolerance", "prices"}, "quote": {"quote_shown"}}
"""Attributes of the state that a figure must take for a control to be shown."""
OWN_DATES = "own dates"
GROUP_COLUMNS = ("market", "fill_type", "quote", "side", "role")
GROUPS = [(), *((column,) for column in GROUP_COLUMNS), ("market", "fill_type"), ("market", "side")]
NO_MATCH = "No matching {}; broaden the search"
FINDING_LABELS = {"refused": "Refused", "fits": "OK", "note": "Note"}


class TradesView(Panel):
    state: Explorer

    def __init__(self, state: Explorer) -> None:
        super().__init__(state)
        self.summary = w.HTML()
        self.figure = Slot("figure_view.FigureView")
        self._drawn: object = None
        self.table = Slot("table_view.TableView", precision=DECIMALS)
        self.key = SecretField("API key:", lambda key: self.guard(lambda: state.unlock(key)), "Read")
        controls = [grid(*self._filter_controls(), *self._figure_controls()), self.key]
        self.arrange(controls, [self.summary, results(self.figure, self.table)])
        redrawn_for = [name for name in state.trait_names() if name in (*state.CHOICES, "prices_read")]
        state.observe(lambda _: self.draw(), [*redrawn_for, "version", "doing"])
        state.observe(lambda _: set_visible(self.key, state.needs_key), "needs_key")
        set_visible(self.key, state.needs_key)
        self._read_or_draw()

    def draw(self) -> None:
        """Draw the selected trades, or show what is wrong."""
        self._update_names()
        used = self.state.figure_spec.options.values()
        for name, options in OPTIONS.items():
            if name in self.controls:
                set_visible(self.controls[name], not options.isdisjoint(used))
        for part in (self.summary, self.table, self.figure):
            set_visible(part, self.state.is_read)
        if self.state.is_read:
            self.summary.value = '<span role="status" class="ll-quiet">Drawing …</span>'
            self.guard(self._draw_results)
        elif self.state.client is not None and self.state.account is None:
            self.state.problem = NO_ACCOUNT

    def _draw_results(self) -> None:
        state = self.state
        try:
            if state.prepare():
                for part in (self.summary, self.table, self.figure):
                    set_visible(part, False)
                return
            self.table.show(state.shown, code=state.export())
            summary = escape(f"{state.figure_spec.label}, {state.summary}")
            self.summary.value = f'<span role="status" class="ll-quiet">{summary}</span>'
            if state.figure_key != self._drawn:
                self.figure.show(state.draw())
                self._drawn = state.figure_key
        except LabError:
            set_visible(self.figure, False)
            set_visible(self.table, state.is_chosen)
            set_visible(self.summary, state.is_chosen)
            raise

    def _read_or_draw(self) -> None:
        state = self.state
        if state.is_read or state.client is None or state.account is None:
            self.draw()
        elif not state.doing:
            self.guard(state.read)

    def _account_controls(self) -> list[Any]:
        if self.state.client is None:
            return []
        known = [str(account) for account in self.state.client.accounts or []]
        options: dict[str, Any] = {"options": known, "placeholder": "e.g. 10083, 11519"}
        account = labelled(w.Combobox, "Account", continuous_update=False, **options)
        self.read = w.Button(description="Read again", tooltip="Read the trades of the account again")
        self.read.on_click(lambda _: self.guard(self.state.read))
        return [self.bind("account", account), self.read]

    def _filter_controls(self) -> list[Any]:
        sides = [("buy and sell", ""), ("buy", "BUY"), ("sell", "SELL")]
        types = [("both", ""), (LABELS["amm"], "amm"), (LABELS["dex"], "dex")]
        roles = [("takers", "taker"), ("makers", "maker"), ("not known", "unknown"), ("all", "")]
        self.market = labelled(w.Dropdown, "Market", options=[("all markets", "")])
        self.period = labelled(w.Dropdown, "Period", options=["all"])
        self.period.observe(self._choose_period, "value")
        self.state.observe(lambda _: self._update_period(), ["since", "until"])
        return [
            *self._account_controls(),
            self.bind("market", self.market),
            self.bind("side", labelled(w.Dropdown, "Side", options=sides)),
            self.bind("fill_type", labelled(w.Dropdown, "Fills", options=types)),
            self.bind("role", labelled(w.Dropdown, "Role", options=roles)),
            self.period,
            self.bind("since", labelled(w.DatePicker, "From")),
            self.bind("until", labelled(w.DatePicker, "Before")),
        ]

    def _figure_controls(self) -> list[Any]:
        figures = [(spec.label, name) for name, spec in self.state.FIGURES.items()]
        periods = [("auto", ""), *((label, every) for every, label in PERIODS.items())]
        controls = [
            self.bind("figure", labelled(w.Dropdown, "Figure", options=figures)),
            self.bind("every", labelled(w.Dropdown, "Per", options=periods)),
            self.bind("by", labelled(w.Dropdown, "Table by", options=self._groups())),
        ]
        if "tolerance" in self.state.CHOICES:
            spans = [("a minute", "60s"), ("10 minutes", "10min"), ("an hour", "1h"), ("a day", "1d")]
            controls.append(self.bind("tolerance", labelled(w.Dropdown, "Prices within", options=spans)))
        if "quote" in self.state.CHOICES:
            quote = labelled(w.Dropdown, "Quoted in", options=[("most fills", "")])
            controls.append(self.bind("quote", quote))
        return controls

    def _choose_period(self, change: Any) -> None:
        def choose() -> None:
            self.state.until = None
            self.state.since = self.state.first_day(change["new"]) if change["new"] else None

        if not self._muted and change["new"] != OWN_DATES:
            self.guard(choose)

    def _update_period(self) -> None:
        """Offer periods up to the newest trade, and show which one the dates are."""
        state = self.state
        options = [("all", "")]
        if state.is_read and state.trades["created_at"].notna().any():
            newest = state.trades["created_at"].max()
            options += [(f"{span} to {newest.day} {newest:%b %Y}", span) for span in SPANS]
        dates = {state.first_day(span): span for _, span in options[1:]} | {None: ""}
        value = dates.get(state.since, OWN_DATES) if state.until is None else OWN_DATES
        with self.muted():
            self.period.options = [*options, ("own dates", OWN_DATES)] if value == OWN_DATES else options
            self.period.value = value

    def _groups(self) -> list[tuple[str, tuple[str, ...]]]:
        groups = [group for group in GROUPS if set(group) <= set(self.state.GROUPS)]
        labels = [" and ".join(LABELS.get(column, column) for column in group) for group in groups]
        return [(label or "No grouping", group) for label, group in zip(labels, groups, strict=True)]

    def _update_names(self) -> None:
        """Offer the markets, quote tokens and periods of the trades."""
        self._update_period()
        self.set_options(self.market, ("all markets", ""), self.state.markets, self.state.market)
        if "quote" in self.controls:
            control, selected = self.controls["quote"], self.state.quote
            self.set_options(control, ("most fills", ""), self.state.names("quote"), selected)


class MarketView(Panel):
    state: MarketExplorer

    def __init__(self, state: MarketExplorer) -> None:
        super().__init__(state)
        self.heading, self.limits, self.findings = w.HTML(), w.HTML(), w.HTML()
        self.list = Slot("table_view.TableView", choosing=True)
        self._listed: Any = None
        self.market = labelled(w.Dropdown, "Market", options=[("none", "")])
        checks = w.VBox([self._amount_controls(), self.limits, self.findings])
        self.arrange([self._search_controls()], [results(w.VBox([self.heading, self.list]), checks)])
        state.observe(lambda _: self.draw(), [*state.CHOICES, "version"])
        if state.is_read:
            self.draw()
        elif not state.doing:
            self.guard(state.read)

    def draw(self) -> None:
        """Draw the matching markets or tokens and the checks, or show what is wrong."""
        if self.state.is_read:
            self.guard(self._draw_results)

    def _draw_results(self) -> None:
        state = self.state
        self.set_options(self.market, ("none", ""), state.names, state.market)
        count = len(state.tokens if state.listing == "tokens" else state.markets)
        heading = "" if count else NO_MATCH.format(state.listing)
        self.heading.value = f'<span class="ll-quiet">{heading}</span>'
        set_visible(self.heading, count == 0)
        set_visible(self.list, count > 0)
        self._show_list()
        self.limits.value = self.findings.value = ""
        if state.market is not None:
            self.limits.value = "<p><b>Order limits</b></p>" + table_html(readable(state.limits_shown))
        try:
            self.findings.value = "".join(map(_finding, state.findings))
        except LabError as error:  # beside the amount, not above the list
            self.findings.value = _finding(Finding("refused", str(error)))

    def _show_list(self) -> None:
        """Show the list where it is another one, so that its order and place stay, and the market in it."""
        state, shown = self.state, self.state.shown
        if not shown.equals(self._listed):
            self._listed = shown
            self.list.show(shown)
            self.list.view.observe(self._choose_row, "chosen")
        row = shown.index.get_indexer(pd.Index([state.market]))[0] if state.listing == "markets" else -1
        self.list.view.chosen = int(row)

    def _choose_row(self, change: Any) -> None:
        state = self.state
        if state.listing == "markets" and change["new"] >= 0:
            self.guard(lambda: setattr(state, "market", str(state.shown.index[change["new"]])))

    def _search_controls(self) -> Any:
        listings = [("markets", "markets"), ("tokens", "tokens")]
        statuses = [("all", ""), ("pool open", "amm"), ("order book open", "orderbook")]
        statuses += [("both open", "both"), ("both closed", "closed")]
        search = labelled(w.Text, "Search", placeholder="e.g. LRC", continuous_update=True)
        status = labelled(w.Dropdown, "Status", options=statuses)
        self.state.observe(lambda _: set_visible(status, self.state.listing == "markets"), "listing")
        set_visible(status, self.state.listing == "markets")
        return grid(
            self.bind("listing", labelled(w.Dropdown, "List", options=listings)),
            self.bind("search", search),
            self.bind("status", status),
        )

    def _amount_controls(self) -> Any:
        sides = [("base token", "base"), ("quote token", "quote")]
        amount = labelled(w.Text, "Amount", placeholder="e.g. 12.5", continuous_update=True)
        return grid(
            self.bind("market", self.market),
            self.bind("amount", amount),
            self.bind("of", labelled(w.Dropdown, "of the", options=sides)),
        )


def _finding(finding: Finding) -> str:
    text = f"<b>{FINDING_LABELS[finding.kind]}.</b> {escape(finding.words)}"
    return f'<div role="status" class="ll-finding ll-{finding.kind}">{text}</div>'
