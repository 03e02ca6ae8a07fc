"""Text columns to exact numbers, all rows at once where that is certain, else text by text.

A text that is no such number becomes null; `unread` finds these.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE, to_decimal
from loopring_lab.amounts.scaling import WHOLE
from loopring_lab.bounded import parse_decimal, parse_integer
from loopring_lab.errors import AmountError

# pyarrow computes decimals modulo 2**256 or 2**128, silently, and looks powers of ten beyond 10**76 up outside of its
# table. So it is given only texts of which every step stays below that: whole numbers of at most 76 digits, and
# decimal numbers of at most 37 digits with 18 decimals, or with up to 27 that an exponent brings.
LONGEST_WHOLE = WHOLE.precision
PLAIN_DECIMAL = "^-?[0-9]{1,19}(?:[.][0-9]{1,18})?(?:[eE]-[0-9])?$"


def to_integers(texts: pa.Array) -> pa.Array:
    """Read integers of 64 bits."""
    return _read(texts, _are_digits, pa.int64(), parse_integer)


def to_smallest(texts: pa.Array) -> pa.Array:
    """Read amounts in smallest units, of up to 76 digits."""
    return _read(texts, _are_digits, WHOLE, _smallest)


def to_amounts(texts: pa.Array) -> pa.Array:
    """Read amounts and prices, which may have exponents."""
    return _read(texts, _are_plain, AMOUNT_TYPE, _amount)


def unread(texts: pa.Array, numbers: pa.Array) -> list[int]:
    """Return the rows of texts that are no such numbers."""
    if numbers.null_count == texts.null_count:
        return []
    return rows_where(pc.and_(numbers.is_null(), texts.is_valid()))


def rows_where(mask: pa.Array | np.ndarray) -> list[int]:
    """Return the rows where a mask is true."""
    found: list[int] = np.flatnonzero(is_true(mask)).tolist()
    return found


def is_true(mask: pa.Array | np.ndarray) -> np.ndarray:
    """Return a mask in which null counts as False."""
    if isinstance(mask, np.ndarray):
        return mask
    return np.asarray(mask.fill_null(False))


def _read(
    texts: pa.Array,
    are_certain: Callable[[pa.Array], bool],
    to: pa.DataType,
    parse: Callable[[str | None], Any],
) -> pa.Array:
    if are_certain(texts):
        try:
            return texts.cast(to)
        except pa.ArrowInvalid:
            pass  # one of them does not fit
    return pa.array(map(parse, texts.to_pylist()), to)


def _are_digits(texts: pa.Array) -> bool:
    is_digits = pc.ascii_is_decimal(texts)
    lengths = pc.binary_length(texts)
    longest = pc.max(lengths).as_py() or 0
    # Without `min_count`, Arrow says null of no texts at all.
    return bool(pc.all(is_digits, min_count=0).as_py()) and longest <= LONGEST_WHOLE


def _are_plain(texts: pa.Array) -> bool:
    is_plain = pc.match_substring_regex(texts, PLAIN_DECIMAL)
    return bool(pc.all(is_plain, min_count=0).as_py())


def _smallest(text: str | None) -> Decimal | None:
    number = parse_integer(text, 10**WHOLE.precision - 1)
    return None if number is None else Decimal(number)


def _amount(text: str | None) -> Decimal | None:
    try:
        return to_decimal(parse_decimal(text))
    except AmountError:
        return None
