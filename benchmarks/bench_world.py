"""Measure the synthetic world over several seeds, sizes and settings, to put it beside the real exchange.

Run: python benchmarks/bench_world.py [seeds, such as 1,2,3]
"""

import sys
import time
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.world_facts import shares
from support.worlds import of_users, size_classes, true_costs, true_difference

from loopring_lab.relayer import World

SIZES = (1.0, 0.2)
SETTINGS = ("pool", "neither", "book")


def main(seeds: list[int]) -> None:
    print(
        "seed size cheaper   fills  pool arbitrage five busiest  accounts   step   median  1/1000  pool-book    s"
    )
    for seed, size, cheaper in product(seeds, SIZES, SETTINGS):
        world = World(seed=seed, size=size, cheaper=cheaper)
        began = time.perf_counter()
        fills = len(world.fills)
        seconds = time.perf_counter() - began
        found = shares(world)
        costs = of_users(world, true_costs(world))
        difference = true_difference(costs, size_classes(costs))[None]
        print(
            f"{seed:4} {size:4} {cheaper:8} {fills:6,} {found.pool:5.1%} {found.arbitrage:9.1%}"
            f" {found.busiest_five:12.1%} {found.smallest_account:4}-{found.largest_account:5,}"
            f" {found.steepest_step:6.2f} {found.median_dollars:7,.0f} $"
            f" {found.one_in_a_thousand_dollars:7,.0f} {difference:6.1f} bps {seconds:4.1f}"
        )


if __name__ == "__main__":
    main(
        [int(seed) for seed in sys.argv[1].split(",")]
        if len(sys.argv) > 1
        else [1, 2, 3, 4, 5]
    )
