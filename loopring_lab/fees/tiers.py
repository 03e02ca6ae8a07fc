"""Fee tiers: the whole number of basis points each fee was charged at, and how certain that is.

`tiers` says what is inferred, `_tier_steps` how: ``charged``, ``bounds`` and ``tiered`` find the tiers that fit a
fee by itself. Where tokens are listed, the steps from `SEEN` to `LENT` lend a tier to fills that several fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from loopring_lab.engine import sums
from loopring_lab.engine.ask import ask, ask_table, given
from loopring_lab.engine.groups import UTC, keys_of, whole_units
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.question import Question
from loopring_lab.errors import LabError

# The columns that a fee and the amount it was charged on are made of.
FEE_COLUMNS = ("base", "quote", "fee_token", "size", "notional", "fee")
NEEDS = ("created_at", *FEE_COLUMNS)
RESERVED = ("tier_bps", "certainty", "fills", "share", "first", "last", "both_sides")
# Fills that are charged alike have these columns in common; all but the role must be known to say so.
LIKE = ("account_id", "fill_type", "base", "quote", "role")
# Exact fills before a tier is lent to like ones: mixes of six tiers then fool 1 in 1,000 at most (simulated).
ENOUGH = 50
# The amount received in the fee token, and the most it may have been. An amount received in quote units is size times
# price, and prices are truncated to 8 decimals: it may have been higher by size * 1e-8. The 2 are for the digits of
# both products that were cut.
RECEIVED = "CASE fee_token WHEN base THEN size WHEN quote THEN notional END"
MOST_RECEIVED = f"CASE fee_token WHEN base THEN size WHEN quote THEN notional + {whole_units('size', 10**8)} + 2 END"
ALL_BPS = 10_000
# This stands for any tier above 10,000 basis points, which is the whole amount.
TOO_HIGH = ALL_BPS + 1
# Amounts up to this one times a tier fit 128 bits.
LARGEST_FACTOR = 10**34
# Amounts are integers of 1e-18, and a token's smallest unit is some power of ten of these.
PLACES = 18


def tiers(
    trades: Trades[FrameT],
    every: str | None = None,
    by: str | Sequence[str] | None = None,
    tokens: pd.DataFrame | None = None,
    *,
    tz: str = UTC,
) -> FrameT:
    """Infer the fee tiers at which fills were charged, in whole basis points, and count the fills in each.

    A fee is a whole number of basis points of the gross amount received, truncated to the token's smallest
    unit. So each fill is consistent with the tiers between two bounds: a single one for large amounts, but
    several for small ones, or where the amount received is in quote units and known only from a price
    truncated to 8 decimals.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, `Archive.scan` or `engine.portable`.
    every, by : optional
        Length of a period and columns to group by, as for `over_time`.
    tokens : pandas.DataFrame, optional
        From `Client.tokens`, for the decimals of tokens. Without it, a tier is named only if it is the only
        one that fits with any number of decimals that the amounts in `trades` allow: never a wrong one, but
        more fills stay ambiguous, and none is ``likely``.
    tz : str
        The time zone by whose clock periods begin, as for `over_time`.

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
    fills = given(trades, "lab.fees.tiers")
    keys = keys_of(fills, by, *RESERVED, every=every, tz=tz)
    group = keys.columns()
    tier = f"{group}, tier_bps, certainty"
    counted = f"""
-- fills of each group and tier
SELECT {tier},
    count(*) AS fills,
    min(created_at) AS first,
    max(created_at) AS last
FROM tiered
GROUP BY ALL"""
    shown = f"""
-- with the share of each tier in its group
SELECT {tier},
    sum(fills)::BIGINT AS fills,
    sum(fills)::DOUBLE / (sum(sum(fills)) OVER (PARTITION BY {group}))::DOUBLE AS share,
    min(first) AS first,
    max(last) AS last
FROM sums
GROUP BY {tier}"""
    return sums.asked(
        fills,
        keys,
        _tier_steps(tokens, group) | {"sums": counted},
        shown,
        needs=NEEDS,
        may_have=LIKE,
        order=("tier_bps", "certainty"),
        tables={"units": _units(fills, tokens)},
    )


def with_tiers(trades: Trades[FrameT], tokens: pd.DataFrame | None = None) -> FrameT:
    """Add the inferred fee tier of each fill.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
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
    fills = given(trades, "lab.fees.with_tiers")
    steps = _tier_steps(tokens, "row") | {
        "rows": "-- what is shown beside each fill\nSELECT row, tier_bps, certainty FROM tiered"
    }
    question = Question(fills.caller, steps, NEEDS, LIKE, shown=None)
    return ask(question, fills, units=_units(fills, tokens))


def _tier_steps(tokens: pd.DataFrame | None, kept: str) -> dict[str, str]:
    """Return the steps up to ``tiered``: each fill with its tier and how certain that is, beside columns `kept`."""
    charged = f"""
-- fees, and the least and the most that may have been received in the token of each: null where not known; the unit of
-- an unlisted token is a whole one, which leaves more tiers possible
SELECT received.*,
    coalesce(unit, {10**PLACES}) AS unit
FROM (SELECT *, {RECEIVED} AS least, {MOST_RECEIVED} AS most FROM trades) AS received
LEFT JOIN units ON fee_token = token"""
    # The exchange charges whole basis points and cuts the fee to the token's smallest unit, so tier t may have
    # given this fee if  fee <= most * t / 10000  and  least * t / 10000 < fee + unit.
    bounds = f"""
-- the lowest and the highest tier that fit each fee; {TOO_HIGH} stands for all that are too high
SELECT {kept}, created_at,
    {ALIKE} AS alike,
    CASE
        WHEN fee IS NULL OR most IS NULL THEN NULL
        WHEN fee < 0 OR least < 0 OR fee > most THEN {TOO_HIGH}
        ELSE {_rounded_up("fee", "most")}
    END AS lowest,
    {_rounded_up("(fee + unit)", "least")} - 1 AS highest
FROM charged"""
    steps = {"charged": charged, "bounds": bounds}
    source = "(SELECT *, NULL AS tier FROM bounds)"
    # Without the listed units of tokens it is not sure which tiers do not fit, and none is lent.
    if tokens is not None:
        steps |= {"seen": SEEN, "doubtful": DOUBTFUL, "trusted": TRUSTED}
        source = LENT
    steps["tiered"] = f"""
-- each fill with its tier
SELECT {kept}, created_at,
    (CASE WHEN lowest = highest THEN lowest ELSE tier END)::BIGINT AS tier_bps,
    CASE
        WHEN lowest IS NULL THEN 'unknown'
        WHEN lowest > highest THEN 'none'
        WHEN lowest = highest THEN 'exact'
        WHEN tier IS NOT NULL THEN 'likely'
        ELSE 'ambiguous'
    END AS certainty
FROM {source} AS fills"""
    return steps


def _rounded_up(fee: str, gross: str) -> str:
    """Return a fee in basis points of the gross amount, rounded up, as SQL.

    The quotient of two doubles is rounded to the nearest tier, and the exact product tells whether it is enough.
    """
    gross = f"greatest({gross}, 1)"
    nearest = f"least(round({ALL_BPS} * {fee}::DOUBLE / {gross}::DOUBLE), {ALL_BPS})"
    return f"""(CASE
            WHEN {gross} > {LARGEST_FACTOR} THEN least(({fee} * {ALL_BPS} + {gross} - 1) // {gross}, {TOO_HIGH})
            WHEN {nearest}::HUGEINT * {gross} >= {fee} * {ALL_BPS} THEN {nearest}
            ELSE {nearest} + 1 END)::INTEGER"""


# Fills that are charged alike have the same number, as joins by one number are fast; unknown ones have none.
ALIKE = """CASE WHEN account_id IS NOT NULL AND fill_type IS NOT NULL AND base IS NOT NULL AND quote IS NOT NULL
        THEN hash(account_id, fill_type, base, quote, role) END"""
SEEN = """
-- the tiers that like fills were charged for certain, and when
SELECT
    alike AS like_fills,
    lowest AS tier,
    count(*) AS fills,
    min(created_at) AS since,
    max(created_at) AS until
FROM bounds
WHERE lowest = highest AND alike IS NOT NULL
GROUP BY alike, lowest"""
DOUBTFUL = """
-- bounds with several tiers between them, and how many of these like fills were charged
SELECT alike, lowest, highest,
    count(tier) AS fitting,
    min(tier) AS tier,
    min(since) AS since,
    max(until) AS until
FROM (SELECT DISTINCT alike, lowest, highest FROM bounds WHERE lowest < highest AND alike IS NOT NULL)
LEFT JOIN seen ON alike = like_fills AND tier BETWEEN lowest AND highest
GROUP BY alike, lowest, highest"""
TRUSTED = f"""
-- like fills enough of which are exact, and whose tiers explain all others
SELECT like_fills
FROM seen
GROUP BY like_fills
HAVING sum(fills) >= {ENOUGH}
EXCEPT
SELECT alike FROM doubtful WHERE fitting = 0"""
LENT = """(
    SELECT bounds.*, tier
    FROM bounds
    LEFT JOIN (FROM doubtful WHERE fitting = 1 AND alike IN (FROM trusted)) AS lent
        ON bounds.alike = lent.alike
        AND bounds.lowest = lent.lowest
        AND bounds.highest = lent.highest
        AND created_at BETWEEN since AND until
)"""


# Smallest units of tokens


def _units(trades: Given[Any], tokens: Any) -> pa.Table:
    """Return each token's smallest unit, as an integer of 1e-18."""
    if tokens is None:
        places = _places_seen(trades)
    elif isinstance(tokens, pd.DataFrame) and "decimals" in tokens:
        # A table that was read from a file has its index as a column.
        by_symbol = tokens.set_index("symbol") if "symbol" in tokens else tokens
        places = {
            str(symbol): int(count)
            for symbol, count in by_symbol["decimals"].dropna().items()
        }
    else:
        raise LabError(
            "tokens= has no column 'decimals'. Pass client.tokens(), or None."
        )
    units = [10 ** max(0, PLACES - count) for count in places.values()]
    return pa.table(
        {
            "token": pa.array(list(places), pa.string()),
            "unit": pa.array(units, pa.int64()),
        }
    )


def _places_seen(trades: Given[Any]) -> dict[str, int]:
    """Return how many decimal places each token has at least: as many as its fees and sizes need."""
    ends = " ".join(
        f"WHEN digits % {10 ** (zeros + 1)} <> 0 THEN {zeros}"
        for zeros in range(PLACES)
    )
    # The digits after the point, less than one unit of 1e18, end in as many zeros.
    digits = f"({{0}} - ({whole_units('{0}', 10**PLACES)}) * {10**PLACES})::BIGINT"
    zeros = f"""
-- of each token, how many zeros the digits after the point of all fees and sizes end in
WITH amounts AS (  -- each fee and each size, by its token
    SELECT
        fee_token AS token,
        {digits.format("fee")} AS digits
    FROM trades
    UNION ALL
    SELECT base, {digits.format("size")}
    FROM trades
)
SELECT token,
    min(CASE {ends} ELSE {PLACES} END) AS zeros
FROM amounts
WHERE token IS NOT NULL
GROUP BY token"""
    steps = {
        "sums": zeros,
        "answer": "-- of all markets\nSELECT token, min(zeros) AS zeros FROM sums GROUP BY token",
    }
    needs = ("base", "fee_token", "size", "fee")
    found = ask_table(Question(trades.caller, steps, needs), trades).to_pylist()
    return {row["token"]: PLACES - row["zeros"] for row in found}
