"""Key updates: reading a request, checking every rule, and advancing accepted updates."""

from __future__ import annotations

import re
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from loopring_lab import protocol
from loopring_lab.bounded import PLAIN_INTEGER, parse_json
from loopring_lab.errors import ProtocolError, UnexpectedAnswer
from loopring_lab.relayer.accounts import Accounts
from loopring_lab.relayer.pages import Source
from loopring_lab.relayer.schemas import ApiError, Code, UpdateBody
from loopring_lab.relayer.settings import Settings
from loopring_lab.relayer.store import KeyChange, StoredUpdate

MAX_BODY_BYTES = 16_384  # the longest honest body has about 2,000
MAX_VOLUME = 2**96 - 1  # amounts of the exchange are uint96
# Signatures of owners; those of contracts may be longer than 65 bytes and a type.
HEX = re.compile(r"0x([0-9a-fA-F]{2}){1,256}")
# The path of a member as a message may show it.
MEMBER = re.compile(r"[A-Za-z.]{1,40}")


class KeyUpdates:
    """Accepts requests of the owners of accounts, and carries them out step by step."""

    def __init__(
        self,
        accounts: Accounts,
        source: Source,
        settings: Settings,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Take whose keys can be updated, and a clock in seconds since the epoch."""
        self._accounts = accounts
        self._source = source
        self._settings = settings
        self._now = now

    @property
    def time_ms(self) -> int:
        """The relayer's time, in ms since the epoch."""
        return int(self._now() * 1000)

    @cached_property
    def fees(self) -> dict[int, tuple[str, int]]:
        """Token ids that can pay for a key update, each with its symbol and fee in smallest units."""
        found = {}
        for symbol, fee in self._settings.update_fees.items():
            for token in self._source.tokens():
                # Where symbols repeat, the first counts.
                if token.get("symbol") == symbol and "tokenId" in token:
                    found[token["tokenId"]] = (symbol, fee)
                    break
        return found

    def submit(self, body: UpdateBody, header: str) -> tuple[StoredUpdate, bool]:
        """Accept a request, or find it pending already; return the update and whether it was pending."""
        settings = self._settings
        if body.exchange.lower() != settings.exchange.lower():
            raise ApiError(
                Code.WRONG_EXCHANGE,
                f"exchange: expected {settings.exchange}",
            )
        self._accounts.find(body.account_id, body.owner)
        seed = self._key_seed(body)
        signer = required_signer(
            body,
            {
                **protocol.FACTORY_INIT_CODE_HASHES,
                **settings.wallet_factories,
            },
        )
        digest = check_signature(body, header, signer, settings)
        # What makes two requests the same: all that was signed, and what the digest leaves out.
        salt = body.counter_factual_info and body.counter_factual_info.wallet_salt
        request_hash = (
            "0x" + sha256(digest + f"{body.key_seed} {salt}".encode()).hexdigest()
        )
        # Nobody else's update may come between the check and the acceptance.
        with self._accounts.store.transaction():
            pending = self._accounts.store.pending(body.account_id)
            if pending is None:
                return self._accept(body, seed, request_hash), False
        if pending.change.hash != request_hash:
            raise ApiError(
                Code.DUPLICATE,
                "another update of this account is pending: try again later",
            )
        return pending, True

    def _key_seed(self, body: UpdateBody) -> str:
        if body.key_seed is None and not self._settings.key_seed_required:
            return protocol.key_seed(body.exchange, body.nonce)
        # So ends the text that clients of the exchange let the owner sign.
        end = f"with key nonce: {body.nonce}"
        if body.key_seed is None or not body.key_seed.endswith(end):
            raise ApiError(Code.INVALID_ARGUMENT, f"keySeed: must end with {end!r}")
        return body.key_seed

    def _accept(self, body: UpdateBody, seed: str, request_hash: str) -> StoredUpdate:
        nonce = self._accounts.find(body.account_id, body.owner).nonce
        if body.nonce != nonce:
            raise ApiError(
                Code.WRONG_NONCE,
                f"nonce: expected the account's, {nonce}, got {body.nonce}",
            )
        now = self._now()
        if body.valid_until <= now:
            raise ApiError(
                Code.INVALID_ARGUMENT,
                f"validUntil: must be later than now, {int(now)}",
            )
        # Keys are stored in one form, whatever the client wrote.
        change = KeyChange(
            account=body.account_id,
            hash=request_hash,
            x=f"{int(body.public_key.x, 16):#066x}",
            y=f"{int(body.public_key.y, 16):#066x}",
            nonce=nonce,
            key_seed=seed,
            fee_token=body.max_fee.token_id,
            fee=str(self._fee(body)),
            valid_until=body.valid_until,
        )
        return self._accounts.store.accept(change, self.time_ms)

    def _fee(self, body: UpdateBody) -> int:
        if body.max_fee.token_id not in self.fees:
            symbols = ", ".join(symbol for symbol, _ in self.fees.values())
            raise ApiError(
                Code.FEE_TOKEN,
                f"fee token not supported: expected one of {symbols}",
            )
        symbol, fee = self.fees[body.max_fee.token_id]
        if int(body.max_fee.volume) < fee:
            raise ApiError(
                Code.FEE_TOO_LOW,
                f"fee too low: an update costs {fee} smallest units of {symbol}",
            )
        return fee

    def step(self) -> int:
        """Advance every pending update by one step, and return how many moved."""
        return self._accounts.store.step(self.time_ms, self._failure)

    def _failure(self, update: StoredUpdate) -> str:
        """Return why an update fails in its last step, or nothing."""
        if update.change.valid_until <= self._now():
            return "validUntil has passed"
        return self._settings.fail_updates.get(update.number, "")


def read_update(data: bytes) -> UpdateBody:
    """Read and validate the body of a request."""
    if len(data) > MAX_BODY_BYTES:
        raise ApiError(
            Code.INVALID_ARGUMENT,
            f"body: must have at most {MAX_BODY_BYTES} bytes",
        )
    try:
        body = UpdateBody.model_validate(_strict_json(data))
    except ValidationError as error:
        first = error.errors(
            include_url=False, include_context=False, include_input=False
        )[0]
        # The name of an additional member is the client's own text, and may be a secret.
        name = ".".join(str(part) for part in first["loc"])
        if not MEMBER.fullmatch(name):
            name = "body"
        raise ApiError(Code.INVALID_ARGUMENT, f"{name}: {first['msg']}") from None
    if int(body.max_fee.volume) > MAX_VOLUME:
        raise ApiError(Code.INVALID_ARGUMENT, "maxFee.volume: must be at most 2^96 - 1")
    return body


def _strict_json(data: bytes) -> Any:
    if not data.startswith(BOM_UTF8):
        with suppress(UnexpectedAnswer):
            return parse_json(data, "body", size=MAX_BODY_BYTES, number=_number)
    problem = "must be JSON in UTF-8, without repeated members, lone surrogates, NaN or a byte order mark"
    raise ApiError(Code.INVALID_ARGUMENT, f"body: {problem}")


def _number(text: str) -> int | float:
    """Convert a number; no member takes one with a point, an exponent or more than 18 digits."""
    return int(text) if PLAIN_INTEGER.fullmatch(text) else float(text)


def required_signer(body: UpdateBody, factories: Mapping[str, str]) -> str:
    """Return the address that must sign a request: the owner, or the owner of the counterfactual wallet."""
    info = body.counter_factual_info
    if info is None:
        return body.owner
    codes = {address.lower(): code for address, code in factories.items()}
    code = codes.get(info.wallet_factory.lower())
    if code is None:
        problem = "factory unknown; the setting wallet_factories adds one"
        raise ApiError(
            Code.INVALID_ARGUMENT,
            f"counterFactualInfo.walletFactory: {problem}",
        )
    wallet = protocol.wallet_address(
        info.wallet_factory, info.wallet_owner, info.wallet_salt, code
    )
    if wallet.lower() != body.owner.lower():
        problem = (
            "walletFactory, walletOwner and walletSalt give another address than owner"
        )
        raise ApiError(Code.INVALID_ARGUMENT, f"counterFactualInfo: {problem}")
    return info.wallet_owner


def check_signature(
    body: UpdateBody, header: str, signer: str, settings: Settings
) -> bytes:
    """Check that the signer signed a request, and return the digest that was signed."""
    if not HEX.fullmatch(header):
        raise ApiError(
            Code.INVALID_ARGUMENT,
            "X-API-SIG: expected 0x and 132 hex digits",
        )
    if (
        body.ecdsa_signature is not None
        and body.ecdsa_signature.lower() != header.lower()
    ):
        raise ApiError(
            Code.INVALID_ARGUMENT,
            "ecdsaSignature: must be the same as the header X-API-SIG",
        )
    digest = _digest(body, settings.chain_id)
    # Whoever signed is found from the signature; that it verifies says nothing by itself.
    try:
        recovered = protocol.recover_signer(
            digest, header, accept_bare=settings.bare_signatures
        )
    except ProtocolError as error:
        raise ApiError(
            settings.bad_signature_code, f"invalid ECDSA signature: {error}"
        ) from None
    if recovered.lower() != signer.lower():
        raise ApiError(
            settings.bad_signature_code,
            "invalid ECDSA signature: the owner did not sign this request",
        )
    return digest


def _digest(body: UpdateBody, chain_id: int) -> bytes:
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
        raise ApiError(Code.INVALID_ARGUMENT, str(error)) from None
