"""Tables as HTML: one look for all, the same HTML every time, legible where style sheets are removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from loopring_lab.errors import visible
from loopring_lab.interactive.prose import as_html

STYLE_SHEET = Path(__file__).parent / "table.css"
# The style sheet is put in one line, because every table of a notebook carries it.
CSS = " ".join(STYLE_SHEET.read_text(encoding="utf-8").split())
# Characters from which a cell may wrap: an address (42) may, a name of a market may not.
LONG = 40


class Line(NamedTuple):
    """One field: its name, value and meaning."""

    field: str
    value: object
    meaning: str = ""


class Cell(NamedTuple):
    """A cell of a table; `title` is what pointing at it shows."""

    text: str
    title: str = ""
    is_number: bool = False


class Sheet:
    """A table of fields in a notebook, and lines of text elsewhere."""

    def __init__(
        self,
        title: str,
        lines: Iterable[Line],
        notes: Iterable[str] = (),
    ) -> None:
        self.title = title
        self.lines = list(lines)
        self.notes = list(notes)

    def __repr__(self) -> str:
        width = max((len(line.field) for line in self.lines), default=0)
        texts = [self.title]
        for line in self.lines:
            texts.append(f"  {line.field:{width}}  {line.value}")
            if line.meaning:
                texts.append(f"  {'':{width}}  {line.meaning}")
        # Values are the relayer's, such as the text of a key, and may hold what a terminal takes for commands.
        return "\n".join(map(visible, [*texts, *self.notes]))

    def _repr_html_(self) -> str:
        rows = [
            [
                Cell(line.field),
                Cell(str(line.value)),
                Cell(line.meaning),
            ]
            for line in self.lines
        ]
        table = table_html([], rows, self.notes, kind="ll-table ll-sheet")
        return f"<p><b>{as_html(self.title)}</b></p>{table}"


def table_html(
    head: Sequence[Cell],
    rows: Iterable[Sequence[Cell]],
    notes: Iterable[str],
    keys: int = 0,
    kind: str = "ll-table",
) -> str:
    """Return a table with its notes; the first cells of each row, its `keys`, are headings."""
    top = ""
    if head:
        headings = "".join(cell_html("th", cell, ' scope="col"') for cell in head)
        top = f"<thead><tr>{headings}</tr></thead>\n"
    body = "".join(row_html(row, keys) for row in rows)
    return f'<style>{CSS}</style><table class="{kind}">\n{top}<tbody>\n{body}</tbody></table>{notes_html(notes)}'


def notes_html(notes: Iterable[str]) -> str:
    """Return notes as HTML in small print."""
    text = "<br>".join(map(as_html, notes))
    return f"<p><small>{text}</small></p>" if text else ""


def row_html(row: Sequence[Cell], keys: int = 0, more: str = "") -> str:
    """Return a row, of which the first cells, its `keys`, are headings; `more` are its attributes."""
    names = "".join(cell_html("th", cell, ' scope="row"') for cell in row[:keys])
    values = "".join(cell_html("td", cell) for cell in row[keys:])
    return f"<tr{more}>{names}{values}</tr>\n"


def cell_html(tag: str, cell: Cell, more: str = "") -> str:
    """Return a cell; code hosts keep ``align`` and ``title``, where they remove style sheets."""
    # Numbers stand to the right, so that their digits are below each other.
    align = "right" if cell.is_number else "left"
    attributes = f'align="{align}"{more}'
    # A long number does not wrap, because half of it would stand in the next line.
    if len(cell.text) > LONG and not cell.is_number:
        attributes += ' class="ll-long"'
    if cell.title:
        attributes += f' title="{escape(cell.title)}"'
    return f"<{tag} {attributes}>{as_html(cell.text)}</{tag}>"
