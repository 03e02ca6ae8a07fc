"""What a pool's liquidity earned: parts that add up exactly, measured fees, and the truth of worlds."""

import functools
import re
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figures.test_figures import assert_legible
from scipy import stats
from support import worlds
from support.engines import on
from support.figures import lines, note
from support.optional import first_often, thorough
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
from support.worlds import minute_marks, true_price

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.errors import LabError
from loopring_lab.relayer import World
from loopring_lab.relayer.world import Fill

HOUR = 3_600_000
DAY = 24 * HOUR
EVERY = {"1d": DAY, "12h": 12 * HOUR}
EXACT = ("fills", "base_fees", "quote_fees")


def asked(pool: Drawn, every: str = "1d") -> pd.DataFrame:
    balances = balances_of([pool])
    return lab.research.liquidity(
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


def pool_time(event: Any) -> pd.Timestamp:
    return pd.Timestamp(event.ms, unit="ms", tz="UTC")


# Balances that say too little


def test_balances_of_one_time_need_their_places():
    pool = drawn(1)
    balances = balances_of([pool])
    at_once = balances.assign(created_at=balances["created_at"].min())
    ask = functools.partial(lab.research.liquidity, trades_of([pool]))
    # The same row twice is one change, wherever it stands.
    twice = pd.concat([balances, balances[::-1]])
    pd.testing.assert_frame_equal(ask(twice), ask(balances))
    assert len(ask(at_once))
    for frame in (at_once, at_once[::-1]):
        with pytest.raises(
            LabError, match=rf"balances of the pool of {pool.market} have one time"
        ):
            ask(frame.drop(columns=["block_id", "index_in_block"]))


def test_times_of_balances_have_a_zone():
    pool = drawn(1)
    balances = balances_of([pool])
    naive = balances["created_at"].dt.tz_localize(None)
    with pytest.raises(
        LabError, match=r"balances=: created_at is timestamp.*, not a time with a"
    ):
        lab.research.liquidity(trades_of([pool]), balances.assign(created_at=naive))


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_times_of_balances_may_be_finer_than_those_of_trades(unit):
    pool = drawn(1)
    balances = balances_of([pool])
    finer = balances["created_at"].dt.as_unit(unit) + pd.Timedelta(1, unit)
    found = lab.research.liquidity(
        trades_of([pool]), balances.assign(created_at=finer), prices_of([pool])
    )
    pd.testing.assert_frame_equal(found, asked(pool))


# Parts that add up


@pytest.mark.parametrize("seed", first_often(1, range(3)))
def test_parts_add_up_and_are_those_of_fractions(seed):
    pool = drawn(seed)
    for every, length in EVERY.items():
        found = asked(pool, every)
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
@pytest.mark.parametrize("seed", range(3, 100))
def test_parts_of_many_pools_add_up(seed):
    test_parts_add_up_and_are_those_of_fractions(seed)


def test_a_period_begins_with_what_the_last_one_ended_with():
    found = asked(drawn(3), every="1h")
    assert found["opened"].tolist()[1:] == found["closed"].tolist()[:-1]
    steps = found["period"].diff().dropna()
    assert (steps == pd.Timedelta("1h")).all()
    quiet = found[(found["fills"] == 0) & (found["added"] == 0)]
    assert len(quiet)
    assert (quiet["change"] == quiet["rebalanced"]).all()
    assert (quiet["against_held"] == 0).all()
    assert quiet["fee_source"].isna().all()


def moved(by: pd.Timedelta, **options: Any) -> pd.DataFrame:
    """Ask about a pool all of whose times are moved."""
    pool = drawn(3)
    frames = [trades_of([pool]), balances_of([pool]), prices_of([pool])]
    moved = [frame.assign(created_at=frame["created_at"] + by) for frame in frames]
    return lab.research.liquidity(*moved, **options)


def test_periods_begin_by_the_clock_of_a_zone():
    hours = pd.Timedelta(hours=9)  # by which Tokyo is ahead
    found = moved(-hours, every="1d", tz="Asia/Tokyo")
    assert str(found["period"].dt.tz) == "Asia/Tokyo"
    found["period"] = found["period"].dt.tz_localize(None).dt.tz_localize("UTC")
    pd.testing.assert_frame_equal(found, asked(drawn(3)))


@pytest.mark.parametrize("change", ["2024-03-31T01:00Z", "2024-10-27T01:00Z"])
@pytest.mark.parametrize("every", ["6h", *map(thorough, ("1h", "1d"))])
def test_periods_follow_one_another_where_clocks_change(change, every):
    times = trades_of([drawn(3)])["created_at"]
    by = pd.Timestamp(change) - times.min() - (times.max() - times.min()) / 2
    by = by.floor("ms")
    found = moved(by, every=every, tz="Europe/Berlin")
    shown = (times + by).dt.tz_convert("Europe/Berlin")
    days = shown.dt.strftime("%Y-%m-%d").value_counts().to_dict()
    fills = found.groupby(found["period"].dt.strftime("%Y-%m-%d"))["fills"].sum()
    assert {day: count for day, count in fills.items() if count} == days
    assert found["period"].is_unique
    assert found["opened"].tolist()[1:] == found["closed"].tolist()[:-1]
    clock = set(found["period"].dt.strftime("%H:%M"))
    assert clock <= {f"{hour:02}:00" for hour in range(24)}
    if every == "1d":
        assert clock == {"00:00"}


def test_several_pools_are_told_apart():
    together = lab.research.liquidity(
        trades_of(pools()), balances_of(pools()), prices_of(pools())
    )
    apart = pd.concat([asked(pool) for pool in pools()])
    keys = ["period", "account_id"]
    expected = apart.sort_values(keys).reset_index(drop=True)
    pd.testing.assert_frame_equal(together, expected)


def test_where_blocks_are_missing_nothing_is_known_until_a_period_is_whole():
    pool = drawn(5)
    known = asked(pool)
    balances = balances_of([pool])
    gap = len(balances) // 2
    # A row without balances says that blocks before it are missing.
    unknown = balances.loc[[gap]].assign(base_balance=None, quote_balance=None)
    unknown = unknown.astype({"base_balance": "amount", "quote_balance": "amount"})
    unknown["index_in_block"] = None
    parts = [balances[:gap], unknown, balances[gap:]]
    found = lab.research.liquidity(
        trades_of([pool]), pd.concat(parts, ignore_index=True), prices_of([pool])
    )
    lost = found["net"].isna()
    assert found.loc[lost, ["rebalanced", "fees", "base_fees"]].isna().all(axis=None)
    day = balances["created_at"][gap].normalize()
    assert day in found.loc[lost, "period"].tolist()
    assert lost.sum() < 3
    assert is_exact(found[~lost])
    whole = found["period"].isin(found.loc[~lost, "period"])
    pd.testing.assert_frame_equal(found[whole], known[whole])


def test_without_balances_fees_are_assumed_and_no_position_is_known():
    pool = drawn(4)
    found = lab.research.liquidity(trades_of([pool]), None, prices_of([pool]))
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


def test_without_prices_only_amounts_of_tokens_are_known():
    pool = drawn(4)
    found = lab.research.liquidity(trades_of([pool]), balances_of([pool]))
    known = asked(pool)
    held = ["base_held", "quote_held", "base_added", "quote_added"]
    for name in ("fills", *held, "base_fees", "quote_fees"):
        assert found[name].tolist() == known[name].tolist(), name
    values = ["opened", "closed", "rebalanced", "held", "net", "fees", *LOSSES.values()]
    assert found[values].isna().all(axis=None)
    assert found["reference"].isna().all()


def test_before_the_first_price_values_are_unknown():
    pool = drawn(6)
    first = next(e for e in pool.events if e.kind == "spot_trade").ms
    later = [(ms, price) for ms, price in pool.prices if ms > first]
    found = asked(pool._replace(prices=later))
    assert found["unpriced"].iloc[0] > 0
    assert found.loc[0, ["change", "net", "opened"]].isna().all()
    known = found.dropna(subset="change")
    assert len(known)
    assert is_exact(known)


def test_fills_that_the_balances_lack_are_not_guessed():
    pool = drawn(2)
    half = len(pool.events) // 2
    balances = balances_of([pool._replace(events=pool.events[:half])])
    found = lab.research.liquidity(trades_of([pool]), balances, prices_of([pool]))
    lacking = [e for e in pool.events[half:] if e.kind == "spot_trade"]
    assert found["fills"].sum() == sum(e.kind == "spot_trade" for e in pool.events)
    assert found["unpriced"].sum() == len(lacking)
    last = found["base_held"].last_valid_index()
    assert found["period"][last] == pool_time(pool.events[half - 1]).normalize()
    assert found.loc[last + 1 :, ["net", "closed", "notional"]].isna().all(axis=None)
    assert is_exact(found)
    alone = asked(pool._replace(events=pool.events[:half]))
    sums = ["opened", "closed", "net", "fees", "notional", "base_fees"]
    pd.testing.assert_frame_equal(found.loc[:last, sums], alone[sums])


# The truth of worlds


@pytest.fixture(scope="module", params=[5, thorough(6)])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param, 0.1)


def of_pool(world: World, market: str) -> list[Fill]:
    return [f for f in world.fills if f.market == market and f.venue == "amm"]


def priced(world: World, market: str, moments: set[int]) -> Drawn:
    """Return a world's pool with the true prices of these moments."""
    prices = {ms: true_price(world, market, ms) for ms in sorted(moments)}
    return of_world(world, market, [(ms, int(p * 10**18)) for ms, p in prices.items()])


def priced_at_fills(world: World, market: str) -> Drawn:
    return priced(world, market, {fill.time_ms for fill in of_pool(world, market)})


@pytest.mark.thorough
def test_flow_and_minute_closes_give_a_worlds_truth_within_a_basis_point(world):
    """Fees, and losses to arbitrage and to users, as parts of the volume."""
    trades = worlds.trades_of(world)
    prices = (
        minute_marks(world, world.fills, []).to_pandas().astype({"price": "amount"})
    )
    judged = lab.research.with_flow(trades, prices)
    balances = worlds.pool_balances(world)
    found = lab.research.liquidity(judged, balances, prices, every="1y")
    assert is_exact(found)
    for market in ("LRC-ETH", "ETH-USDC", "LRC-USDC"):
        truth = earned(priced_at_fills(world, market), 10 * 366 * DAY)[0]
        row = found[(found["market"] == market) & (found["fills"] > 1)]
        notional = float(total(row, "notional"))
        assert row["fills"].sum() == truth["fills"]
        for name in ("fees", *LOSSES.values()):
            off = float(total(row, name)) - float(truth[name])
            assert abs(off) / notional * 10_000 < 1, (market, name, off)


@pytest.mark.parametrize(
    "market", ["LRC-ETH", thorough("ETH-USDC"), thorough("WBTC-USDT")]
)
def test_a_worlds_pool_earned_what_its_reserves_and_true_prices_say(world, market):
    fills = of_pool(world, market)
    moments = {fill.time_ms for fill in fills}
    moments |= set(range(min(moments) // DAY * DAY, max(moments), DAY))
    pool = priced(world, market, moments)
    found = asked(pool)
    assert is_exact(found)
    assert found["fee_source"].dropna().unique().tolist() == ["measured"]
    expected = earned(pool, DAY)
    for name in expected[0].keys() - {"period"}:
        ours = sum(Fraction(value) for value in found[name])
        truth = sum(row[name] for row in expected)
        assert ours == pytest.approx(truth, rel=1e-12, abs=1e-9), name
    # Whoever arbitrages takes from the pool, even after the fee; users pay it.
    assert total(found, LOSSES["arbitrage"]) > 0
    assert total(found, LOSSES["unknown"]) == 0


@pytest.mark.thorough
def test_the_demo_blocks_give_the_worlds_reserves_and_fees():
    world = World()
    client = lab.connect(blocks="demo")
    market = "LRC-ETH"
    trades = client.trades(world.pools[market])
    balances = client.pool_balances()
    found = lab.research.liquidity(trades, balances, every="1y")
    relayed = lab.connect().trades(world.pools[market], until="2022-01-31")
    # A relayer's trades are found among the balances of blocks.
    same = lab.research.liquidity(relayed, balances, every="1y")
    pd.testing.assert_frame_equal(same, found)
    pool = of_world(world, market, [])
    settled = pool.events[: len(trades)]
    for side, name in enumerate(("base_fees", "quote_fees")):
        kept = sum(event.kept[side] for event in settled)
        assert found[name].tolist() == [Decimal(kept).scaleb(-pool.decimals[side])]
    last = settled[-1]
    held = last.base_before + last.base, last.quote_before + last.quote
    assert found["base_held"].tolist() == [Decimal(held[0]).scaleb(-18)]
    assert found["quote_held"].tolist() == [Decimal(held[1]).scaleb(-18)]
    assert found["base_added"].tolist() == [0]
    assert found["fills"].tolist() == [len(trades)]


# A real block


def kept_by_replay(fills: pd.DataFrame, moves: pd.DataFrame) -> dict[str, Decimal]:
    """Return what a pool kept of all fills but its first change, from its balances at the block's beginning."""
    held: dict[int, int] = defaultdict(int)
    for token, own in moves.groupby("token_id"):
        stated = own["published"].dropna()
        if len(stated):
            before = own.loc[: stated.index[0], "change"].sum()
            held[token] = int(stated.iloc[0] - before)
    kept: dict[str, Decimal] = {}
    by_place = fills.set_index("index_in_block")
    for index, changes in moves.dropna(subset="change").groupby("index_in_block"):
        if index in by_place.index and index > moves["index_in_block"].min():
            fill = by_place.loc[index]
            x, y = held[fill["token_in_id"]], held[fill["token_out_id"]]
            needed = -(-x * int(fill["amount_out"]) // (y - int(fill["amount_out"])))
            unit = Decimal(str(fill["amount_in_units"])) / int(fill["amount_in"])
            share = (int(fill["amount_in"]) - needed) * unit
            kept[fill["token_in"]] = kept.get(fill["token_in"], Decimal(0)) + share
        for change in changes.itertuples():
            held[change.token_id] += int(change.change)
    return kept


def test_of_a_real_block_all_is_known_of_pools_that_state_their_balances():
    client = lab.connect(blocks="sample")
    blocks = client.store.blocks()
    tokens = client.tokens()
    balances = client.pool_balances()
    answer = lab.research.liquidity(client.trades(), balances)
    found = answer.set_index("account_id")
    stated = set(balances["account_id"])
    assert set(found.index[found["base_held"].notna()]) == stated
    assert (found.loc[~found.index.isin(stated), "fee_source"] == "assumed").all()
    assert answer[["opened", "closed", "rebalanced"]].isna().all(axis=None)
    for account in stated:
        row = found.loc[account]
        own = balances[balances["account_id"] == account].dropna(
            subset=["base_balance", "quote_balance"]
        )
        assert row["base_held"] == own["base_balance"].iloc[-1]
        assert row["quote_held"] == own["quote_balance"].iloc[-1]
        fills = blocks.pool_fills(account, tokens)
        assert row["fills"] == len(fills)
        assert row["fee_source"] == "measured"
        moves = blocks.balances(account, tokens)
        kept = kept_by_replay(fills, moves)
        assert row["base_fees"] == kept.get(row["base"], 0)
        assert row["quote_fees"] == kept.get(row["quote"], 0)
        later = moves["index_in_block"] > own["index_in_block"].iloc[0]
        added = moves[later & (moves["kind"] == "transfer")]
        sums = added.groupby("token", observed=True)["change_units"].sum()
        assert row["base_added"] == sums[row["base"]]
        assert row["quote_added"] == sums[row["quote"]]


# In words, and drawn


@functools.cache
def answered() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return trades, balances and prices of a pool of some two months."""
    pools = [drawn(11, decimals=(18, 18), count=200)]
    return trades_of(pools), balances_of(pools), prices_of(pools)


@functools.cache
def days() -> pd.DataFrame:
    return lab.research.liquidity(*answered())


def total(frame: pd.DataFrame, name: str) -> Decimal:
    return sum(frame[name], Decimal(0))


def test_words_are_those_of_the_table():
    found = days()
    said = lab.research.describe(found)
    row = found.iloc[0]
    begin = (
        f"{row['market']} (account {row['account_id']}): {found['fills'].sum():,} fills"
    )
    assert said.startswith(f"{begin}. Fees, measured: ")
    rate = 10_000 * float(total(found, "net")) / float(total(found, "opened"))
    assert f"a day brought {rate:,.3f} bps (95 % interval " in said
    assert f"n = {len(found)} days) of the position." in said
    alone = lab.research.liquidity(answered()[0], None, answered()[2])
    rate = 10_000 * float(total(alone, "net")) / float(total(alone, "notional"))
    assert f"Net, {rate:,.3f} bps (" in lab.research.describe(alone)
    unpriced = lab.research.describe(lab.research.liquidity(*answered()[:2]))
    assert "measured. What rebalancing cost is not known" in unpriced
    assert lab.research.describe(found.sort_values("net")) == said
    # A pool may trade rarely: its periods have the name that was asked for.
    week = found.iloc[::7]
    assert f"n = {len(week)} days)" in lab.research.describe(week)
    few = lab.research.describe(found.head(5))
    assert "(too few for an interval, n = 5 days)" in few
    polars = on("polars", found.drop(columns=["opened", "closed"]))
    with pytest.raises(LabError, match="no answer of lab.research.liquidity"):
        lab.research.describe(polars)
    trades, balances, _ = answered()
    own = lab.research.liquidity(trades, balances, trades)
    assert own["reference"].unique().tolist() == ["own trades"]
    assert is_exact(own)
    hours = lab.research.liquidity(*answered(), every="1h")
    assert "On average, an hour brought " in lab.research.describe(hours)
    some = answered()[0].head(100)
    figure = lab.research.figures.liquidity(some, prices=answered()[2], every="1h")
    assert re.search(r"n = \d+ hours\)", figure.axes[0].texts[0].get_text())
    own_trades = "The reference is own trades, which hide much of the loss."
    assert own_trades in lab.research.describe(own)


def test_a_day_that_began_with_nothing_held_is_in_no_mean_and_in_no_number_of_days():
    """A pool earns 1 a day; it is empty when the first of nine days begins, and holds 1,000 from the second on."""
    rest = days().head(9)
    held = to_units([0, *[1000] * 8], 0)
    found = rest.assign(net=to_units([1] * 9, 0), opened=held)
    said = lab.research.describe(found)
    assert (
        "a day brought 10.000 bps (95 % interval 10.000 to 10.000, n = 8 days)" in said
    )
    first = lab.research.describe(found.head(1))
    assert "On average, a day brought an unknown part of the position." in first


def test_hours_of_one_day_are_no_independent_observations():
    """A pool earns the same in each hour of a day, and on no day what it earned on another."""
    nets = np.arange(9.0)
    hours = days().iloc[[0] * 9 * 24].reset_index(drop=True)
    found = hours.assign(
        period=pd.date_range("2022-05-01", periods=len(hours), freq="1h", tz="UTC"),
        net=to_units(nets.repeat(24).astype(int).tolist(), 0),
        opened=to_units([1000] * len(hours), 0),
    )
    said = lab.research.describe(found)
    edges = re.search(r"40.000 bps \(95 % interval (\S+) to (\S+), n = 216 ", said)
    # Of 1,000 tokens 1 is 10 basis points.
    by_day = stats.t.interval(0.95, 8, 10 * nets.mean(), 10 * stats.sem(nets))
    assert [float(edge) for edge in edges.groups()] == pytest.approx(by_day, rel=1e-3)


@pytest.mark.thorough
def test_intervals_of_a_mean_day_hold_the_truth_as_often_as_they_say():
    dice = np.random.default_rng(4)
    found = days().head(40)
    held = 0
    for _ in range(150):
        # Heavy tails, as days of large moves of prices have; the true mean is 0.
        net = dice.standard_t(4, len(found))
        drawn_days = found.assign(
            net=pd.Series(net).round(9).astype(str).astype("amount")
        )
        (interval,) = re.findall(
            r"interval (\S+) to (\S+),", lab.research.describe(drawn_days)
        )
        low, high = (float(edge.replace(",", "")) for edge in interval)
        held += low <= 0 <= high
    assert 0.92 <= held / 150 <= 0.985


# The column of each line: a sign means in the figure what it means in the table and the sentence.
DRAWN = {
    "lost to arbitrage": "lost_to_arbitrage",
    "lost to users": "lost_to_users",
    "lost to unknown flow": "lost_to_unknown",
    "fees": "fees",
    "net (fees less losses)": "net",
}


def test_lines_are_the_sums_so_far():
    figure = lab.research.figures.liquidity(*answered())
    found = days()
    drawn_lines = lines(figure)
    assert set(drawn_lines) == set(DRAWN)
    for label, column in DRAWN.items():
        sums = np.cumsum([0.0, *found[column].astype(float)])
        assert drawn_lines[label][1] == pytest.approx(sums, rel=1e-9, abs=1e-9), label
    assert len(figure.table) == len(found)
    assert len(figure.marks) == len(DRAWN) * len(found)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "sum so far (ETH)"
    assert f"n = {len(found)} days" in note(figure)
    assert "fees measured, outside prices" in note(figure)
    assert_legible(figure)


def test_a_figure_without_a_known_loss_is_refused():
    trades, balances, prices = answered()
    with pytest.raises(LabError, match=r"figures\.liquidity: what this pool lost"):
        lab.research.figures.liquidity(trades, balances)
    with pytest.raises(LabError, match="account 9 has no fills as a pool .* of 7"):
        lab.research.figures.liquidity(trades, balances, prices, pool_account=9)
