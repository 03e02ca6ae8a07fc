"""The key-update wizard, without a view: its steps, what each needs, and the secrets it holds meanwhile."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from traitlets import Int, Unicode

from loopring_lab.client import Client
from loopring_lab.errors import KeyUpdateError, LabError
from loopring_lab.keys import KeyUpdate, Receipt, Signer
from loopring_lab.keys.request import parse_valid_until
from loopring_lab.keys.signers import sign_text, sign_typed_data
from loopring_lab.models import UPDATE_STATES, Account
from loopring_lab.preview import Sheet
from loopring_lab.redaction import SecretBytes, SecretText, hide
from loopring_lab.widgets.background import Report, Working
from loopring_lab.widgets.traits import Choice, account_number, named, one_of, text

ENDS = UPDATE_STATES[2:]
PAUSE, LONGEST = 0.05, 0.5
CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@dataclass(repr=False, slots=True)
class Held:
    """What a wizard holds: the account, its update as far as it is made, a signer, a receipt."""

    account: Account | None = None
    prepared: KeyUpdate | None = None
    keyed: KeyUpdate | None = None
    signed: KeyUpdate | None = None
    signer: Signer | None = None
    receipt: Receipt | None = None
    own_seed: bool = False
    finished: bool = False

    @property
    def update(self) -> KeyUpdate | None:
        """The update as far as it is made."""
        return self.signed or self.keyed or self.prepared


def lifetime(name: str, value: Any) -> str:
    """Take how long an update may be processed."""
    parse_valid_until(str(value).strip())
    return str(value).strip()


def wallet(private_key: SecretText) -> Signer:
    """Make a signer of a wallet's private key."""
    from eth_account import Account as Wallet

    try:
        data = SecretBytes.fromhex(private_key.strip().removeprefix("0x"))
    except ValueError:
        data = SecretBytes()
    if len(data) != 32 or not 0 < int.from_bytes(data, "big") < CURVE_ORDER:
        raise KeyUpdateError("private key: expected 64 hex digits, with or without 0x. Type it again.")
    signer: Signer = Wallet.from_key(data)
    return signer


def ended(receipt: Receipt, report: Report) -> Account:
    """Follow an update to its end."""
    pause = PAUSE
    while receipt.poll() not in ENDS:
        report(UPDATE_STATES.index(receipt.status), len(ENDS))
        time.sleep(pause)
        pause = min(LONGEST, pause * 1.5)
    return receipt.wait(progress=False)


Known = TypeVar("Known")

STEPS = ("account", "key", "preview", "sign", "submit", "follow")
MISSING = {
    "account": "Nothing is prepared yet. Choose an account, and take the next step.",
    "key": "The new key is not made yet. Let the wallet sign the text, and give its signature.",
    "sign": "The update is not signed yet. Let the wallet sign it, and give its signature.",
}
WITHHELD = "the text you typed; sent, but not shown here"


class Update(Working):
    """An update of a key, step by step.

    Parameters
    ----------
    client : Client
        From `connect`.
    counterfactual : Counterfactual or mapping, optional
        As for `KeyUpdate.prepare`.
    **choices
        What to begin with, by the names below.

    Attributes
    ----------
    step : {'account', 'key', 'preview', 'sign', 'submit', 'follow'}
        Where it is.
    account : int or None
        Whose key.
    fee_token : str
        Symbol of the token the fee is paid in.
    max_fee : str or None
        Most to pay, units of that token; None for what the relayer asks for.
    valid_for : str
        How long the relayer may take.
    way : {'wallet', 'key'}
        Signatures of a wallet elsewhere, or a private key that is typed here.
    version : int
        Counts what became known or was forgotten.
    """

    CHOICES = ("account", "fee_token", "max_fee", "valid_for", "way")

    step = Unicode(STEPS[0], read_only=True)
    account = Choice(account_number)
    fee_token = Choice(text, "ETH")
    max_fee = Choice(text)
    valid_for = Choice(lifetime, "30d")
    way = Choice(one_of("wallet", "key"), "wallet")
    version = Int()

    def __init__(self, client: Client, counterfactual: Any = None, **choices: Any) -> None:
        if not isinstance(client, Client):
            raise LabError(f"{type(self).__name__}: expected a client. Give lab.connect().")
        self._client, self._counterfactual, self._held = client, counterfactual, Held()
        super().__init__(**named(choices, self.CHOICES, type(self).__name__))

    @property
    def held(self) -> Held:
        """What is known so far: the account, its update, a signer of a typed key, the receipt."""
        return self._held

    @property
    def receipt(self) -> Receipt | None:
        """The relayer's receipt, once it was submitted."""
        return self._held.receipt

    @property
    def client(self) -> Client:
        """The client it asks."""
        return self._client

    @property
    def to_sign(self) -> str | None:
        """What a wallet signs at this step, as text; None where nothing, or where it must not be shown."""
        if self.step == "sign" and self._held.keyed is not None:
            return json.dumps(self._held.keyed.typed_data(), indent=2)
        if self.step == "key" and self._held.prepared is not None and not self._held.own_seed:
            return self._held.prepared.key_seed_message()
        return None

    @property
    def preview(self) -> Sheet:
        """Every field that would be sent; secrets and a typed key seed withheld.

        Raises
        ------
        KeyUpdateError
            Nothing is prepared yet.
        """
        sheet = self._known(self._held.update).preview()
        hidden = {"keySeed"} if self._held.own_seed else set()
        lines = [line._replace(value=WITHHELD) if line.field in hidden else line for line in sheet.lines]
        return Sheet(sheet.title, lines)

    def next(self) -> None:
        """Take the next step; long work is done in a thread, and `wait` waits for it.

        Raises
        ------
        LabError
            Something is missing; the step stays.
        """
        if self.step == "account":
            self._prepare(None)
        elif self.step == "key":
            raise KeyUpdateError(MISSING["key"])
        elif self.step == "preview":
            self._go("sign")
        elif self.step == "sign":
            self.sign()
        elif self.step == "submit":
            self.begin(
                "Submitting the update", lambda _: self._known(self._held.signed).submit(), self._submitted
            )
        else:
            self.follow()

    def back(self) -> None:
        """Go back a step, forgetting the secrets that belong to later ones; other choices are kept.

        Raises
        ------
        KeyUpdateError
            The update was sent.
        """
        if self.step == "follow":
            raise KeyUpdateError("The update was sent and cannot be taken back. Follow it, or start over.")
        self._drop()
        to = STEPS[max(0, STEPS.index(self.step) - 1)]
        self._held.signed = None
        if to in ("account", "key"):
            self._held.keyed = self._held.signer = None
        if to == "account":
            self._held = Held()
        self._go(to)

    def start_over(self) -> None:
        """Go to the first step and forget everything but the choices."""
        self._drop()
        self._held = Held()
        self._go(STEPS[0])

    def give_seed(self, key_seed: str) -> None:
        """Take an own text whose signature makes the key, in place of the usual one.

        Parameters
        ----------
        key_seed : str
            Ends in ``with key nonce: <nonce>``. It is sent with the update, but never shown here.

        Raises
        ------
        KeyUpdateError
            Nothing is prepared yet.
        """
        hidden: SecretText = hide(key_seed)
        del key_seed
        self._known(self._held.prepared)
        self._prepare(hidden)

    def give_key(self, private_key: str) -> None:
        """Take a wallet's private key: it makes the new key, or signs the update, in a thread.

        Parameters
        ----------
        private_key : str
            Hex. Held hidden until the update is signed or the step is left, and never shown.

        Raises
        ------
        KeyUpdateError
            Nothing is prepared yet.
        """
        hidden: SecretText = hide(private_key)
        del private_key
        self._known(self._held.prepared)
        self._use(lambda: wallet(hidden))

    def sign(self) -> None:
        """Let the private key that is held sign the update.

        Raises
        ------
        KeyUpdateError
            None is held.
        """
        signer = self._known(self._held.signer)
        self._use(lambda: signer)

    def give_signature(self, signature: str) -> None:
        """Take a wallet's signature of what `to_sign` says, in a thread.

        Parameters
        ----------
        signature : str
            ``0x`` and 130 hex digits.

        Raises
        ------
        KeyUpdateError
            Nothing is prepared yet.
        """
        hidden: SecretText = hide(signature)
        del signature
        base = self._known(self._held.keyed if self.step == "sign" else self._held.prepared)
        self.begin("Checking the signature", lambda _: copy.copy(base).attach(hidden.strip()), self._attached)

    def follow(self) -> None:
        """Follow the update to its end, in a thread; `cancel` stops waiting, not the update.

        Raises
        ------
        KeyUpdateError
            It was not submitted.
        """
        receipt = self._held.receipt
        if receipt is None:
            raise KeyUpdateError("The update is not submitted yet. Take the steps before this one.")
        self.begin("Waiting for the relayer", lambda report: ended(receipt, report), self._done)

    def new_client(self) -> Client:
        """Return the client with an API key that the new L2 key asks for: the old ones are void.

        Returns
        -------
        Client
            Another one.

        Raises
        ------
        KeyUpdateError
            The update is not at its end.
        RelayerError, TransportError, UnexpectedAnswer
            The relayer refuses, cannot be reached, or answers something else.
        """
        if self._held.signed is None or not self._held.finished:
            raise KeyUpdateError("The account does not carry the new key yet. Follow the update to its end.")
        key = self._held.signed.l2_key
        return self._client.with_api_key(self._client.api_key(key, self.account))

    def export(self) -> str:
        """Write the code cell that does what the steps so far did.

        Returns
        -------
        str
            Python, without any secret. It uses ``client``, and ``signer`` where a private key is typed.
        """
        terms = {"account_id": self.account} | self._terms
        given = [f"{name}={value!r}" for name, value in terms.items() if value is not None]
        given += ["signer=signer"] * (self.way == "key") + ["key_seed=key_seed"] * self._held.own_seed
        lines = [f"update = lab.KeyUpdate.prepare(client, {', '.join(given)})"]
        if self.way == "wallet" and self.step != "account":
            lines.append("update.attach(getpass.getpass(update.key_seed_message()))")
        if self.way == "wallet" and self.step in ("submit", "follow"):
            lines.append("update.attach(getpass.getpass(json.dumps(update.typed_data())))")
        lines.append("update.submit().wait()" if self.step == "follow" else "update.preview()")
        modules = [
            f"import {name}" for name in ("getpass", "json") if any(f"{name}." in one for one in lines)
        ]
        return "\n".join([*modules, *lines])

    @property
    def _terms(self) -> dict[str, Any]:
        terms = {"fee_token": self.fee_token, "max_fee": self.max_fee, "valid_for": self.valid_for}
        return terms | {"counterfactual": self._counterfactual}

    def _prepare(self, key_seed: SecretText | None) -> None:
        number = self.account
        if number is None:
            raise KeyUpdateError("No account is chosen. Give its number, such as 10083.")
        client, own = self._client, key_seed is not None
        terms = self._terms | {"key_seed": key_seed}

        def prepare(_: object) -> tuple[Account, KeyUpdate]:
            return client.account(number), KeyUpdate.prepare(client, account_id=number, **terms)

        self.begin(f"Asking about account {number}", prepare, lambda found: self._prepared_as(*found, own))

    def _prepared_as(self, account: Account, update: KeyUpdate, own_seed: bool) -> None:
        self._held = Held(account, update, own_seed=own_seed)
        self._go("key")

    def _use(self, signer_of: Callable[[], Signer]) -> None:
        """Sign what this step is about, in a thread."""
        seed = self.step != "sign"
        base = self._known(self._held.prepared if seed else self._held.keyed)

        def sign(_: object) -> tuple[KeyUpdate, Signer]:
            signer, update = signer_of(), copy.copy(base)
            signature = (
                sign_text(signer, update.key_seed_message())
                if seed
                else sign_typed_data(signer, update.typed_data())
            )
            return update.attach(signature), signer

        self.begin("Signing", sign, lambda made: self._attached(*made))

    def _attached(self, update: KeyUpdate, signer: Signer | None = None) -> None:
        if self.step == "sign":
            self._held.signed, self._held.signer = update, None
            self._go("submit")
        else:
            self._held.keyed, self._held.signer = update, signer
            self._go("preview")

    def _submitted(self, receipt: Receipt) -> None:
        self._held.receipt = receipt
        self._go("follow")
        self.follow()

    def _done(self, account: Account) -> None:
        self._held.account, self._held.finished = account, True
        self.version += 1

    def _go(self, step: str) -> None:
        self.problem = ""
        self.set_trait("step", step)
        self.version += 1

    def _known(self, value: Known | None) -> Known:
        if value is None:
            raise KeyUpdateError(MISSING.get(self.step, MISSING["account"]))
        return value
