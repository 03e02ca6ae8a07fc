"""Draw the pictures of the README: python tests/tools/pictures.py

Those of widgets are taken in JupyterLab and Chromium, and differ in a few pixels from run to run.
"""

import io
import tempfile
from pathlib import Path

import nbformat
from PIL import Image

import loopring_lab as lab

PICTURES = Path(__file__).parents[2] / "notebooks" / "pictures"
WIDTH = 760
"""Pixels of the page that a picture fills, with twice as many of its own."""
COLOURS = 128
WIDGETS = {
    "fill_explorer.png": (
        "client = lab.connect()\nlab.widgets.FillExplorer(client, account=10083)",
        "",
        [],
        ".ll-drawing svg",
    ),
    "market_explorer.png": (
        "lab.widgets.MarketExplorer(client, market='LRC-ETH', amount='0.5')",
        "LRC",
        [],
        "[role=status]:has-text('3 of 17 rows')",
    ),
    "key_update_wizard.png": (
        "lab.widgets.KeyUpdateWizard(client, account=10083)",
        "",
        ["Continue", "Use a demo wallet"],
        "tr:has-text('publicKey.y')",
    ),
}
"""The code of each widget, what to filter by, the buttons to press, and what is there once it can be taken."""


def drawn() -> dict[str, bytes]:
    """Return each figure's name and bytes."""
    client = lab.connect()
    trades = client.trades(client.accounts)
    prices = client.outside_prices(trades)
    known = lab.research.with_flow(trades, prices)
    with tempfile.TemporaryDirectory() as folder:
        store = lab.rollup.Store(Path(folder, "blocks.duckdb"))
        store.sync(to_block=11_221_814, progress=False)
        balances = store.blocks().balances(1, store.tokens())
    figures = {
        "pool_balance.png": lab.figures.pool_balance(balances),
        "volume.png": lab.figures.volume(client.trades(10083)),
        "venue_differences.png": lab.figures.venue_differences(
            known[known["flow"] == "user"], prices=prices
        ),
    }
    for figure in figures.values():
        figure.set_dpi(WIDTH / figure.get_figwidth())
    return {name: figure._repr_png_() for name, figure in figures.items()}  # type: ignore[attr-defined]


def taken(page, base: str, home: Path) -> dict[str, bytes]:
    """Return each widget's name and picture, from a page of JupyterLab."""
    from browser.conftest import run_cells

    sources = [
        "import loopring_lab as lab",
        *(source for source, *_ in WIDGETS.values()),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells, metadata=kernel),
        home / "notebooks" / "widgets.ipynb",
    )
    run_cells(page, f"{base}doc/tree/widgets.ipynb")
    boxes = page.locator(".loopring-lab")
    wider = WIDTH - boxes.first.bounding_box()["width"]
    page.set_viewport_size(
        {"width": round(page.viewport_size["width"] + wider), "height": 2000}
    )
    found = {}
    for place, (name, (_, words, buttons, sign)) in enumerate(WIDGETS.items()):
        if words:
            boxes.nth(place).get_by_label("Filter", exact=True).fill(words)
        for button in buttons:
            boxes.nth(place).get_by_role("button", name=button, exact=True).click()
        boxes.nth(place).locator(sign).first.wait_for()
        page.wait_for_timeout(500)  # until fonts and columns are laid out
        image = Image.open(io.BytesIO(boxes.nth(place).screenshot())).convert("RGB")
        png = io.BytesIO()
        image.quantize(COLOURS, dither=Image.Dither.NONE).save(
            png, "png", optimize=True
        )
        found[name] = png.getvalue()
    return found


def main():
    import shutil
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))  # where tests import from
    from browser.conftest import BROWSERS, in_lab, opened
    from playwright.sync_api import sync_playwright

    pictures = drawn()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        home = Path(folder)
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        (home / "notebooks").mkdir()
        chromium = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        with in_lab(home, "light") as base, opened(chromium) as page:
            pictures |= taken(page, base, home)
        chromium.close()
    for name, picture in pictures.items():
        (PICTURES / name).write_bytes(picture)


if __name__ == "__main__":
    main()
