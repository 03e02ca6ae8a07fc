"""Import of saved responses into an archive, without a relayer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from loopring_lab.archive import merge, queries
from loopring_lab.archive.queries import SyncRecord
from loopring_lab.archive.rows import HistoryKey, ListingSnapshot, Page, to_rows
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
from loopring_lab.source import FILE, Source
from loopring_lab.storage import StoredFile

ENDINGS = (".json", ".jsonl", ".ndjson")
HISTORY_FILE = re.compile(r"([0-9]{1,10})-(amm|dex)\.")
LISTED = ("tokens.json", "markets.json")
# Bytes of pages in a transaction, some 120,000 rows, of which DuckDB makes a group (122,880). Smaller ones left a
# file of twice the size, and larger ones take more than 0.5 GB.
WAVE_BYTES = 24 << 20

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
    files = [file for file in files if file.name not in (*LISTED, FILE)]
    rows = 0
    begun = 0

    def pages(folder: Iterable[Path]) -> Iterator[Page]:
        nonlocal begun
        for file in folder:
            begun += 1
            yield from _pages_of(file, _history_of(file, *asked))

    try:
        for folder, inside in itertools.groupby(files, lambda file: file.parent):
            source, listing = _origin_of(archive, folder, named)
            for wave in _waves(pages(inside)):
                rows += _commit(archive, source, listing, wave)
                progress(rows, rows * len(files) // max(1, begun))
    finally:
        archive.settle()


def _commit(
    archive: StoredFile, source: Source, listing: ListingSnapshot, wave: Sequence[Page]
) -> int:
    """Add pages in one transaction, and return their number of rows; then raise what is wrong with one."""
    found = to_rows(wave, listing.lookup())
    moments = {page.key: page.retrieved_at for page in wave}
    with archive.writing(source) as connection:
        merge.add(connection, found.rows, listing.digest, imported=True)
        for key, total in found.totals.items():
            if total is not None:
                record = SyncRecord(*key, synced_at=moments[key], total=total)
                queries.store_count(connection, record)
    for error in found.errors.values():
        raise error
    return len(found.rows)


def _waves(pages: Iterator[Page]) -> Iterator[list[Page]]:
    """Collect pages for transactions; if one cannot be read, first those before it."""
    wave: list[Page] = []
    size = 0
    try:
        for page in pages:
            wave.append(page)
            size += len(page.body)
            if size >= WAVE_BYTES:
                yield wave
                wave = []
                size = 0
    except LabError:
        yield wave
        raise
    yield wave


def _pages_of(file: Path, key: HistoryKey) -> Iterator[Page]:
    """Read the pages of a file: one, or one per line; compressed with gzip or not."""
    name = printable(file.name)
    for number, body in enumerate(read_documents(file, hint=_HINT), 1):
        place = name if number == 1 else f"{name}, page {number}"
        yield Page(key, place, body, _modified(file))


def _history_of(
    file: Path, account_id: int | None, fill_type: str | None
) -> HistoryKey:
    """Tell whose trades a file has: by the arguments, or by its name."""
    named = HISTORY_FILE.match(file.name)
    if named:
        account_id = int(named[1]) if account_id is None else account_id
        fill_type = fill_type or named[2]
    if account_id is None or fill_type is None:
        raise UnexpectedAnswer(
            printable(file.name),
            expected="a name <accountId>-<amm or dex>.json, which says whose trades these are",
            got="another",
            hint="Give account_id= and fill_type=, or name the file so.",
        )
    return account_id, fill_type


def _origin_of(
    archive: StoredFile, folder: Path, named: str | None
) -> tuple[Source, ListingSnapshot]:
    """Bind the archive to the source of a folder, in a transaction that stores what was listed."""
    places = (folder, folder.parent)
    listed = [
        place for place in places if all((place / name).is_file() for name in LISTED)
    ]
    home = [*listed, folder][0]
    bound = archive.source()
    listing = None
    if listed:
        tokens, markets = (read_text(home / name, size=MAX_ANSWER) for name in LISTED)
        moment = min(_modified(home / name) for name in LISTED)
        listing = ListingSnapshot(tokens, markets, moment)
    elif bound:
        with archive.reading() as connection:
            listing = queries.last_listing(connection)
    if listing is None:
        raise LabError(
            f"{folder}: no {' and '.join(LISTED)} in it or in the folder above. They scale amounts: save "
            "the answers of GET /exchange/tokens and GET /mix/markets there."
        )
    source = Source.of_saved(home, named, *places)
    # Who names the archive's own source need not say again what it is.
    if bound and bound.name == named == source.name:
        source = bound
    with archive.writing(source) as connection:
        queries.store_listing(connection, archive, listing)
    return source, listing


def _modified(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000
