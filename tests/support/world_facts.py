"""What the synthetic world knows of its fills: their values, their true costs, and who trades where."""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import NamedTuple

from loopring_lab.relayer import Fill, World
from loopring_lab.relayer.mainnet import MARKETS


def users(world: World) -> list[Fill]:
    """Return the fills of takers that do not arbitrage."""
    return [fill for fill in world.fills if fill.taker not in world.arbitrageurs]


def dollars(world: World, fill: Fill) -> float:
    quote = MARKETS[fill.market].quote
    price = world.latent_dollars(quote.symbol, fill.time_ms) / 10**12
    return fill.quote / 10**quote.decimals * price


def cost_bps(fill: Fill) -> float:
    """Return how much worse than the true price a taker's fill was."""
    market = MARKETS[fill.market]
    paid = fill.quote * 10 ** (market.base.decimals + 15)
    ratio = paid / (fill.size * fill.latent * 10**market.quote.decimals)
    return (ratio - 1) * 10_000 * (1 if fill.side == "BUY" else -1)


def difference_bps(world: World) -> float:
    """Return pool minus book for users, all in: by market, side and size, weighted by value."""
    by_market: dict[str, list[tuple[float, Fill]]] = defaultdict(list)
    for fill in users(world):
        if MARKETS[fill.market].has_pool and MARKETS[fill.market].has_book:
            by_market[fill.market].append((dollars(world, fill), fill))
    cells: dict[tuple[str, str, int], dict[str, list[float]]] = defaultdict(
        lambda: {"amm": [0.0, 0.0], "dex": [0.0, 0.0]}
    )
    for market, rows in by_market.items():
        rows.sort()
        for rank, (value, fill) in enumerate(rows):
            sums = cells[market, fill.side, rank * 5 // len(rows)][fill.venue]
            sums[0] += value
            sums[1] += value * (cost_bps(fill) + fill.fee_bps)
    total = weight = 0.0
    for cell in cells.values():
        (pool, pool_cost), (book, book_cost) = cell["amm"], cell["dex"]
        if pool and book:
            total += (pool + book) * (pool_cost / pool - book_cost / book)
            weight += pool + book
    return total / weight


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
    values = sorted(dollars(world, fill) for fill in fills)
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
