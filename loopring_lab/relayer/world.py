"""The synthetic exchange: a seeded year of trading in which the truth behind every fill is known.

Only integers and ``getrandbits``, so the same seed gives the same bytes on every platform and Python version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from functools import cached_property, lru_cache
from hashlib import sha256
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

from loopring_lab.bounded import shown
from loopring_lab.errors import LabError
from loopring_lab.relayer.history import BOOK, POOL, POOL_PREFIX, History, Row, RowKey
from loopring_lab.relayer.mainnet import MARKETS, TOKENS
from loopring_lab.relayer.simulation import (
    ARBITRAGEURS,
    DAY,
    DAYS,
    FEES_BPS,
    FIRST_ID,
    MAKERS,
    SPREAD_PERCENT,
    START,
    TAKERS,
    Fill,
    Simulation,
)
from loopring_lab.relayer.venues import BPS, MINUTE, LatentPrices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loopring_lab.relayer.chain import Chain

SMALLEST = 0.001
LARGEST = 50.0
OVERCHARGED = 70_001
IRREGULAR = 70_002
PLANTED = {
    OVERCHARGED: "an eighth of its fills, all in a row, are charged 45 instead of 30 basis points",
    IRREGULAR: "six rows break the contract, each in another way",
}
PLANTED_FILLS = 48  # one page
WRONG_BPS = 45
# A trade of an NFT has 19 members, which are not documented further.
NFT_ROW = ("nft", *map(str, range(1, 19)))
NFT_KEY = RowKey(IRREGULAR, "", BOOK, None)

PRICE_SCALE = 10**8  # prices on the wire are cut to 8 decimals


class _Key(NamedTuple):
    """What tells one world from all others; the switch is a moment (ms) and the cheaper venue from then on."""

    seed: int = 1
    # Sizes come in thousandths, so that worlds of one name are one world.
    thousandths: int = 1000
    cheaper: str = "pool"
    book_arbitrage: bool = False
    switched: tuple[int, str] | None = None
    drawn_accounts: bool = False


class World:
    """A year of synthetic trading on real tokens, markets and pools.

    Parameters
    ----------
    seed : int
        Seed of the year; the same seed gives the same bytes everywhere.
    size : float
        Scale of the number of trades, from 0.001 to 50, in steps of 0.001; 1 gives 64 accounts with 40 to
        20,000 trades.
    cheaper : {'pool', 'book', 'neither'}
        The cheaper venue for users: all in, for orders of the same market, side, size and week.
        Arbitrageurs are not users: the pool is always worth their while.
    book_arbitrage : bool
        Whether arbitrageurs also take the book: quotes that makers left behind a moving price, where they are
        beyond the outside price by more than the arbitrageur's fee. Users do not meet those quotes.
    switched : tuple of str, optional
        An ISO date of 2022, and the value of `cheaper` from its first moment (UTC) on.
    drawn_accounts : bool
        Whether each user does as one of the default users does, drawn with replacement: how much it trades, what,
        where, and at which tiers. By default the users of all seeds are the same ones, as if the exchange had no
        others; drawn, each seed has a sample of them, which is what intervals clustered by account are about.

    Raises
    ------
    LabError
        If seed or size is out of range, `cheaper` is not one of the three, or `switched` is no such pair.

    Examples
    --------
    >>> world = lab.relayer.World(seed=1, size=0.01)
    >>> world.name, len(world.accounts)
    ('synthetic world, seed 1, size 0.01', 64)
    >>> lab.relayer.World(size=0.01, switched=("2022-07-01", "book")).name
    'synthetic world, seed 1, size 0.01, from 2022-07-01 cheaper book'
    """

    def __init__(
        self,
        seed: int = 1,
        size: float = 1.0,
        cheaper: str = "pool",
        *,
        book_arbitrage: bool = False,
        switched: tuple[str, str] | None = None,
        drawn_accounts: bool = False,
    ) -> None:
        if not _is_number(seed, Integral) or seed < 0:
            raise LabError(
                f"World seed: expected a whole number from 0, got {shown(seed)}. Give seed=1 for the default year."
            )
        if not _is_number(size, Real) or not SMALLEST <= size <= LARGEST:
            raise LabError(
                f"World size: expected {SMALLEST} to {LARGEST:g}, got {shown(size)}. Give size=1 for the default."
            )
        if cheaper not in tuple(SPREAD_PERCENT):
            raise LabError(
                f"World cheaper: expected pool, book or neither, got {cheaper!r}. Give one."
            )
        self.seed = seed
        self.size = size
        self.cheaper = cheaper
        self.book_arbitrage = book_arbitrage
        self.switched = switched
        self.drawn_accounts = drawn_accounts
        self.synthetic = True
        self._key = _Key(
            seed,
            int(size * 1000 + 0.5),
            cheaper,
            bool(book_arbitrage),
            None if switched is None else _switch(switched),
            bool(drawn_accounts),
        )

    def __repr__(self) -> str:
        settings = ""
        if self.cheaper != "pool":
            settings += f", cheaper={self.cheaper!r}"
        if self.book_arbitrage:
            settings += ", book_arbitrage=True"
        if self.switched is not None:
            settings += f", switched={self.switched!r}"
        if self.drawn_accounts:
            settings += ", drawn_accounts=True"
        return f"World(seed={self.seed}, size={self.size}{settings})"

    @property
    def name(self) -> str:
        """The name that tells this data from all other data: every parameter that differs from its default."""
        name = f"synthetic world, seed {self.seed}"
        if self._key.thousandths != 1000:
            name += f", size {self._key.thousandths / 1000:g}"
        if self.cheaper != "pool":
            name += f", cheaper {self.cheaper}"
        if self.book_arbitrage:
            name += ", arbitrage on the book"
        if self.switched is not None:
            day, other = self.switched
            name += f", from {day} cheaper {other}"
        if self.drawn_accounts:
            name += ", accounts drawn"
        return name

    @property
    def accounts(self) -> list[int]:
        """User accounts that trade, takers first; the accounts of pools are in `pools`."""
        users = [taker.id for taker in TAKERS]
        # Those that trade as one of the users follow after all of them, so that the list begins with the busiest.
        for taker in TAKERS:
            users += taker.others
        takers = users + self.arbitrageurs
        return takers + [maker.id for maker in MAKERS if maker.id not in takers]

    @property
    def pools(self) -> dict[str, int]:
        """Market to account id of its pool, for every pool that trades."""
        return {
            name: market.pool
            for name, market in MARKETS.items()
            if market.has_pool and market.pool
        }

    @property
    def planted(self) -> dict[int, str]:
        """Accounts with faults to find, by id, each with what is wrong; on the relayer only, in no block.

        They are not among `accounts`, and no other account's data depends on them.
        """
        return dict(PLANTED)

    @property
    def arbitrageurs(self) -> list[int]:
        """The takers that only bring prices back to the outside price; the other takers are users."""
        return [each.id for each in ARBITRAGEURS]

    @property
    def fills(self) -> tuple[Fill, ...]:
        """Every fill, in order of time; computed on first use and cached."""
        return self._simulated[0]

    @cached_property
    def _simulated(self) -> tuple[tuple[Fill, ...], LatentPrices]:
        return _simulate(self._key)

    @property
    def history(self) -> History:
        """Both sides of every fill, as rows; computed on first use and cached."""
        return _history(self._key)

    @property
    def chain(self) -> Chain | None:
        """The blocks that this world was settled into, which ship with the package for the default world only."""
        from loopring_lab.relayer.chain import shipped_chain

        return shipped_chain() if self._key == _Key() else None

    def tokens(self) -> list[dict[str, Any]]:
        """Return the token records as the relayer serves them.

        Returns
        -------
        list of dict
            Every documented field.
        """
        return [token.record() for token in TOKENS.values()]

    def markets(self) -> list[dict[str, Any]]:
        """Return the market records as the relayer serves them.

        Returns
        -------
        list of dict
            Every documented field.
        """
        return [market.record() for market in MARKETS.values()]

    def pool_records(self) -> list[dict[str, Any]]:
        """Return the pool records as the relayer serves them.

        Returns
        -------
        list of dict
            Also a pool that does not trade. Which account is a pool's, `pool_owners` tells.
        """
        return [market.pool_record() for market in MARKETS.values() if market.pool]

    def pool_owners(self) -> dict[int, str]:
        """Return the account id of each pool with the address that owns it, which is the pool's own.

        Returns
        -------
        dict of int to str
            Also of a pool that does not trade.
        """
        return {
            market.pool: market.pool_address
            for market in MARKETS.values()
            if market.pool
        }

    def latent_dollars(self, symbol: str, time_ms: int) -> int:
        """Return the underlying price of a token, which all its markets follow.

        Parameters
        ----------
        symbol : str
            Symbol of a token of this world.
        time_ms : int
            A time inside the year, in ms since the epoch.

        Returns
        -------
        int
            10**-12 dollars per unit.
        """
        return self._simulated[1].dollars(time_ms, TOKENS[symbol])[0]

    def outside_prices(
        self,
        market: str,
        start_ms: int,
        end_ms: int,
        every_ms: int = MINUTE,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what an outside market showed: the true price and about 1 basis point of noise each time.

        Parameters
        ----------
        market : str
            A market of this world.
        start_ms, end_ms : int
            First and last time, in ms since the epoch; the world knows prices from an hour before its year to
            a day after it.
        every_ms : int
            Whole minutes between two prices.

        Returns
        -------
        tuple of numpy.ndarray of int64
            The multiples of `every_ms` from the first time to the last, and the price at each, in 10**-12
            quote per base.

        Raises
        ------
        LabError
            If the market is unknown, or `every_ms` is not a number of whole minutes.

        Examples
        --------
        >>> world = lab.relayer.World(seed=1, size=0.01)
        >>> times, prices = world.outside_prices("ETH-USDC", 1_650_000_000_000, 1_650_000_600_000)
        >>> len(times), all(prices > 0)
        (11, True)
        """
        import numpy as np

        if market not in MARKETS:
            raise LabError(
                f"World market: {market!r} is not listed. Give one of {', '.join(MARKETS)}."
            )
        if every_ms < MINUTE or every_ms % MINUTE:
            raise LabError(
                f"World every_ms: expected whole minutes, got {every_ms}. Give {MINUTE}."
            )
        latent = self._simulated[1]
        first = -(-max(start_ms, latent.start) // every_ms) * every_ms
        times = np.arange(first, min(end_ms, latent.end) + 1, every_ms, dtype=np.int64)
        return times, latent.marks(
            MARKETS[market], times, f"outside market {self.seed}"
        )


def _is_number(value: object, kind: type) -> bool:
    """Tell whether a value is a number of a kind; True is one to Python, too."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _switch(switched: tuple[str, str]) -> tuple[int, str]:
    """Return the moment (ms) of a switch, and the cheaper venue from then on."""
    try:
        day, cheaper = switched
        moment = (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY
    except (TypeError, ValueError):
        moment = 0
        cheaper = ""
    if not START < moment < START + DAYS * DAY or cheaper not in tuple(SPREAD_PERCENT):
        raise LabError(
            "World switched: expected a day of 2022 after the first one and pool, book or neither, "
            f'got {switched!r}. Give switched=("2022-07-01", "book").'
        )
    return moment, cheaper


@lru_cache(maxsize=4)
def _simulate(key: _Key) -> tuple[tuple[Fill, ...], LatentPrices]:
    simulation = Simulation(*key)
    return simulation.run(), simulation.latent


@lru_cache(maxsize=4)
def _history(key: _Key) -> History:
    """Return the rows of a world: two of each fill, then those of the planted accounts."""
    fills, _ = _simulate(key)
    planted = [*_overcharged(fills), *_irregular(fills)]
    planted_keys = [
        RowKey(int(row.account_id), row.market, BOOK, row.order_hash) for row in planted
    ]
    last_rows = [*planted, NFT_ROW]

    def row(number: int) -> Sequence[str]:
        if number < 2 * len(fills):
            return _row(fills[number // 2], is_maker=number % 2 == 1)
        return last_rows[number - 2 * len(fills)]

    return History([*_keys(fills), *planted_keys, NFT_KEY], row)


def _keys(fills: tuple[Fill, ...]) -> Iterator[RowKey]:
    """Yield the keys of both sides of every fill, the taker's first, as `_row` is asked for them."""
    for fill in fills:
        yield RowKey(fill.taker, fill.market, fill.venue, fill.taker_hash)
        yield RowKey(fill.maker, fill.market, fill.venue, fill.maker_hash)


def _row(fill: Fill, is_maker: bool) -> Row:
    """Return one side of a fill as the relayer serves it."""
    market = MARKETS[fill.market]
    base = market.base
    quote = market.quote
    taker_buys = fill.side == "BUY"
    if is_maker:
        role = "maker"
        account = fill.maker
        buys = not taker_buys
        fee = 0  # makers pay none on the exchange
        storage = fill.maker_storage
        order_hash = fill.maker_hash
    else:
        role = "taker"
        account = fill.taker
        buys = taker_buys
        fee = fill.fee
        storage = fill.taker_storage
        order_hash = fill.taker_hash
    # The token that is sold, which is not the token of the fee.
    token = quote if buys else base
    prefix = POOL_PREFIX if fill.venue == POOL else ""
    price = fill.quote * PRICE_SCALE * base.units // (fill.size * quote.units)
    return Row(
        str(fill.time_ms),
        str(fill.id),
        "BUY" if buys else "SELL",
        str(fill.size),
        price_text(price),
        prefix + fill.market,
        str(fee),
        str(fill.block_id),
        str(fill.index_in_block),
        str(account),
        str(token.id),
        str(storage),
        order_hash,
        role,
    )


def price_text(scaled: int) -> str:
    """Format a price, given in units of 10**-8, like Java's ``Double.toString``."""
    text = repr(scaled / PRICE_SCALE)
    is_plain = PRICE_SCALE // 1000 <= scaled < 10**7 * PRICE_SCALE
    if is_plain or scaled == 0:
        return text
    # Java turns to an exponent below 0.001 and from 10,000,000 on, and Python elsewhere.
    value = Decimal(text)
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    return f"{digits[0]}.{digits[1:] or '0'}E{value.adjusted()}"


def _planted(fills: tuple[Fill, ...], account: int) -> list[Fill]:
    """Return fills on the book of an account that is not simulated: half the size of others, at 30 bps."""
    on_book = [
        fill
        for fill in fills
        if fill.venue == BOOK and not MARKETS[fill.market].is_stable
    ]
    step = max(1, len(on_book) // PLANTED_FILLS)
    # The two accounts have different fills, in turn, and ids before those of the simulation.
    turn = account % 2
    first_id = FIRST_ID - 2 * PLANTED_FILLS + turn
    planted = []
    for number, fill in enumerate(on_book[turn::step][:PLANTED_FILLS]):
        size = (fill.size + 1) // 2
        copy = fill._replace(
            time_ms=fill.time_ms + 500,
            id=first_id + 2 * number,
            taker=account,
            size=size,
            quote=max(1, fill.quote * size // fill.size),
            block_id=0,
            index_in_block=0,
            taker_hash="0x"
            + sha256(f"planted {account} {number}".encode()).hexdigest(),
            taker_storage=2 * number,
            pool_quote=None,
        )
        planted.append(_charged(copy, FEES_BPS[BOOK][0]))
    return planted


def _charged(fill: Fill, bps: int) -> Fill:
    received = fill.size if fill.side == "BUY" else fill.quote
    return fill._replace(fee_bps=bps, fee=received * bps // BPS)


def _overcharged(fills: tuple[Fill, ...]) -> Iterator[Row]:
    """Yield ordinary rows, an eighth of which, in a row, are charged too much."""
    planted = _planted(fills, OVERCHARGED)
    first = len(planted) * 5 // 8
    last = first + max(1, len(planted) // 8)
    for number, fill in enumerate(planted):
        is_overcharged = first <= number < last
        yield _row(
            _charged(fill, WRONG_BPS) if is_overcharged else fill,
            is_maker=False,
        )


def _irregular(fills: tuple[Fill, ...]) -> list[Row]:
    """Return ordinary rows, with five irregular ones among them; the sixth is that of the NFT."""
    planted = _planted(fills, IRREGULAR)
    rows = [_row(fill, is_maker=False) for fill in planted]
    if len(rows) > 5:
        in_seconds = rows[1].created_at[:-3]
        rows[1] = rows[1]._replace(created_at=in_seconds)
        rows[2] = rows[2]._replace(price="0.0", fee_amount="0")
        rows[3] = rows[3]._replace(size="n/a")
        # This fee is twice what was received.
        twice_paid = _charged(planted[4], 2 * BPS).fee
        rows[4] = rows[4]._replace(fee_amount=str(twice_paid))
        # The market does not have this token.
        rows[5] = rows[5]._replace(token_id="999")  # noqa: S106 - no password
    return rows
