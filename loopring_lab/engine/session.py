"""The DuckDB connection of this process: how much memory it may use, and where it puts what does not fit."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from loopring_lab.bounded import given_path
from loopring_lab.errors import LabError
from loopring_lab.redaction import hide_addresses

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    import duckdb

Result = TypeVar("Result")

# Below this, DuckDB cannot even hold the hash tables of a query of a few columns.
LEAST = 64 << 20
PREFIX = "loopring-lab-spill-"
# Folders are removed whose names begin so and that no process holds: nobody calls what is to be kept unfinished, while
# an export may well be called loopring-lab-export-2022.
UNFINISHED = "loopring-lab-unfinished-"
# Seconds in which a process holds the folder that it has just made.
UNTIL_HELD = 60
# DuckDB cuts what it groups into as many parts as it has threads, and a part must fit into memory: with two, the
# fills of 100 million trades did not fit into 1 GiB.
FEWEST_THREADS = 4
# Seconds between looks for Ctrl-C.
MOMENTARY = 0.05
# This is for the database of a relation: DuckDB takes a stream of Arrow, such as `Archive.scan` returns, for one row,
# and up to a threshold of rows an as-of lookup compares all pairs: 80,000 trades took 34 s in place of 0.6. It changes
# no answer.
SORT_LOOKUPS = "SET asof_loop_join_threshold = 0"
# The settings of each connection.
EACH = "SET TimeZone = 'UTC'; SET enable_progress_bar = false"


@dataclass
class _Session:
    """What was set, and the database that was opened with it."""

    limit: int = 1 << 30
    # Of the spill folder; None for the system's temporary folder.
    parent: Path | None = None
    # It is made when it is first needed.
    spill_folder: Path | None = None
    database: duckdb.DuckDBPyConnection | None = None
    shared: duckdb.DuckDBPyConnection | None = None


_session = _Session()
_lock = threading.RLock()
_in_use: ContextVar[Any] = ContextVar("connection in use", default=None)
_is_wanted: ContextVar[Callable[[], bool]] = ContextVar(
    "whether anybody waits for this", default=lambda: True
)


def set_memory(
    limit: str | int = "1GiB", spill_folder: str | os.PathLike[str] | None = None
) -> None:
    """Set how much memory analyses may use, and where they put what does not fit.

    It holds for this process from its next analysis on. It bounds what DuckDB holds; frames in memory,
    Python and the packages loaded come on top, some 0.3 GiB. Spark's workers have limits of their own.

    Parameters
    ----------
    limit : str or int
        Bytes, or text with a unit such as ``"500MB"`` or ``"2GiB"``; at least 64 MiB.
    spill_folder : path, optional
        An existing folder on a disk with room. The default is the system's folder for temporary files,
        which some systems keep in memory. Each process makes a private folder in it when it first needs
        one, and removes it at its end; that of a process that was killed goes with the next one's.

    Raises
    ------
    LabError
        The limit is not a size or is too small, or there is no such folder to write to.

    Examples
    --------
    >>> lab.engine.set_memory("2GiB")
    >>> lab.engine.set_memory()  # the default again
    """
    spill_folder = hide_addresses(spill_folder)
    size = _parse_size(limit)
    parent = None
    if spill_folder is not None:
        parent = given_path(spill_folder).absolute()
        if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            raise LabError(
                f"spill_folder={str(spill_folder)!r}: no such folder, or no permission to write to it. Create "
                "it first, or leave it out to use the system's folder for temporary files."
            )
    with _lock:
        _session.limit = size
        _session.parent = parent
        _session.spill_folder = None
        close()


def close() -> None:
    """Have the next question open a new database; answers that are still read keep the old one alive."""
    with _lock:
        _session.shared = None
        _session.database = None


@contextmanager
def raising_interrupts() -> Iterator[None]:
    """Raise Ctrl-C during a query as the KeyboardInterrupt that it is: DuckDB makes a RuntimeError of it."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from None


@contextmanager
def interruptible(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Have Ctrl-C interrupt what `in_thread` does with a connection."""
    token = _in_use.set(connection)
    try:
        yield
    finally:
        _in_use.reset(token)


def in_thread(work: Callable[[], Result]) -> Result:
    """Do what takes long with a connection, in a thread, so that Ctrl-C ends it at once.

    In the main thread, DuckDB looks for signals only between tasks of its own, which last seconds. The work is over
    when this raises, so that the connection can be closed.
    """
    connection = _in_use.get()
    if connection is None:
        return work()
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001
            outcome.set_exception(error)

    # The end of a process waits for threads of a pool, and for those of `threading` that are no daemons.
    threading.Thread(target=run, daemon=True).start()
    try:
        # Windows looks for signals only where a wait ends. After Ctrl-C in `join`, Python 3.11 takes a thread for
        # ended that is not, so the outcome is what counts.
        while not outcome.done():
            wait([outcome], MOMENTARY)
            check_wanted()
    except BaseException:
        # An interrupt before DuckDB begins to run the query does nothing, so one is not enough.
        while not outcome.done():
            connection.interrupt()
            time.sleep(MOMENTARY)
        raise
    return outcome.result()


@contextmanager
def work_while(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """End what is asked in this thread with a LabError once nobody waits for it any more."""
    token = _is_wanted.set(is_wanted)
    try:
        yield
    finally:
        _is_wanted.reset(token)


def check_wanted() -> None:
    """Raise a LabError if nobody waits for what this thread does."""
    if not _is_wanted.get()():
        raise LabError("This work is no longer wanted. Start it again.")


def cursor() -> duckdb.DuckDBPyConnection:
    """Return a connection of its own to the database of this process, for one question in one thread."""
    with _lock:
        if _session.database is None:
            # A frame is given by name; a variable of the caller must never be taken for a table.
            _session.database = _connect(python_enable_replacements="false")
        found = _session.database.cursor()
    found.execute(EACH)
    return found


def shared() -> duckdb.DuckDBPyConnection:
    """Return the connection of relations that a user asks, and may join with one another and with frames."""
    with _lock:
        if _session.shared is None:
            _session.shared = _connect()
            _session.shared.execute(EACH)
        return _session.shared


def limits() -> dict[str, Any]:
    """Return the settings of a DuckDB database that bound its memory, as for analyses."""
    with _lock:
        if _session.spill_folder is None:
            _session.spill_folder = _make_spill_folder()
        return {
            "memory_limit": f"{_session.limit}B",
            "temp_directory": str(_session.spill_folder),
            "threads": str(max(FEWEST_THREADS, os.cpu_count() or 1)),
        }


def _connect(**settings: str) -> duckdb.DuckDBPyConnection:
    import duckdb

    # Rows of an answer are sorted where their order matters; keeping it elsewhere costs memory.
    return duckdb.connect(
        config={**limits(), "preserve_insertion_order": "false", **settings}
    )


def _make_spill_folder() -> Path:
    """Make the private folder of this process, which goes with it."""
    parent = _session.parent or Path(tempfile.gettempdir())
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        raise LabError(
            f"No folder can be made in {parent} ({error.strerror}), and analyses need one for what does not "
            "fit into memory. Name another: lab.engine.set_memory(spill_folder=...)."
        ) from None
    _hold(folder)
    atexit.register(_remove, folder, os.getpid())
    _remove_abandoned(parent, PREFIX)
    return folder


@contextmanager
def unfinished(parent: Path) -> Iterator[Path]:
    """Make a folder for what is not finished yet, without those that killed processes left under such a name."""
    _remove_abandoned(parent, UNFINISHED)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=parent) as name:
        folder = Path(name)
        descriptor = _hold(folder)
        try:
            yield folder
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _hold(folder: Path) -> int | None:
    """Lock a folder until this process ends, however it ends, or closes the descriptor."""
    if sys.platform == "win32":
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    # Some network disks have no locks; nobody else can lock a folder there either.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove the folders that no process holds any more, as it was killed: they may have many GB."""
    if sys.platform == "win32":
        return
    for folder in parent.glob(f"{prefix}*"):
        # Those of other users, and those that are held, raise; a link is not followed.
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - folder.stat().st_mtime > UNTIL_HELD:
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _remove(folder: Path, process: int) -> None:
    # A forked child inherits the registration, but the folder is still in use by its parent.
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


def _close_before_fork() -> None:
    # A forked child has none of DuckDB's threads, and would wait for them where it closes its parent's database.
    # So there is none while a process forks, and each opens one of its own when it asks again.
    _lock.acquire()
    _session.database = None
    _session.shared = None


def _begin_in_child() -> None:
    _session.spill_folder = None  # that of the parent goes with the parent
    _lock.release()


def _parse_size(limit: str | int) -> int:
    import duckdb

    # DuckDB wants a unit after each number.
    text = re.sub(r"(?<=\d)\s*$", "B", str(limit))
    try:
        with duckdb.connect() as connection:
            found = connection.execute("SELECT parse_formatted_bytes(?)", [text])
            size: int = found.fetchall()[0][0]
    except duckdb.Error:
        raise LabError(
            f"limit={limit!r} is not an amount of memory. Give bytes, or text such as '2GiB'."
        ) from None
    if size < LEAST:
        raise LabError(
            f"limit={limit!r} is too little to work with. Give at least 64 MiB, such as '1GiB'."
        )
    return size


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_close_before_fork,
        after_in_parent=_lock.release,
        after_in_child=_begin_in_child,
    )
