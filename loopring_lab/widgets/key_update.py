"""The key-update wizard: its steps, what each needs, and the secrets it holds meanwhile."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from traitlets import Int, Unicode

from loopring_lab.client import Client
from loopring_lab.errors import KeyUpdateError, LabError
from loopring_lab.keys import KeyUpdate, Receipt, Signer
from loopring_lab.keys.deployments import Trust
from loopring_lab.keys.receipts import poll_until_final
from loopring_lab.keys.request import parse_valid_until
from loopring_lab.keys.signers import sign_text, sign_typed_data
from loopring_lab.models import FINAL_STATES, UPDATE_STATES, Account
from loopring_lab.preview import Sheet
from loopring_lab.redaction import SecretBytes, SecretText, hide
from loopring_lab.widgets.background import ReportProgress, WidgetState
from loopring_lab.widgets.traits import ParsedTrait, check_choices, parse_account, parse_choice, parse_text

STEPS = ("account", "key", "preview", "sign", "submit", "follow")
INSTRUCTIONS = {
    "account": "Nothing is prepared yet. Choose an account, and take the next step.",
    "key": "The new key does not exist yet. Let the wallet sign the text, and give its signature.",
    "sign": "The update is not signed yet. Let the wallet sign it, and give its signature.",
}
WITHHELD = "the text you typed; sent, but not shown here"
LONGEST_PAUSE, PREVIEW_PAUSE = 0.5, 1.0
NO_DEMO = (
    "There is no demo wallet for this account: only the embedded relayer's own accounts have one. Choose one "
    "of client.accounts, or sign with the account's wallet."
)
SIGNED = ("update.key_seed_message()", "json.dumps(update.typed_data())")
IMPORTS = {
    "getpass.": "import getpass",
    "json.": "import json",
    "Account.": "from eth_account import Account",
    "lab.": "import loopring_lab as lab",
    "embedded()": "from loopring_lab.relayer import embedded",
    "running(": "from loopring_lab.relayer import running",
}
"""What exported code imports, by what in it needs that."""
CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""Order of secp256k1: private keys lie between 0 and it."""

if TYPE_CHECKING:
    from loopring_lab.relayer import Relayer

Value = TypeVar("Value")


class DemoWallet(NamedTuple):
    """What signs for an account of an embedded relayer, and the wallet's contract if that owns it."""

    signer: Signer
    counterfactual: Mapping[str, str] | None

    def __repr__(self) -> str:
        return f"DemoWallet({self.signer.address})"


@dataclass(repr=False, slots=True)
class WizardState:
    """What the wizard holds: the account, the update at each stage, a signer, the receipt.

    ``demo`` names what a demo wallet gave, if one signed.
    """

    account: Account | None = None
    prepared: KeyUpdate | None = None
    keyed: KeyUpdate | None = None
    signed: KeyUpdate | None = None
    signer: Signer | None = None
    receipt: Receipt | None = None
    own_seed: bool = False
    demo: tuple[str, ...] = ()
    finished: bool = False

    @property
    def update(self) -> KeyUpdate | None:
        """The update at its latest stage."""
        return self.signed or self.keyed or self.prepared


def parse_lifetime(name: str, value: Any) -> str:
    """Accept how long an update stays valid, such as 30d."""
    parse_valid_until(str(value).strip())
    return str(value).strip()


class KeyUpdateWizard(WidgetState):
    """Update the L2 key of an account, step by step: account, key, preview, sign, submit, follow.

    A typed signature, private key or key seed goes to the kernel as a message and is hidden there; it never
    becomes part of the widget's state, of the notebook file, or of an error.

    Parameters
    ----------
    client : Client
        From `connect`.
    counterfactual : Counterfactual or mapping, optional
        As for `KeyUpdate.prepare`: the wallet that owns the account, if it is not deployed yet.
    trust : mapping or str, optional
        As for `KeyUpdate.prepare`: what to trust where the exchange is not known.
    **choices
        Initial values: ``account``, ``fee_token``, ``max_fee``, ``valid_for`` (such as '30d') and
        ``way`` ('wallet' elsewhere, or 'key' for a private key typed here).

    Examples
    --------
    >>> wizard = lab.widgets.KeyUpdateWizard(client, account=10083)
    >>> wizard.next()
    >>> wizard.wait()
    >>> wizard.step
    'key'
    """

    ABOUT = "an update of an account's L2 key, step by step"
    VIEW = "wizard_view.WizardView"
    CHOICES = ("account", "fee_token", "max_fee", "valid_for", "way")

    step = Unicode(STEPS[0], read_only=True)
    account = ParsedTrait(parse_account)
    fee_token = ParsedTrait(parse_text, "ETH")
    max_fee = ParsedTrait(parse_text)
    valid_for = ParsedTrait(parse_lifetime, "30d")
    way = ParsedTrait(parse_choice("wallet", "key"), "wallet")
    version = Int()

    def __init__(self, client: Client, counterfactual: Any = None, trust: Trust = None, **choices: Any) -> None:
        if not isinstance(client, Client):
            raise LabError(f"{type(self).__name__}: expected a client. Give lab.connect().")
        self._client, self._held = client, WizardState()
        self._given = {"counterfactual": counterfactual, "trust": trust}
        super().__init__(**check_choices(choices, self.CHOICES, type(self).__name__))

    @property
    def held(self) -> WizardState:
        """What the wizard holds so far: the account, its update, a typed key's signer, the receipt."""
        return self._held

    @property
    def receipt(self) -> Receipt | None:
        """The relayer's receipt, once the update is submitted."""
        with self.lock:  # whoever sees the receipt also sees the step that it led to
            return self._held.receipt

    @property
    def client(self) -> Client:
        """The client of the relayer."""
        return self._client

    @property
    def has_demo_wallet(self) -> bool:
        """Whether the account's wallet is a throwaway of a relayer in this process; never of a live one."""
        relayer = self._relayer
        return relayer is not None and self.account in relayer.accounts

    @property
    def to_sign(self) -> str | None:
        """What the wallet signs at this step; None if nothing, or if it must not be shown."""
        if self.step == "sign" and self._held.keyed is not None:
            return json.dumps(self._held.keyed.typed_data(), indent=2)
        if self.step == "key" and self._held.prepared is not None and not self._held.own_seed:
            return self._held.prepared.key_seed_message()
        return None

    @property
    def preview(self) -> Sheet:
        """Every field of the request; secrets and a typed key seed are withheld."""
        sheet = self._require(self._held.update).preview()
        lines = sheet.lines
        if self._held.own_seed:
            lines = [line._replace(value=WITHHELD) if line.field == "keySeed" else line for line in lines]
        return Sheet(sheet.title, lines)

    def next(self) -> None:
        """Take the next step; long work runs in a thread, and `wait` waits for it."""
        if self.step == "account":
            self._prepare(None)
        elif self.step == "key":
            raise KeyUpdateError(INSTRUCTIONS["key"])
        elif self.step == "preview":
            self._go_to("sign")
        elif self.step == "sign":
            self.sign()
        elif self.step == "submit":
            update = self._require(self._held.signed)
            self.begin("Submitting the update", lambda _: update.submit(), self._submitted)
        else:
            self.follow()

    def use_demo_wallet(self) -> None:
        """Let the embedded relayer's throwaway wallet sign, and go through all steps from here to the end."""
        relayer, account = self._relayer, self.account
        if relayer is None or account is None or not self.has_demo_wallet:
            raise KeyUpdateError(NO_DEMO)
        if self.step == "follow":
            raise KeyUpdateError("The update is submitted already. Follow it, or start over.")
        wallet = DemoWallet(relayer.signer(account), relayer.counterfactual(account))
        if wallet.counterfactual and not self._given["counterfactual"]:
            self.start_over()
        self._demo_step(wallet)

    def _demo_step(self, wallet: DemoWallet | None) -> None:
        """Take the next step with a demo wallet, unless the step before was taken without one."""

        def sign_next(_: None) -> None:
            self._go_to("sign")
            self._demo_step(wallet)

        if wallet is None:
            return
        if self.step == "account":
            self._prepare(None, wallet)
        elif self.step in ("key", "sign"):
            self._sign_with(lambda: wallet.signer, wallet)
        elif self.step == "preview":
            shown = "The preview, before the demo wallet signs"
            self.begin(shown, lambda _: time.sleep(PREVIEW_PAUSE), sign_next)
        else:
            self.next()

    def back(self) -> None:
        """Go back a step and forget the secrets of later ones; other choices are kept."""
        with self.lock:  # while a submission succeeds, either wins whole
            if self.step == "follow":
                raise KeyUpdateError("The update was sent, so it cannot be taken back. Follow it, or start over.")
            self._drop()
            previous = STEPS[max(0, STEPS.index(self.step) - 1)]
            self._held.signed = None
            if previous in ("account", "key"):
                self._held.keyed = self._held.signer = None
            if previous == "account":
                self._held = WizardState()
            self._go_to(previous)

    def start_over(self) -> None:
        """Return to the first step and forget everything but the choices."""
        with self.lock:
            self._drop()
            self._held = WizardState()
            self._go_to(STEPS[0])

    def give_seed(self, key_seed: str) -> None:
        """Use your own key seed, ending in ``with key nonce: <nonce>``; it is sent, but never shown here."""
        hidden: SecretText = hide(key_seed)
        del key_seed
        self._require(self._held.prepared)
        self._prepare(hidden)

    def give_key(self, private_key: str) -> None:
        """Sign with a private key in hex, held hidden until the update is signed or the step left."""
        hidden: SecretText = hide(private_key)
        del private_key
        self._require(self._held.prepared)
        self._sign_with(lambda: signer_from_private_key(hidden))

    def sign(self) -> None:
        """Sign the update with the private key that is held."""
        signer = self._require(self._held.signer)
        self._sign_with(lambda: signer)

    def give_signature(self, signature: str) -> None:
        """Attach a wallet's signature of `to_sign`, ``0x`` and 130 hex digits."""
        hidden: SecretText = hide(signature)
        del signature
        unsigned = self._require(self._held.keyed if self.step == "sign" else self._held.prepared)
        self.begin("Checking the signature", lambda _: copy.copy(unsigned).attach(hidden.strip()), self._attached)

    def follow(self) -> None:
        """Wait for the update in a thread; `cancel` stops the waiting, not the update."""
        receipt = self._held.receipt
        if receipt is None:
            raise KeyUpdateError("The update is not submitted yet. Complete the steps before this one.")

        def wait(report: ReportProgress) -> Account:
            for status in poll_until_final(receipt, longest_pause=LONGEST_PAUSE):
                if status not in FINAL_STATES:
                    report(UPDATE_STATES.index(status), len(FINAL_STATES))
            return receipt.wait(progress=False)

        self.begin("Waiting for the relayer", wait, self._processed)

    def new_client(self) -> Client:
        """Return a client with an API key of the new L2 key: the old API keys are void."""
        if self._held.signed is None or not self._held.finished:
            raise KeyUpdateError("The account does not have the new key yet. Follow the update to its end.")
        key = self._held.signed.l2_key
        return self._client.with_api_key(self._client.api_key(key, self.account))

    def export(self) -> str:
        """Return code for the steps so far: it connects, asks for what is secret, and runs as it is."""
        terms = {"account_id": self.account} | self._terms
        given = [f"{name}={value!r}" for name, value in terms.items() if value is not None]
        if self._held.demo:
            given += [f"{each}=relayer.{each}({self.account})" for each in self._held.demo]
        elif self.way == "key":
            given.append("signer=Account.from_key(getpass.getpass('Private key: '))")
        if self._held.own_seed:
            given.append("key_seed=getpass.getpass('Key seed: ')")
        lines = [*self._connecting, "update = lab.KeyUpdate.prepare(", "    client,"]
        lines += [*(f"    {each}," for each in given), ")"]
        if self.way == "wallet" and not self._held.demo:
            signatures = (self.step != "account") + (self.step in ("submit", "follow"))
            lines += [f"update.attach(getpass.getpass({text}))" for text in SIGNED[:signatures]]
        lines.append("update.submit().wait()" if self.step == "follow" else "update.preview()")
        code = "\n".join(lines)
        return "\n".join([*(line for name, line in IMPORTS.items() if name in code), "", code])

    @property
    def _relayer(self) -> Relayer | None:
        """The relayer in this process that the client asks, if it is one."""
        from loopring_lab.relayer import running

        return running(self._client._transport.base_url)

    @property
    def _connecting(self) -> list[str]:
        """Code that makes the client, and the embedded relayer where that is needed."""
        from loopring_lab.relayer import embedded

        relayer, transport = self._relayer, self._client._transport
        if relayer is None:
            asks = transport._key is not None and "LOOPRING_API_KEY" not in os.environ
            key = ", api_key=getpass.getpass('API key: ')" if asks else ""
            return [f"client = lab.connect({transport.base_url!r}{key})"]
        if embedded.cache_info().currsize and embedded() is relayer:
            return ["client = lab.connect()", *(["relayer = embedded()"] if self._held.demo else [])]
        return [
            f"relayer = running({relayer.base_url!r})",
            "client = lab.connect(relayer.base_url, api_key=relayer.api_key)",
        ]

    @property
    def _terms(self) -> dict[str, Any]:
        terms = {"fee_token": self.fee_token, "max_fee": self.max_fee, "valid_for": self.valid_for}
        return terms | self._given

    def _prepare(self, key_seed: SecretText | None, wallet: DemoWallet | None = None) -> None:
        account_id = self.account
        if account_id is None:
            raise KeyUpdateError("No account is selected. Give an account id, such as 10083.")
        client, own_seed = self._client, key_seed is not None
        terms = self._terms | {"key_seed": key_seed}
        if wallet is not None and wallet.counterfactual:
            terms["counterfactual"] = wallet.counterfactual

        def prepare(_: object) -> WizardState:
            account = client.account(account_id)
            update = KeyUpdate.prepare(client, account_id=account_id, **terms)
            return WizardState(account, update, own_seed=own_seed)

        self.begin(f"Reading account {account_id}", prepare, lambda held: self._prepared(held, wallet))

    def _prepared(self, held: WizardState, wallet: DemoWallet | None) -> None:
        self._held = held
        self._go_to("key")
        self._demo_step(wallet)

    def _sign_with(self, make_signer: Callable[[], Signer], wallet: DemoWallet | None = None) -> None:
        """Sign the key seed or the update, depending on the step, in a thread."""
        signs_seed = self.step != "sign"
        unsigned = self._require(self._held.prepared if signs_seed else self._held.keyed)

        def sign(_: object) -> tuple[KeyUpdate, Signer]:
            signer, update = make_signer(), copy.copy(unsigned)
            if signs_seed:
                signature = sign_text(signer, update.key_seed_message())
            else:
                signature = sign_typed_data(signer, update.typed_data())
            return update.attach(signature), signer

        doing = "Signing" if wallet is None else "The demo wallet signs"
        self.begin(doing, sign, lambda signed: self._attached(*signed, wallet))

    def _attached(self, update: KeyUpdate, signer: Signer | None = None, wallet: DemoWallet | None = None) -> None:
        self._held.demo = () if wallet is None else tuple(n for n, v in wallet._asdict().items() if v)
        if self.step == "sign":
            self._held.signed, self._held.signer = update, None
            self._go_to("submit")
        else:
            self._held.keyed, self._held.signer = update, signer
            self._go_to("preview")
        self._demo_step(wallet)

    def _submitted(self, receipt: Receipt) -> None:
        self._held.receipt = receipt
        self._go_to("follow")
        self.follow()

    def _processed(self, account: Account) -> None:
        self._held.account, self._held.finished = account, True
        self.version += 1

    def _go_to(self, step: str) -> None:
        self.problem = ""
        self.set_trait("step", step)
        self.version += 1

    def _require(self, value: Value | None) -> Value:
        if value is None:
            raise KeyUpdateError(INSTRUCTIONS.get(self.step, INSTRUCTIONS["account"]))
        return value


def signer_from_private_key(private_key: SecretText) -> Signer:
    """Return a signer that holds a wallet's private key."""
    from eth_account import Account as Wallet

    try:
        data = SecretBytes.fromhex(private_key.strip().removeprefix("0x"))
    except ValueError:
        data = SecretBytes()
    if len(data) != 32 or not 0 < int.from_bytes(data, "big") < CURVE_ORDER:
        raise KeyUpdateError("private key: expected 64 hex digits, with or without 0x. Type it again.")
    signer: Signer = Wallet.from_key(data)
    return signer
