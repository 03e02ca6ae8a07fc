"""Adding rows by identity: none lost, none doubled, changes kept as versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from loopring_lab import tables
from loopring_lab.archive.schema import TYPED

if TYPE_CHECKING:
    import duckdb

# What makes two rows versions of one trade; of rows without any identity, it is their text.
IDENTITY = ("account_id", "fill_type", "trade_id", "side", "order_hash", "no_trade")
NO_TRADE = "CASE WHEN trade_id IS NULL AND side IS NULL AND order_hash IS NULL THEN verbatim END AS no_trade"
KEY = ", ".join(IDENTITY)
SAME = " AND ".join(
    f"seen.{name} IS NOT DISTINCT FROM known.{name}" for name in (*IDENTITY, "verbatim")
)
EITHER = ", ".join(
    f"coalesce(seen.{name}, known.{name}) AS {name}" for name in IDENTITY
)
SENT = ", ".join((*TYPED, "verbatim", "retrieved_at", "listing"))
HELD = "rowid AS held_row, account_id, fill_type, trade_id, side, order_hash, verbatim, version, current, imported"

# Rows held that may be versions of the trades that arrive as `sent`. DuckDB skips parts of a table by `=`, but not
# by IS NOT DISTINCT FROM, so rows without an id are looked for apart.
FIND = f"""
CREATE TEMP TABLE known AS
SELECT {HELD}, {NO_TRADE}
FROM held.main.rows
SEMI JOIN sent USING (account_id, trade_id)
UNION ALL
SELECT {HELD}, {NO_TRADE}
FROM held.main.rows
WHERE trade_id IS NULL
    AND account_id IN (SELECT account_id FROM sent WHERE trade_id IS NULL);
"""
IS_NEW = """
SELECT count(DISTINCT (account_id, trade_id)) FILTER (trade_id IS NOT NULL) = count(*)
    AND NOT EXISTS (FROM known)
FROM sent
"""
# Where no id occurs twice, each row is the first and only version of its trade.
STORE_NEW = f"""
INSERT INTO held.main.rows BY NAME
SELECT {SENT}, 1 AS version, TRUE AS current, $imported AS imported
FROM sent
"""
# Which contents of a trade are current after a transaction that brings some of it. A run is what was read at one
# moment; a trade that is listed twice in it has two current contents.
#
#   transaction | a sync has seen the trade before | current afterwards
#   ------------+----------------------------------+-----------------------------
#   sync        | yes or no                        | the contents of the last run
#   import      | no                               | the contents of the last run
#   import      | yes                              | those that were current before
#
# No clock decides: transactions follow one another. Trades of which nothing arrived stay as they are. A content
# counts as imported until a sync has read it last.
#
# `arrived`: what was sent, with its place. `seen`: every content that arrived of a trade, where it stood first, and
# in which run it was read last. `contents`: the same beside what is held. `numbered`: the contents of each trade of
# which some arrived, those held first.
ARRIVED = f"""
CREATE TEMP TABLE arrived AS
SELECT *, {NO_TRADE}, row_number() OVER () AS place
FROM sent
"""
SETTLE = f"""
CREATE TEMP TABLE settled AS
WITH
seen AS (
    SELECT {KEY}, verbatim, min(place) AS place, max(run) AS run
    FROM arrived
    GROUP BY ALL
),
contents AS (
    SELECT {EITHER}, held_row, place, run, current, imported, version
    FROM seen
    FULL JOIN known ON {SAME}
),
numbered AS (
    SELECT *,
        row_number() OVER (trade ORDER BY version NULLS LAST, place) AS new_version,
        coalesce(run = max(run) OVER trade, FALSE) AS is_last,
        bool_or(held_row IS NOT NULL AND NOT imported) OVER trade AS was_synced
    FROM contents
    WINDOW trade AS (PARTITION BY {KEY})
    QUALIFY count(place) OVER trade > 0
)
SELECT held_row, place, new_version,
    CASE
        WHEN $imported AND was_synced THEN coalesce(current, FALSE)
        ELSE is_last
    END AS new_current,
    CASE
        WHEN held_row IS NULL THEN $imported
        ELSE imported AND ($imported OR NOT is_last)
    END AS new_imported
FROM numbered
"""
STORE = f"""
INSERT INTO held.main.rows BY NAME
SELECT {SENT}, new_version AS version, new_current AS current, new_imported AS imported
FROM arrived
JOIN settled USING (place)
WHERE held_row IS NULL
ORDER BY place;

UPDATE held.main.rows
SET current = new_current, imported = new_imported
FROM settled
WHERE rows.rowid = held_row
    AND (current <> new_current OR imported <> new_imported);
"""
# A fill is listed under one fill type; a relayer that does not tell them apart lists each under both.
SHARED = """
WITH fills AS (
    SELECT account_id, trade_id, side, order_hash, fill_type FROM sent
    UNION ALL
    SELECT account_id, trade_id, side, order_hash, fill_type FROM known
)
SELECT count(*)
FROM (
    SELECT 1
    FROM fills
    WHERE trade_id IS NOT NULL
    GROUP BY account_id, trade_id, side, order_hash
    HAVING count(DISTINCT fill_type) > 1
)
"""


def add(
    connection: duckdb.DuckDBPyConnection, rows: pa.Table, *, imported: bool
) -> None:
    """Add rows, those of one account together so that reading it skips most others, in an open transaction."""
    connection.register("sent", rows)
    connection.execute(FIND)
    [(is_new,)] = connection.execute(IS_NEW).fetchall()
    if is_new:
        connection.execute(STORE_NEW, {"imported": imported})
    else:
        [(shared,)] = connection.execute(SHARED).fetchall()
        advice = "Its trades are not added: read them with client.trades(..., fill_type=...)."
        tables.refuse_shared_fills(shared, advice)
        connection.execute(ARRIVED)
        connection.execute(SETTLE, {"imported": imported})
        connection.execute(STORE)
        connection.execute("DROP TABLE arrived; DROP TABLE settled")
    connection.execute("DROP TABLE known")
    connection.unregister("sent")
