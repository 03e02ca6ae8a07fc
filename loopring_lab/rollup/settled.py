"""Spot trades of blocks as the frame of `tables.trades`: two rows a fill, exact on both legs.

A block names tokens, not markets. Where no listing has the pair, the quote is the token that comes first in
`QUOTES`; of two others it is the one with the lower id, which was registered earlier. The order gives every
market and pool known of the exchange; its documentation once showed a USDC-ETH, of a test network, which a
listing has to name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.scaling import WHOLE, from_integers, to_integers
from loopring_lab.arguments import parse_account_id
from loopring_lab.errors import BlockError
from loopring_lab.rollup.calldata import LAST_BLOCK
from loopring_lab.rollup.slots import FIRST_NFT
from loopring_lab.tables import assemble, rows
from loopring_lab.tables.listings import PREFIXES, MarketLookup

if TYPE_CHECKING:
    from loopring_lab.rollup.blocks import Blocks

QUOTES = ("USDC", "USDT", "DAI", "ETH", "WBTC", "LRC")
"""Quote tokens, first choice first: with this order the names are those of all the exchange's markets and pools."""
# The numbers of trades are ours, as blocks do not number them. A block has at most 65,535 transactions: the contract
# holds a `blockSize` in 16 bits. This is a round number, so that an id is read as block and place at a glance.
ROWS_OF_A_BLOCK = 100_000
"""Trade ids are a block's number times this, plus the place in the block."""
# The exchange's pools have the accounts 1 to 127 (AmmPools in packages/loopring_v3/deployment_mainnet_v3.6.md of
# Loopring/protocols). No contract sets a limit: 10,000 is that of the public subgraphs that read these blocks
# (USER_ACCOUNT_THRESHOLD in src/utils/constants.ts of juanmardefago/loopring-subgraph-v2; deposit.ts of
# protofire/loopringv3.6-subgraph compares with the same number). Fill types rest on it: 12 pools trade in the recorded
# real block, of which AMM updates name 2. The lowest account of anybody else there is 11,375.
RESERVED_FOR_POOLS = 10_000
"""Accounts with ids up to this are pools."""

UNLISTED = pd.DataFrame({"base_token_id": [], "quote_token_id": []})
# The highest price, in units of its last decimal.
MAX_PRICE = 10**AMOUNT_TYPE.precision - 1
PARTIES = ("a", "b")  # of a fill: the taker, the maker
ROLES_OF_PARTIES = [rows.ROLES.index("taker"), rows.ROLES.index("maker")]


def trades(
    blocks: Blocks,
    tokens: pd.DataFrame,
    markets: pd.DataFrame | None = None,
    account_id: int | None = None,
) -> pd.DataFrame:
    """Return both sides of every fill, or those of one account, in block order: the taker's, the maker's."""
    listing = MarketLookup(tokens, UNLISTED if markets is None else markets)
    fills = blocks.table("spot_trade")
    # Fills of one account first, as converting is what takes time; both sides are rows until the end.
    if account_id is not None:
        account_id = parse_account_id(account_id)
        is_party = pc.or_(
            pc.equal(fills["account_a"], account_id),
            pc.equal(fills["account_b"], account_id),
        )
        fills = fills.filter(is_party)
    table = _Settled(fills.combine_chunks(), listing).table(blocks)
    if account_id is not None:
        table = table.filter(pc.field("account_id") == account_id)
    frame = assemble(table, listing)
    frame.attrs |= blocks.attrs
    return frame


def is_pool(blocks: Blocks, accounts: np.ndarray) -> np.ndarray:
    """Return which accounts are pools: amm updates name them, or their ids are reserved for pools."""
    updated = blocks.table("amm_update")["account"].to_pylist()
    named = list({*blocks.known_pools, *updated})
    is_named = np.isin(accounts, named)
    is_reserved = (accounts > 0) & (accounts <= RESERVED_FOR_POOLS)
    return np.asarray(is_named | is_reserved)


def trade_ids(blocks: Blocks, block: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return the ids of trades, given by the positions of their blocks and their places there."""
    numbers = []
    # Blocks without a number are counted from a number that none of the store has.
    next_number = blocks.count_from
    for raw in blocks.raw:
        if raw.block_id is None:
            numbers.append(next_number)
            next_number += 1
        else:
            numbers.append(raw.block_id)
    highest = max(numbers, default=0)
    # Ids of blocks beyond it would be those of others.
    if highest > LAST_BLOCK:
        raise BlockError(
            f"block {highest}: trade ids of 64 bits end with block {LAST_BLOCK:,}. Correct its number: "
            "first_block= of what was decoded or imported, or the event that names it."
        )
    of_block = np.array(numbers, np.int64)[block]
    return np.asarray(of_block * ROWS_OF_A_BLOCK + within)


def markets(pairs: Iterable[tuple[int, int]], tokens: pd.DataFrame) -> pd.DataFrame:
    """Return the markets of pairs of token ids, as `tables.markets`, without those of unknown tokens."""
    listing = MarketLookup(tokens, UNLISTED)
    named = []
    for pair in sorted(pairs):
        quote, base = sorted(pair, key=partial(_rank, listing))
        name = _name(listing, base, quote)
        if name is not None:
            named.append(
                {
                    "market": name,
                    "baseTokenId": base,
                    "quoteTokenId": quote,
                }
            )
    return tables.markets({"markets": named}, tokens)


class _Pairs(NamedTuple):
    """The market and tokens of each fill as codes, -1 where unknown, and the id of the quote token."""

    market: np.ndarray
    base: np.ndarray
    quote: np.ndarray
    quote_id: np.ndarray


class _Settled(rows.Conversion):
    """Converts fills to rows, two for each."""

    def __init__(self, fills: pa.Table, listing: MarketLookup) -> None:
        count = len(fills)
        super().__init__(2 * count, listing)
        self.fills = fills
        # The fill that each row is a side of.
        self.fill = np.repeat(np.arange(count), 2)
        # Places of takers and makers in turn, where all makers stand behind all takers.
        self.in_turn = pa.array(self.fill + np.tile([0, count], count))
        self.sell_a = fills["sell_a"].to_numpy()
        self.sell_b = fills["sell_b"].to_numpy()

    def table(self, blocks: Blocks) -> pa.Table:
        """Convert all columns."""
        pairs = self.pairs()
        # A buys the base token where it sells the quote token, and then its leg is the quote's.
        a_buys = self.sell_a == pairs.quote_id
        leg_is_quote = pa.array(a_buys)
        leg_a = self.fills["fill_a"].combine_chunks().cast(WHOLE)
        leg_b = self.fills["fill_b"].combine_chunks().cast(WHOLE)
        base_leg = pc.if_else(leg_is_quote, leg_b, leg_a)
        quote_leg = pc.if_else(leg_is_quote, leg_a, leg_b)

        # Both rows of a fill have its size, price and notional; fees are a row's own.
        fill = self.fill
        of_fill = pa.array(fill)
        base = pairs.base[fill]
        quote = pairs.quote[fill]
        size = self.amounts("size", base_leg, pairs.base, rows_each=2).take(of_fill)
        price = self.prices(quote_leg, base_leg, pairs).take(of_fill)
        notional = self.amounts("notional", quote_leg, pairs.quote, rows_each=2)
        notional = notional.take(of_fill)

        account = self.both("account").to_numpy()
        # A fill is a pool's if either of its two rows is.
        with_pool = is_pool(blocks, account).reshape(-1, 2).any(axis=1)
        amm = rows.FILL_TYPES.index("amm")
        dex = rows.FILL_TYPES.index("dex")
        fill_type = np.where(with_pool, amm, dex).astype(np.int8)

        # Codes: 0 buys, 1 sells.
        side = np.stack([~a_buys, a_buys], axis=1).ravel().astype(np.int8)
        # If a token is traded against itself, neither side buys.
        is_same = self.sell_a == self.sell_b
        side[is_same[fill]] = -1
        fee_code = self.codes(self.both("fee_token").to_numpy())
        fees = self.both("fee").cast(WHOLE)
        fee = self.amounts("fee", fees, fee_code, rows_each=1)
        fee_bps = rows.fee_rates(fee, fee_code, (base, size), (quote, notional))
        self.note_odd(pairs)
        block = self.fills["block"].to_numpy()[fill].astype(np.int64)
        index = self.fills["index_in_block"].to_numpy()[fill].astype(np.int64)
        headers = blocks.headers_table
        seconds = headers["timestamp"].to_numpy()[block]
        block_id = headers["block_id"].combine_chunks().take(pa.array(block))
        roles = np.array(ROLES_OF_PARTIES, np.int8)
        return rows.as_trades(
            {
                "created_at": seconds * 1_000,
                "trade_id": trade_ids(blocks, block, index),
                "account_id": account,
                "market": pairs.market[fill],
                "base": base,
                "quote": quote,
                "side": side,
                "fill_type": fill_type[fill],
                "role": np.tile(roles, len(self.fills)),
                "size": size,
                "price": price,
                "notional": notional,
                "fee": fee,
                "fee_token": fee_code,
                "fee_bps": fee_bps,
                "block_id": block_id,
                "index_in_block": index,
                "token_id": self.both("sell"),
                "storage_id": self.both("storage"),
                "extra": self.notes(),
            }
        )

    def both(self, name: str) -> pa.Array:
        """Return what a column has of takers and of makers, in turn."""
        columns = [self.fills[f"{name}_{party}"].combine_chunks() for party in PARTIES]
        return pa.concat_arrays(columns).take(self.in_turn)

    def codes(self, token_ids: np.ndarray) -> np.ndarray:
        """Return the codes of tokens, -1 where they are unknown."""
        ids, places = np.unique(token_ids, return_inverse=True)
        codes = [self.listing.code(one) for one in ids.tolist()]
        return np.array(codes, np.int32)[places]

    def pairs(self) -> _Pairs:
        """Find the market of each pair of tokens, or name it as base and quote."""
        low = np.minimum(self.sell_a, self.sell_b)
        high = np.maximum(self.sell_a, self.sell_b)
        # Pairs, of which there are few, are looked up once each: under one number, which has the lower id above.
        keys, places = np.unique(low << 32 | high, return_inverse=True)
        listed = _listed(self.listing)
        found = [
            self.pair(key >> 32, key & 0xFFFFFFFF, listed) for key in keys.tolist()
        ]
        columns = np.array(found, np.int64).reshape(-1, 4)[places].T
        return _Pairs(*columns)

    def pair(
        self,
        low: int,
        high: int,
        listed: Mapping[frozenset[int], tuple[int, int]],
    ) -> tuple[int, ...]:
        """Return codes of market, base and quote of two tokens, and the id of the quote token."""
        market, base_id = listed.get(frozenset((low, high)), (-1, -1))
        if market < 0:
            # No listing has this pair: the token that ranks later is the base.
            base_id = max(low, high, key=partial(_rank, self.listing))
        quote_id = low if base_id == high else high
        name = _name(self.listing, base_id, quote_id)
        # Further rows of the pair find the market by the code that it gets here.
        if market < 0 and name is not None:
            market = len(self.listing.markets)
            self.listing.markets.append(name)
        return (
            market,
            self.listing.code(base_id),
            self.listing.code(quote_id),
            quote_id,
        )

    def amounts(
        self,
        name: str,
        numbers: pa.Array,
        token: np.ndarray,
        *,
        rows_each: int,
    ) -> pa.Array:
        """Scale amounts; what a column cannot hold is kept on each of its rows, in smallest units."""

        def keep(place: int, problem: str | None) -> None:
            # In `extra` the amount stays as it was, so that no digit is lost.
            text = f"{numbers[place].as_py():f}"
            for row in range(place * rows_each, (place + 1) * rows_each):
                self.verbatim[row][name] = text
                if problem:
                    self.reasons[row].append(f"{name} {text} {problem}")

        return self.scaled(name, numbers, token, keep)

    def prices(self, paid: pa.Array, bought: pa.Array, pairs: _Pairs) -> pa.Array:
        """Divide quote by base units, cut to the decimals of amounts; null without a size or a known token."""
        base_decimals = self.listing.decimals[pairs.base].tolist()
        quote_decimals = self.listing.decimals[pairs.quote].tolist()
        prices: list[int | None] = []
        # Prices are divided as Python's integers, because Arrow divides some long decimals wrong.
        legs = zip(to_integers(paid), to_integers(bought), strict=True)
        for fill, (quote, base) in enumerate(legs):
            is_known = base_decimals[fill] >= 0 and quote_decimals[fill] >= 0
            price = None
            if is_known and base:
                dividend = quote * 10 ** (AMOUNT_TYPE.scale + base_decimals[fill])
                price = dividend // (base * 10 ** quote_decimals[fill])
            if price is not None and price > MAX_PRICE:
                price = None
                self.note(fill, f"the price does not fit {AMOUNT_TYPE}")
            prices.append(price)
        return from_integers(prices, AMOUNT_TYPE)

    def note_odd(self, pairs: _Pairs) -> None:
        """Note fills of NFTs, of unknown tokens or of one token, and orders with bit 6 of their data set."""
        is_same = self.sell_a == self.sell_b
        is_unknown = (pairs.base < 0) | (pairs.quote < 0)
        for fill in np.flatnonzero(is_unknown | is_same).tolist():
            sold = (int(self.sell_a[fill]), int(self.sell_b[fill]))
            for token in dict.fromkeys(sold):
                if self.listing.code(token) >= 0:
                    continue
                what = "is not in the tokens table"
                if token >= FIRST_NFT:
                    what = "is an NFT"
                self.note(fill, f"token {token} {what}")
            if is_same[fill]:
                self.note(fill, f"both sides sell token {sold[0]}")
        reason = "bit 6 of the order data is set, whose meaning is not known"
        self.flag(self.both("bit6"), reason)

    def note(self, fill: int, reason: str) -> None:
        """Note a reason on both rows of a fill."""
        self.reasons[2 * fill].append(reason)
        self.reasons[2 * fill + 1].append(reason)


def _rank(listing: MarketLookup, token_id: int) -> tuple[int, int]:
    """Return what a token is ordered by: quote tokens, other listed ones by id, unknown ones."""
    code = listing.code(token_id)
    if code < 0:
        return len(QUOTES) + 1, token_id
    symbol = listing.tokens[code].partition("#")[0]
    rank = QUOTES.index(symbol) if symbol in QUOTES else len(QUOTES)
    return rank, token_id


def _name(listing: MarketLookup, base_id: int, quote_id: int) -> str | None:
    """Return the name of a market; None if it has unknown tokens, or one alone."""
    base = listing.code(base_id)
    quote = listing.code(quote_id)
    if base < 0 or quote < 0 or base_id == quote_id:
        return None
    return f"{listing.tokens[base]}-{listing.tokens[quote]}"


def _listed(
    listing: MarketLookup,
) -> dict[frozenset[int], tuple[int, int]]:
    """Return market and base token of each listed pair; a pool's market only where there is no other."""
    found: dict[frozenset[int], tuple[int, int]] = {}
    names = listing.markets[: listing.known]
    is_of_pool = [name.upper().startswith(PREFIXES) for name in names]
    # Later ones replace earlier ones, so those of pools come first.
    for code in sorted(range(len(names)), key=lambda code: not is_of_pool[code]):
        pair = listing.ids_of(code)
        found[frozenset(pair)] = (code, pair[0])
    return found
