"""A year of the synthetic exchange, event by event: who trades, where, and what each pays."""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from hashlib import sha256
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import NamedTuple

from loopring_lab.relayer.history import BOOK, POOL
from loopring_lab.relayer.mainnet import MARKETS, USD, Market, Token
from loopring_lab.relayer.venues import (
    BPS,
    HOUR,
    Book,
    LatentPrices,
    Match,
    Placed,
    Pool,
    RandomBits,
    truncate_digits,
    truncate_float24,
)

DAY = 24 * HOUR
START = 1_640_995_200_000  # 2022-01-01, in ms
DAYS = 365

# Blocks and ids begin about where those of the real exchange were then. Its blocks came about twice an hour.
BLOCK_MS = 1_800_000
FIRST_BLOCK = 20_100
FIRST_ID = 4_100_000
# So many of the last fills are in no block yet, as on a living exchange.
UNBLOCKED = 6

# Latent prices of fills are in 10**-15 quote per base.
LATENT_SCALE = 10**15

MINIMUM_DOLLARS = 8
# No order is larger than this part of a pool: it would move the price by more than a percent.
LARGEST_POOL_SHARE = 200
BOOK_SHARES = 16
# The trades of a burst are at most so far apart.
BURST_PAUSE_MS = 150_000

# Orders of takers, in thousandths of their usual size. With n from a fair binomial of 16 bits, sizes spread like a
# log-normal. None is within a hundredth of a half, so that they round to the same integers everywhere.
SIZE_FACTORS = tuple(round(1000 * 2 ** (0.6 * (n - 8))) for n in range(17))

# The taker fee of each tier, per venue, as seen in blocks of the real exchange.
FEES_BPS = {
    BOOK: (30, 25, 24, 20, 10, 8, 4),
    POOL: (10, 10, 10, 10, 10, 8, 8),
}
# The taker fee of every tier if both tokens are stable coins.
STABLE_FEE_BPS = 4

# The width of makers' quotes, by the venue that is to be cheaper for users, by 7 basis points (the pool) or by 14 (the
# book).
SPREAD_PERCENT = {"pool": 520, "neither": 340, "book": 25}
# An arbitrageur is at most 2**14 ms ahead of the order before which it acts.
DELAY_BITS = 14
# At each event so many other pools are checked, and brought back if they are so far outside their band.
PATROLLED = 2
PATIENCE_BPS = 10

# With arbitrage on the book, one time in so many the quotes of a side are left from hours ago when an
# arbitrageur looks. Prices of the world move little in an hour, so it takes hours until quotes are worth taking.
SLOW_QUOTES_ONCE_IN = 8
SLOW_QUOTES_MS = 8 * HOUR

# The activity of each hour of the day, which is highest when both Europe and America are awake.
ACTIVITY = (
    3,
    2,
    2,
    2,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    8,
    9,
    11,
    13,
    14,
    14,
    12,
    11,
    9,
    8,
    7,
    5,
    4,
)
CUMULATIVE_ACTIVITY = tuple(accumulate(ACTIVITY))

# Users' storage ids rise by two: the odd ones are left to transfers and withdrawals.
STORAGE_STEP = 2


class Taker(NamedTuple):
    """An account that takes liquidity: its fills in a year, usual order, tier from each day, and habits.

    Where `others` trade as it does, the fills are those of all of them.
    """

    id: int
    fills: int
    dollars: int
    tiers: tuple[tuple[int, int], ...] = ((0, 0),)
    markets: tuple[str, ...] = ()
    swaps: int = 14
    limits: int = 0
    """Of 16 orders, these go to the pool and to the book unseen; the rest go to the better venue."""
    others: tuple[int, ...] = ()

    @property
    def accounts(self) -> tuple[int, ...]:
        """It and the others that trade as it does."""
        return (self.id, *self.others)


class Arbitrageur(NamedTuple):
    """An account that brings pools back to the outside price; with a larger weight it is more often first."""

    id: int
    weight: int
    tiers: tuple[tuple[int, int], ...]


class Maker(NamedTuple):
    """An account with resting orders in some markets; with a larger weight it has more of them."""

    id: int
    weight: int
    markets: tuple[str, ...]


_TRADERS = json.loads(
    Path(__file__).with_name("traders.json").read_text(encoding="utf-8")
)
ARBITRAGEURS = tuple(Arbitrageur(**record) for record in _TRADERS["arbitrageurs"])
TAKERS = tuple(Taker(**record) for record in _TRADERS["takers"])
# One of the makers is otherwise a taker.
MAKERS = tuple(Maker(**record) for record in _TRADERS["makers"])


class Fill(NamedTuple):
    """One fill, with all that the world knows of it; amounts in smallest units.

    The side is the taker's, who pays `fee`, in the token received; the maker pays none. `latent` is the true
    price at that moment, in 10**-15 quote per base. `block_id` is 0 where the fill is in no block yet.
    `pool_quote`, of a fill on the book, is what the market's pool would have taken or given for all that the
    taker's order got there, just before it: in quote units, pool fee included, the taker's fee not. None at the
    pool, and where the market has no pool.
    """

    time_ms: int
    id: int
    market: str
    venue: str
    side: str
    taker: int
    maker: int
    size: int
    quote: int
    fee_bps: int
    fee: int
    latent: int
    taker_hash: str
    maker_hash: str
    taker_storage: int
    maker_storage: int
    block_id: int
    index_in_block: int
    pool_quote: int | None = None


class _Order(NamedTuple):
    """A taker's order before it is filled; size in smallest units of base."""

    market: Market
    buys: bool
    size: int
    taker: int
    tier: int

    def fee_bps(self, venue: str) -> int:
        return STABLE_FEE_BPS if self.market.is_stable else FEES_BPS[venue][self.tier]

    def sold(self) -> Token:
        return self.market.quote if self.buys else self.market.base

    def bought(self) -> Token:
        return self.market.base if self.buys else self.market.quote


class Simulation:
    """One run of the exchange: its pools and books as they are now, and the fills so far.

    Every random bit of a trade comes from one generator, so the order of draws is part of what a seed means. Which of
    the accounts that trade alike it belongs to comes from another.
    """

    def __init__(
        self,
        seed: int,
        thousandths: int,
        cheaper: str,
        book_arbitrage: bool,
        switched: tuple[int, str] | None,
        drawn_accounts: bool,
    ) -> None:
        """Open the exchange, with so many thousandths of the usual number of trades."""
        # Moments, each with the width at which makers quote from then on.
        spreads = [(0, SPREAD_PERCENT[cheaper])]
        if switched is not None:
            moment, other = switched
            spreads.append((moment, SPREAD_PERCENT[other]))
        self._book_arbitrage = book_arbitrage
        self._bits = random.Random(seed).getrandbits
        self._who = random.Random(seed).getrandbits
        self._name = f"synthetic exchange {seed} order "
        self._takers = TAKERS
        if drawn_accounts:
            # Each does all year as one of the list does, drawn with replacement; accounts that trade alike by the
            # list are drawn one by one.
            alone = _alone()
            self._takers = tuple(
                alone[_random_below(self._bits, len(alone))]._replace(id=taker.id)
                for taker in alone
            )
        self.latent = LatentPrices(self._bits, START, DAYS)
        self._pools = {
            name: Pool(market) for name, market in MARKETS.items() if market.has_pool
        }
        self._books = {
            name: Book(
                market,
                _makers(name),
                self._bits,
                spreads,
            )
            for name, market in MARKETS.items()
            if market.has_book
        }
        self._fills_left = {
            taker.id: max(2, taker.fills * thousandths // 1000)
            for taker in self._takers
        }
        self._arbitrageurs: list[Arbitrageur] = []
        for arbitrageur in ARBITRAGEURS:
            self._arbitrageurs += [arbitrageur] * arbitrageur.weight
        self._next_storage: dict[tuple[int, int], int] = {}
        self._fills: list[Fill] = []
        self._now = START
        self._id = FIRST_ID
        self._block = 0
        self._index = 0
        self._orders = 0

    def run(self) -> tuple[Fill, ...]:
        """Simulate the whole year, and return every fill; the last ones are in no block yet."""
        choices = [_market_weights(taker) for taker in self._takers]
        # An order with several fills uses up as many of its taker's events: so many are still owed.
        owed = [0] * len(self._takers)
        events = self._events()
        patrol = cycle(MARKETS[name] for name in self._pools if name in self._books)
        for at, which in events:
            for market in islice(patrol, PATROLLED):
                self._arbitrage(market, at, PATIENCE_BPS)
            if owed[which]:
                owed[which] -= 1
                continue
            weights, markets = choices[which]
            market = markets[
                bisect_right(weights, _random_below(self._bits, weights[-1]))
            ]
            self._arbitrage(market, at)
            if self._book_arbitrage:
                self._take_slow_quotes(market, at)
            owed[which] = self._order(self._takers[which], market, at) - 1
        settled = self._fills[:-UNBLOCKED]
        last = [
            fill._replace(block_id=0, index_in_block=0)
            for fill in self._fills[-UNBLOCKED:]
        ]
        return (*settled, *last)

    def _events(self) -> list[tuple[int, int]]:
        """Return when which taker has a fill due, in order."""
        events = []
        for which, taker in enumerate(self._takers):
            times = _trading_times(self._bits, self._fills_left[taker.id])
            events += [(START + at, which) for at in times]
        return sorted(events)

    def _arbitrage(self, market: Market, until: int, beyond: int = 0) -> None:
        """Bring a pool that is outside its band back to the edge, shortly before a moment."""
        pool = self._pools.get(market.name)
        if pool is None:
            return
        base_price, quote_price = self._prices(market, until)
        units = market.base.units
        found = pool.arbitrage(
            base_price * market.quote.units, quote_price * units, beyond
        )
        if found is None:
            return
        buys, size = found
        if (
            size * base_price < MINIMUM_DOLLARS * USD * units
            or size < market.base.minimum
        ):
            return
        order = self._arbitrageurs_order(market, buys, size, until)
        self._fill_at_pool(order, pool, pool.quote_for(buys, size))

    def _take_slow_quotes(self, market: Market, until: int) -> None:
        """Take quotes that a price has moved past by more than the fee, shortly before a moment."""
        pool = self._pools.get(market.name)
        book = self._books.get(market.name)
        # Stable coins, which have no pool, move too little.
        if pool is None or book is None:
            return
        if _random_below(self._bits, SLOW_QUOTES_ONCE_IN):
            return
        prices = self._prices(market, until)
        then = max(self.latent.start, until - SLOW_QUOTES_MS)
        slow_prices = self._prices(market, then)
        buys = prices[0] * slow_prices[1] > slow_prices[0] * prices[1]
        size = truncate_float24(pool.base // LARGEST_POOL_SHARE)
        order = self._arbitrageurs_order(market, buys, size, until)
        matches = book.match(self._now, buys, size, order.taker, slow_prices)
        gainful = [match for match in matches if _gains(order, match, prices)]
        if gainful:
            self._fill_at_book(order, gainful)
        # Whoever quoted is awake now, so that users meet no slow quotes.
        book.quote_anew(buys)

    def _arbitrageurs_order(
        self, market: Market, buys: bool, size: int, until: int
    ) -> _Order:
        """Draw which arbitrageur is first, and when."""
        first = self._arbitrageurs[_random_below(self._bits, len(self._arbitrageurs))]
        order = _Order(market, buys, size, first.id, _tier(first.tiers, until))
        self._advance_to(until - self._bits(DELAY_BITS))
        return order

    def _prices(self, market: Market, at: int) -> list[int]:
        """Return the latent dollar prices of base and quote."""
        return self.latent.dollars(at, market.base, market.quote)

    def _advance_to(self, at: int) -> None:
        # No two fills have the same time.
        self._now = max(at, self._now + 1)

    def _order(self, taker: Taker, market: Market, at: int) -> int:
        """Send a taker's order to a venue, and return the number of fills."""
        self._advance_to(at)
        prices = self._prices(market, self._now)
        pool = self._pools.get(market.name)
        book = self._books.get(market.name)
        size = self._order_size(taker, market, prices[0], pool)
        who = _random_below(self._who, len(taker.accounts))
        order = _Order(
            market,
            bool(self._bits(1)),
            size,
            taker.accounts[who],
            _tier(taker.tiers, self._now),
        )
        # Some of 16 orders go to the pool unseen, some go to the book, and the rest go to the better venue.
        habit = self._bits(4)
        matches: list[Match] = []
        if book is not None and (pool is None or habit >= taker.swaps):
            matches = book.match(self._now, order.buys, size, order.taker, prices)
            matches = matches[: self._fills_left[taker.id]]
        if pool is not None:
            quote = pool.quote_for(order.buys, size)
            goes_unseen = habit < taker.swaps + taker.limits
            if not _goes_to_book(order, matches, None if goes_unseen else quote):
                self._fills_left[taker.id] -= 1
                return self._fill_at_pool(order, pool, quote)
        self._fills_left[taker.id] -= len(matches)
        return self._fill_at_book(order, matches)

    def _order_size(
        self,
        taker: Taker,
        market: Market,
        price: int,
        pool: Pool | None,
    ) -> int:
        """Draw a size, which is a round number in half of the orders."""
        factor = SIZE_FACTORS[self._bits(16).bit_count()]
        percent = 70 + self._bits(6)
        dollars = taker.dollars * factor * percent // 100_000
        size = max(dollars, MINIMUM_DOLLARS) * USD * market.base.units // price
        if pool is not None:
            size = min(size, pool.base // LARGEST_POOL_SHARE)
        size = max(size, market.base.minimum)
        return truncate_float24(size) if self._bits(1) else truncate_digits(size, 2)

    def _fill_at_pool(self, order: _Order, pool: Pool, quote: int) -> int:
        pool.trade(order.buys, order.size, quote)
        taken = self._new_order(order.taker, order.sold(), STORAGE_STEP)
        made = self._new_order(pool.account, order.bought(), 1)
        self._fill(
            order,
            POOL,
            pool.account,
            order.size,
            quote,
            taken,
            made,
        )
        return 1

    def _fill_at_book(self, order: _Order, matches: list[Match]) -> int:
        taken = self._new_order(order.taker, order.sold(), STORAGE_STEP)
        pool = self._pools.get(order.market.name)
        pool_quote = None
        if pool is not None:
            filled = sum(match.size for match in matches)
            pool_quote = pool.quote_for(order.buys, filled)
        for level, size, quote in matches:
            level.left -= size
            # A maker's order keeps its identity over all its fills.
            if level.order is None:
                level.order = self._new_order(level.maker, order.bought(), STORAGE_STEP)
            self._fill(
                order,
                BOOK,
                level.maker,
                size,
                quote,
                taken,
                level.order,
                pool_quote,
            )
            self._now += 1 + self._bits(4)
        return len(matches)

    def _new_order(self, account: int, sold: Token, step: int) -> Placed:
        """Place an account's next order selling a token."""
        self._orders += 1
        storage = self._next_storage.get((account, sold.id), account % 40 * 2)
        self._next_storage[account, sold.id] = storage + step
        order_hash = sha256(f"{self._name}{self._orders}".encode()).hexdigest()
        return Placed("0x" + order_hash, storage)

    def _fill(
        self,
        order: _Order,
        venue: str,
        maker: int,
        size: int,
        quote: int,
        taken: Placed,
        made: Placed,
        pool_quote: int | None = None,
    ) -> None:
        # Ids have gaps, as those of the real exchange.
        self._id += 1 + self._bits(3)
        self._advance_block()
        bps = order.fee_bps(venue)
        received = size if order.buys else quote
        base_price, quote_price = self._prices(order.market, self._now)
        fill = Fill(
            time_ms=self._now,
            id=self._id,
            market=order.market.name,
            venue=venue,
            side="BUY" if order.buys else "SELL",
            taker=order.taker,
            maker=maker,
            size=size,
            quote=quote,
            fee_bps=bps,
            fee=received * bps // BPS,
            latent=base_price * LATENT_SCALE // quote_price,
            taker_hash=taken.hash,
            maker_hash=made.hash,
            taker_storage=taken.storage,
            maker_storage=made.storage,
            block_id=self._block,
            index_in_block=self._index,
            pool_quote=pool_quote,
        )
        self._fills.append(fill)

    def _advance_block(self) -> None:
        """Find the block of a fill made now, and the next place in it."""
        block = FIRST_BLOCK + (self._now - START) // BLOCK_MS
        if block == self._block:
            self._index += 1 + self._bits(2)
        else:
            self._index = self._bits(4)
        self._block = block


def _goes_to_book(order: _Order, matches: list[Match], pool_quote: int | None) -> bool:
    """Return whether the book can fill an order, and does so at a better all-in price than the pool's."""
    size = sum(match.size for match in matches)
    if size * 100 < order.size * 99:
        return False
    if pool_quote is None:
        return True
    quote = sum(match.quote for match in matches)
    # A taker keeps this much of 10,000 received. Prices are compared as products, without division.
    kept_on_book = BPS - order.fee_bps(BOOK)
    kept_at_pool = BPS - order.fee_bps(POOL)
    if order.buys:
        return quote * order.size * kept_at_pool < pool_quote * size * kept_on_book
    return quote * kept_on_book * order.size > pool_quote * kept_at_pool * size


def _gains(order: _Order, match: Match, prices: list[int]) -> bool:
    """Return whether a fill on the book is worth more than it costs, fee included, at outside prices."""
    base_price, quote_price = prices
    # Both sides of the fill are put in one unit, without division.
    base_value = match.size * base_price * order.market.quote.units
    quote_value = match.quote * quote_price * order.market.base.units
    kept = BPS - order.fee_bps(BOOK)
    if order.buys:
        return base_value * kept > quote_value * BPS
    return quote_value * kept > base_value * BPS


def _tier(tiers: tuple[tuple[int, int], ...], time_ms: int) -> int:
    """Return the newest tier of an account at a time; tiers are given with the day from which they hold."""
    return [tier for day, tier in tiers if time_ms >= START + day * DAY][-1]


def _random_below(bits: RandomBits, end: int) -> int:
    """Draw an integer from 0 to `end` - 1; random's own methods differ between Python versions."""
    return bits(48) * end >> 48


def _trading_times(bits: RandomBits, count: int) -> list[int]:
    """Draw the times of an account's trades: bursts of a few minutes, more often in the busy hours."""
    times: list[int] = []
    while len(times) < count:
        hour = bisect_right(
            CUMULATIVE_ACTIVITY,
            _random_below(bits, CUMULATIVE_ACTIVITY[-1]),
        )
        at = _random_below(bits, DAYS) * DAY + hour * HOUR + _random_below(bits, HOUR)
        # Two draws joined by "and": most bursts are of one or two trades, a few of eight.
        length = 1 + (bits(8) & bits(8) & 7)
        for _ in range(length):
            times.append(min(at, DAYS * DAY - 1))
            at += _random_below(bits, BURST_PAUSE_MS) + 1
    return sorted(times[:count])


def _alone() -> list[Taker]:
    """Return a taker for each account, where several trade alike with as many fills each."""
    return [
        taker._replace(id=account, fills=taker.fills // len(taker.accounts), others=())
        for taker in TAKERS
        for account in taker.accounts
    ]


def _makers(name: str) -> tuple[int, ...]:
    """Return whose the quotes of a book are: each maker as often as its weight says."""
    shares: list[int] = []
    for maker in MAKERS:
        if name in maker.markets:
            shares += [maker.id] * maker.weight
    return tuple(islice(cycle(shares), BOOK_SHARES))


def _market_weights(taker: Taker) -> tuple[list[int], list[Market]]:
    """Return the cumulative weights of the markets a taker trades, and the markets."""
    names = taker.markets or MARKETS
    markets = [MARKETS[name] for name in names if MARKETS[name].share]
    return list(accumulate(market.share for market in markets)), markets
