"""Reading a history while it grows, or around rows that are held, compared with the list behind it."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, cycle, repeat
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire_rows import page, row

from loopring_lab.errors import IncompleteHistory, UnexpectedAnswer
from loopring_lab.sources.paging import EVERYTHING, PAGE, History, Window
from loopring_lab.tables.identity import hash_identities

Rows = list[list[Any]]
START = 1_600_000_000_000  # milliseconds


def fill(number: int) -> list[Any]:
    return row(
        id=str(number), createdAt=str(START + number), orderHash=f"0x{number:064x}"
    )


def newest_first(size: int) -> Rows:
    return [fill(number) for number in reversed(range(size))]


def numbers(*parts: range) -> set[str]:
    return {str(number) for part in parts for number in part}


class Ledger:
    """A trades endpoint in memory; `grow` is called after every response and may change the rows.

    It sends as many rows a page as `sizes` yields, and counts rows up to `most_counted`.
    """

    def __init__(
        self,
        rows: Rows,
        grow: Callable[[Rows], None] = lambda rows: None,
        *,
        sizes: Iterator[int] | None = None,
        most_counted: int = 1_000_000,
    ) -> None:
        self.rows = rows
        self.grow = grow
        self.sizes = sizes or repeat(PAGE)
        self.most_counted = most_counted
        self.requests = 0

    def __call__(self, offset: int) -> bytes:
        self.requests += 1
        size = next(self.sizes)
        counted = min(len(self.rows), self.most_counted)
        answer = page(self.rows[offset : offset + size], counted)
        self.grow(self.rows)
        return answer


def ids_of(history: History, fetch: Callable[[int], bytes]) -> set[str]:
    """Read a history; return the ids of the rows that were sent."""
    pages = history.read(lambda query: fetch(int(query["offset"])))
    return {members[1] for page in pages for members in json.loads(page.body)["trades"]}


def read(fetch: Callable[[int], bytes], window: Window = EVERYTHING) -> set[str]:
    return ids_of(History(5, "dex", window=window), fetch)


# Complete histories


@pytest.mark.parametrize("size", [0, 1, 49, 50, 51, 1_000])
def test_a_still_history_takes_its_pages_and_one_that_shows_the_end(size):
    ledger = Ledger(newest_first(size))
    assert read(ledger) == numbers(range(size))
    assert ledger.requests == -(-size // PAGE) + 1


@settings(max_examples=30)
@given(
    st.integers(0, 130),
    st.lists(st.integers(1, PAGE), min_size=1, max_size=4),
    st.sampled_from([None, 30, 77]),
)
def test_pages_of_any_size_are_read_without_a_hole(size, sizes, limit):
    found = read(Ledger(newest_first(size), sizes=cycle(sizes)), Window(limit=limit))
    newest = size if limit is None else min(limit, size)
    assert numbers(range(size - newest, size)) <= found
    since = size // 3
    ledger = Ledger(newest_first(size), sizes=cycle(sizes))
    recent = read(ledger, Window(since=START + since))
    assert numbers(range(since, size)) <= recent


@pytest.mark.parametrize(
    ("size", "counted"), [(PAGE, PAGE), (PAGE, 100), (49, 98), (20, 20), (1, 50)]
)
def test_a_count_that_stops_before_the_rows_do_is_not_believed(size, counted):
    ledger = Ledger(newest_first(137), sizes=repeat(size), most_counted=counted)
    history = History(5, "dex")
    assert ids_of(history, ledger) == numbers(range(137))
    assert (history.total, history.complete) == (137, True)


def test_a_last_page_that_is_repeated_past_the_end_is_the_end():
    rows = newest_first(100)
    pages = {0: rows[:50]}
    found = read(lambda offset: page(pages.get(offset, rows[50:]), 100))
    assert found == numbers(range(100))


def test_a_page_longer_than_asked_for_is_refused():
    rows = newest_first(9_000)
    with pytest.raises(UnexpectedAnswer) as caught:
        read(lambda offset: page(rows, 1_000_000))
    assert "page at 0: expected at most 50 rows, as asked for, got 9,000" in str(
        caught.value
    )


@settings(max_examples=30)
@given(
    st.integers(0, 300),
    st.booleans(),
    st.lists(st.integers(0, PAGE - 1), max_size=25),
)
def test_whatever_grows_at_an_end_while_it_is_read_is_whole_in_the_end(
    size, at_front, growth
):
    left = list(growth)
    fresh = count(size)

    def grow(rows: Rows) -> None:
        for _ in range(left.pop() if left else 0):
            place = 0 if at_front else len(rows)
            rows.insert(place, fill(next(fresh)))

    assert numbers(range(size)) <= read(Ledger(newest_first(size), grow))


@settings(max_examples=30)
@given(
    st.integers(0, 300),
    st.lists(st.integers(0, 3), max_size=8),
    st.randoms(use_true_random=False),
)
def test_rows_that_come_inside_a_history_are_read_or_missed_aloud(size, growth, chance):
    left = list(growth)
    fresh = count(size)

    def grow(rows: Rows) -> None:
        for _ in range(left.pop() if left else 0):
            rows.insert(chance.randint(0, len(rows)), fill(next(fresh)))

    with suppress(IncompleteHistory):
        assert numbers(range(size)) <= read(Ledger(newest_first(size), grow))


def test_rows_that_arrive_faster_than_pages_end_in_incomplete_history():
    fresh = count(300)

    def grow(rows: Rows) -> None:
        rows[:0] = [fill(next(fresh)) for _ in range(60)][::-1]

    with pytest.raises(IncompleteHistory, match="arrive faster than they can be read"):
        read(Ledger(newest_first(300), grow))


def test_a_count_that_is_never_reached_ends_in_incomplete_history():
    rows = newest_first(120)
    with pytest.raises(IncompleteHistory) as caught:
        read(lambda offset: page(rows[offset : offset + PAGE], 125))
    assert caught.value.expected == "125 rows, as the relayer counts"
    assert caught.value.got == 120
    assert "try again when it is quieter" in str(caught.value)


@pytest.mark.parametrize("rows", [0, PAGE], ids=["empty pages", "one page again"])
@pytest.mark.parametrize(
    "window",
    [EVERYTHING, Window(limit=10**12), Window(since=1)],
    ids=["all", "newest", "recent"],
)
def test_a_count_that_pages_do_not_deliver_ends_in_incomplete_history(window, rows):
    asked = []

    def again(offset: int) -> bytes:
        asked.append(offset)
        return page(newest_first(rows), 50_000_000)

    with pytest.raises(IncompleteHistory, match="expected 50000000 rows"):
        read(again, window)
    assert len(asked) <= 5


def test_rows_of_one_identity_with_two_contents_count_as_the_relayer_counts_them():
    again = row(id="2", createdAt="1002", orderHash=f"0x{2:064x}", size="7")
    assert read(Ledger([fill(1), fill(2), again])) == {"1", "2"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"totalNum": -1, "trades": []}', "expected a number of rows, got number -1"),
        (b'{"trades": []}', "expected a number of rows, got nothing"),
    ],
)
def test_an_answer_that_is_no_page_is_refused(body, said):
    with pytest.raises(UnexpectedAnswer) as caught:
        read(lambda offset: body)
    place = "account 5, order-book trades, page at 0.totalNum"
    assert f"{place}: {said}" in str(caught.value)


# Newest rows


@pytest.mark.parametrize(
    ("window", "wanted", "pages"),
    [
        (Window(limit=120), range(880, 1_000), 3),
        (Window(since=START + 700), range(700, 1_000), 7),
    ],
)
def test_the_newest_rows_take_only_their_pages(window, wanted, pages):
    ledger = Ledger(newest_first(1_000))
    assert numbers(wanted) <= read(ledger, window)
    assert ledger.requests == pages


@pytest.mark.parametrize("window", [Window(limit=10), Window(since=START + 700)])
def test_rows_in_another_order_are_all_read(window):
    rows = newest_first(1_000)
    random.Random(1).shuffle(rows)
    assert read(Ledger(rows), window) == numbers(range(1_000))
    assert read(Ledger(newest_first(1_000)[::-1]), window) == numbers(range(1_000))


@pytest.mark.parametrize("odd", [None, "soon", "0", "1657638459"], ids=str)
def test_a_row_without_a_time_does_not_end_the_reading(odd):
    """Not even where the last row of a page is no trade, or has its time in seconds."""
    rows: list[Any] = newest_first(1_000)
    for last in range(PAGE - 1, 1_000, PAGE):
        rows[last] = {"not": last} if odd is None else [odd, *rows[last][1:]]
    history = History(5, "dex", window=Window(since=START + 100))
    ledger = Ledger(rows)
    found = [
        number
        for page in history.read(lambda query: ledger(int(query["offset"])))
        for number in page.batch.columns["id"].to_pylist()
    ]
    expected = {members[1] for members in rows if isinstance(members, list)}
    assert {number for number in expected if int(number) >= 100} <= set(found)


# Rows that are held


def identities(held):
    ids = list(held)
    return set(
        hash_identities(
            pa.array(ids, pa.int64()),
            pa.array(["SELL"] * len(ids), pa.string()),
            pa.array([f"0x{number:064x}" for number in ids], pa.string()),
            pa.nulls(len(ids), pa.string()),
        )
    )


def read_around(rows, held, **how):
    """Return the numbers that were read around those held, and how many requests that took."""
    history = History(5, "dex", held=identities(held), **how)
    found = ids_of(history, Ledger(rows))
    assert history.complete
    return {int(number) for number in found}, history.requests


@settings(max_examples=60)
@given(st.integers(0, 400), st.data(), st.booleans())
def test_whatever_is_held_the_rest_is_found(size, data, shuffled):
    held = data.draw(st.sets(st.integers(0, max(0, size - 1)), max_size=size))
    held = {number for number in held if number < size}
    rows = newest_first(size)
    if shuffled:
        random.Random(size).shuffle(rows)
    found, asked = read_around(rows, held)
    assert found | held == set(range(size))
    assert asked <= 3 * (size // PAGE + 3)


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        (range(500), 1),  # everything
        (range(480), 2),  # all but the newest
        (range(420), 3),  # all but those of two pages
        (
            range(30, 500),
            3,
        ),  # all but the oldest, of a reading that did not come to its end
    ],
)
def test_only_the_pages_with_missing_rows_are_read(held, asked):
    found, requests = read_around(newest_first(500), held)
    assert found | set(held) == set(range(500))
    assert requests == asked


def test_rows_that_are_no_longer_listed_are_not_looked_for():
    rows = newest_first(500)
    assert read_around(rows, range(-7, 500), gone=7)[1] == 1
    assert read_around(rows, range(-7, 500))[0] == set(range(500))
