"""Change of scale on 256-bit integers: the machinery under `amounts`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.errors import AmountError

__all__ = ["scale"]

MAX_DECIMALS = 30
DIGITS_AT_ONCE = 9
WHOLE = pa.decimal256(76, 0)
LIMBS, ONES = 4, (1 << 64) - 1

Name = str | Callable[[int], str]
_EXACT = Context(prec=120)


def scale(numbers: pa.Array, decimals: np.ndarray, to: pa.DataType, token: Name) -> pa.Array:
    """Scale smallest units to units."""
    check_decimals(decimals[decimals >= 0], token)

    def scaled(part: pa.Array, places: int) -> pa.Array:
        return reduce_scale(rescaled(part, pa.decimal256(76, places)), to)

    return by_decimals(numbers, decimals, scaled, token, lambda places: f"does not fit {range_of(to)}")


def by_decimals(
    array: pa.Array,
    decimals: np.ndarray,
    change: Callable[[pa.Array, int], pa.Array],
    token: Name,
    why: Callable[[int], str],
) -> pa.Array:
    """Apply `change` to the values of each number of decimals; null where decimals are negative."""
    parts = []
    for places in np.flatnonzero(np.bincount(decimals[decimals >= 0])).tolist():
        mine = decimals == places
        part = array if mine.all() else pc.if_else(pa.array(mine), array, pa.scalar(None, array.type))
        try:
            parts.append(change(part, places))
        except pa.ArrowInvalid:
            at, value = first_failure(part, lambda one, places=places: change(one, places))  # type: ignore[misc]
            raise AmountError(
                f"{label_of(token, at)}, value {at}: {value:f} with {places} decimals {why(places)}. "
                "It is not rounded: pass a wider dtype, or leave the value out."
            ) from None
    if not parts:
        return change(pa.nulls(len(array), array.type), 0)
    return pc.coalesce(*parts) if len(parts) > 1 else parts[0]


def reduce_scale(array: pa.Array, to: pa.DataType, *, cut: bool = False) -> pa.Array:
    """Cast to a decimal type, nine digits of scale at a time."""
    for places in range(array.type.scale - DIGITS_AT_ONCE, to.scale, -DIGITS_AT_ONCE):
        array = array.cast(pa.decimal256(76, places), safe=not cut)
    return array.cast(to, safe=not cut)


def first_failure(array: pa.Array, change: Callable[[pa.Array], pa.Array]) -> tuple[int, Decimal]:
    """Find the first value on which `change` fails, by halving."""
    start, stop = 0, len(array)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            change(array.slice(start, middle - start))
            start = middle
        except pa.ArrowInvalid:
            stop = middle
    return start, array[start].as_py()


def rescaled(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Read the same 256-bit integers with another scale."""
    return pa.Array.from_buffers(to, len(array), array.buffers(), offset=array.offset)


def integers(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Read the unscaled integers of 256-bit decimals."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if not len(array):
        return np.empty(0, object)
    limbs = np.frombuffer(array.buffers()[1], "<u8").reshape(-1, LIMBS)[
        array.offset : array.offset + len(array)
    ]
    found = limbs[:, 0].astype(object)
    for place in range(1, LIMBS - 1):
        if limbs[:, place].any():
            found += limbs[:, place].astype(object) << (64 * place)
    if limbs[:, -1].any():
        found += limbs[:, -1].astype(np.int64).astype(object) << (64 * (LIMBS - 1))
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = None
    return found


def from_integers(numbers: Iterable[int | None], to: pa.DataType) -> pa.Array:
    """Make 256-bit decimals of unscaled integers, the inverse of `integers`."""
    given = np.array(list(numbers), object)
    unknown = absent(given)
    known = np.where(unknown, 0, given)
    if len(known) and max(known.max(), -known.min()) >= 10**to.precision:
        raise AmountError(
            f"an amount does not fit {range_of(to)}. Use a wider dtype, or leave the amount out."
        )
    limbs = np.empty((len(known), LIMBS), "<u8")
    for place in range(LIMBS):
        limbs[:, place] = ((known >> (64 * place)) & ONES).astype(np.uint64)
    array = pa.Array.from_buffers(to, len(known), [None, pa.py_buffer(limbs)])
    return pc.if_else(pa.array(unknown), pa.scalar(None, to), array) if unknown.any() else array


def absent(numbers: np.ndarray) -> np.ndarray:
    """Tell where an array of objects holds None."""
    return np.array([number is None for number in numbers], bool)


def check_decimals(decimals: np.ndarray, token: Name) -> None:
    """Refuse decimals outside 0 to 30 with an `AmountError`."""
    wrong = np.flatnonzero((decimals < 0) | (decimals > MAX_DECIMALS))
    if len(wrong):
        raise AmountError(
            f"{label_of(token, int(wrong[0]))}: decimals {decimals[wrong[0]]} are outside 0 to "
            f"{MAX_DECIMALS}. Check the token's record."
        )


def range_of(to: pa.DataType) -> str:
    """Say what a decimal type holds."""
    return f"{to}: at most {to.precision - to.scale} digits before the point and {to.scale} after it"


def label_of(token: Name, position: int) -> str:
    """Name the token at a position."""
    return token if isinstance(token, str) else token(position)


def whole_numbers(values: Iterable[Any], token: Name) -> pa.Array:
    """Read ints, their texts, nulls or exact decimals as ``decimal256(76, 0)``, or raise an `AmountError`."""
    if isinstance(values, pd.Series) and is_exact(values):
        values = as_array(values).to_pylist()
    texts = [_whole_text(value, position, token) for position, value in enumerate(values)]
    return pa.array(texts, pa.string()).cast(WHOLE)


def _whole_text(value: Any, position: int, token: Name) -> str | None:
    if pd.isna(value):
        return None
    number = None if isinstance(value, (bool, float)) else decimal(str(value))
    if number is None or number != number.to_integral_value(context=_EXACT):
        raise AmountError(
            f"{label_of(token, position)}, value {position}: {value!r} is not a whole number of smallest "
            "units. Give an int, or the text of one; floats are refused because they are not exact."
        )
    if number.adjusted() >= WHOLE.precision:
        raise AmountError(
            f"{label_of(token, position)}, value {position}: {str(value)[:20]}… has more than "
            f"{WHOLE.precision} digits, the most a 256-bit decimal holds. Check the source of the value."
        )
    return f"{number:.0f}"


def decimal(text: str) -> Decimal | None:
    """Read plain ASCII text of a finite decimal number, or give None."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    plain = text.isascii() and "_" not in text and text == text.strip()
    return number if plain and number.is_finite() else None


def is_exact(column: pd.Series) -> bool:
    """Tell whether a series holds Arrow decimals."""
    return isinstance(column.dtype, pd.ArrowDtype) and pa.types.is_decimal(column.dtype.pyarrow_dtype)


def as_array(amounts: pd.Series) -> pa.Array:
    """Take the Arrow array out of a series of exact amounts, or raise an `AmountError`."""
    if not is_exact(amounts):
        named = "This series" if amounts.name is None else repr(amounts.name)
        raise AmountError(
            f"{named} is {amounts.dtype}, not an exact amount. "
            "Make one from integers in smallest units with lab.amounts.to_units."
        )
    array = pa.array(amounts.array)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def as_series(array: pa.Array | pa.ChunkedArray, index: Any = None, name: Hashable = None) -> pd.Series:
    """Wrap an Arrow array as a pandas series of the same type, without a copy."""
    return pd.Series(pd.arrays.ArrowExtensionArray(array), index=index, name=name)
