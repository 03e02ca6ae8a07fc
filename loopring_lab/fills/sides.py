"""Roles and sides: who took and who made a fill, and frames that hold each fill once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import convert, windows
from loopring_lab.engines.adapters import DECIMAL_256, decode
from loopring_lab.engines.aggregate import equal, ranks
from loopring_lab.engines.arrays import (
    GAMMA,
    as_text,
    coded,
    distinct,
    first_of,
    is_among,
    mixed,
    numbers_of_ids,
)
from loopring_lab.engines.asof import TIE_BREAKERS, in_order
from loopring_lab.engines.orders import moments_of
from loopring_lab.engines.pairs import codes_of
from loopring_lab.engines.spill import Buckets, Columns
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
    roles = Roles.of_frame(trades, caller, pools)

    def found(window: windows.Window) -> dict[str, pa.Array]:
        fills, (role, source) = window.rows, roles.of(window.rows)
        texts = pc.coalesce(as_text(fills["role"]), _texts(role, ROLES))
        sources: pa.Array = _texts(source, SOURCES)
        if "role_source" in fills.column_names:
            reported = pc.coalesce(as_text(fills["role_source"]), sources)
            sources = pc.if_else(fills["role"].is_valid(), reported, sources)
        own = pa.array(np.flatnonzero(window.inside))
        return {"role": texts.take(own), "role_source": sources.take(own)}

    return windows.add_columns(trades, caller, [*COLUMNS, "created_at"], ["role_source"], work=found)


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
    caller = "lab.fills.one_side"
    roles = Roles.of_frame(trades, caller)

    def kept(rows: Any, window: windows.Window) -> np.ndarray:
        places = first_sides(rows, window.rows, roles.of(window.rows)[0], window.inside)
        return np.asarray(places[_in_order(rows, window.rows, places)])

    return windows.take_rows(trades, caller, [*COLUMNS, "created_at", "order_hash"], PLACE, work=kept)


def first_sides(rows: Any, fills: pa.Table, roles: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return the positions of one row of each fill, the taker's if it is there.

    `rows` are the fills with all of their columns, which tell rows apart that share everything else.
    """
    place = np.flatnonzero(inside)
    preference = np.array([2, 0, 1])[roles[place]]  # the maker last, of unknown role before it
    sides, count = ranks(fills["side"], "side")
    known = np.asarray(fills["trade_id"].is_valid())[place]
    numbers = np.unique(numbers_of_ids(fills["trade_id"])[place], return_inverse=True)[1]
    numbers[~known] = len(fills) + np.arange(np.count_nonzero(~known))  # each for itself
    keys = (3 * numbers + preference) * count + sides[place]
    order = np.argsort(keys)
    place, keys = place[order], keys[order]
    same = np.append(False, keys[1:] == keys[:-1])[: len(place)]
    numbers = keys // (3 * count)
    best = np.zeros(len(place), bool)
    best[first_of(numbers)] = True
    tied = np.append(same[1:], False)[: len(place)] & best
    if tied.any():  # of rows that are alike so far, the first in the total order
        run = np.cumsum(~same)
        among = np.flatnonzero(np.isin(run, run[tied]))
        first = among[_in_order(rows, fills, place[among])]
        first = first[np.unique(numbers[first], return_index=True)[1]]
        best[tied], best[first] = False, True
    return np.asarray(place[best])


class Roles:
    """Roles of fills, and what a frame tells about accounts and fees that they follow from.

    Roles follow in rounds: those that are known tell pools and traders, which tell more roles. The facts of
    each round are kept, so that the same roles follow for any part that holds both sides of its fills.
    """

    def __init__(self, parts: Iterable[pa.Table], pools: Pools) -> None:
        self._pools, self._markets = pools, dict[str, int]()
        self._fees_tell, self._rounds = True, list[_Facts]()
        rows = Buckets()
        for part in parts:
            columns = self._columns(part)
            rows.add(columns["pair"] >> np.uint64(56), columns)
        if all(part["settled"].all() for part in rows):
            return
        self._fees_tell = not any(self._fills(part).makers_pay() for part in rows)
        settled = -1
        while settled:
            self._rounds.append(self._facts(rows))
            settled = sum(self._fills(part).settled for part in rows)

    @classmethod
    def of_frame(cls, trades: Any, caller: str, pools: Any = None) -> Roles:
        """Read what tells roles from a frame of any engine."""
        given = _pool_accounts(pools, caller)
        reported = [part["role"].null_count == 0 for part in convert.batches(trades, ["role"], caller)]
        parts = [] if all(reported) else convert.batches(trades, [*COLUMNS, "created_at"], caller)
        return cls(parts, given)

    def of(self, fills: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the role of each row and how it is known, as positions in `ROLES` and `SOURCES`."""
        found = self._fills(self._columns(fills))
        return found.role, found.source

    def _columns(self, fills: pa.Table) -> Columns:
        """Return what roles follow from; sides of a fill share trade id, market and time."""
        accounts, (markets, names) = numbers_of_ids(fills["account_id"]), coded(fills["market"])
        codes = np.array([*(self._markets.setdefault(name, len(self._markets)) for name in names), -1])
        pairs = numbers_of_ids(fills["trade_id"])
        for column in (codes[markets], moments_of(fills)):
            pairs = mixed(pairs ^ mixed(column.view(np.uint64)))
        side = np.select([equal(fills["side"], name) for name in SIDES], [0, 1], -1)
        known = np.asarray(fills["trade_id"].is_valid()) & (markets >= 0)
        return {
            "pair": pairs,
            "side": np.where(known, side, -1),
            "role": np.select([equal(fills["role"], role) for role in ROLES], [MAKER, TAKER], UNKNOWN),
            "settled": np.asarray(fills["role"].is_valid()),
            "account": accounts,
            "has_account": np.asarray(fills["account_id"].is_valid()),
            "market": codes[markets],
            "pool_fill": equal(fills["fill_type"], "amm"),
            "book_fill": equal(fills["fill_type"], "dex"),
            "paid": np.asarray(pc.greater(fills["fee"], ZERO).fill_null(False)),
        }

    def _facts(self, rows: Buckets) -> _Facts:
        """Return what the roles known so far, and those of their other sides, tell of accounts."""

        def fills() -> Iterator[_Fills]:
            for part in rows:
                found = self._fills(part)
                found.use_other_sides()
                yield found

        traders = distinct(np.concatenate([part.traders() for part in fills()]))
        pools, markets = zip(*(part.pools(traders) for part in fills()), strict=True)
        return _Facts(traders, distinct(np.concatenate(pools)), distinct(np.concatenate(markets)))

    def _fills(self, columns: Columns) -> _Fills:
        """Find the roles of rows by all that is known so far."""
        fills = _Fills(columns)
        for market, accounts in self._pools.items():
            fills.use_given_pools(None if market is None else self._markets.get(market, -2), accounts)
        fills.use_fees(self._fees_tell)
        for facts in self._rounds:
            fills.settled = fills.use_other_sides() + fills.use_proven_pools(facts)
        return fills


class _Facts(NamedTuple):
    """Accounts that trade, and the markets and accounts of pools, by a number for both."""

    traders: np.ndarray
    pools: np.ndarray
    markets: np.ndarray


class _Fills:
    """Rows with the roles found for them; `settled` counts those found in the last round."""

    def __init__(self, columns: Columns) -> None:
        self._rows, self.role, self._done = columns, columns["role"].copy(), columns["settled"].copy()
        self.source = np.where(self._done, REPORTED, UNKNOWN)
        self.settled = 0
        order = np.argsort(columns["pair"])
        pairs = np.empty(len(order), np.int64)
        pairs[order] = np.cumsum(np.append(False, np.diff(columns["pair"][order]) != 0)[: len(order)])
        self._side = np.where(columns["side"] < 0, -1, 2 * pairs + columns["side"])
        self._pools = mixed(columns["account"] + np.uint64(GAMMA) * columns["market"].view(np.uint64))

    def makers_pay(self) -> bool:
        """Tell whether a maker on the order book paid a fee."""
        return bool((~self._rows["pool_fill"] & self._makers_pay()).any())

    def use_given_pools(self, market: int | None, accounts: set[int]) -> None:
        """Use that accounts are pools, of a market or of any."""
        given = np.array(sorted(accounts), np.int64).view(np.uint64)
        own = self._rows["has_account"] & np.isin(self._rows["account"], given)
        here = self._rows["pool_fill"] & (market is None or self._rows["market"] == market)
        self._settle(here & own, MAKER, POOL)
        self._settle(here & ~own & self._rows["has_account"] & (market is not None), TAKER, POOL)

    def use_fees(self, on_book: bool) -> None:
        """Take who pays for the taker; on the book only if no maker there pays."""
        paid, tell = self._rows["paid"], self._rows["pool_fill"] | on_book
        free = ~self._has_other(self.role == TAKER) & ~self._has_other(paid)
        self._settle(paid & tell & free, TAKER, FEE)

    def use_other_sides(self) -> int:
        """Use that one side of a fill is the maker's and one the taker's."""
        made, taken = (self._has_other(self.role == role) for role in (MAKER, TAKER))
        makers = self._settle(taken & ~made, MAKER, OTHER_SIDE)
        return makers + self._settle(made & ~taken, TAKER, OTHER_SIDE)

    def use_proven_pools(self, facts: _Facts) -> int:
        """Use that an account which made a pool fill is that market's pool, and one that takes is none."""
        known = self._at_pool()
        at_pool = known & is_among(self._pools, facts.pools)
        others = is_among(self._rows["account"], facts.traders) | is_among(
            self._rows["market"], facts.markets
        )
        return self._settle(at_pool, MAKER, POOL) + self._settle(known & ~at_pool & others, TAKER, POOL)

    def traders(self) -> np.ndarray:
        """Return the accounts known to trade."""
        trade = self._rows["has_account"] & (self._rows["book_fill"] | (self.role == TAKER))
        return distinct(self._rows["account"][trade])

    def pools(self, traders: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the pools that are known to be some, and their markets."""
        made = self._at_pool() & (self.role == MAKER) & (self._rows["market"] >= 0)
        rows = np.flatnonzero(made)[~is_among(self._rows["account"][made], traders)]
        return distinct(self._pools[rows]), distinct(self._rows["market"][rows])

    def _at_pool(self) -> np.ndarray:
        return np.asarray(self._rows["pool_fill"] & self._rows["has_account"])

    def _makers_pay(self) -> np.ndarray:
        paid, taken = self._rows["paid"], self._has_other(self.role == TAKER)
        return np.asarray(paid & ((self.role == MAKER) | taken | self._has_other(paid)))

    def _has_other(self, rows: np.ndarray) -> np.ndarray:
        """Return a mask of the rows whose other side is among these."""
        found = np.zeros(2 * len(rows) + 1, bool)
        found[self._side[rows]] = True
        return np.asarray((self._side >= 0) & found[self._side ^ 1])

    def _settle(self, rows: np.ndarray, role: int, source: int) -> int:
        """Set the role of rows that have none yet; return how many there are."""
        new = rows & ~self._done
        self.role[new], self.source[new] = role, source
        self._done |= new
        return int(np.count_nonzero(new))


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


def _in_order(rows: Any, fills: pa.Table, places: np.ndarray) -> np.ndarray:
    """Return the order of some rows; those that share all that orders them by their whole content."""
    order = in_order(fills.take(pa.array(places)))
    sorted_ = fills.take(pa.array(places[order]))
    names = [name for name in ("moment", *TIE_BREAKERS) if name in fills.column_names]
    same = np.ones(max(len(order) - 1, 0), bool)
    for name in names:
        if not same.any():
            return order
        numbers = codes_of(sorted_[name])[0]
        same &= numbers[1:] == numbers[:-1]
    run = np.cumsum(np.append(True, ~same)[: len(order)])
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))[: len(order)]
    some = convert.take(rows, places[order[tied]])
    if isinstance(some, pa.Table):  # whose categories may have null, unlike those of pandas
        some = pa.table({name: decode(some[name], name) for name in some.column_names})
    whole = nw.from_native(some).lazy().collect().to_pandas()
    texts = [whole[name].astype(str).fillna("") for name in whole]
    content = pd.factorize(reduce(lambda left, right: left + "\x1f" + right, texts), sort=True)[0]
    order[tied] = order[tied[np.lexsort((content, run[tied]))]]
    return order


def _texts(codes: np.ndarray, texts: tuple[str, ...]) -> pa.Array:
    return pa.array(texts).take(pa.array(codes, mask=codes < 0))
