"""The key-update wizard without a view: all its steps, back and forth, and every error."""

import gc
import json
import re
import time
import weakref

import pytest
from support.cells import values
from support.key_update_setup import (
    ACCOUNT,
    key_update_setup,
    personal_sign,
    sign_typed_data,
)
from widgets.conftest import OnPage

import loopring_lab as lab
from loopring_lab.errors import KeyUpdateError, LabError
from loopring_lab.widgets import KeyUpdateWizard
from loopring_lab.widgets.key_update import KeyUpdateFlow

SECONDS = 600
STRANGER = 11375


class Walk(KeyUpdateFlow):
    """The steps of a wizard, without its view."""

    def __init__(self, client, counterfactual=None, trust=None, **choices):
        wizard = KeyUpdateWizard(client, **choices)
        super().__init__(
            wizard, client, {"counterfactual": counterfactual, "trust": trust}
        )

    @property
    def problem(self):
        return self.choices.background.problem

    @property
    def receipt(self):
        # Under the lock, whoever sees the receipt also sees the step that it led to.
        with self.choices.background.lock:
            return self.held.receipt

    def wait(self, timeout):
        self.choices.wait(timeout)

    def cancel(self):
        self.choices.background.cancel()


@pytest.fixture
def setup():
    with key_update_setup() as made:
        yield made


@pytest.fixture
def wizard(setup):
    return Walk(setup.client, account=ACCOUNT)


def after(wizard, call, *words):
    """Take a step, wait for it, and return where the wizard is."""
    call(*words)
    wizard.wait(SECONDS)
    return wizard.step


def signature(signer, text):
    return "0x" + personal_sign(signer, text).hex()


def data_signature(signer, wizard):
    return "0x" + sign_typed_data(signer, json.loads(wizard.to_sign)).hex()


def signed(wizard, setup):
    """Walk as far as a wallet's second signature."""
    signer = setup.relayer.signer(wizard.choices.account)
    assert after(wizard, wizard.next) == "key"
    assert (
        after(wizard, wizard.give_signature, signature(signer, wizard.to_sign))
        == "preview"
    )
    assert after(wizard, wizard.next) == "sign"
    assert (
        after(wizard, wizard.give_signature, data_signature(signer, wizard)) == "submit"
    )


def follow(wizard, setup, begin=None):
    (begin or wizard.next)()
    while wizard.receipt is None:
        time.sleep(0.01)
    setup.finish()
    wizard.wait(SECONDS)


def test_a_private_key_walks_through_and_is_held_no_longer_than_needed(wizard, setup):
    wizard.choices.way = "key"
    after(wizard, wizard.next)
    assert (
        after(wizard, wizard.give_key, setup.relayer.signer(ACCOUNT).key.hex())
        == "preview"
    )
    signer = weakref.ref(wizard.held.signer)
    assert signer() is not None
    wizard.next()
    assert after(wizard, wizard.next) == "submit"
    assert wizard.held.signer is None
    gc.collect()
    assert signer() is None
    follow(wizard, setup)
    assert wizard.held.finished


def test_going_back_keeps_choices_and_forgets_secrets(wizard, setup):
    chosen = {"account": ACCOUNT, "way": "key", "valid_for": "12h", "max_fee": "0.0005"}
    for name, value in chosen.items():
        setattr(wizard.choices, name, value)
    after(wizard, wizard.next)
    after(wizard, wizard.give_key, setup.relayer.signer(ACCOUNT).key.hex())
    wizard.next()
    assert wizard.step == "sign"
    wizard.back()
    assert wizard.step == "preview"
    assert wizard.held.signer
    wizard.back()
    assert (wizard.step, wizard.held.signer, wizard.held.keyed) == ("key", None, None)
    for _ in range(2):
        wizard.back()
        assert (wizard.step, wizard.held.prepared) == ("account", None)
    assert {name: getattr(wizard.choices, name) for name in chosen} == chosen


def test_the_preview_is_the_updates_own(wizard, setup):
    signed(wizard, setup)
    update = wizard.held.update
    assert [line.field for line in wizard.preview.lines] == [
        line.field for line in update.preview().lines
    ]
    shown = {line.field: str(line.value) for line in wizard.preview.lines}
    assert shown["ecdsaSignature"] == shown["X-API-SIG"] == "withheld"
    assert shown["keySeed"] == update.key_seed_message()
    assert shown["maxFee.volume"] == update.body()["maxFee"]["volume"]


def test_an_own_seed_makes_the_key_and_is_not_shown(wizard, setup):
    nonce = setup.client.account(ACCOUNT).nonce
    own = f"a sentence of my own with key nonce: {nonce}"
    after(wizard, wizard.next)
    usual = wizard.to_sign
    assert after(wizard, wizard.give_seed, own) == "key"
    assert wizard.to_sign is None
    assert usual != own
    assert (
        after(
            wizard, wizard.give_signature, signature(setup.relayer.signer(ACCOUNT), own)
        )
        == "preview"
    )
    assert (
        own not in repr(wizard.preview) + wizard.preview._repr_html_() + wizard.export()
    )
    wizard.next()
    after(
        wizard,
        wizard.give_signature,
        data_signature(setup.relayer.signer(ACCOUNT), wizard),
    )
    follow(wizard, setup)
    assert setup.client.account(ACCOUNT).key_seed == own


@pytest.mark.parametrize(
    "text", ["", "0x12", "zz" * 32, "00" * 32, "ff" * 32, "0x" + "1" * 63]
)
def test_an_invalid_private_key_is_refused_and_not_repeated(wizard, text):
    after(wizard, wizard.next)
    assert after(wizard, wizard.give_key, text) == "key"
    assert (
        wizard.problem
        == "private key: expected 64 hex digits, with or without 0x. Type it again."
    )


def test_a_strangers_signatures_are_refused_at_both_steps(wizard, setup):
    owner = setup.relayer.signer(ACCOUNT)
    stranger = setup.relayer.signer(STRANGER)
    after(wizard, wizard.next)
    assert (
        after(wizard, wizard.give_signature, signature(stranger, wizard.to_sign))
        == "key"
    )
    assert f"got one by {stranger.address}" in wizard.problem
    assert after(wizard, wizard.give_key, stranger.key.hex()) == "key"
    assert f"got one by {stranger.address}" in wizard.problem
    after(wizard, wizard.give_signature, signature(owner, wizard.to_sign))
    wizard.next()
    assert (
        after(wizard, wizard.give_signature, data_signature(stranger, wizard)) == "sign"
    )
    assert "of the typed data" in wizard.problem
    assert after(wizard, wizard.give_signature, "nonsense") == "sign"
    assert "65 bytes" in wizard.problem


def test_what_comes_too_early_is_refused_with_what_comes_first(wizard):
    early = [
        lambda: wizard.give_key("00"),
        lambda: wizard.give_signature("0x"),
        lambda: wizard.preview,
    ]
    for call in early:
        with pytest.raises(
            KeyUpdateError, match="Choose an account, and take the next step"
        ):
            call()
    with pytest.raises(KeyUpdateError, match="Follow the update to its end"):
        wizard.new_client()
    after(wizard, wizard.next)
    with pytest.raises(KeyUpdateError, match="Let the wallet sign the text"):
        wizard.next()


def test_a_fee_token_or_account_that_does_not_work_is_refused_at_the_first_step(wizard):
    wizard.choices.fee_token = "LINK"
    assert after(wizard, wizard.next) == "account"
    assert "LINK" in wizard.problem
    wizard.choices.fee_token, wizard.choices.account = "ETH", 2
    assert after(wizard, wizard.next) == "account"
    assert wizard.problem
    wizard.choices.account = None
    with pytest.raises(KeyUpdateError, match="No account is selected"):
        wizard.next()
    with pytest.raises(LabError, match="valid_for='soon'"):
        wizard.choices.valid_for = "soon"


def test_another_exchange_needs_trust_which_the_preview_and_the_code_show():
    place = {"exchange": "0x2e76EBd1c7c0C8e7c2B875b6d505a260C525d25e", "chain_id": 5}
    with key_update_setup(**place) as setup:
        wizard = Walk(setup.client, account=ACCOUNT)
        assert after(wizard, wizard.next) == "account"
        assert (
            f"claims to serve the exchange {place['exchange']} on chain 5"
            in wizard.problem
        )
        trust = place | {"tokens": {"ETH": {"id": 0, "decimals": 18}}}
        wizard = Walk(setup.client, trust=trust, account=ACCOUNT, max_fee="0.001")
        signed(wizard, setup)
        assert (
            wizard.preview._repr_html_().count("Vouched for by the caller (trust=)")
            == 2
        )
        assert f"trust={trust!r}" in wizard.export()
        follow(wizard, setup)
        assert wizard.held.finished


def test_a_refusal_at_submit_stays_there(wizard, setup):
    signed(wizard, setup)
    other = setup.prepare()
    other.submit()
    setup.finish()
    assert after(wizard, wizard.next) == "submit"
    assert "nonce" in wizard.problem
    assert wizard.receipt is None


def test_an_update_that_fails_is_reported_with_the_relayers_reason():
    with key_update_setup(fail_updates={1: "fee too low by now"}) as setup:
        wizard = Walk(setup.client, account=ACCOUNT)
        signed(wizard, setup)
        follow(wizard, setup)
        assert "fee too low by now" in wizard.problem
        assert not wizard.held.finished


def test_the_code_imports_what_it_was_given(setup):
    account = max(setup.relayer.accounts)
    wire = setup.relayer.counterfactual(account)
    how = lab.keys.Counterfactual(
        wire["walletFactory"], wire["walletOwner"], wire["walletSalt"]
    )
    wizard = KeyUpdateWizard(setup.client, account=account, counterfactual=how)
    (preview,) = values(wizard.export())
    assert how.factory in str(preview)


def test_the_code_does_what_the_steps_did(wizard, setup, monkeypatch):
    signed(wizard, setup)
    signer = setup.relayer.signer(ACCOUNT)

    def wallet(text):
        return (
            "0x"
            + (
                sign_typed_data(signer, json.loads(text))
                if text.startswith("{")
                else personal_sign(signer, text)
            ).hex()
        )

    monkeypatch.setattr("getpass.getpass", wallet)
    assert run(wizard.export()) == fields(wizard.preview)


def run(code):
    """Run exported code where no name is known; return what its preview shows."""
    return fields(values(code)[-1])


def fields(sheet):
    return {
        line.field: line.value for line in sheet.lines if line.field != "validUntil"
    }


def test_the_code_connects_to_the_relayer_that_was_used(monkeypatch):
    monkeypatch.delenv("LOOPRING_API_KEY", raising=False)
    assert "client = lab.connect()\n" in Walk(lab.connect(), account=ACCOUNT).export()
    live = lab.connect("https://relayer.example", api_key="not shown")
    code = Walk(live, account=ACCOUNT).export()
    assert (
        "client = lab.connect('https://relayer.example', api_key=getpass.getpass('API key: '))"
        in code
    )
    monkeypatch.setenv("LOOPRING_API_KEY", "not shown")
    code = Walk(live, account=ACCOUNT).export()
    assert "client = lab.connect('https://relayer.example')\n" in code
    assert "not shown" not in code


def test_a_demo_wallet_signs_what_another_wallet_began(wizard, setup):
    signer = setup.relayer.signer(ACCOUNT)
    after(wizard, wizard.next)
    after(wizard, wizard.give_signature, signature(signer, wizard.to_sign))
    wizard.next()
    assert after(wizard, wizard.use_demo_wallet) == "submit"
    follow(wizard, setup)
    with pytest.raises(KeyUpdateError, match="cannot be taken back"):
        wizard.back()


def test_a_demo_wallet_is_offered_by_a_relayer_in_this_process_only(wizard, setup):
    assert wizard.has_demo_wallet
    live = Walk(lab.connect("https://relayer.example"), account=ACCOUNT)
    unknown = Walk(setup.client, account=2)
    setup.relayer.stop()
    for refused in (live, unknown, wizard, Walk(setup.client)):
        assert not refused.has_demo_wallet
        with pytest.raises(
            KeyUpdateError, match="only the embedded relayer's own accounts have one"
        ):
            refused.use_demo_wallet()


def test_another_account_chosen_later_is_not_that_of_the_update(wizard, setup):
    after(wizard, wizard.next)
    wizard.choices.account = STRANGER
    assert wizard.has_demo_wallet
    assert after(wizard, wizard.use_demo_wallet) == "preview"
    wizard.next()
    assert after(wizard, wizard.next) == "submit"
    assert f"account_id={ACCOUNT}," in wizard.export()
    assert f"signer=relayer.signer({ACCOUNT})," in wizard.export()
    follow(wizard, setup)
    assert wizard.new_client().trades(ACCOUNT, limit=1).shape[0] == 1
    wizard.start_over()
    assert f"account_id={STRANGER}," in wizard.export()


def test_a_wizard_needs_a_client():
    with pytest.raises(LabError, match="expected a client. Give lab.connect()"):
        KeyUpdateWizard(None)  # type: ignore[arg-type]
    with pytest.raises(
        LabError, match="only a relayer .* this client reads a recording or blocks"
    ):
        KeyUpdateWizard(lab.connect(blocks="sample"))  # type: ignore[arg-type]


# On the page


def test_the_wizard_walks_by_its_buttons(setup):
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    signer = setup.relayer.signer(ACCOUNT)
    page = OnPage(wizard).enter("Valid for", "12h").press("Continue")
    assert "aria-current=step>key" in page.text
    page.type_secret("Signature:", "0x1234")
    assert page.problem == (
        "Signature: expected 0x and 130 hex digits, ending in 1b or 1c, of the key seed. Sign what is shown "
        "with personal_sign, and paste its signature."
    )
    page.type_secret("Signature:", signature(signer, text_to_sign(page)))
    assert page.problem == ""
    assert "POST /api/v3/account" in page.text
    page.press("Continue to signing")
    data = json.loads(text_to_sign(page))
    page.type_secret("Signature:", "0x" + sign_typed_data(signer, data).hex())
    assert wizard.step == "submit"
    page.control("Submit the update").click()
    # The page follows the step in another thread; what is sent cannot be taken back.
    while wizard.step != "follow" or page.offers("Back"):
        time.sleep(0.01)
    page.press("Cancel")
    assert "cancelled" in page.problem
    setup.finish()
    page.press("Keep waiting")
    assert "The account has the new key" in page.text
    assert "aria-current=step>processed" in page.text
    assert not page.offers("Keep waiting")
    assert wizard.new_client().count(ACCOUNT) > 0
    assert wizard.export().endswith("update.submit().wait()")


def text_to_sign(page):
    return page.text.partition("<pre")[2].partition(">")[2].partition("</pre>")[0]


def test_the_wizard_signs_with_a_typed_key_and_goes_back(setup):
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT, way="key")
    page = OnPage(wizard).press("Continue")
    page.type_secret("Private key:", setup.relayer.signer(ACCOUNT).key.hex())
    page.press("Continue to signing").press("Sign")
    assert wizard.step == "submit"
    page.press("Back")
    assert page.offers("Private key:")
    assert not page.offers("Sign")
    page.press("Start over")
    assert wizard.step == "account"
    assert page.control("Account").value == str(ACCOUNT)


def test_a_refused_entry_returns_to_the_value_in_force(setup):
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    page = OnPage(wizard).enter("Valid for", "12h").enter("Valid for", "soon")
    assert page.problem.startswith("Valid for 'soon': expected a duration above zero")
    assert (page.control("Valid for").value, wizard.valid_for) == ("12h", "12h")
    assert page.enter("Valid for", "").problem.startswith("Valid for '': expected")
    assert wizard.valid_for == "12h"
    page.enter("Account", "nobody")
    assert page.problem.startswith("Account 'nobody' is not a valid account id")
    assert page.control("Account").value == str(ACCOUNT)


@pytest.mark.parametrize(
    ("label", "entry"), [("Max fee", "abc"), ("Max fee", "-1"), ("Fee in", "DOGE")]
)
def test_errors_name_what_is_on_the_page(setup, label, entry):
    page = OnPage(KeyUpdateWizard(setup.client, account=ACCOUNT))
    page.enter(label, entry).press("Continue")
    assert page.problem.startswith(label)
    assert not re.search(r"uint|\w_\w|\w\(|=", page.problem)


def test_the_demo_wallet_is_marked_and_signs_step_by_step(setup):
    account = max(setup.relayer.accounts)
    how = setup.relayer.counterfactual(account)
    wizard = KeyUpdateWizard(setup.client, account=account, counterfactual=how)
    page = OnPage(wizard).press("Continue")
    assert "Demo: this session simulates the relayer" in page.text
    page.press("Use a demo wallet")
    assert "POST /api/v3/account" in page.text
    page.press("Continue to signing").press("Sign")
    page.control("Submit the update").click()
    while page.widget.step != "follow":
        time.sleep(0.01)
    assert not page.offers("Use a demo wallet")
    setup.finish()
    page.wait()
    assert "A demo wallet signed this update of a simulated account" in page.text
    assert f"signer=relayer.signer({account})" in wizard.export()
    assert f"counterfactual=relayer.counterfactual({account})" in wizard.export()
    assert "The account has the new key" in page.text
    live = KeyUpdateWizard(lab.connect("https://relayer.example"), account=ACCOUNT)
    assert not OnPage(live).offers("Use a demo wallet")
