"""Import of files with blocks: calldata, JSON of an Ethereum endpoint, and tables of public datasets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from loopring_lab import tables
from loopring_lab.bounded import (
    MAX_ANSWER,
    MAX_INT64,
    Paths,
    find_files,
    open_file,
    parse_integer,
    parse_json,
    pieces,
    printable,
    read_documents,
    read_file,
    read_lines,
    read_text,
    shown,
    to_json,
)
from loopring_lab.errors import BlockError, LabError, UnexpectedAnswer
from loopring_lab.progress import Progress
from loopring_lab.rollup import calldata
from loopring_lab.rollup.calldata import HEADER, SLOT, RawBlock
from loopring_lab.rollup.events import EXCHANGES, Log, Reader, read_log
from loopring_lab.rollup.stored import StoredBlocks, Submission, refuse_unreadable
from loopring_lab.source import FILE, Source

ENDINGS = (".hex", ".bin", ".txt", ".json", ".jsonl", ".ndjson", ".csv", ".parquet")
HINT = "Save it again, or leave it out; batches committed before it stay."
BATCH_BLOCKS, BATCH_BYTES = 500, 32 << 20
ROWS, CSV_PIECE = 64, 2 << 20
MOST_IN_GROUP = 2 << 30  # bytes of the columns that are read, in a row group of a Parquet file
WRAPPERS = ("dcb2aa31", "ebc8c7ee", "78e9a4f3", "fbb404ab", "e0b687f8", "cafc5892", "503baf55")
SELECTORS = frozenset(map(bytes.fromhex, (*WRAPPERS, *calldata.SUBMIT_BLOCKS)))
CHAINS = {exchange.lower(): chain_id for chain_id, exchange in EXCHANGES.items()}
"""The chains of known exchanges, which blocks do not tell."""
INPUT, HASH, NUMBER = ("input", "data"), ("hash", "transaction_hash"), ("block_number", "blockNumber")
TEXT = b"0123456789abcdefABCDEFxX \t\r\n"


class Call(NamedTuple):
    """A transaction of a file, or only its calldata, or a block's data alone."""

    where: str
    content: bytes
    is_transaction: bool = False
    l1_block: int | None = None
    transaction_hash: str | None = None


class Import:
    """Adds the blocks of files to a store."""

    def __init__(self, store: StoredBlocks, first_block: int | None, source: str | None, progress: Progress) -> None:
        if first_block is not None and (type(first_block) is not int or not 0 <= first_block < 1 << 32):
            raise LabError(f"first_block={first_block!r} is not the number of a block. Give an integer.")
        self._store, self._next, self._named, self._progress = store, first_block, source, progress
        self._batch: list[tuple[str, RawBlock]] = []
        self._events: list[Submission] = []
        self._addresses: dict[int, str] = {}
        self._exchange = ""
        self._counts = {"added": 0, "skipped": 0}
        self._read = self._bytes = 0

    def run(self, paths: Paths, tokens: str | os.PathLike[str] | None) -> dict[str, int]:
        """Import every file; count the blocks that were not held, and what submits no block."""
        listing = None if tokens is None else _listing(Path(tokens))
        every = find_files(paths, ENDINGS, "Give files with blocks.", besides=FILE)
        files = [file for file in every if tokens is None or file != Path(tokens)]
        sizes = [file.stat().st_size if file.exists() else 0 for file in files]
        try:
            for number, file in enumerate(files, 1):
                for item in _read(file):
                    self._take(file, item)
                self._progress(self._read, self._read * sum(sizes) // max(1, sum(sizes[:number])))
        finally:
            self._commit()
        if listing is not None:
            self._store.store_tokens(listing)
        if files:
            self._store.file.settle()
        return self._counts

    def _take(self, file: Path, item: Call | Log | None) -> None:
        if not isinstance(item, Call):
            self._take_log(file, item)
            return
        blocks = _blocks(item)
        self._counts["skipped"] += not blocks
        for raw in blocks:
            self._bind(file, f"0x{raw.data[:20].hex()}")
            self._batch.append((item.where, raw._replace(block_id=self._next)))
            self._next = None if self._next is None else self._next + 1
            self._read, self._bytes = self._read + 1, self._bytes + len(raw.data) + len(raw.auxiliary)
        if len(self._batch) >= BATCH_BLOCKS or self._bytes >= BATCH_BYTES:
            self._commit()

    def _take_log(self, file: Path, log: Log | None) -> None:
        if log and log.event:
            self._bind(file, self._exchange or log.address)
        if not log or not log.event or log.address != self._exchange:
            self._counts["skipped"] += 1
        elif isinstance(log.event, Submission):
            self._events.append(log.event)
        else:
            self._addresses |= [log.event]

    def _bind(self, file: Path, exchange: str) -> None:
        """Bind the store to the exchange of the first block or event; the store refuses others."""
        if self._exchange:
            return
        bound = self._store.file.source()
        if bound is None or bound.exchange != exchange or self._named is not None:
            bound = _source_of(file, exchange, self._named)
        self._store.bind(bound)
        self._exchange = exchange

    def _commit(self) -> None:
        """Commit events, then blocks; the blocks of a batch all or none."""
        events, self._events = self._events, []
        batch, self._batch, self._bytes = self._batch, [], 0
        if events or self._addresses:
            self._store.add_events(events, contracts=self._addresses)
        try:
            self._counts["added"] += self._store.add([raw for _, raw in batch])
        except BlockError:
            for where, raw in batch:
                refuse_unreadable(where, raw)
            raise
        self._progress(self._read, self._read)


def _source_of(file: Path, exchange: str, name: str | None) -> Source:
    """Return the source of a file: as stated beside it, as given, or else the exchange."""
    chain_id = CHAINS.get(exchange)
    plain = f"exchange {exchange}" + (f" on chain {chain_id}" if chain_id else "")
    is_stated = (file.parent / FILE).is_file()
    found = Source.of_saved(file.parent, name if is_stated else name or plain, file.parent)
    joined = found.joined(Source(found.name, found.synthetic, exchange, found.chain_id or chain_id))
    if joined is None:
        raise LabError(f"{file}: holds blocks of exchange {exchange}, but {FILE} says {found}. Correct it.")
    return joined


def _blocks(call: Call) -> list[RawBlock]:
    """Read the blocks of a call; none if it is a transaction that does something else.

    Calldata is 4 bytes more than a multiple of 32, which 98 + 68 bytes per slot never are.
    """
    is_submission = call.content[:4] in SELECTORS
    if not (is_submission or call.is_transaction) and len(call.content) % SLOT == HEADER % SLOT:
        raw = RawBlock(call.content)
        calldata.check_length(raw, call.where)
        return [raw]
    try:
        return [
            raw._replace(l1_block=call.l1_block, transaction_hash=call.transaction_hash)
            for raw in calldata.read(call.content, call.where)
        ]
    except BlockError:
        if is_submission or not call.is_transaction:
            raise
        return []


def _listing(file: Path) -> str:
    """Read a listing of tokens, without those whose decimals nobody knows."""
    name = printable(file.name)
    if not file.is_file():
        raise LabError(f"{printable(str(file), 200)}: no such file. Give a listing of tokens.")
    listed = parse_json(read_text(file, size=MAX_ANSWER, hint=HINT), name, hint=HINT)
    if isinstance(listed, list):
        listed = [one for one in listed if not isinstance(one, dict) or one.get("decimals") is not None]
    text = to_json(listed)
    tables.tokens(text)
    return text


def _read(file: Path) -> Iterator[Call | Log | None]:
    """Read a file as what its content says that it is."""
    name = file.name.removesuffix(".gz")
    with open_file(file, printable(file.name), HINT) as raw:
        is_parquet = raw.read(4) == b"PAR1"
    if is_parquet:
        return _calls_of(file, _parquet(file))
    if name.endswith(".csv"):
        return _calls_of(file, _csv(file))
    start = next(pieces(file, printable(file.name), HINT), b"")
    if not start.strip():
        raise _refused(printable(file.name), "calldata or the data of a block", "an empty file")
    if name.endswith((".json", ".jsonl", ".ndjson")) or start.lstrip()[:1] in (b"{", b"["):
        return _json(file)
    return _hex(file) if not start[:64].translate(None, TEXT) else _binary(file)


def _binary(file: Path) -> Iterator[Call]:
    name = printable(file.name)
    yield Call(name, read_file(file, hint=HINT))


def _hex(file: Path) -> Iterator[Call]:
    for number, line in enumerate(read_lines(file, hint=HINT), 1):
        where = printable(file.name) if number == 1 else f"{printable(file.name)}, line {number}"
        yield Call(where, _bytes(line.decode("ascii", "replace"), where))


def _json(file: Path) -> Iterator[Call | Log | None]:
    for number, body in enumerate(read_documents(file, hint=HINT), 1):
        where = printable(file.name) if number == 1 else f"{printable(file.name)}, line {number}"
        yield from _records(parse_json(body, where, hint=HINT), where)


def _records(value: Any, where: str) -> Iterator[Call | Log | None]:
    """Find transactions and events in lists and answers."""
    if isinstance(value, list):
        for place, one in enumerate(value):
            yield from _records(one, f"{where}[{place}]")
    elif isinstance(value, dict) and "topics" in value:
        yield read_log(value, where, IN_FILES)
    elif isinstance(value, dict) and not value.keys().isdisjoint(INPUT):
        yield _call(value, where)
    elif isinstance(value, dict) and "result" in value:
        yield from _records(value["result"], f"{where}, result")
    else:
        raise _unexpected(where, "a transaction or an event", value)


def _calls_of(file: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[Call]:
    """Read the rows of a table as transactions, and say which row could not be read."""
    name, number = printable(file.name), 0
    try:
        for batch in batches:
            for row in batch.to_pylist():
                number += 1
                yield _call(row, f"{name}, row {number}")
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        if isinstance(error, LabError):
            raise
        got = printable(str(error).partition("\n")[0], 200)
    else:
        return
    raise _refused(f"{name}, after row {number}", "a table that can be read", got)


def _parquet(file: Path) -> Iterator[pa.RecordBatch]:
    name = printable(file.name)
    with open_file(file, name, HINT) as raw:
        table = pq.ParquetFile(raw)
        columns = _columns(table.schema_arrow.names, name)
        places = [place for place, one in enumerate(table.schema_arrow.names) if one in columns]
        for group in range(table.num_row_groups):
            parts = [table.metadata.row_group(group).column(place) for place in places]
            size = sum(part.total_uncompressed_size for part in parts)
            if size > MOST_IN_GROUP:
                expected = f"row groups of at most {MOST_IN_GROUP >> 20:,} MiB"
                raise _refused(f"{name}, row group {group}", expected, f"{size >> 20:,} MiB")
        yield from table.iter_batches(ROWS, columns=columns, use_threads=False)


def _csv(file: Path) -> Iterator[pa.RecordBatch]:
    lines = read_lines(file, hint=HINT)
    header = next(lines, b"").decode("utf-8-sig", "replace")
    columns = _columns([one.strip().strip('"') for one in header.split(",")], printable(file.name))
    convert = pacsv.ConvertOptions(
        include_columns=columns, column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=True
    )
    for rows in _grouped(lines):
        content = b"\n".join([header.encode(), *rows])
        options = pacsv.ReadOptions(use_threads=False, block_size=len(content) + 1)
        table = pacsv.read_csv(pa.BufferReader(content), options, convert_options=convert)
        yield from table.to_batches(ROWS)


def _grouped(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for line in lines:
        group.append(line)
        size += len(line)
        if size > CSV_PIECE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _columns(names: list[str], where: str) -> list[str]:
    """Choose the columns that are read."""
    found = [next((one for one in known if one in names), None) for known in (INPUT, HASH, NUMBER)]
    if found[0] is None:
        raise _refused(where, "a column input", f"columns {shown(names, 200)}")
    return [one for one in found if one is not None]


def _call(row: Mapping[str, Any], where: str) -> Call:
    """Read a transaction: a JSON object, or a row of a table."""
    content, found_hash, number = (
        next((row[one] for one in names if row.get(one) is not None), None) for names in (INPUT, HASH, NUMBER)
    )
    if content is None:
        raise _refused(f"{where}, input", "the input of a transaction", "nothing")
    l1_block = None if number is None else _integer(number, f"{where}, block number")
    known = None if found_hash is None else "0x" + _bytes(found_hash, f"{where}, hash", 32).hex()
    return Call(where, _bytes(content, f"{where}, input"), True, l1_block, known)


def _bytes(value: Any, where: str, size: int | None = None) -> bytes:
    """Read bytes, or hex text, of a given length if one is given."""
    found = value
    if not isinstance(value, bytes) or value.startswith((b"0x", b"0X")):
        text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        try:
            found = bytes.fromhex(text.strip().removeprefix("0x").removeprefix("0X"))
        except (AttributeError, ValueError):
            raise _unexpected(where, "hex text", text) from None
    if size not in (None, len(found)):
        raise _unexpected(where, f"{size} bytes", value)
    return bytes(found)


def _integer(value: Any, where: str) -> int:
    """Read a number of a block: an integer, or its text, decimal or with 0x."""
    if isinstance(value, str) and value[:2] in ("0x", "0X"):
        match = re.fullmatch("0[xX]([0-9a-fA-F]{1,15})", value)
        number = int(match[1], 16) if match else None
    else:
        number = value if type(value) is int else parse_integer(value if isinstance(value, str) else None)
    if number is None or not 0 <= number <= MAX_INT64:
        raise _unexpected(where, "a whole number", value)
    return number


def _unexpected(where: str, expected: str, value: object) -> UnexpectedAnswer:
    return _refused(where, expected, shown(value, 60))


def _refused(where: str, expected: str, got: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(where, expected=expected, got=got, hint=HINT)


IN_FILES = Reader(_integer, _bytes, _unexpected)
