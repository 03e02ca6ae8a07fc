"""Keys and signatures: published vectors and samples, and vectors from a second implementation."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eth_account import Account
from eth_account.messages import _hash_eip191_message, encode_defunct, encode_typed_data
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st
from support import protocol_vectors
from support.optional import thorough
from support.protocol_vectors import Vector, every_vector

from loopring_lab import protocol
from loopring_lab.errors import ProtocolError
from loopring_lab.protocol import curve

pytestmark = pytest.mark.contract

few = settings(max_examples=40, deadline=None, derandomize=True, database=None)
PUBLISHED = protocol_vectors.published()
MADE = "e7efcb1e191535b3d9b68b5ec41b9079047863681124844e262ad6c3b4a40d20"
tested: set[str] = set()


needs_published = pytest.mark.skipif(
    not PUBLISHED,
    reason=f"needs the published vectors: set {protocol_vectors.VARIABLE} to their folder",
)


def name_of(vector: Vector) -> str:
    return vector.get("id") or f"{vector['base']}-{vector['variant']}".replace(" ", "-")


def each(section: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once for every vector of a section, under the vector's own name."""
    tested.add(section)
    cases = [
        pytest.param(vector, id=name_of(vector)) for vector in every_vector()[section]
    ]
    return pytest.mark.parametrize("vector", cases)


def update_of(vector: Vector) -> protocol.AccountUpdate:
    return protocol.AccountUpdate(
        exchange=vector["exchange"],
        chain_id=vector["chain_id"],
        owner=vector["owner"],
        account_id=vector["account_id"],
        x=vector["public_key"]["x"],
        y=vector["public_key"]["y"],
        fee_token_id=vector["max_fee"]["tokenId"],
        max_fee=vector["max_fee"]["volume"],
        valid_until=vector["valid_until"],
        nonce=vector["nonce"],
    )


def check_key(vector: Vector, signature: str) -> None:
    key = protocol.l2_key(signature)
    coordinates = vector["public_key"]
    assert key.secret == int(vector["l2_secret"], 16)
    assert (key.x, key.y) == (int(coordinates["x"], 16), int(coordinates["y"], 16))
    assert protocol.public_key(vector["l2_secret"]) == (key.x, key.y)
    assert protocol.check_public_key(**coordinates) == (key.x, key.y)


def personal_sign(private_key: str, message: Any) -> str:
    return "0x" + Account.sign_message(message, private_key).signature.hex()


@each("account_update")
def test_account_update(vector):
    default = protocol.key_seed(vector["exchange"], vector["nonce"])
    assert (vector["key_seed"] == default) is (vector["id"] != "seed-custom")
    seed = encode_defunct(text=vector["key_seed"])
    assert "0x" + _hash_eip191_message(seed).hex() == vector["key_seed_hash"]
    assert personal_sign(vector["l1_private_key"], seed) == vector["key_seed_signature"]
    assert int(vector["l2_secret"], 16) == int(vector["l2_secret_dec"])
    check_key(vector, vector["key_seed_signature"])
    packed = protocol.pack_public_key(**vector["public_key"])
    assert f"{packed:#066x}" == vector["packed_public_key"]

    signable = encode_typed_data(
        full_message=protocol.account_update_typed_data(**update_of(vector))
    )
    digest = protocol.account_update_digest(**update_of(vector))
    assert "0x" + signable.header.hex() == vector["domain_separator"]
    assert "0x" + signable.body.hex() == vector["struct_hash"]
    assert "0x" + digest.hex() == vector["eip712_digest"]
    # test_keys.py sends the whole request and compares it with the vector's, byte by byte.
    assert protocol.x_api_sig(vector["ecdsa_signature"]) == vector["x_api_sig"]

    personal = personal_sign(vector["l1_private_key"], encode_defunct(primitive=digest))
    assert (
        protocol.x_api_sig(personal, protocol.KIND_PERSONAL)
        == vector["x_api_sig_personal"]
    )
    for header in (vector["x_api_sig"], vector["x_api_sig_personal"]):
        assert protocol.recover_signer(digest, header) == vector["owner"]
    check_l2_update(vector)


def check_l2_update(vector: Vector) -> None:
    """Check the signature that the new key can add to an update; only its numbers, as nothing sends it."""
    fee = vector["max_fee"]
    coordinates = vector["public_key"]
    x = int(coordinates["x"], 16)
    y = int(coordinates["y"], 16)
    fields = (
        int(vector["exchange"], 16),
        vector["account_id"],
        fee["tokenId"],
        int(fee["volume"]),
    )
    fields += (x, y, vector["valid_until"], vector["nonce"])
    digest = curve.poseidon(fields, width=9, partial_rounds=53)
    assert digest == int(vector["l2_update_hash_poseidon"], 16)
    signature = curve.sign(protocol.l2_key(vector["key_seed_signature"]).secret, digest)
    assert (
        "0x" + "".join(f"{number:064x}" for number in signature)
        == vector["l2_update_signature"]
    )
    assert curve.verify(x, y, digest, signature)


@each("request_signature")
def test_request_signature(vector):
    message = protocol.request_message(
        vector["method"], vector["base_url"] + vector["path"], vector["params"]
    )
    assert message == vector["message"]
    digest = int(sha256(message.encode()).hexdigest(), 16)
    assert f"{digest:#066x}" == vector["sha256"]
    assert digest % curve.P == int(vector["hash_dec"])
    assert protocol.sign_request(vector["l2_secret"], message) == vector["x_api_sig"]
    assert protocol.verify_request(
        **vector["public_key"], message=message, signature=vector["x_api_sig"]
    )


@each("counterfactual")
def test_counterfactual(vector):
    info = vector["counterFactualInfo"]
    factory = info["walletFactory"]
    code_hash = vector["init_code_hash"]
    assert info["walletOwner"] == vector["wallet_owner"]
    assert protocol.FACTORY_INIT_CODE_HASHES[factory] == code_hash
    address = protocol.wallet_address(
        factory, info["walletOwner"], info["walletSalt"], code_hash
    )
    assert address == vector["owner"]
    assert protocol.key_seed(vector["exchange"], vector["nonce"]) == vector["key_seed"]
    seed = encode_defunct(text=vector["key_seed"])
    assert personal_sign(vector["l1_private_key"], seed) == vector["key_seed_signature"]
    check_key(vector, vector["key_seed_signature"])
    digest = protocol.account_update_digest(**update_of(vector))
    assert "0x" + digest.hex() == vector["eip712_digest"]
    signer = protocol.recover_signer(digest, vector["x_api_sig"])
    assert signer == vector["wallet_owner"]
    # EIP-1014: the last 20 bytes of keccak(ff, factory, salt, hash of the code).
    parts = ["ff", factory[2:], vector["create2_salt"][2:], code_hash[2:]]
    created = keccak(bytes.fromhex("".join(parts)))[12:]
    assert created.hex() == vector["owner"][2:].lower()


@each("seed_signature_variants")
def test_seed_signature_variant(vector):
    check_key(vector, vector["signature"])


@each("negative_signatures")
def test_negative_signature(vector):
    assert vector["valid"] is False
    recovers_another = {"EIP-712 signature sent with suffix 03", "one bit of r flipped"}
    if vector["note"] in recovers_another:
        signer = protocol.recover_signer(vector["eip712_digest"], vector["signature"])
        assert signer != vector["owner"]
    else:
        with pytest.raises(ProtocolError, match=r"^X-API-SIG: ") as refused:
            protocol.recover_signer(vector["eip712_digest"], vector["signature"])
        assert vector["signature"][2:66] not in str(refused.value)


RANGE_NAMES = {
    "accountID": "account_id",
    "feeTokenID": "fee_token_id",
    "maxFee": "max_fee",
    "nonce": "nonce",
}


@each("field_ranges")
def test_field_range(vector):
    field = vector["field"].removesuffix("-nft")
    with pytest.raises(ProtocolError, match=f"^{field}: ") as refused:
        protocol.account_update_typed_data(
            **SAMPLE | {RANGE_NAMES[field]: vector["value"]}
        )
    assert refused.value.field == field


# A request that the public documents print ("UpdateAccount with custom seed"), from a test network.
SAMPLE = protocol.AccountUpdate(
    exchange="0x2e76EBd1c7c0C8e7c2B875b6d505a260C525d25e",
    chain_id=5,
    owner="0x8656920c85342d646E5286Cb841F90209272ABeb",
    account_id=11329,
    x="0x20ba7bd404f259c3d49853d6a849425a983c24fc3c01be177f719e84ba776a8c",
    y="0x266d7e40dba375c90816287814f20b8e187227a6d05f17d2d329fefac9b782af",
    fee_token_id=0,
    max_fee="24000000000000",
    valid_until=1899273791,
    nonce=0,
)
SAMPLE_SIGNATURE = (
    "0x05b49f99ac6d8f67d4519dfaf9b545dbc775dcc837441f85ef9aae74c83e5c2d"
    "700729cdba1d7a9cc818abb43a598cf1e4eeca547e4e6697ff18c4d2ac111ac21b03"
)


def test_the_documented_update_recovers_its_owner():
    assert (
        protocol.recover_signer(
            protocol.account_update_digest(**SAMPLE), SAMPLE_SIGNATURE
        )
        == SAMPLE["owner"]
    )
    protocol.check_public_key(SAMPLE["x"], SAMPLE["y"])


def test_the_documented_request_text():
    number = (
        "13375450901292179417154974849571793069911517354720397125027633242680470075859"
    )
    params = {"publicKeyX": number, "publicKeyY": number, "accountId": 1}
    assert protocol.request_message(
        "get", "https://api.loopring.io/api/v2/apiKey", params
    ) == (
        "GET&https%3A%2F%2Fapi.loopring.io%2Fapi%2Fv2%2FapiKey&"
        f"accountId%3D1%26publicKeyX%3D{number}%26publicKeyY%3D{number}"
    )


def test_a_published_request_signature_with_a_body_and_a_secret_above_the_subgroup_order():
    secret = "0x087d254d02a857d215c4c14d72521f8ab6a81ec8f0107eaf16093ebb7c70dc50"
    url = "https://api3.loopring.io/api/v3/apiKey"
    message = protocol.request_message("POST", url, {"accountId": "12345"})
    signature = (
        "0x15fdcda3ca2965d2ae43739cc6740e50c08d3f756c6161bcedb10fbc05290e00"
        "0f3bc31e2293ba91ca7ac55cd20a86ae3541d3dfed63896cd474015ec60b8d40"
        "274f98b2d0a87ebf8cd0ee16dc9ec953a229cf0d6b2b61867ca80ba6e8ae1ed3"
    )
    # Signatures of such a secret are published too.
    assert int(secret, 16) > curve.SUBGROUP_ORDER
    assert protocol.sign_request(secret, message) == signature
    assert protocol.verify_request(*protocol.public_key(secret), message, signature)


def test_a_published_key_pair():
    key = protocol.l2_key(
        "0xf8214f068c55d1bebf1fbefced91eba5f4bbe14315e1ad71f61f21e094f5853a"
        "12eba239aeaa77538ae458eebe49ca2b732d211bf0943095b3502a3b0e6a08cd1c"
    )
    assert (
        key.secret == 0x001FA186947C8C644CD11078F67E0BB21656432F55C4DF76997B6ACAB2ABDA7F
    )
    assert key.x == 0x29D178CDD6A40CD900C41565B6057A1D12C00A8C41AD367E2FE0100AAB00FBE3
    assert key.y == 0x29E339A045AF33D5729EAB3B64C617E6A78DCFD0988F95F215D443D77A864B9C


# The upper bit of a packed key says that x is above half of the field.
@pytest.mark.parametrize(
    ("x", "y", "upper_bit"),
    [
        (
            "0x10440b6de1fc92536e20501e7513b5ca78d4c8c876450d97cfc2a4e24a4c67c7",
            "0x10dfbb7cd80bde2eeedbf9e0fad12819ca20be36b96a7f28c37c6a7550ed366c",
            0,
        ),
        (
            "0x191f8455196d7c9116065b69a745edbe3f5b6193125f48d818e16101b0ebd13f",
            "0x0729569e74800ba4344767d608ec54f12b14cc4404a8726b5f73ebf8b58f9a09",
            1,
        ),
        (
            "0x1ae187c43a6b534be1ac60b335d5cc8c12a9d479339e5ce4134315e20c2940c4",
            "0x16fb785193a8657feb41b7944afde61fe05ea519621fa0f19d872a8fbba83463",
            1,
        ),
        (curve.P // 2, 5, 0),
        (curve.P // 2 + 1, 5, 1),
    ],
)
def test_published_packed_keys(x, y, upper_bit):
    packed = protocol.pack_public_key(x, y)
    assert packed == int(str(y), 0) + upper_bit * 2**255


def test_a_key_seed_keeps_the_case_of_the_exchange():
    lower = SAMPLE["exchange"].lower()
    assert lower in protocol.key_seed(lower, 7)
    assert protocol.key_seed(lower, "7").endswith(" with key nonce: 7")
    assert protocol.key_seed(SAMPLE["exchange"], 7) != protocol.key_seed(lower, 7)


@pytest.mark.parametrize(
    ("argument", "field", "bits"),
    [
        ("chain_id", "chainId", 256),
        ("account_id", "accountID", 32),
        ("fee_token_id", "feeTokenID", 15),
        ("max_fee", "maxFee", 96),
        ("valid_until", "validUntil", 32),
        ("nonce", "nonce", 32),
    ],
)
def test_ranges_end_where_the_types_end(argument, field, bits):
    largest = (1 << bits) - 1
    for good in (0, largest, str(largest), hex(largest), "007"):
        protocol.account_update_digest(**SAMPLE | {argument: good})
    wrong = [
        largest + 1,
        str(largest + 1),
        -1,
        "-1",
        "1.5",
        1.0,
        "",
        " 1",
        "1_0",
        "+1",
        "\uff11",
        None,
        True,
        [1],
    ]
    for bad in [*wrong, "0x", "1e3", "9" * 5000]:
        with pytest.raises(ProtocolError, match=f"^{field}: ") as refused:
            protocol.account_update_typed_data(**SAMPLE | {argument: bad})
        assert refused.value.field == field
        assert len(str(refused.value)) < 300


def test_readers_take_every_way_of_writing_the_same():
    x = int(str(SAMPLE["x"]), 16)
    y = int(str(SAMPLE["y"]), 16)
    written: dict[str, Any] = {
        "exchange": SAMPLE["exchange"].lower(),
        "owner": SAMPLE["owner"][2:].upper(),
        "account_id": np.int64(11329),
        "chain_id": "0x5",
        "max_fee": 24000000000000,
        "x": f"{x:X}",
        "y": y,
    }
    expected = protocol.account_update_typed_data(**SAMPLE)
    assert protocol.account_update_typed_data(**SAMPLE | written) == expected
    short = protocol.check_public_key(
        *(f"0X{value:x}" for value in protocol.public_key(1))
    )
    assert short == curve.BASE
    digest = protocol.account_update_digest(**SAMPLE)
    for header in (SAMPLE_SIGNATURE[2:].upper(), bytes.fromhex(SAMPLE_SIGNATURE[2:])):
        assert (
            protocol.recover_signer("0X" + digest.hex().upper(), header)
            == SAMPLE["owner"]
        )


def test_a_wallet_gets_json_without_wide_numbers():
    data = protocol.account_update_typed_data(**SAMPLE | {"max_fee": 2**96 - 1})
    assert json.loads(json.dumps(data)) == data
    assert {name: type(value) for name, value in data["message"].items()} == {
        **dict.fromkeys(("owner", "maxFee", "publicKey"), str),
        **dict.fromkeys(("accountID", "feeTokenID", "validUntil", "nonce"), int),
    }


def test_bare_signatures_are_refused_as_the_contract_does():
    digest = protocol.account_update_digest(**SAMPLE)
    bare = Account.from_key(b"\x05" * 32).unsafe_sign_hash(digest).signature
    with pytest.raises(ProtocolError, match="expected 66 bytes, got 65"):
        protocol.recover_signer(digest, bare)


def test_a_key_is_recovered_from_either_spelling_of_v():
    variants = every_vector()["seed_signature_variants"]
    assert variants
    for vector in variants:
        point = vector["public_key"]
        of_base = [one for one in variants if one["base"] == vector["base"]]
        spelled = [one for one in of_base if len(one["signature"]) == 2 + 2 * 65]
        for other in spelled:
            key = protocol.recover_l2_key(other["signature"], **point)
            if vector not in spelled:
                assert key is None
                continue
            assert int(key.secret) == int(vector["l2_secret"], 16)
            v = bytes.fromhex(vector["signature"][-2:])[0]
            assert key.v == ("0 or 1" if v < 2 else "27 or 28")
        stranger = protocol.l2_key(bytes(65))
        assert (
            protocol.recover_l2_key(vector["signature"], stranger.x, stranger.y) is None
        )


SECP256K1_ORDER = int(
    "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16
)


@pytest.mark.parametrize(
    ("r", "s", "v"),
    [
        (0, 1, 27),
        (1, 0, 27),
        (SECP256K1_ORDER, 1, 27),
        (1, SECP256K1_ORDER // 2 + 1, 28),
        (1, SECP256K1_ORDER - 1, 27),
        (5, 1, 27),  # no point of the curve has this x
        *((1, 1, v) for v in (0, 1, 26, 29, 255)),
    ],
)
def test_numbers_that_are_no_signature_are_refused(r, s, v):
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([v])
    with pytest.raises(ProtocolError, match=r"^X-API-SIG: "):
        protocol.recover_signer(bytes(32), signature + b"\x02")
    # That 5 is no x of a point shows only when a key is recovered.
    if r != 5:
        with pytest.raises(ProtocolError, match=r"^X-API-SIG: "):
            protocol.x_api_sig(signature)


def test_a_signature_made_for_the_point_at_infinity_is_refused():
    """With r from k x G and s = digest / k recovery ends at no point; some programs give it an address."""
    digest = 12345
    point = Account.from_key((2).to_bytes(32, "big"))._key_obj.public_key.to_bytes()
    s = digest * pow(2, -1, SECP256K1_ORDER) % SECP256K1_ORDER
    flip = s > SECP256K1_ORDER // 2
    s = SECP256K1_ORDER - s if flip else s
    odd = (point[63] & 1) ^ flip
    signature = point[:32] + s.to_bytes(32, "big") + bytes([27 + odd, 2])
    with pytest.raises(ProtocolError, match="belong to no public key"):
        protocol.recover_signer(digest.to_bytes(32, "big"), signature)


(FACTORY, INIT_CODE_HASH), *_ = protocol.FACTORY_INIT_CODE_HASHES.items()
WALLET = {
    "factory": FACTORY,
    "owner": SAMPLE["owner"],
    "salt": 0,
    "init_code_hash": INIT_CODE_HASH,
}


def typed(argument: str) -> Callable[[Any], object]:
    return lambda value: protocol.account_update_typed_data(
        **SAMPLE | {argument: value}
    )


def wallet(argument: str) -> Callable[[Any], object]:
    return lambda value: protocol.wallet_address(**WALLET | {argument: value})


NO_ADDRESS = [
    "",
    "0x",
    "0x12",
    SAMPLE["owner"][:-1],
    SAMPLE["owner"] + "00",
    "0x" + "g" * 40,
    None,
    5,
]
NO_COORDINATE = [
    "",
    "0x",
    "0xg",
    "-1",
    -1,
    curve.P,
    hex(curve.P),
    "0x" + "0" * 65,
    None,
    1.0,
    True,
]
NO_SECRET = [
    0,
    -1,
    curve.P,
    curve.SUBGROUP_ORDER,
    7 * curve.SUBGROUP_ORDER,
    "",
    "0x",
    "no hex",
    True,
    None,
    1.5,
    b"\1" + bytes(31),
]
# PROTOCOL.md: the public key of 1 is the base point.
BASE = protocol_vectors.BASE
WRONG: list[tuple[Callable[[Any], object], str, list[Any]]] = [
    (
        lambda value: protocol.key_seed(value, 0),
        "exchange",
        [*NO_ADDRESS[1:3], "not an address", b"." * 20],
    ),
    (typed("exchange"), "exchange", NO_ADDRESS),
    (typed("owner"), "owner", NO_ADDRESS),
    (typed("y"), "publicKey.y", NO_COORDINATE),
    (lambda value: protocol.pack_public_key(value, 1), "publicKey.x", NO_COORDINATE),
    (lambda value: protocol.pack_public_key(1, value), "publicKey.y", NO_COORDINATE),
    (lambda value: protocol.check_public_key(value, 1), "publicKey.x", NO_COORDINATE),
    (lambda value: protocol.check_public_key(1, value), "publicKey.y", NO_COORDINATE),
    (
        lambda value: protocol.x_api_sig(SAMPLE_SIGNATURE[:-2], value),
        "",
        [0, 1, 4, 5, 255, -1, "02", None],
    ),
    (
        lambda value: protocol.recover_signer(value, SAMPLE_SIGNATURE),
        "digest",
        ["", "0x", b"", bytes(31), bytes(33), "zz" * 32, None],
    ),
    (
        protocol.l2_key,
        "signature",
        [
            "",
            "0x",
            b"",
            bytes(64),
            "0x" + "0" * 129,
            "0x" + " 00" * 65,
            5,
            None,
            [0] * 65,
        ],
    ),
    (protocol.public_key, "secret", NO_SECRET),
    (lambda value: protocol.sign_request(value, "GET&a&b"), "secret", NO_SECRET),
    (lambda value: protocol.L2Key(value, *BASE), "secret", NO_SECRET),
    (
        lambda value: protocol.L2Key(1, *value),
        "publicKey",
        [(0, 1), (1, 1), BASE[::-1], protocol.public_key(2)],
    ),
    (lambda value: protocol.L2Key(1, value, 1), "publicKey.x", NO_COORDINATE),
    (wallet("factory"), "walletFactory", ["0x12"]),
    (wallet("owner"), "walletOwner", ["x"]),
    (wallet("salt"), "walletSalt", [2**256]),
    (wallet("init_code_hash"), "initCodeHash", [INIT_CODE_HASH[:-2]]),
]


def test_a_key_is_made_of_numbers_however_they_are_written():
    secret = 2**200 + 7
    x, y = protocol.public_key(secret)
    key = protocol.L2Key(secret, x, y)
    assert protocol.L2Key(f"{secret:x}", f"{x:#066x}", f"{y:x}") == key
    assert (int(key.secret), key.x, key.y) == (secret, x, y)


@pytest.mark.parametrize(("call", "field", "values"), WRONG)
def test_what_is_given_wrongly_is_named(call, field, values):
    for value in values:
        with pytest.raises(
            ProtocolError, match=f"^{field}: " if field else "type byte"
        ):
            call(value)


@given(salt=st.integers(0, 2**256 - 1), owner=st.binary(min_size=20, max_size=20))
@few
def test_a_wallet_address_is_create2_of_its_parts(salt, owner):
    # The wallet factory's source: salt of CREATE2 (EIP-1014) is the hash of owner and salt.
    inner = keccak(b"WALLET_CREATION" + owner + salt.to_bytes(32, "big"))
    whole = keccak(
        b"\xff" + bytes.fromhex(FACTORY[2:]) + inner + bytes.fromhex(INIT_CODE_HASH[2:])
    )
    for written in (salt, str(salt), hex(salt)):
        address = protocol.wallet_address(
            FACTORY.lower(), "0x" + owner.hex(), written, INIT_CODE_HASH
        )
        assert address.lower() == "0x" + whole[12:].hex()


UNRESERVED = "ABCabc019-_.~"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (None, ""),
        ({}, ""),
        ({"b": 2, "a": 1, "B": None}, "a%3D1%26b%3D2"),
        ({"sort": True, "x": "a b/ü"}, "sort%3Dtrue%26x%3Da%20b%2F%C3%BC"),
        ({"k": UNRESERVED}, "k%3D" + UNRESERVED),
        ({"k": "!'()*"}, "k%3D%21%27%28%29%2A"),
        (
            {"k": (1, [True, None], "x,y"), "none": [], "e": ""},
            "k%3D1%252Ctrue%252C%252Cx%252Cy%26none%3D",
        ),
    ],
)
def test_query_text_is_javascripts(params, text):
    assert (
        protocol.request_message("delete", "http://h/p", params)
        == f"DELETE&http%3A%2F%2Fh%2Fp&{text}"
    )


TEXTS = json.loads(
    (Path(__file__).parents[1] / "support" / "request_texts.json").read_text("utf-8")
)


# Made by the functions of the exchange's JavaScript SDK, but for the encoding of !'()*, which is that of its Python
# client.
@pytest.mark.parametrize("request_", TEXTS, ids=range(len(TEXTS)))
def test_the_text_of_a_request_is_that_of_the_exchanges_own_clients(request_):
    text = protocol.request_message(
        request_["method"],
        "https://api3.loopring.io" + request_["path"],
        request_["content"],
    )
    assert text == request_["text"].format(host="https%3A%2F%2Fapi3.loopring.io")


def test_names_are_in_the_order_of_javascripts_locale_compare():
    # Sorted by Node.js 22 with ICU 78: names.sort((a, b) => a.localeCompare(b)).
    text = "a A a_1 a1 ab aB Ab AB aB0 ab1 aB1 ab2 accountId accountID AccountId b B filltype fillTypes order "
    text += "Order orderby orderHash orderx orderX token_id token0 tokenAddress tokenId tokens zed Zed"
    names = text.split()
    given_names = dict.fromkeys(reversed(names), 1)
    signed = protocol.request_message("GET", "u", given_names)
    assert signed == "GET&u&" + "%26".join(f"{name}%3D1" for name in names)


def test_a_body_is_signed_as_it_is_sent():
    body = {"z": 1, "a": ["ü", None, True]}
    text = '{"z":1,"a":["ü",null,true]}'
    encoded = "%7B%22z%22%3A1%2C%22a%22%3A%5B%22%C3%BC%22%2Cnull%2Ctrue%5D%7D"
    for given_body in (body, text):
        # JavaScript's JSON.stringify and encodeURIComponent: no spaces, text as it is, UTF-8 in percent signs.
        assert protocol.request_message("PUT", "u", given_body) == f"PUT&u&{encoded}"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("PATCH", "u", None), "method"),
        ((5, "u", None), "method"),
        (("GET", "u?a=1", None), "url"),
        (("GET", b"u", None), "url"),
        (("GET", "u", "a=1"), "params"),
        (("GET", "u", ["a"]), "params"),
        (("POST", "u", {"a": float("nan")}), "body"),
        (("POST", "u", {"a": object()}), "body"),
        (("GET", "u", {"a": "\ud800"}), "text"),
        (("GET", "u", {"a": {"b": 1}}), "params"),
        (("GET", "u", {"a": b"b"}), "params"),
        (("GET", "u", {"ü": 1}), "params"),
        (("GET", "u", {"a-b": 1}), "params"),
        (("GET", "u", {"1": 1}), "params"),
        (("GET", "u", {5: 1}), "params"),
    ],
)
def test_what_cannot_be_signed_is_named(arguments, field):
    with pytest.raises(ProtocolError, match=f"^{field}: "):
        protocol.request_message(*arguments)


@pytest.mark.parametrize("message", [b"GET&a&b", {"accountId": 10083}, None, "\ud800"])
def test_only_text_is_signed(message):
    with pytest.raises(ProtocolError, match=r"^message: .*request_message\(\)"):
        protocol.sign_request(7, message)
    signature = protocol.sign_request(7, "GET&a&b")
    with pytest.raises(ProtocolError, match="^message: "):
        protocol.verify_request(*protocol.public_key(7), message, signature)


@pytest.mark.parametrize("step", [37, thorough(1)])
def test_any_other_bit_is_refused(step):
    """Flip bits of a signature, of the message and of the key; all of them when tests are thorough."""
    message = "GET&a&b"
    (x, y) = protocol.public_key(123456789)
    signature = protocol.sign_request(123456789, message)
    number = int(signature, 16)
    assert protocol.verify_request(x, y, message, signature)
    # Rx, Ry and s of 256 bits each.
    flipped = [f"0x{number ^ 1 << bit:0192x}" for bit in range(0, 768, step)]
    assert [
        text for text in flipped if protocol.verify_request(x, y, message, text)
    ] == []
    assert not protocol.verify_request(x, y, "GET&a&c", signature)
    assert not any(
        protocol.verify_request(x ^ 1 << bit, y, message, signature)
        for bit in range(0, 254, step)
    )


# A point of order 8: the subgroup's order times the point with y = 9.
TORSION = (
    17545522957889784193459637215142187266023652151580582754000402781682644312291,
    4826523245007015323400664741523384119579596407052839571721035538011798951543,
)


def written(rx: int, ry: int, s: int) -> str:
    return f"0x{rx:064x}{ry:064x}{s:064x}"


def test_points_that_are_no_keys_are_refused():
    """Of nothing but low order, with which signatures need no secret; off the curve; beyond the field."""
    low = [(0, 1)]
    for _ in range(7):
        low.append(protocol_vectors.add(low[-1], TORSION))
    assert len(set(low)) == 8
    x, y = curve.BASE
    elsewhere = [(x, y + 1), (5, 5), (x + curve.P, y), (x, y + curve.P)]
    for point in [*low, *elsewhere]:
        with pytest.raises(ProtocolError, match="publicKey"):
            protocol.check_public_key(*point)
    for point in low:
        assert not protocol.verify_request(*point, "GET&a&b", written(x, y, 1))
    # The neutral point as R: the equation holds for this s.
    digest = int(sha256(b"GET&a&b").hexdigest(), 16) % curve.P
    s = curve.poseidon((0, 1, x, y, digest)) % curve.ORDER
    assert not protocol.verify_request(x, y, "GET&a&b", written(0, 1, s))
    # As for the reference programs, a part of low order does not matter.
    protocol.check_public_key(*protocol_vectors.add(curve.BASE, TORSION))


def test_numbers_of_a_signature_have_ranges():
    """Adding the group's order to s, or the field's to R, changes nothing in the equation."""
    key = protocol.public_key(7)
    signature = protocol.sign_request(7, "GET&a&b")
    rx, ry, s = (int(signature[start : start + 64], 16) for start in (2, 66, 130))
    assert signature == written(rx, ry, s)
    for wrong in ((rx, ry, s + curve.ORDER), (rx + curve.P, ry, s), (rx, ry, s + 1)):
        assert not protocol.verify_request(*key, "GET&a&b", written(*wrong))


@pytest.mark.parametrize(
    "signature",
    ["", "0x", "zz", None, 5, "0x" + "0" * 192, "0x" + "f" * 192, b"\x01" * 96],
)
def test_a_malformed_request_signature_is_just_wrong(signature):
    assert protocol.verify_request(*curve.BASE, "GET&a&b", signature) is False
    assert protocol.verify_request(0, 1, "GET&a&b", signature) is False


def test_curve_and_order_are_those_of_the_second_implementation():
    ours = (curve.P, curve.A, curve.D, curve.ORDER, curve.SUBGROUP_ORDER, curve.BASE)
    assert ours == tuple(
        getattr(protocol_vectors, name)
        for name in ("P", "A", "D", "ORDER", "SUBGROUP_ORDER", "BASE")
    )


def test_the_vectors_made_here_never_change():
    made = json.dumps(protocol_vectors.made_vectors(), sort_keys=True)
    assert sha256(made.encode()).hexdigest() == MADE


@needs_published
def test_curve_and_hash_are_the_published_ones():
    numbers = {name: int(value) for name, value in PUBLISHED["curve"].items()}
    order = numbers.pop("order")
    cofactor = numbers.pop("cofactor")
    assert (order, cofactor) == (curve.ORDER, curve.ORDER // curve.SUBGROUP_ORDER)
    assert list(numbers.values()) == [
        curve.P,
        curve.A,
        curve.D,
        curve.SUBGROUP_ORDER,
        *curve.BASE,
    ]
    assert PUBLISHED["poseidon"]["api_signature"] == {"t": 6, "partial_rounds": 52}
    assert PUBLISHED["poseidon"]["account_update"] == {"t": 9, "partial_rounds": 53}


def test_every_section_of_vectors_has_a_test():
    sections = {
        section for section, value in PUBLISHED.items() if isinstance(value, list)
    }
    assert tested == set(protocol_vectors.SECTIONS) == (sections or tested)
