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
KINDS = {"info": "exchange", "tokens": "tokens", "markets": "markets"}


class Stalling(NamedTuple):
    port: int
    stalled: dict[str, threading.Event]


def slowly(connection: socket.socket, data: bytes, seconds: float = 0.05) -> None:
    while True:
        connection.sendall(data)
        time.sleep(seconds)


def answer_regularly(connection: socket.socket, name: str, target: str) -> bool:
    """Answer a request of an operation that stalls later on, or in waits of its own."""
    if name in ("threads", "progress-bar", "sync") and "offset=0" in target:
        body = json.dumps({"totalNum": 10**6, "trades": [row(number) for number in range(ROWS, 0, -1)]})
    elif name == "receipt" and "updateInfo" in target:
        body = json.dumps({"transactions": [{"hash": "0x" + "ab" * 32, "status": "received"}]})
    elif name in ("rate", "receipt") or (name == "sync" and "trades" not in target):
        body = regular(next((KINDS[part] for part in KINDS if part in target), "account")).decode()
    else:
        return False
    connection.sendall(head(length=len(body)) + body.encode())
    return True


def stall(connection: socket.socket, name: str, target: str) -> None:
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
    else:
        connection.sendall(head(length=10**6))
        slowly(connection, b" ")


@pytest.fixture(scope="module")
def stalling() -> Iterator[Stalling]:
    stalled = {name.replace(" ", "-"): threading.Event() for name in STALLS}
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def serve(connection: socket.socket) -> None:
            with connection:
                try:
                    while request := connection.recv(1 << 16):
                        target = request.decode("latin-1").split(" ")[1]
                        name = target.split("/")[1]
                        if not answer_regularly(connection, name, target):
                            stalled[name].set()
                            stall(connection, name, target)
                        elif name in ("rate", "receipt"):
                            stalled[name].set()
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
        yield Stalling(listener.getsockname()[1], stalled)
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


@pytest.mark.thorough
def test_ctrl_c_ends_every_operation_within_a_second(stalling: Stalling) -> None:
    """One child stalls in every way, one after the other; it also ends at once in the end."""
    with started(stalling.port) as child:
        late = {}
        for name in STALLS:
            child.process.stdin.write(f"{name}\n".encode())
            if name == "import":
                assert child.line(60) == "stalls"
            else:
                assert stalling.stalled[name.replace(" ", "-")].wait(20), f"{name} does not stall; {late}"
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
