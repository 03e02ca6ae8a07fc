"""Adding rows by identity: none lost, none doubled, changes kept as versions.

The content that was read last is current; no clock decides. What a sync has seen stays current, whatever is
imported later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from loopring_lab import tables
from loopring_lab.archive.schema import TYPED

if TYPE_CHECKING:
    import duckdb

# What makes two rows versions of one trade; of rows without any identity, it is their text.
IDENTITY = ("account_id", "fill_type", "trade_id", "side", "order_hash", "no_trade")
NO_TRADE = "CASE WHEN trade_id IS NULL AND side IS NULL AND order_hash IS NULL THEN verbatim END"
KEY = ", ".join(IDENTITY)
SAME = " AND ".join(f"seen.{name} IS NOT DISTINCT FROM known.{name}" for name in IDENTITY)
SENT = ", ".join((*TYPED, "verbatim", "retrieved_at", "listing"))

FIND = f"""
-- Each row that arrived, with its place.
CREATE TEMP TABLE arrived AS SELECT *, {NO_TRADE} AS no_trade, row_number() OVER () AS place FROM sent;

-- Rows held that may be versions of the same trades.
CREATE TEMP TABLE known AS
SELECT rowid AS held_row, account_id, fill_type, trade_id, side, order_hash, {NO_TRADE} AS no_trade,
    verbatim, version, current, imported
FROM held.main.rows SEMI JOIN arrived USING (account_id, trade_id)
UNION ALL
SELECT rowid, account_id, fill_type, trade_id, side, order_hash, {NO_TRADE}, verbatim, version, current, imported
FROM held.main.rows
WHERE trade_id IS NULL AND account_id IN (SELECT account_id FROM arrived WHERE trade_id IS NULL);

-- Ids that several rows have, held or arrived, or that are unknown.
CREATE TEMP TABLE recurring AS
SELECT account_id, trade_id
FROM (SELECT account_id, trade_id FROM arrived UNION ALL SELECT account_id, trade_id FROM known)
GROUP BY account_id, trade_id
HAVING count(*) > 1 OR trade_id IS NULL;
"""
ADD_NEW = f"""
-- All other rows are the first and only version of their trade.
INSERT INTO held.main.rows BY NAME
SELECT {SENT}, 1 AS version, TRUE AS current, ? AS imported
FROM arrived
WHERE NOT EXISTS (
    FROM recurring
    WHERE recurring.account_id = arrived.account_id AND recurring.trade_id IS NOT DISTINCT FROM arrived.trade_id
)
ORDER BY account_id, place  -- rows of one account are together, so that reading it skips most of the others
"""
SETTLE = f"""
CREATE TEMP TABLE contents AS
WITH
-- Every content that arrived of a trade: where it stood first, and when it was read last.
seen AS (
    SELECT {KEY}, verbatim, min(place) AS place, max(run) AS run
    FROM arrived
    WHERE EXISTS (
        FROM recurring
        WHERE recurring.account_id = arrived.account_id AND recurring.trade_id IS NOT DISTINCT FROM arrived.trade_id
    )
    GROUP BY {KEY}, verbatim
),
-- The same beside what is held of it.
beside AS (
    SELECT held_row, place, run, current, imported, version,
        {", ".join(f"coalesce(seen.{name}, known.{name}) AS {name}" for name in IDENTITY)}
    FROM seen FULL JOIN known ON {SAME} AND seen.verbatim IS NOT DISTINCT FROM known.verbatim
),
-- The contents of each trade that arrived, those held first.
numbered AS (
    SELECT *,
        row_number() OVER (PARTITION BY {KEY} ORDER BY version NULLS LAST, place) AS new_version,
        coalesce(run = max(run) OVER (PARTITION BY {KEY}), FALSE) AS is_last,
        bool_or(held_row IS NOT NULL AND NOT imported) OVER (PARTITION BY {KEY}) AS was_synced
    FROM beside
    QUALIFY count(place) OVER (PARTITION BY {KEY}) > 0
)
SELECT {KEY}, held_row, place, new_version, current, imported,
    CASE WHEN $imported AND was_synced THEN coalesce(current, FALSE) ELSE is_last END AS new_current,
    CASE WHEN held_row IS NULL THEN $imported ELSE imported AND ($imported OR NOT is_last) END AS new_imported
FROM numbered
"""
ADD_VERSIONS = f"""
INSERT INTO held.main.rows BY NAME
SELECT {SENT}, new_version AS version, new_current AS current, new_imported AS imported
FROM arrived JOIN (SELECT place, new_version, new_current, new_imported FROM contents WHERE held_row IS NULL)
USING (place)
ORDER BY place
"""
MARK = """
UPDATE held.main.rows SET current = new_current, imported = new_imported
FROM contents
WHERE rows.rowid = held_row AND (new_current <> contents.current OR new_imported <> contents.imported)
"""
# A fill is listed under one fill type; a relayer that does not tell them apart lists each under both.
SHARED = """
WITH fills AS (
    SELECT DISTINCT account_id, fill_type, trade_id, side, order_hash
    FROM (
        SELECT account_id, fill_type, trade_id, side, order_hash
        FROM arrived SEMI JOIN recurring USING (account_id, trade_id)
        UNION ALL
        SELECT account_id, fill_type, trade_id, side, order_hash FROM known
    )
    WHERE trade_id IS NOT NULL
)
SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT account_id, trade_id, side, order_hash FROM fills))
FROM fills
"""


def add(connection: duckdb.DuckDBPyConnection, rows: pa.Table, *, imported: bool) -> None:
    """Add rows to an archive that is open for a transaction."""
    connection.register("sent", rows)
    connection.execute(FIND)
    connection.execute(ADD_NEW, [imported])
    if connection.execute("SELECT count(*) FROM recurring").fetchall() != [(0,)]:
        [(shared,)] = connection.execute(SHARED).fetchall()
        tables.refuse_shared_fills(
            shared, "Its trades are not added: read them with client.trades(..., fill_type=...)."
        )
        connection.execute(SETTLE, {"imported": imported})
        connection.execute(ADD_VERSIONS)
        connection.execute(MARK)
        connection.execute("DROP TABLE contents")
    connection.execute("DROP TABLE arrived; DROP TABLE known; DROP TABLE recurring")
    connection.unregister("sent")
