"""Trade rows: text columns to typed, scaled Arrow columns, with a note on every irregular row."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.scaling import WHOLE, reduce_scale, scale_all, scale_what_fits
from loopring_lab.bounded import MAX_INT64, parse_decimal, parse_integer, parse_json, shown
from loopring_lab.tables.identity import SIDES
from loopring_lab.tables.listings import MAX_MOMENT, MarketLookup
from loopring_lab.tables.wire import CORE, MEMBERS, Batch, cast_decimals, cast_digits, fault_of

FILL_TYPES = ("amm", "dex")
ROLES = ("maker", "taker")
FEE_TOKENS = ("received", "base", "quote", "row")

Codes = np.ndarray
"""Positions in a list of names, -1 where unknown."""
SHORT, CUT = pa.decimal128(38, 0), pa.decimal128(27, 8)
"""Smallest units, and prices as the relayer cuts them, where all are that short."""
_TYPE = AMOUNT.pyarrow_dtype
_BEYOND = Decimal(10) ** (_TYPE.precision - _TYPE.scale)
_LEAST = Decimal(1).scaleb(-_TYPE.scale)
_EXACT = Context(prec=2_000)


def convert(batch: Batch, fill_types: Sequence[int], listing: MarketLookup, fee_token: str) -> pa.Table:
    """Convert the rows of a batch to types and units; `fill_types` has a code for each page."""
    each = np.repeat(np.asarray(fill_types, np.int8), batch.counts)
    return _Converter(batch, listing).table(each[::-1] if batch.backwards else each, fee_token)


def sort_keys(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the sort keys of typed rows: milliseconds and trade id, unknown ones last."""
    names, last = ("created_at", "trade_id"), pa.scalar(MAX_INT64)
    moments, ids = (pc.fill_null(table[name], last).to_numpy() for name in names)
    return moments, ids


def note_other_accounts(table: pa.Table, account_id: int) -> pa.Table:
    """Note on each row of another account that it is not the one asked for."""
    places = np.flatnonzero(pc.not_equal(table["account_id"], account_id).fill_null(False))
    if not len(places):
        return table
    texts = table["extra"].to_pylist()
    for place in places.tolist():
        members = json.loads(texts[place] or "{}")
        reasons = [f"the row is not of account {account_id}", *filter(None, [members.pop("anomaly", None)])]
        texts[place] = note(reasons, members)
    return table.set_column(table.schema.get_field_index("extra"), "extra", pa.array(texts, pa.string()))


def as_amount(number: Decimal | None) -> Decimal | None:
    """Return a number with the decimals of amounts, or None if these cannot hold it."""
    exact = None if number is None else number.quantize(_LEAST, context=_EXACT)
    return exact if exact is not None and exact == number and exact.copy_abs() < _BEYOND else None


def fee_rates(fee: pa.Array, fee_code: Codes, *legs: tuple[Codes, pa.Array]) -> np.ndarray:
    """Return fees in basis points of the leg, a token and an amount, that they were charged on."""
    (base, size), (quote, notional) = legs
    in_quote = np.where(fee_code == quote, _floats(notional), np.nan)
    charged = np.where(fee_code == base, _floats(size), in_quote)
    return _ratio(_floats(fee), charged) * 1e4


def note(reasons: list[str], members: dict[str, str]) -> str | None:
    """Write what is irregular about a row, and the members that no column can hold, as JSON text."""
    found = {"anomaly": "; ".join(sorted(reasons)), **members}
    return json.dumps(found, ensure_ascii=False, sort_keys=True) if reasons else None


class Conversion:
    """A conversion to rows that collects what is irregular about them."""

    def __init__(self, rows: int, listing: MarketLookup) -> None:
        self.rows, self.listing = rows, listing
        self.flags: list[tuple[list[str], Codes]] = []
        self.reasons: dict[int, list[str]] = defaultdict(list)
        self.verbatim: dict[int, dict[str, str]] = defaultdict(dict)

    def flag(self, rows: pa.Array | np.ndarray, reason: str) -> None:
        """Note a reason why rows are irregular."""
        mask = rows if isinstance(rows, np.ndarray) else rows.fill_null(False).to_numpy(zero_copy_only=False)
        if mask.any():
            self.flags.append(([reason], np.where(mask, 0, -1)))

    def scaled(self, name: str, numbers: pa.Array, token: Codes, keep: Callable[[int, str | None], None]) -> pa.Array:
        """Scale amounts to units; those of unknown tokens, or that do not fit, become null and are kept."""
        decimals = self.listing.decimals[token]
        for row in np.flatnonzero((token < 0) & ~np.asarray(numbers.is_null())).tolist():
            keep(row, None)
        scaled = scale_all(numbers, decimals, _TYPE)
        if scaled is not None:
            return scaled
        found, beyond = scale_what_fits(numbers.cast(WHOLE), decimals, _TYPE, name)
        for row in beyond.tolist():
            symbol = self.listing.tokens[token[row]]
            keep(row, f"with the {decimals[row]} decimals of {symbol} does not fit {_TYPE}")
        return found

    def notes(self) -> pa.Array:
        """Describe each irregular row as JSON text; null for a regular one."""
        special = sorted(self.reasons.keys() | self.verbatim.keys())
        if not self.flags and not special:
            return pa.nulls(self.rows, pa.string())
        group = np.zeros(self.rows, np.int64)  # rows of the same flags share a text
        for reasons, codes in self.flags:
            group = np.unique(group * (len(reasons) + 1) + codes, return_inverse=True)[1]
        _, samples, inverse = np.unique(group, return_index=True, return_inverse=True)
        texts = np.array([note(self.flags_of(row), {}) for row in samples.tolist()], object)[inverse]
        for row in special:
            texts[row] = note(self.flags_of(row) + self.reasons.get(row, []), self.verbatim.get(row, {}))
        return pa.array(texts, pa.string())

    def flags_of(self, row: int) -> list[str]:
        return [reasons[codes[row]] for reasons, codes in self.flags if codes[row] >= 0]


class _Converter(Conversion):
    """Converts the columns of one batch."""

    def __init__(self, batch: Batch, listing: MarketLookup) -> None:
        super().__init__(batch.columns.num_rows, listing)
        self.batch, self.columns = batch, batch.columns

    def table(self, fill_type: Codes, fee_token: str) -> pa.Table:
        is_trade = self.columns["no_trade"].is_null()
        for name in CORE:
            self.flag(pc.and_(is_trade, self.columns[name].is_null()), f"{name} is missing")
        market, base, quote, pool = self.markets()
        side = self.codes("side", SIDES, ignore_case=True)
        token_id = self.integers("tokenId")
        fee_code = self.fee_tokens(fee_token, side, base, quote, token_id)
        size = self.amounts("size", base)
        fee = self.amounts("feeAmount", fee_code)
        price = self.prices()
        notional = self.notionals(size, price)
        price = price.cast(_TYPE)
        self.flag(pool & (fill_type == 1), "a pool's market among order-book fills")
        self.flag_wrong_token(side, base, quote, token_id)
        role = self.codes("type", ROLES)
        self.keep_tails()
        self.keep_no_trades()
        return pa.table(
            {
                "created_at": self.moments(),
                "trade_id": self.integers("id"),
                "account_id": self.integers("accountId"),
                "market": market,
                "base": base,
                "quote": quote,
                "side": side,
                "fill_type": np.where((fill_type < 0) & pool, np.int8(0), fill_type),
                "role": role,
                "size": size,
                "price": price,
                "notional": notional,
                "fee": fee,
                "fee_token": fee_code,
                "fee_bps": fee_rates(fee, fee_code, (base, size), (quote, notional)),
                "order_hash": self.columns["orderHash"],
                "block_id": self.integers("blockId"),
                "index_in_block": self.integers("indexInBlock"),
                "token_id": token_id,
                "storage_id": self.integers("storageId"),
                "extra": self.notes(),
            }
        )

    def keep_text(self, row: int, name: str, reason: str | None = None) -> None:
        """Keep the text of a member that its column cannot hold."""
        self.verbatim[row][name] = text = self.columns[name][row].as_py()
        if reason:
            self.reasons[row].append(f"{name} {shown(text, 60)} {reason}")

    def markets(self) -> tuple[Codes, Codes, Codes, np.ndarray]:
        """Look up markets with their tokens, and whether the name is a pool's."""
        encoded = self.columns["market"].dictionary_encode()
        pairs = [self.listing.pair(raw) for raw in [*encoded.dictionary.to_pylist(), None]]
        codes = encoded.indices.fill_null(len(pairs) - 1).to_numpy()
        reasons = [pair.reason for pair in pairs]
        if any(reasons):
            unknown = np.array([reason is not None for reason in reasons])
            self.flags.append(([reason or "" for reason in reasons], np.where(unknown[codes], codes, -1)))
        *columns, pools, _ = zip(*pairs, strict=True)
        market, base, quote = (np.array(column, np.int32)[codes] for column in columns)
        return market, base, quote, np.array(pools)[codes]

    def codes(self, name: str, words: tuple[str, ...], *, ignore_case: bool = False) -> Codes:
        encoded = self.columns[name].dictionary_encode()
        found = [word.upper() if ignore_case else word for word in encoded.dictionary.to_pylist()]
        codes = np.array([words.index(word) if word in words else -2 for word in found] + [-1], np.int8)
        codes = codes[encoded.indices.fill_null(len(found)).to_numpy()]
        for row in np.flatnonzero(codes == -2).tolist():
            self.keep_text(row, name, f"is not {' or '.join(words)}")
        return np.asarray(np.maximum(codes, -1))

    def integers(self, name: str) -> pa.Array:
        column = self.columns[name]
        numbers = cast_digits(column, pa.int64())
        if numbers is not None:
            return numbers
        each = [self.integer(name, row, text) for row, text in enumerate(column.to_pylist())]
        return pa.array(each, pa.int64())

    def integer(self, name: str, row: int, text: str | None) -> int | None:
        number = parse_integer(text)
        if text is not None and number is None:
            self.keep_text(row, name, "is not a whole number of 64 bits")
        return number

    def moments(self) -> pa.Array:
        """Read createdAt; a moment that no calendar has becomes null."""
        created = self.integers("createdAt")
        self.flag(pc.equal(created, 0), "createdAt is 0")
        known = pc.if_else(pc.equal(created, 0), None, created)
        first, last = pc.min_max(created).as_py().values()
        if first is None or (first >= 0 and last <= MAX_MOMENT):
            return known
        wrong = pc.or_(pc.less(created, 0), pc.greater(created, MAX_MOMENT)).fill_null(False)
        for row in np.flatnonzero(wrong).tolist():
            self.keep_text(row, "createdAt", "is not between the years 1970 and 9999 as milliseconds")
        return pc.if_else(wrong, None, known)

    def amounts(self, name: str, token: Codes) -> pa.Array:
        numbers = self.smallest_units(name)
        return self.scaled(name, numbers, token, lambda row, reason: self.keep_text(row, name, reason))

    def smallest_units(self, name: str) -> pa.Array:
        column = self.columns[name]
        numbers = cast_digits(column, SHORT, WHOLE)
        if numbers is not None:
            return numbers
        each = [self.digits(name, row, text) for row, text in enumerate(column.to_pylist())]
        return pa.array(each, pa.string()).cast(WHOLE)

    def digits(self, name: str, row: int, text: str | None) -> str | None:
        """Write a whole number, however it was sent, as its digits."""
        if text is None:
            return None
        number = parse_integer(text, 10**WHOLE.precision - 1)
        if number is None:
            self.keep_text(row, name, f"is not a whole number of at most {WHOLE.precision} digits")
            return None
        if number < 0:
            self.keep_text(row, name, "is negative")
        return str(number)

    def prices(self) -> pa.Array:
        """Read prices, as `CUT` where all have at most 8 decimals."""
        column = self.columns["price"]
        numbers = cast_decimals(column, CUT, _TYPE)
        if numbers is not None:
            return numbers
        each = [self.price(row, text) for row, text in enumerate(column.to_pylist())]
        return pa.array(each, _TYPE)

    def price(self, row: int, text: str | None) -> Decimal | None:
        number = parse_decimal(text)
        if text is not None and number is None:
            self.keep_text(row, "price", "is not a decimal number")
        exact = as_amount(number)
        if number is not None and exact is None:
            self.keep_text(row, "price", f"does not fit {_TYPE}")
        return exact

    def notionals(self, size: pa.Array, price: pa.Array) -> pa.Array:
        """Multiply at 256 bits, which hold all digits of a size and a price, then cut to those of amounts."""
        positive = pc.if_else(pc.greater(price, 0), price, None)
        exact = pc.multiply(size, positive.cast(pa.decimal256(price.type.precision, price.type.scale)))
        if any(end is not None and abs(end) >= _BEYOND for end in pc.min_max(exact).as_py().values()):
            beyond = pc.greater_equal(pc.abs(exact), pa.scalar(_BEYOND, exact.type)).fill_null(False)
            self.flag(beyond, f"size times price does not fit {_TYPE}")
            exact = pc.if_else(beyond, None, exact)
        return reduce_scale(exact, _TYPE, truncate=True)

    def fee_tokens(self, rule: str, side: Codes, base: Codes, quote: Codes, token_id: pa.Array) -> Codes:
        if rule == "base":
            return base
        if rule == "quote":
            return quote
        if rule == "received":
            return np.where(side == 0, base, np.where(side == 1, quote, -1)).astype(np.int32)
        encoded = token_id.dictionary_encode()
        codes = [self.listing.code(number) for number in encoded.dictionary.to_pylist()]
        return np.asarray(np.array([*codes, -1], np.int32)[encoded.indices.fill_null(len(codes)).to_numpy()])

    def flag_wrong_token(self, side: Codes, base: Codes, quote: Codes, token_id: pa.Array) -> None:
        sold = np.where(side == 0, quote, np.where(side == 1, base, -1))
        expected = self.listing.token_ids[sold]
        sent = token_id.fill_null(-1).to_numpy()
        self.flag((expected >= 0) & (sent >= 0) & (sent != expected), "tokenId is not the token sold")

    def keep_tails(self) -> None:
        has_tail = self.columns["tail"].is_valid().to_numpy(zero_copy_only=False)
        self.flag(has_tail, "more members than are known")
        for row in np.flatnonzero(has_tail).tolist():
            tail = parse_json(self.columns["tail"][row].as_py(), self.batch.where(row))
            self.verbatim[row] |= {str(place): member for place, member in enumerate(tail, len(MEMBERS))}

    def keep_no_trades(self) -> None:
        for row in np.flatnonzero(self.columns["no_trade"].is_valid()).tolist():
            text = self.columns["no_trade"][row].as_py()
            expected, got = fault_of(parse_json(text, self.batch.where(row))) or ("", "")
            self.reasons[row].append(f"the row is not a trade: expected {expected}, got {got}")
            self.verbatim[row]["row"] = text


def _floats(amounts: pa.Array) -> np.ndarray:
    return np.asarray(amounts.cast(pa.float64()).fill_null(np.nan))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0))
