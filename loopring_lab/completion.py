"""Tab completion of market and token names in IPython and JupyterLab, where a name is expected."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

__all__ = ["complete_name", "register_names"]

TOKENS = ("token", "base", "quote", "fee_token")
NAMED = re.compile(r"""\b(market|token|base|quote|fee_token)["']?\]?\s*==?\s*["']([^"'\n]*)$""")
VALUED = re.compile(r"""\bin_token\([^()"']*,\s*["']([^"'\n]*)$""")

_offered: dict[str, dict[str, None]] = {"market": {}, "token": {}}


def register_names(kind: str, names: Iterable[str]) -> None:
    """Remember names, and let IPython complete them if it runs."""
    _offered[kind].update(dict.fromkeys(names))
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and _matcher not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(_matcher)


def complete_name(code: str) -> tuple[str, list[str]]:
    """Find the names that the text before the cursor can be completed to."""
    named, valued = NAMED.search(code), VALUED.search(code)
    if named:
        kind, typed = "token" if named[1] in TOKENS else "market", named[2]
    elif valued:
        kind, typed = "token", valued[1]
    else:
        return "", []
    return typed, [name for name in _offered[kind] if name.casefold().startswith(typed.casefold())]


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
