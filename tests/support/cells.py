"""Runs generated code as a notebook runs a cell."""

import ast
from typing import Any


def values(code: str, **names) -> list[Any]:
    """Return what every line that is an expression gives, in order."""
    found = []
    for node in ast.parse(code).body:
        if isinstance(node, ast.Expr):
            found.append(
                eval(compile(ast.Expression(node.value), "cell", "eval"), names)
            )
        else:
            exec(compile(ast.Module([node], []), "cell", "exec"), names)
    return found
