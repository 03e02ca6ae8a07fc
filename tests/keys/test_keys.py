"""A key update, from preparation to the account that has the new key."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from eth_account import Account as Wallet
from eth_account.messages import encode_defunct, encode_typed_data
from eth_utils.crypto import keccak
from support.key_update_setup import (
    ACCOUNT,
    NOW,
    UNTIL,
    KeyUpdateSetup,
    key_update_setup,
    personal_sign,
    sign_typed_data,
)
from support.protocol_vectors import every_vector
from support.scripted_server import Answer, Request, repeating, scripted
from support.troubled import passed_on, troubled

import loopring_lab as lab
from loopring_lab import protocol
from loopring_lab.errors import (
    AmountError,
    KeyUpdateError,
    LabError,
    ProtocolError,
    RateLimited,
    RelayerError,
    RelayerUnreachable,
    TransportError,
    UnexpectedAnswer,
)
from loopring_lab.keys import Counterfactual

FEE_DECIMALS = {0: ("ETH", 18), 1: ("LRC", 18), 3: ("USDT", 6)}
Vector = dict[str, Any]


@pytest.fixture
def setup() -> Iterator[KeyUpdateSetup]:
    with key_update_setup() as opened:
        yield opened


@pytest.fixture(scope="module")
def unused_setup() -> Iterator[KeyUpdateSetup]:
    """Return a desk where nothing is sent."""
    with key_update_setup() as opened:
        yield opened
        assert opened.transport.sent == []


def refused(call: Callable[[], object], code: int) -> str:
    with pytest.raises(RelayerError) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


class NeverSigns:
    """A signer of the owner that must not be asked."""

    def __init__(self, address: str):
        self.address = address

    def sign_message(self, signable_message):
        raise AssertionError("asked for a signature")

    def sign_typed_data(self, *, full_message):
        raise AssertionError("asked for a signature")


# What is sent is what the vectors say


def networks(*groups: list[Vector]) -> Iterator[tuple[str, int, list[Vector]]]:
    """Group vectors by exchange and chain."""
    every = [vector for group in groups for vector in group]
    for exchange, chain in sorted(
        {(vector["exchange"], vector["chain_id"]) for vector in every}
    ):
        yield (
            exchange,
            chain,
            [vector for vector in every if vector["exchange"] == exchange],
        )


def update_of(vector: Vector, setup: KeyUpdateSetup, **how: Any) -> lab.KeyUpdate:
    """Prepare the update that a vector describes, on a relayer that knows its account."""
    setup.relayer.add_account(
        vector["account_id"], vector["owner"], nonce=vector["nonce"]
    )
    symbol, decimals = FEE_DECIMALS[vector["max_fee"]["tokenId"]]
    tokens = {symbol: {"id": vector["max_fee"]["tokenId"], "decimals": decimals}}
    return setup.prepare(
        vector["account_id"],
        signer=Wallet.from_key(vector["l1_private_key"]),
        max_fee=f"{vector['max_fee']['volume']}E-{decimals}",
        fee_token=symbol,
        valid_for=datetime.fromtimestamp(vector["valid_until"], UTC),
        key_seed=vector["key_seed"],
        trust={
            "exchange": vector["exchange"],
            "chain_id": vector["chain_id"],
            "tokens": tokens,
        },
        **how,
    )


def test_every_vector_is_sent_to_the_byte_and_accepted(monkeypatch):
    # The deadlines of some vectors have passed since.
    clock = SimpleNamespace(time=NOW.timestamp)
    monkeypatch.setattr("loopring_lab.keys.request.time", clock)
    found = []
    for exchange, chain, group in networks(every_vector()["account_update"]):
        fees = dict.fromkeys(("ETH", "LRC", "USDT"), 0)
        with key_update_setup(
            exchange=exchange, chain_id=chain, update_fees=fees
        ) as setup:
            for vector in group:
                update = update_of(vector, setup)
                receipt = update.submit()
                body, header = setup.transport.sent[-1]
                compact = json.dumps(
                    vector["request_body"], separators=(",", ":"), ensure_ascii=False
                )
                assert body.decode() == compact
                # What is sent is compact JSON in the order of the vector's members.
                assert header == vector["x_api_sig"]
                assert hex(update.l2_key.secret) == hex(int(vector["l2_secret"], 16))
                setup.finish()
                account = receipt.wait()
                assert (account.x, account.y) == (
                    vector["public_key"]["x"],
                    vector["public_key"]["y"],
                )
                assert account.nonce == vector["nonce"] + 1
                found.append(vector["id"])
    assert sorted(found) == sorted(
        vector["id"] for vector in every_vector()["account_update"]
    )


def test_every_counterfactual_vector_is_sent_and_accepted():
    for vector in every_vector()["counterfactual"]:
        with key_update_setup(
            exchange=vector["exchange"], chain_id=vector["chain_id"]
        ) as setup:
            update = update_of(
                vector, setup, counterfactual=vector["counterFactualInfo"]
            )
            receipt = update.submit()
            body, header = setup.transport.sent[-1]
            sent = json.loads(body)
            assert sent["counterFactualInfo"] == vector["counterFactualInfo"]
            assert sent["publicKey"] == vector["public_key"]
            assert sent["ecdsaSignature"] == header == vector["x_api_sig"]
            setup.finish()
            assert receipt.wait().owner == vector["owner"]


# The whole way


def test_an_update_goes_through_its_states_and_ends_in_the_new_key(setup):
    before = setup.client.account(ACCOUNT)
    update = setup.prepare()
    receipt = update.submit()
    assert (receipt.status, receipt.is_idempotent, receipt.lost) == (
        "processing",
        False,
        (),
    )
    states = []
    for _ in range(2):
        states.append((receipt.poll(), setup.client.account(ACCOUNT).frozen))
        setup.relayer.step()
    assert states == [("processing", True), ("processed", False)]
    account = receipt.wait()
    assert (account.owner, account.nonce) == (before.owner, before.nonce + 1)
    assert (int(account.x, 16), int(account.y, 16)) == (
        update.l2_key.x,
        update.l2_key.y,
    )
    again = protocol.l2_key(
        personal_sign(setup.relayer.signer(ACCOUNT), account.key_seed)
    )
    assert again == update.l2_key
    assert account.has_key(update.l2_key)
    assert not before.has_key(update.l2_key)


def test_the_old_api_key_ends_and_the_new_one_works(setup):
    old_key = setup.relayer.l2_key(ACCOUNT)
    old = setup.client.with_api_key(setup.client.api_key(old_key, ACCOUNT))
    count = old.count(ACCOUNT)
    update = setup.prepare()
    receipt = update.submit()
    setup.finish()
    receipt.wait()
    # RELAYER.md: an update voids API keys.
    assert refused(lambda: old.count(ACCOUNT), 104002).count("voids the old one") == 1
    refused(lambda: setup.client.api_key(old_key, ACCOUNT), 104005)
    new = setup.client.with_api_key(setup.client.api_key(update.l2_key))
    assert new.count(ACCOUNT) == count > 0


# Refusals


def test_an_update_that_expires_on_the_way_fails_with_that_reason(setup):
    receipt = setup.prepare().submit()
    setup.now = UNTIL.timestamp()
    setup.finish()
    with pytest.raises(
        KeyUpdateError,
        match=r"failed: validUntil has passed\. .* prepare a new update\.",
    ):
        receipt.wait()


def test_without_an_api_key_the_account_shows_the_outcome():
    with key_update_setup(fail_updates={1: "no one is told"}) as setup:
        setup.connect(api_key=None)
        receipt = setup.prepare().submit()
        assert receipt.poll() == "processing"
        setup.finish()
        with pytest.raises(
            KeyUpdateError, match=r"failed: the relayer gave no reason\."
        ):
            receipt.wait()
        again = setup.prepare().submit()
        setup.finish()
        assert again.wait().has_key(setup.prepare().l2_key) is False


@pytest.mark.parametrize(
    ("keyed", "told"),
    [
        (True, "processed, but the account has another key"),
        (False, "was processed first"),
    ],
)
def test_an_update_that_another_one_followed_is_not_taken_for_the_current(
    setup, keyed, told
):
    setup.connect(api_key=setup.relayer.api_key if keyed else None)
    receipts = []
    for _ in range(2):
        receipts.append(setup.prepare().submit())
        setup.finish()
    with pytest.raises(KeyUpdateError, match=told):
        receipts[0].wait()
    assert receipts[1].wait().nonce == 3


@pytest.mark.parametrize("lag", [2, 1000])
def test_an_account_that_lags_behind_its_update_is_asked_again(setup, lag):
    receipt = setup.prepare().submit()
    before = setup.client.account(ACCOUNT)
    setup.finish()
    asked = []
    ask = setup.client.account

    def lagging(account_id: int) -> Any:
        asked.append(account_id)
        return before if len(asked) <= lag else ask(account_id)

    setup.client.account = lagging  # type: ignore[method-assign]
    assert receipt.poll() == "processed"
    if lag < 1000:
        assert receipt.wait().nonce == before.nonce + 1
        return
    with pytest.raises(
        KeyUpdateError,
        match=r"processed, but the account does not show it yet\. .*call wait\(\) again",
    ):
        receipt.wait(timeout=0.1)
    setup.client.account = ask  # type: ignore[method-assign]
    assert receipt.wait(timeout=0).nonce == before.nonce + 1


def test_an_update_that_takes_too_long_is_not_given_up(setup):
    receipt = setup.prepare().submit()
    with pytest.raises(
        KeyUpdateError, match=r"still processing after 0\.01 s\. .*call wait\(\) again"
    ):
        receipt.wait(timeout=0.01)
    setup.finish()
    assert receipt.wait(timeout=0).nonce > 0
    with pytest.raises(LabError, match="timeout=None: give seconds"):
        receipt.wait(timeout=None)


# Lost answers


@pytest.mark.parametrize(
    ("kind", "taken"), [("truncated", True), ("reset", False), ("500", False)]
)
def test_a_lost_answer_is_resolved_by_sending_the_same_again(kind, taken):
    with key_update_setup() as setup:
        update = setup.prepare()
        with (
            troubled(setup.relayer.base_url, {kind: 1.0}, in_a_row=1) as (url, _),
            setup.redirected(url),
        ):
            receipt = update.submit()
        assert len(receipt.lost) == 1
        assert receipt.is_idempotent is taken
        assert setup.transport.sent[0] == setup.transport.sent[1]
        assert len(setup.transport.sent) == 2
        assert "sent 2 times" in repr(receipt)
        assert (
            "The answer was lost, so the same request was sent again"
            in receipt._repr_html_()
        )
        setup.finish()
        assert receipt.wait().nonce == update.body()["nonce"] + 1
        assert setup.relayer.step() == 0


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_update_whose_nonce_is_taken_when_it_is_sent_again_is_followed(
    setup, is_ours
):
    """The answer is lost, and by the next attempt the account had this update, or another one in its place."""
    update = setup.prepare()
    real = setup.transport.post

    def loses_the_first(path: str, body: bytes, **secrets: Any) -> bytes:
        if setup.transport.sent:
            return real(path, body, **secrets)
        if is_ours:
            real(path, body, **secrets)
        else:
            other = setup.prepare(key_seed="x with key nonce: 1").body()
            signature = other["ecdsaSignature"][:]
            real(path, json.dumps(other).encode(), signature=signature)
        setup.finish()
        raise TransportError("The cable was cut. Replace it.", maybe_received=True)

    setup.transport.post = loses_the_first  # type: ignore[method-assign]
    receipt = update.submit()
    assert (receipt.hash, receipt.lost) == (None, ("The cable was cut. Replace it.",))
    if is_ours:
        assert receipt.wait().has_key(update.l2_key)
    else:
        with pytest.raises(KeyUpdateError, match="was processed first"):
            receipt.wait()


def test_an_update_whose_submission_was_interrupted_is_followed_when_it_is_sent_again(
    setup,
):
    """Ctrl-C while the answer is awaited; by the time that the cell is run again, the update is processed."""
    update = setup.prepare()
    real = setup.transport.post

    def interrupted(*sent: Any, **secrets: Any) -> bytes:
        real(*sent, **secrets)
        raise KeyboardInterrupt

    setup.transport.post = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        update.submit()
    setup.finish()
    setup.transport.post = real  # type: ignore[method-assign]
    receipt = update.submit()
    assert receipt.lost == ("Interrupted before an answer arrived.",)
    assert receipt.wait().has_key(update.l2_key)
    assert len(setup.transport.sent) == 2


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_update_that_is_refused_as_a_duplicate_when_it_is_sent_again_is_followed(
    setup, is_ours
):
    """The answer is lost, and a relayer that keeps no answers says only that an update is pending."""
    update = setup.prepare()
    real = setup.transport.post
    sent = update if is_ours else setup.prepare(key_seed="x with key nonce: 1")
    body = sent.body()
    problem = TransportError("The cable was cut. Replace it.", maybe_received=True)

    def loses_the_first(path: str, _: bytes, **secrets: Any) -> bytes:
        if setup.transport.sent:
            hint = "Ask for its outcome."
            raise RelayerError("duplicate request", status=400, code=100204, hint=hint)
        real(path, json.dumps(body).encode(), signature=body["ecdsaSignature"][:])
        raise problem

    setup.transport.post = loses_the_first  # type: ignore[method-assign]
    receipt = update.submit()
    assert receipt.poll() == "processing"
    setup.finish()
    if is_ours:
        assert receipt.wait().has_key(update.l2_key)
    else:
        with pytest.raises(KeyUpdateError, match="was processed first"):
            receipt.wait()


def silent_for_posts(number: int, request: Request) -> Answer:
    return Answer(hang_up=True) if request.method == "POST" else Answer(404)


def test_a_request_that_is_never_answered_is_sent_three_times_and_the_error_says_so(
    setup,
):
    update = setup.prepare()
    with scripted(silent_for_posts) as server, setup.redirected(server.base_url):
        with pytest.raises(
            KeyUpdateError,
            match=r"sent 3 times without a usable answer.*Call submit\(\) again",
        ):
            update.submit()
        assert [(request.method, request.path) for request in server.requests] == [
            ("POST", "/api/v3/account")
        ] * 3
        assert len({request.body for request in server.requests}) == 1
    assert len(update.submit().lost) == 3


def test_an_update_that_may_have_arrived_is_not_said_to_be_unsent(setup):
    """The answer is lost, and then nobody can be reached: the update was taken all the same."""
    update = setup.prepare()
    real = setup.transport.post

    def loses_the_first(path: str, body: bytes, **secrets: Any) -> bytes:
        if setup.transport.sent:
            raise RelayerUnreachable("Nobody is there.")
        real(path, body, **secrets)
        raise TransportError("The cable was cut.", maybe_received=True)

    setup.transport.post = loses_the_first  # type: ignore[method-assign]
    with pytest.raises(KeyUpdateError, match="so it may have been accepted"):
        update.submit()
    setup.transport.post = real  # type: ignore[method-assign]
    assert update.submit().is_idempotent


NO_REFUSALS = {
    "a web page": Answer(200, b"<html>blocked</html>"),
    "nothing": Answer(200, b""),
    "no members": Answer(200, b"{}"),
    "text": Answer(200, b'"ok"'),
    "no hash": Answer(200, b'{"status": "processing"}'),
    "no such status": Answer(200, b'{"hash": "0x1", "status": "done"}'),
    "another source": Answer(200, b"{}", {"X-Loopring-Lab-Source": "synthetic; x"}),
    "a redirect": Answer(303, b"", {"Location": "/api/v3/account"}),
}


@pytest.mark.parametrize("answer", NO_REFUSALS.values(), ids=NO_REFUSALS)
def test_an_answer_in_which_the_relayer_does_not_refuse_counts_as_lost(setup, answer):
    update = setup.prepare()
    answer = answer._replace(headers=setup.source | answer.headers)
    lost = 1

    def replaced(number: int, request: Request) -> Answer:
        taken = passed_on(setup.relayer.base_url, request)
        return answer if number < lost else taken

    with scripted(replaced) as server, setup.redirected(server.base_url):
        receipt = update.submit()
    assert receipt.is_idempotent
    assert len(receipt.lost) == 1
    setup.finish()
    assert receipt.wait().has_key(update.l2_key)

    update = setup.prepare()
    lost = 3
    with scripted(replaced) as server, setup.redirected(server.base_url):
        with pytest.raises(
            KeyUpdateError, match="so it may have been accepted"
        ) as told:
            update.submit()
        assert len({request.body for request in server.requests}) == 1
    assert "base_url: this may be another" not in str(told.value)
    setup.finish()
    assert update.submit().wait().has_key(update.l2_key)


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (
            Answer(429, b'{"resultInfo": {"code": 100000, "message": "slow down"}}'),
            RateLimited,
            "Send fewer requests",
        ),
        (
            Answer(307, b"", {"Location": "http://127.0.0.1:9/steal"}),
            TransportError,
            "not followed",
        ),
        (
            Answer(400, b'{"resultInfo": {"code": 114002, "message": "fee too low"}}'),
            RelayerError,
            "max_fee",
        ),
        (
            Answer(
                200, b'{"resultInfo": {"code": 104005, "message": "bad signature"}}'
            ),
            RelayerError,
            "bad signature",
        ),
    ],
)
def test_a_refusal_is_not_asked_for_twice(setup, answer, error, told):
    update = setup.prepare()
    answer = answer._replace(headers=answer.headers | setup.source)
    with (
        repeating(answer) as server,
        setup.redirected(server.base_url),
    ):
        with pytest.raises(error, match=told):
            update.submit()
        assert len(server.requests) == 1


def test_another_update_while_one_is_pending_is_told_to_wait(setup):
    """The kernel was restarted, and the update is prepared anew: its deadline is another one."""
    setup.prepare(valid_for="1d").submit()
    told = refused(setup.prepare(valid_for="2d").submit, 100204)
    assert "another update of the account" in told
    assert "wait for its outcome" in told
    assert "same request was sent" not in told


# A wallet elsewhere


def test_a_wallet_signs_twice_and_each_step_names_the_next(setup):
    wallet = setup.relayer.signer(ACCOUNT)
    update = setup.prepare(signer=None)
    for early in (update.typed_data, update.submit, update.body, lambda: update.l2_key):
        with pytest.raises(
            KeyUpdateError,
            match=r"Sign key_seed_message\(\) with personal_sign, and attach",
        ):
            early()
    assert update.attach(personal_sign(wallet, update.key_seed_message())) is update
    for early in (update.submit, update.body):
        with pytest.raises(
            KeyUpdateError,
            match=r"Sign typed_data\(\) with eth_signTypedData_v4, and attach",
        ):
            early()
    data = json.loads(json.dumps(update.typed_data()))
    update.attach("0x" + sign_typed_data(wallet, data).hex())
    with pytest.raises(KeyUpdateError, match=r"both signatures are attached"):
        update.attach(bytes(65))
    assert update.body() == setup.prepare().body()
    update.submit()
    setup.finish()
    assert setup.client.account(ACCOUNT).has_key(update.l2_key)


def test_a_wallet_that_cannot_sign_typed_data_signs_its_digest(setup):
    wallet = setup.relayer.signer(ACCOUNT)
    update = setup.prepare(signer=None)
    update.attach(personal_sign(wallet, update.key_seed_message()))
    data = encode_typed_data(full_message=update.typed_data())
    digest = keccak(b"\x19" + data.version + data.header + data.body)
    update.attach(
        bytes(wallet.sign_message(encode_defunct(primitive=digest)).signature)
    )
    # PROTOCOL.md: the last byte says how it was signed, 02 typed data and 03 personal_sign.
    assert update.body()["ecdsaSignature"][-2:] == "03"
    assert update.submit().status == "processing"


MALFORMED: list[Callable[[bytes], Any]] = [
    lambda good: good[:-1],
    lambda good: good[:64] + bytes([good[64] - 27]),
    lambda good: "0x" + good.hex() + "x",
    lambda good: None,
]


@pytest.mark.parametrize("change", MALFORMED)
def test_a_malformed_signature_is_refused_and_does_not_spoil_the_update(setup, change):
    wallet = setup.relayer.signer(ACCOUNT)
    update = setup.prepare(signer=None)
    good = personal_sign(wallet, update.key_seed_message())
    with pytest.raises(
        KeyUpdateError,
        match=r"expected r, s, v: 65 bytes, v 27 or 28 .*of the key seed",
    ):
        update.attach(change(good))
    update.attach(good)
    good = sign_typed_data(wallet, update.typed_data())
    with pytest.raises(
        KeyUpdateError,
        match=r"expected r, s, v: 65 bytes, v 27 or 28 .*of the typed data",
    ):
        update.attach(change(good))
    assert update.attach(good).submit().status == "processing"


def test_the_larger_of_two_values_of_s_is_refused_and_named(setup):
    """Modules that hold keys for a service sign with either, and add no v at all."""
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141  # SEC 2
    update = setup.prepare(signer=None)
    good = personal_sign(setup.relayer.signer(ACCOUNT), update.key_seed_message())
    larger = order - int.from_bytes(good[32:64])
    other = good[:32] + larger.to_bytes(32) + bytes([27 + 28 - good[64]])
    with pytest.raises(KeyUpdateError, match="s is at most half the curve's order"):
        update.attach(other)


def test_another_wallets_signature_or_text_is_refused_at_either_step(setup):
    wallet = setup.relayer.signer(ACCOUNT)
    other = setup.relayer.signer(11375)
    update = setup.prepare(signer=None)
    for wrong in (
        personal_sign(other, update.key_seed_message()),
        personal_sign(wallet, "something else"),
    ):
        with pytest.raises(
            KeyUpdateError,
            match=rf"expected the signature by {wallet.address}, got one by 0x",
        ):
            update.attach(wrong)
    seed = personal_sign(wallet, update.key_seed_message())
    update.attach(seed)
    for wrong in (seed, sign_typed_data(other, update.typed_data())):
        with pytest.raises(
            KeyUpdateError, match=r"got one by 0x\w+, of the typed data"
        ):
            update.attach(wrong)


class OddSigner:
    """A signer with the address of one wallet, whose signatures of texts are made by another or in another form."""

    def __init__(self, wallet: Any, sign: Callable[[Any], Any]) -> None:
        self.address = wallet.address
        self.sign_typed_data = wallet.sign_typed_data
        self._sign = sign

    def sign_message(self, message: Any) -> Any:
        return SimpleNamespace(signature=self._sign(message))


def test_a_signer_whose_seed_signature_is_not_the_wallets_is_refused_before_anything_is_sent(
    setup,
):
    wallet = setup.relayer.signer(ACCOUNT)
    other = setup.relayer.signer(11375)

    def with_small_v(message: Any) -> bytes:
        signature = bytes(wallet.sign_message(message).signature)
        return signature[:64] + bytes([signature[64] - 27])

    for sign in (with_small_v, lambda message: other.sign_message(message).signature):
        with pytest.raises(KeyUpdateError, match="signature|v 27 or 28"):
            setup.prepare(signer=OddSigner(wallet, sign))
    assert setup.transport.sent == []


@pytest.mark.parametrize("answer", [None, 65, "0xzz", b"", [1, 2]])
def test_a_signer_that_answers_something_else_is_unusable(setup, answer):
    wallet = setup.relayer.signer(ACCOUNT)
    said = "^signature: expected r, s, v.*Use a signer whose signatures"
    with pytest.raises(KeyUpdateError, match=said):
        setup.prepare(signer=OddSigner(wallet, lambda message: answer))
    odd: Any = OddSigner(wallet, lambda message: wallet.sign_message(message).signature)
    odd.sign_typed_data = lambda *, full_message: answer
    with pytest.raises(KeyUpdateError, match=said):
        setup.prepare(signer=odd).submit()
    odd.address = None
    with pytest.raises(KeyUpdateError, match="signer: None does not sign"):
        setup.prepare(signer=odd)


def test_a_signer_may_give_its_signatures_in_hex(setup):
    wallet = setup.relayer.signer(ACCOUNT)

    def in_hex(message: Any) -> str:
        return "0x" + bytes(wallet.sign_message(message).signature).hex()

    signer = OddSigner(wallet, in_hex)
    assert setup.prepare(signer=signer).l2_key == setup.prepare().l2_key


# Counterfactual wallets


@pytest.fixture
def wallet(setup: KeyUpdateSetup) -> tuple[int, dict[str, str]]:
    account = max(setup.relayer.accounts)
    found = setup.relayer.counterfactual(account)
    assert found
    return account, dict(found)


def test_a_wallet_that_is_not_deployed_updates_its_key(setup, wallet):
    account, info = wallet
    mapping = {
        "factory": info["walletFactory"],
        "owner": info["walletOwner"],
        "salt": int(info["walletSalt"]),
    }
    updates = [
        setup.prepare(account, counterfactual=given)
        for given in (info, mapping, Counterfactual(**mapping))
    ]
    assert updates[0].body() == updates[1].body() == updates[2].body()
    assert updates[0].body()["counterFactualInfo"] == info
    receipt = updates[2].submit()
    setup.finish()
    assert receipt.wait().has_key(updates[0].l2_key)


def test_an_address_of_a_wallet_may_be_written_in_any_way(setup, wallet):
    account, info = wallet
    # Without 0x the owner would be another signer, and the factory an unknown one.
    for write in (str.lower, lambda address: address[2:], lambda a: "0X" + a[2:]):
        written = {
            name: write(text) if name != "walletSalt" else text
            for name, text in info.items()
        }
        update = setup.prepare(account, counterfactual=written)
        assert update.signer_address == info["walletOwner"]
        assert update.body()["counterFactualInfo"] == info
    with pytest.raises(ProtocolError, match="walletOwner: expected 20 bytes"):
        setup.prepare(account, counterfactual=info | {"walletOwner": "0x12"})


def test_the_wallet_must_be_the_accounts(setup, wallet):
    account, info = wallet
    with pytest.raises(
        KeyUpdateError, match=r"give the wallet 0x\w+, but the owner .* Check the salt"
    ):
        setup.prepare(account, counterfactual=info | {"walletSalt": "1"})
    # Without a word, the relayer's own: it is the same, and checked like any other.
    assert setup.prepare(account).body()["counterFactualInfo"] == info
    with pytest.raises(KeyUpdateError, match="expected factory, owner and salt"):
        setup.prepare(account, counterfactual={"factory": info["walletFactory"]})
    with pytest.raises(KeyUpdateError, match="expected factory, owner and salt"):
        setup.prepare(account, counterfactual="0xabc")
    with pytest.raises(ProtocolError, match="walletFactory: expected bytes, or text"):
        setup.prepare(account, counterfactual=info | {"walletFactory": 1})
    with pytest.raises(ProtocolError, match="walletSalt"):
        setup.prepare(account, counterfactual=info | {"walletSalt": "a lot"})


def test_an_unknown_factory_is_refused_on_both_sides(setup):
    factory = "0x" + "11" * 20
    code = "0x" + "22" * 32
    signer = setup.relayer.signer(ACCOUNT)
    owner = protocol.wallet_address(factory, signer.address, 5, code)
    setup.relayer.add_account(7, owner)
    info = {"factory": factory, "owner": signer.address, "salt": "0x5"}
    with pytest.raises(
        KeyUpdateError, match=r"factory 0x1111\w+ is unknown.* init_code_hash="
    ):
        setup.prepare(7, signer=signer, counterfactual=info)
    update = setup.prepare(
        7, signer=signer, counterfactual=info | {"init_code_hash": code}
    )
    assert "factory unknown" in refused(update.submit, 100001)


# The preview


def flat(body: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in body.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        else:
            yield before + name, str(value)


def test_the_preview_shows_each_field_that_is_sent(setup, wallet):
    update = setup.prepare(wallet[0], counterfactual=wallet[1])
    update.body()
    preview = update.preview()
    shown = [(line.field, str(line.value)) for line in preview.lines]
    sent = [
        (name, "withheld" if name == "ecdsaSignature" else text)
        for name, text in flat(update.body())
    ]
    assert shown == [("X-API-SIG", "withheld"), *sent]
    for name, value in shown:
        assert f">{name}</td>" in preview._repr_html_()
        assert f">{value}</td>" in preview._repr_html_()
    assert all(line.meaning for line in preview.lines)


def test_a_preview_signs_and_sends_nothing(setup):
    update = setup.prepare()
    assert "made by the signer in submit()" in repr(update.preview())
    assert repr(update.preview()) == repr(setup.prepare().preview())
    assert setup.transport.sent == []
    waiting = setup.prepare(signer=None)
    assert "not known yet" in repr(waiting.preview())
    assert repr(waiting.preview()).endswith("and attach(signature).")
    assert repr(waiting).endswith("next: key seed)")


# What is given


@pytest.mark.parametrize(
    ("valid_for", "seconds"),
    [
        ("30d", 30 * 86400),
        ("12 h", 12 * 3600),
        ("90s", 90),
        ("1w", 604800),
        (timedelta(minutes=5), 300),
    ],
)
def test_a_time_from_now_on(unused_setup, valid_for, seconds):
    before = int(datetime.now(UTC).timestamp())
    until = unused_setup.prepare(valid_for=valid_for).body()["validUntil"]
    assert before + seconds <= until <= int(datetime.now(UTC).timestamp()) + seconds


@pytest.mark.parametrize("zone", [None, UTC])
def test_a_moment(unused_setup, zone):
    # The last second of 32 bits.
    until = datetime(2106, 2, 7, 6, 28, 15, tzinfo=zone)
    assert unused_setup.prepare(valid_for=until).body()["validUntil"] == 2**32 - 1
    with pytest.raises(ProtocolError, match="validUntil"):
        unused_setup.prepare(valid_for=until + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("given", "token", "volume"),
    [
        (None, "ETH", "19000000000000"),
        ("0.000019", "ETH", "19000000000000"),
        (Decimal("0.000019000000000001"), "ETH", "19000000000001"),
        (3, "USDT", "3000000"),
        ("79228162514.264337593543950335", "ETH", str(2**96 - 1)),
    ],
)
def test_fees_are_exact(unused_setup, given, token, volume):
    sent = unused_setup.prepare(max_fee=given, fee_token=token).body()["maxFee"]
    assert sent == {"tokenId": {"ETH": 0, "USDT": 3}[token], "volume": volume}


# What is shown and kept


def test_an_older_answer_never_overtakes_a_newer_one(setup, monkeypatch):
    """Waiting that was cancelled may still have an answer under way."""
    receipt = setup.prepare().submit()
    ask = setup.client.update_status
    asked = threading.Event()
    let = threading.Event()

    def held_back(*words: Any) -> Any:
        answer = ask(*words)
        if not asked.is_set():
            asked.set()
            assert let.wait(20)
        return answer

    monkeypatch.setattr(setup.client, "update_status", held_back)
    older = threading.Thread(target=receipt.poll)
    newer = threading.Thread(target=receipt.poll)
    older.start()
    assert asked.wait(20)
    setup.finish()
    newer.start()
    newer.join(0.5)
    let.set()
    older.join(20)
    newer.join(20)
    assert receipt.status == "processed"


Refused = tuple[str, list[Any], type[LabError], str | None]


NO_SIGNER = r"signer: .* as text is never accepted"


NO_SEED = r"keySeed: does not end in 'with key nonce: 1'"


NO_TIME = r"valid_for=.*Give text such as '30d'"


NO_FEE = r"maxFee: expected 0 to 79,228,162,514\.\d+ ETH, got max_fee='.*'\. Give units of ETH"


NO_DEADLINE = r"validUntil: .* to 2106-02-07 06:28:15 UTC, got valid_for=.*'30d'"


REFUSED: list[Refused] = [
    (
        "signer",
        ["0x" + "01" * 32, b"\x01" * 32, 7, object(), [1]],
        KeyUpdateError,
        NO_SIGNER,
    ),
    (
        "key_seed",
        ["", "with key nonce: 99", "with key nonce: 1 "],
        ProtocolError,
        NO_SEED,
    ),
    (
        "key_seed",
        [101010101, b"0101 with key nonce: 1"],
        ProtocolError,
        "keySeed: expected text, got .*'with key nonce: 1'",
    ),
    (
        "key_seed",
        ["0101 \ud800 with key nonce: 1"],
        ProtocolError,
        "keySeed: contains half a surrogate pair. Give valid",
    ),
    (
        "valid_for",
        ["", "30", "-1d", "0d", "3 months", 30, None, timedelta(0), pd.NaT],
        KeyUpdateError,
        NO_TIME,
    ),
    ("max_fee", [0.1, "a lot", "1E-19", "NaN", True], AmountError, None),
    (
        "max_fee",
        ["-1", "1e30", "79228162514.264337593543950336"],
        ProtocolError,
        NO_FEE,
    ),
    (
        "valid_for",
        [
            "40000d",
            timedelta(days=40_000),
            timedelta(microseconds=1),
            datetime(1969, 12, 31),  # noqa: DTZ001
            datetime(2026, 1, 1, tzinfo=UTC),
        ],
        ProtocolError,
        NO_DEADLINE,
    ),
    (
        "max_fee",
        [0, "0.000018999999999999"],
        KeyUpdateError,
        r"asks for 0\.000019 ETH .*; what you allow is 0.* ETH\. .* write max_fee='0\.000019'",
    ),
    (
        "fee_token",
        ["WBTC"],
        KeyUpdateError,
        r"fee_token='WBTC': .*: ETH, LRC, USDT, DAI, USDC\.$",
    ),
]


@pytest.mark.parametrize(("name", "values", "error", "told"), REFUSED)
def test_what_is_given_wrongly_is_refused_and_no_key_repeated(
    unused_setup, name, values, error, told
):
    owner = unused_setup.relayer.signer(ACCOUNT).address
    for value in values:
        terms = {"signer": NeverSigns(owner), name: value}
        with pytest.raises(error, match=told) as caught:
            unused_setup.prepare(**terms)
        assert "0101" not in str(caught.value)


# What stands in the way of an update is said before anybody signs


def test_an_account_that_cannot_pay_is_told_before_anybody_signs(setup):
    unsigned = NeverSigns(setup.relayer.signer(70_006).address)
    with pytest.raises(
        KeyUpdateError,
        match=r"costs 0\.000019 ETH, and it has 0\.0000095 ETH\. Deposit ETH, or choose another fee_token=",
    ):
        setup.prepare(70_006, signer=unsigned)
    # Nobody who may not read balances is told; the relayer then says it at the end.
    setup.connect(api_key=None)
    update = setup.prepare(70_006)
    assert "does not show whether the account has it" in str(update.preview())
    receipt = update.submit()
    assert receipt.poll() == "processing"
    setup.finish()
    with pytest.raises(KeyUpdateError, match=r"failed: .*prepare a new update"):
        receipt.wait()


def test_an_account_of_a_contract_is_told_before_anybody_signs(setup):
    unsigned = NeverSigns(setup.relayer.signer(70_005).address)
    for signer in (unsigned, None):
        with pytest.raises(
            KeyUpdateError,
            match=r"70005 is owned by a contract, 0x\w{40}.*EIP-1271.* not supported",
        ):
            setup.prepare(70_005, signer=signer)


def test_the_wallet_of_a_counterfactual_account_is_asked_for(setup):
    wallet = setup.relayer.counterfactual(70_004)
    signer = setup.relayer.signer(70_004)
    update = setup.prepare(70_004, signer=None)
    update.attach(personal_sign(signer, update.key_seed_message()))
    update.attach(sign_typed_data(signer, update.typed_data()))
    assert update.body()["counterFactualInfo"] == wallet
    receipt = update.submit()
    setup.finish()
    assert receipt.wait().has_key(update.l2_key)


def test_a_wallet_that_is_not_the_accounts_is_refused_whoever_names_it(setup):
    lie = {
        "accountId": ACCOUNT,
        "wallet": setup.client.account(ACCOUNT).owner,
        **(setup.relayer.counterfactual(70_004) or {}),
    }

    def lying(number: int, request: Request) -> Answer:
        if request.path.startswith("/api/v3/counterFactualInfo"):
            return Answer(200, json.dumps(lie).encode(), setup.source)
        return passed_on(setup.relayer.base_url, request)

    with (
        scripted(lying) as server,
        setup.redirected(server.base_url),
        pytest.raises(KeyUpdateError, match="give the wallet 0x"),
    ):
        setup.prepare()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, b"<html>not here</html>"),
        Answer(200, b"<html>welcome</html>"),
        Answer(200, b'{"data": null}'),
        Answer(200, b'{"data": {"isContract": "yes"}}'),
        Answer(400, b'{"resultInfo": {"code": 100001, "message": "what?"}}'),
    ],
)
def test_a_relayer_that_does_not_know_wallets_stops_no_update(setup, answer):
    def ignorant(number: int, request: Request) -> Answer:
        if request.path.startswith("/api/wallet/v3/"):
            return answer._replace(headers=setup.source)
        return passed_on(setup.relayer.base_url, request)

    with scripted(ignorant) as server, setup.redirected(server.base_url):
        assert setup.prepare().l2_key


# Today's key


def test_the_text_of_an_empty_key_seed_is_the_usual_one_of_the_last_update(setup):
    account = setup.client.account(70_003)
    assert (account.key_seed, account.nonce) == ("", 1)
    text = setup.client.current_key_seed(account)
    assert text == protocol.key_seed(setup.relayer.settings.exchange, 0)
    assert text == setup.client.current_key_seed(70_003)
    signer = setup.relayer.signer(70_003)
    key = account.recover_key(personal_sign(signer, text))
    assert account.has_key(key)
    assert setup.client.api_key(key, 70_003)
    update = setup.prepare(70_003)
    receipt = update.submit()
    setup.finish()
    updated = receipt.wait()
    assert setup.client.current_key_seed(updated) == update.key_seed_message()


def test_a_key_is_recovered_whichever_way_the_wallet_writes_v(setup):
    account = setup.client.account(ACCOUNT)
    signer = setup.relayer.signer(ACCOUNT)
    signed = personal_sign(signer, setup.client.current_key_seed(account))
    bare = signed[:64] + bytes([signed[64] - 27])
    for signature in (signed, bare, f' "0x{bare.hex()}"\n'):
        key = account.recover_key(signature)
        assert (key, key.v) == (setup.relayer.l2_key(ACCOUNT), "27 or 28")
    made = protocol.l2_key(bare)
    setup.relayer.add_account(
        7, Wallet.from_key(32 * b"\7").address, nonce=1, public_key=(made.x, made.y)
    )
    key = setup.client.account(7).recover_key(signed)
    assert (key, key.v) == (made, "0 or 1")
    other = personal_sign(signer, "another text with key nonce: 0")
    with pytest.raises(
        KeyUpdateError, match=r"does not give the key of account 10083.* sign client\."
    ) as caught:
        account.recover_key(other)
    assert other.hex() not in str(caught.value)


def test_an_account_without_a_key_has_none_to_recover(setup):
    setup.relayer.add_account(7, Wallet.from_key(32 * b"\7").address)
    with pytest.raises(KeyUpdateError, match="Account 7 has no key yet"):
        setup.client.current_key_seed(7)
    with pytest.raises(KeyUpdateError, match="does not give the key of account 7"):
        setup.client.account(7).recover_key(bytes(64) + b"\x1b")


# What people paste, and what relayers answer


@pytest.mark.parametrize(
    "pasted",
    [
        "  0x{}\n",
        "'0x{}'",
        '"{}"\r\n',
        "\u201c0x{}\u201d",
        "`0x{}` ",
        "\t0x{}\xa0",
    ],
)
def test_a_signature_may_be_pasted_with_what_stands_around_it(setup, pasted):
    wallet = setup.relayer.signer(ACCOUNT)
    update = setup.prepare(signer=None)
    update.attach(pasted.format(personal_sign(wallet, update.key_seed_message()).hex()))
    signed = sign_typed_data(wallet, update.typed_data()).hex()
    # Terminals break long lines.
    update.attach(pasted.format(signed[:70] + "\n " + signed[70:]))
    assert update.body() == setup.prepare().body()


@pytest.mark.parametrize(
    ("name", "value"), [("accountId", 10084), ("tokenId", 1), ("accountId", 0)]
)
def test_an_answer_about_another_account_or_token_is_unexpected(setup, name, value):
    def answer(number: int, request: Request) -> Answer:
        answered = passed_on(setup.relayer.base_url, request)
        body = json.loads(answered.body) | {name: value}
        return answered._replace(body=json.dumps(body).encode())

    update = setup.prepare()
    with (
        scripted(answer) as server,
        setup.redirected(server.base_url),
        pytest.raises(UnexpectedAnswer, match=f"{name}: expected .*, got {value}. "),
    ):
        update.submit()
    # It was accepted: the same update again has no second effect.
    assert update.submit().is_idempotent
