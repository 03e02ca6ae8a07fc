"""Notebooks with widgets, saved and read without their kernel: in JupyterLab and as a page of nbconvert."""

from __future__ import annotations

import nbformat
import pytest
from browser.conftest import (
    end_kernels,
    in_lab,
    opened,
    run_cells,
    save,
    taken,
    written,
)
from support.optional import package_or_skip

SETUP = """import loopring_lab as lab

client = lab.connect()
trades = client.trades(10083, progress=True)"""
CELLS = [
    "lab.widgets.FeeExplorer(trades)",
    "lab.widgets.FillExplorer(client, account=10083)",
    "lab.widgets.MarketExplorer(client)",
    "lab.widgets.KeyUpdateWizard(client)",
    "lab.show(lab.figures.volume(trades), interactive=True)",
    "lab.show(trades, interactive=True)",
]
PICTURES = 3
COPY = ".ll-saved"


@pytest.fixture(scope="module", params=["light", "dark"])
def saved(request, chromium, tmp_path_factory):
    """A page on which a notebook was run and saved, and opened again without its kernel."""
    expect = package_or_skip("playwright.sync_api").expect
    home = tmp_path_factory.mktemp("saved")
    path = written(home, [SETUP, *CELLS])
    with in_lab(home, request.param) as base, opened(chromium) as page:
        address = f"{base}doc/tree/a.ipynb"
        run_cells(page, address)
        # Copies are made after a second of quiet; those of figures hold pictures.
        expect(page.locator(COPY)).to_have_count(len(CELLS))
        expect(page.locator(f"{COPY} img")).to_have_count(PICTURES)
        # While the widgets live, their copies are out of sight.
        expect(page.locator(COPY).filter(visible=True)).to_have_count(0)
        taken(page, f"live-{request.param}")
        save(page, path.name)
        end_kernels(base)
        page.goto("about:blank")
        page.goto(f"{address}?reset", wait_until="domcontentloaded")
        # JupyterLab looks for the widgets for two seconds before it shows their copies.
        expect(page.locator(COPY).filter(visible=True)).to_have_count(len(CELLS))
        yield page, path, request.param


def visible(page, selector):
    found = page.locator(selector).all()
    return sum(one.is_visible() for one in found)


def test_jupyterlab_shows_figures_and_tables_of_widgets_without_a_kernel(saved):
    page, _, theme = saved
    taken(page, f"reopened-{theme}")
    assert visible(page, COPY) == len(CELLS)
    assert visible(page, f"{COPY} img") == PICTURES
    assert visible(page, f"{COPY} table") >= PICTURES + 1
    assert visible(page, "text=Error displaying widget") == 0


def test_a_page_of_nbconvert_shows_them_too(saved, chromium):
    from nbconvert import HTMLExporter

    _, path, theme = saved
    notebook = nbformat.read(path, as_version=4)
    html, _ = HTMLExporter(theme=theme).from_notebook_node(notebook)
    target = path.with_suffix(".html")
    target.write_text(html, encoding="utf-8")
    with opened(chromium) as page:
        page.unroute_all()
        page.goto(target.as_uri(), wait_until="domcontentloaded")
        taken(page, f"nbconvert-{theme}")
        assert visible(page, COPY) == len(CELLS)
        assert visible(page, f"{COPY} img") == PICTURES


def test_no_bar_is_saved(saved):
    _, path, _ = saved
    first = nbformat.read(path, as_version=4).cells[0]
    assert {output.output_type for output in first.outputs} == {"stream"}
