"""An archive where disks, other processes, rights and clocks get in the way: full, shared, closed, set back.

Run: python benchmarks/bench_archive_trials.py [full|together|closed|clocks]
"""

import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.archive_kills import check
from support.ledger import Ledger, client_of

from loopring_lab.archive import Archive, sync
from loopring_lab.errors import DiskRefused, LabError
from loopring_lab.relayer import Relayer, Settings

SIZES = [
    *range(0, 20_000, 2_500),
    *range(20_000, 900_000, 55_000),
    *range(900_000, 6_000_000, 500_000),
]


def full() -> None:
    """Let writing fail at each size that the files pass; what was there before stays, and the next sync goes on."""
    first = Ledger(1, 400)
    ledger = Ledger(4, 3_000)
    outcomes: Counter[str] = Counter()
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder, Relayer(ledger) as relayer:
            path = Path(folder) / "a.duckdb"
            Archive(path).sync(
                client_of(relayer), account_id=first.accounts[0], progress=False
            )
            before = Archive(path).trades()
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
            try:
                Archive(path).sync(
                    client_of(relayer), accounts=ledger.accounts, progress=False
                )
                outcomes["there was room"] += 1
            except DiskRefused as error:
                if "the disk is full. What was committed before is safe" not in str(
                    error
                ):
                    raise
                outcomes["disk full"] += 1
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            assert before.equals(Archive(path).trades(first.accounts[0])), size
            assert Archive(path).verify().empty
            Archive(path).sync(
                client_of(relayer), accounts=ledger.accounts, progress=False
            )
            check(path, *ledger.truth())
    print(
        f"a disk that is full at {len(SIZES)} sizes: {dict(outcomes)}; none lost, and each goes on",
        flush=True,
    )


def together(seconds: float = 60.0) -> None:
    """Let two processes sync growing histories while this one reads."""
    ledger = Ledger(6, 4_000)
    settings = Settings(growth=1, latency=0.002)
    spawn = multiprocessing.get_context("spawn")
    end = time.time() + seconds
    with tempfile.TemporaryDirectory() as folder, Relayer(ledger, settings) as relayer:
        path = Path(folder) / "a.duckdb"
        words = (str(path), relayer.base_url, relayer.api_key[:], ledger.accounts, end)
        with spawn.Pool(2) as pool:
            running = [pool.apply_async(_sync_until, words) for _ in range(2)]
            last = 0
            readings = 0
            waits = []
            while time.time() < end:
                begun = time.perf_counter()
                try:
                    rows = int(
                        Archive(path).query("SELECT count(*) AS rows FROM rows")[
                            "rows"
                        ][0]
                    )
                except LabError as error:
                    if "no trades here yet" not in str(error):
                        raise
                    continue
                waits.append(time.perf_counter() - begun)
                assert rows >= last, "rows were lost"
                last = rows
                readings = readings + 1
            syncs = [one.get(120) for one in running]
        truth = ledger.truth()
        for _ in range(settings.growth_reserve):
            # Each request lets a history grow, until all rows are listed.
            if Archive(path).sync(
                client_of(relayer), accounts=ledger.accounts, progress=False
            )["rows"].sum() == len(ledger.rows):
                break
        check(path, *truth)
    median = sorted(waits)[len(waits) // 2]
    print(
        f"{syncs[0]} and {syncs[1]} syncs of two processes, and {readings} readings (median {median:.2f} s, longest "
        f"{max(waits):.1f} s) in {seconds:.0f} s: {last:,} rows, none lost or doubled",
        flush=True,
    )


def _sync_until(path: str, url: str, key: str, accounts: list[int], end: float) -> int:
    from loopring_lab.http.transport import Transport
    from loopring_lab.sources.client import Client

    sync.BATCH_PAGES = 500 // sync.PAGE
    sync.BATCH_SECONDS = 0.2
    client = Client(
        Transport(url, api_key=key, rate=None, proxies=False), "ledger", synthetic=True
    )
    count = 0
    while time.time() < end:
        Archive(path).sync(
            client, accounts=accounts, full=count % 3 == 2, progress=False
        )
        count += 1
    return count


def closed() -> None:
    """Work as another user than the owner, in folders and on files that must not be written to."""
    code = """
import os, sys
from loopring_lab.archive import Archive
from loopring_lab.errors import LabError
from loopring_lab.origin import Source
archive, fresh = Archive(sys.argv[1]), Archive(sys.argv[2])
archive.trades(), archive.report()  # loads what the other user may have no right to load
os.setgroups([]), os.setgid(65534), os.setuid(65534)
print(len(archive.trades()), len(archive.report()), archive.verify().empty)
for one in (archive, fresh):
    try:
        with one._file.writing(Source("ledger", True)):
            print("written")
    except LabError as error:
        print(type(error).__name__, error)
"""
    ledger = Ledger(2, 200)
    with tempfile.TemporaryDirectory() as folder, Relayer(ledger) as relayer:
        Path(folder).chmod(0o755)
        path = Path(folder) / "shelf" / "a.duckdb"
        Archive(path).sync(client_of(relayer), accounts=ledger.accounts, progress=False)
        for mode, of_folder in ((0o444, 0o555), (0o444, 0o755), (0o644, 0o555)):
            path.chmod(mode)
            path.parent.chmod(of_folder)
            words = [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                code,
                str(path),
                str(path.with_name("new.duckdb")),
            ]
            said = subprocess.run(
                words, capture_output=True, text=True, timeout=300, check=False
            ).stdout
            lines = said.splitlines()
            assert lines[0] == "400 4 True", said
            assert [line.split()[0] for line in lines[1:]] == [
                "DiskRefused",
                "DiskRefused",
            ], said
            print(
                f"user nobody, file {mode:o} in a folder {of_folder:o}: reads; writing is refused:\n  {lines[1][-150:]}"
            )


def clocks() -> None:
    """Set the clock back and forth between syncs and imports of changed contents: the last commit is current."""
    times = iter([2e12, 1e12, 3e12, 5e11, 4e12, 9e11] * 10)
    now: list[Any] = [int(next(times))]
    sync.now_ms = lambda: now[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.duckdb"
        for change in range(30):
            now[0] = int(next(times))
            ledger = Ledger(1, 120)
            ledger.rows[-1] = (
                *ledger.rows[-1][:7],
                str(770_000 + change % 7),
                *ledger.rows[-1][8:],
            )
            with Relayer(ledger) as relayer:
                report = Archive(path).sync(
                    client_of(relayer),
                    accounts=ledger.accounts,
                    full=True,
                    progress=False,
                )
            current = Archive(path).query(
                "SELECT block_id FROM rows WHERE current ORDER BY trade_id DESC LIMIT 1"
            )
            assert int(current["block_id"][0]) == 770_000 + change % 7
            assert report["complete"].all()
            assert len(Archive(path).trades()) == 120
        assert report["second_versions"].sum() == 6
    print(
        "30 syncs with a clock that jumps by decades: what was committed last is current, and counts",
        flush=True,
    )


if __name__ == "__main__":
    for work in (full, together, closed, clocks):
        if work.__name__ in sys.argv[1:] or not sys.argv[1:]:
            work()
