"""Check the test for a break against worlds that switch their cheaper venue at a known date, and worlds that do not.

python benchmarks/bench_changes.py [first seed] [seeds] [size]

Worlds that switch give its power, and how near the month found is. Worlds that do not have breaks all the same, as
users reach lower tiers of fees on certain days: so their orders are dealt to twelve months by chance, which leaves no
change, and how often the test finds one is its size. All for users alone. Before that the same of months that are
drawn from their errors, where nothing but the test itself can be wrong.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.worlds import MINUTE, minute_marks, trades_of

import loopring_lab as lab
from loopring_lab.fills.changes import COMPARED
from loopring_lab.relayer import World

CHEAPER = ("pool", "neither", "book")
SWITCHED = ("2022-07-01", "book")
SWITCHED_FROM = ("pool", "neither")
MONTHS = pd.date_range("2022-01-01", periods=12, freq="MS", tz="UTC").as_unit("ms")
# The targets at a level of 5 %.
LEAST_SIZE = 0.03
MOST_SIZE = 0.08
LEAST_POWER = 0.90
# Changes of which the power is stated, in basis points, and the errors of twelve months.
CHANGES_BPS = (2, 4, 6, 8, 12)
ERRORS = (3.0, 3.2, 3.2, 4.4, 3.9, 3.4, 2.3, 3.8, 4.4, 3.5, 4.7, 4.2)
DRAWN = 1000


def users_of(world: World) -> tuple[pd.DataFrame, Any]:
    """Return the fills that a world's users took, and outside prices."""
    trades = trades_of(world)
    is_user = ~trades["account_id"].isin(world.arbitrageurs)
    marks = minute_marks(world, world.fills, [MINUTE])
    return trades[is_user & (trades["role"] == "taker")], marks


def dealt(trades: pd.DataFrame, marks: Any, seed: int) -> pd.DataFrame:
    """Compare the venues in twelve months to which orders are dealt by chance, as `changes` does."""
    orders, found = pd.factorize(trades["order_hash"].astype(str))
    dealt_to = np.random.default_rng(seed).integers(0, 12, len(found))
    periods = MONTHS[dealt_to[orders]]
    months = lab.fills.compare_venues(trades.assign(period=periods), marks, "period")
    reach = (months["high_bps"] - months["low_bps"]) / 2
    months["error_bps"] = reach / NormalDist().inv_cdf(0.975)
    # The bands play no part in the test.
    months[["band_low_bps", "band_high_bps"]] = months[["low_bps", "high_bps"]]
    return months[["period", *COMPARED]]


def found_in(first: int, seeds: int, size: float) -> Iterator[dict[str, Any]]:
    """Test worlds of each kind for a break."""
    for seed in range(first, first + seeds):
        for cheaper in CHEAPER:
            users, marks = users_of(World(seed=seed, size=size, cheaper=cheaper))
            months = dealt(users, marks, seed)
            yield {"kind": cheaper, "seed": seed, **tested(months)}
        for cheaper in SWITCHED_FROM:
            world = World(seed=seed, size=size, cheaper=cheaper, switched=SWITCHED)
            months = lab.fills.changes(*users_of(world), by=None)
            yield {"kind": f"{cheaper}, switched", "seed": seed, **tested(months)}


def tested(months: pd.DataFrame) -> dict[str, Any]:
    return lab.fills.break_test(months).iloc[0].to_dict()


def drawn(change: float, number: int) -> dict[str, Any]:
    """Test twelve months that are off by their errors alone, but for a change in the middle."""
    errors = np.array(ERRORS)
    differences = np.random.default_rng(number).standard_normal(12) * errors
    differences[6:] += change
    months = {
        "period": MONTHS,
        # So many that their errors are known.
        **dict.fromkeys(("fills", "orders", "effective_orders"), 10_000),
        "difference_bps": differences,
        "error_bps": errors,
        **dict.fromkeys(("low_bps", "high_bps", "band_low_bps", "band_high_bps"), 0.0),
        "verdict": "undecided",
        "reference": "outside prices",
    }
    return {"change": change, **tested(pd.DataFrame(months))}


def summed(found: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return how often a break is found, and how often within a month of the switch."""
    distance = (found["changed_at"] - pd.Timestamp(SWITCHED[0], tz="UTC")).abs()
    is_found = found["verdict"] != "undecided"
    lines = found.assign(
        found=is_found, near=is_found & (distance <= pd.Timedelta("31D"))
    ).groupby(by, sort=False)
    return lines.agg(
        tests=("found", "size"),
        periods=("periods", "mean"),
        found=("found", "mean"),
        near=("near", "mean"),
        change_bps=("change_bps", "mean"),
    ).round(3)


def main(first: int = 7001, seeds: int = 70, size: float = 0.2) -> None:
    """Print how often breaks are found in each kind of world, then whether the targets are met."""
    of_months = pd.DataFrame(
        [drawn(change, n) for change in (0, *CHANGES_BPS) for n in range(DRAWN)]
    )
    print(summed(of_months, "change").to_string())
    worlds = pd.DataFrame(found_in(first, seeds, size))
    lines = summed(worlds, "kind")
    print(lines.to_string())
    without = worlds["kind"].isin(CHEAPER)
    wrong = worlds.loc[without, "verdict"] != "undecided"
    power = lines.loc["pool, switched", "found"]
    is_met = LEAST_SIZE <= wrong.mean() <= MOST_SIZE and power >= LEAST_POWER
    print(
        f"size {wrong.mean():.3f} of {len(wrong)} tests, power {power:.2f}: {'met' if is_met else 'MISSED'}"
    )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(*map(int, arguments[:2]), *map(float, arguments[2:]))
