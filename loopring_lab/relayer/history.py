"""Trade histories: rows on the wire, the rows that a filter selects, and the pages that a client sees now."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from loopring_lab.relayer.settings import Settings

POOL, BOOK = FILL_TYPES = ("amm", "dex")
POOL_PREFIX = "AMM-"
PRICE_SCALE = 10**8
MARKET, FEE, HASH, ROLE = 5, 6, 12, 13
SHORT_LAYOUT = (0, 1, 2, 3, 4, 5, 6, 9, 10, 11)
UNKNOWN_MEMBER = "0"
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
NEVER = 1 << 40
GOLDEN = 0x9E3779B1
ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


class RawJson(str):
    """A member written into the JSON as it is, without quotes: a number with its own digits, or null."""

    __slots__ = ()


Row = tuple[str, ...]
"""The members of a row; of a saved row that is no trade, only its JSON."""
Filter = tuple[int, str | None, str | None]


class RowKey(NamedTuple):
    """The fields of a row that a filter can select by; the market is without prefix."""

    account: int
    market: str
    fill_type: str
    order_hash: str | None


class TradeQuery(NamedTuple):
    """A validated request for trades."""

    account_id: int
    market: str | None = None
    order_hash: str | None = None
    fill_types: tuple[str, ...] = FILL_TYPES
    offset: int = 0
    limit: int = 50


class Source(Protocol):
    """What a relayer can serve: the synthetic `World`, a `Recording`, or anything else of this shape."""

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
    def history(self) -> History: ...

    def tokens(self) -> list[dict[str, Any]]: ...

    def markets(self) -> list[dict[str, Any]]: ...

    def pool_records(self) -> list[dict[str, Any]]: ...

    def pool_owners(self) -> dict[int, str]:
        """Return the accounts that are known to be pools, each with the address of its pool."""


class History:
    """Numbered rows, oldest first, indexed by account, market, fill type and order."""

    def __init__(self, keys: Iterable[RowKey], row: Callable[[int], Row], accounts: Iterable[int] = ()) -> None:
        self.row, self._keys = row, list(keys)
        self._numbers: defaultdict[int, dict[tuple[str, str], array[int]]] = defaultdict(dict)
        for number, (account, market, fill_type, _) in enumerate(self._keys):
            self._numbers[account].setdefault((market, fill_type), array("I")).append(number)
        self._selected: dict[Filter, array[int]] = {}
        self.accounts = sorted({*self._numbers, *accounts})
        self.market_names = {market for own in self._numbers.values() for market, _ in own if market}

    def row_numbers(self, account: int, market: str | None = None, fill_type: str | None = None) -> Sequence[int]:
        """Return the numbers of the rows that a filter selects; markets are without prefix."""
        wanted = (account, market, fill_type)
        if wanted not in self._selected:
            parts = [
                numbers
                for (in_market, of_type), numbers in self._numbers.get(account, {}).items()
                if market in (None, in_market) and fill_type in (None, of_type)
            ]
            if not parts:
                return ()
            whole = parts[0] if len(parts) == 1 else array("I", sorted(chain.from_iterable(parts)))
            self._selected[wanted] = whole
        return self._selected[wanted]

    def order_rows(self, order_hash: str) -> list[tuple[int, RowKey]]:
        return self._orders.get(order_hash, [])

    @cached_property
    def _orders(self) -> dict[str, list[tuple[int, RowKey]]]:
        orders: defaultdict[str, list[tuple[int, RowKey]]] = defaultdict(list)
        for number, key in enumerate(self._keys):
            if key.order_hash is not None:
                orders[key.order_hash].append((number, key))
        return orders


class Pager:
    """Serves pages of a history, which grows while it is read if the settings say so."""

    def __init__(self, history: History, settings: Settings) -> None:
        self._history, self._settings = history, settings
        self._visible_counts: dict[tuple[int, str], int] = {}
        self._kept_orders: dict[tuple[int, str | None, tuple[str, ...]], Sequence[int]] = {}

    def page(self, query: TradeQuery) -> tuple[int, str]:
        """Return the total count and the JSON of one page, then let the history grow."""
        numbers = self._numbers(query)
        text = to_json(self._rows(numbers, query.offset, query.limit), self._settings.numbers == "number")
        if self._settings.growth and query.account_id:
            self._grow(query.account_id, query.fill_types)
        return len(numbers), text

    def rows(self, account_id: int, fill_type: str | None = None) -> list[Row]:
        """Return the rows of an account as they are served now."""
        fill_types = FILL_TYPES if fill_type is None else (fill_type,)
        numbers = self._numbers(TradeQuery(account_id, fill_types=fill_types))
        return self._rows(numbers, 0, len(numbers))

    def _rows(self, numbers: Sequence[int], offset: int, limit: int) -> list[Row]:
        if self._settings.order == "newest":
            end = max(len(numbers) - offset, 0)
            page = numbers[max(end - limit, 0) : end][::-1]
        else:
            page = numbers[offset : offset + limit]
        length, prefix = self._settings.row_length, self._settings.prefix
        return [format_row(self._history.row(number), length, prefix) for number in page]

    def _numbers(self, query: TradeQuery) -> Sequence[int]:
        """Return the numbers of the rows that a query selects, oldest first unless they are shuffled."""
        market, fill_types = query.market, query.fill_types
        if market is not None and market.startswith(POOL_PREFIX):
            market = market.removeprefix(POOL_PREFIX)
            fill_types = tuple(each for each in fill_types if each == POOL)
        elif market is not None and self._settings.market_filter == "exact":
            fill_types = tuple(each for each in fill_types if each == BOOK)
        if query.order_hash is not None:
            return self._shuffled(list(self._order_rows(query, market, fill_types)))
        visible = self._visible(query.account_id, market, fill_types)
        if self._settings.order != "shuffled":
            return visible
        # Shuffling sorts every row, so the result is kept until the history has grown.
        key = (query.account_id, market, fill_types)
        if len(self._kept_orders.get(key, ())) != len(visible):
            self._kept_orders[key] = self._shuffled(visible)
        return self._kept_orders.get(key, ())

    def _shuffled(self, numbers: Sequence[int]) -> Sequence[int]:
        if self._settings.order != "shuffled":
            return numbers
        # An odd multiplier permutes the 32-bit numbers, so no two rows tie.
        return array("I", sorted(numbers, key=lambda number: number * GOLDEN & 0xFFFFFFFF))

    def _order_rows(self, query: TradeQuery, market: str | None, fill_types: tuple[str, ...]) -> Iterator[int]:
        for number, key in self._history.order_rows(query.order_hash or ""):
            matches = query.account_id in (0, key.account) and market in (None, key.market)
            if matches and key.fill_type in fill_types and number < self._horizon(key.account, key.fill_type):
                yield number

    def _visible(self, account: int, market: str | None, fill_types: tuple[str, ...]) -> Sequence[int]:
        if not self._settings.growth and len(fill_types) == len(FILL_TYPES):
            return self._history.row_numbers(account, market)
        parts = []
        for fill_type in fill_types:
            numbers = self._history.row_numbers(account, market, fill_type)
            horizon = self._horizon(account, fill_type)
            parts.append(numbers if horizon == NEVER else numbers[: bisect_left(numbers, horizon)])
        return parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))

    def _horizon(self, account: int, fill_type: str) -> int:
        """Return the number of the first row of this account and fill type that is still held back."""
        if not self._settings.growth:
            return NEVER
        numbers = self._history.row_numbers(account, None, fill_type)
        at_start = max(0, len(numbers) - self._settings.growth_reserve)
        visible = self._visible_counts.get((account, fill_type), at_start)
        return numbers[visible] if visible < len(numbers) else NEVER

    def _grow(self, account: int, fill_types: tuple[str, ...]) -> None:
        for _ in range(self._settings.growth):
            horizon, fill_type = min((self._horizon(account, each), each) for each in fill_types)
            if horizon == NEVER:
                return
            numbers = self._history.row_numbers(account, None, fill_type)
            self._visible_counts[account, fill_type] = bisect_left(numbers, horizon) + 1


def price_text(scaled: int) -> str:
    """Format a price, given in units of 10**-8, like Java's ``Double.toString``."""
    text = repr(scaled / PRICE_SCALE)
    if PRICE_SCALE // 1000 <= scaled < 10**7 * PRICE_SCALE or not scaled:
        return text
    value = Decimal(text)
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    return f"{digits[0]}.{digits[1:] or '0'}E{value.adjusted()}"


def format_row(row: Row, length: int | None, prefix: bool) -> Row:
    """Bring a row to the layout of the settings."""
    if len(row) == 1:
        return row
    if not prefix and row[MARKET].startswith(POOL_PREFIX):
        row = (*row[:MARKET], row[MARKET].removeprefix(POOL_PREFIX), *row[MARKET + 1 :])
    if length is None:
        return row
    if length == len(SHORT_LAYOUT) and len(row) > HASH:
        return tuple(row[position] for position in SHORT_LAYOUT)
    if length > ROLE and len(row) == ROLE:
        row = (*row, "maker" if row[FEE] == "0" else "taker")
    if length > ROLE + 1 and len(row) == ROLE + 1:
        row = (*row, UNKNOWN_MEMBER)
    return row[:length]


def to_json(rows: Sequence[Row], numbers: bool) -> str:
    """Encode rows as JSON; `numbers` writes numeric members without quotes."""
    if numbers or RawJson in set(map(type, chain.from_iterable(rows))):
        lines = (row[0] if len(row) == 1 else f"[{','.join(_cell(cell, numbers) for cell in row)}]" for row in rows)
        return f"[{','.join(lines)}]"
    return ENCODER.encode(rows)


def _cell(cell: str, numbers: bool) -> str:
    if isinstance(cell, RawJson) or (numbers and NUMBER.fullmatch(cell)):
        return cell
    return json.dumps(cell)
