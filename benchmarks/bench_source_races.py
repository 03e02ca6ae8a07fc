"""First syncs of one folder from different sources, started together: one source gets in, all others are refused.

Half of the rounds race threads, half processes. Run: python benchmarks/bench_source_races.py [rounds]
"""

import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.named_sources import race_once, racing

SOURCES = 3


def main(rounds: int) -> None:
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        racing(SOURCES) as (racers, truths),
        ThreadPoolExecutor(SOURCES) as threads,
        ProcessPoolExecutor(SOURCES, mp_context=spawn) as processes,
    ):
        list(
            processes.map(time.sleep, [0.5] * SOURCES)
        )  # so that all are there when the first race begins
        begin = time.perf_counter()
        winners = Counter[int]()
        for number in range(rounds):
            pool = processes if number % 2 else threads
            winners[race_once(racers, truths, Path(folder) / str(number), pool)] += 1
        elapsed = time.perf_counter() - begin
    print(
        f"{rounds} races of {SOURCES} sources in {elapsed:.0f} s: 0 mixed, {rounds * (SOURCES - 1)} refused with "
        f"both names; won by {dict(sorted(winners.items()))}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 50)
