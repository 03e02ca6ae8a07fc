"""List the licence of every locked package in docs/licences.md: python tests/tools/licences.py [WHEEL ...]

Licences are read from installed packages. Of those that are not installed, because another platform or Python
needs them, give the wheels; a package whose version is on the page already keeps its line.
"""

import re
import sys
import tomllib
from collections import defaultdict
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "licences.md"
LINE = re.compile(r"^\| ([a-z0-9-]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
INTRODUCTION = """# Licences

The packages in `uv.lock`, {count} without this one, with the licence that each states: for users, for tests and for the build. A package in several versions has one line. None forbids a use of this toolkit. `python tests/tools/licences.py` writes this page from the packages' own metadata, and a test compares it with the lock.

| Package | Version | Licence |
|---|---|---|
"""


def locked() -> dict[str, str]:
    """Return the versions of each locked package."""
    versions = defaultdict(list)
    for package in tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))[
        "package"
    ]:
        if "registry" in package["source"]:
            versions[package["name"]].append(package["version"])
    return {name: ", ".join(sorted(versions[name])) for name in sorted(versions)}


def listed() -> dict[str, tuple[str, str]]:
    """Return versions and licence of each package on the page."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return {name: (versions, licence) for name, versions, licence in LINE.findall(text)}


def found(paths: list[str]) -> dict[str, tuple[str, str]]:
    """Return version and licence of each package in some folders or wheels."""
    packages = metadata.distributions(path=paths)
    return {
        re.sub(r"[-_.]+", "-", package.name).lower(): (
            package.version,
            licence(package),
        )
        for package in packages
    }


def licence(package: metadata.Distribution) -> str:
    """Return the licence that a package states: as an expression, classifiers, a line of text, or a file."""
    stated = package.metadata
    kinds = [
        text.rpartition(" :: ")[2]
        for text in stated.get_all("Classifier") or []
        if text.startswith("License :: OSI Approved :: ")
        or text == "License :: Public Domain"
    ]
    lines = (stated.get("License") or "").strip().splitlines()
    for file in stated.get_all("License-File") or []:
        lines = (
            lines or (package.read_text(f"licenses/{file}") or "").strip().splitlines()
        )
    expression = stated.get("License-Expression")
    return expression or ", ".join(sorted(kinds)) or (lines[0].strip() if lines else "")


def main(wheels: list[str]):
    known = listed()
    have = found([*sys.path, *wheels])
    rows = []
    missing = []
    for name, versions in locked().items():
        version, text = have.get(name, ("", ""))
        if version not in versions.split(", ") or not text:
            before, text = known.get(name, ("", ""))
            if before != versions:
                missing.append(f"{name} {versions}")
        rows.append(f"| {name} | {versions} | {text} |\n")
    if missing:
        sys.exit(f"Not installed: {'; '.join(missing)}. Give a wheel of each.")
    PAGE.write_text(
        INTRODUCTION.format(count=len(rows)) + "".join(rows), encoding="utf-8"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
