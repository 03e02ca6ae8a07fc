"""The view of the key-update wizard: one step at a time, secrets through fields that keep none."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w  # type: ignore[import-untyped]

from loopring_lab.replies import STATES
from loopring_lab.sheet import Line, Sheet
from loopring_lab.widgets.parts import Panel, labelled, row, seen, table_html
from loopring_lab.widgets.secret import SecretField
from loopring_lab.widgets.updating import STEPS, Update

__all__ = ["WizardView"]

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
    """The view of `Update`.

    Parameters
    ----------
    state : Update
        The update, step by step.
    """

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
        status = receipt.status if receipt else STATES[0]
        states = _list(STATES[:2] + (STATES[3:] if status == STATES[3] else STATES[2:3]), status, "States")
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
