"""Calldata of submitted blocks: the wrapper's compression, the ABI of ``submitBlocks``, one raw block each.

Every offset and length is checked against what is there before anything is cut or allocated. Parts that
overlap are refused, so the blocks of a call are never larger than the call.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct, error
from typing import NamedTuple, NoReturn

from loopring_lab.errors import BlockError

MAX_CALL = 16 << 20  # bytes of a call, as sent and expanded; a block of 384 transactions takes 26 KiB
SUBMIT_BLOCKS = ("8dadd3af", "66ac492e", "53228430")
WORD, SELECTOR = 32, 4
HEADER, SLOT = 98, 68
_BLOCK_WORDS = 15  # three numbers, data, eight of proof, a flag, auxiliary data, off-chain data
_BITS = {"block type": 8, "block size": 16, "block version": 8}
_PARTS = {"data": 3, "auxiliary data": 13, "off-chain data": 14}
_SEGMENT = Struct(">HH")  # numbers of literals and of zeros
_ZEROS = memoryview(bytes(1 << 16))
_RUNS = tuple(map(bytes, range(256)))
_HINT = "It is cut or damaged, or submits no blocks: get the whole `input` of the transaction again."


class RawBlock(NamedTuple):
    """One block as bytes, with what is known about its submission."""

    data: bytes
    block_type: int | None = None
    block_size: int | None = None
    block_version: int | None = None
    auxiliary: bytes = b""
    form: str = ""
    block_id: int | None = None
    l1_block: int | None = None
    transaction_hash: str | None = None
    place: int = 0


def read(calldata: bytes, where: str = "calldata") -> list[RawBlock]:
    """Read the blocks of a call to the exchange or to a contract that wraps it."""
    if len(calldata) > MAX_CALL:
        refuse(where, f"{len(calldata):,} bytes, more than {MAX_CALL >> 20} MiB")
    if calldata[:SELECTOR].hex() in SUBMIT_BLOCKS:
        return _Call(calldata, where).blocks()
    wrapper = Words(calldata, where)
    is_compressed = wrapper.word(SELECTOR, "isDataCompressed", bits=1)
    start, stop = wrapper.extent(SELECTOR + wrapper.offset(SELECTOR + WORD, "data"), "data")
    call, where = calldata[start:stop], f"{where}, data at byte {start}"
    if is_compressed:
        call, where = expand(call, where), f"{where}, expanded"
    if call[:SELECTOR].hex() not in SUBMIT_BLOCKS:
        refuse(where, f"selector {call[:SELECTOR].hex() or 'missing'}, not one of submitBlocks")
    return _Call(call, where).blocks()


def expand(packed: bytes, where: str) -> bytes:
    """Undo the compression of zeros, of at most `MAX_CALL` bytes: runs of zeros are shared until then."""
    parts: list[bytes | memoryview] = []
    at, length, few, beyond = 0, len(packed), len(_RUNS), 0
    try:
        while at < length and beyond <= MAX_CALL:
            literals, zeros = _SEGMENT.unpack_from(packed, at)
            begin, at = at + 4, at + 4 + literals
            parts.append(packed[begin:at])
            if zeros < few:
                parts.append(_RUNS[zeros])
            else:  # a view takes more memory than a number
                parts.append(_ZEROS[:zeros])
                beyond += zeros
    except error:
        at = length + 1
    if at > length:
        refuse(where, f"compressed data ends within a segment at byte {length:,}")
    if sum(map(len, parts)) > MAX_CALL:
        refuse(where, f"compressed data expands to more than {MAX_CALL >> 20} MiB")
    return b"".join(parts)


def check_length(raw: RawBlock, where: str) -> int:
    """Return how many slots a block has, or refuse data whose length disagrees with that."""
    size, rest = divmod(len(raw.data) - HEADER, SLOT)
    if size < 0 or rest:
        refuse(where, f"block data of {len(raw.data):,} bytes, expected {HEADER} + {SLOT} for each slot")
    if raw.block_size is not None and raw.block_size != size:
        refuse(where, f"block data for {size} slots, but the submission says {raw.block_size}")
    return size


class Words:
    """The words of ABI-encoded bytes."""

    def __init__(self, call: bytes | memoryview, where: str) -> None:
        self.call, self.where = call, where

    def word(self, at: int, name: str, bits: int = 256) -> int:
        if at + WORD > len(self.call):
            refuse(self.where, f"{name} at byte {at} lies beyond the end, {len(self.call):,} bytes")
        number = int.from_bytes(self.call[at : at + WORD])
        if number >> bits:
            refuse(self.where, f"{name} at byte {at} exceeds {(1 << bits) - 1:,}")
        return number

    def offset(self, at: int, name: str) -> int:
        """Read an offset or a length, which cannot be larger than the whole."""
        number = self.word(at, name)
        if number > len(self.call):
            refuse(self.where, f"offset or length of {name} at byte {at} exceeds {len(self.call):,} bytes")
        return number

    def extent(self, at: int, name: str) -> tuple[int, int]:
        """Return where the content of `bytes` starts and stops."""
        start = at + WORD
        stop = start + self.offset(at, f"{name} (its length)")
        if stop > len(self.call):
            refuse(self.where, f"{name} at byte {at} ends at {stop}, beyond {len(self.call):,} bytes")
        return start, stop


class _Call(Words):
    """A call of ``submitBlocks``."""

    call: bytes

    def blocks(self) -> list[RawBlock]:
        array = SELECTOR + self.offset(SELECTOR, "blocks")
        count, first = self.offset(array, "blocks (their number)"), array + WORD
        if count * (_BLOCK_WORDS + 1) * WORD > len(self.call) - first:
            refuse(self.where, f"{count} blocks at byte {array} do not fit into {len(self.call):,} bytes")
        names = [f"block {place}" for place in range(count)]
        heads = [first + self.offset(first + WORD * place, name) for place, name in enumerate(names)]
        parts = [self._parts(head, name) for head, name in zip(heads, names, strict=True)]
        starts = sorted({len(self.call), *heads, *(start for each in parts for start in each)})
        blocks, total = [], 0
        for place, (head, (data, auxiliary, _)) in enumerate(zip(heads, parts, strict=True)):
            beyond = starts[bisect_right(starts, auxiliary)]
            blocks.append(self._block(place, head, data, self.call[auxiliary:beyond]))
            total += _BLOCK_WORDS * WORD + len(blocks[-1].data) + len(blocks[-1].auxiliary)
            if total > len(self.call):
                refuse(self.where, f"{names[place]} at byte {head} overlaps other parts")
        return blocks

    def _parts(self, head: int, name: str) -> list[int]:
        """Return where the parts of a block that vary in length start, each with a length at least."""
        starts = [head + self.offset(head + WORD * at, f"{name}, {part}") for part, at in _PARTS.items()]
        for start, part in zip(starts, _PARTS, strict=True):
            self.word(start, f"{name}, {part} (its length)")
        return starts

    def _block(self, place: int, head: int, data: int, auxiliary: bytes) -> RawBlock:
        name = f"block {place}"
        kind, size, version = (
            self.word(head + WORD * at, f"{name}, {member}", bits) for at, (member, bits) in enumerate(_BITS.items())
        )
        start, stop = self.extent(data, f"{name}, data")
        form = self.call[:SELECTOR].hex()
        raw = RawBlock(self.call[start:stop], kind, size, version, auxiliary, form, place=place)
        check_length(raw, f"{self.where}, {name} at byte {head}")
        return raw


def refuse(where: str, problem: str) -> NoReturn:
    """Raise the error that names a place in calldata."""
    raise BlockError(f"{where}: {problem}. {_HINT}")
