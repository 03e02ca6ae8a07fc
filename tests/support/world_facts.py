"""How the fills of a synthetic world are shared out, to put it beside the real exchange."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from support.worlds import true_costs

from loopring_lab.relayer import World


class Shares(NamedTuple):
    """How the fills of a world are shared out."""

    fills: int
    pool: float
    arbitrage: float
    busiest_five: float
    largest_account: int
    smallest_account: int
    steepest_step: float
    median_dollars: float
    one_in_a_thousand_dollars: float


def shares(world: World) -> Shares:
    fills = world.fills
    arbitrageurs = set(world.arbitrageurs)
    values = sorted(cost.dollars for cost in true_costs(world))
    takers = Counter(fill.taker for fill in fills)
    ranked = sorted(
        len(world.history.row_numbers(account)) for account in world.accounts
    )
    return Shares(
        fills=len(fills),
        pool=sum(fill.venue == "amm" for fill in fills) / len(fills),
        arbitrage=sum(takers[account] for account in arbitrageurs) / len(fills),
        busiest_five=sum(count for _, count in takers.most_common(5)) / len(fills),
        largest_account=ranked[-1],
        smallest_account=ranked[0],
        steepest_step=max(later / earlier for earlier, later in pairwise(ranked)),
        median_dollars=values[len(values) // 2],
        one_in_a_thousand_dollars=values[len(values) * 999 // 1000],
    )
