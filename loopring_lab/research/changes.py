"""How the difference of the venues changed: by period, with bands that hold together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from loopring_lab.engine import frames
from loopring_lab.engine.ask import given
from loopring_lab.engine.clusters import check_intervals, student_sql
from loopring_lab.engine.groups import UTC, keys_of
from loopring_lab.engine.kinds import FrameT, Trades
from loopring_lab.engine.running import run
from loopring_lab.fills.comparison import (
    ERRORS,
    HIDDEN,
    MATCH,
    RESULTS,
    VERDICT,
    compare_by,
)
from loopring_lab.fills.prices import noted

COMPARED = (
    "fills",
    "unpriced",
    "orders",
    "accounts",
    "clusters",
    "cluster",
    "difference_bps",
    "low_bps",
    "high_bps",
    "band_low_bps",
    "band_high_bps",
    "verdict",
    "reference",
)

# What bands, and the verdicts by them, are made of.
JUDGED_BY = (
    "difference_bps",
    "low_bps",
    "pool_weighted_bps",
    "book_weighted_bps",
    *HIDDEN,
)
BANDS = f"""
-- the band of each interval: the widest of its clusters at the level at which all hold at once
SELECT band_low_bps, band_high_bps, {VERDICT.format(low="band_low_bps", high="band_high_bps")} AS verdict
FROM (
    SELECT *,
        CASE WHEN low_bps IS NOT NULL
            THEN list_max(list_transform("{ERRORS}", lambda e: e.error * ({{student}}))) END AS reach,
        difference_bps - reach AS band_low_bps,
        difference_bps + reach AS band_high_bps
    FROM found
)
ORDER BY place"""


def changes(
    trades: Trades[FrameT],
    prices: Any = None,
    by: str | Sequence[str] | None = "market",
    every: str = "1mo",
    *,
    tz: str = UTC,
    horizon: str | pd.Timedelta = "1min",
    intervals: float = 0.95,
    match: str | Sequence[str] = MATCH,
    cluster: str | None = None,
) -> FrameT:
    """Compare the venues in each period, with bands that hold in all periods at once.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Such as `Client.trades` returns.
    prices : frame of any of these kinds, optional
        Prices from outside the exchange, as for `compare_venues`.
    by : str or sequence of str, optional
        Columns to group by besides the period; None for all trades together.
    every : str
        Length of a period, such as ``1w``, ``1mo`` or ``1q``.
    tz : str
        The time zone by whose clock periods begin, as for `fees.over_time`.
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count.
    intervals : float
        Level of the intervals and of the bands, between 0 and 1.
    match, cluster : optional
        What orders must share to be compared, and what is taken to vary as one, as for `compare_venues`.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per group and period
        `by`; ``period``, its start; ``fills``, ``unpriced``, ``orders``, ``accounts``, ``clusters`` and ``cluster``, as
        in `compare_venues`; ``difference_bps``, pool minus book, as that estimates it from the period alone;
        ``low_bps`` to ``high_bps``, the interval of this period by itself; ``band_low_bps`` to ``band_high_bps``, which
        hold the differences of all rows at once; ``verdict``, by the band: ``pool``, ``book`` or ``undecided``; and
        ``reference``. Float64 basis points, null where a period has too few clusters for an interval.

    Raises
    ------
    LabError, AmountError
        As for `compare_venues`, or `every` is not a period.

    Notes
    -----
    Of 20 intervals at 95 %, one is expected to miss. The bands are Bonferroni's: with m rows that have an interval,
    each has the level 1 - (1 - `intervals`) / m. So all hold together at the level `intervals` or more, whatever
    varies together between periods. An order with fills in two periods counts in both. A month has fewer than 8 weeks,
    so a verdict on it is about its own weeks: where venues have good and bad weeks, months differ as these happen to.

    More or fewer arbitrageurs from one month to the next move the difference as a cheaper venue does: compare users
    alone, such as by ``flow`` of `with_flow`.

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="ETH-USDC")
    >>> months = lab.research.changes(trades, client.outside_prices(trades), by=None)
    >>> months["verdict"].unique().tolist()  # two accounts cannot speak for others
    ['undecided']
    """
    caller = "lab.research.changes"
    fills = given(trades, caller)
    keys = keys_of(fills, by, *COMPARED, *RESULTS, *HIDDEN, every=str(every), tz=tz)
    period, *others = keys.names
    keys = replace(keys, names=(*others, period))

    found, kind, beside = compare_by(
        keys, fills, prices, horizon, intervals, match, cluster
    )
    rows = len(found) - found["low_bps"].null_count
    level = 1 - (1 - intervals) / max(1, rows)
    check_intervals(level, cluster, caller)
    bands = BANDS.format(student=student_sql(level, "e.freedom"))
    places = pa.array(range(len(found)))
    judged = found.select(JUDGED_BY).append_column("place", places)
    found = frames.with_columns(found, run(bands, caller, found=judged))
    answer = fills.like(found.select([*keys.names, *COMPARED]))
    return noted(answer, kind, fills, beside)
