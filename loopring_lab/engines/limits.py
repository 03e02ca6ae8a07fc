"""How much memory analyses may use, and where they put what does not fit."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from loopring_lab.errors import LabError

UNITS = {"": 1, "B": 1}
UNITS |= {f"{unit}B": 1000**power for power, unit in enumerate("KMGT", 1)}
UNITS |= {f"{unit}IB": 1024**power for power, unit in enumerate("KMGT", 1)}
LEAST = 64 << 20
PREFIX = "loopring-lab-spill-"
COPIES = 4
"""How many times the rows of a window are in memory at once: as read, as integers, sorted, as answered."""


class _Setting:
    """What was set, the folders of this process and the process that made them, and DuckDB's connection."""

    limit = 1 << 30
    parent: Path | None = None
    folder: Path | None = None
    process = 0
    database: tuple[Any, Any] = (None, None)

    def __init__(self) -> None:
        self.made: dict[Path, int] = {}


_set = _Setting()


def set_memory(limit: str | int = "1GiB", spill_folder: str | os.PathLike[str] | None = None) -> None:
    """Set how much memory analyses of large frames may use, and where they put what does not fit.

    It holds for this process from its next analysis and its next `Archive.scan`. It bounds the rows that
    are in memory at once and what DuckDB holds; Python and the packages loaded come on top, some 0.3 GiB.
    Workers of Dask and Spark have limits of their own.

    Parameters
    ----------
    limit : str or int
        Bytes, or text with a unit such as ``"500MB"`` or ``"2GiB"``; at least 64 MiB.
    spill_folder : path, optional
        An existing folder on a disk with room. The default is the system's folder for temporary files,
        which some systems keep in memory. Each process makes a private folder in it when it first needs
        one, and removes it at its end; those of processes that were killed are removed by the next one.

    Raises
    ------
    LabError
        The limit is not a size or is too small, or there is no such folder to write to.

    Examples
    --------
    >>> lab.engines.set_memory("2GiB")
    >>> lab.engines.set_memory()  # the default again
    """
    bytes_ = _bytes(limit)
    parent = None if spill_folder is None else Path(spill_folder).absolute()
    if parent is not None and not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise LabError(
            f"spill_folder={str(spill_folder)!r}: no such folder, or no permission to write to it. Create "
            "it first, or leave it out to use the system's folder for temporary files."
        )
    if parent != _set.parent:
        _set.folder = None  # the one in use stays until the process ends
    _set.limit, _set.parent = bytes_, parent


def memory_limit() -> int:
    """Return how many bytes an analysis may use."""
    return _set.limit


def rows_at_once(bytes_per_row: int) -> int:
    """Return how many rows of this size may be in memory at once, with the copies that work on them makes."""
    return max(1, memory_limit() // (COPIES * bytes_per_row))


def spill_folder() -> Path:
    """Return the private folder of this process for what does not fit into memory."""
    if _set.process != os.getpid():  # also in a process forked from one that has a folder
        _set.process, _set.made, _set.folder = os.getpid(), {}, None
        atexit.register(_remove_own, os.getpid())
    if _set.folder is None or not _set.folder.is_dir():
        parent = _set.parent or Path(tempfile.gettempdir())
        try:
            _remove_abandoned(parent)
            _set.folder = _make_folder(parent)
        except OSError as error:
            raise LabError(
                f"No folder can be made in {parent} ({error.strerror}), and the analysis needs one for what "
                "does not fit into memory. Name another: lab.engines.set_memory(spill_folder=...)."
            ) from None
    return _set.folder


def database() -> Any:
    """Return DuckDB's connection for archives, within the limit; the same one as long as nothing is set."""
    import duckdb

    wanted = {"temp_directory": str(spill_folder() / "duckdb"), "memory_limit": f"{memory_limit()}B"}
    if _set.database[0] != wanted:
        connection = duckdb.connect(config={**wanted, "preserve_insertion_order": "false"})
        connection.execute("SET TimeZone = 'UTC'")
        _set.database = wanted, connection
    return _set.database[1]


def _bytes(limit: str | int) -> int:
    found = re.fullmatch(r"\s*([0-9]{1,18}(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(limit))
    if isinstance(limit, bool) or not found or found[2].upper() not in UNITS:
        raise LabError(f"limit={limit!r} is not an amount of memory. Give bytes, or text such as '2GiB'.")
    bytes_ = int(float(found[1]) * UNITS[found[2].upper()])
    if bytes_ < LEAST:
        raise LabError(f"limit={limit!r} is too little to work with. Give at least 64 MiB, such as '1GiB'.")
    return bytes_


def _make_folder(parent: Path) -> Path:
    """Make a folder and hold its lock, which tells other processes that its own is alive."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        descriptor = _lock(folder, wait=True)
        if folder.is_dir():  # not taken for an abandoned one before it was locked
            _set.made[folder] = descriptor
            return folder


def _lock(folder: Path, *, wait: bool = False) -> int:
    """Lock a folder and return the descriptor that holds the lock; -1 if another holds it, or none can."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except (ImportError, OSError):
        return -1
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    os.close(descriptor)
    return -1


def _remove_abandoned(parent: Path) -> None:
    """Remove folders of this user whose process has ended without removing them."""
    for folder in parent.glob(f"{PREFIX}*"):
        if folder not in _set.made and (descriptor := _lock(folder)) >= 0:
            if os.fstat(descriptor).st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _remove_own(process: int) -> None:
    if process == os.getpid():
        for folder in _set.made:
            shutil.rmtree(folder, ignore_errors=True)
