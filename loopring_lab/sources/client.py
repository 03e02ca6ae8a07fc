"""A client for one relayer: a method per endpoint, whole histories, exact DataFrames."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from functools import cached_property, partial
from html import escape
from typing import Any, Self

import pandas as pd

from loopring_lab import arguments, tables
from loopring_lab.arguments import Moment, parse_account_id
from loopring_lab.errors import (
    KeyUpdateError,
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    TransportError,
    UnexpectedAnswer,
)
from loopring_lab.http.transport import Params, Transport
from loopring_lab.interactive import completion
from loopring_lab.origin import Source
from loopring_lab.progress import Watching, track
from loopring_lab.protocol import key_seed
from loopring_lab.protocol.eddsa import L2Key, request_message, sign_request
from loopring_lab.protocol.fields import parse_address
from loopring_lab.redaction import SecretText, hide
from loopring_lab.sources import paging, records
from loopring_lab.sources.records import Account, Exchange, Submission, UpdateFee
from loopring_lab.sources.trade_source import labelled, labels, refuse_contradictions
from loopring_lab.tables import rows, wire
from loopring_lab.tables.listings import POOL_PREFIX

__all__ = ["Client"]

SERVER_FAULT = 500  # and above: the relayer failed, rather than that it does not know
# The relayer's request type for key updates, where fees are asked for.
UPDATE_REQUEST = 2
# Where the exchange answers about wallets on Ethereum, as its SDK (`getWalletType`) and web wallet ask.
WALLET_API = "/api/wallet/v3"
SHARED_HINT = (
    "This relayer does not tell fill types apart. Read one of them, with fill_type=."
)


def identity_of(client: Client) -> Source:
    """Ask what is known of a client's source; a relayer that does not serve the exchange does not say it."""
    try:
        exchange = client.exchange()
    except RelayerError as error:
        is_about_us = isinstance(error, NotAuthorized | RateLimited)
        if error.status >= SERVER_FAULT or is_about_us:
            raise
        return Source(client.source, client.synthetic)
    return Source(client.source, client.synthetic, exchange.address, exchange.chain_id)


def update_fees(client: Client, account_id: int) -> list[UpdateFee]:
    """Read what a key update costs, in smallest units of each listed token."""
    query: Params = {
        "accountId": parse_account_id(account_id),
        "requestType": UPDATE_REQUEST,
    }
    body = client._transport.get("/user/offchainFee", query, keyed=True)
    return records.listed_fees(records.read_fees(body), client._tokens.index)


def wallet_of_owner(client: Client, account_id: int) -> dict[str, str] | None:
    """Ask which counterfactual wallet owns an account, if one does."""
    query: Params = {"accountId": account_id}
    body = _if_known(lambda: client._transport.get("/counterFactualInfo", query))
    return None if body is None else records.read_wallet(body)


def is_contract(client: Client, owner: str) -> bool:
    """Ask whether an address is that of a contract; a relayer that does not know counts as no."""
    query: Params = {"wallet": owner}
    body = _if_known(
        lambda: client._transport.get("/wallet/type", query, api=WALLET_API)
    )
    return body is not None and records.read_is_contract(body)


def spendable(client: Client, account_id: int, token_id: int) -> int | None:
    """Ask what an account can spend of a token, in smallest units; None where the relayer does not say it."""
    query: Params = {"accountId": account_id, "tokens": token_id}
    body = _if_known(lambda: client._transport.get("/user/balances", query, keyed=True))
    return None if body is None else records.read_balance(body, account_id, token_id)


def _if_known(ask: Callable[[], bytes]) -> bytes | None:
    """Return an answer, or None where the relayer refuses the question; that it failed is an error."""
    try:
        return ask()
    except RelayerError as error:
        if error.status >= SERVER_FAULT or isinstance(error, RateLimited):
            raise
        return None


class Client:
    """A relayer's tokens, markets and trades as DataFrames; made by `connect`.

    A method that sends a request raises `RelayerError` if the relayer refuses it (`NotAuthorized` if the API
    key is missing or wrong), `TransportError` if the relayer cannot be reached, and `UnexpectedAnswer` if the
    answer is not as documented.

    Parameters
    ----------
    transport : Transport
        Sends the requests.
    source : str, optional
        Name of the source; by default what the relayer's first answer states, or else its address.
    synthetic : bool
        Whether the data is synthetic, if the relayer does not state that it is.
    accounts : list of int, optional
        Accounts known to have trades.

    Examples
    --------
    >>> lab.connect()
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    Client(synthetic world, seed 1, 64 accounts)
    """

    def __init__(
        self,
        transport: Transport,
        source: str | None = None,
        *,
        synthetic: bool = False,
        accounts: list[int] | None = None,
    ) -> None:
        self._transport = transport
        self._name = source
        self._synthetic = synthetic
        self._accounts = accounts
        self._accounts_by_key: dict[tuple[str, str], int] = {}

    def __repr__(self) -> str:
        accounts = f", {len(self.accounts)} accounts" if self.accounts else ""
        return f"Client({self.source}{accounts})"

    def _repr_html_(self) -> str:
        known = self.accounts or []
        some = (
            f"{len(known)} accounts, such as {known[0]}"
            if known
            else "accounts not listed"
        )
        note = "Synthetic data. " if self.synthetic else ""
        next_step = "<code>client.trades(account_id)</code> reads a history."
        return f"<p><b>Client</b> of {escape(self.source)}: {some}.<br><small>{note}{next_step}</small></p>"

    @property
    def source(self) -> str:
        """Name of the source: as given, or else as the relayer states it, or else its address."""
        if self._name:
            return self._name
        stated = self._transport.source or Source.at(self._transport.base_url)
        return stated.name

    @property
    def base_url(self) -> str:
        """Address of the relayer."""
        return self._transport.base_url

    @property
    def synthetic(self) -> bool:
        """Whether the data is synthetic: as given, or as the relayer's first answer states."""
        stated = self._transport.source
        return self._synthetic or (stated is not None and stated.synthetic)

    @property
    def accounts(self) -> list[int] | None:
        """Accounts known to have trades; None from a live relayer, which lists none."""
        return self._accounts

    def close(self) -> None:
        """Close the connections that are kept open.

        Examples
        --------
        >>> lab.connect("https://relayer.example").close()
        """
        self._transport.close()

    def tokens(self) -> pd.DataFrame:
        """Read the tokens; they are requested once and then remembered.

        Returns
        -------
        pandas.DataFrame
            As `tables.tokens` describes.

        Examples
        --------
        >>> client.tokens().loc[["ETH", "USDC"], ["token_id", "decimals"]]
                token_id  decimals
        symbol
        ETH            0        18
        USDC           6         6
        """
        return labelled(self._tokens, self)

    def markets(self) -> pd.DataFrame:
        """Read the markets; they are requested once and then remembered.

        Returns
        -------
        pandas.DataFrame
            As `tables.markets` describes.

        Examples
        --------
        >>> client.markets().loc[["LRC-ETH"], ["base", "quote", "amm_open", "orderbook_open"]]
                base quote  amm_open  orderbook_open
        market
        LRC-ETH  LRC   ETH      True            True
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
        """Read a whole trade history, AMM pool and order book, exactly.

        Pages are read until no new row comes and as many are known as the relayer counts; each fill type by
        itself, because a row does not say which it is.

        Parameters
        ----------
        account_id : int or iterable of int, optional
            Whose trades; may be omitted with `order_hash`. Of several accounts both rows of a fill between two of
            them are there: `fills.one_side` keeps one.
        market : str, optional
            Such as ``LRC-ETH``, in any case; ``AMM-LRC-ETH`` is its pool.
        order_hash : str, optional
            The fills of one order, 0x hex.
        fill_type : {'amm', 'dex'}, optional
            Only pool fills or only order-book fills.
        since, until : str, datetime or Timestamp, optional
            From `since` on, and before `until`; UTC where no zone is given. A row of unknown time is kept.
        limit : int, optional
            Return at most this many of the newest trades. If the relayer sends the newest rows first, only as
            many pages are read as that takes; such a part cannot be checked against the relayer's count.
        progress : bool or callable, optional
            True shows a progress bar, False none; by default one appears after a second, and not under CI. A
            callable gets the trades read and expected after every page; what it raises ends the read.

        Returns
        -------
        pandas.DataFrame
            As `tables.trades` describes; ``attrs["source"]`` and ``attrs["synthetic"]`` say where they come
            from, and ``attrs["notes"]``, which `show` prints, that there are none, or none of some accounts.

        Raises
        ------
        IncompleteHistory
            The relayer sends fewer rows than it counts.
        UnexpectedAnswer
            An answer is not as documented, a row is of another account than the one asked for, or a fill is
            listed under both fill types. An odd row is no error: it is kept, and `lab.anomalies` lists it.
        LabError
            An argument is not valid.

        Examples
        --------
        >>> trades = client.trades(account_id=10083, market="LRC-ETH", limit=100)
        >>> len(trades), trades["fee"].dtype
        (100, amount)
        """
        arguments.validate_trade_query(account_id, order_hash, fill_type, limit)
        account_id = None if account_id is None else parse_account_id(account_id)
        start, end = arguments.parse_span(since, until)
        market, fill_type = arguments.known_market(
            market, fill_type, self._markets.index
        )
        # The newest rows of all are not the newest before `until`.
        newest = None if end else limit
        window = paging.Window(newest, arguments.to_milliseconds(start))
        histories = []
        for kind in (fill_type,) if fill_type else rows.FILL_TYPES:
            names = [market]
            # A relayer may list the fills of a pool under its own name.
            if market and kind == "amm":
                names.append(POOL_PREFIX + market)
            for name in names:
                history = paging.History(
                    account_id, kind, market=name, order_hash=order_hash, window=window
                )
                histories.append(history)
        batches: dict[str, list[wire.Batch]] = defaultdict(list)
        label = paging.TRADES_OF[fill_type] if fill_type else "trades"
        one_by_one = paging.until_error(histories)
        try:
            with (
                track(label, progress) as report,
                closing(self.pages(one_by_one, progress=report)) as pages,
            ):
                for page in pages:
                    batches[page.history.fill_type].append(page.batch)
        except RelayerError as error:
            raise arguments.with_suggestion(
                error, market, self._markets.index
            ) from None
        frame = tables.join_batches(batches, self._tokens, self._markets, account_id)
        refuse_contradictions(frame, account_id, SHARED_HINT)
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

    def pages(
        self,
        histories: Iterable[paging.History | tuple[int, str]],
        progress: Watching = None,
    ) -> Generator[paging.FetchedPage]:
        """Read the pages of trade histories as they arrive, to keep them as they were sent.

        Histories are read one after the other, each until no new row comes and as many are known as the relayer
        counts. The error of one is raised after the others have been read.

        Parameters
        ----------
        histories : iterable of (account_id, fill_type) or paging.History
            Such as ``[(10083, "amm"), (10083, "dex")]``.
        progress : bool or callable, optional
            As for `trades`.

        Yields
        ------
        paging.FetchedPage
            ``history``, ``offset``, ``body`` (bytes, as sent), ``retrieved_at`` (milliseconds since 1970) and
            ``batch`` (rows as text columns). Pages may overlap, and the last one of a history is empty.

        Examples
        --------
        >>> for page in client.pages([(71468, "dex")]):
        ...     print(page.history.name, page.offset, page.batch.counts)
        account 71468, order-book trades 0 [11]
        account 71468, order-book trades 11 [0]
        """
        planned = map(_as_history, histories)
        fetch = partial(self._transport.get, "/user/trades", keyed=True)
        with track("trades", progress) as report:
            yield from paging.read_histories(planned, fetch, report)

    def listings(self) -> tuple[bytes, bytes]:
        """Read tokens and markets as the relayer sends them now, to keep them beside the pages of `pages`.

        Returns
        -------
        tuple of bytes
            JSON text: ``tokens.json`` and ``markets.json`` of a recording.

        Examples
        --------
        >>> tokens, markets = client.listings()
        >>> lab.tables.tokens(tokens).index[0]
        'ETH'
        """
        tokens = self._transport.get("/exchange/tokens")
        markets = self._transport.get("/mix/markets")
        return tokens, markets

    def count(self, account_id: int, fill_type: str | None = None) -> int:
        """Return how many trades the relayer counts, without reading them.

        Parameters
        ----------
        account_id : int
            Whose trades.
        fill_type : {'amm', 'dex'}, optional
            Only pool fills or only order-book fills.

        Returns
        -------
        int
            ``totalNum`` of a page of one row.

        Examples
        --------
        >>> client.count(10083), client.count(10083, "amm")
        (2217, 1221)
        """
        params: dict[str, str | int] = {
            "accountId": parse_account_id(account_id),
            "offset": 0,
            "limit": 1,
        }
        if fill_type:
            params["fillTypes"] = fill_type
        body = self._transport.get("/user/trades", params, keyed=True)
        return wire.read_total(wire.read(body, "count"))

    def outside_prices(
        self, trades: Any, every: str = "1min", *, progress: Watching = None
    ) -> pd.DataFrame | None:
        """Read what an outside market showed, from the synthetic world: to compare venues with a fair price.

        Parameters
        ----------
        trades : frame in memory
            Whose markets and times to cover: from an hour before the first trade to a day after the last.
        every : str
            Whole minutes from one price to the next.
        progress : bool or callable, optional
            As for `trades`; a callable gets the markets read and expected.

        Returns
        -------
        pandas.DataFrame or None
            ``created_at`` (UTC, when the price held), ``market``, ``base``, ``quote``, ``price`` (`AMOUNT`):
            the world's true price and about 1 basis point of noise each time, made up like its trades. None
            from any other source: `tables.prices` reads such a frame from a file.

        Examples
        --------
        >>> prices = client.outside_prices(client.trades(94680), every="1h")
        >>> sorted(prices["market"].unique()), prices.attrs["synthetic"]
        (['ETH-USDC', 'LRC-ETH'], True)
        """
        queries = arguments.outside_prices(trades, self._markets.index, every)
        if not self.synthetic:
            return None
        found = {}
        with track("outside prices of markets", progress) as report:
            for market, asked in queries.items():
                found[market] = self._transport.get("/lab/outsidePrices", asked)
                report(len(found), len(queries))
            kinds = dict(trades.dtypes) if isinstance(trades, pd.DataFrame) else {}
            prices = records.read_outside_prices(found, self._markets, kinds)
        prices.attrs |= labels(self)
        return prices

    def account(
        self, account_id: int | None = None, owner: str | None = None
    ) -> Account:
        """Read an account; needs no API key.

        Parameters
        ----------
        account_id : int, optional
            Account id.
        owner : str, optional
            Address of the owner, instead of the account id.

        Returns
        -------
        Account
            Its current state.

        Raises
        ------
        LabError
            Neither or both of the arguments are given, or one is not valid.

        Examples
        --------
        >>> client.account(10083).frozen
        False
        """
        if (account_id is None) == (owner is None):
            raise LabError(
                "Give the account's account_id=, or its owner=, but not both."
            )
        query: Params
        if owner is None:
            account_id = parse_account_id(account_id)
            query = {"accountId": account_id}
        else:
            owner = parse_address("owner", owner)
            query = {"owner": owner}
        answer = self._transport.get("/account", query)
        account = records.read_account(answer, account_id, owner)
        # The account is kept for `api_key`, which knows a key and not whose it is.
        self._accounts_by_key[account.x, account.y] = account.account_id
        return account

    def current_key_seed(self, account: Account | int) -> str:
        """Return the text whose signature made an account's current key.

        Parameters
        ----------
        account : Account or int
            From `account`, or an account id.

        Returns
        -------
        str
            The account's ``key_seed``; where the relayer has none, the exchange's usual text with the nonce of the
            update that set the key. Sign it with personal_sign, and give the signature to `Account.recover_key`.

        Raises
        ------
        KeyUpdateError
            The account has no key yet.

        Examples
        --------
        >>> client.current_key_seed(10083)[-32:]
        '9732878417702c with key nonce: 0'
        """
        if not isinstance(account, Account):
            account = self.account(account)
        if not account.x or account.nonce == 0:
            raise KeyUpdateError(
                f"Account {account.account_id} has no key yet. Set one with lab.KeyUpdate.prepare()."
            )
        return account.key_seed or key_seed(self.exchange().address, account.nonce - 1)

    def exchange(self) -> Exchange:
        """Read which exchange the relayer serves.

        Returns
        -------
        Exchange
            Address and chain id.

        Examples
        --------
        >>> client.exchange().chain_id
        31337
        """
        return records.read_exchange(self._transport.get("/exchange/info"))

    def update_fee(self, account_id: int) -> pd.DataFrame:
        """Read what an update of an account's L2 key costs.

        Parameters
        ----------
        account_id : int
            Account id.

        Returns
        -------
        pandas.DataFrame
            Index ``fee_token``, one row for each token that the fee can be paid in: ``token_id``, ``fee``
            (units of the token, `AMOUNT`), ``discount`` (float, as reported by the relayer; not applied).

        Examples
        --------
        >>> lab.show(client.update_fee(10083).loc[["ETH", "USDC"], ["fee"]])
        fee_token           fee
        ETH        0.000019 ETH
        USDC          0.07 USDC
        """
        return records.fee_frame(update_fees(self, account_id), self._tokens)

    def api_key(self, l2_key: L2Key, account_id: int | None = None) -> SecretText:
        """Request an account's API key, signing with the account's current L2 key.

        Parameters
        ----------
        l2_key : L2Key
            The account's current key, from `protocol.l2_key` or `KeyUpdate.l2_key`.
        account_id : int, optional
            May be omitted if this client has already read the account that has this key.

        Returns
        -------
        SecretText
            Pass it to `with_api_key`. It prints as ``<hidden>``; ``key[:]`` is the text. Keep that in
            LOOPRING_API_KEY, not in a notebook.

        Raises
        ------
        RelayerError
            Code 104005 where the key is not the account's current one.
        LabError
            `l2_key` is not an L2Key, or the account is not known.

        Examples
        --------
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     lab.connect(relayer.base_url).api_key(relayer.l2_key(10083), 10083)
        <hidden>
        """
        key = _l2_key_or_none(l2_key)
        del l2_key
        if key is None:
            raise LabError(
                "api_key: expected an L2Key. Make one with lab.protocol.l2_key(signature)."
            )
        if account_id is None:
            account_id = self._accounts_by_key.get((f"{key.x:#066x}", f"{key.y:#066x}"))
        if account_id is None:
            raise LabError(
                "api_key: the account of this key is not known. Give account_id=."
            )
        query = {"accountId": parse_account_id(account_id)}
        message = request_message(
            "GET", f"{self._transport.base_url}/api/v3/apiKey", query
        )
        signature = SecretText(sign_request(key.secret, message))
        # The answer has no name: a Ctrl-C just then would show the key in it.
        return records.read_api_key(
            self._transport.get("/apiKey", query, signature=signature)
        )

    def with_api_key(self, api_key: str) -> Self:
        """Return a client with another API key, such as that of a new L2 key.

        Parameters
        ----------
        api_key : str
            From `api_key`, or from elsewhere.

        Returns
        -------
        Client
            A new client that shares connections and pacing with this one, which keeps its key.

        Examples
        --------
        >>> lab.connect("https://relayer.example").with_api_key("not shown again")
        Client(https://relayer.example)
        """
        key = hide(api_key)
        del api_key
        other = copy.copy(self)
        other._transport = self._transport.with_key(key)
        return other

    def update_account(self, body: Mapping[str, Any]) -> Submission:
        """Send a key update as it is, once; `KeyUpdate` builds the body and handles lost answers.

        Parameters
        ----------
        body : mapping
            From `KeyUpdate.body`; its ``ecdsaSignature`` is also sent as the ``X-API-SIG`` header.

        Returns
        -------
        Submission
            The relayer's answer: the update was accepted, but is not processed yet.

        Raises
        ------
        RelayerError
            The relayer refuses.
        TransportError
            No usable answer arrived; ``maybe_received`` tells whether the update may have been accepted all the same,
            as after an answer that is not as documented.

        Examples
        --------
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
        ...     update = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer)
        ...     client.update_account(update.body()).status
        'processing'
        """
        if not isinstance(body, Mapping):
            raise LabError(
                f"update_account: expected a mapping, got {type(body).__name__}. Give KeyUpdate.body()."
            )
        hidden = {
            name: hide(value) if isinstance(value, str) else value
            for name, value in body.items()
        }
        del body
        signature = hidden.get("ecdsaSignature") or ""
        seed = hidden.get("keySeed")
        try:
            answer = self._transport.post(
                "/account",
                records.encode_update(hidden),
                signature=signature,
                key_seed=seed if isinstance(seed, SecretText) else None,
            )
            return records.read_submission(answer)
        except UnexpectedAnswer as error:
            # It is no refusal: whatever the answer became on its way, the relayer may have given one.
            raise TransportError(
                f"{error.field}: expected {error.expected}, got {error.got}. The update may have been accepted all "
                "the same. Read the account: its nonce rises once the update is processed.",
                maybe_received=True,
            ) from error

    def update_status(self, account_id: int, update_hash: str) -> Submission | None:
        """Ask for the status of a key update; `account` shows most of it without an API key.

        Parameters
        ----------
        account_id : int
            Account id.
        update_hash : str
            ``hash`` of the submission or receipt.

        Returns
        -------
        Submission or None
            Includes the reason if the update failed; None if the relayer does not list the update.

        Examples
        --------
        >>> print(client.update_status(10083, "0x" + 64 * "0"))
        None
        """
        query: Params = {"accountId": parse_account_id(account_id)}
        body = self._transport.get("/user/updateInfo", query, keyed=True)
        return records.read_listed_update(body, update_hash)

    @cached_property
    def _tokens(self) -> pd.DataFrame:
        answer = self._transport.get("/exchange/tokens")
        tokens = tables.tokens(answer)
        return completion.register_names("token", tokens)

    @cached_property
    def _markets(self) -> pd.DataFrame:
        answer = self._transport.get("/mix/markets")
        markets = tables.markets(answer, self._tokens)
        return completion.register_names("market", markets)


def _as_history(one: paging.History | tuple[int, str]) -> paging.History:
    if isinstance(one, paging.History):
        return one
    account_id, fill_type = one
    arguments.validate_trade_query(account_id, None, fill_type, None)
    return paging.History(parse_account_id(account_id), fill_type)


def _l2_key_or_none(value: object) -> L2Key | None:
    """Return a key, or None; no error, so that no traceback has a frame with a secret given instead."""
    return value if isinstance(value, L2Key) else None
