"""What every view is made of: controls bound to choices, a field for secrets, progress, problems, code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import ipywidgets as w  # type: ignore[import-untyped]
import traitlets

from loopring_lab.errors import LabError
from loopring_lab.interactive.prose import as_html, worded
from loopring_lab.redaction import SecretText, hide
from loopring_lab.widgets.state import WidgetState
from loopring_lab.widgets.static_copy import SavedCopy

FOLDER = Path(__file__).parent
CSS = (FOLDER / "widgets.css").read_text(encoding="utf-8")

Options = Sequence[tuple[str, Any]]


def script(name: str) -> str:
    """Read the script of a view, after what the scripts of all views use."""
    files = [FOLDER / "page.js", FOLDER / f"{name}.js"]
    return "".join(file.read_text(encoding="utf-8") for file in files)


class SecretField(anywidget.AnyWidget):
    """A password field that hands what is typed to a function, once, and forgets it.

    The text comes as a message. As a trait, like that of `ipywidgets.Password`, it would be saved with the
    notebook.
    """

    _esm = script("secret_field")
    _css = CSS
    description = traitlets.Unicode().tag(sync=True)
    action = traitlets.Unicode("Use").tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    # The words of the page where nothing is typed.
    missing = traitlets.Unicode("Nothing is entered. Type it first.").tag(sync=True)

    def __init__(self, submit: Callable[[SecretText], None], **words: str) -> None:
        super().__init__(**words)
        self._submit = submit
        self.on_msg(self._receive)

    def _receive(self, _: object, content: Any, buffers: object) -> None:
        # The text is taken out of the message first, so that no later error can show it.
        typed = content.pop("typed", None) if isinstance(content, dict) else None
        secret = hide(typed)
        del typed
        if isinstance(secret, SecretText) and secret:
            self._submit(secret)


class CodePanel(anywidget.AnyWidget):
    """Code to open, to copy, or to insert as the next cell where the page is a notebook."""

    _esm = script("code_panel")
    _css = CSS
    value = traitlets.Unicode().tag(sync=True)


class Panel:
    """A view of a widget: its controls and results, with progress, problems and code.

    `draw` of a subclass puts on screen what follows from the choices. It runs after each of them, and after
    work in the background; a LabError of it becomes the problem on screen.
    """

    # Whether an entry that is refused stands with its reason until it is corrected, whatever else is drawn.
    KEEPS_REFUSED = False
    # Names of arguments and methods in errors, as patterns, and the words on the page for what they name.
    WORDS: ClassVar[Mapping[str, str]] = {}
    # The widget and what follows from its choices, as the classes that have this view.
    state: Any
    model: Any

    def __init__(self, state: WidgetState, model: object) -> None:
        self.state = state
        self.model = model
        self.background = state.background
        self._controls: dict[str, tuple[object, Any]] = {}
        self.offers: dict[str, Options] = {}
        # Names of controls without an effect, which would be a riddle.
        self.hidden: set[str] = set()
        # Why entries that stand are refused, by the name of the choice.
        self.refused: dict[str, str] = {}
        # Controls that change while this is set are changed by the state, and not by a user.
        self._is_updating = False
        # Why the last drawing failed.
        self._refusal = ""
        self.problem = w.HTML()
        self.doing = w.HTML()
        # Cancelling is always in reach while something is being read, and never while something is sent.
        self.cancel = self.button(
            "Cancel", self.background.cancel, lambda: not self.background.doing
        )
        self.progress = row(self.doing, self.cancel)
        self.code = CodePanel()
        self.box = w.VBox()
        # All style is below this class, so that it reaches nothing else on the page.
        self.box.add_class("loopring-lab")
        self.saved = SavedCopy(
            type(state).__name__,
            self.box,
            # What went wrong explains why the rest may be missing.
            lambda: self.problem.value + self.static_html(),
            self.background.wait,
        )

    def arrange(self, above: Sequence[Any], below: Sequence[Any]) -> None:
        """Put everything into the box, and keep it as the state is."""
        self.box.children = [
            *above,
            self.progress,
            self.problem,
            *below,
            self.code,
        ]
        self.state.observe(self._follow_choice, self.state.CHOICES)
        self.background.observe(lambda _: self.update(), ["doing", "done", "whole"])
        self.background.observe(lambda _: self._show_work(), "problem")
        self.update()

    def offer(self) -> None:
        """Set what dropdowns offer, where that follows from the choices, and show the controls that matter."""

    def draw(self) -> None:
        """Put on screen what follows from the choices."""
        raise NotImplementedError

    def static_html(self) -> str:
        """Return the results on screen as HTML for a saved notebook, without secrets."""
        raise NotImplementedError

    def bind(self, name: str, control: Any, of: object = None) -> Any:
        """Bind a control to a choice, or to an attribute of another object, both ways."""
        target = of or self.state
        self._controls[name] = (target, control)

        def choose(change: Any) -> None:
            with self.background.lock:
                if self._is_updating:
                    return
                self.refused.pop(name, None)
                self.guard(lambda: setattr(target, name, change["new"]))
                if self.KEEPS_REFUSED:
                    if self.background.problem:
                        self.refused[name] = self.background.problem
                    self.update()

        control.observe(choose, "value")
        return control

    def choice(
        self,
        name: str,
        label: str,
        options: Options = (),
        of: object = None,
    ) -> Any:
        """Bind a dropdown; what it offers may change with `offers`."""
        self.offers[name] = options
        return self.bind(name, w.Dropdown(description=label), of)

    def button(
        self,
        label: str,
        call: Callable[[], object],
        is_late: Callable[[], bool] = lambda: False,
    ) -> Any:
        """Create a button; a press that is late, such as the second of a double click, is ignored."""
        made = w.Button(description=label)

        def press(_: object) -> None:
            self.guard(call, is_late)
            self.update()

        made.on_click(press)
        return made

    def secret(
        self,
        label: str,
        take: Callable[[str], None],
        is_late: Callable[[], bool] = lambda: False,
        **words: str,
    ) -> SecretField:
        """Create a field for a secret, of which errors become the problem on screen."""
        return SecretField(
            lambda text: self.guard(lambda: take(text), is_late),
            description=label,
            **words,
        )

    def guard(
        self,
        call: Callable[[], object],
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run a call, and forget the problem before it; a LabError becomes the next one."""
        with self.background.lock:
            # What comes late must not take away what was said meanwhile.
            if is_late():
                return
            self.background.problem = ""
            try:
                call()
            except LabError as error:
                self.background.problem = str(error)

    def update(self) -> None:
        """Bring everything on screen in line with the state."""
        with self.background.lock:
            if self._is_updating:
                return
            self._is_updating = True
            self._refusal = ""
            try:
                # Controls follow at once; drawing takes longer.
                self.offer()
                self._show_choices()
                self.draw()
            except LabError as error:
                self._refusal = str(error)
            finally:
                self._is_updating = False
            try:
                self.code.value = self.state.export()
            except LabError as error:
                self.code.value = f"# {error}"
            self._show_work()

    def _follow_choice(self, change: Any) -> None:
        # Code may choose something else while an entry stands.
        self.refused.pop(change["name"], None)
        self.guard(self.update)

    def _show_choices(self) -> None:
        for name, (target, control) in self._controls.items():
            set_visible(control, name not in self.hidden)
            if name in self.refused:
                continue
            value = getattr(target, name)
            if isinstance(control, w.Dropdown):
                show_option(control, self.offers[name], value)
            elif isinstance(control, w.DatePicker):
                control.value = value
            else:
                control.value = written(value)

    def _show_work(self) -> None:
        work = self.background
        progress = " …"
        if work.whole:
            bar = f'<progress value="{work.done}" max="{work.whole}"></progress>'
            progress = f": {work.done:,} of {work.whole:,} {bar}"
        self.doing.value = f'<span role="status">{escape(work.doing)}{progress}</span>'
        # In this order, so that there is never a button that has no effect.
        set_visible(self.cancel, work.is_cancellable)
        set_visible(self.progress, bool(work.doing))
        # If several things went wrong, the one that was tried last is told first.
        refusals = [work.problem, self._refusal, *self.refused.values()]
        problem = as_html(worded(next(filter(None, refusals), ""), self.WORDS))
        if problem:
            problem = f'<div role="alert" class="ll-problem">{problem}</div>'
        self.problem.value = problem
        set_visible(self.problem, bool(problem))
        self.saved.refresh()


def written(value: Any) -> str:
    """Write a choice as it is typed; nothing for None."""
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def show_option(control: Any, options: Options, value: Any) -> None:
    """Show a choice in a dropdown; None is its option of empty text."""
    value = "" if value is None else value
    # Code may choose what the view does not offer, such as a period of 3 days.
    if all(option != value for _, option in options):
        options = [*options, (written(value), value)]
    # Options that stay are left alone, as somebody may have the list open.
    if tuple(options) != tuple(control.options):
        control.options = options
    control.value = value


def set_visible(widget: Any, visible: bool) -> None:
    """Show a widget, or take it off the page, also for keyboards and screen readers."""
    widget.layout.display = None if visible else "none"


def row(*widgets: Any) -> Any:
    """Put widgets beside each other, wrapping where there is no room."""
    return styled("ll-bar", *widgets)


def styled(name: str, *widgets: Any) -> Any:
    """Put widgets into a box of a class of the style sheet."""
    box = w.Box(widgets)
    box.add_class(name)
    return box


def scrolling(table: Any) -> str:
    """Return a table as HTML that scrolls sideways by itself on a narrow page."""
    return f'<div class="ll-scroll" tabindex="0">{table._repr_html_()}</div>'
