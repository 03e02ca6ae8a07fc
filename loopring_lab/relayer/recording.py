"""A recording: saved relayer responses in a folder, served as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer.history import FILL_TYPES, HASH, MARKET, POOL_PREFIX, Bare, History, Row, RowKey

__all__ = ["Recording"]

FILES = "tokens.json, markets.json and trades/<accountId>-<amm or dex>.json"
HINT = f"Mend or replace the recording; it holds {FILES}."
FILE_NAME = re.compile(r"([0-9]{1,10})-(amm|dex)\.json")
SHORTEST_ROW = 7


class Recording:
    """Responses saved in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise UnexpectedAnswer(
                f"recording {folder}",
                expected="a folder of saved responses",
                got="no such folder",
                hint=f"Name the folder that holds {FILES}.",
            )
        self._tokens = self._load_list(self._folder / "tokens.json", None)
        self._markets = self._load_list(self._folder / "markets.json", "markets")
        files = self._trade_files()
        numbered = sorted(_keyed_rows(files), key=lambda item: item[0])
        rows = [row for _, _, row in numbered]
        accounts = [account for _, account, _ in files]
        self._history = History((key for _, key, _ in numbered), rows.__getitem__, accounts)

    def __repr__(self) -> str:
        return f"Recording({self._folder.name!r})"

    @property
    def label(self) -> str:
        """What the data is, for captions."""
        return f"recording {self._folder.resolve().name}"

    @property
    def accounts(self) -> list[int]:
        """Every account that has trades."""
        return self._history.accounts

    @property
    def history(self) -> History:
        """All rows."""
        return self._history

    def tokens(self) -> list[dict[str, Any]]:
        """Token records as recorded."""
        return self._tokens

    def markets(self) -> list[dict[str, Any]]:
        """Market records as recorded."""
        return self._markets

    def _load_list(self, path: Path, member: str | None) -> list[dict[str, Any]]:
        found = _load(path)
        if member is not None:
            found = found.get(member) if isinstance(found, dict) else None
        records = found if isinstance(found, list) else None
        if records is None or not all(isinstance(record, dict) for record in records):
            where = f"{path.name}, member {member}" if member else path.name
            raise UnexpectedAnswer(where, expected="a list of records", got=_shown(found), hint=HINT)
        return records

    def _trade_files(self) -> list[tuple[Path, int, str]]:
        """Every file of trades, with the account and fill type its name tells."""
        paths = sorted((self._folder / "trades").glob("*.json"))
        if not paths:
            raise UnexpectedAnswer("trades", expected="at least one file of trades", got="none", hint=HINT)
        return [(path, *_named(path)) for path in paths]


def _named(path: Path) -> tuple[int, str]:
    name = FILE_NAME.fullmatch(path.name)
    if name is None:
        raise UnexpectedAnswer("trades", expected="<accountId>-<amm or dex>.json", got=path.name, hint=HINT)
    return int(name[1]), name[2]


def _keyed_rows(files: list[tuple[Path, int, str]]) -> Iterator[tuple[int, RowKey, Row]]:
    for path, account, fill_type in files:
        for at, row in _rows(path):
            market = row[MARKET].removeprefix(POOL_PREFIX) if fill_type == FILL_TYPES[0] else row[MARKET]
            yield at, RowKey(account, market, fill_type, row[HASH] if len(row) > HASH else None), row


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes(), parse_float=Bare if path.parent.name == "trades" else None)
    except OSError as error:
        raise UnexpectedAnswer(
            path.name, expected="a readable file", got=error.strerror, hint=HINT
        ) from error
    except ValueError as error:
        raise UnexpectedAnswer(path.name, expected="JSON", got=f"not JSON ({error})", hint=HINT) from error


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Rows with their times; rows of the same time keep the recorded order, which is newest first."""
    answer, name = _load(path), f"trades/{path.name}"
    rows = answer.get("trades") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(rows, list):
        raise UnexpectedAnswer(name, expected="totalNum and a list trades", got=_shown(answer), hint=HINT)
    if answer.get("totalNum") != len(rows):
        raise UnexpectedAnswer(
            f"{name}, totalNum",
            expected=f"the number of rows, {len(rows)}",
            got=_shown(answer.get("totalNum")),
            hint=HINT,
        )
    for number in reversed(range(len(rows))):
        yield _row(f"{name}, row {number}", rows[number])


def _row(where: str, cells: Any) -> tuple[int, Row]:
    if not isinstance(cells, list) or len(cells) < SHORTEST_ROW:
        raise UnexpectedAnswer(where, expected="a list of 7 or more members", got=_shown(cells), hint=HINT)
    row = tuple(cell if isinstance(cell, str) else Bare(json.dumps(cell)) for cell in cells)
    if not re.fullmatch(r"[0-9]{1,15}", row[0]):
        raise UnexpectedAnswer(
            f"{where}, member 0", expected="createdAt in ms", got=_shown(cells[0]), hint=HINT
        )
    return int(row[0]), row


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
