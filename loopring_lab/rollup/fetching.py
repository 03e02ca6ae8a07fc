"""Download of blocks from an Ethereum endpoint: the exchange's events, then their transactions' calldata."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice, pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from loopring_lab.bounded import shown, to_json
from loopring_lab.errors import BlockError, LabError, RelayerTimeout, RpcError, with_details
from loopring_lab.http.budget import Budget
from loopring_lab.http.failures import TooLarge
from loopring_lab.progress import Progress, Watching, track
from loopring_lab.redaction import SecretText, hide
from loopring_lab.rollup import calldata
from loopring_lab.rollup.events import (
    DECIMALS,
    ENDPOINT,
    EXCHANGES,
    REGISTERED,
    SUBMITTED,
    SYMBOL,
    read_log,
    token_record,
)
from loopring_lab.rollup.rpc import VARIABLE, Call, Rpc, TooMuch, number, octets, undocumented
from loopring_lab.rollup.stored import StoredBlocks, Submission
from loopring_lab.source import Source

if TYPE_CHECKING:
    from loopring_lab.rollup.calldata import RawBlock

FIRST_L1_BLOCK = 11_149_814
CONFIRMATIONS = 64

WORKERS, MOST_L1_BLOCKS, GROWS_AFTER, GAPS_AT_ONCE = 4, 10_000, 8, 200
BATCH_BLOCKS, BATCH_BYTES, BATCH_SECONDS = 500, 16 << 20, 5.0

_ADDRESS = re.compile("0x[0-9a-fA-F]{40}")

Job = TypeVar("Job")
Result = TypeVar("Result")


class MissingBlocks(RpcError):
    """Blocks that an endpoint announces and then lacks, or gives wrongly; all others are stored."""


class Span(NamedTuple):
    """L1 blocks from the first to the last."""

    first: int
    last: int


class Wanted(NamedTuple):
    """What a sync is asked for: None for what the chain decides."""

    exchange: str | None = None
    from_block: int | None = None
    to_block: int | None = None
    confirmations: int | None = None


def sync(
    store: StoredBlocks, rpc: SecretText | None, wanted: Wanted, limits: dict[str, Any], progress: Watching
) -> None:
    """Add to a store the blocks that an endpoint has and the store has not."""
    for name, value in wanted._asdict().items():
        if name != "exchange" and value is not None and (type(value) is not int or value < 0):
            raise LabError(f"{name}={shown(value)}: not a number of Ethereum blocks. Give an integer.")
    address = rpc or hide(os.environ.get(VARIABLE) or None)
    if address is None:
        from loopring_lab.relayer.server import embedded

        relayer = embedded()
        print(f"Embedded chain: {relayer.source}. Nothing here is real market data.")  # noqa: T201
        wanted = wanted._replace(exchange=wanted.exchange or relayer.settings.exchange)
        address, limits = hide(relayer.rpc_url), limits | {"rate": None, "proxies": False}
    channel = Rpc(address, max_bytes=None, **limits)
    try:
        with channel.new_budget().activate() as budget, track("blocks", progress) as report:
            Sync(store, channel, budget, report).run(wanted)
    finally:
        channel.close()


class Sync:
    """One download: events of L1 blocks not read yet, then the blocks that the store does not hold."""

    def __init__(self, store: StoredBlocks, rpc: Rpc, budget: Budget, report: Progress) -> None:
        self._store, self._rpc, self._budget, self._report = store, rpc, budget, report
        self._span, self._answered = MOST_L1_BLOCKS, 0
        self._events: dict[int, Submission] = {}
        self._held: set[bytes] = set()
        self._fresh: list[Submission] = []
        self._tokens: dict[int, str] = {}
        self._batch: list[RawBlock] = []
        self._problems: list[LabError] = []
        self._committed_at = time.monotonic()

    def run(self, wanted: Wanted) -> None:
        """Read events, then blocks; what is missing for the endpoint's fault is raised at the end."""
        chain_id = number(self._rpc.ask("eth_chainId"), "eth_chainId")
        self._exchange = _check_exchange(wanted.exchange, chain_id)
        stated = self._rpc.source
        name = stated.name if stated else f"exchange {self._exchange} on chain {chain_id}"
        synthetic = stated is not None and stated.synthetic
        self._store.bind(Source(name, synthetic, self._exchange, chain_id))
        known = (Submission(**row) for row in self._store.index().events.to_pylist())
        self._events = {event.block_id: event for event in known}
        self._held = set(self._store.index().blocks["data_sha256"].to_pylist())
        newest = number(self._rpc.ask("eth_blockNumber"), "eth_blockNumber")
        newest -= (0 if synthetic else CONFIRMATIONS) if wanted.confirmations is None else wanted.confirmations
        start = FIRST_L1_BLOCK if chain_id in EXCHANGES else 0
        first = start if wanted.from_block is None else wanted.from_block
        span = Span(first, newest if wanted.to_block is None else min(newest, wanted.to_block))
        self._read_events(span)
        self._learn_tokens()
        self._read_blocks(None if (wanted.from_block, wanted.to_block) == (None, None) else span)

    def _read_events(self, span: Span) -> None:
        scanned = [Span(*one) for one in self._store.scanned()]
        for several in _chunks(self._gaps(scanned), lambda: GAPS_AT_ONCE):
            answers = self._rpc.ask_many([Call("eth_getLogs", [self._filter(gap)]) for gap in several])
            for gap, answer in zip(several, answers, strict=True):
                if isinstance(answer, TooMuch):
                    self._scan(gap)
                elif isinstance(answer, RpcError):
                    raise answer
                else:
                    self._note(answer, gap)
            self._record(None)
        for gap in _complement(scanned, span):
            self._scan(gap)

    def _gaps(self, scanned: list[Span]) -> list[Span]:
        """Return where events of missing blocks must be, or may be: an endpoint can leave some out."""
        events = sorted(self._events.values())
        if not events or not scanned:
            return []
        gaps = [Span(one.l1_block, two.l1_block) for one, two in pairwise(events) if two.block_id > one.block_id + 1]
        if events[0].block_id > 1 and scanned[0].first <= events[0].l1_block:
            gaps.append(Span(max(scanned[0].first, events[0].l1_block - MOST_L1_BLOCKS), events[0].l1_block))
        last = events[-1].l1_block
        gaps.append(Span(last, min(max(last, scanned[-1].last), last + MOST_L1_BLOCKS)))
        return gaps

    def _scan(self, span: Span) -> None:
        """Read the events of a span, of as many L1 blocks at once as the endpoint allows."""
        at = first = span.first
        try:
            while at <= span.last:
                part = Span(at, min(span.last, at + self._span - 1))
                try:
                    self._note(self._rpc.ask("eth_getLogs", self._filter(part)), part)
                except (TooMuch, TooLarge, RelayerTimeout):
                    if part.first == part.last:
                        raise
                    self._span, self._answered = max(1, (part.last - part.first + 1) // 2), 0
                    continue
                at, self._answered = part.last + 1, self._answered + 1
                if self._answered % GROWS_AFTER == 0:
                    self._span = min(MOST_L1_BLOCKS, 2 * self._span)
                if self._is_due(len(self._fresh)):
                    self._record(Span(first, part.last))
                    first = at
        finally:
            if first < at:
                self._record(Span(first, at - 1))

    def _filter(self, span: Span) -> dict[str, Any]:
        return {
            "address": self._exchange,
            "fromBlock": hex(span.first),
            "toBlock": hex(span.last),
            "topics": [[SUBMITTED, REGISTERED]],
        }

    def _note(self, logs: Any, span: Span) -> None:
        """Take in the events of an answer."""
        where = f"eth_getLogs of L1 blocks {span.first:,} to {span.last:,} at {self._rpc.server.address}"
        if not isinstance(logs, list):
            raise undocumented(where, "a list of logs", logs)
        for log in filter(None, (read_log(one, where, ENDPOINT) for one in logs)):
            if not log.event or log.address != self._exchange or not span.first <= log.l1_block <= span.last:
                problem = f"The endpoint answered with an event of {log.address} in L1 block {log.l1_block:,}"
                asked = f"which is not among those of {self._exchange} that were asked for"
                raise RpcError(with_details(f"{problem}, {asked}. Use another endpoint.", where))
            if isinstance(log.event, Submission):
                self._note_submission(log.event, where)
            else:
                self._tokens |= [log.event]
        self._report(len(self._held), max(len(self._held), len(self._events)))

    def _note_submission(self, event: Submission, where: str) -> None:
        known = self._events.setdefault(event.block_id, event)
        if known is event:
            self._fresh.append(event)
        elif known.public_data_hash != event.public_data_hash:
            problem = (
                f"At this endpoint block {event.block_id} has the hash {event.public_data_hash.hex()}; the "
                f"event stored for it, of L1 block {known.l1_block:,}, has {known.public_data_hash.hex()}. "
                "Use an endpoint of the same chain; after a reorganisation, sync into a new store."
            )
            raise RpcError(with_details(problem, where))

    def _record(self, span: Span | None) -> None:
        """Commit the events found, with the span that was read for the first time."""
        if span or self._fresh or self._tokens:
            self._store.add_events(self._fresh, span, self._tokens)
        self._fresh, self._tokens, self._committed_at = [], {}, time.monotonic()

    def _learn_tokens(self) -> None:
        """Ask for symbols and decimals of tokens that are not listed yet."""
        listing = self._store.listed_tokens()
        listed = {str(token.get("tokenId")) for token in listing}
        unknown = {
            token_id: address for token_id, address in self._store.contracts().items() if str(token_id) not in listed
        }
        contracts = [address for address in unknown.values() if int(address, 16)]
        calls = [
            Call("eth_call", [{"to": address, "data": data}, "latest"])
            for address in contracts
            for data in (SYMBOL, DECIMALS)
        ]
        answers = dict(zip(contracts, _chunks(self._rpc.ask_many(calls), lambda: 2), strict=True))
        found = [token_record(one, address, answers.get(address)) for one, address in unknown.items()]
        if any(found):
            listing += filter(None, found)
            self._store.store_tokens(to_json(listing))

    def _read_blocks(self, wanted: Span | None) -> None:
        pending = sorted(
            (event for event in self._events.values() if event.public_data_hash not in self._held),
            key=lambda event: (event.l1_block, event.log_index),
        )
        if wanted:
            pending = [event for event in pending if wanted.first <= event.l1_block <= wanted.last]
        grouped = [list(events) for _, events in groupby(pending, lambda event: event.transaction_hash)]
        jobs = _chunks(grouped, lambda: self._rpc.batch)
        held, total = len(self._held), len(self._held) + len(pending)
        try:
            for found in _Workers(self._fetch, self._budget).results(jobs):
                for blocks, problems in found:
                    self._batch += blocks
                    self._problems += problems
                    held += len(blocks)
                if self._is_due(len(self._batch), sum(len(raw.data) for raw in self._batch)):
                    self._commit()
                self._report(held, total)
        finally:
            self._commit()
        self._store.file.settle()
        if self._problems:
            count, first = len(self._problems), self._problems[0]
            others = f"{count:,} blocks could not be read; all others are stored. The first: "
            raise MissingBlocks(f"{others if count > 1 else ''}{first}")

    def _is_due(self, rows: int, size: int = 0) -> bool:
        late = rows and time.monotonic() - self._committed_at > BATCH_SECONDS
        return bool(late or rows >= BATCH_BLOCKS or size >= BATCH_BYTES)

    def _commit(self) -> None:
        batch, self._batch = self._batch, []
        if batch:
            self._store.add(batch)
        self._committed_at = time.monotonic()

    def _fetch(self, groups: list[list[Submission]]) -> list[tuple[list[RawBlock], list[LabError]]]:
        """Ask for transactions together, and read the blocks of each."""
        answers = self._rpc.ask_many(
            [Call("eth_getTransactionByHash", [events[0].transaction_hash]) for events in groups]
        )
        return [self._read(events, answer) for events, answer in zip(groups, answers, strict=True)]

    def _read(self, events: list[Submission], answer: Any) -> tuple[list[RawBlock], list[LabError]]:
        """Return the blocks of a transaction that its events announce, and what is wrong with the others."""
        wanted = events[0].transaction_hash
        where = f"block {events[0].block_id}: transaction {wanted}"
        address = self._rpc.server.address
        try:
            if isinstance(answer, RpcError):
                raise answer
            if answer is None:
                raise RpcError(
                    f"{where} is unknown to {address}; some nodes no longer keep bodies of blocks before the "
                    "merge. Run sync with another endpoint: it asks for what is missing."
                )
            if not isinstance(answer, dict) or str(answer.get("hash")).lower() != wanted:
                raise RpcError(f"{where}: {address} answers with another one. Use another endpoint.")
            found = calldata.read(octets(answer.get("input"), where), where)
        except (RpcError, BlockError) as error:
            return [], [error.with_traceback(None)] * len(events)
        by_hash = {hashlib.sha256(raw.data).digest(): raw for raw in found}
        blocks: list[RawBlock] = []
        problems: list[LabError] = []
        for event in events:
            raw = by_hash.get(event.public_data_hash)
            if raw is None:
                problems.append(_mismatch(event, by_hash))
            else:
                known = raw._replace(block_id=event.block_id, l1_block=event.l1_block)
                blocks.append(known._replace(transaction_hash=wanted))
        return blocks, problems


class _Workers(Generic[Job, Result]):
    """Threads that do jobs side by side; they never keep a process from ending."""

    def __init__(self, work: Callable[[Job], Result], budget: Budget) -> None:
        self._work, self._budget = work, budget
        self._waiting: SimpleQueue[tuple[Job] | None] = SimpleQueue()
        self._done: SimpleQueue[Result | BaseException] = SimpleQueue()

    def results(self, jobs: Iterable[Job]) -> Iterator[Result]:
        """Yield the results as they come; the error of a job is raised."""
        threads = [threading.Thread(target=self._run, daemon=True) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        busy = 0
        try:
            for job in jobs:
                self._waiting.put((job,))
                busy += 1
                if busy == 2 * WORKERS:
                    yield self._result()
                    busy -= 1
            for _ in range(busy):
                yield self._result()
        finally:
            self._budget.stop()
            while not self._waiting.empty():
                self._waiting.get()
            for _ in threads:
                self._waiting.put(None)

    def _result(self) -> Result:
        found = self._done.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def _run(self) -> None:
        with self._budget.activate():
            while job := self._waiting.get():
                try:
                    self._done.put(self._work(*job))
                except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
                    self._done.put(error)


def _check_exchange(exchange: str | None, chain_id: int) -> str:
    found = exchange or EXCHANGES.get(chain_id)
    if found is None:
        raise LabError(f"sync: no exchange is known on chain {chain_id}. Give its address: exchange='0x...'.")
    if not _ADDRESS.fullmatch(str(found)):
        raise LabError(f"exchange={shown(found)}: not an Ethereum address. Give 0x and 40 hex digits.")
    return found.lower()


def _mismatch(event: Submission, found: Iterable[bytes]) -> BlockError:
    hashes = ", ".join(one.hex() for one in found) or "none"
    return BlockError(
        f"block {event.block_id}: its event announces data with the sha256 {event.public_data_hash.hex()}, "
        f"and transaction {event.transaction_hash} holds {hashes}. Run sync with another endpoint."
    )


def _chunks(items: Iterable[Job], size: Callable[[], int]) -> Iterator[list[Job]]:
    """Yield items in lists; their size is asked for each time."""
    rest = iter(items)
    while chunk := list(islice(rest, size())):
        yield chunk


def _complement(scanned: list[Span], wanted: Span) -> Iterator[Span]:
    """Yield what of a span has not been scanned."""
    first = wanted.first
    for span in scanned:
        if span.first > first:
            yield Span(first, min(span.first - 1, wanted.last))
        first = max(first, span.last + 1)
        if first > wanted.last:
            return
    if first <= wanted.last:
        yield Span(first, wanted.last)
