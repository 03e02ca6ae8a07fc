"""The views of the explorers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as w  # type: ignore[import-untyped]
import pandas as pd

from loopring_lab.amounts.display import readable
from loopring_lab.errors import LabError
from loopring_lab.interactive.prose import as_html, worded
from loopring_lab.widgets.markets import Finding, Lists
from loopring_lab.widgets.panel import Panel, scrolling, set_visible, styled
from loopring_lab.widgets.selection import DECIMALS, Drawn, Selection
from loopring_lab.widgets.table_view import TableView

if TYPE_CHECKING:
    from loopring_lab.figures import Figure
    from loopring_lab.widgets.explorers import Explorer
    from loopring_lab.widgets.markets import MarketExplorer

# The options of the controls: words on the page, and the choice that they stand for. Empty text is no choice.
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
    ("account", ("account_id",)),
    ("flow: arbitrage or user", ("flow",)),
    ("market and fill type", ("market", "fill_type")),
    ("market and side", ("market", "side")),
]
OWN_DATES = "own dates"
# Controls that are shown only for figures that take one of these attributes of the selection.
SHOWN_FOR = {
    "every": {"every"},
    "tolerance": {"tolerance", "prices"},
    "quote": {"quote_shown"},
}
LISTINGS = [("markets", "markets"), ("tokens", "tokens")]
TOKEN_SIDES = [("base token", "base"), ("quote token", "quote")]
FINDING_LABELS = {
    "refused": "Refused",
    "fits": "OK",
    "note": "Note",
}


# How errors name what is on the page of an explorer: each text, as a regular expression, and what stands for it.
ON_PAGE = {
    r"\bsince='([^']*)'": r"From \1",
    r"\buntil='([^']*)'": r"Before \1",
    r"\bmarket=": "Market ",
    r"\baccount=": "Account ",
    r"\bamount=": "Amount ",
    r"lab\.figures\.\w+\(every='(\w+)'\)": r"Per \1",
    r"\bevery='1w'": "a week in Per",
    r"another quote=": "another token in Quoted in",
    r"\btolerance='1d'": "a day in Prices within",
    r"with tolerance=": "with Prices within",
    r"lab\.(research\.)?figures\.\w+:": "This figure cannot be drawn:",
}


class TradesView(Panel):
    """The view of an explorer of trades: filters, a figure, and the table beside it."""

    WORDS = ON_PAGE
    model: Selection

    def __init__(self, state: Explorer, selection: Selection) -> None:
        super().__init__(state, selection)
        self.summary = w.HTML()
        self.figure_place = w.Box()
        self.table = TableView(pd.DataFrame(), precision=DECIMALS)
        # The figure on screen, which is drawn once for the same choices.
        self._figure: Figure | None = None
        self.key = self.secret("API key:", selection.unlock, action="Read")
        self.results = styled("ll-results", self.figure_place, self.table)
        # Whether figure and table are those of earlier choices.
        self._is_old = False
        self.arrange(
            [styled("ll-grid", *self._choices()), self.key],
            [self.summary, self.results],
        )

    def draw(self) -> None:
        """Draw the selected trades, or read them first."""
        selection = self.model
        drawn = Drawn()
        self._is_old = False
        try:
            # Reading starts by itself, because a widget that waits for a click looks broken.
            if not selection.read_what_is_missing():
                # Seen only where drawing takes longer than a page needs to show it.
                self._say("Drawing …")
                drawn = selection.drawn()
            elif selection.is_drawing:
                self._is_old = True
        finally:
            set_visible(self.key, selection.needs_key)
            self._show(drawn)
        if drawn.problem is not None:
            raise drawn.problem

    def static_html(self) -> str:
        """Return the words, the figure and the table on screen."""
        html: str = self.summary.value
        # A copy does not say how old it is.
        if self._is_old:
            return html
        if self.figure_place.layout.display != "none":
            html += self.figure_place.children[0].static_html()
        if self.table.layout.display != "none":
            html += self.table.static_html()
        return html

    def _show(self, drawn: Drawn) -> None:
        """Change figure, table and words together; the table can stay where only the figure cannot be drawn."""
        if self._is_old:
            self._say("")
            self.results.add_class("ll-old")
            return
        self.results.remove_class("ll-old")
        self._show_figure(drawn.figure)
        set_visible(self.table, drawn.table is not None)
        if drawn.table is not None:
            self.table.show(drawn.table)
        self._say(self.model.summary if drawn.table is not None else "")

    def _show_figure(self, figure: Figure | None) -> None:
        set_visible(self.figure_place, figure is not None)
        # A choice for the table alone, such as its grouping, leaves the figure and its zoom.
        if figure is None or figure is self._figure:
            return
        self._figure = figure
        if self.figure_place.children:
            self.figure_place.children[0].show(figure)
        else:
            # Its import takes long, and reading trades does not need it.
            from loopring_lab.widgets.figure_view import FigureView

            self.figure_place.children = [FigureView(figure)]

    def _say(self, words: str) -> None:
        self.summary.value = (
            f'<span role="status" class="ll-quiet">{as_html(words)}</span>'
        )

    def _choices(self) -> list[Any]:
        """Make the controls."""
        state = self.state
        controls = []
        client = self.model.client
        # Trades that were given have no account to choose.
        if client is not None:
            # A list to choose from that takes other ids, too; read once they are whole.
            account = w.Combobox(
                description="Account",
                options=[str(account) for account in client.accounts or []],
                placeholder="e.g. 10083, 11519",
                continuous_update=False,
            )
            read_again = self.button("Read again", self.model.read)
            controls = [
                self.bind("account", account),
                read_again,
            ]
        figures = [(spec.label, name) for name, spec in state.FIGURES.items()]
        groups = [(label, by) for label, by in GROUPS if set(by) <= set(state.GROUPS)]
        controls += [
            self.choice("market", "Market"),
            self.choice("side", "Side", SIDES),
            self.choice("fill_type", "Fills", FILL_TYPES),
            self.choice("role", "Role", ROLES),
            self.choice("period", "Period", of=self),
            self._day("since", "From", "Empty: from the first trade"),
            self._day("until", "Before", "Empty: to the newest trade"),
            self.choice("figure", "Figure", figures),
            self.choice("every", "Per", PERIODS),
            self.choice("by", "Table by", groups),
        ]
        if "tolerance" in state.CHOICES:
            controls.append(self.choice("tolerance", "Prices within", TOLERANCES))
        if "quote" in state.CHOICES:
            controls.append(self.choice("quote", "Quoted in"))
        return controls

    def _day(self, name: str, label: str, help_: str) -> Any:
        return self.bind(name, w.DatePicker(description=label, tooltip=help_))

    @property
    def period(self) -> str:
        """The period on offer that the two dates are."""
        # Each is up to the newest trade, so one with an end is of the user's own dates.
        if self.state.until is None:
            for label, first in self.model.periods.items():
                if first == self.state.since:
                    return label
        return OWN_DATES

    @period.setter
    def period(self, label: str) -> None:
        if label != OWN_DATES:
            # Both dates are set at once, so that they are never the wrong way round.
            with self.state.hold_trait_notifications():
                self.state.until = None
                self.state.since = self.model.periods[label]

    def offer(self) -> None:
        """Offer the markets, quote tokens and periods of the trades, and what the figure takes."""
        selection = self.model
        self.offers["market"] = with_default("all markets", selection.market_names)
        self.offers["quote"] = with_default("most fills", selection.names("quote"))
        self.offers["period"] = [(label, label) for label in selection.periods]
        taken = set(selection.spec.options.values())
        self.hidden = {name for name, some in SHOWN_FOR.items() if not some & taken}


class MarketView(Panel):
    """The view of the market explorer: a list to search, and an amount to check."""

    WORDS = ON_PAGE
    model: Lists

    def __init__(self, state: MarketExplorer, lists: Lists) -> None:
        super().__init__(state, lists)
        self.table = TableView(pd.DataFrame(), choosing=True)
        self.table.observe(self._choose_row, "chosen")
        self.checks = w.HTML()
        listing = styled("ll-grid", self.choice("listing", "List", LISTINGS))
        amount = styled(
            "ll-grid",
            self.choice("market", "Market"),
            self.bind(
                "amount",
                w.Text(
                    description="Amount",
                    placeholder="e.g. 12.5",
                ),
            ),
            self.choice("of", "of the", TOKEN_SIDES),
        )
        # The checks stand beside the list, or below it where the page is narrow.
        results = styled(
            "ll-results",
            self.table,
            w.VBox([amount, self.checks]),
        )
        self.arrange([listing], [results])

    def offer(self) -> None:
        """Offer the markets."""
        self.offers["market"] = with_default("none", self.model.market_names)

    def draw(self) -> None:
        """Draw the matching markets or tokens and the checks."""
        lists = self.model
        state = self.state
        set_visible(self.table, lists.is_read)
        if not lists.is_read:
            if self.background.is_clear:
                lists.read()
            return
        shown = lists.shown
        # The same list is left as it is, so that its order and page stay.
        if not shown.equals(self.table.frame):
            self.table.show(shown)
        chosen = -1
        if state.listing == "markets":
            chosen = shown.index.get_indexer(pd.Index([state.market]))[0]
        self.table.chosen = int(chosen)
        self.checks.value = self._checks_html()

    def static_html(self) -> str:
        """Return the list and the checks on screen."""
        if not self.model.is_read:
            return ""
        return f"{self.table.static_html()}{self.checks.value}"

    def _checks_html(self) -> str:
        limits = ""
        if self.state.market is not None:
            table = scrolling(readable(self.model.limits))
            limits = f"<p><b>Order limits</b></p>{table}"
        try:
            findings = self.model.findings
        except LabError as error:
            # It stands beside the amount, not above the list.
            findings = [Finding("refused", worded(str(error), ON_PAGE))]
        return limits + "".join(map(finding_html, findings))

    def _choose_row(self, change: Any) -> None:
        # -1 is no row.
        row = change["new"]
        if self.state.listing == "markets" and row >= 0:
            market = str(self.table.frame.index[row])
            self.guard(lambda: setattr(self.state, "market", market))


def with_default(default: str, names: list[str]) -> list[tuple[str, str]]:
    """Return options for names, after one for no choice."""
    return [(default, ""), *((name, name) for name in names)]


def finding_html(finding: Finding) -> str:
    """Return a finding about an amount as HTML."""
    text = f"<b>{FINDING_LABELS[finding.kind]}.</b> {as_html(finding.words)}"
    return f'<div role="status" class="ll-finding ll-{finding.kind}">{text}</div>'
