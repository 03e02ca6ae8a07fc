"""Breaks in blocks that nobody numbered, and calldata that is made to fill the memory."""

from __future__ import annotations

import tracemalloc

import pytest

import loopring_lab as lab
from loopring_lab.errors import BlockError
from loopring_lab.rollup.checks import check


def test_a_break_between_blocks_without_numbers_is_named() -> None:
    def block(before: int, after: int) -> bytes:
        return bytes(20) + before.to_bytes(32) + after.to_bytes(32) + bytes(14 + 68)

    blocks = lab.rollup.decode_data([block(1, 2), block(2, 3), block(4, 5), block(5, 6)])
    found = check([blocks])
    assert found.summary.loc["roots", ["checked", "wrong"]].tolist() == [2, 0]
    (problem,) = found.problems.itertuples()
    assert problem.check == "indices"
    assert "position 2" in problem.problem


def test_memory_that_hostile_calldata_takes_is_bounded() -> None:
    segments = 500_000
    packed = (bytes(2) + b"\xff\xff") * segments
    head = bytes.fromhex("dcb2aa31") + (1).to_bytes(32) + (64).to_bytes(32)
    call = head + len(packed).to_bytes(32) + packed
    tracemalloc.start()
    try:
        with pytest.raises(BlockError, match="16 MiB"):
            lab.rollup.decode(call)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(packed)
    finally:
        tracemalloc.stop()
