"""A field for secrets: what is typed travels as a message to the kernel, and is no part of widget state.

Whatever is part of it can end up in a notebook file: JupyterLab saves widget state on request, nbclient
and papermill save it unless told not to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from loopring_lab.hidden import SecretText, hide

__all__ = ["SecretField"]

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
STYLE = """
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
    """A password field that hands what is typed to a function, once, and forgets it.

    Parameters
    ----------
    description : str
        The label.
    taken : callable
        Given the text, hidden. It must not raise.
    action : str
        On the button.

    Attributes
    ----------
    note : str
        Small print beside the field; never set from what is typed.
    """

    _esm = MODULE
    _css = STYLE
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
