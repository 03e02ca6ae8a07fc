"""Progress of a long read: a bar after a second, or a callable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[int, int], None]
"""Called with how many trades are read and expected; raising ends the read."""
Watching = bool | Progress | None
"""True shows a bar, False none; None shows one after a second, and not under CI."""


@contextmanager
def bar(label: str, progress: bool | None, **options: Any) -> Iterator[Any]:
    """Show a progress bar; where it is not asked for, after a second."""
    if progress is False or (progress is None and any(map(os.environ.get, ("CI", "TQDM_DISABLE")))):
        yield None
        return
    from tqdm.auto import tqdm

    options |= {"delay": 0 if progress else 1, "leave": bool(progress), "disable": False}
    with tqdm(desc=label, **options) as shown:
        yield shown


@contextmanager
def track(label: str, progress: Watching) -> Iterator[Progress]:
    """Report trades, or what else the label ends with, as they are read."""
    if callable(progress):
        yield progress
        return
    with bar(label, progress, unit=f" {label.rsplit(maxsplit=1)[-1]}") as shown:

        def report(held: int, expected: int) -> None:
            if shown is not None:
                shown.total = expected
                shown.update(held - shown.n)

        yield report
