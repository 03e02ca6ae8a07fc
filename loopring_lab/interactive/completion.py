"""Tab completion in IPython and JupyterLab: of market and token names, and of what belongs to our objects.

For the latter IPython has jedi, which loads what it completes and reads its source: 2 to 3 seconds the first time.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from loopring_lab.interactive.shell import running_shell

if TYPE_CHECKING:
    import pandas as pd

# ``market="LRC-`` and ``trades["base"] == "LR``: the argument or column, and what is typed of its value.
NAMED_ARGUMENT = re.compile(
    r"""\b(?P<argument>market|token|base|quote|fee_token)["']?\]?\s*==?\s*["'](?P<typed>[^"'\n]*)$"""
)
# ``fees.in_token(trades, "ET``: the only function whose second argument is a token.
POSITIONAL_TOKEN = re.compile(r"""\bin_token\([^()"']*,\s*["'](?P<typed>[^"'\n]*)$""")
# ``lab.figures.fe``: a name or several, and what is typed of the next.
ATTRIBUTE = re.compile(
    r"""(?<![\w.)\]"'])(?P<owner>[^\W\d]\w*(?:\.\w+)*)\.(?P<typed>\w*)$"""
)

# The names of every client of the process; a dict keeps the order of the listing, which a set does not.
_names: dict[str, dict[str, None]] = {"market": {}, "token": {}}


def register_names(kind: str, listing: pd.DataFrame) -> pd.DataFrame:
    """Remember the markets or tokens of a listing for IPython's completer, and return the listing."""
    _names[kind].update(dict.fromkeys(listing.index))
    hook()
    return listing


def hook() -> None:
    """Give IPython's completer our names, once."""
    shell = running_shell()
    if shell is None:
        return
    if _match not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(_match)


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


def complete_attribute(
    code: str, variables: Mapping[str, Any]
) -> tuple[str, dict[str, str]]:
    """Return the part of an attribute before the cursor, and what it can be completed to, with its kind.

    That is nothing where the object is not ours, or a private name is typed.
    """
    found = ATTRIBUTE.search(code)
    if found is None:
        return "", {}
    name, *others = found["owner"].split(".")
    owner = variables.get(name)
    names: list[str] = []
    # Properties are not asked, as they may take long.
    if isinstance(owner, ModuleType) and _is_ours(owner.__name__):
        names = _public_names(".".join([owner.__name__, *others]))
    elif not others and _is_ours(type(owner).__module__):
        names = dir(owner)
    typed = found["typed"]
    return typed, {
        one: _kind(type(owner), one)
        for one in names
        if one.startswith(typed) and not one.startswith("_")
    }


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]


def _public_names(module: str) -> list[str]:
    """List the public names of a module of ours, without loading it; nothing if there is no such module."""
    if module in sys.modules:
        return dir(sys.modules[module])
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        # The name is within something that is no package, such as a class.
        return []
    if spec is None or spec.origin is None:
        return []
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            names = [ast.unparse(target) for target in statement.targets]
            if names == ["__all__"]:
                listed: list[str] = ast.literal_eval(statement.value)
                return listed
    return []


def _kind(owner: type, name: str) -> str:
    """Return the word by which JupyterLab chooses an icon."""
    if name[0].isupper():
        return "class"
    if owner is ModuleType or callable(inspect.getattr_static(owner, name, None)):
        return "function"
    return "instance"


def _match(context: Any) -> Any:
    from IPython.core.completer import SimpleCompletion

    code = context.line_with_cursor[: context.cursor_position]
    typed, names = complete_name(code)
    kinds = dict.fromkeys(names, "name")
    if not names:
        typed, kinds = complete_attribute(code, running_shell().user_ns)
    return {
        "completions": [
            SimpleCompletion(text=name, type=kind) for name, kind in kinds.items()
        ],
        "matched_fragment": typed,
        "suppress": bool(kinds),
    }


_match.matcher_api_version = 2  # type: ignore[attr-defined]
_match.matcher_identifier = "loopring_lab"  # type: ignore[attr-defined]
