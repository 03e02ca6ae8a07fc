"""Import of every account's fills from a store of rollup blocks: each block once, and whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive import records
from loopring_lab.archive.folder import IMPORTS, SETTLED, SETTLED_SCHEMAS, SettledFolder
from loopring_lab.archive.queries import IN_TURN
from loopring_lab.archive.records import ListingSnapshot
from loopring_lab.engine import portable
from loopring_lab.errors import LabError
from loopring_lab.paging import now_ms
from loopring_lab.progress import Progress
from loopring_lab.rollup import Store
from loopring_lab.rollup.settled import RESERVED_FOR_POOLS
from loopring_lab.storage.compaction import compact_small_files
from loopring_lab.storage.delta import retry_on_conflict

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROWS_OF_A_FILE = 1 << 20
BLOCKS_AT_ONCE = 128
NO_MARKETS = "[]"


class BlockImport:
    """Adds to an archive the blocks of a store that it does not hold."""

    def __init__(self, folder: SettledFolder, store: Store) -> None:
        self._store, self._index, self._tokens = store, store._read_index(), store.tokens()
        self._blocks = self._index.blocks
        self._refuse_unnumbered()
        source, listing = store._folder.source(), store._last_listing()
        assert source is not None  # noqa: S101 - a store that holds blocks is bound
        assert listing is not None  # noqa: S101 - `tokens` has read it
        snapshot = ListingSnapshot(listing, NO_MARKETS, source.name, source.synthetic, now_ms())
        self._folder = retry_on_conflict(folder.bind, source)
        records.store_listing(self._folder, snapshot)
        self._version = -1
        self._held = pa.array([], pa.int64())

    def run(self, progress: Progress) -> None:
        """Commit what is missing, in batches of whole blocks, then record which blocks are held."""
        retry_on_conflict(self._mark_new_pools)
        missing, parts = self._missing(), list[pa.Table]()
        done = len(self._blocks) - len(missing)
        for batch in self._store._batches_of(self._index, missing, BLOCKS_AT_ONCE):
            parts.append(portable(batch.trades(self._tokens)).cast(SETTLED_SCHEMAS[SETTLED]))
            done += len(batch)
            if sum(map(len, parts)) >= ROWS_OF_A_FILE:
                self._commit(parts)
                parts = []
                progress(done, len(self._blocks))
        self._commit(parts)
        progress(done, len(self._blocks))
        compact_small_files(self._folder)
        retry_on_conflict(self._record)

    def _refuse_unnumbered(self) -> None:
        count = self._blocks["block_id"].null_count
        if count:
            raise LabError(
                f"{self._store._folder.shown}: {count:,} of {len(self._blocks):,} blocks have no number, and "
                "nothing was added. Sync the store, which reads the events that number them, or import "
                "the files again with first_block=."
            )

    def _mark_new_pools(self) -> None:
        """Correct the type of fills held whose account has become known as a pool since."""
        named = [account for account in self._index.pools if account > RESERVED_FOR_POOLS]
        if named:
            table = self._folder.table(SETTLED)
            where = pc.field("account_id").isin(named)
            rows = self._folder.read(SETTLED, ["trade_id", "fill_type"], where, table=table)
            stale = pc.unique(rows.filter(pc.equal(rows["fill_type"], "dex"))["trade_id"])
            if len(stale):
                self._folder.mark_as_pools(stale, table)

    def _missing(self) -> pa.Table:
        """Return the blocks to read: neither in the table, nor recorded, as those without fills are."""
        version, numbers = self._update_held().version(), self._blocks["block_id"].to_numpy()
        known = np.isin(numbers, self._held)
        for row in self._folder.read(IMPORTS, ["first", "last", "version"]).to_pylist():
            if row["version"] == version:
                known |= (numbers >= row["first"]) & (numbers <= row["last"])
        return self._blocks.filter(pa.array(~known))

    def _commit(self, parts: list[pa.Table]) -> None:
        """Sort rows by account, then as they were settled, and commit those that nobody else has."""
        if any(map(len, parts)):
            rows = pa.concat_tables(parts).combine_chunks()
            order = np.lexsort((rows["trade_id"].to_numpy(), rows["account_id"].to_numpy()))
            retry_on_conflict(self._commit_once, rows.take(pa.array(order)))

    def _commit_once(self, rows: pa.Table) -> None:
        table = self._update_held()
        known = pc.is_in(rows["block_id"], self._held)
        fresh = rows.filter(pc.invert(known)) if pc.any(known).as_py() else rows
        if len(fresh):
            self._folder.append(SETTLED, fresh, table, [SETTLED])
            self._held = pa.concat_arrays([self._held, pc.unique(fresh["block_id"])])
            self._version = table.version()

    def _update_held(self) -> DeltaTable:
        """Open the table, and read which blocks have rows in it, unless nobody else has committed."""
        table = self._folder.table(SETTLED)
        if table.version() != self._version:
            with self._folder.translate_errors("reading settled/"):
                scanner = self._folder.dataset(SETTLED, table=table).scanner(["block_id"], **IN_TURN)
                parts = [pc.unique(batch["block_id"]) for batch in scanner.to_batches()]
            self._held = pc.unique(pa.concat_arrays([self._held[:0], *parts]))
            self._version = table.version()
        return table

    def _record(self) -> None:
        """Record which blocks the store holds, all of which are held here, as ranges."""
        table = self._folder.table(SETTLED)
        found = {
            "rows": self._folder.dataset(SETTLED, table=table).count_rows(),
            "version": table.version(),
            "imported_at": now_ms(),
        }
        lines = [{"first": first, "last": last} | found for first, last in self._runs()]
        records.append_numbered(self._folder, IMPORTS, lines, self._folder.table(IMPORTS))

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last number of consecutive blocks."""
        numbers = self._blocks["block_id"].to_numpy()
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
            yield int(run[0]), int(run[-1])
