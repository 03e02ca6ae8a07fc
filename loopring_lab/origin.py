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
LONGEST = 4_096  # characters: a path may be as long on Linux
MEMBERS: dict[str, type] = {
    "name": str,
    "synthetic": bool,
    "exchange": str,
    "chainId": int,
}
_HINT = 'Correct it: it is like {"name": "my exchange", "synthetic": false}.'
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
        is_text = isinstance(self.name, str)
        is_named = is_text and self.name.strip()
        if not is_named or len(self.name + (self.exchange or "")) > LONGEST:
            raise LabError(
                f"source: expected a name of 1 to {LONGEST:,} characters. Give another name."
            )
        object.__setattr__(self, "name", _visible(self.name))
        object.__setattr__(
            self, "exchange", self.exchange and _visible(self.exchange.lower())
        )

    def __str__(self) -> str:
        known = []
        if self.synthetic:
            known.append("synthetic")
        if self.exchange:
            known.append(f"exchange {self.exchange}")
        if self.chain_id is not None:
            known.append(f"chain {self.chain_id}")
        return f"{self.name!r} ({', '.join(known)})" if known else repr(self.name)

    def joined(self, other: Source) -> Source | None:
        """Return what both say of one source, or None if they contradict each other."""
        # A name alone, as one is given for saved files, says nothing else: whoever knows more completes it.
        is_name_only = self == Source(self.name)
        is_alike = self.synthetic == other.synthetic or is_name_only
        if self.name != other.name or not is_alike:
            return None
        exchange = self.exchange or other.exchange
        chain_id = other.chain_id if self.chain_id is None else self.chain_id
        # A fact that only one of them states is taken over; a fact that both state must be the same.
        is_other_exchange = other.exchange and other.exchange != exchange
        is_other_chain = other.chain_id is not None and other.chain_id != chain_id
        if is_other_exchange or is_other_chain:
            return None
        return Source(self.name, other.synthetic, exchange, chain_id)

    def to_json(self) -> str:
        """Write the identity as `read` reads it."""
        members: dict[str, object] = {
            "name": self.name,
            "synthetic": self.synthetic,
        }
        if self.exchange is not None:
            members["exchange"] = self.exchange
        if self.chain_id is not None:
            members["chainId"] = self.chain_id
        return json.dumps(members)

    @classmethod
    def read(cls, text: str, where: str) -> Self:
        """Read an identity that a relayer, a recording or an archive states."""
        # Nothing of it is shown: in somebody else's folder it may be a link to a file of the reader's own.
        answer = parse_json(text, where, number=whole_or_text, hint=_HINT)
        if not isinstance(answer, dict):
            raise _unexpected(where, "a JSON object", type(answer).__name__)
        for name, kind in MEMBERS.items():
            value = answer.get(name)
            # Not isinstance: true is an int to Python, and a number that is too long stays text of its own type.
            if value is not None and type(value) is not kind:
                raise _unexpected(
                    where,
                    f"a member {name} of type {kind.__name__}",
                    type(value).__name__,
                )
        if not answer.get("name"):
            raise _unexpected(where, "a member name of type str", "none")
        synthetic = answer.get("synthetic") or False
        return cls(
            answer["name"],
            synthetic,
            answer.get("exchange"),
            answer.get("chainId"),
        )

    @classmethod
    def at(cls, address: str) -> Self:
        """Return the identity of a relayer that states none: its address, however that is written."""
        parts = urlsplit(address)
        host = parts.hostname or ""
        if ":" in host:  # of IPv6, from which urlsplit takes the brackets
            host = f"[{host}]"
        if parts.port not in (None, DEFAULT_PORTS.get(parts.scheme)):
            host += f":{parts.port}"
        return cls(f"{parts.scheme}://{host}{parts.path.rstrip('/')}")

    @classmethod
    def of_saved(
        cls,
        known: Path | str,
        name: str | None,
        *places: Path,
        stated: Self | None = None,
    ) -> Self:
        """Return the identity of saved responses: as `stated` or in a place, as given, or as known, a path or name."""
        for place in places:
            file = place / FILE
            if stated is None and file.is_file():
                stated = cls.read(read_text(file, size=4 * LONGEST), str(file))
        if stated and name not in (None, stated.name):
            raise LabError(
                f"source={name!r}: what was saved names {stated.name!r}. Leave one of them out."
            )
        if stated:
            return stated
        if name is not None:
            return cls(name)
        if isinstance(known, Path):
            # A path may hold bytes that are no text in this system's encoding.
            known = os.fsencode(known.resolve()).decode(errors="backslashreplace")
        return cls(known)


def given_name(name: str | None) -> str | None:
    """Return the name that a caller gives a source, in the one form of names; None if there is none."""
    return None if name is None else Source(name).name


def _unexpected(where: str, expected: str, got: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(where, expected=expected, got=got, hint=_HINT)


def _visible(text: str) -> str:
    """Write what no screen shows as escapes, so that two names that look alike are alike."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in text
    )
