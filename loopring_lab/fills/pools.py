"""What a pool earned in fees against what it lost to price."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import UNIT, from_integers, is_none, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.aggregate import SUM, GroupBy, Period, equal, ratio, result_frame
from loopring_lab.engines.asof import NAT, PriceHistory, moments_of, parse_length
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import BPS

READ = (
    *("created_at", "trade_id", "order_hash", "account_id", "market", "base", "quote", "side", "fill_type"),
    *("role", "size", "price", "notional"),
)
SUMS = ("notional", "fees", "net", "markout")
OUTSIDE, OWN = "outside prices", "own trades"
OWN_NOTE = (
    "The reference prices are trades of this exchange, many of them the pool's own: what it lost to price "
    "looks smaller than it was. Pass prices= from outside."
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
    trades : frame of pandas, pyarrow or Polars
        With the rows of the pool, from `Client.trades` of its account.
    pool_account : int
        Account id of the pool.
    prices : frame of pandas, pyarrow or Polars, optional
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
    caller = "fills.pool_returns"
    period, length = Period.parse(every), parse_length(horizon, caller, "horizon")
    if type(pool_fee_bps) is not int or not 0 <= pool_fee_bps < BPS:
        raise LabError(
            f"{caller}: pool_fee_bps={pool_fee_bps!r} is not a fee. Give whole basis points, such as 20."
        )
    fills = _of_pool(convert.to_table(trades, caller, READ), pool_account, caller)
    fills = fills.append_column("period", period.starts(period.numbers(fills["moment"])))
    history = PriceHistory(trades if prices is None else prices, caller)
    moments, lookup = moments_of(fills), history.lookup(fills)
    later = np.where(moments == NAT, NAT, moments + length)
    at, after = lookup.before(moments), lookup.before(later, newer_than=moments)
    sums = _sums(fills, history.integers(at), history.integers(after), pool_fee_bps)
    priced = ~is_none(sums["net"])
    groups = GroupBy(fills, ["period", "market", "base", "quote"])
    totals = {name: _total(groups, numbers, priced) for name, numbers in sums.items()}
    
    reference = OWN if history.is_trades else OUTSIDE
    columns = {...}
    result = result_frame(trades, groups.key_columns() | columns)
    return convert.with_note(result, OWN_NOTE if history.is_trades else "")
