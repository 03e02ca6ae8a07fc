"""Time on the horizontal axis: which periods, where each stands, how dates are written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from matplotlib import dates as mdates

from loopring_lab.amounts import to_float
from loopring_lab.engines import convert
from loopring_lab.engines.aggregate import DAY, Period
from loopring_lab.engines.asof import milliseconds
from loopring_lab.errors import LabError
from loopring_lab.figures.style import in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


__all__ = ["Timeline", "chosen", "dates", "suiting", "timeline"]

LADDER = [(1 / 24, "1min"), (0.5, "15min"), (3, "1h"), (45, "1d"), (400, "1w"), (1500, "1mo")]
UNITS = {"s": "second", "min": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month"}
UNITS |= {"q": "quarter", "y": "year"}
LEAST, MOST = 7, 1000


class Timeline(NamedTuple):
    """The periods of a figure, also those without a trade."""

    name: str
    starts: np.ndarray
    left: np.ndarray
    width: np.ndarray

    def spread(self, table: pd.DataFrame, column: str, values: str) -> pd.DataFrame:
        """Spread sums to a row for each period and a column for each name."""
        keys = [pd.Series(milliseconds(table["period"]), table.index), table[column]]
        sums = table[values].groupby(keys, observed=True).sum(min_count=1)
        return to_float(sums).unstack().reindex(self.starts)


def chosen(trades: Any, caller: str) -> str:
    """Choose a period that suits the time covered: some ten to sixty of them."""
    ends = [pc.min_max(part["moment"]).as_py() for part in convert.batches(trades, ["created_at"], caller)]
    seen = [moment for end in ends for moment in end.values() if moment is not None]
    return suiting((max(seen) - min(seen)) / DAY if seen else 0)


def suiting(days: float) -> str:
    """Choose a period for so many days."""
    return next((every for most, every in LADDER if days <= most), "1q") if days else "1d"


def timeline(periods: pd.Series, every: str, caller: str) -> Timeline:
    """Lay out all periods from the first to the last."""
    if periods.empty:
        raise LabError(f"{caller}: no trade with a known time to draw. Ask for other trades.")
    length, moments = Period.parse(every), milliseconds(periods)
    ends = np.array([moments.min(), moments.max()])
    if length.months:
        first, last = ends.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
        months = np.arange(first, last + 2 * length.months, length.months)
        edges = months.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
    else:
        count = (ends[1] - ends[0]) // length.step + 2
        edges = ends[0] + length.step * np.arange(min(count, MOST + 2))
    if len(edges) > MOST + 1:
        raise LabError(
            f"{caller}: every={every!r} makes more than {MOST:,} periods, too many to draw. Give a longer "
            "one."
        )
    left = edges / DAY
    return Timeline(in_full(every), edges[:-1], left[:-1], np.diff(left))


def in_full(every: str) -> str:
    """Name a period in words."""
    count, unit = re.fullmatch(r"(\d*)(\D+)", every.lower()).groups()  # type: ignore[union-attr]
    return UNITS[unit] if int(count or 1) == 1 else f"{count} {UNITS[unit]}s"


def dates(axes: Axes, periods: Timeline) -> None:
    """Write dates along the horizontal axis."""
    if len(periods.left) < LEAST:
        start, end = periods.left[0], periods.left[-1] + periods.width[-1]
        room = min(1, (LEAST - len(periods.left)) / 2) * periods.width[0]
        axes.set_xlim(start - room, end + room)
    locator = mdates.AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    concise = mdates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    concise.formats[2] = concise.zero_formats[2] = concise.zero_formats[3] = (
        "%d %b"  # 26 alone names no month
    )
    concise.offset_formats[2] = "%Y"
    axes.xaxis.set_major_formatter(concise)
    axes.set_xlabel("time (UTC)")
    in_words(axes.yaxis)
