"""Prices from outside of the exchange, from a CSV file."""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from loopring_lab.amounts import AMOUNT
from loopring_lab.amounts.scaling import as_series, first_failure
from loopring_lab.bounded import parse_decimal, printable, read_file, shown
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.tables.listings import MAX_MOMENT, TEXT, check_frame, to_utc
from loopring_lab.tables.rows import as_amount
from loopring_lab.tables.numbers import cast_decimals, cast_integers

NEEDED, TOKENS = ("created_at", "market", "price"), ("base", "quote")
UNITS = {"s": 1000, "ms": 1}
LARGEST = 512 << 20  # bytes; a year of minutes in seven markets takes 200 MiB
WITH_ZONE = r"[T ].*([Zz]|[+-]\d\d:?\d\d)$"
_TYPE = AMOUNT.pyarrow_dtype
_TEXT_TIME = "a time such as 2022-03-31 18:00:00+00:00, to the millisecond, or unit='ms' for numbers"
_HINT = "Correct the file, or write it with DataFrame.to_csv."


def prices(file: str | os.PathLike[str], markets: pd.DataFrame | None = None, unit: str | None = None) -> pd.DataFrame:
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
        raise LabError(f"unit={unit!r} is not known. Use 's' or 'ms', or leave it out where times are text.")
    if markets is not None:
        check_frame("markets", markets, {*TOKENS})
    closes = _File(Path(file))
    moment = f"a whole number of {unit} since 1970" if unit else _TEXT_TIME
    times = closes.column("created_at", moment, partial(_milliseconds, unit=unit))
    amounts = closes.column("price", f"a decimal number that fits {_TYPE}", _decimals)
    columns = {"created_at": to_utc(as_series(times)), "market": closes.names("market")}
    for name in TOKENS:
        if markets is None or name in closes.listed:
            columns[name] = closes.names(name)
        else:
            columns[name] = columns["market"].map(markets[name].to_dict())
    found = pd.DataFrame(columns | {"price": as_series(amounts)})
    once = found.drop_duplicates(["created_at", "market", "price"])
    again = once.index[once.duplicated(["created_at", "market"])]
    if len(again):
        at, market, price = found.loc[again[0], [*NEEDED]]
        got = f"{price:f}, but another price of {market} at {at} before"
        raise closes.error("one price of a market and time", got, again[0], "price")
    categories = found.astype(dict.fromkeys(["market", *TOKENS], "category"))
    return categories.sort_values(["created_at", "market"], kind="stable", ignore_index=True)


class _File:
    """A CSV file with its columns as text, null where empty or missing."""

    def __init__(self, path: Path) -> None:
        self._name = printable(path.name)
        self._data = read_file(path, size=LARGEST, hint=_HINT)
        first = next(iter(self._data.lstrip().split(b"\n", 1)), b"").decode("utf-8-sig", "replace")
        self.listed = [name.strip().strip('"') for name in first.split(",")]
        if not {*NEEDED} <= {*self.listed}:
            raise self.error(f"a line of names with {', '.join(NEEDED)}", shown(first), -1)
        for name in (*NEEDED, *TOKENS):
            if self.listed.count(name) > 1:
                raise self.error("each column once", f"{name} twice", -1)
        self._table = self._read()

    def names(self, name: str) -> pd.Series:
        column = self.column(name, "a name", lambda texts: texts)
        return pd.Series(TEXT.__from_arrow__(column))  # type: ignore[attr-defined]

    def column(self, name: str, expected: str, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """Convert a column, which must be complete if it is the time or the market."""
        texts = self._table[name].combine_chunks()
        if texts.null_count and name in ("created_at", "market"):
            raise self.error(expected, "nothing", pc.index(texts.is_null(), True).as_py(), name)
        try:
            return convert(texts)
        except pa.ArrowInvalid:
            row, text = first_failure(texts, convert)
        raise self.error(expected, shown(text), row, name)

    def error(self, expected: str, got: str, row: int | None = None, column: str = "") -> UnexpectedAnswer:
        """Build the error for a row, which is counted without blank lines; -1 is the line of names."""
        where = self._name
        if row is not None:
            lines = enumerate(self._data.split(b"\n"), 1)
            where += f", line {[*(number for number, text in lines if text.strip()), 1][row + 1]}"
        where += f", {column}" if column else ""
        return UnexpectedAnswer(where, expected=expected, got=got, hint=_HINT)

    def _read(self) -> pa.Table:
        wrong: list[Any] = []  # an error raised by the handler itself would be lost

        def note(row: Any) -> str:
            wrong.append(row)
            return "error"

        texts = dict.fromkeys((*NEEDED, *TOKENS), pa.string())
        try:
            return pa.csv.read_csv(
                pa.BufferReader(self._data),
                pa.csv.ReadOptions(use_threads=False, block_size=len(self._data) + 1),
                pa.csv.ParseOptions(invalid_row_handler=note),
                pa.csv.ConvertOptions(
                    column_types=texts,
                    include_columns=[*texts],
                    include_missing_columns=True,
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            )
        except pa.ArrowInvalid as error:
            for row in wrong:
                expected, got = f"{row.expected_columns} columns", str(row.actual_columns)
                raise self.error(expected, got, row.number - 2) from None
            raise self.error("CSV in UTF-8", printable(str(error))) from None


def _milliseconds(texts: pa.Array, unit: str | None) -> pa.Array:
    """Read times as milliseconds since 1970."""
    if unit:
        numbers = cast_integers(texts)
        if numbers is None:
            raise pa.ArrowInvalid("not a number")
        times = pc.multiply_checked(numbers, UNITS[unit])
    else:
        zoned = pc.match_substring_regex(texts, WITH_ZONE)
        parts = [pc.if_else(zoned, texts, None).cast(pa.timestamp("us", "UTC"))]
        parts.append(pc.if_else(zoned, None, texts).cast(pa.timestamp("us")).cast(parts[0].type))
        times = pc.coalesce(*parts).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    first, last = pc.min_max(times).as_py().values()
    if first is not None and not 0 <= first <= last <= MAX_MOMENT:
        raise pa.ArrowInvalid("beyond the calendar")
    return times


def _decimals(texts: pa.Array) -> pa.Array:
    numbers = cast_decimals(texts)
    return pa.array(map(_decimal, texts.to_pylist()), _TYPE) if numbers is None else numbers


def _decimal(text: str | None) -> Decimal | None:
    amount = as_amount(parse_decimal(text))
    if text is not None and amount is None:
        raise pa.ArrowInvalid(text)
    return amount
