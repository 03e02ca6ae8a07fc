"""The AMM pool against the order book, like with like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import floats
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import group_keys
from loopring_lab.engines.aggregate import GroupBy, equal, numbers_of_quantiles
from loopring_lab.engines.arrays import NAT, as_text
from loopring_lab.engines.asof import ORDER, PriceHistory, order_span, parse_length
from loopring_lab.errors import LabError
from loopring_lab.fills.intervals import (
    FEWEST,
    add_up,
    check_sampling,
    interval,
    order_keys,
    resampled,
    to_resample,
    values_in_one_token,
)
from loopring_lab.fills.prices import cost_sign, linked, relative_bps, with_reference
from loopring_lab.fills.sides import one_side, with_roles
from loopring_lab.tables.rows import FILL_TYPES

SIZE_CLASSES = 5
CELL = ("market", "side", "size_class")
READ = (
    *("created_at", "trade_id", "order_hash", "market", "base", "quote", "side", "fill_type", "role"),
    *("size", "price", "notional", "fee_bps"),
)
RESULTS = (
    *("fills", "orders", "matched_share", "pool_bps", "book_bps", "difference_bps", "low_bps", "high_bps"),
    *("fee_difference_bps", "price_difference_bps", "by_order_bps", "verdict"),
)


def compare_venues(
    trades: Any,
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    horizon: str | pd.Timedelta = "1min",
    intervals: float = 0.95,
    seed: int = 0,
) -> Any:
    """Compare what takers paid at the AMM pool and on the order book, like with like.

    A fill costs its fee plus how much worse its price is than a reference, the last price at or before the
    end of its order plus `horizon`. Fills are compared within cells of the same market, side and size class,
    a quintile of ``size`` among takers' fills in the market. The fills of cells with both venues are the
    matched ones. A cell's difference, pool minus book, weights its fills by value; the overall difference
    weights cells by the value of all their fills.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`. Each fill counts once, from its taker's side. Fills whose taker `with_roles`
        cannot tell are left out; a note in ``attrs["notes"]`` counts them.
    prices : frame of pandas, pyarrow or Polars, optional
        Prices from outside the exchange, such as minute closes: ``created_at``, ``market``, ``price``. The
        reference is at most `horizon` older than the end of the order. By default `trades`: the reference is
        then a trade after the end of the order that is not its own.
    by : str or sequence of str, optional
        Columns to group by; only fills of the same group are compared.
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count. What the market does in that time adds noise.
    intervals, seed : float and int
        Confidence level of ``low_bps`` and ``high_bps``, between 0 and 1, and seed of their bootstrap.

    Returns
    -------
    frame of the same kind, one row per group
        `by`; ``fills`` and ``orders``, those matched; ``matched_share`` of the takers' fills (0 to 1);
        ``pool_bps`` and ``book_bps``, all-in costs; ``difference_bps``, pool minus book, from ``low_bps`` to
        ``high_bps``; its parts ``fee_difference_bps`` and ``price_difference_bps``; ``by_order_bps``, the
        difference if all orders weigh the same; ``verdict``, the cheaper venue: ``pool``, ``book`` or
        ``undecided``; ``reference``, ``outside prices`` or ``own trades``. Float64 basis points, null where
        nothing matches; the interval is null with fewer than 20 orders at a venue.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`, or `horizon`, `intervals` or `seed` is not valid.

    Notes
    -----
    Intervals are percentiles of a Poisson bootstrap of whole orders; a verdict needs one without 0. Trades of
    this exchange as reference, also in `prices`, carry the cost of their own venue: the interval covers
    sampling only, and the difference is pulled towards 0, at times beyond it. A verdict then needs an
    interval that is farther from 0 than the fills are, on average, from their references. Values in several
    quote tokens are converted at the prices nearest in time.

    References
    ----------
    Barbon and Ranaldo, "On the Quality of Cryptocurrency Markets: Centralized versus Decentralized
    Exchanges", 2021, on costs by venue and size; Hagströmer, "Bias in the effective bid-ask spread", Journal
    of Financial Economics, 2021, on references that are biased.

    Examples
    --------
    >>> import pandas as pd
    >>> trades = client.trades(account_id=10083, market="LRC-ETH")
    >>> outside = lab.fills.compare_venues(trades, client.outside_prices(trades))
    >>> own = lab.fills.compare_venues(trades)
    >>> pd.concat([outside, own])[["verdict", "reference"]]
         verdict       reference
    0       pool  outside prices
    0  undecided      own trades
    """
    caller = "fills.compare_venues"
    names = _keys(by, caller, trades)
    length = parse_length(horizon, caller, "horizon")
    if not length:
        raise LabError(f"{caller}: horizon={horizon!r} leaves no time for a price. Give one such as '1min'.")
    check_sampling(intervals, seed, caller)
    history = PriceHistory(trades if prices is None else prices, caller)
    fills, left_out = _takers_fills(trades, caller, names)
    if len(fills) and len(history) and not (history.codes(fills) >= 0).any():
        raise LabError(f"{caller}: prices= has no price of a market in trades. Give prices of those markets.")
    groups = GroupBy(fills, names)
    costs = _costs(fills, history, length, linked(prices))
    costs = costs.assign(group=groups.ids, cell=GroupBy(fills, [*names, *CELL]).ids)
    compared = _compared(_matched(costs), groups.count, intervals, seed, history.is_trades)
    compared["matched_share"] = compared["fills"] / np.bincount(groups.ids, minlength=groups.count)
    found = {name: pa.array(compared[name], from_pandas=True) for name in RESULTS}
    result = with_reference(trades, groups.key_columns() | found, history)
    fills_are = "1 fill is" if left_out == 1 else f"{left_out:,} fills are"
    return convert.with_note(result, f"{fills_are} left out: taker or type unknown." if left_out else "")


def _keys(by: str | Sequence[str] | None, caller: str, trades: Any) -> list[str]:
    names = group_keys(by, caller, *RESULTS, "reference", "size_class", frame=trades)
    if "fill_type" in names:
        raise LabError(f"{caller}: by= cannot include 'fill_type', whose values are compared. Leave it out.")
    return names


def _takers_fills(trades: Any, caller: str, names: Sequence[str]) -> tuple[pa.Table, int]:
    """Read each fill once whose type and taker are known, with its ``size_class``; also count the others."""
    fills = convert.to_table(one_side(with_roles(trades)), caller, [*READ, *names], ORDER)
    is_typed = np.asarray(pc.is_in(as_text(fills["fill_type"]), pa.array(FILL_TYPES)))
    taken = is_typed & equal(fills["role"], "taker")
    left_out = len(fills) - np.count_nonzero(taken | (is_typed & equal(fills["role"], "maker")))
    fills = fills.filter(pa.array(taken))
    markets, sized = GroupBy(fills, ["market"]).ids, floats(fills["size"]) > 0
    classes = numbers_of_quantiles(fills["size"], markets, sized, SIZE_CLASSES)
    return fills.append_column("size_class", pa.array(classes)), int(left_out)


def _costs(fills: pa.Table, history: PriceHistory, length: int, pairs: list[pa.Table]) -> pd.DataFrame:
    """Return the venue, order, value and cost of each fill."""
    end, lookup = order_span(fills)[1], history.lookup(fills)
    until = np.where(end == NAT, NAT, end + length)
    if history.is_trades:
        places = lookup.before(until, newer_than=end)
    else:
        places = lookup.before(until, within=2 * length)
    price = relative_bps(fills, history.take(places)) * cost_sign(fills)
    fee = fills["fee_bps"].fill_null(np.nan).to_numpy()
    value = values_in_one_token(fills, fills, *pairs)
    columns = {
        "pool": equal(fills["fill_type"], FILL_TYPES[0]).astype(np.int64),
        "order": order_keys(fills),
        "value": np.where(fills["size_class"].to_numpy() < 0, np.nan, value),
        "cost": price + fee,
        "fee": fee,
        "distance": np.abs(price),
    }
    return pd.DataFrame(columns)


def _matched(costs: pd.DataFrame) -> pd.DataFrame:
    """Keep the fills of known cost in cells that have some at both venues, and number these cells."""
    costs = costs[costs.notna().all(axis=1) & (costs["value"] > 0)]
    venues = costs.groupby("cell")["pool"].transform("nunique")
    found = costs[venues == 2].sort_values([*costs.columns], ignore_index=True)
    found["cell"] = np.unique(found["cell"], return_inverse=True)[1]
    return found


def _compared(fills: pd.DataFrame, count: int, level: float, seed: int, own: bool) -> dict[str, Any]:
    """Compare the venues in each of `count` groups of matched fills."""
    names = ("group", "cell", "pool", "order", "value", "cost", "fee", "distance")
    group, cell, venue, orders, value, cost, fee, distance = (fills[name].to_numpy() for name in names)
    slots = cell * 2 + venue
    cell_groups = fills.drop_duplicates("cell").sort_values("cell")["group"].to_numpy()
    book, pool = _at_venues(slots, value, value * cost, cell_groups, count)
    fee_gap = np.diff(_at_venues(slots, value, value * fee, cell_groups, count), axis=0)[0]
    _, order_slots, (values, products) = add_up(orders, slots, value, value * cost)
    each = _at_venues(order_slots, np.ones(len(values)), products / values, cell_groups, count)
    counts = np.bincount(add_up(orders, group * 2 + venue)[1], minlength=2 * count).reshape(-1, 2)
    low, high = np.full((2, count), np.nan)
    for number in np.flatnonzero((counts >= FEWEST).all(axis=1)):
        low[number], high[number] = interval(_draws(fills[group == number], seed), level)
    margin = _ratio(*(np.bincount(group, x, count) for x in (value * distance, value))) if own else 0.0
    verdict = np.select([high < -margin, low > margin], ["pool", "book"], "undecided")
    return {
        "fills": np.bincount(group, minlength=count),
        "orders": counts.sum(axis=1),
        "pool_bps": pool,
        "book_bps": book,
        "difference_bps": pool - book,
        "low_bps": low,
        "high_bps": high,
        "fee_difference_bps": fee_gap,
        "price_difference_bps": pool - book - fee_gap,
        "by_order_bps": each[1] - each[0],
        "verdict": pa.array(verdict, pa.string()),
    }


def _at_venues(
    slots: np.ndarray, weights: np.ndarray, products: np.ndarray, cell_groups: np.ndarray, count: int
) -> np.ndarray:
    """Return the mean cost at the book and at the pool in each group, of the same mix of cells."""
    weight, product = (
        np.bincount(slots, x, 2 * len(cell_groups)).reshape(-1, 2) for x in (weights, products)
    )
    cells = weight.sum(axis=1)
    total = np.bincount(cell_groups, cells, count)
    means = (product / weight).T
    return np.array([_ratio(np.bincount(cell_groups, cells * mean, count), total) for mean in means])


def _draws(fills: pd.DataFrame, seed: int) -> np.ndarray:
    """Return the difference of one group in every draw; a cell counts where both venues are drawn."""
    cells = np.unique(fills["cell"], return_inverse=True)[1]
    names = ("pool", "order", "value", "cost")
    venue, orders, value, cost = (fills[name].to_numpy() for name in names)
    units, slots, sums = add_up(to_resample(orders), cells * 2 + venue, value, value * cost)
    weight, product = resampled(units, slots, sums, 2 * (int(cells.max()) + 1), seed)
    weight, product = (x.reshape(len(x), -1, 2) for x in (weight, product))
    means = _ratio(product, weight)
    there = (weight > 0).all(axis=2)
    cell = np.where(there, weight.sum(axis=2), 0.0)
    gaps = np.where(there, means[:, :, 1] - means[:, :, 0], 0.0)
    return _ratio((cell * gaps).sum(axis=1), cell.sum(axis=1))


def _ratio(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Divide; NaN where the denominator is 0."""
    return np.asarray(numerators / np.where(denominators == 0, np.nan, denominators) + 0.0)
