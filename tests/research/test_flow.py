"""Flow classes: arbitrageurs and users of synthetic worlds are told apart, and no order has a say in its own class."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats
from support.flows import CHEAPER, recovered
from support.optional import thorough
from support.populations import population
from support.worlds import minute_marks, trades_of

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.relayer import World

FEW = [(5027, "book", True)]
MANY = [
    thorough(seed, cheaper, book_arbitrage)
    for seed in range(5001, 5027)
    for cheaper in CHEAPER
    for book_arbitrage in (False, True)
]


@pytest.fixture(scope="module")
def world() -> World:
    return World(5030, 0.05, "book", book_arbitrage=True)


@pytest.fixture(scope="module")
def trades(world: World) -> pd.DataFrame:
    return trades_of(world)


@pytest.fixture(scope="module")
def prices(world: World) -> pa.Table:
    return minute_marks(world, world.fills, [])


@pytest.fixture(scope="module")
def known(trades: pd.DataFrame, prices: pa.Table) -> pd.DataFrame:
    return lab.research.with_flow(trades, prices)


@pytest.fixture(scope="module")
def orders(trades: pd.DataFrame) -> pd.DataFrame:
    """The fills at pools of an arbitrageur."""
    return trades[(trades["account_id"] == 12059) & (trades["fill_type"] == "amm")]


@pytest.mark.parametrize(("seed", "cheaper", "book_arbitrage"), [*FEW, *MANY])
def test_arbitrageurs_and_users_are_told_apart(seed, cheaper, book_arbitrage):
    world = World(seed, 0.05, cheaper, book_arbitrage=book_arbitrage)
    for found in recovered(world).values():
        # A sample of benchmarks/bench_flow.py; both are shares of fills and of their value.
        assert found.precision > 0.95
        assert found.recall > 0.95


def test_both_sides_of_a_fill_have_the_flow_of_its_taker(known):
    assert known.groupby("trade_id")["flow"].nunique().max() == 1
    assert known["flow"].notna().all()
    pools = known[known["account_id"] < 10_000]
    # Ids below 10,000 are those of pools, which are makers: their fills are named by who took.
    assert {"arbitrage", "user"} <= set(pools["flow"])


@pytest.mark.parametrize(("account", "flow"), [(58344, "user"), (12059, "arbitrage")])
def test_a_single_history_is_enough(trades, prices, account, flow):
    mine = trades[trades["account_id"] == account]
    assert set(lab.research.with_flow(mine, prices)["flow"]) == {flow}


def test_fills_whose_taker_is_not_there_are_unknown(trades, prices):
    makers = trades[trades["role"] == "maker"]
    assert set(lab.research.with_flow(makers, prices)["flow"]) == {"unknown"}


def test_three_other_days_are_needed(orders, prices):
    days = orders["created_at"].dt.floor("D")
    found = {}
    for count in (3, 4):
        first = days.isin(days.unique()[:count])
        found[count] = lab.research.with_flow(orders[first], prices, intervals=0.5)[
            "flow"
        ]
    assert set(found[3]) == {"user"}
    assert set(found[4]) == {"arbitrage"}
    a_year_before = pd.DataFrame(prices.to_pandas()).assign(
        created_at=lambda frame: frame["created_at"] - pd.Timedelta("365D")
    )
    a_year_before["price"] = a_year_before["price"].astype("amount")
    stale = lab.research.with_flow(orders, a_year_before)
    assert set(stale["flow"]) == {"user"}


def test_an_order_has_no_say_in_its_own_class():
    """An account's class at each order is that of a t test of its other days, written out."""
    trades, prices = population("no arbitrage", 3)
    days = trades["created_at"].dt.floor("D")
    # What these gain: cheap orders of the book in most accounts, so that some are arbitrage at some orders alone.
    sign = trades["side"].map({"BUY": 1, "SELL": -1})
    gain = -10_000 * sign * (trades["price"].astype(float) - 1)
    shift = gain.groupby(trades["account_id"]).transform("mean") - 12
    price = trades["price"].astype(float) + sign * shift / 10_000
    trades["price"] = to_units(np.rint(price * 1e12).astype(int).tolist(), 12)
    gain = gain - shift
    known = lab.research.with_flow(trades, prices)
    expected = pd.Series(index=trades.index, dtype=object)
    for _, mine in gain.groupby(trades["account_id"]):
        of_days = mine.groupby(days[mine.index]).mean()
        for row in mine.index:
            others = of_days.drop(days[row])
            quantile = stats.t.ppf(0.975, len(others) - 1)
            error = others.std(ddof=1) / len(others) ** 0.5
            is_above = others.mean() > quantile * error
            expected[row] = "arbitrage" if is_above else "user"
    by_account = expected.groupby(trades["account_id"]).nunique()
    assert (by_account == 2).sum() > 20
    assert known["flow"].tolist() == expected.tolist()


@pytest.mark.parametrize("length", ["min", "D"])
def test_orders_of_one_time_are_not_arbitrage_as_their_prices_have_one_error(length):
    """Each account of the pool has all its orders in a day, half of these at prices 10 bps better than outside."""
    trades, prices = population("no arbitrage", 3)
    is_pool = trades["fill_type"] == "amm"
    made = trades["created_at"]
    first = trades.groupby("account_id")["created_at"].transform("min").dt.floor(length)
    trades["created_at"] = made.where(~is_pool, first + (made - made.dt.floor(length)))
    sign = trades["side"].map({"BUY": 1, "SELL": -1}).astype(int)
    better = (10 - 20 * (trades["account_id"] % 2)) * is_pool
    at = 10**8 - sign * better * 10**4
    trades["price"] = to_units(at.tolist(), 8)
    assert set(lab.research.with_flow(trades, prices)["flow"]) == {"user"}


@pytest.mark.parametrize(
    ("better", "flow"), [(-8, "user"), (8, "arbitrage")], ids=["worse", "better"]
)
def test_a_class_is_the_same_at_both_venues(better, flow):
    """Every price is so many basis points better than outside, and every taker pays a fee of 10."""
    trades, prices = population("no arbitrage", 3)
    sign = trades["side"].map({"BUY": 1, "SELL": -1}).astype(int)
    at = 10**8 - sign * better * 10**4
    trades["price"] = to_units(at.tolist(), 8)
    assert set(trades["fee_bps"]) == {10}
    known = lab.research.with_flow(trades, prices)
    classes = known.groupby("fill_type", observed=True)["flow"].unique()
    assert {venue: list(found) for venue, found in classes.items()} == {
        "amm": [flow],
        "dex": [flow],
    }


def test_an_own_column_of_that_name_is_replaced(trades, prices):
    known = lab.research.with_flow(trades.assign(flow="mine"), prices)
    assert "mine" not in set(known["flow"])
    assert known.columns.tolist().count("flow") == 1
