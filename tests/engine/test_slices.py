"""An archive looks prices up in one slice of time after the other, with the answers that all rows at once have."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.drawn_trades import drawn
from support.engines import InArchive, assert_same, without_warnings
from support.optional import thorough
from support.questions import outside

import loopring_lab as lab
from loopring_lab.engine import slices

BEFORE_1970 = pd.Timestamp("1969-12-31 06:30", tz="UTC")
Ask = Callable[[Any, Any, Any], Any]
"""Asks about trades, with prices of an outside market, and a tolerance."""

QUESTIONS: dict[str, Ask] = {
    "last of the other type": lambda trades, _, near: lab.fills.price_gap(
        trades, near, by="market"
    ),
    "next": lambda trades, _, near: lab.fills.all_in_cost(
        trades, "next", near, by="side"
    ),
    "outside": lambda trades, prices, near: lab.fills.all_in_cost(
        trades, prices, near, by="market"
    ),
    "two in a row": lambda trades, _, near: lab.fills.markouts(
        trades, None, ["10s", "2h"], by="market", tolerance=near
    ),
    "of whole orders": lambda trades, _, near: lab.fills.shortfall(
        trades, by="side", tolerance=near
    ),
    "along a path": lambda trades, _, near: lab.fees.in_token(
        trades, "USDT", by="market", tolerance=near
    ),
    "along a path of given prices": lambda trades, _, near: lab.fees.in_token(
        trades, "USDT", trades, by="market", tolerance=near
    ),
    "venues": lambda trades, prices, _: lab.fills.compare_venues(
        trades, prices, match="market"
    ),
    "venues of a day": lambda trades, prices, _: lab.fills.compare_parts(
        trades, prices, match=["market", "day"]
    ),
}


def over_hours(seed: int) -> pd.DataFrame:
    """Return drawn fills, many at one moment or at an unknown time, over two days in which orders rest for hours."""
    frame = drawn(seed)
    dice = np.random.default_rng(seed)
    rests = pd.to_timedelta(dice.integers(0, 48, 200) * 3600, unit="s")
    # Both sides of a fill have one time.
    numbers = frame["trade_id"].fillna(0).astype("int64") % len(rests)
    later = frame["created_at"] + pd.Series(rests[numbers], index=frame.index)
    return frame.assign(created_at=later.astype(frame["created_at"].dtype))


def check(name: str, near: str | None, seed: int, rows: int, monkeypatch: Any) -> None:
    trades = over_hours(seed)
    prices = outside(trades)
    ask = QUESTIONS[name]
    expected = without_warnings(ask, trades, prices, near)
    monkeypatch.setattr(slices, "ROWS_OF_A_SLICE", rows)
    found = without_warnings(ask, InArchive(trades), InArchive(prices), near)
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("next", "1h"),
        ("along a path", None),
        ("along a path of given prices", "1h"),
        ("venues of a day", None),
        thorough("two in a row", "1h"),
    ],
)
def test_slices_of_time_have_the_answers_of_all_rows(name, near, monkeypatch):
    assert over_hours(1).groupby("order_hash")["created_at"].nunique().max() > 5
    check(name, near, 1, 30, monkeypatch)


@pytest.mark.thorough
@pytest.mark.parametrize("near", ["0s", "3s", "5h", None])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", QUESTIONS)
def test_slices_of_any_length_have_the_answers_of_all_rows(
    name, seed, near, monkeypatch
):
    check(name, near, seed, 1 + 10 * seed, monkeypatch)


def test_a_slice_finds_prices_as_old_as_they_may_be(monkeypatch):
    # Each trade but the first finds the one before it, of the other type, twelve hours older and in another slice.
    hours = pd.Series(range(0, 48, 12))
    trades = drawn(1).head(len(hours))
    assert trades["created_at"].notna().all()
    trades = trades.assign(
        created_at=(BEFORE_1970 + pd.to_timedelta(hours, unit="h")).astype(
            trades["created_at"].dtype
        ),
        market="LRC-ETH",
        side="BUY",
        fill_type=["amm", "dex"] * (len(hours) // 2),
        price=trades["price"].max(),
        order_hash=None,
        storage_id=range(len(hours)),
    )
    monkeypatch.setattr(slices, "ROWS_OF_A_SLICE", 1)
    for near, missing in (("12h", 1), ("11h", len(hours)), (None, 1)):
        found = lab.fills.price_gap(InArchive(trades), near, by=[])
        assert found["fills"].sum() == len(hours)
        assert found["unmatched"].sum() == missing


def test_a_group_without_any_price_has_a_row(monkeypatch):
    # No market leads from this token to the other one.
    trades = drawn(1)
    trades = trades.assign(fee_token="DAI", fee=trades["price"].max())
    monkeypatch.setattr(slices, "ROWS_OF_A_SLICE", 30)
    found = lab.fees.in_token(InArchive(trades), "USDT", by=[])
    assert found["unpriced"].item() == len(trades)
    assert found["median_age"].isna().item()


@pytest.mark.parametrize("near", ["1h", None])
def test_times_of_prices_may_be_of_nanoseconds(near, monkeypatch):
    trades = over_hours(2)
    finer = trades.assign(created_at=trades["created_at"].dt.as_unit("ns"))
    asked = functools.partial(lab.fills.all_in_cost, tolerance=near, by="market")
    expected = asked(trades, prices=trades)
    monkeypatch.setattr(slices, "ROWS_OF_A_SLICE", 30)
    assert_same(asked(InArchive(trades), prices=finer), expected)


def test_prices_of_any_time_may_be_older_than_all_trades(monkeypatch):
    trades = over_hours(2).query("created_at.notna()")
    prices = outside(trades)
    older = prices.assign(created_at=prices["created_at"] - pd.Timedelta("400D"))
    monkeypatch.setattr(slices, "ROWS_OF_A_SLICE", 30)
    costs = lab.fills.all_in_cost(InArchive(trades), InArchive(older), None, by=[])
    assert costs["unpriced"].sum() < costs["fills"].sum() / 2
    assert_same(costs, lab.fills.all_in_cost(trades, older, None, by=[]))


def test_the_hours_before_and_after_1970_are_two():
    trades = drawn(1)
    is_on_book = trades["fill_type"] == "dex"
    times = BEFORE_1970.ceil("D") + is_on_book.map(
        {True: pd.Timedelta("30min"), False: pd.Timedelta("-30min")}
    )
    trades = trades.assign(
        created_at=times.astype(trades["created_at"].dtype),
        market="LRC-ETH",
        order_hash=None,
        storage_id=range(len(trades)),
    )
    prices = outside(trades)
    orders = [
        lab.fills.compare_venues(trades, prices, match=match)["orders"].item()
        for match in ("market", ["market", "hour"])
    ]
    assert orders[0] > 0
    assert orders[1] == 0
