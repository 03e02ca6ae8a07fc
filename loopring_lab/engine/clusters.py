"""How sure an estimate is: the cluster jackknife, the same for every interval of the package.

Orders of one account, of one day or of one week have something in common, so they are not so many independent
observations. So each such *cluster* is left out in turn, and the estimate computed again. How far it moves tells how
much it would vary with other clusters like these (CRV3: MacKinnon, Nielsen and Webb, "Fast and reliable jackknife and
bootstrap methods for cluster-robust inference", Journal of Applied Econometrics, 2023). For G clusters:

    error ** 2 = (G - 1) / G * sum(moved ** 2)        the interval reaches t errors to each side, of Student's t with
                                                      G - 1 degrees of freedom

Which of the three *levels* varies on its own is not known, so that every level is tried that has at least
`LEAST_CLUSTERS` clusters, at both venues where two are compared, and the widest interval counts. It is cautious where
several levels are about as wide: the widest of three then holds more often than it says.

A few accounts cannot speak for others: with more than one, but fewer than `LEAST_CLUSTERS`, there is no interval. One
account speaks for itself, by its days and weeks. Unknown accounts may be one or many: together they are one cluster,
which speaks for nobody. An estimate that cannot be computed without one of its clusters has no interval either.

Student's t counts clusters, whatever they weigh. Where two or three of many accounts have nearly all of the value, and
differ as others do, intervals hold less often than they say: 82 to 87 % of 95 % intervals of one mean in draws of such
accounts, and 8 to 12 % of the verdicts on two venues were wrong. A single large account does no such harm.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from loopring_lab.engine.groups import DAY, literal
from loopring_lab.errors import LabError

# Fewer clusters say too little about others like them; a jackknife of eight holds its level in most populations.
LEAST_CLUSTERS = 8
LEVELS = ("account", "day", "week")
# Seven days, counted from the beginning of 1970.
WEEK = 7 * DAY
# The cluster of orders whose account is not known.
NO_ACCOUNT = -1


def check_intervals(intervals: Any, cluster: Any, caller: str) -> None:
    """Raise a `LabError` unless the level of intervals lies between 0 and 1, and errors can be clustered by this."""
    if cluster is not None and cluster not in LEVELS:
        raise LabError(
            f"{caller}: cluster={cluster!r} is not known. Give 'account', 'day' or 'week', or None for the one "
            "with the widest interval."
        )
    is_number = isinstance(intervals, (int, float))
    # Levels within rounding of 0 or 1 have no quantile.
    if not is_number or not 1 < 1 + intervals < 2:
        raise LabError(
            f"{caller}: intervals={intervals!r} is not a level between 0 and 1. Give one such as 0.95."
        )


def clusters_sql(account: str, ms: str) -> str:
    """Return the columns ``account``, ``day`` and ``week``, the clusters of an order, as SQL."""
    return f"""coalesce({account}, {NO_ACCOUNT}) AS account,
    floor({ms} / {DAY}.0)::INTEGER AS day,
    floor({ms} / {WEEK}.0)::INTEGER AS week"""


def by_cluster_sql(group: str, sums: str, rows: str) -> str:
    """Return sums of rows by group and cluster of each level, as SQL: ``level``, ``cluster`` and the sums."""
    return f"""SELECT {group},
        CASE WHEN account IS NOT NULL THEN 'account' WHEN day IS NOT NULL THEN 'day' ELSE 'week' END AS level,
        coalesce(account, day, week) AS cluster,
        {sums}
    FROM {rows}
    GROUP BY GROUPING SETS (({group}, account), ({group}, day), ({group}, week))
    HAVING cluster IS NOT NULL"""


def quantile(level: float) -> float:
    """Return how many standard errors a normal interval reaches to each side."""
    return NormalDist().inv_cdf((1 + level) / 2)


def student(level: float, freedom: int) -> float:
    """Return the quantile of Student's t: how many errors an interval of a level reaches to each side."""
    terms = _student_terms(level)
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


def student_sql(level: float, freedom: str) -> str:
    """Return the same as SQL."""
    return " + ".join(
        f"{term!r} / pow({freedom}, {power})"
        for power, term in enumerate(_student_terms(level))
    )


def _student_terms(level: float) -> list[float]:
    """Expand the quantile in 1 / freedom, from that of the normal distribution (Abramowitz and Stegun, 26.7.5).

    With seven degrees of freedom it is 0.01 % off at a level of 95 %, and 0.5 % at 99.9 %.
    """
    z = quantile(level)
    return [
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    ]


def chosen_sql(
    group: str, level: float, cluster: str | None, clusters: str = "count(*)"
) -> str:
    """Return the steps of a WITH from ``moves`` to ``chosen``: for each group the clusters whose interval counts.

    ``moves`` says how far the estimate moves without each cluster. Of `clusters`, which counts them at the venue that
    has fewer, there must be enough. Of the levels that have enough, the one with the widest interval counts; ``reach``
    is how far that interval reaches to each side. It is null where no level has enough, or where there are several
    accounts, but too few to speak for others: then the level is that of accounts. ``accounts`` is how many are known.
    ``errors`` are those of all levels that could have been chosen, with their degrees of freedom, for wider intervals;
    null where there are none.
    """
    wanted = f"level = {literal(cluster)}" if cluster else "TRUE"
    speaks = "TRUE" if cluster else f"is_of_one OR least_accounts >= {LEAST_CLUSTERS}"
    return f"""levels AS (  -- how many clusters of each level there are, and how far their interval reaches
    SELECT {group}, level,
        count(*) AS all_clusters,
        count(*) FILTER (WHERE level = 'account' AND cluster <> {NO_ACCOUNT}) AS known_accounts,
        {clusters} AS clusters,
        sqrt((count(*) - 1) / count(*) * sum(moved * moved ORDER BY cluster)) AS error,
        error * ({student_sql(level, "(count(*) - 1)")}) AS reach
    FROM moves
    GROUP BY {group}, level
),
counted AS (  -- with how many accounts there are, in all and at the venue that has fewer
    SELECT *,
        max(known_accounts) OVER each AS accounts,
        max(clusters) FILTER (WHERE level = 'account') OVER each AS least_accounts,
        accounts = 1 AND max(all_clusters) FILTER (WHERE level = 'account') OVER each = 1 AS is_of_one,
        clusters >= {LEAST_CLUSTERS} AND ({speaks}) AS is_enough
    FROM levels
    WINDOW each AS (PARTITION BY {group})
),
chosen AS (  -- the level that counts
    SELECT {group}, level, clusters, accounts,
        list({{error: error, freedom: all_clusters - 1}}) FILTER (WHERE is_enough) OVER each AS errors,
        CASE WHEN is_enough AND isfinite(reach) THEN reach END AS reach
    FROM counted
    WHERE {wanted}
    WINDOW each AS (PARTITION BY {group})
    QUALIFY row_number() OVER (
        each ORDER BY is_enough DESC, CASE WHEN is_enough THEN reach END DESC NULLS LAST,
            level = 'account' AND NOT is_of_one DESC, clusters DESC, level
    ) = 1
),"""
