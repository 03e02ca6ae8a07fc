"""A client that reads trades from blocks instead of asking a relayer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import completion, query
from loopring_lab.client import POOL_PREFIX, Client
from loopring_lab.errors import LabError
from loopring_lab.http.budget import Budget
from loopring_lab.models import Exchange
from loopring_lab.progress import Watching, track
from loopring_lab.query import Moment, parse_account_id
from loopring_lab.rollup import settled
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.settled import is_pool
from loopring_lab.rollup.store import Store

AT_ONCE = 1_000
LARGEST = 384  # slots of a block, as far as blocks do not say their size
KEPT_SLOTS = 2_000_000
"""A store of at most so many slots, 136 MB of data, is read once."""


class BlocksClient(Client):
    """The trades, tokens and markets of a store of blocks, through the methods of `Client`.

    Methods that only a relayer can answer raise `LabError`.

    Parameters
    ----------
    store : Store
        Blocks, with the listing of tokens that scales their amounts.

    Examples
    --------
    >>> lab.connect(blocks=store)
    BlocksClient(exchange 0x0baba1ad5be3a5c0a66e7ac838a129bf948f1ea4 on chain 1, 1 block)
    """

    def __init__(self, store: Store) -> None:
        bound = store.stored.index().source
        super().__init__(NoRelayer(), bound)  # type: ignore[arg-type]
        self._store = store
        self._kept: tuple[pa.Table, list[Blocks]] | None = None

    def __repr__(self) -> str:
        count = len(self._store.stored.index().blocks)
        return f"BlocksClient({self.source}, {count:,} block{'' if count == 1 else 's'})"

    @property
    def accounts(self) -> list[int]:
        """Accounts with fills, those with most first; pools last."""
        return self._census.accounts

    def trades(  # type: ignore[override]
        self,
        account_id: int | None = None,
        market: str | None = None,
        order_hash: None = None,
        fill_type: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: int | None = None,
        progress: Watching = None,
    ) -> pd.DataFrame:
        """Read settled trades, exactly: of one account, or both sides of every fill.

        Parameters
        ----------
        account_id : int, optional
            Whose trades; without it those of all accounts.
        market : str, optional
            Such as ``LRC-ETH``, in any case.
        order_hash : None
            Blocks carry no order hashes.
        fill_type : {'amm', 'dex'}, optional
            Only pool fills or only order-book fills.
        since, until : str, datetime or Timestamp, optional
            As for `Client.trades`; a trade's time is its block's.
        limit : int, optional
            Return at most this many of the newest trades.
        progress : bool or callable, optional
            As for `Client.trades`.

        Returns
        -------
        pandas.DataFrame
            As `tables.trades` describes, oldest first, with exact notionals.

        Raises
        ------
        LabError
            An argument is not valid, or no listing of tokens is stored.

        Examples
        --------
        >>> listing = '[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]'
        >>> size = (folder / "tokens.json").write_text(listing)
        >>> report = store.import_files([], tokens=folder / "tokens.json")
        >>> trades = lab.connect(blocks=store).trades()
        >>> len(trades), trades.attrs["synthetic"]
        (0, False)
        """
        if order_hash is not None:
            raise LabError(
                "trades: blocks carry no order hashes. Leave order_hash out: rows of one account_id, "
                "token_id and storage_id are one order."
            )
        account_id = None if account_id is None else parse_account_id(account_id)
        query.validate_trade_query(account_id or 0, None, fill_type, limit)
        start, end = query.parse_span(since, until)
        market = self._known_market(market)
        parts, held, expected = [], 0, self._census.rows(account_id)
        with track("trades", progress) as report:
            for blocks in self._batches():
                frame = settled.trades(blocks, self._tokens, self._markets, None, account_id)
                parts.append(frame if market is None else frame[frame["market"] == market])
                held += len(frame)
                report(held, expected)
        frame = pd.concat(parts or [settled.trades(Blocks([]), self._tokens, self._markets)])
        if fill_type is not None:
            frame = frame[frame["fill_type"] == fill_type]
        frame.attrs |= {"fee_token": "received"}
        asked = {"account_id": account_id, "market": market, "fill_type": fill_type}
        return self._labelled(query.filter_trades(frame, start, end, limit, **asked))

    def count(self, account_id: int, fill_type: str | None = None) -> int:
        """Return how many trades of an account the blocks hold.

        Parameters
        ----------
        account_id : int
            Whose trades.
        fill_type : {'amm', 'dex'}, optional
            Only pool fills or only order-book fills.

        Returns
        -------
        int
            Sides of fills that are the account's.

        Examples
        --------
        >>> lab.connect(blocks=store).count(10083)
        0
        """
        if fill_type is None:
            return self._census.rows(parse_account_id(account_id))
        return len(self.trades(account_id, fill_type=fill_type))

    def outside_prices(self, trades: Any, every: str = "1min") -> None:
        """Return None: blocks hold no prices from outside; `tables.prices` reads some from a file.

        Parameters
        ----------
        trades : frame in memory
            Not looked at.
        every : str
            Not looked at.

        Examples
        --------
        >>> lab.connect(blocks=store).outside_prices(None)
        """

    def exchange(self) -> Exchange:
        """Return which exchange the blocks are of.

        Returns
        -------
        Exchange
            Address and chain id, as `Client.exchange`.

        Raises
        ------
        LabError
            The blocks do not say which chain they are on.

        Examples
        --------
        >>> lab.connect(blocks=store).exchange().chain_id
        1
        """
        bound = self._store.stored.index().source
        if bound.exchange is None or bound.chain_id is None:
            raise LabError("exchange: these blocks do not say which chain they are on. A store that synced does.")
        return Exchange(bound.exchange, bound.chain_id)

    def _known_market(self, market: str | None) -> str | None:
        known = self._markets.index
        market = query.known_market(market, (POOL_PREFIX,), lambda: known)
        if market is not None and market not in known:
            near = query.near_market(market, known)
            hint = f"Did you mean {near!r}?" if near else "client.markets() lists them."
            raise LabError(f"market={market!r} has no fills in these blocks. {hint}")
        return market

    def _batches(self) -> Iterable[Blocks]:
        """Read the blocks; a small store is kept in memory until blocks are added to it."""
        held = self._store.stored.index().blocks
        if pc.sum(held["block_size"].fill_null(LARGEST)).as_py() > KEPT_SLOTS:
            return self._store.batches(AT_ONCE)
        if self._kept is None or self._kept[0] is not held:
            self._kept = held, list(self._store.batches(AT_ONCE))
        return self._kept[1]

    @cached_property
    def _census(self) -> Census:
        return Census(self._batches())

    @cached_property
    def _tokens(self) -> pd.DataFrame:
        return completion.register_names("token", self._store.tokens())

    @cached_property
    def _markets(self) -> pd.DataFrame:
        return completion.register_names("market", settled.markets(self._census.pairs, self._tokens))


class Census:
    """Which accounts and pairs of tokens trade in blocks, and how often."""

    def __init__(self, batches: Iterable[Blocks]) -> None:
        self._fills: Counter[int] = Counter()
        self.pairs: set[tuple[int, int]] = set()
        pools: set[int] = set()
        for blocks in batches:
            self._add(blocks.table("spot_trade"))
            known = np.array([*self._fills], np.int64)
            pools.update(known[is_pool(blocks, known)].tolist())
        self.accounts = sorted(self._fills, key=lambda one: (one in pools, -self._fills[one], one))

    def rows(self, account_id: int | None) -> int:
        """Return how many rows of trades there are: of one account, or of all."""
        return self._fills.total() if account_id is None else self._fills[account_id]

    def _add(self, trades: pa.Table) -> None:
        sold, bought = (trades[name].to_numpy() for name in ("sell_a", "buy_a"))
        pairs = np.unique(np.sort(np.stack([sold, bought], axis=1)), axis=0)
        self.pairs.update(map(tuple, pairs.tolist()))
        for side in ("a", "b"):
            accounts, counts = np.unique(trades[f"account_{side}"].to_numpy(), return_counts=True)
            self._fills.update(dict(zip(accounts.tolist(), counts.tolist(), strict=True)))


class NoRelayer:
    """Stands in for the transport of a client that has no relayer to ask."""

    base_url = ""
    source = None

    def get(self, path: str, *_: object, **__: object) -> NoReturn:
        raise LabError(
            f"{path}: only a relayer can answer this, and this client reads blocks. It has tokens, markets "
            "and trades; archive.import_blocks(store) puts them into an archive."
        )

    post = get

    def new_budget(self, *, of_bytes: bool = True) -> Budget:
        """Return no limit: nothing is downloaded."""
        return Budget()

    def with_key(self, api_key: str) -> NoReturn:
        del api_key
        self.get("API key")

    def close(self) -> None:
        """Close nothing."""
