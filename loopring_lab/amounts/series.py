"""Series of exact amounts as Arrow arrays, and back."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.dtype import AmountArray, AmountDtype
from loopring_lab.amounts.scaling import combined, first_failure, range_of, rescale
from loopring_lab.errors import AmountError

DecimalDtype = AmountDtype | pd.ArrowDtype
"""`AmountDtype`, or a decimal type of Arrow."""


def arrow_type(dtype: DecimalDtype | str) -> pa.DataType:
    """Return the type of the Arrow decimals that a column of this type holds, or raise an `AmountError`."""
    # pandas takes the name of a type for the type.
    if dtype == AmountDtype.name:
        return AMOUNT_TYPE
    found = getattr(dtype, "pyarrow_dtype", None)
    if found is None or not pa.types.is_decimal(found):
        raise AmountError(
            f"dtype={dtype!r} holds no exact amounts. Give lab.amounts.AMOUNT, lab.amounts.LIMIT, or a decimal type of "
            "Arrow as pandas.ArrowDtype."
        )
    return found


def is_exact(column: pd.Series) -> bool:
    """Return whether a series holds amounts, or Arrow decimals."""
    dtype = column.dtype
    if isinstance(dtype, AmountDtype):
        return True
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)


def as_array(amounts: pd.Series) -> pa.Array:
    """Return the Arrow decimals of a series of exact amounts, or raise an `AmountError`."""
    if not isinstance(amounts, pd.Series):
        raise AmountError(
            f"Expected a pandas Series of amounts, got {type(amounts).__name__}. Make one with "
            "pandas.Series(..., dtype='amount')."
        )
    if not is_exact(amounts):
        label = "This series" if amounts.name is None else repr(amounts.name)
        raise AmountError(
            f"{label} is {amounts.dtype}, not an exact amount. "
            "Convert integers in smallest units with lab.amounts.to_units."
        )
    if isinstance(amounts.array, AmountArray):
        return amounts.array.to_arrow()
    return combined(pa.array(amounts.array))


def as_series(
    array: pa.Array | pa.ChunkedArray,
    index: Any = None,
    name: Hashable = None,
) -> pd.Series:
    """Wrap an Arrow array as a pandas series without a copy, amounts as such, others in the same type."""
    is_amount = array.type == AMOUNT_TYPE
    wrap = AmountArray if is_amount else pd.arrays.ArrowExtensionArray
    return pd.Series(
        wrap(array),
        index=index,
        name=name,
    )


def cast(amounts: pd.Series) -> pd.Series:
    """Make amounts of Arrow decimals, or raise an `AmountError` that names what does not fit."""
    array = as_array(amounts)
    convert = partial(rescale, to=AMOUNT_TYPE)
    try:
        return as_series(convert(array), amounts.index, amounts.name)
    except pa.ArrowInvalid:
        row, value = first_failure(array, convert)
    raise AmountError(
        f"{amounts.name!r} at {amounts.index[row]!r}: {value:f} does not fit {range_of(AMOUNT_TYPE)}. "
        "Use .astype(float) to compute with numbers of this size."
    )
