"""The recorded block: every field of every transaction, from block data and from both forms of calldata."""

import json

import pytest
from support.rollup_blocks import TYPES, recorded, recorded_facts

import loopring_lab as lab

pytestmark = pytest.mark.contract

FILES = ("data.hex", "calldata_plain.hex", "calldata_packed.hex")


@pytest.fixture(scope="module", params=FILES)
def blocks(request):
    text = (recorded() / request.param).read_text()
    return (
        lab.rollup.decode_data(text)
        if request.param == "data.hex"
        else lab.rollup.decode(text)
    )


def as_fact(value, like):
    """Write a value of a table as the recorded facts do: hex text, and wide integers as text."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return str(value) if isinstance(like, str) else value


def test_every_field_of_every_transaction(blocks):
    facts = recorded_facts()
    rows = {
        row["index_in_block"]: row | {"type": kind}
        for kind in TYPES
        for row in blocks.table(kind).to_pylist()
    }
    assert sorted(rows) == list(range(384))
    compared = 0
    for fact in facts:
        row = rows[fact.pop("index")]
        assert {name: as_fact(row[name], value) for name, value in fact.items()} == fact
        compared += len(fact)
    assert (len(facts), compared) == (314, 4_800)
    assert blocks.table("noop").num_rows == 384 - 314


def test_the_header(blocks):
    fact = json.loads((recorded() / "header.json").read_text())
    (row,) = blocks.headers_table.to_pylist()
    renamed = {
        "protocol_taker_bips10": "taker_bips10",
        "protocol_maker_bips10": "maker_bips10",
    }
    renamed |= {"block_size": "size"}
    names = [name for name in fact if name not in ("transaction_hash", "block_version")]
    assert {
        name: as_fact(row[renamed.get(name, name)], fact[name]) for name in names
    } == {n: fact[n] for n in names}
    assert row["block_version"] in (None, fact["block_version"])
