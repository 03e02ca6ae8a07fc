"""Many histories read at once under one rate limit, and committed a bounded batch at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import pyarrow as pa

from loopring_lab.archive.disk import Disk
from loopring_lab.archive.merge import merge
from loopring_lab.archive.reading import Crew, Fetched, Stream
from loopring_lab.archive.records import Count, counts, held, keep_counts, keep_listing, now
from loopring_lab.archive.stored import Listed, Page, stored
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
from loopring_lab.paging import PAGE, WORKERS, Wanted
from loopring_lab.progress import Progress

__all__ = ["Sync"]

BATCH_ROWS, BATCH_SECONDS = 5_000, 5.0
OF_ONE_HISTORY = (IncompleteHistory, UnexpectedAnswer, RelayerError, AmountError)
OF_ALL = (NotAuthorized, RateLimited)


class Sync:
    """Brings an archive up to what a relayer has now.

    Parameters
    ----------
    disk : Disk
        Of the archive, begun.
    client : Client
        Of the relayer.
    histories : sequence of (int, str)
        Accounts and fill types.
    since : int or None
        Milliseconds; older rows are left out where the relayer gives newest first.
    progress : callable
        Told the number of rows held and expected.

    Attributes
    ----------
    errors : list of LabError
        Of histories that could not be read to their end, while others were.
    """

    def __init__(
        self,
        disk: Disk,
        client: Client,
        histories: Sequence[tuple[int, str]],
        since: int | None,
        progress: Progress,
    ) -> None:
        self._disk, self._client, self._progress = disk, client, progress
        self._wanted = Wanted(since=since)
        self._waiting, self._streams = deque(histories), deque[Stream]()
        self._batch: dict[Stream, list[Page]] = {}
        self._counts: list[Count] = []
        self._done = [0, 0]
        self._committed = time.monotonic()
        self.errors: list[LabError] = []
        self._listed = _listed(client)
        keep_listing(disk, self._listed)
        self._last = counts(disk)

    def run(self) -> None:
        """Read and commit until every history is done.

        Raises
        ------
        LabError
            The relayer or the disk refuses altogether. Also after that and after Ctrl-C, what was read is
            committed.
        """
        crew = Crew(self._fetch, WORKERS)
        try:
            while self._waiting or self._streams:
                self._open()
                self._hand_out(crew)
                self._accept(crew.answer())
                if self._full:
                    self._commit()
        finally:
            crew.dismiss()
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
            self._streams.append(Stream(*history, held(self._disk, history), gone, self._wanted))

    def _hand_out(self, crew: Crew) -> None:
        """Have pages fetched, of one history after the other."""
        idle = 0
        while crew.free and idle < len(self._streams):
            stream = self._streams[0]
            self._streams.rotate(-1)
            idle = 0 if stream.todo else idle + 1
            if stream.todo:
                crew.ask(stream, stream.todo.popleft())

    def _fetch(self, stream: Stream, offset: int) -> Page:
        query: dict[str, str | int] = {"accountId": stream.account_id, "fillTypes": stream.fill_type}
        query |= {"offset": offset, "limit": PAGE}
        body = self._client._transport.get("/user/trades", query, keyed=True)
        where = f"account {stream.account_id}, {stream.fill_type} page at {offset}"
        return Page(stream.account_id, stream.fill_type, body, now(), where)

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

    def _end(self, stream: Stream) -> None:
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
                parts += [stored(pages, self._listed)] if pages else []
            except (UnexpectedAnswer, AmountError) as error:
                self.errors.append(error)
                if not stream.ended:
                    self._end(stream)
        if parts:
            merge(self._disk, pa.concat_tables(parts))
        fresh, self._counts = self._counts, []
        keep_counts(self._disk, fresh)
        self._committed = time.monotonic()


def _listed(client: Client) -> Listed:
    tokens, markets = (client._transport.get(path).decode() for path in ("/exchange/tokens", "/mix/markets"))
    return Listed(tokens, markets, client.source, client.synthetic, now())
