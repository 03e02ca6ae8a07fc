"""The figure of a pool's balance, as published and as recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import date2num

from loopring_lab.amounts import to_float
from loopring_lab.amounts.display import format_amount
from loopring_lab.errors import LabError
from loopring_lab.figures import axis
from loopring_lab.figures.marks import Figure, Mark, keep
from loopring_lab.figures.style import COLOURS, drawing, format_count, plain_numbers

NEEDED = {"created_at", "token", "published_units", "recomputed_units"}


def pool_balance(balances: pd.DataFrame, *, token: str | None = None, ax: Axes | None = None) -> Figure:
    """Draw a pool's balance of one token: recomputed from every change, and as published.

    Parameters
    ----------
    balances : pandas.DataFrame
        From `rollup.Blocks.balances` with ``tokens=``.
    token : str, optional
        The token; by default the one published most often, and of several the first.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        A line through the balance after each change, and a mark for each one published. The vertical axis
        does not begin at 0. The horizontal axis is time, or the place in the block if there is one block.

    Raises
    ------
    LabError
        No balance of the token was published, or the frame is another one.

    Examples
    --------
    >>> folder = getfixture("tmp_path")
    >>> store = lab.rollup.Store(folder / "blocks")
    >>> report = store.sync(to_block=11_153_000)
    Embedded chain: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.pool_balance(store.blocks().balances(1, store.tokens()))
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.pool_balance"
    missing = NEEDED - set(getattr(balances, "columns", ()))
    if missing:
        raise LabError(
            f"{caller}: expected balances in units, got {type(balances).__name__} without "
            f"{', '.join(sorted(missing))}. Make them with blocks.balances(pool, tokens)."
        )
    published = balances.dropna(subset="published")
    if token is None:
        token = None if published.empty else str(published["token"].value_counts(sort=True).index[0])
    published = published[published["token"] == token]
    if published.empty:
        raise LabError(f"{caller}: no balance of {token or 'any token'} was published. Take a pool's balances.")
    levels = balances["recomputed_units"].fillna(balances["published_units"])
    line = balances.assign(level=levels)[balances["token"] == token].dropna(subset="level")
    account = f"account {balances.attrs['account_id']}" if "account_id" in balances.attrs else "the pool"
    title, note = f"Balance of {account} in {token}", _note(line, published)
    with drawing(balances, ax, title, note) as axes:
        is_one_block = line["block"].nunique() == 1
        options: dict[str, Any] = {"color": COLOURS[0], "drawstyle": "steps-post", "label": "recomputed"}
        axes.plot(_along(line, is_one_block), to_float(line["level"]).to_numpy(), **options)
        options = {"color": COLOURS[1], "linestyle": "none", "marker": "o", "markeredgecolor": "white"}
        stated = to_float(published["published_units"]).to_numpy()
        axes.plot(_along(published, is_one_block), stated, label="published", markersize=5.5, **options)
        if is_one_block:
            axes.set_xlabel("transaction in the block")
            plain_numbers(axes.xaxis)
            plain_numbers(axes.yaxis)
        else:
            times = line["created_at"]
            every = axis.period_for((times.max() - times.min()) / pd.Timedelta(days=1))
            axis.format_dates(axes, axis.timeline(times, every, caller))
        axes.set_ylabel(f"balance ({token})")
    return keep(axes, line.drop(columns="level"), _marks(line, is_one_block, token))


def _note(line: pd.DataFrame, published: pd.DataFrame) -> str:
    known = published.dropna(subset="recomputed")
    same = int((known["published"] == known["recomputed"]).sum())
    equal = f"{same:,} of the {len(known):,} that can be recomputed are equal"
    if len(known) == 1:
        equal = f"the one that can be recomputed {'is equal' if same else 'differs'}"
    changes = format_count(line["change"].notna().sum(), "change")
    return f"{changes}; {format_count(len(published), 'balance')} published, and {equal}"


def _along(rows: pd.DataFrame, is_one_block: bool) -> np.ndarray:
    """Return where rows are on the horizontal axis."""
    if is_one_block:
        return np.asarray(rows["index_in_block"], np.float64)
    return np.asarray(rows["created_at"].dt.tz_convert(None), "datetime64[ms]")


def _marks(line: pd.DataFrame, is_one_block: bool, token: str | None) -> Iterator[Mark]:
    """Give a mark to each step, and to each balance published at its beginning."""
    along = _along(line, is_one_block)
    places = along if is_one_block else date2num(along)  # type: ignore[no-untyped-call]
    ends, levels = [*places[1:], places[-1]], to_float(line["level"])
    for row, start, end, level in zip(line.to_dict("records"), places, ends, levels, strict=True):
        text = (
            f"block {row['block']}, transaction {row['index_in_block']}, {row['created_at']:%Y-%m-%d %H:%M} "
            f"UTC\nrecomputed {format_amount(row['level'])} {token}"
        )
        yield Mark(text, (start, end), (level, level))
        if not pd.isna(row["published_units"]):
            stated = float(row["published_units"])
            text += f"\npublished {format_amount(row['published_units'])} {token}"
            yield Mark(text, (start, start), (stated, stated))
