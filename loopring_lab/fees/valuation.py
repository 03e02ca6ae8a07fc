"""Fees of many tokens valued in one, by the freshest prices at or before each fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.limbs import SUM, divide, multiply
from loopring_lab.amounts.scaling import floats
from loopring_lab.engines import convert, windows
from loopring_lab.engines.adapters import DECIMAL_256, TIMESTAMP, checked_cast, group_keys, open_frame
from loopring_lab.engines.aggregate import DAY, GroupBy, PairedFills
from loopring_lab.engines.arrays import NAT, encoded, places_among
from loopring_lab.engines.asof import (
    ORDER,
    OWN_BY,
    PLACE,
    TIE_BREAKERS,
    Lookup,
    PriceHistory,
    moments_of,
    parse_tolerance,
    places_of_blocks,
)
from loopring_lab.errors import LabError, did_you_mean
from loopring_lab.fees.value_sums import Moves, Sums, log_prices, uncertainty

CALLER = "fees.in_token"
PAIR = ("base", "quote")
PRICED = ("created_at", *PAIR, "price")
SUMMED = (
    "fills",
    "unpriced",
    "fee",
    "fee_value",
    "value_token",
    "within_bps",
    "median_age",
    "max_age",
)
STEPS = 3
CHUNK = 1 << 15
LATER = 7 * DAY
"""Prices after a fill are told from those of its own order within so many ms."""


def in_token(
    trades: Any,
    token: str,
    prices: Any = None,
    by: str | Sequence[str] | None = None,
    tolerance: str | pd.Timedelta | None = "7d",
) -> Any:
    """Value each fill's fee in one token.

    The value follows a path of at most three markets from the fee token to `token`, using the last price at
    or before the fill in each: of all such paths the one whose oldest price is the most recent, and of
    equally recent ones the shortest. Later prices are never used, nor a fill's own price, its counterpart's
    or that of another fill of its order: they carry the cost of that trade.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`.
    token : str
        Symbol to value fees in, such as ``"USDT"``.
    prices : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark, optional
        Prices or trades to take prices from: ``created_at``, ``base``, ``quote`` and ``price``. By default
        `trades`; the prices of an account that trades rarely are old, those of a busier one, of all accounts
        or of a price file are better.
    by : str or sequence of str, optional
        Sum by these columns and ``fee_token``; ``[]`` for ``fee_token`` alone.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the oldest price of a path; None for any age, which reads all rows into memory.

    Returns
    -------
    frame of the same kind
        The trades with ``fee_value`` (units of ``value_token``, which is `token`; each step truncated to 18
        decimals), ``value_path``, such as ``"LRC>ETH>USDT"``, and ``priced_at``, the time of the oldest
        price used; null where no path has prices within `tolerance`. With `by`, one row per group: ``fills``,
        ``unpriced`` (fills without a value), ``fee``, ``fee_value``, ``value_token``, ``within_bps``
        (float64), ``median_age`` and ``max_age``, how old the oldest price of each value was (ms), and
        ``both_sides``, as for `summary`; sums cover known amounts only.

    Raises
    ------
    LabError, AmountError
        As for `with_tiers`, or no market trades `token`, a value does not fit, or `tolerance` is not valid.

    Notes
    -----
    Prices are estimates, so a sum has fewer certain digits than it prints: ``within_bps`` says how far, in
    basis points of ``fee_value``, it may be from the sum at true prices, in 19 of 20 cases. It adds up how
    much the prices of the markets used vary over the time that passed and from one trade to the next, all
    fills at one price being off together, and how much the sum would change at the first prices after the
    fills, which tells where an account trades when prices move. For
    several groups, add up their errors. `show` cuts ``fee_value`` after the first digit that is uncertain.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fees.in_token(trades, "USDC", by=[])[["fee_token", "fee", "fee_value"]].tail(2)
      fee_token                   fee             fee_value
    8      USDT  5.019345000000000000  4.996739944847081109
    9      WBTC  0.000021820000000000  0.819385962311854916
    """
    own_columns = ("fee_value", "value_token", "within_bps", "age")
    names = None if by is None else group_keys(by, CALLER, *own_columns, frame=trades)
    limit = parse_tolerance(tolerance, CALLER)
    needed = ["created_at", "fee_token", "fee", *(names or [])]
    optional = (*PAIR, *TIE_BREAKERS, *ORDER)
    around: dict[str, Any] = {"prices": prices, "price_columns": PRICED, "before": limit}
    is_whole = limit is None or convert.is_in_memory(trades)
    if not is_whole:
        _check_token(token, *_tokens(trades, prices))

    def valued(window: windows.Window) -> tuple[np.ndarray, Valued, PriceHistory]:
        if is_whole:
            _check_token(token, *_tokens(window.rows, window.prices))
        history, rows = PriceHistory(window.prices, CALLER, PAIR), np.flatnonzero(window.inside)
        return rows, value(window.rows, rows, token, history, limit), history

    def columns_of(window: windows.Window) -> dict[str, pa.Array]:
        return valued(window)[1].columns(token)

    if names is None:
        return windows.add_columns(trades, CALLER, needed, optional, **around, after=0, work=columns_of)
    moves = None if is_whole else _moves(trades if prices is None else prices)

    def rows_of(window: windows.Window) -> pa.Table:
        return _to_sum(window, *valued(window), names, moves)

    sums = Sums([*names, "fee_token"], limit, STEPS)
    around |= {"after": LATER, "next_by": PAIR}
    for part in windows.over(trades, CALLER, needed, optional, **around, work=rows_of):
        sums.add(part)
    groups, columns = sums.columns()
    columns |= {"value_token": pa.repeat(token, groups.count)}
    return PairedFills(trades, CALLER).summary(
        groups,
        groups.key_columns() | {name: columns[name] for name in SUMMED},
        around=GroupBy(groups.table, names),
    )


def _to_sum(
    window: windows.Window,
    rows: np.ndarray,
    found: Valued,
    history: PriceHistory,
    names: list[str],
    moves: Moves | None,
) -> pa.Table:
    """Return the rows of a window with their values, the ages of the prices, and what is uncertain."""
    fills = window.rows.select([*dict.fromkeys([*names, "fee_token", "fee"])]).take(pa.array(rows))
    moments, amounts = moments_of(window.rows)[rows], np.nan_to_num(floats(found.amounts))
    added = {
        "fee_value": checked_cast(found.amounts, DECIMAL_256, "fee_value"),
        "moment": pa.array(moments),
        "age": pa.array(moments - found.oldest, mask=found.oldest == NAT),
    }
    logs = log_prices(history)
    moves = moves or Moves.of(history, logs)
    added |= uncertainty(amounts, moments, *found[3:], history, logs, moves)
    for name, column in added.items():
        fills = fills.append_column(name, column)
    return fills


def _tokens(trades: Any, prices: Any) -> tuple[set[str], bool]:
    """Return the tokens of prices and fees, and whether there are trades."""
    fees = _distinct(trades, "fee_token")
    priced = [_distinct(trades if prices is None else prices, name) for name in PAIR]
    return {one for some in (fees, *priced) for one in some if one is not None}, bool(fees)


def _distinct(frame: Any, name: str) -> list[Any]:
    rows = open_frame(frame, [name], CALLER).unique().lazy().collect("pyarrow")
    found: list[Any] = rows[name].to_list()
    return found


def _check_token(token: Any, known: set[str], there_are_trades: bool) -> None:
    """Raise a `LabError` if no price and no fee is in a token."""
    if there_are_trades and token not in sorted(known):
        hint = did_you_mean(token, sorted(known), f"Known tokens: {', '.join(sorted(known)) or 'none'}.")
        raise LabError(f"{CALLER}: no price and no fee is in {token!r}. {hint}")


def _moves(prices: Any) -> Moves:
    """Look at all prices of a frame of any engine, window by window."""

    def own(window: windows.Window) -> pa.Table:
        return Moves.rows(PriceHistory(window.own(window.rows), CALLER, PAIR))

    moves = Moves()
    for part in windows.over(prices, CALLER, PRICED, (*TIE_BREAKERS, *ORDER), before=0, after=0, work=own):
        moves.add(part)
    return moves


class Valued(NamedTuple):
    """Amounts in one token, and how each came about.

    The time of the oldest price used, `NAT` without a value; the path as text; by step of the path, the
    positions of the price used and of the first one after the fill, -1 for none, and the direction.
    """

    amounts: pa.Array
    oldest: np.ndarray
    paths: pa.Array
    positions: np.ndarray
    later: np.ndarray
    forward: np.ndarray

    def columns(self, token: str) -> dict[str, pa.Array]:
        """Return what is added to trades."""
        return {
            "fee_value": checked_cast(self.amounts, DECIMAL_256, "fee_value"),
            "value_token": pa.repeat(token, len(self.amounts)),
            "value_path": self.paths,
            "priced_at": pa.array(self.oldest, TIMESTAMP, mask=self.oldest == NAT),
        }


def value(fills: pa.Table, rows: np.ndarray, token: str, history: PriceHistory, limit: int | None) -> Valued:
    """Value the fees of some rows of fills, which are all that is known of their orders, in one token."""
    markets = _Markets(history, token)
    found = _Found(len(rows), markets)
    moments, units = moments_of(fills)[rows], _token_numbers(fills["fee_token"], markets)[rows]
    known = np.asarray(fills["fee"].is_valid())[rows] & (moments != NAT)
    lookups = _Lookups(fills, rows, moments, history, markets)
    for unit in np.unique(units[known & (units >= 0)]).tolist():
        plan = _Plan(markets, unit)
        mine = np.flatnonzero(known & (units == unit))
        mine = mine[np.argsort(moments[mine], kind="stable")]
        for start in range(0, len(mine), CHUNK):
            plan.follow(mine[start : start + CHUNK], lookups, limit, found)
    return found.valued(fills["fee"].take(pa.array(rows)))


class _Markets:
    """Tokens by number in the order of their names, and the markets between them, by number as well."""

    def __init__(self, history: PriceHistory, token: str) -> None:
        self.history, self.pairs = history, history.combinations()
        self.tokens = sorted({token, *(one for pair in self.pairs for one in pair)})
        self.token = self.tokens.index(token)
        self.ends = np.array([[*map(self.tokens.index, pair)] for pair in self.pairs]).reshape(-1, 2)
        codes, self.starts, self.stops = history.runs
        self.number_of = np.full(history.code_count + 1, -1)
        self.number_of[codes] = np.arange(len(codes))
        self.links: dict[int, list[tuple[int, int]]] = {}
        for number, ends in enumerate(self.ends.tolist()):
            for here, there in (ends, ends[::-1]):
                self.links.setdefault(here, []).append((there, number))


def _token_numbers(column: pa.ChunkedArray, markets: _Markets) -> np.ndarray:
    return places_among(encoded(column), pa.array(markets.tokens, pa.string()))


class _Lookups:
    """The last price of each market at or before fills, but not their own, and the first one after them."""

    def __init__(
        self, fills: pa.Table, rows: np.ndarray, moments: np.ndarray, history: PriceHistory, markets: _Markets
    ) -> None:
        self.moments, self.history, self.markets = moments, history, markets
        self.own = np.full(len(rows), -1)
        if {*PAIR} <= {*fills.column_names}:
            known = [name for name in ("moment", *PAIR, *OWN_BY, *PLACE) if name in fills.column_names]
            lookup, times = history.lookup(fills.select(known)), moments_of(fills)
            self.own = markets.number_of[lookup.codes[rows]]
            self.own_last = lookup.before(times)[rows]
            self.own_next = self._first_after(lookup, times)[rows]
        self.places = places_of_blocks(fills).take(pa.array(rows))
        self.is_placed = np.asarray(self.places[PLACE[1]].is_valid())

    @staticmethod
    def _first_after(lookup: Lookup, times: np.ndarray) -> np.ndarray:
        """Find the first price after each time, whose own ones are known within `LATER` only."""
        places = lookup.after(times, within=LATER)
        far = np.flatnonzero((places < 0) & (times != NAT))
        found = lookup.history.first_later(lookup.codes[far], times[far] + LATER, at_moment=False)
        places[far] = np.where(lookup.history.has(lookup.codes[far], found), found, -1)
        return places

    def of(self, rows: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return both positions for rows in the order of time, in each of the numbered markets; else -1."""
        moments, shape = self.moments[rows], (len(numbers), len(rows))
        last, later = np.empty(shape, np.int64), np.empty(shape, np.int64)
        for place, number in enumerate(numbers.tolist()):
            start, stop = self.markets.starts[number], self.markets.stops[number]
            end = start + self._passed(self.history.times[start:stop], moments)
            last[place], later[place] = np.where(end > start, end - 1, -1), np.where(end < stop, end, -1)
        self._settle_blocks(last, rows)
        place_of = np.full(len(self.markets.pairs) + 1, -1)
        place_of[numbers] = np.arange(len(numbers))
        places = place_of[self.own[rows]]
        own = np.flatnonzero(places >= 0)
        last[places[own], own], later[places[own], own] = self.own_last[rows[own]], self.own_next[rows[own]]
        return last, later

    @staticmethod
    def _passed(times: np.ndarray, moments: np.ndarray) -> np.ndarray:
        """Count the times at or before each moment; both are in order."""
        first, end = np.searchsorted(times, moments[[0, -1]], "right")
        if end - first > len(moments):
            return np.searchsorted(times, moments, "right")
        counts = np.bincount(np.searchsorted(moments, times[first:end]), minlength=len(moments))
        return np.asarray(first + counts.cumsum())

    def _settle_blocks(self, last: np.ndarray, rows: np.ndarray) -> None:
        """Move positions before the prices of a row's own block that come after its place there."""
        placed = np.flatnonzero(self.is_placed[rows])
        at = last[:, placed]
        markets, some = np.nonzero(self.history.times_at(at) == self.moments[rows[placed]])
        if len(some):
            codes, own = self.history.code_at(at[markets, some]), rows[placed[some]]
            found = self.history.last_at(codes, self.moments[own], self.places.take(pa.array(own)))
            last[markets, placed[some]] = np.where(self.history.has(codes, found), found, -1)


class Step(NamedTuple):
    """The markets that rows go through, -1 for none, whether from base to quote, and positions of prices."""

    numbers: np.ndarray
    forward: np.ndarray
    last: np.ndarray
    later: np.ndarray


class _Plan:
    """The tokens and markets that paths from one token can go through, by the number of markets left."""

    def __init__(self, markets: _Markets, unit: int) -> None:
        self.markets, self.unit = markets, unit
        nearest = [there for there, _ in markets.links.get(unit, [])]
        tokens = [set(markets.links), {unit, *nearest}, {unit}]
        self.links: list[dict[int, list[tuple[int, int]]]] = []
        reached: set[int] = set()
        for step, here in enumerate(tokens):
            ahead = reached if step else {markets.token}
            links = {one: self._links(one, ahead) for one in sorted(here - {markets.token})}
            self.links.append({one: some for one, some in links.items() if some or one in reached})
            reached = {*self.links[-1]}
        used = {number for links in self.links for some in links.values() for _, number in some}
        self.numbers = np.array(sorted(used), np.int64)
        self.place = {number: place for place, number in enumerate(self.numbers.tolist())}

    def _links(self, here: int, ahead: set[int]) -> list[tuple[int, int]]:
        return [
            (there, number) for there, number in sorted(self.markets.links.get(here, [])) if there in ahead
        ]

    def follow(self, rows: np.ndarray, lookups: _Lookups, limit: int | None, found: _Found) -> None:
        """Find the freshest path, the shortest of equals, for rows in the order of time."""
        moments = lookups.moments[rows]
        if self.unit == self.markets.token:
            found.add(rows, moments, self.unit, [])
            return
        last, later = lookups.of(rows, self.numbers)
        times = self.markets.history.times_at(last)
        oldest, hops = self._freshest(times)
        if oldest is None:
            return
        valued = np.flatnonzero(oldest != NAT)
        if limit is not None:
            valued = valued[moments[valued] - oldest[valued] <= limit]
        at, steps = np.full(len(valued), self.unit), []
        for level in reversed(hops):
            hop = np.full(len(valued), -1)
            for here, chosen in level.items():
                hop = np.where(at == here, chosen[valued], hop)
            moved = hop >= 0
            number = self.numbers[hop]
            forward = self.markets.ends[number, 0] == at
            at = np.where(moved, self.markets.ends[number, forward.astype(np.int64)], at)
            gone = (np.where(moved, positions[hop, valued], -1) for positions in (last, later))
            steps.append(Step(np.where(moved, number, -1), forward, *gone))
        found.add(rows[valued], oldest[valued], self.unit, steps)

    def _freshest(self, times: np.ndarray) -> tuple[np.ndarray | None, list[dict[int, np.ndarray]]]:
        """Return the time of the oldest price on the freshest path, and the market to take next by token."""
        known: dict[int, np.ndarray] = {}
        hops: list[dict[int, np.ndarray]] = []
        for links in self.links:
            found, level = dict(known), {}
            for here, some in links.items():
                best = known.get(here)
                hop = np.full(times.shape[1], -1)
                for there, number in some:
                    place = self.place[number]
                    through = np.minimum(times[place], known[there]) if hops else times[place]
                    better = through > (NAT if best is None else best)
                    hop[better] = place
                    best = through if best is None else np.maximum(through, best)
                if best is not None:
                    found[here], level[here] = best, hop
            known = found
            hops.append(level)
        return known.get(self.unit), hops


class _Found:
    """Paths found for rows, part by part; a path is the number of its token and of its markets."""

    def __init__(self, count: int, markets: _Markets) -> None:
        self.markets, self.base = markets, len(markets.pairs) + 1
        self.oldest, self.route = np.full(count, NAT, np.int64), np.zeros(count, np.int64)
        self.positions, self.later = (np.full((count, STEPS), -1, np.int32) for _ in range(2))
        self.forward = np.zeros((count, STEPS), bool)

    def add(self, rows: np.ndarray, oldest: np.ndarray, unit: int, steps: list[Step]) -> None:
        """Add rows that have a path, by its steps."""
        self.oldest[rows] = oldest
        route = np.full(len(rows), unit if steps else unit * self.base**STEPS)
        for place, step in enumerate(steps):
            route = route * self.base + step.numbers + 1
            self.positions[rows, place], self.later[rows, place] = step.last, step.later
            self.forward[rows, place] = step.forward
        self.route[rows] = route

    def valued(self, fees: pa.ChunkedArray) -> Valued:
        """Convert the fees along their paths, those of one path together."""
        rows = np.flatnonzero(self.oldest != NAT)
        routes = pa.array(self.route[rows]).dictionary_encode()
        numbers = routes.indices.to_numpy()
        order = rows[np.argsort(numbers.astype(np.min_scalar_type(len(routes.dictionary))), kind="stable")]
        ends = np.bincount(numbers, minlength=len(routes.dictionary)).cumsum()
        texts, parts = [], [pa.array([], SUM)]
        for route, mine in zip(routes.dictionary.to_pylist(), np.split(order, ends[:-1]), strict=False):
            names, steps = self._path(route)
            texts.append(">".join(names))
            amounts = fees.take(pa.array(mine)).combine_chunks().cast(SUM)
            for place, forward in steps:
                prices = self.markets.history.take(self.positions[mine, place])
                amounts = multiply(amounts, prices) if forward else divide(amounts, prices)
            parts.append(amounts)
        places = np.full(len(self.oldest), -1)
        places[order] = np.arange(len(order))
        amounts = pa.concat_arrays(parts).take(pa.array(places, mask=places < 0))
        places[rows] = numbers
        paths = pa.array(texts, pa.string()).take(pa.array(places, mask=places < 0))
        return Valued(amounts, self.oldest, paths, self.positions, self.later, self.forward)

    def _path(self, route: int) -> tuple[list[str], list[tuple[int, bool]]]:
        """Return the tokens of a path, and its steps as the place of each and its direction."""
        digits = [route // self.base**place % self.base for place in range(STEPS - 1, -1, -1)]
        names, steps = [self.markets.tokens[route // self.base**STEPS]], []
        for place, digit in enumerate(digits):
            if digit:
                pair = self.markets.pairs[digit - 1]
                steps.append((place, pair[0] == names[-1]))
                names.append(pair[steps[-1][1]])
        return names, steps
