"""Saved responses found, read and added to an archive, without any relayer."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.delta import DeltaFolder
from loopring_lab.archive.merge import merge
from loopring_lab.archive.records import (
    Count,
    History,
    ListingSnapshot,
    Page,
    held_identities,
    keep_counts,
    keep_listing,
    listings,
    to_rows,
)
from loopring_lab.errors import AmountError, LabError, UnexpectedAnswer
from loopring_lab.paging import read_total
from loopring_lab.progress import Progress
from loopring_lab.tables import wire
from loopring_lab.tables.rows import FILL_TYPES

ENDINGS = (".json", ".jsonl", ".ndjson")
NAMED = re.compile(r"(\d{1,10})-(amm|dex)\.")
GZIP = b"\x1f\x8b"
POOL_PREFIX = "AMM-"
TOKENS, MARKETS = "tokens.json", "markets.json"


class Saved(NamedTuple):
    """Files to import: of trades, and the folder with the tokens and markets of each, where there is one."""

    files: list[Path]
    listings: dict[Path, Path]


def find(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Saved:
    """Find files of trades, and the ``tokens.json`` and ``markets.json`` beside or above each."""
    every = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [file for path in map(Path, every) for file in _files(path)]
    above = {file.parent: [file.parent, file.parent.parent] for file in files}
    homes = {
        folder: home
        for folder, homes in above.items()
        for home in reversed(homes)
        if (home / TOKENS).is_file() and (home / MARKETS).is_file()
    }
    return Saved([file for file in files if file.name not in (TOKENS, MARKETS)], homes)


def listed(home: Path) -> ListingSnapshot:
    """Read the tokens and markets of a folder."""
    tokens, markets = home / TOKENS, home / MARKETS
    moment = min(_moment(tokens), _moment(markets))
    texts = [path.read_text(encoding="utf-8") for path in (tokens, markets)]
    return ListingSnapshot(texts[0], texts[1], f"recording {home.resolve().name}", False, moment)


def read(file: Path, account_id: int | None, fill_type: str | None) -> Iterator[tuple[Page, int, int | None]]:
    """Read the pages of a file: one, or one a line; packed with gzip or not."""
    name, moment = NAMED.match(file.name), _moment(file)
    account = account_id if account_id is not None or not name else int(name[1])
    kind = fill_type or (name[2] if name else None)
    for number, body in enumerate(_bodies(file)):
        where = file.name if number == 0 else f"{file.name}, page {number + 1}"
        answer = wire.parse(body, where)
        rows = wire.page_rows(answer, where)
        counted = None if answer.get("totalNum") is None else read_total(answer, where)
        if account is not None and kind:
            yield Page(account, kind, body, moment, where), len(rows), counted
        elif rows:
            yield Page(*_told(body, where, account, kind), body, moment, where), len(rows), counted


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise LabError(f"{path}: no such file or folder. Name saved answers of the trades endpoint.")
    folder = path / "trades" if (path / "trades").is_dir() else path
    found = sorted(file for file in folder.iterdir() if _stem(file).endswith(ENDINGS))
    if not found:
        raise LabError(
            f"{path}: no file that ends in {', '.join(ENDINGS)}, packed or not. Name another folder."
        )
    return found


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz")


def _bodies(file: Path) -> Iterator[bytes]:
    """Give the documents of a file: each line that is one, else the whole."""
    with file.open("rb") as raw:
        packed = raw.read(2) == GZIP
    try:
        with gzip.open(file) if packed else file.open("rb") as text:
            first = text.readline()
            if _is_document(first):
                yield first.strip()
                yield from filter(None, map(bytes.strip, text))
            else:
                yield first + text.read()
    except (EOFError, gzip.BadGzipFile) as error:
        hint = "Save it again; the pages before it are imported."
        raise UnexpectedAnswer(file.name, expected="a whole gzip file", got=str(error), hint=hint) from None


def _is_document(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _told(body: bytes, where: str, account: int | None, kind: str | None) -> tuple[int, str]:
    """Learn from the rows of a page whose they are, and whether they are a pool's."""
    columns = wire.read([body]).columns
    accounts = pc.unique(columns["accountId"]).to_pylist()
    if account is None:
        if len(accounts) != 1 or not str(accounts[0]).isdecimal():
            hint = "Give account_id=, or name the file <accountId>-<amm or dex>.json."
            got = "rows of several accounts" if len(accounts) > 1 else "rows that do not say"
            raise UnexpectedAnswer(f"{where}, accountId", expected="one account", got=got, hint=hint)
        account = int(accounts[0])
    if kind is None:
        if not pc.all(pc.starts_with(columns["market"], POOL_PREFIX)).as_py():
            hint = "Give fill_type=, or name the file <accountId>-<amm or dex>.json."
            raise UnexpectedAnswer(
                f"{where}, market",
                expected=f"pool fills ({POOL_PREFIX}…)",
                got="others, which may be either",
                hint=hint,
            )
        kind = FILL_TYPES[0]
    return account, kind


def _moment(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


BATCH_BYTES = 24 << 20

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Import:
    """Adds saved responses to an archive."""

    def __init__(
        self, disk: DeltaFolder, account_id: int | None, fill_type: str | None, progress: Progress
    ) -> None:
        self._disk, self._account, self._kind, self._progress = disk, account_id, fill_type, progress
        self._counted: dict[History, tuple[int, int]] = {}
        self._homes: dict[Path, ListingSnapshot] = {}
        self._batch: list[Page] = []
        self._scale: ListingSnapshot | None = None
        self._size = self._read = 0

    def run(self, paths: Paths) -> None:
        """Import every file; what was imported before is not doubled."""
        found = find(paths)
        sizes = [file.stat().st_size for file in found.files]
        try:
            for number, file in enumerate(found.files, 1):
                self._add(file, self._listed(found.listings.get(file.parent), file))
                self._progress(self._read, self._read * sum(sizes) // max(1, sum(sizes[:number])))
        finally:
            try:
                self._commit()
            finally:
                self._count()

    def _add(self, file: Path, listed: ListingSnapshot) -> None:
        """Gather the pages of a file; commit what is enough, and what other tokens and markets scale."""
        if self._scale is not None and listed.name != self._scale.name:
            self._commit()
        self._scale = listed
        for page, rows, counted in read(file, self._account, self._kind):
            self._note(page, rows, counted)
            self._batch.append(page)
            self._size += len(page.body)
            if self._size >= BATCH_BYTES:
                self._commit()

    def _listed(self, home: Path | None, file: Path) -> ListingSnapshot:
        if home is None:
            known = list(listings(self._disk).values())
            if not known:
                raise LabError(
                    f"{file}: no {TOKENS} and {MARKETS} beside it or in the folder above. They "
                    "scale amounts: save the answers of GET /exchange/tokens and GET /mix/markets there."
                )
            return known[-1]
        if home not in self._homes:
            self._homes[home] = listed(home)
            keep_listing(self._disk, self._homes[home])
        return self._homes[home]

    def _commit(self) -> None:
        batch, self._batch, self._size = self._batch, [], 0
        by_history: dict[History, list[Page]] = defaultdict(list)
        for page in batch:
            by_history[page.account_id, page.fill_type].append(page)
        parts, errors = [], []
        for some in by_history.values():
            try:
                parts += [to_rows(some, self._scale)] if self._scale else []
            except (UnexpectedAnswer, AmountError) as error:
                errors.append(error)
        if parts:
            merge(self._disk, pa.concat_tables(parts))
        if errors:
            raise errors[0]

    def _note(self, page: Page, rows: int, counted: int | None) -> None:
        """Remember what the relayer counted in its latest answer."""
        self._read += rows
        history = page.account_id, page.fill_type
        if counted is not None:
            self._counted[history] = max((page.moment, counted), self._counted.get(history, (0, 0)))

    def _count(self) -> None:
        """Note what the relayer counted when it gave these pages."""
        fresh = []
        for history, (moment, counted) in self._counted.items():
            complete = len(held_identities(self._disk, history)) == counted
            fresh.append(Count(*history, moment, counted, 0 if complete else None))
        keep_counts(self._disk, fresh)
