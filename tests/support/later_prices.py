"""What synthetic worlds know of later prices: outside minute prices, and the true markouts of fills."""

import random
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

import pandas as pd
import pyarrow as pa

from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.world import Fill, World

MINUTE = 60_000
AMOUNT = pa.decimal256(37, 18)


def true_price(world: World, market: str, moment: int) -> Fraction:
    """Return what one base unit is worth in quote units at a moment (ms)."""
    base, quote = MARKETS[market].base.symbol, MARKETS[market].quote.symbol
    return Fraction(world.latent_dollars(base, moment), world.latent_dollars(quote, moment))


def minute_marks(world: World, fills: Iterable[Fill], after: Iterable[int]) -> pa.Table:
    """Return the minute closes, true but for a basis point of noise, last before each fill and after it.

    Of a year of closes only those that lookups so many ms after the fills can find.
    """
    lags = [0, *after]
    minutes = {(f.market, (f.time_ms + lag) // MINUTE * MINUTE) for f in fills for lag in lags}
    rows = sorted(minutes)
    prices = []
    for market, minute in rows:
        noise = random.Random(f"{world.seed} {market} {minute}").gauss(0, 1e-4)
        price = true_price(world, market, minute) * (1 + Fraction(noise))
        prices.append(round(Decimal(price.numerator) / price.denominator, 14))
    return pa.table(
        {
            "created_at": pa.array([minute for _, minute in rows], pa.timestamp("ms", "UTC")),
            "market": [market for market, _ in rows],
            "base": [MARKETS[market].base.symbol for market, _ in rows],
            "quote": [MARKETS[market].quote.symbol for market, _ in rows],
            "price": pa.array(prices, AMOUNT),
        }
    )


def true_markouts(world: World, fills: Iterable[Fill], horizon: int) -> pd.DataFrame:
    """Return the effective and realized cost and the impact of fills in bps, from true prices alone."""
    return pd.DataFrame([_true_markout(world, fill, horizon) for fill in fills])


def _true_markout(world: World, fill: Fill, horizon: int) -> dict[str, float]:
    market = MARKETS[fill.market]
    price = Fraction(fill.quote * 10**market.base.decimals, fill.size * 10**market.quote.decimals)
    now = true_price(world, fill.market, fill.time_ms)
    later = true_price(world, fill.market, fill.time_ms + horizon)
    sign = 1 if fill.side == "BUY" else -1
    rates = {"effective": price - now, "realized": price - later, "impact": later - now}
    return {"trade_id": fill.id} | {name: float(sign * gap / now) * 10_000 for name, gap in rates.items()}
