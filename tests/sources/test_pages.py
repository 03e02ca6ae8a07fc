"""Pages by both readers: what Arrow reads as lines is what Python's `json` reads, or it is left to Python."""

import json
from typing import Any
from unittest.mock import patch

import duckdb
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from support.wire_rows import histories, markets, page, row, tokens

from loopring_lab import tables
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.tables import wire

TOKENS = tokens()
MARKETS = markets()

Answer = pd.DataFrame | str


def python_alone() -> Any:
    """Leave every page to Python's `json`."""
    return patch.object(wire, "_regular", return_value=None)


def answer(pages: list[bytes]) -> Answer:
    try:
        return tables.trades(pages, TOKENS, MARKETS)
    except UnexpectedAnswer as error:
        return str(error)


def answer_of_python(pages: list[bytes]) -> Answer:
    with python_alone():
        return answer(pages)


def is_regular(*pages: bytes | str) -> bool:
    with patch.object(wire, "read_tolerantly", side_effect=UserWarning):
        try:
            wire.read(pages, [""] * len(pages))
        except UserWarning:
            return False
    return True


def assert_same_reading(one: wire.Reading, other: wire.Reading) -> None:
    if isinstance(one, wire.Batch) and isinstance(other, wire.Batch):
        assert one.columns.equals(other.columns)
        assert (one.counts, one.totals, list(one.places)) == (
            other.counts,
            other.totals,
            list(other.places),
        )
    else:
        assert str(one) == str(other)


def assert_same(pages: list[bytes]) -> Answer:
    found = answer(pages)
    expected = answer_of_python(pages)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert not isinstance(found, str), found
        assert_frame_equal(found, expected)
    places = [f"page {number}" for number in range(len(pages))]
    together = wire.read_each(pages, places)
    with python_alone():
        alone = wire.read_each(pages, places)
    for one, other in zip(together, alone, strict=True):
        assert_same_reading(one, other)
    return found


def with_member(text: str, place: int = 3) -> bytes:
    """Make a page of two rows of which one has this JSON for a member."""
    body = page([row(id="1"), row(id="2")]).decode()
    member = json.dumps(row()[place])
    return body.replace(member, text, 1).encode()


MEMBERS = [
    "7",
    "-0",
    "007",
    "12345678901234567890",
    "9" * 77,
    "1.5",
    "3.5669E-4",
    "1E-400",
    "-1.0",
    "+1",
    "null",
    "NaN",
    "Infinity",
    '""',
    '"12 "',
    '"null"',
    '"a,b"',
    '"],["',
    '"\\u0031"',
    '"\\ud83d\\ude00"',
    '"\\ud800"',
    '"\\""',
    '"\\/"',
    '"\n"',
    '"\x00"',
    '"é"',
    '"\u2028"',
    '["1"]',
    '{"a": 1}',
    '{"a": 1, "a": 2}',
    "[" * 70 + "]" * 70,
    "'1'",
    "",
    "/* */ 1",
    '"1" // x',
    '"1"2',
]


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(3, id="size"),
        pytest.param(4, id="price", marks=pytest.mark.thorough),
        pytest.param(0, id="createdAt", marks=pytest.mark.thorough),
    ],
)
def test_a_member_of_any_kind_is_read_alike(member, place):
    odd = with_member(member, place)
    assert_same([page([row(id="3")]), odd, page([row(id="4")]), page([])])


def test_rows_of_every_length_are_read_alike():
    for length in range(1, 21):
        members = [*row(), *"abcdef"][:length]
        body = page([members, members])
        assert is_regular(body) == (length in {7, 8, 9, 11, 12, 13, 14})
        assert_same([body, page([row(id="1")])])
    mixed = page([row(id=str(length))[:length] for length in (7, 9, 14, 8, 13, 11, 12)])
    assert len(assert_same([mixed])) == 7
    alone = [page([row(id=str(length))[:length]]) for length in (7, 9, 14, 8, 13)]
    assert is_regular(*alone)
    assert len(assert_same(alone)) == 5
    assert_same([page([row(id=str(length))[:length] for length in range(7, 15)])])


PAGES = [
    '{"trades": []}',
    '{"totalNum": 1, "trades": null}',
    '{"totalNum": 1, "trades": [],}',
    '{"totalNum": 1, "trades": []} x',
    '{"totalNum": 1, "trades": []',
    '{"totalNum": 1, "trades": [], "trades": [ROW]}',
    '{"totalNum": 1.7, "trades": [ROW]}',
    '{"totalNum": null, "trades": [ROW]}',
    '{"totalNum": 01, "trades": [ROW]}',
    '{"totalNum": 12345678901234567890, "trades": [ROW]}',
    '{"trades": [ROW], "totalNum": 1}',
    '{"totalNum": 1, "trades": [ROW], "more": 1}',
    '{"TotalNum": 1, "Trades": [ROW]}',
    '{"totalNum": 1, "trades": [ROW,]}',
    '{"totalNum": 1, "trades": [[ROW]]}',
    '\ufeff{"totalNum": 1, "trades": [ROW]}',
    ' \t\r\n{ "totalNum" : 1 , "trades" : [ ROW ] } \n',
    '\xa0{"totalNum": 1, "trades": [ROW]}',
    '[{"totalNum": 1, "trades": [ROW]}]',
    "",
    "null",
    '{"\\u0074otalNum": 1, "trades": [ROW]}',
    '/**/{"totalNum": 1, "trades": [ROW]}',
    '{"totalNum": 1, "trades": ' + "[" * 70 + "]" * 70 + "}",
]


@pytest.mark.parametrize("text", PAGES)
def test_a_page_of_any_shape_is_read_alike(text):
    body = text.replace("ROW", json.dumps(row())).encode()
    assert_same([body, page([row(id="1")])])
    assert_same([page([row(id="1")]), body])
    assert_same([body])


# Text that stands in pages, and text that must not.
PIECES = [
    *"\",[]{}:\\-\n \t'",
    '","',
    '"],["',
    '", "',
    "], [",
    '"x":1,',
    '"trades":[],',
    "//",
    *MEMBERS,
]


@settings(max_examples=60)
@given(
    histories(numbers=True),
    st.lists(
        st.tuples(st.integers(0, 1_000), st.integers(0, 3), st.sampled_from(PIECES)),
        max_size=4,
    ),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]),
)
@example([row()[:8], row(id="1")[:8]], [(44, 0, "],["), (60, 0, '"')], (",", ":"))
@example([row()[:8], row(id="1")[:8]], [(40, 0, '],["')], (",", ":"))
@example([row()[:8], row(id="1")[:8]], [(40, 0, '", "')], (", ", ": "))
def test_mutated_pages_are_read_alike(
    some,
    damage,
    separators,
):
    text = json.dumps({"totalNum": len(some), "trades": some}, separators=separators)
    for place, removed, piece in damage:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + removed :]
    assert_same([text.encode(errors="surrogatepass"), page([row(id="77")])])


def test_regular_pages_are_read_as_bytes_and_as_text_spaced_or_not():
    body = page([row(), row(id="2"), row(id="3", orderHash="")])
    compact = body.replace(b" ", b"")
    assert body != compact
    assert is_regular(body, body.decode(), compact, b"\r\n" + compact + b"\n")
    assert not is_regular(page([]))
    batch = wire.read([body, page([]), compact.decode()], ["a", "b", "c"])
    assert (batch.counts, batch.totals) == ([3, 0, 3], ["3", "0", "3"])
    assert [batch.where(place) for place in (0, 2, 3)] == [
        "a.trades[0]",
        "a.trades[2]",
        "c.trades[0]",
    ]


def test_an_odd_page_leaves_the_others_regular():
    """However many there are, only that page is left to Python."""
    regular = [page([row(id=str(number))]) for number in range(9)]
    odd = page([row(id="50"), row(id="51")]).replace(b'"51"', b"51")
    with patch.object(wire, "read_tolerantly", wraps=wire.read_tolerantly) as python:
        together = [*regular, odd, *regular]
        batch = wire.read(together, [str(number) for number in range(19)])
    assert [call.args[1] for call in python.call_args_list] == [["9"]]
    assert batch.counts == [1] * 9 + [2] + [1] * 9
    assert batch.where(10) == "9.trades[1]"
    assert_same(together)


def test_the_functions_of_json_are_part_of_duckdb():
    """Nothing is loaded from the network: not even where that is forbidden."""
    connection = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )
    [(where,)] = connection.sql(
        "SELECT install_mode FROM duckdb_extensions() WHERE extension_name = 'json'"
    ).fetchall()
    assert where == "STATICALLY_LINKED"
    assert connection.sql(
        """SELECT from_json('{"a": ["x"]}', '{"a": ["VARCHAR"]}').a[1]"""
    ).fetchall() == [("x",)]
