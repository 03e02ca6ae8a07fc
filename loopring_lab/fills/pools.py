"""What a pool earned in fees against what it lost to price."""

from __future__ import annotations

from typing import Any

import pandas as pd

from loopring_lab.arguments import parse_account_id, parse_length
from loopring_lab.engine.ask import ask, counts
from loopring_lab.engine.asof import asof_sql, too_late_sql
from loopring_lab.engine.groups import keys_of, literal
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import (
    kind_of_prices,
    noted,
    price_steps,
    question_of_prices,
)

NEEDS = (
    "created_at",
    "account_id",
    "market",
    "base",
    "quote",
    "side",
    "fill_type",
    "role",
    "size",
    "price",
    "notional",
)


def pool_returns(
    trades: Any,
    pool_account: int,
    prices: Any = None,
    every: str = "1d",
    horizon: str | pd.Timedelta = "5min",
    pool_fee_bps: int = 20,
) -> Any:
    """Compute what a pool earned in fees against what it lost to price, by day.

    A pool keeps its fee in the price. It loses because its price follows the outside price only when somebody
    trades against it: whoever rebalances at the outside price instead does better by the loss versus
    rebalancing (LVR).

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        With the rows of the pool, such as `Client.trades` of its account.
    pool_account : int
        Account id of the pool.
    prices : frame of any of these kinds, optional
        Prices from outside the exchange: ``created_at``, ``market`` and ``price``. By default `trades`, which
        hide much of the loss.
    every : str
        Length of a period, as for `fees.over_time`.
    horizon : str or pandas.Timedelta
        Time from a fill to the price of ``markout``.
    pool_fee_bps : int
        Fee of the pool in basis points of the amount paid in; 20 in every pool of the exchange.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per period and market
        ``period``, ``market``, ``base``, ``quote``, ``fills``, ``unpriced`` (fills without an amount or a
        price, which no sum includes), ``notional``, ``fees``, ``lvr``, ``net`` (fees less LVR) and
        ``markout`` (the same as ``net`` against the price at `horizon`), in quote units, truncated to 18
        decimals; ``fees_bps``, ``lvr_bps``, ``net_bps`` and ``markout_bps`` of the notional; ``reference``,
        ``outside prices`` or ``own trades``.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`; the account has no fills at a pool, or was the taker in one.

    Notes
    -----
    For a fill of ``size`` q that moved n (``notional``) of quote, at the outside price p, the last one at or
    before the fill: a pool that sells earns a net n - q p and a fee of `pool_fee_bps` of n; one that buys, a
    net q p - n and a fee of `pool_fee_bps` of q p. ``lvr`` is fee less net, summed over all fills.

    That is not the LVR of Milionis et al., which is what a pool loses to arbitrage alone, at prices that arbitrage
    always brings to the one outside. Here fills of users are in it too: one that moves the pool's price away lowers
    it, until an arbitrageur moves the price back. The fee is the one given, not one measured.

    References
    ----------
    J. Milionis, C. C. Moallemi, T. Roughgarden and A. L. Zhang, "Automated Market Making and
    Loss-Versus-Rebalancing", 2022.

    Examples
    --------
    >>> pool = client.trades(account_id=1, limit=200)
    >>> days = lab.fills.pool_returns(pool, 1, client.outside_prices(pool))
    >>> bool((days["fees"] - days["lvr"] == days["net"]).all())
    True
    """
    caller = "lab.fills.pool_returns"
    keys = keys_of(trades, ["market", "base", "quote"], caller, every=str(every))
    length = parse_length(horizon, caller, "horizon")
    check_fee(pool_fee_bps, caller)
    group = keys.columns()
    account = parse_account_id(pool_account, "pool_account")
    _check_pool(trades, account, caller)
    kind = kind_of_prices(prices, trades, caller)
    steps = {
        **price_steps(prices, caller, "last", kind=kind),
        "own": f"-- the pool's fills\nSELECT *, began AS anchor FROM fills WHERE account_id = {account}",
        "now": asof_sql("own", "last"),
        "ahead": f"""
-- the same, to be looked up as late as the horizon
SELECT * EXCLUDE (anchor, found_price, found_moment),
    found_price AS price_now,
    {too_late_sql("ms", length)} AS anchor
FROM now""",
        "later": asof_sql("ahead", "last"),
        "gained": f"""
-- what the pool was paid and gained with each fill, at the prices then and later; a gain is null unless all is known
SELECT *,
    CASE side
        WHEN 'SELL' THEN 1
        WHEN 'BUY' THEN -1
    END AS sign,
    {product_sql("size", "price_now")} AS value_now,
    CASE
        WHEN found_moment > ended THEN {product_sql("size", "found_price")}
    END AS value_later,
    CASE sign
        WHEN 1 THEN notional
        ELSE value_now
    END AS paid,
    sign * (notional - value_now) AS net,
    sign * (notional - value_later) AS markout,
    net IS NOT NULL AND markout IS NOT NULL AS is_priced
FROM later""",
        "sums": f"""
-- the same by period and market; sums are of the fills that have a price
SELECT {group},
    count(*) AS fills,
    count(*) FILTER (WHERE NOT is_priced) AS unpriced,
    sum(COLUMNS(['notional', 'paid', 'net', 'markout'])) FILTER (WHERE is_priced)
FROM gained
GROUP BY ALL""",
        "answer": f"""
-- fees, and what follows from them
SELECT {group}, fills, unpriced, notional,
    paid * {pool_fee_bps} // 10000 AS fees,
    fees - net AS lvr,
    net,
    markout,
    {rate_sql("fees")},
    {rate_sql("lvr")},
    {rate_sql("net")},
    {rate_sql("markout")},
    {literal(kind)} AS reference
FROM sums
{keys.sorted_by()}""",
    }
    return noted(
        ask(question_of_prices(caller, steps, NEEDS, keys), trades, prices), kind
    )


def check_fee(pool_fee_bps: Any, caller: str) -> None:
    """Raise a `LabError` unless the fee of a pool is whole basis points."""
    if type(pool_fee_bps) is not int or not 0 <= pool_fee_bps < 10_000:
        raise LabError(
            f"{caller}: pool_fee_bps={pool_fee_bps!r} is not a fee. Give whole basis points, such as 20."
        )


def product_sql(size: str, price: str) -> str:
    """Return size times price as SQL, cut to 18 decimals.

    The product of two amounts does not fit 128 bits, those of their whole units and of the rest do.
    """
    unit = 10**18
    return f"""{size} // {unit} * {price}
        + {size} % {unit} * ({price} // {unit})
        + {size} % {unit} * ({price} % {unit}) // {unit}"""


def rate_sql(amount: str) -> str:
    """Return an amount in basis points of the notional as SQL."""
    return f"10000 * {amount}::DOUBLE / nullif(notional::DOUBLE, 0) AS {amount}_bps"


def _check_pool(trades: Any, account: int, caller: str) -> None:
    """Raise a `LabError` that says why an account is no pool."""
    is_own = f"account_id = {account}"
    found = counts(
        trades,
        caller,
        ("account_id", "fill_type", "role"),
        rows="count(*)",
        own=f"count(*) FILTER (WHERE {is_own})",
        taken=f"count(*) FILTER (WHERE {is_own} AND (fill_type IS DISTINCT FROM 'amm' OR role = 'taker'))",
    )
    if found["rows"] and not found["own"]:
        problem = "has no fills in these trades"
    elif found["taken"]:
        problem = "is no pool: it took liquidity, or traded on the order book"
    else:
        return
    raise LabError(
        f"{caller}: account {account} {problem}. Give the account id of a pool, and its trades."
    )
