"""The views of the explorers and of the wizard."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w  # type: ignore[import-untyped]

from loopring_lab.amounts.display import Shown
from loopring_lab.errors import LabError
from loopring_lab.models import FAILED, PROCESSED, PROCESSING, RECEIVED
from loopring_lab.preview import Line, Sheet
from loopring_lab.widgets.explorers import Explorer
from loopring_lab.widgets.key_update import STEPS, KeyUpdateWizard
from loopring_lab.widgets.layout import (
    Panel,
    SecretField,
    labelled,
    preformatted,
    row,
    set_visible,
    table_html,
)
from loopring_lab.widgets.markets import Finding, MarketExplorer

LABELS = {"amm": "AMM pool", "dex": "order book", "fill_type": "fill type"}
PERIODS = {"1h": "hour", "6h": "6 hours", "1d": "day", "1w": "week", "1mo": "month", "1q": "quarter"}
GROUP_COLUMNS = ("market", "fill_type", "quote", "side", "role")
GROUPS = [(), *((column,) for column in GROUP_COLUMNS), ("market", "fill_type"), ("market", "side")]
FINDING_LABELS = {"refused": "Refused", "fits": "OK", "note": "Note"}
NEXT_LABELS = {
    "account": "Continue",
    "preview": "Continue to signing",
    "sign": "Sign",
    "submit": "Submit the update",
    "follow": "Keep waiting",
}
SIGNING_WAYS = [("a wallet elsewhere", "wallet"), ("a private key typed here", "key")]
KEY_WARNING = "Throwaway keys only: a key that was typed into a notebook server is no longer yours alone."
SEED = (
    "The wallet signs this text with <b>personal_sign</b>. Whoever has that signature has the new key: sign "
    "it only if you trust the program that asks."
)
OWN_SEED = "The wallet signs the text you typed with <b>personal_sign</b>. It is not shown here."
DATA = "The wallet signs this with <b>eth_signTypedData_v4</b>: compare it with the preview."
KEY_HELD = "The private key that made the new key is still held, hidden. It signs now, and is then forgotten."
SUBMIT = "The update is signed. Once it is processed, the account's old L2 key and its API keys are void."
DONE = "The account has the new key. For a new API key: <code>client = wizard.new_client()</code>."


class TradesView(Panel):
    state: Explorer

    def __init__(self, state: Explorer) -> None:
        super().__init__(state)
        self.summary, self.table = w.HTML(), w.HTML()
        self.figure = w.Image(format="png", layout=w.Layout(max_width="900px", width="calc(100% - 4px)"))
        self.key = SecretField("API key:", lambda key: self.guard(lambda: state.unlock(key)), "Read")
        controls = [self._filter_controls(), self.key, self._figure_controls()]
        self.arrange(controls, [self.summary, self.figure, self.table])
        redrawn_for = [name for name in state.CHOICES if name != "account"]
        state.observe(lambda _: self.draw(), [*redrawn_for, "version", "doing"])
        state.observe(lambda _: set_visible(self.key, state.needs_key), "needs_key")
        set_visible(self.key, state.needs_key)
        self._read_or_draw()

    def draw(self) -> None:
        """Draw the selected trades, or show what is wrong."""
        self._update_names()
        used = self.state.figure_spec.options.values()
        for name, option in (("every", "every"), ("tolerance", "tolerance"), ("quote", "quote_shown")):
            if name in self.controls:
                set_visible(self.controls[name], option in used)
        for result in (self.summary, self.table, self.figure):
            set_visible(result, self.state.is_read)
        if self.state.is_read:
            self.summary.value = '<span role="status" class="ll-quiet">Drawing …</span>'
            self.guard(self._draw_results)

    def _draw_results(self) -> None:
        state = self.state
        try:
            self.table.value = table_html(state.shown)
            summary = escape(f"{state.figure_spec.label}, {state.summary}")
            self.summary.value = f'<span role="status" class="ll-quiet">{summary}</span>'
            self.figure.value = state.png()
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
        account = labelled(w.Combobox, "Account", "170px", options=known, continuous_update=False)
        self.read = w.Button(description="Read again", tooltip="Read the account's trades again")
        self.read.layout = w.Layout(width="110px", margin="2px 14px 2px 2px")
        self.read.on_click(lambda _: self.guard(self.state.read))
        return [self.bind("account", account), self.read]

    def _filter_controls(self) -> Any:
        sides = [("buy and sell", ""), ("buy", "BUY"), ("sell", "SELL")]
        types = [("both", ""), (LABELS["amm"], "amm"), (LABELS["dex"], "dex")]
        self.market = labelled(w.Dropdown, "Market", "190px", options=[("all markets", "")])
        return row(
            *self._account_controls(),
            self.bind("market", self.market),
            self.bind("side", labelled(w.Dropdown, "Side", "150px", options=sides)),
            self.bind("fill_type", labelled(w.Dropdown, "Fills", "160px", options=types)),
            self.bind("since", labelled(w.DatePicker, "From", "180px")),
            self.bind("until", labelled(w.DatePicker, "Before", "190px")),
        )

    def _figure_controls(self) -> Any:
        figures = [(spec.label, name) for name, spec in self.state.FIGURES.items()]
        periods = [("auto", ""), *((label, every) for every, label in PERIODS.items())]
        controls = [
            self.bind("figure", labelled(w.Dropdown, "Figure", options=figures)),
            self.bind("every", labelled(w.Dropdown, "Per", "150px", options=periods)),
            self.bind("by", labelled(w.Dropdown, "Table by", "220px", options=self._groups())),
        ]
        if "tolerance" in self.state.CHOICES:
            spans = [("a minute", "60s"), ("10 minutes", "10min"), ("an hour", "1h"), ("a day", "1d")]
            tolerance = labelled(w.Dropdown, "Prices within", "200px", options=spans)
            controls.append(self.bind("tolerance", tolerance))
        if "quote" in self.state.CHOICES:
            quote = labelled(w.Dropdown, "Quoted in", "190px", options=[("most fills", "")])
            controls.append(self.bind("quote", quote))
        return row(*controls)

    def _groups(self) -> list[tuple[str, tuple[str, ...]]]:
        groups = [group for group in GROUPS if set(group) <= set(self.state.GROUPS)]
        labels = [" and ".join(LABELS.get(column, column) for column in group) for group in groups]
        return [(label or "No grouping", group) for label, group in zip(labels, groups, strict=True)]

    def _update_names(self) -> None:
        """Offer the markets and quote tokens of the trades."""
        self.set_options(self.market, ("all markets", ""), self.state.markets, self.state.market)
        if "quote" in self.controls:
            control, selected = self.controls["quote"], self.state.quote
            self.set_options(control, ("most fills", ""), self.state.names("quote"), selected)


class MarketView(Panel):
    state: MarketExplorer

    def __init__(self, state: MarketExplorer) -> None:
        super().__init__(state)
        self.list, self.limits, self.findings = w.HTML(), w.HTML(), w.HTML()
        self.market = labelled(w.Dropdown, "Market", options=[("none", "")])
        results = [self.list, self._amount_controls(), self.limits, self.findings]
        self.arrange([self._search_controls()], results)
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
        if count:
            heading, table = f"{count:,} matching {state.listing}", table_html(state.shown)
        else:
            heading, table = f"No matching {state.listing}; broaden the search", ""
        self.list.value = f'<span class="ll-quiet">{heading}</span>{table}'
        self.limits.value = self.findings.value = ""
        if state.market is not None:
            self.limits.value = "<p><b>Order limits</b></p>" + table_html(Shown(state.limits_shown, []))
        try:
            self.findings.value = "".join(map(_finding, state.findings))
        except LabError as error:  # beside the amount, not above the list
            self.findings.value = _finding(Finding("refused", str(error)))

    def _search_controls(self) -> Any:
        listings = [("markets", "markets"), ("tokens", "tokens")]
        statuses = [("all", ""), ("pool open", "amm"), ("order book open", "orderbook")]
        statuses += [("both open", "both"), ("both closed", "closed")]
        search = labelled(w.Text, "Search", placeholder="e.g. LRC", continuous_update=True)
        status = labelled(w.Dropdown, "Status", options=statuses)
        self.state.observe(lambda _: set_visible(status, self.state.listing == "markets"), "listing")
        set_visible(status, self.state.listing == "markets")
        return row(
            self.bind("listing", labelled(w.Dropdown, "List", "150px", options=listings)),
            self.bind("search", search),
            self.bind("status", status),
        )

    def _amount_controls(self) -> Any:
        sides = [("base token", "base"), ("quote token", "quote")]
        amount = labelled(w.Text, "Amount", placeholder="e.g. 12.5", continuous_update=True)
        return row(
            self.bind("market", self.market),
            self.bind("amount", amount),
            self.bind("of", labelled(w.Dropdown, "of the", "160px", options=sides)),
        )


class WizardView(Panel):
    state: KeyUpdateWizard

    def __init__(self, state: KeyUpdateWizard) -> None:
        super().__init__(state)
        self.steps, self.body = w.HTML(), w.VBox()
        self._shown: list[Any] = []
        self.signature = SecretField("Signature:", self._guarded(state.give_signature))
        self.private_key = SecretField("Private key:", self._guarded(state.give_key), "Sign")
        self.seed = SecretField("Own key seed (optional):", self._guarded(state.give_seed))
        self.next, self.back, self.again = (self._button(name) for name in ("next", "back", "start_over"))
        self.back.description, self.again.description = "Back", "Start over"
        self.account = self._account_controls()
        self.way = self.bind("way", labelled(w.Dropdown, "Signatures by", "360px", options=SIGNING_WAYS))
        self.arrange([self.steps, self.body], [row(self.back, self.next, self.again)])
        state.observe(lambda _: self.draw(), ["step", "version", "way", "doing", "done"])
        self.draw()

    def draw(self) -> None:
        state, step = self.state, self.state.step
        account = state.held.account
        self.seed.note = f"must end with 'with key nonce: {account.nonce}'" if account else ""
        self.steps.value = _ordered_list(STEPS, step, "Steps")
        self._show(getattr(self, f"_at_{step}")())
        self.next.description = NEXT_LABELS.get(step, "")
        waiting = step == "follow" and not state.held.finished
        signing = step == "sign" and state.held.signer is not None
        ready = step in ("account", "preview", "submit") or signing or waiting
        set_visible(self.next, ready)
        set_visible(self.back, step not in ("account", "follow"))
        set_visible(self.again, step != "account" and not state.doing)
        self.next.disabled = bool(state.doing)
        self._update_code()

    def _show(self, parts: list[Any]) -> None:
        """Put widgets and HTML into the body; if nothing changes, half-typed text stays."""
        if parts != self._shown:
            self._shown = parts
            self.body.children = [w.HTML(part) if isinstance(part, str) else part for part in parts]

    def _at_account(self) -> list[Any]:
        return [self.account]

    def _at_key(self) -> list[Any]:
        sheet, to_sign = self._account_facts(), self.state.to_sign
        if self.state.way == "key":
            return [sheet, self.way, f"<p>{KEY_WARNING}</p>", self.private_key, self.seed]
        text = f"<p>{SEED}</p>{preformatted(to_sign, 'Text to sign')}" if to_sign else f"<p>{OWN_SEED}</p>"
        return [sheet, self.way, text, self.signature, self.seed]

    def _at_preview(self) -> list[Any]:
        return [_sheet(self.state.preview)]

    def _at_sign(self) -> list[Any]:
        if self.state.held.signer:
            return [f"<p>{KEY_HELD}</p>"]
        if self.state.way == "key":
            return [self.way, f"<p>{KEY_WARNING}</p>", self.private_key]
        data = preformatted(self.state.to_sign or "", "Data to sign")
        return [self.way, f"<p>{DATA}</p>{data}", self.signature]

    def _at_submit(self) -> list[Any]:
        return [f"<p>{SUBMIT}</p>"]

    def _at_follow(self) -> list[Any]:
        receipt = self.state.receipt
        status = receipt.status if receipt else RECEIVED
        end = FAILED if status == FAILED else PROCESSED
        html = _ordered_list((RECEIVED, PROCESSING, end), status, "States")
        if self.state.held.finished:
            html += f"<p>{DONE}</p>{self._account_facts()}"
        return [html]

    def _account_facts(self) -> str:
        """Describe the account, without its key seed, as that may be one that was typed."""
        account = self.state.held.account
        if account is None:
            return ""
        pending = "an update is pending: a second one is refused" if account.frozen else "no"
        lines = [
            Line("owner", account.owner, "the wallet that owns it"),
            Line("publicKey.x", account.x, "of its current L2 key"),
            Line("nonce", account.nonce, "updates so far"),
            Line("frozen", pending),
        ]
        return _sheet(Sheet(f"Account {account.account_id}", lines))

    def _account_controls(self) -> Any:
        known = [str(account) for account in self.state.client.accounts or []]
        max_fee = labelled(w.Text, "Max fee", "240px", placeholder="relayer's quote", continuous_update=False)
        return row(
            self.bind("account", labelled(w.Combobox, "Account", options=known, continuous_update=False)),
            self.bind("fee_token", labelled(w.Text, "Fee in", "150px", continuous_update=False)),
            self.bind("max_fee", max_fee),
            self.bind("valid_for", labelled(w.Text, "Valid for", "150px", continuous_update=False)),
        )

    def _button(self, method: str) -> Any:
        button = w.Button(layout=w.Layout(width="auto", min_width="110px"))
        button.on_click(lambda _: self.guard(getattr(self.state, method)))
        return button

    def _guarded(self, take: Any) -> Any:
        return lambda text: self.guard(lambda: take(text))


def _finding(finding: Finding) -> str:
    text = f"<b>{FINDING_LABELS[finding.kind]}.</b> {escape(finding.words)}"
    return f'<div role="status" class="ll-finding ll-{finding.kind}">{text}</div>'


def _ordered_list(names: tuple[str, ...], current: str, label: str) -> str:
    items = (f"<li{' aria-current=step' if name == current else ''}>{escape(name)}</li>" for name in names)
    return f'<ol aria-label="{label}">{"".join(items)}</ol>'


def _sheet(sheet: Any) -> str:
    return f'<div class="ll-sheet">{table_html(sheet)}</div>'
