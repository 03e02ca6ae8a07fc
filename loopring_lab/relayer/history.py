"""Trade histories: the layout of a row, the rows that a filter selects, and the pages that a client sees now."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from loopring_lab.relayer.settings import Settings

POOL = "amm"
BOOK = "dex"
FILL_TYPES = (POOL, BOOK)
POOL_PREFIX = "AMM-"

# The number of a row that no history reaches.
NEVER = 1 << 40
# Newest rows of each account that are held back at first if histories grow: two pages are still to come.
RESERVE = 100


class Row(NamedTuple):
    """A trade row as it is served, all text; rows of 7 and of 13 members, as there were before, begin the same."""

    created_at: str
    id: str
    side: str
    size: str
    price: str
    market: str
    fee_amount: str
    block_id: str
    index_in_block: str
    account_id: str
    token_id: str
    storage_id: str
    order_hash: str
    role: str


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


class History:
    """Numbered rows, oldest first, indexed by account, market, fill type and order."""

    def __init__(
        self, keys: Iterable[RowKey], row: Callable[[int], Sequence[str]]
    ) -> None:
        """Take the key of every row, and what makes a row of its number."""
        self.row = row
        self.keys = list(keys)
        self._numbers: defaultdict[int, array[int]] = defaultdict(lambda: array("I"))
        for number, key in enumerate(self.keys):
            self._numbers[key.account].append(number)
        # The rows that filters select: their numbers by account, market and fill types.
        self._selected: dict[tuple[object, ...], array[int]] = {}

    @property
    def accounts(self) -> Iterable[int]:
        """Every account that has a row."""
        return self._numbers.keys()

    def row_numbers(
        self,
        account: int,
        market: str | None = None,
        fill_types: tuple[str, ...] = FILL_TYPES,
    ) -> Sequence[int]:
        """Return the numbers of the rows that a filter selects; markets are without prefix."""
        wanted = (account, market, fill_types)
        # The numbers are kept, so that the price of a page does not grow with its offset.
        if wanted not in self._selected:
            selected = array("I")
            for number in self._numbers.get(account, ()):
                key = self.keys[number]
                if market in (None, key.market) and key.fill_type in fill_types:
                    selected.append(number)
            self._selected[wanted] = selected
        return self._selected[wanted]

    @cached_property
    def orders(self) -> Mapping[str, list[tuple[int, RowKey]]]:
        """The rows of each order, by its hash: their numbers and keys."""
        orders: defaultdict[str, list[tuple[int, RowKey]]] = defaultdict(list)
        for number, key in enumerate(self.keys):
            if key.order_hash is not None:
                orders[key.order_hash].append((number, key))
        return orders


class Pager:
    """Serves pages of a history, newest first; it grows while it is read if the settings say so."""

    def __init__(self, history: History, settings: Settings) -> None:
        """Take the whole history; the settings say how much of it is seen."""
        self._history = history
        self._growth = settings.growth
        self._length = settings.row_length
        # How often each account was read.
        self._reads = Counter[int]()

    def page(self, query: TradeQuery) -> tuple[int, list[list[str]]]:
        """Return the total count and the rows of one page, then let the history grow."""
        numbers = self._matching(query)
        rows = self._rows(numbers, query.offset, query.limit)
        self._reads[query.account_id] += 1
        return len(numbers), rows

    def rows(self, account_id: int, fill_type: str | None = None) -> list[list[str]]:
        """Return the rows of an account as they are served now."""
        fill_types = FILL_TYPES if fill_type is None else (fill_type,)
        numbers = self._matching(TradeQuery(account_id, fill_types=fill_types))
        return self._rows(numbers, 0, len(numbers))

    def next_storage_id(self, account_id: int, token_id: int) -> int:
        """Return the storage id of the next order of an account that sells a token: its last one, and two more."""
        for number in reversed(self._matching(TradeQuery(account_id))):
            row = self._history.row(number)
            if len(row) == len(Row._fields):
                sale = Row(*row)
                if sale.token_id == str(token_id):
                    return int(sale.storage_id) + 2
        return 0

    def _rows(self, numbers: Sequence[int], offset: int, limit: int) -> list[list[str]]:
        # Rows are numbered oldest first, so the first page is the end.
        end = max(len(numbers) - offset, 0)
        page = numbers[max(end - limit, 0) : end][::-1]
        return [list(self._history.row(number)[: self._length]) for number in page]

    def _matching(self, query: TradeQuery) -> Sequence[int]:
        """Return the numbers of the rows that a query selects, oldest first."""
        query = _without_prefix(query)
        if query.order_hash is not None:
            return list(self._matching_order(query, query.order_hash))
        numbers = self._history.row_numbers(
            query.account_id, query.market, query.fill_types
        )
        return numbers[: bisect_left(numbers, self._horizon(query.account_id))]

    def _matching_order(self, query: TradeQuery, order_hash: str) -> Iterator[int]:
        """Yield the numbers of the rows of an order that a query selects."""
        for number, key in self._history.orders.get(order_hash, ()):
            is_visible = number < self._horizon(key.account)
            is_of_account = query.account_id in (0, key.account)
            is_in_market = query.market in (None, key.market)
            is_of_type = key.fill_type in query.fill_types
            if is_visible and is_of_account and is_in_market and is_of_type:
                yield number

    def _horizon(self, account: int) -> int:
        """Return the number of the first row of an account that is still held back."""
        held_back = RESERVE - self._growth * self._reads[account]
        if not self._growth or held_back <= 0:
            return NEVER
        numbers = self._history.row_numbers(account)
        return next(iter(numbers[-held_back:]), NEVER)


def _without_prefix(query: TradeQuery) -> TradeQuery:
    """Return a query of a pool's name as one of its fill type, which is what the prefix stands for."""
    name = query.market
    # A name without the prefix is one of the whole market: the pool's fills are among the others.
    if name is None or not name.startswith(POOL_PREFIX):
        return query
    fill_types = tuple(each for each in query.fill_types if each == POOL)
    market = name.removeprefix(POOL_PREFIX)
    return query._replace(market=market, fill_types=fill_types)
