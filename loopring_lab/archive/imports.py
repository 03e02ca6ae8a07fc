"""Import of saved responses into an archive, without a relayer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from loopring_lab.archive import merge, queries
from loopring_lab.archive.queries import SyncRecord
from loopring_lab.archive.rows import ListingSnapshot, Page, to_rows
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
from loopring_lab.saved_file import LISTING, HarFile, is_har, source_of
from loopring_lab.source import FILE, Source
from loopring_lab.storage import StoredFile
from loopring_lab.tables import unwrapped

ENDINGS = (".json", ".jsonl", ".ndjson", ".har")
# Bytes of pages in a transaction, some 120,000 rows, of which DuckDB makes a group (122,880). Smaller ones left a
# file of twice the size, and larger ones take more than 0.5 GB.
BATCH_BYTES = 24 << 20

_HINT = "Save it again; the files before it are imported."


def import_pages(
    archive: StoredFile,
    paths: Paths,
    asked: tuple[int | None, str | None],
    named: str | None,
    progress: Progress,
) -> None:
    """Import every file, those of a folder together; what was imported before is not duplicated.

    `asked` is the history, as far as the caller knows it, and `named` the source.
    """
    hint = "Give saved responses of the trades endpoint."
    files = find_files(paths, ENDINGS, hint, inside="trades")
    files = [file for file in files if file.name not in (*LISTING, FILE)]
    rows = 0
    begun = 0

    def pages(together: Iterable[Path], har: HarFile | None) -> Iterator[Page]:
        nonlocal begun
        for file in together:
            begun += 1
            yield from _pages_of(file, har, *asked)

    try:
        for home, together in itertools.groupby(files, _home_of):
            har = HarFile.opened(home, _HINT) if home.is_file() else None
            source, listing = _bind_to_origin(archive, home, har, named)
            for batch in _batches(pages(together, har)):
                rows += _commit(archive, source, listing, batch)
                # Expected are as many rows in each file as in those begun.
                progress(rows, rows * len(files) // max(1, begun))
    finally:
        archive.settle()


def _home_of(file: Path) -> Path:
    """Return what says where a file is from: its folder, or a HAR file itself."""
    return file if is_har(file, _HINT) else file.parent


def _commit(
    archive: StoredFile, source: Source, listing: ListingSnapshot, batch: Sequence[Page]
) -> int:
    """Add the histories without a fault in one transaction; raise the first fault, or return the number of rows."""
    found = to_rows(batch, listing.lookup())
    moments = {page.key: page.retrieved_at for page in batch}
    with archive.writing(source) as connection:
        merge.add(connection, found.rows, listing.digest, imported=True)
        for key, total in found.totals.items():
            if total is not None:
                record = SyncRecord(*key, synced_at=moments[key], total=total)
                queries.store_count(connection, record)
    for error in found.errors.values():
        raise error
    return len(found.rows)


def _batches(pages: Iterator[Page]) -> Iterator[list[Page]]:
    """Collect pages for transactions; if one cannot be read, first those before it."""
    batch: list[Page] = []
    size = 0
    try:
        for page in pages:
            batch.append(page)
            size += len(page.body)
            if size >= BATCH_BYTES:
                yield batch
                batch = []
                size = 0
    except LabError:
        yield batch
        raise
    yield batch


def _pages_of(
    file: Path, har: HarFile | None, account_id: int | None, fill_type: str | None
) -> Iterator[Page]:
    """Read the pages of a file: one, or one per line; compressed with gzip or not, and in any known wrapping."""
    name = printable(file.name)
    moment = _modified(file)
    documents = read_documents(file, hint=_HINT)
    account_id, fill_type = unwrapped.named_history(name, account_id, fill_type)
    if har or account_id is None or fill_type is None:
        # A HAR file's requests say whose rows a page has; other pages say it themselves.
        saved = har.har.pages if har else documents
        for page in unwrapped.histories(name, saved, account_id, fill_type):
            key = (page.account_id, page.fill_type)
            yield Page(key, page.batch.places[0], page.body, moment)
        return
    for number, body in enumerate(documents, 1):
        place = name if number == 1 else f"{name}, page {number}"
        try:
            for one in unwrapped.unwrap(body, place):
                yield Page((account_id, fill_type), one.place, one.page, moment)
        except UnexpectedAnswer as fault:
            # Kept for its history: the others of this batch are imported before it is raised.
            yield Page((account_id, fill_type), place, body, moment, fault)


def _bind_to_origin(
    archive: StoredFile, home: Path, har: HarFile | None, named: str | None
) -> tuple[Source, ListingSnapshot]:
    """Bind the archive to the source of a folder or a HAR file, and store its listing; return both."""
    folder = home.parent if har else home
    places = (folder, folder.parent)
    listed = [
        place for place in places if all((place / name).is_file() for name in LISTING)
    ]
    beside = listed[0] if listed else folder
    bound = archive.source()
    listing = None
    if listed:
        tokens, markets = (
            read_text(beside / name, size=MAX_ANSWER) for name in LISTING
        )
        moment = min(_modified(beside / name) for name in LISTING)
        listing = ListingSnapshot(tokens, markets, moment)
    elif har and har.listing:
        listing = ListingSnapshot(*har.listing, _modified(home))
    elif bound:
        with archive.reading() as connection:
            listing = queries.last_listing(connection)
    if listing is None:
        raise LabError(
            f"{home}: no {' and '.join(LISTING)} in its folder or in the folder above. They scale amounts: save "
            "the answers of GET /exchange/tokens and GET /mix/markets there."
        )
    source = source_of(beside, named, places, har)
    # The name says no exchange and no chain: those that the archive knows of its own source stay.
    if bound and bound.name == named == source.name:
        source = bound
    with archive.writing(source) as connection:
        queries.store_listing(connection, archive, listing)
    return source, listing


def _modified(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000
