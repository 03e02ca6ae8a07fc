"""Trade rows: text columns to typed, scaled Arrow columns, and a note on every odd row."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.scaling import WHOLE, parse_decimal, range_of, reduce_scale, scale
from loopring_lab.errors import AmountError, UnexpectedAnswer
from loopring_lab.tables.identity import MAX_INT64, SIDES
from loopring_lab.tables.listings import MarketLookup
from loopring_lab.tables.wire import CORE, MEMBERS, Batch

FILL_TYPES = ("amm", "dex")
ROLES = ("maker", "taker")
FEE_TOKENS = ("received", "base", "quote", "row")

Codes = np.ndarray
_TYPE = AMOUNT.pyarrow_dtype
_BEYOND = Decimal(10) ** (_TYPE.precision - _TYPE.scale)
_INTEGERS = {"createdAt": "whole milliseconds", "id": "a whole number"}


def typed(batch: Batch, fill_types: Sequence[int], listing: MarketLookup, fee_token: str) -> pa.Table:
    """Type and scale the rows of a batch."""
    each = np.repeat(np.asarray(fill_types, np.int8), batch.counts)
    return _Typing(batch, listing).table(each[::-1] if batch.reversed else each, fee_token)


def sort_keys(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the sort keys of typed rows: milliseconds and id, unknown ones last."""
    moment, number = (
        pc.fill_null(table[name], pa.scalar(MAX_INT64)).to_numpy() for name in ("created_at", "trade_id")
    )
    return moment, number


class _Typing:
    """One batch on its way from text to types, collecting what is odd about its rows."""

    def __init__(self, batch: Batch, listing: MarketLookup) -> None:
        self.batch, self.listing = batch, listing
        self.columns = batch.columns
        self.rows = batch.columns.num_rows
        self.marks: list[tuple[str, np.ndarray]] = []
        self.reasons: dict[int, list[str]] = defaultdict(list)
        self.verbatim: dict[int, dict[str, str]] = defaultdict(dict)

    def table(self, fill_type: Codes, fee_token: str) -> pa.Table:
        for name in CORE:
            self.mark(self.columns[name].is_null(), f"{name} is missing")
        market, base, quote, pool = self.markets()
        side = self.coded("side", SIDES, fold=True)
        token_id = self.integers("tokenId")
        fee_code = self.fee_codes(fee_token, side, base, quote, token_id)
        size = self.scaled("size", base)
        fee = self.scaled("feeAmount", fee_code)
        price = self.price()
        notional = self.notional(size, price)
        gross = np.where(
            fee_code == base, _floats(size), np.where(fee_code == quote, _floats(notional), np.nan)
        )
        self.mark(pool & (fill_type == 1), "a pool's market among order-book fills")
        self.check_sold(side, base, quote, token_id)
        created = self.integers("createdAt")
        self.mark(pc.equal(created, 0), "createdAt is 0")
        role = self.coded("type", ROLES)
        return pa.table(
            {
                "created_at": pc.if_else(pc.equal(created, 0), None, created),
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
                "fee_bps": _ratio(_floats(fee), gross) * 1e4,
                "order_hash": self.columns["orderHash"],
                "block_id": self.integers("blockId"),
                "index_in_block": self.integers("indexInBlock"),
                "token_id": token_id,
                "storage_id": self.integers("storageId"),
                "extra": self.extra(),
            }
        )

    def mark(self, rows: pa.Array | np.ndarray, reason: str) -> None:
        mask = rows if isinstance(rows, np.ndarray) else rows.fill_null(False).to_numpy(zero_copy_only=False)
        if mask.any():
            self.marks.append((reason, mask))

    def keep(self, row: int, name: str, reason: str) -> None:
        """Note a member that no column can hold, and hold on to its text."""
        self.verbatim[row][name] = self.columns[name][row].as_py()
        self.reasons[row].append(reason)

    def where(self, row: int, name: str) -> str:
        return f"{self.batch.where(row)}[{MEMBERS.index(name)}] ({name})"

    def markets(self) -> tuple[Codes, Codes, Codes, Codes]:
        coded = self.columns["market"].dictionary_encode()
        pairs = [self.listing.pair(raw) for raw in [*coded.dictionary.to_pylist(), None]]
        codes = coded.indices.fill_null(len(pairs) - 1).to_numpy()
        reasons = np.array([pair.reason or "" for pair in pairs], object)
        for reason in filter(None, dict.fromkeys(reasons)):
            self.mark((reasons == reason)[codes], reason)
        market, base, quote = (
            np.array(column, np.int32)[codes] for column in list(zip(*pairs, strict=True))[:3]
        )
        return market, base, quote, np.array([pair.pool for pair in pairs])[codes]

    def coded(self, name: str, words: tuple[str, ...], *, fold: bool = False) -> Codes:
        coded = self.columns[name].dictionary_encode()
        found = [word.upper() if fold else word for word in coded.dictionary.to_pylist()]
        codes = np.array([words.index(word) if word in words else -2 for word in found] + [-1], np.int8)
        codes = codes[coded.indices.fill_null(len(found)).to_numpy()]
        for row in np.flatnonzero(codes == -2):
            got = self.columns[name][row].as_py()
            self.keep(int(row), name, f"{name} {got!r} is not {' or '.join(words)}")
        known: Codes = np.maximum(codes, -1)
        return known

    def integers(self, name: str) -> pa.Array:
        column = self.columns[name]
        if pc.all(pc.ascii_is_decimal(column), min_count=0).as_py() and column.null_count < self.rows:
            try:
                return column.cast(pa.int64())
            except pa.ArrowInvalid:
                pass
        return pa.array(
            [self.integer(name, row, text) for row, text in enumerate(column.to_pylist())], pa.int64()
        )

    def integer(self, name: str, row: int, text: str | None) -> int | None:
        number = None if text is None else parse_decimal(text)
        if text is None or (number is not None and number == int(number) and abs(number) <= MAX_INT64):
            return None if number is None else int(number)
        if name in _INTEGERS:
            raise UnexpectedAnswer(
                self.where(row, name), expected=_INTEGERS[name], got=repr(text), hint=_HINT
            )
        self.keep(row, name, f"{name} {text!r} is not a whole number")
        return None

    def scaled(self, name: str, token: Codes) -> pa.Array:
        whole = self.whole(name)
        unknown = (token < 0) & ~np.asarray(whole.is_null())
        for row in np.flatnonzero(unknown):
            self.verbatim[int(row)][name] = self.columns[name][row].as_py()

        def label(row: int) -> str:
            return f"{self.listing.tokens[token[row]]} in {self.where(row, name)}"

        return scale(whole, self.listing.decimals[token], _TYPE, label)

    def whole(self, name: str) -> pa.Array:
        column = self.columns[name]
        if pc.all(pc.ascii_is_decimal(column), min_count=0).as_py():
            try:
                return column.cast(WHOLE)
            except pa.ArrowInvalid:
                pass
        return pa.array(
            [self.plain(name, row, text) for row, text in enumerate(column.to_pylist())], pa.string()
        ).cast(WHOLE)

    def plain(self, name: str, row: int, text: str | None) -> str | None:
        if text is None:
            return None
        number = parse_decimal(text)
        if number is None or (number.adjusted() < 76 and number != int(number)):
            expected = "a whole number of smallest units"
            raise UnexpectedAnswer(self.where(row, name), expected=expected, got=repr(text), hint=_HINT)
        if number.adjusted() > 75:
            raise AmountError(f"{self.where(row, name)}: {text[:20]}… has more than 76 digits. {_HINT}")
        if number < 0:
            self.reasons[row].append(f"{name} is negative")
            self.verbatim[row][name] = text
        return f"{number:.0f}"

    def price(self) -> pa.Array:
        column = self.columns["price"]
        try:
            return column.cast(_TYPE)
        except pa.ArrowInvalid:
            row = next(row for row, text in enumerate(column.to_pylist()) if not _fits(text))
        text, where = column[row].as_py(), self.where(row, "price")
        if parse_decimal(text) is None:
            raise UnexpectedAnswer(where, expected="a decimal number", got=repr(text), hint=_HINT)
        raise AmountError(f"{where}: price {text} does not fit {_TYPE}, and is not rounded. {_HINT}")

    def notional(self, size: pa.Array, price: pa.Array) -> pa.Array:
        exact = pc.multiply(size, price)
        ends = [end for end in pc.min_max(exact).as_py().values() if end is not None]
        if any(abs(end) >= _BEYOND for end in ends):
            row = next(
                row for row, value in enumerate(exact.to_pylist()) if value in ends and abs(value) >= _BEYOND
            )
            where = self.batch.where(row)
            raise AmountError(
                f"{where}: size times price, {exact[row]}, does not fit {range_of(_TYPE)}. {_HINT}"
            )
        return reduce_scale(exact, _TYPE, truncate=True)

    def fee_codes(self, rule: str, side: Codes, base: Codes, quote: Codes, token_id: pa.Array) -> Codes:
        if rule == "row":
            coded = token_id.dictionary_encode()
            codes = [self.listing.code(number) for number in coded.dictionary.to_pylist()]
            found: Codes = np.array([*codes, -1], np.int32)[coded.indices.fill_null(len(codes)).to_numpy()]
            return found
        if rule != "received":
            return base if rule == "base" else quote
        return np.select([side == 0, side == 1], [base, quote], -1).astype(np.int32)

    def check_sold(self, side: Codes, base: Codes, quote: Codes, token_id: pa.Array) -> None:
        sold = np.select([side == 0, side == 1], [quote, base], -1)
        expected = self.listing.token_ids[sold]
        sent = token_id.fill_null(-1).to_numpy()
        self.mark((expected >= 0) & (sent >= 0) & (sent != expected), "tokenId is not the token sold")

    def extra(self) -> pa.Array:
        self.tails()
        special = sorted(self.reasons.keys() | self.verbatim.keys())
        if not self.marks and not special:
            return pa.nulls(self.rows, pa.string())
        group = np.zeros(self.rows, np.int64)
        for _, mask in self.marks:
            group = np.unique(group * 2 + mask, return_inverse=True)[1]
        _, samples, inverse = np.unique(group, return_index=True, return_inverse=True)
        texts = np.array([_note(self.marked(row), {}) for row in samples.tolist()], object)[inverse]
        for row in special:
            texts[row] = _note(self.marked(row) + self.reasons.get(row, []), self.verbatim.get(row, {}))
        return pa.array(texts, pa.string())

    def marked(self, row: int) -> list[str]:
        return [reason for reason, mask in self.marks if mask[row]]

    def tails(self) -> None:
        has_tail = self.columns["tail"].is_valid().to_numpy(zero_copy_only=False)
        self.mark(has_tail, "more members than are known")
        for row in np.flatnonzero(has_tail).tolist():
            tail = json.loads(self.columns["tail"][row].as_py())
            self.verbatim[row] |= {str(place): member for place, member in enumerate(tail, len(MEMBERS))}


def _note(reasons: list[str], members: dict[str, str]) -> str | None:
    note = {"anomaly": "; ".join(sorted(reasons)), **members}
    return json.dumps(note, ensure_ascii=False, sort_keys=True) if reasons else None


def _fits(text: str | None) -> bool:
    try:
        pa.array([text], pa.string()).cast(_TYPE)
    except pa.ArrowInvalid:
        return False
    return True


def _floats(amounts: pa.Array) -> np.ndarray:
    """Read amounts as floats; below 2**128 smallest units straight from their words, which is much faster."""
    words = np.frombuffer(amounts.buffers()[1], "<u8").reshape(-1, 4)[amounts.offset :][: len(amounts)]
    if words[:, 2:].any():
        floats: np.ndarray = amounts.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return floats
    floats = (words[:, 1] * 2.0**64 + words[:, 0]) / 10.0**amounts.type.scale
    floats[amounts.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return floats


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0)
    return ratio


_HINT = "Nothing is guessed: check the source of the row, or leave its page out."
