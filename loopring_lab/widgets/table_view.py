"""A table to look into: sorted, filtered and added up exactly, saved as CSV.

Not itables: measured on 2,000 rows it took 0.7 s where the table before this one took 0.1 s, it sends 0.7 MB of
scripts, leaves out rows in silence when updated, adds up floats, and has no static copy. The rows stay in the
kernel, where amounts are exact; the page gets the fifty that it shows.
"""

from __future__ import annotations

import gzip
import threading
from decimal import Context, Decimal
from typing import Any

import anywidget
import pandas as pd
import traitlets

from loopring_lab.amounts.display import (
    CUT,
    Precision,
    TextColumn,
    as_frame,
    empty_columns,
    format_amount,
    is_missing,
    notes_on,
    readable,
    redundant_columns,
    text_columns,
    truncate,
    without_trailing_zeros,
)
from loopring_lab.amounts.scaling import is_exact
from loopring_lab.errors import LabError
from loopring_lab.preview import CSS as TABLE_CSS
from loopring_lab.preview import Cell, notes_html, table_html
from loopring_lab.widgets.panel import CSS, FOLDER, PAGE_JS

MOST_ROWS = 50_000  # as many as are formatted within a few seconds
PAGE = 50
STATIC_ROWS = 20
LARGEST_CSV = 2_900_000  # Jupyter drops messages that exceed 1 MB a second, measured over 3 seconds
FORMULA = r"^(?=[=+\-@\t\r])"  # the beginnings of text that a spreadsheet would run
EXACT = Context(prec=160)  # two amounts of 256 bits, 78 digits each


class TableView(anywidget.AnyWidget):
    """A table that can be sorted, filtered, added up and saved, formatted as by `amounts.show`.

    Pointing at a cell shows its exact value, and the CSV has all digits. Totals are exact, of the rows that
    match the filter, and only of columns that can be added up in one unit.

    Parameters
    ----------
    frame : pandas.DataFrame or pandas.Series
        At most 50,000 rows.
    precision : int or pandas.DataFrame, optional
        As for `amounts.show`; digits below are cut on screen only.
    code : str
        Python code that makes the frame, for a button that copies it.
    label : str
        Name of the table for screen readers, and of the CSV file.
    choosing : bool
        Whether a click on a row, or Enter, sets ``chosen``, the row's position in `frame` (-1 for none).

    Raises
    ------
    LabError
        `frame` is no frame or has too many rows, or `precision` is not valid.

    Examples
    --------
    >>> from loopring_lab.widgets.table_view import TableView
    >>> view = TableView(client.markets()[["base", "quote"]], choosing=True)
    >>> view.chosen
    -1
    """

    _esm = PAGE_JS + (FOLDER / "table_view.js").read_text(encoding="utf-8")
    _css = TABLE_CSS + CSS
    page: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    chosen = traitlets.Int(-1).tag(sync=True)
    choosing = traitlets.Bool(False).tag(sync=True)
    code = traitlets.Unicode().tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        frame: pd.DataFrame | pd.Series,
        *,
        precision: Precision | None = None,
        code: str = "",
        label: str = "Table",
        choosing: bool = False,
    ) -> None:
        super().__init__(label=label, choosing=choosing)
        self._lock = threading.RLock()
        self._precision = precision
        self._filter = ""
        self._sorted_by = ""
        self._is_descending = False
        self.show(frame, code)
        self.on_msg(self._receive)

    def __repr__(self) -> str:
        return f"TableView of {len(self.frame):,} rows"

    def show(self, frame: pd.DataFrame | pd.Series, code: str = "") -> None:
        """Show another frame in place; the filter and the order stay, no row is chosen."""
        frame = as_frame(frame, "TableView")
        if len(frame) > MOST_ROWS:
            raise LabError(
                f"TableView: {len(frame):,} rows are more than the {MOST_ROWS:,} that a browser shows well. "
                "Give fewer, such as frame.tail(1000), or a summary."
            )
        keys, columns = text_columns(frame, self._precision)
        hidden = {
            *map(str, empty_columns(frame)),
            *redundant_columns(frame, columns),
        }
        with self._lock, self.hold_sync():
            self.frame = frame
            self._columns = [*keys, *columns]
            self._keys = len(keys)
            self._visible = [
                *keys,
                *(column for column in columns if column.name not in hidden),
            ]
            self._notes = notes_html(notes_on(frame, columns, self._precision))
            self._texts: list[str] | None = None
            self._select_rows()
            self.code = code
            # Another frame has other rows at the same places.
            self.chosen = -1

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Put a static copy beside the view, for where no kernel runs."""
        bundle = super()._repr_mimebundle_(**options)
        view, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        copy = readable(
            self.frame,
            precision=self._precision,
            rows=STATIC_ROWS,
        )
        static = {
            "text/plain": repr(self),
            "text/html": copy._repr_html_(),
        }
        return {**(view or {}), **static}, metadata

    def _receive(self, _: object, content: Any, buffers: object) -> None:
        """Do what a control of the page asks for."""
        with self._lock:
            if "filter" in content:
                self._filter = content["filter"].lower()
                self._select_rows()
            elif "sort" in content:
                self._sort_by(self._visible[content["sort"]].name)
            elif "start" in content:
                self._show_page(content["start"])
            elif "csv" in content:
                self._send_csv()

    def _sort_by(self, name: str) -> None:
        """Sort upwards, then downwards, then not at all."""
        if name != self._sorted_by:
            self._sorted_by = name
            self._is_descending = False
        elif not self._is_descending:
            self._is_descending = True
        else:
            self._sorted_by = ""
        self._select_rows()

    def _select_rows(self) -> None:
        """Filter and sort, and show the first page."""
        self._rows = list(range(len(self.frame)))
        if self._filter:
            texts = self._searched_texts()
            self._rows = [row for row in self._rows if self._filter in texts[row]]
        for column in self._columns:
            if column.name == self._sorted_by:
                self._rows = _sorted(column, self._rows, self._is_descending)
        self._all_totals = self._totals()
        self._show_page(0)

    def _searched_texts(self) -> list[str]:
        """Return what the filter looks for, row by row: all texts and exact values."""
        # Made at the first filter, as most tables are never filtered.
        if self._texts is None:
            parts: list[list[str]] = []
            for column in self._columns:
                parts += [
                    column.texts,
                    column.titles,
                    column.values.astype(str).fillna("").to_list(),
                ]
            self._texts = ["\n".join(row).lower() for row in zip(*parts, strict=True)]
        return self._texts

    def _show_page(self, start: int) -> None:
        rows = self._rows[start : start + PAGE]
        head = [
            Cell(column.heading, column.help, column.is_number)
            for column in self._visible
        ]
        lines = []
        for row in rows:
            cells = [
                Cell(
                    one.texts[row],
                    one.titles[row],
                    one.is_number,
                )
                for one in self._visible
            ]
            lines.append(cells)
        order = "descending" if self._is_descending else "ascending"
        self.page = {
            "html": table_html(head, lines, [], self._keys),
            "rows": rows,
            "start": start,
            "size": PAGE,
            "matching": len(self._rows),
            "all": len(self.frame),
            "filtered": bool(self._filter),
            "orders": [
                order if one.name == self._sorted_by else "" for one in self._visible
            ],
            "totals": self._all_totals,
            "notes": self._notes,
        }

    def _totals(self) -> list[list[str]]:
        """Return the text and the exact value of each column's total; nothing if there is none."""
        # The total of one row is that row.
        if len(self._rows) < 2:
            return []
        totals = [self._total(column) for column in self._visible]
        if not any(total[0] for total in totals):
            return []
        # The word stands in the first column, unless that has a total itself.
        if not totals[0][0]:
            added = [
                column
                for column, total in zip(self._visible, totals, strict=True)
                if total[0]
            ]
            is_partial = any(
                column.values.iloc[self._rows].isna().any() for column in added
            )
            totals[0] = [
                "Total of known" if is_partial else "Total",
                "",
            ]
        return totals

    def _total(self, column: TextColumn) -> list[str]:
        """Return a column's total over the matching rows, if they are all in one unit."""
        nothing = ["", ""]
        known = column.described
        if known is None or not known.adds:
            return nothing
        values = column.values.iloc[self._rows]
        is_there = values.notna().to_numpy()
        units = self._units(column)
        symbol = ""
        if units is not None:
            found = units.iloc[self._rows][is_there].unique()
            # Amounts of two tokens, or of an unknown one, do not add up.
            if len(found) != 1 or pd.isna(found[0]):
                return nothing
            if not column.heading.endswith(f"({found[0]})"):
                symbol = f" {found[0]}"
        elif known.kind != "count":
            return nothing
        total = Decimal(0)
        for value in values[is_there]:
            total = EXACT.add(total, Decimal(str(value)))
        if not is_there.any() or not total.is_finite():
            return nothing
        exact = format_amount(total) + symbol
        cut = format_amount(truncate(total, _places_shown(column)))
        if cut + symbol == exact:
            return [exact, ""]
        return [cut + CUT + symbol, exact]

    def _units(self, column: TextColumn) -> pd.Series | None:
        """Return the tokens that a column's amounts are of, if the frame names them."""
        for one in self._columns:
            if one.name == column.unit_column:
                return one.values
        return None

    def _send_csv(self) -> None:
        """Send the matching rows in their order, with all columns and digits."""
        columns = [
            _csv_values(column.values.iloc[self._rows]) for column in self._columns
        ]
        names = [column.name for column in self._columns]
        # By number, because two columns may have one name.
        frame = pd.DataFrame(dict(enumerate(columns)))
        text = frame.to_csv(header=names, index=False, lineterminator="\r\n")
        packed = gzip.compress(text.encode())
        # A message that is dropped leaves nothing on the page, so it is not sent.
        if len(packed) > LARGEST_CSV:
            self.send(
                {
                    "refused": "Too large to save from here: use frame.to_csv('table.csv')"
                }
            )
        else:
            self.send({"csv": self.label}, [packed])


def _csv_values(series: pd.Series) -> list[Any]:
    """Return values as a CSV file has them: exact, and no text that a spreadsheet would run."""
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        moments = series.dt.tz_convert("UTC").dt.strftime("%Y-%m-%dT%H:%M:%S.%f")
        return [
            moment if is_missing(moment) else f"{moment[:-3]}Z" for moment in moments
        ]
    if is_exact(series):
        return [
            None if is_missing(one) else without_trailing_zeros(f"{one:f}")
            for one in series
        ]
    if series.dtype.kind in "mM" or pd.api.types.is_numeric_dtype(series):
        return [*series]
    # A spreadsheet takes what begins with a quote as text.
    texts = series.astype(str).str.replace(FORMULA, "'", regex=True)
    return [
        None if is_missing(one) else text
        for one, text in zip(series, texts, strict=True)
    ]


def _sorted(column: TextColumn, rows: list[int], is_descending: bool) -> list[int]:
    """Sort rows by the exact values of a column; missing ones come last, equal ones keep their order."""
    values = column.values.iloc[rows].reset_index(drop=True)
    try:
        places = values.sort_values(ascending=not is_descending, kind="stable").index
    except TypeError:
        # Values of several kinds have no order but that of their texts.
        texts = values.astype(str).where(values.notna())
        places = texts.sort_values(ascending=not is_descending, kind="stable").index
    return [rows[place] for place in places]


def _places_shown(column: TextColumn) -> int | None:
    """Return the decimal places that a column is cut to on screen; None if nothing is cut."""
    cut = [text.split(CUT)[0] for text in column.texts if CUT in text]
    if not cut:
        return None
    return max(len(text.partition(".")[2]) for text in cut)
