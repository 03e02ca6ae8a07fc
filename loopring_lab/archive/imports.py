"""Import of saved responses into an archive, without a relayer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from loopring_lab.archive import merge, queries
from loopring_lab.archive.queries import SyncRecord
from loopring_lab.archive.rows import HistoryKey, ListingSnapshot, RawPage, convert
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

ENDINGS = (".json", ".jsonl", ".ndjson")
HISTORY_FILE = re.compile(r"([0-9]{1,10})-(amm|dex)\.")
POOL_PREFIX = "AMM-"
TOKENS, MARKETS = "tokens.json", "markets.json"
# Of pages, some 120,000 rows, whose conversion takes some 0.5 GB.
BATCH_BYTES = 24 << 20

_FILE_HINT = "Save it again; the pages before it are imported."
_NAME_HINT = "or name the file <accountId>-<amm or dex>.json."


class Origin(NamedTuple):
    """What is known of the files of a folder: where they are from, and the tokens and markets saved with them."""

    source: Source
    listing: ListingSnapshot


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
        self._archive = file
        self._progress = progress
        self._account_id = account_id
        self._fill_type = fill_type
        self._named = source
        self._origins: dict[Path, Origin] = {}  # by folder
        self._origin: Origin | None = None  # of the pages in the batch
        self._batch: dict[HistoryKey, list[RawPage]] = defaultdict(list)
        self._batch_bytes = 0
        self._rows = 0
        self._totals: dict[
            HistoryKey, tuple[int, int]
        ] = {}  # the latest moment, and what was counted then

    def run(self, paths: Paths) -> None:
        """Import every file; what was imported before is not duplicated."""
        files = find_files(
            paths,
            ENDINGS,
            "Give saved responses of the trades endpoint.",
            inside="trades",
        )
        files = [file for file in files if file.name not in (TOKENS, MARKETS, FILE)]
        sizes = [file.stat().st_size if file.exists() else 0 for file in files]
        try:
            for number, file in enumerate(files, 1):
                self._add(file)
                self._progress(
                    self._rows, self._rows * sum(sizes) // max(1, sum(sizes[:number]))
                )
        except Exception:
            self._finish()
            raise
        self._finish()  # but not after a Ctrl-C, which this would answer late: the next import reads the rest

    def _finish(self) -> None:
        try:
            self._commit()
        finally:
            if self._origin and self._totals:
                with self._archive.writing(self._origin.source) as connection:
                    for key, (moment, total) in self._totals.items():
                        queries.store_count(
                            connection, SyncRecord(*key, moment, total, gone=None)
                        )
            self._archive.settle()

    def _add(self, file: Path) -> None:
        """Collect the pages of a file, and commit them once there are enough."""
        if file.parent not in self._origins:
            self._origins[file.parent] = self._origin_of(file)
        origin = self._origins[file.parent]
        if origin != self._origin:
            self._commit()
            self._origin = origin
        moment = _modified_ms(file)
        for body, batch in _read_pages(file):
            key = _history_of(file, batch, self._account_id, self._fill_type)
            if key is None:
                continue
            self._rows += len(batch.columns)
            if batch.totals[0] is not None:
                counted = (moment, wire.read_total(batch))
                self._totals[key] = max(counted, self._totals.get(key, counted))
            if len(batch.columns):
                self._batch[key].append(RawPage(body, moment, batch))
                self._batch_bytes += len(body)
            if self._batch_bytes >= BATCH_BYTES:
                self._commit()

    def _origin_of(self, file: Path) -> Origin:
        """Bind the archive to the source of a file, in a transaction that stores the listing."""
        folder, parent = file.parent, file.parent.parent
        places = [
            place
            for place in (folder, parent)
            if (place / TOKENS).is_file() and (place / MARKETS).is_file()
        ]
        bound = self._archive.source()
        listing = None
        if places:
            listing = _read_listing(places[0])
        elif bound:
            with self._archive.reading() as connection:
                listing = queries.last_listing(connection)
        if listing is None:
            raise LabError(
                f"{file}: no {TOKENS} and {MARKETS} beside it or in the folder above. They scale amounts: save "
                "the answers of GET /exchange/tokens and GET /mix/markets there."
            )
        source = Source.of_saved(
            places[0] if places else folder, self._named, folder, parent
        )
        if bound and bound.name == self._named == source.name:
            source = bound
        with self._archive.writing(source) as connection:
            queries.store_listing(connection, self._archive, listing)
        return Origin(source, listing)

    def _commit(self) -> None:
        if not self._origin or not self._batch:
            return
        rows, errors = convert(self._batch, self._origin.listing)
        self._batch.clear()
        self._batch_bytes = 0
        if len(rows):
            with self._archive.writing(self._origin.source) as connection:
                merge.add(connection, rows, imported=True)
        for error in errors.values():
            raise error


def _read_listing(folder: Path) -> ListingSnapshot:
    files = [folder / TOKENS, folder / MARKETS]
    tokens, markets = (read_text(file, size=MAX_ANSWER) for file in files)
    return ListingSnapshot(tokens, markets, min(map(_modified_ms, files)))


def _read_pages(file: Path) -> Iterator[tuple[bytes, wire.Batch]]:
    """Read the pages of a file: one, or one per line; compressed with gzip or not."""
    count = 0
    name = printable(file.name)
    for bodies in wire.group(read_documents(file, hint=_FILE_HINT)):
        numbers = range(count + 1, count + 1 + len(bodies))
        count += len(bodies)
        places = [
            name if number == 1 else f"{name}, page {number}" for number in numbers
        ]
        batches = wire.read_each(bodies, places, size=MAX_DOCUMENT)
        for body, batch in zip(bodies, batches, strict=True):
            if isinstance(batch, UnexpectedAnswer):
                raise batch
            yield body, batch


def _history_of(
    file: Path, batch: wire.Batch, account_id: int | None, fill_type: str | None
) -> HistoryKey | None:
    """Tell whose trades a page has: by the arguments, the file's name, or its rows; None without rows."""
    named = HISTORY_FILE.match(file.name)
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
                hint=f"Give account_id=, {_NAME_HINT}",
            )
    if (
        fill_type is None
        and not pc.all(pc.starts_with(batch.columns["market"], POOL_PREFIX)).as_py()
    ):
        raise UnexpectedAnswer(
            f"{batch.places[0]}, market",
            expected=f"pool fills ({POOL_PREFIX}…)",
            got="others, which may be either",
            hint=f"Give fill_type=, {_NAME_HINT}",
        )
    return account_id, fill_type or "amm"


def _modified_ms(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        name, got = printable(file.name), str(error.strerror)
        raise UnexpectedAnswer(
            name, expected="a readable file", got=got, hint=_FILE_HINT
        ) from None
