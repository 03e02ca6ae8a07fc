"""Trade histories: rows on the wire, the rows that a filter selects, and the pages that a client sees now."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    def accounts(self) -> list[int]:
        """Accounts worth reading."""

    @property
    def history(self) -> History:
        """All rows."""

    def tokens(self) -> list[dict[str, Any]]:
        """Return the token records."""

    def markets(self) -> list[dict[str, Any]]:
        """Return the market records."""


Filter = tuple[int, str | None, str | None]


class History:
    """Numbered rows, oldest first, indexed by account, market, fill type and order."""

    def __init__(
        self, keys: Iterable[RowKey], row: Callable[[int], Row], accounts: Iterable[int] = ()
    ) -> None:
        self.row = row
        self._accounts = set(accounts)
        self._filters: dict[Filter, array[int]] = {}
        self._orders: dict[str, list[tuple[int, RowKey]]] = {}
        for number, key in enumerate(keys):
            self._add(number, key)
        self._accounts.update(account for account, _, _ in self._filters)
        self._add_wider_filters()

    def _add(self, number: int, key: RowKey) -> None:
        exact = key[:3]
        if exact in self._filters:
            self._filters[exact].append(number)
        else:
            self._filters[exact] = array("I", (number,))
        if key.order_hash is not None:
            self._orders.setdefault(key.order_hash, []).append((number, key))

    def _add_wider_filters(self) -> None:
        """Add the filters without market, without fill type, and without both."""
        wider: dict[Filter, array[int]] = {}
        for (account, market, fill_type), numbers in self._filters.items():
            for market_or_any, type_or_any in ((None, fill_type), (market, None), (None, None)):
                wider.setdefault((account, market_or_any, type_or_any), array("I")).extend(numbers)
        for key, numbers in wider.items():
            self._filters[key] = array("I", sorted(numbers))

    def has_account(self, account: int) -> bool:
        """Whether an account exists."""
        return account in self._accounts

    @property
    def accounts(self) -> list[int]:
        """Every account, in order of id."""
        return sorted(self._accounts)

    @property
    def market_names(self) -> set[str]:
        """Every market that has rows, without prefix."""
        return {market for _, market, _ in self._filters if market is not None}

    def row_numbers(
        self, account: int, market: str | None = None, fill_type: str | None = None
    ) -> Sequence[int]:
        """Return the numbers of the rows that a filter selects."""
        return self._filters.get((account, market, fill_type), ())

    def order_rows(self, order_hash: str) -> list[tuple[int, RowKey]]:
        """Return the numbers and keys of the rows of one order."""
        return self._orders.get(order_hash, [])


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

    def rows(self, account_id: int, fill_type: str | None = None, everything: bool = False) -> list[Row]:
        """Return the rows of an account as they are served, with or without those still held back."""
        fill_types = FILL_TYPES if fill_type is None else (fill_type,)
        if everything:
            histories = (self._history.row_numbers(account_id, None, each) for each in fill_types)
            numbers = self._shuffled(_merged(histories))
        else:
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
        market, fill_types = self._market(query)
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

    def _market(self, query: TradeQuery) -> tuple[str | None, tuple[str, ...]]:
        """Return the market without prefix, and the fill types that it selects."""
        if query.market is None:
            return None, query.fill_types
        if query.market.startswith(POOL_PREFIX):
            pools = tuple(fill_type for fill_type in query.fill_types if fill_type == POOL)
            return query.market.removeprefix(POOL_PREFIX), pools
        if self._settings.market_filter == "exact":
            return query.market, tuple(fill_type for fill_type in query.fill_types if fill_type == BOOK)
        return query.market, query.fill_types

    def _order_rows(
        self, query: TradeQuery, market: str | None, fill_types: tuple[str, ...]
    ) -> Iterator[int]:
        for number, key in self._history.order_rows(query.order_hash or ""):
            matches = query.account_id in (0, key.account) and market in (None, key.market)
            if matches and key.fill_type in fill_types and number < self._horizon(key.account, key.fill_type):
                yield number

    def _visible(self, account: int, market: str | None, fill_types: tuple[str, ...]) -> Sequence[int]:
        if not self._settings.growth:
            if len(fill_types) == len(FILL_TYPES):
                return self._history.row_numbers(account, market)
            return self._history.row_numbers(account, market, fill_types[0]) if fill_types else ()
        return _merged(self._visible_of_type(account, market, fill_type) for fill_type in fill_types)

    def _visible_of_type(self, account: int, market: str | None, fill_type: str) -> Sequence[int]:
        numbers = self._history.row_numbers(account, market, fill_type)
        return numbers[: bisect_left(numbers, self._horizon(account, fill_type))]

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


def _merged(parts: Iterable[Sequence[int]]) -> Sequence[int]:
    return sorted(chain.from_iterable(parts))


def price_text(scaled: int) -> str:
    """Format a price, given in units of 10**-8, like Java's ``Double.toString``."""
    text = repr(scaled / PRICE_SCALE)
    if PRICE_SCALE // 1000 <= scaled < 10**7 * PRICE_SCALE or not scaled:
        return text
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits, point = whole + fraction, len(whole) + int(exponent or 0)
    significant = digits.lstrip("0")
    point -= len(digits) - len(significant)
    significant = significant.rstrip("0")
    return f"{significant[0]}.{significant[1:] or '0'}E{point - 1}"


def format_row(row: Row, length: int | None, prefix: bool) -> Row:
    """Bring a row to the layout of the settings."""
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
        lines = (",".join(_cell(cell, numbers) for cell in row) for row in rows)
        return "[" + ",".join(f"[{line}]" for line in lines) + "]"
    return ENCODER.encode(rows)


def _cell(cell: str, numbers: bool) -> str:
    if isinstance(cell, RawJson) or (numbers and NUMBER.fullmatch(cell)):
        return cell
    return json.dumps(cell)
