"""Exact changes of scale on Arrow decimals, under the functions of `amounts`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.bounded import parse_integer, shown
from loopring_lab.errors import AmountError

# The most decimals of a token; the registered ones have 18 at most, and an amount of 96 bits has 29 digits.
MAX_DECIMALS = 30
# Digits after the point that a cast of pyarrow removes without wrong last digits (tried).
DIGITS_AT_ONCE = 9
WHOLE = pa.decimal256(76, 0)
LEAVE_OUT = "correct the value, or leave it out"

# Smallest units in a unit of tokens with 0 to 30 decimals. A product of one of them and an amount of 38 digits has 69
# digits at most, which 256 bits hold.
_UNITS = [10**places for places in range(MAX_DECIMALS + 1)]
POWERS = pa.array(_UNITS, pa.decimal256(MAX_DECIMALS + 1, 0))
_SHORT = pa.decimal256(38, 0)
# Integers keep their meaning at another scale only in as many bytes.
_OF_BYTES = {4: pa.decimal32, 8: pa.decimal64, 16: pa.decimal128, 32: pa.decimal256}

TokenName = str | Callable[[int], str]


def scale(
    numbers: pa.Array,
    decimals: np.ndarray,
    to: pa.DataType,
    token: TokenName,
) -> pa.Array:
    """Scale smallest units to units of the token; null where decimals are negative."""
    found, wrong = scale_what_fits(
        numbers,
        decimals,
        to,
        token,
    )
    if len(wrong):
        advice = (
            "give a wider dtype, or leave the value out"
            if to.precision < WHOLE.precision
            else LEAVE_OUT
        )
        refuse(
            numbers,
            int(wrong[0]),
            decimals,
            token,
            f"does not fit {range_of(to)}",
            advice,
        )
    return found


def scale_what_fits(
    numbers: pa.Array,
    decimals: np.ndarray,
    to: pa.DataType,
    token: TokenName,
) -> tuple[pa.Array, np.ndarray]:
    """Scale smallest units; those that do not fit become null, and their positions are returned too."""
    check_decimals(decimals[decimals >= 0], token)
    scaled = _scale_short(numbers, decimals, to)
    if scaled is not None:
        return scaled, np.empty(0, np.int64)
    return _scale_each(numbers, decimals, to)


def to_smallest(
    amounts: pa.Array,
    decimals: np.ndarray,
    token: TokenName,
) -> pa.Array:
    """Scale units of the token to its smallest units."""
    found = pa.nulls(len(amounts), WHOLE)
    for places in np.unique(decimals).tolist():
        # Tokens with the same number of decimals are scaled together, because a column of Arrow has one scale.
        is_of_these = pa.array(decimals == places)
        some = pc.if_else(is_of_these, amounts, pa.scalar(None, amounts.type))
        convert = partial(
            rescale,
            to=pa.decimal256(76, places),
        )
        try:
            digits = convert(some)
        except pa.ArrowInvalid:
            position, _ = first_failure(some, convert)
            problem = "has digits below the token's smallest unit"
            if places >= amounts.type.scale:
                problem = f"is more than {WHOLE.precision} digits of smallest units"
            refuse(
                amounts,
                position,
                decimals,
                token,
                problem,
                LEAVE_OUT,
            )
        found = pc.coalesce(found, with_scale(digits, WHOLE))
    return found


def _scale_short(
    numbers: pa.Array,
    decimals: np.ndarray,
    to: pa.DataType,
) -> pa.Array | None:
    """Scale smallest units of all tokens in one multiplication; None where that cannot hold them all."""
    places = to.scale - decimals
    # Unknown tokens have -1 as their decimals.
    known = places[decimals >= 0]
    if known.min(initial=0) < 0 or known.max(initial=0) >= len(POWERS):
        return None
    powers = POWERS.take(
        pa.array(
            places,
            mask=decimals < 0,
        )
    )
    try:
        scaled = pc.multiply(numbers.cast(_SHORT), powers)
        return with_scale(scaled.cast(_whole(to)), to)
    except pa.ArrowInvalid:
        return None


def _scale_each(
    numbers: pa.Array,
    decimals: np.ndarray,
    to: pa.DataType,
) -> tuple[pa.Array, np.ndarray]:
    """Scale smallest units one by one, as Python integers; return also the positions of those that do not fit."""
    found: list[int | None] = []
    wrong = []
    for row, number in enumerate(to_integers(numbers)):
        scaled = None
        if number is not None and decimals[row] >= 0:
            unit = 10 ** int(decimals[row])
            scaled, rest = divmod(number * 10**to.scale, unit)
            # A rest would be rounded away, and a larger number wrap around.
            if rest or abs(scaled) >= 10**to.precision:
                scaled = None
                wrong.append(row)
        found.append(scaled)
    return from_integers(found, to), np.array(wrong, np.int64)


def refuse(
    values: pa.Array,
    position: int,
    decimals: np.ndarray,
    token: TokenName,
    problem: str,
    advice: str,
) -> NoReturn:
    """Raise the error for a value that cannot be scaled."""
    value = values[position].as_py()
    raise AmountError(
        f"{token_at(token, position)}, value {position}: {value:f} with {decimals[position]} decimals {problem}. "
        f"Amounts are never rounded: {advice}."
    )


def rescale(
    array: pa.Array | pa.ChunkedArray,
    to: pa.DataType,
    *,
    truncate: bool = False,
) -> pa.Array | pa.ChunkedArray:
    """Cast decimals to a decimal type exactly, which pyarrow's own casts are not for all values."""
    added = to.scale - array.type.scale
    if added > 0:
        # pyarrow multiplies modulo 2**128 or 2**256. A number that is too large for `to` is found before that.
        digits = max(to.precision - added, 1)
        array = array.cast(pa.decimal256(digits, array.type.scale))
    # pyarrow's division is wrong for some values if it removes more digits than these at a time.
    while array.type.scale > to.scale:
        places = max(array.type.scale - DIGITS_AT_ONCE, to.scale)
        array = array.cast(pa.decimal256(76, places), safe=not truncate)
    return array.cast(to)


def first_failure(
    array: pa.Array | pa.ChunkedArray, convert: Callable[[Any], Any]
) -> tuple[int, Any]:
    """Find the first value that `convert` fails on, by bisection."""
    start = 0
    stop = len(array)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            convert(array.slice(start, middle - start))
            start = middle
        except pa.ArrowInvalid:
            stop = middle
    return start, array[start].as_py()


def combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; Arrow copies even a single chunk."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()


def _whole(kind: pa.DataType) -> pa.DataType:
    """Return the type of whole numbers with the bits and digits of a decimal type."""
    return _OF_BYTES[kind.byte_width](kind.precision, 0)


def with_scale(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Reinterpret the same integers, of as many bits, at another scale or as plain bytes."""
    return pa.Array.from_buffers(
        to,
        len(array),
        array.buffers(),
        offset=array.offset,
    )


def to_integers(array: pa.Array | pa.ChunkedArray) -> list[int | None]:
    """Read the unscaled integers of decimals."""
    stored = with_scale(combined(array), pa.binary(array.type.byte_width))
    return [
        None if one is None else int.from_bytes(one, sys.byteorder, signed=True)
        for one in stored.to_pylist()
    ]


def from_integers(numbers: Iterable[int | None], to: pa.DataType) -> pa.Array:
    """Build decimals from unscaled integers, the inverse of `to_integers`."""
    whole = [None if number is None else Decimal(number) for number in numbers]
    return with_scale(pa.array(whole, _whole(to)), to)


def decimals_of_each(
    decimals: int | Sequence[int] | np.ndarray,
    count: int,
    token: TokenName,
) -> np.ndarray:
    """Repeat a single number of decimals for each value, and check the range."""
    try:
        each = np.broadcast_to(
            np.asarray(
                decimals,
                dtype=np.int64,
            ),
            count,
        )
    except (TypeError, ValueError, OverflowError):
        raise AmountError(
            f"decimals={shown(decimals)}: expected a whole number from 0 to {MAX_DECIMALS}, or one for each of {count} "
            "values. Give those of the token, which client.tokens() lists."
        ) from None
    check_decimals(each, token)
    return each


def check_decimals(decimals: np.ndarray, token: TokenName) -> None:
    wrong = np.flatnonzero((decimals < 0) | (decimals > MAX_DECIMALS))
    if len(wrong):
        raise AmountError(
            f"{token_at(token, int(wrong[0]))}: decimals {decimals[wrong[0]]} are outside 0 to "
            f"{MAX_DECIMALS}. Check the token's entry in the relayer's list."
        )


def range_of(to: pa.DataType) -> str:
    return f"{to}: at most {to.precision - to.scale} digits before the point and {to.scale} after it"


def token_at(token: TokenName, position: int) -> str:
    return token if isinstance(token, str) else token(position)


def parse_integers(values: Iterable[Any], token: TokenName) -> pa.Array:
    """Parse ints, strings, nulls or Decimals as ``decimal256(76, 0)``, or raise an `AmountError`."""
    if isinstance(values, (str, bytes)) or not pd.api.types.is_list_like(values):
        raise AmountError(
            f"{shown(values)} is one value, where several are expected. Give a list, as in [{shown(values)}]."
        )
    numbered = enumerate(values)
    texts = [_integer_text(value, position, token) for position, value in numbered]
    # Arrow reads numbers exactly from text; they have at most 76 digits.
    return pa.array(texts, pa.string()).cast(WHOLE)


def _integer_text(
    value: Any,
    position: int,
    token: TokenName,
) -> str | None:
    if pd.isna(value):
        return None
    # A float's last digits are not what was meant, and True is no amount.
    text = "" if isinstance(value, (bool, float, np.floating)) else str(value)
    # Python writes some Decimals with an exponent or decimal places, by which rounded numbers are known in text.
    if isinstance(value, Decimal) and abs(value.adjusted()) < WHOLE.precision:
        text = f"{value:.0f}" if value == value.to_integral_value() else ""
    number = parse_integer(text, 10**WHOLE.precision - 1)
    if number is None:
        raise AmountError(
            f"{token_at(token, position)}, value {position}: {shown(value)} is not a whole number of smallest units "
            f"of at most {WHOLE.precision} digits, which is what a 256-bit decimal can hold. Give an int, or an int as "
            "a string; floats are not exact and are not accepted."
        )
    return str(number)
