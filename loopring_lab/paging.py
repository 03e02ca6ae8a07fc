"""A whole history out of pages of 50, while rows arrive and pages shift."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import pairwise
from typing import Any, NamedTuple

from loopring_lab.amounts.scaling import decimal
from loopring_lab.errors import IncompleteHistory, UnexpectedAnswer
from loopring_lab.tables import wire

PAGE = 50
WORKERS = 12
FEW_WORKERS = 2
QUICK = 0.015
MAX_READINGS = 4

Fetch = Callable[[int], bytes]
Progress = Callable[[int, int], None]


class Wanted(NamedTuple):
    """How much of a history is asked for: rows, and the oldest moment in milliseconds."""

    limit: int | None = None
    since: int | None = None


EVERYTHING = Wanted()


class History:
    """Reads one filter of the trades endpoint until nothing is missing.

    The relayer documents no order and no snapshot: while pages are read, rows may be added and move others
    to later pages. So rows are counted by identity and the read ends when they are as many as the relayer
    counts in its latest answer. Both ends are read again first, then everything.

    Parameters
    ----------
    fetch : callable
        Gives the body of the page at an offset.
    name : str
        For error messages.
    progress : callable
        Told the number of rows held and the number expected, after every page.
    """

    def __init__(self, fetch: Fetch, name: str, progress: Progress = lambda held, expected: None) -> None:
        self._fetch, self._name, self._progress = fetch, name, progress
        self._identities: set[int] = set()
        self._contents: set[int] = set()
        self.bodies: list[bytes] = []
        self.total = 0
        self._most = 0

    @property
    def complete(self) -> bool:
        """Whether as many rows are held as the relayer counts, told apart by identity or by content."""
        return self.total in (len(self._identities), len(self._contents))

    @property
    def identities(self) -> frozenset[int]:
        """Hashes of the identities (id, side, order hash) held."""
        return frozenset(self._identities)

    def read(self, wanted: Wanted = EVERYTHING) -> list[bytes]:
        """Read the history, or as much of its newest end as is wanted.

        Parameters
        ----------
        wanted : Wanted
            A part is read only as long as the relayer gives rows newest first; otherwise everything is.

        Returns
        -------
        list of bytes
            Bodies of pages, in no order, rows possibly repeated.

        Raises
        ------
        IncompleteHistory
            The relayer counts other rows than it hands out.
        UnexpectedAnswer
            An answer is not a page of trades.
        """
        begin = time.monotonic()
        newest = self._page(0)
        self._most = MAX_READINGS * (self.total // PAGE + 10)
        workers = WORKERS if time.monotonic() - begin > QUICK else FEW_WORKERS
        if self.complete:
            return self.bodies
        with ThreadPoolExecutor(workers) as pool:
            try:
                if wanted == EVERYTHING or not self._read_newest(pool, wanted, newest):
                    self._read_all(pool)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return self.bodies

    def _read_newest(self, pool: ThreadPoolExecutor, wanted: Wanted, rows: list[Any]) -> bool:
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
            pages = list(pool.map(self._fetch, range(offset, offset + wave * PAGE, PAGE)))
            rows = [row for body in pages for row in self._take(body)]
            offset, wave = offset + wave * PAGE, min(2 * wave, WORKERS)

    def _read_all(self, pool: ThreadPoolExecutor) -> None:
        """Read every page at once; if that leaves a gap, once more in order, so that rows only move ahead."""
        held, counted = -1, self.total
        for done in as_completed([pool.submit(self._fetch, at) for at in range(PAGE, counted, PAGE)]):
            self._take(done.result())
        while not self._read_ends(counted):
            if len(self._contents) == held:
                raise self._incomplete()
            held, counted = len(self._contents), self.total
            for offset in range(0, counted, PAGE):
                self._page(offset)

    def _read_ends(self, counted: int) -> bool:
        """Read what arrived before the first row and after the last one, while that closes the gap."""
        gap = self.total
        while not self.complete and abs(self.total - len(self._identities)) < gap:
            gap, reached = abs(self.total - len(self._identities)), self.total
            for offset in range(0, self.total, PAGE):
                fresh = len(self._contents)
                rows = self._page(offset)
                if len(rows) < PAGE or len(self._contents) == fresh or self.complete:
                    break
            for offset in range(counted // PAGE * PAGE, self.total, PAGE):
                if self.complete:
                    break
                self._page(offset)
            counted = reached
        return self.complete

    def _page(self, offset: int) -> list[Any]:
        if len(self.bodies) > self._most:
            raise self._incomplete()
        return self._take(self._fetch(offset))

    def _incomplete(self) -> IncompleteHistory:
        return IncompleteHistory(
            self._name,
            expected=f"{self.total} rows, as the relayer counts",
            got=len(self._identities),
            hint="Rows are missing or repeated at the relayer, or arrive faster than they can be read: "
            "try again when it is quieter, or read its newest rows with limit=.",
        )

    def _take(self, body: bytes) -> list[Any]:
        answer = wire.parse(body, self._name)
        rows = wire.page_rows(answer, self._name)
        self.total = max(self.total, total(answer, self._name))
        self._contents.update(map(_content, rows))
        self._identities.update(map(_identity, rows))
        self.bodies.append(body)
        self._progress(len(self._identities), self.total)
        return rows


def total(page: wire.Page, name: str) -> int:
    """Take the number of rows a relayer counts out of a page.

    Parameters
    ----------
    page : bytes, str or mapping
        An answer of the trades endpoint.
    name : str
        For error messages.

    Returns
    -------
    int
        ``totalNum``.

    Raises
    ------
    UnexpectedAnswer
        It is not a number of rows.
    """
    answer = wire.parse(page, name)
    told = answer.get("totalNum") if isinstance(answer, Mapping) else None
    number = decimal(str(told))
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
    return _content([row[1], row[2], *row[12:13]])


def _moment(row: Any) -> int:
    moment = decimal(str(row[0])) if isinstance(row, list) and row else None
    return 0 if moment is None else int(moment)
