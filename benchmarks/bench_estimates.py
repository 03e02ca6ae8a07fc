"""Check comparisons of venues against the truth of synthetic worlds: bias, intervals, wrong verdicts.

python benchmarks/bench_estimates.py [first seed] [seeds] [size]

A world of each seed is one sample. Its own true difference is what the sample would show if every true cost were
known; the population's is the mean of these over all seeds of a kind of world. An interval is about the population:
it should hold that value as often as it promises. Holding the sample's own truth is easier and says less.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.worlds import (
    MINUTE,
    minute_marks,
    size_classes,
    trades_of,
    true_costs,
    true_difference,
)

import loopring_lab as lab
from loopring_lab.fills.prices import OUTSIDE_PRICES
from loopring_lab.relayer import World
from loopring_lab.relayer.world import Fill

CHEAPER = ("pool", "neither", "book")
# What comparisons are grouped by, and the same of a fill of the world.
GROUPINGS: dict[str, tuple[str | None, Callable[[Fill], Any]]] = {
    "all": (None, lambda fill: None),
    "market": ("market", lambda fill: fill.market),
    "side": ("side", lambda fill: fill.side),
    "account": ("account_id", lambda fill: fill.taker),
}
# The targets of 95 % intervals with outside prices, and of the median error.
LEAST_HELD = 0.90
MOST_HELD = 0.98
BIAS_BPS = 0.5


def estimates_of(world: World) -> list[dict[str, Any]]:
    """Compare the venues of a world in every way, and put each estimate beside the truth of the sample."""
    trades = trades_of(world)
    costs = true_costs(world)
    classes = size_classes(costs)
    marks = minute_marks(world, world.fills, [MINUTE])
    found = []
    for grouping, (by, key) in GROUPINGS.items():
        truth = true_difference(costs, classes, key)
        for prices in (marks, None):
            estimates = lab.fills.compare_venues(trades, prices, by=by)
            for row in estimates.to_dict("records"):
                group = row[by] if by else None
                if group in truth:
                    about = {
                        "cheaper": world.cheaper,
                        "by": grouping,
                        "group": str(group),
                        "seed": world.seed,
                    }
                    found.append({**about, "truth": truth[group], **row})
    return found


def judged(estimates: pd.DataFrame) -> pd.DataFrame:
    """Add what the population's value is, and how each estimate does beside it and beside its sample's truth."""
    kind = ["cheaper", "by", "group", "reference"]
    samples = estimates.groupby(kind)["truth"]
    population = samples.transform("mean")
    # The mean of few samples, of groups that few seeds have, is not the population's.
    is_known = samples.transform("count") >= estimates["seed"].nunique() / 2
    has_interval = estimates["low_bps"].notna() & is_known
    true_verdict = (estimates["truth"] < 0).map({True: "pool", False: "book"})
    is_told = estimates["verdict"] != "undecided"
    return estimates.assign(
        error=estimates["difference_bps"] - estimates["truth"],
        has_interval=has_interval,
        holds_population=has_interval
        & population.between(estimates["low_bps"], estimates["high_bps"]),
        holds_sample=has_interval
        & estimates["truth"].between(estimates["low_bps"], estimates["high_bps"]),
        is_told=is_told,
        is_wrong=is_told & (estimates["verdict"] != true_verdict),
    )


def summed(estimates: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return one line for each kind of estimate."""
    groups = estimates.groupby(by, sort=False)
    lines = groups.agg(
        estimates=("error", "size"),
        median_error=("error", "median"),
        intervals=("has_interval", "sum"),
        population=("holds_population", "sum"),
        sample=("holds_sample", "sum"),
        verdicts=("is_told", "sum"),
        wrong=("is_wrong", "sum"),
    )
    for held in ("population", "sample"):
        lines[f"{held}_%"] = 100 * lines[held] / lines["intervals"]
    return lines.round(2)


def main(first: int = 3001, seeds: int = 24, size: float = 0.05) -> None:
    """Print a line for each kind of world, grouping and reference, then whether the targets are met."""
    found = []
    for seed in range(first, first + seeds):
        for cheaper in CHEAPER:
            found += estimates_of(World(seed=seed, size=size, cheaper=cheaper))
    estimates = judged(pd.DataFrame(found))
    print(summed(estimates, ["reference", "cheaper", "by"]).to_string())
    print(summed(estimates, ["reference", "by"]).to_string())
    whole = summed(estimates, ["reference"])
    print(whole.to_string())
    outside = whole.loc[OUTSIDE_PRICES]
    share = outside["population"] / outside["intervals"]
    is_met = (
        LEAST_HELD <= share <= MOST_HELD
        and abs(outside["median_error"]) < BIAS_BPS
        and whole["wrong"].sum() == 0
    )
    verdict = "met" if is_met else "MISSED"
    print(
        f"{outside['population']:.0f} of {outside['intervals']:.0f} hold the population's value ({share:.1%}): {verdict}"
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*map(int, arguments[:2]), *map(float, arguments[2:]))
