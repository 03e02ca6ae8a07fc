"""Estimates of fills: intervals against their definition, comparisons and pools against the world's truth."""

from statistics import median

import numpy as np
import pyarrow as pa
import pytest
from support.wire_rows import page, read, row

from loopring_lab.engines import convert
from loopring_lab.fills import intervals


def drawn(orders: int, seed: int) -> dict[str, np.ndarray]:
    """Draw fills of a number of orders, one to three of each, in two groups."""
    chance = np.random.default_rng(seed)
    parts = chance.integers(1, 4, orders)
    fills = int(parts.sum())
    return {
        "values": np.repeat(chance.normal(5, 20, orders), parts) + chance.normal(0, 3, fills),
        "weights": chance.lognormal(6, 1, fills),
        "orders": np.repeat(chance.integers(0, 2**63, orders, dtype=np.uint64), parts),
        "groups": np.repeat(chance.integers(0, 2, orders), parts),
    }


def estimated(fills: dict[str, np.ndarray], count: int = 2, seed: int = 0) -> dict[str, list]:
    found = intervals.estimate(
        {"bps": fills["values"]}, fills["weights"], fills["orders"], fills["groups"], count, 0.95, seed
    )
    return {name: column.to_pylist() for name, column in found.items()}


def test_means_and_medians_are_those_of_their_definition() -> None:
    fills = drawn(150, 1)
    found = estimated(fills)
    for group in (0, 1):
        mine = fills["groups"] == group
        values, weights = fills["values"][mine].tolist(), fills["weights"][mine].tolist()
        assert found["orders"][group] == len(set(fills["orders"][mine].tolist()))
        assert found["mean_bps"][group] == pytest.approx(sum(values) / len(values))
        assert found["median_bps"][group] == pytest.approx(median(values))
        assert found["weighted_bps"][group] == pytest.approx(
            sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)
        )
        assert found["low_bps"][group] < found["weighted_bps"][group] < found["high_bps"][group]


def test_the_interval_holds_the_true_mean_in_nineteen_of_twenty_samples() -> None:
    held = 0
    for seed in range(200):
        fills = drawn(100, seed) | {"groups": np.zeros(1, int)}
        fills["groups"] = np.zeros(len(fills["values"]), int)
        found = estimated(fills, 1, seed)
        held += found["low_bps"][0] < 5 < found["high_bps"][0]
    assert 0.9 < held / 200 < 0.99


def test_fills_of_one_order_count_as_one_decision() -> None:
    """Fills copied ten times within their orders say no more; as orders of their own they seem to."""
    fills = drawn(100, 3)
    copied = {name: np.repeat(column, 10) for name, column in fills.items()}
    once, again = estimated(fills), estimated(copied)
    assert again["low_bps"] == pytest.approx(once["low_bps"])
    assert again["high_bps"] == pytest.approx(once["high_bps"])
    apart = estimated(copied | {"orders": np.arange(len(copied["values"]), dtype=np.uint64)})
    assert apart["high_bps"][0] - apart["low_bps"][0] < (once["high_bps"][0] - once["low_bps"][0]) / 2


def test_intervals_depend_on_neither_the_order_of_rows_nor_other_groups() -> None:
    fills = drawn(200, 4)
    found = estimated(fills)
    mixed = np.random.default_rng(5).permutation(len(fills["values"]))
    assert estimated({name: column[mixed] for name, column in fills.items()}) == found
    alone = fills["groups"] == 1
    only = estimated({name: column[alone] for name, column in fills.items()})
    assert {name: column[1] for name, column in only.items()} == {
        name: column[1] for name, column in found.items()
    }
    assert estimated(fills, seed=1)["low_bps"] != found["low_bps"]
    assert estimated(fills, seed=1)["weighted_bps"] == found["weighted_bps"]


def test_many_orders_are_put_together_without_a_narrower_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    fills = drawn(4000, 6)
    whole = estimated(fills)
    monkeypatch.setattr(intervals, "UNITS_AT_MOST", 512)
    fewer = estimated(fills)
    for group in (0, 1):
        widths = [found["high_bps"][group] - found["low_bps"][group] for found in (whole, fewer)]
        assert widths[1] == pytest.approx(widths[0], rel=0.15)
    assert fewer["weighted_bps"] == pytest.approx(whole["weighted_bps"])


def test_few_fills_few_orders_and_unknown_weights_give_no_interval() -> None:
    few = {name: column[:19] for name, column in drawn(19, 7).items()} | {"groups": np.zeros(19, int)}
    assert estimated(few, 1)["low_bps"] == [None]
    assert estimated(few, 1)["weighted_bps"][0] is not None
    fills = drawn(200, 8)
    one_order = fills | {"orders": np.ones(len(fills["values"]), np.uint64)}
    assert estimated(one_order)["low_bps"] == [None, None]
    unweighted = fills | {"weights": np.where(np.arange(len(fills["values"])) == 5, np.nan, fills["weights"])}
    found, group = estimated(unweighted), int(fills["groups"][5])
    assert found["weighted_bps"][group] is None
    assert found["low_bps"][group] is None
    assert found["mean_bps"][group] == estimated(fills)["mean_bps"][group]
    empty = estimated({name: column[:0] for name, column in fills.items()})
    assert empty["orders"] == [0, 0]
    assert empty["weighted_bps"] == [None, None]


def test_weights_are_values_in_the_quote_token_with_most_fills() -> None:
    """ETH at 2000 USDT, later 3000; LRC at 1/1000 ETH; a market that nothing connects has no value."""
    rows = [
        row(market="ETH-USDT", price="2000.0", createdAt="1000000", size=str(10**18)),
        row(market="ETH-USDT", price="3000.0", createdAt="9000000", size=str(10**18)),
        row(market="ETH-USDT", price="3000.0", createdAt="9000000", size=str(2 * 10**18)),
        row(market="LRC-ETH", price="0.001", createdAt="1500000", size=str(5 * 10**21)),
        row(market="LRC-ETH", price="0.001", createdAt="8500000", size=str(5 * 10**21)),
    ]
    fills = convert.to_pandas(
        read([page(rows)]), "test", ["created_at", "base", "quote", "price", "notional"]
    )
    table = convert.normalize(
        pa.Table.from_pandas(fills.assign(moment=fills["created_at"].astype("int64")), preserve_index=False)
    )
    found = intervals.values_in_one_token(table, table)  # read in order of time
    assert found.tolist() == pytest.approx([2000, 10_000, 15_000, 3000, 6000])
    lrc = table.slice(1, 2)
    assert intervals.values_in_one_token(lrc, table).tolist() == pytest.approx([5, 5])
    apart = intervals.values_in_one_token(table, lrc)
    assert np.isnan(apart).tolist() == [False, True, True, False, False]
