"""Exact arithmetic on columns of decimals, without a Python object for each row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from loopring_lab.amounts.scaling import UNIT, from_integers, to_integers

BPS = 10_000
SUM = pa.decimal256(76, 18)

Decimals = pa.Array | pa.ChunkedArray


def basis_points(values: Decimals, origins: Decimals, bases: Decimals) -> np.ndarray:
    """Return how far values lie above origins in basis points of bases, correctly rounded, or NaN."""
    rows = zip(*map(to_integers, (values, origins, bases)), strict=True)
    rates = [np.nan if None in row or not row[2] else (row[0] - row[1]) * BPS / row[2] for row in rows]
    return np.array(rates, np.float64)


def ratios(numerators: Decimals, denominators: Decimals, times: int = 1) -> np.ndarray:
    """Return numerators times a number, divided by denominators, correctly rounded, or NaN."""
    rows = zip(to_integers(numerators), to_integers(denominators), strict=True)
    return np.array([np.nan if a is None or not b else a * times / b for a, b in rows], np.float64)


def times(amounts: Decimals, prices: Decimals) -> pa.Array:
    """Multiply amounts by prices, rounded down to 18 decimals; null where one is null."""
    rows = zip(to_integers(amounts), to_integers(prices), strict=True)
    return from_integers([None if None in row else row[0] * row[1] // UNIT for row in rows], SUM)


def per(amounts: Decimals, prices: Decimals) -> pa.Array:
    """Divide amounts by prices, rounded down to 18 decimals; null where one is null or the price is 0."""
    rows = zip(to_integers(amounts), to_integers(prices), strict=True)
    return from_integers([None if None in row or not row[1] else row[0] * UNIT // row[1] for row in rows], SUM)
