"""Fee tiers: the whole number of basis points each fee was charged at, and how certain that is.

`tiers` says what is inferred, `_tier_steps` how: ``charged``, ``started`` and ``bounds`` find the tiers that fit a
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
# The most that may have been received in the fee token. An amount received in quote units is size times price, and
# prices are truncated to 8 decimals: it may have been higher by size * 1e-8. The 2 are for the digits of both products
# that were cut.
MOST_RECEIVED = f"CASE fee_token WHEN base THEN size WHEN quote THEN notional + {whole_units('size', 10**8)} + 2 END"
ALL_BPS = 10_000
# This stands for any tier above 10,000 basis points, which is the whole amount.
TOO_HIGH = ALL_BPS + 1
# Amounts up to this one times a tier fit 128 bits.
LARGEST_FACTOR = 10**34
# The tier of a fill and how certain it is, from the lowest and the highest that fit, and the one lent to it.
TIER = "(CASE WHEN lowest = highest THEN lowest ELSE tier END)::BIGINT"
CERTAINTY = """CASE
        WHEN lowest IS NULL THEN 'unknown'
        WHEN lowest > highest THEN 'none'
        WHEN lowest = highest THEN 'exact'
        WHEN tier IS NOT NULL THEN 'likely'
        ELSE 'ambiguous'
    END"""
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
        more fills stay ambiguous, and none is ``likely``. With it, the fee of a token that it lacks may have
        been cut by up to a whole token.
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
    exact and one of their tiers is among those that fit each ambiguous one, and only to fills between its own first
    and last one. Fills of tier ``none`` do not matter.

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
    # Few rows are named, as numbers are grouped in a third of the time of texts.
    counted = f"""
-- fills of each group and tier
SELECT {group},
    {TIER} AS tier_bps,
    {CERTAINTY} AS certainty,
    sum(fills)::BIGINT AS fills,
    min(first) AS first,
    max(last) AS last
FROM (
    SELECT {group}, lowest, highest, tier, count(*) AS fills, min(created_at) AS first, max(created_at) AS last
    FROM tiered
    GROUP BY ALL
)
GROUP BY ALL"""
    shown = f"""
-- with the share of each tier in its group
SELECT {tier},
    sum(fills)::BIGINT AS fills,
    sum(fills) / sum(sum(fills)) OVER (PARTITION BY {group}) AS share,
    min(first) AS first,
    max(last) AS last
FROM sums
GROUP BY {tier}"""
    return sums.asked(
        fills,
        keys,
        _tier_steps(tokens, f"{group}, trade_id, side") | {"sums": counted},
        shown,
        rows="bounds",
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
        "rows": f"""
-- what is shown beside each fill
SELECT row, {TIER} AS tier_bps, {CERTAINTY} AS certainty
FROM tiered"""
    }
    question = Question(fills.caller, steps, NEEDS, LIKE, shown=None)
    return ask(question, fills, units=_units(fills, tokens))


def _tier_steps(tokens: pd.DataFrame | None, kept: str) -> dict[str, str]:
    """Return the steps up to ``tiered``: each fill with the tiers that fit it, beside columns `kept`."""
    charged = f"""
-- fees, and the least and the most that may have been received in the token of each: null where not known
SELECT *, {sums.RECEIVED} AS least, {MOST_RECEIVED} AS most FROM trades"""
    # The exchange charges whole basis points and cuts the fee to the token's smallest unit, so tier t may have
    # given this fee if  fee <= most * t / 10000  and  least * t / 10000 < fee + unit.
    # The quotient of two doubles is rounded to the nearest tier. That is the lowest one that fits or the one below it,
    # and the exact product tells which.
    started = f"""
-- the lowest tier with which the fee is not too high; {TOO_HIGH} stands for all that are
SELECT {kept}, created_at, fee_token, fee, least,
    {ALIKE} AS alike,
    CASE
        WHEN fee IS NULL OR most IS NULL THEN NULL
        WHEN fee < 0 OR least < 0 OR fee > most THEN {TOO_HIGH}
        ELSE nearest::INTEGER + ({_beyond_fee("nearest::INTEGER", "most")} < 0)::INTEGER
    END AS lowest
FROM (SELECT *, round({ALL_BPS} * fee::DOUBLE / greatest(most::DOUBLE, 1)) AS nearest FROM charged)"""
    # The unit of an unlisted token is a whole one, which leaves more tiers possible.
    # Units are joined this late because DuckDB computes half as fast with columns that a join has passed on.
    bounds = f"""
-- the lowest and the highest tier that fit each fee, the highest below the lowest where none does
SELECT {kept}, created_at, alike, lowest,
    CASE
        WHEN beyond < slack - least
            THEN least(lowest + (slack - beyond - 1) // greatest(least, 1), {ALL_BPS})::INTEGER
        WHEN beyond < slack THEN lowest
        ELSE lowest - 1
    END AS highest
FROM (
    SELECT passed.*, coalesce(slack, {ALL_BPS * 10**PLACES}) AS slack
    FROM (
        SELECT *, CASE WHEN lowest < {TOO_HIGH} THEN {_beyond_fee("lowest", "least")} END AS beyond
        FROM started
    ) AS passed
    LEFT JOIN (SELECT token, unit::HUGEINT * {ALL_BPS} AS slack FROM units) ON fee_token = token
)"""
    steps = {"charged": charged, "started": started, "bounds": bounds}
    tiered = "-- each fill, to which no tier is lent\nSELECT *, NULL::INTEGER AS tier FROM bounds"
    # Without the listed units of tokens it is not sure which tiers do not fit, and none is lent.
    if tokens is not None:
        steps |= {"seen": SEEN, "doubtful": DOUBTFUL, "trusted": TRUSTED}
        tiered = LENT
    return steps | {"tiered": tiered}


def _beyond_fee(tier: str, gross: str) -> str:
    """Return by how much a tier of the gross amount is more than the fee, in ten-thousandths, as SQL.

    The fee is at most the gross amount, and the tier near its rate: so the difference fits 128 bits, even of products
    that do not.
    """
    parts = f"{ALL_BPS} * ({tier} * ({gross} // {ALL_BPS}) - fee) + {tier} * ({gross} % {ALL_BPS})"
    return f"CASE WHEN {gross} > {LARGEST_FACTOR} THEN {parts} ELSE {tier} * {gross} - fee * {ALL_BPS} END"


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
LENT = """
-- each fill, and the tier lent to it
SELECT bounds.*, tier
FROM bounds
LEFT JOIN (FROM doubtful WHERE fitting = 1 AND alike IN (FROM trusted)) AS lent
    ON bounds.alike = lent.alike
    AND bounds.lowest = lent.lowest
    AND bounds.highest = lent.highest
    AND created_at BETWEEN since AND until"""


# Smallest units of tokens

# A multiple of a power of ten is one of that power of two, so amounts end in no more zeros than their bits do.
ZEROS_OF_BITS = f"""
-- how many zeros the bits of all fees and sizes of a token end in
SELECT token, bit_count((bits & -bits) - 1) AS zeros
FROM (
    SELECT token, coalesce(bit_or(amount), 0) | {2**PLACES} AS bits
    FROM (SELECT fee_token AS token, fee AS amount FROM trades UNION ALL SELECT base, size FROM trades)
    WHERE token IS NOT NULL
    GROUP BY token
)"""
# Their digits nearly always end in as many, which a product proves; of other amounts they are read.
IS_LESS_ROUND = "{units}.unit > 1 AND round({amount}::DOUBLE / {units}.unit)::HUGEINT * {units}.unit <> {amount}"
ZEROS_OF_DIGITS = f"""
-- how many zeros the digits of fees and sizes end in where these may be fewer
SELECT token, min(length(digits) - length(rtrim(digits, '0'))) AS zeros
FROM (
    SELECT unnest([fee_token, base]) AS token, unnest([fee, size])::VARCHAR AS digits
    FROM trades
    LEFT JOIN possible AS f ON fee_token = f.token
    LEFT JOIN possible AS b ON base = b.token
    WHERE {IS_LESS_ROUND.format(amount="fee", units="f")} OR {IS_LESS_ROUND.format(amount="size", units="b")}
)
WHERE digits <> '0'
GROUP BY token"""


def _units(trades: Given[Any], tokens: Any) -> pa.Table:
    """Return each token's smallest unit, as an integer of 1e-18."""
    if tokens is None:
        return _powers_of_ten(_zeros_seen(trades))
    if isinstance(tokens, pd.DataFrame) and "decimals" in tokens:
        # A table that was read from a file has its index as a column.
        by_symbol = tokens.set_index("symbol") if "symbol" in tokens else tokens
        zeros = {
            str(symbol): max(0, PLACES - int(count))
            for symbol, count in by_symbol["decimals"].dropna().items()
        }
        return _powers_of_ten(zeros)
    raise LabError("tokens= has no column 'decimals'. Pass client.tokens(), or None.")


def _powers_of_ten(zeros: dict[str, int]) -> pa.Table:
    return pa.table(
        {
            "token": pa.array(list(zeros), pa.string()),
            "unit": pa.array([10**count for count in zeros.values()], pa.int64()),
        }
    )


def _zeros_seen(trades: Given[Any]) -> dict[str, int]:
    """Return how many zeros, of 18 decimal places, all fees and sizes of each token end in."""
    zeros = _fewest(trades, ZEROS_OF_BITS)
    fewer = _fewest(trades, ZEROS_OF_DIGITS, possible=_powers_of_ten(zeros))
    return {token: min(zeros[token], fewer.get(token, PLACES)) for token in zeros}


def _fewest(trades: Given[Any], zeros: str, **tables: pa.Table) -> dict[str, int]:
    """Return the fewest ``zeros`` of each token, from those that a step finds in each market."""
    steps = {
        "sums": zeros,
        "answer": "-- of all markets\nSELECT token, min(zeros) AS zeros FROM sums GROUP BY token",
    }
    needs = ("base", "fee_token", "size", "fee")
    found = ask_table(Question(trades.caller, steps, needs), trades, **tables)
    return dict(
        zip(found["token"].to_pylist(), found["zeros"].to_pylist(), strict=True)
    )
