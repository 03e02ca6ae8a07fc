"""What every widget is: choices that are checked when they are set, work in the background, and a view."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from traitlets import HasTraits, TraitType

from loopring_lab.amounts.display import running_request
from loopring_lab.arguments import parse_account_id
from loopring_lab.engine.groups import count_and_unit, several
from loopring_lab.errors import LabError, did_you_mean, in_any_case
from loopring_lab.widgets.background import Background
from loopring_lab.widgets.static_copy import HasSavedCopy, SavedCopy

if TYPE_CHECKING:
    from loopring_lab.widgets.panel import Panel

Parser = Callable[[str, Any], Any]
"""Takes the name of a choice and the value given for it; returns what is kept, or raises a LabError."""

# The last settings of the widgets of each cell, and how many of a class each run of a cell has made.
_remembered: dict[tuple[str, ...], dict[str, Any]] = {}
_made: Counter[tuple[str, str]] = Counter()


class WidgetState(HasSavedCopy, HasTraits):
    """Choices that work from code, and that a notebook shows with a view."""

    ABOUT = ""
    CHOICES: ClassVar[tuple[str, ...]] = ()
    # The module and the class of the view. Views import the widgets, and bring ipywidgets.
    _view_class: tuple[str, str]
    # The model works out what the choices show, and writes the code of it.
    model: Any

    def __init__(self, given: dict[str, Any]) -> None:
        # traitlets would take an unknown name in silence.
        for name in given:
            if name not in self.CHOICES:
                others = f"It has {', '.join(self.CHOICES)}."
                hint = did_you_mean(name, self.CHOICES, others)
                raise LabError(f"{type(self).__name__} has no choice {name!r}. {hint}")
        # This comes before the choices, because setting one takes its lock.
        self.background = Background()
        super().__init__(**given)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {self.ABOUT}. Run this cell in JupyterLab, or open the notebook with "
            "Voila, to use it."
        )

    def export(self) -> str:
        """Return Python code that reproduces what is on screen, with the names that the notebook has."""
        code: str = self.model.export()
        return code

    def wait(self, timeout: float | None = None) -> None:
        """Wait for what is being read or done.

        Parameters
        ----------
        timeout : float, optional
            Seconds; a LabError if it takes longer. Of an error of the work itself, the view shows the message.
        """
        self.background.wait(timeout)

    @cached_property
    def _saved(self) -> SavedCopy:  # type: ignore[override]
        """What is displayed; made, with the controls and results, when the widget is first shown."""
        module, name = self._view_class
        view = getattr(
            import_module(f"loopring_lab.widgets.{module}"),
            name,
        )
        shown: Panel = view(self, self.model)
        return shown.saved

    def _recall(self, given: dict[str, Any]) -> None:
        """Take the choices that this cell's widget had last, except for those given, and remember them.

        Running a cell again makes a new widget; without this, it would forget what was chosen in it.
        """
        message = running_request() or {}
        cell = message.get("metadata", {}).get("cellId")
        if not cell:
            return
        # A cell may make several widgets of a class, always in the same order.
        name_of_class = type(self).__name__
        run = (message["header"]["msg_id"], name_of_class)
        _made[run] += 1
        place = (cell, name_of_class, str(_made[run]))
        for name, value in _remembered.get(place, {}).items():
            if name not in given:
                # A choice that does not fit this source, such as a market it lacks, is left out.
                with contextlib.suppress(LabError):
                    setattr(self, name, value)

        def remember(_: object) -> None:
            _remembered[place] = {name: getattr(self, name) for name in self.CHOICES}

        self.observe(remember, self.CHOICES)


class Choice(TraitType[Any, Any]):
    """A trait whose values go through a parser."""

    def __init__(self, parser: Parser, default: Any = None) -> None:
        self._parser = parser
        super().__init__(default)

    def set(self, obj: Any, value: Any) -> None:
        """Set the value, and let all observers react, before another thread changes anything."""
        # traitlets calls the observers inside `set`, so the lock is held for them too.
        with obj.background.lock:
            super().set(obj, value)

    def validate(self, obj: HasTraits, value: Any) -> Any:
        # A control on a page has empty text where nothing is chosen.
        if isinstance(value, str):
            value = value.strip() or None
        return self._parser(str(self.name), value)


class MarketChoice(Choice):
    """A market in any case, which must be one of the model's as soon as that has read them."""

    def __init__(self) -> None:
        super().__init__(parse_text)

    def validate(self, obj: Any, value: Any) -> Any:
        market = super().validate(obj, value)
        # The first choices are set before there is a model.
        known = obj.model.market_names if hasattr(obj, "model") else []
        if market and known:
            market = known_market(market, known)
        return market


def one_of(*allowed: str | None) -> Parser:
    """Return a parser that accepts one of some names."""

    def parse(name: str, value: Any) -> str | None:
        if (value is None or isinstance(value, str)) and value in allowed:
            return value
        raise unknown_value(name, value, allowed)

    return parse


def columns_of(*allowed: str) -> Parser:
    """Return a parser that accepts columns to group by, as one name or several."""

    def parse(name: str, value: Any) -> tuple[str, ...]:
        columns = [] if value is None else several(value)
        for column in columns:
            if column not in allowed:
                raise unknown_value(name, column, allowed)
        # Twice the same column would be an error of every query.
        return tuple(dict.fromkeys(columns))

    return parse


def parse_account(name: str, value: Any) -> int | None:
    """Accept an account id, also as text."""
    return None if value is None else parse_account_id(value, name)


def parse_accounts(name: str, value: Any) -> int | tuple[int, ...] | None:
    """Accept an account id or several, also as text such as '10083, 11519'; one is an int."""
    if isinstance(value, str):
        value = re.findall(r"[^,;\s]+", value)
    if not isinstance(value, list | tuple):
        return parse_account(name, value)
    accounts = tuple(dict.fromkeys(parse_account_id(one, name) for one in value))
    if len(accounts) > 1:
        return accounts
    return accounts[0] if accounts else None


def parse_day(name: str, value: Any) -> dt.date | None:
    """Accept a day as a date, a time or ISO text."""
    if value is None:
        return None
    # A time, which is a date to Python, is cut to its day.
    text = value.isoformat()[:10] if isinstance(value, dt.date) else value
    try:
        return dt.date.fromisoformat(text)
    except (TypeError, ValueError):
        raise LabError(
            f"{name}={value!r} is not a day. Give one like '2022-03-31'."
        ) from None


def parse_period(name: str, value: Any) -> str | None:
    """Accept a period that trades can be grouped by, such as '1w'."""
    if value is None:
        return None
    count_and_unit(value)  # raises where it is not a period
    return str(value)


def parse_text(name: str, value: Any) -> str | None:
    """Accept text."""
    if value is None or isinstance(value, str):
        return value
    raise LabError(f"{name}={value!r} is not text. Give text, or None for nothing.")


def known_market(value: str, allowed: Iterable[str | None]) -> str:
    """Return the one name that a value means, in any case, or raise a LabError with the nearest."""
    options = list(allowed)
    found = in_any_case(value, filter(None, options))
    if found is None:
        raise unknown_value("market", value, options)
    return found


def unknown_value(name: str, value: object, allowed: Iterable[str | None]) -> LabError:
    """Return the error for a name that is not allowed; None among those that are stands for all."""
    options = list(allowed)
    names = [option for option in options if option]
    ending = "; or None for all." if None in options else "."
    others = f"Give one of: {', '.join(names)}{ending}"
    hint = did_you_mean(value, names, others)
    return LabError(f"{name}={value!r} is not known. {hint}")
