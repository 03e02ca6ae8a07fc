"""How the synthetic exchange trades: latent prices, constant-product pools, order books.

Integers only: amounts are smallest units, prices are `facts.USD` (10**-12 dollars) or ticks, rates are basis
points.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import NamedTuple

from loopring_lab.relayer.mainnet import POOL_FEE_BPS, TOKENS, USD, Market, Token

__all__ = ["BPS", "HOUR", "Book", "Hit", "Latent", "Level", "Pool", "significant"]

Bits = Callable[[int], int]

BPS = 10_000
HOUR = 3_600_000
DEPTHS = (1, 1, 2, 3, 5, 8, 14, 30)
LEVEL_STEP = 15
TENTHS = 10 * BPS
BAND_BPS = 26
QUOTE_LIFE_MS = 240_000


def significant(amount: int, digits: int = 6) -> int:
    """Cut an amount to a few significant digits; settled fills have six."""
    excess = len(str(amount)) - digits
    if excess <= 0:
        return amount
    magnitude: int = 10**excess
    return amount // magnitude * magnitude


def _six_digits_up(amount: int) -> int:
    cut = significant(amount)
    return cut if cut == amount else cut + 10 ** (len(str(amount)) - 6)


class Latent:
    """The prices that nobody sees: one random walk per token, so that markets agree with one another."""

    def __init__(self, bits: Bits, start: int, hours: int) -> None:
        self._start = start
        self._paths = {token.symbol: _walk(token, bits, hours + 2) for token in TOKENS.values()}

    def dollars(self, token: Token, time_ms: int) -> int:
        """A token's price at a time, linear between whole hours."""
        hour, rest = divmod(time_ms - self._start, HOUR)
        path = self._paths[token.symbol]
        return path[hour] + (path[hour + 1] - path[hour]) * rest // HOUR


def _walk(token: Token, bits: Bits, hours: int) -> list[int]:
    anchor = price = token.milli_dollars * USD // 1000
    path = []
    for _ in range(hours):
        path.append(price)
        # A fair binomial of 64 bits has standard deviation 4.
        step = bits(64).bit_count() - 32
        if token.hourly_bps:
            price += price * token.hourly_bps * step // (4 * BPS) + (anchor - price) // 4000
        else:
            price += anchor * step // (4 * BPS) + (anchor - price) // 12
    return path


class Pool:
    """A constant-product pool that keeps its fee."""

    __slots__ = ("account", "base", "quote")

    def __init__(self, market: Market, base: int, quote: int) -> None:
        self.account = market.pool or 0
        self.base, self.quote = base, quote

    def cost(self, size: int) -> int:
        """Quote to pay for `size` of base, fee included, rounded up."""
        net = -(-self.quote * size // (self.base - size))
        return _six_digits_up(-(-net * BPS // (BPS - POOL_FEE_BPS)))

    def proceeds(self, size: int) -> int:
        """Quote received for `size` of base, fee taken off, rounded down."""
        net = size * (BPS - POOL_FEE_BPS)
        return significant(self.quote * net // (self.base * BPS + net))

    def trade(self, buys: bool, size: int, quote: int) -> None:
        """Move the reserves by one fill."""
        sign = 1 if buys else -1
        self.base -= sign * size
        self.quote += sign * quote

    def arbitrage(self, numerator: int, denominator: int) -> tuple[bool, int] | None:
        """What brings the pool back to the edge of the band in which arbitrage does not pay."""
        for buys, edge in ((True, BPS - BAND_BPS), (False, BPS + BAND_BPS)):
            target = isqrt(self.base * self.quote * denominator * BPS // (numerator * edge))
            size = self.base - target if buys else target - self.base
            if size > 0:
                return buys, significant(size)
        return None


class Level:
    """A resting order of a maker: a price and what is left at it."""

    __slots__ = ("left", "maker", "order", "ticks")

    def __init__(self, ticks: int, left: int, maker: int) -> None:
        self.ticks, self.left, self.maker = ticks, left, maker
        self.order: tuple[str, int] | None = None


class Hit(NamedTuple):
    """A part of a taker's order that one level would fill; amounts in smallest units."""

    level: Level
    size: int
    quote: int


class Book:
    """The order book of one market, quoted by makers around the latent price."""

    def __init__(self, market: Market, makers: tuple[int, ...], bits: Bits) -> None:
        self._market, self._makers, self._bits = market, makers, bits
        self._dust = market.base.dust
        self._units = 10**market.quote.decimals, 10 ** (market.base.decimals + market.price_decimals)
        self._sides: dict[bool, tuple[int, list[Level]]] = {}

    def hits(self, time_ms: int, buys: bool, size: int, taker: int, prices: tuple[int, int]) -> list[Hit]:
        """What a taker's order would meet now."""
        found = []
        one, scale = self._units
        for level in self._quoted(time_ms, buys, prices):
            part = significant(min(size, level.left))
            quote = significant(part * level.ticks * one // scale)
            if quote and part >= self._dust and level.maker != taker:
                found.append(Hit(level, part, quote))
                size -= part
        return found

    def _quoted(self, time_ms: int, buys: bool, prices: tuple[int, int]) -> list[Level]:
        until, levels = self._sides.get(buys, (0, []))
        if time_ms >= until:
            levels = self._quote(buys, prices)
            self._sides[buys] = time_ms + QUOTE_LIFE_MS, levels
        return levels

    def _quote(self, buys: bool, prices: tuple[int, int]) -> list[Level]:
        market, dice = self._market, self._bits(128)
        ticks_scale, units = 10**market.price_decimals, 10**market.base.decimals
        offset = market.half_spread * (4 + (dice & 7)) // 8
        levels = []
        for depth in DEPTHS:
            dice >>= 8
            tilt = TENTHS + offset if buys else TENTHS - offset
            ticks, rest = divmod(prices[0] * tilt * ticks_scale, prices[1] * TENTHS)
            size = market.book_dollars * USD * depth * (32 + (dice & 63)) * units // (128 * prices[0])
            levels.append(Level(ticks + (buys and rest > 0), significant(size), self._makers[dice >> 6 & 15]))
            dice >>= 4
            offset += LEVEL_STEP if not market.is_stable else LEVEL_STEP // 5
        return levels
