"""Rows as they go over the wire: prices printed as the real relayer does, layouts, numbers or strings."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

__all__ = ["POOL_PREFIX", "Bare", "Row", "laid_out", "price_text", "render"]

POOL_PREFIX = "AMM-"
PRICE_SCALE = 10**8
MARKET, FEE, HASH, ROLE = 5, 6, 12, 13
SHORT_LAYOUT = (0, 1, 2, 3, 4, 5, 6, 9, 10, 11)
UNKNOWN_MEMBER = "0"
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Bare(str):
    """A member that stands without quotes in the JSON: a number in its own digits, or null."""

    __slots__ = ()


Row = tuple[str, ...]


def price_text(scaled: int) -> str:
    """A price in the form of Java's ``Double.toString``.

    Parameters
    ----------
    scaled : int
        The price in 10**-8, not negative.

    Returns
    -------
    str
        Plain from 0.001 to below 10,000,000, else with an exponent.

    Examples
    --------
    >>> [price_text(n) for n in (35669, 33210000, 200000000000, 10**15)]
    ['3.5669E-4', '0.3321', '2000.0', '1.0E7']
    """
    mantissa, _, exponent = repr(scaled / PRICE_SCALE).partition("e")
    whole, _, part = mantissa.partition(".")
    digits, point = whole + part, len(whole) + int(exponent or 0)
    if PRICE_SCALE // 1000 <= scaled < 10**7 * PRICE_SCALE or not scaled:
        return mantissa
    significant = digits.lstrip("0")
    point -= len(digits) - len(significant)
    significant = significant.rstrip("0")
    return f"{significant[0]}.{significant[1:] or '0'}E{point - 1}"


def laid_out(row: Row, length: int | None, prefix: bool) -> Row:
    """A row in the layout the settings ask for.

    Parameters
    ----------
    row : tuple of str
        The full row.
    length : int or None
        Members wanted: 7 to 15, as `Settings.row_length` says; None leaves the row as it is.
    prefix : bool
        Whether pool fills carry ``AMM-`` in the market.

    Returns
    -------
    tuple of str
        Never longer than the row can fill: only the role (member 13) and one unknown member are ever added.
    """
    if not prefix and row[MARKET].startswith(POOL_PREFIX):
        row = (*row[:MARKET], row[MARKET].removeprefix(POOL_PREFIX), *row[MARKET + 1 :])
    if length is None:
        return row
    if length == len(SHORT_LAYOUT) and len(row) > HASH:
        return tuple(row[position] for position in SHORT_LAYOUT)
    if length > ROLE and len(row) == ROLE:
        row = (*row, "maker" if row[FEE] == "0" else "taker")
    if length > ROLE + 1 and len(row) == ROLE + 1:
        row = (*row, UNKNOWN_MEMBER)
    return row[:length]


def render(rows: Sequence[Row], numbers: bool) -> str:
    """Rows as JSON text.

    Parameters
    ----------
    rows : sequence of tuple of str
        In the order to be served.
    numbers : bool
        Whether numeric members stand without quotes, in exactly the digits they have as strings.

    Returns
    -------
    str
        An array of arrays.

    Examples
    --------
    >>> render([("1", "3.5669E-4", "LRC-ETH")], numbers=True)
    '[[1,3.5669E-4,"LRC-ETH"]]'
    """
    if numbers or any(isinstance(cell, Bare) for row in rows for cell in row):
        lines = (",".join(_cell(cell, numbers) for cell in row) for row in rows)
        return "[" + ",".join(f"[{line}]" for line in lines) + "]"
    return json.dumps(rows, separators=(",", ":"))


def _cell(cell: str, numbers: bool) -> str:
    if isinstance(cell, Bare) or (numbers and NUMBER.fullmatch(cell)):
        return cell
    return json.dumps(cell)
