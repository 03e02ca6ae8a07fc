"""How well flow classes tell arbitrageurs from users, against what a synthetic world knows."""

from typing import NamedTuple

import pandas as pd
from support.worlds import minute_marks, trades_of, true_costs

import loopring_lab as lab
from loopring_lab.relayer import World

CHEAPER = ("pool", "neither", "book")


class Recovered(NamedTuple):
    """Of one class: which share of what is named so is right, and which share of the class is named; 0 to 1."""

    precision: float
    recall: float


def recovered(world: World) -> dict[tuple[str, str], Recovered]:
    """Return how well each class is found, by number of fills and by their value in dollars."""
    known = lab.research.with_flow(
        trades_of(world), minute_marks(world, world.fills, [])
    )
    costs = true_costs(world)
    truth = pd.DataFrame(
        {
            "trade_id": [cost.fill.id for cost in costs],
            "by value": [cost.dollars for cost in costs],
            "by fills": 1.0,
            "is_arbitrage": [cost.fill.taker in world.arbitrageurs for cost in costs],
        }
    )
    takers = known[known["role"] == "taker"].merge(truth, on="trade_id")
    assert len(takers) == len(costs)
    found = {}
    for flow in ("arbitrage", "user"):
        is_named = takers["flow"] == flow
        is_so = takers["is_arbitrage"] == (flow == "arbitrage")
        for weight in ("by value", "by fills"):
            right = takers.loc[is_named & is_so, weight].sum()
            found[flow, weight] = Recovered(
                right / takers.loc[is_named, weight].sum(),
                right / takers.loc[is_so, weight].sum(),
            )
    return found
