"""What the encoder of the tests writes, the reader reads: every transaction type, every form of calldata."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import encoding
from support.encoding import Header, Noop, Submission, encode_block, encode_calldata

import loopring_lab as lab

EXAMPLES = 100
FLAG, BIPS = st.integers(0, 1), st.integers(0, 2**14 - 1)


def uint(width):
    return st.integers(0, 256**width - 1)


def floating(bits):
    return st.builds(lambda mantissa, exponent: mantissa * 10**exponent, st.integers(0, 2**bits - 1),
                     st.integers(0, 31))  # fmt: skip


BYTE, TOKEN, ACCOUNT, UINT96, ADDRESS, HASH = map(uint, (1, 2, 4, 12, 20, 32))
FLOAT16, FLOAT24 = floating(11), floating(19)
ANOTHER = st.integers(1, 2**16 - 1)  # token 0 cannot be bought or sent instead of another

STRATEGIES = {
    "spot_trade": st.builds(
        encoding.SpotTrade, ACCOUNT, ACCOUNT, ACCOUNT, ACCOUNT, TOKEN, ANOTHER, TOKEN, ANOTHER, FLOAT24,
        FLOAT24, FLAG, FLAG, BIPS, BIPS,
    ),
    "deposit": st.builds(encoding.Deposit, ADDRESS, ACCOUNT, TOKEN, UINT96),
    "withdrawal": st.builds(
        encoding.Withdrawal, st.integers(0, 3), ADDRESS, ACCOUNT, TOKEN, UINT96, TOKEN, FLOAT16, ACCOUNT,
        ADDRESS,
    ),
    "transfer": st.builds(
        encoding.Transfer, FLAG, ACCOUNT, ACCOUNT, TOKEN, FLOAT24, TOKEN, FLOAT16, ACCOUNT, ADDRESS, ADDRESS,
        ANOTHER,
    ),
    "account_update": st.builds(
        encoding.AccountUpdate, FLAG, ADDRESS, ACCOUNT, TOKEN, FLOAT16, HASH, ACCOUNT
    ),
    "amm_update": st.builds(encoding.AmmUpdate, ADDRESS, ACCOUNT, TOKEN, BYTE, UINT96, ACCOUNT, UINT96),
    "signature_verification": st.builds(encoding.SignatureVerification, ADDRESS, ACCOUNT, HASH),
    "nft_mint": st.one_of(
        st.builds(
            encoding.NftMint, ACCOUNT, TOKEN, TOKEN, FLOAT16, UINT96, ACCOUNT, BYTE, ACCOUNT, HASH, BYTE
        ),
        st.builds(
            encoding.ApprovedNftMint, st.integers(1, 2), ACCOUNT, TOKEN, TOKEN, FLOAT16, UINT96, ACCOUNT,
            ACCOUNT, ADDRESS,
        ),
    ),
    "nft_data": st.builds(encoding.NftData, FLAG, ACCOUNT, TOKEN, HASH, BYTE, BYTE, ADDRESS),
    "noop": st.just(Noop()),
}  # fmt: skip
HEADERS = st.builds(Header, ADDRESS, HASH, HASH, ACCOUNT, BYTE, BYTE, ACCOUNT)


def integer(value):
    return int.from_bytes(value) if isinstance(value, bytes) else int(value)


def read_back(blocks, written):
    """Return the reader's values of what was written at each place, as whole numbers."""
    found = {}
    for kind in STRATEGIES:
        for row in blocks.table(kind).to_pylist():
            place = row["block"], row["index_in_block"]
            names = getattr(written.get(place), "_fields", ())
            found[place] = kind, tuple(integer(row[name]) for name in names)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("kind", STRATEGIES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_every_type_is_read_as_it_was_written(kind, data):
    transactions = data.draw(st.lists(STRATEGIES[kind], min_size=1, max_size=20))
    header = data.draw(HEADERS)
    blocks = lab.rollup.decode_data(encode_block(header, transactions))
    written = {(0, at): each for at, each in enumerate(transactions)}
    found = read_back(blocks, written)
    assert len(found) == int(blocks.headers_table["size"][0].as_py()) >= len(transactions)
    assert {place: found[place] for place in written} == {place: (kind, tuple(each)) for place, each in written.items()}
    row = blocks.headers_table.to_pylist()[0]
    assert (integer(row["exchange"]), row["timestamp"], row["operator"]) == (header[0], header[3], header[6])
    assert (integer(row["merkle_root_before"]), integer(row["merkle_root_after"])) == header[1:3]
    assert row["conditional"] == sum(map(encoding.is_conditional, transactions))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    contents=st.lists(st.lists(st.one_of(*STRATEGIES.values()), max_size=40), min_size=1, max_size=4),
    form=st.sampled_from(sorted(encoding.AUXILIARY)),
    wrapper=st.sampled_from([None, "dcb2aa31", "ebc8c7ee", "503baf55"]),
    compressed=st.booleans(),
    auxiliary=st.lists(st.tuples(uint(2), st.booleans(), st.binary(max_size=200)), max_size=5),
)
def test_every_form_of_calldata_holds_the_same_blocks(contents, form, wrapper, compressed, auxiliary):
    header = Header(1, 2, 3, 4, 5, 6, 7)
    submitted = [Submission(encode_block(header, each), auxiliary, 0, 16) for each in contents]
    blocks = lab.rollup.decode(encode_calldata(submitted, form, wrapper, compressed), first_block=9)
    assert [raw.data for raw in blocks.raw] == [each.data for each in submitted]
    assert [(raw.block_id, raw.place, raw.form) for raw in blocks.raw] == [
        (9 + place, place, form) for place in range(len(contents))
    ]
    assert {(raw.block_type, raw.block_version) for raw in blocks.raw} == {(0, 16)}
    written = {(n, at): each for n, content in enumerate(contents) for at, each in enumerate(content)}
    found = read_back(blocks, written)
    assert {place: found[place][1] for place in written} == {place: tuple(each) for place, each in written.items()}


def number(value):
    return int(value, 16) if str(value).startswith("0x") else int(value)


def built(kind, values):
    return kind(*(number(values[name]) for name in kind._fields))


def test_a_real_block_is_encoded_byte_for_byte(recordings):
    """The encoder is right where the reader is not asked."""
    folder = recordings / "rollup_block_a"
    header = json.loads((folder / "header.json").read_text())
    transactions = [Noop()] * header["block_size"]
    for record in map(json.loads, (folder / "transactions.jsonl").read_text().splitlines()):
        kind = getattr(encoding, record["type"].title().replace("_", ""))
        transactions[record["index"]] = built(kind, record)
    data = encode_block(built(Header, header), transactions)
    assert data.hex() == (folder / "data.hex").read_text().strip().removeprefix("0x")
