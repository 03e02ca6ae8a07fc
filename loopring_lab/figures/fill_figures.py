"""Figures of fills: volume, shares of AMM pool and order book, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes

from loopring_lab import fills
from loopring_lab.amounts import to_float
from loopring_lab.amounts.display import format_amount
from loopring_lab.amounts.limbs import floats
from loopring_lab.engines import convert
from loopring_lab.engines.aggregate import GroupBy, PairedFills, aggregate, equal, result_frame
from loopring_lab.engines.spill import Buckets
from loopring_lab.errors import LabError
from loopring_lab.figures import axis, style
from loopring_lab.figures.marks import Figure, Mark, bar_marks, keep, stack_texts
from loopring_lab.figures.style import FILL_TYPES, as_pandas, drawing, trade_count
from loopring_lab.fills.intervals import bucket_of, effective_orders, order_numbers, wilson
from loopring_lab.fills.prices import LOOKED_UP_BY

EQUAL_PERIODS = {"1w": (7, "week"), "1mo": (30, "30 days"), "1q": (91, "91 days")}
"""Bars of equal length in days in place of calendar periods, so that heights compare."""
MOST_DOTS = 60
"""Points on a line up to which each, and its interval, is drawn large enough to see."""
SHARE = ("share", "low", "high")


def volume(trades: Any, *, quote: str | None = None, ax: Axes | None = None) -> Figure:
    """Draw the volume traded over time, stacked by fill type.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`. ``notional`` is summed exactly per day,
        week, 30 or 91 days from the first day, depending on the time covered.
    quote : str, optional
        The quote token to draw; amounts in different tokens are never added up. By default the one with the
        most trades; the title names it, and says how many trades that leaves out.
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
    >>> lab.figures.volume(client.trades(account_id=10083, limit=100), quote="ETH")
    <Figure size 900x420 with 1 Axes>
    """
    paired = PairedFills(trades, "lab.figures.volume")
    daily, total = _sums(trades, "1d", ["quote", "fill_type", "notional"], "lab.figures.volume", paired)
    table, token = style.select_quote(daily, quote, "lab.figures.volume")
    days = table["period"].dt.as_unit("ms")
    count, name = EQUAL_PERIODS.get(axis.period_for((days.max() - days.min()).days), (1, "day"))
    length = pd.Timedelta(days=count)
    table = table.assign(period=days.min() + (days - days.min()) // length * length)
    groups = table.groupby(["period", "quote", "fill_type"], observed=True)
    table = groups[["fills", "notional"]].sum(min_count=1).reset_index()
    periods = axis.timeline(table["period"], f"{count}d", "lab.figures.volume")._replace(name=name)
    heights = periods.pivot(table, "fill_type", "notional").reindex(columns=["amm", "dex"])
    title = f"Traded volume per {name}, {token}-quoted markets"
    if table["fills"].sum() < total:
        title += f", {trade_count(table['fills'].sum(), total)}"
    with drawing(trades, ax, title, paired=paired) as axes:
        style.stacked_bars(axes, periods.left, periods.width, _bars(heights))
        axis.format_dates(axes, periods)
        axes.set_ylabel(f"notional ({token})")
    texts = [
        f"{FILL_TYPES[row['fill_type']].label}, {period}\n{format_amount(row['notional'])} {token}\n"
        f"{style.format_count(row['fills'])}"
        for row, period in zip(table.to_dict("records"), periods.texts(table["period"]), strict=True)
    ]
    stacks = stack_texts(table["fill_type"], periods.places(table["period"]), texts, heights)
    return keep(axes, table, bar_marks(axes, stacks))


def fill_shares(
    trades: Any,
    *,
    every: str | None = None,
    of: Literal["fills", "notional"] = "fills",
    quote: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the AMM pool's share over time; the rest is the order book's.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every : str, optional
        Length of a period, as for `fills.breakdown`; chosen to fit the time covered by default.
    of : {'fills', 'notional'}
        Share of the number of fills, or of the amount traded in one quote token.
    quote : str, optional
        Draw only markets of this quote token; for notional, the one with the most fills by default.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        A line through the share of each period in percent, with gaps where a period has no fills, the 95 %
        interval of each share and its number of fills, and the share over the whole time. Fills of unknown
        type are left out. Intervals are Wilson's score intervals, which also hold near 0 and 100 %: their
        observations are orders, as the fills of one order are one decision, or as many orders of equal weight
        as would say as much.

    Raises
    ------
    LabError
        No trade has the values needed, such as a fill type, or `of` or `every` is not valid.

    Examples
    --------
    >>> lab.figures.fill_shares(client.trades(account_id=10083, limit=100), of="notional")
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.fill_shares"
    if of not in ("fills", "notional"):
        raise LabError(f"{caller}: of={of!r} is not known. Give 'fills' or 'notional'.")
    every = every or axis.choose_period(trades, caller)
    needed = ["fill_type", *(["quote", "notional"] if of == "notional" else [])]
    paired = PairedFills(trades, caller)
    table, total = _sums(trades, every, needed, caller, paired)
    keys, markets, token = ["period"], "", None
    if of == "notional" or quote:
        table, token = style.select_quote(table, quote, caller)
        keys, markets = ["period", "quote"], f", {token}-quoted markets"
    if table.empty:
        raise LabError(f"{caller}: no trade with a known time and fill type to draw. Pass other trades.")
    table = _pool_shares(table, keys, of)
    periods = axis.timeline(table["period"], every, caller)
    places, (orders, effective) = periods.places(table["period"]), _orders(trades, periods, of, token, caller)
    low, high = wilson(table["share"].to_numpy(), effective[places])
    table = table.assign(orders=orders[places], low=low, high=high)
    shares = table[[*SHARE]].set_axis(places).reindex(range(len(periods.left))) * 100
    overall = float(to_float(table[f"pool_{of}"]).sum() / to_float(table[of]).sum() * 100)
    counted = trade_count(table["fills"].sum(), total)
    note = f"{counted}; over the whole time AMM pool {style.format_number(overall, 3)} %"
    note += "\nfills counted above the points, with 95 % intervals (Wilson, by order)"
    title = f"AMM pool's share of {of}, per {periods.name}{markets}"
    with drawing(trades, ax, title, note, counts_above=True, paired=paired) as axes:
        pool, middles = FILL_TYPES["amm"], periods.left + periods.width / 2
        size = 5 if len(shares) <= MOST_DOTS else 2
        style.draw_estimates(axes, middles, shares, SHARE, pool, markersize=size, linewidth=0.8)
        axes.axhline(overall, color=style.NOTE_COLOUR, linewidth=1, linestyle="--", label="whole time")
        axis.format_dates(axes, periods)
        style.percent_axis(axes, of)
        style.write_line(axes, middles[places], table["fills"], pool.colour, (1, 6), periods.width.min())
    return keep(axes, table, _share_marks(table, of, periods, middles[places]))


def size_profile(
    trades: Any, *, quantiles: int = 10, quote: str | None = None, ax: Axes | None = None
) -> Figure:
    """Draw the shares of AMM pool and order book by fill size.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    quantiles : int
        Number of quantiles, as for `fills.size_profile`.
    quote, ax : optional
        As for `volume`.

    Returns
    -------
    matplotlib.figure.Figure
        Stacked ``share`` of `fills.size_profile` in percent, with the sizes that separate the quantiles
        between the bars, truncated and never rounded up.

    Raises
    ------
    LabError
        No trade is quoted in that token, or `quantiles` is out of range.

    Examples
    --------
    >>> lab.figures.size_profile(client.trades(account_id=10083, limit=100), quantiles=4)
    <Figure size 900x420 with 1 Axes>
    """
    table = as_pandas(fills.size_profile(trades, quantiles))
    total, table = table["fills"].sum(), table.dropna(subset=["quantile"]).astype({"quantile": int})
    table, token = style.select_quote(table, quote, "lab.figures.size_profile")
    table = style.label_unknown_types(table)
    shares = table.groupby(["quantile", "fill_type"])["share"].sum().unstack() * 100
    title, note = f"Share of fills by size, {token}-quoted markets", trade_count(table["fills"].sum(), total)
    if len(shares) > 1:
        note += f"; each bar about {table['fills'].sum() / len(shares):,.0f} fills"
    with drawing(trades, ax, title, note) as axes:
        places = np.arange(len(shares), dtype=np.float64)
        style.stacked_bars(axes, places - style.BAR_WIDTH / 2, np.ones(len(shares)), _bars(shares))
        axis.format_sizes(axes, table.groupby("quantile")[["smallest", "largest"]].first(), token)
        style.percent_axis(axes, "fills")
    table = table.reset_index(drop=True)
    numbers = table["quantile"].map({quantile: place for place, quantile in enumerate(shares.index)})
    texts = [
        f"{FILL_TYPES[row['fill_type']].label}, {format_amount(row['smallest'])} to "
        f"{format_amount(row['largest'])} {token}\n{100 * row['share']:.1f} % of the fills of this size\n"
        f"{style.format_count(row['fills'])}"
        for row in table.to_dict("records")
    ]
    drawn = [name for name in FILL_TYPES if name in shares]
    return keep(axes, table, bar_marks(axes, stack_texts(table["fill_type"], numbers, texts, drawn)))


def _pool_shares(table: pd.DataFrame, keys: list[str], of: str) -> pd.DataFrame:
    """Return the fills, or the notional, of each period in all and of the pool, and the pool's share."""
    columns = ["fills"] if of == "fills" else ["fills", "notional"]
    whole = table.groupby(keys, observed=True)[columns].sum(min_count=1)
    pool = table[table["fill_type"] == "amm"].groupby(keys, observed=True)[of].sum(min_count=1)
    pool = pool.reindex(whole.index).fillna(0).rename(f"pool_{of}").astype(whole[of].dtype)
    shares = to_float(pool) / to_float(whole[of])
    return whole.join(pool).assign(share=shares).reset_index()


def _orders(
    trades: Any, periods: axis.Timeline, of: str, token: str | None, caller: str
) -> tuple[np.ndarray, np.ndarray]:
    """Count the orders of each period, and how many of equal weight would say as much."""
    wanted = {"created_at", "fill_type", "quote", "notional", *LOOKED_UP_BY}
    names = sorted(wanted & {*convert.column_names(trades)})
    rows, work = Buckets(), partial(_weighed, of=of, token=token)
    for part in convert.batches(trades, names, caller, work=work):
        orders, weights, moments = (part[name].to_numpy() for name in ("order", "weight", "moment"))
        places = np.searchsorted(periods.starts, moments, side="right") - 1
        rows.add(bucket_of(orders), {"group": places, "order": orders, "weight": weights})
    return effective_orders(rows, len(periods.starts))


def _weighed(rows: pa.Table, of: str, token: str | None) -> pa.Table:
    """Return the time, order and weight of the fills that have the values needed."""
    needed = ["moment", "fill_type", *(["notional"] if of == "notional" else [])]
    known = np.all([rows[name].is_valid() for name in needed], axis=0)
    rows = rows.filter(pa.array(known if token is None else known & equal(rows["quote"], token)))
    weights = floats(rows["notional"]) if of == "notional" else np.ones(len(rows))
    return pa.table({"moment": rows["moment"], "order": order_numbers(rows), "weight": weights})


def _share_marks(table: pd.DataFrame, of: str, periods: axis.Timeline, middles: np.ndarray) -> Iterator[Mark]:
    for period, x, row in zip(periods.texts(table["period"]), middles, table.to_dict("records"), strict=True):
        share, low, high = (100 * row[name] for name in SHARE)
        text = f"{period}\nAMM pool {share:.1f} % of {of} (95 %: {low:.1f} to {high:.1f} %)\n"
        yield Mark(text + style.format_count(row["fills"]), (x, x), (low, high))


def _sums(
    trades: Any, every: str, known: list[str], caller: str, paired: PairedFills
) -> tuple[pd.DataFrame, int]:
    """Add up fills of known time, and of other `known` values, per quote and fill type; also count all."""
    keys = ["period", "quote", "fill_type"]
    sums = aggregate(trades, keys[1:], caller, every, amounts=["notional"], rates=False, paired=paired)
    total = int(pc.sum(sums["fills"]).as_py() or 0)
    there = np.all([sums[name].is_valid().to_numpy() for name in ["period", *known]], axis=0)
    groups = GroupBy(sums.filter(pa.array(there)), keys)
    count = groups.sum("valued" if "notional" in known else "fills")
    columns = groups.key_columns() | {"fills": count, "notional": groups.sum("notional")}
    return as_pandas(result_frame(pd.DataFrame(), columns)), total


def _bars(heights: pd.DataFrame) -> list[tuple[dict[str, Any], pd.Series]]:
    return [(group.bar, heights[name]) for name, group in FILL_TYPES.items() if name in heights]
