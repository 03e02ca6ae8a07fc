"""What a block store holds on disk: blocks, events of the exchange's contract and listings of tokens.

Two blocks are one if their data is the same. Rows are only added: a row without data adds what became known
later of a block that is held, such as the transaction that submitted it. Reading merges the rows of a block.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.bounded import parse_json
from loopring_lab.errors import BlockError
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.calldata import RawBlock
from loopring_lab.source import Source
from loopring_lab.storage.compaction import compact_small_files
from loopring_lab.storage.delta import DeltaFolder, Kind, fields, retry_on_conflict

if TYPE_CHECKING:
    from deltalake import DeltaTable

BLOCKS, LOGS, TOKENS = "blocks", "logs", "tokens"
ROWS_AT_ONCE = 256

SCHEMAS = {
    BLOCKS: pa.schema([
        *fields("timestamp block_id l1_block place block_type block_size block_version", pa.int64()),
        *fields("transaction_hash form", pa.string()),
        *fields("data_sha256 exchange merkle_root_before merkle_root_after", pa.binary()),
        *fields("pools", pa.list_(pa.int64())),
        *fields("auxiliary data", pa.binary()),
    ]),
    LOGS: pa.schema([
        *fields("block_id l1_block log_index first last token_id", pa.int64()),
        *fields("transaction_hash token", pa.string()),
        *fields("merkle_root public_data_hash", pa.binary()),
    ]),
    TOKENS: pa.schema([*fields("number", pa.int64()), *fields("listing", pa.string())]),
}  # fmt: skip
"""The tables of a store; a row of logs is an event, or the range of Ethereum blocks whose logs were read."""
TOLD = ("block_id", "transaction_hash", "form")
"""What a later row can add to a block."""
_NUMBERED = ["block_id", "data_sha256"]
INDEX = [name for name in SCHEMAS[BLOCKS].names if name not in ("pools", "auxiliary", "data")]
ORDER = [(name, "ascending") for name in ("block_id", "timestamp", "l1_block", "place", "data_sha256")]


class Submission(NamedTuple):
    """An event of the exchange: a block was submitted."""

    block_id: int
    merkle_root: bytes
    public_data_hash: bytes
    l1_block: int
    transaction_hash: str
    log_index: int


SUBMISSION = Submission._fields


class BlockFolder(DeltaFolder):
    """The folder of one block store."""

    kind = Kind(
        noun="block store",
        contents="blocks",
        manifest="blocks.json",
        schema=2,
        tables=SCHEMAS,
        partitions={},
        statistics={BLOCKS: "timestamp,block_id", TOKENS: "number"},
        bulk=frozenset([BLOCKS]),
        fill="store.sync(rpc=...), or store.import_files(paths)",
        repair="Sync or import the blocks again into another folder, or restore this file from a backup.",
        reading="report, blocks and check",
        same_source="",
        large=frozenset(["auxiliary", "data", "listing"]),
    )


@dataclass(frozen=True)
class Index:
    """One state of a store: the rows of its blocks, without their data, and the events of its logs."""

    table: DeltaTable
    logs: DeltaTable
    version: tuple[int, int]
    rows: pa.Table
    events: pa.Table
    pools: frozenset[int]

    @classmethod
    def read(cls, folder: DeltaFolder, last: Self | None) -> Self:
        """Read the latest state, unless it is the `last` that was read."""
        if last and all(map(folder.is_latest, (BLOCKS, LOGS), last.version)):
            return last
        table, logs = folder.table(BLOCKS), folder.table(LOGS)
        rows = folder.read(BLOCKS, [*INDEX, "pools"], table=table)
        version, events = (table.version(), logs.version()), submissions(folder, logs)
        return cls(table, logs, version, rows.select(INDEX), events, _pools(rows))

    def after(self, name: str, fresh: pa.Table) -> Self:
        """Return the state after a commit of rows through its tables; itself if others committed, too."""
        version = self.table.version(), self.logs.version()
        if sum(version) != sum(self.version) + 1:
            return self
        if name == LOGS:
            return replace(self, version=version, events=_in_order(self.events, fresh))
        rows = pa.concat_tables([self.rows, fresh.select(INDEX)])
        return replace(self, version=version, rows=rows, pools=self.pools | _pools(fresh))

    @cached_property
    def blocks(self) -> pa.Table:
        """One row a block, by number; those without one are last, by time."""
        blocks = merge(self.rows)
        numbers = pa.array(number(blocks, self.events), pa.int64())
        return _with_numbers(blocks, numbers).sort_by(ORDER)

    def raw(self, folder: DeltaFolder, rows: pa.Table) -> list[RawBlock]:
        """Read blocks, given by rows of the index, with their data."""
        wanted = rows["data_sha256"].combine_chunks()
        span = pc.min_max(rows["timestamp"])
        moment = pc.field("timestamp")
        where = (moment >= span["min"]) & (moment <= span["max"])
        names = [*INDEX, "auxiliary", "data"]
        with folder.translate_errors(f"reading {BLOCKS}/"):
            data = folder.dataset(BLOCKS, table=self.table, where=where)
            where &= pc.field("data_sha256").isin(wanted)
            scanner = data.scanner(
                names, filter=where, batch_size=ROWS_AT_ONCE, batch_readahead=2, fragment_readahead=1
            )
            found = merge(scanner.to_table())
        found = found.take(pc.index_in(wanted, value_set=found["data_sha256"].combine_chunks()))
        found = _with_numbers(found, rows["block_id"])
        return [_raw(row) for row in found.select(RawBlock._fields).to_pylist()]


def _raw(row: Mapping[str, Any]) -> RawBlock:
    """Return a block from a merged row; what is not known of it has its default."""
    optional = {"auxiliary": b"", "form": "", "place": 0}
    return RawBlock(**(dict(row) | {name: row[name] or other for name, other in optional.items()}))


class Holdings:
    """The folder of a store, with what its public methods, imports and downloads share."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = BlockFolder(path)
        self._index: Index | None = None

    def _attrs(self) -> dict[str, Any]:
        bound = self._folder.source()
        return {"source": bound.name, "synthetic": bound.synthetic} if bound else {}

    def _read_index(self) -> Index:
        self._index = Index.read(self._folder, self._index)
        return self._index

    def _bind(self, source: Source) -> None:
        """Bind the store to a source; the exchange tells whether two are one, whatever they are called."""
        bound = self._folder.source()
        if bound and bound.exchange and bound.exchange == source.exchange:
            source = Source(bound.name, source.synthetic, source.exchange, source.chain_id)
        self._folder = retry_on_conflict(self._folder.bind, source)

    def _add(self, blocks: Sequence[RawBlock]) -> int:
        """Commit blocks that are not held, and what is new of those held, all or none; count the former."""
        if not blocks:
            return 0
        return retry_on_conflict(self._add_once, rows_of(blocks))

    def _add_once(self, rows: pa.Table) -> int:
        index = self._read_index()
        self._refuse_other_exchanges(rows, index.table)
        refuse_conflicts(rows, index)
        fresh, count = additions(rows, index.rows)
        if len(fresh):
            self._folder.append(BLOCKS, fresh, index.table, [BLOCKS])
            self._index = index.after(BLOCKS, fresh)
        return count

    def _refuse_other_exchanges(self, rows: pa.Table, table: DeltaTable) -> None:
        bound = self._folder.source_of(table)
        for exchange in pc.unique(rows["exchange"]).to_pylist():
            if bound and f"0x{exchange.hex()}" != bound.exchange:
                raise BlockError(
                    f"{self._folder.shown}: holds blocks of {bound}, and these are of the exchange "
                    f"0x{exchange.hex()}. Nothing was added: use another folder."
                )

    def _held(self) -> pa.Table:
        """Return what is known of each block held, in order: number, transaction, hash and roots, no data."""
        return self._read_index().blocks

    def _submissions(self) -> pa.Table:
        """Return the events of submitted blocks that were seen, by number."""
        return self._read_index().events

    def _scanned(self) -> list[tuple[int, int]]:
        """Return the ranges of Ethereum blocks whose logs were read, those that touch as one."""
        rows = self._folder.read(LOGS, ["first", "last"], pc.field("first").is_valid())
        ranges: list[tuple[int, int]] = []
        for first, last in sorted(zip(rows["first"].to_pylist(), rows["last"].to_pylist(), strict=True)):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = ranges[-1][0], max(last, ranges[-1][1])
            else:
                ranges.append((first, last))
        return ranges

    def _token_addresses(self) -> dict[int, str]:
        """Return the contracts of the tokens that events named, by token id."""
        rows = self._folder.read(LOGS, ["token_id", "token"], pc.field("token_id").is_valid())
        return dict(sorted(zip(rows["token_id"].to_pylist(), rows["token"].to_pylist(), strict=True)))

    def _record_scan(
        self,
        first: int | None,
        last: int | None,
        events: pa.Table,
        token_addresses: dict[int, str] | None = None,
    ) -> None:
        """Commit the events found in a range of Ethereum blocks, and the range, all or none."""
        retry_on_conflict(self._record_once, first, last, events, token_addresses or {})

    def _record_once(
        self, first: int | None, last: int | None, events: pa.Table, addresses: dict[int, str]
    ) -> None:
        index = self._read_index()
        near = _among(index.events, "block_id", events["block_id"])
        seen = set(map(tuple, map(dict.values, near.to_pylist())))
        rows = [row for row in events.select(SUBMISSION).to_pylist() if tuple(row.values()) not in seen]
        known = self._token_addresses() if addresses else {}
        rows += [{"token_id": n, "token": one} for n, one in addresses.items() if known.get(n) != one]
        rows += [] if first is None else [{"first": first, "last": last}]
        if rows:
            fresh = pa.Table.from_pylist(rows, SCHEMAS[LOGS])
            self._folder.append(LOGS, fresh, index.logs, [LOGS])
            self._index = index.after(LOGS, fresh)

    def _last_listing(self, table: DeltaTable | None = None) -> str | None:
        """Return the listing of tokens that was stored last, as JSON text, if there is one."""
        rows = self._folder.read(TOKENS, table=table).sort_by("number")
        return str(rows["listing"][-1]) if len(rows) else None

    def _token_listing(self) -> list[Any]:
        """Return the records of the listing of tokens, none if there is no listing."""
        listed = parse_json(self._last_listing() or "[]", "tokens")
        return list(listed.get("tokens", [])) if isinstance(listed, dict) else list(listed)

    def _store_tokens(self, text: str) -> None:
        """Store a listing of tokens, JSON as ``GET /exchange/tokens`` gives it, unless it is the last one."""
        tables.tokens(text)
        retry_on_conflict(self._store_tokens_once, text)

    def _store_tokens_once(self, text: str) -> None:
        table = self._folder.table(TOKENS)
        if self._last_listing(table) != text:
            row = {"number": table.version() + 1, "listing": text}
            self._folder.append(TOKENS, pa.Table.from_pylist([row], SCHEMAS[TOKENS]), table, [TOKENS])

    def _compact(self) -> None:
        """Replace many small files with a few large ones; no file is removed."""
        compact_small_files(self._folder)


def rows_of_events(events: Iterable[Submission]) -> pa.Table:
    """Return events of submitted blocks as rows of the store."""
    return pa.Table.from_pylist([event._asdict() for event in events], SCHEMAS[LOGS])


def rows_of(blocks: Sequence[RawBlock]) -> pa.Table:
    """Return blocks as rows of the store; an error names one that cannot be read."""
    read = Blocks(blocks)
    headers, updates = read.headers_table, read.table("amm_update").select(["block", "account"])
    pairs = updates.group_by(["block", "account"]).aggregate([]).sort_by("block")
    counts = np.bincount(pairs["block"].to_numpy(), minlength=len(blocks))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    columns: dict[str, Any] = {name: headers[name] for name in INDEX if name in headers.column_names}
    columns["pools"] = pa.ListArray.from_arrays(offsets, pairs["account"].combine_chunks())
    for name in ("place", "auxiliary", "form"):  # known of a submission only
        columns[name] = [getattr(raw, name) if raw.form else None for raw in blocks]
    columns["data"] = [raw.data for raw in blocks]
    return pa.table(columns, SCHEMAS[BLOCKS])


def _pools(rows: pa.Table) -> frozenset[int]:
    return frozenset(pc.unique(pc.list_flatten(rows["pools"])).to_pylist())


def _with_numbers(blocks: pa.Table, numbers: Any) -> pa.Table:
    return blocks.set_column(blocks.schema.get_field_index("block_id"), "block_id", numbers)


def merge(rows: pa.Table) -> pa.Table:
    """Merge the rows of one block: of each column the first value that is known."""
    names = [name for name in rows.column_names if name != "data_sha256"]
    if pc.count_distinct(rows["data_sha256"]).as_py() == len(rows):
        return rows
    grouped = rows.group_by("data_sha256", use_threads=False)
    merged = grouped.aggregate([(name, "first") for name in names])
    return merged.rename_columns({f"{name}_first": name for name in names}).select(rows.column_names)


def additions(rows: pa.Table, held: pa.Table) -> tuple[pa.Table, int]:
    """Return the rows that add a block, or something to one that is held, and how many blocks are new."""
    known: dict[bytes, set[str]] = {}
    for digest, tells in _told(_among(held, "data_sha256", rows["data_sha256"])):
        known[digest] = known.get(digest, set()) | tells
    taken, is_new = [], []
    for place, (digest, tells) in enumerate(_told(rows)):
        if digest not in known or tells - known[digest]:
            taken.append(place)
            is_new.append(digest not in known)
            known[digest] = known.get(digest, set()) | tells
    found = rows.take(pa.array(taken, pa.int64()))
    for name in ("data", "pools"):
        column = pc.if_else(pa.array(is_new, pa.bool_()), found[name], pa.scalar(None, found[name].type))
        found = found.set_column(found.schema.get_field_index(name), name, column)
    return found, sum(is_new)


def _told(rows: pa.Table) -> Iterator[tuple[bytes, set[str]]]:
    """Name for each row what it tells beyond the block's data: a number, the transaction, the submission."""
    valid = zip(*(rows[name].is_valid().to_pylist() for name in TOLD), strict=True)
    for digest, row in zip(rows["data_sha256"].to_pylist(), valid, strict=True):
        yield digest, {name for name, is_told in zip(TOLD, row, strict=True) if is_told}


def _among(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return rows.filter(pc.is_in(rows[name], value_set=values.drop_null().combine_chunks()))


def refuse_conflicts(rows: pa.Table, index: Index) -> None:
    """Refuse rows that give a block another number than it has, or a number that another block has."""
    events = index.events.select(["block_id", "public_data_hash"]).rename_columns(_NUMBERED)
    given = [rows.select(_NUMBERED), index.rows.select(_NUMBERED), events]
    near = [_among(part, name, rows[name]) for part in given for name in _NUMBERED]
    pairs = pa.concat_tables(near).drop_null().group_by(_NUMBERED).aggregate([])
    for name, other in (_NUMBERED, _NUMBERED[::-1]):
        counts = pairs.group_by(name).aggregate([(other, "count"), (other, "min")])
        for wrong in counts.filter(pc.field(f"{other}_count") > 1).slice(0, 1)[name].to_pylist():
            clash = pairs.filter(pc.field(name) == wrong).sort_by(other).slice(0, 2).to_pylist()
            first, second = (
                f"block {row['block_id']} with sha256 {row['data_sha256'].hex()}" for row in clash
            )
            raise BlockError(
                f"{first} and {second} cannot both be. Nothing was added: check first_block=, or "
                "leave it out where events or other blocks tell the number."
            )


def submissions(folder: DeltaFolder, logs: DeltaTable | None = None) -> pa.Table:
    """Read the events of submitted blocks, each once, by number."""
    return _in_order(folder.read(LOGS, SUBMISSION, table=logs))


def _in_order(*events: pa.Table) -> pa.Table:
    """Return the events of submitted blocks among rows of logs, each once, by number."""
    found = pa.concat_tables([part.select(SUBMISSION) for part in events])
    found = found.filter(pc.field("block_id").is_valid())
    order = [(name, "ascending") for name in ("block_id", "l1_block", "log_index")]
    return found.group_by(list(SUBMISSION)).aggregate([]).sort_by(order)


def number(blocks: pa.Table, events: pa.Table) -> list[int | None]:
    """Tell the number of each block: by the event with the hash of its data, as given, or by its neighbours.

    Blocks are neighbours if a state root ends one and begins the other, and no third block of the store.
    """
    known = {*zip(events["public_data_hash"].to_pylist(), events["block_id"].to_pylist(), strict=True)}
    by_hash = _unambiguous([one for one, _ in known], [one for _, one in known])
    digests, given = blocks["data_sha256"].to_pylist(), blocks["block_id"].to_pylist()
    numbers: list[int | None] = [by_hash.get(one, stated) for one, stated in zip(digests, given, strict=True)]
    if None not in numbers:
        return numbers
    places = range(len(numbers))
    begins = _unambiguous(blocks["merkle_root_before"].to_pylist(), places)
    ends = _unambiguous(blocks["merkle_root_after"].to_pylist(), places)
    after = {end: begins[root] for root, end in ends.items() if root in begins}
    before = {begin: end for end, begin in after.items()}
    taken = {*numbers}
    for start in [place for place in places if numbers[place] is not None]:
        for links, step in ((after, 1), (before, -1)):
            _spread(numbers, start, links, step, taken)
    return numbers


def _spread(
    numbers: list[int | None], start: int, links: Mapping[int, int], step: int, taken: set[int | None]
) -> None:
    """Number the unnumbered neighbours of a block, one after another, with numbers that no other has."""
    at, value = start, numbers[start]
    while value is not None and (following := links.get(at)) is not None:
        value += step
        if numbers[following] is not None or value in taken or value < 0:
            return
        numbers[following] = value
        taken.add(value)
        at = following


def _unambiguous(keys: Sequence[Any], values: Iterable[Any]) -> dict[Any, Any]:
    """Map keys to values, without keys that occur twice."""
    counts = Counter(keys)
    return {key: value for key, value in zip(keys, values, strict=True) if counts[key] == 1}
