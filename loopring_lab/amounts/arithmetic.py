"""Exact arithmetic on amounts as Arrow decimals, under `AmountArray`.

An amount is a ``decimal128(38, 18)``: a whole number of units of 1e-18, of at most 38 digits. What a function
here returns is exact, or it raises an `AmountError`; only `to_floats` and `from_arrow` of floats are not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from decimal import ROUND_DOWN, ROUND_FLOOR, Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import (
    combined,
    first_failure,
    from_integers,
    reduce_scale,
    to_integers,
    with_scale,
)
from loopring_lab.bounded import parse_decimal
from loopring_lab.errors import AmountError

DECIMALS = 18
AMOUNT_TYPE = pa.decimal128(38, DECIMALS)
# The same values, with room for sums and products.
WIDE = pa.decimal256(38, DECIMALS)
UNIT = Decimal(1).scaleb(-DECIMALS)
LIMIT = Decimal(10) ** 20
FITS = "an amount has at most 20 digits before the point and 18 after it"

# More digits than any sum or product of two amounts has, so that nothing is rounded.
EXACT = Context(prec=160)
# 38 digits are what an amount holds; digits below its unit raise an error, those of a float are cut.
_FROM_EXACT = Context(prec=38, traps=[Inexact, InvalidOperation])
_FROM_FLOAT = Context(prec=38, traps=[InvalidOperation], rounding=ROUND_DOWN)
_TO_FLOOR = Context(prec=160, rounding=ROUND_FLOOR)
# The shortest text of a float has 17 digits at most, and its first one is no lower than those of an amount.
_FLOATS = pa.decimal256(76, 38)
MISSING_TEXTS = ("", "nan", "none", "<na>")


# ---- Into amounts and out of them


def to_decimal(value: Any) -> Decimal | None:
    """Return the amount that a number or its text stands for, a float by its shortest decimal; None if missing."""
    number = to_number(value)
    if number is None:
        return None
    is_float = isinstance(value, (float, np.floating))
    context = _FROM_FLOAT if is_float else _FROM_EXACT
    try:
        return number.quantize(UNIT, context=context)
    except Inexact:
        advice = "Round it first; amounts are never rounded silently"
    except InvalidOperation:
        advice = "Use floats for numbers of this size"
    raise AmountError(f"{str(value)[:60]} is not a valid amount: {FITS}. {advice}.")


def to_number(value: Any) -> Decimal | None:
    """Return the decimal of a number or a text, of any size; None if it is missing."""
    number: Decimal | None = None
    is_missing = value is None or value is pd.NA or value is pd.NaT
    if isinstance(value, str):
        number = parse_decimal(value.strip())
        is_missing = value.strip().lower() in MISSING_TEXTS
    elif isinstance(value, (float, np.floating)):
        number = Decimal(repr(float(value)))
    elif isinstance(value, (int, np.integer, np.bool_)):
        number = Decimal(int(value))
    elif isinstance(value, Decimal):
        number = value
    if number is None and not is_missing:
        raise AmountError(
            f"{str(value)[:60]!r} ({type(value).__name__}) is not a valid amount. "
            "Give an int, a float, a Decimal, or a text such as '1.5'."
        )
    return None if number is None or number.is_nan() else number


def from_values(values: Any) -> pa.Array:
    """Convert an array, or a list of numbers, texts and missing values."""
    kind = getattr(getattr(values, "dtype", None), "kind", "O")
    if hasattr(values, "__arrow_array__") or kind != "O":
        values = pa.array(values, from_pandas=True)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return from_arrow(values)
    try:
        return pa.array(values, AMOUNT_TYPE, from_pandas=True)
    except (pa.ArrowException, OverflowError):
        # Not only ints and Decimals, or one that does not fit, which the error names.
        return pa.array([to_decimal(value) for value in values], AMOUNT_TYPE)


def from_arrow(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert an Arrow array of decimals, integers, floats or texts."""
    array = combined(values)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    if pa.types.is_decimal(array.type):
        return checked(array)
    if pa.types.is_integer(array.type):
        return array.cast(AMOUNT_TYPE)
    if pa.types.is_floating(array.type):
        return _from_floats(array)
    return pa.array([to_decimal(value) for value in array.to_pylist()], AMOUNT_TYPE)


def _from_floats(array: pa.Array) -> pa.Array:
    """Convert floats by their shortest decimals, cut to 18 decimals."""
    floats = array.to_numpy(zero_copy_only=False).astype(float)
    sizes = np.abs(floats)
    too_large = floats[sizes >= float(LIMIT)]
    if len(too_large):
        # Raises, and names the first of them.
        to_decimal(too_large[0])
    floats = np.where(sizes < float(UNIT), 0.0, floats)
    # Arrow writes the shortest text of a float, and reads it exactly.
    exact = pa.array(floats, from_pandas=True).cast(pa.string()).cast(_FLOATS)
    return checked(reduce_scale(exact, pa.decimal256(76, DECIMALS), truncate=True))


def checked(array: pa.Array, what: str = "value") -> pa.Array:
    """Cast decimals to amounts, or raise an error that names the first that does not fit."""

    def convert(part: pa.Array) -> pa.Array:
        return reduce_scale(part, AMOUNT_TYPE)

    try:
        return convert(array)
    except pa.ArrowInvalid:
        position, value = first_failure(array, convert)
    raise overflow(f"the {what} {value} at position {position}")


def overflow(what: str) -> AmountError:
    return AmountError(
        f"{what} is not a valid amount: {FITS}. Convert with .astype(float) to compute with numbers of this size."
    )


def to_floats(amounts: pa.Array) -> np.ndarray:
    """Return floats, each within one unit of its last place; a missing amount is nan."""
    units = with_scale(amounts, pa.decimal128(38, 0)).cast(pa.float64())
    return np.divide(units.to_numpy(zero_copy_only=False), 1e18)


def to_texts(amounts: pa.Array) -> pa.Array:
    """Write amounts without trailing zeros, and never with an exponent."""
    size = pc.abs(amounts)
    whole = pc.floor(size)
    # Arrow writes a decimal below 1e-6 with an exponent, so a one is put before the fraction and cut off.
    beside_one = add(subtract(size, whole), pa.scalar(Decimal(1), AMOUNT_TYPE))
    fraction = pc.utf8_slice_codeunits(beside_one.cast(pa.string()), 1)
    sign = pc.if_else(pc.less(amounts, 0), "-", "")
    digits = whole.cast(pa.decimal128(20, 0)).cast(pa.string())
    texts = pc.binary_join_element_wise(sign, digits, pc.utf8_rtrim(fraction, "0"), "")
    return pc.utf8_rtrim(texts, ".")


# ---- Sums, products, quotients


def add(left: Any, right: Any) -> pa.Array:
    return _fitting(pc.add, left, right)


def subtract(left: Any, right: Any) -> pa.Array:
    return _fitting(pc.subtract, left, right)


def _fitting(compute: Callable[..., pa.Array], left: Any, right: Any) -> pa.Array:
    # Two amounts are below 10**38 units each, so their sum is below 2 * 10**38. As integers of 128 bits the sum
    # of two either is right or, from 2**127 on, wraps to a number beyond -(2**128 - 2 * 10**38): in both cases
    # a sum of more than 38 digits has more than 38 digits, and Arrow's validation finds it. This costs a tenth
    # of adding at 256 bits. A precision of 37 makes Arrow's type of the sum the type of amounts.
    found = compute(_relabelled(left, 37), _relabelled(right, 37))
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        raise overflow("a sum or a difference of these amounts") from None
    return found


def multiply_by_integers(amounts: pa.Array, integers: pa.Array | int) -> pa.Array:
    """Multiply amounts by one integer, or by as many as there are amounts."""
    if isinstance(integers, int):
        integers = pa.array([integers], pa.decimal256(76, 0))
    factor = largest(integers)
    if largest(amounts) * factor < LIMIT and factor < LIMIT:
        # Arrow's type of a product has as many digits as both types and one more.
        left = _relabelled(amounts, 17)
        right = integers.cast(pa.decimal128(20, 0))
    else:
        left = amounts.cast(WIDE)
        right = reduce_scale(integers, pa.decimal256(37, 0))
    if len(right) == 1:
        right = right[0]
    return checked(pc.multiply(left, right), "product")


def multiply(left: pa.Array, right: pa.Array) -> pa.Array:
    """Multiply amounts exactly and cut the products to 18 decimals."""
    precise = pc.multiply(left.cast(WIDE), with_scale(right.cast(WIDE), pa.decimal256(37, DECIMALS)))
    return checked(reduce_scale(precise, pa.decimal256(76, DECIMALS), truncate=True), "product")


def floor_divide(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return ``left // right``; missing where the divisor is zero."""
    return _divide(operator.floordiv, left, right, 0)


def remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return ``left % right``, of the divisor's sign; missing where the divisor is zero."""
    return _divide(operator.mod, left, right, DECIMALS)


def _divide(compute: Callable[[int, int], int], left: pa.Array, right: pa.Array, scale: int) -> pa.Array:
    # Python's integers: Arrow has no remainder, and its quotients are cut toward zero.
    found: list[int | None] = []
    for dividend, divisor in zip(_units(left), _units(right), strict=True):
        is_defined = dividend is not None and divisor
        found.append(compute(dividend, divisor) if is_defined else None)
    return checked(from_integers(found, pa.decimal256(76, scale)), "quotient")


def _units(amounts: pa.Array) -> list[Any]:
    return to_integers(amounts.cast(WIDE))


EXACT_OPERATIONS = {"add": add, "sub": subtract, "mod": remainder, "floordiv": floor_divide}


def total(amounts: pa.Array) -> Decimal:
    """Return the sum of amounts that are not missing."""
    found = pc.sum(roomy(amounts)).as_py() or Decimal(0)
    if abs(found) >= LIMIT:
        raise overflow(f"the sum {found}")
    return found


def roomy(amounts: pa.Array) -> pa.Array:
    """Return the amounts with enough bits for the sum of all: Arrow's sums wrap around silently."""
    if largest(amounts) * len(amounts) < LIMIT:
        return amounts
    return amounts.cast(WIDE)


def largest(values: Any) -> Decimal:
    """Return the size of the largest of some decimals."""
    found = pc.min_max(values).as_py()
    return max(abs(found["min"] or Decimal(0)), abs(found["max"] or Decimal(0)))


def words(amounts: pa.Array) -> list[np.ndarray]:
    """Split amounts into four words of 32 bits, the lowest first, each an array of 64 bits: it can be added up."""
    filled = pc.fill_null(amounts, 0)
    pairs = np.frombuffer(filled.buffers()[1], "<u4", offset=filled.offset * 16)
    lowest, second, third, highest = pairs.reshape(-1, 4)[: len(filled)].T
    # The highest word has the sign.
    return [lowest.astype("i8"), second.astype("i8"), third.astype("i8"), highest.view("i4").astype("i8")]


def from_words(sums: Iterable[np.ndarray], is_missing: np.ndarray) -> pa.Array:
    """Put sums of words together again."""
    # Eight words make a decimal of 256 bits, which holds any carry; the type of amounts is checked afterwards.
    found = np.zeros((len(is_missing), 8), "<u4")
    carry = np.zeros(len(is_missing), "i8")
    for position, sum_of_words in enumerate(sums):
        carry += sum_of_words
        found[:, position] = carry & 0xFFFFFFFF
        carry >>= 32
    for position in range(4, 8):
        found[:, position] = carry & 0xFFFFFFFF
        carry >>= 32
    wide = pa.Array.from_buffers(pa.decimal256(76, DECIMALS), len(found), [None, pa.py_buffer(found)])
    return pc.if_else(pa.array(is_missing), pa.scalar(None, AMOUNT_TYPE), checked(wide, "sum"))


def _relabelled(amounts: Any, precision: int) -> Any:
    """Give the type of amounts another precision, which Arrow derives the types of its results from."""
    to = pa.decimal128(precision, DECIMALS)
    if isinstance(amounts, pa.Scalar):
        return with_scale(pa.array([amounts.as_py()], AMOUNT_TYPE), to)[0]
    return with_scale(amounts, to)


# ---- Comparisons


def compare(amounts: pa.Array, number: Decimal | None, name: str) -> np.ndarray:
    """Compare amounts with a number of any size and scale."""
    nothing = np.full(len(amounts), name == "not_equal")
    if number is None:
        return nothing
    bounded = max(min(number, 2 * LIMIT), -2 * LIMIT)
    below = bounded.quantize(UNIT, context=_TO_FLOOR)
    # A number between two amounts is compared by the amount below it.
    if below != number:
        if "equal" in (name, name.removeprefix("not_")):
            return nothing
        name = {"less": "less_equal", "greater_equal": "greater"}.get(name, name)
    return compare_arrays(amounts, pa.scalar(below, pa.decimal256(76, DECIMALS)), name)


def compare_arrays(amounts: pa.Array, others: Any, name: str) -> np.ndarray:
    """Compare amounts with as many other decimals; what is missing differs from everything."""
    found = getattr(pc, name)(amounts, others)
    return found.fill_null(name == "not_equal").to_numpy(zero_copy_only=False)


def compare_floats(amounts: pa.Array, floats: np.ndarray, name: str) -> np.ndarray:
    """Compare amounts with as many floats, each by its shortest decimal."""
    ours = to_floats(amounts)
    compute = getattr(np, name)
    found: np.ndarray = compute(ours, floats)
    # Where a float is as near as the error of ours, decimals decide. None of these floats needs more than 38.
    is_near = (np.abs(ours - floats) <= 4 * np.spacing(np.abs(ours))) & (ours != 0)
    if is_near.any():
        decimals = pa.array(floats[is_near]).cast(pa.string()).cast(_FLOATS)
        near = amounts.filter(pa.array(is_near))
        found[is_near] = compare_arrays(near, decimals, name)
    return found
