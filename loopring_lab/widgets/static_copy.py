"""What a saved notebook shows of a widget: a second output, which the page hides while the widget lives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from loopring_lab.amounts.display import running_request
from loopring_lab.interactive.shell import running_shell

LIVE = ":is(.loopring-lab, .loopring-lab-figure, .ll-view)"
OUTPUT = ".jp-OutputArea-child"
# JupyterLab shows an error for a widget without its kernel, whatever else is in the same output. So the copy is an
# output of its own, after the widget's. Line by line, this hides: the copy after a widget that lives; the error before
# a copy, where none lives; and on other pages than Jupyter's, which have no outputs by this name, the copy if any
# widget lives.
STYLE = f"""<style>
{OUTPUT}:has({LIVE}) + {OUTPUT}:has(.ll-saved),
{OUTPUT}:not(:has({LIVE})):has(+ {OUTPUT} .ll-saved),
:root:not(:has({OUTPUT})):has({LIVE}) .ll-saved {{ display: none; }}
</style>"""
# Seconds without another change before the copy is made anew: its picture takes longer to make than what is on screen.
PAUSE = 1.0


class SavedCopy:
    """The second output of a widget, which follows the changes of the first."""

    def __init__(
        self,
        name: str,
        on_page: Any,
        html: Callable[[], str],
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        # The object that the first output shows.
        self.on_page = on_page
        self._html = html
        # This returns once the widget has read what it shows.
        self._wait = wait
        self._id = uuid4().hex
        # This is None until the widget is displayed.
        self._displayed: str | None = None
        self._is_outdated = False
        self._has_page = True
        self._timer: asyncio.TimerHandle | None = None

    def display(self, view: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Display the view of a widget, and its copy."""
        from IPython.display import display

        display(view, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        self._has_page = has_page()
        if not self._has_page:
            self._wait()
            running_shell().events.register("post_run_cell", self._end_cell)
        self._displayed = self._page()
        display(  # type: ignore[no-untyped-call]
            {"text/html": self._displayed},
            raw=True,
            display_id=self._id,
        )

    def refresh(self) -> None:
        """Make the copy anew, a moment after the last change."""
        if self._displayed is None:
            return
        if not self._has_page:
            self._is_outdated = True
            return
        if self._timer is not None:
            self._timer.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._update()
        else:
            self._timer = loop.call_later(PAUSE, self._update)

    def _end_cell(self, _: object) -> None:
        """Make the copy anew before the cell ends, if the cell has changed the widget."""
        self._wait()
        if self._is_outdated:
            self._is_outdated = False
            self._update()

    def _update(self) -> None:
        from IPython.display import update_display

        page = self._page()
        if page != self._displayed:
            self._displayed = page
            update_display(  # type: ignore[no-untyped-call]
                {"text/html": page}, display_id=self._id, raw=True
            )

    def _page(self) -> str:
        caption = f"Saved copy of {self._name}; to use it, run this cell in JupyterLab."
        return f'{STYLE}<div class="ll-saved"><p><small>{caption}</small></p>{self._html()}</div>'


class HasSavedCopy:
    """What a notebook displays of explorers, the wizard and views: a widget, and its ``_saved`` copy."""

    _saved: SavedCopy

    def _repr_mimebundle_(
        self, **options: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        from anywidget import AnyWidget

        # A box has this bundle too, as Colab needs to be told how its parts are loaded.
        bundle = AnyWidget._repr_mimebundle_(self._saved.on_page)
        view, metadata = bundle or ({}, {})
        # Widgets have a repr with a model's id, which changes in every run.
        return {**view, "text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        self._saved.display(*self._repr_mimebundle_())


def has_page() -> bool:
    """Return whether somebody looks at what the running cell displays, and what is sent later arrives.

    nbconvert, papermill and nbval keep only what is sent before a cell ends.
    """
    request = running_request()
    if request is None:
        return True
    # JupyterLab and VS Code name the cell that they ask to run; Voila tells the kernel of its page.
    return "cellId" in request.get("metadata", {}) or "VOILA_BASE_URL" in os.environ
