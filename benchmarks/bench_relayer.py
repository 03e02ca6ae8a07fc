"""Whole HTTP responses from one account's 1,000,000 trades: the offset must not matter.

Run: ``python benchmarks/bench_relayer.py``. It prints milliseconds and fails above the limit.
"""

import statistics
import sys
import time
from typing import Any

import requests

from loopring_lab.relayer import Relayer, World
from loopring_lab.relayer.pages import History, RowKey

ROWS = 1_000_000
ACCOUNT = 7
LIMIT_MS = 10.0
TIMES = 100
OFFSETS = (0, 500_000, ROWS - 50)
MARKETS = ("LRC-ETH", "ETH-USDC", "WBTC-USDC", "LRC-USDC")


class Million:
    """A source with one account that has a million trades."""

    label = name = "benchmark"
    synthetic = True
    accounts = (ACCOUNT,)

    def __init__(self) -> None:
        world = World(size=0.01)
        self.tokens = world.tokens
        self.markets = world.markets
        self.pool_records = world.pool_records
        self.pool_owners = world.pool_owners
        keys = (
            RowKey(
                ACCOUNT, MARKETS[n % 4], "amm" if n % 3 else "dex", f"0x{n // 3:064x}"
            )
            for n in range(ROWS)
        )
        self.history = History(keys, self.row)

    @staticmethod
    def row(n: int) -> tuple[str, ...]:
        market = ("AMM-" if n % 3 else "") + MARKETS[n % 4]
        head = (
            str(1_640_995_200_000 + 31 * n),
            str(n),
            "BUY",
            "453794000000000000000",
            "3.5669E-4",
            market,
        )
        return (
            *head,
            "1618680000000000",
            "24697",
            "343",
            str(ACCOUNT),
            "1",
            str(n),
            f"0x{n // 3:064x}",
            "taker",
        )


def measure(
    session: requests.Session, url: str, query: dict[str, Any]
) -> tuple[float, float]:
    """Median and largest time of an answer, in ms."""
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        answer = session.get(url, params=query)
        times.append((time.perf_counter() - began) * 1000)
        assert len(answer.json()["trades"]) == 50
    return statistics.median(times), max(times)


def main() -> int:
    began = time.perf_counter()
    source = Million()
    print(f"index of {ROWS:,} rows: {time.perf_counter() - began:.2f} s")
    slowest = 0.0
    with Relayer(source) as relayer, requests.Session() as session:
        session.headers["X-API-KEY"] = relayer.api_key
        url = relayer.base_url + "/api/v3/user/trades"
        for name, filters in {
            "account": {},
            "fill type": {"fillTypes": "amm"},
            "market": {"market": "LRC-ETH"},
        }.items():
            total = session.get(url, params={"accountId": ACCOUNT, **filters}).json()[
                "totalNum"
            ]
            for offset in OFFSETS:
                query = {
                    "accountId": ACCOUNT,
                    "offset": offset * (total - 50) // (ROWS - 50),
                    **filters,
                }
                median, most = measure(session, url, query)
                slowest = max(slowest, median)
                where = f"{name:>9} of {total:>9,}, offset {query['offset']:>7,}"
                print(f"{where}: median {median:5.2f} ms, max {most:5.2f} ms")
    print(f"slowest median {slowest:.2f} ms, limit {LIMIT_MS} ms")
    return int(slowest >= LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
