"""Every case: a door, and the hostile thing that comes through it. A case is known by its number."""

import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from attacks.answers import REGULAR, SMALL, VALUES, Path, members
from attacks.files import FILES
from attacks.lies import LIES

REFUSALS = ("refusal", "flat refusal")
LISTINGS = ("tokens", "markets")
READABLE = (*LISTINGS, "trades")
"""Answers that also come out of files."""
SLOW_DOORS = ("recording", "import", "gzip import", "archive")
JSON_DOORS = ("http", "tables", "http trades", "tables trades", *SLOW_DOORS)
DOORS = (*JSON_DOORS, "tables objects", "tables python", "lie", "recording file", "import file")
PYTHON_VALUES = 16
"""How many values of `doors.PYTHON` are not JSON."""


class Case(NamedTuple):
    """One attack.

    `answer` is what is spoiled: its member at `path` becomes `value`, a name in `VALUES`; of a lie or a file `value` is the name alone.
    """

    door: str
    answer: str
    path: Path
    value: str

    @property
    def id(self) -> str:
        where = ".".join(map(str, self.path)) or "whole"
        return f"{self.door} | {self.answer} | {where} | {self.value}"

    @property
    def must_be_right(self) -> bool:
        """Whether this is no attack, so that an error would be wrong."""
        return self.value == "regular"


CONTROLS = (
    "ends in a wrong value",
    "raises",
    "kills itself",
    "hangs",
    "grows",
    "says a key",
    "prints a traceback",
)
"""Doors that are broken on purpose: the pool must notice each."""


@functools.cache
def every_case() -> tuple[Case, ...]:
    """Return the attacks, and behind them the controls."""
    return tuple(dict.fromkeys(_cases())) + tuple(Case("broken", "tokens", (), name) for name in CONTROLS)


def attacks() -> range:
    """Return the numbers of the attacks."""
    return range(len(every_case()) - len(CONTROLS))


def _cases() -> Iterator[Case]:
    for door in JSON_DOORS:
        for answer in _answers(door):
            if answer not in REFUSALS:
                yield Case(door, answer, (), "regular")
    yield from _spoiled("http", step=4)
    yield from _spoiled("tables", step=4)
    yield from _spoiled("tables objects", step=11)
    yield from _spoiled("http trades", step=13)
    yield from _spoiled("tables trades", step=13)
    for door in SLOW_DOORS:
        yield from _spoiled(door, step=73 if door == "gzip import" else 37)
    for answer, path in itertools.product(READABLE, range(PYTHON_VALUES)):
        yield from (Case("tables python", answer, one, str(path)) for one in members(answer)[path % 3 :: 3])
    yield from (Case("lie", "trades", (), name) for name in LIES)
    yield from (Case(door, "trades", (), name) for door in ("recording file", "import file") for name in FILES)


def _answers(door: str) -> tuple[str, ...]:
    if door == "http":
        return tuple(REGULAR)
    return LISTINGS if door.endswith("trades") else READABLE


def _spoiled(door: str, step: int) -> Iterator[Case]:
    """Spoil each member with each of every `step` values, another first one for each member."""
    values = SMALL if door in SLOW_DOORS else list(VALUES)
    for answer in _answers(door):
        for place, path in enumerate(members(answer)):
            yield from (Case(door, answer, path, name) for name in values[place % step :: step])
