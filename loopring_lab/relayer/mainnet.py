"""Tokens, markets and pools of the real exchange, on which the synthetic world is built.

Ids, addresses, decimals, pool accounts and pool fees are the deployment's own. Prices (early 2022, rounded),
depths, spreads and shares of activity are plausible assumptions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

USD = 10**12
"""One US dollar in the integer unit that prices are kept in (10**-12 dollars)."""

POOL_FEE_BPS = 20
"""The fee of every pool, in basis points of the amount paid in."""

ORDER_DOLLARS = {"minimum": 5, "maximum": 5_000_000, "dust": 1}


class Token(NamedTuple):
    """A token of the exchange."""

    id: int
    symbol: str
    name: str
    address: str
    decimals: int
    precision: int
    milli_dollars: int
    hourly_bps: int

    def worth(self, dollars: int, parts: int = 1) -> int:
        """Return the amount that a dollar value, divided by `parts`, buys at the initial price."""
        units: int = dollars * 1000 * 10**self.decimals // (self.milli_dollars * parts)
        magnitude: int = 10 ** (len(str(units)) - 1)
        return units // magnitude * magnitude

    @property
    def minimum(self) -> int:
        """Smallest order, in smallest units."""
        return self.worth(ORDER_DOLLARS["minimum"])

    @property
    def dust(self) -> int:
        """Remainders of an order below this are dropped; in smallest units."""
        return self.worth(ORDER_DOLLARS["dust"])


TOKENS = {
    token.symbol: token
    for token in (
        Token(0, "ETH", "Ethereum", "0x" + 40 * "0", 18, 7, 3_700_000, 27),
        Token(1, "LRC", "Loopring", "0xbbbbca6a901c926f240b89eacb641d8aec7aeafd", 18, 3, 2_100, 42),
        Token(3, "USDT", "USD Tether (erc20)", "0xdac17f958d2ee523a2206206994597c13d831ec7", 6, 2, 1_000, 0),
        Token(
            4, "WBTC", "Wrapped Bitcoin", "0x2260fac5e5542a773aa44fbcfedf7c193bc2c599", 8, 6, 46_500_000, 22
        ),
        Token(5, "DAI", "Dai Stablecoin v2.0", "0x6b175474e89094c44da98b954eedeac495271d0f", 18, 3, 1_000, 0),
        Token(6, "USDC", "USD//Coin", "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", 6, 2, 1_000, 0),
        Token(9, "LINK", "LINK Chainlink", "0x514910771af9ca656af840dff83e8264ecf986ca", 18, 3, 19_600, 37),
        Token(33, "GRID", "Grid+", "0x12b19d3e2ccc14da04fae33e63652ce469b3f2fd", 12, 3, 1_150, 45),
        Token(46, "ENJ", "ENJIN", "0xf629cbd94d3791c9250152bd8dfbdf380e2a3b9c", 18, 3, 2_600, 40),
        Token(72, "UNI", "Uniswap", "0x1f9840a85d5af5bf1d1762f925bdaddc4201f984", 18, 3, 17_100, 37),
        Token(81, "CEL", "Celsius", "0xaaaebe6fe48e54f431b0c390cfaf0b017d09d42d", 4, 3, 4_300, 45),
        Token(
            83, "LP-LRC-ETH", "LP-LRC-ETH", "0x18920d6e6fb7ebe057a4dd9260d6d95845c95036", 8, 4, 175_000, 42
        ),
        Token(
            112,
            "LP-ETH-USDC",
            "LP-ETH-USDC",
            "0xf88de0ccd1e84898b4ea62c421009996bfb6156e",
            8,
            4,
            12_000_000,
            27,
        ),
        Token(255, "IMX", "Immutable X", "0xf57e7e7c23978c3caec3c3548e3d615c346e79ff", 18, 3, 4_200, 42),
    )
}


class Market(NamedTuple):
    """A market of the exchange."""

    base: Token
    quote: Token
    status: int
    created_at: int
    price_decimals: int
    share: int
    pool: int | None = None
    pool_dollars: int = 0
    half_spread: int = 0
    book_dollars: int = 0

    @property
    def name(self) -> str:
        """``BASE-QUOTE``."""
        return f"{self.base.symbol}-{self.quote.symbol}"

    @property
    def is_stable(self) -> bool:
        """Whether both tokens are stable coins."""
        return not self.base.hourly_bps and not self.quote.hourly_bps

    @property
    def has_pool(self) -> bool:
        """Whether bit 0 of `status` is set."""
        return bool(self.status & 1)

    @property
    def has_book(self) -> bool:
        """Whether bit 1 of `status` is set."""
        return bool(self.status & 2)


def _market(name: str, *facts: int | None) -> Market:
    base, quote = name.split("-")
    return Market(TOKENS[base], TOKENS[quote], *facts)  # type: ignore[arg-type]


MARKETS = {
    market.name: market
    for market in (
        _market("LRC-ETH", 3, 1617967800000, 7, 22, 1, 6_000_000, 60, 300),
        _market("ETH-USDT", 1, 1617972300000, 2, 9, 4, 9_000_000),
        _market("WBTC-ETH", 3, 1617976800000, 5, 6, 5, 3_500_000, 60, 900),
        _market("UNI-ETH", 1, 1618300800000, 6, 3, 6, 700_000),
        _market("LINK-ETH", 1, 1618300800000, 6, 3, 8, 900_000),
        _market("ETH-DAI", 1, 1618819200000, 2, 3, 14, 2_200_000),
        _market("LRC-USDT", 1, 1618819200000, 4, 4, 15, 1_400_000),
        _market("ETH-USDC", 3, 1619424000000, 2, 16, 22, 11_000_000, 40, 600),
        _market("ENJ-ETH", 1, 1619424000000, 7, 2, 26, 250_000),
        _market("GRID-ETH", 1, 0, 7, 1, 42, 90_000),
        _market("WBTC-USDT", 3, 1624924800000, 1, 4, 74, 1_100_000, 90, 500),
        _market("WBTC-USDC", 3, 1624924800000, 1, 5, 75, 1_300_000, 80, 500),
        _market("LRC-USDC", 3, 1636974420000, 4, 10, 108, 2_800_000, 100, 250),
        _market("IMX-USDC", 1, 1638144000000, 4, 3, 118, 800_000),
        _market("USDT-USDC", 2, 1642982400000, 4, 5, None, 0, 15, 2_000),
        _market("DAI-USDT", 2, 1642982400000, 4, 4, None, 0, 20, 1_500),
        _market("CEL-ETH", 0, 1619424000000, 7, 0, 23),
    )
}


def token_record(token: Token) -> dict[str, Any]:
    """Return a token as the relayer serves it."""
    native = token.id == 0
    order = {name: str(token.worth(dollars)) for name, dollars in ORDER_DOLLARS.items()}
    lucky = str(token.worth(ORDER_DOLLARS["dust"], 10))
    return {
        "type": "ETH" if native else "ERC20",
        "tokenId": token.id,
        "symbol": token.symbol,
        "name": token.name,
        "address": token.address,
        "decimals": token.decimals,
        "precision": token.precision,
        "precisionForOrder": min(token.precision, 3),
        "orderAmounts": order,
        "luckyTokenAmounts": {"minimum": lucky, "maximum": order["maximum"], "dust": lucky},
        "fastWithdrawLimit": str(token.worth(250_000)),
        "gasAmounts": {"distribution": "85000", "deposit": "110000"}
        if native
        else {"distribution": "101827", "deposit": "150000"},
        "enabled": True,
    }


def market_record(market: Market) -> dict[str, Any]:
    """Return a market as the relayer serves it."""
    return {
        "market": market.name,
        "baseTokenId": market.base.id,
        "quoteTokenId": market.quote.id,
        "precisionForPrice": market.price_decimals,
        "orderbookAggLevels": 5 if market.has_book else 3,
        "enabled": market.status > 0,
        "status": market.status,
        "createdAt": str(market.created_at),
    }
