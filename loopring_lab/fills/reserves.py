"""Pools' balances over time, from what `rollup.Blocks.balances` gives: a table, and the steps of a query over it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import combined, with_scale
from loopring_lab.engine import frames
from loopring_lab.errors import LabError

TIMES_AND_PLACES = ("created_at", "block_id", "index_in_block", "kind", "token")
AMOUNTS = ("change", "published", "recomputed")
COLUMNS = (*TIMES_AND_PLACES, *AMOUNTS, *(f"{name}_units" for name in AMOUNTS))
# Queries count amounts in 1e-18 of a token. DuckDB casts these to its HUGEINT without touching them.
WHOLE = pa.decimal128(38, 0)

# Of each pool, and a number for it: windows over texts take twice as long.
POOL = "pool, account_id, market, base, quote"
NUMBERED = (
    "hash(account_id, market, base, quote) AS pool, account_id, market, base, quote"
)
# Which block a row is in; of a fill that is in none, its time. Rows of trades and of balances have it alike.
BLOCK = "CASE WHEN block_id > 0 THEN block_id ELSE -ms END AS block"


def of_token(expression: str, side: str, aggregate: str = "sum") -> str:
    """Return an aggregate over the rows of the pool's base or quote token, as SQL."""
    return f"{aggregate}({expression}) FILTER (WHERE token = {side})"


def level_sql(side: str) -> str:
    """Return a balance after each transaction as SQL.

    It is the sum of all changes, and what the last statement says beyond that sum; before the first, that one.
    """
    stated = f"{side}_known - {side}_sum"
    before = f"last_value({stated} IGNORE NULLS) OVER so_far"
    first = (
        f"min_by({stated}, number) FILTER (WHERE {side}_known IS NOT NULL) OVER of_pool"
    )
    return f"{side}_sum + coalesce({before}, {first}) AS {side}_after"


# From ``ledger``, and ``own``, the pools' fills: what happened to the balances of each pool, in order, as ``moves``.
MOVES = {
    "changes": f"""
-- what each transaction does to the two balances of a pool, and what they are known to be after it
SELECT {POOL}, {BLOCK}, index_in_block, ms, bool_or(kind = 'spot_trade') AS is_fill,
    coalesce({of_token("change::HUGEINT", "base")}, 0) AS base_change,
    coalesce({of_token("change::HUGEINT", "quote")}, 0) AS quote_change,
    {of_token("coalesce(published, recomputed)::HUGEINT", "base", "max")} AS base_known,
    {of_token("coalesce(published, recomputed)::HUGEINT", "quote", "max")} AS quote_known,
    {of_token("unit", "base", "max")} AS base_unit,
    {of_token("unit", "quote", "max")} AS quote_unit
FROM ledger JOIN (SELECT DISTINCT {POOL} FROM own) AS pools USING (account_id)
WHERE token IN (base, quote)
GROUP BY ALL""",
    "numbered": """
-- the same with the sum of all changes so far
SELECT *, row_number() OVER so_far AS number,
    sum(base_change) OVER so_far AS base_sum,
    sum(quote_change) OVER so_far AS quote_sum
FROM changes
WINDOW so_far AS (
    PARTITION BY pool ORDER BY ms, block, index_in_block ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)""",
    "levels": f"""
-- both balances after each transaction
SELECT *, {level_sql("base")}, {level_sql("quote")}
FROM numbered
WINDOW so_far AS (
    PARTITION BY pool ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
), of_pool AS (PARTITION BY pool)""",
    "moves": """
-- and before it, where both are known; statements that change nothing are left out
SELECT * FROM (
    SELECT *,
        lag(base_after, 1, base_after - base_change) OVER in_order AS base_before,
        lag(quote_after, 1, quote_after - quote_change) OVER in_order AS quote_before
    FROM levels
    WHERE base_after IS NOT NULL AND quote_after IS NOT NULL
    WINDOW in_order AS (PARTITION BY pool ORDER BY number)
) AS moves
WHERE is_fill OR base_after <> base_before OR quote_after <> quote_before""",
}


def ledger_of(balances: Any, caller: str) -> pa.Table:
    """Return balances with ``ms``, amounts as whole numbers of 1e-18 units, and the ``unit`` of each token's smallest.

    Of several pools, `balances` have the column ``account_id``; of one, the account may be their attribute.
    """
    names = frames.column_names(balances, caller)
    if "change" in names and "change_units" not in names:
        raise LabError(
            f"{caller}: balances= has no amounts in units. Make it with blocks.balances(pool, tokens)."
        )
    frames.check_columns(COLUMNS, names, f"{caller}: balances=")
    account = getattr(balances, "attrs", {}).get("account_id")
    if "account_id" in names:
        table = frames.to_table(balances, caller, [*COLUMNS, "account_id"])
    elif account is None:
        raise LabError(
            f"{caller}: balances= does not say whose they are. Add a column account_id, such as with "
            "blocks.balances(pool, tokens).assign(account_id=pool)."
        )
    else:
        table = frames.to_table(balances, caller, COLUMNS)
        accounts = pa.array(np.full(len(table), account, np.int64))
        table = table.append_column("account_id", accounts)
    columns = {
        "account_id": table["account_id"].cast(pa.int64()),
        "ms": table["created_at"].cast(frames.TIMESTAMP).cast(pa.int64()),
        "block_id": table["block_id"].cast(pa.int64()),
        "index_in_block": table["index_in_block"].cast(pa.int64()),
        "kind": table["kind"].cast(pa.string()),
        "token": table["token"].cast(pa.string()),
        "unit": pa.array(_smallest_units(table)),
    }
    for name in AMOUNTS:
        units = frames.exact(table[f"{name}_units"], f"{name}_units", caller)
        columns[name] = with_scale(combined(units), WHOLE)
    return pa.table(columns)


def _smallest_units(table: pa.Table) -> np.ndarray:
    """Return for each row the smallest unit of its token in 1e-18 of the token; 1 where no amount shows it."""
    smallest = pc.coalesce(table["change"], table["published"])
    units = pc.coalesce(table["change_units"], table["published_units"])
    tokens = table["token"].cast(pa.string()).to_pandas()
    with np.errstate(divide="ignore", invalid="ignore"):
        # A power of ten, so the exponent of a quotient of floats tells it.
        exponents = np.log10(1e18 * _floats(units) / _floats(smallest)).round()
    # Changes of nothing show no unit.
    shown = pd.Series(exponents).where(np.isfinite(exponents))
    of_token = shown.groupby(tokens).max()
    return np.asarray(10 ** tokens.map(of_token).fillna(0).to_numpy(np.int64))


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False))
