"""One world, two ways: the trades that the relayer serves, and the same trades from the chain's calldata."""

import json
from functools import cache

import pandas as pd
import pytest
from support.settled_world import SettledWorld

import loopring_lab as lab
from loopring_lab.relayer import Relayer, Settings
from loopring_lab.relayer.chain import Endpoint

WORLDS = [
    SettledWorld(1, 0.01),
    SettledWorld(2, 0.003),
    SettledWorld(7, 0.01, "book"),
    SettledWorld(3, 0.002, "neither"),
]
SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
PLACE = ["account_id", "block_id", "index_in_block"]
SAME = ["market", "base", "quote", "side", "fill_type", "role", "fee_token"]
EXACT = ["size", "fee", "token_id", "storage_id"]
PRICE_DIGITS = 10**8  # what the relayer cuts prices to

pytestmark = pytest.mark.thorough
worlds = pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)


@cache
def by_relayer(world):
    """Return every account's settled trades as the relayer serves them, and its listings."""
    with Relayer(world) as relayer:
        client = lab.connect(relayer.base_url, api_key=relayer.api_key, rate=None)
        accounts = [*world.accounts, *world.pools.values()]
        frames = [client.trades(account, progress=False) for account in accounts]
        listings = client.tokens(), client.markets()
    frame = pd.concat(frames, ignore_index=True)
    frame = frame[frame["block_id"].fillna(0) > 0]
    return in_order(frame), *listings


@cache
def from_the_chain(world):
    """Return the blocks that hold fills, decoded from the calldata that the chain serves."""
    endpoint = Endpoint(world, Settings())

    def ask(method, *params):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return json.loads(endpoint.answer(json.dumps(body).encode()))["result"]

    wanted = [
        [SUBMITTED],
        [f"0x{number:064x}" for number in {fill.block_id for fill in world.fills}],
    ]
    logs = ask(
        "eth_getLogs",
        {"fromBlock": "earliest", "address": Settings().exchange, "topics": wanted},
    )
    raw = []
    for transaction, log in {log["transactionHash"]: log for log in logs}.items():
        first_block = int(log["topics"][1], 16) - int(log["logIndex"], 16)
        calldata = ask("eth_getTransactionByHash", transaction)["input"]
        raw += lab.rollup.decode(calldata, first_block=first_block).raw
    return lab.rollup.Blocks(raw, known_pools=world.pools.values())


def in_order(frame):
    return frame.sort_values(PLACE).reset_index(drop=True)


def cut(prices):
    return [int(price * PRICE_DIGITS) for price in prices]


@worlds
def test_the_frame_by_blocks_is_the_frame_by_relayer(world):
    served, tokens, markets = by_relayer(world)
    found = in_order(from_the_chain(world).trades(tokens, markets))
    assert list(found.columns) == list(served.columns)
    assert found.dtypes.drop(["market", "base", "quote"]).equals(
        served.dtypes.drop(["market", "base", "quote"])
    )
    for name in [*PLACE, *EXACT]:
        assert found[name].tolist() == served[name].tolist(), name
    for name in SAME:
        assert found[name].astype(str).tolist() == served[name].astype(str).tolist(), (
            name
        )
    assert cut(found["price"]) == cut(served["price"])
    assert found["extra"].isna().all()
    assert found["order_hash"].isna().all()
    late = (found["created_at"] - served["created_at"]).dt.total_seconds()
    assert late.between(0, 1800, inclusive="right").all()
    fill = served.groupby(["block_id", "index_in_block"])["size"].transform("size")
    assert (fill == 2).all()
    assert (found.groupby("trade_id").size() == 2).all()
    assert len(lab.anomalies(found)) == 0


@worlds
def test_notional_is_the_quote_leg_of_the_world_exactly(world):
    _, tokens, markets = by_relayer(world)
    decimals = tokens["decimals"].to_dict()
    legs = {(fill.block_id, fill.index_in_block): fill.quote for fill in world.fills}
    for row in from_the_chain(world).trades(tokens, markets).to_dict("records"):
        leg = legs[row["block_id"], row["index_in_block"]]
        assert row["notional"] * 10 ** int(decimals[row["quote"]]) == leg
