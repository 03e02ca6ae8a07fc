"""Hundreds of broken requests: each is rejected with a code, none has an effect."""

import copy
import json
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
    False,
    0.5,
    1e300,
    -1,
    2**32,
    2**64,
    2**256,
    10**400,
    "",
    " ",
    "0x",
    "0xzz",
    "-1",
    "1.5",
    "1e3",
    "0x" + 41 * "1",
    "0x" + 65 * "f",
    "0x" + 64 * "f",
    "١٢",
    "\x00",
    "😀" * 20,
    "x" * 3000,
    [],
    [1],
    {},
    {"x": 1},
    [[[]]],
    "null",
    "\ud800",
]


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
                yield encoded(changed(body, path, value))
    for name, value in (
        ("accountId", OTHER),
        ("validUntil", body["validUntil"] - 1),
        ("nonce", 2),
    ):
        yield encoded({**body, name: value})
        yield encoded({**body, name: str(body[name])})
        yield encoded({**body, name: float(body[name])})
    yield encoded(
        {**body, "maxFee": {**body["maxFee"], "volume": int(body["maxFee"]["volume"])}}
    )


def other_members(body):
    """Return bodies that lack a member, have one too many, or one twice."""
    for path in paths(body):
        if path[0] not in OPTIONAL or len(path) > 1:
            yield encoded(changed(body, path))
        text = json.dumps(body)
        name = json.dumps(path[-1])
        yield text.replace(f"{name}: ", f'{name}: "0x1", {name}: ', 1).encode()
    for name in (
        "extra",
        "accountID",
        "Owner",
        "X",
        "",
        "__proto__",
        "é",
        "a" * 500,
        "\ud800",
        "maxfee",
    ):
        yield encoded({**body, name: 1})
        for outer in ("publicKey", "maxFee"):
            yield encoded({**body, outer: {**body[outer], name: 1}})


def broken_bytes(body, random):
    """Return bodies that are cut, are no UTF-8, no JSON, or far too long or deep."""
    data = encoded(body)
    for bad in (b"\xff", b"\xc3(", b"\x00", b"\xed\xa0\x80", b"\x1b"):
        for at in random.sample(range(1, len(data)), 8):
            yield data[:at] + bad + data[at:]
    for at in random.sample(range(len(data)), 20):
        yield data[:at]
    yield from (
        b"",
        b" ",
        b"null",
        b"1",
        b"[]",
        b'""',
        b"{}",
        b"[" + data + b"]",
        data + data,
        b"NaN",
        data + b",",
    )
    for depth in (10, 8000):
        yield b"[" * depth + b"]" * depth
        yield b'{"a":' * depth + b"1" + b"}" * depth
        yield encoded(body)[:-1] + b', "extra": ' + b"[" * depth + b"]" * depth + b"}"
    for size in (20_000, 5_000_000):
        yield data + b" " * size
        yield encoded({**body, "keySeed": "y" * size + body["keySeed"]})
        yield data.replace(b'"nonce": 1', b'"nonce": ' + b"1" * size)
    for number in (b"1e0", b"NaN", b"01", b"1e999"):
        yield data.replace(b'"nonce": 1', b'"nonce": ' + number)


def other_headers(body, relayer, random):
    """Return requests whose signature is missing, broken, somebody else's, or not that of the body."""
    right = body["ecdsaSignature"].encode()
    bare = encoded(changed(body, ("ecdsaSignature",)))

    def with_header(value):
        return bare, [("X-API-SIG", value)]

    for byte in range(0, 66, 6):
        flipped = bytearray(bytes.fromhex(right[2:].decode()))
        flipped[byte] ^= 1 << random.randrange(8)
        yield with_header(b"0x" + flipped.hex().encode())
        yield encoded(body), [("X-API-SIG", b"0x" + flipped.hex().encode())]
    for length in (0, 2, 131):
        yield with_header(right[:length])
    for value in (
        b"0x" + 132 * b"f",
        right * 2,
        right[:-2] + b"zz",
        b"\xff\xfe",
        b"0x" + 300_000 * b"1",
        signature_of(body, relayer.signer(OTHER)).encode(),
        signature_of(body, relayer.signer(ACCOUNT), 5).encode(),
        signature_of({**body, "nonce": 2}, relayer.signer(ACCOUNT)).encode(),
    ):
        yield with_header(value)
    yield bare, []
    yield encoded(body), []
    yield bare, [("X-API-SIG", right), ("X-API-SIG", right)]
    yield bare, [("X-API-KEY", right)]
    yield bare, [("Authorization", right)]


def mutations(relayer):
    random = Random(1)
    body = signed_update(relayer, ACCOUNT)
    header = [("X-API-SIG", body["ecdsaSignature"].encode())]
    for data in (
        *other_values(body),
        *other_members(body),
        *broken_bytes(body, random),
    ):
        yield data, header
    yield from other_headers(body, relayer, random)
    wallet = signed_update(relayer, WALLET)
    info = ("counterFactualInfo",)
    for path in paths(wallet[info[0]], info):
        for value in WRONG:
            yield (
                encoded(changed(wallet, path, value)),
                [("X-API-SIG", wallet["ecdsaSignature"].encode())],
            )


def test_broken_requests_have_a_code_and_no_effect(relayers, posters):
    relayer = relayers()
    poster = posters(relayer)
    before = stored(relayer)
    signed = signed_update(relayer, ACCOUNT)["ecdsaSignature"]
    count = 0
    codes = set()
    for count, (body, headers) in enumerate(mutations(relayer), start=1):  # noqa: B007
        status, answer = poster.post(body, headers)
        shown = f"{body[:700]!r} {headers!r}"[:1000]
        assert status == 400, f"{status} {answer} to {shown}"
        assert set(answer["resultInfo"]) == {"code", "message"}, shown
        assert answer["resultInfo"]["code"] in CODES, f"{answer} to {shown}"
        assert answer["resultInfo"]["message"].isprintable()
        assert len(answer["resultInfo"]["message"]) < 300
        assert signed[2:40] not in answer["resultInfo"]["message"]
        codes.add(answer["resultInfo"]["code"])
    assert count >= 500
    assert codes >= {100001, 101001, 104004, 104005}
    assert stored(relayer) == before
    assert (
        poster.send(signed_update(relayer, ACCOUNT))[0] == 200
    )  # what all of them were made from
