"""Keys and signatures of the exchange as pure functions, without network or storage.

A key update, step by step: the wallet signs :func:`key_seed`, :func:`l2_key` derives the new key from that
signature, the wallet signs :func:`account_update_typed_data`, :func:`x_api_sig` formats that signature as the
header, and :func:`recover_signer` is what the relayer checks. With the new key, :func:`request_message` and
:func:`sign_request` sign the request for an API key.

Numbers may be integers, decimal text, or hex in either case; ``0x`` is optional where only hex is possible.
How long signing takes depends on the secret, so sign on a machine of your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from loopring_lab.errors import ProtocolError
from loopring_lab.protocol.eddsa import (
    L2Key,
    check_public_key,
    l2_key,
    pack_public_key,
    public_key,
    recover_l2_key,
    request_message,
    sign_request,
    unpack_public_key,
    verify_request,
)
from loopring_lab.protocol.fields import (
    FIRST_NFT_SLOT,
    SECP256K1_ORDER,
    SIGNATURE_BYTES,
    parse_address,
    parse_bytes,
    parse_uint,
)
from loopring_lab.redaction import hide

__all__ = [
    "FACTORY_INIT_CODE_HASHES", "KIND_EIP712", "KIND_PERSONAL", "AccountUpdate", "L2Key",
    "account_update_digest", "account_update_typed_data", "check_public_key", "key_seed", "l2_key",
    "pack_public_key", "public_key", "recover_l2_key", "recover_signer", "request_message", "sign_request",
    "unpack_public_key", "verify_request", "wallet_address", "x_api_sig",
]  # fmt: skip

KIND_EIP712 = 2
"""Type byte after a wallet's signature of the digest itself, as eth_signTypedData_v4 makes it."""

KIND_PERSONAL = 3
"""Type byte after a wallet's signature of the digest's 32 bytes as a message, with personal_sign."""

FACTORY_INIT_CODE_HASHES: Mapping[str, str] = {
    "0x8c3d4E1728f77ABCD220323260da4A9306FB6433": (
        "0xf405edd5adef335488069d63483e3e880e56abde423cfee18ea84ea89584dbcc"
    ),
}
"""Init code hashes of known wallet factories: the ``init_code_hash`` of :func:`wallet_address`."""

# A signature, and a byte that says what was signed.
_HEADER_BYTES = SIGNATURE_BYTES + 1
# The members of both types, in the order that their hashes depend on.
_TYPES = {
    "EIP712Domain": "string name,string version,uint256 chainId,address verifyingContract",
    "AccountUpdate": "address owner,uint32 accountID,uint16 feeTokenID,uint96 maxFee,"
    "uint256 publicKey,uint32 validUntil,uint32 nonce",
}


def __dir__() -> list[str]:
    return sorted(__all__)


class AccountUpdate(TypedDict):
    """The fields that a wallet signs, and the exchange that they are for.

    Examples
    --------
    >>> sorted(lab.protocol.AccountUpdate.__required_keys__)[:4]
    ['account_id', 'chain_id', 'exchange', 'fee_token_id']
    """

    exchange: str
    chain_id: int | str
    owner: str
    account_id: int | str
    x: int | str
    y: int | str
    fee_token_id: int | str
    max_fee: int | str
    valid_until: int | str
    nonce: int | str


def key_seed(exchange: str, nonce: int | str) -> str:
    """Return the text whose signature makes the L2 key.

    Parameters
    ----------
    exchange : str
        Address of the exchange; its case is kept, because it affects the key.
    nonce : int or str
        The account's nonce at the time of the update, uint32.

    Returns
    -------
    str
        Sign it with personal_sign.

    Raises
    ------
    ProtocolError
        `exchange` is not an address, or `nonce` is out of range.

    Examples
    --------
    >>> lab.protocol.key_seed("0x0BABA1Ad5bE3a5C0a66E7ac838a129Bf948f1eA4", 0)[-30:]
    '29Bf948f1eA4 with key nonce: 0'
    """
    parse_bytes("exchange", str(exchange), 20)
    decimal = parse_uint("nonce", nonce, 32)
    return f"Sign this message to access Loopring Exchange: {exchange} with key nonce: {decimal}"


def account_update_typed_data(
    *,
    exchange: str,
    chain_id: int | str,
    owner: str,
    account_id: int | str,
    x: int | str,
    y: int | str,
    fee_token_id: int | str,
    max_fee: int | str,
    valid_until: int | str,
    nonce: int | str,
) -> dict[str, Any]:
    """Return an account update as the EIP-712 typed data that a wallet signs.

    Parameters
    ----------
    exchange : str
        Address of the exchange, in any case.
    chain_id : int or str
        uint256; 1 is mainnet.
    owner : str
        Address of the account's owner, in any case.
    account_id : int or str
        uint32.
    x, y : int or str
        The new public key; check one that you did not derive with :func:`check_public_key`.
    fee_token_id : int or str
        Token that the fee is paid in, 0..32767: higher ids are NFT slots, which pay no fees.
    max_fee : int or str
        Most to pay, in smallest units of the fee token, uint96.
    valid_until : int or str
        Unix time in seconds, uint32.
    nonce : int or str
        The account's nonce, uint32.

    Returns
    -------
    dict
        For eth_signTypedData_v4. It can be written as JSON: wide integers are decimal text.

    Raises
    ------
    ProtocolError
        A field is out of range; the message names it.

    Examples
    --------
    >>> x, y = lab.protocol.public_key(7)
    >>> update = {"exchange": "0x" + 20 * "ab", "owner": "0x" + 20 * "cd", "chain_id": 1, "account_id": 10083}
    >>> update |= {"x": x, "y": y, "fee_token_id": 0, "max_fee": 10**15, "valid_until": 2**31, "nonce": 1}
    >>> lab.protocol.account_update_typed_data(**update)["message"]["maxFee"]
    '1000000000000000'
    """
    fee_token = parse_uint("feeTokenID", fee_token_id, 16)
    if fee_token >= FIRST_NFT_SLOT:
        problem = f"{fee_token} is an NFT slot, which pays no fees"
        raise ProtocolError("feeTokenID", problem, hint="Use an id below 32768.")
    message = {
        "owner": parse_address("owner", owner),
        "accountID": parse_uint("accountID", account_id, 32),
        "feeTokenID": fee_token,
        "maxFee": str(parse_uint("maxFee", max_fee, 96)),
        "publicKey": str(pack_public_key(x, y)),
        "validUntil": parse_uint("validUntil", valid_until, 32),
        "nonce": parse_uint("nonce", nonce, 32),
    }
    domain = {
        "name": "Loopring Protocol",
        "version": "3.6.0",
        "chainId": parse_uint("chainId", chain_id, 256),
        "verifyingContract": parse_address("exchange", exchange),
    }
    types = {name: _members(text) for name, text in _TYPES.items()}
    return {
        "types": types,
        "primaryType": "AccountUpdate",
        "domain": domain,
        "message": message,
    }


def account_update_digest(**update: Unpack[AccountUpdate]) -> bytes:
    """Return the EIP-712 digest of an account update, which the wallet signs.

    Parameters
    ----------
    **update : AccountUpdate
        As for :func:`account_update_typed_data`.

    Returns
    -------
    bytes
        32 bytes.

    Raises
    ------
    ProtocolError
        A field is out of range; the message names it.

    Examples
    --------
    >>> terms = {"account_id": 10083, "fee_token_id": 0, "max_fee": 10**15, "valid_until": 2**31, "nonce": 1}
    >>> x, y = lab.protocol.public_key(9)
    >>> parties = {"exchange": "0x" + 20 * "ab", "owner": "0x" + 20 * "cd", "chain_id": 1}
    >>> update = lab.protocol.AccountUpdate(**parties, **terms, x=x, y=y)
    >>> lab.protocol.account_update_digest(**update) == lab.protocol.account_update_digest(**update | {"nonce": 2})
    False
    """
    return typed_data_digest(account_update_typed_data(**update))


def typed_data_digest(typed: dict[str, Any]) -> bytes:
    """Return the EIP-712 digest of typed data."""
    from eth_account import messages
    from eth_utils.crypto import keccak

    signable = messages.encode_typed_data(full_message=typed)
    return keccak(b"\x19" + signable.version + signable.header + signable.body)


def x_api_sig(signature: bytes | str, kind: int = KIND_EIP712) -> str:
    """Return a wallet's signature in the format of the X-API-SIG header and of ecdsaSignature.

    Parameters
    ----------
    signature : bytes or str
        r, s, v: 65 bytes, v 27 or 28.
    kind : int
        What was signed: :data:`KIND_EIP712` or :data:`KIND_PERSONAL`.

    Returns
    -------
    str
        66 bytes in hex, with ``0x``. It authorises the update: do not display or log it.

    Raises
    ------
    ProtocolError
        The signature is one that `recover_signer` refuses.

    Examples
    --------
    >>> signature = bytes([*31 * [0], 1, *31 * [0], 2, 27])
    >>> lab.protocol.x_api_sig(signature)[-8:]
    '00021b02'
    """
    signature = hide(signature)
    signature = parse_bytes("ecdsaSignature", signature, SIGNATURE_BYTES)
    _split_signature(signature)
    return "0x" + (signature + bytes([_check_kind(kind)])).hex()


def recover_signer(digest: bytes | str, x_api_sig: bytes | str) -> str:
    """Return the address that signed a digest, refusing whatever the exchange contract refuses.

    Parameters
    ----------
    digest : bytes or str
        32 bytes, from `account_update_digest`.
    x_api_sig : bytes or str
        66 bytes: r, s, v, and :data:`KIND_EIP712` or :data:`KIND_PERSONAL`.

    Returns
    -------
    str
        Checksummed address. Compare it with the owner's: any well-formed signature recovers some address.

    Raises
    ------
    ProtocolError
        Wrong length or kind, v other than 27 or 28, r or s out of range, s above n/2, or no such point.

    Examples
    --------
    >>> from eth_account import Account
    >>> throwaway = Account.from_key(32 * b"7")
    >>> signed = throwaway.unsafe_sign_hash(bytes(32))
    >>> lab.protocol.recover_signer(bytes(32), lab.protocol.x_api_sig(signed.signature)) == throwaway.address
    True
    """
    from eth_keys.datatypes import Signature
    from eth_keys.exceptions import BadSignature
    from eth_utils.crypto import keccak

    x_api_sig = hide(x_api_sig)
    sent = parse_bytes("X-API-SIG", x_api_sig, _HEADER_BYTES)
    vrs = _split_signature(sent)
    signed = bytes(parse_bytes("digest", digest, 32))
    if _check_kind(sent[SIGNATURE_BYTES]) == KIND_PERSONAL:
        signed = keccak(b"\x19Ethereum Signed Message:\n32" + signed)
    try:
        return (
            Signature(vrs=vrs)
            .recover_public_key_from_msg_hash(signed)
            .to_checksum_address()
        )
    except BadSignature:
        raise _invalid_signature("r and s belong to no public key") from None


def wallet_address(
    factory: str, owner: str, salt: int | str, init_code_hash: bytes | str
) -> str:
    """Return the address that a wallet has once its factory deploys it (CREATE2).

    Parameters
    ----------
    factory : str
        Address of the wallet factory.
    owner : str
        Address of the wallet's owner, who signs for it.
    salt : int or str
        uint256; text is decimal, or hex with ``0x``.
    init_code_hash : bytes or str
        32 bytes that belong to the factory; see :data:`FACTORY_INIT_CODE_HASHES`.

    Returns
    -------
    str
        Checksummed address.

    Raises
    ------
    ProtocolError
        A field is not valid; the message names it.

    Examples
    --------
    >>> factory, init_code_hash = next(iter(lab.protocol.FACTORY_INIT_CODE_HASHES.items()))
    >>> lab.protocol.wallet_address(factory, "0x" + 20 * "11", 0, init_code_hash)
    '0x5DffEfE6a3985Efe25b98C5921812e9875F94ed1'
    """
    from eth_utils.address import to_checksum_address
    from eth_utils.crypto import keccak

    number = parse_uint("walletSalt", salt, 256).to_bytes(32, "big")
    # The factory makes its own salt of the wallet's owner and the given salt.
    inner = keccak(b"WALLET_CREATION" + parse_bytes("walletOwner", owner, 20) + number)
    code = parse_bytes("initCodeHash", init_code_hash, 32)
    # EIP-1014: an address is the last 20 bytes of this hash.
    digest = keccak(b"\xff" + parse_bytes("walletFactory", factory, 20) + inner + code)
    return to_checksum_address(digest[12:])


def _members(text: str) -> list[dict[str, str]]:
    """Return the members of a type as EIP-712 lists them."""
    pairs = (member.split() for member in text.split(","))
    return [{"type": kind, "name": name} for kind, name in pairs]


def _split_signature(signature: bytes) -> tuple[int, int, int]:
    """Return (v - 27, r, s), refusing what ecrecover or the contract would."""
    r = int.from_bytes(signature[:32], "big")
    s = int.from_bytes(signature[32:64], "big")
    v = signature[64]
    if v not in (27, 28):
        raise _invalid_signature(f"v is {v}, expected 27 or 28")
    # EIP-2: of s and n - s, only the smaller is valid, so that nobody can make a second signature out of one.
    if not (0 < r < SECP256K1_ORDER and 0 < s <= SECP256K1_ORDER // 2):
        raise _invalid_signature("r or s is out of range, or s is in the upper half")
    return v - 27, r, s


def _check_kind(kind: int) -> int:
    if kind not in (KIND_EIP712, KIND_PERSONAL):
        raise _invalid_signature(
            f"type byte {kind!r}, expected 2 (EIP-712) or 3 (personal_sign)"
        )
    return kind


def _invalid_signature(problem: str) -> ProtocolError:
    hint = "Sign the update again, and format the header with x_api_sig()."
    return ProtocolError("X-API-SIG", problem, hint=hint)
