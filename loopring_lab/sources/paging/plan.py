"""Which pages of a history to read next, and when it is complete."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import NamedTuple

from loopring_lab.errors import IncompleteHistory, UnexpectedAnswer
from loopring_lab.tables.identity import RowKeys
from loopring_lab.tables.listings import EARLIEST

PAGE = 50  # rows asked for at once: the most that a relayer sends, by its contract; some send fewer
# Pages asked for together: the most while any of them may show that no more are needed, and where all are. A wave's
# keys of rows stay in memory until its last page is here.
LARGEST_SEARCH = 48
LARGEST_WAVE = 240
MAX_READINGS = 4  # times that a page may be read on average; a history that needs more never stands still
SPARE_PAGES = 10  # for short histories, of which a few new rows are a large part

Wave = list[RowKeys]
"""Pages that were requested together: the keys of their rows."""
Steps = Generator[range, Wave, None]
"""Yields the offsets of a wave's pages, and is sent what these have."""
Attempt = Generator[range, Wave, bool]
"""Steps that answer a question at their end, such as whether what was read is enough."""


class Window(NamedTuple):
    """The part of a history to read: a number of the newest rows, and the oldest moment in milliseconds."""

    limit: int | None = None
    since: int | None = None


EVERYTHING = Window()


class PageScheduler:
    """Decides which pages of one history to read next; reads nothing itself.

    The relayer documents no order and no snapshot: while pages are read, new rows may push others to later
    pages. So rows are counted, and a history is complete when as many are known as the relayer counts in its
    latest answer.

    *Identities or contents.* A row may come again with other content, such as a block that was not known
    before. Some relayers count that once and some twice, and none says which. So the history is complete if
    either number of distinct rows, by identity or by whole content, is the relayer's count.

    *Both ends.* After a reading of all pages, a row can be missing only if it came while they were read. It
    stands before the rows that were on the first page, or after those that were on the last, unless a relayer
    inserts rows inside. So the pages at both ends are read again until they bring nothing new. If the count is
    not reached then, rows moved past a page while it was under way: all pages are read once more, one by one
    in order, so that no row slips from a page not read yet to one read already. A reading that finds nothing
    new is the last.

    *Short pages.* A relayer may send fewer rows a page than it is asked for. Pages begin where the page before
    ends, so the first one tells how many rows apart they are. Where a later page is shorter still, the rows up
    to the next one were not read: pages are then read one by one, each from where the last one ended.

    *The end.* A relayer may count no further than to some number, such as 100, or count the rows of a page. Then
    the last page counted is a full one. So where it is, one more page is asked for; if that has rows, pages are
    read until one has no new row, and these are counted instead.

    Rows held from earlier readings are not read again, as long as the count is reached without them.
    """

    def __init__(
        self, name: str, held: AbstractSet[int] = frozenset(), gone: int = 0
    ) -> None:
        self._name = name
        self._held = held  # identities that the archive has already
        self._gone = gone  # of those, how many the relayer no longer lists
        self.total = 0  # rows, by the relayer's latest count
        self.identities: set[int] = set()
        self.no_trades: set[int] = set()  # identities of rows that are no trades
        self._contents: set[int] = set()
        self._fresh: set[int] = set()  # identities read that were not held
        self._pages = 0
        self._first_total = 0
        self._step = PAGE  # rows from the beginning of a page to that of the next
        # Whether a page ended before the next one begins, so that rows between them were not read.
        self._has_hole = False

    @property
    def complete(self) -> bool:
        """Whether as many rows are known as the relayer counts, by identity or by content."""
        return (
            self.total in (len(self.identities), len(self._contents))
            or self._missing == 0
        )

    @property
    def known(self) -> int:
        """Number of identities read or held."""
        return len(self._held) + len(self._fresh)

    @property
    def page_limit(self) -> int:
        """Number of pages that may be read, going by the rows known so far; one more ends reading."""
        # A history that grows while it is read needs a few readings of each page. Two kinds would be read for ever:
        # one that grows as fast as it is read, in which `known` has no end, and one that counts rows it never
        # sends, in which the count says nothing. The smaller of the two numbers ends either.
        pages_expected = min(self.known, self._first_total) // self._step + SPARE_PAGES
        return MAX_READINGS * pages_expected

    @property
    def _missing(self) -> int:
        """Rows still to be found, if all that are held are still listed but for those gone."""
        return self.total + self._gone - self.known

    def count(
        self, offset: int, keys: RowKeys, total: int, no_trades: Iterable[int]
    ) -> None:
        """Count the rows of a page; end reading if it is too long, or one page too many."""
        rows = len(keys.identities)
        if rows > PAGE:
            raise UnexpectedAnswer(
                f"{self._name}, page at {offset}",
                expected=f"at most {PAGE} rows, as asked for",
                got=f"{rows:,}",
                hint="Check that base_url is a relayer: its pages end where they are asked to.",
            )
        self.total = max(self.total, total)
        is_short = 0 < rows < self._step and offset + rows < self.total
        if self._pages == 0:
            self._first_total = total
            if is_short:
                self._step = rows
        elif is_short:
            self._has_hole = True
        self._pages += 1
        self.identities.update(keys.identities)
        self.no_trades.update(no_trades)
        self._contents.update(keys.contents)
        self._fresh.update(
            identity for identity in keys.identities if identity not in self._held
        )
        if self._pages > self.page_limit:
            raise self._incomplete()

    def steps(self, window: Window = EVERYTHING) -> Steps:
        """Yield the offsets of each wave of pages; the keys of their rows are sent back."""
        first = yield range(0, PAGE, PAGE)
        is_as_held = self._held and self.complete
        if is_as_held and self.total > self._step and not _is_newest_first(first):
            # A row that came while another went leaves the count as it was, and may be on the last page.
            yield range(self._page_with(self.total - 1), self.total, self._step)
        enough = self.complete
        if not enough and self._held:
            enough = yield from self._read_around_held(window, first)
        elif not enough and window != EVERYTHING:
            enough = yield from self._read_newest(window, first)
        if not enough:
            yield from self._read_everything()
        # A history that is as it was held was read past its count when it was stored.
        if self.complete and not is_as_held:
            yield from self._read_past_count()

    def _page_with(self, row: int) -> int:
        """Return the offset of the page that has a row, given by its place in the history."""
        return max(0, row) // self._step * self._step

    def _read_around_held(self, window: Window, first: Wave) -> Attempt:
        """Read the rows before those held, then those behind them; tell whether that is enough."""
        is_past_window = yield from self._read_before_held(window, first)
        counted = self.total
        if not is_past_window:
            is_past_window = yield from self._read_behind_held(window, counted)
        if is_past_window:
            return not self._has_hole
        return (yield from self._read_ends(counted))

    def _read_before_held(self, window: Window, first: Wave) -> Attempt:
        """Read on from the first page to a row that is held; tell whether the window ended before."""
        step = self._step
        wave = first
        offset = step
        pages = 1
        while not self.complete and offset < self.total and not self._meets_held(wave):
            if _reaches(wave, window.since):
                return True
            # A wave of more pages than are missing would end among rows that are held.
            pages_missing = math.ceil(self._missing / step)
            stop = offset + max(1, min(pages, pages_missing)) * step
            wave = yield range(offset, min(stop, self.total), step)
            offset = stop
            pages = min(2 * pages, LARGEST_SEARCH)
        return False

    def _read_behind_held(self, window: Window, counted: int) -> Attempt:
        """Read the last rows, to which the reading that left those held did not come; tell whether the window ended."""
        step = self._step
        offset = self._page_with(counted - max(0, self._missing))
        pages = LARGEST_WAVE if window.since is None else 1
        while not self.complete and offset < counted:
            stop = offset + pages * step
            wave = yield range(offset, min(stop, counted), step)
            offset = stop
            if _reaches(wave, window.since):
                return True
            if window.since is not None:
                pages = min(2 * pages, LARGEST_SEARCH)
        return False

    def _read_newest(self, window: Window, first: Wave) -> Attempt:
        """Read on from the newest rows; tell whether that is enough: not if they are out of order."""
        step = self._step
        wave = first
        offset = step
        # All that the limit needs at once, but for the first page, which is here. Where that is not enough, nobody
        # knows how many more are needed.
        pages_of_limit = math.ceil((window.limit or 0) / step)
        pages = min(LARGEST_WAVE, max(1, pages_of_limit - 1))
        moments: list[int] = []
        while True:
            fresh = _moments(wave)
            moments += fresh
            is_in_order = all(earlier >= later for earlier, later in pairwise(moments))
            if not fresh or not is_in_order or self._has_hole:
                return False
            if offset >= self.total:
                return self.complete
            is_old_enough = window.since is not None and moments[-1] < window.since
            is_long_enough = (
                window.limit is not None and len(self.identities) >= window.limit
            )
            if is_old_enough or is_long_enough:
                return True
            stop = offset + pages * step
            wave = yield range(offset, min(stop, self.total), step)
            offset = stop
            pages = min(2 * pages, LARGEST_SEARCH)

    def _read_everything(self) -> Steps:
        """Read every page at once; if rows are missing then, page by page, so that none slips past."""
        counted = self.total
        step = self._step
        rows_at_once = step * (LARGEST_SEARCH if self._held else LARGEST_WAVE)
        for offset in range(step, counted, rows_at_once):
            yield range(offset, min(offset + rows_at_once, counted), step)
            if self._has_hole or (self._held and self.complete):
                break
        found_before = -1
        while not (yield from self._read_ends(counted)):
            if len(self._contents) == found_before:
                raise self._incomplete()
            found_before = len(self._contents)
            counted = self.total
            offset = 0
            while offset < counted:
                page = yield from self._read_page(offset)
                offset += len(page.identities) or self._step

    def _read_ends(self, end: int) -> Attempt:
        """Read what arrived before the first row and after `end`, where reading ended, while that narrows the gap."""
        gap = math.inf
        while not self.complete and self._gap() < gap:
            gap = self._gap()
            # Of now: what arrives while these pages are read is left to the next turn.
            next_end = self.total
            yield from self._read_new(0)
            yield from self._read_new(self._page_with(end))
            end = next_end
        return self.complete

    def _read_new(self, offset: int) -> Steps:
        """Read page after page from an offset, up to one without a new row, or until the history is complete."""
        while not self.complete and offset < self.total:
            found_before = len(self._contents)
            page = yield from self._read_page(offset)
            offset += len(page.identities)
            if len(self._contents) == found_before:
                return

    def _read_past_count(self) -> Steps:
        """Read on from a last page that is full, for a count that may end before the rows do."""
        offset = self.total
        if not offset or offset % self._step:
            return
        found_before = -1
        # Some relayers repeat their last page past the end.
        while len(self._contents) > found_before:
            found_before = len(self._contents)
            page = yield from self._read_page(offset)
            offset += len(page.identities)
        self.total = max(self.total, self.known - self._gone)

    def _gap(self) -> int:
        """Return how many rows the relayer's count is off those read, either way; what is held does not matter."""
        return abs(self.total - len(self.identities))

    def _read_page(self, offset: int) -> Generator[range, Wave, RowKeys]:
        """Read one page."""
        [page] = yield range(offset, offset + PAGE, PAGE)
        return page

    def _meets_held(self, wave: Wave) -> bool:
        """Tell whether a wave has a row that is held, or no rows."""
        is_empty = not any(page.identities for page in wave)
        return is_empty or any(
            not self._held.isdisjoint(page.identities) for page in wave
        )

    def _incomplete(self) -> IncompleteHistory:
        return IncompleteHistory(
            self._name,
            expected=f"{self.total} rows, as the relayer counts",
            got=len(self.identities),
            hint="Rows are missing or repeated at the relayer, or arrive faster than they can be read: "
            "try again when it is quieter, or read its newest rows with client.trades(..., limit=...).",
        )


def _moments(wave: Wave) -> list[int]:
    """Return the times of rows that are known and plausible, or all known ones if none is."""
    # One before `EARLIEST` is in seconds; 0 stands for an unknown time.
    known = [moment for page in wave for moment in page.moments if moment]
    return [moment for moment in known if moment >= EARLIEST] or known


def _is_newest_first(wave: Wave) -> bool:
    moments = _moments(wave)
    return len(moments) > 1 and moments[0] > moments[-1]


def _reaches(wave: Wave, since: int | None) -> bool:
    """Tell whether rows, newest first, reach back before a moment."""
    return since is not None and _is_newest_first(wave) and _moments(wave)[-1] < since
