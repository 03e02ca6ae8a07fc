"""Saved answers of a relayer: pages of trades in a folder or in one file, and what is known of them."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.bounded import (
    MAX_ANSWER,
    parse_integer,
    parse_json,
    pieces,
    printable,
    read_documents,
    read_file,
    read_text,
)
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.origin import FILE, Source
from loopring_lab.tables import wire
from loopring_lab.tables.har import START, Har, pages_in, read_har
from loopring_lab.tables.listings import POOL_PREFIX
from loopring_lab.tables.rows import FILL_TYPES
from loopring_lab.tables.wire import HistoryKey, Page

LISTING = ("tokens.json", "markets.json")
SAVE_LISTING = "They scale amounts: save the answers of GET /exchange/tokens and GET /mix/markets there."
NO_LISTING = f"no {' and '.join(LISTING)} in it or in the folder above"
BUNDLED = "the exchange's own, as this package brings them"
HINT = "Save it again, or give another file."
FOLDER_FILES = "tokens.json, markets.json and trades/<accountId>-<amm or dex>.json"
FOLDER_HINT = f"Fix or replace the recording; it holds {FOLDER_FILES}."
HISTORY_NAME = re.compile(r"(0|[1-9][0-9]{0,9})-(amm|dex)\.json")
# What else may be one would be missed without a word; notes and files of the system are none.
ANSWERS_NAME = re.compile(r"[0-9].*|.*\.(json|jsonl|ndjson|har)(\.gz)?")
# The account and the fill type of a file's pages, as its name has them.
HISTORY_FILE = re.compile(r"([0-9]{1,10})-(amm|dex)\.")
NAME_HINT = "or name the file <accountId>-<amm or dex>.json."
MARKET = wire.MEMBERS.index("market")
ACCOUNT = wire.MEMBERS.index("accountId")

Pages = dict[HistoryKey, list[wire.Batch]]
"""The pages of each account and fill type, in the order in which they were saved."""


class Contents(NamedTuple):
    """What saved answers hold: the answers with tokens and markets as JSON text, and pages of trades.

    The note, for readers, says what the files do not hold; it is empty if there is nothing to say.
    """

    source: Source
    listing: tuple[str, str]
    pages: Pages
    note: str

    def pages_of(self, account_id: int, fill_type: str) -> Sequence[wire.Batch]:
        """Return the pages of an account and a fill type, none if it has no file."""
        return self.pages.get((account_id, fill_type), ())


def is_har(file: Path, hint: str) -> bool:
    """Tell whether a file begins as a HAR file does."""
    start = next(pieces(file, printable(file.name), hint), b"")
    return START.search(start) is not None


def open_har(file: Path, hint: str) -> Har:
    """Read a HAR file."""
    name = printable(file.name)
    answer = parse_json(read_file(file, hint=hint), name, hint=hint)
    return read_har(answer, name)


def read_pages(file: Path, hint: str = HINT) -> Iterator[Page]:
    """Yield the pages of a file that is no HAR file: of one answer, or of one in each line."""
    name = printable(file.name)
    for number, document in enumerate(read_documents(file, hint=hint), 1):
        place = name if number == 1 else f"{name}, page {number}"
        yield from pages_in(wire.parse(document, place), place)


def histories(
    name: str,
    pages: Iterable[Page],
    account_id: int | None = None,
    fill_type: str | None = None,
) -> Iterator[tuple[HistoryKey, wire.Batch]]:
    """Tell whose each page in a file is, as given or said there, and read its rows.

    Empty pages of which neither is known are left out.
    """
    for page in pages:
        for part in _by_fill_type(page, name, fill_type):
            known = _history_of(name, part, account_id, fill_type)
            if known is not None:
                yield known, wire.to_batch([part])


def _by_fill_type(page: Page, name: str, fill_type: str | None) -> list[Page]:
    """Part a page of an unknown fill type: a relayer that prefixes the markets of pools prefixes all of them."""
    if page.fill_type or fill_type or HISTORY_FILE.match(name):
        return [page]
    pools = [row for row in page.rows if _is_of_pool(row)]
    books = [row for row in page.rows if not _is_of_pool(row)]
    if not pools or not books:
        return [page]
    # The count is of both together, and so of neither.
    return [
        page._replace(rows=pools, total=None, fill_type="amm"),
        page._replace(rows=books, total=None, fill_type="dex"),
    ]


def _is_of_pool(row: Any) -> bool:
    market = None if wire.fault_of(row) else row[MARKET]
    return isinstance(market, str) and market.startswith(POOL_PREFIX)


def _history_of(
    name: str, page: Page, account_id: int | None, fill_type: str | None
) -> HistoryKey | None:
    """Tell whose trades a page has: by the arguments, its request, the file's name, or its rows."""
    named = HISTORY_FILE.match(name)
    known = page.agreed(account_id, fill_type)
    account = known.account_id
    kind = known.fill_type
    if named:
        # The account may differ: some number their files, and rows mostly say whose they are.
        Page([], None, name, fill_type=named[2]).agreed(None, fill_type)
        account = int(named[1]) if account is None else account
        kind = kind or named[2]
    if not page.rows and (account is None or kind is None):
        return None
    if account is None:
        account = _account_in(page)
    if kind is None:
        if not all(map(_is_of_pool, page.rows)):
            raise UnexpectedAnswer(
                f"{page.place}, market",
                expected=f"pool fills ({POOL_PREFIX}…)",
                got="others, which may be either",
                hint=f"Give fill_type=, {NAME_HINT}",
            )
        kind = "amm"
    return account, kind


def _account_in(page: Page) -> int:
    """Return the one account that the rows of a page name."""
    trades = [row for row in page.rows if wire.fault_of(row) is None]
    texts = {row[ACCOUNT] if len(row) > ACCOUNT else None for row in trades}
    accounts = {None if text is None else parse_integer(str(text)) for text in texts}
    account = accounts.pop() if len(accounts) == 1 else None
    if account is None or account < 0:
        raise UnexpectedAnswer(
            f"{page.place}, accountId",
            expected="one account",
            got="rows of several accounts" if accounts else "rows that do not say",
            hint=f"Give account_id=, {NAME_HINT}",
        )
    return account


def find_listing(places: Iterable[Path]) -> tuple[Path, tuple[str, str]] | None:
    """Read the answers with the tokens and the markets from the first folder that has both, if one has."""
    for folder in places:
        files = [folder / name for name in LISTING]
        if all(file.is_file() for file in files):
            tokens, markets = (read_text(file, size=MAX_ANSWER) for file in files)
            return folder, (tokens, markets)
    return None


def source_of(
    saved: Path, name: str | None, places: Iterable[Path], har: Har | None
) -> Source:
    """Return the identity of a file: as the relayer in it stated, or as that of saved responses.

    The relayer in a HAR file is known by its address, as one that is asked: two of them may be in one folder.
    """
    stated = None
    if har and har.source:
        stated = Source.read(har.source, f"{printable(saved.name)}, {FILE}")
    known = (har and har.relayer) or saved
    return Source.of_saved(known, name, *places, stated=stated)


def read_folder(folder: Path, name: str | None) -> Contents:
    """Read a folder of saved answers: each file of trades is one whole history, which its name tells."""
    _check_folder(folder)
    tokens, markets = (
        read_text(folder / file, size=MAX_ANSWER, hint=FOLDER_HINT) for file in LISTING
    )
    pages: Pages = {}
    trades = folder / "trades"
    for file in sorted(trades.glob("[!.]*")):
        named = HISTORY_NAME.fullmatch(file.name)
        if not named:
            if ANSWERS_NAME.fullmatch(file.name):
                got = printable(file.name)
                raise _invalid("trades", "<accountId>-<amm or dex>.json", got)
            continue
        key = (int(named[1]), named[2])
        try:
            pages[key] = _read_history(file, *key)
        except UnexpectedAnswer as fault:
            where = f"trades/{fault.field}"
            raise _invalid(where, str(fault.expected), str(fault.got)) from None
    if not pages:
        raise _invalid("trades", "at least one file of trades", "none")
    identity = Source.of_saved(folder, name, folder)
    return Contents(identity, (tokens, markets), pages, _missing_types(folder, pages))


def _check_folder(folder: Path) -> None:
    """Refuse what is no folder of saved answers, with what it is instead."""
    got = ""
    if not folder.is_dir():
        got = "no such folder"
    elif not any(os.path.lexists(folder / name) for name in LISTING):
        got = f"a folder without {' and '.join(LISTING)}"
    if got:
        raise UnexpectedAnswer(
            f"recording {printable(str(folder), 200)}",
            expected="a folder of saved responses",
            got=got,
            hint=f"Give the folder that holds {FOLDER_FILES}, or a file of trades.",
        )


def _read_history(file: Path, account_id: int, fill_type: str) -> list[wire.Batch]:
    """Read a file that holds the one history that its name tells, and as many rows as it counts."""
    name = printable(file.name)
    found = histories(name, read_pages(file, FOLDER_HINT), account_id, fill_type)
    pages = [page for _, page in found]
    rows = count_rows(pages)
    total = max(map(wire.read_total, pages))
    if total != rows:
        raise _invalid(f"{name}, totalNum", f"the number of rows, {rows}", str(total))
    return pages


def _missing_types(folder: Path, pages: Pages) -> str:
    """Warn of accounts with a file for one fill type only; the other counts as no trades."""
    accounts = {account for account, _ in pages}
    expected = itertools.product(sorted(accounts), FILL_TYPES)
    missing = [
        f"{account}-{kind}"
        for account, kind in expected
        if (account, kind) not in pages
    ]
    if not missing:
        return ""
    count = "1 account is" if len(missing) == 1 else f"{len(missing)} accounts are"
    return (
        f"recording {folder.name}: {count} saved with one fill type only; a missing file counts as no trades. "
        f"If there may be some, save them too: trades/{missing[0]}.json."
    )


def read_one(file: Path, name: str | None) -> Contents:
    """Read one file of trades; its note says what tokens and markets rest on, and what is not in it."""
    har = open_har(file, HINT) if is_har(file, HINT) else None
    shown_name = printable(file.name)
    pages: Pages = {}
    for key, page in histories(shown_name, har.pages if har else read_pages(file)):
        pages.setdefault(key, []).append(page)
    batches = [page for saved in pages.values() for page in saved]
    # Without a row, it would be a recording of nothing, and answer every account with no trades.
    if not any(len(page.columns) for page in batches):
        raise UnexpectedAnswer(
            shown_name, expected="pages of trades", got="pages without rows", hint=HINT
        )
    # A file of a recording is in its folder of trades; what says of which source it is, is above that.
    places = file.parents[:2]
    identity = source_of(file, name, places, har)
    listing, whence = _listing(places, har, markets_in(batches))
    notes = [f"tokens and markets are {whence}"]
    for (account, kind), saved in pages.items():
        rows = count_rows(saved)
        counting = [page for page in saved if page.totals[0] is not None]
        totals = list(map(wire.read_total, counting))
        if not totals or max(totals) > rows:
            known = f"{max(totals):,}" if totals else "an unknown number of"
            notes.append(
                f"account {account} has {rows:,} of {known} {kind.upper()} fills"
            )
    notes += [
        f"account {account} has no {other.upper()} fills in it"
        for account, kind in pages
        for other in FILL_TYPES
        if (account, other) not in pages
    ]
    return Contents(identity, listing, pages, f"{file.name}: {'; '.join(notes)}.")


def count_rows(pages: Sequence[wire.Batch]) -> int:
    """Count the rows of pages; one that is on two pages is one row."""
    texts = [page.columns["text"] for page in pages]
    return int(pc.count_distinct(pa.chunked_array(texts, pa.string())).as_py())


def markets_in(pages: Iterable[wire.Batch]) -> set[str]:
    """Return the names of the markets in rows."""
    found: set[str] = set()
    for page in pages:
        found.update(page.columns["market"].unique().drop_null().to_pylist())
    return found


def _invalid(where: str, expected: str, got: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(where, expected=expected, got=got, hint=FOLDER_HINT)


def _listing(
    places: Sequence[Path], har: Har | None, markets: set[str]
) -> tuple[tuple[str, str], str]:
    """Return the text of tokens and markets, and where they come from."""
    if har and har.listing:
        return har.listing, "those in the file"
    found = find_listing(places)
    if found:
        folder, texts = found
        where = "beside it" if folder == places[0] else "in the folder above"
        return texts, f"those in {' and '.join(LISTING)} {where}"
    return bundled_listing(places[0], markets), BUNDLED


def bundled_listing(folder: Path, used: set[str]) -> tuple[str, str]:
    """Return ids and decimals of the real exchange, if the package has those of all markets that rows use."""
    # This is imported late, as only a file without a listing needs it.
    from loopring_lab.relayer.mainnet import MARKETS, TOKENS

    names = {name.removeprefix(POOL_PREFIX) for name in used}
    missing = sorted(names - MARKETS.keys())
    if missing:
        raise LabError(
            f"{folder}: {NO_LISTING}, and the package does not bring the market {printable(missing[0], 40)}. "
            f"{SAVE_LISTING}"
        )
    # The listing has only what is the exchange's own: the package makes limits and dates up for its world.
    tokens = [
        {
            "type": "ERC20" if token.id else "ETH",
            "tokenId": token.id,
            "symbol": token.symbol,
            "name": token.name,
            "address": token.address,
            "decimals": token.decimals,
        }
        for token in TOKENS.values()
    ]
    markets = [
        {"market": name, "baseTokenId": market.base.id, "quoteTokenId": market.quote.id}
        for name, market in MARKETS.items()
    ]
    return json.dumps(tokens), json.dumps({"markets": markets})
