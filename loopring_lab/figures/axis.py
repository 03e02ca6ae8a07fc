"""Times and sizes on the horizontal axis: periods and their dates, and the sizes between quantiles."""

from __future__ import annotations

from datetime import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import dates as mdates
from matplotlib.axes import Axes

from loopring_lab.engine import session
from loopring_lab.engine.groups import (
    DAY,
    FIXED,
    MONTHS,
    UNIT_NAMES,
    Periods,
    count_and_unit,
)
from loopring_lab.errors import LabError
from loopring_lab.figures.answers import select_quote
from loopring_lab.figures.style import column_width, every_nth
from loopring_lab.figures.words import truncate_digits

# The longest time in days for which each period is chosen: about ten to sixty periods of each, which at 900 pixels
# are bars wide enough to point at.
PERIODS = [
    (1 / 24, "1min"),
    (0.5, "15min"),
    (3, "1h"),
    (45, "1d"),
    (400, "1w"),
    (1500, "1mo"),
]
# Months and what is made of them differ in length; these say about how many there are.
LENGTHS = FIXED | {unit: 30 * DAY * months for unit, months in MONTHS.items()}
# Periods below which the axis is widened, a week of days; and about as many as there are pixels for them.
FEWEST = 7
MOST = 1000
# Columns of sizes below which the axis is widened: fewer would be wider than they are high.
FEWEST_COLUMNS = 5
# Digits of a size where there is room for them, chosen by eye; and those of a float64, which tell all apart that floats
# can (IEEE 754).
ROOMY_DIGITS = 3
MOST_DIGITS = 17


class Timeline(NamedTuple):
    """The periods of a figure, including those without trades, in a time zone; `left` and `width` in days."""

    name: str
    left: np.ndarray
    width: np.ndarray
    zone: str

    @property
    def middle(self) -> np.ndarray:
        """The middle of each period."""
        return np.asarray(self.left + self.width / 2)

    @property
    def end(self) -> Any:
        """The end of the last period."""
        return self.left[-1] + self.width[-1]

    def located(self, table: pd.DataFrame) -> pd.DataFrame:
        """Add the ``place`` of each row's period, from 0, and its name, such as ``week from 2022-03-07``."""
        periods = table["period"]
        form = "%Y-%m-%d"
        # Names have a time of day only where a period does not begin at midnight.
        if (periods.dt.time != time.min).any():
            form = "%Y-%m-%d %H:%M %Z"
        days = _milliseconds(periods) / DAY
        return table.assign(
            place=np.searchsorted(self.left, days),
            when=f"{self.name} from " + periods.dt.strftime(form),
        )


def period_for(days: float) -> str:
    """Choose a period for a time of this many days."""
    # One trade, or several of one moment, cover no time: a day is a period that everybody knows.
    if days == 0:
        return "1d"
    return next((every for most, every in PERIODS if days <= most), "1q")


def timeline(periods: pd.Series, every: str, caller: str) -> Timeline:
    """Lay out all periods from the first to the last, in the time zone that these have."""
    if periods.empty:
        raise LabError(
            f"{caller}: no trade with a known time to draw. Pass other trades."
        )
    count, unit = count_and_unit(every)
    length = count * LENGTHS[unit]
    times = _milliseconds(periods)
    if (times.max() - times.min()) // length >= MOST:
        raise LabError(
            f"{caller}(every={every!r}) would draw more than {MOST:,} periods. Give a longer one, such as every='1w'."
        )
    zone = str(periods.dt.tz)
    days = _edges(Periods(every, zone), times.min(), times.max()) / DAY
    return Timeline(
        period_name(every),
        days[:-1],
        np.diff(days),
        zone,
    )


def period_name(every: str) -> str:
    """Spell out a period, such as ``2 weeks``."""
    count, unit = count_and_unit(every)
    return UNIT_NAMES[unit] if count == 1 else f"{count} {UNIT_NAMES[unit]}s"


def _edges(periods: Periods, first: int, last: int) -> np.ndarray:
    """Return the starts of the periods from a start to a moment and the end of the last, in milliseconds."""
    ends = [f"make_timestamptz({ms * 1000})" for ms in (first, last)]
    # The end of the last period is not known yet; three lengths later it is over, also where clocks are put back.
    beyond = periods.start(f"({ends[1]} + 3 * {periods.length})")
    found = session.cursor().execute(
        f"SELECT list_transform({periods.starts(ends[0], beyond)}, lambda start: epoch_ms(start))"
    )
    edges = np.array(found.fetchall()[0][0])
    is_after = edges > last
    return edges[: is_after.argmax() + 1]


def _milliseconds(times: pd.Series) -> np.ndarray:
    """Convert times to milliseconds since 1970 in UTC."""
    return np.asarray(times.dt.as_unit("ms").to_numpy(np.int64))


class _Dates(mdates.ConciseDateFormatter):
    """Concise dates, of which the first one is written in full: the others follow it."""

    def format_ticks(self, values: Any) -> list[str]:
        # The last day of a month that has a tick stands too close to the first one of the next.
        distances = np.diff(values)
        is_apart = np.append(distances > distances.max(initial=0) / 2, True)
        # The base class writes the last one in full, such as the year 2023 for the days from 30 December 2022 on.
        backwards = np.asarray(values)[is_apart][::-1]
        shown: list[str] = super().format_ticks(backwards)  # type: ignore[no-untyped-call]
        # The labels are taken from the end, as they are backwards.
        return [shown.pop() if apart else "" for apart in is_apart]


def format_dates(axes: Axes, periods: Timeline) -> None:
    """Write dates along the horizontal axis."""
    count = len(periods.left)
    if count < FEWEST:
        # A single period would fill the figure; beside it is room for one on either side.
        room = min(1, (FEWEST - count) / 2) * periods.width[0]
        axes.set_xlim(periods.left[0] - room, periods.end + room)
    locator = mdates.AutoDateLocator(periods.zone, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    day = "%d %b"  # "26" alone would not name the month
    concise = _Dates(  # type: ignore[no-untyped-call]
        locator,
        periods.zone,
        formats=["%Y", "%b", day, "%H:%M", "%H:%M", "%S.%f"],
        zero_formats=["", "%Y", day, day, "%H:%M", "%H:%M"],
        offset_formats=["", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
    )
    axes.xaxis.set_major_formatter(concise)
    # The offset stands below the first date, which it belongs to; on the right is the label of synthetic data.
    axes.xaxis.get_offset_text().set(x=0, horizontalalignment="left")
    axes.set_xlabel(f"time ({periods.zone})")


def quantiles_of(
    profile: pd.DataFrame,
    quote: str | None,
    caller: str,
) -> tuple[pd.DataFrame, str]:
    """Select the quantiles of one quote token from `fills.size_profile`, by default that with most fills."""
    # Fills of unknown size are in no quantile.
    known = profile.dropna(subset=["quantile"]).astype({"quantile": int})
    return select_quote(known, quote, caller, known="notional")


def bounds_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest and largest size of each quantile."""
    return table.groupby("quantile")[["smallest", "largest"]].first()


def format_sizes(axes: Axes, sizes: pd.DataFrame, quote: str) -> None:
    """Label the boundaries between columns with sizes; if all sizes are equal, the columns themselves."""
    ends = [sizes["smallest"].iloc[0], *sizes["largest"]]
    count = len(sizes)
    room = max(0.1, (FEWEST_COLUMNS - count) / 2)
    axes.set_xlim(-0.5 - room, count - 0.5 + room)
    least = _fewest_digits(ends)
    labels = _texts(ends, max(least, ROOMY_DIGITS))
    column = column_width(axes)
    # Fewer digits before fewer labels.
    if every_nth(labels, column) > 1:
        labels = _texts(ends, least)
    step = every_nth(labels, column)
    borders = np.arange(len(ends)) - 0.5
    axes.set_xticks(borders[::step], labels[::step])
    # With one size there is no boundary to tell apart.
    if len(set(ends)) == 1:
        axes.set_xticks([(count - 1) / 2], labels[:1])
    axes.set_xlabel(f"size of the fill ({quote})")


def _fewest_digits(sizes: list[Any]) -> int:
    """Return the fewest digits, two or more, with which different sizes are written differently."""
    different = len(set(sizes))
    for digits in range(2, MOST_DIGITS):
        if len(set(_texts(sizes, digits))) == different:
            return digits
    return MOST_DIGITS


def _texts(sizes: list[Any], digits: int) -> list[str]:
    return [truncate_digits(size, digits) for size in sizes]
