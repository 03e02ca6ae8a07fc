"""A table to look into: sorted, filtered and added up exactly in the browser, saved as CSV.

Not itables: it took 0.7 s for 2,000 rows where this takes 0.1 s, sends 0.7 MB of scripts, leaves out rows in
silence when updated, adds up floats, has no static copy, and ids that differ in every run.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import anywidget
import pandas as pd
import traitlets

from loopring_lab.amounts.display import (
    MISSING,
    Precision,
    TextColumn,
    as_frame,
    empty_columns,
    is_missing,
    notes_on,
    readable,
    redundant_columns,
    text_columns,
    without_trailing_zeros,
)
from loopring_lab.amounts.scaling import as_array, is_exact
from loopring_lab.columns import is_id
from loopring_lab.errors import LabError
from loopring_lab.preview import CSS

MOST_ROWS = 50_000
STATIC_ROWS = 20
_FOLDER = Path(__file__).parent


class TableView(anywidget.AnyWidget):
    """A table that can be sorted, filtered, added up and saved, formatted as by `amounts.show`.

    Pointing at a cell shows all its digits, and the CSV has them. Totals are exact, of the rows that match
    the filter, and only of columns that can be added up in one unit.

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

    _esm = "".join((_FOLDER / name).read_text(encoding="utf-8") for name in ("clipboard.js", "table_view.js"))
    _css = CSS + (_FOLDER / "table_view.css").read_text(encoding="utf-8")
    data = traitlets.Dict().tag(sync=True)
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
        self._precision = precision
        self.show(frame, code)

    def __repr__(self) -> str:
        return f"TableView of {len(self._frame):,} rows"

    def show(self, frame: pd.DataFrame | pd.Series, code: str = "") -> None:
        """Show another frame in place; the filter and the order stay, no row is chosen."""
        frame = as_frame(frame, "TableView")
        if len(frame) > MOST_ROWS:
            raise LabError(
                f"TableView: {len(frame):,} rows are more than the {MOST_ROWS:,} that a browser shows well. "
                "Give fewer, such as frame.tail(1000), or a summary."
            )
        data = _data(frame, self._precision)
        self._frame = frame
        with self.hold_sync():
            self.data, self.code, self.chosen = data, code, -1

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Put a static copy beside the view, for where no kernel runs."""
        bundle = super()._repr_mimebundle_(**options)
        data, more = bundle if isinstance(bundle, tuple) else (bundle, {})
        copy = readable(self._frame, precision=self._precision, rows=STATIC_ROWS)
        return {**(data or {}), "text/plain": repr(self), "text/html": copy._repr_html_()}, more


def _data(frame: pd.DataFrame, precision: Precision | None) -> dict[str, Any]:
    """Return what the browser needs: every column with its exact values, and its texts where they differ."""
    keys, columns = text_columns(frame, precision)
    hidden = {*map(str, empty_columns(frame)), *redundant_columns(frame, columns)}
    names = [column.name for column in [*keys, *columns]]
    sent = []
    for number, column in enumerate([*keys, *columns]):
        is_key, known = number < len(keys), column.described
        unit = names.index(column.unit_column) if column.unit_column in names else None
        sent.append(
            {
                **_contents(column),
                "name": column.name,
                "heading": column.heading,
                "help": column.help,
                "key": is_key,
                "plain": is_id(column.name),
                "hidden": not is_key and column.name in hidden,
                "adds": bool(known and known.adds and (known.kind == "count" or unit is not None)),
                "unit": unit,
            }
        )
    notes = notes_on(frame, columns, precision)
    return {"columns": sent, "notes": notes, "rows": len(frame)}


def _contents(column: TextColumn) -> dict[str, Any]:
    """Return a column's values as exact text, and its texts if the browser cannot make them from these."""
    series = column.values
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        moments = series.dt.tz_convert("UTC").dt.strftime("%Y-%m-%dT%H:%M:%S.%f").str[:-3] + "Z"
        return {"kind": "time", "values": moments.fillna("").to_list(), "texts": column.texts}
    if is_exact(series):
        values = ["" if one is None else _plain(one) for one in as_array(series).to_pylist()]
    else:
        values = [_exact_text(one) for one in series.astype(object)]
    if series.dtype.kind == "m":
        order = ["" if pd.isna(one) else str(one.value) for one in series]
        return {"kind": "number", "values": values, "texts": column.texts, "order": order}
    if column.is_number:
        is_made = series.dtype.kind != "f" and series.dtype != object and not any(column.titles)
        return {"kind": "number", "values": values, "texts": None if is_made else column.texts}
    is_made = [one or MISSING for one in values] == column.texts
    return {"kind": "text", "values": values, "texts": None if is_made else column.texts}


def _exact_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal) and value.is_finite():
        return _plain(value)
    if is_missing(value):
        return ""
    return _plain(Decimal(repr(float(value)))) if isinstance(value, float) else str(value)


def _plain(number: Decimal) -> str:
    """Write a number without an exponent and trailing zeros."""
    return without_trailing_zeros(f"{number:f}")
