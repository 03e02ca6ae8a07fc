"""Means of rates by group, weighted by value, with intervals: the last steps of many questions.

The mean is that of a ratio: the sum of value times rate over the sum of value. Fills of one order are one
decision, so orders vary, not fills. The standard error is that of a ratio estimator, linearised and clustered
by order (W. G. Cochran, Sampling Techniques, 3rd edition, 1977, chapter 6): how far what each order paid is
from what it would have paid at the mean. Few or very unequal orders say less than many equal ones; L. Kish's
effective number of orders widens the interval as a t distribution would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

from loopring_lab.engine.query import Question
from loopring_lab.engine.worth import day_sql
from loopring_lab.errors import LabError

# Intervals of fewer fills or effective orders are not shown: they hold the truth too seldom.
FEWEST = 20

# Columns that the rows of a question need for estimates, besides the rates and the keys.
ROW_COLUMNS = "order_id, market, quote, notional, ms"
# An estimate of a rate, as answers show it.
SHOWN = (
    "e.mean_{0}, e.weighted_{0}, m.{0} AS median_{0}, "
    "e.weighted_{0} - reach * error_{0} AS low_{0}, e.weighted_{0} + reach * error_{0} AS high_{0}"
)


def check_level(intervals: Any, caller: str) -> None:
    """Raise a `LabError` unless the level of intervals lies between 0 and 1."""
    is_number = isinstance(intervals, (int, float)) and not isinstance(intervals, bool)
    if not is_number or not 0 < intervals < 1:
        raise LabError(
            f"{caller}: intervals={intervals!r} is not a level. Give one between 0 and 1, such as 0.95."
        )


def reach_sql(level: float, effective: str) -> str:
    """Return how many standard errors an interval reaches to each side, as SQL of the effective number of orders.

    The normal quantile z, widened by the first term of the expansion of Student's t in 1 / degrees of freedom
    (Abramowitz and Stegun, 26.7.5): z + (z**3 + z) / (4 * degrees).
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    return f"({z} + {(z**3 + z) / 4} / ({effective} - 1))"


def with_estimates(question: Question, rates: Sequence[str], level: float) -> Question:
    """Return a question with the last steps added that estimate `rates` of its rows by its keys.

    Rows have the keys, the rates and `ROW_COLUMNS`. All rates of a row are unknown where the last is, so that
    parts of a cost add up. `ask` it with ``worth``. The answer has ``fills``, ``unpriced``, ``orders`` and, of each rate,
    ``mean_``, ``weighted_``, ``median_``, ``low_`` and ``high_``.
    """
    keys = question.keys
    whole = rates[-1]

    def each(line: str) -> str:
        return ",\n    ".join(line.format(rate, whole=whole) for rate in rates)

    orders = f"""
-- each order of a group: its value, and value times rate, in its quote token
SELECT {keys.columns(after=", ")}order_id, market, quote,
    min({day_sql()}) AS day,
    count(*) AS fills,
    count({whole}) AS priced,
    coalesce(sum(CAST(notional AS DOUBLE)) FILTER (WHERE {whole} IS NOT NULL), 0) AS value,
    {each("coalesce(sum(CAST(notional AS DOUBLE) * {0}) FILTER (WHERE {whole} IS NOT NULL), 0) AS paid_{0}")},
    {each("sum({0}) FILTER (WHERE {whole} IS NOT NULL) AS sum_{0}")}
FROM rows
GROUP BY {keys.columns(after=", ")}order_id, market, quote"""

    valued = """
-- the same in one token: worth is null where the quote token leads to no other
SELECT o.*, w.worth FROM orders AS o LEFT JOIN worth AS w ON o.quote = w.token AND o.day = w.day"""

    sums = f"""
-- sums over orders by group and quote token; those named _worth are in one token
SELECT {keys.columns(after=", ")}quote,
    CAST(sum(fills) AS BIGINT) AS fills,
    CAST(sum(priced) AS BIGINT) AS priced,
    count(*) AS orders,
    {each("sum(sum_{0}) AS sum_{0}")},
    sum(value) AS value, sum(value * worth) AS value_worth,
    sum(value * value) AS squares, sum(value * worth * value * worth) AS squares_worth,
    count(*) FILTER (WHERE value > 0) AS weighing, count(worth) FILTER (WHERE value > 0) AS weighing_worth,
    {each("sum(paid_{0}) AS paid_{0}, sum(paid_{0} * worth) AS paid_{0}_worth")}
FROM valued
{keys.grouped_by("quote")}"""

    def chosen(name: str) -> str:
        return f"CASE WHEN has_one_quote THEN sum({name}) ELSE sum({name}_worth) END AS {name}"

    # Orders of one quote token are weighed in it, exactly; those of several in what these were worth that day.
    means = f"""
WITH quoted AS (
    SELECT *, coalesce(min(quote) OVER alike = max(quote) OVER alike, TRUE) AS has_one_quote
    FROM sums WINDOW alike AS ({keys.partition()})
),
totals AS (
    SELECT {keys.columns(after=", ")}has_one_quote,
        CAST(sum(fills) AS BIGINT) AS fills,
        CAST(sum(priced) AS BIGINT) AS priced,
        CAST(sum(orders) AS BIGINT) AS orders,
        {each("sum(sum_{0}) AS sum_{0}")},
        {chosen("value")},
        {chosen("squares")},
        {chosen("weighing")},
        {each(chosen("paid_{0}"))}
    FROM quoted
    {keys.grouped_by("has_one_quote")}
)
SELECT *,
    {each("sum_{0} / nullif(priced, 0) AS mean_{0}, paid_{0} / nullif(value, 0) AS weighted_{0}")}
FROM totals"""

    spreads = f"""
-- squared distances of what each order paid from what it would have paid at the mean
SELECT {keys.columns("m", after=", ")}
    {each("sum(pow((o.paid_{0} - m.weighted_{0} * o.value) * CASE WHEN has_one_quote THEN 1 ELSE worth END, 2)) AS off_{0}")}
FROM valued AS o JOIN means AS m ON {keys.same("o", "m")}
{keys.columns("m", before="GROUP BY ")}"""

    answer = f"""
WITH off AS (
    SELECT {keys.columns(after=", ")}{each("sum(off_{0}) AS off_{0}")} FROM spreads {keys.grouped_by()}
),
errors AS (  -- Kish: how many orders of equal value would say as much; then the standard error of each mean
    SELECT m.*,
        m.value * m.value / nullif(m.squares, 0) AS effective,
        {each("sqrt(off_{0} * weighing / nullif(weighing - 1, 0)) / nullif(m.value, 0) AS error_{0}")}
    FROM means AS m JOIN off AS s ON {keys.same("m", "s")}
),
reached AS (
    SELECT *, CASE WHEN priced >= {FEWEST} AND effective >= {FEWEST} THEN {reach_sql(level, "effective")} END AS reach
    FROM errors
)
SELECT {keys.columns("e", after=", ")}e.fills, e.fills - e.priced AS unpriced, e.orders,
    {each(SHOWN)}
FROM reached AS e JOIN medians AS m ON {keys.same("e", "m")}
{keys.sorted_by(table="e")}"""
    steps = {
        **question.steps,
        "orders": orders,
        "valued": valued,
        "sums": sums,
        "means": means,
        "spreads": spreads,
        "answer": answer,
    }
    return replace(question, steps=steps, medians=tuple(rates))
