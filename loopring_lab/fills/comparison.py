"""The AMM pool against the order book, like with like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import floats
from loopring_lab.engines import convert, windows
from loopring_lab.engines.adapters import TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import Groups, equal, result_frame
from loopring_lab.engines.arrays import NAT, as_text, coded, first_of, sorted_by
from loopring_lab.engines.asof import PriceHistory, around
from loopring_lab.engines.orders import ORDER_ID, moments_of
from loopring_lab.engines.selection import select
from loopring_lab.engines.spill import BUCKETS, Buckets, Columns
from loopring_lab.engines.windows import Window
from loopring_lab.errors import LabError
from loopring_lab.fills.intervals import (
    DRAWS,
    FEWEST,
    ORDER,
    UNITS_AT_MOST,
    Bootstrap,
    SortedRows,
    bucket_of,
    check_sampling,
    drawn_sums,
    slim_rows,
    sums_between,
)
from loopring_lab.fills.prices import LOOKED_UP_BY, PRICES, Reference, cost_sign, relative_bps
from loopring_lab.fills.sides import TAKER, UNKNOWN, Roles, first_sides
from loopring_lab.fills.values import Values
from loopring_lab.query import parse_length
from loopring_lab.tables.rows import FILL_TYPES

SIZE_CLASSES = 5
ADDED = ("value", "product", "fee_product", "off", "mean", "orders")
CELL = ("market", "side", "size_class")
READ = (
    *("created_at", "trade_id", "order_hash", "market", "base", "quote", "side", "fill_type"),
    *("size", "price", "notional", "fee_bps"),
)
RESULTS = (
    *("fills", "orders", "matched_share", "pool_bps", "book_bps", "difference_bps", "low_bps", "high_bps"),
    *("fee_difference_bps", "price_difference_bps", "by_order_bps", "verdict"),
)


def compare_venues(
    trades: Any,
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    horizon: str | pd.Timedelta = "1min",
    intervals: float = 0.95,
    seed: int = 0,
) -> Any:
    """Compare what takers paid at the AMM pool and on the order book, like with like.

    A fill costs its fee plus how much worse its price is than a reference, the last price at or before the
    end of its order plus `horizon`. Fills are compared within cells of the same market, side and size class,
    a quintile of ``size`` among takers' fills in the market. The fills of cells with both venues are the
    matched ones. A cell's difference, pool minus book, weights its fills by value; the overall difference
    weights cells by the value of all their fills.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`. Each fill counts once, from its taker's side. Fills whose taker `with_roles`
        cannot tell are left out; a note in ``attrs["notes"]`` counts them.
    prices : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark, optional
        Prices from outside the exchange, such as minute closes: ``created_at``, ``market``, ``price``. The
        reference is at most `horizon` older than the end of the order. By default `trades`: the reference is
        then a trade after the end of the order that is not its own.
    by : str or sequence of str, optional
        Columns to group by; only fills of the same group are compared.
    horizon : str or pandas.Timedelta
        How long after the end of an order prices count. What the market does in that time adds noise.
    intervals, seed : float and int
        Confidence level of ``low_bps`` and ``high_bps``, between 0 and 1, and seed of their bootstrap.

    Returns
    -------
    frame of the same kind, one row per group
        `by`; ``fills`` and ``orders``, those matched; ``matched_share`` of the takers' fills (0 to 1);
        ``pool_bps`` and ``book_bps``, all-in costs; ``difference_bps``, pool minus book, from ``low_bps`` to
        ``high_bps``; its parts ``fee_difference_bps`` and ``price_difference_bps``; ``by_order_bps``, the
        difference if all orders weigh the same; ``verdict``, the cheaper venue: ``pool``, ``book`` or
        ``undecided``; ``reference``, ``outside prices`` or ``own trades``. Float64 basis points, null where
        nothing matches; the interval is null with fewer than 20 orders at a venue.

    Raises
    ------
    LabError, AmountError
        As for `all_in_cost`, or `horizon`, `intervals` or `seed` is not valid.

    Notes
    -----
    Intervals are percentiles of a Poisson bootstrap of whole orders; a verdict needs one without 0. Trades of
    this exchange as reference, also in `prices`, carry the cost of their own venue: the interval covers
    sampling only, and the difference is pulled towards 0, at times beyond it. A verdict then needs an
    interval that is farther from 0 than the fills are, on average, from their references. Values in several
    quote tokens are converted at the prices nearest in time.

    References
    ----------
    Barbon and Ranaldo, "On the Quality of Cryptocurrency Markets: Centralized versus Decentralized
    Exchanges", 2021, on costs by venue and size; Hagströmer, "Bias in the effective bid-ask spread", Journal
    of Financial Economics, 2021, on references that are biased.

    Examples
    --------
    >>> import pandas as pd
    >>> trades = client.trades(account_id=10083, market="LRC-ETH")
    >>> outside = lab.fills.compare_venues(trades, client.outside_prices(trades))
    >>> own = lab.fills.compare_venues(trades)
    >>> pd.concat([outside, own])[["verdict", "reference"]]
         verdict       reference
    0       pool  outside prices
    0  undecided      own trades
    """
    caller = "lab.fills.compare_venues"
    names = _keys(by, caller, trades)
    length = parse_length(horizon, caller, "horizon")
    if not length:
        raise LabError(f"{caller}: horizon={horizon!r} leaves no time for a price. Give one such as '1min'.")
    check_sampling(intervals, seed, caller)
    fills, left_out = _takers_fills(trades, caller, names)
    label, values = Reference(prices, caller), Values.of_frame(fills, caller, prices)
    classes = _SizeClasses(lambda: convert.batches(fills, ["market", "size"], caller))
    around = partial(
        windows.over,
        fills,
        caller,
        [*READ, *names],
        LOOKED_UP_BY,
        prices=trades if prices is None else prices,
        price_columns=PRICES,
        keys=["market"],
        after=length,
        placed_by="last",
    )
    if not label.is_known:  # whether prices are trades is known after a look at all of them
        [*around(counts=label.counts, work=partial(_look, caller=caller, label=label))]
    counts, compared = Counter[str](), _Compared(names, intervals, seed)
    work = partial(_costs, caller=caller, length=length, names=names, classes=classes, own=label.is_trades)
    for part in around(counts=counts, work=work):
        compared.add(part, values.rates.of(part))
    if counts["fills"] and counts["prices"] and not counts["shared"]:
        raise LabError(f"{caller}: prices= has no price of a market in trades. Give prices of those markets.")
    result = result_frame(trades, label.of_groups(compared.columns(label.is_trades)))
    fills_are = "1 fill is" if left_out == 1 else f"{left_out:,} fills are"
    return label.noted(result, f"{fills_are} left out: taker or type unknown." if left_out else "")


def _keys(by: str | Sequence[str] | None, caller: str, trades: Any) -> list[str]:
    names = group_keys(by, caller, *RESULTS, "reference", "size_class", frame=trades)
    if "fill_type" in names:
        raise LabError(f"{caller}: by= cannot include 'fill_type', whose values are compared. Leave it out.")
    return names


def _takers_fills(trades: Any, caller: str, names: Sequence[str]) -> tuple[Any, int]:
    """Read each fill once whose type and taker are known, into memory or files; also count the others."""
    roles, counts = Roles.of_frame(trades, caller), Counter[str]()

    def taken(window: Window) -> pa.Table:
        role = roles.of(window.rows)[0]
        places = first_sides(window.rows, window.rows, role, window.inside)
        fills, role = window.rows.take(pa.array(places)), role[places]
        is_typed = np.asarray(pc.is_in(as_text(fills["fill_type"]), pa.array(FILL_TYPES)))
        left_out = int(np.count_nonzero(~is_typed | (role == UNKNOWN)))
        fills = fills.append_column("created_at", fills["moment"].cast(TIMESTAMP))
        fills = fills.select([name for name in fills.column_names if name not in ("moment", ORDER_ID)])
        return windows.counted(fills.filter(pa.array(is_typed & (role == TAKER))), left_out=left_out)

    read = [*READ, "account_id", "role", "fee", *names]
    parts = windows.over(trades, caller, read, LOOKED_UP_BY, counts=counts, work=taken)
    if convert.is_in_memory(trades):
        return pa.concat_tables([*parts], promote_options="permissive"), counts["left_out"]
    return parts.frame(), counts["left_out"]


def _look(window: Window, caller: str, label: Reference) -> pa.Table:
    """Look whether prices are trades."""
    history = PriceHistory(window.prices, caller, near=[around(moments_of(window.rows))])
    return label.counted(window.rows.slice(0, 0), history, window)


def _costs(
    window: Window, caller: str, length: int, names: list[str], classes: _SizeClasses, own: bool
) -> pa.Table:
    """Return costs of takers' fills in a window, and their distance from the reference; NaN if unknown."""
    rows, history = window.with_prices(
        caller, near=lambda rows: [around(moments_of(rows, "last"), length, length)]
    )
    end = moments_of(rows, "last")
    lookup, until = history.lookup(rows), np.where(end == NAT, NAT, end + length)
    places = lookup.before(until, newer_than=end) if own else lookup.before(until, within=2 * length)
    fills, places = window.own(rows), places[window.inside]
    price = relative_bps(fills, history.take(places)) * cost_sign(fills)
    fee = fills["fee_bps"].fill_null(np.nan).to_numpy()
    costs = {"cost": price + fee, "fee_cost": fee, "distance": np.abs(price)}
    found = slim_rows(fills, [*names, "market", "side", "fill_type"])
    for name, column in (costs | {"size_class": classes.of(fills)}).items():
        found = found.append_column(name, pa.array(column))
    of_markets = pc.is_in(as_text(window.prices["market"]), as_text(window.rows["market"].unique()))
    shared = int(pc.sum(of_markets, min_count=0).as_py())
    return windows.counted(found, fills=len(fills), prices=len(window.prices), shared=shared)


class _SizeClasses:
    """Quintiles of size in each market, among fills whose size is known; equal sizes are in one class."""

    def __init__(self, read: Callable[[], Iterable[pa.Table]]) -> None:
        self._markets, counts, rows = dict[str | None, int](), np.zeros(0, np.int64), Buckets()
        for part in read():
            markets, sizes = self._sized(part)
            counts = np.bincount(markets, minlength=len(self._markets)) + np.pad(
                counts, (0, len(self._markets) - len(counts))
            )
            rows.add(np.arange(len(sizes)) % BUCKETS, {"market": markets.astype(np.int32), "size": sizes})
        steps = np.arange(1, SIZE_CLASSES)[:, None]
        ranks = -(-steps * counts // SIZE_CLASSES) - 1
        self._least = select(rows.of("market", "size"), counts, ranks)

    def of(self, fills: pa.Table) -> np.ndarray:
        """Return the class of each fill from 0, or -1."""
        sizes, markets = floats(fills["size"]), self._numbers(fills)
        return np.where(sizes > 0, (sizes > self._least[:, markets]).sum(axis=0), -1)

    def _numbers(self, fills: pa.Table) -> np.ndarray:
        codes, names = coded(fills["market"])
        numbers = [self._markets.setdefault(name, len(self._markets)) for name in (*names, None)]
        return np.asarray(np.array(numbers)[codes])

    def _sized(self, fills: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        sizes = floats(fills["size"])
        return self._numbers(fills)[sizes > 0], sizes[sizes > 0]


class _Compared:
    """The venues compared by group and cell, from parts of the takers' fills added one after the other."""

    def __init__(self, names: Sequence[str], level: float, seed: int) -> None:
        self._names, self._cells, self._rows = names, Groups([*names, *CELL]), Buckets()
        self._bootstrap = Bootstrap(seed, level)
        self._fills, self._known = np.zeros(0, np.int64), np.zeros((0, 2), np.int64)

    def add(self, fills: pa.Table, values: np.ndarray) -> None:
        """Add fills with the columns of groups and cells, their costs, and values, NaN where unknown."""
        costs = {"value": np.where(fills["size_class"].to_numpy() < 0, np.nan, values)}
        costs |= {name: fills[name].to_numpy() for name in ("cost", "fee_cost", "distance")}
        cells, pool = self._cells.numbers(fills), equal(fills["fill_type"], FILL_TYPES[0])
        known = (costs["value"] > 0) & ~np.isnan([*costs.values()]).any(axis=0)
        slots, count = 2 * cells + pool, len(self._cells)
        self._fills = np.bincount(cells, minlength=count) + np.pad(self._fills, (0, count - len(self._fills)))
        counted = np.bincount(slots[known], minlength=2 * count).reshape(-1, 2)
        self._known = counted + np.pad(self._known, ((0, count - len(self._known)), (0, 0)))
        columns = {"group": slots.astype(np.int32), "order": fills[ORDER].to_numpy()} | costs
        columns = {name: column[known] for name, column in columns.items()}
        self._rows.add(bucket_of(columns["order"]), columns)

    def columns(self, own: bool) -> dict[str, Any]:
        """Return the keys of each group, in their order, and how the venues compare in it."""
        groups, cells = self._cells.ordered(self._names), self._cells.ordered()
        self._group_of_cell = groups.ids[cells.first_rows]
        self._place_of_cell, self._count = cells.ids, groups.count
        self._matched = np.asarray((self._known[cells.first_rows] > 0).all(axis=1))
        compared = _results(*self._add_up(), self._group_of_cell, own)
        taken = np.bincount(groups.ids, self._fills, groups.count)
        matched = np.where(self._matched, self._known[cells.first_rows].sum(axis=1), 0)
        fills = np.bincount(self._group_of_cell, matched, groups.count)
        compared |= {"fills": fills.astype(np.int64), "matched_share": fills / taken}
        found = {name: pa.array(compared[name], from_pandas=True) for name in RESULTS}
        return groups.key_columns() | found

    def _parts(self) -> Iterator[Columns]:
        """Yield the rows of matched cells, in buckets, with cells in the order of their values."""
        for part in self._rows:
            cells = self._place_of_cell[part["group"] // 2]
            rows = np.flatnonzero(self._matched[cells])
            slots = 2 * cells[rows] + part["group"][rows] % 2
            yield {name: column[rows] for name, column in part.items()} | {"group": slots}

    def _count_orders(self) -> tuple[np.ndarray, np.ndarray]:
        """Count the orders of matched fills in each group, at each venue and in all."""
        at_venues, in_all = np.zeros(2 * self._count, np.int64), np.zeros(self._count, np.int64)
        for part in self._parts():
            groups = self._group_of_cell[part["group"] // 2]
            for numbers, counts in ((2 * groups + part["group"] % 2, at_venues), (groups, in_all)):
                rows = SortedRows(part | {"group": numbers})
                np.add.at(counts, rows.groups[rows.starts], 1)
        return at_venues.reshape(-1, 2), in_all

    def _add_up(self) -> tuple[Columns, np.ndarray, np.ndarray]:
        """Add up fills by cell and venue; also return the orders at venues and the intervals of groups."""
        orders, in_all = self._count_orders()
        many, units = in_all > UNITS_AT_MOST, Buckets()
        for part in self._parts():
            found = _units(SortedRows(part), np.repeat(many[self._group_of_cell], 2))
            units.add(self._group_of_cell[found["slot"] // 2] % BUCKETS, found)
        sums = {name: np.zeros(2 * len(self._group_of_cell)) for name in ADDED}
        intervals = np.full((2, self._count), np.nan)
        for unsorted in units:
            place = sorted_by(unsorted["slot"])
            found = {name: column[place] for name, column in unsorted.items()}
            starts = first_of(found["slot"])
            for name in ADDED:
                sums[name][found["slot"][starts]] = sums_between(starts, found[name])
            groups = self._group_of_cell[found["slot"] // 2]  # sorted, as cells are
            firsts = first_of(groups)
            for start, stop in zip(firsts, np.append(firsts, len(groups))[1:], strict=True):
                if (orders[groups[start]] >= FEWEST).all():
                    part = {name: column[start:stop] for name, column in found.items()}
                    intervals[:, groups[start]] = self._interval(part, many=bool(many[groups[start]]))
        return {name: column.reshape(-1, 2) for name, column in sums.items()}, orders, intervals

    def _interval(self, units: Columns, *, many: bool) -> tuple[float, float]:
        """Draw the difference of one group; a cell counts in a draw where both venues are drawn."""
        cells = np.unique(units["slot"] // 2, return_inverse=True)[1]
        starts, weight, product = first_of(units["slot"]), *np.zeros((2, DRAWS, cells[-1] + 1, 2))
        for start, stop in zip(starts, np.append(starts, len(cells))[1:], strict=True):
            counts = self._bootstrap.counts(units["unit"][start:stop], many=many)
            totals = drawn_sums(counts, np.stack([units[name][start:stop] for name in ("value", "product")]))
            at = cells[start], units["slot"][start] % 2
            weight[:, *at], product[:, *at] = totals
        means, there = _ratio(product, weight), (weight > 0).all(axis=2)
        shares = np.where(there, weight.sum(axis=2), 0.0)
        gaps = np.where(there, means[:, :, 1] - means[:, :, 0], 0.0)
        return self._bootstrap.interval((shares * gaps).sum(axis=1), shares.sum(axis=1))


def _units(rows: SortedRows, many: np.ndarray) -> Columns:
    """Add up the fills of each unit that is resampled, in each cell and venue."""
    units = np.where(many[rows.groups], rows.orders % np.uint64(UNITS_AT_MOST), rows.orders)
    starts = first_of(rows.groups, units)
    names = ("value", "cost", "fee_cost", "distance")
    value, cost, fee, distance = (rows.columns[name][rows.place] for name in names)
    worth, paid = (sums_between(rows.starts, column) for column in (value, value * cost))
    of_orders = np.searchsorted(rows.starts, starts)
    return {
        "slot": rows.groups[starts],
        "unit": units[starts],
        "value": sums_between(starts, value),
        "product": sums_between(starts, value * cost),
        "fee_product": sums_between(starts, value * fee),
        "off": sums_between(starts, value * distance),
        "mean": sums_between(of_orders, paid / worth),
        "orders": np.diff(np.append(of_orders, len(rows.starts))).astype(np.float64),
    }


def _results(
    sums: Columns, orders: np.ndarray, intervals: np.ndarray, groups: np.ndarray, own: bool
) -> dict[str, Any]:
    """Compare the venues in each group from sums by cell and venue."""
    count = len(orders)
    book, pool = _at_venues(sums["value"], sums["product"], groups, count)
    fee_gap = np.diff(_at_venues(sums["value"], sums["fee_product"], groups, count), axis=0)[0]
    each = _at_venues(sums["orders"], sums["mean"], groups, count)
    totals = (np.bincount(groups, sums[name].sum(axis=1), count) for name in ("off", "value"))
    margin = _ratio(*totals) if own else 0.0
    low, high = intervals
    verdict = np.select([high < -margin, low > margin], ["pool", "book"], "undecided")
    return {
        "orders": orders.sum(axis=1),
        "pool_bps": pool,
        "book_bps": book,
        "difference_bps": pool - book,
        "low_bps": low,
        "high_bps": high,
        "fee_difference_bps": fee_gap,
        "price_difference_bps": pool - book - fee_gap,
        "by_order_bps": each[1] - each[0],
        "verdict": pa.array(verdict, pa.string()),
    }


def _at_venues(weights: np.ndarray, products: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    """Return the mean cost at the book and at the pool in each group, of the same mix of cells."""
    cells = weights.sum(axis=1)
    total = np.bincount(groups, cells, count)
    means = np.where(weights > 0, products / np.where(weights > 0, weights, 1.0), 0.0).T
    return np.array([_ratio(np.bincount(groups, cells * mean, count), total) for mean in means])


def _ratio(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Divide; NaN where the denominator is 0."""
    return np.asarray(numerators / np.where(denominators == 0, np.nan, denominators) + 0.0)
