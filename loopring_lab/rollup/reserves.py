"""What pools hold, from one change to the next: the reserves that `research.pool_quotes` looks up."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.series import as_series
from loopring_lab.engine import running
from loopring_lab.rollup import balances, block_frames
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.tables.listings import to_utc

# The steps find each pool's two tokens in their market, then both balances after each transaction that changed one.
STEPS = """
WITH
-- Accounts of which AMM updates state the balances of two tokens that have a market.
listed AS (
    SELECT * EXCLUDE (one, other)
    FROM (
        SELECT account,
            min(token) AS one,
            max(token) AS other
        FROM movements
        WHERE published IS NOT NULL
        GROUP BY account
        HAVING count(DISTINCT token) = 2
    )
    JOIN markets ON one = least(base, quote) AND other = greatest(base, quote)
),
-- What changed both balances so far; blocks of one run follow each other without a gap.
totals AS (
    SELECT
        run, block, index_in_block, token, published, l.*,
        coalesce(sum(change) FILTER (token = base) OVER so_far, 0) AS base_total,
        coalesce(sum(change) FILTER (token = quote) OVER so_far, 0) AS quote_total,
        if(token = base, published - base_total, NULL) AS base_before,
        if(token = quote, published - quote_total, NULL) AS quote_before
    FROM movements
    JOIN listed AS l USING (account)
    WHERE token IN (base, quote)
    WINDOW so_far AS (PARTITION BY account, run ORDER BY block, index_in_block)
),
-- With what was held before the run, by the last statement so far or else by the first to come: both balances.
held AS (
    SELECT DISTINCT
        run, block, index_in_block,
        account, market, base_decimals, quote_decimals,
        base_total + coalesce(
            last_value(base_before IGNORE NULLS) OVER so_far,
            first_value(base_before IGNORE NULLS) OVER to_come
        ) AS base_balance,
        quote_total + coalesce(
            last_value(quote_before IGNORE NULLS) OVER so_far,
            first_value(quote_before IGNORE NULLS) OVER to_come
        ) AS quote_balance
    FROM totals
    WINDOW
        so_far AS (PARTITION BY account, run ORDER BY block, index_in_block),
        to_come AS (
            PARTITION BY account, run ORDER BY block, index_in_block
            RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        )
),
-- Where a run ends, what was known is known no more: these rows have no balances.
ended AS (
    SELECT DISTINCT
        next.block, NULL::BIGINT AS index_in_block,
        account, market, base_decimals, quote_decimals
    FROM held
    JOIN (
        SELECT run,
            min(block) AS block
        FROM headers
        GROUP BY run
    ) AS next ON next.run = held.run + 1
)
SELECT
    block, block_id, index_in_block, created_at,
    account AS account_id,
    market,
    base_balance, quote_balance, base_decimals, quote_decimals
FROM (FROM held UNION ALL BY NAME FROM ended)
JOIN headers USING (block)
ORDER BY block, index_in_block NULLS FIRST, account
"""


def pool_balances(
    batches: Iterable[Blocks], markets: pd.DataFrame, tokens: pd.DataFrame
) -> pd.DataFrame:
    """Return both balances of each pool after each change, in block order; see `BlocksClient.pool_balances`."""
    moved = []
    of_blocks = []
    root = None
    run = 0
    first = 0
    # The first batch, without a block, has the columns in any case.
    for blocks in chain([Blocks([])], batches):
        headers = blocks.headers_table
        # A block that does not begin with the state in which the one before it ended begins another run.
        ends = [root, *headers["merkle_root_after"].to_pylist()]
        begins = np.array(headers["merkle_root_before"].to_pylist(), object)
        runs = run + np.cumsum(begins != np.array(ends[:-1], object))
        moved.append(balances.movements(blocks, runs, first))
        numbers = np.arange(len(runs))
        of_batch = {
            "run": runs,
            "block": first + numbers,
            "block_id": headers["block_id"],
            "created_at": block_frames.created_at(blocks, numbers),
        }
        of_blocks.append(pa.table(of_batch))
        root = ends[-1]
        run = int(runs.max(initial=run))
        first += len(runs)
    found = running.run(
        STEPS,
        "pool_balances",
        movements=pa.concat_tables(moved),
        headers=pa.concat_tables(of_blocks),
        markets=_listing(markets, tokens),
    )
    return _in_units(found)


def _listing(markets: pd.DataFrame, tokens: pd.DataFrame) -> pa.Table:
    """Return the tokens of each market, and their decimals."""
    decimals = tokens.set_index("token_id")["decimals"]
    listed = {"market": pa.array(markets.index, pa.string())}
    for side in ("base", "quote"):
        ids = markets[f"{side}_token_id"].to_numpy(np.int64)
        listed[side] = pa.array(ids)
        listed[f"{side}_decimals"] = pa.array(
            decimals.reindex(ids).to_numpy(np.int64, na_value=-1)
        )
    return pa.table(listed)


def _in_units(found: pa.Table) -> pd.DataFrame:
    """Return an answer as a frame, its balances in tokens."""
    frame = pd.DataFrame({name: as_series(found[name]) for name in found.column_names})
    for side in ("base", "quote"):
        name = f"{side}_balance"
        decimals = found[f"{side}_decimals"].to_numpy()
        frame[name] = block_frames.units(found[name], decimals, name)
    frame["created_at"] = to_utc(frame["created_at"])
    frame["market"] = frame["market"].astype("category")
    return frame
