"""Differences by period with bands that hold together: a second way, and a synthetic world."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import loopring_lab as lab


@pytest.fixture(scope="module")
def months(switched: tuple[pd.DataFrame, pa.Table]) -> pd.DataFrame:
    return lab.research.changes(*switched, by=None)


@pytest.fixture(scope="module")
def winter(
    switched: tuple[pd.DataFrame, pa.Table],
) -> tuple[pd.DataFrame, pa.Table]:
    """Return the trades of two months."""
    trades, marks = switched
    return trades[trades["created_at"] < "2022-03-01"], marks


@pytest.mark.thorough
def test_periods_may_be_grouped_by_amounts(winter):
    trades, prices = winter
    tier = trades["notional"] * 0 + 1
    found = lab.research.changes(trades.assign(tier=tier), prices, by="tier")
    assert found["tier"].unique().tolist() == [1]
    assert found["verdict"].notna().all()


def test_each_period_is_compared_by_itself(switched):
    trades, marks = switched
    found = lab.research.changes(trades, marks, every="1q")
    # The same with a column of the caller's own.
    quarter = trades["created_at"].dt.tz_localize(None).dt.to_period("Q")
    own = lab.fills.compare_venues(
        trades.assign(quarter=quarter.astype(str)), marks, ["market", "quarter"]
    )
    assert len(found) == len(own)
    quarters = found["period"].dt.tz_localize(None).dt.to_period("Q")
    assert list(quarters.astype(str)) == list(own["quarter"])
    same = ["market", "fills", "orders", "difference_bps", "low_bps", "high_bps"]
    pd.testing.assert_frame_equal(found[same], own[same], rtol=1e-12)


@pytest.mark.thorough
def test_bands_hold_together_at_the_level_of_one_interval(switched, months):
    trades, marks = switched
    month = trades["created_at"].dt.strftime("%Y-%m")
    rows = months["low_bps"].notna().sum()
    assert rows > 3
    wider = lab.fills.compare_venues(
        trades.assign(month=month), marks, "month", intervals=1 - 0.05 / rows
    )
    bands = months[["band_low_bps", "band_high_bps"]].to_numpy()
    expected = wider[["low_bps", "high_bps"]].to_numpy()
    np.testing.assert_allclose(bands, expected, rtol=1e-12)
    assert list(months["verdict"]) == list(wider["verdict"])


def test_the_column_of_the_period_may_be_the_callers_own(winter):
    trades, marks = winter
    found = lab.research.changes(trades, marks, by=None)
    assert len(found) == 2
    with_own = lab.research.changes(trades.assign(period="mine"), marks, by=None)
    pd.testing.assert_frame_equal(with_own, found)
