"""Roles and sides: who took and who made a fill, and frames that hold each fill once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from loopring_lab.engine.ask import ask, ask_table, counts, given
from loopring_lab.engine.groups import literal, several
from loopring_lab.engine.kinds import FrameT, Given, Trades
from loopring_lab.engine.question import PLACE, Question
from loopring_lab.engine.running import run
from loopring_lab.errors import LabError
from loopring_lab.tables.listings import POOL_PREFIX

# Columns that roles follow from. Questions with the steps of `role_steps` need these, and the derived column "ms".
ROLE_COLUMNS = (
    "created_at",
    "trade_id",
    "account_id",
    "market",
    "side",
    "fill_type",
    "role",
    "fee",
)

# The accounts whose role at the pool of a market is known: at first, there are none.
NO_POOLS = pa.schema(
    {"pool_market": pa.string(), "pool_account": pa.int64(), "at_pool": pa.int8()}
).empty_table()

# In these steps a taker is 1 and a maker is -1, so that the role of one side is the negative of the other's.
SIGNED = """
-- rows with the role that is reported or that follows from the pools which the caller names
SELECT trades.*, at_pool,
    coalesce(fee > 0, FALSE) AS pays,
    CASE role
        WHEN 'taker' THEN 1
        WHEN 'maker' THEN -1
        ELSE {given}
    END AS known
FROM trades
LEFT JOIN pools
    ON fill_type = 'amm' AND account_id = pool_account AND market IS NOT DISTINCT FROM pool_market"""

SIDES = """
-- each side of each fill; a fill that was read twice has further rows
SELECT trade_id, market, ms, side,
    min(fill_type) AS fill_type,
    min(account_id) AS account,
    bool_or(pays) AS pays,
    max(known) AS known,
    max(at_pool) AS at_pool
FROM signed
WHERE side IN ('BUY', 'SELL')
GROUP BY trade_id, market, ms, side"""

PAIRED = """
-- rows with what is known of the other side of their fill
SELECT k.*,
    o.fill_type AS other_type,
    o.account AS other_account,
    coalesce(o.pays, FALSE) AS other_pays,
    o.known AS other_known,
    o.at_pool AS other_at_pool
FROM signed AS k
LEFT JOIN sides AS o
    ON k.trade_id = o.trade_id
    AND k.market = o.market
    AND k.ms IS NOT DISTINCT FROM o.ms
    AND o.side = CASE k.side
        WHEN 'BUY' THEN 'SELL'
        WHEN 'SELL' THEN 'BUY'
    END"""

SHOWN = """
-- rows with the role that they show by themselves and that of the other side: who alone pays a fee is the taker
SELECT *,
    CASE
        WHEN known IS NULL
            AND pays
            AND NOT other_pays
            AND other_known IS DISTINCT FROM 1
            AND (fill_type = 'amm' OR {fees_tell}) THEN 1
        ELSE known
    END AS own,
    CASE
        WHEN other_known IS NULL
            AND other_pays
            AND NOT pays
            AND known IS DISTINCT FROM 1
            AND (other_type = 'amm' OR {fees_tell}) THEN 1
        ELSE other_known
    END AS other
FROM paired"""

TOLD = """
-- the trades with the role of each row, where one follows, and from what
SELECT * EXCLUDE (known, pays, at_pool, other_type, other_account, other_pays, other_known, other_at_pool, own, other),
    coalesce(
        role,
        CASE coalesce(own, -other, at_pool, -other_at_pool)
            WHEN 1 THEN 'taker'
            WHEN -1 THEN 'maker'
        END
    ) AS told_role,
    CASE
        WHEN role IS NOT NULL THEN 'reported'
        WHEN known IS NOT NULL THEN 'pool'
        WHEN own IS NOT NULL THEN 'fee'
        WHEN other IS NOT NULL THEN 'other side'
        WHEN at_pool IS NOT NULL THEN 'pool'
        WHEN other_at_pool IS NOT NULL THEN 'other side'
    END AS told_source
FROM shown"""

# The one order of all rows: the oldest first, unknown ones last. Block 0 is that of rows which are in no block yet.
IN_ORDER = "ms, nullif(block_id, 0), index_in_block, trade_id, side, order_hash, price, account_id, fee, row"
# Columns that this order takes besides `ROLE_COLUMNS`.
ORDERED_BY = (*PLACE, "order_hash", "price")

ONCE = f"""
-- one row of each fill: the taker's, else one of unknown role, else the maker's; of two unknown ones the BUY
SELECT *
FROM told
QUALIFY trade_id IS NULL OR row_number() OVER (
    PARTITION BY trade_id
    ORDER BY (CASE told_role WHEN 'taker' THEN 1 WHEN 'maker' THEN 3 ELSE 2 END, side, {IN_ORDER})
) = 1"""

# The same without makers' rows: each fill once as far as its taker may be known, and whether that is so.
TAKEN = {
    "taking": """
-- takers' rows, and those that might be
SELECT *
FROM told
WHERE told_role IS DISTINCT FROM 'maker'""",
    "doubled": """
-- fills with several such rows
SELECT trade_id
FROM taking
WHERE trade_id IS NOT NULL
GROUP BY trade_id
HAVING count(*) > 1""",
    "once": f"""
-- one row of each fill, the taker's if it is known; putting all rows in order would take a fifth of the whole time
SELECT *
FROM taking
WHERE trade_id IS NULL OR trade_id NOT IN (FROM doubled)
UNION ALL
SELECT *
FROM taking
WHERE trade_id IN (FROM doubled)
QUALIFY row_number() OVER (PARTITION BY trade_id ORDER BY (told_role IS NULL, side, {IN_ORDER})) = 1""",
    "takers": """
-- a fill is not taken, as far as is known, if its taker or venue is unknown
SELECT *,
    coalesce(told_role = 'taker' AND fill_type IN ('amm', 'dex'), FALSE) AS is_taken
FROM once""",
}

# This query finds whether a maker on the order book is seen to pay a fee; if so, fees there prove nothing.
MAKERS_PAY = """
-- whether a maker pays, by market
SELECT bool_or(pays AND (known = -1 OR other_known = 1 OR other_pays)) AS makers_pay
FROM paired
WHERE fill_type IS DISTINCT FROM 'amm'"""

EVIDENCE = """
-- what rows show of accounts at pools: one that trades on the order book is no pool, as one that takes
SELECT DISTINCT market, account_id, other_account,
    role IS NULL AS is_open,
    CASE fill_type WHEN 'dex' THEN 1 ELSE coalesce(own, -other) END AS sign
FROM shown
WHERE account_id IS NOT NULL AND (fill_type IN ('amm', 'dex') OR own = 1 OR other = -1)"""

# One round of conclusions from that evidence: a market has one pool, which never takes, and is one side of each fill
# there.
ROUND = """
-- the evidence with what follows from it
WITH takers AS (  -- accounts that take
    SELECT DISTINCT account_id
    FROM evidence
    WHERE sign = 1
),
makers AS (  -- pools
    SELECT DISTINCT market, account_id
    FROM evidence
    WHERE sign = -1 AND market IS NOT NULL AND account_id NOT IN (FROM takers)
)
SELECT * REPLACE (CASE
    WHEN sign IS NOT NULL THEN sign
    WHEN account_id IN (FROM takers) THEN 1
    WHEN (market, account_id) IN (FROM makers) THEN -1
    WHEN market IN (SELECT market FROM makers) THEN 1
    WHEN other_account IN (FROM takers) THEN -1
    END AS sign)
FROM evidence"""

AT_POOLS = """
-- accounts whose role at pools is known
SELECT
    market AS pool_market,
    account_id AS pool_account,
    max(sign) AS at_pool
FROM evidence
WHERE is_open AND sign IS NOT NULL
GROUP BY market, account_id"""


def with_roles(trades: Trades[FrameT], pools: Any = None) -> FrameT:
    """Fill in the role of each fill where it follows with certainty, and say how it is known.

    Relayers send roles since 2023 only. For earlier fills this follows: a pool is always the maker; an
    account that takes, or trades on the order book, is no pool; a market has one pool; makers pay no fee; of
    the two sides of a fill one is the maker's and one the taker's. A reported role is never changed.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`; with more accounts, more roles follow.
    pools : mapping of str to int or list of int, or list of int, optional
        Accounts that are pools, by market where that is known: any other account's fills at the pool of such
        a market are the taker's.

    Returns
    -------
    frame of the same kind (pandas for an Archive)
        The trades with ``role`` filled in, and ``role_source``: ``reported``; ``pool`` (at a pool: the
        account is the pool, or is known not to be); ``fee`` (it paid one); ``other side`` (the role of the
        other row of the same ``trade_id`` and market is known). Both are null where no role follows, such as
        for an order-book fill without a fee whose other side is not in `trades`.

    Raises
    ------
    LabError, AmountError
        As for `fees.with_tiers`, or `pools` does not hold account ids.

    Notes
    -----
    Loopring Exchange has never charged makers [1]_. Of 577 fills in three mainnet blocks none had a maker who
    paid a fee, or a pool that was the taker. No two of 119 registered pools share a market. In trades where a
    maker on the order book does pay a fee, fees there prove nothing and are not used.

    References
    ----------
    .. [1] M. Finestone, "Market Maker Rebates, New Fee Schedule Implemented on Loopring Exchange", Loopring
       Protocol, 4 August 2020.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100).assign(role=None)
    >>> known = lab.fills.with_roles(trades)
    >>> set(known.loc[known["fill_type"] == "amm", "role"])
    {'taker'}
    """
    fills = given(trades, "lab.fills.with_roles")
    steps, tables = role_steps(fills, pools)
    steps["rows"] = """
-- a source that the frame has already stays beside a reported role, so that asking again changes nothing
SELECT row,
    told_role AS role,
    CASE
        WHEN told_source = 'reported' THEN coalesce(role_source, 'reported')
        ELSE told_source
    END AS role_source
FROM told"""
    may_have = ("role_source",)
    question = Question(fills.caller, steps, ROLE_COLUMNS, may_have, shown=None)
    return ask(question, fills, **tables)


def one_side(trades: Trades[FrameT]) -> FrameT:
    """Keep one row of each fill: the taker's where the frame holds both sides.

    Trades of several accounts hold both rows of a fill between two of them, and a fill that was read twice
    has further rows. Counts and sums of fills include each of these rows.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB or Spark, or an Archive
        From `Client.trades`, usually of several accounts, or from `with_roles`.

    Returns
    -------
    frame of the same kind (pandas for an Archive)
        The trades, oldest first, with one row for each ``trade_id``: the taker's as `with_roles` finds it,
        else one of unknown role, else the maker's; of two unknown ones the BUY. Rows without a ``trade_id``
        are all kept. The order of `trades` changes nothing, except where rows differ in columns of your own alone.

    Raises
    ------
    LabError, AmountError
        As for `with_roles`.

    Examples
    --------
    >>> import pandas as pd
    >>> trades = pd.concat([client.trades(account, market="LRC-ETH") for account in (11519, 32670)])
    >>> once = lab.fills.one_side(trades)
    >>> once["trade_id"].is_unique, len(once) < len(trades)
    (True, True)
    """
    fills = given(trades, "lab.fills.one_side")
    steps, tables = role_steps(fills)
    steps["once"] = ONCE
    steps["rows"] = f"-- oldest first\nSELECT row FROM once ORDER BY ({IN_ORDER})"
    question = Question(
        fills.caller,
        steps,
        needs=ROLE_COLUMNS,
        may_have=ORDERED_BY,
        shown=None,
        is_sorted=True,
    )
    return ask(question, fills, **tables)


def role_steps(
    trades: Given[Any], pools: Any = None
) -> tuple[dict[str, str], dict[str, pa.Table]]:
    """Return the steps from ``trades`` to ``told``, and the tables that a question with them is asked with.

    ``told`` has the columns of ``trades`` with ``told_role`` and ``told_source``. Which accounts are pools, and
    whether makers pay fees, follows from all markets together: that is asked here, unless all roles are reported.
    The question needs `ROLE_COLUMNS` and derives ``ms``.
    """
    caller = trades.caller
    given_role = _given_role(pools, caller)
    unknown = "count(*) FILTER (WHERE role IS NULL)"
    if not counts(trades, ("role",), unknown=unknown)["unknown"]:
        return {
            "told": "-- as reported\nSELECT *, role AS told_role, 'reported' AS told_source FROM trades"
        }, {}

    paired = {
        "signed": SIGNED.format(given=given_role),
        "sides": SIDES,
        "paired": PAIRED,
    }
    asked = Question(
        caller,
        steps={
            **paired,
            "sums": MAKERS_PAY,
            "means": "-- in any market\nSELECT coalesce(bool_or(makers_pay), FALSE) AS makers_pay FROM sums",
            "shown": SHOWN.format(fees_tell="(SELECT NOT makers_pay FROM means)"),
            "spreads": EVIDENCE,
            "answer": "-- both in one table\nSELECT * FROM means LEFT JOIN spreads ON TRUE",
        },
        needs=ROLE_COLUMNS,
    )
    evidence = ask_table(asked, trades, pools=NO_POOLS)
    fees_tell = not evidence["makers_pay"][0].as_py()
    still_unknown = -1
    while evidence["sign"].null_count != still_unknown:
        still_unknown = evidence["sign"].null_count
        evidence = run(ROUND, caller, evidence=evidence)
    steps = {**paired, "shown": SHOWN.format(fees_tell=fees_tell), "told": TOLD}
    return steps, {"pools": run(AT_POOLS, caller, evidence=evidence)}


def _given_role(pools: Any, caller: str) -> str:
    """Check ``pools=`` of a call, and return the role that follows from it as SQL."""
    by_market = (
        pools if isinstance(pools, Mapping) else {None: [] if pools is None else pools}
    )
    roles = []
    for market, accounts in by_market.items():
        given = several(accounts)
        for account in given:
            if not isinstance(account, (int, np.integer)) or not isinstance(
                market, (str, type(None))
            ):
                raise LabError(
                    f"{caller}: pools= has {account!r} for {market or 'any market'}, not an account id for a "
                    "market. Give numbers, such as {'LRC-ETH': 1} or [1, 22]."
                )
        listed = ", ".join(map(str, given))
        if not listed:
            continue
        if market is None:
            roles.append(f"WHEN account_id IN ({listed}) THEN -1")
        else:
            here = literal(market.removeprefix(POOL_PREFIX))
            roles.append(
                f"WHEN market = {here} THEN CASE WHEN account_id IN ({listed}) THEN -1 ELSE 1 END"
            )
    if not roles:
        return "NULL"
    told = " ".join(roles)
    return f"CASE WHEN role IS NULL AND fill_type = 'amm' AND account_id IS NOT NULL THEN CASE {told} END END"
