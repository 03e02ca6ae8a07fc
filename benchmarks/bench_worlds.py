"""Whether intervals of `compare_venues` hold the population's difference, over synthetic worlds with drawn accounts.

python benchmarks/bench_worlds.py [worlds of each kind] [first seed]

In each world the pool, the book or neither is cheaper for users, accounts are drawn, and arbitrageurs trade at both
venues. Users are told by `with_flow`, and compared with default arguments, in all and by market. What is true of a
world are its orders at true prices; the population's difference is that of the orders of all worlds of a kind. A
verdict is wrong if it names the venue that is not cheaper in the population.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.worlds import (
    MINUTE,
    minute_marks,
    of_users,
    trades_of,
    true_costs,
    true_orders,
)

import loopring_lab as lab
from loopring_lab.relayer import World

CHEAPER = ("pool", "book", "neither")
SIZE = 0.2
FIRST_SEED = 9101
# A world has four or five markets with an interval, so that these and the three kinds have more than 400.
WORLDS = 36
ALL = "all markets"


def true_sums(world: World) -> pd.DataFrame:
    """Return, by market, what a world adds to the two sums whose ratio is the difference."""
    orders = true_orders(of_users(world, true_costs(world)))
    both = orders[orders["is_matched"]]
    cells = both.groupby(["market", "cell", "venue"])[["dollars", "paid"]].sum()
    sums = cells.unstack("venue")
    pool = sums["dollars"]["amm"]
    book = sums["dollars"]["dex"]
    weight = pool * book / (pool + book)
    gap = sums["paid"]["amm"] / pool - sums["paid"]["dex"] / book
    found = pd.DataFrame({"weight": weight, "pull": weight * gap})
    by_market = found.groupby("market").sum()
    return pd.concat([by_market, by_market.sum().to_frame(ALL).T])


def answers(world: World) -> pd.DataFrame:
    """Return what is found about users, in all and by market."""
    trades = trades_of(world)
    prices = minute_marks(world, world.fills, [MINUTE])
    known = lab.research.with_flow(trades, prices)
    users = known[known["flow"] == "user"]
    whole = lab.fills.compare_venues(users, prices).assign(market=ALL)
    by_market = lab.fills.compare_venues(users, prices, by="market")
    return pd.concat([whole, by_market.astype({"market": str})])


def main() -> None:
    """Ask each world, and say how many intervals hold what is true of its kind."""
    worlds = int(sys.argv[1]) if len(sys.argv) > 1 else WORLDS
    first = int(sys.argv[2]) if len(sys.argv) > 2 else FIRST_SEED
    tables = []
    for cheaper in CHEAPER:
        sums = []
        found = []
        for seed in range(first, first + worlds):
            world = World(seed, SIZE, cheaper, book_arbitrage=True, drawn_accounts=True)
            sums.append(true_sums(world))
            found.append(answers(world))
            # A run that is stopped has told of the worlds so far.
            table = beside_truth(sums, found)
            print(cheaper, seed, summary(table), flush=True)
        tables.append(table)
    print("all kinds", summary(pd.concat(tables)))


def beside_truth(sums: list[pd.DataFrame], found: list[pd.DataFrame]) -> pd.DataFrame:
    """Return what was found in worlds of a kind, beside the difference of all their orders."""
    total = pd.concat(sums).groupby(level=0).sum()
    truth = (total["pull"] / total["weight"]).rename("truth")
    return pd.concat(found).join(truth, on="market").dropna(subset=["truth"])


def summary(table: pd.DataFrame) -> dict[str, float]:
    """Return how many intervals there are and hold the truth, the verdicts, and the bias."""
    known = table.dropna(subset=["low_bps"])
    holds = known["truth"].between(known["low_bps"], known["high_bps"])
    cheaper = np.where(table["truth"] < 0, "pool", "book")
    has_verdict = table["verdict"] != "undecided"
    whole = table[table["market"] == ALL]
    return {
        "intervals": len(known),
        "hold": round(100 * holds.mean(), 1),
        "verdicts": int(has_verdict.sum()),
        "wrong": int((has_verdict & (table["verdict"] != cheaper)).sum()),
        "truth": round(whole["truth"].mean(), 2),
        "bias": round((whole["difference_bps"] - whole["truth"]).mean(), 2),
    }


if __name__ == "__main__":
    main()
