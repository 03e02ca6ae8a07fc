"""One DuckDB file for an archive of trades or a store of blocks, opened for each transaction.

Processes take turns: a file is open only while it is read or written, and whoever meets it open waits. It is
attached to a database of its own, which can reach no other file, loads no extension and lets no setting be
changed. Only the known tables are used, by their full names and once their definitions are those of the
schema: views and macros of a file that somebody else made are never run.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from loopring_lab import errors
from loopring_lab.bounded import given_path, printable
from loopring_lab.engine import session
from loopring_lab.errors import ArchiveError, DiskRefused, LabError, NotAnArchive
from loopring_lab.origin import Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# DuckDB writes three headers of 4,096 bytes before anything else, with its mark at byte 8 of the first. A shorter
# file of its own is of a process that was killed while it created the file, and holds nothing.
HEADER = 4096
HEADERS = 3 * HEADER
MARK = b"DUCK"
MARK_PLACE = 8
# Files that DuckDB makes beside its own.
BESIDE = (".wal", ".wal.checkpoint", ".wal.recovery", ".tmp")
# Seconds to wait for others, whose transactions take less than five; until waiting is worth a word; and
# between attempts to open a file, drawn so that no two processes keep in step.
PATIENCE = 60.0
QUIET = 3.0
PAUSE = (0.002, 0.05)
SETTINGS = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    # A variable of the caller must never be taken for a table.
    "python_enable_replacements": "false",
    # HUGEINT leaves as 16 bytes, not as a float64: see `engine.frames`.
    "arrow_lossless_conversion": "true",
}
# All cursors have the global time zone; that of the machine would show times of its own. A checkpoint takes
# longer the larger the file is, so it is not made at each close: the log grows up to 16 MB before.
ATTACH = """
SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false; PRAGMA disable_checkpoint_on_shutdown;
ATTACH '{path}' AS held (TYPE duckdb, {mode}); SET enable_external_access = false; SET lock_configuration = true
"""
# What the file is, and the one source that it is bound to.
SOURCE_TABLE = """
CREATE TABLE held.source (
    format INTEGER NOT NULL, kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL, synthetic BOOLEAN NOT NULL, exchange VARCHAR, chain_id BIGINT
);
"""
UPDATE_SOURCE = "UPDATE held.main.source SET synthetic = ?, exchange = ?, chain_id = ?"
ADD_SOURCE = "INSERT INTO held.main.source VALUES (?, ?, ?, ?, ?, ?)"
# The SQL of tables; views and macros are not among them.
DEFINITIONS = "SELECT table_name, sql FROM duckdb_tables() WHERE database_name = 'held' AND schema_name = 'main'"

_BUSY = re.compile(
    r"Unique file handle conflict|Conflicting lock(?:.*PID (\d+))?", re.DOTALL
)
# What a block or an entry of the log brings about that is not as it was written.
_DAMAGE = r"^Corrupt|^(Serialization|INTERNAL|FATAL) Error|^IO Error: .*(checksum|orrupt|read enough|WAL\b)"
# What DuckDB's errors say, and the error that says it to a user. Any other is passed on in DuckDB's words.
_WORDS: tuple[tuple[str, type[ArchiveError], str], ...] = (
    ("No space left|Disk quota|File too large|not enough space|Could not write all", DiskRefused,
     "the disk is full. What was committed before is safe. Make room, then run the same again"),
    ("Read-only file system|Permission denied|Operation not permitted", DiskRefused,
     "no permission to write, or read-only media; report, trades and scan work. Make the file and its folder "
     "writable, or copy the file elsewhere"),
    ("Could not set lock", DiskRefused,
     "this drive cannot lock files, as many network drives cannot. Copy the file to a local disk"),
    ("Cannot open (file|database)", DiskRefused, "the file cannot be created or opened. Choose another place"),
    ("Out of Memory|bad_alloc", ArchiveError,
     "more memory is needed. Allow more: lab.engine.set_memory('4GiB')"),
    ("not a valid DuckDB database", NotAnArchive,
     "a file, but not one of DuckDB. Nothing was changed. Use another path, or restore a backup"),
    ("with version number|newer version|storage version", errors.NewerArchive,
     "a later version of DuckDB wrote it. Upgrade loopring-lab"),
    (_DAMAGE, errors.DamagedArchive, "the file is damaged. Nothing was changed. {advice}"),
    ("", ArchiveError, "DuckDB refuses this. What was committed before is safe. Correct the query, or try again"),
)  # fmt: skip

_log = logging.getLogger("loopring_lab")
_own = random.Random()  # noqa: S311 - spreads attempts; the caller's stream of `random` stays as it is


class Kind(NamedTuple):
    """What a kind of file holds, and how its errors speak of it."""

    noun: str
    one: str  # the noun with its article
    contents: str
    schema: str  # SQL that makes the tables and views in the database `held`
    format: int  # of the schema; each change of it takes the next number
    fill: str  # how it is filled
    same_source: str  # what to do if two names are one source


class NothingStored(NotAnArchive):
    """There is no file yet, or one of a process that was killed in its first transaction."""


class _InUse(ArchiveError):
    """Somebody else has the file open."""


class _Readers:
    """The files that are open for reading in this process.

    Closing a file drops every lock that the process has on it, so a file is never opened twice: its readers
    share one database, which is closed with the last of them.
    """

    def __init__(self) -> None:
        self.turn = threading.RLock()
        self.databases: dict[Path, DuckDBPyConnection] = {}
        self.counts = Counter[Path]()

    def join(self, path: Path, attach: Callable[[], Any]) -> Any:
        """Return a connection of its own to an open file; `attach` opens it for the first reader."""
        with self.turn:
            if not self.counts[path]:
                self.databases[path] = attach()
            self.counts[path] += 1
            return self.databases[path].cursor()

    def leave(self, path: Path) -> None:
        with self.turn:
            self.counts[path] -= 1
            if not self.counts[path]:
                self.databases.pop(path).close()


# The last are this process's. A forked child has none of DuckDB's threads, and would wait for them if it closed
# its parent's databases, so it keeps those before.
_readers = [_Readers()]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _readers.append(_Readers()))


class StoredFile:
    """A DuckDB file of one kind."""

    def __init__(self, path: str | os.PathLike[str], kind: Kind) -> None:
        self.kind = kind
        self._checked: tuple[
            Any, ...
        ] = ()  # the stamp of the state that was checked last
        self.shown = given_path(path)
        self.advice = (
            f"Restore a backup, or move the file away and fill a new one: {kind.fill}."
        )
        try:
            # A link is followed once, here: the file and its write-ahead log are side by side.
            self.path = self.shown.resolve()
            str(self.path).encode()  # DuckDB takes names that are text
            is_folder = self.path.is_dir()
        except (OSError, ValueError, RuntimeError) as error:
            raise LabError(
                f"{printable(str(path), 200)}: no file can have this path ({error}). Use another."
            ) from None
        if "?" in str(self.path):
            # DuckDB takes what follows for the parameters of an address, and puts its log before it.
            raise LabError(
                f"{printable(str(self.path), 200)}: DuckDB cannot keep a file under a path with a question mark. "
                "Use another."
            )
        if is_folder:
            file = self.shown / f"{kind.contents}.duckdb"
            raise NotAnArchive(
                f"{path}: is a folder, and {kind.one} is one file. Give its path, such as {file}."
            )

    def described(self) -> str:
        """Describe the file in a representation."""
        return repr(str(self.shown)) + ("" if self.exists() else ", empty")

    def exists(self) -> bool:
        """Tell whether there is a file; one that was never finished does not count."""
        try:
            size = self.path.stat().st_size
            return size >= HEADERS or not self._is_unfinished()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise ArchiveError(
                f"{self.shown}: cannot be read ({error.strerror}). Use another path."
            ) from None

    def _is_unfinished(self) -> bool:
        """Tell whether a file is one that DuckDB did not finish creating, and not somebody's own."""
        # Closing a file drops every lock that this process has on it: no other thread may be creating it meanwhile.
        with _readers[-1].turn:
            if self.path.stat().st_size >= HEADERS:
                return False
            header = self.path.read_bytes()[:HEADER]
        mark = header[MARK_PLACE : MARK_PLACE + len(MARK)]
        # A power cut leaves zeros where nothing had reached the disk.
        return mark == MARK or not any(header)

    def stamp(self) -> tuple[Any, ...]:
        """Return what changes with every transaction."""
        states = []
        for file in (self.path, Path(f"{self.path}.wal")):
            # Whoever moves the log into the file removes it.
            with suppress(FileNotFoundError):
                states.append(file.stat())
        return tuple((one.st_size, one.st_mtime_ns, one.st_ino) for one in states)

    def source(self) -> Source | None:
        """Return the source that the file is bound to, or None while nothing is stored."""
        try:
            with self.reading() as connection:
                return bound_source(connection)
        except NothingStored:
            return None

    def nothing_yet(self) -> NothingStored:
        """Return the error for reading before anything was stored."""
        size = self.path.stat().st_size if self.path.exists() else 0
        known = ""
        if 0 < size < HEADERS:
            known = f", only the first {size:,} bytes of a file that was cut off"
        return NothingStored(
            f"{self.shown}: no {self.kind.contents} here yet{known}. Fill it first: {self.kind.fill}."
        )

    @contextmanager
    def reading(self) -> Iterator[DuckDBPyConnection]:
        """Open the file to read; it cannot change meanwhile."""
        if not self.exists():
            raise self.nothing_yet()
        readers = _readers[-1]
        connection = self._patiently(
            lambda: readers.join(self.path, lambda: self._attach("READ_ONLY"))
        )
        try:
            with self._translating():
                yield connection
        finally:
            # A child that was forked meanwhile leaves its parent's connection alone.
            if readers is _readers[-1]:
                connection.close()
                readers.leave(self.path)

    @contextmanager
    def writing(self, source: Source | None = None) -> Iterator[DuckDBPyConnection]:
        """Open the file for one transaction, which is stored whole or not at all.

        The file is created if there is none. It must be bound to `source`, and is by its first transaction.
        """
        if source is None and not self.exists():
            raise self.nothing_yet()
        with self._closing(self._patiently(self._open_to_write)) as connection:
            connection.begin()
            if source and not connection.execute(DEFINITIONS).fetchall():
                facts = [self.kind.format, self.kind.noun, *dataclasses.astuple(source)]
                connection.execute(SOURCE_TABLE + self.kind.schema)
                connection.execute(ADD_SOURCE, facts)
            self._check(connection)
            self._join_source(connection, source)
            yield connection
            connection.commit()

    def settle(self) -> None:
        """Move what is in the write-ahead log into the file, so that it is one file."""
        if Path(f"{self.path}.wal").exists():
            with self._closing(self._patiently(self._open_to_write)) as connection:
                connection.execute("CHECKPOINT held")

    def _patiently(self, attempt: Callable[[], Any]) -> Any:
        """Open the file, again and again as long as somebody else has it open."""
        start = time.monotonic()
        is_said = False
        while True:
            try:
                with self._translating():
                    return attempt()
            except _InUse as error:
                waited = time.monotonic() - start
                if waited > PATIENCE:
                    hint = "Nothing was changed: try again when it is done."
                    raise ArchiveError(f"{error} {hint}") from None
                if waited > QUIET and not is_said:
                    is_said = True
                    _log.warning("%s Waiting for it.", error)
            time.sleep(_own.uniform(*PAUSE))

    @contextmanager
    def _translating(self) -> Iterator[None]:
        import duckdb

        try:
            with session.raising_interrupts():
                yield
        except duckdb.Error as error:
            raise self.translated(error) from None

    @contextmanager
    def _closing(self, connection: Any) -> Iterator[DuckDBPyConnection]:
        with self._translating(), closing(connection):
            yield connection

    def _open_to_write(self) -> DuckDBPyConnection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DiskRefused(
                f"{self.shown}: the folder cannot be created ({error.strerror}). Choose another place."
            ) from None
        with _readers[-1].turn:
            try:
                return self._attach("READ_WRITE")
            except Exception as error:
                # DuckDB has locked the file before it reads it, so nobody is creating it just now.
                is_cut = re.search("not a valid DuckDB|not read enough", str(error))
                if not is_cut or self.exists():
                    raise
                self.path.unlink(missing_ok=True)
            return self._attach("READ_WRITE")

    def _attach(self, mode: str) -> DuckDBPyConnection:
        """Attach the file to a database of its own that can do nothing else."""
        import duckdb

        for suffix in BESIDE:
            if Path(f"{self.path}{suffix}").is_symlink():
                raise NotAnArchive(
                    f"{self.shown}{suffix} is a link, and DuckDB would write through it. Remove it first."
                )
        connection = duckdb.connect(config=session.limits() | SETTINGS)
        try:
            path = str(self.path).replace("'", "''")
            connection.execute(ATTACH.format(path=path, mode=mode))
            # A tenth of the time of reading an account, so only once for a state of the file.
            if mode == "READ_ONLY" and self._checked != self.stamp():
                self._check(connection)
                self._checked = self.stamp()
        except BaseException:
            connection.close()
            raise
        return connection

    def _join_source(
        self, connection: DuckDBPyConnection, source: Source | None
    ) -> None:
        """Refuse a source that the file is not bound to; keep what it says more of the bound one."""
        bound = bound_source(connection)
        joined = bound.joined(source or bound)
        if joined is None:
            contents = self.kind.contents
            raise ArchiveError(
                f"{self.shown}: holds {contents} from {bound}, and these are from {source}. "
                f"{contents.capitalize()} of different sources are kept apart, and nothing was added: use "
                f"another file. {self.kind.same_source}".rstrip()
            )
        if joined != bound:
            facts = [joined.synthetic, joined.exchange, joined.chain_id]
            connection.execute(UPDATE_SOURCE, facts)

    def _check(self, connection: DuckDBPyConnection) -> None:
        """Refuse a file whose tables are not defined as ours are; a definition names types and defaults."""
        found = dict(connection.execute(DEFINITIONS).fetchall())
        if not found:
            raise self.nothing_yet()
        expected = _expected(self.kind.schema)
        known = self.kind.format
        formats = []
        if found.get("source") == expected["source"]:
            query = "SELECT format FROM held.main.source WHERE kind = ? LIMIT 2"
            formats = connection.execute(query, [self.kind.noun]).fetchall()
        if formats == [(known,)] and expected.items() <= found.items():
            return
        written = formats[0][0] if len(formats) == 1 else known
        if written > known:
            raise errors.NewerArchive(
                f"{self.shown}: format {written}; this version reads up to {known}. Upgrade loopring-lab."
            )
        problem = f"a DuckDB file, but not the one of {self.kind.one}"
        if written < known:
            problem = f"format {written}, of an earlier version of loopring-lab; this one reads {known}"
        raise NotAnArchive(
            f"{self.shown}: {problem}. Nothing was changed. Use another file, and fill it: {self.kind.fill}."
        )

    def translated(self, error: Exception) -> ArchiveError:
        """Say in words what DuckDB could not do."""
        text = str(error)
        busy = _BUSY.search(text)
        if busy:
            who = f"process {busy[1]}" if busy[1] else "another thread of this process"
            return _InUse(f"{self.shown}: in use by {who}.")
        detail = printable(text.partition("\n")[0], 300)
        kind, words = next(
            (kind, words) for pattern, kind, words in _WORDS if re.search(pattern, text)
        )
        said = f"{self.shown}: {words.format(advice=self.advice).removesuffix('.')}."
        return kind(errors.with_details(said, detail))


def bound_source(connection: DuckDBPyConnection) -> Source:
    """Return the source that an open file is bound to."""
    [row] = connection.execute(
        "SELECT name, synthetic, exchange, chain_id FROM held.main.source"
    ).fetchall()
    return Source(*row)


@functools.cache
def _expected(schema: str) -> dict[str, str]:
    """Return the definitions of a schema as this version of DuckDB writes them."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS held")
        connection.execute(SOURCE_TABLE + schema)
        return dict(connection.execute(DEFINITIONS).fetchall())
