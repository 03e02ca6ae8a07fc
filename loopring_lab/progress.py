"""How far a long read is: a bar after a second, or a function that is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Progress", "Watching", "bar", "track"]

Progress = Callable[[int, int], None]
"""Told how much there is, and how much is expected; what it raises ends the read."""
Watching = bool | Progress | None
"""True shows a bar, False none; None shows one after a second, and not under CI."""


@contextmanager
def bar(label: str, progress: bool | None, **how: Any) -> Iterator[Any]:
    """Show a progress bar, from the first second on."""
    if progress is False or (progress is None and any(map(os.environ.get, ("CI", "TQDM_DISABLE")))):
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=label, delay=0 if progress else 1, leave=bool(progress), disable=False, **how) as shown:
        yield shown


@contextmanager
def track(label: str, progress: Watching, before: int = 0) -> Iterator[Progress]:
    """Tell of trades as they are read."""
    if callable(progress):
        yield lambda held, expected: progress(before + held, before + expected)
        return
    with bar(label, progress, unit=" trades") as shown:

        def report(held: int, expected: int) -> None:
            if shown is not None:
                shown.total = expected
                shown.update(held - shown.n)

        yield report
