"""CSV files given by somebody, as columns of text and exact values; errors name file, line and column."""

from __future__ import annotations

import contextlib
import csv
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.scaling import combined, first_failure
from loopring_lab.amounts.series import as_series
from loopring_lab.bounded import format_of, printable, read_file, shown
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.tables.listings import MAX_MOMENT, TEXT
from loopring_lab.tables.numbers import to_amounts, to_integers, unread

# The milliseconds in each unit.
UNITS = {"s": 1000, "ms": 1}
# The most bytes of a file; a year of minutes in seven markets takes 200 MiB.
LARGEST = 512 << 20
# The columns that a frame of trades, or one of prices, has at least.
NEEDED = ("created_at", "market", "price")
# The tokens of its market, in that order.
TOKENS = ("base", "quote")
# Such a text ends in Z or an offset, after a date with a time.
WITH_ZONE = r"[T ].*([Zz]|[+-]\d\d:?\d\d)$"
TEXT_TIME = "a time such as 2022-03-31 18:00:00+00:00, to the millisecond"
DECIMAL = f"a decimal number that fits {AMOUNT_TYPE}"
POSITIVE = f"a decimal number above 0 that fits {AMOUNT_TYPE}"
DIGITS = f"{DECIMAL}, with all digits, which floats do not have, and no exponent"
# Amounts are written like this, and what has lost digits is not: spreadsheets and floats have exponents, and whole
# floats end in .0.
AMOUNT_TEXT = "^-?(0|[1-9][0-9]*)([.]([1-9]|[0-9]{2,}))?$"
WHOLE = "a whole number of 64 bits, with decimal digits as in 10, not 010 or 0x10"
WHOLE_TEXT = "^(0|-?[1-9][0-9]*)$"
HINT = "Correct the file, or write it with DataFrame.to_csv."
UNREAD_HINT = "Give another path, or write the file with DataFrame.to_csv."


class CsvFile:
    """A CSV file with its columns as text, null where empty.

    It must have the columns of `NEEDED`, those of `once` at most once, and those of `complete` without gaps. Spaces
    after commas are part of the text if `keep_spaces`.
    """

    def __init__(
        self,
        path: Path,
        once: Sequence[str],
        *,
        complete: Sequence[str] = (),
        keep_spaces: bool = False,
    ) -> None:
        self._file = printable(path.name)
        self._complete = complete
        self._keep_spaces = keep_spaces
        shown_path = printable(str(path), 200)
        self.data = read_file(path, shown_path, size=LARGEST, hint=UNREAD_HINT)
        if name := format_of(self.data):
            raise self.error("CSV in UTF-8", name)
        line, _, _ = self.data.lstrip().partition(b"\n")
        first = line.decode("utf-8-sig", "replace")
        self.names = self._names_in(first)
        if not {*NEEDED} <= {*self.names}:
            expected = f"a line of names between commas, with {', '.join(NEEDED)}"
            raise self.error(expected, shown(first), 1)
        for name in once:
            if self.names.count(name) > 1:
                raise self.error("each column once", f"{name} twice", 1)
        self.frame = self._read()

    def column(
        self,
        name: str,
        expected: str,
        convert: Callable[[pa.Array], pa.Array] | None = None,
    ) -> pd.Series:
        """Return a column, converted; all null where the file has none."""
        if name not in self.names:
            return pd.Series(None, self.frame.index, TEXT)
        column = self.frame[name]
        if name in self._complete and column.isna().any():
            raise self.error(
                expected,
                "nothing",
                self.line_of(int(column.isna().argmax())),
                name,
            )
        if convert is None:
            return column
        texts = combined(pa.array(column.array, pa.string()))
        try:
            return as_series(convert(texts))
        except pa.ArrowInvalid:
            row, text = first_failure(texts, convert)
        raise self.error(
            expected,
            shown(text),
            self.line_of(row),
            name,
        )

    def line_of(self, row: int) -> int:
        """Return the number of the line in which a row begins; blank lines hold none, and a row may fill several."""
        before = 0
        number = -1  # of the rows that hold cells; the first one has the names
        for cells, last_line in self._rows():
            if cells:
                number += 1
            if number == row + 1:
                break
            before = last_line
        return before + 1

    def error(
        self,
        expected: str,
        got: str,
        line: int | None = None,
        column: str = "",
    ) -> UnexpectedAnswer:
        """Build the error for a line."""
        where = self._file
        if line is not None:
            where += f", line {line}"
        if column:
            where += f", {column}"
        return UnexpectedAnswer(
            where,
            expected=expected,
            got=got,
            hint=HINT,
        )

    def _names_in(self, first: str) -> list[str]:
        with contextlib.suppress(csv.Error):
            for cells in csv.reader([first.rstrip("\r\n")], skipinitialspace=True):
                return [name.strip(" \t") for name in cells]
        return []

    def _read(self) -> pd.DataFrame:
        try:
            with warnings.catch_warnings():
                # If all rows are longer than the line of names, pandas drops the rest of each with a warning.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = pd.read_csv(
                    io.BytesIO(self.data),
                    dtype=TEXT,
                    index_col=False,
                    skipinitialspace=not self._keep_spaces,
                    keep_default_na=False,
                    na_values=[""],
                    encoding="utf-8-sig",
                )
            # pandas gives repeated names a number, and leaves spaces. A name of several lines is refused with others.
            frame = frame.set_axis(self.names, axis="columns")
        except (ValueError, pd.errors.ParserWarning) as error:
            self._refuse_uneven()
            raise self.error("CSV in UTF-8", printable(str(error))) from None
        # pandas fills rows that are too short.
        if frame.iloc[:, -1].isna().any():
            self._refuse_uneven()
        return frame

    def _refuse_uneven(self) -> None:
        """Refuse the first row that has more or fewer columns than there are names."""
        for cells, last_line in self._rows():
            if cells and len(cells) != len(self.names):
                raise self.error(
                    f"{len(self.names)} columns", str(len(cells)), last_line
                )

    def _rows(self) -> Iterator[tuple[list[str], int]]:
        """Yield the cells of each row, with the number of the line in which it ends."""
        lines = csv.reader(
            io.StringIO(
                self.data.decode("utf-8-sig", "replace"),
                newline="",
            )
        )
        with contextlib.suppress(csv.Error):  # such as for a cell of more than 128 KiB
            for cells in lines:
                # pandas makes no row of a line of spaces.
                is_blank = len(cells) == 1 and not cells[0].strip()
                yield ([] if is_blank else cells), lines.line_num


def read_milliseconds(texts: pa.Array, unit: str | None) -> pa.Array:
    """Read times as milliseconds since 1970; `unit` is that of numbers, None for text."""
    if unit:
        times = pc.multiply_checked(_all_read(texts, to_integers), UNITS[unit])
    else:
        zoned = pc.match_substring_regex(texts, WITH_ZONE)
        # Arrow reads texts with a zone and texts without one as different types. Read as microseconds, a time
        # that is finer than milliseconds is refused by the cast to these.
        with_zone = pc.if_else(zoned, texts, None)
        with_zone = with_zone.cast(pa.timestamp("us", "UTC"))
        without = pc.if_else(zoned, None, texts).cast(pa.timestamp("us"))
        instants = pc.coalesce(with_zone, without.cast(with_zone.type))
        instants = instants.cast(pa.timestamp("ms", "UTC"))
        times = instants.cast(pa.int64())
    first, last = pc.min_max(times).as_py().values()
    if first is not None and not 0 <= first <= last <= MAX_MOMENT:
        raise pa.ArrowInvalid("beyond the calendar")
    return times


def read_decimals(texts: pa.Array) -> pa.Array:
    """Read decimal numbers as amounts."""
    return _all_read(texts, to_amounts)


def read_positive(texts: pa.Array) -> pa.Array:
    """Read prices, which are above zero."""
    numbers = read_decimals(texts)
    if pc.any(pc.less_equal(numbers, 0)).as_py():
        raise pa.ArrowInvalid("not above zero")
    return numbers


def read_digits(texts: pa.Array) -> pa.Array:
    """Read amounts as ``DataFrame.to_csv`` writes them; floats and spreadsheets have lost digits."""
    return read_decimals(_all_match(texts, AMOUNT_TEXT))


def read_whole(texts: pa.Array) -> pa.Array:
    """Read numbers of accounts and the like as ``DataFrame.to_csv`` writes them; Arrow would read 0x10 as 16."""
    return _all_match(texts, WHOLE_TEXT).cast(pa.int64())


def _all_match(texts: pa.Array, pattern: str) -> pa.Array:
    is_match = pc.match_substring_regex(texts, pattern)
    if not pc.all(is_match, min_count=0).as_py():
        raise pa.ArrowInvalid("written otherwise")
    return texts


def refuse_other_tokens(
    file: CsvFile, frame: pd.DataFrame, markets: pd.DataFrame | None
) -> None:
    """Refuse a row whose tokens are not those of its market: as listed, or else as in the first row that names them.

    Prices are looked up by tokens: those of a swapped pair would be taken for those of another market.
    """
    names = [name for name in TOKENS if name in frame]
    pairs = frame[["market", *names]].drop_duplicates().astype(TEXT)
    for name in names:
        named = pairs.dropna(subset=["market", name])
        known = named.drop_duplicates("market").set_index("market")[name].to_dict()
        if markets is not None:
            known |= markets[name].dropna().to_dict()
        expected = named["market"].map(known)
        for row in named.index[named[name] != expected][:1]:
            raise file.error(
                f"{expected[row]}, the {name} token of {named['market'][row]}",
                shown(named[name][row]),
                file.line_of(row),
                name,
            )


def _all_read(texts: pa.Array, read: Callable[[pa.Array], pa.Array]) -> pa.Array:
    numbers = read(texts)
    if unread(texts, numbers):
        raise pa.ArrowInvalid("not a number")
    return numbers
