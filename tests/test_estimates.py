"""Estimates of fills: intervals against their definition, comparisons and pools against the world's truth."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from support.engines import OTHERS, from_arrow, on, result_rows
from support.trade_histories import assert_refused
from support.wire_rows import page, read, row
from support.worlds import (
    MINUTE,
    minute_marks,
    trades_of,
    true_price,
)

import loopring_lab as lab
from loopring_lab.engines import convert, limits, selection
from loopring_lab.engines.spill import Buckets
from loopring_lab.fills import intervals
from loopring_lab.fills.values import Values
from loopring_lab.relayer import World
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.world import Fill


def drawn(orders: int, seed: int) -> dict[str, np.ndarray]:
    """Draw fills of a number of orders, one to three of each, in two groups."""
    chance = np.random.default_rng(seed)
    parts = chance.integers(1, 4, orders)
    fills = int(parts.sum())
    return {
        "values": np.repeat(chance.normal(5, 20, orders), parts) + chance.normal(0, 3, fills),
        "weights": chance.lognormal(6, 1, fills),
        "orders": np.repeat(chance.integers(0, 2**63, orders, dtype=np.uint64), parts),
        "groups": np.repeat(chance.integers(0, 2, orders), parts),
    }


def estimated(fills: dict[str, np.ndarray], count: int = 2, seed: int = 0, parts: int = 1) -> dict[str, list]:
    """Estimate from rows that are added in parts."""
    rows = Buckets()
    for some in np.array_split(np.arange(len(fills["values"])), parts):
        columns = {"group": fills["groups"], "order": fills["orders"], "weight": fills["weights"]}
        columns = {name: column[some] for name, column in (columns | {"bps": fills["values"]}).items()}
        rows.add(intervals.bucket_of(columns["order"]), columns)
    found = intervals.estimate(intervals.SortedParts(rows), ["bps"], count, 0.95, seed)
    return {name: pa.array(column, from_pandas=True).to_pylist() for name, column in found.items()}


def test_means_and_medians_are_those_of_their_definition() -> None:
    fills = drawn(150, 1)
    found = estimated(fills)
    for group in (0, 1):
        mine = fills["groups"] == group
        values, weights = fills["values"][mine].tolist(), fills["weights"][mine].tolist()
        assert found["orders"][group] == len(set(fills["orders"][mine].tolist()))
        assert found["mean_bps"][group] == pytest.approx(sum(values) / len(values))
        assert found["median_bps"][group] == pytest.approx(median(values))
        assert found["weighted_bps"][group] == pytest.approx(
            sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
        )
        assert found["low_bps"][group] < found["weighted_bps"][group] < found["high_bps"][group]


def test_the_interval_holds_the_true_mean_in_nineteen_of_twenty_samples() -> None:
    held = 0
    for seed in range(200):
        fills = drawn(100, seed) | {"groups": np.zeros(1, int)}
        fills["groups"] = np.zeros(len(fills["values"]), int)
        found = estimated(fills, 1, seed)
        held += found["low_bps"][0] < 5 < found["high_bps"][0]
    assert 0.9 < held / 200 < 0.99


def test_fills_of_one_order_count_as_one_decision() -> None:
    """Fills copied ten times within their orders say no more; as orders of their own they seem to."""
    fills = drawn(100, 3)
    copied = {name: np.repeat(column, 10) for name, column in fills.items()}
    once, again = estimated(fills), estimated(copied)
    assert again["low_bps"] == pytest.approx(once["low_bps"])
    assert again["high_bps"] == pytest.approx(once["high_bps"])
    apart = estimated(copied | {"orders": np.arange(len(copied["values"]), dtype=np.uint64)})
    assert apart["high_bps"][0] - apart["low_bps"][0] < (once["high_bps"][0] - once["low_bps"][0]) / 2


def test_intervals_depend_on_neither_the_order_of_rows_nor_other_groups() -> None:
    fills = drawn(200, 4)
    found = estimated(fills)
    mixed = np.random.default_rng(5).permutation(len(fills["values"]))
    assert estimated({name: column[mixed] for name, column in fills.items()}) == found
    alone = fills["groups"] == 1
    only = estimated({name: column[alone] for name, column in fills.items()})
    assert {name: column[1] for name, column in only.items()} == {
        name: column[1] for name, column in found.items()
    }
    assert estimated(fills, seed=1)["low_bps"] != found["low_bps"]
    assert estimated(fills, seed=1)["weighted_bps"] == found["weighted_bps"]


def test_many_orders_are_put_together_without_a_narrower_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    fills = drawn(4000, 6)
    whole = estimated(fills)
    monkeypatch.setattr(intervals, "UNITS_AT_MOST", 512)
    monkeypatch.setattr(intervals, "UNIT_BITS", 9)
    fewer = estimated(fills)
    for group in (0, 1):
        widths = [found["high_bps"][group] - found["low_bps"][group] for found in (whole, fewer)]
        assert widths[1] == pytest.approx(widths[0], rel=0.15)
    assert fewer["weighted_bps"] == pytest.approx(whole["weighted_bps"])


@pytest.mark.parametrize("orders", [300, 4000])
def test_parts_order_and_disk_change_no_digit(monkeypatch: pytest.MonkeyPatch, orders: int) -> None:
    """4,000 orders in two groups are more than are resampled one by one here."""
    monkeypatch.setattr(intervals, "UNITS_AT_MOST", 1024)
    monkeypatch.setattr(intervals, "UNIT_BITS", 10)
    fills = drawn(orders, 9)
    fills["weights"] *= 10.0 ** (fills["orders"] % np.uint64(30)).astype(float)
    whole = estimated(fills)
    assert np.median(fills["values"][fills["groups"] == 1]) == whole["median_bps"][1]
    mixed = np.random.default_rng(5).permutation(len(fills["values"]))
    shuffled = {name: column[mixed] for name, column in fills.items()}
    assert estimated(shuffled, parts=7) == whole
    monkeypatch.setattr(limits, "memory_limit", lambda: 4000)
    monkeypatch.setattr(limits, "rows_at_once", lambda _: 64)
    assert estimated(fills, parts=50) == estimated(shuffled, parts=3) == whole


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_sums_are_right_and_the_same_in_any_order(numbers: list[float], chance: Any) -> None:
    mixed = chance.sample(numbers, len(numbers))
    found, again = (intervals.sums_between(np.array([0]), np.array(some))[0] for some in (numbers, mixed))
    assert found == again
    assert abs(Fraction(found) - sum(map(Fraction, numbers))) <= Fraction(max(map(abs, numbers))) / 2**46


def test_order_statistics_are_those_of_sorted_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(3)
    values = np.round(chance.normal(0, 2, 5000), 1) * chance.choice([0, 1, 1e-9, -1e9], 5000)
    groups = chance.integers(0, 3, 5000) * 2  # some others are empty
    values[40:900] = 1 + chance.integers(0, 300, 860) * 2.0**-52  # which only their last bits tell apart
    groups[:40] = 3  # a small group, whose values are all looked at
    groups[900:2500], values[900:2500] = 4, 12.5  # equal values, which have nothing that tells them apart
    values[2500:2600:3], values[2501:2600:3] = np.inf, -np.inf
    counts = np.bincount(groups, minlength=6)
    ranks = np.array([np.zeros(6, int), (counts - 1) // 2, counts // 2, np.maximum(counts - 1, 0)])
    expected = [[sorted(values[groups == g])[r[g]] if counts[g] else None for g in range(6)] for r in ranks]
    parts = [(groups[:9], values[:9]), (groups[9:], values[9:])]
    misled = 0.0, 1e18  # the first look is beside most ranks
    for most, reaches in product((10**6, 700, 1), (selection.REACHES, misled)):
        monkeypatch.setattr(selection, "AT_ONCE", most)
        monkeypatch.setattr(selection, "REACHES", reaches)
        found = selection.select(lambda part_of: map(part_of, *zip(*parts, strict=True)), counts, ranks)
        assert [pa.array(row, from_pandas=True).to_pylist() for row in found] == expected


def test_few_fills_few_orders_and_unknown_weights_give_no_interval() -> None:
    few = {name: column[:19] for name, column in drawn(19, 7).items()} | {"groups": np.zeros(19, int)}
    assert estimated(few, 1)["low_bps"] == [None]
    assert estimated(few, 1)["weighted_bps"][0] is not None
    fills = drawn(200, 8)
    one_order = fills | {"orders": np.ones(len(fills["values"]), np.uint64)}
    assert estimated(one_order)["low_bps"] == [None, None]
    unweighted = fills | {"weights": np.where(np.arange(len(fills["values"])) == 5, np.nan, fills["weights"])}
    found, group = estimated(unweighted), int(fills["groups"][5])
    assert found["weighted_bps"][group] is None
    assert found["low_bps"][group] is None
    assert found["mean_bps"][group] == estimated(fills)["mean_bps"][group]
    empty = estimated({name: column[:0] for name, column in fills.items()})
    assert empty["orders"] == [0, 0]
    assert empty["weighted_bps"] == [None, None]


def test_weights_are_values_in_the_quote_token_with_most_fills() -> None:
    """ETH at 2000 USDT, later 3000; LRC at 1/1000 ETH; a market that nothing connects has no value."""
    rows = [
        row(market="ETH-USDT", price="2000.0", createdAt="1000000", size=str(10**18)),
        row(market="ETH-USDT", price="3000.0", createdAt="9000000", size=str(10**18)),
        row(market="ETH-USDT", price="3000.0", createdAt="9000000", size=str(2 * 10**18)),
        row(market="LRC-ETH", price="0.001", createdAt="1500000", size=str(5 * 10**21)),
        row(market="LRC-ETH", price="0.001", createdAt="8500000", size=str(5 * 10**21)),
    ]
    fills = convert.to_pandas(
        read([page(rows)]), "test", ["created_at", "base", "quote", "price", "notional"]
    )
    table = convert.normalize(
        pa.Table.from_pandas(fills.assign(moment=fills["created_at"].astype("int64")), preserve_index=False)
    )
    found = Values.of_frame(table, "test").rates.of(table)  # read in order of time
    assert found.tolist() == pytest.approx([2000, 10_000, 15_000, 3000, 6000])
    lrc = table.slice(1, 2)
    assert Values.of_frame(lrc, "test", fills).rates.of(lrc).tolist() == pytest.approx([5, 5])
    apart = table.set_column(table.column_names.index("price"), "price", pa.nulls(5, table["price"].type))
    unpriced = Values.of_frame(apart, "test", fills[fills["quote"] == "ETH"]).rates.of(table)
    assert np.isnan(unpriced).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("engine", ["pandas", *OTHERS])
@pytest.mark.parametrize("prices", [["2000.0", "1000.0", "1500.0"], ["1000.0", "1500.0", "2000.0"]])
def test_of_prices_of_one_time_the_lowest_counts_before_and_after_it(engine: str, prices: list[str]) -> None:
    """5 ETH a little before and after three prices of one moment, of which the lowest is 1000 USDT."""
    rows = [row(market="ETH-USDT", price=price, createdAt="1000000", size=str(10**18)) for price in prices]
    rows += [
        row(market="LRC-ETH", price="0.001", createdAt=time, size=str(5 * 10**21))
        for time in ("900000", "1100000")
    ]
    trades = read([page(rows)])
    table = convert.to_table(trades, "test", ["created_at", "base", "quote", "price", "notional"])
    first, *_, last = (
        Values.of_frame(on(engine, trades), "test").rates.of(table).tolist()
    )  # in the order of time
    assert (first, last) == pytest.approx((5000, 5000))


UNKNOWN_OR = {
    "created_at": st.integers(-2, 2).map(lambda second: pd.Timestamp(second, unit="s", tz="UTC")),
    "base": st.sampled_from(["ETH", "LRC"]),
    "quote": st.sampled_from(["USDT", "ETH"]),
    "price": st.integers(0, 2).map(Decimal),
}


@given(
    st.lists(
        st.fixed_dictionaries({n: st.none() | some | some | some for n, some in UNKNOWN_OR.items()}),
        min_size=6,
    )
)
def test_what_is_unknown_or_zero_is_no_price(rows: list[dict[str, Any]]) -> None:
    """The same values come from fills without prices beside the prices that are known."""
    time, amount = pa.timestamp("ms", "UTC"), pa.decimal128(38, 18)
    types = {"created_at": time, "base": pa.string(), "quote": pa.string(), "price": amount}
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    fills = pa.table(columns | {"notional": pa.array([Decimal(7)] * len(rows), amount)})
    table = convert.to_table(fills, "test", fills.column_names)
    known = fills.filter(pa.array([None not in row.values() and row["price"] > 0 for row in rows]))
    unpriced = fills.set_column(3, "price", pa.nulls(len(rows), amount))
    found, apart = Values.of_frame(fills, "test"), Values.of_frame(unpriced, "test", known)
    passing = Values.of_frame(from_arrow("polars, lazy", fills), "test")
    np.testing.assert_array_equal(found.rates.of(table), apart.rates.of(table))
    np.testing.assert_array_equal(found.rates.of(table), passing.rates.of(table))
    assert found.several == apart.several == passing.several
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "memory_limit", lambda: 0)
        on_disk = Values(table.slice(start, 2) for start in range(0, len(table), 2))
        np.testing.assert_array_equal(on_disk.rates.of(table), found.rates.of(table))
        assert on_disk.rates.in_memory == (not on_disk.rates.histories)


# A world


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=23, size=0.05)


@pytest.fixture(scope="module")
def trades(world: World) -> pd.DataFrame:
    return trades_of(world)


@pytest.fixture(scope="module")
def marks(world: World) -> pa.Table:
    return minute_marks(world, world.fills, [MINUTE])


REFUSED: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "no pool": (lambda f: lab.fills.pool_returns(f, 10083), r"account 10083 is no pool: it took liquidity"),
    "a name": (lambda f: lab.fills.pool_returns(f, "LRC-ETH"), r"pool_account='LRC-ETH' is not a valid account id"),
    "nobody": (lambda f: lab.fills.pool_returns(f, 7), r"account 7 has no fills in these trades"),
    "a share": (lambda f: lab.fills.pool_returns(f, 1, pool_fee_bps=0.002), r"pool_fee_bps=0.002 is not a fee"),
    "no period": (lambda f: lab.fills.pool_returns(f, 1, every="daily"), r"every='daily' is not a period"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_words(trades: pd.DataFrame, case: str) -> None:
    assert_refused(*REFUSED[case], trades)


# Pools


def of_pool(world: World, market: str) -> list[Fill]:
    return [fill for fill in world.fills if fill.market == market and fill.venue == "amm"]


def test_a_pool_earns_and_loses_what_integers_say() -> None:
    """At 2000 USDT a pool sells 1 ETH for 2010, then buys 1 for 1980; later ETH is worth 2100."""
    members = {
        "market": "AMM-ETH-USDT",
        "size": str(10**18),
        "accountId": "4",
        "type": "maker",
        "feeAmount": "0",
    }
    rows = [
        row(**members, id="1", side="SELL", price="2010.0", createdAt="100000", orderHash="0x1"),
        row(**members, id="2", side="BUY", price="1980.0", createdAt="200000", orderHash="0x2"),
        row(**members, id="3", side="BUY", price="1980.0", createdAt="90000000", orderHash="0x3"),
    ]
    pool = read([page(rows)], fill_type="amm")
    prices = pd.DataFrame({
        "created_at": pd.to_datetime([0, 400_000], unit="ms", utc=True),
        "market": "ETH-USDT",
        "price": lab.amounts.to_units([2000, 2100], 0),
    })  # fmt: skip
    found = lab.fills.pool_returns(pool, 4, prices)
    assert found["period"].dt.day.tolist() == [1, 2]
    assert found["fills"].tolist() == [2, 1]
    assert found["unpriced"].tolist() == [0, 1]  # no later price
    first = found.iloc[0]
    fees = Decimal(2010 + 2000) * 20 / 10_000
    assert first["fees"] == fees
    assert first["net"] == 10 + 20
    assert first["lvr"] == fees - 30
    assert first["markout"] == (2010 - 2100) + (2100 - 1980)
    assert first["notional"] == 3990
    assert first["net_bps"] == pytest.approx(30 * 10_000 / 3990, rel=1e-12)
    assert found.loc[1, ["fees", "lvr", "net", "markout", "net_bps"]].isna().all()


def test_a_pools_returns_are_those_of_the_true_prices(world: World, trades: pd.DataFrame) -> None:
    horizon = 5 * MINUTE
    for market, account in world.pools.items():
        fills = of_pool(world, market)
        if len(fills) < 100:
            continue
        base, quote = MARKETS[market].base.decimals, MARKETS[market].quote.decimals
        sums = dict.fromkeys(("notional", "fees", "net", "markout"), 0.0)
        for fill in fills:
            size, moved = fill.size / 10**base, fill.quote / 10**quote
            now, later = (float(true_price(world, market, fill.time_ms + lag)) for lag in (0, horizon))
            sign = 1 if fill.side == "BUY" else -1
            sums["notional"] += moved
            sums["fees"] += 0.002 * (moved if fill.side == "BUY" else size * now)
            sums["net"] += sign * (moved - size * now)
            sums["markout"] += sign * (moved - size * later)
        marks = minute_marks(world, fills, [horizon])
        pool = trades[trades["account_id"] == account]
        found = lab.fills.pool_returns(pool, account, marks, every="1y")
        assert (found["fills"].sum(), found["unpriced"].sum()) == (len(fills), 0)
        for name, true in sums.items():
            ours = float(lab.amounts.total(found[name]))
            assert abs(ours - true) / sums["notional"] * 10_000 < 0.75, (market, name)
        assert (found["fees"] - found["lvr"] == found["net"]).all()
        assert (found["lvr"] > 0).all()


def test_a_pools_returns_depend_on_no_order_of_rows_and_no_engine(world: World, trades: pd.DataFrame) -> None:
    account = world.pools["LRC-ETH"]
    pool = trades[trades["account_id"] == account]
    marks = minute_marks(world, of_pool(world, "LRC-ETH"), [5 * MINUTE])
    for ask in (
        lambda f: lab.fills.pool_returns(f, account, marks),
        lambda f: lab.fills.pool_returns(f, account),
    ):
        found = ask(pool)
        assert len(found) > 50
        assert_frame_equal(ask(pool.sample(frac=1, random_state=2)), found)
        for engine in ("pyarrow", "polars"):
            assert result_rows(ask(on(engine, pool))) == result_rows(found)
    assert "notes" in lab.fills.pool_returns(pool, account).attrs
    everything = lab.fills.pool_returns(trades, account, marks)
    assert_frame_equal(everything, lab.fills.pool_returns(pool, account, marks))
    assert lab.fills.pool_returns(pool.iloc[:0], account).empty
