"""The output of a child process: waiting for some, and typing on a terminal of its own."""

import os
import pty
import select
import subprocess
import sys
from typing import IO

PROGRAM = [sys.executable, "-W", "ignore", "-m", "loopring_lab"]


def wait(stream: IO[bytes], seconds: float) -> bool:
    """Wait for output or its end, and tell whether there is some."""
    poll = select.poll()  # select.select refuses descriptors of 1024 and more
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def on_a_terminal(
    words: list[str], prompt: bytes, typed: bytes, without: str
) -> tuple[int, bytes]:
    """Run the program on a terminal, `without` a variable, and answer a prompt; return its exit code and the screen."""
    env = {name: value for name, value in os.environ.items() if name != without}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *words],
        env=env | {"TQDM_DISABLE": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    while prompt not in seen:
        seen += os.read(ours, 1024)
    os.write(ours, typed + b"\n")
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the terminal is closed when the program ends
    code = process.wait(600)
    os.close(ours)
    return code, seen
