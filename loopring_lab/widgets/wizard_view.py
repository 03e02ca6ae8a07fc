"""The view of the wizard."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w  # type: ignore[import-untyped]

from loopring_lab.models import FAILED, PROCESSED, PROCESSING, RECEIVED
from loopring_lab.preview import Line, Sheet
from loopring_lab.redaction import SecretText
from loopring_lab.widgets.key_update import STEPS, KeyUpdateWizard
from loopring_lab.widgets.layout import (
    Panel,
    SecretField,
    labelled,
    preformatted,
    row,
    set_value,
    set_visible,
    table_html,
)

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
DEMO = (
    "Demo: this session simulates the relayer, and a throwaway wallet of its own can sign. One click goes to "
    "the end; no key or value of yours is involved."
)
DEMO_SIGNED = "A demo wallet signed this update of a simulated account."
SIGNATURE_MISSING = "Nothing is entered. Paste the wallet's signature first: 0x and 130 hex digits."
KEY_MISSING = "Nothing is entered. Type the private key first: 64 hex digits."
SEED_MISSING = "Nothing is entered. Type your own text, or go on with the exchange's usual one."
DONE = "The account has the new key. For a new API key: <code>client = wizard.new_client()</code>."


class WizardView(Panel):
    state: KeyUpdateWizard

    def __init__(self, state: KeyUpdateWizard) -> None:
        super().__init__(state)
        self.steps, self.body = w.HTML(), w.VBox()
        self._shown: list[Any] = []
        self.signature = self._secret("Signature:", state.give_signature, SIGNATURE_MISSING)
        self.private_key = self._secret("Private key:", state.give_key, KEY_MISSING, "Sign")
        self.seed = self._secret("Own key seed (optional):", state.give_seed, SEED_MISSING)
        self.next, self.back, self.again = (self._button(name) for name in ("next", "back", "start_over"))
        self.back.description, self.again.description = "Back", "Start over"
        self.account = self._account_controls()
        self.way = self.bind("way", labelled(w.Dropdown, "Signatures by", "360px", options=SIGNING_WAYS))
        self.demo = self._button("use_demo_wallet")
        self.demo.description = "Use a demo wallet"
        self.demo_row = row(self.demo, w.HTML(f"<small>{DEMO}</small>"))
        self.arrange([self.steps, self.body], [row(self.back, self.next, self.again), self.demo_row])
        state.observe(lambda _: self.draw(), ["account", "step", "version", "way", "doing", "done"])
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
        set_visible(self.demo_row, state.has_demo_wallet and step != "follow" and not state.doing)
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
        if self.state.held.demo:
            html += f"<p>{DEMO_SIGNED}</p>{_sheet(self.state.preview)}"
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

    def bind(self, name: str, control: Any) -> Any:
        """Bind a control to a choice; after an entry that is refused it shows the value in force again."""
        super().bind(name, control)

        def show_value_in_force(_: object) -> None:
            with self.muted():
                set_value(control, getattr(self.state, name))

        control.observe(show_value_in_force, "value")
        return control

    def _secret(self, label: str, take: Any, missing: str, action: str = "Use") -> SecretField:
        def submit(text: SecretText) -> None:
            self.guard(lambda: take(text))

        return SecretField(label, submit, action, missing)

    def _button(self, method: str) -> Any:
        button = w.Button(layout=w.Layout(width="auto", min_width="110px"))
        button.on_click(lambda _: self.guard(getattr(self.state, method)))
        return button


def _ordered_list(names: tuple[str, ...], current: str, label: str) -> str:
    items = (f"<li{' aria-current=step' if name == current else ''}>{escape(name)}</li>" for name in names)
    return f'<ol aria-label="{label}">{"".join(items)}</ol>'


def _sheet(sheet: Any) -> str:
    return f'<div class="ll-sheet">{table_html(sheet)}</div>'
