"""Histories on their way from a relayer: whose page is next, who fetches it, and what has come."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from loopring_lab.archive.records import Count, now
from loopring_lab.archive.stored import Page
from loopring_lab.paging import Course, Wanted

__all__ = ["Crew", "Fetched", "Stream"]


class Stream:
    """One account's history of one fill type, while it is read.

    Parameters
    ----------
    account_id, fill_type : int, str
        Which history.
    held : set of int
        Identities held, as `Course` wants them.
    gone : int
        As for `Course`.
    wanted : Wanted
        How much of it.

    Attributes
    ----------
    todo : deque of int
        Offsets of pages that can be asked for now.
    ended : bool
        Whether nothing more is to be read.
    """

    def __init__(self, account_id: int, fill_type: str, held: set[int], gone: int, wanted: Wanted) -> None:
        self.account_id, self.fill_type, self.wanted = account_id, fill_type, wanted
        self.course = Course(f"account {account_id}, {fill_type} trades", held, gone)
        self.ended, self.requests = False, 0
        self.todo: deque[int] = deque()
        self._arrived: dict[int, Page] = {}
        self._rows: list[list[Any]] = []
        self._steps = self.course.steps(wanted)
        self._wave(next(self._steps))

    def take(self, offset: int, page: Page) -> list[Page]:
        """Accept a page, and give on those before which nothing is missing; `advance` after it.

        In that order they are committed, so that what is held of an interrupted reading has no holes.

        Parameters
        ----------
        offset : int
            Where the page was asked for.
        page : Page
            It.

        Returns
        -------
        list of Page
            To be committed.

        Raises
        ------
        UnexpectedAnswer
            It is not a page of trades.
        """
        self._arrived[offset] = page
        ready = []
        while self._due and self._due[0] in self._arrived:
            ready.append(self._arrived.pop(self._due.popleft()))
            self._rows.append(self.course.take(ready[-1].body))
        return ready

    def advance(self) -> None:
        """Find out what to read next, when all that was to be read has come.

        Raises
        ------
        IncompleteHistory
            The relayer counts other rows than it hands out.
        """
        if not self._due:
            try:
                self._wave(self._steps.send(self._rows))
            except StopIteration:
                self.ended = True

    def count(self) -> Count:
        """Sum up what the relayer counted.

        Returns
        -------
        Count
            As of now.
        """
        gone = self.course.known - self.course.total if self.course.complete else None
        return Count(
            self.account_id, self.fill_type, now(), self.course.total, gone, self.requests, self.wanted.since
        )

    def _wave(self, offsets: range) -> None:
        self.todo, self._due, self._rows = deque(offsets), deque(offsets), []


class Fetched(NamedTuple):
    """What came of asking for a page: it, or why it did not come."""

    stream: Stream
    offset: int
    result: Page | BaseException


class Crew:
    """Threads that fetch pages; they never keep a process from ending.

    Parameters
    ----------
    fetch : callable
        Fetches a page of a stream at an offset.
    size : int
        How many at once.
    """

    def __init__(self, fetch: Callable[[Stream, int], Page], size: int) -> None:
        self._fetch, self._size, self._busy = fetch, size, 0
        self._asked: SimpleQueue[tuple[Stream, int] | None] = SimpleQueue()
        self._done: SimpleQueue[Fetched] = SimpleQueue()
        for number in range(size):
            threading.Thread(target=self._work, name=f"fetching {number}", daemon=True).start()

    @property
    def free(self) -> bool:
        """Whether one of them has nothing to do."""
        return self._busy < self._size

    def ask(self, stream: Stream, offset: int) -> None:
        """Have a page fetched.

        Parameters
        ----------
        stream : Stream
            Whose.
        offset : int
            Where.
        """
        self._busy += 1
        stream.requests += 1
        self._asked.put((stream, offset))

    def answer(self) -> Fetched:
        """Wait for the next page that came, or failed to.

        Returns
        -------
        Fetched
            The page, or the error.
        """
        answer = self._done.get()
        self._busy -= 1
        return answer

    def dismiss(self) -> None:
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
