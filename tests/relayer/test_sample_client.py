"""The exchange's own Python sample client: how it starts, and what it reads, against the embedded relayer.

It sends every parameter of a GET twice, in the address and again, and signs the request with each parameter
once. What it asks for here is what it asks for when it starts and when a user looks at trades, updates, balances and
storage ids.
"""

import json
from urllib.parse import quote, urlencode

import pytest
import requests

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, World

ACCOUNT = 10083
STAGES = (
    "timestamp",
    "exchange/tokens",
    "amm/pools",
    "account",
    "apiKey",
    "user/trades",
    "user/updateInfo",
    "user/balances",
    "storageId",
)


class SampleClient:
    """Sends requests as the sample client does; the key in `api_key` is empty until one was read."""

    def __init__(self, relayer, account):
        self.host = relayer.base_url
        self.account = account
        self.owner = relayer._accounts.owner(account).address
        self.key = relayer.l2_key(account)
        self.api_key = ""

    def get(self, path, params=None, *, security="none"):
        path = f"/api/v3/{path}"
        headers = {}
        if security != "none":
            headers = {
                "Content-Type": "application/json",
                "Accept": "application/json",
                "X-API-KEY": self.api_key,
            }
            if security == "eddsa":
                headers["X-API-SIG"] = self.sign(path, params)
            if params:
                path += "?" + urlencode(params)
        answer = requests.get(
            self.host + path, headers=headers, params=params, data={}, timeout=600
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def sign(self, path, params):
        """Sign the method, the address without parameters, and the parameters, each quoted, joined by &."""
        pairs = "&".join(
            f"{name}={quote(str(value), safe='')}" for name, value in params.items()
        )
        text = "&".join(
            ["GET", quote(self.host + path, safe=""), quote(pairs, safe="")]
        )
        return protocol.sign_request(self.key.secret, text)

    def start(self):
        """Read what the sample client reads before its first prompt."""
        own = {"accountId": self.account}
        time = self.get("timestamp")["timestamp"]
        tokens = {
            token["tokenId"]: token["decimals"]
            for token in self.get("exchange/tokens", {})
        }
        pools = self.get("amm/pools")["pools"]
        account = self.get("account", {"owner": self.owner}, security="key")
        self.api_key = self.get("apiKey", own, security="eddsa")["apiKey"]
        return time, tokens, pools, account


def test_the_sample_client_starts_and_reads_its_trades(world):
    with Relayer(world) as relayer:
        client = SampleClient(relayer, ACCOUNT)
        time, tokens, pools, account = client.start()
        trades = client.get("user/trades", {"accountId": ACCOUNT}, security="key")
        updates = client.get("user/updateInfo", {"accountId": ACCOUNT}, security="key")
        own = {"accountId": ACCOUNT}
        asked = {**own, "tokens": "0,1"}
        balances = client.get("user/balances", asked, security="key")
        asked = {**own, "sellTokenId": 0}
        storage = client.get("storageId", asked, security="key")
        assert {
            name: count for name, count in relayer.counts.requests.items() if count > 1
        } == {}
        assert set(relayer.counts.requests) == {f"/{stage}" for stage in STAGES}
        expected = relayer.rows(ACCOUNT)
    assert time > 1_600_000_000_000
    assert tokens[0] == 18
    assert (account["accountId"], account["nonce"]) == (ACCOUNT, 1)
    assert trades == {"totalNum": len(expected), "trades": expected[:50]}
    assert updates["totalNum"] == 0
    assert [balance["tokenId"] for balance in balances] == [0, 1]
    used = {int(row[11]) for row in expected if row[10] == "0"}
    assert storage["orderId"] == max(used) + 2
    for pool in pools:
        assert {"name", "version", "address"} < set(pool)
        assert len([*pool["tokens"]["pooled"], pool["tokens"]["lp"]]) == 3


@pytest.mark.parametrize(
    "query", ["accountId=10083&accountId=10083", "accountId=10083&limit=2&limit=2"]
)
def test_equal_parameters_may_repeat(serve, query):
    client = serve()
    headers = {"X-API-KEY": client.relayer.api_key}
    url = f"{client.relayer.base_url}/api/v3/user/trades?"
    once = "&".join(dict.fromkeys(query.split("&")))
    answers = [
        requests.get(url + each, headers=headers, timeout=600) for each in (query, once)
    ]
    assert answers[0].status_code == 200
    assert answers[0].content == answers[1].content


@pytest.mark.parametrize(
    ("path", "name", "values"),
    [
        ("/user/trades", "fillTypes", ["dex", "amm"]),
        ("/user/trades", "market", ["LRC-ETH", ""]),
        ("/user/balances", "tokens", ["0", "1"]),
    ],
)
def test_a_list_that_is_sent_as_repeated_parameters_is_refused(
    serve, path, name, values
):
    # Python's requests writes a list so, and the answer to the last value alone would look complete.
    client = serve()
    answer = client.get(path, accountId=ACCOUNT, **{name: values})
    assert answer.status_code == 400
    assert answer.json()["resultInfo"]["code"] == 100001
    assert "commas" in answer.json()["resultInfo"]["message"]


def test_clients_that_ask_for_markets_without_their_status_get_no_other_members(
    serve, world, recordings
):
    # A Python client makes objects of exactly these members, and others cannot start without the answer.
    sample = recordings / "samples" / "mainnet_tokens_market_tbenr_2021.json"
    members = list(json.loads(sample.read_bytes())["market"])
    markets = serve().get("/exchange/markets", key="").json()["markets"]
    assert markets == [
        {name: market[name] for name in members} for market in world.markets()
    ]


# Pools


def test_the_pools_of_the_world_are_those_of_the_real_exchange(
    serve, world, recordings
):
    client = serve()
    real = {
        pool["market"]: pool
        for pool in json.loads((recordings / "mainnet_amm_pools_v36.json").read_bytes())
        if not pool["struckOut"]
    }
    pools = client.get("/amm/pools", key="").json()["pools"]
    assert len(pools) == 15
    for pool in pools:
        fact = real[pool["market"]]
        assert pool["address"] == fact["poolAddress"]
        assert pool["tokens"] == {
            "pooled": [fact["baseTokenId"], fact["quoteTokenId"]],
            "lp": fact["lpTokenId"],
        }
        assert pool["feeBips"] == fact["feeBips"]
        account = client.get(
            "/account", owner=pool["address"].upper().replace("X", "x")
        ).json()
        assert (account["accountId"], account["owner"]) == (
            fact["ammAccountId"],
            pool["address"],
        )
        assert account["publicKey"] == {"x": "", "y": ""}
        assert client.get("/account", accountId=fact["ammAccountId"]).json() == account


@pytest.mark.parametrize(
    "wrong",
    [{"account_id": -1}, {"account_id": 2**32}, {"account_id": 1.5}, {"account_id": None}, {"nonce": -1}, {"owner": 5}],
)  # fmt: skip
def test_an_account_that_no_exchange_has_is_not_added(relayers, wrong):
    given = {"account_id": 500, "owner": "0x" + 40 * "1"} | wrong
    with pytest.raises(LabError, match=f"{next(iter(wrong))}.* (expected|not a valid)"):
        relayers().add_account(**given)


def test_nobody_owns_a_pool(relayers):
    relayer = relayers()
    pool, address = next(iter(World().pool_owners().items()))
    for account, owner in ((pool, "0x" + 40 * "1"), (500, address)):
        with pytest.raises(LabError, match="exists already"):
            relayer.add_account(account, owner)
    idle = 23  # a pool that never traded: its id is free, and then no longer the pool's
    relayer.add_account(idle, "0x" + 40 * "1")
    query = {"owner": World().pool_owners()[idle]}
    answer = requests.get(
        f"{relayer.base_url}/api/v3/account", params=query, timeout=600
    )
    assert answer.json()["resultInfo"]["code"] == 101001
    answer = requests.get(
        f"{relayer.base_url}/api/v3/apiKey?accountId={pool}",
        headers={"X-API-SIG": "0x" + 192 * "1"},
        timeout=600,
    )
    assert answer.json()["resultInfo"]["code"] == 104003
