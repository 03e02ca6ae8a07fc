"""Hostile files: each is laid where a folder of saved responses has one of its files."""

import functools
import gzip
import json
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path

from attacks.answers import regular


@functools.cache
def bomb(letter: bytes = b"\0") -> bytes:
    """Return 4 GiB of one letter, in members of 64 MiB, as gzip."""
    return gzip.compress(letter * (1 << 26), 6) * 64


TRADES = "10083-dex.json"
Lay = Callable[[Path], None]
"""Spoils a folder that holds ``tokens.json``, ``markets.json`` and ``trades/10083-dex.json``."""


def lay_regular(folder: Path) -> None:
    (folder / "trades").mkdir(parents=True)
    for name, answer in {
        "tokens.json": "tokens",
        "markets.json": "markets",
        f"trades/{TRADES}": "trades",
    }.items():
        (folder / name).write_bytes(regular(answer))


def _content(data: Callable[[], bytes], name: str = f"trades/{TRADES}") -> Lay:
    return lambda folder: _replace(folder / name).write_bytes(data()) and None


def _named(name: str, data: bytes | None = None) -> Lay:
    """Lay another file of trades beside the regular one."""
    content = regular("trades") if data is None else data
    return lambda folder: (folder / "trades" / name).write_bytes(content) and None


def _replace(path: Path) -> Path:
    path.unlink()
    return path


def _link(target: str) -> Lay:
    return lambda folder: _replace(folder / "trades" / TRADES).symlink_to(target)


def _sparse(folder: Path) -> None:
    os.truncate(folder / "trades" / TRADES, 1 << 36)


def _pipe(folder: Path) -> None:
    os.mkfifo(_replace(folder / "trades" / TRADES))


def _folder(folder: Path) -> None:
    _replace(folder / "trades" / TRADES).mkdir()


def _no_folder(folder: Path) -> None:
    _replace(folder / "trades" / TRADES)
    (folder / "trades").rmdir()


def _zipped() -> bytes:
    return gzip.compress(regular("trades"), mtime=0)


def _spoiled(place: int) -> bytes:
    data = bytearray(gzip.compress(json.dumps(json.loads(regular("trades")), indent=1).encode() * 9, mtime=0))
    data[place % len(data)] ^= 0x5A
    return bytes(data)


def _noise() -> bytes:
    return random.Random(12).randbytes(100_000)


_PLAIN: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"", "spaces": lambda: b" \n\t" * 100, "NULs": lambda: bytes(10_000), "noise": _noise,
    "UTF-16": lambda: regular("trades").decode().encode("utf-16"), "BOM": lambda: b"\xef\xbb\xbf" + regular("trades"),
    "cut": lambda: regular("trades")[:200], "latin-1": lambda: regular("trades").replace(b"LRC", b"LR\xc9"),
    "300000 brackets": lambda: b"[" * 300_000, "closed brackets": lambda: b"[" * 300_000 + b"]" * 300_000,
    "objects": lambda: b'{"trades":' * 100_000, "long line of digits": lambda: b"9" * 5_000_000,
    "a line too much": lambda: regular("trades") + b"\n{", "lines": lambda: regular("trades") + b"\n" + regular("trades"),
    "a line of another endpoint": lambda: regular("trades") + b"\n" + regular("account"),
    "a line nested deep": lambda: regular("trades") + b"\n" + b"[" * 300_000, "a million lines": lambda: b"{}\n" * 1_000_000,
    "100 MB of spaces": lambda: b" " * (100 << 20), "brackets in lines": lambda: b"[\n" * 300_000,
    "a string of 90 MB": lambda: b'"' + b"a" * (90 << 20) + b'"', "YAML": lambda: b"trades: [1, 2]", "HTML": lambda: b"<html>" * 99,
    "pickle": lambda: b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x05posix\x94", "Parquet": lambda: b"PAR1" + bytes(100) + b"PAR1", "zip": lambda: b"PK\x03\x04" + bytes(99),
}  # fmt: skip
_GZIP: dict[str, Callable[[], bytes]] = {
    "gzip": _zipped, "gzip cut": lambda: _zipped()[:-5], "gzip cut early": lambda: _zipped()[:14], "gzip head alone": lambda: b"\x1f\x8b",
    "gzip of 4 GiB": bomb, "gzip of spaces": lambda: bomb(b" "), "gzip of brackets": lambda: gzip.compress(b"[" * 50_000_000),
    "gzip twice": lambda: gzip.compress(_zipped()), "two members": lambda: _zipped() + b"\n" + _zipped(),
    "members one behind the other": lambda: _zipped() * 2, "garbage behind gzip": lambda: _zipped() + b"garbage",
    "NULs behind gzip": lambda: _zipped() + bytes(1000), "gzip, method 7": lambda: b"\x1f\x8b\x07" + _zipped()[3:],
    "gzip, all flags": lambda: _zipped()[:3] + b"\xff" + _zipped()[4:], "gzip, wrong sum": lambda: _zipped()[:-8] + b"abcd" + _zipped()[-4:],
    "gzip, wrong size": lambda: _zipped()[:-4] + b"\xff\xff\xff\xff", "zlib": lambda: zlib.compress(regular("trades")),
    **{f"gzip, byte {place} spoiled": lambda place=place: _spoiled(place) for place in (11, 23, 60, 120, 180, 240, 300)},
}  # fmt: skip
_LISTINGS: dict[str, Lay] = {
    f"{name} {what}": _content(data, f"{name}.json")
    for name in ("tokens", "markets")
    for what, data in {
        "empty": lambda: b"", "cut": lambda: regular("tokens")[:99], "brackets": lambda: b"[" * 300_000,
        "noise": _noise, "NULs": lambda: bytes(999), "gzip bomb": bomb, "100 MB": lambda: b" " * (100 << 20), "BOM": lambda: b"\xef\xbb\xbf[]",
        "none": lambda: b"[]", "object": lambda: b"{}", "null": lambda: b"null",
    }.items()
}  # fmt: skip
_SOURCES: dict[str, Lay] = {
    f"source.json {what}": lambda folder, data=data: (folder / "source.json").write_bytes(data) and None
    for what, data in {
        "empty": b"", "cut": b'{"name": ', "list": b"[]", "brackets": b"[" * 300_000, "not UTF-8": b'{"name": "\xff"}',
        "name a number": b'{"name": 5}', "name empty": b'{"name": ""}', "no name": b"{}", "surrogate": b'{"name": "\\ud800"}',
        "escapes": b'{"name": "\\u001b[2J\\u0000"}', "name of 5 MB": b'{"name": "' + b"a" * 5_000_000 + b'"}',
        "chain of 10^9 digits": b'{"name": "a", "chainId": 1e999999999}', "synthetic a word": b'{"name": "a", "synthetic": "yes"}',
        "chain a list": b'{"name": "a", "chainId": []}', "exchange a number": b'{"name": "a", "exchange": 7}', "NULs": bytes(99),
    }.items()
}  # fmt: skip
FILES: dict[str, Lay] = {
    **{name: _content(data) for name, data in {**_PLAIN, **_GZIP}.items()},
    **_LISTINGS,
    **_SOURCES,
    "a pipe": _pipe, "a folder": _folder, "no folder of trades": _no_folder, "64 GiB of nothing": _sparse,
    "/dev/zero": _link("/dev/zero"), "/dev/null": _link("/dev/null"), "/proc/self/mem": _link("/proc/self/mem"),
    "/dev/urandom": _link("/dev/urandom"), "a broken link": _link("nowhere"), "a link to itself": _link(TRADES), "a terminal": _link("/dev/tty"),
    "tokens of /dev/zero": lambda folder: _replace(folder / "tokens.json").symlink_to("/dev/zero"),
    "markets a pipe": lambda folder: os.mkfifo(_replace(folder / "markets.json")),
    "source.json of /dev/zero": lambda folder: (folder / "source.json").symlink_to("/dev/zero"),
    "source.json a pipe": lambda folder: os.mkfifo(folder / "source.json"),
    "another file of spaces": _named("10084-amm.json", b" "), "a name too large": _named("99999999999-amm.json"),
    "account 4294967296": _named("4294967296-dex.json"), "a negative account": _named("-5-amm.json"), "a name of another kind": _named("10083-swap.json"),
    "a name not UTF-8": lambda folder: Path(os.fsdecode(os.fsencode(folder / "trades") + b"/\xff-amm.json")).write_bytes(b"{}") and None,
    "the rows of another account": _content(lambda: regular("trades").replace(b'"10083"', b'"999"')),
}  # fmt: skip
