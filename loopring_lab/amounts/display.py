"""Tables for reading: no trailing zeros, token symbols beside amounts, the same HTML every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, Decimal
from importlib import import_module
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import pandas as pd

from loopring_lab.amounts.arithmetic import EXACT
from loopring_lab.amounts.scalar import power_of_ten
from loopring_lab.amounts.series import as_array, is_exact
from loopring_lab.columns import (
    TOKEN_COLUMNS,
    TRADES,
    Column,
    describe,
    is_id,
    is_price,
    token_column,
)
from loopring_lab.errors import LabError, visible
from loopring_lab.interactive.preview import Cell, table_html
from loopring_lab.interactive.shell import running_shell

KEYS = {
    "period",
    "market",
    "side",
    "role",
    "fill_type",
    *TOKEN_COLUMNS.values(),
}
"""What summaries are grouped by: whatever of this stands before ``fills`` is never hidden."""
ZERO_UNLESS_ODD = ("unknown", "both_sides", "unpriced", "unmatched")
"""Counts of what is out of the ordinary: where all are 0, a note says so in place of a column."""
REFERENCES = [column.name for column in TRADES.values() if column.is_reference]
"""Columns by which a row is looked up elsewhere; nobody reads them in a whole frame of trades."""
MISSING = "-"
CUT = "…"
# Characters of text in a cell; a title has ten times as many.
LONGEST = 300
# The others of a sum of floats can differ from run to run.
FLOAT_DIGITS = 10
# Error of a value that does not state its own, which leaves five digits, as in figures.
UNSTATED_BPS = 1
SIGNIFICANT = 5

Precision = int | pd.DataFrame
DecimalPlaces = Callable[[str | None], int | None]
"""Gives the decimal places to show for a token; None for all."""


class TextColumn(NamedTuple):
    """A column as text; `titles` hold the exact value where the text does not, else nothing.

    `truncated` are amounts cut as the caller asks, `shortened` estimates of which few digits are shown.
    `described` is what the column reference says of it, if it is known.
    """

    name: str
    heading: str
    texts: list[str]
    titles: list[str]
    values: pd.Series
    is_number: bool = False
    unit_column: str | None = None
    truncated: bool = False
    shortened: bool = False
    described: Column | None = None

    @property
    def help(self) -> str:
        """The text that its heading shows when it is pointed at."""
        if self.described is None:
            return ""
        column = self.described
        if isinstance(self.values.dtype, pd.DatetimeTZDtype):
            column = column._replace(unit=str(self.values.dt.tz))
        return column.help

    def cells(self) -> list[Cell]:
        """Return the cells under the heading."""
        return [self.cell(row) for row in range(len(self.texts))]

    def cell(self, row: int) -> Cell:
        """Return one of them."""
        return Cell(self.texts[row], self.titles[row], self.is_number)


class Shown:
    """A table made for reading, by `show`."""

    def __init__(
        self,
        keys: Sequence[TextColumn],
        columns: Sequence[TextColumn],
        index: pd.Index,
        notes: list[str],
        gap: int | None = None,
    ) -> None:
        self.notes = notes
        self._gap = gap  # the row before which others are left out
        self._keys = keys
        self._columns = columns
        texts = dict(enumerate(column.texts for column in columns))
        # Headings may be equal, so they are set afterwards.
        self.frame = pd.DataFrame(texts, index=index)
        headings = [column.heading for column in columns]
        self.frame.columns = pd.Index(headings, dtype=object)
        self._displayed_in: str | None = None

    def __repr__(self) -> str:
        columns = []
        for column in (*self._keys, *self._columns):
            texts = [column.heading, *column.texts]
            width = max(map(len, texts))
            # Numbers stand to the right, so that their digits are below each other.
            align = str.rjust if column.is_number else str.ljust
            columns.append([align(text, width) for text in texts])
        rows = zip(*columns, strict=True)
        lines = ["  ".join(row).rstrip() for row in rows]
        if self._gap is not None:
            lines.insert(1 + self._gap, CUT)
        # Headings hold the symbols of tokens, which are somebody else's text.
        return "\n".join(map(visible, [*lines, *self.notes]))

    def _repr_html_(self) -> str:
        columns = [*self._keys, *self._columns]
        head = [
            Cell(column.heading, column.help, column.is_number) for column in columns
        ]
        rows = list(zip(*(column.cells() for column in columns), strict=True))
        if self._gap is not None:
            gap = tuple(Cell(CUT, "", column.is_number) for column in columns)
            rows.insert(self._gap, gap)
        return table_html(
            head,
            rows,
            self.notes,
            len(self._keys),
        )

    def _ipython_display_(self) -> None:
        """Display the table, unless the running cell has done so."""
        request = running_request()
        if request is None:
            raise NotImplementedError
        # The last line of a cell is displayed by the notebook too.
        cell = request["header"]["msg_id"]
        if cell != self._displayed_in:
            from IPython.display import display

            self._displayed_in = cell
            display(  # type: ignore[no-untyped-call]
                {
                    "text/plain": repr(self),
                    "text/html": self._repr_html_(),
                },
                raw=True,
            )


@overload
def show(
    frame: pd.DataFrame | pd.Series,
    *,
    precision: Precision | None = None,
    rows: int = 20,
    interactive: Literal[False] = False,
) -> Shown: ...
@overload
def show(
    frame: Any, *, precision: Precision | None = None, interactive: Literal[True]
) -> Any: ...
def show(
    frame: Any,
    *,
    precision: Precision | None = None,
    rows: int = 20,
    interactive: bool = False,
) -> Any:
    """Display a frame for reading: every significant digit and no others.

    In a notebook the table appears at once, wherever the call stands in its cell. Amounts lose trailing zeros
    and carry their token's symbol, in the heading where all rows share one token. Columns that only name those
    tokens are hidden unless rows are grouped by them, and so are empty columns, and counts of odd rows where all
    are 0. Of a whole frame of trades hashes and places in blocks are hidden, too; columns that you select stay, in
    your order. Estimates have five significant digits: values in a token, at prices from outside, are cut there
    (``fee_value`` after the first digit that ``within_bps`` leaves uncertain), and floats are rounded, rates to two
    decimals. ``…`` marks amounts of which digits are cut, and notes say where. Pointing at a cell shows its exact
    value, of a float ten digits, at a heading what it means. A heading of times names their zone. Notes that a
    result carries in ``attrs["notes"]`` are printed under the table.

    Parameters
    ----------
    frame : pandas.DataFrame or pandas.Series
        Tokens, markets, trades, or a result computed from them; if `interactive`, also a figure of `lab.figures`,
        drawn without ``ax=``.
    precision : int or pandas.DataFrame, optional
        Truncate amounts, toward zero, to this many decimals, or to each token's ``precision`` in a tokens
        frame. A note under the table says so. Prices are never truncated.
    rows : int
        Show at most this many rows: the first half and the last half. An interactive table has pages instead.
    interactive : bool
        Return the table of the explorers, of at most 50,000 rows: it sorts, filters, adds up exactly, and is saved
        as CSV. A figure shows its values on hover, zooms, and follows the theme of the page. Both answer to the
        keyboard, and leave a copy for readers without a kernel. Make it the last line of its cell.

    Returns
    -------
    Shown
        Renders in a notebook and as text; ``.frame`` holds the formatted text. If `interactive`, a TableView or a
        FigureView: ``.show(other)`` replaces what it shows.

    Raises
    ------
    LabError
        `rows` is not a whole number from 1, `precision` is neither a number nor a tokens frame, or the tokens of
        amounts stand in two columns of one name; or what is to be interactive is neither a frame nor such a figure.

    Examples
    --------
    >>> lab.show(client.trades(account_id=10083, limit=2)[["side", "size", "base", "price", "quote"]])
    side        size price (ETH)
     BUY     280 ENJ  0.00073784
     BUY 217.728 LRC  0.00058974
    >>> lab.show(client.trades(account_id=10083, limit=100), interactive=True)
    TableView of 100 rows
    """
    if interactive:
        # It is found by its name, because widgets import this module.
        views = import_module("loopring_lab.widgets.look")
        return views.look(frame, precision)
    shown = readable(
        frame,
        precision=precision,
        rows=rows,
    )
    if running_request() is not None:
        shown._ipython_display_()
    return shown


def readable(
    frame: pd.DataFrame | pd.Series,
    *,
    precision: Precision | None = None,
    rows: int = 20,
) -> Shown:
    """Format a frame as `show` does, without displaying it."""
    _check_rows(rows)
    frame = as_frame(frame, "show")
    notes = []
    chosen = frame
    gap = None
    if len(frame) > rows:
        # If the number of rows is odd, the head has one more.
        tail = rows // 2
        head = rows - tail
        chosen = pd.concat([frame.head(head), frame.tail(tail)])
        gap = head
        last = f" and last {tail}" if tail else ""
        notes.append(f"Showing first {head}{last} of {len(frame):,} rows.")
    if len(frame) == 0:
        notes.append("No rows.")
    empty = empty_columns(frame)
    if empty:
        notes.append(f"Empty columns hidden: {', '.join(map(str, empty))}.")
    zero = zero_columns(frame)
    if zero:
        notes.append(f"Columns hidden where all are 0: {', '.join(zero)}.")
    references = [name for name in references_of(frame) if name not in empty]
    if references:
        notes.append(
            f"Columns hidden that only find a row elsewhere: {', '.join(references)}. Select columns to see them."
        )
    is_hidden = chosen.columns.isin([*empty, *zero, *references])
    chosen = chosen.loc[:, ~is_hidden]
    keys, columns = text_columns(chosen, precision)
    redundant = redundant_columns(chosen, columns)
    columns = [column for column in columns if column.name not in redundant]
    return Shown(
        keys,
        columns,
        chosen.index,
        notes + notes_on(frame, columns, precision),
        gap,
    )


def _check_rows(rows: Any) -> None:
    if not isinstance(rows, (int, np.integer)) or rows < 1:
        raise LabError(
            f"rows={rows!r} is not valid. Give a whole number of at least 1."
        )


def as_frame(frame: Any, caller: str) -> pd.DataFrame:
    """Return a frame of what is one, or a series of it."""
    if isinstance(frame, pd.Series):
        return frame.to_frame()
    if not isinstance(frame, pd.DataFrame):
        raise LabError(
            f"{caller}: expected a pandas DataFrame or Series, got {type(frame).__name__}. Convert it first, "
            "such as with pandas.DataFrame(...)."
        )
    # A pivot by a column with gaps has a missing label, which can be compared with nothing.
    if frame.columns.nlevels == 1 and frame.columns.hasnans:
        labels = ["unknown" if is_missing(label) else label for label in frame.columns]
        labelled: pd.DataFrame = frame.set_axis(labels, axis=1)
        return labelled
    return frame


def text_columns(
    frame: pd.DataFrame, precision: Precision | None
) -> tuple[list[TextColumn], list[TextColumn]]:
    """Format the levels of an index that says something, and the columns."""
    decimal_places = _decimal_places(precision)
    index = frame.index
    levels = [
        index.get_level_values(n).to_series(index=index) for n in range(index.nlevels)
    ]
    # An index without a name that numbers the rows is one that nobody reads.
    is_numbers = pd.api.types.is_integer_dtype(index.dtype)
    if index.nlevels == 1 and index.name is None and is_numbers:
        levels = []
    # Columns are taken by their place, as names may occur twice.
    values = [frame.iloc[:, n] for n in range(frame.shape[1])]
    series = levels + values
    described = describe([one.name for one in series])
    columns = []
    for one in series:
        meaning = described.get(str(one.name))
        # Who asks for decimal places gets them, of an estimate too.
        is_estimate = precision is None and meaning is not None and meaning.is_estimate
        text = _column(frame, one, decimal_places, meaning, is_estimate)
        columns.append(text._replace(described=meaning))
    return columns[: len(levels)], columns[len(levels) :]


def empty_columns(frame: pd.DataFrame) -> list[Any]:
    """List the columns without a value, other than those that rows are grouped by."""
    keys = _keys(frame)
    if frame.empty:
        return []
    is_empty = frame.isna().all()
    found = dict.fromkeys(is_empty.index[is_empty])
    return [name for name in found if name not in keys]


def zero_columns(frame: pd.DataFrame) -> list[str]:
    """List the counts of what is out of the ordinary that are all 0."""
    # Names may occur twice.
    found = dict.fromkeys(name for name in frame.columns if name in ZERO_UNLESS_ODD)
    return [
        name for name in found if len(frame) and (frame[[name]] == 0).all(axis=None)
    ]


def references_of(frame: pd.DataFrame) -> list[str]:
    """List the columns of a whole frame of trades by which its rows are looked up elsewhere."""
    # Who selected columns wants to see them.
    is_whole = set(TRADES) <= set(frame.columns)
    return REFERENCES if is_whole else []


def redundant_columns(frame: pd.DataFrame, columns: Sequence[TextColumn]) -> set[str]:
    """List the columns whose tokens all stand beside amounts, other than those that rows are grouped by."""
    redundant = set()
    units = {column.unit_column for column in columns if column.unit_column}
    for name in units - _keys(frame):
        amounts = [column for column in columns if column.unit_column == name]
        in_headings = any(column.heading != column.name for column in amounts)
        # Rows without an amount say their token nowhere else.
        texts = [column.texts for column in amounts]
        silent = [set(row) == {MISSING} for row in zip(*texts, strict=True)]
        is_told = in_headings or name not in frame
        if is_told or frame.loc[silent, name].isna().all():
            redundant.add(name)
    return redundant


def notes_on(
    frame: pd.DataFrame,
    columns: Sequence[TextColumn],
    precision: Precision | None,
) -> list[str]:
    """Say which columns are cut, and what the frame notes."""
    notes = []
    if truncated := [column.name for column in columns if column.truncated]:
        limit = (
            f"{precision} decimals"
            if isinstance(precision, int)
            else "the token's precision"
        )
        notes.append(f"{', '.join(truncated)} truncated to {limit} where marked {CUT}")
    if shortened := [column.name for column in columns if column.shortened]:
        notes.append(
            f"{', '.join(shortened)} shown to {SIGNIFICANT} significant digits; the frame holds the others."
        )
    if {"fee_value", "within_bps"} <= {column.name for column in columns}:
        notes.append(
            "fee_value truncated after the first digit that within_bps leaves uncertain."
        )
    of_frame = frame.attrs.get("notes", [])
    return notes + [str(note) for note in of_frame]


def format_amount(amount: Decimal | None) -> str:
    """Write an exact amount with thousands separators, without trailing zeros or an exponent."""
    if amount is None:
        return MISSING
    return without_trailing_zeros(f"{amount:,f}")


def without_trailing_zeros(number: str) -> str:
    """Drop what a number written without an exponent does not need."""
    return number.rstrip("0").rstrip(".") if "." in number else number


def truncate(amount: Decimal | None, places: int | None) -> Decimal | None:
    """Cut an amount toward zero, so that it never says more than there is."""
    if amount is None or places is None:
        return amount
    # A longer amount than that needs no zeros added.
    if -amount.as_tuple().exponent <= places:  # type: ignore[operator]
        return amount
    return amount.quantize(power_of_ten(-places), ROUND_DOWN, EXACT)


def tokens_of(frame: Any, name: str) -> pd.Series | None:
    """Return the column or the level with the tokens of amounts, None where the frame has none."""
    # Beside units, the amounts are in smallest units, which no token's name stands for.
    unit_column = "" if f"{name}_units" in frame else token_column(name)
    tokens: pd.Series | None = None
    if unit_column in frame.columns:
        tokens = only_column(frame, unit_column)
    elif unit_column in frame.index.names:
        level = frame.index.get_level_values(unit_column)
        tokens = level.to_series(index=frame.index)
    return tokens


def only_column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return a column whose name no other column has."""
    found = frame[name]
    if isinstance(found, pd.DataFrame):
        raise LabError(
            f"The frame has two columns {name!r}. Drop or rename one of them."
        )
    return found


def is_missing(value: Any) -> bool:
    """Tell whether a value of any kind stands for none."""
    # For a list, pandas would say of each element whether it is missing.
    is_scalar = pd.api.types.is_scalar(value)
    return bool(is_scalar and pd.isna(value))


def running_request() -> dict[str, Any] | None:
    """Return the message that asked for the cell that runs, or one with its number; None outside IPython."""
    shell = running_shell()
    parent = getattr(shell, "parent_header", None)
    if parent or shell is None:
        return parent
    # A shell in a terminal has no messages.
    return {"header": {"msg_id": str(shell.execution_count)}}


def name_of(value: Any, default: str) -> str:
    """Return the name that a notebook has for a value, else `default`."""
    names = getattr(running_shell(), "user_ns", {})
    # Names with an underscore are IPython's own, such as those of earlier outputs.
    known = [
        name for name, one in names.items() if one is value and not name.startswith("_")
    ]
    return known[0] if known and value is not None else default


def _keys(frame: pd.DataFrame) -> set[Any]:
    """Return the columns that the rows of a summary are grouped by: they stand before its ``fills``."""
    names = list(frame.columns)
    if "fills" not in names:
        return set()
    return KEYS.intersection(names[: names.index("fills")])


def _column(
    frame: pd.DataFrame,
    column: pd.Series,
    decimal_places: DecimalPlaces,
    described: Column | None,
    is_estimate: bool,
) -> TextColumn:
    name = "" if column.name is None else str(column.name)
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return TextColumn(
            name,
            f"{name} ({column.dt.tz})",
            _format_times(column),
            [""] * len(column),
            column,
        )
    if is_exact(column) or _is_value(column, name):
        return _amount_column(frame, column, name, decimal_places, is_estimate)
    float_format = _float_format(name, described)
    plain = is_id(name)
    pairs = [
        _format_value(value, float_format, plain) for value in column.astype(object)
    ]
    texts = [text for text, _ in pairs]
    titles = [title for _, title in pairs]
    # A title is a float that its text does not tell.
    is_float = column.dtype.kind == "f"
    return TextColumn(
        name,
        name,
        texts,
        titles,
        column,
        _is_number(column),
        shortened=is_float and not float_format and any(titles),
    )


def _float_format(name: str, described: Column | None) -> str:
    """Say how floats are written: shares in percent, rates below every fee tier; nothing for significant digits."""
    if name.endswith("share"):
        return ".1%"
    is_rate = described is not None and described.kind == "rate"
    return ",.2f" if is_rate or name.endswith("bps") else ""


def _amount_column(
    frame: pd.DataFrame,
    column: pd.Series,
    name: str,
    decimal_places: DecimalPlaces,
    is_estimate: bool,
) -> TextColumn:
    amounts = _amounts(column)
    units = _units(frame, name)
    certain = _with_certain_digits(frame, column, amounts, is_estimate)
    # A token's precision is of amounts; a price has no token.
    if is_price(name):
        shown = certain
    else:
        pairs = zip(certain, units, strict=True)
        shown = [truncate(amount, decimal_places(unit)) for amount, unit in pairs]
    pairs = zip(amounts, units, strict=True)
    # An amount that is not known has no say in the unit.
    symbols = {unit for amount, unit in pairs if amount is not None}
    has_one_unit = len(symbols) <= 1
    heading = (
        f"{name} ({next(iter(symbols))})" if has_one_unit and any(symbols) else name
    )
    texts = []
    titles = []
    for amount, cut, unit in zip(amounts, shown, units, strict=True):
        symbol = "" if has_one_unit or amount is None else f" {unit or '?'}"
        whole = format_amount(amount) + symbol
        if cut == amount:
            texts.append(whole)
            titles.append("")
        else:
            texts.append(f"{cut:,f}{CUT}{symbol}")
            titles.append(whole)
    unit_column = token_column(name) if any(symbols) else None
    return TextColumn(
        name,
        heading,
        texts,
        titles,
        column,
        True,
        unit_column,
        shown != certain,
        is_estimate and certain != amounts,
    )


def _is_number(column: pd.Series) -> bool:
    """Tell whether a column is numbers or lengths of time."""
    dtype = column.dtype
    if column.dtype == object:
        kind = pd.api.types.infer_dtype(column.dropna())
        return kind in ("integer", "floating", "decimal")
    # pandas counts truth values among the numbers.
    if pd.api.types.is_bool_dtype(dtype):
        return False
    return pd.api.types.is_numeric_dtype(dtype) or dtype.kind == "m"


def _is_value(column: pd.Series, name: str) -> bool:
    """Tell whether a column is values of fees in floats, which read like amounts."""
    if name != "fee_value" or column.dtype.kind != "f":
        return False
    # No digits of infinity can be cut.
    return bool(np.isfinite(column.dropna()).all())


def _amounts(column: pd.Series) -> list[Decimal | None]:
    """Return amounts, and of floats the digits that are the same in every run."""
    if is_exact(column):
        exact: list[Decimal | None] = as_array(column).to_pylist()
        return exact
    return [
        None if pd.isna(value) else Decimal(f"{value:.{FLOAT_DIGITS}g}")
        for value in column
    ]


def _with_certain_digits(
    frame: pd.DataFrame,
    column: pd.Series,
    amounts: list[Decimal | None],
    is_estimate: bool,
) -> list[Decimal | None]:
    """Cut estimates, and values in floats, after the first digit that is uncertain."""
    if is_exact(column) and not is_estimate:
        return amounts
    unstated = _share(UNSTATED_BPS)
    errors = [unstated] * len(amounts)
    # A result in one token says of each value how far off it can be.
    if "within_bps" in frame:
        stated = only_column(frame, "within_bps")
        errors = [unstated if pd.isna(bps) else _share(bps) for bps in stated]
    return [
        truncate(amount, max(0, -EXACT.multiply(amount, error).adjusted()))
        if amount and error
        else amount
        for amount, error in zip(amounts, errors, strict=True)
    ]


def _share(bps: float) -> Decimal:
    return EXACT.divide(Decimal.from_float(float(bps)), 10_000)


def _units(frame: pd.DataFrame, name: str) -> list[str | None]:
    """Give the token of each amount; None where the frame does not name it."""
    tokens = tokens_of(frame, name)
    if tokens is None:
        return [None] * len(frame)
    symbols = tokens.astype(object)
    return [None if pd.isna(symbol) else str(symbol) for symbol in symbols]


def _decimal_places(precision: Precision | None) -> DecimalPlaces:
    if isinstance(precision, pd.DataFrame) and "precision" in precision:
        # The relayer lists for each token how many decimals it shows.
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


def _format_value(
    value: Any,
    float_format: str,
    plain: bool,
) -> tuple[str, str]:
    """Return the text of a value, and where that does not tell it, its exact value, of floats ten digits."""
    # Strings first, as most values are; truth values before the integers, which Python counts them among.
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, (bool, np.bool_)):
        return ("yes" if value else "no"), ""
    if isinstance(value, (int, np.integer)):
        return (str(value) if plain else f"{value:,}"), ""
    if is_missing(value):
        return MISSING, ""
    if isinstance(value, (float, np.floating)):
        return _format_float(float(value), float_format)
    if isinstance(value, Decimal) and value.is_finite():
        return format_amount(value), ""
    if isinstance(value, pd.Timedelta):
        text = str(value.floor("s"))
        return text, "" if text == str(value) else str(value)
    return _short(str(value))


def _format_float(value: float, float_format: str) -> tuple[str, str]:
    """Round a float; one that would look like zero is shown as less than the smallest number shown."""
    text = format(value, float_format) if float_format else _significant(value)
    if value and not text.strip("-0.%"):
        smallest = "0.1%" if "%" in text else "0.01"
        text = f"<{smallest}" if value > 0 else f">-{smallest}"
    # The digits that a reader sees by pointing at the number are the same in every run.
    told = repr(float(f"{value:.{FLOAT_DIGITS}g}"))
    is_told = "%" not in text and float(text.strip("<>").replace(",", "")) == float(
        told
    )
    return text, "" if is_told else told


def _significant(value: float) -> str:
    """Round a float to few digits, but not a digit before its point."""
    if not np.isfinite(value):
        return str(value)
    digits = max(SIGNIFICANT, len(f"{abs(value):.0f}"))
    return format_amount(Decimal(f"{value:.{digits}g}"))


def _short(text: str) -> tuple[str, str]:
    """Shorten hashes and very long texts; what is not printed is escaped, so that rows keep their lines."""
    if not text.isprintable():
        # Such letters are shown as Python writes them, without the quotes.
        letters = [one if one.isprintable() else repr(one)[1:-1] for one in text]
        text = "".join(letters)
    # The ends of a hash are what people compare.
    if text.startswith("0x") and len(text) > 20:
        return f"{text[:8]}{CUT}{text[-4:]}", text[: 10 * LONGEST]
    if len(text) <= LONGEST:
        return text, ""
    return text[:LONGEST] + CUT, text[: 10 * LONGEST]
