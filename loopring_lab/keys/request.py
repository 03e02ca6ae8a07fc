"""The request of a key update: its terms, and the fields that are signed, sent and previewed."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from loopring_lab.bounded import shown
from loopring_lab.errors import KeyUpdateError, ProtocolError
from loopring_lab.interactive.preview import Line
from loopring_lab.keys.deployments import Deployment, FeeToken, Units
from loopring_lab.protocol import (
    FACTORY_INIT_CODE_HASHES,
    AccountUpdate,
    L2Key,
    account_update_digest,
    account_update_typed_data,
    wallet_address,
)
from loopring_lab.protocol.fields import parse_address, parse_uint
from loopring_lab.redaction import SecretText
from loopring_lab.sources.records import UpdateFee

Lifetime = str | timedelta | datetime
# The fields of ``counterFactualInfo`` in the relayer's contract, and ours.
_WIRE_NAMES = {"walletFactory": "factory", "walletOwner": "owner", "walletSalt": "salt"}
_WALLET_MEANINGS = {
    "walletFactory": "the contract that would deploy the owner's wallet",
    "walletOwner": "who signs for that wallet",
    "walletSalt": "with these three the relayer recomputes the owner's address",
}
# The largest fee, in smallest units, and the last deadline that can be signed: a uint96 and a uint32.
_MOST_FEE = 2**96 - 1
_LAST_SECOND = 2**32 - 1
# Units of `valid_for`, and the arguments of timedelta; months and years are not equally long.
_TIME_UNITS = {
    "s": "seconds",
    "min": "minutes",
    "h": "hours",
    "d": "days",
    "w": "weeks",
}


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A wallet that owns an account, but whose contract is not deployed yet.

    Parameters
    ----------
    factory : str
        Address of the factory that would deploy it, kept with its checksum.
    owner : str
        Address of the wallet's owner, who signs for it; kept with its checksum, too.
    salt : int or str
        uint256; text is decimal, or hex with ``0x``.
    init_code_hash : str, optional
        32 bytes in hex that belong to the factory; not needed for the factories in
        `protocol.FACTORY_INIT_CODE_HASHES`.

    Raises
    ------
    ProtocolError
        One of the addresses is not valid.

    Examples
    --------
    >>> lab.keys.Counterfactual("0x8c3d4E1728f77ABCD220323260da4A9306FB6433", "0x" + 20 * "cd", 7).salt
    7
    """

    factory: str
    owner: str
    salt: int | str
    init_code_hash: str | None = None

    def __post_init__(self) -> None:
        # Addresses are compared and sent as text, so that each has one spelling, whichever was given.
        for wire in ("walletFactory", "walletOwner"):
            name = _WIRE_NAMES[wire]
            address = parse_address(wire, getattr(self, name))
            object.__setattr__(self, name, address)

    def address(self) -> str:
        """Compute the wallet's address.

        Returns
        -------
        str
            Checksummed.

        Raises
        ------
        KeyUpdateError
            The factory is unknown.
        ProtocolError
            A field is not valid.

        Examples
        --------
        >>> factory = "0x8c3d4E1728f77ABCD220323260da4A9306FB6433"
        >>> lab.keys.Counterfactual(factory, "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1", 1648381750).address()
        '0x0B1efBD3d605F0431E7358D1Bb1567F2DA473684'
        """
        # CREATE2: the address is a hash of factory, salt and init code, and the owner is part of the salt.
        code = self.init_code_hash or FACTORY_INIT_CODE_HASHES.get(self.factory)
        if code is None:
            raise KeyUpdateError(
                f"counterfactual: the factory {self.factory} is unknown, so the wallet's address cannot be "
                "checked. Give the hash of its init code: init_code_hash=."
            )
        return wallet_address(self.factory, self.owner, self.salt, code)

    def wire(self) -> dict[str, str]:
        """Return the wallet in its wire format.

        Returns
        -------
        dict
            The fields of ``counterFactualInfo``.

        Examples
        --------
        >>> lab.keys.Counterfactual("0x" + 20 * "ab", "0x" + 20 * "cd", 7, "0x" + 32 * "ef").wire()["walletSalt"]
        '7'
        """
        return {wire: str(getattr(self, name)) for wire, name in _WIRE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class FeeOffer:
    """What the relayer asks for, what is offered, at most allowed, and there to pay it, in smallest units."""

    token: FeeToken
    demand: int
    offered: int
    allowed: int | None
    balance: int | None

    def check(self) -> None:
        """Refuse to offer more than is allowed or less than is asked for, and what the account cannot pay."""
        if self.allowed is None or self.demand > self.allowed:
            raise self._too_much()
        if self.balance is not None and self.balance < self.demand:
            symbol = self.token.symbol
            raise KeyUpdateError(
                f"The account cannot pay this fee: an update costs {self.token.text(self.demand)}, and it has "
                f"{self.token.text(self.balance)}. Deposit {symbol}, or choose another fee_token=."
            )

    def _too_much(self) -> KeyUpdateError:
        allowed = self.allowed
        demand = self.token.text(self.demand)
        units = demand.partition(" ")[0].replace(",", "")
        ceiling = "no ceiling is known"
        if allowed is not None:
            name = "the ceiling" if self.offered == self.demand else "what you allow"
            ceiling = f"{name} is {self.token.text(allowed)}"
        return KeyUpdateError(
            f"The relayer asks for {demand} for a key update ({self.demand} smallest units); {ceiling}. "
            f"If you mean to pay that, write max_fee={units!r}."
        )


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """The terms of a key update, without the key and the signature."""

    deployment: Deployment
    owner: str
    account_id: int
    fee: FeeOffer
    valid_until: int
    nonce: int
    key_seed: str
    counterfactual: Counterfactual | None = None

    def __post_init__(self) -> None:
        self.check()
        # A seed of another nonce makes another key, which the exchange's own pages would not find again.
        ending = f"with key nonce: {self.nonce}"
        if not isinstance(self.key_seed, str):
            problem = f"expected text, got {type(self.key_seed).__name__}"
            hint = f"Give text that ends in {ending!r}, or omit key_seed to use the exchange's own."
            raise ProtocolError("keySeed", problem, hint=hint)
        if re.search("[\ud800-\udfff]", self.key_seed):
            problem = "contains half a surrogate pair"
            raise ProtocolError("keySeed", problem, hint="Give valid Unicode.")
        if not self.key_seed.endswith(ending):
            hint = "Add that ending, or omit key_seed to use the exchange's own text."
            raise ProtocolError("keySeed", f"does not end in {ending!r}", hint=hint)
        # The relayer computes this address, too, and refuses another one; here it is refused before it is signed.
        wallet = self.counterfactual
        if wallet and wallet.address() != self.owner:
            raise KeyUpdateError(
                f"counterfactual: factory, owner and salt give the wallet {wallet.address()}, but the owner "
                f"of the account is {self.owner}. Check the salt and the wallet's owner."
            )

    def check(self) -> None:
        """Refuse an exchange, a token or a fee that is not what is known, trusted and allowed."""
        parse_uint("nonce", self.nonce, 32)
        self.fee.check()
        known = self.deployment.pinned()
        if known is not None and self.fee.token.symbol in known.tokens:
            known.tokens[self.fee.token.symbol].check(self.fee.token)

    @property
    def signer(self) -> str:
        """Address of the wallet that signs."""
        return self.counterfactual.owner if self.counterfactual else self.owner

    def typed_data(self, key: L2Key) -> dict[str, Any]:
        return account_update_typed_data(**self._signed_fields(key))

    def digest(self, key: L2Key) -> bytes:
        return account_update_digest(**self._signed_fields(key))

    def body(self, key: L2Key, signature: SecretText) -> dict[str, Any]:
        self.check()
        # The order is that of the contract, which a reader compares with. Amounts are text: JSON's numbers are doubles.
        body: dict[str, Any] = {
            "exchange": self.deployment.exchange,
            "owner": self.owner,
            "accountId": self.account_id,
            "publicKey": {"x": f"{key.x:#066x}", "y": f"{key.y:#066x}"},
            "maxFee": {"tokenId": self.fee.token.id, "volume": str(self.fee.offered)},
            "validUntil": self.valid_until,
            "nonce": self.nonce,
            "keySeed": self.key_seed,
            "ecdsaSignature": signature,
        }
        if self.counterfactual:
            body["counterFactualInfo"] = self.counterfactual.wire()
        return body

    def preview_lines(self, key: L2Key | None, signature: str) -> list[Line]:
        x = y = "not known yet"
        if key:
            x = f"{key.x:#066x}"
            y = f"{key.y:#066x}"
        wallet = self.counterfactual.wire() if self.counterfactual else {}
        deadline = datetime.fromtimestamp(self.valid_until, UTC)
        place = self.deployment
        fee = self.fee
        token = fee.token
        exchange = f"the exchange's contract, on chain {place.chain_id}: the update is valid nowhere else"
        payer = f"{token.symbol}, with {token.decimals} decimals, pays the fee"
        paid = f"the most you pay: {token.text(fee.offered)}; the relayer asks for {token.text(fee.demand)}"
        if fee.balance is None:
            paid += "; this relayer does not show whether the account has it"
        expiry = (
            f"seconds since 1970: not processed after {deadline:%Y-%m-%d %H:%M:%S} UTC"
        )
        return [
            Line(
                "X-API-SIG",
                signature,
                "header: the wallet's signature of the typed data",
            ),
            Line(
                "exchange",
                place.exchange,
                f"{exchange}. Vouched for by {place.voucher}",
            ),
            Line("owner", self.owner, "the wallet that owns the account"),
            Line("accountId", self.account_id, "the account whose key changes"),
            Line(
                "publicKey.x",
                x,
                "the new public key, a point: its x. The secret stays here",
            ),
            Line("publicKey.y", y, "and its y"),
            Line(
                "maxFee.tokenId", token.id, f"{payer}. Vouched for by {token.voucher}"
            ),
            Line("maxFee.volume", fee.offered, f"in smallest units; {paid}"),
            Line("validUntil", self.valid_until, expiry),
            Line(
                "nonce",
                self.nonce,
                "the account's counter: makes the update work only once",
            ),
            Line(
                "keySeed",
                self.key_seed,
                "the text whose signature makes the key, to recover it later",
            ),
            Line("ecdsaSignature", signature, "the header's signature once more"),
            *(
                Line(f"counterFactualInfo.{n}", value, _WALLET_MEANINGS[n])
                for n, value in wallet.items()
            ),
        ]

    def _signed_fields(self, key: L2Key) -> AccountUpdate:
        self.check()
        return {
            "exchange": self.deployment.exchange,
            "chain_id": self.deployment.chain_id,
            "owner": self.owner,
            "account_id": self.account_id,
            "x": key.x,
            "y": key.y,
            "fee_token_id": self.fee.token.id,
            "max_fee": self.fee.offered,
            "valid_until": self.valid_until,
            "nonce": self.nonce,
        }


def fee_demand(fees: Sequence[UpdateFee], symbol: str) -> int:
    """Return what the relayer asks for in a token, in smallest units."""
    # A token that is listed twice at one price is fine; at two prices nobody knows which is meant.
    demands = {fee.amount for fee in fees if fee.token == symbol}
    if len(demands) != 1:
        problem = "has two fees" if demands else "pays no fees"
        accepted = ", ".join(dict.fromkeys(fee.token for fee in fees))
        raise KeyUpdateError(
            f"fee_token={symbol!r}: {problem} at this relayer. Choose one that it accepts: {accepted}."
        )
    return demands.pop()


def fee_offer(
    demand: int, token: FeeToken, max_fee: Units | None, balance: int | None
) -> FeeOffer:
    """Return the fee to offer: `max_fee`, or else the relayer's demand up to the token's ceiling."""
    # Without max_fee the demand is paid, but never beyond a ceiling that the relayer has no say in.
    if max_fee is None:
        ceiling = None
        if token.ceiling is not None:
            ceiling = token.smallest("ceiling", token.ceiling)
        return FeeOffer(token, demand, demand, ceiling, balance)
    allowed = token.smallest("max_fee", max_fee)
    if not 0 <= allowed <= _MOST_FEE:
        problem = f"expected 0 to {token.text(_MOST_FEE)}, got max_fee={shown(max_fee)}"
        hint = f"Give units of {token.symbol}, such as '0.0001'."
        raise ProtocolError("maxFee", problem, hint=hint)
    return FeeOffer(token, demand, allowed, allowed, balance)


def parse_valid_until(valid_for: Lifetime) -> int:
    """Convert a lifetime or a deadline to seconds since the epoch."""
    # pandas' NaT is a datetime, too, and equal to nothing.
    if isinstance(valid_for, datetime) and valid_for == valid_for:
        # A time without a zone counts as UTC, as everywhere in the toolkit.
        deadline = valid_for if valid_for.tzinfo else valid_for.replace(tzinfo=UTC)
        valid_until = int(deadline.timestamp() // 1)
    else:
        duration = _duration(valid_for)
        if not duration or duration < timedelta(0):
            raise KeyUpdateError(
                f"valid_for={shown(valid_for)}: expected a duration above zero or a deadline. Give text such as "
                f"'30d' (units: {', '.join(_TIME_UNITS)}), a timedelta or a datetime."
            )
        valid_until = int(time.time() + duration.total_seconds())
    # An update is processed only before its deadline.
    if not time.time() < valid_until <= _LAST_SECOND:
        last = datetime.fromtimestamp(_LAST_SECOND, UTC)
        problem = f"expected a deadline from now to {last:%Y-%m-%d %H:%M:%S} UTC, got valid_for={shown(valid_for)}"
        hint = "Give a time such as '30d', or a deadline in between."
        raise ProtocolError("validUntil", problem, hint=hint)
    return valid_until


def parse_counterfactual(
    value: Counterfactual | Mapping[str, Any] | None,
) -> Counterfactual | None:
    """Convert a mapping, with our names or those of the wire, to a `Counterfactual`."""
    if value is None or isinstance(value, Counterfactual):
        return value
    try:
        return Counterfactual(
            **{_WIRE_NAMES.get(name, name): field for name, field in value.items()}
        )
    # Text has no names, and a mapping may have others.
    except (TypeError, AttributeError):
        raise KeyUpdateError(
            "counterfactual: expected factory, owner and salt, and init_code_hash if the factory is not "
            "known. Give them as a dictionary or as lab.keys.Counterfactual."
        ) from None


def _duration(value: object) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        return None
    # At most six digits, so that no number is too large for a timedelta: weeks of them are 19,000 years.
    match = re.fullmatch(r"\s*(\d{1,6})\s*([a-z]+)\s*", value, re.ASCII)
    if match is None or match[2] not in _TIME_UNITS:
        return None
    unit = _TIME_UNITS[match[2]]
    return timedelta(**{unit: int(match[1])})
