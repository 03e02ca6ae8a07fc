"""The account routes: accounts, API keys, fees and the exchange, as public clients request them."""

import http.client
import json

import pytest
import requests
from support.key_update_requests import (
    ask_for_key,
    error_code,
    get,
    new_key,
    request_signature,
    signed_update,
)

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, World

ACCOUNT = 10083
OTHER = 11519
POOL = 4
WALLET = 94680
EXCHANGE = "0x8ACBCa8D25527B479Fd4E5Ffd79732878417702c"


def code_of(relayer, path, headers=None, **query):
    """Return the code of a refusal."""
    answer = get(relayer, path, headers, **query)
    assert answer.status_code == 400
    return answer.json()["resultInfo"]["code"]


def test_a_client_learns_exchange_and_chain(relayers):
    assert get(relayers(), "/exchange/info").json() == {
        "chainId": 31337,
        "exchangeAddress": EXCHANGE,
        "depositAddress": "0x674bdf20A0F284D710BC40872100128e2d66Bd3f",
    }
    other = "0x2e76EBd1c7c0C8e7c2B875b6d505a260C525d25e"
    info = get(relayers(exchange=other, chain_id=5), "/exchange/info").json()
    assert (info["chainId"], info["exchangeAddress"]) == (5, other)
    assert get(relayers(now=lambda: 12.5), "/timestamp").json() == {"timestamp": 12500}


def test_an_account_by_id_owner_or_both(relayers):
    relayer = relayers()
    account = get(relayer, "/account", accountId=ACCOUNT).json()
    key = relayer.l2_key(ACCOUNT)
    assert account == {
        "accountId": ACCOUNT,
        "owner": relayer.signer(ACCOUNT).address,
        "frozen": False,
        "publicKey": {"x": f"{key.x:#066x}", "y": f"{key.y:#066x}"},
        "tags": "",
        "nonce": 1,
        "keyNonce": 1,
        "keySeed": f"Sign this message to access Loopring Exchange: {EXCHANGE} with key nonce: 0",
    }
    owner = account["owner"]
    for query in (
        {"owner": owner},
        {"owner": owner.lower()},
        {"owner": owner, "accountId": ACCOUNT},
    ):
        assert get(relayer, "/account", **query).json() == account


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, 100001), ({"owner": "0x12"}, 100001), ({"owner": "12" * 20}, 100001), ({"accountId": ""}, 100001),
        ({"accountId": 2**32}, 100001),
        ({"accountId": 424242}, 101002), ({"owner": "0x" + 40 * "1"}, 101001),
        ({"owner": "0x" + 40 * "1", "accountId": ACCOUNT}, 101001),
    ],
)  # fmt: skip
def test_an_account_that_is_not_there(relayers, query, expected):
    assert code_of(relayers(), "/account", **query) == expected


def test_owners_differ_and_are_the_same_every_time(relayers):
    relayer = relayers()
    again = relayers()
    addresses = {
        get(relayer, "/account", accountId=a).json()["owner"] for a in relayer.accounts
    }
    assert len(addresses) == 64
    assert relayer.signer(ACCOUNT).address == again.signer(ACCOUNT).address
    assert (
        relayer.signer(ACCOUNT).address
        != Relayer(World(seed=2, size=0.001)).signer(ACCOUNT).address
    )
    with pytest.raises(LabError, match="no owner for account 4"):
        relayer.signer(POOL)


def test_the_first_key_is_what_the_owner_derives_from_the_key_seed(relayers):
    relayer = relayers()
    for account in (ACCOUNT, WALLET):
        seed = get(relayer, "/account", accountId=account).json()["keySeed"]
        assert new_key(relayer.signer(account), seed) == relayer.l2_key(account)


def test_the_wallet_account(relayers):
    relayer = relayers()
    info = get(relayer, "/counterFactualInfo", accountId=WALLET).json()
    assert relayer.counterfactual(WALLET) == {
        n: info[n] for n in ("walletFactory", "walletOwner", "walletSalt")
    }
    assert relayer.counterfactual(ACCOUNT) is None
    assert info["walletOwner"] == relayer.signer(WALLET).address != info["wallet"]
    assert info["wallet"] == get(relayer, "/account", accountId=WALLET).json()["owner"]
    (factory, init_code_hash), *_ = protocol.FACTORY_INIT_CODE_HASHES.items()
    assert info["wallet"] == protocol.wallet_address(
        factory, info["walletOwner"], str(WALLET), init_code_hash
    )
    assert code_of(relayer, "/counterFactualInfo", accountId=ACCOUNT) == 100001
    assert code_of(relayer, "/counterFactualInfo", accountId=1234) == 104003


def test_the_signed_url_is_what_the_client_sees(relayers):
    relayer = relayers(hosts=("relayer.example",))
    port = int(relayer.base_url.rpartition(":")[2])
    key = relayer.l2_key(ACCOUNT)
    found = set()
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "relayer.example"):
        for scheme in ("http", "https"):
            signature = request_signature(f"{scheme}://{host}", key, ACCOUNT)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
            connection.request(
                "GET",
                f"/api/v3/apiKey?accountId={ACCOUNT}",
                headers={"Host": host, "X-API-SIG": signature},
            )
            found.add(json.loads(connection.getresponse().read())["apiKey"])
            connection.close()
    assert len(found) == 1
    assert len(found.pop()) == 64


def test_the_api_key_needs_the_right_signature(relayers):
    relayer = relayers()
    key = relayer.l2_key(ACCOUNT)
    right = request_signature(relayer.base_url, key, ACCOUNT)
    wrong = [
        request_signature(relayer.base_url, relayer.l2_key(OTHER), ACCOUNT),
        request_signature(relayer.base_url, key, OTHER),
        request_signature(relayer.base_url, key, ACCOUNT, "/api/v3/apikey"),
        request_signature("http://elsewhere", key, ACCOUNT),
        right[:-2],
        right + "00",
        "0x",
        "x",
        "0x" + 192 * "0",
        "0x" + 192 * "f",
        right.replace(right[10:12], "zz"),
    ]
    for signature in wrong:
        headers = {"X-API-SIG": signature}
        assert code_of(relayer, "/apiKey", headers, accountId=ACCOUNT) == 104005
    headers = {"X-API-SIG": right}
    assert code_of(relayer, "/apiKey", accountId=ACCOUNT) == 104004
    assert code_of(relayer, "/apiKey", headers, accountId=ACCOUNT, more="1") == 104005
    # No signed text has such a name.
    unsigned = {"accountId": ACCOUNT, "not-a-name": "1"}
    assert code_of(relayer, "/apiKey", headers, **unsigned) == 100001
    for account in (POOL, 424242, "x", ""):
        assert code_of(relayer, "/apiKey", headers, accountId=account) == 104003
    relayer.add_account(500, "0x" + 40 * "1")
    assert code_of(relayer, "/apiKey", headers, accountId=500) == 104005


@pytest.mark.parametrize(
    "key", ["00002763" + 56 * "A", "0000ffff" + 56 * "A", "zz" * 32, "a" * 64, "é" * 64]
)
def test_a_made_up_key_is_104002(relayers, key):
    headers = {"X-API-KEY": key.encode()}
    assert code_of(relayers(), "/user/trades", headers, accountId=ACCOUNT) == 104002


def test_the_fee_of_an_update(relayers):
    relayer = relayers(update_fees={"LRC": 5, "ETH": 10**15, "XYZ": 1})
    path = "/user/offchainFee"
    assert get(relayer, path, accountId=ACCOUNT, requestType=2).json() == {
        "gasPrice": "20000000000",
        "fees": [
            {"token": "LRC", "fee": "5", "discount": 1},
            {"token": "ETH", "fee": "1000000000000000", "discount": 1},
        ],
    }
    for kind in (1, 15, 16, "x", ""):
        assert code_of(relayer, path, accountId=ACCOUNT, requestType=kind) == 100001
    assert code_of(relayer, path, accountId=ACCOUNT) == 100001
    assert code_of(relayer, path, requestType=2) == 104003


def test_updates_are_listed_newest_first(relayers, posters):
    relayer = relayers(fail_updates={2: "no"})
    for nonce in (1, 2, 2, 3):
        assert posters(relayer).send(signed_update(relayer, ACCOUNT, nonce))[0] == 200
        relayer.step()
        relayer.step()
    path = "/user/updateInfo"
    headers = {"X-API-KEY": relayer.api_key}
    answer = get(relayer, path, headers, accountId=ACCOUNT).json()
    found = [(record["id"], record["status"]) for record in answer["transactions"]]
    assert found == [
        (4, "processed"),
        (3, "processed"),
        (2, "failed"),
        (1, "processed"),
    ]
    assert answer["totalNum"] == 4
    assert code_of(relayer, path, accountId=ACCOUNT) == 104001
    assert code_of(relayer, path, headers) == 104003
    answer = get(relayer, path, headers, accountId=POOL)
    assert answer.json()["totalNum"] == 0


def test_a_posted_request_replaces_the_api_key(relayers):
    relayer = relayers()
    key = relayer.l2_key(ACCOUNT)
    url = f"{relayer.base_url}/api/v3/apiKey"
    old = ask_for_key(relayer, ACCOUNT, key)["apiKey"]
    made = [old]
    # Clients write the id as a number or as text, and sign the compact JSON of what they send.
    for account_id in (ACCOUNT, str(ACCOUNT)):
        body = {"accountId": account_id}
        text = protocol.request_message("POST", url, body)
        headers = {"X-API-SIG": protocol.sign_request(key.secret, text)}
        made.append(
            requests.post(url, json=body, headers=headers, timeout=600).json()["apiKey"]
        )
        assert (
            requests.post(
                url, json={"accountId": OTHER}, headers=headers, timeout=600
            ).json()["resultInfo"]["code"]
            == 104005
        )
    assert len({*made}) == 3
    assert ask_for_key(relayer, ACCOUNT, key)["apiKey"] == made[-1]
    headers = [{"X-API-KEY": each} for each in made]
    for void in headers[:2]:
        assert code_of(relayer, "/user/trades", void, accountId=ACCOUNT) == 104002
    assert (
        get(relayer, "/user/trades", headers[2], accountId=ACCOUNT).status_code == 200
    )
    signed = {"X-API-SIG": "0x00"}
    for wrong in ("", "[]", "{}", '{"accountId": "x"}', '{"accountId": 1, "more": 1}'):
        answer = requests.post(url, data=wrong, headers=signed, timeout=600)
        assert answer.json()["resultInfo"]["code"] == 100001


def test_balances_are_what_is_left_after_fees(relayers, posters):
    relayer = relayers(update_fees={"ETH": 10**12, "LRC": 7})
    headers = {"X-API-KEY": relayer.api_key}
    path = "/user/balances"
    zero = {"withdraw": "0", "deposit": "0"}
    before = get(relayer, path, headers, accountId=ACCOUNT, tokens="1,0").json()
    assert before == [
        {
            "accountId": ACCOUNT,
            "tokenId": token,
            "total": str(10_000 * 10**18),
            "locked": "0",
            "pending": zero,
        }
        for token in (0, 1)
    ]
    posters(relayer).send(signed_update(relayer, ACCOUNT))
    [ether] = get(relayer, path, headers, accountId=ACCOUNT, tokens=0).json()
    assert (ether["total"], ether["locked"]) == (str(10_000 * 10**18), str(10**12))
    relayer.step()
    [ether] = get(relayer, path, headers, accountId=ACCOUNT, tokens="0").json()
    assert (ether["total"], ether["locked"]) == (str(10_000 * 10**18 - 10**12), "0")
    assert len(get(relayer, path, headers, accountId=OTHER).json()) == len(
        World(size=0.002).tokens()
    )
    assert get(relayer, path, headers, accountId=POOL).json() == []
    assert code_of(relayer, path, accountId=ACCOUNT) == 104001
    for wrong in ("x", "0,", ",", "-1", "0;1"):
        assert (
            code_of(relayer, path, headers, accountId=ACCOUNT, tokens=wrong) == 100001
        )


def test_the_next_storage_ids_are_unused(relayers):
    relayer = relayers()
    headers = {"X-API-KEY": relayer.api_key}
    rows = relayer.rows(ACCOUNT)
    for token in {int(row[10]) for row in rows}:
        used = {int(row[11]) for row in rows if int(row[10]) == token}
        found = get(
            relayer, "/storageId", headers, accountId=ACCOUNT, sellTokenId=token
        ).json()
        assert found == {"orderId": max(used) + 2, "offchainId": 3}
    unsold = get(
        relayer, "/storageId", headers, accountId=ACCOUNT, sellTokenId=99
    ).json()
    assert unsold["orderId"] == 0
    assert code_of(relayer, "/storageId", headers, accountId=ACCOUNT) == 100001
    assert code_of(relayer, "/storageId", accountId=ACCOUNT, sellTokenId=1) == 104001


def test_difficult_accounts_are_named_and_as_they_are_said_to_be(relayers, posters):
    relayer = relayers()
    assert list(relayer.difficult) == [70_003, 70_004, 70_005, 70_006]
    empty, counterfactual, contract, poor = (
        get(relayer, "/account", accountId=account).json()
        for account in relayer.difficult
    )
    assert [
        one["keySeed"] == "" for one in (empty, counterfactual, contract, poor)
    ] == [True, False, False, False]
    kinds = [
        requests.get(
            f"{relayer.base_url}/api/wallet/v3/wallet/type",
            params={"wallet": one["owner"]},
            timeout=600,
        ).json()["data"]
        for one in (empty, counterfactual, contract, poor)
    ]
    assert [kind["isInCounterFactualStatus"] for kind in kinds] == [
        False,
        True,
        False,
        False,
    ]
    assert [kind["isContract"] for kind in kinds] == [False, False, True, False]
    assert (
        get(relayer, "/counterFactualInfo", accountId=70_004).json()["wallet"]
        == counterfactual["owner"]
    )
    # What the owner of the contract signs counts for nothing, and the fee is asked for when an update is processed.
    assert error_code(posters(relayer).send(signed_update(relayer, 70_005))) == 104005
    assert (
        posters(relayer).send(signed_update(relayer, 70_006))[1]["status"]
        == "processing"
    )
    relayer.step()
    headers = {"X-API-KEY": relayer.api_key}
    [failed] = get(relayer, "/user/updateInfo", headers, accountId=70_006).json()[
        "transactions"
    ]
    assert (failed["status"], failed["reason"]) == (
        "failed",
        "balance too low to pay the fee",
    )
    assert get(relayer, "/account", accountId=70_006).json() == poor
    for account in (70_003, 70_004):
        assert posters(relayer).send(signed_update(relayer, account))[0] == 200
