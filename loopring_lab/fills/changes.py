"""When the difference of the venues changed: by period, with bands that hold together, and a test for a break."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.engine import frames
from loopring_lab.engine.estimates import check_level, quantile
from loopring_lab.engine.groups import keys_of
from loopring_lab.engine.query import collected
from loopring_lab.fills.comparison import compare_by
from loopring_lab.fills.estimands import RESULTS
from loopring_lab.fills.prices import noted

# The part of the periods before the first and after the last break that is looked for (Andrews): fewer periods say
# too little about the mean of their side.
TRIMMED = 0.15
# So many periods leave at least two breaks to choose from, with one period on either side of each.
FEWEST_PERIODS = 4
# A p-value near 0.05 is then sure to 0.004 (two standard errors).
DRAWS = 9_999
SEED = 1

COMPARED = (
    "fills",
    "orders",
    "effective_orders",
    "difference_bps",
    "error_bps",
    "low_bps",
    "high_bps",
    "band_low_bps",
    "band_high_bps",
    "verdict",
    "reference",
)
BREAK = {
    "periods": pa.int64(),
    "statistic": pa.float64(),
    "p_value": pa.float64(),
    "changed_at": pa.timestamp("ms", "UTC"),
    "before_bps": pa.float64(),
    "after_bps": pa.float64(),
    "change_bps": pa.float64(),
    "verdict": pa.string(),
    "reference": pa.string(),
}


def changes(
    trades: Any,
    prices: Any = None,
    by: str | Sequence[str] | None = "market",
    every: str = "1mo",
    *,
    horizon: str | pd.Timedelta = "1min",
    intervals: float = 0.95,
) -> Any:
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
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count.
    intervals : float
        Level of the intervals and of the bands, between 0 and 1.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per group and period
        `by`; ``period``, its start; ``fills`` and ``orders``, those matched, and ``effective_orders`` of equal weight
        at the venue that has fewer; ``difference_bps``, pool minus book, as `compare_venues` estimates it from the
        period alone; ``error_bps``, its standard error; ``low_bps`` to
        ``high_bps``, the interval of this period by itself; ``band_low_bps`` to ``band_high_bps``, which hold the
        differences of all rows at once; ``verdict``, by the band: ``pool``, ``book`` or ``undecided``; and
        ``reference``. Float64 basis points, null where a period has too few orders for an interval.

    Raises
    ------
    LabError, AmountError
        As for `compare_venues`, or `every` is not a period.

    Notes
    -----
    Of 20 intervals at 95 %, one is expected to miss. The bands are Bonferroni's: with m rows that have an interval,
    each has the level 1 - (1 - `intervals`) / m. So all hold together at the level `intervals` or more, whatever
    varies together between periods. An order with fills in two periods counts in both.

    More or fewer arbitrageurs from one month to the next move the difference as a cheaper venue does: compare users
    alone, such as by ``flow`` of `with_flow`.

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="ETH-USDC")
    >>> months = lab.fills.changes(trades, client.outside_prices(trades), by=None)
    >>> months[["period", "difference_bps", "verdict"]].tail(2)
                          period  difference_bps    verdict
    10 2022-11-01 00:00:00+00:00       -8.709853       pool
    11 2022-12-01 00:00:00+00:00       -2.650462  undecided
    """
    caller = "lab.fills.changes"
    keys = keys_of(trades, by, caller, *COMPARED, *RESULTS, every=str(every))
    period, *others = keys.names
    keys = replace(keys, names=(*others, period))

    def compared(level: float) -> pa.Table:
        answer = compare_by(keys, trades, prices, horizon, level, None, caller)
        return collected(answer, caller)

    table = frames.to_pandas(compared(intervals))
    # The error is that of a normal interval.
    reach = (table["high_bps"] - table["low_bps"]) / 2
    table["error_bps"] = reach / quantile(intervals)
    rows = int(table["low_bps"].notna().sum())
    together = frames.to_pandas(compared(1 - (1 - intervals) / max(1, rows)))
    for end in ("low_bps", "high_bps"):
        table[f"band_{end}"] = together[end]
    table["verdict"] = together["verdict"]
    answer = frames.to_table(table, caller, [*keys.names, *COMPARED])
    kind = table["reference"].iloc[0] if len(table) else ""
    return noted(frames.like(trades, answer), kind)


def break_test(changes: Any, *, level: float = 0.95) -> Any:
    """Test whether the difference of the venues changed at some time, from `changes`.

    Parameters
    ----------
    changes : frame of pandas, pyarrow, Polars, DuckDB or Spark
        From `changes`.
    level : float
        How sure a break must be, between 0 and 1.

    Returns
    -------
    frame of the same kind, one row per group
        The columns that `changes` is grouped by; ``periods`` with an interval; ``statistic``, the largest of Wald's
        for a change of the mean before each period; ``p_value``; ``changed_at``, the start of the period of which it
        is the largest, so that the difference most likely changed at the beginning of that period or in the one
        before; ``before_bps`` and ``after_bps``, the means before and from that period on, and ``change_bps``, after
        minus before; ``verdict``: ``rose``, ``fell`` (the pool became cheaper, relative to the book), or
        ``undecided`` if the p-value is above 1 - `level`; and ``reference``. With fewer than four periods all but
        their number is null, and the verdict ``undecided``.

    Raises
    ------
    LabError
        `changes` has not the columns of `changes`, or `level` is not valid.

    Notes
    -----
    The supremum of Wald statistics (Andrews) over all periods but the first and the last 15 %. Means weight periods
    by the inverse of their squared errors. How large the statistic is without a break is simulated: 9,999 times
    differences with the errors of these periods, always the same ones (a fixed seed). Asymptotic tables would take
    the periods to be many, and alike. Errors are estimates, which differences of few orders exceed more often than
    normal ones would: each period varies as Student's t. Its degrees of freedom are twice its effective orders less
    one, as these are of the venue that has fewer, and the other one has at least as many. Periods are taken to be
    independent.

    A break is a change of the difference, whatever its reason: that the accounts which trade most pay lower fees from
    some day on is one, and so is another mix of markets. Compare by account or market to tell reasons apart.

    The means and the size of the change are those at the time that fits best, so they are too far apart on average.

    References
    ----------
    D. W. K. Andrews, "Tests for parameter instability and structural change with unknown change point",
    Econometrica 61 (1993).

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="ETH-USDC")
    >>> months = lab.fills.changes(trades, client.outside_prices(trades), by=None)
    >>> lab.fills.break_test(months)[["periods", "verdict"]]
       periods verdict
    0       11    rose
    """
    caller = "lab.fills.break_test"
    check_level(level, caller)
    names = frames.column_names(changes, caller)
    frames.check_columns(["period", *COMPARED], names, caller)
    keys = [name for name in names if name not in ("period", *COMPARED)]
    given = collected(changes, caller)
    table = frames.to_pandas(given)
    # One group even without keys; unknown values of a key are a group too.
    groups = table.groupby([*keys, "reference"], dropna=False, observed=True)
    found = []
    for values, rows in groups:
        known = rows[rows["error_bps"] > 0].dropna(subset="period")
        tested = _tested(known.sort_values("period"), level)
        about: dict[str, Any] = dict(zip([*keys, "reference"], values, strict=True))
        known_values = {
            name: None if pd.isna(value) else value for name, value in about.items()
        }
        found.append(known_values | tested)
    types = {name: given.schema.field(name).type for name in keys} | BREAK
    answer = pa.Table.from_pylist(found, pa.schema(types))
    return frames.like(changes, answer)


def _tested(known: pd.DataFrame, level: float) -> dict[str, Any]:
    """Test the periods of one group, in their order, for a break."""
    found: dict[str, Any] = {"periods": len(known), "verdict": "undecided"}
    if len(known) < FEWEST_PERIODS:
        return found
    differences = known["difference_bps"].to_numpy()
    errors = known["error_bps"].to_numpy()
    statistics = _wald(differences, errors)
    largest = statistics.max()

    # Without a break, each difference is its error times Student's t, whose freedom the orders of both venues give.
    freedom = np.maximum(2 * (known["effective_orders"].to_numpy() - 1), 1)
    noise = np.random.default_rng(SEED).standard_t(freedom, (DRAWS, len(known)))
    simulated = _wald(noise * errors, errors).max(axis=1)
    # The sample counts as one of the draws, so that no p-value is 0.
    p_value = (1 + np.count_nonzero(simulated >= largest)) / (1 + DRAWS)

    first_after = _trimmed(len(known)) + int(statistics.argmax())
    weights = errors**-2
    before = np.average(differences[:first_after], weights=weights[:first_after])
    after = np.average(differences[first_after:], weights=weights[first_after:])
    if p_value <= 1 - level:
        found["verdict"] = "rose" if after > before else "fell"
    return found | {
        "statistic": largest,
        "p_value": p_value,
        "changed_at": known["period"].iloc[first_after],
        "before_bps": before,
        "after_bps": after,
        "change_bps": after - before,
    }


def _trimmed(periods: int) -> int:
    """Return how many periods there are at least before and after a break."""
    return math.ceil(TRIMMED * periods)


def _wald(differences: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return the Wald statistic of a change of the mean before each period that is not trimmed, along the last axis.

    It is the squared difference of the means after and before, over its variance.
    """
    weights = errors**-2
    summed = np.cumsum(differences * weights, axis=-1)
    weighed = np.cumsum(weights)
    # In sums up to each period: what they are beyond their part of the whole, over the variance of that.
    part = weighed / weighed[-1]
    beyond = summed - part * summed[..., -1:]
    trimmed = _trimmed(len(errors))
    places = slice(trimmed - 1, len(errors) - trimmed)
    variance = weighed * (1 - part)
    statistics: np.ndarray = beyond[..., places] ** 2 / variance[places]
    return statistics
