"""Download of missing trades: histories read side by side, committed in bounded batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing

from loopring_lab.archive import merge, queries
from loopring_lab.archive.queries import SyncRecord
from loopring_lab.archive.rows import ListingSnapshot, Page, to_rows
from loopring_lab.client import Client, identity_of
from loopring_lab.errors import LabError, RelayerError, UnexpectedAnswer
from loopring_lab.paging import EVERYTHING, PAGE, FetchedPage, History, Window, now_ms
from loopring_lab.progress import Watching
from loopring_lab.storage import StoredFile
from loopring_lab.tables import wire
from loopring_lab.tables.unwrapped import HistoryKey

# Of a transaction, which takes some 20 ms however few rows it has; a kill loses what was read since the last one.
BATCH_PAGES = 20_000 // PAGE
BATCH_SECONDS = 5.0


class Sync:
    """Adds to an archive what a relayer lists now; making one binds the archive, and stores tokens and markets."""

    def __init__(
        self,
        file: StoredFile,
        client: Client,
        keys: Sequence[HistoryKey],
        since: int | None,
        full: bool = False,
    ) -> None:
        tokens, markets = (text.decode() for text in client.listings())
        self._file = file
        self._client = client
        self._keys = keys
        self._window = Window(since=since)
        self._full = full
        self._source = identity_of(client)
        self._listing = ListingSnapshot(tokens, markets, now_ms())
        with file.writing(self._source) as connection:
            queries.store_listing(connection, file, self._listing)
        # Histories whose count is not stored yet, with the identities that were held before.
        self._begun: dict[History, AbstractSet[int]] = {}
        self._batch: list[FetchedPage] = []
        self._committed_at = time.monotonic()
        self._errors: list[LabError] = []

    def run(self, progress: Watching) -> None:
        """Read and commit every history; the error of one is raised when the others are done."""
        pages = self._client.pages(self._histories(), progress=progress)
        try:
            with closing(pages):
                for page in pages:
                    self._batch.append(page)
                    waited = time.monotonic() - self._committed_at
                    if len(self._batch) >= BATCH_PAGES or waited > BATCH_SECONDS:
                        self._commit()
        except (UnexpectedAnswer, RelayerError) as error:
            self._errors.append(error)
        finally:
            self._commit(at_end=True)
            self._file.settle()
        if self._errors:
            raise self._errors[0]

    def _histories(self) -> Iterator[History]:
        """Look up what is held of a history only when its turn comes, to save memory."""
        for key in self._keys:
            held, gone = queries.held_identities(self._file, key)
            history = History(*key)
            if not self._full:
                history = History(*key, window=self._window, held=held, gone=gone)
            self._begun[history] = held
            yield history

    def _commit(self, *, at_end: bool = False) -> None:
        """Commit the rows read, and what was counted of the histories that are done."""
        # Parsed again, as the reader of histories has no use for the texts of rows.
        batch = wire.read(
            [page.body for page in self._batch],
            [page.history.name for page in self._batch],
            with_texts=True,
        )
        pages = [
            Page(_key(page.history), one, page.retrieved_at)
            for page, one in zip(self._batch, wire.split(batch), strict=True)
        ]
        found = to_rows(pages, self._listing.lookup())
        self._batch.clear()
        done = [one for one in self._begun if one.ended or at_end]
        for history in self._begun:
            error = found.errors.get(_key(history))
            if error:
                history.fail(error)
                self._errors.append(error)
        records = [
            self._record(history, self._begun.pop(history))
            for history in done
            if history.requests  # others say nothing: reading ended before their turn
        ]
        if len(found.rows) or records:
            with self._file.writing(self._source) as connection:
                digest = self._listing.digest
                merge.add(connection, found.rows, digest, imported=False)
                for record in records:
                    queries.store_count(connection, record)
        self._committed_at = time.monotonic()

    def _record(self, history: History, held: AbstractSet[int]) -> SyncRecord:
        read = history.scheduler
        now = now_ms()
        # With `full` the scheduler was not told what is held, so that it reads all of it.
        known = len(held | read.identities) if self._full else read.known
        is_whole = read.complete and not history.error and history.window == EVERYTHING
        # Without `full`, rows that were held are not read again.
        is_checked = is_whole and (self._full or not held)
        return SyncRecord(
            *_key(history),
            synced_at=now,
            total=read.total,
            gone=known - read.total if read.complete else None,
            requests=history.requests,
            since=history.window.since,
            checked_at=now if is_checked else None,
        )


def _key(history: History) -> HistoryKey:
    assert history.account_id is not None  # noqa: S101 - `Sync` reads accounts only
    return history.account_id, history.fill_type
