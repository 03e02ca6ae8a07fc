"""Starting and stopping the embedded relayer."""

import asyncio
import gc
import os
import signal
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
    return lambda: [
        t
        for t in threading.enumerate()
        if t not in before and t.name == "embedded relayer"
    ]


def test_start_and_stop_twice_leave_nothing(world, relayer_threads):
    relayer = Relayer(world)
    for _ in range(2):
        assert relayer.start() is relayer.start()
        assert (
            requests.get(
                relayer.base_url + "/api/v3/mix/markets", timeout=600
            ).status_code
            == 200
        )
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
            requests.get(relayer.base_url + "/api/v3/mix/markets", timeout=600)
        except requests.ConnectionError as error:
            errors.append(error)

    client = threading.Thread(target=wait)
    client.start()
    while not relayer.counts.requests:
        time.sleep(0.001)
    relayer.stop()
    client.join(600)
    assert len(errors) == 1
    assert not relayer_threads()


def test_works_inside_a_running_event_loop(world):
    async def inside():
        with Relayer(world) as relayer:
            return await asyncio.to_thread(
                requests.get, relayer.base_url + "/api/v3/mix/markets", timeout=600
            )

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
    assert repr(relayer) == f"Relayer({world.name}, not started)"
    with pytest.raises(LabError, match="start"):
        relayer.base_url  # noqa: B018
    with relayer:
        assert repr(relayer) == f"Relayer({world.name}, {relayer.base_url})"


def test_only_loopback_listens(world):
    with Relayer(world) as relayer:
        assert relayer.base_url.startswith("http://127.0.0.1:")
        assert {
            sock.getsockname()[0] for s in relayer._server.servers for sock in s.sockets
        } == {"127.0.0.1"}


@pytest.mark.skipif(
    os.name != "posix",
    reason="needs SIGINT as a terminal sends it: run on Linux or macOS",
)
def test_run_forever_ends_at_ctrl_c():
    code = (
        "import signal\n"
        "from loopring_lab.relayer import Relayer, World\n"
        # What a job in the background starts ignores Ctrl-C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "relayer = Relayer(World(size=0.001)).start()\n"
        "print(relayer.base_url, flush=True)\n"
        "relayer.run_forever()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        address = process.stdout.readline().strip()
        assert (
            requests.get(address + "/api/v3/mix/markets", timeout=600).status_code
            == 200
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out, err) == (0, "", "")
