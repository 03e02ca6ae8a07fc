"""Comparisons of venues: their definition in pandas, the truth of synthetic worlds, and odd frames."""

from collections.abc import Callable
from statistics import NormalDist, median
from typing import Any

import numpy as np
import pandas as pd
import pytest
from engine.test_intervals import PRICES, drawn
from pandas.testing import assert_frame_equal
from support.optional import thorough
from support.worlds import (
    MINUTE,
    WEIGHTS,
    minute_marks,
    of_users,
    size_classes,
    trades_of,
    true_costs,
    true_differences,
)

import loopring_lab as lab
from loopring_lab.relayer import World
from loopring_lab.relayer.world import Fill

DAY = pd.Timedelta(1, "D")


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Compare estimates, which agree to 12 digits in any order of rows."""
    assert_frame_equal(found, expected, rtol=1e-12)


# The definition


CELL = ["market", "side", "class"]
LEVEL = 0.95


def cells_of(takers, reference, values):
    """Return takers' fills that have a reference: what they are compared by, their value, what they paid beside it."""
    sign = takers["side"].map({"BUY": 1.0, "SELL": -1.0}).astype(float)
    worse = takers["price"].astype(float) / np.asarray(reference, float) - 1
    value = np.asarray(values, float)
    began = takers.groupby("order_hash")["created_at"].transform("min")
    found = pd.DataFrame(
        {
            "market": takers["market"].astype(str),
            "side": takers["side"].astype(str),
            "class": size_classes_of(takers),
            "venue": takers["fill_type"].astype(str),
            "order": takers["order_hash"].astype(str),
            "account": takers["account_id"].astype(int),
            "day": began.dt.strftime("%F"),
            "value": value,
            "paid": value * (worse * 10_000 * sign + takers["fee_bps"]),
            "fees": value * takers["fee_bps"],
        }
    )
    found = found[found["paid"].notna()]
    return found.assign(cell=found.groupby(CELL).ngroup())


def size_classes_of(takers):
    sizes = takers["size"].astype(float).groupby(takers["market"], observed=True)
    return (sizes.rank(method="min") - 1) * 5 // sizes.transform("size")


def matched(fills):
    """Return the fills of cells that have both venues."""
    return fills[fills.groupby("cell")["venue"].transform("nunique") == 2]


def sums_of(fills):
    """Return the sums of each cell, those of both venues beside each other."""
    sums = fills.groupby(["cell", "venue"])[["value", "paid", "fees"]].sum()
    return sums.unstack("venue")


def over_cells(fills, venue):
    """Return the mean at a venue, each cell weighted by the value of all its fills."""
    sums = sums_of(fills).dropna()
    means = sums["paid"] / sums["value"]
    return np.average(means[venue], weights=sums["value"].sum(axis=1))


def differences_of(fills, what="paid"):
    """Return the difference of the venues by each estimand."""
    sums = sums_of(fills).dropna()
    value = sums["value"]
    means = sums[what] / value
    gaps = means["amm"] - means["dex"]
    weights = {name: of(value["amm"], value["dex"]) for name, of in WEIGHTS.items()}
    return pd.Series({n: np.average(gaps, weights=one) for n, one in weights.items()})


def difference_by_order(fills):
    """Return the difference if each order of a cell weighs the same, and each cell by its number of orders."""
    sums = fills.groupby(["cell", "venue", "order"])[["value", "paid"]].sum()
    costs = (sums["paid"] / sums["value"]).groupby(["cell", "venue"])
    means = costs.mean().unstack("venue")
    orders = costs.size().unstack("venue").sum(axis=1)
    return np.average(means["amm"] - means["dex"], weights=orders)


def differences_without_one(fills, level):
    """Return the differences without each cluster, one after the other."""
    clusters = fills[level].unique()
    return pd.DataFrame(differences_of(fills[fills[level] != one]) for one in clusters)


def squares_of_matching(fills):
    """Return the squared errors of the differences from cells that might have had both venues."""
    sums = sums_of(fills)
    values = sums["value"]
    is_alone = values.isna().any(axis=1)
    orders = fills.groupby(["cell", "venue"])["order"].nunique().unstack(fill_value=0)
    # How likely it is that a venue has an order in a cell, by both sides; without any order, by the class below.
    cells = fills.groupby("cell")[["market", "class"]].first()
    alike = orders.groupby([cells["market"], cells["class"]])
    expected = alike.sum()
    below = expected.rename(lambda number: number + 1, level="class") / 10
    below = below.reindex(expected.index, fill_value=0)
    expected = expected.where(expected > 0, below).div(alike.size(), axis=0)
    chances = (1 - np.exp(-expected)).prod(axis=1)
    chance = chances.reindex(pd.MultiIndex.from_frame(cells)).to_numpy()
    costs = sums["paid"] / values
    # A venue that has no order here might have one as large as those of the other, at its own mean.
    order_value = values.sum(axis=1) / orders.sum(axis=1)
    supposed = values.apply(lambda column: column.fillna(order_value))
    costs = costs.apply(lambda column: column.fillna(over_cells(fills, column.name)))
    squares = {}
    for name, difference in differences_of(fills).items():
        weights = WEIGHTS[name](supposed["amm"], supposed["dex"])
        moved = weights * (costs["amm"] - costs["dex"] - difference)
        reached = chance * moved / (weights[~is_alone].sum() + weights)
        squares[name] = (reached[is_alone] ** 2).sum()
    return pd.Series(squares)


def reaches_of(fills, level):
    """Return how far the interval of each estimand reaches to each side."""
    both = matched(fills)
    found = differences_without_one(both, level)
    squares = ((found - differences_of(both)) ** 2).sum()
    squares *= (len(found) - 1) / len(found)
    errors = (squares + squares_of_matching(fills)) ** 0.5
    return errors * NormalDist().inv_cdf((1 + LEVEL) / 2)


def effective_orders(fills):
    """Return how many orders of equal weight say as much as those of the venue that has fewer."""
    at_venue = fills.groupby(["cell", "venue"])["value"].transform("sum")
    share = fills["value"] / at_venue
    weight = share * fills.groupby("cell")["value"].transform("sum")
    weights = weight.groupby([fills["venue"], fills["order"]]).sum()
    of_venues = weights.groupby("venue").sum() ** 2
    return (of_venues / (weights**2).groupby("venue").sum()).min()


def closes_after(takers, marks):
    """Return the close of the first whole minute after each taker's order."""
    closes = marks.to_pandas().set_index(["market", "created_at"])["price"]
    ends = takers.groupby("order_hash")["created_at"].transform("max")
    minutes = (ends + pd.Timedelta(1, "min")).dt.floor("min")
    keys = pd.MultiIndex.from_arrays([takers["market"].astype(str), minutes])
    return closes.reindex(keys)


def own_references(takers, trades):
    """Return the last trade in the day after each taker's order."""
    ends = takers.groupby("order_hash")["created_at"].transform("max")
    asked = (
        takers[["market"]]
        .assign(end=ends, until=(ends + DAY).dt.as_unit("ms"))
        .reset_index()
    )
    known = trades.sort_values(["created_at", "trade_id"])
    known = known[["market", "created_at", "price"]]
    found = pd.merge_asof(
        asked.sort_values("until"),
        known,
        left_on="until",
        right_on="created_at",
        by="market",
    )
    found["price"] = found["price"].where(found["created_at"] > found["end"])
    return found.set_index("index")["price"].sort_index()


def in_eth(takers, trades):
    """Return the value of fills at the mean price of their day, or of the last one that has a price."""
    fills = trades[trades["market"] == "ETH-USDC"]
    days = trades["created_at"].dt.floor("D")
    sums = fills[["notional", "size"]].astype(float).groupby(days[fills.index]).sum()
    prices = (sums["notional"] / sums["size"]).reindex(days.unique()).sort_index()
    price = prices.ffill().bfill().reindex(takers["created_at"].dt.floor("D"))
    rate = np.where(takers["quote"] == "USDC", 1 / price, 1.0)
    return takers["notional"].astype(float) * rate


@pytest.mark.parametrize(
    "is_outside", [True, pytest.param(False, marks=pytest.mark.thorough)]
)
def test_the_comparison_is_its_definition_in_pandas(trades, marks, is_outside):
    some = (
        trades[trades["market"].isin(["LRC-ETH", "ETH-USDC"])]
        .sort_values("created_at")
        .tail(1200)
    )
    takers = some[some["role"] == "taker"].reset_index(drop=True)
    assert takers["quote"].mode().tolist() == ["ETH"]
    if is_outside:
        reference = closes_after(takers, marks)
        found = lab.fills.compare_venues(some, marks).iloc[0]
    else:
        reference = own_references(takers, some)
        found = lab.fills.compare_venues(some, horizon="1d").iloc[0]
    every = cells_of(takers, reference, in_eth(takers, some))
    both = matched(every)
    fees = differences_of(both, "fees")["difference_bps"]
    assert found["fills"] == len(both)
    assert found["orders"] == both["order"].nunique()
    assert found["matched_share"] == found["fills"] / len(takers)
    assert found["pool_bps"] == pytest.approx(over_cells(both, "amm"), rel=1e-9)
    assert found["book_bps"] == pytest.approx(over_cells(both, "dex"), rel=1e-9)
    assert found["difference_bps"] == found["pool_bps"] - found["book_bps"]
    assert found["fee_difference_bps"] == pytest.approx(fees, rel=1e-9)
    parts = found["fee_difference_bps"] + found["price_difference_bps"]
    assert parts == pytest.approx(found["difference_bps"])
    assert found["by_order_bps"] == pytest.approx(difference_by_order(both), rel=1e-9)
    assert found["effective_orders"] == pytest.approx(effective_orders(both), rel=1e-9)
    reaches = reaches_of(every, found["cluster"])
    for estimand, difference in differences_of(both).items():
        low, high = INTERVALS[estimand]
        reach = pytest.approx(reaches[estimand], rel=1e-9)
        assert found[estimand] == pytest.approx(difference, rel=1e-9)
        assert (found[high] - found[low]) / 2 == reach
        assert (found[high] + found[low]) / 2 == pytest.approx(difference)
    assert found["clusters"] == both[found["cluster"]].nunique()
    without_one = differences_without_one(both, "account")["difference_bps"]
    assert [found["without_one_low_bps"], found["without_one_high_bps"]] == (
        pytest.approx([min(without_one), max(without_one)], rel=1e-9)
    )


INTERVALS = {
    "difference_bps": ("low_bps", "high_bps"),
    "overlap_bps": ("overlap_low_bps", "overlap_high_bps"),
    "pool_weighted_bps": ("pool_weighted_low_bps", "pool_weighted_high_bps"),
    "book_weighted_bps": ("book_weighted_low_bps", "book_weighted_high_bps"),
}


# The truth

GROUPINGS: dict[str, tuple[Any, Callable[[Fill], Any]]] = {
    "all": (None, lambda fill: None),
    "market": ("market", lambda fill: fill.market),
    "side": ("side", lambda fill: fill.side),
    "account": ("account_id", lambda fill: fill.taker),
}


@pytest.mark.parametrize(
    ("seed", "cheaper"),
    [
        (32, "book"),
        pytest.param(31, "pool", marks=pytest.mark.thorough),
        pytest.param(33, "neither", marks=pytest.mark.thorough),
    ],
)
def test_intervals_hold_the_true_difference_and_no_verdict_is_wrong(seed, cheaper):
    """A sample of benchmarks/bench_estimates.py."""
    world = World(seed=seed, size=0.05, cheaper=cheaper)
    trades = trades_of(world)
    costs = true_costs(world)
    classes = size_classes(costs)
    marks = minute_marks(world, world.fills, [MINUTE])
    errors = []
    for by, key in GROUPINGS.values():
        truths = true_differences(costs, classes, key)
        outside = lab.fills.compare_venues(trades, marks, by=by)
        own = lab.fills.compare_venues(trades, by=by)
        for found in (outside, own):
            groups = [None] if by is None else found[by]
            for group, line in zip(groups, found.to_dict("records"), strict=True):
                if line["verdict"] != "undecided":
                    truth = truths[group]["difference_bps"]
                    assert line["verdict"] == ("pool" if truth < 0 else "book")
                if found is own or not line["fills"]:
                    continue
                for estimand, (low, high) in INTERVALS.items():
                    truth = truths[group][estimand]
                    errors.append(line[estimand] - truth)
                    assert pd.isna(line[low]) or line[low] <= truth <= line[high]
        assert (own["reference"] == "own trades").all()
        assert (
            "intervals cover sampling only, and trades as reference pull the difference towards 0"
            in repr(lab.show(own))
        )
        assert (outside["reference"] == "outside prices").all()
        assert "notes" not in outside.attrs
    assert len(errors) > 48
    # Unbiased: as many estimates are too high as too low.
    assert abs(median(errors)) < 0.5


@pytest.mark.thorough
def test_over_users_the_cheaper_venue_is_found():
    """Over all takers arbitrage decides: there the pool looks cheaper, and the sentence says that classes differ."""
    world = World(seed=2, size=0.05, cheaper="book")
    trades = trades_of(world)
    arbitrage = {fill.id for fill in world.fills if fill.taker in world.arbitrageurs}
    flow = trades["trade_id"].isin(arbitrage).map({True: "arbitrage", False: "user"})
    trades = trades.assign(flow=flow)
    marks = minute_marks(world, world.fills, [MINUTE])
    costs = of_users(world, true_costs(world))
    truth = true_differences(costs, size_classes(costs))[None]["difference_bps"]
    of_users_only = trades[trades["flow"] == "user"]
    for cluster in (None, "account"):
        users = lab.fills.compare_venues(of_users_only, marks, cluster=cluster).iloc[0]
        assert users["low_bps"] < truth < users["high_bps"]
        assert (users["verdict"], users["whose"]) == ("book", "user")
    every = lab.fills.compare_venues(trades, marks)
    assert every["verdict"].tolist() != ["book"]
    assert every["whose"].tolist() == ["all takers"]
    assert every["verdict_by_flow"].tolist() == ["user: book"]
    assert "their classes differ in verdict" in every.attrs["notes"][0]
    sentence = lab.fills.describe(every)
    assert "Classes of takers differ in verdict (user: book)" in sentence
    unknown = lab.fills.compare_venues(trades.drop(columns="flow"), marks)
    assert unknown["whose"].tolist() == ["all takers, arbitrage included"]


# Frames


@pytest.fixture(scope="module")
def overall(trades: pd.DataFrame, marks: Any) -> pd.DataFrame:
    return lab.fills.compare_venues(trades, marks)


@pytest.fixture(scope="module")
def by_side(trades: pd.DataFrame, marks: Any) -> pd.DataFrame:
    return lab.fills.compare_venues(trades, marks, by="side")


def test_only_takers_count_and_each_fill_once(trades, marks, by_side):
    takers = trades[trades["role"] == "taker"]
    found = lab.fills.compare_venues(takers, marks, by="side")
    assert_same(by_side, found)
    twice = pd.concat([trades, trades.iloc[:500]], ignore_index=True)
    assert_same(lab.fills.compare_venues(twice, marks, by="side"), found)
    forgotten = trades.assign(role=None)
    assert_same(lab.fills.compare_venues(forgotten, marks, by="side"), found)
    makers = trades[trades["role"] == "maker"]
    assert lab.fills.compare_venues(makers, marks).empty


def with_whale(seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw fills at both venues, all but a trace of their value from account 1, and outside prices, which are all 1."""
    fills = drawn(1500, seed, 1)
    order = fills["order_hash"].map(lambda text: int(text, 16) - 1)
    dice = np.random.default_rng(seed)
    scale = np.where(order % 40 == 0, 10 ** dice.integers(5, 9, len(fills)), 1)
    sizes = [one * int(times) for one, times in zip(fills["size"], scale, strict=True)]
    size = pd.array(sizes, lab.amounts.AMOUNT)
    fills = fills.assign(
        fill_type=dice.choice(["amm", "dex"], 1500)[order],
        side=dice.choice(["BUY", "SELL"], 1500)[order],
        account_id=1 + order % 40,
        created_at=fills["created_at"] + pd.to_timedelta(order * 1999, unit="s"),
        size=size,
        notional=size,
    )
    prices = fills[["created_at", "market", "price"]]
    earlier = prices["created_at"] - pd.Timedelta("7ms")
    return fills, prices.assign(created_at=earlier)


def test_what_is_left_without_nearly_all_is_exact_in_any_order():
    """Without account 1 a ten-millionth of the values is left; taken from sums of doubles it had 8 digits."""
    fills, prices = with_whale(0)
    found = lab.fills.compare_venues(fills, prices, cluster="account")
    both = matched(cells_of(fills, np.ones(len(fills)), fills["notional"]))
    without_one = differences_without_one(both, "account")["difference_bps"]
    shown = found[["without_one_low_bps", "without_one_high_bps"]]
    expected = [min(without_one), max(without_one)]
    assert shown.iloc[0].tolist() == pytest.approx(expected, rel=1e-11)
    shuffled = fills.sample(frac=1, random_state=1)
    again = lab.fills.compare_venues(shuffled, prices, cluster="account")
    assert_frame_equal(again, found, rtol=1e-12, atol=1e-11)


def test_what_cannot_be_matched_is_undecided(trades, marks, by_side):
    pool = trades[trades["fill_type"] == "amm"]
    alone = lab.fills.compare_venues(pool, marks).iloc[0]
    assert (alone["fills"], alone["matched_share"], alone["verdict"]) == (
        0,
        0.0,
        "undecided",
    )
    assert pd.isna(
        alone[["pool_bps", "book_bps", "difference_bps", "low_bps", "by_order_bps"]]
    ).all()
    unpriced = lab.fills.compare_venues(trades, marks.slice(0, 0))
    assert unpriced["fills"].tolist() == [0]
    empty = lab.fills.compare_venues(trades.iloc[:0], marks, by="side")
    assert empty.empty
    types = by_side.drop(columns="side").dtypes
    assert empty.drop(columns="side").dtypes.equals(types)


@pytest.mark.parametrize(
    "name",
    [
        "price",
        *map(thorough, ["size", "notional", "fee_bps", "market", "side", "created_at"]),
    ],
)
def test_fills_with_something_unknown_do_not_match(name, trades, marks, overall):
    odd = trades[trades["role"] == "taker"].reset_index(drop=True)
    whole = overall.iloc[0]
    odd.loc[odd.index[::7], name] = None
    found = lab.fills.compare_venues(odd, marks).iloc[0]
    # A seventh of the fills has no such value and drops out; the difference moves by chance, but not far.
    assert 0 < found["fills"] < whole["fills"]
    assert found["difference_bps"] == pytest.approx(whole["difference_bps"], abs=25)


@pytest.mark.parametrize(
    ("name", "is_left_out"), [("fill_type", True), thorough("order_hash", False)]
)
def test_fills_of_an_unknown_type_are_left_out_and_counted(
    name, is_left_out, trades, marks
):
    odd = trades[trades["role"] == "taker"].reset_index(drop=True)
    odd.loc[odd.index[::7], name] = None
    found = lab.fills.compare_venues(odd, marks)
    assert found.iloc[0]["difference_bps"] < 0
    note = f"{len(odd.index[::7]):,} fills are left out: taker or type unknown."
    assert (found.attrs.get("notes") == [note]) is is_left_out


# Horizons, clusters and weights


def test_the_price_part_is_effective_cost_less_impact(trades, marks, by_side):
    later = by_side
    before = lab.fills.compare_venues(trades, marks, by="side", horizon="0s")
    parts = later["realized_difference_bps"] + later["impact_difference_bps"]
    assert parts.tolist() == pytest.approx(later["effective_difference_bps"].tolist())
    assert_same(
        before[["price_difference_bps"]],
        later[["effective_difference_bps"]].set_axis(["price_difference_bps"], axis=1),
    )
    # At a horizon of 0 the later price is the earlier one.
    assert before["impact_difference_bps"].abs().max() < 1e-9
    assert not (later["impact_difference_bps"].abs() < 1e-9).any()


def test_clusters_are_the_widest_that_are_enough(trades, marks, overall):
    chosen = overall.iloc[0]
    asked = {
        level: lab.fills.compare_venues(trades, marks, cluster=level).iloc[0]
        for level in ("order", "account", "day")
    }
    assert asked["order"]["clusters"] == chosen["orders"]
    # Fewer than 20 accounts took on the order book.
    assert asked["account"]["clusters"] <= 20 < asked["day"]["clusters"]
    assert_same(chosen.to_frame(), asked["day"].to_frame())
    assert chosen["cluster"] == "day"
    few = trades["account_id"].isin(trades["account_id"].unique()[:4])
    found = lab.fills.compare_venues(trades[few], marks, cluster="account").iloc[0]
    assert found["clusters"] < 5
    assert pd.isna(found["low_bps"])


def test_orders_of_unknown_accounts_are_clusters_of_their_own(trades, marks):
    unknown = trades.assign(account_id=pd.NA).astype({"account_id": "Int64"})
    found = lab.fills.compare_venues(unknown, marks, cluster="account").iloc[0]
    assert found["clusters"] == found["orders"] > 100


def test_the_note_on_classes_reads_verdicts_not_names(trades, marks):
    found = lab.fills.compare_venues(trades.assign(flow="a, b: c"), marks)
    assert found["verdict_by_flow"].item() == f"a, b: c: {found['verdict'].item()}"
    assert not any("classes" in note for note in found.attrs.get("notes", []))


def test_where_weights_decide_the_sign_the_verdict_is_undecided():
    """Of purchases the pool has most, and is cheaper by 10 bps; of sales the book has most, and is by 40."""
    fills = drawn(600, 5, 1)
    order = fills["order_hash"].map(lambda text: int(text, 16) - 1)
    is_pool = order % 2 == 0
    is_bought = order < 300
    cost = fills["fee_bps"] / 100 - 10.0 * (is_pool & is_bought)
    cost += 40.0 * (is_pool & ~is_bought)
    trades = fills.assign(
        side=is_bought.map({True: "BUY", False: "SELL"}),
        fill_type=is_pool.map({True: "amm", False: "dex"}),
        notional=fills["notional"].where(
            ~(is_pool & is_bought), fills["notional"] * 100
        ),
        fee_bps=cost,
        account_id=order % 50,
    )
    compared = lab.fills.compare_venues(trades, PRICES)
    found = compared.iloc[0]
    assert found["high_bps"] < 0 < found["book_weighted_low_bps"]
    assert found["verdict"] == "undecided"
    sentence = lab.fills.describe(compared)
    assert "which venue is cheaper depends on these weights" in sentence
    # Orders of few accounts are many all the same.
    few = trades.assign(account_id=order % 4)
    by_account = lab.fills.compare_venues(few, PRICES, cluster="account")
    assert "(too few orders or accounts for" in lab.fills.describe(by_account)
