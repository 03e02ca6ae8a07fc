"""Fee tiers: the whole number of basis points each fee was charged at, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import is_none, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import GroupBy, PairedFills, Period, equal, shares, with_period
from loopring_lab.errors import LabError

FEE_COLUMNS = ("base", "quote", "fee_token", "size", "notional", "fee")
PLACES = 18
ALL_BPS = 10_000
PRICE_STEP = 10**8  # prices are truncated to 8 decimals
LIKE = ("account_id", "fill_type", "base", "quote", "role")
"""What fills have in common that are charged alike; all but the role must be known to say so."""
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
    caller = "fees.tiers"
    names = group_keys(by, caller, "tier_bps", "certainty", "low", "high", "uncertain_at", frame=trades)
    period = None if every is None else Period.parse(every)
    bounds = _tier_bounds(trades, ["created_at", *names], tokens, caller)
    table = _concatenate(_count(batch, names, period, tokens is not None) for batch in bounds)
    tier, certainty = _choose_tier(table, tokens is not None)
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
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    tokens : pandas.DataFrame, optional
        As for `tiers`.

    Returns
    -------
    frame of the same kind
        The trades with ``tier_bps`` (int, null if not known) and ``certainty``, as described at `tiers`.

    Raises
    ------
    LabError, AmountError
        As for `tiers`, or the frame's engine does not hold it in memory.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fees.with_tiers(trades).loc[[3, 10], ["fee_bps", "tier_bps", "certainty"]]
         fee_bps  tier_bps certainty
    3   7.985826         8     exact
    10  7.961261         8     exact
    """
    caller = "fees.with_tiers"
    convert.require_in_memory(trades, caller)
    table = _concatenate(_tier_bounds(trades, ["created_at"], tokens, caller))
    counts = {"first": table["moment"], "last": table["moment"], "fills": pa.repeat(1, len(table))}
    for name, column in counts.items():
        table = table.append_column(name, column)
    tier, certainty = _choose_tier(table, tokens is not None)
    return convert.with_columns(trades, {"tier_bps": tier, "certainty": certainty})


class FeeAmounts:
    """Fees of a batch, and bounds of the amounts they were charged on, as integers of 1e-18 units."""

    def __init__(self, batch: pa.Table) -> None:
        in_base = equal(batch["fee_token"], batch["base"])
        in_quote = equal(batch["fee_token"], batch["quote"]) & ~in_base
        size, notional, fee = (to_integers(batch[name]) for name in ("size", "notional", "fee"))
        no_size, no_notional, no_fee = is_none(size), is_none(notional), is_none(fee)
        self.known = ~no_fee & ~no_size & (in_base | (in_quote & ~no_notional))
        self.fee = np.where(self.known, fee, 0)
        size = np.where(self.known, size, 0)
        self.least = np.where(self.known & in_quote, notional, size)
        self.most = self.least + np.where(in_quote & self.known, size // PRICE_STEP + 2, 0)


def _tier_bounds(
    trades: Any, columns: Sequence[str], tokens: pd.DataFrame | None, caller: str
) -> Iterator[pa.Table]:
    """Yield batches with the ``low``est and ``high``est tier that fit each fill; -1 where one is unknown."""
    names = convert.column_names(trades)
    like = [] if tokens is None else [name for name in LIKE if name in names]
    needed = list(dict.fromkeys([*FEE_COLUMNS, *like, *columns]))
    units = _smallest_units(trades, tokens, caller)
    for batch in convert.batches(trades, needed, caller):
        amounts = FeeAmounts(batch)
        fee, least, most = amounts.fee, amounts.least, amounts.most
        unit = np.array([units.get(token, 10**PLACES) for token in batch["fee_token"].to_pylist()], object)
        low = _divide_up(fee * ALL_BPS, most)
        high = _divide_up((fee + unit) * ALL_BPS, least) - 1
        low = np.where((low < 0) | (low > ALL_BPS), ALL_BPS + 1, low)
        high = np.where(least == 0, ALL_BPS, np.clip(high, -1, ALL_BPS))
        bounds = {"low": low, "high": high}
        found = {name: np.where(amounts.known, bound, -1).astype(np.int64) for name, bound in bounds.items()}
        missing = {name: pa.nulls(len(batch), pa.string()) for name in LIKE}
        yield pa.table(missing | dict(zip(batch.column_names, batch.columns, strict=True)) | found)


def _concatenate(tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables(list(tables), promote_options="permissive")


def _divide_up(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Divide integers and round up; division by 0 leaves the numerator."""
    return -(-numerators // np.where(denominators == 0, 1, denominators))


def _smallest_units(trades: Any, tokens: Any, caller: str) -> Mapping[str | None, int]:
    """Find each token's smallest unit, as an integer of 1e-18 units."""
    if tokens is not None:
        if not isinstance(tokens, pd.DataFrame) or "decimals" not in tokens:
            raise LabError("tokens= has no column 'decimals'. Pass client.tokens(), or None.")
        decimals = tokens["decimals"].dropna().items()
        return {str(symbol): 10 ** max(0, PLACES - int(places)) for symbol, places in decimals}
    divisors: dict[str | None, int] = {}
    for batch in convert.batches(trades, ("base", "fee_token", "size", "fee"), caller):
        for token, amount in (("fee_token", "fee"), ("base", "size")):
            names = np.asarray(batch[token].to_pylist(), object)
            amounts = to_integers(batch[amount].fill_null(0))
            for name in set(names):
                divisors[name] = math.gcd(divisors.get(name, 0), np.gcd.reduce(amounts[names == name]))
    powers = [10**places for places in range(PLACES, -1, -1)]
    return {
        name: next(power for power in powers if divisor % power == 0) for name, divisor in divisors.items()
    }


def _count(batch: pa.Table, names: Sequence[str], period: Period | None, borrow: bool) -> pa.Table:
    """Count the fills of a batch by their bounds; keep ambiguous ones apart by time if they borrow tiers."""
    moment, low, high = batch["moment"], batch["low"], batch["high"]
    columns = {name: batch[name] for name in [*names, *(LIKE if borrow else ()), "low", "high"]}
    if borrow:
        columns["uncertain_at"] = pc.if_else(pc.less(low, high), moment, pa.scalar(None, moment.type))
    if period:
        columns["period"] = period.starts(period.numbers(moment))
    rows = pa.table(columns | {"moment": moment}).group_by(list(columns))
    counts = rows.aggregate([("moment", "min"), ("moment", "max"), ([], "count_all")])
    return counts.rename_columns([*columns, "first", "last", "fills"])


def _choose_tier(table: pa.Table, borrow: bool) -> tuple[pa.Array, pa.Array]:
    """Choose the tier between bounds where the data justifies one, and say with what certainty."""
    low, high = (table[name].to_numpy() for name in ("low", "high"))
    tier = np.where(low == high, low, -1)
    if borrow:
        tier = np.where(low < high, _lent_tiers(table, low, high), tier)
    conditions = [low < 0, low > high, low == high, tier >= 0]
    certainty = np.select(conditions, ["unknown", "none", "exact", "likely"], "ambiguous")
    return pa.array(tier, pa.int64(), mask=tier < 0), pa.array(certainty, pa.string())


def _lent_tiers(table: pa.Table, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Find the only exact tier of like fills, before and after, that fits an ambiguous one, else -1."""
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
    return np.where(ambiguous & known & trusted[group] & (fitting == 1) & inside, tiers, -1)
