"""Trade histories: the rows on the wire, which of them a filter picks, and what a client sees now."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

from loopring_lab.relayer.settings import Settings

POOL_PREFIX = "AMM-"
PRICE_SCALE = 10**8
MARKET, FEE, HASH, ROLE = 5, 6, 12, 13
SHORT_LAYOUT = (0, 1, 2, 3, 4, 5, 6, 9, 10, 11)
UNKNOWN_MEMBER = "0"
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Bare(str):
    """A member that stands without quotes in the JSON: a number in its own digits, or null."""

    __slots__ = ()


Row = tuple[str, ...]


def price_text(scaled: int) -> str:
    """A price in the form of Java's ``Double.toString``."""
    mantissa, _, exponent = repr(scaled / PRICE_SCALE).partition("e")
    whole, _, part = mantissa.partition(".")
    digits, point = whole + part, len(whole) + int(exponent or 0)
    if PRICE_SCALE // 1000 <= scaled < 10**7 * PRICE_SCALE or not scaled:
        return mantissa
    significant = digits.lstrip("0")
    point -= len(digits) - len(significant)
    significant = significant.rstrip("0")
    return f"{significant[0]}.{significant[1:] or '0'}E{point - 1}"


def laid_out(row: Row, length: int | None, prefix: bool) -> Row:
    """A row in the layout the settings ask for."""
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


def render(rows: Sequence[Row], numbers: bool) -> str:
    """Rows as JSON text."""
    if numbers or any(isinstance(cell, Bare) for row in rows for cell in row):
        lines = (",".join(_cell(cell, numbers) for cell in row) for row in rows)
        return "[" + ",".join(f"[{line}]" for line in lines) + "]"
    return json.dumps(rows, separators=(",", ":"))


def _cell(cell: str, numbers: bool) -> str:
    if isinstance(cell, Bare) or (numbers and NUMBER.fullmatch(cell)):
        return cell
    return json.dumps(cell)


FILL_TYPES = ("amm", "dex")
"""Every fill type a row can have."""


class RowKey(NamedTuple):
    """What a row is found by."""

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
    """Numbered rows, oldest first, with the numbers that each filter picks."""

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
        """Whether an account exists."""
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
        """Numbers of the rows that a filter picks."""
        return self._filters.get((account, market, fill_type), ())

    def order_rows(self, order_hash: str) -> list[tuple[int, RowKey]]:
        """Rows of one order."""
        return self._orders.get(order_hash, [])


NEVER = 1 << 40
GOLDEN = 0x9E3779B1
POOL, BOOK = FILL_TYPES

ViewFilter = tuple[int, str | None, tuple[str, ...]]


class TradeQuery(NamedTuple):
    """A checked request for trades."""

    account_id: int | None
    market: str | None = None
    order_hash: str | None = None
    fill_types: tuple[str, ...] = FILL_TYPES
    offset: int = 0
    limit: int = 50


class View:
    """What is visible of a history."""

    def __init__(self, history: History, settings: Settings) -> None:
        self._history, self._settings = history, settings
        self._shown: dict[tuple[int, str], int] = {}
        self._shuffled: dict[ViewFilter, tuple[int, Sequence[int]]] = {}

    def page(self, query: TradeQuery) -> tuple[int, str]:
        """Answer a request, and let the history grow if the settings say so."""
        numbers = self._numbers(query)
        chosen = numbers[query.offset : query.offset + query.limit]
        text = render([self._row(number) for number in chosen], self._settings.numbers == "number")
        if self._settings.growth and query.account_id is not None:
            self._grow(query.account_id, query.fill_types)
        return len(numbers), text

    def rows(self, account_id: int, fill_type: str | None = None, everything: bool = False) -> list[Row]:
        """Rows of an account as they are served."""
        types = FILL_TYPES if fill_type is None else (fill_type,)
        if everything:
            numbers = self._ordered(_merged(self._history.numbers(account_id, None, kind) for kind in types))
        else:
            numbers = self._numbers(TradeQuery(account_id, fill_types=types))
        return [self._row(number) for number in numbers]

    def _row(self, number: int) -> Row:
        return laid_out(self._history.row(number), self._settings.row_length, self._settings.prefix)

    def _numbers(self, query: TradeQuery) -> Sequence[int]:
        market, types = self._market(query)
        if query.order_hash is not None:
            return self._ordered(list(self._order_rows(query, market, types)))
        account = query.account_id or 0
        return self._arranged((account, market, types), self._visible(account, market, types))

    def _market(self, query: TradeQuery) -> tuple[str | None, tuple[str, ...]]:
        """The market without prefix, and the fill types it leaves."""
        if query.market is None:
            return None, query.fill_types
        if query.market.startswith(POOL_PREFIX):
            return query.market.removeprefix(POOL_PREFIX), _only(query.fill_types, POOL)
        if self._settings.market_filter == "exact":
            return query.market, _only(query.fill_types, BOOK)
        return query.market, query.fill_types

    def _order_rows(self, query: TradeQuery, market: str | None, types: tuple[str, ...]) -> Iterator[int]:
        for number, key in self._history.order_rows(query.order_hash or ""):
            fits = query.account_id in (None, key.account) and market in (None, key.market)
            if fits and key.fill_type in types and number < self._horizon(key.account, key.fill_type):
                yield number

    def _visible(self, account: int, market: str | None, types: tuple[str, ...]) -> Sequence[int]:
        if not self._settings.growth:
            if len(types) == len(FILL_TYPES):
                return self._history.numbers(account, market)
            return self._history.numbers(account, market, types[0]) if types else ()
        return _merged(self._appeared(account, market, kind) for kind in types)

    def _appeared(self, account: int, market: str | None, fill_type: str) -> Sequence[int]:
        numbers = self._history.numbers(account, market, fill_type)
        return numbers[: bisect_left(numbers, self._horizon(account, fill_type))]

    def _horizon(self, account: int, fill_type: str) -> int:
        """Number of the first row of this account and fill type that has not appeared yet."""
        if not self._settings.growth:
            return NEVER
        numbers = self._history.numbers(account, None, fill_type)
        shown = self._shown.get((account, fill_type), max(0, len(numbers) - self._settings.growth_reserve))
        return numbers[shown] if shown < len(numbers) else NEVER

    def _grow(self, account: int, types: tuple[str, ...]) -> None:
        for _ in range(self._settings.growth):
            horizon, kind = min((self._horizon(account, kind), kind) for kind in types)
            if horizon == NEVER:
                return
            self._shown[account, kind] = bisect_left(self._history.numbers(account, None, kind), horizon) + 1

    def _arranged(self, key: ViewFilter, numbers: Sequence[int]) -> Sequence[int]:
        """`_ordered`, keeping the one order that is costly to make."""
        if self._settings.order != "shuffled":
            return self._ordered(numbers)
        count, kept = self._shuffled.get(key, (-1, numbers))
        if count != len(numbers):
            kept = self._ordered(numbers)
            self._shuffled[key] = len(numbers), kept
        return kept

    def _ordered(self, numbers: Sequence[int]) -> Sequence[int]:
        if self._settings.order == "newest":
            return _Reversed(numbers)
        if self._settings.order == "shuffled":
            return array("I", sorted(numbers, key=_scatter))
        return numbers


class _Reversed(Sequence[int]):
    """A sequence backwards, without copying it."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, key: slice) -> Sequence[int]:  # type: ignore[override]
        start, stop, _ = key.indices(len(self))
        end = len(self) - start
        return self._numbers[max(end - max(stop - start, 0), 0) : end][::-1]

    def __iter__(self) -> Iterator[int]:
        return reversed(self._numbers)


def _merged(parts: Iterable[Sequence[int]]) -> Sequence[int]:
    return sorted(chain.from_iterable(parts))


def _only(fill_types: tuple[str, ...], kind: str) -> tuple[str, ...]:
    return (kind,) if kind in fill_types else ()


def _scatter(number: int) -> int:
    """Place in the arbitrary order; an odd multiplier permutes the 32-bit numbers, so no two rows tie."""
    return number * GOLDEN & 0xFFFFFFFF
