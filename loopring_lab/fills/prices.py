"""Prices of fills compared with the other fill type's, or with a reference price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.scaling import as_array, from_integers, is_positive, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import DECIMAL_256, TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import result_frame
from loopring_lab.engines.asof import NAT, as_of, milliseconds, parse_tolerance
from loopring_lab.errors import LabError

BPS = 10_000
FILL_TYPES = ("amm", "dex")


def price_gap(
    trades: Any, tolerance: str | pd.Timedelta | None = "60s", by: str | Sequence[str] | None = None
) -> Any:
    """Compare each fill's price with the nearest earlier fill of the other type in its market and side.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`; combining several accounts gives more pairs.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the other fill; None for any age. A fill in the same millisecond counts as earlier.
    by : str or sequence of str, optional
        Aggregate by these columns and ``fill_type``; ``[]`` for ``fill_type`` alone.

    Returns
    -------
    frame of the same kind, one row per fill of known type
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``price``, ``other_price`` and
        ``other_at`` (null where unmatched), ``gap_bps``, how much higher the price is than the other, and
        ``worse_bps``, the same as a cost to the account, which paid more or received less. Float64 basis
        points. With `by`, one row per group: ``fills``, ``unmatched``, ``median_gap_bps`` and
        ``median_worse_bps``.

    Raises
    ------
    LabError, AmountError
        As for `fees.with_tiers`, or `tolerance` is not valid.

    Examples
    --------
    >>> trades = client.trades(account_id=71468)
    >>> gaps = lab.fills.price_gap(trades, tolerance="10min")
    >>> gaps[["side", "price", "other_price", "worse_bps"]].dropna().tail(2)
         side                 price           other_price  worse_bps
    147   BUY  0.000612310000000000  0.000612900000000000  -9.626366
    149  SELL  0.000609850000000000  0.000612090000000000  36.595925
    """
    caller = "fills.price_gap"
    names = None if by is None else group_keys(by, caller)
    limit = parse_tolerance(tolerance, caller)
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "price"]
    fills = convert.to_pandas(trades, caller, [*shown, *(names or [])])
    fills = fills[fills["fill_type"].isin(FILL_TYPES)].reset_index(drop=True)
    times, prices = milliseconds(fills["created_at"]), to_integers(as_array(fills["price"]))
    rows = fills[["market", "side"]].assign(time=np.where(is_positive(prices), times, NAT))
    other = np.full(len(fills), -1, np.int64)
    for fill_type in FILL_TYPES:
        own = (fills["fill_type"] == fill_type).to_numpy()
        others = np.flatnonzero(~own)
        other[own] = np.append(others, -1)[as_of(rows[own], rows[~own], tolerance=limit)]
    gap = _gap_bps(prices, _take(prices, other))
    rates = {"gap_bps": gap, "worse_bps": gap * _cost_sign(fills["side"]) + 0.0}
    if names is not None:
        keys = list(dict.fromkeys([*names, "fill_type"]))
        return _medians(trades, fills, keys, "unmatched", rates)
    columns = {
        "other_price": from_integers(_take(prices, other), DECIMAL_256),
        "other_at": pa.array(_take(times, other).tolist(), TIMESTAMP),
    }
    return _rows(trades, fills[shown], columns, rates)


def all_in_cost(
    trades: Any,
    reference: Any = "next",
    tolerance: str | pd.Timedelta | None = "1h",
    by: str | Sequence[str] | None = None,
) -> Any:
    """Compute the all-in cost of fills: the fee plus the difference from a reference price.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    reference : 'next', 'last', or frame of pandas, pyarrow or Polars
        ``'next'``: the first trade in the market after the fill's order completes, which shows what the
        position turned out to be worth (a markout). ``'last'``: the last trade before the order's first
        fill, its arrival price; where trades are rare this is stale, and makes fills that react to price
        moves, such as those at a pool, look more expensive. Both use trades of either type and side, never
        at the same time. A frame: prices with ``created_at``, ``market`` and ``price``; the last one at or
        before the fill is used.
    tolerance : str or pandas.Timedelta, optional
        Maximum distance in time of the reference; None for any distance.
    by : str or sequence of str, optional
        Aggregate by these columns; ``[]`` for all fills together.

    Returns
    -------
    frame of the same kind, one row per fill
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``quote``, ``notional``,
        ``price``, ``reference_price``, ``price_bps`` (positive: worse for the account), ``fee_bps`` and
        ``all_in_bps``, their sum; float64 basis points, null without a reference. With `by`, one row per
        group: ``fills``, ``unpriced`` and the medians ``median_price_bps``, ``median_fee_bps`` and
        ``median_all_in_bps`` of the fills that have them.

    Raises
    ------
    LabError, AmountError
        As for `price_gap`, or `reference` is not valid.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> costs = lab.fills.all_in_cost(trades, by="fill_type")
    >>> costs[["fill_type", "median_fee_bps", "median_all_in_bps"]]
      fill_type  median_fee_bps  median_all_in_bps
    0       amm             8.0           7.380183
    1       dex            20.0          26.620762
    """
    caller = "fills.all_in_cost"
    names = None if by is None else group_keys(by, caller)
    limit = parse_tolerance(tolerance, caller)
    if isinstance(reference, str) and reference not in ("next", "last"):
        raise LabError(
            f"{caller}: reference={reference!r} is not known. Give 'next', 'last', or a frame of prices."
        )
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "quote", "notional", "price"]
    fills = convert.to_pandas(trades, caller, [*shown, "fee_bps", "order_hash", *(names or [])])
    prices = to_integers(as_array(fills["price"]))
    references = _reference_prices(fills, prices, reference, limit, caller)
    cost = _gap_bps(prices, references) * _cost_sign(fills["side"]) + 0.0
    fee = fills["fee_bps"].to_numpy(np.float64)
    rates = {"price_bps": cost, "fee_bps": fee, "all_in_bps": cost + fee}
    if names is not None:
        return _medians(trades, fills, names, "unpriced", rates)
    return _rows(trades, fills[shown], {"reference_price": from_integers(references, DECIMAL_256)}, rates)


def _reference_prices(
    fills: pd.DataFrame, prices: np.ndarray, reference: Any, limit: int | None, caller: str
) -> np.ndarray:
    """Return the reference price of each fill as an unscaled integer; None where there is none."""
    rows = fills[["market"]].assign(time=milliseconds(fills["created_at"]))
    if not isinstance(reference, str):
        frame = convert.to_pandas(reference, caller, ["created_at", "market", "price"])
        known_prices = to_integers(as_array(frame["price"]))
        known = frame[["market"]].assign(time=milliseconds(frame["created_at"]))
        known["time"] = known["time"].where(is_positive(known_prices), NAT)
        return _take(known_prices, as_of(rows, known, tolerance=limit))
    known = rows.assign(time=rows["time"].where(is_positive(prices), NAT))
    if reference == "next":
        rows["time"] = _over_order(fills["order_hash"], rows["time"], "max")
        return _take(prices, as_of(rows, known, direction="forward", same_time=False, tolerance=limit))
    rows["time"] = _over_order(fills["order_hash"], rows["time"], "min")
    return _take(prices, as_of(rows, known, same_time=False, tolerance=limit))


def _over_order(orders: pd.Series, times: pd.Series, how: Literal["min", "max"]) -> pd.Series:
    """Return the first or last time of each fill's order; the fill's own where its order is unknown."""
    known = times.where(times != NAT)
    edges = known.groupby(orders.to_numpy(object)).transform(how, skipna=False)
    return edges.where(orders.notna(), known).fillna(NAT).astype(np.int64)


def _take(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Take values at positions; None where the position is -1."""
    taken = np.full(len(positions), None, object)
    taken[positions >= 0] = values[positions[positions >= 0]]
    return taken


def _gap_bps(prices: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return how much higher prices are in basis points, correctly rounded; NaN where one is unknown."""
    pairs = zip(prices, others, strict=True)
    return np.array([np.nan if a is None or not b else (a - b) * BPS / b for a, b in pairs], np.float64)


def _cost_sign(side: pd.Series) -> np.ndarray:
    """Return 1 where a higher price costs the account more, -1 where it earns more."""
    return np.select([side == "BUY", side == "SELL"], [1.0, -1.0], np.nan)


def _rows(
    trades: Any, fills: pd.DataFrame, columns: dict[str, pa.Array], rates: dict[str, np.ndarray]
) -> Any:
    table = convert.normalize(pa.Table.from_pandas(fills, preserve_index=False))
    floats = {name: pa.array(values, from_pandas=True) for name, values in rates.items()}
    return result_frame(trades, {name: table[name] for name in table.column_names} | columns | floats)


def _medians(
    trades: Any, fills: pd.DataFrame, keys: list[str], missing: str, rates: dict[str, np.ndarray]
) -> Any:
    """Count the fills of each group, and those without the first rate, and take the rates' medians."""
    frame = fills[keys].astype(object).assign(**rates)
    groups = frame.groupby(keys or np.zeros(len(frame)), dropna=False, sort=True)
    sizes = groups.size()
    counts = pd.DataFrame({"fills": sizes, missing: sizes - groups[next(iter(rates))].count()})
    medians = groups[list(rates)].median().add_prefix("median_") + 0.0
    result = pd.concat([counts, medians], axis=1).reset_index(drop=not keys)
    return result_frame(trades, pa.Table.from_pandas(result, preserve_index=False))
