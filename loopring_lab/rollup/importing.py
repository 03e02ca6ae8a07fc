"""Import of files with blocks: calldata, JSON of an Ethereum endpoint, and tables of public datasets."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from loopring_lab import tables
from loopring_lab.bounded import (
    MAX_ANSWER,
    Paths,
    find_files,
    given_path,
    open_file,
    parse_json,
    printable,
    read_documents,
    read_file,
    read_lines,
    read_text,
    shown,
    to_json,
)
from loopring_lab.errors import BlockError, LabError, UnexpectedAnswer
from loopring_lab.origin import FILE, Source
from loopring_lab.progress import Progress
from loopring_lab.rollup import calldata, rpc
from loopring_lab.rollup.block_file import (
    BlockFile,
    Submission,
    name_of_exchange,
    refuse_unreadable,
)
from loopring_lab.rollup.calldata import HEADER, SELECTOR, SLOT, RawBlock
from loopring_lab.rollup.events import EXCHANGES, Log, read_log
from loopring_lab.rollup.slots import of_header

HINT = "Save it again, or leave it out; batches committed before it stay."
# Blocks and bytes that are committed together; they stay in memory until then.
BATCH_BLOCKS = 500
BATCH_BYTES = 32 << 20
# Letters of a field of CSV; a transaction of 30 million gas, at 16 gas a byte, takes 3.8 million in hex.
LONGEST_FIELD = 4 << 20
# Bytes of the columns that are read, in a row group of a Parquet file.
MOST_IN_GROUP = 2 << 30
ROWS_AT_ONCE = 64  # of a Parquet file: 16 MiB of the longest transactions, and some 50 as Python objects
WRAPPERS = (
    "dcb2aa31",  # submitBlocksWithCallbacks(bool,bytes,((uint16,(uint16,uint16,uint16,bytes)[])[],address[]))
    "ebc8c7ee",  # submitBlocksWithCallbacks(bool,bytes,((uint16,(uint16,uint16,bytes)[])[],address[]))
    # Versions before them, seen on Ethereum from October 2020 on; each begins with (bool, bytes) as well.
    "78e9a4f3",
    "fbb404ab",
    "e0b687f8",
    "cafc5892",
    "503baf55",
)
SELECTORS = frozenset(
    bytes.fromhex(selector) for selector in (*WRAPPERS, *calldata.SUBMIT_BLOCKS)
)
# The chains of known exchanges, which blocks do not tell.
CHAINS = {exchange.lower(): chain_id for chain_id, exchange in EXCHANGES.items()}
# Columns of tables and members of JSON, as `_plain` writes their names.
INPUT = "input"
HASH = "hash"
NUMBER = "blocknumber"
# Names of columns that tell whether a transaction succeeded: a yes in one of the first kind says so, and a no in one
# of the others. Each export has its own, such as receipt_status, success, isError and tx_failed. A whole receipt has
# the outcome within it, is neither yes nor no, and so is refused.
OUTCOME = re.compile("(?P<success>status|succe|receipt$)|error|fail|revert")


class Call(NamedTuple):
    """A transaction of a file, or only its calldata, or a block's data alone."""

    where: str
    content: bytes
    is_transaction: bool = False
    l1_block: int | None = None
    transaction_hash: str | None = None


Item = Call | Log | None


class Import:
    """Adds the blocks of files to a store."""

    def __init__(
        self,
        store: BlockFile,
        first_block: int | None,
        progress: Progress,
    ) -> None:
        calldata.check_number("first_block", first_block)
        self._store = store
        self._next = first_block
        self._progress = progress
        self._root = b""  # where the last block ended that got a number
        self._exchange = ""
        self._folder: Path | None = None  # of the last file
        self._read = 0
        self._added = 0
        self._skipped = 0
        self._clear()

    def _clear(self) -> None:
        self._batch: list[tuple[str, RawBlock]] = []
        self._bytes = 0
        self._events: list[Submission] = []
        self._contracts: dict[int, str] = {}

    def run(
        self, paths: Paths, tokens: str | os.PathLike[str] | None
    ) -> dict[str, int]:
        """Import every file; count the blocks that were not held, and what submits no block."""
        listing = None if tokens is None else given_path(tokens)
        text = None if listing is None else _listing(listing)
        found = find_files(
            paths, tuple(READERS), "Give files with blocks.", besides=(FILE,)
        )
        files = [file for file in found if file != listing]
        try:
            for file in files:
                for item in _items(file):
                    self._take(file, item)
        finally:
            self._commit()
        if self._skipped and not self._store.database.exists():
            raise LabError(
                f"{files[0]}: none of {self._skipped:,} calls and events submits a block, so nothing was added. Give "
                "the transactions that submitted the exchange's blocks, or its events."
            )
        if text is not None:
            self._store.store_tokens(text)
        return {"added": self._added, "skipped": self._skipped}

    def _take(self, file: Path, item: Item) -> None:
        if not isinstance(item, Call):
            self._take_log(file, item)
            return
        blocks = _blocks(item)
        if not blocks:
            self._skipped += 1
        for raw in blocks:
            # Tables of public datasets have their rows in any order.
            root = of_header(raw.data, "merkle_root_before")
            if self._root and self._root != root:
                raise BlockError(
                    f"{item.where}: does not begin where the block before it ended, so first_block= gives no number. "
                    "Put the blocks in order, without gaps, or leave first_block= out."
                )
            self._bind(file, calldata.to_hex(of_header(raw.data, "exchange")))
            self._batch.append((item.where, raw._replace(block_id=self._next)))
            self._bytes += len(raw.data) + len(raw.auxiliary)
            self._read += 1
            if self._next is not None:
                self._next += 1
                self._root = of_header(raw.data, "merkle_root_after")
        if len(self._batch) >= BATCH_BLOCKS or self._bytes >= BATCH_BYTES:
            self._commit()

    def _take_log(self, file: Path, log: Log | None) -> None:
        if log is None or log.event is None:
            self._skipped += 1
            return
        self._bind(file, log.address)
        if log.address != self._exchange:
            self._skipped += 1
        elif isinstance(log.event, Submission):
            self._events.append(log.event)
        else:
            token_id, contract = log.event
            self._contracts[token_id] = contract

    def _bind(self, file: Path, exchange: str) -> None:
        """Bind the store to the source of a folder, and the exchange of the first block or event."""
        # Blocks and events of other exchanges are refused, or skipped, where they are added.
        if file.parent == self._folder or self._exchange not in ("", exchange):
            return
        self._store.bind(_source_of(file, exchange))
        self._exchange = exchange
        self._folder = file.parent

    def _commit(self) -> None:
        """Commit events, then blocks; the blocks of a batch all or none."""
        batch = self._batch
        events = self._events
        contracts = self._contracts
        self._clear()  # what is refused must not be committed again
        if events or contracts:
            self._store.add_events(events, contracts=contracts)
        try:
            self._added += self._store.add([raw for _, raw in batch])
        except BlockError:
            for where, raw in batch:
                refuse_unreadable(where, raw)
            raise
        self._progress(self._read, self._read)


def _source_of(file: Path, exchange: str) -> Source:
    """Return the source of a file: as stated beside it, or else the exchange."""
    chain_id = CHAINS.get(exchange)
    known = name_of_exchange(exchange, chain_id)
    stated = Source.of_saved(known, None, file.parent)
    of_blocks = replace(stated, exchange=exchange, chain_id=stated.chain_id or chain_id)
    joined = stated.joined(of_blocks)
    if joined is None:
        raise LabError(
            f"{file}: holds blocks of exchange {exchange}, but {FILE} says {stated}. Correct it."
        )
    return joined


def _blocks(call: Call) -> list[RawBlock]:
    """Read the blocks of a call; none if it is a transaction that does something else."""
    # Files of the exchange hold other calls, too; only those of known functions must be readable.
    is_submission = call.content[:SELECTOR] in SELECTORS
    if (
        not is_submission
        and not call.is_transaction
        and len(call.content) % SLOT == HEADER % SLOT
    ):
        # Calldata is 4 bytes more than a multiple of 32, which 98 + 68 bytes per slot never are.
        raw = RawBlock(call.content)
        calldata.check_length(raw, call.where)
        return [raw]
    try:
        found = calldata.read(call.content, call.where)
    except BlockError:
        if is_submission or not call.is_transaction:
            raise
        return []
    return [
        raw._replace(
            l1_block=call.l1_block,
            transaction_hash=call.transaction_hash,
        )
        for raw in found
    ]


def _listing(file: Path) -> str:
    """Read a listing of tokens, without those whose decimals nobody knows."""
    text = read_text(file, size=MAX_ANSWER, hint=HINT)
    listed = parse_json(text, printable(file.name), hint=HINT)
    if isinstance(listed, list):
        listed = [
            one
            for one in listed
            if not isinstance(one, dict) or one.get("decimals") is not None
        ]
    text = to_json(listed)
    tables.tokens(text)  # refuses what is no listing
    return text


def _items(file: Path) -> Iterator[Item]:
    """Read a file as its ending says."""
    name = printable(file.name)
    ending = Path(file.name.removesuffix(".gz")).suffix
    if ending not in READERS:
        endings = ", ".join(READERS)
        raise _refused(name, f"a file that ends in {endings}", shown(ending))
    return READERS[ending](file, name)


def _binary(file: Path, name: str) -> Iterator[Item]:
    yield Call(name, read_file(file, hint=HINT))


def _hex(file: Path, name: str) -> Iterator[Item]:
    for where, line in _numbered(name, read_lines(file, hint=HINT)):
        yield Call(where, rpc.octets(line.decode("ascii", "replace"), where))


def _json(file: Path, name: str) -> Iterator[Item]:
    for where, body in _numbered(name, read_documents(file, hint=HINT)):
        yield from _records(parse_json(body, where, hint=HINT), where)


def _numbered(name: str, lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Name the lines of a file; the first may be all of it."""
    for place, line in enumerate(lines, 1):
        yield (name if place == 1 else f"{name}, line {place}"), line


def _records(value: Any, where: str) -> Iterator[Item]:
    """Find transactions and events in lists and answers."""
    if isinstance(value, list):
        for place, one in enumerate(value):
            yield from _records(one, f"{where}[{place}]")
    elif isinstance(value, dict) and "topics" in value:
        yield read_log(value, where)
    elif isinstance(value, dict) and INPUT in value:
        known = _columns(list(value), where)
        yield _call({_plain(name): value[name] for name in known}, where)
    elif isinstance(value, dict) and "result" in value:
        yield from _records(value["result"], f"{where}, result")
    else:
        raise rpc.unexpected(where, "a transaction or an event", value)


def _parquet(file: Path, name: str) -> Iterator[Item]:
    number = 0
    try:
        for batch in _batches(file, name):
            plain = batch.rename_columns(list(map(_plain, batch.schema.names)))
            for row in plain.to_pylist():
                number += 1
                yield _call(row, f"{name}, row {number}")
    except (
        pa.ArrowException,
        ArithmeticError,
        LookupError,
        OSError,
        ValueError,
        MemoryError,
    ) as error:
        problem = printable(str(error).partition("\n")[0], 200)
        where = f"{name}, after row {number}"
        raise _refused(where, "a table that can be read", problem) from None


def _batches(file: Path, name: str) -> Iterator[pa.RecordBatch]:
    with open_file(file, name, HINT) as raw:
        table = pq.ParquetFile(raw)
        names = table.schema_arrow.names
        columns = _columns(names, name)
        for number in range(table.num_row_groups):
            group = table.metadata.row_group(number)
            size = sum(
                group.column(names.index(column)).total_uncompressed_size
                for column in columns
            )
            if size > MOST_IN_GROUP:
                where = f"{name}, row group {number}"
                expected = f"row groups of at most {MOST_IN_GROUP >> 20:,} MiB"
                raise _refused(where, expected, f"{size >> 20:,} MiB")
        yield from table.iter_batches(ROWS_AT_ONCE, columns=columns, use_threads=False)


def _csv(file: Path, name: str) -> Iterator[Item]:
    # The limit is one for the whole process, and by default shorter than the calldata of some blocks. A higher one that
    # somebody has set stays.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    lines = (
        line.decode("utf-8-sig", "replace") for line in read_lines(file, hint=HINT)
    )
    # Read strictly, a quote that nothing closes is an error; otherwise all rows after it would be part of one field.
    rows = csv.DictReader(lines, strict=True)
    number = 0
    try:
        columns = _columns(list(rows.fieldnames or []), name)
        for number, row in enumerate(rows, 1):
            # DictReader has None for what a row has too much or too little.
            if None in row or None in row.values():
                raise csv.Error("a row of another length than the line of names")
            read = {_plain(column): row[column] or None for column in columns}
            yield _call(read, f"{name}, row {number}")
    except csv.Error as error:
        where = f"{name}, after row {number}"
        raise _refused(where, "a table that can be read", str(error)) from None


def _plain(name: str) -> str:
    """Return a name as it is compared: JSON-RPC says blockNumber, public datasets say block_number."""
    return re.sub(r"[\W_]", "", name).lower()


def _columns(names: list[str], where: str) -> list[str]:
    """Choose the columns that are read."""
    columns: dict[str, str] = {}
    for name in names:
        plain = _plain(name)
        if plain not in (INPUT, HASH, NUMBER) and not OUTCOME.search(plain):
            continue
        if plain in columns:
            both = shown([columns[plain], name], 200)
            raise _refused(where, "one column of a name", both)
        columns[plain] = name
    if INPUT not in columns:
        raise _refused(where, "a column input", f"columns {shown(names, 200)}")
    return list(columns.values())


def _call(row: Mapping[str, Any], where: str) -> Call:
    """Read a transaction: a JSON object, or a row of a table."""
    if not _has_succeeded(row, where):
        # A transaction that failed did nothing, so it submits no block.
        return Call(where, b"", True)
    content = row.get(INPUT)
    number = row.get(NUMBER)
    digest = row.get(HASH)
    if content is None:
        raise _refused(f"{where}, input", "the input of a transaction", "nothing")
    l1_block = None
    transaction = None
    if number is not None:
        l1_block = rpc.number(number, f"{where}, block number")
    if digest is not None:
        transaction = calldata.to_hex(rpc.octets(digest, f"{where}, hash", 32))
    return Call(
        where, rpc.octets(content, f"{where}, input"), True, l1_block, transaction
    )


def _has_succeeded(row: Mapping[str, Any], where: str) -> bool:
    """Tell whether a transaction succeeded, as far as is said; what is neither yes nor no is refused."""
    for name, value in row.items():
        outcome = OUTCOME.search(name)
        if outcome is None or value is None or not str(value).strip():
            continue
        if rpc.yes_or_no(value, f"{where}, {name}") is not bool(outcome["success"]):
            return False
    return True


def _refused(where: str, expected: str, got: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(where, expected=expected, got=got, hint=HINT)


READERS: dict[str, Callable[[Path, str], Iterator[Item]]] = {
    ".hex": _hex,
    ".bin": _binary,
    ".json": _json,
    ".jsonl": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
