"""A slow second reader of calldata, in plain Python integers, and damage for it to judge.

It follows the documented format step by step, and shares nothing with the package.
"""

import random
from collections.abc import Iterator

from support.rollup_blocks import FORMS, TYPES, word

MOST = 16 << 20  # bytes of a call, as documented for decode

Read = tuple[int, int, int, bytes]


class NotReadable(Exception):
    """The calldata is not what the format says."""


def number(content: bytes, at: int, width: int = 32) -> int:
    if at < 0 or at + width > len(content):
        raise NotReadable(f"nothing at {at}")
    return int(content[at : at + width].hex(), 16)


def judged(calldata: bytes) -> list[Read]:
    """Return type, size, version and data of each block of a call, or raise NotReadable."""
    if len(calldata) > MOST:
        raise NotReadable("long")
    call = calldata
    if calldata[:4].hex() not in FORMS:
        flag = number(calldata, 4)
        start = 4 + number(calldata, 36)
        call = exactly(calldata, start + 32, number(calldata, start))
        if flag > 1:
            raise NotReadable("flag")
        call = b"".join(unpacked(call)) if flag else call
    if len(call) > MOST or call[:4].hex() not in FORMS:
        raise NotReadable("no submitBlocks")
    array = 4 + number(call, 4)
    blocks = []
    for place in range(number(call, array)):
        head = array + 32 + number(call, array + 32 * (1 + place))
        kind, size, version, *offsets = (
            number(call, head + 32 * at) for at in (0, 1, 2, 3, 13, 14)
        )
        data, *others = (head + offset for offset in offsets)
        content = exactly(call, data + 32, number(call, data))
        for other in others:
            number(call, other)
        if (
            kind > 255
            or size > 65_535
            or version > 255
            or len(content) != 98 + 68 * size
        ):
            raise NotReadable("numbers")
        if any(one >= len(TYPES) for one in content[98 : 98 + 29 * size : 29]):
            raise NotReadable("type")
        blocks.append((kind, size, version, content))
        if sum(480 + len(each[3]) for each in blocks) > len(call):
            raise NotReadable("overlap")
    return blocks


def exactly(content: bytes, start: int, length: int) -> bytes:
    if start + length > len(content):
        raise NotReadable("short")
    return content[start : start + length]


def unpacked(content: bytes) -> Iterator[bytes]:
    at = total = 0
    while at < len(content):
        literals = number(content, at, 2)
        zeros = number(content, at + 2, 2)
        yield exactly(content, at + 4, literals)
        total += literals + zeros
        if total > MOST:
            raise NotReadable("bomb")
        yield bytes(zeros)
        at += 4 + literals


def damaged(calldata: bytes, chance: random.Random) -> bytes:
    """Damage calldata in one of the ways that networks, disks and forgers do, sometimes in two."""
    for _ in range(chance.choice((1, 1, 2))):
        calldata = chance.choice(DAMAGE)(calldata, chance)
    return calldata


def cut(calldata: bytes, chance: random.Random) -> bytes:
    return calldata[: chance.randrange(len(calldata) + 1)]


def flipped(calldata: bytes, chance: random.Random) -> bytes:
    content = bytearray(calldata)
    near = chance.choice((min(len(content), 1_000), len(content)))
    for _ in range(chance.randint(1, 8) if content else 0):
        content[chance.randrange(near)] ^= 1 << chance.randrange(8)
    return bytes(content)


def wrong_word(calldata: bytes, chance: random.Random) -> bytes:
    """Replace an offset, a length or a count near the start."""
    at = 4 + 32 * chance.randrange(24)
    value = chance.choice((0, 1, 31, 32, 64, len(calldata), len(calldata) - 32, 2**31, 2**64, 2**255, 2**256 - 1,
                           chance.randrange(2 * len(calldata) + 1)))  # fmt: skip
    return calldata[:at] + word(max(value, 0)) + calldata[at + 32 :]


def bomb(calldata: bytes, chance: random.Random) -> bytes:
    """Put segments of nothing but zeros where compressed data starts."""
    segments = chance.choice((1, 100, 5_000)) * b"\0\0\xff\xff"
    return calldata[:100] + segments + calldata[100:]


def wrong_length(calldata: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(calldata) + 1)
    if chance.random() < 0.5:
        return calldata[:at] + chance.randbytes(chance.randint(1, 70)) + calldata[at:]
    return calldata[:at] + calldata[at + chance.randint(1, 70) :]


def other_start(calldata: bytes, chance: random.Random) -> bytes:
    return (
        chance.choice((chance.randbytes(4), *map(bytes.fromhex, FORMS))) + calldata[4:]
    )


DAMAGE = (
    cut,
    flipped,
    flipped,
    wrong_word,
    wrong_word,
    bomb,
    wrong_length,
    other_start,
)
