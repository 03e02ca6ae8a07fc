"""Rows in buckets: those that were added, of each bucket in the order added, in memory and on disk."""

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loopring_lab.engines import limits
from loopring_lab.engines.spill import Buckets, Columns

COUNT = 7
NAMES = ["number", "share", "known", "code"]

parts_of_rows = st.lists(
    st.tuples(st.lists(st.integers(0, COUNT - 1), max_size=30), st.booleans()), min_size=1, max_size=8
)


def made_up(size: int) -> Columns:
    dice = np.random.default_rng(size)
    columns = [dice.permutation(size), dice.random(size), dice.random(size) < 0.5]
    return dict(zip(NAMES, [*columns, dice.integers(0, 99, size).astype(np.int16)], strict=True))


def taken(columns: Columns, some: np.ndarray | slice) -> Columns:
    return {name: column[some] for name, column in columns.items()}


def digits(columns: Columns) -> dict[str, list[object]]:
    return {name: [column.dtype, *column.tolist()] for name, column in columns.items()}


@settings(deadline=None)
@given(
    parts=parts_of_rows,
    ends=st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1)),
    names=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
)
def test_buckets_return_the_rows_that_were_added(
    parts: list[tuple[list[int], bool]], ends: tuple[int, int], names: list[str]
) -> None:
    buckets = np.array([number for numbers, _ in parts for number in numbers], np.int64)
    whole, rows, start = made_up(len(buckets)), Buckets(COUNT), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(limits, "spill_folder", return_value=folder),
    ):
        for numbers, spill in parts:
            some = slice(start, start := start + len(numbers))
            rows.add(buckets[some], taken(whole, some))
            if spill:
                rows.to_disk()
        assert rows.counts.tolist() == np.bincount(buckets, minlength=COUNT).tolist()
        if rows.in_memory:
            assert [digits(part) for part in rows] == [digits(whole)][: len(buckets)]
            assert [*Path(folder).iterdir()] == []
            return
        of_each = [taken(whole, buckets == number) for number in np.unique(buckets)]
        assert [digits(part) for part in rows] == [digits(part) for part in of_each]
        named = [{name: part[name] for name in names} for part in of_each]
        assert [digits(part) for part in rows.parts(*names)] == [digits(part) for part in named]
        first, last = sorted(ends)
        between, found = taken(whole, (buckets >= first) & (buckets <= last)), rows.read(first, last)
        in_order = [digits(taken(part, np.argsort(part["number"]))) for part in (found, between)]
        assert in_order[0] == in_order[1]
        del rows
        assert [*Path(folder).iterdir()] == []
