"""Download of missing trades: histories read side by side, committed in bounded batches."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing

import pyarrow as pa

from loopring_lab.archive import merge, queries
from loopring_lab.archive.queries import SyncRecord
from loopring_lab.archive.rows import HistoryKey, ListingSnapshot, RawPage, to_rows
from loopring_lab.client import Client
from loopring_lab.errors import (
    AmountError,
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    UnexpectedAnswer,
)
from loopring_lab.paging import EVERYTHING, PAGE, History, Window, now_ms
from loopring_lab.progress import Watching
from loopring_lab.source import Source
from loopring_lab.storage import StoredFile
from loopring_lab.tables import wire

# A transaction takes some 20 ms, however few rows it has; what was read since the last is lost by a kill.
BATCH_ROWS = 20_000
BATCH_SECONDS = 5.0


class Sync:
    """Adds to an archive what a relayer lists now."""

    def __init__(
        self,
        file: StoredFile,
        client: Client,
        keys: Sequence[HistoryKey],
        since: int | None,
        full: bool = False,
    ) -> None:
        self._client, self._keys, self._full = client, keys, full
        self._window = Window(since=since)
        tokens, markets = (text.decode() for text in client.listings())
        self._file, self._source = file, _source_of(client)
        self._listing = ListingSnapshot(tokens, markets, now_ms())
        with file.writing(self._source) as connection:
            queries.refuse_blocks(connection, file)
            queries.store_listing(connection, self._listing)
            self._last = queries.last_sync_records(connection)
        self._begun: dict[History, AbstractSet[int]] = {}
        self._batch: dict[HistoryKey, list[RawPage]] = defaultdict(list)
        self._committed_at = time.monotonic()
        self._errors: list[LabError] = []

    def run(self, progress: Watching) -> None:
        """Read and commit every history; the error of one is raised when the others are done."""
        try:
            with closing(self._client.pages(self._histories(), progress=progress)) as pages:
                for page in pages:
                    raw = RawPage(page.body, page.retrieved_at, page.batch)
                    self._batch[_key(page.history)].append(raw)
                    if self._is_batch_full():
                        self._commit([history for history in self._begun if history.ended])
        except (UnexpectedAnswer, RelayerError) as error:
            self._errors.append(error)
        finally:
            self._commit(list(self._begun))
            self._file.settle()
        if self._errors:
            raise self._errors[0]

    def _histories(self) -> Iterator[History]:
        """Look up what is held of a history only when its turn comes, to save memory."""
        for key in self._keys:
            last, held = self._last.get(key), queries.held_identities(self._file, key)
            gone = last.gone if last else 0
            history = History(*key, window=self._window, held=held, gone=gone or 0)
            if self._full:
                history = History(*key)
            self._begun[history] = held
            yield history

    def _is_batch_full(self) -> bool:
        rows = PAGE * sum(map(len, self._batch.values()))
        return rows >= BATCH_ROWS or time.monotonic() - self._committed_at > BATCH_SECONDS

    def _commit(self, done: list[History]) -> None:
        """Commit the rows read, then what was counted of the histories that are done."""
        batch, self._batch = self._batch, defaultdict(list)
        parts, errors = convert(batch, self._listing)
        self._errors += errors.values()
        for history in self._begun:
            if error := errors.get(_key(history)):
                history.fail(error)
        held = {history: self._begun.pop(history) for history in done}
        found = [self._record(history, held[history]) for history in done if history.requests]
        if parts or found:
            with self._file.writing(self._source) as connection:
                if parts:
                    merge.add(connection, pa.concat_tables(parts), imported=False)
                queries.store_sync_records(connection, found)
        self._committed_at = time.monotonic()

    def _record(self, history: History, held: AbstractSet[int]) -> SyncRecord:
        read, now = history.scheduler, now_ms()
        known = len(held | read.identities) if self._full else read.known
        gone = known - read.total if read.complete else None
        is_whole = read.complete and not history.error and history.window == EVERYTHING
        checked_at = now if is_whole and (self._full or not held) else None
        since = history.window.since
        return SyncRecord(*_key(history), now, read.total, gone, history.requests, since, checked_at)


def convert(
    batch: Mapping[HistoryKey, Sequence[RawPage]], listing: ListingSnapshot
) -> tuple[list[pa.Table], dict[HistoryKey, LabError]]:
    """Convert pages to rows, history by history; return the errors of those that are left out."""
    parts: list[pa.Table] = []
    errors: dict[HistoryKey, LabError] = {}
    for key, pages in batch.items():
        try:
            wire.refuse_without_trades(page.batch for page in pages)
            parts.append(to_rows(key, pages, listing))
        except (UnexpectedAnswer, AmountError) as error:
            errors[key] = error
    return [part for part in parts if len(part)], errors


def _source_of(client: Client) -> Source:
    """Ask what is known of a client's source; a relayer that does not serve the exchange does not say it."""
    if client._saved:
        return client._saved  # the exchange of the relayer that serves a recording is not the recording's
    try:
        exchange = client.exchange()
    except RelayerError as error:
        if error.status >= 500 or isinstance(error, NotAuthorized | RateLimited):
            raise
        return Source(client.source, client.synthetic)
    return Source(client.source, client.synthetic, exchange.address, exchange.chain_id)


def _key(history: History) -> HistoryKey:
    assert history.account_id is not None  # noqa: S101 - `Sync` reads accounts only
    return history.account_id, history.fill_type
