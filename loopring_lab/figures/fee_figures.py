"""Figures of fees: rates and tiers over time, and totals by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb
from matplotlib.ticker import MaxNLocator

from loopring_lab import fees
from loopring_lab.amounts import to_float, total
from loopring_lab.amounts.display import MISSING
from loopring_lab.engines.adapters import group_keys
from loopring_lab.errors import LabError
from loopring_lab.figures import time_axis
from loopring_lab.figures.formatting import cut, down, named, of_all
from loopring_lab.figures.style import (
    BAR,
    COLOURS,
    FILL_TYPES,
    GREY,
    QUIET,
    Look,
    bars,
    in_percent,
    in_words,
    local,
    picture,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MARKERS, DASHES = ("o", "s", "^", "D", "v"), ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
MOST_TIERS = 8
FEW, MANY, LEAST = 24, 60, 6
"""Columns of which all are labelled, of which any; percent that hold a label."""
LUMA = (0.299, 0.587, 0.114)
UNSURE = {
    "other": ("other tiers", "#B8B8B8", "..."),
    "ambiguous": ("ambiguous", "#D9D9D9", "///"),
    "none": ("no whole tier", "#9A9A9A", "xxx"),
    "unknown": ("not known", "#FFFFFF", "\\\\\\"),
}


def fee_rates(
    trades: Any,
    *,
    every: str | None = None,
    by: str | Sequence[str] | None = "fill_type",
    fee_token: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the effective fee rate over time: fees paid per amount received, in basis points.

    A rate weighs each fill by its amount, so it is one of fills whose fee is in the same token.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every : str, optional
        Length of a period, as for `fees.over_time`; by default one that suits the time covered.
    by : str, sequence of str, or None
        A line for each value of these columns, at most the five with the most fills. ``"fee_token"`` draws
        a line for each token.
    fee_token : str, optional
        The fee token to draw; by default the one with the most fills. The title says which.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Lines through ``bps`` of `fees.over_time`, in the middle of each period, broken where a period has no
        fills.

    Raises
    ------
    LabError
        There is nothing to draw, or an argument is not usable.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.figures.fee_rates(trades).axes[0].get_ylabel()
    'fee rate (basis points)'
    """
    caller = "fee_rates"
    names = group_keys(by, caller)
    every = every or time_axis.chosen(trades, caller)
    table = local(fees.over_time(trades, every, names))
    total, table = table["fills"].sum(), table.dropna(subset=["period", "bps"])
    if "fee_token" not in names or fee_token:
        counts = table.groupby("fee_token", observed=True)["fills"].sum()
        fee_token = fee_token or (str(counts.idxmax()) if len(counts) else None)
        table = table[table["fee_token"] == fee_token]
    if table.empty:
        paid, hint = fee_token or "any token", "Ask for other trades, or another fee_token=."
        raise LabError(f"{caller}: no trade with a known time and fee in {paid} to draw. {hint}")
    table, looks, lines = _lines(table, names)
    periods = time_axis.timeline(table["period"], every, caller)
    rates = periods.spread(table, "line", "bps")
    tokens = f"fees paid in {fee_token}" if fee_token else "each token by itself"
    drawn = of_all((table["fills"] - table["unknown"]).sum(), total)
    note = f"fees per amount received, weighted by amount; {drawn}"
    note += f"; the {len(looks)} of {lines} lines with most fills" if lines > len(looks) else ""
    with picture(trades, ax, f"Effective fee rate per {periods.name}, {tokens}", note) as axes:
        for line, look in looks.items():
            axes.plot(periods.left + periods.width / 2, rates[line], clip_on=False, **look.line)
        axes.set_ylim(0, max(1.0, 1.06 * float(np.nanmax(rates.to_numpy()))))
        axes.set_xlim(periods.left[0], periods.left[-1] + periods.width[-1])
        time_axis.dates(axes, periods)
        axes.set_ylabel("fee rate (basis points)")
    return cast("Figure", axes.figure)


def fee_tiers(trades: Any, *, every: str | None = None, ax: Axes | None = None) -> Figure:
    """Draw how fills spread over whole-basis-point fee tiers in each period.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every : str, optional
        Length of a period, as for `fees.tiers`; by default one that suits the time covered.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Stacked ``share`` of `fees.tiers` in percent, from the lowest tier up, exact and likely ones
        together. Fills whose tier is not sure are grey and hatched. The eight tiers with the most fills are
        told apart.

    Raises
    ------
    LabError
        There is nothing to draw, or `every` is no period.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> [text.get_text() for text in lab.figures.fee_tiers(trades).axes[0].get_legend().get_texts()]
    ['20 bps', '8 bps', '0 bps']
    """
    caller = "fee_tiers"
    every = every or time_axis.chosen(trades, caller)
    table = local(fees.tiers(trades, every))
    total, table = table["fills"].sum(), table.dropna(subset=["period"])
    counts = table.groupby("tier_bps")["fills"].sum()
    kept = sorted(int(one) for one in counts.nlargest(MOST_TIERS).index)
    pairs = zip(table["tier_bps"], table["certainty"], strict=True)
    table = table.assign(part=[_part(tier, certainty, kept) for tier, certainty in pairs])
    periods = time_axis.timeline(table["period"], every, caller)
    shares = periods.spread(table, "part", "share") * 100
    looks = _tier_looks(kept)
    title, note = f"Fills by fee tier, per {periods.name}", of_all(table["fills"].sum(), total)
    legend = {"reverse": True, "title": "fee tier", "alignment": "left"}
    with picture(trades, ax, title, note, legend=legend) as axes:
        stack = [(look, shares[part]) for part, look in looks.items() if part in shares]
        bars(axes, periods.left, periods.width, stack)
        _label(axes, len(periods.left))
        time_axis.dates(axes, periods)
        in_percent(axes, "fills")
    return cast("Figure", axes.figure)


def _lines(table: pd.DataFrame, names: list[str]) -> tuple[pd.DataFrame, dict[int, Look], int]:
    """Number the lines, keep the rows of the five with most fills, choose their looks, and count all."""
    groups = table.groupby(names, observed=True, dropna=False) if names else None
    table = table.assign(line=0 if groups is None else groups.ngroup())
    most = table.groupby("line")["fills"].sum().nlargest(len(COLOURS)).index
    first = table.drop_duplicates("line").set_index("line")[names]
    styles = iter(zip(COLOURS, MARKERS, DASHES, strict=True))
    looks = {}
    for line in sorted(most) if names == ["fill_type"] else most:
        values = tuple(first.loc[line]) or ("all fills",)
        colour, marker, dash = next(styles)
        known = FILL_TYPES.get(named(values)) if names == ["fill_type"] else None
        looks[line] = known or Look(named(values), colour, None, marker, dash)
    return table[table["line"].isin(most)], looks, table["line"].nunique()


def _part(tier: Any, certainty: str, kept: list[int]) -> str:
    if pd.isna(tier):
        return certainty
    return str(int(tier)) if int(tier) in kept else "other"


def _tier_looks(kept: list[int]) -> dict[str, dict[str, Any]]:
    """Choose colours from dark (low tiers) to light, with an edge; what is not sure is grey and hatched."""
    shades = colormaps["viridis"](np.linspace(0, 1, len(kept)))
    looks = {str(one): _shade(f"{one} bps", to_hex(shade)) for one, shade in zip(kept, shades, strict=True)}
    return looks | {name: _shade(*look) for name, look in UNSURE.items()}


def _shade(label: str, colour: str, hatch: str | None = None) -> dict[str, Any]:
    look = {"label": label, "facecolor": colour, "edgecolor": GREY if hatch else "white", "linewidth": 0.5}
    return look | ({"hatch": hatch} if hatch else {})


def _label(axes: Axes, columns: int) -> None:
    """Write each sure tier into its bars: into all where columns are few, else into one in the middle."""
    for stack in axes.containers:
        tier, unit = str(stack.get_label()).partition(" ")[::2]
        least = LEAST if columns <= FEW else max(LEAST, max(bar.get_height() for bar in stack) / 2)
        tall = [bar for bar in stack if bar.get_height() >= least]
        if columns > FEW:
            tall = tall[len(tall) // 2 :][:1]
        for bar in tall if unit == "bps" and columns <= MANY else []:
            middle = bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2
            ink = "white" if np.dot(to_rgb(bar.get_facecolor()), LUMA) < 0.45 else "black"
            box = {"facecolor": bar.get_facecolor(), "edgecolor": "none", "pad": 0.8}
            axes.annotate(tier, middle, ha="center", va="center", fontsize=9, color=ink, bbox=box)


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
    caller = "fees_by_token"
    if token is None and prices is not None:
        raise LabError(f"{caller}: prices= value fees in a token. Give token= as well, such as token='USDT'.")
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
    shown["rate in bps"] = [MISSING if pd.isna(rate) else f"{rate:.2f}" for rate in shown["bps"]]
    zero = shown["zero_fee_share"] * 100
    shown["without fee"] = [MISSING if pd.isna(share) else f"{share:.0f} %" for share in zero]
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
        f"{cut(fee, DIGITS)} {name}" if sure else MISSING
        for fee, name, sure in zip(table["fee"], names, known, strict=True)
    ]
    table = table.assign(name=names, fee=fees_in_words)
    rest = table.iloc[MOST_TOKENS:]
    if len(rest) < 2:
        return table.copy()
    sums: dict[str, Any] = {name: rest[name].sum() for name in ("fills", "length")}
    if "fee_value" in rest:
        sums["fee_value"] = total(rest["fee_value"].dropna())
    last = pd.DataFrame([sums | {"name": f"{len(rest)} others", "fee": MISSING}], dtype=object)
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
