"""Reading a history while it grows, compared with the list behind it."""

import json
import threading
from collections.abc import Callable, Iterator
from itertools import count, cycle, repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire_rows import page, row

from loopring_lab.errors import IncompleteHistory, UnexpectedAnswer
from loopring_lab.progress import Progress
from loopring_lab.sources.paging import EVERYTHING, PAGE, History, PageReader, Window

Rows = list[list[Any]]


def fill(number: int) -> list[Any]:
    return row(id=str(number), createdAt=str(1_000 + number), orderHash=f"0x{number:x}")


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
        self._lock = threading.Lock()

    def __call__(self, offset: int) -> bytes:
        with self._lock:
            self.requests += 1
            size = next(self.sizes)
            counted = min(len(self.rows), self.most_counted)
            answer = page(self.rows[offset : offset + size], counted)
            self.grow(self.rows)
            return answer


def read(
    fetch: Callable[[int], bytes],
    window: Window = EVERYTHING,
    progress: Progress = lambda held, expected: None,
) -> set[str]:
    history = History(5, "dex", window=window)
    pages = PageReader(lambda _, offset: fetch(offset), [history], progress, at_once=1)
    return {members[1] for page in pages for members in json.loads(page.body)["trades"]}


def test_a_still_history_takes_as_many_requests_as_it_has_pages():
    for size in (0, 1, 49, 50, 51, 1_000):
        ledger = Ledger([fill(number) for number in range(size)])
        assert read(ledger) == {str(number) for number in range(size)}
        # Behind a page that is full and the last one counted, there might be more.
        probes = 1 if size and size % PAGE == 0 else 0
        assert ledger.requests == max(1, -(-size // PAGE)) + probes


@settings(max_examples=30)
@given(
    st.integers(0, 130),
    st.lists(st.integers(1, PAGE), min_size=1, max_size=4),
    st.sampled_from([None, 30, 77]),
)
def test_pages_of_any_size_are_read_without_a_hole(size, sizes, limit):
    rows = [fill(number) for number in reversed(range(size))]
    found = read(Ledger(rows, sizes=cycle(sizes)), Window(limit=limit))
    newest = size if limit is None else min(limit, size)
    assert {str(number) for number in range(size - newest, size)} <= found
    since = size // 3
    recent = read(Ledger(rows, sizes=cycle(sizes)), Window(since=1_000 + since))
    assert {str(number) for number in range(since, size)} <= recent


@pytest.mark.parametrize(
    ("size", "counted"), [(PAGE, PAGE), (PAGE, 100), (49, 98), (20, 100), (1, 50)]
)
def test_a_count_that_stops_before_the_rows_do_is_not_believed(size, counted):
    rows = [fill(number) for number in range(137)]
    ledger = Ledger(rows, sizes=repeat(size), most_counted=counted)
    assert read(ledger) == {str(number) for number in range(137)}


def test_a_last_page_that_is_repeated_past_the_end_is_the_end():
    rows = [fill(number) for number in range(100)]
    pages = {0: rows[:50]}
    found = read(lambda offset: page(pages.get(offset, rows[50:]), 100))
    assert found == {str(number) for number in range(100)}


def test_a_page_longer_than_asked_for_is_refused():
    rows = [fill(number) for number in range(9_000)]
    with pytest.raises(UnexpectedAnswer) as caught:
        read(lambda offset: page(rows, 1_000_000))
    assert "page at 0: expected at most 50 rows, as asked for, got 9,000" in str(
        caught.value
    )


@settings(max_examples=30)
@given(
    st.integers(0, 300),
    st.sampled_from(["front", "back", "anywhere"]),
    st.lists(st.integers(0, 40), max_size=25),
    st.randoms(use_true_random=False),
)
def test_whatever_grows_while_it_is_read_is_whole_in_the_end(
    size, where, growth, chance
):
    left = list(growth)
    count = [size]

    def grow(rows: Rows) -> None:
        for _ in range(left.pop() if left else 0):
            place = {
                "front": 0,
                "back": len(rows),
                "anywhere": chance.randint(0, len(rows)),
            }[where]
            rows.insert(place, fill(count[0]))
            count[0] += 1

    ledger = Ledger([fill(number) for number in range(size)], grow)
    held = read(ledger)
    assert (
        {str(number) for number in range(size)}
        <= held
        <= {members[1] for members in ledger.rows}
    )


def test_rows_that_arrive_faster_than_pages_end_in_incomplete_history():
    fresh = count(300)

    def grow(rows: Rows) -> None:
        rows[:0] = [fill(next(fresh)) for _ in range(60)]

    ledger = Ledger([fill(number) for number in reversed(range(300))], grow)
    with pytest.raises(IncompleteHistory, match="arrive faster than they can be read"):
        read(ledger)


def test_a_count_that_is_never_reached_ends_in_incomplete_history():
    rows = [fill(number) for number in range(120)]

    def short(offset: int) -> bytes:
        return page(rows[offset : offset + PAGE], 125)

    with pytest.raises(IncompleteHistory) as caught:
        read(short)
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

    def repeat(offset: int) -> bytes:
        asked.append(offset)
        return page([fill(number) for number in range(rows)], 50_000_000)

    with pytest.raises(IncompleteHistory, match="expected 50000000 rows"):
        read(repeat, window)
    # Four times the one page that it may have, and ten to spare.
    assert len(asked) <= 45


def test_rows_of_one_identity_with_two_contents_count_as_the_relayer_counts_them():
    rows = [fill(1), fill(2), row(id="2", createdAt="1002", orderHash="0x2", size="7")]
    assert read(Ledger(rows)) == {"1", "2"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'{"totalNum": -1, "trades": []}',
            "account 5, order-book trades, page at 0.totalNum: expected a number of rows, got number -1",
        ),
        (
            b'{"trades": []}',
            "account 5, order-book trades, page at 0.totalNum: expected a number of rows, got nothing",
        ),
    ],
)
def test_an_answer_that_is_no_page_is_refused(body, said):
    with pytest.raises(UnexpectedAnswer) as caught:
        read(lambda offset: body)
    assert said in str(caught.value)


def test_the_newest_rows_take_only_their_pages():
    ledger = Ledger([fill(number) for number in reversed(range(1_000))])
    newest = read(ledger, Window(limit=120))
    assert {str(number) for number in range(880, 1_000)} <= newest
    assert ledger.requests <= 3
    ledger.requests = 0
    recent = read(ledger, Window(since=1_000 + 700))
    assert {str(number) for number in range(700, 1_000)} <= recent
    assert ledger.requests < 20


@pytest.mark.parametrize("odd", [None, "soon", "0", "1657638459"], ids=str)
def test_a_row_without_a_time_does_not_end_the_reading(odd):
    """Not even where the last row of a page is no trade, or has its time in seconds."""
    since = 1_600_000_000_000
    rows: list[Any] = [
        row(id=str(number), createdAt=str(since + number - 100))
        for number in reversed(range(1_000))
    ]
    for last in range(PAGE - 1, 1_000, PAGE):
        rows[last] = {"not": last} if odd is None else [odd, *rows[last][1:]]
    ledger = Ledger(rows)
    history = History(5, "dex", window=Window(since=since))
    pages = PageReader(
        lambda _, offset: ledger(offset),
        [history],
        lambda held, expected: None,
        at_once=1,
    )
    found = {
        number
        for page in pages
        for number in page.batch.columns["id"].to_pylist()
        if number
    }
    expected = {
        members[1]
        for members in rows
        if isinstance(members, list) and int(members[1]) >= 100
    }
    assert expected <= found
