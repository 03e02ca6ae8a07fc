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
    answer = endpoint.answer(json.dumps(body(method, *params)).encode())
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    return (
        answer["result"]
        if "result" in answer
        else (answer["error"]["code"], answer["error"]["message"])
    )


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_the_demo_blocks_hold_the_worlds_fills(capsys):
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
    traders = {fill.taker for fill in fills} | {fill.maker for fill in fills}
    assert set(client.accounts) == traders


def test_a_sync_without_an_address_reads_the_same_blocks(tmp_path, capsys):
    """They prove themselves: each as its event says, each signature and balance."""
    store = lab.rollup.Store(tmp_path / "blocks.duckdb")
    report = store.sync(to_block=FIRST_L1_BLOCK + 4_500, progress=False)
    said = "Embedded chain: synthetic world, seed 1. Nothing here is real"
    assert capsys.readouterr().out.startswith(said)
    assert (report["first"].tolist(), report["missing"].tolist()) == ([20_099], [0])
    demo = lab.connect(blocks="demo").store
    assert demo.source == store.source == WORLD.name
    blocks = store.blocks().raw
    shipped = demo.blocks(None, blocks[-1].block_id).raw
    assert [raw.data for raw in shipped] == [raw.data for raw in blocks]
    assert demo.check(progress=False).summary["wrong"].sum() == 0


def test_tokens_are_answered_by_their_contracts():
    assert ask("eth_getTransactionByHash", "0x" + 64 * "1") is None
    assert ask("eth_call", {"to": EXCHANGE, "data": "0x95d89b41"}) == "0x"
    token = WORLD.tokens()[1]
    call = {"to": token["address"], "data": "0x313ce567"}
    assert int(ask("eth_call", call, "latest"), 16) == token["decimals"]
    symbol = ask("eth_call", call | {"data": "0x95d89b41"}, "latest")
    text = bytes.fromhex(symbol[2:])
    assert text[64 : 64 + text[63]].decode() == token["symbol"]


@pytest.mark.parametrize(
    ("filter_", "count"),
    [
        ({"topics": []}, 315),
        ({"topics": [[SUBMISSION, REGISTRATION]]}, 315),
        ({"topics": [SUBMISSION, [f"0x{number:064x}" for number in (20_100, 7)]]}, 1),
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
        ("eth_getLogs", [{"topics": 5}], -32602),
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
    answer = Endpoint(WORLD, Settings()).answer(sent)
    assert (answer["error"]["code"], answer["id"]) == (code, call_id)


def test_batches_are_answered_in_one_list():
    batch = [body("eth_chainId", call_id=7), body("no", call_id="x"), 5]

    def answer(asked):
        endpoint = Endpoint(WORLD, Settings())
        return endpoint.answer(json.dumps(asked).encode())

    codes = [(each["id"], each.get("error", {}).get("code")) for each in answer(batch)]
    assert codes == [(7, None), ("x", -32601), (None, -32600)]
    assert len(answer(100 * [batch[0]])) == 100
    assert answer(101 * [batch[0]])["error"]["code"] == -32600


def test_other_data_and_other_exchanges_have_no_chain():
    with Relayer(World(seed=2, size=0.001)) as relayer:
        asked = body("eth_chainId")
        answer = requests.post(relayer.rpc_url, json=asked, timeout=600).json()
    assert "seed 2, size 0.001 has no chain" in answer["error"]["message"]
    assert ask("eth_chainId", exchange="0x" + 40 * "1")[0] == -32000
    assert World(seed=2).chain is None


def test_it_is_served_with_the_name_of_its_data_and_the_faults_of_the_settings():
    with Relayer(WORLD, Settings(faults={"503": 1.0})) as relayer:
        asked = {"url": relayer.rpc_url, "json": body("eth_chainId"), "timeout": 10}
        answers = [requests.post(**asked) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [503, 503, 503, 200]
        named = json.loads(answers[-1].headers["X-Loopring-Lab-Source"])
        assert named == {"name": WORLD.name, "synthetic": True}
        assert relayer.counts.requests == {"/rpc": 4}
