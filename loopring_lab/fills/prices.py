"""Prices of fills compared with the other fill type's, or with a reference price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import is_positive, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import equal, result_frame
from loopring_lab.engines.asof import (
    NAT,
    Lookup,
    PriceHistory,
    as_text,
    moments_of,
    order_span,
    parse_tolerance,
)
from loopring_lab.errors import LabError

BPS = 10_000
FILL_TYPES = ("amm", "dex")
IDENTITY = ("trade_id", "order_hash")


def price_gap(
    trades: Any,
    tolerance: str | pd.Timedelta | None = "1h",
    by: str | Sequence[str] | None = None,
    *,
    prices: Any = None,
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
    fills = convert.to_table(trades, caller, [*shown, *(names or [])], IDENTITY)
    fills = fills.filter(pc.is_in(as_text(fills["fill_type"]), pa.array(FILL_TYPES)))
    history = PriceHistory(trades if prices is None else prices, caller, ("market", "side", "fill_type"))
    other_type = pc.if_else(equal(fills["fill_type"], FILL_TYPES[0]), *reversed(FILL_TYPES))
    rows = fills.set_column(fills.column_names.index("fill_type"), "fill_type", other_type)
    other = history.lookup(rows).before(moments_of(fills), within=limit)
    other[~is_positive(to_integers(fills["price"]))] = -1
    gap = relative_bps(fills, history.integers(other))
    rates = {"gap_bps": gap, "worse_bps": gap * cost_sign(fills) + 0.0}
    if names is not None:
        keys = list(dict.fromkeys([*names, "fill_type"]))
        return _medians(trades, fills, keys, "unmatched", rates)
    times = history.times_at(other)
    columns = {
        "other_price": history.take(other),
        "other_at": pa.array(times, TIMESTAMP, mask=times == NAT),
    }
    return _rows(trades, fills, shown, columns, rates)


def all_in_cost(
    trades: Any,
    reference: Any = "next",
    tolerance: str | pd.Timedelta | None = "1h",
    by: str | Sequence[str] | None = None,
    *,
    prices: Any = None,
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
    if not isinstance(reference, str) and prices is not None:
        raise LabError(f"{caller}: reference= and prices= are both frames. Give one of them.")
    shown = ["created_at", "trade_id", "market", "side", "fill_type", "quote", "notional", "price"]
    needed = [*shown, "fee_bps", "order_hash", *(names or [])]
    fills = convert.to_table(trades, caller, needed)
    source = reference if not isinstance(reference, str) else trades if prices is None else prices
    history = PriceHistory(source, caller)
    positions = _reference_positions(history.lookup(fills), fills, reference, limit)
    cost = relative_bps(fills, history.integers(positions)) * cost_sign(fills) + 0.0
    fee = fills["fee_bps"].fill_null(np.nan).to_numpy()
    rates = {"price_bps": cost, "fee_bps": fee, "all_in_bps": cost + fee}
    if names is not None:
        return _medians(trades, fills, names, "unpriced", rates)
    return _rows(trades, fills, shown, {"reference_price": history.take(positions)}, rates)


def _reference_positions(lookup: Lookup, fills: pa.Table, reference: Any, limit: int | None) -> np.ndarray:
    first, last = order_span(fills)
    if not isinstance(reference, str):
        return lookup.before(moments_of(fills), within=limit)
    if reference == "next":
        return lookup.after(last, within=limit)
    return lookup.before(first, strictly=True, within=limit)


def relative_bps(fills: pa.Table, references: np.ndarray) -> np.ndarray:
    """Return how much higher prices are than references in basis points, correctly rounded, or NaN."""
    pairs = zip(to_integers(fills["price"]), references, strict=True)
    return np.array(
        [np.nan if b is None or a is None or a <= 0 else (a - b) * BPS / b for a, b in pairs], np.float64
    )


def cost_sign(fills: pa.Table) -> np.ndarray:
    """Return 1 where a higher price costs the account more, -1 where it earns more."""
    return np.select([equal(fills["side"], "BUY"), equal(fills["side"], "SELL")], [1.0, -1.0], np.nan)


def _rows(
    trades: Any, fills: pa.Table, shown: list[str], columns: dict[str, Any], rates: dict[str, np.ndarray]
) -> Any:
    fills = fills.append_column("created_at", fills["moment"].cast(TIMESTAMP))
    floats = {name: pa.array(values, from_pandas=True) for name, values in rates.items()}
    return result_frame(trades, {name: fills[name] for name in shown} | columns | floats)


def _medians(
    trades: Any, fills: pa.Table, keys: list[str], missing: str, rates: dict[str, np.ndarray]
) -> Any:
    """Count the fills of each group, and those without the first rate, and take the rates' medians."""
    frame = fills.select(keys).to_pandas().astype(object).assign(**rates)
    groups = frame.groupby(keys or np.zeros(len(frame)), dropna=False, sort=True)
    sizes = groups.size()
    counts = pd.DataFrame({"fills": sizes, missing: sizes - groups[next(iter(rates))].count()})
    medians = groups[list(rates)].median().add_prefix("median_") + 0.0
    result = pd.concat([counts, medians], axis=1).reset_index(drop=not keys)
    return result_frame(trades, pa.Table.from_pandas(result, preserve_index=False))
