"""Comparisons of venues: their definition in plain Python, the truth of synthetic worlds, and odd frames."""

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from math import exp
from statistics import NormalDist, median
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal
from support.trade_histories import assert_refused
from support.worlds import (
    MINUTE,
    WEIGHTS,
    minute_marks,
    of_users,
    size_classes,
    trades_of,
    true_costs,
    true_differences,
    values_of,
)
from test_intervals import PRICES, drawn

import loopring_lab as lab
from loopring_lab.relayer import World
from loopring_lab.relayer.world import Fill

DAY = pd.Timedelta(1, "D")


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Compare estimates, which agree to 12 digits in any order of rows."""
    assert_frame_equal(found, expected, rtol=1e-12)


# The definition


class Part:
    """The fills of one order in a cell, at one venue."""

    def __init__(self, account: int, day: int) -> None:
        self.account = account
        self.day = day
        self.fills = 0
        self.value = 0.0
        self.paid = 0.0
        self.fees = 0.0

    def add(self, value: float, cost: float, fee: float) -> None:
        self.fills += 1
        self.value += value
        self.paid += value * cost
        self.fees += value * fee


Orders = dict[str, Part]
Cells = dict[Any, dict[str, Orders]]
"""Of each market, side and size class, of each venue, the orders."""

CLUSTER_OF: dict[str, Callable[[str, Part], Any]] = {
    "order": lambda order, part: order,
    "account": lambda order, part: part.account,
    "day": lambda order, part: part.day,
}
LEVEL = 0.95


def cells_of(
    takers: pd.DataFrame, prices: dict[int, Decimal], price_of_eth: pd.Series
) -> Cells:
    """Return the cells of takers' fills, with values in ETH."""
    classes = size_classes_of(takers)
    began = takers.groupby("order_hash")["created_at"].min().dt.floor("D")
    cells: Cells = defaultdict(lambda: {"amm": {}, "dex": {}})
    for fill in takers.itertuples():
        if fill.trade_id in prices:
            worse = (
                float(fill.price / prices[fill.trade_id] - 1)
                * 10_000
                * (1 if fill.side == "BUY" else -1)
            )
            value = float(fill.notional) * (
                1 / price_of_eth[fill.created_at.floor("D")]
                if fill.quote == "USDC"
                else 1
            )
            cell = cells[fill.market, fill.side, classes[fill.trade_id]]
            part = cell[fill.fill_type].setdefault(
                fill.order_hash, Part(fill.account_id, began[fill.order_hash].value)
            )
            part.add(value, worse + fill.fee_bps, fill.fee_bps)
    return cells


def matched(cells: Cells) -> Cells:
    """Return the cells that have both venues."""
    return {key: cell for key, cell in cells.items() if all(cell.values())}


def size_classes_of(takers: pd.DataFrame) -> dict[int, int]:
    classes = {}
    for _, some in takers.groupby("market", observed=True):
        sizes = sorted(some["size"])
        for number, size in zip(some["trade_id"], some["size"], strict=True):
            classes[number] = sizes.index(size) * 5 // len(sizes)
    return classes


def daily_price(trades: pd.DataFrame) -> pd.Series:
    """Return the mean price of ETH in USDC on each day: the last one known, before the first day that one."""
    fills = trades[trades["market"] == "ETH-USDC"]
    sums = (
        fills[["notional", "size"]]
        .map(float)
        .groupby(fills["created_at"].dt.floor("D"))
        .sum()
    )
    days = trades["created_at"].dt.floor("D").drop_duplicates().sort_values()
    return (sums["notional"] / sums["size"]).reindex(days).ffill().bfill()


def value_of(orders: Orders) -> float:
    return sum(part.value for part in orders.values())


def mean_of(orders: Orders, what: str) -> float:
    return sum(getattr(part, what) for part in orders.values()) / value_of(orders)


def over_cells(cells: Cells, venue: str, what: str) -> float:
    """Return the mean at a venue, each cell weighted by the value of all its fills."""
    values = [
        sum(value_of(orders) for orders in cell.values()) for cell in cells.values()
    ]
    means = [mean_of(cell[venue], what) for cell in cells.values()]
    return sum(value * mean for value, mean in zip(values, means, strict=True)) / sum(
        values
    )


def difference_of(
    cells: Cells, estimand: str = "difference_bps", what: str = "paid"
) -> float:
    total = 0.0
    weights = 0.0
    for cell in matched(cells).values():
        weight = WEIGHTS[estimand](value_of(cell["amm"]), value_of(cell["dex"]))
        total += weight * (mean_of(cell["amm"], what) - mean_of(cell["dex"], what))
        weights += weight
    return total / weights


def difference_by_order(cells: Cells) -> float:
    """Return the difference if each order of a cell weighs the same, and each cell by its number of orders."""
    total = 0.0
    count = 0
    for cell in cells.values():
        means = {
            v: sum(p.paid / p.value for p in orders.values()) / len(orders)
            for v, orders in cell.items()
        }
        orders = len(cell["amm"]) + len(cell["dex"])
        total += orders * (means["amm"] - means["dex"])
        count += orders
    return total / count


def clusters_of(cells: Cells, level: str) -> set[Any]:
    return {
        CLUSTER_OF[level](order, part)
        for cell in cells.values()
        for orders in cell.values()
        for order, part in orders.items()
    }


def without(cells: Cells, level: str, cluster: Any) -> Cells:
    """Return the cells as they would be without the orders of a cluster."""
    return {
        key: {
            venue: {
                order: part
                for order, part in orders.items()
                if CLUSTER_OF[level](order, part) != cluster
            }
            for venue, orders in cell.items()
        }
        for key, cell in cells.items()
    }


def differences_without_one(
    cells: Cells, level: str, estimand: str = "difference_bps"
) -> list[float]:
    return [
        difference_of(without(cells, level, cluster), estimand)
        for cluster in clusters_of(cells, level)
    ]


def squares_of_matching(cells: Cells, estimand: str) -> float:
    """Return the squared error of the difference from cells that might have had both venues."""
    both = matched(cells)
    difference = difference_of(both, estimand)
    total = sum(
        WEIGHTS[estimand](*(value_of(orders) for orders in cell.values()))
        for cell in both.values()
    )
    squares = 0.0
    for (market, _, size_class), cell in cells.items():
        if all(cell.values()):
            continue
        alike = [c for (m, _, k), c in cells.items() if (m, k) == (market, size_class)]
        below = [
            c for (m, _, k), c in cells.items() if (m, k) == (market, size_class - 1)
        ]
        chance = 1.0
        for venue in ("amm", "dex"):
            expected = (
                sum(len(c[venue]) for c in alike)
                or sum(len(c[venue]) for c in below) / 10
            )
            chance *= 1 - exp(-expected / len(alike))
        (there,) = [orders for orders in cell.values() if orders]
        costs = {
            v: mean_of(orders, "paid") if orders else over_cells(both, v, "paid")
            for v, orders in cell.items()
        }
        # A venue that has no order here might have one as large as those of the other.
        values = [
            value_of(orders) or value_of(there) / len(there) for orders in cell.values()
        ]
        weight = WEIGHTS[estimand](*values)
        moved = weight * (costs["amm"] - costs["dex"] - difference)
        squares += (chance * moved / (total + weight)) ** 2
    return squares


def reach_of(cells: Cells, level: str, estimand: str) -> float:
    """Return how far an interval reaches to each side."""
    both = matched(cells)
    difference = difference_of(both, estimand)
    found = differences_without_one(both, level, estimand)
    squares = sum((one - difference) ** 2 for one in found)
    squares *= (len(found) - 1) / len(found)
    error = (squares + squares_of_matching(cells, estimand)) ** 0.5
    return error * NormalDist().inv_cdf((1 + LEVEL) / 2)


def effective_orders(cells: Cells) -> float:
    """Return how many orders of equal weight say as much as those of the venue that has fewer."""
    found = []
    for venue in ("amm", "dex"):
        weights: dict[str, float] = defaultdict(float)
        for cell in cells.values():
            whole = sum(value_of(orders) for orders in cell.values())
            for order, part in cell[venue].items():
                weights[order] += whole * part.value / value_of(cell[venue])
        squares = sum(weight**2 for weight in weights.values())
        found.append(sum(weights.values()) ** 2 / squares)
    return min(found)


def own_references(trades: pd.DataFrame) -> dict[int, Decimal]:
    """Find the last trade in the day after each taker's order."""
    ends = trades.groupby("order_hash")["created_at"].max()
    found = {}
    of_markets = {
        name: some.sort_values(["created_at", "trade_id"])
        for name, some in trades.groupby("market", observed=True)
    }
    for fill in trades[trades["role"] == "taker"].itertuples():
        others = of_markets[fill.market]
        end = ends[fill.order_hash]
        others = others[
            (others["created_at"] > end) & (others["created_at"] <= end + DAY)
        ]
        if len(others):
            found[fill.trade_id] = others.iloc[-1]["price"]
    return found


@pytest.mark.parametrize("is_outside", [True, False])
def test_the_comparison_is_its_definition_in_plain_python(trades, marks, is_outside):
    some = (
        trades[trades["market"].isin(["LRC-ETH", "ETH-USDC"])]
        .sort_values("created_at")
        .tail(1200)
    )
    takers = some[some["role"] == "taker"].reset_index(drop=True)
    assert takers["quote"].mode().tolist() == ["ETH"]
    if is_outside:
        closes = marks.to_pandas().set_index(["market", "created_at"])["price"]
        ends = takers.groupby("order_hash")["created_at"].transform("max")
        minutes = (ends + pd.Timedelta(1, "min")).dt.floor("min")
        keys = zip(takers["market"], minutes, strict=True)
        prices = {
            number: closes[key]
            for number, key in zip(takers["trade_id"], keys, strict=True)
        }
        found = lab.fills.compare_venues(some, marks).iloc[0]
    else:
        prices = own_references(some)
        found = lab.fills.compare_venues(some, horizon="1d").iloc[0]
    every_cell = cells_of(takers, prices, daily_price(some))
    cells = matched(every_cell)
    parts = [
        (order, part)
        for cell in cells.values()
        for venue in cell.values()
        for order, part in venue.items()
    ]
    assert found["fills"] == sum(part.fills for _, part in parts)
    assert found["orders"] == len({order for order, _ in parts})
    assert found["matched_share"] == found["fills"] / len(takers)
    assert found["pool_bps"] == pytest.approx(
        over_cells(cells, "amm", "paid"), rel=1e-9
    )
    assert found["book_bps"] == pytest.approx(
        over_cells(cells, "dex", "paid"), rel=1e-9
    )
    assert found["difference_bps"] == found["pool_bps"] - found["book_bps"]
    assert found["fee_difference_bps"] == pytest.approx(
        difference_of(cells, what="fees"), rel=1e-9
    )
    assert found["fee_difference_bps"] + found["price_difference_bps"] == pytest.approx(
        found["difference_bps"]
    )
    assert found["by_order_bps"] == pytest.approx(difference_by_order(cells), rel=1e-9)
    assert found["effective_orders"] == pytest.approx(effective_orders(cells), rel=1e-9)
    for estimand, (low, high) in INTERVALS.items():
        assert found[estimand] == pytest.approx(
            difference_of(cells, estimand), rel=1e-9
        )
        assert (found[high] - found[low]) / 2 == pytest.approx(
            reach_of(every_cell, found["cluster"], estimand), rel=1e-9
        )
        assert (found[high] + found[low]) / 2 == pytest.approx(found[estimand])
    assert found["clusters"] == len(clusters_of(cells, found["cluster"]))
    without_one = differences_without_one(cells, "account")
    assert [found["without_one_low_bps"], found["without_one_high_bps"]] == (
        pytest.approx([min(without_one), max(without_one)], rel=1e-9)
    )


INTERVALS = {
    "difference_bps": ("low_bps", "high_bps"),
    "overlap_bps": ("overlap_low_bps", "overlap_high_bps"),
    "pool_weighted_bps": ("pool_weighted_low_bps", "pool_weighted_high_bps"),
    "book_weighted_bps": ("book_weighted_low_bps", "book_weighted_high_bps"),
}


@pytest.fixture(scope="module")
def compared(trades: pd.DataFrame, marks: pa.Table) -> pd.DataFrame:
    """Takers' fills in cells with both venues: cost, value, whether at the pool, and what they are clustered by."""
    takers = trades[trades["role"] == "taker"].reset_index(drop=True)
    closes = marks.to_pandas().set_index(["market", "created_at"])["price"]
    orders = takers.groupby("order_hash")["created_at"]
    minutes = (orders.transform("max") + pd.Timedelta(1, "min")).dt.floor("min")
    reference = closes.reindex(
        pd.MultiIndex.from_arrays([takers["market"].astype(str), minutes])
    )
    sign = takers["side"].map({"BUY": 1.0, "SELL": -1.0}).astype(float)
    price = takers["price"].astype(float) / reference.astype(float).to_numpy()
    values = values_of(trades).reindex(takers["trade_id"]).to_numpy()
    classes = takers["trade_id"].map(size_classes_of(takers)).astype(str)
    found = pd.DataFrame(
        {
            "cost": ((price - 1) * 10_000 * sign + takers["fee_bps"]).astype(float),
            "value": values.astype(float),
            "pool": (takers["fill_type"] == "amm").astype(float),
            "cell": takers["market"].astype(str) + takers["side"].astype(str) + classes,
            "order": takers["order_hash"].astype(str),
            "account": takers["account_id"].astype(int),
            "day": orders.transform("min").dt.strftime("%F"),
        }
    )
    return found[found.groupby("cell")["pool"].transform("nunique") == 2]


@pytest.mark.filterwarnings("ignore")  # of pandas, about what pyfixest does with it
@pytest.mark.parametrize("cluster", ["order", "account", "day"])
def test_by_overlap_the_difference_and_its_error_are_those_of_a_regression(
    trades, marks, compared, cluster
):
    pyfixest = pytest.importorskip("pyfixest")
    fit = pyfixest.feols(
        "cost ~ pool | cell",
        compared,
        weights="value",
        vcov={"CRV1": cluster},
        ssc=pyfixest.ssc(k_adj=False),
        # Effects are taken off in turns until they move by less than this.
        fixef_tol=1e-12,
    )
    found = lab.fills.compare_venues(trades, marks, cluster=cluster).iloc[0]
    assert found["fills"] == len(compared)
    assert found["overlap_bps"] == pytest.approx(fit.coef()["pool"], rel=1e-9)
    assert found["overlap_error_bps"] == pytest.approx(fit.se()["pool"], rel=1e-9)
    assert (found["cluster"], found["clusters"]) == (
        cluster,
        compared[cluster].nunique(),
    )


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
    assert abs(median(errors)) < 0.5


@pytest.mark.parametrize("cluster", [None, "account"])
def test_over_users_the_cheaper_venue_is_found(cluster):
    """Over all takers arbitrage decides: there the pool looks cheaper, and the sentence says that classes differ."""
    world = World(seed=2, size=0.05, cheaper="book")
    trades = trades_of(world)
    arbitrage = {fill.id for fill in world.fills if fill.taker in world.arbitrageurs}
    flow = trades["trade_id"].isin(arbitrage).map({True: "arbitrage", False: "user"})
    trades = trades.assign(flow=flow)
    marks = minute_marks(world, world.fills, [MINUTE])
    costs = of_users(world, true_costs(world))
    truth = true_differences(costs, size_classes(costs))[None]["difference_bps"]
    users = lab.fills.compare_venues(
        trades[trades["flow"] == "user"], marks, cluster=cluster
    ).iloc[0]
    assert users["low_bps"] < truth < users["high_bps"]
    assert (users["verdict"], users["whose"]) == ("book", "user")
    every = lab.fills.compare_venues(trades, marks, cluster=cluster)
    assert every["verdict"].tolist() != ["book"]
    assert every["whose"].tolist() == ["all takers"]
    assert every["verdict_by_flow"].tolist() == ["user: book"]
    assert "their classes differ in verdict" in every.attrs["notes"][0]
    sentence = lab.fills.describe(every)
    assert "Classes of takers differ in verdict (user: book)" in sentence
    unknown = lab.fills.compare_venues(trades.drop(columns="flow"), marks)
    assert unknown["whose"].tolist() == ["all takers, arbitrage included"]


# Frames


def test_only_takers_count_and_each_fill_once(trades, marks):
    takers = trades[trades["role"] == "taker"]
    found = lab.fills.compare_venues(takers, marks, by="side")
    twice = pd.concat([trades, trades.iloc[:500]], ignore_index=True)
    assert_same(lab.fills.compare_venues(twice, marks, by="side"), found)
    forgotten = trades.assign(role=None)
    assert_same(lab.fills.compare_venues(forgotten, marks, by="side"), found)
    makers = trades[trades["role"] == "maker"]
    assert lab.fills.compare_venues(makers, marks).empty


def test_what_cannot_be_matched_is_undecided(trades, marks):
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
    empty = lab.fills.compare_venues(trades.iloc[:0], marks, by="market")
    found = lab.fills.compare_venues(trades, marks, by="market")
    assert empty.empty
    assert empty.drop(columns="market").dtypes.equals(
        found.drop(columns="market").dtypes
    )


def test_fills_with_something_unknown_do_not_match(trades, marks):
    takers = trades[trades["role"] == "taker"].reset_index(drop=True)
    whole = lab.fills.compare_venues(takers, marks).iloc[0]
    for name in (
        "size",
        "price",
        "notional",
        "fee_bps",
        "market",
        "side",
        "created_at",
    ):
        odd = takers.copy()
        odd.loc[odd.index[::7], name] = None
        found = lab.fills.compare_venues(odd, marks).iloc[0]
        assert 0 < found["fills"] < whole["fills"]
        assert found["difference_bps"] == pytest.approx(whole["difference_bps"], abs=25)
    for name, is_left_out in (("fill_type", True), ("order_hash", False)):
        odd = takers.copy()
        odd.loc[odd.index[::7], name] = None
        found = lab.fills.compare_venues(odd, marks)
        assert found.iloc[0]["difference_bps"] < 0
        note = f"{len(odd.index[::7]):,} fills are left out: taker or type unknown."
        assert (found.attrs.get("notes") == [note]) is is_left_out


# Horizons, clusters and weights


def test_the_price_part_is_effective_cost_less_impact(trades, marks):
    later = lab.fills.compare_venues(trades, marks, by="side")
    before = lab.fills.compare_venues(trades, marks, by="side", horizon="0s")
    parts = later["realized_difference_bps"] + later["impact_difference_bps"]
    assert parts.tolist() == pytest.approx(later["effective_difference_bps"].tolist())
    assert_same(
        before[["price_difference_bps"]],
        later[["effective_difference_bps"]].set_axis(["price_difference_bps"], axis=1),
    )
    assert before["impact_difference_bps"].abs().max() < 1e-9
    assert not (later["impact_difference_bps"].abs() < 1e-9).any()


def test_clusters_are_the_widest_that_are_enough(trades, marks):
    chosen = lab.fills.compare_venues(trades, marks).iloc[0]
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


def test_where_weights_decide_the_sign_the_verdict_is_undecided():
    """Of purchases the pool has most, and is cheaper by 10 bps; of sales the book has most, and is by 40."""
    fills = drawn(600, 5, 1)
    order = fills["order_hash"].astype(int)
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


REFUSED: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "a percentage": (lambda f: lab.fills.compare_venues(f, intervals=95), r"intervals=95 is not a level between 0 and 1"),
    "no unit": (lambda f: lab.fills.compare_venues(f, horizon="60"), r"horizon='60' is not a length of time"),
    "no cluster": (lambda f: lab.fills.compare_venues(f, cluster="hour"), r"cluster='hour' is not known"),
    "by the venue": (lambda f: lab.fills.compare_venues(f, by=["side", "fill_type"]), r"'fill_type', whose values are compared"),
    "other markets": (
        lambda f: lab.fills.compare_venues(f, f[["created_at", "price"]].assign(market="LRCETH")),
        r"prices= has no price of a market in trades",
    ),
    "no comparison": (lambda f: lab.fills.describe(f), r"lab.fills.describe: the frame has no column 'fills'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_words(trades, case):
    assert_refused(*REFUSED[case], trades)
