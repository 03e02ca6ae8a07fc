"""The mark that tells an archive from any other folder, and which version of the toolkit wrote it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from loopring_lab.archive.trouble import explained
from loopring_lab.errors import LabError, NewerArchive, NotAnArchive

__all__ = ["mark", "marked"]

MARK, FORMAT, SCHEMA = "archive.json", "loopring_lab archive", 1
MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|[][^|\\\x00-\x1f]")


def mark(path: Path) -> None:
    """Mark a folder as an archive.

    Parameters
    ----------
    path : Path
        The folder.
    """
    fresh = path / f".{MARK}.{os.getpid()}"
    fresh.write_text(json.dumps({"format": FORMAT, "schema": SCHEMA}) + "\n", encoding="utf-8")
    fresh.replace(path / MARK)


def marked(path: Path) -> bool:
    """Tell whether a folder is marked as an archive.

    Parameters
    ----------
    path : Path
        The folder.

    Returns
    -------
    bool
        False where there is nothing, so that an archive may be made.

    Raises
    ------
    NotAnArchive
        There is something else.
    NewerArchive
        A later version wrote it.
    DiskRefused
        It must not be read.
    LabError
        The package deltalake cannot work in that path.
    """
    odd = MISREAD.search(path.resolve().as_posix())
    if odd:
        raise LabError(f"{path}: {odd[0]!r} in a path is misread by deltalake. Name another folder.")
    try:
        found = json.loads((path / MARK).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        _may_begin(path)
        return False
    except ValueError:
        found = None
    except OSError as error:
        raise explained(path, "opening it", error) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NotAnArchive(f"{path}: {MARK} is not an archive's. Nothing was changed. Name another folder.")
    schema = found.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise NewerArchive(
            f"{path}: written by a later loopring_lab (schema {schema}; this one reads up to {SCHEMA}). "
            "Nothing was changed, all of it is safe. Upgrade loopring-lab to use it."
        )
    return True


def _may_begin(path: Path) -> None:
    """Refuse a path where something else than a new archive is."""
    if path.exists() and not path.is_dir():
        raise NotAnArchive(f"{path} is a file. An archive is a folder: name another one.")
    there = (
        [entry.name for entry in path.iterdir() if not entry.name.startswith(f".{MARK}.")]
        if path.exists()
        else []
    )
    if "_delta_log" in there:
        hint = "Give the archive's own folder" if (path.parent / MARK).exists() else "Name another folder"
        raise NotAnArchive(f"{path}: a Delta table, but not an archive. Nothing was changed. {hint}.")
    if there:
        raise NotAnArchive(
            f"{path}: holds {sorted(there)[0]!r} and is not an archive. Nothing was changed. "
            "Name an empty folder, or one that does not exist yet."
        )
