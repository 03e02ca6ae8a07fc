"""Which key updates the relayer accepts: the vectors, the documented sample, and every rule one by one."""

import json

import pytest
from support.key_update_requests import (
    FEE,
    error_code,
    signature_of,
    signed_update,
    stored,
)
from support.protocol_vectors import every_vector

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.relayer import World

pytestmark = pytest.mark.contract

ACCOUNT = 10083
OTHER = 11519
WALLET = 94680
FREE = {"ETH": 0, "LRC": 0, "USDT": 0}
ARGUMENT = 100001
BAD_SIGNATURE = 104005
BARE = 2 + 2 * 65  # characters of a signature without a type byte


def vectors(section):
    # The relayer takes signatures without a type byte, which the exchange's contract does not.
    cases = [
        pytest.param(vector, id=vector["id"])
        for vector in every_vector()[section]
        if len(vector.get("signature", "")) != BARE
    ]
    return pytest.mark.parametrize("vector", cases)


def relayer_of(relayers, vector, **settings):
    """Make a relayer of the vector's exchange that knows the vector's account, an hour before its end."""
    settings = {
        "update_fees": FREE,
        "exchange": vector["exchange"],
        "chain_id": vector["chain_id"],
        **settings,
    }
    relayer = relayers(now=lambda: vector["valid_until"] - 3600.0, **settings)
    relayer.add_account(vector["account_id"], vector["owner"], nonce=vector["nonce"])
    return relayer


def check_processed(relayer, body):
    relayer.step()
    relayer.step()
    account = relayer._accounts.find(body["accountId"], body["owner"])
    assert (int(account.x, 16), int(account.y, 16)) == tuple(
        int(body["publicKey"][n], 16) for n in "xy"
    )
    assert (account.nonce, account.key_seed) == (body["nonce"] + 1, body["keySeed"])


@vectors("account_update")
def test_a_valid_vector_is_taken_with_either_kind_of_signature(
    relayers, posters, vector
):
    typed = [vector["x_api_sig"], vector["x_api_sig_personal"]]
    # Bare signatures, without the byte that tells the kind, are tried as both.
    bare = [header[:-2] for header in typed]
    for header in typed + bare:
        relayer = relayer_of(relayers, vector)
        body = {**vector["request_body"], "ecdsaSignature": header}
        status, answer = posters(relayer).send(body)
        assert (status, answer["status"], answer["isIdempotent"]) == (
            200,
            "processing",
            False,
        )
        assert (answer["accountId"], answer["tokenId"]) == (
            vector["account_id"],
            vector["max_fee"]["tokenId"],
        )
        check_processed(relayer, body)


@vectors("negative_signatures")
def test_a_bad_signature_is_104005(relayers, posters, vector):
    base = next(
        v
        for v in every_vector()["account_update"]
        if v["eip712_digest"] == vector["eip712_digest"]
    )
    relayer = relayer_of(relayers, base)
    before = stored(relayer)
    body = {**base["request_body"], "ecdsaSignature": vector["signature"]}
    assert error_code(posters(relayer).send(body)) == BAD_SIGNATURE
    del body["ecdsaSignature"]
    assert error_code(posters(relayer).send(body, vector["signature"])) == BAD_SIGNATURE
    assert stored(relayer) == before


@vectors("field_ranges")
def test_a_field_out_of_range_is_100001_by_name(relayers, posters, vector):
    places = {
        "feeTokenID": ("maxFee", "tokenId"),
        "feeTokenID-nft": ("maxFee", "tokenId"),
        "maxFee": ("maxFee", "volume"),
        "accountID": ("accountId",),
        "nonce": ("nonce",),
    }
    relayer = relayers()
    body = signed_update(relayer, ACCOUNT)
    *outer, name = places[vector["field"]]
    inner = body[outer[0]] if outer else body
    inner[name] = vector["value"]
    answer = posters(relayer).send(body)
    assert error_code(answer) == ARGUMENT
    assert ".".join((*outer, name)) in answer[1]["resultInfo"]["message"]


# A request that the public documents print ("UpdateAccount with custom seed"), from a test network.
SAMPLE_SIGNATURE = (
    "0x05b49f99ac6d8f67d4519dfaf9b545dbc775dcc837441f85ef9aae74c83e5c2d"
    "700729cdba1d7a9cc818abb43a598cf1e4eeca547e4e6697ff18c4d2ac111ac21b03"
)
SAMPLE = {
    "accountId": 11329,
    "ecdsaSignature": SAMPLE_SIGNATURE,
    "exchange": "0x2e76EBd1c7c0C8e7c2B875b6d505a260C525d25e",
    "maxFee": {"volume": "24000000000000", "tokenId": 0},
    "nonce": 0,
    "owner": "0x8656920c85342d646E5286Cb841F90209272ABeb",
    "publicKey": {
        "x": "0x20ba7bd404f259c3d49853d6a849425a983c24fc3c01be177f719e84ba776a8c",
        "y": "0x266d7e40dba375c90816287814f20b8e187227a6d05f17d2d329fefac9b782af",
    },
    "validUntil": 1899273791,
    "keySeed": "Sign this message to access Loopring Exchange: "
    "0x2e76EBd1c7c0C8e7c2B875b6d505a260C525d25e with key nonce: 0",
}


def test_the_documented_sample_is_taken(relayers, posters):
    relayer = relayers(exchange=SAMPLE["exchange"], chain_id=5, now=lambda: 1.65e9)
    relayer.add_account(11329, SAMPLE["owner"])
    assert posters(relayer).send(SAMPLE)[0] == 200
    check_processed(relayer, SAMPLE)
    late = relayers(exchange=SAMPLE["exchange"], chain_id=5, now=lambda: 1899273791.0)
    late.add_account(11329, SAMPLE["owner"])
    answer = posters(late).send(SAMPLE)
    assert error_code(answer) == ARGUMENT
    assert "validUntil" in answer[1]["resultInfo"]["message"]


@pytest.mark.parametrize("chain_id", [1, 6])
def test_the_documented_sample_is_of_its_chain_only(relayers, posters, chain_id):
    relayer = relayers(
        exchange=SAMPLE["exchange"], chain_id=chain_id, now=lambda: 1.65e9
    )
    relayer.add_account(11329, SAMPLE["owner"])
    assert error_code(posters(relayer).send(SAMPLE)) == BAD_SIGNATURE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"exchange": "0x" + 40 * "1"}, 102001),
        ({"accountId": 4242}, 101002),
        ({"accountId": OTHER}, 101001),
        ({"owner": "0x" + 40 * "1"}, 101001),
        ({"nonce": 0, "keySeed": "with key nonce: 0"}, 102021),
        ({"nonce": 2, "keySeed": "with key nonce: 2"}, 102021),
        ({"validUntil": 1_000_000_000}, ARGUMENT),
        ({"validUntil": 0}, ARGUMENT),
        ({"maxFee": {"tokenId": 9, "volume": str(FEE)}}, 114001),
        ({"maxFee": {"tokenId": 32767, "volume": str(FEE)}}, 114001),
        ({"maxFee": {"tokenId": 0, "volume": "18999999999999"}}, 114002),
        ({"maxFee": {"tokenId": 1, "volume": "0"}}, 114002),
        ({"keySeed": "Sign this message with key nonce: 0"}, ARGUMENT),
        ({"keySeed": "Sign this message with key nonce: 1 "}, ARGUMENT),
        ({"keySeed": "Sign this message with key nonce: 01"}, ARGUMENT),
        ({"keySeed": "1"}, ARGUMENT),
        ({"keySeed": None}, ARGUMENT),
        ({"publicKey": {"x": "0x1", "y": "0x1"}}, ARGUMENT),
        ({"publicKey": {"x": "0x0", "y": "0x1"}}, ARGUMENT),
    ],
)
def test_a_signed_request_that_breaks_one_rule(relayers, posters, changes, code):
    relayer = relayers()
    before = stored(relayer)
    answer = posters(relayer).send(signed_update(relayer, ACCOUNT, **changes))
    assert error_code(answer) == code
    message = answer[1]["resultInfo"]["message"]
    assert message.isprintable()
    assert stored(relayer) == before


@pytest.mark.parametrize(
    ("fee", "volume"),
    [("ETH", "19000000000000"), ("LRC", "33000000000000000"), ("USDC", "0070000")],
)
def test_the_exact_fee_is_enough(relayers, posters, fee, volume):
    relayer = relayers()
    token = next(t["tokenId"] for t in World(size=0.001).tokens() if t["symbol"] == fee)
    body = signed_update(relayer, ACCOUNT, maxFee={"tokenId": token, "volume": volume})
    assert posters(relayer).send(body)[0] == 200


def test_the_last_second_of_validity(relayers, posters):
    now = 1_800_000_000.0
    for end, taken in ((now, False), (now + 1, True), (2**32 - 1, True)):
        relayer = relayers(now=lambda: now)
        status, _ = posters(relayer).send(
            signed_update(relayer, ACCOUNT, validUntil=int(end))
        )
        assert (status == 200) is taken


def test_another_key_of_the_owner_and_another_owner_are_refused(relayers, posters):
    relayer = relayers()
    body = signed_update(relayer, ACCOUNT)
    wrong = signature_of(body, relayer.signer(OTHER))
    assert (
        error_code(posters(relayer).send({**body, "ecdsaSignature": wrong}))
        == BAD_SIGNATURE
    )
    assert (
        error_code(posters(relayer).send(body, wrong)) == ARGUMENT
    )  # header and body differ
    unsigned = {name: value for name, value in body.items() if name != "ecdsaSignature"}
    assert (
        error_code(posters(relayer).post(json.dumps(unsigned).encode(), [])) == 104004
    )
    assert error_code(posters(relayer).post(json.dumps(body).encode(), [])) == 104004
    assert (
        posters(relayer).send(
            unsigned, body["ecdsaSignature"].upper().replace("X", "x")
        )[0]
        == 200
    )


def test_hex_may_be_short_and_in_any_case(relayers, posters):
    relayer = relayers()
    body = signed_update(relayer, ACCOUNT)
    body["owner"], body["exchange"] = (
        body["owner"].lower(),
        "0x" + body["exchange"][2:].upper(),
    )
    body["publicKey"] = {n: hex(int(v, 16)) for n, v in body["publicKey"].items()}
    assert posters(relayer).send(body)[0] == 200
    account = relayer._accounts.find(ACCOUNT, None)
    relayer.step()
    relayer.step()
    assert {len(part) for part in relayer._accounts.find(ACCOUNT, None)[2:4]} == {66}
    assert relayer._accounts.find(ACCOUNT, None).owner == account.owner


def test_a_member_that_changes_nothing_may_be_anything(relayers, posters):
    # The exchange's SDK declares this id as a number, and its web wallet sends the text of a referral code.
    relayer = relayers()
    for account, recommender in ((ACCOUNT, 10093), (OTHER, "10093")):
        body = signed_update(relayer, account)
        body["recommenderAccountId"] = recommender
        assert posters(relayer).send(body)[0] == 200
        check_processed(relayer, body)


def test_a_bare_signature_of_something_else_is_104005(relayers, posters):
    relayer = relayers()
    body = signed_update(relayer, ACCOUNT)
    other = signed_update(relayer, ACCOUNT, validUntil=body["validUntil"] - 1)
    body["ecdsaSignature"] = other["ecdsaSignature"][:-2]
    assert error_code(posters(relayer).send(body)) == BAD_SIGNATURE
    assert (
        error_code(posters(relayer).send({**body, "ecdsaSignature": "0x" + 130 * "0"}))
        == BAD_SIGNATURE
    )


def test_a_wallet_needs_its_factory_owner_and_salt(relayers, posters):
    relayer = relayers()
    body = signed_update(relayer, WALLET)
    info = body["counterFactualInfo"]
    for wrong, message in (
        ({"walletSalt": "1"}, "another address"),
        ({"walletOwner": body["owner"]}, "another address"),
        ({"walletFactory": "0x" + 40 * "2"}, "factory unknown"),
    ):
        answer = posters(relayer).send(
            {**body, "counterFactualInfo": {**info, **wrong}}
        )
        assert error_code(answer) == ARGUMENT
        assert message in answer[1]["resultInfo"]["message"]
    plain = {
        name: value for name, value in body.items() if name != "counterFactualInfo"
    }
    assert error_code(posters(relayer).send(plain)) == BAD_SIGNATURE
    stranger = {**body, "ecdsaSignature": signature_of(body, relayer.signer(OTHER))}
    assert error_code(posters(relayer).send(stranger)) == BAD_SIGNATURE
    given = {
        **info,
        "walletFactory": info["walletFactory"].lower(),
        "accountId": WALLET,
        "wallet": body["owner"],
    }
    assert posters(relayer).send({**body, "counterFactualInfo": given})[0] == 200
    check_processed(relayer, body)


def test_a_plain_owner_is_no_wallet(relayers, posters):
    relayer = relayers()
    body = signed_update(relayer, ACCOUNT)
    body["counterFactualInfo"] = relayer.counterfactual(WALLET)
    assert error_code(posters(relayer).send(body)) == ARGUMENT


def test_the_table_of_factories_can_be_extended(relayers, posters):
    factory = "0x" + 40 * "a"
    code = "0x" + 64 * "b"
    for factories, expected in (
        ({}, 400),
        ({factory.upper().replace("X", "x"): code}, 200),
    ):
        relayer = relayers(wallet_factories=factories)
        signer = relayer.signer(ACCOUNT)
        owner = protocol.wallet_address(factory, signer.address, 7, code)
        relayer.add_account(77, owner, nonce=1)
        info = {
            "walletFactory": factory,
            "walletOwner": signer.address,
            "walletSalt": "0x7",
        }
        body = signed_update(
            relayer, ACCOUNT, accountId=77, owner=owner, counterFactualInfo=info
        )
        assert posters(relayer).send(body)[0] == expected
        if factories:
            check_processed(relayer, body)


def test_an_account_is_added_once_and_soundly(relayers):
    relayer = relayers()
    owner = relayer.signer(ACCOUNT).address
    for wrong in (
        {"account_id": ACCOUNT, "owner": "0x" + 40 * "1"},
        {"account_id": 1, "owner": "0x" + 40 * "1"},  # a pool
        {"account_id": 500, "owner": owner},
        {"account_id": 500, "owner": "alice"},
        {"account_id": 500, "owner": "0x" + 40 * "1", "public_key": (1, 1)},
    ):
        with pytest.raises(LabError, match=r"\.$"):
            relayer.add_account(**wrong)
    relayer.add_account(
        500, "0x" + 40 * "1", public_key=protocol.public_key(7), key_seed="seed"
    )
    assert relayer._accounts.find(500, None).nonce == 0
