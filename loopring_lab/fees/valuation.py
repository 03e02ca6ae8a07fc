"""Fees of many tokens valued in one, by the freshest prices at or before each fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.scaling import UNIT, floats, from_integers, is_none, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import DECIMAL_256, TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import GroupBy, PairedFills, equal
from loopring_lab.engines.arrays import NAT
from loopring_lab.engines.asof import (
    OWN_BY,
    PLACE,
    PriceHistory,
    moments_of,
    parse_tolerance,
    places_of_blocks,
)
from loopring_lab.errors import LabError, did_you_mean

CALLER = "fees.in_token"
PAIR = ("base", "quote")
STEPS = 3
CHUNK = 1 << 16
AGES = pa.duration("ms")
DEVIATIONS = 1.96  # 95 % of a normal distribution


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
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    token : str
        Symbol to value fees in, such as ``"USDT"``.
    prices : frame of pandas, pyarrow or Polars, optional
        Prices or trades to take prices from: ``created_at``, ``base``, ``quote`` and ``price``. By default
        `trades`; the prices of an account that trades rarely are old, those of a busier one, of all accounts
        or of a price file are better.
    by : str or sequence of str, optional
        Sum by these columns and ``fee_token``; ``[]`` for ``fee_token`` alone.
    tolerance : str or pandas.Timedelta, optional
        Maximum age of the oldest price of a path; None for any age.

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
    fills, which tells where an account trades when prices move. For several groups, add up their errors.
    `show` cuts ``fee_value`` after the first digit that is uncertain.

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
    fills = convert.to_table(trades, CALLER, needed, (*PAIR, *OWN_BY, *PLACE, "side"))
    history = PriceHistory(trades if prices is None else prices, CALLER, PAIR)
    known = sorted(
        {one for pair in history.combinations() for one in pair}
        | {*fills["fee_token"].drop_null().to_pylist()}
    )
    if len(fills) and token not in known:
        hint = did_you_mean(token, known, f"Known tokens: {', '.join(known) or 'none'}.")
        raise LabError(f"{CALLER}: no price and no fee is in {token!r}. {hint}")
    valued = value(fills, "fee", "fee_token", token, history, limit)
    columns = {
        "fee_value": from_integers(valued.amounts, DECIMAL_256),
        "value_token": pa.array([token] * len(fills), pa.string()),
        "value_path": pa.array(valued.paths, pa.string()),
        "priced_at": pa.array(valued.oldest, TIMESTAMP, mask=valued.oldest == NAT),
    }
    if names is None:
        return convert.with_columns(trades, columns)
    age = pa.array(moments_of(fills) - valued.oldest, mask=valued.oldest == NAT)
    table = fills.append_column("fee_value", columns["fee_value"]).append_column("age", age)
    groups = GroupBy(table, [*names, "fee_token"])
    median = age.to_pandas().groupby(groups.ids).median().round()
    sums = {
        "fills": np.bincount(groups.ids, minlength=groups.count),
        "unpriced": np.bincount(groups.ids[is_none(valued.amounts)], minlength=groups.count),
        "fee": groups.sum("fee"),
        "fee_value": groups.sum("fee_value"),
        "value_token": pa.array([token] * groups.count, pa.string()),
        "within_bps": _Errors(valued, fills, history).bps(groups),
        "median_age": pa.array(median, pa.int64(), from_pandas=True).cast(AGES),
        "max_age": groups.aggregate("age", "max").cast(AGES),
    }
    return PairedFills(trades, CALLER).summary(
        groups, groups.key_columns() | sums, around=GroupBy(table, names)
    )


class Step(NamedTuple):
    """Rows converted in one market, from base to quote or back, and the positions of their prices."""

    rows: np.ndarray
    positions: np.ndarray
    pair: tuple[str, ...]
    forward: bool


class Valued(NamedTuple):
    """Amounts in one token, as unscaled integers or None, the time of the oldest price used, and the path."""

    amounts: np.ndarray
    oldest: np.ndarray
    paths: np.ndarray
    steps: list[Step]


def value(
    fills: pa.Table, amount: str, unit: str, token: str, history: PriceHistory, limit: int | None
) -> Valued:
    """Value a column of fills, in the tokens another names, in one token; prices have the keys `PAIR`."""
    amounts, units = to_integers(fills[amount]), np.array(fills[unit].to_pylist(), object)
    oldest, paths = np.full(len(fills), NAT, np.int64), np.full(len(fills), None, object)
    values, steps, known = np.full(len(fills), None, object), [], ~is_none(amounts)
    for start in range(0, len(fills), CHUNK):
        part = slice(start, start + CHUNK)
        found = _Paths(fills[part], token, history)
        age = np.where(known[part], found.oldest(units[part], limit), NAT)
        rows = np.flatnonzero(age != NAT)
        taken = found.follow(rows, amounts[part][rows], units[part][rows])
        oldest[part], values[part][rows], paths[part][rows] = age, taken.amounts, taken.paths
        steps += [step._replace(rows=start + rows[step.rows]) for step in taken.steps]
    return Valued(values, oldest, paths, steps)


class _Paths:
    """The path with the freshest oldest price from every token to one, for each fill of a chunk.

    `levels` hold, for one market more each, the pair to go through next; -1 where fewer steps do as well.
    """

    def __init__(self, fills: pa.Table, token: str, history: PriceHistory) -> None:
        self.token, self.history, self.pairs = token, history, history.combinations()
        self.moments = moments_of(fills)
        self.positions = list(self._last_prices(fills))
        self.times = [history.times_at(positions) for positions in self.positions]
        self.links: dict[str, list[tuple[str, int]]] = {}
        for number, (base, quote) in enumerate(self.pairs):
            for here, there in ((base, quote), (quote, base)):
                self.links.setdefault(here, []).append((there, number))
        self.freshest = {token: self.moments}
        self.levels = [self._one_market_more() for _ in range(STEPS)]

    def _last_prices(self, fills: pa.Table) -> Iterator[np.ndarray]:
        """Find the last price of each pair at or before each fill, but not its own."""
        has_pair = {*PAIR} <= {*fills.column_names}
        own = self.history.lookup(fills).before(self.moments) if has_pair else None
        placed = places_of_blocks(fills)
        others = {name: placed[name] for name in placed.column_names}
        for pair in self.pairs:
            columns = {name: pa.repeat(one, len(fills)) for name, one in zip(PAIR, pair, strict=True)}
            positions = self.history.lookup(pa.table(others | columns)).before(self.moments)
            if own is not None:
                mine = equal(fills["base"], pair[0]) & equal(fills["quote"], pair[1])
                positions = np.where(mine, own, positions)
            yield positions

    def _one_market_more(self) -> dict[str, np.ndarray]:
        found, hops = dict(self.freshest), {}
        for here in self.links.keys() - {self.token}:
            best = self.freshest.get(here, np.full(len(self.moments), NAT))
            hop = np.full(len(best), -1)
            for there, number in sorted(self.links[here]):
                if there in self.freshest:
                    through = np.minimum(self.times[number], self.freshest[there])
                    hop = np.where(through > best, number, hop)
                    best = np.maximum(through, best)
            found[here], hops[here] = best, hop
        self.freshest = found
        return hops

    def oldest(self, units: np.ndarray, limit: int | None) -> np.ndarray:
        """Return the time of the oldest price on each fill's path; `NAT` where it is beyond the limit."""
        oldest = np.full(len(units), NAT)
        for unit in set(units) & self.freshest.keys():
            oldest = np.where(units == unit, self.freshest[unit], oldest)
        if limit is not None:
            oldest[self.moments - oldest > limit] = NAT
        return oldest

    def follow(self, rows: np.ndarray, amounts: np.ndarray, units: np.ndarray) -> Valued:
        """Convert the amounts of rows along their paths."""
        amounts, units, paths, steps = amounts.copy(), units.copy(), units.copy(), []
        for hops in reversed(self.levels):
            before = units.copy()
            for here in sorted(set(before) & hops.keys()):
                places = np.flatnonzero(before == here)
                numbers = hops[here][rows[places]]
                for number in np.unique(numbers[numbers >= 0]).tolist():
                    moved, pair = places[numbers == number], self.pairs[number]
                    positions = self.positions[number][rows[moved]]
                    prices, forward = self.history.integers(positions), pair[0] == here
                    old = amounts[moved]
                    amounts[moved] = old * prices // UNIT if forward else old * UNIT // prices
                    units[moved] = pair[forward]
                    paths[moved] += f">{pair[forward]}"
                    steps.append(Step(moved, positions, pair, forward))
        return Valued(amounts, self.moments[rows], paths, steps)


class _Errors:
    """What is uncertain in values: the deviation of each step, and the change to the next price."""

    def __init__(self, valued: Valued, fills: pa.Table, history: PriceHistory) -> None:
        nothing = Step(np.empty(0, np.int64), np.empty(0, np.int64), ("", ""), forward=True)
        steps = [nothing, *valued.steps]
        self.weights = np.array([0.0 if one is None else float(one) for one in valued.amounts]) / UNIT
        self.rows = np.concatenate([step.rows for step in steps])
        self.positions = np.concatenate([step.positions for step in steps])
        moments = moments_of(fills)[self.rows]
        logs = np.log(floats(history.prices))
        noise, drift = _variances(history, logs)
        codes, ages = history.code_at(self.positions), moments - history.times_at(self.positions)
        self.deviations = np.sqrt(noise[codes] + drift[codes] * ages)
        columns = {
            name: pa.concat_arrays([pa.repeat(step.pair[place], len(step.rows)) for step in steps])
            for place, name in enumerate(PAIR)
        }
        taken = fills.take(pa.array(self.rows))
        same = {name: taken[name] for name in taken.column_names if name in ("moment", *OWN_BY)}
        later = history.lookup(pa.table(columns | same)).after(moments)
        changes = np.nan_to_num(np.append(logs, np.nan)[later] - logs[self.positions])
        signs = np.concatenate([np.full(len(step.rows), 1.0 if step.forward else -1.0) for step in steps])
        self.changes = self.weights * np.expm1(np.bincount(self.rows, signs * changes, len(fills)))

    def bps(self, groups: GroupBy) -> pa.Array:
        """Return by how much each group's ``fee_value`` may be off; fills at one price are off together."""
        errors, group = np.abs(self.weights[self.rows]) * self.deviations, groups.ids[self.rows]
        order = np.lexsort((errors, self.positions, group))  # so that the order of rows changes no sum
        errors, positions, group = errors[order], self.positions[order], group[order]
        starts = np.flatnonzero(np.append(True, np.diff(positions) | np.diff(group))[: len(order)])
        shared = np.add.reduceat(errors, starts) if len(starts) else errors
        deviation = np.sqrt(np.bincount(group[starts], shared**2, groups.count))
        order = np.lexsort((self.changes, groups.ids))
        change = np.abs(np.bincount(groups.ids[order], self.changes[order], groups.count))
        error, totals = DEVIATIONS * deviation + change, np.abs(floats(groups.sum("fee_value")))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(error == 0, 0.0, 10_000 * error / totals)
        return pa.array(found, mask=~np.isfinite(found) | np.isnan(totals))


def _variances(history: PriceHistory, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance of each key's log price between trades, and per millisecond; NaN if unknown."""
    codes, count = history.code_at(np.arange(len(history))), history.code_count
    gaps = np.diff(history.times)
    rows = np.flatnonzero((np.diff(codes) == 0) & (gaps > 0))
    code, squares, gap = codes[rows], np.diff(logs)[rows] ** 2, gaps[rows]
    order = np.lexsort((gap, code))
    code, squares, gap = code[order], squares[order], gap[order]
    number = np.bincount(code, minlength=count)
    rank = np.arange(len(code)) - (np.cumsum(number) - number)[code]
    short = rank < -(-number[code] // 4)  # in the quarter with the shortest gaps, noise weighs most
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = (
            np.bincount(code[short], squares[short], count) / np.bincount(code[short], minlength=count) / 2
        )
        drift = np.bincount(code, squares, count) / np.bincount(code, gap, count)
    return noise, drift
