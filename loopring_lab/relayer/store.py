"""Accounts and key updates in SQLite: a transaction a step, so a kill at any moment loses or repeats nothing.

An account is frozen while it has a pending update, and its API keys are derived from its key nonce; so both
follow from the rows below in the same transaction, and cannot disagree with them.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopring_lab.errors import LabError
from loopring_lab.relayer.records import FAILED, PROCESSED, PROCESSING, RECEIVED, Account, KeyChange, Update

__all__ = ["Store"]

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
    """The relayer's memory.

    Parameters
    ----------
    path : str or Path or None
        A file, made where it does not exist; None keeps everything in memory.
    facts : mapping of str to str
        What the accounts belong to. A file keeps the facts it was made with.

    Raises
    ------
    LabError
        Where the file cannot be used, or was made with other facts.
    """

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
        """Everything inside happens, or nothing of it.

        Yields
        ------
        None
            Other threads wait meanwhile.
        """
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def fact(self, name: str, value: str) -> str:
        """A value that is kept for good.

        Parameters
        ----------
        name : str
            Its name.
        value : str
            What it becomes where it is not known yet.

        Returns
        -------
        str
            The value that is kept.
        """
        with self._lock:
            self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
            return str(self._one("SELECT value FROM facts WHERE name = ?", name)[0])

    def add(self, accounts: Iterable[Account]) -> int:
        """Add accounts that are not there yet.

        Parameters
        ----------
        accounts : iterable of Account
            Those whose id or owner is known already are passed over.

        Returns
        -------
        int
            How many were new.
        """
        with self.transaction():
            insert = "INSERT OR IGNORE INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?)"
            return sum(self._db.execute(insert, account[:-1]).rowcount for account in accounts)

    def account(self, account_id: int) -> Account | None:
        """An account by its id.

        Parameters
        ----------
        account_id : int
            Account id.

        Returns
        -------
        Account or None
            None where there is none.
        """
        return self._account("id", account_id)

    def account_of(self, owner: str) -> Account | None:
        """An account by its owner.

        Parameters
        ----------
        owner : str
            Address, in any case.

        Returns
        -------
        Account or None
            None where there is none.
        """
        return self._account("owner", owner)

    def pending(self, account_id: int) -> Update | None:
        """The update that freezes an account.

        Parameters
        ----------
        account_id : int
            Account id.

        Returns
        -------
        Update or None
            None where the account is not frozen.
        """
        found = self._updates(f"account = ? AND {PENDING}", account_id)
        return found[0] if found else None

    def updates(self, account_id: int) -> list[Update]:
        """Every update that was ever accepted for an account.

        Parameters
        ----------
        account_id : int
            Account id.

        Returns
        -------
        list of Update
            Newest first.
        """
        return self._updates("account = ?", account_id)

    def accept(self, change: KeyChange, now: int) -> Update:
        """Keep a request; belongs into a transaction with the checks that allow it.

        Parameters
        ----------
        change : KeyChange
            What it asks for.
        now : int
            ms since the epoch.

        Returns
        -------
        Update
            Received.
        """
        names = ", ".join((*KeyChange._fields, "received_at", "changed_at"))
        marks = ", ".join("?" * (len(KeyChange._fields) + 2))
        self._db.execute(f"INSERT INTO updates ({names}) VALUES ({marks})", (*change, now, now))  # noqa: S608
        return self._updates("number = last_insert_rowid()")[0]

    def step(self, now: int, failure: Callable[[Update], str]) -> int:
        """Take every pending update one step on, each in a transaction of its own.

        Parameters
        ----------
        now : int
            ms since the epoch.
        failure : callable
            Tells why an update fails in its last step; empty where it does not.

        Returns
        -------
        int
            How many were moved.
        """
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
        """Everything that is kept, as SQL; holds the secret that API keys are made from.

        Returns
        -------
        str
            Equal texts mean equal contents.
        """
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
