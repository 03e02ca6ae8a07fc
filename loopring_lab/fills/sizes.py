"""Fills by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopring_lab.engine import sums
from loopring_lab.engine.ask import given
from loopring_lab.engine.groups import EVERYTHING, Keys, keys_of, same_sql
from loopring_lab.engine.kinds import FrameT, Trades
from loopring_lab.engine.question import Large, Streamed
from loopring_lab.errors import LabError
from loopring_lab.fees.summary import RESERVED

# Each size is compared with the ends of all quantiles.
MOST_QUANTILES = 100
# Columns of the answer, besides those of a summary, that are not also columns of trades.
OWN = ("quantile", "smallest", "largest", "share", "notional_share")


def size_profile(
    trades: Trades[FrameT], quantiles: int = 10, by: str | Sequence[str] | None = None
) -> FrameT:
    """Split fills into quantiles by size and compare fill types within each.

    Size is the notional; sizes in different quote tokens are never compared. Fills of the same size fall in
    the same quantile, so quantiles may differ in their number of fills.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, `Archive.scan` or `engine.portable`.
    quantiles : int
        Number of quantiles, 1 to 100.
    by : str or sequence of str, optional
        Columns to group by; quantiles are computed within each group and quote token.

    Returns
    -------
    frame of the same kind (pandas for an Archive), one row per group
        `by`, ``quote``, ``quantile`` (1 for the smallest; null where the size is unknown), ``smallest`` and
        ``largest`` size of that quantile (quote units), ``fill_type``, ``fills``, ``share`` (of the
        quantile's fills, 0 to 1), ``notional``, ``notional_share`` (of the quantile), ``median_bps``
        and ``both_sides``, as `fees.summary` counts them.

    Raises
    ------
    LabError, AmountError
        As for `fees.summary`, or `quantiles` is out of range.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, market="LRC-ETH", limit=100)
    >>> halves = lab.fills.size_profile(trades, quantiles=2)
    >>> halves.loc[halves["fill_type"] == "amm", ["quantile", "fill_type", "share"]]
       quantile fill_type  share
    0         1       amm   0.12
    2         2       amm   0.58
    """
    caller = "lab.fills.size_profile"
    if type(quantiles) is not int or not 1 <= quantiles <= MOST_QUANTILES:
        raise LabError(
            f"{caller}: quantiles={quantiles!r} is not valid. Give a whole number from 1 to {MOST_QUANTILES}."
        )
    fills = given(trades, caller)
    outer = sums.with_key(keys_of(fills, by, *RESERVED, *OWN), "quote")
    part = replace(outer, names=(*outer.names, "quantile"), added=("quantile",))
    keys = sums.with_key(part, "fill_type")
    summed = f"""
-- fills of each type in each quantile
SELECT {keys.columns()},
    count(*) AS fills,
    sum(notional) AS notional,
    min(notional) AS smallest,
    max(notional) AS largest
FROM sized
GROUP BY ALL"""
    # The type comes after the sizes, unless it is one of the keys in front of the quantile.
    type_column = keys.columns("s").removeprefix(part.columns("s"))
    shown = f"""
-- with the ends of each quantile, and its parts
SELECT {part.columns("s")},
    min(smallest) OVER part AS smallest,
    max(largest) OVER part AS largest{type_column},
    fills,
    fills / sum(fills) OVER part AS share,
    notional,
    notional / nullif(sum(notional::DOUBLE) OVER part, 0) AS notional_share,
    median_bps
FROM sums AS s
JOIN medians AS m ON {keys.same("s", "m")}
WINDOW part AS (PARTITION BY {part.columns("s")})"""
    steps = {
        **_quantile_steps(quantiles, outer, part.aliases[-1]),
        "rows": sums.rates_sql(keys, "sized"),
        "sums": summed,
    }
    return sums.asked(
        fills,
        keys,
        steps,
        shown,
        rows="sized",
        needs=("notional", "fee_bps"),
        medians=["median_bps"],
        split_by=tuple(part.of_frame),
    )


def _quantile_steps(quantiles: int, outer: Keys, name: str) -> dict[str, str]:
    """Return the steps to ``sized``: fills with their quantile by size among those of the same keys, under a name.

    It is null where the size is unknown.
    """
    return {
        "ends": ends_sql("trades", (EVERYTHING, *outer.aliases), "notional", quantiles),
        "sized": Streamed(f"""
-- fills with their quantile; equal sizes are in the same one
SELECT t.*, {part_sql("notional", quantiles)} AS {name}
FROM trades AS t
LEFT JOIN ends AS e ON {outer.same("t", "e")}"""),
    }


def ends_sql(source: str, group: Sequence[str], size: str, parts: int) -> Large:
    """Return the step ``ends``: by group, a list of the largest size of each part but the last, as many by number.

    Sizes are counted in narrow steps, and only steps in which a part ends are looked into: sorting all of them takes
    four times as long. Equal sizes are in one part.
    """
    keys = ", ".join(group)
    # None of these functions puts two numbers into another order, not even by rounding.
    step = f"floor(sign({size}) * 10 * sqrt(sqrt(sqrt(abs({size}::DOUBLE)))))::BIGINT"
    part = f"1 + {parts} * {{}} // known"
    largest = [
        f"max({size}) FILTER (WHERE part <= {number})" for number in range(1, parts)
    ]
    return Large(f"""
-- the largest size of each part but the last
WITH steps AS (  -- how many sizes there are in each step, below it, and in all
    SELECT *,
        (sum(sizes) OVER (PARTITION BY {keys} ORDER BY step))::BIGINT - sizes AS below,
        (sum(sizes) OVER (PARTITION BY {keys}))::BIGINT AS known
    FROM (SELECT {keys}, {step} AS step, count(*) AS sizes FROM {source} WHERE {size} IS NOT NULL GROUP BY ALL)
),
ending AS (  -- the steps in which a part ends
    FROM steps
    WHERE {part.format("below")} < {part.format("(below + sizes)")}
),
near AS (  -- the different sizes in these
    SELECT e.* EXCLUDE sizes, {size}, count(*) AS sizes
    FROM {source} AS s JOIN ending AS e ON {same_sql("s", "e", group)} AND {step} = step
    GROUP BY ALL
),
counted AS (  -- how many sizes are less than each of these
    SELECT *, below + (sum(sizes) OVER (PARTITION BY {keys}, step ORDER BY {size}))::BIGINT - sizes AS less
    FROM near
)
SELECT {keys}, [{", ".join(largest)}] AS ends
FROM (SELECT *, {part.format("less")} AS part FROM counted)
GROUP BY ALL""")


def part_sql(size: str, parts: int) -> str:
    """Return the number of the part that a size is in, from 1, by its list ``ends``; null where it is unknown."""
    cases = " ".join(
        f"WHEN {size} <= ends[{number}] THEN {number}" for number in range(1, parts)
    )
    return f"CASE {cases} WHEN {size} IS NOT NULL THEN {parts} END::BIGINT"
