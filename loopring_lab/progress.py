"""Progress of a long read: a bar after a second, or a callable."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from loopring_lab.interactive.shell import running_shell

Progress = Callable[[int, int], None]
"""Called with how many trades are read and expected; raising ends the read."""
Watching = bool | Progress | None
"""True shows a bar, False none; None shows one after a second, if somebody watches."""

PAGE_SCRIPT = Path(__file__).with_suffix(".js")


@contextmanager
def bar(label: str, progress: bool | None, **options: Any) -> Iterator[Any]:
    """Show a progress bar; where it is not asked for, after a second."""
    shell = running_shell()
    is_notebook = hasattr(shell, "kernel")
    if progress is False or (is_notebook and not _is_open_in_a_page(shell)):
        yield None
        return
    # Nobody watches a log; TQDM_DISABLE is tqdm's own switch, which `disable` below would overrule.
    is_unwatched = os.environ.get("CI") or os.environ.get("TQDM_DISABLE")
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if progress is None and (is_unwatched or not (is_notebook or is_terminal)):
        yield None
        return
    is_asked_for = bool(progress)
    delay = 0 if is_asked_for else 1  # second: shorter reads need no bar
    from tqdm import tqdm

    make = _page_bar() if is_notebook else tqdm
    with make(
        desc=label, delay=delay, leave=is_asked_for, disable=False, **options
    ) as shown:
        yield shown


def _is_open_in_a_page(shell: Any) -> bool:
    """Tell whether somebody sees what a cell does meanwhile; programs that run notebooks say that nobody answers."""
    content = (shell.parent_header or {}).get("content", {})
    return bool(content.get("allow_stdin", True))


def _page_bar() -> Any:
    """Return a bar that stands in the page, beside the notebook: an output of a cell would be saved.

    No output can be taken back. So each run of a notebook would leave traces of how fast it was, and differ from
    the one before.
    """
    import anywidget
    import traitlets
    from tqdm import tqdm

    class Line(anywidget.AnyWidget):
        """A line of text in the corner of the page, without an output; it goes when it is closed."""

        _esm = PAGE_SCRIPT.read_text(encoding="utf-8")
        text = traitlets.Unicode("").tag(sync=True)

    class PageBar(tqdm):  # type: ignore[type-arg]
        """tqdm's bar, of which a line of the page shows the text."""

        line: Line | None = None

        def __init__(self, *arguments: Any, **options: Any) -> None:
            options |= {"leave": False, "file": StringIO(), "ascii": False}
            super().__init__(*arguments, **options)

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            if self.line is None:
                self.line = Line()
            self.line.text = str(self) if msg is None else msg

        def close(self) -> None:
            super().close()
            if self.line is not None:
                # The page keeps a model until it is told, that of its layout too.
                self.line.layout.close()
                self.line.close()
                self.line = None

    return PageBar


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
