"""Addresses, keys and numbers are checked before they are used; secrets go only where they belong."""

import traceback
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_server import Answer, repeating

import loopring_lab as lab
from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.http.addresses import is_confidential
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Settings
from loopring_lab.sources.client import Client

KEY = 'k3y-that-must/never+be="seen"-0123456789'
L2_KEY = protocol.L2Key(7, *protocol.public_key(7))


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    """Return the message of a refusal, and the variables of the package's frames, which tracebacks show."""
    with pytest.raises(LabError) as caught:
        call()
    frames = [frame for frame, _ in traceback.walk_tb(caught.tb)]
    ours = [
        frame.f_locals for frame in frames if frame.f_globals["__name__"] != __name__
    ]
    return str(caught.value), repr(ours) + repr(caught.value.__context__)


# Keys

START = KEY[:4]
END = KEY[4:]
SPOILED = {
    f"{KEY}\n": "it begins or ends with white space. Read it with .strip()",
    f"{START}\r\nX-Other: 1{END}": "character 5 of 52 cannot be sent, because it is not printable ASCII",
    f"{START}€{END}": "character 5 of 41 cannot be sent, because it is not printable ASCII. Copy it again",
    f"{KEY}\ud800": "character 41 of 41",
}


@pytest.mark.parametrize(("key", "said"), SPOILED.items(), ids=map(ascii, SPOILED))
@pytest.mark.parametrize("door", ["connect", "with_api_key", "signature"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key, said, door):
    if "\ud800" in key and door == "signature":
        pytest.skip("it does not come that far")
    doors: dict[str, Callable[[], object]] = {
        "connect": lambda: lab.connect("https://host", api_key=key),
        "with_api_key": lambda: lab.connect("https://host").with_api_key(key),
        "signature": lambda: lab.connect("https://host").update_account(
            {"ecdsaSignature": key}
        ),
    }
    message, trace = refusal(doors[door])
    assert said in message
    assert message.startswith("signature: " if door == "signature" else "api_key: ")
    assert KEY[:4] not in message + trace
    assert KEY[5:] not in message + trace


@pytest.mark.parametrize(
    "key", [918273645, b"bytes", 2**300, ["918273645"], True, 918273645.0]
)
def test_a_key_is_text(key):
    message, trace = refusal(lambda: lab.connect("https://host", api_key=key))
    assert message == "api_key: expected text, which is how relayers give it."
    assert str(key) not in message + trace


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_key_is_accepted_if_it_can_be_sent(key):
    can_be_sent = key.isascii() and key.isprintable() and key == key.strip()
    with nullcontext() if can_be_sent else pytest.raises(LabError, match="^api_key: "):
        Transport("https://host", api_key=key)


# Numbers


@pytest.mark.parametrize(
    "value", [0, -1, float("nan"), float("inf"), "5", True, 10**400, [1]]
)
@pytest.mark.parametrize("name", ["timeout", "rate"])
def test_limits_are_numbers_above_0(name, value):
    message, _ = refusal(lambda: lab.connect("https://host", **{name: value}))
    assert message.startswith(f"{name}={value!r}"[:40])
    assert "above 0" in message
    assert ("or None for no limit" in message) == (name != "timeout")


def test_a_timeout_is_at_most_a_day():
    assert (
        "at most 86400"
        in refusal(lambda: lab.connect("https://host", timeout=86_401))[0]
    )
    lab.connect("https://host", timeout=86_400, rate=None)


# Addresses

NOT_ADDRESSES = [
    "http://[",
    "http://[::1",
    "http://]",
    "http://host:x",
    "http://host:99999",
    "http://host:0",
    "http://:80",
    "https://:pw@host",
    "https://user:pw@host",
    "https://user@host",
    "https://@host",
    "//host",
    "http:host",
    "https://host/a b",
    "https://host\n",
    " https://host",
    "https://ho\tst",
    "https://host\0",
    "https://hößt",
    "https://good\\@evil",
    "https://host?key=pw",
    "https://host#pw",
    "https://a..b",
    "https://" + 64 * "a",
    "https://%31",
    "file:///etc",
    "javascript:1",
    "https://host\ud800",
    "https://",
    "",
]


@pytest.mark.parametrize(
    "address", [*NOT_ADDRESSES, 7, b"https://host", None], ids=ascii
)
def test_what_is_not_an_address_is_refused_and_not_repeated(address):
    message, _ = refusal(lambda: Transport(address))
    assert message.startswith(
        "base_url: this is not a relayer's address. Give one like https://host"
    )
    assert "pw" not in message
    assert "evil" not in message


def test_who_can_read_what_is_sent():
    for address in (
        "https://host",
        "HTTPS://host",
        "http://127.9.9.9:1",
        "http://[::1]",
        "http://localhost",
        "http://LOCALHOST:1",
    ):
        assert is_confidential(address)
    for address in (
        "http://host",
        "http://10.0.0.1",
        "http://0.0.0.0",
        "http://localhost.evil.example",
        "http://[::]",
    ):
        assert not is_confidential(address)


def test_secrets_need_https_unless_asked_for(monkeypatch):
    monkeypatch.delenv("LOOPRING_API_KEY", raising=False)
    plain = lab.connect("http://relayer.example")
    for call in (
        lambda: lab.connect("http://relayer.example", api_key=KEY),
        lambda: plain.with_api_key(KEY),
        lambda: plain.api_key(L2_KEY, 7),
        lambda: plain.update_account({"ecdsaSignature": "0x1b"}),
    ):
        message, trace = refusal(call)
        assert message == (
            "http://relayer.example: over plain http, anyone on the way can read an API key or a signature. "
            "Give an https address, or connect(..., allow_http=True) if the network is trusted."
        )
        assert KEY not in trace
    monkeypatch.setenv("LOOPRING_API_KEY", KEY)
    refusal(lambda: lab.connect("http://relayer.example"))
    assert (
        lab.connect("http://relayer.example", allow_http=True).source
        == "http://relayer.example"
    )
    assert lab.connect("http://127.0.0.1:9").source == "http://127.0.0.1:9"


def test_a_loopback_address_is_not_asked_through_a_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with repeating(Answer()) as server:
        assert Transport(server.base_url, attempts=1).get("/exchange/tokens") == b"{}"


# Answers that repeat a secret


@pytest.mark.parametrize("number", [10**5_000, -(10**5_000)], ids=["large", "small"])
def test_a_number_too_long_to_be_written_is_an_error_as_any_other(number):
    client = Client(Transport("http://127.0.0.1:1"))
    refused: list[Callable[[], object]] = [
        lambda: Transport("http://127.0.0.1:1", timeout=number),
        lambda: client.count(number),
        lambda: client.trades(5, since=number),
        lambda: Settings(chain_id=number),
    ]
    for call in refused:
        with pytest.raises(LabError, match="a number of too many digits"):
            call()
