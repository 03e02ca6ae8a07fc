"""Many histories fetched at once under one rate limit, and committed a bounded batch at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

import pyarrow as pa

from loopring_lab.archive.delta import DeltaFolder
from loopring_lab.archive.merge import merge
from loopring_lab.archive.records import (
    Count,
    ListingSnapshot,
    Page,
    counts,
    held_identities,
    keep_counts,
    keep_listing,
    now_ms,
    to_rows,
)
from loopring_lab.client import Client
from loopring_lab.errors import (
    AmountError,
    IncompleteHistory,
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    UnexpectedAnswer,
)
from loopring_lab.paging import PAGE, WORKERS, PageScheduler, Window
from loopring_lab.progress import Progress


class HistoryStream:
    """One account's history of one fill type, while it is read."""

    def __init__(self, account_id: int, fill_type: str, held: set[int], gone: int, wanted: Window) -> None:
        self.account_id, self.fill_type, self.wanted = account_id, fill_type, wanted
        self.course = PageScheduler(f"account {account_id}, {fill_type} trades", held, gone)
        self.ended, self.requests = False, 0
        self.todo: deque[int] = deque()
        self._arrived: dict[int, Page] = {}
        self._rows: list[list[Any]] = []
        self._steps = self.course.steps(wanted)
        self._wave(next(self._steps))

    def take(self, offset: int, page: Page) -> list[Page]:
        """Accept a page, and give on those before which nothing is missing; `advance` after it."""
        self._arrived[offset] = page
        ready = []
        while self._due and self._due[0] in self._arrived:
            ready.append(self._arrived.pop(self._due.popleft()))
            self._rows.append(self.course.take(ready[-1].body))
        return ready

    def advance(self) -> None:
        """Find out what to read next, when all that was to be read has come."""
        if not self._due:
            try:
                self._wave(self._steps.send(self._rows))
            except StopIteration:
                self.ended = True

    def count(self) -> Count:
        """Sum up what the relayer counted."""
        gone = self.course.known - self.course.total if self.course.complete else None
        return Count(
            self.account_id,
            self.fill_type,
            now_ms(),
            self.course.total,
            gone,
            self.requests,
            self.wanted.since,
        )

    def _wave(self, offsets: range) -> None:
        self.todo, self._due, self._rows = deque(offsets), deque(offsets), []


class Fetched(NamedTuple):
    """What came of asking for a page: it, or why it did not come."""

    stream: HistoryStream
    offset: int
    result: Page | BaseException


class FetchPool:
    """Threads that fetch pages; they never keep a process from ending."""

    def __init__(self, fetch: Callable[[HistoryStream, int], Page], size: int) -> None:
        self._fetch, self._size, self._busy = fetch, size, 0
        self._asked: SimpleQueue[tuple[HistoryStream, int] | None] = SimpleQueue()
        self._done: SimpleQueue[Fetched] = SimpleQueue()
        for number in range(size):
            threading.Thread(target=self._work, name=f"fetching {number}", daemon=True).start()

    @property
    def free(self) -> bool:
        """Whether one of them has nothing to do."""
        return self._busy < self._size

    def ask(self, stream: HistoryStream, offset: int) -> None:
        """Have a page fetched."""
        self._busy += 1
        stream.requests += 1
        self._asked.put((stream, offset))

    def answer(self) -> Fetched:
        """Wait for the next page that came, or failed to."""
        answer = self._done.get()
        self._busy -= 1
        return answer

    def shutdown(self) -> None:
        """Let them go when they are done with what they do."""
        while not self._asked.empty():
            self._asked.get()
        for _ in range(self._size):
            self._asked.put(None)

    def _work(self) -> None:
        while asked := self._asked.get():
            try:
                self._done.put(Fetched(*asked, self._fetch(*asked)))
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                self._done.put(Fetched(*asked, error))


BATCH_ROWS, BATCH_SECONDS = 5_000, 5.0
OF_ONE_HISTORY = (IncompleteHistory, UnexpectedAnswer, RelayerError, AmountError)
OF_ALL = (NotAuthorized, RateLimited)


class Sync:
    """Brings an archive up to what a relayer has now."""

    def __init__(
        self,
        disk: DeltaFolder,
        client: Client,
        histories: Sequence[tuple[int, str]],
        since: int | None,
        progress: Progress,
    ) -> None:
        self._disk, self._client, self._progress = disk, client, progress
        self._wanted = Window(since=since)
        self._waiting, self._streams = deque(histories), deque[HistoryStream]()
        self._batch: dict[HistoryStream, list[Page]] = {}
        self._counts: list[Count] = []
        self._done = [0, 0]
        self._committed = time.monotonic()
        self.errors: list[LabError] = []
        self._listed = _listed(client)
        keep_listing(disk, self._listed)
        self._last = counts(disk)

    def run(self) -> None:
        """Read and commit until every history is done."""
        crew = FetchPool(self._fetch, WORKERS)
        try:
            while self._waiting or self._streams:
                self._open()
                self._hand_out(crew)
                self._accept(crew.answer())
                if self._full:
                    self._commit()
        finally:
            crew.shutdown()
            for stream in list(self._streams):
                self._end(stream)
            self._commit()

    @property
    def _full(self) -> bool:
        rows = PAGE * sum(map(len, self._batch.values()))
        return rows >= BATCH_ROWS or time.monotonic() - self._committed > BATCH_SECONDS

    def _open(self) -> None:
        """Begin with histories while fewer are under way than can be read at once."""
        while self._waiting and len(self._streams) < WORKERS:
            history = self._waiting.popleft()
            last = self._last.get(history)
            gone = last.gone or 0 if last else 0
            self._streams.append(
                HistoryStream(*history, held_identities(self._disk, history), gone, self._wanted)
            )

    def _hand_out(self, crew: FetchPool) -> None:
        """Have pages fetched, of one history after the other."""
        idle = 0
        while crew.free and idle < len(self._streams):
            stream = self._streams[0]
            self._streams.rotate(-1)
            idle = 0 if stream.todo else idle + 1
            if stream.todo:
                crew.ask(stream, stream.todo.popleft())

    def _fetch(self, stream: HistoryStream, offset: int) -> Page:
        query: dict[str, str | int] = {"accountId": stream.account_id, "fillTypes": stream.fill_type}
        query |= {"offset": offset, "limit": PAGE}
        body = self._client._transport.get("/user/trades", query, keyed=True)
        where = f"account {stream.account_id}, {stream.fill_type} page at {offset}"
        return Page(stream.account_id, stream.fill_type, body, now_ms(), where)

    def _accept(self, fetched: Fetched) -> None:
        stream, offset, result = fetched
        if stream.ended:
            return
        try:
            if isinstance(result, BaseException):
                raise result
            self._batch.setdefault(stream, []).extend(stream.take(offset, result))
            stream.advance()
        except OF_ONE_HISTORY as error:
            if isinstance(error, OF_ALL):
                raise
            self.errors.append(error)
            stream.ended = True
        if stream.ended:
            self._end(stream)
        known, total = (
            sum(getattr(one.course, name) for one in self._streams) for name in ("known", "total")
        )
        self._progress(self._done[0] + known, self._done[1] + total)

    def _end(self, stream: HistoryStream) -> None:
        stream.ended = True
        self._streams.remove(stream)
        self._done = [self._done[0] + stream.course.known, self._done[1] + stream.course.total]
        if stream.requests:
            self._counts.append(stream.count())

    def _commit(self) -> None:
        """Commit the rows read, then what was counted of histories that are done with."""
        batch, self._batch = self._batch, {}
        parts = []
        for stream, pages in batch.items():
            try:
                parts += [to_rows(pages, self._listed)] if pages else []
            except (UnexpectedAnswer, AmountError) as error:
                self.errors.append(error)
                if not stream.ended:
                    self._end(stream)
        if parts:
            merge(self._disk, pa.concat_tables(parts))
        fresh, self._counts = self._counts, []
        keep_counts(self._disk, fresh)
        self._committed = time.monotonic()


def _listed(client: Client) -> ListingSnapshot:
    tokens, markets = (client._transport.get(path).decode() for path in ("/exchange/tokens", "/mix/markets"))
    return ListingSnapshot(tokens, markets, client.source, client.synthetic, now_ms())
