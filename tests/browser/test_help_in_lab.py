"""Help in JupyterLab: tooltips, Tab completion, the last line of an error, and reprs."""

from __future__ import annotations

import contextlib

import nbformat
import pytest
from browser.conftest import in_lab, opened, run_cells, taken

CELLS = [
    "import loopring_lab as lab\n\nclient = lab.connect()\nclient",
    'lab.Archive("trades")',
    "tokens, markets = client.tokens(), client.markets()",
    "",
]


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    """Open a notebook whose last cell is empty; the tests type into that."""
    home = tmp_path_factory.mktemp("help")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(one) for one in CELLS]
    (home / "notebooks").mkdir()
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells[:-1], metadata=kernel),
        home / "notebooks" / "a.ipynb",
    )
    with in_lab(home, "light") as base, opened(chromium) as page:
        run_cells(page, f"{base}doc/tree/a.ipynb")
        yield page


def sync_api_timeout():
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    return PlaywrightTimeout


def typed(page, text):
    """Type into the last cell, in place of what is there."""
    cell = page.locator(".jp-CodeCell").last
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(
        text
    )  # typed letter by letter, brackets that close by themselves may interfere
    cell.locator(".cm-content").get_by_text(text, exact=True).wait_for()
    return cell


@pytest.mark.parametrize(
    "name", ["fees.summary", "fills.all_in_cost", "figures.cost_curve", "Archive.sync"]
)
def test_a_tooltip_holds_what_is_asked_for_and_an_example(page, name):
    typed(page, f"lab.{name}(")
    page.keyboard.press("Shift+Tab")
    tooltip = page.locator(".jp-Tooltip")
    tooltip.wait_for()
    words = tooltip.inner_text()
    taken(page, f"tooltip-{name}")
    page.keyboard.press("Escape")
    assert words.index("Parameters") < words.index("Returns") < words.index(">>> ")


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ('client.trades(10083, market="LRC-ETHH")', "Did you mean 'LRC-ETH'?"),
        (
            'client.trades(10083, fill_type="pool")',
            "give 'amm', 'dex', or nothing for both.",
        ),
        ('lab.connect(recording="nowhere")', "Give the folder that holds tokens.json"),
        ('lab.Archive("nothing").trades()', "Fill it first: archive.sync(client"),
    ],
)
def test_the_last_line_of_an_error_says_what_to_do(page, code, hint):
    cell = typed(page, code)
    last = cell.locator(".jp-OutputArea-output").get_by_text(hint)
    for _ in range(
        6
    ):  # a key press can get lost while JupyterLab is still busy with the cell before
        cell.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        with contextlib.suppress(sync_api_timeout()):
            last.first.wait_for(timeout=20_000)
            break
    lines = [
        line
        for line in cell.locator(".jp-OutputArea-output").last.inner_text().split("\n")
        if line.strip()
    ]
    assert hint in lines[-1]
