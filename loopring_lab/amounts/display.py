"""Frames as people read them: no trailing zeros, symbols beside amounts, the same HTML every time."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_DOWN, Decimal
from typing import Any

import numpy as np
import pandas as pd

from loopring_lab.amounts.scaling import as_array, is_exact
from loopring_lab.errors import LabError
from loopring_lab.preview import small

PRICES = ("price", "other_price", "reference_price")
UNIT_COLUMNS = {
    **dict.fromkeys(("size", "volume"), "base"),
    **dict.fromkeys(("notional", "smallest", "largest", "vwap", "average_price"), "quote"),
    **dict.fromkeys(PRICES, "quote"),
    **dict.fromkeys(("fee", "received", "allowed", "excess"), "fee_token"),
    "fee_value": "value_token",
}
"""The column that names the token of each amount in a trades frame or a summary of one."""
NOTHING = "-"

Precision = int | pd.DataFrame


class Shown:
    """A table made for reading, by `show`."""

    def __init__(self, frame: pd.DataFrame, notes: list[str]) -> None:
        self.frame, self.notes = frame, notes

    def __repr__(self) -> str:
        return "\n".join([self._headed.to_string(index=self._indexed), *self.notes])

    def _repr_html_(self) -> str:
        table = self._headed.to_html(border=0, index=self._indexed, escape=True)
        return table.replace("<td>", '<td style="white-space: nowrap">') + small(self.notes)

    @property
    def _headed(self) -> pd.DataFrame:
        """Put the index's name into the heading's line."""
        if self.frame.index.nlevels > 1:
            return self.frame
        headed = self.frame.copy()
        headed.columns.name, headed.index.name = headed.index.name, None
        return headed

    @property
    def _indexed(self) -> bool:
        return self.frame.index.name is not None or self.frame.index.nlevels > 1


def show(frame: pd.DataFrame | pd.Series, *, precision: Precision | None = None, rows: int = 20) -> Shown:
    """Show a frame for reading: every digit that counts and no other.

    Amounts lose trailing zeros and carry their token's symbol, in the heading where it is one for all rows.
    The columns that only name those tokens are left out, and so are columns without a value. Times are UTC.
    Long hashes are shortened.

    Parameters
    ----------
    frame : pandas.DataFrame or pandas.Series
        Tokens, markets, trades, or a result made of them.
    precision : int or pandas.DataFrame, optional
        Cut amounts, toward zero, to so many decimals, or to each token's ``precision`` in a tokens frame.
        A note under the table says so. Prices are not cut.
    rows : int
        At most so many rows: the first half and the last half.

    Returns
    -------
    Shown
        Renders in a notebook and as text; ``.frame`` is a frame of the texts.

    Raises
    ------
    LabError
        `rows` is below 1, or `precision` is neither a number nor a tokens frame.

    Examples
    --------
    >>> from loopring_lab.amounts import to_units
    >>> frame = pd.DataFrame({"size": to_units(["1500000"], 6), "base": ["USDC"]})
    >>> show(frame)
    size (USDC)
            1.5
    """
    if rows < 1:
        raise LabError(f"rows={rows}: give a number above 0.")
    if isinstance(frame, pd.Series):
        frame = frame.to_frame()
    if not isinstance(frame, pd.DataFrame):
        raise LabError(f"show: expected a pandas frame or series, got {type(frame).__name__}. Give one.")
    places = _places(precision)
    notes = [f"{len(frame):,} rows: the first {rows - rows // 2} and the last {rows // 2}."] * (
        len(frame) > rows
    )
    empty = [name for name in frame.columns if len(frame) and frame[name].isna().all()]
    notes += ["No rows."] * (not len(frame))
    notes += [f"Without a value, left out: {', '.join(map(str, empty))}."] * bool(empty)
    part = frame.drop(columns=empty)
    if len(part) > rows:
        part = pd.concat([part.head(rows - rows // 2), part.tail(rows // 2)])
    columns: dict[str, list[str]] = {}
    cut: list[str] = []
    spoken: set[str | None] = set()
    for name in part.columns:
        heading, texts, unit = _column(part, name, places, cut)
        columns[heading] = texts
        spoken.add(unit)
    if cut:
        limit = f"{precision} decimals" if isinstance(precision, int) else "the token's precision"
        notes.append(f"Cut to {limit}, digits below are not shown: {', '.join(cut)}.")
    table = pd.DataFrame(columns, index=part.index)
    return Shown(table.drop(columns=spoken & set(table.columns)), notes)


def _column(
    frame: pd.DataFrame, name: Any, places: Callable[[str | None], int | None], cut: list[str]
) -> tuple[str, list[str], str | None]:
    """Give a column's heading, its texts, and the name of the column its texts already tell."""
    column = frame[name]
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return f"{name} (UTC)", _times(column), None
    if not is_exact(column):
        write = _percent if str(name).endswith("share") else _plain
        return str(name), [write(value) for value in column.astype(object)], None
    amounts = as_array(column).to_pylist()
    units = _units(frame, str(name))
    if name not in PRICES:
        short = [_cut(amount, places(unit)) for amount, unit in zip(amounts, units, strict=True)]
        cut += [str(name)] * (short != amounts)
        amounts = short
    texts = [format_amount(amount) for amount in amounts]
    symbols = {unit for amount, unit in zip(amounts, units, strict=True) if amount is not None}
    if symbols == {None} or not symbols:
        return str(name), texts, None
    told = UNIT_COLUMNS[str(name)]
    if len(symbols) == 1:
        return f"{name} ({symbols.pop()})", texts, told
    known = zip(texts, units, strict=True)
    return str(name), [text if text == NOTHING else f"{text} {unit or '?'}" for text, unit in known], told


def format_amount(amount: Decimal | None) -> str:
    """Write an exact amount: thousands apart, no trailing zeros, no exponent."""
    if amount is None:
        return NOTHING
    text = f"{amount:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _units(frame: pd.DataFrame, name: str) -> list[str | None]:
    by = UNIT_COLUMNS.get(name, "")
    if by in frame.columns:
        found = frame[by]
    elif by in frame.index.names:
        found = frame.index.get_level_values(by).to_series()
    else:
        return [None] * len(frame)
    return [None if pd.isna(unit) else str(unit) for unit in found.astype(object)]


def _places(precision: Precision | None) -> Callable[[str | None], int | None]:
    if isinstance(precision, pd.DataFrame) and "precision" in precision:
        known = precision["precision"].dropna().astype(int).to_dict()
        return known.get
    if precision is None or (isinstance(precision, int) and precision >= 0):
        return lambda unit: precision
    raise LabError(f"precision={precision!r}: give a number of decimals, or the frame of client.tokens().")


def _cut(amount: Decimal | None, places: int | None) -> Decimal | None:
    if amount is None or places is None or -amount.as_tuple().exponent <= places:  # type: ignore[operator]
        return amount
    kept = amount.quantize(Decimal(1).scaleb(-places), rounding=ROUND_DOWN)
    return amount if kept == amount else kept


def _times(column: pd.Series) -> list[str]:
    known = column.dropna()
    seconds = (known == known.dt.floor("s")).all()
    days = (known == known.dt.floor("D")).all()
    pattern = "%Y-%m-%d" if days else "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M:%S.%f"
    cut = None if days or seconds else -3
    return [NOTHING if moment is pd.NaT else moment.strftime(pattern)[:cut] for moment in column]


def _percent(share: Any) -> str:
    return f"{share:.1%}" if isinstance(share, float) and not pd.isna(share) else _plain(share)


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple, dict, np.ndarray)):
        return str(value)
    if pd.isna(value):
        return NOTHING
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        return f"{value:,.2f}"
    text = str(value)
    return f"{text[:8]}…{text[-4:]}" if text.startswith("0x") and len(text) > 20 else text
