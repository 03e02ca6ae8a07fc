"""The tables of an archive.

``rows`` holds every version of every row: what was received, and its typed columns. Amounts are whole numbers
of 1e-18, which add up ten times faster than decimals; the view ``trades`` has the current versions, with
amounts as decimals.
"""

from __future__ import annotations

from loopring_lab.columns import TRADES
from loopring_lab.engine.database import Kind
from loopring_lab.engine.frames import AMOUNTS, decimal_sql

# SQL of the columns of `tables.trades`, amounts as decimals.
SHOWN = ", ".join(decimal_sql(name) if name in AMOUNTS else name for name in TRADES)
# An archive knows of each row whose it is, which the row itself may not say.
DEFINED = [
    f"{name} {column.sql}" + (" NOT NULL" if name == "account_id" else "")
    for name, column in TRADES.items()
]
COLUMNS = ",\n    ".join(DEFINED)

# The columns of trades, and rows as they were received. The versions of one trade are numbered from 1; current are
# those that the source listed last. A row that was read from a block has no text, and was received when its block
# was imported.
ROWS = f"""
CREATE TABLE held.rows (
    {COLUMNS},
    verbatim VARCHAR,
    retrieved_at TIMESTAMPTZ,
    version INTEGER NOT NULL,
    current BOOLEAN NOT NULL,
    imported BOOLEAN NOT NULL
);
"""
# Tokens and markets as the source listed them at a time, as JSON; each listing once.
LISTINGS = """
CREATE TABLE held.listings (
    tokens VARCHAR NOT NULL,
    markets VARCHAR NOT NULL,
    retrieved_at TIMESTAMPTZ NOT NULL
);
"""
# The number of rows of a history that the source counted, the latest record last. `gone` is the number held that it no
# longer lists; `requests` is 0 for saved pages; `checked_at` is given where every page was read. The last record of a
# history says all that is known of it.
SYNCS = """
CREATE TABLE held.syncs (
    account_id BIGINT NOT NULL,
    fill_type VARCHAR NOT NULL,
    synced_at TIMESTAMPTZ NOT NULL,
    total BIGINT NOT NULL,
    gone BIGINT,
    requests BIGINT NOT NULL,
    checked_at TIMESTAMPTZ
);
"""
# Blocks that were imported, with the number of rows that each has.
BLOCKS = """
CREATE TABLE held.blocks (
    block_id BIGINT NOT NULL,
    rows BIGINT NOT NULL,
    imported_at TIMESTAMPTZ NOT NULL
);
"""
# This view is for other programs, which open the file under another name than `held`; nothing here reads it.
VIEW = f"CREATE VIEW held.trades AS SELECT {SHOWN} FROM rows WHERE current;"
TABLES = ("source", "rows", "listings", "syncs", "blocks")

KIND = Kind(
    noun="archive",
    one="an archive",
    contents="trades",
    schema=ROWS + LISTINGS + SYNCS + BLOCKS + VIEW,
    format=2,
    fill="archive.sync(client, account_id=...), loopring-lab sync, or archive.import_blocks(store)",
    copy="archive.copy(path), or loopring-lab copy",
    same_source="If both are one source, give it the archive's name: source=archive.source, or a source.json "
    "beside saved files.",
)
