"""How often `compare_venues` is wrong about populations made by hand, in which both venues cost the same.

python benchmarks/bench_populations.py [draws of each kind]

The populations are those of tests/support/populations.py, which say what each is like. A verdict is wrong if it names a
venue; an interval holds if 0 is in it. Where a venue costs 5 or 10 basis points more, an interval moves by as much, so
the power is the share of draws whose interval, moved so, has 0 below it. Wrong verdicts may be 8 % of the draws of a
kind, or 11 % where fewer than a dozen clusters carry most of its intervals, and what chance adds to that: two standard
errors of the share.
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.populations import KINDS, compared

MOST_WRONG = 8
MOST_WRONG_WITH_FEW = 11
FEW = 12
POWERS = (5, 10)
# So many draws are asked about at once, which is faster.
TOGETHER = 50


def rates_of(kind: str, draws: int) -> dict[str, object]:
    """Return what the verdicts and intervals of one kind were like, in percent of its draws."""
    seeds = range(draws)
    found = pd.concat(
        compared(kind, *seeds[start : start + TOGETHER])
        for start in range(0, draws, TOGETHER)
    )
    known = found.dropna(subset=["low_bps"])
    holds = (known["low_bps"] <= 1e-9) & (known["high_bps"] >= -1e-9)
    rates = {
        "no interval": 100 * (1 - len(known) / draws),
        "wrong": 100 * (found["verdict"] != "undecided").mean(),
        "hold": 100 * holds.mean(),
    }
    for dearer in POWERS:
        rates[f"power at {dearer}"] = 100 * (known["low_bps"] + dearer > 0).mean()
    levels = known["cluster"].value_counts(normalize=True)
    rates["clusters"] = known["clusters"].median()
    rates["levels"] = ", ".join(
        f"{level} {share:.0%}" for level, share in levels.items()
    )
    return rates


def main() -> None:
    """Draw each kind, and say whether too many verdicts were wrong."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rows = {}
    for kind in KINDS:
        rows[kind] = rates_of(kind, draws)
        print(kind, rows[kind], flush=True)
    table = pd.DataFrame(rows).T
    print(table.round(1).to_string())
    has_few = table["clusters"].astype(float) < FEW
    most = has_few.map({True: MOST_WRONG_WITH_FEW, False: MOST_WRONG})
    by_chance = 2 * (most * (100 - most) / draws) ** 0.5
    too_many = table.index[table["wrong"].astype(float) > most + by_chance].tolist()
    print(
        f"{draws} draws of {len(KINDS)} kinds; too many wrong verdicts: {too_many or 'none'}"
    )
    sys.exit(bool(too_many))


if __name__ == "__main__":
    main()
