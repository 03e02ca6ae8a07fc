"""Kills work on a file at random moments after a commit: syncs and imports of trades, syncs and imports of blocks.

Exports and copies are killed at any moment: they are there whole or not at all, and their source is as it was.

Each life is a process of its own, forked from a host that has imported everything, so that it starts in
milliseconds; relayer and chain run in other processes, and requests fail. A life notes the keys of what it has
committed as soon as the commit has returned. After its death all of them must be in the file, once, and nothing
that the source does not have. A file that is complete is compared with its source whole, and a new one begun.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from support.archive_kills import PATIENCE, ask, check, hosted, say
from support.child_output import wait
from support.ledger import Ledger
from support.rollup_kills import FAULTS as FAULTS_OF_CHAINS
from support.rollup_kills import check as check_blocks
from support.rollup_kills import last_l1_block, one_at_a_time
from support.saved_pages import save
from support.troubled import troubled

from loopring_lab.archive import Archive, from_blocks, from_files, sync
from loopring_lab.engine import database
from loopring_lab.errors import LabError, NotAnArchive
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer
from loopring_lab.rollup import Store, fetching
from loopring_lab.sources.client import Client

FAULTS = dict.fromkeys(("429", "500", "reset", "truncated"), 0.02)
# What tells one thing that was added from another, by the columns that work hands over.
KEYS = (("verbatim",), ("sha256",), ("trade_id", "role"))


class Tally(NamedTuple):
    """The outcome of the kills of one kind of work."""

    kills: int
    finished: int
    lives_with_commits: int
    lives_that_added: int
    acknowledged: int
    files: int
    faults: Counter[str]


class Work(NamedTuple):
    """Work on a file: what it runs, what its source has, and how the file is compared when it is complete."""

    run: str
    truth: set[Any]
    held: Callable[[Path], list[Any]]
    compare: Callable[[Path], None]
    faults: Callable[[], Counter[str]] = Counter


# In the lives


def keys_of(table: pa.Table) -> list[Any]:
    names = next(names for names in KEYS if set(names) <= set(table.column_names))
    columns = [table[name].to_pylist() for name in names]
    return [
        [one.hex() if isinstance(one, bytes) else one for one in key]
        for key in zip(*columns, strict=True)
    ]


class Recording:
    """A connection that remembers the tables which it is given to store."""

    def __init__(self, connection):
        self.connection = connection
        self.sent: list[pa.Table] = []

    def register(self, name: str, table: pa.Table):
        if name == "sent":
            self.sent.append(table)
        self.connection.register(name, table)

    def __getattr__(self, name: str):
        return getattr(self.connection, name)


def host(run: str, *words):
    """Fork, for every line with a path, a process that works on that file; tell its id, commits and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sync.BATCH_PAGES, sync.BATCH_SECONDS = 1_000 // sync.PAGE, 0.2
    from_files.BATCH_BYTES = 200_000
    from_blocks.ROWS_OF_A_TRANSACTION, from_blocks.BLOCKS_AT_ONCE = 40, 4
    fetching.BATCH_BLOCKS = 40
    writing = database.StoredFile.writing

    @contextmanager
    def noted(file, source=None):
        with writing(file, source) as connection:
            recording = Recording(connection)
            yield recording
        for table in recording.sent:
            with Path(f"{file.path}.notes").open("a") as notes:
                notes.write(f"{json.dumps(keys_of(table))}\n")
            print("commit", flush=True)

    database.StoredFile.writing = noted  # type: ignore[method-assign]
    for line in sys.stdin:
        if os.fork() == 0:
            print("start", os.getpid(), flush=True)
            try:
                RUNS[run](Path(line.strip()), *words)
            except (
                LabError
            ) as error:  # such as too many failing requests: the next life goes on
                print("error", type(error).__name__, flush=True)
            print("done", flush=True)
            os._exit(0)


def sync_trades(path: Path, url: str, key: str, accounts: int):
    client = Client(
        Transport(url, api_key=key, rate=None, proxies=False), "ledger", synthetic=True
    )
    Archive(path).sync(
        client, accounts=[20_000 + number for number in range(accounts)], progress=False
    )


def import_trades(path: Path, saved: str):
    Archive(path).import_pages(saved, progress=False)


def sync_blocks(path: Path, url: str, last: int):
    Store(path).sync(url, rate=None, to_block=last, progress=False)


def import_blocks(path: Path, store: str):
    Archive(path).import_blocks(Store(store), progress=False)


def export_trades(path: Path, archive: str):
    Archive(archive).export(path)


def copy_trades(path: Path, archive: str):
    Archive(archive).copy(path)


def copy_blocks(path: Path, store: str):
    Store(store).copy(path)


RUNS: dict[str, Callable[..., None]] = {
    one.__name__: one
    for one in (
        sync_trades,
        import_trades,
        sync_blocks,
        import_blocks,
        export_trades,
        copy_trades,
        copy_blocks,
    )
}


def relayer_host(accounts: int, trades: int):
    """Serve a ledger until stdin ends; tell address and key, and for every line the faults so far."""
    with (
        Relayer(Ledger(accounts, trades)) as relayer,
        troubled(relayer.base_url, FAULTS) as (url, troubles),
    ):
        print(url, relayer.api_key[:], flush=True)
        for _ in sys.stdin:
            print(json.dumps(dict(troubles.counts)), flush=True)


# Around them


def kill_again_and_again(
    folder: Path, work: Work, kills: int, longest: float, seed: int = 1
) -> Tally:
    """Kill lives within `longest` seconds of their first commit; AssertionError where anything is lost or wrong."""
    dice = random.Random(seed)
    files = [folder / "0"]
    finished = committed = added = 0
    every = set[Any]()  # what was acknowledged of the present file
    total = 0
    with hosted(work.run, "kill_rig") as process:
        for number in range(kills):
            held_before = len(every)
            pid = begin(process, files[-1])
            notes = Path(f"{files[-1]}.notes")
            is_done = lives_on(process, PATIENCE, partial(adds_something, notes, every))
            is_done = is_done or lives_on(process, dice.uniform(0, longest))
            if is_done:
                finished += 1
            else:
                end(process, pid)
            commits = whole_lines(notes)
            every |= noted_keys(notes)
            notes.unlink(missing_ok=True)
            committed += bool(commits)
            total += len(commits)
            held = work.held(files[-1])
            assert len(held) == len(set(held)), "doubled"
            assert every <= set(held), (
                f"life {number}: {len(every - set(held))} acknowledged rows are lost"
            )
            assert set(held) <= work.truth, "rows that the source does not have"
            every = set(held)
            added += len(every) > held_before
            if every == work.truth:
                resume(process, files[-1])
                work.compare(files[-1])
                files.append(folder / str(len(files)))
                every = set()
        if every:
            for _ in range(20):
                if set(work.held(files[-1])) != work.truth:
                    resume(process, files[-1])
            resume(process, files[-1])
            work.compare(files[-1])
    return Tally(kills, finished, committed, added, total, len(files), work.faults())


def begin(process: subprocess.Popen[bytes], path: Path) -> int:
    process.stdin.write(f"{path}\n".encode())
    return int(say(process).split()[1])


def end(process: subprocess.Popen[bytes], pid: int):
    """Kill a life, and read what it has said."""
    os.kill(pid, signal.SIGKILL)
    while Path("/proc", str(pid)).exists() or wait(process.stdout, 0.02):
        if wait(process.stdout, 0.02):
            say(process)


def whole_lines(notes: Path) -> list[str]:
    """Read the commits that were noted; a kill may have cut the last line."""
    lines = notes.read_text().splitlines(keepends=True) if notes.exists() else []
    return [line for line in lines if line.endswith("\n")]


def noted_keys(notes: Path) -> set[Any]:
    return {tuple(key) for line in whole_lines(notes) for key in json.loads(line)}


def adds_something(notes: Path, every: set[Any]) -> bool:
    return not noted_keys(notes) <= every


def lives_on(
    process: subprocess.Popen[bytes],
    seconds: float,
    has_added: Callable[[], bool] | None = None,
) -> bool:
    """Wait until a life has added something, or for some time; tell whether it has ended."""
    end = time.monotonic() + seconds
    while wait(process.stdout, max(0.0, end - time.monotonic())):
        line = say(process)
        if line == "done\n":
            return True
        if line == "commit\n" and has_added and has_added():
            return False
    assert not has_added, "nothing was committed, and the work hangs"
    return False


def resume(process: subprocess.Popen[bytes], path: Path):
    begin(process, path)
    assert lives_on(process, PATIENCE), "the last resume hangs"
    Path(f"{path}.notes").unlink(missing_ok=True)


def held_rows(path: Path, columns: str) -> list[Any]:
    try:
        return list(
            Archive(path)
            .query(f"SELECT {columns} FROM rows")
            .itertuples(index=False, name=None)
        )
    except NotAnArchive:  # killed before its first transaction
        return []


def held_blocks(path: Path) -> list[Any]:
    try:
        return [
            (one.hex(),)
            for one in Store(path).file.index().blocks["data_sha256"].to_pylist()
        ]
    except NotAnArchive:
        return []


def syncs(
    folder: Path, kills: int, longest: float, accounts: int = 10, trades: int = 2_000
) -> Tally:
    """Kill syncs of trades from a relayer whose requests fail."""
    with hosted(f"relayer_host({accounts}, {trades})", "kill_rig") as relayer:
        url, key = say(relayer).split()
        ledger = Ledger(accounts, trades)
        work = Work(
            f"host('sync_trades', {url!r}, {key!r}, {accounts})",
            {(json.dumps(row, separators=(",", ":")),) for row in ledger.rows},
            lambda path: held_rows(path, "verbatim"),
            lambda path: check(path, *ledger.truth()),
            lambda: Counter(json.loads(ask(relayer))),
        )
        return kill_again_and_again(folder, work, kills, longest)


def page_imports(
    folder: Path, kills: int, longest: float, accounts: int = 10, trades: int = 2_000
) -> Tally:
    """Kill imports of saved pages."""
    ledger = Ledger(accounts, trades)
    saved = save(ledger, folder / "saved", source="ledger")
    work = Work(
        f"host('import_trades', {str(saved)!r})",
        {(json.dumps(row, separators=(",", ":")),) for row in ledger.rows},
        lambda path: held_rows(path, "verbatim"),
        lambda path: check(path, *ledger.truth()),
    )
    return kill_again_and_again(folder, work, kills, longest)


@contextmanager
def chain(
    blocks: int,
) -> Iterator[tuple[subprocess.Popen[bytes], str, dict[int, bytes]]]:
    """Run a chain whose requests fail; give its address, and its blocks as one reads them one at a time."""
    troubled = {
        "faults": FAULTS_OF_CHAINS,
        "omitted": 0.02,
        "most_l1_blocks": 20_000,
        "most_in_batch": 15,
    }
    with ExitStack() as stack:
        served = stack.enter_context(hosted(f"chain_host({troubled})", "rollup_kills"))
        url, _ = say(served).split()
        with hosted("chain_host({})", "rollup_kills") as plain:
            truth = one_at_a_time(*say(plain).split(), last_l1_block(blocks))
        yield served, url, truth


def block_syncs(folder: Path, kills: int, longest: float, blocks: int = 1_000) -> Tally:
    """Kill syncs of blocks from a chain whose requests fail."""
    with chain(blocks) as (served, url, truth):
        work = Work(
            f"host('sync_blocks', {url!r}, {last_l1_block(blocks)})",
            {(hashlib.sha256(data).hexdigest(),) for data in truth.values()},
            held_blocks,
            lambda path: check_blocks(Store(path), truth),
            lambda: Counter(json.loads(ask(served))),
        )
        return kill_again_and_again(folder, work, kills, longest)


def stored_blocks(folder: Path, blocks: int) -> Path:
    with chain(blocks) as (_, url, _):
        store = folder / "store"
        for _ in range(20):
            try:
                Store(store).sync(
                    url, rate=None, to_block=last_l1_block(blocks), progress=False
                )
            except LabError:
                continue
            break
    return store


def block_imports(
    folder: Path, kills: int, longest: float, blocks: int = 1_000
) -> Tally:
    """Kill imports of blocks into an archive."""
    store = stored_blocks(folder, blocks)
    Archive(folder / "whole").import_blocks(Store(store), progress=False)
    whole = Archive(folder / "whole").trades()
    counts = "SELECT block_id, rows FROM blocks ORDER BY ALL"
    blocks_of_whole = Archive(folder / "whole").query(counts)

    def compare(path):
        assert Archive(path).trades().equals(whole)
        assert Archive(path).query(counts).equals(blocks_of_whole)

    work = Work(
        f"host('import_blocks', {str(store)!r})",
        set(held_rows(folder / "whole", "trade_id, role")),
        lambda path: held_rows(path, "trade_id, role"),
        compare,
    )
    return kill_again_and_again(folder, work, kills, longest)


def kill_outputs(
    run: str, source: Path, content: Callable[[Path], Any], kills: int, longest: float
) -> Tally:
    """Kill what makes a file or a folder of a source, within `longest` times as long as it takes undisturbed.

    AssertionError where a part of it is left, or the source has changed.
    """
    dice = random.Random(1)
    before = source.read_bytes()
    truth = content(source)
    folder = source.parent
    finished = whole = 0
    with hosted(f"host({run!r}, {str(source)!r})", "kill_rig") as process:
        resume(process, folder / "first")
        began = time.monotonic()
        resume(process, folder / "undisturbed")
        seconds = time.monotonic() - began
        for number in range(kills):
            target = folder / str(number) / "output"
            pid = begin(process, target)
            if lives_on(process, dice.uniform(0, longest) * seconds):
                finished += 1
            else:
                end(process, pid)
            if target.exists():
                whole += 1
            else:
                # What a killed process leaves counts as abandoned after a minute.
                for part in target.parent.glob("loopring-lab-*"):
                    os.utime(part, (0, 0))
                resume(process, target)
                assert list(target.parent.iterdir()) == [target], "parts are left"
            assert content(target) == truth
            assert source.read_bytes() == before
    return Tally(kills, finished, kills, whole, kills, kills, Counter())


def stored_trades(folder: Path) -> Path:
    path = folder / "source"
    Archive(path).import_pages(
        save(Ledger(10, 2_000), folder / "saved", source="ledger"), progress=False
    )
    return path


def trades_of(path: Path) -> list[Any]:
    """Return the trades of an archive, or of its export."""
    if path.is_dir():
        frame = pd.read_parquet(path)[["trade_id", "account_id", "size", "fee"]]
    else:
        assert Archive(path).verify().empty
        frame = Archive(path).trades()[["trade_id", "account_id", "size", "fee"]]
    return sorted(frame.astype(str).itertuples(index=False, name=None))


def exports(folder: Path, kills: int, longest: float) -> Tally:
    """Kill exports of an archive."""
    return kill_outputs(
        "export_trades", stored_trades(folder), trades_of, kills, longest
    )


def copies(folder: Path, kills: int, longest: float) -> Tally:
    """Kill copies of an archive."""
    return kill_outputs("copy_trades", stored_trades(folder), trades_of, kills, longest)


def block_copies(folder: Path, kills: int, longest: float, blocks: int = 300) -> Tally:
    """Kill copies of a store of blocks."""
    return kill_outputs(
        "copy_blocks", stored_blocks(folder, blocks), held_blocks, kills, longest
    )
