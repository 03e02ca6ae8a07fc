"""A recording: saved answers of a relayer, read from their files in this process."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from loopring_lab import arguments, tables
from loopring_lab.arguments import Moment, parse_account_id
from loopring_lab.errors import LabError
from loopring_lab.interactive import completion
from loopring_lab.progress import Watching, track
from loopring_lab.sources import saved_answers
from loopring_lab.sources.records import Exchange
from loopring_lab.sources.trade_source import labelled, refuse_contradictions
from loopring_lab.tables.rows import FILL_TYPES

SHARED_HINT = (
    "This recording does not tell fill types apart. Read one of them, with fill_type=."
)


class Recording:
    """The tokens, markets and trades in saved answers of a relayer; made by `connect`.

    All files are read at once. It has the methods of `Client` that ask for tokens, markets and trades; only a
    relayer answers the others.

    Parameters
    ----------
    path : Path
        A folder with ``tokens.json``, ``markets.json`` and ``trades/<accountId>-<amm or dex>.json``, or one
        file of trades.
    source : str, optional
        Name of the source, if no ``source.json`` states it; by default the relayer's address in a HAR file, or the
        path.

    Raises
    ------
    UnexpectedAnswer
        A file is not as a relayer answers; names its place.

    Examples
    --------
    >>> lab.connect(recording=folder)
    Recording(..., 1 account)
    """

    def __init__(self, path: Path, source: str | None = None) -> None:
        read = saved_answers.read_one if path.is_file() else saved_answers.read_folder
        self.contents = read(path, source)

    def __repr__(self) -> str:
        count = len(self.accounts)
        return f"Recording({self.source}, {count} account{'' if count == 1 else 's'})"

    def _repr_html_(self) -> str:
        known = f"{len(self.accounts)} accounts, such as {self.accounts[0]}"
        note = "Synthetic data. " if self.synthetic else ""
        next_step = "<code>client.trades(account_id)</code> reads a history."
        return f"<p><b>Recording</b> {escape(self.source)}: {known}.<br><small>{note}{next_step}</small></p>"

    @property
    def source(self) -> str:
        """Name of the source: as its files state it, as given, or the relayer's address in a HAR file, or the path."""
        return self.contents.source.name

    @property
    def synthetic(self) -> bool:
        """Whether the data is synthetic, as its files state."""
        return self.contents.source.synthetic

    @cached_property
    def accounts(self) -> list[int]:
        """Accounts with saved trades."""
        return sorted({account for account, _ in self.contents.pages})

    def tokens(self) -> pd.DataFrame:
        """Return the saved tokens.

        Returns
        -------
        pandas.DataFrame
            As `tables.tokens` describes.

        Examples
        --------
        >>> lab.connect(recording=folder).tokens().loc["USDC", "decimals"]
        6
        """
        return labelled(self._tokens, self)

    def markets(self) -> pd.DataFrame:
        """Return the saved markets.

        Returns
        -------
        pandas.DataFrame
            As `tables.markets` describes.

        Examples
        --------
        >>> lab.connect(recording=folder).markets().loc["LRC-ETH", "quote"]
        'ETH'
        """
        return labelled(self._markets, self)

    @arguments.of_each_account
    def trades(
        self,
        account_id: int | Iterable[int] | None = None,
        market: str | None = None,
        order_hash: str | None = None,
        fill_type: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: int | None = None,
        progress: Watching = None,
    ) -> pd.DataFrame:
        """Read saved trades, AMM pool and order book, exactly.

        Parameters
        ----------
        account_id : int or iterable of int, optional
            Whose trades; may be omitted with `order_hash`.
        market : str, optional
            Such as ``LRC-ETH``, in any case.
        order_hash : str, optional
            The fills of one order, 0x hex.
        fill_type : {'amm', 'dex'}, optional
            Only pool fills or only order-book fills.
        since, until : str, datetime or Timestamp, optional
            As for `Client.trades`.
        limit : int, optional
            Return at most this many of the newest trades.
        progress : bool or callable, optional
            As for `Client.trades`; a callable is called once.

        Returns
        -------
        pandas.DataFrame
            As `Client.trades`.

        Raises
        ------
        UnexpectedAnswer
            A row is of another account than the one asked for, or a fill is saved under both fill types.
        LabError
            An argument is not valid, or the account or the market is not in the recording.

        Examples
        --------
        >>> trades = lab.connect(recording=folder).trades(71468)
        >>> trades["fill_type"].value_counts().to_dict()
        {'dex': 11, 'amm': 0}
        """
        arguments.validate_trade_query(account_id, order_hash, fill_type, limit)
        start, end = arguments.parse_span(since, until)
        market, fill_type = arguments.known_market(
            market, fill_type, self._markets.index
        )
        # Without an account, an order's fills are looked for among those of all.
        accounts = self.accounts
        if account_id is not None:
            account_id = known_account(self, account_id)
            accounts = [account_id]
        fill_types = (fill_type,) if fill_type else FILL_TYPES
        pages = {
            kind: [
                page for one in accounts for page in self.contents.pages_of(one, kind)
            ]
            for kind in fill_types
        }
        with track("trades", progress) as report:
            frame = tables.join_batches(pages, self._tokens, self._markets, account_id)
            report(len(frame), len(frame))
        refuse_contradictions(frame, account_id, SHARED_HINT)
        if market:
            frame = frame[frame["market"] == self._known_market(market, frame)]
        if order_hash:
            frame = frame[frame["order_hash"] == order_hash.lower()]
        selected = arguments.filter_trades(
            frame,
            start,
            end,
            limit,
            account_id=account_id,
            market=market,
            order_hash=order_hash,
            fill_type=fill_type,
        )
        return labelled(selected, self)

    def count(self, account_id: int, fill_type: str | None = None) -> int:
        """Return how many trades of an account are saved.

        Parameters
        ----------
        account_id : int
            Whose trades.
        fill_type : {'amm', 'dex'}, optional
            Only pool fills or only order-book fills.

        Returns
        -------
        int
            Rows, each counted once.

        Examples
        --------
        >>> lab.connect(recording=folder).count(71468)
        11
        """
        return len(self.trades(account_id, fill_type=fill_type))

    def outside_prices(
        self, trades: Any, every: str = "1min", *, progress: Watching = None
    ) -> None:
        """Return None: no saved answer has prices from outside; `tables.prices` reads some from a file.

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
        >>> lab.connect(recording=folder).outside_prices(None)
        """

    def exchange(self) -> Exchange:
        """Return which exchange the trades are of, if ``source.json`` states it.

        Returns
        -------
        Exchange
            Address and chain id.

        Raises
        ------
        LabError
            The recording does not say it.

        Examples
        --------
        >>> stated = '{"name": "my exchange", "exchange": "0xab", "chainId": 1}'
        >>> size = (folder / "source.json").write_text(stated)
        >>> lab.connect(recording=folder).exchange().chain_id
        1
        """
        known = self.contents.source
        if known.exchange is None or known.chain_id is None:
            raise LabError(
                "exchange: this recording does not say of which exchange it is. Its source.json can, with "
                '"exchange" and "chainId" beside "name".'
            )
        return Exchange(known.exchange, known.chain_id)

    def close(self) -> None:
        """Close nothing: all files were read when the recording was opened.

        Examples
        --------
        >>> lab.connect(recording=folder).close()
        """

    def _known_market(self, market: str, frame: pd.DataFrame) -> str:
        # Markets that rows have and the listing has not are among the categories too.
        if market not in frame["market"].cat.categories:
            hint = arguments.market_hint(
                market, self._markets.index, "client.markets() lists the markets."
            )
            raise LabError(f"market={market!r} is not in this recording. {hint}")
        return market

    @cached_property
    def _tokens(self) -> pd.DataFrame:
        tokens, _ = self.contents.listing
        return completion.register_names("token", tables.tokens(tokens))

    @cached_property
    def _markets(self) -> pd.DataFrame:
        _, markets = self.contents.listing
        found = tables.markets(markets, self._tokens)
        return completion.register_names("market", found)


def known_account(recording: Recording, account_id: Any) -> int:
    """Return the id of an account of a recording; of no other does it say that there are no trades."""
    account = parse_account_id(account_id)
    if account not in recording.accounts:
        some = ", ".join(map(str, recording.accounts[:3]))
        raise LabError(
            f"account {account} is not in this recording. It has {len(recording.accounts)}, such as "
            f"{some}: client.accounts lists them."
        )
    return account
