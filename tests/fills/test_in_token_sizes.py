"""Fees in one token: how far sums of values may be off."""

import math
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t
from support import oracle
from support.engines import result_rows

import loopring_lab as lab

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


@pytest.mark.thorough
def test_how_far_sums_may_be_off_is_their_change_at_the_next_prices(history):
    """Each price before an order against the first after it, added up by day."""
    some = history[history["created_at"].notna()].head(200)
    fills = [oracle.Fill(**row) for row in result_rows(some)]
    days: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    values: dict[str, float] = defaultdict(float)
    shown: dict[str, float] = defaultdict(float)
    for fill, row in zip(fills, oracle.in_token(fills, "USDC"), strict=True):
        value = row["fee_value"]
        if value is not None:
            values[fill.fee_token] += value
            factor = moved(fill, row["value_path"].split(">"), fills)
            if factor is not None:
                shown[fill.fee_token] += value
                days[fill.fee_token][fill.created_at // oracle.DAY] += value * (
                    factor - 1
                )
    found = lab.fees.in_token(some, "USDC", by=[]).set_index("fee_token")["within_bps"]
    stated = found.dropna()
    assert set(stated.index) == {
        token for token in values if shown[token] >= values[token] / 2
    }
    # Tokens that need a price, one of which has too few later prices.
    assert (stated > 0).sum() > 3
    assert len(stated) < len(values)
    for token, bps in stated.items():
        changes = list(days[token].values())
        # The sum itself may be off, and single days by chance.
        off = abs(sum(changes)) + t.ppf(0.975, len(changes)) * math.hypot(*changes)
        # The library expands Student's t, and of a single day that is less sure.
        rel = 0.12 if len(changes) == 1 else 0.01
        assert bps == pytest.approx(10_000 * off / shown[token], rel=rel, abs=1e-9)


def moved(
    fill: oracle.Fill, names: list[str], fills: list[oracle.Fill]
) -> float | None:
    """Return by how much the prices of a path change from before an order to after it, if all have one there."""
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
        if not after:
            return None
        change = mean_price(after, min(map(oracle.moment_of, after))) / mean_price(
            before, max(map(oracle.moment_of, before))
        )
        factor *= change if known[0].base == here else 1 / change
    return factor


def mean_price(fills: list[oracle.Fill], moment: tuple[int, int]) -> float:
    same = [one.price for one in fills if oracle.moment_of(one) == moment]
    return sum(same) / len(same)


def test_a_token_without_a_market_has_its_own_fees_only(history):
    alone = history.assign(fee_token="POINTS")
    (line,) = result_rows(lab.fees.in_token(alone, "POINTS", by=[]))
    assert line["unpriced"] == history["created_at"].isna().sum()
    assert line["within_bps"] == 0
    assert lab.fees.in_token(alone, "USDC")["fee_value"].isna().all()
