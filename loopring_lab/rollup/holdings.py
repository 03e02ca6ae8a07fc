"""What a block store holds on disk: blocks, events of the exchange's contract and listings of tokens.

Two blocks are one if their data is the same. Rows are only added: a row without data adds what became known
later of a block that is held, such as the transaction that submitted it. Reading merges the rows of a block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.errors import BlockError
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.calldata import RawBlock
from loopring_lab.storage.delta import DeltaFolder, Kind

if TYPE_CHECKING:
    from deltalake import DeltaTable

BLOCKS, LOGS, TOKENS = "blocks", "logs", "tokens"
ROWS_AT_ONCE = 256


def _fields(names: str, field_type: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, field_type) for name in names.split()]


SCHEMAS = {
    BLOCKS: pa.schema([
        *_fields("timestamp block_id l1_block place block_type block_size block_version", pa.int64()),
        *_fields("transaction_hash form", pa.string()),
        *_fields("data_sha256 exchange merkle_root_before merkle_root_after", pa.binary()),
        *_fields("pools", pa.list_(pa.int64())),
        *_fields("auxiliary data", pa.binary()),
    ]),
    LOGS: pa.schema([
        *_fields("block_id l1_block log_index first last token_id", pa.int64()),
        *_fields("transaction_hash token", pa.string()),
        *_fields("merkle_root public_data_hash", pa.binary()),
    ]),
    TOKENS: pa.schema([*_fields("number", pa.int64()), *_fields("listing", pa.string())]),
}  # fmt: skip
"""The tables of a store; a row of logs is an event, or the range of Ethereum blocks whose logs were read."""
SUBMISSION = ("block_id", "merkle_root", "public_data_hash", "l1_block", "transaction_hash", "log_index")
STATED = ("number", "transaction", "submission")
"""What a later row can add to a block."""
INDEX = [name for name in SCHEMAS[BLOCKS].names if name not in ("pools", "auxiliary", "data")]
ORDER = [(name, "ascending") for name in ("block_id", "timestamp", "l1_block", "place", "data_sha256")]


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
        mend="Sync or import the blocks again into another folder, or restore this file from a backup.",
        reading="report, blocks and check",
        same_source="",
        large=frozenset(["auxiliary", "data", "listing"]),
    )


class Index(NamedTuple):
    """One state of a store: its blocks in order, without their data, and the accounts that are pools."""

    table: DeltaTable
    version: tuple[int, int]
    blocks: pa.Table
    pools: frozenset[int]

    @classmethod
    def read(cls, folder: DeltaFolder, last: Self | None) -> Self:
        """Read the latest state, unless it is the `last` that was read."""
        table, logs = folder.table(BLOCKS), folder.table(LOGS)
        version = table.version(), logs.version()
        if last and last.version == version:
            return last
        rows = folder.read(BLOCKS, [*INDEX, "pools"], table=table)
        pools = pc.unique(pc.list_flatten(rows["pools"])).to_pylist()
        blocks = merge(rows.select(INDEX))
        stated = blocks["block_id"]
        blocks = blocks.append_column("stated", stated)
        numbers = pa.array(number(blocks, submissions(folder, logs)), pa.int64())
        blocks = blocks.set_column(blocks.schema.get_field_index("block_id"), "block_id", numbers)
        return cls(table, version, blocks.sort_by(ORDER), frozenset(pools))

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
        found = found.set_column(found.schema.get_field_index("block_id"), "block_id", rows["block_id"])
        return [_raw(row) for row in found.select(_RAW).to_pylist()]


_RAW = [name for name in RawBlock._fields if name != "form"] + ["form"]


def _raw(row: Mapping[str, Any]) -> RawBlock:
    """Return a block from a merged row; what is not known of it has its default."""
    optional = {"auxiliary": b"", "form": "", "place": 0}
    return RawBlock(**(dict(row) | {name: row[name] or other for name, other in optional.items()}))


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
    return pa.table({name: _as(columns[name], kind) for name, kind in _types(BLOCKS)})


def _types(name: str) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in SCHEMAS[name]]


def _as(column: Any, kind: pa.DataType) -> Any:
    return pa.array(column, kind) if isinstance(column, list) else column.cast(kind)


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
    digests, told = rows["data_sha256"].to_pylist(), _told(rows, "block_id")
    own = held.filter(pc.is_in(held["data_sha256"], value_set=rows["data_sha256"].combine_chunks()))
    known = dict(zip(own["data_sha256"].to_pylist(), _told(own, "stated"), strict=True))
    taken, is_new = [], []
    for place, (digest, tells) in enumerate(zip(digests, told, strict=True)):
        if digest not in known or tells - known[digest]:
            taken.append(place)
            is_new.append(digest not in known)
            known[digest] = known.get(digest, set()) | tells
    found = rows.take(pa.array(taken, pa.int64()))
    for name in ("data", "pools"):
        column = pc.if_else(pa.array(is_new, pa.bool_()), found[name], pa.scalar(None, found[name].type))
        found = found.set_column(found.schema.get_field_index(name), name, column)
    return found, sum(is_new)


def _told(rows: pa.Table, number: str) -> list[set[str]]:
    """Name what rows tell beyond their data: a number, the transaction, the submission."""
    names = (number, "transaction_hash", "form")
    valid = (rows[name].is_valid().to_pylist() for name in names)
    return [{name for name, one in zip(STATED, row, strict=True) if one} for row in zip(*valid, strict=True)]


def refuse_conflicts(rows: pa.Table, index: pa.Table, events: pa.Table) -> None:
    """Refuse rows that give a block another number than it has, or a number that another block has."""
    owners: dict[int | None, bytes] = {}
    for known, column in ((index, "data_sha256"), (events, "public_data_hash")):
        owners |= dict(zip(known["block_id"].to_pylist(), known[column].to_pylist(), strict=True))
    numbers = {digest: block_id for block_id, digest in owners.items() if block_id is not None}
    for block_id, digest in zip(rows["block_id"].to_pylist(), rows["data_sha256"].to_pylist(), strict=True):
        if block_id is None:
            continue
        owner, own = owners.setdefault(block_id, digest), numbers.setdefault(digest, block_id)
        if owner != digest or own != block_id:
            other = f"{owner.hex()} has it" if owner != digest else f"that is block {own}"
            raise BlockError(
                f"block {block_id}: given to the data with sha256 {digest.hex()}, but {other}. Nothing was "
                "added: check first_block=, or leave it out where events or other blocks tell the number."
            )


def submissions(folder: DeltaFolder, logs: DeltaTable | None = None) -> pa.Table:
    """Read the events of submitted blocks, each once, by number."""
    found = folder.read(LOGS, SUBMISSION, pc.field("block_id").is_valid(), table=logs)
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
