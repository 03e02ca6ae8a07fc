"""Figures to look into, in JupyterLab: hover, zoom, keys and themes, compared with what the library computes."""

from __future__ import annotations

import pytest
from browser.conftest import THEMES, in_lab, opened, run_cells, taken, written
from support.optional import package_or_skip

import loopring_lab as lab

expect = package_or_skip("playwright.sync_api").expect
CELLS = [
    "import loopring_lab as lab\n\ntrades = lab.connect().trades(10083)",
    "lab.show(lab.figures.volume(trades), interactive=True)",
    "lab.show(lab.figures.fees_by_token(trades), interactive=True)",
    "lab.show(lab.figures.volume(trades.head(400)), interactive=True)",
]
HOVER = """([view, x, y]) => {
    const picture = document.querySelectorAll('.ll-picture')[view], box = picture.getBoundingClientRect();
    picture.dispatchEvent(new PointerEvent('pointermove', {
        clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true }));
}"""
INK = "([view]) => getComputedStyle(document.querySelectorAll('.ll-picture svg')[view]).fill"


@pytest.fixture(scope="module")
def trades():
    return lab.connect().trades(10083)


@pytest.fixture(scope="module")
def notebook(theme, chromium, tmp_path_factory):
    """A notebook with figures to look into, run in JupyterLab in a theme."""
    home = tmp_path_factory.mktemp(f"figures-{theme}")
    written(home, CELLS, "figures.ipynb")
    with in_lab(home, theme) as base, opened(chromium) as page:
        run_cells(page, f"{base}lab/tree/figures.ipynb")
        page.locator(".ll-picture svg").nth(2).wait_for()
        yield page


def place(mark, figure):
    """Return where a mark is in its picture, by the limits of the axes drawn in the page."""
    axes = figure.axes[0]
    figure.draw_without_rendering()
    x, y = axes.transData.transform((sum(mark.x) / 2, sum(mark.y) / 2))
    return float(x / figure.bbox.width), float(1 - y / figure.bbox.height)


def tip(page, view):
    return str(page.locator(".ll-picture").nth(view).locator(".ll-tip").text_content())


def test_hover_says_what_the_library_computes(notebook, trades):
    for view, figure in enumerate(
        (lab.figures.volume(trades), lab.figures.fees_by_token(trades))
    ):
        for mark in figure.marks[:: max(1, len(figure.marks) // 12)]:
            notebook.evaluate(HOVER, [view, *place(mark, figure)])
            assert tip(notebook, view) == mark.text


def test_arrow_keys_read_the_values_aloud(notebook, trades):
    figure = lab.figures.volume(trades)
    picture = notebook.locator(".ll-picture").nth(0)
    live = notebook.locator(".ll-live").nth(0)
    picture.focus()
    notebook.keyboard.press("Home")
    for mark in figure.marks[1:4]:
        notebook.keyboard.press("ArrowRight")
        assert live.text_content() == mark.text.replace("\n", ", ")
        assert tip(notebook, 0) == mark.text
    notebook.keyboard.press("End")
    assert tip(notebook, 0) == figure.marks[-1].text
    heard = live.text_content()
    notebook.evaluate(HOVER, [0, 0.3, 0.5])
    assert live.text_content() == heard  # not on every move of a pointer
    notebook.keyboard.press("Escape")
    assert picture.locator(".ll-tip").is_hidden()
    assert picture.get_attribute("role") == "img"
    assert figure.axes[0].get_title(loc="left") in str(
        picture.get_attribute("aria-label")
    )
    assert notebook.locator(".jp-Cell").count() == len(
        CELLS
    )  # no key reached the notebook


def drawn(page, view):
    return str(page.locator(".ll-drawing").nth(view).inner_html())


def changed(page, view, before):
    page.wait_for_function(
        "([view, before]) => document.querySelectorAll('.ll-drawing')[view].innerHTML !== before",
        arg=[view, before],
    )
    return drawn(page, view)


def test_a_drag_zooms_with_new_ticks_and_showing_all_restores_it(notebook):
    whole = drawn(notebook, 0)
    other = drawn(notebook, 1)
    picture = notebook.locator(".ll-picture").nth(0)
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    notebook.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    notebook.mouse.down()
    notebook.mouse.move(
        box["x"] + 0.5 * box["width"], box["y"] + 0.6 * box["height"], steps=4
    )
    notebook.mouse.up()
    part = changed(notebook, 0, whole)
    assert drawn(notebook, 1) == other
    tools = notebook.locator(".loopring-lab-figure").nth(0).get_by_role("button")
    tools.nth(3).click()
    moved = changed(notebook, 0, part)
    picture.focus()
    notebook.keyboard.press("+")
    nearer = changed(notebook, 0, moved)
    notebook.keyboard.press("-")
    changed(notebook, 0, nearer)
    notebook.keyboard.press("0")
    notebook.wait_for_function(
        "([before]) => document.querySelectorAll('.ll-drawing')[0].innerHTML === before",
        arg=[whole],
    )
    expect(tools.nth(4)).to_be_disabled()


def test_views_on_one_page_share_no_id_and_letters_are_found(notebook):
    twice, lost = notebook.evaluate("""() => {
        const ids = [...document.querySelectorAll('.ll-drawing [id]')].map(e => e.id);
        const links = [...document.querySelectorAll('.ll-drawing use')].map(e => e.getAttribute('xlink:href').slice(1));
        return [ids.length - new Set(ids).size, links.filter(id => !document.getElementById(id)).length];
    }""")
    assert (twice, lost) == (0, 0)


def test_another_theme_needs_no_new_drawing(notebook, theme):
    before = drawn(notebook, 0)
    ink = notebook.evaluate(INK, [0])
    taken(notebook, f"figures-{theme}")
    other = next(name for key, name in THEMES.items() if key != theme)
    notebook.get_by_role("menuitem", name="Settings", exact=True).click()
    for entry in ("Theme", other):
        notebook.locator(".lm-Menu-itemLabel").get_by_text(entry, exact=True).click()
    notebook.wait_for_function(f"([ink]) => ({INK})([0]) !== ink", arg=[ink])
    assert drawn(notebook, 0) == before
