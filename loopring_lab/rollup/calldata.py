"""Calldata of submitted blocks: the wrapper's compression, the ABI of ``submitBlocks``, one raw block each.

Every offset and length is checked against what is there before anything is cut or allocated. Parts that
overlap are refused, so the blocks of a call are never larger than the call. (`eth_abi` would read the same, but
copies each part that an offset names: a call of 16 MiB could name the same megabytes thousands of times.)
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Any, NamedTuple, NoReturn

from loopring_lab.bounded import shown
from loopring_lab.errors import BlockError, LabError

WORD = 32  # bytes: everything in the ABI stands in words
SELECTOR = 4  # bytes that name the function of a call, before its arguments
# Trade ids, of 64 bits, are this number times 100,000 and more.
LAST_BLOCK = (1 << 63) // 100_000 - 1
HEADER = 98  # bytes at the start of block data
SLOT = 68  # bytes of block data for each transaction
# Bytes of a call, as sent and expanded. Ethereum's own clients relay no transaction above 128 KiB, and a block of
# 384 transactions, the largest ever submitted, takes 26 KiB.
MAX_CALL = 16 << 20
# submitBlocks((uint8 blockType, uint16 blockSize, uint8 blockVersion, bytes data, uint256[8] proof,
# bool storeBlockInfoOnchain, AUX auxiliaryData, bytes offchainData)[]) by what AUX is:
SUBMIT_BLOCKS = (
    "8dadd3af",  # (uint256 txIndex, bytes data)[]
    "66ac492e",  # (uint256 txIndex, bool approved, bytes data)[]
    "53228430",  # bytes, which are the ABI of (uint256 txIndex, bool approved, bytes data)[]
)
BLOCK_WORDS = 15  # of a block's head: the members above, the proof in eight words
# The words of the head that say where the parts of variable length are, as offsets from the head.
PARTS = {"data": 3, "auxiliary data": 13, "off-chain data": 14}
# ZeroDecompressor.sol: a number of literal bytes, which follow, and a number of zeros after them.
SEGMENT = struct.Struct(">HH")
ADVICE = "It is cut or damaged, or submits no blocks: get the whole `input` of the transaction again."


class RawBlock(NamedTuple):
    """One block as bytes, with what is known about its submission; None for what is not."""

    data: bytes
    block_type: int | None = None
    block_size: int | None = None
    block_version: int | None = None
    auxiliary: bytes = b""
    form: str | None = None
    block_id: int | None = None
    l1_block: int | None = None
    transaction_hash: str | None = None
    place: int | None = None


def read(calldata: bytes, where: str = "calldata") -> list[RawBlock]:
    """Read the blocks of a call to the exchange or to a contract that wraps it."""
    if len(calldata) > MAX_CALL:
        refuse(
            where,
            f"{len(calldata):,} bytes, more than {MAX_CALL >> 20} MiB",
        )
    if calldata[:SELECTOR].hex() in SUBMIT_BLOCKS:
        return _Call(calldata, where).blocks()
    # Wrappers take (bool isDataCompressed, bytes data, ...) under whatever selector; data is the call inside.
    wrapper = Words(calldata, where)
    is_compressed = wrapper.word(SELECTOR, "isDataCompressed", bits=1)
    data = SELECTOR + wrapper.offset(SELECTOR + WORD, "data")
    start, stop = wrapper.extent(data, "data")
    where = f"{where}, data at byte {start}"
    call = calldata[start:stop]
    if is_compressed:
        call = expand(call, where)
        where = f"{where}, expanded"
    selector = call[:SELECTOR].hex()
    if selector not in SUBMIT_BLOCKS:
        refuse(
            where,
            f"selector {selector or 'missing'}, not one of submitBlocks",
        )
    return _Call(call, where).blocks()


def expand(packed: bytes, where: str) -> bytes:
    """Undo the compression of zeros, up to `MAX_CALL` bytes."""
    cut = f"compressed data ends within a segment at byte {len(packed):,}"
    expanded = bytearray()
    at = 0
    while at < len(packed):
        try:
            literals, zeros = SEGMENT.unpack_from(packed, at)
        except struct.error:
            refuse(where, cut)
        start = at + SEGMENT.size
        at = start + literals
        expanded += packed[start:at]
        expanded += bytes(zeros)
        if len(expanded) > MAX_CALL:
            refuse(
                where,
                f"compressed data expands to more than {MAX_CALL >> 20} MiB",
            )
    if at > len(packed):
        refuse(where, cut)
    return bytes(expanded)


def check_number(name: str, value: Any) -> None:
    """Refuse what somebody gives as the number of a block and is none; None is left open."""
    is_number = type(value) is int and 0 <= value <= LAST_BLOCK
    if value is not None and not is_number:
        raise LabError(
            f"{name}={shown(value)} is not the number of a block. Give an integer from 0 to {LAST_BLOCK:,}."
        )


def check_length(raw: RawBlock, where: str) -> int:
    """Return how many slots a block has, or refuse data whose length disagrees with that."""
    size, rest = divmod(len(raw.data) - HEADER, SLOT)
    if size < 0 or rest:
        refuse(
            where,
            f"block data of {len(raw.data):,} bytes, expected {HEADER} + {SLOT} for each slot",
        )
    if raw.block_size not in (None, size):
        refuse(
            where,
            f"block data for {size} slots, but the submission says {raw.block_size}",
        )
    return size


class Words:
    """The words of ABI-encoded bytes."""

    def __init__(self, call: bytes | memoryview, where: str) -> None:
        self.call = call
        self.where = where

    def word(self, at: int, name: str, bits: int = 256) -> int:
        if at + WORD > len(self.call):
            refuse(
                self.where,
                f"{name} at byte {at} lies beyond the end, {len(self.call):,} bytes",
            )
        number = int.from_bytes(self.call[at : at + WORD])
        if number >> bits:
            refuse(
                self.where,
                f"{name} at byte {at} exceeds {(1 << bits) - 1:,}",
            )
        return number

    def offset(self, at: int, name: str) -> int:
        """Read an offset or a length, which cannot be larger than the whole."""
        number = self.word(at, name)
        if number > len(self.call):
            refuse(
                self.where,
                f"offset or length of {name} at byte {at} exceeds {len(self.call):,} bytes",
            )
        return number

    def extent(self, at: int, name: str) -> tuple[int, int]:
        """Return where the content of `bytes` starts and stops."""
        start = at + WORD
        stop = start + self.offset(at, f"{name} (its length)")
        if stop > len(self.call):
            refuse(
                self.where,
                f"{name} at byte {at} ends at {stop}, beyond {len(self.call):,} bytes",
            )
        return start, stop


class _Head(NamedTuple):
    """Where a block of a call begins, and where its parts of variable length do."""

    name: str
    start: int
    data: int
    auxiliary: int
    offchain: int


class _Call(Words):
    """A call of ``submitBlocks``."""

    call: bytes

    def blocks(self) -> list[RawBlock]:
        heads = self._heads()
        # Auxiliary data does not say how long it is in all forms: it is what stands before the next part.
        starts = {len(self.call)}
        for head in heads:
            starts.update(head[1:])
        ordered = sorted(starts)
        blocks = []
        total = 0
        for place, head in enumerate(heads):
            next_part = ordered[bisect_right(ordered, head.auxiliary)]
            block = self._block(place, head, self.call[head.auxiliary : next_part])
            blocks.append(block)
            total += BLOCK_WORDS * WORD + len(block.data) + len(block.auxiliary)
            if total > len(self.call):
                refuse(
                    self.where,
                    f"{head.name} at byte {head.start} overlaps other parts",
                )
        return blocks

    def _heads(self) -> list[_Head]:
        array = SELECTOR + self.offset(SELECTOR, "blocks")
        count = self.offset(array, "blocks (their number)")
        first = array + WORD
        least = count * (1 + BLOCK_WORDS) * WORD  # an offset and a head for each
        if least > len(self.call) - first:
            refuse(
                self.where,
                f"{count} blocks at byte {array} do not fit into {len(self.call):,} bytes",
            )
        heads = []
        for place in range(count):
            name = f"block {place}"
            start = first + self.offset(first + WORD * place, name)
            heads.append(_Head(name, start, *self._parts(name, start)))
        return heads

    def _parts(self, name: str, start: int) -> list[int]:
        """Return where the parts of a block begin, each with a length at least."""
        found = []
        for part, place in PARTS.items():
            at = start + self.offset(start + WORD * place, f"{name}, {part}")
            self.word(at, f"{name}, {part} (its length)")
            found.append(at)
        return found

    def _block(self, place: int, head: _Head, auxiliary: bytes) -> RawBlock:
        start, stop = self.extent(head.data, f"{head.name}, data")
        raw = RawBlock(
            data=self.call[start:stop],
            block_type=self.word(head.start, f"{head.name}, block type", bits=8),
            block_size=self.word(
                head.start + WORD, f"{head.name}, block size", bits=16
            ),
            block_version=self.word(
                head.start + 2 * WORD,
                f"{head.name}, block version",
                bits=8,
            ),
            auxiliary=auxiliary,
            form=self.call[:SELECTOR].hex(),
            place=place,
        )
        check_length(raw, f"{self.where}, {head.name} at byte {head.start}")
        return raw


def to_hex(content: bytes) -> str:
    """Write bytes as Ethereum does: an address, a hash, a root."""
    return "0x" + content.hex()


def refuse(where: str, problem: str) -> NoReturn:
    """Raise the error that names a place in calldata."""
    raise BlockError(f"{where}: {problem}. {ADVICE}")
