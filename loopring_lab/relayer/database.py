"""Accounts and key updates in SQLite; each step is one transaction, so a kill at any moment loses nothing."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from loopring_lab.errors import LabError

Status = Literal["received", "processing", "processed", "failed"]
SCHEMA = Path(__file__).with_name("schema.sql")
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
    """Accounts, key updates and a few fixed values, in a file or in memory."""

    def __init__(self, path: str | Path | None, identity: Mapping[str, str]) -> None:
        self._lock = threading.RLock()
        try:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, _close, self._db, self._lock)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(f"BEGIN IMMEDIATE; {SCHEMA.read_text()} COMMIT")
        except sqlite3.Error as error:
            raise LabError(
                f"Store {path}: the file cannot be used ({error}). Give a relayer's store or a new path."
            ) from error
        for name, value in identity.items():
            stored = self.setdefault(name, value)
            if stored != value:
                raise LabError(
                    f"Store {path}: it was created with {name} {stored!r}, but this relayer has {value!r}. "
                    "Give another file."
                )

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
        with self._lock:
            self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
            return str(self._fetch_one("SELECT value FROM facts WHERE name = ?", name)[0])

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
        self._db.execute(insert, values)
        return self._updates("number = last_insert_rowid()")[0]

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
        with self._lock:
            rows = self._db.execute(query, values).fetchall()
        size = len(KeyChange._fields)
        return [StoredUpdate(number, KeyChange(*rest[:size]), *rest[size:]) for number, *rest in rows]

    def _account(self, column: str, value: object) -> Account | None:
        # One query, so that no reader sees an account updated but still frozen.
        pending = f"EXISTS (SELECT 1 FROM updates WHERE account = accounts.id AND {PENDING})"  # noqa: S608
        found = self._fetch_one(f"SELECT *, {pending} FROM accounts WHERE {column} = ?", value)  # noqa: S608
        return found and Account(*found)._replace(is_frozen=bool(found[-1]))

    def _fetch_one(self, query: str, value: object) -> Any:
        with self._lock:
            return self._db.execute(query, (value,)).fetchone()


def _close(db: sqlite3.Connection, lock: threading.RLock) -> None:
    """Close a database once no thread is using it, which one may be when the program ends."""
    with lock:
        db.close()
