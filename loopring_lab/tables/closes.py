"""Prices from outside of the exchange, from a CSV file."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import warnings
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.scaling import as_series, combined, first_failure
from loopring_lab.bounded import BYTE_ORDERS, parse_decimal, printable, read_file, shown
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.paths import given_path
from loopring_lab.tables.listings import EARLIEST, MAX_MOMENT, TEXT, check_frame, to_utc
from loopring_lab.tables.numbers import cast_decimals, cast_integers
from loopring_lab.tables.rows import as_amount

NEEDED = ("created_at", "market", "price")
TOKENS = ("base", "quote")
# Milliseconds in each.
UNITS = {"s": 1000, "ms": 1}
# Bytes; a year of minutes in seven markets takes 200 MiB.
LARGEST = 512 << 20
# Ends in Z or an offset, after a date with a time.
WITH_ZONE = r"[T ].*([Zz]|[+-]\d\d:?\d\d)$"
_TYPE = AMOUNT.pyarrow_dtype
_TEXT_TIME = "a time such as 2022-03-31 18:00:00+00:00, to the millisecond, or unit='ms' for numbers"
_HINT = "Correct the file, or write it with DataFrame.to_csv."


def prices(
    file: str | os.PathLike[str],
    markets: pd.DataFrame | None = None,
    unit: str | None = None,
) -> pd.DataFrame:
    """Read prices from outside of the exchange, such as minute closes, from a CSV file.

    Parameters
    ----------
    file : path
        CSV in UTF-8, compressed with gzip or not, of at most 512 MiB, with a line of names: ``created_at``,
        ``market`` and ``price`` (quote per base, of any number of decimals up to 18), and optionally
        ``base`` and ``quote``; other columns are left out. The time is when the price was known: the end of
        a minute, where many providers state its start.
    markets : pandas.DataFrame, optional
        From `Client.markets`; gives ``base`` and ``quote`` where the file has no such columns.
    unit : {'s', 'ms'}, optional
        Unit of times that are numbers since 1970. By default times are text such as
        ``2022-03-31 18:00:00+00:00``, in UTC where they have no zone.

    Returns
    -------
    pandas.DataFrame, shape (prices, 5)
        ``created_at`` (UTC, milliseconds), ``market``, ``base``, ``quote`` (null where unknown) and ``price``
        (`amounts.AMOUNT`, exact; null where empty), sorted by time and market: `prices` of
        `fills.compare_venues` and its like, or the `reference` of `fills.all_in_cost`.

    Raises
    ------
    UnexpectedAnswer
        The file is not such a CSV file; names file, line and column.
    LabError
        `markets` or `unit` is not valid.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> file = Path(tempfile.mkdtemp(), "closes.csv")
    >>> closes = {"created_at": ["2022-03-31T18:01Z"], "market": ["LRC-ETH"], "price": ["0.00031"]}
    >>> pd.DataFrame(closes).to_csv(file, index=False)
    >>> lab.show(lab.tables.prices(file, client.markets()))
       created_at (UTC)  market base price (ETH)
    2022-03-31 18:01:00 LRC-ETH  LRC     0.00031
    """
    if unit is not None and unit not in UNITS:
        raise LabError(
            f"unit={unit!r} is not known. Use 's' or 'ms', or leave it out where times are text."
        )
    if markets is not None:
        check_frame("markets", markets, {*TOKENS})
    closes = _File(given_path(file))
    moment = f"a whole number of {unit} since 1970" if unit else _TEXT_TIME
    found = pd.DataFrame(
        {
            "created_at": to_utc(
                closes.column(
                    "created_at",
                    moment,
                    partial(
                        _milliseconds,
                        unit=unit,
                    ),
                )
            ),
            "market": closes.column("market", "a name"),
        }
    )
    early = found["created_at"] < pd.Timestamp(EARLIEST, unit="ms", tz="UTC")
    if unit == "ms" and early.any():
        # Seconds that are taken for milliseconds are times of 1970.
        raise closes.error(
            "times of 2015 or later, or unit='s'",
            str(found["created_at"][early].iloc[0]),
            closes.line_of(int(early.argmax())),
            "created_at",
        )
    for name in TOKENS:
        if markets is None or name in closes.names:
            found[name] = closes.column(name, "a name")
        else:
            listed = markets[name].to_dict()
            found[name] = found["market"].map(listed)
    found["price"] = closes.column(
        "price", f"a decimal number that fits {_TYPE}", _decimals
    )
    # A price may be repeated, but not contradicted.
    once = found.drop_duplicates(["created_at", "market", "price"])
    again = once.index[once.duplicated(["created_at", "market"])]
    if len(again):
        at, market, price = found.loc[again[0], [*NEEDED]]
        got = f"{price:f}, but another price of {market} at {at} before"
        raise closes.error(
            "one price of a market and time",
            got,
            closes.line_of(again[0]),
            "price",
        )
    categories = found.astype(dict.fromkeys(["market", *TOKENS], "category"))
    return categories.sort_values(
        ["created_at", "market"],
        kind="stable",
        ignore_index=True,
    )


class _File:
    """A CSV file with its columns as text, null where empty or missing."""

    def __init__(self, path: Path) -> None:
        self._file = printable(path.name)
        self._data = read_file(
            path,
            size=LARGEST,
            hint=_HINT,
        )
        if self._data.startswith(BYTE_ORDERS):
            raise self.error("CSV in UTF-8", "text in UTF-16")
        line, _, _ = self._data.lstrip().partition(b"\n")
        first = line.decode("utf-8-sig", "replace")
        self.names = [name.strip(' \t\r"') for name in first.split(",")]
        if not {*NEEDED} <= {*self.names}:
            raise self.error(
                f"a line of names with {', '.join(NEEDED)}", shown(first), 1
            )
        for name in (*NEEDED, *TOKENS):
            if self.names.count(name) > 1:
                raise self.error("each column once", f"{name} twice", 1)
        self._frame = self._read()

    def column(
        self,
        name: str,
        expected: str,
        convert: Callable[[pa.Array], pa.Array] | None = None,
    ) -> pd.Series:
        """Return a column, converted, which must be complete if it is the time or the market."""
        if name not in self.names:
            return pd.Series(None, self._frame.index, TEXT)
        column = self._frame[name]
        if name in ("created_at", "market") and column.isna().any():
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
        """Return the number of the line that holds a row; blank lines hold none."""
        lines = enumerate(self._data.split(b"\n"), 1)
        filled = [number for number, text in lines if text.strip()]
        # The first one has the names.
        return filled[row + 1]

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
            hint=_HINT,
        )

    def _read(self) -> pd.DataFrame:
        try:
            with warnings.catch_warnings():
                # Of rows that are all longer than the line of names, pandas drops the rest with a warning.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = pd.read_csv(
                    io.BytesIO(self._data),
                    dtype=TEXT,
                    index_col=False,
                    skipinitialspace=True,
                    keep_default_na=False,
                    na_values=[""],
                    encoding="utf-8-sig",
                )
        except (ValueError, pd.errors.ParserWarning) as error:
            self._refuse_uneven()
            raise self.error("CSV in UTF-8", printable(str(error))) from None
        # pandas fills rows that are too short.
        if frame.iloc[:, -1].isna().any():
            self._refuse_uneven()
        # pandas gives repeated names a number, and leaves spaces.
        return frame.set_axis(
            self.names,
            axis="columns",
        )

    def _refuse_uneven(self) -> None:
        """Refuse the first row that has more or fewer columns than there are names."""
        lines = csv.reader(
            io.StringIO(
                self._data.decode("utf-8-sig", "replace"),
                newline="",
            )
        )
        with contextlib.suppress(csv.Error):  # such as for a cell of more than 128 KiB
            for cells in lines:
                if cells and len(cells) != len(self.names):
                    raise self.error(
                        f"{len(self.names)} columns", str(len(cells)), lines.line_num
                    )


def _milliseconds(texts: pa.Array, unit: str | None) -> pa.Array:
    """Read times as milliseconds since 1970."""
    if unit:
        numbers = cast_integers(texts)
        if numbers is None:
            raise pa.ArrowInvalid("not a number")
        times = pc.multiply_checked(numbers, UNITS[unit])
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


def _decimals(texts: pa.Array) -> pa.Array:
    numbers = cast_decimals(texts)
    if numbers is not None:
        return numbers
    return pa.array(map(_decimal, texts.to_pylist()), _TYPE)


def _decimal(text: str | None) -> Decimal | None:
    amount = as_amount(parse_decimal(text))
    if text is not None and amount is None:
        raise pa.ArrowInvalid(text)
    return amount
