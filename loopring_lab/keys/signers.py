"""Signers of wallets: what signs, and who it was that signed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from loopring_lab.errors import KeyUpdateError, ProtocolError
from loopring_lab.keys.request import UpdateRequest
from loopring_lab.protocol import KIND_EIP712, KIND_PERSONAL, L2Key, l2_key, recover_signer, x_api_sig
from loopring_lab.redaction import SecretBytes, SecretText

if TYPE_CHECKING:
    from eth_account.datastructures import SignedMessage
    from eth_account.messages import SignableMessage


_INTERFACE = ("address", "sign_message", "sign_typed_data")


class Signer(Protocol):
    """What signs for a wallet: eth-account's LocalAccount, or anything with these three.

    Examples
    --------
    >>> from eth_account import Account
    >>> throwaway = Account.from_key(32 * b"7")
    >>> [hasattr(throwaway, name) for name in ("address", "sign_message", "sign_typed_data")]
    [True, True, True]
    """

    @property
    def address(self) -> str:
        """Address of the wallet."""

    def sign_message(self, signable_message: SignableMessage) -> SignedMessage:
        """Sign with personal_sign.

        Parameters
        ----------
        signable_message : SignableMessage
            From eth-account.

        Returns
        -------
        SignedMessage
            With ``signature``, 65 bytes.
        """

    def sign_typed_data(self, *, full_message: dict[str, Any]) -> SignedMessage:
        """Sign with eth_signTypedData_v4.

        Parameters
        ----------
        full_message : dict
            Types, primary type, domain and message.

        Returns
        -------
        SignedMessage
            With ``signature``, 65 bytes.
        """


def as_signer(value: object) -> Signer | None:
    """Take what can sign, and nothing else."""
    return cast("Signer", value) if all(hasattr(value, name) for name in _INTERFACE) else None


def sign_text(signer: Signer, text: str) -> SecretBytes:
    """Let a signer sign a text with personal_sign."""
    from eth_account.messages import encode_defunct

    return SecretBytes(signer.sign_message(encode_defunct(text=text)).signature)


def sign_data(signer: Signer, typed_data: dict[str, Any]) -> SecretBytes:
    """Let a signer sign typed data."""
    return SecretBytes(signer.sign_typed_data(full_message=typed_data).signature)


def derived(signer: Signer, update: UpdateRequest) -> L2Key:
    """Let a signer sign the key seed of an update, and make the new key."""
    if signer.address.lower() != update.signer.lower():
        raise KeyUpdateError(
            f"signer: {signer.address} does not sign for this account, {update.signer} does. "
            "Pass that one's signer, or name the wallet that owns the account: counterfactual=."
        )
    return l2_key(sign_text(signer, update.key_seed))


def attached_key(update: UpdateRequest, signature: SecretBytes | SecretText, to_do: str) -> L2Key:
    """Make the new key from a wallet's signature of the key seed."""
    checked(update.signer, signature, {KIND_EIP712: _digest(update.key_seed)}, f"of the key seed. {to_do}")
    return l2_key(signature)


def header(update: UpdateRequest, key: L2Key, signature: SecretBytes | SecretText, to_do: str) -> SecretText:
    """Bring a wallet's signature of an update into the form of the header."""
    digest = update.digest(key)
    kinds = {KIND_EIP712: digest, KIND_PERSONAL: digest}
    return checked(update.signer, signature, kinds, f"of the typed data. {to_do}")


def checked(
    wallet: str, signature: SecretBytes | SecretText, digests: Mapping[int, bytes], what: str
) -> SecretText:
    """Check that a wallet signed."""
    found = [_recovered(digest, signature, kind) for kind, digest in digests.items()]
    for header, signer in found:
        if signer.lower() == wallet.lower():
            return header
    signer = found[0][1]
    if not signer:
        raise KeyUpdateError(
            f"attach: expected r, s, v: 65 bytes, v 27 or 28 (add 27 where it is 0 or 1), {what}"
        )
    raise KeyUpdateError(f"attach: expected the signature by {wallet}, got one by {signer}, {what}")


def _recovered(digest: bytes, signature: SecretBytes | SecretText, kind: int) -> tuple[SecretText, str]:
    """Return a signature as a header, and who made it: nobody, where it is malformed."""
    try:
        header = SecretText(x_api_sig(signature, kind))
        return header, recover_signer(digest, header)
    except ProtocolError:
        return SecretText(), ""


def _digest(text: str) -> bytes:
    """Hash a text as personal_sign does."""
    from eth_account.messages import encode_defunct
    from eth_utils.crypto import keccak

    message = encode_defunct(text=text)
    return keccak(b"\x19" + message.version + message.header + message.body)
