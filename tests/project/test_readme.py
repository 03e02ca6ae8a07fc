"""The README's claims hold."""

import logging
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tools.pictures import PICTURES, drawn

import loopring_lab as lab

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOW_TO = "".join(
    path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs" / "how-to").glob("*.md"))
)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run_code(*parts: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile("".join(parts), "README.md", "exec"), names)
    return names


@pytest.mark.thorough
def test_the_how_to_pages_run_as_written_after_the_tour(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sql = logging.getLogger("loopring_lab.sql")
    try:
        names = run_code(*CODE.findall(README), *CODE.findall(HOW_TO))
    finally:
        lab.engine.set_memory()
        sql.setLevel(logging.NOTSET)
    assert names["archive"].report()["complete"].all()
    assert names["store"].check().problems.empty
    assert len(names["client"].trades()) == len(names["settled"]) > 1_000


@pytest.mark.thorough
def test_the_tour_pasted_whole_shows_its_tables_and_ends_in_a_picture():
    (tour,) = CODE.findall(README)
    lines = tour.strip().splitlines()
    assert len(lines) <= 12
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
