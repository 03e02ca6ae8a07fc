"""Hostile answers and files end in an error of the package or in the right rows, whatever door they come through."""

import copy
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.scripted_server import Answer, Request, scripted

import loopring_lab as lab
from loopring_lab import protocol, tables
from loopring_lab.archive import Archive
from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.http.transport import Transport

ACCOUNT = 10083
TRADES_FILE = f"trades/{ACCOUNT}-dex.json"
HASH = "0x" + "ab" * 32
L2_KEY = protocol.l2_key("0x" + "5a" * 31 + "11" + "3c" * 32 + "1b")
SECONDS = 5  # of the processor, for one answer
MEMORY = (
    400_000_000  # bytes that all answers together may add; a bomb would add gigabytes
)
TIMEOUT = 840  # seconds; a child that hangs is ended
LONGEST_MESSAGE = 600  # letters

Path_ = tuple[str | int, ...]


def token(number: int, symbol: str, decimals: int) -> dict[str, Any]:
    return {
        "tokenId": number,
        "symbol": symbol,
        "decimals": decimals,
        "enabled": True,
        "orderAmounts": {"minimum": "1", "maximum": "2"},
        "gasAmounts": {"deposit": "5"},
    }


def row(number: int, market: str, token_id: str) -> list[Any]:
    return [
        str(1_657_638_459_610 + number),
        str(8_919_527 + number),
        "SELL",
        f"{453 + number}000000000000000000",
        "3.5669E-4",
        market,
        "161868000",
        "24697",
        "343",
        str(ACCOUNT),
        token_id,
        "2",
        f"0x{number:064x}",
        "taker",
    ]


REGULAR: dict[str, Any] = {
    "tokens": [token(0, "ETH", 18), token(1, "LRC", 18), token(3, "USDT", 6)],
    "markets": {
        "markets": [
            {
                "market": "ETH-USDT",
                "baseTokenId": 0,
                "quoteTokenId": 3,
                "precisionForPrice": 6,
            },
            {
                "market": "LRC-ETH",
                "baseTokenId": 1,
                "quoteTokenId": 0,
                "precisionForPrice": 6,
            },
        ]
    },
    # The second row is spoiled, and only it uses the token and the market that are spoiled.
    "trades": {
        "totalNum": 3,
        "trades": [
            row(3, "ETH-USDT", "0"),
            row(2, "LRC-ETH", "1"),
            row(1, "ETH-USDT", "0"),
        ],
    },
}
SPOILED_RECORD: dict[str, Path_] = {
    "tokens": (1,),
    "markets": ("markets", 1),
    "trades": ("trades", 1),
}
SPOILED_TRADE = 8_919_529
NUMBERS = [
    "created_at",
    "size",
    "price",
    "notional",
    "fee",
    "fee_bps",
    "block_id",
    "storage_id",
]

HOSTILE: dict[str, bytes] = {
    "an exponent beyond memory": b"1e999999999",
    "an exponent beyond memory as text": b'"1e999999999"',
    "a negative exponent beyond memory": b'"1e-999999999"',
    "5,000 digits": b"7" * 5_000,
    "5,000 digits as text": b'"' + b"7" * 5_000 + b'"',
    "no number": b"NaN",
    "digits of another script": '"\uff11"'.encode(),
    "half a surrogate pair": b'"\\ud800"',
    "bytes that are no UTF-8": b'"\xff\xfe"',
    "a control character": b'"\\u0000"',
    "300,000 brackets": b"[" * 300_000 + b"]" * 300_000,
    "300,000 open objects": b'{"a":' * 300_000,
    "a million letters": b'"' + b"a" * 1_000_000 + b'"',
    "null": b"null",
    "a list": b'["5"]',
    "a wide list": b"[" + b"null," * 20_000 + b"1]",
    "nothing": b"",
    "an open string": b'"abc',
}


def members(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the path of every member, and that of the whole."""
    yield path
    inside: Any = []
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    for name, inner in inside:
        yield from members(inner, (*path, name))


def spoiled_members(answer: str) -> list[Path_]:
    """Return the paths that hold the spoiled record, and those below it."""
    record = SPOILED_RECORD[answer]
    return [
        path
        for path in members(REGULAR[answer])
        if path[: len(record)] == record[: len(path)]
    ]


def with_value(regular: Any, path: Path_, raw: bytes) -> bytes:
    """Write an answer with hostile bytes in place of one member."""
    if not path:
        return raw
    mark = "put the hostile value here"
    whole = copy.deepcopy(regular)
    node = whole
    for name in path[:-1]:
        node = node[name]
    node[path[-1]] = mark
    return json.dumps(whole).encode().replace(f'"{mark}"'.encode(), raw)


def answers(spoiled: str = "", path: Path_ = (), raw: bytes = b"") -> dict[str, bytes]:
    """Return the three answers, one of them spoiled."""
    bodies = {name: json.dumps(regular).encode() for name, regular in REGULAR.items()}
    if spoiled:
        bodies[spoiled] = with_value(REGULAR[spoiled], path, raw)
    return bodies


def through_tables(bodies: dict[str, bytes]) -> pd.DataFrame:
    tokens = tables.tokens(bodies["tokens"])
    markets = tables.markets(bodies["markets"], tokens)
    frame = tables.trades(bodies["trades"], tokens, markets, fill_type="dex")
    repr(tables.anomalies(frame))
    return frame


def asked(
    script: Callable[[int, Request], Answer],
    ask: Callable[[Client], Any],
    max_seconds: float = 20,
) -> Any:
    with scripted(script) as server:
        transport = Transport(
            server.base_url,
            api_key="k3y-that-must-never-be-seen",
            rate=None,
            timeout=4,
            max_seconds=max_seconds,
            attempts=1,
            proxies=False,
        )
        try:
            return ask(Client(transport))
        finally:
            transport.close()


def through_http(bodies: dict[str, bytes]) -> pd.DataFrame:
    def script(number: int, request: Request) -> Answer:
        if "tokens" in request.path:
            return Answer(200, bodies["tokens"])
        if "markets" in request.path:
            return Answer(200, bodies["markets"])
        if "fillTypes=dex" in request.path:
            return Answer(200, bodies["trades"])
        return Answer(200, b'{"totalNum": 0, "trades": []}')

    frame = asked(script, lambda client: client.trades(ACCOUNT, progress=False))
    assert isinstance(frame, pd.DataFrame)
    return frame


def laid(folder: Path, bodies: dict[str, bytes]) -> Path:
    (folder / "trades").mkdir()
    (folder / "tokens.json").write_bytes(bodies["tokens"])
    (folder / "markets.json").write_bytes(bodies["markets"])
    (folder / TRADES_FILE).write_bytes(bodies["trades"])
    return folder


def from_recording(folder: Path) -> pd.DataFrame:
    return lab.connect(recording=folder).trades(ACCOUNT, progress=False)


def from_import(folder: Path) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as beside:
        archive = Archive(Path(beside) / "archive.duckdb")
        archive.import_pages(folder)
        return archive.trades(ACCOUNT)


FOLDER_DOORS = {"recording": from_recording, "import_pages": from_import}
# Servers and archives take long to set up: there each member meets every so many of the values.
STEPS = {"tables": 1, "http": 3, "small answers": 3, "recording": 9, "import_pages": 9}


def through_folder(door: str) -> Callable[[dict[str, bytes]], pd.DataFrame]:
    def read(bodies: dict[str, bytes]) -> pd.DataFrame:
        with tempfile.TemporaryDirectory() as folder:
            return FOLDER_DOORS[door](laid(Path(folder), bodies))

    return read


DOORS: dict[str, Callable[[dict[str, bytes]], pd.DataFrame]] = {
    "tables": through_tables,
    "http": through_http,
    "recording": through_folder("recording"),
    "import_pages": through_folder("import_pages"),
}


def problem_of(read: Callable[[], pd.DataFrame]) -> str | None:
    """Return what is wrong with the outcome of reading; None for the right rows or an error of the package."""
    try:
        frame = read()
        repr(frame)
    except LabError as error:
        if len(str(error)) > LONGEST_MESSAGE:
            return f"a message of {len(str(error))} letters"
        return None
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return repr(error)[:200]
    right = through_tables(answers()).set_index("trade_id")[NUMBERS]
    found = frame.set_index("trade_id")[NUMBERS]
    for trade in right.index.drop(SPOILED_TRADE):
        rows = found[found.index == trade].astype(str).to_numpy().tolist()
        if rows != right[right.index == trade].astype(str).to_numpy().tolist():
            return f"row {trade} is not what was sent"
    others = found[~found.index.isin(right.index.drop(SPOILED_TRADE))]
    if len(others) > 1:
        return "more rows than were sent"
    for column in NUMBERS:
        wrong = others[column].notna() & (
            others[column] != right.loc[SPOILED_TRADE, column]
        )
        if wrong.any():
            return f"{column} is {str(others[column].iloc[0])[:40]}"
    return None


@pytest.mark.parametrize("door", DOORS)
def test_a_regular_answer_gives_every_row(door: str) -> None:
    frame = DOORS[door](answers())
    assert len(frame) == 3
    assert problem_of(lambda: frame) is None
    assert problem_of(lambda: frame.iloc[1:]) is not None
    assert problem_of(lambda: frame.assign(price=frame["size"])) is not None


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("door", DOORS)
def test_a_hostile_value_in_a_row_or_in_place_of_it_is_refused_or_costs_that_row_alone(
    door: str, value: str
) -> None:
    for path in [("trades", 1, 4), ("trades", 1)]:
        assert (
            problem_of(partial(DOORS[door], answers("trades", path, HOSTILE[value])))
            is None
        )


SMALL_ANSWERS: dict[str, tuple[Callable[[Client], Any], Any]] = {
    "account": (
        lambda client: client.account(ACCOUNT),
        {
            "accountId": ACCOUNT,
            "owner": "0x" + "1f" * 20,
            "publicKey": {"x": "0x1", "y": "0x2"},
            "nonce": 4,
        },
    ),
    "exchange": (
        lambda client: client.exchange(),
        {"chainId": 1, "exchangeAddress": "0x" + "2e" * 20},
    ),
    "fees": (
        lambda client: client.update_fee(ACCOUNT),
        {"gasPrice": "3", "fees": [{"token": "ETH", "fee": "19", "discount": 0.8}]},
    ),
    "API key": (
        lambda client: client.api_key(L2_KEY, ACCOUNT),
        {"apiKey": "k3y-of-the-relayer"},
    ),
    "submission": (
        lambda client: client.update_account(
            {"accountId": ACCOUNT, "nonce": 4, "ecdsaSignature": "0x" + "7b" * 66}
        ),
        {"hash": HASH, "status": "received", "isIdempotent": False, "storageId": 7},
    ),
    "updates": (
        lambda client: client.update_status(ACCOUNT, HASH),
        {
            "totalNum": 1,
            "transactions": [
                {"hash": HASH, "status": "failed", "storageId": 7, "reason": "no"}
            ],
        },
    ),
    "refusal": (
        lambda client: client.count(ACCOUNT),
        {"resultInfo": {"code": 104003, "message": "none"}, "code": 1},
    ),
}


def small_answer(name: str, path: Path_, raw: bytes) -> str | None:
    ask, regular = SMALL_ANSWERS[name]
    body = with_value(regular, path, raw)

    def script(number: int, request: Request) -> Answer:
        if "tokens" in request.path:
            return Answer(200, json.dumps(REGULAR["tokens"]).encode())
        return Answer(200, body)

    try:
        repr(asked(script, ask))
    except LabError as error:
        return None if len(str(error)) <= LONGEST_MESSAGE else "a long message"
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return repr(error)[:200]
    return None


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 36)


REGULAR_TRADES = json.dumps(REGULAR["trades"]).encode()
ZIPPED = gzip.compress(REGULAR_TRADES, mtime=0)
FILES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.touch(),
    "cut": lambda path: path.write_bytes(REGULAR_TRADES[:200]),
    "UTF-16": lambda path: path.write_bytes(REGULAR_TRADES.decode().encode("utf-16")),
    "a page twice": lambda path: path.write_bytes(
        REGULAR_TRADES + b"\n" + REGULAR_TRADES
    ),
    "gzip that is cut": lambda path: path.write_bytes(ZIPPED[:-5]),
    "gzip with a wrong sum": lambda path: path.write_bytes(
        ZIPPED[:-8] + b"abcd" + ZIPPED[-4:]
    ),
    "gzip of 4 GiB": lambda path: path.write_bytes(
        gzip.compress(bytes(1 << 26), 6) * 64
    ),
    "64 GiB of nothing": sparse,
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


def hostile_file(door: str, name: str, place: str) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        path = laid(Path(folder), answers()) / place
        path.unlink()
        FILES[name](path)
        return problem_of(lambda: FOLDER_DOORS[door](Path(folder)))


PAGE = 50
LIES: dict[str, Callable[[int, int], tuple[int, list[Any]]]] = {
    "a million million rows": lambda offset, before: (10**12, page_of_rows(offset)),
    "a million million rows, pages empty": lambda offset, before: (10**12, []),
    "always one page more": lambda offset, before: (
        offset + 2 * PAGE,
        page_of_rows(offset),
    ),
    "the same page again": lambda offset, before: (10**6, page_of_rows(0)),
    "rows arrive for ever": lambda offset, before: (
        200 + 30 * before,
        page_of_rows(-30 * before),
    ),
    "rows, and a total of 0": lambda offset, before: (0, page_of_rows(offset)),
    "a page, then nothing": lambda offset, before: (
        400,
        page_of_rows(0) if offset == 0 else [],
    ),
}


def page_of_rows(start: int) -> list[Any]:
    return [row(10**6 - start - place, "LRC-ETH", "1") for place in range(PAGE)]


def told_a_lie(name: str) -> str | None:
    """Read a history whose count and pages contradict each other; no rows of it may be taken for all of it."""
    before = 0

    def script(number: int, request: Request) -> Answer:
        nonlocal before
        if "tokens" in request.path or "markets" in request.path:
            return Answer(
                200,
                json.dumps(
                    REGULAR["tokens" if "tokens" in request.path else "markets"]
                ).encode(),
            )
        if "fillTypes=dex" not in request.path:
            return Answer(200, b'{"totalNum": 0, "trades": []}')
        offset = int(request.path.partition("offset=")[2].partition("&")[0] or 0)
        total, rows = LIES[name](offset, before)
        before += 1
        return Answer(200, json.dumps({"totalNum": total, "trades": rows}).encode())

    try:
        frame = asked(
            script, lambda client: client.trades(ACCOUNT, progress=False), max_seconds=2
        )
    except LabError:
        return None
    return f"{len(frame)} rows of a history that no count confirms"


Case = tuple[str, Callable[[], str | None]]


def members_and_values(door: str, paths: list[Path_]) -> Iterator[tuple[Path_, str]]:
    """Yield each member with each of every so many values, another first one for each member."""
    names = list(HOSTILE)
    step = STEPS[door]
    for place, path in enumerate(paths):
        for name in names[place % step :: step]:
            yield path, name


def cases() -> Iterator[Case]:
    for door, answer in product(DOORS, REGULAR):
        for path, name in members_and_values(door, spoiled_members(answer)):
            read = partial(DOORS[door], answers(answer, path, HOSTILE[name]))
            yield f"{door}, {answer} {path}: {name}", partial(problem_of, read)
    for answer, (_, regular) in SMALL_ANSWERS.items():
        for path, name in members_and_values("small answers", list(members(regular))):
            yield (
                f"{answer} {path}: {name}",
                partial(small_answer, answer, path, HOSTILE[name]),
            )
    for door, name, place in product(
        FOLDER_DOORS, FILES, ["tokens.json", "markets.json", TRADES_FILE]
    ):
        yield f"{door}, {place}: {name}", partial(hostile_file, door, name, place)
    for name in LIES:
        yield f"history: {name}", partial(told_a_lie, name)


def peak() -> int:
    """Return the most memory that this process has used, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    for read in DOORS.values():
        read(answers())
    before = peak()
    for name, run in cases():
        begin = time.process_time()
        problem = run()
        seconds = time.process_time() - begin
        print(json.dumps([name, problem, seconds, peak() - before]), flush=True)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_member_file_and_history_ends_in_time_and_memory_with_an_error_or_the_right_rows() -> (
    None
):
    child = subprocess.run(
        [sys.executable, "-m", "test_hostile_answers"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    outcomes = [
        json.loads(line) for line in child.stdout.splitlines() if line.startswith("[")
    ]
    assert child.returncode == 0, (child.stderr[-2_000:], outcomes[-1:])
    assert [name for name, *_ in outcomes] == [name for name, _ in cases()]
    assert [outcome for outcome in outcomes if outcome[1] is not None] == []
    assert [outcome for outcome in outcomes if outcome[2] > SECONDS] == []
    assert max(outcome[3] for outcome in outcomes) < MEMORY


if __name__ == "__main__":
    main()
