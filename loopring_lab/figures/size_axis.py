"""Size on the horizontal axis: quantiles of one quote token, and the sizes that separate them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes

from loopring_lab import fills
from loopring_lab.engines import convert
from loopring_lab.engines.aggregate import GroupBy, check_quantiles, equal, numbers_of_quantiles
from loopring_lab.engines.arrays import coded
from loopring_lab.figures import style

FEWEST_COLUMNS, ROOMY_DIGITS = 5, 3
AXES_WIDTH, DIGIT, POINTS = 0.93, 7.0, 72
"""Part of the width beside the legend; width of a digit in points; points per inch."""


def size_quantiles(
    trades: Any, quantiles: int, quote: str | None, caller: str
) -> tuple[pd.DataFrame, str, int]:
    """Return the size profile of one quote token, the token, and the number of all fills."""
    table = style.as_pandas(fills.size_profile(trades, quantiles))
    total = int(table["fills"].sum())
    table, token = style.select_quote(table.dropna(subset=["quantile"]), quote, caller)
    return table.astype({"quantile": int}), token, total


def quantile_bounds(
    trades: Any, quantiles: int, quote: str | None, caller: str
) -> tuple[pd.DataFrame, str, int]:
    """Return the smallest and largest size of each quantile of one quote token, and as `size_quantiles`."""
    check_quantiles(quantiles, "fills.size_profile")
    rows = pa.concat_tables(list(convert.batches(trades, ["quote", "notional"], "fills.size_profile")))
    known = rows.filter(rows["notional"].is_valid())
    codes, names = coded(known["quote"])
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    _, token = style.select_quote(pd.DataFrame({"quote": names, "fills": counts}), quote, caller)
    sizes = known["notional"].filter(pa.array(equal(known["quote"], token)))
    every = np.ones(len(sizes), bool)
    numbers = numbers_of_quantiles(sizes, np.zeros(len(sizes), np.int64), every, quantiles) + 1
    table = pa.table({"quantile": numbers, "smallest": sizes, "largest": sizes})
    groups = GroupBy(table, ["quantile"])
    ends = {"smallest": groups.aggregate("smallest", "min"), "largest": groups.aggregate("largest", "max")}
    return style.as_pandas(pa.table(groups.key_columns() | ends)).set_index("quantile"), token, len(rows)


def bounds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest and largest size of each quantile."""
    return table.groupby("quantile")[["smallest", "largest"]].first()


def format_sizes(axes: Axes, sizes: pd.DataFrame, quote: str) -> None:
    """Label the boundaries between columns with sizes; if all sizes are equal, the columns themselves."""
    ends = [sizes["smallest"].iloc[0], *sizes["largest"]]
    texts = {digits: [style.truncate_digits(size, digits) for size in ends] for digits in range(2, 18)}
    least = next(n for n in texts if n == 17 or len(set(texts[n])) == len(set(ends)))
    short, long = texts[least], texts[max(least, ROOMY_DIGITS)]
    room = max(0.1, (FEWEST_COLUMNS - len(sizes)) / 2)
    axes.set_xlim(-0.5 - room, len(sizes) - 0.5 + room)
    column = column_width(axes)
    labels = long if fit(long, column) else short
    step = next(n for n in range(1, len(ends) + 1) if fit(labels[::n], n * column))
    axes.set_xticks(np.arange(0, len(ends), step) - 0.5, labels[::step])
    if len(set(ends)) == 1:
        axes.set_xticks([(len(sizes) - 1) / 2], labels[:1])
    axes.set_xlabel(f"size of the fill ({quote})")


def column_width(axes: Axes) -> float:
    """Return the width of a column in points."""
    low, high = axes.get_xlim()
    return float(AXES_WIDTH * axes.bbox.width * POINTS / axes.figure.dpi / (high - low))


def fit(labels: list[str], distance: float) -> bool:
    """Return whether labels this many points apart do not touch."""
    widths = [DIGIT * (len(label) - label.count(",") / 2 - label.count(".") / 2) for label in labels]
    return all((left + right) / 2 + DIGIT / 2 <= distance for left, right in pairwise(widths))
