"""Widgets run without a page, as nbconvert, papermill and nbval run them: what the notebook keeps of each."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

# Notebooks 02 to 04 hold such copies, which nbval compares; here they are looked into.
pytestmark = pytest.mark.thorough
TESTS = Path(__file__).parents[1]
SEED = "nobody shall read this"
WIZARD = f"""import sys
sys.path.insert(0, {str(TESTS)!r})
from widgets.conftest import OnPage
relayer = Relayer(World(size=0.001)).start()
own = lab.connect(relayer.base_url, api_key=relayer.api_key, rate=None)
wizard = lab.widgets.KeyUpdateWizard(own, account=10083, max_fee="0.01", way="key")
wizard"""
STEPS = f"""page = OnPage(wizard).press("Continue")
page.type_secret("Own key seed (optional):", "{SEED}" + " with key nonce: 1")
page.type_secret("Private key:", bytes(relayer.signer(10083).key).hex())
page.press("Continue to signing").press("Sign")
assert wizard.step == "submit", page.problem"""
CHANGES = """fees.account = 11519
fees.figure = "fee_tiers"
view.show(lab.figures.fee_tiers(client.trades(11519)))"""
SETUP = """import loopring_lab as lab
from loopring_lab.relayer import Relayer, World
small = Relayer(World(size=0.1)).start()
client = lab.connect(small.base_url, api_key=small.api_key, rate=None)"""
CELLS = {
    "setup": SETUP,
    "fees": "fees = lab.widgets.FeeExplorer(client, account=10083)\nfees",
    "fills": "lab.widgets.FillExplorer(client, account=10083, figure='venue_differences')",
    "markets": "lab.widgets.MarketExplorer(client, market='LRC-ETH', amount='0.5')",
    "look": "view = lab.show(lab.figures.volume(client.trades(10083)), interactive=True)\nview",
    "wizard": WIZARD,
    "steps": STEPS,
    "changes": CHANGES,
}
IMAGE = re.compile(r'<img alt="[^"]+"[^>]*src="data:image/png;base64,[^"]{10000,}"')
STEP = re.compile(r"<li><b>(\w+)</b>(.*?)</li>(?=<li><b>|</ol>)", re.DOTALL)


@pytest.fixture(scope="module")
def notebook():
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    return notebook


@pytest.fixture(scope="module")
def copies(notebook):
    """What each cell keeps for readers without a kernel."""
    texts = [
        "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
        for cell in notebook.cells
    ]
    return dict(zip(CELLS, texts, strict=True))


def test_explorers_keep_their_figure_and_table(copies):
    for name in ("fees", "fills"):
        assert len(IMAGE.findall(copies[name])) == 1
        assert copies[name].count("<table") == 1
    # These are read after the trades.
    assert "reference: outside prices" in copies["fills"]


def test_the_market_explorer_keeps_its_list_and_what_it_says_of_an_amount(copies):
    assert "Order limits" in copies["markets"]
    assert "0.5 LRC" in copies["markets"]


def test_the_wizard_keeps_what_each_step_has_shown(copies):
    shown = dict(STEP.findall(copies["wizard"]))
    assert [*shown] == ["account", "key", "preview", "sign", "submit", "follow"]
    assert "0.01" in shown["account"]
    assert "frozen" in shown["key"]
    assert "publicKey.x" in shown["preview"]
    assert "The private key that made the new key is still held" in shown["sign"]
    assert "The update is signed" in shown["submit"]
    assert shown["follow"] == ""


def test_a_copy_follows_later_cells(copies):
    assert "Fee tiers over time" in copies["fees"]
    # The explorer draws fills of takers, as all of this account are.
    assert IMAGE.findall(copies["fees"]) == IMAGE.findall(copies["look"])
