"""Fee tiers: the whole number of basis points each fee was charged at, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.scaling import is_none, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import TIMESTAMP, group_keys, orders_of_categories
from loopring_lab.engines.aggregate import GroupBy, Period, equal, result_frame, shares, with_period
from loopring_lab.errors import LabError

FEE_COLUMNS = ("base", "quote", "fee_token", "size", "notional", "fee")
PLACES = 18
ALL_BPS = 10_000
PRICE_STEP = 10**8  # prices are truncated to 8 decimals


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
        From `Client.tokens`, for the decimals of tokens. Without it, decimals are inferred from the amounts
        in `trades`, which may leave more fills ambiguous but never gives a wrong tier.

    Returns
    -------
    frame of the same kind, one row per group
        ``period`` (with `every`), `by`, ``tier_bps`` (int, null if not known), ``certainty``, ``fills``,
        ``share`` (of the fills of that period and `by`, 0 to 1), ``first`` and ``last`` (times of its
        fills). ``certainty`` is ``exact`` (one tier fits), ``likely`` (several fit, and only one of them
        occurs as exact in `trades`), ``ambiguous`` (several fit), ``none`` (no whole tier fits) or
        ``unknown`` (an amount is unknown).

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
    names = group_keys(by, caller, "tier_bps", "certainty", "low", "high")
    period = None if every is None else Period.parse(every)
    bounds = _tier_bounds(trades, ["created_at", *names], tokens, caller)
    table = pa.concat_tables([_count(*batch, names, period) for batch in bounds])
    tier, certainty = _choose_tier(table["low"].to_numpy(), table["high"].to_numpy())
    table = table.append_column("tier_bps", tier).append_column("certainty", certainty)
    outer = with_period(names, every)
    groups = GroupBy(table, [*outer, "tier_bps", "certainty"], orders_of_categories(trades, names))
    fills = groups.sum("fills")
    counts = {
        "fills": fills,
        "share": shares(fills, GroupBy(table, outer).ids[groups.first_rows]),
        "first": groups.aggregate("first", "min").cast(TIMESTAMP),
        "last": groups.aggregate("last", "max").cast(TIMESTAMP),
    }
    return result_frame(trades, groups.key_columns() | counts)


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
    >>> lab.fees.with_tiers(trades).loc[[40, 50], ["fee_bps", "tier_bps", "certainty"]]
         fee_bps  tier_bps certainty
    40  7.962602         8     exact
    50  7.997097         8     exact
    """
    caller = "fees.with_tiers"
    convert.require_in_memory(trades, caller)
    bounds = [(low, high) for _, low, high in _tier_bounds(trades, [], tokens, caller)]
    low, high = (np.concatenate(side) for side in zip(*bounds, strict=True))
    tier, certainty = _choose_tier(low, high)
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
) -> Iterator[tuple[pa.Table, np.ndarray, np.ndarray]]:
    """Yield batches with the lowest and highest tier that fit each fill; -1 where an amount is unknown."""
    needed = list(dict.fromkeys([*FEE_COLUMNS, *columns]))
    units = _smallest_units(trades, tokens, caller)
    for batch in convert.batches(trades, needed, caller):
        amounts = FeeAmounts(batch)
        fee, least, most = amounts.fee, amounts.least, amounts.most
        unit = np.array([units.get(token, 10**PLACES) for token in batch["fee_token"].to_pylist()], object)
        low = _divide_up(fee * ALL_BPS, most)
        high = _divide_up((fee + unit) * ALL_BPS, least) - 1
        low = np.where((low < 0) | (low > ALL_BPS), ALL_BPS + 1, low)
        high = np.where(least == 0, ALL_BPS, np.clip(high, -1, ALL_BPS))
        low, high = (np.where(amounts.known, bound, -1).astype(np.int64) for bound in (low, high))
        yield batch, low, high


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


def _count(
    batch: pa.Table, low: np.ndarray, high: np.ndarray, names: Sequence[str], period: Period | None
) -> pa.Table:
    """Count the fills of a batch by the bounds of their tiers."""
    moment = batch["moment"]
    columns = {name: batch[name] for name in names} | {"low": low, "high": high}
    if period:
        bins = period.bins(moment.fill_null(0).to_numpy())
        columns["period"] = period.starts(pa.array(bins, mask=np.asarray(moment.is_null())))
    rows = pa.table(columns | {"moment": moment}).group_by(list(columns))
    counts = rows.aggregate([("moment", "min"), ("moment", "max"), ([], "count_all")])
    return counts.rename_columns([*columns, "first", "last", "fills"])


def _choose_tier(low: np.ndarray, high: np.ndarray) -> tuple[pa.Array, pa.Array]:
    """Choose the tier between bounds where the data justifies one, and say with what certainty."""
    exact = np.unique(low[(low == high) & (low >= 0)])
    inside = np.searchsorted(exact, high, "right") - np.searchsorted(exact, low, "left")
    conditions = [low < 0, low > high, low == high, inside == 1]
    certainty = np.select(conditions, ["unknown", "none", "exact", "likely"], "ambiguous")
    next_exact = np.append(exact, -1)[np.searchsorted(exact, low, "left")]
    tier = np.where(certainty == "exact", low, next_exact)
    certain = np.isin(certainty, ("exact", "likely"))
    return pa.array(tier, pa.int64(), mask=~certain), pa.array(certainty, pa.string())
