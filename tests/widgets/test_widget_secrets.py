"""Secrets typed into a field: in no widget state, message, notebook or text."""

import json
from typing import Any

import ipywidgets
import pytest
from IPython.lib.pretty import pretty
from ipywidgets.embed import embed_data
from support.key_update_setup import (
    ACCOUNT,
    key_update_setup,
    personal_sign,
    sign_typed_data,
)
from support.optional import thorough
from widgets.conftest import OnPage, found

from loopring_lab.widgets import FeeExplorer, KeyUpdateWizard
from loopring_lab.widgets.panel import SecretField

API_KEY = "an-api-key-that-somebody-typed-0123456789"


def everything_saved():
    """Return the state of all widgets there are, as a notebook or a page would hold it."""
    state = ipywidgets.Widget.get_manager_state(drop_defaults=False)
    return json.dumps(state) + json.dumps(embed_data(views=None), default=str)


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


@pytest.mark.parametrize("walk", [thorough(update_by_wallet), update_by_key])
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
