"""Hundreds of broken requests: each is rejected with a code, none has an effect."""

import copy
import json
from collections import Counter
from random import Random
from typing import Any

from support.key_update_requests import signature_of, signed_update, stored

ACCOUNT = 10083
OTHER = 11519
WALLET = 94680
CODES = {100001, 101001, 101002, 102001, 102021, 104004, 104005, 114001, 114002}
OPTIONAL = {"ecdsaSignature", "counterFactualInfo"}

Request = tuple[bytes, list[tuple[str, bytes]]]
WRONG: list[Any] = [
    None,
    True,
    0.5,
    -1,
    2**64,
    10**400,
    "",
    "0xzz",
    "1.5",
    "0x" + 65 * "f",
    "١٢",
    "\x00",
    "x" * 3000,
    [1],
    {"x": 1},
    "\ud800",
]
NAMES = ("extra", "accountID", "", "__proto__", "a" * 500, "\ud800")


def paths(body, outer=()):
    for name, value in body.items():
        yield (*outer, name)
        if isinstance(value, dict):
            yield from paths(value, (*outer, name))


def changed(body, path, value=...):
    """Copy a body with one member replaced, or left out."""
    made = copy.deepcopy(body)
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    inner.pop(path[-1])
    if value is not ...:
        inner[path[-1]] = value
    return made


def encoded(body):
    return json.dumps(body).encode()


def other_values(body):
    """Return bodies with a member of another type, out of range, or of another value than was signed."""
    for path in paths(body):
        for value in WRONG:
            if not (value is None and path[0] in OPTIONAL):
                yield changed(body, path, value)
    signed_otherwise = {
        "accountId": OTHER,
        "validUntil": body["validUntil"] - 1,
        "nonce": 2,
    }
    for name, value in signed_otherwise.items():
        for wrong in (value, str(body[name]), float(body[name])):
            yield {**body, name: wrong}
    yield changed(body, ("maxFee", "volume"), int(body["maxFee"]["volume"]))


def other_members(body):
    """Return bodies that lack a member, or have one too many."""
    for path in paths(body):
        if path[0] not in OPTIONAL or len(path) > 1:
            yield changed(body, path)
    for name in NAMES:
        yield {**body, name: 1}
        for outer in ("publicKey", "maxFee"):
            yield {**body, outer: {**body[outer], name: 1}}


def broken_bytes(body, random):
    """Return bodies with a member twice, cut, no UTF-8, no JSON, or far too long or deep."""
    data = encoded(body)
    for path in paths(body):
        name = json.dumps(path[-1]).encode()
        yield data.replace(name + b": ", name + b': "0x1", ' + name + b": ", 1)
    for bad in (b"\xff", b"\xc3(", b"\x00", b"\xed\xa0\x80"):
        for at in random.sample(range(1, len(data)), 4):
            yield data[:at] + bad + data[at:]
    for at in random.sample(range(len(data)), 10):
        yield data[:at]
    yield from (b"", b"null", b"[]", b"{}", b"[" + data + b"]", data + data, b"NaN")
    for number in (b"1e0", b"NaN", b"01", b"1" * 5_000_000):
        yield data.replace(b'"nonce": 1', b'"nonce": ' + number)
    nested = b"[" * 8000 + b"]" * 8000
    yield nested
    yield data[:-1] + b', "extra": ' + nested + b"}"
    yield data + b" " * 5_000_000
    yield encoded({**body, "keySeed": "y" * 5_000_000 + body["keySeed"]})


def other_headers(body, relayer, random):
    """Return requests whose signature is missing, broken, somebody else's, or not that of the body."""
    right = body["ecdsaSignature"].encode()
    bare = encoded(changed(body, ("ecdsaSignature",)))
    wrong = [right[:length] for length in (0, 2, 131)]
    wrong += [right * 2, right[:-2] + b"zz", b"\xff\xfe", b"0x" + 30_000 * b"1"]
    for at in range(2, 134, 12):
        wrong.append(right[:at] + b"%02x" % random.randrange(256) + right[at + 2 :])
    others = [
        signature_of(body, relayer.signer(OTHER)),
        signature_of(body, relayer.signer(ACCOUNT), 5),
        signature_of({**body, "nonce": 2}, relayer.signer(ACCOUNT)),
    ]
    for value in [*wrong, *map(str.encode, others)]:
        yield bare, [("X-API-SIG", value)]
    yield bare, []
    yield encoded(body), []
    yield bare, [("X-API-KEY", right)]


def mutations(relayer):
    random = Random(1)
    body = signed_update(relayer, ACCOUNT)
    header = [("X-API-SIG", body["ecdsaSignature"].encode())]
    for other in (*other_values(body), *other_members(body)):
        yield encoded(other), header
    for data in broken_bytes(body, random):
        yield data, header
    yield from other_headers(body, relayer, random)
    wallet = signed_update(relayer, WALLET)
    header = [("X-API-SIG", wallet["ecdsaSignature"].encode())]
    info = "counterFactualInfo"
    for path in paths(wallet[info], (info,)):
        for value in WRONG:
            yield encoded(changed(wallet, path, value)), header


def test_broken_requests_have_a_code_and_no_effect(relayers, posters):
    relayer = relayers()
    poster = posters(relayer)
    before = stored(relayer)
    whole = signed_update(relayer, ACCOUNT)
    codes = Counter[int]()
    for body, headers in mutations(relayer):
        status, answer = poster.post(body, headers)
        shown = f"{status} {answer} to {body[:700]!r} {headers!r}"[:1000]
        assert status == 400, shown
        assert set(answer["resultInfo"]) == {"code", "message"}, shown
        assert answer["resultInfo"]["code"] in CODES, shown
        message = answer["resultInfo"]["message"]
        assert message.isprintable()
        assert len(message) < 300
        assert whole["ecdsaSignature"][2:40] not in message
        codes[answer["resultInfo"]["code"]] += 1
    assert codes.total() > 350
    assert set(codes) >= {100001, 101001, 104004, 104005}
    assert stored(relayer) == before
    # What all of them were made from is taken.
    assert poster.send(whole)[0] == 200
