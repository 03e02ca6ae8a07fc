"""Estimates of fills: what pools earn, against the truth of a world."""

from decimal import Decimal

import pandas as pd
import pytest
from support.wire_rows import page, read, row
from support.worlds import MINUTE, minute_marks, true_price

import loopring_lab as lab
from loopring_lab.relayer import World
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.world import Fill

# Pools


def of_pool(world: World, market: str) -> list[Fill]:
    return [
        fill for fill in world.fills if fill.market == market and fill.venue == "amm"
    ]


def test_a_pool_earns_and_loses_what_integers_say():
    """At 2000 USDT a pool sells 1 ETH for 2010, then buys 1 for 1980; later ETH is worth 2100."""
    fills = [
        ("SELL", "2010.0", 100_000),
        ("BUY", "1980.0", 200_000),
        ("BUY", "1980.0", 90_000_000),
    ]
    rows = [
        row(
            **MEMBERS,
            id=str(number),
            orderHash=f"0x{number}",
            side=side,
            price=price,
            createdAt=str(moment),
        )
        for number, (side, price, moment) in enumerate(fills)
    ]
    pool = read([page(rows)], fill_type="amm")
    prices = pd.DataFrame(
        {
            "created_at": pd.to_datetime([0, 400_000], unit="ms", utc=True),
            "market": "ETH-USDT",
            "price": lab.amounts.to_units([2000, 2100], 0),
        }
    )
    found = lab.fills.pool_returns(pool, 4, prices)
    assert found["period"].dt.day.tolist() == [1, 2]
    assert found["fills"].tolist() == [2, 1]
    # On the second day there is no later price.
    assert found["unpriced"].tolist() == [0, 1]
    first = found.iloc[0]
    fees = Decimal(2010 + 2000) * 20 / 10_000
    assert first["fees"] == fees
    # It sold 10 above and bought 20 below the price.
    assert first["net"] == 10 + 20
    assert first["lvr"] == fees - 30
    assert first["markout"] == (2010 - 2100) + (2100 - 1980)
    assert first["notional"] == 3990
    assert first["net_bps"] == pytest.approx(30 * 10_000 / 3990, rel=1e-12)
    assert found.loc[1, ["fees", "lvr", "net", "markout", "net_bps"]].isna().all()


def test_a_pools_returns_are_those_of_the_true_prices(world, trades):
    """Fees and losses are those of `liquidity`, which test_liquidity.py holds to the truth of worlds."""
    horizon = 5 * MINUTE
    for market, account in world.pools.items():
        fills = of_pool(world, market)
        if len(fills) < 100:
            continue
        marks = minute_marks(world, fills, [horizon])
        pool = trades[trades["account_id"] == account]
        found = lab.fills.pool_returns(pool, account, marks, every="1y")
        assert (found["fills"].sum(), found["unpriced"].sum()) == (len(fills), 0)
        same = lab.fills.liquidity(pool, None, marks, every="1y")
        assert found["notional"].tolist() == same["notional"].tolist()
        assert found["net"].tolist() == same["net"].tolist()
        # The fee of each fill is cut to 18 decimals once.
        reach = Decimal(len(fills)).scaleb(-18)
        assert ((found["fees"] - same["fees"]).abs() <= reach).all()
        assert (found["fees"] - found["lvr"] == found["net"]).all()
        assert (found["lvr"] > 0).all()
        gained = true_markout(world, market, fills, horizon)
        off = float(lab.amounts.total(found, "markout").item()) - gained
        notional = float(lab.amounts.total(found, "notional").item())
        assert abs(off) / notional * 10_000 < 0.75, market


def true_markout(world: World, market: str, fills: list[Fill], horizon: int) -> float:
    """Return what a pool gained on its fills at the true prices of later."""
    base = MARKETS[market].base.decimals
    quote = MARKETS[market].quote.decimals
    gained = 0.0
    for fill in fills:
        later = float(true_price(world, market, fill.time_ms + horizon))
        gain = fill.quote / 10**quote - fill.size / 10**base * later
        gained += gain if fill.side == "BUY" else -gain
    return gained


MEMBERS = {
    "market": "AMM-ETH-USDT",
    "size": str(10**18),
    "accountId": "4",
    "type": "maker",
    "feeAmount": "0",
}
