"""Accounts and key updates in SQLite, a transaction a step: a kill at any moment loses nothing."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from loopring_lab.errors import LabError

RECEIVED, PROCESSING, PROCESSED, FAILED = "received", "processing", "processed", "failed"


class Account(NamedTuple):
    """An account as it stands."""

    id: int
    owner: str
    x: str
    y: str
    nonce: int
    key_nonce: int
    key_seed: str
    is_frozen: bool = False


class KeyChange(NamedTuple):
    """What an accepted request is to change, and on what terms."""

    account: int
    hash: str
    x: str
    y: str
    nonce: int
    key_seed: str
    fee_token: int
    fee: str
    valid_until: int


class Update(NamedTuple):
    """An accepted request and how far it has come."""

    number: int
    change: KeyChange
    received_at: int
    changed_at: int
    status: str
    reason: str


SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS accounts (
    id INTEGER PRIMARY KEY,
    owner TEXT NOT NULL UNIQUE COLLATE NOCASE,
    x TEXT NOT NULL,
    y TEXT NOT NULL,
    nonce INTEGER NOT NULL,
    key_nonce INTEGER NOT NULL,
    key_seed TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS updates (
    number INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts,
    hash TEXT NOT NULL,
    x TEXT NOT NULL,
    y TEXT NOT NULL,
    nonce INTEGER NOT NULL,
    key_seed TEXT NOT NULL,
    fee_token INTEGER NOT NULL,
    fee TEXT NOT NULL,
    valid_until INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'received',
    reason TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX IF NOT EXISTS pending ON updates (account) WHERE status IN ('received', 'processing');
"""
PENDING = "status IN ('received', 'processing')"


class Store:
    """The relayer's memory."""

    def __init__(self, path: str | Path | None, facts: Mapping[str, str]) -> None:
        self._lock = threading.RLock()
        try:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, _close, self._db, self._lock)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT")
        except sqlite3.Error as error:
            raise LabError(
                f"Store {path}: cannot be used ({error}). Give a relayer's file, or a new path."
            ) from error
        for name, value in facts.items():
            self._keep(name, value)

    def _keep(self, name: str, value: str) -> None:
        kept = self.fact(name, value)
        if kept != value:
            raise LabError(
                f"Store: it was made with {name} {kept!r}, this relayer has {value!r}. Give another file."
            )

    def __repr__(self) -> str:
        return "Store()"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens, or nothing of it."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def fact(self, name: str, value: str) -> str:
        """A value that is kept for good."""
        with self._lock:
            self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
            return str(self._one("SELECT value FROM facts WHERE name = ?", name)[0])

    def add(self, accounts: Iterable[Account]) -> int:
        """Add accounts that are not there yet."""
        with self.transaction():
            insert = "INSERT OR IGNORE INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?)"
            return sum(self._db.execute(insert, account[:-1]).rowcount for account in accounts)

    def account(self, account_id: int) -> Account | None:
        """An account by its id."""
        return self._account("id", account_id)

    def account_of(self, owner: str) -> Account | None:
        """An account by its owner."""
        return self._account("owner", owner)

    def pending(self, account_id: int) -> Update | None:
        """The update that freezes an account."""
        found = self._updates(f"account = ? AND {PENDING}", account_id)
        return found[0] if found else None

    def updates(self, account_id: int) -> list[Update]:
        """Every update that was ever accepted for an account."""
        return self._updates("account = ?", account_id)

    def accept(self, change: KeyChange, now: int) -> Update:
        """Keep a request; belongs into a transaction with the checks that allow it."""
        names = ", ".join((*KeyChange._fields, "received_at", "changed_at"))
        marks = ", ".join("?" * (len(KeyChange._fields) + 2))
        self._db.execute(f"INSERT INTO updates ({names}) VALUES ({marks})", (*change, now, now))  # noqa: S608
        return self._updates("number = last_insert_rowid()")[0]

    def step(self, now: int, failure: Callable[[Update], str]) -> int:
        """Take every pending update one step on, each in a transaction of its own."""
        return sum(self._move(update, now, failure) for update in self._updates(PENDING)[::-1])

    def _move(self, update: Update, now: int, failure: Callable[[Update], str]) -> bool:
        reason = failure(update) if update.status == PROCESSING else ""
        last = FAILED if reason else PROCESSED
        status = PROCESSING if update.status == RECEIVED else last
        with self.transaction():
            moved = self._db.execute(
                "UPDATE updates SET status = ?, reason = ?, changed_at = ? WHERE number = ? AND status = ?",
                (status, reason, now, update.number, update.status),
            )
            if moved.rowcount and status == PROCESSED:
                self._apply(update.change)
        return bool(moved.rowcount)

    def _apply(self, change: KeyChange) -> None:
        self._db.execute(
            "UPDATE accounts SET x = ?, y = ?, key_seed = ?, nonce = nonce + 1, key_nonce = key_nonce + 1"
            " WHERE id = ?",
            (change.x, change.y, change.key_seed, change.account),
        )

    def dump(self) -> str:
        """Everything that is kept, as SQL; holds the secret that API keys are made from."""
        with self._lock:
            return "\n".join(self._db.iterdump())

    def _updates(self, where: str, *values: Any) -> list[Update]:
        names = ", ".join((*KeyChange._fields, "number", "received_at", "changed_at", "status", "reason"))
        query = f"SELECT {names} FROM updates WHERE {where} ORDER BY number DESC"  # noqa: S608
        with self._lock:
            rows = self._db.execute(query, values).fetchall()
        size = len(KeyChange._fields)
        return [Update(row[size], KeyChange(*row[:size]), *row[size + 1 :]) for row in rows]

    def _account(self, column: str, value: object) -> Account | None:
        # One query, for nobody may see an account between its update and its thaw.
        pending = f"EXISTS (SELECT 1 FROM updates WHERE account = accounts.id AND {PENDING})"  # noqa: S608
        found = self._one(f"SELECT *, {pending} FROM accounts WHERE {column} = ?", value)  # noqa: S608
        return found and Account(*found)._replace(is_frozen=bool(found[-1]))

    def _one(self, query: str, value: object) -> Any:
        with self._lock:
            return self._db.execute(query, (value,)).fetchone()


def _close(db: sqlite3.Connection, lock: threading.RLock) -> None:
    """Close a database when nobody is in the midst of using it: at the end of a program somebody may be."""
    with lock:
        db.close()
