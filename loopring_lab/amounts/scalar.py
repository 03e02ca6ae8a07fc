"""One exact amount: what a cell, a sum or a maximum of amounts is."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from loopring_lab.amounts.arithmetic import EXACT

# Binary operations of NumPy that Python's operators do, exactly where both operands are exact.
_OPERATORS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "floor_divide": "floordiv",
    "remainder": "mod",
}


def _as_remainder(left: Decimal, right: Decimal) -> Decimal:
    found = Fraction(left) % Fraction(right)
    # A whole number of units, so the division is exact.
    return EXACT.divide(Decimal(found.numerator), Decimal(found.denominator))


_EXACT_OPERATIONS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "add": EXACT.add,
    "sub": EXACT.subtract,
    "mul": EXACT.multiply,
    "mod": _as_remainder,
    "floordiv": lambda left, right: Decimal(Fraction(left) // Fraction(right)),
}


class Amount(Decimal):
    """An exact amount, which also computes with floats.

    With integers, Decimals and amounts, ``+``, ``-``, ``%`` and ``//`` are exact, as is the product with an
    integer. Every other operation returns a float. A float is compared by its shortest decimal.

    Examples
    --------
    >>> fee = lab.amounts.Amount("1.50")
    >>> fee + 1, fee * 1.5, fee == 1.5
    (Amount('2.5'), 2.25, True)
    """

    __slots__ = ()

    def __str__(self) -> str:
        return format(self.normalize(EXACT), "f")

    def __repr__(self) -> str:
        return f"Amount('{self}')"

    def __format__(self, specification: str) -> str:
        return super().__format__(specification) if specification else str(self)

    # Decimal rounds the results of these to 28 digits.
    def __neg__(self) -> Amount:
        return Amount(self.copy_negate())

    def __pos__(self) -> Amount:
        return self

    def __abs__(self) -> Amount:
        return Amount(self.copy_abs())

    def __round__(self, decimals: int | None = None) -> Any:
        if decimals is None:
            return int(self.to_integral_value())
        return Amount(self.quantize(Decimal(1).scaleb(-decimals), context=EXACT))

    __hash__ = Decimal.__hash__

    def __conform__(self, protocol: Any) -> str:
        # sqlite3 asks an object that it does not know.
        return str(self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = _OPERATORS.get(ufunc.__name__)
        if name and not any(isinstance(one, np.ndarray) for one in inputs):
            numbers = [one.item() if isinstance(one, np.generic) else one for one in inputs]
            return getattr(operator, name)(*numbers)
        numbers = [float(one) if isinstance(one, Decimal) else one for one in inputs]
        return getattr(ufunc, method)(*numbers, **options)


def _define_operator(name: str, is_reflected: bool) -> None:
    compute = getattr(operator, name)

    def method(self: Amount, other: Any) -> Any:
        if isinstance(other, np.generic):
            other = other.item()
        if not isinstance(other, (int, float, Decimal)):
            return NotImplemented
        pair = (other, self) if is_reflected else (self, other)
        exact_types = int if name == "mul" else (int, Decimal)
        if name in _EXACT_OPERATIONS and isinstance(other, exact_types):
            left, right = map(Decimal, pair)
            if right or name not in ("mod", "floordiv"):
                return Amount(_EXACT_OPERATIONS[name](left, right))
        with np.errstate(all="ignore"):
            return compute(*map(np.float64, pair))

    setattr(Amount, f"__{'r' if is_reflected else ''}{name}__", method)


def _define_comparison(name: str) -> None:
    compare = getattr(Decimal, name)

    def method(self: Amount, other: Any) -> Any:
        if isinstance(other, np.generic):
            other = other.item()
        if isinstance(other, float) and np.isfinite(other):
            other = Decimal(repr(other))
        return compare(self, other)

    setattr(Amount, name, method)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _define_operator(_name, is_reflected=False)
    _define_operator(_name, is_reflected=True)
for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    _define_comparison(_name)
