"""Keys and signatures of the exchange as pure functions: nothing here asks, stores or sends anything.

A key update in the order in which it happens: the wallet signs :func:`key_seed`, :func:`l2_key` makes the new
key from that signature, the wallet signs :func:`account_update_typed_data`, :func:`x_api_sig` brings that
signature into the form of the header, and :func:`recover_signer` is what the relayer checks. With the new key
:func:`request_message` and :func:`sign_request` ask for an API key.

Readers take integers, decimal text, and hex in either case, with or without ``0x`` where only hex can stand.
Signing with Python's integers takes a time that depends on the secret: sign on a machine of your own.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from loopring_lab.errors import ProtocolError
from loopring_lab.protocol.eddsa import (
    L2Key,
    check_public_key,
    l2_key,
    pack_public_key,
    public_key,
    request_message,
    sign_request,
    verify_request,
)
from loopring_lab.protocol.fields import address, octets, uint
from loopring_lab.protocol.wallets import (
    FACTORY_INIT_CODE_HASHES,
    KIND_EIP712,
    KIND_PERSONAL,
    recover_signer,
    wallet_address,
    x_api_sig,
)

__all__ = [
    "FACTORY_INIT_CODE_HASHES",
    "KIND_EIP712",
    "KIND_PERSONAL",
    "AccountUpdate",
    "L2Key",
    "account_update_digest",
    "account_update_typed_data",
    "check_public_key",
    "key_seed",
    "l2_key",
    "pack_public_key",
    "public_key",
    "recover_signer",
    "request_message",
    "sign_request",
    "verify_request",
    "wallet_address",
    "x_api_sig",
]

_FIRST_NFT_SLOT = 1 << 15
_TYPES = {
    "EIP712Domain": "string name,string version,uint256 chainId,address verifyingContract",
    "AccountUpdate": "address owner,uint32 accountID,uint16 feeTokenID,uint96 maxFee,"
    "uint256 publicKey,uint32 validUntil,uint32 nonce",
}


class AccountUpdate(TypedDict):
    """The fields that a wallet signs, and the exchange it signs them for.

    Examples
    --------
    >>> sorted(AccountUpdate.__required_keys__)[:4]
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
        Address of the exchange; its case is kept, because another case makes another key.
    nonce : int or str
        The account's nonce at the time of the update, uint32.

    Returns
    -------
    str
        To be signed with personal_sign.

    Raises
    ------
    ProtocolError
        `exchange` is not an address, or `nonce` is out of range.

    Examples
    --------
    >>> key_seed("0x0BABA1Ad5bE3a5C0a66E7ac838a129Bf948f1eA4", 0)[-30:]
    '29Bf948f1eA4 with key nonce: 0'
    """
    octets("exchange", str(exchange), 20)
    number = uint("nonce", nonce, 32)
    return f"Sign this message to access Loopring Exchange: {exchange} with key nonce: {number}"


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
    """Return what a wallet signs to update the key of an account.

    Parameters
    ----------
    exchange : str
        Address of the exchange, in any case.
    chain_id : int or str
        1 for the mainnet, uint256.
    owner : str
        Address of the account's owner, in any case.
    account_id : int or str
        uint32.
    x, y : int or str
        The new public key; run :func:`check_public_key` on a key that is not your own.
    fee_token_id : int or str
        Token the fee is paid in, 0..32767: ids above are slots of NFTs, which pay no fees.
    max_fee : int or str
        Most to pay, in smallest units of the fee token, uint96.
    valid_until : int or str
        Seconds since the epoch, uint32.
    nonce : int or str
        The account's nonce, uint32.

    Returns
    -------
    dict
        For eth_signTypedData_v4. Can be written as JSON: wide integers are decimal text.

    Raises
    ------
    ProtocolError
        Names the field that is out of range.

    Examples
    --------
    >>> x, y = public_key(7)
    >>> update = {"exchange": "0x" + 20 * "ab", "owner": "0x" + 20 * "cd", "chain_id": 1, "account_id": 10083}
    >>> update |= {"x": x, "y": y, "fee_token_id": 0, "max_fee": 10**15, "valid_until": 2**31, "nonce": 1}
    >>> account_update_typed_data(**update)["message"]["maxFee"]
    '1000000000000000'
    """
    message = {
        "owner": address("owner", owner),
        "accountID": uint("accountID", account_id, 32),
        "feeTokenID": _fee_token(fee_token_id),
        "maxFee": str(uint("maxFee", max_fee, 96)),
        "publicKey": str(pack_public_key(x, y)),
        "validUntil": uint("validUntil", valid_until, 32),
        "nonce": uint("nonce", nonce, 32),
    }
    domain = {
        "name": "Loopring Protocol",
        "version": "3.6.0",
        "chainId": uint("chainId", chain_id, 256),
        "verifyingContract": address("exchange", exchange),
    }
    types = {
        name: [dict(zip(("type", "name"), member.split(), strict=True)) for member in members.split(",")]
        for name, members in _TYPES.items()
    }
    return {"types": types, "primaryType": "AccountUpdate", "domain": domain, "message": message}


def account_update_digest(**update: Unpack[AccountUpdate]) -> bytes:
    """Return the EIP-712 digest of an account update, which the wallet's signature is made over.

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
        Names the field that is out of range.

    Examples
    --------
    >>> x, y = public_key(7)
    >>> update = {"exchange": "0x" + 20 * "ab", "owner": "0x" + 20 * "cd", "chain_id": 1, "account_id": 10083}
    >>> update |= {"x": x, "y": y, "fee_token_id": 0, "max_fee": 10**15, "valid_until": 2**31, "nonce": 1}
    >>> account_update_digest(**update) == account_update_digest(**update | {"nonce": 2})
    False
    """
    from eth_account.messages import encode_typed_data
    from eth_utils.crypto import keccak

    signable = encode_typed_data(full_message=account_update_typed_data(**update))
    return keccak(b"\x19" + signable.version + signable.header + signable.body)


def _fee_token(value: int | str) -> int:
    """Return a fee token's id, refusing the slots of NFTs."""
    token = uint("feeTokenID", value, 16)
    if token >= _FIRST_NFT_SLOT:
        raise ProtocolError(
            "feeTokenID", f"{token} is the slot of an NFT, which pays no fees", hint="Use an id below 32768."
        )
    return token
