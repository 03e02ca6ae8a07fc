"""One DuckDB file for an archive of trades or a store of blocks, opened for each transaction.

Processes take turns: a file is open only while it is read or written, and whoever meets it open waits. It is
attached to a database of its own, which can reach no other file, loads no extension and lets no setting be
changed. Only the known tables are used, by their full names and once their columns are those of the schema:
views and macros of a file that somebody else made are never run. A file is written to only if its catalogue
holds what the schema makes and nothing else, as DuckDB runs triggers with each statement. After each commit
the log beside the file is folded in, so that there is one only during a transaction and after a kill.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import random
import re
import shutil
import stat
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa

from loopring_lab import errors
from loopring_lab.bounded import given_path, open_file, printable
from loopring_lab.engine import session
from loopring_lab.errors import ArchiveError, DiskRefused, LabError, NotAnArchive
from loopring_lab.origin import Source

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

# DuckDB writes three headers of 4,096 bytes before anything else, with its mark at byte 8 of the first. A shorter
# file of its own is of a process that was killed while it created the file, and holds nothing.
HEADER = 4096
HEADERS = 3 * HEADER
MARK = b"DUCK"
MARK_PLACE = 8
# Logs that DuckDB makes beside a file.
LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")
# The beginning of a log: it names itself, its version, the 16 bytes of the file's identity and the number of the file's
# checkpoint, the last two in varints. DuckDB compares them with the file, but takes any other beginning for no log.
LOG_START = b"\x64\x00\x62\x65\x00\x02\x66\x00\x10"
LOG_HEADER = re.compile(
    re.escape(LOG_START)
    + rb"(?:[\x00-\x7f]|[\x80-\xff]\x01){16}\x67\x00[\x80-\xff]{0,9}[\x00-\x7f]\xff\xff"
)
# An entry is its length and its checksum, each of 8 bytes, and its contents. That of a commit is always the same.
ENTRY = struct.Struct("<Q8s")
COMMIT = bytes.fromhex("e7fe7d722fed3d5e640064ffff")
# A log of one transaction has at least a header of 41 bytes and a commit of 21; a shorter one holds nothing.
SHORTEST_LOG = 62
LONGEST_HEADER = 64
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
# All cursors have the global time zone; that of the machine would show times of its own. Checkpoints are made after
# commits, and never by merely closing a file.
ATTACH = """
SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false; PRAGMA disable_checkpoint_on_shutdown;
ATTACH '{path}' AS held (TYPE duckdb, {mode}); SET enable_external_access = false; SET lock_configuration = true
"""
# This table says what the file is, and which one source it is bound to.
SOURCE_TABLE = """
CREATE TABLE held.source (
    format INTEGER NOT NULL, kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL, synthetic BOOLEAN NOT NULL, exchange VARCHAR, chain_id BIGINT
);
"""
UPDATE_SOURCE = "UPDATE held.main.source SET synthetic = ?, exchange = ?, chain_id = ?"
ADD_SOURCE = "INSERT INTO held.main.source VALUES (?, ?, ?, ?, ?, ?)"
# What a catalogue may hold: each kind of thing with DuckDB's list of it, and the fact that counts besides its name.
# DuckDB prints a statement of the file and that of the schema alike; that of a table has its columns and constraints.
# No statement makes a coordinate system, of which DuckDB has a list too.
LISTS = {
    "table": ("duckdb_tables()", "sql"),
    "view": ("duckdb_views()", "sql"),
    "index": ("duckdb_indexes()", "sql"),
    "trigger": ("duckdb_triggers()", "sql"),
    "sequence": ("duckdb_sequences()", "sql"),
    "type": ("duckdb_types()", "NULL"),
    "function": ("duckdb_functions()", "NULL"),
    "schema": ("duckdb_schemas()", "parent_schema"),
}
CATALOGUE = " UNION ALL ".join(
    f"SELECT '{kind}', schema_name, {kind}_name, {fact} FROM {listed} WHERE database_name = 'held'"
    for kind, (listed, fact) in LISTS.items()
)
# Rows copied at once; those of a block store take some 20 KB each.
COPIED_AT_ONCE = 4_096

_BUSY = re.compile(
    r"Unique file handle conflict|Conflicting lock(?:.*PID (\d+))?", re.DOTALL
)
# DuckDB's errors about a block, or an entry of the log, that is not as it was written.
_DAMAGE = (
    r"^Corrupt|^Failure while replaying WAL"
    r"|^(Serialization|INTERNAL|FATAL) Error|^IO Error: .*(checksum|orrupt|read enough|WAL\b)"
)
# Each of DuckDB's messages, with the error that a user gets. Any other is passed on in DuckDB's words.
_WORDS: tuple[tuple[str, type[ArchiveError], str], ...] = (
    ("WAL (checkpoint iteration )?does not match", NotAnArchive,
     "the log beside it (.wal) is older than the file, or another file's. Nothing was changed. Move the log away, or "
     "put the file back that it belongs to"),
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
    ("Checkpoint failed", errors.DamagedArchive,
     "the file is damaged. It was not changed: what was just written is in the log beside it (.wal). {advice}"),
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
    copy: str  # how a copy is made
    same_source: str  # what to do if two names are one source


class NothingStored(NotAnArchive):
    """There is no file yet, or one of a process that was killed in its first transaction."""


class Entry(NamedTuple):
    """One thing in the catalogue of a file."""

    kind: str  # such as table
    schema: str
    name: str
    fact: str | None


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


# What the catalogue of each file held that this process has opened, and the stamp of the state in which it did.
_seen: dict[Path, tuple[tuple[Any, ...], frozenset[Entry]]] = {}


class StoredFile:
    """A DuckDB file of one kind."""

    def __init__(self, path: str | os.PathLike[str], kind: Kind) -> None:
        self.kind = kind
        self.shown = given_path(path)
        self.advice = f"Restore a backup (made by {kind.copy}), or move the file away and fill a new one: {kind.fill}."
        # A link is followed once, here: the file and its write-ahead log are side by side.
        self.path = self.shown.resolve()
        try:
            str(self.path).encode()  # DuckDB takes names that are text
            self._refuse_other_kinds()
            if "?" in str(self.path):
                # DuckDB takes what follows for the parameters of an address, and puts its log before it.
                raise ValueError(
                    "DuckDB keeps no file under a path with a question mark"
                )
        except (OSError, ValueError) as error:
            raise LabError(
                f"{printable(str(path), 200)}: no file can have this path ({error}). Use another."
            ) from None

    def described(self) -> str:
        """Describe the file in a representation."""
        return repr(str(self.shown)) + ("" if self.exists() else ", empty")

    def exists(self) -> bool:
        """Tell whether there is a file; one that DuckDB did not finish creating does not count."""
        try:
            # Closing a file drops every lock that this process has on it: no other thread may be creating it meanwhile.
            with _readers[-1].turn:
                if self.path.stat().st_size >= HEADERS:
                    return True
                with open_file(self.path, str(self.shown), "Use another path.") as file:
                    header = file.read(HEADER)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise ArchiveError(
                f"{self.shown}: cannot be read ({error.strerror}). Use another path."
            ) from None
        # A power cut leaves zeros where nothing had reached the disk; what is neither is somebody's own.
        return any(header) and not header.startswith(MARK, MARK_PLACE)

    def stamp(self) -> tuple[Any, ...]:
        """Return what changes with every transaction."""
        found: list[int] = []
        for file in (self.path, Path(f"{self.path}.wal")):
            # Whoever moves the log into the file removes it. What else cannot be asked is refused where it is opened.
            with suppress(OSError):
                facts = file.stat()
                found += [
                    facts.st_size,
                    facts.st_mtime_ns,
                    facts.st_ctime_ns,
                    facts.st_ino,
                ]
        return tuple(found)

    def _inode(self) -> int | None:
        """Return what tells the file from one that takes its place; None if there is none."""
        return self.path.stat().st_ino if self.path.exists() else None

    def source(self) -> Source | None:
        """Return the source that the file is bound to, or None while nothing is stored."""
        try:
            with self.reading() as connection:
                return bound_source(connection)
        except NothingStored:
            return None

    def nothing_yet(self) -> NothingStored:
        """Return the error for reading before anything was stored."""
        return NothingStored(
            f"{self.shown}: no {self.kind.contents} here yet. Fill it first: {self.kind.fill}."
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
        opened = closing(self._patiently(self._open_to_write))
        with self._translating(), opened as connection:
            connection.begin()
            found = self._check_to_write(connection, source)
            self._join_source(connection, source)
            yield connection
            connection.commit()
            # The contents of the log become a part of the file, so that whoever copies or moves the file has all.
            connection.execute("CHECKPOINT held")
            # A transaction of ours adds rows alone, so its own catalogue need not be read again.
            _seen[self.path] = (self.stamp(), found)

    def copy(self, path: str | os.PathLike[str]) -> None:
        """Write what the tables hold into a new file; nobody can write meanwhile."""
        target = StoredFile(path, self.kind)
        for suffix in ("", *LOGS):
            if os.path.lexists(f"{target.path}{suffix}"):
                raise LabError(
                    f"{target.shown}{suffix}: is there already. Give a file that does not exist yet."
                )
        with naming_refusals(target.shown):
            target.path.parent.mkdir(parents=True, exist_ok=True)
            # The copy is written whole or not at all: it gets its name when everything is written.
            with session.unfinished(target.path.parent) as folder:
                with self.reading() as connection:
                    whole = self._copied(folder, target.shown, connection, {})
                whole.rename(target.path)

    def rewrite(self, conditions: Mapping[str, str]) -> None:
        """Replace the file by one that has, of some tables, only the rows that meet a condition in SQL.

        In a file that rows are deleted from, DuckDB leaves their bytes until others take their place.
        """
        beside = session.unfinished(self.path.parent)
        named = naming_refusals(self.shown)
        with named, self.writing() as connection, beside as folder:
            whole = self._copied(folder, self.shown, connection, conditions)
            shutil.copymode(self.path, whole)
            whole.replace(self.path)

    def _copied(
        self,
        folder: Path,
        shown: Path,
        connection: DuckDBPyConnection,
        conditions: Mapping[str, str],
    ) -> Path:
        """Copy tables, of some only the rows that meet a condition, into a file that errors name `shown`."""
        whole = StoredFile(folder / "copy", self.kind)
        whole.shown = shown
        names = {entry.name for entry in _tables(_expected(self.kind.schema))}
        with whole.writing(bound_source(connection)) as new:
            # The source was written with the schema.
            for name in sorted(names - {"source"}):
                condition = conditions.get(name, "TRUE")
                rows = connection.sql(f"FROM held.main.{name} WHERE {condition}")
                for batch in self.batches(rows, COPIED_AT_ONCE):
                    new.register("batch", batch)
                    new.execute(f"INSERT INTO held.main.{name} BY NAME FROM batch")
        return whole.path

    def batches(self, rows: DuckDBPyRelation, size: int) -> Iterator[pa.RecordBatch]:
        """Yield rows in the order in which they are held; an error is one of this file."""
        with self._translating():
            reader = rows.to_arrow_reader(size)
        try:
            yield from reader
        except (OSError, pa.ArrowInvalid) as error:
            raise self.translated(error) from None

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

    def _open_to_write(self) -> DuckDBPyConnection:
        with naming_refusals(self.shown):
            self.path.parent.mkdir(parents=True, exist_ok=True)
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

        self._refuse_other_kinds()
        for suffix in LOGS:
            with suppress(FileNotFoundError):
                self._check_log(suffix)
        connection = duckdb.connect(config=session.limits() | SETTINGS)
        try:
            path = str(self.path).replace("'", "''")
            before = self._inode()
            connection.execute(ATTACH.format(path=path, mode=mode))
            if before not in (None, self._inode()):
                # Another process has put a new file in its place, after DuckDB had opened this one.
                raise _InUse(f"{self.shown}: was written anew just now.")
            if mode == "READ_ONLY":
                self._check(connection, self._catalogue(connection))
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

    def _refuse_other_kinds(self) -> None:
        """Refuse what is there and is no regular file: a folder, and a pipe or a device, which would never end."""
        try:
            mode = self.path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISREG(mode):
            file = self.shown / f"{self.kind.contents}.duckdb"
            raise NotAnArchive(
                f"{self.shown}: is a folder, a pipe or a device, and {self.kind.one} is one file. Give its path, such "
                f"as {file}."
            )

    def _check_log(self, suffix: str) -> None:
        """Refuse a log that DuckDB would take for none, and overwrite, or that it would read only in part.

        What is no log of DuckDB's it would write, delete or wait for.
        """
        log = Path(f"{self.path}{suffix}")
        shown = f"{self.shown}{suffix}"
        hint = f"Nothing was changed. Move it away if it is your own; if not, {self.advice[0].lower()}{self.advice[1:]}"
        before = self.stamp()
        facts = log.lstat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
            raise NotAnArchive(
                f"{shown}: is a link, a folder, a pipe or a device, or has a second name, and DuckDB would write "
                "through it. Nothing was changed. Remove it first."
            )
        with open_file(log, shown, hint) as file:
            problem = _problem_of_log(file)
        if problem and self.stamp() != before:
            # Somebody has the file open, and has written the log or folded it in meanwhile.
            raise _InUse(f"{self.shown}: in use by another process.")
        if problem:
            raise errors.DamagedArchive(
                f"{shown}: the log of the last transactions {problem}. {hint}"
            )
        # We look for the file only now, as whoever creates a file writes its log later.
        if facts.st_size and not self.exists():
            raise NotAnArchive(
                f"{shown}: a log is here without its file. Nothing was changed. Put its file back beside it, or move "
                "the log away."
            )

    def _catalogue(self, connection: DuckDBPyConnection) -> frozenset[Entry]:
        """Return all that is in the file's catalogue.

        Reading it takes a tenth of the time of reading an account, so that is done once for a state of the file.
        """
        stamp = self.stamp()
        known, found = _seen.get(self.path, ((), frozenset()))
        if known != stamp:
            found = catalogue(connection)
            _seen[self.path] = (stamp, found)
        return found

    def _check_to_write(
        self, connection: DuckDBPyConnection, source: Source | None
    ) -> frozenset[Entry]:
        """Refuse a file that holds anything that is not ours; make the tables in an empty one.

        Returns the catalogue, as the transaction leaves it.
        """
        expected = _expected(self.kind.schema)
        found = self._catalogue(connection)
        if source and not _tables(found):
            self._refuse_others(found - expected)
            facts = [self.kind.format, self.kind.noun, *dataclasses.astuple(source)]
            connection.execute(SOURCE_TABLE + self.kind.schema)
            connection.execute(ADD_SOURCE, facts)
            found = expected
        self._check(connection, found)
        self._refuse_others(found ^ expected)
        return found

    def _refuse_others(self, others: Set[Entry]) -> None:
        if not others:
            return
        names = sorted({f"{entry.kind} {entry.name}" for entry in others})
        listed = printable(", ".join(names), 300)
        raise NotAnArchive(
            f"{self.shown}: holds what loopring-lab does not make, or made otherwise: {listed}. It is read, and never "
            f"written to; nothing was changed. Make a clean copy, and use that: {self.kind.copy}."
        )

    def _check(self, connection: DuckDBPyConnection, found: frozenset[Entry]) -> None:
        """Refuse a file whose tables are not those of the schema, column by column."""
        tables = _tables(_expected(self.kind.schema))
        if not _tables(found):
            raise self.nothing_yet()
        known = self.kind.format
        formats = []
        if any(entry.name == "source" for entry in tables & found):
            query = "SELECT format FROM held.main.source WHERE kind = ? AND 1 = (SELECT count(*) FROM held.main.source)"
            formats = connection.execute(query, [self.kind.noun]).fetchall()
        if formats == [(known,)] and tables <= found:
            return
        written = formats[0][0] if len(formats) == 1 else known
        if written > known:
            raise errors.NewerArchive(
                f"{self.shown}: format {written}; this version reads up to {known}. Upgrade loopring-lab."
            )
        if written < known:
            raise NotAnArchive(
                f"{self.shown}: format {written}, of an earlier version of loopring-lab; this one reads {known}. "
                "Nothing was changed. Read it with the version that wrote it."
            )
        raise NotAnArchive(
            f"{self.shown}: a DuckDB file, but not the one of {self.kind.one}. Nothing was changed. Use another path; "
            f"a new file is filled by {self.kind.fill}."
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


@contextmanager
def naming_refusals(shown: Path) -> Iterator[None]:
    """Name the file or folder that cannot be written where the system refuses it."""
    try:
        yield
    except OSError as error:
        raise DiskRefused(
            f"{shown}: cannot be written ({error.strerror or error}). Check its folder, the room on the disk and your "
            "permissions, or use another path."
        ) from None


def bound_source(connection: DuckDBPyConnection) -> Source:
    """Return the source that an open file is bound to."""
    [row] = connection.execute(
        "SELECT name, synthetic, exchange, chain_id FROM held.main.source"
    ).fetchall()
    return Source(*row)


def catalogue(connection: DuckDBPyConnection) -> frozenset[Entry]:
    """Return all that is in the catalogue of an open file."""
    rows = connection.execute(CATALOGUE).fetchall()
    return frozenset(Entry(*row) for row in rows)


def _tables(entries: Set[Entry]) -> set[Entry]:
    return {entry for entry in entries if entry.kind == "table"}


def _problem_of_log(file: BinaryIO) -> str:
    """Return what is wrong with a log, if anything: its header, or the lengths of its entries.

    A log may end anywhere, as a process that is killed leaves it so. One that ends with a commit was whole.
    """
    start = file.read(LONGEST_HEADER)
    if len(start) < SHORTEST_LOG and start[: len(LOG_START)] == LOG_START[: len(start)]:
        return ""
    header = LOG_HEADER.match(start)
    if header is None:
        return "does not begin as one of DuckDB does"
    size = file.seek(0, os.SEEK_END)
    place = header.end()
    while place + ENTRY.size <= size:
        file.seek(place)
        head = file.read(ENTRY.size)
        if len(head) < ENTRY.size:
            return "was cut off while it was read"
        length, _ = ENTRY.unpack(head)
        place += ENTRY.size + length
    file.seek(max(0, size - len(COMMIT)))
    if place != size and file.read() == COMMIT:
        return "is damaged in the length of an entry"
    return ""


@functools.cache
def _expected(schema: str) -> frozenset[Entry]:
    """Return the catalogue that a schema makes in this version of DuckDB."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS held")
        connection.execute(SOURCE_TABLE + schema)
        return catalogue(connection)
