"""The README's claims hold."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tools.pictures import PICTURES, drawn

import loopring_lab

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOW_TO = "".join(
    path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs" / "how-to").glob("*.md"))
)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.thorough
def test_the_tour_pasted_whole_shows_its_tables_and_ends_in_a_picture():
    (tour,) = CODE.findall(README)
    lines = tour.strip().splitlines()
    assert len(lines) <= 14
    assert lines[-1].startswith("lab.figures.")
    cell = nbformat.v4.new_code_cell(tour)
    NotebookClient(nbformat.v4.new_notebook(cells=[cell]), timeout=600).execute()
    kinds = [kind for output in cell.outputs for kind in output.get("data", {})]
    assert kinds.count("text/html") == tour.count("lab.show(") == 3
    assert "image/png" in cell.outputs[-1].data


@pytest.mark.thorough
def test_the_pictures_are_the_project_s_own():
    for name, picture in drawn().items():
        assert (PICTURES / name).read_bytes() == picture
        assert f"notebooks/pictures/{name}" in README + HOW_TO


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^):#]+)\)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_what_is_to_be_cited_is_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {loopring_lab.__version__}\n" in citation
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {loopring_lab.__version__} " in changes


def test_no_page_or_message_installs_by_a_name_that_is_not_published():
    pages = map(read, [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    code = map(read, (ROOT / "loopring_lab").rglob("*.py"))
    for text in (*pages, *code):
        assert not re.search(r"pip install ['\"]?loopring", text)
