"""pandas' writers that make floats of Decimals without asking the column: of amounts, they raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import pandas as pd

from loopring_lab.amounts.dtype import AmountDtype
from loopring_lab.errors import AmountError

# Each function tells whether that writer writes all digits with the options that it is called with.
_WRITES_DIGITS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "to_csv": lambda options: options.get("float_format") is None,
    "to_excel": lambda options: False,
    "to_markdown": lambda options: options.get("disable_numparse") is True,
    "to_records": lambda options: False,
    # A database without exact decimals compares amounts as text, or keeps floats.
    "to_sql": lambda options: False,
}
_ADVICE = {
    "to_csv": "Leave out float_format=",
    "to_markdown": "Give disable_numparse=True",
}


def refuse_floats() -> None:
    """Let pandas' writers raise where they would write amounts as floats."""
    for owner in (pd.DataFrame, pd.Series):
        for name in _WRITES_DIGITS:
            if hasattr(owner, name):
                setattr(owner, name, _refusing(getattr(owner, name)))


def _refusing(write: Any) -> Any:
    name = write.__name__

    @wraps(write)
    def refusing(data: Any, *positional: Any, **options: Any) -> Any:
        names = [] if _WRITES_DIGITS[name](options) else _names_of_amounts(data)
        if names:
            text = f"Convert them to text with .astype({{{names[0]!r}: str}})"
            raise AmountError(
                f"{name} would write floats, numbers of 16 digits, in place of the exact amounts in "
                f"{', '.join(names)}. {_ADVICE.get(name, text)} to keep all digits, or take floats with "
                "lab.amounts.to_float(frame)."
            )
        return write(data, *positional, **options)

    return refusing


def _names_of_amounts(data: Any) -> list[str]:
    """Return the names of the columns, and of the levels of the index, that hold amounts."""
    frame = data.to_frame() if isinstance(data, pd.Series) else data
    levels = map(frame.index.get_level_values, range(frame.index.nlevels))
    dtypes = [(level.name, level.dtype) for level in levels]
    dtypes += frame.dtypes.items()
    return [str(name) for name, dtype in dtypes if _is_amount(dtype)]


def _is_amount(dtype: Any) -> bool:
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    return isinstance(dtype, AmountDtype)
