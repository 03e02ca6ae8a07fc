"""Fills: pool against order book, prices paid, orders. A frame of trades in, a frame of the same kind out.

Amounts in different tokens are never added up: an amount is null where its group mixes tokens. The functions
take pandas, pyarrow, Polars, DuckDB, Dask and Spark frames and give the same numbers for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import from_integers, integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import group_keys
from loopring_lab.engines.aggregate import MILLI, SUM, Groups, aggregate, amounts_of, answer, ratio, share_of
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import all_in_cost, price_gap

__all__ = ["all_in_cost", "breakdown", "orders", "price_gap", "size_profile", "vwap"]

UNIT = 10**18


def breakdown(trades: Any, every: str | None = None, by: str | Sequence[str] | None = None) -> Any:
    """Compare fill types: pool (``amm``) and order book (``dex``).

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every : str, optional
        Length of a period: a number and ``s``, ``min``, ``h``, ``d``, ``w`` (from Monday), ``mo``, ``q``
        or ``y``, in UTC.
    by : str or sequence of str, optional
        Columns to group by.

    Returns
    -------
    frame of the same kind, one row a group
        In the order of ``period`` (the moment it starts, with `every`), `by` and ``fill_type``, unknown ones
        last: ``fills``, ``share`` (of the fills of that period and `by`, 0 to 1), then the columns of
        `fees.summary`. Amounts are null where a group mixes tokens; ``by="quote"`` separates notionals.

    Raises
    ------
    LabError
        The frame is not one of trades, `every` is no period, or `by` names no column.
    AmountError
        An amount is not an exact decimal, or a sum does not fit.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.fills.breakdown(trades)[["fill_type", "fills", "share"]]
      fill_type  fills  share
    0       amm     26   0.26
    1       dex     74   0.74
    """
    names = group_keys(by, "fills.breakdown")
    table = aggregate(trades, [*names, "fill_type"], "fills.breakdown", every)
    around = [*(["period"] if every is not None else []), *(name for name in names if name != "fill_type")]
    groups = Groups(table, [*around, "fill_type"])
    amounts = amounts_of(groups)
    fills = amounts.pop("fills")
    whole = Groups(table, around).ids[groups.where]
    columns = {name: groups.key(name) for name in groups.keys}
    return answer(trades, columns | {"fills": fills, "share": share_of(fills, whole)} | amounts)


def vwap(trades: Any, by: str | Sequence[str] | None = None, every: str | None = None) -> Any:
    """Average prices, weighted by volume.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    by : str or sequence of str, optional
        Columns to group by, besides ``base`` and ``quote``: prices in different pairs are never averaged.
    every : str, optional
        Length of a period, as for `breakdown`.

    Returns
    -------
    frame of the same kind, one row a group
        ``period`` (with `every`), `by`, ``base``, ``quote``, ``fills``, ``volume`` (base units),
        ``notional`` (quote units), ``vwap`` (notional per volume, cut at 18 decimals; null without volume)
        and ``unknown``, fills with an amount that is not known, which stand in no other sum.

    Raises
    ------
    LabError
        The frame is not one of trades, `every` is no period, or `by` names no column.
    AmountError
        An amount is not an exact decimal, or a sum does not fit.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.fills.vwap(trades, by="side")[["side", "fills", "vwap"]]
       side  fills                  vwap
    0   BUY     48  0.000566517496144499
    1  SELL     52  0.000570852074727801
    """
    names = group_keys(by, "fills.vwap")
    table = aggregate(trades, names, "fills.vwap", every)
    groups = Groups(
        table, list(dict.fromkeys([*(["period"] if every is not None else []), *names, "base", "quote"]))
    )
    clear = np.asarray(table["unknown"]) == 0
    volume, notional = groups.sum("size", clear), groups.sum("notional", clear)
    return answer(
        trades,
        {name: groups.key(name) for name in groups.keys}
        | {"fills": groups.sum("fills"), "volume": volume, "notional": notional}
        | {"vwap": _quotient(notional, volume), "unknown": groups.sum("fills", ~clear).fill_null(0)},
    )


def orders(trades: Any) -> Any:
    """Put fills together to the orders they belong to.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.

    Returns
    -------
    frame of the same kind, one row an order
        ``order_hash``, ``account_id``, ``market``, ``side``, ``fee_token``, ``first`` and ``last`` (moments
        of its fills), ``fills`` (more than one: filled in parts), ``amm_fills``, ``average_price`` (quote per
        base, cut at 18 decimals), ``maker_share`` and ``taker_share`` of its volume (0 to 1; the rest is of
        unknown role), then the columns of `fees.summary`. Fills of unknown order stand together, last.

    Raises
    ------
    LabError
        The frame is not one of trades.
    AmountError
        An amount is not an exact decimal, or a sum does not fit.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.fills.orders(trades).nlargest(2, "fills")[["market", "fills", "average_price"]]
           market  fills             average_price
    25  WBTC-USDC      5  44414.519999996301040000
    57    LRC-ETH      5      0.000601582913456305
    """
    keys = ["order_hash", "account_id", "market", "side"]
    table = aggregate(trades, [*keys, "fill_type", "role"], "fills.orders")
    groups = Groups(table, [*keys, "fee_token"])
    amounts = amounts_of(groups)
    moment = pa.timestamp("ms", "UTC")
    roles = {
        name: pc.fill_null(pc.equal(table["role"], name), False).to_numpy() for name in ("maker", "taker")
    }
    pool = pc.fill_null(pc.equal(table["fill_type"], "amm"), False).to_numpy()
    columns: dict[str, Any] = {name: groups.key(name) for name in groups.keys}
    columns |= {
        name: groups.extreme(name, how).cast(moment) for name, how in [("first", "min"), ("last", "max")]
    }
    columns |= {"fills": amounts["fills"], "amm_fills": groups.sum("fills", pool).fill_null(0)}
    clear = np.asarray(table["unknown"]) == 0
    columns["average_price"] = _quotient(groups.sum("notional", clear), groups.sum("size", clear))
    for name, mine in roles.items():
        part = groups.sum("size", mine)
        columns[f"{name}_share"] = ratio(pc.coalesce(part, pa.scalar(0, part.type)), amounts["volume"])
    return answer(trades, columns | {name: amounts[name] for name in amounts if name not in columns})


def _quotient(notional: pa.Array, volume: pa.Array) -> pa.Array:
    pairs = zip(integers(notional), integers(volume), strict=True)
    return from_integers([None if a is None or not b else a * UNIT // b for a, b in pairs], SUM)


MOST = 1000


def size_profile(trades: Any, quantiles: int = 10, by: str | Sequence[str] | None = None) -> Any:
    """Split fills into equally many by size, and compare fill types within each part.

    Size is the notional; sizes in different quote tokens are never compared. Fills of the same size stand in
    the same part, so that parts may differ in number.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    quantiles : int
        Number of parts, 1 to 1,000.
    by : str or sequence of str, optional
        Columns to group by; parts are made within each group and quote token.

    Returns
    -------
    frame of the same kind, one row a group
        `by`, ``quote``, ``quantile`` (1 for the smallest; null where the size is not known), ``smallest``
        and ``largest`` size of that part (quote units), ``fill_type``, ``fills``, ``share`` (of the fills
        of that part, 0 to 1), ``notional``, ``notional_share`` (of that part) and ``median_bps``.

    Raises
    ------
    LabError
        The frame is not one of trades, `by` names no column, or `quantiles` is no such number.
    AmountError
        An amount is not an exact decimal.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> halves = lab.fills.size_profile(trades, quantiles=2)
    >>> halves.loc[halves["fill_type"] == "amm", ["quantile", "fill_type", "share"]]
       quantile fill_type  share
    0         1       amm   0.02
    2         2       amm   0.26
    """
    what = "fills.size_profile"
    if type(quantiles) is not int or not 1 <= quantiles <= MOST:
        raise LabError(f"{what}: quantiles={quantiles!r}. Give a whole number from 1 to {MOST}, such as 10.")
    around = list(dict.fromkeys([*group_keys(by, what, "whole"), "quote"]))
    needed = list(dict.fromkeys([*around, "fill_type", "notional", "fee_bps"]))
    table = pa.concat_tables(list(convert.batches(trades, needed, what)))
    table = table.append_column("whole", pa.array(Groups(table, around).ids))
    table = table.sort_by([("whole", "ascending"), ("notional", "ascending")])
    table = table.append_column("quantile", _parts(table, quantiles))
    milli = np.floor(table["fee_bps"].to_numpy() * MILLI + 0.5)
    table = table.append_column("milli_bps", pa.array(milli)).append_column(
        "fills", pa.array(np.ones(len(table), np.int64))
    )
    part = Groups(table, [*around, "quantile"])
    groups = Groups(table, [*part.keys, *([] if "fill_type" in around else ["fill_type"])])
    whole = part.ids[groups.where]
    fills, notional = groups.sum("fills"), groups.sum("notional")
    columns: dict[str, Any] = {name: groups.key(name) for name in part.keys}
    columns |= {
        name: part.extreme("notional", how).take(pa.array(whole))
        for name, how in [("smallest", "min"), ("largest", "max")]
    }
    columns |= {"fill_type": groups.key("fill_type"), "fills": fills, "share": share_of(fills, whole)}
    columns["notional"] = notional
    columns["notional_share"] = ratio(
        notional.cast(SUM), part.sum("notional").take(pa.array(whole)).cast(SUM)
    )
    return answer(trades, columns | {"median_bps": pa.array(groups.median_bps(), from_pandas=True)})


def _parts(table: pa.Table, quantiles: int) -> pa.Array:
    """Number the parts of rows sorted by group and size; equal sizes get the number of their first."""
    whole, size = table["whole"].to_numpy(), table["notional"].combine_chunks()
    known = size.is_valid().to_numpy(zero_copy_only=False)
    start = np.searchsorted(whole, whole, "left")
    counts = np.bincount(whole[known], minlength=int(whole.max(initial=0)) + 1)
    position = np.arange(len(whole)) - start
    number = position * quantiles // np.maximum(counts[whole], 1) + 1
    if len(whole) > 1:
        same = pc.fill_null(pc.equal(size[1:], size[:-1]), False).to_numpy(zero_copy_only=False)
        fresh = np.concatenate([[True], ~(same & (whole[1:] == whole[:-1]))])
        number = number[np.maximum.accumulate(np.where(fresh, np.arange(len(whole)), 0))]
    return pa.array(number, pa.int64(), mask=~known)
