"""Histories: what is asked of a relayer under one filter, its pages in order, and a query's pages as batches."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing
from itertools import compress
from typing import NamedTuple

from loopring_lab.errors import IncompleteHistory, LabError
from loopring_lab.http.budget import Budget
from loopring_lab.sources.paging.plan import (
    EVERYTHING,
    MAX_READINGS,
    PageScheduler,
    Wave,
    Window,
)
from loopring_lab.tables import wire
from loopring_lab.tables.identity import RowKeys

# As messages call the trades of a fill type, whose names are those of the wire.
TRADES_OF = {"amm": "pool trades", "dex": "order-book trades"}


class FetchedPage(NamedTuple):
    """A page of a history: its bytes, when they arrived (milliseconds), and its rows, parsed."""

    history: History
    offset: int
    body: bytes
    retrieved_at: int
    batch: wire.Batch
    keys: RowKeys


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
        self.scheduler = PageScheduler(self.name, held, gone)
        self.budget = Budget()
        self.requests = 0
        self.ended = False
        self.error: LabError | None = None
        # Pages that wait for an earlier one of their wave.
        self._arrived: dict[int, FetchedPage] = {}
        self._steps = self.scheduler.steps(window)
        self._begin_wave(next(self._steps))

    @property
    def waiting(self) -> int:
        """Number of pages that wait for an earlier one."""
        return len(self._arrived)

    def next_offset(self) -> int | None:
        """Return the offset to request next, or None until the pages requested have arrived."""
        # Past the limit, pages under way are awaited: their rows may raise it, or the scheduler ends reading.
        is_past_limit = self.requests > self.scheduler.page_limit
        if self.ended or is_past_limit:
            return None
        offset = next(self._to_request, None)
        if offset is not None:
            self.requests += 1
        return offset

    def accept(self, page: FetchedPage) -> Iterator[FetchedPage]:
        """Take a page, and yield those that no longer wait for an earlier one."""
        self._arrived[page.offset] = page
        for offset in self._offsets[len(self._wave) :]:
            if offset not in self._arrived:
                return
            ready = self._arrived.pop(offset)
            total = wire.read_total(ready.batch)
            self.scheduler.count(ready.offset, ready.keys, total, _no_trades(ready))
            self._wave.append(ready.keys)
            yield ready

    def advance(self) -> None:
        """Begin the next wave of pages once all of this one have arrived."""
        if len(self._wave) < len(self._offsets):
            return
        try:
            self._begin_wave(self._steps.send(self._wave))
        except StopIteration:
            self.ended = True

    def fail(self, error: LabError) -> None:
        """Read no further."""
        self.ended = True
        self.error = self.error or error

    def _begin_wave(self, offsets: range) -> None:
        self._offsets = offsets
        self._to_request = iter(offsets)
        self._wave: Wave = []  # keys of the pages that were yielded, in the order of their offsets


def _no_trades(page: FetchedPage) -> list[int]:
    """Return the identities of a page's rows that are no trades."""
    no_trade = page.batch.columns["no_trade"]
    if no_trade.null_count == len(no_trade):
        return []
    return list(compress(page.keys.identities, no_trade.is_valid().to_pylist()))


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
            history = History(
                account_id,
                fill_type,
                market=name,
                order_hash=order_hash,
                window=window,
            )
            histories.append(history)
    return histories


def read_histories(
    plan: Callable[[], list[History]],
    read: Callable[[Iterable[History]], Generator[FetchedPage]],
    *,
    check: bool = False,
) -> tuple[list[History], dict[str, list[wire.Batch]]]:
    """Read histories into batches by fill type; with `check`, until two whole readings agree."""
    contents_before: set[tuple[str, int]] | None = None
    for _ in range(MAX_READINGS):
        histories = plan()
        batches: dict[str, list[wire.Batch]] = defaultdict(list)
        contents: set[tuple[str, int]] = set()
        with closing(read(_until_error(histories))) as pages:
            for page in pages:
                batches[page.history.fill_type].append(page.batch)
                if check:
                    contents.update(
                        (page.history.name, content) for content in page.keys.contents
                    )
        if not check or contents == contents_before:
            return histories, batches
        contents_before = contents
    # All histories are of one account or order, with which their names begin.
    raise IncompleteHistory(
        histories[0].name.partition(",")[0],
        expected="two readings that agree",
        got=f"{MAX_READINGS} readings that differ",
        hint="Trades arrive or change faster than they can be read: try again when it is quieter.",
    )


def _until_error(histories: Iterable[History]) -> Iterator[History]:
    """Yield histories to be read one after the other, until one of them fails."""
    for history in histories:
        yield history
        if history.error:
            return


def count_shared(histories: Iterable[History]) -> int:
    """Count the fills that are listed under more than one fill type."""
    by_type: dict[str, set[int]] = defaultdict(set)
    for history in histories:
        trades = history.scheduler.identities - history.scheduler.no_trades
        by_type[history.fill_type] |= trades
    listed = sum(map(len, by_type.values()))
    distinct = set().union(*by_type.values())
    return listed - len(distinct)


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
