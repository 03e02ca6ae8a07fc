"""Key updates: reading a request, checking every rule, and advancing accepted updates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ValidationError

from loopring_lab import protocol
from loopring_lab.bounded import PLAIN_INTEGER, parse_json
from loopring_lab.errors import ProtocolError, UnexpectedAnswer
from loopring_lab.relayer.accounts import Accounts
from loopring_lab.relayer.schemas import ApiError, Code, Status, UpdateBody
from loopring_lab.relayer.settings import Settings

if TYPE_CHECKING:
    from loopring_lab.relayer.world import World

MAX_BODY_BYTES = 16_384  # the longest honest body has about 2,000
MAX_VOLUME = 2**96 - 1  # amounts of the exchange are uint96
# Signatures of owners; those of contracts may be longer than 65 bytes and a type.
HEX = re.compile(r"0x([0-9a-fA-F]{2}){1,256}")
# Characters of a signature without a type, 65 bytes, and the types that it is tried as.
BARE = 2 + 2 * 65
KINDS = (protocol.KIND_EIP712, protocol.KIND_PERSONAL)
# The path of a member as a message may show it.
MEMBER = re.compile(r"[A-Za-z.]{1,40}")


class Update(NamedTuple):
    """An accepted key update, with the fee in smallest units; times in milliseconds since the epoch."""

    number: int
    body: UpdateBody
    hash: str
    fee: int
    received_at: int
    changed_at: int
    status: Status = "processing"
    reason: str = ""

    @property
    def is_pending(self) -> bool:
        """Whether its outcome is still open."""
        return self.status == "processing"


class KeyUpdates:
    """Accepts requests of the owners of accounts, and carries them out step by step."""

    def __init__(
        self,
        accounts: Accounts,
        source: World,
        settings: Settings,
        now: Callable[[], float],
    ) -> None:
        """Take whose keys can be updated, and a clock in seconds since the epoch."""
        self._accounts = accounts
        self._source = source
        self._settings = settings
        self._now = now
        self._updates: list[Update] = []

    @property
    def time_ms(self) -> int:
        """The relayer's time, in ms since the epoch."""
        return int(self._now() * 1000)

    @cached_property
    def fees(self) -> dict[int, tuple[str, int]]:
        """Token ids that can pay for a key update, each with its symbol and fee in smallest units."""
        ids = {token["symbol"]: token["tokenId"] for token in self._source.tokens()}
        return {
            ids[symbol]: (symbol, fee)
            for symbol, fee in self._settings.update_fees.items()
            if symbol in ids
        }

    def of_account(self, account_id: int) -> list[Update]:
        """Return every update that was accepted for an account, newest first."""
        with self._accounts.lock:
            newest_first = self._updates[::-1]
        return [each for each in newest_first if each.body.account_id == account_id]

    def submit(self, body: UpdateBody, header: str) -> tuple[Update, bool]:
        """Accept a request, or find it pending already; return the update and whether it was pending."""
        settings = self._settings
        if body.exchange.lower() != settings.exchange.lower():
            raise ApiError(
                Code.WRONG_EXCHANGE,
                f"exchange: expected {settings.exchange}",
            )
        self._accounts.find(body.account_id, body.owner)
        # The text that clients of the exchange let the owner sign ends like this.
        end = f"with key nonce: {body.nonce}"
        if not body.key_seed.endswith(end):
            raise ApiError(Code.INVALID_ARGUMENT, f"keySeed: must end with {end!r}")
        signer = required_signer(
            body,
            {
                **protocol.FACTORY_INIT_CODE_HASHES,
                **settings.wallet_factories,
            },
        )
        digest = check_signature(body, header, signer, settings.chain_id)
        # Two requests are the same if all that was signed is the same, and so is everything that the digest leaves out.
        salt = body.counter_factual_info and body.counter_factual_info.wallet_salt
        request_hash = (
            "0x" + sha256(digest + f"{body.key_seed} {salt}".encode()).hexdigest()
        )
        # Nobody else's update may come between the check and the acceptance.
        with self._accounts.lock:
            for update in self.of_account(body.account_id):
                if not update.is_pending:
                    continue
                if update.hash == request_hash:
                    return update, True
                raise ApiError(
                    Code.DUPLICATE,
                    "another update of this account is pending: try again later",
                )
            return self._accept(body, request_hash), False

    def _accept(self, body: UpdateBody, request_hash: str) -> Update:
        account = self._accounts.find(body.account_id, body.owner)
        if body.nonce != account.nonce:
            raise ApiError(
                Code.WRONG_NONCE,
                f"nonce: expected the account's, {account.nonce}, got {body.nonce}",
            )
        now = self._now()
        if body.valid_until <= now:
            raise ApiError(
                Code.INVALID_ARGUMENT,
                f"validUntil: must be later than now, {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC",
            )
        fee = self._fee(body)
        # Updates are counted over all accounts, as the setting fail_updates does.
        number = len(self._updates) + 1
        received_at = self.time_ms
        update = Update(number, body, request_hash, fee, received_at, received_at)
        self._updates.append(update)
        self._accounts.held[account.id] = account._replace(is_frozen=True)
        return update

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
        with self._accounts.lock:
            pending = [update for update in self._updates if update.is_pending]
            for update in pending:
                self._updates[update.number - 1] = self._moved(update)
        return len(pending)

    def _moved(self, update: Update) -> Update:
        """Return the outcome of an update: it gives the account its new key, or a reason why not."""
        update = update._replace(changed_at=self.time_ms)
        body = update.body
        account = self._accounts.held[body.account_id]._replace(is_frozen=False)
        reason = self._settings.fail_updates.get(update.number)
        if body.valid_until <= self._now():
            reason = "validUntil has passed"
        if update.fee > self._accounts.balance(account.id, body.max_fee.token_id):
            reason = "balance too low to pay the fee"
        if reason is not None:
            self._accounts.held[account.id] = account
            return update._replace(status="failed", reason=reason)
        self._accounts.charge(account.id, body.max_fee.token_id, update.fee)
        # Keys are stored in one form, whatever the client wrote.
        self._accounts.held[account.id] = account._replace(
            x=f"{int(body.public_key.x, 16):#066x}",
            y=f"{int(body.public_key.y, 16):#066x}",
            key_seed=body.key_seed,
            nonce=account.nonce + 1,
            key_nonce=account.key_nonce + 1,
        )
        return update._replace(status="processed")


def read_update(data: bytes) -> UpdateBody:
    """Read and validate the body of a key update."""
    body = UpdateBody.model_validate(read_body(data, UpdateBody))
    if int(body.max_fee.volume) > MAX_VOLUME:
        raise ApiError(Code.INVALID_ARGUMENT, "maxFee.volume: must be at most 2^96 - 1")
    return body


def read_body(data: bytes, model: type[BaseModel]) -> dict[str, Any]:
    """Read the body of a request, and return its members if they are those of a model."""
    if len(data) > MAX_BODY_BYTES:
        raise ApiError(
            Code.INVALID_ARGUMENT,
            f"body: must have at most {MAX_BODY_BYTES} bytes",
        )
    try:
        members: dict[str, Any] = _strict_json(data)
        model.model_validate(members)
    except ValidationError as error:
        first = error.errors(
            include_url=False, include_context=False, include_input=False
        )[0]
        # The name of an additional member is the client's own text, and may be a secret.
        name = ".".join(str(part) for part in first["loc"])
        if not MEMBER.fullmatch(name):
            name = "body"
        raise ApiError(Code.INVALID_ARGUMENT, f"{name}: {first['msg']}") from None
    return members


def _strict_json(data: bytes) -> Any:
    try:
        return parse_json(data, "body", size=MAX_BODY_BYTES, number=_number)
    except UnexpectedAnswer:
        problem = (
            "must be JSON in UTF-8, without repeated members, lone surrogates or NaN"
        )
        raise ApiError(Code.INVALID_ARGUMENT, f"body: {problem}") from None


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


def check_signature(body: UpdateBody, header: str, signer: str, chain_id: int) -> bytes:
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
    digest = _digest(body, chain_id)
    spellings = [header]
    # Bare signatures do not tell what was signed: the exchange's SDK sends them of both kinds.
    if len(header) == BARE:
        spellings = [f"{header}{kind:02x}" for kind in KINDS]
    # Whoever signed is found from the signature; that it verifies says nothing by itself.
    try:
        recovered = [
            protocol.recover_signer(digest, spelling).lower() for spelling in spellings
        ]
    except ProtocolError as error:
        raise ApiError(
            Code.WRONG_SIGNATURE, f"invalid ECDSA signature: {error}"
        ) from None
    if signer.lower() not in recovered:
        raise ApiError(
            Code.WRONG_SIGNATURE,
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
