"""How far a long read is: a bar after a second, or a function that is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Progress", "Watching", "bar", "told"]

Progress = Callable[[int, int], None]
"""Told how much there is, and how much is expected; what it raises ends the read."""
Watching = bool | Progress | None
"""True shows a bar, False none; None shows one after a second, and not under CI."""


@contextmanager
def bar(label: str, progress: bool | None, **how: Any) -> Iterator[Any]:
    """Show a progress bar, from the first second on.

    Parameters
    ----------
    label : str
        What is under way.
    progress : bool or None
        True shows it at once and leaves it, False shows none; None shows none under CI.
    **how
        Further arguments of tqdm.

    Yields
    ------
    tqdm.tqdm or None
        The bar.
    """
    if progress is False or (progress is None and any(map(os.environ.get, ("CI", "TQDM_DISABLE")))):
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(desc=label, delay=0 if progress else 1, leave=bool(progress), disable=False, **how) as shown:
        yield shown


@contextmanager
def told(label: str, progress: Watching, before: int = 0) -> Iterator[Progress]:
    """Tell of trades as they are read.

    Parameters
    ----------
    label : str
        What is read.
    progress : bool, callable or None
        A bar, or what is told.
    before : int
        Trades read before these; only a callable is told of them.

    Yields
    ------
    callable
        To be called with the trades held and expected.
    """
    if callable(progress):
        yield lambda held, expected: progress(before + held, before + expected)
        return
    with bar(label, progress, unit=" trades") as shown:

        def report(held: int, expected: int) -> None:
            if shown is not None:
                shown.total = expected
                shown.update(held - shown.n)

        yield report
