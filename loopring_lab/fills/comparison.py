"""The AMM pool against the order book, like with like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from loopring_lab.engine.ask import ask, counts
from loopring_lab.engine.asof import asof_sql, prices_sql, spans_sql
from loopring_lab.engine.estimates import FEWEST, check_level, quantile
from loopring_lab.engine.groups import Keys, keys_of, literal
from loopring_lab.engine.query import LEFT_OUT, PLACE_BITS, collected
from loopring_lab.engine.worth import day_sql, worth_by_day
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import (
    OWN_TRADES,
    kind_of_prices,
    noted,
    question_of_prices,
    worse_sql,
)
from loopring_lab.fills.sides import ONCE, ROLE_COLUMNS, role_steps
from loopring_lab.query import parse_length

# Quintiles: finer classes leave few cells with fills of both venues, coarser ones compare small fills with large.
SIZE_CLASSES = 5
# Where a size class of a market has no orders of a venue, a tenth as many are expected as the class below has: there
# book orders thin out at about this rate. Chosen on worlds 4001 to 4024, at which a twelfth or an eighth does as well.
THINNING = 0.1
# A venue's orders need to say as much as this many of equal weight (Kish), or one of them outweighs all others.
LEAST_EFFECTIVE = 2
# An order is alone at its venue in a cell if the others have less than this share of the value: less is lost in the
# rounding of doubles when its own value is subtracted.
ALONE = 1e-9
# Columns of the answer that no key may be called.
RESULTS = (
    *(
        "fills",
        "orders",
        "matched_share",
        "pool_bps",
        "book_bps",
        "difference_bps",
        "low_bps",
        "high_bps",
    ),
    *(
        "fee_difference_bps",
        "price_difference_bps",
        "by_order_bps",
        "verdict",
        "reference",
    ),
)


def compare_venues(
    trades: Any,
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    horizon: str | pd.Timedelta = "1min",
    intervals: float = 0.95,
) -> Any:
    """Compare what takers paid at the AMM pool and on the order book, like with like.

    A fill costs its fee plus how much worse its price is than a reference, the last price at or before the
    end of its order plus `horizon`. Fills are compared within cells of the same market, side and size class,
    a quintile of ``size`` among takers' fills in the market. The fills of cells with both venues are the
    matched ones. A cell's difference, pool minus book, weights its fills by value; the overall difference
    weights cells by the value of all their fills.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Such as `Client.trades` returns. Each fill counts once, from its taker's side. Fills whose taker `with_roles`
        cannot tell are left out; a note in ``attrs["notes"]`` counts them.
    prices : frame of any of these kinds, optional
        Prices from outside the exchange, such as minute closes: ``created_at``, ``market``, ``price``. The
        reference is at most `horizon` older than the end of the order. By default `trades`: the reference is
        then a trade after the end of the order that is not its own.
    by : str or sequence of str, optional
        Columns to group by; only fills of the same group are compared.
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count. What the market does in that time adds noise.
    intervals : float
        Confidence level of ``low_bps`` and ``high_bps``, between 0 and 1.

    Returns
    -------
    frame of the same kind, one row per group
        `by`; ``fills`` and ``orders``, those matched; ``matched_share`` of the takers' fills (0 to 1);
        ``pool_bps`` and ``book_bps``, all-in costs; ``difference_bps``, pool minus book, from ``low_bps`` to
        ``high_bps``; its parts ``fee_difference_bps`` and ``price_difference_bps``; ``by_order_bps``, the
        difference if all orders weigh the same; ``verdict``, the cheaper venue: ``pool``, ``book`` or
        ``undecided``; ``reference``, ``outside prices`` or ``own trades``. Float64 basis points, null where
        nothing matches; the interval is null with fewer than 20 orders at a venue, or where one order outweighs
        all others there.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`, or `horizon` or `intervals` is not valid.

    Notes
    -----
    The interval is about what other years like this one would show on average, so two things in it are chance. How
    much orders vary: the difference is a ratio of sums over cells (Cochran, chapter 6), and the error is that of how
    far each order pulls it from its value without the order, clustered by order (CR3: MacKinnon and White). An order
    that is alone at its venue in a cell is taken to vary as orders of one cell do elsewhere at that venue. And which
    cells have both venues: orders come as a Poisson process, as many as in the same size class on both sides, or a
    tenth of those in the class below where there are none. A cell then has both with some chance; the error counts,
    by what is left to chance, how much a matched cell moves the difference, or one without a venue would.

    A verdict needs an interval without 0. Trades of this exchange as reference, also in `prices`, carry the cost
    of their own venue: the interval covers sampling only, and the difference is pulled towards 0, at times
    beyond it. A verdict then needs an interval that is farther from 0 than the fills are, on average, from their
    references. Values in several quote tokens are converted at the mean prices of the day.

    References
    ----------
    Barbon and Ranaldo, "On the Quality of Cryptocurrency Markets: Centralized versus Decentralized
    Exchanges", 2021, on costs by venue and size; Hagströmer, "Bias in the effective bid-ask spread", Journal
    of Financial Economics, 2021, on references that are biased; Cochran, "Sampling Techniques", 3rd edition,
    1977; MacKinnon and White, "Some heteroskedasticity-consistent covariance matrix estimators with improved
    finite sample properties", Journal of Econometrics, 1985.

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
    caller = "lab.fills.compare_venues"
    check_level(intervals, caller)
    keys = keys_of(trades, by, caller, *RESULTS)
    if "fill_type" in keys.names:
        raise LabError(
            f"{caller}: by= cannot include 'fill_type', whose values are compared. Leave it out."
        )
    length = parse_length(horizon, caller, "horizon")
    if not length:
        raise LabError(
            f"{caller}: horizon={horizon!r} leaves no time for a price. Give one such as '1min'."
        )
    kind = kind_of_prices(prices, trades, caller)
    steps, tables = role_steps(trades, caller)
    steps |= _cost_steps(
        trades, keys, kind, length, "trades" if prices is None else "prices"
    )
    steps |= _difference_steps(keys, kind, intervals)
    needs = (*ROLE_COLUMNS, "quote", "size", "price", "notional", "fee_bps")
    question = question_of_prices(caller, steps, needs, keys)
    answer = ask(question, trades, prices, worth=worth_by_day(trades, caller), **tables)
    # Only where nothing was compared can it be that prices= is about other markets.
    if prices is not None and not any(collected(answer, caller)["fills"].to_pylist()):
        _check_markets(trades, prices, caller)
    return noted(answer, kind)


def _check_markets(trades: Any, prices: Any, caller: str) -> None:
    """Raise a `LabError` if there are fills and prices, but none of the same market."""
    found = counts(
        trades,
        caller,
        ("market",),
        prices,
        fills="count(*)",
        listed="(SELECT count(*) FROM prices)",
        shared="count(*) FILTER (WHERE market IN (SELECT market FROM prices))",
    )
    if found["fills"] and found["listed"] and not found["shared"]:
        raise LabError(
            f"{caller}: prices= has no price of a market in trades. Give prices of those markets."
        )


def _cost_steps(
    trades: Any, keys: Keys, kind: str, horizon: int, source: str
) -> dict[str, str]:
    """Return the steps from roles to ``orders``: what the takers' orders paid at each venue."""
    if kind == OWN_TRADES:
        # A trade after the order is none of its own.
        is_near = "found_moment > last_fill"
    else:
        is_near = (
            f"found_moment >> {PLACE_BITS} >= (last_fill >> {PLACE_BITS}) - {horizon}"
        )
    group = keys.columns()
    return {
        "once": ONCE,
        "takers": """
-- each fill once, from its taker's side; it is not taken if its taker or venue is unknown
SELECT *, coalesce(told_role = 'taker' AND fill_type IN ('amm', 'dex'), FALSE) AS is_taken
FROM once
WHERE told_role IS DISTINCT FROM 'maker'""",
        "spans": spans_sql(with_prices=source == "prices" and kind == OWN_TRADES),
        "known_prices": prices_sql(source, "last"),
        "classed": f"""
-- fills with their size class, equal sizes in one, and the moment from which prices are too late
SELECT *, ((last_fill >> {PLACE_BITS}) + {horizon} + 1) * {1 << PLACE_BITS} AS anchor,
    CASE WHEN size > 0 THEN (rank() OVER (alike ORDER BY size) - 1) * {SIZE_CLASSES} // count(*) OVER alike END AS class
FROM takers LEFT JOIN spans USING (order_id)
WINDOW alike AS (PARTITION BY market, is_taken, size > 0)""",
        "found": asof_sql(trades, "classed", "last"),
        "rows": f"""
-- fills with their value in one token and their cost to the taker, in basis points
SELECT {group}, market, side, class, fill_type, order_id, is_taken,
    notional::DOUBLE * worth AS value,
    CASE WHEN {is_near} THEN {worse_sql("price", "found_price")} END AS worse,
    worse + fee_bps AS cost,
    fee_bps AS fee
FROM found LEFT JOIN worth ON quote = token AND {day_sql()} = day""",
        "orders": f"""
-- orders in each cell and venue: sums of values, and of values times basis points
SELECT {group}, market, side, class, fill_type, order_id,
    count(*) AS fills,
    sum(value) AS value,
    sum(value * cost) AS paid,
    sum(value * fee) AS fees,
    sum(value * abs(worse)) AS distance
FROM rows
WHERE is_taken AND class IS NOT NULL AND value > 0 AND isfinite(cost)
GROUP BY {group}, market, side, class, fill_type, order_id""",
    }


def _difference_steps(keys: Keys, kind: str, level: float) -> dict[str, str]:
    """Return the steps from ``orders`` to the answer: the difference of the venues, and its interval."""
    group = keys.columns()
    margin = "distance" if kind == OWN_TRADES else "0"
    return {
        "sums": f"""
-- sums by cell and venue; without a venue, how many fills of a group are taken and not
SELECT {group}, market, side, class, fill_type,
    sum(fills) AS fills,
    count(*) AS orders,
    sum(value) AS value,
    sum(paid) AS paid,
    sum(fees) AS fees,
    sum(distance) AS distance,
    avg(paid / value) AS mean_by_order,
    coalesce(var_samp(paid / value), 0) * (count(*) - 1) AS variation
FROM orders
GROUP BY {group}, market, side, class, fill_type
UNION ALL BY NAME
SELECT {group}, count(*) FILTER (WHERE is_taken) AS taken, count(*) FILTER (WHERE NOT is_taken) AS left_out
FROM rows
GROUP BY {group}""",
        "means": f"""
-- a row for each venue of each cell: how far the cell is from the difference, and what chance had a part in
WITH cells AS (
    SELECT *, if(fill_type = 'amm', 1, -1) AS sign, paid / value AS mean,
        count(*) OVER cell = 2 AS is_matched,
        sum(value) OVER cell AS cell_value,
        sum(orders) OVER cell AS cell_orders,
        sum(sign * mean) OVER cell AS gap,
        (1 - exp(-{_expected_sql("amm")})) * (1 - exp(-{_expected_sql("dex")})) AS chance
    FROM sums
    WHERE fill_type IS NOT NULL
    WINDOW cell AS (PARTITION BY {group}, market, side, class),
        alike AS (PARTITION BY {group}, market, class),
        below AS (PARTITION BY {group}, market ORDER BY class RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING)
),
venues AS (  -- costs over cells with both venues; orders of one cell vary alike in all cells of a venue
    SELECT *,
        sum(cell_value) FILTER (WHERE is_matched) OVER venue AS total,
        sum(cell_value * mean) FILTER (WHERE is_matched) OVER venue / total AS venue_bps,
        coalesce(sum(variation) OVER venue / nullif(sum(orders - 1) OVER venue, 0), 'inf'::DOUBLE) AS variance
    FROM cells
    WINDOW venue AS (PARTITION BY {group}, fill_type)
)
SELECT *,
    sum(value * gap) FILTER (WHERE is_matched) OVER (PARTITION BY {group}) / total AS difference,
    cell_value * CASE  -- a venue without orders would cost what it does elsewhere
        WHEN NOT is_matched THEN chance * (mean - venue_bps) / (total + cell_value)
        WHEN total - cell_value > {ALONE} * total THEN (1 - chance) * (gap - difference) / (total - cell_value)
    END AS shift
FROM venues""",
        "spreads": f"""
-- squares of how far each order pulls the difference from its value without it, and of the weights of orders
WITH parts AS (
    SELECT {keys.columns("m")}, m.market, order_id, m.fill_type,
        cell_value * o.value / m.value AS weight,
        m.value - o.value AS others,
        m.orders = 1 OR others < {ALONE} * m.value AS is_alone,
        if(is_alone, 0, cell_value * sign * (o.paid - mean * o.value) / others + o.value * (gap - difference)) AS pull,
        if(is_alone, pow(weight, 2) * variance, 0) AS noise
    FROM orders AS o JOIN means AS m ON {keys.same("o", "m", "market", "side", "class", "fill_type")}
    WHERE is_matched
),
pulls AS (
    SELECT {group}, sum(pull) AS pull, sum(noise) AS noise,
        sum(weight) FILTER (WHERE fill_type = 'amm') AS at_pool,
        sum(weight) FILTER (WHERE fill_type = 'dex') AS at_book
    FROM parts
    GROUP BY {group}, market, order_id
)
SELECT {group}, count(*) AS orders,
    sum(pow(pull, 2) + noise) AS squares,
    count(at_pool) AS pool_orders,
    count(at_book) AS book_orders,
    sum(pow(at_pool, 2)) AS pool_squares,
    sum(pow(at_book, 2)) AS book_squares
FROM pulls
GROUP BY {group}""",
        "answer": f"""
WITH counted AS (  -- the takers' fills, and those left out
    SELECT {group}, sum(taken) AS taken, sum(left_out) AS left_out
    FROM sums WHERE fill_type IS NULL GROUP BY {group}
),
venues AS (  -- both over the same mix of cells
    SELECT {group}, CAST(sum(fills) FILTER (WHERE is_matched) AS BIGINT) AS fills,
        max(total) AS total,
        max(venue_bps) FILTER (WHERE fill_type = 'amm') AS pool_bps,
        max(venue_bps) FILTER (WHERE fill_type = 'dex') AS book_bps,
        sum(cell_value * sign * fees / value) FILTER (WHERE is_matched) / max(total) AS fee_difference_bps,
        sum(cell_orders * sign * mean_by_order) FILTER (WHERE is_matched)
            / sum(orders) FILTER (WHERE is_matched) AS by_order_bps,
        sum(distance) FILTER (WHERE is_matched) / max(total) AS distance,
        sum(pow(shift, 2)) FILTER (WHERE fill_type = 'amm' OR NOT is_matched) AS shifts
    FROM means
    GROUP BY {group}
),
errors AS (  -- how much orders vary, and how many there are
    SELECT {group}, sum(orders)::BIGINT AS orders, sum(squares) AS squares,
        least(sum(pool_orders), sum(book_orders)) AS fewest,
        greatest(sum(pool_squares), sum(book_squares)) AS largest
    FROM spreads
    GROUP BY {group}
)
SELECT {keys.columns("t")},
    coalesce(fills, 0) AS fills,
    coalesce(orders, 0) AS orders,
    coalesce(fills, 0) / nullif(taken, 0) AS matched_share,
    pool_bps,
    book_bps,
    pool_bps - book_bps AS difference_bps,
    CASE WHEN fewest >= {FEWEST} AND largest * {LEAST_EFFECTIVE} <= pow(total, 2) AND isfinite(squares)
        THEN difference_bps - {quantile(level)} * sqrt(squares / pow(total, 2) + coalesce(shifts, 0)) END AS low_bps,
    2 * difference_bps - low_bps AS high_bps,
    fee_difference_bps,
    difference_bps - fee_difference_bps AS price_difference_bps,
    by_order_bps,
    CASE WHEN high_bps < -{margin} THEN 'pool' WHEN low_bps > {margin} THEN 'book' ELSE 'undecided' END AS verdict,
    {literal(kind)} AS reference,
    CAST(sum(left_out) OVER () AS BIGINT) AS "{LEFT_OUT}"
FROM counted AS t
LEFT JOIN venues AS v ON {keys.same("t", "v")}
LEFT JOIN errors AS e ON {keys.same("t", "e")}
{keys.sorted_by(table="t")}""",
    }


def _expected_sql(venue: str) -> str:
    """Return how many orders of a venue a cell can expect, as SQL: the mean of its class, or a part of that below."""
    orders = f"sum(orders) FILTER (WHERE fill_type = '{venue}')"
    return f"coalesce({orders} OVER alike, {THINNING} * {orders} OVER below, 0) / count(DISTINCT side) OVER alike"
