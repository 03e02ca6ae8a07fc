"""Adding rows by identity: none lost, none doubled, changes kept as versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from loopring_lab import tables
from loopring_lab.columns import TRADES

if TYPE_CHECKING:
    import duckdb

# Rows with the same value here are versions of one trade; for rows without any identity, it is their text. Nulls inside
# a row value are equal to one another.
TRADE = (
    "row(account_id, fill_type, trade_id, side, order_hash, "
    "CASE WHEN coalesce(CAST(trade_id AS VARCHAR), side, order_hash) IS NULL THEN verbatim END) AS trade"
)
HELD = f"SELECT rowid AS held_row, version, current, imported, verbatim, {TRADE} FROM held.main.rows"

# Rows held that may be versions of the trades that arrive as `sent`. DuckDB skips parts of a table by `=`, but not
# by IS NOT DISTINCT FROM, so rows without an id are looked for apart.
FIND = f"""
CREATE TEMP TABLE known AS
{HELD}
SEMI JOIN sent USING (account_id, trade_id)
UNION ALL
{HELD}
WHERE trade_id IS NULL
    AND account_id IN (SELECT account_id FROM sent WHERE trade_id IS NULL);
"""
# Where every row has an id, none occurs twice, and none is held, each row is the only version of its trade.
IS_NEW = """
SELECT count(DISTINCT (account_id, trade_id)) FILTER (trade_id IS NOT NULL) = count(*)
    AND NOT EXISTS (FROM known)
FROM sent
"""
STORE_NEW = """
INSERT INTO held.main.rows BY NAME
SELECT *,
    1 AS version,
    TRUE AS current,
    $imported AS imported
FROM sent
"""
# The rows that were sent, each with its place.
ARRIVE = f"""
CREATE TEMP TABLE arrived AS
SELECT *, {TRADE},
    row_number() OVER () AS place
FROM sent
"""
# This decides which contents of a trade are current after a transaction that brings some of them. The contents read
# last are all those that were received at one moment; a trade that is listed twice among them has two current contents.
#
#   transaction | a sync has seen the trade before | current afterwards
#   ------------+----------------------------------+-----------------------------
#   sync        | yes or no                        | the contents read last
#   import      | no                               | the contents read last
#   import      | yes                              | those that were current before
#
# No clock decides: transactions follow one another. Trades of which nothing arrived stay as they are. A content
# counts as imported until a sync has read it last.
#
# `seen`: every content that arrived of a trade, where it stood first, and when it was read last.
# `numbered`: all contents of these trades, those held first.
SETTLE = """
CREATE TEMP TABLE settled AS
WITH
seen AS (
    SELECT trade, verbatim,
        min(place) AS place,
        max(place) AS last_place,
        arg_max(retrieved_at, place) AS read_at
    FROM arrived
    GROUP BY ALL
),
numbered AS (
    SELECT *,
        row_number() OVER (versions ORDER BY version NULLS LAST, place) AS new_version,
        coalesce(read_at = arg_max(read_at, last_place) OVER versions, FALSE) AS is_last,
        bool_or(held_row IS NOT NULL AND NOT imported) OVER versions AS was_synced
    FROM seen
    FULL JOIN known USING (trade, verbatim)
    WINDOW versions AS (PARTITION BY trade)
    QUALIFY count(place) OVER versions > 0
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
STORE = """
INSERT INTO held.main.rows BY NAME
SELECT arrived.* EXCLUDE (trade, place),
    new_version AS version,
    new_current AS current,
    new_imported AS imported
FROM arrived
JOIN settled USING (place)
WHERE held_row IS NULL
ORDER BY place
"""
UPDATE = """
UPDATE held.main.rows
SET current = new_current, imported = new_imported
FROM settled
WHERE rows.rowid = held_row
    AND (current <> new_current OR imported <> new_imported)
"""
# A row that was irregular, such as one of a market that was not listed then, is read anew where it is regular now.
REREAD = f"""
UPDATE held.main.rows
SET {", ".join(f"{name} = arrived.{name}" for name in TRADES)}
FROM arrived
JOIN settled USING (place)
WHERE rows.rowid = held_row
    AND rows.extra IS NOT NULL
    AND arrived.extra IS NULL
"""
# A fill is listed under one fill type; a relayer that does not tell them apart lists each under both. Then its id
# comes twice, so rows that are new by `IS_NEW` need not be looked at.
COUNT_SHARED = """
SELECT account_id, count(*)
FROM (
    SELECT account_id, trade_id, side, order_hash
    FROM held.main.rows
    SEMI JOIN sent USING (account_id, trade_id)
    GROUP BY ALL
    HAVING count(DISTINCT fill_type) > 1
)
GROUP BY account_id
ORDER BY account_id
"""
SHARED_IN_FILES = (
    "These files are not added, nor what was read with them. Keep one of two with the same rows, or save each fill "
    "type again; then import all of them again."
)
SHARED_AT_RELAYER = (
    "This relayer does not tell fill types apart. Its trades are not added: read them with "
    "client.trades(..., fill_type=...)."
)


def add(
    connection: duckdb.DuckDBPyConnection,
    rows: pa.Table,
    *,
    imported: bool,
) -> None:
    """Add rows in an open transaction, once for each connection, with which its temporary tables go.

    They are stored as they come: rows of one account should be together, so that reading it skips most others.
    """
    connection.register("sent", rows)
    connection.execute(FIND)
    [(is_new,)] = connection.execute(IS_NEW).fetchall()
    if is_new:
        connection.execute(STORE_NEW, {"imported": imported})
        return
    connection.execute(ARRIVE)
    connection.execute(SETTLE, {"imported": imported})
    connection.execute(STORE)
    connection.execute(UPDATE)
    connection.execute(REREAD)
    hint = SHARED_IN_FILES if imported else SHARED_AT_RELAYER
    for account, shared in connection.execute(COUNT_SHARED).fetchall():
        tables.refuse_shared_fills(shared, hint, f"account {account}, fillTypes")
