"""A recording: saved relayer responses in a folder, served as they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopring_lab.bounded import parse_json, printable, read_file, shown, to_json, whole_or_text
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer.pages import History, RowKey
from loopring_lab.relayer.rows import MARKET, ORDER_HASH as HASH, POOL, POOL_PREFIX, RawJson, Row
from loopring_lab.relayer.mainnet import pool_record

FILES = "tokens.json, markets.json and trades/<accountId>-<amm or dex>.json"
HINT = f"Fix or replace the recording; it holds {FILES}."
FILE_NAME = re.compile(r"([0-9]{1,10})-(amm|dex)\.json")
MEMBERS = {"symbol": ("text", str), "market": ("text", str), "tokenId": ("a whole number", int)}
SHORTEST_ROW = 7
LP_PREFIX = "LP-"
SOURCE_FILE = "source.json"
LONGEST_NAME = 200


class Recording:
    """Responses saved in a folder, with the name in its ``source.json`` unless another is given.

    Optional files: ``source.json`` names the data, ``pools.json`` is the response of ``/amm/pools``.
    """

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise UnexpectedAnswer(
                f"recording {folder}",
                expected="a folder of saved responses",
                got="no such folder",
                hint=f"Give the folder that holds {FILES}.",
            )
        self._tokens = _records("tokens.json", _load(self._folder / "tokens.json"))
        saved = _load(self._folder / "markets.json")
        markets = saved.get("markets") if isinstance(saved, dict) else None
        self._markets = _records("markets.json, member markets", markets)
        self._pools = self._read_pools()
        self._history = self._read_history()
        stated, self.synthetic = _stated(self._folder)
        self.name = stated if name is None else checked_name("source", name)

    def __repr__(self) -> str:
        return f"Recording({self._folder.name!r})"

    @property
    def label(self) -> str:
        return f"recording {self._folder.resolve().name}"

    @property
    def accounts(self) -> list[int]:
        """Every account that has trades."""
        return list(self._history.accounts)

    @property
    def history(self) -> History:
        return self._history

    def tokens(self) -> list[dict[str, Any]]:
        return self._tokens

    def markets(self) -> list[dict[str, Any]]:
        return self._markets

    def pool_records(self) -> list[dict[str, Any]]:
        """Return the pools in ``pools.json``, or else those that tokens and markets tell of."""
        return self._pools

    def pool_owners(self) -> dict[int, str]:
        """Return nothing: no saved response says which account is a pool's."""
        return {}

    def _read_pools(self) -> list[dict[str, Any]]:
        if not (self._folder / "pools.json").exists():
            return listed_pools(self._tokens, self._markets)
        saved = _load(self._folder / "pools.json")
        pools = saved.get("pools") if isinstance(saved, dict) else None
        return _records("pools.json, member pools", pools)

    def _read_history(self) -> History:
        accounts: list[int] = []
        rows: list[tuple[int, RowKey, Row]] = []
        for path in sorted((self._folder / "trades").glob("*.json")):
            name = FILE_NAME.fullmatch(path.name)
            if name is None:
                raise _invalid("trades", "<accountId>-<amm or dex>.json", printable(path.name))
            accounts.append(int(name[1]))
            rows.extend((time, _row_key(row, int(name[1]), name[2]), row) for time, row in _rows(path))
        if not accounts:
            raise _invalid("trades", "at least one file of trades", "none")
        rows.sort(key=lambda item: item[0])
        ordered = [row for _, _, row in rows]
        return History((key for _, key, _ in rows), ordered.__getitem__, accounts)


def _invalid(where: str, expected: str, got: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(where, expected=expected, got=got, hint=HINT)


def _load(path: Path) -> Any:
    name = f"trades/{path.name}" if path.parent.name == "trades" else path.name
    return parse_json(read_file(path, name, hint=HINT), name, number=whole_or_text, hint=HINT)


def _stated(folder: Path) -> tuple[str, bool]:
    """Return the name of a recording, and whether it is of made-up data, which its folder may state."""
    if not (folder / SOURCE_FILE).exists():
        return os.fsencode(folder.resolve()).decode(errors="backslashreplace"), False
    saved = _load(folder / SOURCE_FILE)
    saved = saved if isinstance(saved, dict) else {"name": saved}
    synthetic = saved.get("synthetic", False)
    if not isinstance(synthetic, bool):
        raise _invalid(f"{SOURCE_FILE}, member synthetic", "true or false", shown(synthetic, 60))
    return checked_name(f"{SOURCE_FILE}, member name", saved.get("name")), synthetic


def checked_name(where: str, name: object) -> str:
    """Return the name of a source, which must be short enough to be sent with every response."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise _invalid(where, f"1 to {LONGEST_NAME} printable characters", shown(name, 60))
    return name


def _records(where: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(record, dict) for record in value):
        raise _invalid(where, "a list of records", shown(value, 60))
    for number, record in enumerate(value):
        for name, (expected, kind) in MEMBERS.items():
            if name in record and type(record[name]) is not kind:
                raise _invalid(f"{where}, record {number}, {name}", expected, shown(record[name], 60))
    return value


def listed_pools(tokens: list[dict[str, Any]], markets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pools that listings tell of: markets with one LP token, whose address is the pool's."""
    known: dict[str, list[dict[str, Any]]] = {}
    for token in tokens:
        if {"symbol", "address", "tokenId"} <= set(token):
            known.setdefault(token["symbol"], []).append(token)
    pools = []
    for market in markets:
        if {"market", "baseTokenId", "quoteTokenId"} <= set(market):
            found = known.get(f"{LP_PREFIX}{market['market']}", [])
            # Symbols repeat; of several tokens at most one is in use.
            found = [token for token in found if token.get("enabled")] if len(found) > 1 else found
            if len(found) == 1:
                pools.append(pool_record(market, found[0]["address"], found[0]["tokenId"]))
    return pools


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Give rows with their times, oldest first; rows of one time are recorded newest first.

    A row that does not say its time stands after the one before it.
    """
    response, name = _load(path), f"trades/{path.name}"
    rows = response.get("trades") if isinstance(response, dict) else None
    if not isinstance(rows, list):
        raise _invalid(name, "totalNum and a list trades", shown(response, 60))
    if response.get("totalNum") != len(rows):
        expected = f"the number of rows, {len(rows)}"
        raise _invalid(f"{name}, totalNum", expected, shown(response.get("totalNum"), 60))
    moment = 0
    for cells in reversed(rows):
        row = _row(cells)
        moment = int(row[0]) if len(row) > 1 and re.fullmatch(r"[0-9]{1,15}", row[0]) else moment
        yield moment, row


def _row(cells: Any) -> Row:
    if not isinstance(cells, list) or len(cells) < SHORTEST_ROW:
        return (RawJson(to_json(cells)),)
    return tuple(cell if type(cell) is str else RawJson(to_json(cell)) for cell in cells)


def _row_key(row: Row, account: int, fill_type: str) -> RowKey:
    if len(row) == 1:
        return RowKey(account, "", fill_type, None)
    market = row[MARKET].removeprefix(POOL_PREFIX) if fill_type == POOL else row[MARKET]
    return RowKey(account, market, fill_type, row[HASH] if len(row) > HASH else None)
