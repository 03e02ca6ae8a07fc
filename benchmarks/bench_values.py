"""Fees in one token against the synthetic world's truth: errors, and how often the stated one holds them."""

import argparse
import sys
from math import isnan
from pathlib import Path
from statistics import fmean, median

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.worlds import Valued, trades_of, valued_accounts

from loopring_lab.relayer.world import World


def line(found: list[Valued]) -> dict[str, float]:
    """Summarise the accounts of a world; what is stated, of those of which anything is."""
    stated = [one for one in found if not isnan(one.within_bps)]
    errors = [abs(one.error_bps) for one in found]
    beyond = [one for one in found if abs(one.error_bps) > 20]
    return {
        "accounts": len(found),
        "median_error_bps": round(median(errors), 1),
        "largest_error_bps": round(max(errors), 1),
        "beyond_20_bps": len(beyond),
        "beyond_20_bps_unsaid": sum(one.within_bps < 20 for one in beyond),
        "stated": len(stated),
        # Doubles round, also where fees are in the token itself.
        "within_stated": round(
            fmean(abs(one.error_bps) <= one.within_bps + 1e-9 for one in stated), 3
        ),
        "median_stated_bps": round(median(one.within_bps for one in stated), 1),
        "unpriced": round(sum(one.unpriced for one in found) / len(found), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=101)
    parser.add_argument("--size", type=float, default=0.1)
    parser.add_argument("--token", default="USDC")
    chosen = parser.parse_args()
    rows = []
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        world = World(seed, chosen.size)
        trades = trades_of(world)
        for name, prices in {"all accounts": trades, "own trades": None}.items():
            rows.append(
                {"seed": seed, "prices": name}
                | line(valued_accounts(world, trades, chosen.token, prices))
            )
    table = pd.DataFrame(rows)
    print(table.to_string(index=False))
    print(table.drop(columns="seed").groupby("prices").mean().round(3).T.to_string())


if __name__ == "__main__":
    main()
