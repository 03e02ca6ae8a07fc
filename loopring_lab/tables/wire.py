"""Pages of trades: JSON bytes to Arrow text columns, one per member of a row.

DuckDB reads regular pages, many at once. A page is regular if a pattern covers all of it; any other is parsed
by Python's `json`. Both give the same columns for the same rows. A row that is not a trade is kept as its text;
an answer that is not a page is refused, and so are pages without a trade.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import combined
from loopring_lab.bounded import (
    MAX_DOCUMENT,
    MAX_PAGE,
    Number,
    parse_integer,
    parse_json,
    printable,
    to_json,
    whole_or_text,
)
from loopring_lab.engine import session
from loopring_lab.errors import LabError, UnexpectedAnswer

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

# Measured on pages of 10 KiB: reading takes 5 ms for a group of any size, so groups hold some hundred pages.
# As text columns and typed columns, a group takes about four times its bytes.
GROUP_BYTES = 4 << 20
# That a page counts for, so that a group of empty ones ends too.
LEAST_BYTES = 4 << 10
# A parsed answer has no size: 256 of them make a group.
PARSED_BYTES = GROUP_BYTES // 256

Page = bytes | str | Mapping[str, Any] | list[Any]
AnyPage = TypeVar("AnyPage")
_NAMES = (*MEMBERS, "tail", "no_trade")
_COLUMNS = pa.schema([(name, pa.string()) for name in _NAMES])
_WITH_TEXTS = _COLUMNS.append(pa.field("text", pa.string()))
_HINT = "Check that base_url or the saved file is the trades endpoint of a relayer (GET /api/v3/user/trades)."
_JSON_HINT = (
    "Ask for the page again; if it was saved, save it again. Check base_url too."
)
_NFT_HINT = (
    "Trades of NFTs have a layout of their own, which is not supported: leave that page out, or read "
    "another account."
)

# All that a regular page may contain, so that DuckDB's reader has no choice in what it means. Left to itself it
# reads numbers with a fraction as float64, accepts NaN and commas before brackets, takes the first of two members
# of one name, and makes null of rows that are no lists. Text is ASCII without escapes; whole numbers have at most
# 18 digits, which fit 64 bits, and no sign before 0.
_SPACE = r"[ \t\r\n]*"
_TEXT = r'"[ !#-\[\]-~]*"'
_WHOLE = "(?:0|[1-9][0-9]{0,17})"
_MEMBER = f"{_SPACE}(?:{_TEXT}|null|{_WHOLE}|-[1-9][0-9]{{0,17}}){_SPACE}"
# A row of ten has a layout of its own, which Python knows.
_FURTHER = f"(?:,{_MEMBER})"
_ROW = rf"{_SPACE}\[{_MEMBER}(?:{_FURTHER}{{6,8}}|{_FURTHER}{{10,13}})\]{_SPACE}"
_START = rf'^{_SPACE}\{{{_SPACE}"totalNum"{_SPACE}:{_SPACE}(?P<total>{_WHOLE}){_SPACE},{_SPACE}"trades"{_SPACE}:'
_REGULAR = rf"{_START}{_SPACE}\[(?:{_ROW}(?:,{_ROW})*|{_SPACE})\]{_SPACE}\}}{_SPACE}$"
# Steps from a page to the members of its rows. Where the texts of rows are asked for, they are cut out first, as
# members alone do not tell how they were written.
_ROWS_STEP = (
    """page, unnest(from_json(body, '{"trades": [["VARCHAR"]]}').trades) AS members"""
)
_TEXTS_STEP = """page, unnest(from_json(body, '{"trades": ["JSON"]}').trades) AS text"""
_PARSE_STEP = """page, text, from_json(text, '["VARCHAR"]') AS members"""
_MEMBERS_STEP = ", ".join(
    f'members[{place}] AS "{name}"' for place, name in enumerate(MEMBERS, 1)
)


class Batch(NamedTuple):
    """The rows of some pages as text columns, one per name of `MEMBERS`, ``tail`` and ``no_trade``.

    ``tail`` is the JSON text of further members, ``no_trade`` that of a row that is not a trade; where it was asked
    for, ``text`` is that of every row, without white space. `counts` and `totals` are the number of rows of each
    page and its ``totalNum`` as sent; `places` name the pages in errors.
    """

    columns: pa.RecordBatch
    counts: list[int]
    totals: list[Any]
    places: Sequence[str]

    def where(self, position: int) -> str:
        """Name the page and the row at a position of the columns."""
        page = 0
        while position >= self.counts[page]:
            position -= self.counts[page]
            page += 1
        return f"{self.places[page]}.trades[{position}]"


Reading = Batch | UnexpectedAnswer


def group(pages: Iterable[AnyPage]) -> Iterator[list[AnyPage]]:
    """Group pages by a few megabytes; if one fails, first those before it."""
    members: list[AnyPage] = []
    size = 0
    try:
        for page in pages:
            members.append(page)
            if isinstance(page, (bytes, str)):
                size += max(len(page), LEAST_BYTES)
            else:
                size += PARSED_BYTES
            if size >= GROUP_BYTES:
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
    for result in _read(
        pages,
        places,
        ten_members,
        MAX_DOCUMENT,
    ):
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
    with_texts: bool = False,
) -> list[Reading]:
    """Read each page into a batch of its own, or into its error; regular pages are parsed together."""
    results: list[Reading] = []
    for result in _read(
        pages,
        places,
        ten_members,
        size,
        with_texts,
    ):
        if isinstance(result, Batch):
            results.extend(_split(result))
        else:
            results.append(result)
    return results


def read_tolerantly(
    pages: Sequence[Page],
    places: Sequence[str],
    ten_members: str,
    *,
    size: int = MAX_DOCUMENT,
    with_texts: bool = False,
) -> Batch:
    """Read pages of any layout through the standard library, naming the page at fault."""
    schema = _WITH_TEXTS if with_texts else _COLUMNS
    columns: dict[str, list[str | None]] = {name: [] for name in schema.names}
    counts = []
    totals = []
    for page, place in zip(pages, places, strict=True):
        answer = parse(page, place, size)
        trades = page_rows(answer, place)
        counts.append(len(trades))
        # Numbers are text here, as they were sent.
        total = answer.get("totalNum")
        totals.append(whole_or_text(total) if isinstance(total, Number) else total)
        for row in trades:
            _append(columns, row, ten_members)
    return Batch(
        pa.RecordBatch.from_pydict(
            columns,
            schema=schema,
        ),
        counts,
        totals,
        places,
    )


def concat(batches: Sequence[Batch]) -> Batch:
    """Join batches that are in the order of their pages."""
    # Where there are no pages, nobody has said whether texts are wanted.
    columns = [batch.columns for batch in batches] or [
        pa.RecordBatch.from_pylist(
            [],
            schema=_WITH_TEXTS,
        )
    ]
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
    if len(row) == NFT_MEMBERS:
        return (
            "a token trade of 7 or more members",
            f"an NFT trade of {NFT_MEMBERS} members",
        )
    return (
        ("7 or more members", f"{len(row)}: {short(row)}")
        if len(row) < len(CORE)
        else None
    )


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
    if isinstance(page, (bytes, str)):
        return parse_json(
            page,
            where,
            size=size,
            hint=_JSON_HINT,
        )
    try:
        text = json.dumps(page)
    except (TypeError, ValueError, RecursionError) as error:
        got = str(error)[:80]
        hint = "Give the answer as it was received, in bytes."
    else:
        return parse_json(text, where, hint=_JSON_HINT)
    raise UnexpectedAnswer(
        where,
        expected="an answer of JSON values",
        got=got,
        hint=hint,
    )


def short(value: Any) -> str:
    """Show a value from the wire in an error message, cut to 80 characters."""
    return (
        "nothing (null)"
        if value is None
        else printable(f"{type(value).__name__.lower()} {to_json(value)}")
    )


def _read(
    pages: Sequence[Page],
    places: Sequence[str],
    ten_members: str,
    size: int,
    with_texts: bool = False,
) -> Iterator[Reading]:
    """Read pages in their order: regular ones that follow each other together, any other by itself."""
    schema = _WITH_TEXTS if with_texts else _COLUMNS
    regular = _find_regular(pages, size)
    totals: dict[int, str] = {}
    rows = _ask(regular, with_texts)
    if rows is not None:
        numbered = zip(
            regular["page"].to_pylist(), regular["total"].to_pylist(), strict=True
        )
        totals = dict(numbered)
        counted = np.bincount(
            rows["page"],
            minlength=len(pages),
        )
        # No regular row has more members, or is no trade.
        nothing = pa.nulls(len(rows), pa.string())
        for name in ("tail", "no_trade"):
            rows = rows.append_column(name, nothing)
        columns = rows.select(schema.names)
    start = 0
    for is_regular, together in itertools.groupby(
        range(len(pages)), totals.__contains__
    ):
        numbers = list(together)
        if is_regular:
            # Rows come in the order of their pages, so each page is a slice.
            counts = counted[numbers].tolist()
            part = columns.slice(start, sum(counts))
            start += len(part)
            yield Batch(
                pa.RecordBatch.from_arrays(
                    list(map(combined, part.columns)),
                    schema=schema,
                ),
                counts,
                [int(totals[number]) for number in numbers],
                [places[number] for number in numbers],
            )
            continue
        for number in numbers:
            try:
                yield read_tolerantly(
                    [pages[number]],
                    [places[number]],
                    ten_members,
                    size=size,
                    with_texts=with_texts,
                )
            except UnexpectedAnswer as error:
                yield error


def _find_regular(pages: Sequence[Page], size: int) -> pa.Table:
    """Return the texts of the regular pages, with their positions and the number of rows that they count."""
    texts = []
    for page in pages:
        is_plain = (
            isinstance(page, (bytes, str)) and len(page) <= size and page.isascii()
        )
        texts.append(page if is_plain else None)
    bodies = pa.array(texts, pa.string())
    every = pa.table(
        {
            "page": pa.array(range(len(pages)), pa.int32()),
            "body": bodies,
        }
    )
    is_regular = pc.match_substring_regex(bodies, _REGULAR).fill_null(False)
    regular = every
    if not pc.all(is_regular).as_py():
        regular = every.filter(is_regular).combine_chunks()
    starts = pc.extract_regex(regular["body"], _START)
    return regular.append_column("total", pc.struct_field(starts, "total"))


def _ask(regular: pa.Table, with_texts: bool) -> pa.Table | None:
    """Ask DuckDB for the members of the rows of regular pages, in order; None if there are none, or it cannot."""
    import duckdb

    if not len(regular):
        return None
    steps = [_ROWS_STEP, f"page, {_MEMBERS_STEP}"]
    if with_texts:
        steps = [_TEXTS_STEP, _PARSE_STEP, f"page, text, {_MEMBERS_STEP}"]
    try:
        with session.raising_interrupts():
            rows = session.cursor().from_arrow(regular)
            for step in steps:
                rows = rows.project(step)
            found = rows.to_arrow_table()
    except (duckdb.Error, LabError):
        # Such as without memory for all of them, or a folder to spill to: Python needs neither.
        return None
    # The order of rows is not promised, although one thread reads one chunk of Arrow from first to last.
    pages = found["page"].to_numpy()
    if (np.diff(pages) < 0).any():
        found = found.take(
            np.argsort(
                pages,
                kind="stable",
            )
        )
    return found


def _split(batch: Batch) -> Iterator[Batch]:
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


def _append(
    columns: dict[str, list[str | None]],
    row: Any,
    ten_members: str,
) -> None:
    """Append the members of a row to their columns, or the whole of what is not a trade."""
    if fault_of(row):
        members: dict[str, str | None] = {"no_trade": to_json(row)}
    else:
        # Ten members mean one of two things, which the caller must say.
        layout = TEN_MEMBERS[ten_members] if len(row) == 10 else MEMBERS
        texts = [
            one if one is None or isinstance(one, str) else to_json(one) for one in row
        ]
        members = dict(zip(layout, texts, strict=False))
        if len(row) > len(MEMBERS):
            members["tail"] = to_json(row[len(MEMBERS) :])
    if "text" in columns:
        members["text"] = to_json(row)
    for name, column in columns.items():
        column.append(members.get(name))
