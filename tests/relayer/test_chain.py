"""The embedded chain over JSON-RPC: the blocks that the package ships, as an Ethereum endpoint answers them."""

import gzip
import json
import sys
from pathlib import Path

import pytest
import requests
from support.settled_world import FIRST_L1_BLOCK, REGISTRATION, SUBMISSION

import loopring_lab as lab
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.relayer.chain import BLOCKS, Endpoint

sys.path.append(str(Path(__file__).parents[1]))
from tools import demo_blocks

WORLD = World()
EXCHANGE = Settings().exchange
MANY = {"fromBlock": hex(FIRST_L1_BLOCK), "toBlock": hex(FIRST_L1_BLOCK + 45_000)}


def body(method, *params, call_id=1):
    return {"jsonrpc": "2.0", "id": call_id, "method": method, "params": list(params)}


def ask(method, *params, **settings):
    """Return the result, or the code and the message of the error."""
    endpoint = Endpoint(WORLD, Settings(**settings))
    answer = json.loads(endpoint.answer(json.dumps(body(method, *params)).encode()))
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    return (
        answer["result"]
        if "result" in answer
        else (answer["error"]["code"], answer["error"]["message"])
    )


def test_the_shipped_blocks_are_small_and_their_first_day_is_what_the_tool_makes():
    assert BLOCKS.stat().st_size < 1_000_000
    with gzip.open(BLOCKS, "rt") as file:
        assert set(demo_blocks.lines(FIRST_L1_BLOCK + 150 * 48)) < set(file)
    for name, text in demo_blocks.listings().items():
        assert (BLOCKS.parent / name).read_text() == text


@pytest.mark.thorough
def test_the_shipped_blocks_are_what_the_tool_makes():
    with gzip.open(BLOCKS, "rt") as file:
        assert file.read() == "".join(demo_blocks.lines())


def test_every_demo_block_proves_itself_and_holds_the_worlds_fills(capsys):
    client = lab.connect(blocks="demo")
    assert (
        capsys.readouterr().out
        == "Demo blocks: synthetic world, seed 1. Nothing here is real market data.\n"
    )
    trades = client.trades()
    assert (trades.attrs["source"], trades.attrs["synthetic"]) == (WORLD.name, True)
    first = trades["block_id"].min()
    last = trades["block_id"].max()
    fills = [fill for fill in WORLD.fills if first <= fill.block_id <= last]
    assert len(trades) == 2 * len(fills) > 9_000
    assert set(client.accounts) == {
        account for fill in fills for account in (fill.taker, fill.maker)
    }


def test_a_sync_without_an_address_reads_the_same_blocks(tmp_path, capsys):
    store = lab.rollup.Store(tmp_path / "blocks.duckdb")
    report = store.sync(to_block=FIRST_L1_BLOCK + 4_500, progress=False)
    assert capsys.readouterr().out.startswith(
        "Embedded chain: synthetic world, seed 1. Nothing here is real"
    )
    assert (report["first"].tolist(), report["missing"].tolist()) == ([20_099], [0])
    demo = lab.rollup.Store(tmp_path / "demo.duckdb")
    demo.import_files(
        BLOCKS.parent, tokens=BLOCKS.parent / "tokens.json", progress=False
    )
    assert demo.source == store.source == WORLD.name
    last = int(report["last"].iloc[0])
    assert [raw.data for raw in demo.blocks(None, last).raw] == [
        raw.data for raw in store.blocks().raw
    ]
    assert demo.check(progress=False).summary["wrong"].sum() == 0


def test_events_transactions_and_tokens_are_answered():
    assert ask("eth_chainId") == hex(31337)
    logs = ask("eth_getLogs", MANY | {"address": EXCHANGE, "topics": [SUBMISSION]})
    assert int(ask("eth_blockNumber"), 16) > int(logs[-1]["blockNumber"], 16)
    numbers = [int(log["topics"][1], 16) for log in logs]
    assert numbers == list(range(20_099, 20_099 + len(logs)))
    found = ask("eth_getTransactionByHash", logs[0]["transactionHash"])
    decoded = lab.rollup.decode(found["input"], first_block=numbers[0])
    assert decoded.headers()["block_id"].iloc[0] == 20_099
    assert ask("eth_getTransactionByHash", "0x" + 64 * "1") is None
    for token in WORLD.tokens()[1:]:
        call = {"to": token["address"], "data": "0x313ce567"}
        assert int(ask("eth_call", call, "latest"), 16) == token["decimals"]
        text = bytes.fromhex(
            ask("eth_call", call | {"data": "0x95d89b41"}, "latest")[2:]
        )
        assert text[64 : 64 + text[63]].decode() == token["symbol"]
    assert ask("eth_call", {"to": EXCHANGE, "data": "0x95d89b41"}) == "0x"


@pytest.mark.parametrize(
    ("filter_", "count"),
    [
        ({"topics": []}, 315),
        ({"topics": [SUBMISSION]}, 300),
        ({"topics": [[SUBMISSION, REGISTRATION]]}, 315),
        (
            {
                "topics": [
                    SUBMISSION,
                    [f"0x{number:064x}" for number in (20_100, 20_102, 7)],
                ]
            },
            2,
        ),
        ({"topics": [REGISTRATION, None]}, 0),
        ({"address": [EXCHANGE.lower()], "topics": [SUBMISSION]}, 300),
        ({"address": "0x" + 40 * "1"}, 0),
        ({"toBlock": hex(FIRST_L1_BLOCK)}, 1),
        ({"fromBlock": "latest", "toBlock": "latest"}, 0),
    ],
)
def test_filters_select_logs_as_ethereum_does(filter_, count):
    found = ask("eth_getLogs", MANY | filter_)
    # Calls of several blocks cross the edge.
    most = 3 if count >= 300 else 0
    assert abs(len(found) - count) <= most


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("eth_getLogs", [{"fromBlock": 5}], -32602),
        ("eth_getLogs", [{"fromBlock": "0x9", "toBlock": "0x5"}], -32602),
        ("eth_getLogs", [], -32602),
        ("eth_call", [7], -32602),
        ("eth_call", [{"to": WORLD.tokens()[1]["address"], "data": "0x"}], 3),
        ("eth_sendRawTransaction", ["0x"], -32601),
    ],
)
def test_wrong_requests_get_the_standard_codes(method, params, code):
    assert ask(method, *params)[0] == code


@pytest.mark.parametrize(
    ("sent", "code", "call_id"),
    [
        (b"{", -32700, None),
        (b"[" * 5_000, -32700, None),
        (b"7", -32600, None),
        (b"[]", -32600, None),
        (b'{"id": 3, "method": "eth_chainId"}', -32600, 3),
        (
            b'{"jsonrpc": "2.0", "id": "a", "method": "eth_chainId", "params": {}}',
            -32600,
            "a",
        ),
    ],
)
def test_what_is_no_request_is_refused(sent, code, call_id):
    answer = json.loads(Endpoint(WORLD, Settings()).answer(sent))
    assert (answer["error"]["code"], answer["id"]) == (code, call_id)


def test_batches_are_answered_in_one_list_without_notifications():
    batch = [
        body("eth_chainId", call_id=7),
        body("no", call_id="x"),
        body("eth_chainId"),
        5,
    ]
    del batch[2]["id"]

    def answer(asked, **settings):
        return Endpoint(WORLD, Settings(**settings)).answer(json.dumps(asked).encode())

    answers = json.loads(answer(batch, rpc_batch=4))
    codes = [(each["id"], each.get("error", {}).get("code")) for each in answers]
    assert codes == [(7, None), ("x", -32601), (None, -32600)]
    assert answer([batch[2]]) == ""
    assert json.loads(answer(batch + batch, rpc_batch=4))["error"]["code"] == -32600
    assert (
        "batches are not supported"
        in json.loads(answer(batch, rpc_batch=0))["error"]["message"]
    )


def test_limits_refuse_large_questions():
    assert ask("eth_getLogs", MANY, rpc_log_blocks=1_000)[0] == -32005
    assert (
        len(
            ask(
                "eth_getLogs",
                MANY | {"toBlock": hex(FIRST_L1_BLOCK + 999)},
                rpc_log_blocks=1_000,
            )
        )
        > 15
    )
    assert ask("eth_getLogs", MANY, rpc_log_results=20) == (
        -32005,
        "query returned more than 20 results",
    )


def test_logs_are_left_out_of_large_ranges_only_and_bodies_for_good():
    complete = ask("eth_getLogs", MANY)
    found = ask("eth_getLogs", MANY, rpc_omitted_logs=0.1)
    assert 10 < len([log for log in complete if log not in found]) < 60
    small = {"fromBlock": hex(FIRST_L1_BLOCK), "toBlock": hex(FIRST_L1_BLOCK + 999)}
    assert ask("eth_getLogs", small, rpc_omitted_logs=1) == ask("eth_getLogs", small)
    hashes = sorted(
        {log["transactionHash"] for log in complete if log["topics"][0] == SUBMISSION}
    )
    answers = [
        ask("eth_getTransactionByHash", one, rpc_missing_bodies=0.5) for one in hashes
    ]
    assert len(hashes) // 4 < answers.count(None) < 3 * len(hashes) // 4


def test_other_data_and_other_exchanges_have_no_chain(folder):
    with Relayer(recording=folder) as relayer:
        answer = requests.post(
            relayer.rpc_url, json=body("eth_chainId"), timeout=10
        ).json()
    assert f"recording {folder.name} has no chain" in answer["error"]["message"]
    assert ask("eth_chainId", exchange="0x" + 40 * "1")[0] == -32000
    assert World(seed=2).chain is None


def test_it_is_served_with_the_name_of_its_data_and_the_faults_of_the_settings():
    with Relayer(
        WORLD, Settings(faults={"503": 1.0}, max_faults_in_a_row=1)
    ) as relayer:
        assert relayer.rpc_url == f"{relayer.base_url}/rpc"
        answers = [
            requests.post(relayer.rpc_url, json=body("eth_chainId"), timeout=10)
            for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [503, 200]
        assert json.loads(answers[1].headers["X-Loopring-Lab-Source"]) == {
            "name": WORLD.name,
            "synthetic": True,
        }
        assert relayer.counts.requests == {"/rpc": 2}
