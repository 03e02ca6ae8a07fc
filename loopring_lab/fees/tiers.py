"""Fee tiers: the whole number of basis points each fee was charged at, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.limbs import Limbs, blocks
from loopring_lab.amounts.scaling import UNIT
from loopring_lab.engines import convert, windows
from loopring_lab.engines.adapters import TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import GroupBy, PairedFills, Period, equal, shares, with_period
from loopring_lab.engines.arrays import coded
from loopring_lab.errors import LabError

FEE_COLUMNS = ("base", "quote", "fee_token", "size", "notional", "fee")
PLACES = 18
ALL_BPS = 10_000
PRICE_STEP = 10**8  # prices are truncated to 8 decimals
UNDECIDED = 1e-10  # from a whole number: floats of tiers are that exact
LIKE = ("account_id", "fill_type", "base", "quote", "role")
"""What fills have in common that are charged alike; all but the role must be known to say so."""
CERTAINTIES = ("unknown", "none", "exact", "likely", "ambiguous")
ENOUGH = 50
"""Exact fills before a tier is lent to like ones: mixes of six tiers then fool 1 in 1,000 at most."""


def tiers(
    trades: Any,
    every: str | None = None,
    by: str | Sequence[str] | None = None,
    tokens: pd.DataFrame | None = None,
) -> Any:
    """Infer the fee tiers at which fills were charged, in whole basis points, and count the fills in each.

    A fee is a whole number of basis points of the gross amount received, truncated to the token's smallest
    unit. So each fill is consistent with the tiers between two bounds: a single one for large amounts, but
    several for small ones, or where the amount received is in quote units and known only from a price
    truncated to 8 decimals.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every, by : optional
        Length of a period and columns to group by, as for `over_time`.
    tokens : pandas.DataFrame, optional
        From `Client.tokens`, for the decimals of tokens. Without it, a tier is named only if it is the only
        one that fits with any number of decimals that the amounts in `trades` allow: never a wrong one, but
        more fills stay ambiguous, and none is ``likely``.

    Returns
    -------
    frame of the same kind, one row per group
        ``period`` (with `every`), `by`, ``tier_bps`` (int, null if not known), ``certainty``, ``fills``,
        ``share`` (of the fills of that period and `by`, 0 to 1), ``first`` and ``last`` (times of its
        fills), and ``both_sides``, of how many fills of that period and `by` both sides are there.
        ``certainty`` is ``exact`` (one tier fits), ``likely`` (several fit, but the same account
        was charged only one of them for certain at the same venue, for the same pair and in the same role,
        both before and after), ``ambiguous`` (several fit), ``none`` (no whole tier fits) or ``unknown`` (an
        amount is unknown).

    Notes
    -----
    ``exact`` follows from the amounts alone. ``likely`` assumes that an account's tier for a venue, a pair
    and a role stays the same until it is seen to change. A tier is lent only where 50 like fills or more are
    exact and their tiers explain all others, and only to fills between its own first and last one.

    Raises
    ------
    LabError, AmountError
        As for `over_time`, or `tokens` has no decimals.

    Examples
    --------
    >>> trades = client.trades(account_id=71468)
    >>> lab.fees.tiers(trades, by="fill_type")[["fill_type", "tier_bps", "certainty"]]
      fill_type  tier_bps certainty
    0       amm        10     exact
    1       dex        30     exact
    """
    caller = "lab.fees.tiers"
    names = group_keys(by, caller, "tier_bps", "certainty", "low", "high", "lent", frame=trades)
    period = None if every is None else Period.parse(every)
    found = _Bounds(trades, tokens, caller)
    table = _concatenate(_count(rows, [*names, "low", "high", "lent"], period) for rows in found.lent(names))
    tier, certainty = _choose_tier(table)
    table = table.append_column("tier_bps", tier).append_column("certainty", certainty)
    outer = with_period(names, every)
    groups, around = GroupBy(table, [*outer, "tier_bps", "certainty"]), GroupBy(table, outer)
    fills = groups.sum("fills")
    counts = {
        "fills": fills,
        "share": shares(fills, around.ids[groups.first_rows]),
        "first": groups.aggregate("first", "min").cast(TIMESTAMP),
        "last": groups.aggregate("last", "max").cast(TIMESTAMP),
    }
    return PairedFills(trades, caller).summary(groups, groups.key_columns() | counts, every, around)


def with_tiers(trades: Any, tokens: pd.DataFrame | None = None) -> Any:
    """Add the inferred fee tier of each fill.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades` or `Archive.scan`.
    tokens : pandas.DataFrame, optional
        As for `tiers`.

    Returns
    -------
    frame of the same kind
        The trades with ``tier_bps`` (int, null if not known) and ``certainty``, as described at `tiers`.

    Raises
    ------
    LabError, AmountError
        As for `tiers`.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fees.with_tiers(trades).loc[[3, 10], ["fee_bps", "tier_bps", "certainty"]]
         fee_bps  tier_bps certainty
    3   7.985826         8     exact
    10  7.961261         8     exact
    """
    caller = "lab.fees.with_tiers"
    found = _Bounds(trades, tokens, caller)

    def work(batch: pa.Table) -> dict[str, pa.Array]:
        return dict(zip(("tier_bps", "certainty"), _choose_tier(found.lent_in(batch)), strict=True))

    return windows.map_batches(trades, caller, found.columns, work=work)


class FeeAmounts:
    """Fees of a batch, and bounds of the amounts they were charged on, as integers of 1e-18 units."""

    def __init__(self, batch: pa.Table) -> None:
        in_base = equal(batch["fee_token"], batch["base"])
        in_quote = equal(batch["fee_token"], batch["quote"]) & ~in_base
        size, notional, self.fee = (Limbs.of(batch[name]) for name in ("size", "notional", "fee"))
        self.known = self.fee.known & size.known & (in_base | (in_quote & notional.known))
        self.least = Limbs.where(in_quote, notional, size)
        cut = Limbs.where(in_quote, size.over(PRICE_STEP) + Limbs.small(2), Limbs.small(0))
        self.most = self.least + cut


class _Bounds:
    """The ``low``est and ``high``est tier that fit each fill, -1 if unknown, and the tier it is lent."""

    def __init__(self, trades: Any, tokens: pd.DataFrame | None, caller: str) -> None:
        names = convert.column_names(trades)
        like = [] if tokens is None else [name for name in LIKE if name in names]
        self.columns = list(dict.fromkeys([*FEE_COLUMNS, *like, "created_at"]))
        self._read = partial(convert.batches, trades, caller=caller)
        self._units, self._counts = _smallest_units(trades, tokens, caller), None
        if tokens is not None:
            batches = map(self._of, self._read(self.columns))
            self._counts = _concatenate(_count(batch, [*LIKE, "low", "high"]) for batch in batches)

    def lent(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield batches of the trades, with further columns, bounds and the tier lent to each fill."""
        return map(self.lent_in, self._read(list(dict.fromkeys([*self.columns, *columns]))))

    def lent_in(self, batch: pa.Table) -> pa.Table:
        """Add to a batch the bounds and, in ``lent``, the tier lent to an ambiguous fill, else -1."""
        batch, lent = self._of(batch), np.full(len(batch), -1)
        low, high = (batch[name].to_numpy() for name in ("low", "high"))
        if self._counts is not None:
            rows = np.flatnonzero((low >= 0) & (low < high))
            lent[rows] = _lent_tiers(batch.take(pa.array(rows)), self._counts)
        return batch.append_column("lent", pa.array(lent))

    def _of(self, batch: pa.Table) -> pa.Table:
        found = np.concatenate([_bounds(block, self._units) for block in blocks(batch)], axis=1)
        missing = {name: pa.nulls(len(batch), pa.string()) for name in LIKE}
        known = dict(zip(batch.column_names, batch.columns, strict=True))
        return pa.table(missing | known | dict(zip(("low", "high"), found, strict=True)))


def _bounds(batch: pa.Table, units: Mapping[str | None, int]) -> tuple[np.ndarray, np.ndarray]:
    amounts, (codes, names) = FeeAmounts(batch), coded(batch["fee_token"])
    unit = np.array([units.get(name, UNIT) for name in [*names, None]])[codes]
    low = _tiers_up(amounts.fee, amounts.most)
    high = np.clip(_tiers_up(amounts.fee + Limbs.small(unit), amounts.least) - 1, -1, ALL_BPS)
    low = np.where(low < 0, ALL_BPS + 1, low)
    high = np.where(amounts.least.is_zero(), ALL_BPS, high)
    return np.where(amounts.known, low, -1), np.where(amounts.known, high, -1)


def _concatenate(tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables(list(tables), promote_options="permissive")


def _tiers_up(fees: Limbs, gross: Limbs) -> np.ndarray:
    """Return fees in basis points of gross amounts, or of 1e-18 for 0, rounded up and cut to -1 to 10,001."""
    gross = Limbs(gross.low | gross.is_zero(), gross.high, gross.known)
    with np.errstate(all="ignore"):
        quotients = fees.floats * ALL_BPS / gross.floats
        found: np.ndarray = np.ceil(np.clip(quotients, -1, ALL_BPS + 1)).astype(np.int64)
        whole = np.rint(quotients)
        near = (np.abs(quotients - whole) < UNDECIDED) & (np.abs(whole) <= ALL_BPS + 1)
    rows = np.flatnonzero(near)
    tier, gross = whole[rows].astype(np.int64), gross[rows]
    rest = fees[rows] * Limbs.small(ALL_BPS) - gross * Limbs.small(tier)
    above = ~rest.is_zero() & ((rest.high < 0) == (gross.high < 0))
    found[rows] = np.minimum(tier + above, ALL_BPS + 1)
    return found


def _smallest_units(trades: Any, tokens: Any, caller: str) -> Mapping[str | None, int]:
    """Find each token's smallest unit, as an integer of 1e-18 units."""
    if tokens is not None:
        if not isinstance(tokens, pd.DataFrame) or "decimals" not in tokens:
            raise LabError("tokens= has no column 'decimals'. Pass client.tokens(), or None.")
        decimals = tokens["decimals"].dropna().items()
        return {str(symbol): 10 ** max(0, PLACES - int(places)) for symbol, places in decimals}
    divisors: dict[str | None, int] = {}
    for batch in convert.batches(trades, ("base", "fee_token", "size", "fee"), caller):
        for block, (token, amount) in product(blocks(batch), (("fee_token", "fee"), ("base", "size"))):
            codes, names = coded(block[token])
            order = np.argsort(codes, kind="stable")
            below = _below_one(Limbs.of(block[amount].fill_null(0)))[order]
            found, starts = np.unique(codes[order], return_index=True)
            for code, divisor in zip(
                found, np.gcd.reduceat(below, starts) if len(below) else (), strict=True
            ):
                name = [*names, None][code]
                divisors[name] = math.gcd(divisors.get(name, UNIT), int(divisor))
    powers = [10**places for places in range(PLACES, -1, -1)]
    return {name: next(one for one in powers if divisor % one == 0) for name, divisor in divisors.items()}


def _below_one(amounts: Limbs) -> np.ndarray:
    """Return the digits of amounts after the point, as integers of 1e-18 units."""
    whole = amounts.over(10**9).over(10**9)
    return np.asarray((amounts.low - whole.low * np.uint64(UNIT)).view(np.int64))


def _count(batch: pa.Table, names: Sequence[str], period: Period | None = None) -> pa.Table:
    """Count the fills of a batch by columns of it, and by period."""
    columns = {name: batch[name] for name in names}
    if period:
        columns["period"] = period.starts(period.numbers(batch["moment"]))
    rows = pa.table(columns | {"moment": batch["moment"]}).group_by(list(columns))
    counts = rows.aggregate([("moment", "min"), ("moment", "max"), ([], "count_all")])
    return counts.rename_columns([*columns, "first", "last", "fills"])


def _choose_tier(table: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Choose the tier between bounds where the data justifies one, and say with what certainty."""
    low, high, lent = (table[name].to_numpy() for name in ("low", "high", "lent"))
    tier = np.where(low == high, low, lent)
    conditions = [low < 0, low > high, low == high, lent >= 0]
    certainty = pa.array(CERTAINTIES).take(pa.array(np.select(conditions, [0, 1, 2, 3], 4)))
    return pa.array(tier, pa.int64(), mask=tier < 0), certainty


def _lent_tiers(batch: pa.Table, counts: pa.Table) -> np.ndarray:
    """Find the only exact tier of like fills, before and after, that fits an ambiguous one, else -1."""
    columns = {name: batch[name] for name in (*LIKE, "low", "high")}
    moments = {"first": batch["moment"], "last": batch["moment"], "fills": np.zeros(len(batch), np.int64)}
    table = _concatenate([counts, pa.table(columns | moments)])
    low, high = (table[name].to_numpy() for name in ("low", "high"))
    like, step = GroupBy(table, LIKE), ALL_BPS + 2
    group = like.ids
    first, last = (table[name].to_numpy(zero_copy_only=False) for name in ("first", "last"))
    exact, ambiguous = (low == high) & (low >= 0), (low < high) & (low >= 0)
    kinds, kind = np.unique((group * step + low)[exact], return_inverse=True)
    begin, end = np.full(len(kinds) + 1, np.inf), np.full(len(kinds) + 1, -np.inf)
    np.fmin.at(begin, kind, first[exact])
    np.fmax.at(end, kind, last[exact])
    start = np.searchsorted(kinds, group * step + low)
    fitting = np.searchsorted(kinds, group * step + high, "right") - start
    count = np.bincount(group[exact], table["fills"].to_numpy()[exact], like.count)
    trusted = count >= ENOUGH
    trusted[group[ambiguous & (fitting == 0)]] = False
    known = np.logical_and.reduce([table[name].is_valid().to_numpy() for name in LIKE if name != "role"])
    inside = (begin[start] <= first) & (last <= end[start])
    tiers = np.append(kinds, -1)[start] % step
    return np.where(ambiguous & known & trusted[group] & (fitting == 1) & inside, tiers, -1)[len(counts) :]
