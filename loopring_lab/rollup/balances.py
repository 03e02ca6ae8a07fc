"""Balances over blocks: one account's, what a pool keeps of each fill, and pools' balances recomputed.

Only AMM updates state balances. Between two of them, what blocks do to a balance adds up: a window sum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import WHOLE
from loopring_lab.amounts.series import as_series
from loopring_lab.arguments import parse_account_id
from loopring_lab.engine.running import run
from loopring_lab.rollup import block_frames

if TYPE_CHECKING:
    from loopring_lab.rollup.blocks import Blocks

# Each type of transaction that changes balances, with the account, token and amount of every change, and 1 if the
# amount is added or -1 if not. They are those of the circuits of Loopring/protocols,
# packages/loopring_v3/circuit/Circuits/*Circuit.h.
CHANGES = {
    "spot_trade": (
        ("account_a", "sell_a", "fill_a", -1),
        ("account_a", "buy_a", "fill_b", 1),
        ("account_a", "fee_token_a", "fee_a", -1),
        ("account_b", "sell_b", "fill_b", -1),
        ("account_b", "buy_b", "fill_a", 1),
        ("account_b", "fee_token_b", "fee_b", -1),
    ),
    "transfer": (
        ("sender", "token", "amount", -1),
        ("sender", "fee_token", "fee", -1),
        ("receiver", "to_token", "amount", 1),
    ),
    "deposit": (("account", "token", "amount", 1),),
    "withdrawal": (
        ("account", "token", "amount", -1),
        ("account", "fee_token", "fee", -1),
    ),
    "account_update": (("account", "fee_token", "fee", -1),),
    "nft_mint": (
        ("minter", "fee_token", "fee", -1),
        ("receiver", "to_token", "amount", 1),
    ),
}
AMM_UPDATE = "amm_update"  # the only type of transaction that states a balance
BEFORE_ALL = -1  # where balances stand that are carried over from the blocks before

# All changes. A trade changes three balances of each of its sides, and no other transaction more than three in all.
CHANGED = " UNION ALL ".join(
    f"SELECT block, index_in_block, '{kind}' AS kind, {number // 3} AS side, '{token}' LIKE 'fee%' AS is_fee, "
    f"{account} AS account, {token} AS token, {sign} * {amount} AS change FROM {kind}"
    for kind, changes in CHANGES.items()
    for number, (account, token, amount, sign) in enumerate(changes)
)
STEPS = f"""
WITH
-- Everything that changes a balance, the balances that AMM updates state, and those carried over from before.
entries AS (
    SELECT block, index_in_block, kind, account, token, change,
        NULL AS published
    FROM ({CHANGED})
    UNION ALL
    SELECT block, index_in_block,
        'amm_update',
        account,
        token,
        NULL,
        balance
    FROM amm_update
    UNION ALL
    SELECT {BEFORE_ALL}, {BEFORE_ALL},
        'amm_update',
        account,
        token,
        NULL,
        balance
    FROM carried
),
-- What one transaction does to one balance, or says about it. Blocks of one run follow each other without a gap.
movements AS (
    SELECT
        run, block, index_in_block, kind, account, token,
        sum(change) AS change,
        any_value(published) AS published
    FROM entries
    JOIN runs USING (block)
    SEMI JOIN wanted USING (account)
    GROUP BY ALL
)
"""
RECOMPUTED = """,
-- All changes of each balance so far, and what a statement leaves of it: what was held before the run.
totals AS (
    SELECT
        *,
        coalesce(sum(change) OVER so_far, 0) AS total,
        published - total AS held_before
    FROM movements
    WINDOW so_far AS (PARTITION BY run, account, token ORDER BY block, index_in_block)
),
-- Each balance as it follows from the statement before it and all changes since.
recomputed AS (
    SELECT *,
        total + last_value(held_before IGNORE NULLS) OVER earlier AS recomputed
    FROM totals
    WINDOW earlier AS (
        PARTITION BY run, account, token ORDER BY block, index_in_block
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
"""
OF_ACCOUNT = """
SELECT block, index_in_block, kind,
    token AS token_id,
    change,
    published,
    recomputed
FROM recomputed
WHERE published IS NOT NULL OR change <> 0
ORDER BY block, index_in_block, kind, token
"""
# Every statement, and the last known value of each balance in the last run, which goes on in the blocks to come.
STATEMENTS = """
SELECT
    block, index_in_block, account, token,
    published,
    recomputed,
    coalesce(published, recomputed) AS balance,
    row_number() OVER newest_first = 1 AND run = (SELECT max(run) FROM runs) AS is_last
FROM recomputed
WINDOW newest_first AS (PARTITION BY account, token ORDER BY block DESC, index_in_block DESC)
QUALIFY published IS NOT NULL OR is_last
ORDER BY block, index_in_block
"""
NUMBERS = pa.int64()
# Balances that are known at some point: none.
NOTHING = pa.schema(
    [
        ("account", NUMBERS),
        ("token", NUMBERS),
        ("balance", pa.decimal128(38, 0)),
    ]
).empty_table()


def balances(
    blocks: Blocks, account_id: int, tokens: pd.DataFrame | None
) -> pd.DataFrame:
    """Return every change of an account's balances, and every balance published, in block order."""
    found = _of_account(blocks, account_id)
    frame = block_frames.places(blocks, found)
    frame["kind"] = found["kind"].to_pandas().astype("str")
    frame["token_id"] = as_series(found["token_id"])
    for name in ("change", "published", "recomputed"):
        frame[name] = as_series(found[name].cast(WHOLE))
    frame = block_frames.finished(frame, blocks, tokens)
    frame.attrs["account_id"] = account_id
    return frame


def pool_fills(
    blocks: Blocks, account_id: int, tokens: pd.DataFrame | None
) -> pd.DataFrame:
    """Return a pool's fills, its balances before each, and what it kept beyond a constant product."""
    changes = _of_account(blocks, account_id).to_pylist()
    # A pool's fill changes two of its balances: one row each.
    by_place: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for change in changes:
        if change["kind"] == "spot_trade":
            by_place[change["block"], change["index_in_block"]].append(change)
    # A fill of one token against itself has one net change, and is no fill of a pool.
    fills = {
        place: _pool_fill(*legs) for place, legs in by_place.items() if len(legs) == 2
    }
    at = pd.DataFrame(list(fills), columns=["block", "index_in_block"], dtype=np.int32)
    frame = block_frames.places(blocks, at)
    for name in PoolFill._fields:
        column = [getattr(fill, name) for fill in fills.values()]
        kind = NUMBERS if name.startswith("token") else WHOLE
        frame[name] = as_series(pa.array(column, kind))
    shares = [
        None if fill.kept is None else 10_000 * fill.kept / (fill.amount_in or 1)
        for fill in fills.values()
    ]
    frame["kept_bps"] = pd.Series(shares, dtype="float64")
    frame = block_frames.finished(frame, blocks, tokens)
    frame.attrs["account_id"] = account_id
    return frame


class PoolFill(NamedTuple):
    """A fill from the side of a pool; balances are those before it."""

    token_in_id: int
    amount_in: int
    token_out_id: int
    amount_out: int
    balance_in: int | None
    balance_out: int | None
    kept: int | None


def _pool_fill(one: dict[str, Any], other: dict[str, Any]) -> PoolFill:
    """Return a pool's fill from its net changes of two balances."""
    out, into = sorted((one, other), key=lambda leg: int(leg["change"]))
    amount_in = int(into["change"])
    amount_out = -int(out["change"])
    balance_in = _before(into)
    balance_out = _before(out)
    kept = None
    if (
        balance_in is not None
        and balance_out is not None
        and 0 < amount_out < balance_out
    ):
        # A pool without a fee keeps x * y = k. With balances x and y before a fill that takes `out` of y, it needs
        #     (x + needed) * (y - out) = x * y,    so    needed = x * out / (y - out),
        # and whatever else came in, it kept. What it needs is rounded up, as the exchange rounds for the pool.
        needed = -(-balance_in * amount_out // (balance_out - amount_out))
        kept = amount_in - needed
    return PoolFill(
        into["token_id"],
        amount_in,
        out["token_id"],
        amount_out,
        balance_in,
        balance_out,
        kept,
    )


def _before(leg: dict[str, Any]) -> int | None:
    """Return a balance before a change, if it is known after it."""
    after = leg["recomputed"]
    # Whole numbers first: decimals of Python would be rounded to 28 digits.
    return None if after is None else int(after) - int(leg["change"])


def statements(
    blocks: Blocks, runs: np.ndarray, carried: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """Return every balance that AMM updates state, beside the one ``recomputed``, and what is known at the end.

    `runs` numbers the unbroken sequences of these blocks. `carried` is what was known at the end of the blocks
    before: `NOTHING` where blocks between are missing.
    """
    stated = blocks.table(AMM_UPDATE)["account"].to_pylist()
    accounts = {*stated, *carried["account"].to_pylist()}
    found = _ask(RECOMPUTED + STATEMENTS, blocks, runs, accounts, carried)
    # Only what was stated can be carried over.
    known = found.filter(pc.field("is_last") & pc.field("balance").is_valid())
    is_here = pc.field("block") != BEFORE_ALL
    return (
        found.filter(is_here & pc.field("published").is_valid()),
        known.select(NOTHING.column_names).cast(NOTHING.schema),
    )


def movements(blocks: Blocks, runs: np.ndarray, first: int) -> pa.Table:
    """Return what transactions change or state of the balances of known pools; blocks are numbered from `first`."""
    numbered = f"SELECT * REPLACE (block + {first} AS block) FROM movements"
    return _ask(numbered, blocks, runs, blocks.known_pools)


def _of_account(blocks: Blocks, account_id: int) -> pa.Table:
    # Frames of one account take the blocks as they are, with gaps: `Blocks.balances` says so.
    one_run = np.zeros(len(blocks.raw), np.int64)
    account = parse_account_id(account_id)
    return _ask(RECOMPUTED + OF_ACCOUNT, blocks, one_run, [account])


def _ask(
    last_steps: str,
    blocks: Blocks,
    runs: np.ndarray,
    accounts: Collection[int],
    carried: pa.Table = NOTHING,
) -> pa.Table:
    # Balances that are carried over stand before all blocks, in the run of the first block.
    run_of = np.concatenate([runs[:1], runs])
    numbers = BEFORE_ALL + np.arange(len(run_of))
    tables: dict[str, pa.Table] = {
        kind: blocks.table(kind) for kind in (*CHANGES, AMM_UPDATE)
    }
    tables["carried"] = carried
    tables["wanted"] = pa.table({"account": pa.array(accounts, NUMBERS)})
    tables["runs"] = pa.table({"block": numbers, "run": run_of})
    return run(STEPS + last_steps, "balances", **tables)
