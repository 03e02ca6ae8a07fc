"""Hosts of processes that are killed, and the comparison of an archive with its source."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.ledger import count_rows

import loopring_lab as lab
from loopring_lab.archive import Archive

PATIENCE = 120


@contextmanager
def hosted(
    code: str, module: str = "archive_kills", variables: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a function of a module of this folder in a process, until the end of the block."""
    with subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            f"from support import {module}; {module}.{code}",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # so that what select says about the pipe is all there is
        cwd=Path(__file__).parents[1],
        env=variables,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with what it has forked


def say(process: subprocess.Popen[bytes]) -> str:
    line = process.stdout.readline()
    assert line, "the host ended"
    return line.decode()


def ask(process: subprocess.Popen[bytes]) -> str:
    process.stdin.write(b"go\n")
    process.stdin.flush()
    return say(process)


def check(path: Path, truth: Counter[Any], sums: Counter[Any]):
    """Compare the stored rows with the truth, row by row and by integer sums, and the report with both."""
    table = Archive(path).query(
        "SELECT account_id, fill_type, verbatim, current FROM rows"
    )
    assert table["current"].all()
    every = table[["account_id", "fill_type", "verbatim"]].itertuples(index=False)
    identities, totals = count_rows(
        (account, kind, json.loads(text)) for account, kind, text in every
    )
    assert identities == truth
    assert totals == sums
    report = Archive(path).report()
    assert report["complete"].all()
    assert report["rows"].sum() == report["total"].sum() == truth.total()
    frame = Archive(path).trades()
    assert len(frame) == truth.total()
    assert lab.anomalies(frame).empty
