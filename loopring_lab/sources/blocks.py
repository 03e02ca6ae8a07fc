"""A client that reads trades from blocks instead of asking a relayer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import arguments
from loopring_lab.arguments import Moment, parse_account_id
from loopring_lab.errors import LabError
from loopring_lab.interactive import completion
from loopring_lab.progress import Watching, track
from loopring_lab.rollup import reserves, settled
from loopring_lab.rollup.block_file import Index
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.settled import is_pool
from loopring_lab.rollup.store import Store
from loopring_lab.sources.records import Exchange
from loopring_lab.sources.trade_source import labelled

AT_ONCE = 1_000  # blocks, some 26 MB of data
LARGEST = 384  # slots of a block, as far as blocks do not say their size: the largest ever submitted
# A store of at most so many slots, 136 MB of data, is read once and kept in memory.
KEPT_SLOTS = 2_000_000


class BlocksClient:
    """The trades, tokens and markets of a store of blocks, through the methods that `Client` has for them.

    It has no methods that only a relayer can answer.

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
        self._store = store
        store.file.index()  # raises an error if there are no blocks
        self._read: _Contents | None = None

    def __repr__(self) -> str:
        count = len(self._store.file.index().blocks)
        return (
            f"BlocksClient({self.source}, {count:,} block{'' if count == 1 else 's'})"
        )

    def _repr_html_(self) -> str:
        note = "Synthetic data. " if self.synthetic else ""
        next_step = "<code>client.trades(account_id)</code> reads a history."
        return f"<p><b>Blocks</b> of {escape(self.source)}.<br><small>{note}{next_step}</small></p>"

    @property
    def source(self) -> str:
        """Name of the source of the blocks."""
        # More may have been added since, from elsewhere.
        return self._store.file.index().source.name

    @property
    def store(self) -> Store:
        """The store of the blocks, for what no relayer tells: pools' balances, key updates, and checks."""
        return self._store

    @property
    def synthetic(self) -> bool:
        """Whether the blocks are synthetic."""
        return self._store.file.index().source.synthetic

    @property
    def accounts(self) -> list[int]:
        """Accounts with fills, those with most first; pools last."""
        return self._contents.census.accounts

    def tokens(self) -> pd.DataFrame:
        """Return the tokens that are stored with the blocks.

        Returns
        -------
        pandas.DataFrame
            As `tables.tokens` describes.

        Examples
        --------
        >>> listing = '[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]'
        >>> size = (folder / "tokens.json").write_text(listing)
        >>> report = store.import_files([], tokens=folder / "tokens.json")
        >>> lab.connect(blocks=store).tokens().index.tolist()
        ['ETH']
        """
        return labelled(self._contents.tokens, self)

    def markets(self) -> pd.DataFrame:
        """Return the markets in which the blocks have fills.

        Returns
        -------
        pandas.DataFrame
            As `tables.markets` describes; blocks do not say more of a market than its two tokens.

        Examples
        --------
        >>> listing = '[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]'
        >>> size = (folder / "tokens.json").write_text(listing)
        >>> report = store.import_files([], tokens=folder / "tokens.json")
        >>> len(lab.connect(blocks=store).markets())
        0
        """
        return labelled(self._contents.markets, self)

    def close(self) -> None:
        """Close nothing: the file of the store is open only while it is read.

        Examples
        --------
        >>> lab.connect(blocks=store).close()
        """

    @arguments.of_each_account
    def trades(
        self,
        account_id: int | Iterable[int] | None = None,
        market: str | None = None,
        order_hash: None = None,
        fill_type: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: int | None = None,
        progress: Watching = None,
    ) -> pd.DataFrame:
        """Read settled trades, exactly: of one account or several, or both sides of every fill.

        Parameters
        ----------
        account_id : int or iterable of int, optional
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
        if account_id is not None:
            account_id = parse_account_id(account_id)
        arguments.validate_trade_query(account_id or 0, None, fill_type, limit)
        start, end = arguments.parse_span(since, until)
        market, fill_type = self._known_market(market, fill_type)
        contents = self._contents
        # Blocks are read a batch at a time, as one account has few rows in many blocks.
        parts = []
        held = 0
        with track("trades", progress) as report:
            for blocks in contents.batches():
                frame = settled.trades(
                    blocks,
                    contents.tokens,
                    contents.markets,
                    account_id,
                )
                held += len(frame)
                report(held, contents.census.rows(account_id))
                if market is not None:
                    frame = frame[frame["market"] == market]
                parts.append(frame)
        frame = pd.concat(
            parts or [settled.trades(Blocks([]), contents.tokens, contents.markets)]
        )
        if fill_type is not None:
            frame = frame[frame["fill_type"] == fill_type]
        # Blocks without a number come last in a store, also those from before others.
        if not frame["created_at"].is_monotonic_increasing:
            frame = frame.sort_values("created_at", kind="stable")
        selected = arguments.filter_trades(
            frame,
            start,
            end,
            limit,
            account_id=account_id,
            market=market,
            fill_type=fill_type,
        )
        return labelled(selected, self)

    def pool_balances(self) -> pd.DataFrame:
        """Return what each pool held after each change of its balances: the reserves for `research.pool_quotes`.

        AMM updates state the balances of pools, and blocks have everything else that changes them. So one statement
        tells a balance at any time before and after it, as far as no block is missing between.

        Returns
        -------
        pandas.DataFrame
            One row per transaction that changed a balance of a pool, in block order: ``block`` (position among the
            blocks of the store), ``block_id``, ``index_in_block``, ``created_at`` (UTC, of the block), ``account_id``
            (the pool), ``market``, ``base_balance`` and ``quote_balance`` after it (`AMOUNT`, in tokens; null where
            no block between two gaps states it), ``base_decimals`` and ``quote_decimals``. Where blocks are
            missing, a row with unknown balances begins the next block that is there. Pools of markets without any
            fill are left out.

        Raises
        ------
        LabError
            No listing of tokens is stored.

        Examples
        --------
        >>> blocks = lab.connect(blocks="sample")
        Sample blocks: one real block of Loopring Exchange v3.6, Ethereum transaction 0x71cf...
        >>> blocks.pool_balances()[["index_in_block", "market", "base_balance", "quote_balance"]].head(2)
           index_in_block    market       base_balance       quote_balance
        0               0   LRC-ETH  9209809.624218137  3339.7654744838743
        1               1  LRC-USDC       6525438.5011      7387322.564072
        """
        contents = self._contents
        found = reserves.pool_balances(
            contents.batches(), contents.markets, contents.tokens
        )
        return labelled(found, self)

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
            return self._contents.census.rows(parse_account_id(account_id))
        return len(self.trades(account_id, fill_type=fill_type))

    def outside_prices(
        self, trades: Any, every: str = "1min", *, progress: Watching = None
    ) -> None:
        """Return None: blocks hold no prices from outside; `tables.prices` reads some from a file.

        Parameters
        ----------
        trades : frame in memory
            Not looked at.
        every : str
            Not looked at.
        progress : bool or callable, optional
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
        bound = self._store.file.index().source  # a later sync may tell the chain
        if bound.exchange is None or bound.chain_id is None:
            # Files of unknown exchanges do not say their chain.
            raise LabError(
                "exchange: these blocks do not say which chain they are on. A store that synced does."
            )
        return Exchange(bound.exchange, bound.chain_id)

    def _known_market(
        self, market: str | None, fill_type: str | None
    ) -> tuple[str | None, str | None]:
        known = self._contents.markets.index
        market, fill_type = arguments.known_market(market, fill_type, known)
        if market is not None and market not in known:
            hint = arguments.market_hint(market, known, "client.markets() lists them.")
            raise LabError(f"market={market!r} has no fills in these blocks. {hint}")
        return market, fill_type

    @property
    def _contents(self) -> _Contents:
        # The index of a store is the same object as long as nothing was added.
        index = self._store.file.index()
        if self._read is None or self._read.index is not index:
            self._read = _Contents(self._store, index)
        return self._read


class _Contents:
    """What is made of a store, each thing once, as long as nothing is added to it."""

    def __init__(self, store: Store, index: Index) -> None:
        self.index = index
        self._store = store

    def batches(self) -> Iterable[Blocks]:
        """Read the blocks; those of a small store are kept in memory."""
        sizes = self.index.blocks["block_size"].fill_null(LARGEST)
        # Without a minimum count, the sum of no sizes is null.
        if pc.sum(sizes, min_count=0).as_py() > KEPT_SLOTS:
            return self._store.batches(AT_ONCE)
        return self._kept_batches

    @cached_property
    def _kept_batches(self) -> list[Blocks]:
        return list(self._store.batches(AT_ONCE))

    @cached_property
    def census(self) -> Census:
        return Census(self.batches())

    @cached_property
    def tokens(self) -> pd.DataFrame:
        return completion.register_names("token", self._store.tokens())

    @cached_property
    def markets(self) -> pd.DataFrame:
        found = settled.markets(self.census.pairs, self.tokens)
        return completion.register_names("market", found)


class Census:
    """Which accounts and pairs of tokens trade in blocks, and how often."""

    def __init__(self, batches: Iterable[Blocks]) -> None:
        self._fills: Counter[int] = Counter()
        self.pairs: set[tuple[int, int]] = set()
        pools: set[int] = set()
        for blocks in batches:
            self._add(blocks.table("spot_trade"))
            # Pools become known as amm updates name them, also after their first fills.
            known = np.array(list(self._fills), np.int64)
            pools.update(known[is_pool(blocks, known)].tolist())
        self.accounts = sorted(
            self._fills,
            key=lambda one: (one in pools, -self._fills[one], one),
        )

    def rows(self, account_id: int | None) -> int:
        """Return how many rows of trades there are: of one account, or of all."""
        return self._fills.total() if account_id is None else self._fills[account_id]

    def _add(self, trades: pa.Table) -> None:
        sold = trades["sell_a"].to_numpy()
        bought = trades["buy_a"].to_numpy()
        # Whichever of two tokens is sold, it is one pair.
        both = np.sort(np.stack([sold, bought], axis=1))
        pairs = np.unique(both, axis=0)
        self.pairs.update(map(tuple, pairs.tolist()))
        for name in ("account_a", "account_b"):
            for one in pc.value_counts(trades[name]).to_pylist():
                self._fills[one["values"]] += one["counts"]
