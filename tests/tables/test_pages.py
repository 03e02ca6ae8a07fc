"""Pages are read as Python's `json` reads them, numbers as the text that was sent, or they are refused."""

import json
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire_rows import histories, page, row

from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.tables import wire


def text_of(member: Any) -> Any:
    """Return a member as a column holds it."""
    if member is None or isinstance(member, str):
        return member
    return json.dumps(member, ensure_ascii=False, separators=(",", ":"))


def assert_read_as_json(body: bytes) -> bool:
    """Compare a page with what `json` reads; tell whether it was read, rather than refused."""
    try:
        batch = wire.read(body, "a page")
    except UnexpectedAnswer:
        return False
    text = body.decode("utf-8-sig")
    rows = json.loads(text, parse_int=str, parse_float=str)["trades"]
    assert batch.counts == [len(rows)]
    for sent, kept in zip(rows, batch.columns.to_pylist(), strict=True):
        is_trade = isinstance(sent, list) and (
            len(sent) in (7, 13, 14) or (len(sent) > 14 and len(sent) != 19)
        )
        members = [text_of(member) for member in sent] if is_trade else []
        known = members[:14] + [None] * (14 - len(members[:14]))
        is_exact = not any(
            isinstance(member, (bool, list, dict)) for member in sent or []
        )
        if is_exact:
            assert [kept[name] for name in wire.MEMBERS] == known
        assert (kept["no_trade"] is None) == is_trade
        assert (kept["tail"] is None) == (len(members) <= 14)
        assert json.loads(kept["text"], parse_int=str, parse_float=str) == sent
    return True


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


REFUSED = {
    "007", "+1", "NaN", "Infinity", '"\\ud800"', '"\n"', '"\x00"', '{"a": 1, "a": 2}',
    "[" * 70 + "]" * 70, "'1'", "", "/* */ 1", '"1" // x', '"1"2',
}  # fmt: skip


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_of_any_kind_is_kept_or_refused(member):
    assert assert_read_as_json(with_member(member)) == (member not in REFUSED)


def test_rows_of_every_length_are_kept():
    for length in range(1, 21):
        members = [*row(), *"abcdef"][:length]
        assert assert_read_as_json(page([members, members]))
    assert assert_read_as_json(page([row()[:length] for length in range(1, 15)]))


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
def test_a_page_of_any_shape_is_read_or_refused(text):
    assert_read_as_json(text.replace("ROW", json.dumps(row())).encode())


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
def test_mutated_pages_are_read_or_refused(some, damage, separators):
    text = json.dumps({"totalNum": len(some), "trades": some}, separators=separators)
    for place, removed, piece in damage:
        at = place % (len(text) + 1)
        text = text[:at] + piece + text[at + removed :]
    assert_read_as_json(text.encode(errors="surrogatepass"))


def test_rows_are_named_by_their_page():
    pages = {
        "a": page([row(), row(id="2"), row(id="3")]),
        "b": page([]),
        "c": page([row()]).decode(),
    }
    batch = wire.concat([wire.read(text, place) for place, text in pages.items()])
    assert (batch.counts, batch.totals) == ([3, 0, 1], ["3", "0", "1"])
    assert [batch.where(place) for place in (0, 2, 3)] == [
        "a.trades[0]",
        "a.trades[2]",
        "c.trades[0]",
    ]


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
