"""Times and sizes on the horizontal axis: periods and their dates, quantiles and the sizes between them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib import dates as mdates
from matplotlib.axes import Axes

from loopring_lab.amounts import to_float
from loopring_lab.amounts.limbs import Limbs
from loopring_lab.engines import adapters, convert
from loopring_lab.engines.aggregate import DAY, Groups, Period, check_quantiles
from loopring_lab.engines.selection import BySize
from loopring_lab.errors import LabError
from loopring_lab.figures import style

PERIODS = [(1 / 24, "1min"), (0.5, "15min"), (3, "1h"), (45, "1d"), (400, "1w"), (1500, "1mo")]
"""The longest time in days for which each period is chosen."""
UNIT_NAMES = {"s": "second", "min": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month"}
UNIT_NAMES |= {"q": "quarter", "y": "year"}
FEWEST, MOST = 7, 1000
"""Periods below which the axis is widened, and above which a figure is refused."""


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
        starts = periods.dt.tz_convert("UTC")
        form = "%Y-%m-%d" if (starts == starts.dt.normalize()).all() else "%Y-%m-%d %H:%M UTC"
        return [f"{self.name} from {start}" for start in starts.dt.strftime(form)]

    def pivot(self, table: pd.DataFrame, column: str, values: str) -> pd.DataFrame:
        """Pivot sums to a row for each period and a column for each group."""
        keys = [pd.Series(_milliseconds(table["period"]), table.index), table[column]]
        sums = table[values].groupby(keys, observed=True).sum(min_count=1)
        return to_float(sums).unstack().reindex(self.starts)


def choose_period(trades: Any, caller: str) -> str:
    """Choose a period for the time covered that gives about ten to sixty of them."""
    if adapters.engine_of(trades) == "dask":
        ends = pa.concat_tables(convert.batches(trades, ["created_at"], caller))
    else:
        moment = nw.col("moment")
        opened = adapters.open_frame(trades, ["created_at"], caller)
        opened = opened.select(moment.min().alias("first"), moment.max().alias("last"))
        ends = opened.lazy().collect("pyarrow").to_native()
    times = [time for column in ends.columns for time in pc.min_max(column).as_py().values()]
    known = [time for time in times if time is not None]
    return period_for((max(known) - min(known)) / DAY if known else 0)


def period_for(days: float) -> str:
    """Choose a period for a time of this many days."""
    if days == 0:
        return "1d"
    return next((every for most, every in PERIODS if days <= most), "1q")


def timeline(periods: pd.Series, every: str, caller: str) -> Timeline:
    """Lay out all periods from the first to the last."""
    if periods.empty:
        raise LabError(f"{caller}: no trade with a known time to draw. Pass other trades.")
    length, times = Period.parse(every), _milliseconds(periods)
    ends = np.array([times.min(), times.max()])
    if length.months:
        first, last = ends.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
        months = np.arange(first, last + 2 * length.months, length.months)
        edges = months.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
    else:
        count = (ends[1] - ends[0]) // length.step + 2
        edges = ends[0] + length.step * np.arange(min(count, MOST + 2))
    if len(edges) > MOST + 1:
        raise LabError(
            f"{caller}(every={every!r}) would draw more than {MOST:,} periods. Give a longer "
            "one, such as every='1w'."
        )
    left = edges / DAY
    return Timeline(period_name(every), edges[:-1], left[:-1], np.diff(left))


def period_name(every: str) -> str:
    """Spell out a period, such as ``2 weeks``."""
    count, unit = re.fullmatch(r"(\d*)(\D+)", every.lower()).groups()  # type: ignore[union-attr]
    return UNIT_NAMES[unit] if int(count or 1) == 1 else f"{count} {UNIT_NAMES[unit]}s"


def format_dates(axes: Axes, periods: Timeline) -> None:
    """Write dates along the horizontal axis, and numbers along the other."""
    if len(periods.left) < FEWEST:
        start, end = periods.left[0], periods.left[-1] + periods.width[-1]
        room = min(1, (FEWEST - len(periods.left)) / 2) * periods.width[0]
        axes.set_xlim(start - room, end + room)
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
    utc = times.dt.tz_convert("UTC").dt.tz_localize(None)
    return np.asarray(utc.to_numpy("datetime64[ms]"), "datetime64[ms]").astype(np.int64)


FEWEST_COLUMNS, ROOMY_DIGITS = 5, 3


class Sizes:
    """The sizes of fills in one quote token, in the order of size, and the number of all fills."""

    def __init__(self, trades: Any, quote: str | None, caller: str) -> None:
        groups, self._rows, self.total = Groups(["quote"]), BySize(), 0
        for batch in convert.batches(trades, ["quote", "notional"], "fills.size_profile"):
            self._rows.add(Limbs.of(batch["notional"]), groups.numbers(batch), {})
            self.total += len(batch)
        quotes = groups.ordered().table["quote"].to_pylist()
        counts = np.pad(self._rows.counts, (0, len(quotes) - len(self._rows.counts)))
        known = pd.DataFrame({"quote": quotes, "fills": counts})[counts > 0].dropna()
        self.token = style.select_quote(known, quote, caller)[1]
        self._group = quotes.index(self.token)

    def bounds(self, quantiles: int) -> pd.DataFrame:
        """Return the smallest and largest size of each quantile."""
        check_quantiles(quantiles, "fills.size_profile")
        return style.as_pandas(self._rows.bounds(self._group, quantiles)).set_index("quantile")


def format_sizes(axes: Axes, sizes: pd.DataFrame, quote: str) -> None:
    """Label the boundaries between columns with sizes; if all sizes are equal, the columns themselves."""
    ends = [sizes["smallest"].iloc[0], *sizes["largest"]]
    texts = {digits: [style.truncate_digits(size, digits) for size in ends] for digits in range(2, 18)}
    least = next(n for n in texts if n == 17 or len(set(texts[n])) == len(set(ends)))
    short, long = texts[least], texts[max(least, ROOMY_DIGITS)]
    room = max(0.1, (FEWEST_COLUMNS - len(sizes)) / 2)
    axes.set_xlim(-0.5 - room, len(sizes) - 0.5 + room)
    column = style.column_width(axes)
    labels = long if style.fit(long, column) else short
    step = style.label_step(labels, column)
    axes.set_xticks(np.arange(0, len(ends), step) - 0.5, labels[::step])
    if len(set(ends)) == 1:
        axes.set_xticks([(len(sizes) - 1) / 2], labels[:1])
    axes.set_xlabel(f"size of the fill ({quote})")
