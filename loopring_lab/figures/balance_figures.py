"""The figure of a pool's balance, as published and as recomputed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import date2num

from loopring_lab.amounts import to_float
from loopring_lab.amounts.display import format_amount
from loopring_lab.engine.groups import UTC
from loopring_lab.errors import LabError
from loopring_lab.figures import axis
from loopring_lab.figures.answers import check_token
from loopring_lab.figures.marks import Figure, Mark, keep
from loopring_lab.figures.style import COLOURS, drawing
from loopring_lab.figures.words import format_count

# Columns that `pool_balance` reads. Without tokens=, balances are in smallest units.
NEEDED = {
    "block",
    "index_in_block",
    "created_at",
    "token",
    "change",
    "published_units",
    "recomputed_units",
}
# In points, chosen by eye: half of a usual line, which covers changes within an hour.
LINE_WIDTH = 1.0


def pool_balance(
    balances: pd.DataFrame,
    *,
    token: str | None = None,
    ax: Axes | None = None,
) -> Figure:
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
    >>> sample = lab.connect(blocks="sample").store
    Sample blocks: ...
    >>> lab.figures.pool_balance(sample.blocks().balances(108, sample.tokens()))
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.pool_balance"
    check_token("token", token, caller)
    missing = NEEDED - set(getattr(balances, "columns", ()))
    if missing:
        raise LabError(
            f"{caller}: expected balances in units, got {type(balances).__name__} without "
            f"{', '.join(sorted(missing))}. Make them with blocks.balances(pool, tokens)."
        )
    stated = balances.dropna(subset="published_units")
    if token is None and len(stated):
        token = str(stated["token"].value_counts().index[0])
    of_token = balances[balances["token"] == token]
    # Before the first published balance nothing can be recomputed; from then on both are known.
    levels = of_token["recomputed_units"].fillna(of_token["published_units"])
    times = of_token["created_at"].dt.tz_convert(UTC)
    line = of_token.assign(level=levels, created_at=times).dropna(subset="level")
    is_stated = line["published_units"].notna()
    if not is_stated.any():
        raise LabError(
            f"{caller}: no balance of {token or 'any token'} was published. Take a pool's balances."
        )
    # All transactions of a block have its time.
    is_one_block = line["block"].nunique() == 1
    if is_one_block:
        along = line["index_in_block"].to_numpy(np.float64)
    else:
        # In days since 1970, as matplotlib has times.
        along = np.asarray(date2num(line["created_at"].dt.tz_convert(None)))  # type: ignore[no-untyped-call]
    account = balances.attrs.get("account_id")
    whose = "the pool" if account is None else f"account {account}"
    with drawing(
        balances,
        ax,
        f"Balance of {whose} in {token}",
        _note(line, line[is_stated]),
    ) as axes:
        amounts = to_float(line)
        axes.plot(
            along,
            amounts["level"],
            color=COLOURS[0],
            drawstyle="steps-post",
            label="recomputed",
            # Thin and above the marks, so that one sees whether it goes through them.
            linewidth=LINE_WIDTH,
            zorder=3,
        )
        axes.plot(
            along[is_stated],
            amounts.loc[is_stated, "published_units"],
            color=COLOURS[1],
            label="published",
            linestyle="none",
            marker="o",
            markersize=6.5,
            markeredgewidth=0,
        )
        if is_one_block:
            axes.set_xlabel("transaction in the block")
            axes.locator_params("x", integer=True)
        else:
            every = axis.period_for(along.max() - along.min())
            periods = axis.timeline(line["created_at"], every, caller)
            axis.format_dates(axes, periods)
        axes.set_ylabel(f"balance ({token})")
    return keep(
        axes,
        line.drop(columns="level"),
        _marks(line, along, token),
    )


def _note(line: pd.DataFrame, published: pd.DataFrame) -> str:
    """Say how many balances were published, and how many of them equal the recomputed ones."""
    # The first balance of a token has nothing to be compared with.
    known = published.dropna(subset="recomputed_units")
    same = int((known["published_units"] == known["recomputed_units"]).sum())
    equal = f"{same:,} of the {len(known):,} that can be recomputed are equal"
    if len(known) == 1:
        verdict = "is equal" if same else "differs"
        equal = f"the one that can be recomputed {verdict}"
    if known.empty:
        equal = "none can be recomputed"
    changes = format_count(line["change"].count(), "change")
    return (
        f"{changes}; {format_count(len(published), 'balance')} published, and {equal}"
    )


def _marks(
    line: pd.DataFrame,
    along: np.ndarray,
    token: str | None,
) -> Iterator[Mark]:
    """Give a mark to each step, and to each balance published at its beginning."""
    # A step is as long as the balance stays; the last one has no end.
    ends = np.append(along[1:], along[-1])
    for row, start, end in zip(
        line.to_dict("records"),
        along,
        ends,
        strict=True,
    ):
        level = float(row["level"])
        place = f"block {row['block']}, transaction {row['index_in_block']}"
        text = f"{place}, {row['created_at']:%Y-%m-%d %H:%M} UTC\nrecomputed {format_amount(row['level'])} {token}"
        yield Mark(text, (start, end), (level, level))
        if pd.notna(row["published_units"]):
            stated = float(row["published_units"])
            text += f"\npublished {format_amount(row['published_units'])} {token}"
            yield Mark(text, (start, start), (stated, stated))
