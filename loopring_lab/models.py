"""What a relayer answers about accounts, updates of keys and API keys, read and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from loopring_lab.errors import ProtocolError, UnexpectedAnswer
from loopring_lab.preview import Line, Sheet
from loopring_lab.protocol.eddsa import L2Key
from loopring_lab.protocol.fields import coordinate
from loopring_lab.redaction import SecretBytes, SecretText, hide
from loopring_lab.tables.wire import nests_too_deep

STATES = ("received", "processing", "processed", "failed")
"""What an update of a key goes through; the last two are its ends."""
_STRANGE = "Check base_url: this may be another kind of relayer."


@dataclass(frozen=True, slots=True)
class Account:
    """An account as the relayer knows it."""

    account_id: int
    owner: str
    frozen: bool
    x: str
    y: str
    nonce: int
    key_nonce: int | None = None
    key_seed: str = ""
    tags: str = ""

    def has_key(self, key: L2Key) -> bool:
        """Tell whether a key is this account's current one."""
        try:
            return (coordinate("x", self.x), coordinate("y", self.y)) == (key.x, key.y)
        except ProtocolError:
            return False

    def _repr_html_(self) -> str:
        lines = [
            Line("owner", self.owner, "the wallet that decides about the account"),
            Line("public key x", self.x, "of the L2 key that signs its requests now"),
            Line("public key y", self.y, "of the same key: it is a point"),
            Line("nonce", self.nonce, "the next update must carry this number"),
            Line("key seed", self.key_seed, "the text whose signature made the key"),
            Line("frozen", "yes" if self.frozen else "no", "yes while an update is under way"),
        ]
        return Sheet(f"Account {self.account_id}", lines)._repr_html_()


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange that a relayer works for."""

    address: str
    chain_id: int


@dataclass(frozen=True, slots=True)
class Submission:
    """What a relayer answers to an update of a key, and to the question how it goes."""

    status: str
    hash: str | None = None
    is_idempotent: bool = False
    storage_id: int | None = None
    reason: str | None = None


def read_submission(body: bytes) -> Submission:
    """Read the answer to an update."""
    return _submission(_object(body, "account"))


def read_progress(body: bytes, update_hash: str) -> Submission | None:
    """Find an update in the answer to the question for updates."""
    listed = _member(_object(body, "updateInfo"), "transactions", list)
    found = (one for one in listed if isinstance(one, dict) and one.get("hash") == update_hash)
    return next(map(_submission, found), None)


def read_account(body: bytes) -> Account:
    """Read the answer to the question for an account."""
    answer = _object(body, "account")
    key = answer.get("publicKey")
    key = key if isinstance(key, dict) else {}
    return Account(
        account_id=_member(answer, "accountId", int),
        owner=_member(answer, "owner", str),
        frozen=_member(answer, "frozen", bool),
        x=_hex(key.get("x")),
        y=_hex(key.get("y")),
        nonce=_member(answer, "nonce", int),
        key_nonce=answer.get("keyNonce"),
        key_seed=answer.get("keySeed") or "",
        tags=answer.get("tags") or "",
    )


def read_exchange(body: bytes) -> Exchange:
    """Read the answer to the question for the exchange."""
    answer = _object(body, "exchange/info")
    return Exchange(_member(answer, "exchangeAddress", str), _member(answer, "chainId", int))


def read_fees(body: bytes) -> pd.DataFrame:
    """Read the answer to the question for fees."""
    fees = _member(_object(body, "offchainFee"), "fees", list)
    if not all(isinstance(fee, dict) for fee in fees):
        raise UnexpectedAnswer("fees", expected="objects", got="something else", hint=_STRANGE)
    columns = {
        "fee_token": [_member(fee, "token", str) for fee in fees],
        "fee": [_member(fee, "fee", str) for fee in fees],
        "discount": [float(_member(fee, "discount", int | float)) for fee in fees],
    }
    return pd.DataFrame(columns)


def read_api_key(body: bytes) -> SecretText:
    """Read the answer to the question for an API key."""
    key = _api_key(SecretBytes(body))
    del body
    if not key:
        raise UnexpectedAnswer("apiKey", expected="text", got="something else", hint=_STRANGE)
    return key


def _submission(answer: dict[str, Any]) -> Submission:
    status = _member(answer, "status", str)
    if status not in STATES:
        raise UnexpectedAnswer("status", expected=f"one of {', '.join(STATES)}", got=status, hint=_STRANGE)
    name, idempotent = _member(answer, "hash", str), answer.get("isIdempotent") is True
    return Submission(status, name, idempotent, answer.get("storageId"), answer.get("reason") or None)


def _hex(text: str | None) -> str:
    """Return a coordinate in full length, as far as it is one."""
    try:
        return f"{coordinate('publicKey', text or ''):#066x}"
    except ProtocolError:
        return ""


def _object(body: bytes, what: str) -> dict[str, Any]:
    answer = _parsed(body)
    if not isinstance(answer, dict):
        raise UnexpectedAnswer(what, expected="a JSON object", got="something else", hint=_STRANGE)
    return answer


def _member(answer: dict[str, Any], name: str, kind: Any) -> Any:
    value = answer.get(name)
    if not isinstance(value, kind):
        got = "nothing" if value is None else type(value).__name__
        raise UnexpectedAnswer(name, expected=getattr(kind, "__name__", "a number"), got=got, hint=_STRANGE)
    return value


def _parsed(body: bytes) -> Any:
    """Return JSON, or None where there is none, or a nest so deep that reading it could crash Python."""
    try:
        return None if nests_too_deep(body) else json.loads(body)
    except ValueError:
        return None


def _api_key(body: SecretBytes) -> SecretText | None:
    """Return the key in an answer; None, not an error, so that no traceback has a frame with it."""
    try:
        return cast("SecretText | None", hide(_parsed(body)["apiKey"]))
    except (KeyError, TypeError):
        return None
