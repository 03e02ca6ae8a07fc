"""The folder of an archive: three Delta tables, a manifest, and clear errors for what storage refuses."""

from __future__ import annotations

import copy
import errno
import importlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa
import tenacity
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from loopring_lab.archive.digests import (
    BLANK,
    HINT,
    LOG,
    UNREADABLE,
    Digests,
    create_file,
    replace_file,
    sync_folder,
)
from loopring_lab.errors import (
    ArchiveError,
    DamagedArchive,
    DiskRefused,
    LabError,
    NewerArchive,
    NotAnArchive,
)
from loopring_lab.source import Source

if TYPE_CHECKING:
    from deltalake import DeltaTable


MANIFEST, FORMAT, SCHEMA = "archive.json", "loopring_lab archive", 2
TRADES, LISTINGS, SYNCS = "trades", "listings", "syncs"
MOMENT = pa.timestamp("us", "UTC")


def _fields(names: str, field_type: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, field_type) for name in names.split()]


SCHEMAS = {
    TRADES: pa.schema([
        *_fields("created_at", MOMENT),
        *_fields("trade_id account_id", pa.int64()),
        *_fields("market base quote side fill_type role", pa.string()),
        *_fields("size price notional fee", pa.decimal128(38, 18)),
        *_fields("fee_token", pa.string()),
        *_fields("fee_bps", pa.float64()),
        *_fields("order_hash", pa.string()),
        *_fields("block_id index_in_block token_id storage_id", pa.int64()),
        *_fields("extra asked verbatim", pa.string()),
        *_fields("retrieved_at", MOMENT),
        *_fields("listing", pa.string()),
        *_fields("version", pa.int32()),
        *_fields("current imported", pa.bool_()),
    ]),
    LISTINGS: pa.schema([
        *_fields("listing tokens markets source", pa.string()),
        *_fields("synthetic", pa.bool_()),
        *_fields("retrieved_at", MOMENT),
        *_fields("number", pa.int64()),
    ]),
    SYNCS: pa.schema([
        *_fields("account_id", pa.int64()),
        *_fields("fill_type", pa.string()),
        *_fields("synced_at", MOMENT),
        *_fields("total gone requests", pa.int64()),
        *_fields("since checked_at", MOMENT),
        *_fields("number", pa.int64()),
    ]),
}  # fmt: skip
"""The tables of an archive, in the order in which they are made."""
ADDED = ("imported", "checked_at", "number")
"""Columns that archives of schema 1 do not have; read as null until the next write adds them."""
STATISTICS = {"delta.dataSkippingStatsColumns": "created_at,trade_id,asked,version,current,extra"}
MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|[][^|\\\x00-\x1f]")
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}
ATTEMPTS = 50
CHECKPOINT_EVERY = 100
_runtime: list[int] = []
"""The process in which deltalake first did something: it does not survive a fork."""


class Conflict(Exception):
    """Another writer committed rows of the same accounts first; read again and retry."""


def _give_up(state: tenacity.RetryCallState) -> NoReturn:
    problem = f"Other writers of this archive committed first, {state.attempt_number} times in a row"
    raise ArchiveError(f"{problem}. Nothing was lost: try again when they are done.")


retry_on_conflict = tenacity.Retrying(
    stop=tenacity.stop_after_attempt(ATTEMPTS),
    wait=tenacity.wait_random_exponential(multiplier=0.01, max=0.5),
    retry=tenacity.retry_if_exception_type(Conflict),
    retry_error_callback=_give_up,
)
"""Calls a function, again as long as other writers commit first."""


class DeltaFolder:
    """The folder of one archive: opens, creates, reads and writes its tables."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.shown = _usable(path)
        self.path = self.shown.absolute()
        self._writes: Source | None = None
        try:
            self._delta: Any = importlib.import_module("deltalake")
        except ImportError:
            hint = "Install it with: pip install 'loopring-lab[archive]'"
            raise LabError(f"An archive needs the package deltalake. {hint}") from None
        self.digests = Digests(self.path, self.shown)
        with suppress(DamagedArchive):  # so that it can be repaired
            self.check()

    def check(self) -> bool:
        """Tell whether the archive has been created; raise an error if the folder is something else."""
        manifest = self.manifest()
        finished = manifest.get("schema") == SCHEMA
        logs = [self.digests.has_log(name) for name in SCHEMAS]
        if manifest and (finished or sorted(logs, reverse=True) != logs) and not all(logs):
            missing = list(SCHEMAS)[logs.index(False)]  # tables are created in this order
            raise self.digests.damage(f"the log of {missing}/ is missing")
        if finished:
            self.digests.load()
            if not self.digests.known:
                raise self.digests.damage("the digests of its files are missing")
        return bool(manifest) and all(logs)

    def manifest(self) -> dict[str, Any]:
        """Read what the archive says of itself, if need be from its copy; nothing if there is no archive."""
        try:
            return self.own_manifest()
        except DamagedArchive:
            copied = self.digests.copy(MANIFEST)
            if copied is None:
                raise
            return _members(copied, self.shown)

    def own_manifest(self) -> dict[str, Any]:
        """Read the manifest itself; nothing if the folder is empty or missing, an error if it is damaged."""
        try:
            text = (self.path / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            _refuse_other_content(self.path, self.shown)
            return {}
        except OSError as error:
            raise _write_error(self.shown, "opening it", error) or ArchiveError(
                f"{self.shown}: {MANIFEST} cannot be read ({error.strerror}). Use another folder."
            ) from None
        found = _members(text, self.shown)
        if not found and (self.path / TRADES / LOG).is_dir():
            raise self.digests.damage(f"{MANIFEST} is damaged")
        if not found and text.strip(BLANK):
            raise NotAnArchive(
                f"{self.shown}: {MANIFEST} does not belong to an archive. Nothing was changed. "
                "Use another folder."
            )
        return found

    def _recover(self) -> None:
        """Undo commits that a crash cut short, and write a torn manifest as its copy has it."""
        with self.translate_errors("undoing what a crash cut short"):
            for name in SCHEMAS:
                self.digests.undo_torn(name)
            try:
                self.own_manifest()
            except DamagedArchive:
                self.write_manifest(self.manifest())

    def write_manifest(self, manifest: dict[str, Any], *, first: bool = False) -> None:
        """Write what the archive says of itself, with a check and a copy, or keep the `first`."""
        members = {name: value for name, value in manifest.items() if name != "check"}
        text = json.dumps(members | {"check": _check_of(members)})
        (create_file if first else replace_file)(self.path / MANIFEST, text.encode() + b"\n")
        self.digests.keep_copy(MANIFEST)

    def source(self) -> Source | None:
        """Return the source that the archive is bound to, or None if it has been bound to none."""
        if not self.check():
            return None
        return self._bound(self.table(TRADES)) or self._source_of_schema_1()

    def _source_of_schema_1(self) -> Source | None:
        """Return the source by the label that schema 1 stored with its latest listing."""
        rows = self.read(LISTINGS, ["source", "synthetic", "retrieved_at"]).sort_by("retrieved_at")
        if not len(rows):
            return None
        label, synthetic, _ = rows.to_pylist()[-1].values()
        return Source(Source.at(label).name if "://" in label else label, synthetic)

    def bind(self, source: Source) -> Self:
        """Create what is missing, and return the folder for writing rows of this source, and no other.

        The manifest of a new archive decides whose it is, then metadata that no commit can miss a change of.
        """
        bound = copy.copy(self)
        if self.manifest():
            self._recover()
        bound._writes = self._join(self.source(), source)
        with self.translate_errors("creating the archive"):
            if not self.check():
                self._make_folder(source)
                with self.digests.locked():  # deltalake lets two processes create one table
                    for name in SCHEMAS:
                        self._create_table(name, source)
                        self.digests.record(name)
        self.settle()
        trades = self.table(TRADES)
        if self._bound(trades) != bound._writes:
            for name in reversed(SCHEMAS):  # trades last: they tell that all tables are bound
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
            raise self.no_trades_yet()
        manifest = self.manifest()
        with self.translate_errors("recording digests"):
            for name in SCHEMAS:
                self.digests.load()
                if any(self.digests.unrecorded(name)):
                    self.digests.undo_torn(name)
                    live = [] if manifest.get("schema") == SCHEMA else self.data_files(name)
                    self.digests.record(name, also=live)
            if manifest.get("schema") != SCHEMA:
                for name in SCHEMAS:
                    (self.path / name / LOG / HINT).unlink(missing_ok=True)
                self.write_manifest(manifest | {"schema": SCHEMA})

    def _bound(self, table: DeltaTable) -> Source | None:
        """Return the source that a table is bound to; none in schema 1."""
        text = table.metadata().description
        return Source.read(text, f"{self.shown}, description of a table") if text else None

    def _join(self, bound: Source | None, source: Source) -> Source:
        """Return what is known of one source; an error if there are two."""
        joined = source if bound is None else bound.joined(source)
        if joined is None:
            raise ArchiveError(
                f"{self.shown}: holds trades from {bound}, and these are from {source}. Trades of different "
                "sources are kept apart, and nothing was added: use another folder. If both are one source, "
                "give it the archive's name: source=archive.source, or a source.json beside saved files."
            )
        return joined

    def table(self, name: str) -> DeltaTable:
        """Open the latest state of a table."""
        if not self.check():
            raise self.no_trades_yet()
        with self.translate_errors(f"reading the log of {name}/"):
            self.digests.check_log(name)
            table: DeltaTable = self._delta.DeltaTable(str(self.path / name))
            lacking = sorted(set(SCHEMAS[name].names) - _columns(table) - set(ADDED))
        if lacking:
            raise DamagedArchive(
                f"{self.path / name}: this Delta table has no {', '.join(lacking)}, so it is not the "
                "archive's. Nothing was changed. Restore the archive's own table, or use another folder."
            )
        return table

    def read(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        where: Any = None,
        accounts: Sequence[int] | None = None,
        table: DeltaTable | None = None,
    ) -> pa.Table:
        """Read rows of a table."""
        with self.translate_errors(f"reading {name}/"):
            data = self.dataset(name, accounts, table, where)
            found: pa.Table = data.to_table(columns=list(columns or SCHEMAS[name].names), filter=where)
        return found

    def dataset(
        self,
        name: str,
        accounts: Sequence[int] | None = None,
        table: DeltaTable | None = None,
        where: Any = None,
    ) -> Any:
        """Open a table for reading in parts, its files checked as far as `where` needs them."""
        pruning = None if accounts is None else f"account_id IN ({', '.join(map(str, accounts)) or 'NULL'})"
        opened = table or self.table(name)
        with self.translate_errors(f"reading the log of {name}/"):
            here = SubTreeFileSystem(str((self.path / name).resolve()), LocalFileSystem())
            schema = None if set(SCHEMAS[name].names) <= _columns(opened) else SCHEMAS[name]
            data = opened.to_pyarrow_dataset(filesystem=here, file_pruning_predicate=pruning, schema=schema)
            self.digests.check(f"{name}/{fragment.path}" for fragment in data.get_fragments(where))
        return data

    def data_files(self, name: str, table: DeltaTable | None = None) -> list[str]:
        """List the Parquet files of a table's current state, relative to the archive's folder."""
        opened = table or self.table(name)
        # deltalake gives URIs, in which spaces and letters beyond ASCII are escaped
        depth = 2 if name == TRADES else 1
        return ["/".join([name, *uri.rsplit("/", depth)[-depth:]]) for uri in opened.file_uris()]

    def files(self) -> list[str]:
        """List the Parquet files of the current trades, each checked."""
        names = self.data_files(TRADES)
        with self.translate_errors(f"reading {TRADES}/"):
            self.digests.check(names)
        return [str(self.path.resolve() / name) for name in names]

    def append(
        self, name: str, rows: pa.Table, table: DeltaTable | None = None, claims: Sequence[str] = ()
    ) -> None:
        """Commit rows, all or none; commits that claim the same account at the same time conflict."""
        opened = table or self.table(name)
        with self.translate_errors(f"writing {name}/"):
            options = self._commit_options(opened, claims)
            self._delta.write_deltalake(opened, rows.cast(SCHEMAS[name]), mode="append", **options)
            self.committed(name, opened)

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
                **self._commit_options(table, claims),
            ).when_matched_update(
                {"current": "s.current", "imported": "s.imported"}
            ).when_not_matched_insert_all().execute()
            self.committed(TRADES, table)

    def replace(self, account_id: int, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Replace all rows of an account, all or none."""
        where = f"account_id = {int(account_id)}"
        with self.translate_errors("writing trades/"):
            options = self._commit_options(table, claims)
            data = rows.cast(SCHEMAS[TRADES])
            self._delta.write_deltalake(table, data, mode="overwrite", predicate=where, **options)
            self.committed(TRADES, table)

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
            raise _write_error(self.shown, doing, error) or Conflict(str(error)) from None
        except (OSError, pa.ArrowInvalid, DeltaError) as error:
            raise _write_error(self.shown, doing, error) or self._damage(doing, error) from None

    def no_trades_yet(self) -> NotAnArchive:
        """Return the error for an archive that has not been created."""
        return NotAnArchive(
            f"{self.shown}: no trades here yet. Fill it first: archive.sync(client, account_id=...), "
            "or loopring-lab sync."
        )

    def _commit_options(self, table: DeltaTable, claims: Sequence[str]) -> dict[str, Any]:
        if self._writes is not None:
            self._refuse_other_source(table, self._writes)
        version = table.version() + 1
        transactions = [self._delta.Transaction(claim, version) for claim in claims]
        return {
            "writer_properties": self._delta.WriterProperties(compression="ZSTD", compression_level=3),
            "commit_properties": self._delta.CommitProperties(app_transactions=transactions or None),
            **self.hooks(),
        }

    def _refuse_other_source(self, table: DeltaTable, source: Source) -> None:
        bound = self._bound(table)
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
            if error.errno in DISK_FULL | NOT_WRITABLE:
                raise
            problem = f"{self.shown}: no folder can be made there ({error.strerror})"
            raise ArchiveError(f"{problem}. Use another path.") from None
        for folder in made:
            sync_folder(folder.parent)
        with self.digests.locked():
            if not self.manifest():  # of the latest schema once everything is recorded
                self.write_manifest({"format": FORMAT, "schema": 1, "source": source.to_json()}, first=True)
        if text := self.manifest().get("source"):
            self._join(Source.read(text, f"{self.shown}, {MANIFEST}"), source)

    def _create_table(self, name: str, source: Source) -> None:
        if self.digests.has_log(name):
            return
        self._delta.DeltaTable.create(
            str(self.path / name),
            schema=SCHEMAS[name],
            mode="ignore",
            partition_by=["account_id"] if name == TRADES else None,
            configuration=STATISTICS if name == TRADES else None,
            description=source.to_json(),
        )

    def _bind_table(self, name: str, source: Source) -> None:
        """Add what a table of schema 1 lacks, and what is known of its source now."""
        table = self.table(name)
        with self.translate_errors(f"writing {name}/"):
            fields = self._delta.Schema.from_arrow(SCHEMAS[name]).fields
            known = _columns(table)
            if added := [field for field in fields if field.name not in known]:
                table.alter.add_columns(added, **self.hooks())
                self.committed(name, table)
            bound = self._bound(table)
            joined = self._join(bound, source)
            if joined != bound:
                table.alter.set_table_description(joined.to_json(), **self.hooks())
                self.committed(name, table)

    def _damage(self, doing: str, error: Exception) -> DamagedArchive:
        file = re.search(r"[^\s'\"]+\.(?:parquet|json)", str(error))
        what = f"{file[0]} is missing or damaged" if file else str(error).splitlines()[0][:200]
        return self.digests.damage(f"{what} ({doing})")


def _columns(table: DeltaTable) -> set[str]:
    return {field.name for field in table.schema().fields}


def _usable(path: str | os.PathLike[str]) -> Path:
    """Refuse a path that no folder can have, or that deltalake reads as another."""
    text = os.fsdecode(path)
    try:
        text.encode()
        odd = MISREAD.search(text if "\0" in text else Path(text).resolve().as_posix())
    except (UnicodeEncodeError, RuntimeError, OSError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        raise LabError(f"{text!r} cannot be the path of an archive ({reason}). Use another folder.") from None
    if odd:
        raise LabError(f"{text!r}: deltalake misreads {odd[0]!r} in a path. Use another folder.")
    return Path(text)


def _check_of(members: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(members, sort_keys=True).encode()):08x}"


def _members(text: bytes, shown: Path) -> dict[str, Any]:
    """Read the members of a manifest; nothing if it is damaged or not an archive's."""
    try:
        members = json.loads(text)
        check, schema = members.pop("check", None), members["schema"]
        whole = check == _check_of(members) or (check is None and schema == 1)
        if not whole or members["format"] != FORMAT or not isinstance(schema, int):
            return {}
    except UNREADABLE:
        return {}
    if schema > SCHEMA:
        raise NewerArchive(
            f"{shown}: written by a later loopring_lab (schema {schema}; this one reads up to {SCHEMA}). "
            "Nothing was changed. Upgrade loopring-lab to use it."
        )
    found: dict[str, Any] = members
    return found


def _refuse_fork() -> None:
    """Refuse a process that was forked from one in which deltalake runs: there it would panic."""
    if not _runtime:
        _runtime.append(os.getpid())
    if _runtime[0] != os.getpid():
        raise LabError(
            "This process was forked from one that had used an archive, and deltalake does not work in it. "
            "Start it with multiprocessing.get_context('spawn'), and open the archive there."
        )


def _refuse_other_content(path: Path, shown: Path) -> None:
    """Refuse a path that is neither empty nor missing."""
    if path.exists() and not path.is_dir():
        raise NotAnArchive(f"{shown} is a file. An archive is a folder: use another path.")
    entries = path.iterdir() if path.exists() else ()
    names = sorted(entry.name for entry in entries if not entry.name.startswith(f".{MANIFEST}."))
    if MANIFEST in names:
        return  # another process has begun the archive since
    if LOG in names:
        hint = "Give the archive's own folder" if (path.parent / MANIFEST).exists() else "Use another folder"
        raise NotAnArchive(f"{shown}: a Delta table, but not an archive. Nothing was changed. {hint}.")
    if names:
        raise NotAnArchive(
            f"{shown}: contains {names[0]!r} and is not an archive. Nothing was changed. "
            "Use an empty folder, or one that does not exist yet."
        )


def _write_error(path: Path, doing: str, error: Exception) -> ArchiveError | None:
    """Recognise a full disk and a read-only folder, even if a library reports them as text only."""
    numbers = set(map(int, re.findall(r"\(os error (\d+)\)", str(error))))
    if isinstance(error, OSError) and error.errno:
        numbers.add(error.errno)
    if numbers & DISK_FULL:
        return DiskRefused(
            f"{path}: the disk is full ({doing}). What was committed before is safe. "
            "Make room, then run the same again: it resumes from there."
        )
    if numbers & NOT_WRITABLE:
        return DiskRefused(
            f"{path}: no permission ({doing}). What was committed before is safe: report, trades and scan "
            "work on a read-only folder. To add to it, allow writing or copy it elsewhere."
        )
    return None
