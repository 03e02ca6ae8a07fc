"""The AMM pool against the order book, like with like: what is computed, step by step, and why.

1. *Orders* are compared, not fills: a maker's limits decide in how many parts an order is filled. An order's cost is
   the mean of its fills at a venue, weighted by value: the fee, and how much worse the price was than a reference.
   An order filled at both venues is one at each, of the size of the whole.
2. Orders are alike if they share a *cell*: by default the market, the side, a class of sizes of which one is less than
   twice another, and the week. In a cell the *gap* is the pool's mean cost less the book's. Cells with one venue
   compare nothing.
3. The *difference* is the mean gap, in which a cell weighs ``pool * book / (pool + book)`` of the values at its venues,
   so that cells count most in which both means are sure. It is the coefficient of the pool in a regression of cost on
   venue with an effect for each cell, weighted by value (overlap weights).
4. The same mean is taken with the value at each venue as weights, as those who used it see it. Where the signs differ,
   the answer depends on who asks, and there is no verdict.
5. The *interval* is that of a jackknife, see `engine.clusters`. The difference without a cluster follows from the sums
   of the cells that the cluster has orders in: a cell without them has another gap and weight, or drops out.

Costs and values are summed as whole numbers, so that the answer does not depend on the order of rows. Each step is SQL,
which DuckDB runs here or on Spark's workers, on the rows of some markets at a time; cells are of one market, so that
sums of markets are all that is put together in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from loopring_lab.arguments import parse_length
from loopring_lab.engine.ask import ask_table, given
from loopring_lab.engine.asof import asof_sql, before_sql, too_late_sql, with_spans_sql
from loopring_lab.engine.clusters import (
    NO_ACCOUNT,
    by_cluster_sql,
    check_intervals,
    chosen_sql,
    clusters_sql,
)
from loopring_lab.engine.groups import (
    EVERYTHING,
    HOUR,
    IS_OF_RESULT,
    Keys,
    keys_of,
    literal,
    several,
)
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.near import prices_near
from loopring_lab.engine.notes import LEFT_OUT, with_attrs
from loopring_lab.engine.question import PLACE_BITS, Celled, Large, Spanned, Streamed
from loopring_lab.engine.worth import DAY_SQL, worth_by_day
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import (
    LAST_FILL_MS,
    OWN_TRADES,
    check_markets,
    is_near_sql,
    kind_of_prices,
    noted,
    question_of_prices,
    taker_steps,
    worse_sql,
)
from loopring_lab.fills.sides import ROLE_COLUMNS, role_steps

MATCH = ("market", "side", "size", "week")
# Values that orders of a cell may share besides their market, as SQL over orders. Any other name is a column of the
# trades. Classes of equally many orders would not do: in the class of the largest, some are a thousand times others,
# so that a venue which has more of these, where they cost more, would look worse.
CELLS = {
    "side": "side",
    "size": "floor(log2(size::DOUBLE))::BIGINT",
    "account": f"nullif(account, {NO_ACCOUNT})",
    "hour": f"floor(began / {HOUR}.0)::BIGINT",
    "day": "day",
    "week": "week",
    "month": "date_trunc('month', make_timestamp(began * 1000))",
}
# Orders that share one of these are of one week.
IN_A_WEEK = {CELLS[name] for name in ("hour", "day", "week")}
# The price before an order may be this old: an hour, which is the default of `markouts`.
OLDEST_BEFORE = HOUR
# Columns of an answer that verdicts of wider intervals are made of; callers get none of these.
ERRORS = "errors of each level"
MARGIN = "margin of a verdict"
HIDDEN = (ERRORS, MARGIN)
# Columns of the answer; neither these nor the hidden ones are names of keys.
RESULTS = (
    "fills",
    "unpriced",
    "orders",
    "accounts",
    "clusters",
    "cluster",
    "pool_matched_share",
    "book_matched_share",
    "pool_bps",
    "book_bps",
    "difference_bps",
    "low_bps",
    "high_bps",
    "pool_weighted_bps",
    "book_weighted_bps",
    "verdict",
    "reference",
)
# Costs are doubles: a difference nearer to 0 than this is rounding.
ROUNDING_BPS = 1e-9
# A venue is cheaper if all of an interval says so, and so do the orders of each venue.
VERDICT = f"""CASE
        WHEN {{high}} < -"{MARGIN}" AND greatest(pool_weighted_bps, book_weighted_bps) < 0 THEN 'pool'
        WHEN {{low}} > "{MARGIN}" AND least(pool_weighted_bps, book_weighted_bps) > 0 THEN 'book'
        ELSE 'undecided'
    END"""
# Parts of a cost, as SQL over `priced` fills. Those of one set are known of the same fills: where all of them are.
ALL_IN = ({"all_in": "price_cost + fee_bps"},)
PARTS = (
    {"fee": "fee_bps", "price": "price_cost"},
    {
        "effective": "effective",
        "realized": "price_cost",
        "impact": "effective - price_cost",
    },
)


def compare_venues(
    trades: Trades[FrameT],
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    horizon: str | pd.Timedelta = "1min",
    intervals: float = 0.95,
    *,
    match: str | Sequence[str] = MATCH,
    cluster: str | None = None,
) -> FrameT:
    """Compare what takers paid at the AMM pool and on the order book, like with like.

    A fill costs its fee plus how much worse its price is than a reference, the last price at or before the end of its
    order plus `horizon`. An order costs the mean of its fills at a venue, weighted by value. Orders are compared
    within cells of what `match` names; the difference of the venues is the mean over cells of the pool's cost less the
    book's, in which a cell weighs ``pool * book / (pool + book)`` of the values at its venues.

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
        Columns to group by; only orders of the same group are compared.
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count. What the market does in that time adds noise. With ``"0s"``
        the reference is the last price before the order's first fill, at most an hour old.
    intervals : float
        Confidence level of the intervals, between 0 and 1. Each holds by itself: for `m` groups at once, give
        ``1 - 0.05 / m`` (Bonferroni), as `figures.venue_differences` does.
    match : str or sequence of str
        What orders must share to be compared: ``market`` always, and any of ``side``, ``size`` (of which one is less
        than twice another), ``hour``, ``day``, ``week`` (seven days, counted from 1970) and ``month`` (UTC, of the
        first fill), ``account``, or another column of `trades`. Unknown values are shared with no other order.
    cluster : {'account', 'day', 'week'}, optional
        What is taken to vary as one. By default each of these that has at least 8 clusters at both venues is tried,
        and the widest interval counts.

    Returns
    -------
    frame of the same kind, one row per group
        `by`; ``fills`` compared; ``unpriced``, takers' fills that are not as their cost is not known: there is no
        reference, amount or fee, or no market leads from their quote token to the most used one; ``orders`` compared,
        of how many known ``accounts``; ``clusters``, how many the venue with fewer has, and ``cluster``, what they are;
        ``pool_matched_share`` and ``book_matched_share``, which part of the value of takers at each venue was compared
        (0 to 1). ``pool_bps`` and ``book_bps``, all-in costs over
        the same cells; ``difference_bps``, pool minus book, from ``low_bps`` to ``high_bps``; ``pool_weighted_bps`` and
        ``book_weighted_bps``, the same difference if cells weigh the value at the pool, as those who used it see it,
        or on the book; ``verdict``, the cheaper venue: ``pool``, ``book`` or ``undecided``; ``reference``, ``outside
        prices`` or ``own trades``. Float64 basis points, null where nothing is compared. Intervals are null where no
        level has enough clusters, and where there are several accounts, but fewer than 8 at a venue, or unknown ones,
        which count as one: they say nothing about others, unless `cluster` asks for days or weeks.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`, or `horizon`, `intervals`, `match` or `cluster` is not valid.

    Notes
    -----
    The interval is that of a cluster jackknife (CRV3) with Student's t, see `engine.clusters`; a cell that loses a
    venue without a cluster drops out. Of fewer than 8 days or weeks it holds for these alone: where each venue has good
    and bad weeks, and on the whole both cost the same, nearly half of the verdicts on 30 days named one.
    Weeks are taken to be independent: where one venue stays expensive for weeks on end, 70 to 85 % of intervals of 95 %
    held in draws of two to six months. A verdict needs an interval without 0, and one sign of all three differences.
    What changes within a week, and moves both costs and the choice of a venue, such as days with a high price of gas,
    is not held equal by default: match ``day`` in place of ``week`` then.

    Trades of this exchange as reference, also in `prices`, carry the cost of their own venue: the interval covers
    sampling only, and the difference is pulled towards 0, at times beyond it. A verdict then needs an interval that is
    farther from 0 than the fills are, on average, from their references. Values in several quote tokens are converted
    at the mean prices of the day.

    References
    ----------
    Li, Morgan and Zaslavsky, "Balancing Covariates via Propensity Score Weighting", Journal of the American Statistical
    Association, 2018, on overlap weights; MacKinnon, Nielsen and Webb, "Fast and reliable jackknife and bootstrap
    methods for cluster-robust inference", Journal of Applied Econometrics, 2023; Barbon and Ranaldo, "On the Quality of
    Cryptocurrency Markets: Centralized versus Decentralized Exchanges", 2021, on costs by venue and size; Hagströmer,
    "Bias in the effective bid-ask spread", Journal of Financial Economics, 2021, on references that are biased.

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="LRC-ETH")
    >>> answer = lab.fills.compare_venues(trades, client.outside_prices(trades), cluster="day")
    >>> answer[["verdict", "reference"]]
      verdict       reference
    0    pool  outside prices
    """
    return _answered(
        "lab.fills.compare_venues",
        ALL_IN,
        trades,
        prices,
        by,
        horizon,
        intervals,
        match,
        cluster,
    )


def compare_parts(
    trades: Trades[FrameT],
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    horizon: str | pd.Timedelta = "1min",
    intervals: float = 0.95,
    *,
    match: str | Sequence[str] = MATCH,
    cluster: str | None = None,
) -> FrameT:
    """Split the difference of `compare_venues` into its parts: fee and price, and what the price moved.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Such as `Client.trades` returns.
    prices : frame of any of these kinds, optional
        Prices from outside the exchange, as for `compare_venues`.
    by : str or sequence of str, optional
        Columns to group by.
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count.
    intervals : float
        Confidence level of the intervals, between 0 and 1.
    match : str or sequence of str
        What orders must share to be compared.
    cluster : {'account', 'day', 'week'}, optional
        What is taken to vary as one.

    Returns
    -------
    frame of the same kind, one row per group and part
        `by`; ``part``; then as in `compare_venues`, of that part alone. ``fee`` and ``price`` add up to the whole
        difference. ``effective`` is the cost against the last price before the order, at most an hour old,
        ``realized`` that against the reference, and ``impact`` what the price moved in the taker's direction: over the
        orders with both prices, effective is realized plus impact.

    Raises
    ------
    LabError, AmountError
        As for `compare_venues`.

    Notes
    -----
    Effective and realized are as Rule 605 means them but for the reference: a close up to a minute old, or a trade,
    where the rule takes twice the distance to the midpoint of quotes when the order is received.

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="LRC-ETH")
    >>> parts = lab.fills.compare_parts(trades, client.outside_prices(trades), cluster="day")
    >>> parts["part"].tolist()
    ['fee', 'price', 'effective', 'realized', 'impact']
    """
    return _answered(
        "lab.fills.compare_parts",
        PARTS,
        trades,
        prices,
        by,
        horizon,
        intervals,
        match,
        cluster,
    )


def _answered(
    caller: str,
    costs: Sequence[Mapping[str, str]],
    trades: Trades[FrameT],
    prices: Any,
    by: str | Sequence[str] | None,
    horizon: str | pd.Timedelta,
    *how: Any,
) -> FrameT:
    """Return the answer of `compare_venues`, or of each part of the cost."""
    fills = given(trades, caller)
    keys = keys_of(fills, by, *RESULTS, *HIDDEN, "part")
    if costs is PARTS:
        keys = replace(
            keys,
            names=(*keys.names, "part"),
            order={**keys.order, "part": [name for one in PARTS for name in one]},
            added=(*keys.added, "part"),
        )
    found, kind, beside = compare_by(keys, fills, prices, horizon, *how, costs=costs)
    answer = fills.answered(found.drop_columns(HIDDEN))
    answer = with_attrs(
        answer,
        intervals=how[0],
        match=several(how[1]),
        flow=getattr(trades, "attrs", {}).get("flow", {}),
    )
    return noted(answer, kind, fills, beside)


def compare_by(
    keys: Keys,
    trades: Given[Any],
    prices: Any,
    horizon: str | pd.Timedelta,
    intervals: float,
    match: str | Sequence[str],
    cluster: str | None,
    *,
    costs: Sequence[Mapping[str, str]] = ALL_IN,
) -> tuple[pa.Table, str, Given[Any] | None]:
    """Return the answer of `compare_venues` by keys, which may be periods, or the parts of the cost.

    It has the columns `HIDDEN`, and that of a note, besides. With it come the kind of the prices and those that may be
    looked up, for `noted`.
    """
    caller = trades.caller
    check_intervals(intervals, cluster, caller)
    length = parse_length(horizon, caller, "horizon")
    beside = prices_near(prices, trades, length, within=OLDEST_BEFORE)
    kind = kind_of_prices(beside, trades)
    if "fill_type" in keys.names:
        raise LabError(
            f"{caller}: by= cannot include 'fill_type', whose values are compared. Leave it out."
        )
    shared = _shared(match, trades, keys.added)
    # Columns of the trades that orders must share are read as further keys, which may be of any type.
    own = [name for name in shared if name not in CELLS and name not in keys.names]
    asked_by = replace(keys, names=(*keys.names, *own))
    aliases = dict(zip(asked_by.names, asked_by.aliases, strict=True))
    own_columns = [aliases[name] for name in own]
    cells = [CELLS[name] for name in shared if name in CELLS]
    part = aliases.get("part", "part")
    roles, tables = role_steps(trades)
    steps = {
        **roles,
        **_priced_steps(beside, kind, length),
        **_order_steps(keys, own_columns, cells, costs, part),
        **_difference_steps(keys, kind, intervals, cluster, sum(map(len, costs))),
    }
    needs = (*ROLE_COLUMNS, "quote", "size", "price", "notional", "fee_bps")
    question = question_of_prices(
        caller, steps, needs, asked_by, reach=OLDEST_BEFORE, later=length
    )
    tables["worth"] = worth_by_day(trades)
    found = ask_table(question, trades, beside, **tables)
    check_markets(found["fills"], trades, prices)
    return found, kind, beside


def _shared(match: Any, trades: Given[Any], added: Sequence[str]) -> list[str]:
    """Check ``match=``, and return what orders of a market must share besides it."""
    names = several(match)
    for name in names:
        if name != "market" and name not in CELLS and name not in trades.names:
            raise LabError(
                f"{trades.caller}: match= cannot include {name!r}. Give columns of the trades, or some of "
                f"{', '.join(['market', *CELLS])}."
            )
        if name in added:
            raise LabError(
                f"{trades.caller}: match= cannot include {name!r}. {IS_OF_RESULT}"
            )
    if "market" not in names:
        raise LabError(
            f"{trades.caller}: match={match!r} lacks 'market', and orders of different markets are not alike. Add it."
        )
    return [name for name in dict.fromkeys(names) if name != "market"]


def _priced_steps(prices: Given[Any] | None, kind: str, horizon: int) -> dict[str, str]:
    """Return the steps from roles to ``priced``: takers' fills with what their price cost, before and after."""
    before = {
        **taker_steps(prices, kind),
        "lookups": Spanned(f"""
-- takers' fills; the price before their order is older than `anchor`
SELECT *, {before_sql(prices)} AS anchor
FROM ({with_spans_sql("takers")})"""),
        "arrived": asof_sql("lookups", "last", within=OLDEST_BEFORE),
    }
    if not horizon:
        return {
            **before,
            "priced": f"""
-- the price before the order is the reference
SELECT *, {worse_sql("price", "found_price")} AS price_cost, price_cost AS effective
FROM arrived""",
        }
    return {
        **before,
        "later": f"""
-- fills; a reference from `anchor` on is too late
SELECT * EXCLUDE (anchor, found_price, found_moment),
    {worse_sql("price", "found_price")} AS effective,
    {too_late_sql(LAST_FILL_MS, horizon)} AS anchor
FROM arrived""",
        "found": asof_sql("later", "last"),
        "priced": f"""
-- how much worse than the reference each fill's price is, in basis points
SELECT *,
    CASE WHEN {is_near_sql(kind, horizon)} THEN {worse_sql("price", "found_price")} END AS price_cost
FROM found""",
    }


def _order_steps(
    keys: Keys,
    own_columns: Sequence[str],
    cells: Sequence[str],
    costs: Sequence[Mapping[str, str]],
    part: str,
) -> dict[str, str]:
    """Return the steps from ``priced`` to ``costed``: orders with their cell, their clusters, their value and costs.

    A row has one set of costs until ``costed``, which has a row for each cost: few rows are kept, and none twice.
    """
    most = range(max(map(len, costs)))
    listed = []
    parts = ""
    for number, one in enumerate(costs):
        # Sets with fewer costs than others have further ones of 0, which are not read.
        padded = [*one.values(), *["0"] * len(most)]
        fields = [f"cost_{place}: {padded[place]}" for place in most]
        listed.append(f"{{part_set: {number}, {', '.join(fields)}}}")
        shown = [
            f"{{{part}: {literal(name)}, paid: paid_{place}}}"
            for place, name in enumerate(one)
        ]
        parts += f" WHEN {number} THEN [{', '.join(shown)}]"
    every_cost = " + ".join(f"cost_{place}" for place in most)
    paid = [
        f"(value::DOUBLE * cost_{place})::HUGEINT AS paid_{place}" for place in most
    ]
    summed = [
        "size",
        "value",
        "distance",
        "fills",
        *(f"paid_{place}" for place in most),
    ]
    asked_keys = [alias for alias in keys.aliases if alias != part]
    group = ", ".join([EVERYTHING, *asked_keys, *own_columns])
    began = f"(first_fill >> {PLACE_BITS})"
    shared = ["market", *own_columns, *cells]
    cell = ", ".join(shared)
    is_in_cell = " AND ".join(f"{one} IS NOT NULL" for one in ("paid_0", *shared))
    # Values of one quote token need no conversion.
    worth = "coalesce(worth, 1)" if {"market", "quote"} & {*keys.names} else "worth"
    # Orders are kept in the order of their times.
    span = "week" if IN_A_WEEK & set(cells) else "0"
    return {
        "rows": Streamed(f"""
-- each set of costs of takers' fills, with the value of the fill in one token
SELECT {group}, market, side, fill_type, order_id, is_only, is_taken, size,
    {began} AS began,
    {clusters_sql("account_id", began)},
    CASE WHEN {worth} = 1 THEN notional ELSE (notional::DOUBLE * worth)::HUGEINT END AS value,
    price_cost,
    unnest([{", ".join(listed)}], recursive := true)
FROM priced
LEFT JOIN worth ON quote = token AND {DAY_SQL} = worth.day"""),
        "orders": Large(f"""
-- orders at each venue, and for each group and venue a row without a market, of all fills whether their cost is known
-- or not: how many have a taker, what these are worth, and how many are left out
WITH weighed AS NOT MATERIALIZED (
    -- what each fill adds to its order, in whole numbers: sums of these have the same digits in any order of rows
    SELECT {group}, part_set, market, side, fill_type, order_id, is_only, began, account, day, week, size, value,
        1 AS fills,
        (value::DOUBLE * abs(price_cost))::HUGEINT AS distance,
        {", ".join(paid)}
    FROM rows
    WHERE is_taken AND size > 0 AND value > 0 AND isfinite({every_cost})
)
SELECT * EXCLUDE (order_id, is_only)
FROM weighed
WHERE is_only  -- most orders have one fill, and need not be put together
UNION ALL BY NAME
SELECT * EXCLUDE (order_id, is_only)
    REPLACE (sum(size) OVER (PARTITION BY part_set, order_id) AS size)
FROM (
    SELECT * EXCLUDE (began, account, day, week, {", ".join(summed)}),
        min(COLUMNS(['began', 'account', 'day', 'week'])),
        sum(COLUMNS({summed}))
    FROM weighed
    WHERE NOT is_only
    GROUP BY ALL
)
UNION ALL BY NAME
SELECT {group}, part_set, fill_type,
    count(*) FILTER (WHERE is_taken) AS taken,
    sum(value) FILTER (WHERE is_taken) AS taken_value,
    count(*) FILTER (WHERE NOT is_taken) AS left_out
FROM rows
GROUP BY ALL"""),
        "celled": Celled(f"""
-- orders with the number of the cell that they are compared in
SELECT *,
    {span} AS span,
    CASE WHEN {is_in_cell} THEN (hash({cell}) >> 1)::BIGINT END AS cell
FROM orders"""),
        "costed": Streamed(f"""
-- each cost of these orders, at the venue where they were filled
SELECT {keys.columns()}, market, cell, account, day, week, fills, distance, taken, left_out,
    CASE WHEN fill_type = 'amm' THEN taken_value END AS pool_total,
    CASE WHEN fill_type = 'dex' THEN taken_value END AS book_total,
    CASE WHEN fill_type = 'amm' THEN value ELSE 0 END AS pool_value,
    CASE WHEN fill_type = 'amm' THEN paid ELSE 0 END AS pool_paid,
    CASE WHEN fill_type = 'dex' THEN value ELSE 0 END AS book_value,
    CASE WHEN fill_type = 'dex' THEN paid ELSE 0 END AS book_paid
FROM (SELECT *, unnest(CASE part_set{parts} END, recursive := true) FROM celled)"""),
    }


def _difference_steps(
    keys: Keys, kind: str, level: float, cluster: str | None, parts: int
) -> dict[str, str]:
    """Return the steps from ``costed`` to the answer; a fill left out is counted with each of so many `parts`."""
    group = keys.columns()
    # Trades as reference carry half of their venue's cost: what is nearer to 0 than that proves nothing.
    margin = "distance" if kind == OWN_TRADES else repr(ROUNDING_BPS)
    at_each_venue = (
        "least(count(*) FILTER (WHERE is_at_pool), count(*) FILTER (WHERE is_on_book))"
    )
    sums = "sum(COLUMNS(['pool_value', 'pool_paid', 'book_value', 'book_paid']))"
    return {
        "sums": f"""
-- cells, with sums of each venue; a row without a cell has the number of fills of a group that are left out
SELECT {group}, market, cell,
    sum(fills) AS fills,
    count(cell) AS orders,
    sum(distance) AS distance,
    sum(COLUMNS(['taken', 'left_out', 'pool_total', 'book_total'])),
    {sums}
FROM costed
GROUP BY ALL""",
        "means": """
-- cells with orders of both venues: their mean costs, their gap and their weight
SELECT *,
    pool_paid / pool_value AS pool_mean,
    book_paid / book_value AS book_mean,
    pool_mean - book_mean AS gap,
    pool_value::DOUBLE * book_value::DOUBLE / (pool_value + book_value)::DOUBLE AS weight
FROM sums
WHERE cell IS NOT NULL AND pool_value > 0 AND book_value > 0""",
        "spreads": f"""
-- what leaving out a cluster changes: the sum of all cells' weights, and that of their weights times gaps; doubles are
-- put in order before they are added, which takes half the time of sums with an ORDER BY
WITH own AS (  -- what each cluster has in each cell
    {by_cluster_sql(f"{group}, market, cell", sums, "costed")}
),
rests AS (  -- what the cell has without it; without orders of a venue it has no gap
    SELECT m.*, level, cluster,
        o.pool_value > 0 AS is_at_pool,
        o.book_value > 0 AS is_on_book,
        nullif(m.pool_value - o.pool_value, 0)::DOUBLE AS pool_rest,
        nullif(m.book_value - o.book_value, 0)::DOUBLE AS book_rest,
        (m.pool_paid - o.pool_paid)::DOUBLE / pool_rest
            - (m.book_paid - o.book_paid)::DOUBLE / book_rest AS rest_gap,
        pool_rest * book_rest / (pool_rest + book_rest) AS rest_weight
    FROM own AS o
    JOIN means AS m ON {keys.same("o", "m", "market", "cell")}
)
SELECT {group}, market, level, cluster,
    bool_or(is_at_pool) AS is_at_pool,
    bool_or(is_on_book) AS is_on_book,
    count(*) FILTER (WHERE rest_weight IS NULL) AS emptied,
    list_sum(list_sort(list(coalesce(rest_weight, 0) - weight))) AS change,
    list_sum(list_sort(list(coalesce(rest_weight * rest_gap, 0) - weight * gap))) AS pull
FROM rests
GROUP BY ALL""",
        "answer": f"""
WITH venues AS (  -- what takers traded at each venue, and the fills left out
    SELECT {group},
        sum(pool_total)::DOUBLE AS pool_total,
        sum(book_total)::DOUBLE AS book_total,
        (sum(taken) - coalesce(sum(fills), 0))::BIGINT AS unpriced,
        sum(left_out) AS left_out
    FROM sums
    GROUP BY ALL
),
matched AS (  -- both venues over the same cells, and the difference as those who used each would see it
    SELECT {group},
        sum(fills)::BIGINT AS fills,
        sum(orders)::BIGINT AS orders,
        count(*) AS cells,
        sum(weight ORDER BY market, cell) AS whole_weight,
        sum(pool_value)::DOUBLE AS pool_matched,
        sum(book_value)::DOUBLE AS book_matched,
        sum(weight * pool_mean ORDER BY market, cell) / whole_weight AS pool_bps,
        sum(weight * book_mean ORDER BY market, cell) / whole_weight AS book_bps,
        pool_bps - book_bps AS difference_bps,
        sum(pool_value::DOUBLE * gap ORDER BY market, cell) / pool_matched AS pool_weighted_bps,
        sum(book_value::DOUBLE * gap ORDER BY market, cell) / book_matched AS book_weighted_bps,
        sum(distance)::DOUBLE / (pool_matched + book_matched) AS distance
    FROM means
    GROUP BY ALL
),
moves AS (  -- how far the difference moves without each cluster; where nothing is left, without end
    SELECT {keys.columns("s")}, level, cluster,
        bool_or(is_at_pool) AS is_at_pool,
        bool_or(is_on_book) AS is_on_book,
        sum(change ORDER BY market, change) AS lost,
        whole_weight + lost AS rest,
        sum(pull ORDER BY market, pull) - lost * difference_bps AS pulled,
        -- Weights are doubles: what is left of none need not be 0.
        CASE WHEN rest > 0 AND sum(emptied) < cells THEN pulled / rest ELSE 'inf'::DOUBLE END AS moved
    FROM spreads AS s
    JOIN matched AS m ON {keys.same("s", "m")}
    GROUP BY {keys.columns("s")}, level, cluster, whole_weight, difference_bps, cells
),
{chosen_sql(group, level, cluster, at_each_venue)}
SELECT {keys.columns("v")},
    coalesce(fills, 0) AS fills,
    coalesce(unpriced, 0) AS unpriced,
    coalesce(COLUMNS(['orders', 'accounts', 'clusters']), 0),
    level AS cluster,
    coalesce(pool_matched, 0) / nullif(pool_total, 0) AS pool_matched_share,
    coalesce(book_matched, 0) / nullif(book_total, 0) AS book_matched_share,
    pool_bps,
    book_bps,
    difference_bps,
    difference_bps - reach AS low_bps,
    difference_bps + reach AS high_bps,
    pool_weighted_bps,
    book_weighted_bps,
    errors AS "{ERRORS}",
    {margin} AS "{MARGIN}",
    {VERDICT.format(low="low_bps", high="high_bps")} AS verdict,
    {literal(kind)} AS reference,
    CAST(sum(left_out) OVER () // {parts} AS BIGINT) AS "{LEFT_OUT}"
FROM venues AS v
LEFT JOIN matched AS m ON {keys.same("v", "m")}
LEFT JOIN chosen AS c ON {keys.same("v", "c")}
{keys.sorted_by(table="v")}""",
    }
