"""The requests of a sync: the rate used, the cost of a second sync, and ten thousand faults in one run.

The relayer runs in a process of its own. Run: python benchmarks/bench_archive_sync.py [rate|faults]
"""

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.archive_kills import check
from support.ledger import Ledger

from loopring_lab.archive import Archive
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, Settings
from loopring_lab.sources.client import Client

FAULTS = {
    "429": 0.12,
    "500": 0.12,
    "503": 0.08,
    "reset": 0.12,
    "truncated": 0.12,
    "slow": 0.09,
}


def serve(
    channel: Connection, ledger: tuple[int, int], settings: dict[str, Any]
) -> None:
    with Relayer(Ledger(*ledger), Settings(**settings)) as relayer:
        channel.send((relayer.base_url, relayer.api_key[:]))
        while channel.recv():
            counts = relayer.counts
            asked = counts.requests["/user/trades"]
            channel.send(
                (asked, sum(counts.rate_limited.values()), dict(counts.faults))
            )


@contextmanager
def running(
    accounts: int, trades: int, rate: float | None = None, **settings: Any
) -> Iterator[tuple[Client, Callable[[], tuple[int, int, dict[str, int]]]]]:
    ours, theirs = multiprocessing.Pipe()
    words = (theirs, (accounts, trades), settings)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=words)
    process.start()
    url, key = ours.recv()

    def counts() -> tuple[int, int, dict[str, int]]:
        ours.send(True)
        found: tuple[int, int, dict[str, int]] = ours.recv()
        return found

    yield (
        Client(
            Transport(url, api_key=key, rate=rate, proxies=False),
            "ledger",
            synthetic=True,
        ),
        counts,
    )
    ours.send(False)
    process.join()


def paced() -> None:
    ledger = Ledger(4, 4_000)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(4, 4_000, rate=5.0, rate_limit=5) as (client, counts),
    ):
        archive = Archive(Path(folder) / "a")
        begin = time.perf_counter()
        archive.sync(client, accounts=ledger.accounts, progress=False)
        elapsed = time.perf_counter() - begin
        asked, refused, _ = counts()
        print(
            f"5 per second: {4 * 4_000:,} trades in {asked} requests and {elapsed:.1f} s with all commits and the "
            f"report, {(asked - 1) / elapsed / 5:.1%} of the rate used, 429s: {refused}"
        )
        archive.sync(client, accounts=ledger.accounts, progress=False)
        again = counts()[0] - asked
        print(
            f"second sync, nothing new: {again} requests for {2 * 4} histories: {again / 8:.2f} each (at most 2)"
        )
        check(Path(folder) / "a", *ledger.truth())


def faulty() -> None:
    ledger = Ledger(40, 11_500)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(40, 11_500, faults=FAULTS, slow_seconds=0.02) as (client, counts),
    ):
        begin = time.perf_counter()
        Archive(Path(folder) / "a").sync(
            client, accounts=ledger.accounts, progress=False
        )
        elapsed = time.perf_counter() - begin
        asked, _, faults = counts()
        check(Path(folder) / "a", *ledger.truth())
    print(
        f"{sum(faults.values()):,} faults in {asked:,} requests and {elapsed:.0f} s: {40 * 11_500:,} trades, "
        f"none wrong, lost or duplicated; {dict(sorted(faults.items()))}"
    )


if __name__ == "__main__":
    for name, work in (("rate", paced), ("faults", faulty)):
        if name in sys.argv[1:] or not sys.argv[1:]:
            work()
