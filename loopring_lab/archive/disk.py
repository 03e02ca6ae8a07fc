"""The folder of an archive: three Delta tables, a mark that tells what it is, and errors in words."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from loopring_lab.archive.mark import mark, marked
from loopring_lab.archive.shape import LISTINGS, SCHEMAS, STATISTICS, SYNCS, TRADES
from loopring_lab.archive.trouble import told
from loopring_lab.errors import DamagedArchive, LabError, NotAnArchive

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["LISTINGS", "SYNCS", "TRADES", "Disk"]


class Disk:
    """Opens, makes and appends to the tables of one archive.

    Parameters
    ----------
    path : path
        Its folder; made when something is first written.

    Raises
    ------
    NotAnArchive
        There is something else at the path.
    NewerArchive
        A later version wrote it.
    DamagedArchive
        One of its tables is gone.
    LabError
        The package deltalake is not installed, or cannot work in that path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._delta = _deltalake()
        self.check()

    def check(self) -> bool:
        """Tell whether the archive has been begun, or raise where the folder is something else.

        Returns
        -------
        bool
            False where there is nothing yet.
        """
        begun = marked(self.path)
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
        with self.told("making the archive"):
            self.path.mkdir(parents=True, exist_ok=True)
            mark(self.path)
            for name, schema in SCHEMAS.items():
                self._delta.DeltaTable.create(
                    str(self.path / name),
                    schema=schema,
                    mode="ignore",
                    partition_by=["account_id"] if name == TRADES else None,
                    configuration=STATISTICS if name == TRADES else None,
                )

    def table(self, name: str) -> DeltaTable:
        """Open the latest state of a table.

        Parameters
        ----------
        name : str
            One of `SCHEMAS`.

        Returns
        -------
        DeltaTable
            It stays as it is, whatever others write.
        """
        if not self.check():
            raise self.nothing_yet()
        with self.told(f"reading the log of {name}/"):
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
        """Read rows of a table.

        Parameters
        ----------
        name : str
            One of `SCHEMAS`.
        columns : sequence of str, optional
            Those wanted.
        where : pyarrow.compute.Expression, optional
            Which rows.
        accounts : sequence of int, optional
            Only their partitions.
        table : DeltaTable, optional
            A state opened before.

        Returns
        -------
        pyarrow.Table
            The rows, in no order.
        """
        with self.told(f"reading {name}/"):
            data = self.dataset(name, accounts, table)
            found: pa.Table = data.to_table(columns=list(columns or SCHEMAS[name].names), filter=where)
        return found

    def dataset(
        self, name: str, accounts: Sequence[int] | None = None, table: DeltaTable | None = None
    ) -> Any:
        """Open a table for reading in parts.

        Parameters
        ----------
        name : str
            One of `SCHEMAS`.
        accounts : sequence of int, optional
            Only their partitions.
        table : DeltaTable, optional
            A state opened before.

        Returns
        -------
        pyarrow.dataset.Dataset
            Nothing is read yet.
        """
        chosen = None if accounts is None else f"account_id IN ({', '.join(map(str, accounts)) or 'NULL'})"
        opened = table or self.table(name)
        with self.told(f"reading the log of {name}/"):
            here = SubTreeFileSystem(str((self.path / name).resolve()), LocalFileSystem())
            return opened.to_pyarrow_dataset(filesystem=here, file_pruning_predicate=chosen)

    def files(self) -> list[str]:
        """List the Parquet files that the trades consist of now, each seen to be there.

        Returns
        -------
        list of str
            Their full paths.
        """
        # deltalake gives addresses, in which a folder's spaces and letters beyond ASCII are written otherwise
        inner = [address.rsplit("/", 2)[-2:] for address in self.table(TRADES).file_uris()]
        files = [(self.path / TRADES).resolve().joinpath(*parts) for parts in inner]
        with self.told(f"reading {TRADES}/"):
            for file in files:
                file.stat()
        return list(map(str, files))

    def append(self, name: str, rows: pa.Table, table: DeltaTable | None = None, claims: Any = ()) -> None:
        """Commit rows, all or none.

        Parameters
        ----------
        name : str
            One of `SCHEMAS`.
        rows : pyarrow.Table
            Of that schema.
        table : DeltaTable, optional
            The state that the rows were compared with.
        claims : iterable of str
            What nobody else may have claimed since that state.

        Raises
        ------
        Conflict
            Somebody has.
        """
        opened = table or self.table(name)
        with self.told(f"writing {name}/"):
            self._delta.write_deltalake(
                opened,
                rows.cast(SCHEMAS[name]),
                mode="append",
                writer_properties=self._writing(),
                commit_properties=self._claiming(opened, claims),
            )

    def merge(self, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Commit new rows of trades together with those held whose ``current`` they change, all or none.

        Parameters
        ----------
        rows : pyarrow.Table
            Both.
        table : DeltaTable
            The state that they were compared with.
        claims : sequence of str
            As for `append`.
        """
        accounts = ", ".join(map(str, sorted(set(rows["account_id"].to_pylist()))))
        same = " AND ".join(f"t.{name} = s.{name}" for name in ("account_id", "asked", "version", "verbatim"))
        with self.told("writing trades/"):
            table.merge(
                rows.cast(SCHEMAS[TRADES]),
                f"t.account_id IN ({accounts}) AND {same}",
                source_alias="s",
                target_alias="t",
                writer_properties=self._writing(),
                commit_properties=self._claiming(table, claims),
            ).when_matched_update({"current": "s.current"}).when_not_matched_insert_all().execute()

    def replace(self, account_id: int, rows: pa.Table, table: DeltaTable, claims: Sequence[str]) -> None:
        """Put other rows in the place of all rows of an account, all or none.

        Parameters
        ----------
        account_id : int
            Whose rows.
        rows : pyarrow.Table
            What they become.
        table : DeltaTable
            The state that they were read from.
        claims : sequence of str
            As for `append`.
        """
        with self.told("writing trades/"):
            self._delta.write_deltalake(
                table,
                rows.cast(SCHEMAS[TRADES]),
                mode="overwrite",
                predicate=f"account_id = {int(account_id)}",
                writer_properties=self._writing(),
                commit_properties=self._claiming(table, claims),
            )

    def told(self, doing: str) -> AbstractContextManager[None]:
        """Turn what disk, log and files report into errors that say what is safe and what to do.

        Parameters
        ----------
        doing : str
            What is being done.

        Returns
        -------
        context manager
            Around the work.
        """
        return told(self.path, doing)

    def nothing_yet(self) -> NotAnArchive:
        """Say that there is nothing to read yet.

        Returns
        -------
        NotAnArchive
            To be raised.
        """
        return NotAnArchive(
            f"{self.path}: no trades here yet. Fill it first: archive.sync(client, account_id=...), "
            "or loopring-lab sync."
        )

    def _claiming(self, table: DeltaTable, claims: Any) -> Any:
        number = table.version() + 1
        return self._delta.CommitProperties(
            app_transactions=[self._delta.Transaction(claim, number) for claim in claims] or None
        )

    def _writing(self) -> Any:
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
