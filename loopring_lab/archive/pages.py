"""Saved responses: which files hold them, whose they are, and the tokens and markets beside them."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from loopring_lab.archive.stored import Listed, Page
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.paging import total
from loopring_lab.tables import wire
from loopring_lab.tables.rows import FILL_TYPES

__all__ = ["Saved", "find", "listed", "read"]

ENDINGS = (".json", ".jsonl", ".ndjson")
NAMED = re.compile(r"(\d{1,10})-(amm|dex)\.")
GZIP = b"\x1f\x8b"
POOL_PREFIX = "AMM-"
TOKENS, MARKETS = "tokens.json", "markets.json"


class Saved(NamedTuple):
    """Files to import: of trades, and the folder with the tokens and markets of each, where there is one."""

    files: list[Path]
    listings: dict[Path, Path]


def find(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Saved:
    """Find files of trades, and the ``tokens.json`` and ``markets.json`` beside or above each.

    Parameters
    ----------
    paths : path or iterable of paths
        Files; or folders, of which every JSON file is taken, and of a recording those under ``trades/``.

    Returns
    -------
    Saved
        In the order given, those of a folder by name.

    Raises
    ------
    LabError
        A path is not there, or a folder holds no JSON file.
    """
    every = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [file for path in map(Path, every) for file in _files(path)]
    above = {file.parent: [file.parent, file.parent.parent] for file in files}
    homes = {
        folder: home
        for folder, homes in above.items()
        for home in reversed(homes)
        if (home / TOKENS).is_file() and (home / MARKETS).is_file()
    }
    return Saved([file for file in files if file.name not in (TOKENS, MARKETS)], homes)


def listed(home: Path) -> Listed:
    """Read the tokens and markets of a folder.

    Parameters
    ----------
    home : Path
        With ``tokens.json`` and ``markets.json``.

    Returns
    -------
    Listed
        Of the time when the older of the two files was written.

    Raises
    ------
    UnexpectedAnswer
        A file is something else.
    """
    tokens, markets = home / TOKENS, home / MARKETS
    moment = min(_moment(tokens), _moment(markets))
    texts = [path.read_text(encoding="utf-8") for path in (tokens, markets)]
    return Listed(texts[0], texts[1], f"recording {home.resolve().name}", False, moment)


def read(file: Path, account_id: int | None, fill_type: str | None) -> Iterator[tuple[Page, int, int | None]]:
    """Read the pages of a file: one, or one a line; packed with gzip or not.

    Parameters
    ----------
    file : Path
        Saved answers of the trades endpoint.
    account_id, fill_type : int, str, optional
        Whose and what they are, where neither the file's name nor the rows say.

    Yields
    ------
    tuple of Page, int and int or None
        The page, retrieved when the file was last written, its rows, and how many the relayer counted.

    Raises
    ------
    UnexpectedAnswer
        It holds something else, or does not say whose or which trades they are.
    """
    name, moment = NAMED.match(file.name), _moment(file)
    account = account_id if account_id is not None or not name else int(name[1])
    kind = fill_type or (name[2] if name else None)
    for number, body in enumerate(_bodies(file)):
        where = file.name if number == 0 else f"{file.name}, page {number + 1}"
        answer = wire.parse(body, where)
        rows = wire.page_rows(answer, where)
        counted = None if answer.get("totalNum") is None else total(answer, where)
        if account is not None and kind:
            yield Page(account, kind, body, moment, where), len(rows), counted
        elif rows:
            yield Page(*_told(body, where, account, kind), body, moment, where), len(rows), counted


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise LabError(f"{path}: no such file or folder. Name saved answers of the trades endpoint.")
    folder = path / "trades" if (path / "trades").is_dir() else path
    found = sorted(file for file in folder.iterdir() if _stem(file).endswith(ENDINGS))
    if not found:
        raise LabError(
            f"{path}: no file that ends in {', '.join(ENDINGS)}, packed or not. Name another folder."
        )
    return found


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz")


def _bodies(file: Path) -> Iterator[bytes]:
    """Give the documents of a file: each line that is one, else the whole."""
    with file.open("rb") as raw:
        packed = raw.read(2) == GZIP
    try:
        with gzip.open(file) if packed else file.open("rb") as text:
            first = text.readline()
            if _is_document(first):
                yield first.strip()
                yield from filter(None, map(bytes.strip, text))
            else:
                yield first + text.read()
    except (EOFError, gzip.BadGzipFile) as error:
        hint = "Save it again; the pages before it are imported."
        raise UnexpectedAnswer(file.name, expected="a whole gzip file", got=str(error), hint=hint) from None


def _is_document(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _told(body: bytes, where: str, account: int | None, kind: str | None) -> tuple[int, str]:
    """Learn from the rows of a page whose they are, and whether they are a pool's."""
    columns = wire.read([body]).columns
    accounts = pc.unique(columns["accountId"]).to_pylist()
    if account is None:
        if len(accounts) != 1 or not str(accounts[0]).isdecimal():
            hint = "Give account_id=, or name the file <accountId>-<amm or dex>.json."
            got = "rows of several accounts" if len(accounts) > 1 else "rows that do not say"
            raise UnexpectedAnswer(f"{where}, accountId", expected="one account", got=got, hint=hint)
        account = int(accounts[0])
    if kind is None:
        if not pc.all(pc.starts_with(columns["market"], POOL_PREFIX)).as_py():
            hint = "Give fill_type=, or name the file <accountId>-<amm or dex>.json."
            raise UnexpectedAnswer(
                f"{where}, market",
                expected=f"pool fills ({POOL_PREFIX}…)",
                got="others, which may be either",
                hint=hint,
            )
        kind = FILL_TYPES[0]
    return account, kind


def _moment(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000
