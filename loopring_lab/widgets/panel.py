"""What every view is made of: controls bound to choices, a field for secrets, progress, problems, code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as w  # type: ignore[import-untyped]
import traitlets

from loopring_lab.errors import LabError
from loopring_lab.redaction import SecretText, hide
from loopring_lab.widgets.state import WidgetState

FOLDER = Path(__file__).parent
CSS = (FOLDER / "widgets.css").read_text(encoding="utf-8")
PAGE_JS = (FOLDER / "page.js").read_text(encoding="utf-8")
"""Helpers that stand before the script of every view."""


class SecretField(anywidget.AnyWidget):
    """A password field that hands what is typed to a function, once, and forgets it.

    The text comes as a message. As a trait, like that of `ipywidgets.Password`, it would be saved with the
    notebook.
    """

    _esm = PAGE_JS + (FOLDER / "secret_field.js").read_text(encoding="utf-8")
    _css = CSS
    description = traitlets.Unicode().tag(sync=True)
    action = traitlets.Unicode().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        description: str,
        submit: Callable[[SecretText], None],
        action: str = "Use",
        missing: str = "Nothing is entered. Type it first.",
    ) -> None:
        super().__init__(description=description, action=action)
        self._submit = submit
        self._missing = missing
        self.on_msg(self._receive)

    def __repr__(self) -> str:
        return f"SecretField({self.description!r})"

    def _receive(self, _: object, content: Any, buffers: object) -> None:
        # Taken out of the message first, so that no later error can show it.
        typed = content.pop("typed", None) if isinstance(content, dict) else None
        secret = hide(typed)
        del typed
        if not isinstance(secret, SecretText):
            return
        if secret:
            self.note = self.note.replace(self._missing, "")
            self._submit(secret)
        else:
            self.note = self._missing


class CodePanel(anywidget.AnyWidget):
    """Code to copy, or to insert as the next cell where the page is a notebook."""

    _esm = PAGE_JS + (FOLDER / "code_panel.js").read_text(encoding="utf-8")
    _css = CSS
    value = traitlets.Unicode().tag(sync=True)


class Panel:
    """A view of a widget: its controls and results, with progress, problems and code."""

    state: Any  # the widget, as the class of it that has this view

    def __init__(self, state: WidgetState) -> None:
        self.state = state
        self.background = state.background
        self.controls: dict[str, Any] = {}
        # Whether a control is being changed by the state, and not by a user.
        self._is_showing_state = False
        self.problem = w.HTML()
        self.doing = w.HTML()
        self.bar = w.IntProgress(layout=w.Layout(width="220px"))
        # Cancelling is always in reach while something is being read.
        stop = button(
            "Cancel",
            self.background.cancel,
            "Cancel the work under way",
        )
        self.progress = row(self.doing, self.bar, stop)
        self.code = CodePanel()
        self.show_code = w.ToggleButton(
            description="Code",
            # Closed at first, because most look at the results only.
            tooltip="Show code that reproduces this",
        )
        self.show_code.observe(lambda _: self.update_code(), "value")
        self.box = w.VBox()
        # All style is below this class, so that it reaches nothing else on the page.
        self.box.add_class("loopring-lab")
        self.background.observe(
            lambda _: self._update_progress(),
            ["doing", "done", "whole"],
        )
        self.background.observe(lambda _: self._update_problem(), ["problem"])
        self._update_progress()
        self._update_problem()

    def arrange(self, above: Iterable[Any], below: Iterable[Any]) -> None:
        """Put everything into the box."""
        self.box.children = [
            *above,
            self.progress,
            self.problem,
            *below,
            self.show_code,
            self.code,
        ]
        self.update_code()

    def bind(self, name: str, control: Any) -> Any:
        """Bind a control to a choice, both ways; a value that is refused becomes a problem."""
        self.controls[name] = control

        def update_control(_: object = None) -> None:
            with self.showing_state():
                set_value(control, getattr(self.state, name))

        def update_state(change: Any) -> None:
            # What the state itself has put into the control is no choice of the user.
            with self.background.lock:
                if not self._is_showing_state:
                    self.guard(lambda: setattr(self.state, name, change["new"]))

        update_control()
        control.observe(update_state, "value")
        self.state.observe(update_control, name)
        return control

    def offer(self, name: str, default: str, options: Sequence[str]) -> None:
        """Set what a dropdown offers: its default, which is no choice, and some names."""
        control = self.controls[name]
        selected = getattr(self.state, name)
        listed = [*options]
        if selected is not None and selected not in listed:
            listed.append(selected)
        pairs = (
            (default, ""),
            *((option, option) for option in listed),
        )
        # Options that stay are left alone, as somebody may have the list open.
        if pairs != tuple(control.options):
            with self.showing_state():
                control.options = pairs
                set_value(control, selected)

    @contextmanager
    def showing_state(self) -> Iterator[None]:
        """Change controls without changing the state."""
        with self.background.lock:
            before = self._is_showing_state
            self._is_showing_state = True
            try:
                yield
            finally:
                self._is_showing_state = before

    @property
    def is_showing_state(self) -> bool:
        """Whether a control is being changed by the state, and not by a user."""
        return self._is_showing_state

    def guard(self, call: Callable[[], object]) -> None:
        """Run a call; a LabError becomes the problem on screen."""
        with self.background.problems_shown():
            call()
        self.update_code()

    def update_code(self) -> None:
        """Show the code of what is on screen now, if it is asked for."""
        if self.show_code.value:
            try:
                self.code.value = self.state.export()
            except LabError as error:
                self.code.value = f"# {error}"
        # Only now, so that old code is never seen.
        set_visible(self.code, self.show_code.value)

    def _update_progress(self) -> None:
        work = self.background
        progress = " …"
        if work.whole:
            progress = f": {work.done:,} of {work.whole:,}"
        self.doing.value = f'<span role="status">{escape(work.doing + progress)}</span>'
        self.bar.max = work.whole or 1
        self.bar.value = work.done
        set_visible(self.bar, work.whole > 0)
        set_visible(self.progress, bool(work.doing))

    def _update_problem(self) -> None:
        problem = escape(self.background.problem)
        if problem:
            problem = f'<div role="alert" class="ll-problem">{problem}</div>'
        self.problem.value = problem
        set_visible(self.problem, bool(problem))


def labelled(control: Any, description: str, **options: Any) -> Any:
    """Create a control under its whole label."""
    return control(
        description=description,
        style={"description_width": "initial"},
        **options,
    )


def button(label: str, call: Callable[[], object], tooltip: str = "") -> Any:
    """Create a button."""
    made = w.Button(description=label, tooltip=tooltip)
    made.on_click(lambda _: call())
    return made


def set_value(control: Any, value: Any) -> None:
    """Show a choice in a control; a dropdown gets an option for it if it has none."""
    several = isinstance(value, tuple)
    written = ", ".join(map(str, value)) if several else str(value)
    if isinstance(control, w.DatePicker):
        control.value = value
    elif value is None:
        control.value = ""
    elif isinstance(control, w.Dropdown):
        # Code may choose what the view does not offer, such as a period of 3 days.
        if value not in [option for _, option in control.options]:
            control.options = (
                *control.options,
                (written, value),
            )
        control.value = value
    else:
        control.value = written


def set_visible(widget: Any, visible: bool) -> None:
    """Show a widget, or take it off the page, also for keyboards and screen readers."""
    widget.layout.display = None if visible else "none"


def row(*widgets: Any) -> Any:
    """Put widgets beside each other, wrapping where there is no room."""
    layout = w.Layout(flex_flow="row wrap", align_items="center")
    return w.HBox(widgets, layout=layout)


def grid(*widgets: Any) -> Any:
    """Put controls into columns of one width, each under its label."""
    box = w.Box(widgets)
    box.add_class("ll-grid")
    return box


def results(*widgets: Any) -> Any:
    """Put results beside each other where there is room, else below each other."""
    box = w.Box(widgets)
    box.add_class("ll-results")
    return box


def table_html(table: Any) -> str:
    """Return a table as HTML that scrolls sideways by itself on a narrow page."""
    return f'<div class="ll-scroll" tabindex="0">{table._repr_html_()}</div>'


def preformatted(text: str, label: str) -> str:
    """Return text as HTML that keeps its line breaks and selects as a whole."""
    return f'<pre tabindex="0" aria-label="{label}">{escape(text)}</pre>'
