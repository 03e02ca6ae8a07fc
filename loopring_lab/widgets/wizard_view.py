"""The view of the wizard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets as w  # type: ignore[import-untyped]

from loopring_lab.errors import LabError
from loopring_lab.interactive.preview import Line, Sheet
from loopring_lab.sources.records import FAILED, PROCESSED, PROCESSING, RECEIVED
from loopring_lab.widgets.key_update import (
    KEY_MISSING,
    SEED_MISSING,
    STEPS,
    KeyUpdateFlow,
)
from loopring_lab.widgets.panel import Panel, row, scrolling, set_visible, styled

if TYPE_CHECKING:
    from loopring_lab.widgets.key_update import KeyUpdateWizard

NEXT_LABELS = {
    "account": "Continue",
    "preview": "Continue to signing",
    "sign": "Sign",
    "submit": "Submit the update",
    "follow": "Keep waiting",
}
# The steps that can be taken back: what may have been sent cannot.
BACKWARD = STEPS[1:-1]
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
    "Demo: this session simulates the relayer, and a throwaway wallet of its own can sign; no key or value of "
    "yours is involved."
)
DEMO_SIGNED = "A demo wallet signed this update of a simulated account."
DEMO_HELD = "The demo wallet that made the new key signs now."
SIGNATURE_MISSING = (
    "Nothing is entered. Paste the wallet's signature first: 0x and 130 hex digits."
)
SENT = "The update may have been sent, so it cannot be cancelled: follow it to its end."
DONE = "The account has the new key. For a new API key: <code>client = wizard.new_client()</code>."

# How errors of `KeyUpdate` name what is on the page: each text, as a regular expression, and what stands for it.
ON_PAGE = {
    r"signature: expected r, s, v: [^)]*\)": "Signature: expected 0x and 130 hex digits, ending in 1b or 1c",
    r"signature: expected the signature by": "Signature: expected one by",
    r"Sign (key_seed_message|typed_data)\(\) with (\w+), and attach\(signature\)": (
        r"Sign what is shown with \2, and paste its signature"
    ),
    r"keySeed: does": "Own key seed does",
    r"omit key_seed to use": "leave it out, and sign",
    r"maxFee: expected": "Max fee: expected",
    r"got max_fee=": "got ",
    r"validUntil: expected.*": "Valid for is too long. Give a shorter time, such as 30d.",
    r", a timedelta or a datetime": "",
    r"another fee_token=": "another token in Fee in",
    r"write max_fee=": "enter as Max fee ",
    r"\bmax_fee=": "Max fee ",
    r"\bfee_token=": "Fee in ",
    r"\bvalid_for=": "Valid for ",
    r"\baccount=": "Account ",
    r"Check client\.account\(\), and prepare": "Start over, and prepare",
    r"check client\.account\(\)": "keep waiting",
    r"Call submit\(\) again": "Keep waiting, which sends it again",
    r"change a choice or run the cell again": "take the step again",
}


class WizardView(Panel):
    """The view of the wizard: the steps, what the present one needs, and the way on and back."""

    # A key update must use exactly what is seen.
    KEEPS_REFUSED = True
    WORDS = ON_PAGE
    model: KeyUpdateFlow

    def __init__(self, state: KeyUpdateWizard, flow: KeyUpdateFlow) -> None:
        super().__init__(state, flow)
        self.steps = w.HTML()
        self.body = w.VBox()
        # The parts that the body shows now. Fields that are put in anew would lose what is typed.
        self._shown: list[Any] = []
        # The HTML that the steps so far have shown; the fields for secrets are no part of it.
        self._seen: dict[str, str] = {}
        self.signature = self.secret(
            "Signature:",
            flow.give_signature,
            self._unless_at("key", "sign"),
            missing=SIGNATURE_MISSING,
        )
        self.private_key = self.secret(
            "Private key:",
            flow.give_key,
            self._unless_at("key", "sign"),
            action="Sign",
            missing=KEY_MISSING,
        )
        self.seed = self.secret(
            "Own key seed (optional):",
            flow.give_seed,
            self._unless_at("key"),
            missing=SEED_MISSING,
        )
        demo = self.button(
            "Use a demo wallet",
            flow.use_demo_wallet,
            self._unless_at("key", "sign"),
        )
        self.demo = row(demo, w.HTML(f"<small>{DEMO}</small>"))
        # The embedded relayer knows its accounts; a live one does not tell.
        known = [str(account) for account in flow.client.accounts or []]
        self.terms = styled(
            "ll-grid",
            self._field(
                "account",
                "Account",
                w.Combobox,
                options=known,
                placeholder="e.g. 10083",
            ),
            self._field("fee_token", "Fee in"),
            self._field(
                "max_fee",
                "Max fee",
                placeholder="relayer's quote",
            ),
            self._field("valid_for", "Valid for"),
        )
        self.way = row(self.choice("way", "Signatures by", WAYS))
        # Each step has buttons of its own: a click that comes late still names the step that it was meant for. One that
        # has just appeared takes no click, by `widgets.css`, as that may be the second of two in the same place.
        self.backward = {
            name: self.button("Back", flow.back, self._unless_at(name))
            for name in BACKWARD
        }
        self.onward = {
            name: self.button(label, self._go_on, partial(self._is_busy_or_past, name))
            for name, label in NEXT_LABELS.items()
        }
        self.again = self.button(
            "Start over", flow.start_over, lambda: not self._can_leave
        )
        buttons = [*self.backward.values(), *self.onward.values(), self.again]
        self.arrange([self.steps, self.body], [row(*buttons)])

    def draw(self) -> None:
        """Show the present step."""
        flow = self.model
        step = flow.step
        is_working = bool(self.background.doing)
        # The nonce is known once the account is read.
        if flow.held.account is not None:
            nonce = flow.held.account.nonce
            self.seed.note = f"must end with 'with key nonce: {nonce}'"
        parts = self._parts(step)
        if parts != self._shown:
            self._shown = parts
            self.body.children = [
                w.HTML(part) if isinstance(part, str) else part for part in parts
            ]
        self._remember(step, parts)
        # Signing needs a click only where the key is held; else the field submits.
        can_sign = step == "sign" and flow.held.signer is not None
        can_wait = flow.held.is_under_way
        can_go_on = step in ("account", "preview", "submit")
        for name, button in self.onward.items():
            # A second click would begin the step again.
            button.disabled = is_working
            set_visible(
                button,
                name == step and (can_go_on or can_sign or can_wait),
            )
        for name, button in self.backward.items():
            set_visible(button, name == step)
        set_visible(self.again, self._can_leave)
        # The step is named once its own buttons are there.
        self.steps.value = ordered_list(STEPS, step, "Steps")

    def static_html(self) -> str:
        """Return the steps, each with what it has shown so far."""
        items = []
        for name in STEPS:
            now = " (the step on screen)" if name == self.model.step else ""
            shown = self._seen.get(name, "")
            items.append(f"<li><b>{name}</b>{now}{shown}</li>")
        return f'<ol aria-label="Steps">{"".join(items)}</ol>'

    def _go_on(self) -> None:
        """Take the next step, unless an entry is refused."""
        if self.refused:
            raise LabError(next(iter(self.refused.values())))
        self.model.next()

    def _unless_at(self, *steps: str) -> Callable[[], bool]:
        """Return what tells that another step is on screen than those that show a control."""
        return lambda: self.model.step not in steps

    def _is_busy_or_past(self, step: str) -> bool:
        """Return whether a step is under way or no longer on screen, so that a press of its button is late."""
        return self.model.step != step or bool(self.background.doing)

    @property
    def _can_leave(self) -> bool:
        """Whether somebody can start over: an update that may have been sent is followed to its end."""
        flow = self.model
        is_working = bool(self.background.doing)
        return flow.step != "account" and not (is_working or flow.held.is_under_way)

    def _remember(self, step: str, parts: list[Any]) -> None:
        """Remember what a step shows, and forget what was shown by later ones, as somebody may have gone back."""
        later = STEPS[STEPS.index(step) :]
        for name in later:
            self._seen.pop(name, None)
        texts = [part for part in parts if isinstance(part, str)]
        if step == "account":
            texts = [self._terms_html()]
        self._seen[step] = "".join(texts)

    def _terms_html(self) -> str:
        """Return the terms that are entered, as a table."""
        state = self.state
        account = "not chosen yet" if state.account is None else state.account
        max_fee = "the relayer's quote" if state.max_fee is None else state.max_fee
        lines = [
            Line("Account", account),
            Line("Fee in", state.fee_token),
            Line("Max fee", max_fee),
            Line("Valid for", state.valid_for),
        ]
        return sheet_html(Sheet("Terms", lines))

    def _parts(self, step: str) -> list[Any]:
        """Return what a step shows, as HTML and widgets."""
        flow = self.model
        if step == "account":
            return [self.terms]
        if step == "key":
            return [
                self._account_facts(),
                *self._signing_parts(SEED),
                self.seed,
            ]
        if step == "preview":
            return [sheet_html(flow.preview)]
        if step == "submit":
            return [f"<p>{SUBMIT}</p>"]
        if step == "follow":
            return [self._progress_html()]
        # It was typed one step before, and is asked for once.
        if flow.held.signer is not None:
            return [f"<p>{DEMO_HELD if flow.held.by_demo else KEY_HELD}</p>"]
        return self._signing_parts(DATA)

    def _signing_parts(self, explanation: str) -> list[Any]:
        """Return what a wallet signs, and the ways to sign it."""
        parts = [self.way]
        text = self.model.to_sign
        if self.state.way == "key":
            parts += [f"<p>{KEY_WARNING}</p>", self.private_key]
        elif text is None:
            parts += [f"<p>{OWN_SEED}</p>", self.signature]
        else:
            pre = f'<pre tabindex="0" aria-label="To sign">{escape(text)}</pre>'
            parts += [
                f"<p>{explanation}</p>{pre}",
                self.signature,
            ]
        if self.model.has_demo_wallet:
            parts.append(self.demo)
        return parts

    def _progress_html(self) -> str:
        held = self.model.held
        # Before there is an answer, it is in none of the states.
        status = held.receipt.status if held.receipt is not None else ""
        # There are two ends, and only the one that came is shown.
        end = FAILED if status == FAILED else PROCESSED
        html = ordered_list((RECEIVED, PROCESSING, end), status, "States")
        if held.is_under_way:
            html += f"<p>{SENT}</p>"
        if held.finished:
            html += f"<p>{DONE}</p>{self._account_facts()}"
        if held.by_demo:
            html += f"<p>{DEMO_SIGNED}</p>"
        return html

    def _account_facts(self) -> str:
        """Describe the account, without its key seed, as that may be one that was typed."""
        account = self.model.held.account
        if account is None:
            return ""
        pending = "no"
        if account.frozen:
            pending = "an update is pending: a second one is refused"
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

    def _field(
        self,
        name: str,
        label: str,
        kind: Any = w.Text,
        **options: Any,
    ) -> Any:
        # The value does not change while somebody types: half an account id is another account.
        field = kind(
            description=label,
            continuous_update=False,
            **options,
        )
        return self.bind(name, field)


def ordered_list(names: tuple[str, ...], current: str, label: str) -> str:
    """Return names as HTML, of which one is marked as the current step."""
    items = []
    for name in names:
        # Bold in the text itself, because a saved copy has no style sheet.
        mark = ' style="font-weight:700" aria-current=step' if name == current else ""
        items.append(f"<li{mark}>{escape(name)}</li>")
    return f'<ol aria-label="{label}">{"".join(items)}</ol>'


def sheet_html(sheet: Sheet) -> str:
    """Return a table of fields as HTML that scrolls by itself."""
    return f'<div class="ll-sheet">{scrolling(sheet)}</div>'
