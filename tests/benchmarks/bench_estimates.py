"""Check estimates against the truth of synthetic worlds: bias, coverage of intervals, wrong verdicts.

python tests/benchmarks/bench_estimates.py [first seed] [seeds] [size, ...]
"""

import math
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.worlds import (
    MINUTE,
    minute_marks,
    size_classes,
    trades_of,
    true_costs,
    true_difference,
)

import loopring_lab as lab
from loopring_lab.relayer import World
from loopring_lab.relayer.world import Fill

CHEAPER = ("pool", "neither", "book")
GROUPINGS: dict[str, tuple[Any, Callable[[Fill], Any]]] = {
    "all": (None, lambda fill: None),
    "market": ("market", lambda fill: fill.market),
    "side": ("side", lambda fill: fill.side),
    "account": ("account_id", lambda fill: fill.taker),
}
COVERAGE, BIAS_BPS = 0.9, 0.5


class Tally:
    """What estimates of many groups and seeds amount to."""

    def __init__(self) -> None:
        self.errors: list[float] = []
        self.intervals = self.held = self.verdicts = self.wrong = 0

    def add(self, row: Any, true: float) -> None:
        self.errors.append(row.difference_bps - true)
        if not math.isnan(row.low_bps):
            self.intervals += 1
            self.held += row.low_bps <= true <= row.high_bps
        if row.verdict != "undecided":
            self.verdicts += 1
            self.wrong += row.verdict != ("pool" if true < 0 else "book")

    def line(self) -> str:
        coverage = f"{self.held / self.intervals:6.1%}" if self.intervals else "     -"
        return (
            f"{len(self.errors):6} {median(self.errors):8.2f} {self.intervals:9} {coverage} "
            f"{self.verdicts:8} {self.wrong:5}"
        )


def compare(world: World, tallies: dict[tuple[str, ...], Tally]) -> None:
    """Add the comparisons of a world's venues to the tallies."""
    trades, costs = trades_of(world), true_costs(world)
    classes, marks = size_classes(costs), minute_marks(world, world.fills, [MINUTE])
    for name, (by, key) in GROUPINGS.items():
        truth = true_difference(costs, classes, key)
        for mode, prices in (("outside", marks), ("own", None)):
            found = lab.fills.compare_venues(trades, prices, by=by)
            groups = [None] if by is None else found[by]
            for group, row in zip(groups, found.itertuples(), strict=True):
                if row.fills:
                    tallies[world.cheaper, f"{world.size:g}", name, mode].add(row, truth[group])


def main(first: int, seeds: int, sizes: list[float]) -> None:
    """Print a line per kind of world, size, grouping and reference, and whether the targets are met."""
    tallies: dict[tuple[str, ...], Tally] = defaultdict(Tally)
    for size in sizes:
        for seed in range(first, first + seeds):
            for cheaper in CHEAPER:
                compare(World(seed=seed, size=size, cheaper=cheaper), tallies)
    print("cheaper  size by      prices   groups     bias intervals   held verdicts wrong")
    for (cheaper, size, by, mode), tally in tallies.items():
        print(f"{cheaper:8} {size:>4} {by:7} {mode:7} {tally.line()}")
    outside = [tally for key, tally in tallies.items() if key[-1] == "outside"]
    held = sum(tally.held for tally in outside) / sum(tally.intervals for tally in outside)
    bias = median(error for tally in outside for error in tally.errors)
    wrong = sum(tally.wrong for tally in tallies.values())
    met = held >= COVERAGE and abs(bias) < BIAS_BPS and not wrong
    print(
        f"held {held:.1%}, median bias {bias:.2f} bps, {wrong} wrong verdicts: {'met' if met else 'MISSED'}"
    )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(
        int(given[0]) if given else 1001,
        int(given[1]) if len(given) > 1 else 20,
        [float(size) for size in given[2:]] or [0.1, 0.3],
    )
