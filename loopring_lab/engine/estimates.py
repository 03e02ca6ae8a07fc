"""Means of rates by group, weighted by value, with intervals: the last steps of many questions.

The mean is a ratio of two sums, of value times rate and of value, over the rows of a group that have all its rates. In
one group values are in one token, so that they can be added: the quote token if there is one, else the most used one.
Without an account, a day or a week, both sums are smaller by what it has, which gives the mean that is left. How far
that moves is how sure the mean is, see `clusters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopring_lab.engine.clusters import by_cluster_sql, chosen_sql, clusters_sql
from loopring_lab.engine.notes import UNWEIGHED
from loopring_lab.engine.question import Large, Question, Streamed
from loopring_lab.engine.sums import both_sides_columns, both_sides_sql, pairs_sql

# How far the mean of a rate moves without a cluster; without end where nothing else is left.
REST = "(t.paid_{0} - c.paid_{0})::DOUBLE / nullif(t.value - c.value, 0)::DOUBLE"
MOVED = "{{rate: '{0}', moved: coalesce(" + REST + " - weighted_{0}, 'inf'::DOUBLE)}}"
# An estimate of a rate, as answers show it.
SHOWN = """e.mean_{0}, e.weighted_{0}, m.{0} AS median_{0},
    e.weighted_{0} - reach_{0} AS low_{0}, e.weighted_{0} + reach_{0} AS high_{0}"""


def names_of(*rates: str) -> list[str]:
    """Return the names that answers have for the estimates of rates, which no key may have."""
    kinds = ("mean", "weighted", "median", "low", "high")
    return [f"{kind}_{rate}" for kind in kinds for rate in rates]


def with_estimates(
    question: Question,
    rates: Sequence[str],
    level: float,
    cluster: str | None = None,
    *,
    fills: str = "1",
    missing: str = "unpriced",
    sides: str = "trades",
    asked_about: str = "",
    columns: Sequence[str] = (),
) -> Question:
    """Return a question with the last steps added, which estimate `rates` by its keys.

    Its last step so far is ``costs``, with the keys, the rates, ``order_id``, ``is_only`` (whether a row is all that
    there is of its order; FALSE where that is not known), ``account_id``, ``market``, ``quote``, ``notional`` and
    ``ms``. `ask` it with ``worth``. The answer has ``fills``, ``orders``, and of each rate ``mean_``, ``weighted_``,
    ``median_``, ``low_`` and ``high_``, all over the same rows: those that have all rates. It also has ``both_sides``,
    and ``median_`` of each column that the question has medians of already.

    Parameters
    ----------
    question : Question
    rates : sequence of str
    level : float
        Of the intervals.
    cluster : str or None
        What varies as one, see `clusters.chosen_sql`.
    fills : str
        How many fills a row of ``costs`` is of.
    missing : str
        What the number of rows without one of the rates is called.
    sides : str
        The step in which fills of which both sides are there are counted.
    asked_about : str
        The step with the fills asked about, by default `sides`.
    columns : sequence of str
        Further columns of the answer, over ``medians`` as m.
    """
    keys = question.keys
    group = keys.columns()
    # All rates are over the same rows, so that parts of a cost add up.
    whole = " + ".join(rates)
    middles = [f"m.{name} AS median_{name}" for name in question.medians]

    def each(line: str) -> str:
        return ",\n    ".join(line.format(rate) for rate in rates)

    rows = Large(f"""
-- what is estimated: where one rate is unknown, all are; a row has the number of its order if that has others, and
-- fills of unknown orders are one order of their market
SELECT {group}, quote, {fills} AS fills,
    CASE WHEN NOT is_only THEN coalesce(order_id, hash(market)) END AS order_id,
    {clusters_sql("account_id", "ms")},
    CASE WHEN isfinite({whole}) THEN notional END AS value,
    {each(f"CASE WHEN isfinite({whole}) THEN {{0}} END AS {{0}}")}{"".join(f", {name}" for name in question.medians)}
FROM costs""")

    quotes = f"""
-- the quote tokens of each group
SELECT DISTINCT {group}, quote FROM {asked_about or sides}"""

    weights = Large(f"""
-- whether each group is weighed in its only quote token, or in what several are worth
SELECT {group}, coalesce(min(quote) = max(quote), TRUE) AS has_one_quote FROM quotes GROUP BY {group}""")

    paid = Streamed(f"""
-- each row with its value and what it paid, value times rate, in the quote token, or where the group has several in the
-- most used one; unknown where no market leads there. Whole numbers have the same sum in any order of rows
SELECT *,
    {each("(value::DOUBLE * {0})::HUGEINT AS paid_{0}")}
FROM (
    SELECT r.* REPLACE (CASE
        WHEN has_one_quote OR worth = 1 THEN value
        ELSE (value::DOUBLE * worth)::HUGEINT
    END AS value)
    FROM rows AS r
    LEFT JOIN weights AS u ON {keys.same("r", "u")}
    LEFT JOIN worth AS w ON r.quote = w.token AND r.day = w.day
)""")

    sums = f"""
-- sums of each group
SELECT {group},
    sum(fills)::BIGINT AS fills,
    count(*) - count({rates[0]}) AS missing,
    count({rates[0]}) AS priced,
    count({rates[0]}) - count(value) AS unweighed,
    count(*) - count(order_id) + count(DISTINCT order_id) AS orders,
    sum(value) AS value,
    {each("sum({0}) AS sum_{0}, sum(paid_{0}) AS paid_{0}")}
FROM paid
GROUP BY ALL"""

    spreads = f"""
-- sums of each account, day and week
{by_cluster_sql(group, "sum(value) AS value, " + each("sum(paid_{0}) AS paid_{0}"), "paid")}"""

    answer = f"""
WITH totals AS (  -- the sums of each group in all markets, with its means
    SELECT {group}, sum(COLUMNS(* EXCLUDE ({group}))),
        {each("sum(sum_{0}) / nullif(sum(priced), 0) AS mean_{0}")},
        {each("sum(paid_{0})::DOUBLE / nullif(sum(value), 0)::DOUBLE AS weighted_{0}")}
    FROM sums
    GROUP BY ALL
),
clusters AS (  -- the sums of each cluster in all markets
    SELECT {group}, level, cluster, sum(COLUMNS('value|paid_.*'))
    FROM spreads
    GROUP BY ALL
),
moves AS (  -- how far each mean moves without each cluster that has any value
    SELECT {keys.columns("c")}, level, cluster, unnest([{each(MOVED)}], recursive := true)
    FROM clusters AS c
    JOIN totals AS t ON {keys.same("c", "t")}
    WHERE c.value > 0
),
{chosen_sql(f"{group}, rate", level, cluster)}
reaches AS (  -- each group, with the reach of each rate
    SELECT {group}, {each("max(reach) FILTER (WHERE rate = '{0}') AS reach_{0}")}
    FROM chosen
    GROUP BY ALL
)
SELECT {keys.columns("e")}, fills::BIGINT AS fills, missing::BIGINT AS {missing}, orders::BIGINT AS orders,
    {each(SHOWN)},
    {", ".join([both_sides_columns(True), *middles, *columns])},
    (sum(unweighed) OVER ())::BIGINT AS "{UNWEIGHED}"
FROM totals AS e
LEFT JOIN medians AS m ON {keys.same("e", "m")}
LEFT JOIN reaches AS r ON {keys.same("e", "r")}
LEFT JOIN ({both_sides_sql(keys)}
) AS b ON {keys.same("e", "b")}
{keys.sorted_by(table="e")}"""

    steps = {
        **question.steps,
        "quotes": quotes,
        "weights": weights,
        "rows": rows,
        "paid": paid,
        "sums": sums,
        "spreads": spreads,
        "pairs": pairs_sql(keys, sides),
        "answer": answer,
    }
    return replace(question, steps=steps, medians=(*question.medians, *rates))
