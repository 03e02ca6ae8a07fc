"""Whatever a server does, an exchange ends in time and in little memory, and Ctrl-C ends it at once."""

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
from support.scripted_server import Answer, Request, repeating, scripted, talking
from support.wire_rows import page, row

import loopring_lab as lab
from loopring_lab.errors import RelayerError, RelayerTimeout, TransportError
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, World
from loopring_lab.sources.client import Client
from loopring_lab.sources.paging import PAGE
from loopring_lab.tables.rows import FILL_TYPES

KEY = "k3y-that-must-never-be-seen-0123456789"
Talk = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = OK + b"Content-Encoding: gzip\r\n\r\n"
CERTIFICATE = Path(__file__).parents[1] / "support" / "relayer_example.pem"
PATIENCE = 30  # seconds: a test that waits longer hangs, however busy the machine is
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


ENDLESS = {
    "silence": trickle(b"", b""),
    "head": trickle(OK, b"X-A: b\r\nX-"),
    "one header": trickle(OK + b"X-A: ", b"b"),
    "body": trickle(OK + b"Content-Length: 100000000\r\n\r\n", b" "),
    "chunks": trickle(CHUNKED, b"1\r\n \r\n"),
    "100 Continue": trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0),
    "gzip": trickle(GZIP + zlib.compress(b"{}", wbits=31)[:10], b"\0"),
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
    """The server goes on until the client hangs up, so a client without a deadline would never return."""
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


def test_a_head_that_drips_through_tls_is_cut_off(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    lookup = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **how: lookup("127.0.0.1", *rest, **how),
    )
    with talking(through_tls(ENDLESS["head"]), at_once=True) as base_url:
        port = base_url.rpartition(":")[2]
        slow = transport(f"https://relayer.example:{port}", timeout=0.5, proxies=True)
        with pytest.raises(RelayerTimeout, match="answer arrived within 0.5 s"):
            slow.get("/exchange/tokens")


def packed(data: bytes, coding: str = "gzip") -> bytes:
    return (
        OK
        + f"Content-Encoding: {coding}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )


# 4 GiB of zeros, in members of 4 MiB.
BOMB = zlib.compress(bytes(1 << 22), wbits=31) * 1024


ZEROS = zlib.compress(bytes(1 << 20), wbits=31)


def once(answer: bytes) -> Talk:
    """Send an answer and nothing more."""

    def talk(connection: socket.socket) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)

    return talk


HOSTILE: dict[str, Talk] = {
    "gzip without an end": trickle(GZIP, ZEROS, 0),
    "4 GiB in gzip": once(packed(BOMB)),
    "gzip that breaks off": once(packed(zlib.compress(b"{}", wbits=31)[:-1])),
    "brotli": once(packed(b"{}", "br")),
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
    parts = [zlib.compress(part, wbits=31) for part in (text[:5], text[5:])]
    with repeating(
        Answer(200, b"".join(parts), {"Content-Encoding": "gzip"})
    ) as server:
        assert transport(server.base_url).get("/exchange/tokens") == text


# Budgets


def client_of(base_url: str, **how: Any) -> Client:
    return Client(transport(base_url, attempts=6, **how))


def test_a_wait_beyond_the_budget_is_not_begun():
    with repeating(Answer(429, b"", {"Retry-After": "20"})) as server:
        with pytest.raises(
            RelayerTimeout,
            match=r"would come after 20.0 s, beyond max_seconds=15\. Allow",
        ):
            client_of(server.base_url, max_seconds=15).count(5)
        assert len(server.requests) == 1


def test_waiting_for_a_turn_counts():
    with repeating(Answer(body=b'{"totalNum": 1, "trades": []}')) as server:
        client = Client(Transport(server.base_url, rate=0.01, max_seconds=15))
        client.count(5)
        with pytest.raises(
            RelayerTimeout,
            match=r"A request's turn would come in \d+\.\d s .*, beyond max_seconds=15\.",
        ):
            client.count(5)


def test_all_answers_of_an_operation_count_together():
    rows = [row(id=str(number), orderHash=f"0x{number:x}") for number in range(5_000)]

    def script(number: int, request: Request) -> Answer:
        offset = int(request.path.partition("offset=")[2].partition("&")[0] or 0)
        time.sleep(0.05)
        return Answer(body=page(rows[offset : offset + PAGE], len(rows)))

    with scripted(script) as server:
        with pytest.raises(RelayerTimeout, match="beyond max_seconds=0.3"):
            list(client_of(server.base_url, max_seconds=0.3).pages([(5, "dex")]))
        with pytest.raises(
            TransportError,
            match=r"together are larger than max_bytes\. Allow more: connect",
        ):
            list(client_of(server.base_url, max_bytes=100_000).pages([(5, "dex")]))
        # The first of the two calls ends after 0.3 s, long before all its pages.
        assert len(server.requests) < 150  # of 200
        assert (
            sum(
                page.batch.counts[0]
                for page in client_of(server.base_url).pages([(5, "dex")])
            )
            == 5_000
        )


def test_bytes_are_counted_for_each_history_of_a_sync(tmp_path):
    with Relayer(World(size=0.01)) as relayer:
        accounts = relayer.accounts[:4]
        histories = [(account, kind) for account in accounts for kind in FILL_TYPES]
        free = lab.connect(relayer.base_url, api_key=relayer.api_key, rate=None)
        sizes = {
            one: sum(len(page.body) for page in free.pages([one])) for one in histories
        }
        most = max(*sizes.values(), sum(map(len, free.listings())))
        assert sum(sizes.values()) > 1.5 * most
        limited = lab.connect(
            relayer.base_url, api_key=relayer.api_key, rate=None, max_bytes=most
        )
        report = lab.Archive(tmp_path / "archive").sync(limited, accounts=accounts)
        assert report["rows"].sum() == sum(
            len(relayer.rows(account)) for account in accounts
        )
        limited = lab.connect(
            relayer.base_url, api_key=relayer.api_key, rate=None, max_bytes=most - 1
        )
        with pytest.raises(TransportError, match="larger than max_bytes"):
            list(limited.pages([max(sizes, key=lambda one: sizes[one])]))


# Ctrl-C


@pytest.mark.parametrize("stage", ["silence", "one header", "body", "100 Continue"])
def test_ctrl_c_ends_a_call(stage):
    with talking(ENDLESS[stage]) as base_url:
        client = client_of(base_url, timeout=1_000)
        with interrupted(0.1):
            client.count(5)


def test_ctrl_c_ends_the_wait_for_another_attempt():
    with (
        repeating(Answer(429, b"", {"Retry-After": "20"})) as server,
        interrupted(0.1),
    ):
        client_of(server.base_url).count(5)


def test_after_ctrl_c_nothing_more_is_requested():
    rows = [row(id=str(number), orderHash=f"0x{number:x}") for number in range(50)]

    def script(number: int, request: Request) -> Answer:
        return Answer(body=page(rows, 50_000)) if number == 0 else Answer(503, b"")

    with scripted(script) as server:
        with interrupted(0.15):
            list(client_of(server.base_url).pages([(5, "dex")]))
        time.sleep(0.05)
        before = len(server.requests)
        time.sleep(0.4)  # longer than the pauses between attempts by now
        assert len(server.requests) == before


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
