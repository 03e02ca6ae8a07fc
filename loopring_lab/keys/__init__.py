"""Update the L2 key of an account: prepare, preview, sign, submit, wait."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from loopring_lab import protocol
from loopring_lab.errors import KeyUpdateError
from loopring_lab.keys.receipts import Receipt, submit
from loopring_lab.keys.request import (
    Counterfactual,
    Lifetime,
    UpdateRequest,
    agreed_fee,
    read_counterfactual,
    seconds_until,
)
from loopring_lab.keys.signers import Signer, as_signer, attached_key, derived, header, sign_data
from loopring_lab.preview import Sheet
from loopring_lab.protocol import L2Key
from loopring_lab.protocol.fields import address
from loopring_lab.redaction import SecretBytes, SecretText, hide

if TYPE_CHECKING:
    from loopring_lab.client import Client


__all__ = ["Counterfactual", "KeyUpdate", "Receipt", "Signer"]


def __dir__() -> list[str]:
    return sorted(__all__)


SEED, DATA, SUBMIT = "key seed", "typed data", "submit"
_TO_DO = {
    SEED: "Sign key_seed_message() with personal_sign, and attach(signature).",
    DATA: "Sign typed_data() with eth_signTypedData_v4, and attach(signature).",
    SUBMIT: "Call submit() to send it.",
}


class KeyUpdate:
    """An update of an account's L2 key; made by `prepare`.

    Parameters
    ----------
    client : Client
        Sends it.
    update : Update
        What it says.
    fee : str
        What the relayer asks for and what is offered, in words.
    signer : Signer, optional
        Signs; without one a wallet's signatures are attached.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> from loopring_lab.relayer import Relayer, World
    >>> with Relayer(World(size=0.01)) as relayer:
    ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
    ...     update = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer)
    ...     account = update.submit().wait()
    >>> account.nonce, account.has_key(update.l2_key)
    (2, True)
    """

    def __init__(self, client: Client, update: UpdateRequest, fee: str, signer: Signer | None = None) -> None:
        self._client, self._update, self._fee, self._signer = client, update, fee, signer
        self._key: L2Key | None = None
        self._signature: SecretText | None = None
        self._lost: list[str] = []

    def __repr__(self) -> str:
        return f"KeyUpdate(account {self._update.account_id}, nonce {self._update.nonce}, next: {self._next})"

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
        exchange: str | None = None,
        chain_id: int | None = None,
    ) -> Self:
        """Ask the relayer for the account, the fee and the exchange, and derive the new key.

        Parameters
        ----------
        client : Client
            From `connect`.
        account_id : int
            Whose key.
        signer : Signer, optional
            eth-account's LocalAccount of the account's owner, or anything with its interface; never the text
            of a private key. Without one, attach the signatures of a wallet.
        max_fee : Decimal, str or int, optional
            Most to pay, in units of `fee_token`; what the relayer asks for where absent.
        fee_token : str
            Symbol.
        valid_for : str, timedelta or datetime
            How long the relayer may take, such as ``"30d"``; or until when.
        key_seed : str, optional
            Text whose signature makes the key, ending in ``with key nonce: <nonce>``; the usual one where
            absent.
        counterfactual : Counterfactual or mapping, optional
            Where a wallet owns the account whose contract is not deployed yet.
        exchange : str, optional
            Address of the exchange, where the relayer does not tell.
        chain_id : int, optional
            Its chain, where the relayer does not tell.

        Returns
        -------
        KeyUpdate
            Nothing has been sent that changes anything.

        Raises
        ------
        KeyUpdateError
            The signer is none or not the owner's, the token pays no fees, or `valid_for` or `counterfactual`
            is not usable.
        ProtocolError, AmountError
            A field is out of range.
        RelayerError, TransportError, UnexpectedAnswer
            The relayer refuses, cannot be reached, or answers something else.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> lab.KeyUpdate.prepare(lab.connect(), account_id=10083, valid_for="12h")
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        KeyUpdate(account 10083, nonce 1, next: key seed)
        """
        given, signer = signer is not None, as_signer(signer)
        if given and signer is None:
            raise KeyUpdateError(
                "signer: expected eth-account's LocalAccount, or what has its interface. A private key as "
                "text is never taken: make an account of it where it is kept, with Account.from_key."
            )
        account = client.account(account_id)
        if exchange is None or chain_id is None:
            told = client.exchange()
            exchange, chain_id = exchange or told.address, told.chain_id if chain_id is None else chain_id
        fee = agreed_fee(client.update_fee(account_id), client.tokens(), fee_token, max_fee)
        update = UpdateRequest(
            exchange=exchange,
            chain_id=chain_id,
            owner=address("owner", account.owner),
            account_id=account.account_id,
            fee_token_id=fee.token_id,
            max_fee=fee.volume,
            valid_until=seconds_until(valid_for),
            nonce=account.nonce,
            key_seed=protocol.key_seed(exchange, account.nonce) if key_seed is None else key_seed,
            counterfactual=read_counterfactual(counterfactual),
        )
        prepared = cls(client, update, fee.words, signer)
        prepared._key = None if signer is None else derived(signer, update)
        return prepared

    @property
    def l2_key(self) -> L2Key:
        """The new key, its secret hidden.

        Raises
        ------
        KeyUpdateError
            It is not known before the key seed is signed.
        """
        if self._key is None:
            raise KeyUpdateError(f"The new key is not known before the key seed is signed. {_TO_DO[SEED]}")
        return self._key

    def key_seed_message(self) -> str:
        """Return the text whose signature makes the key: the first that a wallet signs.

        Returns
        -------
        str
            For personal_sign. Never sign such a text for a site you do not trust: the signature is the key.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> update = lab.KeyUpdate.prepare(lab.connect(), account_id=10083)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> update.key_seed_message()[-32:]
        'a129Bf948f1eA4 with key nonce: 1'
        """
        return self._update.key_seed

    def typed_data(self) -> dict[str, Any]:
        """Return the update as a wallet signs it, the second that it signs.

        Returns
        -------
        dict
            For eth_signTypedData_v4; can be written as JSON.

        Raises
        ------
        KeyUpdateError
            The new key is not known yet.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> update = lab.KeyUpdate.prepare(lab.connect(), account_id=10083)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> update.typed_data()
        Traceback (most recent call last):
            ...
        loopring_lab.errors.KeyUpdateError: The new key is not known before the key seed is signed. Sign...
        """
        return self._update.typed_data(self.l2_key)

    def attach(self, signature: bytes | str) -> Self:
        """Take what a wallet returned: first for `key_seed_message`, then for `typed_data`.

        Parameters
        ----------
        signature : bytes or str
            r, s, v: 65 bytes, v 27 or 28. A wallet that cannot sign typed data may sign its digest with
            personal_sign instead.

        Returns
        -------
        KeyUpdate
            This one.

        Raises
        ------
        KeyUpdateError
            The signature is malformed, another wallet's or over another text, or none is missing.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> update = lab.KeyUpdate.prepare(lab.connect(), account_id=10083)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> update.attach("0x1234")
        Traceback (most recent call last):
            ...
        loopring_lab.errors.KeyUpdateError: attach: expected r, s, v: 65 bytes, v 27 or 28...
        """
        hidden: SecretBytes | SecretText = hide(signature)
        del signature
        if self._key is None:
            self._key = attached_key(self._update, hidden, _TO_DO[SEED])
        elif self._signature is None:
            self._signature = header(self._update, self._key, hidden, _TO_DO[DATA])
        else:
            raise KeyUpdateError("attach: both signatures are there. Call preview(), then submit().")
        return self

    def body(self) -> dict[str, Any]:
        """Return what is sent, signed.

        Returns
        -------
        dict
            Members in the contract's order. The signature shows itself as ``<hidden>``.

        Raises
        ------
        KeyUpdateError
            A signature is missing.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> update = lab.KeyUpdate.prepare(lab.connect(), account_id=10083)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> update.body()
        Traceback (most recent call last):
            ...
        loopring_lab.errors.KeyUpdateError: The new key is not known before the key seed is signed. Sign...
        """
        return self._update.body(self.l2_key, self._signed())

    def preview(self) -> Sheet:
        """Show what would be sent, field by field; nothing is signed or sent.

        Returns
        -------
        Sheet
            Renders in a notebook and as text. Secrets are withheld.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> update = lab.KeyUpdate.prepare(lab.connect(), account_id=10083)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> print(str(update.preview())[-72:])
        Next: Sign key_seed_message() with personal_sign, and attach(signature).
        """
        pending = "made by the signer in submit()" if self._signer else "not signed yet"
        fields = self._update.lines(self._key, "withheld" if self._signature else pending, self._fee)
        return Sheet("POST /api/v3/account", fields, [f"Next: {_TO_DO[self._next]}"])

    def submit(self) -> Receipt:
        """Sign where a signer is at hand, and send the update.

        A request whose answer is lost is sent again, the same bytes, which the relayer answers with
        ``isIdempotent`` and without a second effect; ``Receipt.lost`` tells. So is one that is submitted
        twice.

        Returns
        -------
        Receipt
            It says that the update was taken, not that it is done: call ``wait``.

        Raises
        ------
        KeyUpdateError
            A signature is missing, or no answer arrived and whether it was taken is not known.
        RelayerError
            The relayer refuses.
        TransportError
            The relayer cannot be reached; nothing was sent.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> update = lab.KeyUpdate.prepare(lab.connect(), account_id=10083)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> update.submit()
        Traceback (most recent call last):
            ...
        loopring_lab.errors.KeyUpdateError: The new key is not known before the key seed is signed. Sign...
        """
        submission = submit(self._client, self._update, self.l2_key, self.body(), self._lost)
        return Receipt(self._client, self._update, self.l2_key, submission, tuple(self._lost))

    @property
    def _next(self) -> str:
        if self._key is None:
            return SEED
        return SUBMIT if self._signer or self._signature else DATA

    def _signed(self) -> SecretText:
        """Return the header's signature, made by the signer where it is still missing."""
        key = self.l2_key
        if self._signature is None and self._signer is not None:
            signed = sign_data(self._signer, self._update.typed_data(key))
            self._signature = header(self._update, key, signed, _TO_DO[DATA])
        if self._signature is None:
            raise KeyUpdateError(f"The update is not signed. {_TO_DO[DATA]}")
        return self._signature
