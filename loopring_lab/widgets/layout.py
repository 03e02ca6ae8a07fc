"""Parts that the views share: controls bound to traits, a secret field, progress, tables, code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import anywidget
import ipywidgets as w  # type: ignore[import-untyped]
import traitlets

from loopring_lab.errors import LabError
from loopring_lab.redaction import SecretText, hide
from loopring_lab.widgets.background import Working

MODULE = """
function render({ model, el }) {
  const field = document.createElement("form");
  field.className = "loopring-lab-secret";
  const label = field.appendChild(document.createElement("label"));
  const input = document.createElement("input");
  Object.assign(input, { type: "password", autocomplete: "off", spellcheck: false });
  const name = label.appendChild(document.createElement("span"));
  label.appendChild(input);
  const button = field.appendChild(document.createElement("button"));
  button.type = "submit";
  const note = field.appendChild(document.createElement("span"));
  note.setAttribute("role", "status");
  const show = () => {
    name.textContent = model.get("description");
    button.textContent = model.get("action");
    note.textContent = model.get("note");
  };
  model.on("change", show);
  show();
  const hand_over = (event) => {
    event.preventDefault();
    const text = input.value;
    input.value = "";
    if (text) model.send({ typed: text });
  };
  field.addEventListener("submit", hand_over);
  input.addEventListener("keydown", (event) => {
    event.stopPropagation();                       // the notebook has shortcuts on single keys
    if (event.key === "Enter") hand_over(event);
  });
  el.appendChild(field);
}
export default { render };
"""
FIELD_STYLE = """
.loopring-lab-secret { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin: 4px 2px;
  font-size: 13px; color: var(--jp-ui-font-color1, inherit); }
.loopring-lab-secret label { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
.loopring-lab-secret input { width: min(22em, 80vw); padding: 4px 8px; font: inherit;
  color: var(--jp-ui-font-color1, inherit); background: var(--jp-layout-color1, Field);
  border: 1px solid var(--jp-border-color1, #8a8a8a); }
.loopring-lab-secret button { padding: 4px 12px; font: inherit; cursor: pointer;
  color: var(--jp-ui-font-color1, inherit); background: var(--jp-layout-color2, ButtonFace);
  border: 1px solid var(--jp-border-color1, #8a8a8a); }
.loopring-lab-secret input:focus-visible, .loopring-lab-secret button:focus-visible {
  outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: 1px; }
.loopring-lab-secret [role="status"] { color: var(--jp-ui-font-color2, inherit); }
"""


class SecretField(anywidget.AnyWidget):
    """A password field that hands what is typed to a function, once, and forgets it."""

    _esm = MODULE
    _css = FIELD_STYLE
    description = traitlets.Unicode().tag(sync=True)
    action = traitlets.Unicode("Use").tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)

    def __init__(self, description: str, taken: Callable[[SecretText], None], action: str = "Use") -> None:
        super().__init__(description=description, action=action)
        self._taken = taken
        self.on_msg(self._typed)

    def __repr__(self) -> str:
        return f"SecretField({self.description!r})"

    def _typed(self, _: object, content: Any, buffers: object) -> None:
        text = hide(content.pop("typed", None)) if isinstance(content, dict) else None
        if isinstance(text, SecretText) and text:
            self._taken(text)


STYLE = """<style>
.loopring-lab { max-width: 920px; color: var(--jp-ui-font-color1, inherit); }
.loopring-lab .widget-html, .loopring-lab .widget-html-content { min-width: 0; }
.loopring-lab .ll-scroll { overflow-x: auto; line-height: 1.4; }
.loopring-lab table { border-collapse: collapse; font-size: 13px; margin: 4px 0;
  font-variant-numeric: tabular-nums; color: var(--jp-ui-font-color1, inherit); }
.loopring-lab th, .loopring-lab td { padding: 3px 10px; text-align: right; white-space: nowrap; border: 0;
  border-bottom: 1px solid var(--jp-border-color2, rgba(128, 128, 128, .4)); vertical-align: top; }
.loopring-lab th { font-weight: 600; }
.loopring-lab th:first-child, .loopring-lab td:first-child { padding-left: 2px; text-align: left; }
.loopring-lab .ll-sheet td { white-space: normal; text-align: left; }
.loopring-lab .ll-sheet td:nth-child(2) { font-size: 12px; }
.loopring-lab p { margin: 4px 0; }
.loopring-lab small, .loopring-lab .ll-quiet { color: var(--jp-ui-font-color2, inherit); font-size: 12px; }
.loopring-lab .ll-problem { border-left: 4px solid var(--jp-error-color1, #c62828); padding: 4px 10px;
  margin: 4px 2px; line-height: 1.4; background: var(--jp-layout-color2, rgba(128, 128, 128, .12)); }
.loopring-lab .ll-refused { border-left: 4px solid #D55E00; }
.loopring-lab .ll-fits { border-left: 4px solid #009E73; }
.loopring-lab .ll-note { border-left: 4px solid #8a8a8a; }
.loopring-lab .ll-finding { padding: 2px 10px; margin: 4px 2px; line-height: 1.4; }
.loopring-lab pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 18em; overflow-y: auto;
  margin: 4px 2px; padding: 8px; font-size: 12px; line-height: 1.4; user-select: all;
  color: var(--jp-ui-font-color1, inherit); background: var(--jp-layout-color2, rgba(128, 128, 128, .12)); }
.loopring-lab ol { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 4px 2px 8px; padding: 0;
  list-style-position: inside; color: var(--jp-ui-font-color2, inherit); }
.loopring-lab [aria-current] { font-weight: 700; color: var(--jp-ui-font-color1, inherit);
  text-decoration: underline; text-underline-offset: 4px; }
</style>"""


class Panel:
    """A view of a state: its own controls and results, between a progress bar and its code."""

    def __init__(self, state: Working) -> None:
        self.state = state
        self.controls: dict[str, Any] = {}
        self._quiet = False
        self.problem, self.doing = w.HTML(), w.HTML()
        self.bar = w.IntProgress(layout=w.Layout(width="220px"))
        self.stop = w.Button(description="Cancel", tooltip="Give up what is under way")
        self.stop.on_click(lambda _: state.cancel())
        self.progress = row(self.doing, self.bar, self.stop)
        self.code = w.HTML()
        self.show_code = w.ToggleButton(description="Code", tooltip="The code cell that gives the same")
        self.show_code.observe(lambda _: self._coded(), "value")
        self.box = w.VBox()
        self.box.add_class("loopring-lab")
        state.observe(lambda _: self._progressed(), ["doing", "done", "whole"])
        state.observe(lambda _: self._complained(), ["problem"])
        self._progressed()
        self._complained()

    def arrange(self, above: Iterable[Any], below: Iterable[Any]) -> None:
        """Put everything into the box."""
        parts = [w.HTML(STYLE), *above, self.progress, self.problem, *below, self.show_code, self.code]
        self.box.children = parts
        self._coded()

    def tie(self, choice: str, control: Any) -> Any:
        """Tie a control to a choice: each follows the other, and what is not allowed is said in words."""
        self.controls[choice] = control

        def follow(_: object = None) -> None:
            with self.quiet():
                put(control, getattr(self.state, choice))

        def lead(change: Any) -> None:
            with self.state.lock:
                if not self._quiet:
                    self.guard(lambda: setattr(self.state, choice, change["new"]))

        follow()
        control.observe(lead, "value")
        self.state.observe(follow, choice)
        return control

    def offer(self, control: Any, first: tuple[str, str], names: list[str], chosen: str | None) -> None:
        """Offer names in a dropdown; where it offers them already, whoever is choosing is left alone."""
        named = names if chosen is None or chosen in names else [*names, chosen]
        options = (first, *((name, name) for name in named))
        if options != tuple(control.options):
            with self.quiet():
                control.options = options
                put(control, chosen)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Change controls without changing the state."""
        with self.state.lock:
            before, self._quiet = self._quiet, True
            try:
                yield
            finally:
                self._quiet = before

    def guard(self, call: Callable[[], object]) -> None:
        """Do what was asked for, and say in words why where it cannot be done."""
        with self.state.lock:
            self.state.problem = ""
            try:
                call()
            except LabError as error:
                self.state.problem = str(error)
            self._coded()

    def _coded(self) -> None:
        seen(self.code, self.show_code.value)
        if self.show_code.value:
            self.code.value = f'<pre tabindex="0" aria-label="Code">{escape(self.state.export())}</pre>'

    def _progressed(self) -> None:
        state = self.state
        counted = f": {state.done:,} of {state.whole:,}" if state.whole else " …"
        self.doing.value = f'<span role="status">{escape(state.doing + counted)}</span>'
        self.bar.max, self.bar.value = state.whole or 1, state.done
        seen(self.bar, state.whole > 0)
        seen(self.progress, bool(state.doing))

    def _complained(self) -> None:
        words = escape(self.state.problem)
        self.problem.value = f'<div role="alert" class="ll-problem">{words}</div>' if words else ""
        seen(self.problem, bool(words))


def labelled(kind: Any, description: str, width: str = "200px", **how: Any) -> Any:
    """Make a control with its whole label before it."""
    layout = w.Layout(width=width, margin="2px 14px 2px 2px")
    return kind(description=description, style={"description_width": "initial"}, layout=layout, **how)


def put(control: Any, value: Any) -> None:
    """Put a choice's value into a control."""
    if value is None and not isinstance(control, w.DatePicker):
        value = ""
    if isinstance(control, w.Dropdown) and value not in [one for _, one in control.options]:
        words = ", ".join(value) if isinstance(value, tuple) else str(value)
        control.options = (*control.options, (words, value))
    control.value = str(value) if isinstance(control, w.Text) else value


def row(*parts: Any) -> Any:
    """Put widgets beside each other, and below where there is no room."""
    return w.HBox(parts, layout=w.Layout(flex_flow="row wrap", align_items="center"))


def seen(part: Any, yes: bool) -> None:
    """Show a widget, or take it off the page, also for keyboards and screen readers."""
    part.layout.display = None if yes else "none"


def table_html(table: Any) -> str:
    """Write a table for a narrow page: it scrolls sideways by itself."""
    return f'<div class="ll-scroll" tabindex="0">{table._repr_html_()}</div>'
