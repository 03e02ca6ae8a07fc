"""Tab completion of market and token names in IPython and JupyterLab, wherever a name is expected."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from loopring_lab.amounts.display import running_shell

# ``market="LRC-`` and ``trades["base"] == "LR``: the argument or column, and what is typed of its value.
NAMED_ARGUMENT = re.compile(
    r"""\b(?P<argument>market|token|base|quote|fee_token)["']?\]?\s*==?\s*["'](?P<typed>[^"'\n]*)$"""
)
# ``fees.in_token(trades, "ET``: the only function whose second argument is a token.
POSITIONAL_TOKEN = re.compile(r"""\bin_token\([^()"']*,\s*["'](?P<typed>[^"'\n]*)$""")

# Of every client of the process; a dict keeps the order of the listing, which a set does not.
_names: dict[str, dict[str, None]] = {"market": {}, "token": {}}


def register_names(kind: str, listing: pd.DataFrame) -> pd.DataFrame:
    """Remember the markets or tokens of a listing for IPython's completer, and return the listing."""
    _names[kind].update(dict.fromkeys(listing.index))
    shell = running_shell()
    if shell is not None and _matcher not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(_matcher)
    return listing


def complete_name(code: str) -> tuple[str, list[str]]:
    """Return the part of a name before the cursor, and the names that it can be completed to."""
    named = NAMED_ARGUMENT.search(code)
    positional = POSITIONAL_TOKEN.search(code)
    if named:
        kind = "market" if named["argument"] == "market" else "token"
        typed = named["typed"]
    elif positional:
        kind = "token"
        typed = positional["typed"]
    else:
        return "", []
    folded = typed.casefold()
    return typed, [name for name in _names[kind] if name.casefold().startswith(folded)]


def _matcher(context: Any) -> Any:
    from IPython.core.completer import SimpleCompletion

    typed, names = complete_name(context.line_with_cursor[: context.cursor_position])
    return {
        "completions": [SimpleCompletion(text=name, type="name") for name in names],
        "matched_fragment": typed,
        "suppress": bool(names),
    }


_matcher.matcher_api_version = 2  # type: ignore[attr-defined]
_matcher.matcher_identifier = "loopring_lab names"  # type: ignore[attr-defined]
