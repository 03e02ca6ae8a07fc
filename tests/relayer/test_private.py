"""What strangers cannot do to an embedded relayer: read it from a web page, forge a key, upset it."""

import asyncio
import http.client
import logging
import random
import socket

import requests

ACCOUNT = 10083
API = "/api/v3"
INFO = f"GET {API}/exchange/info HTTP/1.1\r\n".encode()


def port_of(relayer):
    return int(relayer.base_url.rpartition(":")[2])


def status(relayer, host, path=f"{API}/exchange/info"):
    connection = http.client.HTTPConnection("127.0.0.1", port_of(relayer), timeout=600)
    connection.putrequest("GET", path, skip_host=True)
    for value in host:
        connection.putheader("Host", value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_only_its_own_names_are_answered(relayers):
    relayer = relayers(hosts=("relayer.example", "other.example:9000", "[::2]:9000"))
    port = port_of(relayer)
    for name in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        assert status(relayer, [f"{name}:{port}"]) == 200
    for allowed in (
        "relayer.example",
        "Relayer.Example",
        "other.example:9000",
        "[::2]:9000",
    ):
        assert status(relayer, [allowed]) == 200
    wrong = [
        "evil.example",
        f"evil.example:{port}",
        "",
        f"localhost.evil.example:{port}",
        f"127.0.0.1.nip.io:{port}",
        f"localhost:{port}@evil.example",
        f"0.0.0.0:{port}",
        f" evil localhost:{port}",
        f"localhost:{port}\xa0",
        "www.relayer.example",
    ]
    assert {host: status(relayer, [host]) for host in wrong} == dict.fromkeys(
        wrong, 400
    )
    assert status(relayer, [f"localhost:{port}", "evil.example"]) == 400
    assert status(relayer, []) == 400
    for path in (
        "/docs",
        "/openapi.json",
        f"{API}/user/trades?accountId={ACCOUNT}",
        "/nothing",
    ):
        assert status(relayer, ["evil.example"], path) == 400
    assert relayer.counts.requests["/user/trades"] == 0


def test_a_request_for_another_host_is_refused_in_the_contracts_shape(relayers):
    relayer = relayers()
    message = {"code": 100001, "message": "invalid host header"}
    for path in (f"{API}/exchange/info", "/docs", "/nothing"):
        answer = requests.get(
            relayer.base_url + path, headers={"Host": "evil.example"}, timeout=600
        )
        assert (answer.status_code, answer.json()) == (400, {"resultInfo": message})


def test_the_application_starts_under_any_server(relayers):
    """A server that announces its start and its end sends no host."""
    sent = []

    async def receive():
        return {"type": f"lifespan.{'shutdown' if sent else 'startup'}"}

    async def send(message):
        sent.append(message["type"])

    asyncio.run(relayers().app({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def odd_requests(port):
    host = b"Host: localhost:%d\r\nConnection: close\r\n" % port
    whole = INFO + host + b"\r\n"
    post = f"POST {API}/account HTTP/1.1\r\n".encode() + host + b"X-API-SIG: 0x12\r\n"
    dice = random.Random(12)
    yield b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n" + host + b"\r\n"
    yield INFO + host + b"X-API-KEY: " + b"a" * 2_000_000 + b"\r\n\r\n"
    yield INFO + host + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n"
    yield post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(500)
    for _ in range(10):
        yield dice.randbytes(dice.randrange(1, 3_000)) + b"\r\n\r\n"
        wrong = bytearray(whole)
        wrong[dice.randrange(len(wrong))] = dice.randrange(256)
        yield bytes(wrong) + b"\r\n\r\n\x00\r\n\r\n"


def test_odd_bytes_leave_no_trace_and_do_no_harm(relayers, capfd, caplog):
    caplog.set_level(logging.INFO)
    relayer = relayers()
    for data in odd_requests(port_of(relayer)):
        with socket.create_connection(
            ("127.0.0.1", port_of(relayer)), timeout=600
        ) as stream:
            try:
                stream.sendall(data)
                stream.shutdown(socket.SHUT_WR)
                answer = stream.makefile("rb").read()
            except OSError:  # closed while there was still more to send
                continue
        assert answer[:10] in (b"HTTP/1.1 2", b"HTTP/1.1 4", b""), data[:100]
    assert (
        requests.get(f"{relayer.base_url}{API}/exchange/info", timeout=600).status_code
        == 200
    )
    assert capfd.readouterr() == ("", "")
    assert [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith(("uvicorn", "asyncio"))
    ] == []
