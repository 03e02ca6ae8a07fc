"""Sentences about answers: text in a console, prose in a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping

# The beginning of a line that explains the one above it; Markdown takes such lines as a list.
ITEM = "- "


class Sentences(str):
    """Text that a notebook sets as prose, in lines as long as its page, where it breaks printed text anywhere."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        # An asterisk in the name of a group would begin something.
        escaped = re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", self)
        paragraphs = "\n\n".join(escaped.splitlines())
        # Items of one list stand close together.
        return re.sub(rf"(?m)^({ITEM}.*)\n\n(?={ITEM})", r"\1\n", paragraphs)


def worded(problem: str, words: Mapping[str, str]) -> str:
    """Replace each pattern in an error by words for what is in front of its reader: a page or a terminal."""
    for pattern, name in words.items():
        problem = re.sub(pattern, name, problem)
    return problem
