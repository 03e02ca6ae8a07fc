"""Wallet signatures: asking a signer for them, and checking who made them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from loopring_lab.errors import KeyUpdateError, ProtocolError
from loopring_lab.keys.request import UpdateRequest
from loopring_lab.protocol import (
    KIND_EIP712,
    KIND_PERSONAL,
    L2Key,
    l2_key,
    recover_signer,
    x_api_sig,
)
from loopring_lab.redaction import SecretBytes, SecretText, hide, shielded

if TYPE_CHECKING:
    from eth_account.datastructures import SignedMessage
    from eth_account.messages import SignableMessage


# A signature in hex or as bytes, as signers and wallets give it.
Signature = SecretBytes | SecretText
# Advice for a signer of another kind of signatures.
OTHER_SIGNER = "Use a signer whose signatures are r, s and v, with v 27 or 28."
# We look for these names, as hardware wallets and test doubles are no LocalAccount.
_INTERFACE = ("address", "sign_message", "sign_typed_data")


class Signer(Protocol):
    """A wallet's signer: an eth-account LocalAccount, or anything with these three members.

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
        """Sign with personal_sign; ``signature`` of the result has 65 bytes."""

    def sign_typed_data(self, *, full_message: dict[str, Any]) -> SignedMessage:
        """Sign with eth_signTypedData_v4; ``signature`` of the result has 65 bytes."""


def as_signer(value: object) -> Signer | None:
    """Return an object that has the interface of a signer, or None."""
    has_interface = all(hasattr(value, name) for name in _INTERFACE)
    return cast("Signer", value) if has_interface else None


@shielded
def sign_text(signer: Signer, text: str) -> Signature:
    """Sign a text with personal_sign."""
    from eth_account import messages

    return _signature_in(signer.sign_message(messages.encode_defunct(text=text)))


@shielded
def sign_typed_data(signer: Signer, typed_data: dict[str, Any]) -> Signature:
    return _signature_in(signer.sign_typed_data(full_message=typed_data))


def _signature_in(answer: object) -> Signature:
    """Return what a signer answered; an answer without a signature becomes one that is malformed."""
    return cast("Signature", hide(getattr(answer, "signature", None)))


def derive_l2_key(signer: Signer, update: UpdateRequest) -> L2Key:
    """Sign the key seed of an update, and derive the new key from the signature."""
    # The wallet is checked before anything is signed, and again after: another wallet's signature, or one of another
    # form, would make a key that its owner cannot recover.
    if str(signer.address).lower() != update.signer.lower():
        raise KeyUpdateError(
            f"signer: {signer.address} does not sign for this account, {update.signer} does. Pass that "
            "wallet's signer, or name the wallet that owns the account: counterfactual=."
        )
    signature = sign_text(signer, update.key_seed)
    return l2_key_from_signature(update, signature, OTHER_SIGNER)


def l2_key_from_signature(
    update: UpdateRequest, signature: Signature, hint: str
) -> L2Key:
    """Derive the new key from a wallet's signature of the key seed, after checking who made it."""
    # With this kind the digest is what was signed; the other kind would wrap it as a text once more.
    digests = {KIND_EIP712: _personal_sign_digest(update.key_seed)}
    _verified_header(update.signer, signature, digests, f"of the key seed. {hint}")
    return l2_key(signature)


def signature_header(
    update: UpdateRequest, key: L2Key, signature: Signature, hint: str
) -> SecretText:
    """Return a wallet's signature of an update in the form of the header, after checking who made it."""
    # Wallets that cannot sign typed data sign its digest as a text: the last byte of the header tells which.
    digest = update.digest(key)
    digests = {KIND_EIP712: digest, KIND_PERSONAL: digest}
    return _verified_header(
        update.signer, signature, digests, f"of the typed data. {hint}"
    )


def _verified_header(
    wallet: str,
    signature: Signature,
    digests: Mapping[int, bytes],
    subject: str,
) -> SecretText:
    """Return the signature as a header of the first kind for which the wallet is its signer."""
    # A signature names no signer: one is computed for each kind, and all but one are of nobody.
    recovered = [_recover(digest, signature, kind) for kind, digest in digests.items()]
    for header, signer in recovered:
        if signer == wallet:
            return header
    signer = recovered[0][1]
    if not signer:
        raise KeyUpdateError(
            "signature: expected r, s, v: 65 bytes, v 27 or 28 (add 27 if it is 0 or 1; s is at most half the curve's "
            f"order, EIP-2), {subject}"
        )
    raise KeyUpdateError(
        f"signature: expected the signature by {wallet}, got one by {signer}, {subject}"
    )


@shielded
def _recover(digest: bytes, signature: Signature, kind: int) -> tuple[SecretText, str]:
    """Return a signature as a header, and its signer; both empty if it is malformed."""
    try:
        header = SecretText(x_api_sig(signature, kind))
        return header, recover_signer(digest, header)
    except ProtocolError:
        return SecretText(), ""


def _personal_sign_digest(text: str) -> bytes:
    from eth_utils.crypto import keccak

    # EIP-191, version 0x45. eth-account computes it, too, but not in a function that is public.
    message = text.encode()
    return keccak(b"\x19Ethereum Signed Message:\n%d%b" % (len(message), message))
