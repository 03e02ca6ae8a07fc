"""The licences page: every locked package, as installed, and none whose licence nobody has looked at."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAMILIES = (
    *(
        "MIT",
        "BSD",
        "0BSD",
        "Apache",
        "ISC",
        "PSF",
        "Python Software Foundation",
        "MPL",
        "Mozilla",
    ),
    *("CC0", "Zlib", "CNRI-Python", "Public Domain"),
)


def rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("| ")
    ][1:]


def test_the_page_lists_the_locked_packages():
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    entries = re.findall(
        r'^name = "(.+)"\nversion = "(.+)"\nsource = \{ registry', lock, re.MULTILINE
    )
    assert len(entries) > 200
    assert sorted(
        (name, version)
        for name, versions, _ in rows()
        for version in versions.split(", ")
    ) == sorted(entries)


def test_each_licence_is_of_a_family_that_forbids_no_use():
    assert [
        row for row in rows() if not any(family in row[2] for family in FAMILIES)
    ] == []
