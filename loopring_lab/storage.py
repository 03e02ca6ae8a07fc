"""One DuckDB file for an archive of trades or a store of blocks, opened for each transaction.

Processes take turns: a file is open only while it is read or written, and whoever meets it open waits. The
file is attached to a database of its own, apart from that of analyses, which can reach no other file, loads
no extension and lets no setting be changed. Of what is in the file, only the known tables are used, by their
full names and after their definitions were compared with the schema: views and macros of a file that somebody
else made are never run.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from loopring_lab.bounded import printable
from loopring_lab.engine import session
from loopring_lab.errors import (
    ArchiveError,
    DamagedArchive,
    DiskRefused,
    LabError,
    NewerArchive,
    NotAnArchive,
    with_details,
)
from loopring_lab.source import Source

if TYPE_CHECKING:
    import duckdb

FORMAT = 1
# DuckDB writes three headers of 4,096 bytes before anything else. A shorter file is of a process that was
# killed while it created the file, and holds nothing.
HEADERS = 3 * 4096
BESIDE = (".wal", ".wal.checkpoint", ".wal.recovery", ".tmp")  # files that DuckDB makes beside its own
PATIENCE = 60.0  # seconds to wait for others; their transactions take less than five
QUIET = 3.0  # seconds until waiting is worth a word
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.05  # seconds between attempts to open a file

SOURCE_TABLE = """
-- What the file is, and the one source that it is bound to.
CREATE TABLE held.source (
    format INTEGER NOT NULL, kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL, synthetic BOOLEAN NOT NULL, exchange VARCHAR, chain_id BIGINT
);
"""

_BUSY = re.compile(r"Conflicting lock|Unique file handle conflict")
_HOLDER = re.compile(r"PID (\d+)")
_ADDRESS = re.compile("[A-Za-z][A-Za-z0-9+.-]+:/")
_INVALID = re.compile(r"not a valid DuckDB database|Could not read enough bytes")
# What DuckDB's errors say, and the error that says it to a user; anything else is damage.
_WORDS: tuple[tuple[str, type[ArchiveError], str], ...] = (
    (
        "No space left|Disk quota|File too large|not enough space|Could not write all",
        DiskRefused,
        "the disk is full. What was committed before is safe. Make room, then run the same again",
    ),
    (
        "Read-only file system|Permission denied|Operation not permitted",
        DiskRefused,
        "no permission to write, or read-only media; report, trades and scan work. Make the file and its "
        "folder writable, or copy the file elsewhere",
    ),
    (
        "Could not set lock",
        DiskRefused,
        "this drive cannot lock files, as many network drives cannot. Copy the file to a local disk",
    ),
    (
        "Cannot open file|Cannot open database",
        DiskRefused,
        "the file cannot be created or opened. Choose another place",
    ),
    ("Out of Memory", ArchiveError, "more memory is needed. Allow more: lab.engine.set_memory('4GiB')"),
    (
        "not a valid DuckDB database",
        NotAnArchive,
        "a file, but not one of DuckDB. Nothing was changed. Use another path, or restore a backup",
    ),
    (
        "with version number|newer version|storage version",
        NewerArchive,
        "a later version of DuckDB wrote it. Upgrade loopring-lab",
    ),
    (
        "^(Catalog|Binder|Parser|Permission|Conversion|Invalid Input|Out of Range) Error",
        ArchiveError,
        "the query cannot be run. Correct it",
    ),
)

_log = logging.getLogger("loopring_lab")
_own = random.Random()  # noqa: S311 - spreads attempts; the caller's stream of `random` stays as it is


class Kind(NamedTuple):
    """What a kind of file holds, and how its errors speak of it."""

    noun: str
    contents: str
    schema: str  # SQL that makes the tables and views in the database `held`
    fill: str  # how it is filled
    same_source: str  # what to do if two names are one source
    marks: tuple[str, ...]  # files in the folders that earlier versions wrote

    @property
    def one(self) -> str:
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"


class _Readers:
    """The files that are open for reading in this process, each with its readers.

    Closing a file drops every lock that the process has on it, so a file is never opened twice: its readers
    share one database, which is closed with the last of them.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.turn = threading.Lock()
        self.opened: dict[Path, tuple[duckdb.DuckDBPyConnection, list[object]]] = {}

    def join(
        self, path: Path, reader: object, attach: Callable[[], duckdb.DuckDBPyConnection]
    ) -> duckdb.DuckDBPyConnection:
        """Return a connection of its own to an open file; `attach` opens it for the first reader."""
        with self.turn:
            if path not in self.opened:
                self.opened[path] = attach(), []
            connection, readers = self.opened[path]
            readers.append(reader)
            return connection.cursor()

    def leave(self, path: Path, reader: object) -> None:
        with self.turn:
            connection, readers = self.opened[path]
            readers.remove(reader)
            if not readers:
                del self.opened[path]
                connection.close()


_readers = _Readers()
# Databases that a forked child inherited stay unused with it: their threads do not exist there.
_of_parents: list[object] = []


class StoredFile:
    """A DuckDB file of one kind."""

    def __init__(self, path: str | os.PathLike[str], kind: Kind) -> None:
        self.kind = kind
        if _ADDRESS.match(os.fsdecode(path)):
            raise LabError(f"An address, which may hold a key, is no path of {kind.one}. Give a file.")
        self.shown = Path(path)
        self.advice = f"Restore a backup, or move the file away and fill a new one: {kind.fill}."
        try:
            # A link is followed once, here: the file and its write-ahead log are side by side.
            self.path = self.shown.resolve()
            str(self.path).encode()  # DuckDB takes names that are text
            is_folder = self.path.is_dir()
        except (OSError, ValueError, RuntimeError) as error:
            raise LabError(f"{printable(str(path), 200)}: no file can have this path ({error}). Use another.") from None
        if is_folder:
            raise self._folder_error()

    def described(self) -> str:
        """Describe the file in a representation."""
        return repr(str(self.shown)) if self.exists() else f"{str(self.shown)!r}, empty"

    def exists(self) -> bool:
        """Tell whether there is a file; one that was never finished does not count."""
        try:
            return self.path.stat().st_size >= HEADERS
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise ArchiveError(f"{self.shown}: cannot be read ({error.strerror}). Use another path.") from None

    def stamp(self) -> tuple[Any, ...]:
        """Return what changes with every transaction."""
        found = []
        for file in (self.path, Path(f"{self.path}.wal")):
            if file.exists():
                state = file.stat()
                found.append((state.st_size, state.st_mtime_ns, state.st_ino))
        return tuple(found)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the file to read; it cannot change meanwhile."""
        if not self.exists():
            raise self.nothing_yet()
        reader = object()
        connection = self._patiently(lambda: _readers.join(self.path, reader, self._open_to_read))
        try:
            yield connection
        except self._duckdb.Error as error:
            raise self.translated(error) from None
        finally:
            connection.close()
            _readers.leave(self.path, reader)

    @contextmanager
    def writing(self, source: Source | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the file for one transaction, which is stored whole or not at all.

        The file is created if there is none. It must be bound to `source`, and is by its first transaction.
        """
        with self._opened_to_write() as connection:
            connection.begin()
            self._begin(connection, source)
            yield connection
            connection.commit()

    def settle(self) -> None:
        """Move what is in the write-ahead log into the file, so that it is one file."""
        if Path(f"{self.path}.wal").exists():
            with self._opened_to_write() as connection:
                connection.execute("CHECKPOINT held")

    @contextmanager
    def _opened_to_write(self) -> Iterator[duckdb.DuckDBPyConnection]:
        connection = self._patiently(self._open_to_write)
        try:
            yield connection
        except self._duckdb.Error as error:
            raise self.translated(error) from None
        finally:
            connection.close()

    def source(self) -> Source | None:
        """Return the source that the file is bound to, or None while nothing is stored."""
        if not self.exists():
            return None
        try:
            with self.reading() as connection:
                return bound_source(connection)
        except NotAnArchive as error:
            # A process was killed, or ran out of disk, in its first transaction.
            if str(error) != str(self.nothing_yet()):
                raise
        return None

    def nothing_yet(self) -> NotAnArchive:
        """Return the error for reading before anything was stored."""
        return NotAnArchive(f"{self.shown}: no {self.kind.contents} here yet. Fill it first: {self.kind.fill}.")

    # Opening

    @functools.cached_property
    def _duckdb(self) -> Any:
        return importlib.import_module("duckdb")  # which takes a while, so not before it is needed

    def _patiently(self, attempt: Callable[[], Any]) -> Any:
        """Open the file, again and again as long as somebody else has it open."""
        start = time.monotonic()
        pause = SHORTEST_PAUSE
        is_said = False
        while True:
            try:
                return attempt()
            except self._duckdb.Error as error:
                if not _BUSY.search(str(error)):
                    raise self.translated(error) from None
                waited = time.monotonic() - start
                if waited > PATIENCE:
                    raise self._busy_error(str(error)) from None
                if waited > QUIET and not is_said:
                    _log.warning("%s: waiting for %s, which is using it.", self.shown, _holder(str(error)))
                    is_said = True
            time.sleep(pause * _own.uniform(0.5, 1.5))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _open_to_read(self) -> duckdb.DuckDBPyConnection:
        connection = self._attach("READ_ONLY")
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_write(self) -> duckdb.DuckDBPyConnection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DiskRefused(
                f"{self.shown}: the folder cannot be created ({error.strerror}). Choose another place."
            ) from None
        with _readers.turn:
            try:
                return self._attach("READ_WRITE")
            except self._duckdb.Error as error:
                # DuckDB has locked the file before it reads it, so nobody is creating it just now.
                if not _INVALID.search(str(error)) or self.exists():
                    raise
                self.path.unlink(missing_ok=True)
            return self._attach("READ_WRITE")

    def _attach(self, mode: str) -> duckdb.DuckDBPyConnection:
        """Attach the file to a database of its own that can do nothing else."""
        for suffix in BESIDE:
            if Path(f"{self.path}{suffix}").is_symlink():
                raise NotAnArchive(
                    f"{self.shown}{suffix} is a link, and DuckDB would write through it. Remove it first."
                )
        connection: duckdb.DuckDBPyConnection = self._duckdb.connect(
            config=session.limits()
            | {
                "autoload_known_extensions": "false",
                "autoinstall_known_extensions": "false",
                "allow_community_extensions": "false",
                "python_enable_replacements": "false",
                # HUGEINT leaves as 16 bytes, not as a float64: see `engine.frames`.
                "arrow_lossless_conversion": "true",
            }
        )
        try:
            # All cursors have the global setting; that of the machine would show times of its own zone.
            connection.execute("SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false")
            # A checkpoint takes longer the larger the file is. The log does as well, up to 16 MB.
            connection.execute("PRAGMA disable_checkpoint_on_shutdown")
            name = str(self.path).replace("'", "''")
            connection.execute(f"ATTACH '{name}' AS held ({mode})")
            connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        except BaseException:
            connection.close()
            raise
        return connection

    # What is in the file

    def _begin(self, connection: duckdb.DuckDBPyConnection, source: Source | None) -> None:
        """Make the tables of a new file; bind it to a source, or refuse one that it is not bound to."""
        if not _definitions(connection):
            if source is None:
                raise self.nothing_yet()
            connection.execute(SOURCE_TABLE + self.kind.schema)
            bound = source
            connection.execute(
                "INSERT INTO held.main.source VALUES (?, ?, ?, ?, ?, ?)",
                [FORMAT, self.kind.noun, source.name, source.synthetic, source.exchange, source.chain_id],
            )
            return
        self._check(connection)
        bound = bound_source(connection)
        joined = bound if source is None else bound.joined(source)
        if joined is None:
            raise ArchiveError(
                f"{self.shown}: holds {self.kind.contents} from {bound}, and these are from {source}. "
                f"{self.kind.contents.capitalize()} of different sources are kept apart, and nothing was "
                f"added: use another file. {self.kind.same_source}".rstrip()
            )
        if joined != bound:
            known = [joined.exchange, joined.chain_id]
            connection.execute("UPDATE held.main.source SET exchange = ?, chain_id = ?", known)

    def _check(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Refuse a file whose tables are not defined as ours are; a definition names types and defaults."""
        found = _definitions(connection)
        if not found:
            raise self.nothing_yet()
        expected = _expected(self.kind.schema)
        rows: list[tuple[int, str]] = []
        if found.get("source") == expected["source"]:
            rows = connection.execute("SELECT format, kind FROM held.main.source LIMIT 2").fetchall()
        if len(rows) == 1 and rows[0][1] == self.kind.noun and rows[0][0] > FORMAT:
            raise NewerArchive(
                f"{self.shown}: format {rows[0][0]}; this version reads up to {FORMAT}. Upgrade loopring-lab."
            )
        ours = {name: found.get(name) for name in expected}
        if rows != [(FORMAT, self.kind.noun)] or ours != expected:
            raise NotAnArchive(
                f"{self.shown}: a DuckDB file, but not the one of {self.kind.one}. Nothing was changed. Use "
                "another file."
            )

    # Errors

    def _folder_error(self) -> NotAnArchive:
        marks = [mark for mark in self.kind.marks if (self.path / mark).exists()]
        problem = "is a folder"
        if marks:
            problem += f", as an earlier version of loopring-lab kept {self.kind.contents}"
        return NotAnArchive(
            f"{self.shown}: {problem}. Now it is one file: give its path, such as {self.shown}.duckdb, and "
            f"fill it anew: {self.kind.fill}."
        )

    def _busy_error(self, text: str) -> ArchiveError:
        return ArchiveError(
            f"{self.shown}: used by {_holder(text)} for more than {PATIENCE:.0f} seconds. Nothing was changed: "
            "try again when it is done."
        )

    def translated(self, error: Exception) -> ArchiveError:
        """Say in words what DuckDB could not do."""
        text = str(error)
        detail = printable(text.partition("\n")[0], 300)
        for pattern, kind, words in _WORDS:
            if re.search(pattern, text):
                return kind(with_details(f"{self.shown}: {words}.", detail))
        damage = f"{self.shown}: the file is damaged. Nothing was changed. {self.advice}"
        return DamagedArchive(with_details(damage, detail))


def bound_source(connection: duckdb.DuckDBPyConnection) -> Source:
    """Return the source that an open file is bound to."""
    [row] = connection.execute("SELECT name, synthetic, exchange, chain_id FROM held.main.source").fetchall()
    return Source(*row)


def _definitions(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the SQL of the tables in a file by name; views and macros are not among them."""
    rows = connection.execute(
        "SELECT table_name, sql FROM duckdb_tables() WHERE database_name = 'held' AND schema_name = 'main'"
    ).fetchall()
    return dict(rows)


@functools.cache
def _expected(schema: str) -> dict[str, str]:
    """Return the definitions of a schema as this version of DuckDB writes them."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS held")
        connection.execute(SOURCE_TABLE + schema)
        return _definitions(connection)


def _holder(text: str) -> str:
    """Name who has a file open, by the error for opening it."""
    process = _HOLDER.search(text)
    return f"process {process[1]}" if process else "another thread of this process"


def _forget_readers_of_parent() -> None:
    _of_parents.append(_readers.opened)
    _readers.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_readers_of_parent)
