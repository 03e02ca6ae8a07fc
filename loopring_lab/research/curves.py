"""Cost curves: what orders of each size paid at each venue, and the size at which the cheaper venue changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.arguments import parse_length
from loopring_lab.engine.ask import ask_table, given
from loopring_lab.engine.asof import asof_sql, too_late_sql, with_spans_sql
from loopring_lab.engine.clusters import (
    LEAST_CLUSTERS,
    LEVELS,
    NO_ACCOUNT,
    by_cluster_sql,
    check_intervals,
    clusters_sql,
    student,
)
from loopring_lab.engine.groups import HOUR, Keys
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.near import prices_near
from loopring_lab.engine.notes import LEFT_OUT
from loopring_lab.engine.question import Large, Spanned
from loopring_lab.engine.worth import DAY_SQL, worth_by_day
from loopring_lab.errors import LabError
from loopring_lab.fills.prices import (
    LAST_FILL_MS,
    is_near_sql,
    kind_of_prices,
    noted,
    question_of_prices,
    taker_steps,
    worse_sql,
)
from loopring_lab.fills.sides import ROLE_COLUMNS, role_steps
from loopring_lab.research.curve_fit import CELL, STEPS, CostFit, sizes_at

VENUES = {"pool": "amm", "book": "dex"}
DIFFERENCE = "difference"
# Why there is no difference between two venues with curves.
NOTHING_SHARED = (
    "the venues share no weeks, or no markets, sides and hours, to compare them in"
)
# A curve of fewer orders says nothing.
FEWEST = 20
# A curve leaves out this part of the orders at either end, where single orders bend it.
TAIL = 0.025
# Sizes of a curve: close enough that lines between them show no corners.
POINTS = 41

NEEDS = (*ROLE_COLUMNS, "quote", "size", "price", "notional", "fee_bps")
CURVE = {
    "venue": pa.string(),
    "quote": pa.string(),
    "size": pa.float64(),
    "cost_bps": pa.float64(),
    "low_bps": pa.float64(),
    "high_bps": pa.float64(),
    "orders": pa.int64(),
    "cluster": pa.string(),
    "clusters": pa.int64(),
    "reference": pa.string(),
    LEFT_OUT: pa.int64(),
}
CROSSING = {
    "quote": pa.string(),
    "size": pa.float64(),
    "low_size": pa.float64(),
    "high_size": pa.float64(),
    "smaller": pa.string(),
    "larger": pa.string(),
    "reason": pa.string(),
}

# A list of one, as rows without it then have no column for each of what it says.
DESCRIBED = ", ".join(f"{name}: {name}" for name in CELL)
CELLS = f"""
-- orders of each cell, with what they share, and of each account, day and week in it, by week; a row without a cell has
-- how many fills count nowhere
SELECT cell,
    [{{{DESCRIBED}}}] AS described,
    count(*) AS orders,
    fsum(cost) AS cost
FROM orders
GROUP BY cell, {", ".join(CELL)}
UNION ALL BY NAME
SELECT count(*) AS orders
FROM takers
WHERE NOT is_taken
UNION ALL BY NAME
SELECT * REPLACE (list_position({list(LEVELS)}, level)::TINYINT AS level)
FROM (
    {by_cluster_sql("cell, week", "count(*) AS orders, fsum(cost) AS cost", "orders")}
)"""


def cost_curves(
    trades: Trades[FrameT],
    prices: Any = None,
    *,
    horizon: str | pd.Timedelta = "1min",
    cluster: str | None = None,
    intervals: float = 0.95,
) -> FrameT:
    """Estimate what orders of each size cost at the AMM pool and on the order book, other things being equal.

    The all-in cost of takers' orders is regressed on the logarithm of their size, a curve for each venue, with
    effects of the market, the side, the hour of the day and the week. So a curve is what an order of that size would
    have paid at the venue, in the mean of the markets, sides, hours and weeks of all orders. Each order counts once at
    a venue, with its whole size.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        Such as `Client.trades` returns. Orders count as in `compare_venues`: by their taker's fills.
    prices : frame of any of these kinds, optional
        Prices from outside the exchange, such as minute closes; by default `trades`, as for `compare_venues`.
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count.
    cluster : {'account', 'day', 'week'}, optional
        What is taken to vary as one, as for `compare_venues`: by default, at each size, the one with the widest band.
    intervals : float
        Level of the bands, between 0 and 1, at each size by itself.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per venue and size
        ``venue``: ``pool``, ``book``, and ``difference``, pool minus book, at sizes that both have; ``quote``, the
        token that sizes are counted in, that of most fills; ``size`` (float64); ``cost_bps``, from ``low_bps`` to
        ``high_bps`` (float64 basis points, null where a venue's curve does not follow from the orders, as where the
        venues share no week); ``orders`` that the curve rests on; ``cluster`` and ``clusters``, what varies as one
        and how many of these the venue with fewer has in weeks that both venues share; ``reference``, ``outside
        prices`` or ``own trades``. A venue with fewer than 20 orders has no rows, and neither have the largest and
        smallest 2.5 % of a venue's sizes.

    Raises
    ------
    LabError, AmountError
        As for `compare_venues`, or `cluster` is not known.

    Notes
    -----
    A curve is a natural cubic spline with four knots (Harrell, section 2.4.5). Orders of one market, side, hour,
    week, venue and size, rounded to a quarter of the natural logarithm, are one row of a weighted least squares fit,
    which gives what a fit of single orders would. Weeks are those of `compare_venues`. A cost that changes with time
    at both venues alike is no difference of theirs, but for what changes within a week; effects add up, so that one
    that changes in some markets alone can be.
    Bands are those of a cluster jackknife (CRV3) with Student's t, see `engine.clusters`; those of a venue's curve
    also cover which markets, sides, hours and weeks orders happened to be in. Where no level has 8 clusters at each
    venue, or a curve does not follow without one of them, there are none.

    Users choose venues, often by price: a curve describes orders that went to a venue, not what others would pay.
    Arbitrage is no user's cost: leave it out first, such as by ``flow`` of `with_flow`.

    References
    ----------
    F. E. Harrell, "Regression Modeling Strategies", 2nd edition, 2015; J. G. MacKinnon, M. Ø. Nielsen and
    M. D. Webb, "Fast and reliable jackknife and bootstrap methods for cluster-robust inference", Journal of Applied
    Econometrics, 2023.

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="ETH-USDC")
    >>> curves = lab.research.cost_curves(trades, client.outside_prices(trades))
    >>> curves[["venue", "size", "cost_bps"]].iloc[[0, 40]]
       venue         size   cost_bps
    0   pool   115.584285  26.734985
    40  pool  3827.625821  29.626247
    """
    caller = "lab.research.cost_curves"
    check_intervals(intervals, cluster, caller)
    length = parse_length(horizon, caller, "horizon")
    if not length:
        raise LabError(
            f"{caller}: horizon={horizon!r} leaves no time for a price. Give one such as '1min'."
        )
    fills = given(trades, caller)
    beside = prices_near(prices, fills, length, within=length)
    kind = kind_of_prices(beside, fills)
    steps, tables = role_steps(fills)
    steps |= _order_steps(beside, kind, length)
    tables["worth"] = worth_by_day(fills)
    question = question_of_prices(
        caller, {**steps, "sums": CELLS}, NEEDS, Keys(), reach=length
    )
    sums = ask_table(question, fills, beside, **tables)
    cells = _cells_with_curves(sums)
    if cells.empty:
        return _answer(fills, pd.DataFrame(), CURVE)
    left_out = sums.filter(pc.is_null(sums["cell"]))["orders"]
    place = pc.index_in(sums["cell"], pa.array(cells["cell"]))
    sums = sums.drop_columns(["cell", "described"]).append_column("place", place)
    by_week = _parts_of(sums, "week")
    fit = CostFit(cells, by_week)
    parts = list(_curves(fit, cells))
    rows = np.vstack([design for _, design in parts])
    drawn = pd.concat([curve for curve, _ in parts], ignore_index=True)
    drawn["cost_bps"] = fit.estimates(rows)
    reach = np.full(len(rows), np.nan)
    for level, clusters, freedom, own in _levels(sums, cells, by_week, cluster):
        one = fit.errors(rows, own) * student(intervals, freedom)
        is_wider = ~(one <= reach)
        reach[is_wider] = one[is_wider]
        drawn.loc[is_wider, "cluster"] = level
        drawn.loc[is_wider, "clusters"] = clusters
    reach[np.isinf(reach)] = np.nan
    drawn["low_bps"] = drawn["cost_bps"] - reach
    drawn["high_bps"] = drawn["cost_bps"] + reach
    drawn["quote"] = _unit_of(tables["worth"])
    drawn["reference"] = kind
    drawn[LEFT_OUT] = pc.sum(left_out).as_py()
    return noted(_answer(fills, drawn, CURVE), kind, fills, beside)


def crossing(curves: Trades[FrameT]) -> FrameT:
    """Find the size at which the cheaper venue changes, from `cost_curves`.

    Parameters
    ----------
    curves : frame of pandas, pyarrow, Polars, DuckDB or Spark
        From `cost_curves`.

    Returns
    -------
    frame of the same kind, one row
        ``quote``; ``size`` at which the curves cross, in that token, from ``low_size`` to ``high_size`` (float64):
        the sizes around it at which the band of the difference holds 0, so the interval has the level of the bands;
        ``smaller`` and ``larger``, the venue whose curve is lower for smaller and for larger orders; ``reason``, why
        the size or an end of the interval is null, or null.

    Raises
    ------
    LabError
        `curves` has not the columns of `cost_curves`.

    Notes
    -----
    The interval is Fieller's: all sizes at which a difference of 0 is not excluded.

    Examples
    --------
    >>> trades = client.trades([10083, 11519], market="ETH-USDC")
    >>> curves = lab.research.cost_curves(trades, client.outside_prices(trades))
    >>> lab.research.crossing(curves)[["size", "smaller", "larger", "reason"]]
       size smaller larger                                  reason
    0   NaN    pool   pool  the curves do not cross at these sizes
    """
    given_curves = given(curves, "lab.research.crossing")
    given_curves.check(list(CURVE)[:-1])
    table = given_curves.to_pandas()
    difference = table[table["venue"] == DIFFERENCE].sort_values("size")
    found = _crossing_of(difference)
    quotes = table["quote"].dropna()
    found["quote"] = quotes.iloc[0] if len(quotes) else None
    return _answer(given_curves, pd.DataFrame([found]), CROSSING)


def _crossing_of(difference: pd.DataFrame) -> dict[str, Any]:
    """Return where a difference crosses 0, at sizes in ascending order, and what is known around it."""
    if difference.empty:
        return {"reason": "no sizes at which both venues have a curve"}
    difference = difference.dropna(subset=["cost_bps"])
    if difference.empty:
        return {"reason": NOTHING_SHARED}
    costs = difference["cost_bps"].to_numpy()
    is_pool_cheaper = costs < 0
    found: dict[str, Any] = {
        "smaller": "pool" if is_pool_cheaper[0] else "book",
        "larger": "pool" if is_pool_cheaper[-1] else "book",
    }
    changes = np.flatnonzero(is_pool_cheaper[1:] != is_pool_cheaper[:-1])
    if len(changes) != 1:
        times = f"cross {len(changes)} times" if len(changes) else "do not cross"
        return {**found, "reason": f"the curves {times} at these sizes"}
    before = changes[0]
    logs = np.log(difference["size"].to_numpy())
    found["size"] = _root(logs, costs, before)

    # The interval ends where the end of the band that is nearer to 0 crosses it: where the difference is not sure.
    low = difference["low_bps"].to_numpy()
    high = difference["high_bps"].to_numpy()
    is_sure = (low > 0) | (high < 0)
    sure_below = np.flatnonzero(is_sure[: before + 1])
    sure_above = np.flatnonzero(is_sure[before + 1 :])
    unsure = []
    if len(sure_below):
        nearer = high if is_pool_cheaper[0] else low
        found["low_size"] = _root(logs, nearer, sure_below[-1])
    else:
        unsure.append("smaller")
    if len(sure_above):
        nearer = high if is_pool_cheaper[-1] else low
        found["high_size"] = _root(logs, nearer, before + sure_above[0])
    else:
        unsure.append("larger")
    if unsure:
        found["reason"] = f"no sure difference for {' and '.join(unsure)} orders"
    return found


def _root(logs: np.ndarray, values: np.ndarray, place: int) -> float:
    """Return the size at which a line from a place to the next one is 0."""
    here, there = values[place : place + 2]
    start, end = logs[place : place + 2]
    part = here / (here - there)
    root = start + part * (end - start)
    return float(np.exp(root))


def _order_steps(prices: Given[Any] | None, kind: str, length: int) -> dict[str, str]:
    """Return the steps from roles to ``orders``: what each taker's order paid at each venue, and its size."""
    return {
        **taker_steps(prices, kind),
        "anchored": Spanned(f"""
-- takers' fills; prices from `anchor` on are too late
SELECT *,
    {too_late_sql(LAST_FILL_MS, length)} AS anchor
FROM ({with_spans_sql("takers")})
WHERE is_taken"""),
        "found": asof_sql("anchored", "last"),
        "costs": f"""
-- fills with their value in one token, and their cost to the taker in basis points
SELECT *,
    notional::DOUBLE * worth / 1e18 AS value,
    CASE
        WHEN {is_near_sql(kind, length)} THEN {worse_sql("price", "found_price")}
    END + fee_bps AS cost
FROM found
LEFT JOIN worth ON quote = token AND {DAY_SQL} = worth.day""",
        "orders": Large(f"""
-- an order is one decision: what it paid, weighted by value, at each venue where it was filled, and the whole size
SELECT market, side, fill_type,
    {clusters_sql("min(account_id)", "min(ms)")},
    min(ms) // {HOUR} % 24 AS hour,
    round({STEPS} * ln(sum(fsum(value)) OVER (PARTITION BY market, side, order_id)))::BIGINT AS step,
    (hash({", ".join(CELL)}) >> 1)::BIGINT AS cell,  -- 63 bits are a number of NumPy
    fsum(value * cost) / fsum(value) AS cost
FROM costs
WHERE value > 0 AND isfinite(cost)
GROUP BY market, side, fill_type, order_id"""),
    }


def _cells_with_curves(sums: pa.Table) -> pd.DataFrame:
    """Return the cells of venues with enough orders, in one order on all kinds of frames: a fit adds them up in it."""
    found = sums.filter(pc.is_valid(sums["described"]))
    described = pc.list_flatten(found["described"]).combine_chunks()
    cells: pd.DataFrame = pa.Table.from_struct_array(described).to_pandas()
    for name in ("cell", "orders", "cost"):
        cells[name] = found[name].to_pandas()
    orders = cells.groupby("fill_type")["orders"].transform("sum")
    return cells[orders >= FEWEST].sort_values(list(CELL), ignore_index=True)


def _levels(
    sums: pa.Table, cells: pd.DataFrame, by_week: pd.DataFrame, cluster: str | None
) -> Iterator[tuple[str, int, int, pd.DataFrame]]:
    """Yield the levels with enough clusters: the sums of each cluster in each cell, by week.

    Each has the number of clusters at the venue with fewer, and the degrees of freedom. Weeks with one venue say
    nothing of a difference, so clusters that are nowhere else do not count.
    """
    venue_of = cells["fill_type"].to_numpy()
    places = by_week.assign(venue=venue_of[by_week["place"]])
    venues = places.groupby("week")["venue"].nunique()
    shared = venues.index[venues == cells["fill_type"].nunique()]
    for level in [cluster] if cluster else LEVELS:
        # Sums of clusters in cells are nearly as many as orders, so that those of one level are enough at a time.
        parts = by_week if level == "week" else _parts_of(sums, level)
        clusters, fewest = _clusters(parts[parts["week"].isin(shared)], venue_of)
        speaks_for_itself = len(clusters) == 1 and NO_ACCOUNT not in clusters
        if fewest >= LEAST_CLUSTERS:
            yield level, fewest, len(clusters) - 1, parts
        elif cluster is None and level == "account" and not speaks_for_itself:
            # A few accounts cannot speak for others.
            return


def _clusters(parts: pd.DataFrame, venue_of: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the clusters that have these parts, and how many there are at the venue with fewer."""
    at_venues = parts["cluster"].groupby(venue_of[parts["place"]])
    fewest = int(at_venues.nunique().min()) if len(parts) else 0
    return parts["cluster"].unique(), fewest


def _parts_of(sums: pa.Table, level: str) -> pd.DataFrame:
    """Return the sums of clusters by week, and by the ``place`` of their cell among those of the fit."""
    is_of_level = pc.equal(sums["level"], 1 + LEVELS.index(level))
    # Cells of a venue without a curve are not among those of the fit.
    is_wanted = pc.and_(is_of_level, pc.is_valid(sums["place"]))
    parts: pd.DataFrame = sums.drop_columns("level").filter(is_wanted).to_pandas()
    return parts


def _curves(
    fit: CostFit, cells: pd.DataFrame
) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """Yield each curve: its name, its sizes and how many orders it rests on, and its rows in the fit."""
    ends = {}
    for fill_type, of_venue in cells.groupby("fill_type"):
        ends[fill_type] = sizes_at(of_venue, (TAIL, 1 - TAIL))
    lows = [low for low, _ in ends.values()]
    highs = [high for _, high in ends.values()]
    # All curves are at the same sizes, so that they can be compared.
    steps = np.linspace(min(lows), max(highs), POINTS)
    orders = cells.groupby("fill_type")["orders"].sum()
    for name, fill_type in VENUES.items():
        if fill_type in ends:
            low, high = ends[fill_type]
            own = steps[(steps >= low) & (steps <= high)]
            yield _curve(name, own, orders[fill_type]), fit.curve(fill_type, own)
    if len(ends) == len(VENUES):
        both = steps[(steps >= max(lows)) & (steps <= min(highs))]
        rows = fit.curve("amm", both) - fit.curve("dex", both)
        yield _curve(DIFFERENCE, both, orders.sum()), rows


def _curve(name: str, steps: np.ndarray, orders: float) -> pd.DataFrame:
    sizes = np.exp(steps / STEPS)
    return pd.DataFrame({"venue": name, "size": sizes, "orders": orders})


def _unit_of(worth: pa.Table) -> str | None:
    """Return the token that values are counted in: one of it is always worth 1."""
    for token, rows in worth.to_pandas().groupby("token"):
        if (rows["worth"] == 1).all():
            return str(token)
    return None


def _answer(
    trades: Given[FrameT], rows: pd.DataFrame, columns: dict[str, pa.DataType]
) -> FrameT:
    """Return rows as a frame of the same kind as `trades`, null where they lack a column or a value."""
    whole = rows.reindex(columns=list(columns))
    table = pa.Table.from_pandas(whole, pa.schema(columns), preserve_index=False)
    return trades.answered(table)
