"""Exact changes of scale on 256-bit decimals, under the functions of `amounts`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.bounded import parse_decimal
from loopring_lab.errors import AmountError

MAX_DECIMALS = 30
DIGITS_AT_ONCE = 9
WHOLE = pa.decimal256(76, 0)
UNIT = 10**18
"""One unit in the integers of trades columns, which have 18 decimals."""
WORDS = np.dtype([("0", "<u8"), ("1", "<u8"), ("2", "<u8"), ("3", "<i8")])  # of a 256-bit integer
WORD_MASK = (1 << 64) - 1
LEAVE_OUT = "correct the value, or leave it out"

# 1e-18 units in a smallest unit of tokens with 18, 17 ... 0 decimals.
_POWERS = pa.array([10**places for places in range(19)], pa.decimal256(19, 0))
_SHORT = pa.decimal256(38, 0)
"""Smallest units that 256 bits hold also when they are multiplied by a power of ten."""

TokenName = str | Callable[[int], str]
_EXACT = Context(prec=120)


def scale(numbers: pa.Array, decimals: np.ndarray, to: pa.DataType, token: TokenName) -> pa.Array:
    """Scale smallest units to units of the token."""
    check_decimals(decimals[decimals >= 0], token)

    def to_units(part: pa.Array, places: int) -> pa.Array:
        return reduce_scale(with_scale(part, pa.decimal256(76, places)), to)

    wider = "give a wider dtype, or leave the value out" if to.precision < WHOLE.precision else LEAVE_OUT
    return convert_by_decimals(numbers, decimals, to_units, token, f"does not fit {range_of(to)}", wider)


def scale_all(numbers: pa.Array, decimals: np.ndarray, to: pa.DataType) -> pa.Array | None:
    """Scale smallest units of all tokens in one multiplication, null where decimals are negative.

    None if a token has more than 18 decimals, or an amount does not fit: `scale_what_fits` sorts these out.
    """
    places = to.scale - decimals
    if places.min(initial=0) < 0:
        return None
    try:
        integers = numbers.cast(_SHORT)
    except pa.ArrowInvalid:
        return None
    scaled = pc.multiply(integers, _POWERS.take(pa.array(places, mask=decimals < 0)))
    beyond = 10**to.precision
    if any(end is not None and end.copy_abs() >= beyond for end in pc.min_max(scaled).as_py().values()):
        return None
    return with_scale(scaled, to)


def fit(numbers: pa.Array, decimals: np.ndarray, to: pa.DataType) -> np.ndarray:
    """Return a mask of the smallest units that `scale` can hold; those of unknown decimals count as held."""
    one, beyond = 10**to.scale, 10**to.precision

    def fits(number: int | None, places: int) -> bool:
        scaled, rest = divmod((number or 0) * one, 10 ** max(places, 0))
        return places < 0 or (not rest and abs(scaled) < beyond)

    return np.array(list(map(fits, to_integers(numbers), decimals.tolist())), bool)


def scale_what_fits(
    numbers: pa.Array, decimals: np.ndarray, to: pa.DataType, token: TokenName
) -> tuple[pa.Array, np.ndarray]:
    """Scale smallest units; those that do not fit become null, and their positions are returned too."""
    try:
        return scale(numbers, decimals, to, token), np.empty(0, np.int64)
    except AmountError:
        fits = fit(numbers, decimals, to)
    return scale(pc.if_else(pa.array(fits), numbers, None), decimals, to, token), np.flatnonzero(~fits)


def convert_by_decimals(
    array: pa.Array,
    decimals: np.ndarray,
    convert: Callable[[pa.Array, int], pa.Array],
    token: TokenName,
    problem: str,
    advice: str = LEAVE_OUT,
) -> pa.Array:
    """Apply `convert` to the values of each number of decimals; null where decimals are negative."""
    parts = []
    for places in np.flatnonzero(np.bincount(decimals[decimals >= 0])).tolist():
        rows = decimals == places
        part = array if rows.all() else pc.if_else(pa.array(rows), array, pa.scalar(None, array.type))
        try:
            parts.append(convert(part, places))
        except pa.ArrowInvalid:
            position, value = first_failure(part, lambda chunk, places=places: convert(chunk, places))  # type: ignore[misc]
            raise AmountError(
                f"{token_at(token, position)}, value {position}: {value:f} with {places} decimals "
                f"{problem}. Amounts are never rounded: {advice}."
            ) from None
    if not parts:
        return convert(pa.nulls(len(array), array.type), 0)
    return pc.coalesce(*parts) if len(parts) > 1 else parts[0]


def reduce_scale(array: pa.Array, to: pa.DataType, *, truncate: bool = False) -> pa.Array:
    """Cast to a decimal type, nine digits of scale at a time: pyarrow gets more than that wrong."""
    for places in range(array.type.scale - DIGITS_AT_ONCE, to.scale, -DIGITS_AT_ONCE):
        array = array.cast(pa.decimal256(76, places), safe=not truncate)
    return array.cast(to, safe=not truncate)


def first_failure(array: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> tuple[int, Decimal]:
    """Find the first value that `convert` fails on, by bisection."""
    start, stop = 0, len(array)
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
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def with_scale(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Reinterpret the same 256-bit integers at another scale."""
    return pa.Array.from_buffers(to, len(array), array.buffers(), offset=array.offset)


def to_integers(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Read the unscaled integers of 256-bit decimals."""
    array = combined(array)
    if not len(array):
        return np.empty(0, object)
    words = np.frombuffer(array.buffers()[1], WORDS)[array.offset : array.offset + len(array)]
    numbers = words["0"].astype(object)
    for place in (1, 2, 3):
        if words[str(place)].any():
            numbers += words[str(place)].astype(object) << (64 * place)
    if array.null_count:
        numbers[array.is_null().to_numpy(zero_copy_only=False)] = None
    return numbers


def from_integers(numbers: Iterable[int | None], to: pa.DataType) -> pa.Array:
    """Build 256-bit decimals from unscaled integers, the inverse of `to_integers`."""
    objects = np.array(list(numbers), object)
    missing = is_none(objects)
    unscaled = np.where(missing, 0, objects)
    if len(unscaled) and max(unscaled.max(), -unscaled.min()) >= 10**to.precision:
        raise AmountError(f"an amount does not fit {range_of(to)}. Leave the amount out.")
    words = np.empty((len(unscaled), 4), "<u8")
    for place in range(4):
        words[:, place] = ((unscaled >> (64 * place)) & WORD_MASK).astype(np.uint64)
    array = pa.Array.from_buffers(to, len(unscaled), [None, pa.py_buffer(words)])
    return pc.if_else(pa.array(missing), pa.scalar(None, to), array) if missing.any() else array


def is_none(numbers: np.ndarray) -> np.ndarray:
    """Return a mask of the None values in an array of objects."""
    return np.array([number is None for number in numbers], bool)


def decimals_of_each(decimals: int | Sequence[int] | np.ndarray, count: int, token: TokenName) -> np.ndarray:
    """Repeat a single number of decimals for each value, and check the range."""
    each = np.broadcast_to(np.asarray(decimals, dtype=np.int64), count)
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
    """Parse ints, strings, nulls or exact decimals as ``decimal256(76, 0)``, or raise an `AmountError`."""
    if isinstance(values, pd.Series) and is_exact(values):
        values = as_array(values).to_pylist()
    texts = [_integer_text(value, position, token) for position, value in enumerate(values)]
    return pa.array(texts, pa.string()).cast(WHOLE)


def _integer_text(value: Any, position: int, token: TokenName) -> str | None:
    if pd.isna(value):
        return None
    number = None if isinstance(value, (bool, float)) else parse_decimal(str(value))
    if number is None or number != number.to_integral_value(context=_EXACT):
        raise AmountError(
            f"{token_at(token, position)}, value {position}: {value!r} is not a whole number of smallest "
            "units. Give an int, or an int as a string; floats are not exact and are not accepted."
        )
    if number.adjusted() >= WHOLE.precision:
        raise AmountError(
            f"{token_at(token, position)}, value {position}: {str(value)[:20]}… has more than "
            f"{WHOLE.precision} digits, the most a 256-bit decimal can hold. Check the source of the value."
        )
    return f"{number:.0f}"


def is_exact(column: pd.Series) -> bool:
    """Return whether a series holds Arrow decimals."""
    return isinstance(column.dtype, pd.ArrowDtype) and pa.types.is_decimal(column.dtype.pyarrow_dtype)


def as_array(amounts: pd.Series) -> pa.Array:
    """Return the Arrow array of a series of exact amounts, or raise an `AmountError`."""
    if not is_exact(amounts):
        label = "This series" if amounts.name is None else repr(amounts.name)
        raise AmountError(
            f"{label} is {amounts.dtype}, not an exact amount. "
            "Convert integers in smallest units with lab.amounts.to_units."
        )
    return combined(pa.array(amounts.array))


def as_series(array: pa.Array | pa.ChunkedArray, index: Any = None, name: Hashable = None) -> pd.Series:
    """Wrap an Arrow array as a pandas series of the same type, without a copy."""
    return pd.Series(pd.arrays.ArrowExtensionArray(array), index=index, name=name)
