"""Background work of widgets: delivered once, cancelled at once, and never delivered after newer work."""

import asyncio
import subprocess
import sys
import threading

import pytest

from loopring_lab.engine import running
from loopring_lab.errors import LabError
from loopring_lab.widgets.background import Background

SECONDS = 600


class Keeping(Background):
    """A state that records delivered results."""

    def __init__(self):
        super().__init__()
        self.taken: list[object] = []
        self.threads: list[threading.Thread] = []

    def start(self, work):
        def remembered(report):
            self.threads.append(threading.current_thread())
            return work(report)

        self.begin("Counting", remembered, self.taken.append)

    def join(self):
        for thread in self.threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


def held_back(result):
    """Make work that waits for the second event after it set the first."""
    started = threading.Event()
    let = threading.Event()

    def work(report):
        report(1, 4)
        started.set()
        assert let.wait(SECONDS)
        report(2, 4)
        return result

    return work, started, let


def test_a_fault_of_ours_is_reported_and_raised(monkeypatch):
    raised = []
    monkeypatch.setattr(
        threading, "excepthook", lambda found: raised.append(found.exc_type)
    )
    state = Keeping()
    state.start(lambda report: 1 // 0)
    state.wait(SECONDS)
    assert raised == [ZeroDivisionError]
    assert state.problem.startswith("ZeroDivisionError in the widget's own code.")
    assert state.doing == ""


def test_waiting_too_long_says_what_for():
    state, (work, started, let) = Keeping(), held_back(1)
    state.start(work)
    assert started.wait(SECONDS)
    with pytest.raises(LabError, match="Counting: not finished after 0.01 s"):
        state.wait(0.01)
    let.set()
    state.wait(SECONDS)
    assert state.taken == [1]


def test_work_that_changes_something_elsewhere_is_neither_forgotten_nor_superseded():
    state, (work, started, let) = Keeping(), held_back("sent")
    state.begin("Sending", work, state.taken.append, cancellable=False)
    assert started.wait(SECONDS)
    others = [
        state.cancel,
        state.drop,
        lambda: state.start(lambda report: "other"),
    ]
    for call in others:
        with pytest.raises(LabError, match="Sending: it may have been sent, so it"):
            call()
    assert state.doing == "Sending"
    let.set()
    state.wait(SECONDS)
    assert (state.taken, state.problem) == (["sent"], "")
    state.start(lambda report: "next")
    state.wait(SECONDS)
    assert state.taken == ["sent", "next"]


def test_with_a_running_loop_the_state_changes_on_its_thread_only():
    """As in a notebook: cells and widget messages run on one thread, background work on others."""
    state = Keeping()
    threads = set()
    state.observe(
        lambda _: threads.add(threading.get_ident()),
        ["doing", "done", "whole", "problem"],
    )

    def count(report):
        for done in range(200):
            report(done, 200)
        return threading.get_ident()

    async def notebook():
        state.begin("Counting", count, state.taken.append)
        while state.doing:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(notebook(), SECONDS))
    assert threads == {threading.get_ident()}
    assert state.taken
    assert state.taken[0] != threading.get_ident()


def test_waiting_in_a_cell_does_not_lock_up():
    """A waiting cell blocks the event loop; the result is still delivered, once."""
    state = Keeping()

    async def cell():
        state.start(lambda report: "there")
        state.wait(SECONDS)
        assert state.taken == ["there"]
        await asyncio.sleep(0)

    asyncio.run(cell())
    assert state.taken == ["there"]


def test_work_that_begins_more_work_can_be_waited_for_at_any_moment():
    state = Background()
    left = [0]

    def again(_):
        left[0] -= 1
        if left[0]:
            state.begin("Again", lambda report: None, again)

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            left[0] = 8
            state.begin("Once", lambda report: None, again)
            state.wait(SECONDS)
            assert left == [0]
    finally:
        sys.setswitchinterval(switching)


FOREVER = (
    "SELECT sum(hash(a + b)) FROM range(10_000_000) AS s(a), range(10_000_000) AS t(b)"
)


def test_a_query_ends_when_its_work_is_cancelled_and_the_next_one_answers():
    asked = threading.Event()

    def ask(report):
        asked.set()
        running.run(FOREVER, "test")

    state = Keeping()
    state.start(ask)
    assert asked.wait(SECONDS)
    state.cancel()
    state.join()
    state.start(lambda report: running.run("SELECT 1 AS one", "test").to_pylist())
    state.wait(SECONDS)
    assert state.taken == [[{"one": 1}]]
    assert state.problem == ""


ENDING = f"""
import threading
from loopring_lab.engine import running
from loopring_lab.widgets.background import Background

asked = threading.Event()

def ask(report):
    asked.set()
    running.run("{FOREVER}", "test")

Background().begin("Asking", ask, print)
asked.wait()
"""


@pytest.mark.thorough
def test_a_process_ends_while_a_query_is_under_way():
    """Python would end the thread inside DuckDB, which aborts the process, or leaves it waiting for good."""
    words = [sys.executable, "-c", ENDING]
    ended = subprocess.run(words, capture_output=True, timeout=SECONDS, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
