"""Numbers and names as figures write them."""

from __future__ import annotations

from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

import pandas as pd

from loopring_lab.amounts.display import format_amount as exact

__all__ = ["cut", "down", "named", "number", "of_all"]

UNKNOWN = "unknown"
LONGEST_NAME = 20
_EXACT = Context(prec=160)


def number(value: float, digits: int = 10) -> str:
    """Write a number: thousands apart, no exponent, no digits that say nothing."""
    whole = len(f"{abs(value):.0f}")
    return exact(Decimal(f"{value:.{max(digits, whole)}g}"))


def down(amount: Decimal, places: int) -> Decimal:
    """Cut an amount toward zero, as `amounts.show` does, so that it never says more than there is."""
    return amount.quantize(Decimal(1).scaleb(-places), ROUND_DOWN, _EXACT)


def cut(amount: Decimal, digits: int) -> str:
    """Write an exact amount with so many digits; the others are cut, never rounded."""
    kept = down(amount, max(0, digits - 1 - amount.adjusted()))
    return exact(amount) if kept == amount else f"{kept:,f}"


def named(value: Any) -> str:
    """Name a group: its value, cut in the middle where it is long, such as a hash."""
    if isinstance(value, tuple):
        return ", ".join(named(part) for part in value)
    text = UNKNOWN if pd.isna(value) else str(value)
    return text if len(text) <= LONGEST_NAME else f"{text[:8]}…{text[-4:]}"


def of_all(drawn: float, total: float) -> str:
    """Say how many trades are drawn, such as ``12 of 50 trades``."""
    if drawn == total:
        return f"all {int(total):,} trades" if total > 1 else "one trade"
    return f"{int(drawn):,} of {int(total):,} trades"
