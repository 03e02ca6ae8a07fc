"""Pages of trades: JSON bytes to Arrow text columns, one per member of a row.

Regular pages (rows of one length, every member plain text) need no JSON parser: the places of their quotes
are the borders of members. Any other page takes a tolerant path through the standard library. Both give the
same columns for the same rows. A row that is not a trade is kept as its text; an answer that is not a page is
refused, and so are pages without a trade.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import cores
from loopring_lab.bounded import (
    MAX_DOCUMENT,
    MAX_PAGE,
    parse_integer,
    parse_json,
    printable,
    to_json,
    whole_or_text,
)
from loopring_lab.errors import UnexpectedAnswer

CORE = ("createdAt", "id", "side", "size", "price", "market", "feeAmount")
MEMBERS = (*CORE, "blockId", "indexInBlock", "accountId", "tokenId", "storageId", "orderHash", "type")
TEN_MEMBERS = {"account": (*CORE, "accountId", "tokenId", "storageId"), "block": MEMBERS[:10]}
NFT_MEMBERS = 19
GROUP_BYTES, SHARED_BYTES, LEAST_BYTES = 8 << 20, 2 << 20, 4 << 10
CUT_AT_ONCE = 1 << 18  # bytes, or members, that stay in a processor's cache
# pyarrow reads the digits of a decimal modulo 2**256, and takes powers of ten beyond 10**76 from outside of
# its table; of 128 bits, modulo 2**128 and beyond 10**38. So it is given only text of which every step stays
# below 10**76, less than 2**255, or below 10**38: as many digits of a whole number; or 30 characters with an
# exponent from -9 to 0, at a scale of 18 in 256 bits and of 8 in 128.
_LONGEST_INTEGER, _LONGEST_DECIMAL, _EXPONENT = 76, 30, len("E-4")

Page = bytes | str | Mapping[str, Any]
AnyPage = TypeVar("AnyPage", bound=Page)
_ROWS = secrets.token_hex(8)  # stands for the rows of a page, and cannot be known to whoever sent it
_MARK = f'"{_ROWS}"'.encode()
_LONGEST_OUTLINE, _FIRST_MEMBERS = 1 << 10, 1 << 6
_COLUMNS = pa.schema([(name, pa.string()) for name in (*MEMBERS, "tail", "no_trade")])
_HINT = "Check that base_url or the saved file is the trades endpoint of a relayer (GET /api/v3/user/trades)."
_JSON_HINT = "Ask for the page again; if it was saved, save it again. Check base_url too."
_NFT_HINT = (
    "Trades of NFTs have a layout of their own, which is not supported: leave that page out, or read another account."
)


class Batch(NamedTuple):
    """The rows of some pages as text columns, one per name of `MEMBERS`, ``tail`` and ``no_trade``.

    ``tail`` is the JSON text of further members, ``no_trade`` that of a row that is not a trade. `counts` and
    `totals` are the number of rows of each page and its ``totalNum`` as sent; `places` name the pages in
    errors; `backwards` tells that the last row of the last page comes first.
    """

    columns: pa.RecordBatch
    counts: list[int]
    totals: list[Any]
    places: Sequence[str]
    backwards: bool = False

    def where(self, position: int) -> str:
        """Name the page and the row at a position of the columns."""
        position, page = len(self.columns) - 1 - position if self.backwards else position, 0
        while position >= self.counts[page]:
            position -= self.counts[page]
            page += 1
        return f"{self.places[page]}.trades[{position}]"


def group(pages: Iterable[AnyPage], most: int = GROUP_BYTES) -> Iterator[list[AnyPage]]:
    """Group pages by a few megabytes; if one fails, first those before it."""
    members: list[AnyPage] = []
    size = 0
    try:
        for page in pages:
            members.append(page)
            size += _size(page)
            if size >= most:
                yield members
                members, size = [], 0
    except UnexpectedAnswer:
        yield members
        raise
    if members:
        yield members


def shared(pages: Sequence[AnyPage]) -> list[list[AnyPage]]:
    """Group pages so that each of the threads of `cores.share` has as much to read."""
    size, threads = sum(map(_size, pages)), cores.threads()
    rounds = max(1, -(-size // (threads * GROUP_BYTES)))
    return [*group(pages, max(SHARED_BYTES, -(-size // (threads * rounds))))]


def read(pages: Sequence[Page], places: Sequence[str], *, ten_members: str = "account") -> Batch:
    """Read pages into text columns, oldest row first where that takes no sorting."""
    regular = _read_regular(pages, places, ten_members, oldest_first=True)
    return regular or read_tolerantly(pages, places, ten_members)


def read_each(
    pages: Sequence[bytes], places: Sequence[str], *, ten_members: str = "account", size: int = MAX_PAGE
) -> list[Batch | UnexpectedAnswer]:
    """Read each page into a batch of its own, or into its error; regular pages are parsed together."""
    together = _read_regular(pages, places, ten_members, size=size)
    if together:
        return list(_split(together))
    results: list[Batch | UnexpectedAnswer] = []
    for page, place in zip(pages, places, strict=True):
        try:
            regular = _read_regular([page], [place], ten_members, size=size)
            results.append(regular or read_tolerantly([page], [place], ten_members, size=size))
        except UnexpectedAnswer as error:
            results.append(error)
    return results


def read_tolerantly(
    pages: Sequence[Page], places: Sequence[str], ten_members: str, *, size: int = MAX_DOCUMENT
) -> Batch:
    """Read pages of any layout through the standard library, naming the page at fault."""
    columns: dict[str, list[str | None]] = {name: [] for name in _COLUMNS.names}
    counts, totals = [], []
    for page, place in zip(pages, places, strict=True):
        answer = parse(page, place, size)
        trades = page_rows(answer, place)
        counts.append(len(trades))
        totals.append(answer.get("totalNum"))
        for row in trades:
            _append(columns, row, ten_members)
    return Batch(pa.RecordBatch.from_pydict(columns, schema=_COLUMNS), counts, totals, places)


def concat(batches: Sequence[Batch]) -> Batch:
    """Join batches that are in the order of their pages."""
    return Batch(
        pa.concat_batches([batch.columns for batch in batches] or [_complete({}, 0)]),
        [count for batch in batches for count in batch.counts],
        [total for batch in batches for total in batch.totals],
        [place for batch in batches for place in batch.places],
    )


def fault_of(row: Any) -> tuple[str, str] | None:
    """Say what was expected in place of a row that is not a trade, and what it is; None for a trade."""
    if not isinstance(row, list):
        return "a list of members", short(row)
    if len(row) == NFT_MEMBERS:
        return "a token trade of 7 or more members", f"an NFT trade of {NFT_MEMBERS} members"
    return ("7 or more members", f"{len(row)}: {short(row)}") if len(row) < len(CORE) else None


def refuse_without_trades(batches: Iterable[Batch]) -> None:
    """Refuse pages that have rows, but no trade among them."""
    filled = [batch for batch in batches if len(batch.columns)]
    if filled and not any(batch.columns["no_trade"].null_count for batch in filled):
        expected, got = fault_of(parse_json(filled[0].columns["no_trade"][0].as_py(), "row")) or ("", "")
        hint = _NFT_HINT if "NFT" in got else _HINT
        raise UnexpectedAnswer(filled[0].where(0), expected=expected, got=got, hint=hint)


def cut_rows(pages: Sequence[bytes]) -> pa.Array | None:
    """Cut pages into the JSON text of their rows, without white space; None if any member is not plain."""
    parts = [_split_page(page, MAX_DOCUMENT) for page in pages]
    text = b"],[".join(part[0] for part in parts if part and part[0])
    found = _find_members(text) if text and all(parts) else None
    if found is None:
        return None
    quotes, last = found
    borders = np.zeros(2 * len(last) + 2, np.int32)  # of rows, and of the commas between them
    borders[1:-1:2], borders[2::2] = quotes[2 * last + 1] + 3, quotes[2 * last + 2]
    borders[-1] = len(text) + 2
    texts = pa.StringArray.from_buffers(len(borders) - 1, pa.py_buffer(borders), pa.py_buffer(b"[%b]" % text))
    return texts.take(pa.array(np.arange(0, len(texts), 2, dtype=np.int32)))


def read_total(batch: Batch) -> int:
    """Return the number of rows that a relayer counts, from a batch of one page."""
    [sent], [place] = batch.totals, batch.places
    total = parse_integer(str(sent))
    if total is None or total < 0:
        hint = "Check that base_url is a relayer."
        raise UnexpectedAnswer(f"{place}.totalNum", expected="a number of rows", got=short(sent), hint=hint)
    return total


def cast_digits(column: pa.Array, *types: pa.DataType) -> pa.Array | None:
    """Cast text to whole numbers of the first type that holds all; None if a member is more than digits."""
    if not pc.all(pc.ascii_is_decimal(column), min_count=0).as_py():
        return None
    longest = _longest(column)
    return _cast(column, [to for to in types if longest <= getattr(to, "precision", _LONGEST_INTEGER)])


def cast_decimals(column: pa.Array, *types: pa.DataType) -> pa.Array | None:
    """Cast text to decimals of the first type that holds all; None if a member is not plain and short."""
    is_plain = _longest(column) <= _LONGEST_DECIMAL and _has_small_exponents(column)
    return _cast(column, types) if is_plain else None


def page_rows(answer: Any, where: str) -> list[Any]:
    """Take the rows out of a parsed page, or raise an `UnexpectedAnswer` that says what is wrong with it."""
    if not isinstance(answer, Mapping) or "trades" not in answer:
        expected = 'an object with "totalNum" and "trades"'
        raise UnexpectedAnswer(where, expected=expected, got=short(answer), hint=_HINT)
    trades = answer["trades"]
    if not isinstance(trades, list):
        raise UnexpectedAnswer(f"{where}.trades", expected="a list of rows", got=short(trades), hint=_HINT)
    return trades


def parse(page: Page | list[Any], where: str, size: int = MAX_DOCUMENT) -> Any:
    """Parse JSON text, keeping numbers as the text they were sent as; parsed answers are treated alike."""
    if isinstance(page, (bytes, str)):
        return parse_json(page, where, size=size, hint=_JSON_HINT)
    try:
        text = json.dumps(page)
    except (TypeError, ValueError, RecursionError) as error:
        got, hint = str(error)[:80], "Give the answer as it was received, in bytes."
    else:
        return parse_json(text, where, hint=_JSON_HINT)
    raise UnexpectedAnswer(where, expected="an answer of JSON values", got=got, hint=hint)


def short(value: Any) -> str:
    """Show a value from the wire in an error message, cut to 80 characters."""
    return "nothing (null)" if value is None else printable(f"{type(value).__name__.lower()} {to_json(value)}")


def _read_regular(
    pages: Sequence[Page],
    places: Sequence[str],
    ten_members: str,
    *,
    size: int = MAX_DOCUMENT,
    oldest_first: bool = False,
) -> Batch | None:
    """Read pages whose rows are plain text of one length, or return None."""
    parts = [part for part in (_split_page(page, size) for page in pages) if part is not None]
    if len(parts) != len(pages):
        return None
    totals, text = [total for _, total in parts], b"],[".join(rows for rows, _ in parts if rows)
    if not text:
        return Batch(_complete({}, 0), [0] * len(pages), totals, places)
    found = _find_members(text)
    if found is None:
        return None
    quotes, last = found
    rows, length = len(last) + 1, len(quotes) // (2 * len(last) + 2)
    is_regular = len(quotes) == 2 * rows * length and (last == np.arange(1, rows) * length - 1).all()
    if not is_regular or not len(CORE) <= length <= len(MEMBERS):
        return None
    ends = quotes[2 * length - 1 :: 2 * length]
    page_ends = np.cumsum([len(inner) + len(b"],[") if inner else 0 for inner, _ in parts])
    counts = np.diff(np.searchsorted(ends, page_ends), prepend=0).tolist()
    quotes[::2] += 1  # so that they are the borders of members, and of what is between these
    texts = pa.StringArray.from_buffers(len(quotes) - 1, pa.py_buffer(quotes), pa.py_buffer(text))
    starts = np.arange(0, len(texts), 2 * length, dtype=np.int32)
    moment, last_moment = texts[0].as_py(), texts[int(starts[-1])].as_py()
    backwards = oldest_first and (len(moment), moment) > (len(last_moment), last_moment)
    starts = starts[::-1] if backwards else starts
    columns = {
        name: texts.take(pa.array(starts + 2 * place)) for place, name in enumerate(_layout(length, ten_members))
    }
    return Batch(_complete(columns, rows), counts, totals, places, backwards)


def _split_page(page: Page, size: int) -> tuple[bytes, Any] | None:
    """Return the rows of a page, from the first quote to the last, and its ``totalNum``; None if unusual."""
    if not isinstance(page, bytes) or len(page) > size:
        return None
    begin, end = page.find(b'[["'), page.rfind(b'"]]')
    if 0 <= begin < end:
        rows, outline = page[begin + 2 : end + 1], b"%b%b%b" % (page[:begin], _MARK, page[end + 3 :])
    else:
        rows, outline = b"", page.replace(b"[]", _MARK, 1)
    if b'", "' in rows[:_FIRST_MEMBERS]:
        rows = rows.replace(b'", "', b'","').replace(b"], [", b"],[")
    total = _total_of(outline) if len(outline) <= _LONGEST_OUTLINE else None
    return None if total is None else (rows, total[0])


@lru_cache(1024)
def _total_of(outline: bytes) -> tuple[Any] | None:
    """Return the ``totalNum`` of a page with `_ROWS` in place of its rows; None if it is no such page."""
    try:
        answer = parse_json(outline, "page", number=whole_or_text)
    except UnexpectedAnswer:
        return None
    is_page = isinstance(answer, Mapping) and answer.get("trades") == _ROWS
    return (answer.get("totalNum"),) if is_page else None


def _find_members(text: bytes) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the places of quotes, and which members end a row; None if any is not plain ASCII.

    Between two plain members is only ``,`` or ``],[``, and these have no quotes, commas and backslashes.
    """
    letters = np.frombuffer(text, np.uint8)
    if letters.min() < ord(" ") or letters.max() > ord("~") or b"\\" in text:
        return None
    commas, parts, last = 0, [], [np.empty(0, np.int64)]
    for start in range(0, len(letters), CUT_AT_ONCE):
        part = letters[start : start + CUT_AT_ONCE]
        commas += int(np.count_nonzero(part == ord(",")))
        parts.append((np.flatnonzero(part == ord('"')) + start).astype(np.int32))
    quotes = np.concatenate(parts)
    if len(quotes) != 2 * commas + 2:
        return None
    for start in range(0, commas, CUT_AT_ONCE):
        closing, opening = (quotes[place:-1:2][start : start + CUT_AT_ONCE] for place in (1, 2))
        gaps = opening - closing
        ends = np.flatnonzero(gaps == len(b'"],["') - 1)
        is_plain = (
            np.count_nonzero(gaps == len(b'","') - 1) + len(ends) == len(gaps)
            and (letters[closing + (gaps >> 1)] == ord(",")).all()
            and (letters[closing[ends] + 1] == ord("]")).all()
            and (letters[opening[ends] - 1] == ord("[")).all()
        )
        if not is_plain:
            return None
        last.append(start + ends)
    return quotes, np.concatenate(last)


def _cast(column: pa.Array, types: Iterable[pa.DataType]) -> pa.Array | None:
    for to in types:
        with suppress(pa.ArrowInvalid):
            return column.cast(to)
    return None


def _longest(column: pa.Array) -> int:
    return pc.max(pc.binary_length(column)).as_py() or 0


def _has_small_exponents(column: pa.Array) -> bool:
    """Tell whether every exponent is a digit after a minus sign, without looking at each row."""
    _, borders, text = column.buffers()
    if text is None:
        return True
    ends = np.frombuffer(borders, np.int32)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(text, np.uint8)[: ends[-1]]
    places = np.flatnonzero((letters | 0x20) == ord("e"))
    places = places[places >= ends[0]]
    lengths = ends[np.searchsorted(ends, places, "right")] - places
    is_negative = letters.take(places + 1, mode="clip") == ord("-")
    return bool((lengths == _EXPONENT).all() and is_negative.all())


def _size(page: Page) -> int:
    return max(len(page), LEAST_BYTES) if isinstance(page, (bytes, str)) else GROUP_BYTES // 256


def _split(batch: Batch) -> Iterator[Batch]:
    start = 0
    for count, total, place in zip(batch.counts, batch.totals, batch.places, strict=True):
        yield Batch(batch.columns.slice(start, count), [count], [total], [place])
        start += count


def _append(columns: dict[str, list[str | None]], row: Any, ten_members: str) -> None:
    members: dict[str, str | None]
    if fault_of(row):
        members = {"no_trade": to_json(row)}
    else:
        members = dict(zip(_layout(len(row), ten_members), map(_text, row), strict=False))
        members["tail"] = to_json(row[len(MEMBERS) :]) if len(row) > len(MEMBERS) else None
    for name, column in columns.items():
        column.append(members.get(name))


def _layout(length: int, ten_members: str) -> Sequence[str]:
    return TEN_MEMBERS[ten_members] if length == 10 else MEMBERS[:length]


def _complete(columns: Mapping[str, pa.Array], length: int) -> pa.RecordBatch:
    nothing = pa.nulls(length, pa.string())
    return pa.RecordBatch.from_arrays([columns.get(name, nothing) for name in _COLUMNS.names], schema=_COLUMNS)


def _text(member: Any) -> str | None:
    return member if member is None or isinstance(member, str) else to_json(member)
