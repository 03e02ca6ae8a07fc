"""Spot trades of blocks as the frame of `tables.trades`: two rows a fill, exact on both legs.

A block names tokens, not markets. Where no listing has the pair, the quote is the token that comes first in
`QUOTES`; of two others it is the one with the lower id, which was registered earlier. The order gives every
market and pool known of the exchange; its documentation once showed a USDC-ETH, of a test network, which a
listing has to name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.scaling import WHOLE, from_integers, reduce_scale, to_integers, with_scale
from loopring_lab.errors import LabError
from loopring_lab.query import parse_account_id
from loopring_lab.rollup.slots import FIRST_NFT
from loopring_lab.tables import assemble, rows
from loopring_lab.tables.listings import PREFIXES, MarketLookup

if TYPE_CHECKING:
    from loopring_lab.rollup.blocks import Blocks

QUOTES = ("USDC", "USDT", "DAI", "ETH", "WBTC", "LRC")
"""Quote tokens, first choice first."""
# Ours, as blocks do not number trades. No block has as many transactions: the contract holds a `blockSize` in
# 16 bits. A round number, so that an id is read as block and place at a glance.
ROWS_OF_A_BLOCK = 100_000
"""Trade ids are a block's number times this, plus the place in the block."""
# A rule of thumb of others who read these blocks; AMM updates name the pools of the blocks that were checked.
RESERVED_FOR_POOLS = 10_000
"""The exchange reserves account ids up to this for pools."""
UNKNOWN = np.iinfo(np.int8).max
UNLISTED = pd.DataFrame({"base_token_id": [], "quote_token_id": []})

_TYPE = AMOUNT.pyarrow_dtype
# An amount on the chain is 19 bits times a power of ten of 5 bits (float24), 524287e31 at most: 37 digits hold
# it. Arrow gives the quotient of two such numbers max(6, 37 + 1) = 38 decimals, which a change of scale then shifts
# by the difference of the tokens' decimals.
_LEG = pa.decimal256(37, 0)
_QUOTIENT = pa.decimal256(76, 38)
_DIGITS = _TYPE.precision - _TYPE.scale
_SIDES = ("a", "b")
_ROLES = [rows.ROLES.index("taker"), rows.ROLES.index("maker")]


def trades(
    blocks: Blocks,
    tokens: pd.DataFrame,
    markets: pd.DataFrame | None = None,
    pools: Collection[int] | None = None,
    account_id: int | None = None,
) -> pd.DataFrame:
    """Return both sides of every fill, or those of one account, in block order: the taker's, the maker's."""
    listing = MarketLookup(tokens, UNLISTED if markets is None else markets)
    fills = blocks.table("spot_trade")
    account = None if account_id is None else parse_account_id(account_id)
    if account is not None:
        fills = fills.filter(pc.or_(*(pc.equal(fills[f"account_{side}"], account) for side in _SIDES)))
    table = _Settled(fills.combine_chunks(), listing).table(blocks)
    accounts = table["account_id"].to_numpy()
    pooled = is_pool(blocks, accounts) if pools is None else np.isin(accounts, _account_ids(pools))
    fill_type = np.repeat(~pooled.reshape(-1, 2).any(axis=1), 2).astype(np.int8)
    table = table.set_column(table.column_names.index("fill_type"), "fill_type", pa.array(fill_type))
    frame = assemble(table if account is None else table.filter(accounts == account), listing)
    frame.attrs |= blocks.attrs
    return frame


def is_pool(blocks: Blocks, accounts: np.ndarray) -> np.ndarray:
    """Return which accounts are pools: amm updates name them, or their ids are reserved for pools."""
    named = list(blocks.known_pools.union(blocks.table("amm_update")["account"].to_pylist()))
    return np.asarray(np.isin(accounts, named) | (accounts > 0) & (accounts <= RESERVED_FOR_POOLS))


def trade_ids(blocks: Blocks, block: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return the ids of trades, given by the positions of their blocks and their places there."""
    unknown = np.array([raw.block_id is None for raw in blocks.raw], bool)
    counted = blocks.count_from - 1 + np.cumsum(unknown)
    numbers = np.where(unknown, counted, [raw.block_id or 0 for raw in blocks.raw]).astype(np.int64)
    return np.asarray(numbers[block] * ROWS_OF_A_BLOCK + within)


def markets(pairs: Iterable[tuple[int, int]], tokens: pd.DataFrame) -> pd.DataFrame:
    """Return the markets of pairs of token ids, as `tables.markets`, without those of unknown tokens."""
    listing = MarketLookup(tokens, UNLISTED)
    named = []
    for pair in sorted(pairs):
        quote, base = sorted(pair, key=partial(_rank, listing))
        codes = listing.code(base), listing.code(quote)
        if min(codes) >= 0 and base != quote:
            name = "-".join(listing.tokens[code] for code in codes)
            named.append({"market": name, "baseTokenId": base, "quoteTokenId": quote})
    return tables.markets({"markets": named}, tokens)


def _account_ids(pools: Collection[int]) -> list[int]:
    if isinstance(pools, (str, bytes)) or not hasattr(pools, "__iter__"):
        raise LabError(f"pools={pools!r} is not a collection of account ids. Give numbers, such as [1, 22].")
    return [parse_account_id(account, "pools") for account in pools]


class _Pairs(NamedTuple):
    """The market and tokens of each fill as codes, -1 where unknown, and the id of the quote token."""

    market: np.ndarray
    base: np.ndarray
    quote: np.ndarray
    quote_id: np.ndarray


class _Settled(rows.Conversion):
    """Converts fills to rows, two for each."""

    def __init__(self, fills: pa.Table, listing: MarketLookup) -> None:
        super().__init__(2 * len(fills), listing)
        self.fills = fills
        self.sell_a, self.sell_b = (fills[f"sell_{side}"].to_numpy() for side in _SIDES)

    def table(self, blocks: Blocks) -> pa.Table:
        """Convert all columns but the fill type."""
        pairs = self.pairs()
        a_buys = self.sell_a == pairs.quote_id
        legs = [self.fills[f"fill_{side}"].combine_chunks().cast(WHOLE) for side in _SIDES]
        base_leg, quote_leg = (pc.if_else(pa.array(mask), *legs) for mask in (~a_buys, a_buys))
        both = np.repeat(np.arange(len(self.fills)), 2)
        units = {
            "size": self.amounts("size", base_leg, pairs.base, 2),
            "price": self.prices(quote_leg, base_leg, pairs),
            "notional": self.amounts("notional", quote_leg, pairs.quote, 2),
        }
        units = {name: column.take(pa.array(both)) for name, column in units.items()}
        market, base, quote, _ = (codes[both] for codes in pairs)
        side = _interleave(~a_buys, a_buys).astype(np.int8)
        side[np.repeat(self.sell_a == self.sell_b, 2)] = -1
        fee_code = self.codes(self.sides("fee_token"))
        fee = self.amounts("fee", self.sides("fee", WHOLE), fee_code, 1)
        self.note_odd(pairs)
        block, index = (self.fills[name].to_numpy()[both].astype(np.int64) for name in ("block", "index_in_block"))
        headers = blocks.headers_table
        return pa.table(
            {
                "created_at": headers["timestamp"].to_numpy()[block] * 1_000,
                "trade_id": trade_ids(blocks, block, index),
                "account_id": self.sides("account"),
                "market": market,
                "base": base,
                "quote": quote,
                "side": side,
                "fill_type": np.full(len(both), -1, np.int8),
                "role": np.tile(np.array(_ROLES, np.int8), len(self.fills)),
                **units,
                "fee": fee,
                "fee_token": fee_code,
                "fee_bps": rows.fee_rates(fee, fee_code, (base, units["size"]), (quote, units["notional"])),
                "order_hash": pa.nulls(len(both), pa.string()),
                "block_id": headers["block_id"].combine_chunks().take(pa.array(block)),
                "index_in_block": index,
                "token_id": _interleave(self.sell_a, self.sell_b),
                "storage_id": self.sides("storage"),
                "extra": self.notes(),
            }
        )

    def sides(self, name: str, to: pa.DataType | None = None) -> pa.Array:
        """Return a column of both sides, in turn."""
        a, b = (self.fills[f"{name}_{side}"].combine_chunks() for side in _SIDES)
        if to is None:
            return pa.array(_interleave(*(side.to_numpy(zero_copy_only=False) for side in (a, b))))
        places = _interleave(np.arange(len(a)), np.arange(len(a), 2 * len(a)))
        return pa.concat_arrays([a, b]).cast(to).take(pa.array(places))

    def codes(self, token_ids: pa.Array | np.ndarray) -> np.ndarray:
        """Return the codes of tokens, -1 where they are unknown."""
        ids, places = np.unique(np.asarray(token_ids), return_inverse=True)
        return np.array([self.listing.code(one) for one in ids.tolist()], np.int32)[places]

    def pairs(self) -> _Pairs:
        """Find the market of each pair of tokens, or name it as base and quote."""
        low, high = np.minimum(self.sell_a, self.sell_b), np.maximum(self.sell_a, self.sell_b)
        keys, places = np.unique(low << 32 | high, return_inverse=True)
        listed = _listed(self.listing)
        found = [self.pair(key >> 32, key & 0xFFFFFFFF, listed) for key in keys.tolist()]
        return _Pairs(*np.array(found, np.int64).reshape(-1, 4)[places].T)

    def pair(self, low: int, high: int, listed: dict[frozenset[int], tuple[int, int]]) -> tuple[int, ...]:
        market, base_id = listed.get(frozenset((low, high)), (-1, -1))
        if market < 0:
            base_id = max(low, high, key=partial(_rank, self.listing))
        quote_id = low if base_id == high else high
        base, quote = self.listing.code(base_id), self.listing.code(quote_id)
        if market < 0 and min(base, quote) >= 0 and base != quote:
            market = len(self.listing.markets)
            self.listing.markets.append(f"{self.listing.tokens[base]}-{self.listing.tokens[quote]}")
        return market, base, quote, quote_id

    def amounts(self, name: str, numbers: pa.Array, token: np.ndarray, sides: int) -> pa.Array:
        """Scale amounts; the smallest units that a column cannot hold are kept on each of their rows."""

        def keep(row: int, problem: str | None) -> None:
            text = f"{numbers[row].as_py():f}"
            for place in range(row * sides, (row + 1) * sides):
                self.verbatim[place][name] = text
                if problem:
                    self.reasons[place].append(f"{name} {text} {problem}")

        return self.scaled(name, numbers, token, keep)

    def prices(self, paid: pa.Array, bought: pa.Array, pairs: _Pairs) -> pa.Array:
        """Divide quote by base units, truncated to the decimals of amounts; null without a size."""
        shift = self.listing.decimals[pairs.base] - self.listing.decimals[pairs.quote]
        shift = np.where((pairs.base < 0) | (pairs.quote < 0), UNKNOWN, shift)
        zero = pc.equal(bought, pa.scalar(0, WHOLE))
        bought = pc.if_else(zero, pa.scalar(None, WHOLE), bought)
        quotient = pc.divide(paid.cast(_LEG), bought.cast(_LEG))

        def to_prices(some: np.ndarray) -> pa.Array:
            part = pa.array(some)
            by = int(shift[some[0]])
            if by == UNKNOWN:
                return pa.nulls(len(some), _TYPE)
            if by > _QUOTIENT.scale - _TYPE.scale:  # more decimals than the quotient has
                return self.divided(paid.take(part), bought.take(part), by, some)
            scaled = with_scale(quotient.take(part), pa.decimal256(76, _QUOTIENT.scale - by))
            if scaled.type.scale + _DIGITS < scaled.type.precision:
                beyond = pc.greater_equal(scaled, pa.scalar(f"1{'0' * _DIGITS}").cast(scaled.type))
                scaled = pc.if_else(beyond, None, scaled)
                self.beyond(np.asarray(beyond.fill_null(False)), some)
            return reduce_scale(scaled, _TYPE, truncate=True)

        return _in_parts(shift, to_prices)

    def divided(self, paid: pa.Array, bought: pa.Array, shift: int, some: np.ndarray) -> pa.Array:
        """Divide as Python integers."""
        ten, limit = 10 ** (shift + _TYPE.scale), 10**_TYPE.precision
        legs = zip(to_integers(paid), to_integers(bought), strict=True)
        exact = [None if b is None else a * ten // b for a, b in legs]
        fits = [price is None or price < limit for price in exact]
        self.beyond(~np.array(fits), some)
        return from_integers(np.where(fits, np.array(exact, object), np.full(len(fits), None)), _TYPE)

    def beyond(self, mask: np.ndarray, some: np.ndarray) -> None:
        """Note on both rows of fills that their price does not fit."""
        for row in some[mask].tolist():
            for place in (2 * row, 2 * row + 1):
                self.reasons[place].append(f"the price does not fit {_TYPE}")

    def note_odd(self, pairs: _Pairs) -> None:
        """Note fills of NFTs, of unknown tokens or of one token, and orders with bit 6 of their data set."""
        same, odd = self.sell_a == self.sell_b, (pairs.base < 0) | (pairs.quote < 0)
        for row in np.flatnonzero(odd | same).tolist():
            sold = dict.fromkeys((int(self.sell_a[row]), int(self.sell_b[row])))
            texts = [f"token {one} {'is an NFT' if one >= FIRST_NFT else 'is not in the tokens table'}"
                     for one in sold if self.listing.code(one) < 0]  # fmt: skip
            texts += [f"both sides sell token {self.sell_a[row]}"] if same[row] else []
            for place in (2 * row, 2 * row + 1):
                self.reasons[place] += texts
        self.flag(self.sides("bit6"), "bit 6 of the order data is set, whose meaning is not known")


def _rank(listing: MarketLookup, token_id: int) -> tuple[int, int]:
    """Return what a token is ordered by: quote tokens, other listed ones by id, unknown ones."""
    code = listing.code(token_id)
    symbol = listing.tokens[code].partition("#")[0] if code >= 0 else ""
    return (QUOTES.index(symbol) if symbol in QUOTES else len(QUOTES) + (code < 0)), token_id


def _listed(listing: MarketLookup) -> dict[frozenset[int], tuple[int, int]]:
    """Return market and base token of each listed pair; a pool's market only where there is no other."""
    names = enumerate(listing.markets[: listing.known])
    order = sorted(names, key=lambda place: place[1].upper().startswith(PREFIXES), reverse=True)
    ids = {code: listing.ids_of(code) for code, _ in order}
    return {frozenset(pair): (code, pair[0]) for code, pair in ids.items()}


def _interleave(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return values of takers and makers in turn."""
    return np.stack([a, b], axis=1).ravel()


def _in_parts(keys: np.ndarray, convert: Callable[[np.ndarray], pa.Array]) -> pa.Array:
    """Convert rows of the same key together, given by their positions, and put them back in order."""
    if not len(keys):
        return pa.nulls(0, _TYPE)
    order = np.argsort(keys.astype(np.int8), kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
    if len(parts) == 1:
        return convert(order)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return pa.concat_arrays([convert(part) for part in parts]).take(pa.array(places))
