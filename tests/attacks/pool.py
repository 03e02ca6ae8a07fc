"""Children that run the cases, each watched: a case that hangs, grows or dies costs a child and is told."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from attacks.cases import every_case
from support.child_output import wait

SECONDS, GROWTH = 5.0, 200 << 20
"""The budget of a case."""
MARGIN_SECONDS, MARGIN_GROWTH = 1.0, 800 << 20
"""A child is killed this far beyond it."""
GOOD, LATE = ("right", "error"), ("hung", "slow")
LOOKS_EVERY = 0.05
START_SECONDS = 240


class Outcome(NamedTuple):
    number: int
    case: str
    kind: str
    detail: str
    seconds: float
    grown: int

    @property
    def is_good(self) -> bool:
        return self.kind in GOOD


def run(numbers: Iterable[int], children: int = 6, seconds: float = SECONDS) -> list[Outcome]:
    """Run cases in children, side by side, each in so many seconds; the outcomes in the order of the cases.

    A case that is late is run again by itself: on a busy machine it may only have been kept from running.
    """
    found = {one.number: one for one in _run(numbers, children, seconds)}
    late = [one.number for one in found.values() if one.kind in LATE]
    if late:
        found |= {one.number: one for one in _run(late, 1, seconds)}
    return [found[number] for number in sorted(found)]


def _run(numbers: Iterable[int], children: int, seconds: float) -> Iterable[Outcome]:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        waiting.put(number)
    found: dict[int, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder, _started("server", "serve()") as server:
        port = int(server.stdout.readline())
        threads = [
            threading.Thread(target=_work, args=(waiting, found, port, Path(folder) / f"{n}.log", seconds))
            for n in range(children)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found.values()


def _work(waiting: queue.SimpleQueue[int], found: dict[int, Outcome], port: int, log: Path, seconds: float) -> None:
    """Give one child after the other the next case, until none waits."""
    while not waiting.empty():
        with _started("worker", f"work({port}, {str(log)!r})") as child:
            while True:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                found[number] = _one(child, number, seconds)
                if found[number].kind in ("hung", "grew", "died"):
                    break


def _one(child: subprocess.Popen[bytes], number: int, most: float) -> Outcome:
    child.stdin.write(b"%d\n" % number)
    assert _line(child.stdout, START_SECONDS) == b"begins\n", "a child does not start"
    case, before, began = every_case()[number].id, _memory(child.pid), time.monotonic()
    while True:
        seconds = time.monotonic() - began
        line = _line(child.stdout, LOOKS_EVERY)
        if line:
            kind, detail, seconds, grown = json.loads(line)
            return Outcome(number, case, _over(kind, seconds > most, grown), detail, seconds, grown)
        grown = _memory(child.pid) - before
        if line == b"":
            return Outcome(number, case, "died", f"signal or status {-child.wait()}", seconds, grown)
        if seconds > most + MARGIN_SECONDS:
            return Outcome(number, case, "hung", "", seconds, grown)
        if grown > GROWTH + MARGIN_GROWTH:
            return Outcome(number, case, "grew", f"{grown >> 20} MB, then killed", seconds, grown)


def _over(kind: str, is_late: bool, grown: int) -> str:
    if kind in GOOD and is_late:
        return "slow"
    return "grew" if kind in GOOD and grown > GROWTH else kind


def _line(stream: IO[bytes], seconds: float) -> bytes | None:
    """Wait for a line: empty at the end of the stream, None if none comes in time."""
    return stream.readline() if wait(stream, seconds) else None


def _memory(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


@contextlib.contextmanager
def _started(module: str, call: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child that calls a function of this package, and end it."""
    with subprocess.Popen(
        [sys.executable, "-c", f"from attacks import {module}; {module}.{call}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        cwd=Path(__file__).parents[1],
        env=os.environ | {"TQDM_DISABLE": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"},
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def told(outcomes: list[Outcome]) -> str:
    """Count outcomes by kind, and name those that are not good."""
    counts = Counter(outcome.kind for outcome in outcomes)
    lines = [f"{len(outcomes)} hostile answers: " + ", ".join(f"{n} {kind}" for kind, n in counts.most_common())]
    lines += [
        f"{one.kind}: {one.case} ({one.seconds:.1f} s, {one.grown >> 20} MB) {one.detail}"
        for one in outcomes
        if not one.is_good
    ]
    return "\n".join(lines)
