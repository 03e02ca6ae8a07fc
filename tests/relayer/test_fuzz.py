"""Whatever is asked, the answer is below 500, in the relayer's shape, and leaves nothing on the terminal."""

import http.client
import json
import logging
import random
from urllib.parse import quote, urlencode

from support.key_update_requests import request_signature, signed_update

ACCOUNT = 10083
REQUESTS = 2_000
METHODS = ("GET",) * 12 + ("POST",) * 5 + ("HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "X-Y")
NUMBERS = (
    "0",
    "1",
    "-1",
    "7",
    "42",
    str(ACCOUNT),
    "4294967295",
    "4294967296",
    "9" * 19,
    "9" * 400,
    "1e9",
    "0x10",
)
TEXTS = (
    "", " ", "\x00", "NaN", "null", "true", "1_0", "5.0", "٣", "é", "\ud800", "😀", "%", "%00", "%zz", "%ff%fe",
    "a" * 5_000, "LRC-ETH", "AMM-LRC-ETH", "AMM-AMM-LRC-ETH", "amm", "dex", "amm,dex", "2", "processed,failed",
    "0x" + "1" * 40, "0x" + "f" * 64, "0x" + "0" * 65, "' OR 1=1 --", "../../etc/passwd", "<script>", "\r\nX: y",
    "[1]", "{}", "accountId=1", "1,2", "\u202e", "0" * 100,
)  # fmt: skip
NAMES = (
    "accountId", "owner", "market", "orderHash", "fillTypes", "offset", "limit", "requestType", "tokenSymbol",
    "amount", "start", "end", "status", "account_id", "x", "", "accountId[]", "ACCOUNTID",
)  # fmt: skip


def test_random_requests_are_answered_in_shape(relayers, capfd, caplog):
    relayer = relayers()
    caplog.set_level(logging.DEBUG)
    dice = random.Random(12)
    relayer.app.openapi()
    paths = [route.path for route in relayer.app.routes] * 3 + [
        "/",
        "/api/v3",
        "/api/v3/nothing",
        "//",
        "/docs/",
    ]
    keys = [relayer.api_key, relayer.api_key[:-1], "", "0000000a" + "a" * 56, "€".encode().decode("latin-1")]
    signature = request_signature(relayer.base_url, relayer.l2_key(ACCOUNT), ACCOUNT)
    signatures = [signature, signature[:-2], "0x", "0x" + "0" * 192, "0x" + "f" * 132, "1" * 600, " "]
    update = signed_update(relayer, ACCOUNT)
    port, seen = int(relayer.base_url.rpartition(":")[2]), {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for number in range(REQUESTS):
        method, target = dice.choice(METHODS), random_target(dice, paths)
        headers = {
            "X-API-KEY": dice.choice(keys),
            "X-API-SIG": dice.choice([*signatures, update["ecdsaSignature"]]),
        }
        headers = {name: value for name, value in headers.items() if dice.random() < 0.7}
        body = random_body(dice, update) if dice.random() < 0.5 else None
        connection.request(method, target, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 500, (number, method, target, headers, body, text)
        assert json.loads(answer.headers["X-Loopring-Lab-Source"])["synthetic"] is True
        if answer.headers["Content-Type"] == "application/json" and text:
            assert answer.status < 400 or set(json.loads(text)["resultInfo"]) == {"code", "message"}
            assert answer.status < 400 or len(text) < 700
        seen[answer.status] = seen.get(answer.status, 0) + 1
    connection.close()
    assert set(seen) >= {200, 400, 404, 405}
    assert seen[200] > REQUESTS // 20
    assert capfd.readouterr() == ("", "")
    noisy = [record for record in caplog.records if record.name.startswith(("uvicorn", "asyncio", "fastapi"))]
    assert [record.getMessage() for record in noisy if record.levelno > logging.DEBUG] == []


def random_target(dice, paths):
    path = dice.choice(paths)
    if dice.random() < 0.05:
        place = dice.randrange(len(path) + 1)
        path = path[:place] + dice.choice(["%00", "%2e%2e/", ";", "//", "%ff", ":"]) + path[place:]
    pairs = [("accountId", str(ACCOUNT))] if dice.random() < 0.5 else []
    if "Fee" in path and dice.random() < 0.5:
        pairs.append(("requestType", "2"))
    for _ in range(dice.choice([0, 0, 1, 1, 2, 5])):
        pairs.append((dice.choice(NAMES), dice.choice(NUMBERS + TEXTS)))
        pairs += [pairs[-1]] * (dice.random() < 0.2)
    query = urlencode(pairs, quote_via=quote, errors="surrogatepass")
    return path + ("?" + query if query or dice.random() < 0.1 else "")


def random_body(dice, update):
    kind = dice.randrange(6)
    if kind == 0:
        return dice.randbytes(dice.randrange(200))
    if kind == 1:
        return b"[" * dice.choice([10, 5_000, 20_000])
    changed = json.loads(json.dumps(update))
    for _ in range(dice.randrange(3)):
        place = dice.choice([changed, changed["publicKey"], changed["maxFee"]])
        name = dice.choice([*place, "extra"])
        if place is changed and name in ("publicKey", "maxFee"):
            continue
        place[name] = dice.choice([*NUMBERS, *TEXTS, None, True, -1, 1.5, 10**30, [], {}, [[]], {"a": 1}])
    text = json.dumps(changed)
    if kind == 2:
        text = text[: dice.randrange(len(text))]
    if kind == 3:
        text = text.replace(": ", ': 1e999999999, "a": ', 1)
    return text.encode()
