"""As-of lookups: the last price before a moment, or the first one after it, as steps of a query.

A price is *before* an order if it is older than the order's first fill, and *after* it if it is newer than its
last one. So no fill meets itself, its other side or another fill of its order, and no further rule is needed.
Moments are whole numbers, so a price up to and including a moment is one before the moment plus 1.
"""

from __future__ import annotations

from typing import Any, Literal

from loopring_lab.engine.kinds import Given
from loopring_lab.engine.question import ORDER_COLUMNS, PLACE, PLACE_BITS, Large, Prices

Nearest = Literal["last", "first"]
"""Which price a lookup finds: the last one before a moment, or the first one after it."""

# The highest number of DuckDB's BIGINT.
UNKNOWN_ID = (1 << 63) - 1
# No horizon is longer than 139 years: moments hold times up to the year 2248.
LONGEST = 1 << 42

PRICE_COLUMNS = (*PLACE, *ORDER_COLUMNS)
"""What prices that are trades have for the steps below: `Question.price_may_have`."""


def spans_sql(*, with_prices: bool, trades: str = "trades") -> Large:
    """Return the step ``spans`` of the time in which orders of several fills were filled, for `with_spans_sql`.

    `with_prices`: prices may be trades, with fills of these orders that the trades asked about lack.
    """
    fills = f"SELECT order_id, moment FROM {trades}"
    if with_prices:
        fills += f"""
    UNION ALL
    SELECT order_id, moment FROM prices WHERE order_id IN (SELECT order_id FROM {trades})"""
    return Large(f"""
-- orders of several fills with the moments of the first and the last, unknown if that of any fill is; most orders
-- have one fill, whose moment is both, and are not looked up
WITH filled AS NOT MATERIALIZED (  -- each fill of these orders
    {fills}
),
repeated AS (  -- orders of several fills: their number alone takes a third of the memory
    SELECT order_id FROM filled GROUP BY order_id HAVING count(*) > 1
)
SELECT order_id,
    CASE WHEN count(*) = count(moment) THEN min(moment) END AS first_fill,
    CASE WHEN count(*) = count(moment) THEN max(moment) END AS last_fill
FROM filled
WHERE order_id IN (FROM repeated)
GROUP BY order_id
ORDER BY first_fill""")


def with_spans_sql(rows: str) -> str:
    """Return rows with ``first_fill`` and ``last_fill`` of their order, as SQL over ``spans``.

    ``is_only`` is whether a row is all fills of its order: most are, and need not be put together.
    """
    return f"""SELECT fills.*,
        spans.order_id IS NULL AND fills.order_id IS NOT NULL AS is_only,
        CASE WHEN is_only THEN moment ELSE first_fill END AS first_fill,
        CASE WHEN is_only THEN moment ELSE last_fill END AS last_fill
    FROM {rows} AS fills LEFT JOIN spans ON fills.order_id = spans.order_id"""


def before_sql(prices: Given[Any] | None) -> str:
    """Return the moment than which the prices before an order are older, as SQL over ``spans``.

    Where prices lack their places in blocks, it is not known which of a millisecond came first: none is before.
    """
    if prices is None or set(PLACE) <= set(prices.names):
        return "first_fill"
    return f"first_fill - (first_fill & {(1 << PLACE_BITS) - 1})"


def prices_sql(
    prices: Given[Any] | None, nearest: Nearest, *keys: str, source: str = "trades"
) -> Prices:
    """Return the step ``known_prices`` that `asof_sql` looks among, by market or by other `keys`.

    They are those of `prices`, or where there are none of the step `source`. Of several trades at one moment it is
    the one nearest to what is looked up: for the last price before it that of the highest trade id, for the first
    after it that of the lowest. Unknown ids are the highest. Prices that no id tells apart, such as those of two
    outside markets or a bid and an ask, count as their mean, cut to 18 decimals.
    """
    keys = keys or ("market",)
    choose = "max" if nearest == "last" else "min"
    known = " AND ".join(f"{key} IS NOT NULL" for key in keys)
    if prices is not None:
        source = "prices"
        # Closes of a year of minutes are many; those of markets that were not traded in are not looked up.
        known += " AND market IN (SELECT market FROM trades)"
    return Prices(f"""
-- one price of each moment, under a number for its keys: joining by text takes twice as long
WITH usable AS NOT MATERIALIZED (  -- prices with what tells several of a moment apart
    SELECT hash({", ".join(keys)}) AS keys, moment, price, coalesce(trade_id, {UNKNOWN_ID}) AS id
    FROM {source}
    WHERE price > 0 AND moment IS NOT NULL AND {known}
),
moments AS (  -- each moment; nearly all have one price, and finding the others by id takes three times as long
    SELECT keys, moment, min(price) AS price, max(price) AS highest
    FROM usable
    GROUP BY ALL
),
trades_at_once AS (  -- each trade of a moment with several prices; where ids are equal or unknown, their mean
    SELECT keys, moment, id, sum(price) // count(*) AS price
    FROM usable SEMI JOIN (FROM moments WHERE price < highest) USING (keys, moment)
    GROUP BY ALL
),
nearest AS (  -- the price of each such moment
    SELECT keys, moment, {choose}_by(price, id) AS price
    FROM trades_at_once
    GROUP BY ALL
)
SELECT keys, moment, coalesce(nearest.price, moments.price) AS price
FROM moments LEFT JOIN nearest USING (keys, moment)""")


def asof_sql(
    lookups: str, nearest: Nearest, *keys: str, within: int | None = None
) -> str:
    """Return the step that looks up, for each row of `lookups`, the price nearest to its ``anchor``, a moment.

    It adds ``found_price`` and ``found_moment``, null where there is none `within` so many milliseconds. The `keys`
    of `lookups` are in the order of those of the step ``known_prices``.
    """
    number = f"hash({', '.join(keys or ('market',))})"
    near = "TRUE"
    if within is not None:
        near = (
            f"abs((met_moment >> {PLACE_BITS}) - (anchor >> {PLACE_BITS})) <= {within}"
        )
    sign = ">" if nearest == "last" else "<"
    return f"""
-- beside each row the {nearest} price {"before" if nearest == "last" else "after"} its anchor
WITH met AS (  -- each row, with the price that it meets
    SELECT l.*, k.price AS met_price, k.moment AS met_moment
    FROM (SELECT *, {number} AS keys FROM {lookups}) AS l
    ASOF LEFT JOIN known_prices AS k ON l.keys = k.keys AND anchor {sign} k.moment
)
SELECT * EXCLUDE (keys, met_price, met_moment),
    CASE WHEN {near} THEN met_price END AS found_price,
    CASE WHEN {near} THEN met_moment END AS found_moment
FROM met"""


def too_late_sql(ms: str, horizon: str | int) -> str:
    """Return the moment from which prices are later than a horizon after a time, as SQL; both are in milliseconds."""
    return f"({ms} + least({horizon}, {LONGEST}) + 1) * {1 << PLACE_BITS}"


def time_sql(moment: str) -> str:
    """Return the time of a moment as SQL, to the millisecond."""
    return f"make_timestamptz(({moment} >> {PLACE_BITS}) * 1000)"
