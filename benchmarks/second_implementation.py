"""Key and signature vectors, made by a second implementation that shares no code with the package.

Affine points, hashes spelled out word by word, signatures by eth-account: slow and short. What it makes is the
same every time. Run: python benchmarks/second_implementation.py, which writes tests/support/protocol_vectors.json.
"""

import json
from hashlib import blake2b, sha256, sha512
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

Vector = dict[str, Any]
Affine = tuple[int, int]

P = 21888242871839275222246405745257275088548364400416034343698204186575808495617
A = 168700
D = 168696
SUBGROUP_ORDER = (
    2736030358979909402780800718157159386076813972158567259200215660948447373041
)
ORDER = 8 * SUBGROUP_ORDER
BASE = (
    16540640123574156134436876038791482806971768689494387082833631921987005038935,
    20819045374670962167435360035096875258406992893633759881276124905556507972311,
)
SECP256K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
EXCHANGES = {
    1: "0x0BABA1Ad5bE3a5C0a66E7ac838a129Bf948f1eA4",
    5: "0x2e76EBd1c7c0C8e7c2B875b6d505a260C525d25e",
}
FACTORY = "0x8c3d4E1728f77ABCD220323260da4A9306FB6433"
INIT_CODE_HASH = "0xf405edd5adef335488069d63483e3e880e56abde423cfee18ea84ea89584dbcc"
VALID_UNTIL = 1899273791


# The curve, the hash and EdDSA


def add(left: Affine, right: Affine) -> Affine:
    (x1, y1) = left
    (x2, y2) = right
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + y1 * x2) * pow(1 + product, -1, P)
    y = (y1 * y2 - A * x1 * x2) * pow(1 - product, -1, P)
    return x % P, y % P


def multiply(scalar: int, point: Affine) -> Affine:
    total = (0, 1)
    for bit in f"{scalar:b}":
        total = add(total, total)
        if bit == "1":
            total = add(total, point)
    return total


def chain_of_hashes(seed: bytes, count: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        seed = blake2b(seed, digest_size=32).digest()
        found.append(int.from_bytes(seed, "little") % P)
    return found


def poseidon(inputs: list[int], partial_rounds: int) -> int:
    """Hash with as many inputs as the state holds but one, which stays 0."""
    width = len(inputs) + 1
    rounds = 6 + partial_rounds
    x_and_y = chain_of_hashes(b"poseidon_matrix_0000", 2 * width)
    state = [*inputs, 0]
    for number, constant in enumerate(chain_of_hashes(b"poseidon_constants", rounds)):
        state = [(value + constant) % P for value in state]
        full = number < 3 or number >= rounds - 3
        state = [
            pow(value, 5, P) if full or place == 0 else value
            for place, value in enumerate(state)
        ]
        state = [
            sum(
                value * pow(x_and_y[row] - x_and_y[width + column], -1, P)
                for column, value in enumerate(state)
            )
            % P
            for row in range(width)
        ]
    return state[0]


def sign(secret: int, message: int) -> str:
    digest = sha512(
        secret.to_bytes(32, "little") + message.to_bytes(32, "little")
    ).digest()
    nonce = int.from_bytes(digest, "little") % SUBGROUP_ORDER
    r = multiply(nonce, BASE)
    key = multiply(secret, BASE)
    s = (nonce + secret * poseidon([*r, *key, message], 52)) % ORDER
    return "0x" + "".join(f"{number:064x}" for number in (*r, s))


def l2_key(signature: str) -> Vector:
    """Derive the L2 key of a key seed's signature."""
    digest = sha256(bytes.fromhex(signature[2:])).digest()
    secret = int.from_bytes(digest, "little") % SUBGROUP_ORDER
    x, y = multiply(secret, BASE)
    return {
        "l2_secret": f"{secret:#066x}",
        "public_key": {"x": f"{x:#066x}", "y": f"{y:#066x}"},
    }


# L1: typed data and addresses


def words(*parts: int | str | bytes) -> bytes:
    """Join numbers, addresses and hashes as 32-byte words."""
    numbers = [
        int.from_bytes(p)
        if isinstance(p, bytes)
        else int(p, 16)
        if isinstance(p, str)
        else p
        for p in parts
    ]
    return b"".join(number.to_bytes(32, "big") for number in numbers)


def typed_data(vector: Vector) -> Vector:
    """Return the EIP-712 hashes of an account update."""
    kind = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
    name = keccak(b"Loopring Protocol")
    version = keccak(b"3.6.0")
    domain = keccak(
        words(keccak(kind), name, version, vector["chain_id"], vector["exchange"])
    )
    kind = (
        b"AccountUpdate(address owner,uint32 accountID,uint16 feeTokenID,uint96 maxFee,"
    )
    kind += b"uint256 publicKey,uint32 validUntil,uint32 nonce)"
    x, y = (int(vector["public_key"][axis], 16) for axis in "xy")
    packed = y | 1 << 255 if x > (P - 1) // 2 else y
    fee = vector["max_fee"]
    place = (vector["owner"], vector["account_id"], fee["tokenId"], int(fee["volume"]))
    struct = keccak(
        words(keccak(kind), *place, packed, vector["valid_until"], vector["nonce"])
    )
    return {
        "packed_public_key": f"{packed:#066x}",
        "domain_separator": "0x" + domain.hex(),
        "struct_hash": "0x" + struct.hex(),
        "eip712_digest": "0x" + keccak(b"\x19\x01" + domain + struct).hex(),
    }


def personally(private_key: str, message: Any) -> str:
    return "0x" + bytes(Account.sign_message(message, private_key).signature).hex()


def signed_directly(private_key: str, digest: str) -> str:
    return "0x" + bytes(Account.unsafe_sign_hash(digest, private_key).signature).hex()


# Vectors, in the form of the published ones


def account_update(given: Vector) -> Vector:
    """Complete a vector from its inputs: key, account, exchange, fee, time, nonce and key seed."""
    private_key = given["l1_private_key"]
    seed = given["key_seed"].encode()
    seed_signature = personally(private_key, encode_defunct(primitive=seed))
    vector = {
        **given,
        "owner": Account.from_key(private_key).address,
        **l2_key(seed_signature),
    }
    vector["key_seed_hash"] = (
        "0x" + keccak(b"\x19Ethereum Signed Message:\n%d" % len(seed) + seed).hex()
    )
    vector |= {
        "key_seed_signature": seed_signature,
        "l2_secret_dec": str(int(vector["l2_secret"], 16)),
    }
    vector |= typed_data(vector)
    digest = vector["eip712_digest"]
    vector["ecdsa_signature"] = signed_directly(private_key, digest)
    vector["x_api_sig"] = vector["ecdsa_signature"] + "02"
    vector["x_api_sig_personal"] = (
        personally(private_key, encode_defunct(hexstr=digest)) + "03"
    )
    fee = vector["max_fee"]
    key = vector["public_key"]
    fields = [
        int(vector["exchange"], 16),
        vector["account_id"],
        fee["tokenId"],
        int(fee["volume"]),
    ]
    fields += [
        int(key["x"], 16),
        int(key["y"], 16),
        vector["valid_until"],
        vector["nonce"],
    ]
    update_hash = poseidon(fields, 53)
    vector["l2_update_hash_poseidon"] = f"{update_hash:#066x}"
    vector["l2_update_signature"] = sign(int(vector["l2_secret"], 16), update_hash)
    names = {
        "exchange": "exchange",
        "owner": "owner",
        "accountId": "account_id",
        "publicKey": "public_key",
    }
    names |= {
        "maxFee": "max_fee",
        "validUntil": "valid_until",
        "nonce": "nonce",
        "keySeed": "key_seed",
    }
    body = {wire: vector[name] for wire, name in names.items()}
    return vector | {"request_body": {**body, "ecdsaSignature": vector["x_api_sig"]}}


def request_signature(given: Vector) -> Vector:
    """Complete the vector of a signed request from its secret, method, address and parameters."""
    method = given["method"]
    url = given["base_url"] + given["path"]
    params = given["params"]
    if method == "GET":
        content = "&".join(f"{name}={params[name]}" for name in sorted(params))
    else:
        content = json.dumps(params, separators=(",", ":"))
    encoded = quote(content, safe="")
    if method == "GET":
        # Commas of a query are encoded twice.
        encoded = encoded.replace("%2C", "%252C")
    message = "&".join([method, quote(url, safe=""), encoded])
    digest = sha256(message.encode()).hexdigest()
    secret = int(given["l2_secret"], 16)
    x, y = multiply(secret, BASE)
    return given | {
        "public_key": {"x": f"{x:#066x}", "y": f"{y:#066x}"},
        "message": message,
        "sha256": "0x" + digest,
        "hash_dec": str(int(digest, 16) % P),
        "x_api_sig": sign(secret, int(digest, 16) % P),
    }


def counterfactual(given: Vector) -> Vector:
    """Complete the vector of a wallet that is not deployed yet, from its factory, salt and owner's key."""
    private_key = given["l1_private_key"]
    wallet_owner = Account.from_key(private_key).address
    salt = keccak(
        b"WALLET_CREATION"
        + bytes.fromhex(wallet_owner[2:])
        + words(int(given["wallet_salt"]))
    )
    factory = bytes.fromhex(given["wallet_factory"][2:])
    code = bytes.fromhex(given["init_code_hash"][2:])
    seed_signature = personally(private_key, encode_defunct(text=given["key_seed"]))
    vector = given | {
        "wallet_owner": wallet_owner,
        "create2_salt": "0x" + salt.hex(),
        "owner": to_checksum_address(keccak(b"\xff" + factory + salt + code)[12:]),
        "key_seed_signature": seed_signature,
        **l2_key(seed_signature),
    }
    digest = typed_data(vector)["eip712_digest"]
    info = {
        "walletFactory": given["wallet_factory"],
        "walletOwner": wallet_owner,
        "walletSalt": given["wallet_salt"],
    }
    signature = signed_directly(private_key, digest) + "02"
    return vector | {
        "eip712_digest": digest,
        "x_api_sig": signature,
        "counterFactualInfo": info,
    }


def made_vectors() -> dict[str, list[Vector]]:
    """Make a few vectors of every section from throwaway keys; the same ones every time."""
    updates = [account_update(given) for given in _update_inputs()]
    requests = [
        {
            "id": "made-get",
            "method": "GET",
            "params": {"accountId": 10083, "tag": "a b/ü&=~'(1)"},
        },
        {
            "id": "made-post",
            "method": "POST",
            "params": {"accountId": 10083, "tags": ["a", "b+c"]},
        },
    ]
    address = {"base_url": "https://relayer.example", "path": "/api/v3/apiKey"}
    wallet = _inputs("made-wallet", 4, chain_id=5) | {
        "wallet_factory": FACTORY,
        "wallet_salt": "1648381750",
    }
    return {
        "account_update": updates,
        "request_signature": [
            request_signature({**given, **address, "l2_secret": update["l2_secret"]})
            for given, update in zip(requests, updates, strict=False)
        ],
        "counterfactual": [counterfactual(wallet | {"init_code_hash": INIT_CODE_HASH})],
        "seed_signature_variants": _seed_variants(updates[0]),
        "negative_signatures": _broken_signatures(updates[0]),
        "field_ranges": [
            {"id": "made-range-maxFee", "field": "maxFee", "value": str(2**96)},
            {"id": "made-range-accountID", "field": "accountID", "value": 2**32},
            {"id": "made-range-feeTokenID", "field": "feeTokenID", "value": 2**16},
            {
                "id": "made-range-feeTokenID-nft",
                "field": "feeTokenID-nft",
                "value": 2**15,
            },
            {"id": "made-range-nonce", "field": "nonce", "value": -1},
        ],
    }


def _inputs(name: str, number: int, chain_id: int = 1, nonce: int = 0) -> Vector:
    exchange = EXCHANGES[chain_id]
    seed = f"Sign this message to access Loopring Exchange: {exchange} with key nonce: {nonce}"
    return {
        "id": name,
        "l1_private_key": "0x"
        + sha256(b"loopring_lab throwaway vector %d" % number).hexdigest(),
        "key_seed": seed,
        "chain_id": chain_id,
        "exchange": exchange,
        "account_id": 700_000 + 10 * chain_id + number,
        "max_fee": {"tokenId": 0, "volume": "1000000000000000"},
        "valid_until": VALID_UNTIL,
        "nonce": nonce,
    }


def _update_inputs() -> list[Vector]:
    custom = _inputs("seed-custom", 2, nonce=7) | {
        "key_seed": "Reading room ü, with key nonce: 7"
    }
    largest = _inputs("made-largest", 3, nonce=2**32 - 2) | {"account_id": 2**32 - 1}
    largest["max_fee"] = {"tokenId": 3, "volume": str(2**96 - 1)}
    return [
        _inputs("made-plain", 1),
        _inputs("made-test-network", 5, chain_id=5),
        custom,
        largest,
    ]


def _seed_variants(update: Vector) -> list[Vector]:
    signed = update["key_seed_signature"]
    forms = {
        "v as 0/1": f"{signed[:-2]}{int(signed[-2:], 16) - 27:02x}",
        "suffix 02 appended": signed + "02",
    }
    return [
        {"base": "made-plain", "variant": name, "signature": text, **l2_key(text)}
        for name, text in forms.items()
    ]


def _broken_signatures(update: Vector) -> list[Vector]:
    signed = update["ecdsa_signature"]
    r = signed[2:66]
    s = int(signed[66:130], 16)
    v = int(signed[130:], 16)
    forms = {
        "EIP-712 signature sent with suffix 03": signed + "03",
        "type INVALID": signed + "01",
        "type ILLEGAL": signed + "00",
        "type WALLET (deprecated)": signed + "04",
        "v as 0/1 instead of 27/28": f"{signed[:-2]}{v - 27:02x}02",
        "s in the upper half (malleated)": f"0x{r}{SECP256K1_ORDER - s:064x}{55 - v:02x}02",
        "64 bytes": signed[:-2],
        "67 bytes": signed + "0202",
        "one bit of r flipped": f"0x{int(r, 16) ^ 2:064x}{signed[66:]}02",
        "zeros": "0x" + 65 * "00" + "02",
        "no suffix byte": signed,
    }
    same = {
        "valid": False,
        "eip712_digest": update["eip712_digest"],
        "owner": update["owner"],
    }
    return [
        {"id": f"made-{number}", "note": note, "signature": text, **same}
        for number, (note, text) in enumerate(forms.items())
    ]


if __name__ == "__main__":
    made = Path(__file__).parents[1] / "tests" / "support" / "protocol_vectors.json"
    made.write_text(json.dumps(made_vectors(), indent=1) + "\n")
