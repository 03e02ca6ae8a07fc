"""What pools hold, from blocks: as the world knows it, across batches, and nothing beyond a gap."""

import pandas as pd
import pytest
from support.worlds import pool_balances

import loopring_lab as lab
from loopring_lab.relayer import World
from loopring_lab.sources import blocks

AMOUNTS = ["base_balance", "quote_balance"]


@pytest.fixture(scope="module")
def demo():
    return lab.connect(blocks="demo").pool_balances()


def test_balances_after_each_fill_are_those_of_the_world(demo):
    place = ["market", "block_id", "index_in_block"]
    both = demo.merge(pool_balances(World(1)), on=place, suffixes=("", "_true"))
    known = both[both["base_balance"].notna() & both["quote_balance"].notna()]
    assert len(known) > 3_000
    for name in AMOUNTS:
        assert (known[name] == known[f"{name}_true"]).all()
    assert known["base_decimals"].eq(known["base_decimals_true"]).all()
    assert known["quote_decimals"].eq(known["quote_decimals_true"]).all()


@pytest.mark.thorough
def test_blocks_are_read_a_few_at_a_time(demo, monkeypatch):
    monkeypatch.setattr(blocks, "KEPT_SLOTS", 0)
    monkeypatch.setattr(blocks, "AT_ONCE", 50)
    pd.testing.assert_frame_equal(lab.connect(blocks="demo").pool_balances(), demo)


def test_where_a_block_is_missing_balances_come_from_statements_of_their_own_side(
    demo, monkeypatch
):
    client = lab.connect(blocks="demo")
    numbers = demo["block_id"].drop_duplicates().tolist()
    missing = numbers[len(numbers) // 2]
    store = client.store
    batches = [store.blocks(last=missing - 1), store.blocks(first=missing + 1)]
    monkeypatch.setattr(client._contents, "batches", lambda: batches)
    found = client.pool_balances()
    before = found[found["block_id"] < missing]
    pd.testing.assert_frame_equal(before, demo[demo["block_id"] < missing])
    ends = found[found["index_in_block"].isna()]
    assert set(ends["market"]) == set(before["market"])
    assert set(ends["block_id"]) == {missing + 1}
    assert ends[AMOUNTS].isna().all(axis=None)
    # What is known after the gap is what is known with the block, also before the next statement of a pool.
    place = ["market", "block_id", "index_in_block"]
    after = found[(found["block_id"] > missing) & found["index_in_block"].notna()]
    both = after.merge(demo, on=place, suffixes=("", "_whole"))
    assert len(both) == len(after) > 0
    for name in AMOUNTS:
        assert (both[name] == both[f"{name}_whole"]).all()
    stated = store.blocks(first=missing + 1).amm_updates()
    first = after["account_id"].map(stated.groupby("account_id")["block_id"].min())
    assert (after["block_id"] < first).sum() > 40


def test_no_blocks_have_no_balances(demo, monkeypatch):
    client = lab.connect(blocks="demo")
    client.markets()
    monkeypatch.setattr(client._contents, "batches", list)
    found = client.pool_balances()
    assert found.empty
    assert found.columns.tolist() == demo.columns.tolist()
