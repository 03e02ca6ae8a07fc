"""Key updates: the request is read, every rule is checked, and the update is seen through."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from loopring_lab import protocol
from loopring_lab.errors import ProtocolError
from loopring_lab.redaction import hide
from loopring_lab.relayer.accounts import Accounts
from loopring_lab.relayer.database import KeyChange, Update
from loopring_lab.relayer.history import Source
from loopring_lab.relayer.schemas import (
    DUPLICATE,
    FEE_TOKEN,
    FEE_TOO_LOW,
    INVALID_ARGUMENT,
    NO_SIGNATURE,
    WRONG_EXCHANGE,
    WRONG_NONCE,
    Refusal,
)
from loopring_lab.relayer.settings import Settings

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
    """Read the body of a request."""
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
    """Find out whose signature a request needs."""
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
    """Check that a request is signed by who must sign it."""
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


class KeyUpdates:
    """The key updates of a relayer's accounts."""

    def __init__(
        self, accounts: Accounts, source: Source, settings: Settings, now: Callable[[], float] = time.time
    ) -> None:
        self._accounts, self._source, self._settings, self._now = accounts, source, settings, now

    def __repr__(self) -> str:
        return f"KeyUpdates({self._source.label})"

    @property
    def time_ms(self) -> int:
        """What time it is for the relayer, in ms since the epoch."""
        return int(self._now() * 1000)

    @cached_property
    def fees(self) -> dict[int, tuple[str, int]]:
        """What pays for a key update: token id to symbol and fee in smallest units."""
        found: dict[str, int] = {}
        for record in self._source.tokens():
            found.setdefault(record.get("symbol", ""), record.get("tokenId", -1))
        fees = self._settings.update_fees
        return {found[symbol]: (symbol, fee) for symbol, fee in fees.items() if symbol in found}

    def submit(self, body: UpdateBody, header: str | None) -> tuple[Update, bool]:
        """Take a request to update a key."""
        settings = self._settings
        if body.exchange.lower() != settings.exchange.lower():
            raise Refusal(WRONG_EXCHANGE, f"exchange: expected {settings.exchange}")
        self._accounts.find(body.account_id, body.owner)
        seed = self._key_seed(body)
        signer = check_wallet(body, {**protocol.FACTORY_INIT_CODE_HASHES, **settings.wallet_factories})
        name = check_signer(
            body,
            header,
            signer,
            settings.chain_id,
            bare=settings.bare_signatures,
            code=settings.bad_signature_code,
        )
        with self._accounts.store.transaction():
            pending = self._accounts.store.pending(body.account_id)
            if pending is None:
                return self._accept(body, seed, name), False
        if pending.change.hash != name:
            raise Refusal(
                DUPLICATE, "another update of this account is pending: ask again when it is through"
            )
        return pending, True

    def _accept(self, body: UpdateBody, seed: str, name: str) -> Update:
        nonce = self._accounts.find(body.account_id, body.owner).nonce
        if body.nonce != nonce:
            raise Refusal(WRONG_NONCE, f"nonce: expected the account's, {nonce}, got {body.nonce}")
        if body.valid_until <= self._now():
            raise Refusal(INVALID_ARGUMENT, f"validUntil: expected seconds after now, {int(self._now())}")
        x, y = (f"{int(part, 16):#066x}" for part in (body.public_key.x, body.public_key.y))
        fee = str(self._fee(body))
        change = KeyChange(
            body.account_id, name, x, y, nonce, seed, body.max_fee.token_id, fee, body.valid_until
        )
        return self._accounts.store.accept(change, self.time_ms)

    def _key_seed(self, body: UpdateBody) -> str:
        if body.key_seed is None and not self._settings.key_seed_required:
            return protocol.key_seed(body.exchange, body.nonce)
        end = f"with key nonce: {body.nonce}"
        if body.key_seed is None or not body.key_seed.endswith(end):
            raise Refusal(INVALID_ARGUMENT, f"keySeed: expected a text that ends in {end!r}")
        return body.key_seed

    def _fee(self, body: UpdateBody) -> int:
        symbols = ", ".join(symbol for symbol, _ in self.fees.values())
        symbol, fee = self.fees.get(body.max_fee.token_id, ("", -1))
        if not symbol:
            raise Refusal(FEE_TOKEN, f"fee token not supported: expected one of {symbols}")
        if int(body.max_fee.volume) < fee:
            raise Refusal(FEE_TOO_LOW, f"fee too low: an update costs {fee} smallest units of {symbol}")
        return fee

    def step(self) -> int:
        """Take every pending update one step on."""

        def failure(update: Update) -> str:
            if update.change.valid_until <= self._now():
                return "validUntil has passed"
            return self._settings.fail_updates.get(update.number, "")

        return self._accounts.store.step(self.time_ms, failure)
