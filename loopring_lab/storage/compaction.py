"""Compaction of a folder's tables: many small files become a few large ones."""

from __future__ import annotations

import time
from typing import NamedTuple

from loopring_lab.storage.delta import DeltaFolder, retry_on_conflict

KEPT_HOURS = 168
MANY_FILES = 10
SMALL_BYTES = 8 << 20


class Compacted(NamedTuple):
    """What compacting did: files of current rows before and after, and old files removed."""

    before: int
    after: int
    removed: int


def compact_small_files(folder: DeltaFolder) -> None:
    """Compact the tables that have many small files; no file is removed."""
    for name in folder.kind.tables:
        files = [folder.path / file for file in folder.data_files(name)]
        small = sum(file.stat().st_size < SMALL_BYTES for file in files if file.exists())
        if small > MANY_FILES * (1 + len({file.parent for file in files})):
            retry_on_conflict(_compact, folder, name)


def compact(folder: DeltaFolder) -> Compacted:
    """Replace small files with large ones, and remove those that were replaced over a week ago."""
    before = after = removed = 0
    folder.settle()
    for name in folder.kind.tables:
        found = retry_on_conflict(_compact, folder, name)
        before, after = before + found[0], after + found[1]
        removed += retry_on_conflict(_remove_old_files, folder, name)
    return Compacted(before, after, removed)


def _compact(folder: DeltaFolder, name: str) -> tuple[int, int]:
    table = folder.table(name)
    files = folder.data_files(name, table)
    with folder.translate_errors(f"compacting {name}/"):
        folder.digests.check(files)
        table.optimize.compact(max_concurrent_tasks=1, **folder.writing(name), **folder.hooks())
        folder.committed(name, table)
        return len(files), len(table.file_uris())


def _remove_old_files(folder: DeltaFolder, name: str) -> int:
    """Remove the folder's own files that were replaced long ago; other files in its folder stay."""
    table = folder.table(name)
    with folder.translate_errors(f"compacting {name}/"):
        folder.checkpoint(name, table)
        last = (time.time() - 3600 * KEPT_HOURS) * 1000
        removed = folder.digests.files_in_log(name, "remove")
        old = {file for file, how in removed.items() if how["deletionTimestamp"] <= last}
        replaced = [one for one in old - set(folder.data_files(name, table)) if (folder.path / one).exists()]
        for file in replaced:
            (folder.path / file).unlink(missing_ok=True)
        if replaced:
            folder.digests.rewrite(forget=replaced)
        return len(replaced)
