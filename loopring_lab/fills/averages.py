"""Average prices, weighted by volume."""

from __future__ import annotations

from collections.abc import Sequence

from loopring_lab.engine import sums
from loopring_lab.engine.ask import given
from loopring_lab.engine.groups import UTC, keys_of, quotient
from loopring_lab.engine.kinds import FrameT, Trades
from loopring_lab.fees.summary import RESERVED

# The average price of a group follows from these sums over the rows of `sums`, of fills whose amounts are all known.
KNOWN_SUMS = (
    "sum(size) FILTER (WHERE is_known) AS known_size",
    "sum(notional) FILTER (WHERE is_known) AS known_notional",
)


def with_average(table: str) -> str:
    """Return a query for a table and its ``average`` price, ``known_notional`` per ``known_size`` cut to 18 decimals.

    What is cut off is ``rest`` per ``known_size``, in 1e-18.

    Multiplied by 10**18 first, most notionals overflow. So this is a long division, three decimals at a time, which
    volumes of up to 10**17 tokens have room for.
    """
    text = f"""
-- whole units, and the rest
SELECT *,
    {quotient("known_notional", "known_size")} AS average,
    known_notional - average * known_size AS rest
FROM {table}"""
    for _ in range(6):
        text = f"""
-- three decimals more
SELECT * EXCLUDE digits REPLACE (
    average * 1000 + digits AS average,
    rest * 1000 - digits * known_size AS rest
)
FROM (SELECT *, {quotient("rest * 1000", "known_size")} AS digits FROM ({text}))"""
    return text


def vwap(
    trades: Trades[FrameT],
    by: str | Sequence[str] | None = None,
    every: str | None = None,
    *,
    tz: str = UTC,
) -> FrameT:
    """Compute volume-weighted average prices.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, `Archive.scan` or `engine.portable`.
    by : str or sequence of str, optional
        Columns to group by, besides ``base`` and ``quote``: prices of different pairs are never averaged.
    every, tz : str, optional
        Length and time zone of periods, as for `breakdown`.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per group
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
    1  SELL     56   0.00056039401418632
    """
    fills = given(trades, "lab.fills.vwap")
    keys = keys_of(fills, by, *RESERVED, "vwap", every=every, tz=tz)
    keys = sums.with_key(keys, "base", "quote")
    group = keys.columns()
    totals = f"""
-- sums of each pair
SELECT {group},
    {sums.SUMMARY["fills"]} AS fills,
    {sums.SUMMARY["unknown"]} AS unknown,
    {", ".join(KNOWN_SUMS)}
FROM sums
GROUP BY ALL"""
    shown = f"""
-- and their average price
SELECT {group}, fills,
    known_size AS volume,
    known_notional AS notional,
    average AS vwap,
    unknown
FROM ({with_average(f"({totals})")})"""
    return sums.asked(fills, keys, {"sums": sums.sums_sql(keys)}, shown)
