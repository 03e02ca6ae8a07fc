"""Exact token amounts in pandas: dtypes, smallest units to units and back, totals, floats.

A token amount travels as an integer of smallest units. In a frame it stands in units of the token, as a
256-bit decimal: the same integer with a scale. Nothing here multiplies by a power of ten and nothing rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.display import show
from loopring_lab.amounts.scaling import (
    WHOLE,
    Name,
    as_array,
    as_series,
    by_decimals,
    check_decimals,
    first_failure,
    is_exact,
    range_of,
    rescaled,
    scale,
    whole_numbers,
)
from loopring_lab.errors import AmountError

__all__ = ["AMOUNT", "LIMIT", "fit", "show", "to_float", "to_smallest", "to_units", "total"]

AMOUNT = pd.ArrowDtype(pa.decimal256(37, 18))
"""Amounts, prices and fees of trades: 19 digits before the point, 18 after."""
LIMIT = pd.ArrowDtype(pa.decimal256(76, 18))
"""Limits of tokens, which reach 10**39 smallest units: 58 digits before the point, 18 after."""

Frame = TypeVar("Frame", pd.Series, pd.DataFrame)


def to_units(
    values: Iterable[Any],
    decimals: int | Sequence[int] | np.ndarray,
    *,
    token: Name = "this token",
    dtype: pd.ArrowDtype = AMOUNT,
) -> pd.Series:
    """Scale integers in smallest units to units of the token, exactly.

    Parameters
    ----------
    values : iterable of int, str or None, shape (n,)
        Whole numbers of smallest units, as the relayer sends them. None stays null.
    decimals : int or sequence of int, shape (n,)
        Decimals of the token, 0 to 30; one for all values or one for each.
    token : str or callable
        Name for error messages; a callable is given the position of the value.
    dtype : pandas.ArrowDtype
        A decimal dtype of this module, or a wider one of your own.

    Returns
    -------
    pandas.Series, shape (n,)
        Units of the token, of `dtype`; the index of `values` where it has one.

    Raises
    ------
    AmountError
        A value is not a whole number, or does not fit `dtype` without losing digits.

    Examples
    --------
    >>> to_units(["1500000", "1"], 6).astype(str).tolist()
    ['1.500000000000000000', '0.000001000000000000']
    """
    index = values.index if isinstance(values, pd.Series) else None
    numbers = whole_numbers(values, token)
    each = np.broadcast_to(np.asarray(decimals, dtype=np.int64), len(numbers))
    check_decimals(each, token)
    return as_series(scale(numbers, each, dtype.pyarrow_dtype, token), index)


def to_smallest(
    amounts: pd.Series, decimals: int | Sequence[int] | np.ndarray, *, token: Name = "this token"
) -> pd.Series:
    """Scale units of a token back to integers in smallest units; the inverse of `to_units`.

    Parameters
    ----------
    amounts : pandas.Series, shape (n,)
        Amounts in units, of a decimal dtype.
    decimals : int or sequence of int, shape (n,)
        Decimals of the token, 0 to 30; one for all amounts or one for each.
    token : str or callable
        Name for error messages; a callable is given the position of the amount.

    Returns
    -------
    pandas.Series, shape (n,)
        Smallest units, ``decimal256(76, 0)``.

    Raises
    ------
    AmountError
        An amount has digits below the token's smallest unit.

    Examples
    --------
    >>> to_smallest(to_units(["1500000"], 6), 6).astype(str).tolist()
    ['1500000']
    """
    array = as_array(amounts)
    each = np.broadcast_to(np.asarray(decimals, dtype=np.int64), len(array))
    check_decimals(each, token)

    def back(part: pa.Array, places: int) -> pa.Array:
        return rescaled(part.cast(pa.decimal256(76, places)), WHOLE)

    def why(places: int) -> str:
        return f"has digits below its smallest unit, 1e-{places}"

    return as_series(by_decimals(array, each, back, token, why), amounts.index)


def total(amounts: pd.Series, by: Any = None) -> Any:
    """Sum amounts exactly, refusing to skip unknown ones.

    Parameters
    ----------
    amounts : pandas.Series, shape (n,)
        Amounts in units, of a decimal dtype.
    by : optional
        What `pandas.Series.groupby` takes: one sum for each group.

    Returns
    -------
    decimal.Decimal or pandas.Series
        The sum in units; with `by` a series of `AMOUNT`, one row a group.

    Raises
    ------
    AmountError
        An amount is null, so that the sum would be too small, or a sum does not fit.

    Examples
    --------
    >>> total(to_units(["1500000", "2500000"], 6))
    Decimal('4.000000000000000000')
    """
    if not isinstance(amounts, pd.Series):
        raise AmountError(f"amounts: expected a series, got {type(amounts).__name__}. Give trades['fee'].")
    missing = int(amounts.isna().sum())
    if missing:
        raise AmountError(
            f"{missing} of {len(amounts)} amounts in {amounts.name!r} are null, so their total is not known. "
            "Look at them with lab.anomalies(trades), or leave them out yourself with .dropna()."
        )
    if by is None:
        found = pc.sum(as_array(amounts)).as_py()
        return Decimal(0) if found is None else found
    return fit(amounts.groupby(by, observed=True).sum())


def fit(amounts: pd.Series, dtype: pd.ArrowDtype = AMOUNT) -> pd.Series:
    """Cast a decimal series to another decimal dtype, checked.

    Parameters
    ----------
    amounts : pandas.Series, shape (n,)
        Any decimal dtype, such as the ``decimal256(76, 18)`` a group-by sum gives.
    dtype : pandas.ArrowDtype
        The decimal dtype wanted.

    Returns
    -------
    pandas.Series, shape (n,)
        The same numbers.

    Raises
    ------
    AmountError
        A number does not fit without losing digits.

    Examples
    --------
    >>> wide = to_units([7], 0, dtype=LIMIT)
    >>> fit(wide).dtype
    decimal256(37, 18)[pyarrow]
    """
    array = as_array(amounts)
    try:
        return as_series(array.cast(dtype.pyarrow_dtype), amounts.index, amounts.name)
    except pa.ArrowInvalid:
        position, value = first_failure(array, lambda part: part.cast(dtype.pyarrow_dtype))
        where = f"{amounts.name!r} at {amounts.index[position]!r}"
        raise AmountError(
            f"{where}: {value:f} does not fit {range_of(dtype.pyarrow_dtype)}. Use a wider dtype."
        ) from None


def to_float(frame: Frame) -> Frame:
    """Turn exact amounts into float64, each correctly rounded: the one way out of exactness.

    Parameters
    ----------
    frame : pandas.DataFrame or pandas.Series
        Columns of a decimal dtype are converted, the others are left alone.

    Returns
    -------
    pandas.DataFrame or pandas.Series
        A new object; null becomes NaN.

    Examples
    --------
    >>> to_float(to_units(["1", None], 1)).tolist()
    [0.1, nan]
    """
    if isinstance(frame, pd.DataFrame):
        return frame.assign(
            **{str(name): to_float(column) for name, column in frame.items() if is_exact(column)}
        )
    if not is_exact(frame):
        return frame
    floats = as_array(frame).cast(pa.string()).cast(pa.float64())
    return pd.Series(floats.to_numpy(zero_copy_only=False), index=frame.index, name=frame.name)
