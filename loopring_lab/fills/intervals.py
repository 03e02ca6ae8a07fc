"""Means of fills, weighted by value, with intervals from a bootstrap clustered by order.

Fills of one order are one decision, so whole orders are resampled. How often an order counts in a draw
follows from its hash, the seed and the number of the draw alone: the order of rows and other groups change
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import floats
from loopring_lab.engines.asof import order_names
from loopring_lab.errors import LabError

FEWEST = 20
"""Fewer fills than these give no interval, nor do orders of which a few large ones outweigh the rest."""
PRICED = ["moment", "base", "quote", "price"]
UNITS_AT_MOST = 1 << 14  # resampled units of a group; more orders than these are put together at random
WORDS = 250  # each holds four draws of 16 bits
DRAWS = 4 * WORDS
CHUNK = 1 << 12
GAMMA, MIXERS = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # SplitMix64
LOW_BITS = np.uint64(0xFFFF)
_TAILS = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(9)])
POISSON = np.searchsorted(_TAILS, (np.arange(1 << 16) + 0.5) / (1 << 16)).astype(np.float64)
"""How often a unit counts in a draw, for each value of 16 random bits."""


def estimate(
    rates: Mapping[str, np.ndarray],
    weights: np.ndarray,
    orders: np.ndarray,
    groups: np.ndarray,
    count: int,
    level: float,
    seed: int,
) -> dict[str, pa.Array]:
    """Estimate rates of each group's fills; null where a weight is unknown, or there are too few.

    Unknown rates and weights are NaN; `orders` are from `order_keys`.
    """
    columns = {"orders": pa.array(np.bincount(add_up(orders, groups)[1], minlength=count))}
    for name, values in rates.items():
        known = ~np.isnan(values)
        some = values[known], weights[known], orders[known], groups[known]
        found = _estimate_one(*some, count, level, seed)
        for column, numbers in zip(("mean", "weighted", "median", "low", "high"), found, strict=True):
            columns[f"{column}_{name}"] = pa.array(numbers + 0.0, from_pandas=True)
    return columns


def order_keys(fills: pa.Table) -> np.ndarray:
    """Return a number for the order of each fill; a fill of an unknown order stands for itself."""
    itself = pc.binary_join_element_wise(
        "trade", fills["trade_id"].cast(pa.string()), " ", null_handling="replace"
    )
    names = pc.coalesce(order_names(fills), itself)
    return np.asarray(pd.util.hash_array(names.to_numpy().astype(object)), np.uint64)


def check_sampling(level: Any, seed: Any, caller: str) -> None:
    """Raise a `LabError` unless the level lies between 0 and 1 and the seed is a whole number from 0."""
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise LabError(
            f"{caller}: intervals={level!r} is not a level between 0 and 1. Give one such as 0.95."
        )
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise LabError(f"{caller}: seed={seed!r} is not a whole number from 0. Give one such as 0.")


def add_up(
    units: np.ndarray, slots: np.ndarray, *columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add up columns over the fills of each unit, apart for each slot; sorted by slot and unit."""
    place = np.lexsort((*columns, units, slots))
    units, slots = units[place], slots[place]
    first = np.ones(len(units), bool)
    first[1:] = (units[1:] != units[:-1]) | (slots[1:] != slots[:-1])
    starts = np.flatnonzero(first)
    sums = [np.add.reduceat(column[place], starts) if len(starts) else column for column in columns]
    return units[starts], slots[starts], np.array(sums).reshape(len(columns), len(starts))


def to_resample(orders: np.ndarray) -> np.ndarray:
    """Return the unit of each fill that is resampled: its order, or a few of many orders together."""
    many = len(np.unique(orders)) > UNITS_AT_MOST
    return orders % np.uint64(UNITS_AT_MOST) if many else orders


def resampled(units: np.ndarray, slots: np.ndarray, sums: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the sums over the units of each slot in every draw: columns, draws, slots."""
    totals = np.zeros((len(sums), DRAWS, count))
    steps = np.arange(WORDS, dtype=np.uint64) + np.uint64(seed * WORDS % 2**64)
    for start in range(0, len(units), CHUNK):
        part = slice(start, start + CHUNK)
        words = _mixed(units[part] + steps[:, None] * np.uint64(GAMMA))
        first = np.flatnonzero(np.append(True, slots[part][1:] != slots[part][:-1]))
        for quarter in range(4):
            counts = POISSON[words >> np.uint64(16 * quarter) & LOW_BITS]
            rows = slice(quarter * WORDS, (quarter + 1) * WORDS)
            for column, values in enumerate(sums):
                totals[column, rows, slots[part][first]] += np.add.reduceat(
                    counts * values[part], first, axis=1
                ).T
    return totals


def interval(draws: np.ndarray, level: float) -> tuple[float, float]:
    """Return the percentiles between which a share `level` of the draws lies, without undefined draws."""
    known = draws[~np.isnan(draws)]
    tail = (1 - level) / 2
    low, high = np.quantile(known, [tail, 1 - tail]) if len(known) else (np.nan, np.nan)
    return float(low), float(high)


def values_in_one_token(fills: pa.Table, *prices: pa.Table) -> np.ndarray:
    """Return the value of each fill in the quote token with most fills, as a weight; NaN where unknown.

    Tokens are converted along the markets with most `prices`, at the price nearest in time.
    """
    values = floats(fills["notional"])
    quotes = fills["quote"].to_pandas().astype(object)
    counts = quotes.value_counts().sort_index().sort_values(ascending=False, kind="stable")
    times = fills["moment"].to_numpy()
    rates = _rates([*counts.index], times, prices) if len(counts) > 1 else {}
    for token in counts.index[1:]:
        rows = (quotes == token).to_numpy()
        values[rows] *= rates[token][rows] if token in rates else np.nan
    return np.where(quotes.isna() | np.isnan(times), np.nan, values)


def _estimate_one(
    values: np.ndarray,
    weights: np.ndarray,
    orders: np.ndarray,
    groups: np.ndarray,
    count: int,
    level: float,
    seed: int,
) -> np.ndarray:
    found = np.full((5, count), np.nan)
    place = np.lexsort((orders, weights, values, groups))
    values, weights, orders, groups = (column[place] for column in (values, weights, orders, groups))
    present, starts = np.unique(groups, return_index=True)
    stops = np.append(starts, len(groups))[1:]
    for group, start, stop in zip(present, starts, stops, strict=True):
        one = slice(start, stop)
        found[0, group], found[2, group] = values[one].mean(), np.median(values[one])
        slots = np.zeros(stop - start, np.int64)
        units, slots, sums = add_up(to_resample(orders[one]), slots, weights[one], weights[one] * values[one])
        total, product = sums.sum(axis=1)
        if not total > 0:
            continue
        found[1, group] = product / total
        if min(stop - start, _effective_number(sums[0])) >= FEWEST:
            totals, products = resampled(units, slots, sums, 1, seed)
            with np.errstate(invalid="ignore"):
                found[3:, group] = interval(products / totals, level)
    return found


def _effective_number(weights: np.ndarray) -> float:
    """Return how many orders of equal value would say as much (Kish): at most how many there are."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def _mixed(words: np.ndarray) -> np.ndarray:
    for shift, factor in MIXERS:
        words = (words ^ words >> np.uint64(shift)) * np.uint64(factor)
    mixed: np.ndarray = words ^ words >> np.uint64(31)
    return mixed


def _rates(tokens: Sequence[str], times: np.ndarray, prices: Sequence[pa.Table]) -> dict[str, np.ndarray]:
    """Return the value of tokens in the first of them at each time, where markets connect them."""
    known = pa.concat_tables(
        [part.select(PRICED) for part in prices], promote_options="permissive"
    ).drop_null()
    known = known.filter(pc.greater(known["price"], pa.scalar(0, known["price"].type)))
    pairs, codes = _pairs(known)
    counts = np.bincount(codes, minlength=len(pairs))
    rates = {tokens[0]: np.ones(len(times))}
    while not rates.keys() >= {*tokens}:
        edges = [
            n for n, (base, quote) in enumerate(pairs) if counts[n] and (base in rates) != (quote in rates)
        ]
        if not edges:
            break
        most = min(edges, key=lambda n: (-counts[n], pairs[n]))
        base, quote = pairs[most]
        price = _nearest(known.filter(pa.array(codes == most)), times)
        if base in rates:
            rates[quote] = rates[base] / price
        else:
            rates[base] = rates[quote] * price
    return rates


def _pairs(prices: pa.Table) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Return the pairs of tokens in a table of prices, and the number of each row's pair."""
    bases, quotes = (prices[name].combine_chunks().dictionary_encode() for name in ("base", "quote"))
    names = [
        (base, quote) for base in bases.dictionary.to_pylist() for quote in quotes.dictionary.to_pylist()
    ]
    return names, bases.indices.to_numpy() * max(len(quotes.dictionary), 1) + quotes.indices.to_numpy()


def _nearest(history: pa.Table, times: np.ndarray) -> np.ndarray:
    known, prices = history["moment"].to_numpy(), floats(history["price"])
    place = np.lexsort((prices, known))
    known, prices = known[place], prices[place]
    after = np.clip(np.searchsorted(known, times), 0, len(known) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(times - known[before]) <= np.abs(known[after] - times)
    return np.asarray(prices[np.where(nearer, before, after)])
