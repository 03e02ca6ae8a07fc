"""Frames of any engine in windows of time, each with the rows around it, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from loopring_lab.engines import convert
from loopring_lab.engines.aggregate import result_frame
from loopring_lab.engines.asof import order_span


class Window(NamedTuple):
    """Rows of a window and of the time around it, a mask of its own rows, and prices of the same time."""

    rows: pa.Table
    inside: np.ndarray
    prices: pa.Table


Work = Callable[[Window], pa.Table]


class Parts:
    """What `over` found in every window: a table for each, or all together as a frame of the same engine."""

    def __init__(self, trades: Any, tables: Iterator[pa.Table]) -> None:
        self._trades, self._tables = trades, tables

    def __iter__(self) -> Iterator[pa.Table]:
        return self._tables

    def frame(self) -> Any:
        """Return the parts as one frame of the engine of the trades."""
        return result_frame(self._trades, pa.concat_tables(self._tables))


def over(
    trades: Any,
    caller: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    prices: Any = None,
    price_columns: Sequence[str] = (),
    before: int | None = None,
    after: int | None = None,
    spans: bool = False,
    placed_by: str = "moment",
    work: Work,
) -> Parts:
    """Apply `work` to every window of trades; prices are the trades themselves by default.

    A window has the rows up to `before` and `after` ms around it; None for all. With `spans`, rows have the
    columns ``first`` and ``last``, when their order was first and last filled in all of the trades. Each row
    is inside one window, by the time in the column `placed_by`; those of unknown time in the first.
    """
    rows = convert.to_table(trades, caller, columns, optional)
    if spans:
        first, last = order_span(rows)
        rows = rows.append_column("first", pa.array(first)).append_column("last", pa.array(last))
    known = rows if prices is None else convert.to_table(prices, caller, price_columns, optional)
    window = Window(rows, np.ones(len(rows), bool), known)
    return Parts(trades, iter([work(window)]))
