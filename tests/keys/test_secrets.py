"""A complete key update with known secrets: none of them is shown, logged, raised or saved."""

import functools
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest
from IPython.lib.pretty import pretty
from support.key_update_setup import (
    ACCOUNT,
    KeyUpdateSetup,
    key_update_setup,
    personal_sign,
    sign_typed_data,
)
from support.traces import forms, trace_of

import loopring_lab as lab
from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, World

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


STRANGE = protocol.l2_key(bytes(64) + b"\x1b")
STRANGE_ACCOUNT = 11519


def key_request(setup: KeyUpdateSetup, account: int) -> str:
    """Return the text that is signed for an API key."""
    url = f"{setup.relayer.base_url}/api/v3/apiKey"
    return protocol.request_message("GET", url, {"accountId": account})


class Scene(NamedTuple):
    setup: KeyUpdateSetup
    update: lab.KeyUpdate
    receipt: lab.Receipt
    api_key: str
    secrets: set[str]

    def leaks(self, text: str) -> list[str]:
        return [secret for secret in self.secrets if secret in text]


def secrets_of(signer: Any, seed: str) -> set[str]:
    """Return what must not be shown of the key that a seed makes."""
    signature = personal_sign(signer, seed)
    return forms(int(protocol.l2_key(signature).secret)) | forms(signature)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Return an update that was taken, with its secrets."""
    with key_update_setup() as setup:
        signer = setup.relayer.signer(ACCOUNT)
        old_key = setup.relayer.l2_key(ACCOUNT)
        api_key = str.__str__(setup.client.api_key(old_key, ACCOUNT)[:])
        update = setup.prepare()
        receipt = update.submit()
        request = key_request(setup, STRANGE_ACCOUNT)
        secrets = secrets_of(signer, update.key_seed_message()).union(
            forms(int(old_key.secret)),
            forms(sign_typed_data(signer, update.typed_data())),
            forms(api_key),
            forms(setup.relayer.api_key[:]),
            forms(bytes(signer.key)),
            forms(protocol.sign_request(STRANGE.secret, request)[:]),
        )
        yield Scene(setup, update, receipt, api_key, secrets)


def test_the_secrets_are_those_that_travel(scene):
    body, header = scene.setup.transport.sent[0]
    key = int(scene.update.l2_key.secret)
    # Each way of writing is found in a text that has it, so that none of the tests below is blind.
    signature = repr(bytes.fromhex(header[2:]))
    for text in (header, body.decode(), signature, f"{key:064x}", str(key)):
        assert scene.leaks(text)
    assert len(scene.api_key) > 20


SHOWN: dict[str, Callable[[Scene], object]] = {
    "update": lambda scene: scene.update,
    "preview": lambda scene: scene.update.preview(),
    "body": lambda scene: scene.update.body(),
    "typed data": lambda scene: scene.update.typed_data(),
    "key": lambda scene: scene.update.l2_key,
    "receipt": lambda scene: scene.receipt,
    "account": lambda scene: scene.setup.client.account(ACCOUNT),
    "client": lambda scene: scene.setup.client.with_api_key(scene.api_key),
    "transport": lambda scene: scene.setup.transport,
    "API key": lambda scene: scene.setup.client.api_key(
        scene.setup.relayer.l2_key(ACCOUNT), ACCOUNT
    ),
    "everything inside": lambda scene: [
        vars(scene.update),
        vars(scene.receipt),
        vars(scene.setup.client.with_api_key("k" * 9)._transport) | {"sent": []},
    ],
}


@pytest.mark.parametrize("look", SHOWN.values(), ids=SHOWN)
def test_no_display_shows_a_secret(scene, look):
    value = look(scene)
    html = getattr(value, "_repr_html_", value.__repr__)()
    for text in (repr(value), str(value), f"{value}", pretty(value), html):
        assert text
        assert scene.leaks(text) == []


def test_nothing_is_logged(scene, caplog):
    caplog.set_level(logging.DEBUG)
    for name in list(logging.Logger.manager.loggerDict):
        caplog.set_level(logging.DEBUG, logger=name)
    client = scene.setup.client.with_api_key(scene.api_key)
    client.count(ACCOUNT)
    client.api_key(scene.setup.relayer.l2_key(ACCOUNT), ACCOUNT)
    assert scene.update.submit().is_idempotent
    scene.receipt.poll()
    assert "POST" in caplog.text
    assert scene.leaks(caplog.text) == []


def test_no_pickle_holds_a_secret(scene):
    for look in SHOWN.values():
        value = look(scene)
        try:
            saved = pickle.dumps(value)
        except TypeError:
            continue
        assert scene.leaks(saved.decode("latin-1")) == []


def wrong_texts(scene: Scene) -> list[Any]:
    """Return secrets given where they do not belong, or spoiled."""
    # Signed by the right account, but not what the update asks to sign.
    signature = (
        "0x" + personal_sign(scene.setup.relayer.signer(ACCOUNT), "another text").hex()
    )
    return [signature, signature + "00", signature[:-1], bytes.fromhex(signature[2:])]


def private_key(scene: Scene) -> str:
    return "0x" + scene.setup.relayer.signer(ACCOUNT).key.hex()


def forged(scene: Scene) -> object:
    body = scene.update.body() | {"nonce": 99}
    return scene.setup.client.update_account(body)


RAISING: dict[str, Callable[[Scene], object]] = {
    "a private key as signer": lambda scene: scene.setup.prepare(
        signer=private_key(scene)
    ),
    "a signer of another account": lambda scene: scene.setup.prepare(
        signer=scene.setup.relayer.signer(11375)
    ),
    "a refused update": forged,
    "an update while another is pending": lambda scene: scene.setup.prepare(
        max_fee="1"
    ).submit(),
    "a key of no account": lambda scene: scene.setup.client.api_key(
        STRANGE, STRANGE_ACCOUNT
    ),
    "a secret as key": lambda scene: scene.setup.client.api_key(
        int(scene.update.l2_key.secret),  # type: ignore[arg-type]
        ACCOUNT,
    ),
    "a key without account": lambda scene: scene.setup.client.api_key(
        scene.update.l2_key
    ),
    "a refused API key": lambda scene: scene.setup.client.with_api_key(
        scene.api_key + "x"
    ).count(ACCOUNT),
    "a wait that takes too long": lambda scene: scene.receipt.wait(timeout=0),
}


@pytest.mark.parametrize("call", RAISING.values(), ids=RAISING)
def test_no_traceback_shows_a_secret(scene, call):
    text = trace_of(lambda: call(scene), LabError)
    assert "loopring_lab" in text
    assert scene.leaks(text) == []


def test_no_traceback_shows_an_attached_signature(scene):
    for step in range(2):
        for wrong in wrong_texts(scene):
            update = scene.setup.prepare(signer=None)
            if step:
                signer = scene.setup.relayer.signer(ACCOUNT)
                update.attach(personal_sign(signer, update.key_seed_message()))
            attach = functools.partial(update.attach, wrong)
            text = trace_of(attach, LabError)
            assert [part for part in forms(wrong_texts(scene)[0]) if part in text] == []
            assert scene.leaks(text) == []


@functools.cache
def keys_of_notebooks() -> set[str]:
    """Return what a notebook must not show of the throwaway owners that the embedded relayer makes."""
    world = World()
    relayer = Relayer(world)
    exchange = relayer.settings.exchange
    found: set[str] = set()
    for account in (ACCOUNT, max(world.accounts)):
        signer = relayer.signer(account)
        found |= forms(bytes(signer.key))
        for nonce in range(4):
            found |= secrets_of(signer, protocol.key_seed(exchange, nonce))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_no_notebook_holds_a_secret(path):
    text = path.read_text()
    notebook = nbformat.reads(text, as_version=4)
    assert [secret for secret in keys_of_notebooks() if secret in text] == []
    assert "widgets" not in notebook.metadata
