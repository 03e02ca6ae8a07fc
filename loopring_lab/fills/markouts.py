"""What fills and orders cost against the price before them, and what that price did afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from loopring_lab.arguments import parse_length, parse_tolerance
from loopring_lab.engine import sums
from loopring_lab.engine.ask import ask, given
from loopring_lab.engine.asof import asof_sql, time_sql, too_late_sql
from loopring_lab.engine.clusters import check_intervals
from loopring_lab.engine.estimates import names_of
from loopring_lab.engine.groups import bps_sql, keys_of, literal, several
from loopring_lab.engine.kinds import FrameT, Trades
from loopring_lab.engine.near import prices_near
from loopring_lab.engine.notes import BOTH_SIDES
from loopring_lab.engine.question import PLACE_BITS, Streamed
from loopring_lab.errors import LabError
from loopring_lab.fills.averages import with_average
from loopring_lab.fills.orders import STORAGE_ID
from loopring_lab.fills.prices import (
    OUTSIDE_PRICES,
    RESERVED,
    SHOWN,
    asked,
    kind_of_prices,
    noted,
    price_steps,
    question_of_prices,
    worse_sql,
)
from loopring_lab.fills.sides import ROLE_COLUMNS, role_steps

HORIZONS = ("10s", "1min", "5min", "1h")
MARKOUTS = ("effective_bps", "realized_bps", "impact_bps")
SHORTFALLS = ("shortfall_bps", "fee_bps", "all_in_bps")
ORDERS_SHOWN = (
    "order_hash",
    "account_id",
    "market",
    "side",
    "storage_id",
    "first",
    "last",
    "seconds_to_fill",
    "fills",
    "quote",
    "notional",
    "average_price",
    "arrival_price",
    "arrival_at",
    "both_sides",
    *SHORTFALLS,
    "reference",
)
# Columns of answers by group that no key may be called.
TAKEN = (*RESERVED, *names_of(*MARKOUTS, *SHORTFALLS))
Length = str | pd.Timedelta


def markouts(
    trades: Trades[FrameT],
    prices: Any = None,
    horizons: Sequence[Length] = HORIZONS,
    by: str | Sequence[str] | None = None,
    *,
    tolerance: Length | None = "1h",
    intervals: float = 0.95,
    cluster: str | None = None,
) -> FrameT:
    """Split what takers' fills cost into what they realized and their price impact, at fixed horizons.

    The effective cost is the distance of the fill's price from the price before it. Up to the horizon that
    price moves: by the impact in the direction of the fill, and the rest is the realized cost, which whoever
    took the other side has earned.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Only fills whose role is known to be taker count, as
        `with_roles` finds it.
    prices : frame of any of these kinds, optional
        Prices with ``created_at``, ``market`` and ``price``, such as minute closes of an outside market. By
        default `trades`, of either type, side and role.
    horizons : sequence of str or pandas.Timedelta
        Times after the fill.
    by : str or sequence of str, optional
        Aggregate by these columns; ``[]`` for all fills together.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the price before the fill, and of an outside price after it, at the horizon; None for any
        age. A trade before the fill is as old as it was at the first fill of the order.
    intervals : float
        Level of the intervals, between 0 and 1.
    cluster : {'account', 'day', 'week'}, optional
        What is taken to vary as one, as for `all_in_cost`.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per fill and horizon
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
    ``price_before`` is the last price at or before the fill, ``price_after`` the last one at or before fill and horizon
    that is later than the fill; where none lies in between, the fill is unpriced. So it is, with any `tolerance`, where
    two outside prices are less than half the horizon apart, as where some are missing: what they say is of a shorter
    one. Trades of this exchange count as before if they are older than the order's first fill, and as after if they are
    newer than its last: so neither is of the fill itself, its other side or another fill of its order, and where trades
    are rare the one after may be of long before the horizon. Minute closes price one in six fills at 10 seconds, over a
    span of nearly a minute: they say something from 1 minute on.

    These are not Rule 605's measures, which take twice the distance from the midpoint of the best bid and offer when
    the order is received. Here it is the distance itself, from the last trade or close, which may be as old as
    `tolerance` and lies on one side of the midpoint.

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
    0       amm    1min     56              30.557098
    1       amm      1h     56              31.199076
    2       dex    1min     39              28.551897
    3       dex      1h     39              28.922472
    """
    caller = "lab.fills.markouts"
    lengths = _parse_horizons(horizons, caller)
    fills = given(trades, caller)
    within = parse_tolerance(tolerance, caller)
    beside = prices_near(prices, fills, *lengths.values(), within=within)
    keys = keys_of(fills, by, *TAKEN)
    names = (*keys.names, "horizon")
    keys = replace(
        keys,
        names=names,
        added=("horizon",),
        order={**keys.order, "horizon": list(lengths)},
    )
    kind = kind_of_prices(beside, fills)
    is_later = "found_moment > ended"
    within_later = None
    if kind == OUTSIDE_PRICES:
        # Where a feed is out, the last price before the horizon is one of soon after the fill.
        is_later += f" AND (found_moment >> {PLACE_BITS}) - (moment_before >> {PLACE_BITS}) >= length / 2"
        # It is looked up from the millisecond after the horizon.
        within_later = None if within is None else within + 1
    roles, tables = role_steps(fills)
    named = [
        f"({number}, {literal(name)}, {lengths[name]})"
        for number, name in enumerate(lengths)
    ]
    steps = {
        **roles,
        "horizons": f"""
-- horizons in ms
SELECT *, horizon AS {keys.aliases[-1]}
FROM (VALUES {", ".join(named)}) AS h(number, horizon, length)""",
        "taken": Streamed("""
-- takers' fills, for each horizon
SELECT * FROM told CROSS JOIN horizons WHERE told_role = 'taker'"""),
        "counted_sides": """
-- those of whose fill there are several, as both sides of one may be: nearly none
SELECT *
FROM taken
WHERE trade_id IN (
    SELECT trade_id FROM told WHERE told_role = 'taker' GROUP BY trade_id HAVING count(*) > 1
)""",
        **price_steps(beside, "last", rows="told", kind=kind),
        "takers": "-- takers' fills\nSELECT *, began AS anchor FROM fills WHERE told_role = 'taker'",
        "before": asof_sql("takers", "last", within=within),
        "later": f"""
-- each of these once for each horizon, up to and including its last millisecond
SELECT b.* EXCLUDE (anchor, found_price, found_moment),
    found_price AS price_before,
    found_moment AS moment_before,
    h.*,
    {too_late_sql("ms", "length")} AS anchor
FROM before AS b
CROSS JOIN horizons AS h""",
        "after": asof_sql("later", "last", within=within_later),
        "priced": f"""
-- with the last price up to the horizon, if that is one after the order, and far enough from the one before it
SELECT *,
    {is_later} AS is_after,
    CASE WHEN is_after THEN found_price END AS price_after,
    CASE WHEN is_after THEN {time_sql("found_moment")} END AS after_at
FROM after""",
        "costs": f"""
-- the effective cost, and the realized cost and impact that it is the sum of
SELECT *,
    {worse_sql("price", "price_before")} AS effective_bps,
    {worse_sql("price", "price_after", "price_before")} AS realized_bps,
    {worse_sql("price_after", "price_before")} AS impact_bps
FROM priced""",
    }
    question = question_of_prices(
        caller,
        steps,
        (*SHOWN, *ROLE_COLUMNS),
        keys,
        shown=SHOWN,
        reach=within,
        later=max(lengths.values()),
    )
    return asked(
        question,
        fills,
        beside,
        MARKOUTS,
        by,
        intervals,
        cluster,
        shown=("horizon", "price_before", "price_after", "after_at"),
        order="ORDER BY number",
        kind=kind,
        tables=tables,
        sides="counted_sides",
        asked_about="taken",
    )


def shortfall(
    trades: Trades[FrameT],
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    *,
    tolerance: Length | None = "1h",
    intervals: float = 0.95,
    cluster: str | None = None,
) -> FrameT:
    """Compute the arrival cost of orders: their average price against the last price before their first fill.

    It is Perold's implementation shortfall without two of its parts, which trades do not show: the move of the price
    from the decision to the first fill, and what was never filled.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Orders of makers count too: filter by role to leave them out.
    prices : frame of any of these kinds, optional
        Prices with ``created_at``, ``market`` and ``price``, such as minute closes of an outside market, or
        the trades of all accounts. By default `trades`.
    by : str or sequence of str, optional
        Aggregate by these columns; ``[]`` for all orders together. An order whose fills differ in them
        counts in each group with that part of its fills.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the arrival price; None for any age.
    intervals : float
        Level of the intervals, between 0 and 1.
    cluster : {'account', 'day', 'week'}, optional
        What is taken to vary as one, as for `all_in_cost`.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per order
        ``order_hash``, ``account_id``, ``market``, ``side``, ``storage_id`` (of an order without a hash, as
        in `orders`), ``first`` and ``last`` (times of its fills), ``seconds_to_fill`` between them (float64),
        ``fills`` (the order's parts), ``quote``, ``notional`` (quote units), ``average_price`` (truncated to
        18 decimals), ``arrival_price`` and ``arrival_at`` (null where there is none), ``both_sides`` (0: an
        order has one), ``shortfall_bps`` (positive: worse for the account), ``fee_bps`` and ``all_in_bps``,
        their sum, in float64 basis points, and ``reference``, either ``outside prices`` or ``own trades``.
        Null where an amount of the order is unknown; ``fee_bps`` also where a fee's token is, or there are
        several. With `by`, one row per group: ``fills``, ``unpriced``
        (orders without one of the rates), ``orders``, the estimates of the three rates that
        `all_in_cost` describes, ``both_sides`` and ``median_seconds_to_fill``.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`.

    Notes
    -----
    The arrival price is the last one before the order's first fill, as the time when the exchange received the order
    is not known either; `prices` that are trades may hold an earlier fill of it than `trades`. Fills of an unknown
    order stand for themselves; one without a ``trade_id`` or ``side`` has no arrival price.

    References
    ----------
    A. F. Perold, "The implementation shortfall: paper versus reality", Journal of Portfolio Management 14
    (1988).

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> orders = lab.fills.shortfall(trades, client.outside_prices(trades))
    >>> orders.nlargest(2, "fills")[["fills", "seconds_to_fill", "average_price", "arrival_price"]]
        fills  seconds_to_fill             average_price     arrival_price
    57      5            0.031  45299.740082555985604572  45505.3070182694
    71      4            0.046      0.000572781593778306    0.000571096294
    """
    caller = "lab.fills.shortfall"
    fills = given(trades, caller)
    within = parse_tolerance(tolerance, caller)
    beside = prices_near(prices, fills, within=within)
    kind = kind_of_prices(beside, fills)
    keys = keys_of(fills, by, *TAKEN)
    fee_bps = bps_sql("sum(fee)", "sum(received)")
    # In ``costs`` `is_only` is FALSE: an order whose fills are of two sides has two rows there.
    steps = {
        **price_steps(beside, "last"),
        "filled": f"""
-- the fills of each order put together, by keys; amounts are unknown where one of a fill is, and the rate of its fee
-- too where one is in an unknown token
SELECT {keys.columns()}, order_id, market, side, order_hash, account_id,
    {STORAGE_ID} AS storage_id,
    min(trade_id) AS trade_id,
    min(began) AS anchor,
    min(created_at) AS first,
    max(created_at) AS last,
    min(ms) AS ms,
    (max(ms) - min(ms)) / 1000 AS seconds_to_fill,
    count(*) AS fills,
    CASE WHEN min(quote) = max(quote) THEN min(quote) END AS quote,
    count(*) FILTER (WHERE size IS NULL OR notional IS NULL OR fee IS NULL) = 0 AS is_known,
    CASE WHEN is_known THEN sum(notional) END AS known_notional,
    CASE WHEN is_known THEN nullif(sum(size), 0) END AS known_size,
    CASE WHEN is_known AND min(fee_token) = max(fee_token) AND count(received) = count(*)
        THEN {fee_bps} END AS fee_bps
FROM (SELECT *, {sums.RECEIVED} AS received FROM fills)
GROUP BY ALL""",
        "averages": with_average("filled"),
        "arrived": asof_sql("averages", "last", within=within),
        "compared": f"""
-- how much higher the average price is than that on arrival; below 18 decimals, its rest counts too
SELECT *,
    known_notional AS notional,
    average AS average_price,
    found_price AS arrival_price,
    {time_sql("found_moment")} AS arrival_at,
    10000 * ((average - found_price)::DOUBLE + rest / known_size)
        / found_price AS higher_bps
FROM arrived""",
        "costs": f"""
-- what each order cost, price and fee
SELECT *,
    FALSE AS is_only,
    0::BIGINT AS both_sides,
    {literal(kind)} AS reference,
    CASE side
        WHEN 'BUY' THEN higher_bps
        WHEN 'SELL' THEN 0 - higher_bps
    END AS shortfall_bps,
    shortfall_bps + fee_bps AS all_in_bps
FROM compared""",
    }
    needs = (*sums.NEEDS, *sums.SIDES, "price", "market", "order_hash", "account_id")
    question = question_of_prices(
        caller, steps, needs, keys, medians=("seconds_to_fill",), reach=within
    )
    if by is not None:
        return asked(
            question,
            fills,
            beside,
            SHORTFALLS,
            by,
            intervals,
            cluster,
            kind=kind,
            fills="fills",
        )
    check_intervals(intervals, cluster, caller)
    shown = ", ".join(ORDERS_SHOWN)
    steps["sums"] = f"-- each order\nSELECT {shown}, trade_id FROM costs"
    steps["pairs"] = sums.pairs_sql(keys)
    steps["answer"] = f"""
-- in order, with the number of fills of which both sides are there
SELECT {shown},
    (SELECT sum(fills)::BIGINT FROM pairs WHERE is_all) AS "{BOTH_SIDES}"
FROM sums
ORDER BY {", ".join(f"{name} NULLS LAST" for name in (*ORDERS_SHOWN[:6], "trade_id"))}"""
    question = replace(question, steps=steps, medians=())
    return noted(ask(question, fills, beside), kind, fills, beside)


def _parse_horizons(horizons: Any, caller: str) -> dict[str, int]:
    """Parse horizons as milliseconds, by their names."""
    given = several(horizons)
    lengths = {str(one): parse_length(one, caller, "horizons") for one in given}
    if not given or 0 in lengths.values() or len(set(lengths.values())) < len(given):
        raise LabError(
            f"{caller}: horizons={horizons!r} is empty, or has a length of 0 or one twice. Give each "
            "length once, such as ['1min', '1h']."
        )
    return lengths
