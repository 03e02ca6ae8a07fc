"""Import of every account's fills from a store of rollup blocks: each block once, and whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from loopring_lab.archive import queries
from loopring_lab.archive.rows import ListingSnapshot, stored
from loopring_lab.archive.schema import TYPED
from loopring_lab.engine.frames import portable
from loopring_lab.errors import LabError
from loopring_lab.paging import now_ms
from loopring_lab.progress import Progress
from loopring_lab.rollup import Store
from loopring_lab.rollup.settled import RESERVED_FOR_POOLS
from loopring_lab.storage import StoredFile

ROWS_OF_A_TRANSACTION = 1 << 20
BLOCKS_AT_ONCE = 128

# Accounts become known as pools later than their first fills.
MARK_POOLS = """
UPDATE held.main.rows SET fill_type = 'amm'
WHERE fill_type = 'dex' AND trade_id IN (
    SELECT trade_id FROM held.main.rows WHERE account_id IN (SELECT unnest(?))
)
"""
# Rows of one account are together, so that reading it skips most of the others.
ADD_ROWS = f"""
INSERT INTO held.main.rows BY NAME
SELECT {", ".join(TYPED)}, now() AS retrieved_at, ? AS listing,
    1 AS version, TRUE AS current, FALSE AS imported
FROM sent ANTI JOIN held.main.blocks USING (block_id)
ORDER BY account_id, trade_id, role DESC
"""
ADD_BLOCKS = """
INSERT INTO held.main.blocks
SELECT block_id, count(sent.block_id), now()
FROM (SELECT unnest(?) AS block_id) ANTI JOIN held.main.blocks USING (block_id) LEFT JOIN sent USING (block_id)
GROUP BY block_id
ORDER BY block_id
"""


class BlockImport:
    """Adds to an archive the blocks of a store that it does not hold."""

    def __init__(self, file: StoredFile, store: Store) -> None:
        blocks = store.stored
        self._file, self._store = file, store
        self._index, self._tokens, source = blocks.index(), store.tokens(), blocks.file.source()
        self._refuse_unnumbered()
        assert source is not None  # noqa: S101 - a store that holds blocks is bound
        self._source = source
        self._listing = ListingSnapshot(blocks.last_listing() or "[]", queries.NO_MARKETS, now_ms())
        pools = [account for account in self._index.pools if account > RESERVED_FOR_POOLS]
        with file.writing(source) as connection:
            queries.refuse_relayers(connection, file)
            queries.store_listing(connection, self._listing)
            connection.execute(MARK_POOLS, [pools])
            held = connection.execute("SELECT block_id FROM held.main.blocks").fetchnumpy()["block_id"]
        numbers = self._index.blocks["block_id"].to_numpy()
        self._missing = self._index.blocks.filter(pa.array(~np.isin(numbers, held)))

    def run(self, progress: Progress) -> None:
        """Commit what is missing, in transactions of whole blocks."""
        total = len(self._index.blocks)
        done = total - len(self._missing)
        numbers: list[int] = []
        parts: list[pa.Table] = []
        for batch in self._store.stored.batches(self._index, self._missing, BLOCKS_AT_ONCE):
            parts.append(portable(batch.trades(self._tokens)))
            numbers += [raw.block_id for raw in batch.raw if raw.block_id is not None]
            done += len(batch)
            if sum(map(len, parts)) >= ROWS_OF_A_TRANSACTION:
                self._commit(numbers, parts)
                numbers, parts = [], []
                progress(done, total)
        self._commit(numbers, parts)
        self._file.settle()
        progress(done, total)

    def _commit(self, numbers: list[int], parts: list[pa.Table]) -> None:
        if numbers:
            rows = stored(pa.concat_tables(parts).select(TYPED))
            with self._file.writing(self._source) as connection:
                connection.register("sent", rows)
                connection.execute(ADD_ROWS, [self._listing.digest])
                connection.execute(ADD_BLOCKS, [numbers])

    def _refuse_unnumbered(self) -> None:
        count = self._index.blocks["block_id"].null_count
        if count:
            raise LabError(
                f"{self._store.stored.file.shown}: {count:,} of {len(self._index.blocks):,} blocks have no number, and "
                "nothing was added. Sync the store, which reads the events that number them, or import "
                "the files again with first_block=."
            )
