"""Exact token amounts in pandas: dtypes, smallest units to units and back, totals, floats.

Token amounts are sent as integers of smallest units. Frames hold them in units of the token, as `AmountDtype`:
the same integers with a scale, and nothing rounds. Start with `to_units`. `scaling` changes scales under the
functions here and in `tables`; `display` has `show`, and how amounts are written everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts import scaling
from loopring_lab.amounts.display import show
from loopring_lab.amounts.dtype import AmountArray as AmountArray
from loopring_lab.amounts.dtype import AmountDtype, multiply
from loopring_lab.amounts.scalar import Amount
from loopring_lab.amounts.scaling import TokenName
from loopring_lab.amounts.series import (
    DecimalDtype,
    arrow_type,
    as_array,
    as_series,
    is_exact,
)
from loopring_lab.amounts.totals import total
from loopring_lab.amounts.writers import refuse_floats
from loopring_lab.errors import LabError

__all__ = [
    "AMOUNT",
    "LIMIT",
    "Amount",
    "AmountDtype",
    "multiply",
    "show",
    "to_float",
    "to_smallest",
    "to_units",
    "total",
]


def __dir__() -> list[str]:
    return sorted(__all__)


refuse_floats()
AMOUNT = AmountDtype()
"""Amounts, prices and fees of trades: 20 digits before the point, 18 after."""
LIMIT = pd.ArrowDtype(pa.decimal256(76, 18))
"""Limits of tokens, which reach 10**39 smallest units: 58 digits before the point, 18 after."""


def to_units(
    values: Iterable[Any],
    decimals: int | Sequence[int] | np.ndarray,
    *,
    token: TokenName = "this token",
    dtype: DecimalDtype = AMOUNT,
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
    dtype : AmountDtype or pandas.ArrowDtype
        `AMOUNT`, `LIMIT`, or any other decimal dtype.

    Returns
    -------
    pandas.Series, shape (n,)
        Units of the token, as `dtype`, with the index of `values` if it has one.

    Raises
    ------
    AmountError
        A value is not a whole number, or does not fit `dtype` without losing digits, or `decimals` are not
        decimals of a token.

    Examples
    --------
    >>> lab.amounts.to_units(["1500000", "1"], 6).astype(str).tolist()
    ['1.5', '0.000001']
    """
    # A list has no index; its series gets the numbers of its rows.
    index = None
    if isinstance(values, pd.Series):
        index = values.index
        if is_exact(values):
            values = as_array(values).to_pylist()
    numbers = scaling.parse_integers(values, token)
    each = scaling.decimals_of_each(decimals, len(numbers), token)
    return as_series(
        scaling.scale(
            numbers,
            each,
            arrow_type(dtype),
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
        Amounts in units, as `AMOUNT` or another decimal dtype.
    decimals, token : optional
        As for `to_units`.

    Returns
    -------
    pandas.Series, shape (n,)
        Smallest units, ``decimal256(76, 0)``.

    Raises
    ------
    AmountError
        An amount has digits below the token's smallest unit, or `decimals` are not decimals of a token.

    Examples
    --------
    >>> lab.amounts.to_smallest(lab.amounts.to_units(["1500000"], 6), 6).astype(str).tolist()
    ['1500000']
    """
    array = as_array(amounts)
    each = scaling.decimals_of_each(decimals, len(array), token)
    return as_series(scaling.to_smallest(array, each, token), amounts.index)


def to_float(frame: Any) -> Any:
    """Convert exact amounts to float64, each correctly rounded.

    Parameters
    ----------
    frame : pandas.DataFrame, pandas.Series, Decimal or number
        Columns of amounts and of Arrow decimals are converted; others are left unchanged.

    Returns
    -------
    pandas.DataFrame, pandas.Series or float
        A new object; null becomes NaN.

    Raises
    ------
    LabError
        What is given is neither a frame, nor a column, nor a number.

    Examples
    --------
    >>> lab.amounts.to_float(lab.amounts.to_units(["1", None], 1)).tolist()
    [0.1, nan]
    """
    if isinstance(frame, pd.DataFrame):
        # By place, as frames put side by side have columns of one name.
        converted = frame.copy(deep=False)
        for place, (_, column) in enumerate(frame.items()):
            converted.isetitem(place, to_float(column))
        return converted
    if isinstance(frame, pd.Series):
        return frame.astype(float) if is_exact(frame) else frame
    if isinstance(frame, (Decimal, int, float, np.number)):
        return float(frame)
    raise LabError(
        f"to_float: expected a frame, a column or a number, got {type(frame).__name__}. Text becomes a number with "
        "decimal.Decimal."
    )
