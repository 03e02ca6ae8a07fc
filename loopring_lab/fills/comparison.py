"""The AMM pool against the order book, like with like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from loopring_lab.arguments import parse_length
from loopring_lab.engine.ask import ask_table, counts, given, given_prices
from loopring_lab.engine.asof import asof_sql, before_sql, too_late_sql, with_spans_sql
from loopring_lab.engine.estimates import check_level
from loopring_lab.engine.groups import DAY, Keys, keys_of
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.notes import with_note
from loopring_lab.engine.question import PLACE_BITS, Large, Streamed
from loopring_lab.engine.worth import DAY_SQL, worth_by_day
from loopring_lab.errors import LabError
from loopring_lab.fills.estimands import RESULTS, check_cluster, estimand_steps
from loopring_lab.fills.prices import (
    LAST_FILL_MS,
    is_near_sql,
    kind_of_prices,
    noted,
    question_of_prices,
    taker_steps,
    worse_sql,
)
from loopring_lab.fills.sides import ROLE_COLUMNS, role_steps

# Quintiles: finer classes leave few cells with fills of both venues, coarser ones compare small fills with large.
SIZE_CLASSES = 5
# The class of a size from 0, over a window ``by_size``; equal sizes are in one. The frame of the count is all rows in
# their order, so that rank and count come from one sort.
SIZE_CLASS = f"""(rank() OVER by_size - 1) * {SIZE_CLASSES}
        // count(*) OVER (by_size ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"""
# How old the price before an order may be, in milliseconds: an hour, as `markouts` has it by default.
OLDEST_BEFORE = 3_600_000
# The column of `with_flow`, and what its answer says of takers that it knows nothing of.
FLOW = "flow"
UNKNOWN_FLOW = "unknown"
FLOWS_NOTE = (
    "Takers of several classes are compared together, and their classes differ in verdict (verdict_by_flow): "
    "compare them one by one, with by='flow'."
)


def compare_venues(
    trades: Trades[FrameT],
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    horizon: str | pd.Timedelta = "1min",
    intervals: float = 0.95,
    *,
    cluster: str | None = None,
) -> FrameT:
    """Compare what takers paid at the AMM pool and on the order book, like with like.

    A fill costs its fee plus how much worse its price is than a reference, the last price at or before the
    end of its order plus `horizon`. Fills are compared within cells of the same market, side and size class,
    a quintile of ``size`` among takers' fills in the market. The fills of cells with both venues are the
    matched ones. A cell's difference, pool minus book, weights its fills by value. What the difference of all
    cells is depends on what each cell weighs; four answers are given, and the verdict needs one sign of all.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Such as `Client.trades` returns. Each fill counts once, from its taker's side. Fills whose taker `with_roles`
        cannot tell are left out; a note in ``attrs["notes"]`` counts them. With a column ``flow``, the class of the
        taker, the answer says whose fills were compared, and what the verdict of each class is.
    prices : frame of any of these kinds, optional
        Prices from outside the exchange, such as minute closes: ``created_at``, ``market``, ``price``. The
        reference is at most `horizon` older than the end of the order. By default `trades`: the reference is
        then a trade after the end of the order that is not its own.
    by : str or sequence of str, optional
        Columns to group by; only fills of the same group are compared.
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count. What the market does in that time adds noise. With ``"0s"``
        the reference is the last price before the order's first fill, at most an hour old.
    intervals : float
        Confidence level of the intervals, between 0 and 1. Each holds by itself: for `m` groups at once, give
        ``1 - 0.05 / m`` (Bonferroni), as `figures.venue_differences` does.
    cluster : {'order', 'account', 'day'}, optional
        What is taken to vary as one: an order, all orders of a taker, or all orders that began on a day (UTC). By
        default the widest of these, the one with the fewest clusters, that has 20 or more at each venue; ``order``
        where none has.

    Returns
    -------
    frame of the same kind, one row per group
        `by`; ``fills`` and ``orders``, those matched; ``effective_orders``, how many orders of equal weight would
        say as much, at the venue that has fewer (Kish); ``matched_share`` of the takers' fills (0 to 1).

        ``pool_bps`` and ``book_bps``, all-in costs; ``difference_bps``, pool minus book, from ``low_bps`` to
        ``high_bps``: each cell weighs the value of all its fills. Its parts ``fee_difference_bps`` and
        ``price_difference_bps``. The latter is a realized cost, which over the fills that also have a price before
        their order is ``realized_difference_bps``, the ``effective_difference_bps`` (against the price before the
        order: horizon 0) less the ``impact_difference_bps`` (what the price moved in the taker's direction).
        ``by_order_bps``, the difference if all orders weigh the same.

        ``overlap_bps``: each cell weighs pool * book / (pool + book) of its values, most where both venues have
        much. It is the coefficient of a regression of cost on venue with an effect for each cell, weighted by value,
        and ``overlap_error_bps`` is that coefficient's clustered error (CRV1, times G / (G - 1) for G clusters:
        ``vcov={"CRV1": ...}, ssc=ssc(k_adj=False)`` in pyfixest). ``pool_weighted_bps``: the pool's value, which is
        what those who used the pool would have saved or lost on the book. ``book_weighted_bps``: the book's. Each
        with ``…_low_bps`` and ``…_high_bps``.

        ``without_one_low_bps`` to ``without_one_high_bps``, the range of ``difference_bps`` as each taker's account
        in turn is left out; ``cluster``, and how many ``clusters`` there are; ``verdict``, the cheaper venue:
        ``pool``, ``book`` or ``undecided``; ``whose`` fills they are: ``all takers``, or the class that all have
        in the column ``flow``; ``verdict_by_flow``, that of each class with an interval; ``reference``, ``outside
        prices`` or ``own trades``. Float64 basis points, null where nothing matches; intervals are null with fewer
        than 20 orders at a venue, fewer than 5 clusters, or where one order or cluster outweighs all others.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`, or `horizon`, `intervals` or `cluster` is not valid.

    Notes
    -----
    The interval is about what other years like this one would show on average. How much clusters vary: each in turn
    is left out, and the difference computed again, cells that lose a venue dropped (jackknife; Efron and Stein). And
    which cells happen to have both venues: orders come as a Poisson process, as many as in the same size class on
    both sides, or a tenth of those in the class below where there are none; a cell that lacks a venue counts by how
    far it would move the difference, times the chance of having both.

    A verdict needs an interval without 0, and one sign of all four differences: where they disagree, the answer
    depends on what a cell weighs. Trades of this exchange as reference, also in `prices`, carry the cost of their
    own venue: the interval covers sampling only, and the difference is pulled towards 0, at times beyond it. A
    verdict then needs an interval that is farther from 0 than the fills are, on average, from their references.
    Values in several quote tokens are converted at the mean prices of the day.

    Effective and realized are as Rule 605 means them but for the reference: a close up to a minute old, or a trade,
    where the rule takes twice the distance to the midpoint of quotes when the order is received.

    References
    ----------
    Barbon and Ranaldo, "On the Quality of Cryptocurrency Markets: Centralized versus Decentralized
    Exchanges", 2021, on costs by venue and size; Hagströmer, "Bias in the effective bid-ask spread", Journal
    of Financial Economics, 2021, on references that are biased; Li, Morgan and Zaslavsky, "Balancing Covariates via
    Propensity Score Weighting", Journal of the American Statistical Association, 2018, on overlap weights; Efron and
    Stein, "The jackknife estimate of variance", Annals of Statistics, 1981; Cameron and Miller, "A Practitioner's
    Guide to Cluster-Robust Inference", Journal of Human Resources, 2015.

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
    fills = given(trades, caller)
    keys = keys_of(fills, by, *RESULTS)
    beside = given_prices(prices, caller)
    kind = kind_of_prices(beside, fills)
    found = compare_by(keys, fills, beside, kind, horizon, intervals, cluster)
    answer = fills.answered(found)
    for verdict, by_flow in zip(
        found["verdict"].to_pylist(), found["verdict_by_flow"].to_pylist(), strict=True
    ):
        if differs_by_flow(verdict, by_flow):
            answer = with_note(answer, FLOWS_NOTE)
    return noted(answer, kind)


def compare_by(
    keys: Keys,
    trades: Given[Any],
    prices: Given[Any] | None,
    kind: str,
    horizon: str | pd.Timedelta,
    intervals: float,
    cluster: str | None = None,
) -> pa.Table:
    """Return the answer of `compare_venues` by keys, which may be periods."""
    caller = trades.caller
    check_level(intervals, caller)
    if "fill_type" in keys.names:
        raise LabError(
            f"{caller}: by= cannot include 'fill_type', whose values are compared. Leave it out."
        )
    check_cluster(cluster, caller)
    length = parse_length(horizon, caller, "horizon")
    # The class of takers is read as a further key: a column of any type, and null where it is unknown.
    has_flow = FLOW in trades.names
    asked_by = keys
    if has_flow and FLOW not in keys.names:
        asked_by = replace(keys, names=(*keys.names, FLOW))
    flow = dict(zip(asked_by.names, asked_by.aliases, strict=True)).get(FLOW)
    roles, tables = role_steps(trades)
    steps = {
        **roles,
        **_priced_steps(prices, kind, length),
        **_order_steps(keys, kind, length, flow),
        **estimand_steps(
            keys, kind, intervals, cluster=cluster, has_flow=flow is not None
        ),
    }
    needs = (*ROLE_COLUMNS, "quote", "size", "price", "notional", "fee_bps")
    question = question_of_prices(caller, steps, needs, asked_by)
    tables["worth"] = worth_by_day(trades)
    found = ask_table(question, trades, prices, **tables)
    # Only where nothing was compared can it be that prices= is about other markets.
    if prices is not None and not any(found["fills"].to_pylist()):
        _check_markets(trades, prices)
    return found


def differs_by_flow(verdict: str, verdict_by_flow: Any) -> bool:
    """Return whether a class of takers has another verdict than another one, or than all together."""
    if pd.isna(verdict_by_flow):
        return False
    # Names of classes may have any commas and colons.
    verdicts = re.findall(": (pool|book|undecided)(?=, |$)", verdict_by_flow)
    return set(verdicts) != {verdict}


def _check_markets(trades: Given[Any], prices: Given[Any]) -> None:
    """Raise a `LabError` if there are fills and prices, but none of the same market."""
    found = counts(
        trades,
        ("market",),
        prices,
        fills="count(*)",
        listed="(SELECT count(*) FROM prices)",
        shared="count(*) FILTER (WHERE market IN (SELECT market FROM prices))",
    )
    if found["fills"] and found["listed"] and not found["shared"]:
        raise LabError(
            f"{trades.caller}: prices= has no price of a market in trades. Give prices of those markets."
        )


def _priced_steps(prices: Given[Any] | None, kind: str, horizon: int) -> dict[str, str]:
    """Return the steps from roles to ``found``: takers' fills, with the price before their order and the reference."""
    steps = {
        **taker_steps(prices, kind),
        "classed": f"""
-- fills with their size class, equal sizes in one; the price before the order must be older than `anchor`
SELECT *,
    {before_sql(prices)} AS anchor,
    CASE WHEN size > 0 THEN {SIZE_CLASS} END AS class
FROM ({with_spans_sql("takers")})
WINDOW by_size AS (PARTITION BY market, is_taken, size > 0 ORDER BY size)""",
        "arrived": asof_sql("classed", "last", within=OLDEST_BEFORE),
    }
    if not horizon:
        steps["found"] = """
-- the price before the order is the reference
SELECT *,
    found_price AS price_before
FROM arrived"""
        return steps
    steps["later"] = f"""
-- fills; a reference from `anchor` on is too late
SELECT * EXCLUDE (anchor, found_price, found_moment),
    found_price AS price_before,
    {too_late_sql(LAST_FILL_MS, horizon)} AS anchor
FROM arrived"""
    steps["found"] = asof_sql("later", "last")
    return steps


def _order_steps(
    keys: Keys, kind: str, horizon: int, flow: str | None
) -> dict[str, str]:
    """Return the steps from ``found`` to ``orders``: what the takers' orders paid at each venue."""
    # Without a horizon the reference is the price before the order, as near as `arrived` takes it.
    is_near = is_near_sql(kind, horizon) if horizon else "TRUE"
    group = keys.columns()
    cell = f"{group}, flow_class, market, side, class"
    # Takers of several classes are compared class by class, too: their rows are there twice.
    known_flow = "NULL::VARCHAR"
    flow_classes = "NULL::VARCHAR"
    if flow is not None:
        known_flow = f"coalesce({flow}::VARCHAR, '{UNKNOWN_FLOW}')"
        flow_classes = f"unnest([NULL, {known_flow}])"
    return {
        "rows": Large(f"""
-- fills with their value in one token and their cost to the taker: realized, effective, and with the fee (basis points)
SELECT {group},
    {known_flow} AS flow,
    {flow_classes} AS flow_class,
    market,
    side,
    class,
    fill_type,
    order_id,
    is_only,
    is_taken,
    account_id AS account,
    floor((first_fill >> {PLACE_BITS}) / {DAY}.0)::BIGINT AS day,
    notional::DOUBLE * worth AS value,
    CASE
        WHEN {is_near} THEN {worse_sql("price", "found_price")}
    END AS realized,
    {worse_sql("price", "price_before")} AS effective,
    realized + fee_bps AS cost,
    fee_bps AS fee
FROM found
LEFT JOIN worth ON quote = token AND {DAY_SQL} = day"""),
        "weighed": Streamed("""
-- what each fill adds to its order; the cost splits where a price before the order is known
SELECT * EXCLUDE (flow, effective, realized),
    flow AS first_flow,
    flow AS last_flow,
    1 AS fills,
    value * cost AS paid,
    value * fee AS fees,
    value * abs(realized) AS distance,
    CASE WHEN isfinite(effective) THEN value END AS split_value,
    split_value * effective AS effective,
    split_value * realized AS realized
FROM rows
WHERE is_taken AND class IS NOT NULL AND value > 0 AND isfinite(cost)"""),
        "orders": Large(f"""
-- orders in each cell and venue: sums of values, and of values times basis points; most have one fill
FROM weighed
WHERE is_only
UNION ALL BY NAME
SELECT {cell}, fill_type, order_id, is_only,
    min(COLUMNS(['account', 'day', 'first_flow'])),
    max(last_flow) AS last_flow,
    sum(COLUMNS(['fills', 'value', 'paid', 'fees', 'distance', 'split_value', 'effective', 'realized']))
FROM weighed
WHERE NOT is_only
GROUP BY {cell}, fill_type, order_id, is_only"""),
    }
