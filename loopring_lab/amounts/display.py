"""Tables for reading: no trailing zeros, token symbols beside amounts, the same HTML every time."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from loopring_lab.amounts.scaling import as_array, is_exact
from loopring_lab.errors import LabError
from loopring_lab.preview import notes_html

PRICES = ("price", "other_price", "reference_price")
UNIT_COLUMNS = {
    **dict.fromkeys(("size", "volume"), "base"),
    **dict.fromkeys(("notional", "smallest", "largest", "vwap", "average_price"), "quote"),
    **dict.fromkeys(PRICES, "quote"),
    **dict.fromkeys(("fee", "received", "allowed", "excess"), "fee_token"),
    "fee_value": "value_token",
}
"""The column that names the token of each amount in a trades frame or a summary of one."""
MISSING = "-"
_EXACT = Context(prec=160)

Precision = int | pd.DataFrame
DecimalPlaces = Callable[[str | None], int | None]
"""Gives the decimal places to show for a token; None for all."""


class Shown:
    """A table made for reading, by `show`."""

    def __init__(self, frame: pd.DataFrame, notes: list[str]) -> None:
        self.frame, self.notes = frame, notes

    def __repr__(self) -> str:
        table, has_index = self._printable()
        return "\n".join([table.to_string(index=has_index), *self.notes])

    def _repr_html_(self) -> str:
        table, has_index = self._printable()
        html = table.to_html(border=0, index=has_index, escape=True)
        return html.replace("<td>", '<td style="white-space: nowrap">') + notes_html(self.notes)

    def _printable(self) -> tuple[pd.DataFrame, bool]:
        """Move the index's name into the header row; an index without a name is not printed."""
        if self.frame.index.nlevels > 1:
            return self.frame, True
        name: Any = self.frame.index.name
        return self.frame.rename_axis(index=None, columns=name), name is not None


def show(frame: pd.DataFrame | pd.Series, *, precision: Precision | None = None, rows: int = 20) -> Shown:
    """Format a frame for reading: every significant digit and no others.

    Amounts lose trailing zeros and carry their token's symbol, in the heading where all rows share one token.
    Columns that only name those tokens are hidden, and so are empty columns. Times are UTC. Long hashes are
    shortened. Values with a stated error, ``within_bps``, are cut after their first uncertain digit. Notes
    that a result carries in ``attrs["notes"]`` are printed under the table.

    Parameters
    ----------
    frame : pandas.DataFrame or pandas.Series
        Tokens, markets, trades, or a result computed from them.
    precision : int or pandas.DataFrame, optional
        Truncate amounts, toward zero, to this many decimals, or to each token's ``precision`` in a tokens
        frame. A note under the table says so. Prices are never truncated.
    rows : int
        Show at most this many rows: the first half and the last half.

    Returns
    -------
    Shown
        Renders in a notebook and as text; ``.frame`` holds the formatted text.

    Raises
    ------
    LabError
        `rows` is below 1, or `precision` is neither a number nor a tokens frame.

    Examples
    --------
    >>> lab.show(client.trades(account_id=10083, limit=2)[["side", "size", "base", "price", "quote"]])
    side        size price (ETH)
     BUY     280 ENJ  0.00073784
     BUY 217.728 LRC  0.00058974
    """
    if rows < 1:
        raise LabError(f"rows={rows} is too few. Give 1 or more.")
    if isinstance(frame, pd.Series):
        frame = frame.to_frame()
    if not isinstance(frame, pd.DataFrame):
        raise LabError(
            f"show: expected a pandas DataFrame or Series, got {type(frame).__name__}. Convert it first, "
            "such as with pandas.DataFrame(...)."
        )
    decimal_places = _decimal_places(precision)
    notes = []
    empty = [name for name in frame.columns if len(frame) and frame[name].isna().all()]
    visible = frame.drop(columns=empty)
    if len(frame) > rows:
        head, tail = rows - rows // 2, rows // 2
        visible = pd.concat([visible.head(head), visible.tail(tail)])
        notes.append(f"Showing first {head} and last {tail} of {len(frame):,} rows.")
    if len(frame) == 0:
        notes.append("No rows.")
    if empty:
        notes.append(f"Empty columns hidden: {', '.join(map(str, empty))}.")
    columns = [_column(visible, name, decimal_places) for name in visible.columns]
    truncated = [str(name) for name, column in zip(visible.columns, columns, strict=True) if column.truncated]
    if truncated:
        limit = f"{precision} decimals" if isinstance(precision, int) else "the token's precision"
        notes.append(f"{', '.join(truncated)} truncated to {limit}.")
    if {"fee_value", "within_bps"} <= {*visible.columns}:
        notes.append("fee_value truncated after the first digit that within_bps leaves uncertain.")
    notes += [str(note) for note in frame.attrs.get("notes", [])]
    table = pd.DataFrame({column.heading: column.texts for column in columns}, index=visible.index)
    redundant = {column.unit_column for column in columns} & set(table.columns)
    return Shown(table.drop(columns=redundant), notes)


def format_amount(amount: Decimal | None) -> str:
    """Write an exact amount with thousands separators, without trailing zeros or an exponent."""
    if amount is None:
        return MISSING
    text = f"{amount:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def truncate(amount: Decimal | None, places: int | None) -> Decimal | None:
    """Cut an amount toward zero, so that it never says more than there is."""
    if amount is None or places is None or -amount.as_tuple().exponent <= places:  # type: ignore[operator]
        return amount
    return amount.quantize(Decimal(1).scaleb(-places), ROUND_DOWN, _EXACT)


class _Column(NamedTuple):
    """A column as text; `unit_column` names the column that repeats its tokens."""

    heading: str
    texts: list[str]
    unit_column: str | None = None
    truncated: bool = False


def _column(frame: pd.DataFrame, name: Any, decimal_places: DecimalPlaces) -> _Column:
    column = frame[name]
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return _Column(f"{name} (UTC)", _format_times(column))
    if is_exact(column):
        return _amount_column(frame, str(name), decimal_places)
    float_format = ".1%" if str(name).endswith("share") else ",.2f"
    return _Column(str(name), [_format_value(value, float_format) for value in column.astype(object)])


def _amount_column(frame: pd.DataFrame, name: str, decimal_places: DecimalPlaces) -> _Column:
    amounts = _with_certain_digits(frame, name)
    units = _units(frame, name)
    shown = amounts
    if name not in PRICES:
        pairs = zip(amounts, units, strict=True)
        shown = [truncate(amount, decimal_places(unit)) for amount, unit in pairs]
    texts = [format_amount(amount) for amount in shown]
    symbols = {unit for amount, unit in zip(amounts, units, strict=True) if amount is not None}
    truncated = shown != amounts
    if symbols <= {None}:
        return _Column(name, texts, truncated=truncated)
    if len(symbols) == 1:
        return _Column(f"{name} ({symbols.pop()})", texts, UNIT_COLUMNS[name], truncated)
    for row, unit in enumerate(units):
        if texts[row] != MISSING:
            texts[row] += f" {unit or '?'}"
    return _Column(name, texts, UNIT_COLUMNS[name], truncated)


def _with_certain_digits(frame: pd.DataFrame, name: str) -> list[Decimal | None]:
    """Cut values with a stated error after the first digit that is uncertain."""
    amounts: list[Decimal | None] = as_array(frame[name]).to_pylist()
    if name != "fee_value" or "within_bps" not in frame:
        return amounts
    errors = [None if pd.isna(bps) else Decimal(bps) / 10_000 for bps in frame["within_bps"]]
    return [
        truncate(amount, max(0, -(amount * error).adjusted())) if amount and error else amount
        for amount, error in zip(amounts, errors, strict=True)
    ]


def _units(frame: pd.DataFrame, name: str) -> list[str | None]:
    """Give the token of each amount; None where the frame does not name it."""
    unit_column = UNIT_COLUMNS.get(name, "")
    if unit_column in frame.columns:
        units = frame[unit_column]
    elif unit_column in frame.index.names:
        units = frame.index.get_level_values(unit_column).to_series()
    else:
        return [None] * len(frame)
    return [None if pd.isna(unit) else str(unit) for unit in units.astype(object)]


def _decimal_places(precision: Precision | None) -> DecimalPlaces:
    if isinstance(precision, pd.DataFrame) and "precision" in precision:
        by_token = precision["precision"].dropna().astype(int).to_dict()
        return by_token.get
    if precision is None or (isinstance(precision, int) and precision >= 0):
        return lambda unit: precision
    raise LabError(
        f"precision={precision!r} is not valid. Give a number of decimals, or the frame of client.tokens()."
    )


def _format_times(column: pd.Series) -> list[str]:
    """Write times to the millisecond, to the second, or to the day, as precisely as any of them needs."""
    times = column.dropna()
    if (times == times.dt.floor("D")).all():
        texts = column.dt.strftime("%Y-%m-%d")
    elif (times == times.dt.floor("s")).all():
        texts = column.dt.strftime("%Y-%m-%d %H:%M:%S")
    else:
        texts = column.dt.strftime("%Y-%m-%d %H:%M:%S.%f").str[:-3]
    return list(texts.fillna(MISSING))


def _format_value(value: Any, float_format: str) -> str:
    if isinstance(value, (list, tuple, dict, np.ndarray)):
        return str(value)
    if pd.isna(value):
        return MISSING
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        return format(value, float_format)
    text = str(value.floor("s") if isinstance(value, pd.Timedelta) else value)
    if text.startswith("0x") and len(text) > 20:
        return f"{text[:8]}…{text[-4:]}"
    return text
