"""Text of ours in a notebook: sentences about answers as prose, names as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

# The beginning of a line that explains the one above it; Markdown takes such lines as a list.
ITEM = "- "
# JupyterLab takes what stands between two dollars for mathematics, unless an element parts them. A token may be called
# "$".
DOLLAR = "<span>&#36;</span>"


class Sentences(str):
    """Text that a notebook sets as prose, in lines as long as its page, where it breaks printed text anywhere."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        # An asterisk in the name of a group would begin something.
        escaped = re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", self)
        escaped = escaped.replace("$", DOLLAR)
        paragraphs = "\n\n".join(escaped.splitlines())
        # Items of one list stand close together.
        return re.sub(rf"(?m)^({ITEM}.*)\n\n(?={ITEM})", r"\1\n", paragraphs)


def as_html(text: str) -> str:
    """Write text as HTML that shows it as it is."""
    return escape(text).replace("$", DOLLAR)


def worded(problem: str, words: Mapping[str, str]) -> str:
    """Replace each pattern in an error by words for what is in front of its reader: a page or a terminal."""
    for pattern, name in words.items():
        problem = re.sub(pattern, name, problem)
    return problem
