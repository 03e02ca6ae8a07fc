"""Values that work as usual but are never shown: L2 secrets, nonces, signatures.

A function wraps a secret in its first statement, so that the frames of a later error hold only wrapped
values: the verbose tracebacks of IPython print the variables of every frame.
"""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex


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
