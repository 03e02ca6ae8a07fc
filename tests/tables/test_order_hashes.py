"""What stands for no order hash is none, for every function and in every frame."""

from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.wire_rows import page, read, row

import loopring_lab as lab

PLACEHOLDERS = ["", "0x", "0" * 64, "0x" + "0" * 64]
QUESTIONS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "orders": lab.fills.orders,
    "compare_venues": lab.fills.compare_venues,
    "all_in_cost": lambda trades: lab.fills.all_in_cost(trades, by="fill_type"),
    "shortfall": lab.fills.shortfall,
    "summary": lambda trades: lab.fees.summary(trades, by="order_hash"),
}


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=300)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_answers_are_those_without_hashes(trades, question):
    without = question(trades.assign(order_hash=pd.Series(None, trades.index, "str")))
    some_of_each = list(islice(cycle(PLACEHOLDERS), len(trades)))
    assert_frame_equal(question(trades.assign(order_hash=some_of_each)), without)


def test_rows_have_none():
    hashes = [*PLACEHOLDERS, "0x0a0"]
    rows = [row(id=str(n), orderHash=one) for n, one in enumerate(hashes, start=1)]
    frame = read([page(rows)], fill_type="dex").sort_values("trade_id")
    assert frame["order_hash"].notna().tolist() == [False] * 4 + [True]
    assert lab.anomalies(frame).empty
