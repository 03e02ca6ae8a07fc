"""Ctrl-C, pressed in the middle of a test."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

# An interrupt that falls into a weak reference's callback is dropped, with this warning; `interrupted` presses again.
may_drop_an_interrupt = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function WeakKeyDictionary:pytest.PytestUnraisableExceptionWarning"
)


PATIENCE = 30  # seconds: a test that waits longer hangs, however busy the machine is


def press_ctrl_c() -> None:
    main = threading.main_thread().ident
    assert main
    signal.pthread_kill(main, signal.SIGINT)


@contextmanager
def interrupted(
    seconds: float, press: Callable[[], None] = press_ctrl_c
) -> Iterator[None]:
    """Press Ctrl-C after some seconds; the block, which would go on for longer, must then end.

    Python drops an interrupt that falls into a weak reference's callback, so it is pressed again, as somebody would.
    """
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background ignores it
    ended = threading.Event()

    def press_until_it_ends() -> None:
        pause = seconds
        while not ended.wait(pause):
            press()
            pause = PATIENCE

    presses = threading.Thread(target=press_until_it_ends)
    presses.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        ended.set()
        presses.join()
        signal.signal(signal.SIGINT, before)
