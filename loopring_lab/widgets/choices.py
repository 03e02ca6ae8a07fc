"""Choices that check themselves: a trait that says in words what it does not take."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from traitlets import HasTraits, TraitType

from loopring_lab.accounts import number
from loopring_lab.engines.periods import Period
from loopring_lab.errors import LabError

__all__ = ["Choice", "account_number", "columns", "day", "named", "one_of", "period", "text", "unknown"]

Reader = Callable[[str, Any], Any]


class Choice(TraitType[Any, Any]):
    """A trait that is read by a function of its name and the value given.

    Parameters
    ----------
    read : callable
        Gives the value to keep, or raises a `LabError`; the trait then keeps what it held.
    default : object
        What it begins with.
    """

    def __init__(self, read: Reader, default: Any = None) -> None:
        self._read = read
        super().__init__(default)

    def set(self, obj: Any, value: Any) -> None:
        """Keep what is read from a value, and let all who observe it act, before anything else changes.

        Parameters
        ----------
        obj : Working
            Whose trait.
        value : object
            Anything.
        """
        with obj.lock:
            super().set(obj, value)

    def validate(self, obj: HasTraits, value: Any) -> Any:
        """Read what is given.

        Parameters
        ----------
        obj : traitlets.HasTraits
            Whose trait.
        value : object
            Anything.

        Returns
        -------
        object
            What is kept.
        """
        return self._read(str(self.name), value)


def one_of(*allowed: str | None) -> Reader:
    """Take one of some names.

    Parameters
    ----------
    *allowed : str or None
        The names; None among them where the choice may be left open. An empty text stands for it.

    Returns
    -------
    callable
        For a `Choice`.

    Examples
    --------
    >>> one_of("BUY", "SELL", None)("side", "")
    """

    def read(name: str, value: Any) -> str | None:
        value = None if value == "" else value
        if (value is None or isinstance(value, str)) and value in allowed:
            return value
        raise unknown(name, value, [one for one in allowed if one], optional=None in allowed)

    return read


def unknown(name: str, value: object, allowed: Iterable[str], *, optional: bool = False) -> LabError:
    """Make the error for a name that is none of those allowed.

    Parameters
    ----------
    name : str
        Of the choice.
    value : object
        What was given.
    allowed : iterable of str
        What may be given.
    optional : bool
        Whether the choice may be left open.

    Returns
    -------
    LabError
        Suggests the nearest name.

    Examples
    --------
    >>> print(unknown("market", "lrc-eth", ["LRC-ETH", "ETH-USDT"]))
    market='lrc-eth' is not known. Did you mean 'LRC-ETH'?
    """
    names = list(allowed)
    near = difflib.get_close_matches(str(value).upper(), names, 1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Give one of: {', '.join(names)}"
    hint += "" if near else "; or None for all." if optional else "."
    return LabError(f"{name}={value!r} is not known. {hint}")


def columns(*allowed: str) -> Reader:
    """Take names of columns to group by.

    Parameters
    ----------
    *allowed : str
        The columns.

    Returns
    -------
    callable
        For a `Choice`; it keeps a tuple.

    Examples
    --------
    >>> columns("market", "side")("by", "market")
    ('market',)
    """

    def read(name: str, value: Any) -> tuple[str, ...]:
        names = (value,) if isinstance(value, str) else tuple(value or ())
        strange = [one for one in names if one not in allowed]
        if strange:
            raise unknown(name, strange[0], allowed)
        return tuple(dict.fromkeys(names))

    return read


def account_number(name: str, value: Any) -> int | None:
    """Take the number of an account, also as text.

    Parameters
    ----------
    name : str
        Of the choice.
    value : object
        A number, or its digits.

    Returns
    -------
    int or None
        None for nothing.

    Raises
    ------
    LabError
        It is no such number.

    Examples
    --------
    >>> account_number("account", " 10083 ")
    10083
    """
    if isinstance(value, str):
        digits = value.strip()
        value = int(digits) if digits.isascii() and digits.isdigit() else digits or None
    return None if value is None else number(name, value)


def day(name: str, value: Any) -> dt.date | None:
    """Take a day.

    Parameters
    ----------
    name : str
        Of the choice.
    value : object
        A date, or text such as ``"2022-03-31"``.

    Returns
    -------
    datetime.date or None
        None for nothing.

    Raises
    ------
    LabError
        It is no day.

    Examples
    --------
    >>> day("since", "2022-03-31")
    datetime.date(2022, 3, 31)
    """
    if value is None or value == "":
        return None
    try:
        return dt.date.fromisoformat(value.isoformat()[:10] if isinstance(value, dt.date) else value)
    except (TypeError, ValueError):
        raise LabError(f"{name}={value!r} is not a day. Give one like '2022-03-31'.") from None


def period(name: str, value: Any) -> str | None:
    """Take the length of a period.

    Parameters
    ----------
    name : str
        Of the choice.
    value : object
        Text such as ``"1d"``.

    Returns
    -------
    str or None
        None for one that suits the time covered.

    Raises
    ------
    LabError
        It is no period.

    Examples
    --------
    >>> period("every", "6h")
    '6h'
    """
    if value is None or value == "":
        return None
    Period.of(value)
    return str(value)


def text(name: str, value: Any) -> str | None:
    """Take a text, without blanks around it.

    Parameters
    ----------
    name : str
        Of the choice.
    value : object
        Text.

    Returns
    -------
    str or None
        None for nothing.

    Raises
    ------
    LabError
        It is something else.

    Examples
    --------
    >>> text("market", " LRC-ETH ")
    'LRC-ETH'
    """
    if value is not None and not isinstance(value, str):
        raise LabError(f"{name}={value!r} is not text. Give text, or None for nothing.")
    return (value or "").strip() or None


def named(choices: dict[str, Any], known: Sequence[str], what: str) -> dict[str, Any]:
    """Refuse choices that a widget does not have.

    Parameters
    ----------
    choices : dict
        By name.
    known : sequence of str
        The names there are.
    what : str
        The widget.

    Returns
    -------
    dict
        The same.

    Raises
    ------
    LabError
        One of them is not known.
    """
    strange = [name for name in choices if name not in known]
    if strange:
        near = difflib.get_close_matches(strange[0], known, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(known)}."
        raise LabError(f"{what} has no choice {strange[0]!r}. {hint}")
    return choices
