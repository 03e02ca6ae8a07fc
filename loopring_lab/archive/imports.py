"""Import of saved responses into an archive, without a relayer."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from loopring_lab.archive import merge, queries
from loopring_lab.archive.queries import SyncRecord
from loopring_lab.archive.rows import HistoryKey, ListingSnapshot, RawPage, convert
from loopring_lab.bounded import (
    MAX_ANSWER,
    Paths,
    find_files,
    printable,
    read_documents,
    read_text,
)
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.progress import Progress
from loopring_lab.saved_file import HarFile, source_of
from loopring_lab.source import FILE, Source
from loopring_lab.storage import StoredFile
from loopring_lab.tables import unwrapped, wire

ENDINGS = (".json", ".jsonl", ".ndjson", ".har")
TOKENS, MARKETS = "tokens.json", "markets.json"
# Of pages, some 120,000 rows, whose conversion takes some 0.5 GB.
BATCH_BYTES = 24 << 20

_FILE_HINT = "Save it again; the pages before it are imported."


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
        # By folder, and by the file where it names its own listing or source.
        self._origins: dict[Path, Origin] = {}
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
        har = HarFile.opened(file, _FILE_HINT)
        place = file if har else file.parent
        if place not in self._origins:
            self._origins[place] = self._origin_of(file, har)
        origin = self._origins[place]
        if origin != self._origin:
            self._commit()
            self._origin = origin
        moment = _modified_ms(file)
        documents = har.documents() if har else read_documents(file, hint=_FILE_HINT)
        for page in unwrapped.histories(
            printable(file.name), documents, self._account_id, self._fill_type
        ):
            key = (page.account_id, page.fill_type)
            batch = page.batch
            self._rows += len(batch.columns)
            if batch.totals[0] is not None:
                counted = (moment, wire.read_total(batch))
                self._totals[key] = max(counted, self._totals.get(key, counted))
            if len(batch.columns):
                self._batch[key].append(RawPage(page.body, moment, batch))
                self._batch_bytes += len(page.body)
            if self._batch_bytes >= BATCH_BYTES:
                self._commit()

    def _origin_of(self, file: Path, har: HarFile | None) -> Origin:
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
        elif har and har.listing:
            listing = ListingSnapshot(*har.listing, _modified_ms(file))
        elif bound:
            with self._archive.reading() as connection:
                listing = queries.last_listing(connection)
        if listing is None:
            raise LabError(
                f"{file}: no {TOKENS} and {MARKETS} beside it or in the folder above. They scale amounts: save "
                "the answers of GET /exchange/tokens and GET /mix/markets there."
            )
        source = source_of(
            places[0] if places else folder, self._named, (folder, parent), har
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


def _modified_ms(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        name, got = printable(file.name), str(error.strerror)
        raise UnexpectedAnswer(
            name, expected="a readable file", got=got, hint=_FILE_HINT
        ) from None
