"""Accounts and key updates of a relayer: in memory, and in a JSON file where a path is given."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import TypeAdapter

from loopring_lab.bounded import given_path, read_file
from loopring_lab.errors import LabError

if sys.platform != "win32":
    import fcntl

Status = Literal["received", "processing", "processed", "failed"]
PENDING = ("received", "processing")

# The file holds the secret that API keys derive from.
PRIVATE = 0o600


class Account(NamedTuple):
    """An account as the exchange has it; the key is x and y in hex, both empty where there is none."""

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
    """An accepted key update; times in milliseconds since the epoch."""

    number: int
    change: KeyChange
    received_at: int
    changed_at: int
    status: Status
    reason: str


class Contents(NamedTuple):
    """Everything that a store holds: fixed values by name, accounts by id, and updates in order."""

    facts: dict[str, str]
    accounts: dict[int, Account]
    updates: list[StoredUpdate]


# Pydantic reads and writes named tuples as lists, and says which member of a file is not as it should be.
FILE_FORMAT = TypeAdapter(Contents)


class Unsaved(Exception):
    """The file could not be written; what was to be changed is as before."""


class Store:
    """Accounts, key updates and a few fixed values.

    Every change is saved before anybody learns of it, so that a kill at any moment loses nothing that was
    promised. Relayers may share a file: whoever finds it changed reads it again.
    """

    def __init__(self, path: str | Path | None, identity: Mapping[str, str]) -> None:
        """Open a file, or create it; `identity` names whose it is."""
        self._path = None if path is None else given_path(path)
        # Requests, the worker and the notebook's own thread meet here.
        self._lock = threading.RLock()
        # Whether a transaction of this store is going on, which may have others within it.
        self._is_alone = False
        self._contents = Contents({}, {}, [])
        self._version: tuple[int, ...] | None = None
        try:
            with self.transaction():
                for name, value in identity.items():
                    self._contents.facts.setdefault(name, value)
        except (Unsaved, OSError, ValueError) as error:
            raise LabError(
                f"Store {path}: the file cannot be used ({error}). Give a relayer's store or a new path."
            ) from error
        for name, value in identity.items():
            stored = self._contents.facts[name]
            if stored != value:
                raise LabError(
                    f"Store {path}: it was created with {name} {stored!r}, but this relayer has {value!r}. "
                    "Give another file."
                )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep and save everything done inside the block, or nothing of it."""
        with self._lock, self._alone():
            self._read_again()
            facts, accounts, updates = self._contents
            # Accounts and updates never change themselves, so that these copies need not go deeper.
            before = Contents(facts.copy(), accounts.copy(), updates.copy())
            try:
                yield
                if self._contents != before:
                    self._save()
            except BaseException:
                self._contents = before
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other relayers from the file between reading and writing it; on Windows they are not kept from it."""
        if self._path is None or self._is_alone or sys.platform == "win32":
            yield
            return
        try:
            # The file itself is replaced by each change, so its folder is locked.
            folder = os.open(self._path.parent, os.O_RDONLY)
        except OSError as error:
            raise Unsaved(str(error)) from error
        try:
            # Some network disks have no locks.
            with suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
            self._is_alone = True
            yield
        finally:
            self._is_alone = False
            os.close(folder)

    def setdefault(self, name: str, value: str) -> str:
        """Return a stored value, and store the given one first if there is none."""
        with self.transaction():
            return self._contents.facts.setdefault(name, value)

    def add(self, accounts: Iterable[Account]) -> int:
        """Add the accounts whose id and owner are new, and return how many were added."""
        with self.transaction():
            added = 0
            owners = {
                account.owner.lower() for account in self._contents.accounts.values()
            }
            for account in accounts:
                if (
                    account.id not in self._contents.accounts
                    and account.owner.lower() not in owners
                ):
                    self._contents.accounts[account.id] = account
                    owners.add(account.owner.lower())
                    added += 1
            return added

    def account(self, account_id: int) -> Account | None:
        """Return an account as it is now; it is frozen while an update is pending."""
        with self._lock:
            self._read_again()
            account = self._contents.accounts.get(account_id)
            if account is None:
                return None
            return account._replace(is_frozen=self.pending(account_id) is not None)

    def account_of(self, owner: str) -> Account | None:
        """Return the account that an address owns, whatever the case of its digits."""
        with self._lock:
            self._read_again()
            for account in self._contents.accounts.values():
                if account.owner.lower() == owner.lower():
                    return self.account(account.id)
        return None

    def pending(self, account_id: int) -> StoredUpdate | None:
        """Return the pending update of an account, of which there is at most one."""
        for update in self.updates(account_id):
            if update.status in PENDING:
                return update
        return None

    def updates(self, account_id: int) -> list[StoredUpdate]:
        """Return every update that was accepted for an account, newest first."""
        with self._lock:
            self._read_again()
            own = [
                update
                for update in self._contents.updates
                if update.change.account == account_id
            ]
        return own[::-1]

    def accept(self, change: KeyChange, now: int) -> StoredUpdate:
        """Store an accepted request; call it in one transaction with the checks that allow it."""
        # Numbers count over all accounts, as the setting fail_updates does.
        number = len(self._contents.updates) + 1
        update = StoredUpdate(number, change, now, now, "received", "")
        self._contents.updates.append(update)
        return update

    def step(self, now: int, failure: Callable[[StoredUpdate], str]) -> int:
        """Advance every pending update by one step, and return how many moved."""
        moved = 0
        with self.transaction():
            for place, update in enumerate(self._contents.updates):
                if update.status in PENDING:
                    self._contents.updates[place] = self._moved(update, now, failure)
                    moved += 1
        return moved

    def _moved(
        self,
        update: StoredUpdate,
        now: int,
        failure: Callable[[StoredUpdate], str],
    ) -> StoredUpdate:
        """Return an update one step further; the last step gives the account its new key, or a reason why not."""
        if update.status == "received":
            return update._replace(status="processing", changed_at=now)
        reason = failure(update)
        if reason:
            return update._replace(status="failed", reason=reason, changed_at=now)
        change = update.change
        account = self._contents.accounts[change.account]
        self._contents.accounts[change.account] = account._replace(
            x=change.x,
            y=change.y,
            key_seed=change.key_seed,
            nonce=account.nonce + 1,
            key_nonce=account.key_nonce + 1,
        )
        return update._replace(status="processed", changed_at=now)

    def _read_again(self) -> None:
        """Read the file, unless it is the one that was read or written last."""
        if self._path is None or not self._path.exists():
            return
        version = _version(self._path)
        if version != self._version:
            # The version is from before the reading: what changes meanwhile is read the next time.
            contents = FILE_FORMAT.validate_json(read_file(self._path))
            for update in contents.updates:
                if update.change.account not in contents.accounts:
                    raise ValueError(f"update {update.number} is of no account in it")
            self._contents = contents
            self._version = version

    def _save(self) -> None:
        """Write a new file beside the old one, and put it in its place once it is safe on disk."""
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, PRIVATE)
            with os.fdopen(descriptor, "wb") as file:
                # Of a file that a kill left behind, or that somebody else created, the mode may be another.
                new.chmod(PRIVATE)
                file.write(FILE_FORMAT.dump_json(self._contents))
                # Otherwise a power loss could leave the new name with nothing behind it.
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            self._version = _version(self._path)
        except OSError as error:
            raise Unsaved(str(error)) from error


def _version(path: Path) -> tuple[int, ...]:
    """Return what differs between two files that stood at a path one after the other."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
