"""What the synthetic world knows of its fills: all trades, outside prices, and the true costs at each venue."""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pandas as pd

import loopring_lab as lab
from loopring_lab.relayer import World
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.world import Fill

BPS = 10_000
MINUTE = 60_000
ROWS = 1000  # of a page
PRICE_DECIMALS = 12


class Cost(NamedTuple):
    """A taker's fill: its value in dollars, and its true cost in basis points."""

    fill: Fill
    dollars: float
    bps: float


def trades_of(world: World) -> pd.DataFrame:
    """Read both sides of every fill of a world into one frame."""
    rows: dict[str, list[Any]] = defaultdict(list)
    for number, fill in enumerate(world.fills):
        rows[fill.venue] += [world.history.row(2 * number), world.history.row(2 * number + 1)]
    pages = [
        (venue, some[start : start + ROWS])
        for venue, some in rows.items()
        for start in range(0, len(some), ROWS)
    ]
    texts = [json.dumps({"totalNum": len(some), "trades": some}) for _, some in pages]
    tokens = lab.tables.tokens(world.tokens())
    markets = lab.tables.markets(world.markets(), tokens)
    return lab.tables.trades(texts, tokens, markets, fill_type=[venue for venue, _ in pages])


def minute_closes(world: World, trades: pd.DataFrame, noise_bps: float = 1.0) -> pd.DataFrame:
    """Return the true price at each minute's end within two minutes of a trade, with noise."""
    chance = random.Random(world.seed + 1)
    moments = trades["created_at"].astype("int64").to_numpy() // MINUTE
    minutes = {
        (name, (at + later) * MINUTE)
        for name, at in zip(trades["market"], moments.tolist(), strict=True)
        for later in (0, 1, 2)
    }
    rows = [(at, name, close(world, name, at, chance.gauss(0, noise_bps))) for name, at in sorted(minutes)]
    frame = pd.DataFrame(rows, columns=["created_at", "market", "price"])
    return frame.assign(
        created_at=pd.to_datetime(frame["created_at"], unit="ms", utc=True),
        price=lab.amounts.to_units(frame["price"].tolist(), PRICE_DECIMALS),
    )


def close(world: World, name: str, at: int, off_bps: float) -> int:
    base, quote = (world.latent_dollars(one.symbol, at) for one in (MARKETS[name].base, MARKETS[name].quote))
    return int(base * 10**PRICE_DECIMALS // quote * (1 + off_bps / BPS))


def true_costs(world: World) -> list[Cost]:
    """Return the cost of each fill to its taker: the fee, and how much worse the price was than the truth."""
    found = []
    for fill in world.fills:
        market = MARKETS[fill.market]
        quote = fill.quote / 10**market.quote.decimals
        worse = (quote * 10**market.base.decimals / fill.size) / (fill.latent / 10**15) - 1
        dollars = quote * world.latent_dollars(market.quote.symbol, fill.time_ms) / 10**12
        bps = fill.fee_bps + worse * BPS * (1 if fill.side == "BUY" else -1)
        found.append(Cost(fill, dollars, bps))
    return found


def size_classes(costs: Iterable[Cost]) -> dict[int, int]:
    """Return the quintile of each fill's size in its market, by id."""
    sizes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for cost in costs:
        sizes[cost.fill.market].append((cost.fill.size, cost.fill.id))
    classes = {}
    for some in sizes.values():
        ordered = sorted(size for size, _ in some)
        first = {size: place for place, size in reversed(list(enumerate(ordered)))}
        classes |= {number: first[size] * 5 // len(some) for size, number in some}
    return classes


def true_difference(
    costs: Iterable[Cost], classes: dict[int, int], by: Callable[[Fill], Any] = lambda fill: None
) -> dict[Any, float]:
    """Return the pool's true cost minus the book's in each group, over cells in which both have fills."""
    cells: dict[Any, dict[str, list[Cost]]] = defaultdict(lambda: {"amm": [], "dex": []})
    for cost in costs:
        fill = cost.fill
        cells[by(fill), fill.market, fill.side, classes[fill.id]][fill.venue].append(cost)
    sums: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (group, *_), at in cells.items():
        if all(at.values()):
            dollars = sum(cost.dollars for some in at.values() for cost in some)
            pool, book = (
                sum(cost.dollars * cost.bps for cost in some) / sum(cost.dollars for cost in some)
                for some in at.values()
            )
            sums[group][0] += dollars * (pool - book)
            sums[group][1] += dollars
    return {group: total / dollars for group, (total, dollars) in sums.items()}
