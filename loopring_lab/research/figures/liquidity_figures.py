"""The figure of what a pool's liquidity earned: fees and losses to rebalancing, added up over time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from loopring_lab import research
from loopring_lab.amounts import to_float
from loopring_lab.amounts.display import format_amount
from loopring_lab.arguments import parse_account_id
from loopring_lab.engine.groups import UTC
from loopring_lab.errors import LabError
from loopring_lab.figures import axis
from loopring_lab.figures.answers import as_pandas, with_most_fills
from loopring_lab.figures.marks import Figure, Mark, keep
from loopring_lab.figures.style import COLOURS, GREY, drawing, ink, zero_line
from loopring_lab.figures.words import format_count
from loopring_lab.fills.prices import OWN_TRADES
from loopring_lab.research.earnings import (
    POSITION,
    one,
    period_name,
    rate_in_words,
    totals,
)


class Part(NamedTuple):
    """A line of the figure; without a width of its own it has the style's."""

    label: str
    colour: str
    dash: Any
    width: float | None = None


# The parts of the net return, each by its column and with that column's sign: a loss below 0 is a gain.
PARTS = {
    "fees": Part("fees", COLOURS[2], "--"),
    "lost_to_arbitrage": Part("lost to arbitrage", COLOURS[1], "-."),
    "lost_to_users": Part("lost to users", COLOURS[0], (0, (1, 1))),
    "lost_to_unknown": Part("lost to unknown flow", GREY, (0, (5, 1))),
}
NET_WIDTH = 2.4


def liquidity(
    trades: Any,
    balances: Any = None,
    prices: Any = None,
    *,
    pool_account: int | None = None,
    every: str = "1d",
    tz: str = UTC,
    pool_fee_bps: int = 20,
    ax: Axes | None = None,
) -> Figure:
    """Draw what a pool's liquidity earned, added up over time: fees, losses to rebalancing, and both together.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        With the rows of pools, as for `research.liquidity`.
    balances, prices : optional
        As for `research.liquidity`. Without prices from outside no loss is known.
    pool_account : int, optional
        Account id of the pool; by default the one with the most fills.
    every, tz, pool_fee_bps : optional
        As for `research.liquidity`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        A line for each part of ``net`` of `research.liquidity` and a thick one for ``net``, fees less losses, in
        quote units: sums of all periods so far, with the signs of the table. The note gives the mean of a period with
        its 95 % interval, in basis points of the position, or, where that is not known, of what the pool traded.

    Raises
    ------
    LabError
        In no period all prices of the pool are known, or an argument is not valid.

    Examples
    --------
    >>> pool = client.trades(account_id=1, limit=500)
    >>> lab.research.figures.liquidity(pool, prices=client.outside_prices(pool))
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.research.figures.liquidity"
    answer = as_pandas(
        research.liquidity(
            trades, balances, prices, every=every, tz=tz, pool_fee_bps=pool_fee_bps
        )
    )
    table = _of_pool(answer, pool_account, caller)
    known = table[table["net"].notna()].reset_index(drop=True)
    if known.empty:
        raise LabError(
            f"{caller}: what this pool lost is not known in any period. Pass prices from outside as prices=, from "
            "before its first fill on."
        )
    pool = known.iloc[0]
    title = (
        f"What the liquidity of {pool['market']} earned (account {pool['account_id']})"
    )
    with drawing(trades, ax, title, _note(table, every)) as axes:
        periods = axis.timeline(known["period"], every, caller)
        located = periods.located(known)
        ends = (periods.left + periods.width)[located["place"]]
        # Sums begin with 0 when the first period does.
        along = np.concatenate([periods.left[:1], ends])
        axes.axhline(0, **zero_line())
        marks: list[Mark] = []
        for name, part in _lines(known).items():
            steps = known[name]
            sums = steps.cumsum()
            levels = np.append(0.0, to_float(sums))
            axes.plot(
                along,
                levels,
                label=part.label,
                color=part.colour,
                linestyle=part.dash,
                linewidth=part.width,
            )
            rows = located.assign(step=steps, sum=sums)
            marks += _marks(rows, along, levels, part.label, str(pool["quote"]))
        axis.format_dates(axes, periods)
        axes.set_ylabel(f"sum so far ({pool['quote']})")
    return keep(axes, table, marks)


def _of_pool(table: pd.DataFrame, account: int | None, caller: str) -> pd.DataFrame:
    """Select the rows of one pool."""
    if account is None:
        account = with_most_fills(table, "account_id")
    if account is None:
        raise LabError(
            f"{caller}: no fills of a pool. Pass a pool's trades, such as client.trades(1)."
        )
    account = parse_account_id(account, "pool_account")
    own = table[table["account_id"] == account]
    if own.empty:
        listed = ", ".join(map(str, sorted(table["account_id"].unique())))
        raise LabError(
            f"{caller}: account {account} has no fills as a pool in these trades. They have those of {listed}."
        )
    return own


def _lines(known: pd.DataFrame) -> dict[str, Part]:
    """Return the lines of a figure; a class of flow that never came has none."""
    lines = {name: part for name, part in PARTS.items() if (known[name] != 0).any()}
    return lines | {"net": Part("net (fees less losses)", ink(), "-", NET_WIDTH)}


def _note(table: pd.DataFrame, every: str) -> str:
    """Say what the figure rests on, and what a period brought on average."""
    (row,) = totals(table).to_dict("records")
    period = period_name(every)
    note = f"{format_count(row['fills'])}, fees {row['fee_source']}, {row['reference']}"
    missing = row["periods"] - row["known"]
    if missing:
        note += f"; {missing:,} of {format_count(row['periods'], period)} left out, with prices unknown"
    rate = rate_in_words(row, period)
    if row["of"] == POSITION:
        note += f"\nmean net of {one(period)}: {rate} of the position"
    else:
        note += f"\nnet: {rate} of what the pool traded"
    if row["reference"] == OWN_TRADES:
        note += "\nown trades as reference hide much of the loss"
    return note


def _marks(
    steps: pd.DataFrame,
    along: np.ndarray,
    levels: np.ndarray,
    label: str,
    quote: str,
) -> Iterator[Mark]:
    """Give a mark to each step of a line, from the end of the one before."""
    rows = steps.to_dict("records")
    for row, x, y in zip(rows, pairwise(along), pairwise(levels), strict=True):
        heading = f"{label}, {row['when']}, {format_count(row['fills'])}"
        so_far = f"so far {format_amount(row['sum'])} {quote}"
        text = f"{heading}\n{format_amount(row['step'])} {quote}, {so_far}"
        yield Mark(text, x, y)
