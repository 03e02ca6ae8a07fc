"""Untrusted text and files: within the limits they become the values they say, beyond them they are refused."""

import gzip
import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopring_lab import bounded
from loopring_lab.errors import UnexpectedAnswer

LIMIT = 10**18


def digits(most: int) -> st.SearchStrategy[str]:
    return st.text("0123456789", max_size=most)


NUMBERS = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "-", "+", " "]),
    digits(40)
    | st.builds(
        "{}{}".format, digits(3), st.integers(100, 6_000).map(lambda n: n * "7")
    ),
    st.just("") | digits(30).map(".{}".format),
    st.sampled_from(["", "e", "E+", "e-", "E"]),
    st.just("") | digits(4) | st.integers(0, 10**12).map(str),
)


def value_of(text: str) -> Fraction | None:
    """Read a number of moderate size with Python's own integers; None for anything else."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, part = mantissa.partition(".")
    signless = whole.lstrip("+-") + part
    wellformed = (
        signless.isdigit() and len(signless) < 4_000 and len(exponent.lstrip("+-")) < 6
    )
    if not wellformed or ("e" in text.lower() and not exponent.lstrip("+-").isdigit()):
        return None
    sign = -1 if whole.startswith("-") else 1
    return sign * int(signless) * Fraction(10) ** (int(exponent or 0) - len(part))


@given(NUMBERS)
def test_a_number_is_what_integers_say_or_refused_and_never_takes_long(text):
    begin = time.process_time()
    number = bounded.parse_decimal(text)
    integer = bounded.parse_integer(text, LIMIT)
    assert time.process_time() - begin < 1
    expected = value_of(text)
    assert number is None or Fraction(number) == expected
    if (
        expected is not None
        and expected.denominator == 1
        and abs(expected) <= LIMIT
        and len(text) < 50
    ):
        assert (
            integer == expected or abs(int(text.lower().partition("e")[2] or 0)) > 999
        )
    else:
        assert integer is None or integer == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
    ),
)


def with_text_numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [with_text_numbers(one) for one in value]
    if isinstance(value, dict):
        return {name: with_text_numbers(one) for name, one in value.items()}
    return str(value) if type(value) is int else value


@given(JSON, st.booleans())
def test_json_is_read_as_it_was_written_with_numbers_as_text(value, escaped):
    text = json.dumps(value, ensure_ascii=escaped)
    assert bounded.parse_json(text, "here") == with_text_numbers(value)
    assert bounded.parse_json(text.encode(), "here") == with_text_numbers(value)


DEEP = b"[" * 300_000


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (DEEP, "brackets nested over 64 deep"),
        (b'{"a":' * 200_000, "brackets nested over 64 deep"),
        (b'{"a":"' + b"]" * 300_000 + b'","b":' + DEEP, "brackets nested over 64 deep"),
        (
            b'{"a":"\\\\\\"' + b"]" * 300_000 + b'","b":' + DEEP,
            "brackets nested over 64 deep",
        ),
        (b"[" + b"1," * 1_000_000 + b"1]", "more than 500,000 values"),
        (b'["' + b" " * bounded.MAX_DOCUMENT + b'"]', "more than 32 MiB"),
        (rb'{"name": "\ud800"}', "half of a surrogate pair at 10"),
        (rb'["\uD83D\uDE00", "\udc00"]', "half of a surrogate pair at 18"),
        (rb'["\\\ud800"]', "half of a surrogate pair at 4"),
        (rb'["\ud83d\\ude00"]', "half of a surrogate pair at 2"),
        ('["\ud800"]', "bytes that are not UTF-8 at 2"),
        (b'["\xed\xa0\x80"]', "bytes that are not UTF-8 at 2"),
        ("[1]".encode("utf-16"), "text in UTF-16"),
        (b'["NaN", NaN]', "NaN or Infinity at 8"),
        (b'["\\"Infinity", -Infinity]', "NaN or Infinity at 15"),
        (b'{"totalNum": 1, "totalNum": 2}', "an object that has a member twice"),
        (b'["a', "3 characters that break off or go wrong at 1"),
        (b"", "0 characters that break off or go wrong at 0"),
    ],
    ids=range(18),
)
def test_other_text_is_refused_with_its_position(text, got):
    with pytest.raises(UnexpectedAnswer) as caught:
        bounded.parse_json(text, "the place")
    assert (caught.value.field, caught.value.expected) == ("the place", "JSON")
    assert got in caught.value.got
    assert len(str(caught.value)) < 300
    assert caught.value.__context__ is None  # it would hold the text


def test_what_only_looks_deep_or_halved_is_read():
    value = ["[" * 1_000, '\\"[' * 500, "\\ud800", "😀", "\\", [1.5] * 100_000]
    assert bounded.parse_json(json.dumps(value), "here")[:5] == value[:5]
    assert bounded.parse_json(b"\xef\xbb\xbf[1]", "here") == ["1"]


# Files


def test_files_and_lines_are_read_packed_or_not(tmp_path):
    lines = [b"a" * 3_000_000, b"b", b" ", b"", b"\r", b"c c"]
    for name, packed in (("plain", False), ("packed", True)):
        path = tmp_path / name
        path.write_bytes(
            gzip.compress(b"\n".join(lines)) if packed else b"\n".join(lines)
        )
        assert bounded.read_file(path) == b"\n".join(lines)
        assert list(bounded.read_lines(path)) == [lines[0], b"b", b"c c"]
    (tmp_path / "empty").touch()
    assert bounded.read_file(tmp_path / "empty") == b""
    assert list(bounded.read_lines(tmp_path / "empty")) == []


@pytest.mark.parametrize(
    "path", ["/dev/zero", "/dev/stdin", "/proc/self/mem", "with\0nul"]
)
def test_devices_are_refused(path):
    with pytest.raises(UnexpectedAnswer):
        bounded.read_file(Path(path))
