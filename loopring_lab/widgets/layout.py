"""Building blocks of the views: controls bound to traits, a field for secrets, progress, tables, code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as w  # type: ignore[import-untyped]
import traitlets

from loopring_lab.errors import LabError
from loopring_lab.redaction import SecretText, hide
from loopring_lab.widgets.background import WidgetState

_FOLDER = Path(__file__).parent
_STYLE = f"<style>\n{(_FOLDER / 'panel.css').read_text()}</style>"


class SecretField(anywidget.AnyWidget):
    """A password field that hands what is typed to a function, once, and forgets it."""

    _esm = (_FOLDER / "secret_field.js").read_text()
    _css = (_FOLDER / "secret_field.css").read_text()
    description = traitlets.Unicode().tag(sync=True)
    action = traitlets.Unicode("Use").tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        description: str,
        submit: Callable[[SecretText], None],
        action: str = "Use",
        missing: str = "Nothing is entered. Type it first.",
    ) -> None:
        super().__init__(description=description, action=action)
        self._submit, self._missing = submit, missing
        self.on_msg(self._receive)

    def __repr__(self) -> str:
        return f"SecretField({self.description!r})"

    def _receive(self, _: object, content: Any, buffers: object) -> None:
        secret = hide(content.pop("typed", None)) if isinstance(content, dict) else None
        if isinstance(secret, SecretText):
            if not secret:
                self.note = self._missing
                return
            self.note = self.note.replace(self._missing, "")
            self._submit(secret)


class CodePanel(anywidget.AnyWidget):
    """Code to copy, or to insert as the next cell where the page is a notebook."""

    _esm = "".join((_FOLDER / name).read_text() for name in ("clipboard.js", "code_panel.js"))
    _css = (_FOLDER / "code_panel.css").read_text()
    value = traitlets.Unicode().tag(sync=True)


class Slot(w.Box):  # type: ignore[misc]
    """A place for a view of this package, made with the first thing that it shows."""

    view: Any = None

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self._name, self._options = name, options

    def show(self, thing: Any, **more: Any) -> None:
        """Show a thing in place of what is shown."""
        if self.view is None:
            module, name = self._name.split(".")
            view = getattr(import_module(f"loopring_lab.widgets.{module}"), name)
            self.view = view(thing, **more, **self._options)
            self.children = [self.view]
        else:
            self.view.show(thing, **more)


class Panel:
    """A view of a state: its own controls and results, with progress, problems and code between and below."""

    def __init__(self, state: WidgetState) -> None:
        self.state = state
        self.controls: dict[str, Any] = {}
        self._muted = False
        self.problem, self.doing = w.HTML(), w.HTML()
        self.bar = w.IntProgress(layout=w.Layout(width="220px"))
        self.stop = w.Button(description="Cancel", tooltip="Cancel the work under way")
        self.stop.on_click(lambda _: state.cancel())
        self.progress = row(self.doing, self.bar, self.stop)
        self.code = CodePanel()
        self.show_code = w.ToggleButton(description="Code", tooltip="Show code that reproduces this")
        self.show_code.observe(lambda _: self._update_code(), "value")
        self.box = w.VBox()
        self.box.add_class("loopring-lab")
        state.observe(lambda _: self._update_progress(), ["doing", "done", "whole"])
        state.observe(lambda _: self._update_problem(), ["problem"])
        self._update_progress()
        self._update_problem()

    def arrange(self, above: Iterable[Any], below: Iterable[Any]) -> None:
        """Put everything into the box."""
        parts = [w.HTML(_STYLE), *above, self.progress, self.problem, *below, self.show_code, self.code]
        self.box.children = parts
        self._update_code()

    def bind(self, name: str, control: Any) -> Any:
        """Bind a control to a trait of the state, both ways; a value that is refused becomes a problem."""
        self.controls[name] = control

        def update_control(_: object = None) -> None:
            with self.muted():
                set_value(control, getattr(self.state, name))

        def update_state(change: Any) -> None:
            with self.state.lock:
                if not self._muted:
                    self.guard(lambda: setattr(self.state, name, change["new"]))

        update_control()
        control.observe(update_state, "value")
        self.state.observe(update_control, name)
        return control

    def set_options(self, control: Any, default: tuple[str, str], names: list[str], selected: str | None) -> None:
        """Set the options of a dropdown; unchanged options are left alone, as somebody may be choosing."""
        listed = names if selected is None or selected in names else [*names, selected]
        options = (default, *((name, name) for name in listed))
        if options != tuple(control.options):
            with self.muted():
                control.options = options
                set_value(control, selected)

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Change controls without changing the state."""
        with self.state.lock:
            before, self._muted = self._muted, True
            try:
                yield
            finally:
                self._muted = before

    def guard(self, call: Callable[[], object]) -> None:
        """Run a call; a LabError becomes the problem on screen."""
        with self.state.lock:
            self.state.problem = ""
            try:
                call()
            except LabError as error:
                self.state.problem = str(error)
            self._update_code()

    def _update_code(self) -> None:
        if self.show_code.value:
            try:
                self.code.value = self.state.export()
            except LabError as error:
                self.code.value = f"# {error}"
        set_visible(self.code, self.show_code.value)  # not before it holds the code of now

    def _update_progress(self) -> None:
        state = self.state
        progress = f": {state.done:,} of {state.whole:,}" if state.whole else " …"
        self.doing.value = f'<span role="status">{escape(state.doing + progress)}</span>'
        self.bar.max, self.bar.value = state.whole or 1, state.done
        set_visible(self.bar, state.whole > 0)
        set_visible(self.progress, bool(state.doing))

    def _update_problem(self) -> None:
        problem = escape(self.state.problem)
        self.problem.value = f'<div role="alert" class="ll-problem">{problem}</div>' if problem else ""
        set_visible(self.problem, bool(problem))


def labelled(control: Any, description: str, width: str = "200px", **options: Any) -> Any:
    """Create a control with its whole label before it."""
    layout = w.Layout(width=width, margin="2px 14px 2px 2px")
    return control(description=description, style={"description_width": "initial"}, layout=layout, **options)


def set_value(control: Any, value: Any) -> None:
    """Show a trait's value in a control; a dropdown gets an option for it if it has none."""
    if value is None and not isinstance(control, w.DatePicker):
        value = ""
    if isinstance(control, w.Dropdown) and value not in [option for _, option in control.options]:
        label = ", ".join(value) if isinstance(value, tuple) else str(value)
        control.options = (*control.options, (label, value))
    if isinstance(control, w.Text):
        value = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    control.value = value


def set_visible(widget: Any, visible: bool) -> None:
    """Show a widget, or take it off the page, also for keyboards and screen readers."""
    widget.layout.display = None if visible else "none"


def row(*widgets: Any) -> Any:
    """Put widgets beside each other, wrapping where there is no room."""
    return w.HBox(widgets, layout=w.Layout(flex_flow="row wrap", align_items="center"))


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
