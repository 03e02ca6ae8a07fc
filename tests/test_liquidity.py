"""What a pool's liquidity earned: parts that add up exactly, measured fees, and the truth of worlds."""

import functools
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from support.engines import ENGINES, assert_same, from_arrow, on, without_warnings
from support.reserves import (
    LOSSES,
    Drawn,
    balances_of,
    drawn,
    earned,
    is_exact,
    of_world,
    prices_of,
    trades_of,
)
from support.settled_world import SettledWorld
from support.worlds import minute_marks, true_price

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.relayer import World
from loopring_lab.relayer.world import Fill

HOUR = 3_600_000
DAY = 24 * HOUR
EVERY = {"1d": DAY, "12h": 12 * HOUR}
EXACT = ("fills", "base_fees", "quote_fees")
QUICK = [
    pytest.param(
        engine, marks=[pytest.mark.thorough] if engine in ("pyarrow", "polars") else []
    )
    for engine in ENGINES[1:]
]


def asked(pool: Drawn, stated: str = "first", every: str = "1d") -> pd.DataFrame:
    balances = balances_of([pool], stated)
    return lab.fills.liquidity(
        trades_of([pool]), balances, prices_of([pool]), every=every
    )


@functools.cache
def pools() -> tuple[Drawn, ...]:
    """Return drawn pools of three markets."""
    markets = ("LRC-ETH", "LINK-ETH", "ETH-USDC")
    return tuple(
        drawn(seed, seed, (18, 18))._replace(market=market)
        for seed, market in enumerate(markets, start=1)
    )


# Parts that add up


@pytest.mark.parametrize("stated", ["first", "middle", "last"])
@pytest.mark.parametrize("seed", range(8))
def test_parts_add_up_and_are_those_of_fractions(seed: int, stated: str) -> None:
    pool = drawn(seed)
    for every, length in EVERY.items():
        found = asked(pool, stated, every)
        expected = earned(pool, length)
        assert is_exact(found)
        assert len(found) == len(expected)
        # Each value of a position is cut once, and parts are differences of these.
        reach = Fraction(4 * (len(pool.events) + len(expected)), 10**18)
        for row, truth in zip(found.to_dict("records"), expected, strict=True):
            for name in truth.keys() - {"period"}:
                within = 0 if name in EXACT else reach
                assert abs(Fraction(row[name]) - truth[name]) <= within, (name, row)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(100, 200))
def test_parts_of_many_pools_add_up(seed: int) -> None:
    test_parts_add_up_and_are_those_of_fractions(seed, "first")


def test_a_period_begins_with_what_the_last_one_ended_with() -> None:
    found = asked(drawn(3), every="1h")
    assert found["opened"].tolist()[1:] == found["closed"].tolist()[:-1]
    steps = found["period"].diff().dropna()
    assert (steps == pd.Timedelta("1h")).all()
    quiet = found[(found["fills"] == 0) & (found["added"] == 0)]
    assert len(quiet)
    assert (quiet["change"] == quiet["rebalanced"]).all()
    assert (quiet["against_held"] == 0).all()
    assert quiet["fee_source"].isna().all()


def test_several_pools_are_told_apart() -> None:
    together = lab.fills.liquidity(
        trades_of(pools()), balances_of(pools()), prices_of(pools())
    )
    apart = pd.concat([asked(pool) for pool in pools()])
    keys = ["period", "account_id"]
    expected = apart.sort_values(keys).reset_index(drop=True)
    pd.testing.assert_frame_equal(together, expected)


def test_what_a_statement_contradicts_is_unexplained() -> None:
    pool = drawn(5)
    missing = next(
        place
        for place, event in enumerate(pool.events)
        if event.kind == "spot_trade" and 0 < place < len(pool.events) - 1
    )
    gone = pool.events[missing]
    rest = pool._replace(
        events=[e for e in pool.events if e is not gone], account=pool.account
    )
    balances = balances_of([rest])
    # A later statement shows what the block that is missing did.
    later = balances_of([pool], "last").query("kind == 'amm_update'")
    balances = pd.concat([balances, later], ignore_index=True)
    found = lab.fills.liquidity(trades_of([rest]), balances, prices_of([pool]))
    assert is_exact(found)
    price = dict(pool.prices)[
        max(ms for ms, _ in pool.prices if ms <= pool.events[-1].ms)
    ]
    scales = [10 ** (18 - decimals) for decimals in pool.decimals]
    expected = (
        Fraction(gone.base * scales[0] * price, 10**18) + gone.quote * scales[1]
    ) / 10**18
    total = Fraction(sum(found["unexplained"], Decimal(0)))
    assert abs(total - expected) <= Fraction(4, 10**18)


def test_without_balances_fees_are_assumed_and_no_position_is_known() -> None:
    pool = drawn(4)
    found = lab.fills.liquidity(trades_of([pool]), None, prices_of([pool]))
    known = asked(pool)
    known = known[known["fills"] > 0].reset_index(drop=True)
    assert found["fee_source"].unique().tolist() == ["assumed"]
    unknown = ["opened", "closed", "change", "rebalanced", "added", "held", "base_held"]
    assert found[unknown].isna().all(axis=None)
    assert found["notional"].tolist() == known["notional"].tolist()
    # What a fill gained does not depend on the fee, nor on the balances.
    reach = Decimal(len(pool.events)).scaleb(-18)
    assert ((found["net"] - known["net"]).abs() <= reach).all()
    bought = [event.base for event in pool.events if event.kind == "spot_trade"]
    scale = 10 ** (18 - pool.decimals[0])
    fees = sum(change * scale * 20 // 10_000 for change in bought if change > 0)
    assert sum(found["base_fees"], Decimal(0)) == Decimal(fees).scaleb(-18)
    assert (found["fees"] - sum(found[name] for name in LOSSES.values())).tolist() == (
        found["net"].tolist()
    )


def test_without_prices_only_amounts_of_tokens_are_known() -> None:
    pool = drawn(4)
    found = lab.fills.liquidity(trades_of([pool]), balances_of([pool]))
    known = asked(pool)
    held = ["base_held", "quote_held", "base_added", "quote_added"]
    for name in ("fills", *held, "base_fees", "quote_fees"):
        assert found[name].tolist() == known[name].tolist(), name
    assert found[["opened", "closed", "rebalanced", "held"]].isna().all(axis=None)
    assert found.loc[found["fills"] > 0, "net"].isna().all()
    assert found["reference"].isna().all()


def test_before_the_first_price_values_are_unknown() -> None:
    pool = drawn(6)
    first = next(e for e in pool.events if e.kind == "spot_trade").ms
    later = [(ms, price) for ms, price in pool.prices if ms > first]
    found = asked(pool._replace(prices=later))
    assert found["unpriced"].iloc[0] > 0
    assert found.loc[0, ["change", "net", "opened"]].isna().all()
    known = found.dropna(subset="change")
    assert len(known)
    assert is_exact(known)


def test_fills_that_the_balances_lack_are_not_guessed() -> None:
    pool = drawn(2)
    half = len(pool.events) // 2
    balances = balances_of([pool._replace(events=pool.events[:half])])
    found = lab.fills.liquidity(trades_of([pool]), balances, prices_of([pool]))
    lacking = [e for e in pool.events[half:] if e.kind == "spot_trade"]
    assert found["fills"].sum() == sum(e.kind == "spot_trade" for e in pool.events)
    assert found["unpriced"].sum() == len(lacking)
    assert found.loc[found["unpriced"] > 0, "net"].isna().all()
    assert is_exact(found[found["unpriced"] == 0])


# Every kind of frame


@pytest.mark.parametrize("engine", QUICK)
def test_every_engine_gives_the_same_digits(engine: str) -> None:
    trades, balances, prices = (
        make(pools()) for make in (trades_of, balances_of, prices_of)
    )

    def ask(given: Any) -> Any:
        return lab.fills.liquidity(given, balances, prices)

    expected = ask(trades)
    found = without_warnings(lambda: ask(on(engine, trades)))
    assert_same(found, expected)


def test_balances_may_be_of_another_kind() -> None:
    trades, balances, prices = (
        make(pools()) for make in (trades_of, balances_of, prices_of)
    )
    expected = lab.fills.liquidity(trades, balances, prices)
    table = pa.Table.from_pandas(balances, preserve_index=False)
    for name in ("change", "published", "recomputed"):
        whole = table[name].cast(pa.decimal128(38, 0))
        table = table.set_column(table.column_names.index(name), name, whole)
        units = lab.engine.portable(balances[[f"{name}_units"]])[0]
        place = table.column_names.index(f"{name}_units")
        table = table.set_column(place, f"{name}_units", units)
    for engine in ("pyarrow", "polars", "duckdb"):
        given = table if engine == "pyarrow" else from_arrow(engine, table)
        found = lab.fills.liquidity(trades, given, on(engine, prices))
        pd.testing.assert_frame_equal(found, expected)


# The truth of worlds


@pytest.fixture(scope="module", params=[5, pytest.param(6, marks=pytest.mark.thorough)])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param, 0.3)


def of_pool(world: World, market: str) -> list[Fill]:
    return [f for f in world.fills if f.market == market and f.venue == "amm"]


def scaled(price: Fraction) -> int:
    return int(price * 10**18)


@pytest.mark.parametrize("market", ["LRC-ETH", "ETH-USDC", "WBTC-USDT"])
def test_a_worlds_pool_earned_what_its_reserves_and_true_prices_say(
    world: World, market: str
) -> None:
    fills = of_pool(world, market)
    moments = {fill.time_ms for fill in fills}
    moments |= set(range(min(moments) // DAY * DAY, max(moments), DAY))
    prices = [(ms, scaled(true_price(world, market, ms))) for ms in sorted(moments)]
    pool = of_world(world, market, prices)
    found = asked(pool)
    assert is_exact(found)
    assert found["fee_source"].dropna().unique().tolist() == ["measured"]
    expected = earned(pool, DAY)
    for name in expected[0].keys() - {"period"}:
        total = sum(Fraction(value) for value in found[name])
        truth = sum(row[name] for row in expected)
        assert total == pytest.approx(truth, rel=1e-12, abs=1e-9), name
    # Whoever arbitrages takes from the pool, even after the fee; users pay it.
    sums = {name: sum(found[column], Decimal(0)) for name, column in LOSSES.items()}
    assert sums["arbitrage"] > 0
    assert sums["unknown"] == 0


@pytest.mark.parametrize("market", ["LRC-ETH", "ETH-USDC"])
def test_minute_closes_give_a_worlds_truth_within_a_basis_point_of_the_volume(
    world: World, market: str
) -> None:
    fills = of_pool(world, market)
    moments = sorted({fill.time_ms for fill in fills})
    exact = [(ms, scaled(true_price(world, market, ms))) for ms in moments]
    pool = of_world(world, market, exact)
    marks = minute_marks(world, fills, []).to_pandas()
    found = lab.fills.liquidity(
        trades_of([pool]),
        balances_of([pool]),
        marks.assign(price=marks["price"].astype("amount")),
        every="1y",
    )
    assert is_exact(found)
    (truth,) = earned(pool, 366 * DAY)[-1:]
    expected = earned(pool, 10 * 366 * DAY)[0]
    assert truth["fills"] <= expected["fills"] == len(fills)
    notional = float(sum(found["notional"], Decimal(0)))
    for name in ("fees", *LOSSES.values()):
        ours = float(sum(found[name], Decimal(0)))
        assert abs(ours - float(expected[name])) / notional * 10_000 < 1, name


def test_the_demo_blocks_give_the_worlds_reserves_and_fees() -> None:
    world = SettledWorld()
    client = lab.connect(blocks="demo")
    blocks = client.store.blocks()
    tokens = client.tokens()
    market = "LRC-ETH"
    account = world.pools[market]
    trades = client.trades(account)
    found = lab.fills.liquidity(trades, blocks.balances(account, tokens), every="1y")
    pool = of_world(world, market, [])
    settled = pool.events[: len(trades)]
    for side, name in enumerate(("base_fees", "quote_fees")):
        kept = sum(event.kept[side] for event in settled)
        assert found[name].tolist() == [Decimal(kept).scaleb(-pool.decimals[side])]
    last = settled[-1]
    assert found["base_held"].tolist() == [
        Decimal(last.base_before + last.base).scaleb(-18)
    ]
    assert found["quote_held"].tolist() == [
        Decimal(last.quote_before + last.quote).scaleb(-18)
    ]
    first = settled[0]
    assert found["base_added"].tolist() == [Decimal(first.base_before).scaleb(-18)]
    assert found["fills"].tolist() == [len(trades)]


# A real block


def test_of_a_real_block_only_what_follows_is_known() -> None:
    client = lab.connect(blocks="sample")
    blocks = client.store.blocks()
    tokens = client.tokens()
    trades = client.trades()
    stated = set(blocks.amm_updates()["account_id"].astype(int))
    accounts = set(
        trades.query("fill_type == 'amm' and role == 'maker'")["account_id"].astype(int)
    )
    balances = pd.concat(
        [blocks.balances(one, tokens).assign(account_id=one) for one in accounts]
    )
    found = lab.fills.liquidity(trades, balances).set_index("account_id")
    measured = found[found["fee_source"] == "measured"]
    assert set(measured.index) == stated & accounts
    assert set(found["fee_source"]) == {"measured", "assumed"}
    assert found[["opened", "closed", "lost_to_unknown"]].isna().all(axis=None)
    assert found.loc[~found.index.isin(stated), "base_held"].isna().all()
    for account in stated:
        row = found.loc[account]
        one = blocks.balances(account, tokens)
        last = one.dropna(subset="recomputed").groupby("token", observed=True).last()
        assert row["base_held"] == last.loc[row["base"], "recomputed_units"]
        assert row["quote_held"] == last.loc[row["quote"], "recomputed_units"]
        moved = one[one["kind"] == "transfer"].groupby("token", observed=True)
        added = moved["change_units"].sum()
        assert row["base_added"] == added[row["base"]]
        assert row["quote_added"] == added[row["quote"]]
        # Where balances before a fill are published too, the fee is that of `pool_fills`.
        fills = blocks.pool_fills(account, tokens).dropna(subset="kept")
        assert len(fills)
        kept = fills.groupby("token_in", observed=True)["kept_units"].sum()
        assert row["base_fees"] >= kept.get(row["base"], 0)
        rate = row["base_fees"] / fills["amount_in_units"].sum()
        assert rate > 0


# What makes no sense


def test_what_makes_no_sense_is_refused_in_words() -> None:
    pool = drawn(1)
    trades = trades_of([pool])
    balances = balances_of([pool])
    cases = [
        (lambda: lab.fills.liquidity(trades.assign(role="taker")), "no fills of a pool"),
        (lambda: lab.fills.liquidity(trades, every="daily"), "is not a period"),
        (lambda: lab.fills.liquidity(trades, pool_fee_bps=0.2), "is not a fee"),
        (
            lambda: lab.fills.liquidity(trades, balances.drop(columns="account_id")),
            "does not say whose they are",
        ),
        (
            lambda: lab.fills.liquidity(trades, balances.drop(columns="change_units")),
            "has no amounts in units",
        ),
        (lambda: lab.fills.liquidity(trades, trades), "balances=: the frame has no"),
        (lambda: lab.fills.liquidity(trades, 5), "expected a"),
    ]  # fmt: skip
    for ask, words in cases:
        with pytest.raises(LabError, match=words):
            ask()
