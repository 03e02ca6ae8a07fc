"""Every notebook opens in JupyterLab and runs to the end, in the light and the dark theme."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted(path.name for path in (Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
WIDGET = ".jp-OutputArea-output .jupyter-widgets.widget-vbox >> nth=0"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_run_all_ends_without_an_error(
    name: str, theme: str, page: Any, run_all: Callable[[str], None], shot: Callable[[str], Path]
) -> None:
    run_all(name)
    picture = shot(f"{Path(name).stem}-{theme}")
    errors = page.locator('[data-mime-type="application/vnd.jupyter.error"]')
    assert [errors.nth(place).inner_text() for place in range(errors.count())] == []
    warnings = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    assert [warnings.nth(place).inner_text() for place in range(warnings.count())] == []
    assert picture.stat().st_size > 50_000
    if not name.startswith(("05", "06")):  # the others end with a widget
        page.locator(WIDGET).screenshot(path=picture.with_name(f"widget-{picture.name}"))
