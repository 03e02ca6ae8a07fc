"""Roles and sides: who took and who made a fill, and frames that hold each fill once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import convert
from loopring_lab.engines.adapters import DECIMAL_256
from loopring_lab.engines.aggregate import equal, ranks
from loopring_lab.engines.arrays import numbered
from loopring_lab.engines.asof import TIE_BREAKERS, in_order
from loopring_lab.errors import LabError
from loopring_lab.tables.identity import SIDES
from loopring_lab.tables.rows import ROLES

PLACE = ("block_id", "index_in_block")
COLUMNS = ("trade_id", "account_id", "market", "side", "fill_type", "role", "fee")
MAKER, TAKER = range(2)
SOURCES = ("reported", "pool", "fee", "other side")
REPORTED, POOL, FEE, OTHER_SIDE = range(4)
UNKNOWN = -1
ZERO = pa.scalar(Decimal(0), DECIMAL_256)

Pools = dict[str | None, set[int]]
"""Accounts of pools by market; under None those whose market is not given."""


def with_roles(trades: Any, pools: Any = None) -> Any:
    """Fill in the role of each fill where it follows with certainty, and say how it is known.

    Relayers send roles since 2023 only. For earlier fills this follows: a pool is always the maker; an
    account that takes, or trades on the order book, is no pool; a market has one pool; makers pay no fee; of
    the two sides of a fill one is the maker's and one the taker's. A reported role is never changed.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
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
    caller = "fills.with_roles"
    given = _pool_accounts(pools, caller)
    fills = convert.to_table(trades, caller, COLUMNS, ["role_source"])
    found = _Roles(fills, given)
    role = pc.coalesce(fills["role"].cast(pa.string()), _texts(found.role, ROLES))
    source = _texts(found.source, SOURCES)
    if "role_source" in fills.column_names:
        source = pc.if_else(fills["role"].is_valid(), pc.coalesce(fills["role_source"], source), source)
    return convert.with_columns(trades, {"role": role, "role_source": source})


def one_side(trades: Any) -> Any:
    """Keep one row of each fill: the taker's where the frame holds both sides.

    Trades of several accounts hold both rows of a fill between two of them, and a fill that was read twice
    has further rows. Counts and sums of fills include each of these rows.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`, usually of several accounts, or from `with_roles`.

    Returns
    -------
    frame of the same kind
        The trades, oldest first, with one row for each ``trade_id``: the taker's as `with_roles` finds it,
        else one of unknown role, else the maker's; of two unknown ones the BUY. Rows without a ``trade_id``
        are all kept. The order of `trades` changes nothing.

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
    caller = "fills.one_side"
    fills = convert.to_table(trades, caller, [*COLUMNS, "created_at", "order_hash"], PLACE)
    order = _order(trades, fills)
    preference = np.array([2, 0, 1])[_Roles(fills, {}).role]  # the maker last, of unknown role before it
    ids, count = ranks(fills["trade_id"], "trade_id")
    best = np.lexsort((order, ranks(fills["side"], "side")[0], preference, ids))
    first = np.append(True, np.diff(ids[best]) != 0)[: len(best)]
    kept = best[first | (ids[best] == count - 1)]  # the last rank is that of null
    return convert.take(trades, kept[np.argsort(order[kept])])


class _Roles:
    """The role of each row and how it is known, as positions in `ROLES` and `SOURCES`."""

    def __init__(self, fills: pa.Table, pools: Pools) -> None:
        reported = [equal(fills["role"], role) for role in ROLES]
        self.role = np.select(reported, [MAKER, TAKER], UNKNOWN)
        self._settled = np.asarray(fills["role"].is_valid())
        self.source = np.where(self._settled, REPORTED, UNKNOWN)
        self._account, self._market = numbered(fills["account_id"]), numbered(fills["market"])
        self._pool_fill, self._book_fill = (equal(fills["fill_type"], name) for name in ("amm", "dex"))
        self._pair_up(fills)
        self._use_given_pools(fills, pools)
        self._use_fees(np.asarray(pc.greater(fills["fee"], ZERO).fill_null(False)))
        while self._use_other_sides() | self._use_proven_pools():
            pass

    def _pair_up(self, fills: pa.Table) -> None:
        """Number the sides of each fill, so that `side ^ 1` is the other side; -1 where unknown."""
        trade = numbered(fills["trade_id"])
        pairs = pd.DataFrame({"trade": trade, "market": self._market})
        number, side = pairs.groupby(["trade", "market"]).ngroup().to_numpy(), np.full(len(trade), -1)
        for code, name in enumerate(SIDES):
            side[equal(fills["side"], name)] = code
        self._side = np.where((trade < 0) | (side < 0), -1, 2 * number + side)

    def _has_other(self, rows: np.ndarray) -> np.ndarray:
        """Return a mask of the rows whose other side is among these."""
        found = np.zeros(2 * len(rows) + 1, bool)
        found[self._side[rows]] = True
        return np.asarray((self._side >= 0) & found[self._side ^ 1])

    def _settle(self, rows: np.ndarray, role: int, source: int) -> bool:
        """Set the role of rows that have none yet; return whether there are any."""
        new = rows & ~self._settled
        self.role[new], self.source[new] = role, source
        self._settled |= new
        return bool(new.any())

    def _use_given_pools(self, fills: pa.Table, pools: Pools) -> None:
        for market, accounts in pools.items():
            here = self._pool_fill & (market is None or equal(fills["market"], market))
            own = np.asarray(pc.is_in(fills["account_id"], pa.array(accounts, fills["account_id"].type)))
            self._settle(here & own, MAKER, POOL)
            self._settle(here & ~own & (self._account >= 0) & (market is not None), TAKER, POOL)

    def _use_fees(self, paid: np.ndarray) -> None:
        """Take who pays for the taker; on the book only if no maker there pays."""
        taken = self._has_other(self.role == TAKER)
        book = ~self._pool_fill
        makers_pay = paid & ((self.role == MAKER) | taken | self._has_other(paid))
        fees_tell = self._pool_fill | ~(book & makers_pay).any()
        self._settle(paid & fees_tell & ~taken & ~self._has_other(paid), TAKER, FEE)

    def _use_other_sides(self) -> bool:
        made, taken = (self._has_other(self.role == role) for role in (MAKER, TAKER))
        return self._settle(taken & ~made, MAKER, OTHER_SIDE) | self._settle(made & ~taken, TAKER, OTHER_SIDE)

    def _use_proven_pools(self) -> bool:
        """Use that an account which made a pool fill is that market's pool, and one that takes is none."""
        if not len(self.role):
            return False
        known = self._pool_fill & (self._account >= 0)
        is_trader = np.zeros(self._account.max() + 2, bool)
        is_trader[self._account[self._book_fill | (self.role == TAKER)]] = True
        is_trader[-1] = False
        trader = is_trader[self._account]
        proven = known & (self.role == MAKER) & ~trader & (self._market >= 0)
        place = self._market * (self._account.max() + 1) + self._account
        at_pool = known & np.isin(place, place[proven])
        other = known & ~at_pool & (trader | np.isin(self._market, self._market[proven]))
        return self._settle(at_pool, MAKER, POOL) | self._settle(other, TAKER, POOL)


def _pool_accounts(pools: Any, caller: str) -> Pools:
    by_market = pools if isinstance(pools, Mapping) else {} if pools is None else {None: pools}
    found: Pools = {}
    for market, accounts in by_market.items():
        several = accounts if isinstance(accounts, Iterable) and not isinstance(accounts, str) else [accounts]
        for account in several:
            if not isinstance(account, (int, np.integer)) or not isinstance(market, (str, type(None))):
                raise LabError(
                    f"{caller}: pools= has {account!r} for {market or 'any market'}, not an account id for a "
                    "market. Give numbers, such as {'LRC-ETH': 1} or [1, 22]."
                )
            found.setdefault(market and market.removeprefix("AMM-"), set()).add(int(account))
    return found


def _order(trades: Any, fills: pa.Table) -> np.ndarray:
    """Number rows in their total order; rows that share all of its columns by their whole content."""
    names = [name for name in ("moment", *TIE_BREAKERS) if name in fills.column_names]
    tied = pd.DataFrame({name: numbered(fills[name]) for name in names}).duplicated(keep=False)
    places, content = np.flatnonzero(tied), np.zeros(len(fills), np.int64)
    if len(places):
        rows = nw.from_native(convert.take(trades, places)).lazy().collect().to_pandas()
        texts = [rows[name].astype(str).fillna("") for name in rows]
        content[places] = pd.factorize(reduce(lambda left, right: left + "\x1f" + right, texts), sort=True)[0]
    first = np.argsort(content, kind="stable")
    numbers = np.empty(len(fills), np.int64)
    numbers[first[in_order(fills.take(pa.array(first)))]] = np.arange(len(fills))
    return numbers


def _texts(codes: np.ndarray, texts: tuple[str, ...]) -> pa.Array:
    return pa.array(texts).take(pa.array(codes, mask=codes < 0))
