"""Converting the rows of an archive anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.folder import TRADES, TYPED, ArchiveFolder
from loopring_lab.archive.merge import set_column
from loopring_lab.archive.records import ListingSnapshot, RawPage, listings, to_rows
from loopring_lab.storage.delta import retry_on_conflict
from loopring_lab.tables import wire

CHUNK = 50_000


def reread(folder: ArchiveFolder) -> pd.DataFrame:
    """Convert all rows anew from their verbatim members, with the listings of their time."""
    folder = folder.upgraded()
    known = listings(folder)
    accounts = sorted(pc.unique(folder.read(TRADES, ["account_id"])["account_id"]).to_pylist())
    changes: list[tuple[int, str, int]] = []
    for account in accounts:
        changes += retry_on_conflict(_reread_account, folder, known, account)
    return pd.DataFrame(changes, columns=["account_id", "column", "rows"])


def _reread_account(
    folder: ArchiveFolder, known: dict[str, ListingSnapshot], account: int
) -> list[tuple[int, str, int]]:
    table = folder.table(TRADES)
    parts = split_by_listing(folder.read(TRADES, keys=[account], table=table))
    old = pa.concat_tables(parts)
    new = pa.concat_tables([read_verbatim(part, known) for part in parts])
    counts = {name: _count_differences(old[name], new[name]) for name in TYPED}
    changed = [(account, name, count) for name, count in counts.items() if count]
    if changed:
        folder.replace(account, new, table, [f"account {account}"])
    return changed


def split_by_listing(rows: pa.Table) -> list[pa.Table]:
    """Split rows by fill type and listing, into tables of bounded size."""
    groups = rows.select(["asked", "listing"]).group_by(["asked", "listing"]).aggregate([]).to_pylist()
    parts = []
    for group in groups:
        mine = rows.filter((pc.field("asked") == group["asked"]) & (pc.field("listing") == group["listing"]))
        parts += [mine.slice(start, CHUNK) for start in range(0, len(mine), CHUNK)]
    return parts


def read_verbatim(part: pa.Table, known: dict[str, ListingSnapshot]) -> pa.Table:
    """Convert rows of one account, fill type and listing anew."""
    body = b'{"trades":[' + ",".join(part["verbatim"].to_pylist()).encode() + b"]}"
    [batch] = wire.read_each([body], ["an archived row"])
    if isinstance(batch, Exception):
        raise batch
    account_id, fill_type, listing = (part[name][0].as_py() for name in ("account_id", "asked", "listing"))
    fresh = to_rows((account_id, fill_type), [RawPage(body, 0, batch)], known[listing])
    fresh = fresh.take(pc.index_in(part["verbatim"], value_set=fresh["verbatim"].combine_chunks()))
    for name in fresh.column_names:
        if name not in TYPED:
            fresh = set_column(fresh, name, part[name])
    return fresh


def _count_differences(old: Any, new: Any) -> int:
    if old.equals(new):
        return 0
    before, after = (np.array(column.cast(pa.string()).fill_null("\0").to_pylist()) for column in (old, new))
    return int((before != after).sum())
