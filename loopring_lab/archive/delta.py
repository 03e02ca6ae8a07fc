"""The folder of an archive: three Delta tables, a manifest, and storage errors in words."""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

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

if TYPE_CHECKING:
    from deltalake import DeltaTable


TRADES, LISTINGS, SYNCS = "trades", "listings", "syncs"
MOMENT = pa.timestamp("us", "UTC")
AMOUNT = pa.decimal128(38, 18)
SCHEMAS = {
    TRADES: pa.schema(
        [
            ("created_at", MOMENT),
            ("trade_id", pa.int64()),
            ("account_id", pa.int64()),
            *((name, pa.string()) for name in ("market", "base", "quote", "side", "fill_type", "role")),
            *((name, AMOUNT) for name in ("size", "price", "notional", "fee")),
            ("fee_token", pa.string()),
            ("fee_bps", pa.float64()),
            ("order_hash", pa.string()),
            *((name, pa.int64()) for name in ("block_id", "index_in_block", "token_id", "storage_id")),
            ("extra", pa.string()),
            ("asked", pa.string()),
            ("verbatim", pa.string()),
            ("retrieved_at", MOMENT),
            ("listing", pa.string()),
            ("version", pa.int32()),
            ("current", pa.bool_()),
        ]
    ),
    LISTINGS: pa.schema(
        [
            *((name, pa.string()) for name in ("listing", "tokens", "markets", "source")),
            ("synthetic", pa.bool_()),
            ("retrieved_at", MOMENT),
        ]
    ),
    SYNCS: pa.schema(
        [
            ("account_id", pa.int64()),
            ("fill_type", pa.string()),
            ("synced_at", MOMENT),
            *((name, pa.int64()) for name in ("total", "gone", "requests")),
            ("since", MOMENT),
        ]
    ),
}
"""The tables of an archive, in the order in which they are made."""
STATISTICS = {"delta.dataSkippingStatsColumns": "created_at,trade_id,asked,version,current,extra"}


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
ROWS_SAFE = "What was committed before is safe"


class Conflict(Exception):
    """Another writer committed rows of the same accounts first: look again and try again."""


ATTEMPTS = 50


def _give_up(state: tenacity.RetryCallState) -> NoReturn:
    raise ArchiveError(
        f"Other writers of this archive came first {state.attempt_number} times. Nothing was lost: try again "
        "when they are done."
    )


retry_on_conflict = tenacity.Retrying(
    stop=tenacity.stop_after_attempt(ATTEMPTS),
    wait=tenacity.wait_random_exponential(multiplier=0.01, max=0.5),
    retry=tenacity.retry_if_exception_type(Conflict),
    retry_error_callback=_give_up,
)
"""Calls a function again while other writers come first."""


@contextmanager
def translate_errors(path: Path, doing: str) -> Iterator[None]:
    """Raise what goes wrong with the folder of an archive as an `ArchiveError`."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        raise _refusal(path, doing, error) or Conflict(str(error)) from None
    except (OSError, pa.ArrowInvalid, DeltaError) as error:
        raise storage_error(path, doing, error) from None


def storage_error(path: Path, doing: str, error: Exception) -> ArchiveError:
    """Say in words what went wrong with the folder of an archive."""
    return _refusal(path, doing, error) or _damage(path, doing, error)


def _refusal(path: Path, doing: str, error: Exception) -> ArchiveError | None:
    """Recognize a full disk and a closed folder, also where another library reports them as text."""
    numbers = {int(number) for number in re.findall(r"\(os error (\d+)\)", str(error))}
    numbers |= {error.errno} if isinstance(error, OSError) and error.errno else set()
    if numbers & set(_FULL):
        return DiskRefused(
            f"{path}: the disk is full ({doing}). {ROWS_SAFE}, and what was not is not read. "
            "Make room, then run the same again: it goes on from there."
        )
    if numbers & set(_CLOSED):
        return DiskRefused(
            f"{path}: no permission ({doing}). {ROWS_SAFE}. Reading needs no writing: report, trades and "
            "scan work on a folder that can be read. To add to it, allow writing or copy it elsewhere."
        )
    return None


def _damage(path: Path, doing: str, error: Exception) -> ArchiveError:
    file = re.search(r"[^\s'\"]+\.(?:parquet|json)", str(error))
    what = f"{file[0]} is missing or damaged" if file else str(error).splitlines()[0][:200]
    return DamagedArchive(
        f"{path}: {what} ({doing}). Nothing was changed, and the rows in other files are safe. Put the file "
        "back from a backup; or, for a missing file of trades, let go of it with "
        f"deltalake.DeltaTable({str(path / 'trades')!r}).repair() and sync or import again."
    )


MARK, FORMAT, SCHEMA = "archive.json", "loopring_lab archive", 1
MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|[][^|\\\x00-\x1f]")


def write_manifest(path: Path) -> None:
    """Mark a folder as an archive."""
    fresh = path / f".{MARK}.{os.getpid()}"
    fresh.write_text(json.dumps({"format": FORMAT, "schema": SCHEMA}) + "\n", encoding="utf-8")
    fresh.replace(path / MARK)


def has_manifest(path: Path) -> bool:
    """Tell whether a folder is marked as an archive."""
    odd = MISREAD.search(path.resolve().as_posix())
    if odd:
        raise LabError(f"{path}: {odd[0]!r} in a path is misread by deltalake. Name another folder.")
    try:
        found = json.loads((path / MARK).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        _may_begin(path)
        return False
    except ValueError:
        found = None
    except OSError as error:
        raise storage_error(path, "opening it", error) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NotAnArchive(f"{path}: {MARK} is not an archive's. Nothing was changed. Name another folder.")
    schema = found.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise NewerArchive(
            f"{path}: written by a later loopring_lab (schema {schema}; this one reads up to {SCHEMA}). "
            "Nothing was changed, all of it is safe. Upgrade loopring-lab to use it."
        )
    return True


def _may_begin(path: Path) -> None:
    """Refuse a path where something else than a new archive is."""
    if path.exists() and not path.is_dir():
        raise NotAnArchive(f"{path} is a file. An archive is a folder: name another one.")
    there = (
        [entry.name for entry in path.iterdir() if not entry.name.startswith(f".{MARK}.")]
        if path.exists()
        else []
    )
    if "_delta_log" in there:
        hint = "Give the archive's own folder" if (path.parent / MARK).exists() else "Name another folder"
        raise NotAnArchive(f"{path}: a Delta table, but not an archive. Nothing was changed. {hint}.")
    if there:
        raise NotAnArchive(
            f"{path}: holds {sorted(there)[0]!r} and is not an archive. Nothing was changed. "
            "Name an empty folder, or one that does not exist yet."
        )


class DeltaFolder:
    """Opens, makes and appends to the tables of one archive."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._delta = _deltalake()
        self.check()

    def check(self) -> bool:
        """Tell whether the archive has been begun, or raise where the folder is something else."""
        begun = has_manifest(self.path)
        there = [self._has_log(name) for name in SCHEMAS]
        if not begun:
            return False
        if sorted(there, reverse=True) != there:
            gone = list(SCHEMAS)[there.index(False)]
            raise DamagedArchive(
                f"{self.path}: the log of {gone}/ is gone, while other tables are there. The files in "
                f"{gone}/ are not touched. Put the folder back from a backup, or import and sync into a new "
                "archive."
            )
        return all(there)

    def begin(self) -> None:
        """Make the folder and its tables where they are not there yet."""
        if self.check():
            return
        with self.translate_errors("making the archive"):
            self.path.mkdir(parents=True, exist_ok=True)
            write_manifest(self.path)
            for name, schema in SCHEMAS.items():
                self._delta.DeltaTable.create(
                    str(self.path / name),
                    schema=schema,
                    mode="ignore",
                    partition_by=["account_id"] if name == TRADES else None,
                    configuration=STATISTICS if name == TRADES else None,
                )

    def table(self, name: str) -> DeltaTable:
        """Open the latest state of a table."""
        if not self.check():
            raise self.nothing_yet()
        with self.translate_errors(f"reading the log of {name}/"):
            table: DeltaTable = self._delta.DeltaTable(str(self.path / name))
            found = {field.name for field in table.schema().fields}
        if not found >= set(SCHEMAS[name].names):
            lost = ", ".join(sorted(set(SCHEMAS[name].names) - found))
            raise DamagedArchive(
                f"{self.path / name}: this Delta table has no {lost}, so it is not the archive's. Nothing "
                "was changed. Put the archive's own table back, or name another folder."
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
        chosen = None if accounts is None else f"account_id IN ({', '.join(map(str, accounts)) or 'NULL'})"
        opened = table or self.table(name)
        with self.translate_errors(f"reading the log of {name}/"):
            here = SubTreeFileSystem(str((self.path / name).resolve()), LocalFileSystem())
            return opened.to_pyarrow_dataset(filesystem=here, file_pruning_predicate=chosen)

    def files(self) -> list[str]:
        """List the Parquet files that the trades consist of now, each seen to be there."""
        # deltalake gives addresses, in which a folder's spaces and letters beyond ASCII are written otherwise
        inner = [address.rsplit("/", 2)[-2:] for address in self.table(TRADES).file_uris()]
        files = [(self.path / TRADES).resolve().joinpath(*parts) for parts in inner]
        with self.translate_errors(f"reading {TRADES}/"):
            for file in files:
                file.stat()
        return list(map(str, files))

    def append(self, name: str, rows: pa.Table, table: DeltaTable | None = None, claims: Any = ()) -> None:
        """Commit rows, all or none."""
        opened = table or self.table(name)
        with self.translate_errors(f"writing {name}/"):
            self._delta.write_deltalake(
                opened,
                rows.cast(SCHEMAS[name]),
                mode="append",
                writer_properties=self._writer_properties(),
                commit_properties=self._commit_properties(opened, claims),
            )

    def merge(self, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Commit new rows of trades together with those held whose ``current`` they change, all or none."""
        accounts = ", ".join(map(str, sorted(set(rows["account_id"].to_pylist()))))
        same = " AND ".join(f"t.{name} = s.{name}" for name in ("account_id", "asked", "version", "verbatim"))
        with self.translate_errors("writing trades/"):
            table.merge(
                rows.cast(SCHEMAS[TRADES]),
                f"t.account_id IN ({accounts}) AND {same}",
                source_alias="s",
                target_alias="t",
                writer_properties=self._writer_properties(),
                commit_properties=self._commit_properties(table, claims),
            ).when_matched_update({"current": "s.current"}).when_not_matched_insert_all().execute()

    def replace(self, account_id: int, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Put other rows in the place of all rows of an account, all or none."""
        with self.translate_errors("writing trades/"):
            self._delta.write_deltalake(
                table,
                rows.cast(SCHEMAS[TRADES]),
                mode="overwrite",
                predicate=f"account_id = {int(account_id)}",
                writer_properties=self._writer_properties(),
                commit_properties=self._commit_properties(table, claims),
            )

    def translate_errors(self, doing: str) -> AbstractContextManager[None]:
        """Turn what disk, log and files report into errors that say what is safe and what to do."""
        return translate_errors(self.path, doing)

    def nothing_yet(self) -> NotAnArchive:
        """Say that there is nothing to read yet."""
        return NotAnArchive(
            f"{self.path}: no trades here yet. Fill it first: archive.sync(client, account_id=...), "
            "or loopring-lab sync."
        )

    def _commit_properties(self, table: DeltaTable, claims: Any) -> Any:
        number = table.version() + 1
        return self._delta.CommitProperties(
            app_transactions=[self._delta.Transaction(claim, number) for claim in claims] or None
        )

    def _writer_properties(self) -> Any:
        return self._delta.WriterProperties(compression="ZSTD", compression_level=3)

    def _has_log(self, name: str) -> bool:
        log = self.path / name / "_delta_log"
        with suppress(OSError):
            return any(re.match(r"\d{20}\.(json|checkpoint)", file.name) for file in log.iterdir())
        return False


def _deltalake() -> Any:
    try:
        return importlib.import_module("deltalake")
    except ImportError:
        hint = "pip install 'loopring-lab[archive]'"
        raise LabError(f"An archive needs the package deltalake. Install it with: {hint}") from None
