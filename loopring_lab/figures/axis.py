"""Times and sizes on the horizontal axis: periods and their dates, and the sizes between quantiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import dates as mdates
from matplotlib.axes import Axes

from loopring_lab.amounts import to_float
from loopring_lab.engine.groups import DAY, FIXED, MONTHS, period_sql
from loopring_lab.errors import LabError
from loopring_lab.figures import style

# The longest time in days for which each period is chosen: about ten to sixty periods of each.
PERIODS = [(1 / 24, "1min"), (0.5, "15min"), (3, "1h"), (45, "1d"), (400, "1w"), (1500, "1mo")]
UNIT_NAMES = {"s": "second", "min": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month"}
UNIT_NAMES |= {"q": "quarter", "y": "year"}
# Periods below which the axis is widened, and about as many as there are pixels for them.
FEWEST = 7
MOST = 1000
FEWEST_COLUMNS = 5
# Digits of a size where there is room for them.
ROOMY_DIGITS = 3
# Digits of a float64, which tell all sizes apart that floats can.
MOST_DIGITS = 17


class Timeline(NamedTuple):
    """The periods of a figure, including those without trades; `left` and `width` in days."""

    name: str
    starts: np.ndarray
    left: np.ndarray
    width: np.ndarray

    def places(self, periods: pd.Series) -> np.ndarray:
        """Return the number of each period, from 0."""
        return np.searchsorted(self.starts, _milliseconds(periods))

    def texts(self, periods: pd.Series) -> list[str]:
        """Name each period, such as ``week from 2022-03-07``."""
        form = "%Y-%m-%d"
        if (periods != periods.dt.normalize()).any():
            form = "%Y-%m-%d %H:%M UTC"
        return [f"{self.name} from {start}" for start in periods.dt.strftime(form)]

    def rows(self, table: pd.DataFrame) -> Iterator[tuple[dict[Any, Any], int, str]]:
        """Yield each row of a table with the number of its period, and its name."""
        periods = table["period"]
        return zip(table.to_dict("records"), self.places(periods), self.texts(periods), strict=True)

    def pivot(self, table: pd.DataFrame, column: str, values: str) -> pd.DataFrame:
        """Pivot sums to a row for each period and a column for each group."""
        keys = [pd.Series(_milliseconds(table["period"]), table.index), table[column]]
        sums = table[values].groupby(keys, observed=True).sum(min_count=1)
        return to_float(sums).unstack().reindex(self.starts)


def period_for(days: float) -> str:
    """Choose a period for a time of this many days."""
    if days == 0:
        return "1d"
    return next((every for most, every in PERIODS if days <= most), "1q")


def timeline(periods: pd.Series, every: str, caller: str) -> Timeline:
    """Lay out all periods from the first to the last."""
    if periods.empty:
        raise LabError(f"{caller}: no trade with a known time to draw. Pass other trades.")
    period_sql(every)  # raises where it is not a period
    count, unit = _parts(every)
    times = _milliseconds(periods)
    ends = np.array([times.min(), times.max()], "datetime64[ms]")
    if unit in MONTHS:
        ends = ends.astype("datetime64[M]")
        length = count * MONTHS[unit]
    else:
        length = count * FIXED[unit]
    first, last = ends.astype(np.int64)
    edges = first + length * np.arange(min((last - first) // length + 2, MOST + 2))
    if len(edges) > MOST + 1:
        raise LabError(
            f"{caller}(every={every!r}) would draw more than {MOST:,} periods. Give a longer one, such as every='1w'."
        )
    starts = edges.astype(ends.dtype).astype("datetime64[ms]").astype(np.int64)
    left = starts / DAY
    return Timeline(period_name(every), starts[:-1], left[:-1], np.diff(left))


def period_name(every: str) -> str:
    """Spell out a period, such as ``2 weeks``."""
    count, unit = _parts(every)
    return UNIT_NAMES[unit] if count == 1 else f"{count} {UNIT_NAMES[unit]}s"


def _parts(every: str) -> tuple[int, str]:
    """Return the number and the unit of a period."""
    unit = every.lower().lstrip("0123456789")
    return int(every[: -len(unit)] or 1), unit


def format_dates(axes: Axes, periods: Timeline) -> None:
    """Write dates along the horizontal axis, and numbers along the other."""
    count = len(periods.left)
    if count < FEWEST:
        end = periods.left[-1] + periods.width[-1]
        room = min(1, (FEWEST - count) / 2) * periods.width[0]
        axes.set_xlim(periods.left[0] - room, end + room)
    locator = mdates.AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    concise = mdates.ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    day_format = "%d %b"  # "26" alone would not name the month
    concise.formats[2] = concise.zero_formats[2] = concise.zero_formats[3] = day_format
    concise.offset_formats[2:] = ["%Y", *["%d %b %Y"] * 3]
    axes.xaxis.set_major_formatter(concise)
    axes.set_xlabel("time (UTC)")
    style.plain_numbers(axes.yaxis)


def _milliseconds(times: pd.Series) -> np.ndarray:
    """Convert times to milliseconds since 1970 in UTC."""
    return np.asarray(times.dt.as_unit("ms").to_numpy(np.int64))


def quantiles_of(profile: pd.DataFrame, quote: str | None, caller: str) -> tuple[pd.DataFrame, str]:
    """Select the quantiles of one quote token from `fills.size_profile`, by default that with most fills."""
    known = profile.dropna(subset=["quantile"]).astype({"quantile": int})
    return style.select_quote(known, quote, caller)


def bounds_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest and largest size of each quantile."""
    return table.groupby("quantile")[["smallest", "largest"]].first()


def format_sizes(axes: Axes, sizes: pd.DataFrame, quote: str) -> None:
    """Label the boundaries between columns with sizes; if all sizes are equal, the columns themselves."""
    ends = [sizes["smallest"].iloc[0], *sizes["largest"]]
    least = _fewest_digits(ends)
    room = max(0.1, (FEWEST_COLUMNS - len(sizes)) / 2)
    axes.set_xlim(-0.5 - room, len(sizes) - 0.5 + room)
    column = style.column_width(axes)
    labels = _texts(ends, max(least, ROOMY_DIGITS))
    if style.every_nth(labels, column) > 1:
        labels = _texts(ends, least)
    step = style.every_nth(labels, column)
    axes.set_xticks(np.arange(0, len(ends), step) - 0.5, labels[::step])
    if len(set(ends)) == 1:
        axes.set_xticks([(len(sizes) - 1) / 2], labels[:1])
    axes.set_xlabel(f"size of the fill ({quote})")


def _fewest_digits(sizes: list[Any]) -> int:
    """Return the fewest digits, two or more, with which different sizes are written differently."""
    different = len(set(sizes))
    enough = (digits for digits in range(2, MOST_DIGITS) if len(set(_texts(sizes, digits))) == different)
    return next(enough, MOST_DIGITS)


def _texts(sizes: list[Any], digits: int) -> list[str]:
    return [style.truncate_digits(size, digits) for size in sizes]
