"""Both sides of fills are counted the same in parts, in any order, and beyond the memory limit."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopring_lab.engines import limits, pairs
from loopring_lab.engines.aggregate import GroupBy, PairedFills

IDS = [None, 0, 1, 2, -1, 7, 2**63 - 1, -(2**63)]
LINES = st.tuples(st.sampled_from(IDS), st.sampled_from(["BUY", "SELL", None, "buy"]), st.integers(0, 3))


def by_hand(lines: list[tuple[Any, ...]]) -> tuple[int, list[int]]:
    sides: dict[Any, set[str]] = defaultdict(set)
    for trade_id, side, group in lines:
        if trade_id is not None and side in ("BUY", "SELL"):
            sides[trade_id, group].add(side)
            sides[trade_id, None].add(side)
    both = [key for key, found in sides.items() if len(found) == 2]
    groups = [group for _, group in both]
    return groups.count(None), [groups.count(number) for number in range(4)]


def counted(lines: list[tuple[Any, ...]], ids: pa.DataType, at_once: int) -> tuple[int, list[int]]:
    found = pairs.Sides()
    for start in range(0, max(len(lines), 1), at_once):
        part = lines[start : start + at_once]
        trade_id, side, group = zip(*part, strict=True) if part else ((), (), ())
        texts = trade_id if pa.types.is_integer(ids) else [None if n is None else str(n) for n in trade_id]
        rows = pa.table({"trade_id": pa.array(texts, ids), "side": pa.array(side, pa.string())})
        found.add(*pairs.sides_of(rows), np.array(group, np.int64))
    total, counts = found.count(np.arange(4), 4)
    return total, counts.tolist()


@given(st.lists(LINES, max_size=40), st.integers(1, 40))
def test_counts_are_those_made_by_hand_whatever_the_parts(lines: list[tuple[Any, ...]], at_once: int) -> None:
    for ids in (pa.int64(), pa.string(), pa.dictionary(pa.int32(), pa.string())):
        assert counted(lines, ids, at_once) == by_hand(lines)


def test_what_does_not_fit_goes_to_disk_and_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(limits, "memory_limit", lambda: 1)
    monkeypatch.setattr(limits, "spill_folder", lambda: tmp_path)
    dice = np.random.default_rng(3)
    lines = [(int(one), str(side), int(group)) for one, side, group in
             zip(dice.integers(-500, 500, 5000), dice.choice(["BUY", "SELL"], 5000), dice.integers(0, 4, 5000), strict=True)]  # fmt: skip
    assert counted(lines, pa.int64(), 70) == by_hand(lines)
    assert not list(tmp_path.iterdir())


@given(
    st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([None, 1.5, -1.0])), max_size=30)
)
def test_rows_are_numbered_by_their_keys(lines: list[tuple[Any, ...]]) -> None:
    texts, numbers = zip(*lines, strict=True) if lines else ((), ())
    rows = pa.table({"a": pa.array(texts, pa.string()), "b": pa.array(numbers, pa.float64())})
    for few in (1, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pairs, "FEW", few)
            groups, first = pairs.row_groups(rows, ["a", "b"])
        assert [lines[place] for place in first[groups].tolist()] == lines
        assert len(first) == len(set(lines))


def test_a_fill_whose_sides_are_in_two_groups_counts_for_the_note_only() -> None:
    trades = pa.table({
        "trade_id": pa.array([1, 1, 2, 2]), "side": ["BUY", "SELL", "BUY", "SELL"], "market": ["A-B", "C-B", "A-B", "A-B"],
    })  # fmt: skip
    paired = PairedFills(trades, "test")
    groups = GroupBy(trades.drop_columns("trade_id"), ["market"])
    assert paired.count(groups).to_pylist() == [1, 0]
    assert paired.note.startswith("Both sides of 2 fills")
