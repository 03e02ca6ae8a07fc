"""Figures of prices and costs: estimates with their intervals, and how many fills each rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from loopring_lab import fills
from loopring_lab.amounts.display import format_amount
from loopring_lab.engine.ask import given
from loopring_lab.engine.clusters import LEAST_CLUSTERS
from loopring_lab.engine.groups import Keys, keys_of, literal, several
from loopring_lab.errors import LabError
from loopring_lab.figures import axis, style
from loopring_lab.figures.answers import (
    ESTIMATE,
    all_and_groups,
    as_pandas,
    by_names,
    interval_of,
    measured,
    pulled,
    weighted,
)
from loopring_lab.figures.marks import Figure, Mark, bar_marks, keep
from loopring_lab.figures.overview import overview_of
from loopring_lab.figures.style import (
    COUNT_HEIGHT,
    FILL_TYPES,
    GroupStyle,
    drawing,
    zero_line,
)
from loopring_lab.figures.words import (
    fill_count,
    format_bps,
    format_count,
    format_estimate,
    format_number,
)
from loopring_lab.fills.markouts import HORIZONS
from loopring_lab.fills.prices import cost_of
from loopring_lab.fills.sentences import without_cost
from loopring_lab.fills.sizes import size_profile

# Widths of bins, times a power of ten.
STEPS = (1, 2, 2.5, 5, 10)
# Bins for few fills, and for many: more would be narrower than their edges are apart.
FEWEST_BINS = 10
MOST_BINS = 40
# Interquartile ranges beyond which values are not drawn: Tukey's outer fence (Exploratory Data Analysis, 1977).
FENCE = 3
# Parts by size, and how many fills with a cost each of them should have, as two venues share them.
MOST_PARTS = 10
FEWEST_PARTS = 3
FILLS_PER_PART = 40
INTERVAL = "mean by value, 95 % interval (widest of accounts, days, weeks)"
HOLLOW = f"hollow: no interval, under {LEAST_CLUSTERS} accounts"
ALONE = f"line alone: under {LEAST_CLUSTERS} accounts"
COMBINE = "Combine the trades of several accounts, with lab.fills.with_roles where roles are not known."
# How far the line at a mean reaches, in parts of the highest bar: its text stands above that.
MEAN_HEIGHT = 1.15
# Columns between points of different groups.
APART = 0.1


def price_gaps(
    trades: Any,
    *,
    tolerance: Any = "1h",
    prices: Any = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw how much worse each fill was priced than the last one of the other type.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`; combining several accounts gives more pairs.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the other fill, as for `fills.price_gap`; None for any age.
    prices : frame of any of these engines, optional
        Fills among which the other one is looked for; by default `trades`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        Histograms of ``worse_bps`` of `fills.price_gap`, one upwards and one downwards, each in percent of
        its matched fills, with the value-weighted mean and its 95 % interval, which two to seven
        accounts do not have. Outliers beyond three interquartile ranges are not drawn; the note under the title
        counts them.

    Raises
    ------
    LabError
        No fill has an earlier one of the other type, or an argument is not valid.

    Examples
    --------
    >>> lab.figures.price_gaps(client.trades(account_id=10083), tolerance="12h")
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.price_gaps"
    table = as_pandas(fills.price_gap(trades, tolerance, prices=prices))
    averages = as_pandas(fills.price_gap(trades, tolerance, [], prices=prices))
    means = weighted(averages, "worse_bps").set_index("fill_type").to_dict("index")
    drawn = table.dropna(subset="worse_bps")
    if drawn.empty:
        hint = "Combine the trades of several accounts"
        if tolerance is not None:
            hint += ", or allow more, such as tolerance='1d'"
        raise LabError(
            f"{caller}: no fill has an earlier one of the other type {_age_limit(tolerance)}. {hint}."
        )
    by_type = drawn.groupby("fill_type", observed=True)["worse_bps"]
    matched = {str(name): worse.to_numpy(np.float64) for name, worse in by_type}
    edges = _edges(matched.values())

    note = f"{fill_count(len(drawn), len(table))} of known type matched"
    # Outliers would make all other bins too narrow to see.
    outside = len(drawn) - int(drawn["worse_bps"].between(edges[0], edges[-1]).sum())
    if outside:
        note += f"; {outside:,} outside this range"
    note += f"\nline and band: {INTERVAL}"
    if any(pd.isna(means[name]["low"]) for name in matched):
        note += f"; {ALONE}"
    title = f"Price against the other fill type's last fill in {_frame(prices)}, {_age_limit(tolerance)}"
    marks: list[Mark] = []
    with drawing(
        trades,
        ax,
        title,
        note,
        overview_of(trades, caller).note,
    ) as axes:
        # The first type upwards, the other one downwards.
        for direction, (name, values) in zip((1, -1), matched.items(), strict=False):
            unmatched = int((table["fill_type"] == name).sum()) - len(values)
            label = f"{FILL_TYPES[name].label}:\n{len(values):,} matched,\n{unmatched:,} not"
            group = FILL_TYPES[name]._replace(label=label)
            heights, texts = _histogram(values, edges, FILL_TYPES[name].label)
            bars = axes.bar(
                edges[:-1],
                direction * heights,
                np.diff(edges),
                align="edge",
                **group.bar,
            )
            marks += bar_marks(bars, texts)
            top = direction * MEAN_HEIGHT * heights.max()
            _draw_mean(axes, means[name], top, group)
        axes.axhline(0, **zero_line())
        axes.axvline(0, **zero_line(), linestyle=":")
        axes.set_xlabel("difference (basis points; right of 0: worse for the account)")
        axes.set_ylabel("share of matched fills (%)")
        axes.yaxis.set_major_formatter(_format_share)
    return keep(axes, drawn, marks)


def cost_curve(
    trades: Any,
    *,
    reference: Any = "next",
    prices: Any = None,
    tolerance: Any = "1h",
    quote: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the all-in cost of fills, fee plus price difference, by fill size.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`.
    reference, prices, tolerance : optional
        The price to compare with, the frame in which the next or last trade is looked for, by default
        `trades`, and its maximum distance in time, as for `fills.all_in_cost`, None for any.
    quote, ax : optional
        As for `volume`.

    Returns
    -------
    matplotlib.figure.Figure
        The value-weighted mean of ``all_in_bps`` of `fills.all_in_cost` for each fill type and quantile,
        with its 95 % interval and the number of fills: ten quantiles, or as few as three where few fills have a
        cost, so that each has about forty. A hollow mark rests on fewer than 8 accounts, and has no interval.

    Raises
    ------
    LabError
        No fill has a reference price, or an argument is not valid.

    Examples
    --------
    >>> lab.figures.cost_curve(client.trades(account_id=10083), reference="last")
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.cost_curve"
    overview = overview_of(trades, caller)
    # These arguments are passed on as they are: `fills.all_in_cost` checks them.
    against = {"reference": reference, "tolerance": tolerance, "prices": prices}
    costs, sizes, token = _costs_by_size(
        trades,
        quote,
        MOST_PARTS,
        caller,
        against,
    )
    # The first answer says how many fills have a cost; few of them make few parts.
    parts = int(costs["priced"].sum()) // FILLS_PER_PART
    parts = min(MOST_PARTS, max(FEWEST_PARTS, parts))
    if parts != MOST_PARTS:
        costs, sizes, token = _costs_by_size(trades, token, parts, caller, against)
    if costs.empty:
        within = ""
        hint = "Pass a wider frame as prices="
        if tolerance is not None:
            within = f" within {tolerance}"
            hint += ", or allow more with tolerance="
        raise LabError(
            f"{caller}: no fill quoted in {token} has a reference price{within}. {hint}."
        )
    other = "the reference"
    if isinstance(reference, str):
        other = f"the market's {reference} trade in {_frame(prices)}"
    counted = fill_count(costs["priced"].sum(), overview.trades)
    points = weighted(costs, "all_in_bps")
    note = f"fee plus price difference to {other}; {counted}, counted above each point\n{INTERVAL}"
    note += _caveats(points)
    ranges = [
        f"{format_amount(low)} to {format_amount(high)} {token}"
        for low, high in sizes.to_numpy()
    ]
    with drawing(
        trades, ax, f"All-in cost by size, {token}-quoted markets", note, overview.note
    ) as axes:
        axes.axhline(0, **zero_line())
        axis.format_sizes(axes, sizes, token)
        marks = _draw_by_type(axes, points, ranges)
        axes.set_ylabel("all-in cost (basis points)")
    table = costs.assign(quantile=sizes.index[costs["place"]]).drop(
        columns=["place", "priced"]
    )
    return keep(axes, table.join(sizes, on="quantile"), marks)


def venue_differences(
    trades: Any,
    *,
    prices: Any = None,
    horizon: Any = "1min",
    by: str | Sequence[str] = "market",
    ax: Axes | None = None,
) -> Figure:
    """Draw how much more the AMM pool cost than the order book, like with like.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, usually of several accounts.
    prices, horizon : optional
        Prices from outside the exchange, and how long after the end of an order they are looked up, as for
        `fills.compare_venues`.
    by : str or sequence of str
        One line for each value of these columns, up to the eleven with the most fills.
    ax : matplotlib.axes.Axes, optional
        Where to draw; by default a new figure, 900 pixels wide, whose height follows the groups.

    Returns
    -------
    matplotlib.figure.Figure
        ``difference_bps`` of `fills.compare_venues` with its interval, the number of matched fills and the ``verdict``:
        all fills together on top, with their 95 % interval, then each group. Intervals and verdicts of groups are such
        that at 95 % all of them hold at once (Bonferroni). A hollow mark is undecided.

    Raises
    ------
    LabError
        No taker fills of the two venues can be compared, or an argument is not valid.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, since="2022-12-01")
    >>> lab.figures.venue_differences(trades, prices=client.outside_prices(trades))
    <Figure size 900x256 with 1 Axes>
    """
    caller = "lab.figures.venue_differences"
    names = list(keys_of(given(trades, caller), by).names)
    overall = as_pandas(fills.compare_venues(trades, prices, None, horizon))
    if overall["difference_bps"].isna().all():
        unpriced = without_cost(int(overall["unpriced"].sum()))
        raise LabError(
            f"{caller}: no taker fills of both venues in the same market, side, size class and week. "
            f"{unpriced or COMBINE}"
        )
    table = as_pandas(fills.compare_venues(trades, prices, names, horizon))
    # Bonferroni: each of m intervals misses with a chance of 0.05 / m.
    count = int(table["low_bps"].notna().sum())
    if count > 1:
        level = 1 - 0.05 / count
        table = as_pandas(fills.compare_venues(trades, prices, names, horizon, level))
    # Groups of one venue only have no difference.
    known = table.dropna(subset=["difference_bps"])
    rows = all_and_groups(overall, known, names, "fills")
    at_once = " (groups: all at once)" if count > 1 else ""
    note = f"line: holds the true difference, 95 % sure{at_once}; hollow: undecided"
    note += f"\n{measured(rows, horizon, caller)}"
    title = f"AMM pool minus order book, like with like{by_names(names, len(known))}"

    def say(row: dict[Any, Any]) -> str:
        counts = (
            f"{format_count(row['fills'])} of {format_count(row['orders'], 'order')}"
        )
        return f"{row['group']}: {format_estimate(row)}\ncheaper: {row['verdict']}\n{counts}"

    with drawing(
        trades,
        ax,
        title,
        note,
        rows=len(rows),
    ) as axes:
        marks = style.draw_rows(axes, rows.rename(columns=ESTIMATE), say)
        axes.set_xlabel(
            "difference in all-in cost (basis points; left of 0: the pool is cheaper)"
        )
        texts = {
            "fills": rows["fills"].map("{:,}".format),
            "cheaper": rows["verdict"],
        }
        style.text_columns(axes, pd.DataFrame(texts))
    return keep(axes, rows, marks)


def markouts(
    trades: Any,
    *,
    prices: Any = None,
    horizons: Sequence[Any] = HORIZONS,
    ax: Axes | None = None,
) -> Figure:
    """Draw what takers' fills realized of their effective cost, at several horizons.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, with roles, such as from `fills.with_roles`.
    prices, horizons : optional
        Prices and times after the fill, as for `fills.markouts`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of 900 by 420 pixels by default.

    Returns
    -------
    matplotlib.figure.Figure
        The value-weighted mean of ``realized_bps`` of `fills.markouts` for each fill type and horizon, with
        its 95 % interval and the number of fills, and that of ``effective_bps`` as a faint line; between the
        two lies the price impact. A hollow mark rests on fewer than 8 accounts, and has no interval.

    Raises
    ------
    LabError
        No fill is known to be a taker's, no such fill has a price before and after it, or an argument is not valid.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, since="2022-12-01")
    >>> lab.figures.markouts(trades, prices=client.outside_prices(trades))
    <Figure size 900x420 with 1 Axes>
    """
    caller = "lab.figures.markouts"
    # The horizons are asked for, and written on the axis.
    horizons = several(horizons)
    table = as_pandas(fills.markouts(trades, prices, horizons, "fill_type"))
    if table.empty:
        raise LabError(
            f"{caller}: no fill is known to be a taker's. Pass takers' fills; lab.fills.with_roles finds roles that "
            "are not known."
        )
    table = _with_cost(table)
    if table.empty:
        hint = "Pass prices="
        if prices is not None:
            hint = "Pass prices of the time around the fills"
        raise LabError(
            f"{caller}: no taker's fill has a price before and after it. {hint}, or longer horizons=."
        )
    # Horizons are named as the caller wrote them.
    names = [str(horizon) for horizon in horizons]
    table["place"] = table["horizon"].map(names.index)
    points = weighted(table, "realized_bps")
    note = f"{INTERVAL}; faint: effective cost\ncounted above each point; at {table['reference'].iloc[0]}"
    note += _caveats(points)
    headings = [f"{name} after the fill" for name in names]
    with drawing(
        trades, ax, "Realized part of the effective cost, by time after the fill", note
    ) as axes:
        axes.axhline(0, **zero_line())
        # Horizons stand at equal distances, although they grow by factors.
        axes.set_xlim(-0.6, len(names) - 0.4)
        marks = _draw_by_type(axes, points, headings, faint="weighted_effective_bps")
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("time after the fill")
        axes.set_ylabel("cost without the fee (basis points)")
    return keep(
        axes,
        table.drop(columns=["place", "priced"]),
        marks,
    )


def _format_share(share: float, _: object) -> str:
    """Write a percentage above or below the middle: both halves count from there, and none exceeds 100."""
    return format_number(abs(share)) if abs(share) <= 100 else ""


def _histogram(
    values: np.ndarray, edges: np.ndarray, label: str
) -> tuple[np.ndarray, list[str]]:
    """Return the percent of the values in each bin, and what is said of it."""
    counts, _ = np.histogram(values, edges)
    shares = 100 * counts / len(values)
    borders = [format_number(edge) for edge in edges]
    bins = zip(pairwise(borders), counts, shares, strict=True)
    texts = []
    for (low, high), count, share in bins:
        of_all = f"{share:.1f} % of {len(values):,} matched"
        texts.append(f"{label}, {low} to {high} bps\n{of_all}\n{format_count(count)}")
    return shares, texts


def _draw_by_type(
    axes: Axes,
    points: pd.DataFrame,
    headings: Sequence[str],
    faint: str | None = None,
) -> list[Mark]:
    """Draw estimates at their places, fill types side by side, and how many fills each rests on."""
    types = [name for name in FILL_TYPES if (points["fill_type"] == name).any()]
    marks = []
    for number, name in enumerate(types):
        group = FILL_TYPES[name]
        rows = points[points["fill_type"] == name]
        # The types of one place stand around it.
        beside = APART * (number - (len(types) - 1) / 2)
        places = rows["place"] + beside
        if faint:
            look = {
                "alpha": 0.45,
                "label": None,
                "linewidth": 1,
                "markersize": 4,
            }
            axes.plot(places, rows[faint], **group.line | look)
        style.draw_estimates(axes, places, rows, group)
        for x, row in zip(places, rows.to_dict("records"), strict=True):
            heading = f"{group.label}, {headings[row['place']]}"
            text = f"{heading}\n{format_estimate(row)}\n{format_count(row['priced'])}"
            marks.append(Mark(text, (x, x), interval_of(row)))
        height = 1 - COUNT_HEIGHT * (number + 0.5)
        style.write_counts(
            axes,
            rows["place"],
            rows["priced"],
            group.colour,
            (height, 0),
        )
    # Above all points is a line of counts for each type.
    low, high = axes.get_ylim()
    axes.set_ylim(low, low + (high - low) / (1 - COUNT_HEIGHT * len(types)))
    return marks


def _caveats(points: pd.DataFrame) -> str:
    """Return what a note says of estimates without an interval, and of those against the exchange's own trades."""
    hollow = f"; {HOLLOW}" if points["low"].isna().any() else ""
    return hollow + pulled(points)


def _draw_mean(
    axes: Axes,
    row: Mapping[Any, Any],
    top: float,
    group: GroupStyle,
) -> None:
    """Draw a mean with its interval over one half, as a line and a band."""
    if pd.isna(row["mean"]):
        return
    mean = float(row["mean"])
    axes.plot(
        [mean, mean],
        [0, top],
        color=style.ink(),
        linewidth=1.2,
        linestyle=group.dash,
    )
    text = f"mean {format_bps(mean, 1)}"
    if pd.notna(row["low"]):
        axes.fill_betweenx(
            [0, top],
            row["low"],
            row["high"],
            color=style.ink(),
            alpha=0.12,
            linewidth=0,
        )
        text += f" ({format_bps(row['low'], 1)} to {format_bps(row['high'], 1)})"
    # The text stands on the side of the line that has more room.
    is_left = mean < sum(axes.get_xlim()) / 2
    side = "left" if is_left else "right"
    beside = 4 if is_left else -4
    end = "top" if top > 0 else "bottom"
    style.write(
        axes,
        text,
        (mean, top),
        (beside, 0),
        "data",
        ha=side,
        va=end,
    )


def _edges(histograms: Iterable[np.ndarray]) -> np.ndarray:
    """Choose bins of a round width that cover all histograms without their outliers, and 0."""
    low = 0.0
    high = 0.0
    count = 0
    for values in histograms:
        first, third = np.quantile(values, [0.25, 0.75])
        # Without a spread, no value is an outlier.
        fence = FENCE * (third - first) or np.inf
        low = min(low, max(values.min(), first - fence))
        high = max(high, min(values.max(), third + fence))
        count += len(values)
    # All differences are 0, so any width does.
    if low == high:
        high = 1.0
    bins = min(MOST_BINS, FEWEST_BINS + count // 4)
    # The locator of ticks finds round bins too.
    edges = np.asarray(MaxNLocator(bins, steps=STEPS).tick_values(low, high))
    # Whole multiples of their width, so that 0 is 0.
    width = edges[1] - edges[0]
    return np.asarray(np.rint(edges / width) * width)


def _costs_by_size(
    trades: Any,
    quote: str | None,
    parts: int,
    caller: str,
    reference: Mapping[str, Any],
) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Return the costs of each fill type and quantile that has any, the sizes of quantiles and the quote token."""
    profile = as_pandas(size_profile(trades, parts))
    of_quote, token = axis.quantiles_of(profile, quote, caller)
    sizes = axis.bounds_of(of_quote)
    # Queries have amounts as integers of 1e-18, and frames write them with all 18 places: without the point they are
    # those integers.
    ends = [f"{size:f}".replace(".", "") for size in sizes["largest"]]
    cases = [f"WHEN notional <= {end} THEN {place}" for place, end in enumerate(ends)]
    keys = Keys(("place", "fill_type"), added=("place",))
    placed = f"""
-- fills quoted in one token, at the place of their quantile; those of unknown size at none
SELECT *,
    CASE {" ".join(cases)} END AS {keys.aliases[0]}
FROM trades
WHERE quote = {literal(token)}"""
    rows = {"placed": placed}
    answer = cost_of(["all_in_bps"], trades, by=keys, rows=rows, **reference)
    costs = as_pandas(answer).dropna(subset=["place"]).astype({"place": int})
    return _with_cost(costs), sizes, token


def _with_cost(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with fills that have a cost, which are those with a reference price, and how many these are."""
    counted = table.assign(priced=table["fills"] - table["unpriced"])
    return style.label_unknown_types(counted[counted["priced"] > 0])


def _frame(prices: Any) -> str:
    return "this frame" if prices is None else "prices"


def _age_limit(tolerance: Any) -> str:
    if tolerance is None:
        return "of any age"
    if isinstance(tolerance, pd.Timedelta):
        tolerance = f"{format_number(tolerance.total_seconds())} s"
    return f"at most {tolerance} old"
