"""Exact token amounts in pandas: dtypes, smallest units to units and back, totals, floats.

Token amounts are sent as integers of smallest units. Frames hold them in units of the token, as 256-bit
decimals: the same integers with a scale, and nothing rounds. Start with `to_units`. `scaling` changes scales
under the functions here and in `tables`; `display` has `show`, and how amounts are written everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts import scaling
from loopring_lab.amounts.display import show
from loopring_lab.amounts.dtype import AmountArray as AmountArray
from loopring_lab.amounts.dtype import AmountDtype, multiply
from loopring_lab.amounts.scalar import Amount
from loopring_lab.amounts.scaling import (
    TokenName,
    as_array,
    as_series,
    is_exact,
    range_of,
)
from loopring_lab.errors import AmountError

__all__ = [
    "AMOUNT",
    "LIMIT",
    "Amount",
    "AmountDtype",
    "fit",
    "multiply",
    "show",
    "to_float",
    "to_smallest",
    "to_units",
    "total",
]


def __dir__() -> list[str]:
    return sorted(__all__)


AMOUNT = pd.ArrowDtype(pa.decimal256(37, 18))
"""Amounts, prices and fees of trades: 19 digits before the point, 18 after."""
LIMIT = pd.ArrowDtype(pa.decimal256(76, 18))
"""Limits of tokens, which reach 10**39 smallest units: 58 digits before the point, 18 after."""

Frame = TypeVar("Frame", pd.Series, pd.DataFrame)


def to_units(
    values: Iterable[Any],
    decimals: int | Sequence[int] | np.ndarray,
    *,
    token: TokenName = "this token",
    dtype: pd.ArrowDtype = AMOUNT,
) -> pd.Series:
    """Scale integers in smallest units to units of the token, exactly.

    Parameters
    ----------
    values : iterable of int, str or None, shape (n,)
        Whole numbers of smallest units, as the relayer sends them. None becomes null.
    decimals : int or sequence of int, shape (n,)
        Decimals of the token, 0 to 30; one for all values or one for each.
    token : str or callable
        Name for error messages; a callable receives the position of the value.
    dtype : pandas.ArrowDtype
        `AMOUNT`, `LIMIT`, or any other decimal dtype.

    Returns
    -------
    pandas.Series, shape (n,)
        Units of the token, as `dtype`, with the index of `values` if it has one.

    Raises
    ------
    AmountError
        A value is not a whole number, or does not fit `dtype` without losing digits.

    Examples
    --------
    >>> to_units(["1500000", "1"], 6).astype(str).tolist()
    ['1.500000000000000000', '0.000001000000000000']
    """
    # A list has no index; its series gets the numbers of its rows.
    index = values.index if isinstance(values, pd.Series) else None
    numbers = scaling.parse_integers(values, token)
    each = scaling.decimals_of_each(decimals, len(numbers), token)
    return as_series(
        scaling.scale(
            numbers,
            each,
            dtype.pyarrow_dtype,
            token,
        ),
        index,
    )


def to_smallest(
    amounts: pd.Series,
    decimals: int | Sequence[int] | np.ndarray,
    *,
    token: TokenName = "this token",
) -> pd.Series:
    """Scale units of a token back to integers in smallest units; the inverse of `to_units`.

    Parameters
    ----------
    amounts : pandas.Series, shape (n,)
        Amounts in units, of a decimal dtype.
    decimals, token : optional
        As for `to_units`.

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
    each = scaling.decimals_of_each(decimals, len(array), token)
    return as_series(scaling.to_smallest(array, each, token), amounts.index)


def total(amounts: pd.Series, by: Any = None) -> Any:
    """Sum amounts exactly; unknown amounts raise an error instead of being skipped.

    Parameters
    ----------
    amounts : pandas.Series, shape (n,)
        Amounts in units, of a decimal dtype.
    by : optional
        Anything `pandas.Series.groupby` accepts; returns one sum per group.

    Returns
    -------
    decimal.Decimal or pandas.Series
        The sum in units; with `by`, a series of `AMOUNT` with one row per group.

    Raises
    ------
    AmountError
        An amount is null, so the sum would be too small, or a sum does not fit.

    Examples
    --------
    >>> total(to_units(["1500000", "2500000"], 6))
    Decimal('4.000000000000000000')
    """
    if not isinstance(amounts, pd.Series):
        raise AmountError(
            f"amounts: expected a pandas Series, got {type(amounts).__name__}. Pass a column, such as trades['fee']."
        )
    # pandas would skip what is not known, and the sum would be too small.
    missing = int(amounts.isna().sum())
    if missing:
        raise AmountError(
            f"{missing} of {len(amounts)} amounts in {amounts.name!r} are null, so their total is unknown. "
            "Inspect them with lab.anomalies(trades), or drop them with .dropna()."
        )
    if by is None:
        summed = pc.sum(as_array(amounts)).as_py()
        return Decimal(0) if summed is None else summed
    return fit(
        amounts.groupby(
            by,
            observed=True,
        ).sum()
    )


def fit(amounts: pd.Series, dtype: pd.ArrowDtype = AMOUNT) -> pd.Series:
    """Cast a decimal series to another decimal dtype; overflow raises.

    Parameters
    ----------
    amounts : pandas.Series, shape (n,)
        Any decimal dtype, such as the ``decimal256(76, 18)`` of a group-by sum.
    dtype : pandas.ArrowDtype
        The target decimal dtype.

    Returns
    -------
    pandas.Series, shape (n,)
        The same values.

    Raises
    ------
    AmountError
        A value does not fit without losing digits.

    Examples
    --------
    >>> fit(to_units([7], 0, dtype=LIMIT)).dtype
    decimal256(37, 18)[pyarrow]
    """
    array = as_array(amounts)
    target = dtype.pyarrow_dtype
    try:
        return as_series(array.cast(target), amounts.index, amounts.name)
    except pa.ArrowInvalid:
        row, value = scaling.first_failure(array, lambda part: part.cast(target))
        raise AmountError(
            f"{amounts.name!r} at {amounts.index[row]!r}: {value:f} does not fit {range_of(target)}. Use a wider dtype."
        ) from None


def to_float(frame: Frame) -> Frame:
    """Convert exact amounts to float64, each correctly rounded.

    Parameters
    ----------
    frame : pandas.DataFrame or pandas.Series
        Columns of a decimal dtype are converted; others are left unchanged.

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
        exact = [name for name, column in frame.items() if is_exact(column)]
        floats = {str(name): to_float(frame[name]) for name in exact}
        return frame.assign(**floats)
    if not is_exact(frame):
        return frame
    floats = as_array(frame).cast(pa.string()).cast(pa.float64())
    return pd.Series(
        floats.to_numpy(zero_copy_only=False),
        index=frame.index,
        name=frame.name,
    )
