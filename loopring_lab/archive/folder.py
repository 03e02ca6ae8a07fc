"""What the folder of an archive holds: trades, the listings that scale them, and a record of each sync.

There are two kinds: trades as a relayer sent them, and those read from rollup blocks, which never change.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.source import Source
from loopring_lab.storage.delta import DeltaFolder, Kind, fields

if TYPE_CHECKING:
    from deltalake import DeltaTable

TRADES, LISTINGS, SYNCS = "trades", "listings", "syncs"
SETTLED, IMPORTS = "settled", "imports"
MOMENT = pa.timestamp("us", "UTC")

SCHEMAS = {
    TRADES: pa.schema([
        *fields("created_at", MOMENT),
        *fields("trade_id account_id", pa.int64()),
        *fields("market base quote side fill_type role", pa.string()),
        *fields("size price notional fee", pa.decimal128(38, 18)),
        *fields("fee_token", pa.string()),
        *fields("fee_bps", pa.float64()),
        *fields("order_hash", pa.string()),
        *fields("block_id index_in_block token_id storage_id", pa.int64()),
        *fields("extra asked verbatim", pa.string()),
        *fields("retrieved_at", MOMENT),
        *fields("listing", pa.string()),
        *fields("version", pa.int32()),
        *fields("current imported", pa.bool_()),
    ]),
    LISTINGS: pa.schema([
        *fields("listing tokens markets source", pa.string()),
        *fields("synthetic", pa.bool_()),
        *fields("retrieved_at", MOMENT),
        *fields("number", pa.int64()),
    ]),
    SYNCS: pa.schema([
        *fields("account_id", pa.int64()),
        *fields("fill_type", pa.string()),
        *fields("synced_at", MOMENT),
        *fields("total gone requests", pa.int64()),
        *fields("since checked_at", MOMENT),
        *fields("number", pa.int64()),
    ]),
}  # fmt: skip
"""The tables of an archive, in the order in which they are made."""
ADDED = ("imported", "checked_at", "number")
"""Columns that archives of schema 1 do not have; read as null until the next write adds them."""
TYPED = SCHEMAS[TRADES].names[:21]
SETTLED_SCHEMAS = {
    SETTLED: pa.schema([SCHEMAS[TRADES].field(name) for name in TYPED]),
    LISTINGS: SCHEMAS[LISTINGS],
    IMPORTS: pa.schema([*fields("first last rows version", pa.int64()), *fields("imported_at", MOMENT),
                        *fields("number", pa.int64())]),
}  # fmt: skip
"""The tables of an archive of blocks; a row of imports is a range of blocks that were held whole at a
version of settled, and the number of rows in it then."""
ROWS_OF_A_GROUP = 1 << 16
"""So that readers of a time skip most of a large file, for 7 % more bytes."""


class ArchiveFolder(DeltaFolder):
    """The folder of one archive."""

    kind = Kind(
        noun="archive",
        contents="trades",
        manifest="archive.json",
        schema=2,
        tables=SCHEMAS,
        partitions={TRADES: "account_id"},
        statistics={TRADES: "created_at,trade_id,asked,version,current,extra"},
        bulk=frozenset([TRADES]),
        fill="archive.sync(client, account_id=...), or loopring-lab sync",
        repair="archive.verify() lists all damage, and archive.repair(client) repairs it; or run: "
        "loopring-lab verify {path} --repair",
        reading="report, trades and scan",
        same_source="If both are one source, give it the archive's name: source=archive.source, "
        "or a source.json beside saved files.",
        groups={TRADES: ROWS_OF_A_GROUP},
        added=frozenset(ADDED),
    )

    def source(self) -> Source | None:
        """Return the source that the archive is bound to; of schema 1, the label of its latest listing."""
        bound = super().source()
        if bound or not self.check():
            return bound
        rows = self.read(LISTINGS, ["source", "synthetic", "retrieved_at"]).sort_by("retrieved_at")
        if not len(rows):
            return None
        label, synthetic, _ = rows.to_pylist()[-1].values()
        return Source(Source.at(label).name if "://" in label else label, synthetic)

    def read_trades(self, where: Any, accounts: Sequence[int] | None) -> pa.Table:
        """Read the current version of trades, with the listing of each."""
        return self.read(TRADES, [*TYPED, "listing"], where & pc.field("current"), accounts)

    def merge(self, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Commit new rows of trades together with those held that they change, all or none."""
        ids = sorted(set(rows["account_id"].to_pylist()))
        self.dataset(TRADES, ids, table)
        accounts = ", ".join(map(str, ids))
        same = " AND ".join(f"t.{name} = s.{name}" for name in ("account_id", "asked", "version", "verbatim"))
        with self.committing(TRADES, table, claims) as options:
            table.merge(
                rows.cast(SCHEMAS[TRADES]),
                f"t.account_id IN ({accounts}) AND {same}",
                source_alias="s",
                target_alias="t",
                **options,
            ).when_matched_update(
                {"current": "s.current", "imported": "s.imported"}
            ).when_not_matched_insert_all().execute()

    def replace(self, account_id: int, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Replace all rows of an account, all or none."""
        where = f"account_id = {int(account_id)}"
        with self.committing(TRADES, table, claims) as options:
            data = rows.cast(SCHEMAS[TRADES])
            self._delta.write_deltalake(table, data, mode="overwrite", predicate=where, **options)


class SettledFolder(DeltaFolder):
    """The folder of an archive of trades from blocks: few large files, each sorted by account."""

    kind = Kind(
        noun="archive",
        contents="trades",
        manifest="settled.json",
        schema=2,
        tables=SETTLED_SCHEMAS,
        partitions={},
        statistics={SETTLED: "account_id,created_at,trade_id,block_id,extra"},
        bulk=frozenset([SETTLED]),
        fill="archive.import_blocks(store)",
        repair="archive.verify() lists all damage, archive.repair() sets damaged files aside, and then "
        "archive.import_blocks(store) adds their rows again; or run: loopring-lab verify {path} --repair",
        reading="report, trades and scan",
        same_source="",
        groups={SETTLED: ROWS_OF_A_GROUP},
    )

    def read_trades(self, where: Any, accounts: Sequence[int] | None) -> pa.Table:
        """Read trades in the order of the blocks, the taker's side first; `where` selects the accounts."""
        return self.read(SETTLED, TYPED, where).sort_by([("trade_id", "ascending"), ("role", "descending")])

    def mark_as_pools(self, trade_ids: pa.Array, table: DeltaTable) -> None:
        """Commit that these fills are of pools, as became known later, all or none."""
        rows, same = pa.table({"trade_id": trade_ids}), "t.trade_id = s.trade_id"
        with self.committing(SETTLED, table, [SETTLED]) as options:
            merger = table.merge(rows, same, source_alias="s", target_alias="t", **options)
            merger.when_matched_update({"fill_type": "'amm'"}).execute()


AnyFolder = ArchiveFolder | SettledFolder


def is_of_blocks(path: str | os.PathLike[str]) -> bool:
    """Tell whether an archive of blocks is in a folder; of a path that no folder can have, it is not."""
    with suppress(OSError):
        return Path(path, SettledFolder.kind.manifest).is_file()
    return False
