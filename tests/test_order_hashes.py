"""What stands for no order hash is none, for every function and in every frame."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.wire_rows import page, row

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
@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_answers_are_those_without_hashes(trades, question, placeholder):
    without = question(trades.assign(order_hash=pd.Series(None, trades.index, "str")))
    got = question(trades.assign(order_hash=placeholder))
    assert_frame_equal(got, without)


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_rows_have_none(placeholder):
    client = lab.connect()
    frame = lab.tables.trades(
        page([row(orderHash=placeholder), row(id="2", orderHash="0x0a0")]),
        client.tokens(),
        client.markets(),
        fill_type="dex",
    )
    assert frame.set_index("trade_id")["order_hash"].isna()[
        [int(row()[1]), 2]
    ].tolist() == [True, False]
    assert lab.anomalies(frame).empty
