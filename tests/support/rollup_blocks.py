"""Rollup blocks for tests: the recorded block A, and blocks written field by field.

The writer here is the tests' own: it shares nothing with the package's reader.
"""

import json
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

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


def auxiliary(entries: Iterable[tuple[int, bytes]], form: str) -> bytes:
    """Encode auxiliary data, (slot, data) each, as the three forms of submitBlocks do."""
    listed = list(entries)
    flag = [] if form == "8dadd3af" else [word(1)]
    items = [
        b"".join([word(at), *flag, word(32 * (2 + len(flag))), text_of(data)])
        for at, data in listed
    ]
    heads = []
    tail = 32 * len(items)
    for item in items:
        heads.append(word(tail))
        tail += len(item)
    array = b"".join([word(len(items)), *heads, *items])
    return text_of(word(32) + array) if form == "53228430" else array


def submit(
    blocks: Sequence[bytes],
    *,
    form: str = "53228430",
    version: int = 17,
    sizes: Sequence[int] | None = None,
    entries: Sequence[Sequence[tuple[int, bytes]]] | None = None,
) -> bytes:
    """Encode a call of submitBlocks."""
    structs = []
    for place, data in enumerate(blocks):
        size = (len(data) - 98) // 68 if sizes is None else sizes[place]
        extra = auxiliary(entries[place] if entries else (), form)
        offsets = [480, 480 + len(text_of(data))]
        offsets.append(offsets[-1] + len(extra))
        proof = [word(7**at) for at in range(8)]
        head = [
            word(0),
            word(size),
            word(version),
            word(offsets[0]),
            *proof,
            word(0),
            *map(word, offsets[1:]),
        ]
        structs.append(b"".join([*head, text_of(data), extra, text_of(b"")]))
    starts = []
    at = 32 * len(structs)
    for struct in structs:
        starts.append(word(at))
        at += len(struct)
    return bytes.fromhex(form) + b"".join(
        [word(32), word(len(structs)), *starts, *structs]
    )


def packed(content: bytes) -> bytes:
    """Compress runs of zeros: (literals, zeros) of 16 bits each, then the literals."""
    out = bytearray()
    at = 0
    while at < len(content):
        gap = content.find(bytes(5), at)  # shorter runs cost more than they save
        stop = min(len(content) if gap < 0 else gap, at + 65_535)
        end = stop
        while end < len(content) and content[end] == 0 and end - stop < 65_535:
            end += 1
        out += (
            (stop - at).to_bytes(2, "big")
            + (end - stop).to_bytes(2, "big")
            + content[at:stop]
        )
        at = end
    return bytes(out)


def wrapped(call: bytes, *, selector: str = "dcb2aa31", compress: bool = True) -> bytes:
    """Wrap a call as the exchange's owner contract does, with made-up callbacks after it."""
    content = packed(call) if compress else call
    callbacks = word(0) * 3
    head = [word(compress), word(96), word(96 + len(text_of(content)))]
    return bytes.fromhex(selector) + b"".join([*head, text_of(content), callbacks])
