"""Size on the horizontal axis: quantiles of one quote token, and the sizes that separate them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from loopring_lab import fills
from loopring_lab.amounts.limbs import Limbs
from loopring_lab.engines import convert
from loopring_lab.engines.aggregate import Groups, check_quantiles
from loopring_lab.engines.selection import BySize
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
