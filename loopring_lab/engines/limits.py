"""How much memory analyses may use, and where they put what does not fit."""

from __future__ import annotations

import tempfile
from pathlib import Path

_limit = 1 << 30


def memory_limit() -> int:
    """Return how many bytes an analysis may use."""
    return _limit


def spill_folder() -> Path:
    """Return the folder of this process for what does not fit into memory."""
    return Path(tempfile.mkdtemp(prefix="loopring-lab-"))


def rows_at_once(bytes_per_row: int) -> int:
    """Return how many rows of this size may be in memory at once."""
    return max(1, memory_limit() // (4 * bytes_per_row))
