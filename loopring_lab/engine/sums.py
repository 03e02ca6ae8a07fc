"""What every summary has: exact sums by group, rates that follow from them, and fills counted from both sides.

Steps of a summary, as text for `question.Question`:

    rows     `RATES`, of which the engine takes the medians (``medians=["median_bps"]``)
    sums     `sums_sql`
    pairs    `pairs_sql`
    answer   a query over `totals_sql`; `asked` adds this step and the one before

Amounts in different tokens are never added up: an amount is null where its group mixes tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from loopring_lab.engine.ask import ask
from loopring_lab.engine.groups import Keys, bps_sql
from loopring_lab.engine.kinds import FrameT, Given
from loopring_lab.engine.notes import BOTH_SIDES
from loopring_lab.engine.question import Large, Question

# Columns that the steps below are about.
NEEDS = (
    "created_at",
    "base",
    "quote",
    "fee_token",
    "size",
    "notional",
    "fee",
    "fee_bps",
)
SIDES = ("trade_id", "side")

# The amount received in the fee token.
RECEIVED = "CASE fee_token WHEN base THEN size WHEN quote THEN notional END"

# The columns of a summary, as SQL over the rows of `sums` of a group. HUGEINT are amounts, so counts are cast.
_ONE_BASE = "min(base) = max(base)"
_ONE_QUOTE = "min(quote) = max(quote)"
_ONE_FEE = "min(fee_token) = max(fee_token)"
_RATED = "is_known AND received IS NOT NULL"
_OF_RATED = [f"(sum({name}) FILTER (WHERE {_RATED}))" for name in ("fee", "received")]
SUMMARY = {
    "fills": "sum(fills)::BIGINT",
    "base": f"CASE WHEN {_ONE_BASE} THEN min(base) END",
    "volume": f"CASE WHEN {_ONE_BASE} THEN sum(size) FILTER (WHERE base IS NOT NULL) END",
    "quote": f"CASE WHEN {_ONE_QUOTE} THEN min(quote) END",
    "notional": f"CASE WHEN {_ONE_QUOTE} THEN sum(notional) FILTER (WHERE quote IS NOT NULL) END",
    "fee_token": f"CASE WHEN {_ONE_FEE} THEN min(fee_token) END",
    "received": f"CASE WHEN {_ONE_FEE} THEN sum(received) END",
    "fee": f"CASE WHEN {_ONE_FEE} THEN sum(fee) FILTER (WHERE fee_token IS NOT NULL) END",
    "bps": f"CASE WHEN {_ONE_FEE} THEN {bps_sql(*_OF_RATED)} END",
    "median_bps": "any_value(median_bps)",
    "zero_fee_share": "sum(free) / nullif(sum(charged), 0)",
    "unknown": "coalesce(sum(fills) FILTER (WHERE NOT is_known), 0)::BIGINT",
}


def with_key(keys: Keys, *names: str) -> Keys:
    """Return keys with columns after them, but for those that are among them."""
    return replace(keys, names=tuple(dict.fromkeys([*keys.names, *names])))


def rates_sql(keys: Keys, rows: str = "trades") -> Large:
    """Return the step ``rows`` of a summary."""
    return Large(f"""
-- the rate of each fill, to a thousandth of a basis point
SELECT {keys.columns()}, round(fee_bps, 3) AS median_bps FROM {rows}""")


def sums_sql(keys: Keys, *others: str, rows: str = "trades") -> str:
    """Return the step ``sums``: exact sums of `rows`, and `others`, by group and tokens."""
    more = "".join(f",\n    {line}" for line in others)
    return f"""
-- sums of each group and three tokens, fills of which an amount is unknown apart
SELECT {keys.columns()}, base, quote, fee_token,
    size IS NOT NULL AND notional IS NOT NULL AND fee IS NOT NULL AS is_known,
    count(*) AS fills,
    count(fee) AS charged,
    count(*) FILTER (WHERE fee = 0) AS free,
    sum(size) AS size,
    sum(notional) AS notional,
    CASE fee_token WHEN base THEN sum(size) WHEN quote THEN sum(notional) END AS received,
    sum(fee) AS fee{more}
FROM {rows}
GROUP BY {keys.columns()}, base, quote, fee_token, is_known"""


def totals_sql(keys: Keys, *others: str) -> str:
    """Return a query for the columns of `SUMMARY`, and `others`, by group, from ``sums`` and ``medians``."""
    shown = [name for name in SUMMARY if name not in keys.names]
    lines = [*(f"{SUMMARY[name]} AS {name}" for name in shown), *others]
    listed = ",\n    ".join(lines)
    return f"""
-- what follows from the sums of each group
SELECT {keys.columns("s")},
    {listed}
FROM sums AS s JOIN medians AS m ON {keys.same("s", "m")}
GROUP BY ALL"""


def pairs_sql(keys: Keys, rows: str = "trades") -> Large:
    """Return the step ``pairs``: of how many fills both sides are in a group and, in row ``is_all``, in all `rows`."""
    paired = "SELECT trade_id FROM sides WHERE sides = 3"
    if keys.names:
        paired = "SELECT trade_id FROM sides GROUP BY trade_id HAVING bit_or(sides) = 3"
    return Large(f"""
-- fills of which both sides are there: those within each group, and all of them
WITH sides AS (  -- each fill in each group, and which of its sides are there: 3 where both are
    SELECT {keys.columns()}, trade_id, bit_or(CASE side WHEN 'BUY' THEN 1 WHEN 'SELL' THEN 2 END) AS sides
    FROM {rows}
    WHERE trade_id IS NOT NULL
    GROUP BY ALL
),
paired AS (  -- each fill of which both are there in any
    {paired}
)
SELECT {keys.columns()}, FALSE AS is_all, count(*) AS fills FROM sides
WHERE sides = 3 GROUP BY ALL
UNION ALL BY NAME
SELECT TRUE AS is_all, count(*) AS fills FROM paired""")


def both_sides_sql(keys: Keys) -> str:
    """Return a query for ``both_sides`` by group, of groups that have any, from ``pairs``."""
    return f"""
-- of how many fills both sides are there, by group
SELECT {keys.columns()}, sum(fills)::BIGINT AS both_sides FROM pairs
WHERE NOT is_all GROUP BY ALL"""


def asked(
    trades: Given[FrameT],
    keys: Keys,
    steps: Mapping[str, str],
    shown: str,
    *,
    sides: Keys | None = None,
    rows: str = "trades",
    needs: Sequence[str] = NEEDS,
    may_have: Sequence[str] = (),
    order: Sequence[str] = (),
    prices: Given[Any] | None = None,
    tables: Mapping[str, pa.Table] | None = None,
    **others: Any,
) -> FrameT:
    """Ask for a summary: `steps` up to ``sums``, then the query `shown` over them with ``both_sides`` of `rows`.

    The answer is in the order of its keys, and of the columns `order` within them. Where both sides are counted
    by other keys than those of the answer, `sides` are these.
    """
    by = sides or keys
    same = by.same("t", "b")
    has_sides = set(SIDES) <= set(trades.names)
    answer = f"""
-- each group with the number of fills of which it counts both sides
SELECT t.*,
    {both_sides_columns(has_sides)}
FROM ({shown}
) AS t
LEFT JOIN ({both_sides_sql(by)}
) AS b ON {same}
{keys.sorted_by(*order, table="t")}"""
    steps = {**steps, "pairs": pairs_sql(by, rows), "answer": answer}
    may_have = (*may_have, *SIDES)
    question = Question(trades.caller, steps, needs, may_have, keys=keys, **others)
    return ask(question, trades, prices, **(tables or {}))


def both_sides_columns(is_known: bool) -> str:
    """Return the last columns of a summary, from `both_sides_sql` as ``b``; null where trades do not tell sides."""
    if not is_known:
        return "NULL::BIGINT AS both_sides"
    return f"""coalesce(b.both_sides, 0) AS both_sides,
    (SELECT sum(fills)::BIGINT FROM pairs WHERE is_all) AS "{BOTH_SIDES}\""""
