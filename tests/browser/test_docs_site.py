"""The documentation in a real browser: light and dark, narrow and wide, readable by everyone."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from browser.conftest import SHOTS, opened, serving
from PIL import Image
from support.optional import package_or_skip

WIDTHS = (700, 1280, 2560)
PAGES = (
    "index",
    "start",
    "gallery",
    "reference/columns",
    "reference/loopring_lab.fees",
    "notebooks/02_fee_analysis",
)


@pytest.fixture(scope="module")
def site(docs_html, tmp_path_factory):
    """Serve the documentation on this machine."""
    server = [
        "http.server",
        "PORT",
        "--bind",
        "127.0.0.1",
        "--directory",
        str(docs_html),
    ]
    with serving(server, tmp_path_factory.mktemp("site"), "index.html") as base:
        yield base


def shown(page, address, theme):
    page.emulate_media(color_scheme=theme)
    page.goto(address, wait_until="load")
    assert page.evaluate("document.documentElement.dataset.theme") == theme


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_start_page_has_no_serious_fault_of_accessibility(chromium, site, theme):
    axe = package_or_skip("axe_playwright_python.sync_playwright").Axe()
    with opened(chromium) as page:
        for name in ("index", "start"):
            shown(page, f"{site}{name}.html", theme)
            faults = axe.run(page).response["violations"]
            serious = [
                (one["id"], one["nodes"][0]["html"])
                for one in faults
                if one["impact"] in ("serious", "critical")
            ]
            assert serious == [], name


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_the_window(chromium, site, theme, width):
    with opened(chromium, width) as page:
        for name in PAGES:
            shown(page, f"{site}{name}.html", theme)
            overflow = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            SHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SHOTS / f"docs-{Path(name).name}-{theme}-{width}.png")
            assert overflow <= 0, name


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_stand_on_the_page(chromium, site, theme):
    with opened(chromium) as page:
        shown(page, f"{site}gallery.html", theme)
        picture = page.locator(".cell_output img").first
        with Image.open(io.BytesIO(picture.screenshot())) as taken:
            grey = taken.convert("L")
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
        background = Image.new("RGB", (1, 1), (red, green, blue)).convert("L")
        paper = grey.getpixel((grey.width // 2, grey.height - 3))
        darkest, brightest = grey.getextrema()
        # No box of its own; texts are as far from the page as ink is from paper.
        assert abs(paper - background.getpixel((0, 0))) < 4
        assert max(brightest - paper, paper - darkest) > 150


def test_search_finds_a_function(chromium, site):
    with opened(chromium) as page:
        page.goto(f"{site}search.html?q=schedule_check")
        page.locator("#search-results a", has_text="schedule_check").first.wait_for()
