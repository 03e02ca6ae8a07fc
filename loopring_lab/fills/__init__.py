"""Fills: AMM pool against order book, prices, orders. Trades in, a frame of the same kind out.

As in `fees`, amounts in different tokens are never added up, and all engines give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from loopring_lab.amounts import limbs
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import (
    SUM,
    GroupBy,
    PairedFills,
    aggregate,
    check_quantiles,
    equal,
    ratio,
    shares,
    summary_columns,
    with_period,
)
from loopring_lab.engines.orders import ORDER, sold_by_order
from loopring_lab.engines.selection import sums_by_size
from loopring_lab.fills.comparison import compare_venues
from loopring_lab.fills.markouts import markouts, shortfall
from loopring_lab.fills.pools import pool_returns
from loopring_lab.fills.prices import all_in_cost, price_gap
from loopring_lab.fills.sentences import describe
from loopring_lab.fills.sides import one_side, with_roles

__all__ = [
    "all_in_cost",
    "breakdown",
    "compare_venues",
    "describe",
    "markouts",
    "one_side",
    "orders",
    "pool_returns",
    "price_gap",
    "shortfall",
    "size_profile",
    "vwap",
    "with_roles",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def breakdown(trades: Any, every: str | None = None, by: str | Sequence[str] | None = None) -> Any:
    """Compare fill types: AMM pool (``amm``) and order book (``dex``).

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every, by : optional
        Length of a period and columns to group by, as for `fees.over_time`.

    Returns
    -------
    frame of the same kind, one row per group
        Sorted by ``period`` (its start, with `every`), `by` and ``fill_type``, unknown ones last: ``fills``,
        ``share`` (of the fills of that period and `by`, 0 to 1), then the columns of `fees.summary`. Amounts
        are null where a group mixes tokens; ``by="quote"`` separates notionals.

    Raises
    ------
    LabError, AmountError
        As for `fees.over_time`.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fills.breakdown(trades)[["fill_type", "fills", "share"]]
      fill_type  fills  share
    0       amm     56   0.56
    1       dex     44   0.44
    """
    names = group_keys(by, "lab.fills.breakdown", frame=trades)
    paired = PairedFills(trades, "lab.fills.breakdown")
    table = aggregate(trades, [*names, "fill_type"], "lab.fills.breakdown", every, paired=paired)
    outer = with_period([name for name in names if name != "fill_type"], every)
    groups = GroupBy(table, [*outer, "fill_type"])
    sums = summary_columns(groups)
    fills = sums.pop("fills")
    share = shares(fills, GroupBy(table, outer).ids[groups.first_rows])
    columns = groups.key_columns() | {"fills": fills, "share": share} | sums
    return paired.summary(groups, columns, every)


def vwap(trades: Any, by: str | Sequence[str] | None = None, every: str | None = None) -> Any:
    """Compute volume-weighted average prices.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    by : str or sequence of str, optional
        Columns to group by, besides ``base`` and ``quote``: prices of different pairs are never averaged.
    every : str, optional
        Length of a period, as for `breakdown`.

    Returns
    -------
    frame of the same kind, one row per group
        ``period`` (with `every`), `by`, ``base``, ``quote``, ``fills``, ``volume`` (base units),
        ``notional`` (quote units), ``vwap`` (notional per volume, truncated to 18 decimals; null without
        volume), ``unknown``, the number of fills with an unknown amount, which no other sum includes, and
        ``both_sides``, as `fees.summary` counts them.

    Raises
    ------
    LabError, AmountError
        As for `breakdown`.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, market="LRC-ETH", limit=100)
    >>> lab.fills.vwap(trades, by="side")[["side", "fills", "vwap"]]
       side  fills                  vwap
    0   BUY     44  0.000568994761193166
    1  SELL     56  0.000560394014186320
    """
    names = group_keys(by, "lab.fills.vwap", frame=trades)
    paired = PairedFills(trades, "lab.fills.vwap")
    table = aggregate(trades, names, "lab.fills.vwap", every, rates=False, paired=paired)
    keys = [*with_period(names, every), "base", "quote"]
    groups = GroupBy(table, keys)
    complete = groups.complete()
    volume, notional = groups.sum("size", complete), groups.sum("notional", complete)
    sums = {
        "fills": groups.sum("fills"),
        "volume": volume,
        "notional": notional,
        "vwap": limbs.divide(notional, volume),
        "unknown": groups.sum("fills", ~complete).fill_null(0),
    }
    return paired.summary(groups, groups.key_columns() | sums, every)


def orders(trades: Any) -> Any:
    """Aggregate fills into the orders they belong to.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.

    Returns
    -------
    frame of the same kind, one row per order
        ``order_hash``, ``account_id``, ``market``, ``side``, ``storage_id`` (of an order without a hash),
        ``fee_token``, ``first`` and ``last`` (times of its fills), ``fills`` (more than one for an order
        filled in parts), ``amm_fills``, ``average_price`` (quote per base, truncated to 18 decimals),
        ``maker_share`` and ``taker_share`` of its volume (0 to 1; the rest has an unknown role), then the
        columns of `fees.summary`. Fills of unknown orders are grouped together, last.

    Raises
    ------
    LabError, AmountError
        As for `fees.summary`.

    Notes
    -----
    Rows of blocks have no order hash. Without one, fills with the same account, token sold (``token_id``) and
    storage id are one order: the exchange counts what an order has filled under these three.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fills.orders(trades).nlargest(2, "fills")[["market", "fills", "average_price"]]
           market  fills             average_price
    57  WBTC-USDC      5  45299.740082555985604572
    71    LRC-ETH      4      0.000572781593778306
    """
    keys = ["order_hash", "account_id", "market", "side"]
    known = {*convert.column_names(trades)}.intersection(ORDER)
    names = [*keys, *sorted(known.difference(keys)), "fill_type", "role"]
    paired = PairedFills(trades, "lab.fills.orders")
    table = aggregate(trades, names, "lab.fills.orders", paired=paired)
    table = pa.table({n: table[n] for n in table.column_names} | sold_by_order(table))
    groups = GroupBy(table, [*keys, "storage_id", "fee_token"])
    sums, complete = summary_columns(groups), groups.complete()
    columns = groups.key_columns() | {
        "first": groups.aggregate("first", "min").cast(TIMESTAMP),
        "last": groups.aggregate("last", "max").cast(TIMESTAMP),
        "fills": sums["fills"],
        "amm_fills": groups.sum("fills", equal(table["fill_type"], "amm")).fill_null(0),
        "average_price": limbs.divide(groups.sum("notional", complete), groups.sum("size", complete)),
    }
    for role in ("maker", "taker"):
        volume = groups.sum("size", equal(table["role"], role))
        columns[f"{role}_share"] = ratio(volume.fill_null(pa.scalar(0, volume.type)), sums["volume"])
    columns |= {name: sums[name] for name in sums if name not in columns}
    return paired.summary(groups, columns)


def size_profile(trades: Any, quantiles: int = 10, by: str | Sequence[str] | None = None) -> Any:
    """Split fills into quantiles by size and compare fill types within each.

    Size is the notional; sizes in different quote tokens are never compared. Fills of the same size fall in
    the same quantile, so quantiles may differ in their number of fills.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    quantiles : int
        Number of quantiles, 1 to 1,000.
    by : str or sequence of str, optional
        Columns to group by; quantiles are computed within each group and quote token.

    Returns
    -------
    frame of the same kind, one row per group
        `by`, ``quote``, ``quantile`` (1 for the smallest; null where the size is unknown), ``smallest`` and
        ``largest`` size of that quantile (quote units), ``fill_type``, ``fills``, ``share`` (of the
        quantile's fills, 0 to 1), ``notional``, ``notional_share`` (of the quantile), ``median_bps``
        and ``both_sides``, as `fees.summary` counts them.

    Raises
    ------
    LabError, AmountError
        As for `fees.summary`, or `quantiles` is out of range.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, market="LRC-ETH", limit=100)
    >>> halves = lab.fills.size_profile(trades, quantiles=2)
    >>> halves.loc[halves["fill_type"] == "amm", ["quantile", "fill_type", "share"]]
       quantile fill_type  share
    0         1       amm   0.12
    2         2       amm   0.58
    """
    caller = "lab.fills.size_profile"
    check_quantiles(quantiles, caller)
    names = group_keys(by, caller, "outer", frame=trades)
    outer = list(dict.fromkeys([*names, "quote"]))
    paired = PairedFills(trades, caller)
    table = sums_by_size(trades, outer, quantiles, caller, paired)
    parts = GroupBy(table, [*outer, "quantile"])
    groups = GroupBy(table, [*parts.keys, "fill_type"])
    part = parts.ids[groups.first_rows]
    fills, notional, keys = groups.sum("fills"), groups.sum("notional"), groups.key_columns()
    columns = {name: keys[name] for name in parts.keys} | {
        "smallest": parts.aggregate("smallest", "min").take(pa.array(part)),
        "largest": parts.aggregate("largest", "max").take(pa.array(part)),
        "fill_type": keys["fill_type"],
        "fills": fills,
        "share": shares(fills, part),
        "notional": notional,
        "notional_share": ratio(notional.cast(SUM), parts.sum("notional").take(pa.array(part)).cast(SUM)),
        "median_bps": groups.median_bps(),
    }
    return paired.summary(groups, columns)
