"""Accounts and their keys: the part of the client that a key update needs."""

from __future__ import annotations

import copy
import functools
import json
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from loopring_lab.amounts import to_units
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.hidden import SecretBytes, SecretText, hide
from loopring_lab.protocol.eddsa import L2Key, request_message, sign_request
from loopring_lab.replies import (
    Account,
    Exchange,
    Submission,
    read_account,
    read_api_key,
    read_exchange,
    read_fees,
    read_progress,
    read_submission,
)
from loopring_lab.transport import Outcome, Params, Transport

UPDATE_REQUEST = 2
"""The relayer's number for key updates, where it is asked for fees."""


class Accounts:
    """The part of a client that is about accounts and keys."""

    _transport: Transport

    if TYPE_CHECKING:

        def tokens(self) -> pd.DataFrame: ...  # noqa: D102

    def account(self, account_id: int | None = None, owner: str | None = None) -> Account:
        """Read an account; no API key is needed.

        Parameters
        ----------
        account_id : int, optional
            Its number.
        owner : str, optional
            Or its owner's address.

        Returns
        -------
        Account
            As it is now.

        Raises
        ------
        RelayerError, TransportError, UnexpectedAnswer
            The relayer knows no such account, cannot be reached, or answers something else.
        LabError
            Neither or both are given.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> lab.connect().account(10083).frozen
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        False
        """
        if (account_id is None) == (owner is None):
            raise LabError("account: give account_id=, or owner=, and not both.")
        asked: Params = {"owner": owner} if owner else {"accountId": number("account_id", account_id)}
        account = read_account(self._transport.get("/account", asked))
        self._seen[account.x, account.y] = account.account_id
        return account

    def exchange(self) -> Exchange:
        """Ask which exchange the relayer works for.

        Returns
        -------
        Exchange
            Address and chain id.

        Raises
        ------
        RelayerError, TransportError, UnexpectedAnswer
            The relayer refuses, cannot be reached, or answers something else.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> lab.connect().exchange().chain_id
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        1
        """
        return read_exchange(self._transport.get("/exchange/info"))

    def update_fee(self, account_id: int) -> pd.DataFrame:
        """Ask what an update of the key costs.

        Parameters
        ----------
        account_id : int
            Whose key.

        Returns
        -------
        pandas.DataFrame
            Index ``fee_token``, a row for each token the fee can be paid in: ``token_id``, ``fee`` (units of
            the token, `AMOUNT`), ``discount`` (float, as the relayer says it; not applied here).

        Raises
        ------
        RelayerError, TransportError, UnexpectedAnswer
            The relayer refuses, cannot be reached, or answers something else.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> lab.show(lab.connect().update_fee(10083).loc[["ETH", "USDC"], ["fee"]])
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        fee_token           fee
        ETH        0.000019 ETH
        USDC          0.07 USDC
        """
        asked: Params = {"accountId": number("account_id", account_id), "requestType": UPDATE_REQUEST}
        fees = read_fees(self._transport.get("/user/offchainFee", asked, keyed=True)).set_index("fee_token")
        listed = self.tokens().reindex(fees.index)
        unknown = fees.index[listed["token_id"].isna()].to_list()
        if unknown:
            hint = "This relayer does not list the tokens it takes fees in."
            raise UnexpectedAnswer("fees", expected="listed tokens", got=", ".join(unknown), hint=hint)
        amounts = to_units(fees["fee"], listed["decimals"].astype(int).to_numpy())
        return fees.assign(token_id=listed["token_id"].astype(int), fee=amounts)[
            ["token_id", "fee", "discount"]
        ]

    def api_key(self, l2_key: L2Key, account_id: int | None = None) -> SecretText:
        """Ask for an account's API key; the request is signed with the account's current L2 key.

        Parameters
        ----------
        l2_key : L2Key
            The account's current key, from `protocol.l2_key` or `KeyUpdate.l2_key`.
        account_id : int, optional
            Whose; may be left out after this client has read the account that carries the key.

        Returns
        -------
        SecretText
            Give it to `with_api_key`. It shows itself as ``<hidden>``; ``key[:]`` is the text, to be kept in
            LOOPRING_API_KEY, not in a notebook.

        Raises
        ------
        RelayerError
            Code 104005 where the key is not the account's current one.
        TransportError, UnexpectedAnswer
            The relayer cannot be reached, or answers something else.
        LabError
            `l2_key` is no key, or the account is not known.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     lab.connect(relayer.base_url).api_key(relayer.l2_key(10083), 10083)
        <hidden>
        """
        key = _key(l2_key)
        del l2_key
        if key is None:
            raise LabError("api_key: expected an L2Key. Make one with lab.protocol.l2_key(signature).")
        if account_id is None:
            account_id = self._seen.get((f"{key.x:#066x}", f"{key.y:#066x}"))
        if account_id is None:
            raise LabError("api_key: which account carries this key is not known. Give account_id=.")
        asked = {"accountId": number("account_id", account_id)}
        message = request_message("GET", f"{self._transport.base_url}/api/v3/apiKey", asked)
        signature = SecretText(sign_request(key.secret, message))
        return read_api_key(self._transport.get("/apiKey", asked, signature=signature))

    def with_api_key(self, api_key: str) -> Self:
        """Return this client with another API key, such as the one that a new L2 key was given.

        Parameters
        ----------
        api_key : str
            From `api_key`, or any other.

        Returns
        -------
        Client
            Another one, with the same connections and pacing; this one keeps its key.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> lab.connect("https://relayer.example").with_api_key("not shown again")
        Client(https://relayer.example)
        """
        twin = copy.copy(self)
        twin._transport = self._transport.with_key(hide(api_key))
        return twin

    def update_account(self, body: Mapping[str, Any]) -> Submission:
        """Send an update of a key as it is, once; `KeyUpdate` makes the body and takes better care.

        Parameters
        ----------
        body : mapping
            As `KeyUpdate.body` makes it; ``ecdsaSignature`` is sent as ``X-API-SIG`` too.

        Returns
        -------
        Submission
            The relayer's answer. It says that the update was taken, not that it is done.

        Raises
        ------
        RelayerError
            The relayer refuses.
        TransportError, UnexpectedAnswer
            No usable answer arrived: the update may have been taken all the same.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
        ...     update = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer)
        ...     client.update_account(update.body()).status
        'received'
        """
        outcome = self._send_update(body)
        if outcome.error:
            raise outcome.error
        return read_submission(outcome.body)

    def update_status(self, account_id: int, update_hash: str) -> Submission | None:
        """Ask how an update goes; the account itself, see `account`, tells most of it.

        Parameters
        ----------
        account_id : int
            Whose key.
        update_hash : str
            From the answer to the update.

        Returns
        -------
        Submission or None
            With the reason where the update failed; None where the relayer does not list it.

        Raises
        ------
        RelayerError
            The relayer does not tell; `NotAuthorized` where the API key is missing or no longer accepted.
        TransportError, UnexpectedAnswer
            The relayer cannot be reached, or answers something else.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> print(lab.connect().update_status(10083, "0x" + 64 * "0"))
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        None
        """
        asked: Params = {"accountId": number("account_id", account_id)}
        return read_progress(self._transport.get("/user/updateInfo", asked, keyed=True), update_hash)

    def _send_update(self, body: Mapping[str, Any]) -> Outcome:
        signature = hide(body.get("ecdsaSignature")) or ""
        sent = SecretBytes(json.dumps(dict(body), separators=(",", ":"), ensure_ascii=False).encode())
        return self._transport.post("/account", sent, signature=signature)

    @functools.cached_property
    def _seen(self) -> dict[tuple[str, str], int]:
        """Accounts read so far, by their public key."""
        return {}


def number(name: str, value: Any) -> int:
    """Read an account's number.

    Parameters
    ----------
    name : str
        Of the argument, for the error.
    value : int
        An integer of any kind.

    Returns
    -------
    int
        0 or above.

    Raises
    ------
    LabError
        It is none.
    """
    try:
        found = operator.index(value)
    except TypeError:
        found = -1
    if found < 0:
        raise LabError(f"{name}={value!r}: give the account's number, such as 10083.")
    return found


def _key(value: object) -> L2Key | None:
    """Return a key; None, not an error, so that no traceback has a frame with what stands in its place."""
    return value if isinstance(value, L2Key) else None
