"""Digests of a folder's files: recorded with every commit, checked when a session first reads a file.

Two files grow by a line at a time. ``digests`` names every file of the tables with its size, its CRC-32
(checked on reading: fast, and certain to notice a flipped bit) and its BLAKE2b (for `verify`). ``copies``
holds the content of everything but bulk tables: a damaged log is restored from it. Each line has its own
check.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import itertools
import json
import os
import re
import shlex
import threading
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from loopring_lab.errors import DamagedArchive

DIGESTS, COPIES, SET_ASIDE = "digests", "copies", "set-aside"
LOG = "_delta_log"
HINT = "_last_checkpoint"
ENTRY = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
BLANK = b"\0 \n"
"""What a crash leaves of a file whose content was not on disk yet."""
COPIED_BYTES = 1 << 20
CHUNK = 1 << 18
THREADS = 4
UNREADABLE = (ValueError, KeyError, TypeError, RecursionError, OSError, pa.ArrowException)

_Stamp = tuple[int, int, int]
_checked: dict[str, _Stamp] = {}
"""Size, time and inode of the files that this process has found intact."""


class Digest(NamedTuple):
    """What a file held when it was recorded."""

    size: int
    crc: int
    blake: str


class TableLog(NamedTuple):
    """The files of a table's log by version: names are relative to the folder."""

    entries: dict[int, str]
    checkpoints: dict[int, str]

    @property
    def newest_checkpoint(self) -> int:
        return max(self.checkpoints, default=-1)


class Digests:
    """The digests of one folder; of tables that are `bulk` no copies are kept."""

    def __init__(self, folder: Path, shown: Path, advice: str, bulk: Collection[str]) -> None:
        self.folder, self.shown, self._advice, self._bulk = folder, shown, advice, bulk
        self.known: dict[str, Digest] = {}
        self.spoiled = 0
        self._newest: dict[str, int] = {}
        self._read: tuple[bytes, int] = b"", 0
        self._in_process, self._depth = threading.RLock(), 0

    def load(self) -> None:
        """Read the lines that were added since the last time."""
        with self._in_process:
            header, end = self._read
            try:
                with (self.folder / DIGESTS).open("rb") as file:
                    first = file.readline()
                    if first != header or os.fstat(file.fileno()).st_size < end:
                        end = 0
                    file.seek(end)
                    whole, newline, _ = file.read().rpartition(b"\n")
            except FileNotFoundError:
                first, end, whole, newline = b"", 0, b"", b""
            # other threads read these meanwhile: replaced at once, never emptied
            known, newest, spoiled = (self.known, self._newest, self.spoiled) if end else ({}, {}, 0)
            for record in map(_parse, whole.split(b"\n") if newline else ()):
                if record is None:
                    spoiled += 1
                elif len(record) > 1:
                    name, *digest = record
                    known[name] = Digest(*digest)
                    table, _, file_name = name.partition(f"/{LOG}/")
                    if match := ENTRY.fullmatch(file_name):
                        newest[table] = max(int(match[1]), newest.get(table, -1))
            self.known, self._newest, self.spoiled = known, newest, spoiled
            self._read = first, end + len(whole) + len(newline)

    def log(self, table: str) -> TableLog:
        """List the log of a table."""
        found = TableLog({}, {})
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(file.name for file in (self.folder / table / LOG).iterdir()):
                for pattern, files in ((ENTRY, found.entries), (CHECKPOINT, found.checkpoints)):
                    if match := pattern.fullmatch(name):
                        files[int(match[1])] = f"{table}/{LOG}/{name}"
        return found

    def has_log(self, table: str) -> bool:
        """Tell whether a table has a log that says anything."""
        with suppress(FileNotFoundError, NotADirectoryError):
            names = (file.name for file in (self.folder / table / LOG).iterdir())
            return any(ENTRY.fullmatch(name) or CHECKPOINT.fullmatch(name) for name in names)
        return False

    def unrecorded(self, table: str) -> TableLog:
        """List the part of a table's log that has no digest yet."""
        log = self.log(table)
        return TableLog(*({n: name for n, name in part.items() if name not in self.known} for part in log))

    def check_log(self, table: str) -> None:
        """Refuse the log of a table if a part of it that counts is missing or damaged."""
        self.load()
        log = self.log(table)
        newest = log.newest_checkpoint
        for number in range(newest + 1, max([*log.entries, self._newest.get(table, -1)], default=-1) + 1):
            if number not in log.entries:
                raise self.damage(f"{table}/{LOG}/{number:020}.json is missing")
        needed = [name for number, name in log.entries.items() if number > newest]
        self.check([*needed, *(name for number, name in log.checkpoints.items() if number == newest)])
        for name in {*needed, *log.checkpoints.values()} - set(self.known):
            if not self.is_whole(name):
                raise self.damage(f"{name} was cut short by a crash before its commit counted")

    def check(self, names: Iterable[str]) -> None:
        """Refuse files that are not as they were recorded; each is read once in a session."""
        stamps: dict[str, _Stamp] = {}
        for name in names:
            stamp = self._stamp(name)
            if stamp is None:
                raise self.damage(f"{name} is missing")
            if _checked.get(str(self.folder / name)) != stamp:
                stamps[name] = stamp
        unknown = [name for name in stamps if name not in self.known]
        if self.spoiled and unknown:
            raise self.damage(
                f"{DIGESTS} is damaged in {self.spoiled} places, so {unknown[0]} cannot be checked"
            )
        names = [name for name in stamps if name in self.known]
        many = sum(stamps[name][0] for name in names) > CHUNK
        for name, intact in zip(names, _map(self._is_as_read, names, THREADS if many else 1), strict=True):
            if not intact:
                raise self.damage(f"{name} is damaged")
            _checked[str(self.folder / name)] = stamps[name]

    def scrub(self) -> dict[str, str]:
        """Compare every recorded file with its digest; name those that are missing or damaged."""
        names = sorted(self.known)
        found = zip(names, _map(self._state, names, THREADS), strict=True)
        return {name: state for name, state in found if state}

    def _is_as_read(self, name: str) -> bool:
        """Compare a file with the part of its digest that is fast to compute."""
        return _measure(self.folder / name, deep=False)[:2] == self.known[name][:2]

    def damage(self, problem: str) -> DamagedArchive:
        """Return the error for a damaged file."""
        advice = self._advice.format(path=shlex.quote(str(self.shown)))
        safe = "Nothing was changed, and the rows in other files are safe."
        return DamagedArchive(f"{self.shown}: {problem}. {safe} {advice}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from recording at the same time."""
        with self._in_process, nullcontext() if self._depth else _locked(self.folder):
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def record(self, table: str, own: int | None = None, also: Iterable[str] = ()) -> None:
        """Make durable and record what has no digest yet; `own` is the version that was just committed."""
        with self.locked():
            self.load()
            fresh = self.unrecorded(table)
            names = [name for name in also if name not in self.known]
            for name in itertools.filterfalse(self.is_readable, names):
                raise self.damage(f"{name} is damaged")
            for number, name in sorted(fresh.entries.items()):
                added = self._added(table, name)
                if added is None or (number != own and not self._is_sound(table, number, name)):
                    raise self.damage(f"{name} was cut short by a crash before its commit counted")
                names += [one for one in added if one not in self.known and self._stamp(one)]
            self.seal([*names, *fresh.checkpoints.values(), *fresh.entries.values()])

    def undo_torn(self, table: str) -> None:
        """Set aside what a crash cut short at the end of a log: commits that were never reported."""
        with self.locked():
            self.load()
            for name in self.unrecorded(table).checkpoints.values():
                if not self.is_whole(name):
                    self.set_aside(name)
            entries = sorted(self.unrecorded(table).entries.items())
            torn = [number for number, name in entries if not self._is_sound(table, number, name)]
            log, newest = self.log(table), self._newest.get(table, -1)
            if not torn or torn[0] <= newest:
                return
            content = (self.folder / log.entries[torn[0]]).read_bytes()
            if newest < 0 and (torn[0] < max(log.entries) or content.strip(BLANK)):
                return  # an older archive: nothing says whether this commit was reported
            files = [name for part in log for number, name in sorted(part.items()) if number >= torn[0]]
            for name in reversed(files):
                self.set_aside(name)

    def is_readable(self, name: str) -> bool:
        """Tell whether a Parquet file can be decoded to its end."""
        try:
            with pq.ParquetFile(self.folder / name) as file:
                for _ in file.iter_batches():
                    pass
        except UNREADABLE:
            return False
        return True

    def seal(self, names: Iterable[str]) -> None:
        """Make files durable, then record their digests, and copies of all but bulk tables."""
        names = list(dict.fromkeys(names))
        if not names and (self.folder / DIGESTS).exists():
            return
        stamps = {str(self.folder / name): self._stamp(name) for name in names}
        found = dict(zip(names, _map(self._make_durable, names, 2 * THREADS), strict=True))
        folders = {folder for name in names for folder in (self.folder / name).parents}
        list(_map(sync_folder, [one for one in folders if one.is_relative_to(self.folder)], 2 * THREADS))
        copied = [name for name, digest in found.items() if self._is_copied(name, digest)]
        self._append(COPIES, ([name, self._packed(name)] for name in copied))
        self._append(DIGESTS, ([name, *digest] for name, digest in found.items()))
        sync_folder(self.folder)
        self.load()
        _checked.update({path: stamp for path, stamp in stamps.items() if stamp})

    def restore(self, name: str) -> None:
        """Write a file anew from its copy; what is there now is set aside."""
        content = self.copy(name)
        if content is None:
            raise self.damage(f"{name} is damaged, and there is no copy of it")
        if (self.folder / name).exists():
            self.set_aside(name)
        replace_file(self.folder / name, content)

    def is_whole(self, name: str) -> bool:
        """Tell whether a file of a log can be read to its end."""
        parquet = name.endswith(".parquet")
        return self.is_readable(name) if parquet else _actions(self.folder / name) is not None

    def files_in_log(self, table: str, kind: str) -> dict[str, dict[str, Any]]:
        """Return what the intact entries of a log say of the files that they 'add' or 'remove'."""
        names = [name for name in self.log(table).entries.values() if not self._state(name)]
        entries = (_actions(self.folder / name) or [] for name in names)
        return {f"{table}/{unquote(one['path'])}": one for actions in entries for one in _of(kind, actions)}

    def copies(self, *names: str) -> dict[str, str]:
        """Find the last copy of each file, or of some, that agrees with its digest; packed."""
        found = {}
        for record in map(_parse, _read_lines(self.folder / COPIES)):
            if record and len(record) > 1 and (not names or record[0] in names):
                digest = self.known.get(record[0])
                if digest is None or _digest(_unpack(record[1])) == digest:
                    found[record[0]] = record[1]
        return found

    def copy(self, name: str) -> bytes | None:
        """Return the last copy of a file that agrees with its digest."""
        text = self.copies(name).get(name)
        return None if text is None else _unpack(text)

    def keep_copy(self, name: str) -> None:
        """Add a copy of a file that has no digest."""
        with self.locked():
            self._append(COPIES, [[name, self._packed(name)]])

    def _packed(self, name: str) -> str:
        return base64.b64encode(zlib.compress((self.folder / name).read_bytes())).decode()

    def _is_copied(self, name: str, digest: Digest) -> bool:
        is_small = f"/{LOG}/" in name or name.partition("/")[0] not in self._bulk
        return is_small and digest.size <= COPIED_BYTES

    def is_spoiled(self, name: str) -> bool:
        """Tell whether one of the two files has a damaged line, or no header."""
        lines = _read_lines(self.folder / name)
        return not lines or any(_parse(line) is None for line in lines)

    def rewrite(self, forget: Iterable[str] = ()) -> None:
        """Write both files anew, without damaged lines and files to forget, and with missing copies."""
        dropped = set(forget)
        with self.locked():
            self.load()
            kept = {name: digest for name, digest in self.known.items() if name not in dropped}
            copies = self.copies()
            for name, digest in kept.items():
                lacks = name not in copies and self._is_copied(name, digest)
                if lacks and not self._state(name):
                    copies[name] = self._packed(name)
            self._replace(COPIES, ([name, text] for name, text in copies.items() if name not in dropped))
            self._replace(DIGESTS, ([name, *digest] for name, digest in kept.items()))
            self.load()

    def set_aside(self, name: str) -> Path:
        """Move a file out of the tables; it is kept."""
        names = (f"{name}.{number}" if number else name for number in itertools.count())
        places = (self.folder / SET_ASIDE / one for one in names)
        target = next(place for place in places if not place.exists())
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).replace(target)
        for folder in (target.parent, *target.parent.parents, (self.folder / name).parent):
            if folder.is_relative_to(self.folder):
                sync_folder(folder)
        return target

    def _state(self, name: str) -> str:
        try:
            found = _measure(self.folder / name)
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            if error.errno != errno.EIO:  # a bad sector
                raise
            return "damaged"
        return "" if found == self.known.get(name, found) else "damaged"

    def _stamp(self, name: str) -> _Stamp | None:
        try:
            found = (self.folder / name).stat()
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns, found.st_ino

    def _make_durable(self, name: str) -> Digest:
        with (self.folder / name).open("rb") as file:
            os.fsync(file.fileno())
        return _measure(self.folder / name)

    def _added(self, table: str, name: str) -> list[str] | None:
        """Name the files that an entry of the log adds."""
        actions = _actions(self.folder / name)
        return None if actions is None else [f"{table}/{unquote(one['path'])}" for one in _of("add", actions)]

    def _is_sound(self, table: str, number: int, name: str) -> bool:
        """Tell whether an entry can be read, and what it adds, unless a later entry removes that."""
        added = self._added(table, name)
        if not added:
            return added is not None
        later = (name for version, name in self.log(table).entries.items() if version > number)
        removed = {
            f"{table}/{unquote(one['path'])}"
            for name in later
            for one in _of("remove", _actions(self.folder / name) or [])
        }
        return all(self.is_readable(one) for one in added if one not in removed)

    def _append(self, name: str, records: Iterable[list[Any]]) -> None:
        """Add lines, after cutting off one that a crash left torn."""
        path = self.folder / name
        if not path.exists():
            self._replace(name, ())
        with path.open("r+b") as file:
            end = file.seek(0, os.SEEK_END)
            whole = _end_of_last_line(file, end)
            if whole < end:
                file.truncate(whole)
            file.seek(whole)
            file.write(b"".join(map(_line, records)))
            file.flush()
            os.fsync(file.fileno())

    def _replace(self, name: str, records: Iterable[list[Any]]) -> None:
        header = [f"{name} {uuid.uuid4().hex}"]
        replace_file(self.folder / name, b"".join(map(_line, [header, *records])))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file at once and durably: after a crash it is the old or the new one."""
    _write_beside(path, content).replace(path)
    sync_folder(path.parent)


def create_file(path: Path, content: bytes) -> None:
    """Write a file as `replace_file` does, unless another process creates it first."""
    fresh = _write_beside(path, content)
    try:
        if path.exists() and not path.read_bytes().strip(BLANK):  # emptied by a crash
            path.unlink()
        os.link(fresh, path)
    except FileExistsError:
        pass
    except OSError:  # no links here
        fresh.replace(path)
    fresh.unlink(missing_ok=True)
    sync_folder(path.parent)


def _write_beside(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    with suppress(PermissionError):  # Windows opens no folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _measure(path: Path, *, deep: bool = True) -> Digest:
    """Compute the digest of a file, its BLAKE2b only if `deep`."""
    crc, size, blake = 0, 0, hashlib.blake2b(digest_size=16)
    buffer = memoryview(bytearray(CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc, size = zlib.crc32(buffer[:count], crc), size + count
            if deep:
                blake.update(buffer[:count])
    return Digest(size, crc, blake.hexdigest())


def _digest(content: bytes) -> Digest:
    return Digest(len(content), zlib.crc32(content), hashlib.blake2b(content, digest_size=16).hexdigest())


def _map(work: Callable[[Any], Any], several: list[Any], threads: int) -> Iterator[Any]:
    if threads == 1 or len(several) < 2:
        yield from map(work, several)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, several)


def _actions(path: Path) -> list[dict[str, Any]] | None:
    """Read an entry of a log; None if it is not whole."""
    try:
        found = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except UNREADABLE:
        return None
    return found if found and all(isinstance(action, dict) for action in found) else None


def _of(kind: str, actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [action[kind] for action in actions if kind in action]


def _line(record: list[Any]) -> bytes:
    text = json.dumps(record).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse(line: bytes) -> list[Any] | None:
    check, _, text = line.partition(b" ")
    if check != b"%08x" % zlib.crc32(text):
        return None
    record: list[Any] = json.loads(text)
    return record


def _read_lines(path: Path) -> list[bytes]:
    """Read the lines of a file that grows by lines, without one that is still being written."""
    try:
        whole, newline, _ = path.read_bytes().rpartition(b"\n")
    except FileNotFoundError:
        return []
    return whole.split(b"\n") if newline else []


def _end_of_last_line(file: Any, end: int) -> int:
    while end:
        start = max(0, end - CHUNK)
        file.seek(start)
        place: int = file.read(end - start).rfind(b"\n")
        if place >= 0:
            return start + place + 1
        end = start
    return 0


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; where there are none, the lines still say what they are."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
