"""Fee tiers: which whole number of basis points a fee was charged at, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import absent, integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import group_keys
from loopring_lab.engines.aggregate import Groups, Period, answer, share_of
from loopring_lab.errors import LabError

__all__ = ["Fees", "tiers", "with_tiers"]

NEEDED = ("base", "quote", "fee_token", "size", "notional", "fee")
PLACES = 18
WHOLE = 10_000
PRICE_STEP = 10**8
CERTAINTIES = ("exact", "likely", "ambiguous", "none", "unknown")


def tiers(
    trades: Any,
    every: str | None = None,
    by: str | Sequence[str] | None = None,
    tokens: pd.DataFrame | None = None,
) -> Any:
    """Recover the whole-basis-point tiers at which fees were charged, and count the fills in each.

    A fee is a whole number of basis points of the gross amount received, cut down to the token's smallest
    unit. So a fill admits the tiers between two bounds: one tier where the amount is large, several where it
    is small, or where the amount received is in quote units and follows only from a price cut to 8 decimals.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    every : str, optional
        Length of a period: a number and ``s``, ``min``, ``h``, ``d``, ``w`` (from Monday), ``mo``, ``q``
        or ``y``, in UTC.
    by : str or sequence of str, optional
        Columns to group by.
    tokens : pandas.DataFrame, optional
        From `Client.tokens`, for the decimals of tokens. Without it the most digits that a token's amounts
        show in `trades` are taken, which may leave more fills ambiguous, never a wrong tier.

    Returns
    -------
    frame of the same kind, one row a group
        ``period`` (with `every`), `by`, ``tier_bps`` (int, null where it is not known), ``certainty``,
        ``fills``, ``share`` (of the fills of that period and `by`, 0 to 1), ``first`` and ``last`` (moments
        of its fills). ``certainty`` is ``exact`` (one tier fits), ``likely`` (of several that fit one is
        seen exactly elsewhere in `trades`), ``ambiguous`` (several fit), ``none`` (no whole tier fits) or
        ``unknown`` (an amount is not known).

    Raises
    ------
    LabError
        The frame is not one of trades, `every` is no period, or `by` names no column.
    AmountError
        An amount is not an exact decimal.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=71468)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.fees.tiers(trades, by="fill_type")[["fill_type", "tier_bps", "certainty"]]
      fill_type  tier_bps certainty
    0       amm        10     exact
    1       dex        30     exact
    """
    what = "fees.tiers"
    names = group_keys(by, what, "tier_bps", "certainty", "low", "high")
    period = None if every is None else Period.of(every)
    keys = [*(["period"] if period else []), *names]
    counted = pa.concat_tables(
        [
            _counted(part, low, high, names, period)
            for part, low, high in _bounds(trades, ["created_at", *names], tokens, what)
        ]
    )
    tier, certainty = _settled(counted["low"].to_numpy(), counted["high"].to_numpy())
    counted = counted.append_column("tier_bps", tier).append_column("certainty", certainty)
    groups = Groups(counted, [*keys, "tier_bps", "certainty"])
    fills, moment = groups.sum("fills"), pa.timestamp("ms", "UTC")
    whole = Groups(counted, keys).ids[groups.where]
    return answer(
        trades,
        {name: groups.key(name) for name in groups.keys}
        | {"fills": fills, "share": share_of(fills, whole)}
        | {
            "first": groups.extreme("first", "min").cast(moment),
            "last": groups.extreme("last", "max").cast(moment),
        },
    )


def with_tiers(trades: Any, tokens: pd.DataFrame | None = None) -> Any:
    """Add each fill's tier to trades.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    tokens : pandas.DataFrame, optional
        As for `tiers`.

    Returns
    -------
    frame of the same kind
        The trades with ``tier_bps`` (int, null where it is not known) and ``certainty``, as `tiers` says.

    Raises
    ------
    LabError
        The frame is not one of trades, or its engine does not hold it in memory.
    AmountError
        An amount is not an exact decimal.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.fees.with_tiers(trades).loc[[40, 50], ["fee_bps", "tier_bps", "certainty"]]
         fee_bps  tier_bps certainty
    40  7.962602         8     exact
    50  7.997097         8     exact
    """
    what = "fees.with_tiers"
    convert.in_memory(trades, what)
    found = [(low, high) for _, low, high in _bounds(trades, [], tokens, what)]
    low, high = (np.concatenate(side) for side in zip(*found, strict=True))
    tier, certainty = _settled(low, high)
    return convert.with_columns(trades, {"tier_bps": tier, "certainty": certainty})


class Fees:
    """What each fill of a batch was charged, in integers of 1e-18 units."""

    def __init__(self, part: pa.Table) -> None:
        in_base = _true(pc.equal(part["fee_token"], part["base"]))
        in_quote = _true(pc.equal(part["fee_token"], part["quote"])) & ~in_base
        size, notional, fee = (integers(part[name]) for name in ("size", "notional", "fee"))
        missing = [absent(values) for values in (size, notional, fee)]
        self.known = ~missing[2] & ~missing[0] & (in_base | (in_quote & ~missing[1]))
        size, notional, self.fee = (
            np.where(self.known & ~none, values, 0)
            for values, none in zip((size, notional, fee), missing, strict=True)
        )
        self.least = np.where(in_quote, notional, size)
        self.most = np.where(in_quote & self.known, notional + size // PRICE_STEP + 2, size)


def _bounds(
    trades: Any, columns: Sequence[str], tokens: pd.DataFrame | None, what: str
) -> Iterator[tuple[pa.Table, np.ndarray, np.ndarray]]:
    """Give batches with the lowest and highest tier each fill admits; -1 and -1 where not known."""
    wanted = list(dict.fromkeys([*NEEDED, *columns]))
    units = _units(convert.batches(trades, ("base", "fee_token", "size", "fee"), what), tokens)
    for part in convert.batches(trades, wanted, what):
        fees = Fees(part)
        unit = np.array([units.get(token, 10**PLACES) for token in part["fee_token"].to_pylist()], object)
        low = -(-fees.fee * WHOLE // np.where(fees.most == 0, 1, fees.most))
        high = -(-(fees.fee + unit) * WHOLE // np.where(fees.least == 0, 1, fees.least)) - 1
        low = np.where((low < 0) | (low > WHOLE), WHOLE + 1, low)
        high = np.where(fees.least == 0, WHOLE, np.clip(high, -1, WHOLE))
        low, high = (np.where(fees.known, bound, -1).astype(np.int64) for bound in (low, high))
        yield part, low, high


def _units(parts: Iterator[pa.Table], tokens: Any) -> Mapping[str | None, int]:
    """Find each token's smallest unit, in integers of 1e-18 units."""
    if tokens is not None:
        if not isinstance(tokens, pd.DataFrame) or "decimals" not in tokens:
            raise LabError("tokens= has no column 'decimals'. Give what client.tokens() gives, or None.")
        known = tokens["decimals"].dropna().items()
        return {str(symbol): 10 ** max(0, PLACES - int(decimals)) for symbol, decimals in known}
    divisors: dict[str | None, int] = {}
    for part in parts:
        for token, amount in (("fee_token", "fee"), ("base", "size")):
            names = np.asarray(part[token].to_pylist(), object)
            amounts = integers(part[amount].fill_null(0))
            for name in set(names):
                divisors[name] = math.gcd(divisors.get(name, 0), np.gcd.reduce(amounts[names == name]))
    return {name: _power_of_ten_in(divisor) for name, divisor in divisors.items()}


def _power_of_ten_in(number: int) -> int:
    return next((10**n for n in range(PLACES, 0, -1) if number % 10**n == 0), 1)


def _counted(
    part: pa.Table, low: np.ndarray, high: np.ndarray, names: Sequence[str], period: Period | None
) -> pa.Table:
    moment = part["moment"]
    columns = {name: part[name] for name in names} | {"low": low, "high": high, "moment": moment}
    if period:
        known = _true(moment.is_valid())
        cells = (moment.fill_null(0).to_numpy() - period.origin) // period.fine
        columns["period"] = pa.array(period.starts(cells), pa.timestamp("ms", "UTC"), mask=~known)
    keys = [name for name in columns if name != "moment"]
    counted = (
        pa.table(columns).group_by(keys).aggregate([("moment", "min"), ("moment", "max"), ([], "count_all")])
    )
    return counted.rename_columns([*keys, "first", "last", "fills"])


def _settled(low: np.ndarray, high: np.ndarray) -> tuple[pa.Array, pa.Array]:
    """Choose a tier between bounds where that can be justified, and say how."""
    exact = np.unique(low[(low == high) & (low >= 0)])
    inside = np.searchsorted(exact, high, "right") - np.searchsorted(exact, low, "left")
    conditions = [low < 0, low > high, low == high, inside == 1]
    certainty = np.select(conditions, ["unknown", "none", "exact", "likely"], "ambiguous")
    seen = np.concatenate([exact, [-1]])[np.searchsorted(exact, low, "left")] if len(low) else low
    tier = np.where(certainty == "exact", low, seen)
    sure = np.isin(certainty, ("exact", "likely"))
    return pa.array(tier, pa.int64(), mask=~sure), pa.array(certainty, pa.string())


def _true(flags: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(flags.combine_chunks().fill_null(False).to_numpy(zero_copy_only=False), bool)
