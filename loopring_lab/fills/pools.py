"""What a pool earned in fees against what it lost to price."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import sums
from loopring_lab.amounts.scaling import UNIT, from_integers
from loopring_lab.engines import convert
from loopring_lab.engines.aggregate import SUM, GroupBy, Period, equal, ratio, result_frame
from loopring_lab.engines.arrays import NAT
from loopring_lab.engines.asof import PLACE, PriceHistory
from loopring_lab.engines.orders import ORDER, moments_of
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import BPS, Reference
from loopring_lab.query import parse_account_id, parse_length

READ = (
    *("created_at", "trade_id", "order_hash", "account_id", "market", "base", "quote", "side", "fill_type"),
    *("role", "size", "notional"),
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
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        With the rows of the pool, from `Client.trades` of its account, or `Archive.scan` with ``accounts=``.
        The columns needed of all rows, and of all prices, are read into memory.
    pool_account : int
        Account id of the pool.
    prices : frame of any of these engines, optional
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
    frame of the same kind, one row per period and market
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
    net q p - n and a fee of `pool_fee_bps` of q p. LVR is fee less net, summed over fills. Fills that are no
    arbitrage move the pool's price and so lower it, until arbitrage moves the price back.

    References
    ----------
    J. Milionis, C. C. Moallemi, T. Roughgarden and A. L. Zhang, "Automated Market Making and
    Loss-Versus-Rebalancing", 2022.

    Examples
    --------
    >>> pool = client.trades(account_id=1, limit=200)
    >>> days = lab.fills.pool_returns(pool, 1, client.outside_prices(pool))
    >>> (days["fees"] - days["lvr"] == days["net"]).all()
    True
    """
    caller = "lab.fills.pool_returns"
    period, length = Period.parse(every), parse_length(horizon, caller, "horizon")
    if type(pool_fee_bps) is not int or not 0 <= pool_fee_bps < BPS:
        raise LabError(
            f"{caller}: pool_fee_bps={pool_fee_bps!r} is not a fee. Give whole basis points, such as 20."
        )
    account = parse_account_id(pool_account, "pool_account")
    fills = _of_pool(convert.to_table(trades, caller, READ, [*ORDER, *PLACE]), account, caller)
    fills = fills.append_column("period", period.starts(period.numbers(fills["moment"])))
    history, label = PriceHistory(trades if prices is None else prices, caller), Reference(prices, caller)
    moments, lookup = moments_of(fills), history.lookup(fills)
    later = np.where(moments == NAT, NAT, moments + length)
    at, after = lookup.before(moments), lookup.before(later, newer_than=moments)
    groups = GroupBy(fills, ["period", "market", "base", "quote"])
    totals = _totals(fills, groups, history.take(at), history.take(after), pool_fee_bps)
    return label.noted(result_frame(trades, label.of_groups(groups.key_columns() | totals)))


def _of_pool(fills: pa.Table, account: int, caller: str) -> pa.Table:
    """Keep the rows of a pool, or raise a `LabError` that says why the account is none."""
    rows = fills.filter(pa.array(equal(fills["account_id"], account)))
    others = ~equal(rows["fill_type"], "amm") | equal(rows["role"], "taker")
    if len(fills) and not len(rows):
        problem = "has no fills in these trades"
    elif others.any():
        problem = "is no pool: it took liquidity, or traded on the order book"
    else:
        return rows
    raise LabError(f"{caller}: account {account} {problem}. Give the account id of a pool, and its trades.")


def _totals(
    fills: pa.Table, groups: GroupBy, at: pa.Array, after: pa.Array, pool_fee_bps: int
) -> dict[str, Any]:
    """Add up what the fills of each group earned and lost, against their prices at and after the fill."""
    is_sell = equal(fills["side"], "SELL")
    known = is_sell | equal(fills["side"], "BUY")
    for amount in (fills["size"], fills["notional"], at, after):
        known &= np.asarray(amount.is_valid())
    size, notional, now, later = (
        amount.filter(pa.array(known)) for amount in (fills["size"], fills["notional"], at, after)
    )
    ids, is_sell = groups.ids[known], is_sell[known]
    priced = np.bincount(ids, minlength=groups.count)

    def by_side(amounts: pa.Array) -> np.ndarray:
        return sums(amounts, 2 * ids + is_sell, 2 * groups.count).reshape(-1, 2).T

    def cut(totals: np.ndarray) -> np.ndarray:
        whole = np.abs(totals) // (UNIT * BPS) * np.sign(totals)
        return np.array(np.where(priced > 0, whole, None), object)

    bought, sold = by_side(notional) * UNIT
    (bought_now, sold_now), (bought_later, sold_later) = (
        by_side(pc.multiply(size, one)) for one in (now, later)
    )
    fees = cut((sold + bought_now) * pool_fee_bps)
    net = cut(BPS * (sold - sold_now - bought + bought_now))
    markout = cut(BPS * (sold - sold_later - bought + bought_later))
    lvr = np.array([None if a is None else a - b for a, b in zip(fees, net, strict=True)], object)
    found = {"notional": cut((bought + sold) * BPS), "fees": fees, "lvr": lvr, "net": net, "markout": markout}
    fills_of = np.bincount(groups.ids, minlength=groups.count)
    totals = {name: from_integers(numbers, SUM) for name, numbers in found.items()}
    volume, earned = totals["notional"], ("fees", "lvr", "net", "markout")
    rates = {f"{name}_bps": ratio(totals[name], volume, BPS) for name in earned}
    return {"fills": fills_of, "unpriced": fills_of - priced} | totals | rates
