"""Signed key-update requests for tests of the relayer, and a plain HTTP client to send them."""

import http.client
import json
from typing import Any

import requests
from eth_account.messages import encode_defunct

from loopring_lab import protocol
from loopring_lab.relayer import Relayer, Settings

FEE = 10**15
CHAIN = Settings().chain_id
LATER = 4_000_000_000
"""Seconds since the epoch, in 2096."""


def new_key(signer, seed: str) -> protocol.L2Key:
    return protocol.l2_key(
        bytes(signer.sign_message(encode_defunct(text=seed)).signature)
    )


def signature_of(body: dict[str, Any], signer, chain_id: int = CHAIN) -> str:
    """Sign what a body says."""
    typed = protocol.account_update_typed_data(
        exchange=body["exchange"],
        chain_id=chain_id,
        owner=body["owner"],
        account_id=body["accountId"],
        **body["publicKey"],
        fee_token_id=body["maxFee"]["tokenId"],
        max_fee=body["maxFee"]["volume"],
        valid_until=body["validUntil"],
        nonce=body["nonce"],
    )
    return protocol.x_api_sig(
        bytes(signer.sign_typed_data(full_message=typed).signature)
    )


def signed_update(
    relayer: Relayer, account_id: int, nonce: int = 1, **changes
) -> dict[str, Any]:
    """Make the body of an update by the account's owner; changes come before the signature."""
    signer = relayer.signer(account_id)
    exchange = relayer.settings.exchange
    seed = protocol.key_seed(exchange, nonce)
    key = new_key(signer, seed)
    wallet = relayer.counterfactual(account_id)
    body = {
        "exchange": exchange,
        "owner": relayer._accounts.owner(account_id).address,
        "accountId": account_id,
        "publicKey": {"x": f"{key.x:#066x}", "y": f"{key.y:#066x}"},
        "maxFee": {"tokenId": 0, "volume": str(FEE)},
        "validUntil": LATER,
        "nonce": nonce,
        "keySeed": seed,
        **({"counterFactualInfo": wallet} if wallet else {}),
        **changes,
    }
    body["ecdsaSignature"] = signature_of(body, signer, relayer.settings.chain_id)
    return body


def request_signature(
    base_url: str, key: protocol.L2Key, account_id: int, path: str = "/api/v3/apiKey"
) -> str:
    message = protocol.request_message(
        "GET", base_url + path, {"accountId": account_id}
    )
    return protocol.sign_request(key.secret, message)


def get(
    relayer: Relayer, path: str, headers: dict[str, Any] | None = None, **query
) -> requests.Response:
    return requests.get(
        relayer.base_url + "/api/v3" + path, params=query, headers=headers, timeout=600
    )


def ask_for_key(relayer: Relayer, account_id: int, key: protocol.L2Key) -> Any:
    """Return the answer to a request for an account's API key that a key signed."""
    signature = request_signature(relayer.base_url, key, account_id)
    headers = {"X-API-SIG": signature}
    return get(relayer, "/apiKey", headers, accountId=account_id).json()


def stored(relayer: Relayer) -> str:
    """Return what a relayer holds of accounts and key updates, to compare it before and after."""
    return repr((relayer._accounts.held, relayer._updates._updates))


class Poster:
    """Sends any bytes as body and headers of POST /account, over one connection where that lasts."""

    def __init__(self, relayer: Relayer):
        self._address = relayer.base_url.removeprefix("http://")
        self._connection = http.client.HTTPConnection(self._address, timeout=600)

    def post(self, body: bytes, headers: list[tuple[str, bytes]]) -> tuple[int, Any]:
        connection = self._connection
        connection.putrequest("POST", "/api/v3/account")
        for name, value in [("Content-Length", str(len(body)).encode()), *headers]:
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def send(self, body: dict[str, Any], header: str | None = None) -> tuple[int, Any]:
        """Send a body with the signature it carries, or with another one."""
        signature = body.get("ecdsaSignature") if header is None else header
        return self.post(
            json.dumps(body).encode(), [("X-API-SIG", str(signature).encode())]
        )

    def close(self):
        self._connection.close()


def error_code(answer: tuple[int, Any]) -> int:
    """Return the code of an error response."""
    status, body = answer
    assert status == 400, answer
    code = body["resultInfo"]["code"]
    assert isinstance(code, int)
    return code
