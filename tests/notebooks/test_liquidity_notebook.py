"""The notebook on liquidity, on blocks, a real block, other worlds and saved responses: what it says is true."""

from decimal import Decimal

import pandas as pd
import pytest
from notebooks.test_notebook_claims import WORLDS, Run, run, served
from support.reserves import of_world
from support.settled_block import settled_of

import loopring_lab as lab
from loopring_lab.relayer import World

pytestmark = [pytest.mark.contract, pytest.mark.thorough]

NOTEBOOK = "07_liquidity.ipynb"
POOL = 1
UNKNOWN = "What rebalancing cost is not known"


def says_how_many(found: Run, fills: int) -> bool:
    return found.numbers(f"# fills of account {POOL}.") == [fills]


def test_on_demo_blocks_it_says_what_the_world_knows():
    found = run(NOTEBOOK)
    world = World()
    count = len(lab.connect(blocks="demo").trades(POOL))
    assert says_how_many(found, count)
    events = of_world(world, "LRC-ETH", []).events[:count]
    earned = found.names["earned"]
    fees = [sum(event.kept[side] for event in events) for side in (0, 1)]
    assert sum(earned["base_fees"], Decimal(0)) == Decimal(fees[0]).scaleb(-18)
    assert sum(earned["quote_fees"], Decimal(0)) == Decimal(fees[1]).scaleb(-18)
    counted = found.names["pool"]["flow"].value_counts()
    arbitrage = sum(event.flow == "arbitrage" for event in events)
    assert counted["arbitrage"] == arbitrage
    assert counted["user"] == count - arbitrage
    exact = found.numbers("to the last digit, in # of # periods with a known value.")
    assert exact == [len(earned), len(earned)]
    assert found.names["known"]


@pytest.mark.parametrize("name", WORLDS)
def test_on_a_relayer_the_fee_is_assumed_and_nothing_is_said_of_a_position(name):
    world = WORLDS[name]
    with served(world) as address:
        found = run(NOTEBOOK, base_url=address, blocks=None)
    fills = [f for f in world.fills if f.maker == POOL and f.venue == "amm"]
    assert says_how_many(found, len(fills))
    assert "Fees, assumed: " in found.text
    assert "The position went" not in found.text
    assert found.numbers("to the last digit, in # of # periods") == [0, 0]
    assert found.names["earned"]["fills"].sum() == len(fills)


def test_on_a_real_block_it_names_fees_and_no_loss():
    found = run(NOTEBOOK, blocks="sample")
    blocks = lab.connect(blocks="sample").store.blocks()
    fills = blocks.pool_fills(POOL)
    assert says_how_many(found, len(fills))
    assert UNKNOWN in found.text
    assert "measured" in found.text
    assert "Nothing to draw." in found.text
    assert found.numbers("to the last digit, in # of # periods") == [0, 0]


def test_on_saved_responses_it_names_fees_and_no_loss(any_block_folder):
    found = run(NOTEBOOK, recording=str(any_block_folder), blocks=None)
    facts = [
        fact
        for fact in settled_of(any_block_folder).values()
        if fact["account_id"] == POOL
    ]
    assert says_how_many(found, len(facts))
    assert "bps" not in found.text
    known: pd.DataFrame = found.names["earned"]
    assert known["fills"].sum() == sum(fact["role"] == "maker" for fact in facts)
