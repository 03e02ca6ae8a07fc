"""Secrets typed into a field: in no widget state, message, notebook or text."""

import json
import os
from pathlib import Path
from typing import Any

import ipywidgets
import nbformat
import pytest
from IPython.lib.pretty import pretty
from ipywidgets.embed import embed_data
from nbclient import NotebookClient
from support.key_update_setup import (
    ACCOUNT,
    key_update_setup,
    personal_sign,
    sign_typed_data,
)
from widgets.conftest import OnPage

from loopring_lab.widgets import FeeExplorer, KeyUpdateWizard
from loopring_lab.widgets.panel import SecretField

TESTS = Path(__file__).parents[1]
API_KEY = "an-api-key-that-somebody-typed-0123456789"
SETUP = """import os
from widgets.conftest import OnPage
import loopring_lab as lab
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.widgets import FeeExplorer, KeyUpdateWizard
key = os.environ["TYPED_API_KEY"]
relayer = Relayer(World(seed=2, size=0.001), Settings(update_seconds=0.01), api_key=key).start()
client = lab.connect(relayer.base_url, api_key=relayer.api_key, rate=None)"""
EXPLORE = """explorer = FeeExplorer(client.with_api_key("none"), account=10083)
page = OnPage(explorer).wait().type_secret("API key:", os.environ["TYPED_API_KEY"])
explorer"""
UPDATE = """wizard = KeyUpdateWizard(client, account=10083, way="key")
page = OnPage(wizard).press("Continue")
page.type_secret("Own key seed (optional):", os.environ["TYPED_SEED"])
page.type_secret("Private key:", os.environ["TYPED_PRIVATE_KEY"])
page.press("Continue to signing").press("Sign").press("Submit the update")
wizard"""


def everything_saved():
    """Return the state of all widgets there are, as a notebook or a page would hold it."""
    state = ipywidgets.Widget.get_manager_state(drop_defaults=False)
    return json.dumps(state) + json.dumps(embed_data(views=None), default=str)


def found(secrets, text):
    """Return the secrets whose beginning, middle or end stands in a text, in upper or lower case."""
    lower = text.lower()
    return [
        s
        for s in secrets
        if any(
            part in lower
            for part in (s[2:18].lower(), s[20:36].lower(), s[-16:].lower())
        )
    ]


@pytest.fixture
def setup():
    with key_update_setup() as made:
        yield made


@pytest.fixture
def sent(monkeypatch):
    """Keep everything that a widget sends to its page."""
    kept: list[str] = []
    send = ipywidgets.Widget._send
    monkeypatch.setattr(
        ipywidgets.Widget,
        "_send",
        lambda self, message, buffers=None: (
            kept.append(repr((message, buffers))) or send(self, message, buffers)
        ),
    )
    return kept


def update_by_wallet(page, signer):
    page.press("Continue")
    seed = "once upon a time there was a sentence of my own with key nonce: 1"
    first = "0x" + personal_sign(signer, seed).hex()
    page.type_secret("Own key seed (optional):", seed).type_secret("Signature:", first)
    page.press("Continue to signing")
    data = json.loads(
        page.text.partition("To sign")[2].partition(">")[2].partition("</pre>")[0]
    )
    second = "0x" + sign_typed_data(signer, data).hex()
    page.type_secret("Signature:", second)
    assert page.widget.step == "submit"
    return [first, second, seed[:40]]


def update_by_key(page, signer):
    page.press("Continue")
    text = page.text.partition("To sign")[2].partition(">")[2].partition("</pre>")[0]
    page.enter("Signatures by", "key")
    page.type_secret("Private key:", signer.key.hex()).press("Continue to signing")
    assert page.offers("Sign")
    return [
        "0x" + signer.key.hex().removeprefix("0x"),
        "0x" + personal_sign(signer, text).hex(),
    ]


@pytest.mark.parametrize("walk", [update_by_wallet, update_by_key])
def test_what_is_typed_into_the_wizard_is_nowhere(walk, setup, sent):
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    page = OnPage(wizard)
    secrets = walk(page, setup.relayer.signer(ACCOUNT))
    shown = [repr(wizard), pretty(wizard), wizard.export(), *inside(wizard)]
    assert len("".join(sent)) > 1000
    assert str(ACCOUNT) in everything_saved()
    assert found(secrets, "".join([everything_saved(), *sent, *shown])) == []


def inside(widget):
    """Return the repr of what a widget and its parts hold, as a verbose traceback would show it."""
    parts = [widget, *vars(widget).values()]
    return [repr(vars(part)) for part in parts if hasattr(part, "__dict__")]


def test_an_api_key_is_nowhere(setup, sent):
    explorer = FeeExplorer(setup.client.with_api_key("none"), account=ACCOUNT)
    page = OnPage(explorer).wait().type_secret("API key:", API_KEY)
    assert page.offers("API key:")  # the one given is not this relayer's
    shown = [page.problem, repr(explorer), explorer.export(), *inside(explorer)]
    assert found([API_KEY], "".join([everything_saved(), *sent, *shown])) == []


def test_a_field_hands_over_what_is_hidden_and_keeps_nothing():
    taken: list[Any] = []
    field = SecretField(taken.append, description="Key:")
    message = {"typed": API_KEY}
    field._handle_custom_msg(message, [])
    assert message == {}
    assert (taken[0], repr(taken[0])) == (API_KEY, "<hidden>")
    assert (
        found([API_KEY], repr(vars(field)) + repr(field.get_state()) + repr(field))
        == []
    )


@pytest.mark.parametrize(
    "message",
    [{}, {"typed": ""}, {"typed": None}, {"typed": 7}, {"other": "x"}, "text", None],
)
def test_a_message_that_is_no_secret_is_left_alone(message):
    taken: list[Any] = []
    SecretField(taken.append, description="Key:")._handle_custom_msg(message, [])
    assert taken == []


def test_the_search_finds_what_a_plain_password_field_leaks():
    field = ipywidgets.Password(description="Key:")
    field.value = API_KEY
    assert found([API_KEY], everything_saved()) == [API_KEY]
    field.value = ""


class Overhearing(NotebookClient):
    """A notebook client that keeps every message of the kernel."""

    heard = ""

    def process_message(self, msg, cell, cell_index):
        self.heard += json.dumps(
            {name: msg[name] for name in ("header", "metadata", "content")}, default=str
        )
        return super().process_message(msg, cell, cell_index)


@pytest.mark.thorough
def test_no_notebook_that_is_run_and_saved_with_its_widgets_holds_what_was_typed(
    tmp_path, monkeypatch
):
    with key_update_setup() as setup:
        signer = setup.relayer.signer(ACCOUNT)
        seed = "once upon a time there was a sentence of my own with key nonce: 1"
        monkeypatch.setenv("TYPED_API_KEY", API_KEY)
        monkeypatch.setenv("TYPED_PRIVATE_KEY", signer.key.hex())
        monkeypatch.setenv("TYPED_SEED", seed)
        secrets = [
            API_KEY,
            signer.key.hex(),
            "0x" + personal_sign(signer, seed).hex(),
            seed[:40],
        ]
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, EXPLORE, UPDATE)]
    ending = nbformat.v4.new_code_cell(
        "assert len(explorer.chosen) and wizard.new_client()\nrelayer.stop()"
    )
    notebook = nbformat.v4.new_notebook(cells=[*cells, ending])
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    )
    runner = Overhearing(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    runner.execute(env=dict(os.environ))
    saved = nbformat.writes(notebook)
    states = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"][
        "state"
    ]
    assert len(states) > 50
    assert "Private key:" in saved
    assert found(secrets, saved) == []
    assert found(secrets, runner.heard) == []
