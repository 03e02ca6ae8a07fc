"""The view of the wizard."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets as w  # type: ignore[import-untyped]

from loopring_lab.models import FAILED, PROCESSED, PROCESSING, RECEIVED
from loopring_lab.preview import Line, Sheet
from loopring_lab.redaction import SecretText
from loopring_lab.widgets.key_update import STEPS, KeyUpdateFlow
from loopring_lab.widgets.panel import (
    Panel,
    SecretField,
    button,
    labelled,
    preformatted,
    row,
    set_value,
    set_visible,
    table_html,
)

if TYPE_CHECKING:
    from loopring_lab.widgets.key_update import KeyUpdateWizard

NEXT_LABELS = {
    "account": "Continue",
    "preview": "Continue to signing",
    "sign": "Sign",
    "submit": "Submit the update",
    "follow": "Keep waiting",
}
WAYS = [
    ("a wallet elsewhere", "wallet"),
    ("a private key typed here", "key"),
]
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
SIGNATURE_MISSING = (
    "Nothing is entered. Paste the wallet's signature first: 0x and 130 hex digits."
)
KEY_MISSING = "Nothing is entered. Type the private key first: 64 hex digits."
SEED_MISSING = (
    "Nothing is entered. Type your own text, or go on with the exchange's usual one."
)
DONE = "The account has the new key. For a new API key: <code>client = wizard.new_client()</code>."


class WizardView(Panel):
    """The view of the wizard: the steps, what the present one needs, and the way on and back."""

    def __init__(self, state: KeyUpdateWizard, flow: KeyUpdateFlow) -> None:
        super().__init__(state)
        self.flow = flow
        self.steps = w.HTML()
        self.body = w.VBox()
        # What the body shows now; fields that are put in anew would lose what is typed.
        self._shown: list[Any] = []
        self.signature = self._secret(
            "Signature:", flow.give_signature, SIGNATURE_MISSING
        )
        self.private_key = self._secret(
            "Private key:", flow.give_key, KEY_MISSING, "Sign"
        )
        self.seed = self._secret(
            "Own key seed (optional):",
            flow.give_seed,
            SEED_MISSING,
        )
        self.next = self._button("Continue", flow.next)
        self.back = self._button("Back", flow.back)
        self.again = self._button("Start over", flow.start_over)
        demo = self._button("Use a demo wallet", flow.use_demo_wallet)
        self.demo_row = row(demo, w.HTML(f"<small>{DEMO}</small>"))
        self.account = self._account_controls()
        self.way = self.bind(
            "way",
            labelled(w.Dropdown, "Signatures by", options=WAYS),
        )
        self.way.layout = beside_others("360px")
        self.arrange(
            above=[self.steps, self.body],
            below=[
                row(self.back, self.next, self.again),
                self.demo_row,
            ],
        )
        state.observe(lambda _: self.draw(), ["account", "way"])
        flow.observe(lambda _: self.draw(), ["step", "version"])
        self.background.observe(lambda _: self.draw(), ["doing", "done"])
        self.draw()

    def draw(self) -> None:
        """Show the present step."""
        flow = self.flow
        step = flow.step
        is_working = bool(self.background.doing)
        # The nonce is known once the account is read.
        if flow.held.account is not None:
            self.seed.note = (
                f"must end with 'with key nonce: {flow.held.account.nonce}'"
            )
        self.steps.value = ordered_list(STEPS, step, "Steps")
        self._show(self._parts(step))
        # Signing needs a click only where the key is held; else the field submits.
        can_sign = step == "sign" and flow.held.signer is not None
        can_wait = step == "follow" and not flow.held.finished
        self.next.description = NEXT_LABELS.get(step, "")
        # A second click would begin the step again.
        self.next.disabled = is_working
        set_visible(
            self.next,
            step in ("account", "preview", "submit") or can_sign or can_wait,
        )
        set_visible(self.back, step not in ("account", "follow"))
        set_visible(self.again, step != "account" and not is_working)
        set_visible(
            self.demo_row,
            flow.has_demo_wallet and step != "follow" and not is_working,
        )
        self.update_code()

    def bind(self, name: str, control: Any) -> Any:
        """Bind a control to a choice; after an entry that is refused it shows the value in force again.

        What a key update uses must be what is seen.
        """
        super().bind(name, control)

        def show_value_in_force(_: object) -> None:
            with self.showing_state():
                set_value(control, getattr(self.state, name))

        # After the observer of the panel, which may refuse the entry.
        control.observe(show_value_in_force, "value")
        return control

    def _show(self, parts: list[Any]) -> None:
        """Put widgets and HTML into the body; if nothing changes, half-typed text stays."""
        if parts != self._shown:
            self._shown = parts
            self.body.children = [
                w.HTML(part) if isinstance(part, str) else part for part in parts
            ]

    def _parts(self, step: str) -> list[Any]:
        if step == "account":
            return [self.account]
        if step == "key":
            return [
                self._account_facts(),
                self.way,
                *self._key_parts(),
                self.seed,
            ]
        if step == "preview":
            return [sheet_html(self.flow.preview)]
        if step == "sign":
            return self._signing_parts()
        if step == "submit":
            return [f"<p>{SUBMIT}</p>"]
        return [self._progress_html()]

    def _key_parts(self) -> list[Any]:
        if self.state.way == "key":
            return [f"<p>{KEY_WARNING}</p>", self.private_key]
        text = self.flow.to_sign
        if text is None:
            return [f"<p>{OWN_SEED}</p>", self.signature]
        return [
            f"<p>{SEED}</p>{preformatted(text, 'Text to sign')}",
            self.signature,
        ]

    def _signing_parts(self) -> list[Any]:
        # It was typed one step before, and is asked for once.
        if self.flow.held.signer is not None:
            return [f"<p>{KEY_HELD}</p>"]
        if self.state.way == "key":
            return [
                self.way,
                f"<p>{KEY_WARNING}</p>",
                self.private_key,
            ]
        data = preformatted(self.flow.to_sign or "", "Data to sign")
        return [
            self.way,
            f"<p>{DATA}</p>{data}",
            self.signature,
        ]

    def _progress_html(self) -> str:
        held = self.flow.held
        status = held.receipt.status if held.receipt is not None else RECEIVED
        # One of two ends, and only the one that came is shown.
        end = FAILED if status == FAILED else PROCESSED
        html = ordered_list((RECEIVED, PROCESSING, end), status, "States")
        if held.finished:
            html += f"<p>{DONE}</p>{self._account_facts()}"
        # Nobody looked at the preview on the way, so it stands here once more.
        if held.demo:
            html += f"<p>{DEMO_SIGNED}</p>{sheet_html(self.flow.preview)}"
        return html

    def _account_facts(self) -> str:
        """Describe the account, without its key seed, as that may be one that was typed."""
        account = self.flow.held.account
        if account is None:
            return ""
        pending = (
            "an update is pending: a second one is refused" if account.frozen else "no"
        )
        lines = [
            Line(
                "owner",
                account.owner,
                "the wallet that owns it",
            ),
            Line(
                "publicKey.x",
                account.x,
                "of its current L2 key",
            ),
            Line("nonce", account.nonce, "updates so far"),
            Line("frozen", pending),
        ]
        return sheet_html(Sheet(f"Account {account.account_id}", lines))

    def _account_controls(self) -> Any:
        # The embedded relayer knows its accounts; a live one does not tell.
        known = [str(account) for account in self.flow.client.accounts or []]
        # Not while somebody types: half an account id is another account.
        fields = {
            "account": labelled(
                w.Combobox,
                "Account",
                options=known,
                continuous_update=False,
            ),
            "fee_token": labelled(w.Text, "Fee in", continuous_update=False),
            "max_fee": labelled(
                w.Text,
                "Max fee",
                placeholder="relayer's quote",
                continuous_update=False,
            ),
            "valid_for": labelled(w.Text, "Valid for", continuous_update=False),
        }
        widths = {
            "account": "200px",
            "fee_token": "150px",
            "max_fee": "240px",
            "valid_for": "150px",
        }
        for name, field in fields.items():
            field.layout = beside_others(widths[name])
            self.bind(name, field)
        return row(*fields.values())

    def _secret(
        self,
        label: str,
        take: Callable[[str], None],
        missing: str,
        action: str = "Use",
    ) -> SecretField:
        def submit(text: SecretText) -> None:
            self.guard(lambda: take(text))

        return SecretField(label, submit, action, missing)

    def _button(self, label: str, call: Callable[[], None]) -> Any:
        made = button(label, lambda: self.guard(call))
        made.layout = w.Layout(width="auto", min_width="110px")
        return made


def beside_others(width: str) -> Any:
    """Return the layout of a control in a row: as wide as what is typed there."""
    return w.Layout(width=width, margin="2px 14px 2px 2px")


def ordered_list(names: tuple[str, ...], current: str, label: str) -> str:
    """Return names as HTML, of which one is marked as the current step."""
    items = []
    for name in names:
        mark = " aria-current=step" if name == current else ""
        items.append(f"<li{mark}>{escape(name)}</li>")
    return f'<ol aria-label="{label}">{"".join(items)}</ol>'


def sheet_html(sheet: Sheet) -> str:
    """Return a table of fields as HTML that scrolls by itself."""
    return f'<div class="ll-sheet">{table_html(sheet)}</div>'
