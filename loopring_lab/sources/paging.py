"""Whole trade histories out of pages of 50, complete by the relayer's count or an `IncompleteHistory`.

Pages are read one after the other, each from where the last one ended, up to one that brings no new row: also past
the relayer's count, because some relayers count no further than to some number.

While pages are read, new rows may push others to later pages, and no relayer has a snapshot to read from. So rows are
counted: a history is complete when as many are known as the latest answer counts. If some are missing, they came
while the pages were read, before the first row or behind the last, so both ends are read once more. If that finds
none of them, rows moved inside the history, and the reading ends in an error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import NamedTuple

from loopring_lab.errors import (
    IncompleteHistory,
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    UnexpectedAnswer,
)
from loopring_lab.http.transport import Params
from loopring_lab.progress import Progress
from loopring_lab.tables import wire
from loopring_lab.tables.identity import RowKeys, row_keys
from loopring_lab.tables.listings import EARLIEST

PAGE = 50  # rows asked for at once: the most that a relayer sends, by its contract; some send fewer
# A history that grows as fast as it is read would be read for ever: it ends when it has twice the rows that it
# had at first, and these more, of which a short history may have many.
SPARE_ROWS = 2_000
# The fill types, by their names on the wire, with the words by which messages call their trades.
TRADES_OF = {"amm": "pool trades", "dex": "order-book trades"}

Fetch = Callable[[Params], bytes]


class Window(NamedTuple):
    """The part of a history to read: a number of the newest rows, and the oldest moment in milliseconds."""

    limit: int | None = None
    since: int | None = None


EVERYTHING = Window()


class FetchedPage(NamedTuple):
    """A page of a history: its bytes, when they arrived (milliseconds), and its rows, parsed."""

    history: History
    offset: int
    body: bytes
    retrieved_at: int
    batch: wire.Batch


class History:
    """The trades that the relayer lists under one filter, and how far reading them has got.

    A history without a window is read only as far as rows are missing from those `held`, given by their hashes;
    `gone` is the number of them that the relayer no longer lists.
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
        self.account_id = account_id
        self.fill_type = fill_type
        self.window = window
        # A relayer requires accountId in any case; 0 stands for all accounts.
        self.query: dict[str, str | int] = {
            "accountId": account_id or 0,
            "fillTypes": fill_type,
        }
        self.name = (
            f"order {order_hash}" if account_id is None else f"account {account_id}"
        )
        self.name += f", {TRADES_OF[fill_type]}"
        if order_hash:
            self.query["orderHash"] = order_hash
        if market:
            self.query["market"] = market
            self.name += f" of {market}"
        self.total = 0  # rows, by the relayer's latest count
        self.identities: set[int] = set()  # of the rows read
        self.requests = 0
        self.ended = False
        self.error: LabError | None = None
        self._gone = gone
        self._known = set(held)  # identities of the rows read or held
        # A row may come again with other content, such as a block that was not known before. Some relayers count
        # that once and some twice, and none says which.
        self._contents: set[int] = set()
        self._most = 0  # rows that it may have grown to
        self._is_newest_first = True
        self._oldest: float = math.inf
        self._reached = False

    @property
    def known(self) -> int:
        """Number of identities read or held."""
        return len(self._known)

    @property
    def complete(self) -> bool:
        """Whether as many rows are known as the relayer counts."""
        is_as_held = self.known - self._gone == self.total
        return is_as_held or len(self._contents) >= self.total

    def read(self, fetch: Fetch) -> Iterator[FetchedPage]:
        """Yield the pages, until no row is missing or those of the window are here."""
        if self._known and self.window == EVERYTHING:
            yield from self._read_ends(fetch)
            if self.complete:
                return
        yield from self._read_on(fetch, 0, set())
        while not self.complete and not self._reached:
            known_before = self.known
            yield from self._read_ends(fetch)
            if self.known == known_before:
                raise self._incomplete()
        self.total = max(self.total, len(self.identities))

    def _read_ends(self, fetch: Fetch) -> Iterator[FetchedPage]:
        """Read what came before the rows known, and then what is behind as many."""
        yield from self._read_on(fetch, 0, self._known)
        if not self.complete:
            yield from self._read_on(fetch, self.known - self._gone, self._known)

    def _read_on(
        self, fetch: Fetch, offset: int, seen: set[int]
    ) -> Iterator[FetchedPage]:
        """Read page after page, up to one whose rows have all been seen, or to the end of the window."""
        is_new = True
        while is_new and not self._reached:
            body = fetch({**self.query, "offset": offset, "limit": PAGE})
            retrieved_at = now_ms()
            batch = wire.read(body, f"{self.name}, page at {offset}")
            keys = row_keys(batch)
            is_new = not seen.issuperset(keys.identities)
            seen.update(keys.identities)
            self._count(batch, keys)
            self._note_order(keys.moments)
            yield FetchedPage(self, offset, body, retrieved_at, batch)
            offset += len(keys.identities)

    def _count(self, batch: wire.Batch, keys: RowKeys) -> None:
        """Count the rows of a page, or refuse one that is too long."""
        if len(keys.identities) > PAGE:
            raise UnexpectedAnswer(
                batch.places[0],
                expected=f"at most {PAGE} rows, as asked for",
                got=f"{len(keys.identities):,}",
                hint="Check that base_url is a relayer: its pages end where they are asked to.",
            )
        self.requests += 1
        self.total = max(self.total, wire.read_total(batch))
        self.identities.update(keys.identities)
        self._known.update(keys.identities)
        self._contents.update(keys.contents)
        self._most = self._most or 2 * self.total + SPARE_ROWS
        if self.total > self._most:
            raise self._incomplete()

    def _note_order(self, moments: list[int]) -> None:
        """Note whether the rows, newest first so far, reach as far back as the window."""
        # A moment before `EARLIEST` is in seconds; 0 stands for an unknown time.
        known = [moment for moment in moments if moment >= EARLIEST]
        if not known:
            return
        is_in_order = all(earlier >= later for earlier, later in pairwise(known))
        if not is_in_order or known[-1] > self._oldest:
            self._is_newest_first = False
        self._oldest = known[-1]
        limit, since = self.window
        is_long_enough = limit is not None and len(self.identities) >= limit
        is_old_enough = since is not None and self._oldest < since
        if self._is_newest_first and (is_long_enough or is_old_enough):
            self._reached = True

    def _incomplete(self) -> IncompleteHistory:
        return IncompleteHistory(
            self.name,
            expected=f"{self.total} rows, as the relayer counts",
            got=len(self.identities),
            hint="Rows are missing or repeated at the relayer, or arrive faster than they can be read: "
            "try again when it is quieter, or read its newest rows with client.trades(..., limit=...).",
        )


def read_histories(
    histories: Iterable[History], fetch: Fetch, progress: Progress
) -> Iterator[FetchedPage]:
    """Read histories one after the other; the error of one is raised when the others have been read."""
    first_error: LabError | None = None
    known = 0
    total = 0
    for history in histories:
        try:
            for page in history.read(fetch):
                progress(known + history.known, total + history.total)
                yield page
                # Whoever keeps the pages may refuse one.
                if history.error:
                    break
        except (NotAuthorized, RateLimited):
            raise  # the other histories would meet the same
        except (UnexpectedAnswer, RelayerError) as error:
            history.error = error
        history.ended = True
        known += history.known
        total += history.total
        first_error = first_error or history.error
    if first_error:
        raise first_error


def until_error(histories: Iterable[History]) -> Iterator[History]:
    """Yield histories to be read one after the other, until one of them fails."""
    for history in histories:
        yield history
        if history.error:
            return


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
