"""Maintenance of an archive: compacting its files, and converting old rows anew."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.delta import SCHEMAS, TRADES, DeltaFolder, retry_on_conflict
from loopring_lab.archive.merge import set_column
from loopring_lab.archive.records import TYPED, ListingSnapshot, RawPage, listings, to_rows
from loopring_lab.tables import wire

KEPT_HOURS = 168
CHUNK = 50_000
MANY_FILES = 10


class Compacted(NamedTuple):
    """What compacting did: files of current rows before and after, and old files removed."""

    before: int
    after: int
    removed: int


def compact_small_files(folder: DeltaFolder) -> None:
    """Compact the tables that have many small files; no file is removed."""
    for name in SCHEMAS:
        files = folder.table(name).file_uris()
        if len(files) > MANY_FILES * (1 + len({file.rsplit("/", 2)[-2] for file in files})):
            retry_on_conflict(_compact, folder, name)


def compact(folder: DeltaFolder) -> Compacted:
    """Replace small files with large ones, and remove those that were replaced over a week ago."""
    before = after = removed = 0
    folder.settle()
    for name in SCHEMAS:
        found = retry_on_conflict(_compact, folder, name)
        before, after = before + found[0], after + found[1]
        removed += retry_on_conflict(_remove_old_files, folder, name)
    return Compacted(before, after, removed)


def reread(folder: DeltaFolder) -> pd.DataFrame:
    """Convert all rows anew from their verbatim members, with the listings of their time."""
    folder = folder.upgraded()
    known = listings(folder)
    accounts = sorted(pc.unique(folder.read(TRADES, ["account_id"])["account_id"]).to_pylist())
    changes: list[tuple[int, str, int]] = []
    for account in accounts:
        changes += retry_on_conflict(_reread_account, folder, known, account)
    return pd.DataFrame(changes, columns=["account_id", "column", "rows"])


def _compact(folder: DeltaFolder, name: str) -> tuple[int, int]:
    table = folder.table(name)
    files = folder.data_files(name, table)
    with folder.translate_errors(f"compacting {name}/"):
        folder.digests.check(files)
        table.optimize.compact(max_concurrent_tasks=1, **folder.hooks())
        folder.committed(name, table)
        return len(files), len(table.file_uris())


def _remove_old_files(folder: DeltaFolder, name: str) -> int:
    """Remove the archive's own files that were replaced long ago; other files in its folder stay."""
    table = folder.table(name)
    with folder.translate_errors(f"compacting {name}/"):
        folder.checkpoint(name, table)
        last = (time.time() - 3600 * KEPT_HOURS) * 1000
        removed = folder.digests.files_in_log(name, "remove")
        old = {file for file, how in removed.items() if how["deletionTimestamp"] <= last}
        replaced = [
            file for file in old - set(folder.data_files(name, table)) if (folder.path / file).exists()
        ]
        for file in replaced:
            (folder.path / file).unlink(missing_ok=True)
        if replaced:
            folder.digests.rewrite(forget=replaced)
        return len(replaced)


def _reread_account(
    folder: DeltaFolder, known: dict[str, ListingSnapshot], account: int
) -> list[tuple[int, str, int]]:
    table = folder.table(TRADES)
    parts = split_by_listing(folder.read(TRADES, accounts=[account], table=table))
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
