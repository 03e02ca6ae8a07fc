"""Pages are read in threads, on as many cores as the process may use."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from loopring_lab import cores
from loopring_lab.errors import LabError


def test_an_error_does_not_wait_for_what_runs_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 2)
    running, end = threading.Event(), threading.Event()

    def wrong() -> None:
        running.wait()
        raise LabError("wrong")

    def long() -> None:
        running.set()
        end.wait()

    with pytest.raises(LabError, match="wrong"):
        cores.share(wrong, long)
    end.set()


def test_threads_of_others_start_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 2)
    names = [lambda: threading.current_thread().name] * 2
    with ThreadPoolExecutor(1) as pool:
        assert len({*pool.submit(cores.share, *names).result()}) == 1
    assert threading.main_thread().name not in cores.share(*names)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs a system that can forbid cores")
def test_cores_that_this_process_may_not_use_do_not_count() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores.threads() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores.count() == len(allowed)
