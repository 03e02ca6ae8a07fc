"""The request of a key update: its terms, and what is signed and sent; nothing here asks, signs or sends."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd

from loopring_lab.amounts import LIMIT, to_smallest
from loopring_lab.amounts.display import format_amount
from loopring_lab.errors import AmountError, KeyUpdateError, ProtocolError
from loopring_lab.preview import Line
from loopring_lab.protocol import (
    FACTORY_INIT_CODE_HASHES,
    AccountUpdate,
    L2Key,
    account_update_digest,
    account_update_typed_data,
    wallet_address,
)
from loopring_lab.protocol.fields import uint
from loopring_lab.redaction import SecretText

Lifetime = str | timedelta | datetime
_WIRE = {"walletFactory": "factory", "walletOwner": "owner", "walletSalt": "salt"}
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TOO_MUCH = 2**96


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A wallet that owns an account although its contract is not deployed yet.

    Parameters
    ----------
    factory : str
        Address of the factory that would deploy it.
    owner : str
        Address of the wallet's owner, who signs for it.
    salt : int or str
        uint256; text is decimal, or hex with ``0x``.
    init_code_hash : str, optional
        32 bytes in hex, that belong to the factory; known for the factories of
        `protocol.FACTORY_INIT_CODE_HASHES`.

    Examples
    --------
    >>> Counterfactual("0x8c3d4E1728f77ABCD220323260da4A9306FB6433", "0x" + 20 * "cd", 7).salt
    7
    """

    factory: str
    owner: str
    salt: int | str
    init_code_hash: str | None = None

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
            A field cannot be read.

        Examples
        --------
        >>> factory = "0x8c3d4E1728f77ABCD220323260da4A9306FB6433"
        >>> Counterfactual(factory, "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1", 1648381750).address()
        '0x0B1efBD3d605F0431E7358D1Bb1567F2DA473684'
        """
        known = {factory.lower(): code for factory, code in FACTORY_INIT_CODE_HASHES.items()}
        code = self.init_code_hash or known.get(self.factory.lower())
        if code is None:
            raise KeyUpdateError(
                f"counterfactual: the factory {self.factory} is unknown, so the wallet's address cannot be "
                "checked. Give the hash of its init code: init_code_hash=."
            )
        return wallet_address(self.factory, self.owner, self.salt, code)

    def wire(self) -> dict[str, str]:
        """Write it as it is sent.

        Returns
        -------
        dict
            The members of ``counterFactualInfo``.

        Examples
        --------
        >>> Counterfactual("0x" + 20 * "ab", "0x" + 20 * "cd", 7, "0x" + 32 * "ef").wire()["walletSalt"]
        '7'
        """
        return {wire: str(getattr(self, name)) for wire, name in _WIRE.items()}


def read_counterfactual(given: Counterfactual | Mapping[str, Any] | None) -> Counterfactual | None:
    """Read how a wallet is given."""
    if given is None or isinstance(given, Counterfactual):
        return given
    try:
        return Counterfactual(**{_WIRE.get(name, name): value for name, value in given.items()})
    except TypeError:
        raise KeyUpdateError(
            "counterfactual: expected factory, owner and salt, and init_code_hash where the factory is not "
            "known. Give them as a dictionary or as lab.keys.Counterfactual."
        ) from None


def seconds_until(valid_for: Lifetime, clock: Callable[[], float] = time.time) -> int:
    """Read how long an update may be processed."""
    if isinstance(valid_for, datetime):
        moment = valid_for if valid_for.tzinfo else valid_for.replace(tzinfo=UTC)
        return uint("validUntil", int(moment.timestamp() // 1), 32)
    span = _span(valid_for)
    if not span or span < timedelta(0):
        raise KeyUpdateError(
            f"valid_for={valid_for!r}: expected a time from now on, or a moment. Give text such as '30d' "
            f"(units: {', '.join(_UNITS)}), a timedelta or a datetime."
        )
    return uint("validUntil", int(clock() + span.total_seconds()), 32)


def smallest_units(max_fee: Decimal | str | int, decimals: int, token: str) -> int:
    """Read the most that a fee may be."""
    amount = _decimal(max_fee)
    if amount is None:
        raise AmountError(f"max_fee={max_fee!r}: expected units of {token}. Give text such as '0.0001'.")
    units = pd.Series([amount], dtype=LIMIT)
    return uint("maxFee", int(to_smallest(units, decimals, token=token).iloc[0]), 96)


class Fee(NamedTuple):
    """What an update may cost."""

    token_id: int
    volume: int
    words: str


def agreed_fee(
    fees: pd.DataFrame, tokens: pd.DataFrame, token: str, max_fee: Decimal | str | int | None
) -> Fee:
    """Find the fee to offer."""
    if token not in fees.index:
        taken = ", ".join(fees.index)
        raise KeyUpdateError(f"fee_token={token!r}: give one that the relayer takes: {taken}.")
    asked = fees["fee"].astype(object)[token]
    offered = asked if max_fee is None else max_fee
    volume = smallest_units(offered, int(tokens["decimals"].astype(int)[token]), token)
    words = (
        f"the most you pay: {format_amount(Decimal(offered))} {token}; "
        f"the relayer asks for {format_amount(asked)} {token}"
    )
    return Fee(int(fees["token_id"].astype(int)[token]), volume, words)


def _span(given: object) -> timedelta | None:
    if isinstance(given, timedelta):
        return given
    found = re.fullmatch(r"\s*(\d{1,6})\s*([a-z]+)\s*", given, re.ASCII) if isinstance(given, str) else None
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found and found[2] in _UNITS else None


def _decimal(given: object) -> Decimal | None:
    """Return an exact number that a column of limits holds, or None."""
    if isinstance(given, bool) or not isinstance(given, Decimal | str | int):
        return None
    try:
        amount = Decimal(given)
        fits = amount.is_finite() and abs(amount) < _TOO_MUCH and int(amount.as_tuple().exponent) >= -18
    except ArithmeticError:
        return None
    return amount if fits else None


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """Everything that an update of a key says, but for the key and the signature."""

    exchange: str
    chain_id: int
    owner: str
    account_id: int
    fee_token_id: int
    max_fee: int
    valid_until: int
    nonce: int
    key_seed: str
    counterfactual: Counterfactual | None = None

    def __post_init__(self) -> None:
        end = f"with key nonce: {self.nonce}"
        if not self.key_seed.endswith(end):
            raise ProtocolError(
                "keySeed",
                f"does not end in {end!r}",
                hint="End it so, or leave key_seed out for the usual one.",
            )
        wallet = self.counterfactual
        if wallet and wallet.address().lower() != self.owner.lower():
            raise KeyUpdateError(
                f"counterfactual: factory, owner and salt give the wallet {wallet.address()}, but the owner "
                f"of the account is {self.owner}. Check the salt and the wallet's owner."
            )

    @property
    def signer(self) -> str:
        """Address of the wallet that must sign."""
        return self.counterfactual.owner if self.counterfactual else self.owner

    def typed_data(self, key: L2Key) -> dict[str, Any]:
        """Write what the wallet signs."""
        return account_update_typed_data(**self._signed(key))

    def digest(self, key: L2Key) -> bytes:
        """Hash what the wallet signs."""
        return account_update_digest(**self._signed(key))

    def body(self, key: L2Key, signature: SecretText) -> dict[str, Any]:
        """Write what is sent."""
        body: dict[str, Any] = {
            "exchange": self.exchange,
            "owner": self.owner,
            "accountId": self.account_id,
            "publicKey": {"x": f"{key.x:#066x}", "y": f"{key.y:#066x}"},
            "maxFee": {"tokenId": self.fee_token_id, "volume": str(self.max_fee)},
            "validUntil": self.valid_until,
            "nonce": self.nonce,
            "keySeed": self.key_seed,
            "ecdsaSignature": signature,
        }
        return body | ({"counterFactualInfo": self.counterfactual.wire()} if self.counterfactual else {})

    def lines(self, key: L2Key | None, signed: str, fee: str) -> list[Line]:
        """List what would be sent."""
        x, y = (f"{key.x:#066x}", f"{key.y:#066x}") if key else ("not known yet",) * 2
        until = datetime.fromtimestamp(self.valid_until, UTC)
        chain = f"the exchange's contract, on chain {self.chain_id}"
        return [
            Line("X-API-SIG", signed, "header: the wallet's signature of the typed data"),
            Line("exchange", self.exchange, f"{chain}: the update holds nowhere else"),
            Line("owner", self.owner, "the wallet that owns the account"),
            Line("accountId", self.account_id, "the account whose key changes"),
            Line("publicKey.x", x, "the new public key, a point: its x. The secret stays here"),
            Line("publicKey.y", y, "and its y"),
            Line("maxFee.tokenId", self.fee_token_id, "the token that pays the fee"),
            Line("maxFee.volume", self.max_fee, f"in smallest units; {fee}"),
            Line(
                "validUntil",
                self.valid_until,
                f"seconds since 1970: not processed after {until:%Y-%m-%d %H:%M:%S} UTC",
            ),
            Line("nonce", self.nonce, "the account's counter: the update works once, as this one"),
            Line(
                "keySeed",
                self.key_seed,
                "the text whose signature makes the key, so that it can be made again",
            ),
            Line("ecdsaSignature", signed, "the header's signature once more"),
            *self._wallet_lines(),
        ]

    def _signed(self, key: L2Key) -> AccountUpdate:
        return AccountUpdate(
            exchange=self.exchange,
            chain_id=self.chain_id,
            owner=self.owner,
            account_id=self.account_id,
            x=key.x,
            y=key.y,
            fee_token_id=self.fee_token_id,
            max_fee=self.max_fee,
            valid_until=self.valid_until,
            nonce=self.nonce,
        )

    def _wallet_lines(self) -> list[Line]:
        if self.counterfactual is None:
            return []
        wire = self.counterfactual.wire()
        return [
            Line(f"counterFactualInfo.{name}", wire[name], meaning)
            for name, meaning in (
                ("walletFactory", "the contract that would deploy the owner's wallet"),
                ("walletOwner", "who signs for that wallet"),
                ("walletSalt", "with these three the relayer computes the owner's address again"),
            )
        ]
