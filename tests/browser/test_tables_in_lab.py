"""Tables in a real JupyterLab: what `show` displays, and what can be done with a TableView."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from browser.conftest import THEMES, in_lab, opened, run_cells, taken, written
from support.optional import package_or_skip

import loopring_lab as lab

expect = package_or_skip("playwright.sync_api").expect
ROWS = 2_000
HOSTILE = "=HYPERLINK(1)<img src=x onerror=alert(1)>"
CELLS = [
    f"""
import loopring_lab as lab
import pandas as pd
from loopring_lab.widgets.table_view import TableView

client = lab.connect()
trades = client.trades(10083, limit={ROWS}, progress=False)
summary = lab.fees.summary(trades, by="quote")
lab.show(client.markets()[["base", "quote", "enabled", "created_at"]], rows=6)
lab.show(summary, precision=8, rows=8)
for account in (10083, 71468):
    lab.show(client.trades(account, limit=2, progress=False)[["side", "size", "base", "price", "quote"]])
kept = lab.show(lab.fills.breakdown(trades, by="quote"), precision=8)
None""",
    """
view = TableView(trades, precision=4)
view""",
    """
chosen = TableView(summary, choosing=True)
chosen""",
    f"""
odd = TableView(pd.DataFrame({{"memo": [{HOSTILE!r}, "-2+3", "b"], "n": pd.array([2, 10**17, None], dtype="Int64")}}))
odd""",
    """
from IPython.display import HTML
from loopring_lab.interactive.prose import Sentences
display(lab.show(pd.DataFrame({"market": ["$A-$B"]})), Sentences("1 $A and 2 $B"), HTML("<p>$A-$B</p>"))""",
]


@pytest.fixture(scope="module", params=list(THEMES))
def page(request, chromium, tmp_path_factory):
    """Open a notebook with tables, in a theme, with all its cells run."""
    home = tmp_path_factory.mktemp(f"tables-{request.param}")
    written(home, CELLS)
    with in_lab(home, request.param) as base, opened(chromium) as page:
        run_cells(page, f"{base}doc/tree/a.ipynb")
        page.locator(".ll-view").nth(2).wait_for()
        page.theme = request.param
        yield page


@pytest.fixture(scope="module")
def trades():
    return lab.connect().trades(10083, limit=ROWS, progress=False)


def view(page, number=0):
    return page.locator(".ll-view").nth(number)


def shows_column(view, name, texts):
    """Wait until a column on the page of a table has some texts."""
    names = [one.strip(" ▲▼") for one in view.locator("thead th").all_inner_texts()]
    expect(
        view.locator(f"tbody tr > :nth-child({names.index(name) + 1})")
    ).to_have_text(texts)


def saved(page, view):
    with page.expect_download() as download:
        view.get_by_role("button", name="Save CSV").dblclick()
    return list(
        csv.reader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8")))
    )


def test_each_call_of_show_displays_its_table_once(page):
    tables = page.locator(".jp-CodeCell").nth(0).locator("table.ll-table")
    expect(tables).to_have_count(5)
    heads = [tables.nth(n).locator("thead th").first.inner_text() for n in range(5)]
    assert heads == ["market", "quote", "side", "side", "quote"]
    taken(page, f"tables-{page.theme}")


def test_a_click_sorts_by_exact_value_and_typing_filters(page, trades):
    one = view(page)
    size = one.get_by_role("button", name="size")
    for is_down in (False, True):
        size.click()
        # Sizes of several tokens have no order among each other, so the token comes first.
        by_size = trades.sort_values("size", ascending=not is_down, kind="stable")
        expected = by_size.sort_values("base", kind="stable")["trade_id"].head(50)
        shows_column(one, "trade_id", [str(value) for value in expected])
        assert (
            size.locator("xpath=..").get_attribute("aria-sort")
            == ["ascending", "descending"][is_down]
        )
    size.click()
    shows_column(one, "trade_id", [str(value) for value in trades["trade_id"].head(50)])
    expect(one.locator("[aria-sort]")).to_have_count(0)
    one.get_by_label("Filter").fill("dex")
    found = trades[trades["fill_type"] == "dex"]
    shows_column(one, "trade_id", [str(value) for value in found["trade_id"].head(50)])
    one.get_by_label("Filter").fill("")
    heading = one.get_by_role("button", name="trade_id")
    assert heading.get_attribute("title") == "Number of the fill; both sides share it."


def test_help_on_a_heading_is_reached_by_keyboard(page):
    one = view(page)
    # Where the test before left the pointer, another heading may scroll under it.
    page.mouse.move(0, 0)
    one.get_by_role("button", name="fee_bps").focus()
    assert "Fee per gross amount" in one.locator(".ll-help").inner_text()
    page.keyboard.press("Enter")
    expect(one.locator("[aria-sort=ascending]")).to_contain_text("fee_bps")
    page.keyboard.press(
        "Enter"
    )  # the keyboard is still at the heading, which is a new one
    expect(one.locator("[aria-sort=descending]")).to_contain_text("fee_bps")
    page.keyboard.press("Enter")
    expect(one.locator("[aria-sort]")).to_have_count(0)
    assert page.locator(".jp-CodeCell").count() == len(
        CELLS
    )  # no key reached JupyterLab's commands


def test_a_row_is_chosen_by_click_and_by_key(page):
    one = view(page, 1)
    one.get_by_role("button", name="fills").click()
    expect(one.locator("[aria-sort=ascending]")).to_have_count(1)
    rows = one.locator("tbody tr")
    rows.nth(0).click()
    expect(rows.nth(0)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    expect(rows.nth(0)).to_have_attribute("aria-selected", "false")
    taken(page, f"table-view-{page.theme}")


def test_hostile_text_is_text_and_no_formula(page):
    one = view(page, 2)
    shows_column(one, "memo", [HOSTILE, "-2+3", "b"])
    assert one.locator("img").count() == 0
    for order in ("ascending", "descending"):
        one.get_by_role("button", name="n", exact=True).click()
        expect(one.locator(f"[aria-sort={order}]")).to_have_count(1)
    shows_column(one, "n", ["100,000,000,000,000,000", "2", "-"])
    downloads = []
    page.on("download", lambda one: downloads.append(one))
    saved(page, one)
    assert saved(page, one)[1:] == [
        ["'-2+3", str(10**17)],
        ["'" + HOSTILE, "2"],
        ["b", ""],
    ]
    # Each by a double click, which saves the table once.
    assert len(downloads) == 2


def test_names_with_dollars_are_no_mathematics(page):
    shown = page.locator(".jp-CodeCell").nth(4).locator(".jp-OutputArea-output")
    # What JupyterLab makes of them in HTML that is not ours comes last.
    expect(shown.nth(2).locator("mjx-container")).to_have_count(1)
    assert shown.nth(0).inner_text().split() == ["market", "$A-$B"]
    assert shown.nth(1).inner_text().strip() == "1 $A and 2 $B"


@pytest.mark.parametrize("width", [700, 2560])
def test_tables_fit_narrow_and_wide_pages(page, width):
    page.set_viewport_size({"width": width, "height": 1600})
    one = view(page)
    assert one.evaluate("one => one.scrollWidth <= one.clientWidth + 1")
    taken(page, f"tables-{page.theme}-{width}")
    page.set_viewport_size({"width": 1280, "height": 1600})
