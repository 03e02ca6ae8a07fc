"""Figures of prices and costs: estimates with their intervals, and how many fills each rests on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from loopring_lab import fills
from loopring_lab.amounts.display import format_amount
from loopring_lab.engine.estimates import FEWEST
from loopring_lab.engine.groups import Keys, keys_of, literal
from loopring_lab.errors import LabError
from loopring_lab.figures import axis, style
from loopring_lab.figures.marks import Figure, Mark, bar_marks, keep
from loopring_lab.figures.overview import opened, overview_of
from loopring_lab.figures.style import FILL_TYPES, GroupStyle, as_pandas, drawing, trade_count
from loopring_lab.fills.markouts import HORIZONS
from loopring_lab.fills.prices import cost_of
from loopring_lab.fills.sizes import quantile_bounds

# Widths of bins, times a power of ten.
STEPS = (1, 2, 2.5, 5, 10)
FEWEST_BINS = 10
MOST_BINS = 40
FENCE = 3  # interquartile ranges beyond which values are not drawn
MOST_LINES = 11
VERDICTS = {
    "pool": FILL_TYPES["amm"],
    "book": FILL_TYPES["dex"],
    "undecided": FILL_TYPES[style.UNKNOWN]._replace(marker="D"),
}
# Parts by size, and how many fills with a cost each of them should have.
MOST_PARTS = 10
FEWEST_PARTS = 3
FILLS_PER_PART = 40
INTERVAL = "value-weighted mean with 95 % interval (clustered by order)"
HOLLOW = f"hollow: fewer than {FEWEST} fills or orders, no interval"
PULLED = "own trades as reference: intervals cover sampling only,\ndifferences are pulled towards 0"
OWN_TRADES = "own trades"  # what tables say of such a reference
# Percent from the line at 0 where single fills stand.
DOTS_AT = 5
# Columns between points of different groups.
APART = 0.1


def price_gaps(trades: Any, *, tolerance: Any = "1h", prices: Any = None, ax: Axes | None = None) -> Figure:
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
        its matched fills, with the value-weighted mean and its 95 % interval. Fewer than 20 fills are dots,
        without a mean. Outliers beyond three interquartile ranges are not drawn; the note under the title
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
    means = as_pandas(fills.price_gap(trades, tolerance, [], prices=prices)).set_index("fill_type")
    drawn = table[table["worse_bps"].notna() & table["fill_type"].isin(["amm", "dex"])]
    if drawn.empty:
        raise LabError(
            f"{caller}: no fill has an earlier one of the other type {_age_limit(tolerance)}. Allow more, such as "
            "tolerance='1d', or combine the trades of several accounts."
        )
    by_type = drawn["worse_bps"].astype(float).groupby(drawn["fill_type"].astype(str))
    matched = {str(name): worse.to_numpy() for name, worse in by_type}
    edges = _edges(matched.values())
    many = [name for name, values in matched.items() if len(values) >= FEWEST]
    note = f"{trade_count(len(drawn), len(table))} of known type matched"
    outside = int(((drawn["worse_bps"] < edges[0]) | (drawn["worse_bps"] > edges[-1])).sum())
    if outside:
        note += f"; {outside:,} lie outside this range"
    if many:
        note += f"\nline and band: {INTERVAL}"
    if len(many) < len(matched):
        note += "; " if many else "\n"
        note += f"dots: single fills, where fewer than {FEWEST} are matched"
    title = f"Price against the other fill type's last fill in {_frame(prices)}, {_age_limit(tolerance)}"
    with drawing(trades, ax, title, note, overview_of(trades, caller).note) as axes:
        for direction, (name, values) in zip((1, -1), matched.items(), strict=False):
            unmatched = int((table["fill_type"] == name).sum()) - len(values)
            label = f"{FILL_TYPES[name].label}:\n{len(values):,} matched,\n{unmatched:,} not"
            group = FILL_TYPES[name]._replace(label=label)
            if name in many:
                heights = direction * np.histogram(values, edges)[0] / len(values) * 100
                axes.bar(edges[:-1], heights, np.diff(edges), align="edge", **group.bar)
                _draw_mean(axes, means.loc[[name]], direction * 1.15 * max(abs(heights)), group)
            else:  # too few for shares or a mean
                dots = group.line | {"linestyle": "none"}
                axes.plot(values, np.full(len(values), direction * DOTS_AT), **dots)
        axes.axhline(0, **_zero())
        axes.axvline(0, **_zero(), linestyle=":")
        axes.set_xlabel("difference (basis points; right of 0: worse for the account)")
        axes.set_ylabel("share of matched fills (%)" if many else "single fills")
        style.plain_numbers(axes.xaxis)
        upwards = FuncFormatter(lambda share, _: style.format_number(abs(share)) if abs(share) <= 100 else "")
        axes.yaxis.set_major_formatter(upwards)
        if not many:
            axes.set_ylim(-2 * DOTS_AT, 2 * DOTS_AT)
            numbers = [f"n = {len(values)}" for values in matched.values()]
            axes.set_yticks([DOTS_AT, -DOTS_AT][: len(numbers)], numbers)
            axes.grid(visible=False, axis="y")
    bins = bar_marks(axes, _bin_texts(edges, {name: matched[name] for name in many}), many)
    return keep(axes, drawn, [*bins, *_dot_marks(drawn, matched, many)])


def cost_curve(
    trades: Any,
    *,
    reference: Any = "next",
    prices: Any = None,
    tolerance: Any = "1h",
    quantiles: int | None = None,
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
    quantiles : int, optional
        Number of quantiles, as for `fills.size_profile`; by default ten, or as few as three where few fills
        have a cost, so that each has about forty.
    quote, ax : optional
        As for `volume`.

    Returns
    -------
    matplotlib.figure.Figure
        The value-weighted mean of ``all_in_bps`` of `fills.all_in_cost` for each fill type and quantile,
        with its 95 % interval and the number of fills. A hollow mark rests on fewer than 20 fills or orders,
        and has no interval.

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
    trades = opened(trades)
    overview = overview_of(trades, caller)
    against = {"reference": reference, "tolerance": tolerance, "prices": prices}
    costs, sizes, token = _costs_by_size(trades, quote, quantiles or MOST_PARTS, caller, against)
    parts = min(MOST_PARTS, max(FEWEST_PARTS, int(costs["priced"].sum()) // FILLS_PER_PART))
    if quantiles is None and parts != MOST_PARTS:
        costs, sizes, token = _costs_by_size(trades, token, parts, caller, against)
    if costs.empty:
        raise LabError(
            f"{caller}: no fill quoted in {token} has a reference price within {tolerance}. Allow more with "
            "tolerance=, or pass a wider frame as prices=."
        )
    other = "the reference"
    if isinstance(reference, str):
        other = f"the market's {reference} trade in {_frame(prices)}"
    counted = trade_count(costs["priced"].sum(), overview.trades)
    note = f"fee plus price difference to {other}; {counted}, counted above each point\n{INTERVAL}"
    note += _hollow(costs["low_all_in_bps"]) + _pulled(costs)
    title = f"All-in cost by size, {token}-quoted markets"
    ranges = [f"{format_amount(low)} to {format_amount(high)} {token}" for low, high in sizes.to_numpy()]
    with drawing(trades, ax, title, note, overview.note) as axes:
        axes.axhline(0, **_zero())
        axis.format_sizes(axes, sizes, token)
        marks = _draw_by_type(axes, costs, "all_in_bps", ranges)
        style.plain_numbers(axes.yaxis)
        axes.set_ylabel("all-in cost (basis points)")
    table = costs.assign(quantile=sizes.index[costs["place"]]).drop(columns=["place", "priced"])
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
        ``difference_bps`` of `fills.compare_venues` with its 95 % interval, the number of matched fills and
        the ``verdict``: all fills together on top, then each group. A hollow mark is undecided.

    Raises
    ------
    LabError
        No taker fills of the two venues can be compared, or an argument is not valid.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, since="2022-12-01")
    >>> lab.figures.venue_differences(trades, prices=client.outside_prices(trades))
    <Figure size 900x324 with 1 Axes>
    """
    caller = "lab.figures.venue_differences"
    names = list(keys_of(trades, by, caller).names)
    overall = as_pandas(fills.compare_venues(trades, prices, None, horizon))
    table = as_pandas(fills.compare_venues(trades, prices, names, horizon))
    known = table.dropna(subset=["difference_bps"]).sort_values("fills", ascending=False, kind="stable")
    if overall["difference_bps"].isna().all():
        raise LabError(
            f"{caller}: no taker fills of both venues in the same market, side and size class. Combine the "
            "trades of several accounts, with lab.fills.with_roles where roles are not known."
        )
    labels = [style.group_label(tuple(row)) for row in known[names].itertuples(index=False)]
    rows = pd.concat([overall.assign(name="all"), known.assign(name=labels).head(MOST_LINES)])
    rows = rows.reset_index(drop=True)
    note = f"{INTERVAL}; hollow: undecided\nat {rows['reference'].iloc[0]} {horizon} after the end of each order"
    if len(known) > MOST_LINES:
        note += f"; the {MOST_LINES} of {len(known)} with most fills"
    note += _pulled(rows)
    title = f"AMM pool minus order book, like with like, by {', '.join(names)}"
    with drawing(trades, ax, title, note, rows=len(rows)) as axes:
        axes.axvline(0, **_zero())
        for place, row in enumerate(rows.to_dict("records")):
            group = VERDICTS[row["verdict"]]
            axes.hlines(place, row["low_bps"], row["high_bps"], color=group.colour, linewidth=1.6)
            mark: dict[str, Any] = {"marker": group.marker, "markersize": 7, "color": group.colour}
            if row["verdict"] == "undecided":
                mark |= style.hollow_mark(group)
            axes.plot(row["difference_bps"], place, **mark)
        axes.axhline(0.5, **_zero())
        axes.set_yticks(range(len(rows)), list(rows["name"]))
        axes.set_xlabel("difference in all-in cost (basis points; left of 0: the pool is cheaper)")
        style.plain_numbers(axes.xaxis)
        texts = {"fills": [f"{count:,}" for count in rows["fills"]], "cheaper": list(rows["verdict"])}
        style.text_columns(axes, pd.DataFrame(texts))
    return keep(axes, rows.rename(columns={"name": "group"}), _difference_marks(rows))


def markouts(trades: Any, *, prices: Any = None, horizons: Sequence[Any] = HORIZONS, ax: Axes | None = None) -> Figure:
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
        two lies the price impact. A hollow mark rests on fewer than 20 fills or orders, and has no interval.

    Raises
    ------
    LabError
        No taker's fill has a price before and after it, or an argument is not valid.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, since="2022-12-01")
    >>> lab.figures.markouts(trades, prices=client.outside_prices(trades))
    <Figure size 900x420 with 1 Axes>
    """
    table = as_pandas(fills.markouts(trades, prices, horizons, "fill_type"))
    table = table.assign(priced=table["fills"] - table["unpriced"])
    table = style.label_unknown_types(table[table["priced"] > 0])
    if table.empty:
        raise LabError(
            "lab.figures.markouts: no taker's fill has a price before and after it. Pass prices=, or longer horizons=."
        )
    names = [str(horizon) for horizon in horizons]
    table["place"] = table["horizon"].map(names.index)
    note = f"{INTERVAL}; faint: effective cost; counted above each point\nat {table['reference'].iloc[0]}"
    note += _hollow(table["low_realized_bps"]) + _pulled(table)
    title = "Realized part of the effective cost, by time after the fill"
    headings = [f"{name} after the fill" for name in names]
    with drawing(trades, ax, title, note) as axes:
        axes.axhline(0, **_zero())
        axes.set_xlim(-0.6, len(names) - 0.4)
        marks = _draw_by_type(axes, table, "realized_bps", headings, faint="weighted_effective_bps")
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("time after the fill")
        axes.set_ylabel("cost without the fee (basis points)")
        style.plain_numbers(axes.yaxis)
    return keep(axes, table.drop(columns=["place", "priced"]), marks)


def _zero() -> dict[str, Any]:
    """Return arguments of the line at 0."""
    return {"color": style.ink(style.NOTE_STRENGTH), "linewidth": 0.8}


def _bin_texts(edges: np.ndarray, histograms: Mapping[str, np.ndarray]) -> dict[Any, str]:
    """Say of each bin how many fills of a type it holds."""
    texts = {}
    for name, values in histograms.items():
        counts = np.histogram(values, edges)[0]
        for place, count in enumerate(counts):
            low, high = (style.format_number(edge) for edge in edges[place : place + 2])
            texts[name, place] = (
                f"{FILL_TYPES[name].label}, {low} to {high} bps\n"
                f"{100 * count / len(values):.1f} % of {len(values):,} matched\n{style.format_count(count)}"
            )
    return texts


def _dot_marks(fills_drawn: pd.DataFrame, groups: Iterable[str], many: Sequence[str]) -> Iterator[Mark]:
    """Give a mark to each fill that is drawn by itself."""
    heights = dict(zip(groups, (DOTS_AT, -DOTS_AT), strict=False))
    for row in fills_drawn[~fills_drawn["fill_type"].isin(many)].to_dict("records"):
        worse = float(row["worse_bps"])
        height = heights[row["fill_type"]]
        text = (
            f"{FILL_TYPES[row['fill_type']].label}: {style.format_bps(abs(worse))} "
            f"{'worse' if worse > 0 else 'better'}\n"
            f"{row['side']} {row['market']}, trade {row['trade_id']}, {row['created_at']:%Y-%m-%d %H:%M}\n"
            f"price {format_amount(row['price'])}, other {format_amount(row['other_price'])}"
        )
        yield Mark(text, (worse, worse), (height, height))


def _draw_by_type(
    axes: Axes, table: pd.DataFrame, name: str, headings: Sequence[str], faint: str | None = None
) -> list[Mark]:
    """Draw estimates at their places, fill types side by side, and how many fills each rests on."""
    groups = [(group, table[table["fill_type"] == kind]) for kind, group in FILL_TYPES.items()]
    groups = [(group, rows) for group, rows in groups if len(rows)]
    marks = []
    for number, (group, rows) in enumerate(groups):
        places = rows["place"] + APART * (number - (len(groups) - 1) / 2)
        if faint:
            line = group.line | {"alpha": 0.45, "label": None, "linewidth": 1, "markersize": 4}
            axes.plot(places, rows[faint], **line)
        style.draw_estimates(axes, places, rows, _estimate(name), group)
        for x, row in zip(places, rows.to_dict("records"), strict=True):
            mean, low, high = (row[column] for column in _estimate(name))
            text = f"{group.label}, {headings[row['place']]}\n{style.format_estimate(mean, low, high)}\n"
            text += style.format_count(row["priced"])
            marks.append(Mark(text, (x, x), _ends(mean, low, high)))
    style.write_counts(axes, [(group, rows["place"], rows["priced"]) for group, rows in groups])
    return marks


def _difference_marks(rows: pd.DataFrame) -> Iterator[Mark]:
    for place, row in enumerate(rows.to_dict("records")):
        difference, low, high = (row[name] for name in ("difference_bps", "low_bps", "high_bps"))
        text = f"{row['name']}: {style.format_estimate(difference, low, high)}\ncheaper: {row['verdict']}\n"
        text += f"{style.format_count(row['fills'])} of {style.format_count(row['orders'], 'order')}"
        yield Mark(text, _ends(difference, low, high), (place, place), "y")


def _ends(estimate: Any, low: Any, high: Any) -> tuple[float, float]:
    """Return the ends of an interval; without one, the estimate."""
    return (estimate, estimate) if pd.isna(low) else (low, high)


def _hollow(ends: pd.Series) -> str:
    """Return what the note of a figure says of estimates without an interval."""
    return f"; {HOLLOW}" if ends.isna().any() else ""


def _pulled(table: pd.DataFrame) -> str:
    """Return a line for the note of a figure that measures against trades of the exchange itself."""
    return f"\n{PULLED}" if (table["reference"] == OWN_TRADES).any() else ""


def _costs_by_size(
    trades: Any, quote: str | None, parts: int, caller: str, reference: Mapping[str, Any]
) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Return the costs of each fill type and quantile that has any, the sizes of quantiles and the quote token."""
    profile = as_pandas(quantile_bounds(trades, parts, "lab.fills.size_profile"))
    of_quote, token = axis.quantiles_of(profile, quote, caller)
    sizes = axis.bounds_of(of_quote)
    # Largest sizes as queries have amounts: in 1e-18, which are all the places they are written with.
    ends = [f"{size:f}".replace(".", "") for size in sizes["largest"]]
    up_to = " ".join(f"WHEN notional <= {end} THEN {place}" for place, end in enumerate(ends))
    keys = Keys(("place", "fill_type"), added=("place",))
    rows = {
        "placed": f"""
-- fills quoted in one token, at the place of their quantile; those of unknown size at none
SELECT *, CASE {up_to} END AS {keys.aliases[0]} FROM trades WHERE quote = {literal(token)}"""
    }
    costs = as_pandas(cost_of(["all_in_bps"], trades, by=keys, rows=rows, **reference))
    costs = costs.assign(priced=costs["fills"] - costs["unpriced"]).dropna(subset=["place"])
    costs = style.label_unknown_types(costs[costs["priced"] > 0]).astype({"place": int})
    return costs, sizes, token


def _frame(prices: Any) -> str:
    return "this frame" if prices is None else "prices"


def _age_limit(tolerance: Any) -> str:
    if tolerance is None:
        return "of any age"
    if isinstance(tolerance, pd.Timedelta):
        tolerance = f"{style.format_number(tolerance.total_seconds())} s"
    return f"at most {tolerance} old"


def _edges(histograms: Iterable[np.ndarray]) -> np.ndarray:
    """Choose bins of a round width that cover both histograms without their outliers, and 0."""
    low = 0.0
    high = 0.0
    count = 0
    for values in histograms:
        first, third = np.quantile(values, [0.25, 0.75])
        fence = FENCE * (third - first) or np.inf
        low = min(low, max(values.min(), first - fence))
        high = max(high, min(values.max(), third + fence))
        count += len(values)
    rough = (high - low) / min(MOST_BINS, FEWEST_BINS + count // 4) or 0.1
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in STEPS if step * power >= rough)
    start = math.floor(low / step)
    end = max(start + 1, math.ceil(high / step))
    return np.asarray(np.arange(start, end + 1) * step)


def _estimate(name: str) -> list[str]:
    """Name the columns of a mean weighted by value, and of the ends of its interval."""
    return [f"weighted_{name}", f"low_{name}", f"high_{name}"]


def _draw_mean(axes: Axes, means: pd.DataFrame, top: float, group: GroupStyle) -> None:
    """Draw a mean with its interval over one half, as a line and a band."""
    ((mean, low, high),) = means[_estimate("worse_bps")].to_numpy(np.float64, na_value=np.nan)
    if np.isnan(mean):
        return
    axes.plot([mean, mean], [0, top], color=style.ink(), linewidth=1.2, linestyle=group.dash)
    text = f"mean {_bps(mean)}"
    if not np.isnan(low):
        axes.fill_betweenx([0, top], low, high, color=style.ink(), alpha=0.12, linewidth=0)
        text += f" ({_bps(low)} to {_bps(high)})"
    # The text stands on the side of the line that has more room.
    side = "left" if mean < sum(axes.get_xlim()) / 2 else "right"
    offset = {"left": 4, "right": -4}[side]
    height = "top" if top > 0 else "bottom"
    style.write(axes, text, (mean, top), (offset, 0), "data", ha=side, va=height)


def _bps(rate: float) -> str:
    return f"{round(rate, 1) + 0.0:,.1f}"
