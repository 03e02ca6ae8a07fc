"""The encoder of rollup blocks: the bytes of a real block, and what it refuses."""

import json
import os
from pathlib import Path

import pytest
from eth_abi import decode

from loopring_lab import LabError
from loopring_lab.relayer import encoding
from loopring_lab.relayer.encoding import (
    Header,
    Noop,
    Submission,
    encode_block,
    encode_calldata,
    encode_float,
)

RECORDINGS = os.environ.get("LOOPRING_LAB_RECORDINGS")
recorded = pytest.mark.skipif(not RECORDINGS, reason="LOOPRING_LAB_RECORDINGS names no recordings")
HEADER = Header(1, 2, 3, 1_650_000_000, 0, 0, 10)


def number(value):
    return int(value, 16) if str(value).startswith("0x") else int(value)


def built(kind, values):
    return kind(*(number(values[name]) for name in kind._fields))


@recorded
def test_a_real_block_is_encoded_byte_for_byte():
    folder = Path(RECORDINGS) / "rollup_block_a"
    header = json.loads((folder / "header.json").read_text())
    transactions = [Noop()] * header["block_size"]
    for record in map(json.loads, (folder / "transactions.jsonl").read_text().splitlines()):
        kind = getattr(encoding, record["type"].title().replace("_", ""))
        transactions[record["index"]] = built(kind, record)
    data = encode_block(built(Header, header), transactions)
    assert data.hex() == (folder / "data.hex").read_text().strip().removeprefix("0x")


def expanded(packed):
    """Undo the compression as ZeroDecompressor.sol does."""
    data, at = b"", 0
    while at < len(packed):
        literals, zeros = (int.from_bytes(packed[at + n : at + n + 2]) for n in (0, 2))
        data += packed[at + 4 : at + 4 + literals] + bytes(zeros)
        at += 4 + literals
    return data


@pytest.mark.parametrize("form", encoding.AUXILIARY)
@pytest.mark.parametrize("wrapper", [None, "dcb2aa31", "ebc8c7ee"])
@pytest.mark.parametrize("compressed", [True, False])
def test_calldata_holds_its_blocks_in_every_form(form, wrapper, compressed):
    data = encode_block(HEADER, [encoding.Deposit(5, 6, 7, 8)])
    call = encode_calldata([Submission(data, [(0, False, b"abc")])] * 2, form, wrapper, compressed)
    if wrapper is not None:
        assert call[:4].hex() == wrapper
        packed, call = decode(["bool", "bytes"], call[4:])
        assert packed is compressed
        call = expanded(call) if packed else call
    assert call[:4].hex() == form
    block_type = f"(uint8,uint16,uint8,bytes,uint256[8],bool,{encoding.AUXILIARY[form]},bytes)[]"
    blocks = decode([block_type], call[4:])[0]
    assert [block[:4] for block in blocks] == [(0, 16, 17, data)] * 2
    auxiliary = decode(["(uint256,bool,bytes)[]"], blocks[0][6])[0] if form == "53228430" else blocks[0][6]
    assert [(entry[0], entry[-1]) for entry in auxiliary] == [(0, b"abc")]


@pytest.mark.parametrize("data", [b"", b"\0", bytes(200_000), b"a" * 200_000, b"ab\0\0c" + bytes(70_000) + b"d"])
def test_compressed_data_expands_to_itself(data):
    assert expanded(encoding.compress(data)) == data


@pytest.mark.parametrize(
    ("kind", "value", "bits"),
    [
        ("float24", 0, 0),
        ("float24", 2**19 - 1, 2**19 - 1),
        ("float24", 2**19 + 1, None),
        ("float24", 524_290, 1 << 19 | 52_429),
        ("float24", (2**19 - 1) * 10**31, 2**24 - 1),
        ("float24", 2**19 * 10**31, None),
        ("float24", -10, None),
        ("float16", 2_050, 1 << 11 | 205),
        ("float16", 2_049, None),
    ],
)
def test_floats_hold_a_value_exactly_or_refuse_it(kind, value, bits):
    if bits is None:
        with pytest.raises(LabError, match=rf"{value} is not a {kind}\."):
            encode_float(value, kind)
    else:
        assert encode_float(value, kind) == bits


TRADE = encoding.SpotTrade(1, 2, 3, 4, 5, 6, 6, 5, 7, 8, 0, 0, 9, 10)


@pytest.mark.parametrize(
    ("transaction", "problem"),
    [
        (encoding.Deposit(2**160, 1, 1, 1), "Deposit owner: .* does not fit into 20 bytes"),
        (encoding.Deposit(1, 1, 1, -1), "Deposit amount: -1 does not fit into 12 bytes"),
        (TRADE._replace(fill_a=1_234_567), "SpotTrade fill_a: 1234567 is not a float24"),
        (TRADE._replace(fee_bips_b=1 << 14), "SpotTrade high_fee_b: 256 does not fit"),
        (TRADE._replace(buy_a=0), "SpotTrade buy_a: token 0 means token 6"),
        (TRADE._replace(fill_b_limit_a=2), "2 is not a flag"),
        (encoding.ApprovedNftMint(*[0] * 9), "kind: 0 is the kind of an NftMint"),
    ],
)
def test_what_a_slot_cannot_hold_is_refused(transaction, problem):
    with pytest.raises(LabError, match=problem):
        encoding.encode_slot(transaction)


def test_more_transactions_than_slots_are_refused():
    with pytest.raises(LabError, match="17 transactions do not fit into 16 slots"):
        encode_block(HEADER, [Noop()] * 17, 16)
