"""Secrets typed into a field: in no widget state, message, notebook or text."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ipywidgets
import nbformat
import pytest
from IPython.lib.pretty import pretty
from ipywidgets.embed import embed_data
from nbclient import NotebookClient
from support.key_update_setup import ACCOUNT, KeyUpdateSetup, key_update_setup, personal_sign, sign_typed_data

from loopring_lab.widgets import FeeExplorer, KeyUpdateWizard
from loopring_lab.widgets.layout import SecretField

SECONDS = 30
API_KEY = "an-api-key-that-somebody-typed-0123456789"
SETUP = """import os
import loopring_lab as lab
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.widgets import FeeExplorer, KeyUpdateWizard
key = os.environ["TYPED_API_KEY"]
relayer = Relayer(World(seed=2, size=0.001), Settings(update_seconds=0.01), api_key=key).start()
client = lab.connect(relayer.base_url, api_key=relayer.api_key, rate=None)"""
EXPLORE = """explorer = FeeExplorer(client.with_api_key("none"), account=10083)
explorer.view; explorer.wait()
explorer.view.key._handle_custom_msg({"typed": os.environ["TYPED_API_KEY"]}, [])
explorer.wait()
explorer"""
UPDATE = """wizard = KeyUpdateWizard(client, account=10083, way="key")
wizard.view.next.click(); wizard.wait()
wizard.view.seed._handle_custom_msg({"typed": os.environ["TYPED_SEED"]}, []); wizard.wait()
wizard.view.private_key._handle_custom_msg({"typed": os.environ["TYPED_PRIVATE_KEY"]}, []); wizard.wait()
wizard.view.next.click(); wizard.view.next.click(); wizard.wait()
wizard.view.next.click(); wizard.wait()
wizard"""


def type_into(field: SecretField, secret: str) -> None:
    field._handle_custom_msg({"typed": secret}, [])


def everything_saved() -> str:
    """Return the state of all widgets there are, as a notebook or a page would hold it."""
    state = ipywidgets.Widget.get_manager_state(drop_defaults=False)
    return json.dumps(state) + json.dumps(embed_data(views=None), default=str)


def found(secrets: list[str], text: str) -> list[str]:
    """Return the secrets whose beginning, middle or end stands in a text, in upper or lower case."""
    lower = text.lower()
    return [s for s in secrets if any(part in lower for part in (s[2:18].lower(), s[20:36].lower(), s[-16:].lower()))]


@pytest.fixture
def setup() -> Iterator[KeyUpdateSetup]:
    with key_update_setup() as made:
        yield made


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep everything that a widget sends to its page."""
    kept: list[str] = []
    send = ipywidgets.Widget._send
    monkeypatch.setattr(
        ipywidgets.Widget,
        "_send",
        lambda self, message, buffers=None: kept.append(repr((message, buffers))) or send(self, message, buffers),
    )
    return kept


def update_by_wallet(wizard: KeyUpdateWizard, signer: Any) -> list[str]:
    view = wizard.view
    view.next.click()
    wizard.wait(SECONDS)
    nonce = wizard.held.account.nonce
    seed = f"once upon a time there was a sentence of my own with key nonce: {nonce}"
    first = "0x" + personal_sign(signer, seed).hex()
    type_into(view.seed, seed)
    wizard.wait(SECONDS)
    type_into(view.signature, first)
    wizard.wait(SECONDS)
    view.next.click()
    second = "0x" + sign_typed_data(signer, json.loads(wizard.to_sign)).hex()
    type_into(view.signature, second)
    wizard.wait(SECONDS)
    assert wizard.step == "submit"
    return [first, second, seed[:40]]


def update_by_key(wizard: KeyUpdateWizard, signer: Any) -> list[str]:
    view = wizard.view
    wizard.way = "key"
    view.next.click()
    wizard.wait(SECONDS)
    type_into(view.private_key, signer.key.hex())
    wizard.wait(SECONDS)
    view.next.click()
    assert wizard.held.signer is not None
    return [
        "0x" + signer.key.hex().removeprefix("0x"),
        "0x" + personal_sign(signer, wizard.held.update.key_seed_message()).hex(),
    ]


@pytest.mark.parametrize("walk", [update_by_wallet, update_by_key])
def test_what_is_typed_into_the_wizard_is_nowhere(
    walk: Callable[[KeyUpdateWizard, Any], list[str]], setup: KeyUpdateSetup, sent: list[str]
) -> None:
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    wizard.view.show_code.value = True
    secrets = walk(wizard, setup.relayer.signer(ACCOUNT))
    shown = [
        repr(wizard),
        pretty(wizard),
        wizard.export(),
        repr(wizard.held),
        repr(vars(wizard)),
        *map(repr, vars(wizard.view).values()),
    ]
    assert len("".join(sent)) > 1000
    assert str(ACCOUNT) in everything_saved()
    assert found(secrets, "".join([everything_saved(), *sent, *shown])) == []


def test_an_api_key_is_nowhere(setup: KeyUpdateSetup, sent: list[str]) -> None:
    explorer = FeeExplorer(setup.client.with_api_key("none"), account=ACCOUNT)
    _ = explorer.view
    explorer.wait(SECONDS)
    type_into(explorer.view.key, API_KEY)
    explorer.wait(SECONDS)
    assert explorer.needs_key
    shown = [
        explorer.problem,
        repr(explorer),
        repr(vars(explorer)),
        repr(vars(explorer.client)),
        explorer.export(),
    ]
    assert found([API_KEY], "".join([everything_saved(), *sent, *shown])) == []


def test_a_field_hands_over_what_is_hidden_and_keeps_nothing() -> None:
    taken: list[Any] = []
    field = SecretField("Key:", taken.append)
    message = {"typed": API_KEY}
    field._handle_custom_msg(message, [])
    assert message == {}
    assert (taken[0], repr(taken[0])) == (API_KEY, "<hidden>")
    assert found([API_KEY], repr(vars(field)) + repr(field.get_state()) + repr(field)) == []


@pytest.mark.parametrize("message", [{}, {"typed": ""}, {"typed": None}, {"typed": 7}, {"other": "x"}, "text", None])
def test_a_message_that_is_no_secret_is_left_alone(message: Any) -> None:
    taken: list[Any] = []
    SecretField("Key:", taken.append)._handle_custom_msg(message, [])
    assert taken == []


def test_the_search_finds_what_a_plain_password_field_leaks() -> None:
    field = ipywidgets.Password(description="Key:")
    field.value = API_KEY
    assert found([API_KEY], everything_saved()) == [API_KEY]
    field.value = ""


class Overhearing(NotebookClient):
    """A notebook client that keeps every message of the kernel."""

    heard = ""

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        self.heard += json.dumps({name: msg[name] for name in ("header", "metadata", "content")}, default=str)
        return super().process_message(msg, cell, cell_index)


@pytest.mark.thorough
def test_no_notebook_that_is_run_and_saved_with_its_widgets_holds_what_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with key_update_setup() as setup:
        signer = setup.relayer.signer(ACCOUNT)
        seed = "once upon a time there was a sentence of my own with key nonce: 1"
        monkeypatch.setenv("TYPED_API_KEY", API_KEY)
        monkeypatch.setenv("TYPED_PRIVATE_KEY", signer.key.hex())
        monkeypatch.setenv("TYPED_SEED", seed)
        secrets = [API_KEY, signer.key.hex(), "0x" + personal_sign(signer, seed).hex(), seed[:40]]
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, EXPLORE, UPDATE)]
    ending = nbformat.v4.new_code_cell(
        "assert explorer.is_read and wizard.held.finished, wizard.problem\nrelayer.stop()"
    )
    notebook = nbformat.v4.new_notebook(cells=[*cells, ending])
    runner = Overhearing(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    runner.execute(env=dict(os.environ))
    saved = nbformat.writes(notebook)
    states = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    assert len(states) > 50
    assert "Private key:" in saved
    assert found(secrets, saved) == []
    assert found(secrets, runner.heard) == []
