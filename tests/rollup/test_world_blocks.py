"""One world, two ways: the trades that the relayer serves, and the same trades from the chain's blocks."""

import pytest

import loopring_lab as lab
from loopring_lab.relayer import World

WORLD = World()
PLACE = ["account_id", "block_id", "index_in_block"]
SAME = ["market", "base", "quote", "side", "fill_type", "role", "fee_token"]
EXACT = ["size", "fee", "token_id", "storage_id"]
PRICE_DIGITS = 10**8  # what the relayer cuts prices to


@pytest.fixture(scope="module")
def blocks():
    return lab.connect(blocks="demo")


def in_order(frame):
    return frame.sort_values(PLACE).reset_index(drop=True)


def cut(prices):
    return [int(price * PRICE_DIGITS) for price in prices]


def test_the_frame_by_blocks_is_the_frame_by_relayer(blocks):
    accounts = [WORLD.pools["ETH-USDT"], *WORLD.accounts[:2]]
    found = in_order(blocks.trades(accounts))
    client = lab.connect()
    served = client.trades(accounts, until=found["created_at"].max(), progress=False)
    served = in_order(served[served["block_id"].between(1, found["block_id"].max())])
    assert len(served) == len(found) > 500
    assert set(served["fill_type"]) == {"amm", "dex"}
    assert list(found.columns) == list(served.columns)
    for name in [*PLACE, *EXACT]:
        assert found[name].tolist() == served[name].tolist(), name
    for name in SAME:
        assert found[name].astype(str).tolist() == served[name].astype(str).tolist()
    assert cut(found["price"]) == cut(served["price"])
    assert found["extra"].isna().all()
    assert found["order_hash"].isna().all()
    late = (found["created_at"] - served["created_at"]).dt.total_seconds()
    assert late.between(0, 1800, inclusive="right").all()


def test_notional_is_the_quote_leg_of_the_world_exactly(blocks):
    decimals = blocks.tokens()["decimals"].to_dict()
    legs = {(fill.block_id, fill.index_in_block): fill.quote for fill in WORLD.fills}
    for row in blocks.trades().to_dict("records"):
        leg = legs[row["block_id"], row["index_in_block"]]
        assert row["notional"] * 10 ** int(decimals[row["quote"]]) == leg
