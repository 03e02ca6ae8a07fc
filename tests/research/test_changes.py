"""Differences by period with bands that hold together, and the test for a break: a second way, and synthetic worlds."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.worlds import users_of

import loopring_lab as lab
from loopring_lab.relayer import World

# Errors of twelve months of a world.
ERRORS = np.array([3.0, 3.2, 3.2, 4.4, 3.9, 3.4, 2.3, 3.8, 4.4, 3.5, 4.7, 4.2])


@pytest.fixture(scope="module")
def switched() -> tuple[pd.DataFrame, pa.Table]:
    return users_of(World(seed=41, size=0.2, switched=("2022-07-01", "book")))


@pytest.fixture(scope="module")
def months(switched: tuple[pd.DataFrame, pa.Table]) -> pd.DataFrame:
    return lab.fills.changes(*switched, by=None)


def months_with(
    differences: Any,
    errors: Any = ERRORS,
    effective_orders: float = 10_000,
    **columns: Any,
) -> pd.DataFrame:
    """Return an answer of `changes` with these differences and errors, which so many orders make sure."""
    periods = pd.date_range("2022-01-01", periods=len(differences), freq="MS", tz="UTC")
    numbers = (
        "fills",
        "orders",
        "low_bps",
        "high_bps",
        "band_low_bps",
        "band_high_bps",
    )
    return pd.DataFrame(
        {
            **columns,
            "period": periods.as_unit("ms"),
            "difference_bps": differences,
            "error_bps": errors,
            **dict.fromkeys(numbers, 0.0),
            "effective_orders": effective_orders,
            "verdict": "undecided",
            "reference": "outside prices",
        }
    )


# By period


def test_periods_may_be_grouped_by_amounts(switched):
    trades, prices = switched
    tier = trades["notional"] * 0 + 1
    found = lab.fills.changes(trades.assign(tier=tier), prices, by="tier")
    assert found["tier"].unique().tolist() == [1]
    assert found["verdict"].notna().all()
    assert lab.fills.break_test(found)["tier"].tolist() == [1]


def test_each_period_is_compared_by_itself(switched):
    trades, marks = switched
    found = lab.fills.changes(trades, marks, every="1q")
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
    assert rows > 5
    wider = lab.fills.compare_venues(
        trades.assign(month=month), marks, "month", intervals=1 - 0.05 / rows
    )
    bands = months[["band_low_bps", "band_high_bps"]].to_numpy()
    expected = wider[["low_bps", "high_bps"]].to_numpy()
    np.testing.assert_allclose(bands, expected, rtol=1e-12)
    assert list(months["verdict"]) == list(wider["verdict"])
    # A normal interval reaches 1.96 errors to each side.
    reach = (months["high_bps"] - months["low_bps"]) / 2
    assert (reach / months["error_bps"]).dropna().to_numpy() == pytest.approx(
        1.959964, rel=1e-6
    )


def test_the_column_of_the_period_may_be_the_callers_own(switched, months):
    trades, marks = switched
    with_own = lab.fills.changes(trades.assign(period="mine"), marks, by=None)
    pd.testing.assert_frame_equal(with_own, months)


# The break


@pytest.mark.parametrize("change", [0, 5, -15])
def test_the_statistic_is_the_largest_of_weighted_regressions(change):
    models = pytest.importorskip("statsmodels.api")
    differences = np.random.default_rng(7).normal(0, ERRORS)
    differences[5:] += change
    statistics = {}
    fits = {}
    # 15 % of twelve months are left out at either end: two.
    for first in range(2, 11):
        is_after = np.arange(12) >= first
        rows = np.column_stack([~is_after, is_after]).astype(float)
        fit = models.WLS(differences, rows, ERRORS**-2).fit()
        # The errors are known, so the fit's own estimate of their scale does not count.
        variance = fit.normalized_cov_params.trace()
        statistics[first] = (fit.params[1] - fit.params[0]) ** 2 / variance
        fits[first] = fit.params
    best = max(statistics, key=lambda first: statistics[first])
    found = lab.fills.break_test(months_with(differences)).iloc[0]
    assert found["statistic"] == pytest.approx(statistics[best], rel=1e-9)
    assert found["changed_at"] == pd.Timestamp(2022, best + 1, 1, tz="UTC")
    assert [found["before_bps"], found["after_bps"]] == pytest.approx(list(fits[best]))
    assert found["change_bps"] == pytest.approx(fits[best][1] - fits[best][0])
    verdicts = {0: "undecided", 5: "rose", -15: "fell"}
    assert found["verdict"] == verdicts[change]
    assert (found["p_value"] <= 0.05) == (found["verdict"] != "undecided")


def test_a_switch_is_found_in_its_month(months):
    found = lab.fills.break_test(months).iloc[0]
    assert found["verdict"] == "rose"
    assert found["changed_at"] == pd.Timestamp("2022-07-01", tz="UTC")
    assert found["before_bps"] < -5
    assert found["after_bps"] > 5
    assert found["p_value"] < 0.001


@pytest.mark.thorough
def test_without_a_break_one_in_twenty_is_found():
    """A sample of benchmarks/bench_changes.py."""
    found = 0
    for number in range(400):
        differences = np.random.default_rng(number).normal(0, ERRORS)
        (verdict,) = lab.fills.break_test(months_with(differences))["verdict"]
        found += verdict != "undecided"
    assert 0.03 <= found / 400 <= 0.08


@pytest.mark.thorough
def test_errors_of_few_orders_are_not_taken_to_be_sure():
    """With four orders at each venue, a difference has six degrees of freedom; normal errors would find 16 %."""
    found = 0
    for number in range(400):
        draws = np.random.default_rng(number).standard_t(6, 12)
        months = months_with(draws * ERRORS, effective_orders=4)
        (verdict,) = lab.fills.break_test(months)["verdict"]
        found += verdict != "undecided"
    assert 0.03 <= found / 400 <= 0.08


def test_each_group_is_tested_by_itself():
    flat = months_with(np.zeros(12), market="A-ETH")
    broken = months_with([0] * 6 + [50] * 6, market=None)
    found = lab.fills.break_test(pd.concat([broken, flat], ignore_index=True))
    assert list(found.columns[:2]) == ["market", "periods"]
    assert found["market"].iloc[0] == "A-ETH"
    assert pd.isna(found["market"].iloc[1])
    assert list(found["verdict"]) == ["undecided", "rose"]
    assert found["change_bps"].iloc[1] == pytest.approx(50)


def test_months_without_an_error_do_not_count():
    known = months_with([0.0] * 4 + [30.0] * 4, ERRORS[:8])
    gaps = months_with(
        [0.0] * 4 + [30.0] * 4 + [np.nan] * 2, [*ERRORS[:8], None, np.nan]
    )
    shown = lab.fills.break_test(known)
    pd.testing.assert_frame_equal(lab.fills.break_test(gaps), shown)
    assert shown["periods"].iloc[0] == 8


def test_too_few_periods_are_undecided():
    found = lab.fills.break_test(months_with([0.0, 90.0, 90.0], ERRORS[:3])).iloc[0]
    assert found["periods"] == 3
    assert found["verdict"] == "undecided"
    assert found[["statistic", "p_value", "changed_at"]].isna().all()
