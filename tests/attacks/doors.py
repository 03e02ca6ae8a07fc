"""The doors that hostile answers come through, each with the check of what it lets in."""

import gzip
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

from attacks import answers, files, lies, truth
from attacks.answers import ACCOUNT, HASH, VALUES, regular, with_value
from attacks.cases import Case

import loopring_lab as lab
from loopring_lab import protocol, tables
from loopring_lab.client import Client
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer

KEY = "k3y-that-must-never-be-seen-0123456789"
L2_KEY = protocol.l2_key("0x" + "5a" * 31 + "11" + "3c" * 32 + "1b")
UPDATE = {"accountId": ACCOUNT, "nonce": 4, "ecdsaSignature": "0x" + "7b" * 65 + "1b"}
LARGEST_FILE = 1 << 21
Check = Callable[[], None]
"""Judges what a door let in: raises `truth.Wrong` if that is not what was sent."""


class Loop:
    """A value that no table can hold, and that shows itself badly."""

    def __str__(self) -> str:
        raise ZeroDivisionError("shown")

    __repr__ = __str__


def _endless() -> Iterator[int]:
    while True:
        yield 1


_CYCLE: list[Any] = []
_CYCLE.append(_CYCLE)
PYTHON: list[Any] = [
    10**5000, -(10**5000), float("nan"), float("inf"), 1e300, Decimal("1e999999999"), Decimal("NaN"), Decimal("1e-999999999"),
    b"5", bytearray(b"5"), {5}, object(), 1 + 2j, _CYCLE, Loop(), _endless(),
]  # fmt: skip
"""Values that no JSON text makes, put into parsed answers."""
STAND_IN = '{"not": "JSON"}'
"""What the judge takes such a value for: nothing that a column could hold."""


@contextmanager
def connected(base_url: str, **options: Any) -> Iterator[Client]:
    """Connect with limits that an attack reaches soon."""
    transport = Transport(
        base_url,
        **{"api_key": KEY, "rate": None, "timeout": 4.0, "max_seconds": 4.5, "attempts": 2, "proxies": False} | options,
    )
    try:
        yield Client(transport)
    finally:
        transport.close()


def enter(case: Case, base_url: str) -> None:
    """Put a case through its door; raises what the door raises, or `truth.Wrong`."""
    DOORS[case.door](case, base_url)


def spoiled(case: Case, answer: str) -> bytes:
    """Return an answer as this case sends it."""
    if case.answer != answer or case.value == "regular":
        return regular(answer)
    return with_value(answer, case.path, VALUES[case.value])


def show(frame: Any) -> None:
    """Look at a frame as users do."""
    repr(frame)
    repr(lab.show(frame))


def read(client: Client, case: Case, bodies: Callable[[str], bytes]) -> None:
    """Read one answer with the client's method for it, and check what it gives."""
    answer = case.answer
    if answer in ("tokens", "markets"):
        frame = client.tokens() if answer == "tokens" else client.markets()
        check_listing(frame, answer, bodies("tokens"), bodies("markets"))
    elif answer == "trades":
        frame = client.trades(ACCOUNT)
        check_frame(frame, [bodies("trades")], bodies("tokens"), bodies("markets"))
    elif answer == "exchange":
        truth.check_exchange(client.exchange(), bodies(answer))
    elif answer == "fees":
        frame = client.update_fee(ACCOUNT)
        truth.check_fees(frame, bodies(answer), {"ETH": 18, "LRC": 18, "USDC": 6})
        show(frame)
    elif answer == "api_key":
        truth.check_api_key(client.api_key(L2_KEY, ACCOUNT), bodies(answer))
    elif answer == "submission":
        truth.check_submission(client.update_account(UPDATE), truth.parse(bodies(answer)))
    elif answer == "updates":
        truth.check_updates(client.update_status(ACCOUNT, HASH), bodies(answer), HASH)
    else:
        account = client.account(ACCOUNT)
        repr(account), account._repr_html_()
        truth.check_account(account, bodies(answer))


def check_listing(frame: Any, answer: str, tokens: bytes, markets: bytes) -> None:
    if answer == "tokens":
        truth.check_tokens(frame, tokens)
    else:
        truth.check_markets(frame, markets, tokens)
    repr(frame)


def check_frame(
    frame: Any,
    pages: list[bytes],
    tokens: bytes,
    markets: bytes,
    fill_type: str | None = "dex",
    account: int | None = ACCOUNT,
) -> None:
    truth.check_trades(frame, {fill_type: pages}, tokens, markets, account)
    show(frame)


def over_http(case: Case, base_url: str) -> None:
    with connected(base_url) as client:
        read(client, case, lambda answer: spoiled(case, answer))


def trades_over_http(case: Case, base_url: str) -> None:
    """Read trades that a spoiled listing scales."""
    over_http(case._replace(answer="trades"), base_url) if case.value == "regular" else _scaled(case, base_url)


def _scaled(case: Case, base_url: str) -> None:
    with connected(base_url) as client:
        frame = client.trades(ACCOUNT)
    check_frame(frame, [regular("trades")], spoiled(case, "tokens"), spoiled(case, "markets"))


def to_tables(case: Case, base_url: str) -> None:
    """Give text to `lab.tables`, as bytes or as str."""
    body = spoiled(case, case.answer)
    given: Any = body
    if sum(map(ord, case.id)) % 2:
        with suppress(UnicodeDecodeError):
            given = body.decode()
    _into_tables(case.answer, given, body)


def objects_to_tables(case: Case, base_url: str) -> None:
    """Give parsed JSON to `lab.tables`, its numbers as Python's."""
    body = spoiled(case, case.answer)
    try:
        truth.expect(truth.depth(body) <= truth.DEEPEST, "nested deeper than this process can bear")
        given = json.loads(body)
    except (ValueError, truth.Wrong):
        given = VALUES[case.value].decode("latin-1")
    _into_tables(case.answer, given, json.dumps(given).encode())


def python_to_tables(case: Case, base_url: str) -> None:
    """Give objects to `lab.tables` that no JSON makes."""
    value, given = PYTHON[int(case.value)], json.loads(regular(case.answer))
    node = given
    for key in case.path[:-1]:
        node = node[key]
    if not case.path:
        given = value
    elif case.path[-1] == "unknown" and isinstance(node, list):
        node.append(value)
    else:
        node[case.path[-1]] = value
    text = f'"{value}"' if isinstance(value, Decimal | float) else STAND_IN
    _into_tables(case.answer, given, with_value(case.answer, case.path, text.encode()))


def _into_tables(answer: str, given: Any, body: bytes) -> None:
    if answer == "tokens":
        truth.check_tokens(tables.tokens(given), body)
        return
    tokens = tables.tokens(regular("tokens"))
    if answer == "markets":
        check_listing(tables.markets(given, tokens), answer, regular("tokens"), body)
        return
    markets = tables.markets(regular("markets"), tokens)
    frame = tables.trades(given, tokens, markets, fill_type="dex")
    check_frame(frame, [body], regular("tokens"), regular("markets"), account=None)


def listings_to_tables(case: Case, base_url: str) -> None:
    """Scale trades by frames of spoiled listings."""
    bodies = [spoiled(case, answer) for answer in ("tokens", "markets")]
    tokens = tables.tokens(bodies[0])
    frame = tables.trades(regular("trades"), tokens, tables.markets(bodies[1], tokens), fill_type="dex")
    check_frame(frame, [regular("trades")], *bodies, account=None)


@contextmanager
def saved(case: Case) -> Iterator[Path]:
    """Save the answers of a case as a recording."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "saved"
        files.lay_regular(folder)
        if case.door.endswith("file"):
            files.FILES[case.value](folder)
        else:
            for answer in ("tokens", "markets"):
                (folder / f"{answer}.json").write_bytes(spoiled(case, answer))
            trades = spoiled(case, "trades")
            packed = case.door == "gzip import"
            (folder / "trades" / files.TRADES).write_bytes(gzip.compress(trades, 1) if packed else trades)
        yield folder


def content(path: Path) -> bytes:
    """Return what a small file says; `Wrong` for one from which nothing may be read."""
    truth.expect(path.is_file() and path.stat().st_size < LARGEST_FILE, f"read from {path.name}")
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, ValueError):
        raise truth.Wrong(f"read from a spoiled {path.name}") from None
    return data


def pages_of(path: Path) -> list[bytes]:
    data = content(path).removeprefix(b"\xef\xbb\xbf")
    try:
        truth.parse(data)
    except truth.Wrong:
        return [line for line in data.splitlines() if line.strip()]
    return [data]


def check_saved(frame: Any, folder: Path) -> None:
    listings = [content(folder / name) for name in ("tokens.json", "markets.json")]
    check_frame(frame, pages_of(folder / "trades" / files.TRADES), *listings)


def from_recording(case: Case, base_url: str) -> None:
    with saved(case) as folder, redirect_stdout(StringIO()), Relayer(recording=folder) as relayer:
        with connected(relayer.base_url, api_key=relayer.api_key) as client:
            frame = client.trades(ACCOUNT)
        check_saved(frame, folder)


def from_files(case: Case, base_url: str) -> None:
    with saved(case) as folder:
        archive = lab.Archive(folder.parent / "archive")
        archive.import_pages(folder)
        check_saved(archive.trades(ACCOUNT), folder)
        show(archive.report())


def into_archive(case: Case, base_url: str) -> None:
    """Sync a spoiled history, or one under spoiled listings, into an archive."""
    with connected(base_url) as client, tempfile.TemporaryDirectory() as name:
        archive = lab.Archive(Path(name) / "archive")
        archive.sync(client, account_id=ACCOUNT, progress=False)
        bodies = [spoiled(case, answer) for answer in ("trades", "tokens", "markets")]
        check_frame(archive.trades(ACCOUNT), bodies[:1], *bodies[1:])
        show(archive.report())


def told_a_lie(case: Case, base_url: str) -> None:
    with connected(base_url, timeout=2.0, max_seconds=3.0) as client:
        frame = client.trades(ACCOUNT, progress=False)
    if case.value in lies.CONSISTENT:
        return
    truth.expect(case.value in lies.READABLE, f"{len(frame)} rows out of a history that no count confirms")
    check_frame(frame, [lies.first_page(case.value)], regular("tokens"), regular("markets"))


def broken(case: Case, base_url: str) -> None:
    """Do what no door may do."""
    if case.value == "ends in a wrong value":
        frame = tables.tokens(regular("tokens"))
        frame.loc["LRC", "decimals"] = 17
        truth.check_tokens(frame, regular("tokens"))
    elif case.value == "raises":
        int("many")
    elif case.value == "kills itself":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif case.value == "hangs":
        time.sleep(3600)
    elif case.value == "grows":
        bytearray(300 << 20)
    elif case.value == "says a key":
        raise lab.LabError(f"The key is {KEY}.")
    else:
        print("Traceback (most recent call last)", file=sys.stderr)


DOORS: dict[str, Callable[[Case, str], None]] = {
    "broken": broken,
    "http": over_http, "http trades": trades_over_http, "tables": to_tables, "tables objects": objects_to_tables,
    "tables python": python_to_tables, "tables trades": listings_to_tables, "recording": from_recording, "import": from_files,
    "gzip import": from_files, "archive": into_archive, "lie": told_a_lie, "recording file": from_recording,
    "import file": from_files,
}  # fmt: skip

__all__ = ["DOORS", "KEY", "answers", "enter"]
