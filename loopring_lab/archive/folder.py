"""What the folder of an archive holds: trades, the listings that scale them, and a record of each sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from loopring_lab.source import Source
from loopring_lab.storage.delta import DeltaFolder, Kind, fields

if TYPE_CHECKING:
    from deltalake import DeltaTable

TRADES, LISTINGS, SYNCS = "trades", "listings", "syncs"
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
        mend="archive.verify() lists all damage, and archive.repair(client) repairs it; or run: "
        "loopring-lab verify {path} --repair",
        reading="report, trades and scan",
        same_source="If both are one source, give it the archive's name: source=archive.source, "
        "or a source.json beside saved files.",
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

    def merge(self, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Commit new rows of trades together with those held that they change, all or none."""
        ids = sorted(set(rows["account_id"].to_pylist()))
        self.dataset(TRADES, ids, table)
        accounts = ", ".join(map(str, ids))
        same = " AND ".join(f"t.{name} = s.{name}" for name in ("account_id", "asked", "version", "verbatim"))
        with self.translate_errors("writing trades/"):
            table.merge(
                rows.cast(SCHEMAS[TRADES]),
                f"t.account_id IN ({accounts}) AND {same}",
                source_alias="s",
                target_alias="t",
                **self.commit_options(table, claims),
                **self.writing(TRADES),
            ).when_matched_update(
                {"current": "s.current", "imported": "s.imported"}
            ).when_not_matched_insert_all().execute()
            self.committed(TRADES, table)

    def replace(self, account_id: int, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Replace all rows of an account, all or none."""
        where = f"account_id = {int(account_id)}"
        with self.translate_errors("writing trades/"):
            options = self.commit_options(table, claims) | self.writing(TRADES)
            data = rows.cast(SCHEMAS[TRADES])
            self._delta.write_deltalake(table, data, mode="overwrite", predicate=where, **options)
            self.committed(TRADES, table)
