"""Update the L2 key of an account: prepare, preview, sign, submit, wait.

`KeyUpdate` below is the walkthrough. `request` has the terms of an update and its fields as signed, sent and
previewed; `deployments` which exchange, chain and token may be signed for; `signers` wallets and their signatures;
`receipts` what happens after an update was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Self

from loopring_lab import protocol
from loopring_lab.arguments import parse_account_id
from loopring_lab.errors import (
    KeyUpdateError,
    RateLimited,
    RelayerError,
    TransportError,
)
from loopring_lab.interactive.preview import Sheet
from loopring_lab.keys.deployments import Trust, trusted_deployment
from loopring_lab.keys.receipts import Receipt
from loopring_lab.keys.request import (
    Counterfactual,
    Lifetime,
    UpdateRequest,
    fee_demand,
    fee_offer,
    parse_counterfactual,
    parse_valid_until,
)
from loopring_lab.keys.signers import (
    OTHER_SIGNER,
    Signature,
    Signer,
    as_signer,
    derive_l2_key,
    l2_key_from_signature,
    sign_typed_data,
    signature_header,
)
from loopring_lab.protocol import L2Key
from loopring_lab.protocol.fields import parse_address
from loopring_lab.redaction import SecretText, hide_pasted
from loopring_lab.sources.client import (
    Client,
    is_contract,
    spendable,
    update_fees,
    wallet_of_owner,
)
from loopring_lab.sources.records import PROCESSING, Submission

__all__ = ["Counterfactual", "KeyUpdate", "Receipt", "Signer"]


def __dir__() -> list[str]:
    return sorted(__all__)


# The possible next steps of an update.
SEED = "key seed"
DATA = "typed data"
SUBMIT = "submit"
_INSTRUCTIONS = {
    SEED: "Sign key_seed_message() with personal_sign, and attach(signature).",
    DATA: "Sign typed_data() with eth_signTypedData_v4, and attach(signature).",
    SUBMIT: "Call submit() to send it.",
}
# The number of times an update is sent while no answer arrives: the relayer recognises the same bytes.
ATTEMPTS = 3
# The relayer's codes for a nonce that is not the account's, and for an update while one is pending.
_TAKEN = (102021, 100204)


def check_client(client: object) -> None:
    """Refuse a source without keys."""
    if not isinstance(client, Client):
        raise KeyUpdateError(
            f"client: expected a relayer's client, got {type(client).__name__}. Recordings and blocks have no keys to "
            "update: give lab.connect() or lab.connect(base_url)."
        )


class KeyUpdate:
    """An update of an account's L2 key; create one with `prepare`.

    Parameters
    ----------
    client : Client
        Sends the update.
    update : UpdateRequest
        The terms of the update.
    signer : Signer, optional
        Signs the update; without one, attach the signatures of a wallet.

    Examples
    --------
    >>> from loopring_lab.relayer import Relayer, World
    >>> with Relayer(World(size=0.01)) as relayer:
    ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
    ...     update = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer)
    ...     account = update.submit().wait()
    >>> account.nonce, account.has_key(update.l2_key)
    (2, True)
    """

    def __init__(
        self, client: Client, update: UpdateRequest, signer: Signer | None = None
    ) -> None:
        self._client = client
        self._update = update
        self._signer = signer
        # An update's state is which of its two signatures are there: `_next_step` reads it.
        self._key: L2Key | None = None
        self._signature: SecretText | None = None
        # The reasons why answers were lost, over all calls of submit(): the receipt shows them.
        self._lost: list[str] = []

    def __repr__(self) -> str:
        update = self._update
        return f"KeyUpdate(account {update.account_id}, nonce {update.nonce}, next: {self._next_step})"

    @classmethod
    def prepare(
        cls,
        client: Client,
        *,
        account_id: int,
        signer: Signer | None = None,
        max_fee: Decimal | str | int | None = None,
        fee_token: str = "ETH",
        valid_for: Lifetime = "30d",
        key_seed: str | None = None,
        counterfactual: Counterfactual | Mapping[str, Any] | None = None,
        trust: Trust = None,
    ) -> Self:
        """Read the account and the fee from the relayer, and derive the new key.

        The relayer is not believed blindly: the exchange, its chain and the id and decimals of the fee token
        must be those of a deployment that loopring_lab knows (``"mainnet"``, or ``"embedded"``, the embedded
        relayer's) or that `trust` states. They are checked here and once more when the update is signed.

        Parameters
        ----------
        client : Client
            From `connect`.
        account_id : int
            Account whose key is updated.
        signer : Signer, optional
            An eth-account LocalAccount of the account's owner, or anything with its interface; never the text
            of a private key. Without one, attach the signatures of a wallet.
        max_fee : Decimal, str or int, optional
            Most to pay, in units of `fee_token`; by default what the relayer asks for, up to a ceiling:
            0.005 ETH, 10 LRC, or 20 USDT, DAI or USDC. Required for other tokens.
        fee_token : str
            Symbol of the token that pays the fee.
        valid_for : str, timedelta or datetime
            How long the relayer may take, such as ``"30d"``, or the deadline.
        key_seed : str, optional
            Text whose signature makes the key, ending in ``with key nonce: <nonce>``; by default the
            exchange's usual text.
        counterfactual : Counterfactual or mapping, optional
            The wallet that owns the account, if its contract is not deployed yet; by default what the relayer says
            of it, which is checked against the owner's address.
        trust : mapping or str, optional
            Where the relayer serves another exchange: a mapping with its ``exchange`` (the address),
            ``chain_id``, and ``tokens``: symbol to ``id`` and ``decimals``, and optionally ``address`` and
            ``ceiling`` (in units). Take the values from elsewhere, not from the relayer. The name of a known
            deployment signs for that one, without asking which exchange the relayer serves; ``"relayer"``
            takes the relayer's word for all that is not known. The preview shows who vouches for what.

        Returns
        -------
        KeyUpdate
            Ready to preview; nothing has been changed yet.

        Raises
        ------
        KeyUpdateError
            The client is not a relayer's; the signer is unusable or not the owner's; the exchange or the token is
            not known, or not as the relayer claims; the fee exceeds `max_fee` or the ceiling, or the account cannot
            pay it; the token does not pay fees; the owner is a deployed contract; or `valid_for`, `counterfactual` or
            `trust` is not usable.
        ProtocolError, AmountError
            A field is out of range, such as a deadline that has passed.
        RelayerError, TransportError, UnexpectedAnswer
            The relayer refuses, cannot be reached, or gives an unexpected answer.

        Examples
        --------
        >>> lab.KeyUpdate.prepare(client, account_id=10083, valid_for="12h")
        KeyUpdate(account 10083, nonce 1, next: key seed)
        """
        check_client(client)
        if signer is not None and as_signer(signer) is None:
            # It may be a private key, and tracebacks show what variables hold.
            signer = None
            raise KeyUpdateError(
                "signer: expected an eth-account LocalAccount, or an object with its interface. A private "
                "key as text is never accepted: load it where it is kept, with Account.from_key."
            )
        account_id = parse_account_id(account_id)
        account = client.account(account_id)
        wallet = parse_counterfactual(counterfactual)
        if wallet is None:
            wallet = parse_counterfactual(wallet_of_owner(client, account_id))
        if wallet is None and is_contract(client, account.owner):
            raise KeyUpdateError(
                f"Account {account_id} is owned by a contract, {account.owner}, such as a Safe. It has no private key, "
                "and only the contract itself can check what its owners sign (EIP-1271), so such an update is not "
                "supported here. Update the key in the wallet's own app."
            )
        demand = fee_demand(update_fees(client, account_id), fee_token)
        deployment = trusted_deployment(trust, fee_token, client.exchange)
        token = deployment.fee_token(fee_token, client.tokens(), trust)
        # The text ends in the nonce: each update has a key of its own, and only the wallet can make it again.
        seed = (
            protocol.key_seed(deployment.exchange, account.nonce)
            if key_seed is None
            else key_seed
        )
        update = UpdateRequest(
            deployment=deployment,
            owner=parse_address("owner", account.owner),
            account_id=account_id,
            fee=fee_offer(
                demand, token, max_fee, spendable(client, account_id, token.id)
            ),
            valid_until=parse_valid_until(valid_for),
            nonce=account.nonce,
            key_seed=seed,
            counterfactual=wallet,
        )
        prepared = cls(client, update, signer)
        # The key is derived now rather than in submit(), so that the preview shows the new public key.
        if signer is not None:
            prepared._key = derive_l2_key(signer, update)
        return prepared

    @property
    def l2_key(self) -> L2Key:
        """The new key, its secret hidden; a KeyUpdateError before the key seed is signed."""
        if self._key is None:
            raise KeyUpdateError(
                f"The new key is not known before the key seed is signed. {_INSTRUCTIONS[SEED]}"
            )
        return self._key

    @property
    def signer_address(self) -> str:
        """Address of the wallet that signs."""
        return self._update.signer

    def key_seed_message(self) -> str:
        """Return the text whose signature makes the key: the first thing that a wallet signs.

        Returns
        -------
        str
            Sign it with personal_sign. Never sign it for a site you do not trust: the signature is the key.

        Examples
        --------
        >>> lab.KeyUpdate.prepare(client, account_id=10083).key_seed_message()[-32:]
        '9732878417702c with key nonce: 1'
        """
        return self._update.key_seed

    def typed_data(self) -> dict[str, Any]:
        """Return the update as EIP-712 typed data: the second thing that a wallet signs.

        Returns
        -------
        dict
            Sign it with eth_signTypedData_v4; it can be written as JSON.

        Raises
        ------
        KeyUpdateError
            The new key is not known yet.

        Examples
        --------
        >>> lab.KeyUpdate.prepare(client, account_id=10083).typed_data()
        Traceback (most recent call last):
        loopring_lab.errors.KeyUpdateError: The new key is not known before the key seed is signed. Sign...
        """
        return self._update.typed_data(self.l2_key)

    def attach(self, signature: bytes | str) -> Self:
        """Attach a wallet's signature: first that of `key_seed_message`, then that of `typed_data`.

        Parameters
        ----------
        signature : bytes or str
            r, s, v: 65 bytes, with v 27 or 28; blanks, line ends and quotation marks in text are ignored. A wallet
            that cannot sign typed data may sign its digest with personal_sign instead.

        Returns
        -------
        KeyUpdate
            This update, with the signature attached.

        Raises
        ------
        KeyUpdateError
            The signature is malformed, by another wallet or of another text, or both are attached already.

        Examples
        --------
        >>> lab.KeyUpdate.prepare(client, account_id=10083).attach("0x1234")
        Traceback (most recent call last):
        loopring_lab.errors.KeyUpdateError: signature: expected r, s, v: 65 bytes, v 27 or 28...
        """
        # The signature of the seed is the key itself: tracebacks show what variables hold.
        hidden: Signature = hide_pasted(signature)
        del signature
        if self._key is None:
            self._key = l2_key_from_signature(self._update, hidden, _INSTRUCTIONS[SEED])
        elif self._signature is None:
            self._signature = signature_header(
                self._update, self._key, hidden, _INSTRUCTIONS[DATA]
            )
        else:
            raise KeyUpdateError(
                "attach: both signatures are attached. Call preview(), then submit()."
            )
        return self

    def body(self) -> dict[str, Any]:
        """Return the signed request body.

        Returns
        -------
        dict
            Fields in the contract's order. The signature prints as ``<hidden>``.

        Raises
        ------
        KeyUpdateError
            A signature is missing.

        Examples
        --------
        >>> lab.KeyUpdate.prepare(client, account_id=10083).body()
        Traceback (most recent call last):
        loopring_lab.errors.KeyUpdateError: The new key is not known before the key seed is signed. Sign...
        """
        return self._update.body(self.l2_key, self._signed())

    def preview(self) -> Sheet:
        """Show the request field by field, without signing or sending anything.

        Returns
        -------
        Sheet
            A table in a notebook, and text elsewhere. Secrets are withheld.

        Examples
        --------
        >>> print(str(lab.KeyUpdate.prepare(client, account_id=10083).preview())[-72:])
        Next: Sign key_seed_message() with personal_sign, and attach(signature).
        """
        if self._signature:
            signature = "withheld"
        elif self._signer:
            signature = "made by the signer in submit()"
        else:
            signature = "not signed yet"
        lines = self._update.preview_lines(self._key, signature)
        return Sheet(
            "POST /api/v3/account", lines, [f"Next: {_INSTRUCTIONS[self._next_step]}"]
        )

    def submit(self) -> Receipt:
        """Sign the update if there is a signer, and send it.

        If the answer is lost, the same bytes are sent again; the relayer recognises them, answers with
        ``isIdempotent``, and acts only once. ``Receipt.lost`` lists the lost answers. Submitting the same
        update twice is just as safe.

        Returns
        -------
        Receipt
            The update was accepted, but is not processed yet: call ``wait``.

        Raises
        ------
        KeyUpdateError
            A signature is missing or not as it should be, or no usable answer arrived, so that it may or may not
            have been accepted.
        UnexpectedAnswer
            The answer is about another account or token, so that it may or may not have been accepted.
        RelayerError
            The relayer refuses.
        TransportError
            The relayer cannot be reached; nothing was sent.

        Examples
        --------
        >>> lab.KeyUpdate.prepare(client, account_id=10083).submit()
        Traceback (most recent call last):
        loopring_lab.errors.KeyUpdateError: The new key is not known before the key seed is signed. Sign...
        """
        submission = self._send(self.body())
        return Receipt(
            self._client, self._update, self.l2_key, submission, tuple(self._lost)
        )

    @property
    def _next_step(self) -> str:
        if self._key is None:
            return SEED
        return SUBMIT if self._signer or self._signature else DATA

    def _signed(self) -> SecretText:
        """Return the signature header, made by the signer if it is still missing."""
        key = self.l2_key
        if self._signature is None and self._signer is not None:
            signature = sign_typed_data(self._signer, self._update.typed_data(key))
            self._signature = signature_header(
                self._update, key, signature, OTHER_SIGNER
            )
        if self._signature is None:
            raise KeyUpdateError(f"The update is not signed. {_INSTRUCTIONS[DATA]}")
        return self._signature

    def _send(self, body: dict[str, Any]) -> Submission:
        """Send the update, and again if the answer is lost."""
        for _ in range(ATTEMPTS):
            try:
                # The body is made once: another signature or deadline would make it another request.
                return self._client.update_account(body)
            except (RelayerError, TransportError) as error:
                # Only where the relayer may have it already is it sent again, also where a later attempt did not
                # arrive; a refusal stands.
                is_unheard = isinstance(error, TransportError | RateLimited)
                is_taken = isinstance(error, RelayerError) and error.code in _TAKEN
                if error.maybe_received or (self._lost and is_unheard):
                    self._lost.append(str(error))
                elif self._lost and is_taken:
                    # The nonce was taken meanwhile, by an earlier attempt or by another update: the account tells.
                    # A relayer may also refuse what is sent again as a duplicate, rather than call it idempotent.
                    return Submission(PROCESSING)
                else:
                    raise
            except KeyboardInterrupt:
                # The relayer may have it: when the cell is run again, that is another attempt.
                self._lost.append("Interrupted before an answer arrived.")
                raise
        raise KeyUpdateError(
            f"Update of account {self._update.account_id}: sent {ATTEMPTS} times without a usable answer, so "
            f"it may have been accepted. Last error: {self._lost[-1]} Call submit() again: it acts only once."
        )
