"""Trade histories: the rows that a filter selects, and the pages that a client sees now."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from loopring_lab.relayer.rows import (
    BOOK,
    FILL_TYPES,
    POOL,
    POOL_PREFIX,
    Row,
    format_row,
    rows_json,
)

if TYPE_CHECKING:
    from loopring_lab.relayer.settings import Settings

# The number of a row that no history reaches.
NEVER = 1 << 40
# An odd multiplier permutes the 32-bit numbers, so no two rows tie; this one, from Knuth, spreads them well.
SHUFFLE = 0x9E3779B1


class RowKey(NamedTuple):
    """The fields of a row that a filter can select by; the market is without prefix."""

    account: int
    market: str
    fill_type: str
    order_hash: str | None


class TradeQuery(NamedTuple):
    """A validated request for trades; account 0 stands for none, where an order is asked for."""

    account_id: int
    market: str | None = None
    order_hash: str | None = None
    fill_types: tuple[str, ...] = FILL_TYPES
    offset: int = 0
    limit: int = 50


class Source(Protocol):
    """What a relayer can serve: the synthetic `World`, a `Recording`, or anything else of this shape.

    A source may also have ``planted`` accounts, which are served but not listed, ``outside_prices``, and a
    ``chain``.
    """

    @property
    def label(self) -> str:
        """A short description, for captions."""

    @property
    def name(self) -> str:
        """The name that tells this data from all other data."""

    @property
    def synthetic(self) -> bool:
        """Whether the data is made up."""

    @property
    def accounts(self) -> list[int]:
        """Accounts worth reading."""

    @property
    def history(self) -> History:
        """Every row."""

    def tokens(self) -> list[dict[str, Any]]:
        """Return the token records as they are served."""

    def markets(self) -> list[dict[str, Any]]:
        """Return the market records as they are served."""

    def pool_records(self) -> list[dict[str, Any]]:
        """Return the pool records as they are served."""

    def pool_owners(self) -> dict[int, str]:
        """Return the accounts that are known to be pools, each with the address of its pool."""


class History:
    """Numbered rows, oldest first, indexed by account, market, fill type and order."""

    def __init__(
        self,
        keys: Iterable[RowKey],
        row: Callable[[int], Row],
        accounts: Iterable[int] = (),
    ) -> None:
        """Take the key of every row, what makes a row of its number, and accounts that may have no rows."""
        self.row = row
        self._keys = list(keys)
        self._numbers: defaultdict[int, array[int]] = defaultdict(lambda: array("I"))
        for number, key in enumerate(self._keys):
            self._numbers[key.account].append(number)
        # The rows that filters select: their numbers by account, market, fill types and whether they are shuffled.
        self._selected: dict[tuple[object, ...], array[int]] = {}
        self.accounts = sorted({*self._numbers, *accounts})
        self.market_names = {key.market for key in self._keys if key.market}

    def row_numbers(
        self,
        account: int,
        market: str | None = None,
        fill_types: tuple[str, ...] = FILL_TYPES,
        *,
        shuffled: bool = False,
    ) -> Sequence[int]:
        """Return the numbers of the rows that a filter selects; markets are without prefix."""
        wanted = (account, market, fill_types, shuffled)
        # Kept, so that the price of a page does not grow with its offset.
        if wanted not in self._selected:
            selected = []
            for number in self._numbers.get(account, ()):
                key = self._keys[number]
                if market in (None, key.market) and key.fill_type in fill_types:
                    selected.append(number)
            if shuffled:
                selected.sort(key=_shuffled_place)
            self._selected[wanted] = array("I", selected)
        return self._selected[wanted]

    def fill_type(self, number: int) -> str:
        """Return the fill type of a row."""
        return self._keys[number].fill_type

    @cached_property
    def orders(self) -> Mapping[str, list[tuple[int, RowKey]]]:
        """The rows of each order, by its hash: their numbers and keys."""
        orders: defaultdict[str, list[tuple[int, RowKey]]] = defaultdict(list)
        for number, key in enumerate(self._keys):
            if key.order_hash is not None:
                orders[key.order_hash].append((number, key))
        return orders


class Pager:
    """Serves pages of a history, which grows while it is read if the settings say so."""

    def __init__(self, history: History, settings: Settings) -> None:
        """Take the whole history; the settings say how much of it is seen, and in which order."""
        self._history = history
        self._settings = settings
        self._is_shuffled = settings.order == "shuffled"
        self._visible_counts: dict[tuple[int, str], int] = {}

    def page(self, query: TradeQuery) -> tuple[int, str]:
        """Return the total count and the JSON of one page, then let the history grow."""
        numbers = self._matching(query)
        limit = min(query.limit, self._settings.page_rows or query.limit)
        rows = self._rows(numbers, query.offset, limit)
        as_numbers = self._settings.numbers == "number"
        text = rows_json(rows, as_numbers)
        # What grows is the history of an account; a search for an order names none.
        if self._settings.growth and query.account_id:
            self._grow(query.account_id, query.fill_types)
        counted = min(len(numbers), self._settings.counted_rows or len(numbers))
        return counted, text

    def rows(self, account_id: int, fill_type: str | None = None) -> list[Row]:
        """Return the rows of an account as they are served now."""
        fill_types = FILL_TYPES if fill_type is None else (fill_type,)
        numbers = self._matching(TradeQuery(account_id, fill_types=fill_types))
        return self._rows(numbers, 0, len(numbers))

    def _rows(self, numbers: Sequence[int], offset: int, limit: int) -> list[Row]:
        if self._settings.order == "newest":
            # Rows are numbered oldest first, so the first page is the end.
            end = max(len(numbers) - offset, 0)
            page = numbers[max(end - limit, 0) : end][::-1]
        else:
            page = numbers[offset : offset + limit]
        length = self._settings.row_length
        prefix = self._settings.prefix
        return [
            format_row(self._history.row(number), length, prefix) for number in page
        ]

    def _matching(self, query: TradeQuery) -> Sequence[int]:
        """Return the numbers of the rows that a query selects, oldest first unless they are shuffled."""
        query = self._without_prefix(query)
        if query.order_hash is None:
            return self._visible(query)
        found = list(self._matching_order(query, query.order_hash))
        if self._is_shuffled:
            found.sort(key=_shuffled_place)
        return found

    def _without_prefix(self, query: TradeQuery) -> TradeQuery:
        """Return a query of a market as one of fill types, which is what the name's prefix stands for."""
        name = query.market
        # The contract does not say whether LRC-ETH includes the pool's fills, AMM-LRC-ETH; a setting decides.
        if name is not None and name.startswith(POOL_PREFIX):
            only = POOL
        elif name is not None and self._settings.market_filter == "exact":
            only = BOOK
        else:
            return query
        fill_types = tuple(each for each in query.fill_types if each == only)
        market = name.removeprefix(POOL_PREFIX)
        return query._replace(market=market, fill_types=fill_types)

    def _matching_order(self, query: TradeQuery, order_hash: str) -> Iterator[int]:
        """Yield the numbers of the rows of an order that a query selects."""
        for number, key in self._history.orders.get(order_hash, ()):
            is_visible = number < self._horizon(key.account, key.fill_type)
            is_of_account = query.account_id in (0, key.account)
            is_in_market = query.market in (None, key.market)
            is_of_type = key.fill_type in query.fill_types
            if is_visible and is_of_account and is_in_market and is_of_type:
                yield number

    def _visible(self, query: TradeQuery) -> Sequence[int]:
        account = query.account_id
        fill_types = query.fill_types
        numbers = self._history.row_numbers(
            account,
            query.market,
            fill_types,
            shuffled=self._is_shuffled,
        )
        # The common case, without a new list for each request.
        if not self._settings.growth:
            return numbers
        horizons = {each: self._horizon(account, each) for each in fill_types}
        return [
            number
            for number in numbers
            if number < horizons[self._history.fill_type(number)]
        ]

    def _horizon(self, account: int, fill_type: str) -> int:
        """Return the number of the first row of this account and fill type that is still held back."""
        if not self._settings.growth:
            return NEVER
        numbers = self._history.row_numbers(account, None, (fill_type,))
        at_start = max(0, len(numbers) - self._settings.growth_reserve)
        visible = self._visible_counts.get((account, fill_type), at_start)
        return numbers[visible] if visible < len(numbers) else NEVER

    def _grow(self, account: int, fill_types: tuple[str, ...]) -> None:
        """Show the oldest of the rows held back, as often as the settings say."""
        for _ in range(self._settings.growth):
            horizon, fill_type = min(
                (self._horizon(account, each), each) for each in fill_types
            )
            if horizon == NEVER:
                return
            numbers = self._history.row_numbers(account, None, (fill_type,))
            self._visible_counts[account, fill_type] = bisect_left(numbers, horizon) + 1


def _shuffled_place(number: int) -> int:
    return number * SHUFFLE & 0xFFFFFFFF
