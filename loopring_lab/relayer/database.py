"""Accounts and key updates in SQLite; each step is one transaction, so a kill at any moment loses nothing."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from loopring_lab.errors import LabError

Status = Literal["received", "processing", "processed", "failed"]
SCHEMA = Path(__file__).with_name("schema.sql")
PRIVATE = 0o600
WRITE_SECONDS, READ_SECONDS = 5.0, 0.5
"""How long to wait for a lock that another program holds; only a program at odds with WAL blocks reads."""
PENDING = "status IN ('received', 'processing')"


class Account(NamedTuple):
    id: int
    owner: str
    x: str
    y: str
    nonce: int
    key_nonce: int
    key_seed: str
    is_frozen: bool = False


class KeyChange(NamedTuple):
    """What an accepted request changes, and the fee and deadline it was signed with."""

    account: int
    hash: str
    x: str
    y: str
    nonce: int
    key_seed: str
    fee_token: int
    fee: str
    valid_until: int


class StoredUpdate(NamedTuple):
    number: int
    change: KeyChange
    received_at: int
    changed_at: int
    status: Status
    reason: str


class Store:
    """Accounts, key updates and a few fixed values, in a private file or in memory.

    Reads have a connection of their own, so that none waits for a writer, be it another program.
    """

    def __init__(self, path: str | Path | None, identity: Mapping[str, str]) -> None:
        self._lock = self._read_lock = threading.RLock()
        try:
            self._db = self._reader = self._open(path, WRITE_SECONDS)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(f"BEGIN IMMEDIATE; {SCHEMA.read_text()} COMMIT")
            if path is not None:
                self._read_lock = threading.RLock()
                self._reader = self._open(path, READ_SECONDS)
            stored = {name: self.setdefault(name, value) for name, value in identity.items()}
        except (sqlite3.Error, OSError, ValueError) as error:
            raise LabError(
                f"Store {path}: the file cannot be used ({error}). Give a relayer's store or a new path."
            ) from error
        for name, value in identity.items():
            if stored[name] != value:
                raise LabError(
                    f"Store {path}: it was created with {name} {stored[name]!r}, but this relayer has "
                    f"{value!r}. Give another file."
                )
        if path is not None:
            make_private(Path(path))

    def _open(self, path: str | Path | None, timeout: float) -> sqlite3.Connection:
        name = ":memory:"
        if path is not None:
            create_private(path)
            name = str(Path(path).resolve())
        db = sqlite3.connect(name, timeout=timeout, isolation_level=None, check_same_thread=False)
        weakref.finalize(self, _close, db, self._lock if path is None else self._read_lock)
        return db

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything done inside the block, or roll all of it back."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def setdefault(self, name: str, value: str) -> str:
        """Return a stored value, and store the given one first if there is none."""
        if self.fact(name) is None:
            with self._lock:
                self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
        return str(self.fact(name))

    def fact(self, name: str) -> str | None:
        """Return a stored value, if there is one."""
        found = self._fetch_one("SELECT value FROM facts WHERE name = ?", name)
        return found and str(found[0])

    def add(self, accounts: Iterable[Account]) -> int:
        """Add the accounts that do not exist yet, and return how many were added."""
        with self.transaction():
            insert = "INSERT OR IGNORE INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?)"
            return sum(self._db.execute(insert, account[:-1]).rowcount for account in accounts)

    def account(self, account_id: int) -> Account | None:
        return self._account("id", account_id)

    def account_of(self, owner: str) -> Account | None:
        return self._account("owner", owner)

    def pending(self, account_id: int) -> StoredUpdate | None:
        """Return the pending update of an account, which freezes it."""
        return next(iter(self._updates(f"account = ? AND {PENDING}", account_id)), None)

    def updates(self, account_id: int) -> list[StoredUpdate]:
        """Return every update that was accepted for an account, newest first."""
        return self._updates("account = ?", account_id)

    def accept(self, change: KeyChange, now: int) -> StoredUpdate:
        """Store an accepted request; call it in one transaction with the checks that allow it."""
        values = (*change, now, now)
        places = ", ".join("?" * len(values))
        insert = f"INSERT INTO updates VALUES (NULL, {places}, 'received', '')"  # noqa: S608
        number = self._db.execute(insert, values).lastrowid or 0
        return StoredUpdate(number, change, now, now, "received", "")

    def step(self, now: int, failure: Callable[[StoredUpdate], str]) -> int:
        """Advance every pending update by one step, each in its own transaction; return how many moved."""
        return sum(self._move(update, now, failure) for update in self._updates(PENDING)[::-1])

    def _move(self, update: StoredUpdate, now: int, failure: Callable[[StoredUpdate], str]) -> bool:
        reason, status = "", "processing"
        if update.status == "processing":
            reason = failure(update)
            status = "failed" if reason else "processed"
        with self.transaction():
            moved = self._db.execute(
                "UPDATE updates SET status = ?, reason = ?, changed_at = ? WHERE number = ? AND status = ?",
                (status, reason, now, update.number, update.status),
            )
            if moved.rowcount and status == "processed":
                change = update.change
                self._db.execute(
                    "UPDATE accounts SET x = ?, y = ?, key_seed = ?, nonce = nonce + 1,"
                    " key_nonce = key_nonce + 1 WHERE id = ?",
                    (change.x, change.y, change.key_seed, change.account),
                )
        return bool(moved.rowcount)

    def _updates(self, where: str, *values: Any) -> list[StoredUpdate]:
        query = f"SELECT * FROM updates WHERE {where} ORDER BY number DESC"  # noqa: S608
        with self._read_lock:
            rows = self._reader.execute(query, values).fetchall()
        size = len(KeyChange._fields)
        return [StoredUpdate(number, KeyChange(*rest[:size]), *rest[size:]) for number, *rest in rows]

    def _account(self, column: str, value: object) -> Account | None:
        # One query, so that no reader sees an account updated but still frozen.
        pending = f"EXISTS (SELECT 1 FROM updates WHERE account = accounts.id AND {PENDING})"  # noqa: S608
        found = self._fetch_one(f"SELECT *, {pending} FROM accounts WHERE {column} = ?", value)  # noqa: S608
        return found and Account(*found)._replace(is_frozen=bool(found[-1]))

    def _fetch_one(self, query: str, value: object) -> Any:
        with self._read_lock:
            return self._reader.execute(query, (value,)).fetchone()


def create_private(path: str | Path) -> None:
    """Create a file that only its owner can read or write, from its first byte on, unless it exists."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE))


def make_private(path: Path) -> None:
    """Take away what others may do with a store that was created elsewhere, and with its log."""
    for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        with suppress(OSError):
            file.chmod(PRIVATE)


def _close(db: sqlite3.Connection, lock: threading.RLock) -> None:
    """Close a database once no thread is using it, which one may be when the program ends."""
    with lock:
        db.close()
