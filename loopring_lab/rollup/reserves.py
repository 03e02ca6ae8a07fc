"""What pools hold, from one change to the next: the reserves that `fills.pool_quotes` looks up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.series import as_series
from loopring_lab.engine import query
from loopring_lab.rollup import frames
from loopring_lab.rollup.balances import PoolBalances
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.tables.listings import to_utc

# Blocks are numbered from 0 through all batches; those of a run follow each other without a gap.
HEADERS = pa.schema(
    [
        ("run", pa.int64()),
        ("block", pa.int64()),
        ("block_id", pa.int64()),
        ("created_at", pa.timestamp("ms", "UTC")),
    ]
)
# Each change of a pool's balance in one token, with the balance after it.
STATES = pa.schema(
    [
        ("run", pa.int64()),
        ("block", pa.int64()),
        ("index_in_block", pa.int64()),
        ("account", pa.int64()),
        ("token", pa.int64()),
        ("balance", pa.decimal128(38, 0)),
    ]
)

# Of each pool its two tokens in their market; then both balances after each transaction that changed one of them.
STEPS = """
WITH
-- Accounts of which AMM updates state the balances of two tokens that have a market.
listed AS (
    SELECT account, market, base, quote, base_decimals, quote_decimals
    FROM (
        SELECT account, min(token) AS one, max(token) AS other
        FROM states
        GROUP BY account
        HAVING count(DISTINCT token) = 2
    )
    JOIN markets ON one = least(base, quote) AND other = greatest(base, quote)
),
-- The newest balance of each token so far; blocks of one run follow each other without a gap.
held AS (
    SELECT DISTINCT
        run, block, index_in_block, l.*,
        last_value(if(token = base, balance, NULL) IGNORE NULLS) OVER so_far AS base_balance,
        last_value(if(token = quote, balance, NULL) IGNORE NULLS) OVER so_far AS quote_balance
    FROM states
    JOIN listed AS l USING (account)
    WINDOW so_far AS (
        PARTITION BY account, run
        ORDER BY block, index_in_block
        RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
-- Where a run ends, what was known is known no more.
ended AS (
    SELECT DISTINCT
        next.run, next.block, NULL::BIGINT AS index_in_block,
        account, market, base, quote, base_decimals, quote_decimals,
        NULL AS base_balance,
        NULL AS quote_balance
    FROM held
    JOIN (
        SELECT run, min(block) AS block
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
    known = PoolBalances()
    states = [STATES.empty_table()]
    of_blocks = [HEADERS.empty_table()]
    root = None
    run = 0
    first = 0
    for blocks in batches:
        headers = blocks.headers_table
        # A block that does not begin with the state in which the one before it ended begins another run.
        ends = [root, *headers["merkle_root_after"].to_pylist()]
        begins = np.array(headers["merkle_root_before"].to_pylist(), object)
        joined = begins == np.array(ends[:-1], object)
        runs = run + np.cumsum(~joined)
        changes = known.add(blocks, runs, bool(joined[0]))
        # Blocks of a batch are numbered from 0, too.
        place = changes.column_names.index("block")
        numbered = changes.set_column(place, "block", pc.add(changes["block"], first))
        states.append(numbered.select(STATES.names).cast(STATES))
        numbers = np.arange(len(runs))
        of_blocks.append(
            pa.table(
                {
                    "run": runs,
                    "block": first + numbers,
                    "block_id": headers["block_id"],
                    "created_at": pa.array(frames.created_at(blocks, numbers)),
                }
            ).cast(HEADERS)
        )
        root = ends[-1]
        run = int(runs[-1])
        first += len(runs)
    return _in_units(
        query.run(
            STEPS,
            "pool_balances",
            states=pa.concat_tables(states),
            headers=pa.concat_tables(of_blocks),
            markets=_listing(markets, tokens),
        )
    )


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
        frame[name] = frames.units(found[name], decimals, name)
    frame["created_at"] = to_utc(frame["created_at"])
    frame["market"] = frame["market"].astype("category")
    return frame
