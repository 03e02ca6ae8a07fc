"""Sync of a store: events, transactions, tokens, and endpoints that refuse, omit, forget or lie."""

import contextlib
import hashlib
import json
import threading
from typing import Any

import pytest
from support.optional import thorough
from support.rollup_blocks import submit, word, wrapped
from support.scripted_chain import (
    CONTRACT,
    FIRST_L1,
    SUBMITTED,
    SYMBOL,
    ScriptedChain,
    abi_text,
    data_of,
    unpaced,
)
from support.scripted_server import Answer
from support.traces import forms, leaks, shown

import loopring_lab as lab
from loopring_lab.errors import ArchiveError, LabError, RpcError
from loopring_lab.http.channel import Channel
from loopring_lab.rollup import Store, rpc

KEY = "k3yThatMustNever-be_seen0123456789abcdef"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(Channel, "pause", lambda self, seconds: None)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "blocks")


def held(store):
    """Return the data of each block by its number, without the first 32 bytes being trusted."""
    raw = store.blocks().raw
    assert len({one.block_id for one in raw}) == len(raw)
    return {one.block_id: one.data for one in raw}


def sync(store, chain, **how):
    with chain.served() as url:
        return store.sync(**unpaced(url) | how)


def test_every_block_is_stored_once_with_where_it_came_from(store):
    chain = ScriptedChain(40)
    report = sync(store, chain)
    assert report[["first", "last", "blocks", "missing"]].to_numpy().tolist() == [
        [1, 40, 40, 0]
    ]
    assert held(store) == {number: data_of(number) for number in range(1, 41)}
    for raw in store.blocks().raw:
        content = chain.transactions[raw.transaction_hash]
        assert raw.l1_block == int(content["blockNumber"], 16)
        assert raw.place == (raw.block_id % 5 == 1 and raw.block_id > 1)
    assert store.source == f"exchange {CONTRACT} on chain 1"
    assert not report.attrs["synthetic"]


def test_a_store_without_a_block_claims_nothing(store):
    report = sync(store, ScriptedChain(0))
    assert report.empty
    [note] = report.attrs["notes"]
    assert note in lab.show(report)._repr_html_()
    assert "No block is held, which proves nothing" in store._repr_html_()
    assert "missing" not in store._repr_html_()
    found = store.check()
    assert found.summary["not_checkable"].to_dict()["indices"] == 1
    assert repr(found).startswith("0 wrong, 1 not checkable\n")


def test_the_next_sync_asks_for_what_is_new_only(store):
    short = ScriptedChain(30)
    long = ScriptedChain(40)
    sync(store, short)
    sync(store, long)
    assert held(store) == long.data
    assert (
        long.asked["eth_getTransactionByHash"] == 9
    )  # 31, submitted with 30; 32, 33, 34; 35 and 36; ...
    sync(store, again := ScriptedChain(40))
    # Events after the last one, and everywhere for that of token 1, together.
    assert again.asked == {
        "eth_chainId": 1,
        "eth_blockNumber": 1,
        "eth_getLogs": 2,
        "requests": 3,
    }


def test_the_newest_l1_blocks_wait_for_confirmations(store):
    chain = ScriptedChain(40)
    chain.head = FIRST_L1 + 100 * 40 + 63
    sync(store, chain)
    assert sorted(held(store)) == list(range(1, 40))
    sync(store, chain, confirmations=63)
    assert sorted(held(store)) == list(range(1, 41))


@pytest.mark.thorough
def test_a_part_of_the_chain_can_be_asked_for(store):
    chain = ScriptedChain(40)
    sync(store, chain, from_block=FIRST_L1 + 1_000, to_block=FIRST_L1 + 1_999)
    assert sorted(held(store)) == list(range(10, 20))
    sync(store, chain, to_block=FIRST_L1 + 2_450)
    assert sorted(held(store)) == list(range(1, 25))
    sync(store, chain)
    assert held(store) == chain.data


def test_an_exchange_of_ones_own_is_looked_for_from_the_beginning_of_its_chain(store):
    """Chains of development tools have the id of the embedded one, and few blocks."""
    chain = ScriptedChain(0, chain_id=31337, exchange="0x" + "77" * 20)
    chain.head = 500
    asked: list[Any] = []
    chain.trouble = lambda number, one: asked.append(one)
    sync(store, chain, exchange=chain.exchange, confirmations=0)
    ranges = [one["params"][0] for one in asked if one["method"] == "eth_getLogs"]
    assert [(one["fromBlock"], one["toBlock"]) for one in ranges] == [("0x0", "0x1f4")]


@pytest.mark.parametrize(
    "limits",
    [
        {"most_l1_blocks": 300},
        thorough({"most_results": 3}),
        thorough({"most_l1_blocks": 1}),
    ],
)
def test_ranges_are_halved_where_the_endpoint_refuses_them(store, limits):
    chain = ScriptedChain(40, apart=100 if max(limits.values()) > 1 else 3)
    vars(chain).update(limits)
    sync(store, chain)
    assert held(store) == chain.data
    spanned = chain.apart * 41
    least = (
        spanned // limits["most_l1_blocks"] if "most_l1_blocks" in limits else 40 // 3
    )
    assert least < chain.asked["eth_getLogs"] < 2.2 * least + 40


RANGE_REFUSALS = [
    (-32600, "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and no limit on the response size"),
    (-32600, "Under the Free tier plan, you can make eth_getLogs requests with up to a 10 block range. Upgrade to PAYG for expanded block range."),
    (-32005, "query returned more than 10000 results. Try with this block range [0xB2A1C0, 0xB2A1FF]."),
    (-32614, "eth_getLogs is limited to a 10,000 range"),
    (-32602, "eth_getLogs and eth_newFilter are limited to a 10,000 blocks range"),
    (-32600, "Block range is too large"),
    (-32062, "Block range is too wide"),
    (-32047, "Invalid eth_getLogs request. 'fromBlock'-'toBlock' range too large. Max range: 800"),
    (-32000, "Exceeded max range limit for eth_getLogs: 10000"),
    (-32000, "exceed maximum block range: 5000"),
    (-32701, "exceed maximum block range: 50000"),
    (-32000, "query timeout exceeded"),
    (-32000, "request timed out"),
    (-32603, "Internal error"),
    (-32603, "context deadline exceeded"),
    (-32005, "limit exceeded"),
    (-32005, "Requested range exceeds maximum RPC range limit"),
    (-32000, "Too many logs requested. Max logs per response is 20000."),
    (-32005, "please limit the query to at most 1000 blocks"),
    (35, "ranges over 10000 blocks are not supported on freetier"),
    (-32602, "getLogs request exceed max block count 100"),
    (-32001, "eth_getLogs is limited to 0 - 50 blocks range"),
    (-32000, "You have exceeded the maximum of 3,500 blocks per request"),
    (-32600, "The requested window exceeds what this plan serves"),
    (-32020, "backend response too large"),
    (-32008, "Response is too big"),
    (-32000, "too many matches, refine your filter"),
    (-32602, "distance between fromBlock and toBlock must not be above 2048"),
    (-32602, "invalid params"),
    (-32600, "Maximum allowed number of requested blocks is 1000"),
    (-32011, "Your query would scan more than is allowed"),
    (-32000, "Query aborted: it took longer than 10 s. Please try again with a smaller interval of blocks"),
    (-32000, "intervalo demasiado largo"),
    (-32000, "span may not exceed 1024"),
    (-32000, "from-to gap > 5k"),
    (-32000, "up to 2k epochs"),
    (-32000, "memory limit reached"),
    (1, "nope"),
    (-32000, ""),
    (-32016, "too expensive"),
    (-32000, "request denied: over 2000"),
    (-32000, "forbidden: max span 2000"),
    (-32005, "quota: 2000 heights at most"),
]  # fmt: skip

# What users of public endpoints and of nodes quote in their bug reports and in their own tests, collected by somebody
# who had not seen how refusals are read: Infura, Alchemy, dRPC, LlamaNodes, Merkle, Cloudflare, Tenderly, Base, Arc,
# Etherscan, BNB Chain, and the nodes Erigon, Reth, Geth of Scroll, of Morph and of Polygon.
REPORTED_REFUSALS = [
    (-32602, "range 1000000 exceeds limit of 10000"),
    (-32600, "You can make eth_getLogs requests with up to a 100 block range. Based on your parameters, this block range should work: [0x100000, 0x100063]"),
    (35, "ranges over 10000 blocks are not supported on free plan"),
    (-32603, "eth_getLogs range is too large, max is 1k blocks"),
    (-32603, "eth_getLogs range is too large, max is 10k blocks"),
    (-32000, "logs matched by query exceeds limit of 10000"),
    (-32000, "log query timed out"),
    (-32614, "eth_getLogs is limited to a 10,000 block range limit"),
    (-32020, "backend response too large"),
    (-32012, "requested range too large"),
    (-32000, "query timeout occurred"),
    (-32000, "block is out of range"),
    (-32602, "query block range exceeds server limit, narrow your filter: 5"),
    (-32602, "query exceeds max block range 100000"),
    (-32602, "query exceeds max results 20000, retry with the range 25766988-25775072"),
    (-32602, "request exceeded max allowed range: query exceeds max results 2000, retry with the range 1-2"),
    (-32000, "block range is bigger than maxBlockRange"),
    (-32000, "block range is larger than max block range, block range = 5120, max block range = 5000"),
    (-32005, "block range too large, max range: 1000"),
    (-32600, "block range too high"),
    (-32000, "can't query more than 1000 blocks"),
    (-32005, "query returned more than 1024 results"),
    (-32000, "response exceed size limit"),
    (-32000, "http response body exceeded the size limit"),
    (-32000, "read limit exceeded"),
    (-32000, "requested too many blocks from 0 to 16777216, maximum is set to 2048"),
    (-32000, "queued request timed out"),
]  # fmt: skip
# Their words for a rate, which must not be taken for a range.
REPORTED_RATES = [
    (-32007, "100/second request limit reached - reduce calls per second or upgrade your account"),
    (-32005, "please limit your query to 10 requests per second"),
    (-32016, "over rate limit"),
    (-32005, "rate limit exceeded"),
    (429, "Your app has exceeded its compute units per second capacity. If you have retries enabled, you can safely ignore this message."),
    (429, "Too many requests for logs in this time window"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "message"), REPORTED_RATES)
def test_a_reported_refusal_of_a_rate_is_no_refusal_of_a_range(code, message):
    error = rpc.refused({"code": code, "message": message}, "eth_getLogs of a node")
    assert type(error) is rpc.Busy
    assert "Send fewer requests" in str(error)


def test_a_reported_reason_beside_the_message_is_read(store):
    chain = ScriptedChain(40, apart=30)

    def refuse(number, asked):
        if isinstance(asked, list) or asked["method"] != "eth_getLogs":
            return None
        wanted = asked["params"][0]
        if int(wanted["toBlock"], 16) - int(wanted["fromBlock"], 16) < 300:
            return None
        data = {"error_id": "4ed9", "payload": "range 9009594 is bigger than 2000"}
        error = {"code": -32602, "message": "invalid params", "data": data}
        answer = {"jsonrpc": "2.0", "id": asked["id"], "error": error}
        return Answer(200, json.dumps(answer).encode())

    chain.trouble = refuse
    sync(store, chain)
    assert held(store) == chain.data


@pytest.mark.parametrize("words", [RANGE_REFUSALS, REPORTED_REFUSALS])
def test_a_range_is_halved_in_whatever_words_it_is_refused(store, words):
    chain = ScriptedChain(40, apart=30)
    rest = list(words)

    def refuse(number, asked):
        if not rest or isinstance(asked, list) or asked["method"] != "eth_getLogs":
            return None
        wanted = asked["params"][0]
        if int(wanted["toBlock"], 16) - int(wanted["fromBlock"], 16) < 3:
            return None
        code, message = rest.pop()
        error = {"code": code, "message": message}
        answer = {"jsonrpc": "2.0", "id": asked["id"], "error": error}
        return Answer(200 + 200 * (len(rest) % 2), json.dumps(answer).encode())

    chain.trouble = refuse
    sync(store, chain)
    assert held(store) == chain.data
    assert rest == []


def test_a_refusal_of_one_l1_block_says_what_helps(store):
    chain = ScriptedChain(3)
    error = {"code": 4444, "message": "pruned history unavailable"}
    refusal = Answer(200, json.dumps({"id": 3, "error": error}).encode())
    chain.trouble = lambda number, asked: (
        refusal if asked["method"] == "eth_getLogs" else None
    )
    with pytest.raises(RpcError, match=r"pruned history unavailable.*archive node"):
        sync(store, chain)


def test_faults_of_every_kind_lose_nothing(store):
    chain = ScriptedChain(60)
    troubles = [
        Answer(429, b"", {"Retry-After": "0"}),
        Answer(500, b"oops"),
        Answer(hang_up=True),
        Answer(200, b'[{"id": 1', announced=900),
        Answer(
            200, b'{"id": null, "error": {"code": -32005, "message": "rate limit"}}'
        ),
    ]
    chain.trouble = lambda number, asked: (
        troubles[number // 2 % len(troubles)] if number % 2 else None
    )
    sync(store, chain)
    assert held(store) == chain.data


@pytest.mark.thorough
@pytest.mark.parametrize(
    "omitted",
    [thorough({1, 2}), thorough({39, 40}), {3, 9, 10, 27, 33}],
)
def test_events_left_out_are_found_by_the_next_sync(store, omitted):
    """The endpoint leaves events out of answers about more than 4,000 L1 blocks, without an error."""
    chain = ScriptedChain(40)
    chain.omitted, chain.honest = omitted, 4_000
    report = sync(store, chain)
    assert set(held(store)) == set(chain.data) - omitted
    assert report["missing"].sum() == len(omitted - {39, 40})
    report = sync(store, chain)
    assert held(store) == chain.data
    assert report["missing"].sum() == 0


class PrunedChain(ScriptedChain):
    """An endpoint that answers for logs before some L1 block as if there were none."""

    kept_from = 0

    def eth_getLogs(self, wanted):  # noqa: N802 - the method's name
        found = super().eth_getLogs(wanted)
        return [log for log in found if int(log["blockNumber"], 16) >= self.kept_from]


@pytest.mark.parametrize("kept", [thorough(22), 41])
def test_what_a_pruned_endpoint_no_longer_had_is_found_at_a_complete_one(store, kept):
    """Of 40 blocks, none or the last 19 are answered, over more L1 blocks than are asked for at once."""
    chain = PrunedChain(40, apart=1_000)
    chain.register(1, 7, abi_text("LRC"), 18)
    chain.kept_from = FIRST_L1 + 1_000 * kept
    report = sync(store, chain)
    assert report["missing"].sum() == (21 if kept == 22 else 0)
    whole = ScriptedChain(40, apart=1_000)
    whole.register(1, 7, abi_text("LRC"), 18)
    report = sync(store, whole)
    assert held(store) == chain.data
    assert report["missing"].tolist() == [0]
    assert store.check().summary.loc["indices", ["checked", "wrong"]].tolist() == [
        40,
        0,
    ]
    assert store.tokens().index.tolist() == ["LRC"]


@pytest.mark.thorough
def test_events_after_the_last_one_are_asked_for_again_however_far(store):
    chain = ScriptedChain(40, apart=1_000)
    every_log = chain.logs
    chain.logs = every_log[:3]
    sync(store, chain)
    assert sorted(held(store)) == [1, 2, 3]
    chain.logs = every_log[:3] + every_log[-1:]
    sync(store, chain)
    assert sorted(held(store)) == [1, 2, 3, 40]


@pytest.mark.thorough
def test_a_registration_left_out_is_asked_for_while_a_used_token_has_no_name(store):
    chain = ScriptedChain(9)
    sync(store, chain)
    with pytest.raises(LabError, match="no tokens here yet"):
        store.tokens()
    chain.register(1, 7, abi_text("LRC"), 18)
    sync(store, chain)
    assert store.tokens().index.tolist() == ["LRC"]


@pytest.mark.thorough
def test_a_part_that_was_asked_for_is_all_that_is_asked_for_again(store):
    chain = ScriptedChain(40, apart=1_000)
    sync(store, chain)
    asked = []
    chain.trouble = lambda number, call: asked.append(call)
    sync(store, chain, from_block=FIRST_L1 + 5_000, to_block=FIRST_L1 + 5_999)
    [wanted] = [call["params"][0] for call in asked if call["method"] == "eth_getLogs"]
    ends = [int(wanted[name], 16) for name in ("fromBlock", "toBlock")]
    assert ends == [FIRST_L1 + 5_000, FIRST_L1 + 5_999]


@pytest.mark.thorough
def test_between_two_parts_nothing_is_asked_for(store):
    chain = ScriptedChain(40, apart=1_000)
    for start in (0, 30_000, 34_000):
        first = FIRST_L1 + start
        sync(store, chain, from_block=first, to_block=first + 3_999)
    events = store.file.index().events["block_id"].to_pylist()
    assert events == [1, 2, 3, *range(30, 38)]


@pytest.mark.thorough
def test_a_wide_gap_is_asked_for_in_parts(store):
    chain = ScriptedChain(40, apart=1_000)
    chain.omitted = set(range(8, 32))
    sync(store, chain)

    def is_wide(call):
        asked = call["params"][0]
        length = int(asked["toBlock"], 16) - int(asked["fromBlock"], 16) + 1
        return length > 10_000

    def refuse_wide(number, asked):
        calls = asked if isinstance(asked, list) else [asked]
        logs = [call for call in calls if call["method"] == "eth_getLogs"]
        return Answer(500) if any(map(is_wide, logs)) else None

    chain.trouble = refuse_wide
    chain.omitted = set()
    sync(store, chain)
    assert held(store) == chain.data


def test_events_out_of_the_order_of_l1_blocks_end_no_sync(store):
    chain = ScriptedChain(9)
    chain.logs[8]["topics"] = [SUBMITTED, "0x" + word(40).hex()]
    chain.logs[8]["blockNumber"] = hex(FIRST_L1 + 3)
    sync(store, chain)
    sync(store, chain)
    assert sorted(held(store)) == [*range(1, 9), 40]


@pytest.mark.thorough
def test_transactions_that_a_node_has_forgotten_are_named_and_asked_for_again(store):
    chain = ScriptedChain(40)
    kept = dict(chain.transactions)
    for number in (7, 12, 13):
        del chain.transactions[transaction_of(chain, number)["hash"]]
    with pytest.raises(RpcError) as caught:
        sync(store, chain)
    said = str(caught.value)
    for part in (
        "3 blocks could not be read; all others are stored. The first: block 7: transaction 0x",
        "is unknown to http://127.0.0.1",
        "some nodes no longer keep bodies of blocks before the merge. Run sync with another endpoint",
    ):
        assert part in said
    assert set(held(store)) == set(chain.data) - {7, 12, 13}
    chain.transactions = kept
    sync(store, chain)
    assert held(store) == chain.data


def transaction_of(chain, number):
    [log] = [log for log in chain.logs if int(log["topics"][1], 16) == number]
    return chain.transactions[log["transactionHash"]]


def test_a_transaction_with_other_data_is_named_with_both_hashes(store):
    chain = ScriptedChain(9)
    false = data_of(7)[:-1] + b"\x01"
    transaction_of(chain, 7)["input"] = "0x" + wrapped(submit([false])).hex()
    hashes = [hashlib.sha256(data).hexdigest() for data in (data_of(7), false)]
    with pytest.raises(RpcError) as caught:
        sync(store, chain)
    for part in ("block 7", *hashes):
        assert part in str(caught.value)
    assert set(held(store)) == set(chain.data) - {7}


@pytest.mark.parametrize(
    "lie",
    [
        thorough({"input": "0x123"}),
        thorough({"input": "0x12345678"}),
        {"hash": "0x" + 64 * "9"},
    ],
)
def test_a_transaction_that_is_not_as_documented_stops_no_other(store, lie):
    chain = ScriptedChain(9)
    transaction_of(chain, 3).update(lie)
    with pytest.raises(RpcError, match="block 3"):
        sync(store, chain)
    assert set(held(store)) == set(chain.data) - {3}


FALSE_LOGS: dict[str, Any] = {
    "another contract": {"address": "0x" + 40 * "7"},
    "no topics": {"topics": []},
    "data of another length": {"data": "0x" + 66 * "0"},
    "outside the range": {"blockNumber": hex(FIRST_L1 - 1)},
    "a giant number": {"topics": [SUBMITTED, "0x" + 64 * "f"]},
    "no hash": {"transactionHash": "0x12"},
}


@pytest.mark.parametrize("lie", FALSE_LOGS.values(), ids=FALSE_LOGS)
def test_logs_that_were_not_asked_for_are_refused(store, lie):
    chain = ScriptedChain(9)
    chain.logs[4] |= lie
    chain.eth_getLogs = lambda wanted: chain.logs
    with pytest.raises(LabError, match="eth_getLogs of L1 blocks 11,149,814 to 11,1"):
        sync(store, chain)
    assert store.file.scanned() == []


def test_events_that_were_undone_are_passed_over(store):
    chain = ScriptedChain(9)
    for place, no in enumerate((False, "false", None, 0, "0x0")):
        chain.logs[place]["removed"] = no
    other = chain.logs[2] | {"data": "0x" + 128 * "0"}
    chain.logs += [other | {"removed": yes} for yes in (True, "true", "True", 1, "0x1")]
    sync(store, chain)
    assert held(store) == chain.data


def test_an_event_that_may_have_been_undone_is_refused(store):
    chain = ScriptedChain(9)
    chain.logs[2]["removed"] = "perhaps"
    with pytest.raises(
        LabError, match="removed: expected 1 or 0, or true or false, got 'perhaps'"
    ):
        sync(store, chain)


@pytest.mark.parametrize("is_held", [True, False])
def test_a_block_that_was_submitted_again_after_a_reorganisation_is_found(
    store, is_held
):
    chain = ScriptedChain(4)
    chain.head = FIRST_L1 + 450
    newest = chain.logs[3]
    call = chain.transactions[newest["transactionHash"]]
    if not is_held:
        del chain.transactions[newest["transactionHash"]]
    with contextlib.suppress(RpcError):
        sync(store, chain, confirmations=0)
    chain.transactions.pop(newest["transactionHash"], None)
    moved = {"blockNumber": hex(FIRST_L1 + 401)}
    newest |= moved | {"transactionHash": "0x" + 64 * "e"}
    chain.transactions["0x" + 64 * "e"] = call | moved | {"hash": "0x" + 64 * "e"}
    for _ in range(2):
        sync(store, chain, confirmations=0)
        last = store.blocks(4).headers().iloc[0]
        assert last["l1_block"] == FIRST_L1 + 401
        assert last["transaction_hash"] == "0x" + 64 * "e"


def test_another_history_of_a_block_is_an_error(store):
    """After a reorganisation deeper than the confirmations, an event contradicts the one that is stored."""
    sync(store, ScriptedChain(9))
    chain = ScriptedChain(12)
    chain.logs[8]["data"] = "0x" + 128 * "5"
    with pytest.raises(
        RpcError, match=r"block 9 has the hash 5{64}; the event stored for it"
    ):
        sync(store, chain)


def test_one_store_keeps_to_one_exchange(store):
    sync(store, ScriptedChain(3))
    unknown = r"no exchange is known on chain 5. Give its address: exchange='0x...'."
    for chain_id, exchange, kind, said in (
        (5, CONTRACT, ArchiveError, "holds blocks from"),
        (1, "0x" + 40 * "7", ArchiveError, "holds blocks from"),
        (5, None, LabError, unknown),
        (1, "eth", LabError, r"exchange='eth': not an Ethereum address"),
        (1, 5, LabError, r"exchange=5: not an Ethereum address"),
    ):
        other = ScriptedChain(3, chain_id=chain_id, exchange=str(exchange))
        with pytest.raises(kind, match=said):
            sync(store, other, exchange=exchange)


@pytest.mark.parametrize("number", [-1, "5", True])
def test_numbers_of_blocks_are_checked_before_anything_is_asked(store, number):
    with pytest.raises(LabError, match=r"from_block=.*not a number of Ethereum blocks"):
        store.sync("http://127.0.0.1:1", from_block=number)


def test_an_empty_address_does_not_fill_a_store_with_synthetic_blocks(store):
    with pytest.raises(LabError, match="not an address of an Ethereum endpoint"):
        store.sync("", to_block=11_151_000)
    assert store.source is None


def test_a_range_that_ends_before_it_begins_is_refused(store):
    with pytest.raises(LabError, match=r"from_block=10 is after to_block=5"):
        store.sync("http://127.0.0.1:1", from_block=10, to_block=5)


TOKENS = {
    0: (0, None, None, "ETH", 18),
    1: (7, abi_text("LRC"), 18, "LRC#1", 18),
    2: (8, b"MKR" + bytes(29), 18, "MKR", 18),
    3: (9, None, 6, "token#3", 6),
    4: (10, abi_text("\x1b[31m"), 6, "token#4", 6),
    5: (11, word(32) + word(1 << 200) + bytes(32), 0, "token#5", 0),
    6: (12, b"", 8, "token#6", 8),
    7: (13, abi_text("LRC"), 4, "LRC#7", 4),
    8: (14, abi_text("GONE"), None, None, None),
    9: (15, abi_text("HUGE"), 10**20, None, None),
    10: (16, abi_text("MOST"), 30, "MOST", 30),
    11: (17, abi_text("MORE"), 31, None, None),
}


def test_tokens_are_named_by_their_contracts(store):
    chain = ScriptedChain(9)
    for token_id, (address, symbol, decimals, *_) in TOKENS.items():
        chain.register(token_id, address, symbol, decimals)
    sync(store, chain)
    found = store.tokens().reset_index()
    expected = [
        [one, name, places]
        for one, (*_, name, places) in TOKENS.items()
        if places is not None
    ]
    assert found[["token_id", "symbol", "decimals"]].to_numpy().tolist() == expected
    assert found["address"][1] == f"0x{7:040x}"
    chain.asked.clear()
    sync(store, chain)
    # Symbol and decimals of the three that are not listed, and of the four without a name.
    assert chain.asked["eth_call"] == 14
    assert store.tokens().reset_index()["symbol"].tolist() == found["symbol"].tolist()


@pytest.mark.thorough
def test_a_name_that_an_endpoint_could_not_tell_is_asked_for_again(store):
    chain = ScriptedChain(3)
    chain.register(1, 7, abi_text("LRC"), 18)
    question = (f"0x{7:040x}", SYMBOL)
    symbol = chain.contracts[question]
    chain.contracts[question] = None
    sync(store, chain)
    assert store.tokens().index.tolist() == ["token#1"]
    chain.contracts[question] = symbol
    sync(store, chain)
    assert store.tokens()["decimals"].to_dict() == {"LRC": 18}


@pytest.mark.thorough
def test_two_syncs_at_once_store_each_block_once(tmp_path, monkeypatch):
    monkeypatch.setattr(rpc, "BATCH", 5)
    chain = ScriptedChain(60)
    chain.most_in_batch = 3
    errors: list[BaseException] = []

    def run(url):
        try:
            Store(tmp_path / "blocks").sync(**unpaced(url))
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    with chain.served() as url:
        threads = [threading.Thread(target=run, args=(url,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert held(Store(tmp_path / "blocks")) == chain.data


@pytest.mark.thorough
@pytest.mark.parametrize("where", [f"/v3/{KEY}", f"/?key={KEY}"])
def test_the_key_of_an_address_is_stored_and_shown_nowhere(
    tmp_path, where, monkeypatch, caplog
):
    """An endpoint repeats the key in every error; it is given as an argument, and by the environment."""
    caplog.set_level("DEBUG")
    secrets = {"key": forms(KEY)}
    store = Store(tmp_path / "blocks")
    refusal = json.dumps({"error": {"message": KEY}}).encode()
    troubles = {
        "refused": lambda number, asked: Answer(403, refusal),
        "gone": lambda number, asked: Answer(hang_up=True),
    }
    texts = list[str]()
    for place in ("argument", "environment", "refused", "gone"):
        chain = ScriptedChain(9)
        chain.trouble = troubles.get(place, chain.trouble)
        with chain.served() as url:
            monkeypatch.setenv("LOOPRING_RPC_URL", url + where)
            how = unpaced(url + where)
            if place != "argument":
                how["rpc"] = None
            try:
                texts.append(repr(store.sync(**how)))
            except LabError as error:
                assert place in troubles
                texts += shown(error)
        texts += [repr(store), store._repr_html_(), str(vars(store))]
    texts.append(caplog.text)
    for file in tmp_path.rglob("*"):
        texts.append(file.read_bytes().decode("latin-1"))
    assert [leaks(text, secrets) for text in texts] == [[]] * len(texts)
