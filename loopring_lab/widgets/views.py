"""The views of the explorers and of the wizard."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w  # type: ignore[import-untyped]

from loopring_lab.amounts.display import Shown
from loopring_lab.errors import LabError
from loopring_lab.models import UPDATE_STATES
from loopring_lab.preview import Line, Sheet
from loopring_lab.widgets.explorers import Explorer
from loopring_lab.widgets.key_update import STEPS, Update
from loopring_lab.widgets.layout import Panel, SecretField, labelled, row, seen, table_html
from loopring_lab.widgets.markets import Finding, Markets

WORDS = {"amm": "AMM pool", "dex": "order book", "fill_type": "fill type"}
PERIODS = {"1h": "hour", "6h": "6 hours", "1d": "day", "1w": "week", "1mo": "month", "1q": "quarter"}
GROUPS = [(), ("market",), ("fill_type",), ("quote",), ("side",), ("role",), ("market", "fill_type")]
GROUPS += [("market", "side")]


class TradesView(Panel):
    """The view of an `Explorer`."""

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


KINDS = {"refused": "Refused", "fits": "Fits", "note": "Note"}


class MarketView(Panel):
    """The view of `Markets`."""

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


NEXT = {"account": "Ask the relayer", "preview": "Go on to signing", "submit": "Submit the update"}
NEXT |= {"sign": "Sign", "follow": "Wait on"}
WAYS = [("a wallet elsewhere, which signs", "wallet"), ("a private key, typed here", "key")]
CAREFUL = "Throwaway keys only: a key that was ever typed into a notebook server is no longer only yours."
SEED = (
    "The wallet signs this text with <b>personal_sign</b>. Whoever has that signature has the new key: sign "
    "it only where you trust the program that asks."
)
OWN_SEED = "The wallet signs the text you typed with <b>personal_sign</b>. It is not shown here."
DATA = "The wallet signs this with <b>eth_signTypedData_v4</b>: compare it with the preview."
HELD = "The private key that made the new key is still held, hidden. It signs now, and is forgotten."
SUBMIT = "The update is signed. Once it is processed, the account's old L2 key and its API keys are void."
DONE = "The account carries the new key. <code>client = wizard.new_client()</code> reads with a new API key."


class WizardView(Panel):
    """The view of `Update`."""

    state: Update

    def __init__(self, state: Update) -> None:
        super().__init__(state)
        self.steps, self.body = w.HTML(), w.VBox()
        self._shown: list[Any] = []
        self.signature = SecretField("Signature:", self._given(state.give_signature))
        self.private_key = SecretField("Private key:", self._given(state.give_key), "Sign")
        self.seed = SecretField("Own key seed (optional):", self._given(state.give_seed))
        self.next, self.back, self.again = (self._button(call) for call in ("next", "back", "start_over"))
        self.back.description, self.again.description = "Back", "Start over"
        self.account = self._account()
        self.way = self.tie("way", labelled(w.Dropdown, "Signatures by", "360px", options=WAYS))
        self.arrange([self.steps, self.body], [row(self.back, self.next, self.again)])
        state.observe(lambda _: self.draw(), ["step", "version", "way", "doing", "done"])
        self.draw()

    def draw(self) -> None:
        """Draw the step."""
        state, step = self.state, self.state.step
        owner = state.held.account
        self.seed.note = f"its end: with key nonce: {owner.nonce}" if owner else ""
        self.steps.value = _list(STEPS, step, "Steps")
        self._show(getattr(self, f"_at_{step}")())
        self.next.description = NEXT.get(step, "")
        waiting = step == "follow" and not state.held.finished
        signing = step == "sign" and state.held.signer is not None
        ready = step in ("account", "preview", "submit") or signing or waiting
        seen(self.next, ready)
        seen(self.back, step not in ("account", "follow"))
        seen(self.again, step != "account" and not state.doing)
        self.next.disabled = bool(state.doing)
        self._coded()

    def _show(self, parts: list[Any]) -> None:
        """Put widgets and HTML into the body; what is half typed there stays where nothing changes."""
        if parts != self._shown:
            self._shown = parts
            self.body.children = [w.HTML(part) if isinstance(part, str) else part for part in parts]

    def _at_account(self) -> list[Any]:
        return [self.account]

    def _at_key(self) -> list[Any]:
        sheet, to_sign = self._facts(), self.state.to_sign
        if self.state.way == "key":
            return [sheet, self.way, f"<p>{CAREFUL}</p>", self.private_key, self.seed]
        words = f"<p>{SEED if to_sign else OWN_SEED}</p>{_pre(to_sign, 'Text to sign')}"
        return [sheet, self.way, words, self.signature, self.seed]

    def _at_preview(self) -> list[Any]:
        return [_sheet(self.state.preview)]

    def _at_sign(self) -> list[Any]:
        if self.state.held.signer:
            return [f"<p>{HELD}</p>"]
        if self.state.way == "key":
            return [self.way, f"<p>{CAREFUL}</p>", self.private_key]
        return [self.way, f"<p>{DATA}</p>{_pre(self.state.to_sign, 'Data to sign')}", self.signature]

    def _at_submit(self) -> list[Any]:
        return [f"<p>{SUBMIT}</p>"]

    def _at_follow(self) -> list[Any]:
        receipt = self.state.receipt
        status = receipt.status if receipt else UPDATE_STATES[0]
        states = _list(
            UPDATE_STATES[:2] + (UPDATE_STATES[3:] if status == UPDATE_STATES[3] else UPDATE_STATES[2:3]),
            status,
            "States",
        )
        end = f"<p>{DONE}</p>{self._facts()}" if self.state.held.finished else ""
        return [states + end]

    def _facts(self) -> str:
        """Describe the account; its key seed is left out, as it may be one that was typed."""
        account = self.state.held.account
        if account is None:
            return ""
        pending = "an update is under way: a second one is refused" if account.frozen else "no"
        lines = [
            Line("owner", account.owner, "the wallet that owns it"),
            Line("publicKey.x", account.x, "of its present L2 key"),
            Line("nonce", account.nonce, "updates so far"),
            Line("frozen", pending),
        ]
        return _sheet(Sheet(f"Account {account.account_id}", lines))

    def _account(self) -> Any:
        known = [str(one) for one in getattr(self.state.client, "accounts", None) or []]
        return row(
            self.tie("account", labelled(w.Combobox, "Account", options=known, continuous_update=False)),
            self.tie("fee_token", labelled(w.Text, "Fee in", "150px", continuous_update=False)),
            self.tie(
                "max_fee",
                labelled(
                    w.Text, "at most", "240px", placeholder="what is asked for", continuous_update=False
                ),
            ),
            self.tie("valid_for", labelled(w.Text, "Valid for", "150px", continuous_update=False)),
        )

    def _button(self, call: str) -> Any:
        button = w.Button(layout=w.Layout(width="auto", min_width="110px"))
        button.on_click(lambda _: self.guard(getattr(self.state, call)))
        return button

    def _given(self, take: Any) -> Any:
        return lambda text: self.guard(lambda: take(text))


def _list(names: tuple[str, ...], current: str, label: str) -> str:
    items = (f"<li{' aria-current=step' if name == current else ''}>{escape(name)}</li>" for name in names)
    return f'<ol aria-label="{label}">{"".join(items)}</ol>'


def _pre(text: str | None, label: str) -> str:
    return f'<pre tabindex="0" aria-label="{label}">{escape(text)}</pre>' if text else ""


def _sheet(sheet: Any) -> str:
    return f'<div class="ll-sheet">{table_html(sheet)}</div>'
