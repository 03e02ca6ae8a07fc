"""Prices of fills compared with the other fill type's, or with a reference price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import basis_points
from loopring_lab.engines import convert, windows
from loopring_lab.engines.adapters import TIMESTAMP, engine_of, group_keys
from loopring_lab.engines.aggregate import PairedFills, equal, result_frame
from loopring_lab.engines.arrays import encoded, first_of, places_among
from loopring_lab.engines.asof import TIE_BREAKERS, PriceHistory, around, check_prices
from loopring_lab.engines.orders import ORDER, Span, moments_of
from loopring_lab.engines.windows import Window
from loopring_lab.errors import LabError
from loopring_lab.fills.intervals import Estimates, check_sampling, slim_rows
from loopring_lab.fills.values import Values
from loopring_lab.query import parse_tolerance
from loopring_lab.tables.identity import SIDES
from loopring_lab.tables.rows import FILL_TYPES

BPS = 10_000
SHOWN = ("created_at", "trade_id", "market", "side", "fill_type", "quote", "notional", "price")
GAPS_SHOWN = tuple(name for name in SHOWN if name not in ("quote", "notional"))
VENUE = ("market", "side", "fill_type")
GAPS, COSTS = ("gap_bps", "worse_bps"), ("price_bps", "fee_bps", "all_in_bps")
PRICES = ("created_at", "market", "price")
LOOKED_UP_BY = (*TIE_BREAKERS, *ORDER)
"""What orders prices of one moment, and tells a fill's own; read where frames have it."""
PLACED_BY = {"next": "last", "last": "first"}
"""The end of its order that a reference of this name counts from."""
CHANCE = 0.01
"""Share of fills whose price an outside market may show in the same millisecond."""
OUTSIDE_PRICES, OWN_TRADES = "outside prices", "own trades"
OWN_TRADES_NOTE = (
    "The reference prices are trades of this exchange, which carry their own venue's cost: intervals cover "
    "sampling only, and trades as reference pull the difference towards 0, at times beyond it. Pass prices "
    "from an outside market to avoid that."
)


def price_gap(
    trades: Any,
    tolerance: str | pd.Timedelta | None = "1h",
    by: str | Sequence[str] | None = None,
    *,
    prices: Any = None,
    intervals: float = 0.95,
    seed: int = 0,
) -> Any:
    """Compare each fill's price with the nearest earlier fill of the other type in its market and side.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades` or `Archive.scan`; larger than memory on DuckDB, and on Polars if lazy.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the other fill; None for any age. A fill in the same millisecond counts as earlier; of
        several, the last by block, index in the block and trade id is used. Among rows of blocks, which share
        their block's time and have no order hash, only a lower index counts as earlier.
    by : str or sequence of str, optional
        Aggregate by these columns and ``fill_type``; ``[]`` for ``fill_type`` alone.
    prices : frame of any of these engines, optional
        Trades among which to look for the other fill, such as those of all accounts; by default `trades`.
        Fills of the same order are skipped.
    intervals, seed : float and int
        Level of the intervals, between 0 and 1, and seed of the bootstrap behind them.

    Returns
    -------
    frame of the same kind, one row per fill of known type
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``price``, ``other_price`` and
        ``other_at`` (null where unmatched), ``gap_bps``, how much higher the price is than the other, and
        ``worse_bps``, the same as a cost to the account, which paid more or received less. Float64 basis
        points. With `by`, one row per group: ``fills``, ``unmatched``, ``orders``, the estimates of
        ``gap_bps`` and ``worse_bps`` that `all_in_cost` describes, and ``both_sides``.

    Raises
    ------
    LabError, AmountError
        As for `fees.with_tiers`, or `tolerance`, `intervals` or `seed` is not valid.

    Examples
    --------
    >>> trades = client.trades(account_id=71468)
    >>> gaps = lab.fills.price_gap(trades, tolerance="10min")
    >>> gaps[["side", "price", "other_price", "worse_bps"]].dropna().tail(2)
        side                 price           other_price  worse_bps
    159  BUY  0.000647490000000000  0.000649140000000000 -25.418246
    160  BUY  0.000647590000000000  0.000649140000000000 -23.877746
    """
    caller = "lab.fills.price_gap"
    names = keys_of_estimates(trades, by, caller, intervals, seed)
    limit = parse_tolerance(tolerance, caller)
    values = Values()
    if names is not None:
        values = Values.of_frame(trades, caller)
    parts = windows.over(
        trades,
        caller,
        [*GAPS_SHOWN, *needed_for(names)],
        LOOKED_UP_BY,
        prices=prices,
        price_columns=["created_at", *VENUE, "price"],
        keys=VENUE,
        work=partial(_gaps, caller=caller, limit=limit, names=names),
    )
    if names is None:
        return parts.frame()
    keys = list(dict.fromkeys([*names, "fill_type"]))
    columns, note = estimated(parts, values, keys, GAPS, intervals, seed, "unmatched")
    return convert.with_note(result_frame(trades, columns), note)


def all_in_cost(
    trades: Any,
    reference: Any = "next",
    tolerance: str | pd.Timedelta | None = "1h",
    by: str | Sequence[str] | None = None,
    *,
    prices: Any = None,
    intervals: float = 0.95,
    seed: int = 0,
) -> Any:
    """Compute the all-in cost of fills: the fee plus the difference from a reference price.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades` or `Archive.scan`; larger than memory on DuckDB, and on Polars if lazy.
    reference : 'next', 'last', or frame of any of these engines
        ``'next'``: the first trade in the market after the fill's order completes, which shows what the
        position turned out to be worth (a markout). ``'last'``: the last trade before the order's first
        fill, its arrival price; where trades are rare this is stale, and makes fills that react to price
        moves, such as those at a pool, look more expensive. Both use trades of either type and side, never
        at the same time. A frame: prices with ``created_at``, ``market`` and ``price``; the last one at or
        before the fill is used.
    tolerance : str or pandas.Timedelta, optional
        Maximum distance in time of the reference; None for any distance, which for ``'next'`` reads the
        columns needed of all rows into memory.
    by : str or sequence of str, optional
        Aggregate by these columns; ``[]`` for all fills together.
    prices : frame of any of these engines, optional
        Trades among which to look for the next or last one, such as those of all accounts. By default
        `trades`: the next trade is then the next in that frame, not in the whole market.
    intervals, seed : float and int
        Level of the intervals, between 0 and 1, and seed of the bootstrap behind them.

    Returns
    -------
    frame of the same kind, one row per fill
        ``created_at``, ``trade_id``, ``market``, ``side``, ``fill_type``, ``quote``, ``notional``,
        ``price``, ``reference_price``, ``price_bps`` (positive: worse for the account), ``fee_bps`` and
        ``all_in_bps``, their sum; float64 basis points, null without a reference; and ``reference``, either
        ``outside prices`` or ``own trades``. With `by`, one row per group: ``fills``, ``unpriced``,
        ``orders``, and of each rate, over the fills that have it: ``mean_…``, ``weighted_…`` (by value),
        ``median_…``, and ``low_…`` to ``high_…``, the interval of the weighted mean; null where fewer than
        20 fills have the rate, or their orders are of such unequal value that they say less than 20 equal
        ones would; and ``both_sides``, of how many fills both sides are counted.

    Raises
    ------
    LabError, AmountError
        As for `price_gap`, or `reference` is not valid.

    Notes
    -----
    No fill is compared with itself, its other side or another fill of its order, which `orders` tells apart:
    in frames with ``trade_id`` these are skipped. Of several trades in one millisecond the first by block,
    index in the block and trade id comes next. Values are weighed in the quote token, or where a group has
    several, in the most frequent one.

    Trades as a reference carry their own venue's cost, which pulls differences between venues towards 0: then
    the intervals cover sampling only. Prices from outside do not have this bias.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> costs = lab.fills.all_in_cost(trades, client.outside_prices(trades), by="fill_type")
    >>> costs[["fill_type", "fills", "weighted_all_in_bps", "low_all_in_bps", "high_all_in_bps"]]
      fill_type  fills  weighted_all_in_bps  low_all_in_bps  high_all_in_bps
    0       amm     56            38.041356       31.348629        44.312145
    1       dex     44            30.388297             NaN              NaN
    """
    names = keys_of_estimates(trades, by, "lab.fills.all_in_cost", intervals, seed)
    values = Values()
    if names is not None:
        source = prices if isinstance(reference, str) else reference
        values = Values.of_frame(trades, "lab.fills.all_in_cost", None if source is trades else source)
    return costs_by(trades, reference, tolerance, names, prices, values, COSTS, intervals, seed)


def costs_by(
    trades: Any,
    reference: Any,
    tolerance: Any,
    names: list[str] | None,
    prices: Any,
    values: Values,
    rates: Sequence[str],
    level: float = 0.95,
    seed: int = 0,
) -> Any:
    """Compute what `all_in_cost` describes, estimates of some of its rates only, weighted by `values`."""
    caller = "lab.fills.all_in_cost"
    limit = parse_tolerance(tolerance, caller)
    if isinstance(reference, str) and reference not in ("next", "last"):
        raise LabError(
            f"{caller}: reference={reference!r} is not known. Give 'next', 'last', or a frame of prices."
        )
    if not isinstance(reference, str) and prices is not None:
        raise LabError(f"{caller}: reference= and prices= are both frames. Give one of them.")
    if not isinstance(reference, str):
        check_prices(reference, caller)
        engine_of(reference)
    source = reference if not isinstance(reference, str) else prices
    label = Reference(source, caller)
    placed_by = PLACED_BY[reference] if isinstance(reference, str) else "moment"
    parts = windows.over(
        trades,
        caller,
        [*SHOWN, "fee_bps", "order_hash", *needed_for(names)],
        LOOKED_UP_BY,
        prices=source,
        price_columns=PRICES,
        keys=() if placed_by == "last" else ["market"],
        after=limit if placed_by == "last" else 0,
        placed_by=placed_by,
        counts=label.counts,
        work=partial(_costs, caller=caller, limit=limit, names=names, placed_by=placed_by, label=label),
    )
    if names is None:
        return label.noted(parts.frame(label.column))
    columns, note = estimated(parts, values, names, rates, level, seed, priced=COSTS[0])
    return label.noted(result_frame(trades, label.of_groups(columns)), note)


def _gaps(window: Window, caller: str, limit: int | None, names: list[str] | None) -> pa.Table:
    """Compare fills of a window with the last ones of the other type before them."""
    types = places_among(encoded(window.rows["fill_type"]), pa.array(FILL_TYPES))
    if (types < 0).any():
        window, types = window.of(types >= 0), types[types >= 0]
    fills = window.rows
    history = PriceHistory(window.prices, caller, VENUE, [around(moments_of(fills), limit)])
    other_type = pa.DictionaryArray.from_arrays(types, FILL_TYPES[::-1])
    rows = fills.set_column(fills.column_names.index("fill_type"), "fill_type", other_type)
    other = history.lookup(rows).before(moments_of(fills), within=limit)
    other[np.asarray(known_prices(fills).is_null())] = -1
    fills, other = window.own(fills), other[window.inside]
    others = {"other_price": history.take(other), "other_at": history.take_times(other)}
    gap = relative_bps(fills, others["other_price"])
    rates = {"gap_bps": gap, "worse_bps": gap * cost_sign(fills) + 0.0}
    return rows_of(fills, GAPS_SHOWN, others, rates, names)


def _costs(
    window: Window, caller: str, limit: int | None, names: list[str] | None, placed_by: str, label: Reference
) -> pa.Table:
    """Compare fills of a window with their reference prices."""
    reach = (0, limit) if placed_by == "last" else (limit, 0)

    def near(rows: pa.Table) -> list[Span]:
        return [around(moments_of(rows, placed_by), *reach), around(moments_of(rows))]

    rows, history = window.with_prices(caller, near=near)
    lookup, moments = history.lookup(rows), moments_of(rows, placed_by)
    if placed_by == "last":
        places = lookup.after(moments, within=limit)
    else:
        places = lookup.before(moments, strictly=placed_by == "first", within=limit)
    kept = [name for name in rows.column_names if name not in ORDER or name in (names or ())]
    fills, references = window.own(rows.select(kept)), history.take(places[window.inside])
    cost = relative_bps(fills, references) * cost_sign(fills) + 0.0
    fee = fills["fee_bps"].fill_null(np.nan).to_numpy()
    rates = dict(zip(COSTS, (cost, fee, cost + fee), strict=True))
    found = rows_of(fills, SHOWN, {"reference_price": references}, rates, names)
    return label.counted(found, history, window)


def relative_bps(fills: pa.Table, references: pa.Array) -> np.ndarray:
    """Return how much higher prices of fills are than references, in basis points."""
    return basis_points(known_prices(fills), references)


def known_prices(fills: pa.Table) -> pa.ChunkedArray:
    """Return prices; null where they are unknown or not above zero."""
    prices = fills["price"]
    is_known = pc.greater(prices, pa.scalar(0, prices.type))
    return pc.if_else(is_known.fill_null(False), prices, pa.scalar(None, prices.type))


def cost_sign(fills: pa.Table) -> np.ndarray:
    """Return 1 where a higher price costs the account more, -1 where it earns more."""
    return np.select([equal(fills["side"], side) for side in SIDES], [1.0, -1.0], np.nan)


def keys_of_estimates(
    trades: Any, by: str | Sequence[str] | None, caller: str, intervals: float, seed: int
) -> list[str] | None:
    """Check ``by=`` and what intervals are drawn with; None without ``by=``."""
    check_sampling(intervals, seed, caller)
    return None if by is None else group_keys(by, caller, "horizon", "orders", "reference", frame=trades)


def needed_for(names: list[str] | None) -> list[str]:
    """Return the columns that estimates by these names need: those, and what weights fills by value."""
    return [] if names is None else [*names, "base", "quote", "price", "notional"]


class Reference:
    """What prices are: trades of this exchange, or from outside; known after the last window.

    Prices without trade ids are taken for trades if many fills show theirs at the same moment.
    """

    def __init__(self, prices: Any, caller: str) -> None:
        check_prices(prices, caller)
        self._are_trades = prices is None or "trade_id" in convert.column_names(prices)
        self.counts: Counter[str] = Counter()

    def counted(self, found: pa.Table, history: PriceHistory, window: Window) -> pa.Table:
        """Count the fills of a window whose price the history has at their moment, beside what was found."""
        if self._are_trades:
            return found
        rows = window.rows.select(["market", "moment", "price"]).filter(pa.array(window.here))
        alike, _ = history.look_alikes(rows, history.codes(rows))
        return windows.counted(found, alike=len(first_of(alike)), compared=len(rows))

    @property
    def is_known(self) -> bool:
        """Whether prices are known to be trades without a look at them."""
        return self._are_trades

    @property
    def is_trades(self) -> bool:
        return self._are_trades or self.counts["alike"] > self.counts["compared"] * CHANCE

    def column(self) -> dict[str, str]:
        """Return the column that says what prices a result compares with."""
        return {"reference": OWN_TRADES if self.is_trades else OUTSIDE_PRICES}

    def of_groups(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Add the column to those of groups."""
        count = len(next(iter(columns.values())))
        return columns | {"reference": pa.repeat(self.column()["reference"], count)}

    def noted(self, result: Any, note: str = "") -> Any:
        """Add a note, and in pandas what trades as a reference mean."""
        return convert.with_note(convert.with_note(result, note), OWN_TRADES_NOTE if self.is_trades else "")


def rows_of(
    fills: pa.Table,
    shown: Sequence[str],
    columns: dict[str, Any],
    rates: dict[str, np.ndarray],
    names: list[str] | None,
) -> pa.Table:
    """Return the rows of a result, or what estimates by some names need of them."""
    if names is None:
        return pa.table(columns_of(fills, shown, columns, rates))
    slim = slim_rows(fills, [*names, "fill_type", "horizon"])
    return convert.with_columns(slim, {name: pa.array(values) for name, values in rates.items()})


def estimated(
    parts: Iterable[pa.Table],
    values: Values,
    keys: list[str],
    rates: Sequence[str],
    level: float,
    seed: int,
    missing: str = "unpriced",
    priced: str | None = None,
) -> tuple[dict[str, Any], str]:
    """Estimate rates of the rows of parts, and say of how many fills both sides are counted.

    Rows without the rate `priced`, by default the first, count as missing.
    """
    found = Estimates(keys, level, seed, values, missing)
    found.add(parts, rates, priced or rates[0])
    return found.columns(), found.note


def note_on_sides(frame: Any, caller: str) -> str:
    """Say of how many fills both sides are in a frame of pandas, which shows notes."""
    return PairedFills(frame, caller).note if isinstance(frame, pd.DataFrame) else ""


def columns_of(
    fills: pa.Table, shown: Sequence[str], columns: dict[str, Any], rates: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Put columns of fills, others and rates side by side."""
    fills = fills.append_column("created_at", fills["moment"].cast(TIMESTAMP))
    added = {name: pa.array(values, from_pandas=True) for name, values in rates.items()}
    return {name: fills[name] for name in shown} | columns | added
