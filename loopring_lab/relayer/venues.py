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
"""Draws so many random bits, as `random.Random.getrandbits` does."""

BPS = 10_000
MINUTE = 60_000
HOUR = 60 * MINUTE
MARK_SCALE = 10**12  # outside prices are in 10**-12 quote per base

# These are choices: the sizes at the levels of a book, best first, as multiples of the usual one, so that large orders
# pay more and more; and how far apart the levels are, in tenths of a basis point: 1.5, and 0.3 between stable coins.
DEPTHS = (1, 1, 2, 3, 5, 8, 14, 30)
LEVEL_STEP = 15
STABLE_LEVEL_STEP = 3
TENTHS = 10 * BPS
QUOTE_LIFE_MS = 240_000  # a choice: makers quote anew every four minutes

# The chain holds both amounts of a fill as float24: a mantissa of 19 bits, times a power of ten of 5 bits
# (Constants.h of the protocol's circuits). Products on the way to an amount need more powers than that.
MANTISSA = 2**19 - 1
POWERS: list[int] = [10**power for power in range(80)]
FLOAT24_LIMITS = [MANTISSA * power for power in POWERS]


def truncate_digits(amount: int, digits: int) -> int:
    """Truncate an amount to a few significant digits."""
    magnitude: int = 10 ** max(0, len(str(amount)) - digits)
    return amount // magnitude * magnitude


def truncate_float24(amount: int) -> int:
    """Return the largest amount up to this one that a settled fill can have."""
    unit = _float24_unit(amount)
    # Where the amount is just beyond a limit, the limit itself is nearer than a multiple of the larger unit.
    return max(amount // unit * unit, MANTISSA * (unit // 10))


def round_up_float24(amount: int) -> int:
    """Return the smallest amount from this one on that a settled fill can have."""
    unit = _float24_unit(amount)
    return _divide_up(amount, unit) * unit


def _float24_unit(amount: int) -> int:
    """Return the smallest power of ten of which no more than `MANTISSA` make up an amount."""
    return POWERS[bisect_left(FLOAT24_LIMITS, amount)]


def _divide_up(amount: int, divisor: int) -> int:
    return -(-amount // divisor)


class LatentPrices:
    """The underlying prices: one random walk per token, so that markets are consistent with one another."""

    def __init__(self, bits: RandomBits, start: int, days: int) -> None:
        """Draw the prices from an hour before the start to a day after the end."""
        self.start = start - HOUR
        hours = 24 * days + 27
        self.paths = {
            token.symbol: _walk(token, bits, hours) for token in TOKENS.values()
        }

    @property
    def end(self) -> int:
        """The last moment with a price."""
        some_path = next(iter(self.paths.values()))
        return self.start + (len(some_path) - 2) * HOUR

    def dollars(self, time_ms: int, *tokens: Token) -> list[int]:
        """Return the price of each token at a time, linear between whole hours."""
        hour, rest = divmod(time_ms - self.start, HOUR)
        prices = []
        for token in tokens:
            path = self.paths[token.symbol]
            before = path[hour]
            after = path[hour + 1]
            prices.append(before + (after - before) * rest // HOUR)
        return prices

    def marks(
        self, market: Market, times: NDArray[np.int64], name: str
    ) -> NDArray[np.int64]:
        """Return what an outside market shows at whole minutes: true prices and noise, in 10**-12 quote."""
        import numpy as np

        hours = (times - self.start) // HOUR
        minutes_of_hour = (times - self.start) // MINUTE - 60 * hours
        base = self._at_minutes(market.base, hours, minutes_of_hour)
        quote = self._at_minutes(market.quote, hours, minutes_of_hour)
        key = int.from_bytes(sha256(f"{name} {market.name}".encode()).digest()[:7])
        minutes = times // MINUTE
        # As in `_walk`, the standard deviation of the ones in 64 fair bits is 4: here a basis point.
        ones = np.bitwise_count(_mixed((minutes + key).astype(np.uint64)))
        noise = (ones.astype(np.int64) - 32) / (4 * BPS)
        shown = base / quote * (1 + noise)
        marks: NDArray[np.int64] = np.rint(shown * MARK_SCALE).astype(np.int64)
        return marks

    def _at_minutes(
        self, token: Token, hours: NDArray[np.int64], minutes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        import numpy as np

        path = np.array(self.paths[token.symbol])
        steps = np.diff(path)[hours]
        prices: NDArray[np.int64] = path[hours] + steps * minutes // 60
        return prices


def _walk(token: Token, bits: RandomBits, hours: int) -> list[int]:
    """Draw a price for each hour: a walk that is pulled back to where it began, stable coins more strongly."""
    price = token.milli_dollars * USD // 1000
    anchor = price
    path = []
    for _ in range(hours):
        path.append(price)
        # A fair binomial of 64 bits has standard deviation 4.
        step = bits(64).bit_count() - 32
        if token.hourly_bps:
            shock = price * token.hourly_bps * step // (4 * BPS)
            pull = (anchor - price) // 4000
        else:
            shock = anchor * step // (4 * BPS)
            pull = (anchor - price) // 12
        price += shock + pull
    return path


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of numbers as the generator splitmix64 does, whose constants these are."""
    import numpy as np

    numbers = numbers * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


class Pool:
    """A constant-product pool that keeps its fees."""

    def __init__(self, market: Market) -> None:
        """Fill the pool with equal values of both tokens, at their first prices."""
        self.account = market.pool or 0
        self.base = _units_worth(market.pool_dollars, market.base)
        self.quote = _units_worth(market.pool_dollars, market.quote)

    def cost(self, size: int) -> int:
        """Return the quote to pay for `size` of base, fee included, rounded up."""
        # The pool keeps x * y = k, and then the fee comes on top.
        left = self.base - size
        net = _divide_up(self.quote * size, left)
        gross = _divide_up(net * BPS, BPS - POOL_FEE_BPS)
        return round_up_float24(gross)

    def proceeds(self, size: int) -> int:
        """Return the quote received for `size` of base, fee deducted, rounded down."""
        # The pool keeps x * y = k, with the part of the size that is left after the fee, in basis points.
        net = size * (BPS - POOL_FEE_BPS)
        grown = self.base * BPS + net
        return truncate_float24(self.quote * net // grown)

    def quote_for(self, buys: bool, size: int) -> int:
        """Return what a taker pays or receives for `size` of base."""
        return self.cost(size) if buys else self.proceeds(size)

    def trade(self, buys: bool, size: int, quote: int) -> None:
        """Exchange base for quote; a taker who buys takes base away."""
        direction = -1 if buys else 1
        self.base += direction * size
        self.quote -= direction * quote

    def arbitrage(
        self, numerator: int, denominator: int, beyond: int
    ) -> tuple[bool, int] | None:
        """Return the trade to the edge of the band around a price, if the pool is so much beyond it.

        Within its fee of the outside price nobody gains by correcting a pool.
        """
        mine = self.quote * denominator * BPS
        outside = self.base * numerator
        if mine < outside * (BPS - POOL_FEE_BPS - beyond):
            buys = True
            edge = BPS - POOL_FEE_BPS
        elif mine > outside * (BPS + POOL_FEE_BPS + beyond):
            buys = False
            edge = BPS + POOL_FEE_BPS
        else:
            return None
        # The product of both balances stays, and their ratio becomes the edge.
        target = isqrt(self.base * mine // (numerator * edge))
        return buys, truncate_float24(abs(self.base - target))


def _units_worth(dollars: int, token: Token) -> int:
    return dollars * 1000 * token.units // token.milli_dollars


class Placed(NamedTuple):
    """What tells one order of an account from all others."""

    hash: str
    storage: int


@dataclass(slots=True)
class Level:
    """A maker's resting order: a price and the size left at it; what identifies it, once it was filled."""

    ticks: int
    left: int
    maker: int
    order: Placed | None = None


class Match(NamedTuple):
    """The part of a taker's order that one level would fill; amounts in smallest units."""

    level: Level
    size: int
    quote: int


class Book:
    """The order book of one market, quoted by makers around the latent price."""

    def __init__(
        self,
        market: Market,
        makers: tuple[int, ...],
        bits: RandomBits,
        spreads: Sequence[tuple[int, int]],
    ) -> None:
        """Take whose the quotes are, and how wide they are in percent of the market's usual spread.

        Spreads are given with the moment (ms) from which they hold.
        """
        self._market = market
        self._makers = makers
        self._bits = bits
        self._half_spreads = [
            (moment, market.half_spread * percent // 100) for moment, percent in spreads
        ]
        self._step = STABLE_LEVEL_STEP if market.is_stable else LEVEL_STEP
        self._ticks_scale = 10**market.price_decimals
        # Each side, by whether takers buy there, with the time until which its levels hold, and the levels.
        self._sides: dict[bool, tuple[int, list[Level]]] = {}

    def match(
        self,
        time_ms: int,
        buys: bool,
        size: int,
        taker: int,
        prices: Sequence[int],
    ) -> list[Match]:
        """Return the parts of a taker's order that the levels would fill now."""
        base = self._market.base
        quote_units = self._market.quote.units
        matches = []
        for level in self._quoted(time_ms, buys, prices):
            part = truncate_float24(min(size, level.left))
            # Ticks are quote per base in whole units, times the scale of the market's prices.
            scaled = part * level.ticks * quote_units
            quote = truncate_float24(scaled // (base.units * self._ticks_scale))
            # Nobody trades with himself, and remainders below the token's dust are dropped.
            if quote and part >= base.dust and level.maker != taker:
                matches.append(Match(level, part, quote))
                size -= part
        return matches

    def quote_anew(self, buys: bool) -> None:
        """Take back the quotes of a side before their time; the next order meets new ones."""
        self._sides.pop(buys, None)

    def _quoted(self, time_ms: int, buys: bool, prices: Sequence[int]) -> list[Level]:
        until, levels = self._sides.get(buys, (0, []))
        if time_ms >= until:
            levels = self._quote(time_ms, buys, prices)
            self._sides[buys] = (time_ms + QUOTE_LIFE_MS, levels)
        return levels

    def _quote(self, time_ms: int, buys: bool, prices: Sequence[int]) -> list[Level]:
        """Draw the levels of one side, from 128 bits: the distance of all, then size and maker of each."""
        base_price, quote_price = prices
        market = self._market
        dice = self._bits(128)
        half_spread = [
            width for moment, width in self._half_spreads if time_ms >= moment
        ][-1]
        offset = half_spread * (4 + (dice & 7)) // 8
        levels = []
        for depth in DEPTHS:
            dice >>= 8
            # Makers sell above the latent price and buy below it, to the tick that is better for them.
            tilt = TENTHS + offset if buys else TENTHS - offset
            price = base_price * tilt * self._ticks_scale
            one_tick = quote_price * TENTHS
            ticks = price // one_tick
            if buys and price % one_tick:
                ticks += 1
            share = 32 + (dice & 63)  # of 128
            dollars = market.book_dollars * USD * depth * share
            size = dollars * market.base.units // (128 * base_price)
            maker = self._makers[dice >> 6 & 15]
            levels.append(Level(ticks, truncate_float24(size), maker))
            dice >>= 4
            offset += self._step
        return levels
