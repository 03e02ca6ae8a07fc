"""Differences by period with bands that hold together: a second way, and a synthetic world."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import loopring_lab as lab
from loopring_lab.engine.notes import LEFT_OUT
from loopring_lab.fills.comparison import ERRORS


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


def test_a_difference_that_hangs_on_one_account_has_no_band(winter):
    trades, marks = winter
    # All at the pool until this Thursday, with which a week begins, and all on the book from then on.
    is_early = trades["created_at"] < "2022-01-27"
    is_at_pool = trades["fill_type"] == "amm"
    accounts = trades["account_id"].mask(is_early == is_at_pool, 7)
    of_one = trades.assign(account_id=accounts)
    [found] = lab.research.changes(of_one, marks, by=None, every="1y").itertuples()
    assert found.accounts > 10
    assert np.isfinite(found.difference_bps)
    ends = (found.low_bps, found.high_bps, found.band_low_bps, found.band_high_bps)
    assert np.isnan(ends).all()


@pytest.mark.parametrize("cheaper", ["book", "pool"])
def test_trades_as_reference_prove_no_difference_as_small_as_their_own_cost(
    switched, cheaper
):
    trades, _ = switched
    if cheaper == "pool":
        other = {"amm": "dex", "dex": "amm"}
        trades = trades.assign(fill_type=trades["fill_type"].map(other))
    found = lab.research.changes(trades, by=None, every="1q", horizon="0s")
    assert set(found["reference"]) == {"own trades"}
    lower = found["band_low_bps"] > 0
    higher = found["band_high_bps"] < 0
    assert (lower if cheaper == "book" else higher).sum() == 2
    assert set(found["verdict"]) == {"undecided"}


def test_levels_that_no_band_can_have_are_refused(switched):
    level = 1 - 2**-51
    with pytest.raises(lab.LabError, match="not a level between 0 and 1"):
        lab.research.changes(*switched, by=None, intervals=level)


def test_orders_cannot_share_a_column_called_as_the_period(winter):
    trades, marks = winter
    own = trades.assign(period=range(len(trades)))
    with pytest.raises(lab.LabError, match="match= cannot include 'period'"):
        lab.research.changes(own, marks, by=None, match=["market", "period"])


@pytest.mark.parametrize("name", [ERRORS, LEFT_OUT])
def test_columns_that_notes_and_bands_are_made_of_are_no_keys(winter, name):
    trades, marks = winter
    with pytest.raises(lab.LabError, match="rename yours"):
        lab.research.changes(trades.assign(**{name: 1}), marks, by=name)


def test_the_column_of_the_period_may_be_the_callers_own(winter):
    trades, marks = winter
    found = lab.research.changes(trades, marks, by=None)
    assert len(found) == 2
    with_own = lab.research.changes(trades.assign(period="mine"), marks, by=None)
    pd.testing.assert_frame_equal(with_own, found)
