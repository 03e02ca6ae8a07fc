"""Pages of trades: a relayer's JSON to Arrow text columns, one per member of a row.

A row that is not a trade is kept as its text; an answer that is not a page is refused, and so are pages without a
trade.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from loopring_lab.bounded import parse_integer, parse_json, printable, to_json
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
# No relayer is known to send rows of 8 to 12 members, and documents contradict each other on what they would mean.
UNKNOWN_WIDTHS = range(8, 13)
# The layout that trades of NFTs have, by its documentation.
NFT_MEMBERS = 19

# Conversion has a cost for each group, so groups hold some hundred pages of 10 KiB. As text columns and typed
# columns, a group takes about four times its bytes.
GROUP_BYTES = 6 << 20

HINT = (
    "Check base_url, or save the answer of GET /api/v3/user/trades as it is, the SDK's answer with raw_data, or a "
    "browser's HAR file. Frames are read by lab.tables.read_csv(file) and pyarrow.parquet.read_table(file)."
)
_NFT_HINT = (
    "Trades of NFTs have a layout of their own, which is not supported: leave that page out, or read "
    "another account."
)

Answer = bytes | str | Mapping[str, Any] | list[Any]
HistoryKey = tuple[int, str]
"""Account id and fill type."""

AnyPage = TypeVar("AnyPage")
_NAMES = (*MEMBERS, "tail", "no_trade", "text")
_COLUMNS = pa.schema([(name, pa.string()) for name in _NAMES])
# This writes a list of texts as `to_json` does, and a row of them much faster.
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Page(NamedTuple):
    """A page of trades, parsed, and what is known of it besides; None for what is not."""

    rows: list[Any]
    total: Any
    place: str
    account_id: int | None = None
    fill_type: str | None = None

    def size(self) -> int:
        """Return about how many bytes the page takes as columns, and some more, so that a group of empty pages ends."""
        return 256 * (8 + len(self.rows))

    def agreed(self, account_id: int | None, fill_type: str | None) -> Page:
        """Return the page with what is given of it, which must not contradict what is known."""
        given: dict[str, Any] = {"account_id": account_id, "fill_type": fill_type}
        known = {name: value for name, value in given.items() if value is not None}
        for name, value in known.items():
            stated = getattr(self, name)
            if stated not in (None, value):
                raise UnexpectedAnswer(
                    f"{self.place}, {name}",
                    expected=f"{value}, as given",
                    got=f"{stated}, as requested or named there",
                    hint=f"Leave {name}= out: the file says it.",
                )
        return self._replace(**known)


class Batch(NamedTuple):
    """The rows of some pages as text columns, one per name of `MEMBERS`, ``tail``, ``no_trade`` and ``text``.

    ``tail`` is the JSON text of further members, ``no_trade`` that of a row that is not a trade, and ``text`` that of
    any row. `counts` and `totals` are the number of rows of each page and its ``totalNum`` as sent; `places` name the
    pages in errors.
    """

    columns: pa.RecordBatch
    counts: list[int]
    totals: list[Any]
    places: list[str]

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


def read(answer: Answer, place: str) -> Batch:
    """Read a page into text columns, or raise what is wrong with it."""
    return to_batch([read_page(parse(answer, place), place)])


def to_batch(pages: Sequence[Page]) -> Batch:
    """Put the rows of pages into text columns."""
    cells = [_cells(row) for page in pages for row in page.rows]
    columns = list(zip(*cells, strict=True)) or [()] * len(_NAMES)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return Batch(
        pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS),
        [len(page.rows) for page in pages],
        [page.total for page in pages],
        [page.place for page in pages],
    )


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


def fault_of(row: Any) -> tuple[str, str] | None:
    """Say what was expected in place of a row that is not a trade, and what it is; None for a trade."""
    if not isinstance(row, list):
        return "a list of members", short(row)
    width = len(row)
    if width == NFT_MEMBERS:
        return (
            "a token trade of 7, 13, 14 or more members",
            f"an NFT trade of {NFT_MEMBERS} members",
        )
    if width < len(CORE) or width in UNKNOWN_WIDTHS:
        return "7, 13, 14 or more members", f"{width}: {short(row)}"
    return None


def refuse_without_trades(batches: Iterable[Batch]) -> None:
    """Refuse pages that have rows, but no trade among them."""
    filled = [batch for batch in batches if len(batch.columns)]
    if filled and not any(batch.columns["no_trade"].null_count for batch in filled):
        text = filled[0].columns["no_trade"][0].as_py()
        expected, got = fault_of(parse_json(text, "row")) or ("", "")
        hint = _NFT_HINT if "NFT" in got else HINT
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


def read_page(answer: Any, where: str) -> Page:
    """Take the rows out of a parsed answer, or raise an `UnexpectedAnswer` that says what is wrong with it."""
    if not isinstance(answer, Mapping) or "trades" not in answer:
        expected = 'an object with "totalNum" and "trades"'
        raise UnexpectedAnswer(where, expected=expected, got=short(answer), hint=HINT)
    trades = answer["trades"]
    if not isinstance(trades, list):
        raise UnexpectedAnswer(
            f"{where}.trades",
            expected="a list of rows",
            got=short(trades),
            hint=HINT,
        )
    return Page(trades, answer.get("totalNum"), where)


def parse(answer: Answer, where: str) -> Any:
    """Parse JSON text, keeping numbers as the text they were sent as; parsed answers are treated alike."""
    if not isinstance(answer, (bytes, str)):
        try:
            answer = json.dumps(answer)
        except (TypeError, ValueError, RecursionError) as error:
            raise UnexpectedAnswer(
                where,
                expected="an answer of JSON values",
                got=str(error)[:80],
                hint="Give the answer as it was received, in bytes.",
            ) from None
    return parse_json(answer, where, hint=HINT)


def short(value: Any) -> str:
    """Show a value from the wire in an error message, cut to 80 characters, without texts and lists in objects."""
    if value is None:
        return "nothing (null)"
    return printable(f"{type(value).__name__.lower()} {to_json(_without_texts(value))}")


def _without_texts(value: Any) -> Any:
    # A file that is given by mistake may hold somebody's keys, under names that nobody knows. Numbers are texts of a
    # type of their own.
    if isinstance(value, list):
        return list(map(_without_texts, value))
    if not isinstance(value, dict):
        return value
    return {
        name: "…" if one and type(one) in (str, list) else _without_texts(one)
        for name, one in value.items()
    }


def _cells(row: Any) -> list[str | None]:
    """Return the members of a row as texts, or the whole of what is not a trade; then the text of the row."""
    cells: list[str | None] = [None] * len(_NAMES)
    if fault_of(row):
        text = to_json(row)
        cells[-2:] = text, text
        return cells
    # Members are texts nearly always. Numbers keep the text that they were sent as, which has no quotes.
    is_plain = set(map(type, row)) == {str}
    texts = row if is_plain else list(map(_text_of, row))
    known = texts[: len(MEMBERS)]
    cells[: len(known)] = known
    if len(row) > len(MEMBERS):
        cells[-3] = to_json(row[len(MEMBERS) :])
    cells[-1] = _write(row) if is_plain else to_json(row)
    return cells


def _text_of(member: Any) -> str | None:
    if member is None or isinstance(member, str):
        return member
    return to_json(member)
