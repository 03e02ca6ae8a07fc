"""Prices of a feed that has stopped are said where they meet trades that moved meanwhile."""

import functools
import re

import pandas as pd
import pytest
from support.optional import first_often

import loopring_lab as lab

MARKET = "ETH-USDC"
HOUR = pd.Timedelta(hours=1)


@functools.cache
def trades() -> pd.DataFrame:
    return lab.connect().trades([10083, 11519], market=MARKET)


@functools.cache
def hourly() -> pd.DataFrame:
    return lab.connect().outside_prices(trades(), every="1h")


def move(begin: pd.Timestamp, hours: int) -> float:
    """How far the trades moved: from the price that a tenth of them had at most to that of nine tenths."""
    of_time = trades()["created_at"].between(begin, begin + hours * HOUR)
    found = sorted(trades().loc[of_time, "price"].astype(float))
    if not found:
        return 0.0
    low = found[-(-len(found) // 10) - 1]
    high = found[-(-len(found) * 9 // 10) - 1]
    return high / low - 1


@functools.cache
def begun(hours: int = 72) -> pd.Timestamp:
    """Return the day from which the trades moved most in so many hours."""
    days = trades()["created_at"].dt.floor("D").unique()
    return max(days, key=lambda day: move(day, hours))


def stopped(hours: int) -> pd.DataFrame:
    """The hourly prices, of which those of so many hours repeat the first."""
    prices = hourly()
    begin = begun(hours)
    is_still = prices["created_at"].between(begin, begin + hours * HOUR)
    assert is_still.sum() == hours + 1
    first = prices.loc[is_still, "price"].iloc[0]
    return prices.assign(price=prices["price"].mask(is_still, first))


ASKED = {
    "compare_venues": lambda prices: lab.fills.compare_venues(trades(), prices),
    "all_in_cost": lambda prices: lab.fills.all_in_cost(trades(), prices),
    "all_in_cost by": lambda prices: lab.fills.all_in_cost(trades(), prices, by=[]),
    "markouts": lambda prices: lab.fills.markouts(trades(), prices),
    "with_flow": lambda prices: lab.research.with_flow(
        trades(), prices, tolerance="1h"
    ),
    "changes": lambda prices: lab.research.changes(trades(), prices),
}


def notes_of(answer: pd.DataFrame) -> list[str]:
    notes = answer.attrs.get("notes", [])
    return [note for note in notes if "stands still" in note]


@pytest.mark.parametrize("question", first_often(1, ASKED))
def test_a_feed_that_stopped_while_trades_moved_is_named(question):
    (note,) = notes_of(ASKED[question](stopped(72)))
    found = re.search(
        rf"{MARKET} stands still from (.{{16}}) to (.{{16}}) \(UTC\)", note
    )
    since = pd.Timestamp(found[1], tz="UTC")
    until = pd.Timestamp(found[2], tz="UTC")
    # Prices are read near trades only.
    assert begun() <= since < until <= begun() + 72 * HOUR
    assert until - since >= 24 * HOUR
    assert note.endswith("Leave these prices out.")
    assert not notes_of(ASKED[question](hourly()))


def test_the_move_is_that_of_most_fills():
    (note,) = notes_of(lab.fills.all_in_cost(trades(), stopped(72)))
    assert f"move by {move(begun(), 72):.1%}" in note


def test_prices_that_stand_still_for_less_than_a_day_are_not_named():
    assert move(begun(23), 23) > 0.01
    assert not notes_of(lab.fills.all_in_cost(trades(), stopped(23)))


def test_prices_may_stand_still_where_trades_do_not_move():
    still = trades().assign(price=trades()["price"].iloc[0])
    assert not notes_of(lab.fills.all_in_cost(still, stopped(72)))
