"""The folder of an archive: three Delta tables, a manifest, and clear errors for what storage refuses."""

from __future__ import annotations

import copy
import errno
import importlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

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
        self.path = Path(path)
        self._writes: Source | None = None
        try:
            self._delta: Any = importlib.import_module("deltalake")
        except ImportError:
            hint = "Install it with: pip install 'loopring-lab[archive]'"
            raise LabError(f"An archive needs the package deltalake. {hint}") from None
        self.check()

    def check(self) -> bool:
        """Tell whether the archive has been created; raise an error if the folder is something else."""
        created = _read_schema(self.path) is not None
        logs = [self._has_log(name) for name in SCHEMAS]
        if created and sorted(logs, reverse=True) != logs:  # tables are created in this order
            missing = list(SCHEMAS)[logs.index(False)]
            raise DamagedArchive(
                f"{self.path}: the log of {missing}/ is missing, while other tables have theirs. The files "
                f"in {missing}/ are not touched. Restore the folder from a backup, or import and sync into a "
                "new archive."
            )
        return created and all(logs)

    def source(self) -> Source | None:
        """Return the source that the archive is bound to, or None if it has been bound to none."""
        if not self.check():
            return None
        if bound := self._bound(self.table(TRADES)):
            return bound
        rows = (
            self.read(LISTINGS, ["source", "synthetic", "retrieved_at"]).sort_by("retrieved_at").to_pylist()
        )
        return _of_schema_1(rows[-1]["source"], rows[-1]["synthetic"]) if rows else None

    def bind(self, source: Source) -> Self:
        """Create what is missing, and return the folder for writing rows of this source, and no other.

        The tables' own metadata names the source. The first to create a table binds it, and every commit
        conflicts with a change of metadata, so that no commit can go to a table of another source.
        """
        bound = copy.copy(self)
        bound._writes = self._join(self.source(), source)
        with self.translate_errors("creating the archive"):
            self.path.mkdir(parents=True, exist_ok=True)
            if _read_schema(self.path) != SCHEMA:
                fresh = self.path / f".{MANIFEST}.{os.getpid()}"
                fresh.write_text(json.dumps({"format": FORMAT, "schema": SCHEMA}) + "\n", encoding="utf-8")
                fresh.replace(self.path / MANIFEST)
            for name in SCHEMAS:
                self._prepare(name, bound._writes)
        return bound

    def _prepare(self, name: str, source: Source) -> None:
        """Create a table, or bring one of schema 1 to this version, and bind it."""
        if not self._has_log(name):
            self._delta.DeltaTable.create(
                str(self.path / name),
                schema=SCHEMAS[name],
                mode="ignore",
                partition_by=["account_id"] if name == TRADES else None,
                configuration=STATISTICS if name == TRADES else None,
                description=source.to_json(),
            )
        table = self._delta.DeltaTable(str(self.path / name))
        fields = self._delta.Schema.from_arrow(SCHEMAS[name]).fields
        known = _columns(table)
        if added := [field for field in fields if field.name not in known]:
            table.alter.add_columns(added)
        bound = self._bound(table)
        joined = self._join(bound, source)
        if joined != bound:
            table.alter.set_table_description(joined.to_json())

    def _bound(self, table: DeltaTable) -> Source | None:
        """Return the source that a table is bound to; none in schema 1."""
        text = table.metadata().description
        return Source.read(text, f"{self.path}, description of a table") if text else None

    def _join(self, bound: Source | None, source: Source) -> Source:
        """Return what is known of one source; an error if there are two."""
        joined = source if bound is None else bound.joined(source)
        if joined is None:
            raise ArchiveError(
                f"{self.path}: holds trades from {bound}, and these are from {source}. Trades of different "
                "sources are kept apart, and nothing was added: use another folder for these. If both are one, "
                "say so: source=archive.source, or a source.json with the archive's name beside saved files."
            )
        return joined

    def table(self, name: str) -> DeltaTable:
        """Open the latest state of a table."""
        if not self.check():
            raise self.no_trades_yet()
        with self.translate_errors(f"reading the log of {name}/"):
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
            data = self.dataset(name, accounts, table)
            found: pa.Table = data.to_table(columns=list(columns or SCHEMAS[name].names), filter=where)
        return found

    def dataset(
        self, name: str, accounts: Sequence[int] | None = None, table: DeltaTable | None = None
    ) -> Any:
        """Open a table for reading in parts."""
        pruning = None if accounts is None else f"account_id IN ({', '.join(map(str, accounts)) or 'NULL'})"
        opened = table or self.table(name)
        with self.translate_errors(f"reading the log of {name}/"):
            here = SubTreeFileSystem(str((self.path / name).resolve()), LocalFileSystem())
            schema = None if set(SCHEMAS[name].names) <= _columns(opened) else SCHEMAS[name]
            return opened.to_pyarrow_dataset(filesystem=here, file_pruning_predicate=pruning, schema=schema)

    def files(self) -> list[str]:
        """List the Parquet files of the current trades; an error if one is missing."""
        # deltalake gives URIs, in which spaces and letters beyond ASCII are escaped
        inner = [uri.rsplit("/", 2)[-2:] for uri in self.table(TRADES).file_uris()]
        files = [(self.path / TRADES).resolve().joinpath(*parts) for parts in inner]
        with self.translate_errors(f"reading {TRADES}/"):
            for file in files:
                file.stat()
        return list(map(str, files))

    def append(
        self, name: str, rows: pa.Table, table: DeltaTable | None = None, claims: Sequence[str] = ()
    ) -> None:
        """Commit rows, all or none; commits that claim the same account at the same time conflict."""
        opened = table or self.table(name)
        with self.translate_errors(f"writing {name}/"):
            options = self._commit_options(opened, claims)
            self._delta.write_deltalake(opened, rows.cast(SCHEMAS[name]), mode="append", **options)

    def merge(self, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Commit new rows of trades together with those held that they change, all or none."""
        accounts = ", ".join(map(str, sorted(set(rows["account_id"].to_pylist()))))
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

    def replace(self, account_id: int, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Replace all rows of an account, all or none."""
        where = f"account_id = {int(account_id)}"
        with self.translate_errors("writing trades/"):
            options = self._commit_options(table, claims)
            data = rows.cast(SCHEMAS[TRADES])
            self._delta.write_deltalake(table, data, mode="overwrite", predicate=where, **options)

    @contextmanager
    def translate_errors(self, doing: str) -> Iterator[None]:
        """Turn storage errors into an `ArchiveError` that says what is safe and what to do."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise _write_error(self.path, doing, error) or Conflict(str(error)) from None
        except (OSError, pa.ArrowInvalid, DeltaError) as error:
            raise _storage_error(self.path, doing, error) from None

    def no_trades_yet(self) -> NotAnArchive:
        """Return the error for an archive that has not been created."""
        return NotAnArchive(
            f"{self.path}: no trades here yet. Fill it first: archive.sync(client, account_id=...), "
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
        }

    def _refuse_other_source(self, table: DeltaTable, source: Source) -> None:
        bound = self._bound(table)
        if bound is None:
            raise ArchiveError(
                f"{self.path}: replaced while it was written to. Nothing was added: try again."
            )
        self._join(bound, source)

    def _has_log(self, name: str) -> bool:
        log = self.path / name / "_delta_log"
        with suppress(OSError):
            return any(re.match(r"\d{20}\.(json|checkpoint)", file.name) for file in log.iterdir())
        return False


def _columns(table: DeltaTable) -> set[str]:
    return {field.name for field in table.schema().fields}


def _of_schema_1(name: str, synthetic: bool) -> Source:
    """Return the identity of a source by the label that schema 1 stored."""
    return Source(Source.at(name).name if "://" in name else name, synthetic)


def _read_schema(path: Path) -> int | None:
    """Return the schema of the archive in a folder, or None if there is none yet."""
    odd = MISREAD.search(path.resolve().as_posix())
    if odd:
        raise LabError(f"{path}: deltalake misreads {odd[0]!r} in a path. Use another folder.")
    try:
        found = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        _refuse_other_content(path)
        return None
    except ValueError:
        found = None
    except OSError as error:
        raise _storage_error(path, "opening it", error) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NotAnArchive(
            f"{path}: {MANIFEST} does not belong to an archive. Nothing was changed. Use another folder."
        )
    schema = found.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise NewerArchive(
            f"{path}: written by a later loopring_lab (schema {schema}; this one reads up to {SCHEMA}). "
            "Nothing was changed. Upgrade loopring-lab to use it."
        )
    return schema


def _refuse_other_content(path: Path) -> None:
    """Refuse a path that is neither empty nor missing."""
    if path.exists() and not path.is_dir():
        raise NotAnArchive(f"{path} is a file. An archive is a folder: use another path.")
    entries = path.iterdir() if path.exists() else ()
    names = sorted(entry.name for entry in entries if not entry.name.startswith(f".{MANIFEST}."))
    if "_delta_log" in names:
        hint = "Give the archive's own folder" if (path.parent / MANIFEST).exists() else "Use another folder"
        raise NotAnArchive(f"{path}: a Delta table, but not an archive. Nothing was changed. {hint}.")
    if names:
        raise NotAnArchive(
            f"{path}: contains {names[0]!r} and is not an archive. Nothing was changed. "
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


def _storage_error(path: Path, doing: str, error: Exception) -> ArchiveError:
    if write_error := _write_error(path, doing, error):
        return write_error
    file = re.search(r"[^\s'\"]+\.(?:parquet|json)", str(error))
    what = f"{file[0]} is missing or damaged" if file else str(error).splitlines()[0][:200]
    return DamagedArchive(
        f"{path}: {what} ({doing}). Nothing was changed, and the rows in other files are safe. Restore the "
        "file from a backup; or, if a file of trades is missing, drop it with "
        f"deltalake.DeltaTable({str(path / 'trades')!r}).repair() and sync or import again."
    )
