"""Put every hostile answer and file of tests/attacks through its door, and count how they end.

Run: python benchmarks/bench_attacks.py [children] [words that a case's name must hold]
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attacks import cases, pool


def main(children: int = 6, *words: str) -> int:
    every = cases.every_case()
    began = time.perf_counter()
    outcomes = pool.run([n for n in cases.attacks() if all(word in every[n].id for word in words)], children)
    print(pool.told(outcomes))
    slowest = max(outcomes, key=lambda one: one.seconds)
    largest = max(outcomes, key=lambda one: one.grown)
    print(f"{time.perf_counter() - began:.0f} s in all, with {children} children")
    print(f"slowest: {slowest.seconds:.1f} s, {slowest.case}")
    print(f"largest: {largest.grown >> 20} MB over the start, {largest.case}")
    return not all(one.is_good for one in outcomes)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2]), *sys.argv[2:]))
