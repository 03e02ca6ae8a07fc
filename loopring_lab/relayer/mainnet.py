"""Tokens, markets and pools of the real exchange (``mainnet.json``), on which the synthetic world is built.

Ids, addresses, decimals, pool accounts and pool fees are the deployment's own. Prices (early 2022, rounded),
depths, spreads and shares of activity are plausible assumptions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from loopring_lab.relayer.history import POOL_PREFIX

# One US dollar in the integer unit that prices are kept in, 10**-12 dollars.
USD = 10**12

# The fee of every pool of the real exchange, in basis points of the amount paid in: feeBips of all 119 pools in
# packages/loopring_v3/deployment_mainnet_v3.6.md of Loopring/protocols.
POOL_FEE_BPS = 20
POOL_VERSION = "1.0.0"  # as in the public document's example

# The bits of a market's status, as the contract has them.
AMM_BIT = 1
BOOK_BIT = 2

# The status of a pool: 7 in the public document's example, which does not explain its bits.
OPEN = 7
CLOSED = 0

# These are choices: the limits of an order, and of a fast withdrawal, in dollars at the first price. Recorded limits
# are as large, but were set at prices of other days.
ORDER_DOLLARS = {"minimum": 5, "maximum": 5_000_000, "dust": 1}
LUCKY_DOLLARS = ORDER_DOLLARS["dust"]
WITHDRAWAL_DOLLARS = 250_000


@dataclass(frozen=True)
class Token:
    """A token, with its initial price in thousandths of a dollar and its hourly volatility."""

    id: int
    symbol: str
    name: str
    address: str
    decimals: int
    precision: int
    milli_dollars: int
    hourly_bps: int

    @cached_property
    def units(self) -> int:
        """Smallest units in one of the token."""
        return int(10**self.decimals)

    def worth(self, dollars: int, parts: int = 1) -> int:
        """Return the amount that a dollar value, divided by `parts`, buys at the initial price."""
        units: int = dollars * 1000 * self.units // (self.milli_dollars * parts)
        # Amounts keep one digit, so that limits are round numbers.
        magnitude: int = 10 ** (len(str(units)) - 1)
        return units // magnitude * magnitude

    @cached_property
    def minimum(self) -> int:
        """Smallest order, in smallest units."""
        return self.worth(ORDER_DOLLARS["minimum"])

    @cached_property
    def dust(self) -> int:
        """Remainders of an order below this are dropped; in smallest units."""
        return self.worth(ORDER_DOLLARS["dust"])

    def record(self) -> dict[str, Any]:
        """Return the token as the relayer serves it."""
        is_native = self.id == 0
        order = {
            name: str(self.worth(dollars)) for name, dollars in ORDER_DOLLARS.items()
        }
        # Lucky tokens are gifts, which may be small.
        lucky = str(self.worth(LUCKY_DOLLARS, 10))
        # Gas as in recorded responses; that of a token includes a call of its contract.
        gas = {"distribution": "101827", "deposit": "150000"}
        if is_native:
            gas = {"distribution": "85000", "deposit": "110000"}
        return {
            "type": "ETH" if is_native else "ERC20",
            "tokenId": self.id,
            "symbol": self.symbol,
            "name": self.name,
            "address": self.address,
            "decimals": self.decimals,
            "precision": self.precision,
            "precisionForOrder": min(self.precision, 3),
            "orderAmounts": order,
            "luckyTokenAmounts": {
                "minimum": lucky,
                "maximum": order["maximum"],
                "dust": lucky,
            },
            "fastWithdrawLimit": str(self.worth(WITHDRAWAL_DOLLARS)),
            "gasAmounts": gas,
            "enabled": True,
        }


@dataclass(frozen=True)
class Market:
    """A market, with its share of activity and its depth; half the spread is in tenths of a basis point."""

    base: Token
    quote: Token
    status: int
    created_at: int
    price_decimals: int
    share: int
    pool: int | None = None
    pool_address: str = ""
    lp_token: int | None = None
    pool_dollars: int = 0
    half_spread: int = 0
    book_dollars: int = 0

    @cached_property
    def name(self) -> str:
        """The name of the market, which an order book has without a prefix."""
        return f"{self.base.symbol}-{self.quote.symbol}"

    @cached_property
    def is_stable(self) -> bool:
        """Whether both tokens are stable coins."""
        return not self.base.hourly_bps and not self.quote.hourly_bps

    @cached_property
    def has_pool(self) -> bool:
        """Whether a pool trades here."""
        return bool(self.status & AMM_BIT)

    @cached_property
    def has_book(self) -> bool:
        """Whether an order book trades here."""
        return bool(self.status & BOOK_BIT)

    def record(self) -> dict[str, Any]:
        """Return the market as the relayer serves it."""
        return {
            "market": self.name,
            "baseTokenId": self.base.id,
            "quoteTokenId": self.quote.id,
            "precisionForPrice": self.price_decimals,
            "orderbookAggLevels": 5 if self.has_book else 3,
            "enabled": self.status > 0,
            "status": self.status,
            "createdAt": str(self.created_at),
        }

    def pool_record(self) -> dict[str, Any]:
        """Return the market's pool as the relayer serves it."""
        name = POOL_PREFIX + self.name
        return {
            "name": name,
            "market": name,
            "address": self.pool_address,
            "version": POOL_VERSION,
            "tokens": {
                "pooled": [self.base.id, self.quote.id],
                "lp": self.lp_token,
            },
            "feeBips": POOL_FEE_BPS,
            "precisions": {
                "price": self.price_decimals,
                "amount": self.base.precision,
            },
            "status": OPEN if self.has_pool else CLOSED,
            "createdAt": str(self.created_at),
        }


def _read() -> tuple[dict[str, Token], dict[str, Market]]:
    path = Path(__file__).with_name("mainnet.json")
    facts = json.loads(path.read_text(encoding="utf-8"))
    tokens = {record["symbol"]: Token(**record) for record in facts["tokens"]}
    markets = {}
    for record in facts["markets"]:
        base = tokens[record.pop("base")]
        quote = tokens[record.pop("quote")]
        market = Market(base, quote, **record)
        markets[market.name] = market
    return tokens, markets


TOKENS, MARKETS = _read()
