"""From a control's change to the new picture on the page, at 20,000 trades, in a real JupyterLab and Chromium.

The time ends when the browser has decoded the picture. Beside it stands the time that the kernel alone takes
to draw the same figure, of trades already chosen. Run: python tests/benchmarks/bench_widgets.py
"""

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))
from browser.conftest import BROWSERS, in_lab, opened, run_cells

TARGET = 300  # ms
MARKETS = [("Market", name, "market", name) for name in ("LRC-ETH", "ETH-USDT", "ETH-USDC")]
SIDES = [("Side", "buy", "side", "BUY"), ("Side", "sell", "side", "SELL")]
REST = [("Market", "all markets", "market", None), ("Fills", "AMM pool", "fill_type", "amm")]
CHANGES = {  # label and option on the page, choice and value in the state; each wants a picture not drawn yet
    "FeeExplorer": [
        *MARKETS, *SIDES,
        ("Figure", "Fee tiers over time", "figure", "fee_tiers"),
        ("Figure", "Fees by token", "figure", "fees_by_token"),
        *REST,
    ],
    "FillExplorer": [
        *MARKETS, *SIDES,
        ("Figure", "Price gap", "figure", "price_gaps"),
        ("Figure", "Cost by size", "figure", "cost_curve"),
        ("Figure", "Size profile", "figure", "size_profile"),
        *REST,
    ],
}  # fmt: skip
SETUP = """import json, time
import ipywidgets
import loopring_lab as lab
from loopring_lab.widgets.explorers import as_png

trades = lab.connect().trades(11375, progress=False)"""
ALONE = """def drawn_alone(name, changes):
    explorer = getattr(lab.widgets, name)(trades)
    for _, _, choice, value in changes:
        setattr(explorer, choice, value)
        explorer.chosen
        begin = time.perf_counter()
        as_png(explorer.draw())
        yield 1000 * (time.perf_counter() - begin)

def tell(_):
    output.value = json.dumps({name: [*drawn_alone(name, changes)] for name, changes in CHANGES.items()})

output, button = ipywidgets.HTML(), ipywidgets.Button(description="Draw alone")
button.on_click(tell)
ipywidgets.VBox([button, output])"""
CHANGE = """async (box, [label, option]) => {
    const picture = box.querySelector('img'), before = picture.src;
    const named = [...box.querySelectorAll('label')].find(one => one.innerText.trim() === label);
    const select = document.getElementById(named.htmlFor);
    const place = [...select.options].findIndex(one => one.text.replaceAll('\\u00a0', ' ') === option);
    if (place < 0) throw new Error(`${label} does not offer ${option}`);
    const begin = performance.now();
    select.selectedIndex = place;
    select.dispatchEvent(new Event('change', { bubbles: true }));
    while (picture.src === before) {
        if (performance.now() > begin + 20000) throw new Error(`no new picture after ${label}: ${option}`);
        await new Promise(after => setTimeout(after, 1));
    }
    await picture.decode();
    return performance.now() - begin;
}"""


def notebook() -> nbformat.NotebookNode:
    sources = [SETUP, *(f"lab.widgets.{name}(trades)" for name in CHANGES), f"CHANGES = {CHANGES!r}\n{ALONE}"]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources], metadata=kernel)


def measured(page: Page) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Change every control in the page; then let the kernel draw the same alone. Milliseconds."""
    page.wait_for_function(
        "() => [...document.querySelectorAll('.loopring-lab img')].filter(one => one.naturalWidth > 1000).length === 2"
    )
    boxes = page.locator(".loopring-lab")
    shown = {
        name: [boxes.nth(place).evaluate(CHANGE, list(change[:2])) for change in changes]
        for place, (name, changes) in enumerate(CHANGES.items())
    }
    page.get_by_role("button", name="Draw alone").click()
    output = page.get_by_text('{"FeeExplorer"')
    output.wait_for(timeout=60_000)
    return shown, json.loads(output.inner_text())


def report(shown: dict[str, list[float]], alone: dict[str, list[float]]) -> None:
    for name, changes in CHANGES.items():
        for (label, option, *_), whole, drawing in zip(changes, shown[name], alone[name], strict=True):
            print(
                f"{name:<14}{label + ': ' + option:<32}{whole:6.0f} ms {drawing:6.0f} ms {whole / drawing:6.2f}"
            )
    pairs = [pair for name in CHANGES for pair in zip(shown[name], alone[name], strict=True)]
    times = [whole for whole, _ in pairs]
    median, ratio = statistics.median(times), statistics.median(whole / drawing for whole, drawing in pairs)
    kept = "kept" if median < TARGET else "MISSED"
    print(
        f"{len(times)} changes: median {median:.0f} ms (target: under {TARGET}, {kept}), slowest {max(times):.0f} ms"
    )
    print(f"against drawing the same figure in the kernel alone: {ratio:.2f} (median)")


def main() -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    words = ["--no-sandbox", "--disable-dev-shm-usage"]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        home = Path(name)
        (home / "notebooks").mkdir()
        nbformat.write(notebook(), home / "notebooks" / "bench.ipynb")
        chromium: Any = playwright.chromium.launch(executable_path=browser, args=words)
        with in_lab(home, "light") as base, opened(chromium) as page:
            run_cells(page, f"{base}doc/tree/bench.ipynb")
            report(*measured(page))
        chromium.close()


if __name__ == "__main__":
    main()
