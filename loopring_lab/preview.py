"""A table of fields with their values and meanings, with the same HTML every time."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

_LEFT = "text-align:left;vertical-align:top;"
_STYLES = (
    f"{_LEFT}white-space:nowrap",
    f"{_LEFT}font-family:monospace;overflow-wrap:anywhere;min-width:14em",
    f"{_LEFT}min-width:14em",
)


class Line(NamedTuple):
    """One field: its name, value and meaning."""

    field: str
    value: object
    meaning: str = ""


class Sheet:
    """A table of fields in a notebook, and lines of text elsewhere."""

    def __init__(self, title: str, lines: Iterable[Line], notes: Iterable[str] = ()) -> None:
        self.title, self.lines, self.notes = title, list(lines), list(notes)

    def __repr__(self) -> str:
        width = max((len(line.field) for line in self.lines), default=0)
        texts = [self.title]
        for line in self.lines:
            texts.append(f"  {line.field:{width}}  {line.value}")
            if line.meaning:
                texts.append(f"  {'':{width}}  {line.meaning}")
        return "\n".join([*texts, *self.notes])

    def _repr_html_(self) -> str:
        body = "".join(_row(line) for line in self.lines)
        return (
            f"<p><b>{escape(self.title)}</b></p><table><tbody>{body}</tbody></table>{notes_html(self.notes)}"
        )


def notes_html(notes: Iterable[str]) -> str:
    """Return notes as HTML in small print."""
    return "".join(f"<p><small>{escape(note)}</small></p>" for note in notes)


def _row(line: Line) -> str:
    cells = [
        f'<td style="{style}">{escape(str(cell))}</td>' for style, cell in zip(_STYLES, line, strict=True)
    ]
    return f"<tr>{''.join(cells)}</tr>"
