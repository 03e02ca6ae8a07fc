"""Check cost curves against the truth of synthetic worlds: bias, and how often bands and crossings hold it.

python benchmarks/bench_curves.py [first seed] [seeds] [size]

A world of each seed is one sample. Its true curve is the same regression on true costs; the population's is the mean
of these over all seeds of a kind of world, which a band should hold as often as it promises.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.worlds import MINUTE, minute_marks, trades_of, true_prices

import loopring_lab as lab
from loopring_lab.relayer import World

CHEAPER = ("pool", "neither", "book")
CLUSTERS = ("account", "day", "week")
# Dollars of an order, from small to large ones.
SIZES = np.array([250.0, 500.0, 1000.0, 2000.0, 4000.0])
# The targets of 95 % bands, and of the mean error at each size.
LEAST_HELD = 0.90
MOST_HELD = 0.98
BIAS_BPS = 0.5


def at_sizes(curves: pd.DataFrame, name: str, venue: str) -> np.ndarray:
    """Return a column of a curve at `SIZES`; NaN where it is not drawn."""
    curve = curves[curves["venue"] == venue]
    if curve.empty:
        return np.full(len(SIZES), np.nan)
    logs = np.log(curve["size"])
    return np.interp(np.log(SIZES), logs, curve[name], left=np.nan, right=np.nan)


def estimates_of(world: World) -> Iterator[dict[str, Any]]:
    """Fit the curves of a world's users in every way, beside the true ones."""
    trades = trades_of(world)
    users = trades[~trades["account_id"].isin(world.arbitrageurs)]
    marks = minute_marks(world, world.fills, [MINUTE])
    # The true price is known at each fill only, so no later one may count.
    truth = lab.research.cost_curves(users, true_prices(world), horizon="1ms")
    for cluster in CLUSTERS:
        curves = lab.research.cost_curves(users, marks, cluster=cluster)
        crossing = lab.research.crossing(curves).iloc[0]
        for venue in ("pool", "book", "difference"):
            columns = {
                name: at_sizes(curves, name, venue)
                for name in ("cost_bps", "low_bps", "high_bps")
            }
            columns["truth"] = at_sizes(truth, "cost_bps", venue)
            about = {
                "cheaper": world.cheaper,
                "seed": world.seed,
                "cluster": cluster,
                "venue": venue,
                "crossing": crossing["size"],
                "low_size": crossing["low_size"],
                "high_size": crossing["high_size"],
            }
            for place, size in enumerate(SIZES):
                row = {name: values[place] for name, values in columns.items()}
                yield {**about, "size": size, **row}


def main(first: int = 7001, seeds: int = 24, size: float = 0.1) -> None:
    """Print a line for each kind of world, cluster and venue, then whether the targets are met."""
    found = []
    for seed in range(first, first + seeds):
        for cheaper in CHEAPER:
            found += estimates_of(World(seed=seed, size=size, cheaper=cheaper))
    estimates = pd.DataFrame(found)
    alike = ["cheaper", "cluster", "venue", "size"]
    population = estimates.groupby(alike)["truth"].transform("mean")
    # The mean of few samples is not the population's.
    is_known = estimates.groupby(alike)["truth"].transform("count") >= seeds / 2
    estimates = estimates[is_known & estimates["low_bps"].notna()].assign(
        error=estimates["cost_bps"] - estimates["truth"],
        held=population.between(estimates["low_bps"], estimates["high_bps"]),
        population=population,
    )
    for by in (["cheaper", "venue", "size"], ["cluster", "venue"], ["cluster"]):
        lines = estimates.groupby(by).agg(
            bands=("held", "size"),
            population=("population", "mean"),
            bias=("error", "mean"),
            held=("held", "mean"),
        )
        print(lines.round(3).to_string())
    bias = estimates.groupby(alike)["error"].mean().abs().max()
    share = lines["held"]
    is_met = share.between(LEAST_HELD, MOST_HELD).all() and bias < BIAS_BPS
    print(
        f"largest mean error at a size {bias:.2f} bps, held {share.to_dict()}: {'met' if is_met else 'MISSED'}"
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*map(int, arguments[:2]), *map(float, arguments[2:]))
