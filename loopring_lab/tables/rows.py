"""Trade rows: text columns to typed, scaled Arrow columns, with a note on every irregular row."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE, LIMIT, wide_product
from loopring_lab.amounts.scaling import WHOLE, rescale, scale_what_fits
from loopring_lab.bounded import MAX_INT64, parse_decimal, parse_json, shown
from loopring_lab.columns import TRADES
from loopring_lab.engine.hashes import known_hashes
from loopring_lab.tables.identity import SIDES
from loopring_lab.tables.listings import MAX_MOMENT, MarketLookup
from loopring_lab.tables.numbers import (
    is_true,
    rows_where,
    to_amounts,
    to_integers,
    to_smallest,
    unread,
)
from loopring_lab.tables.wire import CORE, MEMBERS, Batch, fault_of

# The words of columns that have only these, and the listings that the others name.
WORDS = {name: column.words for name, column in TRADES.items() if column.words}
NAMED = {name: column.names for name, column in TRADES.items() if column.names}
FILL_TYPES = WORDS["fill_type"]
ROLES = WORDS["role"]

Codes = np.ndarray
"""Positions in a list of names, -1 where unknown."""


def convert(
    batch: Batch,
    fill_types: Sequence[str | None],
    listing: MarketLookup,
) -> pa.Table:
    """Convert the rows of a batch to types and units; `fill_types` are those of its pages, None where unknown."""
    labels = pa.array(fill_types, pa.string())
    codes = pc.index_in(labels, value_set=pa.array(FILL_TYPES)).fill_null(-1)
    each = np.repeat(np.asarray(codes, np.int8), batch.counts)
    return _Converter(batch, listing).table(each)


def as_trades(made: Mapping[str, Any]) -> pa.Table:
    """Put columns in the order of trades, names and words as codes; those that a source does not have are unknown."""
    undeclared = made.keys() - TRADES.keys()
    if undeclared:
        raise ValueError(f"columns.toml does not declare {sorted(undeclared)}")
    rows = len(made["created_at"])
    columns: dict[str, Any] = {}
    for name, column in TRADES.items():
        if name in made:
            columns[name] = made[name]
        elif column.words or column.names:
            columns[name] = np.full(rows, -1, np.int8)
        else:
            columns[name] = pa.nulls(rows, column.arrow)
    return pa.table(columns)


def sort_keys(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the sort keys of typed rows: milliseconds and trade id, unknown ones last."""
    # This is beyond all times and ids, so that no known value comes after an unknown one.
    last = pa.scalar(MAX_INT64)
    moments = table["created_at"].fill_null(last)
    trade_ids = table["trade_id"].fill_null(last)
    return moments.to_numpy(), trade_ids.to_numpy()


def fee_rates(
    fee: pa.Array,
    fee_code: Codes,
    base_leg: tuple[Codes, pa.Array],
    quote_leg: tuple[Codes, pa.Array],
) -> np.ndarray:
    """Return fees in basis points of the leg, a token and an amount, that they were charged on."""
    base, size = base_leg
    quote, notional = quote_leg
    in_quote = pc.if_else(pa.array(fee_code == quote), notional, None)
    in_either = pc.if_else(pa.array(fee_code == base), size, in_quote)
    charged = _floats(in_either)
    # No rate follows from nothing.
    charged[charged == 0] = np.nan
    return np.asarray(_floats(fee) / charged * 1e4)


def note(reasons: list[str], members: dict[str, str]) -> str | None:
    """Write what is irregular about a row, and the members that no column can hold, as JSON text."""
    # Regular rows have no note, so that ``extra`` is null in nearly all of them.
    if not reasons:
        return None
    found = {
        "anomaly": "; ".join(sorted(reasons)),
        **members,
    }
    return json.dumps(
        found,
        ensure_ascii=False,
        sort_keys=True,
    )


class Conversion:
    """A conversion to rows that collects what is irregular about them."""

    def __init__(self, rows: int, listing: MarketLookup) -> None:
        self.rows = rows
        self.listing = listing
        self.reasons: dict[int, list[str]] = defaultdict(list)
        self.verbatim: dict[int, dict[str, str]] = defaultdict(dict)

    def flag(self, rows: pa.Array | np.ndarray, reason: str) -> None:
        """Note a reason why rows are irregular."""
        for row in rows_where(rows):
            self.reasons[row].append(reason)

    def scaled(
        self,
        name: str,
        numbers: pa.Array,
        token: Codes,
        keep: Callable[[int, str | None], None],
    ) -> pa.Array:
        """Scale amounts to units; those of unknown tokens, or that do not fit, become null and are kept.

        `keep` takes the row and the problem; None where the token is not known, which another note of the row says.
        """
        decimals = self.listing.decimals[token]
        for row in rows_where((token < 0) & is_true(numbers.is_valid())):
            keep(row, None)
        # An amount that does not fit is a problem of its row, not of the whole answer.
        found, beyond = scale_what_fits(
            numbers,
            decimals,
            AMOUNT_TYPE,
            name,
        )
        for row in beyond.tolist():
            symbol = self.listing.tokens[token[row]]
            keep(
                row,
                f"with the {decimals[row]} decimals of {symbol} does not fit {AMOUNT_TYPE}",
            )
        return found

    def notes(self) -> pa.Array:
        """Describe each irregular row as JSON text; null for a regular one."""
        # The array is one of objects, as nearly all of them are null.
        texts = np.full(self.rows, None, object)
        for row, reasons in self.reasons.items():
            texts[row] = note(reasons, self.verbatim.get(row, {}))
        return pa.array(texts, pa.string())


class _Converter(Conversion):
    """Converts the columns of one batch."""

    def __init__(self, batch: Batch, listing: MarketLookup) -> None:
        super().__init__(len(batch.columns), listing)
        self.batch = batch
        self.columns = batch.columns

    def table(self, fill_type: Codes) -> pa.Table:
        """Convert all columns; `fill_type` has a code for each row."""
        is_trade = self.columns["no_trade"].is_null()
        for name in CORE:
            is_missing = pc.and_(is_trade, self.columns[name].is_null())
            self.flag(is_missing, f"{name} is missing")
        market, base, quote, is_pool = self.markets()
        side = self.codes(
            "side",
            SIDES,
            ignore_case=True,
        )
        token_id = self.integers("tokenId")
        # The fee is charged in the token received: a BUY receives base tokens, a SELL quote tokens.
        sides = [side == SIDES.index("BUY"), side == SIDES.index("SELL")]
        fee_code = np.select(sides, [base, quote], np.int32(-1))
        size = self.amounts("size", base)
        fee = self.amounts("feeAmount", fee_code)
        price = self.prices()
        notional = self.notionals(size, price)
        of_book = fill_type == FILL_TYPES.index("dex")
        self.flag(is_pool & of_book, "a pool's market among order-book fills")
        # A pool's market tells the type of a page that does not.
        is_unstated = (fill_type < 0) & is_pool
        fill_type = np.where(is_unstated, np.int8(FILL_TYPES.index("amm")), fill_type)
        self.flag_other_token(base, quote, token_id)
        order_hash = known_hashes(self.columns["orderHash"])
        problem = "is not 0x and 64 hex digits that are not all 0"
        self.keep_unread("orderHash", order_hash, problem)
        role = self.codes("type", ROLES)
        self.keep_tails()
        self.keep_no_trades()
        return as_trades(
            {
                "created_at": self.moments(),
                "trade_id": self.integers("id"),
                "account_id": self.integers("accountId"),
                "market": market,
                "base": base,
                "quote": quote,
                "side": side,
                "fill_type": fill_type,
                "role": role,
                "size": size,
                "price": price,
                "notional": notional,
                "fee": fee,
                "fee_token": fee_code,
                "fee_bps": fee_rates(
                    fee,
                    fee_code,
                    (base, size),
                    (quote, notional),
                ),
                "order_hash": order_hash,
                "block_id": self.integers("blockId"),
                "index_in_block": self.integers("indexInBlock"),
                "token_id": token_id,
                "storage_id": self.integers("storageId"),
                "extra": self.notes(),
            }
        )

    def keep_text(
        self,
        row: int,
        name: str,
        problem: str | None,
    ) -> None:
        """Keep the text of a member that its column cannot hold; without a problem where another note says it."""
        text = self.columns[name][row].as_py()
        self.verbatim[row][name] = text
        if problem:
            self.reasons[row].append(f"{name} {shown(text, 60)} {problem}")

    def keep_texts(self, rows: list[int], name: str, problem: str) -> None:
        """Keep the texts of a member that its column cannot hold."""
        for row in rows:
            self.keep_text(row, name, problem)

    def keep_unread(self, name: str, found: pa.Array, problem: str) -> None:
        """Keep the texts of a member that none was found for."""
        self.keep_texts(unread(self.columns[name], found), name, problem)

    def markets(self) -> tuple[Codes, Codes, Codes, np.ndarray]:
        """Look up markets with their tokens, and whether the name is a pool's."""
        # A page has a few markets in many rows, so each name is looked up once.
        encoded = self.columns["market"].dictionary_encode()
        pairs = [self.listing.pair(name) for name in encoded.dictionary.to_pylist()]
        pairs.append(self.listing.pair(None))
        codes = encoded.indices.fill_null(len(pairs) - 1).to_numpy()
        is_odd = np.array([pair.reason is not None for pair in pairs])
        for row in rows_where(is_odd[codes]):
            pair = pairs[codes[row]]
            self.reasons[row].append(pair.reason)
        found = [(pair.market, pair.base, pair.quote) for pair in pairs]
        market, base, quote = np.array(found, np.int32)[codes].T
        is_pool = np.array([pair.is_pool for pair in pairs])[codes]
        return market, base, quote, is_pool

    def codes(
        self,
        name: str,
        words: tuple[str, ...],
        *,
        ignore_case: bool = False,
    ) -> Codes:
        """Return the codes of words; others are kept."""
        texts = self.columns[name]
        known = pc.ascii_upper(texts) if ignore_case else texts
        found = pc.index_in(
            known,
            value_set=pa.array(words),
        )
        self.keep_unread(name, found, f"is not {' or '.join(words)}")
        return np.asarray(found.fill_null(-1), np.int8)

    def integers(self, name: str) -> pa.Array:
        """Read whole numbers of 64 bits."""
        numbers = to_integers(self.columns[name])
        self.keep_unread(name, numbers, "is not a whole number of 64 bits")
        return numbers

    def moments(self) -> pa.Array:
        """Read createdAt; a moment that no calendar has becomes null."""
        created = self.integers("createdAt")
        # The relayer writes 0 where it does not know the time.
        is_unknown = pc.equal(created, 0)
        self.flag(is_unknown, "createdAt is 0")
        is_before = pc.less(created, 0)
        is_after = pc.greater(created, MAX_MOMENT)
        is_wrong = pc.or_(is_before, is_after)
        problem = "is not between the years 1970 and 9999 as milliseconds"
        self.keep_texts(rows_where(is_wrong), "createdAt", problem)
        return pc.if_else(pc.or_(is_unknown, is_wrong), None, created)

    def amounts(self, name: str, token: Codes) -> pa.Array:
        """Read amounts in smallest units, and scale them."""
        numbers = to_smallest(self.columns[name])
        problem = f"is not a whole number of at most {WHOLE.precision} digits"
        self.keep_unread(name, numbers, problem)
        self.keep_texts(rows_where(pc.less(numbers, 0)), name, "is negative")
        return self.scaled(
            name,
            numbers,
            token,
            lambda row, problem: self.keep_text(row, name, problem),
        )

    def prices(self) -> pa.Array:
        """Read prices, which may have exponents."""
        texts = self.columns["price"]
        numbers = to_amounts(texts)
        for row in unread(texts, numbers):
            problem = f"does not fit {AMOUNT_TYPE}"
            if parse_decimal(texts[row].as_py()) is None:
                problem = "is not a decimal number"
            self.keep_text(row, "price", problem)
        return numbers

    def notionals(self, size: pa.Array, price: pa.Array) -> pa.Array:
        """Multiply at 256 bits, which hold all digits of a size and a price, then cut to those of amounts."""
        # The relayer cuts prices to 8 decimals: a price of 0 is one below 1e-8, so nothing follows from it.
        positive = pc.if_else(pc.greater(price, 0), price, None)
        exact = wide_product(size, positive)
        limit = pa.scalar(LIMIT, exact.type)
        is_beyond = pc.greater_equal(pc.abs(exact), limit)
        if pc.any(is_beyond).as_py():
            self.flag(is_beyond, f"size times price does not fit {AMOUNT_TYPE}")
            exact = pc.if_else(is_beyond, None, exact)
        return rescale(exact, AMOUNT_TYPE, truncate=True)

    def flag_other_token(self, base: Codes, quote: Codes, token_id: pa.Array) -> None:
        """Note rows whose `tokenId` is neither token of their market."""
        # Nobody has settled which of the two it is: the exchange's documentation shows a SELL of LRC-ETH with
        # tokenId 0 (ETH, received) and calls it the "trade tokenId"; recorded samples show the same row with 1
        # (LRC, sold). Blocks have both tokens of an order and no tokenId, so they cannot say what a relayer means
        # by it. They do say that a fill moves two tokens and that its fees are in these: a third one is odd.
        ids = self.listing.token_ids
        sent = token_id.fill_null(-1).to_numpy()
        is_known = (base >= 0) & (quote >= 0) & (sent >= 0)
        is_other = (sent != ids[base]) & (sent != ids[quote])
        self.flag(is_known & is_other, "tokenId is neither token of the market")

    def keep_tails(self) -> None:
        """Keep members beyond those that are known."""
        has_tail = self.columns["tail"].is_valid()
        self.flag(has_tail, "more members than are known")
        for row in rows_where(has_tail):
            text = self.columns["tail"][row].as_py()
            tail = parse_json(text, self.batch.where(row))
            # These members are named by their place, as nobody knows what they are.
            for place, member in enumerate(tail, len(MEMBERS)):
                self.verbatim[row][str(place)] = member

    def keep_no_trades(self) -> None:
        """Keep the text of rows that are not trades."""
        texts = self.columns["no_trade"]
        for row in rows_where(texts.is_valid()):
            text = texts[row].as_py()
            members = parse_json(text, self.batch.where(row))
            expected, got = fault_of(members) or ("", "")
            self.reasons[row].append(
                f"the row is not a trade: expected {expected}, got {got}"
            )
            self.verbatim[row]["row"] = text


def _floats(amounts: pa.Array) -> np.ndarray:
    # This returns a copy, because Arrow's own memory is not to be written to.
    floats = amounts.cast(pa.float64())
    return np.array(floats.fill_null(np.nan))
