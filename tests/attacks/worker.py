"""A child that runs cases: the numbers come in by stdin, the outcomes go out by stdout, one a line."""

import functools
import json
import os
import re
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Self

from attacks import doors, truth
from attacks.cases import every_case

from loopring_lab.errors import LabError

MARGIN = 400
LONGEST_MESSAGE = 1_000
"""Letters; nobody reads more, and hostile text must not fill a screen."""
_UNPRINTABLE = re.compile("[\0-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]")


def work(port: int, log: str) -> None:
    """Run the cases that stdin names; whatever they print goes to a file, which is searched."""
    results = os.fdopen(os.dup(1), "w")
    errors = os.open(log, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    warnings.simplefilter("error")
    for line in sys.stdin:
        number = int(line)
        if every_case()[number].door != "broken":
            warm_up()
        print("begins", file=results, flush=True)
        os.ftruncate(errors, 0)
        os.lseek(errors, 0, os.SEEK_SET)
        with Meter() as meter:
            outcome, detail = judge(number, f"http://127.0.0.1:{port}/{number}")
        sys.stderr.flush()
        outcome, detail = printed(errors, outcome, detail)
        print(json.dumps([outcome, detail, meter.seconds, meter.grown]), file=results, flush=True)


@functools.cache
def warm_up() -> None:
    """Import what is imported when first used, which is no growth by an attack.

    eth-account raises Python's recursion limit, as it does in any session with a wallet.
    """
    import duckdb  # noqa: F401
    import eth_account  # noqa: F401

    from loopring_lab.relayer import Relayer, World

    with Relayer(World(size=0.001)):
        pass


def judge(number: int, base_url: str) -> tuple[str, str]:
    """Run a case, and tell how it ended."""
    case = every_case()[number]
    try:
        doors.enter(case, base_url)
    except truth.Wrong as fault:
        return "wrong", str(fault)
    except LabError as error:
        if case.must_be_right:
            return "refused", str(error)[:500]
        return badly_said(error) or ("error", type(error).__name__ + ": " + ascii(str(error))[:300])
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return "raw", f"{type(error).__name__} {ascii(str(error))[:200]} at {place(error)}"
    return "right", ""


def place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "loopring_lab" in frame.filename]
    return " < ".join(f"{frame.filename.rpartition('loopring_lab/')[2]}:{frame.lineno}" for frame in frames[-3:])


def badly_said(error: LabError) -> tuple[str, str] | None:
    """Judge an error's own words: short, printable, without a secret, with a next step."""
    text = str(error)
    if doors.KEY in text + repr(error):
        return "secret", ascii(text)[:300]
    if found := _UNPRINTABLE.search(text):
        return "unprintable", f"{found[0]!a} in {ascii(text)[:300]}"
    if len(text) > LONGEST_MESSAGE:
        return "long", f"{len(text)} letters: {ascii(text)[:200]}"
    return None if text.rstrip().endswith((".", "?")) else ("no next step", ascii(text)[-200:])


def printed(log: int, outcome: str, detail: str) -> tuple[str, str]:
    """Look for tracebacks and secrets in what was printed."""
    text = os.pread(log, 1 << 20, 0).decode("utf-8", "replace")
    if doors.KEY in text:
        return "secret", text[:300]
    if outcome in ("error", "right") and "Traceback" in text:
        return "traceback", text[-300:]
    return outcome, detail


class Meter:
    """Measures the time and memory of a case until the judge begins."""

    def __enter__(self) -> Self:
        self.seconds, self.grown = 0.0, 0
        self._before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        self._began = time.monotonic()
        truth.judging[:] = [self.stop]
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if not self.seconds:
            self.seconds, self.grown = time.monotonic() - self._began, memory("VmHWM") - self._before


def memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
