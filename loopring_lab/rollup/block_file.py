"""What a block store holds on disk: blocks, events of the exchange's contract and listings of tokens.

Two blocks are one if their data is the same. A block is stored once; what becomes known of it later, such as
the transaction that submitted it, is filled in, and nothing that is known is ever replaced, unless its event says
that another transaction submitted it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.bounded import parse_json
from loopring_lab.engine.database import Kind, StoredFile, bound_source
from loopring_lab.errors import BlockError, DamagedArchive
from loopring_lab.origin import Source
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.calldata import MAX_CALL, RawBlock, to_hex
from loopring_lab.rollup.slots import of_header

if TYPE_CHECKING:
    import duckdb

READ_AT_ONCE = 512  # blocks, some 10 MB of their data
# Each type of transaction, with the columns of the tokens whose balances it changes.
TOKENS_OF = {
    "deposit": ("token",),
    "withdrawal": ("token",),
    "transfer": ("token",),
    "spot_trade": ("sell_a", "sell_b"),
}
CODEC = "zstd"


class Fact(NamedTuple):
    """A fact about a block, which is a column of the file."""

    name: str  # in `Blocks.headers_table` and `RawBlock`
    column: str
    kind: str  # its SQL type
    is_own: bool = (
        False  # whether the block's data tells it, so that it is always known
    )


# Everything that is known of a block, in the order of the file's columns. What is not the block's own is told by the
# call, the transaction or the event that submitted it, and is null until somebody tells it. `data` is what the
# exchange hashes, compressed with zstd, and `form` the selector of the call around it.
FACTS = (
    Fact("data_sha256", "sha256", "BLOB", is_own=True),
    Fact("block_id", "number", "BIGINT"),
    Fact("timestamp", "timestamp", "BIGINT", is_own=True),
    Fact("l1_block", "l1_block", "BIGINT"),
    Fact("transaction_hash", "transaction_hash", "VARCHAR"),
    Fact("form", "form", "VARCHAR"),
    Fact("place", "place", "BIGINT"),
    Fact("block_type", "block_type", "BIGINT"),
    Fact("block_size", "block_size", "BIGINT"),
    Fact("block_version", "block_version", "BIGINT"),
    Fact("merkle_root_before", "merkle_root_before", "BLOB", is_own=True),
    Fact("merkle_root_after", "merkle_root_after", "BLOB", is_own=True),
    Fact("auxiliary", "auxiliary", "BLOB"),
    Fact("data_size", "data_size", "BIGINT", is_own=True),
    Fact("data", "data", "BLOB", is_own=True),
)
TOLD = [fact.column for fact in FACTS if not fact.is_own]
COLUMNS = ", ".join(
    f"{fact.column} {fact.kind}{' NOT NULL' if fact.is_own else ''}" for fact in FACTS
)
# Blocks, each once, in the order in which they came.
BLOCKS = f"CREATE TABLE held.blocks ({COLUMNS});"
# Accounts that amm updates in any block name.
POOLS = "CREATE TABLE held.pools (account_id BIGINT NOT NULL);"
# Events of the exchange: a block was submitted.
SUBMISSIONS = """
CREATE TABLE held.events (
    block_id BIGINT NOT NULL,
    merkle_root BLOB NOT NULL,
    public_data_hash BLOB NOT NULL,
    l1_block BIGINT NOT NULL,
    transaction_hash VARCHAR NOT NULL,
    log_index BIGINT NOT NULL
);
"""
# Ranges of Ethereum blocks whose events were read.
SCANS = "CREATE TABLE held.scans (first BIGINT NOT NULL, last BIGINT NOT NULL);"
# Contracts of tokens, as events name them; listings of tokens, as JSON, the last of which counts.
TOKENS = """
CREATE TABLE held.contracts (token_id BIGINT NOT NULL, address VARCHAR NOT NULL);
CREATE TABLE held.tokens (listing VARCHAR NOT NULL);
"""
KIND = Kind(
    noun="block store",
    one="a block store",
    contents="blocks",
    schema=BLOCKS + POOLS + SUBMISSIONS + SCANS + TOKENS,
    format=1,
    fill="store.sync(rpc=...), or store.import_files(paths)",
    copy="store.copy(path), or loopring-lab blocks copy",
    same_source="",
)

# Pairs of two blocks with one number, or of two numbers of one block, of which one arrives. `pairs` says which block
# has which number, as arrived, as held, and as events say.
REFUSE = """
WITH
pairs AS (
    SELECT number, sha256 FROM sent
    UNION
    SELECT number, sha256 FROM held.main.blocks
    UNION
    SELECT block_id, public_data_hash FROM held.main.events
),
clashes AS (
    SELECT
        one.number AS first_number,
        one.sha256 AS first,
        other.number AS second_number,
        other.sha256 AS second
    FROM pairs AS one
    JOIN pairs AS other ON (one.number = other.number AND one.sha256 < other.sha256)
    UNION ALL
    SELECT one.number, one.sha256, other.number, other.sha256
    FROM pairs AS one
    JOIN pairs AS other ON (one.sha256 = other.sha256 AND one.number < other.number)
)
FROM clashes
WHERE first IN (SELECT sha256 FROM sent) OR second IN (SELECT sha256 FROM sent)
ORDER BY ALL
LIMIT 1
"""
IS_TOLD_MORE = " OR ".join(
    f"held_blocks.{name} IS NULL AND arrived.{name} IS NOT NULL" for name in TOLD
)
FILL_IN = ", ".join(
    f"{name} = coalesce(held_blocks.{name}, arrived.{name})" for name in TOLD
)
# `arrived` has each block that arrived, with what is known first of it.
MERGE = f"""
MERGE INTO held.main.blocks AS held_blocks
USING (
    SELECT sha256,
        any_value(COLUMNS(* EXCLUDE (sha256, arrival)) ORDER BY arrival)
    FROM sent
    GROUP BY sha256
    ORDER BY min(arrival)
) AS arrived
USING (sha256)
WHEN MATCHED AND ({IS_TOLD_MORE}) THEN UPDATE SET {FILL_IN}
WHEN NOT MATCHED THEN INSERT BY NAME
RETURNING merge_action
"""
ADD_POOLS = "INSERT INTO held.main.pools SELECT DISTINCT account_id FROM named EXCEPT FROM held.main.pools"
ADD_EVENTS = "INSERT INTO held.main.events SELECT DISTINCT * FROM found EXCEPT FROM held.main.events"
# A file may have told of a call with the same block that failed, so that what events say replaces it.
PLACE_BLOCKS = (
    "UPDATE held.main.blocks SET l1_block = told.l1_block, transaction_hash = told.transaction_hash "
    "FROM (SELECT DISTINCT ON (public_data_hash) * FROM held.main.events ORDER BY rowid DESC) AS told "
    "WHERE sha256 = told.public_data_hash AND "
    "(blocks.l1_block, blocks.transaction_hash) IS DISTINCT FROM (told.l1_block, told.transaction_hash)"
)
INDEX = """
SELECT
    * EXCLUDE (auxiliary, data_size, data) RENAME (sha256 AS data_sha256, number AS block_id),
    rowid AS held_row
FROM held.main.blocks
ORDER BY timestamp, l1_block, place, sha256
"""
# If a token has several contracts, the last one counts.
CONTRACTS = "SELECT token_id, address FROM held.main.contracts ORDER BY token_id, rowid"
LAST_LISTING = "SELECT listing FROM held.main.tokens ORDER BY rowid DESC LIMIT 1"
RENAME_SOURCE = "UPDATE held.main.source SET name = ?"
# Of several events of a block, the last one counts.
EVENTS = "FROM held.main.events ORDER BY block_id, rowid"
# Blocks that follow one another are mostly stored so. DuckDB skips parts of the file by a range of rows; looking
# for hashes reads all of it: 0.03 and 0.42 s for 512 of 67,896 blocks, when the file has just been opened.
DATA = """
SELECT sha256, auxiliary, data_size, data
FROM held.main.blocks
WHERE rowid BETWEEN ? AND ?
    AND sha256 IN (SELECT data_sha256 FROM wanted)
"""


class Submission(NamedTuple):
    """An event of the exchange: a block was submitted."""

    block_id: int
    merkle_root: bytes
    public_data_hash: bytes
    l1_block: int
    transaction_hash: str
    log_index: int


@dataclass(frozen=True)
class Index:
    """One state of a store: its blocks by number, without their data, its events, and its pools.

    Blocks without a number are last, by time and along their roots.
    """

    blocks: pa.Table
    events: pa.Table
    pools: frozenset[int]
    source: Source

    @property
    def next_number(self) -> int:
        """The first number after those held, from which blocks without one are counted."""
        last = pc.max(self.blocks["block_id"]).as_py()
        return 0 if last is None else last + 1

    @property
    def first_number(self) -> int:
        """The number of the exchange's first block: 1, but a synthetic exchange begins where its world does."""
        held = pc.min(self.blocks["block_id"]).as_py()
        submitted = pc.min(self.events["block_id"]).as_py()
        known = [number for number in (held, submitted) if number is not None]
        if not self.source.synthetic:
            # Whoever numbers blocks by hand may begin with 0.
            known.append(1)
        return min(known, default=1)

    @property
    def attrs(self) -> dict[str, Any]:
        return {"source": self.source.name, "synthetic": self.source.synthetic}


class BlockFile:
    """The file of a block store."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.database = StoredFile(path, KIND)
        self._index: tuple[tuple[Any, ...], Index] | None = None

    # Reading

    def index(self) -> Index:
        """Read what is held, without the blocks' data, unless nothing has changed since."""
        stamp = self.database.stamp()
        if self._index is None or self._index[0] != stamp or not stamp:
            with self.database.reading() as connection:
                # Nobody writes while the file is open.
                stamp = self.database.stamp()
                self._index = stamp, _read_index(connection)
        return self._index[1]

    def raw(self, rows: pa.Table) -> Iterator[RawBlock]:
        """Read blocks, given by rows of the index, with their data."""
        # A part at a time: the compressed and the expanded data of all blocks would be in memory at once.
        for start in range(0, len(rows), READ_AT_ONCE):
            yield from self._read(rows.slice(start, READ_AT_ONCE))

    def _read(self, rows: pa.Table) -> list[RawBlock]:
        ends = pc.min_max(rows["held_row"]).as_py()
        with self.database.reading() as connection:
            connection.register("wanted", rows.select(["data_sha256"]))
            held = connection.execute(DATA, list(ends.values())).fetchall()
        found = {digest: rest for digest, *rest in held}
        blocks = []
        for row in rows.to_pylist():
            auxiliary, size, packed = found[row["data_sha256"]]
            known = {name: row[name] for name in RawBlock._fields if name in row}
            data = self._unpacked(packed, size)
            blocks.append(RawBlock(data, auxiliary=auxiliary or b"", **known))
        return blocks

    def batches(self, index: Index, rows: pa.Table, size: int) -> Iterator[Blocks]:
        """Read blocks, given by rows of the index, in batches."""
        count_from = index.next_number
        rest = self.raw(rows)
        while raw := tuple(islice(rest, size)):
            yield Blocks(raw, index.pools, index.attrs, count_from)
            count_from += sum(one.block_id is None for one in raw)

    def used_tokens(self, index: Index) -> set[int]:
        """Return the ids of the tokens that blocks deposit, withdraw, transfer or trade."""
        used: set[int] = set()
        for blocks in self.batches(index, index.blocks, READ_AT_ONCE):
            for kind, names in TOKENS_OF.items():
                table = blocks.table(kind)
                for name in names:
                    used.update(table[name].unique().to_pylist())
        return used

    def scanned(self) -> list[range]:
        """Return the spans of Ethereum blocks whose events were read, which may overlap, by their first one."""
        spans = self._fetch("SELECT first, last FROM held.main.scans ORDER BY ALL")
        return [range(first, last + 1) for first, last in spans]

    def contracts(self) -> dict[int, str]:
        """Return the contracts of the tokens that events named, by token id."""
        return dict(self._fetch(CONTRACTS))

    def last_listing(self) -> str | None:
        """Return the listing of tokens that was stored last, as JSON text, if there is one."""
        rows = self._fetch(LAST_LISTING)
        return rows[0][0] if rows else None

    def listed_tokens(self) -> list[Any]:
        """Return the records of the listing of tokens, none if there is no listing."""
        listed = parse_json(self.last_listing() or "[]", "tokens")
        if isinstance(listed, dict):
            listed = listed.get("tokens", [])
        return list(listed)

    # Writing

    def bind(self, source: Source) -> None:
        """Bind the store to a source; what comes of several is named after the exchange, which makes them one."""
        bound = self.database.source()
        common_name = None
        # Synthetic exchanges share an address, and their names tell the worlds apart.
        if (
            bound
            and bound.exchange
            and bound.exchange == source.exchange
            and not bound.synthetic
            and bound.name != source.name
        ):
            common_name = name_of_exchange(
                bound.exchange, bound.chain_id or source.chain_id
            )
            source = replace(source, name=bound.name)
        with self.database.writing(source) as connection:
            if common_name is not None:
                connection.execute(RENAME_SOURCE, [common_name])

    def add(self, blocks: Sequence[RawBlock]) -> int:
        """Commit blocks that are not held, and what is new of those held, all or none; count the former."""
        if not blocks:
            return 0
        sent, pools = _rows_of(blocks)
        with self.database.writing() as connection:
            self._refuse_other_exchanges(blocks, bound_source(connection))
            connection.register("sent", sent)
            connection.register("named", pools)
            clashes = connection.execute(REFUSE).fetchall()
            for first_number, first, second_number, second in clashes:
                raise BlockError(
                    f"block {first_number} with sha256 {first.hex()} and block {second_number} with sha256 "
                    f"{second.hex()} cannot both be. Nothing was added: check first_block=, or leave it out "
                    "where events or other blocks tell the number."
                )
            actions = Counter(connection.execute(MERGE).fetchall())
            connection.execute(ADD_POOLS)
            connection.execute(PLACE_BLOCKS)
        return actions[("INSERT",)]

    def add_events(
        self,
        events: Iterable[Submission],
        scanned: tuple[int, int] | None = None,
        contracts: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """Commit events, the range of Ethereum blocks that they were found in, and contracts of tokens."""
        found = [event._asdict() for event in events]
        with self.database.writing() as connection:
            if found:
                connection.register("found", pa.Table.from_pylist(found))
                connection.execute(ADD_EVENTS)
                connection.execute(PLACE_BLOCKS)
            if scanned is not None:
                connection.execute(
                    "INSERT INTO held.main.scans VALUES (?, ?)", list(scanned)
                )
            known = dict(connection.execute(CONTRACTS).fetchall())
            for token_id, address in contracts.items():
                if known.get(token_id) != address:
                    connection.execute(
                        "INSERT INTO held.main.contracts VALUES (?, ?)",
                        [token_id, address],
                    )

    def store_tokens(self, text: str) -> None:
        """Store a listing of tokens, JSON as ``GET /exchange/tokens`` gives it, unless it is the last one."""
        tables.tokens(text)
        with self.database.writing() as connection:
            last = connection.execute(LAST_LISTING).fetchall()
            if last != [(text,)]:
                connection.execute("INSERT INTO held.main.tokens VALUES (?)", [text])

    def _fetch(self, query: str) -> list[Any]:
        with self.database.reading() as connection:
            return connection.execute(query).fetchall()

    def _unpacked(self, packed: bytes, size: int) -> bytes:
        """Expand a block; a file made by others may say anything of its length."""
        if not 0 <= size <= MAX_CALL:
            raise DamagedArchive(
                f"{self.database.shown}: a block of {size:,} bytes, more than a call can have. {self.database.advice}"
            )
        try:
            return bytes(
                pa.decompress(packed, decompressed_size=size, codec=CODEC, asbytes=True)
            )
        except (OSError, pa.ArrowException) as error:
            raise DamagedArchive(
                f"{self.database.shown}: a block cannot be expanded ({error}). {self.database.advice}"
            ) from None

    def _refuse_other_exchanges(
        self, blocks: Sequence[RawBlock], bound: Source
    ) -> None:
        for raw in blocks:
            exchange = to_hex(of_header(raw.data, "exchange"))
            if exchange != bound.exchange:
                raise BlockError(
                    f"{self.database.shown}: holds blocks of {bound}, and these are of the exchange "
                    f"{exchange}. Nothing was added: use another file."
                )


def name_of_exchange(exchange: str | None, chain_id: int | None) -> str:
    """Return what blocks are called that come from no one place: the exchange is all that they share."""
    on_chain = "" if chain_id is None else f" on chain {chain_id}"
    return f"exchange {exchange}{on_chain}"


def refuse_unreadable(where: str, raw: RawBlock) -> None:
    """Raise an error that names where a block comes from if it cannot be read."""
    try:
        _rows_of([raw])
    except BlockError as error:
        raise BlockError(f"{where}: {error}") from None


def _rows_of(blocks: Sequence[RawBlock]) -> tuple[pa.Table, pa.Table]:
    """Return blocks as rows of the store, and the pools that they name; an error names one that cannot be read."""
    read = Blocks(blocks)
    headers = read.headers_table
    told = dict(zip(headers.column_names, headers.columns, strict=True))
    packed = [pa.compress(raw.data, CODEC, asbytes=True) for raw in blocks]
    told |= {
        "form": pa.array([raw.form for raw in blocks], pa.string()),
        "auxiliary": pa.array([raw.auxiliary or None for raw in blocks], pa.binary()),
        "data": pa.array(packed, pa.binary()),
        "data_size": pa.array([len(raw.data) for raw in blocks]),
    }
    columns = {fact.column: told[fact.name] for fact in FACTS}
    columns["arrival"] = pa.array(range(len(blocks)))
    pools = read.table("amm_update").select(["account"])
    return pa.table(columns), pools.rename_columns(["account_id"])


def _read_index(connection: duckdb.DuckDBPyConnection) -> Index:
    blocks = connection.sql(INDEX).to_arrow_table()
    events = connection.sql(EVENTS).to_arrow_table()
    pools = frozenset(
        account for (account,) in connection.execute("FROM held.main.pools").fetchall()
    )
    numbers = pa.array(number(blocks, events), pa.int64())
    place = blocks.schema.get_field_index("block_id")
    # Arrow's sorts keep the order of equal ones, so that those without a number stay in the order of time.
    ordered = blocks.set_column(place, "block_id", numbers).sort_by("block_id")
    count = len(ordered) - ordered["block_id"].null_count
    rest = ordered.slice(count)
    parts = [ordered.slice(0, count), rest.take(_along_roots(rest))]
    return Index(pa.concat_tables(parts), events, pools, bound_source(connection))


def _along_roots(blocks: pa.Table) -> pa.Array:
    """Return the places of blocks in the order of time, each followed by the one that begins with its last root.

    Blocks may have one time, and those that are known by their data alone have no place in a call.
    """
    after = _links(blocks)
    heads = sorted(set(range(len(blocks))) - set(after.values()))
    ordered = []
    for head in heads:
        place: int | None = head
        while place is not None:
            ordered.append(place)
            place = after.get(place)
    # Only in a file that somebody made up do roots lead in a circle.
    circles = sorted(set(range(len(blocks))) - set(ordered))
    return pa.array(ordered + circles, pa.int64())


def number(blocks: pa.Table, events: pa.Table) -> list[int | None]:
    """Tell the number of each block: by the event with the hash of its data, as given, or by its neighbours.

    Blocks are neighbours if a state root ends one and begins the other, and no third block of the store.
    """
    stated = set(
        zip(
            events["public_data_hash"].to_pylist(),
            events["block_id"].to_pylist(),
            strict=True,
        )
    )
    by_hash = _unambiguous(stated)
    given = blocks["block_id"].to_pylist()
    known: dict[int, int] = {}
    for place, digest in enumerate(blocks["data_sha256"].to_pylist()):
        told = by_hash.get(digest, given[place])
        if told is not None:
            known[place] = told
    if len(known) == len(given):
        return list(known.values())
    after = _links(blocks)
    before = {begin: end for end, begin in after.items()}
    # Each known number tells those of the neighbours, and they those of theirs, if no other block has the number.
    taken = set(known.values())
    waiting = list(reversed(known))
    while waiting:
        place = waiting.pop()
        for links, step in ((after, 1), (before, -1)):
            neighbour = links.get(place, place)
            value = known[place] + step
            if neighbour not in known and value not in taken and value >= 0:
                known[neighbour] = value
                taken.add(value)
                waiting.append(neighbour)
    return [known.get(place) for place in range(len(given))]


def _links(blocks: pa.Table) -> dict[int, int]:
    """Map the place of each block to that of the one that begins with the root which it ends with."""
    begins = _place_of(blocks["merkle_root_before"])
    ends = _place_of(blocks["merkle_root_after"])
    return {end: begins[root] for root, end in ends.items() if root in begins}


def _place_of(roots: pa.ChunkedArray) -> dict[bytes, int]:
    """Return where each root stands, without those of several blocks."""
    return _unambiguous([(root, at) for at, root in enumerate(roots.to_pylist())])


def _unambiguous(pairs: Collection[tuple[bytes, int]]) -> dict[bytes, int]:
    """Map the first of each pair to the second, without those that occur in several pairs."""
    counts = Counter(first for first, _ in pairs)
    return {first: second for first, second in pairs if counts[first] == 1}
