"""Trades that somebody saved in another wrapping than the relayer's own, as pages of its exact rows.

Known are the answers of the exchange's SDK and of version 2 of its API, lists of rows or of pages, rows as
objects, HAR files of a browser, and what ccxt made of rows. Whatever a file is, only rows as the relayer sent
them are used: what has floats or rounded amounts in their place is refused by name.
"""

from __future__ import annotations

import base64
import binascii
import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import pyarrow.compute as pc

from loopring_lab.bounded import MAX_DOCUMENT, parse_integer, printable, to_json
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.tables import wire
from loopring_lab.tables.listings import POOL_PREFIX
from loopring_lab.tables.rows import FILL_TYPES

# How a documented page begins: up to its first row. What does not may still be one, with members in another
# order, and is looked at closer.
_PAGE_START = re.compile(
    r'\s*\{\s*(?:"totalNum"\s*:\s*[^,\[\]{}]*,\s*)?"trades"\s*:\s*\[\s*[\[\]]'
)
_HAR_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"log"\s*:')

# Names of members in the SDK's objects (`UserTrade`), where they differ from those of the contract.
_SDK_NAMES = {
    "createdAt": "tradeTime",
    "id": "tradeId",
    "size": "volume",
    "feeAmount": "fee",
}
MARKET = wire.MEMBERS.index("market")
# Members of answers that hold rows, best first: as objects in a page, the page itself (in the SDK's answers, in
# those of version 2, and of axios, through which the SDK asks), and what the SDK made of its rows.
_WRAPPINGS = ("trades", "raw_data", "data", "userTrades")
_PAGES = ("raw_data", "data")

# The requests of a HAR file whose answers are read.
_TRADES = "user/trades"
_TOKENS = "exchange/tokens"
_MARKETS = "mix/markets"
_URL = re.compile(
    rf"[^?#]*/(?P<endpoint>{_TRADES}|{_TOKENS}|{_MARKETS})/?(?:\?(?P<query>[^#]*))?(?:#.*)?"
)
_ORIGIN = re.compile(r"[a-zA-Z]+://[^/?#]*")
# Filters of a request. Under one of them ``totalNum`` counts less than the account's history.
_FILTERS = ("market", "orderHash", "start", "end", "fromId")
_OK = "200"

# A page in a list of pages; the last one of a history may have no rows.
_EMPTY: dict[str, Any] = {"trades": []}

# In the name of a file: account and fill type of its pages.
HISTORY_FILE = re.compile(r"([0-9]{1,10})-(amm|dex)\.")
NAME_HINT = "or name the file <accountId>-<amm or dex>.json."

# Headers of CSV files, as far as they tell what a file is.
_EXPLORER = {"tx id", "pair", "amount", "verified at"}
_CCXT = {"symbol", "amount", "cost", "price"}
_OWN_FRAME = {"created_at", "market", "trade_id"}
_PARQUET = "PAR1"

_EXACT = "rows as the relayer sends them, with amounts in smallest units"
_EXACT_HINT = (
    "Save the relayer's own answers (GET /api/v3/user/trades), or read the exchange's blocks: "
    "lab.connect(blocks=...)."
)
_CCXT_GOT = "trades of ccxt: amount, cost and fee are floats of 15 to 17 digits, without smallest units"
_EXPLORER_GOT = "the CSV of a block explorer: amounts of 4 decimals, no smallest units, no account id, no token ids"
_HAR_HINT = "Open the trade history with the browser's network tools open, and save all as HAR with content."


# That a page counts for in a group besides its length.
PAGE_BYTES = 8 << 10


class Saved(NamedTuple):
    """A page of trades, and what its wrapping says of it; None for what it does not say."""

    page: Any
    place: str
    account_id: int | None = None
    fill_type: str | None = None

    def size(self) -> int:
        """Bytes of the page, and some more, so that a group of empty or parsed pages ends too."""
        # A parsed page, which may be anything, has no length in bytes.
        text = self.page if isinstance(self.page, (bytes, str)) else ""
        return PAGE_BYTES + len(text)

    def agreed(self, account_id: int | None, fill_type: str | None) -> Saved:
        """Return the page with what is given of it, which must not contradict what its wrapping says."""
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
        return self._replace(**known) if known else self


class Har(NamedTuple):
    """What a HAR file holds of a relayer's answers.

    `listing` is those with the tokens and the markets, if it has both; `source` the identity that the relayer stated.
    """

    pages: list[Saved]
    listing: tuple[str, str] | None
    source: str | None


HistoryKey = tuple[int, str]
"""Account id and fill type."""


def unwrap(page: Any, place: str) -> list[Saved]:
    """Return the documented pages in an answer; one that is already documented, or unknown, as it is."""
    is_text = isinstance(page, (bytes, str))
    if is_text and _PAGE_START.match(_start_of(page, 256)):
        return [Saved(page, place)]
    if isinstance(page, Mapping) and _has_plain_rows(page):
        return [Saved(page, place)]
    try:
        answer = wire.parse(page, place)
    except UnexpectedAnswer:
        if is_text:
            _refuse_no_json(page, place)
        raise
    found = list(_pages(answer, place))
    # Its own bytes are kept where nothing was unwrapped, so that errors quote what was given.
    if len(found) == 1 and found[0].page is answer:
        return [Saved(page, place)]
    return [
        one
        if isinstance(one.page, bytes)
        else one._replace(page=to_json(one.page).encode())
        for one in found
    ]


def unwrap_each(pages: list[Any]) -> list[tuple[int, Saved]]:
    """Return the documented pages in answers, each with the position of the answer that it was in."""
    if are_rows(pages):
        return [(0, one) for one in unwrap(pages, "pages")]
    found: list[tuple[int, Saved]] = []
    for number, page in enumerate(pages):
        inner = _EMPTY if page == [] else page
        found += [(number, one) for one in unwrap(inner, f"pages[{number}]")]
    return found


def are_rows(answer: list[Any]) -> bool:
    """Tell whether a list has rows, as lists or objects, and so is one answer rather than several."""
    for row in answer:
        if isinstance(row, Mapping):
            return _is_object(row)
        if isinstance(row, (list, tuple)) and row:
            # A row begins with a number or text, a list of rows with a row.
            return not isinstance(row[0], (list, tuple, Mapping))
        if isinstance(row, (bytes, str)):
            return False
    return False


def histories(
    name: str,
    documents: Iterable[bytes | Saved],
    account_id: int | None,
    fill_type: str | None,
) -> Iterator[tuple[HistoryKey, wire.Batch]]:
    """Read the documents of a file, or pages found in it: whose each is, as given or said there, and its rows.

    Empty pages of which neither is known are left out.
    """

    def pages() -> Iterator[Saved]:
        for number, body in enumerate(documents, 1):
            place = name if number == 1 else f"{name}, page {number}"
            found = [body] if isinstance(body, Saved) else unwrap(body, place)
            for one in found:
                yield from _by_venue(one, name, fill_type)

    for group in wire.group(pages(), Saved.size):
        texts = [one.page for one in group]
        places = [one.place for one in group]
        batches = wire.read_each(texts, places, size=MAX_DOCUMENT)
        for one, batch in zip(group, batches, strict=True):
            if isinstance(batch, UnexpectedAnswer):
                raise batch
            known = _history_of(name, one, batch, account_id, fill_type)
            if known is not None:
                yield known, batch


def starts_as_har(start: bytes) -> bool:
    """Tell whether a file that begins with these bytes is a HAR file."""
    return bool(_HAR_START.match(start))


def read_har(answer: Any, place: str) -> Har:
    """Take a relayer's answers out of a parsed HAR file."""
    entries = _member(_member(answer, "log"), "entries")
    if not isinstance(entries, list):
        raise UnexpectedAnswer(
            f"{place}.log.entries",
            expected="the requests of a HAR file",
            got=wire.short(entries),
            hint=_HAR_HINT,
        )
    pages: list[Saved] = []
    listings = {}
    source = None
    origins = set()
    for number, entry in enumerate(entries):
        where = f"{place}.log.entries[{number}]"
        request = _member(entry, "request")
        url = _member(request, "url")
        # Before a request, browsers may ask by OPTIONS whether they may send it.
        if not isinstance(url, str) or _member(request, "method") not in (None, "GET"):
            continue
        asked = _URL.fullmatch(url)
        if not asked:
            continue
        endpoint = asked["endpoint"]
        body = _body(entry, where, is_needed=endpoint == _TRADES)
        if body is None:
            continue
        origin = _ORIGIN.match(url)
        origins.add(origin[0].lower() if origin else "")
        source = _stated_source(entry) or source
        if endpoint == _TRADES:
            pages += _requested(body, where, asked["query"] or "")
        else:
            listings[endpoint] = body
    if len(origins) > 1:
        # Tokens and accounts of one exchange have the numbers of others on another.
        raise UnexpectedAnswer(
            place,
            expected="answers of one relayer",
            got=printable(" and ".join(sorted(origins))),
            hint="Save the requests to each of them in a file of its own.",
        )
    if not pages:
        raise UnexpectedAnswer(
            place,
            expected="a HAR file with answers of GET /user/trades",
            got=f"{len(entries)} requests, none of them with such an answer",
            hint=_HAR_HINT,
        )
    tokens = listings.get(_TOKENS)
    markets = listings.get(_MARKETS)
    listing = (tokens, markets) if tokens and markets else None
    return Har(pages, listing, source)


def refuse_inexact(data: bytes | str, place: str) -> None:
    """Refuse a CSV file or JSON text that cannot be exact, saying what it is and what it lacks."""
    names = _csv_names(data)
    if names >= _EXPLORER:
        raise _inexact(place, _EXPLORER_GOT)
    if names >= _CCXT:
        raise _inexact(place, _CCXT_GOT)


def refuse_json(data: bytes, place: str) -> None:
    """Refuse JSON in place of CSV, saying where it can be read."""
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"[", b"{")):
        return
    # Says by name what cannot be exact.
    unwrap(data, place)
    raise UnexpectedAnswer(
        place,
        expected="CSV",
        got="JSON",
        hint="Answers of a relayer are read by lab.tables.trades(data, tokens, markets).",
    )


def _pages(answer: Any, place: str) -> Iterator[Saved]:
    """Yield the pages in a parsed answer of any known wrapping, or the answer itself where it is none."""
    if isinstance(answer, list):
        yield from _pages_of_list(answer, place)
    elif isinstance(answer, dict):
        yield from _pages_of_object(answer, place)
    else:
        yield Saved(answer, place)


def _pages_of_object(answer: dict[str, Any], place: str) -> Iterator[Saved]:
    wrapping = _wrapping_of(answer)
    if isinstance(answer.get("log"), dict):
        yield from read_har(answer, place).pages
    elif _has_plain_rows(answer):
        yield Saved(answer, place)
    elif wrapping in _PAGES:
        yield from _pages(answer[wrapping], f"{place}.{wrapping}")
    elif wrapping:
        rows = answer[wrapping]
        yield Saved(_made(rows, answer, f"{place}.{wrapping}"), place)
    elif _is_object(answer):
        yield Saved(_made([answer], {}, place), place)
    else:
        yield Saved(answer, place)


def _wrapping_of(answer: dict[str, Any]) -> str:
    """Return the member of an answer that has its rows, or pages of them; nothing where none has."""
    for name in _WRAPPINGS:
        kinds = (dict, list) if name in _PAGES else list
        if isinstance(answer.get(name), kinds):
            return name
    return ""


def _pages_of_list(answer: list[Any], place: str) -> Iterator[Saved]:
    # A row by itself, one to a line: the market tells it from other lists.
    is_row = wire.fault_of(answer) is None and isinstance(answer[MARKET], str)
    if is_row:
        yield Saved(_made([answer], {}, place), place)
    elif are_rows(answer):
        yield Saved(_made(answer, {}, place), place)
    elif not answer:
        yield Saved(answer, place)
    else:
        for number, page in enumerate(answer):
            inner = _EMPTY if page == [] else page
            yield from _pages(inner, f"{place}[{number}]")


def _has_plain_rows(answer: Mapping[str, Any]) -> bool:
    """Tell whether an answer is a documented page, in which odd rows may stand but no objects of others."""
    rows = answer.get("trades")
    if not isinstance(rows, list):
        return False
    return not any(isinstance(row, Mapping) and _is_object(row) for row in rows)


def _is_object(value: Mapping[str, Any]) -> bool:
    """Tell whether an object is a trade: by the names of the SDK, of the contract, or of ccxt."""
    names = value.keys()
    return (
        names >= {"tradeTime", "volume"}
        or names >= {"createdAt", "size", "feeAmount"}
        or names >= {"info", "amount"}
    )


def _made(rows: list[Any], around: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Make a documented page of rows and of the answer around them, which may count them."""
    total = around.get("totalNum")
    counted = {} if total is None else {"totalNum": total}
    listed = [_row(row, f"{place}[{number}]") for number, row in enumerate(rows)]
    return {**counted, "trades": listed}


def _row(row: Any, place: str) -> Any:
    """Return the row that an object stands for; anything else as it is."""
    if not isinstance(row, dict):
        return row
    if "info" in row and "amount" in row:
        # ccxt keeps what it was sent: that is exact, all else in its objects are floats made of it.
        sent = row["info"]
        if isinstance(sent, dict) and _is_object(sent) and "info" not in sent:
            return _row(sent, place)
        if wire.fault_of(sent) is None:
            return sent
        raise _inexact(f"{place}.info", f"{_CCXT_GOT}; info has no row either")
    if not _is_object(row):
        return row
    members = []
    for name in wire.MEMBERS:
        alias = _SDK_NAMES.get(name, name)
        members.append(row.get(name, row.get(alias)))
    # Rows of ten have two meanings, so all members are written wherever one is known beyond the first seven.
    is_short = all(member is None for member in members[len(wire.CORE) :])
    return members[: len(wire.CORE)] if is_short else members


def _requested(body: str, where: str, query: str) -> Iterator[Saved]:
    """Yield the pages in an answer of GET /user/trades, with what its request says of them."""
    try:
        asked = parse_qs(query, max_num_fields=50)
    except ValueError:
        asked = {}
    account = parse_integer(asked.get("accountId", [""])[0])
    [fill_type] = asked.get("fillTypes", [None])[:1]
    is_filtered = any(name in asked for name in _FILTERS)
    for one in unwrap(body.encode(), where):
        answer = wire.parse(one.page, where)
        # A refusal, which some relayers send with the status 200.
        if isinstance(answer, dict) and "resultInfo" in answer:
            continue
        page = one.page
        if is_filtered and isinstance(answer, dict):
            rest = {name: value for name, value in answer.items() if name != "totalNum"}
            page = to_json(rest).encode()
        yield Saved(
            page,
            one.place,
            account,
            fill_type if fill_type in FILL_TYPES else None,
        )


def _body(entry: Any, where: str, *, is_needed: bool) -> str | None:
    """Return the text of an answer; None for a refusal, and for what nobody needs."""
    response = _member(entry, "response")
    status = _member(response, "status")
    content = _member(response, "content")
    text = _member(content, "text")
    if status is not None and str(status) != _OK:
        return None
    place = f"{where}.response.content.text"
    if not isinstance(text, str) or not text:
        if not is_needed:
            return None
        raise UnexpectedAnswer(
            place, expected="the answer", got=wire.short(text), hint=_HAR_HINT
        )
    if _member(content, "encoding") != "base64":
        return text
    try:
        return base64.b64decode(text, validate=True).decode("utf-8-sig")
    except (binascii.Error, ValueError):
        got = "text that is not base64 of UTF-8"
    raise UnexpectedAnswer(place, expected="the answer", got=got, hint=_HAR_HINT)


def _stated_source(entry: Any) -> str | None:
    """Return the identity that a relayer stated in a header, by which made-up data stays known as such."""
    headers = _member(_member(entry, "response"), "headers")
    for header in headers if isinstance(headers, list) else []:
        name = _member(header, "name")
        value = _member(header, "value")
        # The header of `source.HEADER`, which is on a floor above.
        if isinstance(name, str) and name.lower() == "x-loopring-lab-source":
            return value if isinstance(value, str) else None
    return None


def _by_venue(one: Saved, name: str, fill_type: str | None) -> list[Saved]:
    """Part a page of an unknown fill type: a relayer that prefixes the markets of pools prefixes all of them."""
    is_known = one.fill_type or fill_type or HISTORY_FILE.match(name)
    data = one.page
    if is_known or POOL_PREFIX.encode() not in data:
        return [one]
    answer = wire.parse(data, one.place)
    rows = wire.page_rows(answer, one.place)
    pools: list[Any] = []
    books: list[Any] = []
    for row in rows:
        market = row[MARKET] if wire.fault_of(row) is None else None
        is_pool = isinstance(market, str) and market.startswith(POOL_PREFIX)
        (pools if is_pool else books).append(row)
    if not books or not pools:
        return [one]
    # The count is of both together, and so of neither.
    return [
        one._replace(page=to_json({"trades": part}).encode(), fill_type=venue)
        for part, venue in ((pools, "amm"), (books, "dex"))
    ]


def _history_of(
    name: str,
    saved: Saved,
    batch: wire.Batch,
    account_id: int | None,
    fill_type: str | None,
) -> HistoryKey | None:
    """Tell whose trades a page has: by the arguments, its request, the file's name, or its rows."""
    named = HISTORY_FILE.match(name)
    if named:
        # The account may differ: some number their files, and rows mostly say whose they are.
        Saved(b"", name, fill_type=named[2]).agreed(None, fill_type)
    _, _, account_id, fill_type = saved.agreed(account_id, fill_type)
    if named and account_id is None:
        account_id = int(named[1])
    if named and fill_type is None:
        fill_type = named[2]
    if not len(batch.columns) and (account_id is None or fill_type is None):
        return None
    if account_id is None:
        accounts = pc.unique(batch.columns["accountId"]).to_pylist()
        account_id = parse_integer(accounts[0]) if len(accounts) == 1 else None
        if account_id is None or account_id < 0:
            raise UnexpectedAnswer(
                f"{batch.places[0]}, accountId",
                expected="one account",
                got="rows of several accounts"
                if len(accounts) > 1
                else "rows that do not say",
                hint=f"Give account_id=, {NAME_HINT}",
            )
    if fill_type is None:
        is_pool = pc.starts_with(batch.columns["market"], POOL_PREFIX)
        if not pc.all(is_pool).as_py():
            raise UnexpectedAnswer(
                f"{batch.places[0]}, market",
                expected=f"pool fills ({POOL_PREFIX}…)",
                got="others, which may be either",
                hint=f"Give fill_type=, {NAME_HINT}",
            )
    return account_id, fill_type or "amm"


def _refuse_no_json(page: bytes | str, place: str) -> None:
    """Refuse a file that is no JSON, if it is known what it is."""
    refuse_inexact(page, place)
    if _csv_names(page) >= _OWN_FRAME:
        raise UnexpectedAnswer(
            place,
            expected="JSON",
            got="a frame of trades saved with DataFrame.to_csv",
            hint="It is read as it was by lab.tables.read_csv(file).",
        )
    if _start_of(page).startswith(_PARQUET):
        raise UnexpectedAnswer(
            place,
            expected="JSON",
            got="a Parquet file",
            hint="If it is a frame of trades, pyarrow.parquet.read_table(file) reads it exactly, and lab.fees, "
            "lab.fills and lab.figures take the table as it is.",
        )


def _csv_names(data: bytes | str) -> set[str]:
    """Return the names in the first line of a CSV file, in lower case."""
    first = _start_of(data).lstrip().partition("\n")[0]
    try:
        cells = next(csv.reader([first]), [])
    except csv.Error:
        return set()
    return {cell.strip().lower() for cell in cells}


def _start_of(data: bytes | str, most: int = 4096) -> str:
    """Return the first characters of what may be any file."""
    start = data[:most]
    return start if isinstance(start, str) else start.decode("utf-8-sig", "replace")


def _inexact(place: str, got: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(place, expected=_EXACT, got=got, hint=_EXACT_HINT)


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
