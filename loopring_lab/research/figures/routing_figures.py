"""The figure of routing: what orders on the book would have cost at the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from loopring_lab.engine.ask import given
from loopring_lab.engine.frames import to_pandas
from loopring_lab.engine.groups import several
from loopring_lab.errors import LabError
from loopring_lab.figures import style
from loopring_lab.figures.answers import all_and_groups, by_names, weighted
from loopring_lab.figures.marks import Figure, keep
from loopring_lab.figures.style import drawing
from loopring_lab.figures.words import format_count, format_estimate
from loopring_lab.research.routing import check_fees, compared, quoted_orders

LEVEL = 0.95


def routing(
    trades: Any,
    balances: Any,
    *,
    by: str | Sequence[str] = "market",
    pool_fee_bps: int = 20,
    taker_fee_bps: float = 10,
    ax: Axes | None = None,
) -> Figure:
    """Draw how much less orders on the book would have cost at the pool, all in.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, of the same time as `balances`.
    balances : frame of any of these kinds
        What each pool held, from `BlocksClient.pool_balances`.
    by : str or sequence of str
        One line for each value of these columns of `research.pool_quotes` or of the trades, such as ``market``,
        ``size_class`` or ``flow``, up to the eleven with the most orders.
    pool_fee_bps, taker_fee_bps : optional
        Fees at the pool, as for `research.pool_quotes`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure, 900 pixels wide, whose height follows the groups.

    Returns
    -------
    matplotlib.figure.Figure
        The value-weighted mean of ``opportunity_bps`` of `research.pool_quotes` with its 95 % interval, and how many
        orders have a quote: all orders on top, then each group. Right of 0 the pool would have been cheaper. A hollow
        mark has an interval with 0 in it, or none.

    Raises
    ------
    LabError
        No order has a quote, or an argument is not valid.

    Examples
    --------
    >>> blocks = lab.connect(blocks="demo")
    Demo blocks: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.research.figures.routing(blocks.trades(), blocks.pool_balances())
    <Figure size 900x392 with 1 Axes>
    """
    caller = "lab.research.figures.routing"
    names = several(by)
    check_fees(pool_fee_bps, taker_fee_bps, caller)
    # Orders are looked up once, and averaged twice, as `research.pool_quotes` would do either.
    fills = given(trades, caller)
    reserves = given(balances, f"{caller}: balances=")
    orders = quoted_orders(fills, reserves, names, pool_fee_bps)

    def averaged(by: list[str]) -> pd.DataFrame:
        answer = to_pandas(compared(fills, orders, by, taker_fee_bps, LEVEL))
        return answer.assign(quoted=answer["orders"] - answer["unquoted"])

    overall = averaged([])
    table = averaged(names)
    # A group without any quote has nothing to draw.
    known = table[table["quoted"] > 0]
    if known.empty:
        raise LabError(
            f"{caller}: no order on the book has a quote, as no reserves of a pool are known just before one. Pass "
            "the balances of the same blocks as the trades."
        )
    shown = all_and_groups(overall, known, names, "quoted")
    everything = shown.iloc[0]
    quoted = (
        f"{everything['quoted']:,} of {format_count(everything['orders'], 'order')}"
    )
    note = f"{quoted} on the book have a quote; value-weighted mean with 95 % interval"
    note += f"\nhollow: may be 0; fees: {pool_fee_bps:g} bps to the pool, {taker_fee_bps:g} bps to the exchange"
    title = f"Orders on the book against the pool's quote{by_names(names, len(known))}"
    estimates = weighted(shown, "opportunity_bps")
    estimates["verdict"] = "undecided"
    estimates.loc[estimates["low"] > 0, "verdict"] = "pool"
    estimates.loc[estimates["high"] < 0, "verdict"] = "book"
    with drawing(trades, ax, title, note, rows=len(shown)) as axes:
        marks = style.draw_rows(axes, estimates, _say)
        axes.set_xlabel(
            "opportunity cost, all in (basis points; right of 0: the pool was cheaper)"
        )
        texts = {"orders": shown["quoted"].map("{:,}".format)}
        style.text_columns(axes, pd.DataFrame(texts))
    return keep(axes, shown, marks)


def _say(row: dict[Any, Any]) -> str:
    """Say what an estimate is, and what it rests on."""
    counts = (
        f"{format_count(row['quoted'], 'order')}, {row['unquoted']:,} without a quote"
    )
    return (
        f"{row['group']}: {format_estimate(row)}\ncheaper: {row['verdict']}\n{counts}"
    )
