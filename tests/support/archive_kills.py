"""Kills a sync at random moments, again and again, while histories grow and requests fail.

A host process imports everything once and forks a sync for each life, so that a life starts in milliseconds.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable
from support.child_output import wait
from support.ledger import Ledger, count_rows
from support.power_loss import Disk

import loopring_lab as lab
from loopring_lab.archive import Archive
from loopring_lab.archive.sync import _source_of
from loopring_lab.client import Client
from loopring_lab.relayer import Relayer, Settings
from loopring_lab.transport import Transport

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
    every = [20_000 + number for number in range(accounts)]
    for _ in sys.stdin:
        if os.fork() == 0:
            print("start", os.getpid(), flush=True)
            client = Client(Transport(url, api_key=key, rate=None, proxies=False), "ledger", synthetic=True)
            Archive(path).sync(client, accounts=every, progress=False)
            print("done", os.getpid(), flush=True)
            os._exit(0)


def power_host(path: str, notes: str, url: str, key: str, accounts: int) -> None:
    """Fork a process for every line that comes in; it syncs account by account and tells what was reported."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            print("start", os.getpid(), flush=True)
            every, syncs = json.loads(line)
            Disk(Path(path), Path(notes)).watch(syncs)
            client = Client(Transport(url, api_key=key, rate=None, proxies=False), "ledger", synthetic=True)
            for account in every:
                report = Archive(path).sync(client, account_id=account, progress=False)
                print("reported", account, int(report["rows"].sum()), flush=True)
                if account % 4 == 0:
                    Archive(path).compact()
            print("done 0 0", flush=True)
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
                before = version(path)
                pid = int(ask(host).split()[1])
                ended = wait(host.stdout, dice.uniform(0, longest_life))
                finished += ended
                if ended:
                    say(host)
                else:
                    os.kill(pid, signal.SIGKILL)
                    drain(host.stdout)
                lives += version(path) > before
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


def cut_power_again_and_again(
    path: Path, kills: int, accounts: int, trades: int, most_syncs: int, seed: int = 1
) -> tuple[int, int]:
    """Kill syncs at a random fsync and cut the archive back to what was fsynced; return the rows reported, and commits undone.

    AssertionError where a row is lost that had been reported, or where the archive cannot go on by itself.
    """
    path.parent.mkdir(exist_ok=True)
    dice, disk = random.Random(seed), Disk(path, path.parent.parent / "notes")
    ledger = Ledger(accounts, trades)
    with hosted(f"relayer_host({accounts}, {trades}, 0)") as relayer:
        url, key = say(relayer).split()
        client = Client(Transport(url, api_key=key, rate=None, proxies=False), "ledger", synthetic=True)
        words = f"{str(path)!r}, {str(disk.notes)!r}, {url!r}, {key!r}, {accounts}"
        with hosted(f"power_host({words})") as host:
            reported: dict[int, int] = {}
            rows = undone = 0
            for number in range(kills):
                disk.start()
                every = dice.sample(ledger.accounts, accounts)
                host.stdin.write(json.dumps([every, dice.randint(1, most_syncs)]).encode() + b"\n")
                reported |= follow(host)
                disk.cut_power(dice)
                undone += go_on(path, client, reported, repaired=number % 3 == 2)
                if len(reported) == accounts:
                    rows += sum(reported.values())
                    reported = {}
                    shutil.rmtree(path)
    return rows + sum(reported.values()), undone


def follow(host: subprocess.Popen[bytes]) -> dict[int, int]:
    """Read what a process reports until it is done or dead: the rows of each account."""
    reported, pid = {}, int(say(host).split()[1])
    while wait(host.stdout, 0.02) or Path(f"/proc/{pid}").exists():
        if wait(host.stdout, 0.02):
            word, account, count = say(host).split()
            if word == "reported":
                reported[int(account)] = int(count)
    return reported


def go_on(path: Path, client: Client, reported: dict[int, int], repaired: bool) -> int:
    """Open an archive after a power cut as the next sync does, or repair it; count commits set aside."""
    archive = Archive(path)
    if repaired and archive._folder.digests.log("syncs").entries:
        archive.repair()
    archive._folder.bind(_source_of(client))
    held = archive.report().groupby("account_id")["rows"].sum().to_dict()
    lost = {account: count for account, count in reported.items() if held.get(account, 0) < count}
    assert not lost, f"reported, and not held: {lost}"
    assert archive.verify().empty
    undone = len(list(path.glob("set-aside/**/*.json*")))
    shutil.rmtree(path / "set-aside", ignore_errors=True)
    return undone


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


def version(path: Path) -> int:
    return DeltaTable(str(path / "trades")).version() if (path / "trades" / "_delta_log").exists() else -1


def rows(path: Path, columns: list[str]) -> Any:
    return DeltaTable(str(path / "trades")).to_pyarrow_dataset().to_table(columns=columns)


def held_count(path: Path) -> int:
    return int(pc.sum(pc.equal(rows(path, ["version"])["version"], 1)).as_py())


def check(path: Path, truth: Counter[Any], sums: Counter[Any]) -> None:
    """Compare the stored rows with the truth, row by row and by integer sums, and the report with both."""
    table = rows(path, ["account_id", "asked", "verbatim", "version", "current"])
    assert pc.all(table["current"]).as_py()
    every = zip(*(table[name].to_pylist() for name in ("account_id", "asked", "verbatim")), strict=True)
    identities, totals = count_rows((account, kind, json.loads(text)) for account, kind, text in every)
    assert identities == truth
    assert totals == sums
    report = Archive(path).report()
    assert report["complete"].all()
    assert report["rows"].sum() == report["total"].sum() == truth.total()
    frame = Archive(path).trades()
    assert len(frame) == truth.total()
    assert lab.anomalies(frame).empty
