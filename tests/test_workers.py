"""Workers of Dask keep freed memory while tasks are under way, and give it back soon after the last one."""

import json
import os
import platform
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")

MIB = 1 << 20
PAGES = MIB // 4096
PROGRAM = """
import json, resource, sys, threading
import numpy as np
from loopring_lab.engines import workers

def cleared(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def many_arrays():
    for _ in range(100):
        np.ones(1 << 20, np.uint8)

def at_once():
    del [np.ones(1 << 20, np.uint8) for _ in range(100)][:]

def fails():
    raise ValueError

def nested():
    kept(lambda: None)
    many_arrays()

def kept(work):
    return workers.keeping_memory(work)()

def idle():
    if workers._memory._waiting:
        workers._memory._waiting.join()

def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

workers.IDLE = 0.01
found = {"before": cleared(many_arrays), "kept": cleared(lambda: kept(many_arrays))}
idle()
found["after"] = cleared(many_arrays)
found["nested"] = cleared(lambda: kept(nested))
try:
    kept(fails)
except ValueError:
    idle()
    found["after an error"] = cleared(many_arrays)
for name, run in (("here", lambda work: work()), ("in a thread", in_a_thread)):
    run(lambda: kept(at_once))
    idle()
    before = held()
    run(lambda: kept(at_once))
    idle()
    found[f"left {name}"] = held() - before
workers.IDLE = 600
kept(at_once)
found["soon after"] = cleared(lambda: kept(at_once))
print(json.dumps(found))
"""


def measured(**settings: str) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        env=environment | settings,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_memory_is_kept_within_and_between_tasks_and_given_back_after_them() -> None:
    found = measured(MALLOC_TRIM_THRESHOLD_="65536")
    for name in ("before", "after", "after an error"):
        assert found[name] >= 90 * PAGES, found
    for name in ("kept", "nested", "soon after"):
        assert found[name] <= 10 * PAGES, found
    for name in ("left here", "left in a thread"):
        assert found[name] <= 10 * MIB, found


def test_a_worker_that_keeps_its_memory_is_left_alone() -> None:
    found = measured(MALLOC_TRIM_THRESHOLD_=str(1 << 28), MALLOC_MMAP_THRESHOLD_=str(1 << 25))
    for name in ("kept", "after", "after an error"):
        assert found[name] <= 10 * PAGES, found
