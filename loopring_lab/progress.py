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
    is_asked_for = bool(progress)
    delay = 0 if is_asked_for else 1  # second: shorter reads need no bar
    make = _bar_class()
    with make(
        desc=label, delay=delay, leave=is_asked_for, disable=False, **options
    ) as shown:
        yield shown


def _bar_class() -> Any:
    """Return tqdm's bar for a terminal, or one for a notebook, whose output is empty once it is closed."""
    from tqdm import auto
    from tqdm.notebook import tqdm_notebook

    chosen: Any = auto.tqdm
    if not issubclass(chosen, tqdm_notebook):
        return chosen

    from IPython.display import display

    class NotebookBar(chosen):  # type: ignore[misc]
        """A bar that is not saved: a finished one is of no use to who reads the notebook later."""

        displayed: bool

        def __init__(self, *arguments: Any, **options: Any) -> None:
            # tqdm would display it without the id by which it is emptied.
            super().__init__(*arguments, display=False, **options)
            # This is None until the bar is displayed, and again once it is closed.
            self.output: Any = None

        def display(
            self, *arguments: Any, check_delay: bool = True, **options: Any
        ) -> None:
            if check_delay and not self.displayed:
                self.output = display(  # type: ignore[no-untyped-call]
                    self.container, display_id=True
                )
                self.displayed = True
            super().display(*arguments, check_delay=check_delay, **options)

        def close(self) -> None:
            super().close()
            # tqdm closes a bar once more when it is collected.
            if self.output is not None:
                self.container.close()
                # No output can be taken back, and nbconvert warns of one without any data.
                self.output.update({"text/html": ""}, raw=True)
                self.output = None

    return NotebookBar


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
