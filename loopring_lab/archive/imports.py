"""Import of saved responses into an archive, without a relayer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive import merge, queries
from loopring_lab.archive.queries import SyncRecord
from loopring_lab.archive.rows import HistoryKey, ListingSnapshot, RawPage
from loopring_lab.archive.sync import convert
from loopring_lab.bounded import (
    MAX_ANSWER,
    MAX_DOCUMENT,
    Paths,
    find_files,
    parse_integer,
    printable,
    read_documents,
    read_text,
)
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.progress import Progress
from loopring_lab.source import FILE, Source
from loopring_lab.storage import StoredFile
from loopring_lab.tables import wire
from loopring_lab.tables.rows import FILL_TYPES

ENDINGS = (".json", ".jsonl", ".ndjson")
HISTORY_FILE = re.compile(r"([0-9]{1,10})-(amm|dex)\.")
POOL_PREFIX = "AMM-"
TOKENS, MARKETS = "tokens.json", "markets.json"
BATCH_BYTES = 24 << 20

_FILE_HINT = "Save it again; the pages before it are imported."


class Import:
    """Adds saved responses to an archive."""

    def __init__(
        self,
        file: StoredFile,
        account_id: int | None,
        fill_type: str | None,
        source: str | None,
        progress: Progress,
    ) -> None:
        self._archive, self._progress = file, progress
        self._account_id, self._fill_type, self._named = account_id, fill_type, source
        self._totals: dict[HistoryKey, tuple[int, int]] = {}
        self._listings: dict[Path, ListingSnapshot] = {}
        self._bound: dict[Path, Source] = {}
        self._source: Source | None = None  # of the file that is read
        self._listing: ListingSnapshot | None = None
        self._archived: ListingSnapshot | None = None
        self._batch: dict[HistoryKey, list[RawPage]] = defaultdict(list)
        self._batch_bytes = self._rows = 0

    def run(self, paths: Paths) -> None:
        """Import every file; what was imported before is not duplicated."""
        files = _find_files(paths)
        sizes = [file.stat().st_size if file.exists() else 0 for file in files]
        try:
            for number, file in enumerate(files, 1):
                self._add(file)
                self._progress(self._rows, self._rows * sum(sizes) // max(1, sum(sizes[:number])))
        except Exception:
            self._finish()
            raise
        self._finish()  # but not after a Ctrl-C, which this would answer late: the next import reads the rest

    def _finish(self) -> None:
        try:
            self._commit()
        finally:
            self._store_totals()

    def _add(self, file: Path) -> None:
        """Collect the pages of a file, and commit them once there are enough."""
        listing = self._listing_of(file)
        if self._listing is not None and listing.digest != self._listing.digest:
            self._commit()
        self._listing = listing
        moment = _modified_ms(file)
        for body, batch in _read_pages(file):
            key = _history_of(file, batch, self._account_id, self._fill_type)
            if key is None:
                continue
            self._rows += len(batch.columns)
            if batch.totals[0] is not None:
                self._totals[key] = max((moment, wire.read_total(batch)), self._totals.get(key, (0, 0)))
            if not len(batch.columns):
                continue
            self._batch[key].append(RawPage(body, moment, batch))
            self._batch_bytes += len(body)
            if self._batch_bytes >= BATCH_BYTES:
                self._commit()

    def _listing_of(self, file: Path) -> ListingSnapshot:
        """Return the tokens and markets saved with a file, or else those of the archive."""
        for folder in (file.parent, file.parent.parent):
            if (folder / TOKENS).is_file() and (folder / MARKETS).is_file():
                source = self._source_of(file, folder)
                listing = self._listings.get(folder) or _read_listing(folder)
                self._bind(file, source, listing)
                self._listings[folder] = listing
                return listing
        if self._archived is None and self._archive.source():
            with self._archive.reading() as connection:
                self._archived = next(reversed(queries.listings(connection).values()), None)
        if self._archived is None:
            raise LabError(
                f"{file}: no {TOKENS} and {MARKETS} beside it or in the folder above. They "
                "scale amounts: save the answers of GET /exchange/tokens and GET /mix/markets there."
            )
        self._bind(file, self._source_of(file, file.parent), self._archived)
        return self._archived

    def _source_of(self, file: Path, folder: Path) -> Source:
        """Return the identity of a file: as stated beside it, as given, or else the path of its folder."""
        if file.parent in self._bound:
            return self._bound[file.parent]
        source = Source.of_saved(folder, self._named, file.parent, file.parent.parent)
        bound = self._archive.source()
        return bound if bound and bound.name == self._named == source.name else source

    def _bind(self, file: Path, source: Source, listing: ListingSnapshot) -> None:
        """Bind the archive to the source of a file, in a transaction that stores the listing."""
        if file.parent not in self._bound:
            with self._archive.writing(source) as connection:
                queries.refuse_blocks(connection, self._archive)
                queries.store_listing(connection, listing)
            self._bound[file.parent] = source
        self._source = self._bound[file.parent]

    def _commit(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, defaultdict(list), 0
        if not self._listing:
            return
        parts, errors = convert(batch, self._listing)
        if parts:
            with self._archive.writing(self._source) as connection:
                merge.add(connection, pa.concat_tables(parts), imported=True)
        for error in errors.values():
            raise error

    def _store_totals(self) -> None:
        """Record what the relayer counted in its latest answer."""
        counted = []
        for key, (moment, total) in self._totals.items():
            complete = len(queries.held_identities(self._archive, key)) == total
            counted.append(SyncRecord(*key, moment, total, 0 if complete else None))
        if counted:
            with self._archive.writing(self._source) as connection:
                queries.store_sync_records(connection, counted)
        self._archive.settle()


def _find_files(paths: Paths) -> list[Path]:
    """Find the files of trades among files and folders."""
    files = find_files(paths, ENDINGS, "Give saved responses of the trades endpoint.", inside="trades")
    return [file for file in files if file.name not in (TOKENS, MARKETS, FILE)]


def _read_listing(folder: Path) -> ListingSnapshot:
    files = [folder / TOKENS, folder / MARKETS]
    tokens, markets = (read_text(file, size=MAX_ANSWER) for file in files)
    moment = min(map(_modified_ms, files))
    return ListingSnapshot(tokens, markets, moment)


def _read_pages(file: Path) -> Iterator[tuple[bytes, wire.Batch]]:
    """Read the pages of a file: one, or one per line; compressed with gzip or not."""
    count = 0
    for bodies in wire.group(read_documents(file, hint=_FILE_HINT)):
        numbers = range(count + 1, count + 1 + len(bodies))
        name = printable(file.name)
        places = [name if number == 1 else f"{name}, page {number}" for number in numbers]
        count += len(bodies)
        batches = wire.read_each(bodies, places, size=MAX_DOCUMENT)
        for body, batch in zip(bodies, batches, strict=True):
            if isinstance(batch, UnexpectedAnswer):
                raise batch
            yield body, batch


def _history_of(file: Path, batch: wire.Batch, account_id: int | None, fill_type: str | None) -> HistoryKey | None:
    """Tell whose trades a page has: by the arguments, the file's name, or its rows; None without rows."""
    if named := HISTORY_FILE.match(file.name):
        account_id = int(named[1]) if account_id is None else account_id
        fill_type = fill_type or named[2]
    if not len(batch.columns) and (account_id is None or fill_type is None):
        return None
    return _account_in(batch) if account_id is None else account_id, fill_type or _fill_type_in(batch)


def _account_in(batch: wire.Batch) -> int:
    accounts = pc.unique(batch.columns["accountId"]).to_pylist()
    account = parse_integer(accounts[0]) if len(accounts) == 1 else None
    if account is None or account < 0:
        raise UnexpectedAnswer(
            f"{batch.places[0]}, accountId",
            expected="one account",
            got="rows of several accounts" if len(accounts) > 1 else "rows that do not say",
            hint="Give account_id=, or name the file <accountId>-<amm or dex>.json.",
        )
    return account


def _fill_type_in(batch: wire.Batch) -> str:
    if not pc.all(pc.starts_with(batch.columns["market"], POOL_PREFIX)).as_py():
        raise UnexpectedAnswer(
            f"{batch.places[0]}, market",
            expected=f"pool fills ({POOL_PREFIX}…)",
            got="others, which may be either",
            hint="Give fill_type=, or name the file <accountId>-<amm or dex>.json.",
        )
    return FILL_TYPES[0]


def _modified_ms(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        name, got = printable(file.name), str(error.strerror)
        raise UnexpectedAnswer(name, expected="a readable file", got=got, hint=_FILE_HINT) from None
