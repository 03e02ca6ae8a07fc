"""The encoder of the tests writes a real block byte for byte."""

import json

from support import encoding
from support.encoding import Header, Noop, encode_block


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
