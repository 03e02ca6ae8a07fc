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
# These write amounts as they are, but of categories floats, or what cannot be read back (pyarrow 26).
_REFUSE_CATEGORIES = ("to_json", "to_feather", "to_orc", "to_parquet")
_ADVICE = {
    "to_csv": "Leave out float_format=",
    "to_markdown": "Give disable_numparse=True",
}


def refuse_floats() -> None:
    """Let pandas' writers raise where they would write amounts as floats."""
    for owner in (pd.DataFrame, pd.Series):
        for name in (*_WRITES_DIGITS, *_REFUSE_CATEGORIES):
            if hasattr(owner, name):
                setattr(owner, name, _refusing(getattr(owner, name)))
    setattr(pd.Categorical, "__array__", _exact_array(pd.Categorical.__array__))  # noqa: B010
    # A Styler writes tables of Excel by itself, and is loaded with the first one.
    setattr(pd.DataFrame, "style", _refusing_style(pd.DataFrame.style))  # noqa: B010


def _exact_array(convert: Any) -> Any:
    """Let categories of amounts become Decimals where NumPy is not told what to make of them, as pandas' own code."""

    @wraps(convert)
    def converted(
        values: pd.Categorical, dtype: Any = None, copy: bool | None = None
    ) -> Any:
        if dtype is None and isinstance(values.categories.dtype, AmountDtype):
            dtype = object
        return convert(values, dtype, copy)

    return converted


def _refusing_style(style: Any) -> property:
    @wraps(style.fget)
    def refusing(frame: pd.DataFrame) -> Any:
        styler = style.fget(frame)
        writer = type(styler)
        if not hasattr(writer.to_excel, "__wrapped__"):
            writer.to_excel = _refusing(writer.to_excel)
        return styler

    return property(refusing)


def _refusing(write: Any) -> Any:
    name = write.__name__

    @wraps(write)
    def refusing(data: Any, *positional: Any, **options: Any) -> Any:
        frame = data if isinstance(data, (pd.DataFrame, pd.Series)) else data.data
        names = []
        if name in _REFUSE_CATEGORIES:
            names = _names_of_amounts(frame, only_categories=True)
        elif not _WRITES_DIGITS[name](options):
            names = _names_of_amounts(frame, only_categories=False)
        if names:
            text = f"Convert them to text with .astype({{{names[0]!r}: str}})"
            raise AmountError(
                f"{name} would write floats, numbers of 16 digits, in place of the exact amounts in "
                f"{', '.join(names)}. {_ADVICE.get(name, text)} to keep all digits, or take floats with "
                "lab.amounts.to_float(frame)."
            )
        return write(data, *positional, **options)

    return refusing


def _names_of_amounts(data: Any, *, only_categories: bool) -> list[str]:
    """Return the names of the columns, and of the levels of the index, that hold amounts."""
    frame = data.to_frame() if isinstance(data, pd.Series) else data
    levels = map(frame.index.get_level_values, range(frame.index.nlevels))
    dtypes = [(level.name, level.dtype) for level in levels]
    dtypes += frame.dtypes.items()
    return [str(name) for name, dtype in dtypes if _is_amount(dtype, only_categories)]


def _is_amount(dtype: Any, only_categories: bool) -> bool:
    if isinstance(dtype, pd.CategoricalDtype):
        return isinstance(dtype.categories.dtype, AmountDtype)
    return isinstance(dtype, AmountDtype) and not only_categories
