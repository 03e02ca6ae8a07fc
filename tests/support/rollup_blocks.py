"""Rollup blocks for tests: the recorded block A, and blocks written field by field.

The writer here is the tests' own, with eth-abi: it shares nothing with the package's reader.
"""

import json
import os
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode

EXCHANGE = bytes.fromhex("0baba1ad5be3a5c0a66e7ac838a129bf948f1ea4")
WRAPPERS = (
    "dcb2aa31",
    "ebc8c7ee",
    "78e9a4f3",
    "fbb404ab",
    "e0b687f8",
    "cafc5892",
    "503baf55",
)
FORMS = ("8dadd3af", "66ac492e", "53228430")
"""Selectors of submitBlocks, oldest first."""
PACKED_FORM = FORMS[2]
AUXILIARY = dict(
    zip(FORMS, ("(uint256,bytes)[]", "(uint256,bool,bytes)[]", "bytes"), strict=True)
)
"""How each encodes the auxiliary data of a block; the newest packs what the one before it has."""
CALLBACKS = "((uint16,(uint16,uint16,uint16,bytes)[])[],address[])"
LONGEST_RUN = 0xFFFF
TYPES = (
    "noop",
    "deposit",
    "withdrawal",
    "transfer",
    "spot_trade",
    "account_update",
    "amm_update",
    "signature_verification",
    "nft_mint",
    "nft_data",
)
WIDTHS: dict[
    str, dict[str, tuple[int, int]]
] = {  # name: first byte, width; as the contracts lay them out
    "noop": {},
    "deposit": {
        "owner": (1, 20),
        "account": (21, 4),
        "token": (25, 2),
        "amount": (27, 12),
    },
    "withdrawal": {
        "kind": (1, 1),
        "owner": (2, 20),
        "account": (22, 4),
        "token": (26, 2),
        "amount": (28, 12),
        "fee_token": (40, 2),
        "fee": (42, 2),
        "storage": (44, 4),
        "onchain_data_hash": (48, 20),
    },
    "transfer": {
        "kind": (1, 1),
        "sender": (2, 4),
        "receiver": (6, 4),
        "token": (10, 2),
        "amount": (12, 3),
        "fee_token": (15, 2),
        "fee": (17, 2),
        "storage": (19, 4),
        "to": (23, 20),
        "from_": (43, 20),
        "to_token": (63, 2),
    },
    "spot_trade": {
        "storage_a": (1, 4),
        "storage_b": (5, 4),
        "account_a": (9, 4),
        "account_b": (13, 4),
        "sell_a": (17, 2),
        "sell_b": (19, 2),
        "fill_a": (21, 3),
        "fill_b": (24, 3),
        "data_a": (27, 1),
        "data_b": (28, 1),
        "buy_a": (29, 2),
        "buy_b": (31, 2),
        "high_a": (33, 1),
        "high_b": (34, 1),
    },
    "account_update": {
        "kind": (1, 1),
        "owner": (2, 20),
        "account": (22, 4),
        "fee_token": (26, 2),
        "fee": (28, 2),
        "public_key": (30, 32),
        "nonce": (62, 4),
    },
    "amm_update": {
        "owner": (1, 20),
        "account": (21, 4),
        "token": (25, 2),
        "fee_bips": (27, 1),
        "weight": (28, 12),
        "nonce": (40, 4),
        "balance": (44, 12),
    },
    "signature_verification": {"owner": (1, 20), "account": (21, 4), "data": (25, 32)},
    "nft_mint": {
        "kind": (1, 1),
        "minter": (2, 4),
        "to_token": (6, 2),
        "fee_token": (8, 2),
        "fee": (10, 2),
        "amount": (12, 12),
        "storage": (24, 4),
        "nft_type": (28, 1),
        "token_account": (29, 4),
        "nft_id": (33, 32),
        "creator_bips": (65, 1),
    },
    "nft_data": {
        "scheme": (1, 1),
        "account": (2, 4),
        "token": (6, 2),
        "nft_id": (8, 32),
        "creator_bips": (40, 1),
        "nft_type": (41, 1),
        "address": (42, 20),
    },
}
MINT_TO = {"receiver": (28, 4), "to": (32, 20)}  # of a mint whose kind is not 0


def recorded() -> Path:
    """Return the folder of the recorded block, or skip the test."""
    folder = (
        Path(os.environ.get("LOOPRING_LAB_RECORDINGS", "no recordings"))
        / "rollup_block_a"
    )
    if not folder.is_dir():
        pytest.skip(
            "needs the recorded block: set LOOPRING_LAB_RECORDINGS to the folder of recordings"
        )
    return folder


def recorded_bytes(name: str) -> bytes:
    """Read one of data.hex, calldata_plain.hex, calldata_packed.hex."""
    return bytes.fromhex((recorded() / name).read_text().strip().removeprefix("0x"))


def recorded_facts() -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (recorded() / "transactions.jsonl").read_text().splitlines()
    ]


def slot(kind: str, /, **fields: int) -> bytes:
    """Write one transaction of 68 bytes; fields are the raw integers that stand there."""
    places = WIDTHS[kind] | (MINT_TO if kind == "nft_mint" else {})
    content = bytearray(68)
    content[0] = TYPES.index(kind)
    for name, value in fields.items():
        start, width = places[name]
        content[start : start + width] = value.to_bytes(width, "big")
    return bytes(content)


def varied_slot(kind: str, chance: random.Random) -> bytes:
    """Write one transaction with every field at random, its extremes included."""
    fields = {}
    for name, (_, width) in WIDTHS[kind].items():
        most = 256**width - 1
        fields[name] = chance.choice(
            (0, 1, most, chance.randint(0, most), chance.randint(0, most))
        )
    if "kind" in fields:
        fields["kind"] = chance.randint(0, 3)
    return slot(kind, **fields)


def block_data(
    transactions: Sequence[bytes], *, size: int | None = None, **header: int | bytes
) -> bytes:
    """Write a block: header, the first 29 bytes of each slot, then the other 39 of each."""
    size = len(transactions) if size is None else size
    slots = [*transactions, *[bytes(68)] * (size - len(transactions))]
    filled = {
        "exchange": EXCHANGE,
        "before": bytes(32),
        "after": bytes(32),
        "timestamp": 1_648_179_367,
        "taker": 0,
        "maker": 0,
        "conditional": 0,
        "operator": 10_001,
    } | header
    widths = (20, 32, 32, 4, 1, 1, 4, 4)
    pieces = [
        value if isinstance(value, bytes) else value.to_bytes(width, "big")
        for value, width in zip(filled.values(), widths, strict=True)
    ]
    return b"".join(
        [*pieces, *(each[:29] for each in slots), *(each[29:] for each in slots)]
    )


def varied_data(seed: int, size: int = 64, **header: int | bytes) -> bytes:
    """Write a block of all types at random."""
    chance = random.Random(seed)
    weights = [2, 2, 1, 4, 12, 1, 1, 1, 1, 1]
    kinds = chance.choices(TYPES, weights, k=size)
    return block_data([varied_slot(kind, chance) for kind in kinds], **header)


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def text_of(content: bytes) -> bytes:
    """Encode `bytes` as the ABI does: length, content, padding."""
    return word(len(content)) + content + bytes(-len(content) % 32)


def auxiliary(entries: Iterable[tuple[int, bool, bytes]], form: str) -> bytes:
    """Encode auxiliary data, (slot, is approved, data) each, as the three forms of submitBlocks do."""
    content = _auxiliary(entries, form)
    if form == PACKED_FORM:
        return text_of(content)
    return encode([AUXILIARY[form]], [content])[32:]


def _auxiliary(entries, form):
    if form == FORMS[0]:
        return [(at, data) for at, _, data in entries]
    if form == PACKED_FORM:
        return encode([AUXILIARY[FORMS[1]]], [list(entries)])
    return list(entries)


def submit(
    blocks: Sequence[bytes],
    *,
    form: str = PACKED_FORM,
    version: int = 17,
    sizes: Sequence[int] | None = None,
    entries: Sequence[Sequence[tuple[int, bool, bytes]]] | None = None,
) -> bytes:
    """Encode a call of submitBlocks."""
    structs = []
    for place, data in enumerate(blocks):
        size = (len(data) - 98) // 68 if sizes is None else sizes[place]
        extra = _auxiliary(entries[place] if entries else (), form)
        # Nothing here verifies proofs, and equal ones compress well.
        structs.append((0, size, version, data, [1] * 8, True, extra, b""))
    block = f"(uint8,uint16,uint8,bytes,uint256[8],bool,{AUXILIARY[form]},bytes)[]"
    return bytes.fromhex(form) + encode([block], [structs])


def packed(content: bytes) -> bytes:
    """Compress as the contracts do: numbers of literals and of zeros that follow, then the literals."""
    parts = []
    at = 0
    # Shorter runs of zeros cost more than they save.
    for run in re.finditer(rb"\0{5,%d}|\Z" % LONGEST_RUN, content):
        literals = content[at : run.start()]
        zeros = len(run[0])
        while len(literals) > LONGEST_RUN:
            parts.append(LONGEST_RUN.to_bytes(2) + bytes(2) + literals[:LONGEST_RUN])
            literals = literals[LONGEST_RUN:]
        if literals or zeros:
            parts.append(len(literals).to_bytes(2) + zeros.to_bytes(2) + literals)
        at = run.end()
    return b"".join(parts)


def wrapped(
    call: bytes, *, selector: str = WRAPPERS[0], compress: bool = True
) -> bytes:
    """Wrap a call as the contracts that own the exchange do; the newest has callbacks, here none."""
    types = ["bool", "bytes"]
    values: list[object] = [compress, packed(call) if compress else call]
    if selector == WRAPPERS[0]:
        types = [*types, CALLBACKS]
        values = [*values, ([], [])]
    return bytes.fromhex(selector) + encode(types, values)
