"""Values that compute as usual and are never shown: L2 secrets, nonces, signatures.

A wrapper is put on at the door of a function, as its first statement, so that the frames of a later error
hold only wrapped values: IPython's verbose tracebacks print the variables of every frame.
"""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex


class Hidden:
    """Mixin: a value that computes as usual and shows itself as ``<hidden>`` wherever it is printed.

    Tracebacks that print local variables, f-strings, ``repr`` and rich displays all go through these
    methods. Pickling is refused, because a pickle holds the value in the clear.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "<hidden>"

    __str__ = __repr__

    def __format__(self, spec: str, /) -> str:
        return "<hidden>"

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError("a hidden value is not pickled or copied. Derive it again where it is needed.")


class Secret(Hidden, int):
    """An integer that must not be shown: an L2 secret or the nonce of a signature."""


class SecretText(Hidden, str):
    """Text that must not be shown, such as a signature in hex."""


class SecretBytes(Hidden, bytes):
    """Bytes that must not be shown, such as the signature of a key seed."""


def hide(value: object) -> Any:
    """Wrap a value; cannot fail, whatever it is given."""
    if isinstance(value, Hidden):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Secret(value)
    if isinstance(value, str):
        return SecretText(value)
    return SecretBytes(value) if isinstance(value, bytes | bytearray) else None
