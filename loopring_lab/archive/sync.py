"""Download of missing trades: histories read one after the other, committed in bounded batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing

from loopring_lab.archive import holdings, merge
from loopring_lab.archive.conversion import ListingSnapshot, Page, to_rows
from loopring_lab.archive.holdings import SyncRecord
from loopring_lab.engine.database import StoredFile
from loopring_lab.errors import LabError, RelayerError, UnexpectedAnswer
from loopring_lab.progress import Watching, track
from loopring_lab.sources.client import Client, identity_of
from loopring_lab.sources.paging import EVERYTHING, PAGE, History, Window, now_ms
from loopring_lab.sources.recording import Recording, known_account
from loopring_lab.tables import wire
from loopring_lab.tables.wire import HistoryKey

# Limits of a transaction, which takes some 20 ms however few rows it has; a kill loses what was read since the last
# one.
BATCH_PAGES = 20_000 // PAGE
BATCH_SECONDS = 5.0
BATCH_BYTES = 52 << 20  # of a recording's columns of text: some 120,000 rows


def sync_histories(
    file: StoredFile,
    client: Client,
    keys: Sequence[HistoryKey],
    since: int | None,
    progress: Watching,
    *,
    full: bool,
) -> None:
    """Add what a relayer lists now, after binding the archive to it; raise the first error when all else is read."""
    tokens, markets = (text.decode() for text in client.listings())
    listing = ListingSnapshot.of_relayer(tokens, markets, now_ms(), client.source)
    source = identity_of(client)
    with file.writing(source) as connection:
        lookup = listing.lookup()
        holdings.store_listing(connection, file, listing, lookup)
    # Histories whose count is not stored yet, with the identities that were held before.
    begun: dict[History, AbstractSet[int]] = {}
    waiting: list[Page] = []
    errors: list[LabError] = []

    def commit(*, at_end: bool = False) -> None:
        """Commit the rows read, and what was counted of the histories that are done."""
        found = to_rows(waiting, lookup)
        waiting.clear()
        done = [one for one in begun if one.ended or at_end]
        for history in begun:
            error = found.errors.get(_key(history))
            if error:
                history.error = error
                errors.append(error)
        records = [
            _record(history, begun.pop(history), full=full)
            for history in done
            if history.requests  # others say nothing: reading ended before their turn
        ]
        if len(found.rows) or records:
            with file.writing(source) as connection:
                merge.add(connection, found.rows, imported=False)
                for record in records:
                    holdings.store_count(connection, record)

    committed_at = time.monotonic()
    try:
        plan = _histories(file, keys, None if full else Window(since=since), begun)
        with closing(client.pages(plan, progress=progress)) as pages:
            for page in pages:
                key = _key(page.history)
                waiting.append(Page(key, page.batch, page.retrieved_at))
                waited = time.monotonic() - committed_at
                if len(waiting) >= BATCH_PAGES or waited > BATCH_SECONDS:
                    commit()
                    committed_at = time.monotonic()
    except (UnexpectedAnswer, RelayerError) as error:
        errors.append(error)
    finally:
        commit(at_end=True)
    if errors:
        raise errors[0]


def sync_recording(
    file: StoredFile,
    recording: Recording,
    keys: Sequence[HistoryKey],
    progress: Watching,
) -> None:
    """Add what a recording has of histories, after binding the archive to it; raise the first error at the end."""
    for account_id, _ in keys:
        known_account(recording, account_id)
    saved = recording.contents
    listing = ListingSnapshot.of_relayer(*saved.listing, now_ms(), recording.source)
    lookup = listing.lookup()
    with file.writing(saved.source) as connection:
        holdings.store_listing(connection, file, listing, lookup)
    errors: list[LabError] = []
    rows = 0
    # Histories are added in groups, as each transaction and each conversion has a cost of its own.
    groups = wire.group(
        keys,
        lambda key: sum(page.size() for page in saved.pages_of(*key)),
        BATCH_BYTES,
    )
    with track("trades", progress) as report:
        for group in groups:
            now = now_ms()
            pages = [
                Page(key, one, now) for key in group for one in saved.pages_of(*key)
            ]
            found = to_rows(pages, lookup)
            errors += found.errors.values()
            with file.writing(saved.source) as connection:
                merge.add(connection, found.rows, imported=False)
                for key, total in found.totals.items():
                    if total is not None:
                        record = SyncRecord(*key, now, total, checked_at=now)
                        holdings.store_count(connection, record)
            rows += len(found.rows)
            report(rows, rows)
    if errors:
        raise errors[0]


def _histories(
    file: StoredFile,
    keys: Sequence[HistoryKey],
    window: Window | None,
    begun: dict[History, AbstractSet[int]],
) -> Iterator[History]:
    """Look up what is held of a history only when its turn comes, to save memory; without a window, all is read."""
    for key in keys:
        held, gone = holdings.held_identities(file, key)
        history = History(*key)
        if window:
            history = History(*key, window=window, held=held, gone=gone)
        begun[history] = held
        yield history


def _record(history: History, held: AbstractSet[int], *, full: bool) -> SyncRecord:
    now = now_ms()
    # With `full` the history was not told what is held, so that all of it is read.
    known = len(held | history.identities) if full else history.known
    is_whole = history.complete and not history.error and history.window == EVERYTHING
    # Without `full`, rows that were held are not read again.
    is_checked = is_whole and (full or not held)
    return SyncRecord(
        *_key(history),
        synced_at=now,
        total=history.total,
        gone=known - history.total if history.complete else None,
        requests=history.requests,
        checked_at=now if is_checked else None,
    )


def _key(history: History) -> HistoryKey:
    assert history.account_id is not None  # noqa: S101 - syncs read accounts only
    return history.account_id, history.fill_type
