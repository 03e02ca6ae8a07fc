"""Values that work as usual but are never shown: L2 secrets, nonces, signatures.

A function wraps a secret in its first statement, so that the frames of a later error hold only wrapped
values: the verbose tracebacks of IPython print the variables of every frame. The text of a server's answer
goes through a `Redactor` before anything else reads it.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, ParamSpec, SupportsIndex, TypeVar

# Quotation marks as terminals, JSON and word processors write them.
QUOTATION_MARKS = "\"'`\u2018\u2019\u201c\u201d"
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# The beginning of an address, also without one of its slashes, as in a `pathlib.Path`. Drives have one letter.
_ADDRESS = re.compile(r"\W*[A-Za-z][A-Za-z0-9+.-]+:/")
# An address within a text, up to its last letter or digit: a comma or a quotation mark after it is no part of it.
_IN_TEXT = re.compile(r"(?<![\w+.-])[\w+.-]{2,}://\S*\w")
# The part of an address that names its server.
_SERVER = re.compile(r"[\w+.-]+://([\w.-]+|\[[\w.:]+\])(:[0-9]+)?(?=[/?#]|$)")
# Patterns begin with one byte, which is looked for at once: `unquote_to_bytes` takes apart all that lies between, which
# in numbers of 64 bits is as much as the rest of reading them.
_PERCENT = re.compile(rb"%([0-9a-fA-F]{2})")
# JSON may write any printable character of ASCII as an escape. After two backslashes there is none, so that they are
# matched together.
_ESCAPE = re.compile(rb"\\(?:u00(?P<code>[2-7][0-9a-fA-F])|(?P<slash>/)|\\)")


class Hidden:
    """Mixin of a value that works as usual but prints as ``<hidden>``.

    Tracebacks that print local variables, f-strings, ``repr`` and rich displays all use these methods.
    Pickling is refused, because a pickle contains the value in the clear.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "<hidden>"

    __str__ = __repr__

    def __format__(self, spec: str, /) -> str:
        return "<hidden>"

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(
            "hidden values are not pickled or copied. Derive the value again where it is needed."
        )


class Secret(Hidden, int):
    """An integer that must not be shown: an L2 secret or the nonce of a signature."""


class _Cut(Hidden):
    """Mixin of hidden text and bytes: ``[:]`` is the text itself, and any other slice of it is hidden, too."""

    def __getitem__(self, part: Any) -> Any:
        # Tracebacks by rich cut a long text, and show what is left.
        found = super().__getitem__(part)  # type: ignore[misc]
        is_cut = isinstance(part, slice) and part != slice(None)
        return hide(found) if is_cut else found


class SecretText(_Cut, str):
    """Text that must not be shown, such as a signature in hex."""


class SecretBytes(_Cut, bytes):
    """Bytes that must not be shown, such as the signature of a key seed."""


def hide(value: object) -> Any:
    """Wrap a value; never fails, whatever it is given."""
    if isinstance(value, Hidden):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Secret(value)
    if isinstance(value, str):
        return SecretText(value)
    if isinstance(value, bytes | bytearray):
        return SecretBytes(value)
    # A secret of a wrong type is no missing one, and whoever reads it says so.
    return None if value is None else Hidden()


def hide_addresses(given: Any) -> Any:
    """Wrap what may be an address, with a key in it, where paths are expected; paths stay as they are."""
    if isinstance(given, str | os.PathLike):
        text = str(given)
        return hide(text) if _ADDRESS.match(text) else given
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        return [hide_addresses(one) for one in given]
    return given


def without_addresses(text: str) -> str:
    """Cut addresses in a text to the names of their servers: the rest may hold a key."""
    return _IN_TEXT.sub(_server_of, text)


def _server_of(address: re.Match[str]) -> str:
    whole = address[0]
    server = _SERVER.match(whole)
    # Before such a sign may be a password, with any other signs in it.
    if not server or "@" in whole:
        return "<address>"
    return whole if server[0] == whole else f"{server[0]}/…"


def hide_pasted(value: object) -> Any:
    """Wrap a value; of text, only what is left without blanks, line ends and the quotation marks around it."""
    if isinstance(value, str):
        # This is one expression, so that no variable ever holds the text itself.
        return SecretText("".join(value.split()).strip(QUOTATION_MARKS))
    return hide(value)


def shielded(
    function: Callable[Arguments, Result],
) -> Callable[Arguments, Result]:
    """Have a function raise without its frames, which hold secrets in the clear: also when interrupted."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - raised again below
            raised = error.with_traceback(None)
        del args, kwargs  # the frame of this function is shown
        raised.__context__ = None  # of which tracebacks show the frames, too
        raise raised

    return call


class Redactor:
    """Takes known secrets out of the text of an answer: as they are, and as URLs and JSON write them."""

    SHORTEST = 8  # characters: a shorter text may be in the data by chance

    def __init__(self, *secrets: SecretText | None) -> None:
        spellings: set[str] = set()
        for secret in secrets:
            if secret and len(secret) >= self.SHORTEST:
                text = secret.removeprefix("0x")
                as_json = json.dumps(text)[1:-1]
                spellings |= {text, as_json, as_json.replace("/", "\\/")}
        # The longest come first, as one that is part of another would leave the rest of it in the clear.
        self._spellings: list[bytes] = [
            SecretBytes(one.encode())
            for one in sorted(spellings, key=len, reverse=True)
        ]

    def __call__(self, text: bytes) -> bytes:
        """Return the text without the secrets; nothing of it if one cannot be cut out."""
        # Reading a large answer for escapes takes as long as receiving it.
        if not self._spellings:
            return text
        cut = self._cut(text)
        # Text whose escapes conceal no secret goes on with its escapes exactly as they were sent.
        for escapes, unescape in ((_PERCENT, _unquoted), (_ESCAPE, _unescaped)):
            unescaped = escapes.sub(unescape, cut)
            cut_again = self._cut(unescaped)
            if cut_again != unescaped:
                cut = cut_again
        return cut

    def _cut(self, text: bytes) -> bytes:
        for spelling in self._spellings:
            text = text.replace(spelling, b"<hidden>")
        # Letters of the mark and those around it may make up a secret again.
        remains = any(spelling in text for spelling in self._spellings)
        return b"<hidden>" if remains else text


def _unquoted(match: re.Match[bytes]) -> bytes:
    """Write an escape of a URL as the byte that it stands for."""
    return bytes.fromhex(match[1].decode())


def _unescaped(match: re.Match[bytes]) -> bytes:
    """Write an escape of JSON as the character that it stands for, unless only an escape can stand for that."""
    if match["slash"]:
        return b"/"
    if match["code"]:
        return json.dumps(chr(int(match["code"], 16)))[1:-1].encode()
    return match[0]
