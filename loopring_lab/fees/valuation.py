"""Fees of many tokens valued in one, by the freshest prices at or before each fill."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.limbs import ROWS_AT_ONCE, SUM, Limbs, floors, to_decimals
from loopring_lab.amounts.scaling import UNIT, combined, from_integers, to_integers
from loopring_lab.engines import convert, windows
from loopring_lab.engines.adapters import (
    DECIMAL_256,
    TIMESTAMP,
    checked_cast,
    engine_of,
    group_keys,
    open_frame,
)
from loopring_lab.engines.aggregate import PairedFills, equal
from loopring_lab.engines.arrays import NAT, encoded, places_among, sorted_by
from loopring_lab.engines.asof import OWN_BY, PLACE, TIE_BREAKERS, Placed, PriceHistory
from loopring_lab.engines.orders import ORDER, ORDER_ID, ORDER_NUMBER, SPAN, moments_of
from loopring_lab.errors import LabError, did_you_mean
from loopring_lab.fees.value_sums import Sums, part_of
from loopring_lab.query import parse_tolerance

CALLER = "lab.fees.in_token"
PAIR = ("base", "quote")
PRICED = ("created_at", *PAIR, "price")
VALUE = ("fee_value", "value_token", "within_bps", "median_age", "max_age")
SUMMED = ("fills", "unpriced", "fee", *VALUE, "both_sides")
STEPS = 3
CHUNK = 1 << 17
WITHIN = 1 << 58
"""High limbs of what has certainly not more than 37 digits."""


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
        Maximum age of the oldest price of a path; None for any age, which with `by` reads all rows into
        memory.

    Returns
    -------
    frame of the same kind
        The trades with ``fee_value`` (units of ``value_token``, which is `token`; each step truncated to 18
        decimals), ``value_path``, such as ``"LRC>ETH>USDT"``, and ``priced_at``, the time of the oldest
        price used; null where no path has prices within `tolerance`. With `by`, one row per group: ``fills``,
        ``unpriced`` (fills without a value), ``fee``, ``fee_value``, ``value_token``, ``within_bps``
        (float64, rounded up to 6 decimals), ``median_age`` and ``max_age``, how old the oldest price of each
        value was (ms), and ``both_sides``, as for `summary`; sums cover known amounts only.

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
    around: dict[str, Any] = {"prices": prices, "price_columns": PRICED, "keys": PAIR}
    in_memory = convert.is_in_memory(trades)

    def valued(window: windows.Window) -> Valued:
        fills, history = window.with_prices(CALLER, PAIR)
        if in_memory and not any(token in pair for pair in history.combinations()):
            _check_token(token, trades, prices)
        return value(window, fills, token, history, limit, later=names is not None)

    def columns_of(window: windows.Window) -> dict[str, pa.Array]:
        return valued(window).columns(token)

    if names is None:
        if not in_memory:
            _check_token(token, trades, prices)
        return windows.add_columns(trades, CALLER, needed, optional, **around, work=columns_of)

    keys = [*dict.fromkeys([*names, "fee_token"])]

    def sums_of(window: windows.Window) -> pa.Table:
        return part_of(window, valued(window), keys, paired.columns)

    paired = PairedFills(trades, CALLER)
    sums = Sums(keys, paired)
    around |= {"after": None if limit is None else 0, "ahead": True}
    parts = windows.over(trades, CALLER, needed, optional, **around, work=sums_of)
    if not in_memory:  # which a cluster finds out beside its first steps
        _check_token(token, trades, prices)
    sums.add(parts)
    groups, columns = sums.columns(names)
    columns |= {"value_token": pa.repeat(token, groups.count)}
    return paired.result(groups.key_columns() | {name: columns[name] for name in SUMMED})


def _check_token(token: Any, trades: Any, prices: Any) -> None:
    """Raise a `LabError` if there are trades, but no price and no fee is in a token."""
    frames = [(trades, ["fee_token"]), (trades if prices is None else prices, [*PAIR])]
    if isinstance(token, str) and any(_has(frame, names, token) for frame, names in frames):
        return
    found = {one for frame, names in frames for name in names for one in _distinct(frame, name)}
    known = sorted(found - {None})
    if _distinct(trades, "fee_token"):
        hint = did_you_mean(token, known, f"Known tokens: {', '.join(known) or 'none'}.")
        raise LabError(f"{CALLER}: no price and no fee is in {token!r}. {hint}")


def _has(frame: Any, names: Sequence[str], token: Any) -> bool:
    """Tell whether a token is in some columns; reads until it is found."""
    if engine_of(frame) == "dask":
        read = (convert.batches(some, names, CALLER) for some in (frame.partitions[:1], frame))
        columns = (rows[name] for rows in chain.from_iterable(read) for name in names)
        return any(equal(column.cast(pa.string()), token).any() for column in columns)
    found = nw.any_horizontal(*(nw.col(name).cast(nw.String) == token for name in names), ignore_nulls=True)
    rows = open_frame(frame, names, CALLER).filter(found)
    return bool(len(rows.head(1).lazy().collect("pyarrow")))


def _distinct(frame: Any, name: str) -> list[Any]:
    found: list[Any] = open_frame(frame, [name], CALLER).unique().lazy().collect("pyarrow")[name].to_list()
    return found


class Valued:
    """Fees in one token, and how each value came about.

    `oldest` is the time of the oldest price used, `NAT` without a value. By step of the path and row,
    `positions` are those of the price used and `later` those of the first one after the fill, -1 for none;
    `forward` is whether from base to quote. `routes` number the paths.
    """

    def __init__(self, fees: pa.Array, markets: _Markets) -> None:
        count = len(fees)
        self.fees, self.markets = fees, markets
        self.oldest, self.routes = np.full(count, NAT), np.zeros(count, np.int64)
        self.positions, self.later = (np.full((STEPS, count), -1, np.int32) for _ in range(2))
        self.forward = np.zeros((STEPS, count), bool)

    def amounts(self) -> pa.Array:
        """Convert the fees along their paths."""
        valued, numbers = self.oldest != NAT, Limbs.of(self.fees)
        numbers.known &= valued & (np.abs(numbers.high) < WITHIN)
        numerators, denominators = self.markets.history.ratios
        for start in range(0, len(valued), ROWS_AT_ONCE):
            for positions, forward in zip(self.positions, self.forward, strict=True):
                rows = start + np.flatnonzero(positions[start : start + ROWS_AT_ONCE] >= 0)
                at = positions[rows] + ~forward[rows] * len(self.markets.history)
                found, numbers.known[rows] = floors(numbers[rows], numerators[at], denominators[at])
                numbers.low[rows], numbers.high[rows] = found.low, found.high
        amounts, rest = to_decimals(numbers, DECIMAL_256), valued & ~numbers.known
        if not rest.any():
            return amounts
        others = from_integers(self._exactly(np.flatnonzero(rest)), SUM)
        return pc.replace_with_mask(amounts, pa.array(rest), checked_cast(others, DECIMAL_256, "fee_value"))

    def _exactly(self, rows: np.ndarray) -> np.ndarray:
        """Convert the fees of a few rows in Python's integers."""
        found = to_integers(self.fees.take(pa.array(rows)))
        for positions, forward in zip(self.positions[:, rows], self.forward[:, rows], strict=True):
            prices = to_integers(self.markets.history.take(positions))
            for place in np.flatnonzero(positions >= 0):
                factor, divisor = (prices[place], UNIT) if forward[place] else (UNIT, prices[place])
                found[place] = found[place] * factor // divisor
        return found

    def columns(self, token: str) -> dict[str, pa.Array]:
        """Return what is added to trades."""
        unknown = self.oldest == NAT
        routes = pa.array(self.routes, mask=unknown).dictionary_encode()
        paths = pa.array([*map(self.markets.path, routes.dictionary.to_pylist())], pa.string())
        return {
            "fee_value": self.amounts(),
            "value_token": pa.repeat(token, len(unknown)),
            "value_path": paths.take(routes.indices),
            "priced_at": pa.array(self.oldest, TIMESTAMP, mask=unknown),
        }


def value(
    window: windows.Window,
    fills: pa.Table,
    token: str,
    history: PriceHistory,
    limit: int | None,
    *,
    later: bool,
) -> Valued:
    """Value the fees of a window's own fills, in one token; the others tell what belongs to their orders.

    Prices after the fills, which sums need, leave out own ones only if `later`.
    """
    own, rows = window.own(fills.select(["moment", "fee", "fee_token"])), np.flatnonzero(window.inside)
    markets, moments = _Markets(history, token), moments_of(own)
    found = Valued(combined(own["fee"]), markets)
    units = places_among(encoded(own["fee_token"]), pa.array(markets.tokens, pa.string()))
    known = np.flatnonzero(np.asarray(found.fees.is_valid()) & (moments != NAT) & (units >= 0))
    known = known[sorted_by(moments[known])]
    units, lookups = units[known], _Lookups(fills, rows, moments, markets, later)
    plans = [_Plan(markets, unit) for unit in range(len(markets.tokens))]
    for start in range(0, len(known), CHUNK):
        some = units[start : start + CHUNK]
        lookups.look_at(known[start : start + CHUNK])
        ends = np.cumsum(np.bincount(some, minlength=len(plans)))
        for plan, mine in zip(plans, np.split(sorted_by(some), ends[:-1]), strict=True):
            if len(mine):
                plan.follow(mine, lookups, limit, found)
    return found


class _Markets:
    """Tokens by number in the order of their names, and the markets between them, by number as well.

    The steps of a path are the digits, to `radix`, of one number: the lowest is the first step, and has the
    number of its market and whether it goes from base to quote.
    """

    def __init__(self, history: PriceHistory, token: str) -> None:
        self.history, self.pairs = history, history.combinations()
        self.tokens = sorted({token, *(one for pair in self.pairs for one in pair)})
        number_of = {name: number for number, name in enumerate(self.tokens)}
        self.token, self.radix = number_of[token], 2 * len(self.pairs) + 1
        self.links: dict[int, list[tuple[int, int]]] = {}
        for number, pair in enumerate(self.pairs):
            ends = [number_of[one] for one in pair]
            for forward, (here, there) in enumerate((ends[::-1], ends)):
                self.links.setdefault(here, []).append((there, 2 * number + forward + 1))

    def path(self, route: int) -> str:
        """Return the tokens of a path, from its steps and the number of its first token."""
        steps, token = divmod(route, len(self.tokens))
        names = [self.tokens[token]]
        while steps:
            steps, digit = divmod(steps, self.radix)
            names.append(self.pairs[(digit - 1) // 2][(digit - 1) % 2])
        return ">".join(names)


class _Lookups:
    """The last price of each market at or before fills, but not their own, and the first one after them."""

    def __init__(
        self, fills: pa.Table, rows: np.ndarray, moments: np.ndarray, markets: _Markets, later: bool
    ) -> None:
        self.history, self.moments = markets.history, moments
        self.codes, self.starts, self.stops = self.history.runs
        self.own = np.full(len(rows), -1)
        if {*PAIR} <= {*fills.column_names}:
            known = {"moment", *PAIR, *OWN_BY, *PLACE, ORDER_ID, ORDER_NUMBER, *SPAN} & {*fills.column_names}
            lookup, times = self.history.lookup(fills.select([*known])), moments_of(fills)
            number_of = np.full(self.history.code_count + 1, -1)
            number_of[self.codes] = np.arange(len(self.codes))
            self.own = number_of[lookup.codes[rows]]
            self.own_last = lookup.before(times)[rows]
            self.own_next = lookup.after(times)[rows] if later else self.own_last
        self.placed = Placed.of_rows(fills).of(rows)

    def look_at(self, rows: np.ndarray) -> None:
        """Choose rows in the order of time; `of` is for some of them."""
        self.rows, self._times, self._later = rows, self.moments[rows], dict[int, np.ndarray]()

    def of(self, some: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return positions for some of the chosen rows in each of the numbered markets, and their times.

        These are the last one, -1 for none; its time; and the next one, -1 or of another market for none.
        """
        rows, place_of = self.rows[some], np.full(len(self.codes) + 1, -1)
        later = np.empty((len(numbers), len(rows)), np.int64)
        for place, number in enumerate(numbers.tolist()):
            self._later_in(number).take(some, out=later[place], mode="clip")
        last = later - 1
        times = self.history.times_at(last)
        for place, start in enumerate(self.starts[numbers].tolist()):
            none = np.searchsorted(later[place], start, "right")
            last[place, :none], times[place, :none] = -1, NAT
        place_of[numbers] = np.arange(len(numbers))
        places = place_of[self.own[rows]]
        own = np.flatnonzero(places >= 0)
        cells, mine = places[own] * len(rows) + own, rows[own]
        self._settle_blocks(last, times, rows, numbers, cells)
        last.ravel()[cells], later.ravel()[cells] = self.own_last[mine], self.own_next[mine]
        times.ravel()[cells] = self.history.times_at(self.own_last[mine])
        return last, times, later

    def _later_in(self, number: int) -> np.ndarray:
        """Return the first position of a market after each of the chosen rows, or of the next market."""
        if number not in self._later:
            start, moments = self.starts[number], self._times
            times = self.history.times[start : self.stops[number]]
            first, end = np.searchsorted(times, moments[[0, -1]], "right")
            if end - first > len(moments):
                later = np.searchsorted(times, moments, "right")
            else:
                later = np.bincount(np.searchsorted(moments, times[first:end]), minlength=len(moments))
                later[0] += first
                later.cumsum(out=later)
            later += start
            self._later[number] = later
        return self._later[number]

    def _settle_blocks(
        self, last: np.ndarray, times: np.ndarray, rows: np.ndarray, numbers: np.ndarray, own: np.ndarray
    ) -> None:
        """Move positions before the prices of a row's own block that come after its place there."""
        is_same = times == self.placed.moments[rows]
        is_same.ravel()[own] = False
        at = np.divmod(np.flatnonzero(is_same), len(rows))
        at = tuple(column[times[at] != NAT] for column in at)
        found = self.history.up_to(last[at], self.placed.of(rows[at[1]]))
        last[at] = np.where(self.history.has(self.codes[numbers[at[0]]], found), found, -1)
        times[at] = self.history.times_at(last[at])


class _Plan:
    """The tokens and markets that paths from one token can go through, by the number of markets left."""

    def __init__(self, markets: _Markets, unit: int) -> None:
        self.markets, self.unit = markets, unit
        nearest = {there for there, _ in markets.links.get(unit, [])}
        tokens = [set(markets.links), {unit, *nearest}, {unit}]
        self.links: list[dict[int, list[tuple[int, int]]]] = []
        reached: set[int] = set()
        for step, here in enumerate(tokens):
            ahead = reached - {unit} if step else {markets.token}
            links = {one: self._links(one, ahead) for one in sorted(here - {markets.token})}
            self.links.append({one: some for one, some in links.items() if some or one in reached})
            reached = {*self.links[-1]}
        used = {(digit - 1) >> 1 for links in self.links for some in links.values() for _, digit in some}
        self.numbers = np.array(sorted(used), np.int64)
        self.place = np.zeros(len(markets.pairs), np.int64)
        self.place[self.numbers] = np.arange(len(self.numbers))

    def _links(self, here: int, ahead: set[int]) -> list[tuple[int, int]]:
        return [(there, digit) for there, digit in sorted(self.markets.links.get(here, [])) if there in ahead]

    def follow(self, some: np.ndarray, lookups: _Lookups, limit: int | None, found: Valued) -> None:
        """Find the freshest path, the shortest of equals, for some of the rows that lookups look at."""
        rows = lookups.rows[some]
        moments, found.routes[rows] = lookups.moments[rows], self.unit
        if self.unit == self.markets.token:
            found.oldest[rows] = moments
            return
        last, times, later = lookups.of(some, self.numbers)
        oldest, steps = self._freshest(times)
        valued = np.flatnonzero(oldest > NAT if limit is None else oldest >= moments - limit)
        rows, steps = rows[valued], np.broadcast_to(steps, len(oldest))[valued]
        found.oldest[rows] = oldest[valued]
        found.routes[rows] += steps * len(self.markets.tokens)
        for step in range(STEPS):
            ahead = steps // self.markets.radix
            digits, steps = steps - ahead * self.markets.radix, ahead
            moved = np.flatnonzero(digits > 0)
            at, digits = rows[moved], digits[moved] - 1
            numbers = digits >> 1
            cells = self.place[numbers] * len(oldest) + valued[moved]
            after = later.take(cells)
            found.positions[step][at] = last.take(cells)
            found.later[step][at] = np.where(after < lookups.stops[numbers], after, -1)
            found.forward[step][at] = digits & 1

    def _freshest(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the time of the oldest price on the freshest path, `NAT` for none, and its steps."""
        known: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for links in self.links:
            found = dict(known)
            for here, some in links.items():
                for there, digit in some:
                    oldest, steps = times[self.place[(digit - 1) >> 1]], np.array(digit)
                    if known:
                        oldest = np.minimum(oldest, known[there][0])
                        steps = known[there][1] * self.markets.radix + digit
                    if here in found:
                        best, chosen = found[here]
                        steps = np.where(oldest > best, steps, chosen)
                        oldest = np.maximum(oldest, best)
                    found[here] = oldest, steps
            known = found
        return known.get(self.unit, (np.full(times.shape[1], NAT), np.array(0)))
