"""Flow classes: whose fills are arbitrage, and whose are a user's."""

from __future__ import annotations

from typing import Any

import pandas as pd

from loopring_lab.arguments import parse_tolerance
from loopring_lab.engine.ask import ask, ask_table, given, given_prices
from loopring_lab.engine.asof import asof_sql
from loopring_lab.engine.estimates import check_level, quantile
from loopring_lab.engine.groups import keys_of
from loopring_lab.engine.kinds import FrameT, Trades
from loopring_lab.engine.question import Question
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import (
    OUTSIDE_PRICES,
    OWN_TRADES,
    kind_of_prices,
    price_steps,
    question_of_prices,
    worse_sql,
)
from loopring_lab.fills.sides import ONCE, ROLE_COLUMNS, role_steps

# Steps of the question: which accounts are arbitrageurs?
TRADED = """
-- takers' fills at a known venue, with the moment up to which outside prices count
SELECT *,
    began AS anchor
FROM fills
WHERE told_role = 'taker' AND fill_type IN ('amm', 'dex') AND account_id IS NOT NULL"""

GAINED = """
-- how much better than the outside price each fill was, in basis points: the fee of a pool is in its price, that of a
-- taker on the book is not
SELECT *,
    -({worse}) - CASE fill_type WHEN 'dex' THEN fee_bps ELSE 0 END AS gain
FROM found"""

DECIDED = """
-- each order is one decision, however many fills it took; those without an outside price do not count
SELECT {group},
    sum(notional::DOUBLE * gain) > 0 AS is_arbitrage
FROM gained
WHERE notional > 0 AND isfinite(gain)
GROUP BY {group}, market, order_id"""

SUMS = """
-- orders of each account in a market
SELECT {group},
    count(*) AS orders,
    count(*) FILTER (WHERE is_arbitrage) AS arbitrage
FROM decided
GROUP BY {group}"""

VERDICTS = """
WITH totals AS (  -- orders of each account in all markets
    SELECT {group},
        sum(orders)::DOUBLE AS n,
        sum(arbitrage)::DOUBLE AS k
    FROM sums
    GROUP BY {group}
),
shares AS (  -- Wilson's interval of the share of those that are arbitrage
    SELECT {group},
        (k + {z} * {z} / 2) / (n + {z} * {z}) AS middle,
        {z} * sqrt(k * (n - k) / n + {z} * {z} / 4) / (n + {z} * {z}) AS reach
    FROM totals
)
SELECT {group},
    CASE
        WHEN middle - reach > 0.5 THEN 'arbitrage'
        WHEN middle + reach < 0.5 THEN 'user'
        ELSE 'unknown'
    END AS flow
FROM shares"""

# Steps of the question: what does that say of each row?
TAKERS = """
-- who took each fill
SELECT market, trade_id,
    min(account_id) AS taker
FROM told
WHERE told_role = 'taker'
GROUP BY market, trade_id"""

ROWS = """
-- the verdict on the taker of each row's fill
SELECT row,
    coalesce(flow, 'unknown') AS flow
FROM told AS t
LEFT JOIN takers AS o ON t.market = o.market AND t.trade_id = o.trade_id
LEFT JOIN flows AS f ON CASE told_role WHEN 'taker' THEN t.account_id ELSE o.taker END = f.account_id"""


def with_flow(
    trades: Trades[FrameT],
    prices: Any,
    *,
    tolerance: str | pd.Timedelta | None = "5min",
    intervals: float = 0.95,
) -> FrameT:
    """Say of each fill whether its taker is an arbitrageur or a user.

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
        How sure a verdict on an account must be: level of the interval of its share, between 0 and 1.

    Returns
    -------
    frame of the same kind (pandas for an Archive)
        The trades with ``flow``, of the taker of each fill: ``arbitrage``, ``user``, or ``unknown`` where the taker is
        not in `trades`, or has too few orders with an outside price, or orders of both sorts. Both sides of a fill
        have the same.

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
    included, and one that starts outside it and goes to its edge always does: an order at a pool counts as arbitrage
    if its price is better than S. No fee need be assumed, as the pool's is in its price. On the order book the band
    is what the taker pays: an order counts if its price is better than S by more than that.

    One order proves little: users sometimes trade in the direction of the arbitrage. So accounts are judged, by the
    share of their orders that count: an account is an arbitrageur if the interval of that share (Wilson's [2]_, at
    the level `intervals`) lies above a half, and a user if it lies below. At 95 % that takes four orders that are all
    alike. All fills that an account takes, at either venue, have its verdict. An account that does both has one
    verdict: that of most of its orders.

    References
    ----------
    .. [1] J. Milionis, C. C. Moallemi, T. Roughgarden and A. L. Zhang, "Automated Market Making and
       Loss-Versus-Rebalancing", 2022; on fees: J. Milionis, C. C. Moallemi and T. Roughgarden, "Automated Market
       Making and Arbitrage Profits in the Presence of Fees", 2023.
    .. [2] E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal of the
       American Statistical Association 22 (1927).

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
    check_level(intervals, caller)
    fills = given(trades, caller)
    beside = given_prices(prices, caller)
    if kind_of_prices(beside, fills) == OWN_TRADES:
        raise LabError(
            f"{caller}: prices= are no prices of an outside market, and trades of this exchange cannot show that its "
            "prices are wrong. Pass client.outside_prices(trades), or lab.tables.prices(file)."
        )
    keys = keys_of(fills, "account_id")
    group = keys.columns()
    roles, tables = role_steps(fills)
    within = parse_tolerance(tolerance, caller)
    steps = {
        **roles,
        "once": ONCE,
        **price_steps(beside, "last", rows="once", source="once", kind=OUTSIDE_PRICES),
        "traded": TRADED,
        "found": asof_sql("traded", "last", within=within),
        "gained": GAINED.format(worse=worse_sql("price", "found_price")),
        "decided": DECIDED.format(group=group),
        "sums": SUMS.format(group=group),
        "answer": VERDICTS.format(group=group, z=quantile(intervals)),
    }
    needs = (*ROLE_COLUMNS, "price", "notional", "fee_bps")
    judged = question_of_prices(caller, steps, needs, keys)
    # Accounts trade in several markets, so verdicts are known before any fill has one.
    flows = ask_table(judged, fills, beside, **tables)
    shown = Question(
        caller,
        {**roles, "takers": TAKERS, "rows": ROWS},
        needs=ROLE_COLUMNS,
        shown=None,
    )
    return ask(shown, fills, flows=flows, **tables)
