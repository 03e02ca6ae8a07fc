"""The client's account methods: accounts, fees, API keys, and the request that changes an account."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from support.clients import client_at
from support.key_update_setup import ACCOUNT, KeyUpdateSetup, key_update_setup
from support.scripted_server import Answer, repeating

from loopring_lab import protocol
from loopring_lab.errors import (
    LabError,
    ProtocolError,
    RelayerError,
    TransportError,
    UnexpectedAnswer,
)
from loopring_lab.redaction import SecretText
from loopring_lab.sources.client import spendable

KEY = protocol.L2Key(7, *protocol.public_key(7))
ANSWER = {
    "accountId": 7,
    "owner": "0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1",
    "frozen": False,
    "publicKey": {"x": f"{KEY.x:#x}", "y": f"{KEY.y:#X}"},
    "tags": "",
    "nonce": 3,
    "keyNonce": 2,
    "keySeed": "a seed with key nonce: 2",
}


@pytest.fixture(scope="module")
def setup() -> Iterator[KeyUpdateSetup]:
    with key_update_setup() as opened:
        yield opened


def answering(value: object) -> Any:
    return repeating(Answer(body=json.dumps(value).encode()))


def test_an_account_is_found_by_its_number_and_by_its_owner(setup):
    found = setup.client.account(ACCOUNT)
    owner = setup.relayer.signer(ACCOUNT).address
    assert (found.account_id, found.owner, found.frozen) == (ACCOUNT, owner, False)
    assert setup.client.account(owner=owner.lower()) == found
    assert found.has_key(setup.relayer.l2_key(ACCOUNT))
    for code, unknown in (
        (101002, {"account_id": 4_000_000}),
        (101001, {"owner": "0x" + "12" * 20}),
    ):
        with pytest.raises(RelayerError) as refused:
            setup.client.account(**unknown)  # type: ignore[arg-type]
        # RELAYER.md, codes of accounts.
        assert refused.value.code == code


def test_an_answer_about_another_account_is_refused_however_it_was_asked_for():
    owner = str(ANSWER["owner"])
    other = "0x" + "12" * 20
    for asked, answered in (
        ({"account_id": 8}, "expected the account asked for, 8, got 7"),
        ({"owner": other}, f"expected the account asked for, {other}, got {owner}"),
    ):
        with (
            answering(ANSWER) as server,
            pytest.raises(UnexpectedAnswer, match=answered),
        ):
            client_at(server.base_url).account(**asked)  # type: ignore[arg-type]
    with answering(ANSWER | {"owner": owner.upper()}) as server:
        assert client_at(server.base_url).account(owner=owner).account_id == 7


@pytest.mark.parametrize("owner", ["", "0x12", "somebody", 7])
def test_an_owner_is_an_address(setup, owner):
    with pytest.raises(ProtocolError, match="owner: expected"):
        setup.client.account(owner=owner)


BALANCE = {"accountId": 7, "tokenId": 1, "total": "30", "locked": "10"}


def test_what_can_be_spent_is_what_is_not_locked():
    ether = BALANCE | {"tokenId": 0, "total": "5"}
    with answering([ether | {"locked": "5"}, BALANCE]) as server:
        client = client_at(server.base_url, api_key="one")
        assert [spendable(client, 7, token) for token in (0, 1, 2)] == [0, 20, 0]


@pytest.mark.parametrize(
    ("balance", "told"),
    [
        ({"accountId": 8}, "accountId: expected the account asked for, 7, got 8"),
        ({"accountId": None}, "accountId: expected a number"),
        ({"total": "9"}, "locked: expected at most 9, got 10"),
        ({"total": "-1"}, "total: expected smallest units"),
    ],
)
def test_a_balance_that_cannot_be_the_accounts_is_refused(balance, told):
    with (
        answering([BALANCE | balance]) as server,
        pytest.raises(UnexpectedAnswer, match=told),
    ):
        spendable(client_at(server.base_url, api_key="one"), 7, 1)


@pytest.mark.parametrize("arguments", [{}, {"account_id": 7, "owner": "0x12"}])
def test_one_of_number_and_owner_is_given(setup, arguments):
    with pytest.raises(LabError, match="its owner=, but not both"):
        setup.client.account(**arguments)


def test_a_key_is_read_however_it_is_written():
    with answering(ANSWER) as server:
        account = client_at(server.base_url).account(7)
    assert (account.nonce, account.key_nonce, account.key_seed) == (
        3,
        2,
        ANSWER["keySeed"],
    )
    # As the relayer writes them: 0x and 64 digits, whatever case and length the answer had.
    assert (account.x, account.y) == (f"{KEY.x:#066x}", f"{KEY.y:#066x}")
    assert account.has_key(KEY)
    assert "<td" in account._repr_html_()
    assert "a seed with key nonce: 2" in account._repr_html_()


@pytest.mark.parametrize(
    "key",
    [None, {}, {"x": "", "y": ""}, {"x": "0x0", "y": None}, {"x": "zz", "y": "0x1"}, 7],
)
def test_an_account_may_have_no_key_yet(key):
    with answering(
        ANSWER | {"publicKey": key, "keyNonce": None, "keySeed": None, "tags": None}
    ) as server:
        account = client_at(server.base_url).account(7)
    assert not account.has_key(KEY)
    assert (account.key_nonce, account.key_seed, account.tags) == (None, "", "")


@pytest.mark.parametrize("name", ["accountId", "owner", "frozen", "nonce"])
def test_an_account_without_what_it_must_have_is_an_unexpected_answer(name):
    for wrong in (
        {k: v for k, v in ANSWER.items() if k != name},
        ANSWER | {name: [1]},
        [ANSWER],
        None,
    ):
        with (
            answering(wrong) as server,
            pytest.raises(UnexpectedAnswer, match="expected .* got"),
        ):
            client_at(server.base_url).account(7)


def test_fees_are_exact_in_each_token(setup):
    fees = setup.client.update_fee(ACCOUNT)
    decimals = {"ETH": 18, "LRC": 18, "USDT": 6, "DAI": 18, "USDC": 6}
    expected = {
        symbol: Decimal(fee).scaleb(-decimals[symbol])
        for symbol, fee in setup.relayer.settings.update_fees.items()
    }
    assert dict(fees["fee"]) == expected
    assert fees.index.name == "fee_token"
    assert dict(fees["token_id"]) == {
        "ETH": 0,
        "LRC": 1,
        "USDT": 3,
        "DAI": 5,
        "USDC": 6,
    }
    assert fees["discount"].tolist() == [1.0] * 5


@pytest.mark.parametrize(
    "fees",
    [
        None,
        {},
        [7],
        [{"token": "ETH", "fee": 7, "discount": 1}],
        [{"token": "ETH", "fee": "7"}],
    ],
)
def test_fees_of_another_shape_are_an_unexpected_answer(fees):
    with (
        answering({"gasPrice": "1", "fees": fees}) as server,
        pytest.raises(UnexpectedAnswer),
    ):
        client_at(server.base_url).update_fee(7)


def test_the_request_for_an_api_key_is_signed_as_the_protocol_says():
    with answering({"apiKey": "a-new-key"}) as server:
        client = client_at(server.base_url + "/", api_key="an-old-key")
        found = client.api_key(KEY, 7)
    (request,) = server.requests
    text = protocol.request_message(
        "GET", f"{server.base_url}/api/v3/apiKey", {"accountId": 7}
    )
    assert request.path == "/api/v3/apiKey?accountId=7"
    assert protocol.verify_request(KEY.x, KEY.y, text, request.headers["x-api-sig"])
    assert "x-api-key" not in request.headers
    assert isinstance(found, SecretText)
    assert (found, repr(found)) == ("a-new-key", "<hidden>")


def test_an_address_is_signed_as_it_is_sent_whatever_the_case_of_its_name(setup):
    # RFC 3986, 6.2.2.1: scheme and host are the same in either case, and are sent in lower case.
    port = setup.relayer.base_url.rpartition(":")[2]
    key = setup.relayer.l2_key(ACCOUNT)
    for address in (f"http://LOCALHOST:{port}", f"HTTP://127.0.0.1:{port}/"):
        assert len(client_at(address).api_key(key, ACCOUNT)) == 64


@pytest.mark.parametrize(
    "answer", [{}, {"apiKey": None}, {"apiKey": ""}, {"apiKey": [1]}, [], "key"]
)
def test_an_answer_without_an_api_key_is_an_unexpected_one(answer):
    with answering(answer) as server, pytest.raises(UnexpectedAnswer, match="apiKey"):
        client_at(server.base_url).api_key(KEY, 7)


@pytest.mark.parametrize("body", [None, 5, ["secret"], '{"keySeed": "secret"}'])
def test_an_update_that_is_no_mapping_is_refused_and_not_shown(body):
    with pytest.raises(LabError, match=r"Give KeyUpdate\.body\(\)") as caught:
        client_at("https://host").update_account(body)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("answer", [{}, [], "ok", {"hash": "0x1", "status": "done"}])
def test_an_update_without_a_usable_answer_may_have_been_accepted(answer):
    body = {"keySeed": "ü", "ecdsaSignature": "0x1b02"}
    with (
        answering(answer) as server,
        pytest.raises(TransportError, match="may have been accepted") as caught,
    ):
        client_at(server.base_url).update_account(body)
    assert caught.value.maybe_received


def test_an_update_travels_as_json_with_its_signature_and_no_api_key():
    body = {"keySeed": "ü", "ecdsaSignature": "0x1b02"}
    with answering(
        {"hash": "0x1", "status": "received", "isIdempotent": True, "storageId": 4}
    ) as server:
        told = client_at(server.base_url, api_key="one").update_account(body)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/api/v3/account")
    assert request.body == '{"keySeed":"ü","ecdsaSignature":"0x1b02"}'.encode()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-api-sig"] == "0x1b02"
    assert "x-api-key" not in request.headers
    assert (told.status, told.hash, told.is_idempotent, told.storage_id) == (
        "received",
        "0x1",
        True,
        4,
    )
