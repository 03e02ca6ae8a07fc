"""Values that work as usual but are never shown: L2 secrets, nonces, signatures.

A function wraps a secret in its first statement, so that the frames of a later error hold only wrapped
values: the verbose tracebacks of IPython print the variables of every frame. The text of a server's answer
goes through a `Redactor` before anything else reads it.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, SupportsIndex, TypeVar
from urllib.parse import quote

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


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
        raise TypeError("hidden values are not pickled or copied. Derive the value again where it is needed.")


class Secret(Hidden, int):
    """An integer that must not be shown: an L2 secret or the nonce of a signature."""


class SecretText(Hidden, str):
    """Text that must not be shown, such as a signature in hex."""


class SecretBytes(Hidden, bytes):
    """Bytes that must not be shown, such as the signature of a key seed."""


def hide(value: object) -> Any:
    """Wrap a value; never fails, whatever it is given."""
    if isinstance(value, Hidden):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Secret(value)
    if isinstance(value, str):
        return SecretText(value)
    return SecretBytes(value) if isinstance(value, bytes | bytearray) else None


def shielded(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Have a function raise without its frames, which hold secrets in the clear: also when interrupted."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - raised again below
            raised = error.with_traceback(None)
        del args, kwargs  # the frame of this function is shown
        raised.__context__ = None
        raise raised

    return call


class Redactor:
    """Takes known secrets out of the text of an answer, in whatever way a server is likely to write them."""

    SHORTEST = 8  # letters: a shorter text may be in the data by chance

    def __init__(self, *secrets: SecretText | None) -> None:
        known = [secret for secret in secrets if secret and len(secret) >= self.SHORTEST]
        self._secrets = sorted(known, key=len, reverse=True)  # one within another leaves the rest in the clear

    def __call__(self, text: bytes) -> bytes:
        """Return the text, unchanged if it holds no secret; nothing of it if one cannot be cut out."""
        if not self.finds(text):
            return text
        cut = _ESCAPE.sub(_unescape, text)
        for secret in self._secrets:
            escaped = json.dumps(secret.removeprefix("0x"))[1:-1].encode()
            for spelling in (escaped, *_spellings(secret)):
                cut = re.sub(re.escape(spelling), b"<hidden>", cut, flags=re.IGNORECASE)
        return b"<hidden>" if self.finds(cut) else cut

    def finds(self, text: bytes) -> bool:
        if not self._secrets:
            return False
        bare = _ESCAPES.sub(_bare, text) if b"\\" in text else text
        lowered = bare.lower()
        return any(spelling in lowered for spelling in self._spellings)

    @functools.cached_property
    def _spellings(self) -> list[bytes]:
        return [SecretBytes(spelled) for secret in self._secrets for spelled in _spellings(secret)]


_ESCAPE = re.compile(rb"\\(?:u00([2-7][0-9a-fA-F])|.)", re.DOTALL)
_ESCAPES = re.compile(rb"\\+(?:u00([2-7][0-9a-fA-F]))?")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def _spellings(secret: SecretText) -> set[bytes]:
    """Return a secret in lower case and without backslashes: as it is, for an address, in hex, in base 64."""
    text = secret.removeprefix("0x").encode()
    spelled = {text, quote(text, safe="").encode(), text.hex().encode()}
    for before in range(3):  # bytes that stand before the secret in a group of three
        whole = (len(text) + before) // 3 * 3 - before
        encoded = base64.b64encode(bytes(before) + text[:whole])[(0, 2, 3)[before] :]
        spelled |= {encoded, encoded.translate(_URL_SAFE)}
    return {one.lower().replace(b"\\", b"") for one in spelled}


def _bare(found: re.Match[bytes]) -> bytes:
    """Undo a JSON escape, however often it was escaped again."""
    return bytes.fromhex(found[1].decode()).replace(b"\\", b"") if found[1] else b""


def _unescape(found: re.Match[bytes]) -> bytes:
    """Undo a JSON escape that was not needed."""
    if found[1] is None:
        return b"/" if found[0] == b"\\/" else found[0]
    letter = bytes.fromhex(found[1].decode())
    return found[0] if letter in b'"\\' else letter
