"""Draw which part of the package imports which, in docs/architecture.md: python tests/tools/floors.py

A part is a module or a package directly below `loopring_lab`. An arrow that follows from others is left out.
"""

import re
from itertools import product
from pathlib import Path

import grimp

PACKAGE = "loopring_lab"
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
PICTURE = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)


def imports() -> dict[str, set[str]]:
    """Return the parts that each part imports, leaving out imports for type checkers only."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    parts = {module: set[str]() for module in sorted(graph.find_children(PACKAGE))}
    for module in graph.modules - {PACKAGE}:
        part = part_of(module)
        for imported in graph.find_modules_directly_imported_by(module) - {PACKAGE}:
            if part_of(imported) != part:
                parts[part].add(part_of(imported))
    return parts


def part_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def reduced(parts: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the arrows that do not follow from others."""
    reached = {part: below(part, parts) for part in parts}
    return [
        (part, imported)
        for part, imported in product(parts, parts)
        if imported in parts[part] and not any(imported in reached[other] for other in parts[part])
    ]


def below(part: str, parts: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    open_ = list(parts[part])
    while open_:
        module = open_.pop()
        if module not in found:
            found.add(module)
            open_ += parts[module]
    return found


def picture() -> str:
    lines = [f"    {name(part)} --> {name(imported)}" for part, imported in reduced(imports())]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```", ""])


def name(part: str) -> str:
    return part.removeprefix(f"{PACKAGE}.").replace("__main__", "main")


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(PICTURE.sub(lambda _: picture(), page), encoding="utf-8")
