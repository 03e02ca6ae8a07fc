"""Means with intervals: against their definition, and against the truth over many samples."""

from collections import defaultdict
from decimal import Decimal
from statistics import NormalDist, median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import loopring_lab as lab
from loopring_lab.engine.ask import ask
from loopring_lab.engine.estimates import with_estimates
from loopring_lab.engine.groups import keys_of
from loopring_lab.engine.query import ORDER_COLUMNS, Question

WORTH = pa.table(
    {"token": ["T", "U"], "day": pa.array([0, 0], pa.int64()), "worth": [1.0, 2000.0]}
)
NEEDS = (
    "created_at",
    "market",
    "quote",
    "notional",
    "fee_bps",
    "trade_id",
    "side",
    "order_hash",
)


def drawn(orders: int, seed: int, groups: int = 2) -> pd.DataFrame:
    """Draw fills of a number of orders, one to three of each; the mean rate is 5."""
    chance = np.random.default_rng(seed)
    parts = chance.integers(1, 4, orders)
    fills = int(parts.sum())
    weights = chance.lognormal(6, 1, fills)
    return pd.DataFrame({
        "created_at": pd.to_datetime(np.zeros(fills, int), unit="ms", utc=True), "market": "X", "quote": "T", "side": "BUY",
        "notional": pd.array([Decimal(f"{weight:.6f}") for weight in weights], lab.amounts.AMOUNT),
        "fee_bps": np.repeat(chance.normal(5, 20, orders), parts) + chance.normal(0, 3, fills),
        "trade_id": np.arange(fills), "order_hash": np.repeat(np.arange(orders).astype(str), parts),
        "part": np.repeat(chance.integers(0, groups, orders), parts),
    })  # fmt: skip


def estimated(fills: Any, by: list[str] | None = None, level: float = 0.95) -> Any:
    question = Question(
        "test",
        {"costs": "SELECT * FROM trades"},
        NEEDS,
        ORDER_COLUMNS,
        ("ms", "order_id"),
    )
    keys = keys_of(fills, ["part"] if by is None else by, "test")
    asked = Question(
        "test", question.steps, question.needs, question.may_have, keys=keys
    )
    return ask(with_estimates(asked, ["fee_bps"], level), fills, worth=WORTH)


def by_definition(fills: pd.DataFrame) -> dict[str, float]:
    """Return a weighted mean and its interval from a loop over orders."""
    weights = fills["notional"].astype(float).tolist()
    rates = fills["fee_bps"].tolist()
    mean = sum(w * x for w, x in zip(weights, rates, strict=True)) / sum(weights)
    values = defaultdict(float)
    off = defaultdict(float)
    for order, weight, rate in zip(fills["order_hash"], weights, rates, strict=True):
        values[order] += weight
        off[order] += weight * (rate - mean)
    count = len(values)
    error = (sum(x**2 for x in off.values()) * count / (count - 1)) ** 0.5 / sum(
        weights
    )
    effective = sum(weights) ** 2 / sum(x**2 for x in values.values())
    z = NormalDist().inv_cdf(0.975)
    reach = error * (z + (z**3 + z) / 4 / (effective - 1))
    return {
        "mean_fee_bps": sum(rates) / len(rates), "weighted_fee_bps": mean, "median_fee_bps": median(rates),
        "low_fee_bps": mean - reach, "high_fee_bps": mean + reach, "fills": len(rates), "orders": count,
    }  # fmt: skip


def test_means_and_intervals_are_those_of_their_definition() -> None:
    fills = drawn(150, 1)
    found = estimated(fills).set_index("part")
    for group, mine in fills.groupby("part"):
        expected = by_definition(mine)
        assert found.loc[group, list(expected)].to_dict() == pytest.approx(
            expected, rel=1e-12
        )


def test_the_interval_holds_the_true_mean_in_nineteen_of_twenty_samples() -> None:
    samples = pd.concat(
        [drawn(100, seed, 1).assign(part=seed) for seed in range(300)],
        ignore_index=True,
    )
    found = estimated(samples)
    held = ((found["low_fee_bps"] < 5) & (found["high_fee_bps"] > 5)).mean()
    assert 0.9 < held < 0.985


def test_few_fills_few_orders_and_unequal_ones_give_no_interval() -> None:
    few = estimated(drawn(8, 7, 1).head(19))
    assert few["low_fee_bps"].isna().all()
    assert few["weighted_fee_bps"].notna().all()
    fills = drawn(200, 8, 1)
    one_order = estimated(fills.assign(order_hash="1"))
    assert one_order["low_fee_bps"].isna().all()
    whale = fills.assign(
        notional=fills["notional"].where(fills["order_hash"] != "7", Decimal(10**9))
    )
    assert estimated(whale)["low_fee_bps"].isna().all()


def test_rows_without_a_rate_or_a_value_are_left_out() -> None:
    fills = drawn(60, 9, 1)
    odd = pd.concat(
        [
            fills,
            fills.head(5).assign(fee_bps=np.nan),
            fills.head(3).assign(notional=None),
        ]
    )
    found = estimated(odd.astype({"notional": lab.amounts.AMOUNT}))
    expected = estimated(fills)
    assert found.loc[0, ["fills", "unpriced"]].tolist() == [len(odd), 5]
    names = ["weighted_fee_bps", "low_fee_bps", "high_fee_bps"]
    assert found[names].to_numpy() == pytest.approx(
        expected[names].to_numpy(), rel=1e-12
    )
    nan = pa.table(
        {
            name: pa.array([float("nan")] * 3)
            if name == "fee_bps"
            else pa.array(fills[name].head(3))
            for name in fills
        }
    )
    assert estimated(nan)["unpriced"].to_pylist() == [3] * len(estimated(nan))


def test_several_quote_tokens_are_weighed_in_one() -> None:
    fills = drawn(80, 10, 1)
    mixed = fills.assign(quote=np.where(fills["order_hash"].astype(int) % 2, "U", "T"))
    times = np.where(mixed["quote"] == "U", 2000.0, 1.0)
    weights = fills["notional"].astype(float) * times
    found = estimated(mixed, [])
    assert found.loc[0, "weighted_fee_bps"] == pytest.approx(
        np.average(fills["fee_bps"], weights=weights)
    )
    apart = estimated(mixed, ["quote"]).set_index("quote")
    for token, mine in mixed.groupby("quote"):
        assert apart.loc[token, "low_fee_bps"] == pytest.approx(
            by_definition(mine)["low_fee_bps"], rel=1e-12
        )
    unknown = mixed.assign(
        quote=mixed["quote"].where(mixed["quote"] == "T", "V")
    )  # leads to no other token
    own = by_definition(mixed[mixed["quote"] == "T"])
    assert estimated(unknown, []).loc[0, "weighted_fee_bps"] == pytest.approx(
        own["weighted_fee_bps"]
    )
