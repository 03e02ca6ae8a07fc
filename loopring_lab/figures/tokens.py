"""What was charged, by the token it was paid in: each in its own unit, or all valued in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from loopring_lab import fees
from loopring_lab.amounts import to_float, total
from loopring_lab.amounts.readable import NOTHING
from loopring_lab.errors import LabError
from loopring_lab.figures.canvas import BAR, COLOURS, QUIET, in_words, local, picture
from loopring_lab.figures.words import cut, down, named, of_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["fees_by_token"]

LEAST_ROWS, MOST_TOKENS, DIGITS = 5, 12, 5
COLUMNS = ("fee", "rate in bps", "without fee")
GAP, LETTER = 12, 6.3
"""Points: between columns, and about what a letter takes."""


def fees_by_token(
    trades: Any, *, token: str | None = None, prices: Any = None, ax: Axes | None = None
) -> Figure:
    """Draw in which tokens fees were paid.

    Amounts in different tokens have no common scale. So the bars count fills, and each token's fee stands
    beside its bar in its own unit; or, with `token`, the bars are the fees' value in that one.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`; with `token` pandas, pyarrow or Polars.
    token : str, optional
        A token to value fees in, by the last trade before each fill, as `fees.in_token` does.
    prices : frame of pandas, pyarrow or Polars, optional
        Trades to take prices from; by default `trades`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        The twelve longest bars, and one for all other tokens. Amounts in words are cut after five digits,
        never rounded up; `fees.summary` has them all.

    Raises
    ------
    LabError
        There is nothing to draw, or an argument is not usable.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.fees_by_token(trades).axes[0].get_xlabel()
    'number of fills'
    """
    what = "fees_by_token"
    if token is None and prices is not None:
        raise LabError(f"{what}: prices= value fees in a token. Give token= as well, such as token='USDT'.")
    table, axis, title, note = _counted(trades) if token is None else _valued(trades, token, prices)
    places = np.arange(len(table))
    with picture(trades, ax, title, note) as axes:
        drawn = axes.barh(places, table["length"], height=BAR - 0.2, color=COLOURS[2])
        axes.bar_label(drawn, list(table["label"]), padding=4, fontsize=10)
        axes.set_yticks(places, list(table["name"]))
        axes.set_ylim(max(len(table), LEAST_ROWS) - 0.4, -0.6)
        axes.set_xlim(0, 1.15 * table["length"].max() or 1)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(axis)
        axes.set_ylabel("fee token")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=token is None, min_n_ticks=1))
        in_words(axes.xaxis)
        _columns(axes, table[[name for name in COLUMNS if name in table]])
    return cast("Figure", axes.figure)


def _counted(trades: Any) -> tuple[pd.DataFrame, str, str, str]:
    table = local(fees.summary(trades))
    shown, unknown = _longest(table.assign(length=table["fills"])), int(table["unknown"].sum())
    shown["label"] = [f"{count:,.0f}" for count in shown["length"]]
    shown["rate in bps"] = [NOTHING if pd.isna(rate) else f"{rate:.2f}" for rate in shown["bps"]]
    zero = shown["zero_fee_share"] * 100
    shown["without fee"] = [NOTHING if pd.isna(share) else f"{share:.0f} %" for share in zero]
    note = of_all(table["fills"].sum(), table["fills"].sum())
    note += f", {unknown:,} with an amount that is not known" if unknown else ""
    return shown, "number of fills", "Fees by the token they were paid in", note


def _valued(trades: Any, token: str, prices: Any) -> tuple[pd.DataFrame, str, str, str]:
    table = local(fees.in_token(trades, token, prices, by=[]))
    if table["fee_value"].isna().all():
        hint = "Give trades to take prices from with prices=."
        raise LabError(f"fees_by_token: no fee could be valued in {token}. {hint}")
    shown = _longest(table.assign(length=to_float(table["fee_value"]).fillna(0)))
    whole = total(table["fee_value"].dropna())
    places = max(0, DIGITS - 1 - whole.adjusted()) if whole else 0
    values = shown["fee_value"]
    shown["label"] = ["no price" if pd.isna(value) else f"{down(value, places):,f}" for value in values]
    count, lost = int(table["fills"].sum()), int(table["unpriced"].sum())
    title = f"Fees by token, valued in {token}: {down(whole, places):,f} {token} in all"
    title += f", {lost:,} fill{'s' * (lost > 1)} without a price" if lost else ""
    return shown, f"value ({token})", title, f"{of_all(count - lost, count)} valued"


def _longest(table: pd.DataFrame) -> pd.DataFrame:
    """Sort by length, name what each fee is, and put all but the longest together."""
    if table.empty:
        raise LabError("fees_by_token: no trade to draw. Ask for other trades.")
    table = table.sort_values(["length", "fills"], ascending=False, kind="stable")
    known = table["fee"].notna() & table["fee_token"].notna()
    names = [named(token) for token in table["fee_token"]]
    fees_in_words = [
        f"{cut(fee, DIGITS)} {name}" if sure else NOTHING
        for fee, name, sure in zip(table["fee"], names, known, strict=True)
    ]
    table = table.assign(name=names, fee=fees_in_words)
    rest = table.iloc[MOST_TOKENS:]
    if len(rest) < 2:
        return table.copy()
    sums: dict[str, Any] = {name: rest[name].sum() for name in ("fills", "length")}
    if "fee_value" in rest:
        sums["fee_value"] = total(rest["fee_value"].dropna())
    last = pd.DataFrame([sums | {"name": f"{len(rest)} others", "fee": NOTHING}], dtype=object)
    return pd.concat([table.iloc[:MOST_TOKENS].astype(object), last], ignore_index=True)


def _columns(axes: Axes, texts: pd.DataFrame) -> None:
    """Write columns of text to the right of the bars, as a table without lines."""
    right = 0.0
    for heading, column in texts.items():
        right += GAP + LETTER * max(len(text) for text in [str(heading), *column])
        look: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": 10}
        axes.annotate(str(heading), (1, 1), (right, 4), "axes fraction", va="bottom", color=QUIET, **look)
        for place, text in enumerate(column):
            axes.annotate(text, (1, place), (right, 0), axes.get_yaxis_transform(), va="center", **look)
