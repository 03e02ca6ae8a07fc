"""Import of saved responses into an archive, without a relayer."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from loopring_lab.archive import holdings, merge
from loopring_lab.archive.conversion import ListingSnapshot, Page, to_rows
from loopring_lab.archive.holdings import SyncRecord
from loopring_lab.bounded import Paths, find_files, printable
from loopring_lab.engine.database import StoredFile
from loopring_lab.errors import LabError, UnexpectedAnswer, visible
from loopring_lab.origin import FILE, Source
from loopring_lab.progress import Progress
from loopring_lab.sources.saved_answers import (
    BUNDLED,
    LISTING,
    NO_LISTING,
    SAVE_LISTING,
    bundled_listing,
    find_listing,
    histories,
    is_har,
    markets_in,
    open_har,
    read_pages,
    source_of,
)
from loopring_lab.tables import wire
from loopring_lab.tables.har import Har
from loopring_lab.tables.listings import MarketLookup

ENDINGS = (".json", ".jsonl", ".ndjson", ".har")
# The bytes of a transaction's columns: those of some 120,000 rows, of which DuckDB makes a group (122,880). Smaller
# transactions left a file of twice the size, and larger ones take more than 0.5 GB.
BATCH_BYTES = 52 << 20

_HINT = "Save it again; the other files are imported."


class Origin(NamedTuple):
    """Where pages are from, and the listing that they are read with."""

    source: Source
    listing: ListingSnapshot
    lookup: MarketLookup


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
    files = _files_of(paths)
    faults: list[UnexpectedAnswer] = []
    rows = 0
    begun = 0

    def pages(together: Iterable[Path], har: Har | None) -> Iterator[Page]:
        nonlocal begun
        for file in together:
            begun += 1
            # A HAR file's requests say whose rows a page has; other pages say it themselves.
            saved = har.pages if har else read_pages(file, _HINT)
            try:
                # A file that cannot be read, such as a link to itself, is refused before we ask when it was modified.
                for key, batch in histories(printable(file.name), saved, *asked):
                    yield Page(key, batch, _modified(file))
            except UnexpectedAnswer as error:
                faults.append(error)

    for home, group in itertools.groupby(files, _home_of):
        together = list(group)
        try:
            har = open_har(home, _HINT) if home.is_file() else None
        except UnexpectedAnswer as error:
            faults.append(error)
            continue
        origin = None
        for batch in wire.group(
            pages(together, har), lambda page: page.batch.size(), BATCH_BYTES
        ):
            if origin is None:
                # Files without pages are at fault themselves, wherever they are from.
                markets = markets_in(page.batch for page in batch)
                origin = _origin(archive, home, har, named, markets)
            rows += _store(archive, origin, batch, faults)
            # Each file is expected to have as many rows as those begun have on average.
            progress(rows, rows * len(files) // begun)
    for fault in faults:
        raise fault


def _files_of(paths: Paths) -> list[Path]:
    """List files of pages, without those that say beside them what they are of."""
    hint = "Give saved responses of the trades endpoint."
    files = find_files(paths, ENDINGS, hint, inside="trades", besides=(*LISTING, FILE))
    if not files:
        raise LabError(f"paths: no file is given. {hint}")
    return files


def _home_of(file: Path) -> Path:
    """Return what says where a file is from: its folder, or a HAR file itself."""
    # A file that cannot be read is named in an error later, when its pages are read.
    with contextlib.suppress(UnexpectedAnswer):
        if is_har(file, _HINT):
            return file
    return file.parent


def _store(
    archive: StoredFile,
    origin: Origin,
    pages: Sequence[Page],
    faults: list[UnexpectedAnswer],
) -> int:
    """Store pages, what they count, and where they are from, in one transaction; return the number of rows.

    What is wrong with them is added to `faults`.
    """
    found = to_rows(_one_by_one(pages), origin.lookup)
    faults += found.errors.values()
    # Where all histories have errors, a new archive stays free to be of another source.
    if not found.totals:
        return 0
    moments = {page.key: page.retrieved_at for page in pages}
    try:
        with archive.writing(origin.source) as connection:
            holdings.store_listing(connection, archive, origin.listing, origin.lookup)
            merge.add(connection, found.rows, imported=True)
            for key, total in found.totals.items():
                if total is not None:
                    record = SyncRecord(*key, synced_at=moments[key], total=total)
                    holdings.store_count(connection, record)
    except UnexpectedAnswer as error:
        faults.append(error)
        return 0
    return len(found.rows)


def _origin(
    archive: StoredFile,
    home: Path,
    har: Har | None,
    named: str | None,
    markets: set[str],
) -> Origin:
    """Return the source and the listing of a folder or a HAR file.

    `markets` are those of its trades, or of the first ones where these are many.
    """
    # The path is made absolute, because the current folder has a name and a folder above only then.
    folder = Path(os.path.abspath(home.parent if har else home))  # noqa: PTH100
    places = (folder, folder.parent)
    bound = archive.source()
    beside = folder
    listing = None
    if har and har.listing:
        listing = ListingSnapshot.of_relayer(*har.listing, _modified(home), str(home))
    else:
        found = find_listing(places)
        if found:
            beside, texts = found
            moment = _modified(beside / LISTING[0])
            listing = ListingSnapshot.of_relayer(*texts, moment, str(beside))
    if listing is None and bound:
        with archive.reading() as connection:
            listing = holdings.last_listing(connection)
    if listing is None:
        if not markets:
            raise LabError(f"{folder}: {NO_LISTING}. {SAVE_LISTING}")
        texts = bundled_listing(folder, markets)
        listing = ListingSnapshot.of_relayer(*texts, _modified(home), "the package")
        print(visible(f"{folder}: {NO_LISTING}; they are {BUNDLED}."))  # noqa: T201
    source = source_of(beside, named, places, har)
    # The name says no exchange and no chain: those that the archive knows of its own source stay.
    if bound and bound.name == named == source.name:
        source = bound
    return Origin(source, listing, listing.lookup())


def _one_by_one(pages: Iterable[Page]) -> list[Page]:
    """Give each page a moment of its own, a millisecond later where it has that of another.

    What is received at one moment is current together; files that were unpacked, and pages of one file, have one time
    though they may show the same trades before and after a change.
    """
    found: list[Page] = []
    taken: set[int] = set()
    for page in pages:
        moment = page.retrieved_at
        while moment in taken:
            moment += 1
        taken.add(moment)
        found.append(page._replace(retrieved_at=moment))
    return found


def _modified(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000
