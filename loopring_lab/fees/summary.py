"""Sums of fees by fee token, and by period."""

from __future__ import annotations

from collections.abc import Sequence

from loopring_lab.engine import sums
from loopring_lab.engine.ask import given
from loopring_lab.engine.groups import UTC, keys_of
from loopring_lab.engine.kinds import FrameT, Given, Trades


def summary(trades: Trades[FrameT], by: str | Sequence[str] | None = None) -> FrameT:
    """Sum fees by fee token and any other columns.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, `Archive.scan` or `engine.portable`.
    by : str or sequence of str, optional
        Columns to group by, such as ``["market", "fill_type"]``. Ordered categories of pandas and
        pyarrow, and Polars' Enum, sort in their order; the intervals of ``pandas.cut`` and periods become text.

    Returns
    -------
    frame of the same kind, one row per group
        Sorted by `by` and ``fee_token``, unknown ones last: ``fills``; ``base`` and ``volume`` (base units),
        ``quote`` and ``notional`` (quote units), null where a group mixes tokens; ``received`` (gross) and
        ``fee``, units of the fee token; ``bps``, fee per received amount in basis points, of the fills all of
        whose amounts are known; ``median_bps``, the median of ``fee_bps``, each rounded to a thousandth;
        ``zero_fee_share``, the share of the known fees that are 0, from 0 to 1; ``unknown``, the number of fills
        whose ``size``, ``notional`` or ``fee`` is unknown; ``both_sides``, of how many fills of the same `by`
        both sides are there, whatever their fee tokens are (null where `trades` has no ``trade_id`` or
        ``side``). Sums are exact and cover known amounts in known tokens only; ratios are float64. A pandas
        result of trades that hold both sides of a fill says so in ``attrs["notes"]``, which `show` prints.

    Raises
    ------
    LabError, AmountError
        The frame does not hold trades, `by` names a column it does not have, an amount is not an exact
        decimal, or a sum does not fit.

    Notes
    -----
    A row that was read twice, as where frames that overlap are put together, is summed twice: `lab.anomalies`
    lists such rows of a pandas frame, and its ``drop_duplicates()`` drops them.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, market="LRC-ETH", limit=100)
    >>> lab.fees.summary(trades, by="side")[["side", "fee_token", "fills", "fee"]]
       side fee_token  fills             fee
    0   BUY       LRC     44        8.925624
    1  SELL       ETH     56  0.005908221192
    """
    return _sum_fees(given(trades, "lab.fees.summary"), by)


def over_time(
    trades: Trades[FrameT],
    every: str = "1d",
    by: str | Sequence[str] | None = None,
    *,
    tz: str = UTC,
) -> FrameT:
    """Sum fees by period, fee token and any other columns.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, `Archive.scan` or `engine.portable`.
    every : str
        Length of a period: a number and ``s``, ``min``, ``h``, ``d``, ``w`` (from Monday), ``mo``, ``q``
        or ``y``. Periods of several are counted from 1 January 1970, weeks from Monday, 5 January 1970.
    by : str or sequence of str, optional
        Columns to group by.
    tz : str
        The time zone by whose clock periods begin, such as ``"Europe/Berlin"``, whatever the zone of
        ``created_at`` is. Where clocks change, a day has 23 or 25 hours, and an hour that they show twice is
        two periods.

    Returns
    -------
    frame of the same kind, one row per group
        As `summary`, with ``period``, the start of each period in that time zone, in front. Periods without
        fills have no row; fills at an unknown time are grouped under a null period, last.

    Raises
    ------
    LabError, AmountError
        As for `summary`, or `every` is not a valid period, or `tz` no time zone.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, market="LRC-ETH", limit=20)
    >>> lab.fees.over_time(trades, every="1w")[["period", "fee_token", "fee"]].head(2)
                         period fee_token           fee
    0 2022-12-12 00:00:00+00:00       LRC         0.272
    1 2022-12-19 00:00:00+00:00       ETH  0.0006213168
    """
    return _sum_fees(given(trades, "lab.fees.over_time"), by, str(every), tz)


def _sum_fees(
    trades: Given[FrameT],
    by: str | Sequence[str] | None,
    every: str | None = None,
    tz: str = UTC,
) -> FrameT:
    outer = keys_of(trades, by, *RESERVED, every=every, tz=tz)
    keys = sums.with_key(outer, "fee_token")
    steps = {"rows": sums.rates_sql(keys), "sums": sums.sums_sql(keys)}
    return sums.asked(
        trades,
        keys,
        steps,
        sums.totals_sql(keys),
        sides=outer,
        medians=["median_bps"],
    )


# Columns of the answer that are not also columns of trades.
RESERVED = (
    "fills",
    "volume",
    "received",
    "bps",
    "median_bps",
    "zero_fee_share",
    "unknown",
    "both_sides",
)
