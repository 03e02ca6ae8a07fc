"""Numbers and names as figures write them."""

from __future__ import annotations

from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

import pandas as pd

from loopring_lab.amounts.readable import number as exact

__all__ = ["cut", "down", "named", "number", "of_all"]

UNKNOWN = "unknown"
LONGEST_NAME = 20
_EXACT = Context(prec=160)


def number(value: float, digits: int = 10) -> str:
    """Write a number: thousands apart, no exponent, no digits that say nothing.

    Parameters
    ----------
    value : float
        Any finite number.
    digits : int
        Significant digits; those before the point are never dropped.

    Returns
    -------
    str
        Such as ``1,234.5``.

    Examples
    --------
    >>> number(0.00001), number(3e9), number(1234.5678, 3)
    ('0.00001', '3,000,000,000', '1,235')
    """
    whole = len(f"{abs(value):.0f}")
    return exact(Decimal(f"{value:.{max(digits, whole)}g}"))


def down(amount: Decimal, places: int) -> Decimal:
    """Cut an amount toward zero, as `amounts.show` does, so that it never says more than there is.

    Parameters
    ----------
    amount : decimal.Decimal
        Exact, finite.
    places : int
        Decimals to keep.

    Returns
    -------
    decimal.Decimal
        With exactly so many decimals.

    Examples
    --------
    >>> down(Decimal("2.7589648"), 3)
    Decimal('2.758')
    """
    return amount.quantize(Decimal(1).scaleb(-places), ROUND_DOWN, _EXACT)


def cut(amount: Decimal, digits: int) -> str:
    """Write an exact amount with so many digits; the others are cut, never rounded.

    Parameters
    ----------
    amount : decimal.Decimal
        Exact, finite.
    digits : int
        Significant digits; those before the point are never dropped.

    Returns
    -------
    str
        Such as ``1,234.5``; zeros at its end only where other digits follow.

    Examples
    --------
    >>> cut(Decimal("1.66259"), 4), cut(Decimal("101.0046"), 5), cut(Decimal("10260.9"), 2)
    ('1.662', '101.00', '10,260')
    """
    kept = down(amount, max(0, digits - 1 - amount.adjusted()))
    return exact(amount) if kept == amount else f"{kept:,f}"


def named(value: Any) -> str:
    """Name a group: its value, cut in the middle where it is long, such as a hash.

    Parameters
    ----------
    value : object
        A name or several of them; null for an unknown one.

    Returns
    -------
    str
        At most 20 characters for each name.

    Examples
    --------
    >>> named(("LRC-ETH", None)), named("0x" + "7" * 64)
    ('LRC-ETH, unknown', '0x777777…7777')
    """
    if isinstance(value, tuple):
        return ", ".join(named(part) for part in value)
    text = UNKNOWN if pd.isna(value) else str(value)
    return text if len(text) <= LONGEST_NAME else f"{text[:8]}…{text[-4:]}"


def of_all(drawn: float, total: float) -> str:
    """Say how many trades are drawn, such as ``12 of 50 trades``.

    Parameters
    ----------
    drawn, total : int
        Numbers of trades.

    Returns
    -------
    str
        ``all 50 trades`` where none is left out.

    Examples
    --------
    >>> of_all(1200, 50000), of_all(3, 3), of_all(1, 1)
    ('1,200 of 50,000 trades', 'all 3 trades', 'one trade')
    """
    if drawn == total:
        return f"all {int(total):,} trades" if total > 1 else "one trade"
    return f"{int(drawn):,} of {int(total):,} trades"
