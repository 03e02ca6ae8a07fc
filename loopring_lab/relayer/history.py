"""Where a relayer's rows come from, and which of them a filter picks.

The history does not change while it is served, so every filter has its rows' numbers in a plain array: the
rows at any offset are a slice, their count a length, however deep the offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from loopring_lab.relayer.wire import Row

__all__ = ["FILL_TYPES", "History", "RowKey", "Source"]

FILL_TYPES = ("amm", "dex")
"""Every fill type a row can have."""


class RowKey(NamedTuple):
    """What a row is found by.

    Parameters
    ----------
    account : int
        Whose side of the fill it is.
    market : str
        Without the prefix of pool fills.
    fill_type : str
        ``amm`` or ``dex``.
    order_hash : str or None
        The account's order, where the row tells it.
    """

    account: int
    market: str
    fill_type: str
    order_hash: str | None


class Source(Protocol):
    """What a relayer can serve: the synthetic `World`, a `Recording`, or anything else of this shape."""

    @property
    def label(self) -> str:
        """What the data is, in a few words."""

    @property
    def accounts(self) -> list[int]:
        """Accounts worth reading."""

    @property
    def history(self) -> History:
        """All rows."""

    def tokens(self) -> list[dict[str, Any]]:
        """Token records."""

    def markets(self) -> list[dict[str, Any]]:
        """Market records."""


Filter = tuple[int, str | None, str | None]


class History:
    """Numbered rows, oldest first, with the numbers that each filter picks.

    Parameters
    ----------
    keys : iterable of RowKey
        Of each row, in order of time.
    row : callable
        Gives the row of a number; called only for rows that are served.
    accounts : iterable of int
        Accounts that exist, also those without a row.

    Examples
    --------
    >>> keys = [RowKey(7, "LRC-ETH", "amm", "0xaa"), RowKey(7, "LRC-ETH", "dex", "0xbb")]
    >>> history = History(keys, row=lambda number: (str(number),))
    >>> list(history.numbers(7)), list(history.numbers(7, fill_type="dex")), len(history.order_rows("0xbb"))
    ([0, 1], [1], 1)
    """

    def __init__(
        self, keys: Iterable[RowKey], row: Callable[[int], Row], accounts: Iterable[int] = ()
    ) -> None:
        self.row = row
        self._known = set(accounts)
        self._filters: dict[Filter, array[int]] = {}
        self._orders: dict[str, list[tuple[int, RowKey]]] = {}
        self._index(keys)

    def _index(self, keys: Iterable[RowKey]) -> None:
        filters, orders = self._filters, self._orders
        for number, key in enumerate(keys):
            account, market, fill_type, order = key
            exact = (account, market, fill_type)
            if exact in filters:
                filters[exact].append(number)
            else:
                filters[exact] = array("I", (number,))
            if order is not None:
                orders.setdefault(order, []).append((number, key))
        self._known.update(account for account, _, _ in filters)
        self._widen()

    def _widen(self) -> None:
        """Add the filters that leave market, fill type or both open."""
        wide: dict[Filter, array[int]] = {}
        for (account, market, fill_type), numbers in self._filters.items():
            wider: tuple[Filter, ...] = (
                (account, None, fill_type),
                (account, market, None),
                (account, None, None),
            )
            for each in wider:
                wide.setdefault(each, array("I")).extend(numbers)
        for each, numbers in wide.items():
            self._filters[each] = array("I", sorted(numbers))

    def has_account(self, account: int) -> bool:
        """Whether an account exists.

        Parameters
        ----------
        account : int
            Account id.

        Returns
        -------
        bool
            True also for an account that has no rows.
        """
        return account in self._known

    @property
    def accounts(self) -> list[int]:
        """Every account there is, in order of id."""
        return sorted(self._known)

    @property
    def market_names(self) -> set[str]:
        """Every market that has rows, without prefix."""
        return {market for _, market, _ in self._filters if market is not None}

    def numbers(self, account: int, market: str | None = None, fill_type: str | None = None) -> Sequence[int]:
        """Numbers of the rows that a filter picks.

        Parameters
        ----------
        account : int
            Account id.
        market : str or None
            Without prefix; None for every market.
        fill_type : str or None
            ``amm``, ``dex``, or None for both.

        Returns
        -------
        sequence of int
            Oldest first.
        """
        return self._filters.get((account, market, fill_type), ())

    def order_rows(self, order_hash: str) -> list[tuple[int, RowKey]]:
        """Rows of one order.

        Parameters
        ----------
        order_hash : str
            As the rows tell it.

        Returns
        -------
        list of (int, RowKey)
            Row numbers, oldest first, each with its key.
        """
        return self._orders.get(order_hash, [])
