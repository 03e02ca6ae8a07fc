"""Download of blocks from an Ethereum endpoint: the exchange's events, then their transactions' calldata."""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby, islice, product
from typing import TYPE_CHECKING, Any, NamedTuple

from loopring_lab.bounded import shown, to_json
from loopring_lab.errors import (
    BlockError,
    LabError,
    RelayerTimeout,
    RpcError,
    UnexpectedAnswer,
    with_details,
)
from loopring_lab.http.failures import TooLarge
from loopring_lab.origin import Source
from loopring_lab.progress import Progress, Watching, track
from loopring_lab.redaction import SecretText, hide
from loopring_lab.rollup import calldata
from loopring_lab.rollup.block_file import (
    BlockFile,
    Index,
    Submission,
    name_of_exchange,
)
from loopring_lab.rollup.events import (
    DECIMALS,
    EXCHANGES,
    REGISTERED,
    SUBMITTED,
    SYMBOL,
    read_log,
    token_record,
    unnamed,
)
from loopring_lab.rollup.rpc import (
    VARIABLE,
    Call,
    Rpc,
    TooMuch,
    number,
    octets,
    undocumented,
)
from loopring_lab.rollup.slots import FIRST_NFT

if TYPE_CHECKING:
    from loopring_lab.rollup.calldata import RawBlock

FIRST_L1_BLOCK = 11_149_814  # just before the exchange's first block, of October 2020
CONFIRMATIONS = 64  # two epochs of Ethereum, after which a block is final

WORKERS = 4  # requests under way; the rate of 5 a second is reached with answers of 0.8 seconds
MOST_L1_BLOCKS = 10_000  # in one eth_getLogs: the most that public endpoints answer
GROWS_AFTER = 8  # answers in a row, until a range that was halved is doubled again
GAPS_AT_ONCE = 200  # asked for before what was found is committed
# Blocks and bytes that are committed together. A kill may cost these: seconds of a sync, as a block is some 10 KB.
BATCH_BLOCKS = 200
BATCH_BYTES = 16 << 20  # of larger blocks, which an endpoint may make up

_ADDRESS = re.compile("0x[0-9a-fA-F]{40}")

Fetched = tuple[list["RawBlock"], list[LabError]]
"""The blocks of a transaction, and what is wrong with others."""


class MissingBlocks(RpcError):
    """Blocks that an endpoint announces and then lacks, or gives wrongly; all others are stored."""


class Wanted(NamedTuple):
    """What a sync is asked for: None for what the chain decides."""

    exchange: str | None
    from_block: int | None
    to_block: int | None
    confirmations: int | None


def sync(
    store: BlockFile,
    rpc: SecretText | None,
    wanted: Wanted,
    limits: dict[str, Any],
    progress: Watching,
) -> None:
    """Add to a store the blocks that an endpoint has and the store has not."""
    for name in ("from_block", "to_block", "confirmations"):
        value = getattr(wanted, name)
        if value is not None and (type(value) is not int or value < 0):
            raise LabError(
                f"{name}={shown(value)}: not a number of Ethereum blocks. Give an integer from 0."
            )
    first = wanted.from_block
    last = wanted.to_block
    if first is not None and last is not None and first > last:
        raise LabError(
            f"from_block={first} is after to_block={last}, so nothing is between. Give the lower number first."
        )
    # An empty address is somebody's mistake, and no wish for synthetic blocks.
    address = hide(os.environ.get(VARIABLE) or None) if rpc is None else rpc
    if address is None:
        from loopring_lab.relayer.server import embedded

        relayer = embedded()
        print(f"Embedded chain: {relayer.source}. Nothing here is real market data.")  # noqa: T201
        wanted = wanted._replace(exchange=wanted.exchange or relayer.settings.exchange)
        address = hide(relayer.rpc_url)
        limits = limits | {"rate": None, "proxies": False}
    channel = Rpc(address, **limits)
    try:
        with track("blocks", progress) as report:
            Sync(store, channel, report).run(wanted)
    finally:
        channel.close()


class Sync:
    """One download: events of L1 blocks not read yet, then the blocks that the store does not hold."""

    def __init__(
        self,
        store: BlockFile,
        rpc: Rpc,
        report: Progress,
    ) -> None:
        self._store = store
        self._rpc = rpc
        self._report = report
        self._span = MOST_L1_BLOCKS  # in one question
        self._answered = 0  # questions since the span last changed
        self._events: dict[int, Submission] = {}
        self._held: set[bytes] = set()  # the hashes of blocks
        self._fresh: list[Submission] = []  # events that are not committed yet
        self._tokens: dict[int, str] = {}
        self._batch: list[RawBlock] = []

    def run(self, wanted: Wanted) -> None:
        """Read events, then blocks; what is missing for the endpoint's fault is raised at the end."""
        chain_id = number(self._rpc.ask("eth_chainId"), "eth_chainId")
        self._exchange = _check_exchange(wanted.exchange, chain_id)
        stated = self._rpc.source  # only the embedded chain states one
        is_synthetic = stated is not None and stated.synthetic
        name = stated.name if stated else name_of_exchange(self._exchange, chain_id)
        self._store.bind(Source(name, is_synthetic, self._exchange, chain_id))
        index = self._store.index()
        for row in index.events.to_pylist():
            self._events[row["block_id"]] = Submission(**row)
        # A block is known by the hash of its data, whatever number or file it came with.
        self._held = set(index.blocks["data_sha256"].to_pylist())

        span = self._wanted_span(wanted, is_synthetic)
        scanned = self._store.scanned()
        self._fill_gaps(self._gaps(scanned, span, index))
        for rest in _complement(scanned, span):
            self._scan(rest)
        self._learn_tokens()
        is_part = wanted.from_block is not None or wanted.to_block is not None
        self._read_blocks(span if is_part else None)

    def _wanted_span(self, wanted: Wanted, is_synthetic: bool) -> range:
        confirmations = wanted.confirmations
        if confirmations is None:
            confirmations = 0 if is_synthetic else CONFIRMATIONS
        last = (
            number(self._rpc.ask("eth_blockNumber"), "eth_blockNumber") - confirmations
        )
        if wanted.to_block is not None:
            last = min(last, wanted.to_block)
        first = wanted.from_block
        if first is None:
            # An exchange of somebody's own may be as old as its chain.
            known = map(str.lower, EXCHANGES.values())
            first = FIRST_L1_BLOCK if self._exchange in known else 0
        return range(first, last + 1)

    def _fill_gaps(self, every_gap: list[range]) -> None:
        """Ask again for events that must be, or may be, in spans that were read: endpoints leave some out."""
        for start in range(0, len(every_gap), GAPS_AT_ONCE):
            gaps = every_gap[start : start + GAPS_AT_ONCE]
            answers = self._rpc.ask_many(
                [Call("eth_getLogs", [self._filter(gap)]) for gap in gaps]
            )
            for gap, answer in zip(gaps, answers, strict=True):
                if isinstance(answer, TooMuch):
                    self._scan(gap)
                elif isinstance(answer, RpcError):
                    raise answer
                else:
                    self._note(answer, gap)
            self._record(None)

    def _gaps(self, scanned: list[range], wanted: range, index: Index) -> list[range]:
        """Return where, in spans that were read, events are missing, or may be: an empty answer proves nothing."""
        if not scanned:
            return []
        first = scanned[0].start
        stop = max(span.stop for span in scanned)
        gaps = []
        l1_block = first
        number = 0
        for event in sorted(self._events.values()):
            if event.block_id > number + 1:
                gaps.append(range(l1_block, event.l1_block + 1))
            l1_block = event.l1_block
            number = event.block_id
        # No number tells whether blocks follow the last one.
        gaps.append(range(l1_block, stop))
        if self._uses_unnamed_tokens(index):
            # A token may have been registered anywhere; endpoints leave out more of long ranges than of short ones.
            gaps.append(range(first, stop))
        parts: list[range] = []
        for whole_gap in gaps:
            start = max(whole_gap.start, wanted.start)
            gap = range(start, max(start, min(whole_gap.stop, wanted.stop)))
            # Spans that were not read yet are not asked for here, as it may be that nobody wants them.
            unread = [span for span in _complement(scanned, gap) if span]
            # Spans that touch or overlap are one here, so nothing is asked for twice.
            for read in _complement(unread, gap):
                starts = range(0, len(read), MOST_L1_BLOCKS)
                parts += [read[start : start + MOST_L1_BLOCKS] for start in starts]
        return parts

    def _uses_unnamed_tokens(self, index: Index) -> bool:
        """Return whether blocks that are held have tokens that no event and no listing names."""
        named = set(self._store.contracts())
        named.update(token["tokenId"] for token in self._store.listed_tokens())
        # NFTs are not registered.
        return any(
            token < FIRST_NFT and token not in named
            for token in self._store.used_tokens(index)
        )

    def _scan(self, span: range) -> None:
        """Read the events of a span, of as many L1 blocks at once as the endpoint allows."""
        rest = span
        first = span.start  # what was read before is committed
        try:
            while rest:
                part = rest[: self._span]
                try:
                    logs = self._rpc.ask("eth_getLogs", self._filter(part))
                except (TooMuch, TooLarge, RelayerTimeout):
                    if len(part) == 1:
                        raise
                    self._span = len(part) // 2
                    self._answered = 0
                    continue
                self._note(logs, part)
                rest = rest[len(part) :]
                self._answered += 1
                if self._answered % GROWS_AFTER == 0:
                    self._span = min(MOST_L1_BLOCKS, 2 * self._span)
                if len(self._fresh) >= BATCH_BLOCKS:
                    self._record(range(first, rest.start))
                    first = rest.start
        finally:
            if first < rest.start:
                self._record(range(first, rest.start))

    def _filter(self, span: range) -> dict[str, Any]:
        return {
            "address": self._exchange,
            "fromBlock": hex(span[0]),
            "toBlock": hex(span[-1]),
            "topics": [[SUBMITTED, REGISTERED]],
        }

    def _note(self, logs: Any, span: range) -> None:
        """Take in the events of an answer."""
        where = f"eth_getLogs of L1 blocks {span[0]:,} to {span[-1]:,} at {self._rpc.server.address}"
        if not isinstance(logs, list):
            raise undocumented(where, "a list of logs", logs)
        for one in logs:
            log = read_log(one, where)
            if log is None:
                continue
            is_asked_for = log.address == self._exchange and log.l1_block in span
            if log.event is None or not is_asked_for:
                problem = (
                    f"The endpoint answered with an event of {log.address} in L1 block {log.l1_block:,}, which "
                    f"is not among those of {self._exchange} that were asked for. Use another endpoint."
                )
                raise RpcError(with_details(problem, where))
            if isinstance(log.event, Submission):
                self._note_submission(log.event, where)
            else:
                token_id, contract = log.event
                self._tokens[token_id] = contract
        self._report(len(self._held), max(len(self._held), len(self._events)))

    def _note_submission(self, event: Submission, where: str) -> None:
        known = self._events.get(event.block_id)
        if known and known.public_data_hash != event.public_data_hash:
            problem = (
                f"At this endpoint block {event.block_id} has the hash {event.public_data_hash.hex()}; the "
                f"event stored for it, of L1 block {known.l1_block:,}, has {known.public_data_hash.hex()}. "
                "Use an endpoint of the same chain; after a reorganisation, sync into a new store."
            )
            raise RpcError(with_details(problem, where))
        # After a reorganisation, the same block may be in another transaction or Ethereum block.
        if known != event:
            self._events[event.block_id] = event
            self._fresh.append(event)

    def _record(self, span: range | None) -> None:
        """Commit the events found, with the span that was read for the first time."""
        ends = (span[0], span[-1]) if span else None
        if ends or self._fresh or self._tokens:
            self._store.add_events(self._fresh, ends, self._tokens)
        self._fresh = []
        self._tokens = {}

    def _learn_tokens(self) -> None:
        """Ask for symbols and decimals of tokens that are not listed yet, or without a name of their own."""
        listing = {
            str(token.get("tokenId")): token for token in self._store.listed_tokens()
        }
        contracts = self._store.contracts()
        # An endpoint that failed once is no reason to go without a name for good.
        unknown = [
            one
            for one in contracts
            if listing.get(str(one), {}).get("symbol") in (None, unnamed(one))
        ]
        # The address of ether's contract is 0, and nobody answers there.
        asked = [one for one in unknown if int(contracts[one], 16)]
        calls = [
            Call("eth_call", [{"to": contracts[one], "data": function}, "latest"])
            for one, function in product(asked, (SYMBOL, DECIMALS))
        ]
        found = iter(self._rpc.ask_many(calls))
        answers = {one: (next(found), next(found)) for one in asked}
        records = [
            token_record(one, contracts[one], answers.get(one)) for one in unknown
        ]
        known = {
            str(record["tokenId"]): record for record in records if record is not None
        }
        if known:
            self._store.store_tokens(to_json(list((listing | known).values())))

    def _read_blocks(self, wanted: range | None) -> None:
        pending = [
            event
            for event in self._events.values()
            if event.public_data_hash not in self._held
        ]
        if wanted is not None:
            pending = [event for event in pending if event.l1_block in wanted]
        pending.sort(key=lambda event: (event.l1_block, event.log_index))
        grouped = [
            list(events)
            for _, events in groupby(pending, lambda event: event.transaction_hash)
        ]
        held = len(self._held)
        total = held + len(pending)
        problems: list[LabError] = []
        try:
            for blocks, wrong in self._fetch_all(grouped):
                self._batch += blocks
                problems += wrong
                held += len(blocks)
                size = sum(len(raw.data) for raw in self._batch)
                if len(self._batch) >= BATCH_BLOCKS or size >= BATCH_BYTES:
                    self._commit()
                self._report(held, total)
        finally:
            self._commit()
        if problems:
            problem = str(problems[0])
            if len(problems) > 1:
                count = f"{len(problems):,} blocks could not be read; all others are stored."
                problem = f"{count} The first: {problem}"
            raise MissingBlocks(problem)

    def _commit(self) -> None:
        batch = self._batch
        self._batch = []
        self._store.add(batch)

    def _fetch_all(self, grouped: list[list[Submission]]) -> Iterator[Fetched]:
        """Yield what transactions hold, given by their events; several requests are under way."""
        rest = iter(grouped)
        under_way: deque[Future[list[Fetched]]] = deque()
        pool = ThreadPoolExecutor(WORKERS)
        try:
            # The size of batches may shrink as they are refused, so each is made when it is sent.
            while groups := list(islice(rest, self._rpc.batch)):
                under_way.append(pool.submit(self._fetch, groups))
                if len(under_way) == 2 * WORKERS:
                    yield from under_way.popleft().result()
            while under_way:
                yield from under_way.popleft().result()
        finally:
            # After an error or Ctrl-C, nothing waits for what is still under way.
            pool.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, groups: list[list[Submission]]) -> list[Fetched]:
        """Ask for transactions together, and read the blocks of each."""
        calls = [
            Call("eth_getTransactionByHash", [events[0].transaction_hash])
            for events in groups
        ]
        answers = self._rpc.ask_many(calls)
        return [
            self._read(events, answer)
            for events, answer in zip(groups, answers, strict=True)
        ]

    def _read(self, events: list[Submission], answer: Any) -> Fetched:
        """Return the blocks of a transaction that its events announce, and what is wrong with the others."""
        where = f"block {events[0].block_id}: transaction {events[0].transaction_hash}"
        try:
            content = self._input_of(events[0].transaction_hash, answer, where)
            found = calldata.read(content, where)
        except (RpcError, UnexpectedAnswer, BlockError) as error:
            return [], [error.with_traceback(None)] * len(events)
        by_hash = {hashlib.sha256(raw.data).digest(): raw for raw in found}
        blocks: list[RawBlock] = []
        problems: list[LabError] = []
        for event in events:
            raw = by_hash.get(event.public_data_hash)
            if raw is None:
                problems.append(_mismatch(event, by_hash))
                continue
            numbered = raw._replace(block_id=event.block_id, l1_block=event.l1_block)
            blocks.append(numbered._replace(transaction_hash=event.transaction_hash))
        return blocks, problems

    def _input_of(self, transaction_hash: str, answer: Any, where: str) -> bytes:
        address = self._rpc.server.address
        if isinstance(answer, RpcError):
            raise answer
        if answer is None:
            raise RpcError(
                f"{where} is unknown to {address}; some nodes no longer keep bodies of blocks before the "
                "merge. Run sync with another endpoint: it asks for what is missing."
            )
        if (
            not isinstance(answer, dict)
            or str(answer.get("hash")).lower() != transaction_hash
        ):
            raise RpcError(
                f"{where}: {address} answers with another one. Use another endpoint."
            )
        return octets(answer.get("input"), where)


def _check_exchange(exchange: str | None, chain_id: int) -> str:
    found = exchange or EXCHANGES.get(chain_id)
    if found is None:
        raise LabError(
            f"sync: no exchange is known on chain {chain_id}. Give its address: exchange='0x...'."
        )
    if not _ADDRESS.fullmatch(str(found)):
        raise LabError(
            f"exchange={shown(found)}: not an Ethereum address. Give 0x and 40 hex digits."
        )
    return found.lower()


def _mismatch(event: Submission, found: Iterable[bytes]) -> BlockError:
    hashes = ", ".join(one.hex() for one in found) or "none"
    return BlockError(
        f"block {event.block_id}: its event announces data with the sha256 {event.public_data_hash.hex()}, "
        f"and transaction {event.transaction_hash} holds {hashes}. Run sync with another endpoint."
    )


def _complement(scanned: list[range], wanted: range) -> Iterator[range]:
    """Yield what of some L1 blocks has not been scanned; some of it may be empty."""
    first = wanted.start
    for span in [*scanned, range(wanted.stop, wanted.stop)]:
        yield range(first, min(span.start, wanted.stop))
        first = max(first, span.stop)
