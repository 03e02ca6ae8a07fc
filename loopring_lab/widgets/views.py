"""The views of the explorers."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets as w  # type: ignore[import-untyped]
import pandas as pd

from loopring_lab.amounts.display import readable
from loopring_lab.errors import LabError
from loopring_lab.widgets.explorer import DECIMALS, NO_ACCOUNT, SPANS, Selection
from loopring_lab.widgets.markets import Finding, Lists
from loopring_lab.widgets.panel import (
    Panel,
    SecretField,
    button,
    grid,
    labelled,
    results,
    set_visible,
    table_html,
)
from loopring_lab.widgets.table_view import TableView

if TYPE_CHECKING:
    from loopring_lab.widgets.explorers import Explorer
    from loopring_lab.widgets.figure_view import FigureView
    from loopring_lab.widgets.markets import MarketExplorer

SIDES = [("buy and sell", ""), ("buy", "BUY"), ("sell", "SELL")]
FILL_TYPES = [
    ("both", ""),
    ("AMM pool", "amm"),
    ("order book", "dex"),
]
ROLES = [
    ("takers", "taker"),
    ("makers", "maker"),
    ("not known", "unknown"),
    ("all", ""),
]
PERIODS = [
    ("auto", ""),
    ("hour", "1h"),
    ("6 hours", "6h"),
    ("day", "1d"),
    ("week", "1w"),
    ("month", "1mo"),
    ("quarter", "1q"),
]
TOLERANCES = [
    ("a minute", "60s"),
    ("10 minutes", "10min"),
    ("an hour", "1h"),
    ("a day", "1d"),
]
GROUPS: list[tuple[str, tuple[str, ...]]] = [
    ("No grouping", ()),
    ("market", ("market",)),
    ("fill type", ("fill_type",)),
    ("quote", ("quote",)),
    ("side", ("side",)),
    ("role", ("role",)),
    ("market and fill type", ("market", "fill_type")),
    ("market and side", ("market", "side")),
]
OWN_DATES = "own dates"
SHOWN_FOR = {
    "every": {"every"},
    "tolerance": {"tolerance", "prices"},
    "quote": {"quote_shown"},
}
"""Controls that are shown only for figures that take one of these attributes of the selection."""
LISTINGS = [("markets", "markets"), ("tokens", "tokens")]
STATUSES = [
    ("all", ""),
    ("pool open", "amm"),
    ("order book open", "orderbook"),
    ("both open", "both"),
    ("both closed", "closed"),
]
TOKEN_SIDES = [("base token", "base"), ("quote token", "quote")]
FINDING_LABELS = {
    "refused": "Refused",
    "fits": "OK",
    "note": "Note",
}


class TradesView(Panel):
    """The view of an explorer of trades: filters, a figure, and the table beside it."""

    def __init__(self, state: Explorer, selection: Selection) -> None:
        super().__init__(state)
        self.selection = selection
        self.summary = w.HTML()
        self.figure: FigureView | None = None
        self.figure_place = w.Box()
        self.table: TableView | None = None
        self.table_place = w.Box()
        # What the figure on screen shows, so that it is not drawn twice.
        self._drawn: object = None

        def unlock(key: str) -> None:
            self.guard(lambda: selection.unlock(key))

        self.key = SecretField("API key:", unlock, "Read")
        self.period = labelled(w.Dropdown, "Period", options=["all"])
        self.period.observe(self._choose_period, "value")
        self.arrange(
            above=[
                grid(
                    *self._filters(),
                    *self._figure_choices(state),
                ),
                self.key,
            ],
            below=[
                self.summary,
                results(self.figure_place, self.table_place),
            ],
        )
        state.observe(lambda _: self.draw(), state.CHOICES)
        selection.observe(lambda _: self.draw(), "version")
        selection.observe(lambda _: self._update_key(), "needs_key")
        self._update_key()
        # Reading starts by itself, because a widget that waits for a click looks broken.
        needs_reading = not selection.is_read and bool(selection.accounts)
        if not needs_reading:
            self.draw()
        elif not self.background.doing:
            self.guard(selection.read)

    def draw(self) -> None:
        """Draw the selected trades, or show what is wrong."""
        selection = self.selection
        self._update_options()
        self._show_results(selection.is_read, selection.is_read)
        if selection.is_read:
            # Seen only where drawing takes longer than a page needs to show it.
            self._say("Drawing …")
            self.guard(self._draw_results)
        elif not self.background.doing and not selection.accounts:
            self.background.problem = NO_ACCOUNT

    def _draw_results(self) -> None:
        selection = self.selection
        try:
            if selection.prepare():
                self._show_results(False, False)
                return
            self._show_table()
            self._say(f"{selection.spec.label}, {selection.summary}")
            # A filter of the table alone, such as its grouping, leaves the figure and its zoom.
            if selection.figure_key != self._drawn:
                self._show_figure()
                # After the drawing: what failed is tried again.
                self._drawn = selection.figure_key
        except LabError:
            # The table can stay where only the figure cannot be drawn.
            self._show_results(False, selection.is_chosen)
            raise

    def _show_table(self) -> None:
        selection = self.selection
        if self.table is None:
            self.table = TableView(
                selection.shown,
                precision=DECIMALS,
                code=selection.export(),
            )
            self.table_place.children = [self.table]
        else:
            self.table.show(selection.shown, code=selection.export())

    def _show_figure(self) -> None:
        figure: Any = self.selection.draw()
        if self.figure is None:
            # Its import takes long, and reading trades does not need it.
            from loopring_lab.widgets.figure_view import FigureView

            self.figure = FigureView(figure)
            self.figure_place.children = [self.figure]
        else:
            self.figure.show(figure)

    def _show_results(self, with_figure: bool, with_table: bool) -> None:
        set_visible(self.figure_place, with_figure)
        set_visible(self.table_place, with_table)
        set_visible(self.summary, with_table)

    def _say(self, words: str) -> None:
        self.summary.value = (
            f'<span role="status" class="ll-quiet">{escape(words)}</span>'
        )

    def _update_key(self) -> None:
        set_visible(self.key, self.selection.needs_key)

    def _filters(self) -> list[Any]:
        return [
            *self._account_controls(),
            self._choice("market", "Market", [("all markets", "")]),
            self._choice("side", "Side", SIDES),
            self._choice("fill_type", "Fills", FILL_TYPES),
            self._choice("role", "Role", ROLES),
            self.period,
            self.bind("since", labelled(w.DatePicker, "From")),
            self.bind("until", labelled(w.DatePicker, "Before")),
        ]

    def _account_controls(self) -> list[Any]:
        client = self.selection.client
        # Trades that were given have no account to choose.
        if client is None:
            return []
        # A list to choose from that takes other ids, too; read once they are whole.
        account = labelled(
            w.Combobox,
            "Account",
            options=[str(account) for account in client.accounts or []],
            placeholder="e.g. 10083, 11519",
            continuous_update=False,
        )
        read_again = button(
            "Read again",
            lambda: self.guard(self.selection.read),
            "Read the trades of the account again",
        )
        return [self.bind("account", account), read_again]

    def _figure_choices(self, state: Explorer) -> list[Any]:
        figures = [(spec.label, name) for name, spec in state.FIGURES.items()]
        groups = [
            (label, group) for label, group in GROUPS if set(group) <= set(state.GROUPS)
        ]
        controls = [
            self._choice("figure", "Figure", figures),
            self._choice("every", "Per", PERIODS),
            self._choice("by", "Table by", groups),
        ]
        if "tolerance" in state.CHOICES:
            controls.append(self._choice("tolerance", "Prices within", TOLERANCES))
        if "quote" in state.CHOICES:
            controls.append(self._choice("quote", "Quoted in", [("most fills", "")]))
        return controls

    def _choice(self, name: str, label: str, options: Any) -> Any:
        return self.bind(name, labelled(w.Dropdown, label, options=options))

    def _choose_period(self, change: Any) -> None:
        span = change["new"]
        if self.is_showing_state or span == OWN_DATES:
            return

        def choose() -> None:
            # The end first, so that the two dates are never the wrong way round.
            self.state.until = None
            self.state.since = self.selection.first_day(span) if span else None

        self.guard(choose)

    def _update_period(self) -> None:
        """Offer periods up to the newest trade, and show which one the dates are."""
        selection = self.selection
        options = [("all", "")]
        period_from: dict[Any, str] = {None: ""}
        if selection.newest is not None:
            until = f"{selection.newest.day} {selection.newest:%b %Y}"
            for span in SPANS:
                options.append((f"{span} to {until}", span))
                period_from[selection.first_day(span)] = span
        # A period is up to the newest trade, so one with an end is of the user's own dates.
        period = OWN_DATES
        if self.state.until is None:
            period = period_from.get(self.state.since, OWN_DATES)
        if period == OWN_DATES:
            options.append((OWN_DATES, OWN_DATES))
        with self.showing_state():
            self.period.options = options
            self.period.value = period

    def _update_options(self) -> None:
        """Offer the markets, quote tokens and periods of the trades, and what the figure takes."""
        selection = self.selection
        self._update_period()
        self.offer("market", "all markets", selection.names("market"))
        if "quote" in self.controls:
            self.offer("quote", "most fills", selection.names("quote"))
        # A control without an effect would be a riddle.
        taken = set(selection.spec.options.values())
        for name, attributes in SHOWN_FOR.items():
            if name in self.controls:
                set_visible(
                    self.controls[name],
                    bool(attributes & taken),
                )


class MarketView(Panel):
    """The view of the market explorer: a list to search, and an amount to check."""

    def __init__(self, state: MarketExplorer, lists: Lists) -> None:
        super().__init__(state)
        self.lists = lists
        self.no_match = w.HTML()
        self.table: TableView | None = None
        self.table_place = w.Box()
        self.limits = w.HTML()
        self.findings = w.HTML()
        status = labelled(w.Dropdown, "Status", options=STATUSES)
        search = grid(
            self.bind(
                "listing",
                labelled(w.Dropdown, "List", options=LISTINGS),
            ),
            self.bind(
                "search",
                labelled(w.Text, "Search", placeholder="e.g. LRC"),
            ),
            self.bind("status", status),
        )
        amount = grid(
            self.bind(
                "market",
                labelled(w.Dropdown, "Market", options=[("none", "")]),
            ),
            self.bind(
                "amount",
                labelled(w.Text, "Amount", placeholder="e.g. 12.5"),
            ),
            self.bind(
                "of",
                labelled(w.Dropdown, "of the", options=TOKEN_SIDES),
            ),
        )
        # The checks stand beside the list, or below it where the page is narrow.
        listed = w.VBox([self.no_match, self.table_place])
        checks = w.VBox([amount, self.limits, self.findings])
        self.arrange([search], [results(listed, checks)])
        state.observe(lambda _: self.draw(), state.CHOICES)
        lists.observe(lambda _: self.draw(), "version")
        if lists.is_read:
            self.draw()
        elif not self.background.doing:
            self.guard(lists.read)

    def draw(self) -> None:
        """Draw the matching markets or tokens and the checks, or show what is wrong."""
        set_visible(
            self.controls["status"],
            self.state.listing == "markets",
        )
        if self.lists.is_read:
            self.guard(self._draw_results)

    def _draw_results(self) -> None:
        self.offer("market", "none", self.lists.names)
        self._show_list()
        self.limits.value = ""
        if self.state.market is not None:
            limits = table_html(readable(self.lists.limits))
            self.limits.value = f"<p><b>Order limits</b></p>{limits}"
        try:
            findings = self.lists.findings
        except LabError as error:
            # It stands beside the amount, not above the list.
            findings = [Finding("refused", str(error))]
        self.findings.value = "".join(map(finding_html, findings))

    def _show_list(self) -> None:
        state = self.state
        shown = self.lists.shown
        self.no_match.value = f'<span class="ll-quiet">No matching {state.listing}; broaden the search</span>'
        set_visible(self.no_match, shown.empty)
        set_visible(self.table_place, not shown.empty)
        if self.table is None:
            self.table = TableView(shown, choosing=True)
            self.table.observe(self._choose_row, "chosen")
            self.table_place.children = [self.table]
        elif not shown.equals(self.table.frame):
            # The same list is left as it is, so that its order and page stay.
            self.table.show(shown)
        chosen = -1
        if state.listing == "markets":
            chosen = shown.index.get_indexer(pd.Index([state.market]))[0]
        self.table.chosen = int(chosen)

    def _choose_row(self, change: Any) -> None:
        # -1 is no row: the market is then not in the list that is filtered.
        row = change["new"]
        if self.state.listing == "markets" and row >= 0:
            market = str(self.lists.shown.index[row])
            self.guard(lambda: setattr(self.state, "market", market))


def finding_html(finding: Finding) -> str:
    """Return a finding about an amount as HTML."""
    text = f"<b>{FINDING_LABELS[finding.kind]}.</b> {escape(finding.words)}"
    return f'<div role="status" class="ll-finding ll-{finding.kind}">{text}</div>'
