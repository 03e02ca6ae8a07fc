"""Paging 5,000 trades at 5 requests per second while other work keeps every core busy: 429s, and the rate used.

The relayer runs in a process of its own, with a limit of 5 in any second.
Run: python benchmarks/bench_pacing.py [runs]
"""

import multiprocessing
import os
import sys

from bench_fetching import paced

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 10


def keep_busy() -> None:
    while True:
        sum(range(10_000))


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    busy = [
        spawn.Process(target=keep_busy, daemon=True) for _ in range(os.cpu_count() or 1)
    ]
    for process in busy:
        process.start()
    runs = []
    for number in range(1, RUNS + 1):
        read, refused, used = paced()
        print(
            f"run {number}: {read:,} trades, {used:.1%} of the rate used, 429s: {refused}",
            flush=True,
        )
        runs.append((refused, used))
    for process in busy:
        process.kill()
    met = sum(refused > 0 for refused, _ in runs)
    least = min(used for _, used in runs)
    print(
        f"{met} of {RUNS} runs met a 429 (at most 0); {least:.1%} of the rate or more (at least 95 %)"
    )


if __name__ == "__main__":
    main()
