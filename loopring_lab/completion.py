"""Tab completion of market and token names in IPython and JupyterLab, wherever a name is expected."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from loopring_lab.amounts.display import running_shell

TOKEN_ARGUMENTS = ("token", "base", "quote", "fee_token")
NAMED_ARGUMENT = re.compile(r"""\b(market|token|base|quote|fee_token)["']?\]?\s*==?\s*["']([^"'\n]*)$""")
POSITIONAL_TOKEN = re.compile(r"""\bin_token\([^()"']*,\s*["']([^"'\n]*)$""")

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
    if match := NAMED_ARGUMENT.search(code):
        kind, typed = "token" if match[1] in TOKEN_ARGUMENTS else "market", match[2]
    elif match := POSITIONAL_TOKEN.search(code):
        kind, typed = "token", match[1]
    else:
        return "", []
    return typed, [name for name in _names[kind] if name.casefold().startswith(typed.casefold())]


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
