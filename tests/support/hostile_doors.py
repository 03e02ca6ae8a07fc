"""Every door for untrusted text, and a regular text for each: every member of it is replaced by hostile ones.

Run as a program, it prints a line of JSON per case: door, member, value, and the error's class or nothing.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import eth_account  # noqa: F401  - raises Python's recursion limit far beyond the stack
from support.wire_rows import markets, row, tokens

from loopring_lab import cli, models, tables
from loopring_lab.archive.rows import row_texts
from loopring_lab.errors import LabError
from loopring_lab.http.refusals import relayer_error
from loopring_lab.relayer import Recording
from loopring_lab.relayer.key_updates import read_update
from loopring_lab.relayer.schemas import ApiError
from loopring_lab.source import Source
from loopring_lab.tables import wire
from loopring_lab.tables.identity import row_keys

MEMORY = 1 << 30
TOKENS, MARKETS = tokens(), markets()
NUMBERS = [
    *("1e1000000", "1e999999999", "1e-999999999", "1e400", "0.5", "-1", "1.0e3", "9" * 19, "9" * 77),
    *("7" * 5_000, "1" + "0" * 400),
]
TEXTS = [" 1", "\u0661", "\0", "", "1_000", "NaN", "]" * 300_000]
VALUES = [
    *NUMBERS,
    *map(json.dumps, NUMBERS + TEXTS),
    *('"\\ud800"', '"\\udc00\\ud800"', "NaN", "-Infinity", "null", "true", "[]", '{"a":[1]}', '"'),
    *("[" * 300_000, '{"a":' * 300_000),
]
RECORD = {"type": "ERC20", "tokenId": 1, "symbol": "LRC", "name": "L", "address": "0x0", "decimals": 18}
RECORD |= {"precision": 6, "precisionForOrder": 6, "enabled": True, "fastWithdrawLimit": "5", "new": 1}
RECORD |= {"orderAmounts": {"minimum": "1", "maximum": "2", "dust": "3"}, "gasAmounts": {"deposit": "5"}}
MARKET = {"market": "LRC-ETH", "baseTokenId": 1, "quoteTokenId": 0, "precisionForPrice": 6, "status": 3}
MARKET |= {"orderbookAggLevels": 5, "enabled": True, "createdAt": "1"}
ACCOUNT = {"accountId": 7, "owner": "0x0", "frozen": False, "publicKey": {"x": "0x1", "y": "0x2"}}
ACCOUNT |= {"nonce": 1, "keyNonce": 0, "keySeed": "", "tags": ""}
UPDATE = {"hash": "0x1", "status": "failed", "isIdempotent": False, "storageId": 3, "reason": "no"}
BODY = {"exchange": "0x" + 40 * "1", "owner": "0x" + 40 * "2", "accountId": 7, "nonce": 1, "validUntil": 5}
BODY |= {
    "publicKey": {"x": "0x" + 64 * "1", "y": "0x" + 64 * "2"},
    "maxFee": {"tokenId": 0, "volume": "1"},
    "keySeed": "x",
}


def trades(text: bytes) -> None:
    """Read a page by both paths, as paging, frame and archive do."""
    frame = tables.trades(text, TOKENS, MARKETS)
    tables.anomalies(frame)["reason"].tolist()
    batch = wire.read([text], ["page"])
    repr(row_keys([batch])[0].moments)
    wire.read_total(batch)
    assert len(row_texts(text)) == len(batch.columns)
    repr(frame.to_dict("records"))


def listed(text: bytes) -> None:
    repr(tables.tokens(text))


def recording(name: str) -> Callable[[bytes], None]:
    def load(text: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            (path / "trades").mkdir()
            files = {"tokens.json": [RECORD], "markets.json": {"markets": [MARKET]}}
            files |= {"trades/7-amm.json": {"totalNum": 1, "trades": [row()]}}
            for file, content in files.items():
                (path / file).write_text(json.dumps(content))
            (path / name).write_bytes(text)
            made = Recording(path)
            json.dumps(made.tokens() + made.markets(), allow_nan=False).encode()

    return load


def accounts_file(text: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(text)
        cli._read_accounts(Path(file.name))


FEES = {"gasPrice": "1", "fees": [{"token": "ETH", "fee": "1", "discount": 0.5}]}
ERROR = {"resultInfo": {"code": 100001, "message": "no"}, "code": 1}
DOORS: dict[str, tuple[Callable[[bytes], object], Any]] = {
    "trades": (trades, {"totalNum": 1, "trades": [[*row(), "new"]], "new": 1}),
    "tokens": (listed, [RECORD]),
    "markets": (lambda text: repr(tables.markets(text, TOKENS)), {"markets": [MARKET]}),
    "account": (models.read_account, ACCOUNT),
    "submission": (models.read_submission, UPDATE),
    "update": (lambda text: models.read_listed_update(text, "0x1"), {"transactions": [UPDATE]}),
    "exchange": (models.read_exchange, {"exchangeAddress": "0x0", "chainId": 1}),
    "fees": (models.read_fees, FEES),
    "API key": (models.read_api_key, {"apiKey": "not a key"}),
    "error": (lambda text: str(relayer_error(400, text, "GET /x")), ERROR),
    "source": (lambda text: Source.read(text.decode(errors="replace"), "x"), {"name": "a", "chainId": 1}),
    "recorded tokens": (recording("tokens.json"), [RECORD]),
    "recorded markets": (recording("markets.json"), {"markets": [MARKET]}),
    "recorded trades": (recording("trades/7-amm.json"), {"totalNum": 1, "trades": [row()]}),
    "update body": (read_update, BODY),
    "accounts file": (accounts_file, 1),
}


def members(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every member, and that of the whole."""
    yield path
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from members(inner, (*path, name))


def replaced(value: Any, path: tuple[Any, ...], text: str) -> str:
    """Write a value with one member replaced by text."""
    if not path:
        return text
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    written = [(n, replaced(one, path[1:], text) if n == path[0] else json.dumps(one)) for n, one in inside]
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{one}" for name, one in written) + "}"
    return "[" + ",".join(one for _, one in written) + "]"


def cases() -> Iterator[tuple[str, str, str, bytes]]:
    for door, (_, regular) in DOORS.items():
        for path in members(regular):
            for value in VALUES:
                text = replaced(regular, path, value).encode()
                yield door, ".".join(map(str, path)), value[:24], text


def peak() -> int:
    """Return the most memory that this process has used, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    for read, regular in DOORS.values():
        read(json.dumps(regular).encode())
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    before = peak()
    for door, member, value, text in cases():
        begin, problem = time.process_time(), None
        try:
            DOORS[door][0](text)
        except (LabError, ApiError) as error:
            if len(str(error)) > 600:
                problem = f"a message of {len(str(error))} letters"
        except Exception as error:  # noqa: BLE001 - this is what is looked for
            problem = repr(error)[:200]
        print(json.dumps([door, member, value, problem, time.process_time() - begin]), flush=True)
    print(json.dumps({"grown": peak() - before}))


if __name__ == "__main__":
    sys.exit(main())
