"""The synthetic world's blocks: its fills at their places, a ledger that holds, and keys that owners signed."""

import json
import random
from collections import Counter, defaultdict
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from support import encoding
from support.settlement import OPERATOR, Settlement

import loopring_lab as lab
from loopring_lab.relayer import Settings, World
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.rollup.calldata import RawBlock

WORLDS = [World(1, 0.01), World(2, 0.003), World(7, 0.02, "book"), World(3, 0.001, "neither")]
FIELD = 21888242871839275222246405745257275088548364400416034343698204186575808495617
HALF_HOUR = 1_800_000
SLOTS = {16, 32, 64, 128, 256, 384, 512, 1024}

MORE = [pytest.param(world, marks=pytest.mark.thorough) for world in WORLDS[1::2]]
worlds = pytest.mark.parametrize("world", [*WORLDS[::2], *MORE], ids=lambda world: world.name)


@cache
def settled(world):
    """Return the settlement of a world, the numbers of its blocks, and the blocks as they are read."""
    settlement = Settlement(world, Settings())
    numbers = range(settlement.first, settlement.last + 1)
    return settlement, numbers, lab.rollup.Blocks([RawBlock(settlement.data(number)) for number in numbers])


def rows(world, kind):
    _, numbers, blocks = settled(world)
    return [row | {"block": numbers[row["block"]]} for row in blocks.table(kind).to_pylist()]


@pytest.mark.thorough
@worlds
def test_every_settled_fill_is_at_its_place_with_every_amount(world):
    expected = {}
    for fill in world.fills:
        base, quote = MARKETS[fill.market].base.id, MARKETS[fill.market].quote.id
        sold, bought = ((quote, fill.quote), (base, fill.size))[:: 1 if fill.side == "BUY" else -1]
        expected[fill.block_id, fill.index_in_block] = {
            "account_a": fill.taker, "account_b": fill.maker,
            "storage_a": fill.taker_storage, "storage_b": fill.maker_storage,
            "sell_a": sold[0], "buy_b": sold[0], "fill_a": sold[1],
            "sell_b": bought[0], "buy_a": bought[0], "fill_b": bought[1],
            "fee_bips_a": fill.fee_bps, "fee_bips_b": 0, "fee_a": fill.fee, "fee_b": 0,
        }  # fmt: skip
    unsettled = [fill for fill in world.fills if not fill.block_id]
    assert unsettled == list(world.fills[-len(unsettled) :]) != []
    del expected[0, 0]
    found = {(row["block"], row["index_in_block"]): row for row in rows(world, "spot_trade")}
    assert found.keys() == expected.keys()
    for place, facts in expected.items():
        assert {name: int(found[place][name]) for name in facts} == facts


@pytest.mark.thorough
@worlds
def test_headers_chain_and_count(world):
    _, numbers, blocks = settled(world)
    headers = blocks.headers_table.to_pylist()
    assert numbers[0] == 20_099
    assert numbers[-1] == max(fill.block_id for fill in world.fills)
    assert {header["size"] for header in headers} <= SLOTS
    assert {header["exchange"].hex() for header in headers} == {Settings().exchange[2:].lower()}
    assert {header["operator"] for header in headers} == {OPERATOR}
    assert all(int.from_bytes(header["merkle_root_after"]) < FIELD for header in headers)
    assert len({header["merkle_root_after"] for header in headers}) == len(headers)
    for before, after in pairwise(headers):
        assert after["merkle_root_before"] == before["merkle_root_after"]
        assert after["timestamp"] == before["timestamp"] + HALF_HOUR // 1000
    times = dict(zip(numbers, (header["timestamp"] * 1000 for header in headers), strict=True))
    settled_fills = [fill for fill in world.fills if fill.block_id]
    assert all(times[fill.block_id] - HALF_HOUR <= fill.time_ms < times[fill.block_id] for fill in settled_fills)
    conditional = Counter(
        row["block"]
        for kind in ("deposit", "withdrawal", "amm_update", "transfer", "account_update")
        for row in rows(world, kind)
        if row.get("kind", 1) or kind == "withdrawal"
    )
    assert {n: header["conditional"] for n, header in zip(numbers, headers, strict=True)} == {
        n: conditional[n] for n in numbers
    }


@pytest.mark.thorough
@worlds
def test_no_account_is_overdrawn_and_pools_publish_what_the_ledger_says(world):
    ledger, published = defaultdict(int), Counter()
    events = [
        (row["block"], row["index_in_block"], kind, row)
        for kind in ("deposit", "withdrawal", "transfer", "spot_trade", "account_update", "amm_update")
        for row in rows(world, kind)
    ]
    for block, index, kind, row in sorted(events, key=lambda event: event[:2]):
        if kind == "amm_update":
            published[row["account"]] += 1
            assert row["balance"] == ledger[row["account"], row["token"]], (block, index)
        for account, token, change in changes(kind, row):
            ledger[account, token] += change
            assert ledger[account, token] >= 0, (block, index, account, token)
    days = (settled(world)[0].last - 20_099) // 48
    assert set(published) == set(world.pools.values())
    assert all(2 * days <= count <= 2 * (days + 2) for count in published.values())


def changes(kind, row):
    """Return what a transaction changes, as the protocol says; where fees go is left out."""
    fee = -int(row.get("fee", 0))
    if kind == "deposit":
        return [(row["account"], row["token"], int(row["amount"]))]
    if kind == "withdrawal":
        return [(row["account"], row["token"], -int(row["amount"])), (row["account"], row["fee_token"], fee)]
    if kind == "transfer":
        amount = int(row["amount"])
        return [(row["sender"], row["token"], -amount), (row["sender"], row["fee_token"], fee),
                (row["receiver"], row["to_token"], amount)]  # fmt: skip
    if kind == "account_update":
        return [(row["account"], row["fee_token"], fee)]
    if kind == "amm_update":
        return []
    a, b, paid, received = row["account_a"], row["account_b"], int(row["fill_a"]), int(row["fill_b"])
    fee = received * row["fee_bips_a"] // 10_000
    return [(a, row["sell_a"], -paid), (b, row["buy_b"], paid), (b, row["sell_b"], -received),
            (a, row["buy_a"], received - fee)]  # fmt: skip


def test_storage_ids_are_used_once_by_one_order_or_transfer():
    world = WORLDS[0]
    orders = {
        (row[f"account_{side}"], row[f"sell_{side}"], row[f"storage_{side}"])
        for row in rows(world, "spot_trade")
        for side in "ab"
    }
    others = Counter(
        (row.get("sender", row.get("account")), row["token"], row["storage"])
        for kind in ("transfer", "withdrawal")
        for row in rows(world, kind)
    )
    assert max(others.values()) == 1
    assert not orders & others.keys()


def test_blocks_are_the_same_in_any_order_and_differ_between_worlds():
    world, settings = WORLDS[0], Settings()
    settlement, numbers, _ = settled(world)
    again, chance = Settlement(World(1, 0.01), settings), random.Random(5)
    for number in chance.sample(numbers, 300):
        assert again.data(number) == settlement.data(number)
        assert again.submission(number) == settlement.submission(number)
    other = Settlement(WORLDS[1], settings)
    elsewhere = Settlement(world, Settings(exchange="0x" + 40 * "e"))
    hashes = {sha256(each.data(20_150)).digest() for each in (settlement, other, elsewhere)}
    assert len(hashes) == 3
    assert not {other.root(20_150), elsewhere.root(20_150)} & {settlement.root(20_150)}


def number(value):
    return int(value, 16) if str(value).startswith("0x") else int(value)


def built(kind, values):
    return kind(*(number(values[name]) for name in kind._fields))


def test_a_real_block_is_encoded_byte_for_byte(recordings: Path):
    """The encoder is right where the reader is not asked."""
    folder = recordings / "rollup_block_a"
    header = json.loads((folder / "header.json").read_text())
    transactions = [encoding.Noop()] * header["block_size"]
    for record in map(json.loads, (folder / "transactions.jsonl").read_text().splitlines()):
        kind = getattr(encoding, record["type"].title().replace("_", ""))
        transactions[record["index"]] = built(kind, record)
    data = encoding.encode_block(built(encoding.Header, header), transactions)
    assert data.hex() == (folder / "data.hex").read_text().strip().removeprefix("0x")
