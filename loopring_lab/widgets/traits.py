"""Traits that parse and validate what they are given, and explain what they do not accept."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from traitlets import HasTraits, TraitType

from loopring_lab.engine.groups import period_sql
from loopring_lab.errors import LabError, did_you_mean, in_any_case
from loopring_lab.query import parse_account_id

Parser = Callable[[str, Any], Any]


class ParsedTrait(TraitType[Any, Any]):
    """A trait whose values go through a parser, a function of its name and the value given."""

    def __init__(self, parser: Parser, default: Any = None) -> None:
        self._parser = parser
        super().__init__(default)

    def set(self, obj: Any, value: Any) -> None:
        """Set the value, and let all observers react, before anything else changes."""
        with obj.lock:
            super().set(obj, value)

    def validate(self, obj: HasTraits, value: Any) -> Any:
        return self._parser(str(self.name), value)


def parse_choice(*allowed: str | None) -> Parser:
    """Return a parser that accepts one of some names; empty text is None."""

    def parse(name: str, value: Any) -> str | None:
        value = None if value == "" else value
        if (value is None or isinstance(value, str)) and value in allowed:
            return value
        raise unknown_value(name, value, [option for option in allowed if option], optional=None in allowed)

    return parse


def parse_columns(*allowed: str) -> Parser:
    """Return a parser that accepts columns to group by, as one name or several."""

    def parse(name: str, value: Any) -> tuple[str, ...]:
        columns = (value,) if isinstance(value, str) else tuple(value or ())
        unknown = [column for column in columns if column not in allowed]
        if unknown:
            raise unknown_value(name, unknown[0], allowed)
        return tuple(dict.fromkeys(columns))

    return parse


def parse_account(name: str, value: Any) -> int | None:
    """Accept an account id, also as text; empty text is None."""
    value = value.strip() or None if isinstance(value, str) else value
    return None if value is None else parse_account_id(value, name)


def parse_accounts(name: str, value: Any) -> int | tuple[int, ...] | None:
    """Accept an account id or several, also as text such as '10083, 11519'; one is an int."""
    given = re.split(r"[,;\s]+", value.strip(" ,;")) if isinstance(value, str) else value
    parsed = (parse_account(name, one) for one in (given if isinstance(given, (list, tuple)) else [given]))
    accounts = tuple(dict.fromkeys(one for one in parsed if one is not None))
    return accounts if len(accounts) > 1 else next(iter(accounts), None)


def parse_day(name: str, value: Any) -> dt.date | None:
    """Accept a day as a date, a time or ISO text."""
    if value is None or value == "":
        return None
    try:
        return dt.date.fromisoformat(value.isoformat()[:10] if isinstance(value, dt.date) else value)
    except (TypeError, ValueError):
        raise LabError(f"{name}={value!r} is not a day. Give one like '2022-03-31'.") from None


def parse_period(name: str, value: Any) -> str | None:
    if value is None or value == "":
        return None
    period_sql(value)  # raises where it is not a period
    return str(value)


def parse_text(name: str, value: Any) -> str | None:
    """Accept text, stripped; empty text is None."""
    if value is not None and not isinstance(value, str):
        raise LabError(f"{name}={value!r} is not text. Give text, or None for nothing.")
    return (value or "").strip() or None


def check_choices(choices: dict[str, Any], known: Sequence[str], widget: str) -> dict[str, Any]:
    for name in choices:
        if name not in known:
            hint = did_you_mean(name, known, f"It has {', '.join(known)}.")
            raise LabError(f"{widget} has no choice {name!r}. {hint}")
    return choices


def known_name(name: str, value: str, allowed: Iterable[str], *, optional: bool = False) -> str:
    """Return the one name that a value means, in any case, or raise a LabError with the nearest."""
    options = list(allowed)
    found = in_any_case(value, options)
    if found is None:
        raise unknown_value(name, value, options, optional=optional)
    return found


def unknown_value(name: str, value: object, allowed: Iterable[str], *, optional: bool = False) -> LabError:
    options = list(allowed)
    every = f"Give one of: {', '.join(options)}" + ("; or None for all." if optional else ".")
    hint = did_you_mean(str(value).upper(), options, every)
    return LabError(f"{name}={value!r} is not known. {hint}")
