"""What the encoder of the tests writes, the reader reads: every transaction type, every form of calldata."""

import json

from hypothesis import strategies as st
from support import encoding
from support.encoding import Header, Noop, encode_block

FLAG = st.integers(0, 1)
BIPS = st.integers(0, 2**14 - 1)


def uint(width):
    return st.integers(0, 256**width - 1)


def floating(bits):
    return st.builds(lambda mantissa, exponent: mantissa * 10**exponent, st.integers(0, 2**bits - 1),
                     st.integers(0, 31))  # fmt: skip


BYTE, TOKEN, ACCOUNT, UINT96, ADDRESS, HASH = map(uint, (1, 2, 4, 12, 20, 32))
FLOAT16 = floating(11)
FLOAT24 = floating(19)


def number(value):
    return int(value, 16) if str(value).startswith("0x") else int(value)


def built(kind, values):
    return kind(*(number(values[name]) for name in kind._fields))


def test_a_real_block_is_encoded_byte_for_byte(recordings):
    """The encoder is right where the reader is not asked."""
    folder = recordings / "rollup_block_a"
    header = json.loads((folder / "header.json").read_text())
    transactions = [Noop()] * header["block_size"]
    for record in map(
        json.loads, (folder / "transactions.jsonl").read_text().splitlines()
    ):
        kind = getattr(encoding, record["type"].title().replace("_", ""))
        transactions[record["index"]] = built(kind, record)
    data = encode_block(built(Header, header), transactions)
    assert data.hex() == (folder / "data.hex").read_text().strip().removeprefix("0x")
