"""What an archive holds: rows, records of syncs, listings, and the report on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa

from loopring_lab.archive.rows import HistoryKey, ListingSnapshot
from loopring_lab.bounded import parse_json
from loopring_lab.errors import ArchiveError, LabError
from loopring_lab.storage import StoredFile
from loopring_lab.tables.identity import hash_identities

if TYPE_CHECKING:
    import duckdb

MOMENT = "datetime64[ms, UTC]"
DTYPES: dict[str, Any] = {
    "account_id": "int64",
    "fill_type": "object",
    "rows": "int64",
    "total": "Int64",
    "missing": "Int64",
    "complete": "bool",
    **dict.fromkeys(("first", "last", "synced_at", "checked_at"), MOMENT),
    "second_versions": "int64",
    "odd": "int64",
}
MOST_NAMED = 10
NO_MARKETS = "[]"  # listed beside trades that were read from blocks

# Rows of a history, each trade counted once, with those that changed and those that are irregular.
COUNTED = """
SELECT account_id, fill_type,
    count(*) FILTER (version = 1) AS rows,
    count(*) FILTER (version > 1) AS second_versions,
    count(*) FILTER (extra IS NOT NULL AND current) AS odd,
    epoch_ms(min(created_at)) AS first,
    epoch_ms(max(created_at)) AS last
FROM held.main.rows
WHERE $accounts IS NULL OR account_id IN (SELECT unnest($accounts))
GROUP BY account_id, fill_type
"""
# Whether blocks are without a gap from the first to the last, and all of their rows are held.
WHOLE = """
SELECT max(block_id) - min(block_id) + 1 = count(*) AND sum(rows) = (SELECT count(*) FROM held.main.rows),
    epoch_ms(max(imported_at))
FROM held.main.blocks
"""


class Rows(NamedTuple):
    """Which rows are asked for: from a time, before another, of some accounts; of unknown time always."""

    since: pd.Timestamp | None = None
    until: pd.Timestamp | None = None
    accounts: list[int] | None = None

    def condition(self) -> str:
        """Return SQL that selects current rows; numbers were checked before."""
        parts = ["current"]
        if self.since is not None:
            parts.append(f"(created_at IS NULL OR created_at >= make_timestamptz({_micros(self.since)}))")
        if self.until is not None:
            parts.append(f"(created_at IS NULL OR created_at < make_timestamptz({_micros(self.until)}))")
        if self.accounts is not None:
            listed = ", ".join(map(str, self.accounts)) or "NULL"
            parts.append(f"account_id IN ({listed})")
        return " AND ".join(parts)


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


def report(file: StoredFile, accounts: Sequence[int] | None = None) -> pd.DataFrame:
    """Report per account and fill type what is held and what is missing."""
    with file.reading() as connection:
        found = connection.execute(COUNTED, {"accounts": accounts})
        names = [column[0] for column in found.description]
        lines = {row[:2]: dict(zip(names, row, strict=True)) for row in found.fetchall()}
        records = last_sync_records(connection)
        [(is_whole, imported_at)] = connection.execute(WHOLE).fetchall()
    for line in lines.values():
        line["complete"] = bool(is_whole)
        line["synced_at"] = imported_at
    for key, record in records.items():
        if accounts is None or key[0] in accounts:
            nothing = {"rows": 0, "second_versions": 0, "odd": 0}
            line = lines.setdefault(key, {"account_id": key[0], "fill_type": key[1], **nothing})
            missing = max(0, record.total + (record.gone or 0) - line["rows"])
            line |= {"total": record.total, "missing": missing, "complete": missing == 0}
            line |= {"synced_at": record.synced_at, "checked_at": record.checked_at}
    frame = pd.DataFrame([lines[key] for key in sorted(lines)], columns=[*DTYPES])
    for name, dtype in DTYPES.items():
        column = pd.to_datetime(frame[name], unit="ms", utc=True) if dtype == MOMENT else frame[name]
        frame[name] = column.astype(dtype)
    return frame


def refuse_unknown(file: StoredFile, accounts: Sequence[int] | None) -> None:
    """Refuse accounts of which an archive holds no trades, and no record that there were none."""
    if not accounts:
        return
    with file.reading() as connection:
        known = "SELECT account_id FROM held.main.rows UNION SELECT account_id FROM held.main.syncs"
        held = {account for (account,) in connection.execute(known).fetchall()}
    unknown = [account for account in accounts if account not in held]
    if unknown:
        there = sorted(held)
        some = ", ".join(map(str, there[:MOST_NAMED])) + (", ..." if len(there) > MOST_NAMED else "")
        raise LabError(
            f"{file.shown}: the archive does not hold account {unknown[0]}. It holds {some}: give one of "
            f"these, or fill it first: {file.kind.fill}."
        )


def held_identities(file: StoredFile, key: HistoryKey) -> set[int]:
    """Hash the identities of the rows held of a history."""
    with file.reading() as connection:
        rows = connection.sql(
            "SELECT trade_id, side, order_hash, CASE WHEN trade_id IS NULL THEN extra END AS note "
            "FROM held.main.rows WHERE version = 1 AND account_id = ? AND fill_type = ?",
            params=list(key),
        ).to_arrow_table()
    trade_ids, sides, order_hashes, notes = rows.columns
    texts = pa.array([_row_in(note) for note in notes.to_pylist()], pa.string())
    return set(hash_identities(trade_ids, sides, order_hashes, texts))


def _row_in(note: str | None) -> str | None:
    """Return the text of a row that is no trade, which its note keeps."""
    found = parse_json(note, "extra") if note else None
    text = found.get("row") if isinstance(found, dict) else None
    return text if isinstance(text, str) else None


def refuse_blocks(connection: duckdb.DuckDBPyConnection, file: StoredFile) -> None:
    """Refuse to add trades as a relayer sends them to those read from blocks."""
    if connection.execute("SELECT EXISTS (FROM held.main.blocks)").fetchall() == [(True,)]:
        raise ArchiveError(
            f"{file.shown}: holds trades read from blocks, which archive.import_blocks(store) adds. Trades as "
            "a relayer sends them are kept apart, and nothing was added: use another file."
        )


def refuse_relayers(connection: duckdb.DuckDBPyConnection, file: StoredFile) -> None:
    """Refuse to add trades read from blocks to those that a relayer sent."""
    listed = "SELECT EXISTS (FROM held.main.listings WHERE markets <> ?)"
    if connection.execute(listed, [NO_MARKETS]).fetchall() == [(True,)]:
        raise ArchiveError(
            f"{file.shown}: holds trades as a relayer sent them. Trades read from blocks are kept apart, and "
            "nothing was added: use another file."
        )


# Listings


def store_listing(connection: duckdb.DuckDBPyConnection, listing: ListingSnapshot) -> None:
    """Store a listing unless it is stored already."""
    connection.execute(
        "INSERT INTO held.main.listings SELECT $listing, $tokens, $markets, make_timestamptz($moment) "
        "WHERE NOT EXISTS (FROM held.main.listings WHERE listing = $listing)",
        {
            "listing": listing.digest,
            "tokens": listing.tokens,
            "markets": listing.markets,
            "moment": listing.retrieved_at * 1000,
        },
    )


def listings(connection: duckdb.DuckDBPyConnection) -> dict[str, ListingSnapshot]:
    """Read all listings, in the order in which they were stored, by digest."""
    rows = connection.execute(
        "SELECT listing, tokens, markets, epoch_ms(retrieved_at) FROM held.main.listings ORDER BY rowid"
    ).fetchall()
    return {digest: ListingSnapshot(*facts) for digest, *facts in rows}


# Records of syncs


def store_sync_records(connection: duckdb.DuckDBPyConnection, records: Sequence[SyncRecord]) -> None:
    """Store what the relayer counted, with the number of this transaction."""
    [(number,)] = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM held.main.syncs").fetchall()
    for record in records:
        connection.execute(
            "INSERT INTO held.main.syncs VALUES (?, ?, ?, make_timestamptz(?), ?, ?, ?, make_timestamptz(?), "
            "make_timestamptz(?))",
            [
                number,
                record.account_id,
                record.fill_type,
                record.synced_at * 1000,
                record.total,
                record.gone,
                record.requests,
                None if record.since is None else record.since * 1000,
                None if record.checked_at is None else record.checked_at * 1000,
            ],
        )


def last_sync_records(connection: duckdb.DuckDBPyConnection) -> dict[HistoryKey, SyncRecord]:
    """Read the latest record of each history; `gone` and `checked_at` as last known.

    What saved pages count says more than a sync only if it is more.
    """
    found: dict[HistoryKey, SyncRecord] = {}
    rows = connection.execute(
        "SELECT account_id, fill_type, epoch_ms(synced_at), total, gone, requests, epoch_ms(since), "
        "epoch_ms(checked_at) FROM held.main.syncs ORDER BY number, rowid"
    ).fetchall()
    for row in rows:
        record = SyncRecord(*row)
        key = record.account_id, record.fill_type
        found[key] = _follow(found[key], record) if key in found else record
    return found


def _follow(last: SyncRecord, record: SyncRecord) -> SyncRecord:
    if last.requests and not record.requests:
        counted = last.total + (last.gone or 0)
        return last._replace(total=record.total, gone=0) if record.total > counted else last
    gone = last.gone if record.gone is None else record.gone
    return record._replace(gone=gone, checked_at=record.checked_at or last.checked_at)


def _micros(moment: pd.Timestamp) -> int:
    return int(moment.as_unit("ns").value) // 1000
