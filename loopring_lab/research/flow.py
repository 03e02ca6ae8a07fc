"""Flow classes: whose orders are arbitrage, and whose are a user's."""

from __future__ import annotations

from typing import Any

import pandas as pd

from loopring_lab.arguments import parse_tolerance
from loopring_lab.engine.ask import ask, ask_table, given
from loopring_lab.engine.asof import asof_sql
from loopring_lab.engine.clusters import check_intervals, student_sql
from loopring_lab.engine.groups import keys_of
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.near import prices_near
from loopring_lab.engine.question import ORDER_COLUMNS, Question
from loopring_lab.engine.worth import DAY_SQL, worth_by_day
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import (
    OUTSIDE_PRICES,
    OWN_TRADES,
    kind_of_prices,
    noted,
    price_steps,
    question_of_prices,
    worse_sql,
)
from loopring_lab.fills.sides import ONCE, ROLE_COLUMNS, role_steps

# The name that sentences have for a venue.
VENUES = {"amm": "pool", "dex": "book"}
# Orders of one day may meet the same error of a price, so a day is one observation.
FIRST_DAY = f"min({DAY_SQL})"
# Fewer other days say nothing of how an account trades.
LEAST_DAYS = 3
# Gains are whole numbers of a millionth of a basis point, whose sums are the same in any order. A gain beyond a hundred
# times the price says that a price is wrong.
UNITS = 1_000_000
LARGEST_GAIN = 1_000_000

# Steps from roles to ``gains``, what each order gained.
TRADED = """
-- takers' fills at a known venue, with the moment up to which outside prices count
SELECT *,
    began AS anchor
FROM fills
WHERE told_role = 'taker' AND fill_type IN ('amm', 'dex') AND account_id IS NOT NULL"""

GAINED = """
-- how much better than the outside price each fill was, in basis points, by its price alone at both venues: what the
-- taker pays the exchange is not known to stop an arbitrageur, and differs from venue to venue
SELECT *,
    -({worse}) AS fill_gain,
    CASE WHEN notional > 0 AND isfinite(fill_gain) THEN notional END AS weight
FROM found"""

GAINS = f"""
-- each order is one decision, however many fills it took; those without an outside price do not count
SELECT {{group}}, order_id,
    {FIRST_DAY} AS day,
    sum((weight::DOUBLE * fill_gain)::HUGEINT)::DOUBLE / sum(weight)::DOUBLE AS mean_gain,
    ({UNITS} * greatest(-{LARGEST_GAIN}, least({LARGEST_GAIN}, mean_gain)))::HUGEINT AS gain
FROM gained
GROUP BY {{group}}, market, order_id
HAVING count(weight) > 0"""

SUMS = """
-- sums of each account and day in a market
SELECT {group}, day,
    count(*) AS orders,
    sum(gain) AS gain
FROM gains
GROUP BY {group}, day"""

MEANS = """
-- the mean gain of its orders in all markets
SELECT {group}, day,
    (sum(gain) // sum(orders))::DOUBLE AS gain
FROM sums
GROUP BY {group}, day"""

# Steps of the question: what does that say of each row?
CLASSES = f"""
-- each order of a taker: arbitrage if the mean gain of the account on other days is shown to be positive
WITH taken AS (  -- each order of a taker once, with its day
    SELECT account_id, market, order_id,
        {FIRST_DAY} AS day
    FROM told
    WHERE told_role = 'taker'
    GROUP BY account_id, market, order_id
),
totals AS (  -- sums of each account
    SELECT account_id,
        count(*) AS days,
        sum(gain ORDER BY day) AS gain,
        sum(gain * gain ORDER BY day) AS squares
    FROM days
    GROUP BY account_id
),
others AS (  -- number, mean and variance of the gains of the account's other days
    SELECT t.market, t.order_id, t.account_id,
        days - if(d.gain IS NULL, 0, 1) AS n,
        (a.gain - coalesce(d.gain, 0)) / n AS mean,
        (squares - coalesce(d.gain * d.gain, 0)) / n - mean * mean AS variance
    FROM taken AS t
    LEFT JOIN days AS d ON t.account_id = d.account_id AND t.day = d.day
    LEFT JOIN totals AS a ON t.account_id = a.account_id
)
SELECT market, order_id, account_id,
    n >= {LEAST_DAYS} AND mean > ({{student}}) * sqrt(greatest(variance, 0) / (n - 1)) AS is_arbitrage
FROM others"""

ROWS = """
-- the class of each row's fill, at the order of its taker; of a fill whose taker is not there it is not known
WITH takers AS (
    SELECT t.market, trade_id,
        bool_or(coalesce(is_arbitrage, FALSE)) AS is_arbitrage
    FROM told AS t
    LEFT JOIN classes AS c ON t.account_id = c.account_id AND t.market = c.market AND t.order_id = c.order_id
    WHERE told_role = 'taker'
    GROUP BY t.market, trade_id
)
SELECT row,
    CASE
        WHEN is_arbitrage THEN 'arbitrage'
        WHEN told_role = 'taker' OR NOT is_arbitrage THEN 'user'
        ELSE 'unknown'
    END AS flow
FROM told AS t
LEFT JOIN takers AS o ON t.market = o.market AND t.trade_id = o.trade_id"""

SHARES = f"""
-- what takers traded, by venue, account and class
SELECT fill_type, account_id, flow,
    sum((notional::DOUBLE * worth)::HUGEINT) AS value
FROM told
LEFT JOIN worth ON quote = token AND {DAY_SQL} = worth.day
WHERE told_role = 'taker' AND fill_type IN ('amm', 'dex')
GROUP BY ALL"""


def with_flow(
    trades: Trades[FrameT],
    prices: Any,
    *,
    tolerance: str | pd.Timedelta | None = "5min",
    intervals: float = 0.95,
) -> FrameT:
    """Say of each fill whether its taker's order was an arbitrageur's or a user's.

    An arbitrageur trades because a price is wrong; a user, because he wants the other token. What the two pay is not
    alike, so a comparison of venues over both says little about either.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`. With the trades of all accounts, both sides of every fill are judged.
    prices : frame of any of these kinds
        Prices of an outside market, such as minute closes: ``created_at``, ``market`` and ``price``. The last one at
        or before each fill counts.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the outside price; None for any age.
    intervals : float
        How sure it must be that an account gains: level of the interval of its mean gain, between 0 and 1.

    Returns
    -------
    frame of the same kind (pandas for an Archive)
        The trades with ``flow``, of the taker of each fill: ``arbitrage``, ``user``, or ``unknown`` where the taker is
        not in `trades`. Both sides of a fill have the same. A pandas frame has ``attrs["flow"]``: by venue the
        ``accounts`` that take with arbitrage, and the ``share`` of takers' value that is.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`; `prices` are trades of this exchange, which cannot show that its prices are wrong; or
        `tolerance` or `intervals` is not valid.

    Notes
    -----
    A pool with a fee f leaves a band around the outside price S in which nobody gains by trading against it: from
    S (1 - f) to S / (1 - f) [1]_. What a fill at a constant product pays on average is the geometric mean of the
    prices before and after it, and the fee. So one that starts within the band never gets a better price than S, fee
    included, and one that starts outside it and goes to its edge always does: an order gains by how much its price is
    better than S. No fee need be assumed, as the pool's is in its price, and prices at the book are judged alike. The
    fee that a taker pays the exchange counts at neither venue: it takes most of what the arbitrageurs of the synthetic
    world gain, so that a month of their orders would not show it. So an account whose prices are better than outside,
    but not by its fees, is ``arbitrage`` too; where fees differ between venues and users get such prices, a comparison
    of those who are left favours the venue with the lower fees.

    Users gain at times, by chance. Were an order judged by its own gain, the cheap ones would be called arbitrage, and
    what is left would look expensive at the venue with the noisier prices. Orders of one day may meet the same error
    of a price. So the class of an account at an order comes from its orders of other days alone, at both venues:
    ``arbitrage`` if there are at least 3 such days, and the interval of their mean gain (Student's t) lies above 0;
    else ``user``. Nobody is left out.

    References
    ----------
    .. [1] J. Milionis, C. C. Moallemi, T. Roughgarden and A. L. Zhang, "Automated Market Making and
       Loss-Versus-Rebalancing", 2022; on fees: J. Milionis, C. C. Moallemi and T. Roughgarden, "Automated Market
       Making and Arbitrage Profits in the Presence of Fees", 2023.

    Examples
    --------
    >>> import pandas as pd
    >>> trades = pd.concat([client.trades(account, limit=200) for account in (10083, 12059)])
    >>> known = lab.research.with_flow(trades, client.outside_prices(trades))
    >>> takers = known[known["role"] == "taker"]
    >>> takers.groupby("account_id")["flow"].first().to_dict()
    {10083: 'user', 12059: 'arbitrage'}
    """
    caller = "lab.research.with_flow"
    check_intervals(intervals, None, caller)
    fills = given(trades, caller)
    within = parse_tolerance(tolerance, caller)
    beside = prices_near(prices, fills, within=within)
    if kind_of_prices(beside, fills) == OWN_TRADES:
        raise LabError(
            f"{caller}: prices= are no prices of an outside market, and trades of this exchange cannot show that its "
            "prices are wrong. Pass client.outside_prices(trades), or lab.tables.prices(file)."
        )
    keys = keys_of(fills, "account_id")
    group = keys.columns()
    roles, tables = role_steps(fills)
    steps = {
        **roles,
        "once": ONCE,
        **price_steps(beside, "last", rows="once", source="once", kind=OUTSIDE_PRICES),
        "traded": TRADED,
        "found": asof_sql("traded", "last", within=within),
        "gained": GAINED.format(worse=worse_sql("price", "found_price")),
        "gains": GAINS.format(group=group),
        "sums": SUMS.format(group=group),
        "answer": MEANS.format(group=group),
    }
    question = question_of_prices(
        caller, steps, (*ROLE_COLUMNS, "price", "notional"), keys
    )
    # Accounts trade in several markets, so what they gain is known before any order has a class.
    days = ask_table(question, fills, beside, **tables)
    judged = {
        **roles,
        "classes": CLASSES.format(student=student_sql(intervals, "(n - 1)")),
        "rows": ROWS,
    }
    shown = Question(caller, judged, ROLE_COLUMNS, ORDER_COLUMNS, shown=None)
    days = days.rename_columns(["account_id", "day", "gain"])
    answer = ask(shown, fills, days=days, **tables)
    if isinstance(answer, pd.DataFrame):
        answer.attrs["flow"] = _shares(given(answer, caller))
    return noted(answer, OUTSIDE_PRICES, fills, beside)


def _shares(known: Given[Any]) -> dict[str, dict[str, Any]]:
    """Return how many accounts take with arbitrage at each venue, and which share of takers' value that is."""
    roles, tables = role_steps(known)
    needs = (*ROLE_COLUMNS, "quote", "notional", "flow")
    question = Question(known.caller, {**roles, "sums": SHARES}, needs)
    found = ask_table(question, known, worth=worth_by_day(known), **tables).to_pandas()
    found["value"] = found["value"].astype(float)
    shares = {}
    for fill_type, venue in VENUES.items():
        taken = found[found["fill_type"] == fill_type]
        arbitrage = taken[taken["flow"] == "arbitrage"]
        if taken["value"].sum() > 0:
            shares[venue] = {
                "accounts": arbitrage["account_id"].nunique(),
                "share": float(arbitrage["value"].sum() / taken["value"].sum()),
            }
    return shares
