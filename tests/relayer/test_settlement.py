"""The synthetic world's blocks: its fills at their places, a ledger that holds, and keys that owners signed."""

import random
from collections import Counter, defaultdict
from functools import cache
from hashlib import sha256
from itertools import pairwise

import pytest
from eth_abi import decode

import loopring_lab as lab
from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.settlement import OPERATOR, SAVERS, Settlement
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


@worlds
def test_accounts_are_opened_before_they_trade_by_their_own_owners(world):
    relayer = Relayer(world)
    owners = {account: relayer.signer(account).address for account in world.accounts}
    wallet = relayer.counterfactual(max(world.accounts))
    assert wallet is not None
    owners[max(world.accounts)] = protocol.wallet_address(
        wallet["walletFactory"], wallet["walletOwner"], wallet["walletSalt"],
        protocol.FACTORY_INIT_CODE_HASHES[wallet["walletFactory"]],
    )  # fmt: skip
    owners |= world.pool_owners()
    first = {}
    for row in rows(world, "deposit"):
        assert "0x" + row["owner"].hex() == owners[row["account"]].lower()
        first.setdefault(row["account"], row["block"])
    keys = {row["account"]: row for row in rows(world, "account_update") if row["nonce"] == 0}
    traders = {account for fill in world.fills if fill.block_id for account in (fill.taker, fill.maker)}
    for fill in world.fills:
        if fill.block_id:
            assert max(first[fill.taker], first[fill.maker]) < fill.block_id
    for account in traders - set(world.pools.values()):
        key = relayer.l2_key(account)
        assert int.from_bytes(keys[account]["public_key"]) == protocol.pack_public_key(key.x, key.y)
        assert "0x" + keys[account]["owner"].hex() == owners[account].lower()
    assert traders - set(world.pools.values()) == keys.keys() - set(SAVERS)


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


def test_savers_are_opened_by_a_transfer_and_change_their_keys():
    world = WORLDS[0]
    opened = {row["receiver"]: row["to"] for row in rows(world, "transfer") if row["receiver"] in SAVERS}
    updates = [row for row in rows(world, "account_update") if row["account"] in SAVERS]
    assert opened.keys() == set(SAVERS)
    assert Counter((row["nonce"], row["kind"]) for row in updates) == {(0, 1): 6, (1, 1): 6, (2, 0): 6}
    assert all(row["owner"] == opened[row["account"]] for row in updates)
    assert len({row["public_key"] for row in updates}) == len(updates)


def test_key_updates_are_signed_by_the_owners():
    world, settings = WORLDS[0], Settings()
    settlement = settled(world)[0]
    updates = [row for row in rows(world, "account_update") if row["kind"]]
    signers, kinds = [], set()
    for row in updates:
        entries = {at: rest for at, *rest in settlement.submission(row["block"]).auxiliary}
        approved, auxiliary = entries[row["index_in_block"]]
        assert not approved
        signature, max_fee, valid_until = decode(["(bytes,uint96,uint32)"], auxiliary)[0]
        header = settlement.timestamp(row["block"])
        assert row["fee"] <= max_fee
        assert header < valid_until < header + 90 * 86_400
        packed = int.from_bytes(row["public_key"])
        message = protocol.account_update_typed_data(
            exchange=settings.exchange, chain_id=settings.chain_id, owner="0x" + row["owner"].hex(),
            account_id=row["account"], x=0, y=1, fee_token_id=row["fee_token"], max_fee=max_fee,
            valid_until=valid_until, nonce=row["nonce"],
        )  # fmt: skip
        message["message"]["publicKey"] = packed
        signers.append(recovered(message, signature) == "0x" + row["owner"].hex())
        kinds.add(signature[65])
    wallet = [row["account"] == max(world.accounts) for row in updates]
    assert signers == [not each for each in wallet]
    assert sum(wallet) == 1
    assert kinds == {protocol.KIND_EIP712, protocol.KIND_PERSONAL}


def recovered(message, signature):
    from eth_account import Account
    from eth_account.messages import encode_defunct, encode_typed_data
    from eth_utils.crypto import keccak

    signable = encode_typed_data(full_message=message)
    if signature[65] == protocol.KIND_PERSONAL:
        signable = encode_defunct(keccak(b"\x19" + signable.version + signable.header + signable.body))
    return Account.recover_message(signable, signature=signature[:65]).lower()


def test_every_conditional_transaction_has_auxiliary_data_and_no_other():
    settlement = settled(WORLDS[0])[0]
    for number in range(settlement.first, settlement.first + 400):
        submission = settlement.submission(number)
        conditional = int.from_bytes(submission.data[90:94])
        assert len(submission.auxiliary) == conditional
        assert [at for at, *_ in submission.auxiliary] == sorted({at for at, *_ in submission.auxiliary})


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


@pytest.mark.parametrize("number", [20_098, 0, 10**6])
def test_other_blocks_are_refused(number):
    with pytest.raises(LabError, match=f"Block {number}: the chain has blocks 20099 to "):
        settled(WORLDS[0])[0].data(number)
