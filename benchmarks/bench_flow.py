"""Measure flow classes on synthetic worlds that were not used while building them.

Run: python benchmarks/bench_flow.py [first seed] [seeds] [size]
"""

import sys
import time
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.flows import CHEAPER, recovered

from loopring_lab.relayer import World


def main(first: int, seeds: int, size: float) -> None:
    print("precision and recall of each class, worst of all seeds; CPU s of all")
    for cheaper, book_arbitrage in product(CHEAPER, (False, True)):
        began = time.process_time()
        found = [
            recovered(World(seed, size, cheaper, book_arbitrage=book_arbitrage))
            for seed in range(first, first + seeds)
        ]
        seconds = time.process_time() - began
        venues = "pool and book" if book_arbitrage else "pool"
        print(f"{cheaper} cheaper, arbitrage at {venues}: {seconds:.0f} s")
        for flow, weight in found[0]:
            precision = min(one[flow, weight].precision for one in found)
            recall = min(one[flow, weight].recall for one in found)
            print(f"  {flow:9} {weight}  {precision:6.3f} {recall:6.3f}")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 5001,
        int(sys.argv[2]) if len(sys.argv) > 2 else 24,
        float(sys.argv[3]) if len(sys.argv) > 3 else 0.05,
    )
