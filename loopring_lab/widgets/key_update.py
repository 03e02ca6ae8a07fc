"""The key-update wizard: its steps, what each needs, and the secrets it holds meanwhile."""

from __future__ import annotations

import copy
import json
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from loopring_lab.errors import KeyUpdateError, LabError, RelayerError, TransportError
from loopring_lab.http.addresses import DAY
from loopring_lab.interactive.preview import Sheet
from loopring_lab.keys import KeyUpdate, Receipt, Signer, check_client
from loopring_lab.keys.deployments import Trust
from loopring_lab.keys.receipts import poll_until_final
from loopring_lab.keys.request import parse_valid_until
from loopring_lab.keys.signers import sign_text, sign_typed_data
from loopring_lab.protocol.fields import SECP256K1_ORDER
from loopring_lab.redaction import SecretBytes, SecretText, hide, hide_pasted
from loopring_lab.sources.client import Client
from loopring_lab.sources.records import FINAL_STATES, UPDATE_STATES, Account
from loopring_lab.widgets.background import ReportProgress
from loopring_lab.widgets.state import (
    Choice,
    WidgetState,
    one_of,
    parse_account,
    parse_text,
)

if TYPE_CHECKING:
    from loopring_lab.relayer import Relayer

STEPS = (
    "account",
    "key",
    "preview",
    "sign",
    "submit",
    "follow",
)
INSTRUCTIONS = {
    "account": "Nothing is prepared yet. Choose an account, and take the next step.",
    "key": "The new key does not exist yet. Let the wallet sign the text, and give its signature.",
    "sign": "The update is not signed yet. Let the wallet sign it, and give its signature.",
}
SEED_MISSING = (
    "Nothing is entered. Type your own text, or go on with the exchange's usual one."
)
KEY_MISSING = "Nothing is entered. Type the private key first: 64 hex digits."
WITHHELD = "the text you typed; sent, but not shown here"
# Seconds between two questions to the relayer: somebody is looking at the progress.
LONGEST_PAUSE = 0.5
NO_DEMO = (
    "There is no demo wallet for this account: only the embedded relayer's own accounts have one. Sign with "
    "the account's wallet."
)
# The imports of exported code, each by the text in it that needs the import.
IMPORTS = {
    "getpass.": "import getpass",
    "json.": "import json",
    "Account.": "from eth_account import Account",
    "lab.": "import loopring_lab as lab",
    "Counterfactual(": "from loopring_lab.keys import Counterfactual",
    "embedded()": "from loopring_lab.relayer import embedded",
    "running(": "from loopring_lab.relayer import running",
}

Value = TypeVar("Value")


def parse_lifetime(name: str, value: Any) -> str:
    """Accept how long an update stays valid, such as 30d."""
    # A field on a page has None for empty text, which is no lifetime either.
    text = "" if value is None else str(value).strip()
    parse_valid_until(text)  # raises where it is none
    return text


def parse_symbol(name: str, value: Any) -> str:
    """Accept the symbol of a token, such as ETH."""
    if not isinstance(value, str):
        empty = "" if value is None else value
        raise LabError(f"{name}={empty!r} names no token. Give a symbol, such as ETH.")
    return value


class KeyUpdateWizard(WidgetState):
    """Update the L2 key of an account, step by step: account, key, preview, sign, submit, follow.

    A typed signature, private key or key seed goes to the kernel as a message and is hidden there; it never
    becomes part of the widget's state, of the notebook file, or of an error. An update that may have been sent
    cannot be cancelled: the wizard follows it to its end, and so does a new one for the same account, as when its
    cell is run again. From code, `KeyUpdate` does the same.

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
    >>> wizard.step
    'account'
    """

    ABOUT = "an update of an account's L2 key, step by step"
    CHOICES = (
        "account",
        "fee_token",
        "max_fee",
        "valid_for",
        "way",
    )

    account = Choice(parse_account)
    # The default of `KeyUpdate.prepare`.
    fee_token = Choice(parse_symbol, "ETH")
    max_fee = Choice(parse_text)
    valid_for = Choice(parse_lifetime, "30d")
    # The wallet comes first, because a key that is typed is known to more than the wallet.
    way = Choice(one_of("wallet", "key"), "wallet")

    model: KeyUpdateFlow
    _view_class = ("wizard_view", "WizardView")

    def __init__(
        self,
        client: Client,
        counterfactual: Any = None,
        trust: Trust = None,
        **choices: Any,
    ) -> None:
        check_client(client)
        super().__init__(choices)
        given = {
            "counterfactual": counterfactual,
            "trust": trust,
        }
        self.model = KeyUpdateFlow(self, client, given)
        sent = under_way(client.base_url, self.account)
        if sent is not None:
            # The cell was run again: a new wizard that began anew would leave it open what becomes of the update.
            self.background = sent.choices.background
            for name in self.CHOICES:
                setattr(self, name, getattr(sent.choices, name))
            self.model = KeyUpdateFlow(self, client, sent.given, sent.held)

    @property
    def step(self) -> str:
        """The step on screen, one of account, key, preview, sign, submit, follow."""
        return self.model.step

    def new_client(self) -> Client:
        """Return a client with an API key of the new L2 key: the old API keys are void."""
        return self.model.new_client()


@dataclass(repr=False, slots=True)
class Held:
    """What a wizard holds: its step, the account, the update at each stage, a signer, the receipt.

    It has no repr, because of the signer.
    """

    step: str = STEPS[0]
    account: Account | None = None
    # The terms of what is prepared, without a key seed.
    terms: dict[str, Any] | None = None
    prepared: KeyUpdate | None = None
    keyed: KeyUpdate | None = None
    signed: KeyUpdate | None = None
    signer: Signer | None = None
    receipt: Receipt | None = None
    own_seed: bool = False
    # Whether a demo wallet has signed.
    by_demo: bool = False
    finished: bool = False
    # Whether the account will never have the new key by this update.
    failed: bool = False

    @property
    def update(self) -> KeyUpdate | None:
        """The update at its latest stage."""
        return self.signed or self.keyed or self.prepared

    @property
    def is_under_way(self) -> bool:
        """Whether the update may have been sent, and has not ended."""
        return self.step == "follow" and not (self.finished or self.failed)


class KeyUpdateFlow:
    """The steps of a key update: where it is, what it holds, and what leads on and back."""

    def __init__(
        self,
        choices: KeyUpdateWizard,
        client: Client,
        given: dict[str, Any],
        held: Held | None = None,
    ) -> None:
        self.choices = choices
        self.client = client
        self.given = given
        self.held = held or Held()
        self._background = choices.background
        _flows.add(self)

    @property
    def step(self) -> str:
        """The step on screen."""
        return self.held.step

    @property
    def has_demo_wallet(self) -> bool:
        """Whether the account's wallet is a throwaway of a relayer in this process; never of a live one."""
        relayer = self._relayer
        return relayer is not None and self._account in relayer.accounts

    @property
    def to_sign(self) -> str | None:
        """What the wallet signs at this step; None if nothing, or if it must not be shown."""
        held = self.held
        if self.step == "sign" and held.keyed is not None:
            return json.dumps(held.keyed.typed_data(), indent=2)
        if self.step == "key" and held.prepared is not None and not held.own_seed:
            return held.prepared.key_seed_message()
        return None

    @property
    def preview(self) -> Sheet:
        """Every field of the request; secrets and a typed key seed are withheld."""
        sheet = self._require(self.held.update).preview()
        if self.held.own_seed:
            for number, line in enumerate(sheet.lines):
                if line.field == "keySeed":
                    sheet.lines[number] = line._replace(value=WITHHELD)
        return Sheet(sheet.title, sheet.lines)

    # The way on

    def next(self) -> None:
        """Take the next step; long work runs in the background."""
        if self.step == "account":
            self._prepare(None)
        elif self.step == "key":
            # Only a signature leads on from here, and that is given in its field.
            raise KeyUpdateError(INSTRUCTIONS["key"])
        elif self.step == "preview":
            self.held.step = "sign"
        elif self.step == "sign":
            signer = self._require(self.held.signer)
            self._sign_with(lambda: signer)
        elif self.step == "submit" or self.held.receipt is None:
            self._submit()
        else:
            self._follow()

    def give_seed(self, key_seed: str) -> None:
        """Use your own key seed, ending in ``with key nonce: <nonce>``; it is sent, but never shown here."""
        # The seed is hidden first of all, so that the frame of a later error holds no plain text.
        hidden: SecretText = hide(key_seed)
        del key_seed
        self._require(self.held.prepared)
        if not hidden.strip():
            raise KeyUpdateError(SEED_MISSING)
        self._prepare(hidden)

    def give_key(self, private_key: str) -> None:
        """Sign with a private key in hex, held hidden until the update is signed or the step left."""
        hidden: SecretText = hide_pasted(private_key)
        del private_key
        wallet = self._unsigned().signer_address
        self._sign_with(lambda: signer_from_private_key(hidden, wallet))

    def give_signature(self, signature: str) -> None:
        """Attach a wallet's signature of `to_sign`, ``0x`` and 130 hex digits."""
        hidden: SecretText = hide(signature)
        del signature
        unsigned = self._unsigned()

        def attach(_: object) -> KeyUpdate:
            # This works on a copy, because the work may be cancelled half-way.
            return copy.copy(unsigned).attach(hidden.strip())

        self._background.begin("Checking the signature", attach, self._attached)

    def use_demo_wallet(self) -> None:
        """Let the embedded relayer's throwaway wallet sign at this step."""
        relayer = self._relayer
        account = self._account
        if relayer is None or account is None or not self.has_demo_wallet:
            raise KeyUpdateError(NO_DEMO)
        signer = relayer.signer(account)
        self._unsigned()
        self.held.by_demo = True
        self._sign_with(lambda: signer)

    def new_client(self) -> Client:
        """Return a client with an API key of the new L2 key."""
        if self.held.signed is None or not self.held.finished:
            raise KeyUpdateError(
                "The account does not have the new key yet. Follow the update to its end."
            )
        key = self.held.signed.l2_key
        return self.client.with_api_key(self.client.api_key(key, self._account))

    def _prepare(self, key_seed: SecretText | None) -> None:
        account_id = self._account
        if account_id is None:
            raise KeyUpdateError(
                "No account is selected. Give an account id, such as 10083."
            )
        # The terms are read now, so that those shown when the step is taken are used.
        terms = self._terms

        def prepare(_: object) -> Held:
            account = self.client.account(account_id)
            update = KeyUpdate.prepare(
                self.client,
                account_id=account_id,
                key_seed=key_seed,
                **terms,
            )
            own_seed = key_seed is not None
            return Held("key", account, terms, update, own_seed=own_seed)

        def go_on(held: Held) -> None:
            self.held = held

        self._background.begin(f"Reading account {account_id}", prepare, go_on)

    def _sign_with(self, make_signer: Callable[[], Signer]) -> None:
        """Sign the key seed or the update, depending on the step."""
        unsigned = self._unsigned()
        is_update = self.step == "sign"

        def sign(_: object) -> tuple[KeyUpdate, Signer]:
            signer = make_signer()
            update = copy.copy(unsigned)
            if is_update:
                signature = sign_typed_data(signer, update.typed_data())
            else:
                signature = sign_text(signer, update.key_seed_message())
            return update.attach(signature), signer

        self._background.begin(
            "Signing",
            sign,
            lambda signed: self._attached(*signed),
        )

    def _unsigned(self) -> KeyUpdate:
        """Return the update that the next signature is for."""
        held = self.held
        return self._require(held.keyed if self.step == "sign" else held.prepared)

    def _attached(self, update: KeyUpdate, signer: Signer | None = None) -> None:
        held = self.held
        if self.step == "sign":
            held.signed = update
            # A private key is held no longer than it is needed.
            held.signer = None
            self.held.step = "submit"
        else:
            held.keyed = update
            held.signer = signer
            self.held.step = "preview"

    def _submit(self) -> None:
        """Send the update in the background; it is safe to do so again."""
        update = self._require(self.held.signed)

        def send(_: object) -> Receipt:
            try:
                return update.submit()
            except (RelayerError, TransportError) as error:
                # An update that was refused, or that never arrived, can be changed. Any other may have been accepted.
                if not error.maybe_received:
                    with self._background.lock:
                        self.held.step = "submit"
                raise

        def go_on(receipt: Receipt) -> None:
            self.held.receipt = receipt
            self._follow()

        # Under the lock, a refusal that comes at once still comes after this step.
        with self._background.lock:
            self.held.step = "follow"
            self._background.begin(
                "Submitting the update",
                send,
                go_on,
                cancellable=False,
            )

    def _follow(self) -> None:
        """Wait in the background until the update ends."""
        receipt = self._require(self.held.receipt)

        def wait(report: ReportProgress) -> Account:
            for status in poll_until_final(receipt, longest_pause=LONGEST_PAUSE):
                # There are two steps, as `Receipt.wait` counts them: taken up, and done.
                if status not in FINAL_STATES:
                    report(UPDATE_STATES.index(status), 2)
            try:
                # An account that does not show the update yet is no failure, so it is asked for as long as it takes.
                return receipt.wait(timeout=DAY, progress=False)
            except KeyUpdateError:
                self.held.failed = True
                raise

        def finish(account: Account) -> None:
            self.held.account = account
            self.held.finished = True

        self._background.begin(
            "Waiting for the relayer",
            wait,
            finish,
            cancellable=False,
        )

    # The way back

    def back(self) -> None:
        """Go back a step and forget the secrets of later ones."""
        # Under the lock, either this or a submission that succeeds meanwhile wins as a whole.
        with self._background.lock:
            if self.step == "follow":
                raise KeyUpdateError(
                    "The update may have been sent, so it cannot be taken back. Follow it to its end."
                )
            self._background.drop()
            previous = STEPS[max(0, STEPS.index(self.step) - 1)]
            self.held.signed = None
            if previous == "key":
                self.held.keyed = None
                self.held.signer = None
            if previous == "account":
                self.held = Held()
            self.held.step = previous

    def start_over(self) -> None:
        """Return to the first step and forget everything but the choices."""
        with self._background.lock:
            self._background.drop()
            self.held = Held()

    def _require(self, value: Value | None) -> Value:
        if value is None:
            raise KeyUpdateError(INSTRUCTIONS.get(self.step, INSTRUCTIONS["account"]))
        return value

    # Its code

    def export(self) -> str:
        """Write code for the steps so far."""
        lines = [
            *self._code_of_client(),
            "update = lab.KeyUpdate.prepare(",
            "    client,",
            *(f"    {argument}," for argument in self._code_of_terms()),
            ")",
        ]
        # Code that is saved holds no secret: it asks for signatures, as the widget did.
        signs_elsewhere = self.choices.way == "wallet" and not self.held.by_demo
        if signs_elsewhere and self.step != "account":
            lines.append("update.attach(getpass.getpass(update.key_seed_message()))")
            if self.step in ("submit", "follow"):
                text = "json.dumps(update.typed_data())"
                lines.append(f"update.attach(getpass.getpass({text}))")
        last = "update.submit().wait()" if self.step == "follow" else "update.preview()"
        code = "\n".join([*lines, last])
        imports = [line for name, line in IMPORTS.items() if name in code]
        return "\n".join([*imports, "", code])

    def _code_of_terms(self) -> list[str]:
        """Write the arguments of `KeyUpdate.prepare`; what is secret is asked for, as the widget did."""
        account = self._account
        terms = {"account_id": account, **self._terms}
        written = {
            name: repr(value) for name, value in terms.items() if value is not None
        }
        if self.held.by_demo:
            if "counterfactual" in written:
                written["counterfactual"] = f"relayer.counterfactual({account})"
            written["signer"] = f"relayer.signer({account})"
        elif self.choices.way == "key":
            key = "getpass.getpass('Private key: ')"
            written["signer"] = f"Account.from_key({key})"
        if self.held.own_seed:
            written["key_seed"] = "getpass.getpass('Key seed: ')"
        return [f"{name}={code}" for name, code in written.items()]

    def _code_of_client(self) -> list[str]:
        """Write code that makes the client, and the embedded relayer where that is needed."""
        from loopring_lab.relayer import embedded

        relayer = self._relayer
        if relayer is None:
            # The key is no part of the code; without the variable it is asked for.
            key = ", api_key=getpass.getpass('API key: ')"
            if "LOOPRING_API_KEY" in os.environ:
                key = ""
            return [f"client = lab.connect({self.client.base_url!r}{key})"]
        # Asking for the embedded relayer would start one.
        if embedded.cache_info().currsize and embedded() is relayer:
            lines = ["client = lab.connect()"]
            if self.held.by_demo:
                lines.append("relayer = embedded()")
            return lines
        return [
            f"relayer = running({relayer.base_url!r})",
            "client = lab.connect(relayer.base_url, api_key=relayer.api_key)",
        ]

    @property
    def _account(self) -> int | None:
        """The account that is prepared; before that the one that is chosen, which may change later."""
        held = self.held.account
        return held.account_id if held else self.choices.account

    @property
    def _relayer(self) -> Relayer | None:
        """The relayer in this process that the client asks, if it is one."""
        from loopring_lab.relayer import running

        return running(self.client.base_url)

    @property
    def _terms(self) -> dict[str, Any]:
        """The terms that are prepared; before that those that are chosen, which may change later."""
        if self.held.terms is not None:
            return self.held.terms
        choices = self.choices
        account = self._account
        relayer = self._relayer
        terms = {
            "fee_token": choices.fee_token,
            "max_fee": choices.max_fee,
            "valid_for": choices.valid_for,
            **self.given,
        }
        # The contract that owns a demo account is known, and is part of what is prepared.
        if relayer is not None and account is not None and self.has_demo_wallet:
            given = terms["counterfactual"]
            terms["counterfactual"] = given or relayer.counterfactual(account)
        return terms


# The flows of this kernel's wizards; it keeps none that nobody else does.
_flows: weakref.WeakSet[KeyUpdateFlow] = weakref.WeakSet()


def under_way(base_url: str, account: int | None) -> KeyUpdateFlow | None:
    """Return the flow of an update that may have been sent to a relayer: of an account, or without one of any."""
    for flow in _flows:
        sent = flow.held.account
        is_here = flow.held.is_under_way and flow.client.base_url == base_url
        is_meant = sent is not None and account in (sent.account_id, None)
        if is_here and is_meant:
            return flow
    return None


def signer_from_private_key(private_key: SecretText, wallet: str) -> Signer:
    """Return a signer that holds the private key of a wallet; errors repeat nothing of what was typed."""
    from eth_account import Account as Wallet

    if not private_key:
        raise KeyUpdateError(KEY_MISSING)
    try:
        data = SecretBytes.fromhex(private_key.removeprefix("0x"))
    except ValueError:
        data = SecretBytes()
    if len(data) != 32:
        raise KeyUpdateError(
            "private key: expected 64 hex digits, with or without 0x. Type it again."
        )
    if not 0 < int.from_bytes(data, "big") < SECP256K1_ORDER:
        raise KeyUpdateError(
            "private key: the number is zero or too large to be a wallet's key. Type the key of the account's "
            "wallet."
        )
    signer: Signer = Wallet.from_key(data)
    if signer.address.lower() != wallet.lower():
        raise KeyUpdateError(
            f"private key: expected the key of {wallet}, got the key of {signer.address}. Type the key of the "
            "account's wallet."
        )
    return signer
