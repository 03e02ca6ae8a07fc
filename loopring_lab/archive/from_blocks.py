"""Import of every account's fills from a store of rollup blocks: each block once, and whole."""

from __future__ import annotations

import pyarrow as pa

from loopring_lab.archive import holdings
from loopring_lab.archive.conversion import NO_MARKETS, ListingSnapshot, as_stored
from loopring_lab.columns import TRADES
from loopring_lab.engine.database import StoredFile
from loopring_lab.engine.kinds import portable
from loopring_lab.errors import LabError
from loopring_lab.progress import Progress
from loopring_lab.rollup import Store
from loopring_lab.rollup.settled import RESERVED_FOR_POOLS
from loopring_lab.sources.paging import now_ms
from loopring_lab.tables import wire

ROWS_OF_A_TRANSACTION = 1 << 20  # some 0.6 GB in memory
BLOCKS_AT_ONCE = 128

# Accounts become known as pools later than their first fills.
MARK_POOLS = """
UPDATE held.main.rows
SET fill_type = 'amm'
WHERE fill_type = 'dex' AND trade_id IN (
    SELECT trade_id
    FROM held.main.rows
    WHERE account_id IN (SELECT unnest(?))
)
"""
MISSING = "FROM listed ANTI JOIN held.main.blocks USING (block_id) ORDER BY block_id"
# Rows of one account are together, so that reading it skips most of the others; those of a fill are the taker's and
# then the maker's. Blocks that another process has imported meanwhile are left out.
ADD_ROWS = f"""
INSERT INTO held.main.rows BY NAME
SELECT
    {", ".join(TRADES)},
    now() AS retrieved_at,
    1 AS version,
    TRUE AS current,
    FALSE AS imported
FROM sent
ANTI JOIN held.main.blocks USING (block_id)
ORDER BY account_id, trade_id, role DESC
"""
# Blocks without a fill are held as well: they are not looked into again, and leave no gap.
ADD_BLOCKS = """
INSERT INTO held.main.blocks
SELECT block_id,
    count(sent.block_id),
    now()
FROM (SELECT unnest(?) AS block_id)
ANTI JOIN held.main.blocks USING (block_id)
LEFT JOIN sent USING (block_id)
GROUP BY block_id
ORDER BY block_id
"""


def import_blocks(file: StoredFile, store: Store, progress: Progress) -> None:
    """Add to an archive the blocks of a store that it does not hold, in transactions of whole blocks."""
    blocks = store.file
    index = blocks.index()
    tokens = store.tokens()
    total = len(index.blocks)
    unnumbered = index.blocks["block_id"].null_count
    if unnumbered:
        raise LabError(
            f"{blocks.database.shown}: {unnumbered:,} of {total:,} blocks have no number, and nothing was added. Sync "
            "the store, which reads the events that number them, or import the files again with first_block=."
        )
    listing = ListingSnapshot(
        blocks.last_listing() or "[]", NO_MARKETS, now_ms(), str(blocks.database.shown)
    )
    # Accounts with a reserved id were pools from the first, so no row of theirs has to be marked.
    pools = [account for account in index.pools if account > RESERVED_FOR_POOLS]
    with file.writing(index.source) as connection:
        holdings.store_listing(connection, file, listing, listing.lookup())
        connection.execute(MARK_POOLS, [pools])
        connection.register("listed", index.blocks)
        missing = connection.sql(MISSING).to_arrow_table()
    converted = (
        (portable(batch.trades(tokens)).select(list(TRADES)), len(batch))
        for batch in blocks.batches(index, missing, BLOCKS_AT_ONCE)
    )
    for group in wire.group(converted, lambda one: len(one[0]), ROWS_OF_A_TRANSACTION):
        trades, sizes = zip(*group, strict=True)
        # Batches come in the order of the blocks.
        added = missing["block_id"][: sum(sizes)]
        missing = missing[len(added) :]
        with file.writing(index.source) as connection:
            connection.register("sent", as_stored(pa.concat_tables(trades)))
            connection.execute(ADD_ROWS)
            connection.execute(ADD_BLOCKS, [added.to_pylist()])
        progress(total - len(missing), total)
