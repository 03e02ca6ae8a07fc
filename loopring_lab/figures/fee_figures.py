"""Figures of fees: rates and tiers over time, and totals by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import MaxNLocator

from loopring_lab import fees
from loopring_lab.amounts import to_float
from loopring_lab.amounts.display import MISSING, format_amount, truncate
from loopring_lab.engine.ask import given
from loopring_lab.engine.groups import UTC, keys_of
from loopring_lab.errors import LabError
from loopring_lab.figures import axis, style
from loopring_lab.figures.answers import as_pandas, with_most_fills
from loopring_lab.figures.marks import Figure, Mark, keep
from loopring_lab.figures.overview import count_accounts, overview_of
from loopring_lab.figures.style import (
    COLOURS,
    FILL_TYPES,
    GroupStyle,
    drawing,
    percent_axis,
    stacked_bars,
)
from loopring_lab.figures.words import (
    fill_count,
    format_bps,
    format_count,
    format_number,
    group_labels,
    truncate_digits,
)

DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
# Part of the height of rates that is left below 0 and the lowest, so that a line there is not cut.
BELOW_ZERO = 0.015
# Tiers whose colours can be told apart on viridis, by eye.
MOST_TIERS = 8
# Columns up to which every bar has a label, and up to which each tier has one: at 900 pixels a label of two digits
# needs a bar of some 25.
ALL_LABELLED = 24
SOME_LABELLED = 60
# Percent of the height that a label needs.
LABEL_HEIGHT = 6
# As many rows as fit 420 pixels.
MOST_TOKENS = 12
# Half of a bar, as a part of the height of a token's row.
HALF_BAR = 0.36
# Points that bars and their labels have beside three columns, about.
NARROWEST = 320
# Significant digits of amounts beside bars.
DIGITS = 5
TEXT_COLUMNS = ["fees", "rate in bps", "without fee"]
# Columns that tables of figures do not keep.
DRAWN_ONLY = ["length", "label", "name", *TEXT_COLUMNS]
LIKELY = ", likely"
# How fills of no certain tier are drawn, by their certainty in `fees.tiers`, and those of rare tiers.
UNCERTAIN = {
    "other": {"label": "other tiers", "facecolor": "#B8B8B8", "hatch": "..."},
    "ambiguous": {"label": "ambiguous", "facecolor": "#D9D9D9", "hatch": "///"},
    "none": {"label": "no whole tier", "facecolor": "#9A9A9A", "hatch": "xxx"},
    "unknown": {"label": "not known", "facecolor": "#FFFFFF", "hatch": "\\\\\\"},
}


def fee_rates(
    trades: Any,
    *,
    every: str | None = None,
    tz: str = UTC,
    by: str | Sequence[str] | None = "auto",
    ax: Axes | None = None,
) -> Figure:
    """Draw the effective fee rate over time: fees paid per amount received, in basis points.

    Rates weight each fill by its amount, so each line covers fills whose fee is in one token.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades` or `Archive.scan`.
    every : str, optional
        Length of a period, as for `fees.over_time`; chosen to fit the time covered by default.
    tz : str
        The time zone by whose clock periods begin, as for `fees.over_time`; the axis names it.
    by : str, sequence of str, or None
        One line for each value of these columns, up to the five with the most fills. ``"fee_token"`` draws
        one for each token, ``None`` one of all fills; without it the token with the most fills is drawn, which
        the title names. By default ``"account_id"`` where the trades are of two
        to five accounts, else ``"fill_type"``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Steps at ``bps`` of `fees.over_time`, each as long as its period, with gaps where a period has no
        fills.

    Raises
    ------
    LabError
        No trade has a known time and fee, or an argument is not valid.

    Examples
    --------
    >>> lab.figures.fee_rates(client.trades(account_id=10083, limit=100), every="1mo")
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.fee_rates"
    if by == "auto":
        is_compared = 1 < count_accounts(trades, caller) <= len(DASHES)
        by = "account_id" if is_compared else "fill_type"
    names = list(keys_of(given(trades, caller), by).names)
    overview = overview_of(trades, caller)
    every = every or axis.period_for(overview.days)
    rates = as_pandas(fees.over_time(trades, every, names, tz=tz))
    # The figure draws means, of fills whose time is known.
    table = rates.drop(columns=["median_bps", "both_sides"])
    table = table.dropna(subset=["period", "bps"])
    tokens = "each token by itself"
    if "fee_token" not in names:
        # Amounts of different tokens never meet in one rate.
        token = with_most_fills(table, "fee_token")
        table = table[table["fee_token"] == token]
        tokens = f"fees paid in {token}"
    if table.empty:
        raise LabError(
            f"{caller}: no trade with a known time and fee in any token to draw. Pass other trades."
        )
    table, styles, lines = _top_lines(table, names)
    periods = axis.timeline(table["period"], every, caller)

    known = (table["fills"] - table["unknown"]).sum()
    note = f"fees per amount received, weighted by amount; {fill_count(known, overview.trades)}"
    if lines > len(styles):
        note += f"; the {len(styles)} of {lines:,} lines with most fills"
    title = f"Effective fee rate per {periods.name}, {tokens}"

    steps = periods.located(table)
    steps["rate"] = steps["bps"].astype(float)
    with drawing(trades, ax, title, note, overview.note) as axes:
        for line, group in styles.items():
            of_line = steps[steps["line"] == line].set_index("place")
            of_period = of_line["rate"].reindex(range(len(periods.left)))
            # The last step is as long as its period.
            heights = np.append(of_period, of_period.iloc[-1])
            starts = np.append(periods.left, periods.end)
            look = {**group.line, "marker": None, "drawstyle": "steps-post"}
            axes.plot(starts, heights, **look)
        # Also where all fees are 0 the axis shows basis points. Rebates are below 0.
        top = max(1.0, 1.06 * steps["rate"].max())
        low = min(0.0, 1.06 * steps["rate"].min())
        axes.set_ylim(low - BELOW_ZERO * (top - low), top)
        axes.set_xlim(periods.left[0], periods.end)
        axis.format_dates(axes, periods)
        axes.set_ylabel("fee rate (basis points)")
    return keep(
        axes,
        table.drop(columns="line"),
        _rate_marks(steps, styles, periods),
    )


def fee_tiers(
    trades: Any,
    *,
    every: str | None = None,
    tz: str = UTC,
    tokens: pd.DataFrame | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the distribution of fills over fee tiers in each period.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades` or `Archive.scan`.
    every, tz : str, optional
        As for `fee_rates`.
    tokens : pandas.DataFrame, optional
        From `Client.tokens`, for the decimals of tokens; without it, more fills are of uncertain tier.
    ax : matplotlib.axes.Axes, optional
        As for `fee_rates`.

    Returns
    -------
    matplotlib.figure.Figure
        Stacked ``share`` of `fees.tiers` in percent, from the lowest tier up. Likely tiers are hatched, and
        stand above the exact one of the same colour. Fills of uncertain tier are grey and hatched. Only the
        eight tiers with the most fills are drawn separately.

    Raises
    ------
    LabError
        No trade has a known time, or `every` is not a valid period.

    Examples
    --------
    >>> lab.figures.fee_tiers(client.trades(account_id=10083, limit=100))
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.fee_tiers"
    overview = overview_of(trades, caller)
    every = every or axis.period_for(overview.days)
    answer = fees.tiers(trades, every, tokens=tokens, tz=tz)
    table = as_pandas(answer).dropna(subset=["period"])
    periods = axis.timeline(table["period"], every, caller)

    tiers = table["tier_bps"]
    counts = table.groupby("tier_bps")["fills"].sum()
    top = sorted(int(tier) for tier in counts.nlargest(MOST_TIERS).index)
    # Stacks are named by tier; likely and uncertain tiers, and rare ones, have stacks of their own.
    names = tiers.astype(str)
    names = names.mask(table["certainty"] == "likely", names + LIKELY)
    names = names.where(tiers.isin(top), "other")
    names = names.mask(tiers.isna(), table["certainty"])
    styles = {
        name: look for name, look in _tier_styles(top).items() if name in set(names)
    }

    def say(row: dict[Any, Any]) -> str:
        label = styles[row["name"]]["label"]
        return f"{label}, {row['when']}\n{row['height']:.1f} % of fills"

    parts = table.assign(name=names, height=100 * table["share"])
    bars = periods.located(
        parts.groupby(["period", "name"])[["fills", "height"]].sum().reset_index()
    )
    title = f"Fills by fee tier, per {periods.name}"
    note = fill_count(table["fills"].sum(), overview.trades)
    legend = {"reverse": True, "title": "fee tier", "alignment": "left"}
    with drawing(
        trades,
        ax,
        title,
        note,
        overview.note,
        legend=legend,
    ) as axes:
        marks = stacked_bars(axes, periods.left, periods.width, bars, styles, say)
        _label_tiers(axes, len(periods.left))
        axis.format_dates(axes, periods)
        percent_axis(axes)
    return keep(axes, table, marks)


def fees_by_token(
    trades: Any,
    *,
    token: str | None = None,
    prices: Any = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the fees paid in each token.

    Amounts in different tokens have no common scale, so the bars count fills, with each token's fees beside
    its bar in its own unit. With `token`, the bars show the value of the fees in that token.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades` or `Archive.scan`.
    token : str, optional
        A token to value fees in, by the last price before each fill, as `fees.in_token` does.
    prices : frame of any of these engines, optional
        Prices or trades to take prices from; by default `trades`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure, 900 pixels wide, whose height follows the tokens.

    Returns
    -------
    matplotlib.figure.Figure
        The twelve longest bars, and one for all other tokens. Amounts are truncated to five digits, never
        rounded up; `fees.summary` has all digits.

    Raises
    ------
    LabError
        There are no trades, or none of their fees can be valued in `token`.

    Examples
    --------
    >>> lab.figures.fees_by_token(client.trades(account_id=10083), token="USDT")
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.fees_by_token"
    if token is None and prices is not None:
        raise LabError(
            f"{caller}: prices= has no effect without token=. Give it too, such as token='USDT'."
        )
    by_token = _by_count(trades) if token is None else _by_value(trades, token, prices)
    table = by_token.table
    places = np.arange(len(table))
    with drawing(
        trades,
        ax,
        by_token.title,
        by_token.note,
        overview_of(trades, caller).note,
        rows=len(table),
    ) as axes:
        bars = axes.barh(
            places,
            table["length"],
            height=2 * HALF_BAR,
            color=COLOURS[2],
        )
        axes.bar_label(
            bars,
            list(table["label"]),
            padding=4,
            fontsize=10,
        )
        axes.set_yticks(places, list(table["name"]))
        longest = style.LETTER * (table["label"].map(len).max() + 1)
        # A label is beyond the end of its bar; those of rebates, whose value is below 0, on the left.
        low = min(0.0, table["length"].min())
        top = max(0.0, table["length"].max())
        right = longest / NARROWEST
        left = right if low < 0 else 0.0
        width = (top - low) / (1 - right - left) or 1
        start = low - left * width
        axes.set_xlim(start, start + width)
        if low < 0:
            axes.axvline(0, **style.zero_line())
        axes.set_xlabel(by_token.unit)
        axes.set_ylabel("fee token")
        axes.xaxis.set_major_locator(
            MaxNLocator(
                min(6, int(NARROWEST / longest)),
                integer=token is None,
                min_n_ticks=1,
            )
        )
        style.text_columns(axes, table.filter(TEXT_COLUMNS))
    kept = table.drop(columns=DRAWN_ONLY, errors="ignore")
    return keep(axes, kept, _token_marks(table, token))


def _rate_marks(
    steps: pd.DataFrame,
    styles: dict[int, GroupStyle],
    periods: axis.Timeline,
) -> Iterator[Mark]:
    """Say of each step its rate, the amounts that this is of, and how many fills it stands for."""
    for row in steps.to_dict("records"):
        heading = f"{styles[row['line']].label}, {row['when']}"
        amounts = f"{format_amount(row['fee'])} of {format_amount(row['received'])} {row['fee_token']}"
        text = f"{heading}\n{format_bps(row['rate'])} bps: {amounts}\n{format_count(row['fills'])}"
        left = periods.left[row["place"]]
        right = left + periods.width[row["place"]]
        yield Mark(text, (left, right), (row["rate"], row["rate"]))


def _token_marks(table: pd.DataFrame, token: str | None) -> Iterator[Mark]:
    """Say of each bar how many fills it stands for, and its fees with all digits."""
    for place, row in enumerate(table.to_dict("records")):
        lines = [f"{row['name']}: {format_count(row['fills'])}"]
        if row["fees"] != MISSING:
            lines.append(f"fees {format_amount(row['fee'])} {row['fee_token']}")
        if pd.notna(row.get("bps")):
            lines.append(f"{format_bps(row['bps'])} bps")
        if token and pd.isna(row["fee_value"]):
            lines.append("no price")
        elif token:
            lines.append(f"value {format_number(row['fee_value'])} {token}")
        yield Mark(
            "\n".join(lines),
            (0, float(row["length"])),
            (place - HALF_BAR, place + HALF_BAR),
            "y",
        )


def _top_lines(
    table: pd.DataFrame,
    names: list[str],
) -> tuple[pd.DataFrame, dict[int, GroupStyle], int]:
    """Select the five lines with most fills; return their rows, their styles and the number of all lines."""
    lines: Any = 0
    if names:
        lines = table.groupby(names, observed=True, dropna=False).ngroup()
    table = table.assign(line=lines)
    values = table.drop_duplicates("line").set_index("line")[names]
    top = table.groupby("line")["fills"].sum().nlargest(len(DASHES)).index
    # Fill types keep the colours that they have in all figures.
    by_type = names == ["fill_type"]
    colours = [*COLOURS, style.ink()]
    styles = {}
    order = sorted(top) if by_type else top
    labels = group_labels(tuple(values.loc[line]) or "all fills" for line in order)
    # A number by itself could be anything.
    if names == ["account_id"]:
        labels = [f"account {label}" for label in labels]
    for line, label, colour, dash in zip(order, labels, colours, DASHES, strict=False):
        styles[line] = GroupStyle(label, colour, colour, "o", dash)
        if by_type:
            styles[line] = FILL_TYPES.get(label, styles[line])
    return table[table["line"].isin(top)], styles, len(values)


def _tier_styles(tiers: list[int]) -> dict[str, dict[str, Any]]:
    """Choose colours from dark (low tiers) to light, hatched where likely; the rest is grey and hatched."""
    # Viridis: its order of lightness is seen by everybody, in print too.
    places = np.linspace(0, 1, len(tiers))
    shades = colormaps["viridis"](places)
    styles: dict[str, dict[str, Any]] = {}
    for tier, shade in zip(tiers, shades, strict=True):
        exact = {"label": f"{tier} bps", "facecolor": to_hex(shade)}
        likely = {
            "label": f"{tier} bps{LIKELY}",
            "hatch": "++",
            "edgecolor": style.INKS[1],
        }
        styles[f"{tier}"] = exact
        styles[f"{tier}{LIKELY}"] = exact | likely
    edge = {"edgecolor": style.GREY, "linewidth": 0.5}
    return {name: edge | look for name, look in (styles | UNCERTAIN).items()}


def _label_tiers(axes: Axes, columns: int) -> None:
    """Label the bars of each certain tier: all of them where columns are few, else one in the middle."""
    # These bars are narrower than a number of two digits.
    if columns > SOME_LABELLED:
        return
    for stack in axes.containers:
        tier, _, unit = str(stack.get_label()).partition(" ")
        if unit != "bps":
            continue
        tall = [bar for bar in stack if bar.get_height() >= LABEL_HEIGHT]
        if columns > ALL_LABELLED:
            highest = max(bar.get_height() for bar in stack)
            tall = [bar for bar in tall if bar.get_height() >= highest / 2]
            tall = tall[len(tall) // 2 :][:1]
        for bar in tall:
            colour = bar.get_facecolor()
            # The text on a bar can be read on the bar's own colour, whatever the style.
            text_colour = max(style.INKS, key=partial(style.contrast, colour))
            box = {"facecolor": colour, "edgecolor": "none", "pad": 0.8}
            axes.annotate(
                tier,
                bar.get_center(),
                ha="center",
                va="center",
                fontsize=9,
                color=text_colour,
                bbox=box,
            )


class ByToken(NamedTuple):
    """A bar for each token, of a ``length`` in some unit and with a ``label`` at its end; and what is said of them."""

    table: pd.DataFrame
    unit: str
    title: str
    note: str


def _by_count(trades: Any) -> ByToken:
    """Return bars as long as the number of fills."""
    table = as_pandas(fees.summary(trades))
    shown = _largest(table.assign(length=table["fills"]))
    shown["label"] = shown["length"].map("{:,.0f}".format)
    shown["rate in bps"] = _texts(shown["bps"], "{:,.2f}")
    shown["without fee"] = _texts(shown["zero_fee_share"] * 100, "{:.0f} %")
    count = table["fills"].sum()
    note = fill_count(count, count)
    unknown = int(table["unknown"].sum())
    if unknown:
        note += f", {unknown:,} with an amount that is not known"
    return ByToken(
        shown,
        unit="number of fills",
        title="Fills by the token their fee was paid in",
        note=note,
    )


def _by_value(trades: Any, token: str, prices: Any) -> ByToken:
    """Return bars as long as the value of the fees."""
    table = as_pandas(fees.in_token(trades, token, prices, by=[]))
    values = to_float(table["fee_value"])
    if values.isna().all():
        hint = "Pass trades to take prices from as prices=."
        raise LabError(
            f"lab.figures.fees_by_token: no fee could be valued in {token}. {hint}"
        )
    # A fee without a price still has a bar, of no length.
    lengths = values.fillna(0)
    shown = _largest(table.assign(fee_value=values, length=lengths))
    whole = values.sum()
    # All bars have as many places as DIGITS of their sum; Decimal's `adjusted` is the place of its first digit.
    places = 0
    if whole:
        places = max(0, DIGITS - 1 - Decimal.from_float(float(whole)).adjusted())

    def cut(value: Any) -> str:
        return f"{truncate(Decimal(str(value)), places):,.{places}f}"

    shown["label"] = [
        "no price" if pd.isna(value) else cut(value) for value in shown["fee_value"]
    ]
    title = f"Fees by token, valued in {token}: {cut(whole)} {token} in all"
    # A fee before the first trade of its market has no price.
    counts = table[["fills", "unpriced"]].sum()
    valued = counts["fills"] - counts["unpriced"]
    note = f"{fill_count(valued, counts['fills'])} valued"
    return ByToken(shown, f"value ({token})", title, note)


def _texts(values: pd.Series, form: str) -> list[str]:
    return [MISSING if pd.isna(value) else form.format(value) for value in values]


def _largest(table: pd.DataFrame) -> pd.DataFrame:
    """Sort by length, write out fees, and merge all but the longest bars into one."""
    if table.empty:
        raise LabError(
            "lab.figures.fees_by_token: no trade to draw. Pass other trades."
        )
    table = table.sort_values(
        ["length", "fills"],
        ascending=False,
        kind="stable",
        key=abs,
    )
    table["name"] = group_labels(table["fee_token"])
    is_known = table["fee"].notna() & table["fee_token"].notna()
    cut = table["fee"].fillna(0).map(lambda fee: truncate_digits(fee, DIGITS))
    amounts = cut.astype(object) + " " + table["name"]
    table["fees"] = amounts.where(is_known, MISSING)
    rest = table.iloc[MOST_TOKENS:]
    # A bar for one other token would say less than its own.
    if len(rest) < 2:
        return table
    # Together they have a value if one of them has.
    sums = rest.filter(["fills", "length", "fee_value"]).sum(min_count=1).to_dict()
    others = pd.DataFrame(
        [sums | {"name": f"{len(rest):,} others", "fees": MISSING}],
        dtype=object,
    )
    return pd.concat(
        [table.iloc[:MOST_TOKENS].astype(object), others],
        ignore_index=True,
    )
