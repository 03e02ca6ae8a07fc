"""Exact arithmetic on amounts as Arrow decimals, under `AmountArray`.

An amount is a ``decimal128(38, 18)``: a whole number of units of 1e-18, of at most 38 digits. What a function
here returns is exact, or it raises an `AmountError`; only floats, into amounts or out of them, are not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from decimal import (
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
)
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import (
    combined,
    first_failure,
    from_integers,
    rescale,
    to_integers,
    with_scale,
)
from loopring_lab.bounded import parse_decimal
from loopring_lab.errors import AmountError

DECIMALS = 18
AMOUNT_TYPE = pa.decimal128(38, DECIMALS)
# The same values, with room for sums and products.
WIDE = pa.decimal256(38, DECIMALS)
WIDEST = pa.decimal256(76, DECIMALS)
UNIT = Decimal("1e-18")
LIMIT = Decimal("1e20")
_BEYOND = Decimal("2e20")
# The type of arrays of values that Python made: numbers, texts and missing values may stand side by side.
OBJECTS = np.dtype(object)
FITS = "an amount has at most 20 digits before the point and 18 after it"

# More digits than any sum or product of two amounts has, so that nothing is rounded. The context of whoever calls
# has a say in Decimal's operators, in `abs` and `round`: Decimals are computed with by these contexts alone.
EXACT = Context(prec=160, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation])
_FLOOR = Context(prec=160, rounding=ROUND_FLOOR, traps=[InvalidOperation])
# 38 digits are what an amount holds. Digits below its unit raise an error; those of a float are cut.
_STORED = Context(prec=38, traps=[Inexact, InvalidOperation])
_STORED_FLOAT = Context(prec=38, rounding=ROUND_DOWN, traps=[InvalidOperation])
# This type holds the shortest decimal of any float from one unit on: 17 digits, the first no lower than the 18th place.
_FLOATS = pa.decimal256(76, 38)


# ---- Into amounts, and out of them


def to_number(value: Any) -> Decimal | None:
    """Return the decimal of a number or a text, the shortest one of a float; None if it is missing."""
    number = None
    if isinstance(value, str):
        number = parse_decimal(value.strip())
    elif isinstance(value, (bool, np.bool_)):
        number = Decimal(int(value))
    elif isinstance(value, (int, float, np.number, Decimal)):
        number = Decimal(str(value))
    elif value is None or value is pd.NA or value is pd.NaT:
        return None
    if number is None:
        raise AmountError(
            f"{str(value)[:60]!r} ({type(value).__name__}) is not a valid amount. "
            "Give an int, a float, a Decimal, or a text such as '1.5'."
        )
    return None if number.is_nan() else number


def to_decimal(value: Any) -> Decimal | None:
    """Return the amount that a number or a text stands for; None if it is missing."""
    number = to_number(value)
    if number is None:
        return None
    is_float = isinstance(value, (float, np.floating))
    try:
        return number.quantize(UNIT, context=_STORED_FLOAT if is_float else _STORED)
    except Inexact:
        advice = "Round it first: amounts are never rounded silently"
    except InvalidOperation:
        advice = "Use floats for numbers of this size"
    raise AmountError(f"{str(value)[:60]} is not a valid amount: {FITS}. {advice}.")


def from_values(values: Any) -> pa.Array:
    """Convert an array, or a list of numbers, texts and missing values."""
    # An array keeps its own type at first, as pyarrow's casts of decimals are wrong for some values.
    if getattr(values, "dtype", OBJECTS) != OBJECTS:
        values = pa.array(values, from_pandas=True)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return from_arrow(values)
    try:
        return pa.array(values, AMOUNT_TYPE, from_pandas=True)
    except (pa.ArrowException, OverflowError):
        # These are floats, texts, or a number that does not fit, which the error names.
        return pa.array([to_decimal(value) for value in values], AMOUNT_TYPE)


def from_arrow(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert an Arrow array of decimals, integers, floats or texts."""
    array = combined(values)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_integer(array.type):
        return array.cast(AMOUNT_TYPE)
    if pa.types.is_decimal(array.type):
        return checked(array)
    if pa.types.is_floating(array.type):
        # If a float is too small or too large for these decimals, all are converted one by one below.
        with suppress(pa.ArrowInvalid):
            return checked(rescale(_shortest(array), WIDEST, truncate=True))
    return pa.array([to_decimal(value) for value in array.to_pylist()], AMOUNT_TYPE)


def _shortest(floats: pa.Array) -> pa.Array:
    """Return the shortest decimals of floats; Arrow writes those, and reads them exactly."""
    return floats.cast(pa.string()).cast(_FLOATS)


def checked(array: pa.Array) -> pa.Array:
    """Cast decimals to amounts, or raise an error that names the first that does not fit."""
    convert = partial(rescale, to=AMOUNT_TYPE)
    try:
        return convert(array)
    except pa.ArrowInvalid:
        position, value = first_failure(array, convert)
    raise overflow(f"{value} at position {position}")


def overflow(what: str) -> AmountError:
    return AmountError(
        f"{what} is not a valid amount: {FITS}. Use .astype(float) to compute with numbers of this size."
    )


def to_floats(amounts: pa.Array) -> Any:
    """Return floats, each within one unit of its last place; a missing amount is nan."""
    units = with_scale(amounts, pa.decimal128(38, 0)).cast(pa.float64())
    return units.to_numpy(zero_copy_only=False) / 1e18


def to_texts(amounts: pa.Array) -> pa.Array:
    """Write amounts without trailing zeros, and never with an exponent."""
    # Units have neither point nor exponent; their last 18 digits stand after the point.
    units = with_scale(pc.abs(amounts), pa.decimal128(38, 0)).cast(pa.string())
    padded = pc.utf8_lpad(units, DECIMALS + 1, "0")
    pointed = pc.replace_substring_regex(
        padded,
        r"(\d{18})$",
        r".\1",
    )
    sizes = pc.utf8_rtrim(pc.utf8_rtrim(pointed, "0"), ".")
    signs = pc.if_else(pc.less(amounts, 0), "-", "")
    return pc.binary_join_element_wise(
        signs,
        sizes,
        "",
    )


# ---- Sums, products, quotients


def _fitting(
    compute: Callable[..., pa.Array], left: pa.Array, right: pa.Array
) -> pa.Array:
    # Two amounts are below 10**38 units each, so their sum is below 2 * 10**38. An integer of 128 bits holds it,
    # or it wraps around once, to a number beyond 2**128 - 2 * 10**38: in both cases a sum that has more than 38
    # digits still has more, and Arrow's validation finds it. This takes a tenth of the time of 256 bits.
    # Arrow gives a sum one digit more than its operands; with 37 it gets the type of amounts.
    short = pa.decimal128(37, DECIMALS)
    found = compute(with_scale(left, short), with_scale(right, short))
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        raise overflow("a sum or a difference of these amounts") from None
    return found


def multiply_by_integers(
    amounts: pa.Array,
    integers: pa.Array,
) -> pa.Array:
    """Multiply amounts by integers: one, or as many as there are amounts."""
    whole = integers.cast(pa.decimal128(20, 0))
    if EXACT.multiply(largest(amounts), largest(whole)) < LIMIT:
        # Arrow gives a product as many digits as both operands and one more.
        short = with_scale(amounts, pa.decimal128(17, DECIMALS))
    else:
        short = amounts.cast(WIDE)
    factors = whole[0] if len(whole) == 1 else whole
    return checked(pc.multiply(short, factors))


def multiply(
    left: pa.Array,
    right: pa.Array,
) -> pa.Array:
    """Multiply amounts exactly and cut the products to 18 decimals."""
    product = wide_product(left, right)
    return checked(rescale(product, WIDEST, truncate=True))


def wide_product(
    left: pa.Array,
    right: pa.Array,
) -> pa.Array:
    """Multiply amounts at 256 bits, which hold all 36 decimals of the products."""
    # Arrow gives a product as many digits as both operands and one more, and has 76 at most.
    short = with_scale(right.cast(WIDEST), pa.decimal256(37, DECIMALS))
    return pc.multiply(left.cast(WIDE), short)


def _divide(
    compute: Callable[[Any, Any], Any], scale: int, left: pa.Array, right: pa.Array
) -> pa.Array:
    """Compute with units as Python's integers: Arrow has no remainder, and cuts its quotients toward zero."""
    found = []
    for dividend, divisor in zip(_units(left), _units(right), strict=True):
        is_defined = divisor and dividend is not None
        found.append(compute(dividend, divisor) if is_defined else None)
    return checked(from_integers(found, pa.decimal256(76, scale)))


def rounded(amounts: pa.Array, places: int) -> pa.Array:
    """Round amounts to decimals, halves to the even digit: as Python's integers, as Arrow rounds some wrong."""
    # At 39 digits and more, every amount is 0.
    digits = min(DECIMALS - places, 39)
    found = [
        None if number is None else round(number, -digits) for number in _units(amounts)
    ]
    return checked(from_integers(found, WIDEST))


def _units(amounts: pa.Array) -> list[int | None]:
    return to_integers(amounts.cast(WIDE))


# Operations by the names of Python's operators. Quotients and remainders of zero are missing.
OPERATIONS = {
    "add": partial(_fitting, pc.add),
    "sub": partial(_fitting, pc.subtract),
    "mod": partial(_divide, operator.mod, DECIMALS),
    "floordiv": partial(_divide, operator.floordiv, 0),
}


def total(amounts: pa.Array) -> Any:
    """Return the sum of the amounts that are not missing."""
    return to_decimal(pc.sum(roomy(amounts)).as_py() or 0)


def roomy(amounts: pa.Array) -> pa.Array:
    """Return amounts that Arrow can add up: its sums of 128 bits wrap around silently."""
    bound = EXACT.multiply(largest(amounts), len(amounts))
    return amounts if bound < LIMIT else amounts.cast(WIDE)


def largest(values: pa.Array) -> Decimal:
    """Return the size of the largest of some decimals."""
    ends = pc.min_max(values).as_py().values()
    return max((end or Decimal(0)).copy_abs() for end in ends)


def _halves(amounts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Split amounts into their low and their high 64 bits; the high ones have the sign. A missing amount is 0."""
    filled = pc.fill_null(amounts, 0)
    bits = np.frombuffer(
        filled.buffers()[1], "<u8", 2 * len(filled), 16 * filled.offset
    )
    low, high = bits.reshape(-1, 2).T.copy()
    return low, high.view("<i8")


def running_sums(
    amounts: pa.Array,
    add: Callable[[np.ndarray], np.ndarray],
    is_missing: np.ndarray,
) -> pa.Array:
    """Return running sums, by those of integers of 64 bits, which `add` makes and lets wrap around."""
    low, high = _halves(amounts)
    low_sums = add(low)
    # A sum that is less than what was added last has wrapped around there.
    high += low_sums < low
    bits = np.stack([low_sums, add(high).view("u8")], axis=1).astype("<u8", copy=False)
    sums = pa.Array.from_buffers(AMOUNT_TYPE, len(bits), [None, pa.py_buffer(bits)])
    # The first sum with more than 38 digits is below 2 * 10**38. As in `_fitting`, it is found, even if it wrapped.
    try:
        sums.validate(full=True)
    except pa.ArrowInvalid:
        raise overflow("a running sum of these amounts") from None
    if not is_missing.any():
        return sums
    return pc.if_else(pa.array(is_missing), pa.scalar(None, AMOUNT_TYPE), sums)


# ---- Comparisons


def compare(
    amounts: pa.Array,
    number: Decimal | None,
    name: str,
) -> Any:
    """Compare amounts with a number of any size and scale."""
    never = np.full(len(amounts), name == "not_equal")
    if number is None:
        return never
    within_reach = max(min(number, _BEYOND), _BEYOND.copy_negate())
    below = within_reach.quantize(UNIT, context=_FLOOR)
    # A number that lies between two amounts, or beyond all of them, is compared by an amount below it.
    if below != number:
        if name in ("equal", "not_equal"):
            return never
        name = {"less": "less_equal", "greater_equal": "greater"}.get(name, name)
    # Arrow compares amounts with their own type ten times as fast.
    to = AMOUNT_TYPE if below.copy_abs() < LIMIT else WIDEST
    return compare_arrays(amounts, pa.scalar(below, to), name)


def compare_arrays(
    amounts: pa.Array,
    others: Any,
    name: str,
) -> Any:
    """Compare amounts with other decimals; what is missing differs from everything."""
    found = getattr(pc, name)(amounts, others).fill_null(name == "not_equal")
    return found.to_numpy(zero_copy_only=False)


def compare_floats(
    amounts: pa.Array,
    floats: np.ndarray,
    name: str,
) -> Any:
    """Compare amounts with as many floats, each by its shortest decimal."""
    ours = to_floats(amounts)
    found = getattr(np, name)(ours, floats)
    # Where a float is nearer than ours are right, decimals decide.
    is_near = (np.abs(ours - floats) <= 4 * np.spacing(np.abs(ours))) & (ours != 0)
    if is_near.any():
        near = amounts.filter(pa.array(is_near))
        found[is_near] = compare_arrays(
            near, _shortest(pa.array(floats[is_near])), name
        )
    return found
