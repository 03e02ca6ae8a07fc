"""Starting and stopping the embedded relayer."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests

from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, Settings


@pytest.fixture
def relayer_threads():
    """Name the server threads that have come up since the test began; `connect` may have one of its own."""
    before = set(threading.enumerate())
    return lambda: [t for t in threading.enumerate() if t not in before and t.name == "embedded relayer"]


def test_start_and_stop_twice_leave_nothing(world, relayer_threads):
    relayer = Relayer(world)
    for _ in range(2):
        assert relayer.start() is relayer.start()
        assert requests.get(relayer.base_url + "/api/v3/mix/markets", timeout=5).status_code == 200
        assert len(relayer_threads()) == 1
        address = relayer.base_url
        relayer.stop()
        relayer.stop()
        assert not relayer_threads()
        with pytest.raises(requests.ConnectionError):
            requests.get(address, timeout=1)
    gc.collect()  # an unclosed socket would warn, and warnings are errors


def test_stop_does_not_wait_for_waiting_clients(world, relayer_threads):
    relayer = Relayer(world, Settings(latency=30)).start()
    errors = []

    def wait():
        try:
            requests.get(relayer.base_url + "/api/v3/mix/markets", timeout=20)
        except requests.ConnectionError as error:
            errors.append(error)

    client = threading.Thread(target=wait)
    client.start()
    deadline = time.monotonic() + 5
    while not relayer.counts.requests and time.monotonic() < deadline:
        time.sleep(0.001)
    relayer.stop()
    client.join(10)
    assert len(errors) == 1
    assert not relayer_threads()


def test_stop_closes_connections_that_arrive_meanwhile(world):
    """A thread that still polls may connect while the server stops; the server must not forget it."""
    relayer = Relayer(world).start()
    server, _, _ = relayer._running
    busy, let = threading.Event(), threading.Event()
    server._loop.call_soon_threadsafe(lambda: (busy.set(), let.wait(20)))
    assert busy.wait(20)
    port = int(relayer.base_url.rpartition(":")[2])
    clients = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(5)]
    stopping = threading.Thread(target=relayer.stop)
    server.request_stop()
    let.set()
    stopping.start()
    stopping.join(20)
    for client in clients:
        with client, contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    gc.collect()  # an unclosed socket would warn, and warnings are errors


def test_works_inside_a_running_event_loop(world):
    async def inside():
        with Relayer(world) as relayer:
            return await asyncio.to_thread(requests.get, relayer.base_url + "/api/v3/mix/markets", timeout=5)

    assert asyncio.run(inside()).status_code == 200


def test_a_taken_port_is_a_clear_error(world):
    with Relayer(world) as first:
        port = int(first.base_url.rpartition(":")[2])
        with pytest.raises(LabError, match=f"port {port}.*port=0"):
            Relayer(world, port=port).start()
    with Relayer(world, port=port) as second:
        assert second.base_url == f"http://127.0.0.1:{port}"
    with pytest.raises(LabError, match="70000"):
        Relayer(world, port=70000).start()


def test_an_address_needs_a_running_relayer(world):
    relayer = Relayer(world)
    assert repr(relayer) == "Relayer(synthetic world, seed 1, not started)"
    with pytest.raises(LabError, match="start"):
        relayer.base_url  # noqa: B018
    with relayer:
        assert repr(relayer) == f"Relayer(synthetic world, seed 1, {relayer.base_url})"


def test_a_world_and_a_recording_are_one_too_many(world, tmp_path):
    with pytest.raises(LabError, match="Give one of them"):
        Relayer(world, recording=tmp_path)


def test_only_loopback_listens(world):
    with Relayer(world) as relayer:
        assert relayer.base_url.startswith("http://127.0.0.1:")
        assert {sock.getsockname()[0] for s in relayer._running[0].servers for sock in s.sockets} == {"127.0.0.1"}


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT as a terminal sends it: run on Linux or macOS")
def test_run_forever_ends_at_ctrl_c():
    code = (
        "from loopring_lab.relayer import Relayer, World\n"
        "relayer = Relayer(World(size=0.001)).start()\n"
        "print(relayer.base_url, flush=True)\n"
        "relayer.run_forever()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        address = process.stdout.readline().strip()
        assert requests.get(address + "/api/v3/mix/markets", timeout=5).status_code == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (0, "", "")


STEPPING = """
import threading, time
from loopring_lab.relayer.server import Worker

begun = threading.Event()

def step():
    begun.set()
    time.sleep(0.3)
    print("the step ended")

Worker(step, 0).start()
begun.wait()
"""
STORING = """
import threading, time
from loopring_lab.relayer.database import Store

store, begun = Store(None, {}), threading.Event()

def use():
    with store.transaction():
        begun.set()
        time.sleep(0.3)
        print(store.setdefault("a", "kept"))

threading.Thread(target=use, daemon=True).start()
begun.wait()
"""


@pytest.mark.parametrize(("code", "printed"), [(STEPPING, "the step ended\n"), (STORING, "kept\n")])
def test_a_program_that_ends_lets_the_work_under_way_end_first(code, printed):
    """Closing the database while a thread was using it once crashed the whole program."""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")
