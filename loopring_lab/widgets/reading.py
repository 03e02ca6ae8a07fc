"""Trades that are given, or read in a thread with progress, and given up where nobody wants them any more."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pandas as pd
from traitlets import Bool, Int, observe

from loopring_lab.client import Client
from loopring_lab.errors import LabError, NotAuthorized
from loopring_lab.hidden import hide
from loopring_lab.widgets.choices import Choice, account_number
from loopring_lab.widgets.work import Report, Working

__all__ = ["Reading", "history"]


class Reading(Working):
    """Trades, given or read from a client.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, whose accounts are read one at a time; or trades.
    **choices
        What to begin with.

    Attributes
    ----------
    account : int or None
        Whose trades; with a client only. Another one is read at once.
    version : int
        Counts how often the trades changed.
    needs_key : bool
        Whether the relayer asks for another API key.
    """

    account = Choice(account_number)
    version = Int()
    needs_key = Bool()

    _ready = False

    def __init__(self, source: Client | pd.DataFrame, **choices: Any) -> None:
        what = type(self).__name__
        self._client = source if isinstance(source, Client) else None
        self._trades = None if isinstance(source, Client) else _trades(source, what)
        if self._client is not None and self._client.accounts:
            choices.setdefault("account", self._client.accounts[0])
        elif self._client is None and "account" in choices:
            raise LabError(f"{what}: these are trades already, so account= chooses nothing. Give a client.")
        super().__init__(**choices)
        self._ready = True

    @property
    def is_read(self) -> bool:
        """Whether there are trades."""
        return self._trades is not None

    @property
    def client(self) -> Client | None:
        """The client it reads with, if any."""
        return self._client

    @property
    def trades(self) -> pd.DataFrame:
        """All trades, before any choice.

        Raises
        ------
        LabError
            They are not read yet.
        """
        if self._trades is None:
            raise LabError("No trades are read yet. Choose an account, and read() its trades.")
        return self._trades

    @property
    def markets(self) -> list[str]:
        """Markets of the trades, those with most trades first."""
        return self.names("market")

    def names(self, column: str) -> list[str]:
        """List the names in a column of the trades.

        Parameters
        ----------
        column : str
            Such as ``quote``.

        Returns
        -------
        list of str
            Those with most trades first; empty where no trades are read.
        """
        if self._trades is None:
            return []
        return [str(one) for one, count in self._trades[column].value_counts().items() if count]

    def read(self) -> None:
        """Read the account's trades, in a thread; `wait` waits for them.

        Raises
        ------
        LabError
            There is nothing to read.
        """
        client, number = self._client, self.account
        if client is None or number is None:
            raise LabError("There is no account to read. Give a client, and an account's number.")
        self._trades = None
        self.version += 1
        self.begin(
            f"Reading the trades of account {number}",
            lambda report: _ready_to_draw(history(client, number, report)),
            self._take,
        )

    def unlock(self, api_key: str) -> None:
        """Read with another API key.

        Parameters
        ----------
        api_key : str
            Kept hidden, by the client only.

        Raises
        ------
        LabError
            There is nothing to read.
        """
        key = hide(api_key)
        del api_key
        if self._client is not None:
            self._client = self._client.with_api_key(key)
        self.needs_key = False
        self.read()

    def failed(self, error: LabError) -> None:
        """Take the end of a reading that failed; ask for an API key where that is why.

        Parameters
        ----------
        error : LabError
            Why.
        """
        self.needs_key = isinstance(error, NotAuthorized)
        super().failed(error)

    @observe("account")
    def _another_account(self, change: Any) -> None:
        if self._ready and change["new"] is not None:
            self.read()

    def _take(self, trades: pd.DataFrame) -> None:
        self._trades, self.needs_key = trades, False
        self.version += 1


def history(client: Client, account: int, report: Report) -> pd.DataFrame:
    """Read every trade of an account.

    Parameters
    ----------
    client : Client
        From `connect`.
    account : int
        Whose trades.
    report : callable
        Told the number of trades read and to be read, at first and after every page; raises to give up.

    Returns
    -------
    pandas.DataFrame
        As `Client.trades`.

    Raises
    ------
    LabError
        As `Client.trades`, and whatever `report` raises.
    """
    whole = client.count(account)
    report(0, whole)
    return client.trades(account, progress=lambda held, expected: report(held, max(whole, expected)))


def _ready_to_draw(trades: pd.DataFrame) -> pd.DataFrame:
    """Load what draws while still in a thread: that takes a second, the first time."""
    import_module("loopring_lab.figures")
    return trades


def _trades(source: Any, what: str) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame) and {"created_at", "trade_id", "fill_type"} <= set(source.columns):
        return source
    raise LabError(
        f"{what}: expected a client, or trades as a pandas frame. Give lab.connect() or client.trades(...)."
    )
