"""Trade requests: API keys, parameters, error responses and paths, as the contract has them."""

import re

import pytest
import requests

ACCOUNT = 58344
EMPTY = 104001
WRONG = 104002
NO_ACCOUNT = 104003
ARGUMENT = 100001


def refusal(answer):
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/json"
    body = answer.json()
    assert set(body) == {"resultInfo"}
    assert set(body["resultInfo"]) == {"code", "message"}
    return body["resultInfo"]["code"], body["resultInfo"]["message"]


def test_a_missing_or_empty_key_is_104001(serve):
    relayer = serve()
    url = f"{relayer.relayer.base_url}/api/v3/user/trades?accountId={ACCOUNT}"
    assert refusal(requests.get(url, timeout=600))[0] == EMPTY
    assert (
        refusal(requests.get(url, headers={"X-API-KEY": ""}, timeout=600))[0] == EMPTY
    )


@pytest.mark.parametrize("key", ["wrong", "w" * 43, "ключ".encode().decode("latin-1")])
def test_a_wrong_key_is_104002(serve, key):
    code, message = refusal(serve().get("/user/trades", key=key, accountId=ACCOUNT))
    assert (code, message) == (WRONG, "invalid api key")


@pytest.mark.parametrize(
    "account",
    [None, "", "-1", "1.5", "1_0", "٣", "9" * 30, "424242", "0"],
)
def test_an_unknown_account_is_104003(serve, account):
    assert refusal(serve().get("/user/trades", accountId=account))[0] == NO_ACCOUNT


def test_a_request_without_account_and_order_is_told_which_parameters_it_lacks(serve):
    code, message = refusal(serve().get("/user/trades", market="LRC-ETH"))
    assert code == NO_ACCOUNT
    assert message == "accountId, orderHash: give at least one of them"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "51"), ("limit", "-1"), ("limit", "ten"), ("limit", "5.0"),
        ("limit", "9" * 5000), ("offset", "-1"), ("offset", "1e3"), ("offset", "1_0"), ("offset", "9" * 11),
        ("market", "LRC-XYZ"), ("market", "lrc-eth"), ("market", "AMM-AMM-LRC-ETH"),
        ("fillTypes", "pool"), ("fillTypes", "dex,pool"), ("fillTypes", "DEX"),
        ("orderHash", "12"), ("orderHash", "0xzz"),
        ("market", "\x00\n\x1b[31m" + "a" * 500),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_100001_and_named(serve, name, value):
    code, message = refusal(
        serve().get("/user/trades", accountId=ACCOUNT, **{name: value})
    )
    assert code == ARGUMENT
    assert re.match(f"{name}: (Input|String) should .*, got ", message)
    assert message.isprintable()
    assert len(message) < 160


def test_empty_parameters_are_as_if_absent(serve):
    relayer = serve()
    whole = relayer.trades(accountId=ACCOUNT)
    # As the exchange's web wallet asks for its table, and as clients send the documented defaults.
    empty = {"market": "", "fillTypes": "", "orderHash": "", "offset": "", "limit": 0}
    assert relayer.trades(accountId=ACCOUNT, **empty) == whole
    order = whole[1][0][12]
    assert relayer.trades(accountId="", orderHash=order, limit="") == relayer.trades(
        orderHash=order
    )


def test_what_is_got_has_a_head_without_a_body(serve):
    relayer = serve()
    base = f"{relayer.relayer.base_url}/api/v3"
    key = {"X-API-KEY": relayer.relayer.api_key}
    query = {"accountId": ACCOUNT}
    for path in ("/exchange/tokens", "/user/trades", "/account", "/nothing"):
        got, head = (
            requests.request(
                method, base + path, params=query, headers=key, timeout=600
            )
            for method in ("GET", "HEAD")
        )
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers == got.headers
    assert requests.head(base + "/timestamp", timeout=600).ok


@pytest.mark.parametrize("others", [0, 60])
def test_a_missing_argument_is_named_without_the_others(serve, others):
    query = {f"other{number}": "x" for number in range(others)}
    answer = serve().get("/user/offchainFee", accountId=ACCOUNT, **query)
    assert refusal(answer) == (ARGUMENT, "requestType: Field required")


def test_one_key_reads_every_account(serve):
    relayer = serve()
    for account in [*relayer.relayer.accounts, 1, 4]:
        rows = relayer.pages(accountId=account)
        assert {row[9] for row in rows} == {str(account)}
        assert rows == relayer.relayer.rows(account)


def test_an_order_is_found_with_and_without_an_account(serve):
    relayer = serve()
    orders = {}
    for account in relayer.relayer.accounts:
        for row in relayer.relayer.rows(account):
            orders.setdefault((row[12], row[9], row[5]), []).append(row)
    (order, account, market), whole = max(orders.items(), key=lambda one: len(one[1]))
    assert len(whole) > 1
    for query in ({}, {"accountId": 0}, {"accountId": account}, {"market": market}):
        assert relayer.trades(orderHash=order, **query) == (len(whole), whole)
    upper = "0x" + order[2:].upper()
    assert relayer.trades(orderHash=upper) == (len(whole), whole)
    part = relayer.trades(orderHash=order, limit=1, offset=1)
    assert part == (len(whole), whole[1:2])
    # The makers of this order are pools.
    for query in ({"accountId": 1}, {"market": "GRID-ETH"}):
        assert relayer.trades(orderHash=order, **query)[0] == 0
    assert relayer.trades(orderHash="0x" + 64 * "0") == (0, [])


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/nothing", 404, None),
        ("GET", "/../..", 404, None),
        ("POST", "/user/trades", 405, "GET"),
        ("DELETE", "/account", 405, "GET, POST"),
    ],
)
def test_errors_beside_the_contract_have_its_shape(
    serve, method, path, status, allowed
):
    base = f"{serve().relayer.base_url}/api/v3"
    answer = requests.request(method, base + path, timeout=600)
    assert answer.status_code == status
    assert set(answer.json()["resultInfo"]) == {"code", "message"}
    assert answer.headers.get("Allow") == allowed


def test_a_defect_answers_500_in_shape_and_shows_nothing(serve, monkeypatch):
    relayer = serve()
    monkeypatch.setattr(relayer.relayer._pager, "page", lambda query: 1 / 0)
    answer = relayer.get("/user/trades", accountId=ACCOUNT)
    assert (answer.status_code, answer.json()) == (
        500,
        {"resultInfo": {"code": 100000, "message": "internal error"}},
    )


def test_tokens_and_markets_are_the_worlds(serve, world):
    relayer = serve()
    markets = relayer.get("/mix/markets").json()["markets"]
    assert relayer.get("/exchange/tokens").json() == world.tokens()
    assert markets == world.markets()
    assert {m["status"] for m in markets} == {0, 1, 2, 3}
    assert [m["market"] for m in markets if not m["enabled"]] == ["CEL-ETH"]


def test_the_docs_page_needs_nothing_off_the_machine(serve):
    relayer = serve()
    text = requests.get(relayer.relayer.base_url + "/docs", timeout=600).text
    assert "GET /api/v3/user/trades" in text
    assert "fillTypes" in text
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert (
        requests.get(relayer.relayer.base_url + "/openapi.json", timeout=600)
        .json()["openapi"]
        .startswith("3.")
    )
