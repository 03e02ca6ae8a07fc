"""Untrusted text and files become Python values here, within limits that are checked before any conversion.

Numbers in JSON stay the text that they were sent as (`Number`); `parse_integer` and `parse_decimal` convert
text of bounded length, so that neither a huge integer nor a huge exponent is ever computed with.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from loopring_lab.errors import LabError, UnexpectedAnswer, visible
from loopring_lab.redaction import Hidden, hide_addresses, without_addresses

# Bytes of an answer; the longest known list of tokens takes 200 KiB, and 50 rows of trades about 12.
MAX_ANSWER = 16 << 20
MAX_DOCUMENT = 32 << 20  # bytes of a saved file, or of a line in one
MAX_VALUES = 500_000  # in one JSON text, or 35,000 rows; as Python objects they take 75 MB at most
MAX_DEPTH = 64  # of nested brackets; raised recursion limits would otherwise let deep ones crash Python
MAX_DIGITS = 160  # before the point of a number, and after it
MAX_INT64 = 2**63 - 1
MAX_RATIO = 500  # expanded bytes for one compressed: gzip reaches 1,030 with one repeated letter
RATIO_FROM = 4 << 20  # bytes; below, a ratio says nothing and costs nothing

# The beginnings of text that a spreadsheet would run; a quote there makes it text again. Any text counts that does not
# begin with a letter, a digit or JSON's brackets, because spreadsheets skip blanks and signs that nobody sees.
FORMULA = re.compile(r"^(?=[^\w\[{(\"])")
# The first bytes of text in UTF-16.
BYTE_ORDERS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# The first bytes of files that are given where text is expected, and what such files are.
FORMATS = {
    **dict.fromkeys(BYTE_ORDERS, "text in UTF-16"),
    b"PK\x03\x04": "a ZIP archive, such as a spreadsheet (.xlsx)",
    b"\x28\xb5\x2f\xfd": "a file compressed with Zstandard",
    b"\xfd7zXZ": "a file compressed with xz",
    b"BZh": "a file compressed with bzip2",
    b"ARROW1": "a Feather file",
    b"PAR1": "a Parquet file",
    b"SQLite": "a database of SQLite",
}
GZIP = b"\x1f\x8b"  # how every gzip file begins (RFC 1952)
PIECE = 1 << 20  # bytes of a file that are in memory at once
_STRUCTURE = b'[]{},"'
_OTHER_BYTES = bytes(set(range(256)) - set(_STRUCTURE))

# Python reads NaN and Infinity, which are not JSON. Strings are skipped whole, for they may hold these words.
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_CONSTANT = re.compile(_STRING + rb"|(?P<found>-?(?:NaN|Infinity))", re.DOTALL)
# An escape of half a pair makes text that is not Unicode, and cannot be written again. Whole pairs and any
# other escape are skipped.
_HALF = rb"u[dD][89abAB][0-9a-fA-F]{2}"
_PAIR = rb"\\" + _HALF + rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATE = re.compile(_PAIR + rb"|(?P<found>\\u[dD][89a-fA-F])|\\.", re.DOTALL)

_DIGITS = f"[0-9]{{1,{MAX_DIGITS}}}"
_PLACES = f"[0-9]{{0,{MAX_DIGITS}}}"
_NUMBER = re.compile(
    rf"[+-]?(?:{_DIGITS}(?:\.{_PLACES})?|\.{_DIGITS})(?:[eE][+-]?[0-9]{{1,3}})?"
)
# A spreadsheet writes long numbers with an exponent, after it has dropped their last digits. Whole floats end in .0:
# they hold 15 digits, and of a longer number the last ones may be others.
_WHOLE = re.compile(rf"[+-]?(?:{_DIGITS}|[0-9]{{1,15}}\.0{{0,{MAX_DIGITS}}})")
# These problems have words of our own, as the system's words for them do not fit a sentence.
_PROBLEMS = {errno.ENOENT: "no such file", errno.EISDIR: "a folder"}
_JSON_HINT = "Ask for it again; if it was saved, save it again, and check base_url."
_FILE_HINT = "Save it again, or give another file."

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
PLAIN_INTEGER = re.compile("0|-?[1-9][0-9]{0,17}")  # 18 digits always fit an int64


class Number(str):
    """A JSON number, as its text."""

    __slots__ = ()


class _NotAccepted(Exception):
    """JSON that is invalid, or beyond a limit; says what it is."""


def given_path(path: str | os.PathLike[str]) -> Path:
    """Return a path as it was given: ``~`` is the home folder, and all other characters stand for themselves."""
    path = hide_addresses(path)
    if isinstance(path, Hidden):
        raise LabError(
            "An address, which may hold a key, is no path. Give a file or a folder of this machine."
        )
    if path == "":
        # Python takes it for the folder that it is in.
        raise LabError(
            "An empty text is no path. Give a file or a folder, or leave it out."
        )
    try:
        found = Path(path).expanduser()
        # There may be nothing yet: whoever reads it says so.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found.stat()
    except TypeError:
        raise LabError(
            f"A path is text or a pathlib.Path, not of type {type(path).__name__}."
        ) from None
    except RuntimeError:
        raise LabError(
            f"{str(path)!r}: nobody here has that home folder. Give the whole path."
        ) from None
    except (OSError, ValueError) as error:
        # A link to itself, a name that is too long, one with a NUL, or a folder that is closed to us.
        problem = getattr(error, "strerror", None) or error
        raise LabError(
            f"{printable(str(path), 200)}: no file can have this path ({problem}). Use another."
        ) from None
    return found


def parse_json(
    text: bytes | str,
    where: str,
    *,
    size: int = MAX_DOCUMENT,
    number: Callable[[str], Any] = Number,
    hint: str = _JSON_HINT,
) -> Any:
    """Parse JSON, or raise an `UnexpectedAnswer` that names the place; numbers stay text."""
    try:
        data = text.encode() if isinstance(text, str) else text
        if name := format_of(data):
            raise _NotAccepted(name)
        _check(data, size)
        return json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_members,
            parse_int=number,
            parse_float=number,
            parse_constant=lambda _: _refuse_match(_CONSTANT, data, "NaN or Infinity"),
        )
    except UnicodeError as error:
        got = _not_utf8(text, getattr(error, "start", 0))
    except json.JSONDecodeError as error:
        got = f"{len(text)} characters that break off or go wrong at {error.pos} ({error.msg})"
        # A wrong address is often one of a site that answers everything with its page.
        start = data.strip()[:1]
        if start == b"<":
            got = "a web page, or other text that begins with <"
        elif not start:
            got = "no text"
    except _NotAccepted as error:
        got = str(error)
    raise UnexpectedAnswer(where, expected="JSON", got=got, hint=hint)


def whole_or_text(text: str) -> int | Number:
    """Convert a whole number of at most 18 digits, and keep any other as text; for `parse_json`."""
    return int(text) if PLAIN_INTEGER.fullmatch(text) else Number(text)


def to_json(value: Any) -> str:
    """Write parsed JSON without white space, its numbers as they were sent."""
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    if isinstance(value, dict):
        members = [f"{to_json(name)}:{to_json(one)}" for name, one in value.items()]
        return "{" + ",".join(members) + "}"
    if isinstance(value, Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def printable(text: str, most: int = 80) -> str:
    """Prepare untrusted text for a message: cut, and without control characters."""
    cut = text if len(text) <= most else text[: most - 3] + "..."
    return visible(cut)


def shown(value: object, most: int = 80) -> str:
    """Show any value in a message, cut, and no key in an address; Python writes no integers of thousands of digits."""
    try:
        return printable(without_addresses(repr(value)), most)
    except ValueError:
        return "a number of too many digits"


def parse_decimal(text: str | None) -> Decimal | None:
    """Parse plain text of a decimal number, or return None: also if it has too many digits."""
    return Decimal(text) if text and _NUMBER.fullmatch(text) else None


def parse_integer(text: str | None, most: int = MAX_INT64) -> int | None:
    """Parse the digits of a whole number; None if it is none, may have been rounded, or is beyond ±`most`."""
    if not text or not _WHOLE.fullmatch(text):
        return None
    integer = int(text.partition(".")[0])
    return integer if abs(integer) <= most else None


def read_file(
    path: Path,
    where: str = "",
    *,
    size: int = MAX_DOCUMENT,
    hint: str = _FILE_HINT,
) -> bytes:
    """Read a regular file, compressed with gzip or not, or raise an `UnexpectedAnswer` that names it."""
    where = where or printable(path.name)
    found = []
    length = 0
    for piece in pieces(path, where, hint):
        found.append(piece)
        length += len(piece)
        if length > size:
            raise _too_long(where, "file", size, hint)
    return b"".join(found)


def read_text(path: Path, *, size: int = MAX_DOCUMENT, hint: str = _FILE_HINT) -> str:
    """Read a file of text in UTF-8."""
    data = read_file(path, size=size, hint=hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = _not_utf8(data, error.start)
    raise UnexpectedAnswer(
        printable(path.name), expected="text in UTF-8", got=got, hint=hint
    )


def read_lines(path: Path, *, hint: str = _FILE_HINT) -> Iterator[bytes]:
    """Yield the lines of a file that are not blank, each of at most `MAX_DOCUMENT` bytes."""
    where = printable(path.name)
    # The parts of a line that has not ended yet. They are joined once, so that a long line is not copied for each.
    parts: list[bytes] = []
    length = 0
    for number, piece in enumerate(pieces(path, where, hint)):
        if number == 0 and (name := format_of(piece)):
            raise UnexpectedAnswer(where, expected="text in UTF-8", got=name, hint=hint)
        lines = piece.split(b"\n")
        for line in lines[:-1]:
            parts.append(line)
            whole = b"".join(parts).strip()
            if whole:
                yield whole
            parts = []
            length = 0
        parts.append(lines[-1])
        length += len(lines[-1])
        if length > MAX_DOCUMENT:
            raise _too_long(where, "line", MAX_DOCUMENT, hint)
    last = b"".join(parts).strip()
    if last:
        yield last


def read_documents(path: Path, *, hint: str = _FILE_HINT) -> Iterator[bytes]:
    """Yield the JSON documents of a file: one per line, or else the whole."""
    lines = read_lines(path, hint=hint)
    try:
        first = next(lines, b"")
        parse_json(first, "line")
    except UnexpectedAnswer:
        yield read_file(path, hint=hint)
    else:
        yield first
        yield from lines


def pieces(path: Path, where: str, hint: str) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, expanded if they are compressed."""
    try:
        with open_file(path, where, hint) as raw:
            compressed = raw.read(len(GZIP)) == GZIP
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if compressed else raw
            length = 0
            while piece := stream.read(PIECE):
                length += len(piece)
                if length > max(RATIO_FROM, MAX_RATIO * raw.tell()):
                    got = f"more than {MAX_RATIO} bytes for each one compressed"
                    raise UnexpectedAnswer(
                        where,
                        expected="a plausible gzip file",
                        got=got,
                        hint=hint,
                    )
                yield piece
        return
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        expected = "a whole gzip file"
        got = str(error)
    except (OSError, ValueError) as error:
        expected = "a readable file"
        said = str(getattr(error, "strerror", None) or error)
        got = _PROBLEMS.get(getattr(error, "errno", 0), said)
    raise UnexpectedAnswer(where, expected=expected, got=got, hint=hint)


def find_files(
    paths: Paths,
    endings: tuple[str, ...],
    hint: str,
    *,
    inside: str = "",
    besides: Collection[str],
) -> list[Path]:
    """List files, and those of folders (or of the folder `inside`) with these endings, except `besides`."""
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        paths = [paths]
    found = []
    for path in paths:
        found += _files_in(given_path(path), endings, hint, inside)
    files = [file for file in found if file.name not in besides]
    if found and not files:
        raise LabError(
            f"{printable(str(found[0].parent), 200)}: no file besides {', '.join(besides)}. {hint}"
        )
    return files


def _files_in(
    path: Path, endings: tuple[str, ...], hint: str, inside: str
) -> list[Path]:
    try:
        if path.is_file():
            return [path]
        folder = path / inside if (path / inside).is_dir() else path
        found = sorted(
            file
            for file in folder.iterdir()
            if file.name.removesuffix(".gz").endswith(endings)
        )
    except (FileNotFoundError, NotADirectoryError, ValueError):
        problem = "no such file or folder"
        # Something is there all the same.
        if path.exists():
            problem = "a pipe or a device"
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        hint = "Give another path."
    else:
        if found:
            return found
        problem = f"no file ends in {', '.join(endings)}, with or without .gz"
        hint = "Give another folder."
    raise LabError(f"{printable(str(path), 200)}: {problem}. {hint}")


@contextlib.contextmanager
def open_file(path: Path, where: str, hint: str) -> Iterator[BinaryIO]:
    """Open a regular file; a pipe or a device would never end, or never begin."""

    def at_once(name: str, flags: int) -> int:
        # Not every system has these.
        for wanted in ("O_NONBLOCK", "O_NOCTTY"):
            flags |= getattr(os, wanted, 0)
        return os.open(name, flags)

    with open(path, "rb", opener=at_once) as raw:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise UnexpectedAnswer(
                where,
                expected="a regular file",
                got="a pipe or a device",
                hint=hint,
            )
        yield raw


def _check(data: bytes, size: int) -> None:
    """Refuse what could exhaust memory or the stack when parsed, or makes text that is not Unicode."""
    if len(data) > size:
        raise _NotAccepted(f"{len(data):,} bytes, more than {size >> 20} MiB")
    # Most answers are too small, or have too few brackets, to be beyond a limit; counting these is quick.
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > MAX_DEPTH or len(data) > 2 * MAX_VALUES:
        _check_structure(data)
    if b"\\u" in data:
        _refuse_match(_SURROGATE, data, "half of a surrogate pair")


def _check_structure(data: bytes) -> None:
    """Count values and nesting without parsing: brackets and commas that are not inside of text."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"")
        data = data.replace(b'\\"', b"")
    marks = data.translate(None, _OTHER_BYTES)
    marks = marks.replace(b'""', b"")
    outline = re.sub(rb'"[^"]*"?', b"", marks)
    values = 1 + outline.count(b",") + outline.count(b"[") + outline.count(b"{")
    if values > MAX_VALUES:
        raise _NotAccepted(f"more than {MAX_VALUES:,} values")
    depth = 0
    for bracket in outline.translate(None, b","):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _NotAccepted(f"brackets nested over {MAX_DEPTH} deep")
        # Where more close than open, the parser stops too.
        if depth < 0:
            return


def _refuse_match(pattern: re.Pattern[bytes], data: bytes, what: str) -> None:
    for match in pattern.finditer(data):
        if match["found"]:
            raise _NotAccepted(f"{what} at {match.start()}")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NotAccepted("an object that has a member twice")
    return members


def format_of(data: bytes) -> str:
    """Name the format of bytes that are no text in UTF-8; empty where they may be some."""
    for beginning, name in FORMATS.items():
        if data.startswith(beginning):
            return name
    # UTF-16 without a mark of its byte order has a zero beside each common letter.
    return "text in UTF-16" if b"\0" in data[:2] else ""


def _not_utf8(data: bytes | str, at: int) -> str:
    """Say what bytes are in place of text in UTF-8."""
    name = format_of(data) if isinstance(data, bytes) else ""
    return name or f"bytes that are not UTF-8 at {at}"


def _too_long(where: str, what: str, size: int, hint: str) -> UnexpectedAnswer:
    expected = f"a {what} of at most {size >> 20} MiB"
    return UnexpectedAnswer(where, expected=expected, got="a longer one", hint=hint)
