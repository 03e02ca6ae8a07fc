"""Tokens and markets: wire records to DataFrames, and the look-up of them that trade rows need."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts import LIMIT, to_units
from loopring_lab.amounts.scaling import parse_decimal
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.tables.wire import parse, short

TEXT = pd.StringDtype("pyarrow", na_value=np.nan)
INTEGER = pd.ArrowDtype(pa.int64())

Answer = bytes | str | list[Any] | Mapping[str, Any]
Records = list[tuple[str, dict[str, Any]]]

PREFIXES = ("AMM-", "LP-", "COMBINE-")

_GROUPS = ("orderAmounts", "luckyTokenAmounts", "gasAmounts")
_TOKEN_AMOUNTS = [f"{group}.{bound}" for group in _GROUPS[:2] for bound in ("minimum", "maximum", "dust")]
_TOKEN_AMOUNTS.append("fastWithdrawLimit")
_TOKEN_COLUMNS = {
    "tokenId": "int",
    "type": "text",
    "name": "text",
    "address": "text",
    "decimals": "int",
    "precision": "int",
    "precisionForOrder": "int",
    **dict.fromkeys(_TOKEN_AMOUNTS, "amount"),
    "gasAmounts.distribution": "int",
    "gasAmounts.deposit": "int",
    "enabled": "bool",
}
_MARKET_COLUMNS = {
    "baseTokenId": "int",
    "quoteTokenId": "int",
    "precisionForPrice": "int",
    "orderbookAggLevels": "int",
    "enabled": "bool",
    "status": "int",
    "createdAt": "int",
}
_HINT = "Check that base_url or the saved file is this endpoint of a relayer."


def tokens(answer: Answer) -> pd.DataFrame:
    """Read an answer of ``GET /exchange/tokens``.

    Parameters
    ----------
    answer : bytes, str, list or mapping
        JSON text or the parsed answer.

    Returns
    -------
    pandas.DataFrame, shape (tokens, 19)
        Index ``symbol``, where a symbol repeats ``symbol#tokenId``; columns are the wire's names in snake
        case. Amounts (``order_amounts_*``, ``lucky_token_amounts_*``, ``fast_withdraw_limit``) are in units
        of the token, `amounts.LIMIT`; ``gas_amounts_*`` are gas. What a record lacks is null. ``extra`` is
        the JSON text of fields the contract does not know. Source: the relayer, unchanged but for scale.

    Raises
    ------
    UnexpectedAnswer
        A record is not what the contract says, or a token id repeats.
    AmountError
        A limit does not fit.

    Examples
    --------
    >>> answer = '[{"tokenId": 0, "symbol": "ETH", "decimals": 18, "orderAmounts": {"dust": "200000000"}}]'
    >>> print(tokens(answer).loc["ETH", "order_amounts_dust"])
    2.00000000E-10
    """
    records = _records(answer, "tokens")
    names = [_text(record, "symbol", where) for where, record in records]
    data = _columns(records, _TOKEN_COLUMNS)
    _require(data, ("token_id", "decimals"), records)
    if not data["token_id"].is_unique:
        repeated = data["token_id"][data["token_id"].duplicated()].iloc[0]
        raise UnexpectedAnswer("tokenId", expected="each id once", got=f"{repeated} twice", hint=_HINT)
    for name in _TOKEN_AMOUNTS:
        column = _snake(name)
        decimals = data["decimals"].to_list()
        data[column] = to_units(data[column], decimals, token=_field_label(names, name), dtype=LIMIT)
    labels = _unique(names, [str(token_id) for token_id in data["token_id"]])
    return pd.DataFrame(data).set_axis(pd.Index(labels, dtype=TEXT, name="symbol"))


def markets(answer: Answer, tokens: pd.DataFrame | None = None) -> pd.DataFrame:
    """Read an answer of ``GET /mix/markets``.

    Parameters
    ----------
    answer : bytes, str, list or mapping
        JSON text or the parsed answer.
    tokens : pandas.DataFrame, optional
        From `tokens`: names ``base`` and ``quote`` by token id. Without it they come from the market's name
        where that has exactly one hyphen, and are null otherwise.

    Returns
    -------
    pandas.DataFrame, shape (markets, 12)
        Index ``market``; ``base``, ``quote`` (as in the tokens index), the wire's names in snake case,
        ``amm_open`` and ``orderbook_open`` (bits 0 and 1 of ``status``; trading also needs ``enabled``),
        ``created_at`` (UTC; NaT where the relayer says 0 or nothing). What a record lacks is null. Source:
        the relayer.

    Raises
    ------
    UnexpectedAnswer
        A record is not what the contract says.

    Examples
    --------
    >>> answer = '{"markets": [{"market": "LRC-ETH", "baseTokenId": 1, "quoteTokenId": 0, "status": 3}]}'
    >>> markets(answer)[["base", "quote", "amm_open", "orderbook_open"]].loc["LRC-ETH"].map(str).tolist()
    ['LRC', 'ETH', 'True', 'True']
    """
    records = _records(answer, "markets")
    names = [_text(record, "market", where) for where, record in records]
    data = _columns(records, _MARKET_COLUMNS)
    _require(data, ("base_token_id", "quote_token_id"), records)
    status, moment = data["status"], data.pop("created_at")
    data |= {
        "amm_open": status.map(lambda mask: mask & 1 > 0, na_action="ignore").astype("boolean"),
        "orderbook_open": status.map(lambda mask: mask & 2 > 0, na_action="ignore").astype("boolean"),
        "created_at": to_utc(moment.replace(0, pd.NA)),
    }
    data["extra"] = data.pop("extra")
    ids = list(zip(data["base_token_id"], data["quote_token_id"], strict=True))
    names_once = _unique(names, [f"{base}-{quote}" for base, quote in ids])
    frame = pd.DataFrame(data).set_axis(pd.Index(names_once, dtype=TEXT, name="market"))
    for place, side in enumerate(("base", "quote")):
        labels = _pair_symbols(names, [pair[place] for pair in ids], place, tokens)
        frame.insert(place, side, pd.Series(labels, frame.index, TEXT))
    return frame


def to_utc(milliseconds: pd.Series) -> pd.Series:
    """Read milliseconds since 1970 as UTC times, null as NaT."""
    empty = milliseconds.isna().to_numpy()
    times = milliseconds.fillna(0).to_numpy(np.int64).astype("datetime64[ms]")
    times[empty] = np.datetime64("NaT", "ms")
    return pd.Series(pd.DatetimeIndex(times).tz_localize("UTC"), index=milliseconds.index)


def _records(answer: Answer, key: str) -> Records:
    found = parse(answer, key)
    if isinstance(found, Mapping):
        found = found.get(key, found)
    if not isinstance(found, list):
        raise UnexpectedAnswer(key, expected="a list of records", got=short(found), hint=_HINT)
    for place, record in enumerate(found):
        if not isinstance(record, Mapping):
            raise UnexpectedAnswer(f"{key}[{place}]", expected="a record", got=short(record), hint=_HINT)
    return [(f"{key}[{place}]", dict(record)) for place, record in enumerate(found)]


def _columns(records: Records, wanted: Mapping[str, str]) -> dict[str, pd.Series]:
    """Take the wanted fields out of the records; the others become ``extra``."""
    data = {}
    for path, type_name in wanted.items():
        read, dtype = _TYPES[type_name]
        values = [read(_pop(record, path, where), f"{where}.{path}") for where, record in records]
        data[_snake(path)] = pd.Series(values, dtype=dtype)
    rest = [_rest(record) for _, record in records]
    data["extra"] = pd.Series(
        [json.dumps(left, sort_keys=True) if left else None for left in rest], dtype=TEXT
    )
    return data


def _pop(record: dict[str, Any], path: str, where: str) -> Any:
    group, _, name = path.rpartition(".")
    if not group:
        return record.pop(name, None)
    inner = record.get(group)
    if inner is None:
        return None
    if not isinstance(inner, Mapping):
        raise UnexpectedAnswer(f"{where}.{group}", expected="an object", got=short(inner), hint=_HINT)
    record[group] = dict(inner)
    return record[group].pop(name, None)


def _rest(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _GROUPS or value not in ({}, None)}


def _snake(path: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in path.replace(".", "_"))


def _text(record: dict[str, Any], name: str, where: str) -> str:
    text = record.pop(name, None)
    if not isinstance(text, str) or not text:
        raise UnexpectedAnswer(f"{where}.{name}", expected="a name", got=short(text), hint=_HINT)
    return text


def _field_label(names: list[str], field: str) -> Callable[[int], str]:
    return lambda row: f"{names[row]}.{field}"


def _require(data: Mapping[str, pd.Series], names: Sequence[str], records: Records) -> None:
    for name in names:
        for row in np.flatnonzero(data[name].isna()):
            where = f"{records[row][0]}.{name}"
            raise UnexpectedAnswer(where, expected="a number", got="nothing", hint=_HINT)


def _unique(names: list[str], ids: list[str]) -> list[str]:
    count = Counter(names)
    return [name if count[name] == 1 else f"{name}#{key}" for name, key in zip(names, ids, strict=True)]


def _pair_symbols(
    names: list[str], ids: list[int], place: int, tokens: pd.DataFrame | None
) -> list[str | None]:
    if tokens is None:
        return [name.split("-")[place] if name.count("-") == 1 else None for name in names]
    label = dict(zip(tokens["token_id"], tokens.index, strict=True))
    return [label.get(token_id) for token_id in ids]


def _integer(value: Any, where: str) -> int | None:
    number = None if value is None or isinstance(value, bool) else parse_decimal(str(value))
    if value is not None and (number is None or number != int(number)):
        raise UnexpectedAnswer(where, expected="a whole number", got=short(value), hint=_HINT)
    return None if number is None else int(number)


def _amount(value: Any, where: str) -> int | None:
    number = _integer(value, where)
    if number is not None and number < 0:
        raise UnexpectedAnswer(where, expected="an amount of 0 or more", got=short(value), hint=_HINT)
    return number


def _flag(value: Any, where: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise UnexpectedAnswer(where, expected="true or false", got=short(value), hint=_HINT)
    return value


def _optional_text(value: Any, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UnexpectedAnswer(where, expected="text", got=short(value), hint=_HINT)
    return value


_TYPES: dict[str, tuple[Callable[[Any, str], Any], Any]] = {
    "int": (_integer, INTEGER),
    "text": (_optional_text, TEXT),
    "bool": (_flag, "boolean"),
    "amount": (_amount, object),
}


class Pair(NamedTuple):
    """What a row's market means: codes into the listing, -1 where unknown."""

    market: int
    base: int
    quote: int
    pool: bool
    reason: str | None


class MarketLookup:
    """Looks up tokens and markets of listings by name or id; unknown markets get codes of their own."""

    def __init__(self, tokens: pd.DataFrame, markets: pd.DataFrame) -> None:
        _check("tokens", tokens, {"token_id", "decimals"})
        _check("markets", markets, {"base_token_id", "quote_token_id"})
        self.tokens: list[str] = tokens.index.tolist()
        self.token_ids = _with_sentinel(tokens["token_id"])
        self.decimals = _with_sentinel(tokens["decimals"])
        self._code = {int(token_id): code for code, token_id in enumerate(self.token_ids[:-1])}
        self.markets: list[str] = markets.index.tolist()
        self._ids = list(zip(markets["base_token_id"], markets["quote_token_id"], strict=True))
        self.known = len(self.markets)
        self._exact = {name: code for code, name in enumerate(self.markets)}
        self._folded: dict[str, list[int]] = defaultdict(list)
        for name, code in self._exact.items():
            self._folded[name.casefold()].append(code)
        self._lock = threading.Lock()

    def code(self, token_id: int | None) -> int:
        """Return the code of a token, -1 where it is unknown."""
        return -1 if token_id is None else self._code.get(token_id, -1)

    def pair(self, raw: str | None) -> Pair:
        """Look a market up: as written, without a pool's prefix, or in another case."""
        if raw is None:
            return Pair(-1, -1, -1, False, None)
        pool = raw[:4].upper() == "AMM-"
        found = self._find(raw)
        if not isinstance(found, int):
            with self._lock:
                code = self._exact.setdefault(raw, len(self._exact))
                if code == len(self.markets):
                    self.markets.append(raw)
            return Pair(code, -1, -1, pool, found)
        base, quote = map(self.code, self._ids[found])
        missing = [i for i, code in zip(self._ids[found], (base, quote), strict=True) if code < 0]
        reason = f"tokenId {missing[0]} of market {raw!r} is not in the tokens table" if missing else None
        return Pair(found, base, quote, pool, reason)

    def _find(self, raw: str) -> int | str:
        names = [raw, *(raw[len(prefix) :] for prefix in PREFIXES if raw.upper().startswith(prefix))]
        for name in names:
            code = self._exact.get(name, self.known)
            if code < self.known:
                return code
        for name in names:
            codes = self._folded.get(name.casefold(), [])
            if len(codes) == 1:
                return codes[0]
            if codes:
                return f"market {raw!r} could be any of {', '.join(self.markets[code] for code in codes)}"
        return f"market {raw!r} is not in the markets table"


def _check(name: str, frame: object, needed: set[str]) -> None:
    if not isinstance(frame, pd.DataFrame) or not needed <= set(frame.columns):
        raise LabError(
            f"{name}: expected the frame that tables.{name} makes, got {type(frame).__name__}. "
            f"Read the relayer's answer with tables.{name}(answer) first."
        )


def _with_sentinel(numbers: pd.Series) -> np.ndarray:
    """Append -1, which the code -1 then looks up."""
    return np.append(numbers.fillna(-1).to_numpy(np.int64), -1)
