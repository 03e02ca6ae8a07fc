"""Fills by type: those at the AMM pool and those on the order book."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopring_lab.engine import sums
from loopring_lab.engine.ask import given
from loopring_lab.engine.groups import UTC, keys_of
from loopring_lab.engine.kinds import FrameT, Trades
from loopring_lab.fees.summary import RESERVED


def breakdown(
    trades: Trades[FrameT],
    every: str | None = None,
    by: str | Sequence[str] | None = None,
    *,
    tz: str = UTC,
) -> FrameT:
    """Compare fill types: AMM pool (``amm``) and order book (``dex``).

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, `Archive.scan` or `engine.portable`.
    every, by, tz : optional
        Length of a period, columns to group by, and the time zone of periods, as for `fees.over_time`.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per group
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
    fills = given(trades, "lab.fills.breakdown")
    outer = keys_of(fills, by, *RESERVED, "share", every=every, tz=tz)
    outer = replace(
        outer, names=tuple(name for name in outer.names if name != "fill_type")
    )
    keys = sums.with_key(outer, "fill_type")
    group = keys.columns()
    shown = f"""
-- with the share of each type in its group
SELECT {group}, fills,
    fills / sum(fills) OVER (PARTITION BY {outer.columns()}) AS share,
    * EXCLUDE ({group}, fills)
FROM ({sums.totals_sql(keys)})"""
    steps = {"rows": sums.rates_sql(keys), "sums": sums.sums_sql(keys)}
    return sums.asked(fills, keys, steps, shown, medians=["median_bps"])
