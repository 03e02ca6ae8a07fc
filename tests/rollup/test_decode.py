"""Slots and frames against a slow second reader, for every type, at random and at the extremes."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rollup_blocks import (
    MINT_TO,
    TYPES,
    WIDTHS,
    block_data,
    slot,
    varied_data,
    varied_slot,
)

import loopring_lab as lab

few = settings(max_examples=40)
DATA = [varied_data(seed, size) for seed, size in enumerate((64, 0, 1, 128, 384))]
ADDRESS = int.from_bytes(bytes(range(1, 21)), "big")
OWNER = "0x" + bytes(range(1, 21)).hex()


# A slow second reader, in plain integers, by the documented format

FIRST_NFT = 32_768
FLOATS = {3: 19, 2: 11}  # bits of the mantissa, by width
BYTES = {
    "owner",
    "to",
    "from_",
    "onchain_data_hash",
    "public_key",
    "data",
    "nft_id",
    "address",
}
MADE = (
    "fee",
    "amount",
    "fill_a",
    "fill_b",
)  # floats where they are two or three bytes wide


def slow_rows(data):
    """Read each slot of a block as the protocol's fields, by hand."""
    size = (len(data) - 98) // 68
    for place in range(size):
        first = data[98 + 29 * place : 98 + 29 * (place + 1)]
        content = (
            first
            + data[98 + 29 * size + 39 * place : 98 + 29 * size + 39 * (place + 1)]
        )
        kind = TYPES[content[0]]
        yield {"index_in_block": place, "type": kind} | FIXED.get(
            kind, lambda row, _: row
        )(fields(kind, content), content)


def fields(kind, content):
    row: dict[str, Any] = {}
    for name, (start, width) in WIDTHS[kind].items():
        raw = content[start : start + width]
        whole = int.from_bytes(raw, "big")
        if name in BYTES:
            row[name] = raw
        elif name in MADE and width in FLOATS:
            row[name] = (whole % 2 ** FLOATS[width]) * 10 ** (
                whole // 2 ** FLOATS[width]
            )
        else:
            row[name] = whole
    return row


def transfer(row, _):
    return row | {"to_token": row["to_token"] or row["token"]}


def spot_trade(row, _):
    for own, other in ("ab", "ba"):
        data = row.pop(f"data_{own}")
        high = row.pop(f"high_{own}")
        row[f"fill_b_limit_{own}"] = data >= 128
        row[f"bit6_{own}"] = bool(data & 64)
        row[f"fee_bips_{own}"] = high * 64 + data % 64
        row[f"buy_{own}"] = row[f"buy_{own}"] or row[f"sell_{other}"]
    for own, other in ("ab", "ba"):
        sold = row[f"sell_{own}"]
        bought = row[f"buy_{own}"]
        amount = row[f"fill_{other}"]
        token = bought
        if bought >= FIRST_NFT:
            amount, token = (
                (row[f"fill_{own}"], sold) if sold < FIRST_NFT else (0, bought)
            )
        row[f"fee_{own}"] = amount * row[f"fee_bips_{own}"] // 10_000
        row[f"fee_token_{own}"] = token
    return row


def nft_mint(row, content):
    if row["kind"] == 0:
        return row | {"receiver": row["minter"], "to": bytes(20)}
    start, width = MINT_TO["receiver"]
    receiver = int.from_bytes(content[start : start + width], "big")
    unknown = dict.fromkeys(("nft_type", "token_account", "nft_id", "creator_bips"))
    return row | unknown | {"receiver": receiver, "to": content[32:52]}


FIXED: dict[str, Callable[[dict[str, Any], bytes], dict[str, Any]]] = {
    "transfer": transfer,
    "spot_trade": spot_trade,
    "nft_mint": nft_mint,
}


# Tables and frames


@pytest.fixture(scope="module")
def blocks():
    return lab.rollup.decode_data(DATA, first_block=100)


@given(st.sampled_from(TYPES), st.integers(0, 2**32))
@few
def test_every_field_at_random(kind, seed):
    chance = random.Random(seed)
    data = block_data([varied_slot(kind, chance) for _ in range(20)])
    (only,) = {row["type"] for row in slow_rows(data)}
    found = lab.rollup.decode_data(data).table(only).to_pylist()
    assert [row | {"block": 0} for row in found] == [
        {name: value for name, value in row.items() if name != "type"} | {"block": 0}
        for row in slow_rows(data)
    ]


FRAMES = {
    "deposit": "deposits",
    "withdrawal": "withdrawals",
    "transfer": "transfers",
    "spot_trade": "fills",
    "account_update": "account_updates",
    "amm_update": "amm_updates",
    "nft_mint": "nft_mints",
}


# Slots after the mint may say them.
SAID_LATER = {"nft_type", "nft_id", "creator_bips"}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_hold_what_the_tables_hold(kind, blocks):
    frame = getattr(blocks, FRAMES[kind])()
    table = blocks.table(kind)
    assert (frame["block_id"] - 100).tolist() == table["block"].to_pylist()
    for name in table.column_names:
        renamed = next(
            n for n in (f"{name}_id", f"{name.strip('_')}_address", name) if n in frame
        )
        if name in SAID_LATER or name == "block":
            continue
        column = frame[renamed].astype(object)
        assert column.where(column.notna(), None).tolist() == [
            "0x" + one.hex() if isinstance(one, bytes) else one
            for one in table[name].to_pylist()
        ]
    assert str(frame["created_at"].dtype) == "datetime64[ms, UTC]"


def test_units_stand_beside_smallest_units():
    listed = [
        {"tokenId": 0, "symbol": "ETH", "decimals": 18},
        {"tokenId": 3, "symbol": "USDT", "decimals": 6},
        {"tokenId": 4, "symbol": "WIDE", "decimals": 24},
    ]
    moves = [
        slot("transfer", token=token, amount=25, fee_token=3, fee=7)
        for token in (3, 0, 9, 4, 40_000)
    ]
    blocks = lab.rollup.decode_data(block_data(moves))
    frame = blocks.transfers(lab.tables.tokens(listed))
    assert frame["amount"].map(int).tolist() == [25] * 5
    assert frame["token"].dropna().tolist() == ["USDT", "ETH", "WIDE"]
    units = frame["amount_units"]
    assert units.dtype == lab.amounts.AMOUNT
    # 25e-24 of WIDE has more than 18 decimal places.
    assert units.dropna().map(str).tolist() == ["0.000025", "0.000000000000000025"]
    assert units.notna().tolist() == [True, True, False, False, False]
    assert str(frame["fee_units"][0]) == "0.000007"
    with pytest.raises(lab.LabError, match="tokens: expected"):
        blocks.transfers({"token_id": [3]})


def test_a_mint_says_what_the_slots_after_it_say():
    minter, receiver = 50_001, 50_002
    minted = {"minter": minter, "to_token": 33_000}
    mint = slot("nft_mint", kind=1, receiver=receiver, to=ADDRESS, **minted)
    plain = slot("nft_mint", kind=0, nft_id=5, token_account=60_000, **minted)
    said = {"account": receiver, "token": 33_000, "nft_id": 77, "creator_bips": 9}
    by_minter = slot("nft_data", scheme=0, address=ADDRESS, **said)
    by_contract = slot("nft_data", scheme=1, address=ADDRESS + 1, **said)
    other = slot("nft_data", scheme=1, address=ADDRESS + 1, **said | {"token": 33_001})
    data = [
        block_data([mint, by_minter, by_contract, plain]),
        block_data([mint, by_minter, other, mint]),
    ]
    frame = lab.rollup.decode_data(data).nft_mints()
    ids = frame["nft_id"].map(lambda text: int(text, 16), na_action="ignore")
    assert ids.fillna(-1).tolist() == [77, 5, 77, -1]
    assert frame["creator_bips"].fillna(-1).tolist() == [9, 0, 9, -1]
    assert frame["minter"].isna().tolist() == [False, True, False, True]
    assert frame["token_address"].isna().tolist() == [False, True, True, True]
    assert frame["receiver_id"].tolist() == [receiver, minter, receiver, receiver]
    assert frame["token_account_id"].isna().tolist() == [True, False, True, True]


def test_accounts_are_named_once_with_their_owner_and_first_transaction():
    first = [
        slot("spot_trade", account_a=50_003, account_b=12),
        slot("transfer", sender=50_003, receiver=50_004),
    ]
    second = [
        slot("amm_update", account=20_000, owner=ADDRESS + 7),
        slot("transfer", sender=50_003, receiver=50_005, to=ADDRESS),
        # Forced and invalid: not its owner.
        slot("withdrawal", kind=3, account=50_004, owner=ADDRESS),
        slot("deposit", account=50_003, owner=ADDRESS + 3),
    ]
    raw = lab.rollup.decode_data([block_data(first), block_data(second)]).raw
    frame = lab.rollup.Blocks(raw, {50_004}).accounts()
    names = ["account_id", "is_pool", "block", "index_in_block"]
    assert frame[names].to_numpy().tolist() == [
        [12, True, 0, 0],
        [20_000, True, 1, 0],
        [50_003, False, 0, 0],
        [50_004, True, 0, 1],
        [50_005, False, 1, 1],
    ]
    assert frame["owner"].isna().tolist() == [True, False, False, True, False]
    assert frame["owner"].iloc[4] == OWNER


def test_unknown_tables_are_refused():
    with pytest.raises(lab.LabError, match="Did you mean 'spot_trade'"):
        lab.rollup.decode_data(DATA[0]).table("spot_trades")
