"""The key-update wizard without a view: all its steps, back and forth, and every error."""

import functools
import gc
import json
import re
import threading
import time
import weakref
from contextlib import contextmanager

import pytest
from support.cells import values
from support.key_update_setup import (
    ACCOUNT,
    key_update_setup,
    personal_sign,
    sign_typed_data,
)
from support.scripted_server import Answer, scripted
from support.troubled import passed_on
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
    ("text", "problem"),
    [
        (" ", "Nothing is entered"),
        ("0x12", "private key: expected 64 hex digits"),
        ("zz" * 32, "private key: expected 64 hex digits"),
        ("0x" + "1" * 63, "private key: expected 64 hex digits"),
        ("00" * 32, "private key: the number is zero"),
        ("ff" * 32, "private key: the number is zero or too large"),
    ],
)
def test_an_invalid_private_key_is_refused_and_not_repeated(wizard, text, problem):
    after(wizard, wizard.next)
    assert after(wizard, wizard.give_key, text) == "key"
    assert wizard.problem.startswith(problem)
    assert text[2:] not in wizard.problem or text == " "


def test_a_private_key_is_taken_as_it_is_pasted(wizard, setup):
    after(wizard, wizard.next)
    key = setup.relayer.signer(ACCOUNT).key.hex()
    assert after(wizard, wizard.give_key, f' "{key}"\n') == "preview"


def test_an_empty_own_seed_is_refused(wizard):
    after(wizard, wizard.next)
    with pytest.raises(KeyUpdateError, match="Nothing is entered. Type your own text"):
        wizard.give_seed(" ")
    assert wizard.step == "key"


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
    assert wizard.problem == (
        f"private key: expected the key of {owner.address}, got the key of {stranger.address}. Type the key "
        "of the account's wallet."
    )
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


def test_terms_chosen_later_are_not_those_of_the_update_nor_in_its_code(wizard, setup):
    after(wizard, wizard.next)
    wizard.choices.max_fee = "0.5"
    wizard.choices.valid_for = "2d"
    assert after(wizard, wizard.use_demo_wallet) == "preview"
    assert "max_fee" not in wizard.export()
    assert "valid_for='30d'," in wizard.export()
    wizard.start_over()
    assert "max_fee='0.5'," in wizard.export()
    assert "valid_for='2d'," in wizard.export()


@pytest.mark.parametrize(
    "update",
    [KeyUpdateWizard, functools.partial(lab.KeyUpdate.prepare, account_id=ACCOUNT)],
)
def test_an_update_needs_a_client_of_a_relayer(update):
    for other in (None, "https://relayer.example", lab.connect(blocks="sample")):
        with pytest.raises(
            KeyUpdateError, match="expected a relayer's client.* no keys .*lab.connect"
        ):
            update(other)


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
    arrived(wizard)
    setup.finish()
    page.wait()
    assert "The account has the new key" in page.text
    assert "aria-current=step>processed" in page.text
    assert not page.offers("Keep waiting")
    assert wizard.new_client().count(ACCOUNT) > 0
    assert wizard.export().endswith("update.submit().wait()")


def arrived(wizard):
    """Wait until the relayer has answered that it has the update."""
    while wizard.model.held.receipt is None:
        time.sleep(0.01)


def ready_to_submit(setup):
    """Walk to the last page before anything is sent, where a private key signs."""
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT, way="key")
    page = OnPage(wizard).press("Continue")
    page.type_secret("Private key:", setup.relayer.signer(ACCOUNT).key.hex())
    return page.press("Continue to signing").press("Sign")


@contextmanager
def slow(setup, method):
    """Hold up requests of a method; yield the events that one was asked, and that they are let through."""
    asked = threading.Event()
    let = threading.Event()

    def slowly(number, request):
        if request.method == method:
            asked.set()
            assert let.wait(SECONDS)
        return passed_on(setup.relayer.base_url, request)

    with scripted(slowly) as server, setup.redirected(server.base_url):
        yield asked, let


WAYS_OUT = ("Cancel", "Back", "Start over")


def is_followed(page):
    """Tell whether the page says that the update may be sent, and offers no way out of that."""
    shown = "The update may have been sent, so it cannot be cancelled" in page.text
    return shown and not any(page.offers(label) for label in WAYS_OUT)


def test_what_is_being_sent_is_not_cancelled_and_is_followed_to_its_end(setup):
    page = ready_to_submit(setup)
    wizard = page.widget
    buttons = [page.control("Back"), page.control("Start over")]
    with slow(setup, "POST") as (asked, let):
        page.control("Submit the update").click()
        assert asked.wait(SECONDS)
        assert is_followed(page)
        with pytest.raises(LabError, match="it may have been sent, so it cannot be"):
            wizard.background.cancel()
        # Also clicks that were on their way when it was sent.
        for button in buttons:
            button.click()
            assert wizard.step == "follow"
        # The cell may show the wizard again.
        del wizard.__dict__["_saved"]
        page = OnPage(wizard)
        assert is_followed(page)
        let.set()
        arrived(wizard)
        setup.finish()
        page.wait()
    assert "The account has the new key" in page.text
    assert len(setup.transport.sent) == 1
    assert setup.client.account(ACCOUNT).nonce == 2


def test_lost_answers_leave_no_way_back_but_to_send_the_same_again(setup):
    page = ready_to_submit(setup)
    late = [
        page.control(label) for label in ("Submit the update", "Back", "Start over")
    ]

    def silent(number, request):
        # The update arrives, and of that nothing is heard: three attempts, as of every update.
        answer = passed_on(setup.relayer.base_url, request)
        is_lost = request.method == "POST" and number < 3
        return Answer(hang_up=True) if is_lost else answer

    with scripted(silent) as server, setup.redirected(server.base_url):
        page.press("Submit the update")
        said = "Keep waiting, which sends it again: it acts only once."
        assert page.problem.endswith(said)
        assert is_followed(page)
        # Clicks that come once the answers are lost take away neither the update nor what was said.
        for button in late:
            button.click()
            assert page.problem.endswith(said)
            assert is_followed(page)
        page.control("Keep waiting").click()
        arrived(page.widget)
        setup.finish()
        page.wait()
    assert "The account has the new key" in page.text
    assert len({sent.body for sent in setup.transport.sent}) == 1
    assert len(setup.transport.sent) == 4


def test_a_cell_that_is_run_again_goes_on_with_what_was_sent(setup):
    page = ready_to_submit(setup)

    def silent(number, request):
        answer = passed_on(setup.relayer.base_url, request)
        return Answer(hang_up=True) if request.method == "POST" else answer

    with scripted(silent) as server, setup.redirected(server.base_url):
        page.press("Submit the update")
        # Also where the account is typed into the page each time.
        again = OnPage(KeyUpdateWizard(setup.client))
        assert again.problem == page.problem
        assert is_followed(again)
        assert OnPage(KeyUpdateWizard(setup.client, account=STRANGER)).offers("Account")
    again.control("Keep waiting").click()
    arrived(again.widget)
    third = OnPage(KeyUpdateWizard(setup.client, account=ACCOUNT, valid_for="1d"))
    assert is_followed(third)
    setup.finish()
    for shown in (page, again, third):
        assert "The account has the new key" in shown.wait().text
        assert "valid_for='30d'" in shown.code
    # All that was sent is one update.
    assert len({sent.body for sent in setup.transport.sent}) == 1
    assert setup.client.account(ACCOUNT).nonce == 2
    assert KeyUpdateWizard(setup.client, account=ACCOUNT).step == "account"
    third.press("Start over")
    assert (third.widget.step, page.widget.step) == ("account", "follow")


def test_a_step_that_was_cancelled_is_taken_again_as_the_page_says(setup):
    page = OnPage(KeyUpdateWizard(setup.client, account=ACCOUNT))
    with slow(setup, "GET") as (asked, let):
        page.control("Continue").click()
        assert asked.wait(SECONDS)
        page.control("Cancel").click()
        assert page.problem.endswith("cancelled. To start again, take the step again.")
        let.set()
        assert page.press("Continue").widget.step == "key"


def test_what_was_not_sent_can_be_changed(setup):
    page = ready_to_submit(setup)
    # Nobody listens there.
    with scripted(lambda number, request: Answer()) as server:
        nowhere = server.base_url
    with setup.redirected(nowhere):
        page.press("Submit the update")
    assert re.search("cannot be reached|could not be reached", page.problem)
    assert page.widget.step == "submit"
    assert page.press("Back").widget.step == "sign"


def test_a_failed_update_does_not_offer_to_wait():
    with key_update_setup(fail_updates={1: "fee too low by now"}) as setup:
        page = ready_to_submit(setup)
        page.control("Submit the update").click()
        arrived(page.widget)
        setup.finish()
        page.wait()
        assert "fee too low by now" in page.problem
        assert not page.offers("Keep waiting")
        assert "may have been sent" not in page.text
        assert page.press("Start over").widget.step == "account"


def test_the_second_of_two_clicks_does_not_take_the_step_after(setup):
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    page = OnPage(wizard)
    twice(page, "Continue", "key")
    twice(page, "Use a demo wallet", "preview")
    twice(page, "Continue to signing", "sign")
    twice(page, "Sign", "submit")
    assert setup.transport.sent == []
    assert not page.offers("Sign")
    twice(page, "Back", "sign")
    twice(page, "Use a demo wallet", "submit")
    twice(page, "Back", "sign")
    twice(page, "Back", "preview")
    twice(page, "Back", "key")
    twice(page, "Back", "account")
    twice(page, "Continue", "key")
    twice(page, "Use a demo wallet", "preview")
    twice(page, "Continue to signing", "sign")
    twice(page, "Sign", "submit")
    submit = page.control("Submit the update")
    submit.click()
    submit.click()
    arrived(wizard)
    setup.finish()
    page.wait()
    assert page.problem == ""
    assert len(setup.transport.sent) == 1


def twice(page, label, step):
    """Click a button, and again once its work is done, as the second of two clicks may arrive then."""
    button = page.control(label)
    button.click()
    page.wait()
    button.click()
    page.wait()
    assert page.widget.step == step
    assert page.problem == ""


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


@pytest.mark.parametrize(
    ("label", "entry", "problem", "corrected"),
    [
        ("Valid for", "2 hours", "Valid for '2 hours': expected a duration", "2h"),
        ("Valid for", "", "Valid for '': expected a duration above zero", "30d"),
        ("Fee in", "", "Fee in '' names no token. Give a symbol", "LRC"),
        ("Account", "1234x", "Account '1234x' is not a valid account id", ACCOUNT),
    ],
)
def test_a_refused_entry_stands_and_blocks_until_it_is_corrected(
    setup, label, entry, problem, corrected
):
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    page = OnPage(wizard).enter(label, entry)
    for _ in range(2):
        assert page.problem.startswith(problem)
        assert page.control(label).value == entry
        page.enter("Max fee", "1").press("Continue")
        assert wizard.step == "account"
    # Also to what is in force all the while.
    assert page.enter(label, str(corrected)).problem == ""
    assert page.press("Continue").widget.step == "key"


def test_code_replaces_a_refused_entry(setup):
    wizard = KeyUpdateWizard(setup.client)
    page = OnPage(wizard).enter("Account", "abc").press("Continue")
    assert page.problem.startswith("Account 'abc' is not a valid account id")
    wizard.account = ACCOUNT
    assert page.control("Account").value == str(ACCOUNT)
    assert page.problem == ""
    assert page.press("Continue").widget.step == "key"


@pytest.mark.parametrize(
    ("label", "entry"),
    [("Max fee", "abc"), ("Max fee", "-1"), ("Max fee", "1e12"), ("Fee in", "DOGE")],
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
    arrived(wizard)
    assert not page.offers("Use a demo wallet")
    setup.finish()
    page.wait()
    assert "A demo wallet signed this update of a simulated account" in page.text
    assert f"signer=relayer.signer({account})" in wizard.export()
    assert f"counterfactual=relayer.counterfactual({account})" in wizard.export()
    assert "The account has the new key" in page.text
    live = KeyUpdateWizard(lab.connect("https://relayer.example"), account=ACCOUNT)
    assert not OnPage(live).offers("Use a demo wallet")
