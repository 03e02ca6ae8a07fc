"""The embedded chain over JSON-RPC: what an Ethereum endpoint answers, and what it refuses or leaves out."""

import json
from collections import Counter
from hashlib import sha256

import pytest
import requests
from eth_abi import decode
from hypothesis import given, settings
from hypothesis import strategies as st

import loopring_lab as lab
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.relayer.chain import Endpoint
from loopring_lab.relayer.encoding import AUXILIARY
from loopring_lab.relayer.settlement import Settlement

WORLD = World(2, 0.003)
START = 11_149_814
SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
REGISTERED = "0x678eb1f52e3e76c52c1143d5699af1d8a5e03743e8840223ccb27aabf3c44c0a"
EXCHANGE = Settings().exchange
ENDPOINT = Endpoint(WORLD, Settings())
EVERYTHING = {"fromBlock": hex(START), "toBlock": hex(START + 2_700_000)}
MANY = {"fromBlock": hex(START), "toBlock": hex(START + 45_000)}


def body(method, *params, call_id=1):
    return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": list(params)}


def ask(endpoint, method, *params):
    """Return the result, or the code and the message of the error."""
    answer = json.loads(endpoint.answer(json.dumps(body(method, *params)).encode()))
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    return answer["result"] if "result" in answer else (answer["error"]["code"], answer["error"]["message"])


@pytest.fixture(scope="module")
def endpoint():
    return ENDPOINT


@pytest.fixture(scope="module")
def logs(endpoint):
    return ask(endpoint, "eth_getLogs", EVERYTHING | {"address": EXCHANGE, "topics": [SUBMITTED]})


def test_the_chain_and_its_head(endpoint, logs):
    assert ask(endpoint, "eth_chainId") == hex(31337)
    assert ask(endpoint, "net_version") == "31337"
    assert int(ask(endpoint, "eth_blockNumber"), 16) >= int(logs[-1]["blockNumber"], 16) + 64


def test_every_block_has_an_event_that_its_data_proves(logs):
    settlement = Settlement(WORLD, Settings())
    numbers = [int(log["topics"][1], 16) for log in logs]
    assert numbers == list(range(settlement.first, settlement.last + 1))
    for number, log in zip(numbers[:200] + numbers[-200:], logs[:200] + logs[-200:], strict=True):
        root, data_hash = decode(["bytes32", "bytes32"], bytes.fromhex(log["data"][2:]))
        assert data_hash == sha256(settlement.data(number)).digest()
        assert root == settlement.data(number)[52:84]
    places = [int(log["blockNumber"], 16) for log in logs]
    assert places == sorted(places)
    assert {log["address"] for log in logs} == {EXCHANGE.lower()}


def test_transactions_submit_the_blocks_of_their_events(endpoint, logs):
    settlement, by_hash = Settlement(WORLD, Settings()), {}
    for log in logs:
        by_hash.setdefault(log["transactionHash"], []).append(int(log["topics"][1], 16))
    assert {len(numbers) for numbers in by_hash.values()} == {1, 2, 3, 4}
    forms, starts = Counter(), Counter()
    for hash_, numbers in list(by_hash.items())[:600]:
        transaction = ask(endpoint, "eth_getTransactionByHash", hash_)
        assert transaction["hash"] == hash_
        calldata = bytes.fromhex(transaction["input"][2:])
        blocks = lab.rollup.decode(calldata, first_block=numbers[0])
        assert [raw.data for raw in blocks.raw] == [settlement.data(number) for number in numbers]
        assert {raw.block_version for raw in blocks.raw} == {17}
        forms.update(raw.form for raw in blocks.raw)
        starts[calldata[:4].hex()] += 1
        is_direct = calldata[:4].hex() in AUXILIARY
        assert (transaction["to"] == EXCHANGE.lower()) is is_direct
    assert set(forms) == set(AUXILIARY)
    assert len(set(starts) - set(AUXILIARY)) == 7
    assert set(starts) & set(AUXILIARY)
    assert starts["dcb2aa31"] > 400


def test_an_unknown_transaction_is_null(endpoint):
    assert ask(endpoint, "eth_getTransactionByHash", "0x" + 64 * "1") is None


def test_tokens_are_registered_and_their_contracts_tell_symbol_and_decimals(endpoint):
    found = ask(endpoint, "eth_getLogs", EVERYTHING | {"topics": [[REGISTERED]]})
    registered = {}
    for log in found:
        address, token_id = decode(["address", "uint16"], bytes.fromhex(log["data"][2:]))
        registered[token_id] = address
    assert registered == {token["tokenId"]: token["address"] for token in WORLD.tokens()}
    texts = Counter()
    for token in WORLD.tokens()[1:]:
        call = {"to": token["address"], "data": "0x313ce567"}
        assert int(ask(endpoint, "eth_call", call, "latest"), 16) == token["decimals"]
        answer = bytes.fromhex(ask(endpoint, "eth_call", call | {"data": "0x95d89b41"}, "latest")[2:])
        symbol = answer.rstrip(b"\0").decode() if len(answer) == 32 else decode(["string"], answer)[0]
        assert symbol == token["symbol"]
        texts[len(answer) == 32] += 1
    assert texts[True] == 1
    assert texts[False] > 10
    assert ask(endpoint, "eth_call", {"to": "0x" + 40 * "0", "data": "0x95d89b41"}) == "0x"
    assert ask(endpoint, "eth_call", {"to": EXCHANGE, "data": "0x95d89b41"}) == "0x"
    assert ask(endpoint, "eth_call", {"to": WORLD.tokens()[1]["address"], "data": "0x"})[0] == 3


@pytest.mark.parametrize(
    ("filter_", "count"),
    [
        ({"topics": []}, 315),
        ({"topics": [None]}, 315),
        ({"topics": [SUBMITTED]}, 300),
        ({"topics": [[SUBMITTED, REGISTERED]]}, 315),
        ({"topics": [None, "0x" + f"{20_100:064x}"]}, 1),
        ({"topics": [SUBMITTED, ["0x" + f"{n:064x}" for n in (20_100, 20_102, 7)]]}, 2),
        ({"topics": [REGISTERED, None]}, 0),
        ({"topics": ["0x" + 64 * "0"]}, 0),
        ({"address": [EXCHANGE.lower()], "topics": [SUBMITTED]}, 300),
        ({"address": "0x" + 40 * "1"}, 0),
        ({"fromBlock": "earliest"}, 315),
        ({"toBlock": hex(START)}, 1),
    ],
)
def test_filters_select_logs_as_ethereum_does(endpoint, filter_, count):
    found = ask(endpoint, "eth_getLogs", MANY | filter_)
    assert abs(len(found) - count) <= (3 if count >= 300 else 0)  # calls of several blocks cross the edge


def test_tags_are_block_numbers(endpoint):
    head = ask(endpoint, "eth_blockNumber")
    for tag in ("latest", "safe", "finalized", "pending"):
        assert ask(endpoint, "eth_getLogs", {"fromBlock": tag, "toBlock": head}) == []
    assert ask(endpoint, "eth_getLogs", {}) == []


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("eth_getLogs", [{"blockHash": "0x" + 64 * "1"}], -32602),
        ("eth_getLogs", [{"fromBlock": 5}], -32602),
        ("eth_getLogs", [{"fromBlock": "5"}], -32602),
        ("eth_getLogs", [{"fromBlock": "0x05"}], -32602),
        ("eth_getLogs", [{"fromBlock": "0x9", "toBlock": "0x5"}], -32602),
        ("eth_getLogs", [{"topics": "no"}], -32602),
        ("eth_getLogs", [{"topics": {}}], -32602),
        ("eth_getLogs", [{"topics": [1]}], -32602),
        ("eth_getLogs", [{"address": "0x12"}], -32602),
        ("eth_getLogs", [{"address": 7}], -32602),
        ("eth_getLogs", [[]], -32602),
        ("eth_getLogs", [], -32602),
        ("eth_getTransactionByHash", ["0x12"], -32602),
        ("eth_getTransactionByHash", [None], -32602),
        ("eth_call", [{}], -32602),
        ("eth_call", [None], -32602),
        ("eth_call", [{"to": EXCHANGE, "data": "0x"}, "soon"], -32602),
        ("eth_chainId", [1], -32602),
        ("eth_sendRawTransaction", ["0x"], -32601),
        ("", [], -32601),
    ],
)
def test_wrong_requests_get_the_standard_codes(endpoint, method, params, code):
    assert ask(endpoint, method, *params)[0] == code


@pytest.mark.parametrize(
    ("sent", "code", "call_id"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b"\xff", -32700, None),
        (b'{"id": 1, "id": 2}', -32700, None),
        (b"[" * 5_000, -32700, None),
        (b"7", -32600, None),
        (b"[]", -32600, None),
        (b"{}", -32600, None),
        (b'{"id": 3, "method": "eth_chainId"}', -32600, 3),
        (b'{"jsonrpc": "2.0", "id": [], "method": "eth_chainId"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": "a", "method": 5}', -32600, "a"),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "eth_chainId", "params": {}}', -32602, "a"),
        (b'{"jsonrpc": "2.0", "id": "a", "method": "\xc3\xa9"}', -32601, "a"),
    ],
)
def test_what_is_no_request_is_refused(endpoint, sent, code, call_id):
    answer = json.loads(endpoint.answer(sent))
    assert (answer["error"]["code"], answer["id"]) == (code, call_id)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
METHODS = ("eth_chainId", "net_version", "eth_getLogs", "eth_getTransactionByHash", "eth_call")
FILTERS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("fromBlock", "toBlock", "address", "topics", "to", "data", "input"), JSON)
)
CALLS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS) | JSON, "id": JSON},
    optional={"params": st.lists(FILTERS | JSON, max_size=2) | JSON},
)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(asked=CALLS | JSON | st.lists(CALLS, max_size=3))
def test_whatever_is_asked_the_answer_is_json_rpc(asked):
    text = ENDPOINT.answer(json.dumps(asked).encode())
    answers = json.loads(text) if text else []
    for answer in answers if isinstance(answers, list) else [answers]:
        assert answer["jsonrpc"] == "2.0"
        assert len({"result", "error"} & answer.keys()) == 1
        assert type(answer.get("error", {"code": 0})["code"]) is int


def test_ids_are_repeated_as_they_were_sent(endpoint):
    for text in ("0", "-5", '"é"', "123456789012345678901234567890", "1.50", "null"):
        answer = endpoint.answer(b'{"jsonrpc": "2.0", "method": "net_version", "id": %s}' % text.encode())
        assert f'"id":{text},' in answer


def test_batches_are_answered_in_one_list_without_notifications():
    endpoint = Endpoint(WORLD, Settings(rpc_batch=4))
    batch = [body("eth_chainId", call_id=7), body("no", call_id="x"), body("eth_chainId"), 5]
    del batch[2]["id"]
    answers = json.loads(endpoint.answer(json.dumps(batch).encode()))
    assert [(each["id"], each.get("error", {}).get("code")) for each in answers] == [
        (7, None), ("x", -32601), (None, -32600),
    ]  # fmt: skip
    assert endpoint.answer(json.dumps([batch[2]]).encode()) == ""
    assert json.loads(endpoint.answer(json.dumps(batch + batch).encode()))["error"]["code"] == -32600
    refuses = json.loads(Endpoint(WORLD, Settings(rpc_batch=0)).answer(json.dumps(batch).encode()))
    assert "batches are not supported" in refuses["error"]["message"]


def test_limits_refuse_large_questions():
    ranges = Endpoint(WORLD, Settings(rpc_log_blocks=1_000))
    assert ask(ranges, "eth_getLogs", MANY) == (-32005, "eth_getLogs is limited to a range of 1000 blocks")
    assert ask(ranges, "eth_getLogs", MANY | {"toBlock": hex(START + 1_000)})[0] == -32005
    assert len(ask(ranges, "eth_getLogs", MANY | {"toBlock": hex(START + 999)})) > 15
    results = Endpoint(WORLD, Settings(rpc_log_results=20))
    assert ask(results, "eth_getLogs", MANY) == (-32005, "query returned more than 20 results")
    assert len(ask(results, "eth_getLogs", MANY | {"toBlock": hex(START + 450)})) <= 20


def test_logs_are_left_out_of_large_ranges_only(endpoint):
    complete = ask(endpoint, "eth_getLogs", MANY)
    gaps = Endpoint(WORLD, Settings(rpc_omitted_logs=0.1))
    found = ask(gaps, "eth_getLogs", MANY)
    missing = [log for log in complete if log not in found]
    assert 10 < len(missing) < 60
    assert found == [log for log in complete if log not in missing] == ask(gaps, "eth_getLogs", MANY)
    small = []
    for at in range(START, START + 45_001, 1_000):
        last = min(at + 999, START + 45_000)
        small += ask(gaps, "eth_getLogs", {"fromBlock": hex(at), "toBlock": hex(last)})
    assert small == complete
    other = Endpoint(WORLD, Settings(rpc_omitted_logs=0.1, fault_seed=2))
    assert ask(other, "eth_getLogs", MANY) != found


def test_some_bodies_are_missing_for_good(logs):
    pruned = Endpoint(WORLD, Settings(rpc_missing_bodies=0.5))
    hashes = sorted({log["transactionHash"] for log in logs[:200]})
    missing = [hash_ for hash_ in hashes if ask(pruned, "eth_getTransactionByHash", hash_) is None]
    assert len(hashes) // 4 < len(missing) < 3 * len(hashes) // 4
    assert missing == [hash_ for hash_ in hashes if ask(pruned, "eth_getTransactionByHash", hash_) is None]


def test_a_recording_has_no_chain(folder):
    with Relayer(recording=folder) as relayer:
        answer = requests.post(relayer.rpc_url, json=body("eth_chainId"), timeout=10).json()
    assert answer["error"]["code"] == -32000
    assert f"recording {folder.name} has no chain" in answer["error"]["message"]


def test_it_is_served_with_the_name_of_its_data_to_its_own_host_only():
    with Relayer(WORLD) as relayer:
        assert relayer.rpc_url == f"{relayer.base_url}/rpc"
        answer = requests.post(relayer.rpc_url, json=body("eth_chainId"), timeout=10)
        assert json.loads(answer.headers["X-Loopring-Lab-Source"]) == {"name": WORLD.name, "synthetic": True}
        assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": hex(31337)}
        page = requests.post(relayer.rpc_url, json=body("eth_chainId"), headers={"Host": "a.example"}, timeout=10)
        assert page.status_code == 403
        assert requests.get(relayer.rpc_url, timeout=10).status_code == 405
        quiet = body("eth_chainId")
        del quiet["id"]
        assert requests.post(relayer.rpc_url, json=quiet, timeout=10).status_code == 204
        long = requests.post(relayer.rpc_url, data=b" " * (1 << 20) + b"{}", timeout=10).json()
        assert long["error"]["code"] == -32700


def test_faults_limits_and_latency_apply():
    with Relayer(WORLD, Settings(faults={"503": 1.0}, max_faults_in_a_row=1)) as relayer:
        statuses = [requests.post(relayer.rpc_url, json=body("eth_chainId"), timeout=10).status_code for _ in range(4)]
        assert statuses == [503, 200, 503, 200]
        assert relayer.counts.faults == {"503": 2}
        assert relayer.counts.requests == {"/rpc": 4}
    with Relayer(WORLD, Settings(rate_limit=2, latency=0.01), clock=lambda: 0.0) as relayer:
        answers = [requests.post(relayer.rpc_url, json=body("eth_chainId"), timeout=10) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert all(answer.elapsed.total_seconds() >= 0.01 for answer in answers)


def test_an_address_needs_a_running_relayer():
    with pytest.raises(lab.LabError, match="no address while it is not running"):
        _ = Relayer(WORLD).rpc_url
