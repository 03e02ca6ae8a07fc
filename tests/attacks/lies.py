"""Histories that a lying relayer tells, page by page."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from attacks.answers import row

PAGE = 50


class Page(NamedTuple):
    """A request for a page: where it starts, and how many were asked for before."""

    offset: int
    before: int


Lie = Callable[[Page], bytes]


def _page(rows: list[list[Any]], total: Any) -> bytes:
    return json.dumps({"totalNum": total, "trades": rows}).encode()


def _rows(start: int, count: int = PAGE) -> list[list[Any]]:
    return [row(number) for number in range(10**6 - start, 10**6 - start - count, -1)]


def _large(page: Page) -> bytes:
    """Return 50 rows of 1 MB each."""
    rows = _rows(page.offset)
    return _page([[*one[:12], "0x" + one[12] + "a" * 1_000_000, one[13]] for one in rows], 10_000)


def _other_content(page: Page) -> bytes:
    rows = _rows(0, 2)
    return _page([rows[0], [*rows[0][:3], "7" + "0" * 18, *rows[0][4:]], rows[1]], 3)


def _several(total: Callable[[Page], int]) -> Lie:
    return lambda page: _page(_rows(page.offset), total(page))


LIES: dict[str, Lie] = {
    "a million million rows, pages empty": lambda page: _page([], 10**12),
    "a million million rows, one in each page": lambda page: _page(_rows(page.before, 1), 10**12),
    "a million million rows, pages full": _several(lambda page: 10**12),
    "2^63 rows": _several(lambda page: 2**63 - 1),
    "10^30 rows": _several(lambda page: 10**30),
    "always one page more": _several(lambda page: page.offset + 2 * PAGE),
    "rows arrive for ever": lambda page: _page(_rows(-page.before * 30), 200 + page.before * 30),
    "the same page again": lambda page: _page(_rows(0), 10**6),
    "the total shrinks": _several(lambda page: max(0, 500 - page.before * 100)),
    "the total changes": _several(lambda page: (500, 100, 10**9)[page.before % 3]),
    "rows, and a total of 0": _several(lambda page: 0),
    "fewer counted than sent": _several(lambda page: 10),
    "pages of 50 MB": _large,
    "pages of 20000 rows": lambda page: _page(_rows(page.offset * 400, 20_000), 10**7),
    "rows that swap": lambda page: _page(_rows(page.offset)[:: 1 if page.before % 2 else -1], 400),
    "a page, then nothing": lambda page: _page(_rows(0) if page.offset == 0 else [], 400),
    "a page, then another relayer": lambda page: _page(_rows(0), 400) if page.offset == 0 else b'{"apiKey": "x"}',
    "one row with two contents": _other_content,
    "rows of account 999": lambda page: _page([[*one[:9], "999", *one[10:]] for one in _rows(0, 3)], 3),
    "one row of account 999": lambda page: _page([*_rows(0, 2), [*row(7)[:9], "999", *row(7)[10:]]], 3),
    "ids of all pages equal": lambda page: _page([[one[0], "7", *one[2:12], "0x", one[13]] for one in _rows(page.offset)], 400),
    "totals as text": lambda page: _page(_rows(0, 3), "3"),
}  # fmt: skip
"""What the relayer answers to each request for order-book trades."""

CONSISTENT = {"the total shrinks", "rows that swap", "ids of all pages equal"}
"""Lies that hold together: as many rows of different content come as were once counted."""
READABLE = {"one row with two contents", "rows of account 999", "one row of account 999", "totals as text"}
"""Lies that one page tells, so that it says which rows are right."""


def first_page(name: str) -> bytes:
    return LIES[name](Page(0, 0))
