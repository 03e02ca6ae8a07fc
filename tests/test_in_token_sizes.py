"""Fees in one token: values as counted by hand on every kind of frame, and how far sums may be off."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support import oracle
from support.engines import on, result_rows
from support.worlds import trades_of, valued_accounts

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.relayer import World

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def history() -> pd.DataFrame:
    """Read a year of three accounts, with ties, orders without a hash, and unknown times."""
    client = lab.connect()
    trades = pd.concat(
        [client.trades(account, limit=250) for account in (10083, 11519, 58344)]
    )
    trades = trades.sample(frac=1, random_state=5, ignore_index=True)
    number = np.arange(len(trades))
    same = (
        trades["created_at"].dt.floor("1h").where(number % 7 == 0, trades["created_at"])
    )
    return trades.assign(
        created_at=same.where(number % 97 != 0),
        order_hash=trades["order_hash"].where(number % 5 != 0),
    )


def test_ages_leave_duckdb_as_lengths_of_time(history: pd.DataFrame) -> None:
    summed = lab.fees.in_token(history, "USDC", by=[])
    assert (
        summed[["median_age", "max_age"]].dtypes.astype(str).tolist()
        == ["timedelta64[ms]"] * 2
    )
    assert summed["fee_value"].dtype == "float64"


def test_how_far_sums_may_be_off_is_their_change_at_the_next_prices(
    history: pd.DataFrame,
) -> None:
    """Each price before an order against the first after it, added up by day."""
    some = history[history["created_at"].notna()].head(200)
    fills = [oracle.Fill(**row) for row in result_rows(some)]
    days: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    values: dict[str, float] = defaultdict(float)
    for fill, row in zip(fills, oracle.in_token(fills, "USDC"), strict=True):
        if row["fee_value"] is not None:
            change = row["fee_value"] * (
                moved(fill, row["value_path"].split(">"), fills) - 1
            )
            days[fill.fee_token][fill.created_at // oracle.DAY] += change
            values[fill.fee_token] += row["fee_value"]
    errors = {
        token: abs(sum(changes.values()))
        + 1.96 * sum(one**2 for one in changes.values()) ** 0.5
        for token, changes in days.items()
    }
    found = (
        lab.fees.in_token(some, "USDC", by=[])
        .set_index("fee_token")["within_bps"]
        .dropna()
    )
    assert found.to_dict() == {
        token: pytest.approx(10_000 * errors[token] / values[token], rel=1e-9, abs=1e-9)
        for token in values
    }
    assert (found > 0).sum() > 3


def moved(fill: oracle.Fill, names: list[str], fills: list[oracle.Fill]) -> float:
    """Return by how much the prices of a path change from before an order to after it."""
    order = [
        one for one in oracle.order_of(fill, fills) if one.fee_token == fill.fee_token
    ]
    first = min(map(oracle.moment_of, order))
    last = max(map(oracle.moment_of, order))
    factor = 1.0
    for here, there in pairwise(names):
        known = [
            one for one in fills if {one.base, one.quote} == {here, there} and one.price
        ]
        before = [one for one in known if oracle.moment_of(one) < first]
        after = [one for one in known if oracle.moment_of(one) > last]
        if after:
            change = mean_price(after, min(map(oracle.moment_of, after))) / mean_price(
                before, max(map(oracle.moment_of, before))
            )
            factor *= change if known[0].base == here else 1 / change
    return factor


def mean_price(fills: list[oracle.Fill], moment: tuple[int, int]) -> float:
    same = [one.price for one in fills if oracle.moment_of(one) == moment]
    return sum(same) / len(same)


@pytest.mark.thorough
def test_the_world_s_true_values_lie_within_what_is_stated() -> None:
    """19 of 20 accounts, at all accounts' prices and at their own."""
    world = World(101, 0.1)
    trades = trades_of(world)
    for prices in (trades, None):
        found = valued_accounts(world, trades, "USDC", prices)
        held = [abs(one.error_bps) <= one.within_bps for one in found]
        assert sum(held) >= 0.9 * len(held)


def test_a_token_that_occurs_nowhere_is_refused(history: pd.DataFrame) -> None:
    for kind in ("pandas", "duckdb"):
        with pytest.raises(LabError, match=r"no fee is in 'USDD'. Did you mean"):
            lab.fees.in_token(on(kind, history), "USDD", by=[])
    assert lab.fees.in_token(history.iloc[:0], "USDD").empty


def test_a_token_without_a_market_has_its_own_fees_only(history: pd.DataFrame) -> None:
    alone = history.assign(fee_token="POINTS")
    (line,) = result_rows(lab.fees.in_token(alone, "POINTS", by=[]))
    assert line["unpriced"] == history["created_at"].isna().sum()
    assert line["within_bps"] == 0
    assert lab.fees.in_token(alone, "USDC")["fee_value"].isna().all()


SHOWN = ["trade_id", "side", "fee_value", "value_path", "priced_at"]


def nearly(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows to compare with: floats to 12 digits, whatever the order in which they were added up."""
    return [
        {
            name: pytest.approx(cell, rel=1e-12) if isinstance(cell, float) else cell
            for name, cell in row.items()
        }
        for row in rows
    ]


@pytest.mark.parametrize("token", ["ETH", "USDC"])
@pytest.mark.parametrize("tolerance", ["1d", None])
def test_values_are_those_counted_by_hand(
    history: pd.DataFrame, token: str, tolerance: str | None
) -> None:
    some = history.head(250)
    fills = [oracle.Fill(**row) for row in result_rows(some)]
    expected = oracle.in_token(fills, token, None if tolerance is None else oracle.DAY)
    found = result_rows(lab.fees.in_token(some, token, tolerance=tolerance)[SHOWN])
    assert found == nearly([{name: row[name] for name in SHOWN} for row in expected])
    assert sum(row["fee_value"] is not None for row in found) > 100
