"""Pages of trades: JSON bytes to Arrow text columns, one per member of a row.

Pages as relayers write them are read by Arrow's reader of CSV, many at once: all members of their rows are text
without an escape, so that a quote is a border of a member and nothing else. What stands between two quotes is
checked to be what JSON has there, and a page with anything else is parsed by Python's `json`. Both give the same
columns for the same rows. A row that is not a trade is kept as its text; an answer that is not a page is refused, and
so are pages without a trade.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from loopring_lab.amounts.scaling import combined
from loopring_lab.bounded import (
    MAX_DOCUMENT,
    MAX_PAGE,
    parse_integer,
    parse_json,
    printable,
    to_json,
)
from loopring_lab.errors import UnexpectedAnswer

# The contract of GET /user/trades: rows of 7 members until early 2022, of 13 in 2022, of 14 since March 2023.
CORE = ("createdAt", "id", "side", "size", "price", "market", "feeAmount")
MEMBERS = (
    *CORE,
    "blockId",
    "indexInBlock",
    "accountId",
    "tokenId",
    "storageId",
    "orderHash",
    # The relayer's documentation calls it so; it says "maker" or "taker".
    "type",
)
# One document shows ten members, which no recorded row has. Two readings of it fit; which one holds is the caller's
# argument `ten_members`.
TEN_MEMBERS = {
    "account": (*CORE, "accountId", "tokenId", "storageId"),
    "block": MEMBERS[:10],
}
# Of the layout that trades of NFTs have, by its documentation.
NFT_MEMBERS = 19

# Reading has a cost for each group, so groups hold some hundred pages of 10 KiB. As text columns and typed columns, a
# group takes about four times its bytes.
GROUP_BYTES = 6 << 20

Page = bytes | str | Mapping[str, Any] | list[Any]
AnyPage = TypeVar("AnyPage")
_NAMES = (*MEMBERS, "tail", "no_trade", "text")
_COLUMNS = pa.schema([(name, pa.string()) for name in _NAMES])
_HINT = "Check that base_url or the saved file is the trades endpoint of a relayer (GET /api/v3/user/trades)."
_JSON_HINT = (
    "Ask for the page again; if it was saved, save it again. Check base_url too."
)
_NFT_HINT = (
    "Trades of NFTs have a layout of their own, which is not supported: leave that page out, or read "
    "another account."
)

# A regular page, around its rows: without white space, or with that of Python's `json`. Whole numbers have at most 18
# digits.
_START = re.compile(
    rb'\{"totalNum":(?P<space> ?)(?P<total>0|[1-9][0-9]{0,17}),(?P=space)"trades":(?P=space)\[(?=\[")'
)
_END = b'"]]}'
# A row of ten has a layout of its own, which Python knows.
_WIDTHS = (7, 8, 9, 11, 12, 13, 14)
# Each row ends with a bracket, which becomes the end of a line.
_LINES = bytes.maketrans(b"]", b"\n")


class _Regular(NamedTuple):
    """A page that looks regular: how many members its first row has, and what is between them; all of its rows."""

    layout: tuple[int, bytes]
    rows: bytes
    total: str


class Batch(NamedTuple):
    """The rows of some pages as text columns, one per name of `MEMBERS`, ``tail``, ``no_trade`` and ``text``.

    ``tail`` is the JSON text of further members, ``no_trade`` that of a row that is not a trade, and ``text`` that of
    a row whose members alone do not give it: see `texts_of`. `counts` and `totals` are the number of rows of each
    page and its ``totalNum`` as sent; `places` name the pages in errors.
    """

    columns: pa.RecordBatch
    counts: list[int]
    totals: list[Any]
    places: Sequence[str]

    def size(self) -> int:
        """Bytes of the columns."""
        return int(self.columns.nbytes)

    def where(self, position: int) -> str:
        """Name the page and the row at a position of the columns."""
        page = 0
        while position >= self.counts[page]:
            position -= self.counts[page]
            page += 1
        return f"{self.places[page]}.trades[{position}]"


Reading = Batch | UnexpectedAnswer


def group(
    pages: Iterable[AnyPage],
    size_of: Callable[[AnyPage], int],
    most: int = GROUP_BYTES,
) -> Iterator[list[AnyPage]]:
    """Group pages by their sizes, in bytes or another unit; if one fails, first those before it."""
    members: list[AnyPage] = []
    size = 0
    try:
        for page in pages:
            members.append(page)
            size += size_of(page)
            if size >= most:
                yield members
                members = []
                size = 0
    except UnexpectedAnswer:
        yield members
        raise
    if members:
        yield members


def read(
    pages: Sequence[Page],
    places: Sequence[str],
    *,
    ten_members: str = "account",
) -> Batch:
    """Read pages into text columns, or raise the error of the first that is none."""
    batches = []
    for result in _read(pages, places, ten_members, MAX_DOCUMENT):
        if isinstance(result, UnexpectedAnswer):
            raise result
        batches.append(result)
    return batches[0] if len(batches) == 1 else concat(batches)


def read_each(
    pages: Sequence[bytes],
    places: Sequence[str],
    *,
    ten_members: str = "account",
    size: int = MAX_PAGE,
) -> list[Reading]:
    """Read each page into a batch of its own, or into its error; regular pages are parsed together."""
    results: list[Reading] = []
    for result in _read(pages, places, ten_members, size):
        if isinstance(result, Batch):
            results.extend(split(result))
        else:
            results.append(result)
    return results


def read_tolerantly(
    pages: Sequence[Page],
    places: Sequence[str],
    ten_members: str,
    size: int,
) -> Batch:
    """Read pages of any layout through the standard library, naming the page at fault."""
    columns: dict[str, list[str | None]] = {name: [] for name in _NAMES}
    counts = []
    totals = []
    for page, place in zip(pages, places, strict=True):
        answer = parse(page, place, size)
        trades = page_rows(answer, place)
        counts.append(len(trades))
        totals.append(answer.get("totalNum"))
        for row in trades:
            _append(columns, row, ten_members)
    found = pa.RecordBatch.from_pydict(columns, schema=_COLUMNS)
    texts = found["text"]
    # Of rows that members give as they are sent, no text is kept: however a row was read, its columns are the same.
    is_given = pc.equal(texts, _joined(found))
    found = found.set_column(
        _NAMES.index("text"), "text", pc.if_else(is_given, None, texts)
    )
    return Batch(found, counts, totals, places)


def texts_of(columns: pa.RecordBatch) -> pa.Array:
    """Return the JSON text of each row of a batch, without white space."""
    return pc.coalesce(columns["text"], _joined(columns))


def _joined(columns: pa.RecordBatch) -> pa.Array:
    """Return the text of rows whose members are texts without an escape, which is so of all regular pages."""
    first, *others = columns.select(MEMBERS).columns
    # Arrow loses rows in which there is nothing to join.
    members = [first.fill_null(""), *others]
    between = pc.binary_join_element_wise(*members, '","', null_handling="skip")
    return pc.binary_join_element_wise('["', between, '"]', "")


def concat(batches: Sequence[Batch]) -> Batch:
    """Join batches that are in the order of their pages."""
    empty = pa.RecordBatch.from_pylist([], schema=_COLUMNS)
    columns = [empty, *(batch.columns for batch in batches)]
    return Batch(
        pa.concat_batches(columns),
        [count for batch in batches for count in batch.counts],
        [total for batch in batches for total in batch.totals],
        [place for batch in batches for place in batch.places],
    )


def split(batch: Batch) -> Iterator[Batch]:
    """Yield each page of a batch by itself."""
    start = 0
    for count, total, place in zip(
        batch.counts, batch.totals, batch.places, strict=True
    ):
        yield Batch(
            batch.columns.slice(start, count),
            [count],
            [total],
            [place],
        )
        start += count


def fault_of(row: Any) -> tuple[str, str] | None:
    """Say what was expected in place of a row that is not a trade, and what it is; None for a trade."""
    if not isinstance(row, list):
        return "a list of members", short(row)
    if len(row) == NFT_MEMBERS:
        return (
            "a token trade of 7 or more members",
            f"an NFT trade of {NFT_MEMBERS} members",
        )
    if len(row) < len(CORE):
        return "7 or more members", f"{len(row)}: {short(row)}"
    return None


def refuse_without_trades(batches: Iterable[Batch]) -> None:
    """Refuse pages that have rows, but no trade among them."""
    filled = [batch for batch in batches if len(batch.columns)]
    if filled and not any(batch.columns["no_trade"].null_count for batch in filled):
        text = filled[0].columns["no_trade"][0].as_py()
        expected, got = fault_of(parse_json(text, "row")) or ("", "")
        hint = _NFT_HINT if "NFT" in got else _HINT
        raise UnexpectedAnswer(
            filled[0].where(0),
            expected=expected,
            got=got,
            hint=hint,
        )


def read_total(batch: Batch) -> int:
    """Return the number of rows that a relayer counts, from a batch of one page."""
    [sent] = batch.totals
    total = parse_integer(str(sent))
    if total is None or total < 0:
        raise UnexpectedAnswer(
            f"{batch.places[0]}.totalNum",
            expected="a number of rows",
            got=short(sent),
            hint="Check that base_url is a relayer.",
        )
    return total


def page_rows(answer: Any, where: str) -> list[Any]:
    """Take the rows out of a parsed page, or raise an `UnexpectedAnswer` that says what is wrong with it."""
    if not isinstance(answer, Mapping) or "trades" not in answer:
        expected = 'an object with "totalNum" and "trades"'
        raise UnexpectedAnswer(
            where,
            expected=expected,
            got=short(answer),
            hint=_HINT,
        )
    trades = answer["trades"]
    if not isinstance(trades, list):
        raise UnexpectedAnswer(
            f"{where}.trades",
            expected="a list of rows",
            got=short(trades),
            hint=_HINT,
        )
    return trades


def parse(
    page: Page,
    where: str,
    size: int = MAX_DOCUMENT,
) -> Any:
    """Parse JSON text, keeping numbers as the text they were sent as; parsed answers are treated alike."""
    if not isinstance(page, (bytes, str)):
        try:
            page = json.dumps(page)
        except (TypeError, ValueError, RecursionError) as error:
            raise UnexpectedAnswer(
                where,
                expected="an answer of JSON values",
                got=str(error)[:80],
                hint="Give the answer as it was received, in bytes.",
            ) from None
    return parse_json(page, where, size=size, hint=_JSON_HINT)


def short(value: Any) -> str:
    """Show a value from the wire in an error message, cut to 80 characters."""
    if value is None:
        return "nothing (null)"
    return printable(f"{type(value).__name__.lower()} {to_json(value)}")


def _read(
    pages: Sequence[Page],
    places: Sequence[str],
    ten_members: str,
    size: int,
) -> Iterator[Reading]:
    """Read pages in their order: regular ones that follow each other together, any other by itself."""
    regular = [_regular(page, size) for page in pages]

    def read(start: int, stop: int) -> Iterator[Reading]:
        """Read pages of one layout together, or in halves if one of them is odd after all."""
        some = places[start:stop]
        batch = _parse_lines(regular[start:stop], some)
        middle = (start + stop) // 2
        if batch:
            yield batch
        elif middle > start:
            yield from read(start, middle)
            yield from read(middle, stop)
        else:
            try:
                yield read_tolerantly(pages[start:stop], some, ten_members, size)
            except UnexpectedAnswer as error:
                yield error

    start = 0
    for _, together in itertools.groupby(regular, lambda one: one and one.layout):
        stop = start + len(list(together))
        yield from read(start, stop)
        start = stop


def _regular(page: Page, size: int) -> _Regular | None:
    """Return what a page holds if it looks regular from outside."""
    if not isinstance(page, (bytes, str)) or len(page) > size or not page.isascii():
        return None
    body = page.encode() if isinstance(page, str) else page
    body = body.strip(b" \t\r\n")
    start = _START.match(body)
    if start is None or not body.endswith(_END) or b"\\" in body:
        return None
    end_of_row = body.index(b"]", start.end())
    width = body.count(b'"', start.end(), end_of_row) // 2
    if width not in _WIDTHS:
        return None
    layout = (width, b"," + start["space"])
    # Without the last two brackets, so that every row ends with one.
    rows = body[start.end() : -2]
    total = start["total"].decode()
    return _Regular(layout, rows, total)


def _parse_lines(
    pages: Sequence[_Regular | None], places: Sequence[str]
) -> Batch | None:
    """Read pages of one layout as lines of cells between quotes; None if one of them is not regular."""
    found = [page for page in pages if page is not None]
    if not found:
        return None
    width, separator = found[0].layout
    text = b"".join(separator + page.rows for page in found)
    # JSON has no control characters in text, and those that end lines here must be ours.
    if np.frombuffer(text, np.uint8).min() < ord(" "):
        return None
    members = list(MEMBERS[:width])
    names = ["begin"]
    for name in members:
        names += [name, f"after {name}"]
    # What follows a member is the separator and nothing else: this type has one value.
    kinds = dict.fromkeys(names, pa.null())
    kinds |= dict.fromkeys((*members, names[0], names[-1]), pa.string())
    # One block gives one chunk; the callers have threads.
    reading = csv.ReadOptions(
        use_threads=False, block_size=len(text) + 1, column_names=names
    )
    parsing = csv.ParseOptions(
        delimiter='"', quote_char=False, ignore_empty_lines=False
    )
    converting = csv.ConvertOptions(
        column_types=kinds, null_values=[separator.decode()], check_utf8=False
    )
    text = text.translate(_LINES)
    try:
        table = csv.read_csv(pa.BufferReader(text), reading, parsing, converting)
    except pa.ArrowInvalid:
        return None
    borders = [table[name].unique().to_pylist() for name in (names[0], names[-1])]
    if borders != [[f"{separator.decode()}["], [""]]:
        return None
    columns: dict[str, Any] = dict.fromkeys(_NAMES, pa.nulls(len(table), pa.string()))
    for name in members:
        columns[name] = combined(table[name])
    return Batch(
        pa.RecordBatch.from_pydict(columns),
        [page.rows.count(b"]") for page in found],
        [page.total for page in found],
        places,
    )


def _append(
    columns: dict[str, list[str | None]],
    row: Any,
    ten_members: str,
) -> None:
    """Append the members of a row to their columns, or the whole of what is not a trade."""
    text = to_json(row)
    if fault_of(row):
        members: dict[str, str | None] = {"no_trade": text}
    else:
        # Ten members mean one of two things, which the caller must say.
        layout = TEN_MEMBERS[ten_members] if len(row) == 10 else MEMBERS
        texts = [
            one if one is None or isinstance(one, str) else to_json(one) for one in row
        ]
        members = dict(zip(layout, texts, strict=False))
        if len(row) > len(MEMBERS):
            members["tail"] = to_json(row[len(MEMBERS) :])
    members["text"] = text
    for name, column in columns.items():
        column.append(members.get(name))
