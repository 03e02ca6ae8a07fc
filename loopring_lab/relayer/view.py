"""The part of a history that a client can see now, in the order and layout the settings ask for."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from loopring_lab.relayer.history import FILL_TYPES, History
from loopring_lab.relayer.settings import Settings
from loopring_lab.relayer.wire import POOL_PREFIX, Row, laid_out, render

__all__ = ["TradeQuery", "View"]

NEVER = 1 << 40
GOLDEN = 0x9E3779B1
POOL, BOOK = FILL_TYPES

Filter = tuple[int, str | None, tuple[str, ...]]


class TradeQuery(NamedTuple):
    """A checked request for trades.

    Parameters
    ----------
    account_id : int or None
        None only together with `order_hash`: both sides of the order's fills.
    market : str or None
        As asked, with or without the prefix of pool fills.
    order_hash : str or None
        An order.
    fill_types : tuple of str
        Which of ``amm`` and ``dex``.
    offset, limit : int
        Which rows of the answer.
    """

    account_id: int | None
    market: str | None = None
    order_hash: str | None = None
    fill_types: tuple[str, ...] = FILL_TYPES
    offset: int = 0
    limit: int = 50


class View:
    """What is visible of a history.

    Parameters
    ----------
    history : History
        All rows.
    settings : Settings
        Order, layout and growth.
    """

    def __init__(self, history: History, settings: Settings) -> None:
        self._history, self._settings = history, settings
        self._shown: dict[tuple[int, str], int] = {}
        self._shuffled: dict[Filter, tuple[int, Sequence[int]]] = {}

    def page(self, query: TradeQuery) -> tuple[int, str]:
        """Answer a request, and let the history grow if the settings say so.

        Parameters
        ----------
        query : TradeQuery
            What is asked for.

        Returns
        -------
        tuple of (int, str)
            How many rows the whole filter has, and the asked-for rows as JSON text.
        """
        numbers = self._numbers(query)
        chosen = numbers[query.offset : query.offset + query.limit]
        text = render([self._row(number) for number in chosen], self._settings.numbers == "number")
        if self._settings.growth and query.account_id is not None:
            self._grow(query.account_id, query.fill_types)
        return len(numbers), text

    def rows(self, account_id: int, fill_type: str | None = None, everything: bool = False) -> list[Row]:
        """Rows of an account as they are served.

        Parameters
        ----------
        account_id : int
            Account id.
        fill_type : str or None
            ``amm``, ``dex``, or None for both.
        everything : bool
            Whether to include rows that have not appeared yet.

        Returns
        -------
        list of tuple of str
            In the order they are served.
        """
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

    def _arranged(self, key: Filter, numbers: Sequence[int]) -> Sequence[int]:
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
