"""The key-update wizard in JupyterLab, each way, with a relayer that is slow, fails, or loses its answers."""

from __future__ import annotations

import threading

import pytest
from browser.conftest import in_lab, opened, run_cells, save, written
from support.scripted_server import Answer, scripted
from support.troubled import passed_on

import loopring_lab as lab
from loopring_lab.relayer import Relayer, Settings, World

ACCOUNT = 11519
NOTEBOOK = "wizard.ipynb"
CELL = "lab.widgets.KeyUpdateWizard(client, account={account}, way='key')"
SETUP = """import loopring_lab as lab

client = lab.connect("{base_url}", rate=None)"""
SECONDS = 300
STEP = "[aria-label=Steps] [aria-current=step]"
# The buttons that lead on; a typed key signs by a button of its own field, which is named like that of a held one.
ONWARD = {
    "account": "Continue",
    "preview": "Continue to signing",
    "submit": "Submit the update",
    "follow": "Keep waiting",
}
WAYS_OUT = ("Cancel", "Back", "Start over")
FOCUSED = """() => {
    const one = document.activeElement;
    return (one.labels?.[0] ?? one).innerText.trim();
}"""

pytestmark = pytest.mark.thorough


class Proxy:
    """Stands before a relayer, and does to its answers what a test says."""

    def __init__(self, base_url):
        self.base_url = base_url
        self.trouble = ""
        self.healed = threading.Event()
        self.posted: list[bytes] = []

    def __call__(self, number, request):
        if request.method == "POST":
            self.posted.append(request.body)
        if self.trouble == "fails":
            return Answer(503, b'{"resultInfo": {"code": 100000}}')
        if self.trouble == "slow":
            assert self.healed.wait(SECONDS)
        answer = passed_on(self.base_url, request)
        return Answer(hang_up=True) if self.trouble == "loses" else answer

    def begin(self, trouble):
        self.healed.clear()
        self.trouble = trouble

    def end(self):
        self.trouble = ""
        self.healed.set()


@pytest.fixture(scope="module")
def relayer():
    with Relayer(World(size=0.002), Settings(update_seconds=0.05)) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(relayer):
    proxy = Proxy(relayer.base_url)
    with scripted(proxy) as server:
        proxy.address = server.base_url
        yield proxy


@pytest.fixture(scope="module")
def notebook(chromium, relayer, proxy, tmp_path_factory):
    """Open a notebook of the wizard in JupyterLab."""
    home = tmp_path_factory.mktemp("wizard")
    cells = [SETUP.format(base_url=proxy.address), CELL.format(account=ACCOUNT)]
    written(home, cells, NOTEBOOK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPRING_API_KEY", relayer.api_key[:])
        with in_lab(home, "light") as base, opened(chromium) as page:
            # Whether to leave a page with changes.
            page.on("dialog", lambda dialog: dialog.accept())
            run_cells(page, f"{base}doc/tree/{NOTEBOOK}")
            yield page


class Hand:
    """Somebody at the page, who presses buttons in one manner."""

    def __init__(self, page, key, manner):
        self.page = page
        self.key = key
        self.manner = manner
        self.box = page.locator(".loopring-lab")

    def at(self, step):
        """Wait until a step is on screen."""
        from playwright.sync_api import expect

        expect(self.box.locator(STEP)).to_have_text(step)

    def says(self, words):
        self.box.get_by_text(words).filter(visible=True).first.wait_for()

    def button(self, label):
        return self.box.get_by_role("button", name=label, exact=True)

    def press(self, label):
        if self.manner == "keyboard":
            self.tab_to(label)
            self.page.keyboard.press("Enter")
        elif self.manner == "double clicks":
            self.button(label).dblclick()
        else:
            self.button(label).click()

    def tab_to(self, label):
        """Move the focus by the keyboard alone."""
        from playwright.sync_api import expect

        expect(self.button(label).or_(self.field(label)).first).to_be_enabled()
        for key in ("Tab", "Shift+Tab"):
            for _ in range(40):
                if self.page.evaluate(FOCUSED) == label:
                    return
                self.page.keyboard.press(key)
        raise AssertionError(f"no way by the keyboard to {label}")

    def field(self, label):
        return self.box.get_by_label(label, exact=True)

    def has_no_way_out(self):
        from playwright.sync_api import expect

        for label in WAYS_OUT:
            expect(self.button(label)).to_have_count(0)

    def type_key(self):
        if self.manner == "keyboard":
            self.tab_to("Private key:")
            self.page.keyboard.type(self.key)
            self.page.keyboard.press("Enter")
        else:
            self.field("Private key:").fill(self.key)
            self.press("Sign")

    def take(self, step):
        """Take a step, and arrive at the next."""
        self.at(step)
        # A field for a key has a button of its own of the same name.
        self.button(ONWARD.get(step, "Sign")).wait_for()
        if step in ONWARD:
            self.press(ONWARD[step])
        elif self.field("Private key:").is_visible():
            self.type_key()
        else:
            self.press("Sign")

    def reload(self):
        self.page.reload(wait_until="domcontentloaded")
        self.box.locator(STEP).wait_for()

    def run_cell_again(self):
        """Run the cell, and save what it shows: a page that is loaded again shows what was saved."""
        before = self.box.element_handle()
        self.page.locator(".jp-CodeCell .cm-content").last.click()
        self.page.keyboard.press("Control+Enter")
        before.wait_for_element_state("hidden")
        self.box.locator(STEP).wait_for()
        save(self.page, NOTEBOOK)


@pytest.mark.parametrize("trouble", ["slow", "fails", "loses"])
@pytest.mark.parametrize("manner", ["keyboard", "double clicks", "reload"])
def test_every_way_ends_in_one_update(notebook, proxy, relayer, manner, trouble):
    client = lab.connect(relayer.base_url, rate=None)
    before = client.account(ACCOUNT)
    hand = Hand(notebook, "0x" + bytes(relayer.signer(ACCOUNT).key).hex(), manner)
    proxy.posted.clear()
    hand.run_cell_again()
    hand.at("account")
    proxy.begin(trouble)
    hand.take("account")
    if trouble == "slow":
        hand.says(f"Reading account {ACCOUNT}")
        hand.press("Cancel")
        hand.says("cancelled")
    else:
        hand.box.get_by_role("alert").wait_for()
    proxy.end()
    hand.take("account")
    steps = ["key", "preview", "sign", "submit"]
    for earlier, step in zip(["account", *steps], steps, strict=False):
        hand.at(step)
        if manner == "reload":
            hand.reload()
        else:
            hand.press("Back")
            hand.take(earlier)
        hand.at(step)
        assert proxy.posted == []
        if step != "submit":
            hand.take(step)
    proxy.begin(trouble)
    hand.take("submit")
    hand.says("The update may have been sent, so it cannot be cancelled")
    if trouble != "slow":
        hand.says("sent 3 times without a usable answer")
    if manner == "reload":
        hand.reload()
        hand.run_cell_again()
        hand.says("The update may have been sent, so it cannot be cancelled")
    hand.has_no_way_out()
    proxy.end()
    if trouble != "slow":
        hand.take("follow")
    hand.says("The account has the new key.")
    after = client.account(ACCOUNT)
    assert (after.nonce, after.x == before.x) == (before.nonce + 1, False)
    assert len(set(proxy.posted)) == 1
    assert len(proxy.posted) == (1 if trouble == "slow" else 4)
