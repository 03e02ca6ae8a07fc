"""What an archive stores: rows, the listings by which they are scaled, and a record of each sync."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.amounts import AMOUNT
from loopring_lab.archive.folder import (
    LISTINGS,
    SCHEMAS,
    SETTLED_SCHEMAS,
    SYNCS,
    TRADES,
    TYPED,
    AnyFolder,
    ArchiveFolder,
)
from loopring_lab.bounded import to_json
from loopring_lab.engine import portable
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.storage.delta import retry_on_conflict
from loopring_lab.tables import rows, wire
from loopring_lab.tables.identity import IDENTITY, SIDES, hash_identities
from loopring_lab.tables.listings import MarketLookup

if TYPE_CHECKING:
    from deltalake import DeltaTable

TOKENS = ("base", "quote", "fee_token")

HistoryKey = tuple[int, str]
"""Account id and fill type."""
LISTED = ("tokens", "markets", "source", "synthetic", "retrieved_at")
CUT_TOGETHER = 32  # pages, whose bytes fit a processor's cache
_MS = pa.timestamp("ms", "UTC")


class RawPage(NamedTuple):
    """A page as received, when it was received (milliseconds), and its rows as text columns."""

    body: bytes
    retrieved_at: int
    batch: wire.Batch


@dataclass(frozen=True)
class ListingSnapshot:
    """Tokens and markets as a source listed them at one time."""

    tokens: str
    markets: str
    source: str
    synthetic: bool
    retrieved_at: int
    frames: tuple[pd.DataFrame, pd.DataFrame] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read both, so that anything else is refused before it is stored."""
        tokens = tables.tokens(self.tokens)
        object.__setattr__(self, "frames", (tokens, tables.markets(self.markets, tokens)))

    @property
    def digest(self) -> str:
        """16 hex digits that identify the content, whenever it was retrieved."""
        content = json.dumps([self.tokens, self.markets, self.source, self.synthetic])
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


class SyncRecord(NamedTuple):
    """How many rows of a history the relayer counted; `gone` is the number held that it no longer lists.

    `requests` is 0 where saved pages were imported. `checked_at` is given where every page was read.
    """

    account_id: int
    fill_type: str
    synced_at: int
    total: int
    gone: int | None
    requests: int = 0
    since: int | None = None
    checked_at: int | None = None


def to_rows(
    key: HistoryKey, pages: Sequence[RawPage], listing: ListingSnapshot, imported: bool = False
) -> pa.Table:
    """Convert pages of one history to rows of the archive."""
    account_id, fill_type = key
    lookup = MarketLookup(*listing.frames)
    batch = wire.concat([page.batch for page in pages])
    codes_of_pages = [rows.FILL_TYPES.index(fill_type)] * len(pages)
    typed = rows.convert(batch, codes_of_pages, lookup, "received")
    _refuse_other_accounts(typed["account_id"], account_id, fill_type)
    count = len(typed)
    columns = {name: typed[name] for name in TYPED}
    for name, words in _categories(lookup).items():
        codes = typed[name].to_numpy()
        columns[name] = pa.array(words, pa.string()).take(pa.array(codes, pa.int64(), mask=codes < 0))
    columns["account_id"] = pa.array(np.full(count, account_id))
    columns["created_at"] = typed["created_at"].cast(pa.timestamp("ms", "UTC"))
    moments = np.repeat([page.retrieved_at * 1000 for page in pages], batch.counts)
    stored = {
        "asked": pa.repeat(fill_type, count),
        "verbatim": _row_texts(pages),
        "retrieved_at": pa.array(moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "listing": pa.repeat(listing.digest, count),
        "version": pa.repeat(pa.scalar(1, pa.int32()), count),
        "current": pa.repeat(True, count),
        "imported": pa.repeat(imported, count),
    }
    known = portable(pa.table(columns))
    table = pa.table([*known.columns, *stored.values()], [*known.column_names, *stored])
    return table.cast(SCHEMAS[TRADES])


def to_frame(table: pa.Table, listing: ListingSnapshot) -> pd.DataFrame:
    """Convert rows of the archive to the frame that the client returns."""
    lookup = MarketLookup(*listing.frames)
    tokens = {symbol for name in TOKENS for symbol in pc.unique(table[name].drop_null()).to_pylist()}
    lookup.tokens += sorted(tokens - set(lookup.tokens))
    markets = pc.unique(table["market"].drop_null()).to_pylist()
    lookup.markets += [name for name in markets if name not in set(lookup.markets)]
    columns: dict[str, Any] = {name: table[name] for name in TYPED}
    for name, words in _categories(lookup).items():
        columns[name] = pc.index_in(table[name], value_set=pa.array(words, pa.string())).fill_null(-1)
    for name in ("size", "price", "notional", "fee"):
        columns[name] = table[name].cast(AMOUNT.pyarrow_dtype)
    columns["created_at"] = table["created_at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    typed = pa.table(columns).combine_chunks()
    return (
        tables.join_typed([typed], lookup)
        if "listing" in table.column_names
        else tables.assemble(typed, lookup)
    )


def row_texts(body: bytes) -> list[str]:
    """Split a page into the JSON text of its rows: members as they were sent, without white space."""
    return [to_json(row) for row in wire.page_rows(wire.parse(body, "page"), "page")]


def held_identities(folder: ArchiveFolder, key: HistoryKey) -> set[int]:
    """Hash the identities of the rows held of a history."""
    account_id, fill_type = key
    held = folder.read(TRADES, [*IDENTITY, "asked", "extra"], pc.field("version") == 1, [account_id])
    mine = held.filter(pc.field("asked") == fill_type)  # files that a merge wrote refuse filters of text
    trade_ids, sides, order_hashes = mine.select(IDENTITY).columns
    return set(hash_identities(trade_ids, sides, order_hashes, _no_trades(mine)))


def _no_trades(rows: pa.Table) -> pa.Array:
    """Return the text of rows that are no trade, and null for the others."""
    notes = pc.if_else(pc.is_null(rows["trade_id"]), rows["extra"], None).to_pylist()
    return pa.array([json.loads(note).get("row") if note else None for note in notes], pa.string())


def store_listing(folder: AnyFolder, listing: ListingSnapshot) -> None:
    """Store a listing unless it is stored already."""

    def attempt() -> None:
        table = folder.table(LISTINGS)
        if listing.digest not in folder.read(LISTINGS, ["listing"], table=table)["listing"].to_pylist():
            row = {name: getattr(listing, name) for name in LISTED}
            append_numbered(folder, LISTINGS, [{"listing": listing.digest, **row}], table)

    retry_on_conflict(attempt)


def listings(folder: AnyFolder) -> dict[str, ListingSnapshot]:
    """Read all listings, oldest first, by digest."""
    rows = read_in_order(folder, LISTINGS, "retrieved_at")
    return {row["listing"]: ListingSnapshot(*(row[name] for name in LISTED)) for row in rows}


def store_sync_records(folder: ArchiveFolder, records: Sequence[SyncRecord]) -> None:
    """Store what the relayer counted."""

    def attempt() -> None:
        rows = [record._asdict() for record in records]
        append_numbered(folder, SYNCS, rows, folder.table(SYNCS))

    if records:
        retry_on_conflict(attempt)


def last_sync_records(folder: ArchiveFolder) -> dict[HistoryKey, SyncRecord]:
    """Read the latest record of each history; `gone` and `checked_at` as last known.

    What saved pages count says more than a sync only if it is more.
    """
    found: dict[HistoryKey, SyncRecord] = {}
    for row in read_in_order(folder, SYNCS, "synced_at"):
        record = SyncRecord(*(row[name] for name in SyncRecord._fields))
        key = record.account_id, record.fill_type
        found[key] = _follow(found[key], record) if key in found else record
    return found


def _follow(last: SyncRecord, record: SyncRecord) -> SyncRecord:
    if last.requests and not record.requests:
        counted = last.total + (last.gone or 0)
        return last._replace(total=record.total, gone=0) if record.total > counted else last
    gone = last.gone if record.gone is None else record.gone
    return record._replace(gone=gone, checked_at=record.checked_at or last.checked_at)


def _with_times(name: str, times: pa.DataType) -> pa.Schema:
    """Return the schema of a table with another type for its times."""
    fields = (SCHEMAS | SETTLED_SCHEMAS)[name]
    return pa.schema([f.with_type(times) if pa.types.is_timestamp(f.type) else f for f in fields])


def append_numbered(folder: AnyFolder, name: str, rows: Sequence[dict[str, Any]], table: DeltaTable) -> None:
    """Commit rows with the number of their commit, which no other commit of the table has."""
    number = table.version() + 1
    fresh = pa.Table.from_pylist([{**row, "number": number} for row in rows], _with_times(name, _MS))
    folder.append(name, fresh, table, [name])


def read_in_order(folder: AnyFolder, name: str, time: str) -> list[dict[str, Any]]:
    """Read rows in the order of their commits; those of schema 1 come first, by a time."""
    table = folder.read(name).cast(_with_times(name, _MS)).cast(_with_times(name, pa.int64()))
    return sorted(table.to_pylist(), key=lambda row: (row["number"] or 0, row[time]))


def _refuse_other_accounts(ids: pa.ChunkedArray, account_id: int, fill_type: str) -> None:
    others = pc.unique(ids.filter(pc.not_equal(ids, account_id).fill_null(False))).to_pylist()
    if others:
        raise UnexpectedAnswer(
            f"accountId of {fill_type} trades",
            expected=f"account {account_id}, which was asked for",
            got=f"account {others[0]}",
            hint="Check base_url, or the name of the saved file: the rows belong to another account.",
        )


def _categories(lookup: MarketLookup) -> dict[str, Sequence[str]]:
    """Return the columns of codes, each with the words that the codes stand for."""
    words: dict[str, Sequence[str]] = dict.fromkeys(TOKENS, lookup.tokens)
    return words | {"market": lookup.markets, "side": SIDES, "fill_type": rows.FILL_TYPES, "role": rows.ROLES}


def _row_texts(pages: Sequence[RawPage]) -> pa.ChunkedArray:
    """Cut pages into rows, some at a time: quickly where they are plain."""
    texts = []
    for start in range(0, len(pages), CUT_TOGETHER):
        part = pages[start : start + CUT_TOGETHER]
        quick = wire.cut_rows([page.body for page in part])
        if quick is None or len(quick) != sum(len(page.batch.columns) for page in part):
            quick = pa.array([row for page in part for row in row_texts(page.body)], pa.string())
        texts.append(quick)
    return pa.chunked_array(texts, pa.string())
