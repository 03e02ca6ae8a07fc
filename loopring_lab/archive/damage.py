"""Damage in an archive: found by its digests, repaired from copies, set aside, and salvaged."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loopring_lab.archive.folder import ADDED, SCHEMAS, TRADES, TYPED, AnyFolder, ArchiveFolder
from loopring_lab.archive.maintenance import read_verbatim, split_by_listing
from loopring_lab.archive.merge import KEY, row_values, set_column
from loopring_lab.archive.records import ListingSnapshot, listings
from loopring_lab.errors import DamagedArchive, LabError
from loopring_lab.storage.delta import retry_on_conflict
from loopring_lab.storage.digests import COPIES, DIGESTS, HINT, LOG, UNREADABLE

COLUMNS = {"file": "str", "problem": "str", "account_id": "Int64", "rows": "Int64"}
RESTORE, REWRITE = "repair restores it from its copy", "repair writes it anew from the other files"
FETCH = "repair sets it aside and downloads its rows again"
IMPORT = "repair sets it aside; import_blocks then adds its rows again"
REPLACED = "its rows were rewritten into other files since; repair sets it aside"
RECORD = "intact as far as can be told; the next sync or repair records it"
BACKUP = "restore it from a backup: there is no copy of it"

SetAside = tuple[int, Path]
"""The account of a file of trades, and where the file was moved."""


class Problem(NamedTuple):
    """A file that is not as it was recorded."""

    file: str
    problem: str
    account_id: int | None
    rows: int | None
    advice: str


def verify(folder: AnyFolder) -> pd.DataFrame:
    """Compare every file of an archive with its digest."""
    return _frame(_find_problems(folder), "advice")


def repair(folder: AnyFolder) -> tuple[pd.DataFrame, list[SetAside]]:
    """Restore what has a copy, set aside what has none, and let go of it in the tables."""
    with folder.translate_errors("repairing the archive"), folder.digests.locked():
        problems = _find_problems(folder)
        if not problems:
            return _frame([], "done"), []
        _restore_manifest(folder, problems)
        if any(problem.file in (DIGESTS, COPIES) for problem in problems):
            folder.digests.rewrite()
        if not folder.digests.known:  # as in an archive from before there were digests
            folder.write_manifest(folder.manifest() | {"schema": 1})
        _restore_logs(folder, problems)
        done, moved = _restore_data(folder, problems)
        if moved or any(problem.problem == "missing" for problem in problems):
            for name in folder.kind.tables:
                retry_on_conflict(_let_go, folder, name)
            folder.digests.rewrite(forget=[name for name in done if not (folder.path / name).exists()])
        for name in folder.kind.tables:
            folder.digests.record(name, also=folder.data_files(name))
        folder.settle()
    lines = [problem._replace(advice=done.get(problem.file, "done")) for problem in problems]
    return _frame(lines, "done"), [(account, file) for account, file in moved if account is not None]


def salvage(folder: ArchiveFolder, files: Sequence[SetAside]) -> None:
    """Add the rows of files set aside that are provably whole and not held."""
    if not files:
        return
    folder = folder.upgraded()
    known = listings(folder)
    for account, file in files:
        for rows in _readable_rows(account, file):
            for part in split_by_listing(rows) if len(rows) else ():
                good = _agreeing_rows(part, known)
                if len(good):
                    retry_on_conflict(_add_missing, folder, account, good)


def _frame(problems: Sequence[Problem], last: str) -> pd.DataFrame:
    frame = pd.DataFrame(problems, columns=[*COLUMNS, last])
    return frame.astype(COLUMNS | {last: "str"})


def _find_problems(folder: AnyFolder) -> list[Problem]:
    digests = folder.digests
    found, manifest = [], dict[str, Any]()
    try:
        manifest = folder.own_manifest()
        if not manifest:
            raise folder.nothing_yet()
    except DamagedArchive:
        found.append(Problem(folder.kind.manifest, "damaged", None, None, RESTORE))
    digests.load()
    recorded = manifest.get("schema") == folder.kind.schema or (digests.folder / DIGESTS).exists()
    spoiled = filter(digests.is_spoiled, (DIGESTS, COPIES) if recorded else ())
    found += [Problem(name, "damaged", None, None, REWRITE) for name in spoiled]
    states = digests.scrub()
    current = _current_files(folder)
    rows = _row_counts(folder) if states or not recorded else {}
    copied = digests.copies()
    for name, state in states.items():
        if advice := _advice(folder, name, state, current, copied):
            found.append(Problem(name, state, _account_of(name), rows.get(name), advice))
    found += [Problem(name, "damaged", None, None, REWRITE) for name in _wrong_hints(folder)]
    for name, sound in _unrecorded(folder, current or set()):
        advice = RECORD if sound else _advice(folder, name, "", current, copied) or RECORD
        state = "not recorded" if sound else "damaged"
        found.append(Problem(name, state, _account_of(name), rows.get(name), advice))
    return sorted(found)


def _advice(
    folder: AnyFolder, name: str, state: str, current: set[str] | None, copied: Collection[str]
) -> str | None:
    """Say what to do about a file; nothing if it is rightly gone."""
    if LOG in name:
        checkpoint = folder.digests.log(name.partition("/")[0]).newest_checkpoint
        if state == "missing" and int(Path(name).name[:20]) <= checkpoint:
            return None
    elif current is not None and name not in current:
        return None if state == "missing" else REPLACED
    if name in copied:
        return RESTORE
    if LOG in name:
        return REWRITE if name.endswith(".parquet") else BACKUP
    return FETCH if TRADES in folder.kind.tables else IMPORT


def _current_files(folder: AnyFolder) -> set[str] | None:
    """Name the files of the current state; None if a log has to be repaired first."""
    try:
        return {file for name in folder.kind.tables for file in folder.data_files(name)}
    except DamagedArchive:
        return None


def _unrecorded(folder: AnyFolder, current: set[str]) -> Iterator[tuple[str, bool]]:
    """Name the files of the tables without a digest, and tell whether each can be read."""
    digests = folder.digests
    for table in folder.kind.tables:
        entries, checkpoints = digests.unrecorded(table)
        for name in (*entries.values(), *checkpoints.values()):
            yield name, digests.is_whole(name)
    for name in sorted(current - set(digests.known)):
        yield name, digests.is_readable(name)


def _wrong_hints(folder: AnyFolder) -> Iterator[str]:
    """Name the hints, left by earlier versions, that lead deltalake to a checkpoint that is not there."""
    for table in folder.kind.tables:
        name = f"{table}/{LOG}/{HINT}"
        try:
            version = json.loads((folder.path / name).read_bytes())["version"]
        except FileNotFoundError:
            continue
        except UNREADABLE:
            version = None
        if version not in folder.digests.log(table).checkpoints:
            yield name


def _row_counts(folder: AnyFolder) -> dict[str, int]:
    """Read from the logs how many rows each file was written with."""
    found: dict[str, int] = {}
    for table in folder.kind.tables:
        for name, added in folder.digests.files_in_log(table, "add").items():
            with suppress(*UNREADABLE):
                found[name] = json.loads(added["stats"])["numRecords"]
    return found


def _account_of(name: str) -> int | None:
    text = name.partition("account_id=")[2].partition("/")[0]
    return int(text) if text.removeprefix("-").isdecimal() else None


def _restore_manifest(folder: AnyFolder, problems: Sequence[Problem]) -> None:
    manifest = folder.kind.manifest
    if any(problem.file == manifest for problem in problems):
        copy = folder.digests.copy(manifest)
        folder.write_manifest(json.loads(copy) if copy else {"format": folder.kind.format, "schema": 1})


def _restore_logs(folder: AnyFolder, problems: Sequence[Problem]) -> None:
    for name in folder.kind.tables:
        folder.digests.undo_torn(name)
        (folder.path / name / LOG / HINT).unlink(missing_ok=True)
    for problem in problems:
        name = problem.file
        if LOG not in name or problem.advice == RECORD:
            continue
        if problem.advice == RESTORE:
            folder.digests.restore(name)
        elif problem.advice == REWRITE and (folder.path / name).exists():
            folder.digests.set_aside(name)
        elif (folder.path / name).exists() and name in folder.digests.known:
            raise folder.digests.damage(f"{name} is damaged, and there is no copy of it: restore a backup")


def _restore_data(
    folder: AnyFolder, problems: Sequence[Problem]
) -> tuple[dict[str, str], list[tuple[int | None, Path]]]:
    """Restore small files from copies, and set aside the others."""
    done, moved = dict[str, str](), []
    current, copied = _current_files(folder) or set(), folder.digests.copies()
    for name, problem, account, _, advice in problems:
        if LOG in name or "/" not in name or problem == "not recorded":
            done[name] = {RECORD: "recorded", REWRITE: "written anew"}.get(advice, "restored from its copy")
        elif name in copied:
            folder.digests.restore(name)
            done[name] = "restored from its copy"
        elif (folder.path / name).exists():
            place = folder.digests.set_aside(name)
            done[name] = f"moved to {place.relative_to(folder.path)}"
            if name in current:
                moved.append((account, place))
        else:
            done[name] = "let go of"
    return done, moved


def _let_go(folder: AnyFolder, name: str) -> None:
    """Take files that are missing out of a table."""
    table = folder.table(name)
    with folder.translate_errors(f"repairing {name}/"):
        table.repair(**folder.hooks())
        folder.committed(name, table)


def _readable_rows(account: int, file: Path) -> Iterator[pa.Table]:
    """Read what can be decoded of a damaged file, column by column; typed columns may be left out."""
    schema = SCHEMAS[TRADES]
    try:
        opened = pq.ParquetFile(file)
    except UNREADABLE:
        return
    with opened:
        for group in range(opened.num_row_groups):
            rows = pa.table({"account_id": pa.repeat(account, opened.metadata.row_group(group).num_rows)})
            for name in schema.names:
                try:
                    column = opened.read_row_group(group, [name])[name].cast(schema.field(name).type)
                    rows = rows.append_column(name, column)
                except UNREADABLE:
                    if name in ADDED:  # as in schema 1
                        rows = rows.append_column(name, pa.nulls(len(rows), schema.field(name).type))
            if set(schema.names) - set(TYPED) <= set(rows.column_names):
                yield rows


def _agreeing_rows(part: pa.Table, known: dict[str, ListingSnapshot]) -> pa.Table:
    """Read rows anew from their members as received; keep those that agree with their typed columns."""
    try:
        fresh = read_verbatim(part, known)
    except (LabError, *UNREADABLE):
        if len(part) == 1:
            return SCHEMAS[TRADES].empty_table()
        half = len(part) // 2
        return pa.concat_tables(
            [_agreeing_rows(part.slice(0, half), known), _agreeing_rows(part.slice(half), known)]
        )
    agree = np.ones(len(part), bool)
    for name in set(TYPED) & set(part.column_names):
        equal = pc.equal(part[name], fresh[name]).fill_null(False)
        both_null = pc.and_(pc.is_null(part[name]), pc.is_null(fresh[name]))
        agree &= pc.or_(equal, both_null).to_numpy()
    return fresh.filter(pa.array(agree))


def _add_missing(folder: ArchiveFolder, account: int, rows: pa.Table) -> None:
    """Add rows whose content is not held; beside another content of the same trade they are not current."""
    table = folder.table(TRADES)
    held = folder.read(TRADES, [*KEY, "verbatim", "version"], keys=[account], table=table)
    versions: dict[tuple[Any, ...], dict[str, int]] = defaultdict(dict)
    for row in row_values(held, "verbatim", "version"):
        versions[row[:-2]][row[-2]] = row[-1]
    before = set(versions)
    added: list[tuple[int, int, bool]] = []
    for place, row in enumerate(row_values(rows, "verbatim", "version", "current")):
        key, (text, version, current) = row[:-3], row[-3:]
        if text not in versions[key]:
            number = max(versions[key].values()) + 1 if key in before else version
            versions[key][text] = number
            added.append((place, number, current and key not in before))
    if added:
        places, numbers, flags = zip(*added, strict=True)
        fresh = rows.take(pa.array(places, pa.int64()))
        fresh = set_column(fresh, "version", pa.array(numbers, pa.int32()))
        fresh = set_column(fresh, "current", pa.array(flags, pa.bool_()))
        folder.append(TRADES, fresh, table, [f"account {account}"])
