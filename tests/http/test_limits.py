"""Whatever a server sends, an exchange ends in time and in little memory, and Ctrl-C ends it at once."""

import gc
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.interrupts import interrupted, may_drop_an_interrupt
from support.scripted_server import Answer, repeating, talking

from loopring_lab.errors import RelayerError, RelayerTimeout, TransportError
from loopring_lab.http.transport import Transport
from loopring_lab.sources.client import Client

KEY = "k3y-that-must-never-be-seen-0123456789"
Talk = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = OK + b"Content-Encoding: gzip\r\n\r\n"
CERTIFICATE = Path(__file__).parents[1] / "support" / "relayer_example.pem"
PATIENCE = 600  # seconds: a test that waits longer hangs, however busy the machine is
pytestmark = may_drop_an_interrupt


def transport(base_url: str, **how: Any) -> Transport:
    return Transport(base_url, api_key=KEY, rate=None, **{"attempts": 1} | how)


def trickle(begin: bytes, again: bytes, pause: float = 0.02) -> Talk:
    """Send something now and then, for as long as anybody listens."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(begin)
        while True:
            connection.sendall(again)
            time.sleep(pause)

    return talk


HEAD = trickle(OK + b"X-A: ", b"b")
ENDLESS = {
    "silence": trickle(b"", b""),
    "body": trickle(OK + b"Content-Length: 100000000\r\n\r\n", b" "),
    "chunks": trickle(CHUNKED, b"1\r\n \r\n"),
    # RFC 1952: the name of a file, which may be of any length and expands to nothing.
    "gzip": trickle(GZIP + b"\x1f\x8b\x08\x08" + bytes(6), b"a"),
}


def through_tls(talk: Talk) -> Talk:
    """Talk as a server with the certificate of these tests does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    def talk_securely(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1 << 16)
            talk(wrapped)

    return talk_securely


@pytest.mark.parametrize("talk", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_an_end_is_cut_off(talk):
    """The server goes on until the client hangs up, so a client that looked at no clock would never return."""
    hung_up = threading.Event()

    def listen(connection: socket.socket) -> None:
        try:
            talk(connection)
        finally:
            hung_up.set()

    with talking(listen) as base_url, pytest.raises(TransportError) as late:
        transport(base_url, timeout=0.3).post("/account", b"{}", signature="0x1b")
    assert late.value.maybe_received
    assert isinstance(late.value, RelayerTimeout)
    more = (
        "within 0.3 s. Try again later, or allow more time: connect(..., timeout=...)"
    )
    assert more in str(late.value)
    assert talk is ENDLESS["silence"] or hung_up.wait(PATIENCE)


@pytest.mark.parametrize(
    ("variable", "host"),
    [("REQUESTS_CA_BUNDLE", "localhost"), ("CURL_CA_BUNDLE", "127.0.0.1")],
)
def test_a_server_of_this_machine_may_have_a_certificate_of_its_own(
    monkeypatch, variable, host
):
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv(variable, str(CERTIFICATE))
    answer = OK + b"Content-Length: 2\r\n\r\n{}"
    listen = through_tls(lambda connection: connection.sendall(answer))
    with talking(listen, at_once=True) as base_url:
        port = base_url.rpartition(":")[2]
        secure = transport(f"https://{host}:{port}", timeout=PATIENCE, proxies=True)
        assert secure.get("/exchange/tokens") == b"{}"


def packed(data: bytes, coding: str = "gzip") -> bytes:
    return (
        OK
        + f"Content-Encoding: {coding}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )


# The beginning of a gzip file, and what may follow it as often as one likes: a mebibyte of zeros each.
PACKER = zlib.compressobj(wbits=31)
FIRST_ZEROS = PACKER.compress(bytes(1 << 20)) + PACKER.flush(zlib.Z_FULL_FLUSH)
MORE_ZEROS = PACKER.compress(bytes(1 << 20)) + PACKER.flush(zlib.Z_FULL_FLUSH)
BOMB = FIRST_ZEROS + MORE_ZEROS * 4095


def once(answer: bytes) -> Talk:
    """Send an answer and nothing more."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)

    return talk


HOSTILE: dict[str, Talk] = {
    "gzip without an end": trickle(GZIP + FIRST_ZEROS, MORE_ZEROS, 0),
    "4 GiB in gzip": once(packed(BOMB)),
    "gzip twice": once(packed(2 * zlib.compress(b"{}", wbits=31))),
    "gzip that breaks off": once(packed(zlib.compress(b"{}", wbits=31)[:-1])),
    "a length that is not reached": once(OK + b"Content-Length: 50\r\n\r\n{}"),
    "a chunk of 2^64 bytes": once(CHUNKED + b"1" + b"0" * 16 + b"\r\n{}"),
    "no HTTP": once(bytes(range(256)) * 40),
}


TOO_LARGE = ("gzip without an end", "4 GiB in gzip")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_an_error_and_takes_little_memory(name):
    with talking(HOSTILE[name]) as base_url:
        client = transport(base_url, timeout=PATIENCE)
        tracemalloc.start()
        try:
            with pytest.raises((TransportError, RelayerError)) as caught:
                client.get("/exchange/tokens")
            assert tracemalloc.get_traced_memory()[1] < 48 << 20
        finally:
            tracemalloc.stop()
    assert str(caught.value).endswith("(GET /api/v3/exchange/tokens).")
    assert ("larger than 16 MiB" in str(caught.value)) == (name in TOO_LARGE)


def test_gzip_is_expanded():
    text = b'{"a": "' + os.urandom(300_000).hex().encode() + b'"}'
    answer = Answer(200, zlib.compress(text, wbits=31), {"Content-Encoding": "gzip"})
    with repeating(answer) as server:
        assert transport(server.base_url).get("/exchange/tokens") == text


def client_of(base_url: str, **how: Any) -> Client:
    return Client(transport(base_url, attempts=6, **how))


# Ctrl-C


@pytest.mark.parametrize(
    "talk", [HEAD, ENDLESS["silence"], ENDLESS["body"]], ids=["head", "silence", "body"]
)
def test_ctrl_c_ends_a_call(talk):
    """Also where a server sends one header for ever, which no time limit ends."""
    with talking(talk) as base_url:
        client = client_of(base_url, timeout=1_000)
        with interrupted(0.1):
            client.count(5)


def test_ctrl_c_ends_the_wait_for_another_attempt():
    with (
        repeating(Answer(429, b"", {"Retry-After": "20"})) as server,
        interrupted(0.1),
    ):
        client_of(server.base_url).count(5)


def python(program: str, base_url: str) -> None:
    begin = "import os, sys, threading, loopring_lab as lab\nclient = lab.connect(sys.argv[1], rate=None, timeout=1_000)\n"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", begin + program, base_url],
        check=True,
        timeout=4 * PATIENCE,
    )


def test_a_dead_exchange_does_not_delay_the_end_of_a_process():
    program = "threading.Thread(target=client.count, args=(5,), daemon=True).start(); threading.Event().wait(0.5)"
    with talking(ENDLESS["body"]) as base_url:
        python(program, base_url)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_connections_of_its_own():
    program = (
        "assert client.count(5) == 7\n"
        "child = os.fork()\n"
        "assert client.count(5) == 7\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
    )
    with repeating(Answer(body=b'{"totalNum": 7, "trades": []}')) as server:
        python(program, server.base_url)
        assert len(server.requests) == 3


def test_a_client_that_is_gone_leaves_no_connection_open():
    """Without waiting for the garbage collector, which a session of many clients may outrun."""
    gc.disable()
    try:
        with repeating(Answer(body=b'{"totalNum": 7}')) as server:
            transport = Transport(server.base_url, rate=None)
            assert transport.get("/user/trades")
            gone = weakref.ref(transport)
            del transport
            assert gone() is None
    finally:
        gc.enable()
