"""What an archive holds: rows, counts of its source, listings, and the report on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from loopring_lab.archive.rows import HistoryKey, ListingSnapshot
from loopring_lab.errors import ArchiveError, LabError
from loopring_lab.storage import StoredFile
from loopring_lab.tables.identity import hash_identities

if TYPE_CHECKING:
    import duckdb

MOMENTS = ("first", "last", "synced_at", "checked_at")
DTYPES: dict[str, Any] = {
    "account_id": "int64",
    "fill_type": "object",
    "rows": "int64",
    "total": "Int64",
    "missing": "Int64",
    "complete": "bool",
    **dict.fromkeys(MOMENTS, "datetime64[ms, UTC]"),
    "second_versions": "int64",
    "odd": "int64",
}
MOST_NAMED = 10
NO_MARKETS = "[]"  # listed beside trades that were read from blocks

# `held`: rows of each history, each trade counted once, with those that changed and those that are irregular.
# `counted`: what the source counted last. `settled`: whether blocks are without a gap from the first to the last,
# and all of their rows are held.
REPORT = """
WITH
held AS (
    SELECT account_id, fill_type,
        count(*) FILTER (version = 1) AS rows,
        count(*) FILTER (version > 1) AS second_versions,
        count(*) FILTER (extra IS NOT NULL AND current) AS odd,
        epoch_ms(min(created_at)) AS first,
        epoch_ms(max(created_at)) AS last
    FROM held.main.rows
    WHERE $accounts IS NULL OR account_id IN (SELECT unnest($accounts))
    GROUP BY ALL
),
counted AS (
    SELECT account_id, fill_type,
        total,
        total + coalesce(gone, 0) AS ever,
        epoch_ms(synced_at) AS synced_at,
        epoch_ms(checked_at) AS checked_at
    FROM held.main.syncs
    WHERE $accounts IS NULL OR account_id IN (SELECT unnest($accounts))
    QUALIFY number = max(number) OVER (PARTITION BY account_id, fill_type)
),
settled AS (
    SELECT
        epoch_ms(max(imported_at)) AS imported_at,
        max(block_id) - min(block_id) + 1 = count(*)
            AND sum(rows) = (SELECT count(*) FROM held.main.rows) AS whole
    FROM held.main.blocks
)
SELECT account_id, fill_type,
    coalesce(rows, 0) AS rows,
    total,
    CASE WHEN total IS NOT NULL THEN greatest(0, ever - coalesce(rows, 0)) END AS missing,
    coalesce(missing = 0, whole, FALSE) AS complete,
    first,
    last,
    coalesce(synced_at, imported_at) AS synced_at,
    checked_at,
    coalesce(second_versions, 0) AS second_versions,
    coalesce(odd, 0) AS odd
FROM held
FULL JOIN counted USING (account_id, fill_type)
CROSS JOIN settled
ORDER BY account_id, fill_type
"""
# What paging needs to tell whether a row is held: see `tables.identity`. The note of a row that is not a trade
# has its text.
IDENTITIES = """
SELECT trade_id, side, order_hash,
    CASE WHEN trade_id IS NULL AND json_valid(extra) THEN extra ->> 'row' END
FROM held.main.rows
WHERE version = 1 AND account_id = ? AND fill_type = ?
"""
COUNT = """
SELECT account_id, fill_type, epoch_ms(synced_at), total, gone, requests, epoch_ms(since), epoch_ms(checked_at)
FROM held.main.syncs
WHERE account_id = ? AND fill_type = ?
ORDER BY number DESC
LIMIT 1
"""
ADD_COUNT = """
INSERT INTO held.main.syncs
SELECT coalesce(max(number), 0) + 1,
    $account_id,
    $fill_type,
    make_timestamptz($synced_at * 1000),
    $total,
    $gone,
    $requests,
    make_timestamptz($since * 1000),
    make_timestamptz($checked_at * 1000)
FROM held.main.syncs
"""
LISTING = "SELECT tokens, markets, epoch_ms(retrieved_at) FROM held.main.listings ORDER BY rowid DESC LIMIT 1"
ADD_LISTING = """
INSERT INTO held.main.listings
SELECT $listing, $tokens, $markets, make_timestamptz($moment * 1000)
WHERE NOT EXISTS (FROM held.main.listings WHERE listing = $listing)
"""


class Rows(NamedTuple):
    """Which rows are asked for: from a time, before another, of some accounts; of unknown time always."""

    since: pd.Timestamp | None = None
    until: pd.Timestamp | None = None
    accounts: list[int] | None = None

    def condition(self) -> str:
        """Return SQL that selects current rows; numbers were checked before."""
        parts = ["current"]
        for moment, sign in ((self.since, ">="), (self.until, "<")):
            if moment is not None:
                micros = int(moment.as_unit("ns").value) // 1000
                parts.append(
                    f"(created_at IS NULL OR created_at {sign} make_timestamptz({micros}))"
                )
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
        frame: pd.DataFrame = connection.execute(REPORT, {"accounts": accounts}).df()
    for name in MOMENTS:
        frame[name] = pd.to_datetime(frame[name], unit="ms", utc=True)
    return frame.astype(DTYPES)


def refuse_unknown(file: StoredFile, accounts: Sequence[int] | None) -> None:
    """Refuse accounts of which an archive holds no trades, and no record that there were none."""
    if not accounts:
        return
    with file.reading() as connection:
        known = "SELECT account_id FROM held.main.rows UNION SELECT account_id FROM held.main.syncs ORDER BY ALL"
        held = [account for (account,) in connection.execute(known).fetchall()]
    unknown = [account for account in accounts if account not in held]
    if unknown:
        some = list(map(str, held[:MOST_NAMED]))
        if len(held) > MOST_NAMED:
            some.append("...")
        raise LabError(
            f"{file.shown}: the archive does not hold account {unknown[0]}. It holds {', '.join(some)}: give one "
            f"of these, or fill it first: {file.kind.fill}."
        )


def held_identities(file: StoredFile, key: HistoryKey) -> tuple[set[int], int]:
    """Hash the identities of the rows held of a history; return how many of them the source no longer lists."""
    with file.reading() as connection:
        rows = connection.sql(IDENTITIES, params=list(key)).to_arrow_table()
        last = last_count(connection, key)
    gone = last.gone if last else None
    return set(hash_identities(*rows.columns)), gone or 0


def last_count(
    connection: duckdb.DuckDBPyConnection, key: HistoryKey
) -> SyncRecord | None:
    """Return the last record of a history."""
    found = connection.execute(COUNT, list(key)).fetchall()
    return SyncRecord(*found[0]) if found else None


def store_count(connection: duckdb.DuckDBPyConnection, record: SyncRecord) -> None:
    """Store what was counted of a history, with what is known from before."""
    last = last_count(connection, record[:2])
    if last and last.requests and not record.requests:
        # What saved pages count says more than a sync only if it is more.
        if record.total <= last.total + (last.gone or 0):
            return
        record = last._replace(total=record.total, gone=0)
    elif last:
        if record.gone is None:
            record = record._replace(gone=last.gone)
        record = record._replace(checked_at=record.checked_at or last.checked_at)
    connection.execute(ADD_COUNT, record._asdict())


def refuse_mixed(
    connection: duckdb.DuckDBPyConnection, file: StoredFile, *, from_blocks: bool
) -> None:
    """Refuse to add trades as a relayer sends them to those read from blocks, and the other way round."""
    words = {True: "read from blocks", False: "as a relayer sent them"}
    held = connection.execute(
        "SELECT DISTINCT markets = ? FROM held.main.listings", [NO_MARKETS]
    ).fetchall()
    if (not from_blocks,) in held:
        raise ArchiveError(
            f"{file.shown}: holds trades {words[not from_blocks]}, and these are {words[from_blocks]}. They are "
            "kept apart, and nothing was added: use another file."
        )


def store_listing(
    connection: duckdb.DuckDBPyConnection, file: StoredFile, listing: ListingSnapshot
) -> None:
    """Store a listing unless it is stored already."""
    refuse_mixed(connection, file, from_blocks=listing.markets == NO_MARKETS)
    facts = {
        "listing": listing.digest,
        "tokens": listing.tokens,
        "markets": listing.markets,
    }
    connection.execute(ADD_LISTING, facts | {"moment": listing.retrieved_at})


def last_listing(connection: duckdb.DuckDBPyConnection) -> ListingSnapshot | None:
    """Return the listing that was stored last."""
    found = connection.execute(LISTING).fetchall()
    return ListingSnapshot(*found[0]) if found else None
