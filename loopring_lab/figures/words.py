"""How figures write numbers and names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pandas as pd

from loopring_lab.amounts.display import format_amount, truncate
from loopring_lab.fills.sentences import rounded

UNKNOWN = "unknown"
# Characters of a group's name; an address or a hash has more.
LONGEST_LABEL = 20
# Of a longer one so many are left of its beginning, if these tell groups apart, and of its end.
LABEL_START = 8
LABEL_END = 4


def format_number(value: float, digits: int = 10) -> str:
    """Write a number with thousands separators, without an exponent or trailing zeros."""
    # All digits before the point, as fewer of them would need an exponent.
    whole = len(f"{abs(value):.0f}")
    return format_amount(Decimal(f"{value:.{max(digits, whole)}g}"))


def format_count(count: Any, name: str = "fill") -> str:
    """Count things in words, such as ``1,200 fills``."""
    ending = "" if count == 1 else "s"
    return f"{int(count):,} {name}{ending}"


def format_bps(rate: Any, places: int = 2) -> str:
    """Write a rate in basis points, as sentences do."""
    return rounded(float(rate), places)


def format_estimate(row: Mapping[Any, Any]) -> str:
    """Write an estimate in basis points with its 95 % interval, if it has one."""
    mean = f"{format_bps(row['mean'])} bps"
    if pd.isna(row["low"]):
        return f"{mean}, no interval"
    low = format_bps(row["low"])
    high = format_bps(row["high"])
    return f"{mean} (95 %: {low} bps to {high} bps)"


def truncate_digits(amount: Decimal, digits: int) -> str:
    """Write an exact amount with this many significant digits; further ones are cut, never rounded."""
    shown = truncate(amount, max(0, digits - 1 - amount.adjusted()))
    return format_amount(amount) if shown == amount else f"{shown:,f}"


def group_labels(values: Iterable[Any]) -> list[str]:
    """Name groups by their values, shortened in the middle if they are long, such as hashes, as far as they differ."""
    listed = list(values)
    longest = max((len(_label(value)) for value in listed), default=0)
    different = len({_label(value) for value in listed})
    for kept in range(LABEL_START, longest):
        labels = [_label(value, kept) for value in listed]
        if len(set(labels)) == different:
            return labels
    return [_label(value) for value in listed]


def _label(value: Any, kept: int | None = None) -> str:
    """Write the value of a group, of a long one so many characters of its beginning, and its end."""
    if isinstance(value, tuple):
        return ", ".join(_label(part, kept) for part in value)
    text = UNKNOWN if pd.isna(value) else str(value)
    is_shown = kept is None or len(text) <= max(LONGEST_LABEL, kept + 1 + LABEL_END)
    return text if is_shown else f"{text[:kept]}…{text[-LABEL_END:]}"


def fill_count(drawn: float, total: float) -> str:
    """Say how many fills are drawn, such as ``12 of 50 fills``."""
    # Both counts, wherever something is left out.
    if drawn != total:
        return f"{int(drawn):,} of {format_count(total)}"
    return f"all {int(total):,} fills" if total > 1 else "one fill"
