"""Trades of synthetic worlds beside what is true of them: frames of fills, outside minute prices, later prices."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from support.comparison import doublings

from loopring_lab import fees, tables
from loopring_lab.amounts import AmountDtype, to_float
from loopring_lab.engine.ask import given
from loopring_lab.engine.worth import worth_by_day
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.simulation import LATENT_SCALE, START
from loopring_lab.relayer.venues import Pool
from loopring_lab.relayer.world import Fill, World

MINUTE = 60_000
DAY = pd.Timedelta("1D")
ROWS = 1000  # of a page
BPS = 10_000
AMOUNT = pa.decimal256(37, 18)


def true_price(world: World, market: str, moment: int) -> Fraction:
    """Return what one base unit is worth in quote units at a moment (ms)."""
    base = MARKETS[market].base.symbol
    quote = MARKETS[market].quote.symbol
    return Fraction(
        world.latent_dollars(base, moment), world.latent_dollars(quote, moment)
    )


def minute_marks(world: World, fills: Iterable[Fill], after: Iterable[int]) -> pa.Table:
    """Return the minute closes, true but for a basis point of noise, last before each fill and after it.

    Of a year of closes only those that lookups so many ms after the fills can find.
    """
    lags = [0, *after]
    minutes = {
        (f.market, (f.time_ms + lag) // MINUTE * MINUTE) for f in fills for lag in lags
    }
    rows = sorted(minutes)
    prices = []
    for market, minute in rows:
        noise = random.Random(f"{world.seed} {market} {minute}").gauss(0, 1e-4)
        price = true_price(world, market, minute) * (1 + Fraction(noise))
        prices.append(round(Decimal(price.numerator) / price.denominator, 14))
    return pa.table(
        {
            "created_at": pa.array(
                [minute for _, minute in rows], pa.timestamp("ms", "UTC")
            ),
            "market": [market for market, _ in rows],
            "base": [MARKETS[market].base.symbol for market, _ in rows],
            "quote": [MARKETS[market].quote.symbol for market, _ in rows],
            "price": pa.array(prices, AMOUNT),
        }
    )


def true_prices(world: World) -> pa.Table:
    """Return the true price at the moment of each fill."""
    latent = {(fill.market, fill.time_ms): fill.latent for fill in world.fills}
    moments = [moment for _, moment in latent]
    prices = [Decimal(price) / LATENT_SCALE for price in latent.values()]
    return pa.table(
        {
            "created_at": pa.array(moments, pa.timestamp("ms", "UTC")),
            "market": [market for market, _ in latent],
            "price": pa.array(prices, AMOUNT),
        }
    )


def true_markouts(world: World, fills: Iterable[Fill], horizon: int) -> pd.DataFrame:
    """Return the effective and realized cost and the impact of fills in bps, from true prices alone."""
    return pd.DataFrame([_true_markout(world, fill, horizon) for fill in fills])


def _true_markout(world, fill, horizon):
    market = MARKETS[fill.market]
    price = Fraction(
        fill.quote * 10**market.base.decimals, fill.size * 10**market.quote.decimals
    )
    now = true_price(world, fill.market, fill.time_ms)
    later = true_price(world, fill.market, fill.time_ms + horizon)
    sign = 1 if fill.side == "BUY" else -1
    rates = {"effective": price - now, "realized": price - later, "impact": later - now}
    return {"trade_id": fill.id} | {
        name: float(sign * gap / now) * 10_000 for name, gap in rates.items()
    }


def values_of(trades: pd.DataFrame) -> pd.Series:
    """Return the value of each fill, by its id, in the quote token with most fills, at the mean prices of its day."""
    worth = (
        worth_by_day(given(trades, "values_of"))
        .to_pandas()
        .set_index(["token", "day"])["worth"]
    )
    days = (trades["created_at"] - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(1, "D")
    rates = worth.reindex(
        pd.MultiIndex.from_arrays([trades["quote"].astype(str), days])
    )
    values = pd.Series(
        to_float(trades["notional"]).to_numpy() * rates.to_numpy(), trades["trade_id"]
    )
    return values.groupby(level=0).first()


def trades_of(world: World) -> pd.DataFrame:
    """Read both sides of every fill of a world into one frame."""
    rows: dict[str, list[Any]] = defaultdict(list)
    for number, fill in enumerate(world.fills):
        rows[fill.venue] += [
            world.history.row(2 * number),
            world.history.row(2 * number + 1),
        ]
    pages = [
        (venue, some[start : start + ROWS])
        for venue, some in rows.items()
        for start in range(0, len(some), ROWS)
    ]
    texts = [json.dumps({"totalNum": len(some), "trades": some}) for _, some in pages]
    tokens = tables.tokens(world.tokens())
    markets = tables.markets(world.markets(), tokens)
    return tables.trades(
        texts, tokens, markets, fill_type=[venue for venue, _ in pages]
    )


class Cost(NamedTuple):
    """A taker's fill: its value in dollars, and its true cost in basis points."""

    fill: Fill
    dollars: float
    bps: float


def true_costs(world: World) -> list[Cost]:
    """Return the cost of each fill to its taker: the fee, and how much worse the price was than the truth."""
    found = []
    for fill in world.fills:
        market = MARKETS[fill.market]
        quote = fill.quote / 10**market.quote.decimals
        worse = (quote * 10**market.base.decimals / fill.size) / (
            fill.latent / 10**15
        ) - 1
        dollars = (
            quote * world.latent_dollars(market.quote.symbol, fill.time_ms) / 10**12
        )
        bps = fill.fee_bps + worse * BPS * (1 if fill.side == "BUY" else -1)
        found.append(Cost(fill, dollars, bps))
    return found


def of_users(world: World, costs: Iterable[Cost]) -> list[Cost]:
    """Select the costs of takers that do not arbitrage."""
    return [cost for cost in costs if cost.fill.taker not in world.arbitrageurs]


def true_orders(costs: Iterable[Cost]) -> pd.DataFrame:
    """Return what each taker's order cost at each venue, with the cell that `compare_venues` puts it in by default."""
    fills = pd.DataFrame(
        {
            "market": cost.fill.market,
            "side": cost.fill.side,
            "venue": cost.fill.venue,
            "order": cost.fill.taker_hash,
            "account": cost.fill.taker,
            "ms": cost.fill.time_ms,
            "size": cost.fill.size / 10 ** MARKETS[cost.fill.market].base.decimals,
            "dollars": cost.dollars,
            "paid": cost.dollars * cost.bps,
        }
        for cost in costs
    )
    fills["week"] = fills.groupby("order")["ms"].transform("min") // (7 * 86_400_000)
    one = ["market", "side", "week", "venue", "order", "account"]
    orders = fills.groupby(one)[["size", "dollars", "paid"]].sum().reset_index()
    cells = orders.groupby(
        ["market", "side", "week", doublings(orders["size"])]
    ).ngroup()
    return orders.assign(
        cell=cells,
        is_matched=orders.groupby(cells)["venue"].transform("nunique") == 2,
    )


def true_overlap(orders: pd.DataFrame) -> float:
    """Return the pool's true cost minus the book's: the mean of cells, which weigh by what both venues have."""
    both = orders[orders["is_matched"]]
    sums = both.groupby(["cell", "venue"])[["dollars", "paid"]].sum().unstack("venue")
    pool = sums["dollars"]["amm"]
    book = sums["dollars"]["dex"]
    gaps = sums["paid"]["amm"] / pool - sums["paid"]["dex"] / book
    return float(np.average(gaps, weights=pool * book / (pool + book)))


class Valued(NamedTuple):
    """An account's fees in one token: how far their sum is off, how far it may be, and fills without a value.

    How far it may be is not a number where it is unknown of fees in any token.
    """

    account: int
    error_bps: float
    within_bps: float
    unpriced: float


def valued_accounts(
    world: World, trades: pd.DataFrame, token: str, prices=None, **arguments
) -> list[Valued]:
    """Value the fees of each account of a world, by its own trades or `prices`, and compare with the truth."""
    found = []
    for account in world.accounts:
        mine = trades[trades["account_id"] == account]
        if prices is None and token not in {*mine["base"], *mine["quote"]}:
            continue
        rows = fees.in_token(mine, token, prices, **arguments)
        summed = fees.in_token(mine, token, prices, by=[], **arguments)
        priced = rows[rows["fee_value"].notna()]
        truth = float(
            sum(_true_value(world, fill, token) for fill in priced.itertuples())
        )
        value = priced["fee_value"].sum()
        if truth:
            known = summed[summed["fee_value"].notna()]
            errors = (known["fee_value"] * known["within_bps"]).sum(skipna=False)
            bps = (value / truth - 1) * BPS, errors / value
            found.append(Valued(account, *bps, 1 - len(priced) / len(rows)))
    return found


def _true_value(world, fill, token):
    moment = fill.created_at.value // 1_000_000
    dollars = (
        world.latent_dollars(symbol, moment) for symbol in (fill.fee_token, token)
    )
    return Fraction(fill.fee) * Fraction(*dollars)


def pool_balances(world: World) -> pd.DataFrame:
    """Return what each pool of a world held at its beginning, and after each fill that it made."""
    pools = {name: Pool(MARKETS[name]) for name in world.pools}
    rows = [_pool_state(START - 1, pool, name) for name, pool in pools.items()]
    for fill in world.fills:
        if fill.venue == "amm":
            pool = pools[fill.market]
            pool.trade(fill.side == "BUY", fill.size, fill.quote)
            place = {"block_id": fill.block_id, "index_in_block": fill.index_in_block}
            rows.append(_pool_state(fill.time_ms, pool, fill.market) | place)
    frame = pd.DataFrame(rows).astype(
        {
            "base_balance": AmountDtype(),
            "quote_balance": AmountDtype(),
            "block_id": "Int64",
            "index_in_block": "Int64",
        }
    )
    frame["created_at"] = pd.to_datetime(frame["created_at"], unit="ms", utc=True)
    return frame


def _pool_state(moment, pool, name):
    base = MARKETS[name].base
    quote = MARKETS[name].quote
    return {
        "created_at": moment,
        "market": name,
        "base_balance": Decimal(pool.base).scaleb(-base.decimals),
        "quote_balance": Decimal(pool.quote).scaleb(-quote.decimals),
        "base_decimals": base.decimals,
        "quote_decimals": quote.decimals,
    }


def users_of(world: World) -> tuple[pd.DataFrame, pa.Table]:
    """Read both sides of the fills of all but arbitrageurs, and minute closes of an outside market."""
    trades = trades_of(world)
    is_user = ~trades["account_id"].isin(world.arbitrageurs)
    return trades[is_user], minute_marks(world, world.fills, [MINUTE])
