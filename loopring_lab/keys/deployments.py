"""Which exchange, chain and fee token an update may be signed for; the relayer alone cannot decide that.

``deployments.json`` repeats facts of the embedded relayer's ``mainnet.json``, because client and relayer
check each other and so import nothing from each other; a test compares the two files.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from loopring_lab.amounts.display import format_amount
from loopring_lab.bounded import shown
from loopring_lab.errors import AmountError, KeyUpdateError
from loopring_lab.protocol.fields import FIRST_NFT_SLOT, parse_address, parse_uint
from loopring_lab.sources.records import Exchange

Trust = Mapping[str, Any] | str | None
"""What the caller states of an exchange, the name of a known one, `RELAYER`, or None."""
Units = Decimal | str | int

RELAYER = "relayer"
# Those who may vouch for a fact.
BY_RELAYER = "the relayer alone"
BY_CALLER = "the caller (trust=)"
_MOST_DECIMALS = 77  # of a uint256: no token has more
# Shifting a number by its decimals never rounds: all digits before the point, and as many after it.
_EXACT = Context(prec=2 * (_MOST_DECIMALS + 1))


@dataclass(frozen=True, slots=True)
class FeeToken:
    """A token that pays fees, with the most that is paid unasked, in units, and who says so."""

    voucher: str
    symbol: str
    id: int
    decimals: int
    address: str | None = None
    ceiling: Units | None = None

    def __post_init__(self) -> None:
        are_integers = type(self.id) is int and type(self.decimals) is int
        if not (
            are_integers
            and 0 <= self.id < FIRST_NFT_SLOT
            and 0 <= self.decimals <= _MOST_DECIMALS
        ):
            raise KeyUpdateError(
                f"Token {self.symbol}: expected an id from 0 to 32767 and 0 to {_MOST_DECIMALS} decimals, "
                f"got id {self.id!r} and decimals {self.decimals!r} from {self.voucher}. Nothing was signed: "
                "compare with the token's contract."
            )

    def check(self, claim: FeeToken) -> None:
        """Refuse a claim about this token that differs from what is known."""
        # A relayer that lies about decimals or ids makes the wallet sign for another amount or token.
        for name in ("symbol", "id", "decimals", "address"):
            claimed = getattr(claim, name)
            known = getattr(self, name)
            if claimed != known and None not in (claimed, known):
                raise KeyUpdateError(
                    f"Fee token {self.symbol}, id {self.id}: {name} is {shown(claimed)} according to "
                    f"{claim.voucher}, but {known!r} according to {self.voucher}. Nothing was signed: do not "
                    "sign until you know why they differ."
                )

    def smallest(self, name: str, amount: Units) -> int:
        """Convert an amount from units to smallest units."""
        units = _finite_decimal(amount)
        if units is None:
            raise AmountError(
                f"{name}={shown(amount)}: expected units of {self.symbol}. Give text such as '0.0001'."
            )
        smallest = units.scaleb(self.decimals, _EXACT)
        if smallest != smallest.to_integral_value(context=_EXACT):
            raise AmountError(
                f"{name}={amount!r}: has digits below the smallest unit of {self.symbol}, "
                f"1e-{self.decimals}. Give fewer decimals; the fee is not rounded."
            )
        return int(smallest)

    def text(self, smallest: int) -> str:
        """Write smallest units as units with the symbol."""
        return f"{format_amount(Decimal(smallest).scaleb(-self.decimals, _EXACT))} {self.symbol}"


@dataclass(frozen=True, slots=True)
class Deployment:
    """An exchange on a chain, with the fee tokens that are known there, and who says so."""

    voucher: str
    exchange: str
    chain_id: int
    tokens: Mapping[str, FeeToken]

    def pinned(self) -> Deployment | None:
        """Find the known deployment at this address and chain; the case of the address does not matter."""
        address = parse_address("exchange", self.exchange)
        for known in known_deployments().values():
            if known.exchange == address and known.chain_id == self.chain_id:
                return known
        return None

    def fee_token(self, symbol: str, listed: pd.DataFrame, trust: Trust) -> FeeToken:
        """Return what is known of a token, after comparing it with the relayer's list of tokens."""
        token = self.tokens.get(symbol)
        # Its own word counts only where the caller says so, and nothing else is known.
        if token is None and trust == RELAYER:
            token = next(iter(_claims(listed[listed.index == symbol])), None)
        if token is None:
            known = f" Known are {', '.join(self.tokens)}." if self.tokens else ""
            raise KeyUpdateError(
                f"fee_token={symbol!r}: only the relayer says which token that is on the exchange "
                f"{self.exchange}.{known} {_advice(self, symbol)}"
            )
        # We look both ways: for another token under this symbol, and for this id under another symbol.
        for claim in _claims(
            listed[(listed.index == symbol) | (listed["token_id"] == token.id)]
        ):
            token.check(claim)
        return token


@functools.cache
def known_deployments() -> dict[str, Deployment]:
    """Read the deployments whose exchange, chain and tokens are known, by name."""
    facts = json.loads(
        Path(__file__).with_name("deployments.json").read_text(encoding="utf-8")
    )
    found = {}
    for name, exchange in facts["exchanges"].items():
        voucher = f"loopring_lab ({name})"
        found[name] = Deployment(
            voucher, **exchange, tokens=_tokens(voucher, facts["tokens"])
        )
    return found


def trusted_deployment(
    trust: Trust, fee_token: str, ask: Callable[[], Exchange]
) -> Deployment:
    """Return the deployment that the caller trusts, or the known one that the relayer names."""
    if isinstance(trust, str) and trust in known_deployments():
        return known_deployments()[trust]
    if isinstance(trust, Mapping):
        named = _stated(trust)
    else:
        named = _claimed(trust, ask)
    # A chain id is signed as a uint256; text or a fraction would be signed as something else.
    named = replace(named, chain_id=parse_uint("chain_id", named.chain_id, 256))
    known = named.pinned()
    if known is not None:
        # The known deployment wins: the caller may add tokens to it, and contradict none.
        for symbol, token in named.tokens.items():
            known.tokens.get(symbol, token).check(token)
        return replace(known, tokens={**named.tokens, **known.tokens})
    if trust is None:
        pinned = [
            f"{name} is {each.exchange} on chain {each.chain_id}"
            for name, each in known_deployments().items()
        ]
        raise KeyUpdateError(
            f"The relayer claims to serve the exchange {named.exchange} on chain {named.chain_id}, which is "
            f"not known: {', '.join(pinned)}. {_advice(named, fee_token)}"
        )
    return named


def _stated(trust: Mapping[str, Any]) -> Deployment:
    # Members that are missing or too many are errors of the call, which Python words less helpfully.
    try:
        return Deployment(
            BY_CALLER, **{**trust, "tokens": _tokens(BY_CALLER, trust["tokens"])}
        )
    except (TypeError, KeyError, AttributeError):
        raise KeyUpdateError(
            "trust: expected exchange, chain_id and tokens, and of each token its id and decimals; its "
            f"address and ceiling are optional. {_advice(None, 'ETH')}"
        ) from None


def _claimed(trust: object, ask: Callable[[], Exchange]) -> Deployment:
    if trust not in (None, RELAYER):
        names = ", ".join(map(repr, (*known_deployments(), RELAYER)))
        raise KeyUpdateError(
            f"trust={trust!r}: expected {names} or a mapping. {_advice(None, 'ETH')}"
        )
    # Its tokens are compared later, one at a time: see `Deployment.fee_token`.
    reported = ask()
    return Deployment(BY_RELAYER, reported.address, reported.chain_id, {})


def _tokens(
    voucher: str, tokens: Mapping[str, Mapping[str, Any]]
) -> dict[str, FeeToken]:
    found = {}
    for symbol, facts in tokens.items():
        address = _address(facts.get("address"))
        found[symbol] = FeeToken(voucher, symbol, **{**facts, "address": address})
    return found


def _claims(listed: pd.DataFrame) -> list[FeeToken]:
    """Return what the relayer says of some tokens."""
    records = listed[["token_id", "decimals", "address"]].itertuples(name=None)
    return [
        FeeToken(BY_RELAYER, symbol, int(token_id), int(decimals), _address(address))
        for symbol, token_id, decimals, address in records
    ]


def _address(value: object) -> str | None:
    # Upper case in an address is a checksum and no part of it (EIP-55). Anything but text is no address.
    return value.lower() if isinstance(value, str) else None


def _advice(deployment: Deployment | None, symbol: str) -> str:
    exchange = deployment.exchange if deployment else "0x..."
    chain = deployment.chain_id if deployment else 1
    return (
        "If you know the values from a source other than this relayer, write them: "
        f"trust={{'exchange': {exchange!r}, 'chain_id': {chain}, 'tokens': {{{symbol!r}: {{'id': ..., "
        f"'decimals': ...}}}}}}. To take this relayer's word, write trust={RELAYER!r}."
    )


def _finite_decimal(value: object) -> Decimal | None:
    """Return an exact number of a sane size, or None."""
    # A float is not exact, and True is an int to Python.
    if isinstance(value, bool) or not isinstance(value, Decimal | str | int):
        return None
    try:
        number = Decimal(value)
    except ArithmeticError:
        return None
    # A huge exponent, "1e999999999", would cost memory when it is written out.
    is_sane = number.is_finite() and abs(number.adjusted()) <= _MOST_DECIMALS
    return number if is_sane else None
