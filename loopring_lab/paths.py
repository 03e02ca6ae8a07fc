"""Paths that somebody gives. It loads nothing else, as the command line checks paths before it needs more."""

from __future__ import annotations

import os
from pathlib import Path

from loopring_lab.errors import LabError


def given_path(path: str | os.PathLike[str]) -> Path:
    """Return a path as it was given: ``~`` is the home folder, and all other characters stand for themselves."""
    try:
        return Path(path).expanduser()
    except TypeError:
        raise LabError(
            f"A path is text or a pathlib.Path, not of type {type(path).__name__}."
        ) from None
    except RuntimeError:
        raise LabError(
            f"{os.fspath(path)!r}: nobody here has that home folder. Give the whole path."
        ) from None
