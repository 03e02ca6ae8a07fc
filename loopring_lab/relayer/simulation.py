"""A year of the synthetic exchange, event by event.

At each event a taker's order goes to the venue with the better all-in price; before it, an arbitrageur may
bring the pool back towards the latent price. Time and fill ids rise together.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from hashlib import sha256
from itertools import accumulate, chain, cycle, islice
from typing import NamedTuple

from loopring_lab.relayer.crowd import ARBITRAGEUR, DAY, MAKERS, TAKERS, Taker, dice_below, fee_bps, slots
from loopring_lab.relayer.facts import MARKETS, USD, Market, Token
from loopring_lab.relayer.market import BPS, Book, Hit, Latent, Pool, significant

__all__ = ["BLOCK_MS", "DAYS", "LATENT_SCALE", "START", "Fill", "Simulation"]

START = 1_640_995_200_000
DAYS = 365
BLOCK_MS = 1_800_000
FIRST_BLOCK = 20_100
FIRST_ID = 4_100_000
LATENT_SCALE = 10**15
UNBLOCKED = 6
MINIMUM_DOLLARS = 8
LARGEST_POOL_SHARE = 25
BOOK_SLOTS = 16

# 1000 * 2**(0.6 * (n - 8)): with a binomial n of 16 bits, order sizes spread like a log-normal.
SIZE_FACTORS = (36, 54, 82, 125, 189, 287, 435, 660, 1000, 1516, 2297, 3482, 5278, 8000, 12126, 18379, 27858)


class Fill(NamedTuple):
    """One fill, as the world knows it.

    Parameters
    ----------
    time_ms, id : int
        When (ms since the epoch), and the global number both sides share.
    market, venue, side : str
        ``BASE-QUOTE``; ``amm`` or ``dex``; the taker's ``BUY`` or ``SELL``.
    taker, maker : int
        Accounts; the maker of an ``amm`` fill is the pool.
    size, quote : int
        Both legs gross, in smallest units of base and quote.
    fee_bps, fee : int
        What the taker pays of the leg it receives: basis points, and smallest units of that token.
    latent : int
        The latent price at that time, in 10**-15 quote units per base unit (whole units).
    taker_hash, maker_hash : str
        Order hashes.
    taker_storage, maker_storage : int
        Storage ids of the orders.
    block_id, index_in_block : int
        Block and place in it; 0 and 0 while not in a block.
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


class _Order(NamedTuple):
    """A taker's order on its way; size in smallest units of base."""

    market: Market
    buys: bool
    size: int
    taker: int
    tier: int

    def fee_bps(self, venue: str) -> int:
        return fee_bps(self.market, venue, self.tier)

    def pool_quote(self, pool: Pool) -> int:
        return pool.cost(self.size) if self.buys else pool.proceeds(self.size)


class Simulation:
    """Runs the exchange once.

    Parameters
    ----------
    seed : int
        Which year.
    thousandths : int
        Scale of the number of trades; 1000 is the usual year.

    Attributes
    ----------
    fills : tuple of Fill
        What happened, after `run`.
    latent : Latent
        The prices behind it.
    """

    def __init__(self, seed: int, thousandths: int) -> None:
        self._bits = random.Random(seed).getrandbits
        self._name = f"synthetic exchange {seed} order "
        self.fills: tuple[Fill, ...] = ()
        self.latent = Latent(self._bits, START, DAYS * 24)
        self._pools = {name: _new_pool(market) for name, market in MARKETS.items() if market.has_pool}
        books = [market for market in MARKETS.values() if market.has_book]
        self._books = {market.name: Book(market, _makers(market.name), self._bits) for market in books}
        self._left = {taker.id: max(2, taker.quota * thousandths // 1000) for taker in (ARBITRAGEUR, *TAKERS)}
        self._storage: dict[tuple[int, int], int] = {}
        self._made: list[Fill] = []
        self._now, self._id, self._block, self._index, self._orders = START, FIRST_ID, 0, 0, 0

    def run(self) -> None:
        """Trade the whole year; afterwards `fills` holds it."""
        events = self._events()
        menus = [_menu(taker) for taker in TAKERS]
        rounds = cycle(MARKETS[name] for name in self._pools)
        pace = self._left[ARBITRAGEUR.id]
        owed = [0] * len(TAKERS)
        for number, (at, which) in enumerate(events, 1):
            while pace - self._left[ARBITRAGEUR.id] < pace * number // len(events):
                self._roam(next(rounds), at)
            if owed[which]:
                owed[which] -= 1
                continue
            market = self._pick(menus[which])
            self._arbitrage(market, at)
            owed[which] = self._order(TAKERS[which], market, at) - 1
        last = self._made[-UNBLOCKED:]
        self.fills = (
            *self._made[:-UNBLOCKED],
            *(fill._replace(block_id=0, index_in_block=0) for fill in last),
        )

    def _events(self) -> list[tuple[int, int]]:
        """When which taker has a fill due; an order that takes several uses up several."""
        return sorted(
            (START + at, which)
            for which, taker in enumerate(TAKERS)
            for at in slots(self._bits, self._left[taker.id], DAYS)
        )

    def _pick(self, menu: tuple[list[int], list[Market]]) -> Market:
        weights, markets = menu
        return markets[bisect_right(weights, dice_below(self._bits, weights[-1]))]

    def _roam(self, market: Market, until: int) -> None:
        """The arbitrageur's own round over the pools; an ordinary order where there is nothing to gain."""
        if not self._arbitrage(market, until):
            self._order(ARBITRAGEUR, market, self._moment(until))

    def _moment(self, until: int) -> int:
        return self._now + dice_below(self._bits, max(1, until - self._now))

    def _arbitrage(self, market: Market, until: int) -> bool:
        """Bring a pool back to the edge of its band, at some time from now; False where there is no need."""
        pool = self._pools.get(market.name)
        if pool is None or not self._left[ARBITRAGEUR.id]:
            return False
        at = self._moment(until)
        prices = self._prices(market, at)
        found = pool.arbitrage(prices[0] * 10**market.quote.decimals, prices[1] * 10**market.base.decimals)
        least = MINIMUM_DOLLARS * USD * 10**market.base.decimals
        if found is None or found[1] * prices[0] < least or found[1] < market.base.minimum:
            return False
        order = _Order(market, *found, ARBITRAGEUR.id, ARBITRAGEUR.tier((at - START) // DAY))
        self._pass_time(at)
        self._at_pool(order, pool, order.pool_quote(pool))
        return True

    def _prices(self, market: Market, at: int) -> tuple[int, int]:
        return self.latent.dollars(market.base, at), self.latent.dollars(market.quote, at)

    def _pass_time(self, at: int) -> None:
        self._now = max(at, self._now + 1)

    def _order(self, taker: Taker, market: Market, at: int) -> int:
        """Send a taker's order to the better venue; how many fills it took."""
        self._pass_time(at)
        prices = self._prices(market, self._now)
        pool, book = self._pools.get(market.name), self._books.get(market.name)
        size = self._size(taker, market, prices[0], pool)
        tier = taker.tier((self._now - START) // DAY)
        order = _Order(market, bool(self._bits(1)), size, taker.id, tier)
        hits = book.hits(self._now, order.buys, size, taker.id, prices) if book else []
        hits = hits[: self._left[taker.id]]
        if pool is not None:
            quote = order.pool_quote(pool)
            if not self._prefers_book(order, quote, hits):
                return self._at_pool(order, pool, quote)
        return self._at_book(order, hits)

    def _size(self, taker: Taker, market: Market, price: int, pool: Pool | None) -> int:
        dollars = taker.dollars * SIZE_FACTORS[self._bits(16).bit_count()] * (70 + self._bits(6)) // 100_000
        size = max(dollars, MINIMUM_DOLLARS) * USD * 10**market.base.decimals // price
        if pool is not None:
            size = min(size, pool.base // LARGEST_POOL_SHARE)
        size = max(size, market.base.minimum)
        return significant(size, 6 if self._bits(1) else 2)

    def _prefers_book(self, order: _Order, pool_quote: int, hits: list[Hit]) -> bool:
        """Whether the book's all-in price is better; one order in sixteen goes the other way."""
        size = sum(hit.size for hit in hits)
        if size * 100 < order.size * 99:
            return False
        quote = sum(hit.quote for hit in hits)
        keeps_book, keeps_pool = BPS - order.fee_bps("dex"), BPS - order.fee_bps("amm")
        if order.buys:
            better = quote * order.size * keeps_pool < pool_quote * size * keeps_book
        else:
            better = quote * keeps_book * order.size > pool_quote * keeps_pool * size
        return better is not (self._bits(4) == 0)

    def _at_pool(self, order: _Order, pool: Pool, quote: int) -> int:
        pool.trade(order.buys, order.size, quote)
        sold, bought = _legs(order)
        taken = self._new_order(order.taker, sold, 2)
        made = self._new_order(pool.account, bought, 1)
        self._fill(order, "amm", pool.account, order.size, quote, taken, made)
        return 1

    def _at_book(self, order: _Order, hits: list[Hit]) -> int:
        sold, bought = _legs(order)
        taken = self._new_order(order.taker, sold, 2)
        for level, size, quote in hits:
            level.left -= size
            if level.order is None:
                level.order = self._new_order(level.maker, bought, 2)
            self._fill(order, "dex", level.maker, size, quote, taken, level.order)
            self._now += 1 + self._bits(4)
        return len(hits)

    def _new_order(self, account: int, sold: Token, step: int) -> tuple[str, int]:
        """Hash and storage id of an account's next order that sells a token; users' ids go up by 2."""
        self._orders += 1
        storage = self._storage.get((account, sold.id), account % 40 * 2)
        self._storage[account, sold.id] = storage + step
        return "0x" + sha256(f"{self._name}{self._orders}".encode()).hexdigest(), storage

    def _fill(
        self,
        order: _Order,
        venue: str,
        maker: int,
        size: int,
        quote: int,
        taken: tuple[str, int],
        made: tuple[str, int],
    ) -> None:
        self._id += 1 + self._bits(3)
        self._left[order.taker] -= 1
        block, index = self._place()
        bps = order.fee_bps(venue)
        base, quoted = self._prices(order.market, self._now)
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
            fee=(size if order.buys else quote) * bps // BPS,
            latent=base * LATENT_SCALE // quoted,
            taker_hash=taken[0],
            maker_hash=made[0],
            taker_storage=taken[1],
            maker_storage=made[1],
            block_id=block,
            index_in_block=index,
        )
        self._made.append(fill)

    def _place(self) -> tuple[int, int]:
        """Block of a fill made now, and the next place in it."""
        block = FIRST_BLOCK + (self._now - START) // BLOCK_MS
        self._index = self._index + 1 + self._bits(2) if block == self._block else self._bits(4)
        self._block = block
        return block, self._index


def _new_pool(market: Market) -> Pool:
    base, quote = (
        market.pool_dollars * 1000 * 10**token.decimals // token.milli_dollars
        for token in (market.base, market.quote)
    )
    return Pool(market, base, quote)


def _makers(name: str) -> tuple[int, ...]:
    shares = [(account,) * weight for account, (weight, names) in MAKERS.items() if name in names]
    return tuple(islice(cycle(chain.from_iterable(shares)), BOOK_SLOTS))


def _menu(taker: Taker) -> tuple[list[int], list[Market]]:
    """Cumulative weights of the markets a taker trades."""
    names = taker.markets or MARKETS
    markets = [MARKETS[name] for name in names if MARKETS[name].share]
    return list(accumulate(market.share for market in markets)), markets


def _legs(order: _Order) -> tuple[Token, Token]:
    """The tokens the taker sells and receives."""
    base, quote = order.market.base, order.market.quote
    return (quote, base) if order.buys else (base, quote)
