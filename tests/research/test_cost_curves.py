"""Cost curves: a second way to the same figures, the truth of synthetic worlds, the size at which curves cross, odd frames."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.comparison import closes_after, orders_of
from support.optional import thorough
from support.populations import population, routed
from support.worlds import true_prices, users_of, values_of

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.errors import LabError
from loopring_lab.relayer import World


@pytest.fixture(scope="module")
def users() -> tuple[pd.DataFrame, pa.Table]:
    return users_of(World(seed=32, size=0.1))


@pytest.fixture(scope="module")
def trades(users: tuple[pd.DataFrame, pa.Table]) -> pd.DataFrame:
    """Both sides of every fill, but of users as takers only."""
    return users[0]


@pytest.fixture(scope="module")
def marks(users: tuple[pd.DataFrame, pa.Table]) -> pa.Table:
    return users[1]


@pytest.fixture(scope="module")
def by_day(trades: pd.DataFrame, marks: pa.Table) -> pd.DataFrame:
    return lab.research.cost_curves(trades, marks, cluster="day")


# A second way to the same figures


@pytest.fixture(scope="module")
def orders(trades: pd.DataFrame, marks: pa.Table) -> pd.DataFrame:
    """Takers' orders: cost, size in steps of a quarter of the logarithm, and what they are clustered by."""
    takers = trades[trades["role"] == "taker"].reset_index(drop=True)
    values = values_of(trades).reindex(takers["trade_id"])
    found = orders_of(takers, closes_after(takers, marks.to_pandas()), values)
    return found.assign(
        steps=np.round(4 * np.log(found["value"])),
        hour=found["began"].dt.strftime("%H"),
    )


def cardinal(steps: Any, knots: np.ndarray) -> np.ndarray:
    """Return natural cubic splines that are 1 at one knot and 0 at the others, straight beyond the last ones."""
    from scipy.interpolate import CubicSpline

    spline = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    inside = np.clip(steps, knots[0], knots[-1])
    beyond = np.asarray(steps - inside)[:, None]
    return spline(inside) + beyond * spline(inside, 1)


@pytest.mark.filterwarnings("ignore")  # of pandas, about what pyfixest does with it
@pytest.mark.parametrize("cluster", ["week", *map(thorough, ("account", "day"))])
def test_a_regression_of_single_orders_gives_the_same_difference_and_error(
    trades, marks, orders, cluster
):
    from scipy.stats import t

    pyfixest = pytest.importorskip("pyfixest")
    ordered = np.sort(orders["steps"])
    places = np.ceil(np.array([0.05, 0.35, 0.65, 0.95]) * len(ordered)).astype(int) - 1
    knots = ordered[places]
    splines = cardinal(orders["steps"].to_numpy(), knots)
    at_pool = splines * orders["pool"].to_numpy()[:, None]
    names = [f"pool{number}" for number in range(4)]
    # All four add up to the constant.
    columns = dict(zip(names, at_pool.T, strict=True))
    columns |= {f"both{number}": splines[:, number] for number in range(3)}
    effects = "+ C(market) + C(side) + C(hour) + C(week)"
    fit = pyfixest.feols(
        f"cost ~ {' + '.join(columns)} {effects}",
        orders.assign(**columns),
        vcov={"CRV3": cluster},
        ssc=pyfixest.ssc(k_adj=False, G_adj=False),
    )
    found = lab.research.cost_curves(trades, marks, cluster=cluster)
    found = found[found["venue"] == "difference"]
    rows = cardinal(4 * np.log(found["size"].to_numpy()), knots)
    own = [fit._coefnames.index(name) for name in names]
    covariance = fit._vcov[np.ix_(own, own)]
    errors = np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows))
    count = orders[cluster].nunique()
    reach = t.ppf(0.975, count - 1) * errors * ((count - 1) / count) ** 0.5
    expected = rows @ fit.coef()[names].to_numpy()
    assert found["orders"].unique() == [len(orders)]
    at_venues = orders.groupby("venue")[cluster].nunique()
    assert found["clusters"].unique() == [at_venues.min()]
    assert found["cost_bps"].to_numpy() == pytest.approx(expected, rel=1e-9)
    assert found["low_bps"].to_numpy() == pytest.approx(expected - reach, rel=1e-5)
    assert found["high_bps"].to_numpy() == pytest.approx(expected + reach, rel=1e-5)


def test_curves_are_the_venues_whose_difference_is_given(by_day):
    table = by_day.pivot(index="size", columns="venue", values="cost_bps")
    both = table.dropna()
    assert len(both) > 20
    assert (both["pool"] - both["book"]).to_numpy() == pytest.approx(
        both["difference"].to_numpy()
    )
    # Levels are those of the orders, not of a market or hour that the effects are measured from.
    assert both.to_numpy().min() > -30
    assert both[["pool", "book"]].to_numpy().min() > 20


@pytest.mark.thorough
def test_by_default_the_widest_band_counts_at_each_size(trades, marks, by_day):
    key = ["venue", "size"]
    default = lab.research.cost_curves(trades, marks).set_index(key)
    widest = []
    for level in ("account", "day", "week"):
        one = lab.research.cost_curves(trades, marks, cluster=level).set_index(key)
        widest.append((one["high_bps"] - one["low_bps"]).rename(level))
    expected = pd.concat(widest, axis=1)
    pd.testing.assert_series_equal(
        default["high_bps"] - default["low_bps"],
        expected.max(axis=1),
        check_names=False,
    )
    assert (default["cluster"] == expected.idxmax(axis=1)).all()


# The truth


@pytest.mark.thorough
@pytest.mark.parametrize("cheaper", ["pool", "book"])
def test_bands_hold_the_curves_of_true_costs(cheaper):
    """A sample of benchmarks/bench_curves.py."""
    world = World(seed=7101, size=0.1, cheaper=cheaper)
    users, marks = users_of(world)
    # The true price is known at each fill only, so no later one may count.
    truth = lab.research.cost_curves(users, true_prices(world), horizon="1ms")
    found = lab.research.cost_curves(users, marks)
    both = found.merge(truth, on=["venue", "size"], suffixes=("", "_true"))
    assert len(both) == len(found) > 100
    held = both["cost_bps_true"].between(both["low_bps"], both["high_bps"])
    assert held.mean() > 0.9
    crossing = lab.research.crossing(found).iloc[0]
    if cheaper == "pool":
        # Large orders move the pool's price, so the book is cheaper for them in every world.
        assert crossing["smaller"] == "pool"
    assert crossing["larger"] == "book"


# Where curves cross


def difference_of(*rows: tuple[float, float, float, float]) -> pd.DataFrame:
    """Return curves whose difference is given, at sizes with costs and the ends of bands."""
    table = pd.DataFrame(rows, columns=["size", "cost_bps", "low_bps", "high_bps"])
    return table.assign(
        venue="difference",
        quote="ETH",
        orders=100,
        cluster="order",
        clusters=100,
        reference="outside prices",
    )


def test_the_interval_is_where_the_band_holds_0():
    rows = [(1, -6, -8, -4), (10, -2, -4, 0.5), (100, 2, -1, 5), (1000, 6, 3, 9)]
    found = lab.research.crossing(difference_of(*rows)).iloc[0]
    assert found["size"] == pytest.approx(10**1.5)
    assert found["low_size"] == pytest.approx(10 ** (4 / 4.5))
    assert found["high_size"] == pytest.approx(10 ** (2 + 1 / 4))
    assert (found["smaller"], found["larger"]) == ("pool", "book")
    assert pd.isna(found["reason"])


@pytest.mark.parametrize(
    ("rows", "smaller", "larger", "reason"),
    [
        ([], None, None, "no sizes at which both venues have a curve"),
        (
            [(1, 2, 1, 3), (10, 4, 3, 5)],
            "book",
            "book",
            "the curves do not cross at these sizes",
        ),
        (
            [(1, 2, 1, 3), (10, -4, -5, -3), (100, 4, 3, 5)],
            "book",
            "book",
            "the curves cross 2 times at these sizes",
        ),
    ],
)
def test_without_one_crossing_the_reason_is_told(rows, smaller, larger, reason):
    found = lab.research.crossing(difference_of(*rows)).iloc[0]
    assert pd.isna(found["size"])
    assert pd.isna(found["low_size"])
    told = [
        None if pd.isna(found[name]) else found[name] for name in ("smaller", "larger")
    ]
    assert told == [smaller, larger]
    assert found["reason"] == reason


def test_an_end_that_is_not_sure_is_null_with_the_reason():
    rows = [(1, 6, 4, 8), (10, 2, 1, 3), (100, -1, -4, 2)]
    found = lab.research.crossing(difference_of(*rows)).iloc[0]
    assert 10 < found["low_size"] < found["size"]
    assert pd.isna(found["high_size"])
    assert found["reason"] == "no sure difference for larger orders"
    # Without bands neither end is.
    unknown = difference_of(*rows).assign(low_bps=np.nan, high_bps=np.nan)
    reason = lab.research.crossing(unknown)["reason"].iloc[0]
    assert reason == "no sure difference for smaller and larger orders"


# Odd frames


@pytest.mark.thorough
def test_one_venue_has_a_curve_and_no_difference(trades, marks):
    at_pool = trades[trades["fill_type"] == "amm"]
    curves = lab.research.cost_curves(at_pool, marks)
    assert set(curves["venue"]) == {"pool"}
    assert curves["cost_bps"].notna().all()
    reason = lab.research.crossing(curves)["reason"].iloc[0]
    assert reason == "no sizes at which both venues have a curve"


def test_a_level_that_does_not_follow_is_null(trades, marks):
    """Where each market has one venue, the venues cannot be told from the markets."""
    here = trades[
        ((trades["market"] == "LRC-ETH") & (trades["fill_type"] == "amm"))
        | ((trades["market"] == "ETH-USDC") & (trades["fill_type"] == "dex"))
    ]
    curves = lab.research.cost_curves(here, marks)
    assert set(curves["venue"]) == {"pool", "book", "difference"}
    assert curves["cost_bps"].isna().all()


@pytest.mark.parametrize("seed", [1, 2])
def test_venues_that_share_no_week_have_no_difference(seed):
    trades, prices = population("other months", seed)
    curves = lab.research.cost_curves(trades, prices)
    assert set(curves["venue"]) == {"pool", "book", "difference"}
    assert curves[["cost_bps", "low_bps", "high_bps"]].isna().all(axis=None)
    reason = lab.research.crossing(curves)["reason"].iloc[0]
    assert reason.startswith("the venues share no weeks")
    with pytest.raises(LabError, match="cost_curves: the venues share no weeks"):
        lab.research.figures.cost_curves(trades, prices=prices)


def test_a_cost_that_changes_by_week_at_both_venues_is_no_difference():
    """Prices are 20 bps worse from week to week, and less and less goes to the pool, which costs 5 bps more."""
    trades, prices = population("ties", 1)
    day = trades["created_at"].dt.floor("D")
    week = ((day - day.min()) // pd.Timedelta("7D")).to_numpy()
    is_pool = np.arange(len(trades)) % 10 >= week
    sign = trades["side"].map({"BUY": 1, "SELL": -1}).astype(int).to_numpy()
    worse = 20 * week + 5 * is_pool
    price = 10**8 + sign * worse * 10**4
    changed = trades.assign(
        fill_type=np.where(is_pool, "amm", "dex"), price=to_units(price.tolist(), 8)
    )
    curves = lab.research.cost_curves(changed, prices)
    difference = curves[curves["venue"] == "difference"]
    assert difference["cost_bps"].to_numpy() == pytest.approx(5, abs=1e-6)
    assert difference["low_bps"].to_numpy() == pytest.approx(5, abs=1e-6)


def test_a_difference_that_rests_on_one_cluster_has_no_band():
    """But for one account, each market has one venue."""
    trades, prices = population("shifting mix", 1)
    at_pool = trades["fill_type"] == "amm"
    in_first = trades["market"] == "LRC-USDC"
    mine = trades["account_id"] == trades["account_id"].iloc[0]
    alone = trades[mine | (at_pool == in_first)]
    curves = lab.research.cost_curves(alone, prices, cluster="account")
    difference = curves[curves["venue"] == "difference"]
    assert difference["cost_bps"].notna().all()
    assert difference["low_bps"].isna().all()


def test_few_orders_have_no_curve(trades, marks):
    curves = lab.research.cost_curves(trades.head(20), marks)
    assert curves.empty
    assert curves["size"].dtype == "float64"
    reason = lab.research.crossing(curves)["reason"].iloc[0]
    assert reason == "no sizes at which both venues have a curve"


def test_orders_that_are_all_alike_have_a_curve(trades):
    taker = trades[trades["role"] == "taker"].head(1)
    number = pd.Series(range(25))
    alike = pd.concat([taker] * len(number), ignore_index=True).assign(
        trade_id=number,
        order_hash=[f"0x{one + 1:064x}" for one in number],
        created_at=taker["created_at"].iloc[0].floor("h")
        + pd.to_timedelta(number, unit="s"),
    )
    curves = lab.research.cost_curves(alike)
    assert len(curves["venue"].unique()) == 1
    assert curves["cost_bps"].notna().all()


def test_few_clusters_have_no_band(trades, marks):
    busiest = trades.loc[trades["role"] == "taker", "account_id"].mode()[0]
    mine = trades[trades["account_id"] == busiest]
    curves = lab.research.cost_curves(mine, marks, cluster="account")
    assert curves["cost_bps"].notna().any()
    assert curves["low_bps"].isna().all()


def test_unknown_accounts_have_no_band():
    trades, prices = population("one account", 1)
    assert lab.research.cost_curves(trades, prices)["low_bps"].notna().any()
    unknown = trades.assign(account_id=pd.array([None] * len(trades), "Int64"))
    found = lab.research.cost_curves(unknown, prices)
    assert found["low_bps"].isna().all()
    assert found["cost_bps"].notna().any()


def test_an_order_at_both_venues_has_the_size_of_the_whole():
    trades, prices = population("split orders", 1)
    found = lab.research.cost_curves(routed(trades), prices)
    difference = found[found["venue"] == "difference"].iloc[::10]
    is_held = (difference["low_bps"] <= 0) & (difference["high_bps"] >= 0)
    assert is_held.all()


def test_fills_of_unknown_takers_are_counted_in_a_note(trades, marks):
    unknown = trades.assign(
        role=trades["role"].where(trades["fill_type"] == "amm"), fee=None
    )
    curves = lab.research.cost_curves(unknown, marks)
    (note,) = curves.attrs["notes"]
    assert note.endswith("fills are left out: taker or type unknown.")
