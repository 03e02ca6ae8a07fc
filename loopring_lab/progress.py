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
    # Nobody watches a log of CI; TQDM_DISABLE is tqdm's own switch, which `disable` below would overrule.
    is_unwatched = os.environ.get("CI") or os.environ.get("TQDM_DISABLE")
    if progress is False or (progress is None and is_unwatched):
        yield None
        return
    from tqdm.auto import tqdm

    is_asked_for = bool(progress)
    delay = 0 if is_asked_for else 1  # second: shorter reads need no bar
    with tqdm(
        desc=label, delay=delay, leave=is_asked_for, disable=False, **options
    ) as shown:
        yield shown


@contextmanager
def track(label: str, progress: Watching) -> Iterator[Progress]:
    """Report trades, or what else the label ends with, as they are read."""
    if callable(progress):
        yield progress
        return
    unit = label.rsplit(maxsplit=1)[-1]
    with bar(label, progress, unit=f" {unit}") as shown:

        def report(held: int, expected: int) -> None:
            if shown is not None:
                shown.total = expected
                shown.update(held - shown.n)

        yield report
