"""A folder of Delta tables: a manifest, digests, and clear errors for what storage refuses."""

from __future__ import annotations

import copy
import errno
import importlib
import json
import os
import random
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, Self

import pyarrow as pa
import tenacity
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from loopring_lab.errors import (
    ArchiveError,
    DamagedArchive,
    DiskRefused,
    LabError,
    NewerArchive,
    NotAnArchive,
)
from loopring_lab.source import Source
from loopring_lab.storage.digests import (
    BLANK,
    HINT,
    LOG,
    UNREADABLE,
    Digests,
    create_file,
    replace_file,
    sync_folder,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable


ROWS_OF_LARGE = 256
STATISTICS = "delta.dataSkippingStatsColumns"
ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")
MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|[][^|\\\x00-\x1f]")
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}
ATTEMPTS = 50
CHECKPOINT_EVERY = 100
_OWN = random.Random()  # noqa: S311 - spreads retries; the caller's stream of `random` stays as it is
_runtime: list[int] = []
"""The process in which deltalake first did something: it does not survive a fork."""


def fields(names: str, field_type: pa.DataType) -> list[pa.Field]:
    """Return fields of one type."""
    return [pa.field(name, field_type) for name in names.split()]


class Conflict(Exception):
    """Another writer committed the same claims first; read again and retry."""


def _give_up(state: tenacity.RetryCallState) -> NoReturn:
    problem = f"Other writers of this folder committed first, {state.attempt_number} times in a row"
    raise ArchiveError(f"{problem}. Nothing was lost: try again when they are done.")


retry_on_conflict = tenacity.Retrying(
    stop=tenacity.stop_after_attempt(ATTEMPTS),
    wait=lambda state: _OWN.uniform(0, min(0.5, 0.01 * 2 ** (state.attempt_number - 1))),
    retry=tenacity.retry_if_exception_type(Conflict),
    retry_error_callback=_give_up,
)
"""Calls a function, again as long as other writers commit first."""


class Kind(NamedTuple):
    """What a kind of folder holds, and how its errors speak of it; its first table tells whose it is."""

    noun: str
    contents: str
    manifest: str
    schema: int
    """Of the manifest; 1 while a folder is being created, and before there were digests."""
    tables: Mapping[str, pa.Schema]
    """In the order in which they are made."""
    partitions: Mapping[str, str]
    """The column by which a table is partitioned, if it is."""
    statistics: Mapping[str, str]
    """The columns by which a table's files are skipped, where not the first 32."""
    bulk: frozenset[str]
    """Tables too large for copies of their files."""
    fill: str
    repair: str
    reading: str
    same_source: str
    large: frozenset[str] = frozenset()
    """Columns of long bytes: written without statistics, and few rows in a group."""
    groups: Mapping[str, int] = {}
    """Rows of a row group, by table, where not as many as fit."""
    added: frozenset[str] = frozenset()
    """Columns that folders of schema 1 do not have; read as null until the next write adds them."""

    @property
    def one(self) -> str:
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"

    @property
    def format(self) -> str:
        return f"loopring_lab {self.noun}"

    @property
    def main(self) -> str:
        return next(iter(self.tables))


class DeltaFolder:
    """A folder of one kind: opens, creates, reads and writes its tables."""

    kind: ClassVar[Kind]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.shown = _usable(path, self.kind.one)
        self.path = self.shown.absolute()
        self._writes: Source | None = None
        try:
            self._delta: Any = importlib.import_module("deltalake")
        except ImportError:
            hint = "Install it with: pip install 'loopring-lab[archive]'"
            raise LabError(f"{self.kind.one.capitalize()} needs the package deltalake. {hint}") from None
        self.digests = Digests(self.path, self.shown, self.kind.repair, self.kind.bulk)
        with suppress(DamagedArchive):  # so that it can be repaired
            self.check()

    def check(self) -> bool:
        """Tell whether the tables have been created; raise an error if the folder is something else."""
        manifest = self.manifest()
        finished = manifest.get("schema") == self.kind.schema
        logs = [self.digests.has_log(name) for name in self.kind.tables]
        if manifest and (finished or sorted(logs, reverse=True) != logs) and not all(logs):
            missing = list(self.kind.tables)[logs.index(False)]  # tables are created in this order
            raise self.digests.damage(f"the log of {missing}/ is missing")
        if finished:
            self.digests.load()
            if not self.digests.known:
                raise self.digests.damage("the digests of its files are missing")
        return bool(manifest) and all(logs)

    def manifest(self) -> dict[str, Any]:
        """Read what the folder says of itself, if need be from its copy; nothing if it is empty."""
        try:
            return self.own_manifest()
        except DamagedArchive:
            copied = self.digests.copy(self.kind.manifest)
            if copied is None:
                raise
            return self._members(copied)

    def own_manifest(self) -> dict[str, Any]:
        """Read the manifest itself; nothing if the folder is empty or missing, an error if it is damaged."""
        try:
            text = (self.path / self.kind.manifest).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            self._refuse_other_content()
            return {}
        except OSError as error:
            raise self._write_error("opening it", error) or ArchiveError(
                f"{self.shown}: {self.kind.manifest} cannot be read ({error.strerror}). Use another folder."
            ) from None
        found = self._members(text)
        if not found and (self.path / self.kind.main / LOG).is_dir():
            raise self.digests.damage(f"{self.kind.manifest} is damaged")
        if not found and text.strip(BLANK):
            raise NotAnArchive(
                f"{self.shown}: {self.kind.manifest} does not belong to {self.kind.one}. "
                "Nothing was changed. Use another folder."
            )
        return found

    def _recover(self) -> None:
        """Undo commits that a crash cut short, and write a torn manifest as its copy has it."""
        with self.translate_errors("undoing what a crash cut short"):
            for name in self.kind.tables:
                self.digests.undo_torn(name)
            try:
                self.own_manifest()
            except DamagedArchive:
                self.write_manifest(self.manifest())

    def write_manifest(self, manifest: dict[str, Any], *, first: bool = False) -> None:
        """Write what the folder says of itself, with a check and a copy, or keep the `first`."""
        members = {name: value for name, value in manifest.items() if name != "check"}
        text = json.dumps(members | {"check": _check_of(members)})
        (create_file if first else replace_file)(self.path / self.kind.manifest, text.encode() + b"\n")
        self.digests.keep_copy(self.kind.manifest)

    def source(self) -> Source | None:
        """Return the source that the folder is bound to, or None if it has been bound to none."""
        if not self.check():
            return None
        return self.source_of(self.table(self.kind.main))

    def bind(self, source: Source) -> Self:
        """Create what is missing, and return the folder for writing rows of this source, and no other.

        The manifest of a new folder decides whose it is, then metadata that no commit can miss a change of.
        """
        bound = copy.copy(self)
        if self.manifest():
            self._recover()
        bound._writes = self._join(self.source(), source)
        with self.translate_errors(f"creating the {self.kind.noun}"):
            if not self.check():
                self._make_folder(source)
                with self.digests.locked():  # deltalake lets two processes create one table
                    for name in self.kind.tables:
                        self._create_table(name, source)
                        self.digests.record(name)
        self.settle()
        if self.source_of(self.table(self.kind.main)) != bound._writes:
            for name in reversed(list(self.kind.tables)):  # the main one last: it tells that all are
                self._bind_table(name, bound._writes)
        return bound

    def upgraded(self) -> Self:
        """Bring the tables of schema 1 to this version."""
        self.settle()
        source = self.source()
        return retry_on_conflict(self.bind, source) if source else self

    def settle(self) -> None:
        """Record what was committed and has no digest yet; undo commits that a crash cut short."""
        if not self.check():
            raise self.nothing_yet()
        manifest = self.manifest()
        with self.translate_errors("recording digests"):
            for name in self.kind.tables:
                self.digests.load()
                if any(self.digests.unrecorded(name)):
                    self.digests.undo_torn(name)
                    live = [] if manifest.get("schema") == self.kind.schema else self.data_files(name)
                    self.digests.record(name, also=live)
            if manifest.get("schema") != self.kind.schema:
                for name in self.kind.tables:
                    (self.path / name / LOG / HINT).unlink(missing_ok=True)
                self.write_manifest(manifest | {"schema": self.kind.schema})

    def source_of(self, table: DeltaTable) -> Source | None:
        """Return the source that a table is bound to; none in schema 1."""
        text = table.metadata().description
        return Source.read(text, f"{self.shown}, description of a table") if text else None

    def _join(self, bound: Source | None, source: Source) -> Source:
        """Return what is known of one source; an error if there are two."""
        joined = source if bound is None else bound.joined(source)
        if joined is None:
            raise ArchiveError(
                f"{self.shown}: holds {self.kind.contents} from {bound}, and these are from {source}. "
                f"{self.kind.contents.capitalize()} of different sources are kept apart, and nothing was "
                f"added: use another folder. {self.kind.same_source}".rstrip()
            )
        return joined

    def table(self, name: str) -> DeltaTable:
        """Open the latest state of a table."""
        if not self.check():
            raise self.nothing_yet()
        with self.translate_errors(f"reading the log of {name}/"):
            self.digests.check_log(name)
            table: DeltaTable = self._delta.DeltaTable(str(self.path / name))
            lacking = sorted(set(self.kind.tables[name].names) - _columns(table) - self.kind.added)
        if lacking:
            raise DamagedArchive(
                f"{self.path / name}: this Delta table has no {', '.join(lacking)}, so it is not the "
                f"{self.kind.noun}'s. Nothing was changed. Restore the {self.kind.noun}'s own table, "
                "or use another folder."
            )
        return table

    def is_latest(self, name: str, version: int) -> bool:
        """Tell whether nothing was committed to a table after a version."""
        log = self.path / name / LOG
        return (log / f"{version:020}.json").exists() and not (log / f"{version + 1:020}.json").exists()

    def read(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        where: Any = None,
        keys: Sequence[int] | None = None,
        table: DeltaTable | None = None,
    ) -> pa.Table:
        """Read rows of a table, only of these keys of its partitions if given."""
        with self.translate_errors(f"reading {name}/"):
            data = self.dataset(name, keys, table, where)
            found: pa.Table = data.to_table(
                columns=list(columns or self.kind.tables[name].names), filter=where
            )
        return found

    def dataset(
        self, name: str, keys: Sequence[int] | None = None, table: DeltaTable | None = None, where: Any = None
    ) -> Any:
        """Open a table for reading in parts, its files checked as far as `where` needs them."""
        pruning = None
        if keys is not None:
            pruning = f"{self.kind.partitions[name]} IN ({', '.join(map(str, keys)) or 'NULL'})"
        opened = table or self.table(name)
        with self.translate_errors(f"reading the log of {name}/"):
            here = SubTreeFileSystem(str((self.path / name).resolve()), LocalFileSystem())
            full = self.kind.tables[name]
            schema = None if set(full.names) <= _columns(opened) else full
            data = opened.to_pyarrow_dataset(filesystem=here, file_pruning_predicate=pruning, schema=schema)
            self.digests.check(f"{name}/{fragment.path}" for fragment in data.get_fragments(where))
        return data

    def data_files(self, name: str, table: DeltaTable | None = None) -> list[str]:
        """List the Parquet files of a table's current state, relative to the folder."""
        opened = table or self.table(name)
        # deltalake gives URIs, in which spaces and letters beyond ASCII are escaped
        depth = 2 if name in self.kind.partitions else 1
        return ["/".join([name, *uri.rsplit("/", depth)[-depth:]]) for uri in opened.file_uris()]

    def append(
        self, name: str, rows: pa.Table, table: DeltaTable | None = None, claims: Sequence[str] = ()
    ) -> None:
        """Commit rows, all or none; commits that claim the same at the same time conflict."""
        opened = table or self.table(name)
        with self.committing(name, opened, claims) as options:
            self._delta.write_deltalake(opened, rows.cast(self.kind.tables[name]), mode="append", **options)

    @contextmanager
    def committing(self, name: str, table: DeltaTable, claims: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Give the options of a commit that conflicts with others of the same claims, and record it."""
        with self.translate_errors(f"writing {name}/"):
            if self._writes is not None:
                self._refuse_other_source(table, self._writes)
            version = table.version() + 1
            transactions = [self._delta.Transaction(claim, version) for claim in claims]
            properties = self._delta.CommitProperties(app_transactions=transactions or None)
            yield {"commit_properties": properties, **self.hooks(), **self.writing(name)}
            self.committed(name, table)

    def committed(self, name: str, table: DeltaTable) -> None:
        """Make durable and record what was just committed."""
        version = table.version()
        with self.digests.locked():
            self.digests.record(name, version)
            if version - self.digests.log(name).newest_checkpoint >= CHECKPOINT_EVERY:
                self.checkpoint(name, table)

    def checkpoint(self, name: str, table: DeltaTable) -> None:
        """Summarise a log, so that it opens faster."""
        with self.digests.locked():
            if self.digests.log(name).newest_checkpoint < table.version():
                table.create_checkpoint()
                (self.path / name / LOG / HINT).unlink(missing_ok=True)  # it would need a digest of its own
                self.digests.record(name, table.version())

    def hooks(self) -> dict[str, Any]:
        """Return options of a commit that leave checkpoints to `checkpoint`, and the log whole."""
        hooks = self._delta.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        return {"post_commithook_properties": hooks}

    @contextmanager
    def translate_errors(self, doing: str) -> Iterator[None]:
        """Turn storage errors into an `ArchiveError` that says what is safe and what to do."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        _refuse_fork()
        try:
            yield
        except CommitFailedError as error:
            raise self._write_error(doing, error) or Conflict(str(error)) from None
        except (OSError, pa.ArrowInvalid, DeltaError) as error:
            raise self._write_error(doing, error) or self._damage(doing, error) from None

    def described(self) -> str:
        """Return the path as it was given, and whether the folder is empty or damaged, for a repr."""
        try:
            state = "" if self.check() else ", empty"
            self.own_manifest()
        except ArchiveError:
            state = ", damaged"
        return f"{str(self.shown)!r}{state}"

    def nothing_yet(self) -> NotAnArchive:
        """Return the error for a folder that has not been filled."""
        return NotAnArchive(
            f"{self.shown}: no {self.kind.contents} here yet. Fill it first: {self.kind.fill}."
        )

    def writing(self, name: str) -> dict[str, Any]:
        """Return how files of a table are written."""
        large = self.kind.large.intersection(self.kind.tables[name].names)
        plain = self._delta.ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
        written = self._delta.WriterProperties(
            compression="ZSTD",
            compression_level=3,
            max_row_group_size=self.kind.groups.get(name, ROWS_OF_LARGE if large else None),
            column_properties=dict.fromkeys(large, plain) or None,
        )
        return {"writer_properties": written}

    def _refuse_other_source(self, table: DeltaTable, source: Source) -> None:
        bound = self.source_of(table)
        if bound is None:
            raise ArchiveError(
                f"{self.shown}: replaced while it was written to. Nothing was added: try again."
            )
        self._join(bound, source)

    def _make_folder(self, source: Source) -> None:
        made = [one for one in (self.path, *self.path.parents) if not one.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in DISK_FULL:
                raise
            kind = DiskRefused if error.errno in NOT_WRITABLE else ArchiveError
            problem = f"{self.shown}: the folder cannot be created ({error.strerror})"
            raise kind(f"{problem}. Choose another folder.") from None
        for folder in made:
            sync_folder(folder.parent)
        with self.digests.locked():
            if not self.manifest():  # of the latest schema once everything is recorded
                self.write_manifest(
                    {"format": self.kind.format, "schema": 1, "source": source.to_json()}, first=True
                )
        if text := self.manifest().get("source"):
            self._join(Source.read(text, f"{self.shown}, {self.kind.manifest}"), source)

    def _create_table(self, name: str, source: Source) -> None:
        if self.digests.has_log(name):
            return
        by, skipping = self.kind.partitions.get(name), self.kind.statistics.get(name)
        self._delta.DeltaTable.create(
            str(self.path / name),
            schema=self.kind.tables[name],
            mode="ignore",
            partition_by=[by] if by else None,
            configuration={STATISTICS: skipping} if skipping else None,
            description=source.to_json(),
        )

    def _bind_table(self, name: str, source: Source) -> None:
        """Add what a table of schema 1 lacks, and what is known of its source now."""
        table = self.table(name)
        with self.translate_errors(f"writing {name}/"):
            fields = self._delta.Schema.from_arrow(self.kind.tables[name]).fields
            known = _columns(table)
            if added := [field for field in fields if field.name not in known]:
                table.alter.add_columns(added, **self.hooks())
                self.committed(name, table)
            bound = self.source_of(table)
            joined = self._join(bound, source)
            if joined != bound:
                table.alter.set_table_description(joined.to_json(), **self.hooks())
                self.committed(name, table)

    def _damage(self, doing: str, error: Exception) -> DamagedArchive:
        file = re.search(r"[^\s'\"]+\.(?:parquet|json)", str(error))
        what = f"{file[0]} is missing or damaged" if file else str(error).splitlines()[0][:200]
        return self.digests.damage(f"{what} ({doing})")

    def _members(self, text: bytes) -> dict[str, Any]:
        """Read the members of a manifest; nothing if it is damaged or another kind's."""
        try:
            members = json.loads(text)
            check, schema = members.pop("check", None), members["schema"]
            whole = check == _check_of(members) or (check is None and schema == 1)
            if not whole or members["format"] != self.kind.format or not isinstance(schema, int):
                return {}
        except UNREADABLE:
            return {}
        latest = self.kind.schema
        if schema > latest:
            raise NewerArchive(
                f"{self.shown}: written by a later loopring_lab (schema {schema}; this one reads up to "
                f"{latest}). Nothing was changed. Upgrade loopring-lab to use it."
            )
        found: dict[str, Any] = members
        return found

    def _refuse_other_content(self) -> None:
        """Refuse a path that is neither empty nor missing."""
        path, shown, manifest = self.path, self.shown, self.kind.manifest
        if path.exists() and not path.is_dir():
            raise NotAnArchive(
                f"{shown} is a file. {self.kind.one.capitalize()} is a folder: use another path."
            )
        entries = path.iterdir() if path.exists() else ()
        names = sorted(entry.name for entry in entries if not entry.name.startswith(f".{manifest}."))
        if manifest in names:
            return  # another process has begun to fill it since
        if LOG in names:
            hint = (
                f"Give the {self.kind.noun}'s own folder"
                if (path.parent / manifest).exists()
                else "Use another folder"
            )
            raise NotAnArchive(
                f"{shown}: a Delta table, but not {self.kind.one}. Nothing was changed. {hint}."
            )
        if names:
            raise NotAnArchive(
                f"{shown}: contains {names[0]!r} and is not {self.kind.one}. Nothing was changed. "
                "Use an empty folder, or one that does not exist yet."
            )

    def _write_error(self, doing: str, error: Exception) -> ArchiveError | None:
        """Recognise a full disk and a read-only folder, even if a library reports them as text only."""
        numbers = set(map(int, re.findall(r"\(os error (\d+)\)", str(error))))
        if isinstance(error, OSError) and error.errno:
            numbers.add(error.errno)
        if numbers & DISK_FULL:
            return DiskRefused(
                f"{self.shown}: the disk is full ({doing}). What was committed before is safe. "
                "Make room, then run the same again: it resumes from there."
            )
        if numbers & NOT_WRITABLE:
            return DiskRefused(
                f"{self.shown}: no permission ({doing}). What was committed before is safe: "
                f"{self.kind.reading} work on a read-only folder. To add to it, allow writing "
                "or copy it elsewhere."
            )
        return None


def _columns(table: DeltaTable) -> set[str]:
    return {field.name for field in table.schema().fields}


def _usable(path: str | os.PathLike[str], kind: str) -> Path:
    """Refuse a path that no folder can have, or that deltalake reads as another."""
    text = os.fsdecode(path)
    if ADDRESS.match(text):
        raise LabError(f"An address, which may hold a key, is no path of {kind}. Give a folder.")
    try:
        text.encode()
        odd = MISREAD.search(text if "\0" in text else Path(text).resolve().as_posix())
    except (UnicodeEncodeError, RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        raise LabError(f"{text!r} cannot be the path of {kind} ({reason}). Use another folder.") from None
    if odd:
        raise LabError(f"{text!r}: deltalake misreads {odd[0]!r} in a path. Use another folder.")
    return Path(text)


def _check_of(members: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(members, sort_keys=True).encode()):08x}"


def _refuse_fork() -> None:
    """Refuse a process that was forked from one in which deltalake runs: there it would panic."""
    if not _runtime:
        _runtime.append(os.getpid())
    if _runtime[0] != os.getpid():
        raise LabError(
            "This process was forked from one that had used an archive, and deltalake does not work in it. "
            "Start it with multiprocessing.get_context('spawn'), and open the archive there."
        )
