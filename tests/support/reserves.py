"""Pools whose every balance is known: those of a world, replayed from its fills, and drawn ones.

Both come as a list of events, from which frames are made as `rollup.Blocks.balances` makes them, and what a
position earned is computed anew in fractions.
"""

import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from loopring_lab.amounts import AMOUNT
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.venues import Pool
from loopring_lab.relayer.world import World

WHOLE = pa.decimal256(76, 0)
UNIT = 10**18
PARTS = ("rebalanced", "fees", "added")
LOSSES = {
    "arbitrage": "lost_to_arbitrage",
    "user": "lost_to_users",
    "unknown": "lost_to_unknown",
}


class Event(NamedTuple):
    """What happens to a pool's balances, in smallest units, by which those before it change."""

    ms: int
    block: int
    place: int
    kind: str
    base: int
    quote: int
    base_before: int
    quote_before: int
    flow: str = "unknown"
    trade_id: int = 0

    @property
    def kept(self) -> tuple[int, int]:
        """What a pool keeps of a fill beyond a constant product, in base and in quote."""
        if self.base > 0:
            x, y, came, went = (
                self.base_before,
                self.quote_before,
                self.base,
                -self.quote,
            )
        else:
            x, y, came, went = (
                self.quote_before,
                self.base_before,
                self.quote,
                -self.base,
            )
        kept = came - -(-x * went // (y - went))
        return (kept, 0) if self.base > 0 else (0, kept)


class Drawn(NamedTuple):
    """A pool with its events, the decimals of its tokens, and what an outside market showed, by time."""

    account: int
    market: str
    decimals: tuple[int, int]
    events: list[Event]
    prices: list[tuple[int, int]]
    """Times in ms, and prices in 1e-18."""

    @property
    def tokens(self) -> tuple[str, str]:
        base, quote = self.market.split("-")
        return base, quote


# Of a world


def replayed(world: World, name: str) -> list[Event]:
    """Replay the reserves of a world's pool: the pool's own arithmetic, in the order of the fills."""
    pool = Pool(MARKETS[name])
    events = []
    for fill in world.fills:
        if fill.market != name or fill.venue != "amm":
            continue
        before = pool.base, pool.quote
        pool.trade(fill.side == "BUY", fill.size, fill.quote)
        change = pool.base - before[0], pool.quote - before[1]
        flow = "arbitrage" if fill.taker in world.arbitrageurs else "user"
        # The last fills are in no block yet.
        place = (fill.block_id, fill.index_in_block)
        events.append(
            Event(fill.time_ms, *place, "spot_trade", *change, *before, flow, fill.id)
        )
    return events


def of_world(world: World, name: str, prices: list[tuple[int, int]]) -> Drawn:
    market = MARKETS[name]
    decimals = market.base.decimals, market.quote.decimals
    events = replayed(world, name)
    return Drawn(market.pool or 0, name, decimals, events, prices)


# Drawn


DECIMALS = ((18, 18), (18, 6), (8, 18), (6, 6))


def drawn(
    seed: int,
    account: int = 7,
    decimals: tuple[int, int] | None = None,
    count: int | None = None,
) -> Drawn:
    """Draw a pool of a few weeks: fills of any size, liquidity added and removed, and an outside price."""
    dice = random.Random(seed)
    some = dice.choice(DECIMALS)
    decimals = decimals or some
    base = dice.randrange(10, 10**6) * 10 ** decimals[0]
    quote = dice.randrange(10, 10**6) * 10 ** decimals[1]
    now = 1_640_995_200_000 + dice.randrange(10**9)
    prices = [(now - 1, UNIT * quote * 10 ** decimals[0] // (base * 10 ** decimals[1]))]
    events = []
    block = 20_000
    drawn_count = dice.randrange(1, 60)
    for number in range(count or drawn_count):
        now += dice.choice([0, 1000, 10**6, 10**8])
        block += 1
        place = dice.randrange(384)
        what = dice.random()
        if what < 0.1:
            kind = dice.choice(["transfer", "deposit", "withdrawal"])
            # A transfer moves one token, or pays its fee in the other.
            change = dice.choice(
                [
                    (dice.randrange(-base // 3, base // 2), 0),
                    (0, dice.randrange(-quote // 3, quote // 2)),
                    (-base // 5, -quote // 1000),
                ]
            )
        elif what < 0.55:
            kind = "spot_trade"
            paid = 1 + dice.randrange(base // dice.choice([2, 100, 10**4]))
            net = paid * dice.choice([9980, 9970, 10_000])
            change = (paid, -(quote * net // (base * 10_000 + net)))
        else:
            kind = "spot_trade"
            paid = 1 + dice.randrange(quote // dice.choice([2, 100, 10**4]))
            net = paid * 9980
            change = (-(base * net // (quote * 10_000 + net)), paid)
        if 0 in change and kind == "spot_trade":
            continue
        flow = dice.choice(list(LOSSES))
        events.append(
            Event(now, block, place, kind, *change, base, quote, flow, number)
        )
        base += change[0]
        quote += change[1]
        if dice.random() < 0.7:
            shown = prices[-1][1] * dice.randrange(9_500, 10_500) // 10_000
            prices.append((now + dice.randrange(10**7), shown))
    prices = list(dict(sorted(prices)).items())
    return Drawn(account, "LRC-ETH", decimals, events, prices)


# Frames


def balances_of(pools: Iterable[Drawn]) -> pd.DataFrame:
    """Return what pools held at first and after each event, as `BlocksClient.pool_balances` gives it."""
    rows: list[dict[str, Any]] = []
    for pool in pools:
        first = pool.events[0]
        rows.append(
            _state(pool, first, 3 * first.place, first.base_before, first.quote_before)
        )
        for event in pool.events:
            after = event.base_before + event.base, event.quote_before + event.quote
            rows.append(_state(pool, event, 3 * event.place + 1, *after))
    frame = pd.DataFrame(rows)
    frame["block_id"] = frame["block_id"].astype("Int64")
    for name in ("base_balance", "quote_balance"):
        frame[name] = _in_units(pa.array([row[name] for row in rows], WHOLE))
    frame["created_at"] = pd.to_datetime(frame["created_at"], unit="ms", utc=True)
    return frame


def _state(pool, event, place, base, quote):
    base_scale, quote_scale = (10 ** (18 - decimals) for decimals in pool.decimals)
    return {
        "account_id": pool.account,
        "created_at": event.ms,
        "block_id": event.block or None,
        # Places leave room for the state before the first event.
        "index_in_block": place,
        "market": pool.market,
        "base_balance": base * base_scale,
        "quote_balance": quote * quote_scale,
        "base_decimals": pool.decimals[0],
        "quote_decimals": pool.decimals[1],
    }


def trades_of(pools: Iterable[Drawn]) -> pd.DataFrame:
    """Return the pools' sides of their fills, with the columns that the question reads."""
    rows = []
    for pool in pools:
        base, quote = pool.tokens
        scales = [10 ** (18 - decimals) for decimals in pool.decimals]
        for event in pool.events:
            if event.kind != "spot_trade":
                continue
            size = abs(event.base) * scales[0]
            notional = abs(event.quote) * scales[1]
            row = {
                "created_at": event.ms,
                "trade_id": event.trade_id,
                "account_id": pool.account,
                "market": pool.market,
                "base": base,
                "quote": quote,
                "side": "BUY" if event.base > 0 else "SELL",
                "fill_type": "amm",
                "role": "maker",
                "size": size,
                "notional": notional,
                "price": notional * UNIT // size,
                "flow": event.flow,
                "block_id": event.block,
                "index_in_block": 3 * event.place + 1,
            }
            rows.append(row)
    frame = pd.DataFrame(rows)
    for name in ("size", "price", "notional"):
        frame[name] = _in_units(pa.array([row[name] for row in rows], WHOLE))
    frame["created_at"] = pd.to_datetime(frame["created_at"], unit="ms", utc=True)
    return frame


def prices_of(pools: Iterable[Drawn]) -> pd.DataFrame:
    frames = []
    for pool in pools:
        times = [ms for ms, _ in pool.prices]
        prices = pa.array([price for _, price in pool.prices], WHOLE)
        frame = pd.DataFrame({"created_at": pd.to_datetime(times, unit="ms", utc=True)})
        frames.append(frame.assign(market=pool.market, price=_in_units(prices)))
    return pd.concat(frames, ignore_index=True)


def _in_units(numbers):
    """Return whole numbers of 1e-18 as amounts."""
    text = [
        None if number is None else f"{int(number)}e-18"
        for number in numbers.to_pylist()
    ]
    return pd.Series(text, dtype=AMOUNT)


# What a position earned, in fractions


def earned(pool: Drawn, length: int) -> list[dict[str, Any]]:
    """Return what a position earned in each period of `length` ms since 1970, in units of the quote token."""
    scales = [Fraction(1, 10**decimals) for decimals in pool.decimals]
    times = [ms for ms, _ in pool.prices]

    def price(ms):
        return Fraction(pool.prices[bisect_right(times, ms) - 1][1], UNIT)

    first = pool.events[0]
    base = first.base_before * scales[0]
    quote = first.quote_before * scales[1]
    last_price = price(first.ms)
    untouched = base
    rows = [_empty(first.ms // length, base * last_price + quote)]

    def move_to(ms):
        now = price(ms)
        rows[-1]["rebalanced"] += base * (now - last_price)
        rows[-1]["held"] += untouched * (now - last_price)
        return now

    for event in pool.events:
        while rows[-1]["period"] < event.ms // length:
            last_price = move_to((rows[-1]["period"] + 1) * length)
            rows[-1]["closed"] = base * last_price + quote
            rows.append(_empty(rows[-1]["period"] + 1, rows[-1]["closed"]))
            untouched = base
        last_price = move_to(event.ms)
        row = rows[-1]
        change = event.base * scales[0] * last_price + event.quote * scales[1]
        if event.kind == "spot_trade":
            base_fee, quote_fee = (
                kept * scale for kept, scale in zip(event.kept, scales, strict=True)
            )
            fee = base_fee * last_price + quote_fee
            row["fills"] += 1
            row["base_fees"] += base_fee
            row["quote_fees"] += quote_fee
            row["fees"] += fee
            row[LOSSES[event.flow]] += fee - change
        else:
            row["added"] += change
            untouched += event.base * scales[0]
        base += event.base * scales[0]
        quote += event.quote * scales[1]
    rows[-1]["closed"] = base * last_price + quote
    return rows


def _empty(period, opened):
    names = (*PARTS, *LOSSES.values(), "held", "base_fees", "quote_fees")
    row: dict[str, Any] = dict.fromkeys(names, Fraction(0))
    return row | {"period": period, "opened": opened, "fills": 0}


def is_exact(found: pd.DataFrame) -> bool:
    """Say whether the parts of each row, if known, add up to the change of the position's value, to the last digit."""
    found = found[found["rebalanced"].notna()]
    parts: Sequence[Any] = [found[name] for name in PARTS]
    losses = [found[name] for name in LOSSES.values()]
    total = sum(parts[1:], parts[0]) - sum(losses[1:], losses[0])
    return bool(
        (total == found["change"]).all()
        and (found["closed"] - found["opened"] == found["change"]).all()
    )
