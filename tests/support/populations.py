"""Populations made by hand, in which the pool and the book cost the same by construction.

The synthetic world has no part in them. Each of `KINDS` draws takers' fills and prices of an outside market; `dearer`
basis points more at the pool are the true difference.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import loopring_lab as lab
from loopring_lab.amounts import to_units

Rng = np.random.Generator
# A Thursday, at midnight: the day on which weeks begin that are counted from 1970.
START = 1_649_894_400_000
MINUTE = 60_000
DAY = 86_400_000
WEEK = 7 * DAY
FEE_BPS = 10
DECIMALS = 12


class Orders(NamedTuple):
    """Orders of takers, an array for each property; costs are of the price, in basis points."""

    ms: np.ndarray
    account: np.ndarray
    is_pool: np.ndarray
    is_buy: np.ndarray
    size: np.ndarray
    cost: np.ndarray
    parts: np.ndarray
    market: np.ndarray


class Drawn(NamedTuple):
    trades: pd.DataFrame
    prices: pd.DataFrame


def drawn(rng: Rng, count: int, days: float = 60, **known: Any) -> Orders:
    """Draw orders of 60 accounts, at either venue and any time, that cost 15 basis points, give or take 5."""
    usual = {
        "ms": START + rng.uniform(0, days * DAY, count).astype(np.int64),
        "account": rng.integers(60, size=count),
        "is_pool": rng.random(count) < 0.5,
        "is_buy": rng.random(count) < 0.5,
        "size": np.exp(rng.normal(5, 1, count)),
        "cost": rng.normal(15, 5, count),
        "parts": np.ones(count, int),
        "market": np.full(count, "LRC-USDC"),
    }
    return Orders(**(usual | known))


def each_at_one_venue(rng: Rng, accounts: int) -> Orders:
    """Accounts pay more or less than others, and each keeps to one venue."""
    count = 30 * accounts
    account = rng.integers(accounts, size=count)
    cost = rng.normal(15, 10, accounts)[account] + rng.normal(0, 5, count)
    return drawn(rng, count, account=account, is_pool=account % 2 == 0, cost=cost)


def each_at_both(rng: Rng, accounts: int) -> Orders:
    """Accounts pay more or less than others, at both venues alike."""
    count = max(600, 30 * accounts)
    account = rng.integers(accounts, size=count)
    cost = rng.normal(15, 10, accounts)[account] + rng.normal(0, 5, count)
    return drawn(rng, count, account=account, cost=cost)


def each_with_a_favourite(rng: Rng) -> Orders:
    """Some accounts do better at one venue, some at the other."""
    account = rng.integers(30, size=900)
    orders = drawn(rng, 900, account=account)
    tastes = rng.normal(15, 5, (30, 2))
    paid = tastes[account, orders.is_pool.astype(int)] + rng.normal(0, 5, 900)
    return orders._replace(cost=paid)


def whale(rng: Rng) -> Orders:
    """One account of sixty has 90 % of the value."""
    orders = drawn(rng, 1500)
    cost = rng.normal(15, 10, 60)[orders.account] + rng.normal(0, 5, 1500)
    is_whale = orders.account == 0
    times = 9 * orders.size[~is_whale].sum() / orders.size[is_whale].sum()
    size = np.where(is_whale, times * orders.size, orders.size)
    return orders._replace(cost=cost, size=size)


def one_account(rng: Rng) -> Orders:
    """A single account."""
    return drawn(rng, 600, account=np.zeros(600, int))


def heavy_tails(rng: Rng) -> Orders:
    """Sizes of Pareto's distribution with exponent 1.1, costs of Student's with two degrees of freedom."""
    size = 20 * (1 + rng.pareto(1.1, 1500))
    return drawn(rng, 1500, size=size, cost=15 + 5 * rng.standard_t(2, 1500))


def shocks(rng: Rng, days: int) -> Orders:
    """Each venue has good and bad weeks."""
    orders = drawn(rng, 1500, days)
    week = (orders.ms - START) // WEEK
    of_weeks = rng.normal(15, 5, (days // 7 + 1, 2))
    return orders._replace(
        cost=of_weeks[week, orders.is_pool.astype(int)] + rng.normal(0, 5, 1500)
    )


def ties(rng: Rng) -> Orders:
    """Three sizes, and costs in whole basis points."""
    size = rng.choice([100.0, 200.0, 500.0], 1500)
    return drawn(rng, 1500, size=size, cost=np.round(rng.normal(15, 5, 1500)))


def one_sided(rng: Rng) -> Orders:
    """Three orders of a hundred go to the pool."""
    return drawn(rng, 1500, is_pool=rng.random(1500) < 0.03)


def shifting_mix(rng: Rng) -> Orders:
    """Month by month more goes to the book, in another market and in larger orders, while costs rise everywhere."""
    orders = drawn(rng, 1500)
    late = (orders.ms - START) / DAY / 60
    is_other = rng.random(1500) < 0.2 + 0.6 * late
    size = np.exp(rng.normal(5 + late, 1))
    cost = 10 + 10 * late + 3 * np.log(size) + 10 * is_other + rng.normal(0, 5, 1500)
    return orders._replace(
        is_pool=rng.random(1500) < 0.8 - 0.6 * late,
        market=np.where(is_other, "ETH-USDC", "LRC-USDC"),
        size=size,
        cost=cost,
    )


def few_orders(rng: Rng) -> Orders:
    """Forty orders of a dozen accounts."""
    return drawn(rng, 40, account=rng.integers(12, size=40))


def split_orders(rng: Rng) -> Orders:
    """Large orders cost more; the book fills each in five parts, the pool in one."""
    orders = drawn(rng, 1500)
    return orders._replace(
        cost=5 + 10 * np.log(orders.size / 20) + rng.normal(0, 3, 1500),
        parts=np.where(orders.is_pool, 1, 5),
    )


def other_months(rng: Rng) -> Orders:
    """The pool is used in the first month, the book in the third, and costs rise."""
    orders = drawn(rng, 1500, 30)
    ms = orders.ms + np.where(orders.is_pool, 0, 60 * DAY)
    return orders._replace(ms=ms, cost=10 + 0.5 * (ms - START) / DAY)


def no_arbitrage(rng: Rng) -> Orders:
    """Noisy prices: 300 accounts with 6 orders each at the pool, 36 with 50 on the book."""
    account = np.concatenate(
        [np.repeat(np.arange(300), 6), 300 + np.repeat(np.arange(36), 50)]
    )
    cost = rng.normal(20, 25, 3600)
    return drawn(rng, 3600, account=account, is_pool=account < 300, cost=cost)


def frozen_feed(rng: Rng) -> Orders:
    """The outside price stands still for two days, again and again, while the market goes on by 1 % a day."""
    orders = drawn(rng, 1500)
    day = (orders.ms - START) // DAY
    stale = np.where(day % 4 < 2, 0.0, rng.normal(0, 100, 61)[day])
    sign = np.where(orders.is_buy, 1, -1)
    return orders._replace(cost=orders.cost + sign * stale)


def same_cost(rng: Rng) -> Orders:
    """Everybody pays exactly the same."""
    return drawn(rng, 600, cost=np.full(600, 7.3))


def stale_spells(rng: Rng) -> Orders:
    """The outside price is off for days on end, and venues are used in turns of about two days."""
    orders = drawn(rng, 1500)
    day = (orders.ms - START) // DAY
    # An autoregression of first order: half of an error is left after two days.
    errors = np.zeros(60)
    for today in range(1, 60):
        errors[today] = 0.7 * errors[today - 1] + rng.normal(0, 8)
    turns = np.cumsum(rng.random(60) < 0.5) % 2
    is_usual = rng.random(1500) < 0.8
    sign = np.where(orders.is_buy, 1, -1)
    return orders._replace(
        is_pool=np.where(is_usual, turns[day] == 1, turns[day] == 0),
        cost=orders.cost + sign * errors[day],
    )


def larger_at_the_pool(rng: Rng) -> Orders:
    """The pool has larger orders, by half a standard deviation, and larger orders cost more."""
    orders = drawn(rng, 1500)
    size = orders.size * np.exp(0.25 * np.where(orders.is_pool, 1, -1))
    cost = 3 * np.log(size) + rng.normal(0, 5, 1500)
    return orders._replace(size=size, cost=cost)


def largest_at_the_pool(rng: Rng) -> Orders:
    """Sizes have a long tail, whose orders go to the pool, and larger orders cost more at both venues alike."""
    orders = heavy_tails(rng)
    logs = np.log(orders.size)
    is_pool = rng.random(1500) < 1 / (1 + np.exp(1.5 * (logs.mean() - logs)))
    return orders._replace(is_pool=is_pool, cost=3 * logs + rng.normal(0, 5, 1500))


def coming_and_going(rng: Rng) -> Orders:
    """Accounts that differ come for three weeks and go, most with a favourite venue."""
    account = rng.integers(60, size=1800)
    came = rng.uniform(0, 67, 60)[account]
    tastes = rng.beta(0.5, 0.5, 60)[account]
    ms = START + ((came + rng.uniform(0, 21, 1800)) * DAY).astype(np.int64)
    cost = rng.normal(15, 8, 60)[account] + rng.normal(0, 5, 1800)
    is_pool = rng.random(1800) < tastes
    return drawn(rng, 1800, ms=ms, account=account, is_pool=is_pool, cost=cost)


def costly_days(rng: Rng, moved: float) -> Orders:
    """On one day of ten everything costs 40 basis points more; the pool's share of orders rises on such days."""
    orders = drawn(rng, 1500)
    day = (orders.ms - START) // DAY
    is_costly = (rng.random(60) < 0.1)[day]
    is_pool = rng.random(1500) < 0.4 + moved * is_costly
    return orders._replace(is_pool=is_pool, cost=orders.cost + 40 * is_costly)


def whale_at_each(rng: Rng) -> Orders:
    """At each venue one account, which pays as it pays, has 60 % of the value."""
    orders = drawn(rng, 1500)
    account = np.where(orders.is_pool, orders.account // 2, 30 + orders.account // 2)
    size = orders.size.copy()
    for whale_of in (0, 30):
        is_whale = account == whale_of
        is_venue = orders.is_pool == (whale_of == 0)
        rest = size[is_venue & ~is_whale].sum()
        size[is_whale] *= 1.5 * rest / size[is_whale].sum()
    cost = rng.normal(15, 10, 60)[account] + rng.normal(0, 5, 1500)
    return orders._replace(account=account, size=size, cost=cost)


def ticks(rng: Rng) -> Orders:
    """Prices come in ticks of 20 basis points, so that most orders cost 0, 20 or 40."""
    orders = drawn(rng, 1500)
    # Rounded at random to one of the ticks around it, which leaves the mean as it is.
    cost = 20 * np.floor(orders.cost / 20 + rng.random(1500))
    return orders._replace(cost=cost)


def mishaps(rng: Rng) -> Orders:
    """One order of fifty costs 100 basis points more on the book, and at the pool every order costs two more."""
    orders = drawn(rng, 1500)
    is_mishap = rng.random(1500) < 0.02
    return orders._replace(
        cost=orders.cost + np.where(orders.is_pool, 2, 100 * is_mishap)
    )


def large_late(rng: Rng) -> Orders:
    """Trading doubles every ten days, and costs follow a random walk by day."""
    ms = START + (60 * DAY * (1 + np.log2(rng.uniform(2.0**-6, 1, 1500)) / 6)).astype(
        np.int64
    )
    level = np.cumsum(rng.normal(0, 3, 60))
    cost = 15 + level[(ms - START) // DAY] + rng.normal(0, 5, 1500)
    return drawn(rng, 1500, ms=ms, cost=cost)


KINDS: dict[str, Callable[[Rng], Orders]] = {
    "10 accounts, one venue each": lambda rng: each_at_one_venue(rng, 10),
    "30 accounts, one venue each": lambda rng: each_at_one_venue(rng, 30),
    "10 accounts, both venues": lambda rng: each_at_both(rng, 10),
    "30 accounts, both venues": lambda rng: each_at_both(rng, 30),
    "30 accounts with favourites": each_with_a_favourite,
    "one account has 90 %": whale,
    "one account": one_account,
    "heavy tails": heavy_tails,
    "shocks by week, 9 weeks": lambda rng: shocks(rng, 60),
    "shocks by week, 26 weeks": lambda rng: shocks(rng, 180),
    "ties": ties,
    "one-sided": one_sided,
    "shifting mix": shifting_mix,
    "few orders": few_orders,
    "split orders": split_orders,
    "other months": other_months,
    "no arbitrage": no_arbitrage,
    "frozen feed": frozen_feed,
    "same cost": same_cost,
    "largest at the pool": largest_at_the_pool,
    # These kinds were written before their author had read the method.
    "stale spells": stale_spells,
    "larger at the pool": larger_at_the_pool,
    "coming and going": coming_and_going,
    "costly days": lambda rng: costly_days(rng, 0),
    "costly days, more at the pool, matched by day": lambda rng: costly_days(rng, 0.4),
    "one large account at each venue": whale_at_each,
    "ticks": ticks,
    "mishaps on the book": mishaps,
    "large late": large_late,
}

# How a kind is compared where the default does not hold equal what differs between the venues.
HOW = {
    "costly days, more at the pool, matched by day": {
        "match": ("market", "side", "size", "day")
    },
}


def population(kind: str, *seeds: int, dearer: float = 0) -> Drawn:
    """Return the fills of drawn populations, and outside prices, which are 1 at each minute that they need.

    Each draw has accounts, orders and markets of its own, and its seed in the column ``draw``.
    """
    parts = [_population(kind, seed, dearer) for seed in seeds]
    trades = pd.concat([part.trades for part in parts], ignore_index=True)
    prices = pd.concat([part.prices for part in parts], ignore_index=True)
    return Drawn(trades.assign(trade_id=np.arange(len(trades))), prices)


def _population(kind: str, seed: int, dearer: float) -> Drawn:
    orders = KINDS[kind](np.random.default_rng(seed))
    each = np.repeat(np.arange(len(orders.ms)), orders.parts)
    first = np.cumsum(orders.parts) - orders.parts
    part = np.arange(len(each)) - first[each]
    ms, account, is_pool, is_buy, size, cost, parts, market = (
        values[each] for values in orders
    )
    worse = np.where(is_buy, 1, -1) * (cost + dearer * is_pool) / 10_000
    base = [f"{name.partition('-')[0]}{seed}" for name in market]
    trades = pd.DataFrame(
        {
            "created_at": pd.to_datetime(ms + part, unit="ms", utc=True),
            "account_id": 10_000 * (1 + seed) + account,
            "order_hash": [f"0x{seed:032x}{one + 1:032x}" for one in each],
            "market": [f"{one}-USDC" for one in base],
            "base": base,
            "quote": "USDC",
            "side": np.where(is_buy, "BUY", "SELL"),
            "fill_type": np.where(is_pool, "amm", "dex"),
            "role": "taker",
            "size": _amounts(size / parts),
            "price": _amounts(1 + worse),
            "notional": _amounts(size / parts * (1 + worse)),
            "fee": _amounts(
                np.where(is_buy, 1, 1 + worse) * size / parts * FEE_BPS / 10_000
            ),
            "fee_token": np.where(is_buy, base, "USDC"),
            "fee_bps": float(FEE_BPS),
            "draw": seed,
        }
    )
    minutes = np.unique(np.concatenate([ms // MINUTE, ms // MINUTE + 1]))
    prices = pd.concat(
        pd.DataFrame(
            {"created_at": pd.to_datetime(minutes, unit="m", utc=True)}
        ).assign(market=name, price=_amounts(np.ones(len(minutes))))
        for name in trades["market"].unique()
    )
    return Drawn(trades, prices)


def compared(kind: str, *seeds: int, dearer: float = 0, **how: Any) -> pd.DataFrame:
    """Return what `compare_venues` finds in each draw, users alone where `with_flow` is to tell them."""
    trades, prices = population(kind, *seeds, dearer=dearer)
    how = HOW.get(kind, {}) | how
    if kind == "no arbitrage":
        trades = lab.research.with_flow(trades, prices)
        trades = trades[trades["flow"] == "user"]
    return lab.fills.compare_venues(trades, prices, by="draw", **how)


def routed(trades: pd.DataFrame) -> pd.DataFrame:
    """Return split orders of which the large ones have a part at the pool; each part costs what the order does."""
    size = lab.to_float(trades.groupby("order_hash")["size"].transform("sum"))
    is_moved = (size > 200) & ~trades["order_hash"].duplicated()
    return trades.assign(fill_type=trades["fill_type"].mask(is_moved, "amm"))


def _amounts(values: np.ndarray) -> Any:
    whole = np.rint(values * 10.0**DECIMALS).astype(np.int64)
    return to_units(whole.tolist(), DECIMALS)
