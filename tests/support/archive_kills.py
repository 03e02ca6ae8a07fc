"""Kills a sync at random moments, again and again, while histories grow and requests fail.

A host process imports everything once and forks a sync for each life, so that a life starts in milliseconds.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from support.child_output import wait
from support.ledger import Ledger, count_rows

import loopring_lab as lab
from loopring_lab.archive import Archive, sync
from loopring_lab.client import Client
from loopring_lab.errors import NotAnArchive
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, Settings

FAULTS = dict.fromkeys(("429", "500", "reset", "truncated", "slow"), 0.02)
PATIENCE = 120


class Tally(NamedTuple):
    """The outcome of the kills, and the rows in the end."""

    kills: int
    finished: int
    rows: int
    faults: Counter[str]
    requests: int
    lives_with_commits: int


def relayer_host(accounts: int, trades: int, reserve: int) -> None:
    """Serve a ledger until stdin ends; tell address and key, and for every line the counts so far."""
    settings = Settings(growth=1, growth_reserve=reserve, faults=FAULTS, slow_seconds=0.1)
    with Relayer(Ledger(accounts, trades), settings) as relayer:
        print(relayer.base_url, relayer.api_key[:], flush=True)
        for _ in sys.stdin:
            told_ = [dict(relayer.counts.faults), relayer.counts.requests["/user/trades"]]
            print(json.dumps(told_), flush=True)


def sync_host(path: str, url: str, key: str, accounts: int) -> None:
    """Fork a sync for every line that comes in; print its process, and its name again when it is done."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sync.BATCH_ROWS, sync.BATCH_SECONDS = 1_000, 0.2  # so that many lives commit something
    every = [20_000 + number for number in range(accounts)]
    for _ in sys.stdin:
        if os.fork() == 0:
            print("start", os.getpid(), flush=True)
            client = Client(Transport(url, api_key=key, rate=None, proxies=False), "ledger", synthetic=True)
            Archive(path).sync(client, accounts=every, progress=False)
            print("done", os.getpid(), flush=True)
            os._exit(0)


@contextmanager
def hosted(code: str, module: str = "archive_kills") -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", f"from support import {module}; {module}.{code}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # so that what select says about the pipe is all there is
        cwd=Path(__file__).parents[1],
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def kill_again_and_again(
    path: Path, kills: int, accounts: int, trades: int, longest_life: float, reserve: int = 20, seed: int = 1
) -> Tally:
    """Kill syncs of one archive, resume to the end, and compare with the relayer's whole history.

    AssertionError where a trade is lost, doubled or other than the relayer's.
    """
    dice = random.Random(seed)
    finished = lives = 0
    with (
        hosted(f"relayer_host({accounts}, {trades}, {reserve})") as relayer,
    ):
        url, key = say(relayer).split()
        with hosted(f"sync_host({str(path)!r}, {url!r}, {key!r}, {accounts})") as host:
            for _ in range(kills):
                before = held_count(path)
                pid = int(ask(host).split()[1])
                ended = wait(host.stdout, dice.uniform(0, longest_life))
                finished += ended
                if ended:
                    say(host)
                else:
                    os.kill(pid, signal.SIGKILL)
                    drain(host.stdout)
                lives += held_count(path) > before
            truth, sums = Ledger(accounts, trades).truth()
            for _ in range(reserve + 5):
                ask(host)
                assert wait(host.stdout, PATIENCE), "the last resume hangs"
                host.stdout.readline()
                if held_count(path) == truth.total():
                    break
        faults, requests = json.loads(ask(relayer))
    check(path, truth, sums)
    return Tally(kills, finished, truth.total(), Counter(faults), requests, lives)


def say(process: subprocess.Popen[bytes]) -> str:
    line = process.stdout.readline()
    assert line, "the host ended"
    return line.decode()


def ask(process: subprocess.Popen[bytes]) -> str:
    process.stdin.write(b"go\n")
    process.stdin.flush()
    return say(process)


def drain(stream: IO[bytes]) -> None:
    """Read the line of a sync that finished in the moment it was killed."""
    if wait(stream, 0.05):
        stream.readline()


def held_count(path: Path) -> int:
    if not Archive(path)._file.exists():
        return 0
    try:
        return int(Archive(path).query("SELECT count(*) AS rows FROM rows WHERE version = 1")["rows"][0])
    except NotAnArchive:  # killed before its first transaction
        return 0


def check(path: Path, truth: Counter[Any], sums: Counter[Any]) -> None:
    """Compare the stored rows with the truth, row by row and by integer sums, and the report with both."""
    table = Archive(path).query("SELECT account_id, fill_type, verbatim, current FROM rows")
    assert table["current"].all()
    every = table[["account_id", "fill_type", "verbatim"]].itertuples(index=False)
    identities, totals = count_rows((account, kind, json.loads(text)) for account, kind, text in every)
    assert identities == truth
    assert totals == sums
    report = Archive(path).report()
    assert report["complete"].all()
    assert report["rows"].sum() == report["total"].sum() == truth.total()
    frame = Archive(path).trades()
    assert len(frame) == truth.total()
    assert lab.anomalies(frame).empty
