"""Choices that check themselves: a trait that says in words what it does not take."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from traitlets import HasTraits, TraitType

from loopring_lab.engines.aggregate import Period
from loopring_lab.errors import LabError
from loopring_lab.query import parse_account_id

__all__ = ["Choice", "account_number", "columns", "day", "named", "one_of", "period", "text", "unknown"]

Reader = Callable[[str, Any], Any]


class Choice(TraitType[Any, Any]):
    """A trait that is read by a function of its name and the value given."""

    def __init__(self, read: Reader, default: Any = None) -> None:
        self._read = read
        super().__init__(default)

    def set(self, obj: Any, value: Any) -> None:
        """Keep what is read from a value, and let all who observe it act, before anything else changes."""
        with obj.lock:
            super().set(obj, value)

    def validate(self, obj: HasTraits, value: Any) -> Any:
        """Read what is given."""
        return self._read(str(self.name), value)


def one_of(*allowed: str | None) -> Reader:
    """Take one of some names."""

    def read(name: str, value: Any) -> str | None:
        value = None if value == "" else value
        if (value is None or isinstance(value, str)) and value in allowed:
            return value
        raise unknown(name, value, [one for one in allowed if one], optional=None in allowed)

    return read


def unknown(name: str, value: object, allowed: Iterable[str], *, optional: bool = False) -> LabError:
    """Make the error for a name that is none of those allowed."""
    names = list(allowed)
    near = difflib.get_close_matches(str(value).upper(), names, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Give one of: {', '.join(names)}"
    hint += "" if near else "; or None for all." if optional else "."
    return LabError(f"{name}={value!r} is not known. {hint}")


def columns(*allowed: str) -> Reader:
    """Take names of columns to group by."""

    def read(name: str, value: Any) -> tuple[str, ...]:
        names = (value,) if isinstance(value, str) else tuple(value or ())
        strange = [one for one in names if one not in allowed]
        if strange:
            raise unknown(name, strange[0], allowed)
        return tuple(dict.fromkeys(names))

    return read


def account_number(name: str, value: Any) -> int | None:
    """Take the number of an account, also as text."""
    if isinstance(value, str):
        digits = value.strip()
        value = int(digits) if digits.isascii() and digits.isdigit() else digits or None
    return None if value is None else parse_account_id(value, name)


def day(name: str, value: Any) -> dt.date | None:
    """Take a day."""
    if value is None or value == "":
        return None
    try:
        return dt.date.fromisoformat(value.isoformat()[:10] if isinstance(value, dt.date) else value)
    except (TypeError, ValueError):
        raise LabError(f"{name}={value!r} is not a day. Give one like '2022-03-31'.") from None


def period(name: str, value: Any) -> str | None:
    """Take the length of a period."""
    if value is None or value == "":
        return None
    Period.parse(value)
    return str(value)


def text(name: str, value: Any) -> str | None:
    """Take a text, without blanks around it."""
    if value is not None and not isinstance(value, str):
        raise LabError(f"{name}={value!r} is not text. Give text, or None for nothing.")
    return (value or "").strip() or None


def named(choices: dict[str, Any], known: Sequence[str], what: str) -> dict[str, Any]:
    """Refuse choices that a widget does not have."""
    strange = [name for name in choices if name not in known]
    if strange:
        near = difflib.get_close_matches(strange[0], known, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(known)}."
        raise LabError(f"{what} has no choice {strange[0]!r}. {hint}")
    return choices
