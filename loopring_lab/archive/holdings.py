"""What an archive holds: which rows, what its source counted and listed, and the report on all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from loopring_lab import tables
from loopring_lab.archive.conversion import ListingSnapshot
from loopring_lab.archive.schema import SHOWN
from loopring_lab.arguments import to_milliseconds
from loopring_lab.bounded import printable
from loopring_lab.engine import frames
from loopring_lab.engine.database import StoredFile
from loopring_lab.errors import ArchiveError, LabError
from loopring_lab.tables.identity import hash_identities
from loopring_lab.tables.listings import MarketLookup
from loopring_lab.tables.rows import FILL_TYPES
from loopring_lab.tables.wire import HistoryKey

if TYPE_CHECKING:
    import duckdb

TIMES = ("first", "last", "synced_at", "checked_at")
# The types of columns that would have another type where they are empty or full, or that come in another one.
DTYPES: dict[str, Any] = {
    **dict.fromkeys(TIMES, "datetime64[ms, UTC]"),
    "fill_type": "object",
    "total": "Int64",
    "missing": "Int64",
    "gone": "Int64",
    "complete": "bool",
}

OF_ACCOUNTS = "$accounts IS NULL OR account_id IN (SELECT unnest($accounts))"
# `histories`: rows of each, every trade counted once, with those that changed and those that are irregular.
# `counted`: what the source counted last, and with the rows that it no longer lists. `listed`: all of these, and both
# histories of each account that a relayer was asked about, as reading may end before the second. `imports`: whether
# blocks are without a gap from the first to the last, and all of their rows are held. An archive of blocks has no
# counts, and any other has no blocks, so `complete` is of one or the other.
REPORT = f"""
WITH
histories AS (
    SELECT account_id, fill_type,
        count(*) FILTER (version = 1) AS rows,
        count(*) FILTER (version > 1) AS second_versions,
        count(*) FILTER (extra IS NOT NULL AND current) AS odd,
        min(created_at) AS first,
        max(created_at) AS last
    FROM held.main.rows
    WHERE {OF_ACCOUNTS}
    GROUP BY ALL
),
counted AS (
    SELECT account_id, fill_type,
        total,
        coalesce(gone, 0) AS gone,
        synced_at,
        checked_at
    FROM held.main.syncs
    WHERE {OF_ACCOUNTS}
    QUALIFY rowid = max(rowid) OVER (PARTITION BY account_id, fill_type)
),
listed AS (
    SELECT account_id, fill_type FROM histories
    UNION
    SELECT account_id, fill_type FROM counted
    UNION
    SELECT account_id, unnest({list(FILL_TYPES)})
    FROM held.main.syncs
    WHERE requests > 0 AND ({OF_ACCOUNTS})
),
imports AS (
    SELECT
        max(imported_at) AS imported_at,
        max(block_id) - min(block_id) + 1 = count(*)
            AND sum(rows) = (SELECT count(*) FROM held.main.rows) AS are_whole
    FROM held.main.blocks
)
SELECT account_id, fill_type,
    coalesce(rows, 0) AS rows,
    total,
    CASE
        WHEN total IS NOT NULL THEN greatest(0, total + gone - coalesce(rows, 0))
    END AS missing,
    gone,
    coalesce(missing = 0, are_whole, FALSE) AS complete,
    first,
    last,
    coalesce(synced_at, imported_at) AS synced_at,
    checked_at,
    coalesce(second_versions, 0) AS second_versions,
    coalesce(odd, 0) AS odd
FROM listed
LEFT JOIN histories USING (account_id, fill_type)
LEFT JOIN counted USING (account_id, fill_type)
CROSS JOIN imports
ORDER BY account_id, fill_type
"""
# The values by which paging tells whether a row is held: see `tables.identity`. The note of a row that is not a trade
# has its text.
IDENTITIES = """
SELECT trade_id, side, order_hash,
    CASE
        WHEN trade_id IS NULL AND json_valid(extra) THEN extra ->> 'row'
    END
FROM held.main.rows
WHERE version = 1 AND account_id = ? AND fill_type = ?
"""
# The number of rows held that the source no longer listed when it counted last.
GONE = "SELECT coalesce(arg_max(gone, rowid), 0) FROM held.main.syncs WHERE account_id = ? AND fill_type = ?"
# A later record that leaves a value out keeps the earlier one. The count of saved pages (without requests) may be old:
# it is stored only if it is more than was known. Times are milliseconds.
ADD_COUNT = """
INSERT INTO held.main.syncs
SELECT $account_id,
    $fill_type,
    make_timestamptz($synced_at * 1000),
    $total,
    coalesce($gone, arg_max(gone, rowid)),
    $requests,
    coalesce(make_timestamptz($checked_at * 1000), arg_max(checked_at, rowid))
FROM held.main.syncs
WHERE account_id = $account_id AND fill_type = $fill_type
HAVING $requests > 0 OR count(*) = 0 OR $total > arg_max(total + coalesce(gone, 0), rowid)
"""
LISTING = "SELECT tokens, markets, epoch_ms(retrieved_at) FROM held.main.listings ORDER BY rowid DESC LIMIT 1"
# Earlier listings by their tokens alone, as markets change more often; none where these tokens were compared before.
EARLIER_TOKENS = """
SELECT tokens, strftime(min(retrieved_at), '%Y-%m-%d')
FROM held.main.listings
WHERE NOT EXISTS (FROM held.main.listings WHERE tokens = $1)
GROUP BY tokens
"""
# A listing that differs only in when it was retrieved is not added again.
ADD_LISTING = """
INSERT INTO held.main.listings
SELECT
    $1,
    $2,
    make_timestamptz($3 * 1000)
WHERE NOT EXISTS (FROM held.main.listings WHERE tokens = $1 AND markets = $2)
"""
# Accounts that were asked for, and of which neither a trade nor a count is held.
UNKNOWN = "SELECT unnest(?) EXCEPT SELECT account_id FROM held.main.rows EXCEPT SELECT account_id FROM held.main.syncs"


class RowFilter(NamedTuple):
    """Which current rows are wanted: from a time, before another, of some accounts; of unknown time always."""

    since: pd.Timestamp | None = None
    until: pd.Timestamp | None = None
    accounts: list[int] | None = None

    def query(self, further: str = "") -> str:
        """Return SQL that selects them; all that is written into it are numbers, checked before."""
        parts = ["current"]
        for moment, sign in ((self.since, ">="), (self.until, "<")):
            if moment is not None:
                time = f"make_timestamptz({to_milliseconds(moment)} * 1000)"
                parts.append(f"(created_at IS NULL OR created_at {sign} {time})")
        if self.accounts is not None:
            listed = ", ".join(map(str, self.accounts)) or "NULL"
            parts.append(f"account_id IN ({listed})")
        return (
            f"SELECT {SHOWN}{further} FROM held.main.rows WHERE {' AND '.join(parts)}"
        )


class SyncRecord(NamedTuple):
    """How many rows of a history the relayer counted; `gone` is the number held that it no longer lists.

    `requests` is 0 where saved pages were imported. `checked_at` is given where every page was read.
    """

    account_id: int
    fill_type: str
    synced_at: int
    total: int
    gone: int | None = 0
    requests: int = 0
    checked_at: int | None = None


def report(file: StoredFile, accounts: Sequence[int] | None = None) -> pd.DataFrame:
    """Report per account and fill type what is held and what is missing."""
    with file.reading() as connection:
        asked = {"accounts": accounts}
        found = connection.sql(REPORT, params=asked).to_arrow_table()
    return frames.to_pandas(found).astype(DTYPES)


def completeness(report: pd.DataFrame) -> str:
    """Say in words whether anything is missing, as far as the source of the trades tells."""
    if report.empty:
        return "as no history has been read yet. Run sync to download some."
    # Nobody counts the trades of blocks, and their lines have the time of the last import all the same.
    is_of_blocks = (report["total"].isna() & report["synced_at"].notna()).any()
    is_whole = report["complete"].all()
    if is_of_blocks and is_whole:
        return "all of the blocks from the first to the last one imported"
    if is_of_blocks:
        return (
            "and blocks are missing between the first and the last one imported. Import them: "
            "archive.import_blocks(store)."
        )
    if is_whole:
        return "complete per the source's count"
    lacking = report.loc[~report["complete"], "missing"]
    said = f"{int(lacking.fillna(0).sum()):,} missing"
    unfinished = int(lacking.isna().sum())
    if unfinished:
        said += f"; {unfinished} histories have not been read completely yet"
    return f"{said}. Run sync to download them."


def refuse_unknown(file: StoredFile, accounts: Sequence[int] | None) -> None:
    """Refuse accounts of which an archive holds no trades, and no record that there were none."""
    with file.reading() as connection:
        unknown = connection.execute(UNKNOWN, [accounts or []]).fetchall()
    if unknown:
        raise LabError(
            f"{file.shown}: the archive does not hold account {unknown[0][0]}; archive.report() lists those that it "
            f"holds. Give one of them, or fill it first: {file.kind.fill}."
        )


def held_identities(file: StoredFile, key: HistoryKey) -> tuple[set[int], int]:
    """Return the identities of the rows held of a history, hashed, and how many of these the source no longer lists."""
    with file.reading() as connection:
        rows = connection.sql(IDENTITIES, params=list(key)).to_arrow_table()
        [(gone,)] = connection.execute(GONE, list(key)).fetchall()
    columns = [column.combine_chunks() for column in rows.columns]
    return set(hash_identities(*columns)), gone


def store_count(connection: duckdb.DuckDBPyConnection, record: SyncRecord) -> None:
    """Store what was counted of a history, with what is known from before."""
    connection.execute(ADD_COUNT, record._asdict())


def store_listing(
    connection: duckdb.DuckDBPyConnection,
    file: StoredFile,
    listing: ListingSnapshot,
    lookup: MarketLookup,
) -> None:
    """Store a listing that was read, unless it is stored already; trades of a relayer and of blocks are kept apart."""
    words = {True: "read from blocks", False: "as a relayer sent them"}
    last = last_listing(connection)
    if last and last.is_of_blocks != listing.is_of_blocks:
        raise ArchiveError(
            f"{file.shown}: holds trades {words[last.is_of_blocks]}, and these are {words[listing.is_of_blocks]}. "
            "They are kept apart, and nothing was added: use another file."
        )
    _refuse_other_decimals(connection, file, listing, lookup)
    facts = [listing.tokens, listing.markets, listing.retrieved_at]
    connection.execute(ADD_LISTING, facts)


def _refuse_other_decimals(
    connection: duckdb.DuckDBPyConnection,
    file: StoredFile,
    listing: ListingSnapshot,
    lookup: MarketLookup,
) -> None:
    """Refuse a listing that scales a token differently from any before; it may leave out or add tokens."""
    now = dict(zip(lookup.token_ids, lookup.decimals, strict=True))
    for text, day in connection.execute(EARLIER_TOKENS, [listing.tokens]).fetchall():
        earlier = tables.tokens(text)
        scales = zip(
            earlier.index, earlier["token_id"], earlier["decimals"], strict=True
        )
        for symbol, token_id, decimals in scales:
            if now.get(token_id, decimals) != decimals:
                raise ArchiveError(
                    f"{file.shown}: token {printable(symbol, 40)} (tokenId {token_id}) has {decimals} decimals as "
                    f"listed on {day}, and {now[token_id]} in the listing of {listing.whence}. Its amounts would have "
                    "two scales, and nothing was added. Correct the listing that is wrong; if it is the archive's, use "
                    "another file, and fill it anew."
                )


def last_listing(connection: duckdb.DuckDBPyConnection) -> ListingSnapshot | None:
    """Return the listing that was stored last."""
    found = connection.execute(LISTING).fetchall()
    return ListingSnapshot(*found[0]) if found else None
