"""The terms of a key update: until when, for how much, by which wallet."""

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
from loopring_lab.amounts.readable import number
from loopring_lab.errors import AmountError, KeyUpdateError
from loopring_lab.protocol import FACTORY_INIT_CODE_HASHES, wallet_address
from loopring_lab.protocol.fields import uint

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
    """Read how a wallet is given.

    Parameters
    ----------
    given : Counterfactual, mapping or None
        A mapping has the parameters of `Counterfactual`, or the wire's names of them.

    Returns
    -------
    Counterfactual or None
        None where nothing is given.

    Raises
    ------
    KeyUpdateError
        Another shape.
    """
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
    """Read how long an update may be processed.

    Parameters
    ----------
    valid_for : str, timedelta or datetime
        From now on, such as ``"30d"``; or the moment itself, UTC where it names no zone. Whether a moment has
        passed is for the relayer's clock to say.
    clock : callable
        Seconds since the epoch.

    Returns
    -------
    int
        Seconds since the epoch, uint32, rounded down.

    Raises
    ------
    KeyUpdateError
        Not a time, or not in the future where it is counted from now.
    ProtocolError
        Beyond uint32, which ends in February 2106.

    Examples
    --------
    >>> seconds_until("30d", clock=lambda: 1_000_000_000)
    1002592000
    >>> seconds_until(datetime(2030, 1, 1, tzinfo=UTC))
    1893456000
    """
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
    """Read the most that a fee may be.

    Parameters
    ----------
    max_fee : Decimal, str or int
        Units of the token; no float, which would not be exact.
    decimals : int
        Of the token.
    token : str
        Its symbol, for the error.

    Returns
    -------
    int
        Smallest units, uint96.

    Raises
    ------
    AmountError
        Not a number, or with digits below the smallest unit.
    ProtocolError
        Below 0 or beyond uint96.

    Examples
    --------
    >>> smallest_units("0.000019", 18, "ETH")
    19000000000000
    """
    amount = _decimal(max_fee)
    if amount is None:
        raise AmountError(f"max_fee={max_fee!r}: expected units of {token}. Give text such as '0.0001'.")
    units = pd.Series([amount], dtype=LIMIT)
    return uint("maxFee", int(to_smallest(units, decimals, token=token).iloc[0]), 96)


class Fee(NamedTuple):
    """What an update may cost.

    Parameters
    ----------
    token_id : int
        Token it is paid in.
    volume : int
        Most to pay, in smallest units.
    words : str
        What is offered and what is asked for.
    """

    token_id: int
    volume: int
    words: str


def agreed_fee(
    fees: pd.DataFrame, tokens: pd.DataFrame, token: str, max_fee: Decimal | str | int | None
) -> Fee:
    """Find the fee to offer.

    Parameters
    ----------
    fees : pandas.DataFrame
        From `Client.update_fee`.
    tokens : pandas.DataFrame
        From `Client.tokens`.
    token : str
        Symbol.
    max_fee : Decimal, str, int or None
        Most to pay, in units; None for what the relayer asks for.

    Returns
    -------
    Fee
        Ready to be sent.

    Raises
    ------
    KeyUpdateError
        The relayer takes no fee in this token.
    AmountError, ProtocolError
        As for `smallest_units`.
    """
    if token not in fees.index:
        taken = ", ".join(fees.index)
        raise KeyUpdateError(f"fee_token={token!r}: give one that the relayer takes: {taken}.")
    asked = fees["fee"].astype(object)[token]
    offered = asked if max_fee is None else max_fee
    volume = smallest_units(offered, int(tokens["decimals"].astype(int)[token]), token)
    words = (
        f"the most you pay: {number(Decimal(offered))} {token}; the relayer asks for {number(asked)} {token}"
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
