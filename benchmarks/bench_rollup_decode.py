"""Blocks to columns of every type, against a plain Python loop over the same slots; then damaged calldata.

Run: python benchmarks/bench_rollup_decode.py [damaged]

The blocks are 100 of 384 slots: copies of the recorded block where LOOPRING_LAB_RECORDINGS is set, and full
blocks made at random, most of them trades. Medians of CPU seconds of rounds in turns: one thread on either side.
"""

import os
import random
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rollup_judge import NotReadable, damaged, judged
from support.rollup_blocks import (
    TYPES,
    block_data,
    recorded_bytes,
    slot,
    submit,
    varied_slot,
    wrapped,
)

import loopring_lab as lab
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.calldata import read

DAMAGED = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
BLOCKS = 100
SIZE = 384
ROUNDS = 9


def cpu_seconds(call: Callable[[], object], times: int = 1) -> float:
    """Time calls one after the other, as batches are decoded."""
    begin = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - begin) / times


def number(content: bytes, start: int, width: int) -> int:
    return int.from_bytes(content[start : start + width], "big")


def amount(content: bytes, start: int, width: int, bits: int) -> int:
    packed = number(content, start, width)
    return (packed & (1 << bits) - 1) * 10 ** (packed >> bits)


def trade(slot: bytes) -> tuple[object, ...]:
    """Read a spot trade as one would write it at first: integers, both fees, the tokens of the fees."""
    sell_a = number(slot, 17, 2)
    sell_b = number(slot, 19, 2)
    buy_a = number(slot, 29, 2) or sell_b
    buy_b = number(slot, 31, 2) or sell_a
    fill_a = amount(slot, 21, 3, 19)
    fill_b = amount(slot, 24, 3, 19)
    bips_a = slot[33] << 6 | slot[27] & 63
    bips_b = slot[34] << 6 | slot[28] & 63
    fee_a = (fill_a if buy_a >= 32_768 else fill_b) * bips_a // 10_000
    fee_b = (fill_b if buy_b >= 32_768 else fill_a) * bips_b // 10_000
    if buy_a >= 32_768 and sell_a >= 32_768:
        fee_a = 0
    if buy_b >= 32_768 and sell_b >= 32_768:
        fee_b = 0
    token_a = sell_a if buy_a >= 32_768 > sell_a else buy_a
    token_b = sell_b if buy_b >= 32_768 > sell_b else buy_b
    return (number(slot, 9, 4), number(slot, 13, 4), number(slot, 1, 4), number(slot, 5, 4), sell_a, buy_a, sell_b,
            buy_b, fill_a, fill_b, slot[27] > 127, slot[28] > 127, bool(slot[27] & 64), bool(slot[28] & 64),
            bips_a, bips_b, fee_a, fee_b, token_a, token_b)  # fmt: skip


def fields(slot: bytes) -> tuple[object, ...]:
    """Read any other type."""
    kind = slot[0]
    if kind == 1:
        return (
            slot[1:21],
            number(slot, 21, 4),
            number(slot, 25, 2),
            number(slot, 27, 12),
        )
    if kind == 2:
        return (slot[1], slot[2:22], number(slot, 22, 4), number(slot, 26, 2), number(slot, 28, 12),
                number(slot, 40, 2), amount(slot, 42, 2, 11), number(slot, 44, 4), slot[48:68])  # fmt: skip
    if kind == 3:
        return (slot[1], number(slot, 2, 4), number(slot, 6, 4), number(slot, 10, 2), amount(slot, 12, 3, 19),
                number(slot, 15, 2), amount(slot, 17, 2, 11), number(slot, 19, 4), slot[23:43], slot[43:63],
                number(slot, 63, 2) or number(slot, 10, 2))  # fmt: skip
    if kind == 5:
        return (slot[1], slot[2:22], number(slot, 22, 4), number(slot, 26, 2), amount(slot, 28, 2, 11),
                slot[30:62], number(slot, 62, 4))  # fmt: skip
    if kind == 6:
        return (slot[1:21], number(slot, 21, 4), number(slot, 25, 2), slot[27], number(slot, 28, 12),
                number(slot, 40, 4), number(slot, 44, 12))  # fmt: skip
    if kind == 7:
        return slot[1:21], number(slot, 21, 4), slot[25:57]
    if kind == 8:
        return (slot[1], number(slot, 2, 4), number(slot, 6, 2), number(slot, 8, 2), amount(slot, 10, 2, 11),
                number(slot, 12, 12), number(slot, 24, 4), slot[28], number(slot, 29, 4), slot[33:65], slot[65])  # fmt: skip
    return (
        slot[1],
        number(slot, 2, 4),
        number(slot, 6, 2),
        slot[8:40],
        slot[40],
        slot[41],
        slot[42:62],
    )


def plain_loop(several: Sequence[bytes]) -> dict[int, list[tuple[object, ...]]]:
    """Read slot after slot into a list for each type."""
    found: dict[int, list[tuple[object, ...]]] = {kind: [] for kind in range(10)}
    for block, data in enumerate(several):
        size = (len(data) - 98) // 68
        second = 98 + 29 * size
        for at in range(size):
            slot = (
                data[98 + 29 * at : 98 + 29 * at + 29]
                + data[second + 39 * at : second + 39 * at + 39]
            )
            if slot[0]:
                row = trade(slot) if slot[0] == 4 else fields(slot)
                found[slot[0]].append((block, at, *row))
            else:
                found[0].append((block, at))
    return found


def columns(blocks: Blocks) -> list[object]:
    """Make the columns of every type."""
    return [blocks.table(kind) for kind in TYPES]


def compare(name: str, several: list[bytes], calls: dict[str, list[bytes]]) -> None:
    total = sum((len(data) - 98) // 68 for data in several)
    for kind, sent in {"block data": None, **calls}.items():

        def ours(sent: list[bytes] | None = sent) -> list[object]:
            if sent is None:
                return columns(lab.rollup.decode_data(several))
            return columns(Blocks([raw for one in sent for raw in read(one)]))

        rounds = [
            (cpu_seconds(ours, 10), cpu_seconds(lambda: plain_loop(several)))
            for _ in range(ROUNDS)
        ]
        taken, loop = (
            statistics.median(column) for column in zip(*rounds, strict=True)
        )
        ratio = statistics.median(one / two for one, two in rounds)
        print(
            f"{name}, {kind}: {total / taken / 1e6:.2f} million transactions a second; "
            f"{1 / ratio:.1f} times a plain loop ({total / loop / 1e6:.3f} million)"
        )


def likely_slot(kind: str, chance: random.Random) -> bytes:
    """Write a transaction like those of 2021: trades of listed tokens, the maker without a fee."""
    if kind != "spot_trade":
        return varied_slot(kind, chance)
    sold = chance.sample(range(300), 2)
    fields = {f"sell_{side}": token for side, token in zip("ab", sold, strict=True)}
    for side in "ab":
        fields[f"account_{side}"] = chance.randrange(1, 200_000)
        fields[f"storage_{side}"] = chance.randrange(1, 1 << 20)
        fields[f"fill_{side}"] = chance.randrange(2, 20) << 19 | chance.randrange(
            1 << 19
        )
    return slot(kind, **fields, data_a=chance.choice((10, 30, 138)), data_b=0)


def made_blocks() -> list[bytes]:
    chance = random.Random(3)
    weights = [0, 2, 1, 5, 85, 2, 3, 1, 1, 0]
    return [
        block_data(
            [
                likely_slot(kind, chance)
                for kind in chance.choices(TYPES, weights, k=SIZE)
            ]
        )
        for _ in range(BLOCKS)
    ]


def damage(sent: list[bytes], rounds: int) -> None:
    chance = random.Random(99)
    outcomes = Counter[str]()
    slowest = 0.0
    for _ in range(rounds):
        content = damaged(chance.choice(sent), chance)
        try:
            truth = [data for *_, data in judged(content)]
        except NotReadable:
            truth = None
        begin = time.perf_counter()
        try:
            found = [raw.data for raw in lab.rollup.decode(content).raw]
            outcomes["read truly" if found == truth else "WRONG"] += 1
        except lab.errors.BlockError as error:
            outcomes[
                "refused"
                if truth is None or "overlaps" in str(error)
                else "WRONGLY REFUSED"
            ] += 1
        slowest = max(slowest, time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{rounds:,} damaged: {dict(outcomes)}; slowest {slowest * 1e3:.0f} ms; peak memory {peak:.0f} MiB"
    )


def main() -> None:
    made = made_blocks()
    calls = {"calldata": [wrapped(submit([data]), compress=False) for data in made]}
    calls["compressed calldata"] = [wrapped(submit([data])) for data in made]
    compare("made blocks", made, calls)
    hostile = [one[0] for one in calls.values()]
    if "LOOPRING_LAB_RECORDINGS" in os.environ:
        real = [recorded_bytes(f"calldata_{name}.hex") for name in ("plain", "packed")]
        names = ("calldata", "compressed calldata")
        copies = {name: [one] * BLOCKS for name, one in zip(names, real, strict=True)}
        compare("recorded block", [recorded_bytes("data.hex")] * BLOCKS, copies)
        hostile += real
    damage(hostile, DAMAGED)


if __name__ == "__main__":
    main()
