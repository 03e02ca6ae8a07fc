"""Saved responses found, read and added to an archive, without any relayer."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.delta import DeltaFolder
from loopring_lab.archive.merge import merge
from loopring_lab.archive.records import (
    HistoryKey,
    ListingSnapshot,
    RawPage,
    SyncRecord,
    held_identities,
    listings,
    store_listing,
    store_sync_records,
    to_rows,
)
from loopring_lab.errors import AmountError, LabError, UnexpectedAnswer
from loopring_lab.progress import Progress
from loopring_lab.tables import wire
from loopring_lab.tables.rows import FILL_TYPES

ENDINGS = (".json", ".jsonl", ".ndjson")
HISTORY_FILE = re.compile(r"(\d{1,10})-(amm|dex)\.")
GZIP = b"\x1f\x8b"
POOL_PREFIX = "AMM-"
TOKENS, MARKETS = "tokens.json", "markets.json"
BATCH_BYTES = 24 << 20

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Import:
    """Adds saved responses to an archive."""

    def __init__(
        self, folder: DeltaFolder, account_id: int | None, fill_type: str | None, progress: Progress
    ) -> None:
        self._folder, self._progress = folder, progress
        self._account_id, self._fill_type = account_id, fill_type
        self._totals: dict[HistoryKey, tuple[int, int]] = {}
        self._listings: dict[Path, ListingSnapshot] = {}
        self._listing: ListingSnapshot | None = None
        self._batch: dict[HistoryKey, list[RawPage]] = defaultdict(list)
        self._batch_bytes = self._rows = 0

    def run(self, paths: Paths) -> None:
        """Import every file; what was imported before is not duplicated."""
        files = find_files(paths)
        sizes = [file.stat().st_size for file in files]
        try:
            for number, file in enumerate(files, 1):
                self._use_listing(self._listing_of(file))
                self._add(file)
                self._progress(self._rows, self._rows * sum(sizes) // max(1, sum(sizes[:number])))
        finally:
            try:
                self._commit()
            finally:
                self._store_totals()

    def _listing_of(self, file: Path) -> ListingSnapshot:
        for folder in (file.parent, file.parent.parent):
            if (folder / TOKENS).is_file() and (folder / MARKETS).is_file():
                if folder not in self._listings:
                    self._listings[folder] = read_listing(folder)
                    store_listing(self._folder, self._listings[folder])
                return self._listings[folder]
        stored = list(listings(self._folder).values())
        if not stored:
            raise LabError(
                f"{file}: no {TOKENS} and {MARKETS} beside it or in the folder above. They "
                "scale amounts: save the answers of GET /exchange/tokens and GET /mix/markets there."
            )
        return stored[-1]

    def _use_listing(self, listing: ListingSnapshot) -> None:
        """Commit what other tokens and markets scale."""
        if self._listing is not None and listing.digest != self._listing.digest:
            self._commit()
        self._listing = listing

    def _add(self, file: Path) -> None:
        """Gather the pages of a file, and commit them when they are enough."""
        moment = _modified_ms(file)
        for body, batch in read_pages(file):
            key = history_of(file, batch, self._account_id, self._fill_type)
            if key is None:
                continue
            self._rows += len(batch.columns)
            if batch.totals[0] is not None:
                self._totals[key] = max((moment, wire.read_total(batch)), self._totals.get(key, (0, 0)))
            self._batch[key].append(RawPage(body, moment, batch))
            self._batch_bytes += len(body)
            if self._batch_bytes >= BATCH_BYTES:
                self._commit()

    def _commit(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, defaultdict(list), 0
        parts, errors = [], []
        for key, pages in batch.items():
            try:
                parts += [to_rows(key, pages, self._listing)] if self._listing else []
            except (UnexpectedAnswer, AmountError) as error:
                errors.append(error)
        if parts:
            merge(self._folder, pa.concat_tables(parts))
        if errors:
            raise errors[0]

    def _store_totals(self) -> None:
        """Record what the relayer counted in its latest answer."""
        records = []
        for key, (moment, total) in self._totals.items():
            complete = len(held_identities(self._folder, key)) == total
            records.append(SyncRecord(*key, moment, total, 0 if complete else None))
        store_sync_records(self._folder, records)


def find_files(paths: Paths) -> list[Path]:
    """Find the files of trades among files and folders."""
    every = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [file for path in map(Path, every) for file in _files_in(path)]
    return [file for file in files if file.name not in (TOKENS, MARKETS)]


def read_listing(folder: Path) -> ListingSnapshot:
    """Read the tokens and markets of a folder."""
    files = [folder / TOKENS, folder / MARKETS]
    tokens, markets = (file.read_text(encoding="utf-8") for file in files)
    moment = min(map(_modified_ms, files))
    return ListingSnapshot(tokens, markets, f"recording {folder.resolve().name}", False, moment)


def read_pages(file: Path) -> Iterator[tuple[bytes, wire.Batch]]:
    """Read the pages of a file: one, or one a line; packed with gzip or not."""
    number = 0
    for bodies in _group(_bodies(file)):
        numbers = range(number, number + len(bodies))
        places = [file.name if number == 0 else f"{file.name}, page {number + 1}" for number in numbers]
        for body, batch in zip(bodies, wire.read_each(bodies, places), strict=True):
            if isinstance(batch, UnexpectedAnswer):
                raise batch
            yield body, batch
        number += len(bodies)


def history_of(
    file: Path, batch: wire.Batch, account_id: int | None, fill_type: str | None
) -> HistoryKey | None:
    """Tell whose trades a page has: by the arguments, the file's name, or its rows; None for no rows."""
    named = HISTORY_FILE.match(file.name)
    if named:
        account_id = int(named[1]) if account_id is None else account_id
        fill_type = fill_type or named[2]
    if account_id is None or fill_type is None:
        if not len(batch.columns):
            return None
        account_id = _account_in(batch) if account_id is None else account_id
        fill_type = fill_type or _fill_type_in(batch)
    return account_id, fill_type


def _account_in(batch: wire.Batch) -> int:
    accounts = pc.unique(batch.columns["accountId"]).to_pylist()
    if len(accounts) != 1 or not str(accounts[0]).isdecimal():
        raise UnexpectedAnswer(
            f"{batch.places[0]}, accountId",
            expected="one account",
            got="rows of several accounts" if len(accounts) > 1 else "rows that do not say",
            hint="Give account_id=, or name the file <accountId>-<amm or dex>.json.",
        )
    return int(accounts[0])


def _fill_type_in(batch: wire.Batch) -> str:
    if not pc.all(pc.starts_with(batch.columns["market"], POOL_PREFIX)).as_py():
        raise UnexpectedAnswer(
            f"{batch.places[0]}, market",
            expected=f"pool fills ({POOL_PREFIX}…)",
            got="others, which may be either",
            hint="Give fill_type=, or name the file <accountId>-<amm or dex>.json.",
        )
    return FILL_TYPES[0]


def _files_in(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise LabError(f"{path}: no such file or folder. Name saved answers of the trades endpoint.")
    folder = path / "trades" if (path / "trades").is_dir() else path
    found = sorted(file for file in folder.iterdir() if file.name.removesuffix(".gz").endswith(ENDINGS))
    if not found:
        raise LabError(
            f"{path}: no file that ends in {', '.join(ENDINGS)}, packed or not. Name another folder."
        )
    return found


def _bodies(file: Path) -> Iterator[bytes]:
    """Yield the documents of a file: each line that is one, else the whole."""
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


def _group(bodies: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Group pages to be parsed together; those before the place where a file breaks off come first."""
    group, size = list[bytes](), 0
    try:
        for body in bodies:
            group.append(body)
            size += len(body)
            if size >= wire.GROUP_BYTES:
                yield group
                group, size = [], 0
    except UnexpectedAnswer:
        yield group
        raise
    yield group


def _is_document(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _modified_ms(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000
