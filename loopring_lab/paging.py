"""Whole trade histories out of pages of 50, while rows arrive and pages shift.

A `PageReader` reads any number of histories side by side. The `PageScheduler` of each `History` decides which
pages to read next, and the threads of one `FetchPool` fetch them. Pages that arrive together are parsed
together; those of one history are yielded in order.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing
from itertools import chain, compress, pairwise
from queue import Empty, SimpleQueue
from typing import NamedTuple

from loopring_lab.errors import (
    IncompleteHistory,
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    UnexpectedAnswer,
)
from loopring_lab.http.budget import Budget, receive
from loopring_lab.progress import Progress
from loopring_lab.tables import wire
from loopring_lab.tables.identity import RowKeys, row_keys

PAGE = 50
WORKERS, FEW_WORKERS = 12, 2
QUICK = 0.015  # seconds: more threads do not help with a relayer that responds within this
PARSED_TOGETHER, PARSED_AFTER = 48, 0.1  # pages, seconds
PARSED_BYTES, WAITING_BYTES = 8 << 20, 32 << 20  # of pages parsed together, of those that wait for others
LARGE_WAVE, LARGEST_WAVE = 48, 240  # pages
MAX_READINGS = 4
MAX_ROWS = 100_000_000  # of one history
EARLIEST = 1_420_070_400_000  # 2015, in milliseconds

Fetch = Callable[["History", int], bytes]
Wave = list[RowKeys]
"""Pages that were requested together: the keys of their rows."""
Steps = Generator[range, Wave, None]
Reading = Generator[range, Wave, bool]


class Window(NamedTuple):
    """The part of a history to read: a number of the newest rows, and the oldest moment in milliseconds."""

    limit: int | None = None
    since: int | None = None


EVERYTHING = Window()


class History:
    """The trades that the relayer lists under one filter, and how far reading them has got.

    `held` are the identities of rows that need not be read again, as hashes; `gone` is the number of those
    that the relayer no longer lists.
    """

    def __init__(
        self,
        account_id: int | None,
        fill_type: str,
        *,
        market: str | None = None,
        order_hash: str | None = None,
        window: Window = EVERYTHING,
        held: AbstractSet[int] = frozenset(),
        gone: int = 0,
    ) -> None:
        self.account_id, self.fill_type, self.window = account_id, fill_type, window
        self.query: dict[str, str | int] = {"accountId": account_id or 0, "fillTypes": fill_type}
        self.name = f"order {order_hash}" if account_id is None else f"account {account_id}"
        self.name += f", {fill_type} trades"
        if order_hash:
            self.query["orderHash"] = order_hash
        if market:
            self.query["market"] = market
            self.name += f" of {market}"
        self.scheduler = PageScheduler(self.name, held, gone)
        self.budget = Budget()
        self.requests = 0
        self.ended = False
        self.error: LabError | None = None
        self._steps = self.scheduler.steps(window)
        self._arrived: dict[int, FetchedPage] = {}
        self.waiting_bytes = 0
        self._begin_wave(next(self._steps))

    def next_offset(self) -> int | None:
        """Return the offset to request next, or None until the pages requested have arrived."""
        is_at_limit = self.requests > self.scheduler.page_limit  # pages under way tell whether to read on
        if self.ended or not self._to_request or is_at_limit:
            return None
        self.requests += 1
        return self._to_request.popleft()

    def accept(self, page: FetchedPage) -> Iterator[FetchedPage]:
        """Take a page, and yield those that no longer wait for an earlier one."""
        self._arrived[page.offset] = page
        self.waiting_bytes += len(page.body)
        while self._awaited and self._awaited[0] in self._arrived:
            ready = self._arrived.pop(self._awaited.popleft())
            self.waiting_bytes -= len(ready.body)
            self.scheduler.count(ready)
            self._wave.append(ready.keys)
            yield ready

    def advance(self) -> None:
        """Begin the next wave of pages once all of this one have arrived."""
        if self._awaited:
            return
        try:
            self._begin_wave(self._steps.send(self._wave))
        except StopIteration:
            self.ended = True

    def fail(self, error: LabError) -> None:
        """Read no further."""
        self.ended, self.error = True, self.error or error

    def _begin_wave(self, offsets: range) -> None:
        self._to_request, self._awaited = deque(offsets), deque(offsets)
        self._wave: Wave = []


def plan_histories(
    account_id: int | None,
    fill_types: Iterable[str],
    market: str | None,
    prefixes: Iterable[str],
    order_hash: str | None,
    window: Window,
) -> list[History]:
    """Split a query into histories: by fill type, and by the names that a market's pool may have."""
    histories = []
    for fill_type in fill_types:
        names = [market]
        if market and fill_type == "amm":
            names += [prefix + market for prefix in prefixes]
        for name in names:
            history = History(account_id, fill_type, market=name, order_hash=order_hash, window=window)
            histories.append(history)
    return histories


def read_histories(
    plan: Callable[[], list[History]],
    read: Callable[[Iterable[History]], Generator[FetchedPage]],
    *,
    check: bool = False,
) -> tuple[list[History], dict[str, list[wire.Batch]]]:
    """Read histories into batches by fill type; with `check`, until two whole readings agree."""
    before: set[tuple[str, int]] | None = None
    for _ in range(MAX_READINGS):
        histories, batches = plan(), defaultdict[str, list[wire.Batch]](list)
        contents: set[tuple[str, int]] = set()
        with closing(read(until_error(histories))) as pages:
            for page in pages:
                batches[page.history.fill_type].append(page.batch)
                contents.update((page.history.name, content) for content in page.keys.contents if check)
        if not check or contents == before:
            return histories, batches
        before = contents
    raise IncompleteHistory(
        histories[0].name.partition(",")[0],
        expected="two readings that agree",
        got=f"{MAX_READINGS} readings that differ",
        hint="Trades arrive or change faster than they can be read: try again when it is quieter.",
    )


def until_error(histories: Iterable[History]) -> Iterator[History]:
    """Yield histories to be read one after the other, until one of them fails."""
    for history in histories:
        yield history
        if history.error:
            return


def count_shared(histories: Iterable[History]) -> int:
    """Count the fills that are listed under more than one fill type."""
    by_type: dict[str, set[int]] = defaultdict(set)
    for history in histories:
        by_type[history.fill_type] |= history.scheduler.identities - history.scheduler.no_trades
    return sum(map(len, by_type.values())) - len(set().union(*by_type.values()))


class FetchedPage(NamedTuple):
    """A page of a history: its bytes, when they arrived (milliseconds), and its rows, parsed."""

    history: History
    offset: int
    body: bytes
    retrieved_at: int
    batch: wire.Batch
    keys: RowKeys


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
        self._waiting, self._open = iter(histories), deque[History]()
        self._progress, self._at_once, self._ten_members = progress, at_once, ten_members
        self._pool, self._threads = FetchPool(fetch), WORKERS
        self._closed_known = self._closed_total = 0
        self._error: LabError | None = None

    def __iter__(self) -> Iterator[FetchedPage]:
        """Yield the pages; the error of one history is raised when the others have been read."""
        try:
            self._open_histories()
            while self._open:
                self._request_pages()
                for history, result in self._parse(self._await_responses()):
                    if not history.ended:
                        yield from self._accept(history, result)
                self._close_histories()
                self._open_histories()
        finally:
            self._pool.shutdown()
        if self._error:
            raise self._error

    def _open_histories(self) -> None:
        while len(self._open) < self._at_once and (history := next(self._waiting, None)):
            self._open.append(history)

    def _request_pages(self) -> None:
        """Keep the threads busy with one history after the other, unless too much waits for earlier pages."""
        if self._pool.busy and sum(history.waiting_bytes for history in self._open) > WAITING_BYTES:
            return
        nothing_to_request = 0
        while self._pool.busy < self._threads and nothing_to_request < len(self._open):
            history = self._open[0]
            self._open.rotate(-1)
            offset = history.next_offset()
            if offset is None:
                nothing_to_request += 1
            else:
                nothing_to_request = 0
                self._pool.request(history, offset)

    def _await_responses(self) -> list[Response]:
        """Wait for a response, and for more of them only while that leaves no thread idle."""
        responses = [self._pool.next_response()]
        size = len(responses[0].body)
        if self._at_once == 1:
            self._threads = FEW_WORKERS if responses[0].seconds < QUICK else WORKERS
        deadline = time.monotonic() + PARSED_AFTER
        self._request_pages()
        while self._pool.busy >= self._threads and len(responses) < PARSED_TOGETHER and size < PARSED_BYTES:
            try:
                responses.append(self._pool.next_response(max(0, deadline - time.monotonic())))
            except Empty:
                break
            size += len(responses[-1].body)
            self._request_pages()
        return responses

    def _parse(self, responses: list[Response]) -> Iterator[tuple[History, FetchedPage | BaseException]]:
        """Parse pages together; an error concerns its own page only."""
        fetched = [response for response in responses if response.error is None]
        batches = wire.read_each(
            [response.body for response in fetched],
            [f"{response.history.name}, page at {response.offset}" for response in fetched],
            ten_members=self._ten_members,
        )
        keys = iter(row_keys([batch for batch in batches if isinstance(batch, wire.Batch)]))
        results = iter(batches)
        for history, offset, body, error, retrieved_at, _ in responses:
            result = error or next(results)
            if isinstance(result, wire.Batch):
                yield history, FetchedPage(history, offset, body, retrieved_at, result, next(keys))
            else:
                yield history, result

    def _accept(self, history: History, result: FetchedPage | BaseException) -> Iterator[FetchedPage]:
        try:
            if isinstance(result, BaseException):
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


class FetchPool:
    """Threads that fetch pages; they never keep a process from ending."""

    def __init__(self, fetch: Fetch) -> None:
        self.busy = 0
        self._fetch, self._threads = fetch, 0
        self._requests: SimpleQueue[tuple[History, int] | None] = SimpleQueue()
        self._responses: SimpleQueue[Response] = SimpleQueue()

    def request(self, history: History, offset: int) -> None:
        """Have a page fetched."""
        self.busy += 1
        if self.busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"fetching {self._threads}", daemon=True).start()
        self._requests.put((history, offset))

    def next_response(self, seconds: float = math.inf) -> Response:
        """Wait for the next response; `queue.Empty` if none comes in time."""
        response = receive(self._responses, seconds)
        self.busy -= 1
        return response

    def shutdown(self) -> None:
        """Drop the requests that no thread has begun, and end each thread after its own."""
        while not self._requests.empty():
            self._requests.get()
        for _ in range(self._threads):
            self._requests.put(None)

    def _work(self) -> None:
        while request := self._requests.get():
            begin = time.monotonic()
            body, failure = b"", None
            try:
                body = self._fetch(*request)
            except BaseException as error:  # noqa: BLE001 - raised again where the response is awaited
                failure = error
            self._responses.put(Response(*request, body, failure, now_ms(), time.monotonic() - begin))


class Response(NamedTuple):
    """The outcome of fetching a page: its bytes or an error."""

    history: History
    offset: int
    body: bytes
    error: BaseException | None
    retrieved_at: int
    seconds: float


class PageScheduler:
    """Decides which pages of one history to read next; reads nothing itself.

    The relayer documents no order and no snapshot: while pages are read, new rows may push others to later
    pages. So rows are counted by identity, and reading ends when there are as many as the relayer counts in
    its latest response. Until then the pages at both ends are read again, and after them all pages. Rows held
    from earlier readings are not read again, as long as the count is reached without them.
    """

    def __init__(self, name: str, held: AbstractSet[int] = frozenset(), gone: int = 0) -> None:
        self._name, self._held, self._gone = name, held, gone
        self.identities: set[int] = set()
        self.no_trades: set[int] = set()
        self._contents: set[int] = set()
        self._fresh: set[int] = set()
        self.total = 0
        self._pages, self._max_pages = 0, MAX_READINGS * 10

    @property
    def complete(self) -> bool:
        """Whether as many rows are known as the relayer counts, by identity or by content."""
        return self.total in (len(self.identities), len(self._contents)) or self._missing == 0

    @property
    def known(self) -> int:
        """Number of identities read or held."""
        return len(self._held) + len(self._fresh)

    @property
    def page_limit(self) -> int:
        """Number of pages that may be read, going by the rows known so far; one more ends reading."""
        return LARGEST_WAVE + MAX_READINGS * (self.known // PAGE + 10)

    @property
    def _missing(self) -> int:
        """Rows still to be found, going by what was held and counted before."""
        return self.total + self._gone - self.known

    def count(self, page: FetchedPage) -> None:
        """Count the rows of a page; what is counted must be delivered, or reading ends."""
        self.total = max(self.total, wire.read_total(page.batch))
        self._contents.update(page.keys.contents)
        self.identities.update(page.keys.identities)
        if (no_trade := page.batch.columns["no_trade"]).null_count < len(no_trade):
            self.no_trades.update(compress(page.keys.identities, no_trade.is_valid().to_pylist()))
        self._fresh.update(identity for identity in page.keys.identities if identity not in self._held)
        self._pages += 1
        if self.total > MAX_ROWS or self._pages > self.page_limit:
            raise self._incomplete()

    def steps(self, window: Window = EVERYTHING) -> Steps:
        """Yield the offsets of each wave of pages; the keys of their rows are sent back."""
        first = yield range(0, PAGE, PAGE)
        self._max_pages = MAX_READINGS * (self.total // PAGE + 10)
        if self._held and self.complete and self.total > PAGE and not _newest_first(first):
            # a row that came while another went leaves the count as it was, and may be on the last page
            yield range((self.total - 1) // PAGE * PAGE, self.total, PAGE)
        enough = self.complete
        if not enough and self._held:
            enough = yield from self._read_around_held(window, first)
        elif not enough and window != EVERYTHING:
            enough = yield from self._read_newest(window, first)
        if not enough:
            yield from self._read_everything()

    def _read_around_held(self, window: Window, wave: Wave) -> Reading:
        """Read the rows before those held, then those behind them; tell whether that is enough."""
        offset, pages = PAGE, 1
        while not self.complete and offset < self.total and not self._meets_held(wave):
            if _reaches(wave, window.since):
                return True
            stop = offset + max(1, min(pages, math.ceil(self._missing / PAGE))) * PAGE
            wave = yield range(offset, min(stop, self.total), PAGE)
            offset, pages = stop, min(2 * pages, LARGE_WAVE)
        counted, pages = self.total, 1
        offset = max(0, counted - max(0, self._missing)) // PAGE * PAGE
        while not self.complete and offset < counted:
            stop = offset + (LARGEST_WAVE if window.since is None else pages) * PAGE
            wave = yield range(offset, min(stop, counted), PAGE)
            offset, pages = stop, min(2 * pages, LARGE_WAVE)
            if _reaches(wave, window.since):
                return True
        return self.complete or (yield from self._read_ends(counted))

    def _read_newest(self, window: Window, wave: Wave) -> Reading:
        """Read on from the newest rows; tell whether that is enough: not if they are out of order."""
        moments: list[int] = []
        offset, pages = PAGE, min(LARGEST_WAVE, max(1, math.ceil((window.limit or 0) / PAGE) - 1))
        while True:
            fresh = _moments(wave)
            moments += fresh
            if not fresh or any(later > earlier for earlier, later in pairwise(moments)):
                return False
            if offset >= self.total:
                return self.complete
            old_enough = window.since is not None and moments[-1] < window.since
            if old_enough or (window.limit is not None and len(self.identities) >= window.limit):
                return True
            stop = offset + pages * PAGE
            wave = yield range(offset, min(stop, self.total), PAGE)
            offset, pages = stop, min(2 * pages, WORKERS)

    def _read_everything(self) -> Steps:
        """Read every page at once; if rows are missing then, page by page, so that none slips past."""
        counted, before = self.total, -1
        step = (LARGE_WAVE if self._held else LARGEST_WAVE) * PAGE
        for offset in range(PAGE, counted, step):
            yield range(offset, min(offset + step, counted), PAGE)
            if self._held and self.complete:
                return
        while not (yield from self._read_ends(counted)):
            if len(self._contents) == before:
                raise self._incomplete()
            before, counted = len(self._contents), self.total
            for offset in range(0, counted, PAGE):
                yield from self._read_page(offset)

    def _read_ends(self, counted: int) -> Reading:
        """Read what arrived before the first row and after the last one, as long as that narrows the gap."""
        gap = self.total
        while not self.complete and abs(self.total - len(self.identities)) < gap:
            gap, reached = abs(self.total - len(self.identities)), self.total
            for offset in range(0, self.total, PAGE):
                before = len(self._contents)
                rows = yield from self._read_page(offset)
                if rows < PAGE or len(self._contents) == before or self.complete:
                    break
            for offset in range(counted // PAGE * PAGE, self.total, PAGE):
                if self.complete:
                    break
                yield from self._read_page(offset)
            counted = reached
        return self.complete

    def _read_page(self, offset: int) -> Generator[range, Wave, int]:
        """Read one page, and return its number of rows."""
        if self._pages > self._max_pages:
            raise self._incomplete()
        [page] = yield range(offset, offset + PAGE, PAGE)
        return len(page.identities)

    def _meets_held(self, wave: Wave) -> bool:
        identities = list(chain.from_iterable(page.identities for page in wave))
        return not identities or not self._held.isdisjoint(identities)

    def _incomplete(self) -> IncompleteHistory:
        return IncompleteHistory(
            self._name,
            expected=f"{self.total} rows, as the relayer counts",
            got=len(self.identities),
            hint="Rows are missing or repeated at the relayer, or arrive faster than they can be read: "
            "try again when it is quieter, or read its newest rows with client.trades(..., limit=...).",
        )


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _moments(wave: Wave) -> list[int]:
    """Return the times of rows without those that are 0 or, among later ones, seem to be in seconds."""
    known = [moment for page in wave for moment in page.moments if moment]
    return [moment for moment in known if moment >= EARLIEST] or known


def _newest_first(wave: Wave) -> bool:
    moments = _moments(wave)
    return len(moments) > 1 and moments[0] > moments[-1]


def _reaches(wave: Wave, since: int | None) -> bool:
    """Tell whether rows, newest first, reach back before a moment."""
    return since is not None and _newest_first(wave) and _moments(wave)[-1] < since
