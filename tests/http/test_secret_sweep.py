"""No secret is shown by a relayer that sends secrets back."""

import json
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from support.scripted_server import Answer, Request, scripted
from support.traces import forms, leaks, shown

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.http.transport import Transport
from loopring_lab.redaction import hide
from loopring_lab.sources.client import Client

KEY = "k3y+of/the=user&\"that'must<never>be%seen"
L2_KEY = protocol.l2_key("0x" + "5a" * 31 + "11" + "3c" * 32 + "1b")
HEADER = "0x" + bytes(range(7, 72)).hex() + "02"
KEY_SEED = "words that only the owner of this account knows"
ACCOUNT = 10083


ENCODED: dict[str, Callable[[str], str]] = {
    "raw": lambda text: text,
    "url": lambda text: quote(text, safe=""),
}


def echoed(request: Request, how: str) -> str:
    """Return every secret of a request, encoded in one way."""
    names = ("x-api-key", "x-api-sig")
    sent = [request.headers[name] for name in names if name in request.headers]
    if request.body:
        sent.append(json.loads(request.body)["keySeed"])
    return " ".join(map(ENCODED[how], sent))


def _refusal(text: str) -> bytes:
    return json.dumps({"resultInfo": {"code": 104002, "message": text}}).encode()


PLACES: dict[str, Callable[[str], Answer]] = {
    "message": lambda text: Answer(400, _refusal(text)),
    "message in 200": lambda text: Answer(200, _refusal(f"you said {text}, really")),
    "flat message": lambda text: Answer(
        403, json.dumps({"code": 104001, "msg": text}).encode()
    ),
    "plain body": lambda text: Answer(500, text.encode()),
    "body of another kind": lambda text: Answer(200, json.dumps([text]).encode()),
    "every member": lambda text: Answer(
        200,
        json.dumps(
            dict.fromkeys(
                (
                    "accountId",
                    "fees",
                    "totalNum",
                    "trades",
                    "status",
                    "hash",
                    "apiKey",
                    "transactions",
                ),
                text,
            )
        ).encode(),
    ),
    "rows": lambda text: Answer(
        200, json.dumps({"totalNum": 1, "trades": [[text] * 14]}).encode()
    ),
    "name of a member": lambda text: Answer(200, json.dumps({text: 5}).encode()),
    "broken JSON": lambda text: Answer(200, b'{"a": "' + text.encode()),
    "header": lambda text: Answer(
        500,
        b"{}",
        {"X-Echo": text, "Set-Cookie": f"key={text}", "WWW-Authenticate": text},
    ),
    "source": lambda text: Answer(
        200,
        b"{}",
        {"X-Loopring-Lab-Source": json.dumps({"name": text, "synthetic": False})},
    ),
    "retry": lambda text: Answer(400, b"{}", {"Retry-After": text}),
    "redirect": lambda text: Answer(302, b"", {"Location": f"/x?key={text}"}),
    "bad redirect": lambda text: Answer(302, b"", {"Location": f"http://[{text}"}),
    "redirect to another host": lambda text: Answer(
        302, b"", {"Location": f"http://{text}.invalid:1/{text}"}
    ),
}
REQUESTS: dict[str, Callable[[Client], object]] = {
    "trades": lambda client: client.trades(ACCOUNT, progress=False),
    "fee": lambda client: client.update_fee(ACCOUNT),
    "status": lambda client: client.update_status(ACCOUNT, "0x" + 64 * "0"),
    "API key": lambda client: client.api_key(L2_KEY, ACCOUNT),
    "update": lambda client: client.update_account(
        {"nonce": 1, "ecdsaSignature": hide(HEADER), "keySeed": hide(KEY_SEED)}
    ),
}


@pytest.fixture
def debug_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    for name in list(logging.Logger.manager.loggerDict):
        caplog.set_level(logging.DEBUG, logger=name)
    return caplog


@pytest.mark.thorough
@pytest.mark.parametrize("place", PLACES)
def test_no_echo_of_a_secret_is_shown(place, debug_log, capfd):
    """A relayer sends back the key or the signature that it was sent, encoded, wherever an answer has room."""
    message = protocol.request_message(
        "GET", "http://127.0.0.1/api/v3/apiKey", {"accountId": ACCOUNT}
    )
    found: list[Any] = []
    for how in ENCODED:

        def echo(number: int, request: Request, how: str = how) -> Answer:
            return PLACES[place](echoed(request, how).replace("\n", ""))

        with scripted(echo) as server:
            signed = message.replace(
                quote("http://127.0.0.1", safe=""), quote(server.base_url, safe="")
            )
            secrets = {
                "key": forms(KEY),
                "update's signature": forms(HEADER),
                "key seed": forms(KEY_SEED),
                "request's signature": forms(
                    protocol.sign_request(L2_KEY.secret, signed)[:]
                ),
            }
            transport = Transport(
                server.base_url,
                api_key=KEY,
                rate=None,
                timeout=5,
                attempts=1,
                proxies=False,
            )
            client = Client(transport)
            for name, call in REQUESTS.items():
                try:
                    texts = [
                        repr(value := call(client)),
                        str(value),
                        repr(client),
                        client._repr_html_(),
                    ]
                except LabError as error:
                    texts = [*shown(error, quick=how != "raw")]
                found += [
                    (how, name, hit) for text in texts for hit in leaks(text, secrets)
                ]
            transport.close()
            out, err = capfd.readouterr()
            found += [
                (how, "output", hit)
                for hit in leaks(debug_log.text + out + err, secrets)
            ]
            debug_log.clear()
    assert found == []


def test_the_sweep_finds_a_secret_that_is_shown():
    def fail(key: str) -> None:
        raise LabError("refused.")

    with pytest.raises(LabError) as caught:
        fail(KEY)
    secrets = {"key": forms(KEY)}
    everything = [leaks(text, secrets) for text in shown(caught.value, package="")]
    assert everything == [[], ["key"], ["key"], ["key"]]
    for encode in ENCODED.values():
        assert leaks(f"said {encode(KEY)}!", secrets) == ["key"]
    assert forms(HEADER) > forms(bytes.fromhex(HEADER[2:]))
