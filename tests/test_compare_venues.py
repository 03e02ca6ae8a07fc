"""Comparisons of venues: their definition in plain Python, the truth of synthetic worlds, and odd frames."""

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from math import exp
from statistics import NormalDist, median, variance
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal
from support.trade_histories import assert_refused
from support.worlds import (
    MINUTE,
    minute_marks,
    size_classes,
    trades_of,
    true_costs,
    true_difference,
)

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

    def __init__(self) -> None:
        self.fills = 0
        self.value = 0.0
        self.paid = 0.0
        self.fees = 0.0

    def add(self, value: float, cost: float, fee: float) -> None:
        self.fills += 1
        self.value += value
        self.paid += value * cost
        self.fees += value * fee


Cells = dict[Any, dict[str, dict[str, Part]]]
"""Of each market, side and size class, of each venue, the orders."""


def cells_of(
    takers: pd.DataFrame, prices: dict[int, Decimal], price_of_eth: pd.Series
) -> Cells:
    """Return the cells of takers' fills, with values in ETH."""
    classes = size_classes_of(takers)
    cells: Cells = defaultdict(
        lambda: {"amm": defaultdict(Part), "dex": defaultdict(Part)}
    )
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
            cell[fill.fill_type][fill.order_hash].add(
                value, worse + fill.fee_bps, fill.fee_bps
            )
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


def mean_of(orders: dict[str, Part], what: str) -> float:
    return sum(getattr(part, what) for part in orders.values()) / sum(
        part.value for part in orders.values()
    )


def over_cells(cells: Cells, venue: str, what: str) -> float:
    """Return the mean at a venue, each cell weighted by the value of all its fills."""
    values = [
        sum(part.value for orders in cell.values() for part in orders.values())
        for cell in cells.values()
    ]
    means = [mean_of(cell[venue], what) for cell in cells.values()]
    return sum(value * mean for value, mean in zip(values, means, strict=True)) / sum(
        values
    )


def difference_of(cells: Cells, what: str = "paid") -> float:
    return over_cells(cells, "amm", what) - over_cells(cells, "dex", what)


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


def value_of(*venues: dict[str, Part]) -> float:
    return sum(part.value for orders in venues for part in orders.values())


def squares_within(cells: Cells) -> float:
    """Return the squared error of the difference from how much orders vary, in cells with both venues."""
    both = matched(cells)
    difference = difference_of(both)
    pulls: dict[str, float] = defaultdict(float)
    alone = 0.0
    for venue, sign in (("amm", 1), ("dex", -1)):
        costs = [
            [part.paid / part.value for part in cell[venue].values()]
            for cell in cells.values()
        ]
        several = [some for some in costs if len(some) > 1]
        variation = sum((len(some) - 1) * variance(some) for some in several)
        spread = variation / sum(len(some) - 1 for some in several)
        for cell in both.values():
            orders = cell[venue]
            value = value_of(*cell.values())
            mean = mean_of(orders, "paid")
            gap = mean_of(cell["amm"], "paid") - mean_of(cell["dex"], "paid")
            if len(orders) == 1:
                alone += value**2 * spread
                continue
            for name, part in orders.items():
                off = (part.paid - mean * part.value) / (value_of(orders) - part.value)
                pulls[name] += sign * value * off + part.value * (gap - difference)
    total = sum(value_of(*cell.values()) for cell in both.values())
    return (sum(pull**2 for pull in pulls.values()) + alone) / total**2


def squares_of_matching(cells: Cells) -> float:
    """Return the squared error of the difference from which cells have both venues, by chance."""
    both = matched(cells)
    total = sum(value_of(*cell.values()) for cell in both.values())
    squares = 0.0
    for (market, _, size_class), cell in cells.items():
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
        costs = {
            v: mean_of(orders, "paid") if orders else over_cells(both, v, "paid")
            for v, orders in cell.items()
        }
        value = value_of(*cell.values())
        off = value * (costs["amm"] - costs["dex"] - difference_of(both))
        squares += (
            (1 - chance) * off / (total - value)
            if all(cell.values())
            else chance * off / (total + value)
        ) ** 2
    return squares


def reach_of(cells: Cells, level: float = 0.95) -> float:
    """Return how far an interval reaches to each side."""
    error = (squares_within(cells) + squares_of_matching(cells)) ** 0.5
    return error * NormalDist().inv_cdf((1 + level) / 2)


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
def test_the_comparison_is_its_definition_in_plain_python(
    trades: pd.DataFrame, marks: pa.Table, is_outside: bool
) -> None:
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
        difference_of(cells, "fees"), rel=1e-9
    )
    assert found["fee_difference_bps"] + found["price_difference_bps"] == pytest.approx(
        found["difference_bps"]
    )
    assert found["by_order_bps"] == pytest.approx(difference_by_order(cells), rel=1e-9)
    assert (found["high_bps"] - found["low_bps"]) / 2 == pytest.approx(
        reach_of(every_cell), rel=1e-9
    )
    assert (found["high_bps"] + found["low_bps"]) / 2 == pytest.approx(
        found["difference_bps"]
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
def test_intervals_hold_the_true_difference_and_no_verdict_is_wrong(
    seed: int, cheaper: str
) -> None:
    """A sample of benchmarks/bench_estimates.py."""
    world = World(seed=seed, size=0.05, cheaper=cheaper)
    trades = trades_of(world)
    costs = true_costs(world)
    classes = size_classes(costs)
    marks = minute_marks(world, world.fills, [MINUTE])
    errors = []
    for by, key in GROUPINGS.values():
        truth = true_difference(costs, classes, key)
        outside = lab.fills.compare_venues(trades, marks, by=by)
        own = lab.fills.compare_venues(trades, by=by)
        for found in (outside, own):
            groups = [None] if by is None else found[by]
            for group, line in zip(groups, found.itertuples(), strict=True):
                if line.verdict != "undecided":
                    assert line.verdict == ("pool" if truth[group] < 0 else "book")
                if found is outside and line.fills:
                    errors.append(line.difference_bps - truth[group])
                    assert (
                        pd.isna(line.low_bps)
                        or line.low_bps <= truth[group] <= line.high_bps
                    )
        assert (own["reference"] == "own trades").all()
        assert (
            "intervals cover sampling only, and trades as reference pull the difference towards 0"
            in repr(lab.show(own))
        )
        assert (outside["reference"] == "outside prices").all()
        assert "notes" not in outside.attrs
    assert len(errors) > 12
    assert abs(median(errors)) < 0.5


# Frames


def test_only_takers_count_and_each_fill_once(
    trades: pd.DataFrame, marks: pa.Table
) -> None:
    takers = trades[trades["role"] == "taker"]
    found = lab.fills.compare_venues(takers, marks, by="side")
    twice = pd.concat([trades, trades.iloc[:500]], ignore_index=True)
    assert_same(lab.fills.compare_venues(twice, marks, by="side"), found)
    forgotten = trades.assign(role=None)
    assert_same(lab.fills.compare_venues(forgotten, marks, by="side"), found)
    makers = trades[trades["role"] == "maker"]
    assert lab.fills.compare_venues(makers, marks).empty


def test_what_cannot_be_matched_is_undecided(
    trades: pd.DataFrame, marks: pa.Table
) -> None:
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


def test_fills_with_something_unknown_do_not_match(
    trades: pd.DataFrame, marks: pa.Table
) -> None:
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


REFUSED: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "a percentage": (lambda f: lab.fills.compare_venues(f, intervals=95), r"intervals=95 is not a level between 0 and 1"),
    "no unit": (lambda f: lab.fills.compare_venues(f, horizon="60"), r"horizon='60' is not a length of time"),
    "no time": (lambda f: lab.fills.compare_venues(f, horizon="0s"), r"horizon='0s' leaves no time for a price"),
    "by the venue": (lambda f: lab.fills.compare_venues(f, by=["side", "fill_type"]), r"'fill_type', whose values are compared"),
    "other markets": (
        lambda f: lab.fills.compare_venues(f, f[["created_at", "price"]].assign(market="LRCETH")),
        r"prices= has no price of a market in trades",
    ),
    "no comparison": (lambda f: lab.fills.describe(f), r"lab.fills.describe: the frame has no column 'fills'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_words(
    trades: pd.DataFrame, case: str
) -> None:
    assert_refused(*REFUSED[case], trades)
