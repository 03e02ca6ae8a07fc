"""Text columns to exact numbers, all rows at once where that is certain.

Each function returns None where it is not, or where a value does not fit its type; the caller then looks at
each text by itself, with `bounded.parse_integer` or `parse_decimal`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.scaling import WHOLE

# pyarrow computes decimals modulo 2**256 or 2**128, silently, and looks powers of ten beyond 10**76 up outside of its
# table. So it is given only texts of which every step stays below that: whole numbers of at most 76 digits, and
# decimal numbers of at most 37 digits with 18 decimals, or with up to 27 that an exponent brings.
LONGEST_WHOLE = WHOLE.precision
PLAIN_DECIMAL = "^-?[0-9]{1,19}(?:[.][0-9]{1,18})?(?:[eE]-[0-9])?$"


def cast_integers(texts: pa.Array) -> pa.Array | None:
    """Cast texts to integers of 64 bits."""
    return _cast(texts, pa.int64()) if _are_digits(texts) else None


def cast_smallest(texts: pa.Array) -> pa.Array | None:
    """Cast texts to amounts in smallest units, of up to 76 digits."""
    return _cast(texts, WHOLE) if _are_digits(texts) else None


def cast_decimals(texts: pa.Array) -> pa.Array | None:
    """Cast texts to the type of amounts and prices."""
    is_plain = pc.match_substring_regex(texts, PLAIN_DECIMAL)
    # Without `min_count`, Arrow says null of no texts at all.
    if not pc.all(is_plain, min_count=0).as_py():
        return None
    return _cast(texts, AMOUNT_TYPE)


def _are_digits(texts: pa.Array) -> bool:
    is_digits = pc.ascii_is_decimal(texts)
    lengths = pc.binary_length(texts)
    longest = pc.max(lengths).as_py() or 0
    return bool(pc.all(is_digits, min_count=0).as_py()) and longest <= LONGEST_WHOLE


def _cast(texts: pa.Array, to: pa.DataType) -> pa.Array | None:
    try:
        return texts.cast(to)
    except pa.ArrowInvalid:
        return None
