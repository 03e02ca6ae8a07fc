"""The line that a page has while something is read: it is seen meanwhile, and nothing of it is saved."""

from __future__ import annotations

import nbformat
import pytest
from browser.conftest import (
    FINISHED,
    in_lab,
    open_notebook,
    opened,
    save,
    taken,
    written,
)
from support.optional import package_or_skip

READ = """from pathlib import Path
from time import sleep
from loopring_lab.progress import track
with track("pool trades", True) as report:
    for held in range(1, 10_000):
        report(held, 10_000)
        sleep(0.05)
        if Path("go").exists():
            break
1 + 1"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_shows_how_far_a_read_is_and_forgets_it(theme, chromium, tmp_path):
    expect = package_or_skip("playwright.sync_api").expect
    path = written(tmp_path, [READ])
    with in_lab(tmp_path, theme) as base, opened(chromium, 900) as page:
        open_notebook(page, f"{base}doc/tree/{path.name}")
        page.locator(".jp-CodeCell .cm-content").click()
        page.keyboard.press("Shift+Enter")
        line = page.locator(".ll-progress[role=progressbar]")
        expect(line).to_contain_text("pool trades:")
        expect(line).to_contain_text("/10000")
        taken(page, f"progress-{theme}")
        (path.parent / "go").touch()
        page.wait_for_function(FINISHED.replace("every(", "some("), timeout=90_000)
        expect(line).to_have_count(0)
        save(page, path.name)
    (first, *_) = nbformat.read(path, as_version=4).cells
    assert [output.output_type for output in first.outputs] == ["execute_result"]
