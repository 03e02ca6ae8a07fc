"""Ctrl-C ends every operation within a second, however the relayer or a file stalls it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from attacks.answers import regular, row
from attacks.behaviours import bomb, head
from attacks.stalls import STALLS
from support.child_output import wait

SECONDS = 1.0
ROWS = 50
NEEDED = {"threads": 3, "progress bar": 3, "sync": 3, "receipt": 2}
"""Requests after which an operation is surely stalled; one where nothing else is said."""


class Stalling(NamedTuple):
    port: int
    asked: dict[str, threading.Semaphore]


def slowly(connection: socket.socket, data: bytes, seconds: float = 0.05) -> None:
    while True:
        connection.sendall(data)
        time.sleep(seconds)


def answer(connection: socket.socket, name: str, target: str) -> None:
    """Answer a request in the way that its path names."""
    if name == "head":
        slowly(connection, b"H")
    elif name == "silence":
        connection.recv(1)
    elif name == "100-Continue":
        slowly(connection, b"HTTP/1.1 100 Continue\r\n\r\n", 0.01)
    elif name == "redirects":
        connection.sendall(head("302 Found", f"Location: {target}", length=10**6))
        slowly(connection, b" ")
    elif name == "gzip-bomb":
        connection.sendall(head("200 OK", "Content-Encoding: gzip") + bomb())
    elif name == "retry":
        connection.sendall(head("503 Later", "Retry-After: 60", length=0))
    elif name in ("threads", "progress-bar", "sync") and "offset=0" in target:
        body = json.dumps({"totalNum": 10**6, "trades": [row(number) for number in range(ROWS, 0, -1)]})
        connection.sendall(head(length=len(body)) + body.encode())
    elif name in ("rate", "receipt") or (name == "sync" and "trades" not in target):
        kind = "markets" if "markets" in target else "tokens" if "tokens" in target else "account"
        pending = {"transactions": [{"hash": "0x" + "ab" * 32, "status": "received"}]}
        body = json.dumps(pending) if "updateInfo" in target else regular(kind).decode()
        connection.sendall(head(length=len(body)) + body.encode())
    else:
        connection.sendall(head(length=10**6))
        slowly(connection, b" ")


@pytest.fixture(scope="module")
def stalling() -> Iterator[Stalling]:
    asked = {name.replace(" ", "-"): threading.Semaphore(0) for name in STALLS}
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def serve(connection: socket.socket) -> None:
            with connection:
                try:
                    while request := connection.recv(1 << 16):
                        target = request.decode("latin-1").split(" ")[1]
                        name = target.split("/")[1]
                        asked[name].release()
                        answer(connection, name, target)
                except OSError:
                    return

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield Stalling(listener.getsockname()[1], asked)
        listener.shutdown(socket.SHUT_RDWR)


class Child(NamedTuple):
    process: subprocess.Popen[bytes]

    def line(self, seconds: float) -> str:
        ready = wait(self.process.stdout, seconds)
        return self.process.stdout.readline().decode().strip() if ready else "nothing"


@contextmanager
def started(port: int) -> Iterator[Child]:
    with subprocess.Popen(
        [sys.executable, "-c", f"from attacks import stalls; stalls.run({port})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd=Path(__file__).parents[1],
        env={name: value for name, value in os.environ.items() if name != "TQDM_DISABLE"},
    ) as process:
        try:
            child = Child(process)
            assert child.line(60) == "ready"
            yield child
        finally:
            process.kill()


def test_ctrl_c_ends_every_operation_within_a_second(stalling: Stalling) -> None:
    """One child stalls in every way, one after the other; it also ends at once in the end."""
    with started(stalling.port) as child:
        late = {}
        for name in STALLS:
            child.process.stdin.write(f"{name}\n".encode())
            if name == "import":
                assert child.line(60) == "stalls"
            else:
                for _ in range(NEEDED.get(name, 1)):
                    assert stalling.asked[name.replace(" ", "-")].acquire(timeout=20), name
            began = time.monotonic()
            child.process.send_signal(signal.SIGINT)
            ended = child.line(5)
            seconds = time.monotonic() - began
            if ended != "interrupted" or seconds > SECONDS:
                late[name] = f"{ended} after {seconds:.2f} s"
            if ended == "nothing":
                break
        assert late == {}
        child.process.stdin.close()
        assert child.process.wait(10) == 0, "something that was interrupted keeps the process from ending"
