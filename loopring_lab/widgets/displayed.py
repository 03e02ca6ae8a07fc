"""How a state is displayed: its view, made when it is first looked at, and a line where there is none."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopring_lab.widgets.parts import Panel

__all__ = ["Displayed"]


class Displayed:
    """Mixin of a state that a notebook shows as a widget."""

    ABOUT = ""

    @cached_property
    def view(self) -> Panel:
        """The view: its controls and parts, made when it is first asked for."""
        return self._make_view()

    def _make_view(self) -> Panel:
        raise NotImplementedError

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {self.ABOUT}. Run this cell in JupyterLab, or open the notebook with "
            "Voila, to use it."
        )

    def _repr_mimebundle_(self, **how: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = self.view.box._repr_mimebundle_(**how)
        return bundle | {"text/plain": repr(self)}
