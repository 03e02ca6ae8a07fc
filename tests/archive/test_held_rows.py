"""Which pages to read when rows are held already: only the missing ones, and all of them in the end."""

import json
import random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire_rows import page, row

from loopring_lab.sources.paging import PAGE, History, PageReader
from loopring_lab.tables.identity import hash_identities

Rows = list[list[Any]]


def fill(number):
    return row(id=str(number), createdAt=str(1_000 + number), orderHash=f"0x{number:x}")


def identities(numbers):
    ids = list(numbers)
    orders = pa.array([f"0x{number:x}" for number in ids], pa.string())
    return set(
        hash_identities(
            pa.array(ids, pa.int64()),
            pa.array(["SELL"] * len(ids), pa.string()),
            orders,
            pa.nulls(len(ids), pa.string()),
        )
    )


def read(rows, held):
    """Read rows that stay as they are; return the numbers read and the count of requests."""
    history = History(5, "dex", held=held)

    def fetch(_, offset):
        return page(rows[offset : offset + PAGE], len(rows))

    pages = list(PageReader(fetch, [history], lambda known, total: None))
    assert history.scheduler.complete
    found = {int(one[1]) for page in pages for one in json.loads(page.body)["trades"]}
    return found, history.requests


def arranged(count, order):
    rows = [fill(number) for number in range(count)]
    if order == "shuffled":
        random.Random(count).shuffle(rows)
    return rows[::-1] if order == "newest" else rows


@settings(max_examples=60)
@given(
    st.integers(0, 400), st.data(), st.sampled_from(["newest", "oldest", "shuffled"])
)
def test_whatever_is_held_the_rest_is_found(count, data, order):
    held = (
        data.draw(st.sets(st.integers(0, max(0, count - 1)), max_size=count))
        if count
        else set()
    )
    found, asked = read(arranged(count, order), identities(held))
    assert found | held == set(range(count))
    assert asked <= 3 * (count // PAGE + 3)


def test_the_last_page_is_looked_at_too_where_the_first_is_not_the_newest():
    rows = arranged(500, "oldest")
    held = identities([*range(499), 9_000])  # one was dropped and one came
    assert 499 in read(rows, held)[0]
    assert read(arranged(500, "oldest"), identities(range(500)))[1] == 2
