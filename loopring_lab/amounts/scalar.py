"""One exact amount: a cell, a sum or an extreme of amounts."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from loopring_lab.amounts.arithmetic import EXACT, OBJECTS


def _floor_divide(
    left: Decimal,
    right: Decimal,
) -> Decimal:
    return Decimal(Fraction(left) // Fraction(right))


def _remainder(
    left: Decimal,
    right: Decimal,
) -> Decimal:
    return EXACT.subtract(left, EXACT.multiply(right, _floor_divide(left, right)))


_OPERATIONS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "add": EXACT.add,
    "sub": EXACT.subtract,
    "mul": EXACT.multiply,
    "mod": _remainder,
    "floordiv": _floor_divide,
}


def power_of_ten(exponent: int) -> Decimal:
    """Return a power of ten, whatever context the caller has set."""
    return Decimal((0, (1,), exponent))


class Amount(Decimal):
    """An exact amount, which also computes with floats.

    With integers, Decimals and amounts, ``+``, ``-``, ``%`` and ``//`` are exact, as are products with integers.
    Every other operation returns a float, also one that begins with a number of NumPy's. Floats are compared by
    their shortest decimals.

    Examples
    --------
    >>> fee = lab.amounts.Amount("1.50")
    >>> fee + 1, fee * 1.5, fee == 1.5
    (Amount('2.5'), np.float64(2.25), True)
    """

    # An amount is as small as a Decimal, because a column may become a list of a million of these.
    __slots__ = ()

    def __str__(self) -> str:
        return format(self.normalize(EXACT), "f")

    def __repr__(self) -> str:
        return f"Amount('{self}')"

    def __format__(self, specification: str) -> str:  # type: ignore[override]
        if not specification:
            return str(self)
        with localcontext(EXACT):
            return super().__format__(specification)

    # Decimal would round the results of these to 28 digits, or as the caller's context says.
    def __neg__(self) -> Amount:
        return Amount(self.copy_negate())

    def __pos__(self) -> Amount:
        return self

    def __abs__(self) -> Amount:
        return Amount(self.copy_abs())

    def __round__(
        self,
        decimals: int | None = None,
    ) -> Any:
        if decimals is None:
            return int(self.to_integral_value(context=EXACT))
        return Amount(self.quantize(power_of_ten(-decimals), context=EXACT))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __conform__(
        self,
        protocol: Any,
    ) -> str:
        # sqlite3 asks for a value that it can store, and makes a number of it.
        return str(self)

    # NumPy would make arrays of objects of amounts, which few of its functions take; beside such an array it may.
    def __array_ufunc__(
        self,
        ufunc: Any,
        method: str,
        *inputs: Any,
        **options: Any,
    ) -> Any:
        return getattr(ufunc, method)(*_for_numpy(inputs), **options)

    def __array_function__(
        self, function: Any, types: Any, inputs: Any, options: Any
    ) -> Any:
        try:
            return function(*_for_numpy(inputs), **options)
        except TypeError:
            # Some, such as np.isclose, take no objects.
            return function(*_for_numpy(inputs, float), **options)


def _for_numpy(values: Any, convert: Any = None) -> list[Any]:
    """Return amounts as floats, or beside an array of objects, whose amounts stay exact, as such arrays of one."""
    if convert is None:
        has_objects = any(getattr(value, "dtype", None) == OBJECTS for value in values)
        convert = partial(np.array, dtype=object) if has_objects else float
    return [convert(value) if isinstance(value, Amount) else value for value in values]


def _python_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _define_operator(
    name: str,
    *,
    is_reflected: bool,
) -> None:
    compute = getattr(operator, name)
    exact_with = int if name == "mul" else (int, Decimal)

    def method(
        self: Amount,
        other: Any,
    ) -> Any:
        other = _python_number(other)
        if not isinstance(other, (int, float, Decimal)):
            return NotImplemented
        left, right = (other, self) if is_reflected else (self, other)
        is_defined = right != 0 or name not in ("mod", "floordiv")
        if name in _OPERATIONS and isinstance(other, exact_with) and is_defined:
            return Amount(_OPERATIONS[name](Decimal(left), Decimal(right)))
        # As for columns, division by zero is inf or nan, without a warning.
        with np.errstate(all="ignore"):
            return compute(np.float64(left), np.float64(right))

    prefix = "r" if is_reflected else ""
    setattr(Amount, f"__{prefix}{name}__", method)


def _define_comparison(name: str) -> None:
    compare = getattr(Decimal, name)

    def method(
        self: Amount,
        other: Any,
    ) -> Any:
        other = _python_number(other)
        # Decimal would compare the float's binary value: 0.1 would be more than a tenth.
        if isinstance(other, float):
            # As for columns, a missing value differs from everything, and has no order.
            if other != other:
                return name == "__ne__"
            other = Decimal(repr(other))
        return compare(self, other)

    setattr(Amount, name, method)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _define_operator(_name, is_reflected=False)
    _define_operator(_name, is_reflected=True)
for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    _define_comparison(_name)
