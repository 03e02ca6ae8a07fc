"""Keeping an archive in shape: few large files instead of many small ones, and old rows read anew."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.archive.delta import SCHEMAS, TRADES, DeltaFolder
from loopring_lab.archive.merge import retry_on_conflict
from loopring_lab.archive.records import TYPED, ListingSnapshot, Page, listings, to_rows

__all__ = ["Compacted", "compact", "reread", "tidy"]

KEPT_HOURS = 168
CHUNK = 50_000
MANY_FILES = 10


class Compacted(NamedTuple):
    """What compacting did: files of current rows before and after, and old files removed from the disk."""

    before: int
    after: int
    removed: int


def tidy(disk: DeltaFolder) -> None:
    """Compact tables of many small files; nothing is removed from the disk."""
    for name in SCHEMAS:
        files = disk.table(name).file_uris()
        if len(files) > MANY_FILES * (1 + len({file.rsplit("/", 2)[-2] for file in files})):
            retry_on_conflict(functools.partial(_compact, disk, name))


def compact(disk: DeltaFolder) -> Compacted:
    """Write few large files for many small ones, and remove those that nobody has needed for a week."""
    before = after = removed = 0
    for name in SCHEMAS:
        found = retry_on_conflict(functools.partial(_compact, disk, name))
        before, after = before + found[0], after + found[1]
        removed += retry_on_conflict(functools.partial(_clear, disk, name))
    return Compacted(before, after, removed)


def reread(disk: DeltaFolder) -> pd.DataFrame:
    """Read the verbatim members of all rows again, with the listings of their time."""
    known = listings(disk)
    accounts = sorted(pc.unique(disk.read(TRADES, ["account_id"])["account_id"]).to_pylist())
    lines = [
        line
        for account in accounts
        for line in retry_on_conflict(functools.partial(_account, disk, known, account))
    ]
    return pd.DataFrame(lines, columns=["account_id", "column", "rows"])


def _compact(disk: DeltaFolder, name: str) -> tuple[int, int]:
    table = disk.table(name)
    with disk.translate_errors(f"compacting {name}/"):
        before = len(table.file_uris())
        table.optimize.compact(max_concurrent_tasks=1)
        return before, len(table.file_uris())


def _clear(disk: DeltaFolder, name: str) -> int:
    table = disk.table(name)
    with disk.translate_errors(f"compacting {name}/"):
        table.create_checkpoint()
        return len(table.vacuum(KEPT_HOURS, dry_run=False, full=True))


def _account(
    disk: DeltaFolder, known: dict[str, ListingSnapshot], account: int
) -> list[tuple[int, str, int]]:
    table = disk.table(TRADES)
    old = disk.read(TRADES, accounts=[account], table=table)
    new = pa.concat_tables([_again(part, known) for part in _alike(old)])
    old = pa.concat_tables(_alike(old))
    changed = [(account, name, rows) for name in TYPED if (rows := _differing(old[name], new[name]))]
    if changed:
        disk.replace(account, new, table, [f"account {account}"])
    return changed


def _alike(rows: pa.Table) -> list[pa.Table]:
    """Cut rows into those of one fill type and listing, not too many at once."""
    groups = rows.select(["asked", "listing"]).group_by(["asked", "listing"]).aggregate([]).to_pylist()
    parts = []
    for group in groups:
        mine = rows.filter((pc.field("asked") == group["asked"]) & (pc.field("listing") == group["listing"]))
        parts += [mine.slice(start, CHUNK) for start in range(0, len(mine), CHUNK)]
    return parts


def _again(part: pa.Table, known: dict[str, ListingSnapshot]) -> pa.Table:
    body = b'{"trades":[' + ",".join(part["verbatim"].to_pylist()).encode() + b"]}"
    page = Page(part["account_id"][0].as_py(), part["asked"][0].as_py(), body, 0, "an archived row")
    fresh = to_rows([page], known[part["listing"][0].as_py()])
    order = pc.index_in(part["verbatim"], value_set=fresh["verbatim"].combine_chunks())
    fresh = fresh.take(order)
    for name in part.column_names:
        if name not in TYPED:
            fresh = fresh.set_column(fresh.schema.get_field_index(name), name, part[name])
    return fresh


def _differing(old: Any, new: Any) -> int:
    if old.equals(new):
        return 0
    before, after = (np.array(column.cast(pa.string()).fill_null("\0").to_pylist()) for column in (old, new))
    return int((before != after).sum())
