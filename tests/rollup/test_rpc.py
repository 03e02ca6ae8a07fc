"""JSON-RPC over loopback: batches and their refusals, retries, addresses that hold keys."""

import json

import pytest
from support.optional import thorough
from support.scripted_server import Answer, scripted
from support.traces import forms, leaks, shown

from loopring_lab.errors import LabError, RpcError, TransportError
from loopring_lab.http.channel import Channel
from loopring_lab.rollup.rpc import Busy, Call, Rpc, TooMuch, refused

KEY = "k3yThatMustNever-be_seen0123456789abcdef"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Record the pauses before retries instead of waiting."""
    pauses: list[float] = []
    monkeypatch.setattr(Channel, "pause", lambda self, seconds: pauses.append(seconds))
    return pauses


def double(call):
    return {
        "jsonrpc": "2.0",
        "id": call["id"],
        "result": hex(2 * int(call["params"][0], 16)),
    }


def body(value):
    return Answer(body=json.dumps(value).encode())


def endpoint(answer):
    return lambda count, request: answer(count, json.loads(request.body))


def doubling(count, asked):
    return body(list(map(double, asked)) if isinstance(asked, list) else double(asked))


def open_rpc(url, batch=None, **how):
    rpc = Rpc(url, **{"rate": None, "proxies": False} | how)
    rpc.batch = batch or rpc.batch
    return rpc


def calls(count):
    return [Call("double", [hex(one)]) for one in range(count)]


def doubled(count):
    return [hex(2 * one) for one in range(count)]


def ask_all(answer, count=7, **how):
    """Ask for some numbers doubled; return the answers, and how many were asked for in each request."""
    with scripted(endpoint(answer)) as server:
        rpc = open_rpc(server.base_url, **how)
        found = rpc.ask_many(calls(count))
        rpc.close()
        asked = [json.loads(request.body) for request in server.requests]
        return found, [len(one) if isinstance(one, list) else 1 for one in asked]


def test_one_call_is_sent_as_json_rpc_with_the_user_of_the_address():
    with scripted(endpoint(doubling)) as server:
        url = server.base_url.replace("//", "//Aladdin:open%20sesame@") + "/v3/key"
        assert open_rpc(url).ask("double", "0x15") == "0x2a"
        [request] = server.requests
    assert (request.method, request.path) == ("POST", "/v3/key")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    call = {"jsonrpc": "2.0", "id": 1, "method": "double", "params": ["0x15"]}
    assert json.loads(request.body) == call


def test_calls_are_sent_in_batches_and_answered_in_order():
    found, sizes = ask_all(
        lambda count, asked: body(list(map(double, reversed(asked)))), 45, batch=20
    )
    assert found == doubled(45)
    assert sizes == [20, 20, 5]


REFUSALS = {
    "an error object": lambda asked: body(
        {"id": None, "error": {"code": -32600, "message": "no batches"}}
    ),
    "HTTP 413": lambda asked: Answer(413, b"too large"),
    "not JSON": lambda asked: Answer(200, b"<html>no</html>"),
    "a single answer": lambda asked: body(double(asked[0])),
    "no answers": lambda asked: body([]),
    "foreign ids": lambda asked: body(
        [double(one) | {"id": one["id"] + 1000} for one in asked]
    ),
    "not objects": lambda asked: body([5, None, "x"]),
}


@pytest.mark.parametrize(
    "name",
    ["an error object", *map(thorough, sorted(REFUSALS.keys() - {"an error object"}))],
)
def test_refused_batches_become_smaller(name):
    """An endpoint that takes batches of two calls is asked with no more once it is known."""

    def answer(count, asked):
        if isinstance(asked, list) and len(asked) > 2:
            return REFUSALS[name](asked)
        return doubling(count, asked)

    found, sizes = ask_all(answer, 9, batch=8)
    assert found == doubled(9)
    assert sizes == [8, 4, 2, 2, 2, 2, 1]


def test_answers_left_out_are_asked_for_again():
    def partly(count, asked):
        if count:
            return doubling(count, asked)
        answers = list(map(double, asked))
        return body([*answers[:3], answers[1]])

    found, sizes = ask_all(partly, 6)
    assert found == doubled(6)
    assert sizes == [6, 3]


def test_an_error_in_a_batch_concerns_its_own_call():
    def refusing(count, asked):
        answers = [double(one) for one in asked]
        error = {"code": 3, "message": "execution reverted"}
        answers[2] = {"id": answers[2]["id"], "error": error}
        answers[4] = {"id": answers[4]["id"]}
        return body(answers)

    found, sizes = ask_all(refusing, 6)
    assert sizes == [6]
    wanted = doubled(6)
    assert [found[place] for place in (0, 1, 3, 5)] == [
        *wanted[:2],
        wanted[3],
        wanted[5],
    ]
    said = "The endpoint refused: execution reverted. Run sync again later, or"
    assert str(found[2]).startswith(said)
    assert str(found[2]).endswith(", code 3).")
    assert "expected a result or an error" in str(found[4])


def test_a_call_that_is_limited_inside_a_batch_is_asked_again(quick):
    def limiting(count, asked):
        many = asked if isinstance(asked, list) else [asked]
        answers = [double(one) for one in many]
        for one in answers[2:] if count < 3 else ():
            del one["result"]
            one["error"] = {"code": -32005, "message": "rate exceeded"}
        return body(answers if isinstance(asked, list) else answers[0])

    found, sizes = ask_all(limiting, 7)
    assert found == doubled(7)
    assert sizes == [7, 5, 3, 1]
    assert quick == [0.2, 0.4, 0.8]


@pytest.mark.parametrize(
    "trouble",
    [
        Answer(429, b"", {"Retry-After": "3"}),
        Answer(429, b'{"error": {"code": 429, "message": "Too Many Requests"}}'),
        Answer(
            200,
            b'{"id": 1, "error": {"code": -32005, "message": "daily request count exceeded"}}',
        ),
        Answer(
            200,
            b'{"id": 1, "error": {"code": -32000, "message": "Your app has exceeded its compute units"}}',
        ),
        Answer(500, b"oops"),
        Answer(503, b'{"error": {"message": "overloaded"}}'),
        Answer(200, b'{"id": 1, "res', announced=4000),
        Answer(hang_up=True),
    ],
)
def test_what_may_pass_is_tried_again(trouble, quick):
    with scripted(
        endpoint(lambda count, asked: trouble if count < 3 else doubling(count, asked))
    ) as server:
        assert open_rpc(server.base_url).ask("double", "0x3") == "0x6"
        assert len(server.requests) == 4
    assert len(quick) >= 3
    assert quick[0] == 3.0 if trouble.headers else quick[0] < 1


FINAL = [
    (Answer(401, b"bad key"), RpcError, "The endpoint refused without a reason. It does not accept the key in its address: check LOOPRING_RPC_URL (double at http://127.0.0.1:PORT/…, HTTP 401)."),
    (Answer(404, b"<html>"), RpcError, "The endpoint refused without a reason. This does not look like an Ethereum endpoint: check the RPC address (double at http://127.0.0.1:PORT/…, HTTP 404)."),
    (Answer(200, b"<html>"), RpcError, "expected JSON, got a web page"),
    (Answer(200, b'{"id": 7, "result": 5}'), RpcError, "expected the answer to request 1, got {'id': 7"),
    (Answer(200, b'[{"id": 1, "result": 5}]'), RpcError, "expected the answer to request 1, got [{"),
    (Answer(200, b'{"id": 1}'), RpcError, "expected a result or an error"),
    (Answer(200, b'{"id": 1, "error": {"code": -32601, "message": "no \\u001b[31m such method"}}'), RpcError, "The endpoint refused: no ?[31m such method. Run sync again later, or with another endpoint, such as an archive node; check the arguments (double at http://127.0.0.1:PORT/…, code -32601)."),
    (Answer(200, b'{"id": 1, "error": "' + b"x" * 5000 + b'"}'), RpcError, "x..."),
    (Answer(200, b'{"id": 1, "error": ' + b"[" * 500 + b"]" * 500 + b"}"), RpcError, "nested over 64 deep"),
    (Answer(302, b"", {"Location": "http://127.0.0.1/elsewhere"}), TransportError, "The endpoint redirects to http://127.0.0.1/elsewhere, which is not followed. Check the RPC address (double at http"),
    (Answer(200, b'{"id": 1, "result": "' + b"0" * (17 << 20) + b'"}'), TransportError, "larger than 16 MiB. Check the RPC address (double at http"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "kind", "said"), FINAL, ids=range(len(FINAL)))
def test_other_refusals_are_final(answer, kind, said):
    with scripted(lambda count, request: answer) as server:
        rpc = open_rpc(server.base_url + "/" + KEY)
        with pytest.raises(LabError) as caught:
            rpc.ask("double", "0x3")
        assert len(server.requests) == 1
        port = server.base_url.rpartition(":")[2]
    assert isinstance(caught.value, kind)
    assert said.replace("PORT", port) in str(caught.value)
    assert str(caught.value).startswith(
        "The "
    )  # what happened; where is said at the end
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        (TooMuch, -32005, "query returned more than 10000 results. Try with this block range [0xaa, 0xbb]."),
        (TooMuch, -32602, "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range"),
        (TooMuch, -32000, "block range is too wide"),
        (TooMuch, -32000, "query timeout exceeded"),
        (TooMuch, -32600, "eth_getLogs limited to 1024 blocks"),
        (TooMuch, -32005, "too many logs: limit exceeded"),
        (TooMuch, -32603, "Internal error"),
        (Busy, -32005, "project ID request rate exceeded"),
        (Busy, -32005, "daily request count exceeded, request rate limited"),
        (Busy, 429, "Your app has exceeded its compute units per second capacity."),
        (Busy, -32029, "Too Many Requests"),
        (Busy, -32007, "50/second request limit reached - reduce calls per second"),
        (RpcError, -32000, "must be authenticated!"),
        (RpcError, -32002, "Invalid API key"),
    ],
)  # fmt: skip
def test_a_range_that_is_too_large_and_a_busy_endpoint_are_told_apart(
    kind, code, message
):
    """Texts of public endpoints."""
    error = {"code": code, "message": message}
    assert type(refused(error, "eth_getLogs at x")) is kind
    assert type(refused(error, "eth_call at x")) is not TooMuch


@pytest.mark.parametrize("method", ["eth_getLogs", "eth_getTransactionByHash"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (4444, "pruned history unavailable"),
        (-32000, "state histories haven't been fully indexed yet"),
        (-32000, "missing trie node 5a2f"),
        (-32000, "transaction indexing is in progress"),
        (-32000, "node is syncing"),
    ],
)
def test_what_an_endpoint_has_not_is_said_with_what_helps(method, code, message):
    """Texts of geth, Nethermind and Erigon."""
    said = str(refused({"code": code, "message": message}, f"{method} at x"))
    assert said.startswith(f"The endpoint refused: {message}. Run sync again later, or")
    assert "such as an archive node" in said


def test_a_gateway_that_does_not_wait_for_a_range_is_asked_for_less():
    assert type(refused(None, "eth_getLogs at x", 504)) is TooMuch
    assert type(refused(None, "eth_call at x", 504)) is RpcError


@pytest.mark.parametrize(
    "address",
    [
        f"https://mainnet.example.io:8443/v3/{KEY}",
        f"https://mainnet.example.io:8443/?apikey={KEY}",
        f"https://{KEY}@mainnet.example.io:8443",
        f"https://me:{KEY}@mainnet.example.io:8443",
    ],
)
def test_what_is_shown_of_an_address_is_scheme_and_host(address):
    assert repr(open_rpc(address)) == "Rpc('https://mainnet.example.io:8443/…')"


@pytest.mark.parametrize(
    "address", ["http://mainnet.example.io/key12345", "http://10.0.0.7:8545"]
)
def test_plain_http_needs_to_be_allowed(address):
    with pytest.raises(LabError, match=r"over plain http.*allow_http=True") as caught:
        open_rpc(address)
    assert "key12345" not in str(caught.value)
    open_rpc(address, allow_http=True)


@pytest.mark.parametrize(
    "address",
    [
        f"ftp://h/{KEY}",
        f"https:///{KEY}",
        f"https://h/{KEY}\n",
        KEY,
        "",
        None,
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(address):
    said = "not an address of an Ethereum endpoint"
    with pytest.raises(LabError, match=said) as caught:
        open_rpc(address)
    assert not any(leaks(text, {"key": forms(KEY)}) for text in shown(caught.value))
