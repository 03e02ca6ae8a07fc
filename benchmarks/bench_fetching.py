"""Reading trades over loopback HTTP, compared with a bare requests.Session loop that parses nothing.

The relayer runs in a process of its own. Run: python benchmarks/bench_fetching.py
"""

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import requests

from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.sources.client import Client

RATE = 5.0
# the busiest account of a world of size 1 has 20,000 trades
HUNDRED_THOUSAND = 5.0
FIVE_THOUSAND = 0.52


def serve(channel: Connection, size: float, settings: dict[str, float]) -> None:
    with Relayer(World(size=size), Settings(**settings)) as relayer:
        counts = {account: len(relayer.rows(account)) for account in relayer.accounts}
        channel.send((relayer.base_url, relayer.api_key[:], counts))
        channel.recv()
        channel.send((dict(relayer.counts.requests), dict(relayer.counts.rate_limited)))


@contextmanager
def running(
    size: float, **settings: float
) -> Iterator[tuple[str, str, dict[int, int], Connection]]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, size, settings)
    )
    process.start()
    yield (*ours.recv(), ours)
    process.join()


def bare(base_url: str, key: str, account: int, totals: dict[str, int]) -> float:
    begin = time.perf_counter()
    with requests.Session() as session:
        session.trust_env = False
        for fill_type, total in totals.items():
            for offset in range(0, max(total, 1), 50):
                query = {
                    "accountId": account,
                    "fillTypes": fill_type,
                    "offset": offset,
                    "limit": 50,
                }
                answer = session.get(
                    f"{base_url}/api/v3/user/trades",
                    params=query,
                    headers={"X-API-KEY": key},
                    timeout=30,
                )
                assert len(answer.content) > 20
    return time.perf_counter() - begin


def whole(
    base_url: str, key: str, account: int, rate: float | None = None
) -> tuple[float, int]:
    client = Client(Transport(base_url, api_key=key, rate=rate, proxies=False))
    client.markets()
    begin = time.perf_counter()
    read = len(client.trades(account, progress=False))
    return time.perf_counter() - begin, read


def compare(name: str, size: float, rounds: int, **settings: float) -> None:
    with running(size, **settings) as (base_url, key, counts, channel):
        account = max(counts, key=lambda one: counts[one])
        client = Client(Transport(base_url, api_key=key, rate=None, proxies=False))
        totals = {kind: client.count(account, kind) for kind in ("amm", "dex")}
        ratios = []
        for _ in range(rounds):
            theirs = bare(base_url, key, account, totals)
            ours, read = whole(base_url, key, account)
            assert read == counts[account]
            ratios.append(theirs / ours)
        channel.send(None)
        channel.recv()
    print(
        f"{name}: {read:,} trades, ours {ours:.2f} s, bare loop {theirs:.2f} s: {statistics.median(ratios):.2f} times as fast"
    )


def paced() -> tuple[int, int, float]:
    """Read the busiest account at the rate of a relayer's limit; return trades, 429s and the share used."""
    with running(FIVE_THOUSAND, rate_limit=RATE) as (base_url, key, counts, channel):
        elapsed, read = whole(
            base_url, key, max(counts, key=lambda one: counts[one]), RATE
        )
        channel.send(None)
        asked, refused = channel.recv()
    return read, sum(refused.values()), (asked["/user/trades"] - 1) / elapsed / RATE


if __name__ == "__main__":
    compare("loopback (at least 0.9)", HUNDRED_THOUSAND, 3)
    compare("50 ms latency (at least 6)", 1.0, 1, latency=0.05)
    read, refused, used = paced()
    print(
        f"5 per second: {read:,} trades, {used:.1%} of the rate used, 429s: {refused}"
    )
