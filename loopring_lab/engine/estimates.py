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

from loopring_lab.engine.question import Large, Question, Streamed
from loopring_lab.engine.sums import both_sides_columns, both_sides_sql, pairs_sql
from loopring_lab.engine.worth import DAY_SQL
from loopring_lab.errors import LabError

# Intervals of fewer fills or effective orders are not shown: they hold the truth too seldom.
FEWEST = 20

# An estimate of a rate, as answers show it, and what its columns are called before the rate.
OF_RATES = ("mean", "weighted", "median", "low", "high")
SHOWN = """e.mean_{0}, e.weighted_{0}, m.{0} AS median_{0},
    e.weighted_{0} - reach * error_{0} AS low_{0}, e.weighted_{0} + reach * error_{0} AS high_{0}"""


def check_level(intervals: Any, caller: str) -> None:
    """Raise a `LabError` unless the level of intervals lies between 0 and 1."""
    is_number = isinstance(intervals, (int, float)) and not isinstance(intervals, bool)
    # Levels within rounding of 0 or 1 have no quantile.
    if not is_number or not 1 < 1 + intervals < 2:
        raise LabError(
            f"{caller}: intervals={intervals!r} is not a level between 0 and 1. Give one such as 0.95."
        )


def quantile(level: float) -> float:
    """Return how many standard errors a normal interval reaches to each side."""
    return NormalDist().inv_cdf((1 + level) / 2)


def widening(level: float) -> float:
    """Return how many standard errors more an interval reaches, divided by the degrees of freedom.

    It is the first term of the expansion of Student's t in 1 / degrees of freedom (Abramowitz and Stegun, 26.7.5).
    """
    z = quantile(level)
    return (z**3 + z) / 4


def with_estimates(
    question: Question,
    rates: Sequence[str],
    level: float,
    *,
    fills: str = "1",
    missing: str = "unpriced",
    sides: str = "trades",
    columns: Sequence[str] = (),
) -> Question:
    """Return a question with the last steps added, which estimate `rates` by its keys.

    Its last step so far is ``costs``, with the keys, the rates, ``order_id``, ``is_only`` (whether a row is all that
    there is of its order; FALSE where that is not known), ``market``, ``quote``, ``notional`` and ``ms``. `ask` it
    with ``worth``. The answer has ``fills``, ``orders``, and of each rate ``mean_``, ``weighted_``, ``median_``,
    ``low_`` and ``high_``, all over the same rows: those that have all rates. It also has ``both_sides``, and
    ``median_`` of each column that the question has medians of already.

    Parameters
    ----------
    question : Question
    rates : sequence of str
    level : float
        Of the intervals.
    fills : str
        How many fills a row of ``costs`` is of.
    missing : str
        What the number of rows without one of the rates is called.
    sides : str
        The step in which fills of which both sides are there are counted.
    columns : sequence of str
        Further columns of the answer, over ``medians`` as m.
    """
    keys = question.keys
    own = [f"{kind}_{rate}" for rate in rates for kind in OF_RATES]
    for name in keys.names:
        if name in own:
            raise LabError(
                f"{question.caller}: by= cannot include {name!r}. The result has its own column of that name: "
                "rename yours."
            )
    group = keys.columns()
    # All rates are over the same rows, so that parts of a cost add up.
    whole = " + ".join(rates)
    middles = [f"m.{name} AS median_{name}" for name in question.medians]
    reach = f"{quantile(level)} + {widening(level)} / (effective - 1)"

    def each(line: str) -> str:
        return ",\n    ".join(line.format(rate) for rate in rates)

    rows = Large(f"""
-- what is estimated: where one rate is unknown, all are; fills of unknown orders are one order of their market
SELECT {group}, coalesce(order_id, hash(market)) AS order_id, is_only, quote, {DAY_SQL} AS day, {fills} AS fills,
    CASE WHEN {whole} IS NOT NULL THEN notional::DOUBLE END AS value,
    {each(f"CASE WHEN {whole} IS NOT NULL THEN {{0}} END AS {{0}}")}{"".join(f", {name}" for name in question.medians)}
FROM costs""")

    quotes = f"""
-- the quote tokens of each group
SELECT DISTINCT {group}, quote FROM rows"""

    weights = f"""
-- whether each group is weighed in its only quote token, or in what several are worth
SELECT {group}, coalesce(min(quote) = max(quote), TRUE) AS has_one_quote FROM quotes GROUP BY {group}"""

    weighed = Streamed(f"""
-- what each row adds to its order
SELECT {group}, order_id, is_only, quote, day, fills,
    1 AS rows,
    if({rates[0]} IS NULL, 0, 1) AS priced,
    coalesce(value, 0) AS value,
    {each("coalesce(value * {0}, 0) AS paid_{0}")},
    {each("{0} AS sum_{0}")}
FROM rows""")

    several = Large(f"""
-- orders of several rows, by quote token
SELECT {group}, order_id, quote,
    min(day) AS day,
    sum(COLUMNS(* EXCLUDE ({group}, order_id, is_only, quote, day)))
FROM weighed
WHERE NOT is_only
GROUP BY {group}, order_id, quote""")

    paid = Streamed(f"""
-- each order of a group: its value and what it paid, value times rate, in the quote token, or where the group has
-- several in the most used one; unknown where no market leads there
SELECT o.* REPLACE (
    value * if(has_one_quote, 1, worth) AS value,
    {each("paid_{0} * if(has_one_quote, 1, worth) AS paid_{0}")}
)
FROM (
    SELECT * EXCLUDE is_only
    FROM weighed
    WHERE is_only
    UNION ALL BY NAME
    FROM several
) AS o
LEFT JOIN weights AS u ON {keys.same("o", "u")}
LEFT JOIN worth AS w ON o.quote = w.token AND o.day = w.day""")

    sums = f"""
-- sums over orders by group
SELECT {group},
    sum(fills) AS fills,
    sum(rows - priced) AS missing,
    sum(priced) AS priced,
    count(*) AS orders,
    count(*) FILTER (WHERE value > 0) AS weighing,
    sum(value) AS value,
    sum(value * value) AS squares,
    {each("sum(sum_{0}) AS sum_{0}, sum(paid_{0}) AS paid_{0}")}
FROM paid
GROUP BY {group}"""

    means = f"""
-- means of each group
WITH totals AS (  -- the sums of each group in all markets
    SELECT {group}, sum(COLUMNS(* EXCLUDE ({group}))) FROM sums GROUP BY {group}
)
SELECT *,
    {each("sum_{0} / nullif(priced, 0) AS mean_{0}, paid_{0} / nullif(value, 0) AS weighted_{0}")}
FROM totals"""

    spreads = f"""
-- squared distances of what each order paid from what it would have paid at the mean
SELECT {keys.columns("m")},
    {each("sum(pow(o.paid_{0} - m.weighted_{0} * o.value, 2)) AS off_{0}")}
FROM paid AS o JOIN means AS m ON {keys.same("o", "m")}
GROUP BY {keys.columns("m")}"""

    answer = f"""
WITH off AS (  -- distances in all markets
    SELECT {group}, sum(COLUMNS('off_.*')) FROM spreads GROUP BY {group}
),
errors AS (  -- Kish: how many orders of equal value would say as much; then the standard error of each mean
    SELECT m.*,
        value * value / nullif(squares, 0) AS effective,
        CASE WHEN priced >= {FEWEST} AND effective >= {FEWEST} THEN {reach} END AS reach,
        {each("sqrt(off_{0} * weighing / nullif(weighing - 1, 0)) / nullif(value, 0) AS error_{0}")}
    FROM means AS m JOIN off AS o ON {keys.same("m", "o")}
)
SELECT {keys.columns("e")}, fills::BIGINT AS fills, missing::BIGINT AS {missing}, orders::BIGINT AS orders,
    {each(SHOWN)},
    {", ".join([both_sides_columns(True), *middles, *columns])}
FROM errors AS e
JOIN medians AS m ON {keys.same("e", "m")}
LEFT JOIN ({both_sides_sql(keys)}
) AS b ON {keys.same("e", "b")}
{keys.sorted_by(table="e")}"""

    steps = {
        **question.steps,
        "rows": rows,
        "quotes": quotes,
        "weights": weights,
        "weighed": weighed,
        "several": several,
        "paid": paid,
        "sums": sums,
        "means": means,
        "spreads": spreads,
        "pairs": pairs_sql(keys, sides),
        "answer": answer,
    }
    return replace(question, steps=steps, medians=(*question.medians, *rates))
