"""Comparisons of venues: a regression elsewhere, populations made by hand, synthetic worlds, and odd frames."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from engine.test_intervals import PRICES, drawn
from pandas.testing import assert_frame_equal
from support.comparison import closes_after, comparison_of, matched, orders_of
from support.engines import assert_same as assert_rows_same
from support.engines import on
from support.optional import thorough
from support.populations import KINDS, START, WEEK, Orders, compared, population, routed
from support.populations import drawn as drawn_orders
from support.worlds import MINUTE, minute_marks, trades_of, users_of, values_of

import loopring_lab as lab
from loopring_lab.relayer import World


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Compare estimates, which agree to 12 digits in any order of rows."""
    assert_frame_equal(found, expected, rtol=1e-12)


# A regression elsewhere


@pytest.fixture(scope="module")
def users() -> tuple[pd.DataFrame, Any]:
    return users_of(World(seed=32, size=0.1))


@pytest.fixture(scope="module")
def orders(users: tuple[pd.DataFrame, Any]) -> pd.DataFrame:
    trades, marks = users
    takers = trades[trades["role"] == "taker"].reset_index(drop=True)
    values = values_of(trades).reindex(takers["trade_id"])
    return orders_of(takers, closes_after(takers, marks.to_pandas()), values)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of pandas, about what pyfixest does with it
@pytest.mark.parametrize("level", ["account", "day", "week"])
def test_difference_and_error_are_those_of_a_regression(users, orders, level):
    from scipy.stats import t

    pyfixest = pytest.importorskip("pyfixest")
    both = matched(orders, "market", "side", "size_class", "week")
    fit = pyfixest.feols(
        "cost ~ pool | cell",
        both,
        weights="value",
        vcov={"CRV3": level},
        ssc=pyfixest.ssc(k_adj=False, G_adj=False),
        # Effects are taken off in turns until they move by less than this.
        fixef_tol=1e-12,
    )
    clusters = both[level].nunique()
    error = fit.se()["pool"] * ((clusters - 1) / clusters) ** 0.5
    found = lab.fills.compare_venues(*users, cluster=level).iloc[0]
    assert found["orders"] == len(both)
    assert found["accounts"] == both["account"].nunique()
    assert found["difference_bps"] == pytest.approx(fit.coef()["pool"], rel=1e-9)
    at_venues = both.groupby("venue")[level].nunique()
    assert (found["cluster"], found["clusters"]) == (level, at_venues.min())
    # Quantiles of Student's t are those of an expansion.
    reach = pytest.approx(error * t.ppf(0.975, clusters - 1), rel=2e-6)
    assert found["high_bps"] - found["difference_bps"] == reach
    assert found["difference_bps"] - found["low_bps"] == reach


@pytest.mark.parametrize(
    "engine", ["polars", *map(thorough, ("duckdb", "archive", "spark"))]
)
def test_intervals_have_the_digits_of_pandas_on_every_kind_of_frame(users, engine):
    """Several markets, whose sums Spark puts together, and an interval in each row."""
    trades, marks = users
    expected = lab.fills.compare_venues(trades, marks, by="fee_token")
    assert expected["low_bps"].notna().sum() > 1
    found = lab.fills.compare_venues(on(engine, trades), marks, by="fee_token")
    assert_rows_same(found, expected)


def test_shares_and_other_weights_are_sums_over_cells(users, orders):
    found = lab.fills.compare_venues(*users).iloc[0]
    both = matched(orders, "market", "side", "size_class", "week")
    sums = both.groupby(["cell", "venue"])[["value", "paid"]].sum().unstack("venue")
    means = sums["paid"] / sums["value"]
    gaps = means["amm"] - means["dex"]
    shares = (
        both.groupby("venue")["value"].sum() / orders.groupby("venue")["value"].sum()
    )
    for venue, name in (("amm", "pool"), ("dex", "book")):
        weighted = np.average(gaps, weights=sums["value"][venue])
        assert found[f"{name}_weighted_bps"] == pytest.approx(weighted, rel=1e-9)
        assert found[f"{name}_matched_share"] == pytest.approx(shares[venue], rel=1e-9)
    assert found["pool_bps"] - found["book_bps"] == pytest.approx(
        found["difference_bps"]
    )


def test_by_default_the_widest_level_counts(users, orders):
    """The interval is that of orders from which each cluster is dropped, and all begins anew."""
    found = lab.fills.compare_venues(*users).iloc[0]
    expected = comparison_of(orders, ["market", "side", "size_class", "week"])
    assert (found["cluster"], found["clusters"]) == expected[-2:]
    assert found["difference_bps"] == pytest.approx(expected.difference, rel=1e-9)
    for end in ("low", "high"):
        assert found[f"{end}_bps"] == pytest.approx(getattr(expected, end), rel=1e-5)


@pytest.mark.parametrize(
    ("match", "cell"),
    [
        thorough("market", ["market"]),
        thorough(["market", "side", "month"], ["market", "side", "month"]),
        (["market", "account", "day"], ["market", "account", "day"]),
        (["market", "hour"], ["market", "hour"]),
    ],
)
def test_orders_are_compared_with_those_that_share_what_match_names(
    users, orders, match, cell
):
    known = orders.assign(hour=orders["began"].dt.floor("h"))
    found = lab.fills.compare_venues(*users, match=match).iloc[0]
    assert found["orders"] == len(matched(known, *cell))


def test_a_column_of_the_trades_can_be_matched(users):
    trades, marks = users
    own = trades.assign(month=trades["created_at"].dt.strftime("%Y-%m"))
    own = own.rename(columns={"month": "mine"})
    found = lab.fills.compare_venues(own, marks, match=["market", "mine"]).iloc[0]
    expected = lab.fills.compare_venues(trades, marks, match=["market", "month"]).iloc[
        0
    ]
    # An order that is filled in two months has two parts by the column, and one by the month that it began in.
    assert found["difference_bps"] == pytest.approx(expected["difference_bps"], abs=0.1)


# Populations made by hand

# Draws of a fixed seed, so that a count of wrong verdicts is the same every time.
DRAWS = 20
MOST_WRONG = 4
FAST = (
    "10 accounts, one venue each",
    "split orders",
    "other months",
    "same cost",
    "largest at the pool",
)


@pytest.mark.parametrize("kind", FAST)
def test_of_equal_venues_none_is_cheaper(kind):
    assert compared(kind, 0)["verdict"].tolist() == ["undecided"]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_of_equal_venues_seldom_one_is_called_cheaper(kind):
    """Of 20 draws, at most 4 are wrong: with 8 % wrong verdicts, more are in one of 50 such counts."""
    found = compared(kind, *range(DRAWS))
    assert len(found) == DRAWS
    assert (found["verdict"] != "undecided").sum() <= MOST_WRONG


@pytest.mark.parametrize(
    "kind", ["split orders", thorough("no arbitrage"), thorough("ties")]
)
def test_a_dearer_pool_is_found(kind):
    assert compared(kind, 0, dearer=10)["verdict"].tolist() == ["book"]


def test_a_few_accounts_cannot_speak_for_others():
    found = compared("10 accounts, one venue each", 1).iloc[0]
    assert (found["cluster"], found["clusters"], found["accounts"]) == (
        "account",
        5,
        10,
    )
    assert pd.isna(found[["low_bps", "high_bps"]]).all()
    answer = lab.fills.compare_venues(*population("10 accounts, one venue each", 1))
    assert "5 accounts at one of the venues cannot speak for users in general" in (
        lab.fills.describe(answer)
    )
    asked = compared("10 accounts, one venue each", 1, cluster="day").iloc[0]
    assert asked["cluster"] == "day"
    assert asked["low_bps"] < asked["difference_bps"] < asked["high_bps"]


def test_one_account_speaks_for_itself():
    answer = lab.fills.compare_venues(*population("one account", 1))
    found = answer.iloc[0]
    assert found["cluster"] in ("day", "week")
    assert found["low_bps"] < 0 < found["high_bps"]
    assert "The interval is about this account" in lab.fills.describe(answer)


def test_an_interval_of_few_weeks_is_about_these_weeks(monkeypatch):
    """Each venue has good and bad weeks: of four weeks' orders, an interval holds their mean."""
    of_weeks = np.array([12.0, -3.0, 6.0, 9.0])

    def four_weeks(rng: np.random.Generator) -> Orders:
        orders = drawn_orders(rng, 1200, 28)
        dearer = of_weeks[(orders.ms - START) // WEEK] * orders.is_pool
        return orders._replace(cost=orders.cost + dearer)

    monkeypatch.setitem(KINDS, "four weeks", four_weeks)
    answer = compared("four weeks", *range(40))
    holds = answer["low_bps"].lt(6) & answer["high_bps"].gt(6)
    assert holds.sum() >= 36
    assert set(answer["cluster"]) <= {"account", "day"}


def test_where_nothing_is_shared_nothing_is_compared():
    trades, prices = population("other months", 1)
    answer = lab.fills.compare_venues(trades, prices)
    found = answer.iloc[0]
    assert (found["fills"], found["pool_matched_share"], found["verdict"]) == (
        0,
        0.0,
        "undecided",
    )
    assert pd.isna(found[["difference_bps", "low_bps", "pool_bps"]]).all()
    assert str(lab.fills.describe(answer)) == (
        "Undecided: no orders of both venues share market, side, size and week. Match more coarsely, such as by month."
    )
    # The pool in January, the book in March: where time is not shared, costs that rose look like those of a venue.
    anyhow = lab.fills.compare_venues(trades, prices, match=["market", "side", "size"])
    assert anyhow["verdict"].item() == "pool"


def test_without_a_cluster_that_all_cells_need_there_is_no_interval():
    """One account alone uses the pool, so without it nothing is left to compare."""
    trades, prices = population("30 accounts, both venues", 1)
    first = trades["account_id"].min()
    alone = trades.assign(
        account_id=trades["account_id"].where(trades["fill_type"] == "dex", first)
    )
    found = lab.fills.compare_venues(alone, prices).iloc[0]
    assert pd.isna(found["low_bps"])
    assert found["difference_bps"] == pytest.approx(
        lab.fills.compare_venues(trades, prices)["difference_bps"].item(), rel=1e-12
    )


def test_an_undecided_answer_says_how_many_orders_may_be_enough():
    """An interval narrows as the root of the number of orders and of accounts."""
    answer = lab.fills.compare_venues(*population("30 accounts, both venues", 1))
    row = answer.iloc[0]
    times = ((row["high_bps"] - row["difference_bps"]) / row["difference_bps"]) ** 2
    orders, accounts = re.search(
        r"about ([\d,]+) orders of ([\d,]+) accounts like these would have an even chance",
        lab.fills.describe(answer),
    ).groups()
    assert int(orders.replace(",", "")) == pytest.approx(864 * times, rel=0.05)
    assert int(accounts) == pytest.approx(30 * times, rel=0.05)
    # Signs that differ, a verdict and a reference of own trades are none of sampling.
    for kept in (
        {"book_weighted_bps": 1.0},
        {"low_bps": row["difference_bps"] - 1, "high_bps": row["difference_bps"] + 1},
        {"reference": "own trades"},
    ):
        assert "an even chance" not in lab.fills.describe(answer.assign(**kept))
    near = answer.assign(low_bps=-25.0, high_bps=25.0 + 2 * row["difference_bps"])
    assert "100 times as many orders would hardly decide it" in lab.fills.describe(near)


def test_intervals_of_another_level_are_told_from_those_of_95_percent():
    fills = population("30 accounts, both venues", 1)
    for level, said in (
        (0.95, "(interval "),
        (0.1, "(10 % interval "),
        (0.9983, "(99.83 % interval "),
    ):
        answer = lab.fills.compare_venues(*fills, intervals=level)
        assert f" bps {said}" in lab.fills.describe(answer)


def test_a_difference_near_to_0_has_the_digits_that_tell_it_from_0():
    answer = lab.fills.compare_venues(*population("30 accounts, both venues", 1))
    near = answer.assign(
        difference_bps=0.0312, low_bps=0.00449, high_bps=12.34, verdict="book"
    )
    said = "The order book is cheaper: pool minus book is 0.031 bps (interval 0.0045 to 12.3)"
    assert lab.fills.describe(near).startswith(said)
    # What is left of rounding is 0, and has no sign.
    written = [lab.figures.words.format_bps(rate) for rate in (-0.0012, 0.005, -1e-13)]
    assert written == ["-0.0012", "0.01", "0.00"]


@pytest.mark.parametrize(
    ("match", "said"),
    [
        (["market", "side", "size", "week"], "Within a week, orders at both venues"),
        thorough(["market", "day"], "Within a day, orders at both venues"),
        thorough(
            ["market", "account", "month"], "Within a month, orders at both venues"
        ),
        (["market"], "Over the whole time, orders at both venues"),
    ],
)
def test_what_a_match_assumes_is_said(match, said):
    fills = population("30 accounts, both venues", 1)
    answer = lab.fills.describe(lab.fills.compare_venues(*fills, match=match))
    assert f"- {said} are assumed to come at equally costly times; match by" in answer
    by_hour = lab.fills.compare_venues(*fills, match=["market", "hour"])
    assert "equally costly times" not in lab.fills.describe(by_hour)


def test_where_weights_decide_the_sign_the_verdict_is_undecided():
    """Of purchases the pool has most, and is cheaper by 10 bps; of sales the book has most, and is by 40."""
    fills = drawn(600, 5, 1)
    order = fills["order_hash"].map(lambda text: int(text, 16) - 1)
    is_pool = order % 2 == 0
    is_bought = order < 300
    cost = fills["fee_bps"] / 100 - 10.0 * (is_pool & is_bought)
    cost += 40.0 * (is_pool & ~is_bought)
    is_large = is_pool & is_bought
    trades = fills.assign(
        side=is_bought.map({True: "BUY", False: "SELL"}),
        fill_type=is_pool.map({True: "amm", False: "dex"}),
        notional=fills["notional"].where(~is_large, fills["notional"] * 100),
        fee_bps=cost,
        account_id=order % 50,
    )
    answer = lab.fills.compare_venues(trades, PRICES, match=["market", "side"])
    found = answer.iloc[0]
    assert found["pool_weighted_bps"] < 0 < found["book_weighted_bps"]
    assert found["verdict"] == "undecided"
    assert "which venue is cheaper depends on who asks" in lab.fills.describe(answer)


# Synthetic worlds


@pytest.mark.thorough
@pytest.mark.parametrize("cheaper", ["book", "pool", "neither"])
def test_among_users_the_cheaper_venue_is_found(cheaper):
    """Prices are those of an outside market, and users are told by what accounts gain."""
    world = World(seed=3, size=0.1, cheaper=cheaper)
    trades = trades_of(world)
    marks = minute_marks(world, world.fills, [MINUTE])
    known = lab.research.with_flow(trades, marks)
    users = known[known["flow"] == "user"]
    answer = lab.fills.compare_venues(users, marks)
    expected = "undecided" if cheaper == "neither" else cheaper
    assert answer["verdict"].item() == expected
    own = lab.fills.compare_venues(trades)
    assert own["reference"].item() == "own trades"
    assert "trades as reference pull the difference towards 0" in repr(lab.show(own))
    shares = answer.attrs["flow"]
    taken = known[known["role"] == "taker"]
    for venue, fill_type in (("pool", "amm"), ("book", "dex")):
        of_venue = taken[taken["fill_type"] == fill_type]
        values = values_of(known).reindex(of_venue["trade_id"]).to_numpy()
        is_arbitrage = (of_venue["flow"] == "arbitrage").to_numpy()
        share = values[is_arbitrage].sum() / values.sum()
        accounts = of_venue.loc[is_arbitrage, "account_id"].nunique()
        assert shares[venue]["accounts"] == accounts
        assert shares[venue]["share"] == pytest.approx(share, rel=1e-9)
    assert "Arbitrage, of all trades: " in lab.fills.describe(answer)


# Parts


def test_parts_of_the_difference_add_up(users):
    trades, marks = users
    whole = lab.fills.compare_venues(trades, marks, by="side")
    parts = lab.fills.compare_parts(trades, marks, by="side")
    table = parts.pivot(index="side", columns="part", values="difference_bps")
    added = table["fee"] + table["price"]
    assert added.tolist() == pytest.approx(whole["difference_bps"].tolist())
    added = table["realized"] + table["impact"]
    assert added.tolist() == pytest.approx(table["effective"].tolist())
    before = lab.fills.compare_parts(trades, marks, horizon="0s").set_index("part")
    # At a horizon of 0 the later price is the earlier one.
    assert abs(before.loc["impact", "difference_bps"]) < 1e-9
    assert (
        before.loc["price", "difference_bps"]
        == before.loc["effective", "difference_bps"]
    )


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


def test_what_cannot_be_matched_is_undecided(trades, marks, by_side):
    pool = trades[trades["fill_type"] == "amm"]
    alone = lab.fills.compare_venues(pool, marks).iloc[0]
    assert (alone["fills"], alone["pool_matched_share"], alone["verdict"]) == (
        0,
        0.0,
        "undecided",
    )
    assert pd.isna(alone["book_matched_share"])
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
    # Each part is about the same fills, which are counted once.
    parts = lab.fills.compare_parts(odd, marks)
    assert parts.attrs.get("notes") == found.attrs.get("notes")


def test_unknown_accounts_speak_for_nobody():
    trades, prices = population("10 accounts, one venue each", 1)
    unknown = trades.assign(account_id=pd.array([None] * len(trades), "Int64"))
    answer = lab.fills.compare_venues(unknown, prices)
    found = answer.iloc[0]
    assert (found["accounts"], found["cluster"], found["clusters"]) == (0, "account", 1)
    assert pd.isna(found["low_bps"])
    words = lab.fills.describe(answer)
    assert "orders of unknown accounts." in words
    assert "whose orders these are is not known" in words
    by_day = lab.fills.compare_venues(unknown, prices, cluster="day").iloc[0]
    assert by_day["low_bps"] < by_day["difference_bps"] < by_day["high_bps"]
    costs = lab.fills.all_in_cost(unknown, prices, by=[]).iloc[0]
    assert pd.isna(costs["low_all_in_bps"])


def test_unknown_accounts_beside_known_ones_are_one_cluster():
    trades, prices = population("30 accounts, both venues", 1)
    is_unknown = trades["account_id"] % 30 < 3
    some = trades.assign(account_id=trades["account_id"].mask(is_unknown))
    found = lab.fills.compare_venues(some, prices, cluster="account").iloc[0]
    assert (found["accounts"], found["clusters"]) == (27, 28)
    assert pd.notna(found["low_bps"])


def test_fills_without_a_known_cost_are_counted_and_not_compared():
    trades, prices = population("30 accounts, both venues", 1)
    trades.loc[trades.index % 10 < 7, "fee_bps"] = np.nan
    answer = lab.fills.compare_venues(trades, prices)
    found = answer.iloc[0]
    assert found["unpriced"] == trades["fee_bps"].isna().sum()
    is_known = trades["fee_bps"].notna()
    for fill_type, share in (("amm", "pool"), ("dex", "book")):
        values = lab.to_float(trades["notional"]).where(
            trades["fill_type"] == fill_type
        )
        assert (
            0.1
            < found[f"{share}_matched_share"]
            <= values[is_known].sum() / values.sum()
        )
    assert f"Of {found['unpriced']:,} fills of takers the cost is not known" in (
        lab.fills.describe(answer)
    )
    # Parts are known of other fills: an effective spread needs no fee.
    parts = lab.fills.compare_parts(trades, prices).set_index("part")["unpriced"]
    assert parts[["fee", "price"]].tolist() == [found["unpriced"]] * 2


def test_matching_more_coarsely_is_no_advice_where_nothing_has_a_price():
    trades, prices = population("30 accounts, both venues", 1)
    earlier = prices.assign(created_at=prices["created_at"] - pd.Timedelta("400D"))
    answer = lab.fills.compare_venues(trades, earlier)
    reason = (
        f"Of {len(trades)} fills of takers the cost is not known: there is no reference price near, no amount "
        "or fee, or no market that leads from the quote token to the most used one."
    )
    # All prices are known here, and no amount is: the reasons named are all that there are.
    unread = lab.fills.compare_venues(trades.assign(size=None), prices)
    assert reason in lab.fills.describe(unread)
    assert lab.fills.describe(answer) == (
        f"Undecided: no orders of both venues with a known cost share market, side, size and week. {reason}"
    )
    with pytest.raises(lab.LabError, match=re.escape(f"size class and week. {reason}")):
        lab.figures.venue_differences(trades, prices=earlier)


def test_unknown_values_are_shared_by_no_orders():
    trades, prices = population("30 accounts, both venues", 1)
    broker = pd.Series("known", trades.index).where(trades.index % 10 == 0)
    match = ("market", "side", "broker")
    found = lab.fills.compare_venues(
        trades.assign(broker=broker), prices, match=match
    ).iloc[0]
    # Two cells are left, and both venues have orders in each.
    assert found["fills"] == broker.notna().sum()
    unknown = trades.assign(account_id=pd.array([None] * len(trades), "Int64"))
    alone = lab.fills.compare_venues(unknown, prices, match=("market", "account"))
    assert alone["fills"].item() == 0


def test_an_order_at_both_venues_has_the_size_of_the_whole():
    trades, prices = population("split orders", *range(1, 11))
    found = lab.fills.compare_venues(routed(trades), prices, by="draw")
    assert (found["verdict"] != "undecided").sum() <= 1
    assert abs(found["difference_bps"].mean()) < 1


def test_what_an_order_leaves_on_the_book_is_no_part_of_what_its_taker_paid():
    trades, prices = population("30 accounts, both venues", 1)
    buys = trades[trades["side"] == "BUY"]
    # Later the price is a percent lower, and reaches what is left of the orders on the book.
    rests = buys[buys["fill_type"] == "dex"].assign(role="maker")
    rests["trade_id"] += len(trades)
    lower = prices.assign(price=lab.amounts.to_units([99] * len(prices), 2))
    lower["created_at"] += pd.Timedelta("200D")
    rests["created_at"] += pd.Timedelta("200D")
    both = pd.concat([prices, lower], ignore_index=True)
    found = lab.fills.compare_venues(pd.concat([buys, rests]), both)
    assert_same(found, lab.fills.compare_venues(buys, both))


def test_a_market_that_no_other_leads_to_is_compared_by_itself():
    trades, prices = population("30 accounts, both venues", 1, 2)
    # The second draw is of another market, in a token that the first has nothing of.
    is_other = trades["draw"] == 2
    trades.loc[is_other, "quote"] = "ETH"
    trades.loc[is_other, "market"] = "LRC2-ETH"
    prices.loc[prices["market"] == "LRC2-USDC", "market"] = "LRC2-ETH"
    each = lab.fills.compare_venues(trades, prices, by="market").set_index("market")
    alone = lab.fills.compare_venues(trades[is_other], prices).iloc[0]
    assert each.loc["LRC2-ETH", "difference_bps"] == pytest.approx(
        alone["difference_bps"]
    )
    assert each["unpriced"].tolist() == [0, 0]
    whole = lab.fills.compare_venues(trades, prices).iloc[0]
    lost = min(is_other.sum(), (~is_other).sum())
    assert whole["unpriced"] == lost
    costs = lab.fills.all_in_cost(trades, prices, by=[])
    assert f"{lost} fills weigh nothing in weighted means" in costs.attrs["notes"][0]


def test_what_orders_share_is_no_column_that_the_answer_makes(users):
    trades, prices = users
    own = trades.assign(part=range(len(trades)))
    with pytest.raises(
        lab.LabError, match="match= cannot include 'part'.*rename yours"
    ):
        lab.fills.compare_parts(own, prices, match=["market", "part"])
    with pytest.raises(lab.LabError, match="match= cannot include 'part'.*or some of"):
        lab.fills.compare_parts(trades, prices, match=["market", "part"])
