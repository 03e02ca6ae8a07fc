"""Pages of several histories, fetched side by side and parsed together."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import NamedTuple

from loopring_lab.errors import (
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    UnexpectedAnswer,
)
from loopring_lab.http.budget import TURN
from loopring_lab.progress import Progress
from loopring_lab.sources.paging.histories import FetchedPage, History, now_ms
from loopring_lab.tables import wire
from loopring_lab.tables.identity import row_keys

WORKERS = 12  # threads: at a latency of 50 ms they are six times as fast as one
# A relayer on this machine answers in a few milliseconds. More threads than these only get in each other's way:
# twelve take a quarter more of the processor.
FEW_WORKERS = 2
QUICK = 0.015  # seconds
# Parsing pages together takes a third of the time of parsing each by itself. Where answers come one by one,
# they are waited for no longer than somebody at a screen notices.
PARSED_TOGETHER = 24  # pages
PARSED_AFTER = 0.1  # seconds
# Pages, so that every thread finds its next one while others are parsed.
REQUESTED = 2 * PARSED_TOGETHER
# A page has at most 2 MiB (bounded.MAX_PAGE): those requested and those waiting take at most 120 MiB.
WAITING = 12

Fetch = Callable[[History, int], bytes]


class Response(NamedTuple):
    """The outcome of fetching a page: its bytes or an error."""

    history: History
    offset: int
    body: bytes
    error: Exception | None
    retrieved_at: int
    seconds: float


class PageReader:
    """Reads histories side by side, each until no row is missing."""

    def __init__(
        self,
        fetch: Fetch,
        histories: Iterable[History],
        progress: Progress,
        at_once: int = WORKERS,
        ten_members: str = "account",
    ) -> None:
        self._fetch = fetch
        self._not_begun = iter(histories)
        self._progress = progress
        self._at_once = at_once
        self._ten_members = ten_members
        self._open: deque[History] = deque()
        self._threads = FEW_WORKERS
        self._pool = ThreadPoolExecutor(FEW_WORKERS, thread_name_prefix="pages")
        self._fetched: SimpleQueue[Future[Response]] = SimpleQueue()
        self._under_way = 0
        self._closed_known = 0
        self._closed_total = 0
        self._error: LabError | None = None

    def __iter__(self) -> Iterator[FetchedPage]:
        """Yield the pages; the error of one history is raised when the others have been read."""
        try:
            self._open_histories()
            while self._open:
                self._request_pages()
                for history, result in self._parse(self._next_responses()):
                    if not history.ended:
                        yield from self._accept(history, result)
                self._close_histories()
                self._open_histories()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._error:
            raise self._error

    def _open_histories(self) -> None:
        while len(self._open) < self._at_once:
            history = next(self._not_begun, None)
            if history is None:
                return
            self._open.append(history)

    def _request_pages(self) -> None:
        """Request a page of each history in turn, unless too many pages wait for earlier ones."""
        waiting = sum(history.waiting for history in self._open)
        if self._under_way and waiting >= WAITING:
            return
        histories_in_vain = 0
        while self._under_way < REQUESTED and histories_in_vain < len(self._open):
            history = self._open[0]
            self._open.rotate(-1)
            offset = history.next_offset()
            if offset is None:
                histories_in_vain += 1
            else:
                histories_in_vain = 0
                self._under_way += 1
                future = self._pool.submit(self._fetch_page, history, offset)
                future.add_done_callback(self._fetched.put)

    def _fetch_page(self, history: History, offset: int) -> Response:
        begun = time.monotonic()
        body = b""
        failure = None
        try:
            body = self._fetch(history, offset)
        except Exception as error:  # noqa: BLE001 - raised again when it is the page's turn
            failure = error
        seconds = time.monotonic() - begun
        return Response(history, offset, body, failure, now_ms(), seconds)

    def _next_responses(self) -> list[Response]:
        """Wait for a response, and a moment for others under way."""
        responses = [self._next_response()]
        end = time.monotonic() + PARSED_AFTER
        while self._under_way and len(responses) < PARSED_TOGETHER:
            try:
                future = self._fetched.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                break
            responses.append(self._take(future))
        return responses

    def _next_response(self) -> Response:
        # In turns, so that a Ctrl-C is answered between them.
        while True:
            try:
                return self._take(self._fetched.get(timeout=TURN))
            except Empty:
                continue

    def _take(self, future: Future[Response]) -> Response:
        self._under_way -= 1
        response = future.result()
        if response.seconds > QUICK and self._threads < WORKERS:
            self._threads = WORKERS
            self._pool.shutdown(wait=False)  # after the pages that it has been given
            self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="pages")
        return response

    def _parse(
        self, responses: list[Response]
    ) -> Iterator[tuple[History, FetchedPage | Exception]]:
        """Parse pages together; an error concerns its own page only."""
        fetched = [response for response in responses if response.error is None]
        bodies = [response.body for response in fetched]
        places = [
            f"{response.history.name}, page at {response.offset}"
            for response in fetched
        ]
        parsed = wire.read_each(bodies, places, ten_members=self._ten_members)
        keys = iter(
            row_keys([batch for batch in parsed if isinstance(batch, wire.Batch)])
        )
        results = iter(parsed)
        for history, offset, body, error, retrieved_at, _ in responses:
            # Only pages that came have a result, and only those that could be read have keys.
            result = error or next(results)
            if not isinstance(result, wire.Batch):
                yield history, result
                continue
            page = FetchedPage(history, offset, body, retrieved_at, result, next(keys))
            yield history, page

    def _accept(
        self, history: History, result: FetchedPage | Exception
    ) -> Iterator[FetchedPage]:
        """Yield the pages that a result completes; an error ends its history, or reading altogether."""
        try:
            if isinstance(result, Exception):
                raise result
            for page in history.accept(result):
                self._report()
                yield page
            history.advance()
        except (NotAuthorized, RateLimited):
            raise  # the other histories would meet the same
        except (UnexpectedAnswer, RelayerError) as error:
            history.fail(error)

    def _close_histories(self) -> None:
        for history in [history for history in self._open if history.ended]:
            self._open.remove(history)
            self._closed_known += history.scheduler.known
            self._closed_total += history.scheduler.total
            self._error = self._error or history.error

    def _report(self) -> None:
        known = sum(history.scheduler.known for history in self._open)
        total = sum(history.scheduler.total for history in self._open)
        self._progress(self._closed_known + known, self._closed_total + total)
