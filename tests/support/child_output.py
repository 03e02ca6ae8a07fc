"""Waiting for the output of a child process."""

import select
from typing import IO


def wait(stream: IO[bytes], seconds: float) -> bool:
    """Wait for output or its end, and tell whether there is some."""
    poll = select.poll()  # select.select refuses descriptors of 1024 and more
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(1000 * seconds))
