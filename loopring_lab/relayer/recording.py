"""A recording: saved relayer responses in a folder, served as they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopring_lab.bounded import (
    given_path,
    parse_json,
    printable,
    read_file,
    shown,
    to_json,
    whole_or_text,
)
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer.mainnet import pool_record
from loopring_lab.relayer.pages import History, RowKey
from loopring_lab.relayer.rows import (
    CREATED_AT,
    MARKET,
    ORDER_HASH,
    POOL,
    POOL_PREFIX,
    SHORTEST,
    RawJson,
    Row,
)

FILES = "tokens.json, markets.json and trades/<accountId>-<amm or dex>.json"
HINT = f"Fix or replace the recording; it holds {FILES}."
LISTING = ("tokens.json", "markets.json")
SOURCE_FILE = "source.json"
FILE_NAME = re.compile(r"([0-9]{1,10})-(amm|dex)\.json")

# The members of records that the relayer itself reads, each with its type.
TYPES = {"symbol": str, "market": str, "tokenId": int}
TYPE_NAMES = {str: "text", int: "a whole number"}

LP_PREFIX = "LP-"  # of the symbol of a pool's liquidity token, before the market's name
LONGEST_NAME = 200  # a name is sent with every response
# A row of another time is served in the place where it was saved.
MILLISECONDS = re.compile("[0-9]{1,15}")


class Recording:
    """Responses saved in a folder, with the name in its ``source.json`` unless another is given.

    Optional files: ``source.json`` names the data, ``pools.json`` is the response of ``/amm/pools``.
    """

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        self._folder = given_path(folder)
        is_folder = self._folder.is_dir()
        has_listing = any(os.path.lexists(self._folder / name) for name in LISTING)
        if not is_folder or not has_listing:
            got = "no such folder"
            hint = f"Give the folder that holds {FILES}."
            if is_folder:
                got = f"a folder without {' and '.join(LISTING)}"
            elif self._folder.is_file():
                got = "a file"
                hint += " lab.connect(recording=...) reads a single file."
            expected = "a folder of saved responses"
            where = f"recording {folder}"
            raise UnexpectedAnswer(where, expected=expected, got=got, hint=hint)
        self._tokens = _records("tokens.json", _load(self._folder / "tokens.json"))
        markets = _member(_load(self._folder / "markets.json"), "markets")
        self._markets = _records("markets.json, member markets", markets)
        self._pools = self._read_pools()
        self._history = self._read_history()
        stated_name, self.synthetic = _stated(self._folder)
        self.name = stated_name if name is None else checked_name("source", name)

    def __repr__(self) -> str:
        return f"Recording({self._folder.name!r})"

    @property
    def label(self) -> str:
        """A short description of the data, for captions."""
        return f"recording {self._folder.resolve().name}"

    @property
    def accounts(self) -> list[int]:
        """Every account that has trades."""
        return list(self._history.accounts)

    @property
    def history(self) -> History:
        """Every saved row."""
        return self._history

    def tokens(self) -> list[dict[str, Any]]:
        """Return the saved token records."""
        return self._tokens

    def markets(self) -> list[dict[str, Any]]:
        """Return the saved market records."""
        return self._markets

    def pool_records(self) -> list[dict[str, Any]]:
        """Return the pools in ``pools.json``, or else those that tokens and markets tell of."""
        return self._pools

    def pool_owners(self) -> dict[int, str]:
        """Return nothing: no saved response says which account is a pool's."""
        return {}

    def _read_pools(self) -> list[dict[str, Any]]:
        path = self._folder / "pools.json"
        if not path.exists():
            return listed_pools(self._tokens, self._markets)
        return _records("pools.json, member pools", _member(_load(path), "pools"))

    def _read_history(self) -> History:
        accounts: list[int] = []
        found: list[tuple[int, RowKey, Row]] = []
        for path in sorted((self._folder / "trades").glob("*.json")):
            name = FILE_NAME.fullmatch(path.name)
            if name is None:
                raise _invalid(
                    "trades",
                    "<accountId>-<amm or dex>.json",
                    printable(path.name),
                )
            account = int(name[1])
            accounts.append(account)
            for time_ms, row in _rows(path):
                found.append((time_ms, _row_key(row, account, name[2]), row))
        if not accounts:
            raise _invalid("trades", "at least one file of trades", "none")
        # By time, so that pages of all files are in one order. Rows of one time stay in the order of their files.
        found.sort(key=lambda item: item[0])
        rows = [row for _, _, row in found]
        return History((key for _, key, _ in found), rows.__getitem__, accounts)


def _invalid(where: str, expected: str, got: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(where, expected=expected, got=got, hint=HINT)


def _load(path: Path) -> Any:
    name = f"trades/{path.name}" if path.parent.name == "trades" else path.name
    return parse_json(
        read_file(path, name, hint=HINT),
        name,
        number=whole_or_text,
        hint=HINT,
    )


def _member(saved: Any, name: str) -> Any:
    return saved.get(name) if isinstance(saved, dict) else None


def _stated(folder: Path) -> tuple[str, bool]:
    """Return the name of a recording, and whether it is of made-up data, which its folder may state."""
    if not (folder / SOURCE_FILE).exists():
        path = os.fsencode(folder.resolve())
        return path.decode(errors="backslashreplace"), False
    saved = _load(folder / SOURCE_FILE)
    name = checked_name(f"{SOURCE_FILE}, member name", _member(saved, "name"))
    synthetic = saved.get("synthetic", False)
    if not isinstance(synthetic, bool):
        raise _invalid(
            f"{SOURCE_FILE}, member synthetic",
            "true or false",
            shown(synthetic, 60),
        )
    return name, synthetic


def checked_name(where: str, name: object) -> str:
    """Return the name of a source, which must be short enough to be sent with every response."""
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= LONGEST_NAME
        or not name.isprintable()
    ):
        raise _invalid(
            where,
            f"1 to {LONGEST_NAME} printable characters",
            shown(name, 60),
        )
    return name


def _records(where: str, value: Any) -> list[dict[str, Any]]:
    """Check the little that the relayer itself reads of records; all else is served as it is."""
    if not isinstance(value, list) or not all(
        isinstance(record, dict) for record in value
    ):
        raise _invalid(where, "a list of records", shown(value, 60))
    for number, record in enumerate(value):
        for name, kind in TYPES.items():
            # A bool is an int to Python, but not to the contract.
            if name in record and type(record[name]) is not kind:
                raise _invalid(
                    f"{where}, record {number}, {name}",
                    TYPE_NAMES[kind],
                    shown(record[name], 60),
                )
    return value


def listed_pools(
    tokens: list[dict[str, Any]], markets: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the pools that listings tell of: markets with one LP token, whose address is the pool's."""
    by_symbol: dict[str, list[dict[str, Any]]] = {}
    for token in tokens:
        if {"symbol", "address", "tokenId"} <= set(token):
            by_symbol.setdefault(token["symbol"], []).append(token)
    pools = []
    for market in markets:
        if not {"market", "baseTokenId", "quoteTokenId"} <= set(market):
            continue
        found = by_symbol.get(f"{LP_PREFIX}{market['market']}", [])
        if len(found) > 1:
            # Symbols repeat; of several tokens at most one is in use.
            found = [token for token in found if token.get("enabled")]
        if len(found) == 1:
            pools.append(pool_record(market, found[0]["address"], found[0]["tokenId"]))
    return pools


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Give rows with their times, oldest first; rows of one time are recorded newest first.

    A row that does not say its time stands after the one before it.
    """
    name = f"trades/{path.name}"
    response = _load(path)
    rows = _member(response, "trades")
    if not isinstance(rows, list):
        raise _invalid(name, "totalNum and a list trades", shown(response, 60))
    total = response.get("totalNum")
    if total != len(rows):
        raise _invalid(
            f"{name}, totalNum",
            f"the number of rows, {len(rows)}",
            shown(total, 60),
        )
    time_ms = 0
    for members in reversed(rows):
        row = _row(members)
        if len(row) > 1 and MILLISECONDS.fullmatch(row[CREATED_AT]):
            time_ms = int(row[CREATED_AT])
        yield time_ms, row


def _row(members: Any) -> Row:
    """Return a saved row; one that is no trade, such as an NFT's, is only its JSON."""
    if not isinstance(members, list) or len(members) < SHORTEST:
        return (RawJson(to_json(members)),)
    return tuple(
        member if type(member) is str else RawJson(to_json(member))
        for member in members
    )


def _row_key(row: Row, account: int, fill_type: str) -> RowKey:
    if len(row) == 1:
        return RowKey(account, "", fill_type, None)
    market = row[MARKET]
    if fill_type == POOL:
        market = market.removeprefix(POOL_PREFIX)
    # Requests find a hash in either case; the row shows it as it was saved.
    order_hash = row[ORDER_HASH].lower() if len(row) > ORDER_HASH else None
    return RowKey(account, market, fill_type, order_hash)
