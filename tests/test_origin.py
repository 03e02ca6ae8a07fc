"""Where data comes from: the names of sources, what a relayer states, and rows that belong to another account."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.clients import client_at
from support.named_sources import HEADER, Named, addressed, silent
from support.scripted_server import Answer, Request, scripted

import loopring_lab as lab
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.origin import Source
from loopring_lab.relayer import Relayer
from loopring_lab.sources.client import Client

WORLD = Named("a small world", 4)
ACCOUNT = WORLD.accounts[0]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("HTTPS://API.example.org:443/", "https://api.example.org"),
        ("https://api.example.org/loopring/", "https://api.example.org/loopring"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_is_the_same_source_however_it_is_written(address, name):
    assert Source.at(address) == Source(name)


def test_what_a_relayer_states_is_known_with_its_first_answer():
    with Relayer(WORLD) as relayer:
        client = lab.connect(relayer.base_url, api_key=relayer.api_key, rate=None)
        assert (client.source, client.synthetic) == (
            relayer.base_url,
            False,
        )  # nothing was asked yet
        frame = client.trades(ACCOUNT)
        assert (client.source, client.synthetic) == ("a small world", True)
        assert repr(client) == "Client(a small world)"
        assert "Synthetic data" in client._repr_html_()
    assert frame.attrs["source"] == "a small world"
    assert frame.attrs["synthetic"] is True
    assert client.tokens().attrs["synthetic"] is True


@pytest.mark.parametrize(
    "stated",
    [
        *(
            "{",
            "[]",
            '"x"',
            '{"name": 5}',
            '{"name": ""}',
            "{}",
            '{"name": "x", "synthetic": 1}',
            "[" * 9_000,
        ),
        '{"name": "' + 5_000 * "x" + '"}',
    ],
)
def test_an_identity_that_cannot_be_read_is_an_error(stated):
    with Relayer(WORLD) as relayer, silent(relayer, stated) as server:
        client = addressed(relayer, server.base_url)
        for _ in range(2):
            with pytest.raises(LabError, match=r"source|Source"):
                client.tokens()
        assert client.source == server.base_url


def test_another_relayer_at_the_same_address_is_noticed():
    other = json.dumps({"name": "another world", "synthetic": True})
    with Relayer(WORLD) as relayer, silent(relayer, other) as server:
        client = addressed(relayer)
        client.tokens()
        client._transport.base_url = server.base_url
        with pytest.raises(
            UnexpectedAnswer, match=r"'a small world' .*'another world'.*connect again"
        ):
            client.trades(ACCOUNT)
        with pytest.raises(UnexpectedAnswer, match="connect again"):
            client.with_api_key(relayer.api_key).markets()


def test_an_error_answer_does_not_name_the_source():
    def script(number: int, request: Request) -> Answer:
        stated = {HEADER: '{"name": "mine"}'}
        return Answer(503, b"busy") if number == 0 else Answer(200, b"[]", stated)

    with scripted(script) as server:
        client = client_at(server.base_url)
        assert client.tokens().empty
        assert client.source == "mine"


# Recordings


def test_a_recording_is_named_by_its_file_its_caller_or_its_path(made_block, tmp_path):
    for name in ("tokens.json", "markets.json", "trades"):
        (tmp_path / name).symlink_to(made_block / name)
    stated = {
        "name": "a made block",
        "synthetic": True,
        "exchange": "0xAb",
        "chainId": 1,
    }
    for text, source, expected in (
        (None, None, (str(tmp_path.resolve()), False)),
        (None, "mine", ("mine", False)),
        (json.dumps(stated), None, ("a made block", True)),
    ):
        if text:
            (tmp_path / "source.json").write_text(text)
        client = lab.connect(recording=tmp_path, source=source)
        assert (client.source, client.synthetic) == expected
        assert client.tokens().attrs["source"] == expected[0]
    with pytest.raises(LabError, match="names 'a made block'. Leave one of them out"):
        lab.connect(recording=tmp_path, source="mine")
    with pytest.raises(LabError, match="neither is given"):
        lab.connect(source="mine")


# Rows of another account


@contextmanager
def served(change: Callable[[int, dict[str, Any]], None]) -> Iterator[Client]:
    """Serve the trades of the small world, changed; `change` is given the number of the page."""
    tokens = json.dumps(WORLD.tokens())
    markets = json.dumps({"markets": WORLD.markets()})
    with Relayer(WORLD) as relayer:
        rows = {kind: relayer.rows(ACCOUNT, kind) for kind in ("amm", "dex")}
    numbers = iter(range(100))

    def script(number: int, request: Request) -> Answer:
        if "trades" not in request.path:
            return Answer(
                body=(tokens if request.path.endswith("tokens") else markets).encode()
            )
        kind = "amm" if "fillTypes=amm" in request.path else "dex"
        answer = {
            "totalNum": len(rows[kind]),
            "trades": [list(row) for row in rows[kind]],
        }
        change(next(numbers), answer)
        return Answer(body=json.dumps(answer).encode())

    with scripted(script) as server:
        client = client_at(server.base_url)
        yield client
        client.close()


def test_rows_of_another_account_are_an_error():
    def foreign(number: int, answer: dict[str, Any]) -> None:
        for row in answer["trades"][:4]:
            row[9] = "999"

    with (
        served(foreign) as client,
        pytest.raises(
            UnexpectedAnswer,
            match=r"got 8 rows of other accounts, such as account 999. Check base_url",
        ),
    ):
        client.trades(ACCOUNT)


def test_rows_that_name_no_account_are_those_of_the_account_asked_for():
    def short(number: int, answer: dict[str, Any]) -> None:
        answer["trades"] = [row[:7] for row in answer["trades"]]

    with served(short) as client:
        assert client.trades(ACCOUNT)["account_id"].eq(ACCOUNT).all()
