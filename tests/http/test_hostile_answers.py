"""Hostile answers and files end in an error of the package or in the right rows, whatever door they come through."""

import copy
import gzip
import json
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.optional import thorough
from support.recorded import save
from support.scripted_server import Script, by_path, scripted
from support.wire_rows import row

import loopring_lab as lab
from loopring_lab import tables
from loopring_lab.archive import Archive
from loopring_lab.errors import LabError
from loopring_lab.http.transport import Transport
from loopring_lab.sources.client import Client

ACCOUNT = 10083
# Bytes that a test may add to the process; a bomb would add gigabytes.
MEMORY = 400_000_000
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


def fill(number: int, market: str, token_id: str) -> list[Any]:
    return row(
        createdAt=str(1_657_638_459_610 + number),
        id=str(8_919_527 + number),
        size=f"{453 + number}000000000000000000",
        feeAmount="161868000",
        market=market,
        accountId=str(ACCOUNT),
        tokenId=token_id,
        orderHash=f"0x{number:064x}",
    )


REGULAR: dict[str, Any] = {
    "tokens": [token(0, "ETH", 18), token(1, "LRC", 18), token(3, "USDT", 6)],
    "markets": {
        "markets": [
            {"market": "ETH-USDT", "baseTokenId": 0, "quoteTokenId": 3},
            {"market": "LRC-ETH", "baseTokenId": 1, "quoteTokenId": 0},
        ]
    },
    # The second row is spoiled, and only it uses the token and the market that are spoiled.
    "trades": {
        "totalNum": 3,
        "trades": [
            fill(3, "ETH-USDT", "0"),
            fill(2, "LRC-ETH", "1"),
            fill(1, "ETH-USDT", "0"),
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
    "5,000 digits as text": b'"' + b"7" * 5_000 + b'"',
    "no number": b"NaN",
    "half a surrogate pair": b'"\\ud800"',
    "bytes that are no UTF-8": b'"\xff\xfe"',
    "300,000 brackets": b"[" * 300_000 + b"]" * 300_000,
    "a million letters": b'"' + b"a" * 1_000_000 + b'"',
    "an open string": b'"abc',
}


def peak() -> int:
    """Return the most memory that this process has used, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    before = peak()
    yield
    assert peak() - before < MEMORY


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


def asked(script: Script, ask: Callable[[Client], Any]) -> Any:
    with scripted(script) as server:
        transport = Transport(
            server.base_url,
            api_key="k3y-that-must-never-be-seen",
            rate=None,
            timeout=4,
            attempts=1,
            proxies=False,
        )
        try:
            return ask(Client(transport))
        finally:
            transport.close()


def through_http(bodies: dict[str, bytes]) -> pd.DataFrame:
    script = by_path(
        {
            "tokens": bodies["tokens"],
            "markets": bodies["markets"],
            "fillTypes=dex": bodies["trades"],
            "": b'{"totalNum": 0, "trades": []}',
        }
    )
    frame = asked(script, lambda client: client.trades(ACCOUNT, progress=False))
    assert isinstance(frame, pd.DataFrame)
    return frame


def laid(folder: Path, bodies: dict[str, bytes]) -> Path:
    names = {"trades": f"trades/{ACCOUNT}-dex"}
    return save(folder, {names.get(name, name): body for name, body in bodies.items()})


def through_recording(bodies: dict[str, bytes]) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        client = lab.connect(recording=laid(Path(folder), bodies))
        return client.trades(ACCOUNT, progress=False)


def through_import(bodies: dict[str, bytes]) -> pd.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder) / "archive.duckdb")
        archive.import_pages(laid(Path(folder) / "saved", bodies))
        return archive.trades(ACCOUNT)


DOORS: dict[str, Callable[[dict[str, bytes]], pd.DataFrame]] = {
    "tables": through_tables,
    "http": through_http,
    "recording": through_recording,
    "import_pages": through_import,
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
def test_a_regular_answer_gives_every_row(door):
    frame = DOORS[door](answers())
    assert len(frame) == 3
    assert problem_of(lambda: frame) is None
    assert problem_of(lambda: frame.iloc[1:]) is not None
    assert problem_of(lambda: frame.assign(price=frame["size"])) is not None


MEMBER = ("trades", 1, 4)
ROW = ("trades", 1)
# An archive is made for each import, so rows as wholes wait for the slow tests there.
SPOILED = [
    *((door, MEMBER) for door in DOORS),
    *((door, ROW) for door in DOORS if door != "import_pages"),
    thorough("import_pages", ROW),
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(("door", "path"), SPOILED)
def test_a_hostile_value_in_a_row_or_in_place_of_it_is_refused_or_costs_that_row_alone(
    door, path, value
):
    bodies = answers("trades", path, HOSTILE[value])
    assert problem_of(lambda: DOORS[door](bodies)) is None


@pytest.mark.thorough
@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("answer", REGULAR)
def test_a_hostile_value_in_place_of_any_member_costs_that_record_alone(answer, value):
    for path in spoiled_members(answer):
        bodies = answers(answer, path, HOSTILE[value])
        problem = problem_of(lambda bodies=bodies: through_tables(bodies))
        assert problem is None, path


ZIPPED = gzip.compress(answers()["trades"], mtime=0)
FILES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.touch(),
    "cut": lambda path: path.write_bytes(answers()["trades"][:200]),
    "UTF-16": lambda path: path.write_bytes(
        answers()["trades"].decode().encode("utf-16")
    ),
    "gzip that is cut": lambda path: path.write_bytes(ZIPPED[:-5]),
    "gzip of 4 GiB": lambda path: path.write_bytes(
        gzip.compress(bytes(1 << 22), 6) * 1024
    ),
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", ["tokens.json", f"trades/{ACCOUNT}-dex.json"])
def test_a_hostile_file_of_a_recording_is_refused_or_read_as_it_is(
    tmp_path, place, name
):
    path = laid(tmp_path, answers()) / place
    path.unlink()
    FILES[name](path)

    def read() -> pd.DataFrame:
        return lab.connect(recording=tmp_path).trades(ACCOUNT, progress=False)

    if name in ("a pipe", "an endless device"):
        with pytest.raises(LabError, match="expected a regular file"):
            read()
    assert problem_of(read) is None
