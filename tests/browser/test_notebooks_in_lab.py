"""Every notebook opens in JupyterLab and runs to the end, in the light and the dark theme."""

import re
from pathlib import Path

import pytest
from browser.conftest import ROOT, in_lab, opened, run_cells, taken, written
from support.optional import package_or_skip

expect = package_or_skip("playwright.sync_api").expect
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


def test_the_readme_s_tour_pasted_into_one_cell_shows_every_table_and_the_figure(
    chromium, tmp_path
):
    (tour,) = re.findall(
        r"```python\n(.*?)```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    written(tmp_path, [tour], "tour.ipynb")
    with in_lab(tmp_path, "light") as base, opened(chromium) as page:
        run_cells(page, f"{base}doc/tree/tour.ipynb")
        taken(page, "tour")
        shown = page.locator(".jp-OutputArea-output")
        expect(shown.locator("table")).to_have_count(3)
        picture = shown.locator("img")
        expect(picture).to_have_count(1)
        assert picture.evaluate("image => image.naturalWidth") >= 900
