"""What pools hold, from one change to the next, as a table, and the steps of a query that follow its changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import combined, with_scale
from loopring_lab.engine import frames
from loopring_lab.engine.kinds import Given
from loopring_lab.engine.values import no_moment
from loopring_lab.errors import LabError

BALANCES = (
    "created_at",
    "market",
    "base_balance",
    "quote_balance",
    "base_decimals",
    "quote_decimals",
)
OPTIONAL = ("account_id", "block_id", "index_in_block")
# Queries count amounts in 1e-18 of a token. DuckDB casts these to its HUGEINT without touching them.
WHOLE = pa.decimal128(38, 0)
PLACES = 18

# The columns of each pool, with a number for it, because windows over texts take twice as long.
POOL = "pool, account_id, market, base, quote"
NUMBERED = (
    "hash(account_id, market, base, quote) AS pool, account_id, market, base, quote"
)
# The block that a row is in or, for a fill that is in none, its time. Rows of trades and of balances have it alike.
BLOCK = "CASE WHEN block_id > 0 THEN block_id ELSE -ms END AS block"

# These steps make ``moves`` from ``ledger`` and from ``own``, the pools' fills. It has what happened to the balances of
# each pool, in order.
MOVES = {
    "states": f"""
-- what each pool held after each change of its balances, in their order
SELECT {POOL}, ms, index_in_block, {BLOCK},
    base_balance::HUGEINT AS base_after,
    quote_balance::HUGEINT AS quote_after,
    base_unit,
    quote_unit,
    row_number() OVER (PARTITION BY pool ORDER BY ms, block, index_in_block NULLS FIRST) AS number
FROM (SELECT account_id AS stated_account, * EXCLUDE account_id FROM ledger) AS ledger
JOIN (SELECT DISTINCT {POOL} FROM own) AS pools USING (market)
WHERE stated_account IS NULL OR stated_account = account_id""",
    "followed": """
-- and before it
SELECT *,
    lag(base_after) OVER in_order AS base_before,
    lag(quote_after) OVER in_order AS quote_before,
    base_after - base_before AS base_change,
    quote_after - quote_before AS quote_change
FROM states
WINDOW in_order AS (PARTITION BY pool ORDER BY number)""",
    "moves": """
-- the changes: only a fill moves both balances, in opposite directions. Where blocks are missing, what is known ends
SELECT *,
    coalesce(sign(base_change) * sign(quote_change) = -1, FALSE) AS is_fill
FROM followed
WHERE base_change <> 0
    OR quote_change <> 0
    OR (base_after IS NULL OR quote_after IS NULL)
        AND base_before IS NOT NULL
        AND quote_before IS NOT NULL""",
}


def check_fee(pool_fee_bps: Any, caller: str) -> None:
    """Raise a `LabError` unless the fee of a pool is whole basis points."""
    if type(pool_fee_bps) is not int or not 0 <= pool_fee_bps < 10_000:
        raise LabError(
            f"{caller}: pool_fee_bps={pool_fee_bps!r} is not a fee. Give whole basis points, such as 20."
        )


def ledger_of(balances: Given[Any]) -> pa.Table:
    """Return balances with ``ms``, amounts as whole numbers of 1e-18 units, and both tokens' smallest unit in these."""
    there = [name for name in OPTIONAL if name in balances.names]
    table = balances.read_exact([*BALANCES, *there])
    times = table["created_at"]
    if not pa.types.is_timestamp(times.type) or times.type.tz is None:
        raise no_moment("created_at", times.type, balances.caller)
    columns = {
        "market": table["market"].cast(pa.string()),
        "ms": times.cast(frames.TIMESTAMP, safe=False).cast(pa.int64()),
    }
    for name in OPTIONAL:
        columns[name] = pa.nulls(len(table), pa.int64())
    for name in there:
        columns[name] = table[name]
    for side in ("base", "quote"):
        name = f"{side}_balance"
        columns[name] = with_scale(combined(table[name]), WHOLE)
        decimals = table[f"{side}_decimals"].fill_null(PLACES).to_numpy()
        zeros = np.clip(PLACES - decimals, 0, PLACES)
        columns[f"{side}_unit"] = pa.array(10**zeros)
    ledger = pa.table(columns)
    _refuse_several_states(ledger, balances.caller)
    return ledger


def _refuse_several_states(ledger: pa.Table, caller: str) -> None:
    """Refuse balances of a pool of which nothing says what was before what: each order has other changes."""
    states = ledger.group_by(ledger.column_names).aggregate([])
    counted = states.group_by(["market", "ms", *OPTIONAL]).aggregate(
        [([], "count_all")]
    )
    markets = counted["market"].filter(pc.greater(counted["count_all"], 1))
    if len(markets):
        raise LabError(
            f"{caller}: several balances of the pool of {pc.min(markets)} have one time and place. Give them their "
            "columns block_id and index_in_block, or leave out all but the last."
        )
