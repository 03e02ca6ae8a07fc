"""How much was traded, and where: volume, and the shares of pool and order book over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import narwhals as nw
import pandas as pd

from loopring_lab import fills
from loopring_lab.engines import kinds
from loopring_lab.errors import LabError
from loopring_lab.figures import spans
from loopring_lab.figures.canvas import (
    FILL_TYPES,
    bars,
    by_quote,
    in_percent,
    local,
    picture,
    with_types,
)
from loopring_lab.figures.words import number, of_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["fill_shares", "volume"]

EQUAL = {"1w": (7, "week"), "1mo": (30, "30 days"), "1q": (91, "91 days")}
"""Lengths of bars in days, all alike so that heights compare."""


def volume(trades: Any, *, quote: str | None = None, ax: Axes | None = None) -> Figure:
    """Draw the volume traded over time, stacked by fill type.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`. ``notional`` is summed exactly per day,
        week, 30 or 91 days from the first day on, depending on the time covered.
    quote : str, optional
        The quote token to draw; amounts in different tokens are never added up. By default the one with the
        most trades; the title says which, and how many trades that leaves out.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Not registered with pyplot.

    Raises
    ------
    LabError
        No trade with a known time, notional and fill type is quoted in that token.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.volume(trades).axes[0].get_ylabel()
    'notional (ETH)'
    """
    complete, total = _complete(trades, ["created_at", "quote", "fill_type", "notional"], "volume")
    mine, chosen = by_quote(local(fills.breakdown(complete, "1d", "quote")), quote, "volume")
    days = mine["period"].dt.as_unit("ms")
    count, name = EQUAL.get(spans.suiting((days.max() - days.min()).days), (1, "day"))
    length = pd.Timedelta(days=count)
    mine = mine.assign(period=days.min() + (days - days.min()) // length * length)
    periods = spans.timeline(mine["period"], f"{count}d", "volume")
    heights = periods.spread(mine, "fill_type", "notional").reindex(columns=["amm", "dex"])
    left_out = "" if mine["fills"].sum() == total else f", {of_all(mine['fills'].sum(), total)}"
    with picture(trades, ax, f"Traded volume per {name}, {chosen}-quoted markets{left_out}") as axes:
        parts = [(FILL_TYPES[one].bar, heights[one]) for one in ("amm", "dex")]
        bars(axes, periods.left, periods.width, parts)
        spans.dates(axes, periods)
        axes.set_ylabel(f"notional ({chosen})")
    return cast("Figure", axes.figure)


def fill_shares(
    trades: Any,
    *,
    every: str | None = None,
    of: Literal["fills", "notional"] = "fills",
    quote: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the shares of pool and order book over time.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every : str, optional
        Length of a period, as for `fills.breakdown`; by default one that suits the time covered.
    of : {'fills', 'notional'}
        What is shared: the number of fills, or the amount traded in one quote token.
    quote : str, optional
        Only markets of this quote token; for notional by default the one with the most fills.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Bars of `fills.breakdown`, in percent; a period without fills stays empty.

    Raises
    ------
    LabError
        There is nothing to draw, or an argument is not usable.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.fill_shares(trades).axes[0].get_ylabel()
    'share of fills (%)'
    """
    what = "fill_shares"
    if of not in ("fills", "notional"):
        raise LabError(f"{what}: of={of!r} is not known. Give 'fills' or 'notional'.")
    every = every or spans.chosen(trades, what)
    needed = ["created_at"] if of == "fills" else ["created_at", "quote", "notional"]
    complete, total = _complete(trades, needed, what)
    table, where = with_types(local(fills.breakdown(complete, every, "quote"))), ""
    if of == "notional" or quote:
        table, chosen = by_quote(table, quote, what)
        where = f", {chosen}-quoted markets"
    periods = spans.timeline(table["period"], every, what)
    heights = periods.spread(table, "fill_type", of)
    shares = heights.div(heights.sum(axis=1), axis=0) * 100
    note = f"{of_all(table['fills'].sum(), total)}; over the whole time {_overall(heights)}"
    with picture(trades, ax, f"Share of {of} by fill type, per {periods.name}{where}", note) as axes:
        parts = [(look.bar, shares[one]) for one, look in FILL_TYPES.items() if one in shares]
        bars(axes, periods.left, periods.width, parts)
        spans.dates(axes, periods)
        in_percent(axes, of)
    return cast("Figure", axes.figure)


def _complete(trades: Any, columns: list[str], what: str) -> tuple[Any, int]:
    """Leave out rows in which one of the columns is null; tell how many rows there were."""
    check = kinds.partitions if kinds.kind(trades) == "dask" else kinds.opened
    check(trades, columns, what)
    table = nw.from_native(trades)
    known = table.filter(~nw.any_horizontal(*(nw.col(name).is_null() for name in columns), ignore_nulls=True))
    count = table.select(nw.len().alias("n")).lazy().collect("pyarrow").to_native()["n"][0].as_py()
    return known.to_native(), count


def _overall(heights: pd.DataFrame) -> str:
    parts = heights.sum() / heights.sum().sum() * 100
    return ", ".join(
        f"{look.label} {number(parts[one], 3)} %" for one, look in FILL_TYPES.items() if one in parts
    )
