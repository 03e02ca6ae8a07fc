"""Every notebook opens in JupyterLab and runs to the end, in the light and the dark theme."""

import json
import re
import urllib.request
from pathlib import Path

import nbformat
import pytest
from browser.conftest import ROOT, end_kernels, in_lab, opened, run_cells, taken

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
WIDGET = ".jp-OutputArea-output .jupyter-widgets.widget-vbox >> nth=0"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_run_all_ends_without_an_error(name, theme, page, run_all, shot):
    run_all(name)
    picture = shot(f"{Path(name).stem}-{theme}")
    errors = page.locator('[data-mime-type="application/vnd.jupyter.error"]')
    assert [errors.nth(place).inner_text() for place in range(errors.count())] == []
    warnings = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    assert [warnings.nth(place).inner_text() for place in range(warnings.count())] == []
    assert picture.stat().st_size > 50_000
    # The others end with a widget.
    if not name.startswith(("05", "06", "07")):
        page.locator(WIDGET).screenshot(
            path=picture.with_name(f"widget-{picture.name}")
        )


def test_kernels_end_with_their_test(tmp_path):
    (tmp_path / "notebooks").mkdir()
    session = {
        "name": "a",
        "path": "a.ipynb",
        "type": "notebook",
        "kernel": {"name": "python3"},
    }
    with in_lab(tmp_path, "light") as base:
        sessions = f"{base}api/sessions"
        urllib.request.urlopen(sessions, json.dumps(session).encode()).close()
        assert len(json.load(urllib.request.urlopen(sessions))) == 1
        end_kernels(base)
        assert json.load(urllib.request.urlopen(sessions)) == []


def test_the_readme_s_tour_pasted_into_one_cell_shows_every_table_and_the_figure(
    chromium, tmp_path
):
    (tour,) = re.findall(
        r"```python\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    (tmp_path / "notebooks").mkdir()
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(tour)]
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells, metadata=kernel),
        tmp_path / "notebooks" / "tour.ipynb",
    )
    with in_lab(tmp_path, "light") as base, opened(chromium) as page:
        run_cells(page, f"{base}doc/tree/tour.ipynb")
        taken(page, "tour")
        shown = page.locator(".jp-OutputArea-output")
        assert shown.locator("table").count() == 3
        picture = shown.locator("img")
        assert picture.count() == 1
        assert picture.evaluate("image => image.naturalWidth") >= 900
