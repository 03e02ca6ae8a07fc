"""What the difference of two venues is over all cells, by four weights of a cell, and how sure it is.

A cell is a market, a side and a size class, of which each venue has orders with a value and a cost. A cell's gap is
the pool's mean cost less the book's. An estimand is a weighted mean of gaps:

``all``
    a cell weighs the value of all its fills
``overlap``
    pool * book / (pool + book): the coefficient of a regression with an effect for each cell
``pool``, ``book``
    the value at one venue: what its takers would have saved or lost at the other

Standard errors come from leaving out each cluster in turn. Sums over cells make that cheap: a cluster changes only the
cells in which it has orders.
"""

from __future__ import annotations

from typing import Any

from loopring_lab.engine.estimates import FEWEST, quantile
from loopring_lab.engine.groups import Keys, literal
from loopring_lab.engine.notes import LEFT_OUT
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import OWN_TRADES

# The weight of a cell in each estimand, of its values at the pool and on the book.
WEIGHTS = {
    "all": "{pool} + {book}",
    "overlap": "{pool} * {book} / ({pool} + {book})",
    "pool": "{pool}",
    "book": "{book}",
}
# What clusters of each level are told apart by. Orders of unknown accounts are clusters of their own.
CLUSTERS = {
    "order": "order_id",
    "account": "if(account IS NULL, order_id, hash(account))",
    "day": "hash(day)",
}
# Whose fills are compared, where it is not one class of takers: of trades without a column of classes, and with one.
EVERYBODY = "all takers, arbitrage included"
ALL_TAKERS = "all takers"
VENUES = {"pool": "amm", "book": "dex"}
# A venue's orders need to say as much as this many of equal weight (Kish), or one of them outweighs all others.
LEAST_EFFECTIVE = 2
# Fewer clusters say too little of how much clusters vary. Of 1,200 intervals of worlds 1 to 24, with 5 to 20 accounts,
# 95 to 98 % held the population's value.
LEAST_CLUSTERS = 5
# Where a size class of a market has no orders of a venue, a tenth as many are expected as the class below has: there
# book orders thin out at about this rate. Chosen on worlds 4001 to 4024, at which a twelfth or an eighth does as well.
THINNING = 0.1
# A cluster may be all but a trace of a sum, and what is left without it would be rounding if doubles were taken away
# from doubles. So sums are of whole numbers: of orders as parts of the largest one, which leaves room for 2**27
# such orders in the 127 bits of a HUGEINT; of cells as parts of the weight of all, times up to 10**14 basis points.
PARTS_OF_ORDER = 2.0**100
PARTS_OF_WEIGHT = 2.0**80
# Columns of the answer that no key may be called.
RESULTS = (
    "fills",
    "orders",
    "effective_orders",
    "matched_share",
    "pool_bps",
    "book_bps",
    "difference_bps",
    "low_bps",
    "high_bps",
    "fee_difference_bps",
    "price_difference_bps",
    "effective_difference_bps",
    "impact_difference_bps",
    "realized_difference_bps",
    "by_order_bps",
    "overlap_bps",
    "overlap_low_bps",
    "overlap_high_bps",
    "overlap_error_bps",
    "pool_weighted_bps",
    "pool_weighted_low_bps",
    "pool_weighted_high_bps",
    "book_weighted_bps",
    "book_weighted_low_bps",
    "book_weighted_high_bps",
    "without_one_low_bps",
    "without_one_high_bps",
    "cluster",
    "clusters",
    "verdict",
    "whose",
    "verdict_by_flow",
    "reference",
)


def estimand_steps(
    keys: Keys, kind: str, level: float, *, cluster: str | None, has_flow: bool
) -> dict[str, str]:
    """Return the steps from ``orders`` to the answer of `compare_venues`."""
    # Beside the caller's keys: the class of takers, null for all of them together.
    group = f"{keys.columns()}, flow_class"
    return {
        "sums": _cells_sql(group),
        "means": _weights_sql(group),
        "spreads": _without_each_sql(keys, group),
        "answer": _answer_sql(keys, group, kind, level, cluster, has_flow=has_flow),
    }


def _cells_sql(group: str) -> str:
    names = ("value", "paid", "fees", "split_value", "effective", "realized")
    line = "sum({}) FILTER (WHERE {{is_there}}) AS {{venue}}_{}"
    lines = [_venues(line.format(name, name)) for name in names]
    sums = ",\n        ".join(lines)
    return f"""
-- cells, with sums of each venue; without a size class, how many fills of a group are taken and not
SELECT {group}, market, side, class,
    sum(fills) AS fills,
    sum(distance) AS distance,
    min(first_flow) AS first_flow,
    max(last_flow) AS last_flow,
    {_venues("count(*) FILTER (WHERE {is_there}) AS {venue}_orders")},
    {_venues("avg(paid / value) FILTER (WHERE {is_there}) AS {venue}_by_order")},
    {sums}
FROM orders
GROUP BY {group}, market, side, class
UNION ALL BY NAME
SELECT {group},
    count(*) FILTER (WHERE is_taken) AS taken,
    count(*) FILTER (WHERE NOT is_taken) AS left_out
FROM rows
GROUP BY {group}"""


def check_cluster(cluster: Any, caller: str) -> None:
    """Raise a `LabError` unless errors can be clustered by this."""
    is_known = isinstance(cluster, str) and cluster in CLUSTERS
    if cluster is not None and not is_known:
        raise LabError(
            f"{caller}: cluster={cluster!r} is not known. Give 'order', 'account' or 'day', or None for the "
            "widest that has enough clusters."
        )


def _weights_sql(group: str) -> str:
    # How far a cell without a venue would move a difference if it had both, times the chance that it has. What is
    # called split is of fills that also have a price before their order: their cost splits into effective and impact.
    unseen = """CASE
        WHEN NOT is_matched THEN
            chance
            * guessed_{name}
            * (guessed_gap - difference_{name})
            / (total_{name} + guessed_{name})
    END AS unseen_{name}"""
    return f"""
-- cells with their gap and their weights; beside each the differences of all cells, and what it might change unseen
WITH gaps AS (  -- each cell, with the cost at each venue and what it weighs
    SELECT *,
        pool_paid / pool_value AS pool_mean,
        book_paid / book_value AS book_mean,
        pool_mean - book_mean AS gap,
        gap IS NOT NULL AS is_matched,
        {_estimands("CASE WHEN is_matched THEN {weight} END AS weight_{name}", "value")},
        pool_effective / pool_split_value - book_effective / book_split_value AS effective_gap,
        pool_realized / pool_split_value - book_realized / book_split_value AS realized_gap,
        CASE
            WHEN effective_gap IS NOT NULL THEN pool_split_value + book_split_value
        END AS weight_split,
        (1 - exp(-{_expected_sql("pool")})) * (1 - exp(-{_expected_sql("book")})) AS chance
    FROM sums
    WHERE class IS NOT NULL
    WINDOW
        alike AS (PARTITION BY {group}, market, class),
        below AS (
            PARTITION BY {group}, market ORDER BY class
            RANGE BETWEEN 1 PRECEDING AND 1 PRECEDING
        )
),
differences AS (  -- each cell, with the differences of all cells of its group
    SELECT *,
        {_estimands("sum(weight_{name}) OVER whole AS total_{name}")},
        {_estimands("sum(weight_{name} * gap) OVER whole / total_{name} AS difference_{name}")},
        sum(weight_all * pool_mean) OVER whole / total_all AS pool_bps,
        sum(weight_all * book_mean) OVER whole / total_all AS book_bps
    FROM gaps
    WINDOW whole AS (PARTITION BY {group})
),
guesses AS (  -- a venue without orders might have one as large as those of the other, at what it costs elsewhere
    SELECT *,
        coalesce(pool_value, book_value / book_orders) AS pool_guess,
        coalesce(book_value, pool_value / pool_orders) AS book_guess,
        coalesce(pool_mean, pool_bps) - coalesce(book_mean, book_bps) AS guessed_gap,
        {_estimands("{weight} AS guessed_{name}", "guess")}
    FROM differences
),
shared AS (  -- with what each cell has of the weight, and adds to the difference
    SELECT *,
        {_estimands(_whole("weight_{name} / total_{name}") + " AS share_{name}")},
        {_estimands(_whole("weight_{name} / total_{name} * (gap - difference_{name})") + " AS offset_{name}")}
    FROM guesses
)
SELECT *,
    {_estimands("sum(share_{name}) OVER whole AS shares_{name}")},
    {_estimands("sum(offset_{name}) OVER whole AS offsets_{name}")},
    {_estimands(unseen)}
FROM shared
WINDOW whole AS (PARTITION BY {group})"""


def _whole(part: str) -> str:
    """Return a part of the weight of all cells as a whole number, as SQL."""
    return f"({part} * {PARTS_OF_WEIGHT!r})::HUGEINT"


def _expected_sql(venue: str) -> str:
    """Return how many orders of a venue a cell can expect, as SQL: the mean of its class, or a part of that below.

    Both classes usually have two cells, one a side, so one count serves for both means.
    """
    orders = f"sum(nullif({venue}_orders, 0))"
    return f"coalesce({orders} OVER alike, {THINNING} * {orders} OVER below, 0) / count(*) OVER alike"


def _without_each_sql(keys: Keys, group: str) -> str:
    cell = f"{group}, market, side, class"
    levels = [
        f"{{level: '{level}', cluster: {sql}}}" for level, sql in CLUSTERS.items()
    ]
    all_levels = ", ".join(levels)
    # All but that of orders, which is the first.
    wider_levels = ", ".join(levels[1:])
    left = _whole("rest_{name} / total_{name}")
    pulled = _whole("rest_{name} / total_{name} * (rest_gap - difference_{name})")
    # What has a row for each order is read again where it is used twice: a copy would not fit into memory.
    return f"""
-- how far accounts and days pull the differences, each a row; orders, which are of one market, as sums of squares
WITH scale AS (  -- how many parts of the largest order there are to a unit of value, and of what was paid
    SELECT
        {PARTS_OF_ORDER!r} / max(value) AS unit,
        {PARTS_OF_ORDER!r} / greatest(max(abs(paid)), 1) AS paid_unit
    FROM orders
),
whole AS NOT MATERIALIZED (  -- orders, with what they have at each venue in these parts
    SELECT {cell}, order_id, is_only, account, day,
        {_venues("CASE WHEN {is_there} THEN (value * unit)::HUGEINT ELSE 0 END AS {venue}_own")},
        {_venues("CASE WHEN {is_there} THEN (paid * paid_unit)::HUGEINT ELSE 0 END AS {venue}_own_paid")}
    FROM orders
    CROSS JOIN scale
),
cells AS (  -- the cells with both venues, with what each has in these parts
    SELECT m.*, c.* EXCLUDE ({cell})
    FROM (
        SELECT {cell},
            {_venues("sum({venue}_own) AS {venue}_whole")},
            {_venues("sum({venue}_own_paid) AS {venue}_whole_paid")}
        FROM whole
        GROUP BY {cell}
    ) AS c
    JOIN means AS m ON {keys.same("c", "m", "flow_class", "market", "side", "class")}
    WHERE is_matched
),
clustered AS (  -- each order as part of each of its clusters; one of a single fill is a cluster as it is
    SELECT *,
        unnest(if(is_only, [{wider_levels}], [{all_levels}]), recursive := true)
    FROM whole
),
grouped AS MATERIALIZED (  -- what each other cluster has in each cell
    SELECT {cell}, level, cluster, FALSE AS is_only,
        sum(COLUMNS('(pool|book)_own.*'))
    FROM clustered
    GROUP BY {cell}, level, cluster
),
parts AS NOT MATERIALIZED (  -- what all clusters have in each cell
    FROM grouped
    UNION ALL BY NAME
    SELECT * EXCLUDE (order_id, account, day), 'order' AS level, order_id AS cluster
    FROM whole
    WHERE is_only
),
rests AS NOT MATERIALIZED (  -- what the cells with both venues have without it, null where that is nothing
    SELECT m.*, level, cluster, is_only,
        {_venues("{venue}_own / unit AS {venue}_part")},
        {_venues("{venue}_own_paid / paid_unit AS {venue}_part_paid")},
        {_venues("nullif({venue}_whole - {venue}_own, 0) / unit AS {venue}_rest")},
        {_venues("({venue}_whole_paid - {venue}_own_paid) / paid_unit AS {venue}_rest_paid")},
        pool_rest_paid / pool_rest - book_rest_paid / book_rest AS rest_gap,
        {_estimands("CASE WHEN rest_gap IS NOT NULL THEN {weight} END AS rest_{name}", "rest")}
    FROM parts AS p
    JOIN cells AS m ON {keys.same("p", "m", "flow_class", "market", "side", "class")}
    CROSS JOIN scale
),
moved AS NOT MATERIALIZED (  -- what that changes; a score is what it adds to that of a regression with cell effects
    SELECT {group}, level, cluster, is_only,
        total_all,
        {_estimands("shares_{name}")},
        {_estimands("offsets_{name}")},
        {_estimands(f"coalesce({left}, 0) - share_{{name}} AS change_{{name}}")},
        {_estimands(f"coalesce({pulled}, 0) - offset_{{name}} AS pull_{{name}}")},
        {_venues("nullif(weight_all * {venue}_part / {venue}_value, 0) AS {venue}_weight")},
        weight_overlap * (
            (pool_part_paid - pool_mean * pool_part) / pool_value
            - (book_part_paid - book_mean * book_part) / book_value
        )
        + (gap - difference_overlap) * (
            pool_part * pow(book_value / (pool_value + book_value), 2)
            + book_part * pow(pool_value / (pool_value + book_value), 2)
        ) AS score
    FROM rests
),
pulls AS NOT MATERIALIZED (  -- sums over cells, of which an order of a single fill has one
    SELECT * EXCLUDE is_only
    FROM moved
    WHERE is_only
    UNION ALL BY NAME
    {_summed_sql(group, "moved", "NOT is_only")}
)
{_squares_sql(group, "level = 'order'")}
UNION ALL BY NAME
-- as text: Spark has no unsigned integers
SELECT * REPLACE (cluster::VARCHAR AS cluster)
FROM pulls
WHERE level <> 'order'"""


def _summed_sql(group: str, pulls: str, where: str) -> str:
    """Return how far clusters pull the differences as SQL, from their rows in cells or markets."""
    return f"""SELECT {group}, level, cluster,
        max(COLUMNS('total_all|(shares|offsets)_.*')),
        sum(COLUMNS('(change|pull)_.*|score|(pool|book)_weight'))
    FROM {pulls}
    WHERE {where}
    GROUP BY {group}, level, cluster"""


def _squares_sql(group: str, where: str) -> str:
    """Return sums over clusters as SQL: of squares of how far the differences are from themselves without a cluster."""
    # Without a cluster a difference moves by its pull over the weight that is left. Where it is all, none is left.
    moved = """coalesce((offsets_{name} + pull_{name})::DOUBLE
        / nullif(shares_{name} + change_{name}, 0)::DOUBLE, 'inf'::DOUBLE)"""
    moved_all = moved.format(name="all")
    return f"""SELECT {group}, level,
    count(*) AS clusters,
    {_venues("count({venue}_weight) AS {venue}_clusters")},
    {_venues("sum(pow({venue}_weight, 2)) AS {venue}_squares")},
    {_estimands(f"sum(pow({moved}, 2)) AS squares_{{name}}")},
    sum(pow(score, 2)) AS scores,
    min({moved_all}) AS lowest,
    max({moved_all}) AS highest
FROM pulls
WHERE {where}
GROUP BY {group}, level"""


def _answer_sql(
    keys: Keys,
    group: str,
    kind: str,
    level: float,
    cluster: str | None,
    *,
    has_flow: bool,
) -> str:
    # Trades as reference carry half of their venue's cost: what is nearer to 0 than that proves nothing.
    margin = "distance" if kind == OWN_TRADES else "0"
    chosen = f"level = {literal(cluster)}" if cluster else "TRUE"
    whose = literal(EVERYBODY)
    if has_flow:
        # Null where nothing is compared.
        whose = f"""CASE
        WHEN first_flow = last_flow THEN first_flow
        WHEN first_flow <> last_flow THEN {literal(ALL_TAKERS)}
    END"""
    # The variance of leaving out one cluster in turn, and how much cells without a venue might change.
    variance = "squares_{name} * (c.clusters - 1) / c.clusters + coalesce(unseen_squares_{name}, 0)"
    reach = f"""CASE
            WHEN has_interval AND isfinite(squares_{{name}})
                THEN {quantile(level)} * sqrt({variance})
        END AS reach_{{name}}"""
    others = ("overlap", "pool", "book")
    disagree = " OR ".join(
        f"sign(difference_{name}) <> sign(difference_all)" for name in others
    )
    return f"""
WITH counted AS (  -- the takers' fills, and those left out
    SELECT {group},
        sum(taken) AS taken,
        sum(left_out) AS left_out
    FROM sums
    WHERE class IS NULL
    GROUP BY {group}
),
venues AS (  -- both venues over the same cells
    SELECT {group},
        {_estimands("max(difference_{name}) AS difference_{name}")},
        {_estimands("sum(pow(unseen_{name}, 2)) AS unseen_squares_{name}")},
        max(total_all) AS total_all,
        max(total_overlap) AS total_overlap,
        max(pool_bps) AS pool_bps,
        max(book_bps) AS book_bps,
        CAST(sum(fills) FILTER (WHERE is_matched) AS BIGINT) AS fills,
        min(first_flow) FILTER (WHERE is_matched) AS first_flow,
        max(last_flow) FILTER (WHERE is_matched) AS last_flow,
        sum(weight_all * (pool_fees / pool_value - book_fees / book_value))
            / max(total_all) AS fee_difference_bps,
        sum(weight_split * effective_gap) / sum(weight_split) AS effective_difference_bps,
        sum(weight_split * realized_gap) / sum(weight_split) AS realized_difference_bps,
        sum((pool_orders + book_orders) * (pool_by_order - book_by_order))
            / sum(pool_orders + book_orders) FILTER (WHERE is_matched) AS by_order_bps,
        sum(distance) FILTER (WHERE is_matched) / max(total_all) AS distance
    FROM means
    GROUP BY {group}
),
pulls AS (  -- accounts and days over all markets
    {_summed_sql(group, "spreads", "level <> 'order'")}
),
levels AS (  -- how much clusters of each level vary
    {_squares_sql(group, "TRUE")}
    UNION ALL BY NAME
    SELECT {group}, level,
        sum(COLUMNS('.*clusters|scores|.*squares.*'))
    FROM spreads
    WHERE level = 'order'
    GROUP BY {group}, level
),
chosen AS (  -- the level with the fewest clusters of those that have enough at each venue, else orders
    SELECT *,
        least(pool_clusters, book_clusters) >= {FEWEST} AS has_enough
    FROM levels
    WHERE {chosen}
    QUALIFY row_number() OVER (
        -- FALSE comes first: where none has enough it is orders, else the level with the fewest
        PARTITION BY {group} ORDER BY has_enough DESC, has_enough OR level <> 'order', clusters, level
    ) = 1
),
accounts AS (  -- how far one account moves the difference
    SELECT {group}, lowest, highest
    FROM levels
    WHERE level = 'account'
),
effective AS (  -- how many orders say as much as these: Kish
    SELECT {keys.columns("l")}, l.flow_class,
        clusters AS orders,
        least(pool_clusters, book_clusters) AS fewest,
        pow(total_all, 2) / greatest(pool_squares, book_squares) AS effective_orders
    FROM levels AS l
    JOIN venues AS v ON {keys.same("l", "v", "flow_class")}
    WHERE level = 'order'
),
compared AS (  -- each group, with the differences and how far they may be off
    SELECT
        t.*,
        v.* EXCLUDE ({group}),
        e.* EXCLUDE ({group}),
        c.clusters,
        c.level,
        fewest >= {FEWEST}
            AND effective_orders >= {LEAST_EFFECTIVE}
            AND c.clusters >= {LEAST_CLUSTERS} AS has_interval,
        {_estimands(reach)},
        sqrt(c.scores * c.clusters / (c.clusters - 1)) / total_overlap AS overlap_error_bps,
        a.lowest,
        a.highest
    FROM counted AS t
    LEFT JOIN venues AS v ON {keys.same("t", "v", "flow_class")}
    LEFT JOIN effective AS e ON {keys.same("t", "e", "flow_class")}
    LEFT JOIN chosen AS c ON {keys.same("t", "c", "flow_class")}
    LEFT JOIN accounts AS a ON {keys.same("t", "a", "flow_class")}
),
judged AS (  -- with a verdict where the interval has no 0, and the weights of cells do not decide it
    SELECT *,
        CASE
            WHEN {disagree} THEN 'undecided'
            WHEN difference_all + reach_all < -{margin} THEN 'pool'
            WHEN difference_all - reach_all > {margin} THEN 'book'
            ELSE 'undecided'
        END AS verdict
    FROM compared
),
classes AS (  -- the verdict of each class of takers
    SELECT {keys.columns()},
        string_agg(flow_class || ': ' || verdict, ', ' ORDER BY flow_class) AS verdict_by_flow
    FROM judged
    WHERE flow_class IS NOT NULL AND reach_all IS NOT NULL
    GROUP BY {keys.columns()}
)
SELECT {keys.columns("j")},
    coalesce(fills, 0) AS fills,
    coalesce(orders, 0)::BIGINT AS orders,
    effective_orders,
    coalesce(fills, 0) / nullif(taken, 0) AS matched_share,
    pool_bps,
    book_bps,
    pool_bps - book_bps AS difference_bps,
    difference_bps - reach_all AS low_bps,
    difference_bps + reach_all AS high_bps,
    fee_difference_bps,
    difference_bps - fee_difference_bps AS price_difference_bps,
    effective_difference_bps,
    effective_difference_bps - realized_difference_bps AS impact_difference_bps,
    realized_difference_bps,
    by_order_bps,
    difference_overlap AS overlap_bps,
    difference_overlap - reach_overlap AS overlap_low_bps,
    difference_overlap + reach_overlap AS overlap_high_bps,
    overlap_error_bps,
    difference_pool AS pool_weighted_bps,
    difference_pool - reach_pool AS pool_weighted_low_bps,
    difference_pool + reach_pool AS pool_weighted_high_bps,
    difference_book AS book_weighted_bps,
    difference_book - reach_book AS book_weighted_low_bps,
    difference_book + reach_book AS book_weighted_high_bps,
    difference_bps + CASE WHEN isfinite(highest) THEN lowest END AS without_one_low_bps,
    difference_bps + CASE WHEN isfinite(highest) THEN highest END AS without_one_high_bps,
    level AS cluster,
    coalesce(clusters, 0)::BIGINT AS clusters,
    verdict,
    {whose} AS whose,
    verdict_by_flow,
    {literal(kind)} AS reference,
    CAST(sum(left_out) OVER () AS BIGINT) AS "{LEFT_OUT}"
FROM judged AS j
LEFT JOIN classes AS k ON {keys.same("j", "k")}
WHERE flow_class IS NULL
{keys.sorted_by(table="j")}"""


def _venues(line: str) -> str:
    """Return a line of a SELECT for each venue."""
    return ",\n        ".join(
        line.format(venue=venue, is_there=f"fill_type = '{kind}'")
        for venue, kind in VENUES.items()
    )


def _estimands(line: str, values: str = "value") -> str:
    """Return a line of a SELECT for each estimand, with the weight of a cell by values of that name."""
    return ",\n        ".join(
        line.format(
            name=name,
            weight=weight.format(pool=f"pool_{values}", book=f"book_{values}"),
        )
        for name, weight in WEIGHTS.items()
    )
