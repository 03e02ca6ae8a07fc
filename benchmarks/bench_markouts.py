"""Markouts against outside minute prices, compared with true later prices, over many synthetic worlds.

Run: python benchmarks/bench_markouts.py [worlds] [first seed] [size] [pool | book | neither]
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.worlds import minute_marks, trades_of, true_markouts, values_of

import loopring_lab as lab
from loopring_lab.relayer import World

HORIZONS = {"10s": 10_000, "1min": 60_000, "5min": 300_000, "1h": 3_600_000}
RATES = ("effective", "realized", "impact")


def compared(world: World) -> pd.DataFrame:
    """Return the error of each estimate of a world, and whether its interval holds the true value."""
    frame = trades_of(world)
    fills = {fill.id: fill for fill in world.fills}
    marks = minute_marks(world, world.fills, HORIZONS.values())
    values = values_of(frame)
    priced = lab.fills.markouts(frame, marks, list(HORIZONS)).dropna(
        subset=["effective_bps", "realized_bps"]
    )
    found = lab.fills.markouts(frame, marks, list(HORIZONS), by="fill_type")
    lines = []
    for line in found.itertuples():
        mine = priced[
            (priced["fill_type"] == line.fill_type)
            & (priced["horizon"] == line.horizon)
        ]
        true = true_markouts(
            world,
            [fills[number] for number in mine["trade_id"]],
            HORIZONS[line.horizon],
        )
        for rate in RATES:
            expected = np.average(true[rate], weights=values.loc[mine["trade_id"]])
            estimate, low, high = (
                getattr(line, f"{name}_{rate}_bps")
                for name in ("weighted", "low", "high")
            )
            width = high - low
            # Too few fills for an interval.
            held = float(low <= expected <= high) if width >= 0 else np.nan
            lines.append(
                (
                    line.fill_type,
                    line.horizon,
                    rate,
                    len(mine),
                    expected,
                    estimate - expected,
                    width,
                    held,
                )
            )
    columns = [
        "venue",
        "horizon",
        "rate",
        "priced",
        "true_bps",
        "error_bps",
        "width_bps",
        "held",
    ]
    return pd.DataFrame(lines, columns=columns)


if __name__ == "__main__":
    worlds, first, size, cheaper = [
        *sys.argv[1:],
        *["20", "1001", "0.1", "pool"][len(sys.argv) - 1 :],
    ]
    seeds = range(int(first), int(first) + int(worlds))
    found = pd.concat([compared(World(seed, float(size), cheaper)) for seed in seeds])
    groups = found.groupby(["venue", "horizon", "rate"])
    medians = groups[["priced", "true_bps", "error_bps", "width_bps"]].median()
    print(medians.assign(held=groups["held"].mean()).round(2).to_string())
