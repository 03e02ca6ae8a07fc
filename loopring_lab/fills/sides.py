"""Roles and sides: who took and who made a fill, and frames that hold each fill once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from loopring_lab.engine.groups import literal
from loopring_lab.engine.query import PLACE, Question, ask, collected, run
from loopring_lab.errors import LabError

# What roles follow from. Questions with the steps of `role_steps` need these, and the derived column "ms".
ROLE_COLUMNS = ("created_at", "trade_id", "account_id", "market", "side", "fill_type", "role", "fee")

# What is known of accounts at pools, before anything is.
NO_POOLS = pa.table(
    {
        "pool_market": pa.array([], pa.string()),
        "pool_account": pa.array([], pa.int64()),
        "pool_role": pa.array([], pa.string()),
    }
)

KNOWN = """
-- rows with the role that is reported, or that follows from a pool which the caller names
SELECT trades.*, coalesce(role, {given}) AS known_role, coalesce(fee > 0, FALSE) AS pays, pool_role
FROM trades
LEFT JOIN pools
    ON fill_type = 'amm' AND account_id = pool_account AND market IS NOT DISTINCT FROM pool_market"""

SIDES = """
-- each side of each fill; a fill that was read twice has further rows, which say the same
SELECT trade_id, market, ms, side, min(fill_type) AS fill_type, min(account_id) AS account, bool_or(pays) AS pays,
    CASE WHEN min(known_role) = max(known_role) THEN min(known_role) END AS known_role,
    CASE WHEN min(pool_role) = max(pool_role) THEN min(pool_role) END AS pool_role
FROM known
WHERE side IN ('BUY', 'SELL')
GROUP BY trade_id, market, ms, side"""

PAIRED = """
-- rows with what is known of the other side of their fill
SELECT k.*, o.fill_type AS other_type, o.account AS other_account, coalesce(o.pays, FALSE) AS other_pays,
    o.known_role AS other_role, o.pool_role AS other_pool_role
FROM known AS k
LEFT JOIN sides AS o
    ON k.trade_id = o.trade_id AND k.market = o.market AND k.ms IS NOT DISTINCT FROM o.ms
    AND o.side = CASE k.side WHEN 'BUY' THEN 'SELL' WHEN 'SELL' THEN 'BUY' END"""

# Makers pay no fee, so who alone pays one is the taker.
FOLLOWED = """
-- rows with the first role that follows, and from what
SELECT *, CASE
    WHEN role IS NOT NULL THEN {{'role': role, 'source': 'reported'}}
    WHEN known_role IS NOT NULL THEN {{'role': known_role, 'source': 'pool'}}
    WHEN other_role = 'taker' THEN {{'role': 'maker', 'source': 'other side'}}
    WHEN pays AND NOT other_pays AND (fill_type = 'amm' OR {fees_tell}) THEN {{'role': 'taker', 'source': 'fee'}}
    WHEN other_role = 'maker' THEN {{'role': 'taker', 'source': 'other side'}}
    WHEN other_pays AND NOT pays AND other_role IS NULL AND (other_type = 'amm' OR {fees_tell}) THEN {{'role': 'maker', 'source': 'other side'}}
    WHEN pool_role IS NOT NULL THEN {{'role': pool_role, 'source': 'pool'}}
    WHEN other_pool_role = 'taker' THEN {{'role': 'maker', 'source': 'other side'}}
    WHEN other_pool_role = 'maker' THEN {{'role': 'taker', 'source': 'other side'}}
    END AS finding
FROM paired"""

TOLD = """
-- the trades with the role of each row, where one follows
SELECT * EXCLUDE (known_role, pays, pool_role, other_type, other_pays, other_role, other_pool_role, finding),
    finding.role AS told_role, finding.source AS told_source
FROM followed"""

# All rows in one order, the oldest first; block 0 is that of rows which are in no block yet.
IN_ORDER = """ms NULLS LAST, nullif(block_id, 0) NULLS LAST, index_in_block NULLS LAST, trade_id NULLS LAST,
    side NULLS LAST, order_hash NULLS LAST, price NULLS LAST, account_id NULLS LAST, fee NULLS LAST, row"""
# What that takes besides `ROLE_COLUMNS`.
ORDERED_BY = (*PLACE, "order_hash", "price")

ONCE = f"""
-- one row of each fill: the taker's, else one of unknown role, else the maker's; of two unknown ones the BUY
SELECT *
FROM told
QUALIFY trade_id IS NULL OR row_number() OVER (
    PARTITION BY trade_id
    ORDER BY CASE told_role WHEN 'taker' THEN 1 WHEN 'maker' THEN 3 ELSE 2 END, side NULLS LAST, {IN_ORDER}
) = 1"""

# Whether a maker on the order book is seen to pay a fee: then fees there prove nothing.
MAKERS_PAY = """
SELECT coalesce(bool_or(pays AND (known_role = 'maker' OR other_role = 'taker' OR other_pays)), FALSE) AS makers_pay
FROM paired
WHERE fill_type IS DISTINCT FROM 'amm'"""

EVIDENCE = """
-- what fills at pools show of accounts; an account that trades on the order book is no pool, as one that takes
SELECT DISTINCT market, account_id, told_role IS NULL AS is_open,
    CASE fill_type WHEN 'dex' THEN 'taker' ELSE told_role END AS role,
    CASE WHEN told_role IS NULL THEN other_account END AS other_account
FROM told
WHERE account_id IS NOT NULL AND (fill_type IN ('amm', 'dex') OR told_role = 'taker')"""

# One round of what follows about accounts at pools: a market has one pool, which never takes, and one side of
# each fill there is the pool's.
ROUND = """
WITH takers AS (
    SELECT DISTINCT account_id FROM evidence WHERE role = 'taker'
),
makers AS (
    SELECT DISTINCT market, account_id FROM evidence
    WHERE role = 'maker' AND market IS NOT NULL AND account_id NOT IN (FROM takers)
)
SELECT market, account_id, is_open, other_account, CASE
    WHEN role IS NOT NULL THEN role
    WHEN account_id IN (FROM takers) THEN 'taker'
    WHEN (market, account_id) IN (FROM makers) THEN 'maker'
    WHEN market IN (SELECT market FROM makers) THEN 'taker'
    WHEN other_account IN (FROM takers) THEN 'maker'
    END AS role
FROM evidence"""


def with_roles(trades: Any, pools: Any = None) -> Any:
    """Fill in the role of each fill where it follows with certainty, and say how it is known.

    Relayers send roles since 2023 only. For earlier fills this follows: a pool is always the maker; an
    account that takes, or trades on the order book, is no pool; a market has one pool; makers pay no fee; of
    the two sides of a fill one is the maker's and one the taker's. A reported role is never changed.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`; with more accounts, more roles follow.
    pools : mapping of str to int or list of int, or list of int, optional
        Accounts that are pools, by market where that is known: any other account's fills at the pool of such
        a market are the taker's.

    Returns
    -------
    frame of the same kind
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
    caller = "lab.fills.with_roles"
    steps, tables = role_steps(trades, caller, pools)
    steps["rows"] = """
-- a source that the frame has already stays beside a reported role, so that asking again changes nothing
SELECT row, told_role AS role,
    CASE WHEN told_source = 'reported' THEN coalesce(role_source, 'reported') ELSE told_source END AS role_source
FROM told"""
    question = Question(caller, steps, needs=ROLE_COLUMNS, may_have=("role_source",), derived=("ms",), shown=None)
    return ask(question, trades, **tables)


def one_side(trades: Any) -> Any:
    """Keep one row of each fill: the taker's where the frame holds both sides.

    Trades of several accounts hold both rows of a fill between two of them, and a fill that was read twice
    has further rows. Counts and sums of fills include each of these rows.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, usually of several accounts, or from `with_roles`.

    Returns
    -------
    frame of the same kind
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
    caller = "lab.fills.one_side"
    steps, tables = role_steps(trades, caller)
    steps["once"] = ONCE
    steps["rows"] = f"SELECT row FROM once ORDER BY {IN_ORDER}"
    question = Question(
        caller,
        steps,
        needs=ROLE_COLUMNS,
        may_have=ORDERED_BY,
        derived=("ms",),
        shown=None,
        is_sorted=True,
    )
    return ask(question, trades, **tables)


def role_steps(trades: Any, caller: str, pools: Any = None) -> tuple[dict[str, str], dict[str, pa.Table]]:
    """Return the steps from ``trades`` to ``told``, and the tables that a question with them is asked with.

    ``told`` has the columns of ``trades`` with ``told_role`` and ``told_source``. Which accounts are pools, and
    whether makers pay fees, follows from all markets together: that is asked here, unless all roles are reported.
    The question needs `ROLE_COLUMNS` and derives ``ms``.
    """
    given = _given_role(pools, caller)
    unknown = Question(
        caller,
        steps={
            "sums": "SELECT count(*) FILTER (WHERE role IS NULL) AS fills FROM trades",
            "answer": "SELECT CAST(sum(fills) AS BIGINT) AS fills FROM sums",
        },
        needs=("role",),
    )
    if not collected(ask(unknown, trades), caller)["fills"][0].as_py():
        return {"told": "SELECT *, role AS told_role, 'reported' AS told_source FROM trades"}, {}

    paired = {"known": KNOWN.format(given=given), "sides": SIDES, "paired": PAIRED}
    evidence = Question(
        caller,
        steps={
            **paired,
            "sums": MAKERS_PAY,
            "means": "SELECT bool_or(makers_pay) AS makers_pay FROM sums",
            "followed": FOLLOWED.format(fees_tell="(SELECT NOT makers_pay FROM means)"),
            "told": TOLD,
            "spreads": EVIDENCE,
            "answer": "SELECT * FROM means LEFT JOIN spreads ON TRUE",
        },
        needs=ROLE_COLUMNS,
        derived=("ms",),
    )
    found = collected(ask(evidence, trades, pools=NO_POOLS), caller)
    fees_tell = not found["makers_pay"][0].as_py()
    steps = {**paired, "followed": FOLLOWED.format(fees_tell=fees_tell), "told": TOLD}
    return steps, {"pools": _roles_at_pools(found, caller)}


def _roles_at_pools(evidence: pa.Table, caller: str) -> pa.Table:
    """Return which accounts are pools of a market, and which trade with it, as far as that follows."""
    unknown = -1
    while evidence["role"].null_count != unknown:
        unknown = evidence["role"].null_count
        evidence = run(ROUND, caller, evidence=evidence)
    told = """
        SELECT market AS pool_market, account_id AS pool_account, min(role) AS pool_role FROM evidence
        WHERE is_open AND role IS NOT NULL GROUP BY market, account_id"""
    return run(told, caller, evidence=evidence)


def _given_role(pools: Any, caller: str) -> str:
    """Check ``pools=`` of a call, and return the role that follows from it as SQL."""
    by_market = pools if isinstance(pools, Mapping) else {None: [] if pools is None else pools}
    anywhere = []
    pairs = []
    for market, accounts in by_market.items():
        several = accounts if isinstance(accounts, Iterable) and not isinstance(accounts, str) else [accounts]
        for account in several:
            if not isinstance(account, (int, np.integer)) or not isinstance(market, (str, type(None))):
                raise LabError(
                    f"{caller}: pools= has {account!r} for {market or 'any market'}, not an account id for a "
                    "market. Give numbers, such as {'LRC-ETH': 1} or [1, 22]."
                )
            if market is None:
                anywhere.append(str(account))
            else:
                pairs.append(f"({literal(market.removeprefix('AMM-'))}, {account})")
    roles = []
    if anywhere:
        roles.append(f"WHEN account_id IN ({', '.join(anywhere)}) THEN 'maker'")
    if pairs:
        listed = f"(VALUES {', '.join(pairs)}) AS given(market, account_id)"
        roles.append(
            f"WHEN (market, account_id) IN (SELECT market, account_id FROM {listed}) THEN 'maker' "
            f"WHEN market IN (SELECT market FROM {listed}) THEN 'taker'"
        )
    if not roles:
        return "NULL"
    return f"CASE WHEN fill_type = 'amm' AND account_id IS NOT NULL THEN CASE {' '.join(roles)} END END"


# What the comparison before this one imports, until it is replaced.
TAKER, UNKNOWN, Roles, first_sides = (Any,) * 4
