"""A request to update the key of an account: its body, and whether its owner signed it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from loopring_lab import protocol
from loopring_lab.errors import ProtocolError
from loopring_lab.hidden import hide
from loopring_lab.relayer.answers import INVALID_ARGUMENT, NO_SIGNATURE, Refusal

__all__ = ["MAX_BODY", "CounterFactualInfo", "UpdateBody", "check_signer", "check_wallet", "read_update"]

MAX_BODY = 16_384
"""Bytes of a body; the longest honest one has about 2,000."""

MAX_VOLUME = 2**96 - 1
HEX = re.compile(r"0x([0-9a-fA-F]{2}){1,256}")

Address = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{40}$")]
Coordinate = Annotated[str, Field(pattern=r"^0x[0-9a-fA-F]{1,64}$")]
Uint32 = Annotated[int, Field(ge=0, lt=2**32)]


class _Body(BaseModel):
    """A record that is what it says: no other types, no other members."""

    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel)


class PublicKey(_Body):
    """An L2 public key, a point of the curve."""

    x: Coordinate
    y: Coordinate


class TokenVolume(_Body):
    """An amount of a token."""

    token_id: int = Field(ge=0, lt=2**15, description="Ids from 32768 up are NFTs, which pay no fees.")
    volume: str = Field(pattern=r"^[0-9]{1,29}$", description="Smallest units, uint96.")


class CounterFactualInfo(_Body):
    """How the owner's address comes about where it is a wallet that is not deployed yet."""

    wallet_factory: Address
    wallet_owner: Address
    wallet_salt: str = Field(pattern=r"^([0-9]{1,78}|0x[0-9a-fA-F]{1,64})$", description="uint256.")
    account_id: Uint32 | None = Field(None, description="Passed over: clients send what they were given.")
    wallet: Address | None = Field(None, description="Passed over.")
    owner: Address | None = Field(None, description="Passed over.")


class UpdateBody(_Body):
    """What POST /account sends."""

    exchange: Address
    owner: Address
    account_id: Uint32
    public_key: PublicKey
    max_fee: TokenVolume
    valid_until: Uint32 = Field(description="Seconds since the epoch.")
    nonce: Uint32 = Field(description="The account's nonce.")
    key_seed: str | None = Field(
        None,
        min_length=17,
        max_length=1000,
        description="What the owner signs to make the key; ends in `with key nonce: <nonce>`.",
    )
    ecdsa_signature: str | None = Field(
        None, pattern=r"^0x[0-9a-fA-F]{2,512}$", repr=False, description="As X-API-SIG."
    )
    counter_factual_info: CounterFactualInfo | None = None
    eddsa_signature: str | None = Field(None, repr=False, description="Passed over: only L1 counts here.")
    hash_approved: str | None = Field(None, description="Passed over.")
    recommender_account_id: Uint32 | None = Field(None, description="Passed over.")


def read_update(data: bytes) -> UpdateBody:
    """Read the body of a request.

    Parameters
    ----------
    data : bytes
        As received.

    Returns
    -------
    UpdateBody
        Of the right shape; what it says is not checked yet.

    Raises
    ------
    Refusal
        100001, naming the member at fault; the message holds no value of a signature.
    """
    if len(data) > MAX_BODY:
        raise Refusal(INVALID_ARGUMENT, f"body: expected at most {MAX_BODY} bytes")
    try:
        body = UpdateBody.model_validate(_json(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        # A member's name is the client's own text, and may be anything.
        name = where if re.fullmatch(r"[A-Za-z.]{1,40}", where) else "body"
        raise Refusal(INVALID_ARGUMENT, f"{name}: {first['msg']}") from None
    if int(body.max_fee.volume) > MAX_VOLUME:
        raise Refusal(INVALID_ARGUMENT, "maxFee.volume: expected at most 2^96 - 1")
    return body


def _json(data: bytes) -> Any:
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Refusal(
            INVALID_ARGUMENT, "body: expected JSON in UTF-8, without repeated members, lone surrogates or NaN"
        ) from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_constant(_: str) -> Any:
    raise ValueError


def check_wallet(body: UpdateBody, factories: Mapping[str, str]) -> str:
    """Find out whose signature a request needs.

    Parameters
    ----------
    body : UpdateBody
        The request.
    factories : mapping of str to str
        Address of each known wallet factory to its init code hash.

    Returns
    -------
    str
        The owner, or the owner of the counterfactual wallet that the owner is.

    Raises
    ------
    Refusal
        100001: the factory is unknown, or the wallet is not the owner.
    """
    info = body.counter_factual_info
    if info is None:
        return body.owner
    known = {address.lower(): code for address, code in factories.items()}
    code = known.get(info.wallet_factory.lower())
    if code is None:
        raise Refusal(
            INVALID_ARGUMENT,
            "counterFactualInfo.walletFactory: factory unknown; the setting wallet_factories adds one",
        )
    wallet = protocol.wallet_address(info.wallet_factory, info.wallet_owner, info.wallet_salt, code)
    if wallet.lower() != body.owner.lower():
        raise Refusal(
            INVALID_ARGUMENT,
            "counterFactualInfo: factory, walletOwner and walletSalt give another address than owner",
        )
    return info.wallet_owner


def check_signer(
    body: UpdateBody, header: str | None, signer: str, chain_id: int, *, bare: bool, code: int
) -> str:
    """Check that a request is signed by who must sign it.

    Parameters
    ----------
    body : UpdateBody
        The request.
    header : str or None
        X-API-SIG.
    signer : str
        Whose signature is needed, from `check_wallet`.
    chain_id : int
        Chain of the exchange.
    bare : bool
        Whether 65 bytes are read as signed directly.
    code : int
        Code of the refusal of a signature that `signer` did not make.

    Returns
    -------
    str
        A name of the request: the same request has the same, also with another signature of the signer.

    Raises
    ------
    Refusal
        104004 without a signature, 100001 where it is no hex or where header and body differ, else `code`.
    """
    header = hide(header)
    if not header:
        raise Refusal(NO_SIGNATURE, "no signature: send the L1 signature as header X-API-SIG")
    if not HEX.fullmatch(header):
        raise Refusal(INVALID_ARGUMENT, "X-API-SIG: expected 0x and 132 hex digits")
    if body.ecdsa_signature is not None and body.ecdsa_signature.lower() != header.lower():
        raise Refusal(INVALID_ARGUMENT, "ecdsaSignature: expected the same as header X-API-SIG")
    digest = _digest(body, chain_id)
    try:
        found = protocol.recover_signer(digest, header, accept_bare=bare)
    except ProtocolError as error:
        raise Refusal(code, f"invalid ECDSA signature: {error}") from None
    if found.lower() != signer.lower():
        raise Refusal(code, "invalid ECDSA signature: it is not the owner's over this request")
    wallet = body.counter_factual_info
    name = digest + f"{body.key_seed} {wallet and wallet.wallet_salt}".encode()
    return "0x" + sha256(name).hexdigest()


def _digest(body: UpdateBody, chain_id: int) -> bytes:
    """The EIP-712 digest of a request, whose key must be a sound point."""
    try:
        x, y = protocol.check_public_key(body.public_key.x, body.public_key.y)
        return protocol.account_update_digest(
            exchange=body.exchange,
            chain_id=chain_id,
            owner=body.owner,
            account_id=body.account_id,
            x=x,
            y=y,
            fee_token_id=body.max_fee.token_id,
            max_fee=body.max_fee.volume,
            valid_until=body.valid_until,
            nonce=body.nonce,
        )
    except ProtocolError as error:
        raise Refusal(INVALID_ARGUMENT, str(error)) from None
