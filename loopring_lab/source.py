"""The identity of a source: what keeps trades of different exchanges, worlds and recordings apart.

A relayer that states none is known by its address, and a folder of saved responses by its path.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from loopring_lab.bounded import parse_json, read_text, whole_or_text
from loopring_lab.errors import LabError, UnexpectedAnswer

HEADER = "X-Loopring-Lab-Source"
"""The header in which a relayer states its identity, as JSON."""
FILE = "source.json"
"""The file of a recording that states its identity."""
LONGEST = 4_096
MEMBERS: dict[str, type] = {"name": str, "synthetic": bool, "exchange": str, "chainId": int}
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Source:
    """Where data comes from; None for what a source does not say."""

    name: str
    synthetic: bool = False
    exchange: str | None = None
    chain_id: int | None = None

    def __post_init__(self) -> None:
        """Keep the name and the exchange in one form, so that equal ones compare as equal."""
        if not self.name or len(self.name + (self.exchange or "")) > LONGEST:
            raise LabError(f"source: expected a name of 1 to {LONGEST:,} characters. Give another name.")
        object.__setattr__(self, "name", _visible(self.name))
        object.__setattr__(self, "exchange", self.exchange and _visible(self.exchange.lower()))

    def __str__(self) -> str:
        known = ["synthetic"] if self.synthetic else []
        known += [f"exchange {self.exchange}"] if self.exchange else []
        known += [] if self.chain_id is None else [f"chain {self.chain_id}"]
        return f"{self.name!r} ({', '.join(known)})" if known else repr(self.name)

    def joined(self, other: Source) -> Source | None:
        """Return what both say of one source, or None if they contradict each other."""
        if (self.name, self.synthetic) != (other.name, other.synthetic):
            return None
        if self.exchange and other.exchange and self.exchange != other.exchange:
            return None
        chain_ids = {self.chain_id, other.chain_id} - {None}
        if len(chain_ids) > 1:
            return None
        return Source(self.name, self.synthetic, self.exchange or other.exchange, next(iter(chain_ids), None))

    def to_json(self) -> str:
        """Write the identity as `read` reads it."""
        members = {"exchange": self.exchange, "chainId": self.chain_id}
        known = {name: value for name, value in members.items() if value is not None}
        return json.dumps({"name": self.name, "synthetic": self.synthetic} | known)

    @classmethod
    def read(cls, text: str, where: str) -> Self:
        """Read an identity that a relayer, a recording or an archive states."""
        try:
            answer = parse_json(text, where, number=whole_or_text)
        except UnexpectedAnswer:
            answer = None
        if not isinstance(answer, dict):
            raise _unexpected(where, "a JSON object", repr(text[:80]))
        stated = {name: answer[name] for name in MEMBERS if answer.get(name) is not None}
        found = {"synthetic": False} | stated
        for name, value in found.items():
            if type(value) is not MEMBERS[name]:
                expected = f"a member {name} of type {MEMBERS[name].__name__}"
                raise _unexpected(where, expected, type(value).__name__)
        if not found.get("name"):
            raise _unexpected(where, "a member name of type str", repr(text[:80]))
        return cls(found["name"], found["synthetic"], found.get("exchange"), found.get("chainId"))

    @classmethod
    def at(cls, address: str) -> Self:
        """Return the identity of a relayer that states none: its address, however that is written."""
        parts = urlsplit(address)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = "" if parts.port in (None, DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
        return cls(f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}")

    @classmethod
    def of_saved(cls, folder: Path, name: str | None, *places: Path) -> Self:
        """Return the identity of saved responses: as stated in a place, as given, or the path of a folder."""
        stated = next(filter(None, map(cls._stated_in, places)), None)
        if stated and name not in (None, stated.name):
            raise LabError(f"source={name!r}: the saved {FILE} names {stated.name!r}. Leave one of them out.")
        if stated:
            return stated
        return cls(os.fsencode(folder.resolve()).decode(errors="backslashreplace") if name is None else name)

    @classmethod
    def _stated_in(cls, folder: Path) -> Self | None:
        """Read the identity that a folder states, if it does."""
        file = folder / FILE
        if not file.is_file():
            return None
        return cls.read(read_text(file, size=4 * LONGEST), str(file))


def _unexpected(where: str, expected: str, got: str) -> UnexpectedAnswer:
    hint = 'Correct it: it is like {"name": "my exchange", "synthetic": false}.'
    return UnexpectedAnswer(where, expected=expected, got=got, hint=hint)


def _visible(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
