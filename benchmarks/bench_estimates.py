"""Check comparisons of venues against the truth of synthetic worlds: bias, intervals, wrong verdicts.

python benchmarks/bench_estimates.py [first seed] [seeds] [size] [listed | drawn]

Over all takers, and over users: without the fills that arbitrageurs took. For each of the four weights of a cell, and
each level of clusters. A world of each seed is one sample. Its own true difference is what the sample would show if every true cost were
known; the population's is the mean of these over all seeds of a kind of world. An interval is about the population:
it should hold that value as often as it promises. Holding the sample's own truth is easier and says less.

Worlds have the same listed accounts at every seed, as if the exchange had no others. Errors clustered by account take
accounts to be a sample: ``drawn`` gives worlds whose users are one, drawn anew at each seed, and looks at these errors
alone, of users alone, as the few arbitrageurs are no sample.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.worlds import (
    MINUTE,
    WEIGHTS,
    minute_marks,
    of_users,
    size_classes,
    trades_of,
    true_costs,
    true_differences,
)

import loopring_lab as lab
from loopring_lab.fills.estimands import CLUSTERS
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
# The columns of each estimand and of its interval.
INTERVALS = {
    name: tuple(
        name.replace("difference_", "").replace("bps", end)
        for end in ("low_bps", "high_bps")
    )
    for name in WEIGHTS
}
# The targets of 95 % intervals with outside prices, and of the median error.
LEAST_HELD = 0.90
MOST_HELD = 0.98
BIAS_BPS = 0.5


def estimates_of(world: World) -> list[dict[str, Any]]:
    """Compare the venues of a world in every way, and put each estimate beside the truth of the sample."""
    trades = trades_of(world)
    costs = true_costs(world)
    arbitrage = {
        cost.fill.id for cost in costs if cost.fill.taker in world.arbitrageurs
    }
    samples = {
        "all": (trades, costs),
        "users": (
            trades[~trades["trade_id"].isin(arbitrage)].reset_index(drop=True),
            of_users(world, costs),
        ),
    }
    marks = minute_marks(world, world.fills, [MINUTE])
    levels = list(CLUSTERS)
    if world.drawn_accounts:
        del samples["all"]
        levels = ["account"]
    found = []
    for takers, (some, some_costs) in samples.items():
        classes = size_classes(some_costs)
        for grouping, (by, key) in GROUPINGS.items():
            truths = true_differences(some_costs, classes, key)
            about = {
                "cheaper": world.cheaper,
                "takers": takers,
                "by": grouping,
                "seed": world.seed,
            }
            asked: list[tuple[Any, str | None]] = [(marks, level) for level in levels]
            if takers == "all":
                asked.append((None, None))
            for prices, cluster in asked:
                estimates = lab.fills.compare_venues(
                    some, prices, by=by, cluster=cluster
                )
                about["clusters"] = cluster or "chosen"
                found += rows_of(estimates, by, truths, about)
    return found


def rows_of(
    estimates: pd.DataFrame,
    by: str | None,
    truths: dict[Any, dict[str, float]],
    about: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return a row for each estimand of each estimate, beside its truth."""
    found = []
    for row in estimates.to_dict("records"):
        group = row[by] if by else None
        for name, truth in truths.get(group, {}).items():
            low, high = INTERVALS[name]
            found.append(
                {
                    **about,
                    "group": str(group),
                    "reference": row["reference"],
                    "estimand": name,
                    "truth": truth,
                    "estimate": row[name],
                    "low": row[low],
                    "high": row[high],
                    "verdict": row["verdict"],
                }
            )
    return found


def judged(estimates: pd.DataFrame) -> pd.DataFrame:
    """Add what the population's value is, and how each estimate does beside it and beside its sample's truth."""
    kind = ["cheaper", "takers", "by", "group", "reference", "clusters", "estimand"]
    samples = estimates.groupby(kind)["truth"]
    population = samples.transform("mean")
    # The mean of few samples, of groups that few seeds have, is not the population's.
    is_known = samples.transform("count") >= estimates["seed"].nunique() / 2
    has_interval = estimates["low"].notna() & is_known
    true_verdict = (estimates["truth"] < 0).map({True: "pool", False: "book"})
    # The verdict is about the first estimand.
    is_told = (estimates["verdict"] != "undecided") & (
        estimates["estimand"] == "difference_bps"
    )
    return estimates.assign(
        error=estimates["estimate"] - estimates["truth"],
        half_width=(estimates["high"] - estimates["low"]).where(has_interval) / 2,
        has_interval=has_interval,
        holds_population=has_interval
        & population.between(estimates["low"], estimates["high"]),
        holds_sample=has_interval
        & estimates["truth"].between(estimates["low"], estimates["high"]),
        is_told=is_told,
        is_wrong=is_told & (estimates["verdict"] != true_verdict),
    )


def summed(estimates: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return one line for each kind of estimate."""
    groups = estimates.groupby(by, sort=False)
    lines = groups.agg(
        estimates=("error", "size"),
        median_error=("error", "median"),
        half_width=("half_width", "mean"),
        intervals=("has_interval", "sum"),
        population=("holds_population", "sum"),
        sample=("holds_sample", "sum"),
        verdicts=("is_told", "sum"),
        wrong=("is_wrong", "sum"),
    )
    for held in ("population", "sample"):
        lines[f"{held}_%"] = 100 * lines[held] / lines["intervals"]
    return lines.round(2)


def main(
    first: int = 3001, seeds: int = 24, size: float = 0.05, accounts: str = "listed"
) -> None:
    """Print a line for each kind of world, grouping and reference, then whether the targets are met."""
    is_drawn = accounts == "drawn"
    found = []
    for seed in range(first, first + seeds):
        for cheaper in CHEAPER:
            world = World(seed, size, cheaper, drawn_accounts=is_drawn)
            found += estimates_of(world)
    estimates = judged(pd.DataFrame(found))
    outside = estimates[estimates["reference"] == OUTSIDE_PRICES]
    for by in ("by", "cheaper", "estimand"):
        lines = summed(estimates, ["reference", "takers", "clusters", by])
        print(lines.to_string(), end="\n\n")
    held = summed(outside, ["takers", "clusters", "estimand"]).loc["users"]
    shares = held["population"] / held["intervals"]
    is_met = (
        shares.between(LEAST_HELD, MOST_HELD).all()
        and held["median_error"].abs().max() < BIAS_BPS
        and estimates["is_wrong"].sum() == 0
    )
    verdict = "met" if is_met else "MISSED"
    print(
        f"Of users {shares.min():.1%} to {shares.max():.1%} hold the population's value, by estimand and cluster; "
        f"{estimates['is_wrong'].sum()} wrong verdicts: {verdict}"
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*map(int, arguments[:2]), *map(float, arguments[2:3]), *arguments[3:])
