"""What disk, log and files report, in words that say what is safe and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from loopring_lab.errors import ArchiveError, DamagedArchive, DiskRefused

__all__ = ["Conflict", "explained", "told"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
ROWS_SAFE = "What was committed before is safe"


class Conflict(Exception):
    """Another writer committed rows of the same accounts first: look again and try again."""


@contextmanager
def told(path: Path, doing: str) -> Iterator[None]:
    """Raise what goes wrong with the folder of an archive as an `ArchiveError`.

    Parameters
    ----------
    path : Path
        The folder.
    doing : str
        What is being done.

    Yields
    ------
    None
        To the work.

    Raises
    ------
    ArchiveError
        Something did.
    Conflict
        Another writer was first.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        raise _refusal(path, doing, error) or Conflict(str(error)) from None
    except (OSError, pa.ArrowInvalid, DeltaError) as error:
        raise explained(path, doing, error) from None


def explained(path: Path, doing: str, error: Exception) -> ArchiveError:
    """Say in words what went wrong with the folder of an archive.

    Parameters
    ----------
    path : Path
        The folder.
    doing : str
        What was being done.
    error : Exception
        What was reported.

    Returns
    -------
    ArchiveError
        `DiskRefused` or `DamagedArchive`.
    """
    return _refusal(path, doing, error) or _damage(path, doing, error)


def _refusal(path: Path, doing: str, error: Exception) -> ArchiveError | None:
    """Recognize a full disk and a closed folder, also where another library reports them as text."""
    numbers = {int(number) for number in re.findall(r"\(os error (\d+)\)", str(error))}
    numbers |= {error.errno} if isinstance(error, OSError) and error.errno else set()
    if numbers & set(_FULL):
        return DiskRefused(
            f"{path}: the disk is full ({doing}). {ROWS_SAFE}, and what was not is not read. "
            "Make room, then run the same again: it goes on from there."
        )
    if numbers & set(_CLOSED):
        return DiskRefused(
            f"{path}: no permission ({doing}). {ROWS_SAFE}. Reading needs no writing: report, trades and "
            "scan work on a folder that can be read. To add to it, allow writing or copy it elsewhere."
        )
    return None


def _damage(path: Path, doing: str, error: Exception) -> ArchiveError:
    file = re.search(r"[^\s'\"]+\.(?:parquet|json)", str(error))
    what = f"{file[0]} is missing or damaged" if file else str(error).splitlines()[0][:200]
    return DamagedArchive(
        f"{path}: {what} ({doing}). Nothing was changed, and the rows in other files are safe. Put the file "
        "back from a backup; or, for a missing file of trades, let go of it with "
        f"deltalake.DeltaTable({str(path / 'trades')!r}).repair() and sync or import again."
    )
