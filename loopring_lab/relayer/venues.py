"""The venues of the synthetic exchange: constant-product pools and order books around latent prices.

Integers only: amounts are in smallest units, prices in `mainnet.USD` (10**-12 dollars) or ticks, rates in
basis points.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

from loopring_lab.relayer.mainnet import POOL_FEE_BPS, TOKENS, USD, Market, Token

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RandomBits = Callable[[int], int]

BPS = 10_000
MINUTE, HOUR = 60_000, 3_600_000
MARK_SCALE = 10**12
DEPTHS = (1, 1, 2, 3, 5, 8, 14, 30)
LEVEL_STEP = 15
TENTHS = 10 * BPS
QUOTE_LIFE_MS = 240_000
MANTISSA = 2**19 - 1
"""The chain holds both amounts of a fill as float24: at most this, times a power of ten."""
POWERS: list[int] = [10**power for power in range(80)]
FLOAT24_LIMITS = [MANTISSA * power for power in POWERS]


def truncate_digits(amount: int, digits: int) -> int:
    """Truncate an amount to a few significant digits."""
    magnitude: int = 10 ** max(0, len(str(amount)) - digits)
    return amount // magnitude * magnitude


def truncate_float24(amount: int) -> int:
    """Return the largest amount up to this one that a settled fill can have."""
    unit = _float24_unit(amount)
    return max(amount // unit * unit, MANTISSA * (unit // 10))


def round_up_float24(amount: int) -> int:
    """Return the smallest amount from this one on that a settled fill can have."""
    unit = _float24_unit(amount)
    return -(-amount // unit) * unit


def _float24_unit(amount: int) -> int:
    """Return the smallest power of ten of which no more than `MANTISSA` make up an amount."""
    return POWERS[bisect_left(FLOAT24_LIMITS, amount)]


class LatentPrices:
    """The underlying prices: one random walk per token, so that markets are consistent with one another."""

    def __init__(self, bits: RandomBits, start: int, days: int) -> None:
        """Draw the prices from an hour before the start to a day after the end."""
        self.start = start - HOUR
        self.paths = {token.symbol: _walk(token, bits, 24 * days + 27) for token in TOKENS.values()}

    @property
    def end(self) -> int:
        """The last moment with a price."""
        return self.start + (len(next(iter(self.paths.values()))) - 2) * HOUR

    def marks(self, market: Market, times: NDArray[np.int64], name: str) -> NDArray[np.int64]:
        """Return what an outside market shows at whole minutes: true prices and noise, in 10**-12 quote."""
        import numpy as np

        hours, rest = np.divmod(times - self.start, HOUR)
        base, quote = (
            path[hours] + np.diff(path)[hours] * (rest // MINUTE) // 60
            for path in (np.array(self.paths[token.symbol]) for token in (market.base, market.quote))
        )
        key = int.from_bytes(sha256(f"{name} {market.name}".encode()).digest()[:7])
        # As in `_walk`, the standard deviation of 4 of a fair binomial of 64 bits.
        bits = np.bitwise_count(_mixed((times // MINUTE + key).astype(np.uint64)))
        noise = (bits.astype(np.int64) - 32) / (4 * BPS)
        marks: NDArray[np.int64] = np.rint(base / quote * (1 + noise) * MARK_SCALE).astype(np.int64)
        return marks

    def dollars(self, time_ms: int, *tokens: Token) -> list[int]:
        """Return the price of each token at a time, linear between whole hours."""
        hour, rest = divmod(time_ms - self.start, HOUR)
        paths = [self.paths[token.symbol] for token in tokens]
        return [path[hour] + (path[hour + 1] - path[hour]) * rest // HOUR for path in paths]


def _walk(token: Token, bits: RandomBits, hours: int) -> list[int]:
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


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of numbers as splitmix64 does."""
    import numpy as np

    numbers = numbers * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


class Pool:
    """A constant-product pool that keeps its fees."""

    def __init__(self, market: Market) -> None:
        self.account = market.pool or 0
        self.base, self.quote = (
            market.pool_dollars * 1000 * token.units // token.milli_dollars for token in (market.base, market.quote)
        )

    def cost(self, size: int) -> int:
        """Return the quote to pay for `size` of base, fee included, rounded up."""
        net = -(-self.quote * size // (self.base - size))
        return round_up_float24(-(-net * BPS // (BPS - POOL_FEE_BPS)))

    def proceeds(self, size: int) -> int:
        """Return the quote received for `size` of base, fee deducted, rounded down."""
        net = size * (BPS - POOL_FEE_BPS)
        return truncate_float24(self.quote * net // (self.base * BPS + net))

    def trade(self, buys: bool, size: int, quote: int) -> None:
        if buys:
            self.base, self.quote = self.base - size, self.quote + quote
        else:
            self.base, self.quote = self.base + size, self.quote - quote

    def arbitrage(self, numerator: int, denominator: int, beyond: int) -> tuple[bool, int] | None:
        """Return the trade to the edge of the band around a price, if the pool is so much beyond it."""
        mine, outside = self.quote * denominator * BPS, self.base * numerator
        if mine < outside * (BPS - POOL_FEE_BPS - beyond):
            buys, edge = True, BPS - POOL_FEE_BPS
        elif mine > outside * (BPS + POOL_FEE_BPS + beyond):
            buys, edge = False, BPS + POOL_FEE_BPS
        else:
            return None
        target = isqrt(self.base * mine // (numerator * edge))
        return buys, truncate_float24(abs(self.base - target))


@dataclass(slots=True)
class Level:
    """A maker's resting order: a price and the size left at it; hash and storage id once it was filled."""

    ticks: int
    left: int
    maker: int
    order: tuple[str, int] | None = None


class Match(NamedTuple):
    """The part of a taker's order that one level would fill; amounts in smallest units."""

    level: Level
    size: int
    quote: int


class Book:
    """The order book of one market, quoted by makers around the latent price."""

    def __init__(self, market: Market, makers: tuple[int, ...], bits: RandomBits, spread_percent: int) -> None:
        self._market, self._makers, self._bits = market, makers, bits
        self._half_spread = market.half_spread * spread_percent // 100
        self._dust = market.base.dust
        self._units = market.quote.units, market.base.units * 10**market.price_decimals
        self._sides: dict[bool, tuple[int, list[Level]]] = {}

    def match(self, time_ms: int, buys: bool, size: int, taker: int, prices: Sequence[int]) -> list[Match]:
        """Return the parts of a taker's order that the levels would fill now."""
        matches = []
        one, scale = self._units
        for level in self._quoted(time_ms, buys, prices):
            part = truncate_float24(min(size, level.left))
            quote = truncate_float24(part * level.ticks * one // scale)
            if quote and part >= self._dust and level.maker != taker:
                matches.append(Match(level, part, quote))
                size -= part
        return matches

    def _quoted(self, time_ms: int, buys: bool, prices: Sequence[int]) -> list[Level]:
        until, levels = self._sides.get(buys, (0, []))
        if time_ms >= until:
            levels = self._quote(buys, prices)
            self._sides[buys] = time_ms + QUOTE_LIFE_MS, levels
        return levels

    def _quote(self, buys: bool, prices: Sequence[int]) -> list[Level]:
        market, dice = self._market, self._bits(128)
        ticks_scale, units = 10**market.price_decimals, market.base.units
        offset = self._half_spread * (4 + (dice & 7)) // 8
        levels = []
        for depth in DEPTHS:
            dice >>= 8
            tilt = TENTHS + offset if buys else TENTHS - offset
            ticks, rest = divmod(prices[0] * tilt * ticks_scale, prices[1] * TENTHS)
            size = market.book_dollars * USD * depth * (32 + (dice & 63)) * units // (128 * prices[0])
            levels.append(Level(ticks + (buys and rest > 0), truncate_float24(size), self._makers[dice >> 6 & 15]))
            dice >>= 4
            offset += LEVEL_STEP if not market.is_stable else LEVEL_STEP // 5
        return levels
