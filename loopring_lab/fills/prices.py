"""Prices of fills against a price known before them: the other fill type's, or a reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.scaling import as_array, from_integers, integers
from loopring_lab.engines import adapters, convert
from loopring_lab.engines.adapters import group_keys
from loopring_lab.engines.aggregate import answer
from loopring_lab.engines.asof import codes, latest, milliseconds, window
from loopring_lab.errors import LabError

__all__ = ["all_in_cost", "price_gap"]

BPS = 10_000
FILL_TYPES = ("amm", "dex")
REFERENCES = ("next", "last")


def price_gap(
    trades: Any, tolerance: str | pd.Timedelta | None = "60s", by: str | Sequence[str] | None = None
) -> Any:
    """Compare each fill's price with the nearest earlier fill of the other type in its market and side.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`; several accounts put together give more pairs.
    tolerance : str or pandas.Timedelta, optional
        How old the other fill may be; None for any age. A fill of the same millisecond counts as earlier.
    by : str or sequence of str, optional
        Sum up by these columns and ``fill_type``; ``[]`` for ``fill_type`` alone.

    Returns
    -------
    frame of the same kind, one row a fill of known type
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``price``, ``other_price`` and
        ``other_at`` (null where unmatched), ``gap_bps``, how much higher the price is than the other,
        ``worse_bps``, the same as a cost to the account: it paid more, or received less. Float64 basis
        points. With `by` a row for each group: ``fills``, ``unmatched``, ``median_gap_bps`` and
        ``median_worse_bps``.

    Raises
    ------
    LabError
        The frame is not one of trades, its engine does not hold it in memory, or `tolerance` is no time.
    AmountError
        A price is not an exact decimal.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=71468)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> gaps = lab.fills.price_gap(trades, tolerance="10min")
    >>> gaps[["side", "price", "other_price", "worse_bps"]].dropna().tail(2)
         side                 price           other_price  worse_bps
    147   BUY  0.000612310000000000  0.000612900000000000  -9.626366
    149  SELL  0.000609850000000000  0.000612090000000000  36.595925
    """
    what = "fills.price_gap"
    names, within = None if by is None else group_keys(by, what), window(tolerance, what)
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "price"]
    fills = convert.to_pandas(trades, what, [*shown, *(names or [])])
    fills = fills[fills["fill_type"].isin(FILL_TYPES)].reset_index(drop=True)
    pool = (fills["fill_type"] == "amm").to_numpy()
    moments, (keys,) = milliseconds(fills["created_at"]), codes((fills, ["market", "side"]))
    price = integers(as_array(fills["price"]))
    usable = np.where(_positive(price), keys, -1)
    other = np.full(len(fills), -1, np.int64)
    for mine, theirs in ((pool, ~pool), (~pool, pool)):
        there = np.flatnonzero(theirs)
        place = latest(moments[mine], usable[mine], moments[there], usable[there], within=within)
        other[mine] = np.where(place < 0, -1, there[place] if len(there) else -1)
    gap = _relative(price, _taken(price, other))
    worse = gap * _sign(fills["side"]) + 0.0
    if names is not None:
        keyed = list(dict.fromkeys([*names, "fill_type"]))
        return _grouped(trades, fills, keyed, "unmatched", {"gap_bps": gap, "worse_bps": worse})
    found = {"other_price": from_integers(_taken(price, other), adapters.WIDE)}
    found["other_at"] = pa.array(_taken(moments, other).tolist(), pa.timestamp("ms", "UTC"))
    return _rows(trades, fills[shown], found | {"gap_bps": gap, "worse_bps": worse})


def all_in_cost(
    trades: Any,
    reference: Any = "next",
    tolerance: str | pd.Timedelta | None = "1h",
    by: str | Sequence[str] | None = None,
) -> Any:
    """Add up what a fill cost: its fee, and how much worse its price was than a reference.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    reference : 'next', 'last', or frame of pandas, pyarrow or Polars
        ``'next'``: the first trade in the market after the fill's order is done, which is what the position
        turned out to be worth (a markout). ``'last'``: the last trade before the order's first fill, its
        arrival price; where trades are rare this is stale, and makes those look dear who trade because
        prices have moved, such as at a pool. Both take trades of either type and side, never of the same
        moment. A frame: prices with ``created_at``, ``market`` and ``price``, of which the last at or before
        the fill counts.
    tolerance : str or pandas.Timedelta, optional
        How far off in time the reference may be; None for any distance.
    by : str or sequence of str, optional
        Sum up by these columns; ``[]`` for all fills together.

    Returns
    -------
    frame of the same kind, one row a fill
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``quote``, ``notional``,
        ``price``, ``reference_price``, ``price_bps`` (positive: worse for the account), ``fee_bps`` and
        ``all_in_bps``, their sum; float64 basis points, null without a reference. With `by` a row for each
        group: ``fills``, ``unpriced`` and the medians ``median_price_bps``, ``median_fee_bps`` and
        ``median_all_in_bps`` of the fills that have them.

    Raises
    ------
    LabError
        The frame is not one of trades, its engine does not hold it in memory, or an argument is not usable.
    AmountError
        A price is not an exact decimal.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> costs = lab.fills.all_in_cost(trades, by="fill_type")
    >>> costs[["fill_type", "median_fee_bps", "median_all_in_bps"]]
      fill_type  median_fee_bps  median_all_in_bps
    0       amm             8.0           7.380183
    1       dex            20.0          26.620762
    """
    what = "fills.all_in_cost"
    names, within = None if by is None else group_keys(by, what), window(tolerance, what)
    if isinstance(reference, str) and reference not in REFERENCES:
        raise LabError(
            f"{what}: reference={reference!r} is not known. Give 'next', 'last', or a frame of prices."
        )
    own = isinstance(reference, str)
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "quote", "notional", "price"]
    fills = convert.to_pandas(trades, what, [*shown, "fee_bps", "order_hash", *(names or [])])
    known = fills if own else convert.to_pandas(reference, what, ["created_at", "market", "price"])
    here, there = codes((fills, ["market"]), (known, ["market"]))
    price, prices = (integers(as_array(frame["price"])) for frame in (fills, known))
    there = np.where(_positive(prices), there, -1)
    at, moments = milliseconds(fills["created_at"]), milliseconds(known["created_at"])
    ahead = -1 if own and reference == "next" else 1  # time turned round finds the next one
    at = _end_of_order(fills["order_hash"], ahead * at) if own else at
    place = latest(at, here, ahead * moments, there, strictly=own, within=within)
    against = _taken(prices, place)
    cost = _relative(price, against) * _sign(fills["side"]) + 0.0
    fee = fills["fee_bps"].to_numpy(np.float64)
    rates = {"price_bps": cost, "fee_bps": fee, "all_in_bps": cost + fee}
    if names is not None:
        return _grouped(trades, fills, names, "unpriced", rates)
    return _rows(trades, fills[shown], {"reference_price": from_integers(against, adapters.WIDE)} | rates)


def _end_of_order(order: pd.Series, moments: np.ndarray) -> np.ndarray:
    """Give the earliest moment of each fill's order; its own where the order is not known."""
    own = pd.Series(moments)
    first = own.groupby(order.to_numpy(object)).transform("min")
    return first.where(order.notna().to_numpy(), own).to_numpy(np.int64)


def _positive(numbers: np.ndarray) -> np.ndarray:
    return np.array([number is not None and number > 0 for number in numbers], bool)


def _taken(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Take values at places; None where the place is -1."""
    found = np.full(len(place), None, object)
    found[place >= 0] = values[place[place >= 0]]
    return found


def _relative(price: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Give how much higher prices are, in basis points, each the nearest float64; NaN where not known."""
    pairs = zip(price, other, strict=True)
    return np.array([np.nan if a is None or not b else (a - b) * BPS / b for a, b in pairs], np.float64)


def _sign(side: pd.Series) -> np.ndarray:
    return np.select([side == "BUY", side == "SELL"], [1.0, -1.0], np.nan)


def _rows(trades: Any, shown: pd.DataFrame, found: dict[str, Any]) -> Any:
    table = convert.plain(pa.Table.from_pandas(shown, preserve_index=False))
    columns = {name: table[name] for name in table.column_names}
    floats = {n: pa.array(v, from_pandas=True) if isinstance(v, np.ndarray) else v for n, v in found.items()}
    return answer(trades, columns | floats)


def _grouped(
    trades: Any, fills: pd.DataFrame, keys: list[str], missing: str, rates: dict[str, np.ndarray]
) -> Any:
    """Count fills and those without the first rate, and take the rates' medians, in each group."""
    first = next(iter(rates))
    frame = fills[keys].astype(object).assign(**rates)
    grouped = frame.groupby(keys, dropna=False, sort=True) if keys else frame.groupby(np.zeros(len(frame)))
    found = grouped[list(rates)].median().add_prefix("median_") + 0.0
    counts = pd.DataFrame({"fills": grouped.size(), missing: grouped.size() - grouped[first].count()})
    whole = pd.concat([counts, found], axis=1).reset_index(drop=not keys)
    table = pa.Table.from_pandas(whole, preserve_index=False)
    return answer(trades, {name: table[name] for name in table.column_names})
