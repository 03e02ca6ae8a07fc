"""What fills and orders cost against the price before them, and what that price did afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import basis_points, divide, excess_bps
from loopring_lab.engines import windows
from loopring_lab.engines.adapters import TIMESTAMP, Key
from loopring_lab.engines.aggregate import (
    COLUMNS,
    GroupBy,
    PairedFills,
    aggregate,
    equal,
    result_frame,
    summary_columns,
)
from loopring_lab.engines.arrays import as_text
from loopring_lab.engines.asof import PriceHistory, around
from loopring_lab.engines.orders import moments_of, numbered_orders, sold_by_order
from loopring_lab.engines.windows import Window
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import (
    LOOKED_UP_BY,
    PRICES,
    Reference,
    cost_sign,
    estimated,
    keys_of_estimates,
    known_prices,
    needed_for,
    note_on_sides,
    rows_of,
)
from loopring_lab.fills.prices import SHOWN as FILLS_SHOWN
from loopring_lab.fills.sides import with_roles
from loopring_lab.fills.values import Values
from loopring_lab.query import parse_length, parse_tolerance

HORIZONS = ("10s", "1min", "5min", "1h")
ORDER_KEYS = ("order_hash", "account_id", "market", "side", "storage_id")
SHOWN = ("first", "last", "seconds_to_fill", "fills", "quote", "notional", "average_price")
MARKOUTS = ("effective_bps", "realized_bps", "impact_bps")
SHORTFALLS = ("shortfall_bps", "fee_bps", "all_in_bps")
Length = str | pd.Timedelta


def markouts(
    trades: Any,
    prices: Any = None,
    horizons: Sequence[Length] = HORIZONS,
    by: str | Sequence[str] | None = None,
    *,
    tolerance: Length | None = "1h",
    intervals: float = 0.95,
    seed: int = 0,
) -> Any:
    """Split what takers' fills cost into what they realized and their price impact, at fixed horizons.

    The effective cost is the distance of the fill's price from the price before it. Up to the horizon that
    price moves: by the impact in the direction of the fill, and the rest is the realized cost, which whoever
    took the other side has earned.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades` or `Archive.scan`. Only fills whose role is known to be taker count, as
        `with_roles` finds it.
    prices : frame of any of these engines, optional
        Prices with ``created_at``, ``market`` and ``price``, such as minute closes of an outside market. By
        default `trades`, of either type, side and role.
    horizons : sequence of str or pandas.Timedelta
        Times after the fill.
    by : str or sequence of str, optional
        Aggregate by these columns; ``[]`` for all fills together.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the price before the fill; None for any age.
    intervals, seed : float and int
        Level of the intervals, between 0 and 1, and seed of the bootstrap behind them.

    Returns
    -------
    frame of the same kind, one row per fill and horizon
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``quote``, ``notional``, ``price``,
        ``horizon``, ``price_before``, ``price_after``, ``after_at`` (the time of the latter),
        ``effective_bps``, ``realized_bps`` and ``impact_bps`` (float64, relative to ``price_before``;
        positive costs are the taker's), and ``reference``, either ``outside prices`` or ``own trades``. With
        `by`, one row per group and horizon: ``fills``, ``unpriced`` (without one of the two prices),
        ``orders``, the estimates of the three rates that `all_in_cost` describes, all over the same fills,
        and ``both_sides``.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`, or a horizon is not a length of time.

    Notes
    -----
    ``price_before`` is the last price at or before the fill, ``price_after`` the last one at or before fill
    and horizon that is later than the fill; where none lies in between, the fill is unpriced. Neither is ever
    of the fill itself, its other side or another fill of its order. Minute closes price one in six fills at
    10 seconds, over a span of nearly a minute: they say something from 1 minute on.

    Compare the horizons: a short one has not seen the whole impact, a long one adds noise. Horizons price
    different fills where prices are rare.

    References
    ----------
    SEC Rule 605 of Regulation NMS, as amended in 2024, weights effective and realized spreads by shares, the
    latter from 50 ms to 5 min after execution. B. Hagströmer, "Bias in the effective bid-ask spread", Journal
    of Financial Economics 142 (2021): a reference that leans to one side misleads. F. M. Bandi, C. Lian and
    J. R. Russell, "How effective are realized effective spreads?": too short a lag misses information, too
    long a one adds variance.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> prices = client.outside_prices(trades)
    >>> moved = lab.fills.markouts(trades, prices, ["1min", "1h"], by="fill_type")
    >>> moved[["fill_type", "horizon", "fills", "weighted_realized_bps"]]
      fill_type horizon  fills  weighted_realized_bps
    0       amm    1min     56              30.552529
    1       amm      1h     56              31.189933
    2       dex    1min     39              28.513574
    3       dex      1h     39              28.886312
    """
    caller = "lab.fills.markouts"
    names = keys_of_estimates(trades, by, caller, intervals, seed)
    lengths = _parse_horizons(horizons, caller)
    limit = parse_tolerance(tolerance, caller)
    label, values = Reference(prices, caller), Values()
    if names is not None:
        values = Values.of_frame(trades, caller, prices)
    parts = windows.over(
        with_roles(trades),
        caller,
        [*FILLS_SHOWN, "role", *needed_for(names)],
        LOOKED_UP_BY,
        prices=prices,
        price_columns=PRICES,
        keys=["market"],
        after=max(lengths.values()),
        counts=label.counts,
        work=partial(_moves, caller=caller, limit=limit, names=names, lengths=lengths, label=label),
    )
    if names is None:
        result = parts.frame(label.column)
        return label.noted(result, note_on_sides(result, caller))
    horizon = Key("horizon")
    horizon.order = [*lengths]
    columns, note = estimated(parts, values, [*names, horizon], MARKOUTS, intervals, seed)
    return label.noted(result_frame(trades, label.of_groups(columns)), note)


def shortfall(
    trades: Any,
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    *,
    tolerance: Length | None = "1h",
    intervals: float = 0.95,
    seed: int = 0,
) -> Any:
    """Compute the implementation shortfall of orders: their average price against the price on arrival.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades` or `Archive.scan`. Orders of makers count too: filter by role to leave them out.
    prices : frame of any of these engines, optional
        Prices with ``created_at``, ``market`` and ``price``, such as minute closes of an outside market, or
        the trades of all accounts. By default `trades`.
    by : str or sequence of str, optional
        Aggregate by these columns; ``[]`` for all orders together. An order whose fills differ in them
        counts in each group with that part of its fills.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the arrival price; None for any age.
    intervals, seed : float and int
        Level of the intervals, between 0 and 1, and seed of the bootstrap behind them.

    Returns
    -------
    frame of the same kind, one row per order
        ``order_hash``, ``account_id``, ``market``, ``side``, ``storage_id`` (of an order without a hash, as
        in `orders`), ``first`` and ``last`` (times of its fills), ``seconds_to_fill`` between them (float64),
        ``fills`` (the order's parts), ``quote``, ``notional`` (quote units), ``average_price`` (truncated to
        18 decimals), ``arrival_price`` and ``arrival_at`` (null where there is none), ``both_sides`` (0: an
        order has one), ``shortfall_bps`` (positive: worse for the account), ``fee_bps`` and ``all_in_bps``,
        their sum, in float64 basis points, and ``reference``, either ``outside prices`` or ``own trades``.
        Null where an amount of the order is unknown. With `by`, one row per group: ``fills``, ``unpriced``
        (orders without a shortfall), ``orders``, the estimates of the three rates that
        `all_in_cost` describes, ``both_sides`` and ``median_seconds_to_fill``.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`.

    Notes
    -----
    The arrival price is the last one before the order's first fill that is not of the order itself. When the
    order was decided on is not known: what the price moved from then to the first fill, and what was never
    filled, is missing. Fills of an unknown order stand for themselves.

    References
    ----------
    A. F. Perold, "The implementation shortfall: paper versus reality", Journal of Portfolio Management 14
    (1988).

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> orders = lab.fills.shortfall(trades, client.outside_prices(trades))
    >>> orders.nlargest(2, "fills")[["fills", "seconds_to_fill", "average_price", "arrival_price"]]
        fills  seconds_to_fill             average_price             arrival_price
    57      5            0.031  45299.740082555985604572  45505.307018269400000000
    71      4            0.046      0.000572781593778306      0.000571096294000000
    """
    caller = "lab.fills.shortfall"
    names = keys_of_estimates(trades, by, caller, intervals, seed)
    limit = parse_tolerance(tolerance, caller)
    label = Reference(prices, caller)
    parts = windows.over(
        trades,
        caller,
        [*COLUMNS, "trade_id", *ORDER_KEYS[:-1], *(names or [])],
        LOOKED_UP_BY,
        prices=prices,
        price_columns=PRICES,
        keys=["market"],
        placed_by="first",
        counts=label.counts,
        work=partial(_shortfalls, caller=caller, limit=limit, names=names, label=label),
    )
    if names is None:
        return label.noted(parts.frame(label.column), note_on_sides(trades, caller))
    orders = pa.concat_tables(parts, promote_options="permissive")
    columns, _ = estimated([orders], Values([orders], prices), names, SHORTFALLS, intervals, seed)
    groups, paired = GroupBy(orders, names), PairedFills(trades, caller)
    seconds = orders["seconds_to_fill"].to_pandas()
    columns |= {
        "fills": groups.sum("fills"),
        "median_seconds_to_fill": pa.array(seconds.groupby(groups.ids).median(), from_pandas=True),
        "both_sides": paired.count(groups),
    }
    return label.noted(result_frame(trades, label.of_groups(columns)), paired.note)


def _parse_horizons(horizons: Any, caller: str) -> dict[str, int]:
    """Parse horizons as milliseconds, by their names."""
    several = isinstance(horizons, Iterable) and not isinstance(horizons, str)
    given = [*horizons] if several else [horizons]
    lengths = {str(one): parse_length(one, caller, "horizons") for one in given}
    if not given or 0 in lengths.values() or len({*lengths.values()}) < len(given):
        raise LabError(
            f"{caller}: horizons={horizons!r} is empty, or has a length of 0 or one twice. Give each "
            "length once, such as ['1min', '1h']."
        )
    return lengths


def _moves(
    window: Window,
    caller: str,
    limit: int | None,
    names: list[str] | None,
    lengths: dict[str, int],
    label: Reference,
) -> pa.Table:
    """Split the cost of takers' fills of a window, once for each horizon."""
    takers = np.flatnonzero(window.inside & equal(as_text(window.rows["role"]), "taker"))
    times, moments = moments_of(window.rows), moments_of(window.rows)[takers]
    near = [around(moments, limit, max(lengths.values())), around(times)]
    history = PriceHistory(window.prices, caller, near=near)
    lookup = history.lookup(window.rows).of(takers)
    before = lookup.before(moments, within=limit)
    afters = [lookup.before(moments + length, newer_than=moments) for length in lengths.values()]
    before, after = np.repeat(before, len(lengths)), np.stack(afters, axis=1).ravel()
    needed = [*FILLS_SHOWN[1:], "moment"] if names is None else window.rows.column_names
    fills = window.rows.select(needed).take(pa.array(np.repeat(takers, len(lengths))))
    fills = fills.append_column("horizon", pa.array([*lengths] * len(takers), pa.string()))
    used = {
        "price_before": history.take(before),
        "price_after": history.take(after),
        "after_at": history.take_times(after),
    }
    rates = _split_cost(fills, used["price_before"], used["price_after"])
    if names is not None:  # all rates over the same fills
        unpriced = np.isnan(rates["effective_bps"] + rates["realized_bps"])
        rates = {name: np.where(unpriced, np.nan, values) for name, values in rates.items()}
    found = rows_of(fills, [*FILLS_SHOWN, "horizon"], used, rates, names)
    return label.counted(found, history, window)


def _shortfalls(
    window: Window, caller: str, limit: int | None, names: list[str] | None, label: Reference
) -> pa.Table:
    """Compare the orders that began in a window with the prices on their arrival."""
    rows, history = window.with_prices(
        caller, near=lambda rows: [around(moments_of(rows, "first"), limit), around(moments_of(rows))]
    )
    orders = _orders(window.own(rows), names or [], caller)
    arrived = orders["arrived"].to_numpy()
    arrival = history.lookup(orders).before(arrived, strictly=True, within=limit)
    prices = history.take(arrival)
    worse = excess_bps(orders["notional"], orders["volume"], prices) * cost_sign(orders)
    fee = orders["bps"].fill_null(np.nan).to_numpy()
    rates = dict(zip(SHORTFALLS, (worse + 0.0, fee, worse + fee), strict=True))
    arrivals = {
        "arrival_price": prices,
        "arrival_at": history.take_times(arrival),
        "both_sides": pa.array(np.zeros(len(orders), np.int64)),  # an order is of one side
    }
    needed = None if names is None else [*names, "fills", "seconds_to_fill", "base", "price"]
    found = rows_of(orders, [*ORDER_KEYS, *SHOWN], arrivals, rates, needed)
    return label.counted(found, history, window)


def _split_cost(fills: pa.Table, before: pa.Array, after: pa.Array) -> dict[str, np.ndarray]:
    """Return the effective cost, and the realized cost and impact that it is the sum of."""
    sign, prices = cost_sign(fills), known_prices(fills)
    return {
        "effective_bps": basis_points(prices, before) * sign + 0.0,
        "realized_bps": basis_points(prices, after, before) * sign + 0.0,
        "impact_bps": basis_points(after, before) * sign + 0.0,
    }


def _orders(fills: pa.Table, names: list[str], caller: str) -> pa.Table:
    """Put fills together into orders: exact sums, and ``arrived``, the time of the order's first fill."""
    (numbers,) = numbered_orders(fills)
    unknown = numbers < 0
    numbers = np.where(unknown, numbers.max(initial=-1) + 1 + np.arange(len(fills)), numbers)
    itself = pc.if_else(pa.array(unknown), fills["trade_id"], pa.scalar(None, fills["trade_id"].type))
    added = {
        "number": pa.array(numbers),
        "trade_id": itself,
        "arrived": fills["first"],
        "created_at": fills["moment"].cast(TIMESTAMP),
    }
    added |= {name: column for name, column in sold_by_order(fills).items() if name not in names}
    keys = list(dict.fromkeys([*ORDER_KEYS, "token_id", *names, "arrived", "trade_id", "number"]))
    table = pa.table({name: fills[name] for name in fills.column_names} | added)
    groups = GroupBy(aggregate(table.drop_columns("moment"), keys, caller), keys)
    sums = summary_columns(groups)
    complete = pc.equal(sums["unknown"], 0)
    first, last = groups.aggregate("first", "min"), groups.aggregate("last", "max")
    for name in ("notional", "volume", "bps"):
        sums[name] = pc.if_else(complete, sums[name], pa.scalar(None, sums[name].type))
    average = divide(sums["notional"], sums["volume"])
    times = {
        "first": first.cast(TIMESTAMP),
        "last": last.cast(TIMESTAMP),
        "moment": first,
        "seconds_to_fill": pc.divide(pc.subtract(last, first).cast(pa.float64()), 1000.0),
    }
    return pa.table(groups.key_columns() | sums | times | {"average_price": average, "price": average})
