"""What strangers cannot do to an embedded relayer: read it from a web page, forge a key, hold it up."""

import gc
import http.client
import json
import logging
import os
import random
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from hashlib import sha256

import pytest
import requests
from support.key_update_requests import request_signature, signed_update

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, Settings, World, connections, database

ACCOUNT = 10083
API = "/api/v3"
INFO = f"GET {API}/exchange/info HTTP/1.1\r\n".encode()


def port_of(relayer):
    return int(relayer.base_url.rpartition(":")[2])


def status(relayer, host, path=f"{API}/exchange/info"):
    connection = http.client.HTTPConnection("127.0.0.1", port_of(relayer), timeout=5)
    connection.putrequest("GET", path, skip_host=True)
    for value in host:
        connection.putheader("Host", value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200 or set(json.loads(body)["resultInfo"]) == {"code", "message"}
    return answer.status


# The header Host


def test_only_its_own_names_are_answered(relayers):
    relayer = relayers(hosts=("relayer.example", "localhost:9000"))
    port = port_of(relayer)
    for name in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        assert status(relayer, [f"{name}:{port}"]) == 200
    for allowed in ("relayer.example", "Relayer.Example", "localhost:9000"):
        assert status(relayer, [allowed]) == 200
    wrong = [
        "evil.example", f"evil.example:{port}", "127.0.0.1", "localhost", f"localhost:{port + 1}", "",
        f"localhost.evil.example:{port}", f"127.0.0.1.nip.io:{port}", f"localhost:{port}@evil.example",
        f"0.0.0.0:{port}", f"relayer.example:{port}", f" evil localhost:{port}", f"localhost:{port}\xa0",
    ]  # fmt: skip
    assert {host: status(relayer, [host]) for host in wrong} == dict.fromkeys(wrong, 403)
    assert status(relayer, [f"localhost:{port}", "evil.example"]) == 400
    for path in ("/docs", "/openapi.json", f"{API}/user/trades?accountId={ACCOUNT}", "/nothing"):
        assert status(relayer, ["evil.example"], path) == 403
    assert relayer.counts.requests["/user/trades"] == 0


def test_a_request_without_a_host_is_refused(relayers):
    relayer = relayers()
    assert exchange(relayer, INFO.replace(b"1.1", b"1.0") + b"\r\n").startswith(b"HTTP/1.1 403 Forbidden")
    assert exchange(relayer, INFO + b"\r\n").startswith(b"HTTP/1.1 400 Bad Request")


# Keys


def test_a_recordings_owners_are_a_secret_of_the_relayer(folder, tmp_path):
    first, second = Relayer(recording=folder), Relayer(recording=folder)
    addresses = {relayer.signer(7).address for relayer in (first, second)}
    assert len(addresses) == 2
    assert first.signer(7).address == first.signer(7).address
    kept = [Relayer(recording=folder, store=tmp_path / "a.db").signer(7).address for _ in range(2)]
    assert len({*kept, *addresses}) == 3
    assert World().label == Relayer(World()).source
    assert Relayer(World()).signer(ACCOUNT).address == Relayer(World()).signer(ACCOUNT).address


def test_a_key_forged_from_public_text_opens_no_recording(folder):
    """The keys were once derived from the label, which anybody can read or guess."""
    from eth_account import Account
    from eth_account.messages import encode_defunct

    with Relayer(recording=folder) as relayer:
        assert forge(relayer, Account, encode_defunct, relayer.source) == 104005
    with Relayer(World(size=0.001)) as relayer:  # the same attempt works where the data is made up
        assert forge(relayer, Account, encode_defunct, relayer.source) is None


def forge(relayer, account_type, encode, label):
    account = relayer.accounts[0]
    signer = account_type.from_key(sha256(f"loopring_lab throwaway key: {label}, {account}".encode()).digest())
    text = protocol.key_seed(Settings().exchange, 0)
    key = protocol.l2_key(bytes(signer.sign_message(encode(text=text)).signature))
    url = f"{relayer.base_url}{API}/apiKey?accountId={account}"
    headers = {"X-API-SIG": request_signature(relayer.base_url, key, account)}
    answer = requests.get(url, headers=headers, timeout=5).json()
    return answer.get("resultInfo", {}).get("code")


def test_a_store_with_owners_of_public_text_is_refused(folder, tmp_path):
    path = tmp_path / "relayer.db"
    Relayer(recording=folder, store=path)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM facts WHERE name = 'owners'")
    db.close()
    with pytest.raises(LabError, match="anybody can derive.*Give another file"):
        Relayer(recording=folder, store=path)


# The store


@pytest.mark.skipif(os.name != "posix", reason="file modes: run on Linux or macOS")
def test_store_files_are_the_owners_alone(tmp_path):
    """In a process of its own, for the umask is the process's; every mode is read as soon as a file is there."""
    code = (
        "import os, sys; os.umask(0)\n"
        "from pathlib import Path\n"
        "import sqlite3\n"
        "opened, modes = sqlite3.connect, []\n"
        "def connect(name, *rest, **more):\n"
        "    modes.append(oct(os.stat(name).st_mode & 0o777))\n"
        "    return opened(name, *rest, **more)\n"
        "sqlite3.connect = connect\n"
        "from loopring_lab.relayer import Relayer, World\n"
        "relayer = Relayer(World(size=0.001), store=sys.argv[1])\n"
        "relayer.add_account(500, '0x' + 40 * '1')\n"
        "folder = Path(sys.argv[1]).parent\n"
        "print(set(modes), sorted((f.name, oct(f.stat().st_mode & 0o777)) for f in folder.iterdir()))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "relayer.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    names = [(name, "0o600") for name in ("relayer.db", "relayer.db-shm", "relayer.db-wal")]
    assert ended.stdout == f"{ {'0o600'} } {names}\n"


@pytest.mark.skipif(os.name != "posix", reason="file modes: run on Linux or macOS")
def test_a_store_that_others_could_read_is_closed_to_them(tmp_path):
    path = tmp_path / "relayer.db"
    Relayer(World(size=0.001), store=path)
    path.chmod(0o644)
    Relayer(World(size=0.001), store=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_reads_wait_for_no_writer(tmp_path, relayers, monkeypatch):
    monkeypatch.setattr(database, "WRITE_SECONDS", 1.5)
    path = tmp_path / "relayer.db"
    relayer = relayers(store=path)
    signature = request_signature(relayer.base_url, relayer.l2_key(ACCOUNT), ACCOUNT)
    body = signed_update(relayer, ACCOUNT)
    answers = []

    def post():
        url, headers = f"{relayer.base_url}{API}/account", {"X-API-SIG": body["ecdsaSignature"]}
        answers.append(requests.post(url, json=body, headers=headers, timeout=10))

    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        writer = threading.Thread(target=post)
        writer.start()
        while not relayer.counts.requests["/account"]:
            time.sleep(0.001)
        api_key = get(relayer, "/apiKey", {"X-API-SIG": signature}).json()["apiKey"]
        for path_read in (
            "/account",
            "/user/trades",
            "/user/updateInfo",
            "/user/offchainFee",
            "/mix/markets",
        ):
            assert get(relayer, path_read, {"X-API-KEY": api_key}).status_code == 200
        assert not answers  # the writer is still waiting
        writer.join(10)
    finally:
        other.close()
    assert answers[0].status_code == 503
    assert "try again" in answers[0].json()["resultInfo"]["message"]
    post()
    assert answers[1].json()["status"] == "received"


def get(relayer, path, headers):
    query = {"accountId": ACCOUNT, "requestType": 2} if "Fee" in path else {"accountId": ACCOUNT}
    return requests.get(f"{relayer.base_url}{API}{path}", params=query, headers=headers, timeout=10)


# Connections


def exchange(relayer, data, seconds=5.0):
    """Send bytes, and return everything that comes until the relayer closes the connection."""
    with socket.create_connection(("127.0.0.1", port_of(relayer)), timeout=seconds) as stream:
        stream.sendall(data)
        with stream.makefile("rb") as answer:
            return answer.read()


def test_half_open_requests_are_timed_out(relayers, monkeypatch):
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.2)
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.02)
    relayer = relayers()
    host = b"Host: localhost:%d\r\n" % port_of(relayer)
    post = f"POST {API}/account HTTP/1.1\r\n".encode() + host + b"X-API-SIG: 0x12\r\n"
    assert exchange(relayer, b"") == b""
    assert exchange(relayer, INFO + host).startswith(b"HTTP/1.1 408 Request Timeout")
    for length in (b"Content-Length: 10\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"):
        assert exchange(relayer, post + length).startswith(b"HTTP/1.1 408 Request Timeout")
    # The response to a request whose body nobody waits for comes at once; the connection ends nevertheless.
    answered = exchange(relayer, INFO + host + b"Content-Length: 10\r\n\r\n")
    assert answered.startswith(b"HTTP/1.1 200")
    # The time is for the whole request: bytes that trickle in do not extend it.
    with socket.create_connection(("127.0.0.1", port_of(relayer)), timeout=5) as stream:
        stream.sendall(INFO)
        stream.settimeout(0.02)
        answer = trickle(stream, until=time.perf_counter() + 5)
    assert answer.startswith(b"HTTP/1.1 408")
    # Requests that come whole may take as long as the relayer likes.
    slow = relayers(latency=0.5)
    assert requests.get(f"{slow.base_url}{API}/exchange/info", timeout=5).status_code == 200


def trickle(stream, until):
    while time.perf_counter() < until:
        stream.sendall(b"X")
        try:
            return stream.recv(1000)
        except TimeoutError:
            continue
    return b""


def test_a_client_that_does_not_read_is_cut_off(folder, monkeypatch):
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.2)
    tokens = [{"tokenId": 1, "symbol": "LRC", "name": "x" * 20_000_000, "decimals": 18, "enabled": True}]
    (folder / "tokens.json").write_text(json.dumps(tokens))
    with Relayer(recording=folder) as relayer:
        request = f"GET {API}/exchange/tokens HTTP/1.1\r\nHost: localhost:{port_of(relayer)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", port_of(relayer)), timeout=5) as stream:
            stream.sendall(request)
            deadline = time.perf_counter() + 5
            while not (seen := open_connections(relayer)) and time.perf_counter() < deadline:
                time.sleep(0.001)
            while open_connections(relayer) and time.perf_counter() < deadline:
                time.sleep(0.01)
            assert (seen, open_connections(relayer)) == (1, 0)


def open_connections(relayer):
    return len(relayer._running[0].server_state.connections)


def test_two_hundred_half_open_connections_starve_nobody(relayers):
    relayer = relayers()
    address, hostile = ("127.0.0.1", port_of(relayer)), []
    try:
        for number in range(connections.MAX_CONNECTIONS + 50):
            hostile.append(socket.create_connection(address, timeout=5))
            hostile[-1].sendall(INFO if number % 2 else b"")
            if number % 50 == 0:
                assert requests.get(f"{relayer.base_url}{API}/exchange/info", timeout=5).status_code == 200
        began = time.perf_counter()
        for _ in range(20):
            assert requests.get(f"{relayer.base_url}{API}/exchange/info", timeout=5).status_code == 200
        assert time.perf_counter() - began < connections.CLIENT_SECONDS / 2
        assert open_connections(relayer) <= connections.MAX_CONNECTIONS
    finally:
        for stream in hostile:
            stream.close()


def test_a_served_client_is_not_cut_off_for_a_new_one(relayers, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    relayer = relayers(latency=0.4)
    answers = []

    def read():
        answers.append(requests.get(f"{relayer.base_url}{API}/exchange/info", timeout=5).status_code)

    clients = [threading.Thread(target=read) for _ in range(3)]
    for client in clients:
        client.start()
    while relayer.counts.requests["/exchange/info"] < 3:
        time.sleep(0.001)
    assert exchange(relayer, b"") == b""
    for client in clients:
        client.join()
    assert answers == [200, 200, 200]


# Bytes that are not what they should be


def odd_requests(port):
    host = b"Host: localhost:%d\r\nConnection: close\r\n" % port
    whole = INFO + host + b"\r\n"
    post = f"POST {API}/account HTTP/1.1\r\n".encode() + host + b"X-API-SIG: 0x12\r\n"
    dice = random.Random(12)
    yield b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n" + host + b"\r\n"
    yield INFO + host + b"X: " + b"a" * 2_000_000 + b"\r\n\r\n"
    yield INFO + host + b"".join(b"X%d: a\r\n" % n for n in range(20_000)) + b"\r\n"
    yield INFO + host + b"X-API-KEY: " + b"a" * 2_000_000 + b"\r\n\r\n"
    yield whole * 3 + b"\x00" * 100_000
    yield INFO + host + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n"
    yield post + b"Content-Length: -5\r\n\r\n"
    yield post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    yield post + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{0000zz\r\n"
    yield post + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"a" * 300_000
    yield INFO + host + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\nzz\r\n"
    yield INFO + host + host + b"\r\n"
    yield b"GET http://evil.example/ HTTP/9.9\r\n" + host + b"\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(500)
    for _ in range(40):
        yield dice.randbytes(dice.randrange(1, 3_000)) + b"\r\n\r\n"
        wrong = bytearray(whole)
        for _ in range(3):
            wrong[dice.randrange(len(wrong))] = dice.randrange(256)
        yield bytes(wrong) + b"\r\n\r\n\x00\r\n\r\n"


@pytest.fixture
def silence(monkeypatch, capfd, caplog):
    """Close rejected connections soon, and check that nothing was printed or logged."""
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.02)
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.3)
    caplog.set_level(logging.DEBUG)
    yield
    assert capfd.readouterr() == ("", "")
    gc.collect()  # a task whose error nobody asked for is reported when it is dropped
    noisy = [
        record
        for record in caplog.get_records("call") + caplog.records
        if record.name.startswith(("uvicorn", "asyncio"))
    ]
    assert [record.getMessage() for record in noisy if record.levelno > logging.DEBUG] == []


@pytest.mark.thorough
@pytest.mark.usefixtures("silence")
def test_odd_bytes_get_4xx_and_leave_no_trace(relayers):
    relayer = relayers()
    answered = 0
    for data in odd_requests(port_of(relayer)):
        try:
            lines = exchange(relayer, data).split(b"HTTP/1.1 ")[1:]
        except ConnectionError:  # closed while there was still more to send
            continue
        assert lines, data[:100]
        assert {line[:1] for line in lines} <= {b"2", b"4"}, (data[:100], lines)
        answered += lines[-1].startswith(b"4")
    assert answered > 70
    assert requests.get(f"{relayer.base_url}{API}/exchange/info", timeout=5).status_code == 200


@pytest.mark.thorough
@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("rest", [b"0\r\nA: " + b"a" * 100_000, b"zz\r\n", b"5;" + b"a" * 100_000])
@pytest.mark.parametrize("latency", [0, 0.1])
def test_odd_bytes_after_the_response_or_before_it_leave_no_trace(relayers, monkeypatch, rest, latency):
    """Bytes that break a request whose response is under way, or was sent; they once left a traceback."""
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.05 + latency)
    relayer = relayers(latency=latency)
    head = INFO + b"Host: localhost:%d\r\nTransfer-Encoding: chunked\r\n\r\n" % port_of(relayer)
    with socket.create_connection(("127.0.0.1", port_of(relayer)), timeout=5) as stream:
        stream.sendall(head)
        answer = b"" if latency else stream.recv(65_536)
        while latency and not relayer.counts.requests:
            time.sleep(0.001)
        stream.sendall(rest)
        with stream.makefile("rb") as end:
            answer += end.read()
    assert answer.startswith(b"HTTP/1.1 400" if latency else b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert requests.get(f"{relayer.base_url}{API}/exchange/info", timeout=5).status_code == 200
