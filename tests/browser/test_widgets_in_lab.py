"""The four widgets in JupyterLab: each control, compared with what the library computes."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path

import pytest
from browser.conftest import in_lab, opened, run_cells, save, taken, written
from support.driven_widget import DrivenWidget
from support.key_update_setup import personal_sign
from support.optional import package_or_skip

import loopring_lab as lab
from loopring_lab.interactive.prose import worded
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.widgets import check_amount, views
from loopring_lab.widgets.wizard_view import ON_PAGE

READ = 10083
LARGE = 1
UPDATED = 11519
LOCKED = 23100
SETUP = """import ipywidgets
import loopring_lab as lab

client, slow = lab.connect("{base_url}", rate=None), lab.connect("{base_url}", rate=50)
history = client.trades({read}, progress=False)"""
CELLS = {
    "market": "lab.widgets.MarketExplorer(client)",
    "fees": "lab.widgets.FeeExplorer(slow.with_api_key('none'), account={read})",
    "fills": "lab.widgets.FillExplorer(history)",
    "update": "lab.widgets.KeyUpdateWizard(client, account={updated})",
    "plain": "ipywidgets.Password(description='Plain:')",
}
CLASSES = {
    "market": "MarketExplorer(",
    "fees": "FeeExplorer(",
    "fills": "FillExplorer(",
    "update": "KeyUpdateWizard(",
}
SAVE_STATE = {"@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True}}
MARKETS = ["base", "quote", "amm_open", "orderbook_open", "enabled"]
LIMITS = ["decimals", "precision", "precision_for_order"]
LIMITS += [f"order_amounts_{bound}" for bound in ("minimum", "maximum", "dust")]
TOKENS = ["name", "token_id", "type", *LIMITS, "enabled"]
FEES = [
    "fee_token",
    "fills",
    "fee",
    "bps",
    "median_bps",
    "zero_fee_share",
    "received",
    "unknown",
]
SEED_END = " with key nonce: 1"  # the wizard itself says that a key seed ends so
SEED = f"a sentence of my own that nobody shall read{SEED_END}"
NOTEBOOK = "widgets.ipynb"
PLAIN = "this-one-was-typed-into-a-plain-field"


@pytest.fixture(scope="module")
def relayer():
    """A relayer in this process, whose key updates move only when a test says so."""
    with Relayer(World(), Settings(update_seconds=None)) as running:
        yield running


@pytest.fixture(scope="module")
def client(relayer):
    return lab.connect(relayer.base_url, api_key=relayer.api_key, rate=None)


@pytest.fixture(scope="module")
def trades(client):
    return client.trades(READ, progress=False)


@pytest.fixture(scope="module")
def signed(relayer):
    """What is typed as a secret, by what it is."""
    signer = relayer.signer(UPDATED)
    client = lab.connect(relayer.base_url, rate=None)
    return {
        "API key": client.api_key(relayer.l2_key(LOCKED), LOCKED),
        "key seed": SEED,
        "signature": "0x" + personal_sign(signer, SEED).hex(),
        "private key": "0x" + bytes(signer.key).hex(),
    }


class Lab:
    """A notebook with the widgets, open in JupyterLab."""

    def __init__(self, page, home):
        self.page = page
        self.home = home
        self.typed: list[str] = []

    def widget(self, name):
        return DrivenWidget(
            self.page, self.cell(CLASSES[name]).locator(".loopring-lab"), self.typed
        )

    def cell(self, code):
        """Return the cell with some code."""
        return self.page.locator(".jp-CodeCell").filter(
            has=self.page.locator(".cm-content", has_text=code)
        )

    def run(self, cell):
        """Run a cell again, and wait until it is done."""
        prompt = cell.locator(".jp-InputPrompt").first
        before = prompt.inner_text()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_function(
            "([one, before]) => one.innerText !== before && /\\d/.test(one.innerText)",
            arg=[prompt.element_handle(), before],
        )


@pytest.fixture(scope="module")
def place(chromium, relayer, tmp_path_factory):
    """Open the notebook and run it; the widgets' state is saved with it."""
    home = tmp_path_factory.mktemp("widgets")
    names = {"base_url": relayer.base_url, "read": READ, "updated": UPDATED}
    sources = [one.format(**names) for one in (SETUP, *CELLS.values())]
    written(home, sources, NOTEBOOK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPRING_API_KEY", relayer.api_key[:])
        with in_lab(home, "light", **SAVE_STATE) as base, opened(chromium) as page:
            run_cells(page, f"{base}doc/tree/{NOTEBOOK}")
            yield Lab(page, home)


def test_market_explorer(place, client):
    widget = place.widget("market")
    markets = client.markets()
    tokens = client.tokens()
    widget.shows_table(lab.show(markets[MARKETS], rows=50))
    widget.choose("List", "tokens")
    widget.control("Filter").fill("wrapped")
    widget.shows_table(
        lab.show(tokens[tokens["name"].str.contains("Wrapped")][TOKENS], rows=50)
    )
    widget.choose("List", "markets")
    widget.shows(f"0 of {len(markets)} rows")
    widget.control("Filter").fill("lrc")
    found = markets[markets.index.str.contains("LRC")]
    widget.shows_table(lab.show(found[MARKETS], rows=50))
    widget.box.locator(".ll-box tbody tr").filter(has_text="LRC-USDC").click()
    limits = lab.show(tokens.loc[["LRC", "USDC"], LIMITS].T.rename_axis("limit"))
    widget.shows_table(limits, 1)
    widget.holds("Market", "LRC-USDC")
    widget.choose("of the", "quote token")
    for amount in ("0.5", "12.5"):
        widget.control("Amount").fill(amount)
        for finding in check_amount(client, "LRC-USDC", amount, "quote"):
            widget.shows(finding.words)
    _, same, findings = widget.exported(client=client)
    assert repr(same) == repr(limits)
    assert findings == check_amount(client, "LRC-USDC", "12.5", "quote")


def fees(chosen, *by):
    table = lab.fees.summary(chosen, by=list(by))
    return lab.show(table[list(dict.fromkeys([*by, *FEES]))], precision=8, rows=50)


def takers(trades):
    return trades[trades["role"] == "taker"]


def test_fee_explorer(place, client, trades, signed):
    widget = place.widget("fees")
    everyone = trades
    trades = takers(trades)
    widget.box.locator(".ll-problem").wait_for()
    widget.shows_no_picture()
    widget.submit_secret("API key:", signed["API key"])
    widget.shows_table(fees(trades, "market"))
    widget.shows_picture(lab.figures.fee_rates(trades))
    widget.control("API key:").wait_for(state="hidden")
    chosen = trades[(trades["market"] == "LRC-ETH") & (trades["side"] == "SELL")]
    widget.choose("Market", "LRC-ETH")
    widget.choose("Per", "month")
    widget.choose("Figure", "Fee tiers over time")
    chosen = trades[trades["market"] == "LRC-ETH"]
    widget.shows_table(fees(chosen, "market"))
    widget.shows_picture(lab.figures.fee_tiers(chosen, every="1mo"))
    widget.choose("Market", "all markets")
    widget.choose("Role", "all")
    widget.choose("Table by", "side")
    widget.choose("Period", "30 days to 31 Dec 2022")
    chosen = everyone[everyone["created_at"] >= "2022-12-02"]
    widget.shows_table(fees(chosen, "side"))
    widget.holds("From", "2022-12-02")
    widget.enter("Before", "1999-01-01")
    span = {"since": "2022-12-02", "until": "1999-01-01"}
    widget.shows_problem(
        explorer_error(lambda: lab.widgets.FeeExplorer(trades, **span))
    )
    widget.shows("From 2022-12-02 is after Before 1999-01-01")
    widget.shows_no_picture()
    widget.enter("Before", "")
    widget.choose("Figure", "Fees by token")
    widget.control("Per").wait_for(state="hidden")
    widget.shows_picture(lab.figures.fees_by_token(chosen))
    _, figure = widget.exported(client=client)
    widget.shows_picture(figure)
    before = widget.picture()
    widget.enter("Account", str(LARGE))
    reading = rf"^Reading the trades of account {LARGE}: [\d,]+ of {client.count(LARGE):,}\s*$"
    widget.shows(re.compile(reading))
    widget.press("Cancel")
    cancelled = f"account {LARGE}: cancelled.* To start again, change a choice"
    widget.shows(re.compile(cancelled))
    widget.shows_no_picture()
    widget.enter("Account", str(READ))
    widget.shows_drawing(before)


def test_code_is_copied_and_becomes_the_next_cell(place):
    widget = place.widget("fees")
    page = place.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = widget.code()
    widget.press("Copy")
    widget.shows("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == code
    widget.box.get_by_role("button", name="Insert below").dblclick()
    widget.shows("Inserted below.")
    widget.fold_code()
    inserted = place.cell("chosen = trades")
    sources = page.locator(".jp-CodeCell .cm-content").all_inner_texts()
    assert [CLASSES["fees"] in source for source in sources].index(
        True
    ) + 1 == sources.index(code)
    assert sources.count(code) == 1
    place.run(inserted)
    inserted.locator(".jp-OutputArea-output table").first.wait_for()
    page.get_by_role("menuitem", name="Edit", exact=True).click()
    page.get_by_role("menuitem", name="Delete Cell", exact=False).first.click()
    inserted.wait_for(state="detached")


def test_a_cell_run_again_keeps_the_choices(place, trades):
    widget = place.widget("fills")
    widget.choose("Market", "LRC-ETH")
    widget.choose("Table by", "side")
    chosen = trades[trades["market"] == "LRC-ETH"]
    table = lab.show(lab.fills.breakdown(chosen, by=["side"]), precision=8, rows=50)
    widget.shows_table(table)
    place.run(place.cell(CLASSES["fills"]))
    widget.shows_table(table)
    widget.holds("Market", "LRC-ETH")
    widget.choose("Market", "all markets")
    widget.choose("Table by", "No grouping")


def test_fill_explorer(place, trades):
    widget = place.widget("fills")
    shown = partial(lab.show, precision=8, rows=50)
    widget.shows_table(shown(lab.fills.breakdown(trades, by=[])))
    widget.shows_picture(lab.figures.fill_shares(trades))
    widget.choose("Side", "buy")
    widget.choose("Fills", "AMM pool")
    widget.choose("Figure", "Price gap")
    widget.choose("Prices within", "a day")
    bought = trades[trades["side"] == "BUY"]
    pool = bought[bought["fill_type"] == "amm"]
    widget.shows_problem(
        explorer_error(lambda: lab.figures.price_gaps(pool, tolerance="1d"))
    )
    widget.shows_no_picture()
    widget.choose("Fills", "both")
    widget.shows_no_problem()
    widget.shows_picture(lab.figures.price_gaps(bought, tolerance="1d"))
    widget.choose("Figure", "Size profile")
    widget.choose("Quoted in", "USDC")
    widget.shows_picture(lab.figures.size_profile(bought, quote="USDC"))
    _, figure = widget.exported(history=trades)
    widget.shows_picture(figure)


def error_of(call):
    """Return the message of the library's error."""
    with pytest.raises(lab.LabError) as refused:
        call()
    return str(refused.value)


def explorer_error(call):
    """Return the message as an explorer words it."""
    return worded(error_of(call), views.ON_PAGE)


def on_page(call):
    """Return the message as the wizard words it."""
    return worded(error_of(call), ON_PAGE)


def test_key_update_wizard(place, relayer, client, signed):
    widget = place.widget("update")
    account = client.account(UPDATED)
    widget.enter("Valid for", "soon")
    widget.shows_problem(
        on_page(lambda: lab.widgets.KeyUpdateWizard(client, valid_for="soon"))
    )
    # What was refused stands until it is corrected: nothing from before is used in its place.
    widget.holds("Valid for", "soon")
    widget.enter("Valid for", "12h")
    widget.shows_no_problem()
    widget.enter("Fee in", "LRC")
    widget.enter("Max fee", "2.5")
    widget.press("Continue")
    widget.shows(f"Account {UPDATED}")
    assert {name: value for name, value, _ in widget.rows()} == {
        "owner": account.owner,
        "publicKey.x": account.x,
        "nonce": str(account.nonce),
        "frozen": "no",
    }
    widget.press("Back")
    widget.shows("Valid for")
    widget.holds("Max fee", "2.5")
    widget.press("Continue")
    widget.shows(prepared(client).key_seed_message())
    widget.submit_secret("Own key seed (optional):", signed["key seed"])
    widget.shows("The wallet signs the text you typed")
    widget.control("Signature:").press("Enter")
    widget.shows("Nothing is entered. Paste the wallet's signature first")
    widget.submit_secret("Signature:", "0x1234")
    widget.shows_problem(on_page(lambda: prepared(client).attach("0x1234")))
    widget.submit_secret("Signature:", signed["signature"])
    signed_in_the_page(place, client, signed)
    followed_to_its_end(widget, relayer, client, signed)


def signed_in_the_page(place, client, signed):
    """Compare the preview, then sign with a typed private key."""
    widget = place.widget("update")
    update = prepared(client, key_seed=signed["key seed"]).attach(signed["signature"])
    wanted = {line.field: str(line.value) for line in update.preview().lines}
    widget.shows("POST /api/v3/account")
    shown = {name: value for name, value, _ in widget.rows()}
    until = int(shown.pop("validUntil"))
    assert time.time() + 11 * 3600 < until < time.time() + 13 * 3600
    assert wanted.pop("keySeed") == signed["key seed"]
    assert shown.pop("keySeed") == "the text you typed; sent, but not shown here"
    assert shown == {
        name: value for name, value in wanted.items() if name != "validUntil"
    }
    taken(place.page, "widgets-preview-light")
    widget.press("Continue to signing")
    widget.shows('"validUntil": ' + str(until))
    widget.choose("Signatures by", "a private key typed here")
    widget.submit_secret("Private key:", "12")
    widget.shows_problem(
        "private key: expected 64 hex digits, with or without 0x. Type it again."
    )
    widget.submit_secret("Private key:", signed["private key"])


def followed_to_its_end(widget, relayer, client, signed):
    """Submit, which cannot be cancelled, and find the new key."""
    key = lab.protocol.l2_key(bytes.fromhex(signed["signature"][2:]))
    widget.press("Submit the update")
    # The first of two states is behind it when the relayer answers.
    widget.shows("Waiting for the relayer: 1 of 2")
    assert client.account(UPDATED).frozen
    widget.shows("The update may have been sent, so it cannot be cancelled")
    relayer.step()
    widget.shows("The account has the new key.")
    assert client.account(UPDATED).has_key(key)
    assert (
        dict(row[:2] for row in widget.rows())["publicKey.x"]
        == client.account(UPDATED).x
    )
    widget.shows_no_problem()
    assert widget.code().endswith("update.submit().wait()")


def prepared(client, **terms):
    return lab.KeyUpdate.prepare(
        client, account_id=UPDATED, **{"fee_token": "LRC", "max_fee": "2.5"} | terms
    )


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_widgets_fit_every_window_and_are_accessible(place, theme):
    page = place.page
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    for entry in ("Theme", f"JupyterLab {theme}"):
        page.locator(".lm-Menu-itemLabel").get_by_text(entry, exact=True).click()
    page.locator(f"body[data-jp-theme-light={str(theme == 'Light').lower()}]").wait_for(
        state="attached"
    )
    wizard = place.widget("update")
    wizard.press("Start over")
    wizard.press("Continue")
    wizard.choose("Signatures by", "a private key typed here")
    wizard.submit_secret("Private key:", "12")
    wizard.shows_problem(
        "private key: expected 64 hex digits, with or without 0x. Type it again."
    )
    wizard.choose("Signatures by", "a wallet elsewhere")
    wizard.shows("personal_sign")
    for width in (700, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 1600})
        for widget in map(place.widget, CLASSES):
            assert widget.broken_lines_of_code() == 0
            assert len(widget.heights_of_controls()) <= 1
            cell = widget.box.locator(
                "xpath=ancestor::*[contains(@class, 'jp-OutputArea-output')]"
            ).first
            assert (
                widget.box.bounding_box()["width"] >= cell.bounding_box()["width"] - 30
            )
            assert widget.too_wide() == []
            assert widget.too_faint() == []
        taken(page, f"widgets-{theme.lower()}-{width}")
    assert violations(page, ".loopring-lab") == []


def violations(page, within):
    """Return what axe-core finds that is serious or worse."""
    axe = package_or_skip("axe_playwright_python")
    page.evaluate(Path(axe.__file__).with_name("axe.min.js").read_text())
    found = page.evaluate("within => axe.run(within)", within)["violations"]
    return [
        f"{one['id']}: {node['html'][:160]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def test_nothing_typed_as_a_secret_is_saved(place, signed):
    """The control is a plain password field, which JupyterLab does save."""
    assert set(signed.values()) <= set(place.typed), (
        "run this file as a whole: the tests above type them"
    )
    page = place.page
    page.get_by_label("Plain:").fill(PLAIN)
    page.get_by_label("Plain:").press("Tab")
    save(page, NOTEBOOK)
    files = {
        path.relative_to(place.home): path.read_bytes()
        for path in place.home.rglob("*")
        if path.is_file()
    }
    holding = [path.name for path, content in files.items() if found([PLAIN], content)]
    assert sorted(holding) == ["widgets-checkpoint.ipynb", "widgets.ipynb"]
    secrets = [one.removesuffix(SEED_END) for one in signed.values()]
    leaks = [
        (path, one)
        for path, content in files.items()
        for one in found(secrets, content)
    ]
    assert leaks == []
    assert found(secrets, page.content().encode()) == []


def found(secrets, content):
    """Return the secrets whose beginning, middle or end stands in a file, in upper or lower case."""
    text = content.decode(errors="replace").lower()
    parts = {one: (one[2:18], one[20:36], one[-16:]) for one in secrets}
    return [
        one for one, some in parts.items() if any(part.lower() in text for part in some)
    ]
