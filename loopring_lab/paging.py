"""A whole history out of pages of 50, while rows arrive and pages shift."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise
from typing import Any, NamedTuple

from loopring_lab.amounts.scaling import parse_decimal
from loopring_lab.errors import IncompleteHistory, UnexpectedAnswer
from loopring_lab.progress import Progress
from loopring_lab.tables import wire

PAGE = 50
WORKERS = 12
FEW_WORKERS = 2
LARGE_WAVE, LARGEST_WAVE = 48, 240
QUICK = 0.015
MAX_READINGS = 4

Fetch = Callable[[int], bytes]
Steps = Generator[range, list[list[Any]], None]


class Window(NamedTuple):
    """How much of a history is asked for: rows, and the oldest moment in milliseconds."""

    limit: int | None = None
    since: int | None = None


EVERYTHING = Window()


class PageScheduler:
    """Decides which pages of one filter of the trades endpoint to read next; reads nothing itself.

    The relayer documents no order and no snapshot: while pages are read, rows may be added and move others
    to later pages. So rows are counted by identity and the read ends when they are as many as the relayer
    counts in its latest answer. Both ends are read again first, then everything. What is held from earlier
    readings is not read again, as long as the count is reached without it.
    """

    def __init__(self, name: str, held: AbstractSet[int] = frozenset(), gone: int = 0) -> None:
        self._name, self._held, self._gone = name, held, gone
        self._identities: set[int] = set()
        self._contents: set[int] = set()
        self._fresh: set[int] = set()
        self.total = 0
        self._pages, self._most = 0, MAX_READINGS * 10

    @property
    def complete(self) -> bool:
        """Whether as many rows are held as the relayer counts, told apart by identity or by content."""
        return self.total in (len(self._identities), len(self._contents)) or self._missing == 0

    @property
    def known(self) -> int:
        """Number of identities held, from this reading or an earlier one."""
        return len(self._held) + len(self._fresh)

    @property
    def identities(self) -> frozenset[int]:
        """Hashes of the identities (id, side, order hash) of this reading."""
        return frozenset(self._identities)

    def steps(self, wanted: Window = EVERYTHING) -> Steps:
        """Say what to read, wave by wave."""
        [first] = yield range(0, PAGE, PAGE)
        self._most = MAX_READINGS * (self.total // PAGE + 10)
        if self._held and self.complete and self.total > PAGE and not _descends(first):
            yield range((self.total - 1) // PAGE * PAGE, self.total, PAGE)
        if self.complete:
            return
        if self._held:
            if (yield from self._beside_held(wanted, first)):
                return
        elif wanted != EVERYTHING and (yield from self._newest(wanted, first)):
            return
        yield from self._everything()

    def take(self, body: bytes) -> list[Any]:
        """Count the rows of a page."""
        answer = wire.parse(body, self._name)
        rows = wire.page_rows(answer, self._name)
        self.total = max(self.total, read_total(answer, self._name))
        self._contents.update(map(_content, rows))
        found = set(map(_identity, rows))
        self._identities |= found
        self._fresh |= found - self._held
        self._pages += 1
        return rows

    @property
    def _missing(self) -> int:
        """Rows still to be found, going by what was held and counted before."""
        return self.total + self._gone - self.known

    def _beside_held(self, wanted: Window, rows: list[Any]) -> Generator[range, list[list[Any]], bool]:
        """Read what came before the rows held, then what comes behind them."""
        offset, wave = PAGE, 1
        while not self.complete and offset < self.total and not self._meets_held(rows):
            if _older(rows, wanted.since):
                return True
            pages = max(1, min(wave, -(-self._missing // PAGE)))
            rows = _joined((yield range(offset, min(offset + pages * PAGE, self.total), PAGE)))
            offset, wave = offset + pages * PAGE, min(2 * wave, LARGE_WAVE)
        counted, wave = self.total, 1
        offset = max(0, counted - max(0, self._missing)) // PAGE * PAGE
        while not self.complete and offset < counted:
            pages = wave if wanted.since is not None else -(-counted // PAGE)
            rows = _joined((yield range(offset, min(offset + pages * PAGE, counted), PAGE)))
            offset, wave = offset + pages * PAGE, min(2 * wave, LARGE_WAVE)
            if _older(rows, wanted.since):
                return True
        return self.complete or (yield from self._ends(counted))

    def _newest(self, wanted: Window, rows: list[Any]) -> Generator[range, list[list[Any]], bool]:
        """Read on from the newest rows; False where that does not lead to an answer to be trusted."""
        moments: list[int] = []
        offset, wave = PAGE, max(1, -(-(wanted.limit or 0) // PAGE) - 1)
        while True:
            moments += map(_moment, rows)
            if not rows or any(later > earlier for earlier, later in pairwise(moments)):
                return False
            if offset >= self.total:
                return self.complete
            old = wanted.since is not None and moments[-1] < wanted.since
            if old or (wanted.limit is not None and len(self._identities) >= wanted.limit):
                return True
            rows = _joined((yield range(offset, offset + wave * PAGE, PAGE)))
            offset, wave = offset + wave * PAGE, min(2 * wave, WORKERS)

    def _everything(self) -> Steps:
        """Read every page at once; if that leaves a gap, once more in order, so that rows only move ahead."""
        held, counted = -1, self.total
        wave = (LARGE_WAVE if self._held else LARGEST_WAVE) * PAGE
        for offset in range(PAGE, counted, wave):
            yield range(offset, min(offset + wave, counted), PAGE)
            if self._held and self.complete:
                return
        while not (yield from self._ends(counted)):
            if len(self._contents) == held:
                raise self._incomplete()
            held, counted = len(self._contents), self.total
            for offset in range(0, counted, PAGE):
                yield from self._page(offset)

    def _ends(self, counted: int) -> Generator[range, list[list[Any]], bool]:
        """Read what arrived before the first row and after the last one, while that closes the gap."""
        gap = self.total
        while not self.complete and abs(self.total - len(self._identities)) < gap:
            gap, reached = abs(self.total - len(self._identities)), self.total
            for offset in range(0, self.total, PAGE):
                fresh = len(self._contents)
                rows = yield from self._page(offset)
                if len(rows) < PAGE or len(self._contents) == fresh or self.complete:
                    break
            for offset in range(counted // PAGE * PAGE, self.total, PAGE):
                if self.complete:
                    break
                yield from self._page(offset)
            counted = reached
        return self.complete

    def _page(self, offset: int) -> Generator[range, list[list[Any]], list[Any]]:
        if self._pages > self._most:
            raise self._incomplete()
        return (yield range(offset, offset + PAGE, PAGE))[0]

    def _meets_held(self, rows: list[Any]) -> bool:
        return not rows or any(_identity(row) in self._held for row in rows)

    def _incomplete(self) -> IncompleteHistory:
        return IncompleteHistory(
            self._name,
            expected=f"{self.total} rows, as the relayer counts",
            got=len(self._identities),
            hint="Rows are missing or repeated at the relayer, or arrive faster than they can be read: "
            "try again when it is quieter, or read its newest rows with limit=.",
        )


class History(PageScheduler):
    """Reads one filter of the trades endpoint until nothing is missing."""

    def __init__(self, fetch: Fetch, name: str, progress: Progress = lambda held, expected: None) -> None:
        super().__init__(name)
        self._fetch, self._progress = fetch, progress
        self.bodies: list[bytes] = []

    def read(self, wanted: Window = EVERYTHING) -> list[bytes]:
        """Read the history, or as much of its newest end as is wanted."""
        begin, steps = time.monotonic(), self.steps(wanted)
        rows = [self._keep(self._fetch(offset)) for offset in next(steps)]
        workers = WORKERS if time.monotonic() - begin > QUICK else FEW_WORKERS
        with ThreadPoolExecutor(workers) as pool:
            try:
                while True:
                    rows = self._wave(pool, steps.send(rows))
            except StopIteration:
                return self.bodies
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _keep(self, body: bytes) -> list[Any]:
        rows = self.take(body)
        self.bodies.append(body)
        self._progress(len(self._identities), self.total)
        return rows

    def _wave(self, pool: ThreadPoolExecutor, offsets: range) -> list[list[Any]]:
        asked = {pool.submit(self._fetch, offset): offset for offset in offsets}
        rows = {asked[done]: self._keep(done.result()) for done in as_completed(asked)}
        return [rows[offset] for offset in offsets]


def read_total(page: wire.Page, name: str) -> int:
    """Take the number of rows a relayer counts out of a page."""
    answer = wire.parse(page, name)
    told = answer.get("totalNum") if isinstance(answer, Mapping) else None
    number = parse_decimal(str(told))
    if number is None or number != int(number) or number < 0:
        hint = "Check that base_url is a relayer."
        raise UnexpectedAnswer(
            f"{name}.totalNum", expected="a number of rows", got=wire.short(told), hint=hint
        )
    return int(number)


def _content(row: Any) -> int:
    try:
        return hash(tuple(row))
    except TypeError:
        return hash(str(row))


def _identity(row: Any) -> int:
    if not isinstance(row, list) or len(row) < wire.CORE:
        return _content(row)
    number, side, order = row[1], str(row[2]).upper(), row[12] if len(row) > 12 else None
    exact = number if isinstance(number, str) and number.isdecimal() else parse_decimal(str(number))
    known = side if side in ("BUY", "SELL") else None
    return hash((None if exact is None else int(exact), known, None if order is None else str(order)))


def _moment(row: Any) -> int:
    moment = parse_decimal(str(row[0])) if isinstance(row, list) and row else None
    return 0 if moment is None else int(moment)


def _descends(rows: list[Any]) -> bool:
    return len(rows) > 1 and _moment(rows[0]) > _moment(rows[-1])


def _older(rows: list[Any], since: int | None) -> bool:
    """Tell whether rows, newest first, reach back before a moment."""
    return since is not None and _descends(rows) and _moment(rows[-1]) < since


def _joined(pages: list[list[Any]]) -> list[Any]:
    return [row for rows in pages for row in rows]
