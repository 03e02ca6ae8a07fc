"""Tokens and markets: wire records to DataFrames, and the lookup that trade rows need."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts import LIMIT, to_units
from loopring_lab.bounded import MAX_INT64, parse_integer, printable, shown, to_json
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.tables.wire import parse, short

TEXT = pd.StringDtype(
    "pyarrow",
    na_value=np.nan,
)
INTEGER = pd.ArrowDtype(pa.int64())

Answer = bytes | str | list[Any] | Mapping[str, Any]
Records = list[tuple[str, dict[str, Any]]]

# The last millisecond of the year 9999, beyond which Python and Arrow know no dates.
MAX_MOMENT = 253_402_300_799_999
# The year 2015 in milliseconds, before any layer-2 exchange. A smaller time is in seconds.
EARLIEST = 1_420_070_400_000
# Decimals to show; those seen reach 18, and some are negative.
MAX_PLACES = 100
# Prefixes of a market's name. By the contract, fills of pools have AMM-; public clients name the two others.
POOL_PREFIX = "AMM-"
PREFIXES = (POOL_PREFIX, "LP-", "COMBINE-")
# The bits of a market's status, by the contract.
AMM_BIT = 1
ORDERBOOK_BIT = 2

_GROUPS = ("orderAmounts", "luckyTokenAmounts", "gasAmounts")
_TOKEN_AMOUNTS = [
    f"{group}.{bound}"
    for group in _GROUPS[:2]
    for bound in ("minimum", "maximum", "dust")
]
_TOKEN_AMOUNTS.append("fastWithdrawLimit")
_TOKEN_COLUMNS = {
    "tokenId": "int",
    "type": "text",
    "name": "text",
    "address": "text",
    "decimals": "int",
    "precision": "places",
    "precisionForOrder": "places",
    **dict.fromkeys(_TOKEN_AMOUNTS, "amount"),
    "gasAmounts.distribution": "int",
    "gasAmounts.deposit": "int",
    "enabled": "bool",
}
_MARKET_COLUMNS = {
    "baseTokenId": "int",
    "quoteTokenId": "int",
    "precisionForPrice": "places",
    "orderbookAggLevels": "int",
    "enabled": "bool",
    "status": "int",
    "createdAt": "moment",
}


def tokens(answer: Answer) -> pd.DataFrame:
    """Read the answer of ``GET /exchange/tokens``.

    Parameters
    ----------
    answer : bytes, str, list or mapping
        JSON text or the parsed answer.

    Returns
    -------
    pandas.DataFrame, shape (tokens, 18)
        Index ``symbol`` (``symbol#tokenId`` where a symbol occurs twice); columns are the wire's names in
        snake case. ``order_amounts_*``, ``lucky_token_amounts_*`` and ``fast_withdraw_limit`` are in units of
        the token, `amounts.LIMIT`; ``gas_amounts_*`` are gas. Missing fields are null. ``extra`` is the JSON
        text of undocumented fields. Source: the relayer; only the scale of amounts is changed.

    Raises
    ------
    UnexpectedAnswer
        A record is not as documented, or a token id occurs twice.
    AmountError
        An amount does not fit.

    Examples
    --------
    >>> answer = '[{"tokenId": 0, "symbol": "ETH", "decimals": 18, "orderAmounts": {"dust": "200000000"}}]'
    >>> print(lab.tables.tokens(answer).loc["ETH", "order_amounts_dust"])
    2.00000000E-10
    """
    records = _records(answer, "tokens")
    # Members are popped, so that what is left at the end is ``extra``.
    symbols = [_pop_name(record, "symbol", where) for where, record in records]
    data = _columns(records, _TOKEN_COLUMNS)
    _require(data, ("token_id", "decimals"), records)
    ids = data["token_id"]
    # Trades refer to tokens by id, so two of one id could not be told apart.
    if not ids.is_unique:
        _refuse("tokenId", "each id once", got=f"{ids[ids.duplicated()].iloc[0]} twice")
    decimals = data["decimals"].to_list()
    for name in _TOKEN_AMOUNTS:
        column = _snake(name)
        labels = [f"{printable(symbol, 40)}.{name}" for symbol in symbols]
        data[column] = to_units(
            data[column],
            decimals,
            token=labels.__getitem__,
            dtype=LIMIT,
        )
    index = pd.Index(
        _unique(symbols, map(str, ids)),
        dtype=TEXT,
        name="symbol",
    )
    return pd.DataFrame(data).set_axis(index)


def markets(answer: Answer, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
    """Read the answer of ``GET /mix/markets``.

    Parameters
    ----------
    answer : bytes, str, list or mapping
        JSON text or the parsed answer.
    tokens : pandas.DataFrame, optional
        From `tokens`; gives ``base`` and ``quote`` by token id. Without it they come from the market's name
        if that has exactly one hyphen, and are null otherwise.

    Returns
    -------
    pandas.DataFrame, shape (markets, 12)
        Index ``market``; ``base`` and ``quote`` (as in the index of tokens), the wire's names in snake case,
        ``amm_open`` and ``orderbook_open`` (bits 0 and 1 of ``status``; trading also needs ``enabled``), and
        ``created_at`` (UTC; NaT if 0 or missing). Other missing fields are null. Source: the relayer.

    Raises
    ------
    UnexpectedAnswer
        A record is not as documented.

    Examples
    --------
    >>> answer = '{"markets": [{"market": "LRC-ETH", "baseTokenId": 1, "quoteTokenId": 0, "status": 3}]}'
    >>> lab.tables.markets(answer)[["base", "quote", "amm_open", "orderbook_open"]].loc["LRC-ETH"].map(str).tolist()
    ['LRC', 'ETH', 'True', 'True']
    """
    records = _records(answer, "markets")
    names = [_pop_name(record, "market", where) for where, record in records]
    data = _columns(records, _MARKET_COLUMNS)
    _require(data, ("base_token_id", "quote_token_id"), records)
    status = data["status"]
    created = data.pop("created_at")
    extra = data.pop("extra")
    data |= {
        "amm_open": (status & AMM_BIT > 0).astype("boolean"),
        "orderbook_open": (status & ORDERBOOK_BIT > 0).astype("boolean"),
        # The relayer writes 0 where it does not know the time.
        "created_at": to_utc(created.replace(0, pd.NA)),
        "extra": extra,
    }
    pairs = zip(data["base_token_id"], data["quote_token_id"], strict=True)
    labels = _unique(names, (f"{base}-{quote}" for base, quote in pairs))
    frame = pd.DataFrame(data).set_axis(
        pd.Index(
            labels,
            dtype=TEXT,
            name="market",
        )
    )
    for place, side in enumerate(("base", "quote")):
        if tokens is None:
            # Symbols may hold hyphens, so that a name of several can be split in several ways.
            parts = [name.split("-") for name in names]
            symbols = [part[place] if len(part) == 2 else None for part in parts]
        else:
            symbol_of = dict(zip(tokens["token_id"], tokens.index, strict=True))
            symbols = list(map(symbol_of.get, data[f"{side}_token_id"]))
        frame.insert(place, side, pd.Series(symbols, frame.index, TEXT))
    return frame


class Pair(NamedTuple):
    """What the market of a row refers to: codes into the listing, -1 where unknown."""

    market: int = -1
    base: int = -1
    quote: int = -1
    is_pool: bool = False
    reason: str | None = None


class MarketLookup:
    """Looks up tokens by id and markets by name; unknown markets get codes of their own."""

    def __init__(self, tokens: pd.DataFrame, markets: pd.DataFrame) -> None:
        check_frame("tokens", tokens, {"token_id", "decimals"})
        check_frame("markets", markets, {"base_token_id", "quote_token_id"})
        self.tokens: list[str] = tokens.index.tolist()
        self._symbols = {symbol.casefold() for symbol in self.tokens}
        self.token_ids = _with_sentinel(tokens["token_id"])
        self.decimals = _with_sentinel(tokens["decimals"])
        listed = enumerate(self.token_ids[:-1])
        self._code = {int(token_id): code for code, token_id in listed}
        self.markets: list[str] = markets.index.tolist()
        base = markets["base_token_id"].tolist()
        quote = markets["quote_token_id"].tolist()
        self._ids: list[tuple[int, int]] = list(zip(base, quote, strict=True))
        # Markets from here on are not listed: they were met in rows.
        self.known = len(self.markets)
        self._exact = {name: code for code, name in enumerate(self.markets)}
        self._folded: dict[str, list[int]] = defaultdict(list)
        for name, code in self._exact.items():
            self._folded[name.casefold()].append(code)

    def code(self, token_id: int | None) -> int:
        """Return the code of a token, -1 where it is unknown."""
        return -1 if token_id is None else self._code.get(token_id, -1)

    def ids_of(self, market: int) -> tuple[int, int]:
        """Return the token ids of base and quote of a listed market."""
        return self._ids[market]

    def pair(self, raw: str | None) -> Pair:
        """Look up a market: as written, without a pool's prefix, or in another case."""
        if raw is None:
            return Pair()
        # A prefix is of the fill, not of the market, which is listed without it.
        is_pool = raw.upper().startswith(PREFIXES[0])
        found = self._find(raw)
        # An unlisted market is kept under its own name, so that its trades stay together.
        if not isinstance(found, int):
            code = self._exact.setdefault(raw, len(self._exact))
            if code == len(self.markets):
                self.markets.append(raw)
            return Pair(code, is_pool=is_pool, reason=found)
        ids = self.ids_of(found)
        base, quote = map(self.code, ids)
        reason = None
        if base < 0 or quote < 0:
            unknown = ids[0] if base < 0 else ids[1]
            reason = f"tokenId {unknown} of market {shown(raw, 60)} is not in the tokens table"
        elif self._is_of_others(
            self.markets[found], self.tokens[base], self.tokens[quote]
        ):
            # The two listings are not of one exchange, and nobody knows which of them is wrong.
            base = quote = -1
            reason = (
                f"market {shown(raw, 60)} is not of the tokens that it is called by"
            )
        return Pair(found, base, quote, is_pool, reason)

    def _is_of_others(self, market: str, *symbols: str) -> bool:
        """Tell whether a market is called by listed tokens, and is of other ones."""
        names = market.casefold().split("-")
        # Symbols may hold hyphens, and markets may be called by what is no symbol, such as DEFIL for DEFI+L.
        return len(names) == len(symbols) and any(
            name in self._symbols and name != symbol.casefold()
            for name, symbol in zip(names, symbols, strict=True)
        )

    def _find(self, raw: str) -> int | str:
        """Return the code of a market, or the reason why there is none."""
        prefixes = [prefix for prefix in PREFIXES if raw.upper().startswith(prefix)]
        names = [raw, *(raw[len(prefix) :] for prefix in prefixes)]
        for name in names:
            code = self._exact.get(name, self.known)
            if code < self.known:
                return code
        # Symbols differ in case between rows and listings, and some listed ones differ in nothing else.
        for name in names:
            codes = self._folded.get(name.casefold(), [])
            if len(codes) == 1:
                return codes[0]
            if codes:
                several = [printable(self.markets[code], 40) for code in codes[:9]]
                known = ", ".join(several)
                return f"market {shown(raw, 60)} could be any of {known}"
        return f"market {shown(raw, 60)} is not in the markets table"


def to_utc(milliseconds: pd.Series) -> pd.Series:
    """Convert milliseconds since 1970 to UTC times, null to NaT."""
    empty = milliseconds.isna().to_numpy()
    times = milliseconds.fillna(0).to_numpy(np.int64).astype("datetime64[ms]")
    # A missing time was read as 0, which is in 1970.
    times[empty] = np.datetime64("NaT", "ms")
    return pd.Series(
        pd.DatetimeIndex(times).tz_localize("UTC"),
        index=milliseconds.index,
    )


def check_frame(
    name: str,
    frame: object,
    needed: set[str],
) -> None:
    """Refuse anything but the frame that `tokens` or `markets` makes."""
    if (
        not isinstance(frame, pd.DataFrame)
        or not needed <= set(frame.columns)
        or not all(isinstance(label, str) for label in frame.index)
    ):
        raise LabError(
            f"{name}: expected the frame that tables.{name} makes, got {type(frame).__name__}. "
            f"Read the relayer's answer with tables.{name}(answer) first, and keep its index."
        )


def _records(answer: Answer, key: str) -> Records:
    """Return the records of an answer, each with its place in it."""
    found = parse(answer, key)
    # Relayers send the list itself, or an object around it.
    if isinstance(found, Mapping):
        found = found.get(key, found)
    if not isinstance(found, list):
        _refuse(key, "a list of records", found)
    for place, record in enumerate(found):
        if not isinstance(record, Mapping):
            _refuse(f"{key}[{place}]", "a record", record)
    return [(f"{key}[{place}]", dict(record)) for place, record in enumerate(found)]


def _columns(records: Records, wanted: Mapping[str, str]) -> dict[str, pd.Series]:
    """Take the wanted fields out of the records; the others become ``extra``."""
    data = {}
    for path, type_name in wanted.items():
        read, dtype = _TYPES[type_name]
        values = [
            read(_pop(record, path, where), f"{where}.{path}")
            for where, record in records
        ]
        data[_snake(path)] = pd.Series(
            values,
            dtype=dtype,
        )
    extra = []
    for _, record in records:
        # A group whose members were all taken has nothing more to say.
        for group in _GROUPS:
            if record.get(group) in ({}, None):
                record.pop(group, None)
        # Fields are sorted, so that the order in which a server writes them makes no difference.
        rest = dict(sorted(record.items()))
        extra.append(to_json(rest) if rest else None)
    data["extra"] = pd.Series(
        extra,
        dtype=TEXT,
    )
    return data


def _pop(
    record: dict[str, Any],
    path: str,
    where: str,
) -> Any:
    group, _, name = path.rpartition(".")
    if not group:
        return record.pop(name, None)
    inner = record.get(group)
    if inner is None:
        return None
    if not isinstance(inner, Mapping):
        _refuse(f"{where}.{group}", "an object", inner)
    # A copy: a parsed answer belongs to the caller.
    record[group] = dict(inner)
    return record[group].pop(name, None)


def _pop_name(
    record: dict[str, Any],
    field: str,
    where: str,
) -> str:
    name = record.pop(field, None)
    if not isinstance(name, str) or not name:
        _refuse(f"{where}.{field}", "a name", name)
    return name


def _snake(path: str) -> str:
    words = re.sub("([A-Z])", r"_\1", path.replace(".", "_"))
    return words.lower()


def _require(
    data: Mapping[str, pd.Series],
    names: Sequence[str],
    records: Records,
) -> None:
    for name in names:
        for row in np.flatnonzero(data[name].isna()):
            _refuse(f"{records[row][0]}.{name}", "a number", got="nothing")


def _unique(names: list[str], suffixes: Iterable[str]) -> list[str]:
    """Add a suffix to names that occur more than once."""
    count = Counter(names)
    pairs = zip(names, suffixes, strict=True)
    return [name if count[name] == 1 else f"{name}#{suffix}" for name, suffix in pairs]


def _integer(
    expected: str,
    least: int,
    most: int,
) -> Callable[[Any, str], int | None]:
    """Return a reader of whole numbers in a range."""

    def read(value: Any, where: str) -> int | None:
        number = parse_integer(str(value), most)
        if value is not None and (number is None or number < least):
            _refuse(where, expected, value)
        return number

    return read


def _instance(expected: str, kind: type) -> Callable[[Any, str], Any]:
    """Return a reader of values of a type."""

    def read(value: Any, where: str) -> Any:
        if value is not None and not isinstance(value, kind):
            _refuse(where, expected, value)
        return value

    return read


_TYPES: dict[str, tuple[Callable[[Any, str], Any], Any]] = {
    "int": (_integer("a whole number of 64 bits", -MAX_INT64, MAX_INT64), INTEGER),
    "places": (
        _integer(f"a whole number up to {MAX_PLACES}", -MAX_PLACES, MAX_PLACES),
        INTEGER,
    ),
    "moment": (
        _integer("milliseconds from 1970 to the year 9999", 0, MAX_MOMENT),
        INTEGER,
    ),
    "text": (_instance("text", str), TEXT),
    "bool": (_instance("true or false", bool), "boolean"),
    "amount": (
        _integer("an amount of 0 or more, of at most 76 digits", 0, 10**76 - 1),
        object,
    ),
}


def _refuse(
    where: str,
    expected: str,
    value: Any = None,
    got: str = "",
) -> NoReturn:
    hint = "Check that base_url or the saved file is this endpoint of a relayer."
    raise UnexpectedAnswer(
        where,
        expected=expected,
        got=got or short(value),
        hint=hint,
    )


def _with_sentinel(numbers: pd.Series) -> np.ndarray:
    """Append -1, which is what the code -1 then finds."""
    known = numbers.fillna(-1)
    return np.append(known.to_numpy(np.int64), -1)
